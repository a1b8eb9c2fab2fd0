//! Turns a prompt into speech and calls. Pure except for the embeddings.

use super::again;
use super::answers;
use super::classifier::Classifier;
use super::declared::{self, Known, Match};
use super::last_timer::LastTimer;
use super::other_languages::OtherLanguage;
use super::parts;
use super::revised::{self, revised};
use super::rules;
use super::there;
use super::when::Asked;
use crate::language::en::mood::{self, Mood};
use crate::language::en::units::Unit;
use crate::language::en::{dates, durations, expression, money, places, slots, text};
use crate::language::pack;
use crate::language::request::{Request, Talk, Target};
use crate::llm::{LlmEvent, Message, Prompt, ToolChoice};
use crate::prediction::EmbedError;
use crate::tools::ToolSpec;
use crate::tools::builtin::{self, HANG_UP};
use crate::tools::journal::ALREADY_DONE;
use serde_json::{Map, Value, json};
use std::ops::Range;
use std::sync::Arc;

/// The least probability at which the classifier is trusted.
const SURE: f32 = 0.5;
/// The least probability for small talk, where a mistake costs little.
const LIKELY: f32 = 0.4;
/// The least probability if the sentence sounds like a report: "I've told you a hundred times".
const CERTAIN: f32 = 0.75;
/// The filler before a call whose tool declares none.
const ONE_MOMENT: &str = "One moment.";
/// The beginning of the question for a missing argument.
const FOR_THAT_I_NEED: &str = "For that I need the ";
/// Names of parameters that are no nouns.
const NO_NOUNS: [&str; 5] = ["from", "to", "in", "at", "by"];
/// The beginnings of orders to keep a timer or to set another, which name none to cancel.
const NO_NAMES: [&str; 14] = [
    "keep ",
    "leave ",
    "let ",
    "both are ",
    "set ",
    "start ",
    "create ",
    "make ",
    "begin ",
    "add ",
    "run ",
    "put ",
    "new ",
    "another ",
];
/// The most tool calls in one answer: as many as an utterance may have pieces.
const MOST_CALLS: usize = 12;
/// Said if there are more.
const TOO_MANY: &str = "That was a lot at once, so I do the first twelve.";

/// The brain's answer to a prompt.
pub(super) fn respond(
    prompt: &Prompt,
    known: &Known,
    classifier: &mut Classifier,
) -> Result<Vec<LlmEvent>, EmbedError> {
    let mut prompt = prompt.clone();
    if !prompt.may_call() {
        prompt.tools = Arc::default();
    }
    let pack = pack(prompt.demands.language.as_deref());
    let mut events = match pack.wording {
        Some(wording) => {
            let (prompt, known) = (&prompt, known);
            OtherLanguage {
                pack,
                wording,
                prompt,
                known,
            }
            .reply()
        }
        None => reply(&prompt, known, classifier)?,
    };
    events.push(LlmEvent::End);
    Ok(events)
}

/// The answers that are the same in every conversation with these tools, but for rare ones.
pub(super) fn often_said(prompt: &Prompt) -> Vec<String> {
    if let Some(wording) = pack(prompt.demands.language.as_deref()).wording {
        return wording.often_said(|name| prompt.tools.iter().any(|tool| tool.name == name));
    }
    let can = abilities(&ours(prompt));
    let talks = [
        Talk::Greeting,
        Talk::HowAreYou,
        Talk::Thanks,
        Talk::Goodbye,
        Talk::WhoAreYou,
        Talk::Yes,
        Talk::No,
        Talk::Capabilities,
    ];
    let talks = talks.map(|talk| answers::talk(talk, &can, None));
    let fixed = [answers::LEFT_ALONE, answers::HOW_LONG, ONE_MOMENT].map(str::to_owned);
    let beyond = [answers::limit(&can), answers::told(&can)];
    [beyond.as_slice(), &talks, &fixed].concat()
}

fn reply(
    prompt: &Prompt,
    known: &Known,
    classifier: &mut Classifier,
) -> Result<Vec<LlmEvent>, EmbedError> {
    Ok(match prompt.messages.last() {
        Some(Message::ToolResult { .. }) => spoken_results(prompt, known),
        Some(Message::User { .. }) => match answer(prompt, known, classifier)? {
            Some(events) => events,
            None => beyond(prompt),
        },
        Some(Message::System { .. }) => return noted(prompt, known, classifier),
        None => speech(opening(prompt)),
        // The agent has spoken last: there is nothing to add.
        Some(Message::Agent { .. } | Message::ToolCall { .. }) => Vec::new(),
    })
}

/// Says that the request is beyond the brain, unless the user has only told something, and what it can do.
fn beyond(prompt: &Prompt) -> Vec<LlmEvent> {
    let can = abilities(&ours(prompt));
    let said = text::sentences(last_user(&prompt.messages));
    let is_told = |said: &String| {
        let told = rules::is_told(said) || rules::is_negated(said);
        told && mood::meant(said).mood == Mood::Statement || mood::only_tells(said)
    };
    unable(match said.last().is_some_and(is_told) {
        true => answers::told(&can),
        false => answers::limit(&can),
    })
}

/// The answer after a note of the operator or the client. An open question or result before the note is
/// answered. Otherwise the note is treated as the user's words if it reads like them, because some clients
/// pass on typed text this way.
fn noted(
    prompt: &Prompt,
    known: &Known,
    classifier: &mut Classifier,
) -> Result<Vec<LlmEvent>, EmbedError> {
    let is_note = |message: &Message| matches!(message, Message::System { .. });
    let mut spoken = prompt.clone();
    let Some(Message::System { text }) = spoken.messages.pop() else {
        return Ok(Vec::new());
    };
    spoken.messages.retain(|message| !is_note(message));
    let last = spoken.messages.last();
    if let Some(Message::User { .. } | Message::ToolResult { .. }) = last {
        return reply(&spoken, known, classifier);
    }
    let opened = speech(opening(prompt));
    let sentences = text::sentences(&text);
    if sentences.iter().any(|said| said.starts_with("the user ")) {
        return Ok(opened);
    }
    let talks = sentences.iter().all(|said| rules::talk(said).is_some());
    spoken.messages.push(Message::User { text });
    let answered = answer(&spoken, known, classifier)?;
    let calls = |event: &LlmEvent| matches!(event, LlmEvent::ToolOpened { .. });
    let fits = |events: &Vec<LlmEvent>| talks || events.iter().any(calls);
    Ok(answered.filter(fits).unwrap_or(opened))
}

