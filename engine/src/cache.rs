//! The tool cache: results of tools for answers that are being written, by the call and by the tool's name.

use serde::Deserialize;
use serde_json::{Map, Number, Value};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most results of one answer. Further ones are not taken.
const MOST: usize = 64;

/// One posted result.
#[derive(Debug, Clone, Deserialize)]
pub struct Posted {
    /// The tool's name.
    pub name: String,
    /// The arguments of the call; a result without any is for every call of the tool.
    #[serde(default)]
    pub params: Option<Map<String, Value>>,
    /// The result. A text is used as it is, anything else as JSON.
    pub output: Value,
    /// How long it may be used, seconds; as long as the answer is written, if absent.
    #[serde(default)]
    pub keep_alive: Option<f64>,
}

#[derive(Debug)]
struct Entry {
    params: Option<Map<String, Value>>,
    output: String,
    until: Option<Instant>,
}

/// Results of one answer.
#[derive(Debug, Default)]
struct Results {
    /// By the canonical call, or by the tool if there are no arguments.
    by_key: HashMap<String, Entry>,
    /// The key of the tool's latest result.
    latest: HashMap<String, String>,
}

/// The results of all answers that are being written.
#[derive(Debug, Default)]
pub struct ToolCache(Mutex<HashMap<String, Results>>);

impl ToolCache {
    /// An answer begins, for which results are taken.
    pub fn open(&self, response: &str) {
        self.answers()
            .insert(response.to_owned(), Results::default());
    }

    /// An answer has ended.
    pub fn close(&self, response: &str) {
        self.answers().remove(response);
    }

    /// Keeps results. Returns how many were taken; none if the answer is not being written.
    pub fn put(&self, response: &str, posted: Vec<Posted>) -> usize {
        let mut answers = self.answers();
        let Some(results) = answers.get_mut(response) else {
            return 0;
        };
        let mut taken = 0;
        for one in posted {
            let key = key(&one.name, one.params.as_ref());
            if results.by_key.len() >= MOST && !results.by_key.contains_key(&key) {
                continue;
            }
            let output = match one.output {
                Value::String(text) => text,
                other => other.to_string(),
            };
            let seconds = one.keep_alive.map(|seconds| seconds.clamp(0.0, 86_400.0));
            let until = seconds.map(|seconds| now() + Duration::from_secs_f64(seconds));
            let params = one.params;
            results.latest.insert(one.name, key.clone());
            results.by_key.insert(
                key,
                Entry {
                    params,
                    output,
                    until,
                },
            );
            taken += 1;
        }
        taken
    }

    /// The arguments of the tool's latest result: what the model will probably write.
    pub fn latest(&self, response: &str, name: &str) -> Option<Map<String, Value>> {
        let answers = self.answers();
        let results = answers.get(response)?;
        let entry = results.by_key.get(results.latest.get(name)?)?;
        entry.params.clone().filter(|_| entry.is_fresh())
    }

    /// The result of a call.
    pub fn output(
        &self,
        response: &str,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Option<String> {
        let answers = self.answers();
        let results = &answers.get(response)?.by_key;
        let fresh = |key: String| results.get(&key).filter(|entry| entry.is_fresh());
        let entry = fresh(key(name, Some(arguments))).or_else(|| fresh(key(name, None)))?;
        Some(entry.output.clone())
    }

    fn answers(&self) -> MutexGuard<'_, HashMap<String, Results>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn is_fresh(&self) -> bool {
        self.until.is_none_or(|until| now() < until)
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "an edge: results expire in real time"
)]
fn now() -> Instant {
    Instant::now()
}

/// The same text for calls with equal arguments, in whatever order and form of numbers.
fn key(name: &str, params: Option<&Map<String, Value>>) -> String {
    let canonical = params.map(|params| canonical(&Value::Object(params.clone())));
    format!("{name} {}", canonical.unwrap_or(Value::Null))
}

fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            let members = members.into_iter();
            Value::Object(members.map(|(k, v)| (k.clone(), canonical(v))).collect())
        }
        Value::Array(items) => items.iter().map(canonical).collect(),
        Value::Number(number) => number
            .as_f64()
            .filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15)
            .map_or_else(
                || value.clone(),
                |float| Value::Number(Number::from(float as i64)),
            ),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn posted(value: Value) -> Vec<Posted> {
        serde_json::from_value(value).unwrap()
    }

    fn arguments(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn a_result_is_found_by_its_call_while_the_answer_is_written() {
        let cache = ToolCache::default();
        let sunny = || {
            let params = json!({"city": "Boulder", "days": 2});
            posted(json!([{"name": "weather", "params": params, "output": {"sky": "blue"}}]))
        };
        assert_eq!(cache.put("a", sunny()), 0);
        cache.open("a");
        assert_eq!(cache.put("a", sunny()), 1);
        let same = arguments(json!({"days": 2.0, "city": "Boulder"}));
        let found = cache.output("a", "weather", &same);
        assert_eq!(found.as_deref(), Some(r#"{"sky":"blue"}"#));
        assert_eq!(cache.output("b", "weather", &same), None);
        let other = arguments(json!({"city": "Denver", "days": 2}));
        assert_eq!(cache.output("a", "weather", &other), None);
        assert_eq!(cache.latest("a", "weather").unwrap()["city"], "Boulder");
        cache.close("a");
        assert_eq!(cache.output("a", "weather", &same), None);
    }

    #[test]
    fn a_result_without_arguments_is_for_every_call_and_an_old_one_for_none() {
        let cache = ToolCache::default();
        cache.open("a");
        let any = posted(json!([{"name": "clock", "output": "noon"}]));
        cache.put("a", any);
        let zone = arguments(json!({"zone": "UTC"}));
        assert_eq!(cache.output("a", "clock", &zone).as_deref(), Some("noon"));
        assert_eq!(cache.latest("a", "clock"), None);
        let old = json!([{"name": "clock", "params": {}, "output": "ten", "keep_alive": 0}]);
        cache.put("a", posted(old));
        assert_eq!(cache.latest("a", "clock"), None);
        let found = cache.output("a", "clock", &Map::new());
        assert_eq!(found.as_deref(), Some("noon"));
    }

    #[test]
    fn the_number_of_results_is_bounded() {
        let cache = ToolCache::default();
        cache.open("a");
        let many: Vec<Value> = (0..MOST + 5)
            .map(|n| json!({"name": "clock", "params": {"n": n}, "output": "noon"}))
            .collect();
        assert_eq!(cache.put("a", posted(json!(many))), MOST);
    }
}
