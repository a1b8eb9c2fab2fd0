//! Finds the time zone of a named place.
//!
//! The names come from the cities of the IANA database and from `places.tsv`, our own table of cities,
//! countries and states, which takes precedence.

use super::sounds::{self, Sounds};
use crate::language::accents;
use jiff::tz::TimeZoneDatabase;
use std::collections::HashMap;
use std::sync::LazyLock;

const TABLE: &str = include_str!("places.tsv");

/// Areas of the IANA database in which the last component is a real place.
const AREAS: [&str; 9] = [
    "Africa",
    "America",
    "Arctic",
    "Asia",
    "Atlantic",
    "Australia",
    "Europe",
    "Indian",
    "Pacific",
];

/// Last components in [`AREAS`] that are directions, districts or common words.
const NOT_PLACES: [&str; 19] = [
    "ACT",
    "Center",
    "East",
    "Eastern",
    "Easter",
    "Jan_Mayen",
    "Knox",
    "LHI",
    "Lord_Howe",
    "Midway",
    "NSW",
    "North",
    "South",
    "Truk",
    "Wake",
    "West",
    "Beulah",
    "Nelson",
    "Troll",
];

/// A place and its time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The usual name, such as `New York` for "NYC".
    pub name: String,
    /// IANA name of the zone, such as `America/New_York`.
    pub zone: String,
    /// The city whose zone was chosen, if the place has several zones.
    pub reference: Option<String>,
}

#[derive(Debug)]
struct Entry {
    place: Place,
    country: String,
    region: bool,
}

/// The place is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown place: {0}")]
pub struct UnknownPlace(pub String);

/// Finds a place by a spoken or written name: a city, a country, a US state, "Paris, Texas",
/// "eastern time" or an IANA name. Case, punctuation, accents and a leading "the" do not matter.
///
/// # Errors
/// [`UnknownPlace`] with the name as it was given.
pub fn find(name: &str) -> Result<Place, UnknownPlace> {
    let key = key_of(name);
    by_key(&key)
        .or_else(|| in_full(&key))
        .or_else(|| part(&key))
        .or_else(|| qualified(&key))
        .or_else(|| by_zone(name))
        .ok_or_else(|| UnknownPlace(name.trim().to_owned()))
}

/// Whether [`find`] knows the name.
pub fn is_known(name: &str) -> bool {
    find(name).is_ok()
}

/// The two-letter postal codes of American states and Canadian provinces.
const CODES: [(&str, &str); 60] = [
    ("ab", "alberta"),
    ("ak", "alaska"),
    ("al", "alabama"),
    ("ar", "arkansas"),
    ("az", "arizona"),
    ("bc", "british columbia"),
    ("ca", "california"),
    ("co", "colorado"),
    ("ct", "connecticut"),
    ("de", "delaware"),
    ("fl", "florida"),
    ("ga", "georgia"),
    ("hi", "hawaii"),
    ("ia", "iowa"),
    ("id", "idaho"),
    ("il", "illinois"),
    ("in", "indiana"),
    ("ks", "kansas"),
    ("ky", "kentucky"),
    ("la", "louisiana"),
    ("ma", "massachusetts"),
    ("mb", "manitoba"),
    ("md", "maryland"),
    ("me", "maine"),
    ("mi", "michigan"),
    ("mn", "minnesota"),
    ("mo", "missouri"),
    ("ms", "mississippi"),
    ("mt", "montana"),
    ("nb", "new brunswick"),
    ("nc", "north carolina"),
    ("nd", "north dakota"),
    ("ne", "nebraska"),
    ("nh", "new hampshire"),
    ("nj", "new jersey"),
    ("nl", "newfoundland"),
    ("nm", "new mexico"),
    ("ns", "nova scotia"),
    ("nv", "nevada"),
    ("ny", "new york"),
    ("oh", "ohio"),
    ("ok", "oklahoma"),
    ("on", "ontario"),
    ("or", "oregon"),
    ("pa", "pennsylvania"),
    ("pe", "prince edward island"),
    ("qc", "quebec"),
    ("ri", "rhode island"),
    ("sc", "south carolina"),
    ("sd", "south dakota"),
    ("sk", "saskatchewan"),
    ("tn", "tennessee"),
    ("tx", "texas"),
    ("ut", "utah"),
    ("va", "virginia"),
    ("vt", "vermont"),
    ("wa", "washington"),
    ("wi", "wisconsin"),
    ("wv", "west virginia"),
    ("wy", "wyoming"),
];

