//! Yes and no in languages other than English: a reply is a yes if all of it is agreement and politeness.

use super::Reply;
use super::unknown::plain;
use regex::Regex;
use std::sync::LazyLock;

/// The phrases of one language, in lower case without marks.
pub(super) struct Assent {
    pub(super) yes: &'static [&'static str],
    pub(super) no: &'static [&'static str],
    /// Politeness, which decides nothing.
    pub(super) polite: &'static [&'static str],
    /// Apologies, which go with a refusal. With a yes they leave it open: "Ja, tut mir leid."
    pub(super) regrets: &'static [&'static str],
    /// Verbs that end something.
    pub(super) endings: &'static [Ending],
    /// Pronouns that may stand for what is ended, but not "that": "stop that" refuses.
    pub(super) pronouns: &'static [&'static str],
    /// Articles and possessives before what is ended.
    pub(super) articles: &'static [&'static str],
    /// A question that offers a choice or excludes something.
    pub(super) choice: &'static LazyLock<Option<Regex>>,
    /// A question that lists several things, which a reply may only name by a pronoun.
    pub(super) list: &'static LazyLock<Option<Regex>>,
}

/// A verb that ends something, with its synonyms. It refuses, unless the question is whether to end something: "Soll
/// ich den Timer abbrechen?" "Ja, abbrechen."
pub(super) struct Ending {
    /// The question asks for it.
    pub(super) asked: &'static LazyLock<Option<Regex>>,
    /// Commands to end it, which agree. The word `…` stands for what is ended.
    pub(super) commands: &'static [&'static str],
    /// Its verbs alone, which agree only next to a yes.
    pub(super) verbs: &'static [&'static str],
    /// Cries that may be the verb or a refusal, and so decide nothing.
    pub(super) cries: &'static [&'static str],
    /// Commands to go on, which refuse.
    pub(super) spares: &'static [&'static str],
}

/// A reply with at least this many words is not a plain yes.
const MOST_SAID: usize = 16;

/// The place of what is ended in a command.
const OBJECT: &str = "…";

impl Assent {
    /// Classifies a reply to `question`, if there was one. A counter-question is neither.
    pub(super) fn read(&self, text: &str, question: Option<&str>) -> Reply {
        let said = plain(text);
        let words: Vec<&str> = said.split_whitespace().collect();
        if words.is_empty() || words.len() > MOST_SAID {
            return Reply::Other;
        }
        let question = question.map(last_question).unwrap_or_default();
        let endings = self.endings_of(&question);
        let object = self.object(&question);
        if !text.contains('?') && self.agrees(&words, &endings, &object) {
            Reply::Yes
        } else if self.refuses(&words, &endings, &object) {
            Reply::No
        } else {
            Reply::Other
        }
    }

    fn agrees(&self, words: &[&str], endings: &[&Ending], object: &[&str]) -> bool {
        let mut kinds = vec![(self.yes, true), (self.polite, false)];
        for ending in endings {
            kinds.extend([(ending.commands, true), (ending.verbs, false)]);
        }
        self.consists(words, &kinds, object)
    }

    fn refuses(&self, words: &[&str], endings: &[&Ending], object: &[&str]) -> bool {
        // The verb that was asked for is no refusal here.
        let ends = |phrase: &str| {
            let mut endings = endings.iter();
            endings.any(|ending| {
                let forms = [ending.commands, ending.verbs, ending.cries];
                forms.iter().any(|forms| forms.contains(&phrase))
            })
        };
        let mut no = self.no.to_vec();
        no.retain(|phrase| !ends(phrase));
        let mut kinds = vec![(&no[..], true), (self.polite, false), (self.regrets, false)];
        for ending in endings {
            kinds.extend([
                (ending.spares, true),
                (ending.verbs, false),
                (ending.cries, false),
            ]);
        }
        self.consists(words, &kinds, object)
    }

    /// The verbs of a question that asks whether to end something.
    fn endings_of(&self, question: &str) -> Vec<&Ending> {
        if question.is_empty() || is_match(self.choice, question) {
            return Vec::new();
        }
        let endings = self.endings.iter();
        let asked = endings.filter(|ending| is_match(ending.asked, question));
        asked.collect()
    }

    /// The words of a question from the thing that it is about.
    fn object<'q>(&self, question: &'q str) -> Vec<&'q str> {
        if is_match(self.list, question) {
            return Vec::new();
        }
        let words = question.split_whitespace();
        let from = words.skip_while(|word| !self.articles.contains(word));
        from.skip(1).collect()
    }

    /// Whether words can be cut into phrases of all kinds, with a decisive one at least.
    fn consists(&self, words: &[&str], kinds: &[(&[&str], bool)], object: &[&str]) -> bool {
        // Whether a decisive phrase was among those up to each word; `None` if no cut leads there.
        let mut ways: Vec<Option<bool>> = vec![None; words.len() + 1];
        ways[0] = Some(false);
        for at in 0..words.len() {
            let Some(found) = ways[at] else { continue };
            for (phrases, decides) in kinds {
                for phrase in *phrases {
                    for length in self.lengths(phrase, &words[at..], object) {
                        let end = &mut ways[at + length];
                        *end = Some(end.unwrap_or(false) || found || *decides);
                    }
                }
            }
        }
        ways[words.len()] == Some(true)
    }

    /// The lengths in words in which a phrase begins `words`.
    fn lengths(&self, phrase: &str, words: &[&str], object: &[&str]) -> Vec<usize> {
        let mut lengths = vec![0];
        for part in phrase.split(' ') {
            let further = |at: usize| -> Vec<usize> {
                match part {
                    OBJECT => {
                        let named = self.named(&words[at..], object);
                        named.into_iter().map(|length| at + length).collect()
                    }
                    word if words.get(at) == Some(&word) => vec![at + 1],
                    _ => Vec::new(),
                }
            };
            lengths = lengths.into_iter().flat_map(further).collect();
        }
        lengths
    }

    /// The lengths in which `words` begin with what the question is about: a pronoun, or its words from the first on.
    fn named(&self, words: &[&str], object: &[&str]) -> Vec<usize> {
        let mut lengths = Vec::new();
        if words
            .first()
            .is_some_and(|word| self.pronouns.contains(word))
        {
            lengths.push(1);
        }
        let article = words
            .first()
            .is_some_and(|word| self.articles.contains(word));
        let start = usize::from(article);
        let same = words[start..].iter().zip(object);
        let same = same.take_while(|(said, asked)| said == asked).count();
        let is_number = |at: usize| {
            let word = object.get(at);
            word.is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        };
        let whole = (1..=same).filter(|end| !(is_number(end - 1) && is_number(*end)));
        lengths.extend(whole.map(|length| start + length));
        lengths
    }
}

fn is_match(rule: &LazyLock<Option<Regex>>, text: &str) -> bool {
    rule.as_ref().is_some_and(|rule| rule.is_match(text))
}

/// The last sentence of a question in lower case without marks, except commas. A dot after a digit ends none.
fn last_question(text: &str) -> String {
    let text = text.trim_end().trim_end_matches('?');
    let ends = text.char_indices().zip(text.chars().skip(1));
    let ends = ends.filter(|((at, c), next)| {
        let digit = text[..*at].ends_with(|c: char| c.is_ascii_digit());
        next.is_whitespace() && (matches!(c, '?' | '!') || *c == '.' && !digit)
    });
    let start = ends.last().map_or(0, |((at, _), _)| at + 1);
    let parts: Vec<String> = text[start..].split(',').map(plain).collect();
    parts.join(" , ")
}
