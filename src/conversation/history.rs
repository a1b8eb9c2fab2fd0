//! The history of a session. It only grows, except that interrupted answers are cut at the words that were
//! heard, and that clients may delete items.

use super::ids::{CallId, ItemId};
use super::input::Place;
use super::sentence::bare;
use crate::llm::Message;
use crate::time::Micros;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

mod opening;
mod speech;
#[cfg(test)]
mod tests;

use speech::Speech;

/// The history of one session.
#[derive(Debug, Default)]
pub(super) struct History {
    items: Vec<Item>,
    /// The number of items added so far, with those that were deleted.
    added: u64,
    /// An opening that had waited has begun, and no answer since.
    opens: bool,
}

#[derive(Debug)]
struct Item {
    id: ItemId,
    content: Content,
    /// Its place in the order in which items were added.
    number: u64,
    /// The client cancelled the answer to it.
    given_up: bool,
}

#[derive(Debug)]
enum Content {
    Fixed(Message),
    Spoken(Speech),
    /// A step of a plan: the model is told of the plan alone, but clients know the step's item.
    Step,
}

impl History {
    pub(super) fn push(&mut self, id: ItemId, message: Message) {
        self.insert(self.items.len(), id, message);
    }

    /// Inserts an item at the index `at`.
    pub(super) fn insert(&mut self, at: usize, id: ItemId, message: Message) {
        self.insert_content(at, id, Content::Fixed(message));
    }

