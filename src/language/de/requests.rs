//! The built-in assistant in German: what it understands and what it says.

use super::numbers::normalise;
use super::words::{DAYS, MONTHS};
use crate::language::grammar::{Grammar, Reader};
use crate::language::request::Talk;
use crate::language::wording::{self, Sum, Wording, capitalised};
use serde_json::{Map, Value};
use std::sync::LazyLock;
use std::time::Duration;

static GRAMMAR: Grammar = Grammar {
    leads: "äh+m?|ähm|also|so|okay|ok|gut|hallo|hi|hey|guten tag|guten morgen|guten abend|ja|bitte|danke|entschuldigung|entschuldigen sie|und|dann|jetzt|nun|mal|sag mal|sagen sie mal|sag mir|sagen sie mir|kannst du mir sagen|können sie mir sagen|könntest du mir sagen|könnten sie mir sagen|weißt du|wissen sie|ich wüsste gerne?|ich würde gerne? wissen|ich möchte wissen|undertone|computer",
    tails: "bitte|danke|mal|denn|dann|doch|eigentlich|gerade|jetzt|gerade jetzt|momentan|im moment|aktuell|so|für mich|bitte sehr",
    refused: r"\b(?:nicht|kein|keine|keinen|lass das|lassen sie das|vergiss)\b",
    talk: &[
        (
            "hallo|hi|hey|guten tag|guten morgen|guten abend|grüß gott|servus|moin|hallo zusammen",
            Talk::Greeting,
        ),
        (
            "wie geht es (?:dir|ihnen)|wie gehts|wie geht's|wie geht s|alles klar bei (?:dir|ihnen)",
            Talk::HowAreYou,
        ),
        (
            "danke|danke schön|dankeschön|vielen dank|danke sehr|besten dank|danke für (?:die|deine|ihre) hilfe",
            Talk::Thanks,
        ),
        (
            "(?:okay |gut |danke )?(?:tschüss|tschüs|auf wiedersehen|auf wiederhören|ciao|bis bald|bis dann|mach's gut|mach s gut|das war's|das war alles|das wars)",
            Talk::Goodbye,
        ),
        (
            "wer bist du|wer sind sie|wie heißt du|wie heißen sie|was bist du",
            Talk::WhoAreYou,
        ),
        (
            "was kannst du(?: alles| tun| machen)?|was können sie(?: alles| tun| machen)?|hilfe|womit können sie mir helfen|wobei kannst du mir helfen",
            Talk::Capabilities,
        ),
        (
            "wie bitte|was|(?:bitte )?(?:noch ?mal|noch einmal)(?: bitte)?|wiederhol das|wiederhole das|wiederholen sie das|können sie das wiederholen|kannst du das wiederholen",
            Talk::Repeat,
        ),
        ("ja|jawohl|genau|klar|okay|ok|gerne", Talk::Yes),
        ("nein|nee|nö|nein danke", Talk::No),
        (
            "stopp|stop|halt|sei still|ruhe|hör auf|hören sie auf|vergiss es|vergessen sie es|schon gut|abbrechen",
            Talk::Stop,
        ),
    ],
    time: r"\b(?:wie spät|wie ?viel uhr|welche uhrzeit|die uhrzeit|uhrzeit)\b",
    date: r"\b(?:welcher tag|welcher wochentag|welchen tag|welches datum|das datum|den wievielten|der wievielte|welches jahr|welcher monat)\b",
    place: r"\b(?:in|auf|bei) (?:der |den |dem )?(?P<place>[\p{L}' ]+?)(?: ist es| es ist)?$",
    timer: r"\b(?:timer|wecker|kurzzeitwecker|countdown|eieruhr|küchenuhr)\b|\bweck(?:e|en sie)? mich\b",
    cancel: r"\b(?:stopp|stoppe|stoppen|lösch|lösche|löschen|beende|beenden|abbrechen|brich|breche|brechen|entferne|entfernen|storniere|stornieren|aus|ausschalten|ausmachen|abstellen|stell .* ab|schalte .* ab)\b",
    list: r"\b(?:welche|wie viele|wieviele|wie lange|wie viel zeit|wieviel zeit|laufen|läuft|liste|zeig|zeige|noch)\b",
    all: r"\b(?:alle|sämtliche|jeden)\b",
    time_of_day: r"\b(?:um|gegen|bis) \d{1,2}(?: \d{1,2})?(?: uhr)?\b|\bmorgen\b",
    weather: r"\b(?:wetter|wettervorhersage|regnet es|wird es regnen|schneit es|wie (?:warm|kalt|heiß) (?:ist|wird))\b",
    days: &[(r"\bmorgen\b", "tomorrow"), (r"\bheute\b", "today")],
    label: r"\bfür (?:die |den |das |meine |meinen |mein )?(?P<label>\p{L}+(?: \p{L}+)?)$",
    lengths: &[
        (r"\b(?:eine |einer )?dreiviertel ?stunde\b", "45 minuten"),
        (r"\b(?:eine |einer )?viertel ?stunde\b", "15 minuten"),
        (r"\b(?:eine |einer )?halbe[nr]? stunde\b", "30 minuten"),
        (r"\b(?:eine |einer )?halbe[nr]? minute\b", "30 sekunden"),
        (
            r"\b(?:eine?|einer|eines|1) (stunde|minute|sekunde)\b",
            "1 $1",
        ),
    ],
    units_of_time: ["stunden?|std", "minuten?|min", "sekunden?|sek"],
    sum: r"^(?:(?:was|wie ?viel) (?:ist|sind|ergibt|macht|gibt)|berechne|berechnen sie|rechne|rechnen sie|was kommt heraus bei) (?P<sum>.+?)(?: aus)?$",
    operations: &[
        (r"\b(?:prozent|%) (?:von|aus)\b", "% of"),
        (r"(\d) ?% ?(?:von|aus|of)\b", "$1% of"),
        (
            r"\b(?:der |die )?(?:quadrat)?wurzel (?:aus|von) (\d+(?:\.\d+)?)",
            "sqrt($1)",
        ),
        (r"\b(?:zum|im) quadrat\b", "^ 2"),
        (r"\bhoch\b", "^"),
        (r"\b(?:geteilt|dividiert) durch\b|\bdurch\b", "/"),
        (r"\b(?:multipliziert mit|mal)\b|×", "*"),
        (r"\b(?:plus|und)\b", "+"),
        (r"\b(?:minus|weniger)\b", "-"),
        (r"\b(?:die hälfte von)\b", "0.5 *"),
        (r"\b(?:das doppelte von)\b", "2 *"),
    ],
    conversions: &[
        r"^(?:wie ?viele?|was) (?P<to>\p{L}+) (?:sind|ist|hat|haben|ergeben) (?P<value>-?\d+(?:\.\d+)?|ein|eine) (?:grad )?(?P<from>\p{L}+)$",
        r"^(?:wie ?viel|was) (?:sind|ist) (?P<value>-?\d+(?:\.\d+)?) (?:grad )?(?P<from>\p{L}+) in (?:grad )?(?P<to>\p{L}+)$",
        r"^(?:rechne|rechnen sie|konvertiere|wandle) (?P<value>-?\d+(?:\.\d+)?) (?:grad )?(?P<from>\p{L}+) in (?:grad )?(?P<to>\p{L}+)(?: um)?$",
        r"^(?P<value>-?\d+(?:\.\d+)?) (?:grad )?(?P<from>\p{L}+) in (?:grad )?(?P<to>\p{L}+)$",
    ],
    units: &[
        ("millimeters", &["millimeter", "millimeter", "millimetern"]),
        ("centimeters", &["zentimeter", "zentimeter", "zentimetern"]),
        ("meters", &["meter", "meter", "metern"]),
        ("kilometers", &["kilometer", "kilometer", "kilometern"]),
        ("inches", &["zoll", "zoll"]),
        ("feet", &["fuß", "fuß"]),
        ("yards", &["yard", "yards"]),
        ("miles", &["meile", "meilen"]),
        ("grams", &["gramm", "gramm"]),
        ("kilograms", &["kilogramm", "kilogramm", "kilo", "kilos"]),
        ("pounds", &["pfund", "pfund"]),
        ("ounces", &["unze", "unzen"]),
        ("milliliters", &["milliliter", "milliliter", "millilitern"]),
        ("liters", &["liter", "liter", "litern"]),
        ("gallons", &["gallone", "gallonen"]),
        (
            "degrees Celsius",
            &["grad celsius", "grad celsius", "celsius"],
        ),
        (
            "degrees Fahrenheit",
            &["grad fahrenheit", "grad fahrenheit", "fahrenheit"],
        ),
        ("seconds", &["sekunde", "sekunden"]),
        ("minutes", &["minute", "minuten"]),
        ("hours", &["stunde", "stunden"]),
        ("days", &["tag", "tage", "tagen"]),
        ("weeks", &["woche", "wochen"]),
    ],
    places: &[
        ("tokio", "tokyo"),
        ("mailand", "milan"),
        ("rom", "rome"),
        ("venedig", "venice"),
        ("neapel", "naples"),
        ("florenz", "florence"),
        ("münchen", "munich"),
        ("köln", "cologne"),
        ("wien", "vienna"),
        ("zürich", "zurich"),
        ("genf", "geneva"),
        ("prag", "prague"),
        ("warschau", "warsaw"),
        ("moskau", "moscow"),
        ("kopenhagen", "copenhagen"),
        ("brüssel", "brussels"),
        ("lissabon", "lisbon"),
        ("athen", "athens"),
        ("peking", "beijing"),
        ("kairo", "cairo"),
        ("neu delhi", "new delhi"),
        ("singapur", "singapore"),
        ("havanna", "havana"),
        ("mexiko stadt", "mexico city"),
        ("deutschland", "germany"),
        ("österreich", "austria"),
        ("schweiz", "switzerland"),
        ("spanien", "spain"),
        ("frankreich", "france"),
        ("italien", "italy"),
        ("japan", "japan"),
        ("indien", "india"),
        ("australien", "australia"),
        ("kalifornien", "california"),
        ("türkei", "turkey"),
        ("griechenland", "greece"),
    ],
    and: " und ",
    normalise,
};

