//! English listening words.

use crate::language::listening::Listening;

pub(super) static LISTENING: Listening = Listening {
    words: &[
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
        "perfect",
        "really",
        "right",
        "sure",
        "that is right",
        "that makes sense",
        "true",
        "very good",
        // "Right", as a recogniser may spell it.
        "write",
        "ya",
        "yeah",
        "yep",
        "yes",
        "yup",
    ],
    polite: &["please"],
    pardon: &[],
    openers: &[
        "actually", "but", "can", "cancel", "could", "did", "do", "does", "excuse", "forget",
        "hang", "hello", "hey", "hold", "how", "listen", "never", "no", "not", "sorry", "stop",
        "tell", "wait", "what", "when", "where", "which", "who", "why", "will", "would", "wrong",
    ],
};

#[cfg(test)]
mod tests {
    use crate::language::pack;

    fn only_listens(text: &str) -> bool {
        pack(None).only_listens(text)
    }

    fn takes_turn(text: &str) -> bool {
        pack(None).takes_turn(text)
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
            "Please.",
            "Yes, please.",
        ] {
            assert!(only_listens(text), "{text}");
        }
    }

    #[test]
    fn politeness_and_other_marks_add_nothing_to_words() {
        let adds_nothing = |text| pack(None).adds_nothing("Can you say that again,", text);
        assert!(adds_nothing("Can you say that again?"));
        assert!(adds_nothing("Can you say that again, please?"));
        assert!(!adds_nothing("Can you say that again, pleased?"));
        assert!(!adds_nothing("Can you say that against, please?"));
        assert!(!adds_nothing("Can you say that again, please, in French?"));
        assert!(!adds_nothing("Can you say that again #, please?"));
        assert!(!adds_nothing("Can you say that"));
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
            "Please stop.",
        ] {
            assert!(!only_listens(text), "{text}");
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
            assert!(takes_turn(text), "{text}");
        }
        for text in [
            "",
            "Yeah.",
            "And the meeting.",
            "I'm out of here.",
            "You have",
        ] {
            assert!(!takes_turn(text), "{text}");
        }
    }
}
