//! Whether words ask for something or tell something.

use super::text;
use regex::Regex;
use std::sync::LazyLock;

/// How a clause is meant, by its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mood {
    /// Words without a verb: "weather in Boulder". They may be a request.
    Fragment,
    /// Something is told, or forbidden.
    Statement,
    /// Something is to be done or told.
    Request,
    /// Something is asked.
    Question,
}

/// The clause of an utterance that says how it is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meant {
    /// Its mood.
    pub mood: Mood,
    /// Its words, normalised, without "um" and "okay" at its beginning.
    pub clause: String,
}

type Pattern = LazyLock<Option<Regex>>;

const VERB_AHEAD: &str = r"(?:is|are|am|was|were|do|does|did|has|have|had|can|cannot|could|will|would|should|shall|may|might|must|to|about|else|exactly)\b";

/// Questions that tell something, exclamations, and wishes.
static TOLD: Pattern = LazyLock::new(|| {
    Regex::new(
        r"^(?:guess what|did (?:i|we) (?:tell|mention|say)|have i told|can you believe|could you believe|have you ever|did you know|do you remember|what an? |how (?:nice|lovely|sweet|kind|funny|strange|odd|sad|wonderful|awful)(?: of| that|$)|have (?:an?|fun|some)\b|(?:what|how|why|where|when) (?:i|he|she|they|we|it|my|the|his|her|our) |do not\b|never\b|stop\b|forget\b|skip\b|no need\b|not )",
    )
    .ok()
});

/// "do not you have chairs": a negated question, not a prohibition.
static NEGATED_QUESTION: Pattern =
    LazyLock::new(|| Regex::new(r"^(?:why )?do not (?:i|you|we|they)\b").ok());

static QUESTION: Pattern = LazyLock::new(|| {
    Regex::new(&format!(
        r"^(?:(?:in|at|for|on|with|from|and|so|but|then) (?:[a-z0-9]+ ){{0,3}}?)?(?:(?:what|which|whose|who|whom|how)\b|(?:when|where|why|until when|since when) (?:exactly )?{VERB_AHEAD}|(?:is|are|am|was|were|do|does|did|has|have|had|can|cannot|could|will|would|should|shall|may|might|must) [a-z0-9]|any(?:thing|body|one)? |at what )",
    ))
    .ok()
});

static REQUEST: Pattern = LazyLock::new(|| {
    Regex::new(
        r"^(?:(?:please|just|quickly|kindly|maybe|perhaps|and|so|then|now|could|can) )*(?:(?:i|we) (?:(?:just|really|also|still|only) )*(?:would (?:like|love)|want|need|wanted to (?:know|ask|check|see|hear)|am (?:just )?(?:looking for|wondering|curious|interested|trying to|calling|checking)|was (?:just )?wondering|wonder|wish to|have (?:a|one) question|have to know)\b|it would be (?:nice|great|good|helpful) (?:to|if)\b|you (?:can|could) (?:tell|check|look|show|find|give|say)\b|(?:what|all) i (?:want|need)\b|(?:tell|show|give|check|find|look|get|read|list|search|fetch|track|trace|convert|turn|change|calculate|compute|work out|see|help|compare|count|pull|bring|name|translate|explain|describe|say|open|play|add|measure|estimate|update|remind|locate|report|print|display|repeat|go (?:check|look|and|to)|let (?:me|us) (?:know|see|check|hear|look|find|have))\b)",
    )
    .ok()
});

/// Polite words around a request: "if you do not mind".
static COURTESY: Pattern = LazyLock::new(|| {
    Regex::new(
        r"\b(?:if (?:you|it) (?:do|does|would) not (?:mind|bother you)(?: (?:me|my) asking)?|if (?:you can|you could|you would|it is possible|possible)$)",
    )
    .ok()
});