static READER: LazyLock<Option<Reader>> = LazyLock::new(|| Reader::new(&GRAMMAR).ok());

pub(super) static WORDING: Wording = Wording {
    greeting: "Hallo! Was kann ich für Sie tun?",
    how_are_you: "Danke, hier ist alles in Ordnung. Was kann ich für Sie tun?",
    welcome: "Gern geschehen.",
    goodbye: "Auf Wiederhören!",
    who_are_you: "Ich bin der eingebaute Assistent von undertone, ein kleines Programm.",
    go_on: "Gut. Was kann ich für Sie tun?",
    okay: "Gut.",
    which_sum: "Entschuldigung, diese Rechnung habe ich nicht verstanden.",
    time_of_day: "Einen Timer kann ich nur auf eine Dauer stellen, etwa zehn Minuten, nicht auf eine Uhrzeit.",
    bad_length: "Ein Timer kann von einer Sekunde bis zu vierundzwanzig Stunden laufen.",
    which_length: "Das war mehr als eine Dauer. Wie lange soll der Timer laufen?",
    how_long: "Wie lange soll der Timer laufen?",
    which_timer: "Welchen Timer soll ich beenden?",
    where_to: "Für welchen Ort?",
    left_alone: "Gut, dann lasse ich es.",
    can: "Ich kann {}.",
    can_chat: "Ich kann nur ein wenig plaudern.",
    and: "und",
    abilities: &[
        ("get_time", "die Uhrzeit sagen"),
        ("calculate", "rechnen"),
        ("convert_units", "Einheiten umrechnen"),
        ("set_timer", "Timer stellen"),
        ("get_weather", "das Wetter nachsehen"),
    ],
    beyond: "Das kann ich allein nicht.",
    connect: "Für alles andere braucht es ein Sprachmodell.",
    i_said: "Ich sagte: {}",
    nothing_said: "Ich habe noch nichts gesagt.",
    done_before: "Das war schon erledigt.",
    done: "Erledigt.",
    need: "Dafür brauche ich noch eine Angabe: {}.",
    broken: "Entschuldigung, das funktioniert gerade nicht.",
    late: "Entschuldigung, das hat zu lange gedauert.",
    no_use: "Entschuldigung, das hat nicht geklappt.",
    unknown_place: "Einen Ort namens {} kenne ich leider nicht.",
    no_timer: "Es läuft kein Timer.",
    negations: &["nicht", "kein", "keine", "keinen", "nie"],
    requests: |said| {
        READER
            .as_ref()
            .map_or_else(Vec::new, |reader| reader.requests(said))
    },
    timer_of: |said| READER.as_ref()?.timer_of(said),
    result,
    question,
    rings: |length, label| match label {
        Some(label) => format!("Der Timer für {label} ist abgelaufen."),
        None => format!("Der Timer auf {} ist abgelaufen.", lasting(length)),
    },
};

