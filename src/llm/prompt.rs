//! Turns a [`Prompt`] into the messages for a chat model that answers in markup.
//!
//! | in the history | role | as |
//! |---|---|---|
//! | the system prompt, tools and instructions | system | the template `system.j2` |
//! | the day on which the session began | user | a note, before everything else |
//! | a note of the operator or client | user | `<note>...</note>` |
//! | the user's words | user | the words |
//! | the agent's words | assistant | `<speech>...</speech>` |
//! | a call | assistant | `<tool>name(key="value")</tool>` |
//! | a result | user | `<tool_result name="...">JSON</tool_result>` |
//!
//! All text from outside is [`sanitise`]d, so that no tag can be forged. Consecutive messages of the same
//! role become one, because many chat templates require alternating roles. The last message has the user's
//! role, because many servers would continue an assistant's. Two messages of the user stay separate, with an
//! empty assistant message between them. The system message depends only on tools and instructions, and later
//! turns only append, so that a server's prefix cache stays valid; what holds for one answer only, such as
//! that it must or must not call a tool, is a note at the end.
//!
//! For a model that calls tools natively, `native.rs` makes the messages.
//!
//! A history that is too long loses its oldest turns, several at a time, so that the cache is not lost at
//! every turn. If the newest turn alone is too long, its longest messages are cut. No prompt ever exceeds the
//! limit.

mod native;
mod own;

use super::plan::{self, PLAN};
use super::untrusted::{sanitise, sanitise_json, sanitise_map};
use super::{Calls, Message, Prompt, TOKEN_CHARS, ToolChoice};
use crate::language::pack;
use crate::llm::markup::{CallForm, format_call};
use crate::tools::ToolSpec;
use minijinja::{Environment, UndefinedBehavior, context};
pub(super) use native::{BETWEEN, callable};
pub use own::{TemplateError, VARIABLES};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

const SYSTEM: &str = "system.j2";
const EMBEDDED: &str = include_str!("../../prompts/system.j2");
const CALLER: &str = include_str!("../../prompts/caller.j2");

/// The most characters of one tool result in a prompt: about 2,000 tokens.
const MAX_RESULT_CHARS: usize = 8_000;

/// Characters of a prompt that are reserved for the conversation, however long the instructions.
const LEAST_ROOM: usize = 800;

/// The least useful length of a message, characters. If not all messages fit at this length, the oldest are
/// dropped.
const LEAST_MESSAGE: usize = 120;

/// The part of a conversation's room that notes before it may take and keep: a quarter.
const LASTING: usize = 4;
/// Characters reserved for the server's notes around the conversation.
const NOTES: usize = 320;

/// The longest tool name in a prompt, characters.
const LONGEST_NAME: usize = 64;

const CUT: &str = " [cut]";

/// The default limit on the tokens of a prompt.
pub const DEFAULT_TOKENS: usize = 6_000;

const YOUR_TURN: &str = "<note>Nobody has spoken since. It is your turn.</note>";
const SHORTENED: &str = "<note>The beginning of the call is left out here.</note>";
const BEGUN: &str = "<note>The call has begun.</note>";
const NO_CALL: &str = "Answer now, in speech. No tool can be called for this answer.";
const SILENCE: &str = "<speech></speech>";
const UNANSWERED: &str = "<note>You had not answered yet when the user said this:</note>";
const INTERRUPTED: &str = "<note>The user interrupted you here and heard no more.</note>";

/// The author of a chat message, as the model sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The system prompt.
    System,
    /// The user, tool results and notes.
    User,
    /// The model.
    Assistant,
    /// The result of a native call.
    Tool,
}

/// A message of the chat completions protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// Its author.
    pub role: Role,
    /// The text, markup included.
    pub content: String,
    /// The native calls of the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ChatCall>,
    /// The call whose result this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The model's thoughts, for servers that want them back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Blocks of the model's thoughts, for OpenRouter, which wants them back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasoning_details: Vec<Value>,
}

/// A native call in a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatCall {
    /// Nine letters and digits, which every server takes.
    pub id: String,
    /// Always `function`.
    pub r#type: String,
    /// The call.
    pub function: ChatFunction,
    /// A block of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_content: Option<Value>,
}