/// Words that introduce a request or question and are no part of it: "could you check if".
static OPENER: Pattern = LazyLock::new(|| {
    Regex::new(
        r"^(?:(?:please|just|and|so|but|then|also|maybe|quickly|(?:(?:can|could|would|will)(?: not)?|cannot) you (?:please |just |maybe |quickly |possibly |kindly )*(?:tell me|let me know|check|see|look up|look|find out|say|confirm)|do (?:not )?you (?:happen to )?know|do you have any idea|(?:i|we) (?:was|were|am|are) (?:just )?(?:wondering|curious)|(?:i|we) (?:just )?(?:wonder|wondered)|(?:i|we) (?:just )?(?:want|wanted|need|would like|would love) (?:you )?to (?:know|ask|check|see|find out|hear)|(?:may|can|could) i ask|any idea|tell me|let me know|check|see|find out|look up|why do not you|would you mind (?:telling me|checking|looking up)|(?:do not|never) forget to|remember to|(?:make|be) sure to)(?: (?:if|whether))?(?: |$))+",
    )
    .ok()
});

/// Openers that want to be told.
static WANTS_TO_KNOW: Pattern = LazyLock::new(|| {
    Regex::new(
        r"\b(?:if|whether|know|tell|find out|say|confirm|idea|wonder|wondered|wondering|curious|ask|hear)\b",
    )
    .ok()
});

/// Verbs that tell how something is.
static STATE: Pattern =
    LazyLock::new(|| Regex::new(r"\b(?:is|are|was|were|has|have|had|does|do|did)\b").ok());

/// "show me if it is open".
static TELL_ME: Pattern = LazyLock::new(|| {
    Regex::new(
        r"^(?:show|tell|let) me (?:know )?(?:if|whether|who|when|why|where|what|which|how)\b",
    )
    .ok()
});

/// Questions that want something done, unless they go on with [`WHETHER`].
static WANTS_DONE: Pattern = LazyLock::new(|| {
    Regex::new(
        r"^(?:(?:can|cannot|could|will|would|may|might)(?: not)? (?:you|i|we|someone|somebody)\b|are you able to\b|would you mind\b|would not it be\b|do you mind\b|do you think (?:you|we|i)\b|(?:is|would) (?:it|that|this) (?:be )?(?:possible|okay|fine|alright)\b|(?:is there )?(?:any|a) (?:way|chance|possibility) (?:you|of|to|that (?:you|i|we))\b|why do not (?:you|we)\b|(?:how|what) about (?:you |we )?[a-z]+ing\b)",
    )
    .ok()
});

/// Words that make a question of a polite form: "can you tell if it is open".
static WHETHER: Pattern = LazyLock::new(|| {
    Regex::new(
        r"\b(?:know|tell|see|check|say|confirm|verify|find out|remember)(?: me| us)? (?:if|whether|who|when|why|where|what|which|how)\b",
    )
    .ok()
});

/// The beginning of a request behind an opener: "i was wondering if | you could open it".
static YOU_COULD: Pattern = LazyLock::new(|| {
    Regex::new(r"^(?:(?:you|we|i|someone|somebody) (?:can|could|would|will|might|may)|you to)\b")
        .ok()
});

/// "do not forget to check it" asks for it.
static REMINDED: Pattern = LazyLock::new(|| Regex::new(r"^(?:do not|never) forget to ").ok());

/// A question that only asks for assent to what was told: "is not that great".
static QUESTION_TAG: Pattern = LazyLock::new(|| {
    Regex::new(
        r"^(?:is|are|was|were|do|does|did|has|have|had|can|could|would|will|should)(?: not (?:it|that|this|you|he|she|they|we|i|there)(?: [a-z]+)?| (?:it|that|you|he|she|they|we|i))$",
    )
    .ok()
});

