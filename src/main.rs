//! The `undertone` binary: see `undertone --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    undertone::cli::main()
}
