//! Fixed answers, and results in words. They state nothing that is not in the result.

use super::when::{self, Asked};
use crate::language::en::numbers::{grouped, plain};
use crate::language::en::{durations, expression, money};
use crate::language::request::Talk;
use crate::language::wording::capitalised;
use crate::tools::{BROKEN, LATE, UNANSWERED, UNCERTAIN};
use serde_json::{Map, Number, Value};
use std::time::Duration;

/// Asked if a timer has no length. Its beginning in the history shows that the user may be answering it.
pub(super) const HOW_LONG: &str = "For how long should I set the timer?";
/// Asked if a reminder has no time.
pub(super) const REMIND_WHEN: &str = "In how long should I remind you?";
/// Asked if several timers may be meant.
pub(super) const WHICH_TIMER: &str = "Which timer should I cancel?";
/// Said before that if some timers are to be kept.
const ONE_OR_ALL: &str = "I can cancel one timer or all of them.";
/// Said to "excuse me" and "I don't understand" if nothing was said before.
pub(super) const SORRY: &str = "Sorry? What can I do for you?";
/// Said before the words that are repeated.
const I_SAID: &str = "I said: ";
/// Said if the user asks not to do something.
pub(super) const LEFT_ALONE: &str = "Okay, I won't.";

/// The answer to small talk. `can` is the text of [`abilities`].
pub(super) fn talk(talk: Talk, can: &str, before: Option<&str>) -> String {
    let fixed = match talk {
        Talk::Greeting => "Hello! What can I do for you?",
        Talk::HowAreYou => "All is well here, thank you. What can I do for you?",
        Talk::Thanks => "You're welcome.",
        Talk::Goodbye => "Goodbye!",
        Talk::WhoAreYou => "I'm undertone's built-in assistant, a small program.",
        Talk::Yes => "Okay. What can I do for you?",
        Talk::No | Talk::Stop | Talk::Wait => "Okay.",
        Talk::WhichSum => "Sorry, I could not make out that sum.",
        Talk::TimeOfDay => {
            "I can only set a timer for a length of time, such as ten minutes, not for a time of day."
        }
        Talk::BadLength => "A timer can run from one second to twenty-four hours.",
        Talk::WhichLength => {
            "That was more than one length of time. For how long should I set the timer?"
        }
        Talk::FixedLength => {
            "I can't change the length of a timer, but you can cancel it and set a new one."
        }
        Talk::WhichTimer => return format!("{ONE_OR_ALL} {WHICH_TIMER}"),
        Talk::Capabilities => return format!("{can} For anything else, connect a language model."),
        Talk::Repeat => return repeat(before),
    };
    fixed.to_owned()
}

fn repeat(before: Option<&str>) -> String {
    match before {
        Some(said) => format!("{I_SAID}{}", said.trim_start_matches(I_SAID)),
        None => "I have not said anything yet.".into(),
    }
}

/// The answer to anything beyond the brain.
pub(super) fn limit(can: &str) -> String {
    format!("I can't do that on my own. {can} For anything else, connect a language model.")
}

/// The answer to a request for a day that its tool does not know. It knows these, or any single day if there are none.
pub(super) fn only_for(days: &[String]) -> String {
    match days {
        [] => "I can only look that up for a single day, such as today or tomorrow.".into(),
        [one] => format!("I can only look that up for {one}."),
        [first @ .., last] => {
            format!(
                "I can only look that up for {} or {last}.",
                first.join(", ")
            )
        }
    }
}

/// The answer to something that is told and asks for nothing.
pub(super) fn told(can: &str) -> String {
    format!("I see. {can}")
}

/// The abilities by available tools: "I can tell the time and keep timers."
pub(super) fn abilities(has: impl Fn(&str) -> bool) -> String {
    let all = [
        ("get_time", "tell the time"),
        ("calculate", "do sums"),
        ("convert_units", "convert units"),
        ("set_timer", "keep timers"),
        ("get_weather", "look up the weather"),
        ("read_calendar", "read your calendar"),
        ("add_note", "keep notes"),
        ("convert_currency", "convert currencies"),
        ("get_balance", "check your balance"),
    ];
    let can: Vec<&str> = all
        .iter()
        .filter(|(tool, _)| has(tool))
        .map(|(_, can)| *can)
        .collect();
    match can.as_slice() {
        [] => "I can only chat a little.".into(),
        [one] => format!("I can {one}."),
        [first @ .., last] => format!("I can {} and {last}.", first.join(", ")),
    }
}

