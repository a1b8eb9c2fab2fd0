//! `convert_units`: lengths, weights, volumes, temperatures, times, speeds, areas, data.

use super::{declare, text};
use crate::tools::{CallContext, Declaration, Effect, Tool, ToolError};
use futures_util::future::{BoxFuture, ready};
use serde_json::{Map, Value, json};

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

/// A unit: `base = value * factor + offset`, in metres, grams, litres, kelvins, seconds, metres
/// per second, square metres, bytes. Factors are exact by definition (international yard and
/// pound, 1959; US customary volumes), a year is 365.25 days and a month a twelfth of it.
#[derive(Debug, PartialEq)]
pub struct Unit {
    quantity: Quantity,
    factor: f64,
    offset: f64,
    /// "mile"
    pub singular: &'static str,
    /// "miles"
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
    /// The unit of this name, in any case: singular, plural or abbreviation.
    pub fn named(name: &str) -> Option<&'static Self> {
        let name = name.trim().trim_end_matches('.').to_lowercase();
        UNITS
            .iter()
            .find(|unit| unit.names().any(|known| known.to_lowercase() == name))
    }

    /// Every spelling.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        [self.singular, self.plural]
            .into_iter()
            .chain(self.others.iter().copied())
    }

    /// All units.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        UNITS.iter()
    }

    /// The name that fits a number as it is written.
    pub fn name_for(&self, number: &str) -> &'static str {
        if number == "1" {
            self.singular
        } else {
            self.plural
        }
    }
}

/// `value` in another unit; an ounce is a fluid ounce beside a volume.
fn convert(value: f64, from: &Unit, to: &Unit) -> Option<f64> {
    let (from, to) = match (from.quantity, to.quantity) {
        (Mass, Volume) if from.singular == "ounce" => (&UNITS[FLUID_OUNCE], to),
        (Volume, Mass) if to.singular == "ounce" => (from, &UNITS[FLUID_OUNCE]),
        _ => (from, to),
    };
    let base = value * from.factor + from.offset;
    (from.quantity == to.quantity).then(|| (base - to.offset) / to.factor)
}

/// Two decimals, or three significant digits where those would say nothing.
fn rounded(value: f64) -> f64 {
    if value.abs() >= 0.1 || value == 0.0 {
        return (value * 100.0).round() / 100.0;
    }
    let digits = 2 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// `convert_units{value, from, to}`: `{value, from, result, to, approximate}`, both numbers
/// numeric and the units named to fit them.
pub struct ConvertUnits(Declaration);

impl Default for ConvertUnits {
    fn default() -> Self {
        Self(declare(
            "convert_units",
            "Converts a value between units of length, weight, volume, temperature, time, speed, area or data.",
            Effect::Read,
            json!({
                "type": "object",
                "properties": {
                    "value": {"type": "number"},
                    "from": {"type": "string", "maxLength": 40, "description": "The unit of the value, such as miles."},
                    "to": {"type": "string", "maxLength": 40, "description": "The unit wanted, such as kilometers."}
                },
                "required": ["value", "from", "to"],
                "additionalProperties": false
            }),
        ))
    }
}

impl Tool for ConvertUnits {
    fn declaration(&self) -> &Declaration {
        &self.0
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        _: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        Box::pin(ready(run(&arguments)))
    }
}

fn run(arguments: &Map<String, Value>) -> Result<Value, ToolError> {
    let named = |argument| {
        let name = text(arguments, argument).unwrap_or_default();
        Unit::named(name).ok_or_else(|| ToolError::Failed(format!("unknown unit: {name}")))
    };
    let (from, to) = (named("from")?, named("to")?);
    let value = arguments
        .get("value")
        .and_then(Value::as_f64)
        .unwrap_or(0.0);
    let exact = convert(value, from, to)
        .filter(|result| result.is_finite())
        .ok_or_else(|| {
            ToolError::Failed(format!(
                "{} cannot be converted to {}",
                from.plural, to.plural
            ))
        })?;
    let result = rounded(exact);
    Ok(json!({
        "value": value,
        "from": from.name_for(&value.to_string()),
        "result": result,
        "to": to.name_for(&result.to_string()),
        "approximate": (result - exact).abs() > (1e-9 * exact.abs()).max(1e-12),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(value: f64, from: &str, to: &str) -> Result<(f64, bool), String> {
        let arguments = json!({"value": value, "from": from, "to": to});
        let arguments = arguments.as_object().cloned().unwrap();
        let result = run(&arguments).map_err(|error| error.to_string())?;
        Ok((
            result["result"].as_f64().unwrap(),
            result["approximate"] == true,
        ))
    }

    #[test]
    fn converts() {
        assert_eq!(converted(5.0, "miles", "kilometers"), Ok((8.05, true)));
        assert_eq!(converted(1.0, "foot", "inches"), Ok((12.0, false)));
        assert_eq!(converted(100.0, "C", "fahrenheit"), Ok((212.0, false)));
        assert_eq!(
            converted(-40.0, "degrees Fahrenheit", "celsius"),
            Ok((-40.0, false))
        );
        assert_eq!(converted(8.0, "ounces", "ml"), Ok((236.59, true)));
        assert_eq!(converted(1.0, "mm", "miles"), Ok((0.000_000_621, true)));
        assert_eq!(converted(3.0, "weeks", "days"), Ok((21.0, false)));
    }

    #[test]
    fn refuses_what_has_no_answer() {
        assert_eq!(
            converted(1.0, "miles", "pounds").unwrap_err(),
            "miles cannot be converted to pounds"
        );
        assert_eq!(
            converted(1.0, "smoots", "feet").unwrap_err(),
            "unknown unit: smoots"
        );
    }
}
