//! The history of a session. It only grows, except that an interrupted answer is cut at the words that
//! were heard, and that clients may delete items.

use super::ids::{CallId, ItemId};
use super::input::Place;
use crate::llm::Message;
use crate::time::Micros;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

#[cfg(test)]
mod tests;

/// The history of one session.
#[derive(Debug, Default)]
pub(super) struct History {
    items: Vec<Item>,
}

#[derive(Debug)]
struct Item {
    id: ItemId,
    content: Content,
    /// The client has cancelled the answer to it.
    given_up: bool,
}

#[derive(Debug)]
enum Content {
    Fixed(Message),
    Spoken(Speech),
}

/// An answer, clause by clause.
#[derive(Debug, Default)]
struct Speech {
    clauses: Vec<(String, Micros)>,
    /// How much the user heard before it was cut; all of it if `None`.
    heard: Option<Micros>,
    /// The model is never shown it.
    outside: bool,
}

impl Speech {
    fn length(&self) -> Micros {
        Micros(self.clauses.iter().map(|(_, length)| length.0).sum())
    }

    fn all_text(&self) -> String {
        let texts = self.clauses.iter().map(|(text, _)| text.as_str());
        texts
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The words that were heard. Within a clause words are taken to be spread by their letters.
    fn text(&self) -> String {
        let mut left = self.heard.unwrap_or(Micros(u64::MAX));
        let mut text = Vec::new();
        for (clause, length) in self.clauses.iter().filter(|(text, _)| !text.is_empty()) {
            if left.0 == 0 {
                break;
            }
            text.push(if left >= *length {
                clause.as_str()
            } else {
                beginning(clause, left, *length)
            });
            left = Micros(left.0.saturating_sub(length.0));
        }
        text.join(" ").trim_end().to_owned()
    }
}

impl Speech {
    /// Letters and digits in small letters, each with how long the answer has been spoken behind
    /// it. Within a clause they are taken to be spread evenly.
    fn letters(&self) -> impl Iterator<Item = (Micros, char)> {
        let begins = self.clauses.iter().scan(Micros(0), |at, (_, length)| {
            let begins = *at;
            *at = *at + *length;
            Some(begins)
        });
        let clauses = self.clauses.iter().zip(begins);
        clauses.flat_map(|((text, length), begins)| {
            letters(text).map(move |(end, c)| {
                let so_far = (end as u64 * length.0).div_ceil(text.len() as u64);
                (begins + Micros(so_far), c)
            })
        })
    }
}

/// Letters and digits of a text in small letters, each with the byte behind it and the marks that
/// follow it without a space.
fn letters(text: &str) -> impl Iterator<Item = (usize, char)> {
    let letters = text.char_indices().filter(|(_, c)| c.is_alphanumeric());
    letters.flat_map(|(at, c)| {
        let behind = &text[at + c.len_utf8()..];
        let marks = behind.find(|c: char| c.is_whitespace() || c.is_alphanumeric());
        let end = text.len() - behind.len() + marks.unwrap_or(behind.len());
        c.to_lowercase().map(move |c| (end, c))
    })
}

/// The whole words of `clause` that fit into `heard` of its `length`.
fn beginning(clause: &str, heard: Micros, length: Micros) -> &str {
    let budget = clause.len() as u64 * heard.0 / length.0.max(1);
    let end = clause
        .char_indices()
        .filter(|(_, c)| c.is_whitespace())
        .map(|(at, _)| at)
        .chain([clause.len()])
        .take_while(|end| *end as u64 <= budget)
        .last();
    &clause[..end.unwrap_or(0)]
}

impl History {
    pub(super) fn push(&mut self, id: ItemId, message: Message) {
        self.insert(self.items.len(), id, message);
    }

