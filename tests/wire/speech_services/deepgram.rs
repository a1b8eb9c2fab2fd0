//! Deepgram as the recogniser: it hears along, over one connection for each session. The service is a
//! simulator, which `foreign.rs` proves with Deepgram's SDK.

use super::*;
use support::deepgram::{DeepgramService, Manner, recogniser};
use undertone::asr::AsrService;

/// Engines with this recogniser for all sessions.
pub(super) fn with_ear(ear: Arc<dyn AsrService>) -> Builders {
    let far = || "far".to_owned();
    Builders {
        recognisers: [(far(), ear)].into(),
        recogniser: Some(far()),
        ..live::without_models(Arc::new(answers()))
    }
}

fn serve(service: &DeepgramService) -> Server {
    live::serve(with_ear(recogniser(service.address, KEY)))
}

pub(super) fn count(messages: &[String], kind: &str) -> usize {
    messages.iter().filter(|known| *known == kind).count()
}

#[tokio::test]
async fn deepgram_hears_along_over_one_connection() {
    let service = DeepgramService::start();
    let server = serve(&service);
    let mut call = Call::to(&server).await;
    for _ in 0..3 {
        let (_, events) = turn(&mut call).await;
        is_said(&events, WELL_FAR);
        assert_eq!(setbacks(&events), []);
    }
    let seen = service.seen();
    assert_eq!(seen.mistakes, [""; 0]);
    let query = json!({
        "model": "nova-3", "encoding": "linear16", "sample_rate": "16000", "channels": "1",
        "interim_results": "true", "punctuate": "true", "endpointing": "false",
    });
    // One tried the service out when the session began.
    assert_eq!(seen.queries, [query.clone(), query]);
    assert!(count(&seen.messages, "Finalize") >= 4, "{seen:?}");
    drop(call);
    let seen = service.until(|seen| seen.open == 0).await;
    assert_eq!(count(&seen.messages, "CloseStream"), 2, "{seen:?}");
}

#[tokio::test]
async fn what_deepgram_hears_while_the_user_speaks_is_a_partial_transcript() {
    let service = DeepgramService::start();
    let server = serve(&service);
    let mut call = Call::to(&server).await;
    call.say(&live::tone(2_000)).await;
    let events = call.until("response.done").await;
    let partials = events
        .iter()
        .filter(|heard| heard.is("conversation.item.input_audio_transcription.delta"));
    let words: Vec<_> = partials.map(|heard| &heard.event["delta"]).collect();
    assert!(!words.is_empty());
    is_said(&events, WELL_FAR);
}

/// Faults of a connection that is open.
const FAULTS: [Manner; 5] = [
    Manner::Late(Duration::from_secs(3)),
    Manner::Silent,
    Manner::Closes(1011, "NET-0000"),
    Manner::Closes(1008, "DATA-0000"),
    Manner::Errs,
];

#[tokio::test]
async fn a_deepgram_that_is_late_silent_or_closes_costs_less_than_700_ms() {
    faults_cost_little(recogniser).await;
}

/// Makes a recogniser at an address with a key.
pub(super) type Ear = fn(SocketAddr, &str) -> Arc<dyn AsrService>;

pub(super) async fn faults_cost_little(ear: Ear) {
    futures_util::future::join_all(FAULTS.map(async |fault| costs_little(ear, fault).await)).await;
}

async fn costs_little(ear: Ear, fault: Manner) {
    let service = DeepgramService::start();
    let server = live::serve(with_ear(ear(service.address, KEY)));
    let mut call = Call::to(&server).await;
    let (well, events) = turn(&mut call).await;
    is_said(&events, WELL_FAR);
    service.be(fault);
    let events = stands_in(&mut call, well, fault).await;
    are_discreet(&setbacks(&events), "asr");
    service.be(Manner::Well);
    let until_back = async { while said(&turn(&mut call).await.1).trim() != WELL_FAR {} };
    let back = tokio::time::timeout(PATIENCE, until_back).await;
    back.unwrap_or_else(|_| panic!("{fault:?}: it is not back"));
}

#[tokio::test]
async fn a_deepgram_that_cannot_be_reached_costs_less_than_700_ms() {
    being_out_of_reach_costs_little(recogniser).await;
}

