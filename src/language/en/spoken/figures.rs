//! Dates, times, amounts, ranges and groups of digits as English says them.

use super::{rest, stop};
use crate::language::en::dates::{MONTHS, WEEKDAYS};
use crate::language::en::money::{self, Currency};
use crate::language::spoken::{digits, roman};
use regex::Captures;

const DENOMINATORS: &[(&str, &str)] = &[
    ("2", "half"),
    ("3", "third"),
    ("4", "quarter"),
    ("5", "fifth"),
    ("6", "sixth"),
    ("8", "eighth"),
    ("10", "tenth"),
    ("16", "sixteenth"),
];

/// Numbers apart by signs, each digit by digit: "800-555" to "8 0 0, 5 5 5".
pub(super) fn groups(numbers: &str) -> String {
    let each = numbers.split([' ', '.', '-']).map(digits);
    each.collect::<Vec<_>>().join(", ")
}

/// A long number digit by digit, with a pause after every third: "4837261590" to "4 8 3, 7 2 6, 1 5 9 0".
pub(super) fn in_threes(number: &str) -> String {
    let mut rest = number;
    let mut groups = Vec::new();
    while rest.len() > 6 || rest.len() == 6 && !groups.is_empty() {
        let (group, more) = rest.split_at(3);
        groups.push(digits(group));
        rest = more;
    }
    if rest.len() == 5 && !groups.is_empty() {
        let (group, more) = rest.split_at(3);
        groups.push(digits(group));
        rest = more;
    }
    groups.push(digits(rest));
    groups.join(", ")
}

/// "1.2.3" to "1 point 2 point 3"; the four numbers of an address on the internet have dots.
pub(super) fn parts(version: &str) -> String {
    let between = match version.matches('.').count() {
        3 => " dot ",
        _ => " point ",
    };
    version.replace('.', between)
}