/// The tool and the arguments of a native call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatFunction {
    /// The tool.
    pub name: String,
    /// The arguments as JSON text.
    pub arguments: String,
}

impl ChatMessage {
    /// A message of words alone.
    pub fn new(role: Role, content: String) -> Self {
        Self {
            role,
            content,
            tool_calls: Vec::new(),
            tool_call_id: None,
            reasoning_content: None,
            reasoning_details: Vec::new(),
        }
    }
}

impl ChatCall {
    /// A call without a block of the provider.
    pub fn new(id: String, function: ChatFunction) -> Self {
        Self {
            id,
            r#type: "function".to_owned(),
            function,
            extra_content: None,
        }
    }
}

/// How much text clients may add to a prompt, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientRoom {
    /// Instructions and tools together.
    pub set_up: usize,
    /// One item, or one transcript of a client with its own recogniser.
    pub item: usize,
}

/// The prompt templates.
#[derive(Debug, Clone)]
pub struct Prompts {
    templates: Environment<'static>,
    max_tokens: usize,
    calls: Calls,
    form: CallForm,
    /// The model is told to say something before a call.
    speaks: bool,
}

impl Prompts {
    /// These prompts, with a limit of `tokens` on system prompt and history together, at four characters a token.
    #[must_use]
    pub fn limited(self, tokens: usize) -> Self {
        Self {
            max_tokens: tokens,
            ..self
        }
    }

    /// These prompts, for a model that calls tools in this way.
    #[must_use]
    pub fn for_calls(self, calls: Calls) -> Self {
        Self { calls, ..self }
    }

    /// These prompts, for a model that writes its calls in this form.
    #[must_use]
    pub fn in_form(self, form: CallForm) -> Self {
        Self { form, ..self }
    }

    /// These prompts, for a model that is asked (or not) to say something before it calls a tool.
    #[must_use]
    pub fn with_words_before_calls(self, speaks: bool) -> Self {
        Self { speaks, ..self }
    }

    /// The most characters of a prompt.
    fn most(&self) -> usize {
        self.max_tokens.saturating_mul(TOKEN_CHARS)
    }

    /// The room for clients next to the operator's part of the `prompt`.
    ///
    /// # Errors
    /// The template cannot be rendered, or leaves no room.
    pub fn room_for_clients(&self, prompt: &Prompt) -> Result<ClientRoom, minijinja::Error> {
        let (most, system) = (
            self.most(),
            self.weight(&self.render_system(prompt)?, prompt),
        );
        let conversation = most / 4;
        match (most - conversation).checked_sub(system) {
            Some(set_up) if conversation >= LEAST_ROOM + NOTES => Ok(ClientRoom {
                set_up,
                item: conversation - NOTES,
            }),
            _ => Err(too_long(system, self.max_tokens)),
        }
    }

    fn render_system(&self, prompt: &Prompt) -> Result<String, minijinja::Error> {
        self.render(prompt, prompt.instructions.as_deref())
    }

    /// The system prompt for `prompt` with these instructions.
    fn render(
        &self,
        prompt: &Prompt,
        instructions: Option<&str>,
    ) -> Result<String, minijinja::Error> {
        let tools = &prompt.tools;
        let language = prompt.demands.language.as_deref().map(language_in_words);
        let makes_plans = tools.iter().any(|tool| tool.name == PLAN);
        let tools: Vec<minijinja::Value> = by_name(tools).into_iter().map(view).collect();
        let instructions = instructions.map(sanitise);
        let native = self.calls == Calls::Native;
        let template = self.templates.get_template(SYSTEM)?;
        let (call, plan, speaks) = (
            self.example(),
            makes_plans.then(|| self.example_plan()),
            self.speaks,
        );
        let text = template.render(context! {
            tools, instructions, native, call, plan, speaks, language
        })?;
        Ok(text.trim().to_owned())
    }

