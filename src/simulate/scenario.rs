//! A scenario: a caller, the replies of tools, and what is to happen.

use super::check::check;
use super::report::Figures;
use super::wanted::Want;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// The guide with all keys.
pub(super) const GUIDE: &str = "docs/simulate.md has the keys and their types";

/// An error in a scenario: what, where, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ScenarioError {
    /// The file or folder.
    pub file: PathBuf,
    /// The line, from 1; 1 where only the key is known.
    pub line: usize,
    /// The key, such as `turn[0].say`; empty for the file as a whole.
    pub key: String,
    /// The problem.
    pub problem: String,
    /// Says what is allowed, or what to do.
    pub fix: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file.display(), self.line)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}; {}", self.problem, self.fix)
    }
}

/// A scenario, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The file's name without its end.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// The agent that is called; the one that the routes lead to if `None`.
    pub agent: Option<String>,
    /// The caller.
    pub(super) caller: CallerSpec,
    /// The caller's turns, unless a model plays the caller.
    pub(super) turns: Vec<Turn>,
    /// The tools that really run: reads alone.
    pub(super) real: BTreeSet<String>,
    /// The replies of the others. The first that fits a call counts.
    pub(super) replies: Vec<Reply>,
    /// The events that must come, and those that must not.
    pub(super) expect: Expect,
    /// The limits on latency.
    pub(super) limits: Limits,
}

/// A caller.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CallerSpec {
    pub(super) number: String,
    pub(super) called: String,
    pub(super) params: BTreeMap<String, String>,
    pub(super) transport: String,
    /// One for all runs, or several in turn.
    pub(super) voice: OneOrMore,
    pub(super) speed: f64,
    pub(super) telephone: bool,
    pub(super) noise: Option<NoiseSpec>,
    /// The entry of `[llm.models]` that plays the caller.
    pub(super) model: String,
    pub(super) goal: String,
    pub(super) persona: String,
    pub(super) max_turns: usize,
}

impl Default for CallerSpec {
    fn default() -> Self {
        Self {
            number: String::new(),
            called: String::new(),
            params: BTreeMap::new(),
            transport: "pcm".into(),
            voice: OneOrMore::One("default".into()),
            speed: 1.0,
            telephone: false,
            noise: None,
            model: String::new(),
            goal: String::new(),
            persona: String::new(),
            max_turns: 12,
        }
    }
}

/// A text, or several.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    pub(super) fn all(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::More(texts) => texts,
        }
    }
}

/// Noise on the caller's line.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoiseSpec {
    pub(super) kind: NoiseKind,
    /// How much quieter than the caller it is, dB.
    pub(super) snr_db: f32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NoiseKind {
    /// All frequencies alike.
    White,
    /// Low frequencies louder, as rooms and traffic have it.
    Pink,
    /// Other people, all at once.
    Babble,
}

/// One turn of a scripted caller.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Turn {
    /// The words; without them the caller is silent for `pause_ms`.
    pub(super) say: Option<String>,
    /// Speak once this many words of the agent's answer were heard.
    pub(super) interrupt_after_words: Option<usize>,
    /// The silence before it, after the agent has finished, ms.
    pub(super) pause_ms: Option<u64>,
    /// Words of the agent's that the caller waits for.
    pub(super) wait_for: Option<String>,
    /// The caller hangs up after its answer.
    #[serde(skip)]
    pub(super) is_last: bool,
}

/// A tool's reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reply {
    pub(super) tool: String,
    pub(super) when: Vec<(String, Want)>,
    pub(super) result: Result<Value, String>,
    pub(super) after_ms: u64,
}

/// The events that must come, and those that must not.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Expect {
    pub(super) calls: Vec<WantedCall>,
    /// The calls are to be made in the order in which they are listed.
    pub(super) in_order: bool,
    pub(super) no_calls: Vec<WantedCall>,
    pub(super) said: Vec<String>,
    pub(super) not_said: Vec<String>,
    pub(super) ends: Option<Ends>,
}

/// A call that must be made, or must not.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WantedCall {
    pub(super) tool: String,
    pub(super) arguments: Vec<(String, Want)>,
    /// Exactly this often. `None`: once, and reads as often as the agent likes.
    pub(super) times: Option<usize>,
}

/// The side that ends the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ends {
    Caller,
    Agent,
    /// The agent puts the caller through to somebody else.
    Transferred,
}

/// Limits on the 95th percentile of latencies over all runs, ms after the end of the caller's speech.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Limits {
    pub(super) first_ms: Option<u64>,
    pub(super) answer_ms: Option<u64>,
    /// Exceeding one is a failure, not only a line of the report.
    pub(super) assert: bool,
}

