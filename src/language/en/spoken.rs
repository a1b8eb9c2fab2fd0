//! Turns written text into words as they are spoken, where espeak-ng would get them wrong.
//!
//! espeak-ng reads plain numbers, decimals, ordinals and acronyms well. But it says "dollar two hundred",
//! "three zero five PM", "one slash two" and "kay em slash aitch". Such text is rewritten here by a table of
//! rules, applied in order.

mod figures;

use super::dates::MONTHS;
use super::money;
use crate::language::spoken::{
    ARROW, BOUND, GAS, INSTANT, PAGE, Phrase, Rules, STEP, Say, bound, cut, digits, instant,
    one_by_one, with_names, written_out,
};
use figures::{
    dashes, date, days_of_month, fraction, groups, half_day, in_threes, joined, measures, money,
    names_a_kind, numeral, ordinal, out_of, parts, prices, scale, seven_digits, short_date, time,
    week_day, year,
};
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
    (
        "m/s²",
        "meter per second squared",
        "meters per second squared",
    ),
    ("MB/s", "megabyte per second", "megabytes per second"),
    ("GB/s", "gigabyte per second", "gigabytes per second"),
    ("km²", "square kilometer", "square kilometers"),
    ("m²", "square meter", "square meters"),
    ("m³", "cubic meter", "cubic meters"),
    ("sq ft", "square foot", "square feet"),
    ("ft²", "square foot", "square feet"),
    ("km", "kilometer", "kilometers"),
    ("cm", "centimeter", "centimeters"),
    ("mm", "millimeter", "millimeters"),
    ("m", "meter", "meters"),
    ("mi", "mile", "miles"),
    ("ft", "foot", "feet"),
    ("kg", "kilogram", "kilograms"),
    ("mg", "milligram", "milligrams"),
    ("µg", "microgram", "micrograms"),
    ("μg", "microgram", "micrograms"),
    ("mcg", "microgram", "micrograms"),
    ("g", "gram", "grams"),
    ("lbs", "pound", "pounds"),
    ("lb", "pound", "pounds"),
    ("oz", "ounce", "ounces"),
    ("tbsp", "tablespoon", "tablespoons"),
    ("tsp", "teaspoon", "teaspoons"),
    ("ml", "milliliter", "milliliters"),
    ("mL", "milliliter", "milliliters"),
    ("L", "liter", "liters"),
    ("kWh", "kilowatt hour", "kilowatt hours"),
    ("kW", "kilowatt", "kilowatts"),
    ("MW", "megawatt", "megawatts"),
    ("W", "watt", "watts"),
    ("mAh", "milliamp hour", "milliamp hours"),
    ("kcal", "kilocalorie", "kilocalories"),
    ("dB", "decibel", "decibels"),
    ("mmHg", "millimeter of mercury", "millimeters of mercury"),
    ("yd", "yard", "yards"),
    ("gal", "gallon", "gallons"),
    ("mpg", "mile per gallon", "miles per gallon"),
    ("rpm", "revolution per minute", "revolutions per minute"),
    ("fps", "frame per second", "frames per second"),
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
    let names = MONTHS.join("|");
    let months = format!("({names})");
    let short = "Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec";
    let days = "(Mon|Tue|Wed|Thu|Fri|Sat|Sun)";
    let nth = "(?:st|nd|rd|th)?";
    let units: Vec<String> = UNITS.iter().map(|unit| regex::escape(unit.0)).collect();
    let (codes, symbols, names_of_money) = (money::codes(), money::symbols(), money::names());
    let units = units.join("|");
    let with_unit = format!(
        r"\d(?::\d\d)?\s?(?:[AaPp]\.?[Mm]\b\.?|{units}|{symbols}|percent\b|degrees\b|st|nd|rd|th)|\d:\d\d"
    );
    let all_units = format!("{units}|{symbols}|percent|degrees");
    let whole_unit = format!(r"(\d)\.0+(\s?(?:{units}|degrees?|percent))($|[^\w/°])");
    let units = format!(r"(\d)\s?({units})(?:\.( [a-z])|($|[^\w/°]))");
    let week_days = "Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun";
    let rate = format!(
        r"(\d|[$€£¥₹]|\b(?i:{names_of_money}|{COINS})|\d ?(?:{MEASURED})) ?/ ?({RATED})(?:\.( [a-z]))?"
    );
    let minus = r#"((?:^|[\s("'])-)?"#;
    let amount =
        r"(\d[\d,]*)(\.\d+)?( ?(?:thousand|million|billion|trillion|bn|mn|tn|M|B)\b|[kmKbT]\b)?";
    vec![
        (PAGE.into(), |c| dotted(&c[1])),
        (INSTANT.into(), |c| instant(c, "at")),
        (SPELLED.into(), |c| format!("{}{}", &c[1], one_by_one(&c[2]))),
        (r"\b([\w.+-]+)@([\w-]+(?:\.[\w-]+)+)\b".into(), |c| format!("{} at {}", letter_by_letter(&c[1]), letter_by_letter(&c[2]))),
        (r"\b(?:www\.)?((?:[A-Za-z][\w-]*\.)+(?:com|org|net|io|dev|gov|edu|ai|co))\b(?:/[\w/-]*)?".into(), |c| dotted(&c[1])),
        (format!(r"\b({short})\.?(\s?[-–]\s?)({short})\b"), |c| format!("{}{}{}", month(&c[1]), &c[2], month(&c[3]))),
        (format!(r"\b({short})\.? (\d{{1,2}})(?:st|nd|rd|th)?\b"), |c| format!("{} {}", month(&c[1]), &c[2])),
        (format!(r"\b({short})\.? (\d{{4}})\b"), |c| format!("{} {}", month(&c[1]), &c[2])),
        (format!(r"\b(\d{{1,2}}) ({short})\b(?:\.( [a-z\d]))?"), |c| format!("{} {}{}", &c[1], month(&c[2]), rest(c, 3))),
        (format!(r"\b({week_days})\.?(,? (?:{names})\b)"), |c| format!("{}{}", week_day(&c[1]), &c[2])),
        (format!(r"\b({week_days})\.(,? [a-z\d])"), |c| format!("{}{}", week_day(&c[1]), &c[2])),
        (format!(r"\b({week_days})(,? \d{{1,2}}(?::\d\d|\s?[AaPp]\.?[Mm]\b))"), |c| format!("{}{}", week_day(&c[1]), &c[2])),
        (r"\b([A-Z](?:-[A-Z0-9])+)\b".into(), |c| c[1].replace('-', " ")),
        (r"\b(\d{4})[-/](\d{2})[-/](\d{2})\b".into(), |c| date(c, &c[2], &c[3], &c[1])),
        (r"\b(\d{1,2})/(\d{1,2})/(\d{4}|\d\d)\b".into(), |c| date(c, &c[1], &c[2], &c[3])),
        (r"\b(\d{1,2})-(\d{1,2})-((?:19|20)\d\d)\b".into(), |c| date(c, &c[1], &c[2], &c[3])),
        (r"\b(\d{1,2})\.(\d{1,2})\.(\d{4})\b".into(), |c| date(c, &c[2], &c[1], &c[3])),
        (r"\b24/7\b".into(), |_| "24 7".into()),
        (r"\b([Oo]n |(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day,? )(\d{1,2})/(\d{1,2})\b".into(), short_date),
        (format!(r"\b{days}(?:[a-z]*day|s|rs|\.)?\s?[-–]\s?{days}(?:[a-z]*day\b|(?:s|rs)?\b(?:\.(\s*$|\s[A-Z])?)?)"), |c| {
            let stop = c.get(3).map_or(String::new(), |rest| format!(".{}", rest.as_str()));
            format!("{} to {}{stop}", week_day(&c[1]), week_day(&c[2]))
        }),
        (format!(r"\b((?:{names})(?: \d{{1,2}}{nth})?)\s?[-–]\s?{months}\b"), |c| format!("{} to {}", &c[1], &c[2])),
        (format!(r"\b{months} (\d{{1,2}}){nth}(\s?[-–]\s?)(\d{{1,2}}){nth}\b(?:,? (\d{{4}})\b)?(:\d|\s?[AaPp]\.?[Mm]\b|\s[a-z])?"), days_of_month),
        (format!(r"\b{months} (\d{{1,2}})(?:st|nd|rd|th)?,? (\d{{4}})\b"), |c| format!("{} {}, {}", &c[1], ordinal(&c[2]), year(&c[3]))),
        (format!(r"\b{months} (\d{{1,2}})\b"), |c| format!("{} {}", &c[1], ordinal(&c[2]))),
        (r"\b((?:19|20)\d\d)\s?[-–]\s?((?:19|20)\d\d)\b".into(), |c| format!("{} to {}", year(&c[1]), year(&c[2]))),
        (format!(r"\b({months}|[Ii]n|[Ss]ince|[Yy]ear|[Uu]ntil) (1[1-9]\d\d|20[1-9]\d)($|[^\d,.:%]|[,.]$|[,.]\s)"), |c| format!("{} {}{}", &c[1], year(&c[3]), &c[4])),
        (r"\b(\d+)\s?h\s?(\d+)\s?m(?:in)?\b".into(), |c| format!("{} hr {} min", &c[1], &c[2])),
        (r"\b(\d+)\s?m(?:in)?\s?(\d+)\s?s\b".into(), |c| format!("{} min {} sec", &c[1], &c[2])),
        (r"\b(\d+)h\b".into(), |c| format!("{} hr", &c[1])),
        (r"\b2000s\b".into(), |_| "2 thousands".into()),
        (r"\b(\d\d)(\d)0s\b".into(), |c| format!("{} {}", &c[1], DECADES[digit(&c[2])])),
        (r"(?i)\b(the|in (?:my|your|his|her|our|their)|early|mid|late|low|lower|high|upper)([ -])'?([2-9])0s\b( (?:timer|countdown|interval|break|delay)\b)?".into(), |c| match c.get(4) {
            Some(_) => c[0].to_owned(),
            None => format!("{}{}{}", &c[1], &c[2], DECADES[digit(&c[3])]),
        }),
        (format!(r"({with_unit})[-–]((?:{symbols})?\d)"), |c| format!("{} to {}", &c[1], &c[2])),
        (r"(\d(?::\d\d)?\s?[AaPp]\.?[Mm]\b\.?|\d:\d\d)\s?[-–]\s?(\d{1,2}(?::\d\d|\s?[AaPp]\.?[Mm]\b))".into(), |c| format!("{} to {}", &c[1], &c[2])),
        (r"(\d(?:st|nd|rd|th))\s?[-–]\s?(\d{1,2}(?:st|nd|rd|th)\b)".into(), |c| format!("{} to {}", &c[1], &c[2])),
        (format!(r"(\d\s?({all_units}))\s?[-–]\s?(\d[\d,.]*\s?({all_units}))(\s?=|$|[^\w/°])"), measures),
        (r"(?i)\b(\d{1,2}):(\d\d)(?::\d\d)?(?:\s?([ap])(?:m\b|\.m\.(\s*$)?))?".into(), time),
        (r"(?i)\b(\d{1,2})\s?([ap])(?:m\b|\.m\.(\s*$)?)".into(), |c| format!("{} {}{}", &c[1], half_day(&c[2]), stop(c.get(3).is_some()))),
        (r"\b\d{4}(?: \d{4}){2,}\b".into(), |c| groups(&c[0])),
        (r"\+\d{1,3}(?:[ .-]\d{2,})+\b".into(), |c| format!("plus {}", groups(&c[0][1..]))),
        (r"\b1[.-]\d{3}[.-]\d{3}[.-]\d{4}\b".into(), |c| groups(&c[0])),
        (r"(?:\+?1[ .-])?\(?\b(\d{3})(?:\)[ .-]?|[ .-])(\d{3})[.-](\d{4})\b".into(), |c| format!("{}, {}, {}", digits(&c[1]), digits(&c[2]), digits(&c[3]))),
        (r"\b\d+(?:-\d+){2,}\b|\b\d{5}-\d{4}\b|\b\d{3} \d{3} \d{4}\b".into(), |c| groups(&c[0])),
        (r"\b(\d{3})-(\d{4})\b".into(), seven_digits),
        (r"\b1-(8\d\d)-([A-Z])".into(), |c| format!("1 {} {}", &c[1], &c[2])),
        (r"(?i)\bext\b\.? ?#?(\d)".into(), |c| format!("extension {}", &c[1])),
        (CODE.into(), |c| format!("{}{}", &c[1], in_threes(&c[2]))),
        (r"\+(\d{7,})\b".into(), |c| format!("plus {}", in_threes(&c[1]))),
        (r"(^|[^\w.,$€£¥₹])(\d{10,})\b".into(), |c| format!("{}{}", &c[1], in_threes(&c[2]))),
        (r"([$€£])(\.\d\d)\b".into(), |c| format!("{}0{}", &c[1], &c[2])),
        (format!(r"((?:{symbols})\d[\d,.]*)\s?[-–]\s?((?:{symbols})\d[\d,.]*\s?=)"), |c| format!("{} minus {}", &c[1], &c[2])),
        (format!(r"({symbols})(\d[\d,.]*)([kKmMbB]|bn)?(\s?[-–]\s?)({symbols})?(\d+(?:[.,]\d+)*)(\s?(?:[A-Za-z]+|[%°=]))?"), prices),
        (format!(r"(\d)\s[-–]\s((?:{symbols})\d)"), |c| format!("{}, {}", &c[1], &c[2])),
        (format!(r"{minus}(?:\b({codes}) ?|({symbols}) ?)(-?){amount}(?: ({codes})\b)?"), |c| money(c, &[1, 4], 5, &[8, 2, 3])),
        (format!(r"{minus}\b{amount} ?(?:({codes})\b|({symbols})|((?i:{names_of_money}))\b)"), |c| match names_a_kind(c) {
            true => c[0].to_owned(),
            false => money(c, &[1], 2, &[5, 6, 7]),
        }),
        (r"(\d) ?¢".into(), |c| format!("{} cents", &c[1])),
        (rate, |c| format!("{} per {}{}", &c[1], written_out(&c[2], RATES), rest(c, 3))),
        (r"(?i)/ ?(second|minute|hour|day|week|month|year|night|person)\b".into(), |c| format!(" per {}", &c[1])),
        (whole_unit, |c| format!("{}{}{}", &c[1], &c[2], &c[3])),
        (r"(\d\.\d+)/(5|10|100)\b".into(), |c| format!("{} out of {}", &c[1], &c[2])),
        (r"\b(\d{1,2})/(5|10)([ -](?:stars?|rating|score|points?)\b)".into(), |c| format!("{} out of {}{}", &c[1], &c[2], &c[3])),
        (MARK.into(), out_of),
        (r"\b(\d+) (\d)/(\d{1,2})\b".into(), |c| format!("{} and {}", &c[1], fraction(&c[2], &c[3]))),
        (r"\b(\d{1,2})/(1[3-57-9]|2[1-9]|3[01])( (?:of|right|correct|points|questions|answers|tasks|steps|votes|seats|items|people)\b)".into(), |c| format!("{} out of {}{}", &c[1], &c[2], &c[3])),
        (r"\b(\d{1,2})/(\d{1,3})\b".into(), |c| fraction(&c[1], &c[2])),
        (r"\b(\d{3})/(\d{2,3})\b".into(), |c| format!("{} over {}", &c[1], &c[2])),
        (r"(\d)[-–](\d[\d,.]*\s?=)".into(), |c| format!("{} minus {}", &c[1], &c[2])),
        (r"(\d)[-–](\d)".into(), |c| format!("{} to {}", &c[1], &c[2])),
        (r"(^|[\s(])-(\d)".into(), |c| format!("{}minus {}", &c[1], &c[2])),
        (r"(?:\b([A-Z]\w*|option|step|room|flight) )?\b(\d[\d,.]*(?: [-–] \d[\d,.]*)+)( =| \d| [AP]M\b| o'clock| oh\b)?".into(), dashes),
        (r"(\d ?°[FC]?) ?/ ?(-?\d)".into(), |c| format!("{}, {}", &c[1], &c[2])),
        (r"(\b|\.)(1 ?)(°[FC]?|km|mile|hr|min|kg|lb|oz|tsp|tbsp)(?:\.( [a-z])|($|[^\w/°]))".into(), one_unit),
        (r"(\d)-(min|hr|sec|km|kg|lb|oz|ft|mm|cm|ml|mL|GB|MB|TB|kWh)\b".into(), |c| format!("{} {}", &c[1], named(&c[2]).map_or(&c[2], |unit| unit.1))),
        (r#"(\d)'\s?(\d{1,2})""#.into(), |c| format!("{} feet {} inches", &c[1], &c[2])),
        (r"(\d)\s?ft\.?\s?(\d{1,2})\s?in\b".into(), |c| format!("{} feet {} inches", &c[1], &c[2])),
        (units, |c| format!("{} {}{}{}", &c[1], unit(&c[2]), rest(c, 3), rest(c, 4))),
        (r"(^|[^\w.,])3M\b( (?:users|people|customers|views|downloads|followers)\b)?".into(), |c| match c.get(2) {
            Some(many) => format!("{}3 million{}", &c[1], many.as_str()),
            None => format!("{}3 M", &c[1]),
        }),
        (r"(\d)(M| ?bn| ?mn)\b|(\.\d+)(B)\b".into(), |c| {
            let group = |one, other| c.get(one).or_else(|| c.get(other)).map_or("", |group| group.as_str());
            format!("{} {}", group(1, 3), scale(group(2, 4)))
        }),
        (r"\b\d{1,3}(?:,\d{3})+\b".into(), |c| c[0].replace(',', "")),
        (r"\b[Vv]?\d+(?:\.\d+){2,}\b".into(), |c| parts(&c[0])),
        (r"(\d)\.(\d+)".into(), |c| format!("{} point {}", &c[1], digits(&c[2]))),
        (r"\b0\d+\b".into(), |c| in_threes(&c[0])),
        (r"/ ?(hr|mo|yr)\b(?:\.( [a-z]))?".into(), |c| format!(" per {}{}", written_out(&c[1], RATES), rest(c, 2))),
        (ADDRESS.into(), street),
        (r"\bSt\.([^\s\w-]| [a-z\d]|\s*$)".into(), |c| format!("Street{}{}", stop(c[1].trim().is_empty()), &c[1])),
        (r"\b(Ave|Blvd|Rd|Hwy|Pkwy|Dept)\.(\s*$)?".into(), |c| format!("{}{}", written_out(&c[1], SHORT), stop(c.get(2).is_some()))),
        (r"\b(Blvd|Rd|Hwy|Pkwy)\b".into(), |c| written_out(&c[1], SHORT)),
        (r"\b(Gov|Sen|Rep|Gen|Capt|Lt|Sgt|Col|Rev)\. ?([A-Z])".into(), |c| format!("{} {}", written_out(&c[1], SHORT), &c[2])),
        (r"\b((?i:apt|rm|ste|sec|ch|vol|fig|art|nos|pp?)|[Ee]st)\. ?(\d)".into(), |c| format!("{} {}", written_out(&c[1].to_lowercase(), SHORT), &c[2])),
        (r"\b(D|M|J|S)r\. ?([\w&])".into(), |c| format!("{} {}", title(&c[1]), &c[2])),
        (r"\b(J|S)r\b\.?(\s*$)?".into(), |c| format!("{}{}", title(&c[1]), stop(c.get(2).is_some()))),
        (r"\b(Inc|Corp|Ltd|Co)\.( [a-z])".into(), |c| format!("{}{}", written_out(&c[1], SHORT), &c[2])),
        (r"\b(World War|Type|Phase|Class|Act|Chapter|Volume) I\b($|[^'])".into(), |c| format!("{} 1{}", &c[1], &c[2])),
        (r"\b([A-Z][a-z]+|part|chapter|type|phase|volume|section) ([IVXL]{2,}|V|X)\b(\. [A-Z])?".into(), numeral),
        (r"([A-Za-z]*[a-z]) ([A-Z])\. ([A-Z][a-z])".into(), initial),
        (r"\b(half|quarters?|thirds?) (tsp|tbsp|oz|gal)\b(?:\.( [a-z]))?".into(), |c| format!("{} {}{}", &c[1], named(&c[2]).map_or(&c[2], |unit| unit.1), rest(c, 3))),
        (r#"^([^'"]*?[\s(]|)(\d{1,3})'(?:\s?[x×]\s?(\d{1,3})')?( |$|[,.;)])"#.into(), |c| match c.get(3) {
            Some(width) => format!("{}{} feet by {} feet{}", &c[1], &c[2], width.as_str(), &c[4]),
            None => format!("{}{} feet{}", &c[1], &c[2], &c[4]),
        }),
        (r"\bPh\.D\b\.?(\s*$)?".into(), |c| format!("PhD{}", stop(c.get(1).is_some()))),
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
        (r"(\d)\s?\^\s?2\b|(\w)²".into(), |c| format!("{} squared", either(c))),
        (r"(\d)\s?\^\s?3\b|(\w)³".into(), |c| format!("{} cubed", either(c))),
        (r"(\w)\s?\^\s?(-?\d)".into(), |c| format!("{} to the power of {}", &c[1], &c[2])),
        (r"\b\d+(?:x\d+)+\b( ?=)?".into(), |c| match c.get(1) {
            Some(_) => c[0].to_owned(),
            None => c[0].replace('x', " by "),
        }),
        (r"\b(\d+(?: point [\d ]+)?)[eE]([+-])(\d{1,2})\b".into(), |c| {
            let minus = if &c[2] == "-" { "minus " } else { "" };
            format!("{} times 10 to the power of {minus}{}", &c[1], &c[3])
        }),
        (r"\d+(?:\s?[*×x]\s?\d+)+".into(), |c| joined(&c[0], &['*', '×', 'x'], "times")),
        (r"([\d)])\s?\*\s?([\d(])".into(), |c| format!("{} times {}", &c[1], &c[2])),
        (r"\s?×\s?".into(), |_| " times ".into()),
        (r"\b(\d+)x\b".into(), |c| format!("{} times", &c[1])),
        (r"\d+(?:\s?[÷/]\s?\d+)+".into(), |c| joined(&c[0], &['÷', '/'], "divided by")),
        (r"\s?÷\s?".into(), |_| " divided by ".into()),
        (r"([\w)²³])\s?\+\s?(\(|\b)".into(), |c| format!("{} plus {}", &c[1], &c[2])),
        (r"(\d)\+".into(), |c| format!("{} plus", &c[1])),
        (r"#\s?(\d)".into(), |c| format!("number {}", &c[1])),
        (r"\bC#".into(), |_| "C sharp".into()),
        (r"\bC\+\+".into(), |_| "C plus plus".into()),
        (r"[~≈]\s?(\d)".into(), |c| format!("about {}", &c[1])),
        (r"\b([Aa]nd)/or\b".into(), |c| format!("{} or", &c[1])),
        (r"\bN/A\b".into(), |_| "not applicable".into()),
        (r"\b(I/O|A/C)\b".into(), |c| c[1].replace('/', " ")),
        (r"\bw/o\b".into(), |_| "without".into()),
        (GAS.into(), |_| "C O 2".into()),
        (r"(\w)/(\w)".into(), |c| format!("{} slash {}", &c[1], &c[2])),
        (r"(\w)@(\w)".into(), |c| format!("{} at {}", &c[1], &c[2])),
        (r"\s?=+\s?".into(), |_| " equals ".into()),
        (r"≥\s?".into(), |_| "at least ".into()),
        (r"≤\s?".into(), |_| "at most ".into()),
        (BOUND.into(), |c| bound(c, "less than", "more than")),
        (STEP.into(), |c| format!("{}, {}", &c[1], &c[2])),
        (ARROW.into(), |_| ", ".into()),
        (r"\s<\s".into(), |_| " less than ".into()),
        (r"\s>\s".into(), |_| " greater than ".into()),
        (r"\s*&\s*".into(), |_| " and ".into()),
        (r"\s?±\s?".into(), |_| " plus or minus ".into()),
        (r"(\d)\s?([½¼¾⅓⅔])".into(), |c| format!("{} and {}", &c[1], glyph(&c[2]))),
        (r"[½¼¾⅓⅔]".into(), |c| glyph(&c[0]).into()),
        (r"\b([A-Za-z]\w*)\.([A-Za-z])".into(), |c| format!("{} dot {}", &c[1], &c[2])),
        (r"\s[-–—]+\s".into(), |_| ", ".into()),
    ]
}

