//! Cuts streamed text into clauses that can be spoken one by one.
//!
//! Works character by character, so the clauses do not depend on how the text was split into tokens.
//! Markdown, emoji and invisible characters are dropped on the way.

mod cleaner;

use crate::language::sentences::{Ending, SENTENCE_ENDS, is_item_number, unclosed};
use crate::language::{Pack, pack};
use cleaner::{BREAK, Cleaner, LINE};

/// The fewest words after which a comma, semicolon, colon or dash may end the first clause: few, because the first
/// audio waits for them.
const FIRST_CLAUSE_WORDS: usize = 3;
/// The fewest words after which such a mark may end a later clause. Longer clauses sound better, and nobody waits for
/// them.
const LATER_CLAUSE_WORDS: usize = 6;
/// The most words in a clause: before its first audio, the voice's encoder takes 0.5 ms per 12 ms of speech.
const MOST_WORDS: usize = 12;
/// The fewest words before a conjunction at which a long clause is cut.
const WORDS_BEFORE_CONJUNCTION: usize = 4;
/// The most bytes of a clause. Text without spaces is cut anywhere.
const MOST_BYTES: usize = 400;

/// Cuts a response into clauses as it streams in. Use one per response, or call [`Clauses::finish`] in
/// between.
#[derive(Debug, Clone)]
pub struct Clauses {
    pub(super) language: &'static Pack,
    cleaner: Cleaner,
    /// Clean text that belongs to no clause yet.
    pending: String,
    /// The position in `pending` at which the last line begins, bytes.
    line: Option<usize>,
    /// A clause of this response was returned.
    started: bool,
}

impl Default for Clauses {
    fn default() -> Self {
        Self::new(pack(None))
    }
}

impl Clauses {
    /// A cutter at the start of a response in this language.
    #[must_use]
    pub fn new(language: &'static Pack) -> Self {
        Self {
            language,
            cleaner: Cleaner::default(),
            pending: String::new(),
            line: None,
            started: false,
        }
    }

    /// All clauses of a whole response in this language.
    #[must_use]
    pub fn of(language: &'static Pack, text: &str) -> Vec<String> {
        let mut cutter = Self::new(language);
        let mut clauses = cutter.push(text);
        clauses.extend(cutter.finish());
        clauses
    }

    /// A cutter of the same language at the start of a response.
    pub(super) fn afresh(&self) -> Self {
        Self::new(self.language)
    }

    /// Takes the next piece of text and returns the clauses that are complete. Each has 1 to 12 words, no
    /// surrounding space and single spaces inside. Punctuation counts only when a space follows, so the last
    /// clause waits for more text or for [`Clauses::finish`].
    pub fn push(&mut self, text: &str) -> Vec<String> {
        let mut clauses = Vec::new();
        for c in text.chars() {
            self.cleaner.push(c);
            while let Some(c) = self.cleaner.clean.pop_front() {
                clauses.extend(self.feed(c));
            }
        }
        clauses
    }

    /// Ends the response and returns the rest, unless it is only punctuation. Ready for the next response.
    pub fn finish(&mut self) -> Option<String> {
        let next = self.afresh();
        let last = std::mem::replace(self, next).pending;
        has_word(&last).then(|| last.trim().to_owned())
    }

    fn feed(&mut self, c: char) -> Option<String> {
        if c == BREAK {
            return self.cut(self.pending.len());
        }
        let at = self.pending.len();
        if c == LINE {
            self.line = Some(at);
            return None;
        }
        if c == ' ' && (at == 0 || self.pending.ends_with(' ')) {
            return None;
        }
        self.pending.push(c);
        let end = self
            .item_start(at, c)
            .or_else(|| self.sentence_end(at, c))
            .or_else(|| self.sentence_before(at, c))
            .or_else(|| self.clause_end(at, c))
            .or_else(|| self.too_long(at));
        end.and_then(|end| self.cut(end))
    }

