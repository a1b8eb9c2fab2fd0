//! Listening words: what people say to show that they follow, without taking the turn.

use super::Pack;

/// The words of one language, as its pack normalises them.
struct Words {
    /// Words and phrases of listeners.
    listening: &'static [&'static str],
    /// Words with which people take the turn, and which no recogniser makes of a hum.
    openers: &'static [&'static str],
}

/// Hums, in any language.
const HUMS: &[&str] = &[
    "ah", "aha", "h", "hm", "hmm", "huh", "m", "m hm", "m hmm", "mhm", "mhmm", "mm", "mm hm",
    "mm hmm", "mmhm", "mmhmm", "mmm", "oh", "ok", "okay", "uh", "uh huh", "uhhuh", "um", "um hm",
    "wow",
];

const ENGLISH: Words = Words {
    listening: &[
        "a ha",
        "ah ha",
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
        "i know",
        "i see",
        "indeed",
        "makes sense",
        "nice",
        "of course",
        "ooh",
        "perfect",
        "really",
        "right",
        "sure",
        "that makes sense",
        "that is right",
        "true",
        "uh hum",
        "very good",
        // "Right", as a recogniser may spell it.
        "write",
        "ya",
        "yeah",
        "yep",
        "yes",
        "yup",
    ],
    openers: &[
        "actually", "but", "can", "cancel", "could", "did", "do", "does", "excuse", "forget",
        "hang", "hello", "hey", "hold", "how", "listen", "never", "no", "not", "please", "sorry",
        "stop", "tell", "wait", "what", "when", "where", "which", "who", "why", "will", "would",
        "wrong",
    ],
};

const GERMAN: Words = Words {
    listening: &[
        "ach",
        "ach ja",
        "ach so",
        "achso",
        "alles klar",
        "das stimmt",
        "echt",
        "eben",
        "genau",
        "gut",
        "ich verstehe",
        "ja",
        "ja klar",
        "jawohl",
        "jo",
        "klar",
        "na klar",
        "naja",
        "prima",
        "richtig",
        "schön",
        "sehr gut",
        "sicher",
        "so",
        "stimmt",
        "super",
        "toll",
        "verstehe",
        "verstanden",
    ],
    openers: &[
        "aber",
        "bitte",
        "doch",
        "einen",
        "entschuldigung",
        "falsch",
        "halt",
        "kannst",
        "kein",
        "keine",
        "können",
        "moment",
        "nein",
        "nicht",
        "sekunde",
        "stopp",
        "stop",
        "tut",
        "wann",
        "warte",
        "warten",
        "warum",
        "was",
        "welche",
        "welcher",
        "welches",
        "wer",
        "wie",
        "wieso",
        "wo",
    ],
};

const SPANISH: Words = Words {
    listening: &[
        "ajá",
        "bien",
        "bueno",
        "claro",
        "claro que sí",
        "de acuerdo",
        "eso es",
        "exacto",
        "genial",
        "muy bien",
        "perfecto",
        "por supuesto",
        "sí",
        "si",
        "vale",
        "ya",
        "ya veo",
        "entiendo",
        "entendido",
    ],
    openers: &[
        "alto", "basta", "cancela", "cómo", "como", "cuándo", "cuando", "cuánto", "cuanto",
        "disculpa", "disculpe", "dónde", "donde", "espera", "espere", "no", "para", "pare", "pero",
        "perdón", "perdona", "perdone", "por", "puede", "puedes", "qué", "que", "quién", "quien",
        "un",
    ],
};

/// The longest phrase, words.
const LONGEST: usize = 3;

/// The words of a language, if they are known.
fn words_of(language: &Pack) -> Option<&'static Words> {
    match language.tag {
        "en" => Some(&ENGLISH),
        "de" => Some(&GERMAN),
        "es" => Some(&SPANISH),
        _ => None,
    }
}

/// Whether `text` has listening words, and no others.
pub(crate) fn only_listens(language: &Pack, text: &str) -> bool {
    let said = split(language, text);
    !said.is_empty() && behind_listening(language, &said).is_empty()
}

/// Whether `text`, behind any listening words, begins with a word that takes the turn.
pub(crate) fn takes_turn(language: &Pack, text: &str) -> bool {
    let said = split(language, text);
    let first = behind_listening(language, &said).first();
    let openers = words_of(language).map_or(&[][..], |words| words.openers);
    first.is_some_and(|first| openers.contains(&first.as_str()))
}

fn split(language: &Pack, text: &str) -> Vec<String> {
    let said = language.normalise(text);
    let is_letter = |c: char| c.is_alphanumeric() || c == '\'';
    let words = said.split(|c| !is_letter(c));
    words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The words behind the listening words at the beginning.
fn behind_listening<'a>(language: &Pack, said: &'a [String]) -> &'a [String] {
    let known = words_of(language).map_or(&[][..], |words| words.listening);
    let is_listening = |phrase: &[String]| {
        let phrase = phrase.join(" ");
        known.contains(&phrase.as_str()) || HUMS.contains(&phrase.as_str())
    };
    let mut rest = said;
    loop {
        let lengths = (1..=LONGEST.min(rest.len())).rev();
        let mut phrases = lengths.map(|length| rest.split_at(length));
        match phrases.find(|(phrase, _)| is_listening(phrase)) {
            Some((_, others)) => rest = others,
            None => return rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::pack;

    fn english() -> &'static Pack {
        pack(None)
    }

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
            assert!(
                only_listens(english(), text),
                "{text}: {}",
                english().normalise(text)
            );
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
            assert!(
                !only_listens(english(), text),
                "{text}: {}",
                english().normalise(text)
            );
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
            assert!(
                takes_turn(english(), text),
                "{text}: {}",
                english().normalise(text)
            );
        }
        for text in [
            "",
            "Yeah.",
            "And the meeting.",
            "I'm out of here.",
            "You have",
        ] {
            assert!(
                !takes_turn(english(), text),
                "{text}: {}",
                english().normalise(text)
            );
        }
    }

    #[test]
    fn hums_are_the_same_in_all_languages() {
        let none = pack(Some("tlh"));
        assert!(only_listens(none, "Mm-hm.") && only_listens(none, "Okay, hmm."));
        assert!(!only_listens(none, "Yes.") && !takes_turn(none, "Stop."));
    }

    #[test]
    fn phrases_are_no_longer_than_is_looked_for() {
        for words in [&ENGLISH, &GERMAN, &SPANISH] {
            let longest = words
                .listening
                .iter()
                .map(|phrase| phrase.split(' ').count());
            assert!(longest.max() <= Some(LONGEST));
        }
    }
}
