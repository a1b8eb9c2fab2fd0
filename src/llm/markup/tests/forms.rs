//! Calls in the forms of other models.

use super::*;
use crate::llm::untrusted::{sanitise, sanitise_json};

/// In every name, key and value of a call, and nowhere else.
const SECRET: &str = "quokka";

/// A call's arguments in every notation.
struct Written {
    json: String,
    python: String,
    /// `<parameter=key>value</parameter>`
    parameters: String,
    /// `<parameter name="key">value</parameter>`
    named_parameters: String,
    /// The same with DeepSeek's mark.
    dsml: String,
    /// `<arg_key>key</arg_key><arg_value>value</arg_value>`
    pairs: String,
    /// `<key>value</key>`, with [`NOISE`] before each tag.
    by_tag: String,
    /// `{key:<escape>value<escape>}`
    escaped: String,
    /// `{key:<|"|>value<|"|>}`
    barred: String,
}

fn written(arguments: &[(&str, Value)]) -> Written {
    let join = |separator: &str, one: &dyn Fn(&str, &Value) -> String| {
        let all = arguments.iter().map(|(key, value)| one(key, value));
        all.collect::<Vec<_>>().join(separator)
    };
    let bare = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let marked = |mark: &str, value: &Value| match value {
        Value::String(text) => format!("{mark}{text}{mark}"),
        other => other.to_string(),
    };
    let pair = |key: &str, value: &Value| {
        let value = bare(value);
        format!("<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n")
    };
    let by_tag = |key: &str, value: &Value| {
        let item = |item: &Value| format!("{NOISE}<item>{}{NOISE}</item>", bare(item));
        let value: String = match value {
            Value::Array(items) => items.iter().map(item).collect(),
            other => bare(other),
        };
        format!("{NOISE}<{key}>{value}{NOISE}</{key}>")
    };
    Written {
        json: format!("{{{}}}", join(", ", &|k, v| format!("\"{k}\": {v}"))),
        python: join(", ", &|k, v| format!("{k}={v}")),
        parameters: join("", &|k, v| {
            format!("<parameter={k}>\n{}\n</parameter>\n", bare(v))
        }),
        named_parameters: join("", &|k, v| {
            format!("<parameter name=\"{k}\">{}</parameter>\n", bare(v))
        }),
        dsml: join("", &|k, v| {
            let (is_text, v) = (v.is_string(), bare(v));
            format!(
                "<｜DSML｜parameter name=\"{k}\" string=\"{is_text}\">{v}</｜DSML｜parameter>\n"
            )
        }),
        pairs: join("", &pair),
        by_tag: join("", &by_tag),
        escaped: join(",", &|k, v| format!("{k}:{}", marked("<escape>", v))),
        barred: join(",", &|k, v| format!("{k}:{}", marked("<|\"|>", v))),
    }
}

/// A call in the form of one family of models.
#[derive(Clone)]
struct Form {
    family: &'static str,
    text: String,
    /// How many calls there are, all the same.
    calls: usize,
    /// Text may follow. Otherwise the call ends with the answer.
    is_closed: bool,
}

impl std::fmt::Debug for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.family, self.text)
    }
}

