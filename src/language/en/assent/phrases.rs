//! Words and phrases of agreement, refusal and politeness, in the form that
//! [`super::super::text::normalise`] gives them.

/// Agreement by itself.
pub(super) const YES: &[&str] = &[
    "yes",
    "yeah",
    "yep",
    "yup",
    "yes sir",
    "yes indeed",
    "sure",
    "sure thing",
    "for sure",
    "correct",
    "exactly",
    "absolutely",
    "definitely",
    "certainly",
    "indeed",
    "affirmative",
    "agreed",
    "i agree",
    "mhm",
    "mm hm",
    "mm hmm",
    "uh huh",
    "confirm",
    "confirmed",
    "i confirm",
    "i confirm that",
    "i confirm it",
    "confirm it",
    "confirm that",
    "please do",
    "please do it",
    "please do that",
    "please do so",
    "do it",
    "do that",
    "do so",
    "go ahead",
    "please go ahead",
    "go for it",
    "go ahead with it",
    "go ahead with that",
    "proceed",
    "please proceed",
    "by all means",
    "of course",
    "you bet",
    "that is right",
    "that is correct",
    "that is exactly right",
    "that is fine with me",
    "that is fine by me",
    "that is perfect",
    "that is what i want",
    "that is what i would like",
    "that works",
    "that works for me",
    "works for me",
    "that would work",
    "that would be good",
    "that would be great",
    "that would be fine",
    "that would be nice",
    "that would be lovely",
    "that would be perfect",
    "that would be wonderful",
    "sounds good",
    "sounds good to me",
    "sounds great",
    "sounds fine",
    "sounds perfect",
    "sounds right",
    "that sounds good",
    "that sounds great",
    "that sounds fine",
    "that sounds perfect",
    "that sounds right",
    "looks good",
    "looks good to me",
    "looks right",
    "that looks good",
    "that looks right",
    "fine by me",
    "fine with me",
    "okay with me",
    "okay by me",
    "i would like that",
    "i would like it",
    "i would love that",
    "i would appreciate that",
    "i want that",
    "i want it",
    "let us do it",
    "let us do that",
    "make it so",
];

/// Agreement, unless a [`SHORT`] answer comes with it: "okay, that's it" ends something.
pub(super) const OKAY: &[&str] = &["okay", "ok", "please", "i am sure", "i am certain"];

/// Agreement, unless a [`SHORT`] answer or thanks come with it: "that's fine, thanks" declines an offer.
pub(super) const RATHER_YES: &[&str] = &[
    "fine",
    "right",
    "all right",
    "alright",
    "that is fine",
    "that is okay",
    "that is ok",
    "that is all right",
    "that is alright",
];

/// Possibly sarcastic: a yes only if the question is repeated.
pub(super) const SCORN: &[&str] = &["yeah right"];

/// Short answers that add nothing to a clear yes. Alone they may be half a sentence ("I would…") or decline
/// ("it's okay").
pub(super) const SHORT: &[&str] = &[
    "i do",
    "i would",
    "we do",
    "we would",
    "you can",
    "you may",
    "do",
    "go on",
    "it is",
    "it does",
    "that is it",
    "that is good",
    "that will do",
];

/// Short answers only at the end of a reply, since they may begin something else ("I am good").
pub(super) const SHORT_AT_END: &[&str] = &["i am", "we are"];

/// Politeness, which adds nothing to agreement.
pub(super) const POLITE: &[&str] = &[
    "that is great",
    "very well",
    "very good",
    "oh",
    "ah",
    "um",
    "uh",
    "hm",
    "hmm",
    "mm",
    "well",
    "great",
    "good",
    "perfect",
    "wonderful",
    "excellent",
    "lovely",
    "cool",
    "nice",
    "awesome",
    "super",
    "then",
    "very much",
    "kindly",
    "sir",
    "madam",
    "ma'am",
];

pub(super) const THANKS: &[&str] = &[
    "thanks",
    "thank you",
    "thanks a lot",
    "thank you very much",
    "thank you so much",
    "many thanks",
    "thanks so much",
    "much appreciated",
];

/// Beginnings of a repeated question.
pub(super) const LEADS: &[&str] = &[
    "go ahead and",
    "please go ahead and",
    "i would like to",
    "i would like you to",
    "i would like",
    "i would love to",
    "i want to",
    "i want you to",
    "i want",
    "you can",
    "you may",
    "you should",
    "could you",
    "can you",
    "could you please",
    "can you please",
    "let us",
    "do",
    "i confirm",
];

/// Phrases that count as a no.
pub(super) const NO: &[&str] = &[
    "no",
    "nope",
    "nah",
    "cancel",
    "cancel that",
    "stop",
    "do not",
    "do not do it",
    "do not do that",
    "please do not",
    "never mind",
    "nevermind",
    "forget it",
    "forget that",
    "wrong",
    "that is wrong",
    "not now",
    "no thanks",
    "no thank you",
    "no way",
    "leave it",
    "rather not",
    "i would rather not",
    "better not",
    "absolutely not",
    "definitely not",
    "certainly not",
    "of course not",
    "please",
    "sorry",
    "thanks",
    "thank you",
];

/// Words of refusal. Even if the question contains them, they may not be repeated in a yes, except as the
/// verb of the tool itself: "yes, cancel the booking".
pub(super) const REFUSING: &[&str] = &[
    "no", "not", "nope", "nah", "never", "cannot", "cancel", "stop", "wait", "wrong", "forget",
    "hold", "abort", "leave", "later", "instead", "rather",
];

/// A question with one of these may only be repeated as a whole.
pub(super) const LISTING: &[&str] = &[
    "and", "or", "but", "either", "both", "neither", "nor", "not", "no", "never", "without",
    "except", "only", "unless", "if", "than", "instead", "rather", "cannot", "plus", "minus",
    "half", "quarter", "past",
];

/// Characters, besides letters and digits, of a question that may be repeated in parts. Any other may list or
/// exclude something ("milk + eggs").
pub(super) const PLAIN_SIGNS: &str = " .,?!'’\"-:$€£%";

/// Prepositions, each of which begins a phrase and is repeated with it.
pub(super) const PREPOSITIONS: &[&str] = &[
    "to", "for", "at", "on", "in", "from", "with", "by", "of", "until", "till", "before", "after",
    "under", "over", "into", "about", "between", "near", "as", "per",
];

/// Words that are ignored when replies are compared with the question.
pub(super) const ARTICLES: &[&str] = &["a", "an", "the"];

/// Words without a meaning of their own.
pub(super) const EMPTY: &[&str] = &[
    "i", "me", "my", "you", "your", "we", "us", "our", "it", "its", "is", "are", "be", "am", "do",
    "does", "did", "have", "has", "shall", "should", "can", "could", "will", "would", "may",
    "want", "wants", "like", "let", "that", "this", "these", "those", "so", "please", "really",
    "sure",
];

/// Pronouns that may replace the question's object after its verb.
pub(super) const PRONOUNS: &[&str] = &["it", "them", "that"];