fn result(tool: &str, output: &Value, said: &str) -> Option<String> {
    let reader = READER.as_ref()?;
    match tool {
        "get_time" => time(reader, output, said),
        "calculate" => sum(output),
        "convert_units" => conversion(reader, output),
        "set_timer" => Some(format!("Gut, {} läuft.", timer(output, "der Timer")?)),
        "list_timers" => timers(output),
        "cancel_timer" => cancelled(output),
        "get_weather" => weather(reader, output),
        _ => None,
    }
}

fn question(tool: &str, arguments: &Map<String, Value>) -> Option<String> {
    Some(match tool {
        "set_timer" => {
            let timer = timer(&Value::Object(arguments.clone()), "einen Timer")?;
            format!("Soll ich {timer} stellen?")
        }
        "cancel_timer" => "Soll ich den Timer beenden?".into(),
        _ => return None,
    })
}

/// "Es ist 15 Uhr 5 in Tokio."
fn time(reader: &Reader, output: &Value, said: &str) -> Option<String> {
    let field = |name: &str| output.get(name)?.as_str();
    let what = if reader.asks_for_date(said) {
        let (day_of_week, month, day, year) = wording::date(field("date")?)?;
        let (day_of_week, month) = (DAYS.get(day_of_week)?, MONTHS.get(month)?);
        format!("{day_of_week}, der {day}. {month} {year}")
    } else {
        match wording::clock(field("time")?)? {
            (hour, 0) => format!("{hour} Uhr"),
            (hour, minute) => format!("{hour} Uhr {minute}"),
        }
    };
    Some(match field("place") {
        Some(place) => format!("Es ist {what} in {}.", reader.place_here(place)),
        None => format!("Es ist {what}."),
    })
}

