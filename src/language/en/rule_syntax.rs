//! The placeholders in a tool's rules.

use super::units;
use crate::language::accents;

/// The regular expression of a rule, with `{number}`, `{unit}` and `{length}` expanded.
pub(crate) fn pattern(rule: &str) -> String {
    const NUMBER: &str = r"-?\d+(?:\.\d+)?";
    const LENGTH: &str = concat!(
        r"(?:(?:(?:\d+(?:\.\d+)?|an?|half an?|a couple of|quarter of an) ?",
        r"(?:hours?|hrs?|minutes?|mins?|seconds?|secs?)(?: and a half)?)(?: and)? ?)+",
    );
    let units = || format!("(?:{})", units::pattern());
    let rule = rule.trim_start_matches("raw:");
    let mut expanded = rule.replace("{number}", NUMBER).replace("{length}", LENGTH);
    if expanded.contains("{unit}") {
        expanded = expanded.replace("{unit}", &units());
    }
    accents::optional(&expanded)
}
