//! Written Spanish to spoken words, where espeak-ng would get it wrong. It reads plain numbers and decimals with a
//! comma by itself.

use super::one;
use super::words::{self, MONTHS};
use crate::language::figures::{self, Between};
use crate::language::spoken::{
    ARROW, BOUND, GAS, INSTANT, PAGE, POWER, Phrase, Rules, SITE, STEP, Say, bound, cut, digits,
    exponent, instant, measured, one_by_one, roman, sign, with_names, without_zeros, written_out,
};
use regex::Captures;
use std::sync::LazyLock;

/// Cuts `text` at its marks into spoken phrases of at most `most_words` words.
pub(super) fn phrases(text: &str, most_words: usize) -> Vec<Phrase> {
    cut(&RULES.applied(text), most_words)
}

/// Patterns and what is said, applied in this order.
static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let one = one::pattern();
    let rules: Vec<(&str, Say)> = vec![
        (r"[¿¡]", |_| String::new()),
        (r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", |found| address(&found[0])),
        (PAGE, |found| address(&found[1])),
        (SITE, |found| address(&found[1])),
        (INSTANT, |found| instant(found, "a las")),
        (SPELLED, |found| {
            format!("{}{}", &found[1], one_by_one(&found[2]))
        }),
        (SHORT_DAYS, |found| {
            let word = |at: usize| found.get(at).map_or("", |group| group.as_str());
            let to = if word(2).is_empty() { "" } else { " a " };
            let (first, last) = (week_day(word(1)), week_day(word(2)));
            format!("{first}{to}{last}{}", word(3))
        }),
        (
            r"\b((?:\d{1,2}|[Ee]n|[Dd]e|[Dd]esde|[Hh]asta) )(ene|feb|abr|jun|jul|ago|sept?|oct|nov|dic)\b(?:(\.\s*$)|\.)?",
            |found| {
                let after = found.get(3).map_or("", |after| after.as_str());
                format!("{}{}{after}", &found[1], month(&found[2]))
            },
        ),
        (r"\b(\d{1,2})(?:r|d|t|m|v|n)([oa])\b", |found| {
            let ending = if &found[2] == "a" { "ª" } else { "º" };
            format!("{}{ending}", &found[1])
        }),
        (
            r"\b((?i:ext|art|cap|vol|fig|tel|nro|n|dpto|depto)|No)\.[°º]? ?(\d|\()",
            |found| {
                let short = found[1].to_lowercase();
                format!("{} {}", written_out(&short, ABBREVIATIONS), &found[2])
            },
        ),
        (r"\b([Ll]a) (Lic|Ing|Arq|Prof)\. ?", |found| {
            let title = written_out(&found[2], ABBREVIATIONS);
            format!("{} {}a ", &found[1], title.trim_end_matches('o'))
        }),
        (
            r"(^|[,;:(] |\b(?i:a|con|de|es|para|por|que|según|señor|y) )D\. ?(\p{Lu}\p{Ll})",
            |found| format!("{}don {}", &found[1], &found[2]),
        ),
        (
            r"\b(Dña|Srta|Lic|Ing|Arq|Prof|Vd|Vds)\. ?(\p{Lu})",
            |found| format!("{} {}", written_out(&found[1], ABBREVIATIONS), &found[2]),
        ),
        (r"\b(Avda|Av)\.? (de |\p{Lu})", |found| {
            format!("Avenida {}", &found[2])
        }),
        (r"\bC/ ?(\p{Lu}\p{Ll})", |found| {
            format!("Calle {}", &found[1])
        }),
        (r"\b([Ll]a) (I{1,3}) (Guerra|República)\b", |found| {
            format!("{} {}ª {}", &found[1], found[2].len(), &found[3])
        }),
        (r"\b(\p{Lu}\p{Ll}+|siglo) ([IVXL]+)\b(\. \p{Lu})?", numeral),
        (r"\b([01]?\d|2[0-3])\.([0-5]\d) ?h\b", |found| {
            clock(&found[1], &found[2])
        }),
        (DAYS, |found| format!("{} a {}", &found[1], &found[2])),
        (r"\b(\d{4})-(0\d|1[0-2])-([0-2]\d|3[01])\b", |found| {
            format!("{}/{}/{}", &found[3], &found[2], &found[1])
        }),
        (
            r"\b(\d{1,2})(?:/(\d{1,2})/(\d{4}|\d\d)|[.-](\d{1,2})[.-](\d{4}))\b",
            date,
        ),
        (r"\b24/7\b", |_| "24 7".to_owned()),
        (
            r"\b((?:[Ee]l|[Dd]el|[Aa]l|(?i:día|lunes|martes|miércoles|jueves|viernes|sábado|domingo),?) )(\d{1,2})/(\d{1,2})\b",
            day,
        ),
        (figures::US_DOLLAR, |_| "$".to_owned()),
        (r"\b([Dd]el \d{1,2}) ?[-–] ?(\d{1,2} de )", |found| {
            format!("{} al {}", &found[1], &found[2])
        }),
        (r"\b1\.?er\b", |_| "primer".to_owned()),
        (r"\b3\.?er\b", |_| "tercer".to_owned()),
        (r"\b(\d+)\.([ºª])", |found| {
            format!("{}{}", &found[1], &found[2])
        }),
        (IDENTIFIER, figures::identifier),
        (figures::ENGLISH, figures::from_english),
        (r"(\(\d{2,3}\) ?)(\d{3,4})[ -](\d{4})\b", |found| {
            digits(&found[0])
        }),
        (figures::TELEPHONE, |found| {
            figures::telephone(&found[0], "más")
        }),
        (figures::GROUPS, |found| {
            figures::groups(&found[0], is_telephone)
        }),
        (figures::YEARS, |found| {
            format!("{} {}", &found[1], &found[2])
        }),
        (figures::PRICES, |found| figures::prices(found, &BETWEEN)),
        (figures::MEASURES, |found| {
            format!("{} a {}", &found[1], &found[2])
        }),
        (figures::MEASURES_APART, |found| {
            figures::measures(found, &BETWEEN)
        }),
        (APART, |found| format!("{}, {}", &found[1], &found[2])),
        (figures::CHAIN, |found| figures::chain(&found[0], &BETWEEN)),
        (
            r"(-?)(?:[€$£] ?|\b)(\d+(?:\.\d{3})*)(?:,(\d+))?(?:( SCALE)(?: de)?)? ?(€|EUR\b|euros?\b|\$|USD\b|dólar(?:es)?\b|£|GBP\b|MXN\b|pesos?\b)",
            |found| money(found, 2, &found[1], &found[5]),
        ),
        (
            r"(-?)([€$£]) ?(\d+(?:\.\d{3})*)(?:,(\d+))?( SCALE\b)?",
            |found| money(found, 3, &found[1], &found[2]),
        ),
        (CODE, figures::code),
        (
            r"(?i)\b(\d{1,2})(?::(\d{2}))? ?(?:([ap])\. ?m\.(\s*$)?|([ap])m\b)",
            half_day,
        ),
        (r"\b(\d{1,2}):(\d{2})(?: ?h\b)?", |found| {
            clock(&found[1], &found[2])
        }),
        (figures::SCORE, |found| {
            format!("{} a {}", &found[1], &found[2])
        }),
        (figures::DOTTED, |found| figures::dotted(&found[0], "punto")),
        (one::THOUSANDS, one::thousands),
        (r"(\d) ?%", |found| format!("{} por ciento", &found[1])),
        (r"(\d) ?°C\b", |found| {
            format!("{} grados Celsius", &found[1])
        }),
        (r"(\d) ?°F\b", |found| {
            format!("{} grados Fahrenheit", &found[1])
        }),
        (r"(\d) ?°", |found| format!("{} grados", &found[1])),
        (r"([\d½]) ?(km²|m²|cm²|m³)", |found| {
            measured(found, UNITS)
        }),
        (
            r"([\d½]) ?(km/h|m/s|MB/s|Mbit/s|km|cm|mm|kg|mg|µg|μg|ml|cl|dl|kcal|mAh|kWh|kW|W|GB|MB|TB|m|g|l|hrs?|h|min|seg)\b(?:\.( \p{Ll}))?",
            |found| {
                let after = found.get(3).map_or("", |after| after.as_str());
                format!("{} {}{after}", &found[1], written_out(&found[2], UNITS))
            },
        ),
        (r"\b(etc\.|EE\. ?UU\.)(\s*$)?", |found| {
            let stop = if found.get(2).is_some() { "." } else { "" };
            format!("{}{stop}", written_out(&found[1], ABBREVIATIONS))
        }),
        (
            r"\b([Pp]\. ?ej\.|Sra\.|Sr\.|Dra\.|Dr\.|aprox\.|núm\.|pág\.|[Nn]\.?º|Uds\.|Ud\.|máx\.|mín\.|vs\.)",
            |found| written_out(&found[1], ABBREVIATIONS),
        ),
        (r" ?/ ?(100 ?(?:km|kilómetros))\b", |found| {
            format!(" por {}", &found[1])
        }),
        (RATE, |found| figures::rate(found, "por", RATES)),
        (
            r" ?/ ?(segundo|minuto|hora|día|semana|mes|año|noche|persona|unidad|litro|kg)\b",
            |found| format!(" por {}", written_out(&found[1], RATES)),
        ),
        (
            r"\b(\d+)(?: 1/2\b| ?½)(?: (\p{L}+))?( cuadrados| cúbicos)?",
            and_a_half,
        ),
        (r"(?:\b1/2\b|½)(?: (\p{L}+))?( cuadrados| cúbicos)?", half),
        (r"[¼¾⅓⅔]", |found| written_out(&found[0], PARTS)),
        (figures::FRACTION, fraction),
        (figures::PRODUCT, |found| {
            found[0].replace(['*', '×', 'x'], " por ")
        }),
        (figures::TIMES, |found| format!("{} veces", &found[1])),
        (figures::QUOTIENT, |found| {
            format!("{} entre {}", &found[1], &found[2])
        }),
        (POWER, |found| match exponent(found) {
            "2" => format!("{} al cuadrado", &found[1]),
            "3" => format!("{} al cubo", &found[1]),
            exponent => format!("{} elevado a {exponent}", &found[1]),
        }),
        (GAS, |_| "C O 2".to_owned()),
        (BOUND, |found| bound(found, "menos de", "más de")),
        (STEP, |found| format!("{}, {}", &found[1], &found[2])),
        (ARROW, |_| ", ".to_owned()),
        (r"(^|[\s(])-(\d)", |found| {
            format!("{}menos {}", &found[1], &found[2])
        }),
        (r"# ?(\d)", |found| format!("número {}", &found[1])),
        (figures::SIGNS, |found| sign(found, SIGNS)),
        (r"\s[-–—]+\s", |_| ", ".to_owned()),
        (one.as_str(), one::one),
        (one::HOURS, one::hours),
    ];
    let rules = rules.into_iter();
    Rules::new(rules.map(|(pattern, say)| (pattern.replace("SCALE", SCALE), say)))
});

