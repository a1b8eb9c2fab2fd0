use super::requests::MAX_PENDING;
use super::*;
use crate::conversation::{
    ClauseId, ConfirmationOutcome, Context, Discard, ItemId, NewItem, Place, ResponseStatus, RunId,
    Settings, SpeculationEvent, Time, TurnId,
};
use crate::llm::{Message, TokenUsage};
use crate::prediction::Source;
use crate::transport::realtime::CLIENT_EVENTS;
use crate::tts::{Speaker, Speed};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::Map;

mod early_calls;

fn events(actions: &[Action]) -> Vec<Value> {
    let text = |action: &Action| match action {
        Action::Send(text) => serde_json::from_str(text).ok(),
        _ => None,
    };
    actions.iter().filter_map(text).collect()
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
        Just(Event::AudioCommitted),
        Just(Event::AudioCleared),
        Just(Event::NothingToCommit {
            message: "no".into()
        }),
        Just(Event::PartialTranscript { text: "u".into() }),
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
        Just(Event::ResponseStarted {
            turn: TurnId(1),
            requested: true,
            opens: false,
        }),
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
            by_client,
            run: None,
        }),
        item.clone().prop_map(|item| Event::ToolFinished {
            item,
            call: CallId(1),
            result: Ok(json!(1))
        }),
        Just(Event::ResponseDone {
            turn: TurnId(1),
            status: ResponseStatus::Failed,
            latency: Box::default(),
            usage: TokenUsage::default(),
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
    /// No sequence of events causes a panic, and each event sent has an id of its own.
    #[test]
    fn any_sequence_of_events_is_survived(
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
            let actions = match &step {
                Ok(text) => realtime.client(ClientMessage::Text(text)),
                Err(outbound) => realtime.session(outbound.clone()),
            };
            all.extend(events(&actions));
        }
        let mut ids: Vec<_> = all.iter().map(|event| event["event_id"].to_string()).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), count);
    }
}

#[test]
fn requests_that_are_never_answered_do_not_block_later_ones() {
    let mut realtime = realtime(false);
    let mut session = vec![response_started()];
    session.extend(says(1, "It is noon.", 600));
    session.push(completed());
    let name = name_of(&heard(&mut realtime, session));
    let truncate = json!({
        "type": "conversation.item.truncate", "item_id": name, "content_index": 0,
        "audio_end_ms": 100,
    });
    let asked = Action::Request(Input::Truncate {
        item: ItemId(1),
        heard: Micros::from_ms(100),
    });
    for _ in 0..10 * MAX_PENDING {
        let actions = send(&mut realtime, &truncate);
        assert_eq!(actions, std::slice::from_ref(&asked));
        assert!(!realtime.is_busy());
    }
}

#[test]
fn text_that_exceeds_the_prompt_is_refused_by_name_and_changes_nothing() {
    let limits = TextLimits {
        set_up: 1_000,
        item: 100,
    };
    let mut realtime = Realtime::new(None, None, false).within(limits);
    realtime.start();
    let mut send = |event: &Value| realtime.client(ClientMessage::Text(&event.to_string()));
    let session = |field: &str, value: Value| {
        json!({"type": "session.update", "event_id": "mine",
            "session": {"type": "realtime", field: value}})
    };
    let tool = |size| {
        json!([{"type": "function", "name": "own", "description": "x".repeat(size),
            "parameters": {"type": "object"}}])
    };
    let kept = send(&session("instructions", json!("k".repeat(600))));
    assert_eq!(events(&kept)[0]["type"], "session.updated");
    let item: Value = serde_json::from_str(&user_text(&"x".repeat(101))).expect("JSON");
    let response =
        json!({"type": "response.create", "response": {"instructions": "x".repeat(1_001)}});
    for (event, param) in [
        (
            session("instructions", json!("x".repeat(907_595))),
            "session.instructions",
        ),
        (session("tools", tool(400)), "session.tools"),
        (item, "item"),
        (response, "response"),
    ] {
        let actions = send(&event);
        assert_eq!(actions.len(), 1, "{param}: something else follows");
        let error = &events(&actions)[0]["error"];
        assert_eq!(error["code"], "string_above_max_length", "{error}");
        assert_eq!(error["param"], param);
        assert_eq!(
            error["event_id"],
            event.get("event_id").cloned().unwrap_or_default()
        );
    }
    let shown = send(&session("instructions", json!("short")));
    assert_eq!(events(&shown)[0]["session"]["instructions"], "short");
    assert_eq!(
        events(&send(&session("tools", tool(400))))[0]["type"],
        "session.updated"
    );
}

#[test]
fn a_long_value_that_would_only_be_echoed_is_refused_by_name_and_not_kept() {
    let mut realtime = Realtime::new(None, None, false);
    realtime.start();
    let mut send = |event: Value| realtime.client(ClientMessage::Text(&event.to_string()));
    let session =
        |session: Value| json!({"type": "session.update", "event_id": "mine", "session": session});
    let input = |field: &str, value: Value| session(json!({"audio": {"input": {field: value}}}));
    let long = "x".repeat(16 * 1024);
    let metadata = json!({"type": "response.create", "event_id": "mine",
        "response": {"metadata": {"order": long.repeat(4)}}});
    let choice = json!({"type": "function", "name": "own", "reason": long});
    let tool = json!({"type": "function", "name": "own", "notes": long});
    for (event, param) in [
        (session(json!({"model": long})), "session.model"),
        (session(json!({"include": [long]})), "session.include"),
        (
            session(json!({"tracing": {"group_id": long}})),
            "session.tracing",
        ),
        (
            session(json!({"tool_choice": choice})),
            "session.tool_choice",
        ),
        (
            session(json!({"tools": [{"type": "function", "name": "a"}, tool]})),
            "session.tools[1]",
        ),
        (
            session(json!({"input_audio_noise_reduction": {"type": long}})),
            "session.input_audio_noise_reduction",
        ),
        (
            input("noise_reduction", json!({"type": long})),
            "session.audio.input.noise_reduction",
        ),
        (
            input(
                "transcription",
                json!({"model": "whisper-1", "prompt": long}),
            ),
            "session.audio.input.transcription",
        ),
        (
            input(
                "turn_detection",
                json!({"type": "server_vad", "notes": long}),
            ),
            "session.audio.input.turn_detection",
        ),
        (metadata, "response.metadata"),
    ] {
        let actions = send(event);
        assert_eq!(actions.len(), 1, "{param}: something else follows");
        let error = &events(&actions)[0]["error"];
        assert_eq!(error["code"], "string_above_max_length", "{error}");
        assert_eq!(error["param"], param);
        assert_eq!(error["event_id"], "mine");
    }
    let shown = events(&send(session(json!({}))));
    assert_eq!(shown[0]["type"], "session.updated");
    assert!(shown[0].to_string().len() < 4 * 1024, "{}", shown[0]);
    let described = json!({"type": "function", "name": "own", "description": long});
    let shown = events(&send(session(json!({"tools": [described]}))));
    assert_eq!(shown[0]["session"]["tools"][0]["description"], long);
}

/// 16 KiB were the limit here, too.
#[test]
fn metadata_as_long_as_openai_allows_is_taken_in_any_script() {
    let pairs = (10..26).map(|n| (format!("{n}{}", "鍵".repeat(62)), json!("値".repeat(512))));
    let metadata = Value::Object(pairs.collect());
    let event = json!({"type": "response.create", "response": {"metadata": metadata}});
    let actions = send(&mut realtime(false), &event);
    assert!(matches!(actions[..], [Action::Request(_)]), "{actions:?}");
}

fn user_text(text: &str) -> String {
    let content = json!([{"type": "input_text", "text": text}]);
    json!({"type": "conversation.item.create",
        "item": {"type": "message", "role": "user", "content": content}})
    .to_string()
}

#[test]
fn deleted_and_refused_items_free_their_share_of_text() {
    let mut realtime = Realtime::new(None, None, false);
    realtime.start();
    let text = user_text(&"x".repeat(32 * 1024));
    let refused = Event::Refused {
        request: "AddItem".into(),
        message: "no".into(),
    };
    // A megabyte is the limit; this is four of them.
    for n in 0..128 {
        let actions = realtime.client(ClientMessage::Text(&text));
        assert!(matches!(actions[..], [Action::Request(_)]), "{n}");
        let item = ItemId(n);
        if n % 2 == 0 {
            realtime.session(happened(refused.clone()));
        } else {
            realtime.session(happened(Event::ItemAdded { item }));
            realtime.session(happened(Event::ItemDeleted { item }));
        }
    }
    for n in 0..31 {
        let actions = realtime.client(ClientMessage::Text(&text));
        assert!(matches!(actions[..], [Action::Request(_)]), "{n}");
        let item = ItemId(1_000 + n);
        realtime.session(happened(Event::ItemAdded { item }));
    }
    let actions = realtime.client(ClientMessage::Text(&text));
    assert_eq!(
        events(&actions)[0]["error"]["code"],
        "conversation_too_long"
    );
}

/// Appends `ms` of audio and commits it. Returns what the client is told at once.
fn commit(realtime: &mut Realtime, ms: usize, event_id: &str) -> Vec<Value> {
    let audio = STANDARD.encode(vec![0; 2 * 24 * ms]);
    let append = json!({"type": "input_audio_buffer.append", "audio": audio}).to_string();
    realtime.client(ClientMessage::Text(&append));
    let commit = json!({"type": "input_audio_buffer.commit", "event_id": event_id}).to_string();
    events(&realtime.client(ClientMessage::Text(&commit)))
}

fn spoken(item: u64, text: &str) -> Event {
    Event::UserItem {
        item: ItemId(item),
        text: text.into(),
        spoken: true,
    }
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let kinds = events.iter().filter_map(|event| event["type"].as_str());
    kinds.collect()
}

#[test]
fn a_commit_without_words_is_answered() {
    let mut realtime = realtime(false);
    commit(&mut realtime, 200, "mine");
    let all = told(
        &mut realtime,
        vec![Event::AudioCommitted, Event::UtteranceDropped],
    );
    let expected = [
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.completed",
    ];
    assert_eq!(kinds(&all), expected);
    let name = &all[0]["item_id"];
    for event in &all[1..3] {
        assert_eq!(event["item"]["id"], *name);
        assert_eq!(event["item"]["content"][0]["transcript"], "");
    }
    assert_eq!(
        (&all[3]["item_id"], &all[3]["transcript"]),
        (name, &json!(""))
    );
    assert_eq!(all[3]["usage"]["seconds"], json!(1));
    // Dropping an utterance that was not committed sends nothing.
    let told = events(&realtime.session(happened(Event::UtteranceDropped)));
    assert!(told.is_empty(), "{told:?}");
}