/// The agent's words if nobody has asked for anything: a greeting, or later the brain's abilities.
fn opening(prompt: &Prompt) -> String {
    if last_agent(&prompt.messages).is_none() {
        return answers::talk(Talk::Greeting, "", None);
    }
    format!("{} What would you like?", abilities(&ours(prompt)))
}

/// The built-in tools in the prompt.
fn ours(prompt: &Prompt) -> Vec<&ToolSpec> {
    let tools = prompt.tools.iter();
    tools.filter(|tool| builtin::is_ours(tool)).collect()
}

/// The results since anybody last spoke, in words.
fn spoken_results(prompt: &Prompt, known: &Known) -> Vec<LlmEvent> {
    let messages = &prompt.messages;
    let asked = asked(messages, known);
    let spoke = |message: &Message| matches!(message, Message::User { .. } | Message::Agent { .. });
    let start = messages.iter().rposition(spoke).map_or(0, |at| at + 1);
    let result = |message: &Message| match message {
        Message::ToolResult { id, name, output } => {
            let (output, is_old) = without_mark(output);
            let declared = || known.answer(name, &arguments_of(id, messages), &output);
            let failed = output.get("error").is_some();
            let ours = !failed && !known.is_others(name, prompt.tools.iter());
            let said = ours.then(declared).flatten();
            let said = said.unwrap_or_else(|| answers::result(name, &output, &asked));
            Some(match is_old {
                true => format!("That was already done before. {said}"),
                false => said,
            })
        }
        _ => None,
    };
    let results = &messages[start..];
    let said: Vec<String> = results.iter().filter_map(result).collect();
    let has_failed = |message: &Message| matches!(message, Message::ToolResult { output, .. } if output.get("error").is_some());
    let worked =
        |message: &Message| matches!(message, Message::ToolResult { .. }) && !has_failed(message);
    match results.iter().any(worked) {
        true => speech(said.join(" ")),
        false => unable(said.join(" ")),
    }
}

/// The part of a time that the user last asked for. Words that go on from a question ask for the same part.
fn asked(messages: &[Message], known: &Known) -> Asked {
    let user = |message: &Message| matches!(message, Message::User { .. });
    let end = messages.iter().rposition(user).map_or(0, |at| at + 1);
    let (said, before) = unanswered(&messages[..end]);
    let said = said.join(" ");
    let whole = whole_question(&said, before, known);
    Asked::of(whole.as_deref().unwrap_or(&said))
}

/// A result without the mark of a change that was made before, and whether it had one.
pub(super) fn without_mark(output: &Value) -> (Value, bool) {
    let mut output = output.clone();
    let mark = output.as_object_mut().and_then(|o| o.remove(ALREADY_DONE));
    (output, mark.is_some())
}

pub(super) fn arguments_of(call: &str, messages: &[Message]) -> Map<String, Value> {
    let found = messages.iter().rev().find_map(|message| match message {
        Message::ToolCall { id, arguments, .. } if id == call => Some(arguments.clone()),
        _ => None,
    });
    found.unwrap_or_default()
}

pub(super) fn last_user(messages: &[Message]) -> &str {
    let user = |message: &'_ Message| matches!(message, Message::User { .. });
    match messages.iter().rfind(|message| user(message)) {
        Some(Message::User { text }) => text,
        _ => "",
    }
}

/// The user's messages at the end, and the messages before them.
pub(super) fn unanswered(messages: &[Message]) -> (Vec<&str>, &[Message]) {
    let user = |message: &Message| matches!(message, Message::User { .. });
    let start = messages
        .iter()
        .rposition(|message| !user(message))
        .map_or(0, |at| at + 1);
    let said = messages[start..]
        .iter()
        .filter_map(|message| match message {
            Message::User { text } => Some(text.trim()),
            _ => None,
        });
    (said.collect(), &messages[..start])
}

/// The speech and calls for the user's last words; `None` if they are beyond the brain. If one of several
/// unanswered messages needs a tool by itself, each is answered separately; otherwise they are read as pieces
/// of one sentence. A message that retracts a request retracts all requests before it.
fn answer(
    prompt: &Prompt,
    known: &Known,
    classifier: &mut Classifier,
) -> Result<Option<Vec<LlmEvent>>, EmbedError> {
    let (said, before) = unanswered(&prompt.messages);
    if let Some(meant) = whole_question(&said.join(" "), before, known) {
        return answer_to(&meant, before, prompt, known, classifier);
    }
    let said: Vec<String> = said.into_iter().map(revised).collect();
    // "Set a timer for five minutes", "no, ten minutes"
    let is_length = |one: &String| rules::other_length(&text::normalise(one), 60).is_some();
    if said.len() > 1 && !said.iter().any(is_length) && asked_for(prompt).is_none() {
        let mut all: Vec<Vec<LlmEvent>> = Vec::new();
        let mut taken_back = false;
        for one in &said {
            // What is asked for now is taken back, not what was done before.
            let takes = all.iter().any(|answer| has_call(answer)) && takes_back(one, classifier)?;
            if takes {
                taken_back = true;
                all.clear();
            }
            let before = if takes { &[] } else { before };
            let answer = answer_to(one, before, prompt, known, classifier)?;
            all.push(answer.unwrap_or_else(|| beyond(prompt)));
        }
        if taken_back || all.iter().any(|answer| has_call(answer)) {
            return Ok(Some(at_once(all)));
        }
    }
    answer_to(&said.join(" "), before, prompt, known, classifier)
}

/// The whole question, if the words correct the one before or go on from it.
fn whole_question(said: &str, before: &[Message], known: &Known) -> Option<String> {
    corrected(said, before).or_else(|| {
        // A change is made for its own words only.
        let (tool, _) = last_call(before)?;
        let goes_on = known.reads(tool) && !is_asked_for_argument(before);
        goes_on.then(|| again::meant(said, before)).flatten()
    })
}

/// The utterance with its correction in place. It may correct what was asked before the last answer.
fn corrected(said: &str, before: &[Message]) -> Option<String> {
    revised::corrected(said).or_else(|| {
        let asked = last_user(before);
        let fits =
            !asked.is_empty() && rules::is_corrected(text::without_fillers(&text::normalise(said)));
        fits.then(|| revised::corrected(&format!("{asked} {said}")))
            .flatten()
    })
}