const BETWEEN: Between = Between {
    to: "a",
    score: "a",
    minus: "menos",
    counted: "artículos|piezas|unidades|productos|paquetes|porciones|botellas|personas|huéspedes|clientes|niños|adultos|noches|días|semanas|meses|años|horas|minutos|segundos|entradas|boletos|billetes|habitaciones|plazas|mesas|citas|páginas|libros|fotos|estrellas|reseñas|puntos|kilómetros|km|kg|min|%|°",
};

/// Something with a number, in the group 1, and behind a dash with spaces a number of something else in 2.
const APART: &str = r"\b((?i:paso|opción|variante|habitación|sala|mesa|vuelo|andén|puerta|parte|nivel|plan) (?:[A-Z]{2} ?)?\d+) [-–] (\d+(?:[.,]\d+)*(?::\d\d| ?[€$£%°]| (?:km|kg|min|h|m|g|l)\b| \p{L}{3}))";

/// Whether digits in groups of three are a Spanish telephone number.
fn is_telephone(number: &str) -> bool {
    number.len() == 9 && number.starts_with(['6', '7', '8', '9'])
}

/// A long number without dots, with a word before it that names it and what comes after it.
const IDENTIFIER: &str = r"((?i:número|código|pin|teléfono|móvil|pedido|referencia|cuenta)(?:\W+\p{L}+){0,2}\W+|[€$£] ?|\d ?[-–/] ?|\d )?\b(\d{7,})\b([.,]\d| ?[-–/] ?\d| \d| ?[€$£%°]| \p{L})?";

