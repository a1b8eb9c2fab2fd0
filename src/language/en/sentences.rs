//! Words of English that show where sentences end, and where they go on.

use crate::language::sentences::Sentences;

pub(super) const SENTENCES: Sentences = Sentences {
    conjunctions: CONJUNCTIONS,
    always_go_on: ALWAYS_GO_ON,
    may_go_on: MAY_GO_ON,
    leading_on: LEADING_ON,
    ends_a_question: ENDS_A_QUESTION,
    opens_a_question: OPENS_A_QUESTION,
    ordinal_dots: false,
    scales: &["st"],
    beginnings: BEGINNINGS,
};

const CONJUNCTIONS: &[&str] = &[
    "and", "but", "or", "so", "because", "which", "that", "when", "while", "if", "then", "where",
    "who", "since", "until", "with", "for", "from", "to", "in", "on", "at",
];

const ALWAYS_GO_ON: &[&str] = &[
    "mr", "mrs", "ms", "dr", "prof", "st", "mt", "gen", "gov", "sen", "rep", "capt", "lt", "sgt",
    "vs", "e.g", "i.e", "approx", "fig",
];

const MAY_GO_ON: &[&str] = &[
    "a.m", "p.m", "etc", "inc", "ltd", "co", "corp", "jr", "sr", "dept", "est", "no", "vol", "min",
    "max", "ave", "blvd", "rd", "hwy", "pkwy", "apt", "ste", "rm", "ext", "nos", "p", "pp", "sec",
    "ch", "tsp", "tbsp", "oz", "lb", "lbs", "hr", "hrs", "ft", "yd", "yds", "gal", "qt", "ph.d",
    "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec", "mon",
    "tue", "tues", "wed", "thu", "thur", "thurs", "fri", "sat", "sun", "mon.-thu", "mon.-fri",
    "mon.-sat", "mon.-sun", "sat.-sun",
];

/// Words with a capital that begin a sentence and are no names.
const BEGINNINGS: &[&str] = &[
    "Also", "And", "Are", "At", "But", "Can", "Do", "Does", "For", "From", "He", "Here", "How",
    "I", "I'll", "I'm", "I've", "If", "In", "Is", "It", "It's", "Its", "Let", "My", "On", "Our",
    "Please", "Shall", "She", "Should", "So", "That", "That's", "The", "Their", "Then", "There",
    "There's", "These", "They", "They're", "This", "Those", "We", "We'll", "We're", "What", "When",
    "Where", "Which", "Would", "You", "You'll", "You're", "You've", "Your",
];

const LEADING_ON: &[&str] = &[
    "a", "about", "an", "and", "at", "because", "between", "but", "by", "for", "from", "if", "in",
    "into", "is", "like", "my", "of", "or", "so", "than", "that", "the", "their", "then", "to",
    "uh", "um", "until", "what's", "when", "where", "which", "with", "your",
];

const ENDS_A_QUESTION: &[&str] = &[
    "about", "at", "by", "for", "from", "in", "into", "is", "like", "of", "that", "then", "to",
    "with",
];

/// "Who am I …", "What can you …": what is asked for is behind the last word, such as "with".
const OPENS_A_QUESTION: [&[&str]; 3] = [
    &["what", "where", "which", "who", "whom"],
    &[
        "am", "are", "can", "could", "did", "do", "does", "is", "should", "was", "were", "will",
        "would",
    ],
    &["he", "i", "she", "that", "they", "this", "we", "you"],
];
