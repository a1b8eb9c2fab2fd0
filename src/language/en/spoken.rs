//! Turns written text into words as they are spoken, where espeak-ng would get them wrong.
//!
//! espeak-ng reads plain numbers, decimals, ordinals and acronyms well. But it says "dollar two hundred",
//! "three zero five PM", "one slash two" and "kay em slash aitch". Such text is rewritten here by a table of
//! rules, applied in order.

use super::dates::MONTHS;
use super::money::{self, Currency};
use crate::language::spoken::{Phrase, Rules, Say, cut, digits, with_names};
use regex::Captures;
use std::sync::LazyLock;

/// Cuts `text` at its marks into spoken phrases of at most `most_words` words.
pub(crate) fn phrases(text: &str, most_words: usize) -> Vec<Phrase> {
    cut(&RULES.applied(text), most_words)
}

/// Units after a number: as written, singular, plural.
const UNITS: &[(&str, &str, &str)] = &[
    ("km/h", "kilometer per hour", "kilometers per hour"),
    ("kph", "kilometer per hour", "kilometers per hour"),
    ("mph", "mile per hour", "miles per hour"),
    ("m/s", "meter per second", "meters per second"),
    ("km", "kilometer", "kilometers"),
    ("cm", "centimeter", "centimeters"),
    ("mm", "millimeter", "millimeters"),
    ("m", "meter", "meters"),
    ("mi", "mile", "miles"),
    ("ft", "foot", "feet"),
    ("kg", "kilogram", "kilograms"),
    ("mg", "milligram", "milligrams"),
    ("g", "gram", "grams"),
    ("lbs", "pound", "pounds"),
    ("lb", "pound", "pounds"),
    ("oz", "ounce", "ounces"),
    ("ml", "milliliter", "milliliters"),
    ("mL", "milliliter", "milliliters"),
    ("L", "liter", "liters"),
    ("kWh", "kilowatt hour", "kilowatt hours"),
    ("kW", "kilowatt", "kilowatts"),
    ("W", "watt", "watts"),
    ("GHz", "gigahertz", "gigahertz"),
    ("MHz", "megahertz", "megahertz"),
    ("kHz", "kilohertz", "kilohertz"),
    ("Hz", "hertz", "hertz"),
    ("Gbps", "gigabit per second", "gigabits per second"),
    ("Mbps", "megabit per second", "megabits per second"),
    ("bpm", "beat per minute", "beats per minute"),
    ("GB", "gigabyte", "gigabytes"),
    ("MB", "megabyte", "megabytes"),
    ("KB", "kilobyte", "kilobytes"),
    ("TB", "terabyte", "terabytes"),
    ("ms", "millisecond", "milliseconds"),
    ("sec", "second", "seconds"),
    ("min", "minute", "minutes"),
    ("hrs", "hour", "hours"),
    ("hr", "hour", "hours"),
    ("°F", "degree Fahrenheit", "degrees Fahrenheit"),
    ("°C", "degree Celsius", "degrees Celsius"),
    ("°", "degree", "degrees"),
    ("%", "percent", "percent"),
];

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

const DECADES: [&str; 10] = [
    "hundreds",
    "tens",
    "twenties",
    "thirties",
    "forties",
    "fifties",
    "sixties",
    "seventies",
    "eighties",
    "nineties",
];

static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::new(rules()));

