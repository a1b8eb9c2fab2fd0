//! Finds out what a model and its server can do, with some forty requests whose outcome is known, in both ways of
//! calling tools.

mod server;

use super::markup::{CallForm, Parser, closes_unopened_thoughts};
use super::prompt::Prompts;
use super::remote::Settings;
use super::{Calls, Demands, Llm, LlmError, LlmEvent, Message, Prompt, Remote, TokenUsage};
use crate::tools::ToolSpec;
use futures_util::StreamExt;
use serde_json::{Map, Value, json};
pub use server::{Context, Indexes, Properties, Shape};
use server::{cache, company, context, now};
use std::sync::Arc;
use std::time::Duration;

/// The longest wait for one answer. The first may have to wait for the model to load.
const PATIENCE: Duration = Duration::from_secs(120);

/// The seed of every request, so that two runs can be compared.
const SEED: u64 = 7;

/// The least difference of two scores, 0 to 1, for which the slower way of calling is recommended.
const MARGIN: f64 = 0.1;

/// The largest factor by which a stream may slow down another one beside it for assumed commits to be recommended.
const SLOWER: f64 = 1.1;

/// The expected outcome of a question.
#[derive(Debug, Clone)]
enum Expected {
    /// These calls and no other, in any order: the tool and a text that its argument contains.
    Calls(&'static [(&'static str, &'static str)]),
    /// Words and no call.
    Words,
    /// Words that contain one of these, and no call.
    Answer(&'static [&'static str]),
}

/// The kinds of questions, as the report names them.
const KINDS: [&str; 5] = [
    "one call",
    "two calls",
    "small talk",
    "no such tool",
    "answer from a result",
];

/// The number of kinds that ask for calls. They come first.
const CALL_KINDS: usize = 2;

fn questions() -> Vec<(usize, &'static str, Expected)> {
    use Expected::{Answer, Calls, Words};
    const WEATHER: &str = "get_weather";
    const ORDER: &str = "get_order";
    vec![
        (
            0,
            "What's the weather in Boulder?",
            Calls(&[(WEATHER, "Boulder")]),
        ),
        (0, "Where is my order 4711?", Calls(&[(ORDER, "4711")])),
        (
            0,
            "How warm is it in Oslo right now?",
            Calls(&[(WEATHER, "Oslo")]),
        ),
        (
            0,
            "Can you check order 208 for me, please?",
            Calls(&[(ORDER, "208")]),
        ),
        (
            0,
            "Do I need an umbrella in Lisbon?",
            Calls(&[(WEATHER, "Lisbon")]),
        ),
        (0, "Has order 9030 been sent?", Calls(&[(ORDER, "9030")])),
        (
            0,
            "Tell me the weather for Denver.",
            Calls(&[(WEATHER, "Denver")]),
        ),
        (
            0,
            "Is it raining in Seattle?",
            Calls(&[(WEATHER, "Seattle")]),
        ),
        (
            1,
            "What's the weather in Rome and in Paris?",
            Calls(&[(WEATHER, "Rome"), (WEATHER, "Paris")]),
        ),
        (
            1,
            "Check order 17 and the weather in Chicago.",
            Calls(&[(ORDER, "17"), (WEATHER, "Chicago")]),
        ),
        (
            1,
            "Where are my orders 31 and 32?",
            Calls(&[(ORDER, "31"), (ORDER, "32")]),
        ),
        (2, "Hi there, how are you?", Words),
        (2, "Thank you, that was all.", Words),
        (2, "Tell me a short joke.", Words),
        (2, "I was at the sea last summer, it was lovely.", Words),
        (3, "Please order me a large pizza.", Words),
        (3, "Can you turn on the lights in the kitchen?", Words),
        (
            4,
            "What's the weather in Vienna?",
            Answer(&["17", "seventeen"]),
        ),
        (4, "Where is my order 52?", Answer(&["friday"])),
    ]
}

fn tools() -> Arc<Vec<ToolSpec>> {
    let tool = |name: &str, description: &str, argument: &str, what: &str| ToolSpec {
        examples: Vec::new(),
        name: name.into(),
        description: description.into(),
        parameters: json!({
            "type": "object",
            "properties": {argument: {"type": "string", "description": what}},
            "required": [argument],
        }),
    };
    Arc::new(vec![
        tool(
            "get_weather",
            "The weather in a city now.",
            "city",
            "The city's name",
        ),
        tool(
            "get_order",
            "The state of an order.",
            "number",
            "The order's number",
        ),
    ])
}