/// The session has no such item, so nothing is asked of it.
#[test]
fn an_item_without_words_may_be_followed_referred_to_and_deleted() {
    let mut realtime = realtime(false);
    let words = vec![Event::AudioCommitted, spoken(7, "hello")];
    commit(&mut realtime, 200, "first");
    told(&mut realtime, words);
    commit(&mut realtime, 200, "second");
    let dropped = vec![Event::AudioCommitted, Event::UtteranceDropped];
    let name = told(&mut realtime, dropped)[0]["item_id"].clone();
    let name = name.as_str().unwrap();
    let last = added(
        &mut realtime,
        &[create(Some(name), message("a", "user", "one"))],
    );
    assert_eq!(last[0].1, Place::End);
    let item = last[0].0.unwrap();
    let all = told(&mut realtime, vec![Event::ItemAdded { item }]);
    assert_eq!(all[0]["previous_item_id"], name);
    let between = added(
        &mut realtime,
        &[create(Some(name), message("b", "user", "two"))],
    );
    assert_eq!(between[0].1, Place::After(ItemId(7)));
    let twice = create(None, message(name, "user", "?"));
    let refused = events(&realtime.client(ClientMessage::Text(&twice)));
    assert_eq!(refused[0]["error"]["code"], "item_create_duplicate_item_id");
    let response = json!({"conversation": "none", "output_modalities": ["text"],
        "input": [{"type": "item_reference", "id": name}]});
    let actions = send(
        &mut realtime,
        &json!({"type": "response.create", "response": response}),
    );
    assert!(matches!(actions[..], [Action::Request(_)]), "{actions:?}");
    let delete = json!({"type": "conversation.item.delete", "item_id": name});
    let actions = send(&mut realtime, &delete);
    assert_eq!(actions.len(), 1);
    assert_eq!(events(&actions)[0]["type"], "conversation.item.deleted");
    let again = events(&send(&mut realtime, &delete));
    assert_eq!(again[0]["error"]["code"], "item_delete_invalid_item_id");
}

#[test]
fn a_commit_whose_transcription_fails_is_told_so_once_and_has_no_item() {
    let mut realtime = realtime(false);
    commit(&mut realtime, 200, "mine");
    let failed = Event::words_lost();
    let happened = vec![Event::AudioCommitted, failed, Event::UtteranceDropped];
    let all = told(&mut realtime, happened);
    let expected = [
        "input_audio_buffer.committed",
        "conversation.item.input_audio_transcription.failed",
    ];
    assert_eq!(kinds(&all), expected);
    assert_eq!(all[0]["item_id"], all[1]["item_id"]);
}

/// The turn was told as failed and then as transcribed, and in mid-dictation clients got an error.
#[test]
fn a_recogniser_that_another_stands_in_for_fails_no_turn() {
    let setback = || Event::StageFailed {
        stage: "asr".into(),
        message: "the service does not answer".into(),
    };
    let mut client = realtime(false);
    assert!(told(&mut client, vec![setback()]).is_empty());
    commit(&mut client, 200, "mine");
    let happened = vec![Event::AudioCommitted, setback(), spoken(1, "hello")];
    let all = told(&mut client, happened);
    let expected = [
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.completed",
    ];
    assert_eq!(kinds(&all), expected);
    let all = told(&mut realtime(true), vec![setback()]);
    assert_eq!(kinds(&all), ["undertone.stage_failed"]);
}

/// Its id was unknown, and a client could give it to an item of its own.
#[test]
fn a_committed_turn_can_be_named_before_its_words_come() {
    let mut realtime = realtime(false);
    commit(&mut realtime, 200, "mine");
    let all = told(&mut realtime, vec![Event::AudioCommitted]);
    let name = all[0]["item_id"].as_str().unwrap();
    let behind = create(Some(name), message("a", "user", "one"));
    assert_eq!(added(&mut realtime, &[behind])[0].1, Place::End);
    let taken = create(None, message(name, "user", "?"));
    let taken: Value = serde_json::from_str(&taken).unwrap();
    let refused = events(&send(&mut realtime, &taken));
    assert_eq!(refused[0]["error"]["code"], "item_create_duplicate_item_id");
    let reference = json!([{"type": "item_reference", "id": name}]);
    for event in [
        json!({"type": "conversation.item.retrieve", "item_id": name}),
        json!({"type": "conversation.item.delete", "item_id": name}),
        json!({"type": "response.create", "response": {"input": reference}}),
    ] {
        let refused = events(&send(&mut realtime, &event));
        let message = refused[0]["error"]["message"].as_str().unwrap();
        assert!(message.contains("has no words yet"), "{message}");
    }
    told(&mut realtime, vec![spoken(1, "hello")]);
    let retrieve = json!({"type": "conversation.item.retrieve", "item_id": name});
    let found = events(&send(&mut realtime, &retrieve));
    assert_eq!(found[0]["type"], "conversation.item.retrieved");
}

fn partial(text: &str) -> Event {
    Event::PartialTranscript { text: text.into() }
}

/// Sets the turn detection of a transcription session.
fn detect(realtime: &mut Realtime, detection: Value) {
    let audio = json!({"input": {"turn_detection": detection}});
    let session = json!({"type": "transcription", "audio": audio});
    send(
        realtime,
        &json!({"type": "session.update", "session": session}),
    );
}

/// A transcription session whose turns the client ends by hand, and the id of the item of which it was told "dear".
fn dictating() -> (Realtime, Value) {
    let mut realtime = Realtime::new(None, None, false).transcribing();
    realtime.start();
    detect(&mut realtime, Value::Null);
    let told = told(&mut realtime, vec![partial("dear"), partial("dear")]);
    assert_eq!(told[0]["delta"], "dear");
    (realtime, told[0]["item_id"].clone())
}

/// The words and the id of the dropped audio were those of the next turn.
#[test]
fn turn_detection_in_mid_dictation_drops_the_words_that_were_told() {
    let (mut realtime, name) = dictating();
    detect(&mut realtime, json!({"type": "server_vad"}));
    detect(&mut realtime, Value::Null);
    let after = told(&mut realtime, vec![partial("yours"), partial("yours")]);
    assert_eq!(after[0]["delta"], "yours");
    assert_ne!(after[0]["item_id"], name);
}

/// The commit got another item, and the one whose words had been told never completed.
#[test]
fn turn_detection_right_behind_a_commit_keeps_the_name_of_its_item() {
    let (mut realtime, name) = dictating();
    commit(&mut realtime, 200, "mine");
    detect(&mut realtime, json!({"type": "server_vad"}));
    let happened = vec![Event::AudioCommitted, spoken(1, "Dear all.")];
    let all = told(&mut realtime, happened);
    let delta = of_type(&all, "conversation.item.input_audio_transcription.delta")[0];
    assert_eq!(delta["delta"], " all.");
    let committed = of_type(&all, "input_audio_buffer.committed")[0];
    let completed = of_type(
        &all,
        "conversation.item.input_audio_transcription.completed",
    )[0];
    for event in [committed, delta, completed] {
        assert_eq!(event["item_id"], name);
    }
    // Nobody commits the audio of a refused one.
    for refusal in refusals() {
        let (mut realtime, name) = dictating();
        commit(&mut realtime, 200, "mine");
        detect(&mut realtime, json!({"type": "server_vad"}));
        told(&mut realtime, vec![refusal]);
        detect(&mut realtime, Value::Null);
        let after = told(&mut realtime, vec![partial("yours"), partial("yours")]);
        assert_eq!(after[0]["delta"], "yours");
        assert_ne!(after[0]["item_id"], name);
    }
}

/// The commit took the name of the turn before it.
#[test]
fn a_turn_that_ended_for_lack_of_audio_lends_its_name_to_no_commit() {
    let mut realtime = realtime(false);
    let at = Samples::from_ms(100);
    let started = told(&mut realtime, vec![Event::SpeechStarted { at }]);
    let by_hand = json!({"type": "realtime", "audio": {"input": {"turn_detection": null}}});
    let update = json!({"type": "session.update", "session": by_hand});
    send(&mut realtime, &update);
    commit(&mut realtime, 200, "mine");
    let happened = vec![
        Event::AudioCommitted,
        Event::SpeechStopped { at },
        spoken(1, "first"),
        spoken(2, "second"),
    ];
    let all = told(&mut realtime, happened);
    let committed = &of_type(&all, "input_audio_buffer.committed")[0]["item_id"];
    let added = of_type(&all, "conversation.item.added");
    assert_eq!(added[0]["item"]["id"], started[0]["item_id"]);
    assert_eq!(added[1]["item"]["id"], *committed);
    assert_ne!(added[0]["item"]["id"], *committed);
}

/// The session's ways to refuse a commit.
fn refusals() -> [Event; 2] {
    let message = || "no".to_owned();
    let refused = Event::Refused {
        request: "CommitAudio".into(),
        message: message(),
    };
    [refused, Event::NothingToCommit { message: message() }]
}

/// The audio was forgotten with the first commit.
#[test]
fn a_refused_commit_can_be_repeated() {
    for refusal in refusals() {
        let mut realtime = realtime(false);
        commit(&mut realtime, 200, "first");
        let refused = told(&mut realtime, vec![refusal]);
        assert_eq!(kinds(&refused), ["error"]);
        let again = json!({"type": "input_audio_buffer.commit"});
        let asked = send(&mut realtime, &again);
        assert_eq!(asked, [Action::Request(Input::CommitAudio)]);
    }
}

/// A client that stops once its audio is cleared and no committed item is open lost the last turn.
#[test]
fn cleared_does_not_overtake_committed() {
    let mut realtime = realtime(false);
    assert!(commit(&mut realtime, 200, "mine").is_empty());
    let clear = r#"{"type":"input_audio_buffer.clear"}"#;
    let actions = realtime.client(ClientMessage::Text(clear));
    assert_eq!(actions, [Action::Request(Input::ClearAudio)]);
    let happened = vec![
        Event::AudioCommitted,
        Event::AudioCleared,
        spoken(1, "hello"),
    ];
    let all = told(&mut realtime, happened);
    let expected = [
        "input_audio_buffer.committed",
        "input_audio_buffer.cleared",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.completed",
    ];
    assert_eq!(kinds(&all), expected);
}

