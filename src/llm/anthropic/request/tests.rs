use super::*;
use crate::llm::opaque::Block;
use crate::llm::{Demands, Message, Prompts};
use proptest::prelude::*;

#[path = "../../../../tests/support/anthropic.rs"]
mod strict;

fn settings(calls: Calls) -> Settings {
    Settings {
        calls,
        max_tokens: Some(512),
        ..Settings::new("http://host/v1".parse().unwrap(), "m")
    }
}

fn thinking(calls: Calls) -> Settings {
    let extra = json!({"thinking": {"type": "enabled", "budget_tokens": 200}});
    Settings {
        extra_body: extra.as_object().cloned().unwrap(),
        temperature: Some(0.5),
        ..settings(calls)
    }
}

fn user(text: &str) -> Message {
    Message::User { text: text.into() }
}

fn call(id: &str) -> Message {
    Message::ToolCall {
        id: id.into(),
        name: "get_weather".into(),
        arguments: json!({"city": "Lima"}).as_object().cloned().unwrap(),
    }
}

fn result(id: &str) -> Message {
    Message::ToolResult {
        id: id.into(),
        name: "get_weather".into(),
        output: json!({"sky": id}),
    }
}

fn prompt(messages: Vec<Message>) -> Prompt {
    let tool = ToolSpec {
        examples: Vec::new(),
        name: "get_weather".into(),
        description: "The weather in a city".into(),
        parameters: json!({"properties": {"city": {"type": "string"}}}),
    };
    Prompt {
        instructions: Some("Be kind.".into()),
        day: None,
        messages,
        tools: vec![tool].into(),
        demands: Demands::default(),
    }
}

fn request(settings: &Settings, prompt: &Prompt, takes: &Takes, thoughts: &Blocks) -> Value {
    let prompts = Prompts::default().for_calls(settings.calls);
    let messages = prompts.chat(prompt).unwrap();
    Value::Object(body(settings, prompt, &messages, takes, thoughts))
}

fn native(prompt: &Prompt) -> Value {
    let (takes, thoughts) = (Takes::default(), Blocks::default());
    request(&settings(Calls::Native), prompt, &takes, &thoughts)
}

#[test]
fn results_of_a_round_are_one_message_and_come_first() {
    let mut asked = prompt(vec![
        user("Weather?"),
        Message::Agent {
            text: "Let me look.".into(),
            interrupted: false,
        },
        call("one"),
        call("two"),
        result("two"),
        result("one"),
    ]);
    asked.demands.tool_choice = ToolChoice::None;
    let body = native(&asked);
    assert_eq!(strict::refusal(&body), None);
    let messages = body["messages"].as_array().unwrap();
    let [first, said, results] = &messages[..] else {
        panic!("{messages:?}");
    };
    assert_eq!(first["content"][0]["text"], "Weather?");
    assert_eq!(
        said["content"][0],
        json!({"type": "text", "text": "Let me look."})
    );
    assert_eq!(said["content"][1]["input"], json!({"city": "Lima"}));
    let results = results["content"].as_array().unwrap();
    assert_eq!(results.len(), 2, "{results:?}");
    assert_eq!(results[0]["content"], "{\"sky\":\"one\"}");
    // Text after the results makes the model end its turn without a word.
    let last = results[1]["content"].as_str().unwrap();
    assert!(last.starts_with("{\"sky\":\"two\"}\n<note>"), "{last}");
    assert_eq!(body["tool_choice"], json!({"type": "none"}));
}

#[test]
fn tools_flow_as_they_are_written_and_the_system_prompt_is_marked_for_an_hour() {
    let body = native(&prompt(vec![user("Weather?")]));
    assert_eq!(body["tools"][0]["eager_input_streaming"], true);
    assert_eq!(body["tools"][0]["input_schema"]["type"], "object");
    assert_eq!(
        body["system"][0]["cache_control"],
        json!({"type": "ephemeral", "ttl": "1h"})
    );
    assert_eq!(body["cache_control"], json!({"type": "ephemeral"}));
    assert_eq!(
        (&body["max_tokens"], &body["thinking"]),
        (&json!(512), &json!({"type": "disabled"}))
    );
    let settings = settings(Calls::Markup);
    let asked = prompt(vec![user("Weather?")]);
    let body = request(&settings, &asked, &Takes::default(), &Blocks::default());
    assert_eq!(body["tools"], Value::Null);
    let system = body["system"][0]["text"].as_str().unwrap();
    assert!(system.contains("<tool>"), "{system}");
}