/// The words by which a question describes its subject: "that i placed yesterday".
static RELATIVE: Pattern = LazyLock::new(|| {
    Regex::new(
        r" (?:(?:that|which) (?:i|we|you|he|she|they|my [a-z]+) [a-z].*|(?:i|we|you) (?:have |had |just |only |already )*(?:[a-z]+ed|bought|made|sent|got|paid|saw) ?.*)$",
    )
    .ok()
});

/// Words that make "was" an auxiliary: "was my order shipped".
static PARTICIPLE: Pattern = LazyLock::new(|| {
    Regex::new(r"\b(?:[a-z]{2,}ed|sent|paid|sold|made|taken|given|written|put|held|lost|found|built|bought)\b").ok()
});

/// Words before a clause that leave its mood open.
static ADVERB: Pattern = LazyLock::new(|| {
    Regex::new(
        r"^(?:(?:yesterday|today|tomorrow|tonight|this (?:morning|afternoon|evening|week|month|year)|last (?:night|week|month|year|summer|winter|spring|fall|time|monday|tuesday|wednesday|thursday|friday|saturday|sunday)|once|then|later|recently|maybe|perhaps|probably|apparently|unfortunately|luckily|sometimes|usually|anyway|honestly|basically|no|yes|well|and|but|so|or|because|since|although|though|after|before|while|if|when|where|as|please) )+",
    )
    .ok()
});

static TELLER: Pattern = LazyLock::new(|| {
    Regex::new(
        r"^(?:i|you|he|she|it|we|they|this|that|these|those|there|here|everybody|everyone|somebody|someone|nobody|people)\b",
    )
    .ok()
});

static DETERMINED: Pattern =
    LazyLock::new(|| Regex::new(r"^(?:the|an?|my|our|your|his|her|their)\b").ok());

/// Verbs that make a noun phrase a statement.
static VERB: Pattern = LazyLock::new(|| {
    Regex::new(
        r"\b(?:is|are|was|were|am|has|have|had|will|would|did|does|do|can|could|should|must|might|went|got|came|took|made|bought|sold|lost|saw|gave|told|said|says|thought|knew|found|felt|kept|ran|sat|stood|slept|spoke|spent|wrote|drove|flew|broke|ate|drank|began|brought|built|caught|chose|fell|forgot|grew|heard|held|led|met|paid|rode|rang|rose|sang|sent|shot|swam|taught|threw|understood|woke|wore|won|became|loves?|likes?|hates?|wants?|needs?|thinks?|asks|tells|wonders|knows?|lives?|works?|goes|comes|takes?|makes?|gets?|keeps?|looks|seems?|sounds?|feels?|smells?|tastes?|rides?|drives?|eats?|sleeps?|hurts?|helps?|confuses?|means?|never|always)\b",
    )
    .ok()
});

/// Words in -ed that are no past tense.
const NO_PAST: [&str; 7] = [
    "hundred", "united", "indeed", "speed", "naked", "wicked", "sacred",
];

/// After these a word in "-ed" describes a thing: "for fried rice".
const BEFORE_A_THING: [&str; 18] = [
    "for", "of", "in", "the", "a", "an", "my", "and", "with", "to", "by", "on", "some", "any",
    "our", "your", "or", "at",
];

fn fits(pattern: &Pattern, words: &str) -> bool {
    pattern.as_ref().is_some_and(|p| p.is_match(words))
}

/// How an utterance is meant, as it was transcribed: its clearest clause decides. A question or request
/// in any clause outweighs what is told beside it.
pub fn meant(said: &str) -> Meant {
    let clauses = clauses(said).into_iter().map(|(clause, questioned)| Meant {
        mood: mood(&clause, questioned),
        clause,
    });
    let nothing = Meant {
        mood: Mood::Statement,
        clause: String::new(),
    };
    clauses.max_by_key(|one| one.mood).unwrap_or(nothing)
}

/// Whether an utterance asks for nothing, because it tells or forbids something.
pub fn only_tells(said: &str) -> bool {
    let meant = meant(said);
    meant.mood == Mood::Statement && is_telling(&meant.clause, "")
}

