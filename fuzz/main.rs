//! Lets libFuzzer feed one of the readers of `src/fuzzing.rs`, which `FUZZ_TARGET` names: `make fuzz`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static TARGET: LazyLock<String> =
    LazyLock::new(|| std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a reader"));

fuzz_target!(|bytes: &[u8]| undertone::fuzzing::run(&TARGET, bytes));