/// It had the code `request_refused`, which clients take for a failure.
#[test]
fn a_commit_of_nothing_has_openais_code_and_one_too_many_another() {
    let mut realtime = realtime(false);
    for name in ["nothing", "too many"] {
        commit(&mut realtime, 200, name);
    }
    let message = || "no".to_owned();
    let nothing = Event::NothingToCommit { message: message() };
    let refused = Event::Refused {
        request: "CommitAudio".into(),
        message: message(),
    };
    let all = told(&mut realtime, vec![nothing, refused]);
    let errors = all.iter().map(|event| &event["error"]);
    let errors: Vec<_> = errors.map(|e| (&e["code"], &e["event_id"])).collect();
    let expected = [
        (&json!("input_audio_buffer_commit_empty"), &json!("nothing")),
        (&json!("request_refused"), &json!("too many")),
    ];
    assert_eq!(errors, expected);
}

/// There were none before the commit.
#[test]
fn words_before_a_commit_are_told_under_the_name_of_its_item() {
    let mut realtime = Realtime::new(None, None, false).transcribing();
    realtime.start();
    let before = told(&mut realtime, vec![partial("dear"), partial("dear all")]);
    let delta = "conversation.item.input_audio_transcription.delta";
    assert_eq!(kinds(&before), [delta]);
    assert_eq!(before[0]["delta"], "dear");
    let name = &before[0]["item_id"];
    commit(&mut realtime, 200, "first");
    let happened = vec![
        Event::AudioCommitted,
        // Of later audio.
        partial("yours"),
        partial("yours"),
        spoken(1, "Dear all."),
    ];
    let all = told(&mut realtime, happened);
    let committed = of_type(&all, "input_audio_buffer.committed")[0];
    assert_eq!(committed["item_id"], *name);
    let deltas = of_type(&all, delta).into_iter();
    let deltas: Vec<_> = deltas.map(|e| (&e["delta"], &e["item_id"])).collect();
    assert_eq!(deltas[0].0, "yours");
    assert_eq!(deltas[1], (&json!(" all."), name));
    assert_ne!(deltas[0].1, name);
    commit(&mut realtime, 200, "second");
    let happened = vec![Event::AudioCommitted, spoken(2, "Yours.")];
    let second = told(&mut realtime, happened);
    let completed = "conversation.item.input_audio_transcription.completed";
    assert_eq!(of_type(&second, completed)[0]["item_id"], *deltas[0].1);
}

#[test]
fn nothing_more_is_read_while_as_many_items_as_may_wait_to_be_added() {
    let mut realtime = realtime(false);
    for n in 0..MAX_PENDING {
        assert!(!realtime.is_busy(), "{n}");
        let text = create(None, message(&format!("i{n}"), "user", "x"));
        realtime.client(ClientMessage::Text(&text));
    }
    assert!(realtime.is_busy());
    let item = ItemId::of_client(1);
    told(&mut realtime, vec![Event::ItemAdded { item }]);
    assert!(!realtime.is_busy());
}

/// Behind 64 requests the oldest commits were forgotten: lengths and event ids were those of others, and the audio of a
/// refused one was lost.
#[test]
fn commits_that_wait_keep_their_lengths_however_many_they_are() {
    let mut realtime = realtime(false);
    // It makes room for the last commit.
    let asked = send(&mut realtime, &json!({"type": "response.create"}));
    assert!(matches!(asked[..], [Action::Request(_)]), "{asked:?}");
    let last = MAX_PENDING - 1;
    let length = |nth| 100 + 1_000 * (nth % 3);
    for nth in 0..=last {
        assert!(!realtime.is_busy(), "commit {nth}");
        let told = commit(&mut realtime, length(nth), &format!("commit {nth}"));
        assert!(told.is_empty(), "{told:?}");
    }
    // No more is read from the client. One too many is refused all the same, and its audio can be committed later.
    assert!(realtime.is_busy());
    let refused = commit(&mut realtime, 100, "too many");
    assert_eq!(refused[0]["error"]["code"], "rate_limit_exceeded");
    assert_eq!(refused[0]["error"]["event_id"], "too many");
    for (item, nth) in (1..).zip(0..last) {
        let happened = vec![Event::AudioCommitted, spoken(item, "hello")];
        let all = told(&mut realtime, happened);
        let completed = "conversation.item.input_audio_transcription.completed";
        let completed = of_type(&all, completed)[0];
        assert_eq!(completed["usage"]["seconds"], json!(1 + nth % 3));
        assert!(!realtime.is_busy());
    }
    let [refusal, _] = refusals();
    let refused = told(&mut realtime, vec![refusal]);
    assert_eq!(refused[0]["error"]["event_id"], format!("commit {last}"));
    let waiting = Micros::from_ms(100 + length(last) as u64);
    assert_eq!(realtime.uncommitted, waiting);
}

/// The session's events about a discarded speculative run, and a call that waits for confirmation.
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
            by_client: false,
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
    let actions = told.into_iter().map(|e| realtime.session(happened(e)));
    actions.flat_map(|actions| events(&actions)).collect()
}

fn ended() -> Vec<Event> {
    vec![Event::ConfirmationEnded {
        call: CallId(7),
        outcome: ConfirmationOutcome::Accepted,
    }]
}

#[test]
fn speculation_is_reported_to_clients_that_opted_in() {
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
fn discarded_runs_leave_no_trace_at_other_clients() {
    let mut realtime = Realtime::new(None, None, false);
    realtime.start();
    for event in early_events().into_iter().chain(ended()) {
        assert_eq!(realtime.session(happened(event)), []);
    }
}

#[test]
fn a_client_may_confirm_for_the_user_while_the_question_is_open() {
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
    let actions = realtime.client(ClientMessage::Text(&answer));
    assert_eq!(actions, [Action::Request(confirm)]);
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
        let actions = realtime.client(ClientMessage::Text(text));
        assert_eq!(events(&actions)[0]["error"]["code"], code, "{text}");
        assert_eq!(actions.len(), 1, "nothing is asked of the session");
    }
}

#[test]
fn events_carry_their_time_for_clients_that_opted_in() {
    for asks in [true, false] {
        let mut realtime = Realtime::new(None, None, asks);
        realtime.start();
        let at = Samples::from_ms(300);
        let told = told(&mut realtime, vec![Event::SpeechStarted { at }]);
        assert_eq!(told[0].get("undertone_at").is_some(), asks, "{told:?}");
        let answer = realtime.client(ClientMessage::Text(
            r#"{"type":"session.update","session":{"type":"realtime"}}"#,
        ));
        assert!(events(&answer)[0].get("undertone_at").is_none());
    }
}

#[test]
fn clients_that_opted_in_may_send_binary_audio() {
    let mut realtime = Realtime::new(None, None, true);
    realtime.start();
    let actions = realtime.client(ClientMessage::Binary(&[1, 0, 255, 255]));
    assert_eq!(actions, [Action::Audio(vec![1, -1])]);
    let actions = realtime.client(ClientMessage::Binary(&[1]));
    assert!(matches!(&actions[..], [Action::Close(close)] if close.code == 1007));
    let actions = Realtime::new(None, None, false).client(ClientMessage::Binary(&[1, 0]));
    assert!(matches!(&actions[..], [Action::Close(close)] if close.code == 1003));
}

#[test]
fn a_client_may_disable_speculation_for_its_session() {
    let mut realtime = Realtime::new(None, None, true);
    realtime.start();
    let update = r#"{"type":"session.update","session":{"type":"realtime","undertone":{"speculation":false}}}"#;
    let actions = realtime.client(ClientMessage::Text(update));
    let settings = Settings {
        speculation: Some(false),
        releases_opening: true,
        ..Settings::default()
    };
    assert!(actions.contains(&Action::Request(Input::Configure(Box::new(settings)))));
    let updated = &events(&actions)[0]["session"]["undertone"];
    assert_eq!(*updated, json!({"speculation": false}));
}

fn realtime(vendor_events: bool) -> Realtime {
    let mut realtime = Realtime::new(None, None, vendor_events);
    realtime.start();
    realtime
}

/// A response that speaks, calls one of the server's tools, and speaks again.
fn with_server_tool() -> Vec<Event> {
    let said = |item: u64, text: &str| {
        let (item, clause, text) = (ItemId(item), ClauseId(item), text.to_owned());
        let speech = Event::AgentSpeech {
            item,
            clause,
            text: text.clone(),
        };
        let done = Event::AgentItemDone {
            item,
            text,
            interrupted: false,
        };
        [Event::AgentItemStarted { item }, speech, done]
    };
    let (item, call, turn) = (ItemId(2), CallId(3), TurnId(1));
    let mut events = vec![Event::ResponseStarted {
        turn,
        requested: true,
        opens: false,
    }];
    events.extend(said(1, "One moment."));
    events.push(Event::ToolCalled {
        item,
        call,
        name: "get_weather".into(),
        arguments: Map::new(),
        by_client: false,
        run: None,
    });
    let result = Ok(json!({"degrees": 21}));
    events.push(Event::ToolFinished { item, call, result });
    events.extend(said(4, "It is 21 degrees."));
    events.push(response_done(ResponseStatus::Completed));
    events
}

fn response_done(status: ResponseStatus) -> Event {
    Event::ResponseDone {
        turn: TurnId(1),
        status,
        latency: Box::default(),
        usage: TokenUsage::default(),
    }
}

fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events
        .iter()
        .filter(|event| event["type"] == kind)
        .collect()
}

#[test]
fn server_tool_calls_are_shown_only_to_clients_that_opted_in() {
    for asks in [false, true] {
        let all = told(&mut realtime(asks), with_server_tool());
        let shown: Vec<&str> = match asks {
            true => vec!["message", "mcp_call", "message"],
            false => vec!["message"],
        };
        let kinds = |items: Vec<&Value>| -> Vec<String> {
            let kind = |item: &Value| item["type"].as_str().unwrap().to_owned();
            items.into_iter().map(kind).collect()
        };
        let added = of_type(&all, "response.output_item.added");
        let indices: Vec<_> = added.iter().map(|event| &event["output_index"]).collect();
        let expected: Vec<Value> = (0..shown.len()).map(|index| json!(index)).collect();
        assert_eq!(indices, expected.iter().collect::<Vec<_>>());
        assert_eq!(kinds(added.iter().map(|e| &e["item"]).collect()), shown);
        let done = of_type(&all, "response.done")[0]["response"]["output"].clone();
        assert_eq!(kinds(done.as_array().unwrap().iter().collect()), shown);
        let items = of_type(&all, "conversation.item.added");
        for pair in items.windows(2) {
            assert_eq!(pair[1]["previous_item_id"], pair[0]["item"]["id"]);
        }
        let mentions = all.iter().any(|event| event.to_string().contains("mcp"));
        assert_eq!(mentions, asks, "{all:?}");
    }
}

