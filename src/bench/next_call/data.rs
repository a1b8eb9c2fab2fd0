//! Conversations to predict calls in: generated from `domains.toml`, or read from data sets.

use crate::bench::BenchError;
use crate::dice::Dice;
use crate::prediction::patterns::{Happened, PastConversation, Schemas};
use jiff::civil::{Date, date};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use yaml_rust2::{Yaml, YamlLoader};

/// Conversations of each generated task.
const TALKS: usize = 6;
/// The share of codes that are misheard at first.
const MISHEARD: f64 = 0.1;
/// The day of conversations that do not name theirs.
const DAY: Date = date(2026, 1, 1);

/// First words of the names of tools that only read, for data sets that do not say which do.
const READS: [&str; 11] = [
    "get", "list", "search", "find", "look", "lookup", "check", "read", "show", "query", "fetch",
];

/// The conversations of one agent.
#[derive(Debug)]
pub(super) struct DataSet {
    pub name: String,
    pub conversations: Vec<PastConversation>,
    pub schemas: Schemas,
    /// The tools that may run early.
    pub reads: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Domains {
    domain: Vec<Domain>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Domain {
    name: String,
    /// Values that a conversation has from its beginning, as patterns.
    slots: BTreeMap<String, String>,
    tools: Vec<Tool>,
    tasks: Vec<Task>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    name: String,
    #[serde(default)]
    reads: bool,
    /// Each with the values that its schema names.
    arguments: BTreeMap<String, Vec<String>>,
    /// As patterns.
    result: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    name: String,
    steps: Vec<Step>,
}

/// A step of a conversation: words, a choice or a call.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Step {
    /// The user says one of these.
    say: Vec<String>,
    /// The user chooses a value of a result, which is a slot from then on.
    pick: Option<String>,
    from: String,
    call: Option<String>,
    with: Map<String, Value>,
    /// The call is made for each of these values.
    each: Option<String>,
    /// This slot may be misheard: then the call fails, the user says it again, and the call is repeated.
    misheard: Option<String>,
    /// The probability that the step is taken; otherwise the next `until` steps are left out, too.
    maybe: Option<f64>,
    until: usize,
}

/// A conversation while it is generated.
struct Talk<'a> {
    domain: &'a Domain,
    dice: &'a mut Dice,
    slots: BTreeMap<String, String>,
    results: BTreeMap<String, Value>,
    happened: Vec<Happened>,
}

/// The conversations of each domain.
pub(super) fn generated(dice: &mut Dice) -> Vec<DataSet> {
    let domains: Domains =
        toml::from_str(include_str!("domains.toml")).expect("checked by a test of this file");
    let sets = domains.domain.iter().map(|domain| domain.generate(dice));
    sets.collect()
}

impl Domain {
    fn generate(&self, dice: &mut Dice) -> DataSet {
        let mut conversations = Vec::new();
        for task in &self.tasks {
            for _ in 0..TALKS {
                conversations.push(self.talk(task, dice));
            }
        }
        let mut schemas = Schemas::default();
        for tool in &self.tools {
            schemas.add(&tool.name, &tool.schema());
        }
        let reads = self.tools.iter().filter(|tool| tool.reads);
        DataSet {
            name: self.name.clone(),
            conversations,
            schemas,
            reads: reads.map(|tool| tool.name.clone()).collect(),
        }
    }

    fn talk(&self, task: &Task, dice: &mut Dice) -> PastConversation {
        let slots = self.slots.iter();
        let slots = slots.map(|(name, pattern)| (name.clone(), drawn(pattern, dice)));
        let mut talk = Talk {
            domain: self,
            slots: slots.collect(),
            dice,
            results: BTreeMap::new(),
            happened: Vec::new(),
        };
        let mut left_out = 0;
        for step in &task.steps {
            if left_out > 0 {
                left_out -= 1;
            } else if step.maybe.is_none_or(|share| talk.dice.share() < share) {
                talk.take(step);
            } else {
                left_out = step.until;
            }
        }
        PastConversation {
            task: task.name.clone(),
            day: DAY,
            happened: talk.happened,
        }
    }
}