/// Whether an utterance only wants to know something: "is the door unlocked", "tell me if it is". "Can you unlock it" wants
/// something done, and so does a sentence like "unlock it" beside a question.
pub fn only_asks(said: &str) -> bool {
    let mut asks = false;
    // Whether the sentence is nothing but words such as "unlock it" so far.
    let mut is_bare = true;
    for (clause, mark) in marked(said) {
        match purpose(&clause, mark == '?') {
            Some(Purpose::Act) => return false,
            Some(Purpose::Know) => asks = true,
            None => {}
        }
        is_bare &= mark != '?' && clause.contains(' ') && mood(&clause, false) == Mood::Fragment;
        if mark != ',' {
            if is_bare {
                return false;
            }
            is_bare = true;
        }
    }
    asks
}

/// Whether a polite question goes on with [`WHETHER`], and not behind the request: "could you open it and tell me if it
/// worked".
fn asks_whether(core: &str) -> bool {
    let found = WHETHER.as_ref().and_then(|whether| whether.find(core));
    found.is_some_and(|found| !core[..found.start()].contains(" and "))
}

/// The reason to say a clause.
enum Purpose {
    /// To have something done.
    Act,
    /// To be told something.
    Know,
}

/// The purpose of a normalised clause, if it has one of these.
fn purpose(clause: &str, questioned: bool) -> Option<Purpose> {
    let polite = without_courtesy(clause);
    let core = without_opener(&polite);
    let opener = &polite[..polite.len() - core.len()];
    let to_know = fits(&WANTS_TO_KNOW, opener) || (!opener.is_empty() && fits(&STATE, core));
    match mood(core, false) {
        _ if fits(&TELL_ME, core) => Some(Purpose::Know),
        Mood::Question if fits(&WANTS_DONE, core) && !asks_whether(core) => Some(Purpose::Act),
        Mood::Question => Some(Purpose::Know),
        _ if fits(&YOU_COULD, core) && (!opener.is_empty() || questioned) => Some(Purpose::Act),
        Mood::Statement if to_know || questioned => Some(Purpose::Know),
        Mood::Request if fits(&WANTS_TO_KNOW, opener) => Some(Purpose::Know),
        Mood::Request => Some(Purpose::Act),
        Mood::Statement | Mood::Fragment => None,
    }
}

/// Whether the words around `part` of an utterance tell something: "i love the weather in spain" around "weather in
/// spain". Those of a question or request do not, nor does an article: "the weather in spain".
pub fn tells(said: &str, part: &str) -> bool {
    let of_part = clauses(said)
        .into_iter()
        .filter_map(|(clause, questioned)| {
            let (before, after) = around(&clause, part)?;
            Some((mood(&clause, questioned), is_telling(&before, &after)))
        });
    let of_part: Vec<(Mood, bool)> = of_part.collect();
    let asks = |(mood, _): &(Mood, bool)| matches!(mood, Mood::Question | Mood::Request);
    let tells = |(mood, telling): &(Mood, bool)| *mood == Mood::Statement && *telling;
    !of_part.iter().any(asks) && of_part.iter().any(tells)
}

/// The words of a clause before and behind `part`; `None` if they share none.
fn around(clause: &str, part: &str) -> Option<(String, String)> {
    let words: Vec<&str> = clause.split_whitespace().collect();
    let part: Vec<&str> = part.split_whitespace().collect();
    if words.is_empty() || part.is_empty() {
        return None;
    }
    let rest = |range: &[&str]| range.join(" ");
    if let Some(at) = words.windows(part.len()).position(|some| some == part) {
        return Some((rest(&words[..at]), rest(&words[at + part.len()..])));
    }
    if part.windows(words.len()).any(|some| some == words) {
        return Some((String::new(), String::new()));
    }
    let most = words.len().min(part.len());
    (1..most).rev().find_map(|shared| {
        let end = words.len() - shared;
        if words[end..] == part[..shared] {
            return Some((rest(&words[..end]), String::new()));
        }
        let starts = words[..shared] == part[part.len() - shared..];
        starts.then(|| (String::new(), rest(&words[shared..])))
    })
}