    /// Puts an item before the one at `at`, or at the end.
    pub(super) fn insert(&mut self, at: usize, id: ItemId, message: Message) {
        let content = Content::Fixed(message);
        self.items.insert(at, Item::new(id, content));
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// The index that an item gets at `place`; `None` if the one before it is not there.
    pub(super) fn index(&self, place: Place) -> Option<usize> {
        match place {
            Place::End => Some(self.items.len()),
            Place::Start => Some(0),
            Place::After(id) => Some(self.items.iter().position(|item| item.id == id)? + 1),
        }
    }

    /// Adds words to a message of the user. Returns all of its words; `None` if there is no such
    /// message.
    pub(super) fn add_words(&mut self, id: ItemId, words: &str) -> Option<String> {
        let item = self.items.iter_mut().find(|item| item.id == id)?;
        let Content::Fixed(Message::User { text }) = &mut item.content else {
            return None;
        };
        *text = [text, words].join(" ").trim().to_owned();
        Some(text.clone())
    }

    pub(super) fn is_last(&self, id: ItemId) -> bool {
        self.items.last().is_some_and(|item| item.id == id)
    }

    /// Begins an answer that has no words yet.
    pub(super) fn begin_speech(&mut self, id: ItemId, outside: bool) {
        let speech = Speech {
            outside,
            ..Speech::default()
        };
        self.items.push(Item::new(id, Content::Spoken(speech)));
    }

    /// Adds a clause to an answer and returns its place. Its length is not known until it has been
    /// made.
    pub(super) fn add_clause(&mut self, id: ItemId, text: &str) -> usize {
        let Some(speech) = self.speech(id) else {
            return 0;
        };
        speech.clauses.push((text.to_owned(), Micros(0)));
        speech.clauses.len() - 1
    }

    /// Forgets the words of a clause that could not be spoken.
    pub(super) fn drop_clause(&mut self, id: ItemId, index: usize) {
        if let Some((text, _)) = self.speech(id).and_then(|s| s.clauses.get_mut(index)) {
            text.clear();
        }
    }

    /// More audio of the clause at `index` was made.
    pub(super) fn lengthen_clause(&mut self, id: ItemId, index: usize, by: Micros) {
        if let Some((_, length)) = self.speech(id).and_then(|s| s.clauses.get_mut(index)) {
            *length = *length + by;
        }
    }

    /// Adds the result of a call. `false` if there is no such call or it has its result.
    pub(super) fn add_result(&mut self, id: ItemId, call: CallId, output: Value) -> bool {
        self.insert_result(self.items.len(), id, call, output)
    }

    /// The same, at an index, but behind its call.
    pub(super) fn insert_result(
        &mut self,
        at: usize,
        item: ItemId,
        call: CallId,
        output: Value,
    ) -> bool {
        let id = call.to_string();
        let mut items = self.items.iter().enumerate();
        let found = items.find_map(|(index, item)| match &item.content {
            Content::Fixed(Message::ToolCall { id: key, name, .. }) if *key == id => {
                Some((index, name.clone()))
            }
            _ => None,
        });
        let answered = self.items.iter().any(|item| {
            matches!(&item.content, Content::Fixed(Message::ToolResult { id: key, .. }) if *key == id)
        });
        let Some((call, name)) = found.filter(|_| !answered) else {
            return false;
        };
        self.insert(
            at.max(call + 1),
            item,
            Message::ToolResult { id, name, output },
        );
        true
    }

    /// Adds a committed call.
    pub(super) fn add_call(
        &mut self,
        id: ItemId,
        call: CallId,
        name: &str,
        arguments: Map<String, Value>,
    ) {
        self.push(
            id,
            Message::ToolCall {
                id: call.to_string(),
                name: name.to_owned(),
                arguments,
            },
        );
    }

    /// Cuts an answer at what was heard and returns what is left of its words; `None` if there is
    /// no such answer. More than all of it is all of it: audio is sent in whole frames, the last
    /// one padded.
    pub(super) fn cut(&mut self, id: ItemId, heard: Micros) -> Option<String> {
        let speech = self.speech(id)?;
        speech.heard = Some(heard.min(speech.length()));
        Some(speech.text())
    }

    /// How much was heard of the last answers if `words` are the last that were heard of them:
    /// nothing of those behind that one of which they are. Nothing is told of those before, and
    /// nothing at all if the agent has not said these words since the user spoke.
    ///
    /// Only letters and digits are compared. Of several places the last is meant, rather one where
    /// an answer begins.
    pub(super) fn heard_with(&self, words: &str) -> Vec<(ItemId, Micros)> {
        let from = self
            .items
            .iter()
            .rposition(Item::is_users)
            .map_or(0, |at| at + 1);
        let answers: Vec<(ItemId, &Speech)> = self.items[from..]
            .iter()
            .filter_map(|item| match &item.content {
                Content::Spoken(speech) => Some((item.id, speech)),
                Content::Fixed(_) => None,
            })
            .collect();
        let said: Vec<(usize, Micros, char)> = (answers.iter().enumerate())
            .flat_map(|(at, (_, speech))| speech.letters().map(move |(to, c)| (at, to, c)))
            .collect();
        let words: Vec<char> = letters(words).map(|(_, c)| c).collect();
        let fits = |at: &usize| {
            let place = &said[*at..*at + words.len()];
            place.iter().map(|(_, _, c)| c).eq(&words)
        };
        let begins = |at: &usize| *at == 0 || said[at - 1].0 != said[*at].0;
        if words.is_empty() || words.len() > said.len() {
            return Vec::new();
        }
        let places: Vec<usize> = (0..=said.len() - words.len()).filter(fits).collect();
        let place = places.iter().rfind(|at| begins(at)).or(places.last());
        let Some((answer, heard, _)) = place.map(|at| said[at + words.len() - 1]) else {
            return Vec::new();
        };
        let behind = answers[answer + 1..].iter().map(|(id, _)| (*id, Micros(0)));
        [(answers[answer].0, heard)]
            .into_iter()
            .chain(behind)
            .collect()
    }

    /// How long the audio of an answer is, as far as it has been made.
    pub(super) fn length(&self, id: ItemId) -> Micros {
        let speech = self.items.iter().find_map(|item| match &item.content {
            Content::Spoken(speech) if item.id == id => Some(speech.length()),
            _ => None,
        });
        speech.unwrap_or_default()
    }

    /// The words of an answer that were not heard.
    pub(super) fn unheard_text(&self, id: ItemId) -> String {
        let all = self.items.iter().find_map(|item| match &item.content {
            Content::Spoken(speech) if item.id == id => Some(speech.all_text()),
            _ => None,
        });
        let all = all.unwrap_or_default();
        all.get(self.spoken_text(id).len()..)
            .unwrap_or_default()
            .trim()
            .to_owned()
    }

    /// The words of an answer, as far as they were heard.
    pub(super) fn spoken_text(&self, id: ItemId) -> String {
        self.items
            .iter()
            .find_map(|item| match &item.content {
                Content::Spoken(speech) if item.id == id => Some(speech.text()),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// Removes an item; `false` if there is none.
    pub(super) fn delete(&mut self, id: ItemId) -> bool {
        let before = self.items.len();
        self.items.retain(|item| item.id != id);
        self.items.len() < before
    }

    /// The prompt's messages. Answers of which nothing was heard are left out, and so are messages of
    /// the user without words.
    pub(super) fn messages(&self) -> Vec<Message> {
        self.messages_from(0)
    }

    /// The messages of the items from the `first` on.
    pub(super) fn messages_from(&self, first: usize) -> Vec<Message> {
        let items = self.items.iter().skip(first);
        items.flat_map(Item::messages).collect()
    }

    /// The client wants no answer to the user's message that nothing has followed. The words of
    /// those that are `unheard` are still to come.
    pub(super) fn give_up_question(&mut self, unheard: &BTreeSet<ItemId>) {
        let says = |item: &Item| item.message().is_some() || unheard.contains(&item.id);
        let last = self.items.iter_mut().rfind(|item| says(item));
        if let Some(item) = last.filter(|item| item.is_users()) {
            item.given_up = true;
        }
    }

    /// The client has stopped the answer `id` before its first word: the user's message right before
    /// it is not answered with the next one.
    pub(super) fn give_up_question_before(&mut self, id: ItemId) {
        let at = self.items.iter().position(|item| item.id == id);
        let before = &mut self.items[..at.unwrap_or(0)];
        let last = before.iter_mut().rfind(|item| item.message().is_some());
        if let Some(item) = last.filter(|item| item.is_users()) {
            item.given_up = true;
        }
    }

    /// The user's last message is to be answered after all.
    pub(super) fn take_up_question(&mut self) {
        if let Some(item) = self.items.iter_mut().rfind(|item| item.is_users()) {
            item.given_up = false;
        }
    }

    /// Whether the model is never shown an answer.
    pub(super) fn is_outside(&self, id: ItemId) -> bool {
        let found = self.items.iter().find(|item| item.id == id);
        found.is_some_and(|item| matches!(&item.content, Content::Spoken(s) if s.outside))
    }

    /// The message of one item.
    pub(super) fn message(&self, id: ItemId) -> Option<Message> {
        self.items.iter().find(|item| item.id == id)?.message()
    }

    /// The user's message that nothing has followed.
    pub(super) fn question(&self) -> Option<String> {
        match self.items.iter().rev().find_map(Item::message) {
            Some(Message::User { text }) => Some(text),
            _ => None,
        }
    }

    /// Whether nothing has come since the agent last spoke.
    pub(super) fn ends_with_the_agent(&self) -> bool {
        let last = self.items.iter().rev().find_map(Item::message);
        matches!(last, None | Some(Message::Agent { .. }))
    }

    fn speech(&mut self, id: ItemId) -> Option<&mut Speech> {
        self.items
            .iter_mut()
            .find_map(|item| match &mut item.content {
                Content::Spoken(speech) if item.id == id => Some(speech),
                _ => None,
            })
    }
}

impl Item {
    fn new(id: ItemId, content: Content) -> Self {
        Self {
            id,
            content,
            given_up: false,
        }
    }

    fn is_users(&self) -> bool {
        matches!(self.content, Content::Fixed(Message::User { .. }))
    }

    /// Its message, and behind one that was given up the answer of which nothing was heard: else the
    /// next message would be answered together with it.
    fn messages(&self) -> impl Iterator<Item = Message> {
        let message = self.message();
        let given_up = (self.given_up && message.is_some()).then(|| Message::Agent {
            text: String::new(),
            interrupted: true,
        });
        message.into_iter().chain(given_up)
    }

    fn message(&self) -> Option<Message> {
        match &self.content {
            Content::Fixed(Message::User { text }) if text.is_empty() => None,
            Content::Fixed(message) => Some(message.clone()),
            Content::Spoken(speech) if speech.outside => None,
            Content::Spoken(speech) => {
                let text = speech.text();
                let interrupted = speech.heard.is_some_and(|heard| heard < speech.length());
                (!text.is_empty()).then_some(Message::Agent { text, interrupted })
            }
        }
    }
}