/// The longest answer, tokens. The questions need far less, and a small model talks on.
const ANSWER: u32 = 120;

fn prompt(messages: Vec<Message>, tools: Arc<Vec<ToolSpec>>) -> Prompt {
    Prompt {
        instructions: None,
        day: None,
        messages,
        tools,
        demands: Demands {
            max_tokens: Some(ANSWER),
            ..Demands::default()
        },
    }
}

fn user(text: &str) -> Message {
    Message::User { text: text.into() }
}

fn asked(kind: usize, question: &str) -> Prompt {
    let mut messages = vec![user(question)];
    if kind == 4 {
        let (name, argument, output) = match question.contains("order") {
            true => (
                "get_order",
                "number",
                json!({"state": "sent", "arrives": "Friday"}),
            ),
            false => (
                "get_weather",
                "city",
                json!({"celsius": 17, "sky": "cloudy"}),
            ),
        };
        let value = if argument == "city" { "Vienna" } else { "52" };
        let arguments = Map::from_iter([(argument.to_owned(), json!(value))]);
        let (id, name) = ("call_probe".to_owned(), name.to_owned());
        let agent = |text: &str| Message::Agent {
            text: text.into(),
            interrupted: false,
        };
        messages.push(agent("Let me look."));
        messages.push(Message::ToolCall {
            id: id.clone(),
            name: name.clone(),
            arguments,
        });
        messages.push(Message::ToolResult { id, name, output });
    }
    prompt(messages, tools())
}

/// Arguments, or why they could not be read.
type Read = Result<Map<String, Value>, String>;

/// One answer.
#[derive(Debug, Default)]
struct Trial {
    words: String,
    /// Whether there were words before the first call.
    speaks_first: bool,
    /// Tools and their arguments.
    calls: Vec<(String, Read)>,
    /// The number of pieces in which arguments came.
    pieces: usize,
    /// Time to the first output.
    first: Option<Duration>,
    /// Time to the first tool's name.
    name: Option<Duration>,
    /// Time to the end of the first call.
    whole: Option<Duration>,
    usage: Option<TokenUsage>,
    /// Time between two pieces of speech.
    gaps: Vec<Duration>,
}

impl Trial {
    fn fits(&self, expected: &Expected) -> bool {
        let words = self.words.to_lowercase();
        match expected {
            Expected::Calls(expected) => {
                let is = |(tool, value): &(&str, &str)| {
                    self.calls.iter().any(|(name, arguments)| {
                        let has = |map: &Map<String, Value>| {
                            let text = Value::Object(map.clone()).to_string();
                            text.to_lowercase().contains(&value.to_lowercase())
                        };
                        name == tool && arguments.as_ref().is_ok_and(has)
                    })
                };
                self.calls.len() == expected.len() && expected.iter().all(is)
            }
            Expected::Words => self.calls.is_empty() && !words.trim().is_empty(),
            Expected::Answer(parts) => {
                self.calls.is_empty() && parts.iter().any(|part| words.contains(part))
            }
        }
    }
}

/// Reads one answer, at most `most` events of it.
async fn trial(llm: &dyn Llm, prompt: Prompt, most: usize) -> Result<Trial, LlmError> {
    let began = now();
    let mut trial = Trial::default();
    let mut events = llm.generate(prompt);
    let mut last = None;
    let mut count = 0;
    let late = || LlmError::Engine(format!("no answer within {} s", PATIENCE.as_secs()));
    while count < most {
        let event = tokio::time::timeout(PATIENCE, events.next()).await;
        let Some(event) = event.map_err(|_| late())? else {
            break;
        };
        let (event, now) = (event?, now() - began);
        count += 1;
        if !event.is_output() {
            continue;
        }
        trial.first.get_or_insert(now);
        match event {
            LlmEvent::Speech { text } => {
                trial
                    .gaps
                    .extend(last.replace(now).map(|before| now - before));
                trial.speaks_first |= trial.calls.is_empty() && !text.trim().is_empty();
                trial.words.push_str(&text);
            }
            LlmEvent::ToolOpened { name } => {
                trial.name.get_or_insert(now);
                trial.calls.push((name, Err("it never ended".into())));
            }
            LlmEvent::ToolArguments { .. } => trial.pieces += 1,
            LlmEvent::ToolClosed { arguments } => {
                trial.whole.get_or_insert(now);
                if let Some(call) = trial.calls.last_mut() {
                    call.1 = arguments;
                }
            }
            LlmEvent::Used { usage } => trial.usage = Some(usage),
            _ => {}
        }
    }
    Ok(trial)
}