#[test]
fn a_second_cancel_while_the_first_is_pending_gets_openais_error() {
    let mut realtime = realtime(false);
    let turn = TurnId(1);
    told(
        &mut realtime,
        vec![Event::ResponseStarted {
            turn,
            requested: true,
            opens: false,
        }],
    );
    let cancel = r#"{"type":"response.cancel","event_id":"second"}"#;
    let first = realtime.client(ClientMessage::Text(cancel));
    assert_eq!(first, [Action::Request(Input::CancelResponse)]);
    let second = events(&realtime.client(ClientMessage::Text(cancel)));
    let error = &second[0]["error"];
    assert_eq!(error["type"], "invalid_request_error");
    assert_eq!(error["code"], "response_cancel_not_active");
    assert_eq!(
        error["message"],
        "Cancellation failed: no active response found"
    );
    assert_eq!(error["event_id"], "second");
    told(
        &mut realtime,
        vec![response_done(ResponseStatus::Cancelled)],
    );
    let late = events(&realtime.client(ClientMessage::Text(cancel)));
    assert_eq!(late[0]["error"]["code"], "response_cancel_not_active");
}

#[test]
fn a_cancel_that_crosses_the_end_of_the_response_gets_openais_error() {
    for (request, told_of_it) in [("response.cancel", 1), ("output_audio_buffer.clear", 0)] {
        let mut realtime = realtime(false);
        let turn = TurnId(1);
        told(
            &mut realtime,
            vec![Event::ResponseStarted {
                turn,
                requested: true,
                opens: false,
            }],
        );
        realtime.client(ClientMessage::Text(&json!({"type": request}).to_string()));
        let refused = Event::Refused {
            request: "CancelResponse".into(),
            message: "no response is being given".into(),
        };
        let done = response_done(ResponseStatus::Completed);
        let all = told(&mut realtime, vec![done, refused]);
        let errors = of_type(&all, "error");
        assert_eq!(errors.len(), told_of_it, "{request}");
        for error in errors {
            assert_eq!(error["error"]["code"], "response_cancel_not_active");
        }
    }
}

#[test]
fn a_second_response_is_refused_before_the_first_has_begun() {
    let mut realtime = realtime(false);
    let create = r#"{"type":"response.create"}"#;
    let cancel = r#"{"type":"response.cancel"}"#;
    let mut send = |text| realtime.client(ClientMessage::Text(text));
    let is_asked = |actions: &[Action]| matches!(actions, [Action::Request(_)]);
    assert!(is_asked(&send(create)));
    let second = events(&send(create));
    let code = "conversation_already_has_active_response";
    assert_eq!(second[0]["error"]["code"], code);
    assert!(is_asked(&send(cancel)), "what has not begun is cancelled");
    assert!(
        is_asked(&send(create)),
        "after a cancel there may be another"
    );
}

#[test]
fn a_truncation_beyond_the_end_means_the_whole_item() {
    let mut realtime = realtime(false);
    let (turn, item) = (TurnId(1), ItemId(1));
    let all = told(
        &mut realtime,
        vec![
            Event::ResponseStarted {
                turn,
                requested: true,
                opens: false,
            },
            Event::AgentItemStarted { item },
        ],
    );
    let name = of_type(&all, "conversation.item.added")[0]["item"]["id"].clone();
    let samples = vec![1; 24 * 1680];
    let clause = ClauseId(1);
    realtime.session(Outbound::Audio {
        item,
        clause,
        samples,
    });
    for (asked, heard) in [(1680, 1680), (5000, 1680), (300, 300)] {
        let truncate = json!({
            "type": "conversation.item.truncate", "item_id": name, "content_index": 0,
            "audio_end_ms": asked,
        });
        let heard = Micros::from_ms(heard);
        assert_eq!(
            realtime.client(ClientMessage::Text(&truncate.to_string())),
            [Action::Request(Input::Truncate { item, heard })]
        );
        let text = String::new();
        let truncated = told(
            &mut realtime,
            vec![Event::ItemTruncated { item, heard, text }],
        );
        assert_eq!(truncated[0]["type"], "conversation.item.truncated");
        assert_eq!(truncated[0]["audio_end_ms"], heard.as_ms());
    }
}

#[test]
fn errors_contain_no_internal_ids() {
    let mut realtime = realtime(false);
    let name = told(
        &mut realtime,
        vec![Event::UserItem {
            item: ItemId(7),
            text: "Hi".into(),
            spoken: false,
        }],
    )[0]["item"]["id"]
        .clone();
    let delete = json!({"type": "conversation.item.delete", "item_id": name}).to_string();
    realtime.client(ClientMessage::Text(&delete));
    let twice = events(&realtime.client(ClientMessage::Text(&delete)));
    let error = &twice[0]["error"];
    assert_eq!(error["code"], "item_delete_invalid_item_id");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains(name.as_str().unwrap())
    );
    // Wire ids begin with a random part, which may begin with a 7, too.
    assert!(!error.to_string().contains("item_7'"), "{error}");
}

fn create(previous: Option<&str>, item: Value) -> String {
    json!({"type": "conversation.item.create", "previous_item_id": previous, "item": item})
        .to_string()
}

fn message(id: &str, role: &str, text: &str) -> Value {
    json!({"type": "message", "id": id, "role": role, "content": [{"type": "text", "text": text}]})
}

