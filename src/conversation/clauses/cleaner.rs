//! Drops what must not be spoken: Markdown, emoji and invisible characters.

use std::collections::VecDeque;

/// Ends a clause regardless of punctuation: a paragraph or a list item.
pub(super) const BREAK: char = '\n';
/// The beginning of a line, which may turn out to be a numbered item.
pub(super) const LINE: char = '\r';

/// The most bytes of a link's target that are held back.
const LONGEST_TARGET: usize = 2000;

/// Drops what must not be spoken and turns white space into single spaces.
#[derive(Debug, Clone, Default)]
pub(super) struct Cleaner {
    /// Ready for the cutter.
    pub(super) clean: VecDeque<char>,
    /// A run of one markup character, whose meaning depends on the next character.
    held: String,
    /// The last character that went through, before the held ones.
    last: Option<char>,
    /// Line ends since the last visible character.
    lines: usize,
    /// Text that may be the target of a Markdown link: "(https://exa".
    target: Option<String>,
}

impl Cleaner {
    pub(super) fn push(&mut self, c: char) {
        if is_unspoken(c) {
            return;
        }
        if let Some(mut target) = self.target.take() {
            target.push(c);
            let goes_on = !c.is_whitespace() && target.len() <= LONGEST_TARGET;
            match goes_on && begins_target(&target) {
                true if c == ')' => {}
                true => self.target = Some(target),
                false => target.chars().for_each(|c| self.weigh(c)),
            }
        } else if c == '(' && self.held.is_empty() && self.last == Some(']') {
            self.target = Some(c.to_string());
        } else {
            self.weigh(c);
        }
    }

    /// Holds a markup character; passes any other on.
    fn weigh(&mut self, c: char) {
        if !self.held.is_empty() && !self.held.starts_with(c) {
            self.release(c);
        }
        if "*#_~`>-+•".contains(c) {
            self.held.push(c);
        } else {
            self.pass(c);
        }
    }

    /// Decides about the held characters, now that `next` follows.
    fn release(&mut self, next: char) {
        let held = std::mem::take(&mut self.held);
        let line_start = self.last.is_none() || self.lines > 0;
        if line_start && next.is_whitespace() && !held.starts_with(['`', '_', '~']) {
            // A heading, an item, a quotation.
            self.clean.push_back(BREAK);
        } else if !self.is_markup(&held, next) {
            held.chars().for_each(|c| self.pass(c));
        }
    }

    fn is_markup(&self, held: &str, next: char) -> bool {
        let after_space = self.last.is_none_or(char::is_whitespace);
        let after_number = self.last.is_some_and(|c| c.is_ascii_digit() || c == ')');
        let is_product = after_number && (next.is_ascii_digit() || next == '(');
        match held {
            // "5 * 3", "5*3"
            "*" => !(after_space && next.is_whitespace() || is_product),
            // "snake_case"
            "_" => after_space || !next.is_alphanumeric(),
            "~" | "#" | ">" | "-" | "+" => false,
            _ => !held.starts_with(['>', '-', '+']),
        }
    }

    fn pass(&mut self, c: char) {
        if c == '\n' {
            self.lines += 1;
            if self.lines == 2 {
                self.clean.push_back(BREAK);
            }
        }
        if c.is_whitespace() {
            self.clean.push_back(' ');
            if c == '\n' {
                self.clean.push_back(LINE);
            }
        } else {
            self.lines = 0;
            self.clean.push_back(c);
        }
        self.last = Some(c);
    }
}

/// Whether this is the beginning of a link's target in brackets, which is not read out: "(https://example.com".
fn begins_target(text: &str) -> bool {
    let begins = |scheme: &&str| text.starts_with(*scheme) || scheme.starts_with(text);
    let known = ["(http://", "(https://", "(mailto:", "(tel:"];
    known.iter().any(begins)
}

/// Emoji, and invisible or control characters: bidi marks, zero-width characters, tags, variation selectors.
pub(super) fn is_unspoken(c: char) -> bool {
    let invisible = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffd}'
        | '\u{e0000}'..='\u{e0fff}' | '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}');
    let emoji = matches!(c,
        '\u{20e3}' | '\u{231a}' | '\u{231b}' | '\u{23e9}'..='\u{23ff}' | '\u{2600}'..='\u{27bf}'
        | '\u{2b00}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}');
    invisible || emoji || (c.is_control() && !c.is_whitespace())
}
