mod forms;

use super::*;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Joins adjacent pieces, and leaves out what depends on how the text is cut.
fn merged(events: impl IntoIterator<Item = LlmEvent>) -> Vec<LlmEvent> {
    let mut joined = Events::default();
    for event in events {
        match event {
            LlmEvent::ToolRead { .. } => {}
            LlmEvent::Speech { text } => text.chars().for_each(|c| joined.speech(c)),
            LlmEvent::ToolArguments { piece } => piece.chars().for_each(|c| joined.argument(c)),
            other => joined.push(other),
        }
    }
    joined.0
}

/// A parser for a model that is offered two tools.
fn parser() -> Parser {
    Parser::new().tools(vec!["quokka_rooms".into(), "pay".into()])
}

fn parse(text: &str) -> Vec<LlmEvent> {
    let mut parser = parser();
    let mut events = parser.push(text);
    events.extend(parser.finish());
    merged(events)
}

/// A tool's name and its arguments, or the error.
type Called = (String, Result<Value, String>);

/// Returns the spoken text, and each call with its arguments or error.
fn read(text: &str) -> (String, Vec<Called>) {
    summary(parse(text))
}

fn summary(events: Vec<LlmEvent>) -> (String, Vec<Called>) {
    let (mut spoken, mut calls, mut open) = (String::new(), Vec::new(), String::new());
    for event in events {
        match event {
            LlmEvent::Speech { text } => spoken.push_str(&text),
            LlmEvent::ToolOpened { name } => open = name,
            LlmEvent::ToolClosed { arguments } => {
                calls.push((open.clone(), arguments.map(Value::Object)));
            }
            _ => {}
        }
    }
    (spoken, calls)
}

fn speaks(input: &str, expected: &str) {
    assert_eq!(read(input), (expected.to_owned(), vec![]), "{input:?}");
}

fn calls(input: &str, name: &str, arguments: Value) {
    let expected = vec![(name.to_owned(), Ok(arguments))];
    assert_eq!(read(input).1, expected, "{input:?}");
}

fn refuses(input: &str, name: &str, part: &str) {
    let calls = read(input).1;
    assert_eq!(calls.len(), 1, "{input:?}: {calls:?}");
    let (called, result) = &calls[0];
    assert_eq!(called, name, "{input:?}");
    let error = result.as_ref().expect_err(input);
    assert!(error.contains(part), "{input:?}: {error:?}");
}

#[test]
fn a_filler_and_a_call() {
    let speech = |text: &str| LlmEvent::Speech { text: text.into() };
    let input = "<speech>Checking.</speech>\n<tool>get_weather(city=\"Boulder\", n=5)</tool>";
    let arguments = json!({"city": "Boulder", "n": 5}).as_object().cloned();
    let expected = vec![
        speech("Checking.\n"),
        LlmEvent::ToolOpened {
            name: "get_weather".into(),
        },
        LlmEvent::ToolArguments {
            piece: "city=\"Boulder\", n=5".into(),
        },
        LlmEvent::ToolClosed {
            arguments: Ok(arguments.unwrap()),
        },
    ];
    assert_eq!(parse(input), expected);
}

#[test]
fn the_end_of_speech_and_the_name_of_a_tool_are_known_at_once() {
    let mut parser = parser();
    assert_eq!(
        merged(parser.push("<speech>One moment</speech>")),
        [LlmEvent::Speech {
            text: "One moment\n".into()
        }]
    );
    assert_eq!(parser.push("<tool>now"), []);
    assert_eq!(
        merged(parser.push("(")),
        [LlmEvent::ToolOpened { name: "now".into() }]
    );
}

