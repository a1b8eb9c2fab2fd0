//! `convert_units`: lengths, weights, volumes, temperatures, times, speeds, areas, data.

use super::{COMPUTED, lookup, text};
use crate::language::en::units::Unit;
use crate::tools::{CallContext, Declaration, Tool, ToolError};
use futures_util::future::{BoxFuture, ready};
use serde_json::{Map, Value, json};

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
        Self(lookup(
            "convert_units",
            "Converts a value between units of length, weight, volume, temperature, time, speed, area or data.",
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
            COMPUTED,
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
    let exact = from
        .convert(value, to)
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
