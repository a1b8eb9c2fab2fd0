//! Ranges, telephone numbers, sums and long numbers, in languages that write a dot between thousands.

use super::spoken::{digits, written_out};
use regex::Captures;

/// A telephone number that begins with a plus or a zero.
pub(super) const TELEPHONE: &str = r"(?:\+ ?\d|\b0\d)[\d /()–-]{4,}\d";
/// At least three groups of digits, or two that are too long for a number.
pub(super) const GROUPS: &str = r"\b\d+(?:[ /-]\d+){2,}\b|\b\d{1,3} 000\b|\b\d{4,}[ /]\d{3,}\b";
/// A year and the two digits of the next: "2024/25".
pub(super) const YEARS: &str = r"\b((?:19|20)\d\d)/(\d\d)\b";
/// Numbers with hyphens between them, and the word after them that shows a time of day, or the sign that shows a sum.
pub(super) const CHAIN: &str =
    r"\b\d+(?:[.,:]\d+)*(?: ?[-–] ?\d+(?:[.,:]\d+)*)+\b(?: ?(?:Uhr|h)\b| ?=)?";
/// Two amounts with the sign of a currency before the first, in the group 1: the amounts in 2 and 5, the hyphen in 3, the
/// sign of the second in 4, and in 6 a word or a sign after it.
pub(super) const PRICES: &str =
    r"([€$£]) ?(\d+(?:[.,]\d+)*)( ?[-–] ?)([€$£] ?)?(\d+(?:[.,]\d+)*)( ?(?:\p{L}+|[%°=]))?";
/// A number with its unit before a hyphen and another number.
pub(super) const MEASURES: &str = r"(\d ?(?:€|EUR|Euro|euros|\$|£|%|°C|°F|°|Uhr|h|km|m|cm|mm|kg|g|l|ml|min|[ap]\. ?m\.|[ap]m))[-–](\d)";
/// Two numbers with their units, a hyphen and spaces between them: the numbers in the groups 1 and 3, the units in 2 and
/// 4, and in 5 what follows.
pub(super) const MEASURES_APART: &str = r"(\d) ?(€|EUR|Euro|euros|\$|£|%|°C|°F|°|Uhr|h|km|m|cm|mm|kg|g|l|ml|min|[ap]\. ?m\.|[ap]m) ?[-–] ?(\d+(?:[.,:]\d+)*) ?(€|EUR|Euro|euros|\$|£|%|°C|°F|°|Uhr|h|km|mm|ml|min|m|cm|kg|g|l|[ap]\. ?m\.|[ap]m)( ?=|$|[^\p{L}])";
/// A number with dots in it.
pub(super) const DOTTED: &str = r"\b\d+(?:\.\d+)+\b";
/// A number with commas or dots in it, in the group 2; in 1 the sign of a currency before it, in 3 what it counts.
pub(super) const ENGLISH: &str =
    r"([€$£] ?|\b)(\d+(?:[.,]\d+)+)( ?[€$£]| (?:pesos|dólares|habitantes|personas)\b)?";
/// The sign of the dollar with its country.
pub(super) const US_DOLLAR: &str = r"\bUS ?\$";
/// A score: "3:1".
pub(super) const SCORE: &str = r"\b(\d{1,2}):(\d)\b";
/// Factors with a sign between them.
pub(super) const PRODUCT: &str = r"\b\d+(?: ?[*×x] ?\d+)+\b";
/// A number of times: "2x".
pub(super) const TIMES: &str = r"\b(\d+) ?x\b";
/// A dividend and its divisor.
pub(super) const QUOTIENT: &str = r"(\d) [:/÷] (\d)";
/// Two numbers with a stroke between them.
pub(super) const FRACTION: &str = r"\b(\d{1,3})/(\d{1,3})\b";
/// Signs that are said whatever is around them.
pub(super) const SIGNS: &str = r"[&+=×÷±€$£§≈~≥≤]| [<>] ";

/// The fewest digits of a telephone number.
const FEWEST: usize = 7;

fn count(text: &str) -> usize {
    text.bytes().filter(u8::is_ascii_digit).count()
}

/// Text that matches [`TELEPHONE`], digit by digit, with this word for the plus; as it is if it is too short.
pub(super) fn telephone(text: &str, plus: &str) -> String {
    if count(text) < FEWEST {
        return text.to_owned();
    }
    let plus = if text.starts_with('+') { plus } else { "" };
    let sep = if plus.is_empty() { "" } else { " " };
    format!("{plus}{sep}{}", digits(text))
}