/// The form in which names are compared: equal forms mean the same place. Spelling, case, punctuation,
/// accents, known other names and state codes do not matter: "Boulder, CO", "boulder colorado" and "Boulder,
/// Colorado, USA" are equal. A name with its region differs from the same name without it: there is more than
/// one Portland.
pub fn comparable(name: &str) -> String {
    let mut key = key_of(name);
    while let Some(rest) = key.strip_prefix("the ") {
        key = rest.to_owned();
    }
    let mut words: Vec<&str> = key.split(' ').collect();
    if let Some(stem) = without_country(&words) {
        words.truncate(stem);
    }
    let known = by_key(&words.join(" ")).map(|place| key_of(&place.name));
    if let Some(name) = known {
        return name;
    }
    let code = words.last().filter(|_| words.len() > 1);
    let region = code.and_then(|code| CODES.iter().find(|(short, _)| short == code));
    if let Some((_, region)) = region {
        words.pop();
        words.extend(region.split(' '));
    }
    words.join(" ")
}

/// The number of words before a final "USA" or "Canada", if they end with a state or province.
fn without_country(words: &[&str]) -> Option<usize> {
    let country = |word: &&&str| ["us", "usa", "canada"].contains(*word);
    let united = words.ends_with(&["united", "states"]);
    let stem = match words.last().filter(country) {
        Some(_) => words.len() - 1,
        None if united => words.len() - 2,
        None => return None,
    };
    let is_region = |from: usize| {
        let region = words[from..stem].join(" ");
        CODES
            .iter()
            .any(|(short, long)| *short == region || *long == region)
    };
    (1..stem).any(is_region).then_some(stem)
}

/// Whether the name itself is in the tables. [`find`] also accepts any words before the name of a region.
pub fn is_listed(name: &str) -> bool {
    PLACES.contains_key(&key_of(name))
}

/// Whether the tables have a name, or a town and its region: "Rome", "springfield illinois".
pub(crate) fn is_listed_in_full(name: &str) -> bool {
    let key = key_of(name);
    let words: Vec<&str> = key.split(' ').collect();
    let has = |words: &[&str]| PLACES.contains_key(&words.join(" "));
    has(&words) || (1..words.len()).any(|cut| has(&words[..cut]) && has(&words[cut..]))
}

/// Whether the tables have all of a name, in any form: also "the state of Texas".
pub(crate) fn is_certain(name: &str) -> bool {
    is_listed_in_full(name) || named(name).is_some() || part(&key_of(name)).is_some()
}

/// The usual name of the listed place that sounds like the words, if only one does.
pub fn by_sound(words: &str) -> Option<String> {
    static SOUNDS: LazyLock<Vec<(Sounds, &'static str)>> = LazyLock::new(|| {
        let named = |(name, entry): (&'static String, &'static Entry)| {
            (Sounds::of(name), entry.place.name.as_str())
        };
        PLACES.iter().map(named).collect()
    });
    let names = SOUNDS.iter().map(|(sounds, name)| (sounds, *name));
    sounds::nearest(words, names).map(str::to_owned)
}

/// Whether a longer known name begins with these words: "new" begins "new york".
pub fn may_continue(words: &str) -> bool {
    static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
        let mut names: Vec<&str> = PLACES.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    });
    let start = key_of(words) + " ";
    let next = NAMES.partition_point(|name| *name < start.as_str());
    NAMES.get(next).is_some_and(|name| name.starts_with(&start))
}

