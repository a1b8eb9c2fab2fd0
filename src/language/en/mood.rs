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
    LazyLock::new(|| Regex::new(r"^do not (?:i|you|we|they)\b").ok());

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
        r"\b(?:is|are|was|were|am|has|have|had|will|would|did|does|do|can|could|should|must|might|went|got|came|took|made|bought|sold|lost|saw|gave|told|said|says|thought|knew|found|felt|kept|ran|sat|stood|slept|spoke|spent|wrote|drove|flew|broke|ate|drank|began|brought|built|caught|chose|fell|forgot|grew|heard|held|led|met|paid|rode|rang|rose|sang|sent|shot|swam|taught|threw|understood|woke|wore|won|became|loves?|likes?|hates?|wants?|needs?|thinks?|knows?|lives?|works?|goes|comes|takes?|makes?|gets?|keeps?|looks|seems?|sounds?|feels?|smells?|tastes?|rides?|drives?|eats?|sleeps?|hurts?|helps?|confuses?|means?|never|always)\b",
    )
    .ok()
});

/// Words that end like a past tense and are none.
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

/// Normalised clauses, and whether each ends with a question mark.
fn clauses(said: &str) -> Vec<(String, bool)> {
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
        if !core.is_empty() && !is_tag(core) {
            clauses.push((core.to_owned(), mark == '?'));
        }
        rest = rest.get(clause.len() + mark.len_utf8()..).unwrap_or("");
    }
    clauses
}

/// Words that say nothing of their own.
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
    // "the store in boston" goes on, or is the topic of something that was said.
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
}
