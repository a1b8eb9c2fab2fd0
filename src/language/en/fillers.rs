//! English fillers: words that announce work and say nothing else, such as "Let me check that for you."

use crate::language::fillers::Filler;

/// Words with which a filler may begin, and which mean nothing here.
const OPENERS: [&str; 18] = [
    "alright",
    "certainly",
    "course",
    "fine",
    "good",
    "great",
    "hmm",
    "no",
    "of",
    "okay",
    "ok",
    "problem",
    "question",
    "right",
    "sure",
    "thanks",
    "well",
    "yes",
];

/// The first words of a filler, after the openers.
const PROMISES: [&str; 26] = [
    "a moment",
    "all right let",
    "bear with",
    "checking",
    "fetching",
    "finding",
    "getting",
    "give me",
    "hang on",
    "hold on",
    "just a",
    "just checking",
    "let me",
    "let us",
    "let's",
    "looking",
    "one moment",
    "one second",
    "one sec",
    "please hold",
    "please wait",
    "pulling",
    "searching",
    "still looking",
    "still working",
    "working on",
];

/// Verbs of work that follow "I will", "I'll" or "I'm going to".
const WORK: [&str; 14] = [
    "ask", "check", "do", "fetch", "find", "get", "just", "look", "pull", "quickly", "search",
    "see", "take", "work",
];

/// Verbs of work that follow "I'm" or "I am".
const WORKING: [&str; 10] = [
    "asking",
    "checking",
    "fetching",
    "finding",
    "getting",
    "just",
    "looking",
    "pulling",
    "searching",
    "working",
];

/// The most words of a filler.
const MOST_WORDS: usize = 14;

/// Words after which facts come, whatever they began with.
const FACTS: [&str; 7] = ["is", "are", "was", "were", "it's", "that's", "because"];

/// Verbs of facts, behind a comma: "One moment, your flight leaves at noon."
const VERBS: [&str; 27] = [
    "arrives", "begins", "closes", "comes", "costs", "departs", "ends", "goes", "has", "have",
    "he's", "lands", "leaves", "left", "means", "needs", "opens", "runs", "says", "she's", "shows",
    "starts", "takes", "there's", "they're", "works", "you're",
];

/// Words that begin more of the announcement there.
const MORE: [&str; 9] = [
    "as", "checking", "i'll", "i'm", "just", "let", "let's", "please", "while",
];

/// Whether what stands behind a comma has a verb of fact.
fn states(part: &str) -> bool {
    let words = words(part);
    let is_more = words.first().is_some_and(|first| MORE.contains(first));
    !is_more && words.iter().any(|word| VERBS.contains(word))
}

/// The words of a text in lower case.
fn words(text: &str) -> Vec<&str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
        .collect()
}

/// Whether the words say yes or no. "No problem" does not.
fn answers(words: &[&str]) -> bool {
    let is_no = |at: usize| words[at] == "no" && words.get(at + 1) != Some(&"problem");
    words.contains(&"yes") || (0..words.len()).any(is_no)
}

/// Classifies a clause that may be left unsaid when the result is there. If in doubt it is no filler: a part of an
/// answer must never be lost.
pub(super) fn classify(clause: &str) -> Option<Filler> {
    if clause.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let lower = clause.to_lowercase().replace('’', "'");
    let words = words(&lower);
    if words.is_empty() || words.len() > MOST_WORDS {
        return None;
    }
    let opening = words
        .iter()
        .take_while(|word| OPENERS.contains(word))
        .count();
    let rest = &words[opening..];
    let Some(first) = rest.first() else {
        return (words.len() <= 3 && !answers(&words)).then_some(Filler::Acknowledges);
    };
    if rest.iter().any(|word| FACTS.contains(word)) || lower.split(',').skip(1).any(states) {
        return None;
    }
    // The way somewhere: "Getting there takes an hour."
    if *first == "getting" && rest.get(1).is_some_and(|to| ["there", "to"].contains(to)) {
        return None;
    }
    let text = rest.join(" ");
    let begins = |promise: &&str| {
        text.strip_prefix(*promise)
            .is_some_and(|behind| behind.is_empty() || behind.starts_with(' '))
    };
    let follows = |verbs: &[&str], at: usize| rest.get(at).is_some_and(|word| verbs.contains(word));
    let announces = PROMISES.iter().any(begins)
        || *first == "i'll" && follows(&WORK, 1)
        || text.starts_with("i will") && follows(&WORK, 2)
        || text.starts_with("i'm going to") && follows(&WORK, 3)
        || *first == "i'm" && follows(&WORKING, 1)
        || text.starts_with("i am") && follows(&WORKING, 2);
    announces.then_some(Filler::Announces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_of_work_are_fillers() {
        for filler in [
            "Let me check that.",
            "Sure, let me look that up for you.",
            "Checking the forecast for Boulder.",
            "One moment.",
            "Okay, just a second, please.",
            "I’ll check the calendar.",
            "I am looking for flights to Denver.",
            "Good question, let me see.",
            "One moment, please.",
            "One moment, let me see what it costs.",
            "Getting the forecast.",
        ] {
            assert_eq!(classify(filler), Some(Filler::Announces), "{filler}");
        }
        for filler in ["Of course.", "Sure!", "Okay.", "No problem."] {
            assert_eq!(classify(filler), Some(Filler::Acknowledges), "{filler}");
        }
    }

    #[test]
    fn a_yes_or_no_is_an_answer_unless_an_announcement_follows() {
        for answer in [
            "Yes.",
            "No.",
            "Yes, of course.",
            "Yes, no problem.",
            "Okay, no.",
        ] {
            assert_eq!(classify(answer), None, "{answer}");
        }
        for filler in ["Yes, one moment.", "Yes, let me check that."] {
            assert_eq!(classify(filler), Some(Filler::Announces), "{filler}");
        }
    }

    #[test]
    fn a_part_of_an_answer_is_no_filler() {
        for answer in [
            "It is noon in Paris.",
            "Your order was sent yesterday.",
            "I'm sorry, I can't do that.",
            "Yes, you have two meetings today.",
            "Let me see, it's 12 degrees.",
            "Let me tell you, that's a long story.",
            "No.  Your table is not free.",
            "Getting there takes an hour because of the snow.",
            "Getting there takes an hour by train.",
            "One moment, your flight leaves at noon.",
            "Just a second, the table costs extra.",
            "Looking good, the sky is clear.",
            "I will remind you at six.",
            "Paris is lovely, and now the weather there.",
            "",
            "...",
        ] {
            assert_eq!(classify(answer), None, "{answer}");
        }
    }
}
