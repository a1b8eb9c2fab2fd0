//! Turns spoken arithmetic into an expression: "15 percent of 80" into `15% of 80`.

use super::text;
use regex::{Regex, RegexSet};
use std::sync::LazyLock;

const NUMBER: &str = r"(-?\d+(?:\.\d+)?|pi)";

/// Spoken arithmetic and its notation, applied in this order. `N` stands for a number.
const SAYINGS: &[(&str, &str)] = &[
    (r"\b(dollars?|bucks|euros?)\b|[$€£]", ""),
    (r"\bnegative (\d)", "-$1"),
    (r"\b(per cent|percentage)\b", "percent"),
    (r"\bpercent\b", "%"),
    (r"\ba half of\b|\bhalf of\b", "0.5 *"),
    (r"\ba third of\b|\b1 third of\b", "(1/3) *"),
    (
        r"\ba quarter of\b|\b1 quarter of\b|\b1 fourth of\b",
        "0.25 *",
    ),
    (r"\b3 quarters of\b", "0.75 *"),
    (r"\b(double|twice)\b", "2 *"),
    (r"\btriple\b", "3 *"),
    (
        r"^N ?% (?:tip|tax) (?:on|of|for)(?: a| an)? N(?: bill| meal| tab)?$",
        "$1% of $2",
    ),
    (
        r"^(?:a|an|the) N ?% (?:tip|tax) (?:on|of|for)(?: a| an)? N(?: bill| meal| tab)?$",
        "$1% of $2",
    ),
    (r"^N ?% off(?: of)? N$", "$2 - $1% of $2"),
    (r"^N ?% (?:more|higher) than N$", "$2 + $1% of $2"),
    (r"^N ?% less than N$", "$2 - $1% of $2"),
    (r"^N (?:plus|and add) N ?%$", "$1 + $2% of $1"),
    (r"^N minus N ?%$", "$1 - $2% of $1"),
    (r"^add N ?% to N$", "$2 + $1% of $2"),
    (r"^(?:the )?sum of N and N$", "$1 + $2"),
    (r"^(?:the )?product of N and N$", "$1 * $2"),
    (r"^(?:the )?difference between N and N$", "$1 - $2"),
    (r"^add (?:up )?N (?:and|to|plus) N$", "$1 + $2"),
    (r"^subtract N from N$", "$2 - $1"),
    (r"^take N (?:away )?from N$", "$2 - $1"),
    (r"^N subtracted from N$", "$2 - $1"),
    (r"^multiply N(?: (?:by|with|and|times) | ?x ?)N$", "$1 * $2"),
    // Recognisers hear "by" as "x".
    (r"^divide N(?: by | ?x ?)N$", "$1 / $2"),
    (r"^N into N$", "$2 / $1"),
    (r"\b(?:the )?(?:square root|sqrt) of N", "sqrt($1)"),
    (r"\b(?:the )?cube root of N", "cbrt($1)"),
    (r"\b(?:the )?square of N", "$1 ^ 2"),
    (r"\b(?:the )?cube of N", "$1 ^ 3"),
    (r"^N factorial$|^(?:the )?factorial of N$", "$1$2!"),
    (r"\bsquared\b", "^ 2"),
    (r"\bcubed\b", "^ 3"),
    (
        r"\b(?:raised )?to the (?:power of )?N(?:th|st|nd|rd)?(?: power)?",
        "^ $1",
    ),
    (r"\b(?:divided by|over)\b|÷", "/"),
    (r"\b(?:times|multiplied by|multiplied with)\b|×", "*"),
    (r"\b(?:plus|added to)\b", "+"),
    (r"\b(?:minus|take away|less)\b|−", "-"),
    (r"\b(?:mod|modulo)\b", "mod"),
    (r"(\d) ?x ?(\d)", "$1 * $2"),
    (r"(\d) ?x ?(\d)", "$1 * $2"),
];

static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    SAYINGS
        .iter()
        .filter_map(|(said, written)| {
            Some((Regex::new(&said.replace('N', NUMBER)).ok()?, *written))
        })
        .collect()
});

static QUESTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"^(?:(?:so|okay|ok|and|hey|hi|please|can you|could you|would you|will you|tell me|give me|",
        r"do you know|i need to know|i want to know|find|figure out|work out|calculate|compute|",
        r"evaluate|solve|what is|what are|what does|what would|what will|how much is|how much are|how much would|",
        r"how many is|whats|what|how much|the (?:answer|result|value) (?:to|of)|be|is|me) )+",
    ))
    .ok()
});

static COURTESY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?: (?:please|for me|equal|equals|equal to|make|be|is what|is|exactly|thanks|=))+$",
    )
    .ok()
});

/// The expression in a text that contains nothing else: `12 * 7`, `15% of 80`, `sqrt(144)`. Question words
/// and courtesies around it are dropped; a lone number is not an expression.
pub fn read(said: &str) -> Option<String> {
    let plain = text::normalise(said);
    let plain = strip(&plain, &QUESTION);
    let plain = strip(&plain, &COURTESY);
    let written = written(&plain)?;
    let tokens = tokens(&written)?;
    is_expression(&tokens).then(|| join(&tokens))
}

/// The text with every rule applied in turn. A regex set finds the next rule that matches, since most
/// sentences need only two of them.
fn written(said: &str) -> Option<String> {
    static NEEDED: LazyLock<Option<RegexSet>> = LazyLock::new(|| {
        let patterns = SAYINGS.iter().map(|(said, _)| said.replace('N', NUMBER));
        RegexSet::new(patterns).ok()
    });
    let spaced = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let needed = NEEDED.as_ref()?;
    let (mut text, mut done) = (spaced(said), 0);
    while let Some(next) = needed.matches(&text).into_iter().find(|&next| next >= done) {
        let (said, written) = RULES.get(next)?;
        text = spaced(&said.replace_all(&text, *written));
        done = next + 1;
    }
    Some(text)
}

/// The expression with percentages as fractions, for an evaluator without percentages.
pub fn for_evaluation(expression: &str) -> String {
    static OF: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"([\d.]+)% of").ok());
    static LONE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"([\d.]+)%").ok());
    let replace = |text: &str, rule: &Option<Regex>, by: &str| match rule {
        Some(rule) => rule.replace_all(text, by).into_owned(),
        None => text.to_owned(),
    };
    let of = replace(expression, &OF, "($1/100) *");
    replace(&of, &LONE, "($1/100)")
}

/// The expression in words: "12 times 7".
pub fn spoken(expression: &str) -> String {
    let words = [
        (" * ", " times "),
        (" / ", " divided by "),
        (" + ", " plus "),
        (" - ", " minus "),
        (" ^ 2", " squared"),
        (" ^ 3", " cubed"),
        (" ^ ", " to the power of "),
        ("%", " percent"),
        ("sqrt(", "the square root of ("),
        ("cbrt(", "the cube root of ("),
        ("!", " factorial"),
    ];
    let mut spoken = format!("{expression} ");
    for (written, said) in words {
        let whole_power = written.starts_with(" ^ ") && written.len() > 3;
        if whole_power {
            spoken = spoken.replace(&format!("{written} "), &format!("{said} "));
        } else {
            spoken = spoken.replace(written, said);
        }
    }
    unwrap_single(spoken.trim())
}

/// "(144)" to "144": parentheses around a lone number are not read out.
fn unwrap_single(spoken: &str) -> String {
    static SINGLE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"\((-?[\d.]+|pi)\)").ok());
    match SINGLE.as_ref() {
        Some(single) => single.replace_all(spoken, "$1").into_owned(),
        None => spoken.to_owned(),
    }
}

fn strip(text: &str, what: &Option<Regex>) -> String {
    match what {
        Some(what) => what.replace(text, "").into_owned(),
        None => text.to_owned(),
    }
}

fn tokens(text: &str) -> Option<Vec<String>> {
    static TOKEN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^\s*(\d+(?:\.\d+)?|\.\d+|% of|%|pi\b|sqrt\(|cbrt\(|mod\b|\*\*|[-+*/^()!])")
            .ok()
    });
    let mut rest = text.trim_end();
    let mut tokens = Vec::new();
    while !rest.is_empty() {
        let found = TOKEN.as_ref()?.captures(rest)?;
        let token = if &found[1] == "**" { "^" } else { &found[1] };
        tokens.push(token.to_owned());
        rest = &rest[found[0].len()..];
    }
    Some(tokens)
}