    /// A call in the form that the model is to use.
    fn example(&self) -> String {
        let arguments = json!({"text": "value", "number": 5, "flag": true, "list": ["a", "b"]});
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        format_call(self.form, "name", &arguments)
    }

    /// A plan in that form; natively, its arguments.
    fn example_plan(&self) -> String {
        match self.calls {
            Calls::Markup => format_call(self.form, PLAN, &plan::example()),
            Calls::Native => Value::Object(plan::example()).to_string(),
        }
    }

    /// The length of the system prompt and of the tools that are sent beside it, in characters.
    fn weight(&self, system: &str, prompt: &Prompt) -> usize {
        let beside = match self.calls {
            Calls::Markup => 0,
            Calls::Native => native::weight(&prompt.tools),
        };
        length(system) + beside
    }

    /// The system prompt in at most `most` characters. Instructions that are too long are cut at the end.
    fn system_within(&self, prompt: &Prompt, most: usize) -> Result<String, minijinja::Error> {
        let system = self.render_system(prompt)?;
        let too_much = self.weight(&system, prompt).saturating_sub(most);
        if too_much == 0 {
            return Ok(system);
        }
        let given = sanitise(prompt.instructions.as_deref().unwrap_or_default());
        let given = given.trim().to_owned();
        let kept = length(&given).saturating_sub(too_much);
        let system = self.render(prompt, Some(&cut(given, kept)))?;
        match self.weight(&system, prompt) {
            weight if weight <= most => Ok(system),
            weight => Err(too_long(weight, self.max_tokens)),
        }
    }

    /// The content of the message that has this result of a native call.
    pub(super) fn result(&self, output: &Value) -> String {
        result_text(output)
    }

    /// The messages to send: the system prompt, then alternating roles.
    ///
    /// # Errors
    /// The template cannot be rendered with these tools, or is too long even without instructions.
    pub fn chat(&self, prompt: &Prompt) -> Result<Vec<ChatMessage>, minijinja::Error> {
        let most = self.most().saturating_sub(NOTES);
        let system = self.system_within(prompt, most.saturating_sub(LEAST_ROOM))?;
        let room = most - self.weight(&system, prompt);
        let overhead = match self.calls {
            Calls::Markup => 0,
            Calls::Native => native::OVERHEAD,
        };
        let (lasting, messages) = lasting(&prompt.messages, room / LASTING, overhead);
        let room = room - sizes(lasting.iter(), overhead).iter().sum::<usize>();
        let newest = newest(messages, room, overhead);
        let left_out = &messages[..messages.len() - newest.len()];
        let shown = newest
            .iter()
            .filter(|message| !is_orphan(message, left_out, newest));
        let (shown, longest) = fitting(shown.collect(), room, overhead);
        let day = prompt.day.as_ref().map(|day| day_note(day));
        let day = day.as_deref();
        let shortened = (!left_out.is_empty()).then_some(SHORTENED);
        let demand = demand(&prompt.demands.tool_choice).filter(|_| !prompt.tools.is_empty());
        Ok(match self.calls {
            Calls::Markup => {
                let mut chat = Chat {
                    form: self.form,
                    ..Chat::default()
                };
                chat.push(Role::System, "", system);
                let note =
                    |chat: &mut Chat, note: &str| chat.push(Role::User, "\n", note.to_owned());
                day.into_iter().for_each(|day| note(&mut chat, day));
                lasting
                    .iter()
                    .for_each(|message| chat.add(message, usize::MAX));
                shortened.into_iter().for_each(|text| note(&mut chat, text));
                shown.iter().for_each(|message| chat.add(message, longest));
                chat.finish(demand)
            }
            Calls::Native => {
                let mut history = native::History::of(&prompt.tools);
                history.system(system);
                day.into_iter().for_each(|day| history.note(day));
                lasting
                    .iter()
                    .for_each(|message| history.add(message, usize::MAX));
                shortened.into_iter().for_each(|text| history.note(text));
                shown
                    .iter()
                    .for_each(|message| history.add(message, longest));
                history.finish(BEGUN, demand)
            }
        })
    }
}