/// Digits after a word for something that people read digit by digit however short it is, in the group 2.
const CODE: &str = r"(?i)\b((?:code|pin|passcode|extension|ending in|(?:order|account|confirmation|reference|tracking|ticket|invoice|case|member|card|flight|booking|reservation) number)(?: is| was|:)? #?)(\d{4,9})\b";

/// Letters and digits, in the group 2, behind a word for something that people spell.
const SPELLED: &str = r#"((?i:\b(?:(?:(?:code|pin|passcode|reference|locator|confirmation)(?: number| code| id)?|(?:order|account|tracking|ticket|invoice|case|member|booking|reservation|serial) (?:number|id))(?: is| was)?[\s:#*"“]+|(?:order|ticket|invoice|case)(?: ?#|: ))))((?:[A-Z0-9]+-)*[A-Z0-9]*(?:[A-Z]-?\d|\d-?[A-Z])[A-Z0-9]*(?:-[A-Z0-9]+)*)\b"#;

/// The number and the name of a street, in the group 1, and its kind in 2; in 3 a dot, and in 4 the capital behind it or
/// the end of the text.
const ADDRESS: &str = r"\b(\d+[A-Z]? (?:[NSEW]\.? )?(?:(?:[A-Z][a-z]\w*|\d+(?:st|nd|rd|th)) ){1,3})(St|Ave|Dr|Ln|Ct|Pl)\b(\.?)( [A-Z]|\s*$)?";

