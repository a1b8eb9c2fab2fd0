//! Checks that documentation says at once what a thing is, and that old nicknames stay out of the code.

use super::purity::{code, sources};
use std::path::{Path, PathBuf};

/// The first words of a doc comment that is a riddle: it asks instead of saying what the item is or does.
const RIDDLES: [&str; 4] = ["What ", "Who ", "Why ", "How far "];

/// Nicknames that were replaced by the terms of the field.
const NICKNAMES: [&str; 9] = [
    "Ears",
    "Mouth",
    "Deaf",
    "deaf",
    "Happening",
    "Surroundings",
    "Witnesses",
    "knock",
    "Knock",
];

/// Files of the program that were named by nicknames.
const FILES: [&str; 3] = ["mind.rs", "manner.rs", "foreign.rs"];

/// The first line of each paragraph of the doc comments in a source.
fn paragraphs(source: &str) -> Vec<&str> {
    let mut paragraphs = Vec::new();
    let mut goes_on = false;
    for line in source.lines() {
        let line = line.trim_start();
        let prefixes = ["///", "//!", "/**", "* "];
        let text = prefixes.iter().find_map(|prefix| line.strip_prefix(prefix));
        let text = text.map(str::trim).filter(|text| !text.is_empty());
        match text {
            Some(text) if !goes_on => paragraphs.push(text),
            _ => {}
        }
        // The paragraph after a heading is the description of the errors.
        goes_on = text.is_some_and(|text| !text.starts_with('#'));
    }
    paragraphs
}

/// The page's scripts.
fn scripts(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let files = std::fs::read_dir(folder).expect("the page");
    let files = files.map(|file| file.expect("a file").path());
    files.filter(|file| file.extension().is_some_and(|kind| kind == "js"))
}

/// All sources with their paths. `tests/foreign` and `tests/playground` hold other people's packages.
fn all() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [
        "src",
        "benches",
        "engine/src",
        "engine/tests",
        "signal/src",
        "tests/common",
        "tests/parts",
        "tests/support",
        "tests/wire",
    ];
    let programs =
        ["desktop.rs", "playground.rs", "soak.rs"].map(|name| root.join("tests").join(name));
    let files: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| sources(&root.join(folder)))
        .chain(programs)
        .chain(scripts(&root.join("web")))
        // The examples below would be found.
        .filter(|path| !path.ends_with("parts/words.rs"))
        .collect();
    assert!(files.len() > 500, "the folders have moved: {}", files.len());
    files
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("text");
            (path, text)
        })
        .collect()
}

#[test]
fn no_doc_comment_begins_with_what() {
    let mut found = Vec::new();
    for (path, source) in all() {
        let riddles = paragraphs(&source).into_iter();
        let riddles = riddles.filter(|text| RIDDLES.iter().any(|riddle| text.starts_with(riddle)));
        found.extend(riddles.map(|text| format!("{}: {text}", path.display())));
    }
    assert!(found.is_empty(), "say what it is or does: {found:#?}");
}

#[test]
fn nicknames_stay_out() {
    let mut found = Vec::new();
    for (path, source) in all() {
        let code = code(&source);
        let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        let names = words.filter(|word| NICKNAMES.contains(word));
        found.extend(names.map(|name| format!("{}: {name}", path.display())));
        let is_of_tests = path.components().any(|part| part.as_os_str() == "tests");
        if !is_of_tests && FILES.iter().any(|name| path.ends_with(name)) {
            found.push(path.display().to_string());
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn riddles_are_found() {
    let source = "
        //! What it is.
        //! What goes on does not begin.
        /// Returns it.
        ///
        /// # Errors
        /// Why it failed.
        fn f() {}
        // What a comment begins with is free.
        /// How far it goes.

        /** Who asks. */
        /**
         * Why it asks.
         */
    ";
    let found = paragraphs(source).into_iter();
    let found: Vec<&str> = found
        .filter(|text| RIDDLES.iter().any(|riddle| text.starts_with(riddle)))
        .collect();
    let riddles = ["What it is.", "Why it failed.", "How far it goes."];
    assert_eq!(found[..3], riddles);
    assert_eq!(found[3..], ["Who asks. */", "Why it asks."]);
}
