//! From the answer of an MCP server to the result of a call.

use super::text::shortened;
use crate::tools::{Effect, ToolError};
use jsonschema::Validator;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

/// The largest result, bytes of JSON.
const LARGEST: usize = 256 * 1024;
/// The longest error message that is told to the model, characters.
const LONGEST_ERROR: usize = 300;

/// The result: structured content if there is any, else the text and the links. Text that is a JSON object or a list
/// is read as such. A change was made even if its result cannot be used.
pub(super) fn read(
    given: CallToolResult,
    output: Option<&Validator>,
    effect: Effect,
) -> Result<Value, ToolError> {
    let broken = |why: String| Err(ToolError::lost(effect, why));
    let texts: Vec<&str> = given.content.iter().filter_map(text).collect();
    let links: Vec<String> = given.content.iter().filter_map(link).collect();
    // Many servers write `null` for what they do not have.
    let structured = given
        .structured_content
        .filter(|value| !value.is_null() || given.content.is_empty());
    if given.is_error == Some(true) {
        let said = match &structured {
            Some(error) if texts.is_empty() && !error.is_null() => error.to_string(),
            _ => texts.join(" "),
        };
        return Err(refusal(&said, effect));
    }
    let value = match structured {
        Some(structured) => {
            if let Some(error) = output.and_then(|output| output.validate(&structured).err()) {
                return broken(format!(
                    "its result is not what its output schema says: {}",
                    error.masked()
                ));
            }
            structured
        }
        None if texts.is_empty() && links.is_empty() && !given.content.is_empty() => {
            return broken("it answered with images, sounds or other files only".into());
        }
        None => told(&texts, &links),
    };
    match value.to_string().len() {
        ..=LARGEST => Ok(value),
        size => broken(format!("its result has {size} bytes, more than {LARGEST}")),
    }
}

/// The error of a call that was refused with these words, for the model.
pub(super) fn refusal(said: &str, effect: Effect) -> ToolError {
    // The SDKs check a result after the tool has run, and refuse the call in this way, too.
    let is_of_result = ["Output validation error", "structured content"];
    let is_of_result = is_of_result.iter().any(|words| said.contains(words));
    let said = shortened(said, LONGEST_ERROR);
    match said.is_empty() {
        true => ToolError::Broken("it reports an error and does not say which".into()),
        false if is_of_result => ToolError::lost(effect, said),
        false => ToolError::Failed(said),
    }
}