/// Whether a message only retracts what was asked before it.
fn takes_back(said: &str, classifier: &mut Classifier) -> Result<bool, EmbedError> {
    let requests = understand(said, &[], classifier)?;
    let refuses = |request: &Request| {
        matches!(
            request,
            Request::Refused | Request::Talk(Talk::Stop | Talk::No)
        )
    };
    Ok(!requests.is_empty() && requests.iter().all(refuses))
}

fn has_call(answer: &[LlmEvent]) -> bool {
    let opened = |event: &LlmEvent| matches!(event, LlmEvent::ToolOpened { .. });
    answer.iter().any(opened)
}

fn lacks_argument(answer: &[LlmEvent]) -> bool {
    let asks = |event: &LlmEvent| matches!(event, LlmEvent::Speech { text } if text.starts_with(FOR_THAT_I_NEED));
    answer.iter().any(asks)
}

/// Joins several answers into one. Those without calls come first, because words after a call are not spoken.
fn at_once(answers: Vec<Vec<LlmEvent>>) -> Vec<LlmEvent> {
    let (calling, talking): (Vec<_>, Vec<_>) = answers.into_iter().partition(|a| has_call(a));
    let mut words: Vec<String> = Vec::new();
    let mut calls = Vec::new();
    for event in talking.into_iter().chain(calling).flatten() {
        match event {
            LlmEvent::Speech { text } if !words.contains(&text) => words.push(text),
            LlmEvent::Speech { .. } | LlmEvent::Thinking | LlmEvent::Unable => {}
            other => calls.push(other),
        }
    }
    let mut events = speech(words.join(" "));
    events.extend(calls);
    events
}

fn answer_to(
    said: &str,
    before: &[Message],
    prompt: &Prompt,
    known: &Known,
    classifier: &mut Classifier,
) -> Result<Option<Vec<LlmEvent>>, EmbedError> {
    if asked_for(prompt).is_none()
        && let Some(answers) = several(said, before, prompt, known, classifier)?
    {
        return Ok(Some(at_once(answers)));
    }
    answer_to_one(said, before, prompt, known, classifier)
}

/// One request among several in an utterance.
struct Part {
    range: Range<usize>,
    /// Its words, if they are not those of its range: "the weather in Paris" for "and Paris".
    words: Option<String>,
    /// The answer to its words; `None` if more words have been added since.
    answer: Option<Vec<LlmEvent>>,
    /// The call takes dictation, so the rest of the sentence may belong to it.
    dictates: bool,
}

/// The answers to several requests in one utterance; `None` if there are fewer than two. A piece that needs a
/// tool by itself begins a request. Any other piece belongs to the request before it, or to the first request
/// if that follows in the same sentence.
fn several(
    said: &str,
    before: &[Message],
    prompt: &Prompt,
    known: &Known,
    classifier: &mut Classifier,
) -> Result<Option<Vec<Vec<LlmEvent>>>, EmbedError> {
    let mut parts: Vec<Part> = Vec::new();
    let mut lead = 0;
    for piece in parts::pieces(said) {
        if piece.begins_sentence {
            lead = piece.range.start;
        }
        let last = parts.last_mut();
        if let Some(last) = last.filter(|last| last.dictates && !piece.begins_sentence) {
            last.extend(said, piece.range.end);
            continue;
        }
        let place = parts
            .iter()
            .rev()
            .find_map(|part| there::place_of(part.answer.as_deref()?));
        let placed = place.and_then(|place| there::named(&said[piece.range.clone()], place));
        let words = placed.as_deref().unwrap_or(&said[piece.range.clone()]);
        let answer = answer_to_one(words, &[], prompt, known, classifier)?.unwrap_or_default();
        // "What time is it in Tokyo and what day is it" is one question.
        let begins = piece.begins_sentence && !piece.after_and;
        let goes_on = !begins && tells_time(&answer);
        let last = parts.last().and_then(|last| last.answer.as_deref());
        let same = goes_on && last.is_some_and(tells_time);
        let behind_place = last.and_then(there::place_of).is_some();
        let named = last.map_or(0, values);
        if (has_call(&answer) || lacks_argument(&answer)) && !same {
            let start = if parts.is_empty() {
                lead
            } else {
                piece.range.start
            };
            let is_listed = piece.after_and && !piece.begins_sentence;
            let shares = is_listed && there::shares_its_verb(words);
            if let (true, Some(last), Some(place)) =
                (shares, parts.last_mut(), there::place_of(&answer))
            {
                last.share_place(said, place);
            }
            parts.push(Part {
                range: start..piece.range.end,
                dictates: dictates(&answer, prompt, known),
                words: placed,
                answer: Some(answer),
            });
            continue;
        }
        let is_joined = piece.after_and && !piece.begins_sentence;
        // "And what about Rome" asks the same there.
        let elsewhere = is_joined.then(|| place_asked_about(words)).flatten();
        let words = elsewhere.as_deref().unwrap_or(words);
        // "And how are you" names nothing more, and is no part of a place's name.
        let may_ask = behind_place && is_joined && elsewhere.is_none();
        if may_ask && !has_call(&answer) && asks_something(words) {
            let start = parts.last().map_or(0, |last| last.range.start);
            let both = &said[start..piece.range.end];
            let both = answer_to_one(both, &[], prompt, known, classifier)?.unwrap_or_default();
            if values(&both) <= named {
                parts.push(Part {
                    range: piece.range,
                    dictates: false,
                    words: placed,
                    answer: None,
                });
                continue;
            }
        }
        let Some(mut last) = parts.pop() else {
            continue;
        };
        let listed = match piece.after_and {
            true => parts::for_each_place(last.words(said), words),
            false => Vec::new(),
        };
        let mut answers = Vec::new();
        for words in &listed {
            answers.extend(answer_to_one(words, &[], prompt, known, classifier)?);
        }
        if listed.is_empty() || answers.len() < listed.len() || !answers.iter().all(|a| has_call(a))
        {
            last.extend(said, piece.range.end);
            parts.push(last);
            continue;
        }
        parts.extend(listed.into_iter().zip(answers).map(|(words, answer)| Part {
            range: piece.range.clone(),
            words: Some(words),
            dictates: false,
            answer: Some(answer),
        }));
    }
    if parts.len() < 2 {
        return Ok(None);
    }
    let place = slots::place(&text::normalise(said));
    let mut answers = Vec::new();
    for part in parts.into_iter().take(MOST_CALLS) {
        let words = part.words(said).to_owned();
        let whole = answer_to_one(&words, before, prompt, known, classifier)?;
        let whole = whole.filter(|whole| has_call(whole) || part.answer.is_none());
        let mut answer = whole.or(part.answer).unwrap_or_else(|| beyond(prompt));
        // In "the weather and the time in Tokyo" both requests share the place.
        if lacks_argument(&answer)
            && let Some(place) = &place
        {
            let words = format!("{words} in {place}");
            let placed = answer_to_one(&words, before, prompt, known, classifier)?;
            answer = placed.filter(|placed| has_call(placed)).unwrap_or(answer);
        }
        if !tells_time(&answer) || !answers.contains(&answer) {
            answers.push(answer);
        }
    }
    Ok(Some(answers))
}