impl Tool {
    fn schema(&self) -> Value {
        let property = |(name, values): (&String, &Vec<String>)| {
            let schema = match values.is_empty() {
                true => json!({ "type": "string" }),
                false => json!({ "enum": values }),
            };
            (name.clone(), schema)
        };
        let properties: Map<String, Value> = self.arguments.iter().map(property).collect();
        json!({ "type": "object", "properties": properties })
    }
}

impl Talk<'_> {
    fn take(&mut self, step: &Step) {
        if !step.say.is_empty() {
            let words = &step.say[self.dice.index(step.say.len())];
            self.happened.push(Happened::Said(self.filled(words)));
        }
        if let Some(name) = &step.pick {
            let values = self.values(&step.from);
            let value = &values[self.dice.index(values.len())];
            self.slots.insert(name.clone(), text(value));
        }
        let Some(tool) = &step.call else {
            return;
        };
        if let Some(slot) = &step.misheard
            && self.dice.share() < MISHEARD
        {
            self.mishear(tool, step, slot);
        }
        match &step.each {
            None => self.call(tool, &step.with),
            Some(each) => {
                for value in self.values(each) {
                    self.slots.insert("it".into(), text(&value));
                    self.call(tool, &step.with);
                }
            }
        }
    }

    fn mishear(&mut self, tool: &str, step: &Step, slot: &str) {
        let wrong = drawn(&self.domain.slots[slot], self.dice);
        let right = self.slots.insert(slot.to_owned(), wrong);
        let arguments = self.arguments(&step.with);
        self.happened
            .push(Happened::Called(tool.to_owned(), arguments));
        let failed = json!({ "error": "not_found" });
        self.happened.push(Happened::Resulted(failed));
        self.slots
            .extend(right.map(|right| (slot.to_owned(), right)));
        let again = format!("No, it is {{{slot}}}.");
        self.happened.push(Happened::Said(self.filled(&again)));
    }

    fn call(&mut self, tool: &str, with: &Map<String, Value>) {
        let arguments = self.arguments(with);
        let declared = self.domain.tools.iter().find(|one| one.name == tool);
        let result = declared.map_or(Value::Null, |one| self.result(&one.result, &arguments));
        self.happened
            .push(Happened::Called(tool.to_owned(), arguments));
        self.happened.push(Happened::Resulted(result.clone()));
        self.results.insert(tool.to_owned(), result);
    }

    fn arguments(&self, with: &Map<String, Value>) -> Map<String, Value> {
        let argument = |(name, source): (&String, &Value)| {
            let value = match source.as_str() {
                Some(place) if place.starts_with('>') => self.values(place)[0].clone(),
                Some(words) => self.filled(words).into(),
                None => source.clone(),
            };
            (name.clone(), value)
        };
        with.iter().map(argument).collect()
    }

    /// Words with the values of their slots.
    fn filled(&self, words: &str) -> String {
        let slots = self.slots.iter();
        slots.fold(words.to_owned(), |words, (name, value)| {
            words.replace(&format!("{{{name}}}"), value)
        })
    }

    /// The values at a place such as `>search/*/id`.
    fn values(&self, place: &str) -> Vec<Value> {
        let mut parts = place.trim_start_matches('>').split('/');
        let tool = parts.next().unwrap_or_default();
        let mut found: Vec<&Value> = self.results.get(tool).into_iter().collect();
        for part in parts {
            found = found
                .into_iter()
                .flat_map(|value| match (part, value) {
                    ("*", Value::Array(items)) => items.iter().collect(),
                    _ => Vec::from_iter(value.pointer(&format!("/{part}"))),
                })
                .collect();
        }
        found.into_iter().cloned().collect()
    }

    fn result(&mut self, pattern: &Value, arguments: &Map<String, Value>) -> Value {
        match pattern {
            Value::String(pattern) => match pattern.strip_prefix('=') {
                Some(name) => arguments[name].clone(),
                None => {
                    let filled = self.filled(pattern);
                    let drawn = drawn(&filled, self.dice);
                    let is_number = pattern.starts_with('$');
                    match drawn.parse::<u64>().ok().filter(|_| is_number) {
                        Some(number) => number.into(),
                        None => drawn.into(),
                    }
                }
            },
            Value::Object(fields) => match (fields.get("each"), fields.get("of")) {
                (Some(Value::String(count)), Some(of)) => {
                    let count = drawn(&format!("${count}"), self.dice).parse().unwrap_or(0);
                    (0..count).map(|_| self.result(of, arguments)).collect()
                }
                _ => {
                    let fields = fields.iter();
                    let fields =
                        fields.map(|(name, of)| (name.clone(), self.result(of, arguments)));
                    Value::Object(fields.collect())
                }
            },
            other => other.clone(),
        }
    }
}