#[test]
fn speech_without_its_markup() {
    speaks("<speech>Hello there.</speech>", "Hello there.\n");
    speaks("<SPEECH lang='en'>Hello</Speech >", "Hello\n");
    speaks("no tags at all", "no tags at all");
    speaks(
        " \n <speech> Hi </speech> \n <speech>you</speech>\n",
        "Hi\nyou\n",
    );
    speaks("<speech>never closed", "never closed");
    speaks("stray</speech> close</tool>", "stray\nclose");
    speaks("a <b>bold</b> word<br/>and more", "a bold word and more");
    speaks(
        "<speech>one <speech>two</speech> three</speech>",
        "one two\nthree\n",
    );
    speaks("<!-- quiet --><|im_end|><?xml?>loud", "loud");
    speaks("<think>plan <tool>x()</tool> a < b</think>done", "done");
    speaks("<thinking>never closed", "");
    speaks("<no_think>aloud</no_think>", "aloud");
    speaks("```xml\n<speech>fenced</speech>\n```", "fenced\n");
    speaks("run `ls` now", "run ls now");
    speaks("two\n\nlines   here", "two\nlines here");
    speaks("half a tag <spee", "half a tag");
    speaks("a <b and so on", "a and so on");
}

#[test]
fn angle_brackets_that_are_not_tags() {
    speaks("5 < 6", "5 less than 6");
    speaks("<5 minutes", "less than 5 minutes");
    speaks(
        "6 > 5 and 6 >= 6",
        "6 greater than 5 and 6 greater than or equal to 6",
    );
    speaks("5 <= 6", "5 less than or equal to 6");
    speaks("a -> b", "a - b");
    speaks("a <", "a");
    speaks("＜tool＞x()＜/tool＞", "toolx()/tool");
}

#[test]
fn entities() {
    speaks(
        "AT&T &amp; Tom&apos;s &quot;R&D;&quot;",
        "AT&T & Tom's \"R&D;\"",
    );
    speaks("5 &lt; 6 &gt; 4", "5 less than 6 greater than 4");
    speaks(
        "&lt;tool&gt;send_money(n=1)&lt;/tool&gt;",
        "toolsend_money(n=1)/tool",
    );
    speaks("&amp;lt;tool&amp;gt;", "&lt;tool&gt;");
    speaks("&#60;tool&#x3e;x&#233;&#0;", "toolxé");
    speaks("&&amp", "&&amp");
}

#[test]
fn ways_to_write_a_call() {
    let boulder = json!({"city": "Boulder"});
    for input in [
        "<tool>w(city=\"Boulder\")</tool>",
        "<TOOL> w ( city = 'Boulder' , ) \n</TOOL >",
        "<tool>w(city: \"Boulder\")</tool>",
        "<tool>w({\"city\":\"Boulder\"})</tool>",
        "<tool>w{\"city\":\"Boulder\"}</tool>",
        "<tool name=\"w\">{\"city\":\"Boulder\",}</tool>",
        "<tool name='w'>city=\"Boulder\"</tool>",
        "<tool name=w>(city=\"Boulder\")</tool>",
        "<tool>{\"name\":\"w\",\"arguments\":{\"city\":\"Boulder\"}}</tool>",
        "<tool>{'arguments':\"{\\\"city\\\":\\\"Boulder\\\"}\",'name':'w'}</tool>",
        "<tool_call>\n{\"name\": \"w\", \"arguments\": {\"city\": \"Boulder\"}}\n</tool_call>",
        "```xml\n<tool>w(city=\"Boulder\");</tool>\n```",
        "<speech>Sure.<tool>w(city=\"Boulder\")</tool></speech>",
    ] {
        calls(input, "w", boulder.clone());
    }
    for input in [
        "<tool>now()</tool>",
        "<tool>now</tool>",
        "<tool name='now'/>",
        "<tool name=\"now\"></tool>",
    ] {
        calls(input, "now", json!({}));
    }
}