/// "12 mal 7 ist 84."
fn sum(output: &Value) -> Option<String> {
    let signs = [
        ("% of", " Prozent von"),
        ("sqrt(", "die Wurzel aus "),
        (")", ""),
        ("(", ""),
        ("*", "mal"),
        ("/", "geteilt durch"),
        ("^", "hoch"),
        ("+", "plus"),
        (" - ", " minus "),
    ];
    let sum = Sum::of(output, &signs, "mal 10 hoch")?;
    let about = if sum.is_rounded { "etwa " } else { "" };
    let words = capitalised(&sum.expression);
    Some(format!("{words} ist {about}{}.", sum.result))
}

/// "5 Meilen sind etwa 8,05 Kilometer."
fn conversion(reader: &Reader, output: &Value) -> Option<String> {
    let side = |value: &str, unit: &str| {
        let number = wording::number(output.get(value)?.as_f64()?);
        let unit = reader.unit_here(output.get(unit)?.as_str()?, &number);
        // Units are nouns: "Meilen", but "Grad Celsius".
        let unit: Vec<String> = unit.split(' ').map(capitalised).collect();
        Some((format!("{number} {}", unit.join(" ")), number == "1"))
    };
    let about = if output.get("approximate")?.as_bool()? {
        "etwa "
    } else {
        ""
    };
    let ((from, one), (to, _)) = (side("value", "from")?, side("result", "to")?);
    let verb = if one { "ist" } else { "sind" };
    Some(format!("{from} {verb} {about}{to}."))
}