/// Digits after a word for something that people read digit by digit however short it is; in the group 3 what they
/// count.
const CODE: &str = r#"((?i:\b(?:código(?: postal| de \p{L}+)?|pin|nip|clave|contraseña|localizador|extensión|número de (?:pedido|orden|reserva|confirmación|referencia|cuenta|cliente|socio|tarjeta|factura|contrato|póliza|expediente|seguimiento|serie))(?:[\s:#*“"]+(?:es|era|el)){0,2}[\s:#*“"]+))(\d{4,6})\b( ?[%€$£°]| (?:puntos|piezas|caracteres|unidades|artículos|productos|personas|clientes|usuarios|habitantes|entradas|palabras|letras|dígitos|cifras|veces|días|años|metros|kilómetros|euros|dólares|pesos)\b)?"#;

/// An amount or a measure, in the group 1, and the short unit that it is for, in 2; in 3 the beginning of a word behind
/// its dot.
const RATE: &str = r"(\d|[€$£]|\b(?:euros?|dólar(?:es)?|pesos?|libras?|céntimos|centavos|peniques)|\d (?:kilómetros|centímetros|milímetros|metros|kilogramos|miligramos|gramos|mililitros|litros|kilovatios hora|kilovatios|gigabytes|megabytes|terabytes|horas|minutos)) ?/ ?((?:km|kWh|GB|min|h|g|l)\b|m²|m³)(?:\.( \p{Ll}))?";