/// "1" to "1st".
pub(super) fn ordinal(number: &str) -> String {
    let number = number.trim_start_matches('0');
    let ending = match number {
        "11" | "12" | "13" => "th",
        _ if number.ends_with('1') => "st",
        _ if number.ends_with('2') => "nd",
        _ if number.ends_with('3') => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// A spoken date, or the text as written if there is no such day. Day and month may be swapped, the year short or empty.
pub(super) fn date(whole: &Captures<'_>, month: &str, day: &str, in_year: &str) -> String {
    let is_day = |day: &str| day.parse().is_ok_and(|day: u8| (1..=31).contains(&day));
    let said = match (name(month), name(day)) {
        (Some(name), _) if is_day(day) => format!("{name} {}", ordinal(day)),
        (None, Some(name)) if is_day(month) => format!("{name} {}", ordinal(month)),
        _ => return whole[0].replace(['-', '/', '.'], " "),
    };
    match in_year.len() {
        0 => said,
        2 if in_year < "50" => format!("{said}, {}", year(&format!("20{in_year}"))),
        2 => format!("{said}, {}", year(&format!("19{in_year}"))),
        _ => format!("{said}, {}", year(in_year)),
    }
}

/// The name of a month by its number.
fn name(month: &str) -> Option<&'static str> {
    let month = month.parse::<usize>().ok()?.checked_sub(1)?;
    MONTHS.get(month).copied()
}

/// "on 10/3" with what is before the date in the group 1; "on 1/2 acre" is a fraction.
pub(super) fn short_date(c: &Captures<'_>) -> String {
    let is_part = matches!(
        (&c[2], &c[3]),
        ("1", "2" | "3" | "4") | ("2", "3") | ("3", "4")
    );
    let said = date(c, &c[2], &c[3], "");
    match is_part {
        true => c[0].to_owned(),
        false => format!("{}{}", &c[1], said.trim_start_matches(&c[1])),
    }
}

/// "June 10-12" with the month in the group 1, the days in 2 and 4, the dash in 3, a year in 5 and what follows in 6.
/// The time or the count in "June 12 - 7:00 PM" and "May 5 - 2 nights" is no day.
pub(super) fn days_of_month(c: &Captures<'_>) -> String {
    let from = format!("{} {}", &c[1], ordinal(&c[2]));
    let after = c.get(6).map_or("", |after| after.as_str());
    let rises =
        matches!((c[2].parse::<u8>(), c[4].parse::<u8>()), (Ok(first), Ok(last)) if first < last);
    let is_apart = c[3].trim() != &c[3];
    let is_word = after.trim_start().len() == 1;
    let is_range = match is_apart {
        true => rises && after.is_empty(),
        false => after.is_empty() || is_word,
    };
    if !is_range {
        let start = |at: usize| c.get(at).map_or(0, |group| group.start());
        return format!("{from}{}", &c[0][start(3) - start(0)..]);
    }
    let in_year = c.get(5).map_or(String::new(), |number| {
        format!(", {}", year(number.as_str()))
    });
    format!("{from} to {}{in_year}{after}", ordinal(&c[4]))
}

/// Two measures with the units in the groups 2 and 4, and what follows in 5: "5 km - 10 km" is a range, "100% - 20% ="
/// a difference. "12 km - 3 lb" stays as it is.
pub(super) fn measures(c: &Captures<'_>) -> String {
    let is_same = c[2] == c[4] || c[2].starts_with('°') && c[4].starts_with('°');
    match (is_same, c[5].ends_with('=')) {
        (false, _) => c[0].to_owned(),
        (true, true) => format!("{} minus {}{}", &c[1], &c[3], &c[5]),
        (true, false) => format!("{} to {}{}", &c[1], &c[3], &c[5]),
    }
}

/// Words that are no names although they begin a sentence.
const BEFORE_RANGES: [&str; 14] = [
    "About", "Allow", "Around", "Between", "For", "From", "In", "It", "Only", "Roughly", "Takes",
    "The", "Wait", "Within",
];

/// Numbers in the group 2 with dashes and spaces between them, and what follows in 3: "10 - 3 - 2" to "10 minus 3 minus
/// 2", "5 - 10" to "5 to 10". They are apart in "10 - 3", before a time, and after a name: "Step 1 - 20 minutes".
pub(super) fn dashes(c: &Captures<'_>) -> String {
    let group = |at: usize| c.get(at).map_or("", |group| group.as_str());
    let value = |number: &str| number.replace(',', "").parse::<f64>();
    let parts: Vec<&str> = c[2]
        .split([' ', '-', '–'])
        .filter(|part| !part.is_empty())
        .collect();
    let rises = match parts.as_slice() {
        [from, to] => matches!((value(from), value(to)), (Ok(from), Ok(to)) if from < to),
        _ => false,
    };
    let is_named = !group(1).is_empty() && !BEFORE_RANGES.contains(&group(1));
    let word = if group(3) == " =" || parts.len() > 2 {
        "minus"
    } else if rises && !is_named && group(3).is_empty() {
        "to"
    } else {
        return c[0].to_owned();
    };
    let before = match group(1) {
        "" => String::new(),
        before => format!("{before} "),
    };
    format!("{before}{}{}", c[2].replace(['-', '–'], word), group(3))
}

/// Seven digits of a telephone number, or a range: "500-1000". The two numbers are in the groups.
pub(super) fn seven_digits(c: &Captures<'_>) -> String {
    let are_round = [&c[1], &c[2]]
        .iter()
        .all(|number| number.ends_with("00") || number.ends_with("50"));
    match are_round {
        true => format!("{} to {}", &c[1], &c[2]),
        false => format!("{}, {}", digits(&c[1]), digits(&c[2])),
    }
}

/// Factors or divisors with this word for the signs between them.
pub(super) fn joined(numbers: &str, signs: &[char], word: &str) -> String {
    let numbers: Vec<&str> = numbers.split(signs).map(str::trim).collect();
    numbers.join(&format!(" {word} "))
}

/// The day of the week that begins like this.
pub(super) fn week_day(short: &str) -> &'static str {
    let begins = |day: &&(&str, _)| day.0.starts_with(short);
    WEEKDAYS.iter().find(begins).map_or("", |day| day.0)
}