/// Text that matches [`ADDRESS`]. Before a capital, "Dr." may be a title.
fn street(c: &Captures<'_>) -> String {
    let after = rest(c, 4);
    match &c[2] {
        "Dr" if !after.trim().is_empty() => c[0].to_owned(),
        kind => {
            let ends = !c[3].is_empty() && c.get(4).is_some();
            format!("{}{}{}{after}", &c[1], written_out(kind, SHORT), stop(ends))
        }
    }
}

/// Words before a letter that is no initial, with strokes between them.
const LETTERED: &str = "and|answer|building|class|door|exit|gate|grade|group|hall|hepatitis|level|line|option|or|part|plan|platform|point|row|section|size|team|terminal|type|unit|version|vitamin|wing|zone";

/// The initial of a name, in the group 2, without its dot, behind the word in 1. "Vitamin D. Everything" keeps it.
fn initial(c: &Captures<'_>) -> String {
    let before = c[1].to_lowercase();
    match LETTERED.split('|').any(|word| word == before) {
        true => c[0].to_owned(),
        false => format!("{} {} {}", &c[1], &c[2], &c[3]),
    }
}

/// Abbreviations that lose their dot.
const SHORT: &[(&str, &str)] = &[
    ("St", "Street"),
    ("Ave", "Avenue"),
    ("Dr", "Drive"),
    ("Ln", "Lane"),
    ("Ct", "Court"),
    ("Pl", "Place"),
    ("Blvd", "Boulevard"),
    ("Rd", "Road"),
    ("Hwy", "Highway"),
    ("Pkwy", "Parkway"),
    ("Dept", "Department"),
    ("Inc", "Incorporated"),
    ("Corp", "Corporation"),
    ("Ltd", "Limited"),
    ("Co", "Company"),
    ("Gov", "Governor"),
    ("Sen", "Senator"),
    ("Rep", "Representative"),
    ("Gen", "General"),
    ("Capt", "Captain"),
    ("Lt", "Lieutenant"),
    ("Sgt", "Sergeant"),
    ("Col", "Colonel"),
    ("Rev", "Reverend"),
    ("apt", "apartment"),
    ("rm", "room"),
    ("ste", "suite"),
    ("sec", "section"),
    ("ch", "chapter"),
    ("vol", "volume"),
    ("fig", "figure"),
    ("art", "article"),
    ("nos", "numbers"),
    ("p", "page"),
    ("pp", "pages"),
    ("est", "established"),
];