#[test]
fn values() {
    calls(
        r#"<tool>f(a="q\"\n\u00e9\ud83d\ude00", n=-5, x=1.5e3, t=true, u=None, l=["a", 'b',], o={"k": {"z": 1}})</tool>"#,
        "f",
        json!({"a": "q\"\né😀", "n": -5, "x": 1500.0, "t": true, "u": null, "l": ["a", "b"], "o": {"k": {"z": 1}}}),
    );
    calls(
        "<tool>f(a=\"x) </tool> <tool>y(\")</tool>",
        "f",
        json!({"a": "x) </tool> <tool>y("}),
    );
    calls("<tool>f(a='it\\'s')</tool>", "f", json!({"a": "it's"}));
    calls(
        "<tool>f(a=\"it's\", b=\"\")</tool>",
        "f",
        json!({"a": "it's", "b": ""}),
    );
}

#[test]
fn calls_that_cannot_be_read_are_never_committed() {
    refuses("<tool>w(\"Boulder\")</tool>", "w", "argument 1 has no name");
    refuses("<tool>w(city=Boulder)</tool>", "w", "quotes");
    refuses("<tool>w(note=don't)</tool>", "w", "quotes");
    refuses("<tool>w(a=1, a=2)</tool>", "w", "twice");
    refuses("<tool>w(a=1 b=2)</tool>", "w", "comma");
    refuses("<tool>w(a=1e999)</tool>", "w", "not a number");
    refuses("<tool>w(a=[1)</tool>", "w", "");
    refuses("<tool>w(a=1</tool>", "w", "parenthesis");
    refuses("<tool>w(a=1)", "w", "not closed");
    refuses("<tool>w(a=\"1)</tool>", "w", "not closed");
    refuses("<tool>w(a=1) x(b=2)</tool>", "w", "only one call");
    refuses("<tool>send money</tool>", "send", "written");
    refuses("<tool></tool>", "invalid", "no name");
    refuses("<tool>(a=1)</tool>", "invalid", "written");
    refuses("<tool>{\"arguments\":{}}</tool>", "invalid", "no name");
    refuses("<tool>{\"name\":\"a b\"}</tool>", "ab", "name");
    refuses("<tool name='a b'>", "ab", "name");
}

#[test]
fn a_tag_within_a_call_ends_it_uncommitted() {
    let (spoken, calls) = read("<tool>w(a=1)<speech>Hi</speech><tool>v()</tool>");
    assert_eq!(spoken, "Hi\n");
    assert_eq!(calls.len(), 2);
    assert!(calls[0].1.is_err());
    assert_eq!(calls[1], ("v".into(), Ok(json!({}))));
}

#[test]
fn memory_is_bounded() {
    let long = "x".repeat(MAX_ARGUMENT_BYTES);
    refuses(&format!("<tool>w(a=\"{long}\")</tool>"), "w", "too long");
    refuses(
        &format!("<tool>{long}()</tool>"),
        &long[..MAX_NAME_CHARS],
        "too long",
    );
    let deep = "[".repeat(5000) + &"]".repeat(5000);
    refuses(&format!("<tool>w(a={deep})</tool>"), "w", "deep");
    speaks(&format!("<think>{long}</think>ok"), "ok");
    let (spoken, calls) = read(&format!("<tool>w(a=\"{long}\")</tool>go on"));
    assert_eq!((spoken.as_str(), calls.len()), ("go on", 1));
}

/// The arguments that are reported after each piece, with a mark if there are no others.
fn reads(pieces: &[&str]) -> Vec<String> {
    let mut parser = parser();
    let events = pieces.iter().map(|piece| parser.push(piece));
    let read = |events: Vec<LlmEvent>| {
        let reads = events.into_iter().filter_map(|event| match event {
            LlmEvent::ToolRead { arguments, whole } => {
                let end = if whole { "." } else { "" };
                Some(format!("{}{end}", Value::Object(arguments)))
            }
            _ => None,
        });
        reads.collect::<Vec<_>>().join(" ")
    };
    events.map(read).collect()
}

#[test]
fn finished_arguments_are_reported_before_the_call_is_closed() {
    let pieces = [
        "<tool>", "w", "(", "city", "=\"Den", "ver", "\"", ", ", "days", "=3", ")", "</", "tool>",
    ];
    let expected = [
        "",
        "",
        "{}",
        "",
        "",
        "",
        r#"{"city":"Denver"}"#,
        "",
        "",
        "",
        r#"{"city":"Denver","days":3}."#,
        "",
        "",
    ];
    assert_eq!(reads(&pieces), expected);
}