/// A value of a pattern.
fn drawn(pattern: &str, dice: &mut Dice) -> String {
    let choices: Vec<&str> = pattern.split('|').collect();
    let pattern = choices[dice.index(choices.len())];
    let range = pattern.strip_prefix('$').and_then(|range| {
        let (least, most) = range.split_once('-')?;
        Some((least.parse::<usize>().ok()?, most.parse::<usize>().ok()?))
    });
    if let Some((least, most)) = range {
        return (least + dice.index(most - least + 1)).to_string();
    }
    let sign = |sign: char| match sign {
        '#' => char::from(b'1' + dice.index(9) as u8),
        '@' => char::from(b'A' + dice.index(26) as u8),
        other => other,
    };
    pattern.chars().map(sign).collect()
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// The data sets at a path: a file in the format of EVA or tau-bench, or a folder of them.
///
/// # Errors
/// [`BenchError::Data`] if there is none, or one is in neither format.
pub(super) fn read(path: &Path) -> Result<Vec<DataSet>, BenchError> {
    let wrong = |path: &Path, reason: String| BenchError::Data {
        path: path.to_owned(),
        reason,
    };
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        let entries = fs::read_dir(path).map_err(|error| wrong(path, error.to_string()))?;
        files = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|file: &PathBuf| file.extension().is_some_and(|end| end == "json"));
        files.sort();
    }
    if files.is_empty() {
        let reason = "it has no *.json in the format of EVA or tau-bench".into();
        return Err(wrong(path, reason));
    }
    let set = |file: &PathBuf| {
        let text = fs::read_to_string(file).map_err(|error| wrong(file, error.to_string()))?;
        let conversations = PastConversation::read(&text, DAY);
        let conversations = conversations.map_err(|error| wrong(file, error.to_string()))?;
        let calls = conversations.iter().flat_map(PastConversation::calls);
        let reads = calls.map(|(tool, _)| tool).filter(|tool| only_reads(tool));
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let mut set = DataSet {
            name: name.into_owned(),
            schemas: PastConversation::schemas(&conversations),
            reads: reads.map(str::to_owned).collect(),
            conversations,
        };
        if let Some(agent) = agent_of(file) {
            let text =
                fs::read_to_string(&agent).map_err(|error| wrong(&agent, error.to_string()))?;
            set.declare(&text).map_err(|reason| wrong(&agent, reason))?;
        }
        Ok(set)
    };
    files.iter().map(set).collect()
}

/// The declarations of the tools, which EVA has in a file beside the data set.
fn agent_of(file: &Path) -> Option<PathBuf> {
    let name = file.file_name()?.to_str()?.strip_suffix("_dataset.json")?;
    let agent = file.with_file_name(format!("{name}_agent.yaml"));
    agent.is_file().then_some(agent)
}

impl DataSet {
    /// Takes over the declarations of an agent in EVA's format: the values that arguments may have, and which tools
    /// only read.
    fn declare(&mut self, agent: &str) -> Result<(), String> {
        let documents = YamlLoader::load_from_str(agent).map_err(|error| error.to_string())?;
        let tools = documents.first().and_then(|agent| agent["tools"].as_vec());
        for tool in tools.ok_or("it has no list of tools")? {
            let name = tool["id"].as_str().ok_or("a tool has no id")?;
            match tool["tool_type"].as_str() {
                Some("read") => drop(self.reads.insert(name.to_owned())),
                Some("write") => drop(self.reads.remove(name)),
                _ => {}
            }
            self.schemas.add(name, &declared_schema(tool));
        }
        Ok(())
    }
}