static PLACES: LazyLock<HashMap<String, Entry>> = LazyLock::new(|| {
    let mut places = HashMap::new();
    TABLE.lines().for_each(|line| add_line(&mut places, line));
    TimeZoneDatabase::bundled()
        .available()
        .for_each(|zone| add_zone(&mut places, zone.as_str()));
    places
});

fn by_key(key: &str) -> Option<Place> {
    PLACES.get(key).map(|entry| entry.place.clone())
}

/// A name such as "boulder colorado": the city if it is known and lies in the region, otherwise the region's
/// zone.
fn qualified(key: &str) -> Option<Place> {
    let words: Vec<&str> = key.split(' ').collect();
    (1..words.len()).find_map(|cut| {
        let region = PLACES
            .get(&words[cut..].join(" "))
            .filter(|entry| entry.region)?;
        let city = words[..cut].join(" ");
        // "austin in the united states"
        let city_in = city
            .strip_suffix(" the")
            .unwrap_or(&city)
            .strip_suffix(" in");
        let city = city_in
            .filter(|city| PLACES.contains_key(*city))
            .unwrap_or(&city);
        within(city, region).or_else(|| unlisted(city, region))
    })
}

/// The place whose name is in the tables, also with its kind before it: "the state of Texas".
pub(crate) fn named(name: &str) -> Option<Place> {
    let key = key_of(name);
    by_key(&key).or_else(|| in_full(&key))
}

fn in_full(key: &str) -> Option<Place> {
    let kinds = ["state of ", "city of ", "province of ", "country of "];
    by_key(kinds.iter().find_map(|kind| key.strip_prefix(kind))?)
}

/// The region of a part of it: "northern california".
fn part(key: &str) -> Option<Place> {
    let (part, whole) = key.split_once(' ')?;
    let entry = PLACES.get(whole)?;
    // There is a city of East London, and Central America is no part of the United States.
    let is_part = PARTS.contains(&part) && entry.region || ["upstate", "downtown"].contains(&part);
    (is_part && whole != "america").then(|| entry.place.clone())
}

/// Words for a part of a region.
const PARTS: [&str; 13] = [
    "north",
    "south",
    "east",
    "west",
    "northern",
    "southern",
    "eastern",
    "western",
    "central",
    "northeastern",
    "northwestern",
    "southeastern",
    "southwestern",
];

fn within(city: &str, region: &Entry) -> Option<Place> {
    let entry = PLACES.get(city)?;
    let several = region.place.reference.is_some();
    let same_zone = entry.place.zone == region.place.zone;
    // "Scotland, UK" and "Texas, USA"; but Nevada, Missouri, is a town.
    let is_state = region.country == "US" && region.place.name != "United States";
    let fits = !entry.region || !is_state;
    let inside = entry.country == region.country && fits && (same_zone || several);
    let inside =
        inside || region.country == "CN" && ["HK", "MO", "TW"].contains(&&entry.country[..]);
    inside.then(|| entry.place.clone())
}

/// A town that is not in the tables, with the zone of its region. "England and Japan" is no town.
fn unlisted(city: &str, region: &Entry) -> Option<Place> {
    let is_known = |name: &str| PLACES.contains_key(name);
    let are_two =
        |join: &str| matches!(city.split_once(join), Some((a, b)) if is_known(a) && is_known(b));
    let is_cut = |city: &str| {
        let ends = [" and", " or", " in", " of", " the"];
        ends.iter().any(|end| city.ends_with(end)) || city.contains(" in ")
    };
    let is_name = !PARTS.contains(&city) && !is_cut(city) && !are_two(" and ") && !are_two(" or ");
    // "England, France" are two places, but Peru, Indiana, is a town.
    let is_other = region.country != "US" && PLACES.get(city).is_some_and(|entry| entry.region);
    let is_town = region.country != "ZZ" && !is_other && is_name;
    is_town.then(|| Place {
        name: format!("{}, {}", title_case(city), region.place.name),
        ..region.place.clone()
    })
}