    /// Takes the first `end` bytes as a clause, if they contain a word.
    fn cut(&mut self, end: usize) -> Option<String> {
        if !has_word(&self.pending[..end]) {
            return None;
        }
        let rest = self.pending[end..].trim_start().to_owned();
        let clause = std::mem::replace(&mut self.pending, rest);
        self.started = true;
        self.line = None;
        Some(clause[..end].trim().to_owned())
    }

    /// The beginning of the last line, if it turns out to be a numbered item.
    fn item_start(&self, at: usize, c: char) -> Option<usize> {
        let start = self.line?;
        let item = self.pending.get(start..at)?.strip_suffix(['.', ')'])?;
        (c == ' ' && start > 0 && is_item_number(item)).then_some(start)
    }

    /// The end of a sentence, now that the character `c` at `at` is known.
    fn sentence_end(&self, at: usize, c: char) -> Option<usize> {
        let before = &self.pending[..at];
        if before.ends_with(SENTENCE_ENDS) {
            return Some(at);
        }
        let sentences = self.language.sentences;
        if c == ' ' && sentences.ending(before) == Ending::Sentence {
            return Some(at);
        }
        sentences.end_before(&self.pending)
    }

    /// The end of a sentence before the last word, which is complete with the character `c` at `at`.
    fn sentence_before(&self, at: usize, c: char) -> Option<usize> {
        let sentences = self.language.sentences;
        (c == ' ').then(|| sentences.end_before_last(&self.pending[..at]))?
    }

    /// The end of a clause behind a comma, semicolon, colon or dash, if the clause is long enough.
    fn clause_end(&self, at: usize, c: char) -> Option<usize> {
        let before = &self.pending[..at];
        let dash = before.ends_with('—') && c != '—';
        let mark = c == ' ' && unclosed(before).ends_with([',', ';', ':']);
        let enough = if self.started {
            LATER_CLAUSE_WORDS
        } else {
            FIRST_CLAUSE_WORDS
        };
        ((dash || mark) && words(before) >= enough).then_some(at)
    }

    /// The position at which to cut a clause that has become too long.
    fn too_long(&self, at: usize) -> Option<usize> {
        let before = &self.pending[..at];
        if words(&self.pending) > MOST_WORDS {
            return before
                .rfind(' ')
                .map(|space| self.best_space(&before[..space]));
        }
        (self.pending.len() > MOST_BYTES).then(|| before.rfind(' ').unwrap_or(at))
    }

    /// The best space at which to cut a long text: after its last comma, else before its last conjunction, else at its
    /// end.
    fn best_space(&self, text: &str) -> usize {
        let text = text.trim_end();
        let mut best = None;
        for (at, _) in text.match_indices(' ') {
            let (before, after) = (&text[..at], &text[at + 1..]);
            let next = after.split(' ').next().unwrap_or(after);
            let comma = unclosed(before).ends_with([',', ';', ':']);
            let conjunction = self.language.sentences.is_conjunction(next)
                && words(before) >= WORDS_BEFORE_CONJUNCTION;
            if has_word(before) && (comma || conjunction) {
                best = best.max(Some((comma, at)));
            }
        }
        best.map_or(text.len(), |(_, at)| at)
    }
}

fn words(text: &str) -> usize {
    text.split(' ').filter(|word| has_word(word)).count()
}

