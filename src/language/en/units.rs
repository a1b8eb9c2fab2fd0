//! Units of measurement: their names and how they convert.

use regex::Regex;
use std::collections::HashMap;
use std::sync::LazyLock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantity {
    Length,
    Mass,
    Volume,
    Temperature,
    Time,
    Speed,
    Area,
    Data,
}
use Quantity::*;

/// A unit. `base = value * factor + offset`, with base units of metres, grams, litres, kelvins, seconds,
/// metres per second, square metres and bytes. Factors are exact by definition (international yard and pound,
/// 1959; US customary volumes), a year has 365.25 days, a month a twelfth of that.
#[derive(Debug, PartialEq)]
pub struct Unit {
    quantity: Quantity,
    factor: f64,
    offset: f64,
    /// Singular name, such as "mile".
    pub singular: &'static str,
    /// Plural name, such as "miles".
    pub plural: &'static str,
    others: &'static [&'static str],
}

const fn unit(
    quantity: Quantity,
    factor: f64,
    singular: &'static str,
    plural: &'static str,
    others: &'static [&'static str],
) -> Unit {
    Unit {
        quantity,
        factor,
        offset: 0.0,
        singular,
        plural,
        others,
    }
}

const FLUID_OUNCE: usize = 0;
static UNITS: [Unit; 52] = [
    unit(
        Volume,
        0.029_573_529_562_5,
        "fluid ounce",
        "fluid ounces",
        &["fl oz"],
    ),
    unit(
        Length,
        0.001,
        "millimeter",
        "millimeters",
        &["millimetre", "millimetres", "mm"],
    ),
    unit(
        Length,
        0.01,
        "centimeter",
        "centimeters",
        &["centimetre", "centimetres", "cm", "cms"],
    ),
    unit(Length, 1.0, "meter", "meters", &["metre", "metres", "m"]),
    unit(
        Length,
        1000.0,
        "kilometer",
        "kilometers",
        &["kilometre", "kilometres", "km", "kms", "k"],
    ),
    unit(Length, 0.0254, "inch", "inches", &["in", "\""]),
    unit(Length, 0.3048, "foot", "feet", &["ft", "'"]),
    unit(Length, 0.9144, "yard", "yards", &["yd", "yds"]),
    unit(Length, 1609.344, "mile", "miles", &["mi"]),
    unit(Length, 1852.0, "nautical mile", "nautical miles", &["nmi"]),
    unit(Mass, 0.001, "milligram", "milligrams", &["mg", "mgs"]),
    unit(Mass, 1.0, "gram", "grams", &["gramme", "grammes", "g"]),
    unit(
        Mass,
        1000.0,
        "kilogram",
        "kilograms",
        &["kilo", "kilos", "kg", "kgs"],
    ),
    unit(Mass, 28.349_523_125, "ounce", "ounces", &["oz"]),
    unit(Mass, 453.592_37, "pound", "pounds", &["lb", "lbs"]),
    unit(Mass, 6_350.293_18, "stone", "stone", &["stones"]),
    unit(Mass, 1e6, "metric ton", "metric tons", &["tonne", "tonnes"]),
    unit(
        Mass,
        907_184.74,
        "ton",
        "tons",
        &["short ton", "short tons"],
    ),
    unit(
        Volume,
        0.001,
        "milliliter",
        "milliliters",
        &["millilitre", "millilitres", "ml", "mls"],
    ),
    unit(Volume, 1.0, "liter", "liters", &["litre", "litres", "l"]),
    unit(
        Volume,
        0.004_928_921_593_75,
        "teaspoon",
        "teaspoons",
        &["tsp"],
    ),
    unit(
        Volume,
        0.014_786_764_781_25,
        "tablespoon",
        "tablespoons",
        &["tbsp"],
    ),
    unit(Volume, 0.236_588_236_5, "cup", "cups", &[]),
    unit(Volume, 0.473_176_473, "pint", "pints", &["pt"]),
    unit(Volume, 0.946_352_946, "quart", "quarts", &["qt"]),
    unit(Volume, 3.785_411_784, "gallon", "gallons", &["gal"]),
    Unit {
        quantity: Temperature,
        factor: 1.0,
        offset: 273.15,
        singular: "degree Celsius",
        plural: "degrees Celsius",
        others: &[
            "celsius",
            "centigrade",
            "degrees centigrade",
            "c",
            "degrees c",
            "°c",
        ],
    },
    Unit {
        quantity: Temperature,
        factor: 5.0 / 9.0,
        offset: 459.67 * 5.0 / 9.0,
        singular: "degree Fahrenheit",
        plural: "degrees Fahrenheit",
        others: &["fahrenheit", "f", "degrees f", "°f"],
    },
    unit(Temperature, 1.0, "kelvin", "kelvins", &["degrees kelvin"]),
    unit(Time, 0.001, "millisecond", "milliseconds", &["ms"]),
    unit(Time, 1.0, "second", "seconds", &["sec", "secs"]),
    unit(Time, 60.0, "minute", "minutes", &["min", "mins"]),
    unit(Time, 3600.0, "hour", "hours", &["hr", "hrs"]),
    unit(Time, 86_400.0, "day", "days", &[]),
    unit(Time, 604_800.0, "week", "weeks", &[]),
    unit(Time, 2_629_800.0, "month", "months", &[]),
    unit(Time, 31_557_600.0, "year", "years", &[]),
    unit(
        Speed,
        1.0,
        "meter per second",
        "meters per second",
        &["metres per second", "m/s"],
    ),
    unit(
        Speed,
        1.0 / 3.6,
        "kilometer per hour",
        "kilometers per hour",
        &[
            "kilometres per hour",
            "kilometers an hour",
            "kph",
            "kmh",
            "km/h",
        ],
    ),
    unit(
        Speed,
        0.44704,
        "mile per hour",
        "miles per hour",
        &["miles an hour", "mph"],
    ),
    unit(Speed, 1852.0 / 3600.0, "knot", "knots", &[]),
    unit(
        Area,
        1.0,
        "square meter",
        "square meters",
        &["square metre", "square metres", "sqm"],
    ),
    unit(Area, 0.092_903_04, "square foot", "square feet", &["sq ft"]),
    unit(
        Area,
        1e6,
        "square kilometer",
        "square kilometers",
        &["square kilometre", "square kilometres"],
    ),
    unit(Area, 2_589_988.110_336, "square mile", "square miles", &[]),
    unit(Area, 4_046.856_422_4, "acre", "acres", &[]),
    unit(Area, 1e4, "hectare", "hectares", &[]),
    unit(Data, 1.0, "byte", "bytes", &[]),
    unit(Data, 1e3, "kilobyte", "kilobytes", &["kb"]),
    unit(Data, 1e6, "megabyte", "megabytes", &["mb"]),
    unit(Data, 1e9, "gigabyte", "gigabytes", &["gb", "gigs"]),
    unit(Data, 1e12, "terabyte", "terabytes", &["tb"]),
];

