//! Listening words: what people say to show that they follow, without taking the turn.

use super::text::normalise;

/// The words and phrases, as [`normalise`] writes them.
const LISTENING: &[&str] = &[
    "a ha",
    "ah",
    "ah ha",
    "aha",
    "all right",
    "alright",
    "aw",
    "cool",
    "exactly",
    "fine",
    "go on",
    "got it",
    "gotcha",
    "great",
    "h",
    "hm",
    "hmm",
    "huh",
    "i know",
    "i see",
    "indeed",
    "m",
    "m hm",
    "m hmm",
    "makes sense",
    "mhm",
    "mhmm",
    "mm",
    "mm hm",
    "mm hmm",
    "mmhm",
    "mmhmm",
    "mmm",
    "nice",
    "of course",
    "oh",
    "ok",
    "okay",
    "ooh",
    "perfect",
    "really",
    "right",
    "sure",
    "that makes sense",
    "that is right",
    "true",
    "uh",
    "uh huh",
    "uhhuh",
    "uh hum",
    "um",
    "um hm",
    "very good",
    "wow",
    // "Right", as a recogniser may spell it.
    "write",
    "ya",
    "yeah",
    "yep",
    "yes",
    "yup",
];

/// The longest phrase, words.
const LONGEST: usize = 3;

/// Words with which people take the turn, and which no recogniser makes of a hum.
const OPENERS: &[&str] = &[
    "actually", "but", "can", "cancel", "could", "did", "do", "does", "excuse", "forget", "hang",
    "hello", "hey", "hold", "how", "listen", "never", "no", "not", "please", "sorry", "stop",
    "tell", "wait", "what", "when", "where", "which", "who", "why", "will", "would", "wrong",
];

/// Whether `text` has listening words, and no others.
pub(crate) fn only_listens(text: &str) -> bool {
    let words = words(text);
    !words.is_empty() && behind_listening(&words).is_empty()
}

/// Whether `text`, after any listening words, begins with a word that takes the turn.
pub(crate) fn takes_turn(text: &str) -> bool {
    let words = words(text);
    let first = behind_listening(&words).first();
    first.is_some_and(|first| OPENERS.contains(&first.as_str()))
}

fn words(text: &str) -> Vec<String> {
    let said = normalise(text);
    let is_letter = |c: char| c.is_alphanumeric() || c == '\'';
    let words = said
        .split(|c| !is_letter(c))
        .filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// The words after the listening words at the beginning.
fn behind_listening(words: &[String]) -> &[String] {
    let mut rest = words;
    loop {
        let lengths = (1..=LONGEST.min(rest.len())).rev();
        let phrase = lengths
            .map(|length| rest.split_at(length))
            .find(|(phrase, _)| LISTENING.contains(&phrase.join(" ").as_str()));
        match phrase {
            Some((_, others)) => rest = others,
            None => return rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_only_show_that_somebody_follows() {
        for text in [
            "Mm-hm.",
            "Mm-hmm.",
            "Uh-huh",
            "Uh huh.",
            "Yeah.",
            "Yeah, yeah, yeah.",
            "Okay.",
            "OK",
            "O.K.",
            "Oh, okay, I see.",
            "Right.",
            "That's right.",
            "All right.",
            "Hmm...",
            "Aha!",
            "Got it.",
            "Yes.",
            "Really?",
        ] {
            assert!(only_listens(text), "{text}: {}", normalise(text));
        }
    }

    #[test]
    fn words_that_want_the_turn() {
        for text in [
            "",
            "...",
            "Stop.",
            "No.",
            "Wait.",
            "What?",
            "Sorry?",
            "Okay, stop.",
            "Okay, but what about Monday?",
            "Yeah, but no.",
            "Right, and tomorrow?",
            "I see a problem.",
            "Go on to the next one.",
            "Not okay.",
            "Sure thing, what time?",
            "Thank you.",
        ] {
            assert!(!only_listens(text), "{text}: {}", normalise(text));
        }
    }

    #[test]
    fn words_with_which_people_take_the_turn() {
        for text in [
            "Stop",
            "What about",
            "Okay, but",
            "Yeah, no.",
            "Don't",
            "Excuse",
        ] {
            assert!(takes_turn(text), "{text}: {}", normalise(text));
        }
        for text in [
            "",
            "Yeah.",
            "And the meeting.",
            "I'm out of here.",
            "You have",
        ] {
            assert!(!takes_turn(text), "{text}: {}", normalise(text));
        }
    }
}
