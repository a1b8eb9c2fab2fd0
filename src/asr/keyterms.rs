//! The limits of keyterms, and keyterms in a text.

use std::sync::Once;

/// The most keyterms, and the most characters of one: many times what helps. Services take fewer (`Budget`).
pub const MOST: usize = 100;
const LONGEST: usize = 50;

/// The most words of a keyterm in a text. A part with more is a clause.
const MOST_WORDS: usize = 4;

/// The reason that these cannot be keyterms, and the fix.
pub fn wrong(terms: &[String]) -> Option<(String, &'static str)> {
    if terms.len() > MOST {
        let problem = format!("{} keyterms, more than {MOST}", terms.len());
        return Some((problem, "keep those that are misheard"));
    }
    let is_wrong = |term: &&String| {
        let length = term.chars().count();
        let has_letter = term.chars().any(char::is_alphanumeric);
        !has_letter || length > LONGEST || term.contains(|c: char| c == ',' || c.is_control())
    };
    let term = terms.iter().find(is_wrong)?;
    let fix = "each is a word or a name of at most 50 characters, without a comma";
    Some((format!("{term:?} is no keyterm"), fix))
}

/// The keyterms as a text, for recognisers that take what was said before as a hint. `None` if there are none.
pub(super) fn prompt(terms: &[String]) -> Option<String> {
    (!terms.is_empty()).then(|| terms.join(SEPARATOR))
}

/// Between the keyterms of a text.
const SEPARATOR: &str = ", ";

/// The bytes that a term takes in a text. Bytes, because some services count tokens: a letter that takes more bytes
/// takes more of those, too.
pub(super) fn bytes(term: &str) -> usize {
    term.len() + SEPARATOR.len()
}

/// The most that the keyterms of a request cost. Services refuse requests with more.
#[derive(Debug)]
pub(super) struct Budget {
    most: usize,
    /// The cost of a term.
    cost: fn(&str) -> usize,
    warned: Once,
}

impl Budget {
    pub(super) const fn of(most: usize, cost: fn(&str) -> usize) -> Self {
        Self {
            most,
            cost,
            warned: Once::new(),
        }
    }

    /// The first keyterms that are within it. Warns once if some are left out, naming the `model`.
    pub(super) fn first<'a>(&self, terms: &'a [String], model: &str) -> &'a [String] {
        let mut spent = 0;
        let fits = |term: &&String| {
            spent += (self.cost)(term);
            spent <= self.most
        };
        let (first, left) = terms.split_at(terms.iter().take_while(fits).count());
        if !left.is_empty() {
            self.warned.call_once(|| {
                let (sent, left_out) = (first.len(), left.len());
                tracing::warn!(
                    model,
                    sent,
                    left_out,
                    "a service takes fewer keyterms: only the first are sent; keep those that are misheard"
                );
            });
        }
        first
    }
}

/// The keyterms of a text that lists two or more between commas. `None` for any other text, such as sentences.
pub fn listed(text: &str) -> Option<Vec<String>> {
    let terms: Vec<String> = text.split(',').map(|term| term.trim().to_owned()).collect();
    let is_name = |term: &String| {
        let words = term.split_whitespace().count();
        words <= MOST_WORDS && !term.ends_with(['.', '!', '?']) && !term.contains([':', ';'])
    };
    let is_list = terms.len() > 1 && terms.iter().all(is_name) && wrong(&terms).is_none();
    is_list.then_some(terms)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groq and Deepgram refused every request.
    #[test]
    fn keyterms_beyond_a_services_limit_are_left_out_whole() {
        let budget = Budget::of(100, bytes);
        let terms = vec!["Anneliese".to_owned(); 20];
        assert_eq!(budget.first(&terms, "m").len(), 9);
        assert_eq!(budget.first(&terms[..9], "m").len(), 9);
        let longer = ["Анна".to_owned(), "x".repeat(89)];
        assert_eq!(budget.first(&longer, "m"), &longer[..1]);
        assert_eq!(prompt(budget.first(&[], "m")), None);
    }

    #[test]
    fn a_text_with_names_between_commas_is_a_list_and_no_other_text() {
        let found = listed("Anneliese, Kronos 7,\nBank of New York");
        assert_eq!(
            found.unwrap(),
            ["Anneliese", "Kronos 7", "Bank of New York"]
        );
        for text in [
            "",
            "Anneliese",
            "expect words related to technology",
            "Hello, this is Anneliese.",
            "Names: Anneliese, Siobhan",
            "The caller may ask about Kronos, a new product",
            "Anneliese, , Siobhan",
        ] {
            assert_eq!(listed(text), None, "{text}");
        }
        let many = |count: usize| vec!["Siobhan"; count].join(", ");
        assert!(listed(&many(MOST)).is_some());
        assert!(listed(&many(MOST + 1)).is_none());
    }
}