/// Whether words before or behind something make a statement about it.
fn is_telling(before: &str, after: &str) -> bool {
    let adverb = ADVERB.as_ref().and_then(|adverb| adverb.find(before));
    let core = adverb.map_or(before, |found| &before[found.end()..]);
    let told = fits(&TELLER, core) || fits(&VERB, before) || has_past(before);
    (told && !asks_at_last(before)) || fits(&VERB, after) || has_past(after)
}

/// Whether a question begins within the words, as it does without punctuation: "my name is bob what is". Not in "i
/// know what is".
fn asks_at_last(words: &str) -> bool {
    const QUESTIONS: [&str; 6] = ["what", "how", "where", "when", "which", "who"];
    const VERBS: [&str; 8] = ["is", "are", "was", "will", "do", "does", "did", "about"];
    const REQUESTS: [[&str; 2]; 7] = [
        ["tell", "me"],
        ["give", "me"],
        ["show", "me"],
        ["can", "you"],
        ["could", "you"],
        ["is", "it"],
        ["will", "it"],
    ];
    const REPORTS: [&str; 36] = [
        "know", "knows", "knew", "known", "say", "says", "said", "tell", "tells", "told", "ask",
        "asked", "asks", "wonder", "wondered", "remember", "forget", "forgot", "see", "saw",
        "care", "cares", "heard", "hear", "about", "of", "that", "to", "not", "he", "she", "they",
        "you", "me", "i", "we",
    ];
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut pairs = words.windows(3);
    pairs.any(|three| {
        let [before, first, second] = [three[0], three[1], three[2]];
        let asks = QUESTIONS.contains(&first) && VERBS.contains(&second)
            || REQUESTS.contains(&[first, second]);
        asks && !REPORTS.contains(&before)
    })
}

/// A normalised clause without the forms that make it a polite or a negated question: "you have chairs" of "could
/// you check if you have chairs" and of "do not you have chairs". What remains shows whether it negates, recalls or
/// supposes something.
pub fn plain(clause: &str) -> String {
    let polite = without_courtesy(clause);
    let core = without_opener(&polite);
    if !matches!(mood(core, false), Mood::Question | Mood::Request) {
        return core.to_owned();
    }
    let core = without_auxiliary(core);
    // A clause that takes something back does not describe.
    let takes_back = ["not", "never", "forget", "mind"];
    let described = RELATIVE.as_ref().and_then(|relative| relative.find(&core));
    let described = described.filter(|found| {
        let mut words = found.as_str().split(' ');
        !words.any(|word| takes_back.contains(&word))
    });
    described.map_or(core.clone(), |found| core[..found.start()].to_owned())
}

/// A normalised clause without the words that introduce a request: "you have chairs" of "i was wondering if you have
/// chairs". All of it if nothing else is left.
pub fn without_opener(clause: &str) -> &str {
    let opener = OPENER.as_ref().and_then(|opener| opener.find(clause));
    let core = opener.map_or(clause, |found| &clause[found.end()..]);
    if core.is_empty() { clause } else { core }
}