/// The result for one way of calling tools.
#[derive(Debug, Clone, Default)]
pub struct ModeReport {
    /// Right answers and questions, by kind.
    pub kinds: Vec<(&'static str, usize, usize)>,
    /// Answers with words before their call, and answers with calls.
    pub speaks_before_calls: (usize, usize),
    /// Calls that could not be read.
    pub unreadable: usize,
    /// Answers whose words look like a call or a tag.
    pub leaks: usize,
    /// Median time to the first event, to the tool's name and to the whole call, ms.
    pub times: [Option<u128>; 3],
    /// Whether arguments come in more than one piece.
    pub streams_arguments: bool,
    /// Requests that failed, with the first reason.
    pub failures: (usize, Option<String>),
}

impl ModeReport {
    /// The form, the right answers to questions for calls, and all such questions.
    fn calls_in(&self, form: CallForm) -> (CallForm, usize, usize) {
        let kinds = self.kinds.iter().take(CALL_KINDS);
        let add =
            |(right, all): (usize, usize), (_, r, a): &(&str, usize, usize)| (right + r, all + a);
        let (right, all) = kinds.fold((0, 0), add);
        (form, right, all)
    }

    fn is_always_right(&self) -> bool {
        let (_, right, all) = self.calls_in(CallForm::default());
        right == all
    }

    /// Takes over the findings about calls from another report.
    fn take_calls(&mut self, other: Self) {
        let calls = other.kinds.into_iter().take(CALL_KINDS);
        for (kind, of_other) in self.kinds.iter_mut().zip(calls) {
            *kind = of_other;
        }
        self.speaks_before_calls = other.speaks_before_calls;
        self.unreadable = other.unreadable;
        self.leaks += other.leaks;
        self.streams_arguments = other.streams_arguments;
        self.times = other.times;
    }

    /// The share of right answers, 0 to 1.
    pub fn score(&self) -> f64 {
        let right: usize = self.kinds.iter().map(|(_, right, _)| right).sum();
        let all: usize = self.kinds.iter().map(|(_, _, all)| all).sum();
        right as f64 / all.max(1) as f64
    }
}

/// The findings of a probe.
#[derive(Debug, Clone)]
pub struct Report {
    /// Calls in markup.
    pub markup: ModeReport,
    /// Native calls.
    pub native: ModeReport,
    /// The form of calls in markup that the model writes best.
    pub form: CallForm,
    /// The right answers to questions for calls and all such questions, by form; only [`CallForm::Python`] if that was
    /// always right.
    pub forms: Vec<(CallForm, usize, usize)>,
    /// How many requests were made.
    pub requests: usize,
    /// Parameters that the server refuses.
    pub refused: Vec<&'static str>,
    /// The reasoning effort that the server accepts instead of the configured one.
    pub effort: Option<&'static str>,
    /// Whether the model thinks: in a field of its own, in its text, or only in the server's count of tokens.
    pub thinks: bool,
    /// Whether its text closes a thought that it has not opened, so that it needs `llm.thinks_first`.
    pub thinks_first: bool,
    /// Tokens of a repeated prompt that were in the cache, and all of its tokens; `None` if the server does not say.
    pub cache: Option<(u64, u64)>,
    /// Whether a prompt of `llm.max_prompt_tokens` arrives whole.
    pub context: Context,
    /// Properties that llama.cpp's server reports of itself.
    pub properties: Option<Properties>,
    /// How native calls are sent; `None` if the model made none.
    pub shape: Option<Shape>,
    /// Whether hanging up stops the server; `None` if it cannot be told.
    pub stops: Option<bool>,
    /// The factor by which a stream is slower beside another, 1 if not at all; `None` if it cannot be told.
    pub slower: Option<f64>,
    /// Whether a second answer begins only when the first is over; `None` if it cannot be told.
    pub queues: Option<bool>,
    /// The failure that left some of the last three unknown.
    pub failure: Option<String>,
}

impl Report {
    /// The better way to call tools.
    pub fn calls(&self) -> Calls {
        let better = self.native.score() - self.markup.score();
        let is_worth_it = better > MARGIN || self.markup.score() == 0.0 && better > 0.0;
        if is_worth_it {
            Calls::Native
        } else {
            Calls::Markup
        }
    }