/// A call of `name` in every form.
fn forms(name: &str, w: &Written) -> Vec<Form> {
    let Written {
        json,
        python,
        parameters,
        named_parameters,
        dsml,
        pairs,
        by_tag,
        escaped,
        barred,
    } = w;
    let call = format!("{{\"name\": \"{name}\", \"arguments\": {json}}}");
    let llama = format!("{{\"name\": \"{name}\", \"parameters\": {json}}}");
    let typed = format!("{{\"type\": \"function\", \"name\": \"{name}\", \"parameters\": {json}}}");
    let openai = format!("{{\"type\": \"function\", \"function\": {call}}}");
    let args = format!("{{\"name\": \"{name}\", \"args\": {json}}}");
    let py = format!("{name}({python})");
    let tagged = format!("<function={name}>\n{parameters}</function>");
    let invoke = format!("<invoke name=\"{name}\">\n{named_parameters}</invoke>");
    let named = format!("{NOISE}<invoke name=\"{name}\">{by_tag}{NOISE}</invoke>\n");
    let minimax_3 = |calls: &str| format!("{NOISE}<tool_call>\n{calls}{NOISE}</tool_call>");
    let fenced = format!("function<｜tool▁sep｜>{name}\n```json\n{json}\n```");
    let fenced = format!("<｜tool▁call▁begin｜>{fenced}<｜tool▁call▁end｜>");
    let kimi = format!(
        "<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{json}<|tool_call_end|>"
    );
    let form = |family, calls, text: String| Form {
        family,
        text,
        calls,
        is_closed: true,
    };
    let open = |family, calls, text: String| Form {
        is_closed: false,
        ..form(family, calls, text)
    };
    vec![
        form("hermes", 1, format!("<tool_call>\n{call}\n</tool_call>")),
        form(
            "qwen coder",
            1,
            format!("<tool_call>\n{tagged}\n</tool_call>"),
        ),
        form(
            "qwen coder, two",
            2,
            format!("<tool_call>{tagged}\n{tagged}</tool_call>"),
        ),
        form("qwen coder, bare", 1, tagged.clone()),
        form(
            "functionary 3.1",
            1,
            format!("<function={name}>{json}</function>"),
        ),
        form(
            "llama, unclosed tag",
            1,
            format!("<function={name}{json}</function>"),
        ),
        form(
            "llama, arguments in the tag",
            1,
            format!("<function={name} {json}></function>"),
        ),
        form(
            "llama, parentheses in the tag",
            1,
            format!("<function={name}({json})></function>"),
        ),
        form(
            "llama, parentheses and an unclosed tag",
            1,
            format!("<function={name}({python})</function>"),
        ),
        form("functionary 3.2", 1, format!(">>>{name}\n{json}")),
        form(
            "functionary 3.2, two",
            2,
            format!(">>>{name}\n{json}\n>>>{name}\n{json}"),
        ),
        form("llama", 1, llama.clone()),
        form("llama, typed", 1, typed),
        form("llama, joined", 2, format!("{llama}; {llama}")),
        open("llama, token", 1, format!("<|python_tag|>{llama}")),
        open(
            "llama, token, joined",
            2,
            format!("<|python_tag|>{llama}; {llama}"),
        ),
        form(
            "llama, token, closed",
            1,
            format!("<|python_tag|>{py}<|eom_id|>"),
        ),
        form("pythonic", 2, format!("[{py}, {py}]")),
        form("pythonic, lines", 2, format!("[{py}]\n[{py}]")),
        form(
            "pythonic, tokens",
            1,
            format!("<|tool_call_start|>[{py}]<|tool_call_end|>"),
        ),
        form(
            "olmo",
            2,
            format!("<function_calls>\n{py}\n{py}\n</function_calls>"),
        ),
        form("mistral", 2, format!("[TOOL_CALLS] [{call}, {call}]")),
        form("mistral, new", 1, format!("[TOOL_CALLS]{name}[ARGS]{json}")),
        form(
            "mistral, two",
            2,
            format!("[TOOL_CALLS]{name}[ARGS]{json}[TOOL_CALLS]{name}[ARGS]{json}"),
        ),
        form(
            "mistral, id",
            1,
            format!("[TOOL_CALLS]{name}[CALL_ID]abcdef123[ARGS]{json}"),
        ),
        form(
            "lm studio",
            1,
            format!("[TOOL_REQUEST]{call}[END_TOOL_REQUEST]"),
        ),
        form(
            "deepseek 3",
            2,
            format!("<｜tool▁calls▁begin｜>{fenced}\n{fenced}<｜tool▁calls▁end｜>"),
        ),
        form(
            "deepseek 3.1",
            1,
            format!(
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{json}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
            ),
        ),
        form("granite 3", 2, format!("<|tool_call|>[{call}, {call}]")),
        form(
            "granite 3, tag",
            1,
            format!("<tool_call>[{call}]</tool_call>"),
        ),
        form("phi", 1, format!("<|tool_call|>[{call}]<|/tool_call|>")),
        form("phi 4 mini", 2, format!("functools[{call}, {call}]")),
        form("glm", 1, format!("<tool_call>{name}\n{pairs}</tool_call>")),
        form(
            "deepseek 3.2",
            1,
            format!(
                "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"{name}\">\n{dsml}</｜DSML｜invoke>\n</｜DSML｜function_calls>"
            ),
        ),
        form(
            "longcat",
            1,
            format!("<longcat_tool_call>{call}</longcat_tool_call>"),
        ),
        form(
            "internlm",
            1,
            format!("<|action_start|><|plugin|>\n{llama}<|action_end|>"),
        ),
        form(
            "kimi",
            2,
            format!("<|tool_calls_section_begin|>{kimi}{kimi}<|tool_calls_section_end|>"),
        ),
        form(
            "minimax",
            1,
            format!("<minimax:tool_call>\n{invoke}\n</minimax:tool_call>"),
        ),
        form(
            "minimax 1",
            2,
            format!("<tool_calls>\n{call}\n{call}\n</tool_calls>"),
        ),
        form("minimax 3", 1, minimax_3(&named)),
        form("minimax 3, two", 2, minimax_3(&named.repeat(2))),
        form(
            "minimax 3, stripped",
            1,
            minimax_3(&named).replace(NOISE, ""),
        ),
        form("minimax 3, bare", 1, named),
        form("invoke", 1, invoke.clone()),
        form(
            "invokes",
            2,
            format!("<function_calls>\n{invoke}\n{invoke}\n</function_calls>"),
        ),
        form(
            "seed",
            1,
            format!("<seed:tool_call>{tagged}</seed:tool_call>"),
        ),
        form(
            "nemotron",
            2,
            format!("<TOOLCALL>[{call}, {args}]</TOOLCALL>"),
        ),
        form("xlam", 2, format!("[{call}, {call}]")),
        form("xlam, fence", 1, format!("```json\n[{call}]\n```")),
        form("fence without a language", 1, format!("```\n{openai}\n```")),
        open(
            "gpt-oss",
            1,
            format!("<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{json}"),
        ),
        form(
            "gpt-oss, closed",
            1,
            format!(
                "<|start|>assistant to=functions.{name}<|channel|>commentary json<|message|>{json}<|call|>"
            ),
        ),
        form("bare", 1, py.clone()),
        form("bare, lines", 2, format!("{py}\n{py}")),
        form("a name and an object", 1, format!("{name} {json}")),
        form("functionary, stripped", 1, format!("{name}\n{json}")),
        form("mistral, stripped", 1, format!("{name}{json}")),
        form(
            "kimi, stripped",
            2,
            format!("functions.{name}:0{json}functions.{name}:1{json}"),
        ),
        form(
            "deepseek 3, stripped",
            1,
            format!("function{name}\n```json\n{json}\n```"),
        ),
        form(
            "gpt-oss, stripped",
            1,
            format!("commentary to=functions.{name} json{json}"),
        ),
        form("react, call", 1, format!("Action: {py}")),
        form("react", 1, format!("Action: {name}\nAction Input: {json}")),
        form("gemma", 1, format!("```tool_code\n{py}\n```")),
        form(
            "functiongemma",
            1,
            format!("<start_function_call>call:{name}{{{escaped}}}<end_function_call>"),
        ),
        form(
            "gemma 4",
            1,
            format!("<|tool_call>call:{name}{{{barred}}}<tool_call|>"),
        ),
        form(
            "command r",
            1,
            format!(
                "<|START_ACTION|>[{{\"tool_call_id\": \"0\", \"tool_name\": \"{name}\", \"parameters\": {json}}}]<|END_ACTION|>"
            ),
        ),
    ]
}

