//! Finds words and calls in the text of one round, as it is written.

use crate::chat::{CALL, name_in, read_call};
use serde_json::{Map, Value};

/// The text of one round, up to its first call.
#[derive(Debug, Default)]
pub struct Round {
    bytes: Vec<u8>,
    /// Bytes of words that were handed out.
    told: usize,
    may_call: bool,
    /// Where the call begins, behind its mark.
    call: Option<usize>,
    is_named: bool,
}

/// The unit that a piece of text has completed.
#[derive(Debug, PartialEq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// The name of a call.
    Name(String),
    /// A call.
    Call(String, Map<String, Value>),
    /// A call that cannot be read.
    Broken,
}

impl Round {
    /// A round in which a call may come.
    pub fn new(may_call: bool) -> Self {
        Self {
            may_call,
            ..Self::default()
        }
    }

    /// Adds a piece of text. Returns new words, and what is complete.
    pub fn push(&mut self, piece: &[u8]) -> (String, Found) {
        self.bytes.extend_from_slice(piece);
        let text = valid(&self.bytes);
        if self.call.is_none() && self.may_call {
            self.call = text.find(CALL.0).map(|at| at + CALL.0.len());
        }
        let Some(begins) = self.call else {
            let until = match self.may_call {
                true => text.len() - held_back(text),
                false => text.len(),
            };
            return (self.words(until), Found::Nothing);
        };
        let call = &text[begins..];
        let found = match call.find(CALL.1) {
            Some(end) => read_call(&call[..end]).map_or(Found::Broken, |(name, arguments)| {
                Found::Call(name, arguments)
            }),
            None => match name_in(call).filter(|_| !self.is_named) {
                Some(name) => Found::Name(name.to_owned()),
                None => Found::Nothing,
            },
        };
        self.is_named |= found != Found::Nothing;
        (self.words(begins - CALL.0.len()), found)
    }

    /// The words that were held back: the answer has ended.
    pub fn finish(&mut self) -> String {
        let until = match self.call {
            Some(_) => self.told,
            None => valid(&self.bytes).len(),
        };
        self.words(until)
    }

    /// The words before the call.
    pub fn words_before(&self) -> &str {
        let text = valid(&self.bytes);
        let end = self.call.map_or(text.len(), |at| at - CALL.0.len());
        &text[..end]
    }

    /// The rest of `call`, if the text so far is its beginning.
    pub fn rest_of<'a>(&self, call: &'a str) -> Option<&'a str> {
        let begins = self.call? - CALL.0.len();
        call.strip_prefix(&valid(&self.bytes)[begins..])
    }

    fn words(&mut self, until: usize) -> String {
        let words = String::from_utf8_lossy(&self.bytes[self.told..until.max(self.told)]);
        let words = words.into_owned();
        self.told = self.told.max(until);
        words
    }
}

/// The longest valid UTF-8 prefix.
fn valid(bytes: &[u8]) -> &str {
    let whole = match std::str::from_utf8(bytes) {
        Ok(_) => bytes.len(),
        Err(error) => error.valid_up_to(),
    };
    std::str::from_utf8(&bytes[..whole]).unwrap_or_default()
}

/// The bytes at the end that may begin a call.
fn held_back(text: &str) -> usize {
    let most = CALL.0.len().min(text.len());
    let begins = |n: &usize| text.as_bytes().ends_with(&CALL.0.as_bytes()[..*n]);
    (1..=most).rev().find(begins).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_gives_the_same_words_and_call() {
        let text = "Très bien. <tool_call>{\"name\":\"clock\",\"arguments\":{\"n\":1}}</tool_call>";
        for size in 1..text.len() {
            let mut round = Round::new(true);
            let (mut words, mut found) = (String::new(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                let (new, one) = round.push(piece);
                words.push_str(&new);
                found.push(one);
            }
            assert_eq!(words, "Très bien. ");
            assert_eq!(round.words_before(), words);
            assert!(matches!(found.last().unwrap(), Found::Call(name, _) if name == "clock"));
            let names = found.iter().filter(|one| matches!(one, Found::Name(_)));
            assert!(names.count() <= 1);
        }
    }

    #[test]
    fn words_that_only_look_like_a_call_are_told() {
        let mut round = Round::new(true);
        assert_eq!(round.push(b"1 <tool").0, "1 ");
        assert_eq!(round.push(b" <tool_ca").0, "<tool ");
        assert_eq!(round.finish(), "<tool_ca");
        let mut words = Round::new(false);
        assert_eq!(words.push(b"<tool_call>{}").0, "<tool_call>{}");
        let mut broken = Round::new(true);
        assert_eq!(broken.push(b"<tool_call>what</tool_call>").1, Found::Broken);
        assert_eq!(broken.rest_of("<tool_call>what</tool_call>!"), Some("!"));
    }
}
