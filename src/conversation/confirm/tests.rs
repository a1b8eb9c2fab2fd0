//! Unit tests of a confirmation's stages; whole sessions are in `../tests/confirmation.rs`.

use super::*;
use crate::conversation::experience::Experience;
use crate::conversation::{Output, Policy};
use crate::language::pack;
use crate::tools::{Effect, ToolSpec};
use serde_json::json;
use std::time::Duration;

/// A confirmation with the state that it takes as arguments.
struct Bench {
    confirmation: Confirmation,
    common: Common,
    history: History,
}

impl Bench {
    fn new() -> Self {
        let mut common = Common::new(Policy::default(), Experience::default());
        common.now = Time(1_000_000);
        Self {
            confirmation: Confirmation::default(),
            common,
            history: History::default(),
        }
    }

    fn want(&mut self, call: u64, name: &str, to: &str) {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: name.into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
        };
        let mut tool = Declaration::new(spec, Effect::Irreversible, Duration::from_secs(5));
        tool.confirmation = tools::Confirmation::Spoken {
            question: None,
            expiry: Duration::from_secs(10),
        };
        let arguments = json!({ "to": to });
        let arguments = arguments.as_object().expect("an object");
        assert!(
            self.confirmation
                .want(pack(None), CallId(call), &tool, arguments)
        );
    }

    fn ask(&mut self) -> Option<String> {
        self.confirmation.ask(&mut self.common, &mut self.history)
    }

    /// A question that will have been heard a second from now.
    fn asked() -> Self {
        let mut bench = Self::new();
        bench.want(1, "pay", "Ann");
        assert_eq!(bench.ask().as_deref(), Some("Shall I pay with to Ann?"));
        bench.confirmation.clause_begins(ClauseId(u64::MAX));
        let heard = bench.common.now + Micros::from_ms(1_000);
        bench.confirmation.was_sent(&mut bench.common, heard);
        bench
    }

    fn pass(&mut self, ms: u64) {
        self.common.now = self.common.now + Micros::from_ms(ms);
    }

    /// The call that runs after these words.
    fn answer(&mut self, text: &str) -> Option<CallId> {
        let began = self.common.now;
        let run = self
            .confirmation
            .answer(&mut self.common, &mut self.history, text, began);
        run.map(|pending| pending.call)
    }

    fn outcomes(&self) -> Vec<ConfirmationOutcome> {
        let outcome = |output: &Output| match output {
            Output::Notify(Event::ConfirmationEnded { outcome, .. }) => Some(*outcome),
            _ => None,
        };
        self.common.outputs.iter().filter_map(outcome).collect()
    }

    fn notes(&self) -> usize {
        self.history.messages().len()
    }
}

#[test]
fn a_yes_counts_from_the_end_of_the_question_to_its_expiry() {
    for (ms, run, outcome) in [
        (999, None, ConfirmationOutcome::Abandoned),
        (1_000, Some(CallId(1)), ConfirmationOutcome::Accepted),
        (11_000, Some(CallId(1)), ConfirmationOutcome::Accepted),
        (11_001, None, ConfirmationOutcome::Expired),
    ] {
        let mut bench = Bench::asked();
        bench.pass(ms);
        assert_eq!(bench.answer("yes"), run, "{ms} ms");
        assert_eq!(bench.outcomes(), [outcome], "{ms} ms");
        assert_eq!(bench.confirmation.awaited(), None);
    }
}

#[test]
fn a_question_interrupted_by_noise_ignores_words_until_it_is_repeated() {
    let mut bench = Bench::asked();
    bench.pass(500);
    bench.confirmation.cut_short(&mut bench.common);
    assert_eq!(bench.answer("yes"), None);
    assert!(!bench.confirmation.is_open());
    assert!(!bench.common.timers.is_set(Timer::ConfirmationExpired));
    // A click can answer it at any time.
    assert_eq!(bench.confirmation.awaited(), Some(CallId(1)));
    assert_eq!(bench.confirmation.awaited_by_key(), Some(CallId(1)));
    bench.confirmation.resume();
    let heard = bench.common.now;
    bench.confirmation.was_sent(&mut bench.common, heard);
    assert_eq!(bench.answer("yes"), Some(CallId(1)));
}