/// The known place of "what about Rome tomorrow?", with the words behind it.
fn place_asked_about(words: &str) -> Option<String> {
    let words = text::normalise(words);
    let about = ["what about ", "how about "];
    let rest = about.iter().find_map(|lead| words.strip_prefix(*lead))?;
    let rest = rest.strip_prefix("in ").unwrap_or(rest);
    places::is_known(slots::without_tail(rest)).then(|| rest.to_owned())
}

/// Whether the form of the words is that of a question or a request, without the mark at their end.
fn asks_something(words: &str) -> bool {
    let words = words.trim_end_matches(['?', '!', '.', ' ']);
    matches!(mood::meant(words).mood, Mood::Question | Mood::Request)
}

/// The number of arguments of the calls in an answer.
fn values(answer: &[LlmEvent]) -> usize {
    let of_one = |event: &LlmEvent| match event {
        LlmEvent::ToolClosed {
            arguments: Ok(arguments),
        } => arguments.len(),
        _ => 0,
    };
    answer.iter().map(of_one).sum()
}

/// Whether the answer only asks for the time, and needs no words.
fn tells_time(answer: &[LlmEvent]) -> bool {
    let is_clock =
        |event: &LlmEvent| !matches!(event, LlmEvent::ToolOpened { name } if name != "get_time");
    has_call(answer) && answer.iter().all(is_clock)
}

impl Part {
    fn words<'a>(&'a self, said: &'a str) -> &'a str {
        let own = self.words.as_deref();
        own.unwrap_or(&said[self.range.clone()])
    }

    /// Asks for the time at the place of the next part: "the time and the weather in Madrid".
    fn share_place(&mut self, said: &str, place: &str) {
        let answer = self.answer.as_deref().unwrap_or_default();
        let is_here = self
            .words(said)
            .split_whitespace()
            .any(|word| word == "here");
        if tells_time(answer) && there::place_of(answer).is_none() && !is_here {
            let words = self.words(said).trim_end_matches(['?', '.', '!', ',', ' ']);
            self.words = Some(format!("{words} in {place}"));
            self.answer = None;
        }
    }

    fn extend(&mut self, said: &str, end: usize) {
        if let Some(words) = &mut self.words {
            words.push_str(&said[self.range.end..end]);
        }
        self.range.end = end;
        self.answer = None;
    }
}

fn dictates(answer: &[LlmEvent], prompt: &Prompt, known: &Known) -> bool {
    let built_in = |name: &str| {
        let mut tools = prompt.tools.iter();
        tools.any(|tool| tool.name == name && builtin::is_ours(tool))
    };
    let changes = |event: &LlmEvent| matches!(event, LlmEvent::ToolOpened { name } if known.changes(name) && !built_in(name));
    answer.iter().any(changes)
}

/// The answer to one request. Amounts are read as written and, if that yields no call, in words: "50 dollars" for
/// "$50".
fn answer_to_one(
    said: &str,
    before: &[Message],
    prompt: &Prompt,
    known: &Known,
    classifier: &mut Classifier,
) -> Result<Option<Vec<LlmEvent>>, EmbedError> {
    let place = last_call(before).and_then(|(_, arguments)| there::place_among(arguments));
    let placed = place.and_then(|place| there::named(said, place));
    let said = placed.as_deref().unwrap_or(said);
    let answer = answer_as_written(said, before, prompt, known, classifier)?;
    let is_call = |answer: &Option<Vec<LlmEvent>>| answer.as_deref().is_some_and(has_call);
    let spelled = money::without_signs(said);
    if is_call(&answer) || spelled == said {
        return Ok(answer);
    }
    let other = answer_as_written(&spelled, before, prompt, known, classifier)?;
    Ok(if is_call(&other) { other } else { answer })
}

fn answer_as_written(
    said: &str,
    before: &[Message],
    prompt: &Prompt,
    known: &Known,
    classifier: &mut Classifier,
) -> Result<Option<Vec<LlmEvent>>, EmbedError> {
    // Tools that are not built in are matched by their declarations.
    let (ours, declared): (Vec<&ToolSpec>, Vec<&ToolSpec>) = prompt
        .tools
        .iter()
        .partition(|tool| builtin::is_ours(tool) || tool.name == HANG_UP);
    let can = abilities(&ours);
    if let Some(tool) = asked_for(prompt) {
        return called(tool, said, before, &ours, classifier).map(Some);
    }
    if let Some((name, arguments)) = known.ruled(said, &declared) {
        return Ok(Some(with_filler(&name, arguments, known)));
    }
    let requests = understand(said, before, classifier)?;
    if requests.iter().any(Request::needs_tool)
        && let Some(events) = calls(
            &requests,
            &ours,
            rules::is_reminder(&rules::core(&text::normalise(said))),
        )
    {
        return Ok(Some(events));
    }
    let unknown = matches!(requests.last(), None | Some(Request::Unknown));
    if unknown || requests.iter().any(Request::needs_tool) {
        return by_declaration(said, before, &declared, known, classifier);
    }
    // A declared tool may add minutes to something.
    if matches!(requests.last(), Some(Request::Talk(Talk::FixedLength))) {
        let answer = by_declaration(said, before, &declared, known, classifier)?;
        if let Some(events) = answer.filter(|answer| has_call(answer)) {
            return Ok(Some(events));
        }
    }
    let mut events = match requests.last() {
        Some(Request::Talk(Talk::Repeat))
            if last_agent(before).is_none() && !rules::asks_for_words(said) =>
        {
            speech(answers::SORRY.into())
        }
        Some(Request::Talk(talk)) => {
            let said = answers::talk(*talk, &can, last_agent(before));
            match talk.is_refusal() {
                true => unable(said),
                false => speech(said),
            }
        }
        Some(Request::Refused) => speech(answers::LEFT_ALONE.into()),
        _ => return Ok(None),
    };
    // Only for an explicit goodbye: hanging up by mistake may lose the caller.
    let last = text::sentences(said).into_iter().next_back();
    let leaves = last.and_then(|last| rules::talk(&last)) == Some(Talk::Goodbye);
    if leaves && ours.iter().any(|tool| tool.name == HANG_UP) {
        events.extend(call(HANG_UP, Map::new()));
    }
    Ok(Some(events))
}