impl Limits {
    /// The limits that these figures exceed, in words.
    pub(super) fn exceeded(self, figures: &Figures) -> Vec<String> {
        let limits = [
            ("first sound", self.first_ms, figures.first_ms),
            ("answer", self.answer_ms, figures.answer_ms),
        ];
        let over = limits.into_iter().filter_map(|(name, limit, found)| {
            let (limit, found) = (limit?, found?);
            (found.p95 > limit)
                .then(|| format!("{name}: p95 is {} ms, the limit is {limit} ms", found.p95))
        });
        over.collect()
    }
}

/// The file as typed.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawScenario {
    /// For readers alone.
    #[serde(rename = "description")]
    pub(super) _description: String,
    pub(super) agent: Option<String>,
    pub(super) caller: CallerSpec,
    pub(super) turn: Vec<Turn>,
    pub(super) tools: RawTools,
    pub(super) reply: Vec<RawReply>,
    pub(super) expect: RawExpect,
    pub(super) limits: Limits,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawTools {
    pub(super) real: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawReply {
    pub(super) tool: String,
    #[serde(default)]
    pub(super) when: serde_json::Map<String, Value>,
    pub(super) result: Option<Value>,
    pub(super) error: Option<String>,
    #[serde(default)]
    pub(super) after_ms: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawExpect {
    pub(super) call: Vec<RawCall>,
    pub(super) no_call: Vec<RawCall>,
    pub(super) order: RawOrder,
    pub(super) said: Vec<String>,
    pub(super) not_said: Vec<String>,
    pub(super) ends: Option<Ends>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawOrder {
    #[default]
    Any,
    Given,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCall {
    pub(super) tool: String,
    #[serde(default)]
    pub(super) arguments: serde_json::Map<String, Value>,
    pub(super) times: Option<usize>,
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path).map_err(|error| ScenarioError {
            file: path.to_owned(),
            line: 1,
            key: String::new(),
            problem: format!("cannot read it: {error}"),
            fix: "name a scenario file, or a folder of them".into(),
        })?;
        Self::parse(path, &text)
    }

    /// Reads the text of the file at `path`.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ScenarioError> {
        let wrong = |key: String, error: &toml::de::Error| ScenarioError {
            file: path.to_owned(),
            line: line_of(text, error.span().map_or(0, |span| span.start)),
            key,
            problem: error.message().to_owned(),
            fix: GUIDE.into(),
        };
        let document = toml::Deserializer::parse(text).map_err(|e| wrong(String::new(), &e))?;
        let raw: RawScenario = serde_path_to_error::deserialize(document)
            .map_err(|error| wrong(error.path().to_string(), error.inner()))?;
        check(path, raw).map_err(|error| ScenarioError {
            line: line_of_key(text, &error.key),
            ..error
        })
    }

    /// The scenarios in a file, or in the files of a folder in the order of their names.
    ///
    /// # Errors
    /// The first thing that is wrong, or a folder without scenarios.
    pub fn read_all(path: &Path) -> Result<Vec<Self>, ScenarioError> {
        if !path.is_dir() {
            return Ok(vec![Self::read(path)?]);
        }
        let unusable = |problem: String| ScenarioError {
            file: path.to_owned(),
            line: 1,
            key: String::new(),
            problem,
            fix: "name a scenario file, or a folder with files that end in .toml".into(),
        };
        let entries = path
            .read_dir()
            .map_err(|e| unusable(format!("cannot read this folder: {e}")))?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|file| file.extension().is_some_and(|end| end == "toml") && file.is_file());
        files.sort();
        if files.is_empty() {
            return Err(unusable("there is no scenario in this folder".into()));
        }
        files.iter().map(|file| Self::read(file)).collect()
    }

    /// The model that plays the caller, by its name; `None` if the caller is scripted.
    pub fn model(&self) -> Option<&str> {
        (!self.caller.model.is_empty()).then_some(self.caller.model.as_str())
    }

    /// Whether the caller speaks while the agent does.
    pub(super) fn interrupts(&self) -> bool {
        let mut turns = self.turns.iter();
        turns.any(|turn| turn.interrupt_after_words.is_some())
    }

    /// Lets these tools run for real, too. They must only read.
    pub fn run_for_real(&mut self, tools: impl IntoIterator<Item = String>) {
        self.real.extend(tools);
    }

    /// An error at a key of this scenario.
    pub fn wrong(&self, key: &str, problem: String, fix: String) -> ScenarioError {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        ScenarioError {
            file: self.file.clone(),
            line: line_of_key(&text, key),
            key: key.to_owned(),
            problem,
            fix,
        }
    }
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    1 + before.matches('\n').count()
}