#[test]
fn a_question_interrupted_by_speech_is_abandoned() {
    let mut bench = Bench::asked();
    bench.confirmation.cut_short(&mut bench.common);
    bench
        .confirmation
        .abandon_cut_short(&mut bench.common, &mut bench.history);
    assert_eq!(bench.outcomes(), [ConfirmationOutcome::Abandoned]);
    assert_eq!(bench.confirmation.awaited(), None);
}

/// It was said twice, as its clauses are joined with other spaces than it is written with.
#[test]
fn a_question_of_several_clauses_is_asked_once_in_whole() {
    for (question, clauses) in [
        (
            "That is five dollars—shall I send them?",
            "That is five dollars— shall I send them?",
        ),
        (
            "合計は五ドルです。送りますか？",
            "合計は五ドルです。 送りますか？",
        ),
    ] {
        let pending = Pending {
            call: CallId(1),
            name: "pay".into(),
            arguments: Map::new(),
            question: question.into(),
            expiry: Micros(0),
            is_told: false,
        };
        assert_eq!(pending.asked_after(clauses), question);
        let (_, end) = clauses.rsplit_once(' ').expect("two clauses");
        assert_eq!(pending.asked_after(end), question);
        assert_eq!(
            pending.asked_after(&format!("I can do that. {clauses}")),
            format!("I can do that. {question}")
        );
        assert_eq!(
            pending.asked_after("I can do that."),
            format!("I can do that. {question}")
        );
    }
}

#[test]
fn a_question_that_was_heard_is_not_interrupted() {
    let mut bench = Bench::asked();
    bench.pass(1_000);
    bench.confirmation.cut_short(&mut bench.common);
    bench
        .confirmation
        .abandon_cut_short(&mut bench.common, &mut bench.history);
    assert!(bench.confirmation.is_asked());
    assert_eq!(bench.answer("no"), None);
    assert_eq!(bench.outcomes(), [ConfirmationOutcome::Declined]);
}

#[test]
fn a_key_answers_a_question_only_once_it_has_begun() {
    let mut bench = Bench::new();
    bench.want(1, "pay", "Ann");
    assert_eq!(bench.confirmation.awaited_by_key(), None, "wanted");
    let before = ClauseId(bench.common.ids.next());
    assert!(bench.ask().is_some());
    bench.confirmation.clause_begins(before);
    assert_eq!(
        bench.confirmation.awaited_by_key(),
        None,
        "still to be said"
    );
    let first = ClauseId(bench.common.ids.next());
    bench.confirmation.clause_begins(first);
    assert_eq!(bench.confirmation.awaited_by_key(), Some(CallId(1)));
}

#[test]
fn the_first_of_two_calls_is_asked_about_and_a_repetition_is_ignored() {
    let mut bench = Bench::new();
    bench.want(1, "pay", "Ann");
    bench.want(2, "pay", "Ann");
    assert_eq!(bench.ask().as_deref(), Some("Shall I pay with to Ann?"));
    assert_eq!(
        (bench.confirmation.awaited(), bench.notes()),
        (Some(CallId(1)), 0)
    );
    bench.want(3, "pay", "Bob");
    bench.want(4, "book", "Bob");
    assert_eq!(bench.ask().as_deref(), Some("Shall I pay with to Bob?"));
    assert_eq!(
        (bench.confirmation.awaited(), bench.notes()),
        (Some(CallId(3)), 1)
    );
    assert_eq!(bench.outcomes(), [ConfirmationOutcome::Abandoned]);
}

#[test]
fn a_question_is_dropped_with_its_response() {
    let mut bench = Bench::new();
    bench.want(1, "pay", "Ann");
    bench
        .confirmation
        .forget_wanted(&mut bench.common, &mut bench.history);
    assert!(bench.confirmation.wanted().is_none());
    assert_eq!(bench.ask(), None);
    assert!(bench.outcomes().is_empty(), "the client was never asked");
}

#[test]
fn a_typed_yes_runs_when_a_response_is_requested() {
    let mut bench = Bench::asked();
    let Bench {
        confirmation,
        common,
        history,
    } = &mut bench;
    assert!(confirmation.take_accepted(common).is_none());
    confirmation.answer_in_writing(common, history, "yes");
    let accepted = confirmation.take_accepted(common);
    assert_eq!(accepted.map(|pending| pending.call), Some(CallId(1)));
    assert_eq!(bench.outcomes(), [ConfirmationOutcome::Accepted]);
}
