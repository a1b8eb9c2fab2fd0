//! Checks that the core and the language module refer to no clock, lock, thread or I/O. Within one
//! crate, no crate boundary enforces that.

use std::path::{Path, PathBuf};

/// Identifiers that are forbidden in the core, including its tests, which run in virtual time.
const FORBIDDEN: [&str; 24] = [
    "tokio",
    "tokio_util",
    "futures_util",
    "async",
    "await",
    "Future",
    "Instant",
    "SystemTime",
    "jiff",
    "thread",
    "fs",
    "net",
    "env",
    "process",
    "reqwest",
    "axum",
    "Mutex",
    "RwLock",
    "Atomic",
    "mpsc",
    "rand",
    "tracing",
    "println",
    "eprintln",
];

/// The code of a source, without comments and the contents of strings.
pub(super) fn code(source: &str) -> String {
    let mut code = String::new();
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("'\"'") {
            3
        } else if let Some(length) = raw_string(&code, rest) {
            length
        } else if c == '"' {
            end_of_string(rest)
        } else {
            code.push(c);
            c.len_utf8()
        };
        rest = &rest[skipped..];
    }
    code
}

/// The code of a source, also without the tests at its end.
pub(super) fn code_without_tests(source: &str) -> String {
    let mut code = code(source);
    let tests = code.find("#[cfg(test)]\nmod tests {");
    code.truncate(tests.unwrap_or(code.len()));
    code
}

/// The length of the raw string literal that `text` begins with, behind the code `before`, bytes.
fn raw_string(before: &str, text: &str) -> Option<usize> {
    let is_name = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let hashes = text.strip_prefix('r').filter(|_| !is_name)?;
    let quoted = hashes.trim_start_matches('#');
    let end = format!("\"{}", "#".repeat(hashes.len() - quoted.len()));
    let content = quoted.strip_prefix('"')?;
    let length = content
        .find(&end)
        .map_or(content.len(), |at| at + end.len());
    Some(text.len() - content.len() + length)
}

/// The length of the string literal that `text` begins with, including quotes, bytes.
fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

fn forbidden(source: &str) -> Vec<String> {
    let code = code(source);
    code.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| {
            FORBIDDEN.contains(word) || word.starts_with("Atomic") || word.ends_with("_channel")
        })
        .map(str::to_owned)
        .collect()
}

pub(super) fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in folder.read_dir().expect("the folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Files below `folder` that contain forbidden identifiers.
fn impure(folder: &str, forbidden: impl Fn(&str) -> Vec<String>) -> Vec<(PathBuf, Vec<String>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = sources(&folder);
    assert!(files.len() > 10, "the folder has moved: {files:?}");
    let found = files.into_iter().map(|path| {
        let words = forbidden(&std::fs::read_to_string(&path).expect("text"));
        (path, words)
    });
    found.filter(|(_, words)| !words.is_empty()).collect()
}

#[test]
fn the_conversation_is_pure() {
    let found = impure("src/conversation", forbidden);
    assert!(found.is_empty(), "{found:#?}");
}

/// The core calls this module. It may calculate with dates but not read the clock.
#[test]
fn language_is_pure() {
    const CLOCK: [&str; 4] = ["now", "Timestamp", "Zoned", "TimeZone"];
    let found = impure("src/language", |source| {
        let code = code(source);
        let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        let clock = words.filter(|word| CLOCK.contains(word)).map(str::to_owned);
        let others = forbidden(source).into_iter().filter(|word| word != "jiff");
        others.chain(clock).collect()
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn forbidden_identifiers_are_found() {
    let source = r#"
        //! tokio in a comment
        /* std::thread here */ use std::time::Instant; // and fs there
        let quoted = "Mutex \" env";
        let raw = (r"fs\", r"[\d]\", "net");
        let quote = '"'; async fn f() { AtomicU64::new(0); }
    "#;
    assert_eq!(forbidden(source), ["Instant", "async", "AtomicU64"]);
}
