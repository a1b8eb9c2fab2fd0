//! "1" and a half before a German noun: "eine Stunde", "in einer halben Stunde", "ein Uhr". espeak-ng would say "eins".

use regex::Captures;

const FEMININE: &str = "Stunde|Minute|Sekunde|Kilowattstunde|Woche|Nacht|Meile|Unze|Gallone|Tonne|Million|Milliarde|Person|Nachricht|Notiz|Seite|Reservierung|Buchung|Bestellung|Frage|Flasche|Packung|Portion|Station|Etage|Karte|Möglichkeit";
const MASCULINE: &str = "Tag|Monat|Quadratmeter|Kubikmeter|Euro|Cent|Dollar|Franken|Kilometer|Zentimeter|Millimeter|Meter|Milliliter|Liter|Timer|Wecker|Termin|Platz|Tisch|Punkt|Eintrag|Anruf|Gast|Artikel|Schritt|Zoll|Fuß|Teelöffel|Esslöffel";
/// More nouns that are halved, and the endings of others.
const FEMININE_HALVES: &str = r"Tasse|Dose|Tüte|Scheibe|Gurke|Zitrone|Orange|Melone|Banane|Birne|Torte|Tomate|Karotte|Tablette|Kanne|Runde|Zeile|Treppe|Rate|Miete|\p{Lu}\p{Ll}{3,}(?:ung|tion)";
const MASCULINE_HALVES: &str = "Apfel|Kuchen|Becher";
const NEUTER_HALVES: &str =
    r"(?:Fläsch|Gläs|Täss)chen|\p{Lu}\p{Ll}+[dfgklnptz]chen|\p{Lu}\p{Ll}{2,}lein";
const NEUTER: &str = "Uhr|Jahr|Kilogramm|Kilo|Gramm|Pfund|Grad|Prozent|Kilowatt|Watt|Yard|Mal|Zimmer|Ergebnis|Ticket|Stück|Kind|Glas|Paket";
/// Prepositions with the dative: "in einer Stunde".
const DATIVE: [&str; 12] = [
    "ab",
    "aus",
    "bei",
    "binnen",
    "in",
    "innerhalb",
    "mit",
    "nach",
    "seit",
    "von",
    "vor",
    "zu",
];
/// Prepositions with the accusative: "für einen Tag".
const ACCUSATIVE: [&str; 9] = [
    "auf", "bis", "durch", "für", "gegen", "ohne", "pro", "um", "über",
];

/// Words after which a half needs no further article.
const ARTICLES: [&str; 35] = [
    "alle",
    "am",
    "beim",
    "das",
    "dem",
    "den",
    "der",
    "die",
    "diese",
    "diesem",
    "diesen",
    "dieser",
    "dieses",
    "ein",
    "eine",
    "einem",
    "einen",
    "einer",
    "im",
    "ins",
    "jede",
    "jedem",
    "jeden",
    "jeder",
    "jedes",
    "kein",
    "keine",
    "keinem",
    "keinen",
    "keiner",
    "letzten",
    "nächsten",
    "vom",
    "zum",
    "zur",
];
/// Verbs with the accusative, and pronouns that follow them: "Das dauert einen halben Tag".
const BEFORE_OBJECTS: [&str; 51] = [
    "arbeiten",
    "arbeitet",
    "bekommen",
    "bekommt",
    "bestell",
    "bestelle",
    "bestellen",
    "bestellt",
    "beträgt",
    "brauche",
    "brauchen",
    "brauchst",
    "braucht",
    "dauern",
    "dauert",
    "dauerte",
    "du",
    "enthalten",
    "enthält",
    "fasst",
    "gebe",
    "geben",
    "gib",
    "gibt",
    "habe",
    "haben",
    "hast",
    "hat",
    "hatte",
    "hatten",
    "ich",
    "kauf",
    "kaufe",
    "kaufen",
    "kauft",
    "kostet",
    "man",
    "nehme",
    "nehmen",
    "nimm",
    "nimmt",
    "sie",
    "trink",
    "trinke",
    "trinken",
    "trinkt",
    "verbraucht",
    "warte",
    "warten",
    "wartet",
    "wir",
];

