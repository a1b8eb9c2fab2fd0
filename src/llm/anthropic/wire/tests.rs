use super::*;
use serde_json::json;

/// Decodes events, with one line for each. Reports of finished arguments are left out.
fn decode(events: &[Value]) -> Vec<String> {
    let (mut lines, error) = read(events);
    lines.retain(|line| !line.starts_with("read"));
    lines.extend(error.map(|error| format!("error: {error}")));
    lines
}

fn read(events: &[Value]) -> (Vec<String>, Option<String>) {
    let mut decoder = Decoder::default();
    let mut lines = Vec::new();
    for event in events {
        let (events, error) = decoder.message(&event.to_string());
        lines.extend(events.iter().map(line));
        if error.is_some() || events.contains(&LlmEvent::End) {
            return (lines, error);
        }
    }
    let (events, error) = decoder.end_of_stream();
    lines.extend(events.iter().map(line));
    (lines, error)
}

fn line(event: &LlmEvent) -> String {
    match event {
        LlmEvent::Speech { text } => format!("say {text}"),
        LlmEvent::ToolOpened { name } => format!("open {name}"),
        LlmEvent::ToolArguments { piece } => format!("piece {piece}"),
        LlmEvent::ToolRead { arguments, whole } => {
            let read = Value::Object(arguments.clone());
            format!("read {read}{}", if *whole { " whole" } else { "" })
        }
        LlmEvent::ToolClosed { arguments: Ok(map) } => {
            format!("close {}", Value::Object(map.clone()))
        }
        LlmEvent::ToolClosed {
            arguments: Err(why),
        } => format!("bad {why}"),
        LlmEvent::Thinking => "think".into(),
        LlmEvent::Unable => "unable".into(),
        LlmEvent::Cut => "cut".into(),
        LlmEvent::TakesResults { .. } | LlmEvent::GoesOn => "?".into(),
        LlmEvent::Used { usage } => {
            format!("used {} {} {}", usage.input, usage.cached, usage.output)
        }
        LlmEvent::End => "end".into(),
    }
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant",
        "content": [], "stop_reason": null, "usage": {"input_tokens": 0, "output_tokens": 1}}})
}

