//! Deepgram's Flux as the recogniser, which also judges turns. The service is a simulator, which `foreign.rs` proves
//! with Deepgram's SDK.

use super::deepgram::{self, count, spoken, with_ear};
use super::*;
use support::deepgram::{DeepgramService, Manner};
use support::flux::recogniser;
use undertone::asr::{TurnReport, TurnState};
use undertone::llm::Message;

fn serve(service: &DeepgramService) -> Server {
    live::serve(with_ear(recogniser(service.address, KEY)))
}

#[tokio::test]
async fn flux_hears_along_over_one_connection() {
    let service = DeepgramService::start();
    let server = serve(&service);
    let mut call = Call::to(&server).await;
    for _ in 0..3 {
        let (delay, events) = turn(&mut call).await;
        is_said(&events, WELL_FAR);
        assert_eq!(setbacks(&events), []);
        println!("answered {delay:?} after the question");
    }
    let seen = service.seen();
    assert_eq!(seen.mistakes, [""; 0]);
    let query = json!({
        "model": "flux-general-en", "encoding": "linear16", "sample_rate": "16000", "eager_eot_threshold": "0.4",
    });
    // One tried the service out when the session began.
    assert_eq!(seen.queries, [query.clone(), query]);
    drop(call);
    let seen = service.until(|seen| seen.open == 0).await;
    assert_eq!(seen.messages, ["CloseStream"; 2]);
}

/// The user pauses for 300 ms after what reads like a whole question. Silence and words would end the turn there, and
/// the model is asked, because Flux takes the user for done; then they go on.
#[tokio::test]
async fn nothing_is_heard_of_the_answer_to_a_probable_end_after_which_the_user_goes_on() {
    const TWICE: &str = "You have asked me twice.";
    let model = Scripted::default()
        .on(Cue::words("afar? How"), format!("<speech>{TWICE}</speech>"))
        .on(Cue::Always, format!("<speech>{WELL_FAR}</speech>"));
    let service = DeepgramService::start();
    let mut builders = with_ear(recogniser(service.address, KEY));
    builders.llm = Arc::new(model.clone());
    let server = live::serve(builders);
    let mut call = Call::to(&server).await;
    let pause = vec![0; 24 * 300];
    let question = [live::tone(600), pause, live::tone(600)].concat();
    call.say(&question).await;
    let events = call.until("response.done").await;
    is_said(&events, TWICE);
    let begun = events.iter().filter(|heard| heard.is("response.created"));
    assert_eq!(begun.count(), 1);
    let asked: Vec<_> = model
        .prompts()
        .into_iter()
        .map(|prompt| {
            let Some(Message::User { text }) = prompt.messages.last().cloned() else {
                panic!("no question: {prompt:?}");
            };
            text
        })
        .collect();
    assert_eq!(asked.first().map(String::as_str), Some(HEARD));
    let twice = format!("{HEARD} {HEARD}");
    assert_eq!(asked.last(), Some(&twice), "{asked:?}");
}

#[tokio::test]
async fn a_flux_that_is_late_silent_or_closes_costs_less_than_700_ms() {
    deepgram::faults_cost_little(recogniser).await;
}

#[tokio::test]
async fn a_flux_that_cannot_be_reached_costs_less_than_700_ms() {
    deepgram::being_out_of_reach_costs_little(recogniser).await;
}

#[tokio::test]
async fn a_flux_that_does_not_take_the_key_is_never_asked_again() {
    deepgram::one_that_refuses_the_key_is_never_asked_again(recogniser).await;
}

#[tokio::test]
async fn a_flux_that_ends_no_turn_is_awaited_as_long_as_an_unfinished_sentence() {
    let service = DeepgramService::start();
    service.be(Manner::NeverFinal);
    let server = serve(&service);
    let mut call = Call::to(&server).await;
    let (delay, events) = turn(&mut call).await;
    is_said(&events, WELL_FAR);
    assert!(delay > Duration::from_millis(1_300), "{delay:?}");
}

/// Its words are there, but its verdict does not come.
#[tokio::test]
async fn a_flux_that_falls_silent_before_the_end_of_the_turn_costs_less_than_700_ms() {
    let service = DeepgramService::start();
    let server = serve(&service);
    let mut call = Call::to(&server).await;
    let (well, _) = turn(&mut call).await;
    service.be(Manner::SilentFromEager);
    let (delay, events) = turn(&mut call).await;
    is_said(&events, WELL_FAR);
    println!("silent from the probable end on: {delay:?} after {well:?}");
    assert!(delay < well + MORE, "{delay:?} after {well:?}");
}

