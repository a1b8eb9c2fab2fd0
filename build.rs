//! Tells the program what it was built from, for `undertone --version`.

use std::fs;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=UNDERTONE_COMMIT");
    let (commit, date) = match std::env::var("UNDERTONE_COMMIT") {
        Ok(given) if !given.is_empty() => (given, String::new()),
        // A build for development would be made anew after each commit.
        _ if std::env::var("PROFILE").as_deref() == Ok("debug") => {
            ("a development build".into(), String::new())
        }
        _ => of_repository().or_else(of_package).unwrap_or_default(),
    };
    println!("cargo:rustc-env=BUILT_FROM={commit}");
    println!("cargo:rustc-env=BUILT_DATE={date}");
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo:rustc-env=BUILT_FOR={target}");
}

/// The commit of the checkout, marked if something is changed, and its date.
fn of_repository() -> Option<(String, String)> {
    // Not the commit of a repository that this folder merely lies in.
    fs::metadata(".git").ok()?;
    let head = git(&["rev-parse", "--git-path", "HEAD"])?;
    let branch = git(&[
        "rev-parse",
        "--git-path",
        &git(&["rev-parse", "--symbolic-full-name", "HEAD"])?,
    ])?;
    for path in [head, branch] {
        println!("cargo:rerun-if-changed={path}");
    }
    let commit = git(&[
        "describe",
        "--always",
        "--abbrev=12",
        "--dirty",
        "--exclude=*",
    ])?;
    Some((
        commit,
        git(&["show", "--no-patch", "--format=%cs", "HEAD"])?,
    ))
}

fn git(arguments: &[&str]) -> Option<String> {
    let answer = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    answer.status.success().then(|| text.trim().to_owned())
}

/// The commit that `cargo package` has written into the package.
fn of_package() -> Option<(String, String)> {
    let text = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\":")?;
    let commit = rest.split('"').nth(1)?;
    Some((commit.get(..12)?.to_owned(), String::new()))
}