/// Patterns and how to say them. Order matters: addresses before their dots, dates before ranges,
/// money before units, all of them before single symbols.
fn rules() -> Vec<(String, Say)> {
    let months = format!("({})", MONTHS.join("|"));
    let units: Vec<String> = UNITS.iter().map(|unit| regex::escape(unit.0)).collect();
    let units = units.join("|");
    let whole_unit = format!(r"(\d)\.0+(\s?(?:{units}|degrees?|percent))($|[^\w/°])");
    let units = format!(r"(\d)\s?({units})($|[^\w/°])");
    let (codes, symbols, names) = (money::codes(), money::symbols(), money::names());
    let minus = r#"((?:^|[\s("'])-)?"#;
    let amount = r"(\d[\d,]*)(\.\d+)?( (?:thousand|million|billion|trillion)\b)?";
    vec![
        (r"(?i)\bhttps?://(?:www\.)?([\w.-]*\w)(?:[:/?#]\S*[\w/])?".into(), |c| dotted(&c[1])),
        (r"\b([\w.+-]+)@([\w-]+(?:\.[\w-]+)+)\b".into(), |c| format!("{} at {}", letter_by_letter(&c[1]), letter_by_letter(&c[2]))),
        (r"\b(?:www\.)?((?:[A-Za-z][\w-]*\.)+(?:com|org|net|io|dev|gov|edu|ai|co))\b(?:/[\w/-]*)?".into(), |c| dotted(&c[1])),
        (r"\b(Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec)\. (\d{1,2})\b".into(), |c| format!("{} {}", month(&c[1]), &c[2])),
        (r"\b([A-Z](?:-[A-Z0-9])+)\b".into(), |c| c[1].replace('-', " ")),
        (r"\b(\d{4})-(\d{2})-(\d{2})\b".into(), |c| date(c, &c[2], &c[3], &c[1])),
        (r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b".into(), |c| date(c, &c[1], &c[2], &c[3])),
        (format!(r"\b{months} (\d{{1,2}})(?:st|nd|rd|th)?,? (\d{{4}})\b"), |c| format!("{} {}, {}", &c[1], ordinal(&c[2]), year(&c[3]))),
        (format!(r"\b{months} (\d{{1,2}})\b"), |c| format!("{} {}", &c[1], ordinal(&c[2]))),
        (format!(r"\b({months}|[Ii]n|[Ss]ince|[Yy]ear|[Uu]ntil) (1[1-9]\d\d|20[1-9]\d)($|[^\d,.:%]|[,.]$|[,.]\s)"), |c| format!("{} {}{}", &c[1], year(&c[3]), &c[4])),
        (r"\b(\d\d)(\d)0s\b".into(), |c| format!("{} {}", &c[1], DECADES[digit(&c[2])])),
        (r"(?i)\b(\d{1,2}):(\d\d)(?::\d\d)?(?:\s?([ap])(?:m\b|\.m\.(\s*$)?))?".into(), time),
        (r"(?i)\b(\d{1,2})\s?([ap])(?:m\b|\.m\.(\s*$)?)".into(), |c| format!("{} {}{}", &c[1], half_day(&c[2]), stop(c.get(3).is_some()))),
        (r"\b\d{4}(?: \d{4}){2,}\b".into(), |c| groups(&c[0])),
        (r"\+\d{1,3}(?:[ .-]\d{2,})+\b".into(), |c| format!("plus {}", groups(&c[0][1..]))),
        (r"\b1[.-]\d{3}[.-]\d{3}[.-]\d{4}\b".into(), |c| groups(&c[0])),
        (r"(?:\+?1[ .-])?\(?\b(\d{3})\)?[ .-](\d{3})[.-](\d{4})\b".into(), |c| format!("{}, {}, {}", digits(&c[1]), digits(&c[2]), digits(&c[3]))),
        (r"\b(\d{3})-(\d{4})\b".into(), |c| format!("{}, {}", digits(&c[1]), digits(&c[2]))),
        (format!(r"({symbols})(\d[\d,.]*)\s?[-–]\s?(?:{symbols})?(\d)"), |c| format!("{} to {}{}", &c[2], &c[1], &c[3])),
        (format!(r"{minus}(?:\b({codes}) ?|({symbols}) ?)(-?){amount}(?: ({codes})\b)?"), |c| money(c, &[1, 4], 5, &[8, 2, 3])),
        (format!(r"{minus}\b{amount} ?(?:({codes})\b|({symbols})|((?i:{names}))\b)"), |c| match names_a_kind(c) {
            true => c[0].to_owned(),
            false => money(c, &[1], 2, &[5, 6, 7]),
        }),
        (whole_unit, |c| format!("{}{}{}", &c[1], &c[2], &c[3])),
        (r"\b(\d+) (\d)/(\d{1,2})\b".into(), |c| format!("{} and {}", &c[1], fraction(&c[2], &c[3]))),
        (r"\b(\d{1,2})/(\d{1,3})\b".into(), |c| fraction(&c[1], &c[2])),
        (r"(\d)[-–](\d)".into(), |c| format!("{} to {}", &c[1], &c[2])),
        (r"(^|[\s(])-(\d)".into(), |c| format!("{}minus {}", &c[1], &c[2])),
        (r"(\d) - (\d)".into(), |c| format!("{} minus {}", &c[1], &c[2])),
        (r"(\b|\.)(1 ?)(°[FC]?|km|mile|hr|min|kg|lb|oz)($|[^\w/°])".into(), one_unit),
        (r#"(\d)'\s?(\d{1,2})""#.into(), |c| format!("{} feet {} inches", &c[1], &c[2])),
        (r"(\d)\s?ft\.?\s?(\d{1,2})\s?in\b".into(), |c| format!("{} feet {} inches", &c[1], &c[2])),
        (units, |c| format!("{} {}{}", &c[1], unit(&c[2]), &c[3])),
        (r"\b\d{1,3}(?:,\d{3})+\b".into(), |c| c[0].replace(',', "")),
        (r"\b\d+(?:\.\d+){2,}\b".into(), |c| parts(&c[0])),
        (r"(\d)\.(\d+)".into(), |c| format!("{} point {}", &c[1], digits(&c[2]))),
        (r"\b0\d+\b|\b\d{10,}\b".into(), |c| in_threes(&c[0])),
        (r"(?i)/ ?(second|minute|hour|day|week|month|year|night|person)\b".into(), |c| format!(" per {}", &c[1])),
        (r"\b(D|M|J|S)r\. ?([A-Z])".into(), |c| format!("{} {}", title(&c[1]), &c[2])),
        (r"\bMrs\.".into(), |_| "Missus".into()),
        (r"\bMs\.".into(), |_| "Miz".into()),
        (r"\bProf\.".into(), |_| "Professor".into()),
        (r"\bSt\. ([A-Z])".into(), |c| format!("Saint {}", &c[1])),
        (r"\bMt\. ([A-Z])".into(), |c| format!("Mount {}", &c[1])),
        (r"(?i)\bvs\b\.?".into(), |_| "versus".into()),
        (r"(?i)\be\.g\.,?".into(), |_| "for example,".into()),
        (r"(?i)\bi\.e\.,?".into(), |_| "that is,".into()),
        (r"(?i)\betc\b\.?(\s*$)?".into(), |c| format!("et cetera{}", stop(c.get(1).is_some()))),
        (r"(?i)\bapprox\.".into(), |_| "approximately".into()),
        (r"\b[Nn]o\. ?(\d)".into(), |c| format!("number {}", &c[1])),
        (r"(?i)\b([ap])\.m\.(\s*$)?".into(), |c| format!("{}{}", half_day(&c[1]), stop(c.get(2).is_some()))),
        (r"\b((?:[A-Z]\.){2,})(\s*$)?".into(), |c| format!("{}{}", c[1].replace('.', ""), stop(c.get(2).is_some()))),
        (r"(\d)\s?\^\s?2\b|(\d)²".into(), |c| format!("{} squared", either(c))),
        (r"(\d)\s?\^\s?3\b|(\d)³".into(), |c| format!("{} cubed", either(c))),
        (r"(\w)\s?\^\s?(-?\d)".into(), |c| format!("{} to the power of {}", &c[1], &c[2])),
        (r"(\d)\s?[*×x]\s?(\d)".into(), |c| format!("{} times {}", &c[1], &c[2])),
        (r"\b(\d+)x\b".into(), |c| format!("{} times", &c[1])),
        (r"(\d)\s?[÷/]\s?(\d)".into(), |c| format!("{} divided by {}", &c[1], &c[2])),
        (r"(\w)\s?\+\s?(\w)".into(), |c| format!("{} plus {}", &c[1], &c[2])),
        (r"#\s?(\d)".into(), |c| format!("number {}", &c[1])),
        (r"\bC#".into(), |_| "C sharp".into()),
        (r"\bC\+\+".into(), |_| "C plus plus".into()),
        (r"[~≈]\s?(\d)".into(), |c| format!("about {}", &c[1])),
        (r"\b([Aa]nd)/or\b".into(), |c| format!("{} or", &c[1])),
        (r"(\w)/(\w)".into(), |c| format!("{} slash {}", &c[1], &c[2])),
        (r"(\w)@(\w)".into(), |c| format!("{} at {}", &c[1], &c[2])),
        (r"\s=\s".into(), |_| " equals ".into()),
        (r"\s<\s".into(), |_| " less than ".into()),
        (r"\s>\s".into(), |_| " greater than ".into()),
        (r"\s*&\s*".into(), |_| " and ".into()),
        (r"\s?±\s?".into(), |_| " plus or minus ".into()),
        (r"[½¼¾⅓⅔]".into(), |c| glyph(&c[0]).into()),
        (r"\b([A-Za-z]\w*)\.([A-Za-z])".into(), |c| format!("{} dot {}", &c[1], &c[2])),
        (r"\s[-–—]+\s".into(), |_| ", ".into()),
    ]
}

fn dotted(address: &str) -> String {
    address.replace('.', " dot ").replace(['_', '-'], " ")
}

/// An address with every sign in words, as people say one that somebody is to write down.
fn letter_by_letter(address: &str) -> String {
    let signs = [
        (".", "dot"),
        ("_", "underscore"),
        ("-", "dash"),
        ("+", "plus"),
    ];
    with_names(address, &signs)
}

/// "Jan" to "January".
fn month(short: &str) -> &'static str {
    let begins = |month: &&&str| month.starts_with(&short[..3]);
    MONTHS.iter().find(begins).copied().unwrap_or_default()
}

/// Numbers apart by signs, each digit by digit: "800-555" to "8 0 0, 5 5 5".
fn groups(numbers: &str) -> String {
    let each = numbers.split([' ', '.', '-']).map(digits);
    each.collect::<Vec<_>>().join(", ")
}

/// A long number digit by digit, with a pause after every third: "4837261590" to "4 8 3, 7 2 6, 1 5 9 0".
fn in_threes(number: &str) -> String {
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
fn parts(version: &str) -> String {
    let between = match version.matches('.').count() {
        3 => " dot ",
        _ => " point ",
    };
    version.replace('.', between)
}

/// "1" to "1st".
fn ordinal(number: &str) -> String {
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

/// A spoken date, or the text as written if there is no such month.
fn date(whole: &Captures<'_>, month: &str, day: &str, in_year: &str) -> String {
    let name = month
        .parse::<usize>()
        .ok()
        .and_then(|month| MONTHS.get(month.checked_sub(1)?));
    match name {
        Some(name) => format!("{name} {}, {}", ordinal(day), year(in_year)),
        None => whole[0].replace(['-', '/'], " "),
    }
}

/// "1999" to "19 99", "1905" to "19 oh 5", "1900" to "19 hundred"; 2000 to 2009 stay numbers.
fn year(number: &str) -> String {
    let (century, rest) = number.split_at(2);
    match (century, rest.as_bytes()) {
        ("20", [b'0', _]) => number.to_owned(),
        (_, b"00") => format!("{century} hundred"),
        (_, [b'0', _]) => format!("{century} oh {}", &rest[1..]),
        _ => format!("{century} {rest}"),
    }
}

/// "3:05 PM" to "3 oh 5 PM", "9:00" to "9 o'clock", "15:30" to "15 30", "0:30" to "zero 30".
fn time(c: &Captures<'_>) -> String {
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
fn half_day(letter: &str) -> &'static str {
    if letter.eq_ignore_ascii_case("a") {
        "AM"
    } else {
        "PM"
    }
}

/// "$3.50" to "3 dollars and 50 cents", "1.5 million USD" to "1.5 million US dollars". Three groups from
/// `amount` on hold the whole number, decimals and scale. The first matched group of `currencies` names the
/// currency.
fn money(c: &Captures<'_>, minus: &[usize], amount: usize, currencies: &[usize]) -> String {
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
    let said = coins(&whole, group(amount + 1), group(amount + 2), currency);
    format!("{before}{minus}{said}{comma}")
}

/// Whether the amount describes something else, as in "a 100 dollar bill" or "a 5 million dollar house": the
/// singular follows a plural number. The name is in group 7.
fn names_a_kind(c: &Captures<'_>) -> bool {
    let name = c.get(7).map_or("", |name| name.as_str());
    let is_one = money::named(name).is_some_and(|currency| {
        let (one, many) = currency.whole;
        one != many && name.eq_ignore_ascii_case(one)
    });
    let (is_scaled, has_decimals) = (c.get(4).is_some(), c.get(3).is_some());
    is_one && (is_scaled || !has_decimals && &c[2] != "1")
}

/// ("3", ".50") to "3 dollars and 50 cents", ("0", ".50") to "50 cents".
fn coins(whole: &str, decimals: &str, scale: &str, currency: Currency) -> String {
    let (one, many) = currency.whole;
    let bare = decimals.trim_start_matches('.').trim_end_matches('0');
    if !scale.is_empty() {
        let point = if bare.is_empty() { "" } else { "." };
        return format!("{whole}{point}{bare}{scale} {many}");
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
fn fraction(numerator: &str, denominator: &str) -> String {
    let name = DENOMINATORS
        .iter()
        .find(|(number, _)| *number == denominator);
    match (numerator, name) {
        ("24", None) if denominator == "7" => "24 7".to_owned(),
        ("1", Some((_, name))) => format!("1 {name}"),
        (_, Some((_, name))) if *name != "half" => format!("{numerator} {name}s"),
        _ => format!("{numerator} over {denominator}"),
    }
}

fn unit(written: &str) -> &'static str {
    named(written).map_or("", |(_, _, many)| many)
}

/// "1 km" to the singular "1 kilometer", but not "0.1 km" or "21 km".
fn one_unit(c: &Captures<'_>) -> String {
    match named(&c[3]) {
        Some((_, one, _)) if &c[1] != "." => format!("1 {one}{}", &c[4]),
        _ => c[0].to_owned(),
    }
}

fn named(written: &str) -> Option<(&'static str, &'static str, &'static str)> {
    UNITS.iter().find(|unit| unit.0 == written).copied()
}

fn digit(number: &str) -> usize {
    number.parse().unwrap_or(0)
}

fn title(letter: &str) -> &'static str {
    match letter {
        "D" => "Doctor",
        "M" => "Mister",
        "J" => "Junior",
        _ => "Senior",
    }
}

/// An abbreviation's dot at the end of the text also ends the sentence.
fn stop(at_end: bool) -> &'static str {
    if at_end { "." } else { "" }
}

fn either<'a>(c: &'a Captures<'_>) -> &'a str {
    c.get(1)
        .or_else(|| c.get(2))
        .map_or("", |group| group.as_str())
}

fn glyph(fraction: &str) -> &'static str {
    match fraction {
        "½" => " and a half",
        "¼" => " and a quarter",
        "¾" => " and three quarters",
        "⅓" => " and a third",
        _ => " and two thirds",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_forms_are_said_as_people_say_them() {
        let table = include_str!("spoken.tsv").lines();
        let cases = table.filter(|line| !line.is_empty() && !line.starts_with("# "));
        let mut wrong = Vec::new();
        let mut count = 0;
        for case in cases {
            let (written, said) = case.split_once('\t').unwrap();
            count += 1;
            let spoken = RULES.applied(written);
            if spoken != said {
                wrong.push(format!("{written:?}: {spoken:?}, not {said:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(count >= 150, "{count} cases");
    }

    #[test]
    fn phrases_end_at_marks() {
        let phrases = phrases("Well (really), 1,234 is big. OK?", 12);
        let pairs: Vec<_> = phrases.iter().map(|p| (p.words.as_str(), p.mark)).collect();
        assert_eq!(
            pairs,
            [
                ("Well", Some(',')),
                ("really", Some(',')),
                ("1234 is big", Some('.')),
                ("OK", Some('?'))
            ]
        );
    }

    #[test]
    fn long_phrases_are_cut() {
        let phrases = phrases("one two three four five.", 2);
        let words: Vec<_> = phrases.iter().map(|p| p.words.as_str()).collect();
        assert_eq!(words, ["one two", "three four", "five"]);
        assert_eq!(phrases[1].mark, None);
        assert_eq!(phrases[2].mark, Some('.'));
    }

    #[test]
    fn text_without_words_gives_no_phrase() {
        assert!(phrases("... ?! ()", 12).is_empty());
        assert!(phrases("", 12).is_empty());
    }
}