/// The tool that the client forces: the one it names, or the only one.
fn asked_for(prompt: &Prompt) -> Option<&ToolSpec> {
    match &prompt.demands.tool_choice {
        ToolChoice::Auto | ToolChoice::None => None,
        ToolChoice::Function(name) => prompt.tools.iter().find(|tool| tool.name == *name),
        ToolChoice::Required if prompt.tools.len() == 1 => prompt.tools.first(),
        ToolChoice::Required => None,
    }
}

/// A call of this tool with the arguments in the user's words, or the question for a missing one.
fn called(
    tool: &ToolSpec,
    said: &str,
    before: &[Message],
    ours: &[&ToolSpec],
    classifier: &mut Classifier,
) -> Result<Vec<LlmEvent>, EmbedError> {
    if ours.iter().any(|own| own.name == tool.name) {
        let requests = understand(said, before, classifier)?;
        let fits = |request: &Request| {
            tool_of(request.clone()).filter(|(name, _)| *name == tool.name && request.needs_tool())
        };
        if let Some((name, arguments)) = requests.iter().find_map(fits) {
            return Ok(call(name, arguments));
        }
    }
    Ok(match declared::call(said, &text::normalise(said), tool) {
        Match::Call(name, arguments) => call(&name, arguments),
        Match::Missing(argument) => which(&argument),
        Match::OtherDay(_) | Match::None => Vec::new(),
    })
}

/// The requests in an utterance. A sentence that retracts one request retracts all before it.
fn understand(
    said: &str,
    before: &[Message],
    classifier: &mut Classifier,
) -> Result<Vec<Request>, EmbedError> {
    let sentences = text::sentences(said);
    let mut all: Vec<Vec<Request>> = Vec::new();
    for sentence in &sentences {
        // "Set a timer for ten minutes. Cancel that" means this timer, not one before it.
        let sets = |request: &Request| matches!(request, Request::SetTimer { .. });
        let before: &[Message] = match all.iter().flatten().any(sets) {
            true => &[],
            false => before,
        };
        all.push(sentence_requests(sentence, before, classifier)?);
    }
    let mut requests: Vec<Request> = Vec::new();
    for (at, sentence) in sentences.iter().enumerate() {
        if sentence.starts_with("and ") && shares_place(at, &sentences, &all) {
            continue;
        }
        // "Set a timer for five minutes. No, ten minutes."
        let timer = match requests.last() {
            Some(Request::SetTimer { seconds, label }) => seconds
                .and_then(|seconds| rules::other_length(sentence, seconds))
                .map(|other| Request::SetTimer {
                    seconds: Some(other),
                    label: label.clone(),
                }),
            _ => None,
        };
        if let (Some(timer), Some(old)) = (timer, requests.last().cloned()) {
            for request in requests.iter_mut().filter(|request| **request == old) {
                request.clone_from(&timer);
            }
            continue;
        }
        let read = all[at].clone();
        if at > 0 && only_gives_reason(sentence, &read) {
            continue;
        }
        let taken_back = at > 0
            && matches!(
                read.as_slice(),
                [Request::Refused] | [Request::Talk(Talk::Stop)]
            );
        if taken_back {
            requests.retain(|request: &Request| !request.needs_tool());
        }
        // "Cancel all timers. Except the pasta one."
        let all_timers = Request::CancelTimer(Target::All);
        if requests.contains(&all_timers)
            && !read.iter().any(Request::needs_tool)
            && rules::leaves_some(sentence)
        {
            requests.retain(|request| *request != all_timers);
            requests.push(Request::Talk(Talk::WhichTimer));
            continue;
        }
        requests.extend(read);
    }
    for request in &mut requests {
        if let Request::Time(Some(place)) = request {
            *place = heard(place, said);
        }
    }
    if requests.iter().any(Request::needs_tool) {
        requests.retain(Request::needs_tool);
        let mut times: Vec<Request> = Vec::new();
        requests.retain(|request| {
            let again = times.contains(request);
            let is_time = matches!(request, Request::Time(_));
            times.extend(is_time.then(|| request.clone()));
            !again
        });
    } else if requests.contains(&Request::Unknown) {
        requests = vec![Request::Unknown];
    }
    Ok(requests)
}

/// Whether a sentence gives the reason for another, and has no call of its own: "don't let me forget the pizza".
fn only_gives_reason(sentence: &str, read: &[Request]) -> bool {
    rules::is_reason(sentence) && !read.iter().any(|request| request.call().is_some())
}

/// A place by its usual name. One that is neither known nor written as a name may be spelt by ear: "pairs".
fn heard(place: &str, said: &str) -> String {
    let is_name = places::is_known(place) || said.contains(place);
    let by_sound = (!is_name).then(|| places::by_sound(place)).flatten();
    by_sound.unwrap_or_else(|| place.to_owned())
}

fn sentence_requests(
    sentence: &str,
    before: &[Message],
    classifier: &mut Classifier,
) -> Result<Vec<Request>, EmbedError> {
    if let Some(requests) = of_last_timer(sentence, before) {
        return Ok(requests);
    }
    if let Some(request) = follow_up(sentence, before) {
        return Ok(vec![request]);
    }
    let corrected = sentence.contains("no wait") || sentence.contains("i mean");
    let fixed = rules::talk(sentence);
    if let Some(talk) = fixed {
        return Ok(vec![Request::Talk(talk)]);
    }
    if rules::is_negated(sentence) && !corrected {
        return negated(sentence, classifier);
    }
    if let Some(parts) = in_parts(sentence) {
        return Ok(parts);
    }
    let read = rules::read(sentence);
    if !read.is_empty() {
        return Ok(read);
    }
    if rules::is_reminder(sentence) {
        return Ok(vec![Request::Unknown]);
    }
    by_classifier(sentence, classifier)
}