/// "1999" to "19 99", "1905" to "19 oh 5", "1900" to "19 hundred"; 2000 to 2009 stay numbers.
pub(super) fn year(number: &str) -> String {
    let (century, rest) = number.split_at(2);
    match (century, rest.as_bytes()) {
        ("20", [b'0', _]) => number.to_owned(),
        (_, b"00") => format!("{century} hundred"),
        (_, [b'0', _]) => format!("{century} oh {}", &rest[1..]),
        _ => format!("{century} {rest}"),
    }
}

/// "3:05 PM" to "3 oh 5 PM", "9:00" to "9 o'clock", "15:30" to "15 30", "0:30" to "zero 30".
pub(super) fn time(c: &Captures<'_>) -> String {
    let hour = match c[1].trim_start_matches('0') {
        "" => "zero",
        hour => hour,
    };
    let half = c.get(3).map(|half| half_day(half.as_str()));
    let minutes = match (&c[2], half) {
        ("00", Some(_)) => String::new(),
        ("00", None) if c[1].parse::<u8>().is_ok_and(|hour| hour <= 12) => " o'clock".to_owned(),
        ("00", None) => " hundred".to_owned(),
        (minutes, _) if minutes.starts_with('0') => format!(" oh {}", &minutes[1..]),
        (minutes, _) => format!(" {minutes}"),
    };
    let half = half.map(|half| format!(" {half}")).unwrap_or_default();
    format!("{hour}{minutes}{half}{}", stop(c.get(4).is_some()))
}

/// "AM" or "PM"; espeak reads "A M" as an article and a letter.
pub(super) fn half_day(letter: &str) -> &'static str {
    if letter.eq_ignore_ascii_case("a") {
        "AM"
    } else {
        "PM"
    }
}

/// "$3.50" to "3 dollars and 50 cents", "1.5 million USD" to "1.5 million US dollars". Three groups from
/// `amount` on hold the whole number, decimals and scale. The first matched group of `currencies` names the
/// currency.
pub(super) fn money(
    c: &Captures<'_>,
    minus: &[usize],
    amount: usize,
    currencies: &[usize],
) -> String {
    let group = |at: usize| c.get(at).map_or("", |group| group.as_str());
    let before = group(minus[0]).trim_end_matches('-');
    let minus = minus.iter().any(|at| group(*at).ends_with('-'));
    let minus = if minus { "minus " } else { "" };
    let mut names = currencies.iter().filter_map(|at| money::named(group(*at)));
    let Some(currency) = names.next() else {
        return c[0].to_owned();
    };
    // A comma that ends the amount belongs to the sentence.
    let whole = group(amount).trim_end_matches(',');
    let comma = &group(amount)[whole.len()..];
    let whole = whole.replace(',', "");
    let said = coins(
        &whole,
        group(amount + 1),
        scale(group(amount + 2)),
        currency,
    );
    format!("{before}{minus}{said}{comma}")
}

/// Whether the amount describes something else, as in "a 100 dollar bill" or "a 5 million dollar house": the
/// singular follows a plural number. The name is in group 7.
pub(super) fn names_a_kind(c: &Captures<'_>) -> bool {
    let name = c.get(7).map_or("", |name| name.as_str());
    let is_one = money::named(name).is_some_and(|currency| {
        let (one, many) = currency.whole;
        one != many && name.eq_ignore_ascii_case(one)
    });
    let (is_scaled, has_decimals) = (c.get(4).is_some(), c.get(3).is_some());
    is_one && (is_scaled || !has_decimals && &c[2] != "1")
}

