//! Checks the structure of the conversation's core: no import circles, no rule that imports the
//! wiring, and small files and types.

use super::floors::{module_of, tokens};
use super::purity::{code, code_without_tests, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The most lines in a file, including inline tests.
const MOST_LINES: usize = 450;

/// The most fields in a struct.
const MOST_FIELDS: usize = 15;

/// The path of a module or item, relative to the core's root.
type Item = Vec<String>;

/// The sources of the core by module, without tests.
fn core() -> BTreeMap<Item, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conversation");
    let module = |file: &Path| module_of(file.strip_prefix(&folder).expect("in the folder"));
    let files = sources(&folder).into_iter();
    files
        .map(|file| (module(&file), std::fs::read_to_string(&file).expect("text")))
        .filter(|(module, _)| !module.iter().any(|name| name == "tests"))
        .collect()
}

/// Reads a use tree such as `a::{b, c::d as e}` at `at`. Returns its paths, each with its local
/// name.
fn paths(tokens: &[&str], at: &mut usize, prefix: &[String], found: &mut Vec<(Item, String)>) {
    match tokens.get(*at) {
        Some(&"{") => {
            *at += 1;
            while let Some(token) = tokens.get(*at) {
                match *token {
                    "}" => break,
                    "," => *at += 1,
                    _ => paths(tokens, at, prefix, found),
                }
            }
            *at += 1;
        }
        Some(name) => {
            let path = [prefix, &[(*name).to_owned()]].concat();
            *at += 1;
            match tokens.get(*at) {
                Some(&"::") => {
                    *at += 1;
                    paths(tokens, at, &path, found);
                }
                Some(&"as") => {
                    let alias = tokens.get(*at + 1).map(|alias| (*alias).to_owned());
                    found.push((path, alias.unwrap_or_default()));
                    *at += 2;
                }
                _ => found.push((path, (*name).to_owned())),
            }
        }
        None => {}
    }
}

/// The core's items that a module refers to.
#[derive(Default)]
struct Named {
    /// Re-exports (`pub use`), each with its public name.
    passed_on: Vec<(Item, String)>,
    /// Items that it uses.
    used: Vec<Item>,
}

fn named(module: &Item, source: &str, core: &BTreeMap<Item, String>) -> Named {
    let code = code_without_tests(source);
    let tokens = tokens(&code);
    let mut named = Named::default();
    let mut at = 0;
    while at < tokens.len() {
        let is_use = tokens[at] == "use";
        let is_child = || {
            let child = [module.as_slice(), &[tokens[at].to_owned()]].concat();
            core.contains_key(&child) && (at == 0 || tokens[at - 1] != "::")
        };
        let is_path = tokens.get(at + 1) == Some(&"::")
            && (["super", "crate"].contains(&tokens[at]) || is_child());
        if !is_use && !is_path {
            at += 1;
            continue;
        }
        let before = &tokens[at.saturating_sub(2)..at];
        let is_public = is_use && before.contains(&"pub");
        at += usize::from(is_use);
        let mut found = Vec::new();
        paths(&tokens, &mut at, &[], &mut found);
        for (path, name) in found {
            match absolute(module, &path, core) {
                Some(item) if is_public => named.passed_on.push((item, name)),
                Some(item) => named.used.push(item),
                None => {}
            }
        }
    }
    named
}

/// A path relative to the core's root; `None` if it is outside.
fn absolute(module: &Item, path: &[String], core: &BTreeMap<Item, String>) -> Option<Item> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    match path.first()?.as_str() {
        "crate" => (path.get(1)? == "conversation").then(|| path[2..].to_vec()),
        "super" => {
            let base = module.len().checked_sub(supers)?;
            Some([&module[..base], &path[supers..]].concat())
        }
        child => {
            let inner = [module.as_slice(), &[child.to_owned()]].concat();
            let inside = core.contains_key(&inner);
            inside.then(|| [module.as_slice(), path].concat())
        }
    }
}

/// Each module with the modules that it imports.
fn imports(core: &BTreeMap<Item, String>) -> BTreeMap<Item, BTreeSet<Item>> {
    let named = core
        .iter()
        .map(|(module, source)| (module, named(module, source, core)));
    let named: BTreeMap<&Item, Named> = named.collect();
    let mut passed_on = BTreeMap::new();
    for (module, named) in &named {
        for (item, name) in &named.passed_on {
            passed_on.insert(
                [module.as_slice(), std::slice::from_ref(name)].concat(),
                item,
            );
        }
    }
    // A re-exported item belongs to the module that defines it.
    let home = |item: &Item| {
        let mut item = item;
        while let Some(origin) = passed_on.get(item) {
            item = *origin;
        }
        let modules = (0..=item.len()).rev().map(|length| item[..length].to_vec());
        modules.into_iter().find(|module| core.contains_key(module))
    };
    let used = |module: &Item, used: &[Item]| {
        let homes = used.iter().filter_map(home);
        homes.filter(|other| other != module).collect()
    };
    named
        .iter()
        .map(|(module, named)| ((*module).clone(), used(module, &named.used)))
        .collect()
}