/// Whether operands and operators alternate, parentheses match, and there is something to compute.
fn is_expression(tokens: &[String]) -> bool {
    let (mut operand_next, mut depth, mut work) = (true, 0usize, false);
    for (at, token) in tokens.iter().enumerate() {
        match (operand_next, token.as_str()) {
            (true, "(") => depth += 1,
            (true, "sqrt(" | "cbrt(") => {
                depth += 1;
                work = true;
            }
            (true, "-") if tokens.get(at + 1).is_some_and(|next| next != "-") => {}
            (true, "pi") => operand_next = false,
            (true, token) if token.starts_with(|c: char| c.is_ascii_digit() || c == '.') => {
                operand_next = false;
            }
            (false, ")") if depth > 0 => depth -= 1,
            (false, "!") => work = true,
            (false, "%") => {}
            (false, "+" | "-" | "*" | "/" | "^" | "mod" | "% of") => {
                operand_next = true;
                work = true;
            }
            _ => return false,
        }
    }
    !operand_next && depth == 0 && work
}

fn join(tokens: &[String]) -> String {
    let mut text = String::new();
    let mut unary = true;
    for token in tokens {
        match token.as_str() {
            "-" if unary => text.push('-'),
            "+" | "-" | "*" | "/" | "^" | "mod" => text.push_str(&format!(" {token} ")),
            "% of" => text.push_str("% of "),
            token => text.push_str(token),
        }
        unary = !matches!(token.as_str(), ")" | "!" | "%" | "pi")
            && !token.ends_with(|c: char| c.is_ascii_digit());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_compiles() {
        assert_eq!(RULES.len(), SAYINGS.len());
        assert!(QUESTION.is_some() && COURTESY.is_some());
    }

    #[test]
    fn reads_what_is_said() {
        for (said, written) in [
            ("What's 12 times 7?", "12 * 7"),
            ("Divide 96x12.", "96 / 12"),
            ("divide 96 x 12", "96 / 12"),
            ("Multiply 12x7.", "12 * 7"),
            ("12 x 7", "12 * 7"),
            ("What is 12x7x2?", "12 * 7 * 2"),
            ("how much is twenty percent of $50", "20% of 50"),
            ("what is the square root of 144", "sqrt(144)"),
            ("two to the power of ten", "2 ^ 10"),
            ("3 to the 6th power", "3 ^ 6"),
            ("subtract 100 from 12", "12 - 100"),
            ("Divide 750 by 5, please.", "750 / 5"),
            ("what is an 18% tip on 20 dollars", "18% of 20"),
            ("9 squared plus 1", "9 ^ 2 + 1"),
            ("what is minus 5 plus 3", "-5 + 3"),
            ("What's negative five plus three?", "-5 + 3"),
            ("5 times negative 3", "5 * -3"),
            ("half of 90", "0.5 * 90"),
            ("1,250 + 250", "1250 + 250"),
        ] {
            assert_eq!(read(said).as_deref(), Some(written), "{said}");
        }
    }

    #[test]
    fn ignores_text_that_is_not_arithmetic() {
        for said in [
            "",
            "7",
            "what is love",
            "12 monkeys",
            "5 miles in kilometers",
            "2 plus",
            "1 2",
            "()",
            "print(3)",
            "a = 5",
            "today + 3",
            "roll d20",
        ] {
            assert_eq!(read(said), None, "{said}");
        }
    }

    #[test]
    fn speaks_an_expression() {
        assert_eq!(spoken("12 * 7"), "12 times 7");
        assert_eq!(spoken("15% of 80"), "15 percent of 80");
        assert_eq!(spoken("sqrt(144)"), "the square root of 144");
        assert_eq!(spoken("2 ^ 10"), "2 to the power of 10");
        assert_eq!(spoken("9 ^ 2 + 1"), "9 squared plus 1");
        assert_eq!(spoken("2 ^ 20"), "2 to the power of 20");
    }
}