/// The parameters that the server takes after it has refused this request.
fn after(takes: &Takes, body: &Value, reason: &str) -> Takes {
    let refusal = crate::llm::LlmError::Status {
        url: String::new(),
        status: 400,
        body: reason.into(),
    };
    takes
        .without(&refusal, body.as_object().unwrap(), &VOCABULARY)
        .unwrap()
}

#[test]
fn each_refusal_leaves_out_what_it_names() {
    let settings = Settings {
        temperature: Some(0.5),
        reasoning_effort: Some("low".into()),
        ..settings(Calls::Native)
    };
    let asked = prompt(vec![user("Weather?")]);
    let mut takes = Takes::default();
    let mut refused = |reason: &str| {
        let body = request(&settings, &asked, &takes, &Blocks::default());
        takes = after(&takes, &body, reason);
        request(&settings, &asked, &takes, &Blocks::default())
    };
    let body = refused("tools.0.custom.eager_input_streaming: Extra inputs are not permitted");
    assert_eq!(body["tools"][0]["eager_input_streaming"], Value::Null);
    let body = refused("system.0.cache_control.ephemeral.ttl: Extra inputs are not permitted");
    assert_eq!(
        body["system"][0]["cache_control"],
        json!({"type": "ephemeral"})
    );
    let body = refused("cache_control: Extra inputs are not permitted");
    assert_eq!(body["cache_control"], Value::Null);
    assert_ne!(body["system"][0]["cache_control"], Value::Null);
    let body = refused("system.0.cache_control: Extra inputs are not permitted");
    assert_eq!(body["system"][0]["cache_control"], Value::Null);
    assert_eq!(body["output_config"], json!({"effort": "low"}));
    let body = refused("This model does not support the effort parameter.");
    assert_eq!(body["output_config"], Value::Null);
    let body = refused("`temperature` is deprecated for this model.");
    assert_eq!(body["temperature"], Value::Null);
    assert_eq!(strict::refusal(&body), None);
}

/// Such a refusal recommends the effort, which was left out for it.
#[test]
fn a_refused_way_of_thinking_gives_way_to_the_next_and_the_effort_stays() {
    let asked = prompt(vec![user("Weather?")]);
    let enabled = Settings {
        reasoning_effort: Some("medium".into()),
        ..thinking(Calls::Native)
    };
    let quiet = Settings {
        reasoning_effort: Some("none".into()),
        ..settings(Calls::Native)
    };
    for (settings, kinds, effort) in [
        (&enabled, ["enabled", "adaptive"], "medium"),
        (&quiet, ["disabled", "between_tools"], "low"),
    ] {
        let mut takes = Takes::default();
        for kind in kinds.map(Some).into_iter().chain([None]) {
            let body = request(settings, &asked, &takes, &Blocks::default());
            assert_eq!(body["thinking"]["type"].as_str(), kind);
            assert_eq!(body["output_config"], json!({"effort": effort}));
            assert_eq!(strict::refusal(&body), None);
            if let Some(kind) = kind {
                let reason = format!(
                    "\"thinking.type.{kind}\" is not supported for this model. Use \"thinking.type.adaptive\" \
                     and \"output_config.effort\" to control thinking behavior."
                );
                takes = after(&takes, &body, &reason);
            }
        }
    }
}

#[test]
fn a_server_that_does_not_know_thinking_is_not_told_of_it() {
    let asked = prompt(vec![user("Weather?")]);
    let settings = settings(Calls::Native);
    for reason in [
        r#"{"loc":["body","thinking"],"msg":"Extra inputs are not permitted"}"#,
        r#"json: unknown field "thinking""#,
        "unknown field `thinking`, expected one of `model`, `messages`",
        "Unknown parameter: 'thinking'",
        "this model does not support parameters: ['thinking']",
        "thinking: Extra inputs are not permitted",
    ] {
        let body = request(&settings, &asked, &Takes::default(), &Blocks::default());
        assert_eq!(body["thinking"], json!({"type": "disabled"}));
        let takes = after(&Takes::default(), &body, reason);
        let body = request(&settings, &asked, &takes, &Blocks::default());
        assert_eq!(body["thinking"], Value::Null, "{reason}");
    }
}