/// The line of a key such as `turn[1].say` or `caller.voice`, as far as it can be found.
fn line_of_key(text: &str, key: &str) -> usize {
    let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
    let header = format!("[[{key}]]");
    if let Some(at) = text
        .lines()
        .position(|line| line.trim().starts_with(&header))
    {
        return at + 1;
    }
    let (table, nth) = match table.split_once('[') {
        Some((table, nth)) => (table, nth.trim_end_matches(']').parse().unwrap_or(0)),
        None => (table, 0),
    };
    let headers = [format!("[{table}]"), format!("[[{table}]]")];
    let mut found = table.is_empty().then_some(1);
    let mut left = nth + 1;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            let is_it = headers
                .iter()
                .any(|header| line.starts_with(header.as_str()));
            left -= usize::from(is_it && left > 0);
            match found {
                None if is_it && left == 0 => found = Some(at + 1),
                Some(start) => return start,
                None => {}
            }
        }
        let is_key = line.strip_prefix(name).map(str::trim_start);
        if found.is_some() && is_key.is_some_and(|rest| rest.starts_with('=')) {
            return at + 1;
        }
    }
    found.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        Scenario::parse(Path::new("scenarios/booking.toml"), text)
    }

    #[test]
    fn a_scenario_is_read() {
        let scenario = parse(
            r#"
            [caller]
            number = "+15550123"
            voice = ["flite:slt", "espeak-ng:en-gb"]
            noise = { kind = "babble", snr_db = 15 }
            [[turn]]
            say = "A table for Tuesday."
            [[turn]]
            interrupt_after_words = 3
            say = "No, Wednesday."
            [[turn]]
            pause_ms = 4000
            [[reply]]
            tool = "book"
            when = { day = "Wednesday" }
            result = { number = 17 }
            after_ms = 200
            [expect]
            said = ["seventeen"]
            ends = "caller"
            [[expect.call]]
            tool = "book"
            arguments = { day = { one_of = ["Wednesday", "2026-12-02"] } }
            "#,
        )
        .unwrap();
        assert_eq!(scenario.name, "booking");
        assert_eq!(scenario.turns[1].interrupt_after_words, Some(3));
        assert_eq!(scenario.replies[0].after_ms, 200);
        assert_eq!(scenario.expect.calls[0].tool, "book");
        assert_eq!(scenario.expect.ends, Some(Ends::Caller));
    }

    #[test]
    fn mistakes_name_file_line_key_and_fix() {
        for (text, line, key, problem) in [
            (
                "[caller]\nvoise = \"x\"\n",
                2,
                "caller.voise",
                "unknown field",
            ),
            ("x = \n", 1, "", ""),
            ("agent = \"a\"\n", 1, "turn", "nobody speaks"),
            (
                "[[turn]]\nsay = \"a\"\n[[turn]]\n",
                3,
                "turn[1].say",
                "neither",
            ),
            (
                "[[turn]]\nsay = \"a\"\n[[reply]]\ntool = \"t\"\n",
                3,
                "reply[0].result",
                "neither",
            ),
            (
                "[caller]\ngoal = \"a table\"\n",
                2,
                "caller.goal",
                "caller.model",
            ),
            (
                "[caller]\ngoal = \"a\"\nmodel = \"m\"\n[[turn]]\nsay = \"a\"\n",
                4,
                "turn",
                "both",
            ),
            (
                "[caller]\nspeed = 9\n[[turn]]\nsay = \"a\"\n",
                2,
                "caller.speed",
                "9",
            ),
            (
                "[caller]\ntransport = \"fax\"\n[[turn]]\nsay = \"a\"\n",
                2,
                "caller.transport",
                "fax",
            ),
            (
                "[[turn]]\nsay = \"a\"\n[[expect.call]]\ntool = \"t\"\narguments = { a = { one_of = 3 } }\n",
                5,
                "expect.call[0].arguments",
                "list",
            ),
            (
                "[[turn]]\nsay = \"a\"\n[[expect.call]]\ntool = \"t\"\narguments = { day = { one_of = [2026-12-02] } }\n",
                5,
                "expect.call[0].arguments",
                "2026-12-02 is a date or time of TOML's",
            ),
            (
                "[[turn]]\nsay = \"a\"\n[[reply]]\ntool = \"t\"\nresult = { days = [{ at = 07:32:00 }] }\n",
                5,
                "reply[0].result",
                "07:32:00 is a date",
            ),
            (
                "[[turn]]\nsay = \"a\"\n[[reply]]\ntool = \"t\"\nresult = 1\nwhen.day = 2026-12-02\n",
                3,
                "reply[0].when",
                "2026-12-02 is a date",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(
                (error.line, error.key.as_str()),
                (line, key),
                "{text}: {error}"
            );
            let told = error.to_string();
            assert!(told.contains(problem), "{told}");
            assert!(told.starts_with("scenarios/booking.toml:"), "{told}");
            assert!(!error.fix.is_empty());
        }
    }
}
