//! The `undertone` binary: see `undertone --help`.

use std::process::ExitCode;

/// Switches off the telemetry of ONNX Runtime, which it has on Linux, too, since version 1.31. Its C API can do so only after
/// the library has written a device id and a database of events into the user's cache.
const NO_TELEMETRY: (&str, &str) = ("ORT_DISABLE_TELEMETRY", "1");

#[allow(
    unsafe_code,
    reason = "there is no other way to set a variable that a library of this process reads"
)]
fn main() -> ExitCode {
    // SAFETY: no other thread runs yet that could read the environment.
    unsafe { std::env::set_var(NO_TELEMETRY.0, NO_TELEMETRY.1) };
    undertone::cli::main()
}
