//! Everything that reads bytes or text from outside, as functions of bytes that must never panic: `make fuzz` lets
//! libFuzzer look for those that do. The seeds are in `fuzz/seeds/`.

use crate::audio::{decode, dtmf};
use crate::llm::markup::{Parser, parse_arguments};
use crate::llm::untrusted::sanitise;
use crate::llm::{self, LlmEvent};
use crate::recording::Recording;
use crate::tools::declared;
use crate::transport::{READERS, Reader};
use serde_json::Value;
use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

/// The readers by name; [`READERS`] come on top.
const TARGETS: [(&str, Reader); 7] = [
    ("openai", llm::fuzzing::openai_compatible),
    ("anthropic", llm::fuzzing::anthropic),
    ("markup", markup),
    ("arguments", |bytes| with_text(bytes, arguments)),
    ("declaration", |bytes| with_text(bytes, declaration)),
    ("recording", |bytes| drop(Recording::read(bytes))),
    ("sound", sound),
];

fn targets() -> impl Iterator<Item = (&'static str, Reader)> {
    READERS.into_iter().chain(TARGETS)
}

/// Runs the reader called `name`.
///
/// # Panics
/// If there is none, or the reader has a defect.
pub fn run(name: &str, bytes: &[u8]) {
    let target = targets().find(|(known, _)| *known == name);
    let names = || Vec::from_iter(targets().map(|(name, _)| name)).join(", ");
    let (_, read) = target.unwrap_or_else(|| panic!("no target {name:?}; there are {}", names()));
    read(bytes);
}

fn with_text(bytes: &[u8], read: impl Fn(&str)) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        read(text);
    }
}

/// The first byte says how the model thinks; the rest is its text, which may come in any pieces.
fn markup(bytes: &[u8]) {
    let (first, text) = bytes.split_first().unwrap_or((&0, &[]));
    let read = |most: usize| {
        let tools = vec!["get_weather".to_owned(), "book".to_owned()];
        let mut parser = Parser::new().thinks_first(first % 2 == 1).tools(tools);
        let pieces = text.chunks(most);
        let mut events: Vec<_> = pieces.flat_map(|piece| parser.push_bytes(piece)).collect();
        events.extend(parser.finish_whole());
        seen(events)
    };
    assert_eq!(read(1), read(text.len().max(1)));
}

/// The speech and the calls, without the events that depend on where the text was cut.
fn seen(events: Vec<LlmEvent>) -> Vec<String> {
    let mut seen = Vec::new();
    let mut speech = String::new();
    for event in events {
        match event {
            LlmEvent::Speech { text } => speech.push_str(&text),
            LlmEvent::ToolOpened { .. } | LlmEvent::ToolClosed { .. } | LlmEvent::Unable => {
                seen.push(format!("says {:?}", std::mem::take(&mut speech)));
                seen.push(format!("{event:?}"));
            }
            _ => {}
        }
    }
    seen.push(format!("says {speech:?}"));
    assert!(
        !seen
            .iter()
            .any(|line| line.starts_with("says") && line.contains(['<', '>']))
    );
    seen
}

fn arguments(text: &str) {
    if let Ok(arguments) = parse_arguments(text) {
        let text = Value::Object(arguments.clone()).to_string();
        assert_eq!(parse_arguments(&text), Ok(arguments), "{text}");
    }
    let safe = sanitise(text);
    assert_eq!(sanitise(&safe), safe);
    if let Some(keys) = dtmf::keys(text) {
        dtmf::tones(&keys, 8_000);
    }
}

fn declaration(text: &str) {
    if let Ok(tool) = declared::parse(Path::new("a.toml"), text) {
        drop(declared::registry(&[tool]));
    }
}

fn sound(bytes: &[u8]) {
    let file = Box::new(Cursor::new(bytes.to_vec()));
    if let Ok(samples) = decode(file, Duration::from_secs(10), || true) {
        assert!(samples.iter().all(|sample| sample.abs() <= 1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    /// Changes of each seed.
    const CHANGES: u64 = 60;

    fn changed(seed: &[u8], dice: &mut Dice) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=dice.below(4) {
            if bytes.is_empty() {
                break;
            }
            let (at, other) = (dice.index(bytes.len()), dice.index(bytes.len()));
            match dice.below(5) {
                0 => bytes[at] ^= 1 << dice.below(8),
                1 => bytes[at] = dice.below(256) as u8,
                2 => bytes.truncate(at),
                3 => drop(bytes.drain(at.min(other)..at.max(other))),
                _ => {
                    let piece = bytes[at.min(other)..at.max(other)].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        bytes
    }

    /// A seed: text, or a file of digits for bytes that are none.
    fn read(path: &Path) -> Vec<u8> {
        let bytes = std::fs::read(path).unwrap();
        if path.extension().is_none_or(|ending| ending != "hex") {
            return bytes;
        }
        let digits: Vec<u8> = bytes.into_iter().filter(u8::is_ascii_hexdigit).collect();
        let pairs = digits
            .chunks(2)
            .map(|pair| std::str::from_utf8(pair).unwrap());
        pairs
            .map(|pair| u8::from_str_radix(pair, 16).unwrap())
            .collect()
    }

    #[test]
    fn no_seed_and_no_change_of_one_makes_a_reader_panic() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
        for (name, target) in targets() {
            let folder = seeds.join(name);
            let mut files: Vec<_> = std::fs::read_dir(&folder)
                .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
                .map(|file| file.unwrap().path())
                .collect();
            files.sort();
            assert!(!files.is_empty(), "{name} has no seed");
            for path in files {
                let (seed, mut dice) = (read(&path), Dice::new(1));
                println!("{}", path.display());
                target(&seed);
                for _ in 0..CHANGES {
                    target(&changed(&seed, &mut dice));
                }
            }
        }
    }
}
