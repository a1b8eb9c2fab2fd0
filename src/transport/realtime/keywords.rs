//! Keyterms in a client's transcription settings: its `keywords`, and a `prompt` that is a list of them.

use super::fault::{Fault, read};
use crate::asr::keyterms::{MOST, listed, wrong};
use serde_json::Value;

/// The field of the keywords.
const KEYWORDS: &str = "session.audio.input.transcription.keywords";

/// The keyterms in the transcription settings, which may be absent. `None` if the client names none; those of the
/// operator if they are empty.
pub(super) fn keyterms(transcription: Option<&Value>) -> Result<Option<Vec<String>>, Fault> {
    let field = |name| transcription?.get(name).filter(|value| !value.is_null());
    let keywords = field("keywords").map(|value| keywords(value.clone()));
    let keywords = keywords.transpose()?;
    let prompt = field("prompt").and_then(|prompt| listed(prompt.as_str()?));
    if keywords.is_none() && prompt.is_none() {
        return Ok(None);
    }
    let both = keywords.into_iter().chain(prompt).flatten();
    Ok(Some(both.take(MOST).collect()))
}

fn keywords(value: Value) -> Result<Vec<String>, Fault> {
    let terms: Vec<String> = read(value, KEYWORDS)?;
    match wrong(&terms) {
        None => Ok(terms),
        Some((problem, fix)) => {
            let message = format!("{problem}: {fix}.");
            Err(Fault::new("invalid_value", KEYWORDS, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(transcription: &Value) -> Option<Vec<String>> {
        keyterms(Some(transcription)).expect("valid")
    }

    #[test]
    fn keywords_and_a_prompt_that_lists_names_are_keyterms() {
        let named = |terms: &[&str]| Some(terms.iter().map(|&term| term.to_owned()).collect());
        assert_eq!(keyterms(None).expect("valid"), None);
        assert_eq!(found(&Value::Null), None);
        assert_eq!(
            found(&json!({"model": "whisper-1", "keywords": null})),
            None
        );
        assert_eq!(found(&json!({"prompt": "Expect names."})), None);
        assert_eq!(found(&json!({"keywords": []})), named(&[]));
        let both = json!({"keywords": ["Anneliese"], "prompt": "Kronos 7, Siobhan"});
        assert_eq!(found(&both), named(&["Anneliese", "Kronos 7", "Siobhan"]));
        let full = json!({"keywords": vec!["Anneliese"; MOST], "prompt": "Kronos 7, Siobhan"});
        assert_eq!(found(&full).map(|terms| terms.len()), Some(MOST));
    }

    #[test]
    fn keywords_that_are_none_are_refused_by_name() {
        for keywords in [
            json!("Anneliese"),
            json!(["Anneliese", 7]),
            json!(["one, two"]),
            json!([""]),
            json!(["x".repeat(51)]),
            json!(vec!["Anneliese"; MOST + 1]),
        ] {
            let fault = keyterms(Some(&json!({"keywords": keywords}))).expect_err("refused");
            let param = fault.param.expect("a field");
            assert!(param.starts_with(KEYWORDS), "{param}");
        }
    }
}
