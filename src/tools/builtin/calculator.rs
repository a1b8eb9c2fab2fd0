//! `calculate`: arithmetic, exact where it can be.

use super::{COMPUTED, lookup, text};
use crate::language::en::expression;
use crate::language::en::numbers::plain;
use crate::tools::{CallContext, Declaration, Tool, ToolError};
use fend_core::{Context, Interrupt};
use futures_util::future::{BoxFuture, ready};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicU32, Ordering};

/// The most steps of a sum. Those that people ask for take up to some 1,500, and 9^9^9 must not hold the thread. It is
/// no limit in time: on a busy machine any sum would exceed that.
const STEPS: u32 = 20_000;
/// Integers of up to this many digits are given in full.
const DIGITS: usize = 15;

/// `calculate{expression}`: `{expression, result, approximate}`, the result as it should be read.
/// Takes symbols and words: `12 * 7`, "15 percent of 80", "the square root of 144".
pub struct Calculate(Declaration);

impl Default for Calculate {
    fn default() -> Self {
        Self(lookup(
            "calculate",
            "Works out an arithmetic expression.",
            json!({
                "type": "object",
                "properties": {
                    "expression": {
                        "type": "string", "minLength": 1, "maxLength": 200,
                        "description": "Numbers with + - * / ^ ( ) sqrt() and %, such as 12 * 7 or 15% of 80."
                    }
                },
                "required": ["expression"],
                "additionalProperties": false
            }),
            COMPUTED,
        ))
    }
}

impl Tool for Calculate {
    fn declaration(&self) -> &Declaration {
        &self.0
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        _: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let result = run(text(&arguments, "expression").unwrap_or_default());
        Box::pin(ready(result.map_err(ToolError::Failed)))
    }
}

fn run(given: &str) -> Result<Value, String> {
    let expression =
        expression::read(given).ok_or_else(|| format!("{given:?} is not arithmetic"))?;
    let exact = evaluate(&expression::for_evaluation(&expression))?;
    let (result, approximate) = readable(&exact)?;
    Ok(json!({"expression": expression, "result": result, "approximate": approximate}))
}

/// Counts the steps of a sum.
#[derive(Default)]
struct Steps(AtomicU32);

impl Interrupt for Steps {
    fn should_interrupt(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) >= STEPS
    }
}

/// A fresh context each time: no variables, no random numbers, no exchange rates.
fn evaluate(expression: &str) -> Result<String, String> {
    fend_core::evaluate_with_interrupt(expression, &mut Context::new(), &Steps::default())
        .map(|result| result.get_main_result().to_owned())
        .map_err(|error| reason(&error))
}

fn reason(error: &str) -> String {
    if error.contains("division by zero") {
        "nothing can be divided by zero".into()
    } else if error.contains("interrupted") || error.contains("too large") {
        "that number is too large".into()
    } else {
        format!("that has no answer: {error}")
    }
}

/// The calculator's output as it should be read, and whether digits were dropped.
fn readable(output: &str) -> Result<(String, bool), String> {
    let number = output.trim_start_matches("approx. ").replace(',', "");
    let approximate = number.len() < output.len() && output.starts_with("approx.");
    let whole = number
        .trim_start_matches('-')
        .chars()
        .all(|c| c.is_ascii_digit());
    if whole && number.len() <= DIGITS && !approximate {
        return Ok((number, false));
    }
    let value: f64 = number
        .parse()
        .ok()
        .filter(|value: &f64| value.is_finite())
        .ok_or("that has no answer among the ordinary numbers")?;
    Ok(rounded(value, approximate))
}

/// Four decimals for ordinary sizes, four significant digits beyond.
fn rounded(value: f64, approximate: bool) -> (String, bool) {
    let size = value.abs();
    if value != 0.0 && !(1e-3..1e15).contains(&size) {
        return (format!("{value:.3e}"), true);
    }
    let short = (value * 1e4).round() / 1e4;
    (plain(short), approximate || (short - value).abs() > 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(expression: &str) -> Result<String, String> {
        let result = run(expression)?;
        let about = if result["approximate"] == true {
            "about "
        } else {
            ""
        };
        Ok(format!("{about}{}", result["result"].as_str().unwrap()))
    }

    #[test]
    fn works_out_sums() {
        for (expression, expected) in [
            ("12 * 7", "84"),
            ("what's 12 times 7", "84"),
            ("15 percent of 80", "12"),
            ("15% of 80", "12"),
            ("30% off 235", "164.5"),
            ("square root of 144", "12"),
            ("2 to the power of 10", "1024"),
            ("10 / 3", "about 3.3333"),
            ("0.1 + 0.2", "0.3"),
            ("7 - 10", "-3"),
            ("(2 + 3) * 4", "20"),
            ("2^100", "about 1.268e30"),
            ("sqrt(2)", "about 1.4142"),
            ("twenty percent tip on forty five dollars", "9"),
            ("1,000 divided by 8", "125"),
        ] {
            assert_eq!(answer(expression), Ok(expected.into()), "{expression}");
        }
    }

    #[test]
    fn says_why_there_is_no_answer() {
        assert_eq!(
            answer("5 divided by zero").unwrap_err(),
            "nothing can be divided by zero"
        );
        assert_eq!(answer("9^9^9^9").unwrap_err(), "that number is too large");
        assert!(answer("sqrt(-4)").unwrap_err().contains("ordinary numbers"));
        assert!(answer("roll d20").unwrap_err().contains("not arithmetic"));
        assert!(answer("a = 3; a").unwrap_err().contains("not arithmetic"));
    }
}