    /// Whether assumed commits pay off: two streams neither wait for each other nor slow each other down.
    pub fn may_assume(&self) -> bool {
        self.queues != Some(true) && self.slower.is_none_or(|slower| slower <= SLOWER)
    }
}

/// Probes a model with these `prompts`, limited to `max_prompt_tokens`. `say` is told each step.
///
/// # Errors
/// If the very first request fails, since nothing can be found out then.
pub async fn probe(
    settings: &Settings,
    prompts: &Prompts,
    max_prompt_tokens: usize,
    say: &mut dyn FnMut(&str),
) -> Result<Report, LlmError> {
    let prompts = prompts.clone().limited(max_prompt_tokens);
    say("loading the model");
    let mut settings = settings.clone();
    let mut markup = model(&settings, &prompts, Calls::Markup, CallForm::Python)?;
    markup.warm_up(asked(2, "Hello.")).await?;
    let mut sample = asked(2, "Say hello.");
    sample.demands.max_tokens = None;
    let sample = markup.sample(sample).await.unwrap_or_default();
    let thinks_first = closes_unopened_thoughts(&sample.text);
    let thinks = sample.thinks || thinks_first || thinks_in_text(&sample.text);
    if thinks_first && !settings.thinks_first {
        // From here on the model is read as the fragment will have it read.
        settings.thinks_first = true;
        markup = model(&settings, &prompts, Calls::Markup, CallForm::Python)?;
    }
    let with = |calls, form| model(&settings, &prompts, calls, form);
    let native = with(Calls::Native, CallForm::Python)?;
    // Thoughts count towards the limit.
    let most = (!thinks).then_some(ANSWER);
    let called = calls(&markup, &native, with, most, say).await?;
    let thinks = thinks || called.thinks;
    say("cache and context");
    let mut two = asked(1, "What's the weather in Rome and in Paris?");
    two.demands.max_tokens = most;
    let two = native.sample(two).await.unwrap_or_default();
    let cache = cache(&markup).await;
    let properties = Properties::of(&markup).await;
    let answer = settings.max_tokens.unwrap_or(ANSWER);
    let known = properties.as_ref();
    let context = context(&markup, &prompts, max_prompt_tokens, answer, thinks, known);
    let (context, for_context) = context.await;
    say("hanging up, and two streams at once");
    let company = company(&markup).await.believe(properties.as_ref());
    Ok(Report {
        markup: called.markup,
        native: called.native,
        form: best_form(&called.forms),
        forms: called.forms,
        // The warm-up, a sample, one of native calls, and two for the cache.
        requests: called.requests + for_context + company.requests + 5,
        refused: refused(&markup, &native),
        effort: markup.effort().or(native.effort()),
        thinks,
        thinks_first,
        cache,
        context,
        properties,
        shape: Shape::of(&two.calls),
        stops: company.stops,
        slower: company.slower,
        queues: company.queues,
        failure: company.failure,
    })
}

/// The model with reproducible answers, and with patience.
fn model(
    settings: &Settings,
    prompts: &Prompts,
    calls: Calls,
    form: CallForm,
) -> Result<Remote, LlmError> {
    let mut settings = Settings {
        calls,
        // A long prompt takes a server without a GPU longer than a conversation would wait.
        stall_timeout: settings.stall_timeout.max(PATIENCE),
        ..settings.clone()
    };
    let seed = settings.extra_body.entry("seed");
    seed.or_insert_with(|| json!(SEED));
    let prompts = prompts.clone().in_form(form).with_words_before_calls(true);
    Remote::new(settings, prompts)
}

/// The findings about calls.
struct Called {
    /// In the best form.
    markup: ModeReport,
    native: ModeReport,
    /// The right calls in each form that was tried, and all that were asked for.
    forms: Vec<(CallForm, usize, usize)>,
    /// The server counts tokens of thoughts.
    thinks: bool,
    /// How many requests that took.
    requests: usize,
}

/// Asks for calls in both ways, and in the other forms of markup if the first is not always right.
async fn calls(
    markup: &Remote,
    native: &Remote,
    with: impl Fn(Calls, CallForm) -> Result<Remote, LlmError>,
    most: Option<u32>,
    say: &mut dyn FnMut(&str),
) -> Result<Called, LlmError> {
    say("calls in markup");
    let (mut in_markup, thinks, mut requests) = mode(markup, questions(), most).await;
    say("native calls");
    let (native, thinks_too, count) = mode(native, questions(), most).await;
    requests += count;
    let others = match in_markup.is_always_right() {
        true => Vec::new(),
        false => other_forms(|form| with(Calls::Markup, form), most, say).await?,
    };
    let mut forms = vec![in_markup.calls_in(CallForm::Python)];
    for (form, report, count) in &others {
        forms.push(report.calls_in(*form));
        requests += count;
    }
    let form = best_form(&forms);
    if let Some((_, best, _)) = others.into_iter().find(|(other, ..)| *other == form) {
        in_markup.take_calls(best);
    }
    Ok(Called {
        markup: in_markup,
        native,
        forms,
        thinks: thinks || thinks_too,
        requests,
    })
}

/// The parameters that the server refused in either mode, but for the seed, which only the probe sends.
fn refused(markup: &Remote, native: &Remote) -> Vec<&'static str> {
    let mut refused = markup.refused();
    refused.extend(native.refused());
    refused.sort_unstable();
    refused.dedup();
    refused.retain(|parameter| *parameter != "seed");
    refused
}