impl Unit {
    /// Finds a unit by singular, plural or abbreviation, in any case.
    pub fn named(name: &str) -> Option<&'static Self> {
        static BY_NAME: LazyLock<HashMap<String, &Unit>> = LazyLock::new(|| {
            let mut units = HashMap::new();
            for unit in Unit::all() {
                for name in unit.names() {
                    units.entry(name.to_lowercase()).or_insert(unit);
                }
            }
            units
        });
        let name = name.trim().trim_end_matches('.');
        let found = BY_NAME.get(name);
        found.or_else(|| BY_NAME.get(&name.to_lowercase())).copied()
    }

    /// All spellings.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        [self.singular, self.plural]
            .into_iter()
            .chain(self.others.iter().copied())
    }

    /// All units.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        UNITS.iter()
    }

    /// The name that fits a written number: singular for "1".
    pub fn name_for(&self, number: &str) -> &'static str {
        if number == "1" {
            self.singular
        } else {
            self.plural
        }
    }

    /// Converts `value` from this unit to `to`; `None` if they measure different quantities. Next to a
    /// volume, an ounce is a fluid ounce.
    pub fn convert(&self, value: f64, to: &Self) -> Option<f64> {
        let (from, to) = match (self.quantity, to.quantity) {
            (Mass, Volume) if self.singular == "ounce" => (&UNITS[FLUID_OUNCE], to),
            (Volume, Mass) if to.singular == "ounce" => (self, &UNITS[FLUID_OUNCE]),
            _ => (self, to),
        };
        let base = value * from.factor + from.offset;
        (from.quantity == to.quantity).then(|| (base - to.offset) / to.factor)
    }
}

/// A regular expression that matches any unit's name, longer ones first.
pub fn pattern() -> String {
    let mut names: Vec<String> = Unit::all()
        .flat_map(Unit::names)
        .map(|name| regex::escape(&name.to_lowercase()))
        .collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names.join("|")
}

/// The unit names in normalised text, in order. A lone "in" is taken for the preposition.
pub fn mentioned(text: &str) -> Vec<&str> {
    static NAMES: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(&format!(r"\b(?:{})\b", pattern())).ok());
    let names = NAMES.iter().flat_map(|names| names.find_iter(text));
    names
        .map(|unit| unit.as_str())
        .filter(|unit| *unit != "in")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_found_by_any_of_their_names() {
        assert!(Regex::new(&pattern()).is_ok());
        assert_eq!(Unit::named("Miles").map(|unit| unit.plural), Some("miles"));
        assert_eq!(Unit::named("smoots"), None);
        assert_eq!(
            mentioned("i have 10 miles in here what is that in km"),
            ["miles", "km"]
        );
    }
}