const NAME: &str = "quokka_rooms";

fn usual() -> Vec<(&'static str, Value)> {
    vec![
        ("quokka_bay", json!("quokka's \"[best]\" (sea)")),
        ("quokka_nights", json!(2)),
        ("quokka_pets", json!(true)),
        ("quokka_with", json!(["quokka", "ann"])),
    ]
}

fn whole(text: &str) -> (String, Vec<Called>) {
    let mut parser = parser();
    let mut events = parser.push(text);
    events.extend(parser.finish_whole());
    summary(merged(events))
}

fn expected(calls: usize, arguments: &[(&str, Value)]) -> Vec<Called> {
    let arguments = arguments.iter().map(|(k, v)| ((*k).to_owned(), v.clone()));
    let arguments = Value::Object(arguments.collect());
    vec![(NAME.to_owned(), Ok(arguments)); calls]
}

#[test]
fn a_call_in_every_form_is_read_and_not_spoken() {
    for arguments in [usual(), Vec::new()] {
        for form in forms(NAME, &written(&arguments)) {
            // A name without arguments is a call in markup.
            let calls = expected(form.calls, &arguments);
            for before in [
                "<speech>One moment.</speech>\n",
                "One moment.\n",
                "One moment. ",
            ] {
                let (spoken, called) = whole(&format!("{before}{}", form.text));
                assert_eq!(called, calls, "{form:?}");
                assert_eq!(spoken.trim(), "One moment.", "{form:?}");
            }
            if form.is_closed {
                let text = format!("{}\nThat is [all] of it, {{really}}.", form.text);
                let (spoken, called) = read(&text);
                assert_eq!(called, calls, "{form:?}");
                assert_eq!(spoken, "That is [all] of it, {really}.", "{form:?}");
            }
        }
    }
}

#[test]
fn a_call_that_is_cut_is_never_another_call() {
    let arguments = usual();
    for form in forms(NAME, &written(&arguments)) {
        let all = expected(form.calls, &arguments);
        let ends = form.text.char_indices().map(|(at, _)| at);
        for at in ends {
            let part = &form.text[..at];
            let (spoken, called) = read(part);
            assert!(!spoken.contains(SECRET), "{spoken:?} of {part}");
            let committed: Vec<_> = called.iter().filter(|(_, read)| read.is_ok()).collect();
            assert!(committed.len() < form.calls || form.is_closed, "{part}");
            assert!(committed.iter().all(|call| **call == all[0]), "{part}");
            assert!(called.len() - committed.len() <= 1, "{part}: {called:?}");
            let (spoken, called) = whole(part);
            // The first letters of a bare name may be a word.
            let is_bare = !form.text.starts_with(['<', '[', '{', '`', '>']);
            let word = spoken.strip_prefix("function").unwrap_or(&spoken);
            let is_word = is_bare && NAME.starts_with(word) && part.ends_with(word);
            assert!(is_word || !spoken.contains(SECRET), "{spoken:?} of {part}");
            let mut committed = called.iter().filter(|(_, read)| read.is_ok());
            assert!(committed.all(|call| *call == all[0]), "{part}");
        }
    }
}