/// The operator's `disabled` was left out after each call, so that the model thought.
#[test]
fn a_way_of_thinking_without_a_budget_stays_in_a_round_without_thoughts() {
    let mut asked = prompt(vec![user("Weather?"), call("one"), result("one")]);
    asked.demands.tool_choice = ToolChoice::Required;
    for kind in ["disabled", "adaptive", "between_tools"] {
        let extra = json!({"thinking": {"type": kind}});
        let settings = Settings {
            extra_body: extra.as_object().cloned().unwrap(),
            temperature: Some(0.5),
            ..settings(Calls::Native)
        };
        let body = request(&settings, &asked, &Takes::default(), &Blocks::default());
        assert_eq!(body["thinking"], extra["thinking"]);
        let thinks = kind != "disabled";
        assert_eq!(body["temperature"].is_null(), thinks, "{kind}");
        assert_eq!(body["tool_choice"].is_null(), thinks, "{kind}");
        assert_eq!(strict::refusal(&body), None);
    }
}

#[test]
fn thoughts_come_back_with_the_calls_that_they_led_to() {
    let settings = thinking(Calls::Native);
    let asked = prompt(vec![user("Weather?"), call("one"), result("one")]);
    let mut thoughts = Blocks::default();
    // Without them the service would refuse the request, so the model does not think about this answer.
    let body = request(&settings, &asked, &Takes::default(), &thoughts);
    assert_eq!(body["thinking"], Value::Null);
    assert_eq!(strict::refusal(&body), None);

    let thought = json!({"type": "thinking", "thinking": "hmm", "signature": "s"});
    let arguments = json!({"city": "Lima"}).as_object().cloned().unwrap();
    let block = Block {
        extra: Some(json!([thought])),
        ..Block::default()
    };
    thoughts.keep(0, "get_weather", &arguments, block);
    let body = request(&settings, &asked, &Takes::default(), &thoughts);
    assert_eq!(body["messages"][1]["content"][0], thought);
    assert_eq!(body["temperature"], Value::Null);
    assert_eq!(strict::refusal(&body), None);

    // A warm-up has no room for thoughts.
    let mut short = asked.clone();
    short.demands.max_tokens = Some(16);
    let body = request(&settings, &short, &Takes::default(), &thoughts);
    assert_eq!(
        (&body["thinking"], &body["temperature"]),
        (&Value::Null, &json!(0.5))
    );
}

#[test]
fn a_user_without_a_word_is_a_note() {
    let body = native(&prompt(vec![user("")]));
    assert_eq!(strict::refusal(&body), None);
    assert_eq!(body["messages"][0]["content"][0]["text"], NOTHING);
}

fn any_message() -> impl Strategy<Value = Message> {
    let text = "[a-z<é ]{0,30}";
    let id = "[abc]";
    // Also names that no tool has.
    let name = prop_oneof![Just("get_weather".to_owned()), "[a-z é.]{0,90}"];
    prop_oneof![
        text.prop_map(|text| Message::User { text }),
        text.prop_map(|text| Message::System { text }),
        (text, any::<bool>()).prop_map(|(text, interrupted)| Message::Agent { text, interrupted }),
        (id, name.clone(), text).prop_map(|(id, name, text)| Message::ToolCall {
            id,
            name,
            arguments: json!({ "text": text }).as_object().cloned().unwrap(),
        }),
        (id, name, text).prop_map(|(id, name, text)| Message::ToolResult {
            id,
            name,
            output: json!({ text.clone(): text }),
        }),
    ]
}

fn any_choice() -> impl Strategy<Value = ToolChoice> {
    prop_oneof![
        Just(ToolChoice::Auto),
        Just(ToolChoice::None),
        Just(ToolChoice::Required),
        Just(ToolChoice::Function("get_weather".into())),
    ]
}

proptest! {
    #[test]
    fn the_service_takes_every_history(
        messages in prop::collection::vec(any_message(), 0..30),
        tool_choice in any_choice(),
        is_native in any::<bool>(),
        has_tools in any::<bool>(),
        thinks in any::<bool>(),
    ) {
        let mut prompt = prompt(messages);
        if !has_tools {
            prompt.tools = Vec::new().into();
        }
        prompt.demands = Demands { tool_choice, ..Demands::default() };
        let calls = if is_native { Calls::Native } else { Calls::Markup };
        let settings = if thinks { thinking(calls) } else { settings(calls) };
        let body = request(&settings, &prompt, &Takes::default(), &Blocks::default());
        prop_assert_eq!(strict::refusal(&body), None, "{:#}", body);
    }
}
