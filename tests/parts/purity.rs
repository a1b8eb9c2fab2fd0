//! The conversation's core names nothing that has a clock, a lock, a thread or I/O: one crate has no
//! crate boundary to lean on.

use std::path::{Path, PathBuf};

/// Identifiers that have no business in the core, tests included: those run on virtual time.
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

/// The code of a source text: comments and the insides of strings left out.
fn code(source: &str) -> String {
    let mut code = String::new();
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("'\"'") {
            3
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

/// Bytes of the string that `text` begins with, quotes included.
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

fn sources(folder: &Path) -> Vec<PathBuf> {
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

#[test]
fn the_conversation_is_pure() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conversation");
    let files = sources(&folder);
    assert!(files.len() > 10, "the core has moved: {files:?}");
    let found: Vec<_> = files
        .iter()
        .map(|path| {
            (
                path,
                forbidden(&std::fs::read_to_string(path).expect("text")),
            )
        })
        .filter(|(_, words)| !words.is_empty())
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn what_is_forbidden_is_found() {
    let source = r#"
        //! tokio in a comment
        /* std::thread here */ use std::time::Instant; // and fs there
        let quoted = "Mutex \" env";
        let quote = '"'; async fn f() { AtomicU64::new(0); }
    "#;
    assert_eq!(forbidden(source), ["Instant", "async", "AtomicU64"]);
}
