//! Where sentences end, and which words show that a sentence goes on: the same rules for all languages, over tables
//! of words.

use super::spoken::roman;

/// Marks that end a sentence, whatever follows them.
pub(crate) const SENTENCE_ENDS: [char; 6] = ['。', '！', '？', '।', '۔', '؟'];

/// Marks of a question, in all scripts.
pub(crate) const QUESTION_MARKS: [char; 3] = ['?', '？', '؟'];

/// The words of one language that the rules need, in lower case.
#[derive(Debug)]
pub(crate) struct Sentences {
    /// Words before which a long clause may be cut.
    pub(super) conjunctions: &'static [&'static str],
    /// Abbreviations whose dot never ends a sentence.
    pub(super) always_go_on: &'static [&'static str],
    /// Abbreviations whose dot ends a sentence only if the next character looks like the beginning of one. An en dash in
    /// a text is a hyphen here.
    pub(super) may_go_on: &'static [&'static str],
    /// Words that cannot end a sentence.
    pub(super) leading_on: &'static [&'static str],
    /// Of those, words that can end a question.
    pub(super) ends_a_question: &'static [&'static str],
    /// The first, second and third words of a question that is one even if the recogniser wrote no question mark.
    pub(super) opens_a_question: [&'static [&'static str]; 3],
    /// A dot after a number makes it an ordinal: "1. März".
    pub(super) ordinal_dots: bool,
    /// Abbreviations, such as those of numbers, which go on unless the next word begins a sentence: "5 Mio. Euro".
    /// Initials and ordinals do so as well, and need not be here.
    pub(super) scales: &'static [&'static str],
    /// Words with a capital that begin a sentence, for those.
    pub(super) beginnings: &'static [&'static str],
}

/// Whether a sentence ends at the end of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Yes.
    Sentence,
    /// It ends with an abbreviation that may also end a sentence; the next character decides.
    Perhaps,
    /// No.
    None,
}

impl Sentences {
    /// Classifies the end of `text`, which is followed by a space.
    pub(crate) fn ending(&self, text: &str) -> Ending {
        let text = unclosed(text);
        if text.ends_with(['!', '?', '…']) {
            return Ending::Sentence;
        }
        let Some(text) = text.strip_suffix('.') else {
            return Ending::None;
        };
        let last = text
            .rsplit([' ', '—', '(', '"', '“'])
            .next()
            .unwrap_or(text);
        let word = last.to_lowercase().replace('–', "-");
        let spaced = with_letters(text);
        let is_of =
            |table: &[&str]| table.contains(&word.as_str()) || table.contains(&spaced.as_str());
        let number_alone = last.len() == text.trim_start().len() && is_item_number(last);
        if last.ends_with('.') {
            return Ending::Sentence;
        }
        let ordinal = self.ordinal_dots && is_ordinal(last);
        if is_of(self.always_go_on) || number_alone || ordinal || is_initials(last) {
            return Ending::None;
        }
        let date = self.ordinal_dots && is_date(last);
        if is_of(self.may_go_on) || is_rate(&word) || date || word.ends_with("str") {
            return Ending::Perhaps;
        }
        Ending::Sentence
    }

    /// The end of the sentence before the last word of `text`, of which the first letters are known, if it ends with an
    /// abbreviation that may also end one: "4 p.m. They".
    pub(crate) fn end_before(&self, text: &str) -> Option<usize> {
        let (before, word) = text.trim_end().rsplit_once(' ')?;
        let mut letters = word.chars();
        let first = letters.next()?;
        let goes_on = first.is_lowercase() || first.is_ascii_digit() || ",;:)-".contains(first);
        let second = letters.next().or(text.ends_with(' ').then_some(' '));
        // A second capital goes on, as in a time zone: "7 p.m. EST".
        let is_open = first.is_uppercase() && second.is_none_or(char::is_uppercase);
        (!goes_on && !is_open && self.ending(before) == Ending::Perhaps).then_some(before.len())
    }

    /// The end of the sentence before the last word of `text`, if only this word shows that it ended: "5 Mio. Das",
    /// "Vitamin C. It".
    pub(crate) fn end_before_last(&self, text: &str) -> Option<usize> {
        let (before, word) = text.rsplit_once(' ')?;
        let text = before.strip_suffix('.')?;
        let (_, last) = text.rsplit_once(' ')?;
        let (word_before, spaced) = (last.to_lowercase(), with_letters(text));
        let is_fixed = spaced.contains('.') && self.always_go_on.contains(&spaced.as_str());
        let may_end = self.scales.contains(&word_before.as_str())
            || self.scales.contains(&spaced.as_str())
            || self.ordinal_dots && is_ordinal(last)
            || is_initials(last) && !is_fixed;
        let ends = may_end && self.beginnings.contains(&word);
        ends.then_some(before.len())
    }

