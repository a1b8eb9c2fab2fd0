use super::requests::MAX_PENDING;
use super::*;
use crate::conversation::{
    ClauseId, ConfirmationOutcome, Discard, ItemId, ResponseStatus, RunId, Settings,
    SpeculationEvent, Time, TurnId, TurnLatency,
};
use crate::router::Source;
use crate::transport::realtime::CLIENT_EVENTS;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::Map;

fn events(effects: &[Effect]) -> Vec<Value> {
    let text = |effect: &Effect| match effect {
        Effect::Send(text) => serde_json::from_str(text).ok(),
        _ => None,
    };
    effects.iter().filter_map(text).collect()
}

fn happened(event: Event) -> Outbound {
    let at = Time(7);
    Outbound::Event { at, event }
}

fn any_client_event() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just(json!(null)),
        Just(json!("item")),
        Just(json!("AAAA")),
        Just(json!(-1)),
        Just(json!(u64::MAX)),
        Just(json!({"type": "message", "role": "user", "content": []})),
        Just(json!({"type": "realtime", "tools": [{}]})),
        Just(json!([[]])),
    ];
    let field = prop_oneof![
        Just("item_id"),
        Just("audio"),
        Just("item"),
        Just("session"),
        Just("response"),
        Just("audio_end_ms"),
        Just("content_index"),
        Just("event_id"),
    ];
    let fields = prop::collection::vec((field, value), 0..4);
    (prop::sample::select(&CLIENT_EVENTS[..]), fields).prop_map(|(kind, fields)| {
        let mut event = json!({ "type": kind });
        for (field, value) in fields {
            event[field] = value;
        }
        event.to_string()
    })
}

fn any_session_event() -> impl Strategy<Value = Outbound> {
    let item = (0_u64..4).prop_map(ItemId);
    let events = prop_oneof![
        (0_u64..99).prop_map(|at| Event::SpeechStarted { at: Samples(at) }),
        (0_u64..99).prop_map(|at| Event::SpeechStopped { at: Samples(at) }),
        Just(Event::UtteranceDropped),
        (item.clone(), any::<bool>()).prop_map(|(item, spoken)| Event::UserItem {
            item,
            text: "u".into(),
            spoken
        }),
        item.clone().prop_map(|item| Event::ItemAdded { item }),
        item.clone().prop_map(|item| Event::ItemDeleted { item }),
        item.clone().prop_map(|item| Event::ItemTruncated {
            item,
            heard: Micros(u64::MAX),
            text: String::new()
        }),
        Just(Event::ResponseStarted { turn: TurnId(1) }),
        item.clone()
            .prop_map(|item| Event::AgentItemStarted { item }),
        item.clone().prop_map(|item| Event::AgentSpeech {
            item,
            clause: ClauseId(1),
            text: "a".into()
        }),
        (item.clone(), any::<bool>()).prop_map(|(item, interrupted)| Event::AgentItemDone {
            item,
            text: "a".into(),
            interrupted
        }),
        (item.clone(), any::<bool>()).prop_map(|(item, by_client)| Event::ToolCalled {
            item,
            call: CallId(1),
            name: "t".into(),
            arguments: Map::new(),
            by_client
        }),
        item.clone().prop_map(|item| Event::ToolFinished {
            item,
            call: CallId(1),
            result: Ok(json!(1))
        }),
        Just(Event::ResponseDone {
            turn: TurnId(1),
            status: ResponseStatus::Failed,
            latency: TurnLatency::default()
        }),
        Just(Event::Refused {
            request: "AddItem".into(),
            message: "no".into()
        }),
    ];
    prop_oneof![
        4 => events.prop_map(happened),
        1 => item.prop_map(|item| Outbound::Audio {
            item,
            clause: ClauseId(1),
            samples: vec![1; 480]
        }),
        1 => Just(Outbound::Clear),
    ]
}

proptest! {
    /// Whatever comes in whatever order: no panic, and each event has its own id.
    #[test]
    fn any_order_of_anything_is_survived(
        steps in prop::collection::vec(
            prop_oneof![
                any_client_event().prop_map(Ok),
                any_session_event().prop_map(Err)
            ],
            0..60
        )
    ) {
        let mut realtime = Realtime::new(None, None, true);
        let mut all = events(&realtime.start());
        for step in steps {
            let effects = match &step {
                Ok(text) => realtime.client(ClientMessage::Text(text)),
                Err(outbound) => realtime.session(outbound.clone()),
            };
            all.extend(events(&effects));
        }
        let mut ids: Vec<_> = all.iter().map(|event| event["event_id"].to_string()).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), count);
    }
}

