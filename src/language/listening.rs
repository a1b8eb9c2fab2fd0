//! Listening words: what people say to show that they follow, without taking the turn.

/// Sounds that mean the same in all languages, as recognisers write them.
const SOUNDS: &[&str] = &[
    "a ha", "ah", "ah ha", "aha", "h", "hm", "hmm", "huh", "m", "m hm", "m hmm", "mhm", "mhmm",
    "mm", "mm hm", "mm hmm", "mmhm", "mmhmm", "mmm", "oh", "ok", "okay", "ooh", "uh", "uh huh",
    "uhhuh", "uh hum", "um", "um hm", "wow",
];

/// The longest phrase, words.
const LONGEST: usize = 3;

/// The words of one language, normalised as its pack does it.
pub(super) struct Listening {
    /// Words and phrases of a listener, beside [`SOUNDS`].
    pub(super) words: &'static [&'static str],
    /// Politeness, which adds nothing to what was said before.
    pub(super) polite: &'static [&'static str],
    /// Those of both that ask for a repetition if they are a question.
    pub(super) pardon: &'static [&'static str],
    /// Words with which people take the turn, and which no recogniser makes of a hum.
    pub(super) openers: &'static [&'static str],
}

impl Listening {
    /// Whether these words are of a listener, and no others.
    pub(super) fn is_all_of(&self, normalised: &str, is_question: bool) -> bool {
        let words = words(normalised);
        let asks_again = is_question && self.pardon.contains(&words.join(" ").as_str());
        !words.is_empty() && !asks_again && self.after(&words).is_empty()
    }

    /// Whether this is politeness, and nothing else.
    pub(super) fn is_politeness(&self, normalised: &str, is_question: bool) -> bool {
        let phrase = words(normalised).join(" ");
        self.polite.contains(&phrase.as_str()) && self.is_all_of(normalised, is_question)
    }

    /// Whether the first word after those of a listener takes the turn.
    pub(super) fn yields_to(&self, normalised: &str) -> bool {
        let words = words(normalised);
        let first = self.after(&words).first();
        first.is_some_and(|first| self.openers.contains(first))
    }

    /// The words after those of a listener at the beginning.
    fn after<'a>(&self, words: &'a [&'a str]) -> &'a [&'a str] {
        let mut rest = words;
        loop {
            let lengths = (1..=LONGEST.min(rest.len())).rev();
            let phrase = lengths
                .map(|length| rest.split_at(length))
                .find(|(phrase, _)| self.has(&phrase.join(" ")));
            match phrase {
                Some((_, others)) => rest = others,
                None => return rest,
            }
        }
    }

    fn has(&self, phrase: &str) -> bool {
        [SOUNDS, self.words, self.polite]
            .iter()
            .any(|phrases| phrases.contains(&phrase))
    }
}

fn words(normalised: &str) -> Vec<&str> {
    let is_letter = |c: char| c.is_alphanumeric() || c == '\'';
    let words = normalised.split(|c| !is_letter(c));
    words.filter(|word| !word.is_empty()).collect()
}