fn by_zone(name: &str) -> Option<Place> {
    let wanted = name.trim().replace(' ', "_");
    if !wanted.contains('/') {
        return None;
    }
    let zone = TimeZoneDatabase::bundled().get(&wanted).ok()?;
    let zone = zone.iana_name()?.to_owned();
    Some(Place {
        name: city_of(&zone),
        zone,
        reference: None,
    })
}

fn add_line(places: &mut HashMap<String, Entry>, line: &str) {
    if line.starts_with('#') {
        return;
    }
    let mut columns = line.split('\t');
    let (Some(country), Some(zone), Some(names)) = (columns.next(), columns.next(), columns.next())
    else {
        return;
    };
    let (zone, reference) = match zone.split_once('=') {
        Some((zone, city)) => (zone, Some(city)),
        None => (zone, None),
    };
    for names in names.split(';') {
        let (name, others) = names.split_once('=').unwrap_or((names, ""));
        let name = name.trim();
        let others = others.split(',').filter(|other| !other.is_empty());
        for spelling in std::iter::once(name).chain(others) {
            let entry = Entry {
                place: Place {
                    name: name.to_owned(),
                    zone: zone.to_owned(),
                    reference: reference.map(str::to_owned),
                },
                country: country.trim_start_matches('+').to_owned(),
                region: country.starts_with('+'),
            };
            places.entry(key_of(spelling)).or_insert(entry);
        }
    }
}

fn add_zone(places: &mut HashMap<String, Entry>, zone: &str) {
    let area = zone.split('/').next().unwrap_or_default();
    let last = zone.rsplit('/').next().unwrap_or_default();
    if !AREAS.contains(&area) || NOT_PLACES.contains(&last) || area == zone {
        return;
    }
    let entry = Entry {
        place: Place {
            name: city_of(zone),
            zone: zone.to_owned(),
            reference: None,
        },
        country: String::new(),
        region: false,
    };
    places.entry(key_of(&entry.place.name)).or_insert(entry);
}

fn city_of(zone: &str) -> String {
    zone.rsplit('/').next().unwrap_or(zone).replace('_', " ")
}

/// Lower case, plain letters, single spaces, no "the" in front.
fn key_of(name: &str) -> String {
    let plain: String = name
        .chars()
        .flat_map(char::to_lowercase)
        .map(accents::plain)
        .collect();
    let plain = plain.replace(['\'', '’', '.'], "");
    let words: Vec<&str> = plain
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    match words.as_slice() {
        ["the", rest @ ..] if !rest.is_empty() => rest.join(" "),
        all => all.join(" "),
    }
}

