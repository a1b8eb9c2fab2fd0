use super::*;
use crate::llm::Demands;
use serde_json::{Map, json};

const REQUEST: RequestId = RequestId(1);

fn prompt(messages: Vec<Message>) -> Prompt {
    Prompt {
        instructions: None,
        day: None,
        messages,
        tools: Vec::new().into(),
        demands: Demands::default(),
    }
}

fn user(text: &str) -> Message {
    Message::User { text: text.into() }
}

fn agent(text: &str) -> Message {
    Message::Agent {
        text: text.into(),
        interrupted: false,
    }
}

fn call() -> [Message; 2] {
    let (id, name) = ("call_1".to_owned(), "clock".to_owned());
    let called = Message::ToolCall {
        id: id.clone(),
        name: name.clone(),
        arguments: Map::new(),
    };
    let output = json!("noon");
    [called, Message::ToolResult { id, name, output }]
}

fn clock() -> Call {
    ("clock".into(), Map::new())
}

/// The name under which the result of the clock would be given.
fn wanted(cache: &ToolCache) -> Option<&str> {
    let (tool, key) = clock();
    cache.wants(REQUEST, &tool, &key)
}

fn asked() -> ToolCache {
    let mut cache = ToolCache::default();
    cache.begin(REQUEST, prompt(vec![user("How late is it?")]));
    cache.opens(REQUEST, "answer".into());
    cache
}

#[test]
fn a_result_is_given_once_and_only_under_a_name() {
    let mut cache = ToolCache::default();
    cache.begin(REQUEST, prompt(Vec::new()));
    assert_eq!(wanted(&cache), None);
    cache.opens(RequestId(2), "other".into());
    assert_eq!(wanted(&cache), None);
    cache.opens(REQUEST, "answer".into());
    assert_eq!(wanted(&cache), Some("answer"));
    cache.give(RunId(7), clock());
    assert_eq!(wanted(&cache), None);
    assert!(cache.has(REQUEST, &[RunId(7)]));
    assert!(!cache.has(REQUEST, &[RunId(7), RunId(8)]));
    cache.opens(REQUEST, "answer".into());
    assert!(cache.has(REQUEST, &[RunId(7)]));
}

/// A second model answers instead of the first.
#[test]
fn another_server_has_no_results() {
    let mut cache = asked();
    cache.give(RunId(7), clock());
    cache.opens(REQUEST, "another".into());
    assert!(!cache.has(REQUEST, &[RunId(7)]));
    assert_eq!(wanted(&cache), Some("another"));
}

#[test]
fn nothing_may_join_the_history_but_the_answer_itself() {
    let question = user("How late is it?");
    let [called, answered] = call();
    let seen = |messages: Vec<Message>| asked().has_seen(REQUEST, &prompt(messages), 1);
    let parts = |between: &[Message]| {
        let begun = [&[question.clone()][..], between].concat();
        [begun, vec![called.clone(), answered.clone()]].concat()
    };
    assert!(seen(parts(&[])));
    assert!(seen(parts(&[agent("Let me see.")])));
    assert!(!seen(parts(&[user("And in Rome?")])));
    assert!(!seen(parts(std::slice::from_ref(&answered))));
    assert!(!seen([vec![user("Hello.")], parts(&[])].concat()));
    assert!(!seen(vec![question.clone(), called.clone()]));
    let mut other = prompt(parts(&[]));
    other.instructions = Some("Be brief.".into());
    assert!(!asked().has_seen(REQUEST, &other, 1));
    let mut cache = asked();
    cache.saw(prompt(parts(&[])));
    assert!(!cache.has_seen(REQUEST, &prompt(parts(&[])), 1));
    let again = [parts(&[]), vec![called.clone(), answered.clone()]].concat();
    assert!(cache.has_seen(REQUEST, &prompt(again), 1));
}

#[test]
fn a_server_is_given_no_more_results_than_a_generation_may_have_calls() {
    let mut cache = asked();
    for n in 0..MOST_CALLS as u64 {
        let key = Map::from_iter([("n".to_owned(), json!(n))]);
        assert!(cache.wants(REQUEST, "clock", &key).is_some());
        cache.give(RunId(n), ("clock".into(), key));
    }
    assert_eq!(wanted(&cache), None);
}
