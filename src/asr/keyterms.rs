//! The limits of keyterms, and keyterms in a text.

/// The most keyterms, and the most characters of one: many times what helps, and less than any service's limit.
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