/// "1" before one of these nouns: what is before it, the word before it, and the noun.
pub(super) fn pattern() -> String {
    before_a_noun("1 ", "n?", [FEMININE, MASCULINE, NEUTER])
}

/// A half before a noun, with the same groups. The gender of other nouns than these is known by few endings.
pub(super) fn half_pattern() -> String {
    let feminine = format!("{FEMININE}|{FEMININE_HALVES}");
    let masculine = format!("{MASCULINE}|{MASCULINE_HALVES}");
    let neuter = format!("{NEUTER}|{NEUTER_HALVES}");
    before_a_noun("(?:½|1/2) ?", "(?:e?n)?", [&feminine, &masculine, &neuter])
}

/// The pattern of a number before nouns of the three genders. `plural` is the ending of a feminine noun that is left out.
fn before_a_noun(number: &str, plural: &str, [feminine, masculine, neuter]: [&str; 3]) -> String {
    format!(
        r"(^|[^\p{{L}}\d.,:/–-])(?:(\p{{L}}+) )?{number}(?:(?P<f>{feminine}){plural}|(?P<m>{masculine})|(?P<n>{neuter}))\b"
    )
}

/// Text that matches [`pattern`], with its "1" in words.
pub(super) fn one(found: &Captures<'_>) -> String {
    let before = found.get(2).map_or("", |word| word.as_str());
    let (one, noun) = article(found, before);
    let space = if before.is_empty() { "" } else { " " };
    format!("{}{before}{space}{one} {noun}", &found[1])
}

/// Text that matches [`half_pattern`]: "eine halbe Stunde", "in einer halben Stunde", "jede halbe Stunde".
pub(super) fn half(found: &Captures<'_>) -> String {
    let before = found.get(2).map_or("", |word| word.as_str());
    let lower = before.to_lowercase();
    let is_masculine = found.name("m").is_some();
    let (one, noun) = match article(found, before) {
        ("ein", noun) if is_masculine && BEFORE_OBJECTS.contains(&lower.as_str()) => {
            ("einen", noun)
        }
        (one, noun) => (one, noun),
    };
    let (before, article) = match ARTICLES.contains(&lower.as_str()) {
        true => ("", before),
        false => (before, one),
    };
    let half = match article.to_lowercase().as_str() {
        "alle" | "das" | "die" | "diese" | "dieses" | "eine" | "ins" | "jede" | "jedes"
        | "keine" => "halbe",
        "der" | "dieser" | "jeder" if is_masculine => "halbe",
        "ein" | "kein" if found.name("n").is_some() => "halbes",
        "ein" | "kein" => "halber",
        _ => "halben",
    };
    let space = if before.is_empty() { "" } else { " " };
    format!("{}{before}{space}{article} {half} {noun}", &found[1])
}

/// "ein" in the form that fits the noun of a match and the word before it, and the noun.
fn article<'a>(found: &Captures<'a>, before: &str) -> (&'static str, &'a str) {
    let lower = before.to_lowercase();
    let dative = DATIVE.contains(&lower.as_str());
    let name = |name| found.name(name).map(|noun| noun.as_str());
    match (name("f"), name("m"), name("n")) {
        (Some(noun), ..) if dative => ("einer", noun),
        (Some(noun), ..) => ("eine", noun),
        (_, Some(noun), _) if dative => ("einem", noun),
        (_, Some(noun), _) if ACCUSATIVE.contains(&lower.as_str()) => ("einen", noun),
        (_, Some(noun), _) => ("ein", noun),
        (.., noun) => match noun.unwrap_or_default() {
            "Uhr" => ("ein", "Uhr"),
            noun if dative => ("einem", noun),
            noun => ("ein", noun),
        },
    }
}

/// "1 bis 2 Stunden" as "ein bis 2 Stunden"; "1 bis 2 Uhr" stays.
pub(super) const TO_MORE: &str = r"(^|[^\d.,:/–-])1 bis (\d+) (\p{Lu}\p{L}+)";

/// Text that matches [`TO_MORE`].
pub(super) fn to_more(found: &Captures<'_>) -> String {
    match &found[3] {
        "Uhr" => found[0].to_owned(),
        noun => format!("{}ein bis {} {noun}", &found[1], &found[2]),
    }
}