fn block(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn words(index: u64, text: &str) -> Value {
    delta(index, json!({"type": "text_delta", "text": text}))
}

fn tool(index: u64, name: &str) -> Value {
    let id = format!("toolu_{index}");
    block(
        index,
        json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
    )
}

fn piece(index: u64, text: &str) -> Value {
    delta(
        index,
        json!({"type": "input_json_delta", "partial_json": text}),
    )
}

fn end_block(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn stop(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": {"output_tokens": 9}})
}

fn over() -> Value {
    json!({"type": "message_stop"})
}

const CUT: &str = "bad the answer was cut off within the call";

#[test]
fn words_then_a_call_in_pieces() {
    let events = [
        start(),
        block(0, json!({"type": "text", "text": ""})),
        json!({"type": "ping"}),
        words(0, "Let me"),
        words(0, " look."),
        end_block(0),
        tool(1, "weather"),
        piece(1, ""),
        piece(1, "{\"city\": \"Li"),
        piece(1, "ma\""),
        piece(1, ", \"days\": 1"),
        piece(1, "2}"),
        end_block(1),
        stop("tool_use"),
        over(),
    ];
    let (lines, error) = read(&events);
    assert_eq!(error, None);
    let said: String = lines
        .iter()
        .filter_map(|line| line.strip_prefix("say "))
        .collect();
    assert_eq!(said.trim_end(), "Let me look.");
    let call = lines.iter().skip_while(|line| *line != "open weather");
    let call: Vec<&str> = call
        .map(String::as_str)
        .filter(|line| !line.starts_with("piece"))
        .collect();
    assert_eq!(
        call,
        [
            "open weather",
            "read {}",
            "read {\"city\":\"Lima\"}",
            "read {\"city\":\"Lima\",\"days\":12} whole",
            "close {\"city\":\"Lima\",\"days\":12}",
            "end"
        ]
    );
}

#[test]
fn a_call_commits_at_once_only_if_its_object_is_whole_and_else_after_a_whole_stop() {
    let whole = [
        tool(0, "w"),
        piece(0, "{\"n\":1}"),
        end_block(0),
        stop("max_tokens"),
        over(),
    ];
    assert_eq!(
        decode(&whole),
        ["open w", "piece {\"n\":1}", "close {\"n\":1}", "cut", "end"]
    );
    // The token limit ends the block of a call whose arguments have not begun.
    for reason in [
        "max_tokens",
        "model_context_window_exceeded",
        "pause_turn",
        "something_new",
    ] {
        let lines = decode(&[tool(0, "w"), end_block(0), stop(reason), over()]);
        assert_eq!(lines[..2], ["open w", CUT], "{reason}");
    }
    for reason in WHOLE {
        let lines = decode(&[tool(0, "w"), end_block(0), stop(reason), over()]);
        assert_eq!(lines, ["open w", "close {}", "end"], "{reason}");
    }
    let refused = decode(&[tool(0, "w"), stop("refusal"), over()]);
    assert_eq!(refused[1], CUT);
    assert!(refused[2].contains("content filter"), "{refused:?}");
    // Without a reason, and without an end.
    assert_eq!(decode(&[tool(0, "w"), over()])[1], CUT);
    let broken = decode(&[tool(0, "w"), piece(0, "{\"n\":"), end_block(0)]);
    assert!(broken.last().unwrap().contains("before the model was done"));
    assert!(!broken.iter().any(|line| line.starts_with("close")));
    let half = decode(&[tool(0, "w"), piece(0, "{\"n\":"), stop("tool_use"), over()]);
    assert!(half[2].starts_with("bad "), "{half:?}");
}

/// llama.cpp ends all blocks after the last one.
#[test]
fn parallel_calls_whose_blocks_end_late() {
    let events = [
        block(0, json!({"type": "text", "text": ""})),
        words(0, "Wait."),
        tool(1, "w"),
        piece(1, "{\"n\":1}"),
        tool(2, "now"),
        tool(3, "v"),
        piece(3, "{\"n\":2}"),
        end_block(0),
        end_block(1),
        end_block(2),
        end_block(3),
        stop("tool_use"),
        over(),
    ];
    let lines = decode(&events);
    let calls: Vec<&str> = lines
        .iter()
        .map(String::as_str)
        .filter(|line| ["open", "close", "bad"].iter().any(|w| line.starts_with(w)))
        .collect();
    // Nothing shows that the second call, which has no arguments yet, is over when the third begins.
    assert_eq!(
        calls,
        [
            "open w",
            "close {\"n\":1}",
            "open now",
            CUT,
            "open v",
            "close {\"n\":2}"
        ]
    );
}

#[test]
fn a_call_without_arguments_is_over_when_its_block_is_and_another_begins() {
    let events = [
        tool(0, "now"),
        piece(0, ""),
        end_block(0),
        tool(1, "w"),
        piece(1, "{}"),
        end_block(1),
        stop("tool_use"),
        over(),
    ];
    assert_eq!(
        decode(&events),
        [
            "open now", "close {}", "open w", "piece {}", "close {}", "end"
        ]
    );
}

#[test]
fn arguments_that_come_with_the_name() {
    let given = json!({"type": "tool_use", "id": "a", "name": "w", "input": {"n": 1}});
    let events = [block(0, given), end_block(0), stop("tool_use"), over()];
    assert_eq!(
        decode(&events),
        ["open w", "piece {\"n\":1}", "close {\"n\":1}", "end"]
    );
}

#[test]
fn special_tokens_behind_a_tools_name_are_no_part_of_it() {
    let name = "now<|channel|>commentary";
    let events = [tool(0, name), end_block(0), stop("tool_use"), over()];
    assert_eq!(decode(&events), ["open now", "close {}", "end"]);
}

#[test]
fn thoughts_and_unknown_events_are_never_speech() {
    let thought = json!({"type": "thinking", "thinking": "", "signature": ""});
    let events = [
        start(),
        block(0, thought),
        delta(
            0,
            json!({"type": "thinking_delta", "thinking": "canary, she"}),
        ),
        delta(0, json!({"type": "thinking_delta", "thinking": " said"})),
        delta(0, json!({"type": "signature_delta", "signature": "sig"})),
        end_block(0),
        json!({"type": "something_new", "text": "canary"}),
        block(1, json!({"type": "server_block", "text": "canary"})),
        delta(1, json!({"type": "new_delta", "text": "canary"})),
        end_block(1),
        block(2, json!({"type": "text", "text": "Hi"})),
        words(2, "."),
        tool(3, "w"),
        piece(3, "{\"n\":1}"),
        end_block(3),
        stop("tool_use"),
        over(),
    ];
    let lines = decode(&events);
    assert!(!lines.concat().contains("canary"), "{lines:?}");
    assert_eq!(lines[0], "think");
    let mut decoder = Decoder::default();
    for event in &events {
        decoder.message(&event.to_string());
    }
    let (name, arguments, kept) = decoder.blocks().pop().unwrap();
    assert_eq!((name.as_str(), json!(arguments)), ("w", json!({"n": 1})));
    let kept = kept.extra.unwrap();
    assert_eq!(
        kept,
        json!([{"type": "thinking", "thinking": "canary, she said", "signature": "sig"}])
    );
}

#[test]
fn thoughts_without_a_signature_or_too_long_are_not_kept() {
    let call = [
        tool(1, "w"),
        piece(1, "{}"),
        end_block(1),
        stop("tool_use"),
        over(),
    ];
    let long = "x".repeat(MAX_THOUGHT_BYTES);
    for (text, signature) in [("hmm", ""), (long.as_str(), "sig")] {
        let mut decoder = Decoder::default();
        let thought = json!({"type": "thinking", "thinking": "", "signature": ""});
        let deltas = [
            delta(0, json!({"type": "thinking_delta", "thinking": text})),
            delta(
                0,
                json!({"type": "signature_delta", "signature": signature}),
            ),
        ];
        for event in [block(0, thought)].iter().chain(&deltas).chain(&call) {
            decoder.message(&event.to_string());
        }
        assert!(decoder.blocks().is_empty());
    }
}

#[test]
fn an_answer_without_a_word_says_why() {
    let cut = decode(&[start(), stop("max_tokens"), over()]);
    assert!(cut[0].contains("llm.max_tokens"), "{cut:?}");
    let full = decode(&[start(), stop("model_context_window_exceeded"), over()]);
    assert!(full[0].contains("llm.max_prompt_tokens"), "{full:?}");
    let said = decode(&[start(), words(0, "Once"), stop("max_tokens"), over()]);
    assert_eq!(said[said.len() - 2..], ["cut", "end"]);
}

#[test]
fn errors_in_the_stream() {
    let overloaded =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let lines = decode(&[start(), words(0, "Hi"), overloaded]);
    assert_eq!(lines.last().unwrap(), "error: Overloaded");
    let bare = json!({"error": {"message": "boom"}});
    assert_eq!(decode(&[bare]), ["error: boom"]);
    assert!(decode(&[json!("what?")])[0].starts_with("error: unexpected data"));
    assert!(decode(&[])[0].contains("before the model was done"));
}

#[test]
fn token_counts_include_what_the_cache_holds() {
    let counted = json!({"type": "message_start", "message": {"usage": {"input_tokens": 10,
        "cache_creation_input_tokens": 20, "cache_read_input_tokens": 70, "output_tokens": 1}}});
    let lines = decode(&[counted, words(0, "Hi"), stop("end_turn"), over()]);
    assert_eq!(lines[lines.len() - 2..], ["used 100 70 9", "end"]);
}

#[test]
fn counts_and_indexes_of_any_type_are_read() {
    let counted = json!({"type": "message_start", "message": {"usage": {"input_tokens": 10.5,
        "cache_creation_input_tokens": "20", "cache_read_input_tokens": 70.0, "output_tokens": -1}}});
    let lines = decode(&[counted, words(0, "Hi"), stop("end_turn"), over()]);
    assert_eq!(lines[lines.len() - 2..], ["used 80 70 9", "end"]);
    let most = json!({"type": "message_start", "message": {"usage": {"input_tokens": u64::MAX,
        "cache_read_input_tokens": u64::MAX}}});
    let lines = decode(&[most, words(0, "Hi"), stop("end_turn"), over()]);
    assert_eq!(lines.last().unwrap(), "end");
    // Each index is as odd as the others of its block.
    let odd = |mut event: Value, index: Value| {
        event["index"] = index;
        event
    };
    let events = [
        odd(tool(0, "w"), json!("0")),
        odd(piece(0, "{\"n\":1}"), json!(0.0)),
        odd(end_block(0), json!(0)),
        odd(tool(1, "v"), json!(1.0)),
        odd(piece(1, "{}"), json!("1")),
        stop("tool_use"),
        over(),
    ];
    let mut lines = decode(&events);
    lines.retain(|line| line.starts_with("close"));
    assert_eq!(lines, ["close {\"n\":1}", "close {}"]);
}

#[test]
fn thoughts_that_end_with_the_last_character_have_ended() {
    let mut decoder = Decoder::new(true, Vec::new());
    for event in [words(0, "Hm.[/THINK]"), stop("end_turn"), over()] {
        assert_eq!(decoder.message(&event.to_string()).1, None);
    }
}

#[test]
fn markup_in_text() {
    let text = "<speech>Hi.</speech><tool>w(n=1)</tool>";
    for size in [1, 2, 3, 7, text.len()] {
        let mut events = vec![start(), block(0, json!({"type": "text", "text": ""}))];
        for piece in text.as_bytes().chunks(size) {
            events.push(words(0, std::str::from_utf8(piece).unwrap()));
        }
        events.extend([end_block(0), stop("end_turn"), over()]);
        let lines = decode(&events);
        assert!(
            lines.contains(&"close {\"n\":1}".to_owned()),
            "{size}: {lines:?}"
        );
        assert!(!lines.concat().contains('<'), "{lines:?}");
    }
}

#[test]
fn a_call_in_the_text_behind_a_native_one_is_read_and_its_words_are_not_said() {
    let mut decoder = Decoder::new(false, vec!["weather".into(), "news".into()]);
    let events = [
        start(),
        tool(0, "weather"),
        piece(0, "{}"),
        end_block(0),
        words(1, "And the news. <tool>ne"),
        words(1, "ws()</tool>"),
        words(1, "<tool>erase()</tool>"),
        stop("tool_use"),
        over(),
    ];
    let events = events
        .iter()
        .flat_map(|event| decoder.message(&event.to_string()).0);
    let mut lines: Vec<String> = events.map(|event| line(&event)).collect();
    lines.retain(|line| !line.starts_with("read") && !line.starts_with("piece"));
    let refused = "bad no tool of this name is offered";
    assert_eq!(
        lines,
        [
            "open weather",
            "close {}",
            "open news",
            "close {}",
            "open erase",
            refused,
            "end"
        ]
    );
}

#[test]
fn memory_is_bounded() {
    let many: Vec<Value> = (0..100)
        .flat_map(|n| [tool(n, "w"), piece(n, "{}")])
        .collect();
    let opened = decode(&many);
    let opened = opened.iter().filter(|line| line.starts_with("open"));
    assert_eq!(opened.count(), MAX_CALLS);
    let long = "x".repeat(crate::llm::markup::MAX_ARGUMENT_BYTES + 1);
    let lines = decode(&[tool(0, "w"), piece(0, &long), stop("tool_use"), over()]);
    assert!(lines.contains(&"bad the arguments are too long".to_owned()));
}

#[test]
fn a_call_in_the_text_and_natively_is_one_call() {
    let written = r#"<tool_call>{"name": "w", "arguments": {"n": 5}}</tool_call>"#;
    let closed = |native: &str, reason: &str| {
        let events = [
            start(),
            block(0, json!({"type": "text", "text": ""})),
            words(0, written),
            end_block(0),
            tool(1, "w"),
            piece(1, native),
            end_block(1),
            stop(reason),
            over(),
        ];
        let mut lines = decode(&events);
        lines.retain(|line| line.starts_with("close") || line.starts_with("bad"));
        lines
    };
    let once = ["close {\"n\":5}"];
    assert_eq!(closed("{\"n\": 5}", "tool_use"), once);
    assert_eq!(closed("{\"n\": ", "max_tokens"), once);
    let both = ["close {\"n\":5}", "close {\"n\":6}"];
    assert_eq!(closed("{\"n\": 6}", "tool_use"), both);
}
