//! Figures about turns: predictions, early runs and generations, drafts, fillers, and how long users waited.

use super::{Outcome, Seconds, UNKNOWN_TOOL, seconds};
use crate::conversation::{Discard, DraftRecord, Fate, HeldRecord, RunRecord, Time, TurnRecord};
use crate::prediction::Source;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Histogram bounds for delays that a user notices, seconds.
const WAITS: [f64; 14] = [
    0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Predicted {
    tool: String,
    source: &'static str,
    decision: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Early {
    tool: String,
    source: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Wasted {
    tool: String,
    source: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Generation {
    before: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Before {
    before: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Tool {
    tool: String,
}

/// Counts and times of turns, as Prometheus reads them.
#[derive(Debug)]
pub(super) struct TurnFigures {
    predictions: Family<Predicted, Counter>,
    started: Family<Early, Counter>,
    committed: Family<Early, Counter>,
    committed_first: Family<Early, Counter>,
    committed_among_three: Family<Early, Counter>,
    wasted: Family<Wasted, Counter>,
    refused_runs: Family<Wasted, Counter>,
    serial: Family<Tool, Counter>,
    hidden_seconds: Family<Early, Seconds>,
    wasted_seconds: Family<Early, Seconds>,
    wasted_cost: Family<Early, Seconds>,
    early_generations: Family<Generation, Counter>,
    early_tokens: Family<Generation, Counter>,
    early_saved: Family<Before, Seconds>,
    early_delayed: Family<Before, Seconds>,
    drafts: Family<Outcome, Counter>,
    draft_tokens: Counter,
    draft_cost: Seconds,
    fillers: Counter,
    dropped_fillers: Counter,
    fillers_saved: Seconds,
    end_of_turn: Histogram,
    first_audio: Histogram,
    answer_audio: Histogram,
    dead_air: Histogram,
}

impl Default for TurnFigures {
    fn default() -> Self {
        let waits = || Histogram::new(WAITS);
        Self {
            predictions: Family::default(),
            started: Family::default(),
            committed: Family::default(),
            committed_first: Family::default(),
            committed_among_three: Family::default(),
            wasted: Family::default(),
            refused_runs: Family::default(),
            serial: Family::default(),
            hidden_seconds: Family::default(),
            wasted_seconds: Family::default(),
            wasted_cost: Family::default(),
            early_generations: Family::default(),
            early_tokens: Family::default(),
            early_saved: Family::default(),
            early_delayed: Family::default(),
            drafts: Family::default(),
            draft_tokens: Counter::default(),
            draft_cost: Seconds::default(),
            fillers: Counter::default(),
            dropped_fillers: Counter::default(),
            fillers_saved: Seconds::default(),
            end_of_turn: waits(),
            first_audio: waits(),
            answer_audio: waits(),
            dead_air: waits(),
        }
    }
}

impl TurnFigures {
    pub(super) fn register(&self, registry: &mut Registry) {
        self.register_speculation(registry);
        self.register_early_answers(registry);
        self.register_drafts(registry);
        self.register_latencies(registry);
    }

    fn register_speculation(&self, registry: &mut Registry) {
        registry.register(
            "predictions",
            "Predicted tool calls, by decision",
            self.predictions.clone(),
        );
        registry.register(
            "speculative_runs",
            "Runs that started before the model called the tool",
            self.started.clone(),
        );
        registry.register(
            "speculative_hits",
            "Speculative runs that were committed",
            self.committed.clone(),
        );
        registry.register(
            "speculative_first_hits",
            "Of these, the surest of the runs that waited for a commit then",
            self.committed_first.clone(),
        );
        registry.register(
            "speculative_among_three_hits",
            "Of these, those among the three surest",
            self.committed_among_three.clone(),
        );
        registry.register(
            "speculative_wasted",
            "Speculative runs that were discarded",
            self.wasted.clone(),
        );
        registry.register(
            "speculative_refused",
            "Speculative runs that the server did not start: no budget, or overloaded",
            self.refused_runs.clone(),
        );
        registry.register(
            "serial_runs",
            "Runs that started only when the model called the tool",
            self.serial.clone(),
        );
        registry.register_with_unit(
            "speculative_hidden",
            "How much earlier results were available than if their runs had started at the commit",
            Unit::Seconds,
            self.hidden_seconds.clone(),
        );
        registry.register_with_unit(
            "speculative_wasted_run",
            "How long discarded speculative runs ran",
            Unit::Seconds,
            self.wasted_seconds.clone(),
        );
        registry.register(
            "speculative_wasted_cost",
            "Cost of discarded speculative runs, in the operator's currency",
            self.wasted_cost.clone(),
        );
    }

    fn register_early_answers(&self, registry: &mut Registry) {
        registry.register(
            "early_generations",
            "Generations that were requested before they were certain to be needed, by what they were held back for",
            self.early_generations.clone(),
        );
        registry.register(
            "early_generation_tokens",
            "Tokens of these generations, prompts included",
            self.early_tokens.clone(),
        );
        registry.register_with_unit(
            "early_generation_saved",
            "How much earlier the first words of the used ones were heard",
            Unit::Seconds,
            self.early_saved.clone(),
        );
        registry.register_with_unit(
            "early_generation_delayed",
            "How long the model's words were held back for the discarded ones",
            Unit::Seconds,
            self.early_delayed.clone(),
        );
        registry.register(
            "fillers",
            "Fillers said by the server rather than the model",
            self.fillers.clone(),
        );
        registry.register(
            "dropped_fillers",
            "Fillers that were not said because the answer was there",
            self.dropped_fillers.clone(),
        );
        registry.register_with_unit(
            "dropped_fillers_saved",
            "How much earlier answers were heard because of that",
            Unit::Seconds,
            self.fillers_saved.clone(),
        );
    }

    fn register_drafts(&self, registry: &mut Registry) {
        registry.register(
            "drafts",
            "Questions to the draft model, by what became of its calls",
            self.drafts.clone(),
        );
        registry.register(
            "draft_tokens",
            "Tokens of the draft model, prompts included",
            self.draft_tokens.clone(),
        );
        registry.register(
            "draft_cost",
            "Their cost, in the operator's currency",
            self.draft_cost.clone(),
        );
    }

    fn register_latencies(&self, registry: &mut Registry) {
        let histograms = [
            (
                "end_of_turn",
                "End of speech to the end of the turn",
                &self.end_of_turn,
            ),
            (
                "first_audio",
                "End of speech to the agent's first audio",
                &self.first_audio,
            ),
            (
                "answer_audio",
                "End of speech to the answer, in turns with a tool",
                &self.answer_audio,
            ),
            (
                "dead_air",
                "Silence between filler and answer, in turns with a tool",
                &self.dead_air,
            ),
        ];
        for (name, help, histogram) in histograms {
            registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
        }
    }

    /// Records a finished turn. All tools that are not `known` share one label.
    pub(super) fn record(&self, record: &TurnRecord, known: impl Fn(&str) -> bool) {
        let tool_of = |tool: &str| match known(tool) {
            true => tool.to_owned(),
            false => UNKNOWN_TOOL.to_owned(),
        };
        for prediction in &record.predictions {
            let labels = Predicted {
                tool: tool_of(&prediction.tool),
                source: prediction.source.name(),
                decision: prediction.decision.name(),
            };
            self.predictions.get_or_create(&labels).inc();
        }
        for run in &record.runs {
            self.run(run, tool_of(&run.tool), rank(run, &record.runs));
        }
        record.held.iter().for_each(|held| self.generation(held));
        record.drafts.iter().for_each(|draft| self.draft(draft));
        self.fillers.inc_by(u64::from(record.fillers));
        self.dropped_fillers
            .inc_by(u64::from(record.fillers_dropped));
        self.fillers_saved.inc_by(seconds(record.fillers_saved));
        let latency = &record.latency;
        let from_speech = |histogram: &Histogram, to: Option<Time>| {
            if let (Some(from), Some(to)) = (latency.speech_end, to) {
                histogram.observe(seconds(to.since(from)));
            }
        };
        from_speech(&self.end_of_turn, latency.end_of_turn);
        from_speech(&self.first_audio, latency.first_audio);
        if latency.commit.is_some() {
            from_speech(&self.answer_audio, latency.answer_audio);
        }
        if let Some(dead_air) = latency.dead_air {
            self.dead_air.observe(seconds(dead_air));
        }
    }

    /// Gives each family a member, so that all are exported.
    #[cfg(test)]
    pub(super) fn show_everything(&self) {
        let tool = || "weather".to_owned();
        let (source, reason, outcome) = ("rule", "full", "used");
        let early = Early {
            tool: tool(),
            source,
        };
        let wasted = Wasted {
            tool: tool(),
            source,
            reason,
        };
        drop(self.predictions.get_or_create(&Predicted {
            tool: tool(),
            source,
            decision: "started",
        }));
        for family in [
            &self.started,
            &self.committed,
            &self.committed_first,
            &self.committed_among_three,
        ] {
            drop(family.get_or_create(&early));
        }
        for family in [
            &self.hidden_seconds,
            &self.wasted_seconds,
            &self.wasted_cost,
        ] {
            drop(family.get_or_create(&early));
        }
        drop(self.wasted.get_or_create(&wasted));
        drop(self.refused_runs.get_or_create(&wasted));
        drop(self.serial.get_or_create(&Tool { tool: tool() }));
        let generation = Generation {
            before: "commit",
            outcome,
        };
        drop(self.early_generations.get_or_create(&generation));
        drop(self.early_tokens.get_or_create(&generation));
        let before = Before { before: "commit" };
        drop(self.early_saved.get_or_create(&before));
        drop(self.early_delayed.get_or_create(&before));
        drop(self.drafts.get_or_create(&Outcome { outcome }));
    }

    fn rank(&self, early: &Early, rank: Option<usize>) {
        let is_first = u64::from(rank == Some(0));
        let is_among_three = u64::from(rank.is_some_and(|rank| rank < 3));
        self.committed_first.get_or_create(early).inc_by(is_first);
        let among_three = self.committed_among_three.get_or_create(early);
        among_three.inc_by(is_among_three);
    }

    fn generation(&self, held: &HeldRecord) {
        let before = held.before.name();
        let outcome = match held.used {
            true => "used",
            false => "discarded",
        };
        let labels = Generation { before, outcome };
        self.early_generations.get_or_create(&labels).inc();
        let tokens = self.early_tokens.get_or_create(&labels);
        tokens.inc_by(held.usage.total());
        let (time, span) = match held.used {
            true => (&self.early_saved, held.saved),
            false => (&self.early_delayed, held.delayed),
        };
        time.get_or_create(&Before { before }).inc_by(seconds(span));
    }

    fn draft(&self, draft: &DraftRecord) {
        let outcome = match draft.accepted {
            Some(true) => "accepted",
            Some(false) => "rejected",
            None if draft.calls == 0 => "silent",
            None => "unused",
        };
        self.drafts.get_or_create(&Outcome { outcome }).inc();
        self.draft_tokens.inc_by(draft.usage.total());
        self.draft_cost.inc_by(draft.cost);
    }

    fn run(&self, run: &RunRecord, tool: String, rank: Option<usize>) {
        let Some(source) = run.source.map(Source::name) else {
            self.serial.get_or_create(&Tool { tool }).inc();
            return;
        };
        let early = Early {
            tool: tool.clone(),
            source,
        };
        match run.fate {
            Fate::Committed { .. } => {
                self.started.get_or_create(&early).inc();
                self.committed.get_or_create(&early).inc();
                self.rank(&early, rank);
                // Shown as 0, or else the sum of both would be missing.
                self.serial.get_or_create(&Tool { tool }).inc_by(0);
                self.hidden_seconds
                    .get_or_create(&early)
                    .inc_by(seconds(run.saved));
            }
            Fate::Discarded { reason, .. } => {
                let labels = Wasted {
                    tool,
                    source,
                    reason: reason.name(),
                };
                if was_refused(reason) {
                    self.refused_runs.get_or_create(&labels).inc();
                    return;
                }
                self.started.get_or_create(&early).inc();
                self.wasted.get_or_create(&labels).inc();
                self.wasted_seconds
                    .get_or_create(&early)
                    .inc_by(seconds(run.wasted));
                self.wasted_cost.get_or_create(&early).inc_by(run.cost);
            }
        }
    }
}

/// Whether the server never started the run.
pub(crate) fn was_refused(reason: Discard) -> bool {
    matches!(reason, Discard::Budget | Discard::Overloaded)
}

/// How many surer speculative runs waited for a commit when this one was committed; `None` if it was not speculative,
/// or not committed.
pub(crate) fn rank(run: &RunRecord, all: &[RunRecord]) -> Option<usize> {
    let Fate::Committed { at, .. } = run.fate else {
        return None;
    };
    run.source?;
    let waited = |other: &&RunRecord| {
        let until = match other.fate {
            Fate::Committed { at, .. } | Fate::Discarded { at, .. } => at,
        };
        let was_run = !matches!(other.fate, Fate::Discarded { reason, .. } if was_refused(reason));
        other.source.is_some() && was_run && other.started <= at && at <= until
    };
    let waited = all.iter().filter(waited);
    Some(
        waited
            .filter(|other| other.confidence > run.confidence)
            .count(),
    )
}
