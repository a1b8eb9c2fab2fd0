use super::requests::MAX_PENDING;
use super::*;
use crate::conversation::{ClauseId, ItemId, ResponseStatus, TurnId, TurnLatency};
use crate::transport::realtime::CLIENT_EVENTS;
use proptest::prelude::*;
use serde_json::Map;

fn events(effects: &[Effect]) -> Vec<Value> {
    let text = |effect: &Effect| match effect {
        Effect::Send(text) => serde_json::from_str(text).ok(),
        _ => None,
    };
    effects.iter().filter_map(text).collect()
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
        4 => events.prop_map(Outbound::Event),
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
        let mut realtime = Realtime::new(None, None, true, Arc::default());
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
    let mut realtime = Realtime::new(None, None, false, Arc::default());
    realtime.start();
    for _ in 0..10 * MAX_PENDING {
        let effects = realtime.client(ClientMessage::Text(r#"{"type":"response.create"}"#));
        assert!(matches!(
            effects[..],
            [Effect::Request(Input::Respond { .. })]
        ));
    }
}