/// "M" to "million".
pub(super) fn scale(written: &str) -> &str {
    match written.trim() {
        "k" | "K" => "thousand",
        "m" | "M" | "mn" => "million",
        "b" | "B" | "bn" => "billion",
        "T" | "tn" => "trillion",
        word => word,
    }
}

/// Words for what a number behind a price counts, with strokes between the words.
const COUNTED: &str = "%|°|AM|PM|adults|bags|beds|bedrooms|books|bottles|calories|children|classes|coffees|courses|cups|customers|days|drinks|guests|hours|hrs|items|kids|kg|km|lbs|lessons|meals|miles|min|minutes|months|nights|orders|packs|pages|passengers|people|persons|photos|pieces|points|products|reviews|rooms|seats|seconds|servings|sessions|slices|spots|stars|stops|tables|tickets|units|users|visits|weeks|years";
/// Names of currencies behind an amount that has a sign, too.
const CURRENCIES: [&str; 5] = ["bucks", "cents", "dollars", "euros", "pounds"];

/// The range "$10k-$20k" without its first sign, unless the first amount has cents: "10 thousand to $20k". The sign is in
/// the group 1, the first amount in 2 and 3, the dash in 4, the second amount in 5 and 6, and in 7 a word or a sign after
/// it. "$5 – 3 items" stays as it is, and "$20 - 5 =" is a difference.
pub(super) fn prices(c: &Captures<'_>) -> String {
    if is_apart(c) {
        return c[0].to_owned();
    }
    let after = c.get(7).map_or("", |after| after.as_str());
    if after.trim() == "=" {
        let group = |at: usize| c.get(at).map_or("", |group| group.as_str());
        let from = format!("{}{}{}", &c[1], &c[2], group(3));
        return format!("{from} minus {}{}{after}", group(5), &c[6]);
    }
    let scale = match c.get(3) {
        Some(written) => format!(" {}", scale(written.as_str())),
        None => String::new(),
    };
    let has_cents = c[2]
        .split_once('.')
        .is_some_and(|(_, decimals)| decimals.len() == 2);
    let sign = if has_cents && scale.is_empty() {
        &c[1]
    } else {
        ""
    };
    let second = match CURRENCIES.contains(&after.trim()) {
        true => "",
        false => &c[1],
    };
    format!("{sign}{}{scale} to {second}{}{after}", &c[2], &c[6])
}

/// Whether the second number of [`prices`] is no price: behind a dash with spaces it has no sign, and is lower or counts
/// something.
fn is_apart(c: &Captures<'_>) -> bool {
    let is_spaced = c[4].trim().len() + 2 == c[4].len();
    let after = c.get(7).map_or("", |after| after.as_str().trim());
    let value = |number: &str| number.replace(',', "").parse::<f64>();
    let falls = matches!((value(&c[2]), value(&c[6])), (Ok(from), Ok(to)) if from > to);
    let is_scaled = c.get(3).is_some()
        || scale(after) != after
        || after.ends_with("illion")
        || after == "thousand";
    let is_counted = COUNTED.split('|').any(|word| word == after);
    is_spaced && c.get(5).is_none() && after != "=" && (is_counted || falls && !is_scaled)
}

/// "rated 4/5" as "rated 4 out of 5", with the groups of the pattern of marks. "Scored 4/5 of the points" stays.
pub(super) fn out_of(c: &Captures<'_>) -> String {
    match c.get(4) {
        Some(_) => c[0].to_owned(),
        None => format!("{}{} out of {}", &c[1], &c[2], &c[3]),
    }
}