/// Sends events without waiting, like clients that restore a history. Returns the items that the
/// session is asked to add, each with its position.
fn added(realtime: &mut Realtime, texts: &[String]) -> Vec<(Option<ItemId>, Place, NewItem)> {
    let mut added = Vec::new();
    for text in texts {
        match &realtime.client(ClientMessage::Text(text))[..] {
            [Action::Request(Input::AddItem { id, place, item })] => {
                added.push((*id, *place, item.clone()));
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    added
}

#[test]
fn a_history_with_calls_is_added_without_waiting_and_announced_in_order() {
    let mut realtime = realtime(false);
    let arguments = r#"{"city":"Rome"}"#;
    let call = json!({"type": "function_call", "id": "b", "call_id": "call_x",
        "name": "get_weather", "arguments": arguments});
    let output = json!({"type": "function_call_output", "id": "c", "call_id": "call_x",
        "output": "sunny"});
    let texts = [
        create(Some("root"), message("a", "user", "The weather in Rome?")),
        create(Some("a"), call),
        create(Some("b"), output),
        create(Some("c"), message("d", "assistant", "It is sunny.")),
    ];
    let items = added(&mut realtime, &texts);
    let ids: Vec<ItemId> = items.iter().filter_map(|(id, ..)| *id).collect();
    let places: Vec<Place> = items.iter().map(|(_, place, _)| *place).collect();
    assert_eq!(places, [Place::Start, Place::End, Place::End, Place::End]);
    let (NewItem::ToolCall { call, name, .. }, NewItem::ToolOutput { call: of, .. }) =
        (&items[1].2, &items[2].2)
    else {
        panic!("{items:?}");
    };
    assert_eq!((name.as_str(), call), ("get_weather", of));
    let acks = ids.iter().map(|item| Event::ItemAdded { item: *item });
    let all = told(&mut realtime, acks.collect());
    let shown = of_type(&all, "conversation.item.added");
    let order: Vec<_> = shown
        .iter()
        .map(|event| {
            (
                event["previous_item_id"].as_str(),
                event["item"]["id"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        order,
        [
            (None, "a"),
            (Some("a"), "b"),
            (Some("b"), "c"),
            (Some("c"), "d")
        ]
    );
    let item = &shown[1]["item"];
    assert_eq!(item["call_id"], "call_x");
    assert_eq!(item["arguments"], arguments);
}

#[test]
fn a_number_in_a_tools_output_keeps_all_its_digits() {
    for (text, expected) in [
        ("9400111899223197428490", json!("9400111899223197428490")),
        ("3E2", json!("3E2")),
        ("12.50", json!("12.50")),
        ("12.5", json!(12.5)),
        ("21", json!(21)),
        (r#"{"degrees": 21}"#, json!({"degrees": 21})),
        (r#""sunny""#, json!("sunny")),
        ("sunny", json!("sunny")),
    ] {
        let mut realtime = realtime(false);
        let call = json!({"type": "function_call", "call_id": "call_x", "name": "track",
            "arguments": "{}"});
        let output = json!({"type": "function_call_output", "call_id": "call_x", "output": text});
        let items = added(&mut realtime, &[create(None, call), create(None, output)]);
        let NewItem::ToolOutput { output, .. } = &items[1].2 else {
            panic!("{items:?}");
        };
        assert_eq!(*output, expected, "{text}");
    }
}

#[test]
fn an_item_may_be_inserted_and_may_reuse_a_deleted_items_id() {
    let mut realtime = realtime(false);
    for (name, text) in [("a", "one"), ("c", "three")] {
        let items = added(&mut realtime, &[create(None, message(name, "user", text))]);
        let item = items[0].0.unwrap();
        told(&mut realtime, vec![Event::ItemAdded { item }]);
    }
    let between = added(
        &mut realtime,
        &[create(Some("a"), message("b", "user", "two"))],
    );
    let item = between[0].0.unwrap();
    assert!(matches!(between[0].1, Place::After(_)));
    let all = told(&mut realtime, vec![Event::ItemAdded { item }]);
    assert_eq!(all[0]["previous_item_id"], "a");
    // LiveKit changes an item by deleting it and adding it again, without waiting between.
    let delete = r#"{"type":"conversation.item.delete","item_id":"b"}"#;
    realtime.client(ClientMessage::Text(delete));
    let again = added(
        &mut realtime,
        &[create(Some("a"), message("b", "user", "2"))],
    );
    let deleted = Event::ItemDeleted { item };
    let item = again[0].0.unwrap();
    let all = told(&mut realtime, vec![deleted, Event::ItemAdded { item }]);
    assert_eq!(all[0]["type"], "conversation.item.deleted");
    assert_eq!(all[1]["previous_item_id"], "a");
    let unknown = create(Some("nowhere"), message("e", "user", "?"));
    let refused = events(&realtime.client(ClientMessage::Text(&unknown)));
    assert_eq!(refused[0]["error"]["param"], "previous_item_id");
    let twice = create(None, message("b", "user", "?"));
    let refused = events(&realtime.client(ClientMessage::Text(&twice)));
    assert_eq!(refused[0]["error"]["code"], "item_create_duplicate_item_id");
}

fn picture(previous: Option<&str>, id: &str) -> String {
    let part = json!({"type": "input_image", "image_url": "data:image/png;base64,AA"});
    let item = json!({"type": "message", "id": id, "role": "user", "content": [part]});
    create(previous, item)
}

/// One a second would fill the prompt, and each would count as an answer to a question.
#[test]
fn the_session_is_not_told_of_pictures_which_keep_their_places_among_the_items() {
    let mut realtime = realtime(false);
    let first = added(&mut realtime, &[create(None, message("a", "user", "1"))]);
    let item = first[0].0.unwrap();
    let waits = realtime.client(ClientMessage::Text(&picture(Some("a"), "b")));
    assert!(waits.is_empty(), "'a' is not there yet: {waits:?}");
    let behind = ["c", "d"].map(|id| create(Some("b"), message(id, "user", "2")));
    let behind = added(&mut realtime, &behind);
    assert_eq!(behind[0].1, Place::End);
    assert_eq!(behind[1].1, Place::After(item));
    let twice = create(None, message("b", "user", "?"));
    let refused = events(&realtime.client(ClientMessage::Text(&twice)));
    assert_eq!(refused[0]["error"]["code"], "item_create_duplicate_item_id");
    let items = [item, behind[0].0.unwrap(), behind[1].0.unwrap()];
    let all = told(
        &mut realtime,
        items.map(|item| Event::ItemAdded { item }).into(),
    );
    let all = of_type(&all, "conversation.item.added");
    let places = all
        .iter()
        .map(|told| [&told["previous_item_id"], &told["item"]["id"]]);
    let places: Vec<_> = places.map(|place| json!(place)).collect();
    let expected = [
        json!([null, "a"]),
        json!(["a", "b"]),
        json!(["b", "c"]),
        json!(["b", "d"]),
    ];
    assert_eq!(places, expected);
    let alone = realtime.client(ClientMessage::Text(&picture(None, "e")));
    assert_eq!(
        kinds(&events(&alone)),
        ["conversation.item.added", "conversation.item.done"]
    );
    assert_eq!(alone.len(), 2, "{alone:?}");
    let delete = json!({"type": "conversation.item.delete", "item_id": "b"});
    let deleted = events(&send(&mut realtime, &delete));
    assert_eq!(kinds(&deleted), ["conversation.item.deleted"]);
}

/// After 1,000 of them what was said before could be neither deleted nor truncated.
#[test]
fn pictures_push_no_other_items_out() {
    let mut realtime = realtime(false);
    let first = added(&mut realtime, &[create(None, message("a", "user", "1"))]);
    let item = first[0].0.unwrap();
    told(&mut realtime, vec![Event::ItemAdded { item }]);
    for n in 0..1_100 {
        realtime.client(ClientMessage::Text(&picture(None, &format!("p{n}"))));
    }
    let delete = json!({"type": "conversation.item.delete", "item_id": "a"});
    let asked = Action::Request(Input::DeleteItem { item });
    assert_eq!(send(&mut realtime, &delete), [asked]);
}

/// They were not found.
#[test]
fn pictures_that_wait_for_an_item_may_be_deleted() {
    let mut realtime = realtime(false);
    let first = added(&mut realtime, &[create(None, message("a", "user", "1"))]);
    realtime.client(ClientMessage::Text(&picture(Some("a"), "b")));
    let behind = create(Some("b"), message("c", "user", "2"));
    let behind = added(&mut realtime, &[behind]);
    let delete = json!({"type": "conversation.item.delete", "item_id": "b"});
    let actions = send(&mut realtime, &delete);
    let expected = [
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.deleted",
    ];
    assert_eq!(kinds(&events(&actions)), expected);
    assert_eq!(actions.len(), expected.len(), "{actions:?}");
    let again = events(&send(&mut realtime, &delete));
    assert_eq!(again[0]["error"]["code"], "item_delete_invalid_item_id");
    let items = [first[0].0.unwrap(), behind[0].0.unwrap()];
    let items = items.map(|item| Event::ItemAdded { item });
    let all = told(&mut realtime, items.into());
    let all = of_type(&all, "conversation.item.added");
    assert_eq!(all[1]["item"]["id"], "c");
    assert_eq!(all[1]["previous_item_id"], "a");
}

/// Decoding the first event failed.
#[test]
fn clients_of_the_beta_are_shown_values_that_their_types_list() {
    let mut realtime = Realtime::new(None, None, false).beta(true);
    let begun = events(&realtime.start());
    let session = &begun[0]["session"];
    assert_eq!(session["voice"], "alloy");
    assert_eq!(session["turn_detection"]["type"], "server_vad");
    let told = heard(&mut realtime, [response_started()]);
    assert_eq!(told[0]["response"]["voice"], "alloy");
}

#[test]
fn a_tool_result_during_the_filler_gets_one_answer_after_it() {
    let mut realtime = realtime(false);
    let (turn, item, call) = (TurnId(1), ItemId(2), CallId(3));
    let called = Event::ToolCalled {
        item,
        call,
        name: "get_weather".into(),
        arguments: Map::new(),
        by_client: true,
        run: None,
    };
    told(
        &mut realtime,
        vec![Event::ResponseStarted {
            turn,
            requested: true,
            opens: false,
        }],
    );
    let create = r#"{"type":"response.create"}"#;
    let early = events(&realtime.client(ClientMessage::Text(create)));
    let code = "conversation_already_has_active_response";
    assert_eq!(early[0]["error"]["code"], code);
    told(&mut realtime, vec![called]);
    let actions = realtime.client(ClientMessage::Text(create));
    assert!(matches!(
        actions[..],
        [Action::Request(Input::Respond { .. })]
    ));
    let twice = events(&realtime.client(ClientMessage::Text(create)));
    assert_eq!(twice[0]["error"]["code"], code);
}

#[test]
fn a_failed_transcription_is_not_an_error_event() {
    let mut realtime = realtime(false);
    let at = Samples::from_ms(100);
    let failed = Event::words_lost();
    let events = vec![Event::SpeechStarted { at }, failed, Event::UtteranceDropped];
    let all = told(&mut realtime, events);
    assert!(of_type(&all, "error").is_empty(), "{all:?}");
    let kind = "conversation.item.input_audio_transcription.failed";
    assert_eq!(of_type(&all, kind)[0]["item_id"], all[0]["item_id"]);
}

#[test]
fn a_response_that_was_cancelled_before_it_began_does_not_block_the_next() {
    let mut realtime = realtime(false);
    let turn = TurnId(1);
    let started = |requested| Event::ResponseStarted {
        turn,
        requested,
        opens: false,
    };
    let create = |name: &str| {
        json!({"type": "response.create", "response": {"metadata": {"name": name}}}).to_string()
    };
    for text in [&create("a"), r#"{"type":"response.cancel"}"#, &create("b")] {
        let actions = realtime.client(ClientMessage::Text(text));
        assert!(matches!(actions[..], [Action::Request(_)]), "{actions:?}");
    }
    // A response of the server's own comes in between.
    let said = vec![started(false), response_done(ResponseStatus::Completed)];
    let dropped = vec![started(true), response_done(ResponseStatus::Cancelled)];
    let given = vec![started(true), response_done(ResponseStatus::Completed)];
    let all = told(&mut realtime, [said, dropped, given].concat());
    let done = of_type(&all, "response.done").into_iter();
    let done = done.map(|e| (&e["response"]["status"], &e["response"]["metadata"]["name"]));
    assert_eq!(
        done.collect::<Vec<_>>(),
        [
            (&json!("completed"), &Value::Null),
            (&json!("cancelled"), &json!("a")),
            (&json!("completed"), &json!("b"))
        ]
    );
    assert!(of_type(&all, "error").is_empty());
    let again = realtime.client(ClientMessage::Text(&create("c")));
    assert!(matches!(again[..], [Action::Request(_)]), "{again:?}");
}

#[test]
fn audio_committed_without_turn_detection_is_counted() {
    let mut realtime = realtime(false);
    let second = STANDARD.encode(vec![0; 48_000]);
    let append = json!({"type": "input_audio_buffer.append", "audio": second}).to_string();
    realtime.client(ClientMessage::Text(&append));
    realtime.client(ClientMessage::Text(
        r#"{"type":"input_audio_buffer.commit"}"#,
    ));
    // This audio belongs to the next turn.
    realtime.client(ClientMessage::Text(&append));
    let turn = TurnId(1);
    let all = told(
        &mut realtime,
        vec![
            Event::AudioCommitted,
            spoken(1, "hello"),
            Event::ResponseStarted {
                turn,
                requested: false,
                opens: false,
            },
            response_done(ResponseStatus::Completed),
        ],
    );
    let kind = "conversation.item.input_audio_transcription.completed";
    assert_eq!(of_type(&all, kind)[0]["usage"]["seconds"], json!(1));
    let usage = &of_type(&all, "response.done")[0]["response"]["usage"];
    assert_eq!(usage["input_token_details"]["audio_tokens"], 10, "{usage}");
    let commit = events(&realtime.client(ClientMessage::Text(
        r#"{"type":"input_audio_buffer.commit"}"#,
    )));
    assert!(commit.is_empty(), "later audio can be committed");
}

/// As with OpenAI, each commit makes an item of its own.
#[test]
fn a_commit_before_the_previous_transcript_has_its_own_item() {
    let mut realtime = realtime(false);
    for (ms, name) in [(1_000, "first"), (1_001, "second"), (100, "refused")] {
        let told = commit(&mut realtime, ms, name);
        assert!(told.is_empty(), "{told:?}");
    }
    let refused = Event::Refused {
        request: "CommitAudio".into(),
        message: "no".into(),
    };
    let happened = vec![
        Event::AudioCommitted,
        Event::AudioCommitted,
        refused,
        spoken(1, "turn 1"),
        spoken(2, "turn 2"),
    ];
    let all = told(&mut realtime, happened);
    assert_eq!(of_type(&all, "error")[0]["error"]["event_id"], "refused");
    let committed = of_type(&all, "input_audio_buffer.committed");
    let added = of_type(&all, "conversation.item.added");
    let completed = of_type(
        &all,
        "conversation.item.input_audio_transcription.completed",
    );
    assert_eq!((committed.len(), added.len(), completed.len()), (2, 2, 2));
    // .NET's library stopped at a fraction.
    for (at, seconds) in [json!(1), json!(2)].into_iter().enumerate() {
        let item = &committed[at]["item_id"];
        assert_eq!(added[at]["item"]["id"], *item);
        assert_eq!(completed[at]["item_id"], *item);
        assert_eq!(completed[at]["transcript"], format!("turn {}", at + 1));
        assert_eq!(completed[at]["usage"]["seconds"], seconds);
    }
    assert_eq!(committed[1]["previous_item_id"], committed[0]["item_id"]);
}

#[test]
fn items_without_text_count_by_their_ids() {
    for item in [
        json!({"type": "message", "role": "user", "content": []}),
        json!({"type": "function_call", "call_id": "c".repeat(100), "name": "f", "arguments": ""}),
    ] {
        let mut realtime = realtime(false);
        let text = create(None, item);
        let refused = (0..20_000_u64).find_map(|n| {
            let actions = realtime.client(ClientMessage::Text(&text));
            let item = ItemId::of_client(n + 1);
            realtime.session(happened(Event::ItemAdded { item }));
            let code = events(&actions).first()?["error"]["code"].clone();
            Some((n, code))
        });
        let (most, code) = refused.expect("a limit");
        assert_eq!(code, "conversation_too_long");
        assert!(most > 4_000, "{most}");
        let calls = u64::try_from(realtime.calls.len()).unwrap();
        assert!(calls <= most, "a refused item leaves nothing behind");
    }
}

#[test]
fn a_call_that_is_deleted_is_forgotten() {
    let mut realtime = realtime(false);
    let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": ""});
    let items = added(&mut realtime, &[create(None, call)]);
    let item = items[0].0.unwrap();
    told(&mut realtime, vec![Event::ItemAdded { item }]);
    assert_eq!(realtime.calls.len(), 1);
    told(&mut realtime, vec![Event::ItemDeleted { item }]);
    assert!(realtime.calls.is_empty() && realtime.created_text == 0);
}

/// Behind an output that was refused, the model was asked without one.
#[test]
fn an_output_of_a_hundred_kilobytes_is_taken() {
    let mut realtime = realtime(false);
    let call = json!({"type": "function_call", "call_id": "call_x", "name": "search",
        "arguments": "{}"});
    let long = "word ".repeat(20 * 1024);
    let output = json!({"type": "function_call_output", "call_id": "call_x", "output": long});
    let items = added(&mut realtime, &[create(None, call), create(None, output)]);
    let NewItem::ToolOutput { output, .. } = &items[1].2 else {
        panic!("{items:?}");
    };
    assert_eq!(*output, json!(long));
    let longer = json!({"type": "function_call_output", "call_id": "call_x",
        "output": long.repeat(3)});
    for item in [longer, message("m", "user", &long)] {
        let refused = realtime.client(ClientMessage::Text(&create(None, item)));
        let error = &events(&refused)[0]["error"];
        assert_eq!(error["code"], "string_above_max_length", "{error}");
        assert_eq!(error["param"], "item");
    }
}

#[test]
fn a_call_whose_output_was_deleted_may_be_answered_again() {
    let mut realtime = realtime(false);
    let call = json!({"type": "function_call", "id": "b", "call_id": "call_x", "name": "track",
        "arguments": "{}"});
    let output = json!({"type": "function_call_output", "id": "c", "call_id": "call_x",
        "output": "lost"});
    let texts = [create(None, call), create(None, output.clone())];
    let items = added(&mut realtime, &texts);
    let ids: Vec<ItemId> = items.iter().filter_map(|(id, ..)| *id).collect();
    let acks = ids.iter().map(|item| Event::ItemAdded { item: *item });
    told(&mut realtime, acks.collect());
    let deleted = |item: ItemId| Event::ItemDeleted { item };
    let delete = |id: &str| json!({"type": "conversation.item.delete", "item_id": id});
    send(&mut realtime, &delete("c"));
    let again = added(&mut realtime, &[create(None, output.clone())]);
    assert_eq!(again[0].2, items[1].2, "at once");
    let item = again[0].0.expect("an id");
    let acks = vec![deleted(ids[1]), Event::ItemAdded { item }];
    let acks = told(&mut realtime, acks);
    assert_eq!(acks.last().expect("events")["item"]["id"], "c");
    for (id, item) in [("b", ids[0]), ("c", item)] {
        send(&mut realtime, &delete(id));
        told(&mut realtime, vec![deleted(item)]);
    }
    let late = realtime.client(ClientMessage::Text(&create(None, output)));
    let code = &events(&late)[0]["error"]["code"];
    assert_eq!(code, "invalid_tool_call_id", "without its call");
}

/// The model was told that the call has no result, and the output as a note.
#[test]
fn an_output_in_a_responses_input_belongs_to_the_call_that_is_given_by_reference() {
    let mut realtime = realtime(false);
    let call = json!({"type": "function_call", "id": "b", "call_id": "call_x",
        "name": "get_weather", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "call_x", "output": "sunny"});
    let items = added(
        &mut realtime,
        &[create(None, call.clone()), create(None, output.clone())],
    );
    let NewItem::ToolCall { call: id, .. } = &items[0].2 else {
        panic!("{items:?}");
    };
    let result = Context::Message(Message::ToolResult {
        id: id.to_string(),
        name: "get_weather".into(),
        output: json!("sunny"),
    });
    let acks = items.iter().filter_map(|(id, ..)| *id);
    let acks = acks.map(|item| Event::ItemAdded { item });
    told(&mut realtime, acks.collect());
    let mut context = |call: Value| {
        let response = json!({"conversation": "none", "output_modalities": ["text"],
            "input": [call, output]});
        let event = json!({"type": "response.create", "response": response});
        match &send(&mut realtime, &event)[..] {
            [Action::Request(Input::RespondWith(terms))] => terms.context.clone().expect("input"),
            other => panic!("{other:?}"),
        }
    };
    let referred = Context::Item(items[0].0.expect("an id"));
    let by_reference = context(json!({"type": "item_reference", "id": "b"}));
    assert_eq!(by_reference, [referred, result.clone()]);
    let written = Context::Message(Message::ToolCall {
        id: id.to_string(),
        name: "get_weather".into(),
        arguments: Map::new(),
    });
    assert_eq!(context(call), [written, result]);
}

#[test]
fn half_a_sample_in_an_item_names_the_part() {
    let part =
        |bytes: usize| json!({"type": "input_audio", "audio": STANDARD.encode(vec![0; bytes])});
    let text = json!({"type": "input_text", "text": "listen"});
    let content = [part(480), text, part(481)];
    let item = json!({"type": "message", "role": "user", "content": content});
    let actions = realtime(false).client(ClientMessage::Text(&create(None, item)));
    let error = &events(&actions)[0]["error"];
    assert_eq!(error["param"], "item.content[2].audio", "{error}");
}

#[test]
fn a_secret_whose_text_exceeds_the_prompt_is_refused() {
    let limits = TextLimits {
        set_up: 100,
        item: 100,
    };
    let session = json!({"type": "transcription", "instructions": "x".repeat(101)});
    let dialect = Realtime::new(None, None, false).within(limits);
    let fault = dialect.configured(session).expect_err("too long");
    assert_eq!(fault.param.as_deref(), Some("session.instructions"));
}

/// The greeting was spoken by the agent's own voice, whatever a client secret said.
#[test]
fn a_session_opens_with_the_voice_and_the_language_that_are_set_before_it() {
    let audio = json!({"input": {"transcription": {"language": "de"}}, "output": {"voice": "amy", "speed": 1.2}});
    let dialect = Realtime::new(None, None, false).offering(Offered::from_iter(["amy".into()]));
    let dialect = dialect.configured(json!({"type": "realtime", "audio": audio}));
    let actions = dialect.expect("a session").start();
    let Some(Action::Open(options)) = actions.first() else {
        panic!("{actions:?}");
    };
    let expected = Speaker {
        voice: Some("amy".into()),
        language: Some("de".into()),
        speed: Speed::of(1.2),
    };
    assert_eq!(options.speaker, expected);
}

#[test]
fn keywords_are_keyterms_of_the_session_from_its_opening_or_from_an_update_on() {
    let terms = ["Anneliese".to_owned(), "Kronos 7".to_owned()];
    let audio = json!({"input": {"transcription": {"keywords": terms}}});
    let session = json!({"type": "realtime", "audio": audio});
    let dialect = Realtime::new(None, None, false).configured(session.clone());
    let actions = dialect.expect("a session").start();
    let Some(Action::Open(options)) = actions.first() else {
        panic!("{actions:?}");
    };
    assert_eq!(options.keyterms.as_deref(), Some(&terms[..]));
    let update = json!({"type": "session.update", "session": session}).to_string();
    let actions = realtime(false).client(ClientMessage::Text(&update));
    let settings = Settings {
        keyterms: Some(terms.to_vec()),
        releases_opening: true,
        ..Settings::default()
    };
    assert!(actions.contains(&Action::Request(Input::Configure(Box::new(settings)))));
    let echo = &events(&actions)[0]["session"]["audio"]["input"]["transcription"];
    assert_eq!(echo["keywords"], json!(terms));
}

#[test]
fn a_minute_of_audio_in_items_may_wait_to_be_transcribed() {
    let mut realtime = realtime(false);
    let part = json!({"type": "input_audio", "audio": STANDARD.encode(vec![0; 48_000 * 20])});
    let item = json!({"type": "message", "role": "user", "content": [part]});
    let text = create(None, item);
    let mut ids = Vec::new();
    for _ in 0..3 {
        let actions = realtime.client(ClientMessage::Text(&text));
        let [Action::Spoken { id, .. }] = &actions[..] else {
            panic!("{actions:?}");
        };
        ids.push(*id);
    }
    let fourth = events(&realtime.client(ClientMessage::Text(&text)));
    assert_eq!(fourth[0]["error"]["code"], "rate_limit_exceeded");
    let message = fourth[0]["error"]["message"].as_str().expect("text");
    assert!(message.contains("60 seconds"), "{message}");
    // The audio of deleted or refused items still waits to be transcribed.
    let refused = Event::Refused {
        request: "AddItem".into(),
        message: "no".into(),
    };
    let (first, second) = (ids[0], ids[1]);
    let added = Event::ItemAdded { item: first };
    let deleted = Event::ItemDeleted { item: first };
    told(&mut realtime, vec![added, deleted, refused]);
    let again = events(&realtime.client(ClientMessage::Text(&text)));
    assert_eq!(again[0]["error"]["code"], "rate_limit_exceeded");
    let heard = [first, second].map(|item| Event::ItemNotTranscribed {
        item,
        wordless: false,
    });
    let all = told(&mut realtime, heard.into());
    assert!(all.is_empty(), "they have been removed: {all:?}");
    let actions = realtime.client(ClientMessage::Text(&text));
    assert!(matches!(actions[..], [Action::Spoken { .. }]));
}

#[test]
fn a_busy_recogniser_is_not_reported_as_silence() {
    let mut realtime = realtime(false);
    let part = json!({"type": "input_audio", "audio": STANDARD.encode(vec![0; 4_800])});
    let words = json!({"type": "input_text", "text": "listen"});
    let item = json!({"type": "message", "role": "user", "content": [words, part]});
    for (wordless, code) in [(true, "audio_unintelligible"), (false, "asr_failed")] {
        let actions = realtime.client(ClientMessage::Text(&create(None, item.clone())));
        let [Action::Spoken { id: item, .. }] = actions[..] else {
            panic!("{actions:?}");
        };
        let heard = Event::ItemNotTranscribed { item, wordless };
        let all = told(&mut realtime, vec![Event::ItemAdded { item }, heard]);
        let kind = "conversation.item.input_audio_transcription.failed";
        let failed = of_type(&all, kind)[0];
        assert_eq!(failed["item_id"], all[0]["item"]["id"]);
        assert_eq!(failed["content_index"], 1);
        assert_eq!(failed["error"]["code"], code);
    }
}

/// The session's outputs for an item that the agent speaks.
fn begins(item: u64, text: &str, ms: usize) -> Vec<Outbound> {
    let (item, clause, text) = (ItemId(item), ClauseId(item), text.to_owned());
    let speech = Event::AgentSpeech { item, clause, text };
    let samples = vec![1; 24 * ms];
    let audio = Outbound::Audio {
        item,
        clause,
        samples,
    };
    let started = happened(Event::AgentItemStarted { item });
    vec![started, happened(speech), audio]
}

fn ends(item: u64, text: &str, interrupted: bool) -> Outbound {
    let (item, text) = (ItemId(item), text.to_owned());
    happened(Event::AgentItemDone {
        item,
        text,
        interrupted,
    })
}

fn says(item: u64, text: &str, ms: usize) -> Vec<Outbound> {
    let done = ends(item, text, false);
    begins(item, text, ms).into_iter().chain([done]).collect()
}

fn response_started() -> Outbound {
    happened(Event::ResponseStarted {
        turn: TurnId(1),
        requested: false,
        opens: false,
    })
}

/// All events that the client gets for the session's outputs, including audio.
fn heard(realtime: &mut Realtime, session: impl IntoIterator<Item = Outbound>) -> Vec<Value> {
    let actions = session.into_iter().flat_map(|o| realtime.session(o));
    let text = |action: Action| match action {
        Action::Send(text) => Some(text),
        Action::SendAudio { frame, .. } => match frame {
            crate::transport::Frame::Text(text) => Some(text),
            crate::transport::Frame::Binary(_) => None,
        },
        _ => None,
    };
    let texts = actions.filter_map(text);
    texts
        .map(|text| serde_json::from_str(&text).expect("JSON"))
        .collect()
}

/// A filler of 600 ms and a question of 900 ms.
fn filler_and_question() -> Vec<Outbound> {
    let mut all = vec![response_started()];
    all.extend(says(1, "One moment.", 600));
    all.extend(says(2, "Shall I open a ticket?", 900));
    all
}

fn completed() -> Outbound {
    happened(response_done(ResponseStatus::Completed))
}

fn count(events: &[Value], kind: &str) -> usize {
    of_type(events, kind).len()
}

fn name_of(events: &[Value]) -> Value {
    of_type(events, "response.output_item.added")[0]["item"]["id"].clone()
}

fn send(realtime: &mut Realtime, event: &Value) -> Vec<Action> {
    realtime.client(ClientMessage::Text(&event.to_string()))
}

#[test]
fn a_filler_and_its_answer_are_one_message() {
    for text_only in [false, true] {
        let mut realtime = realtime(false);
        if text_only {
            let session = json!({"type": "realtime", "output_modalities": ["text"]});
            send(
                &mut realtime,
                &json!({"type": "session.update", "session": session}),
            );
        }
        let all = heard(
            &mut realtime,
            filler_and_question().into_iter().chain([completed()]),
        );
        let (delta, done, field) = match text_only {
            true => (
                "response.output_text.delta",
                "response.output_text.done",
                "text",
            ),
            false => (
                "response.output_audio_transcript.delta",
                "response.output_audio_transcript.done",
                "transcript",
            ),
        };
        for kind in [
            "response.output_item.added",
            "response.content_part.added",
            "conversation.item.added",
            done,
            "response.content_part.done",
            "response.output_item.done",
            "conversation.item.done",
        ] {
            assert_eq!(count(&all, kind), 1, "{kind}: {all:?}");
        }
        let name = name_of(&all);
        let whole = "One moment. Shall I open a ticket?";
        let deltas = of_type(&all, delta);
        let text: String = deltas
            .iter()
            .map(|e| e["delta"].as_str().unwrap())
            .collect();
        assert_eq!(text, whole);
        let audio = of_type(&all, "response.output_audio.delta");
        assert_eq!(audio.len(), if text_only { 0 } else { 2 });
        for event in deltas.into_iter().chain(audio) {
            assert_eq!(event["item_id"], name);
            assert_eq!(
                (&event["output_index"], &event["content_index"]),
                (&json!(0), &json!(0))
            );
        }
        assert_eq!(of_type(&all, done)[0][field], whole);
        let at = |kind: &str| all.iter().position(|e| e["type"] == kind).unwrap();
        let last = all.iter().rposition(|e| e["type"] == delta).unwrap();
        assert!(last < at(done) && at(done) < at("response.done"), "{all:?}");
        let response = &of_type(&all, "response.done")[0]["response"];
        assert_eq!(response["output"].as_array().unwrap().len(), 1);
        assert_eq!(response["output"][0]["status"], "completed");
        assert_eq!(response["output"][0]["content"][0][field], whole);
        let spoken = &response["usage"]["output_token_details"]["audio_tokens"];
        assert_eq!(*spoken, if text_only { 0 } else { 30 });
        let typed = Event::UserItem {
            item: ItemId(9),
            text: "Yes".into(),
            spoken: false,
        };
        let next = told(&mut realtime, vec![typed]);
        assert_eq!(next[0]["previous_item_id"], name);
    }
}

#[test]
fn an_item_between_two_messages_keeps_them_apart() {
    let called = |by_client| {
        happened(Event::ToolCalled {
            item: ItemId(5),
            call: CallId(3),
            name: "get_weather".into(),
            arguments: Map::new(),
            by_client,
            run: None,
        })
    };
    for (vendor, by_client) in [(false, true), (true, false)] {
        let mut realtime = realtime(vendor);
        let mut session = vec![response_started()];
        session.extend(begins(1, "One moment.", 600));
        // A call is announced while the words before it are still being spoken.
        session.extend([called(by_client), ends(1, "One moment.", false)]);
        session.extend(says(2, "Here it is.", 900));
        let mut all = heard(&mut realtime, session);
        assert_eq!(count(&all, "response.output_audio_transcript.done"), 1);
        all.extend(heard(&mut realtime, [completed()]));
        let added = of_type(&all, "response.output_item.added");
        assert_eq!(added.len(), 3, "{all:?}");
        let names = added.iter().map(|e| &e["item"]["id"]);
        let audio = of_type(&all, "response.output_audio.delta");
        let spoken = names.step_by(2).collect::<Vec<_>>();
        assert_eq!(
            audio.iter().map(|e| &e["item_id"]).collect::<Vec<_>>(),
            spoken
        );
        let texts: Vec<_> = of_type(&all, "response.output_audio_transcript.done")
            .iter()
            .map(|e| e["transcript"].clone())
            .collect();
        assert_eq!(texts, ["One moment.", "Here it is."]);
    }
}

#[test]
fn clients_with_vendor_events_get_one_message_per_agent_item() {
    let mut realtime = realtime(true);
    let session = filler_and_question().into_iter().chain([completed()]);
    let all = heard(&mut realtime, session);
    let done = of_type(&all, "response.output_item.done");
    let done = done.iter().map(|event| {
        let item = &event["item"];
        (&item["status"], &item["content"][0]["transcript"])
    });
    assert_eq!(
        done.collect::<Vec<_>>(),
        [
            (&json!("completed"), &json!("One moment.")),
            (&json!("completed"), &json!("Shall I open a ticket?"))
        ]
    );
}

#[test]
fn an_interrupted_message_of_two_items_ends_where_it_was_heard() {
    let mut realtime = realtime(false);
    let mut session = vec![response_started()];
    session.extend(says(1, "One moment.", 600));
    session.extend(begins(2, "Shall I open a ticket?", 200));
    session.push(ends(2, "Shall I", true));
    session.push(happened(response_done(ResponseStatus::Interrupted)));
    let all = heard(&mut realtime, session);
    let response = &of_type(&all, "response.done")[0]["response"];
    let item = &response["output"][0];
    assert_eq!(item["status"], "incomplete");
    assert_eq!(item["content"][0]["transcript"], "One moment. Shall I");
    assert_eq!(response["output"].as_array().unwrap().len(), 1);
}

#[test]
fn an_unheard_filler_is_cut_from_its_message() {
    let mut realtime = realtime(false);
    let mut session = vec![response_started()];
    session.extend(says(1, "One moment.", 600));
    session.extend(begins(2, "Shall I open a ticket?", 100));
    session.push(ends(2, "", true));
    session.push(happened(Event::ItemTruncated {
        item: ItemId(1),
        heard: Micros::from_ms(400),
        text: "One".into(),
    }));
    session.push(happened(response_done(ResponseStatus::Interrupted)));
    let all = heard(&mut realtime, session);
    let item = &of_type(&all, "response.done")[0]["response"]["output"][0];
    assert_eq!(item["content"][0]["transcript"], "One");
    assert_eq!(item["status"], "incomplete");
    assert_eq!(count(&all, "conversation.item.truncated"), 0, "{all:?}");
}

#[test]
fn truncating_a_message_truncates_its_items() {
    for (asked, first, second, text) in [
        (400, 400, 0, "One"),
        (600, 600, 0, "One moment."),
        (1_000, 600, 400, "One moment. Shall I"),
        (9_000, 600, 900, "One moment. Shall I open a ticket?"),
    ] {
        let mut realtime = realtime(false);
        let session = filler_and_question().into_iter().chain([completed()]);
        let name = name_of(&heard(&mut realtime, session));
        let truncate = json!({
            "type": "conversation.item.truncate", "item_id": name, "content_index": 0,
            "audio_end_ms": asked,
        });
        let cut = |item, ms| (ItemId(item), Micros::from_ms(ms));
        let cuts = [cut(1, first), cut(2, second)];
        let requests = cuts.map(|(item, heard)| Action::Request(Input::Truncate { item, heard }));
        assert_eq!(send(&mut realtime, &truncate), requests);
        let texts = match asked {
            400 => ["One", ""],
            600 => ["One moment.", ""],
            1_000 => ["One moment.", "Shall I"],
            _ => ["One moment.", "Shall I open a ticket?"],
        };
        let truncated = cuts.into_iter().zip(texts).map(|((item, heard), text)| {
            let text = text.into();
            Event::ItemTruncated { item, heard, text }
        });
        let all = told(&mut realtime, truncated.collect());
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(all[0]["type"], "conversation.item.truncated");
        assert_eq!(all[0]["audio_end_ms"], (first + second));
        let retrieve = json!({"type": "conversation.item.retrieve", "item_id": name});
        let shown = events(&send(&mut realtime, &retrieve));
        assert_eq!(shown[0]["item"]["content"][0]["transcript"], text);
    }
}

#[test]
fn a_message_of_two_items_is_deleted_and_referred_to_as_one() {
    let mut realtime = realtime(false);
    let session = filler_and_question().into_iter().chain([completed()]);
    let name = name_of(&heard(&mut realtime, session));
    let response = json!({"conversation": "none", "output_modalities": ["text"],
        "input": [{"type": "item_reference", "id": name}]});
    let actions = send(
        &mut realtime,
        &json!({"type": "response.create", "response": response}),
    );
    let [Action::Request(Input::RespondWith(terms))] = &actions[..] else {
        panic!("{actions:?}");
    };
    let both = [ItemId(1), ItemId(2)];
    let context = both.map(crate::conversation::Context::Item);
    assert_eq!(terms.context, Some(context.to_vec()));
    let behind = create(name.as_str(), message("x", "system", "Hm."));
    let actions = realtime.client(ClientMessage::Text(&behind));
    assert!(matches!(
        actions[..],
        [Action::Request(Input::AddItem {
            place: Place::End,
            ..
        })]
    ));
    told(
        &mut realtime,
        vec![Event::ItemAdded {
            item: ItemId::of_client(1),
        }],
    );
    let behind = create(name.as_str(), message("y", "system", "Hm."));
    let actions = realtime.client(ClientMessage::Text(&behind));
    assert!(matches!(
        actions[..],
        [Action::Request(Input::AddItem { place: Place::After(after), .. })] if after == both[1]
    ));
    let delete = json!({"type": "conversation.item.delete", "item_id": name});
    let requests = both.map(|item| Action::Request(Input::DeleteItem { item }));
    assert_eq!(send(&mut realtime, &delete), requests);
    let deleted = both.map(|item| Event::ItemDeleted { item });
    let all = told(&mut realtime, deleted.to_vec());
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0]["item_id"], name);
    let again = events(&send(&mut realtime, &delete));
    assert_eq!(again[0]["error"]["code"], "item_delete_invalid_item_id");
}

#[test]
fn speech_after_a_filler_was_cut_or_deleted_is_a_new_message() {
    for kind in ["conversation.item.delete", "conversation.item.truncate"] {
        let mut realtime = realtime(false);
        let filler = says(1, "One moment.", 600);
        let session = [response_started()].into_iter().chain(filler);
        let mut all = heard(&mut realtime, session);
        let change = json!({"type": kind, "item_id": name_of(&all), "content_index": 0,
            "audio_end_ms": 100});
        send(&mut realtime, &change);
        let item = ItemId(1);
        let changed = match kind {
            "conversation.item.delete" => Event::ItemDeleted { item },
            _ => Event::ItemTruncated {
                item,
                heard: Micros::from_ms(100),
                text: String::new(),
            },
        };
        // The answer began before the session carried out the request.
        all.extend(heard(
            &mut realtime,
            says(2, "It is here.", 500)
                .into_iter()
                .chain([happened(changed), completed()]),
        ));
        assert_eq!(count(&all, "response.output_item.added"), 2, "{all:?}");
        let output = of_type(&all, "response.done")[0]["response"]["output"].clone();
        let last = output.as_array().unwrap().last().unwrap();
        assert_eq!(last["content"][0]["transcript"], "It is here.");
        assert_eq!(last["status"], "completed");
    }
}

#[test]
fn an_answer_at_its_token_limit_is_an_incomplete_message() {
    for vendor in [false, true] {
        let mut realtime = realtime(vendor);
        let mut session = vec![response_started()];
        session.extend(says(1, "The first is", 600));
        session.push(happened(response_done(ResponseStatus::Incomplete)));
        let all = heard(&mut realtime, session);
        let done = of_type(&all, "response.output_item.done");
        assert_eq!(done[0]["item"]["status"], "incomplete");
        let response = &of_type(&all, "response.done")[0]["response"];
        assert_eq!(response["status"], "incomplete");
        assert_eq!(response["output"][0]["status"], "incomplete");
    }
}

/// Whether the opening begins with the session.
fn opens_at_once(dialect: Result<Realtime, Fault>) -> bool {
    let actions = dialect.expect("a session").start();
    assert!(matches!(&actions[0], Action::Open(options) if options.opens_later));
    actions.iter().any(
        |action| matches!(action, Action::Request(Input::Configure(settings)) if settings.releases_opening),
    )
}

/// The greeting began before the first update of clients that configure their session by that.
#[test]
fn an_opening_waits_unless_the_client_comes_with_a_configuration() {
    let dialect = || Realtime::new(None, None, false);
    let named = json!({"type": "realtime", "model": "gpt-realtime"});
    let voice = json!({"type": "realtime", "audio": {"output": {"voice": "marin"}}});
    assert!(!opens_at_once(dialect().configured(Value::Null)));
    assert!(!opens_at_once(dialect().configured(named)));
    assert!(!opens_at_once(dialect().preset(voice.clone())));
    assert!(opens_at_once(dialect().configured(voice)));
    let mut unattended = dialect();
    unattended.open_at_once();
    assert!(opens_at_once(Ok(unattended)));
    let mut realtime = realtime(false);
    let update = json!({"type": "session.update", "session": {"type": "realtime"}});
    let opens = Settings {
        releases_opening: true,
        ..Settings::default()
    };
    let first = send(&mut realtime, &update);
    assert_eq!(first[0], Action::Request(Input::Configure(Box::new(opens))));
    let second = send(&mut realtime, &update);
    assert!(matches!(second[..], [Action::Send(_)]), "{second:?}");
}

/// The beginning of the opening.
fn opening() -> Outbound {
    happened(Event::ResponseStarted {
        turn: TurnId(1),
        requested: false,
        opens: true,
    })
}

/// It was guessed: behind a question the opening was none, and an announcement before a question was one.
#[test]
fn the_session_says_which_response_is_the_opening() {
    for (begun, is_taken) in [(opening(), true), (response_started(), false)] {
        for is_asked in [false, true] {
            let mut realtime = realtime(false);
            if is_asked {
                told(&mut realtime, vec![spoken(1, "hello")]);
            }
            heard(&mut realtime, [begun.clone()]);
            let create = json!({"type": "response.create"});
            let asked = send(&mut realtime, &create);
            let is_request = matches!(asked[..], [Action::Request(_)]);
            assert_eq!(is_request, is_taken, "{begun:?}, {is_asked}: {asked:?}");
        }
    }
}

/// The audio went on in the format before, which was noise to the client, and the update was refused whole for its
/// voice or its speed.
#[test]
fn during_the_opening_format_voice_and_speed_may_change_and_a_response_may_be_requested() {
    let offered = Offered::from_iter(["amy".to_owned()]);
    let mut realtime = Realtime::new(None, None, false).offering(offered);
    realtime.start();
    let sizes = |events: &[Value]| -> Vec<usize> {
        let deltas = of_type(events, "response.output_audio.delta").into_iter();
        let bytes = deltas.map(|event| STANDARD.decode(event["delta"].as_str().expect("text")));
        bytes.map(|bytes| bytes.expect("base64").len()).collect()
    };
    let opening = [opening()].into_iter().chain(begins(1, "Hello", 100));
    assert_eq!(sizes(&heard(&mut realtime, opening)), [4_800]);
    let output = json!({"format": {"type": "audio/pcmu"}, "voice": "amy", "speed": 1.5});
    let session = json!({"type": "realtime", "audio": {"output": output}});
    let update = json!({"type": "session.update", "session": session});
    let updated = events(&send(&mut realtime, &update));
    assert_eq!(updated[0]["type"], "session.updated", "{updated:?}");
    let rest = Outbound::Audio {
        item: ItemId(1),
        clause: ClauseId(1),
        samples: vec![1; 24 * 100],
    };
    // The resampler holds a little back.
    let rest = sizes(&heard(&mut realtime, [rest]));
    assert!((600..=800).contains(&rest[0]), "{rest:?}");

    let create = json!({"type": "response.create"});
    let asked = send(&mut realtime, &create);
    assert!(matches!(asked[..], [Action::Request(_)]), "{asked:?}");
    let again = events(&send(&mut realtime, &create));
    let code = "conversation_already_has_active_response";
    assert_eq!(again[0]["error"]["code"], code);
    let answer = Event::ResponseStarted {
        turn: TurnId(2),
        requested: true,
        opens: false,
    };
    let session = [ends(1, "Hello", false), completed(), happened(answer)];
    let session = session.into_iter().chain(begins(2, "Yes?", 100));
    let all = heard(&mut realtime, session);
    assert_eq!(count(&all, "response.done"), 1);
    let output = json!({"voice": "alloy"});
    let session = json!({"type": "realtime", "audio": {"output": output}});
    let update = json!({"type": "session.update", "session": session});
    let refused = events(&send(&mut realtime, &update));
    assert_eq!(refused[0]["error"]["code"], "cannot_update_voice");
}

/// Azure's client for JavaScript ended with the first of them.
#[test]
fn clients_of_azures_preview_get_no_event_that_theirs_does_not_know() {
    for azure in [false, true] {
        let realtime = Realtime::new(None, None, false).transcribing().beta(true);
        let mut realtime = realtime.for_azure(azure);
        let mut all = events(&realtime.start());
        let at = Samples::from_ms(100);
        let words = [
            Event::SpeechStarted { at },
            partial("dear"),
            partial("dear"),
        ];
        all.extend(told(&mut realtime, words.into()));
        for kind in [
            "conversation.created",
            "conversation.item.input_audio_transcription.delta",
        ] {
            assert_eq!(count(&all, kind), usize::from(!azure), "{kind}");
        }
    }
}