    /// Whether a long clause may be cut before this word.
    pub(crate) fn is_conjunction(&self, word: &str) -> bool {
        self.conjunctions.contains(&word)
    }

    /// Whether a transcript ends with a word that cannot end a sentence, such as "set a timer for".
    pub(crate) fn reads_unfinished(&self, text: &str) -> bool {
        let text = text.trim_end();
        if text.ends_with("...")
            || text.ends_with('…')
            || text.ends_with(',')
            || text.ends_with('-')
        {
            return true;
        }
        let last = bare(text.rsplit(char::is_whitespace).next().unwrap_or_default());
        let ends_a_question = || self.ends_a_question.contains(&last.as_str());
        self.leading_on.contains(&last.as_str())
            && !(ends_a_question() && (text.ends_with('?') || self.is_question(text)))
    }

    /// Whether a sentence opens like a question after what its last word is about: "What can you help me with".
    pub(crate) fn is_question(&self, text: &str) -> bool {
        let mut words = text.split_whitespace().map(bare);
        let fits = |known: &&[&str]| {
            words
                .next()
                .is_some_and(|word| known.contains(&word.as_str()))
        };
        self.opens_a_question.iter().all(fits)
    }
}

/// A word in lower case, without punctuation around it.
fn bare(word: &str) -> String {
    word.trim_matches(|c: char| !c.is_alphanumeric())
        .to_lowercase()
}

/// The last word in lower case with the letters of an abbreviation before it that is written with spaces: "i.d.r" of "in
/// i. d. R".
fn with_letters(text: &str) -> String {
    let mut words = text.rsplit(' ');
    let last = words.next().unwrap_or_default().to_owned();
    let letters = words.map_while(|word| {
        let letter = word
            .strip_suffix('.')?
            .trim_start_matches(['(', '"', '“', '„']);
        (letter.chars().count() == 1).then_some(letter)
    });
    let joined = letters.fold(last, |joined, letter| format!("{letter}.{joined}"));
    joined.to_lowercase()
}

/// Whether a word in lower case ends with the short unit of a rate: "€/std" of "15 €/Std. netto".
fn is_rate(word: &str) -> bool {
    const UNITS: [&str; 12] = [
        "gal", "hr", "lb", "min", "mo", "oz", "pers", "sec", "std", "stk", "wk", "yr",
    ];
    word.rsplit_once('/')
        .is_some_and(|(_, unit)| UNITS.contains(&unit))
}

/// "J" of "J. Smith", "U.S" of "U.S.".
fn is_initials(word: &str) -> bool {
    let capitals = word.chars().all(|c| c.is_uppercase() || c == '.') && word != "I";
    let mut letters = word.split('.');
    capitals && letters.all(|letter| letter.chars().count() == 1)
}

/// "1" of "1. März", "1.–3" of "1.–3. März", "XIV" of "Ludwig XIV. war".
fn is_ordinal(word: &str) -> bool {
    let day = match word.rsplit_once(['-', '–']) {
        Some((first, last)) if first.ends_with('.') => last,
        _ => word,
    };
    is_item_number(day) || word.len() > 1 && roman(word).is_some()
}

/// "24.12" of "Am 24.12. ist".
fn is_date(word: &str) -> bool {
    let mut numbers = word.split(['.', '-', '–']).filter(|part| !part.is_empty());
    let is_number = word.starts_with(|c: char| c.is_ascii_digit());
    is_number && word.contains('.') && numbers.all(is_item_number)
}

/// Whether `word` is the number of a list item: "1" of "1. Milk".
pub(crate) fn is_item_number(word: &str) -> bool {
    !word.is_empty() && word.len() <= 2 && word.bytes().all(|b| b.is_ascii_digit())
}

/// `text` without closing quotes and brackets after a mark.
pub(crate) fn unclosed(text: &str) -> &str {
    text.trim_end_matches(['"', '\'', '”', '’', ')', ']', '»'])
}

#[cfg(test)]
mod tests {
    use crate::language::en::SENTENCES;

    #[test]
    fn the_last_word_shows_whether_a_sentence_is_unfinished() {
        for text in [
            "Set a timer for",
            "I want to go to the",
            "Well, um...",
            "My number is,",
            "What time is it in",
            "What is the weather in",
        ] {
            assert!(SENTENCES.reads_unfinished(text), "{text}");
        }
        for text in [
            "What is it for?",
            "Yes.",
            "",
            "Set a timer for ten minutes.",
            "Stop it",
            "What time is it then?",
            "Who am I speaking with",
            "what can you help me with.",
        ] {
            assert!(!SENTENCES.reads_unfinished(text), "{text}");
        }
    }
}
