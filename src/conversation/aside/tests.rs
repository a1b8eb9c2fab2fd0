//! Unit tests of responses outside the conversation; whole sessions are in `../tests/terms.rs`.

use super::*;
use crate::conversation::experience::Experience;
use crate::conversation::policy::Policy;
use crate::llm::Demands;

fn prompt() -> Prompt {
    Prompt {
        instructions: None,
        day: None,
        messages: Vec::new(),
        tools: std::sync::Arc::default(),
        demands: Demands::default(),
    }
}

/// One open response, with its request.
fn begun() -> (Asides, Common, RequestId) {
    let (mut asides, mut common) = (
        Asides::default(),
        Common::new(Policy::default(), Experience::default()),
    );
    asides.begin(&mut common, ResponseTerms::default());
    let id = asides.0[0].id;
    asides.ask(&mut common, id, prompt());
    let Stage::Asked(request) = asides.0[0].stage else {
        panic!("{asides:?}");
    };
    common.outputs.clear();
    (asides, common, request)
}

fn said(common: &mut Common) -> Vec<String> {
    let outputs = common.outputs.drain(..);
    let texts = outputs.filter_map(|output| match output {
        Output::Notify(Event::AsideText { text, .. }) => Some(text),
        _ => None,
    });
    texts.collect()
}

fn status(common: &Common) -> Option<ResponseStatus> {
    match common.outputs.back() {
        Some(Output::Notify(Event::AsideDone { status, .. })) => Some(*status),
        _ => None,
    }
}

#[test]
fn white_space_around_a_response_is_dropped() {
    let (mut asides, mut common, request) = begun();
    for text in [" \n", "It is", " ", "noon. ", "\n"] {
        let event = LlmEvent::Speech { text: text.into() };
        assert!(asides.on_llm(&mut common, request, &event));
    }
    assert_eq!(said(&mut common).concat(), "It is noon.");
}

#[test]
fn an_answer_ends_as_the_model_ends_it() {
    for (is_cut, ended) in [
        (false, ResponseStatus::Completed),
        (true, ResponseStatus::Incomplete),
    ] {
        let (mut asides, mut common, request) = begun();
        if is_cut {
            asides.on_llm(&mut common, request, &LlmEvent::Cut);
        }
        asides.on_llm(&mut common, request, &LlmEvent::End);
        assert_eq!(status(&common), Some(ended));
        let again = asides.on_llm(&mut common, request, &LlmEvent::End);
        assert!(!again, "it is over");
    }
}

#[test]
fn open_responses_are_bounded() {
    let (mut asides, mut common, request) = begun();
    for _ in 0..MOST {
        asides.begin(&mut common, ResponseTerms::default());
    }
    assert_eq!(asides.0.len(), MOST);
    let refused = common.outputs.back();
    assert!(matches!(
        refused,
        Some(Output::Notify(Event::Refused { .. }))
    ));
    assert!(asides.on_failed(&mut common, request));
    assert_eq!(status(&common), Some(ResponseStatus::Failed));
    assert_eq!(asides.0.len(), MOST - 1);
}

#[test]
fn an_answer_is_cancelled_once() {
    let (mut asides, mut common, _) = begun();
    let id = asides.0[0].id;
    asides.cancel(&mut common, id);
    assert_eq!(status(&common), Some(ResponseStatus::Cancelled));
    asides.cancel(&mut common, id);
    let refused = common.outputs.back();
    assert!(matches!(
        refused,
        Some(Output::Notify(Event::Refused { .. }))
    ));
}

#[test]
fn all_are_cancelled_when_the_session_ends() {
    let (mut asides, mut common, _) = begun();
    asides.begin(&mut common, ResponseTerms::default());
    common.outputs.clear();
    asides.cancel_all(&mut common);
    let cancelled = |output: &&Output| {
        let Output::Notify(Event::AsideDone { status, .. }) = output else {
            return false;
        };
        *status == ResponseStatus::Cancelled
    };
    assert_eq!(common.outputs.iter().filter(cancelled).count(), 2);
}
