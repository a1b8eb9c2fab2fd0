//! The parameters that a server takes: what it refuses by name is left out from then on.

use super::{NO_WORDS, THOUGHTS_BACK, THOUGHTS_BESIDE_BOTH};
use crate::llm::LlmError;
use serde_json::{Map, Value};

/// The parameters of a dialect that a server may refuse. An answer is worth more than any of them.
pub(in crate::llm) struct Vocabulary {
    /// The names of the token limit, in the order in which they are tried.
    pub(in crate::llm) limits: &'static [&'static str],
    /// The other parameters, with the names by which an error may call them. A dot leads to a part of a
    /// parameter; of several that an error may mean, the first is left out first. A part of `messages` is left out only
    /// if it was sent and, but for [`THOUGHTS_BACK`], the server does not know it: others refuse a request in which one
    /// message lacks it, and name it too.
    pub(in crate::llm) optional: &'static [(&'static str, &'static [&'static str])],
}

/// The parameters that a server takes, as far as known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::llm) struct Takes {
    /// Of [`Vocabulary::optional`], and forms of messages: [`THOUGHTS_BESIDE_BOTH`] and [`NO_WORDS`].
    refused: Vec<&'static str>,
    /// How many of [`Vocabulary::limits`] were refused.
    limits_refused: usize,
    /// The effort of thinking that is sent in place of the configured one.
    effort: Option<&'static str>,
    /// Efforts that were refused.
    efforts_refused: Vec<String>,
}

/// The parameter that says how much a model thinks.
const EFFORT: &str = "reasoning_effort";

/// How refusals speak of the effort that was sent without naming the parameter or the value, in small letters: Gemini's
/// translate it into a level or a budget, Ollama's into a switch, LiteLLM's for Claude into thoughts that the history
/// lacks. Templates such as Qwen 3.8's know efforts of their own.
const OF_EFFORT: [&str; 10] = [
    "reasoning effort",
    "expected `thinking` or `redacted_thinking`",
    "thinking level",
    "thinking_level",
    "thinking budget",
    "thinking_budget",
    "only works in thinking mode",
    "support thinking",
    "think value",
    "reasoning value",
];

/// No thoughts at all. OpenAI's models know it from GPT-5.1 on, and from GPT-5.4 on chat completions take tools
/// with nothing else.
const NO_THOUGHTS: &str = "none";

/// The efforts that stand for one that is refused, in the order in which they are tried. GPT-5 knows `minimal` and
/// no `none`, later models `none` and no `minimal`, and the o-series neither.
fn instead_of(effort: &str) -> &'static [&'static str] {
    match effort {
        NO_THOUGHTS => &["minimal", "low"],
        "minimal" => &[NO_THOUGHTS, "low"],
        _ => &[],
    }
}

impl Takes {
    /// These parameters without those that the server has refused in this request; `None` if the refusal names
    /// nothing that can be left out.
    pub(in crate::llm) fn without(
        &self,
        refusal: &LlmError,
        body: &Map<String, Value>,
        vocabulary: &Vocabulary,
    ) -> Option<Self> {
        let LlmError::Status {
            status,
            body: reason,
            ..
        } = refusal
        else {
            return None;
        };
        let mut fewer = self.clone();
        let form = form_refused(*status, reason, body);
        if let Some(form) = form.filter(|form| self.has(form)) {
            fewer.refused.push(form);
            return Some(fewer);
        }
        // OpenRouter's, if no provider takes a parameter. Others name a model that is not there, never a value.
        let is_missing = *status == 404;
        // The error of a template, in vLLM and llama.cpp.
        let is_of_template =
            *status == 500 && body.contains_key(EFFORT) && speaks_of_effort(reason);
        if !is_missing && !is_of_template && !matches!(status, 400 | 422) {
            return None;
        }
        // Many servers also name the limit when the prompt is too long.
        let other = vocabulary.limits.get(self.limits_refused + 1);
        let is_unknown = other.is_some_and(|other| reason.contains(other)) || says_unknown(reason);
        let limit = self.limit(vocabulary);
        let limit = limit.filter(|limit| body.contains_key(*limit));
        if !is_missing && limit.is_some_and(|limit| is_unknown && reason.contains(limit)) {
            fewer.limits_refused += 1;
            return Some(fewer);
        }
        if !is_missing && let Some(effort) = self.other_effort(reason, body, vocabulary) {
            let refused = body.get(EFFORT).and_then(Value::as_str);
            fewer.efforts_refused.extend(refused.map(str::to_owned));
            fewer.effort = Some(effort);
            return Some(fewer);
        }
        let (refused, _) = vocabulary.optional.iter().find(|(parameter, names)| {
            let field = parameter.split('.').next().unwrap_or_default();
            let may_be = match parameter.strip_prefix("messages.") {
                Some(part) => {
                    has_part(body, part) && (*parameter == THOUGHTS_BACK || says_unknown(reason))
                }
                None => body.contains_key(field),
            };
            let may_be = may_be
                && match *parameter {
                    EFFORT => !is_missing,
                    _ => !is_of_template,
                };
            may_be && self.has(parameter) && is_about(reason, parameter, names)
        })?;
        fewer.refused.push(refused);
        Some(fewer)
    }