/// A language as models know it: "German", and the tag of one that has no pack.
fn language_in_words(tag: &str) -> String {
    match pack(Some(tag)).name {
        "" => format!("the language with the BCP 47 tag {}", sanitise(tag)),
        name => name.to_owned(),
    }
}

fn day_note(day: &str) -> String {
    format!("<note>The call began on {}.</note>", sanitise(day))
}

/// A note on which tools this answer may or must call. It stands at the very end, so that the prefix cache stays
/// valid.
fn demand(choice: &ToolChoice) -> Option<String> {
    let note = match choice {
        ToolChoice::Auto => return None,
        ToolChoice::None => NO_CALL.to_owned(),
        ToolChoice::Required => "Answer with a call to one of your tools.".to_owned(),
        ToolChoice::Function(name) => {
            let name = cut(sanitise(name), LONGEST_NAME);
            format!("Answer with a call to the tool {name}.")
        }
    };
    Some(format!("<note>{note}</note>"))
}

impl Prompts {
    /// The prompts of a model that plays a caller and calls no tools, with room for [`DEFAULT_TOKENS`].
    #[must_use]
    pub fn of_caller() -> Self {
        Self::embedded(CALLER).for_calls(Calls::Native)
    }

    fn embedded(system: &'static str) -> Self {
        let mut templates = Environment::new();
        templates.set_undefined_behavior(UndefinedBehavior::Strict);
        templates.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        templates
            .add_template(SYSTEM, system)
            .expect("the embedded template compiles");
        Self {
            templates,
            max_tokens: DEFAULT_TOKENS,
            calls: Calls::default(),
            form: CallForm::default(),
            speaks: true,
        }
    }
}

impl Default for Prompts {
    /// The embedded template of an agent, with room for [`DEFAULT_TOKENS`].
    fn default() -> Self {
        Self::embedded(EMBEDDED)
    }
}

/// The notes before everything else, which say who is calling, and the rest. The notes stay when old turns are
/// dropped, if they have at most `most` characters.
fn lasting(messages: &[Message], most: usize, overhead: usize) -> (&[Message], &[Message]) {
    let is_note = |message: &&Message| matches!(message, Message::System { .. });
    let notes = messages.iter().take_while(is_note);
    let ends = sizes(notes, overhead).into_iter().scan(0, |end, size| {
        *end += size;
        Some(*end)
    });
    messages.split_at(ends.take_while(|end| *end <= most).count())
}

/// The newest turns that fit into `room` characters, at least one. Old turns are dropped in steps of a
/// quarter of the room, so that between two steps the beginning stays the same. Each takes `overhead` characters
/// in addition to its text.
fn newest(messages: &[Message], room: usize, overhead: usize) -> &[Message] {
    let sizes = sizes(messages.iter(), overhead);
    let total: usize = sizes.iter().sum();
    if total <= room {
        return messages;
    }
    let step = (room / 4).max(1);
    let too_much = (total - room).div_ceil(step) * step;
    let mut gone = 0;
    let mut from = 0;
    for (at, size) in sizes.iter().enumerate() {
        if begins_turn(messages, at) {
            from = at;
            if gone >= too_much {
                break;
            }
        }
        gone += size;
    }
    &messages[from..]
}

/// Whether a turn begins here: a message of the user, or a note, after any other message.
fn begins_turn(messages: &[Message], at: usize) -> bool {
    let opens =
        |message: &Message| matches!(message, Message::User { .. } | Message::System { .. });
    opens(&messages[at])
        && !at
            .checked_sub(1)
            .is_some_and(|before| opens(&messages[before]))
}

/// Whether this is a result whose call was left out.
fn is_orphan(message: &Message, left_out: &[Message], shown: &[Message]) -> bool {
    let Message::ToolResult { id: result, .. } = message else {
        return false;
    };
    let is_its_call =
        |other: &Message| matches!(other, Message::ToolCall { id, .. } if id == result);
    left_out.iter().any(is_its_call) && !shown.iter().any(is_its_call)
}

