//! Letters without their accents.

/// A lower-case letter without accents and other marks; any other as it is.
pub(crate) fn plain(letter: char) -> char {
    match letter {
        'ä' | 'ã' | 'å' => 'a',
        'ë' => 'e',
        'ï' => 'i',
        'ö' | 'õ' | 'ø' => 'o',
        'ü' => 'u',
        'ç' => 'c',
        'ñ' => 'n',
        'ł' => 'l',
        _ => unaccented(letter).unwrap_or(letter),
    }
}

/// The vowel of which this lower-case one has an accent; `None` if it has none. Recognisers leave accents out at times
/// ("cuantas" for "cuántas"), but not the marks that make another letter.
fn unaccented(letter: char) -> Option<char> {
    Some(match letter {
        'á' | 'à' | 'â' => 'a',
        'é' | 'è' | 'ê' => 'e',
        'í' | 'ì' | 'î' => 'i',
        'ó' | 'ò' | 'ô' => 'o',
        'ú' | 'ù' | 'û' => 'u',
        _ => return None,
    })
}

/// A regular expression that matches accented vowels without their accents, too, but for those in its own classes.
pub(crate) fn optional(pattern: &str) -> String {
    let mut lenient = String::with_capacity(pattern.len());
    let (mut escaped, mut classes, mut in_name) = (false, 0_usize, false);
    for letter in pattern.chars() {
        let plain = letter.to_lowercase().next().and_then(unaccented);
        match plain.filter(|_| classes == 0 && !in_name) {
            Some(plain) => lenient.extend(['[', letter, plain, ']']),
            None => lenient.push(letter),
        }
        match letter {
            '[' if !escaped => classes += 1,
            ']' if !escaped => classes = classes.saturating_sub(1),
            '<' => in_name = lenient.ends_with("(?<") || lenient.ends_with("(?P<"),
            '>' => in_name = false,
            _ => {}
        }
        escaped = letter == '\\' && !escaped;
    }
    lenient
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::Regex;

    /// Such a rule answered only those whose recogniser had written the accent.
    #[test]
    fn a_rule_with_accents_matches_words_without_them() {
        let rule = optional(r"\bcuántas sillas de (?P<colour>\p{L}+)( más)?\b");
        let rule = Regex::new(&rule).expect("a pattern");
        for heard in ["cuántas sillas de rojo más", "cuantas sillas de rojo mas"] {
            let found = rule.captures(heard).expect(heard);
            assert_eq!((&found[0], &found["colour"]), (heard, "rojo"));
        }
        assert!(!rule.is_match("cuentas sillas de rojo"));
    }

    #[test]
    fn classes_names_and_other_letters_stay_as_they_are() {
        for kept in [
            r"[áé]+",
            r"[[:alpha:]à-é]",
            r"(?P<día>\d+)",
            r"(?<día>\d+)",
            "Stühle, años",
            r"\[x\]",
        ] {
            assert_eq!(optional(kept), kept);
        }
        assert_eq!(optional(r"\[é\] É?"), r"\[[ée]\] [Ée]?");
    }
}
