//! Sessions with clients' settings for responses and turns.

use super::*;
use crate::llm::{TokenUsage, ToolChoice};

fn configure(sim: &mut Sim, settings: Settings) {
    sim.input(Input::Configure(Box::new(settings)));
}

fn respond(sim: &mut Sim, terms: ResponseTerms) {
    sim.input(Input::RespondWith(Box::new(terms)));
}

fn user(text: &str) -> Message {
    Message::User { text: text.into() }
}

fn cut() -> Step {
    Step::Event(LlmEvent::Cut)
}

fn usage(sim: &Sim) -> Vec<TokenUsage> {
    let usage = |(_, event): &(Time, Event)| match event {
        Event::ResponseDone { usage, .. } | Event::AsideDone { usage, .. } => Some(*usage),
        _ => None,
    };
    sim.events.iter().filter_map(usage).collect()
}

#[test]
fn an_answer_has_the_most_tokens_that_the_client_allows_and_is_incomplete_if_they_cut_it() {
    let mut sim = sim();
    configure(
        &mut sim,
        Settings {
            max_tokens: Some(MaxTokens::At(40)),
            ..Settings::default()
        },
    );
    sim.scripts
        .push_back(vec![say("It is five past"), cut(), end()]);
    ask(&mut sim, "what time is it", 3_000);
    assert_eq!(sim.prompts[0].demands.max_tokens, Some(40));
    assert_eq!(sim.spoken(), ["It is five past"]);
    assert_eq!(sim.ended(), [ResponseStatus::Incomplete]);
    respond(
        &mut sim,
        ResponseTerms {
            max_tokens: Some(MaxTokens::Unlimited),
            ..ResponseTerms::default()
        },
    );
    sim.silence(3_000);
    assert_eq!(sim.prompts[1].demands.max_tokens, None);
}

fn at_most(tokens: u32) -> Settings {
    Settings {
        max_tokens: Some(MaxTokens::At(tokens)),
        ..Settings::default()
    }
}

#[test]
fn an_answer_that_the_client_has_cut_before_its_first_word_is_no_failure_of_the_model() {
    let mut sim = sim();
    configure(&mut sim, at_most(40));
    sim.scripts.push_back(vec![cut(), end()]);
    ask(&mut sim, "what time is it", 3_000);
    assert_eq!(sim.spoken(), Vec::<String>::new());
    assert_eq!(sim.ended(), [ResponseStatus::Incomplete]);
}

/// A reasoning model may spend all of `llm.max_tokens` on reasoning.
#[test]
fn a_model_that_reaches_our_own_limit_before_its_first_word_does_not_leave_the_user_in_silence() {
    let mut sim = sim();
    sim.scripts.push_back(vec![cut(), end()]);
    ask(&mut sim, "what time is it", 4_000);
    assert_eq!(sim.spoken().join(" "), Phrases::default().llm_failed);
    assert_eq!(sim.ended(), [ResponseStatus::Failed]);
}

#[test]
fn a_client_s_limit_above_ours_does_not_leave_the_user_in_silence() {
    for (clients, ours, spoken) in [(40, 20, true), (20, 20, false), (20, 40, false)] {
        let mut sim = Sim::new(Policy {
            max_tokens: Some(ours),
            ..Policy::default()
        });
        configure(&mut sim, at_most(clients));
        sim.scripts.push_back(vec![cut(), end()]);
        ask(&mut sim, "what time is it", 4_000);
        let expected = if spoken {
            &*Phrases::default().llm_failed
        } else {
            ""
        };
        assert_eq!(sim.spoken().join(" "), expected, "{clients}, {ours}");
        assert_eq!(sim.ended(), [ResponseStatus::Incomplete]);
    }
}

#[test]
fn an_answer_goes_on_after_a_call_that_our_own_limit_cut() {
    let unread = |name: &str| {
        let arguments = Err("it was cut off".into());
        [
            Step::Event(LlmEvent::ToolOpened { name: name.into() }),
            Step::Event(LlmEvent::ToolClosed { arguments }),
        ]
    };
    for first in [Vec::new(), call("clock").to_vec()] {
        let mut sim = Sim::new(with(vec![(*tool("clock", Effect::Read)).clone()]));
        let runs = first.len() / 2;
        let script = [first, unread("clock").to_vec(), vec![cut(), end()]].concat();
        sim.scripts.push_back(script);
        sim.scripts.push_back(vec![say("It is noon."), end()]);
        ask(&mut sim, "what time is it", 4_000);
        assert_eq!(sim.tools_started.len(), runs);
        assert_eq!(sim.spoken(), ["It is noon."]);
        assert_eq!(sim.ended(), [ResponseStatus::Completed]);
    }
}

fn add_note() -> Vec<crate::tools::ToolSpec> {
    vec![tool("add_note", Effect::Read).spec.clone()]
}

#[test]
fn a_servers_tool_asks_first_although_the_session_has_the_clients_of_the_same_name() {
    let mut sim = Sim::new(with(vec![super::asking("add_note", "Shall I note it?")]));
    sim.client_has(&["add_note"]);
    let [opened, closed] = call("add_note");
    sim.scripts.push_back(vec![opened, closed, end()]);
    respond(
        &mut sim,
        ResponseTerms {
            tools: Some(Vec::new()),
            ..ResponseTerms::default()
        },
    );
    sim.silence(4_000);
    assert_eq!(sim.spoken(), ["Shall I note it?"]);
    assert_eq!(sim.tools_started.len(), 0);
    ask(&mut sim, "Yes.", 4_000);
    assert_eq!(sim.tools_started, ["add_note"]);
    assert!(!sim.saw(|e| matches!(e, Event::ToolCalled { by_client, .. } if *by_client)));
}

#[test]
fn a_tool_that_the_client_brings_for_one_answer_is_not_run_early_by_the_server() {
    let mut server = (*tool("add_note", Effect::Read)).clone();
    server.speculation.eligibility = crate::tools::Eligibility::Full;
    server.fillers.short = vec!["Looking at the notes.".into()];
    let mut policy = with(vec![server]);
    policy.filler.lead = FillerLead::Router;
    policy.filler.confidence = 0.4;
    let mut sim = Sim::new(policy);
    sim.router = Box::new(|heard| {
        let prediction = crate::prediction::Prediction {
            tool: "add_note".into(),
            arguments: serde_json::Map::new(),
            confidence: 0.4,
            source: crate::prediction::Source::Rule,
            open: Vec::new(),
        };
        (!heard.text.is_empty())
            .then_some(prediction)
            .into_iter()
            .collect()
    });
    let text = "what are my notes".into();
    sim.input(NewItem::User { text }.at_the_end());
    sim.silence(200);
    let [opened, closed] = call("add_note");
    sim.scripts
        .push_back(vec![opened, Step::Wait(500), closed, end()]);
    respond(
        &mut sim,
        ResponseTerms {
            tools: Some(add_note()),
            ..ResponseTerms::default()
        },
    );
    sim.silence(4_000);
    assert_eq!(sim.tools_started.len(), 0);
    assert_eq!(sim.spoken(), Vec::<String>::new());
    assert!(sim.saw(|e| matches!(e, Event::ToolCalled { by_client, .. } if *by_client)));
}

