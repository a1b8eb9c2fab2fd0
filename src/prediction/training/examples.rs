//! Labelled examples to train and to measure with, in the formats that people have them in.

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The intent of what asks for nothing that a tool does.
pub const NONE: &str = "none";

/// Labels that mean [`NONE`] in published sets: "oos" is CLINC150's.
const NONE_ALIASES: [&str; 4] = ["none", "oos", "out_of_scope", "null"];

/// Of examples that come without a split, one in this many is held out.
const HELD_OUT: u8 = 10;

/// Something said, and what it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// As it was said.
    pub text: String,
    /// The intent; [`NONE`] for nothing.
    pub intent: String,
    /// Slots by name: byte ranges, in order, not overlapping.
    pub slots: Vec<(String, Range<usize>)>,
    /// Its split.
    pub part: Part,
}

/// A split of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Learning.
    Train,
    /// Measuring while developing.
    Validation,
    /// Measuring at the end.
    Test,
}

/// Examples whose intents are told apart from one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSet {
    /// The file's or folder's name without its ending.
    pub name: String,
    /// All examples.
    pub examples: Vec<Example>,
}

/// An error of a file of examples.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A file or folder cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Read {
        /// The line's number.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// It is in none of the known formats.
    #[error("{}: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The fault, and what is expected.
        reason: String,
    },
    /// There is nothing to learn or to measure.
    #[error("there are no examples in {}: expected .jsonl or .json files", .0.display())]
    Empty(PathBuf),
}

impl DataSet {
    /// The examples to learn from.
    pub fn training(&self) -> Vec<&Example> {
        self.of(|part| part == Part::Train)
    }

    /// The examples to measure with: the test part, or the validation part where there is none.
    pub fn measuring(&self) -> Vec<&Example> {
        let last = self.examples.iter().map(|example| example.part).max();
        match last {
            Some(Part::Train) | None => Vec::new(),
            Some(last) => self.of(|part| part == last),
        }
    }

    /// SHA-256 of all texts and labels, in hexadecimal: which examples a head was trained on.
    pub fn fingerprint(&self) -> String {
        let mut digest = Sha256::new();
        for example in &self.examples {
            digest.update(format!(
                "{}\t{}\t{:?}\n",
                example.text, example.intent, example.slots
            ));
        }
        let bytes = digest.finalize();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// These examples, all in one part.
    pub fn all_as(mut self, part: Part) -> Self {
        self.examples
            .iter_mut()
            .for_each(|example| example.part = part);
        self
    }

    fn of(&self, wanted: impl Fn(Part) -> bool) -> Vec<&Example> {
        let all = self.examples.iter();
        all.filter(|example| wanted(example.part)).collect()
    }

    /// Without a split of its own, every tenth example of a set is held out, chosen by its text:
    /// what is added or moved changes nothing for the others.
    fn hold_out(mut self) -> Self {
        if self.examples.iter().all(|e| e.part == Part::Train) {
            for example in &mut self.examples {
                if Sha256::digest(&example.text)[0] % HELD_OUT == 0 {
                    example.part = Part::Validation;
                }
            }
        }
        self
    }
}

/// Reads a file or a folder.
///
/// - `.jsonl`: `{"text": .., "intent": .., "slots": {name: words of the text}, "split": ..}` a line;
///   `slots` and `split` (train, val, test) may be missing
/// - `.json` with `train`, `val`, `test`, `oos_train`, .. of `[text, intent]`, as CLINC150
/// - a folder of `train_Intent.json` and `validate_Intent.json`, as SNIPS: one set
/// - any other folder: every set in it
///
/// # Errors
/// [`DataError`] naming the file, and the line where there is one.
pub fn read(path: &Path) -> Result<Vec<DataSet>, DataError> {
    let mut sets = Vec::new();
    collect(path, &mut sets)?;
    sets.retain(|set: &DataSet| !set.examples.is_empty());
    if sets.is_empty() {
        return Err(DataError::Empty(path.into()));
    }
    Ok(sets.into_iter().map(DataSet::hold_out).collect())
}

fn collect(path: &Path, sets: &mut Vec<DataSet>) -> Result<(), DataError> {
    if !path.is_dir() {
        let examples = file(path)?;
        sets.push(DataSet {
            name: name_of(path),
            examples,
        });
        return Ok(());
    }
    let mut inside: Vec<PathBuf> = entries(path)?;
    inside.sort();
    let (snips, others): (Vec<_>, Vec<_>) = inside.into_iter().partition(|path| is_snips(path));
    let snips: Result<Vec<_>, _> = snips.iter().map(|path| file(path)).collect();
    sets.push(DataSet {
        name: name_of(path),
        examples: snips?.concat(),
    });
    others.iter().try_for_each(|path| collect(path, sets))
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let failed = |error: std::io::Error| DataError::Read {
        path: folder.into(),
        reason: error.to_string(),
    };
    let mut paths = Vec::new();
    for entry in folder.read_dir().map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if path.is_dir() || matches!(ending, Some("json" | "jsonl")) {
            paths.push(path);
        }
    }
    Ok(paths)
}