fn declared_schema(tool: &Yaml) -> Value {
    let lists = [&tool["required_parameters"], &tool["optional_parameters"]];
    let parameters = lists.into_iter().filter_map(Yaml::as_vec).flatten();
    let property = |parameter: &Yaml| {
        let mut schema = json!({ "type": parameter["type"].as_str() });
        if let Some(values) = parameter["enum"].as_vec() {
            schema["enum"] = values.iter().filter_map(Yaml::as_str).collect();
        }
        Some((parameter["name"].as_str()?.to_owned(), schema))
    };
    let properties: Map<String, Value> = parameters.filter_map(property).collect();
    json!({ "type": "object", "properties": properties })
}

fn only_reads(tool: &str) -> bool {
    tool.split('_')
        .next()
        .is_some_and(|word| READS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prediction::patterns::learnt;

    #[test]
    fn generated_conversations_follow_from_what_was_said_and_returned() {
        let sets = generated(&mut Dice::named(1, "next-call"));
        assert_eq!(sets.len(), 5);
        let failed = Happened::Resulted(json!({ "error": "not_found" }));
        for set in &sets {
            let talks = &set.conversations;
            assert_eq!(talks.len(), 5 * TALKS, "{}", set.name);
            assert!(set.reads.len() >= 4, "{}", set.name);
            // A misheard value has no origin.
            for talk in talks.iter().filter(|talk| !talk.happened.contains(&failed)) {
                let mut before = String::new();
                for happened in &talk.happened {
                    if let Happened::Called(tool, arguments) = happened {
                        assert!(set.schemas.knows(tool), "{tool}");
                        for (name, value) in arguments {
                            let value = text(value);
                            let is_code = value.contains(|c: char| c.is_ascii_digit());
                            let is_known = !is_code || before.contains(&value);
                            assert!(is_known, "{tool}: {name} {value} after {before}");
                        }
                    }
                    before.push_str(&format!("{happened:?}"));
                }
                assert!(!before.contains(['#', '>']), "{before}");
            }
        }
        let again = generated(&mut Dice::named(1, "next-call"));
        assert_eq!(sets[0].conversations, again[0].conversations);
        let other = generated(&mut Dice::named(2, "next-call"));
        assert_ne!(sets[0].conversations, other[0].conversations);
    }

    #[test]
    fn a_data_set_of_eva_has_its_declarations_beside_it() {
        let call = |tool: &str| json!({ "event_type": "tool_call", "tool_name": tool, "params": { "class": "first" } });
        let trace = ["get_seat", "book", "budget"].map(call);
        let talk = json!({ "id": "1", "ground_truth": { "expected_trace": { "trace": trace } } });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("air_dataset.json");
        fs::write(&file, json!([talk]).to_string()).unwrap();
        let reads = |sets: &[DataSet]| Vec::from_iter(sets[0].reads.clone());
        assert_eq!(reads(&read(&file).unwrap()), ["get_seat"]);

        let agent = folder.path().join("air_agent.yaml");
        let class = "required_parameters: [{name: class, type: string, enum: [first, any]}]";
        let tool = |id, kind| format!("  - {{id: {id}, tool_type: {kind}, {class}}}\n");
        let tools = [("get_seat", "write"), ("book", "write"), ("budget", "read")];
        let tools = tools.map(|(id, kind)| tool(id, kind)).concat();
        fs::write(&agent, format!("tools:\n{tools}")).unwrap();
        let sets = read(folder.path()).unwrap();
        assert_eq!(reads(&sets), ["budget"]);
        let patterns = learnt(&sets[0].conversations, &sets[0].schemas);
        let sources = patterns.sources("budget");
        assert!(
            sources
                .iter()
                .any(|(_, source, _)| source == "always \"first\""),
            "{sources:?}"
        );

        fs::write(&agent, "tools: 1").unwrap();
        let reason = read(&file).unwrap_err().to_string();
        assert!(
            reason.contains("air_agent.yaml: it has no list of tools"),
            "{reason}"
        );
    }

    #[test]
    fn a_folder_without_conversations_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let reason = |path: &Path| read(path).unwrap_err().to_string();
        assert!(reason(folder.path()).contains("it has no *.json"));
        let file = folder.path().join("other.json");
        fs::write(&file, "[{}]").unwrap();
        let reason = reason(folder.path());
        assert!(
            reason.contains("other.json") && reason.contains("neither"),
            "{reason}"
        );
    }
}