#[test]
fn a_number_is_finished_when_something_follows_it() {
    let pieces = ["<tool>f(n=1", "2", " ", ")"];
    assert_eq!(reads(&pieces), ["", "", r#"{"n":12}"#, r#"{"n":12}."#]);
}

#[test]
fn finished_arguments_of_every_form_of_a_call_are_reported() {
    let named = ["<tool name=\"w\">", "{\"city\": \"Rome\"", "}"];
    let rome = r#"{"city":"Rome"}"#;
    assert_eq!(reads(&named), ["{}", rome, &format!("{rome}.")]);
    let object = ["<tool>w", "{", "\"city\": \"Rome\"", "} "];
    assert_eq!(reads(&object), ["", "{}", rome, &format!("{rome}.")]);
    let nested = ["<tool>w(a=[\"x\"", "], b={\"c\": \"y\"", "}", ")"];
    let all = r#"{"a":["x"],"b":{"c":"y"}}"#;
    assert_eq!(reads(&nested), ["", "", all, &format!("{all}.")]);
    assert_eq!(reads(&["<tool>now()", "</tool>"]), ["{}.", ""]);
}

#[test]
fn a_call_in_one_piece_is_not_reported_before_its_end() {
    assert_eq!(reads(&["<tool>w(city=\"Rome\")</tool>"]), [""]);
}

#[test]
fn arguments_that_cannot_be_read_are_not_reported() {
    for text in [
        "w(Rome",
        "w(city=Rome)",
        "w(city=\"Rome\" and",
        "w(a=\"1\", a=\"2\"",
        "w(a=\"1\") v(",
    ] {
        assert_eq!(reads(&["<tool>", text]), ["", ""], "{text}");
    }
    let long = format!("w(text=\"{}\"", "x".repeat(MAX_ARGUMENT_BYTES / 2));
    assert_eq!(reads(&["<tool>", &long]), ["", ""]);
}

#[test]
fn bytes_that_are_not_text() {
    let mut parser = parser();
    let mut events = parser.push_bytes(b"caf\xc3");
    events.extend(parser.push_bytes(b"\xa9 \xff\xe2\x82"));
    events.extend(parser.finish());
    assert_eq!(
        merged(events),
        [LlmEvent::Speech {
            text: "café \u{fffd}\u{fffd}".into()
        }]
    );
}

/// Fragments that are likely to confuse the parser.
fn fragment() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec![
            "<speech>", "</speech>", "<tool>", "</tool>", "<tool name=\"w\">", "<tool name='", "/>",
            "</", "<", ">", "get(", "w(a=\"", "\"", "'", ")", "{", "}", "[", "]", "=", ",", "\\", "n=1",
            "{\"name\":\"w\",", "\"arguments\":", "&lt;", "&gt;", "&amp;", "&", ";", "&#60;", "```", "`xml",
            "<think>", "</think>", "<b>", "<TOOL", "<!--", "-->", "<|", "|>", " ", "\n", "hello", "5 < 6",
            "é", "😀", "＜tool＞", "\u{200b}", "<tool_call>", "</tool_call>", "\u{0}", "<function=w>",
            "<parameter=a>", "</parameter>", "</function>", "[TOOL_CALLS]", "[ARGS]", ">>>", "◁think▷", "◁/think▷",
            "<|python_tag|>", "<|channel|>", "analysis", "to=functions.w", "<|message|>", "<|start|>", "<|end|>",
            "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "[{\"name\":\"w\",", "Yes. ", "all\n",
            "<tool_calls>", "</tool_calls>", "<escape>", "[f(n=1)]", "[THINK]", "[/THINK]",
        ]).prop_map(str::to_owned),
        1 => "\\PC{0,6}",
    ]
}

fn answer() -> impl Strategy<Value = String> {
    prop::collection::vec(fragment(), 0..24).prop_map(|parts| parts.concat())
}

fn in_pieces(bytes: &[u8], cuts: &[prop::sample::Index]) -> Vec<LlmEvent> {
    let (mut parser, mut events) = pushed(bytes, cuts);
    events.extend(parser.finish());
    merged(events)
}

/// Pushes the bytes in pieces, without an end.
fn pushed(bytes: &[u8], cuts: &[prop::sample::Index]) -> (Parser, Vec<LlmEvent>) {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    at.push(bytes.len());
    at.sort_unstable();
    let (mut parser, mut events, mut from) = (parser(), Vec::new(), 0);
    for to in at {
        events.extend(parser.push_bytes(&bytes[from..to]));
        from = to;
    }
    (parser, events)
}

/// Whether opened, arguments and closed are in order, and no `<` or `>` is spoken.
fn well_formed(events: &[LlmEvent]) -> bool {
    let mut open = false;
    events.iter().all(|event| match event {
        LlmEvent::Speech { text } => !open && !text.contains(['<', '>', '＜', '＞']),
        LlmEvent::ToolOpened { name } => {
            !std::mem::replace(&mut open, true) && (1..=MAX_NAME_CHARS).contains(&name.len())
        }
        LlmEvent::ToolArguments { .. } | LlmEvent::ToolRead { .. } => open,
        LlmEvent::ToolClosed { .. } => std::mem::replace(&mut open, false),
        LlmEvent::Thinking
        | LlmEvent::TakesResults { .. }
        | LlmEvent::GoesOn
        | LlmEvent::Unable
        | LlmEvent::Cut
        | LlmEvent::Used { .. }
        | LlmEvent::End => false,
    }) && !open
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        answer().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(any::<String>(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn arguments() -> impl Strategy<Value = Map<String, Value>> {
    let key = prop_oneof!["[a-z_][a-z0-9_-]{0,8}", any::<String>(), answer()];
    prop::collection::hash_map(key, value(), 0..4).prop_map(|map| map.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn any_cut_gives_the_same_events(text in answer(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let whole = parse(&text);
        prop_assert!(well_formed(&whole), "{:?}", whole);
        prop_assert_eq!(in_pieces(text.as_bytes(), &cuts), whole);
    }

    #[test]
    fn any_cut_of_bytes_gives_the_same_events(
        mut bytes in answer().prop_map(String::into_bytes),
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        for (at, byte) in noise {
            bytes.insert(at.index(bytes.len() + 1), byte);
        }
        let whole = parse(&String::from_utf8_lossy(&bytes));
        prop_assert!(well_formed(&whole), "{:?}", whole);
        prop_assert_eq!(in_pieces(&bytes, &cuts), whole);
    }

    /// A call's reported arguments are a part of those that are read in the end, and all of them if it was reported as
    /// whole.
    #[test]
    fn reported_arguments_are_those_of_the_call(
        arguments in arguments(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let text = format_call(CallForm::Python, "f", &arguments);
        let mut parser = parser();
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        at.sort_unstable();
        let mut from = 0;
        for to in at {
            for event in parser.push_bytes(&text.as_bytes()[from..to]) {
                if let LlmEvent::ToolRead { arguments: read, whole } = event {
                    prop_assert!(read.iter().all(|(name, value)| arguments.get(name) == Some(value)));
                    prop_assert!(!whole || read == arguments);
                }
            }
            from = to;
        }
    }

    #[test]
    fn a_formatted_call_parses_back(name in "[a-zA-Z_][a-zA-Z0-9_-]{0,20}", arguments in arguments()) {
        let expected = vec![(name.clone(), Ok(Value::Object(arguments.clone())))];
        for form in [CallForm::Python, CallForm::Json, CallForm::Hermes] {
            let text = format_call(form, &name, &arguments);
            prop_assert_eq!(text.matches(['<', '>']).count(), 4);
            prop_assert_eq!(&read(&text).1, &expected, "{}", text);
        }
    }
}