fn has_word(text: &str) -> bool {
    text.contains(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    mod ends;

    use super::cleaner::is_unspoken;
    use super::*;
    use proptest::prelude::*;

    fn cut(pieces: &[&str]) -> Vec<String> {
        let mut cutter = Clauses::default();
        let mut clauses: Vec<String> = pieces.iter().flat_map(|p| cutter.push(p)).collect();
        clauses.extend(cutter.finish());
        clauses
    }

    #[track_caller]
    fn check(text: &str, clauses: &[&str]) {
        assert_eq!(cut(&[text]), clauses);
    }

    #[test]
    fn sentences() {
        check(
            "Sure. It is five! Is it? Yes…",
            &["Sure.", "It is five!", "Is it?", "Yes…"],
        );
        check(
            "He said \"Stop.\" Then he left.",
            &["He said \"Stop.\"", "Then he left."],
        );
        check("Hmm... let me see.", &["Hmm...", "let me see."]);
    }

    #[test]
    fn a_dot_is_not_always_an_end() {
        check("Dr. Smith is here.", &["Dr. Smith is here."]);
        check("Use e.g. 3.14 or so.", &["Use e.g. 3.14 or so."]);
        check(
            "At 3 p.m. we go. At 4 p.m. They stay.",
            &["At 3 p.m. we go.", "At 4 p.m.", "They stay."],
        );
        check(
            "The U.S. Senate met J. Smith.",
            &["The U.S. Senate met J. Smith."],
        );
        check(
            "It is 3.5 now. See example.com today.",
            &["It is 3.5 now.", "See example.com today."],
        );
        check("It was I. Go.", &["It was I.", "Go."]);
        check("No. I cannot.", &["No.", "I cannot."]);
        check("It is No. 5 here.", &["It is No. 5 here."]);
        check("It is Dec. 25 today.", &["It is Dec. 25 today."]);
        check("It was Dec. She left.", &["It was Dec.", "She left."]);
        check("Open Mon.–Fri. 9–5.", &["Open Mon.–Fri. 9–5."]);
    }

    #[test]
    fn in_german_a_dot_behind_a_number_ends_no_sentence() {
        let clauses = ["Heute ist der 1. März.", "Das sind z.B. drei Tage."];
        check_in("de", &(clauses.join(" ") + " "), &clauses);
    }

    #[track_caller]
    fn check_in(language: &str, text: &str, clauses: &[&str]) {
        assert_eq!(Clauses::of(pack(Some(language)), text), clauses);
    }

    /// "3,5 Mio." ended a sentence, as the noun behind it has a capital, and so did "z." and "p." of abbreviations that
    /// are written with a space.
    #[test]
    fn the_dot_of_an_abbreviation_before_a_noun_ends_no_sentence() {
        check_in(
            "de",
            "Das sind 3,5 Mio. Euro. Im Jahr 2 Mrd. Dollar.",
            &["Das sind 3,5 Mio. Euro.", "Im Jahr 2 Mrd. Dollar."],
        );
        check_in(
            "de",
            "Der Umsatz liegt bei 5 Mio. Das ist viel.",
            &["Der Umsatz liegt bei 5 Mio.", "Das ist viel."],
        );
        check_in(
            "de",
            "Das geht z. B. morgen, d. h. bald.",
            &["Das geht z. B. morgen,", "d. h. bald."],
        );
        check_in("de", "Wir haben u. a. Büros.", &["Wir haben u. a. Büros."]);
        check_in("de", "Nur o. ä. Das geht.", &["Nur o. ä.", "Das geht."]);
        check_in(
            "es",
            "A las 3:30 p. m. en EE. UU. hoy. Son las 4 p. m. Adiós.",
            &[
                "A las 3:30 p. m. en EE. UU. hoy.",
                "Son las 4 p. m.",
                "Adiós.",
            ],
        );
    }

    #[test]
    fn the_first_clause_is_shorter() {
        check(
            "Let me see, one moment, while I look that up now, please wait.",
            &[
                "Let me see,",
                "one moment, while I look that up now,",
                "please wait.",
            ],
        );
        check("Sure, one moment.", &["Sure, one moment."]);
        check(
            "It is 3:05 in Tokyo: late.",
            &["It is 3:05 in Tokyo:", "late."],
        );
        check("I would say no—not now.", &["I would say no—", "not now."]);
    }

    #[test]
    fn nothing_is_longer_than_twelve_words() {
        check(
            "I have looked at all of the forecasts for the region and they say that it rains tomorrow",
            &[
                "I have looked at all of the forecasts for the region",
                "and they say that it rains tomorrow",
            ],
        );
        for clause in cut(&["word ".repeat(100).as_str(), &"x".repeat(3000)]) {
            assert!(
                words(&clause) <= MOST_WORDS && clause.len() <= MOST_BYTES,
                "{clause}"
            );
        }
    }

    #[test]
    fn markup_is_not_spoken() {
        check("**Hello** `there` _you_ 🎉 all.", &["Hello there you all."]);
        check(
            "# Title\n- one\n- two\n\nThe end",
            &["Title", "one", "two", "The end"],
        );
        check("1. Milk\n2. Eggs", &["1. Milk", "2. Eggs"]);
        check(
            "5 * 3 is snake_case in C# at -5, ~9.",
            &["5 * 3 is snake_case in C# at -5,", "~9."],
        );
        check("a\u{200b}b\u{202e}c\u{e0041}\u{7}d", &["abcd"]);
    }

    /// The sign between two digits was taken for Markdown: "53 = 15".
    #[test]
    fn a_product_without_spaces_keeps_its_sign() {
        check("5*3 = 15.", &["5*3 = 15."]);
        check("(2+3)*4 is 4*(3+2).", &["(2+3)*4 is 4*(3+2)."]);
        check("*5* of **3** and 5* hotels", &["5 of 3 and 5 hotels"]);
    }

    #[test]
    fn a_clause_is_handed_out_as_soon_as_it_is_certain() {
        let mut cutter = Clauses::default();
        assert!(cutter.push("It is 3.").is_empty());
        assert!(cutter.push("14").is_empty());
        assert!(cutter.push(" now.").is_empty());
        assert_eq!(cutter.push(" "), ["It is 3.14 now."]);
        assert_eq!(cutter.finish(), None);
    }

    #[test]
    fn marks_alone_are_never_a_clause() {
        check("... !? — \n\n ** 🎉", &[]);
        check("Yes. ... No.", &["Yes.", "... No."]);
        check("", &[]);
    }

    #[test]
    fn a_thirteenth_word_behind_a_mark_is_counted() {
        check(
            "a b c d e f g h i j k l ,m",
            &["a b c d e f g h i j k l", ",m"],
        );
    }

    fn text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            "[a-zA-Z]{1,9}",
            "[0-9.,:$%]{1,6}",
            Just("Dr.".to_owned()),
            Just("p.m.".to_owned()),
            Just("U.S.".to_owned()),
            Just("—".to_owned()),
            "[.,;:!?…]{1,3}",
            "[*#_`~>+-]{1,3}",
            "[ \n]{1,3}",
            "\\PC{0,4}",
            Just("\u{200b}🎉\u{e0041}".to_owned()),
        ];
        prop::collection::vec((piece, prop_oneof![Just(""), Just(" "), Just(" ")]), 0..60)
            .prop_map(|pieces| pieces.into_iter().map(|(p, s)| p + s).collect())
    }

    /// The characters that the clauses must contain, in order: visible ones that are not markup.
    fn visible(text: &str) -> String {
        let spoken = |c: &char| !c.is_whitespace() && !is_unspoken(*c) && !"*#_~`>-+•".contains(*c);
        text.chars().filter(spoken).collect()
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(text in text(), cuts in prop::collection::vec(0..400_usize, 0..20)) {
            let whole = cut(&[&text]);
            let mut by_char = [0; 4];
            let mut cutter = Clauses::default();
            let mut clauses: Vec<String> = Vec::new();
            for c in text.chars() {
                clauses.extend(cutter.push(c.encode_utf8(&mut by_char)));
            }
            clauses.extend(cutter.finish());
            prop_assert_eq!(&clauses, &whole);

            let mut cuts: Vec<usize> = cuts.into_iter().filter(|&at| text.is_char_boundary(at)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            prop_assert_eq!(&cut(&pieces), &whole);
        }

        #[test]
        fn nothing_is_lost_or_made_up(text in text()) {
            let all = visible(&text);
            let spoken = visible(&cut(&[&text]).concat());
            prop_assert!(all.starts_with(&spoken), "{} / {}", all, spoken);
            prop_assert!(!has_word(&all[spoken.len()..]), "{} / {}", all, spoken);
        }

        #[test]
        fn every_clause_can_be_spoken(text in text()) {
            for clause in cut(&[&text]) {
                prop_assert!(has_word(&clause));
                prop_assert!(words(&clause) <= MOST_WORDS, "{}", clause);
                prop_assert_eq!(clause.trim(), clause.as_str());
                prop_assert!(!clause.contains("  ") && !clause.contains('\n'));
            }
        }
    }
}