fn lasting(length: Duration) -> String {
    let units = [
        ("Stunde", "Stunden"),
        ("Minute", "Minuten"),
        ("Sekunde", "Sekunden"),
    ];
    wording::length(length, units, "und")
}

/// "der Timer auf 10 Minuten für Pasta"
fn timer(timer: &Value, noun: &str) -> Option<String> {
    let length = lasting(wording::seconds(timer, "seconds")?);
    Some(match timer.get("label").and_then(Value::as_str) {
        Some(label) => format!("{noun} auf {length} für {}", capitalised(label)),
        None => format!("{noun} auf {length}"),
    })
}

fn timers(output: &Value) -> Option<String> {
    let one = |each: &Value| {
        let left = lasting(wording::seconds(each, "remaining_seconds")?);
        Some(format!("{}, noch {left}", timer(each, "einer")?))
    };
    let timers = output.get("timers")?.as_array()?;
    let each: Vec<String> = timers.iter().map(one).collect::<Option<_>>()?;
    Some(match each.as_slice() {
        [] => WORDING.no_timer.into(),
        [one] => format!("Es läuft {one}.").replacen("einer", "ein Timer", 1),
        several => format!("Es laufen {} Timer: {}.", several.len(), several.join("; ")),
    })
}

fn cancelled(output: &Value) -> Option<String> {
    let timers = output.get("cancelled")?.as_array()?;
    Some(match timers.as_slice() {
        [one] => format!("Gut, {} ist beendet.", timer(one, "der Timer")?),
        several => format!("Gut, {} Timer sind beendet.", several.len()),
    })
}

/// "In Berlin sind es 12 Grad, und es ist bewölkt."
fn weather(reader: &Reader, output: &Value) -> Option<String> {
    let field = |name: &str| output.get(name)?.as_str();
    let number = |name: &str| output.get(name)?.as_i64();
    let sky = match field("sky")? {
        "clear" => "klarer Himmel",
        "mostly clear" => "meist klarer Himmel",
        "partly cloudy" => "teils bewölkt",
        "cloudy" => "bewölkt",
        "foggy" => "neblig",
        "drizzling" => "Nieselregen",
        "freezing drizzle" => "gefrierender Nieselregen",
        "light rain" => "leichter Regen",
        "rainy" => "Regen",
        "heavy rain" => "starker Regen",
        "freezing rain" => "gefrierender Regen",
        "light snow" => "leichter Schneefall",
        "snowy" => "Schneefall",
        "heavy snow" => "starker Schneefall",
        "showers" => "Schauer",
        "heavy showers" => "starke Schauer",
        "snow showers" => "Schneeschauer",
        "thunderstorms" => "Gewitter",
        "thunderstorms with hail" => "Gewitter mit Hagel",
        _ => return None,
    };
    let place = reader.place_here(field("place")?);
    let day = match field("day")? {
        "now" => {
            return Some(format!(
                "In {place} sind es {} Grad, {sky}.",
                number("temperature")?
            ));
        }
        "today" => "heute",
        _ => "morgen",
    };
    let (low, high) = (number("low")?, number("high")?);
    let rain = number("rain_chance").filter(|chance| *chance >= 30);
    let rain = rain.map_or_else(String::new, |chance| {
        format!(", Regenwahrscheinlichkeit {chance} Prozent")
    });
    Some(format!(
        "In {place} wird es {day} {low} bis {high} Grad, {sky}{rain}."
    ))
}