/// The length of each message in the prompt, in characters, with tags and `overhead`.
fn sizes<'a>(messages: impl Iterator<Item = &'a Message>, overhead: usize) -> Vec<usize> {
    let mut chat = Chat::default();
    let grown = messages.map(|message| {
        let before = chat.length;
        chat.add(message, usize::MAX);
        chat.length - before + overhead
    });
    grown.collect()
}

/// The messages to show, and how long each may be, to fit into `room` characters.
fn fitting(messages: Vec<&Message>, room: usize, overhead: usize) -> (Vec<&Message>, usize) {
    let sizes_of = |messages: &[&Message]| sizes(messages.iter().copied(), overhead);
    if sizes_of(&messages).iter().sum::<usize>() <= room {
        return (messages, usize::MAX);
    }
    let shown = worth_showing(messages, room / (LEAST_MESSAGE + overhead));
    let longest = longest(sizes_of(&shown), room);
    (shown, longest)
}

/// The newest `most` messages of a turn that has too many. They include the user's last message; results
/// whose calls are left out are dropped.
fn worth_showing(turn: Vec<&Message>, most: usize) -> Vec<&Message> {
    let too_many = turn.len().saturating_sub(most.max(2));
    if too_many == 0 {
        return turn;
    }
    let is_users = |message: &&Message| matches!(message, Message::User { .. });
    let said = turn[..=too_many].iter().rfind(|message| is_users(message));
    let rest = &turn[too_many + 1..];
    let said = said.filter(|_| !rest.iter().any(is_users));
    let answers_nothing = |message: &Message| match message {
        Message::ToolResult { id: result, .. } => !rest
            .iter()
            .any(|other| matches!(other, Message::ToolCall { id, .. } if id == result)),
        _ => false,
    };
    let rest = rest.iter().filter(|message| !answers_nothing(message));
    said.into_iter().chain(rest).copied().collect()
}

/// The length to which messages of these sizes must be cut to fit into `room` together.
fn longest(mut sizes: Vec<usize>, room: usize) -> usize {
    if sizes.iter().sum::<usize>() <= room {
        return usize::MAX;
    }
    sizes.sort_unstable();
    let (mut left, mut count) = (room, sizes.len());
    for size in sizes {
        if size * count > left {
            break;
        }
        left -= size;
        count -= 1;
    }
    left / count.max(1)
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Cuts a text to `most` characters, ending with a mark that shows the cut.
fn cut(mut text: String, most: usize) -> String {
    if length(&text) <= most {
        return text;
    }
    let kept = most.saturating_sub(CUT.len());
    let end = text.char_indices().nth(kept).map_or(0, |(end, _)| end);
    text.truncate(end);
    if most >= CUT.len() {
        text.push_str(CUT);
    }
    text
}

/// A text between two tags, cut so that all together has at most `most` characters.
fn tagged(opening: &str, text: String, closing: &str, most: usize) -> String {
    let text = cut(text, most.saturating_sub(length(opening) + length(closing)));
    format!("{opening}{text}{closing}")
}

fn too_long(system: usize, tokens: usize) -> minijinja::Error {
    let text = format!(
        "the system prompt, with its tools and instructions, is some {} tokens long, and \
         max_prompt_tokens is {tokens}",
        system.div_ceil(TOKEN_CHARS)
    );
    minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, text)
}

/// The messages being assembled.
#[derive(Default)]
struct Chat {
    messages: Vec<ChatMessage>,
    /// The number of characters so far, never too low.
    length: usize,
    /// The last message was the user's words.
    unanswered: bool,
    /// The form of calls.
    form: CallForm,
}

impl Chat {
    /// Adds a message, cut to `most` characters.
    fn add(&mut self, message: &Message, most: usize) {
        // One character is for the line feed between messages.
        let most = most.saturating_sub(1);
        match message {
            Message::System { text } => {
                let note = tagged("<note>", sanitise(text), "</note>", most);
                self.push(Role::User, "\n", note);
            }
            Message::User { text } => self.add_user(sanitise(text), most),
            Message::Agent { text, interrupted } => self.add_speech(text, *interrupted, most),
            Message::ToolCall {
                name, arguments, ..
            } => {
                let name = cut(sanitise(name), LONGEST_NAME);
                let mut call = format_call(self.form, &name, &sanitise_map(arguments));
                if length(&call) > most {
                    call = format_call(self.form, &name, &Map::new());
                }
                self.push(Role::Assistant, "", call);
            }
            Message::ToolResult { name, output, .. } => {
                self.push(Role::User, "\n", format_result(name, output, most));
            }
        }
    }