/// A mark after a word that shows one: the word in the group 1, the mark in 2, the best one in 3, and "of" in 4 if it is a
/// share of something.
const MARK: &str = r"(?i)\b((?:(?:rat(?:ed|es|ings?)|scor(?:ed|es?)|reviews?)(?: is| was| of| at| it|:)?(?: an?| about)?|g(?:ave|ives?) (?:it|us|them|him|her) an?) )(\d{1,3})/(5|6|7|10|20|100)\b( of\b)?";

/// Names of money that [`money::names`] leaves out, as alternatives.
const COINS: &str = "pounds?|cents?|pence|penny|centimes?|centavos?|paise|bucks";
/// Measures behind a number and before a stroke, likewise.
const MEASURED: &str = "km|mi|m|ft|kg|mg|g|lbs?|oz|mL|ml|L|l|kWh|kW|W|GB|MB|KB|TB|hrs?|min|sec|miles?|kilometers?|meters?|feet|liters?|gallons?|grams?|kilograms?|watts?|calories|kcal|cal|credits?|tokens?|requests?";
/// Short units behind a stroke, likewise.
const RATED: &str =
    r"(?:hr|h|min|sec|wk|mo|yr|kg|g|lb|oz|km|mi|gal|dL|mL|ml|L|l|kWh|GB|MB|sq ft)\b|m²|ft²";

