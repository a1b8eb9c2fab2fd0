//! Calls of the client's tools that begin before they are committed.

use super::*;

const RUN: RunId = RunId(1);
const CALL: CallId = CallId(3);

fn arguments() -> Map<String, Value> {
    Map::from_iter([("city".to_owned(), json!("Paris"))])
}

fn began() -> Event {
    Event::Speculation(SpeculationEvent::Started {
        at: Time(5),
        run: RUN,
        tool: "get_weather".into(),
        arguments: arguments(),
        source: Source::Example,
        confidence: 0.75,
        by_client: true,
    })
}

fn discarded() -> Event {
    Event::Speculation(SpeculationEvent::Discarded {
        at: Time(9),
        run: RUN,
        reason: Discard::TurnEnded,
        wasted: Micros(4),
    })
}

fn committed() -> Vec<Event> {
    let called = Event::ToolCalled {
        item: ItemId(5),
        call: CALL,
        name: "get_weather".into(),
        arguments: arguments(),
        by_client: true,
        run: Some(RUN),
    };
    let started = Event::ResponseStarted {
        turn: TurnId(1),
        requested: false,
        opens: false,
    };
    vec![started, called]
}

fn added() -> Event {
    Event::OutputAdded {
        item: ItemId(6),
        call: CALL,
        output: json!({"degrees": 21}),
    }
}

fn output(call: &Value) -> String {
    let item = json!({
        "type": "function_call_output", "call_id": call, "output": "{\"degrees\":21}", "id": "mine",
    });
    json!({"type": "conversation.item.create", "item": item}).to_string()
}

/// A client with an early call, and the call's id.
fn with_call() -> (Realtime, Value) {
    let mut realtime = realtime(false);
    let told = told(&mut realtime, vec![began()]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["type"], "undertone.early_call.started");
    assert_eq!(told[0]["name"], "get_weather");
    assert_eq!(told[0]["arguments"], r#"{"city":"Paris"}"#);
    assert_eq!(told[0]["speculative"], true);
    let call = told[0]["call_id"].clone();
    (realtime, call)
}

fn answers(realtime: &mut Realtime, call: &Value) -> Vec<Action> {
    realtime.client(ClientMessage::Text(&output(call)))
}

#[test]
fn an_output_is_silent_until_its_call_is_committed() {
    let (mut realtime, call) = with_call();
    let result = Ok(json!({"degrees": 21}));
    let finished = Input::ToolFinished { run: RUN, result };
    let actions = answers(&mut realtime, &call);
    assert!(
        matches!(&actions[..], [Action::Request(input)] if *input == finished),
        "{actions:?}"
    );
    let mut all = told(&mut realtime, committed());
    let done = of_type(&all, "response.function_call_arguments.done");
    assert_eq!(done[0]["call_id"], call, "the same call");
    all = told(&mut realtime, vec![added()]);
    let kinds: Vec<_> = all.iter().map(|event| event["type"].clone()).collect();
    assert_eq!(kinds, ["conversation.item.added", "conversation.item.done"]);
    let item = &all[0]["item"];
    assert_eq!(item["type"], "function_call_output");
    assert_eq!((&item["id"], &item["call_id"]), (&json!("mine"), &call));
    assert_eq!(item["output"], r#"{"degrees":21}"#);
    let delete = r#"{"type":"conversation.item.delete","item_id":"mine"}"#;
    let actions = realtime.client(ClientMessage::Text(delete));
    let item = ItemId(6);
    assert!(
        matches!(&actions[..], [Action::Request(input)] if *input == Input::DeleteItem { item })
    );
}

/// It was taken for a late one, and ignored.
#[test]
fn an_early_call_whose_output_was_deleted_may_be_answered_again() {
    let (mut realtime, call) = with_call();
    answers(&mut realtime, &call);
    let mut all = committed();
    all.extend([added(), response_done(ResponseStatus::Completed)]);
    told(&mut realtime, all);
    let delete = json!({"type": "conversation.item.delete", "item_id": "mine"});
    assert_eq!(send(&mut realtime, &delete).len(), 1);
    let again = answers(&mut realtime, &call);
    let [Action::Request(Input::AddItem { item, .. })] = &again[..] else {
        panic!("{again:?}");
    };
    let output = json!({"degrees": 21});
    assert_eq!(*item, NewItem::ToolOutput { call: CALL, output });
}

#[test]
fn a_call_in_vain_is_discarded_and_its_late_output_ignored() {
    let (mut realtime, call) = with_call();
    let told = told(&mut realtime, vec![discarded()]);
    assert_eq!(told[0]["type"], "undertone.early_call.discarded");
    assert_eq!(told[0]["call_id"], call);
    assert_eq!(told[0]["reason"], "turn_ended");
    assert!(answers(&mut realtime, &call).is_empty());
    let create = r#"{"type":"response.create"}"#;
    let asked = realtime.client(ClientMessage::Text(create));
    assert_eq!(asked.len(), 1, "it is answered: {asked:?}");
}

#[test]
fn a_client_that_answers_the_call_again_gets_no_error_and_no_second_answer() {
    let create = r#"{"type":"response.create"}"#;
    for is_early in [true, false] {
        let (mut realtime, call) = with_call();
        if is_early {
            assert_eq!(answers(&mut realtime, &call).len(), 1);
        }
        told(&mut realtime, committed());
        let actions = answers(&mut realtime, &call);
        assert_eq!(actions.len(), usize::from(!is_early), "{actions:?}");
        assert!(realtime.client(ClientMessage::Text(create)).is_empty());
        let mut events = vec![added()];
        events.push(response_done(ResponseStatus::Completed));
        told(&mut realtime, events);
        assert_eq!(realtime.client(ClientMessage::Text(create)).len(), 1);
    }
}

#[test]
fn a_response_outside_the_conversation_is_not_taken_for_one_that_is_not_needed() {
    let (mut realtime, call) = with_call();
    told(&mut realtime, committed());
    answers(&mut realtime, &call);
    let outside = json!({"conversation": "none", "output_modalities": ["text"]});
    let outside = json!({"type": "response.create", "response": outside});
    assert_eq!(send(&mut realtime, &outside).len(), 1);
    let create = r#"{"type":"response.create"}"#;
    assert!(realtime.client(ClientMessage::Text(create)).is_empty());
}

#[test]
fn a_client_secret_may_let_tools_run_early() {
    let own = json!({"effect": "read", "early": true});
    let tool = json!({"type": "function", "name": "get_order", "undertone": own});
    let session = json!({"type": "realtime", "tools": [tool]});
    let realtime = Realtime::new(None, None, false).configured(session);
    let mut realtime = realtime.expect("a valid session");
    let lent = realtime
        .start()
        .into_iter()
        .find_map(|action| match action {
            Action::Request(Input::Configure(settings)) => Some(settings.early),
            _ => None,
        });
    assert_eq!(lent.expect("settings")[0].name, "get_order");
    assert_eq!(realtime.shown()["tools"][0]["undertone"]["early"], true);
}

#[test]
fn discarded_runs_of_the_server_are_not_told() {
    let mut realtime = realtime(false);
    assert!(told(&mut realtime, early_events()).is_empty());
}