/// The call would be made twice.
#[test]
fn a_forced_tool_is_not_forced_again_after_a_cough() {
    for tool_ms in [50, 3_000] {
        let mut sim = Sim::new(with(vec![(*tool("add", Effect::Reversible)).clone()]));
        sim.policy().speculation.preemptive = false;
        sim.tool_ms = tool_ms;
        let script = [call("add").to_vec(), vec![end()]].concat();
        let said = say("It is added, and there is nothing else to do.");
        let results = vec![Step::Wait(800), said, end()];
        sim.scripts
            .extend([script, results.clone(), results.clone(), results]);
        configure(
            &mut sim,
            Settings {
                tool_choice: Some(ToolChoice::Required),
                ..Settings::default()
            },
        );
        ask(&mut sim, "add milk", 600);
        sim.speak("", 300);
        sim.silence(8_000);
        let forced = sim.prompts.iter().map(|p| &p.demands.tool_choice);
        let forced = forced.filter(|choice| **choice == ToolChoice::Required);
        assert_eq!(forced.count(), 1, "after {tool_ms} ms");
        assert!(sim.prompts.len() > 1);
    }
}

#[test]
fn an_answer_that_goes_on_after_a_noise_keeps_its_terms() {
    let mut sim = Sim::new(with(vec![(*tool("clock", Effect::Read)).clone()]));
    sim.scripts
        .push_back(vec![Step::Wait(1_000), say("Lost."), end()]);
    sim.scripts.push_back(vec![say("It is noon."), end()]);
    let terms = ResponseTerms {
        instructions: Some("Be short.".into()),
        tool_choice: Some(ToolChoice::None),
        max_tokens: Some(MaxTokens::At(40)),
        context: Some(vec![Context::Message(user("what time is it"))]),
        ..ResponseTerms::default()
    };
    respond(&mut sim, terms);
    sim.silence(400);
    sim.speak("", 300);
    sim.silence(4_000);
    assert_eq!(sim.spoken(), ["It is noon."]);
    let [first, second] = sim.prompts.as_slice() else {
        panic!("{:?}", sim.prompts);
    };
    assert_eq!(first, second);
}

#[test]
fn a_call_outside_of_the_conversation_that_cannot_be_read_leaves_no_trace() {
    let mut sim = Sim::new(with(vec![super::asking("add_note", "Shall I note it?")]));
    for arguments in [Ok(serde_json::Map::new()), Err("no arguments".to_owned())] {
        let name = "add_note".into();
        sim.scripts.push_back(vec![
            Step::Event(LlmEvent::ToolOpened { name }),
            Step::Event(LlmEvent::ToolClosed { arguments }),
            end(),
        ]);
        respond(
            &mut sim,
            ResponseTerms {
                place: ResponsePlace::Aloud,
                ..ResponseTerms::default()
            },
        );
        sim.silence(5_000);
    }
    assert!(sim.core.history.messages().is_empty());
    assert_eq!(sim.tools_started.len(), 0);
    assert_eq!(sim.prompts.len(), 2);
}

#[test]
fn the_generation_after_a_result_gets_the_remaining_tokens() {
    let mut sim = Sim::new(with(vec![(*tool("clock", Effect::Read)).clone()]));
    configure(
        &mut sim,
        Settings {
            max_tokens: Some(MaxTokens::At(40)),
            ..Settings::default()
        },
    );
    let used = |input, output| {
        let usage = TokenUsage {
            input,
            output,
            ..TokenUsage::default()
        };
        Step::Event(LlmEvent::Used { usage })
    };
    let [opened, closed] = call("clock");
    sim.scripts
        .push_back(vec![opened, closed, used(100, 15), end()]);
    sim.scripts
        .push_back(vec![say("Noon."), used(130, 5), end()]);
    ask(&mut sim, "what time is it", 4_000);
    assert_eq!(sim.prompts[1].demands.max_tokens, Some(25));
    let all = TokenUsage {
        input: 230,
        output: 20,
        ..TokenUsage::default()
    };
    assert_eq!(usage(&sim), [all]);
}

#[test]
fn tokens_that_nobody_has_counted_are_estimated() {
    let mut sim = sim();
    sim.scripts
        .push_back(vec![say("It is noon, my dear."), end()]);
    ask(&mut sim, "what time is it", 3_000);
    let estimate = usage(&sim)[0];
    assert_eq!(estimate.input, "what time is it".len().div_ceil(4) as u64);
    assert_eq!(
        estimate.output,
        "It is noon, my dear.".len().div_ceil(4) as u64
    );
}

#[test]
fn a_forced_tool_is_asked_for_once() {
    let mut sim = Sim::new(with(vec![(*tool("clock", Effect::Read)).clone()]));
    let choice = ToolChoice::Function("clock".into());
    configure(
        &mut sim,
        Settings {
            tool_choice: Some(choice.clone()),
            ..Settings::default()
        },
    );
    let [opened, closed] = call("clock");
    sim.scripts.push_back(vec![opened, closed, end()]);
    sim.scripts.push_back(vec![say("Noon."), end()]);
    ask(&mut sim, "hello", 4_000);
    let choices: Vec<_> = (sim.prompts.iter())
        .map(|prompt| prompt.demands.tool_choice.clone())
        .collect();
    assert_eq!(choices, [choice, ToolChoice::Auto]);
    assert_eq!(sim.spoken(), ["Noon."]);
}

#[test]
fn a_tool_that_is_not_there_cannot_be_forced() {
    let mut sim = Sim::new(with(vec![(*tool("clock", Effect::Read)).clone()]));
    let missing = Some(ToolChoice::Function("cloak".into()));
    respond(
        &mut sim,
        ResponseTerms {
            tool_choice: missing,
            ..ResponseTerms::default()
        },
    );
    assert!(sim.saw(|e| matches!(e, Event::Refused { message, .. } if message.contains("cloak"))));
    assert!(sim.prompts.is_empty());
}

#[test]
fn with_the_choice_none_no_tool_is_called_and_none_runs_early() {
    let mut sim = Sim::new(with(vec![(*tool("clock", Effect::Read)).clone()]));
    configure(
        &mut sim,
        Settings {
            tool_choice: Some(ToolChoice::None),
            ..Settings::default()
        },
    );
    let called = call("clock").into_iter().chain([end()]).collect();
    sim.scripts.push_back(called);
    ask(&mut sim, "what time is it", 8_000);
    assert_eq!(sim.prompts[0].tools.len(), 1, "the prompt begins as ever");
    assert!(sim.tools_started.is_empty(), "a call runs nevertheless");
    assert_eq!(sim.ended(), [ResponseStatus::Failed]);
    assert!(sim.heard.is_empty(), "nobody is asked what may be needed");
}