/// A result in words: a sentence for built-in tools, otherwise its text or its entries.
pub(super) fn result(tool: &str, output: &Value, asked: &Asked) -> String {
    if let Some(error) = output.get("error") {
        return failure(tool, &words(error));
    }
    let ours = match tool {
        "get_time" => when::in_words(output, asked),
        "calculate" => sum(output),
        "convert_units" => conversion(output),
        "set_timer" => timer_set(output),
        "list_timers" => timers(output),
        "cancel_timer" => cancelled(output),
        _ => None,
    };
    ours.unwrap_or_else(|| anything(output))
}

/// A failure in one plain sentence. Messages meant for a model are not read out.
fn failure(tool: &str, error: &str) -> String {
    if let Some(place) = error.strip_prefix("unknown place: ") {
        return format!("Sorry, I don't know a place called {place}.");
    }
    if tool == "cancel_timer" && error.contains("say which one") {
        return WHICH_TIMER.into();
    }
    if tool == "cancel_timer" && error == "no timer is running" {
        return "There is no timer running.".into();
    }
    let for_models = [
        "wrong arguments: ",
        "there is no tool named ",
        "the call could not be read",
    ];
    let said = match error {
        BROKEN => "Sorry, that is not working right now.",
        LATE => "Sorry, that took too long.",
        UNCERTAIN | UNANSWERED => {
            "Sorry, I got no clear answer, so I don't know whether that was done."
        }
        error if for_models.iter().any(|begin| error.starts_with(begin)) => {
            "Sorry, I could not make that work."
        }
        error => {
            return format!("Sorry, that did not work: {}.", error.trim_end_matches('.'));
        }
    };
    said.to_owned()
}

fn sum(output: &Value) -> Option<String> {
    let expression = expression::spoken(output.get("expression")?.as_str()?);
    let result = output.get("result")?.as_str()?;
    let result = match result.split_once('e') {
        Some((digits, power)) => format!("{digits} times 10 to the power of {power}"),
        None => separated(result),
    };
    let about = if output.get("approximate")?.as_bool()? {
        "about "
    } else {
        ""
    };
    let expression = capitalised(&expression);
    Some(format!("{expression} is {about}{result}."))
}

fn conversion(output: &Value) -> Option<String> {
    let number = |name: &str| Some(separated(&plain(output.get(name)?.as_f64()?)));
    let about = if output.get("approximate")?.as_bool()? {
        "about "
    } else {
        ""
    };
    let (from, to) = (output.get("from")?.as_str()?, output.get("to")?.as_str()?);
    let from = amount(output.get("value")?.as_f64()?, from);
    Some(format!("{from} is {about}{} {to}.", number("result")?))
}

/// An amount, in feet and inches if it has more than two decimals otherwise: "5 feet 11 inches" for 5.9167 feet.
fn amount(value: f64, unit: &str) -> String {
    let rounded = (value * 100.0).round() / 100.0;
    let inches = (value * 12.0).round();
    if unit == "feet" && rounded != value && (value * 12.0 - inches).abs() < 1e-6 {
        let (feet, inches) = ((inches / 12.0).floor(), inches % 12.0);
        let unit = if inches == 1.0 { "inch" } else { "inches" };
        return format!("{} feet {} {unit}", plain(feet), plain(inches));
    }
    format!("{} {unit}", separated(&plain(value)))
}

/// A number with separators from ten thousand on: "4,294,967,296". Without them a long one is read out digit by digit.
fn separated(number: &str) -> String {
    let (minus, digits) = match number.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", number),
    };
    let (whole, decimals) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    match whole.len() >= 5 && whole.bytes().all(|digit| digit.is_ascii_digit()) {
        true => format!("{minus}{}{decimals}", grouped(whole, ',')),
        false => number.to_owned(),
    }
}

fn timer_set(output: &Value) -> Option<String> {
    let name = timer_name(output)?;
    let article = article(&name);
    Some(format!("Okay, {article} {name} is set."))
}

/// "an 8 minute timer", "a 10 minute timer".
fn article(name: &str) -> &'static str {
    let number: String = name.chars().take_while(char::is_ascii_digit).collect();
    let vowel = number.starts_with('8') || number == "11" || number == "18";
    if vowel { "an" } else { "a" }
}

/// "10 minute timer for pasta"
fn timer_name(timer: &Value) -> Option<String> {
    let length = length(timer, "seconds", false)?;
    Some(match timer.get("label").and_then(Value::as_str) {
        Some(label) => format!("{length} timer for {label}"),
        None => format!("{length} timer"),
    })
}

fn length(timer: &Value, field: &str, plural: bool) -> Option<String> {
    let seconds = timer.get(field)?.as_u64()?;
    Some(durations::in_words(Duration::from_secs(seconds), plural))
}