/// Letters and digits, in the group 2, behind a word for something that people spell.
const SPELLED: &str = r#"((?i:\b(?:(?:código(?: de \p{L}+)?|pin|clave|contraseña|localizador|referencia|matrícula|número de \p{L}+)(?:[\s:#*“"]+(?:es|era|el)){0,2}[\s:#*“"]+|pedido #)))((?:[A-Z0-9]+-)*[A-Z0-9]*(?:[A-Z]-?\d|\d-?[A-Z])[A-Z0-9]*(?:-[A-Z0-9]+)*)\b"#;

/// A short day of the week, in the group 1, perhaps the last of several in 2, and in 3 what shows that they are days.
const SHORT_DAYS: &str = r"(?i)\b(lun|mié|jue|vie|sáb|dom)\.?(?: ?(?:[-–]|a) ?(lun|mar|mié|jue|vie|sáb|dom)\b\.?)?(,? (?:de )?\d)";

/// "lunes" of "lun".
fn week_day(short: &str) -> &'static str {
    let short = short.to_lowercase();
    let begins = |day: &&&str| !short.is_empty() && day.starts_with(&short);
    let day = words::DAYS.iter().find(begins);
    day.copied().unwrap_or_default()
}

/// "noviembre" of "nov".
fn month(short: &str) -> &str {
    let begins = |month: &&&str| month.starts_with(short);
    MONTHS.iter().find(begins).map_or(short, |month| month)
}