/// Arguments that no reader may take, and a part of the reason.
fn wrong() -> [(Written, &'static str); 2] {
    let twice = [("quokka_bay", json!("a b")), ("quokka_bay", json!("c d"))];
    let mut garbage = written(&[("quokka_bay", json!("a b"))]);
    for text in [
        &mut garbage.json,
        &mut garbage.python,
        &mut garbage.parameters,
        &mut garbage.named_parameters,
        &mut garbage.dsml,
        &mut garbage.pairs,
        &mut garbage.by_tag,
        &mut garbage.escaped,
        &mut garbage.barred,
    ] {
        match text.strip_suffix('}') {
            Some(object) => *text = format!("{object} quokka}}"),
            None => text.push_str(" quokka"),
        }
    }
    [(written(&twice), "twice"), (garbage, "")]
}

#[test]
fn a_call_that_cannot_be_read_whole_is_refused_once() {
    for (wrong, part) in wrong() {
        for form in forms(NAME, &wrong) {
            let (spoken, called) = whole(&format!("One moment. {}", form.text));
            assert_eq!(spoken.trim(), "One moment.", "{form:?}");
            assert_eq!(called.len(), 1, "{form:?}: {called:?}");
            let (name, why) = &called[0];
            let why = why.as_ref().expect_err("a refusal");
            assert_eq!(name, NAME, "{form:?}: {why}");
            assert!(why.contains(part) && !why.contains('\n'), "{form:?}: {why}");
        }
    }
}

#[test]
fn what_follows_a_call_within_its_tags_refuses_it() {
    let w = written(&usual());
    let call = format!("{{\"name\": \"{NAME}\", \"arguments\": {}}}", w.json);
    for text in [
        format!("<tool_call>[{call}] quokka</tool_call>"),
        format!("<TOOLCALL>{call} quokka</TOOLCALL>"),
        format!("<function={NAME}>{} quokka</function>", w.json),
        format!("[TOOL_REQUEST]{call} quokka[END_TOOL_REQUEST]"),
        format!("[{call}, quokka]"),
        format!("[{NAME}({}), quokka]", w.python),
        format!("```tool_code\n{NAME}({}) + quokka\n```", w.python),
        format!("```tool_code\nprint({NAME}({}))\n```", w.python),
        format!("[{NAME}(quokka=quokka + 1)]"),
        format!("{{\"name\": \"{NAME}\", \"arguments\": {{}}, \"quokka\": 1}}"),
    ] {
        let (spoken, called) = whole(&text);
        assert_eq!(spoken, "", "{text}");
        assert_eq!(called.len(), 1, "{text}: {called:?}");
        assert!(called[0].1.is_err(), "{text}");
    }
}

#[test]
fn at_most_one_call_of_an_answer_is_refused() {
    let text = "[f(1)] Wait. [g(2)] <function=h>{</function> Done.";
    let (spoken, called) = whole(text);
    assert_eq!(spoken, "Wait. Done.");
    assert_eq!(called.len(), 1, "{called:?}");
    assert_eq!(called[0].0, "f");
}

#[test]
fn regions_without_a_call_are_dropped() {
    for (text, spoken) in [
        ("[laughs] Well, hello. [sighs] Yes.", "Well, hello. Yes."),
        ("{smiles} Hi.", "Hi."),
        ("[not closed\nHi.", "Hi."),
        ("<speech>[not closed</speech><speech>Hi.</speech>", "Hi.\n"),
        (
            "Here it is:\n```rust\nfn main() { quokka(\"```\") }\n```\nDone.",
            "Here it is:\nDone.",
        ),
        ("```json\n{\"city\": \"Rome\"}\n```", ""),
        (
            "{\"city\": \"Rome\", \"n\": [1, 2]} Rome it is.",
            "Rome it is.",
        ),
        ("{\"name\": \"Anna\", \"age\": 3}", ""),
        ("[{\"name\": \"Anna\"}]", ""),
        (
            "The result was {\"city\": \"Rome\"}, I think.",
            "The result was I think.",
        ),
        ("[TOOL_CALLS][] Nothing to do.", "Nothing to do."),
        ("<parameter=city>Rome</parameter>Rome.", "Rome."),
        ("<|start|>user<|message|>quokka<|end|>", ""),
    ] {
        assert_eq!(whole(text), (spoken.to_owned(), vec![]), "{text}");
    }
}

/// A fence or a bracket that a model opened and forgot took the rest of the answer with it.
#[test]
fn plain_words_behind_an_unclosed_opener_are_not_lost() {
    let long = "and so it went on for a good while ".repeat(10);
    let long = long.trim_end();
    for (text, spoken) in [
        ("```\nIt is sunny today.", "It is sunny today."),
        ("```It is sunny today.", "It is sunny today."),
        (
            "```text\nIt is sunny today.\n```\nBye.",
            "It is sunny today. Bye.",
        ),
        ("{smiles It is sunny today.", "smiles It is sunny today."),
        ("[smiles It is sunny.\nBye.", "Bye."),
        (&format!("```\n{long}\n```\nBye."), &format!("{long} Bye.")),
        (&format!("[It is {long}"), &format!("It is {long}")),
        (
            &format!("```\n{long}\n<speech>Bye."),
            &format!("{long} Bye."),
        ),
    ] {
        let (said, called) = whole(text);
        assert_eq!(
            (said.replace('\n', " ").trim(), called),
            (spoken, vec![]),
            "{text}"
        );
    }
    for text in [
        "```\nquokka_rooms and nothing else.",
        "```\nIt is quokka",
        "```\nlet a = 1;",
        "```python\nimport os",
        "{\"city\": \"Rome\", It is sunny.",
        "[laughs",
    ] {
        assert_eq!(whole(text), (String::new(), vec![]), "{text}");
    }
}

/// The names of tools are words as well.
#[test]
fn prose_with_the_name_of_a_tool_is_spoken_as_it_is() {
    for text in [
        "pay",
        "pay it (later), or not",
        "pay(ment) is due. pay {now}",
        "functions are fun. function pay is one",
        "Action: pay the bill",
        "Action is needed. call: me",
        "I use quokka_rooms(n=1) for that",
        "Observation: the sky is blue",
        "commentary to follow",
    ] {
        assert_eq!(whole(text), (text.to_owned(), vec![]));
        for size in 1..4 {
            let (mut parser, mut spoken) = (parser(), String::new());
            for piece in text.as_bytes().chunks(size) {
                spoken.push_str(&summary(parser.push_bytes(piece)).0);
            }
            spoken.push_str(&summary(parser.finish_whole()).0);
            assert_eq!(spoken, text);
        }
    }
}

#[test]
fn a_bare_call_that_cannot_be_read_is_refused_and_not_spoken() {
    for (text, why) in [
        ("quokka_rooms(Rome)", "argument"),
        ("pay(\"ten\")", "argument"),
        ("pay(n=1", ""),
        ("pay {\"n\": ", ""),
        ("functions.pay:0{\"n\": one}", ""),
        ("call:pay{n:one}", ""),
        ("Action: pay\nAction Input: ten", "not an object"),
        ("Action: pay[ten]", "not an object"),
        ("Action: pay\n", "not an object"),
    ] {
        let (spoken, called) = whole(&format!("Wait. {text}"));
        assert_eq!(spoken, "Wait.", "{text}");
        assert_eq!(called.len(), 1, "{text}: {called:?}");
        let refusal = called[0].1.as_ref().expect_err(text);
        assert!(refusal.contains(why), "{text}: {refusal}");
    }
}

/// A model that is used to ReAct writes the result as well.
#[test]
fn a_result_that_the_model_makes_up_is_not_spoken() {
    let text = "Let me look.\nAction: pay\nAction Input: {\"n\": 1}\nObservation: quokka\n\
                Thought: I know.\nFinal Answer: quokka";
    let calls = vec![("pay".to_owned(), Ok(json!({"n": 1})))];
    assert_eq!(whole(text), ("Let me look.".to_owned(), calls));
}

#[test]
fn thoughts_in_every_form_are_not_spoken() {
    for (open, close) in [
        ("<think>", "</think>"),
        ("<seed:think>", "</seed:think>"),
        ("<longcat_think>", "</longcat_think>"),
        ("<reasoning>", "</reasoning>"),
        ("◁think▷", "◁/think▷"),
        ("[THINK]", "[/THINK]"),
        ("<|START_THINKING|>", "<|END_THINKING|>"),
        ("<|channel>thought\n", "<channel|>"),
        (
            "<|channel|>analysis<|message|>",
            "<|end|><|start|>assistant<|channel|>final<|message|>",
        ),
    ] {
        let text = format!("{open}The [quokka] asks: 5 < 6, {{\"a\": 1}}?\n\n{close}Hello there.");
        assert_eq!(whole(&text), ("Hello there.".to_owned(), vec![]));
        assert_eq!(whole(&text[..text.len() - 14 - close.len()]).0, "");
    }
}

/// The whole answer was taken for the header of a message of gpt-oss. Gemma 4 opens its channel of thoughts also if it
/// is told not to think, and many servers remove its tokens.
#[test]
fn an_answer_behind_the_empty_thoughts_of_gemma_is_spoken() {
    let pay = ("pay".to_owned(), Ok(json!({"n": 1})));
    for thoughts in [
        "<|channel>thought\n<channel|>",
        "<|channel>thought<channel|>",
        "<|channel>thought\n<|channel>thought\n<channel|>",
        "thought\n",
    ] {
        let text = format!("{thoughts}Hello there. <|tool_call>call:pay{{n:1}}<tool_call|>");
        for size in 1..text.len() {
            let mut parser = parser();
            let pieces = text.as_bytes().chunks(size);
            let mut events: Vec<_> = pieces.flat_map(|piece| parser.push_bytes(piece)).collect();
            events.extend(parser.finish_whole());
            let expected = ("Hello there.".to_owned(), vec![pay.clone()]);
            assert_eq!(summary(merged(events)), expected, "{thoughts}, {size}");
        }
    }
    let mut parser = Parser::new().thinks_first(true);
    let mut events = parser.push("They greet me.\n<channel|>Hello there.");
    events.extend(parser.finish_whole());
    assert_eq!(summary(events).0, "Hello there.");
    for text in ["thought", "thoughts\nare free", "Good.\nthought\nis free"] {
        assert_eq!(whole(text).0, text);
    }
}

/// `]]minimax[[` was read aloud, and no call was made.
#[test]
fn the_token_before_the_tags_of_minimax_is_dropped_wherever_it_is_cut() {
    let invoke = |arguments: &str| {
        let call = format!("~<invoke name=\"pay\">{arguments}~</invoke>\n");
        format!("Wait.~<tool_call>\n{call}~</tool_call>")
    };
    let nested =
        "~<to>\n ~<name>Ann (~</name>\n~<tags>~<item>~<item>1~</item>~</item>~</tags>~</to>";
    let to = json!({"to": {"name": "Ann (", "tags": [[1]]}});
    let pay = |arguments: Value| -> Vec<Called> { vec![("pay".to_owned(), Ok(arguments))] };
    for (text, spoken, calls) in [
        (
            invoke("~<parameter>1~</parameter>~<a>\"~</a>"),
            "Wait.",
            pay(json!({"parameter": 1, "a": "\""})),
        ),
        (invoke(nested), "Wait.", pay(to)),
        (
            "~Wait ~for [1]~, ]a] ]~b~".into(),
            "Wait for [1], ]a] ]b",
            vec![],
        ),
        (
            "<mm:think>Hm.~ [a]~</mm:think>~Wait.".into(),
            "Wait.",
            vec![],
        ),
        // Its own server has taken the tags of the call.
        (
            "~~<initial_wait>10~</initial_wait>~\n~</tool_call>".into(),
            "",
            vec![],
        ),
        (
            "Wait.~<a>\"1~</a>~<p lang=\"en\">2~</p>~<parameter>3~</parameter> Done.".into(),
            "Wait. Done.",
            vec![],
        ),
        ("Wait~<a/> ~<b>so ~</c>long".into(), "Wait", vec![]),
        (
            "~<think>Hm.</think>~<speech>~</b>Wait ~ <b>so</b> ~<5 hours~<".into(),
            "Wait so less than 5 hours",
            vec![],
        ),
        ("Wait ]".into(), "Wait ]", vec![]),
        ("Wait~]".into(), "Wait]", vec![]),
        ("Wait ]<]mini".into(), "Wait", vec![]),
        (
            "Wait ]<]<5 minutes".into(),
            "Wait ]] less than 5 minutes",
            vec![],
        ),
    ] {
        let text = text.replace('~', NOISE);
        for size in 1..=text.len() {
            let mut parser = parser();
            let pieces = text.as_bytes().chunks(size);
            let mut events: Vec<_> = pieces.flat_map(|piece| parser.push_bytes(piece)).collect();
            events.extend(parser.finish_whole());
            let expected = (spoken.to_owned(), calls.clone());
            assert_eq!(summary(merged(events)), expected, "{text}, {size}");
        }
    }
    let (spoken, called) = whole(&invoke("~<a>~<b>1~</b> and more~</a>").replace('~', NOISE));
    assert_eq!(spoken, "Wait.");
    assert!(called.len() == 1 && called[0].1.is_err(), "{called:?}");
}

/// The tool got one argument called "parameters".
#[test]
fn a_tag_around_all_arguments_is_none_of_them() {
    let invoke = |inner: &str| whole(&format!("<invoke name=\"pay\">{inner}</invoke>"));
    let pay = |read: Result<Value, &str>| -> (String, Vec<Called>) {
        let read = read.map_err(str::to_owned);
        (String::new(), vec![("pay".to_owned(), read)])
    };
    for (inner, read) in [
        ("<parameters><n>1</n></parameters>", Ok(json!({"n": 1}))),
        ("<arguments>{\"n\": 1}</arguments>", Ok(json!({"n": 1}))),
        ("\n<args>\n<n>1</n>\n</args>\n", Ok(json!({"n": 1}))),
        (
            "<input>a</input><n>1</n>",
            Ok(json!({"input": "a", "n": 1})),
        ),
        ("<input>ls</input>", Ok(json!({"input": "ls"}))),
        (
            "<arguments>n=1</arguments>",
            Err("the arguments are not an object"),
        ),
    ] {
        assert_eq!(invoke(inner), pay(read), "{inner}");
    }
}

/// Its server has removed the tags, so that nobody can tell whether the call is whole.
#[test]
fn a_call_of_glm_without_its_tags_is_refused_and_not_spoken() {
    let pairs = written(&usual()).pairs;
    let (spoken, called) = whole(&format!("One moment.\n{NAME}\n{pairs}"));
    assert_eq!(spoken, "One moment.");
    assert_eq!(called.len(), 1, "{called:?}");
    assert_eq!(called[0].0, NAME);
    assert_eq!(called[0].1, Err("the call was not closed".to_owned()));
}

#[test]
fn thoughts_that_only_a_word_announces_are_not_spoken() {
    let call = ("pay".to_owned(), Ok(json!({"n": 1})));
    let react = "Thought: They want to pay. Action needed.\nAction: pay\nAction Input: {\"n\": 1}";
    assert_eq!(whole(react), (String::new(), vec![call.clone()]));
    for (text, spoken) in [
        (
            "Thought: I know.\nFinal Answer: It is sunny.",
            "It is sunny.",
        ),
        (
            "Thought: I know. Final Answer: It is sunny.",
            "It is sunny.",
        ),
        ("Final Answer: It is sunny.", "It is sunny."),
        ("Thought: I wonder.", ""),
        ("A thought: it is sunny.", "A thought: it is sunny."),
        ("Thoughts are free.", "Thoughts are free."),
        (
            "analysisThey greet me. Say hello.assistantfinalHello there.",
            "Hello there.",
        ),
        (
            "analysisThey greet me.assistantcommentaryOne moment.",
            "One moment.",
        ),
        ("analysisThey greet me.", ""),
        ("analysis is my job.", "analysis is my job."),
        ("Good. analysisThey", "Good. analysisThey"),
    ] {
        assert_eq!(whole(text), (spoken.to_owned(), vec![]), "{text}");
    }
    let stripped = "analysisThey want to pay.assistantcommentary to=functions.pay json{\"n\": 1}";
    assert_eq!(whole(stripped), (String::new(), vec![call]));
}

#[test]
fn a_model_that_thinks_first_is_heard_from_the_end_of_its_thoughts() {
    let mut parser = Parser::new().thinks_first(true);
    for _ in 0..2 {
        assert_eq!(parser.push("The user greets me. <speech>Hm"), []);
        assert_eq!(parser.push("</speech></think>\n\n"), []);
        assert_eq!(
            parser.push("Hello."),
            [LlmEvent::Speech {
                text: "Hello.".into()
            }]
        );
        assert_eq!(parser.finish_whole(), []);
    }
    parser.push("Never closed");
    assert_eq!(parser.finish_whole(), []);
}

#[test]
fn messages_of_gpt_oss() {
    let text = "<|channel|>analysis<|message|>A quokka.<|end|><|start|>assistant<|channel|>commentary<|message|>\
                Let me look.<|end|><|start|>assistant<|channel|>commentary to=functions.rooms <|constrain|>json\
                <|message|>{\"n\": 1}<|call|>";
    let calls = vec![("rooms".to_owned(), Ok(json!({"n": 1})))];
    assert_eq!(whole(text), ("Let me look.".to_owned(), calls));
    let text = "<|channel|>commentary to=python code<|message|>quokka()<|end|><|start|>assistant<|channel|>final\
                <|message|>Done.<|return|>";
    assert_eq!(whole(text), ("Done.".to_owned(), vec![]));
}

#[test]
fn functionary_speaks_to_all() {
    let text = ">>>all\nLet me look.\n>>>rooms\n{\"n\": 1}";
    let calls = vec![("rooms".to_owned(), Ok(json!({"n": 1})))];
    assert_eq!(whole(text), ("Let me look.".to_owned(), calls));
}

#[test]
fn a_bracket_with_a_call_is_no_prose_anywhere() {
    let named = vec![("rooms".to_owned(), Ok(json!({"n": 1})))];
    for call in [
        "[rooms(n=1)]",
        "{\"name\": \"rooms\", \"arguments\": {\"n\": 1}}",
        "[{\"name\": \"rooms\", \"arguments\": {\"n\": 1}}]",
    ] {
        let text = format!("I look into {call}, wait.");
        assert_eq!(whole(&text), ("I look intowait.".to_owned(), named.clone()));
    }
}

#[test]
fn the_name_of_a_refused_call_ends_where_it_cannot_be_read() {
    refuses("<function=rooms\"n\": 1}</function>", "rooms", "tags");
    refuses("<function=>1</function>", "invalid", "tags");
}

#[test]
fn a_call_that_ends_with_the_answer_needs_a_whole_answer() {
    let text = "<|python_tag|>{\"name\": \"rooms\", \"parameters\": {}}";
    refuses(text, "rooms", "cut off");
    assert_eq!(whole(text).1, [("rooms".to_owned(), Ok(json!({})))]);
    let call = "<tool_call>[{\"name\": \"rooms\", \"arguments\": {}}]";
    refuses(call, "rooms", "cut off");
    assert!(whole(call).1[0].1.is_err());
}

/// Llama often forgets the `>` of its own form, and servers stop at its closing tag.
#[test]
fn a_call_of_llama_whose_opening_tag_is_not_closed_is_read_if_its_object_is_whole() {
    let call = || vec![("rooms".to_owned(), Ok(json!({"n": 1, "to": "a > b"})))];
    let object = "{\"n\": 1, \"to\": \"a > b\"}";
    for text in [
        format!("<function=rooms{object}"),
        format!("<function=rooms{object}</function>"),
        format!("<function=rooms\n{object}\n></function>"),
        format!("<function=rooms({object})"),
        format!("<function=rooms={object}</function>"),
        format!("<function=rooms{object}<|eom_id|>"),
    ] {
        assert_eq!(
            whole(&format!("Wait. {text}")),
            ("Wait.".to_owned(), call()),
            "{text}"
        );
        for size in 1..text.len() {
            let (mut parser, mut events) = (parser(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                events.extend(parser.push_bytes(piece));
            }
            events.extend(parser.finish_whole());
            assert_eq!(summary(merged(events)), (String::new(), call()), "{text}");
        }
    }
    let cut = format!("<function=rooms{object}");
    refuses(&cut, "rooms", "cut off");
    for (text, why) in [
        ("<function=rooms{\"n\": 1</function>", ""),
        ("<function=rooms{\"n\": 1", ""),
        ("<function=rooms{\"n\": one}</function>", ""),
        ("<function=rooms{\"n\": 1} It is sunny.", "missing"),
        (
            "<function=rooms{\"n\": 1} It is sunny.</function>",
            "missing",
        ),
        ("<function=rooms({\"n\": 1}</function>", "parenthesis"),
        ("<function=rooms{\"n\": 1}{\"n\": 2}</function>", "missing"),
    ] {
        let (spoken, called) = whole(text);
        assert_eq!((spoken.as_str(), called.len()), ("", 1), "{text}");
        assert_eq!(called[0].0, "rooms", "{text}");
        let refusal = called[0].1.as_ref().expect_err(text);
        assert!(refusal.contains(why), "{text}: {refusal}");
    }
}

#[test]
fn speech_ends_an_unclosed_region() {
    let text = "<function=quokka><parameter=a>1<speech>Hello.</speech>";
    let (spoken, called) = whole(text);
    assert_eq!(spoken, "Hello.\n");
    assert!(called.len() == 1 && called[0].1.is_err());
    let nested = "<tool_calls>\n<tool_call>{\"name\": \"rooms\"}</tool_call>\n</tool_calls>";
    assert_eq!(
        whole(nested),
        (String::new(), vec![("rooms".to_owned(), Ok(json!({})))])
    );
}

#[test]
fn tagged_values_are_text_unless_they_are_json() {
    let dsml = "<｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"v\" string=\"true\">12</｜DSML｜parameter></｜DSML｜invoke>";
    calls(dsml, "f", json!({"v": "12"}));
    let values = [
        ("Rome", json!("Rome")),
        ("12", json!(12)),
        ("-1.5", json!(-1.5)),
        ("007", json!("007")),
        ("+39 06", json!("+39 06")),
        ("4111111111111111", json!("4111111111111111")),
        ("true", json!(true)),
        ("\"12\"", json!("12")),
        ("[1, \"a\"]", json!([1, "a"])),
        ("{\"a\": {\"b\": null}}", json!({"a": {"b": null}})),
        ("{a, b}", json!("{a, b}")),
        ("\ntwo\nlines\n", json!("two\nlines")),
        ("a < b & c", json!("a < b & c")),
        ("", json!("")),
    ];
    for (text, value) in values {
        let call = format!("<function=f><parameter=v>{text}</parameter></function>");
        calls(&call, "f", json!({ "v": value }));
        let call =
            format!("<tool_call>f<arg_key>v</arg_key><arg_value>{text}</arg_value></tool_call>");
        calls(&call, "f", json!({ "v": value }));
    }
}

#[test]
fn a_region_keeps_a_bounded_part_of_its_text() {
    let long = "quokka_x ".repeat(MAX_ARGUMENT_BYTES);
    for text in [
        format!("<function=f>{{\"a\": \"{long}\"}}</function>"),
        format!("[f(a=\"{long}\")]"),
        format!(
            "[TOOL_REQUEST]{{\"name\": \"f\", \"arguments\": {{\"a\": \"{long}\"}}}}[END_TOOL_REQUEST]"
        ),
    ] {
        let (spoken, called) = whole(&format!("{text} Go on."));
        assert_eq!(spoken, "Go on.");
        assert_eq!(
            called,
            [("f".to_owned(), Err("the call is too long".to_owned()))]
        );
    }
    let (spoken, called) = whole(&format!("```\n{long} = 1;\n``` Go on."));
    assert_eq!((spoken.as_str(), called.len()), ("Go on.", 0));
}

#[test]
fn prose_is_spoken_as_it_is() {
    for text in [
        "The functions of a tool, and all the tools.",
        "It is 5 [five] or {six}, see [1].",
        "Sad :[ and :{ and :( but :)",
        "It costs $5, a|b, 3*4 = 12; x_1 #2.",
        "Call it: name(a=1), or f(x).",
        "Say tool_call, python_tag, analysis and final.",
    ] {
        speaks(text, text);
    }
    speaks("5 < 6 [1]", "5 less than 6 [1]");
    speaks("a > b", "a greater than b");
    speaks("Is it? > 5", "Is it? greater than 5");
    speaks("a [", "a [");
    speaks("a [TOOL_CALL", "a [TOOL_CALL");
}

/// A value that every notation can carry.
fn simple_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        "quokka[a-zA-Z0-9 '(){}\\[\\],.:;=/éß-]{0,24}z".prop_map(Value::from),
        (0i64..100_000).prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
    ]
}