#[tokio::test]
async fn a_connection_to_flux_that_is_lost_is_replaced_by_one_that_hears_all_of_the_utterance() {
    let service = DeepgramService::start();
    let ear = recogniser(service.address, KEY);
    let hints = Hints {
        keyterms: ["Anneliese", "Kronos 7"].map(str::to_owned).into(),
        ..Hints::language("en-GB")
    };
    let mut session = ear.open(&hints);
    service.be(Manner::ClosesOnce(1011, "NET-0000"));
    let part = spoken(&mut *session, Samples(0));
    let lost = session.transcribe(part.clone()).await;
    let lost = lost.expect_err("the connection is lost").to_string();
    assert!(lost.contains("1011 NET-0000"), "{lost}");
    session.listen(part.to(), &[0.0; 320]);
    let words = tokio::time::timeout(PATIENCE, async {
        loop {
            match session.transcribe(part.clone()).await {
                Ok(words) => return words,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    });
    assert_eq!(words.await.expect("in time"), HEARD);
    let seen = service.seen();
    assert_eq!(seen.mistakes, [""; 0]);
    for query in &seen.queries {
        assert_eq!(query.get("language_hint"), None);
        assert_eq!(query["keyterm"], json!(["Anneliese", "Kronos 7"]));
    }
}

/// It got no more than nova-3 takes, which counts tokens.
#[tokio::test]
async fn flux_gets_all_keyterms() {
    let service = DeepgramService::start();
    let terms = too_many();
    let hints = Hints {
        keyterms: terms.clone().into(),
        ..Hints::default()
    };
    let _session = recogniser(service.address, KEY).open(&hints);
    let seen = service.until(|seen| !seen.queries.is_empty()).await;
    assert_eq!(seen.queries[0]["keyterm"], json!(terms));
}

/// A client that commits by hand may send nothing after the question, and Flux judges only audio that it gets.
#[tokio::test]
async fn audio_that_stops_in_mid_turn_is_transcribed_to_its_end() {
    let service = DeepgramService::start();
    let mut session = recogniser(service.address, KEY).open(&Hints::default());
    let (told, mut verdicts) = tokio::sync::mpsc::channel(64);
    session.tell_turns(Arc::new(move |TurnReport { state, .. }| {
        told.try_send(state).expect("few verdicts");
    }));
    let part = spoken(&mut *session, Samples(0));
    let words = tokio::time::timeout(PATIENCE, session.transcribe(part)).await;
    assert_eq!(words.expect("in time").expect("words"), HEARD);
    assert_eq!(count(&service.seen().messages, "ForceEndTurn"), 1);
    let verdicts: Vec<_> = std::iter::from_fn(|| verdicts.try_recv().ok()).collect();
    assert!(!verdicts.is_empty());
    assert!(
        verdicts.iter().all(|state| *state == TurnState::Open),
        "{verdicts:?}"
    );
}

/// There is no turn that could be made to end.
#[tokio::test]
async fn silence_that_stops_between_two_reports_is_transcribed_to_its_end() {
    let service = DeepgramService::start();
    let mut session = recogniser(service.address, KEY).open(&Hints::default());
    let audio = vec![0.0; 16 * 490];
    session.listen(Samples(0), &audio);
    let part = Utterance {
        from: Samples(0),
        audio,
        partial: false,
    };
    let words = tokio::time::timeout(PATIENCE, session.transcribe(part)).await;
    assert_eq!(words.expect("in time").expect("silence"), "");
    assert_eq!(service.seen().messages, [""; 0]);
}

#[tokio::test]
async fn audio_that_nobody_spoke_live_is_transcribed_by_flux_too() {
    let service = DeepgramService::start();
    let mut session = recogniser(service.address, KEY).open(&Hints::default());
    for _ in 0..2 {
        let mut audio = vec![0.5; 16 * 600];
        audio.extend([0.0; 16 * 10]);
        let part = Utterance {
            from: Samples(0),
            audio,
            partial: false,
        };
        let words = tokio::time::timeout(PATIENCE, session.transcribe(part)).await;
        assert_eq!(words.expect("in time").expect("words"), HEARD);
    }
    assert_eq!(service.seen().queries.len(), 1);
}