#[test]
fn requests_that_are_never_answered_lock_nobody_out() {
    let mut realtime = Realtime::new(None, None, false);
    realtime.start();
    for _ in 0..10 * MAX_PENDING {
        let effects = realtime.client(ClientMessage::Text(r#"{"type":"response.create"}"#));
        assert!(matches!(
            effects[..],
            [Effect::Request(Input::Respond { .. })]
        ));
    }
}

fn user_text(text: &str) -> String {
    let content = json!([{"type": "input_text", "text": text}]);
    json!({"type": "conversation.item.create",
        "item": {"type": "message", "role": "user", "content": content}})
    .to_string()
}

#[test]
fn what_is_deleted_or_refused_makes_room_for_more_text() {
    let mut realtime = Realtime::new(None, None, false);
    realtime.start();
    let text = user_text(&"x".repeat(32 * 1024));
    let refused = Event::Refused {
        request: "AddItem".into(),
        message: "no".into(),
    };
    // A megabyte is the limit; this is four of them.
    for n in 0..128 {
        let effects = realtime.client(ClientMessage::Text(&text));
        assert!(matches!(effects[..], [Effect::Request(_)]), "{n}");
        let item = ItemId(n);
        if n % 2 == 0 {
            realtime.session(happened(refused.clone()));
        } else {
            realtime.session(happened(Event::ItemAdded { item }));
            realtime.session(happened(Event::ItemDeleted { item }));
        }
    }
    for n in 0..32 {
        let effects = realtime.client(ClientMessage::Text(&text));
        assert!(matches!(effects[..], [Effect::Request(_)]), "{n}");
        let item = ItemId(1_000 + n);
        realtime.session(happened(Event::ItemAdded { item }));
    }
    let effects = realtime.client(ClientMessage::Text(&text));
    assert_eq!(
        events(&effects)[0]["error"]["code"],
        "conversation_too_long"
    );
}

#[test]
fn a_commit_without_words_is_answered() {
    let mut realtime = Realtime::new(None, None, false);
    realtime.start();
    let audio = STANDARD.encode(vec![0; 2 * 24 * 200]);
    let append = json!({"type": "input_audio_buffer.append", "audio": audio}).to_string();
    realtime.client(ClientMessage::Text(&append));
    realtime.client(ClientMessage::Text(
        r#"{"type":"input_audio_buffer.commit"}"#,
    ));
    let told = events(&realtime.session(happened(Event::UtteranceDropped)));
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[0]["type"], "input_audio_buffer.committed");
    assert_eq!(
        told[1]["type"],
        "conversation.item.input_audio_transcription.failed"
    );
    assert_eq!(told[0]["item_id"], told[1]["item_id"]);
    // What was not committed comes to nothing without a word.
    let told = events(&realtime.session(happened(Event::UtteranceDropped)));
    assert!(told.is_empty(), "{told:?}");
}

/// All that the session tells of a run that nobody asked for, and of a call that waits for a yes.
fn early_events() -> Vec<Event> {
    let arguments = Map::from_iter([("city".to_owned(), json!("Boulder"))]);
    vec![
        Event::Speculation(SpeculationEvent::Started {
            at: Time(5),
            run: RunId(1),
            tool: "weather".into(),
            arguments: arguments.clone(),
            source: Source::Rule,
            confidence: 0.75,
        }),
        Event::Speculation(SpeculationEvent::Discarded {
            at: Time(9),
            run: RunId(1),
            reason: Discard::Superseded,
            wasted: Micros(4),
        }),
        Event::TurnRecorded(Box::new(crate::stats::testing::record())),
        Event::ConfirmationAsked {
            call: CallId(7),
            name: "book".into(),
            arguments,
            question: "Shall I book Boulder?".into(),
        },
    ]
}

fn told(realtime: &mut Realtime, told: Vec<Event>) -> Vec<Value> {
    let effects = told.into_iter().map(|e| realtime.session(happened(e)));
    effects.flat_map(|effects| events(&effects)).collect()
}

fn ended() -> Vec<Event> {
    vec![Event::ConfirmationEnded {
        call: CallId(7),
        outcome: ConfirmationOutcome::Accepted,
    }]
}

#[test]
fn what_runs_early_is_told_to_those_who_ask() {
    let mut realtime = Realtime::new(None, None, true);
    realtime.start();
    let all = told(&mut realtime, early_events());
    let kinds: Vec<_> = all.iter().map(|e| e["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "undertone.speculation",
            "undertone.speculation",
            "undertone.turn_record",
            "undertone.confirmation.asked"
        ]
    );
    assert_eq!(
        (&all[0]["kind"], &all[0]["tool"]),
        (&json!("started"), &json!("weather"))
    );
    assert_eq!(
        (&all[1]["kind"], &all[1]["reason"]),
        (&json!("discarded"), &json!("superseded"))
    );
    assert_eq!(all[2]["runs"][0]["fate"]["kind"], "committed");
    assert_eq!(all[3]["arguments"], json!({"city": "Boulder"}));
}

#[test]
fn a_client_that_does_not_ask_sees_nothing_of_what_was_discarded() {
    let mut realtime = Realtime::new(None, None, false);
    realtime.start();
    for event in early_events().into_iter().chain(ended()) {
        assert_eq!(realtime.session(happened(event)), []);
    }
}

#[test]
fn a_client_may_say_yes_for_the_user_while_it_is_asked() {
    let mut realtime = Realtime::new(None, None, true);
    realtime.start();
    let asked = told(&mut realtime, early_events()).pop().unwrap();
    let answer = json!({
        "type": "undertone.confirmation.respond", "call_id": asked["call_id"], "accept": true,
    });
    let answer = answer.to_string();
    let confirm = Input::Confirm {
        call: CallId(7),
        accepted: true,
    };
    let effects = realtime.client(ClientMessage::Text(&answer));
    assert_eq!(effects, [Effect::Request(confirm)]);
    let last = told(&mut realtime, ended()).pop().unwrap();
    assert_eq!(
        (&last["call_id"], &last["outcome"]),
        (&asked["call_id"], &json!("accepted"))
    );
    for (text, code) in [
        (answer.as_str(), "confirmation_not_found"),
        (
            r#"{"type":"undertone.confirmation.respond","call_id":"call_7","accept":true}"#,
            "confirmation_not_found",
        ),
        (
            r#"{"type":"undertone.confirmation.respond","call_id":"x"}"#,
            "missing_required_parameter",
        ),
    ] {
        let effects = realtime.client(ClientMessage::Text(text));
        assert_eq!(events(&effects)[0]["error"]["code"], code, "{text}");
        assert_eq!(effects.len(), 1, "nothing is asked of the session");
    }
}

#[test]
fn clients_that_ask_learn_when_it_happened() {
    for asks in [true, false] {
        let mut realtime = Realtime::new(None, None, asks);
        realtime.start();
        let at = Samples::from_ms(300);
        let told = told(&mut realtime, vec![Event::SpeechStarted { at }]);
        assert_eq!(told[0].get("undertone_at").is_some(), asks, "{told:?}");
        let answer = realtime.client(ClientMessage::Text(
            r#"{"type":"input_audio_buffer.clear"}"#,
        ));
        assert!(events(&answer)[0].get("undertone_at").is_none());
    }
}

#[test]
fn clients_that_ask_may_send_bare_audio() {
    let mut realtime = Realtime::new(None, None, true);
    realtime.start();
    let effects = realtime.client(ClientMessage::Binary(&[1, 0, 255, 255]));
    assert_eq!(effects, [Effect::Audio(vec![1, -1])]);
    let effects = realtime.client(ClientMessage::Binary(&[1]));
    assert!(matches!(&effects[..], [Effect::Close(close)] if close.code == 1007));
    let effects = Realtime::new(None, None, false).client(ClientMessage::Binary(&[1, 0]));
    assert!(matches!(&effects[..], [Effect::Close(close)] if close.code == 1003));
}

#[test]
fn a_client_switches_speculation_for_its_session() {
    let mut realtime = Realtime::new(None, None, true);
    realtime.start();
    let update = r#"{"type":"session.update","session":{"type":"realtime","undertone":{"speculation":false}}}"#;
    let effects = realtime.client(ClientMessage::Text(update));
    let settings = Settings {
        speculation: Some(false),
        ..Settings::default()
    };
    assert!(effects.contains(&Effect::Request(Input::Configure(settings))));
    let updated = &events(&effects)[0]["session"]["undertone"];
    assert_eq!(*updated, json!({"speculation": false}));
}