/// Normalised words without courtesies that look like conditions: "if you do not mind".
pub fn without_courtesy(words: &str) -> String {
    let Some(courtesy) = COURTESY
        .as_ref()
        .filter(|courtesy| courtesy.is_match(words))
    else {
        return words.to_owned();
    };
    let kept = courtesy.replace_all(words, " ");
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A question without its auxiliary and the "not" behind it: "order 5 arrived yet" of "has not order 5 arrived yet".
fn without_auxiliary(question: &str) -> String {
    const AUXILIARIES: [&str; 14] = [
        "did", "do", "does", "has", "have", "is", "are", "can", "cannot", "could", "will", "would",
        "should", "was",
    ];
    // After these a noun may follow "not" at once: "is not order 5".
    const WITH_NOUNS: [&str; 6] = ["has", "have", "is", "are", "was", "were"];
    const SUBJECTS: [&str; 22] = [
        "i", "you", "we", "they", "he", "she", "it", "there", "anybody", "anyone", "this", "that",
        "these", "those", "the", "my", "our", "your", "his", "her", "their", "any",
    ];
    let words: Vec<&str> = question.split(' ').collect();
    let start = match words.as_slice() {
        ["when" | "where", ..] => 1,
        ["what", "time", ..] => 2,
        _ => 0,
    };
    let Some(auxiliary) = words.get(start).copied() else {
        return question.to_owned();
    };
    let is_past = matches!(auxiliary, "was" | "were");
    if !is_past && !AUXILIARIES.contains(&auxiliary) || is_past && !fits(&PARTICIPLE, question) {
        return question.to_owned();
    }
    let negated = auxiliary == "cannot" || words.get(start + 1) == Some(&"not");
    let rest = start + 1 + usize::from(negated && auxiliary != "cannot");
    let subject = words.get(rest).copied().unwrap_or_default();
    let is_verb = subject.ends_with("ed") || subject.ends_with("ing") || subject.is_empty();
    let is_subject = SUBJECTS.contains(&subject) || WITH_NOUNS.contains(&auxiliary) && !is_verb;
    if negated && !is_subject {
        return question.to_owned();
    }
    [&words[..start], &words[rest..]].concat().join(" ")
}

/// Normalised clauses, and whether each ends with a question mark.
fn clauses(said: &str) -> Vec<(String, bool)> {
    let clauses = marked(said).into_iter();
    clauses
        .map(|(clause, mark)| (clause, mark == '?'))
        .collect()
}

/// Normalised clauses, each with the mark at its end; a space at the end of the text.
fn marked(said: &str) -> Vec<(String, char)> {
    let mut clauses = Vec::new();
    let mut rest = said;
    while !rest.is_empty() {
        let ends = rest.char_indices().find(|(at, letter)| {
            let after = rest[at + letter.len_utf8()..].chars().next();
            ",.?!;".contains(*letter) && after.is_none_or(char::is_whitespace)
        });
        let (clause, mark) = match ends {
            Some((at, letter)) => (&rest[..at], letter),
            None => (rest, ' '),
        };
        let words = text::normalise(clause);
        let core = text::without_fillers(&words);
        let is_question_tag = !clauses.is_empty() && fits(&QUESTION_TAG, core);
        if !core.is_empty() && !is_tag(core) && !is_question_tag {
            clauses.push((core.to_owned(), mark));
        }
        rest = rest.get(clause.len() + mark.len_utf8()..).unwrap_or("");
    }
    clauses
}

/// Discourse markers, which have no mood of their own.
fn is_tag(clause: &str) -> bool {
    const TAGS: [&str; 18] = [
        "right",
        "okay",
        "ok",
        "no",
        "yes",
        "yeah",
        "huh",
        "see",
        "you know",
        "please",
        "thanks",
        "thank you",
        "hello",
        "hi",
        "hey",
        "is it not",
        "does it not",
        "well",
    ];
    TAGS.contains(&clause)
}

fn mood(clause: &str, questioned: bool) -> Mood {
    let reminded = REMINDED.as_ref().and_then(|reminded| reminded.find(clause));
    if let Some(reminded) = reminded {
        return mood(&clause[reminded.end()..], questioned).max(Mood::Request);
    }
    if fits(&NEGATED_QUESTION, clause) {
        return Mood::Question;
    }
    // "when i was a child", but "what i need is the price".
    if fits(&TOLD, clause) && !fits(&REQUEST, clause) {
        return Mood::Statement;
    }
    if fits(&QUESTION, clause) {
        return Mood::Question;
    }
    if fits(&REQUEST, clause) {
        return Mood::Request;
    }
    if questioned {
        return Mood::Question;
    }
    let adverb = ADVERB.as_ref().and_then(|adverb| adverb.find(clause));
    let core = adverb.map_or(clause, |found| &clause[found.end()..]);
    // A fragment with a determiner, as in "the store in boston", is a topic or goes on: a statement.
    if [&TELLER, &DETERMINED, &VERB]
        .iter()
        .any(|told| fits(told, core))
        || has_past(core)
    {
        return Mood::Statement;
    }
    if core.len() < clause.len() && (fits(&QUESTION, core) || fits(&REQUEST, core)) {
        return mood(core, questioned);
    }
    Mood::Fragment
}

/// Whether a word other than the first is a verb in "-ed".
fn has_past(clause: &str) -> bool {
    let words: Vec<&str> = clause.split(' ').collect();
    words.windows(2).any(|two| {
        two[1].len() > 4
            && two[1].ends_with("ed")
            && !NO_PAST.contains(&two[1])
            && !BEFORE_A_THING.contains(&two[0])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_requests_are_told_from_statements() {
        for said in [
            "Where is my order 12?",
            "and how much would a large one be",
            "My order number is 7264, where is it right now?",
            "I'd like to know when the shop opens",
            "In Fahrenheit, what is 37 Celsius?",
            "please check line 46",
            "Did my parcel leave the warehouse already",
            "Don't you have any chairs?",
            "you have chairs?",
            "I was wondering when bus 12 comes.",
        ] {
            let mood = meant(said).mood;
            assert!(
                matches!(mood, Mood::Question | Mood::Request),
                "{said}: {mood:?}"
            );
        }
        for said in [
            "Order 8812 arrived yesterday and it was great.",
            "Yesterday, I went to the store in Boston.",
            "Banana bread is my favourite.",
            "My son rides the number 5 bus to school.",
            "I don't want to know where order 7731 is.",
            "Don't check order 12, please.",
            "When I was a child we rented a small car.",
            "did I tell you about the store in Boston",
            "what a strange coincidence",
            "The small one was scratched.",
            "yesterday we drove to the coast",
            "The store in Boston",
            "My order 12 arrived yesterday, isn't that great?",
            "The sofa was lovely, don't you think?",
            "You don't have any lamps, do you?",
            "",
        ] {
            assert_eq!(meant(said).mood, Mood::Statement, "{said}");
        }
        for said in [
            "weather in Boulder, Colorado",
            "Status of order 3018, please.",
            "recipe for fried rice",
            "next bus of line 9",
        ] {
            assert_eq!(meant(said).mood, Mood::Fragment, "{said}");
        }
    }

    #[test]
    fn questions_about_something_are_told_from_requests_to_do_it() {
        for said in [
            "Is the front door unlocked?",
            "Who opened the front door?",
            "When was the front door unlocked?",
            "Did you unlock the front door?",
            "Should I unlock the front door?",
            "Can the front door be unlocked?",
            "Why is the bedroom light off?",
            "Do I have a note to buy milk?",
            "Could you tell me if the front door is unlocked?",
            "I was wondering whether the light is on.",
            "Check if the door is locked, please.",
            "Can you tell if the front door is unlocked?",
            "Do you think the front door is unlocked?",
            "Would you know if the front door is unlocked?",
            "Can I see whether the light is on?",
            "Show me if the light is on.",
            "The front door is unlocked?",
            "What about the front door, is it unlocked?",
            "Is there a chance the front door is unlocked?",
            "Why can't I unlock the front door?",
            "How can I unlock the front door?",
            "When will you unlock the front door?",
            "Is the door, um, unlocked?",
        ] {
            assert!(only_asks(said), "{said}");
        }
        for said in [
            "Unlock the front door.",
            "Unlock the front door?",
            "Could you unlock the front door, please?",
            "Can I get a table for two?",
            "Would you mind unlocking the front door?",
            "Why don't you turn the light on?",
            "Turn on the light, will you?",
            "Please turn the kitchen light on.",
            "I'd like you to turn it off.",
            "I need the front door unlocked.",
            "Don't forget to lock the front door.",
            "Kitchen light on.",
            "The front door is open.",
            "I was wondering if you could turn on the kitchen light.",
            "I wonder if you could unlock the front door.",
            "See if you can unlock the front door.",
            "I'd like to ask you to turn the light off.",
            "Hello, how are you? Cancel my order A12.",
            "Are you there? Unlock the front door.",
            "Are you able to unlock the front door?",
            "Any chance you could unlock the front door?",
            "Unlock the front door, is that possible?",
            "Check my bag in.",
            "How about turning on the light?",
            "Could you book a table for two and let me know if it works?",
            "Can you unlock the door and tell me when it's done?",
            "Can you tell Bob what time dinner is?",
        ] {
            assert!(!only_asks(said), "{said}");
        }
    }

    #[test]
    fn a_place_in_a_story_is_told() {
        for (said, part) in [
            ("I love the weather in Spain", "weather in spain"),
            (
                "my brother says that the weather in Rome is great",
                "weather in rome",
            ),
            (
                "The weather in Boulder is nice today.",
                "weather in boulder",
            ),
            (
                "We talked about the weather in Berlin.",
                "weather in berlin",
            ),
            (
                "I heard the forecast for London, Ontario.",
                "forecast for london ontario",
            ),
            (
                "I already know what is on my calendar today",
                "what is on my calendar today",
            ),
            (
                "It's late. He likes the weather in Oslo.",
                "weather in oslo",
            ),
        ] {
            assert!(tells(said, part), "{said}");
        }
        let asked = "My mother asks what the weather is in Rome.";
        assert!(tells(asked, "weather is in rome"));
        for (said, part) in [
            ("the weather in Paris", "weather in paris"),
            ("The weather in pairs.", "weather in pairs"),
            ("weather in London please", "weather in london"),
            (
                "I am in a hurry, the weather in Oslo please",
                "weather in oslo",
            ),
            (
                "My sister lives there. What's the weather in Rome?",
                "weather in rome",
            ),
            (
                "my name is bob what is the weather in rome",
                "weather in rome",
            ),
            ("I need the weather in Chicago", "weather in chicago"),
            (
                "Don't forget to check the weather in Rome",
                "weather in rome",
            ),
        ] {
            assert!(!tells(said, part), "{said}");
        }
    }

    #[test]
    fn polite_and_negated_questions_are_reduced_to_what_they_ask() {
        for (clause, core) in [
            (
                "can you tell me if you have any floor lamps",
                "you have any floor lamps",
            ),
            ("do you know if you have bar stools", "you have bar stools"),
            (
                "i was wondering if you have bar stools",
                "you have bar stools",
            ),
            ("do not you have any oak tables", "you have any oak tables"),
            ("when did my order 20 ship", "when my order 20 ship"),
            ("was my order 33 shipped", "my order 33 shipped"),
            ("has not order 512 arrived yet", "order 512 arrived yet"),
            (
                "where is the order 4711 that i placed yesterday",
                "where the order 4711",
            ),
            ("what time is it if you do not mind", "what time it"),
            ("do not forget to tell me the time", "the time"),
        ] {
            assert_eq!(plain(clause), core);
        }
        for clause in [
            "if you had oak tables i would buy one",
            "what was the weather in rome",
            "did not ask for the weather",
            "do not check order 12",
            "my wife asked if you have oak tables",
            "i placed an order that i never got",
            "why did my timer stop",
        ] {
            assert_eq!(plain(clause), clause);
        }
    }
}