/// A Roman numeral in the group 2, the word before it in 1, and in 3 the beginning of the next word behind a dot: "Felipe
/// VI" as "Felipe 6º". A letter alone, an initial and a size are none.
fn numeral(found: &Captures<'_>) -> String {
    const UNNUMBERED: [&str; 12] = [
        "Con", "De", "El", "En", "La", "Las", "Los", "Por", "Su", "Talla", "Un", "Una",
    ];
    let (word, written) = (&found[1], &found[2]);
    let after = found.get(3).map_or("", |after| after.as_str());
    let is_known = match written.len() {
        1 => written != "L" && after.is_empty() && is_numbered(word),
        _ => written != "XL" && !UNNUMBERED.contains(&word),
    };
    let ending = if word == "Isabel" { "ª" } else { "º" };
    match roman(written).filter(|_| is_known) {
        Some(number) if number < 11 && is_ruler(word) => {
            format!("{word} {number}{ending}{after}")
        }
        Some(number) => format!("{word} {number}{after}"),
        None => found[0].to_owned(),
    }
}

/// Whether a word stands before a Roman numeral of one letter.
fn is_numbered(word: &str) -> bool {
    let words = ["siglo", "Capítulo", "Tomo", "Acto", "Fase", "Tipo"];
    words.contains(&word) || is_ruler(word)
}

/// Whether this is a name of kings, queens and popes, whose numbers up to ten are ordinals.
fn is_ruler(word: &str) -> bool {
    let names = [
        "Alfonso",
        "Carlos",
        "Enrique",
        "Felipe",
        "Fernando",
        "Francisco",
        "Isabel",
        "Jorge",
        "Juan",
        "Pablo",
        "Luis",
        "Pío",
        "Pedro",
    ];
    names.contains(&word)
}

/// Numbers in words, which stay as they are before the name of a currency.
const SCALE: &str = "(?:mil millones|mil|millón|millones|billón|billones)";

/// Two days of the week.
const DAYS: &str = r"(?i)\b(lunes|martes|miércoles|jueves|viernes|sábado|domingo) ?[-–] ?(lunes|martes|miércoles|jueves|viernes|sábado|domingo)\b";

/// "ana arroba ejemplo punto es"
fn address(text: &str) -> String {
    let signs = [
        ("@", "arroba"),
        (".", "punto"),
        ("-", "guion"),
        ("_", "guion bajo"),
        ("+", "más"),
    ];
    with_names(text, &signs)
}

/// A date with its day in the group 1, its month in 2 or 4 and its year in 3 or 5.
fn date(found: &Captures<'_>) -> String {
    let either = |one, other| {
        let group = found.get(one).or_else(|| found.get(other));
        group.map_or("", |group| group.as_str())
    };
    let (month, year) = (either(2, 4), either(3, 5));
    let century = if year.len() == 2 { "20" } else { "" };
    match figures::date(&found[1], month) {
        Some((day, month)) => format!("{day} de {} de {century}{year}", MONTHS[month]),
        None => found[0].to_owned(),
    }
}

/// A day and a month in the groups 2 and 3, with an article or a day of the week before them; "el 2/3 de los usuarios" is
/// a fraction.
fn day(found: &Captures<'_>) -> String {
    let article = found[1].trim_end().to_lowercase();
    let is_fraction = matches!(
        (&found[2], &found[3]),
        ("1", "2" | "3" | "4") | ("2", "3") | ("3", "4")
    );
    if is_fraction && ["el", "del", "al"].contains(&article.as_str()) {
        return found[0].to_owned();
    }
    match figures::date(&found[2], &found[3]) {
        Some((day, month)) => format!("{}{day} de {}", &found[1], MONTHS[month]),
        None => found[0].to_owned(),
    }
}

fn clock(hour: &str, minute: &str) -> String {
    let hour = without_zeros(hour);
    match without_zeros(minute) {
        "0" => hour.to_owned(),
        "15" => format!("{hour} y cuarto"),
        "30" => format!("{hour} y media"),
        minute => format!("{hour} y {minute}"),
    }
}