fn timers(output: &Value) -> Option<String> {
    let timers = output.get("timers")?.as_array()?;
    let one = |timer: &Value| {
        let name = timer_name(timer)?;
        let left = length(timer, "remaining_seconds", true)?;
        Some(format!("{} {name} with {left} left", article(&name)))
    };
    let each: Vec<String> = timers.iter().map(one).collect::<Option<_>>()?;
    Some(match each.as_slice() {
        [] => "You have no timers running.".into(),
        [one] => format!("You have {one}."),
        several => format!("You have {} timers: {}.", several.len(), several.join("; ")),
    })
}

fn cancelled(output: &Value) -> Option<String> {
    let timers = output.get("cancelled")?.as_array()?;
    Some(match timers.as_slice() {
        [one] => format!("Okay, the {} is cancelled.", timer_name(one)?),
        several => format!("Okay, {} timers are cancelled.", several.len()),
    })
}

/// The most characters and entries of any other tool's result that are read out.
const MOST_CHARS: usize = 300;
const MOST_ENTRIES: usize = 8;

/// A result of any other tool: text as it is, an object as "key: value".
pub(super) fn anything(output: &Value) -> String {
    let said = match output {
        Value::Null => "Done.".to_owned(),
        Value::Object(entries) if entries.is_empty() => "Done.".to_owned(),
        Value::Object(entries) => phrases(entries),
        Value::Array(items) if items.is_empty() => "There is nothing.".to_owned(),
        other => words(other),
    };
    let short: String = said.chars().take(MOST_CHARS).collect();
    let ended = short.ends_with(['.', '!', '?']);
    if ended { short } else { format!("{short}.") }
}

