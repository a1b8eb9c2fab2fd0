//! Turns number words into digits, such as "twenty one point five" into "21.5".

const SMALL: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];

const TENS: [&str; 8] = [
    "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
];

const SCALES: [(&str, f64); 5] = [
    ("dozen", 12.0),
    ("hundred", 100.0),
    ("thousand", 1e3),
    ("million", 1e6),
    ("billion", 1e9),
];

/// Behind these, "one" is a pronoun: "cancel that one".
const PRONOUN_BEHIND: [&str; 17] = [
    "that", "this", "which", "the", "no", "any", "every", "each", "either", "neither", "another",
    "first", "second", "next", "last", "other", "some",
];

/// Behind these and an adjective or two, "one" is a pronoun: "the dark blue one".
const DETERMINERS: [&str; 13] = [
    "the", "a", "an", "that", "this", "which", "any", "some", "another", "my", "your", "our",
    "their",
];

/// Not adjectives: after these, "one" is a number, as in "the table for one" and "the gate number one".
const NO_ADJECTIVES: [&str; 59] = [
    "of", "to", "at", "in", "on", "for", "from", "by", "with", "and", "or", "but", "than", "then",
    "is", "are", "was", "were", "be", "makes", "leaves", "equals", "gives", "costs", "takes",
    "has", "have", "had", "got", "get", "need", "want", "plus", "minus", "times", "over", "point",
    "number", "room", "line", "gate", "channel", "chapter", "page", "step", "option", "item",
    "order", "track", "level", "part", "question", "version", "timer", "exit", "platform",
    "volume", "only", "just",
];

/// Before these, "one" is a number, whatever is in front of it: "the last one hour".
const COUNTED: [&str; 28] = [
    "second",
    "seconds",
    "minute",
    "minutes",
    "hour",
    "hours",
    "day",
    "days",
    "week",
    "weeks",
    "month",
    "months",
    "year",
    "years",
    "am",
    "pm",
    "oclock",
    "mile",
    "miles",
    "kilometer",
    "kilometers",
    "degree",
    "degrees",
    "percent",
    "dollar",
    "dollars",
    "euro",
    "point",
];

/// Replaces number words in lower-case, space-separated text by digits; everything else stays.
/// "two and a half" becomes "2.5", "a hundred" "100", "one hundred and five" "105".
pub fn digits(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut result: Vec<String> = Vec::with_capacity(words.len());
    let mut at = 0;
    while at < words.len() {
        let pronoun = words[at] == "one" && is_pronoun(&words[..at], &words[at + 1..]);
        match (!pronoun).then(|| number(&words[at..])).flatten() {
            Some((value, length)) => {
                result.push(plain(value));
                at += length;
            }
            None => {
                result.push(words[at].to_owned());
                at += 1;
            }
        }
    }
    result.join(" ")
}

/// Whether "one" between these words stands for a thing: "is the blue one in stock".
fn is_pronoun(before: &[&str], after: &[&str]) -> bool {
    let is_number = |word: &str| simple(word, "").is_some() || scale(word).is_some();
    let is_counted = match after {
        ["and", "a", "half" | "quarter", ..] => true,
        [next, ..] => COUNTED.contains(next) || is_number(next),
        [] => false,
    };
    let is_adjective = |word: &&&str| {
        let is_other = DETERMINERS.contains(*word) || NO_ADJECTIVES.contains(*word);
        !is_other && !is_number(word)
    };
    let adjectives = before.iter().rev().take_while(is_adjective).count();
    let determiner = before.iter().rev().nth(adjectives);
    let is_described =
        (1..=2).contains(&adjectives) && determiner.is_some_and(|word| DETERMINERS.contains(word));
    let is_behind = before
        .last()
        .is_some_and(|word| PRONOUN_BEHIND.contains(word));
    !is_counted && (is_behind || is_described)
}

/// A number without trailing zeros and with at most ten decimals: `84`, `2.5`.
pub fn plain(value: f64) -> String {
    let text = format!("{value:.10}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" {
        "0".into()
    } else {
        text.into()
    }
}

/// Digits with `separator` between thousands: "12500" to "12,500".
pub fn grouped(digits: &str, separator: char) -> String {
    let first = digits.len() % 3;
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && at % 3 == first {
            text.push(separator);
        }
        text.push(digit);
    }
    text
}

/// The number at the start of `words`, and its length in words.
fn number(words: &[&str]) -> Option<(f64, usize)> {
    let (mut value, mut length) = whole(words)?;
    if let Some((decimals, more)) = decimals(&words[length..]) {
        return Some((value + decimals, length + more));
    }
    if let ["and", "a", "half", rest @ ..] = &words[length..]
        && rest.first() != Some(&"of")
    {
        value += 0.5;
        length += 3;
    } else if let ["and", "a", "quarter", ..] = &words[length..] {
        value += 0.25;
        length += 3;
    }
    // A lone numeral stays as it was written.
    let untouched = length == 1 && words[0].starts_with(|c: char| c.is_ascii_digit());
    (!untouched).then_some((value, length))
}