/// Text that matches [`GROUPS`]: a number if the groups are thousands, otherwise digit by digit. Numbers for which
/// `is_telephone` holds are always read digit by digit. Two years stay years.
pub(super) fn groups(text: &str, is_telephone: fn(&str) -> bool) -> String {
    let parts: Vec<&str> = text.split([' ', '/', '-']).collect();
    let joined = parts.concat();
    let thousands = !text.contains(['/', '-'])
        && parts.iter().skip(1).all(|group| group.len() == 3)
        && parts.first().is_some_and(|first| first.len() <= 3);
    let is_year =
        |part: &&str| part.len() == 4 && (part.starts_with("19") || part.starts_with("20"));
    if parts.len() == 2 && parts.iter().all(is_year) {
        return parts.join(" ");
    }
    match thousands && !is_telephone(&joined) {
        true => joined,
        false if joined.len() >= FEWEST => digits(&joined),
        false => text.to_owned(),
    }
}

/// A long number: in the group 1 a word before it that names it, in 2 the number, in 3 what it counts. It is read digit by
/// digit unless it counts something, is an amount, or is a part of more digits.
pub(super) fn identifier(found: &Captures<'_>) -> String {
    let group = |at| found.get(at).map_or("", |group| group.as_str());
    let is_more = group(1).starts_with(|c: char| c.is_ascii_digit())
        || group(3).ends_with(|c: char| c.is_ascii_digit());
    if is_more || group(1).trim_end().ends_with(['€', '$', '£']) {
        return found[0].to_owned();
    }
    match (group(1), group(3)) {
        ("", after) if !after.is_empty() => found[0].to_owned(),
        (before, after) => format!("{before}{}{after}", digits(&found[2])),
    }
}

/// A short code, with the groups of [`identifier`]. It is a number before what it counts.
pub(super) fn code(found: &Captures<'_>) -> String {
    match found.get(3) {
        Some(_) => found[0].to_owned(),
        None => identifier(found),
    }
}

/// An amount for a unit, with this word between them: the amount in the group 1, the unit in 2, and in 3 the beginning of
/// a word behind the dot of an abbreviation, which is left out then.
pub(super) fn rate(found: &Captures<'_>, per: &str, units: &[(&str, &str)]) -> String {
    let after = found.get(3).map_or("", |after| after.as_str());
    format!(
        "{} {per} {}{after}",
        &found[1],
        written_out(&found[2], units)
    )
}

/// Text that matches [`DOTTED`]: a number without the dots between its thousands; in an address on the internet, with
/// this word for those dots that espeak-ng would take for ones between thousands.
pub(super) fn dotted(number: &str, dot: &str) -> String {
    let groups: Vec<&str> = number.split('.').collect();
    let (first, rest) = groups.split_first().unwrap_or((&"", &[]));
    if first.len() <= 3 && rest.iter().all(|group| group.len() == 3) {
        return groups.concat();
    }
    let said = rest.iter().map(|group| match group.len() {
        3 if rest.len() > 1 => format!(" {dot} {group}"),
        _ => format!(".{group}"),
    });
    std::iter::once((*first).to_owned()).chain(said).collect()
}

/// Text that matches [`ENGLISH`], with a comma before the decimals and no mark between thousands if it is written as in
/// English. "1,250" alone may be either.
pub(super) fn from_english(found: &Captures<'_>) -> String {
    let group = |at| found.get(at).map_or("", |group| group.as_str());
    let (sign, number, counted) = (group(1), group(2), group(3));
    let (whole, decimals) = match number.split_once('.') {
        Some((whole, decimals)) => (whole, Some(decimals)),
        None => (number, None),
    };
    let groups: Vec<&str> = whole.split(',').collect();
    let are_thousands = groups.iter().skip(1).all(|group| group.len() == 3)
        && groups
            .first()
            .is_some_and(|first| first.len() <= 3 && *first != "0");
    let counts = !sign.is_empty() || counted.ends_with(char::is_alphabetic);
    let is_english = match (groups.as_slice(), decimals) {
        (_, Some(decimals)) if decimals.contains(['.', ',']) => false,
        ([_], None) => false,
        ([_], Some(decimals)) => (counts || !counted.is_empty()) && decimals.len() < 3,
        ([_, last], None) => are_thousands && (counts || *last == "000"),
        _ => are_thousands,
    };
    if !is_english {
        return found[0].to_owned();
    }
    let decimals = decimals.map_or(String::new(), |decimals| format!(",{decimals}"));
    format!("{sign}{}{decimals}{counted}", groups.concat())
}

/// The number of a month, from 0, and that of a day in a date; `None` if there is no such date.
pub(super) fn date(day: &str, month: &str) -> Option<(u8, usize)> {
    let day = day.parse().ok().filter(|day| (1..=31).contains(day))?;
    let month = month.parse::<usize>().ok()?.checked_sub(1)?;
    (month < 12).then_some((day, month))
}

