//! Checks that imports between top-level modules only go down the layers ("floors") in
//! ARCHITECTURE.md.

use super::purity::{code_without_tests, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

const ARCHITECTURE: &str = include_str!("../../ARCHITECTURE.md");

/// Each module's floor, from 0 at the bottom.
fn floors() -> BTreeMap<String, usize> {
    let section = ARCHITECTURE.split("\n## The floors\n").nth(1);
    let block = section.and_then(|text| text.split("```").nth(1));
    let lines = block.expect("a list of floors").lines().skip(1);
    let names = |line: &str| line.split_once(':').expect("name: modules").1.to_owned();
    let floors: Vec<String> = lines.map(names).collect();
    let numbered = floors.iter().rev().enumerate();
    numbered
        .flat_map(|(number, modules)| {
            modules
                .split_whitespace()
                .map(move |module| (module.to_owned(), number))
        })
        .collect()
}

/// The module path of a file, relative to the folder that the file's path starts in.
pub(super) fn module_of(file: &Path) -> Vec<String> {
    let mut path: Vec<String> = file
        .with_extension("")
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        })
        .collect();
    if path.last().is_some_and(|name| name == "mod") {
        path.pop();
    }
    path
}

/// Identifiers, `::`, and the punctuation of use trees.
pub(super) fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let length = match c {
            c if is_name(c) => rest.find(|c| !is_name(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            c => c.len_utf8(),
        };
        if is_name(c) || ["::", "{", "}", ",", ";", "*"].contains(&&rest[..length]) {
            tokens.push(&rest[..length]);
        }
        rest = &rest[length..];
    }
    tokens
}

/// The top-level modules that a module's code refers to, without tests.
fn imports(module: &[String], source: &str) -> BTreeSet<String> {
    let code = code_without_tests(source);
    let tokens = tokens(&code);
    let mut found = BTreeSet::new();
    for at in 0..tokens.len() {
        let after_path = at > 0 && tokens[at - 1] == "::";
        let behind = match tokens[at] {
            "crate" if !after_path => at + 1,
            "super" if !after_path => {
                let supers = tokens[at..]
                    .chunks(2)
                    .take_while(|two| *two == ["super", "::"]);
                let supers = supers.count();
                if supers < module.len() {
                    continue;
                }
                at + 2 * supers - 1
            }
            _ => continue,
        };
        if tokens.get(behind) != Some(&"::") {
            continue;
        }
        match tokens.get(behind + 1) {
            Some(&"{") => found.extend(first_names(&tokens[behind + 2..])),
            Some(name) => {
                found.insert((*name).to_owned());
            }
            None => {}
        }
    }
    found
}

/// The first name of each path in a use list.
fn first_names(list: &[&str]) -> Vec<String> {
    let (mut depth, mut begins, mut names) = (1, true, Vec::new());
    for token in list {
        match *token {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 1 => begins = true,
            name if depth == 1 && begins => {
                names.push(name.to_owned());
                begins = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

#[test]
fn imports_only_go_down() {
    let floors = floors();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut upwards, mut modules) = (BTreeSet::new(), BTreeSet::new());
    for file in sources(&src) {
        let module = module_of(file.strip_prefix(&src).expect("a source"));
        let (Some(top), false) = (module.first(), module.iter().any(|name| name == "tests")) else {
            continue;
        };
        if ["lib", "main"].contains(&top.as_str()) {
            continue;
        }
        modules.insert(top.clone());
        let source = std::fs::read_to_string(&file).expect("text");
        for import in imports(&module, &source) {
            let goes_down = floors.get(&import) < floors.get(top);
            if import != *top && floors.contains_key(&import) && !goes_down {
                upwards.insert(format!("{}: {import}", file.display()));
            }
        }
    }
    let listed: BTreeSet<String> = floors.keys().cloned().collect();
    assert_eq!(modules, listed, "the floors in ARCHITECTURE.md");
    assert!(upwards.is_empty(), "{upwards:#?}");
}

#[test]
fn imports_are_found_in_any_form() {
    let module = ["tools".to_owned(), "journal".to_owned()];
    let source = r#"
        use crate::llm::{Prompt, prompt::Prompts};
        use crate::{
            audio::{g711, ring::Ring}, // and crate::desktop, in a comment
            time,
        };
        use super::{Registry, ToolError};
        use super::super::asr::Asr;
        fn f() -> crate::server::App { "crate::cli" }
    "#;
    let source = source.to_owned() + "#[cfg(test)]\nmod tests { use crate::session; }";
    let found: Vec<String> = imports(&module, &source).into_iter().collect();
    assert_eq!(found, ["asr", "audio", "llm", "server", "time"]);
}