/// Asks for calls in the forms other than Python's. Returns each with its report and the requests that it took.
async fn other_forms(
    model: impl Fn(CallForm) -> Result<Remote, LlmError>,
    most: Option<u32>,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<(CallForm, ModeReport, usize)>, LlmError> {
    let mut found = Vec::new();
    for form in [CallForm::Json, CallForm::Hermes] {
        say(&format!("calls in the form {form:?}").to_lowercase());
        let asked = questions()
            .into_iter()
            .filter(|(kind, ..)| *kind < CALL_KINDS);
        let (report, _, count) = mode(&model(form)?, asked.collect(), most).await;
        found.push((form, report, count));
    }
    Ok(found)
}

/// The form with the most right calls. The first opens calls earliest, so another one must be clearly better.
fn best_form(forms: &[(CallForm, usize, usize)]) -> CallForm {
    let share = |(_, right, all): &(CallForm, usize, usize)| *right as f64 / (*all).max(1) as f64;
    let first = forms.first().map_or(0.0, share);
    let better = forms.iter().filter(|form| share(form) > first + MARGIN);
    let best = better.max_by(|a, b| share(a).total_cmp(&share(b)));
    best.map_or(CallForm::default(), |(form, ..)| *form)
}

async fn mode(
    llm: &dyn Llm,
    questions: Vec<(usize, &'static str, Expected)>,
    most: Option<u32>,
) -> (ModeReport, bool, usize) {
    let mut report = ModeReport {
        kinds: KINDS.map(|kind| (kind, 0, 0)).to_vec(),
        ..ModeReport::default()
    };
    let mut times: [Vec<Duration>; 3] = Default::default();
    let mut thinks = false;
    let count = questions.len();
    for (kind, question, expected) in questions {
        let (_, right, all) = &mut report.kinds[kind];
        *all += 1;
        let mut prompt = asked(kind, question);
        prompt.demands.max_tokens = most;
        let trial = match trial(llm, prompt, usize::MAX).await {
            Ok(trial) => trial,
            Err(error) => {
                report.failures.0 += 1;
                report.failures.1.get_or_insert(error.details());
                continue;
            }
        };
        *right += usize::from(trial.fits(&expected));
        thinks |= trial.usage.is_some_and(|usage| usage.reasoning > 0);
        if !trial.calls.is_empty() {
            report.speaks_before_calls.0 += usize::from(trial.speaks_first);
            report.speaks_before_calls.1 += 1;
            report.streams_arguments |= trial.pieces > trial.calls.len();
        }
        report.unreadable += trial.calls.iter().filter(|(_, read)| read.is_err()).count();
        report.leaks += usize::from(leaks(&trial.words));
        for (list, time) in times.iter_mut().zip([trial.first, trial.name, trial.whole]) {
            list.extend(time);
        }
    }
    report.times = times.map(|list| median(list).map(|time| time.as_millis()));
    (report, thinks, count)
}

/// Whether words that would be spoken look like a call.
fn leaks(words: &str) -> bool {
    let looks_like = [
        "get_weather",
        "get_order",
        "tool_call",
        "</",
        "{\"",
        "tool_result",
    ];
    looks_like.iter().any(|part| words.contains(part))
}

fn thinks_in_text(text: &str) -> bool {
    let mut parser = Parser::new();
    parser.push(text);
    parser.has_thought()
}

fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

#[cfg(test)]
mod tests;
