//! The gate and the ledger by themselves, for `cargo bench --bench core`.

use super::gate::{Decision, Odds, Situation, decide};
use super::ledger::{Ledger, Predicted, Run};
use super::record::Discard;
use super::track::TrackId;
use crate::conversation::ids::{CallId, RunId};
use crate::conversation::policy::SpeculationPolicy;
use crate::prediction::Source;
use crate::time::{Micros, Time};
use crate::tools::{Declaration, Effect, Eligibility, ToolSpec};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// One tool and its runs, turn after turn.
#[derive(Debug)]
pub struct Rehearsal {
    tool: Arc<Declaration>,
    policy: SpeculationPolicy,
    ledger: Ledger,
    turns: u64,
}

impl Default for Rehearsal {
    fn default() -> Self {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: "get_forecast".into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
        };
        let mut tool = Declaration::new(spec, Effect::Read, Duration::from_secs(1));
        tool.speculation.eligibility = Eligibility::Full;
        Self {
            tool: Arc::new(tool),
            policy: SpeculationPolicy::default(),
            ledger: Ledger::default(),
            turns: 0,
        }
    }
}

impl Rehearsal {
    /// The gate's decision on a prediction with this confidence.
    pub fn decide(&self, confidence: f32) -> Decision {
        let situation = Situation {
            started: 1,
            started_of_tool: 1,
            running: 0,
            failed: false,
            write_pending: false,
            lacks_result: false,
            expected: Micros::from_ms(800),
        };
        decide(&self.tool, Odds::of(confidence), situation, &self.policy)
    }

    /// A turn with three speculative runs: one is committed, two are discarded. Returns how many records it leaves.
    pub fn turn(&mut self) -> usize {
        self.turns += 1;
        let (track, began) = (TrackId(self.turns), Time::from_ms(1_000 * self.turns));
        let key = |run: u64| Map::from_iter([("city".to_owned(), Value::from(run))]);
        for run in 0..3 {
            let id = RunId(4 * self.turns + run);
            let tool = (&*self.tool.spec.name, Some(&self.tool));
            let mut run = Run::new(id, track, tool, key(run), began);
            run.key = run.arguments.clone();
            run.predicted = Some(Predicted::by(Source::Rule, 0.9));
            self.ledger.insert(run);
        }
        let ended = began + Micros::from_ms(300);
        if let Some(id) = self.ledger.committable(track, &self.tool, &key(1)) {
            self.ledger.finish(id, ended, Ok(json!({ "degrees": 21 })));
            if let Some(run) = self.ledger.get_mut(id) {
                run.calls.push(CallId(self.turns));
                run.committed = Some(ended);
            }
        }
        for id in self.ledger.uncommitted(|run| run.track == track) {
            self.ledger.discard(id, ended, Discard::TurnEnded);
        }
        let records = self.ledger.close(track, ended).len();
        self.ledger.forget_told();
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_leaves_a_record_of_each_run_and_nothing_open() {
        let mut rehearsal = Rehearsal::default();
        assert_eq!(rehearsal.decide(0.9), Decision::Started);
        for _ in 0..3 {
            assert_eq!(rehearsal.turn(), 3);
            assert_eq!(rehearsal.ledger.runs().count(), 0);
        }
    }
}