    fn insert_content(&mut self, at: usize, id: ItemId, content: Content) {
        self.added += 1;
        let item = Item {
            id,
            content,
            number: self.added,
            given_up: false,
        };
        self.items.insert(at, item);
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// The number of items added so far, for [`Self::messages_since`].
    pub(super) fn added(&self) -> u64 {
        self.added
    }

    /// The index of `place`; `None` if the item to follow is not there.
    pub(super) fn index(&self, place: Place) -> Option<usize> {
        match place {
            Place::End => Some(self.items.len()),
            Place::Start => Some(0),
            Place::After(id) => Some(self.items.iter().position(|item| item.id == id)? + 1),
        }
    }

    /// Adds words to a message of the user and returns all of its words; `None` if there is no such message.
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

    /// Adds the item of a plan's step.
    pub(super) fn add_step(&mut self, id: ItemId) {
        self.insert_content(self.items.len(), id, Content::Step);
    }

    /// Adds an item of the agent's speech, without words so far.
    pub(super) fn begin_speech(&mut self, id: ItemId, outside: bool) {
        let speech = Speech::new(outside);
        self.insert_content(self.speech_place(), id, Content::Spoken(speech));
    }

    /// Adds a clause to an item and returns its index. Its length is unknown until it has been synthesised.
    pub(super) fn add_clause(&mut self, id: ItemId, text: &str) -> usize {
        self.speech(id).map_or(0, |speech| speech.add(text))
    }

    /// Removes the words of a clause that was not spoken.
    pub(super) fn drop_clause(&mut self, id: ItemId, index: usize) {
        if let Some(speech) = self.speech(id) {
            speech.drop_clause(index);
        }
    }

    /// Notes that a filler was not said, although the model has seen it.
    pub(super) fn leave_unsaid(&mut self, id: ItemId, index: usize) {
        if let Some(speech) = self.speech(id) {
            speech.leave_unsaid(index);
        }
    }

    /// Adds synthesised audio to the clause at `index`, and the ends of its next words if the voice tells them.
    pub(super) fn lengthen_clause(
        &mut self,
        id: ItemId,
        index: usize,
        by: Micros,
        word_ends: &[Micros],
    ) {
        if let Some(speech) = self.speech(id) {
            speech.lengthen(index, by, word_ends);
        }
    }

    /// Adds the result of a call. `false` if there is no such call or it already has a result.
    pub(super) fn add_result(&mut self, id: ItemId, call: CallId, output: Value) -> bool {
        self.insert_result(self.items.len(), id, call, output)
    }

    /// Inserts the result of a call at an index, but always after the call. `false` as in [`Self::add_result`].
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

    /// Cuts an item at what was heard and returns the remaining words; `None` if there is no such item.
    /// `heard` may exceed its length, because audio is sent in whole frames, the last one padded.
    pub(super) fn cut(&mut self, id: ItemId, heard: Micros) -> Option<String> {
        let speech = self.speech(id)?;
        speech.heard = Some(heard.min(speech.length()));
        Some(speech.text())
    }

    /// Finds how much was heard of the last items, given the client's report that `words` were the last words
    /// heard. Returns the item that ends with them, and zero for each item after it. Empty if the agent has
    /// not said these words since the user's last message.
    ///
    /// Only letters and digits are compared. Of several matches the last counts, preferably one at the
    /// beginning of an item.
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
                Content::Fixed(_) | Content::Step => None,
            })
            .collect();
        let said: Vec<(usize, Micros, char)> = (answers.iter().enumerate())
            .flat_map(|(at, (_, speech))| speech.letters().map(move |(to, c)| (at, to, c)))
            .collect();
        let words: Vec<char> = bare(words).chars().collect();
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

    /// The length of an item's audio synthesised so far.
    pub(super) fn length(&self, id: ItemId) -> Micros {
        let speech = self.items.iter().find_map(|item| match &item.content {
            Content::Spoken(speech) if item.id == id => Some(speech.length()),
            _ => None,
        });
        speech.unwrap_or_default()
    }

    /// The items of the agent's speech that came after the user's last message, but for those that are hidden from the
    /// model. An opening that was put before that message is one of them.
    pub(super) fn said_since_the_user(&self) -> Vec<ItemId> {
        let last = self.items.iter().rfind(|item| item.is_users());
        let asked = last.map_or(0, |item| item.number);
        let is_since = |item: &&Item| {
            item.number > asked && matches!(&item.content, Content::Spoken(s) if !s.outside)
        };
        self.items
            .iter()
            .filter(is_since)
            .map(|item| item.id)
            .collect()
    }

    /// The words of an item that were not heard.
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

    /// The words of an item that were heard.
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

    /// The prompt's messages. Items of which nothing was heard are left out, as are messages of the user
    /// without words.
    pub(super) fn messages(&self) -> Vec<Message> {
        self.messages_from(0)
    }

    /// The messages of the items from index `first` on.
    pub(super) fn messages_from(&self, first: usize) -> Vec<Message> {
        let items = self.items.iter().skip(first);
        items.flat_map(Item::messages).collect()
    }

    /// The messages of the items behind the first `added` ones, some of which may be deleted. Items that were inserted
    /// among those are left out.
    pub(super) fn messages_since(&self, added: u64) -> Vec<Message> {
        let last = self.items.iter().rposition(|item| item.number <= added);
        self.messages_from(last.map_or(0, |at| at + 1))
    }

    /// Marks the user's message as not to be answered, if nothing has followed it. Items in `untranscribed`
    /// count, too.
    pub(super) fn give_up_question(&mut self, untranscribed: &BTreeSet<ItemId>) {
        self.answers();
        let says = |item: &Item| item.message().is_some() || untranscribed.contains(&item.id);
        let last = self.items.iter_mut().rfind(|item| says(item));
        if let Some(item) = last.filter(|item| item.is_users()) {
            item.given_up = true;
        }
    }

    /// Marks the user's message right before the item `id` as not to be answered, because the client cut that
    /// item before its first word.
    pub(super) fn give_up_question_before(&mut self, id: ItemId) {
        let at = self.items.iter().position(|item| item.id == id);
        let before = &mut self.items[..at.unwrap_or(0)];
        let last = before.iter_mut().rfind(|item| item.message().is_some());
        if let Some(item) = last.filter(|item| item.is_users()) {
            item.given_up = true;
        }
    }

    /// Marks the user's last message as to be answered after all.
    pub(super) fn take_up_question(&mut self) {
        self.answers();
        if let Some(item) = self.items.iter_mut().rfind(|item| item.is_users()) {
            item.given_up = false;
        }
    }

    /// Whether an item is hidden from the model.
    pub(super) fn is_outside(&self, id: ItemId) -> bool {
        let found = self.items.iter().find(|item| item.id == id);
        found.is_some_and(|item| matches!(&item.content, Content::Spoken(s) if s.outside))
    }

    /// The message of one item.
    pub(super) fn message(&self, id: ItemId) -> Option<Message> {
        self.items.iter().find(|item| item.id == id)?.message()
    }

    /// The user's message, if nothing has followed it.
    pub(super) fn question(&self) -> Option<String> {
        match self.items.iter().rev().find_map(Item::message) {
            Some(Message::User { text }) => Some(text),
            _ => None,
        }
    }

    /// Whether the user has said nothing yet.
    pub(super) fn is_unanswered(&self) -> bool {
        let mut messages = self.items.iter().filter_map(Item::message);
        !messages.any(|message| matches!(message, Message::User { .. }))
    }

    /// Whether the agent has said these words and the user has heard them, as far as known. Only letters and digits are
    /// compared.
    pub(super) fn has_said(&self, words: &str) -> bool {
        let words = bare(words);
        self.items.iter().filter_map(Item::message).any(
            |message| matches!(message, Message::Agent { text, .. } if bare(&text).contains(&words)),
        )
    }

    /// Whether nothing has been added since the agent last spoke.
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
    fn is_users(&self) -> bool {
        matches!(self.content, Content::Fixed(Message::User { .. }))
    }

    /// Its message. After one that is not to be answered comes an empty, interrupted answer: otherwise the
    /// model would answer it together with the next message.
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
            Content::Step => None,
            Content::Fixed(Message::User { text }) if text.is_empty() => None,
            Content::Fixed(message) => Some(message.clone()),
            Content::Spoken(speech) if speech.outside => None,
            Content::Spoken(speech) => {
                let interrupted = speech.heard.is_some_and(|heard| heard < speech.length());
                let unsaid = if interrupted { &[][..] } else { &speech.unsaid };
                let text = [&[speech.text()][..], unsaid]
                    .concat()
                    .join(" ")
                    .trim()
                    .to_owned();
                (!text.is_empty()).then_some(Message::Agent { text, interrupted })
            }
        }
    }
}
