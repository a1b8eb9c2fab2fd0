//! Accents that a recogniser may leave out.

/// Vowels with accents that recognisers leave out at times ("cuantas" for "cuántas"), and without them.
const ACCENTED: &str = "áéíóúàèìòùâêîôû";
const PLAIN: &str = "aeiouaeiouaeiou";

/// A regular expression that matches accented vowels without their accents, too, but for those in its own classes.
pub(crate) fn optional(pattern: &str) -> String {
    let mut lenient = String::with_capacity(pattern.len());
    let (mut escaped, mut in_class, mut in_name) = (false, false, false);
    for letter in pattern.chars() {
        let plain = std::iter::zip(ACCENTED.chars(), PLAIN.chars())
            .find(|(accented, _)| letter.to_lowercase().eq([*accented]))
            .map(|(_, plain)| plain);
        match plain.filter(|_| !in_class && !in_name) {
            Some(plain) => lenient.extend(['[', letter, plain, ']']),
            None => lenient.push(letter),
        }
        in_name = match letter {
            '<' if !escaped => lenient.ends_with("(?<") || lenient.ends_with("(?P<"),
            '>' => false,
            _ => in_name,
        };
        in_class = match letter {
            '[' if !escaped => true,
            ']' if !escaped => false,
            _ => in_class,
        };
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