fn is_snips(path: &Path) -> bool {
    let name = name_of(path);
    path.is_file() && (name.starts_with("train_") || name.starts_with("validate_"))
}

fn name_of(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or(path.as_os_str());
    stem.to_string_lossy().into_owned()
}

fn file(path: &Path) -> Result<Vec<Example>, DataError> {
    let bytes = std::fs::read(path).map_err(|error| DataError::Read {
        path: path.into(),
        reason: error.to_string(),
    })?;
    // SNIPS' own files are not all UTF-8.
    let text = String::from_utf8_lossy(&bytes);
    let wrong = |reason| DataError::Format {
        path: path.into(),
        reason,
    };
    if path.extension().is_some_and(|ending| ending == "jsonl") {
        return lines(&text).map_err(wrong);
    }
    let value: Value = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    let part = if name_of(path).starts_with("validate_") {
        Part::Validation
    } else {
        Part::Train
    };
    document(&value, part).map_err(wrong)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExampleLine {
    text: String,
    intent: String,
    #[serde(default)]
    slots: BTreeMap<String, String>,
    split: Option<String>,
}

fn lines(text: &str) -> Result<Vec<Example>, String> {
    let numbered = text.lines().enumerate();
    let full = numbered.filter(|(_, line)| !line.trim().is_empty());
    full.map(|(at, line)| {
        let parsed: Result<ExampleLine, String> =
            serde_json::from_str(line).map_err(|error| error.to_string());
        parsed
            .and_then(example)
            .map_err(|reason| format!("line {}: {reason}", at + 1))
    })
    .collect()
}

fn example(line: ExampleLine) -> Result<Example, String> {
    let part = match line.split.as_deref() {
        None => Part::Train,
        Some(split) => {
            part(split).ok_or(format!("split {split:?}: expected train, val or test"))?
        }
    };
    let lower = line.text.to_ascii_lowercase();
    let mut slots = Vec::new();
    for (name, words) in line.slots {
        let start = lower
            .find(&words.to_ascii_lowercase())
            .ok_or(format!("slot {name}: {words:?} is not in the text"))?;
        slots.push((name, start..start + words.len()));
    }
    slots.sort_by_key(|(_, range)| range.start);
    if slots.windows(2).any(|two| two[0].1.end > two[1].1.start) {
        return Err("two slots share words".into());
    }
    Ok(Example {
        text: line.text,
        intent: intent(&line.intent),
        slots,
        part,
    })
}

fn document(value: &Value, part_of_file: Part) -> Result<Vec<Example>, String> {
    let expected = "expected {split: [[text, intent], ..]} as CLINC150 has it \
                    or {intent: [{data: [{text, entity}]}]} as SNIPS has it";
    let lists = value.as_object().ok_or(expected)?;
    let mut examples = Vec::new();
    for (name, list) in lists {
        for item in list.as_array().ok_or(expected)? {
            let example = match item {
                Value::Array(pair) => labelled(pair, name),
                Value::Object(_) => annotated(item, name, part_of_file),
                _ => None,
            };
            examples.push(example.ok_or(format!("{name}: {expected}"))?);
        }
    }
    Ok(examples)
}

/// `[text, intent]` in a list named after its part.
fn labelled(pair: &[Value], list: &str) -> Option<Example> {
    let [Value::String(text), Value::String(label)] = pair else {
        return None;
    };
    Some(Example {
        text: text.clone(),
        intent: intent(label),
        slots: Vec::new(),
        part: part(list.trim_start_matches("oos_"))?,
    })
}

/// `{data: [{text, entity?}, ..]}` in a list named after its intent.
fn annotated(item: &Value, name: &str, part: Part) -> Option<Example> {
    let (mut text, mut slots) = (String::new(), Vec::new());
    for piece in item.get("data")?.as_array()? {
        let words = piece.get("text")?.as_str()?;
        if let Some(slot) = piece.get("entity").and_then(Value::as_str) {
            slots.push((slot.to_owned(), text.len()..text.len() + words.len()));
        }
        text.push_str(words);
    }
    Some(Example {
        text,
        intent: intent(name),
        slots,
        part,
    })
}

fn part(name: &str) -> Option<Part> {
    match name {
        "train" => Some(Part::Train),
        "val" | "valid" | "validation" | "dev" => Some(Part::Validation),
        "test" => Some(Part::Test),
        _ => None,
    }
}

fn intent(label: &str) -> String {
    let lower = label.to_lowercase();
    if NONE_ALIASES.contains(&lower.as_str()) {
        NONE.into()
    } else {
        label.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn reads_each_format() {
        let folder = folder(&[
            (
                "clinc.json",
                r#"{"train": [["pay my bill", "pay_bill"]], "oos_val": [["who won", "oos"]]}"#,
            ),
            (
                "mine.jsonl",
                "{\"text\": \"Weather in Rome\", \"intent\": \"weather\", \"slots\": {\"city\": \"rome\"}, \"split\": \"test\"}\n\n",
            ),
            (
                "snips/train_Play.json",
                r#"{"Play": [{"data": [{"text": "play "}, {"text": "Opus", "entity": "album"}]}]}"#,
            ),
            (
                "snips/validate_Play.json",
                r#"{"Play": [{"data": [{"text": "play it"}]}]}"#,
            ),
        ]);
        let sets = read(folder.path()).unwrap();
        let names: Vec<&str> = sets.iter().map(|set| set.name.as_str()).collect();
        assert_eq!(names, ["clinc", "mine", "snips"]);
        assert_eq!(sets[0].training()[0].intent, "pay_bill");
        assert_eq!(sets[0].measuring()[0].intent, NONE);
        let weather = sets[1].measuring()[0];
        assert_eq!(weather.slots, [("city".to_owned(), 11..15)]);
        assert_eq!(&weather.text[11..15], "Rome");
        assert_eq!(sets[2].training()[0].slots, [("album".to_owned(), 5..9)]);
        assert_eq!(sets[2].measuring().len(), 1);
    }

    #[test]
    fn says_where_it_is_wrong() {
        for (name, text, part) in [
            ("a.jsonl", "{\"text\": \"a\"}", "line 1"),
            (
                "a.jsonl",
                r#"{"text": "a", "intent": "b", "slots": {"c": "d"}}"#,
                "slot c",
            ),
            ("a.json", "[]", "expected"),
            ("a.json", r#"{"nonsense": [["a", "b"]]}"#, "nonsense"),
        ] {
            let folder = folder(&[(name, text)]);
            let message = read(folder.path()).unwrap_err().to_string();
            assert!(
                message.contains(part) && message.contains(name),
                "{message}"
            );
        }
        assert!(matches!(read(folder(&[]).path()), Err(DataError::Empty(_))));
    }

    #[test]
    fn a_tenth_is_held_out_and_stays_the_same() {
        let text = |more: &str| {
            let line = |n| format!("{{\"text\": \"example {n}\", \"intent\": \"a\"}}\n");
            (0..500).map(line).collect::<String>() + more
        };
        let held = |text: &str| {
            let folder = folder(&[("a.jsonl", text)]);
            let sets = read(folder.path()).unwrap();
            let texts = sets[0].measuring().into_iter().map(|e| e.text.clone());
            texts.collect::<Vec<_>>()
        };
        let before = held(&text(""));
        assert!((30..=70).contains(&before.len()), "{}", before.len());
        let after = held(&text("{\"text\": \"one more\", \"intent\": \"a\"}\n"));
        assert!(before.iter().all(|text| after.contains(text)));
    }
}