/// The words of one language around the numbers of a range, a score and a difference.
pub(super) struct Between {
    pub(super) to: &'static str,
    pub(super) score: &'static str,
    pub(super) minus: &'static str,
    /// Words for what a number that is no price counts, with strokes between the words.
    pub(super) counted: &'static str,
}

/// The value of a number with dots between its thousands, or of a time.
fn value(number: &str) -> Option<f64> {
    let number = number.replace(['.', ':'], "").replace(',', ".");
    number.parse().ok()
}

/// Whether a range of these numbers would not rise.
fn falls(from: &str, to: &str) -> bool {
    matches!((value(from), value(to)), (Some(from), Some(to)) if from >= to)
}

/// Words that multiply the number before them.
const SCALES: [&str; 11] = [
    "Mio",
    "Mrd",
    "Tsd",
    "tausend",
    "Tausend",
    "Million",
    "Millionen",
    "Milliarden",
    "mil",
    "millón",
    "millones",
];
/// Names of currencies behind an amount that has a sign, too.
const CURRENCIES: [&str; 15] = [
    "EUR", "USD", "GBP", "CHF", "MXN", "Euro", "Dollar", "Pfund", "Franken", "euros", "dólares",
    "pesos", "libras", "Euros", "Dollars",
];

/// Text that matches [`PRICES`]: a range, or a difference before "=". Behind a dash with spaces, a number without a sign
/// that is lower or counts something is no price: "$5 – 3 items".
pub(super) fn prices(found: &Captures<'_>, between: &Between) -> String {
    let after = found.get(6).map_or("", |after| after.as_str());
    let word = after.trim();
    let (sign, from, to) = (&found[1], &found[2], &found[5]);
    let second = found.get(4).map_or("", |sign| sign.as_str());
    if word == "=" {
        return format!("{sign}{from} {} {second}{to}{after}", between.minus);
    }
    let is_counted = between.counted.split('|').any(|counted| counted == word);
    let is_lower = falls(from, to) && !SCALES.contains(&word);
    let is_spaced = found[3].starts_with(' ') && found[3].ends_with(' ');
    if is_spaced && second.is_empty() && (is_counted || is_lower) {
        return format!("{sign}{from}, {to}{after}");
    }
    match CURRENCIES.contains(&word) {
        true => format!("{from} {} {to}{after}", between.to),
        false => format!("{from} {} {to} {sign}{after}", between.to),
    }
}

/// Text that matches [`MEASURES_APART`]: a range or a difference; as it is if the units differ, as the second number then
/// belongs to something else.
pub(super) fn measures(found: &Captures<'_>, between: &Between) -> String {
    let is_time = |unit: &str| unit.starts_with(['a', 'p']);
    let is_same = found[2] == found[4] || is_time(&found[2]) && is_time(&found[4]);
    if !is_same {
        return found[0].to_owned();
    }
    let word = match found[5].ends_with('=') {
        true => between.minus,
        false => between.to,
    };
    format!(
        "{} {} {word} {} {}{}",
        &found[1], &found[2], &found[3], &found[4], &found[5]
    )
}

/// Text that matches [`CHAIN`]: a range, a score, a difference, or a telephone number.
pub(super) fn chain(text: &str, between: &Between) -> String {
    let (numbers, unit) = match text.rfind(|c: char| c.is_ascii_digit()) {
        Some(last) => text.split_at(last + 1),
        None => (text, ""),
    };
    let parts: Vec<&str> = numbers.split(['-', '–']).map(str::trim).collect();
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = |part: &&str| !plain(part) || part.len() <= 4;
    let minus = format!(" {} ", between.minus);
    let [from, to] = parts.as_slice() else {
        let is_sum = unit.ends_with('=') || numbers.contains(" - ");
        return match count(numbers) >= FEWEST {
            true => format!("{}{unit}", digits(numbers)),
            false if is_sum => format!("{}{unit}", parts.join(&minus)),
            false => format!("{}{unit}", parts.join(" ")),
        };
    };
    if unit.ends_with('=') {
        return format!("{}{unit}", parts.join(&minus));
    }
    if !parts.iter().all(is_short) {
        return format!("{}{unit}", digits(numbers));
    }
    // A time may be followed by an earlier one, of the next day: "22:00 - 6:00".
    let is_time = numbers.contains(':');
    let word = match falls(from, to) && unit.is_empty() && !is_time {
        false => between.to,
        true if numbers.contains(' ') => between.minus,
        true => between.score,
    };
    format!("{from} {word} {to}{unit}")
}