fn phrases(entries: &Map<String, Value>) -> String {
    let currency = currency(entries);
    let is_code = |key: &str| currency.is_some() && CURRENCY_KEYS.contains(&key);
    let numbers = entries.values().filter(|value| value.is_number()).count();
    let phrase = |(key, value): (&String, &Value)| {
        let is_amount = numbers == 1 || AMOUNT_KEYS.iter().any(|amount| key.contains(amount));
        let said = match (currency, value) {
            (Some(currency), Value::Number(number)) if is_amount => {
                money::written(&digits(number), currency)
            }
            _ => words(value),
        };
        format!("{}: {said}", key.replace(['_', '-'], " "))
    };
    entries
        .iter()
        .filter(|(key, _)| !is_code(key))
        .take(MOST_ENTRIES)
        .map(phrase)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Keys that name the currency of a result's amounts.
const CURRENCY_KEYS: [&str; 2] = ["currency", "currency_code"];
/// Keys of amounts, for results with other numbers.
const AMOUNT_KEYS: [&str; 7] = ["amount", "balance", "cost", "fee", "price", "sum", "total"];

fn currency(entries: &Map<String, Value>) -> Option<money::Currency> {
    let codes = CURRENCY_KEYS.iter().filter_map(|key| entries.get(*key));
    codes.filter_map(|code| money::named(code.as_str()?)).next()
}

/// 12500 for 12500.0.
fn digits(number: &Number) -> String {
    let float = number.as_f64().filter(|_| number.is_f64());
    float.map_or_else(|| number.to_string(), plain)
}

fn words(value: &Value) -> String {
    match value {
        Value::String(text) => money::spelled(text.trim()),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::Null => "nothing".into(),
        Value::Number(number) => digits(number),
        Value::Array(items) => items
            .iter()
            .take(MOST_ENTRIES)
            .map(words)
            .collect::<Vec<_>>()
            .join(", "),
        Value::Object(entries) => phrases(entries),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn results_are_said_in_words() {
        let say = |tool, output| result(tool, &output, &Asked::Time);
        let tokyo =
            json!({"place": "Tokyo", "time": "3:05 PM", "date": "Friday", "zone": "Asia/Tokyo"});
        assert_eq!(say("get_time", tokyo.clone()), "It's 3:05 PM in Tokyo.");
        assert_eq!(
            result("get_time", &tokyo, &Asked::Date),
            "It's Friday in Tokyo."
        );
        let error = json!({"error": "unknown place: Atlantis"});
        assert_eq!(
            say("get_time", error),
            "Sorry, I don't know a place called Atlantis."
        );
        let sum = json!({"expression": "12 * 7", "result": "84", "approximate": false});
        assert_eq!(say("calculate", sum), "12 times 7 is 84.");
        let power = json!({"expression": "2 ^ 32", "result": "4294967296", "approximate": false});
        assert_eq!(
            say("calculate", power),
            "2 to the power of 32 is 4,294,967,296."
        );
        let miles = json!({"value": 5.0, "from": "miles", "result": 8.05, "to": "kilometers", "approximate": true});
        assert_eq!(
            say("convert_units", miles),
            "5 miles is about 8.05 kilometers."
        );
        for (value, from, said) in [
            (0.125, "liters", "0.125 liters is 1 m."),
            (5.5, "feet", "5.5 feet is 1 m."),
            (5.0 + 11.0 / 12.0, "feet", "5 feet 11 inches is 1 m."),
            (5.0 + 1.0 / 12.0, "feet", "5 feet 1 inch is 1 m."),
        ] {
            let output = json!({"value": value, "from": from, "result": 1.0, "to": "m", "approximate": false});
            assert_eq!(say("convert_units", output), said);
        }
        let set = json!({"id": 1, "seconds": 600, "remaining_seconds": 600});
        assert_eq!(
            say("set_timer", set.clone()),
            "Okay, a 10 minute timer is set."
        );
        let list = json!({"timers": [set, {"id": 2, "seconds": 480, "remaining_seconds": 61, "label": "tea"}]});
        assert_eq!(
            say("list_timers", list),
            "You have 2 timers: a 10 minute timer with 10 minutes left; an 8 minute timer for tea with 1 minute and 1 second left."
        );
        assert_eq!(
            say("get_weather", json!("Sunny, 20 degrees")),
            "Sunny, 20 degrees."
        );
        assert_eq!(
            say("get_weather", json!({"sky_state": "clear", "temp": 20})),
            "sky state: clear, temp: 20."
        );
    }

    #[test]
    fn amounts_in_results_of_other_tools_are_spelled_out() {
        let say = |output| result("probe", &output, &Asked::Time);
        for (output, said) in [
            (json!("You have 12500.0 USD"), "You have 12,500 US dollars."),
            (
                json!({"balance": 12500.0, "currency": "USD"}),
                "balance: 12,500 US dollars.",
            ),
            (
                json!({"account": 4711, "balance": -3.5, "currency": "EUR"}),
                "account: 4711, balance: -3.50 euros.",
            ),
            (
                json!({"rooms": 3, "price": 80, "currency_code": "GBP"}),
                "rooms: 3, price: 80 British pounds.",
            ),
            (
                json!({"price": 80, "currency": "gold"}),
                "price: 80, currency: gold.",
            ),
            (
                json!({"temperature": 20.0, "id": 123_456}),
                "temperature: 20, id: 123456.",
            ),
            (json!(12500.0), "12500."),
            (json!(u64::MAX), "18446744073709551615."),
        ] {
            assert_eq!(say(output), said);
        }
    }

    /// They were read out digit by digit, as telephone numbers are.
    #[test]
    fn a_long_result_is_read_out_as_one_number() {
        for (number, written) in [
            ("9999", "9999"),
            ("10000", "10,000"),
            ("-26400.5", "-26,400.5"),
            ("4294967296", "4,294,967,296"),
        ] {
            assert_eq!(separated(number), written);
        }
        let bytes = json!({"value": 1.0, "from": "gigabytes", "result": 1e9, "to": "bytes", "approximate": false});
        let said = result("convert_units", &bytes, &Asked::Time);
        assert_eq!(said, "1 gigabytes is 1,000,000,000 bytes.");
        let spoken = crate::language::pack(None).spoken(&said, 20);
        let words: Vec<&str> = spoken.iter().map(|phrase| phrase.words.as_str()).collect();
        assert!(words.join(" ").contains("1000000000 bytes"), "{words:?}");
    }

    #[test]
    fn a_failure_is_one_plain_sentence() {
        use crate::tools::ToolError;
        let lookup =
            "api.example.com: failed to lookup address information: Name or service not known";
        for (error, said) in [
            (
                ToolError::Broken(lookup.into()),
                "Sorry, that is not working right now.",
            ),
            (ToolError::Timeout(3_000), "Sorry, that took too long."),
            (
                ToolError::Uncertain("it printed no JSON".into()),
                "Sorry, I got no clear answer, so I don't know whether that was done.",
            ),
            (
                ToolError::Unanswered(3_000),
                "Sorry, I got no clear answer, so I don't know whether that was done.",
            ),
            (
                ToolError::Arguments("amount: \"x\" is not of type \"number\"".into()),
                "Sorry, I could not make that work.",
            ),
            (
                ToolError::Unknown("x_y".into()),
                "Sorry, I could not make that work.",
            ),
            (
                ToolError::Failed("not found".into()),
                "Sorry, that did not work: not found.",
            ),
        ] {
            let output = json!({ "error": error.to_string() });
            assert_eq!(result("convert_currency", &output, &Asked::Time), said);
        }
    }
}