pub(super) async fn being_out_of_reach_costs_little(ear: Ear) {
    let well = without_services().await;
    let service = DeepgramService::start();
    service.be(Manner::Refuses(503));
    for address in [speech_services::dead().await, service.address] {
        let server = live::serve(with_ear(ear(address, KEY)));
        stands_in(&mut Call::to(&server).await, well, "unreachable").await;
    }
}

#[tokio::test]
async fn a_deepgram_that_does_not_take_the_key_is_never_asked_again() {
    one_that_refuses_the_key_is_never_asked_again(recogniser).await;
}

pub(super) async fn one_that_refuses_the_key_is_never_asked_again(ear: Ear) {
    let service = DeepgramService::start();
    let server = live::serve(with_ear(ear(service.address, "old")));
    let mut call = Call::to(&server).await;
    let (_, events) = turn(&mut call).await;
    is_said(&events, WELL);
    let before = service.seen().queries.len();
    let (_, events) = turn(&mut call).await;
    is_said(&events, WELL);
    assert_eq!(setbacks(&events), []);
    assert_eq!(service.seen().queries.len(), before);
}

/// A part of the audio that `session` has listened to, of which everything is loud.
pub(super) fn spoken(session: &mut dyn undertone::asr::AsrSession, from: Samples) -> Utterance {
    let audio = vec![0.5; 16 * 600];
    for (nth, frame) in audio.chunks(320).enumerate() {
        session.listen(Samples(from.0 + 320 * nth as u64), frame);
    }
    Utterance {
        from,
        audio,
        partial: false,
    }
}

#[tokio::test]
async fn interim_results_will_do_if_deepgram_does_not_confirm() {
    let service = DeepgramService::start();
    service.be(Manner::NeverFinal);
    let mut session = recogniser(service.address, KEY).open(&Hints::default());
    let part = spoken(&mut *session, Samples(0));
    let words = tokio::time::timeout(PATIENCE, session.transcribe(part)).await;
    assert_eq!(words.expect("in time").expect("words"), HEARD);
}

#[tokio::test]
async fn a_connection_that_is_lost_within_an_utterance_is_replaced_by_one_that_hears_all_of_it() {
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
    // With more audio it is opened anew, and hears what was said before.
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
    assert_eq!(seen.queries.len(), 2);
    for query in &seen.queries {
        assert_eq!(query["language"], "en");
        assert_eq!(query["keyterm"], json!(["Anneliese", "Kronos 7"]));
    }
}

/// nova-3 refused each connection with more than 500 tokens of them.
#[tokio::test]
async fn deepgram_gets_as_many_keyterms_as_it_takes_and_the_language_by_its_name_there() {
    let service = DeepgramService::start();
    let terms = too_many();
    let hints = Hints {
        keyterms: terms.clone().into(),
        ..Hints::language("nb-NO")
    };
    let mut session = recogniser(service.address, KEY).open(&hints);
    let part = spoken(&mut *session, Samples(0));
    assert_eq!(session.transcribe(part).await.expect("words"), HEARD);
    let query = &service.seen().queries[0];
    assert_eq!(query["language"], "no");
    // The capital and the digits count 3 each, the other nine characters 1, and each term 7 more.
    assert_eq!(query["keyterm"], json!(terms[..1_500 / 31]));
}

#[tokio::test]
async fn a_silent_client_keeps_its_connection() {
    let service = DeepgramService::start();
    let ear = recogniser(service.address, KEY);
    let mut session = ear.open(&Hints::default());
    let is_kept = |messages: &[String]| count(messages, "KeepAlive") == 3;
    service.until(|seen| is_kept(&seen.messages)).await;
    let part = spoken(&mut *session, Samples(0));
    let words = session.transcribe(part).await.expect("words");
    assert_eq!(words, HEARD);
    let seen = service.seen();
    assert_eq!(
        (seen.queries.len(), seen.mistakes.len()),
        (1, 0),
        "{seen:?}"
    );
}

#[tokio::test]
async fn audio_that_nobody_spoke_live_is_transcribed_too() {
    let service = DeepgramService::start();
    let ear = recogniser(service.address, KEY);
    let mut session = ear.open(&Hints::default());
    for _ in 0..2 {
        let mut audio = vec![0.5; 16 * 600];
        audio.extend([0.0; 16 * 400]);
        let part = Utterance {
            from: Samples(0),
            audio,
            partial: false,
        };
        assert_eq!(session.transcribe(part).await.expect("words"), HEARD);
    }
    assert_eq!(service.seen().queries.len(), 1);
}
