//! Yes and no in languages other than English: a reply is a yes if all of it is agreement and politeness.

use super::Reply;

/// The phrases of one language, in lower case without marks.
pub(super) struct Assent {
    pub(super) yes: &'static [&'static str],
    pub(super) no: &'static [&'static str],
    /// Politeness, which decides nothing.
    pub(super) polite: &'static [&'static str],
}

/// A reply with at least this many words is not a plain yes.
const MOST_SAID: usize = 16;

impl Assent {
    /// Classifies a reply in lower case without marks. A counter-question is neither.
    pub(super) fn read(&self, text: &str, is_question: bool) -> Reply {
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.is_empty() || words.len() > MOST_SAID {
            return Reply::Other;
        }
        if !is_question && consists(&words, self.yes, self.polite) {
            Reply::Yes
        } else if consists(&words, self.no, self.polite) {
            Reply::No
        } else {
            Reply::Other
        }
    }
}

/// Whether words can be cut into phrases of both kinds, with one of `needed` at least.
fn consists(words: &[&str], needed: &[&str], others: &[&str]) -> bool {
    // Whether a needed phrase was among those up to each word; `None` if no cut leads there.
    let mut ways: Vec<Option<bool>> = vec![None; words.len() + 1];
    ways[0] = Some(false);
    for at in 0..words.len() {
        let Some(found) = ways[at] else { continue };
        for (phrases, counts) in [(needed, true), (others, false)] {
            for phrase in phrases {
                let length = phrase.split(' ').count();
                let end = at + length;
                if end <= words.len() && phrase.split(' ').eq(words[at..end].iter().copied()) {
                    ways[end] = Some(ways[end].unwrap_or(false) || found || counts);
                }
            }
        }
    }
    ways[words.len()] == Some(true)
}
