//! Properties that must hold for any inputs in any order.

use super::super::*;
use super::sim::{Sample, Script, Sim, Sources, Step, call, call_with, end, read, say, streamed};
use super::{tool, with};
use crate::language::pack;
use crate::llm::plan::PLAN;
use crate::llm::{LlmEvent, Message, Prompt};
use crate::prediction::{Prediction, Source};
use crate::tools::{Confirmation, Declaration, Effect, Eligibility, EndsCall};
use crate::tts::Speaker;
use proptest::prelude::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone)]
enum Move {
    Speak(u64, &'static str),
    Silence(u64),
    /// The voice is quiet, and the detector takes it for speech.
    Fade(u64),
    Cancel,
    Commit,
    Clear,
    Respond,
    /// The client requests a response outside the conversation, to be spoken.
    Aloud,
    /// The client has set up the session.
    SetUp,
    Announce,
    Confirm(bool),
    Key(char),
    /// A typed message.
    Type(&'static str),
    /// A transcript from a client with its own recogniser, and whether it is final.
    Said(&'static str, bool),
    /// The client stopped the agent after these words.
    Stopped(&'static str),
    VoiceEnded,
    /// The client declares tools with these names, which replace the server's.
    Take(&'static [&'static str]),
    /// The same, and all of them may run early.
    Lend(&'static [&'static str]),
    /// From now on the server runs only the tools whose bits are set.
    Tools(u16),
    /// Another agent goes on, which has only these tools.
    Hand(u16),
    /// From now on the server has no room for this work.
    Load(Shed),
    /// The client's connection is lost.
    Lose,
    /// The client is back, and may say how many ms of the agent's last item it has heard.
    Return(Option<u64>),
    HangUp,
}

fn shed() -> impl Strategy<Value = Move> {
    use Shed::{Nothing, Partials, PreemptiveAnswers, Speculation};
    let levels = vec![Nothing, Speculation, Partials, PreemptiveAnswers];
    prop::sample::select(levels).prop_map(Move::Load)
}

/// Moves of a client with its own recogniser and voice.
fn relayed() -> impl Strategy<Value = Move> {
    let words = prop::sample::select(vec!["", "what time is it", "Yes.", "no"]);
    let heard = prop::sample::select(vec!["", "Some words", "to say", "Hello"]);
    prop_oneof![
        4 => (words, any::<bool>()).prop_map(|(words, last)| Move::Said(words, last)),
        2 => heard.prop_map(Move::Stopped),
        1 => Just(Move::VoiceEnded),
    ]
}

fn act(sim: &mut Sim, step: &Move) {
    let input = match *step {
        Move::Speak(ms, words) => return sim.speak(words, ms),
        Move::Silence(ms) => return sim.silence(ms),
        Move::Fade(ms) => return sim.fade(ms),
        Move::Cancel => Input::CancelResponse,
        Move::Commit => Input::CommitAudio,
        Move::Clear => Input::ClearAudio,
        Move::Respond => Input::Respond { instructions: None },
        Move::Aloud => Input::RespondWith(Box::new(ResponseTerms {
            place: ResponsePlace::Aloud,
            ..ResponseTerms::default()
        })),
        Move::SetUp => Input::Configure(Box::new(Settings {
            releases_opening: true,
            ..Settings::default()
        })),
        Move::Announce => Input::Announce {
            text: "Ding dong.".into(),
        },
        Move::Confirm(accepted) => {
            let waits = sim.core.confirmation.is_open();
            let call = sim.core.confirmation.awaited().filter(|_| waits);
            let call = call.unwrap_or(CallId(0));
            Input::Confirm { call, accepted }
        }
        Move::Key(key) => Input::Key { key },
        Move::Type(text) => {
            let item = NewItem::User { text: text.into() };
            item.at_the_end()
        }
        Move::Said(text, last) => {
            let text = text.into();
            Input::Said { text, last }
        }
        Move::Stopped(heard) => {
            let heard = heard.into();
            Input::Stopped { heard }
        }
        Move::VoiceEnded => Input::VoiceEnded,
        Move::Load(shed) => Input::Load { shed },
        Move::Take(names) => return sim.client_has(names),
        Move::Lend(names) => return sim.client_lends(names, names),
        Move::Tools(bits) => {
            let left = tools().into_iter().enumerate();
            let left = left.filter(|(at, _)| bits & (1 << at) != 0);
            let tools = Arc::new(left.map(|(_, tool)| Arc::new(tool)).collect());
            Input::Tools { tools }
        }
        Move::Hand(bits) => {
            let left = tools().into_iter().enumerate();
            let left = left.filter(|(at, _)| bits & (1 << at) != 0);
            Input::Agent(Box::new(Agent {
                briefing: Briefing {
                    agent: Some("billing".into()),
                    plans: true,
                    ..Briefing::default()
                },
                tools: Arc::new(left.map(|(_, tool)| Arc::new(tool)).collect()),
                speaker: Speaker::default(),
                speculation: true,
                max_tokens: None,
            }))
        }
        Move::Lose => Input::ClientLost,
        Move::Return(heard) => Input::ClientBack {
            heard: heard.and_then(|ms| sim.heard_of_the_last_item(ms)),
        },
        Move::HangUp => Input::HangUp,
    };
    sim.input(input);
}

/// A client whose connection is lost, and that comes back.
fn absence() -> impl Strategy<Value = Move> {
    prop_oneof![
        Just(Move::Lose),
        prop::option::of(0u64..4_000).prop_map(Move::Return),
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let words = prop::sample::select(vec!["", "what time is it", "set a timer for", "stop"]);
    let one = prop_oneof![
        4 => (32u64..1_500, words).prop_map(|(ms, words)| Move::Speak(ms, words)),
        4 => (32u64..4_000).prop_map(Move::Silence),
        1 => (32u64..300).prop_map(Move::Fade),
        1 => Just(Move::Cancel),
        1 => Just(Move::Commit),
        1 => Just(Move::Clear),
        1 => Just(Move::Respond),
        1 => Just(Move::Aloud),
        1 => Just(Move::SetUp),
        1 => Just(Move::Announce),
        1 => shed(),
        2 => relayed(),
        2 => absence(),
    ];
    prop::collection::vec(one, 1..12)
}

fn scripts() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = prop_oneof![
        4 => Just(vec![say("Some words to say. ")]),
        2 => Just(call("clock").to_vec()),
        1 => Just(call("broken").to_vec()),
        1 => (0u64..6_000).prop_map(|ms| vec![Step::Wait(ms)]),
        1 => Just(vec![Step::Break]),
        1 => Just(broken_call("clock")),
    ];
    let script = prop::collection::vec(step, 0..4).prop_map(|steps| {
        let mut script: Vec<Step> = steps.into_iter().flatten().collect();
        script.push(end());
        script
    });
    prop::collection::vec(script, 0..6)
}

/// A call within which the stream fails.
fn broken_call(name: &str) -> Vec<Step> {
    let [opened, _] = call(name);
    vec![opened, read(json!({"n": 1}), true), Step::Break]
}

fn listening_words() -> impl Strategy<Value = ListeningWords> {
    use ListeningWords::{Interrupt, Pass, Pause};
    prop::sample::select(vec![Interrupt, Pause, Pass])
}

/// The number of conversations in `make test`. For more, run `PROPTEST_CASES=1000000 cargo test --release
/// --lib tests::properties`.
fn cases(usual: u32) -> ProptestConfig {
    let asked = ProptestConfig::default();
    match asked.cases {
        256 => ProptestConfig::with_cases(usual),
        _ => asked,
    }
}

proptest! {
    #![proptest_config(cases(10_000))]

    #[test]
    fn invariants_hold_for_any_interleaving(
        moves in moves(),
        scripts in scripts(),
        completeness in 0f32..1.0,
        tool_ms in 0u64..3_000,
        asr_fails in prop::bool::weighted(0.1),
        client_speaks in any::<bool>(),
        is_polite in any::<bool>(),
        listening_words in listening_words(),
        greets in prop::option::of(any::<bool>()),
    ) {
        let opening = |waits_for_client| Opening {
            waits_for_client,
            ..Opening::greeting("Hello there.")
        };
        let mut sim = Sim::new(Policy {
            opening: greets.map(opening).unwrap_or_default(),
            ..Policy::default()
        });
        sim.policy().vad.barge_in.listening_words = listening_words;
        sim.scripts.extend(scripts);
        sim.completeness = completeness;
        sim.tool_ms = tool_ms;
        sim.asr_fails = asr_fails;
        sim.client_speaks = client_speaks;
        if is_polite {
            sim.uninterruptible(true);
        }
        for step in moves {
            act(&mut sim, &step);
            let is_away = sim.core.agenda.absence.is_on();
            prop_assert!(!is_away || sim.core.answer.is_none(), "nobody hears this answer");
        }
        sim.silence(3_000);
        sim.no_audio(57_000);
        responses_do_not_overlap(&sim)?;
        nothing_flushed_is_sent(&sim)?;
        tools_run_once_and_only_when_committed(&sim)?;
        prop_assert!(sim.core.answer.is_none() && !sim.core.turn.is_open(), "it ends");
    }
}

fn responses_do_not_overlap(sim: &Sim) -> Result<(), TestCaseError> {
    let mut open = None;
    for (_, event) in &sim.events {
        match event {
            Event::ResponseStarted { turn, .. } => {
                prop_assert_eq!(open.replace(*turn), None);
            }
            Event::ResponseDone { turn, .. } => prop_assert_eq!(open.take(), Some(*turn)),
            Event::AgentSpeech { .. } | Event::AgentItemStarted { .. } => {
                prop_assert!(open.is_some(), "speech outside of a response");
            }
            _ => {}
        }
    }
    prop_assert_eq!(open, None);
    Ok(())
}

fn nothing_flushed_is_sent(sim: &Sim) -> Result<(), TestCaseError> {
    let flushes = sim
        .outputs
        .iter()
        .filter(|(_, o)| *o == Output::Flush)
        .map(|(at, _)| *at);
    for at in flushes {
        let asked_before = |id: &ClauseId| {
            sim.outputs.iter().any(|(when, o)| {
                *when < at && matches!(o, Output::Speak { clause, .. } if clause == id)
            })
        };
        let stale = sim
            .sent
            .iter()
            .find(|(when, id)| *when > at && asked_before(id));
        prop_assert_eq!(stale, None);
    }
    Ok(())
}

fn tools_run_once_and_only_when_committed(sim: &Sim) -> Result<(), TestCaseError> {
    let called: Vec<_> = sim
        .events
        .iter()
        .filter_map(|(_, e)| match e {
            Event::ToolCalled {
                call,
                by_client: false,
                ..
            } => Some(*call),
            _ => None,
        })
        .collect();
    let started: Vec<_> = sim
        .outputs
        .iter()
        .filter_map(|(_, o)| match o {
            Output::StartTool { committed, .. } => *committed,
            _ => None,
        })
        .collect();
    prop_assert_eq!(called, started);
    Ok(())
}

/// One tool of every kind, each as eligible as an operator can make it.
fn tools() -> Vec<Declaration> {
    let declare = |name: &str, effect| {
        let mut tool = (*tool(name, effect)).clone();
        tool.speculation.eligibility = Eligibility::Full;
        tool.speculation.network = true;
        tool
    };
    let mut read = declare("read", Effect::Read);
    read.reads = vec!["notes".into()];
    let mut shared = declare("shared", Effect::Read);
    shared.speculation.shareable = true;
    let mut costly = declare("costly", Effect::ReadCostly);
    costly.speculation.cost = 0.001;
    // Its argument `of` comes from the last result of the reader.
    read.feeds = true;
    (costly.fixed, costly.takes) = (vec!["of".into()], vec!["read".into()]);
    let broken = declare("broken", Effect::Read);
    let keyed = declare("keyed", Effect::Keyed);
    let mut write = declare("write", Effect::Reversible);
    write.writes = vec!["notes".into()];
    let mut asks = declare("asks", Effect::Irreversible);
    asks.confirmation = Confirmation::Spoken {
        question: None,
        // Speculation changes when the question is asked; a yes must count with and without it.
        expiry: Duration::from_secs(3_600),
    };
    let mut ends = declare("ends", Effect::Irreversible);
    ends.ends_call = Some(EndsCall::HangUp);
    let mut passes = declare("passes", Effect::Irreversible);
    passes.ends_call = Some(EndsCall::HandOver);
    vec![
        read, shared, costly, broken, keyed, write, asks, ends, passes,
    ]
}

fn any_call() -> impl Strategy<Value = (&'static str, u8)> {
    let names = vec![
        "read", "shared", "costly", "broken", "keyed", "write", "asks", "ends", "passes",
        "unknown", "own",
    ];
    (prop::sample::select(names), 0u8..3)
}

fn speculative_moves() -> impl Strategy<Value = Vec<Move>> {
    let words = prop::sample::select(vec!["", "what time is it", "set a timer for", "Yes.", "no"]);
    let one = prop_oneof![
        8 => (32u64..1_500, words).prop_map(|(ms, words)| Move::Speak(ms, words)),
        8 => (32u64..4_000).prop_map(Move::Silence),
        2 => (32u64..300).prop_map(Move::Fade),
        1 => Just(Move::Cancel),
        1 => Just(Move::Clear),
        1 => Just(Move::Respond),
        1 => any::<bool>().prop_map(Move::Confirm),
        1 => prop::sample::select(vec!['1', '2', '5', '#']).prop_map(Move::Key),
        1 => prop::sample::select(vec!["yes", "no", "and now"]).prop_map(Move::Type),
        1 => prop::sample::select(vec![&[][..], &["read"], &["write"]]).prop_map(Move::Take),
        2 => prop::sample::select(vec![&["own"][..], &["own", "read"], &["write"]]).prop_map(Move::Lend),
        1 => any::<u16>().prop_map(Move::Tools),
        1 => any::<u16>().prop_map(Move::Hand),
        1 => shed(),
        2 => relayed(),
        2 => absence(),
        1 => prop::bool::weighted(0.2).prop_map(|end| if end { Move::HangUp } else { Move::Announce }),
    ];
    prop::collection::vec(one, 1..10)
}

/// Moves between a question and its answer, as text only.
fn answers() -> impl Strategy<Value = Vec<Move>> {
    let words = prop::sample::select(vec!["", "Yes.", "Yes.", "no", "and now"]);
    let one = prop_oneof![
        8 => (32u64..900, words).prop_map(|(ms, words)| Move::Speak(ms, words)),
        8 => (32u64..6_000).prop_map(Move::Silence),
        1 => Just(Move::Cancel),
        2 => Just(Move::Respond),
        2 => Just(Move::Announce),
        2 => prop::sample::select(vec!["yes", "no", "and now"]).prop_map(Move::Type),
        2 => relayed(),
        3 => absence(),
    ];
    prop::collection::vec(one, 1..12)
}

/// A call in pieces, which may turn out otherwise than its arguments so far.
fn streamed_call() -> impl Strategy<Value = Script> {
    let pieces = (0u64..600, 0u64..600, 0u8..3, any::<bool>());
    (any_call(), pieces).prop_map(|((name, n), (written, closed, before, whole))| {
        let mut script = streamed(name, json!({ "n": n }), written, closed);
        if before != n {
            script.insert(3, read(json!({ "n": before }), whole));
        }
        script
    })
}

/// The steps of a plan, some of which need a part of what an earlier one returns, which may not be there.
fn plan() -> impl Strategy<Value = Vec<serde_json::Value>> {
    let reference = (1usize..4, prop::sample::select(vec!["", "", "", "[0]"]));
    let step = (any_call(), prop::option::of(reference));
    prop::collection::vec(step, 1..5).prop_map(|steps| {
        let steps = steps.into_iter().map(|((tool, n), of)| {
            let arguments = match of {
                Some((step, part)) => json!({"n": n, "of": format!("$step{step}{part}")}),
                None => json!({ "n": n }),
            };
            json!({"tool": tool, "arguments": arguments})
        });
        steps.collect()
    })
}

/// A policy with all tools.
fn policy(plans: bool) -> Policy {
    let mut policy = with(tools());
    policy.briefing.plans = plans;
    policy
}

fn calling_scripts() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = prop_oneof![
        2 => Just(vec![say("Some words to say. ")]),
        2 => Just(vec![say("Let me check. ")]),
        4 => any_call().prop_map(|(name, n)| call_with(name, json!({ "n": n })).to_vec()),
        4 => streamed_call(),
        2 => plan().prop_map(|steps| call_with(PLAN, json!({ "steps": steps })).to_vec()),
        1 => (0u64..2_000).prop_map(|ms| vec![Step::Wait(ms)]),
        1 => Just(vec![Step::Break]),
        1 => prop::sample::select(vec!["read", "write"]).prop_map(broken_call),
    ];
    let script = prop::collection::vec(step, 0..5).prop_map(|steps| {
        let mut script: Vec<Step> = steps.into_iter().flatten().collect();
        script.push(end());
        script
    });
    prop::collection::vec(script, 0..6)
}

/// The answers of a server that takes results. Behind a call it goes on as `goes_on` says, whatever it was given.
fn with_tool_cache(scripts: Vec<Script>, goes_on: &[bool]) -> Vec<Script> {
    let mut goes_on = goes_on.iter().copied().cycle();
    let mut cached = |script: Script| -> Script {
        let Some(first) = goes_on.next() else {
            return script;
        };
        let response = format!("answer of {first}");
        let mut steps = vec![Step::Event(LlmEvent::TakesResults { response })];
        for step in script {
            let closes = matches!(step, Step::Event(LlmEvent::ToolClosed { .. }));
            steps.push(step);
            if closes && goes_on.next() == Some(true) {
                steps.push(Step::Event(LlmEvent::GoesOn));
            }
        }
        steps
    };
    scripts.into_iter().map(&mut cached).collect()
}

/// A tool, its argument, the confidence, and the source.
type Guess = (&'static str, u8, f32, Source);

/// The router's answers, by the number of the request.
fn guesses() -> impl Strategy<Value = Vec<Vec<Guess>>> {
    use Source::{Example, Intent, Rule, Transition};
    let source = prop::sample::select(vec![Rule, Intent, Example, Transition]);
    let one = (any_call(), 0f32..1.0, source);
    let one = one.prop_map(|((name, n), confidence, source)| (name, n, confidence, source));
    prop::collection::vec(prop::collection::vec(one, 0..3), 1..8)
}

/// The samples of a draft model that lies, by the number of the question.
fn drafts() -> impl Strategy<Value = Vec<Vec<Sample>>> {
    let call = any_call().prop_map(|(name, n)| SampledCall {
        tool: name.into(),
        arguments: json!({ "n": n }).as_object().cloned().unwrap_or_default(),
    });
    let sample = (0u64..1_500, prop::option::weighted(0.8, call));
    prop::collection::vec(prop::collection::vec(sample, 1..4), 0..8)
}

/// A draft model whose samples need not agree.
fn drafted(mut policy: Policy) -> Policy {
    policy.speculation.draft = Some(DraftPolicy {
        samples: 2,
        token_price: 1.0,
        token_cost_per_day: None,
    });
    policy
}

fn router(guesses: Vec<Vec<Guess>>) -> Sources {
    let asked = std::cell::Cell::new(0);
    Box::new(move |_| {
        let nth = asked.replace(asked.get() + 1);
        let predicted = guesses[nth % guesses.len()].iter();
        let predicted = predicted.map(|(name, n, confidence, source)| Prediction {
            tool: (*name).into(),
            arguments: json!({ "n": n }).as_object().cloned().unwrap_or_default(),
            confidence: *confidence,
            source: *source,
            open: Vec::new(),
        });
        predicted.collect()
    })
}

proptest! {
    #![proptest_config(cases(10_000))]

    #[test]
    fn speculation_is_harmless(
        moves in speculative_moves(),
        scripts in calling_scripts(),
        guesses in guesses(),
        completeness in 0f32..1.0,
        tool_ms in 0u64..3_000,
        refuses in prop::bool::weighted(0.1),
        slower in prop::option::of((guesses(), 0u64..2_000)),
        drafts in drafts(),
        client_speaks in any::<bool>(),
        (is_polite, listening_words) in (prop::bool::weighted(0.2), listening_words()),
        plans in any::<bool>(),
        lies in prop::option::of(prop::collection::vec(any::<bool>(), 1..5)),
    ) {
        let mut policy = drafted(policy(plans));
        policy.briefing.tool_cache = lies.is_some();
        policy.vad.barge_in.listening_words = listening_words;
        let mut sim = Sim::new(policy);
        sim.drafts = drafts.into();
        sim.marked = true;
        sim.scripts.extend(with_tool_cache(scripts, &lies.unwrap_or_default()));
        sim.completeness = completeness;
        sim.tool_ms = tool_ms;
        sim.refuses = refuses;
        sim.client_speaks = client_speaks;
        sim.router = router(guesses);
        sim.slower = slower.map(|(guesses, ms)| (router(guesses), ms));
        sim.foresee();
        if is_polite {
            sim.uninterruptible(true);
        }
        for step in moves {
            act(&mut sim, &step);
            if matches!(step, Move::HangUp) {
                break;
            }
        }
        sim.no_audio(120_000);
        let over = sim.core.answer.is_none() && !sim.core.turn.is_open();
        prop_assert!(over, "a response goes on for ever");
        sim.input(Input::HangUp);
        prop_assert!(!sim.core.interruption.is_resuming(), "a call that never ends");
        responses_do_not_overlap(&sim)?;
        nothing_flushed_is_sent(&sim)?;
        only_reads_start_early(&sim)?;
        every_call_runs_at_most_once(&sim)?;
        every_run_ends_once(&sim)?;
        nothing_uncommitted_is_seen(&sim)?;
        early_calls_of_the_client_show_only_when_committed(&sim)?;
    }

    #[test]
    fn a_yes_answers_only_the_question_that_was_said_last(
        moves in answers(),
        calls in 1u8..4,
        tool_ms in 0u64..3_000,
        client_speaks in any::<bool>(),
        is_polite in any::<bool>(),
        asks_the_silent in any::<bool>(),
        breaks in prop::bool::weighted(0.2),
        (plans, listening_words) in (any::<bool>(), listening_words()),
    ) {
        let mut policy = policy(plans);
        policy.vad.barge_in.listening_words = listening_words;
        policy.timeouts.silence_prompt = asks_the_silent.then_some(Micros::from_ms(3_000));
        let mut sim = Sim::new(policy);
        sim.tool_ms = tool_ms;
        sim.client_speaks = client_speaks;
        if breaks {
            sim.tts_fails.insert("Shall I asks with n 1?".into());
        }
        for n in 0..calls {
            let script = [say("Some words to say. ")].into_iter();
            let call = match plans {
                true => call_with(PLAN, json!({"steps": [{"tool": "asks", "arguments": { "n": n }}]})),
                false => call_with("asks", json!({ "n": n })),
            };
            let script = script.chain(call).chain([end()]);
            sim.scripts.push_back(script.collect());
        }
        if is_polite {
            sim.uninterruptible(true);
        }
        sim.speak("what time is it", 900);
        for step in moves {
            act(&mut sim, &step);
        }
        sim.no_audio(120_000);
        responses_do_not_overlap(&sim)?;
        let (mut question, mut last) = ("", "");
        for (_, event) in &sim.events {
            match event {
                Event::ConfirmationAsked { question: asked, .. } => question = asked,
                Event::AgentSpeech { text, .. } => last = text,
                Event::ConfirmationEnded { outcome: ConfirmationOutcome::Accepted, .. } => {
                    prop_assert!(question.ends_with(last), "{question:?} after {last:?}");
                }
                _ => {}
            }
        }
    }

    #[test]
    fn speculation_does_not_show(
        scripts in calling_scripts(),
        guesses in guesses(),
        slower in prop::option::of((guesses(), 0u64..2_000)),
        drafts in drafts(),
        tool_ms in 0u64..3_000,
        plans in any::<bool>(),
    ) {
        let talk = |enabled: bool| {
            let mut policy = drafted(policy(plans));
            policy.speculation.enabled = enabled;
            // Fillers depend on the wait, which speculation changes; they are not compared here.
            policy.timeouts.dead_air = Micros::from_ms(3_600_000);
            policy.timeouts.generation_timeout = policy.timeouts.dead_air;
            let mut sim = Sim::new(policy);
            sim.scripts.extend(without_breaks(&scripts));
            sim.by_prompt = true;
            sim.tool_ms = tool_ms;
            sim.drafts = drafts.clone().into();
            sim.router = router(guesses.clone());
            sim.slower = slower.clone().map(|(guesses, ms)| (router(guesses), ms));
            sim.foresee();
            for words in ["what time is it", "Yes.", "and now"] {
                sim.speak(words, 900);
                sim.silence(3_000);
                sim.no_audio(22_000);
            }
            sim
        };
        let (on, off) = (talk(true), talk(false));
        prop_assert_eq!(without_speech(&on.core.history.messages()), without_speech(&off.core.history.messages()));
        // A conversation that ends without a filler ends with a goodbye.
        let goodbye = Policy::default().phrases.goodbye;
        let facts = |sim: &Sim| -> Vec<String> {
            let says = |clause: &String| !pack(None).is_filler(clause) && *clause != goodbye;
            sim.spoken().into_iter().filter(says).collect()
        };
        prop_assert_eq!(facts(&on), facts(&off));
        let prompts = |sim: &Sim| -> Vec<_> {
            used_prompts(sim).map(|prompt| without_speech(&prompt.messages)).collect()
        };
        prop_assert!(is_part_of(&prompts(&off), &prompts(&on)));
    }
}

/// Messages without the agent's words: a filler is not said if the answer is there before it.
fn without_speech(messages: &[Message]) -> Vec<Message> {
    let others = |message: &&Message| !matches!(message, Message::Agent { .. });
    messages.iter().filter(others).cloned().collect()
}

/// Whether all of `part` occurs in `whole`, in this order.
fn is_part_of<T: PartialEq>(part: &[T], whole: &[T]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|one| whole.any(|other| other == one))
}

/// A stream that breaks before the turn is over is requested again, one that breaks later is not unless that is
/// within a call; so no stream breaks elsewhere here.
fn without_breaks(scripts: &[Vec<Step>]) -> Vec<Vec<Step>> {
    let is_read = |step: &Step| matches!(step, Step::Event(LlmEvent::ToolRead { .. }));
    let mut kept = Vec::new();
    for script in scripts {
        let mut steps: Vec<Step> = Vec::new();
        for step in script {
            if !matches!(step, Step::Break) || steps.last().is_some_and(is_read) {
                steps.push(step.clone());
            }
        }
        kept.push(steps);
    }
    kept
}

fn starts(sim: &Sim) -> impl Iterator<Item = (RunId, Option<CallId>, &str)> {
    sim.outputs.iter().filter_map(|(_, output)| match output {
        Output::StartTool {
            run,
            committed,
            name,
            ..
        } => Some((*run, *committed, name.as_str())),
        _ => None,
    })
}

/// Runs that were started and not refused.
fn runs(sim: &Sim) -> impl Iterator<Item = (RunId, Option<CallId>, &str)> {
    starts(sim).filter(|(_, committed, _)| committed.is_some() || !sim.refuses)
}

fn only_reads_start_early(sim: &Sim) -> Result<(), TestCaseError> {
    for (run, committed, name) in starts(sim) {
        let lent = clients_runs(sim).any(|(lent, _)| lent == run);
        let read = lent || ["read", "shared", "costly", "broken"].contains(&name);
        prop_assert!(
            committed.is_some() || read,
            "{name} ran before it was committed"
        );
    }
    Ok(())
}

fn every_call_runs_at_most_once(sim: &Sim) -> Result<(), TestCaseError> {
    let (mut started, mut calls) = (BTreeSet::new(), BTreeSet::new());
    for (run, committed, _) in runs(sim) {
        prop_assert!(started.insert(run), "{run} started twice");
        prop_assert!(
            committed.is_none_or(|call| calls.insert(call)),
            "a call ran twice"
        );
    }
    Ok(())
}

fn records(sim: &Sim) -> Vec<RunRecord> {
    sim.records()
        .into_iter()
        .flat_map(|record| record.runs)
        .collect()
}

fn every_run_ends_once(sim: &Sim) -> Result<(), TestCaseError> {
    let mut ends: BTreeMap<RunId, u32> = BTreeMap::new();
    for record in records(sim) {
        *ends.entry(record.run).or_default() += 1;
    }
    for (run, _, name) in runs(sim) {
        prop_assert_eq!(ends.remove(&run), Some(1), "{} of {}", run, name);
    }
    let refused = |run: &RunId| sim.refuses && starts(sim).any(|(id, ..)| id == *run);
    let deferred = |run: &RunId| {
        let mut records = records(sim).into_iter();
        records.any(|record| record.run == *run && record.source.is_none())
    };
    let known = ends.keys().all(|run| refused(run) || deferred(run));
    prop_assert!(known, "told of but never started: {ends:?}");
    Ok(())
}

/// The runs of the client's tools, and when they started.
fn clients_runs(sim: &Sim) -> impl Iterator<Item = (RunId, Time)> {
    sim.outputs.iter().filter_map(|(at, output)| match output {
        Output::StartTool {
            run,
            by_client: true,
            ..
        } => Some((*run, *at)),
        _ => None,
    })
}

fn early_calls_of_the_client_show_only_when_committed(sim: &Sim) -> Result<(), TestCaseError> {
    let called = |run: RunId| {
        let mut events = sim.events.iter();
        events.find_map(|(_, event)| match event {
            Event::ToolCalled {
                run: Some(of),
                call,
                by_client,
                ..
            } if *of == run => Some((*call, *by_client)),
            _ => None,
        })
    };
    let added = |call: CallId| {
        let is_it =
            |event: &Event| matches!(event, Event::OutputAdded { call: of, .. } if *of == call);
        sim.events.iter().filter(|(_, event)| is_it(event)).count()
    };
    for record in records(sim) {
        let is_clients = clients_runs(sim).any(|(run, _)| run == record.run);
        match (&record.fate, called(record.run)) {
            (Fate::Discarded { .. }, called) => prop_assert_eq!(called, None),
            (Fate::Committed { .. }, Some((call, by_client))) => {
                prop_assert!(by_client && is_clients);
                prop_assert!(added(call) <= 1, "an output that is there twice");
            }
            (Fate::Committed { .. }, None) => prop_assert!(!is_clients),
        }
    }
    Ok(())
}

/// The prompts of generations that were not given up. A held-back generation that is given up saw what it assumed,
/// and nobody saw the generation.
fn used_prompts(sim: &Sim) -> impl Iterator<Item = &Prompt> {
    sim.outputs.iter().filter_map(|(_, output)| match output {
        Output::Generate {
            request, prompt, ..
        } => (!sim.given_up.contains(request)).then_some(prompt),
        _ => None,
    })
}

fn nothing_uncommitted_is_seen(sim: &Sim) -> Result<(), TestCaseError> {
    let used: Vec<_> = used_prompts(sim).collect();
    let (history, events) = (sim.core.history.messages(), &sim.events);
    let seen = format!("{history:?}{events:?}{used:?}");
    for record in records(sim) {
        if matches!(record.fate, Fate::Discarded { .. }) {
            let result = format!("result of {}.", record.run);
            prop_assert!(!seen.contains(&result), "{result}");
        }
    }
    Ok(())
}