/// Splits "set a timer for 5 minutes and tell me the time", if each part matches a rule.
fn in_parts(sentence: &str) -> Option<Vec<Request>> {
    if rules::is_reminder(sentence) {
        return None;
    }
    let sentence = &rules::and_for_but(sentence);
    let parts = match sentence.contains(" and ") {
        true => sentence.split(" and ").map(str::to_owned).collect(),
        false => rules::questions(sentence),
    };
    let read: Vec<Vec<Request>> = parts.iter().map(|part| rules::read(part)).collect();
    let asks = |(part, read): (&String, &Vec<Request>)| {
        read.iter().any(Request::needs_tool) && !only_gives_reason(part, read)
    };
    let all = parts.len() > 1 && parts.iter().zip(&read).all(asks);
    let shares = |at: usize| shares_place(at, &parts, &read);
    let own = (0..parts.len()).filter(|&at| all && !shares(at));
    let own: Vec<Request> = own.flat_map(|at| read[at].clone()).collect();
    all.then_some(own)
}

/// Whether a part asks for the date where another asks for the time, or the other way round: "what time is it
/// in Tokyo and what day is it".
fn shares_place(at: usize, parts: &[String], read: &[Vec<Request>]) -> bool {
    let is_date = |at: usize| rules::is_date(&rules::core(&parts[at]));
    let placed = |other: usize| matches!(read[other].as_slice(), [Request::Time(Some(_))]);
    read[at] == [Request::Time(None)]
        && (0..parts.len()).any(|other| placed(other) && is_date(other) != is_date(at))
}

/// Reads a negated sentence. Only what it asks for instead is done.
fn negated(sentence: &str, classifier: &mut Classifier) -> Result<Vec<Request>, EmbedError> {
    let instead = rules::instead(sentence);
    if !instead.is_empty() {
        return Ok(instead);
    }
    if rules::is_refusal(sentence) {
        return Ok(vec![Request::Refused]);
    }
    let guess = classifier.intent(sentence)?;
    let talk = talk_of(&guess.class)
        .filter(|talk| guess.probability >= SURE && rules::is_evident(*talk, sentence));
    Ok(vec![talk.map_or(Request::Unknown, Request::Talk)])
}

fn by_classifier(sentence: &str, classifier: &mut Classifier) -> Result<Vec<Request>, EmbedError> {
    let core = rules::core(sentence);
    let guess = classifier.intent(&core)?;
    let told = rules::is_told(&core);
    let enough = if told { CERTAIN } else { LIKELY };
    if let Some(talk) = talk_of(&guess.class).filter(|_| guess.probability >= enough) {
        let talk = Some(talk).filter(|talk| rules::is_evident(*talk, sentence));
        return Ok(vec![talk.map_or(Request::Unknown, Request::Talk)]);
    }
    if guess.probability < SURE || guess.class == "none" {
        return Ok(vec![Request::Unknown]);
    }
    let request = if told {
        None
    } else {
        evident(&guess.class, &core)
    };
    Ok(vec![request.unwrap_or(Request::Unknown)])
}

/// The request for a classified intent, if the words also name its subject. The classifier alone is not
/// enough for a call.
fn evident(intent: &str, core: &str) -> Option<Request> {
    let says = |words: &[&str]| core.split(' ').any(|word| words.contains(&word));
    let timer = says(&["timer", "timers", "countdown"]);
    match intent {
        "time" | "date" => when(intent, core),
        "calculate" => {
            let digits = core.contains(|c: char| c.is_ascii_digit());
            Some(expression::read(core).map_or(
                Request::Talk(if digits {
                    Talk::WhichSum
                } else {
                    Talk::Capabilities
                }),
                Request::Calculate,
            ))
        }
        "list_timers" if timer => Some(Request::ListTimers),
        "cancel_timer"
            if timer
                && !rules::leaves_some(core)
                && says(&[
                    "cancel", "stop", "delete", "remove", "end", "off", "clear", "kill",
                ]) =>
        {
            Some(Request::CancelTimer(Target::Only))
        }
        "set_timer"
            if timer
                && says(&[
                    "set", "start", "need", "want", "make", "create", "run", "timer",
                ]) =>
        {
            timer_of(core)
        }
        _ => None,
    }
}

fn timer_of(core: &str) -> Option<Request> {
    let seconds = durations::seconds(core)?;
    (1..=24 * 3600)
        .contains(&seconds)
        .then_some(Request::SetTimer {
            seconds: Some(seconds),
            label: None,
        })
}

/// The time or date, if the words ask for now, here or at a known place.
fn when(intent: &str, core: &str) -> Option<Request> {
    const ELSEWHEN: [&str; 44] = [
        "open",
        "opens",
        "close",
        "closes",
        "start",
        "starts",
        "does",
        "leave",
        "leaves",
        "arrive",
        "land",
        "landing",
        "flight",
        "meeting",
        "game",
        "show",
        "next",
        "last",
        "first",
        "when",
        "best",
        "good",
        "travel",
        "take",
        "takes",
        "lunch",
        "dinner",
        "sunrise",
        "sunset",
        "alarm",
        "schedule",
        "tomorrow",
        "yesterday",
        "should",
        "bed",
        "until",
        "till",
        "birthday",
        "christmas",
        "holiday",
        "difference",
        "long",
        "much",
        "many",
    ];
    const ABOUT_TIME: [&str; 5] = ["time", "clock", "hour", "late", "timezone"];
    const ABOUT_DATE: [&str; 5] = ["date", "day", "today", "month", "year"];
    let words: Vec<&str> = core.split(' ').collect();
    let about: &[&str] = if intent == "time" {
        &ABOUT_TIME
    } else {
        &ABOUT_DATE
    };
    let fits = words.iter().any(|word| about.contains(word));
    let later = !durations::all(core).is_empty() || dates::other_day(core).is_some();
    if !fits || later || words.iter().any(|word| ELSEWHEN.contains(word)) {
        return None;
    }
    let place = slots::place(core);
    let elsewhere = words
        .iter()
        .any(|word| ["in", "at", "for", "of", "on"].contains(word));
    (place.is_some() || !elsewhere).then_some(Request::Time(place))
}