/// "key west" to "Key West".
pub(crate) fn title_case(words: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters
            .next()
            .map(|first| first.to_uppercase().chain(letters).collect::<String>())
            .unwrap_or_default()
    };
    words.split(' ').map(capital).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_usual_spellings() {
        for (name, zone) in [
            ("Tokyo", "Asia/Tokyo"),
            ("new york city", "America/New_York"),
            ("NYC", "America/New_York"),
            ("L.A.", "America/Los_Angeles"),
            ("D.C.", "America/New_York"),
            ("Washington, D.C.", "America/New_York"),
            ("São Paulo", "America/Sao_Paulo"),
            ("the Netherlands", "Europe/Amsterdam"),
            ("Boulder, Colorado", "America/Denver"),
            ("Paris, Texas", "America/Chicago"),
            ("Paris, France", "Europe/Paris"),
            ("Denver, USA", "America/Denver"),
            ("Punta Gorda, Florida", "America/New_York"),
            ("Ushuaia", "America/Argentina/Ushuaia"),
            ("europe/paris", "Europe/Paris"),
            ("St. Louis", "America/Chicago"),
            ("eastern time", "America/New_York"),
            ("UTC", "UTC"),
            ("the state of Texas", "America/Chicago"),
            ("state of Washington", "America/Los_Angeles"),
            ("northern California", "America/Los_Angeles"),
            ("Texas, USA", "America/Chicago"),
            ("Scotland, UK", "Europe/London"),
            ("Bavaria, Germany", "Europe/Berlin"),
            ("Peru, Indiana", "America/Indiana/Indianapolis"),
            ("upstate New York", "America/New_York"),
            ("Northern Ireland", "Europe/London"),
            ("West Virginia", "America/New_York"),
            ("King of Prussia, Pennsylvania", "America/New_York"),
            ("Isle of Wight, England", "Europe/London"),
            ("Truth or Consequences, New Mexico", "America/Denver"),
            ("Austin in Texas", "America/Chicago"),
            ("Cambridge in England", "Europe/London"),
            ("Georgia in the United States", "America/New_York"),
            ("Hong Kong, China", "Asia/Hong_Kong"),
            ("Macau, China", "Asia/Macau"),
            ("Taiwan, China", "Asia/Taipei"),
            ("Central, Louisiana", "America/Chicago"),
        ] {
            assert_eq!(
                find(name).map(|place| place.zone),
                Ok(zone.to_owned()),
                "{name}"
            );
        }
    }

    #[test]
    fn names_the_city_where_a_country_has_several_zones() {
        let place = find("Australia").unwrap();
        assert_eq!(place.reference.as_deref(), Some("Sydney"));
    }

    #[test]
    fn only_names_of_the_tables_are_listed() {
        assert!(is_listed("new york") && is_listed("Colorado"));
        assert!(!is_listed("weather in Colorado"));
    }

    #[test]
    fn knows_beginnings_of_longer_names() {
        assert!(may_continue("New"));
        assert!(may_continue("the los"));
        assert!(!may_continue("Tokyo"));
        assert!(!may_continue("yor"));
    }

    #[test]
    fn an_unknown_place_is_named() {
        assert_eq!(
            find("Atlantis ").unwrap_err().to_string(),
            "unknown place: Atlantis"
        );
        assert!(find("").is_err());
        assert!(find("east").is_err());
        for invented in [
            "England and Japan",
            "England, France",
            "New York and California",
            "the weather in Texas",
            "the north of England",
            "Central America",
            "Paris or Texas",
            "Chicago and Paris, Texas",
        ] {
            assert!(find(invented).is_err(), "{invented}");
        }
        let region = |name: &str| find(name).map(|place| place.name);
        assert_eq!(region("the state of Texas"), Ok("Texas".into()));
        assert_eq!(region("northern California"), Ok("California".into()));
        assert_eq!(region("Hong Kong, China"), Ok("Hong Kong".into()));
    }

    #[test]
    fn compares_by_place_and_not_by_spelling() {
        let same = |a, b| assert_eq!(comparable(a), comparable(b), "{a} {b}");
        same("Boulder, CO", "Boulder, Colorado");
        same("boulder colorado", "Boulder, Colorado, USA");
        same("NYC", "New York City");
        same("the UK", "United Kingdom");
        same("São Paulo", "sao paulo");
        same("New Orleans, LA", "New Orleans, Louisiana, United States");
        let differ = |a, b| assert_ne!(comparable(a), comparable(b), "{a} {b}");
        differ("Boulder", "Denver");
        differ("Portland, OR", "Portland, ME");
        differ("Portland, OR", "Portland");
        differ("Columbus, Georgia", "Columbus, Ohio");
        differ("Paris, Texas", "Paris, France");
        differ("LA", "Louisiana");
        differ("Guam", "Guatemala");
    }

    #[test]
    fn comparable_names_are_idempotent() {
        let names = PLACES.values().map(|entry| entry.place.name.as_str());
        for name in names.chain([
            "the the Hague",
            "Portland, OR",
            "New York, NY",
            "",
            "usa",
            "co usa",
        ]) {
            let once = comparable(name);
            assert_eq!(comparable(&once), once, "{name}");
        }
    }

    #[test]
    fn every_zone_of_the_table_exists() {
        for entry in PLACES.values() {
            assert!(
                TimeZoneDatabase::bundled().get(&entry.place.zone).is_ok(),
                "{}",
                entry.place.zone
            );
        }
    }
}