    /// The effort to try next, if the refusal is about the one that was sent, or about tools without one.
    fn other_effort(
        &self,
        reason: &str,
        body: &Map<String, Value>,
        vocabulary: &Vocabulary,
    ) -> Option<&'static str> {
        let (_, names) = vocabulary
            .optional
            .iter()
            .find(|(name, _)| *name == EFFORT)?;
        if !self.has(EFFORT) || !is_about(reason, EFFORT, names) {
            return None;
        }
        let is_new = |effort: &str| !self.efforts_refused.iter().any(|known| known == effort);
        let sent = body.get(EFFORT).and_then(Value::as_str);
        let needs_none = body.contains_key("tools") && reason.to_lowercase().contains("tools");
        if needs_none && sent != Some(NO_THOUGHTS) && is_new(NO_THOUGHTS) {
            return Some(NO_THOUGHTS);
        }
        let sent = sent?;
        let is_named = |effort: &str| {
            ['\'', '"', '`'].iter().any(|quote| {
                let quoted = format!("{quote}{effort}{quote}");
                reason.contains(&quoted)
            })
        };
        let first = self.efforts_refused.first().map_or(sent, String::as_str);
        let others = instead_of(first).iter().copied();
        let mut others = others.filter(|other| is_new(other) && *other != sent);
        // Groq names only the values that it takes.
        if let Some(other) = others.clone().find(|other| is_named(other)) {
            return Some(other);
        }
        // Servers that do not know the parameter name it, and no value of it.
        let listed = ["upported values", "upported types"];
        let listed = listed.iter().find_map(|words| reason.find(words));
        let listed = listed.map(|at| &reason[at..]);
        let is_listed = |other: &str| listed.is_none_or(|listed| listed.contains(other));
        let is_of_sent = is_named(sent) || speaks_of_effort(reason);
        others.find(|other| is_of_sent && is_listed(other))
    }

    /// Adds what another request has found out in the meantime.
    pub(in crate::llm) fn merge(&mut self, other: &Self) {
        let (ours, others) = (self.efforts_refused.len(), other.efforts_refused.len());
        if others > ours || others == ours && self.effort.is_none() {
            self.effort = other.effort;
            self.efforts_refused.clone_from(&other.efforts_refused);
        }
        for parameter in &other.refused {
            if self.has(parameter) {
                self.refused.push(parameter);
            }
        }
        self.limits_refused = self.limits_refused.max(other.limits_refused);
    }

    /// Whether the server takes this parameter, as far as known.
    pub(in crate::llm) fn has(&self, parameter: &str) -> bool {
        !self.refused.contains(&parameter)
    }

    /// The effort of thinking that the server takes in place of the configured one.
    pub(in crate::llm) fn effort(&self) -> Option<&'static str> {
        self.effort.filter(|_| self.has(EFFORT))
    }

    /// The name of the token limit, if the server takes one.
    pub(in crate::llm) fn limit(&self, vocabulary: &Vocabulary) -> Option<&'static str> {
        vocabulary.limits.get(self.limits_refused).copied()
    }

    /// The names of what is left out.
    pub(super) fn refused(&self, vocabulary: &Vocabulary) -> Vec<&'static str> {
        let limits = vocabulary.limits.iter().take(self.limits_refused);
        limits.chain(&self.refused).copied().collect()
    }
}

/// Whether a message of a request, or a call in one, has this field.
pub(super) fn has_part(body: &Map<String, Value>, field: &str) -> bool {
    let has = |object: &Value| object.get(field).is_some();
    let messages = body.get("messages").and_then(Value::as_array);
    messages.into_iter().flatten().any(|message| {
        let calls = message.get("tool_calls").and_then(Value::as_array);
        has(message) || calls.into_iter().flatten().any(has)
    })
}

/// The form of a message that an error is about, if one was sent.
fn form_refused(status: u16, reason: &str, body: &Map<String, Value>) -> Option<&'static str> {
    let messages = body.get("messages").and_then(Value::as_array);
    let messages = messages.into_iter().flatten();
    let mut said = messages.filter(|message| message["role"] == "assistant");
    // Under status 500: the error of a template in llama.cpp.
    if reason.contains("both content and thinking") {
        let has = |message: &Value, field: &str| message.get(field).is_some_and(|is| *is != "");
        let fields = ["content", "reasoning_content", "tool_calls"];
        let is_sent = said.any(|message| fields.iter().all(|field| has(message, field)));
        return is_sent.then_some(THOUGHTS_BESIDE_BOTH);
    }
    let is_refusal = matches!(status, 400 | 422);
    let is_of_words = reason.contains("non-empty") || reason.contains("is blank");
    let is_of_words = is_of_words && reason.to_lowercase().contains("content");
    let is_sent = is_refusal && is_of_words && said.any(|message| message["content"] == "");
    is_sent.then_some(NO_WORDS)
}

/// Whether an error may mean the parameter that has these names.
fn is_about(reason: &str, parameter: &str, names: &[&str]) -> bool {
    names.iter().any(|name| reason.contains(name))
        || parameter == EFFORT && speaks_of_effort(reason)
}

/// Whether an error is about the effort that was sent, in other words.
fn speaks_of_effort(reason: &str) -> bool {
    let reason = reason.to_lowercase();
    OF_EFFORT.iter().any(|words| reason.contains(words))
}

/// Whether an error is about a parameter that the server does not know, rather than about its value.
fn says_unknown(reason: &str) -> bool {
    let reason = reason.to_lowercase();
    [
        "unsupported",
        "not supported",
        "unrecognized",
        "unknown",
        "unexpected",
        "not permitted",
        "extra input",
        "extra field",
    ]
    .iter()
    .any(|word| reason.contains(word))
}