fn talk_of(intent: &str) -> Option<Talk> {
    Some(match intent {
        "greeting" => Talk::Greeting,
        "how_are_you" => Talk::HowAreYou,
        "thanks" => Talk::Thanks,
        "goodbye" => Talk::Goodbye,
        "who_are_you" => Talk::WhoAreYou,
        "capabilities" => Talk::Capabilities,
        "repeat" => Talk::Repeat,
        "yes" => Talk::Yes,
        "no" => Talk::No,
        "stop" => Talk::Stop,
        _ => return None,
    })
}

/// Reads answers to the brain's questions, and follow-ups such as "and in London?".
fn follow_up(sentence: &str, before: &[Message]) -> Option<Request> {
    if rules::is_negated(sentence) || rules::is_told(sentence) {
        return None;
    }
    let bare = text::without_fillers(sentence);
    let question = last_agent(before).unwrap_or_default();
    let short = bare.split(' ').count() <= 8;
    if short && asks_any(question, &[answers::HOW_LONG, answers::REMIND_WHEN]) {
        let sets = |request: &Request| matches!(request, Request::SetTimer { .. });
        let read = rules::read(sentence);
        if read.iter().any(|one| one.needs_tool() && !sets(one)) {
            return None;
        }
        let mut timer = timer_of(bare)?;
        if let Request::SetTimer { label, .. } = &mut timer {
            *label = unset_label(before);
        }
        return Some(timer);
    }
    if short && asks(question, answers::WHICH_TIMER) {
        if rules::leaves_some(bare) {
            return Some(Request::Talk(Talk::WhichTimer));
        }
        if is_name_of_timer(sentence) {
            let named = rules::named_to_cancel(sentence);
            let name = named.as_deref().unwrap_or(bare);
            let name = name.trim_end_matches(" timers").trim_end_matches(" timer");
            let target = rules::target(name, false);
            return (target != Target::Only).then_some(Request::CancelTimer(target));
        }
    }
    let is_timers = |tool| ["set_timer", "list_timers", "cancel_timer"].contains(&tool);
    if last_call(before).is_some_and(|(tool, _)| is_timers(tool)) {
        if rules::asks_for_rest(bare) {
            return Some(Request::ListTimers);
        }
        if rules::changes_it(bare) {
            return Some(Request::Talk(Talk::FixedLength));
        }
    }
    let words: Vec<&str> = bare.split(' ').collect();
    let (rest, has_preposition) = match words.as_slice() {
        ["what" | "how", "about", "in" | "to" | "for", rest @ ..]
        | ["in" | "to" | "for", rest @ ..] => (rest.join(" "), true),
        ["what" | "how", "about", rest @ ..] => (rest.join(" "), false),
        _ => return None,
    };
    again(&rest, has_preposition, last_call(before)?)
}

/// Whether a sentence may name a timer to cancel, because it means nothing else: "the pasta timer", which alone would
/// list the timers, and "five minute timer", which would set one.
fn is_name_of_timer(sentence: &str) -> bool {
    let bare = text::without_fillers(sentence);
    let core = rules::core(sentence);
    let begins = |lead: &&str| bare.starts_with(*lead) || core.starts_with(*lead);
    if NO_NAMES.iter().any(begins) {
        return false;
    }
    let is_name =
        |request: &Request| matches!(request, Request::ListTimers | Request::SetTimer { .. });
    let may_name = rules::named_to_cancel(sentence).is_some() || !asks_something(sentence);
    may_name && rules::read(sentence).iter().all(is_name)
}

/// Takes back or corrects the timer that was set last: "cancel it", "no, I said ten minutes".
fn of_last_timer(sentence: &str, before: &[Message]) -> Option<Vec<Request>> {
    let timers = before.iter().filter_map(|message| match message {
        Message::ToolCall {
            name, arguments, ..
        } if name == "set_timer" => Some(arguments),
        _ => None,
    });
    let timers: Vec<_> = timers.collect();
    let labels = timers
        .iter()
        .filter_map(|timer| timer.get("label")?.as_str());
    let labels: Vec<&str> = labels.collect();
    if let Some(target) = rules::which_one(sentence, &labels).filter(|_| !timers.is_empty()) {
        return Some(vec![Request::CancelTimer(target)]);
    }
    // The answer to a question is no correction of the timer before it.
    let questions = [
        answers::HOW_LONG,
        answers::REMIND_WHEN,
        answers::WHICH_TIMER,
    ];
    if asks_any(last_agent(before).unwrap_or_default(), &questions) {
        return None;
    }
    let timer = LastTimer::of(before)?;
    if let Some(target) = rules::takes_back_timer(sentence, timer.seconds, timer.label.as_deref()) {
        return Some(vec![Request::CancelTimer(target)]);
    }
    // Of several timers, the tool asks for the one that is meant.
    if let Some(target) = rules::refused_timer(sentence, &labels) {
        return Some(vec![Request::CancelTimer(target)]);
    }
    let other = rules::other_length(sentence, timer.seconds)?;
    Some(timer.with_length(other))
}

/// The label of the timer that the user last asked for without a length.
fn unset_label(before: &[Message]) -> Option<String> {
    let sentences = text::sentences(last_user(before));
    let requests = sentences.iter().flat_map(|sentence| rules::read(sentence));
    let mut labels = requests.filter_map(|request| match request {
        Request::SetTimer {
            seconds: None,
            label,
        } => label,
        _ => None,
    });
    labels.next_back()
}

fn asks_any(heard: &str, questions: &[&str]) -> bool {
    questions.iter().any(|question| asks(heard, question))
}

/// Whether the agent asked this question: in full, or interrupted but recognisable.
fn asks(heard: &str, question: &str) -> bool {
    let heard = heard.trim_end_matches(['.', ' ', '…', '-']);
    heard.ends_with(question) || (heard.len() >= 10 && question.starts_with(heard))
}

fn again(
    rest: &str,
    has_preposition: bool,
    (tool, arguments): (&str, &Map<String, Value>),
) -> Option<Request> {
    match tool {
        "get_time" => {
            let may_be_place = has_preposition || again::is_name(rest);
            let place = places::find(rest).ok().filter(|_| may_be_place)?;
            Some(Request::Time(Some(place.name)))
        }
        "convert_units" => Some(Request::Convert {
            value: arguments.get("value")?.as_f64()?,
            from: Unit::named(arguments.get("from")?.as_str()?)?.plural,
            to: Unit::named(rest)?.plural,
        }),
        _ => None,
    }
}