/// ("3", ".50") to "3 dollars and 50 cents", ("0", ".50") to "50 cents".
fn coins(whole: &str, decimals: &str, scale: &str, currency: Currency) -> String {
    let (one, many) = currency.whole;
    let bare = decimals.trim_start_matches('.').trim_end_matches('0');
    if !scale.is_empty() {
        let point = if bare.is_empty() { "" } else { "." };
        return format!("{whole}{point}{bare} {scale} {many}");
    }
    let main = format!("{whole} {}", if whole == "1" { one } else { many });
    let small = match (bare.len(), bare.parse::<u32>()) {
        (1, Ok(tenths)) => 10 * tenths,
        (2, Ok(hundredths)) => hundredths,
        _ if bare.is_empty() => return main,
        _ => return format!("{whole}.{bare} {many}"),
    };
    match currency.hundredth {
        None => format!("{whole}.{bare} {many}"),
        Some((one, many)) => {
            let small = format!("{small} {}", if small == 1 { one } else { many });
            match whole {
                "0" => small,
                _ => format!("{main} and {small}"),
            }
        }
    }
}

/// "1/2" to "one half"; unusual fractions to "7 over 9".
pub(super) fn fraction(numerator: &str, denominator: &str) -> String {
    let name = DENOMINATORS
        .iter()
        .find(|(number, _)| *number == denominator);
    match (numerator, name) {
        ("24", None) if denominator == "7" => "24 7".to_owned(),
        ("50" | "20", None) if denominator == numerator => {
            format!("{numerator} {numerator}")
        }
        ("9", None) if denominator == "11" => "9 11".to_owned(),
        (_, Some(("10", _))) if numerator != "1" => format!("{numerator} out of 10"),
        _ if denominator == "100" || numerator == denominator => {
            format!("{numerator} out of {denominator}")
        }
        ("1", Some((_, name))) => format!("1 {name}"),
        (_, Some((_, name))) if *name != "half" => format!("{numerator} {name}s"),
        _ => match name_of_month(numerator, denominator) {
            Some(month) => format!("{month} {}", ordinal(denominator)),
            None => format!("{numerator} over {denominator}"),
        },
    }
}

/// The month of a date as in "12/25", whose day is too large for the denominator of a usual share.
fn name_of_month(month: &str, day: &str) -> Option<&'static str> {
    let is_day = matches!(day.parse::<u8>(), Ok(13..=31)) && day != "20";
    is_day.then(|| name(month)).flatten()
}

/// Kings, queens and popes, whose numbers are ordinals.
const RULERS: &str = "Alexander|Benedict|Catherine|Charles|Christian|Clement|Edward|Elizabeth|Ferdinand|Francis|Frederick|George|Gregory|Gustav|Henry|Innocent|Ivan|James|John|Leo|Louis|Mary|Napoleon|Nicholas|Paul|Peter|Philip|Pius|Ramesses|Ramses|Richard|Urban|Wilhelm|William";
/// Words in lower case before a Roman numeral of one letter.
const NUMBERED: &str = "act|article|chapter|class|part|phase|section|stage|tier|title|type|volume";

/// Words with a capital that name nothing that has a number: "The IV drip".
const UNNUMBERED: &str =
    "An|And|By|Each|For|Her|His|In|My|No|On|Our|Size|That|The|Their|This|Via|With|Your";

/// A Roman numeral in the group 2, the word before it in 1, and in 3 the beginning of the next word behind a dot: "Henry
/// VIII" as "Henry the 8th", "World War II" as "World War 2". A letter alone, an initial and a size are none.
pub(super) fn numeral(c: &Captures<'_>) -> String {
    let is_one_of = |words: &str, word: &str| words.split('|').any(|known| known == word);
    let (word, written) = (&c[1], &c[2]);
    let is_ruler = is_one_of(RULERS, word);
    let is_sure = written.len() > 1 && written != "XL";
    let after = rest(c, 3);
    let is_initial = written.len() == 1 && !after.is_empty();
    let is_numbered = is_sure || is_ruler || is_one_of(NUMBERED, &word.to_lowercase());
    let is_known = is_numbered && !is_initial && !is_one_of(UNNUMBERED, word);
    match roman(written).filter(|_| is_known) {
        Some(value) if is_ruler => {
            format!("{word} the {}{after}", ordinal(&value.to_string()))
        }
        Some(value) => format!("{word} {value}{after}"),
        None => c[0].to_owned(),
    }
}