    /// Adds a message of the user as a separate message.
    fn add_user(&mut self, text: String, most: usize) {
        let unanswered = std::mem::replace(&mut self.unanswered, true);
        let last = self.messages.last().map(|last| last.role);
        if !unanswered || last != Some(Role::User) {
            return self.push(Role::User, "\n", cut(text, most));
        }
        self.push(Role::Assistant, "", SILENCE.to_owned());
        let text = format!("\n{text}");
        let most = most.saturating_sub(length(SILENCE));
        self.push(Role::User, "\n", tagged(UNANSWERED, text, "", most));
        self.unanswered = true;
    }

    fn add_speech(&mut self, text: &str, interrupted: bool, most: usize) {
        let most = match interrupted {
            true => most.saturating_sub(length(INTERRUPTED)),
            false => most,
        };
        let text = sanitise(text);
        if !text.trim().is_empty() {
            let speech = tagged("<speech>", text.trim().to_owned(), "</speech>", most);
            self.push(Role::Assistant, "", speech);
        }
        if interrupted {
            if text.trim().is_empty() {
                self.push(Role::Assistant, "", SILENCE.to_owned());
            }
            self.push(Role::User, "\n", INTERRUPTED.to_owned());
        }
    }

    /// Adds content to the last message if it has the same role, else as a new message.
    fn push(&mut self, role: Role, between: &str, content: String) {
        self.unanswered &= role == Role::User;
        self.length += length(&content) + length(between);
        match self.messages.last_mut() {
            Some(last) if last.role == role => {
                last.content.push_str(between);
                last.content.push_str(&content);
            }
            _ => self.messages.push(ChatMessage::new(role, content)),
        }
    }

    /// Ends with the user's role. Given the assistant's words last, servers continue them or refuse.
    fn end_with_the_user(&mut self) {
        if self
            .messages
            .last()
            .is_some_and(|last| last.role == Role::Assistant)
        {
            self.push(Role::User, "", YOUR_TURN.to_owned());
        }
    }

    /// The messages, with a note on this answer alone.
    fn finish(mut self, demand: Option<String>) -> Vec<ChatMessage> {
        self.begin_with_the_user();
        self.end_with_the_user();
        if let Some(note) = demand {
            self.push(Role::User, "\n", note);
        }
        self.messages
    }

    /// Begins with the user's role. Many chat templates refuse a conversation that is empty or begins with
    /// the assistant.
    fn begin_with_the_user(&mut self) {
        if self
            .messages
            .get(1)
            .is_none_or(|first| first.role != Role::User)
        {
            let begun = ChatMessage::new(Role::User, BEGUN.to_owned());
            self.messages.insert(1, begun);
        }
    }
}

/// The tools in an order that does not depend on when they were registered, which a prefix cache would notice.
pub(crate) fn by_name(tools: &[ToolSpec]) -> Vec<&ToolSpec> {
    let mut tools: Vec<_> = tools.iter().collect();
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools
}

/// A tool for the template, with its schema on one line.
fn view(spec: &ToolSpec) -> minijinja::Value {
    context! {
        name => sanitise(&spec.name),
        description => sanitise(&spec.description).replace('\n', " "),
        parameters => sanitise_json(&spec.parameters).to_string(),
    }
}

/// A result as text.
fn result_text(output: &Value) -> String {
    cut(sanitise_json(output).to_string(), MAX_RESULT_CHARS)
}

fn format_result(name: &str, output: &Value, most: usize) -> String {
    let text = result_text(output);
    let name = cut(sanitise(name).replace(['"', '\n'], ""), LONGEST_NAME);
    let opening = format!("<tool_result name=\"{name}\">");
    tagged(&opening, text, "</tool_result>", most)
}

#[cfg(test)]
mod tests;