#[test]
fn an_answer_beside_the_conversation_disturbs_nothing_and_leaves_no_trace() {
    let mut sim = sim();
    sim.scripts
        .push_back(vec![say("It is noon, and all is well."), end()]);
    ask(&mut sim, "what time is it", 1_200);
    sim.scripts
        .push_back(vec![say("\ntime"), say(" question\n"), end()]);
    respond(
        &mut sim,
        ResponseTerms {
            context: Some(vec![Context::Message(user("Classify: what time is it"))]),
            instructions: Some("One word.".into()),
            ..aside()
        },
    );
    sim.silence(3_000);
    let aside = &sim.prompts[1];
    assert_eq!(aside.messages, [user("Classify: what time is it")]);
    assert_eq!(aside.instructions.as_deref(), Some("One word."));
    let text: String = (sim.events.iter())
        .filter_map(|(_, event)| match event {
            Event::AsideText { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(text, "time question");
    assert!(sim.saw(|e| {
        matches!(e, Event::AsideDone { status, .. } if *status == ResponseStatus::Completed)
    }));
    assert_eq!(sim.ended(), [ResponseStatus::Completed], "nothing was cut");
    ask(&mut sim, "thanks", 3_000);
    let shown = format!("{:?}", sim.prompts[2].messages);
    assert!(
        !shown.contains("question") && !shown.contains("Classify"),
        "{shown}"
    );
}

#[test]
fn an_answer_beside_the_conversation_may_call_tools_of_the_client_and_none_of_the_server() {
    let mut sim = Sim::new(with(vec![(*tool("clock", Effect::Read)).clone()]));
    let [opened, closed] = call("record");
    sim.scripts.push_back(vec![opened, closed, end()]);
    respond(
        &mut sim,
        ResponseTerms {
            tools: Some(vec![tool("record", Effect::Read).spec.clone()]),
            tool_choice: Some(ToolChoice::Required),
            ..aside()
        },
    );
    sim.silence(500);
    let offered: Vec<_> = sim.prompts[0]
        .tools
        .iter()
        .map(|tool| &*tool.name)
        .collect();
    assert_eq!(offered, ["record"]);
    assert!(sim.saw(|e| matches!(e, Event::AsideCalled { name, .. } if name == "record")));
    assert!(sim.tools_started.is_empty());
}

/// The terms of an answer beside the conversation.
fn aside() -> ResponseTerms {
    ResponseTerms {
        place: ResponsePlace::Aside,
        ..ResponseTerms::default()
    }
}

#[test]
fn answers_beside_the_conversation_are_bounded_cancelled_and_may_fail() {
    let mut sim = sim();
    sim.scripts.push_back(vec![Step::Wait(100), Step::Break]);
    for _ in 0..4 {
        sim.scripts.push_back(vec![Step::Wait(60_000), end()]);
        respond(&mut sim, aside());
    }
    assert!(!sim.saw(|e| matches!(e, Event::Refused { .. })));
    respond(&mut sim, aside());
    assert!(sim.saw(|e| matches!(e, Event::Refused { .. })));
    let ids: Vec<_> = (sim.events.iter())
        .filter_map(|(_, event)| match event {
            Event::AsideStarted { aside } => Some(*aside),
            _ => None,
        })
        .collect();
    sim.input(Input::CancelAside { aside: ids[1] });
    sim.silence(500);
    let ended = |aside: TurnId, status: ResponseStatus| {
        sim.saw(|e| matches!(e, Event::AsideDone { aside: a, status: s, .. } if *a == aside && *s == status))
    };
    assert!(ended(ids[0], ResponseStatus::Failed));
    assert!(ended(ids[1], ResponseStatus::Cancelled));
}

#[test]
fn speech_outside_the_conversation_is_in_no_later_prompt() {
    let mut sim = sim();
    let aloud = ResponseTerms {
        context: Some(vec![Context::Message(user("Say hi to the crowd."))]),
        place: ResponsePlace::Aloud,
        ..ResponseTerms::default()
    };
    sim.scripts.push_back(vec![say("Hi, crowd."), end()]);
    respond(&mut sim, aloud.clone());
    respond(&mut sim, aloud);
    assert!(
        sim.saw(|e| matches!(e, Event::Refused { .. })),
        "one at a time"
    );
    sim.silence(3_000);
    assert_eq!(sim.spoken(), ["Hi, crowd."]);
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
    ask(&mut sim, "what time is it", 3_000);
    assert_eq!(sim.prompts[1].messages, [user("what time is it")]);
}

#[test]
fn speech_outside_the_conversation_is_not_resumed_after_a_noise() {
    let mut sim = sim();
    let long = "One two three four five six seven eight nine ten.";
    sim.scripts.push_back(vec![say(long), end()]);
    respond(
        &mut sim,
        ResponseTerms {
            place: ResponsePlace::Aloud,
            ..ResponseTerms::default()
        },
    );
    sim.silence(1_000);
    sim.speak("", 400);
    sim.silence(4_000);
    assert_eq!(sim.ended(), [ResponseStatus::Interrupted]);
    assert_eq!(sim.spoken(), [long]);
}

#[test]
fn a_context_of_its_own_takes_the_place_of_the_history_for_one_answer() {
    let mut sim = sim();
    let item = NewItem::User {
        text: "My name is Ann.".into(),
    };
    sim.input(item.at_the_end());
    let added = sim.events.iter().find_map(|(_, event)| match event {
        Event::ItemAdded { item } => Some(*item),
        _ => None,
    });
    sim.scripts.push_back(vec![say("Ann."), end()]);
    respond(
        &mut sim,
        ResponseTerms {
            context: Some(vec![
                Context::Message(user("Spell it.")),
                Context::Item(added.expect("an item")),
            ]),
            ..ResponseTerms::default()
        },
    );
    sim.silence(2_000);
    assert_eq!(
        sim.prompts[0].messages,
        [user("Spell it."), user("My name is Ann.")]
    );
    ask(&mut sim, "thanks", 3_000);
    let agent = Message::Agent {
        text: "Ann.".into(),
        interrupted: false,
    };
    assert_eq!(
        sim.prompts[1].messages,
        [user("My name is Ann."), agent, user("thanks")],
        "the answer is part of the conversation"
    );
}

/// The model was told of a result without its call, or of an item that is not in its context.
#[test]
fn an_answer_with_a_context_of_its_own_keeps_its_call_although_older_items_change() {
    let changes: [fn(ItemId) -> Input; 2] = [
        |item| Input::DeleteItem { item },
        |_| Input::AddItem {
            id: None,
            place: Place::Start,
            item: NewItem::User {
                text: "Hello.".into(),
            },
        },
    ];
    for change in changes {
        let mut sim = Sim::new(with(vec![(*tool("clock", Effect::Read)).clone()]));
        sim.tool_ms = 1_000;
        let item = NewItem::User {
            text: "My name is Ann.".into(),
        };
        let item = spoken(&mut sim, item);
        sim.scripts
            .push_back([&call("clock")[..], &[end()]].concat());
        sim.scripts.push_back(vec![say("It is noon."), end()]);
        respond(
            &mut sim,
            ResponseTerms {
                context: Some(vec![Context::Message(user("What time is it?"))]),
                ..ResponseTerms::default()
            },
        );
        sim.silence(320);
        assert_eq!(sim.tools_started, ["clock"]);
        sim.input(change(item));
        sim.silence(4_000);
        let seen = sim.prompts[1].messages.iter().map(kind);
        // A filler may have been said meanwhile.
        let seen: Vec<&str> = seen.filter(|kind| *kind != "agent").collect();
        assert_eq!(seen, ["user", "call", "result"]);
        assert_eq!(sim.prompts[1].messages[0], user("What time is it?"));
    }
}

#[test]
fn audio_items_join_the_history_and_clients_get_their_transcripts() {
    let mut sim = sim();
    let item = NewItem::Spoken {
        text: "what time is".into(),
    };
    let id = spoken(&mut sim, item);
    sim.input(Input::Respond { instructions: None });
    heard(&mut sim, id, "it");
    sim.silence(2_000);
    assert!(
        sim.saw(|e| matches!(e, Event::ItemTranscribed { text, .. } if text == "what time is it"))
    );
    assert_eq!(sim.prompts[0].messages, [user("what time is it")]);
}

/// Adds an item.
fn spoken(sim: &mut Sim, item: NewItem) -> ItemId {
    sim.input(item.at_the_end());
    let added = sim.events.iter().rev().find_map(|(_, event)| match event {
        Event::ItemAdded { item } => Some(*item),
        _ => None,
    });
    added.expect("it is added at once")
}

fn heard(sim: &mut Sim, item: ItemId, words: &str) {
    let words = Some(words.to_owned());
    sim.input(Input::ItemHeard { item, words });
}

fn audio() -> NewItem {
    NewItem::Spoken {
        text: String::new(),
    }
}

#[test]
fn the_user_is_heard_while_an_item_is_transcribed_and_answers_wait_for_its_words() {
    let mut sim = sim();
    let item = spoken(&mut sim, audio());
    ask(&mut sim, "and what is this", 3_000);
    assert!(sim.saw(|e| matches!(e, Event::UserItem { .. })));
    assert_eq!(responses(&sim), []);
    heard(&mut sim, item, "a dog barks");
    sim.silence(2_000);
    assert_eq!(responses(&sim), [(false, Some(ResponseStatus::Completed))]);
    let last = sim.prompts.last().expect("a prompt");
    assert_eq!(
        last.messages,
        [user("a dog barks"), user("and what is this")]
    );
}

#[test]
fn a_response_that_waits_for_an_item_is_cancelled_at_once() {
    let mut sim = sim();
    let item = spoken(&mut sim, audio());
    respond(&mut sim, brief());
    sim.silence(1_000);
    sim.input(Input::CancelResponse);
    heard(&mut sim, item, "hello");
    sim.silence(1_000);
    assert_eq!(responses(&sim), [(true, Some(ResponseStatus::Cancelled))]);
    assert!(sim.prompts.is_empty());
}

/// They were given without those words.
#[test]
fn responses_outside_the_conversation_wait_for_the_words_that_they_are_to_see() {
    for place in [ResponsePlace::Aside, ResponsePlace::Aloud] {
        for by_reference in [true, false] {
            let mut sim = sim();
            let item = spoken(&mut sim, audio());
            let terms = ResponseTerms {
                context: by_reference.then(|| vec![Context::Item(item)]),
                place,
                ..ResponseTerms::default()
            };
            respond(&mut sim, terms);
            sim.silence(1_000);
            assert!(sim.prompts.is_empty(), "{place:?}");
            heard(&mut sim, item, "a dog barks");
            sim.silence(2_000);
            assert_eq!(sim.prompts[0].messages, [user("a dog barks")]);
        }
    }
}

#[test]
fn a_response_outside_the_conversation_waits_for_no_words_that_it_is_not_to_see() {
    for place in [ResponsePlace::Aside, ResponsePlace::Aloud] {
        let mut sim = sim();
        spoken(&mut sim, audio());
        let terms = ResponseTerms {
            context: Some(vec![Context::Message(user("Hello."))]),
            place,
            ..ResponseTerms::default()
        };
        respond(&mut sim, terms);
        assert_eq!(sim.prompts.len(), 1, "{place:?}");
    }
}

#[test]
fn a_response_outside_the_conversation_that_waits_for_words_can_be_cancelled() {
    for place in [ResponsePlace::Aside, ResponsePlace::Aloud] {
        let mut sim = sim();
        let item = spoken(&mut sim, audio());
        let terms = ResponseTerms {
            place,
            ..ResponseTerms::default()
        };
        respond(&mut sim, terms);
        let begun = sim.events.iter().find_map(|(_, event)| match event {
            Event::AsideStarted { aside } => Some(*aside),
            _ => None,
        });
        sim.input(match begun {
            Some(aside) => Input::CancelAside { aside },
            None => Input::CancelResponse,
        });
        heard(&mut sim, item, "hello");
        sim.silence(1_000);
        assert!(sim.prompts.is_empty(), "{place:?}");
        let is_cancelled = |event: &Event| match event {
            Event::AsideDone { status, .. } | Event::ResponseDone { status, .. } => {
                *status == ResponseStatus::Cancelled
            }
            _ => false,
        };
        assert!(sim.saw(is_cancelled), "{place:?}");
        sim.input(Input::CancelResponse);
        assert!(sim.saw(|event| matches!(event, Event::Refused { .. })));
    }
}

#[test]
fn an_item_without_words_is_told_from_one_that_could_not_be_transcribed() {
    let mut sim = sim();
    let [silent, lost, deleted] = [(); 3].map(|()| spoken(&mut sim, audio()));
    sim.input(Input::DeleteItem { item: deleted });
    respond(&mut sim, ResponseTerms::default());
    for (item, words) in [(silent, Some(String::new())), (lost, None), (deleted, None)] {
        sim.input(Input::ItemHeard { item, words });
    }
    let told = sim.events.iter().filter_map(|(_, event)| match event {
        Event::ItemNotTranscribed { item, wordless } => Some((*item, *wordless)),
        _ => None,
    });
    let expected = [(silent, true), (lost, false), (deleted, false)];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    sim.silence(2_000);
    assert_eq!(
        sim.prompts[0].messages,
        [],
        "the model is shown none of them"
    );
}

fn detection(detection: TurnDetection) -> Settings {
    Settings {
        turn_detection: Some(detection),
        ..Settings::default()
    }
}

#[test]
fn the_clients_threshold_and_padding_tell_where_speech_begins() {
    let started = |threshold, prefix_padding_ms| {
        let mut sim = sim();
        let settings = detection(TurnDetection {
            rule: EndOfTurnRule::Silence { ms: 300 },
            threshold,
            prefix_padding_ms,
            ..TurnDetection::default()
        });
        configure(&mut sim, settings);
        sim.silence(992);
        sim.speak("hello", 320);
        sim.silence(1_000);
        sim.events.iter().find_map(|(_, event)| match event {
            Event::SpeechStarted { at } => Some(at.as_ms()),
            _ => None,
        })
    };
    assert_eq!(started(None, None), Some(992 - 300));
    assert_eq!(started(Some(0.9), Some(100)), Some(992 - 100));
    assert_eq!(started(Some(0.99), None), None, "0.95 is no speech then");
}

#[test]
fn silence_is_never_speech_whatever_the_threshold() {
    let mut sim = sim();
    let settings = detection(TurnDetection {
        rule: EndOfTurnRule::Silence { ms: 300 },
        threshold: Some(0.0),
        ..TurnDetection::default()
    });
    configure(&mut sim, settings);
    ask(&mut sim, "what time is it", 3_000);
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
}

#[test]
fn an_eager_agent_waits_less_for_an_unfinished_sentence_and_a_patient_one_longer() {
    let waits = |eagerness| {
        let mut sim = sim();
        let eager = TurnDetection {
            eagerness,
            ..TurnDetection::default()
        };
        configure(&mut sim, detection(eager));
        sim.completeness = 0.05;
        ask(&mut sim, "set a timer for", 10_000);
        let latency = sim.latency();
        let end = latency.end_of_turn.expect("it ended");
        end.since(latency.speech_end.expect("it began")).as_ms()
    };
    let (high, auto, low) = (
        waits(Eagerness::High),
        waits(Eagerness::Auto),
        waits(Eagerness::Low),
    );
    assert!(high < auto && auto < low, "{high} {auto} {low}");
    assert!(high <= 2_000 && auto <= 4_000 && low <= 8_000);
}

#[test]
fn a_user_who_is_silent_for_longer_than_the_client_allows_is_asked_and_not_hung_up_on() {
    let mut sim = sim();
    let settings = detection(TurnDetection {
        idle_timeout_ms: Some(6_000),
        ..TurnDetection::default()
    });
    configure(&mut sim, settings);
    ask(&mut sim, "what time is it", 40_000);
    let timeouts: Vec<_> = (sim.events.iter())
        .filter_map(|(_, event)| match event {
            Event::IdleTimeout { from, to } => Some(to.since(*from)),
            _ => None,
        })
        .collect();
    assert_eq!(timeouts, [6_000 * 16; 2]);
    let question = Phrases::default().still_there;
    let asked = sim
        .spoken()
        .iter()
        .filter(|said| **said == question)
        .count();
    assert_eq!(asked, 2);
    assert_eq!(sim.hung_up, None);
}

#[test]
fn a_session_that_transcribes_answers_nothing_and_runs_nothing() {
    let mut sim = Sim::new(Policy {
        opening: Opening::greeting("Hello."),
        ..with(vec![(*tool("clock", Effect::Read)).clone()])
    });
    let settings = Settings {
        transcribe_only: true,
        ..Settings::default()
    };
    configure(&mut sim, settings);
    ask(&mut sim, "what time is it", 2_000);
    assert!(sim.saw(|e| matches!(e, Event::UserItem { text, .. } if text == "what time is it")));
    sim.input(Input::Respond { instructions: None });
    assert!(sim.saw(|e| matches!(e, Event::Refused { request, .. } if request == "Respond")));
    sim.asr_fails = true;
    ask(&mut sim, "and now", 3_000);
    assert!(sim.prompts.is_empty() && sim.heard.is_empty() && sim.spoken().is_empty());
}

/// Its user was asked whether they were still there, in silence, and sent off.
#[test]
fn a_session_that_only_transcribes_does_not_end_for_want_of_speech() {
    let mut sim = Sim::new(Policy {
        timeouts: Timeouts {
            silence_prompt: Some(Micros::from_ms(1_000)),
            idle: Micros::from_ms(5_000),
            session: Micros::from_ms(30_000),
            ..Timeouts::default()
        },
        ..Policy::default()
    });
    sim.silence(500);
    let settings = Settings {
        transcribe_only: true,
        ..Settings::default()
    };
    configure(&mut sim, settings);
    sim.no_audio(29_000);
    assert_eq!(sim.hung_up, None);
    sim.no_audio(1_000);
    assert_eq!(sim.hung_up, Some(HangUpReason::TooLong));
}

/// The session ended under a client that asked for nothing else.
#[test]
fn answers_beside_the_conversation_keep_the_session_from_ending_as_idle() {
    let mut sim = Sim::new(Policy {
        timeouts: Timeouts {
            idle: Micros::from_ms(5_000),
            ..Timeouts::default()
        },
        ..Policy::default()
    });
    for _ in 0..3 {
        respond(&mut sim, aside());
        sim.no_audio(4_000);
    }
    assert_eq!(sim.hung_up, None);
    sim.no_audio(10_000);
    assert_eq!(sim.hung_up, Some(HangUpReason::Idle));
}

/// They counted as a sign of the user, who was asked again and again.
#[test]
fn answers_beside_the_conversation_are_no_sign_of_a_silent_user() {
    let mut sim = Sim::new(Policy {
        timeouts: Timeouts {
            silence_prompt: Some(Micros::from_ms(4_000)),
            ..Timeouts::default()
        },
        ..Policy::default()
    });
    for _ in 0..20 {
        if sim.hung_up.is_none() {
            respond(&mut sim, aside());
            sim.no_audio(1_500);
        }
    }
    assert_eq!(sim.hung_up, Some(HangUpReason::Idle));
    let asked = sim.spoken().join(" ");
    assert_eq!(asked.matches(&Phrases::default().still_there).count(), 2);
}

#[test]
fn an_answer_beside_the_conversation_that_the_model_does_not_end_is_ended() {
    let mut sim = sim();
    let endless = "and on ".repeat(1_000);
    sim.scripts.push_back(vec![say(&endless); 100]);
    respond(&mut sim, aside());
    sim.silence(500);
    let told: usize = (sim.events.iter())
        .map(|(_, event)| match event {
            Event::AsideText { text, .. } => text.len(),
            _ => 0,
        })
        .sum();
    let most = crate::conversation::AnswerPolicy::default().words * 64;
    assert!((1..=most).contains(&told), "{told}");
    let ended = sim.events.iter().filter_map(|(_, event)| match event {
        Event::AsideDone { status, .. } => Some(*status),
        _ => None,
    });
    assert_eq!(ended.collect::<Vec<_>>(), [ResponseStatus::Incomplete]);
}

fn by_hand() -> Settings {
    detection(TurnDetection {
        rule: EndOfTurnRule::Client,
        respond: false,
        interrupt: false,
        ..TurnDetection::default()
    })
}

fn brief() -> ResponseTerms {
    ResponseTerms::of(Some("Be brief.".into()))
}

/// The responses so far: whether the client requested them, and how they ended.
fn responses(sim: &Sim) -> Vec<(bool, Option<ResponseStatus>)> {
    let mut all: Vec<(TurnId, bool, Option<ResponseStatus>)> = Vec::new();
    for (_, event) in &sim.events {
        match event {
            Event::ResponseStarted {
                turn, requested, ..
            } => all.push((*turn, *requested, None)),
            Event::ResponseDone { turn, status, .. } => {
                let of_it = all.iter_mut().find(|(id, ..)| id == turn);
                of_it.expect("it began").2 = Some(*status);
            }
            _ => {}
        }
    }
    let told = |(_, requested, status)| (requested, status);
    all.into_iter().map(told).collect()
}

/// The user's and the agent's messages of the last prompt; `true` marks an interrupted one.
fn prompted(sim: &Sim) -> Vec<(String, bool)> {
    let told = |message: &Message| match message {
        Message::User { text } => (text.clone(), false),
        Message::Agent { text, interrupted } => (format!("agent: {text}"), *interrupted),
        other => panic!("{other:?}"),
    };
    let last = sim.prompts.last().unwrap();
    last.messages.iter().map(told).collect()
}

#[test]
fn a_message_whose_answer_the_client_has_cancelled_is_not_answered_with_the_next() {
    let said = |text: &str| (text.to_owned(), false);
    let cut = ("agent: ".to_owned(), true);
    let mut sim = sim();
    typed(&mut sim, "what can you do");
    respond(&mut sim, ResponseTerms::default());
    sim.input(Input::CancelResponse);
    typed(&mut sim, "what is 3 plus 4");
    respond(&mut sim, ResponseTerms::default());
    sim.silence(3_000);
    let expected = [said("what can you do"), cut, said("what is 3 plus 4")];
    assert_eq!(prompted(&sim), expected);
    let told = responses(&sim).into_iter().map(|(_, status)| status);
    let expected = [ResponseStatus::Cancelled, ResponseStatus::Completed];
    assert_eq!(told.collect::<Vec<_>>(), expected.map(Some));
}

#[test]
fn a_cancelled_answer_that_the_client_asks_for_again_is_given() {
    let mut sim = sim();
    typed(&mut sim, "what can you do");
    respond(&mut sim, ResponseTerms::default());
    sim.input(Input::CancelResponse);
    respond(&mut sim, brief());
    sim.silence(3_000);
    assert_eq!(prompted(&sim), [("what can you do".to_owned(), false)]);
}

#[test]
fn a_spoken_question_whose_answer_is_cancelled_before_its_transcript_is_not_answered_with_the_next()
{
    let mut sim = sim();
    sim.input(Input::Configure(Box::new(by_hand())));
    sim.speak("what can you do", 1_000);
    sim.input(Input::CommitAudio);
    respond(&mut sim, ResponseTerms::default());
    sim.input(Input::CancelResponse);
    sim.silence(1_000);
    assert!(sim.prompts.is_empty());
    sim.speak("what is 3 plus 4", 1_000);
    sim.input(Input::CommitAudio);
    respond(&mut sim, ResponseTerms::default());
    sim.silence(3_000);
    let said = |text: &str| (text.to_owned(), false);
    let cut = ("agent: ".to_owned(), true);
    let expected = [said("what can you do"), cut, said("what is 3 plus 4")];
    assert_eq!(prompted(&sim), expected);
}

#[test]
fn a_spoken_question_whose_answer_is_cancelled_and_asked_for_again_is_answered() {
    let mut sim = sim();
    sim.input(Input::Configure(Box::new(by_hand())));
    sim.speak("what can you do", 1_000);
    sim.input(Input::CommitAudio);
    respond(&mut sim, ResponseTerms::default());
    sim.input(Input::CancelResponse);
    respond(&mut sim, brief());
    sim.silence(3_000);
    assert_eq!(prompted(&sim), [("what can you do".to_owned(), false)]);
}

#[test]
fn an_audio_item_whose_answer_is_cancelled_before_its_words_are_known_is_not_answered_with_the_next()
 {
    let mut sim = sim();
    let item = ItemId::of_client(1);
    sim.input(Input::AddItem {
        id: Some(item),
        place: Place::End,
        item: NewItem::Spoken {
            text: String::new(),
        },
    });
    respond(&mut sim, ResponseTerms::default());
    sim.input(Input::CancelResponse);
    let words = Some("what can you do".into());
    sim.input(Input::ItemHeard { item, words });
    typed(&mut sim, "what is 3 plus 4");
    respond(&mut sim, ResponseTerms::default());
    sim.silence(3_000);
    let said = |text: &str| (text.to_owned(), false);
    let cut = ("agent: ".to_owned(), true);
    let expected = [said("what can you do"), cut, said("what is 3 plus 4")];
    assert_eq!(prompted(&sim), expected);
}

#[test]
fn a_question_whose_answer_the_client_has_cut_at_its_first_word_is_not_answered_with_the_next() {
    let said = |text: &str| (text.to_owned(), false);
    let cut = ("agent: ".to_owned(), true);
    for ms in [0, 1] {
        let mut sim = sim();
        typed(&mut sim, "what can you do");
        respond(&mut sim, ResponseTerms::default());
        sim.silence(3_000);
        let item = (sim.events.iter()).find_map(|(_, event)| match event {
            Event::AgentItemDone { item, .. } => Some(*item),
            _ => None,
        });
        sim.input(Input::Truncate {
            item: item.unwrap(),
            heard: Micros::from_ms(ms),
        });
        typed(&mut sim, "what is 3 plus 4");
        respond(&mut sim, ResponseTerms::default());
        sim.silence(3_000);
        let expected = [
            said("what can you do"),
            cut.clone(),
            said("what is 3 plus 4"),
        ];
        assert_eq!(prompted(&sim), expected, "{ms} ms");
    }
}

#[test]
fn a_user_who_goes_on_while_the_client_cuts_the_answer_is_answered_once() {
    let mut sim = sim();
    ask(&mut sim, "what is the weather", 3_000);
    let item = (sim.events.iter()).find_map(|(_, event)| match event {
        Event::AgentItemDone { item, .. } => Some(*item),
        _ => None,
    });
    sim.speak("in paris", 400);
    let heard = Micros(0);
    sim.input(Input::Truncate {
        item: item.unwrap(),
        heard,
    });
    sim.speak("in paris", 600);
    sim.silence(3_000);
    let said = ["what is the weather", "in paris"].map(|text| (text.to_owned(), false));
    assert_eq!(prompted(&sim), said);
}

/// In OpenAI's API each commit creates a separate item.
#[test]
fn a_second_commit_before_the_first_transcript_is_a_turn_of_its_own() {
    let mut sim = sim();
    sim.asr_ms = 1_000;
    sim.input(Input::Configure(Box::new(by_hand())));
    sim.speak("what time is it", 1_000);
    sim.input(Input::CommitAudio);
    sim.speak("what can you do", 200);
    sim.input(Input::CommitAudio);
    sim.input(Input::CommitAudio);
    assert!(sim.saw(|event| matches!(event, Event::NothingToCommit { .. })));
    respond(&mut sim, ResponseTerms::default());
    sim.silence(3_000);
    let mut transcribed = sim.outputs.iter().filter_map(|(_, output)| match output {
        Output::Transcribe { from, to, .. } => Some((*from, *to)),
        _ => None,
    });
    let (first, second) = (transcribed.next().unwrap(), transcribed.next().unwrap());
    assert_eq!(first.1, second.0, "no audio is lost and none heard twice");
    assert!(transcribed.next().is_none());
    let items = sim.events.iter().filter_map(|(_, event)| match event {
        Event::UserItem { text, .. } => Some((text.clone(), false)),
        _ => None,
    });
    let items: Vec<_> = items.collect();
    assert_eq!(items.len(), 2);
    assert_eq!(prompted(&sim), items, "answered once");
}

/// The events about commits, without their words.
fn commits(sim: &Sim) -> Vec<&'static str> {
    let told = sim.events.iter().filter_map(|(_, event)| match event {
        Event::AudioCommitted => Some("committed"),
        Event::AudioCleared => Some("cleared"),
        Event::UserItem { .. } => Some("words"),
        _ => None,
    });
    told.collect()
}

/// The open one was told as one without words, and the others never.
#[test]
fn committed_turns_whose_words_the_end_of_the_session_cuts_off_are_lost() {
    let mut policy = Policy::default();
    policy.timeouts.session = Micros::from_ms(10_000);
    policy.timeouts.transcript_timeout = Micros::from_ms(60_000);
    let mut sim = Sim::new(policy);
    sim.asr_ms = 60_000;
    configure(&mut sim, by_hand());
    for _ in 0..3 {
        sim.speak("what time is it", 512);
        sim.input(Input::CommitAudio);
    }
    sim.silence(12_000);
    let ends = sim.events.iter().filter_map(|(_, event)| match event {
        Event::UtteranceDropped => Some("dropped"),
        event => event.loses_words().then_some("lost"),
    });
    assert_eq!(ends.collect::<Vec<_>>(), ["lost", "dropped"].repeat(3));
}

/// The turn was over with the words before the pause, and the others were in no turn.
#[test]
fn a_commit_has_the_words_behind_a_pause_that_the_detector_has_not_judged_yet() {
    let mut sim = sim();
    sim.speak("what time is it", 1_000);
    sim.silence(96);
    sim.words = "what time is it in rome".into();
    let end = Samples(sim.audio().0 + Samples::from_ms(800).0);
    sim.input(Input::Received { end });
    sim.input(Input::CommitAudio);
    sim.no_audio(3_000);
    let whole = |event: &Event| matches!(event, Event::UserItem { text, .. } if text == "what time is it in rome");
    assert!(sim.saw(whole));
}

/// The client was told that the audio is cleared, and only later of the turn that it had committed before.
#[test]
fn a_clear_does_not_overtake_the_commit_before_it() {
    let mut sim = sim();
    sim.asr_ms = 500;
    sim.input(Input::Configure(Box::new(by_hand())));
    sim.speak("what time is it", 1_000);
    sim.input(Input::CommitAudio);
    sim.input(Input::ClearAudio);
    sim.silence(1_000);
    assert_eq!(commits(&sim), ["committed", "cleared", "words"]);
}

/// Only the last minute of audio was transcribed, because nothing was before the commit.
#[test]
fn the_first_words_of_a_long_dictation_are_not_lost() {
    for transcribe_only in [false, true] {
        let mut sim = sim();
        configure(
            &mut sim,
            Settings {
                transcribe_only,
                ..by_hand()
            },
        );
        sim.speak("dear all", 26_000);
        sim.silence(320);
        sim.speak("the meeting is on Monday", 30_000);
        sim.speak("yours", 45_000);
        sim.input(Input::CommitAudio);
        sim.silence(1_000);
        let items = sim.events.iter().filter_map(|(_, event)| match event {
            Event::UserItem { text, .. } => Some(text.as_str()),
            _ => None,
        });
        let text = items.collect::<Vec<_>>().join("|");
        assert!(text.starts_with("dear all the meeting"), "{text}");
        assert!(text.ends_with("yours"), "{text}");
        for (when, output) in &sim.outputs {
            if let Output::Transcribe { from, to, .. } = output {
                let ago = when.as_ms() - from.as_ms();
                assert!(ago < 60_000, "audio of {ago} ms ago is no longer kept");
                assert!(to.since(*from) <= Samples::from_ms(26_000).0);
            }
        }
    }
}

#[test]
fn words_are_told_before_the_client_commits_them() {
    let told = |transcribe_only| {
        let mut sim = sim();
        let settings = Settings {
            transcribe_only,
            ..by_hand()
        };
        configure(&mut sim, settings);
        sim.speak("what time", 1_000);
        sim.speak("what time is it", 2_000);
        let partials = sim.events.iter().filter_map(|(_, event)| match event {
            Event::PartialTranscript { text } => Some(text.clone()),
            _ => None,
        });
        let partials: Vec<_> = partials.collect();
        sim.input(Input::CommitAudio);
        sim.silence(500);
        assert!(
            sim.saw(|e| matches!(e, Event::UserItem { text, .. } if text == "what time is it"))
        );
        partials
    };
    // Twice and more: clients are told the words on which two partials agree.
    let partials = told(true);
    let (first, all) = ("what time", "what time is it");
    assert_eq!(partials, [first, first, all, all, all]);
    let none: Vec<String> = Vec::new();
    assert_eq!(told(false), none, "nobody asks for them");
}

#[test]
fn turns_whose_words_are_known_wait_for_no_more_audio() {
    let mut sim = sim();
    sim.policy().timeouts.transcript_timeout = Micros::from_ms(60_000);
    configure(&mut sim, by_hand());
    sim.asr_ms = 20_000;
    sim.speak("one", 500);
    sim.input(Input::CommitAudio);
    sim.asr_ms = 70;
    for words in ["two", "three"] {
        sim.speak(words, 500);
        sim.silence(6_000);
        sim.input(Input::CommitAudio);
    }
    sim.no_audio(20_000);
    let items = sim.events.iter().filter_map(|(_, event)| match event {
        Event::UserItem { text, .. } => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(items.collect::<Vec<_>>(), ["one", "two", "three"]);
}

/// Partials behind a commit would be taken for words of the next turn.
#[test]
fn a_partial_that_comes_behind_its_commit_is_not_told() {
    let mut sim = sim();
    let settings = Settings {
        transcribe_only: true,
        ..by_hand()
    };
    configure(&mut sim, settings);
    sim.asr_ms = 300;
    sim.speak("what time is it", 600);
    sim.input(Input::CommitAudio);
    sim.silence(1_000);
    let is_partial = |event: &Event| matches!(event, Event::PartialTranscript { .. });
    assert!(!sim.saw(is_partial));
    assert_eq!(commits(&sim), ["committed", "words"]);
}

#[test]
fn speech_before_turn_detection_is_switched_off_belongs_to_the_next_commit() {
    let mut sim = sim();
    sim.speak("what time is it", 30_000);
    configure(&mut sim, by_hand());
    sim.speak("in Paris", 500);
    sim.input(Input::CommitAudio);
    sim.silence(500);
    let asked = sim.outputs.iter().filter_map(|(_, output)| match output {
        Output::Transcribe {
            from,
            to,
            partial: false,
            ..
        } => Some((from.as_ms(), to.as_ms())),
        _ => None,
    });
    let asked: Vec<_> = asked.collect();
    // The speech began at zero: its first part is transcribed anew.
    assert_eq!(asked[asked.len() - 2..], [(0, 25_000), (25_000, 30_528)]);
    let words = "what time is it in Paris";
    assert!(sim.saw(|e| matches!(e, Event::UserItem { text, .. } if text == words)));
}

/// Clients tolerate an empty commit by its code, and no other refusal.
#[test]
fn a_commit_of_nothing_is_told_apart_from_one_too_many() {
    let mut sim = sim();
    sim.speak("what time is it", 1_000);
    sim.silence(2_000);
    sim.input(Input::CommitAudio);
    assert!(sim.saw(|event| matches!(event, Event::NothingToCommit { .. })));
    assert!(!sim.saw(|event| matches!(event, Event::Refused { .. })));
    sim.asr_ms = 600_000;
    configure(&mut sim, by_hand());
    for _ in 0..100 {
        sim.speak("what time is it", 128);
        sim.input(Input::CommitAudio);
    }
    let is_refused =
        |event: &Event| matches!(event, Event::Refused { request, .. } if request == "CommitAudio");
    assert!(sim.saw(is_refused));
}

#[test]
fn settings_sent_behind_a_commit_do_not_take_it_back() {
    let mut sim = sim();
    sim.input(Input::Configure(Box::new(by_hand())));
    sim.speak("what time is it", 1_000);
    sim.input(Input::CommitAudio);
    sim.input(Input::Configure(Box::new(by_hand())));
    sim.silence(1_000);
    assert!(sim.saw(|event| matches!(event, Event::UserItem { .. })));
}

/// Clients cancel when the user goes on, although the server has already done so.
#[test]
fn a_user_who_goes_on_while_the_client_cancels_is_answered_once() {
    let mut sim = sim();
    ask(&mut sim, "what is the weather", 200);
    let answers = sim.prompts.len();
    sim.speak("in paris", 400);
    sim.input(Input::CancelResponse);
    sim.speak("in paris", 600);
    sim.silence(3_000);
    assert!(sim.prompts.len() > answers);
    let said = ["what is the weather", "in paris"].map(|text| (text.to_owned(), false));
    assert_eq!(prompted(&sim), said);
}

#[test]
fn a_response_cancelled_before_it_began_is_reported_as_cancelled() {
    let cancelled = (true, Some(ResponseStatus::Cancelled));
    let refused = |sim: &Sim| sim.saw(|e| matches!(e, Event::Refused { .. }));

    let mut sim = sim();
    configure(&mut sim, by_hand());
    sim.speak("what time is it", 1_000);
    sim.input(Input::CommitAudio);
    respond(&mut sim, brief());
    sim.input(Input::CancelResponse);
    sim.silence(1_000);
    assert_eq!(responses(&sim), [cancelled], "in mid transcript");
    assert!(sim.prompts.is_empty() && !refused(&sim));
    respond(&mut sim, ResponseTerms::default());
    sim.silence(2_000);
    let completed = |requested| (requested, Some(ResponseStatus::Completed));
    assert_eq!(responses(&sim), [cancelled, completed(true)]);

    let mut sim = super::sim();
    sim.client_has(&["weather"]);
    let mut first = vec![say("Let me see that for you, one moment.")];
    first.extend(call("weather"));
    first.push(end());
    sim.scripts.push_back(first);
    ask(&mut sim, "what is the weather", 1_000);
    respond(&mut sim, brief());
    sim.input(Input::CancelResponse);
    sim.silence(3_000);
    let stopped = (false, Some(ResponseStatus::Cancelled));
    assert_eq!(responses(&sim), [stopped, cancelled], "during the filler");
    assert!(!refused(&sim));

    let mut sim = super::sim();
    sim.speak("what time", 500);
    respond(&mut sim, brief());
    sim.input(Input::CancelResponse);
    sim.speak("what time is it", 500);
    sim.silence(3_000);
    assert_eq!(responses(&sim), [cancelled, completed(false)], "in speech");
    assert_eq!(sim.prompts[0].instructions, None);
    assert!(!refused(&sim));
}

#[test]
fn a_response_that_is_asked_for_while_the_user_speaks_is_given_on_its_terms() {
    let mut sim = sim();
    sim.speak("what time", 500);
    respond(&mut sim, brief());
    sim.speak("what time is it", 500);
    sim.silence(3_000);
    assert_eq!(sim.prompts.len(), 1);
    assert_eq!(sim.prompts[0].instructions.as_deref(), Some("Be brief."));
    assert_eq!(
        responses(&sim),
        [(true, Some(ResponseStatus::Completed))],
        "the turn's answer is the one that was asked for"
    );
}

/// Clients such as LiveKit's send the session's instructions along with those of a response.
#[test]
fn instructions_of_a_response_replace_the_client_s_for_it_and_leave_the_operator_s() {
    let mut policy = Policy::default();
    policy.briefing.instructions = Some("You are the desk.".into());
    let mut sim = Sim::new(policy);
    let settings = Settings {
        instructions: Some("Speak like a pirate.".into()),
        ..Settings::default()
    };
    configure(&mut sim, settings);
    ask(&mut sim, "what time is it", 3_000);
    for own in [Some("Be brief."), Some(""), None] {
        sim.input(Input::Respond {
            instructions: own.map(str::to_owned),
        });
        sim.silence(3_000);
    }
    let given = sim.prompts.iter().map(|p| p.instructions.as_deref());
    assert_eq!(
        given.collect::<Vec<_>>(),
        [
            Some("You are the desk.\n\nSpeak like a pirate."),
            Some("You are the desk.\n\nBe brief."),
            Some("You are the desk."),
            Some("You are the desk.\n\nSpeak like a pirate."),
        ]
    );
}

#[test]
fn an_announcement_does_not_take_a_response_that_was_asked_for() {
    let mut sim = sim();
    sim.completeness = 0.5;
    sim.speak("hm", 500);
    let text = "Your timer has rung.".to_owned();
    sim.input(Input::Announce { text });
    respond(&mut sim, brief());
    sim.words = String::new();
    sim.silence(5_000);
    let done = Some(ResponseStatus::Completed);
    assert_eq!(responses(&sim), [(false, done), (true, done)]);
    assert_eq!(sim.prompts[0].instructions.as_deref(), Some("Be brief."));
}

#[test]
fn a_yes_in_writing_is_carried_out_on_the_terms_of_the_response() {
    let mut book = (*tool("book", Effect::Irreversible)).clone();
    book.confirmation = crate::tools::Confirmation::Spoken {
        question: None,
        expiry: std::time::Duration::from_secs(60),
    };
    let mut sim = Sim::new(with(vec![book]));
    let mut first = call("book").to_vec();
    first.push(end());
    sim.scripts.push_back(first);
    ask(&mut sim, "book it", 6_000);
    let yes = NewItem::User { text: "yes".into() };
    sim.input(yes.at_the_end());
    respond(&mut sim, brief());
    sim.silence(3_000);
    assert_eq!(sim.tools_started, ["book"]);
    assert_eq!(sim.prompts[1].instructions.as_deref(), Some("Be brief."));
}

#[test]
fn clearing_the_audio_after_a_commit_keeps_the_committed_turn() {
    let mut sim = sim();
    configure(&mut sim, by_hand());
    sim.speak("what time is it", 1_000);
    sim.input(Input::CommitAudio);
    sim.input(Input::ClearAudio);
    sim.silence(1_000);
    assert!(sim.saw(|e| matches!(e, Event::UserItem { text, .. } if text == "what time is it")));
    assert!(!sim.saw(|e| matches!(e, Event::UtteranceDropped)));
}

#[test]
fn speech_during_the_transcription_of_a_committed_turn_belongs_to_the_next() {
    let mut sim = sim();
    configure(&mut sim, by_hand());
    sim.asr_ms = 500;
    sim.speak("what time is it", 960);
    sim.input(Input::CommitAudio);
    sim.speak("and where", 960);
    sim.input(Input::CommitAudio);
    sim.silence(1_000);
    let asked = sim.outputs.iter().filter_map(|(_, o)| match o {
        Output::Transcribe { from, to, .. } => Some((from.as_ms(), to.as_ms())),
        _ => None,
    });
    assert_eq!(asked.collect::<Vec<_>>(), [(0, 960), (960, 1_920)]);
}

#[test]
fn a_tool_that_is_declared_after_it_was_chosen_is_chosen_and_one_taken_back_is_not() {
    let mut sim = sim();
    let choice = ToolChoice::Function("weather".into());
    configure(
        &mut sim,
        Settings {
            tool_choice: Some(choice.clone()),
            ..Settings::default()
        },
    );
    assert!(!sim.saw(|e| matches!(e, Event::Refused { .. })));
    sim.client_has(&["weather"]);
    ask(&mut sim, "hello", 3_000);
    sim.client_has(&[]);
    ask(&mut sim, "hello", 3_000);
    let choices = sim.prompts.iter().map(|p| p.demands.tool_choice.clone());
    assert_eq!(choices.collect::<Vec<_>>(), [choice, ToolChoice::Auto]);
}

#[test]
fn a_refused_response_outside_the_conversation_is_refused_by_its_own_name() {
    let mut sim = sim();
    let most = sim.policy().text.set_up;
    respond(
        &mut sim,
        ResponseTerms {
            instructions: Some("x".repeat(most + 1)),
            ..aside()
        },
    );
    assert!(sim.saw(|e| matches!(e, Event::Refused { request, .. } if request == "RespondAside")));
}

/// Audio that was no longer there was requested, part by part.
#[test]
fn silence_before_turn_detection_is_switched_off_is_not_transcribed() {
    let mut sim = sim();
    sim.silence(180_000);
    let before = sim.audio();
    configure(&mut sim, by_hand());
    sim.silence(992);
    sim.input(Input::CommitAudio);
    let asked = sim.outputs.iter().filter_map(|(_, output)| match output {
        Output::Transcribe { from, .. } => Some(*from),
        _ => None,
    });
    let asked: Vec<_> = asked.collect();
    assert_eq!(asked.len(), 1);
    assert!(Samples(before.since(asked[0])).as_ms() < 2_000);
}

/// All words were lost, and the user was asked to repeat a minute of them.
#[test]
fn a_dictation_whose_last_words_are_late_keeps_the_others() {
    let mut sim = sim();
    configure(&mut sim, by_hand());
    sim.speak("a long letter", 30_016);
    sim.asr_ms = 60_000;
    sim.input(Input::CommitAudio);
    sim.silence(4_000);
    assert!(
        sim.saw(|event| matches!(event, Event::UserItem { text, .. } if text == "a long letter"))
    );
    assert!(!sim.saw(|event| *event == Event::UtteranceDropped));
}

/// A session in which words are heard for 26 s, and whose recogniser then fails.
fn long_turn(settings: Settings) -> Sim {
    let mut sim = sim();
    configure(&mut sim, settings);
    sim.speak("book it for friday", 26_016);
    sim.asr_fails = true;
    sim.speak("no wait don't", 1_024);
    sim
}

/// It was answered with the words before.
#[test]
fn a_turn_whose_audio_stops_is_not_answered_without_its_last_words() {
    let mut sim = long_turn(Settings::default());
    sim.no_audio(8_000);
    assert!(sim.saw(|event| *event == Event::UtteranceDropped));
    assert!(sim.prompts.is_empty());
    let mut by_commit = long_turn(detection(TurnDetection {
        rule: EndOfTurnRule::Silence { ms: 10_000 },
        ..TurnDetection::default()
    }));
    by_commit.input(Input::CommitAudio);
    by_commit.silence(4_000);
    assert!(by_commit.saw(|event| *event == Event::UtteranceDropped));
    assert!(by_commit.prompts.is_empty());
}

/// They were lost, although clients had most of them.
#[test]
fn a_transcription_session_keeps_the_known_words_of_a_detected_turn() {
    let mut sim = long_turn(Settings {
        transcribe_only: true,
        ..Settings::default()
    });
    sim.silence(6_000);
    let known = |event: &Event| matches!(event, Event::UserItem { text, .. } if text == "book it for friday");
    assert!(sim.saw(known));
    assert!(!sim.saw(|event| *event == Event::UtteranceDropped));
}

/// The words before the last pause could not be committed.
#[test]
fn turn_detection_that_is_switched_off_again_takes_no_words_from_a_dictation() {
    let mut sim = sim();
    configure(&mut sim, by_hand());
    sim.speak("a letter", 2_048);
    sim.silence(5_504);
    configure(&mut sim, by_hand());
    sim.input(Input::CommitAudio);
    sim.silence(1_000);
    assert!(sim.saw(|event| matches!(event, Event::UserItem { text, .. } if text == "a letter")));
}