pub(super) fn last_agent(before: &[Message]) -> Option<&str> {
    before.iter().rev().find_map(|message| match message {
        Message::Agent { text, .. } if !text.trim().is_empty() => Some(text.trim()),
        _ => None,
    })
}

/// Whether the agent has asked for an argument since the user last spoke, even if another call's result was
/// said after the question.
fn is_asked_for_argument(before: &[Message]) -> bool {
    let spoken = before.iter().rev();
    let mut spoken = spoken.take_while(|message| !matches!(message, Message::User { .. }));
    spoken.any(|message| matches!(message, Message::Agent { text, .. } if text.trim().starts_with(FOR_THAT_I_NEED)))
}

fn last_call(before: &[Message]) -> Option<(&str, &Map<String, Value>)> {
    before.iter().rev().find_map(|message| match message {
        Message::ToolCall {
            name, arguments, ..
        } => Some((name.as_str(), arguments)),
        _ => None,
    })
}

/// A call of a declared tool; `None` if none fits.
fn by_declaration(
    said: &str,
    before: &[Message],
    declared: &[&ToolSpec],
    known: &Known,
    classifier: &mut Classifier,
) -> Result<Option<Vec<LlmEvent>>, EmbedError> {
    let said = if is_asked_for_argument(before) {
        format!(
            "{} in {said}",
            last_user(before).trim_end_matches(['.', '?', '!'])
        )
    } else {
        said.to_owned()
    };
    let sentence = text::normalise(&said);
    Ok(
        match declared::find(&said, &sentence, declared, known, classifier)? {
            Match::Call(name, arguments) if known.is_others(&name, declared.iter().copied()) => {
                Some(with_words(ONE_MOMENT.into(), &name, arguments))
            }
            Match::Call(name, arguments) => Some(with_filler(&name, arguments, known)),
            Match::Missing(argument) => Some(which(&argument)),
            Match::OtherDay(days) => Some(unable(answers::only_for(&days))),
            Match::None => None,
        },
    )
}

fn which(argument: &str) -> Vec<LlmEvent> {
    let argument = match NO_NOUNS.contains(&argument) {
        true => format!("value of '{argument}'"),
        false => argument.to_owned(),
    };
    speech(format!("{FOR_THAT_I_NEED}{argument}. Which one?"))
}

fn with_filler(name: &str, arguments: Map<String, Value>, known: &Known) -> Vec<LlmEvent> {
    let filler = known.filler(name, &arguments, None);
    with_words(filler.unwrap_or_else(|| ONE_MOMENT.into()), name, arguments)
}

pub(super) fn with_words(
    words: String,
    name: &str,
    arguments: Map<String, Value>,
) -> Vec<LlmEvent> {
    let mut events = speech(words);
    events.extend(call(name, arguments));
    events
}

fn abilities(tools: &[&ToolSpec]) -> String {
    answers::abilities(|name| tools.iter().any(|tool| tool.name == name))
}

/// Calls for all requests, or a question if an argument is missing; `None` if a tool is not offered. `reminds`: the
/// user wants to be reminded of something.
fn calls(requests: &[Request], tools: &[&ToolSpec], reminds: bool) -> Option<Vec<LlmEvent>> {
    let is_there = |name: &str| tools.iter().any(|tool| tool.name == name);
    let mut events = Vec::new();
    if requests.len() > MOST_CALLS {
        events.extend(speech(TOO_MANY.into()));
    }
    for request in requests.iter().take(MOST_CALLS) {
        match tool_of(request.clone()) {
            Some((name, arguments)) if is_there(name) => events.extend(call(name, arguments)),
            None if is_there("set_timer") => {
                return Some(speech(match reminds {
                    true => answers::REMIND_WHEN.into(),
                    false => answers::HOW_LONG.into(),
                }));
            }
            _ => return None,
        }
    }
    Some(events)
}

/// The call for a request; `None` if a timer has no length.
fn tool_of(request: Request) -> Option<(&'static str, Map<String, Value>)> {
    let (name, arguments) = match request {
        Request::Time(None) | Request::Talk(_) | Request::Refused | Request::Unknown => {
            ("get_time", json!({}))
        }
        Request::Time(Some(place)) => ("get_time", json!({ "place": place })),
        Request::Calculate(expression) => ("calculate", json!({ "expression": expression })),
        Request::Convert { value, from, to } => (
            "convert_units",
            json!({"value": value, "from": from, "to": to}),
        ),
        Request::Weather { place, day } => ("get_weather", json!({"place": place?, "day": day})),
        Request::ListTimers => ("list_timers", json!({})),
        Request::CancelTimer(target) => ("cancel_timer", target_arguments(target)),
        Request::SetTimer {
            seconds,
            label: None,
        } => ("set_timer", json!({"seconds": seconds?})),
        Request::SetTimer { seconds, label } => {
            ("set_timer", json!({"seconds": seconds?, "label": label}))
        }
    };
    Some((name, arguments.as_object().cloned().unwrap_or_default()))
}

fn target_arguments(target: Target) -> Value {
    match target {
        Target::Only => json!({}),
        Target::All => json!({"all": true}),
        Target::Seconds(seconds) => json!({ "seconds": seconds }),
        Target::Label(label) => json!({ "label": label }),
    }
}

pub(super) fn speech(text: String) -> Vec<LlmEvent> {
    if text.is_empty() {
        Vec::new()
    } else {
        vec![LlmEvent::Speech { text }]
    }
}

/// Words that say that a request cannot be met.
pub(super) fn unable(text: String) -> Vec<LlmEvent> {
    let mut events = vec![LlmEvent::Unable];
    events.extend(speech(text));
    events
}

/// The events of one call, with arguments written as in markup: `place="Tokyo"`.
pub(super) fn call(name: &str, arguments: Map<String, Value>) -> Vec<LlmEvent> {
    let piece = arguments
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect::<Vec<_>>()
        .join(", ");
    vec![
        LlmEvent::ToolOpened { name: name.into() },
        LlmEvent::ToolArguments { piece },
        LlmEvent::ToolClosed {
            arguments: Ok(arguments),
        },
    ]
}