/// A value that only a notation with quotes can carry.
fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![simple_value(), value(), answer().prop_map(Value::from)]
}

/// Families whose values are written without quotes.
fn is_unquoted(form: &Form) -> bool {
    [
        "<parameter",
        "<｜DSML｜",
        "<arg_key>",
        "<invoke ",
        "<escape>",
        "<|\"|>",
    ]
    .iter()
    .any(|mark| form.text.contains(mark))
}

fn family() -> impl Strategy<Value = prop::sample::Index> {
    any::<prop::sample::Index>()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn any_cut_of_any_form_gives_the_same_call_and_speaks_none_of_it(
        nth in family(),
        values in prop::collection::vec((simple_value(), any_value()), 0..3),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let keys = ["quokka_a", "quokka-b", "quokkaC"];
        let pick = |simple: bool| -> Vec<(&str, Value)> {
            let values = values.iter().map(|(a, b)| if simple { a } else { b });
            keys.into_iter().zip(values.cloned()).collect()
        };
        let all = forms(NAME, &written(&usual()));
        let at = nth.index(all.len());
        let simple = is_unquoted(&all[at]);
        let arguments = pick(simple);
        let form = forms(NAME, &written(&arguments)).swap_remove(at);
        let tail = if form.is_closed { "\nThat was it." } else { "" };
        let text = format!("Hold on. {}{tail}", form.text);
        let (mut parser, mut events) = pushed(text.as_bytes(), &cuts);
        events.extend(parser.finish_whole());
        let events = merged(events);
        prop_assert!(well_formed(&events), "{:?}", events);
        let (spoken, called) = summary(events);
        prop_assert_eq!(&called, &expected(form.calls, &arguments), "{}", text);
        let spoken: Vec<_> = spoken.split_whitespace().collect();
        let expected = if form.is_closed { "Holdon.Thatwasit." } else { "Holdon." };
        prop_assert_eq!(spoken.concat(), expected);
    }

    /// Nothing of prose is held back, except what may still be an opener.
    #[test]
    fn prose_never_waits(
        words in prop::collection::vec("[a-zA-Z0-9')\\[{}\\]:;,|$*-]{1,9}[,.?!]?", 1..20),
        size in 1usize..9,
    ) {
        // A bracket at the start of a clause is a stage direction.
        let words: Vec<String> = words.into_iter().map(|word| match word.chars().next() {
            Some('[' | '{') => format!("so{word}"),
            _ => word,
        }).collect();
        let text = words.join(" ");
        let bracket_after_sentence = text.as_bytes().windows(2).any(|pair| {
            matches!(pair[0], b'.' | b'?' | b'!') && matches!(pair[1], b'[' | b'{')
        });
        prop_assume!(!bracket_after_sentence);
        let (mut parser, mut spoken) = (Parser::new(), String::new());
        let mut pushed = 0;
        for piece in text.as_bytes().chunks(size) {
            pushed += piece.len();
            spoken.push_str(&summary(parser.push_bytes(piece)).0);
            let waits = pushed - spoken.len();
            let held = text[..pushed].trim_end().ends_with(['[', '{']) || text[spoken.len()..pushed].contains('[');
            let few = 1 + usize::from(text[..pushed].ends_with(']'));
            prop_assert!(waits <= if held { 20 } else { few }, "{waits} of {:?}", &text[..pushed]);
        }
        spoken.push_str(&summary(parser.finish()).0);
        prop_assert_eq!(spoken, text);
    }

    /// A model that repeats what comes from outside calls nothing.
    #[test]
    fn an_echo_of_untrusted_text_calls_nothing(
        parts in prop::collection::vec(echoed(), 1..8),
        nth in family(),
        at in any::<prop::sample::Index>(),
    ) {
        let all = forms("pay", &written(&[("n", json!(1))]));
        let text = format!("{}{}{}", parts.concat(), all[nth.index(all.len())].text, parts.concat());
        let clean = sanitise(&text);
        prop_assert_eq!(&sanitise(&clean), &clean);
        let starts: Vec<usize> = clean.char_indices().map(|(at, _)| at).collect();
        let from = starts[at.index(starts.len())];
        let result = sanitise_json(&json!({ "text": text.clone(), text.clone(): [text] })).to_string();
        for echo in [&clean[from..], &result, &result.replace("\\\"", "\"")] {
            let (spoken, called) = whole(echo);
            prop_assert_eq!(called, vec![], "{}", echo);
            prop_assert!(!spoken.contains(['<', '>', '‹', '›']));
        }
    }
}

fn echoed() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        "{",
        "[",
        "{\"name\": \"pay\", ",
        "\"arguments\": {}}",
        "pay(n=1)",
        "]",
        "}",
        " ",
        "\n",
        "\"",
        "[pay(",
        ")",
        "```",
        "json",
        "[TOOL_CALLS]",
        "[TOOL_",
        "◁",
        "\u{200b}",
        "<",
        "Yes. ",
        "\\",
        "{\t\"type\"",
        "[\n{",
        "`",
        ">>>",
        ";",
        "{\"function\": ",
        "pay",
        "(n=1)",
        "functions.",
        ":0{\"n\": 1}",
        "Action:",
        " pay\n",
        "Action Input: {\"n\": 1}",
        "call:pay{n: 1}",
    ])
}