/// All modules that a module depends on, directly or not.
fn below(module: &Item, imports: &BTreeMap<Item, BTreeSet<Item>>) -> BTreeSet<Item> {
    let mut found = BTreeSet::new();
    let mut open = vec![module];
    while let Some(module) = open.pop() {
        for import in imports.get(module).into_iter().flatten() {
            if found.insert(import.clone()) {
                open.push(import);
            }
        }
    }
    found
}

/// The structs in a source, each with its number of fields.
fn structs(source: &str) -> Vec<(String, usize)> {
    let code = code(source);
    let bodies = code.split("struct ").skip(1).filter_map(|text| {
        let end = text.find(['{', ';', '('])?;
        let name = text[..end].trim().to_owned();
        text[end..].starts_with('{').then(|| (name, &text[end..]))
    });
    bodies.map(|(name, body)| (name, fields(body))).collect()
}

/// Counts the fields in a struct body.
fn fields(body: &str) -> usize {
    let (mut depth, mut fields) = (0, 0);
    let body = body.replace("::", "");
    for c in body.chars() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth -= 1,
            ':' if depth == 1 => fields += 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    fields
}

#[test]
fn the_core_has_no_import_circles() {
    let core = core();
    assert!(core.len() > 30, "the core has moved: {:?}", core.keys());
    let imports = imports(&core);
    let circles: Vec<_> = imports
        .keys()
        .filter(|module| below(module, &imports).contains(*module))
        .map(|module| module.join("::"))
        .collect();
    assert!(circles.is_empty(), "in a circle: {circles:#?}");
}

#[test]
fn no_rule_imports_the_wiring() {
    let is_wiring = |module: &Item| module.first().is_some_and(|name| name == "wiring");
    let imports = imports(&core());
    let sees = |(module, imports): &(&Item, &BTreeSet<Item>)| {
        !is_wiring(module) && imports.iter().any(is_wiring)
    };
    let rules: Vec<_> = imports.iter().filter(sees).collect();
    assert!(rules.is_empty(), "they import the wiring: {rules:#?}");
}

#[test]
fn every_file_and_type_of_the_core_is_small() {
    let mut large = Vec::new();
    for (module, source) in core() {
        let (module, lines) = (module.join("::"), source.lines().count());
        if lines > MOST_LINES {
            large.push(format!("{module}: {lines} lines"));
        }
        let structs = structs(&source).into_iter();
        let wide = structs.filter(|(_, fields)| *fields > MOST_FIELDS);
        large.extend(wide.map(|(name, fields)| format!("{module}::{name}: {fields} fields")));
    }
    assert!(large.is_empty(), "{large:#?}");
}

#[test]
fn circles_are_found_in_any_form() {
    let file = |path: &str, source: &str| {
        let path = path.split("::").filter(|name| !name.is_empty());
        (path.map(str::to_owned).collect::<Item>(), source.to_owned())
    };
    let core = BTreeMap::from([
        file("", "mod a; pub use c::{d::Deep, C as Sea}; // use super::a"),
        file("a", "use std::fmt::*; use super::{Deep, b::B};"),
        file(
            "b",
            "fn f() -> crate::conversation::Sea { \"use super::a\" }",
        ),
        file("c", "mod d; use d::Deep; use std::a::A;"),
        file("c::d", "use super::super::{a::{A, Other}, e};"),
        file("e", "use crate::conversation::c::*;"),
        file("f", "mod g; struct F(g::Step, std::a::A);"),
        file("f::g", "use super::F;"),
    ]);
    let imports = imports(&core);
    let of = |module: &str| {
        let imports = &imports[&file(module, "").0];
        let names = imports.iter().map(|import| import.join("::"));
        names.collect::<Vec<_>>()
    };
    assert_eq!(of(""), Vec::<String>::new(), "it only re-exports");
    assert_eq!(of("a"), ["b", "c::d"]);
    assert_eq!(of("b"), ["c"]);
    assert_eq!(of("c"), ["c::d"]);
    assert_eq!(of("c::d"), ["a", "e"]);
    assert_eq!(of("e"), ["c"]);
    assert_eq!(of("f"), ["f::g"]);
    assert_eq!(of("f::g"), ["f"]);
    let b = file("b", "").0;
    assert!(below(&b, &imports).contains(&b));
}

#[test]
fn fields_are_counted() {
    let source = "
        pub struct One<'a> {
            /// Not: this.
            #[serde(default = \"a: b\")]
            pub(super) name: std::collections::BTreeMap<A, (B, C)>,
        }
        struct Unit; struct Tuple(A, B);
        struct Two { a: [u8; 2], b: B }
        fn f() { One { x: 1, y: 2 } }";
    let counted = structs(source);
    assert_eq!(counted, [("One<'a>".to_owned(), 1), ("Two".to_owned(), 2)]);
}