fn text(block: &ContentBlock) -> Option<&str> {
    match block {
        ContentBlock::Text(text) => Some(&text.text),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn link(block: &ContentBlock) -> Option<String> {
    match block {
        ContentBlock::ResourceLink(link) => Some(format!("{}: {}", link.name, link.uri)),
        _ => None,
    }
}

/// The links follow the text, unless that is JSON whose fields are read.
fn told(texts: &[&str], links: &[String]) -> Value {
    let read = serde_json::from_str(&texts.join("\n"));
    if let Ok(read @ (Value::Object(_) | Value::Array(_))) = read {
        return read;
    }
    let links = links.iter().map(String::as_str);
    let all: Vec<&str> = texts.iter().copied().chain(links).collect();
    Value::String(all.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn given(answer: Value) -> Result<Value, ToolError> {
        read(serde_json::from_value(answer).unwrap(), None, Effect::Read)
    }

    #[test]
    fn structured_content_comes_first_then_text() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let both = json!({"content": [text("no")], "structuredContent": {"n": 1}});
        assert_eq!(given(both), Ok(json!({"n": 1})));
        let two = json!({"content": [text("one"), text("two")]});
        assert_eq!(given(two), Ok(json!("one\ntwo")));
        let object = json!({"content": [text("{\"time\": \"noon\"}")]});
        assert_eq!(given(object), Ok(json!({"time": "noon"})));
        assert_eq!(given(json!({"content": [text("12")]})), Ok(json!("12")));
        assert_eq!(given(json!({"content": []})), Ok(json!("")));
    }

    #[test]
    fn images_and_files_alone_are_refused_and_errors_are_told() {
        let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
        let file = json!({"type": "resource", "resource": {"uri": "file:///x", "blob": "AA=="}});
        for block in [image, file] {
            let alone = given(json!({"content": [block]}));
            assert!(matches!(alone, Err(ToolError::Broken(_))), "{alone:?}");
            let beside = json!({"content": [{"type": "text", "text": "a"}, block]});
            assert_eq!(given(beside), Ok(json!("a")));
        }
        let error =
            json!({"content": [{"type": "text", "text": "No such\ncustomer."}], "isError": true});
        let told = Err(ToolError::Failed("No such customer.".into()));
        assert_eq!(given(error), told);
        let silent = given(json!({"content": [], "isError": true}));
        assert!(matches!(silent, Err(ToolError::Broken(_))));
        let structured = json!({"structuredContent": {"reason": "No seat."}, "isError": true});
        let told = Err(ToolError::Failed("{\"reason\":\"No seat.\"}".into()));
        assert_eq!(given(structured), told);
    }

    /// A file that a tool had read did not reach the model.
    #[test]
    fn the_text_of_a_resource_and_links_are_told() {
        let note = json!({"uri": "file:///note", "mimeType": "text/plain", "text": "Call Ann."});
        let note = json!({"type": "resource", "resource": note});
        let link = json!({"type": "resource_link", "uri": "file:///x.pdf", "name": "Invoice"});
        assert_eq!(given(json!({"content": [note]})), Ok(json!("Call Ann.")));
        let alone = given(json!({"content": [link]}));
        assert_eq!(alone, Ok(json!("Invoice: file:///x.pdf")));
        let text = |text: &str| json!({"type": "text", "text": text});
        assert_eq!(
            given(json!({"content": [text("Read."), link, note]})),
            Ok(json!("Read.\nCall Ann.\nInvoice: file:///x.pdf"))
        );
        let fields = json!({"content": [text("{\"total\": 3}"), link]});
        assert_eq!(given(fields), Ok(json!({"total": 3})));
    }

    /// Serialisers write a field that has no value so.
    #[test]
    fn text_beside_a_structured_content_of_null_is_not_lost() {
        let text = json!({"type": "text", "text": "It is open."});
        let beside = json!({"content": [text], "structuredContent": null});
        assert_eq!(given(beside), Ok(json!("It is open.")));
        let alone = json!({"content": [], "structuredContent": null});
        assert_eq!(given(alone), Ok(json!(null)));
    }

    #[test]
    fn results_are_bounded_and_match_the_output_schema() {
        let long = json!({"content": [{"type": "text", "text": "x".repeat(LARGEST)}]});
        assert!(matches!(given(long), Err(ToolError::Broken(_))));
        let schema = json!({"type": "object", "required": ["n"]});
        let output = jsonschema::validator_for(&schema).unwrap();
        let answer = |value: Value| {
            serde_json::from_value(json!({"content": [], "structuredContent": value}))
        };
        let right = read(
            answer(json!({"n": 1})).unwrap(),
            Some(&output),
            Effect::Read,
        );
        assert_eq!(right, Ok(json!({"n": 1})));
        let wrong = read(answer(json!({})).unwrap(), Some(&output), Effect::Read);
        assert!(matches!(wrong, Err(ToolError::Broken(_))));
    }

    /// The model was invited to repeat it.
    #[test]
    fn a_change_whose_result_the_server_refuses_may_have_been_made() {
        for said in [
            "Output validation error: Tool book has an output schema but no structured content was provided",
            "Invalid structured content for tool book: data must have required property 'id'",
        ] {
            let refused = refusal(said, Effect::Reversible);
            assert!(matches!(refused, ToolError::Uncertain(_)), "{refused:?}");
        }
    }
}
