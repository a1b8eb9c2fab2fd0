//! Conversations to learn from, as data sets have them.

use super::leaves::is_name;
use super::origin::Schemas;
use super::trail::Trail;
use jiff::civil::Date;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// An event of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Happened {
    /// The user said this.
    Said(String),
    /// The agent called a tool.
    Called(String, Map<String, Value>),
    /// The last call had this result.
    Resulted(Value),
}

/// A conversation that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct PastConversation {
    /// The task that it was about; several conversations may be about one.
    pub task: String,
    /// Its day, for dates without a year.
    pub day: Date,
    /// The events, in order.
    pub happened: Vec<Happened>,
}

/// An error of a file of conversations.
#[derive(Debug, thiserror::Error)]
pub enum ConversationsError {
    /// It is not JSON, or in none of the known formats.
    #[error("this is neither a data set of EVA nor runs of tau-bench: {0}")]
    Format(#[from] serde_json::Error),
    /// A call's arguments are not an object.
    #[error("conversation {task}: the arguments of a call of {tool} are not a JSON object")]
    Arguments {
        /// The task.
        task: String,
        /// The tool.
        tool: String,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Eva(Eva),
    TauBench(TauBench),
}

#[derive(Deserialize)]
struct Eva {
    id: String,
    #[serde(default)]
    current_date_time: String,
    ground_truth: GroundTruth,
    #[serde(default)]
    culture_overrides: Overrides,
    #[serde(default)]
    romanized_culture_overrides: Overrides,
}

/// The words that stand for the placeholders of each language.
type Overrides = BTreeMap<String, BTreeMap<String, Value>>;

#[derive(Deserialize)]
struct GroundTruth {
    expected_trace: ExpectedTrace,
}

#[derive(Deserialize)]
struct ExpectedTrace {
    trace: Vec<EvaEvent>,
}

#[derive(Deserialize)]
#[serde(tag = "event_type", rename_all = "snake_case")]
enum EvaEvent {
    UserUtterance {
        utterance: String,
    },
    AgentUtterance,
    ToolCall {
        tool_name: String,
        params: Map<String, Value>,
    },
    ToolResponse {
        response: Value,
    },
}

#[derive(Deserialize)]
struct TauBench {
    task_id: u64,
    traj: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<ToolCall>>,
}

#[derive(Deserialize)]
struct ToolCall {
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    arguments: String,
}

impl PastConversation {
    /// Reads a file of EVA (`*_dataset.json`) or of tau-bench's historical runs. `day` is that of conversations that do
    /// not name theirs.
    ///
    /// # Errors
    /// [`ConversationsError`] if it is neither.
    pub fn read(text: &str, day: Date) -> Result<Vec<Self>, ConversationsError> {
        let entries: Vec<Entry> = serde_json::from_str(text)?;
        let read = entries.into_iter().map(|entry| match entry {
            Entry::Eva(entry) => Ok(entry.read(day)),
            Entry::TauBench(entry) => entry.read(day),
        });
        read.collect()
    }

    /// Its calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
        self.happened.iter().filter_map(|happened| match happened {
            Happened::Called(tool, arguments) => Some((tool.as_str(), arguments)),
            Happened::Said(_) | Happened::Resulted(_) => None,
        })
    }

    /// The tools as the calls of some conversations show them: the names of their arguments, and the names within them.
    pub fn schemas(conversations: &[Self]) -> Schemas {
        let mut shown: BTreeMap<&str, Value> = BTreeMap::new();
        for happened in conversations.iter().flat_map(|one| &one.happened) {
            if let Happened::Called(tool, given) = happened {
                show_fields(shown.entry(tool).or_default(), given);
            }
        }
        let mut schemas = Schemas::default();
        for (tool, schema) in shown {
            schemas.add(tool, &schema);
        }
        schemas
    }

    /// Goes through the conversation: `call` sees each call with what was before it.
    pub fn follow(
        &self,
        schemas: &Schemas,
        mut call: impl FnMut(&Trail, &str, &Map<String, Value>),
    ) -> Trail {
        let mut trail = Trail::new(self.day);
        for happened in &self.happened {
            match happened {
                Happened::Said(words) => trail.said(words),
                Happened::Called(tool, arguments) => {
                    call(&trail, tool, arguments);
                    trail.called(schemas, tool, arguments);
                }
                Happened::Resulted(result) => trail.resulted(result),
            }
        }
        trail
    }
}

/// Adds the names of an object to its schema. Others than programs' names may be values.
fn show_fields(schema: &mut Value, fields: &Map<String, Value>) {
    for (name, value) in fields.iter().filter(|(name, _)| is_name(name)) {
        show(&mut schema["properties"][name], value);
    }
}

fn show(schema: &mut Value, value: &Value) {
    match value {
        Value::Object(fields) => show_fields(schema, fields),
        Value::Array(elements) => {
            for element in elements {
                show(&mut schema["items"], element);
            }
        }
        _ => {}
    }
}

/// The date that a text begins with.
fn begins_with_date(text: &str) -> Option<Date> {
    text.get(..10)?.parse().ok()
}

impl Eva {
    fn read(self, day: Date) -> PastConversation {
        let mut placeholders = Vec::new();
        let all = [
            (&self.culture_overrides, ""),
            (&self.romanized_culture_overrides, "_ROMANIZED"),
        ];
        for (overrides, end) in all {
            let english = overrides.get("en").into_iter().flatten();
            placeholders.extend(english.filter_map(|(name, value)| {
                Some((format!("<{}{end}>", name.to_uppercase()), value.as_str()?))
            }));
        }
        let filled = |value: Value| fill(value, &placeholders);
        let trace = self.ground_truth.expected_trace.trace.into_iter();
        let happened = trace.filter_map(|event| match event {
            EvaEvent::UserUtterance { utterance } => match filled(utterance.into()) {
                Value::String(words) => Some(Happened::Said(words)),
                _ => None,
            },
            EvaEvent::AgentUtterance => None,
            EvaEvent::ToolCall { tool_name, params } => match filled(params.into()) {
                Value::Object(params) => Some(Happened::Called(tool_name, params)),
                _ => None,
            },
            EvaEvent::ToolResponse { response } => Some(Happened::Resulted(filled(response))),
        });
        PastConversation {
            task: self.id,
            day: begins_with_date(&self.current_date_time).unwrap_or(day),
            happened: happened.collect(),
        }
    }
}

/// A value with the placeholders in its texts replaced.
fn fill(value: Value, placeholders: &[(String, &str)]) -> Value {
    match value {
        Value::String(mut text) => {
            for (placeholder, stands_for) in placeholders {
                if text.contains(placeholder.as_str()) {
                    text = text.replace(placeholder.as_str(), stands_for);
                }
            }
            text.into()
        }
        Value::Array(items) => items
            .into_iter()
            .map(|item| fill(item, placeholders))
            .collect(),
        Value::Object(fields) => {
            let filled = fields
                .into_iter()
                .map(|(name, value)| (name, fill(value, placeholders)));
            Value::Object(filled.collect())
        }
        other => other,
    }
}

/// Stands before the day in the instructions of tau-bench's agents.
const TIME_IS: &str = "current time is ";

impl TauBench {
    fn read(self, mut day: Date) -> Result<PastConversation, ConversationsError> {
        let task = self.task_id.to_string();
        let mut happened = Vec::new();
        for message in self.traj {
            let content = message.content.unwrap_or_default();
            match message.role.as_str() {
                "user" => happened.push(Happened::Said(content)),
                "tool" => {
                    let result = serde_json::from_str(&content);
                    happened.push(Happened::Resulted(
                        result.unwrap_or_else(|_| content.into()),
                    ));
                }
                "system" => {
                    let told = content.split_once(TIME_IS);
                    day = told
                        .and_then(|(_, time)| begins_with_date(time))
                        .unwrap_or(day);
                }
                _ => {}
            }
            for call in message.tool_calls.into_iter().flatten() {
                let Function { name, arguments } = call.function;
                let arguments = serde_json::from_str(&arguments);
                let Ok(Value::Object(arguments)) = arguments else {
                    return Err(ConversationsError::Arguments { task, tool: name });
                };
                happened.push(Happened::Called(name, arguments));
            }
        }
        Ok(PastConversation {
            task,
            day,
            happened,
        })
    }
}