/// "3:30 p. m." as "3 y media de la tarde".
fn half_day(found: &Captures<'_>) -> String {
    let half = found.get(3).or_else(|| found.get(5));
    let is_morning = half.is_some_and(|half| half.as_str().eq_ignore_ascii_case("a"));
    let part = match (is_morning, without_zeros(&found[1])) {
        (true, "1" | "2" | "3" | "4" | "5") => "de la madrugada",
        (true, "6" | "7" | "8" | "9" | "10" | "11") => "de la mañana",
        (true, "12") | (false, "8" | "9" | "10" | "11") => "de la noche",
        (false, "12") => "del mediodía",
        (false, "1" | "2" | "3" | "4" | "5" | "6" | "7") => "de la tarde",
        _ => "",
    };
    let hour = clock(
        &found[1],
        found.get(2).map_or("0", |minute| minute.as_str()),
    );
    let stop = if found.get(4).is_some() { "." } else { "" };
    format!("{hour} {part}{stop}")
}

/// An amount with the whole number, its decimals and its scale in the three groups from `at` on.
fn money(found: &Captures<'_>, at: usize, minus: &str, currency: &str) -> String {
    let group = |at| found.get(at).map_or("", |group| group.as_str());
    let (whole, decimals, scale) = (group(at).replace('.', ""), group(at + 1), group(at + 2));
    let minus = if minus.is_empty() { "" } else { "menos " };
    let (one, several, hundredths) = match currency {
        "$" | "USD" | "dólar" | "dólares" => ("un dólar", "dólares", "centavos"),
        "£" | "GBP" => ("una libra", "libras", "peniques"),
        "MXN" | "peso" | "pesos" => ("un peso", "pesos", "centavos"),
        _ => ("un euro", "euros", "céntimos"),
    };
    let of = if scale.contains("ill") { " de" } else { "" };
    let cents = without_zeros(decimals);
    let amount = if whole == "1" && scale.is_empty() {
        one.to_owned()
    } else {
        format!("{whole}{scale}{of} {several}")
    };
    let said = match decimals.len() {
        0 => amount,
        2 if scale.is_empty() && cents == "0" => amount,
        2 if scale.is_empty() && whole == "0" => format!("{cents} {hundredths}"),
        2 if scale.is_empty() => format!("{amount} con {cents}"),
        _ => format!("{whole},{decimals}{scale}{of} {several}"),
    };
    format!("{minus}{said}")
}

/// "2 1/2 horas" as "2 horas y media".
fn and_a_half(found: &Captures<'_>) -> String {
    let Some(nouns) = found.get(2).map(|nouns| nouns.as_str()) else {
        return format!("{} y medio", &found[1]);
    };
    let adjective = found.get(3).map_or("", |word| word.as_str());
    let (noun, is_feminine) = one::singular(nouns);
    let (one, half) = match is_feminine {
        true => ("una", "media"),
        false => ("un", "medio"),
    };
    match &found[1] {
        "1" => format!("{one} {noun}{} y {half}", adjective.trim_end_matches('s')),
        number => format!("{number} {nouns}{adjective} y {half}"),
    }
}

/// "½ horas" as "media hora". A word in the group 1 that is no noun stays, as does "cuadrados" in 2 behind it.
fn half(found: &Captures<'_>) -> String {
    let word = found.get(1).map_or("", |word| word.as_str());
    let adjective = found.get(2).map_or("", |word| word.as_str());
    let singular = adjective.trim_end_matches('s');
    match one::halved(word) {
        Some((noun, true)) => format!("media {noun}{singular}"),
        Some((noun, false)) => format!("medio {noun}{singular}"),
        None if word.is_empty() => format!("medio{adjective}"),
        None => format!("medio {word}{adjective}"),
    }
}

/// "1/4" as "un cuarto", "8/10" as "8 sobre 10".
fn fraction(found: &Captures<'_>) -> String {
    let known = PARTS.iter().find(|(written, _)| *written == &found[0]);
    match known {
        Some((_, said)) => (*said).to_owned(),
        None => format!("{} sobre {}", &found[1], &found[2]),
    }
}