/// The text of a group, if it is there: the beginning of a word behind the dot of an abbreviation, which is left out
/// then.
fn rest<'a>(c: &'a Captures<'_>, at: usize) -> &'a str {
    c.get(at).map_or("", |group| group.as_str())
}

/// Units after "per", without spaces.
const RATES: &[(&str, &str)] = &[
    ("hr", "hour"),
    ("h", "hour"),
    ("min", "minute"),
    ("sec", "second"),
    ("wk", "week"),
    ("mo", "month"),
    ("yr", "year"),
    ("kg", "kilogram"),
    ("g", "gram"),
    ("lb", "pound"),
    ("oz", "ounce"),
    ("km", "kilometer"),
    ("mi", "mile"),
    ("gal", "gallon"),
    ("dL", "deciliter"),
    ("mL", "milliliter"),
    ("ml", "milliliter"),
    ("L", "liter"),
    ("l", "liter"),
    ("kWh", "kilowatt hour"),
    ("GB", "gigabyte"),
    ("MB", "megabyte"),
    ("sqft", "square foot"),
    ("m²", "square meter"),
    ("ft²", "square foot"),
];

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

fn unit(written: &str) -> &'static str {
    named(written).map_or("", |(_, _, many)| many)
}

/// "1 km" to the singular "1 kilometer", but not "0.1 km" or "21 km".
fn one_unit(c: &Captures<'_>) -> String {
    match named(&c[3]) {
        Some((_, one, _)) if &c[1] != "." => format!("1 {one}{}{}", rest(c, 4), rest(c, 5)),
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
        "½" => "a half",
        "¼" => "a quarter",
        "¾" => "three quarters",
        "⅓" => "a third",
        _ => "two thirds",
    }
}

#[cfg(test)]
mod tests;