fn whole(words: &[&str]) -> Option<(f64, usize)> {
    let (mut total, mut group, mut length, mut floor) = (0.0, None, 0, f64::INFINITY);
    while let Some(word) = words.get(length) {
        let next = words.get(length + 1).copied().unwrap_or_default();
        if let Some(scale) = scale(word).filter(|_| group.is_some()) {
            let value = group.unwrap_or(1.0) * scale;
            if scale >= 1e3 {
                total += value;
                group = None;
                floor = f64::INFINITY;
            } else {
                group = Some(value);
                floor = scale;
            }
        } else if let Some(value) = simple(word, next) {
            let fits = if floor.is_infinite() {
                group.is_none()
            } else {
                value < floor
            };
            if !fits {
                break;
            }
            group = Some(group.unwrap_or(0.0) + value);
            floor = if (20.0..100.0).contains(&value) && value % 10.0 == 0.0 {
                10.0
            } else {
                0.0
            };
        } else if !(*word == "and" && joins(words, length, floor)) {
            break;
        }
        length += 1;
    }
    let found = group.is_some() || total > 0.0;
    found.then_some((total + group.unwrap_or(0.0), length))
}

/// Whether the word at `at` is an "and" inside a number, as in "two hundred and five" but not in "two and
/// five".
fn joins(words: &[&str], at: usize, floor: f64) -> bool {
    let after = words.get(at + 1).copied().unwrap_or_default();
    let scaled = at > 0 && scale(words[at - 1]).is_some_and(|scale| scale >= 100.0);
    scaled && floor > 10.0 && (SMALL.contains(&after) || TENS.contains(&after))
}

fn simple(word: &str, next: &str) -> Option<f64> {
    if word == "a" {
        return scale(next).map(|_| 1.0);
    }
    let small = SMALL.iter().position(|name| *name == word);
    let tens = TENS.iter().position(|name| *name == word);
    small
        .map(|at| at as f64)
        .or(tens.map(|at| 20.0 + 10.0 * at as f64))
        .or_else(|| {
            word.parse()
                .ok()
                .filter(|_| word.starts_with(|c: char| c.is_ascii_digit()))
        })
}

fn scale(word: &str) -> Option<f64> {
    SCALES
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, value)| *value)
}

/// "point one four": .14
fn decimals(words: &[&str]) -> Option<(f64, usize)> {
    if words.first() != Some(&"point") {
        return None;
    }
    let digits: String = words[1..].iter().map_while(|word| digit(word)).collect();
    let value = format!("0.{digits}").parse().ok()?;
    (!digits.is_empty()).then(|| (value, 1 + digits.len()))
}

fn digit(word: &str) -> Option<char> {
    let named = SMALL[..10].iter().position(|name| *name == word);
    let value = named.or_else(|| word.parse().ok().filter(|_| word.len() == 1))?;
    char::from_digit(value as u32, 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_digits() {
        for (words, expected) in [
            ("twelve times seven", "12 times 7"),
            ("twenty one point five", "21.5"),
            ("two hundred and five", "205"),
            ("one thousand two hundred thirty four", "1234"),
            ("a hundred", "100"),
            ("a hundred and twenty miles", "120 miles"),
            ("two and a half miles", "2.5 miles"),
            ("10 and a half", "10.5"),
            ("two and five", "2 and 5"),
            ("five million", "5000000"),
            ("2 million three hundred thousand", "2300000"),
            ("cancel that one", "cancel that one"),
            ("one minute", "1 minute"),
            ("the last one hundred and five", "the last 105"),
            ("set a one hour timer", "set a 1 hour timer"),
            ("the table for one", "the table for 1"),
            ("order number one", "order number 1"),
            ("the sum of one and two", "the sum of 1 and 2"),
            ("the one and a half hours", "the 1.5 hours"),
            ("twenty five", "25"),
            ("five five", "5 5"),
            ("10 minutes and 30 seconds", "10 minutes and 30 seconds"),
            ("ten and a hundred", "10 and 100"),
            ("3 point 1 4", "3.14"),
            ("two dozen", "24"),
            ("two hundred and", "200 and"),
            ("a timer", "a timer"),
            ("", ""),
        ] {
            assert_eq!(digits(words), expected, "{words}");
        }
    }

    #[test]
    fn one_is_a_word_where_it_stands_for_a_thing() {
        for words in [
            "is the blue one in stock",
            "how much is the dark blue one",
            "another one please",
            "this one",
            "which one is cheaper",
            "but where is the second one",
            "do you have a bigger one",
            "each one of them",
            "the red one and the large one",
        ] {
            assert_eq!(digits(words), words);
        }
    }
}