const UNITS: &[(&str, &str)] = &[
    ("km/h", "kilómetros por hora"),
    ("m/s", "metros por segundo"),
    ("MB/s", "megabytes por segundo"),
    ("Mbit/s", "megabits por segundo"),
    ("km²", "kilómetros cuadrados"),
    ("m²", "metros cuadrados"),
    ("cm²", "centímetros cuadrados"),
    ("m³", "metros cúbicos"),
    ("km", "kilómetros"),
    ("cm", "centímetros"),
    ("mm", "milímetros"),
    ("kg", "kilogramos"),
    ("mg", "miligramos"),
    ("µg", "microgramos"),
    ("μg", "microgramos"),
    ("ml", "mililitros"),
    ("cl", "centilitros"),
    ("dl", "decilitros"),
    ("kcal", "kilocalorías"),
    ("mAh", "miliamperios hora"),
    ("W", "vatios"),
    ("hr", "horas"),
    ("hrs", "horas"),
    ("seg", "segundos"),
    ("kWh", "kilovatios hora"),
    ("kW", "kilovatios"),
    ("GB", "gigabytes"),
    ("MB", "megabytes"),
    ("TB", "terabytes"),
    ("m", "metros"),
    ("g", "gramos"),
    ("l", "litros"),
    ("h", "horas"),
    ("min", "minutos"),
];

/// Units after "por".
const RATES: &[(&str, &str)] = &[
    ("kg", "kilo"),
    ("g", "gramo"),
    ("km", "kilómetro"),
    ("l", "litro"),
    ("m²", "metro cuadrado"),
    ("m³", "metro cúbico"),
    ("h", "hora"),
    ("min", "minuto"),
    ("kWh", "kilovatio hora"),
    ("GB", "gigabyte"),
];

const PARTS: &[(&str, &str)] = &[
    ("¼", "un cuarto"),
    ("¾", "tres cuartos"),
    ("⅓", "un tercio"),
    ("⅔", "dos tercios"),
    ("1/4", "un cuarto"),
    ("3/4", "tres cuartos"),
    ("1/3", "un tercio"),
    ("2/3", "dos tercios"),
];

const SIGNS: &[(&str, &str)] = &[
    ("&", "y"),
    ("+", "más"),
    ("=", "es igual a"),
    ("×", "por"),
    ("÷", "entre"),
    ("±", "más menos"),
    ("€", "euros"),
    ("$", "dólares"),
    ("£", "libras"),
    ("≈", "aproximadamente"),
    ("~", "aproximadamente"),
    ("≥", "al menos"),
    ("≤", "como máximo"),
    ("<", "menor que"),
    (">", "mayor que"),
];

const ABBREVIATIONS: &[(&str, &str)] = &[
    ("p.ej.", "por ejemplo"),
    ("P.ej.", "Por ejemplo"),
    ("etc.", "etcétera"),
    ("Sr.", "señor"),
    ("Sra.", "señora"),
    ("Dr.", "doctor"),
    ("Dra.", "doctora"),
    ("aprox.", "aproximadamente"),
    ("núm.", "número"),
    ("pág.", "página"),
    ("N.º", "número"),
    ("n.º", "número"),
    ("Nº", "número"),
    ("nº", "número"),
    ("Ud.", "usted"),
    ("Uds.", "ustedes"),
    ("EE.UU.", "Estados Unidos"),
    ("máx.", "máximo"),
    ("mín.", "mínimo"),
    ("vs.", "contra"),
    ("ext", "extensión"),
    ("art", "artículo"),
    ("cap", "capítulo"),
    ("vol", "volumen"),
    ("fig", "figura"),
    ("tel", "teléfono"),
    ("nro", "número"),
    ("no", "número"),
    ("n", "número"),
    ("dpto", "departamento"),
    ("depto", "departamento"),
    ("Dña", "doña"),
    ("Srta", "señorita"),
    ("Lic", "licenciado"),
    ("Ing", "ingeniero"),
    ("Arq", "arquitecto"),
    ("Prof", "profesor"),
    ("Vd", "usted"),
    ("Vds", "ustedes"),
];
