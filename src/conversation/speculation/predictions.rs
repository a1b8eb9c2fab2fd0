//! Predictions: requests to the sources, and what follows from their answers.

use super::gate::{self, Decision, Decline, Odds, Situation};
use super::ledger::{Predicted, Run};
use super::record::{Discard, PredictionRecord, SpeculationEvent};
use super::track::Call;
use super::{Speculation, TrackId};
use crate::conversation::client_settings::{ClientSettings, ClientTools};
use crate::conversation::common::Common;
use crate::conversation::ids::{RequestId, RunId};
use crate::conversation::output::{Event, Output};
use crate::llm::ToolChoice;
use crate::prediction::{Evidence, Moment, PastCall, Prediction, Source};
use crate::tools::{Declaration, Eligibility, canonical};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Opened connections stay open for at least this long (reqwest's pool: 90 s).
const STAYS_WARM_MS: u64 = 60_000;

/// Requests.
impl Speculation {
    /// Asks the sources which calls the words so far may need.
    pub(in crate::conversation) fn route(
        &mut self,
        common: &mut Common,
        client: &ClientSettings,
        text: &str,
        paused: bool,
    ) {
        let heard = Evidence {
            moment: Moment::Words,
            text: text.to_owned(),
            paused,
            calls: self.past_calls(),
            language: common.policy.speaker.language.clone(),
        };
        if text.is_empty() || self.listening.asked == heard || !may_speculate(common, client) {
            return;
        }
        self.leave_before_words(common);
        self.ask_router(common, self.listening.id, heard);
    }

    /// Asks the sources which calls may be needed whatever the user is about to say.
    pub(in crate::conversation) fn route_before_words(
        &mut self,
        common: &mut Common,
        client: &ClientSettings,
        moment: Moment,
    ) {
        let heard = Evidence {
            moment,
            calls: self.past_calls(),
            ..Evidence::default()
        };
        if !self.listening.asked.text.is_empty() || !may_speculate(common, client) {
            return;
        }
        // On a noisy line nothing is fetched again and again: a result that expires a second time stays.
        let mut expired = self.expired(common);
        expired.retain(|(_, call)| !self.listening.restarted.contains(call));
        if self.listening.asked == heard && expired.is_empty() {
            return;
        }
        for (run, call) in expired {
            self.discard(common, run, Discard::Expired);
            self.listening.allow_restart(call);
        }
        self.ask_router(common, self.listening.id, heard);
    }

    /// Handles the first words: they have limits of their own, and results that are too old may be fetched again.
    fn leave_before_words(&mut self, common: &mut Common) {
        if !self.listening.is_before_words() {
            return;
        }
        for (run, _) in self.expired(common) {
            self.discard(common, run, Discard::Expired);
        }
        self.listening.renew_limits();
    }

    /// The uncommitted runs of the current utterance whose results are too old, with their calls.
    fn expired(&self, common: &Common) -> Vec<(RunId, Call)> {
        let runs = self.ledger.runs().filter(|run| {
            let tool = run.declaration.as_deref();
            run.track == self.listening.id
                && !run.is_committed()
                && !run.is_superseded()
                && tool.is_some_and(|tool| self.ledger.is_expired(run.id, tool, common.now))
        });
        let runs = runs.map(|run| (run.id, (run.tool.clone(), run.key.clone())));
        runs.collect()
    }

    /// Asks the sources which calls may follow the last one.
    pub(in crate::conversation) fn route_after_call(
        &mut self,
        common: &mut Common,
        client: &ClientSettings,
    ) {
        let calls = self.past_calls();
        let Some(track) = &self.answering else {
            return;
        };
        let heard = Evidence {
            moment: Moment::Words,
            calls,
            ..track.asked.clone()
        };
        if track.asked == heard || !may_speculate(common, client) {
            return;
        }
        let id = track.id;
        self.ask_router(common, id, heard);
    }

    fn ask_router(&mut self, common: &mut Common, track: TrackId, heard: Evidence) {
        let request = common.request_id();
        let asked = self.track(track);
        if asked.is_some_and(|track| track.ask(request, heard.clone())) {
            self.ledger.unconfirm(track);
        }
        self.routes.insert(request, track);
        common.outputs.push_back(Output::Route { request, heard });
    }

    fn past_calls(&self) -> Vec<PastCall> {
        self.past.iter().map(|(_, call)| call.clone()).collect()
    }
}

fn may_speculate(common: &Common, client: &ClientSettings) -> bool {
    let policy = &common.policy.speculation;
    let may = |tool: &Arc<Declaration>| gate::eligibility(tool, policy) > Eligibility::Forbid;
    let mut tools = common.policy.tools.iter().chain(client.early.all());
    client.tool_choice != ToolChoice::None && tools.any(may)
}

/// Answers.
impl Speculation {
    /// Handles an answer of the sources, complete or partial; more may follow.
    pub(in crate::conversation) fn on_predicted(
        &mut self,
        common: &mut Common,
        clients: ClientTools,
        request: RequestId,
        mut predictions: Vec<Prediction>,
    ) {
        let Some(id) = self.routes.get(&request).copied() else {
            return;
        };
        // Earlier requests were about fewer words, so their answers are dead. This request stays open: a
        // slower source may add to its answer.
        self.routes
            .retain(|asked, of| *of != id || *asked >= request);
        let is_last = !self
            .routes
            .iter()
            .any(|(asked, of)| *of == id && *asked > request);
        let Some(track) = self.track(id) else {
            return;
        };
        track.answered(request);
        if is_last {
            track.unanswered = false;
            if !track.is_before_words() {
                predictions.iter().for_each(|one| track.request.hears(one));
            }
        }
        predictions.retain(|one| one.open.is_empty());
        for one in &predictions {
            track.candidates.remove(&one.tool);
        }
        self.supersede(common, clients, id, &predictions);
        for prediction in predictions {
            let odds = Odds::of(prediction.confidence);
            self.follow(common, clients, (id, Some(request)), prediction, odds);
        }
    }

    /// Discards runs of tools that are now predicted only with other arguments. A result that is there already is kept:
    /// the next words may speak for it again.
    fn supersede(
        &mut self,
        common: &mut Common,
        clients: ClientTools,
        track: TrackId,
        predictions: &[Prediction],
    ) {
        let mut wanted: BTreeMap<&str, Vec<Map<String, Value>>> = BTreeMap::new();
        for prediction in predictions {
            if let Some(tool) = clients.declared(&common.policy, &prediction.tool) {
                let keys = wanted.entry(&prediction.tool).or_default();
                keys.push(canonical(tool, &prediction.arguments));
            }
        }
        let outdated = |run: &Run| {
            let others = wanted.get(run.tool.as_str());
            run.track == track
                && !run.is_streamed()
                && !self.drafts.have(run)
                && others.is_some_and(|keys| !keys.contains(&run.key))
        };
        for run in self.ledger.uncommitted(outdated) {
            if !self.ledger.supersede(run, true) {
                self.discard(common, run, Discard::Superseded);
            }
        }
    }

    /// Handles the prediction of a call that has begun early: a result that was superseded counts again. One that is too
    /// old is dropped once it may be needed: in mid-sentence it would be fetched again and again.
    fn take_up_again(
        &mut self,
        common: &mut Common,
        id: TrackId,
        tool: &Declaration,
        key: &Map<String, Value>,
        source: Source,
    ) {
        let may_be_needed = source == Source::Stream || self.may_be_said(id);
        let run = self.ledger.same(id, tool, key);
        let run = run.and_then(|run| self.ledger.get(run));
        let Some(run) = run.filter(|run| !run.is_committed()).map(|run| run.id) else {
            return;
        };
        if may_be_needed && self.ledger.is_expired(run, tool, common.now) {
            self.discard(common, run, Discard::Expired);
        } else {
            self.ledger.supersede(run, false);
        }
    }

    /// Whether the words of a track may be complete.
    fn may_be_said(&self, id: TrackId) -> bool {
        id != self.listening.id || self.listening.asked.paused
    }

    /// Handles the prediction of a call that another one has started: the model's stream confirms it, and any second
    /// source may be sure enough to have begun it as well.
    fn meet_again(
        &mut self,
        common: &Common,
        id: TrackId,
        (tool, key): (&Declaration, &Map<String, Value>),
        source: Source,
        odds: Odds,
    ) {
        let Some(run) = self.ledger.same(id, tool, key) else {
            return;
        };
        if source == Source::Stream {
            self.ledger.confirm(run, odds.call);
        }
        let expected = super::expected(&common.experience, &tool.spec.name, 0.5);
        let begun = self.ledger.get_mut(run);
        let begun = begun.and_then(|run| run.predicted.as_mut());
        if let Some(begun) = begun.filter(|begun| begun.source != source)
            && gate::would_begin(tool, odds, expected, &common.policy.speculation)
        {
            begun.rivalled.get_or_insert(common.now);
        }
    }

    /// Passes a prediction through the gate and carries out the decision. `asked` is the question that it answers.
    /// Returns the run that it started.
    pub(super) fn follow(
        &mut self,
        common: &mut Common,
        clients: ClientTools,
        (id, asked): (TrackId, Option<RequestId>),
        mut prediction: Prediction,
        odds: Odds,
    ) -> Option<RunId> {
        let tool = clients.declared(&common.policy, &prediction.tool).cloned();
        if let Some(tool) = &tool {
            tool.without_fixed(&mut prediction.arguments);
        }
        let mut started = None;
        let decision = match tool {
            None => Decision::Declined(Decline::UnknownTool),
            Some(tool) => {
                let key = canonical(&tool, &prediction.arguments);
                self.take_up_again(common, id, &tool, &key, prediction.source);
                let decision = self.judge(common, id, &tool, &key, odds);
                match decision {
                    Decision::Started => {
                        started = Some(self.start_early(common, id, &tool, key, &prediction));
                    }
                    Decision::WarmedUp => self.warm_up(common, &prediction.tool),
                    Decision::Known => {
                        self.meet_again(common, id, (&tool, &key), prediction.source, odds);
                    }
                    Decision::Declined(_) => {}
                }
                decision
            }
        };
        let record = PredictionRecord {
            at: common.now,
            tool: prediction.tool.clone(),
            source: prediction.source,
            confidence: prediction.confidence,
            decision,
        };
        common.notify(Event::Speculation(SpeculationEvent::Predicted {
            prediction: record.clone(),
            arguments: prediction.arguments.clone(),
        }));
        if let Some(track) = self.track(id) {
            track.predictions.push(record);
            track.consider(asked, prediction);
        }
        started
    }

    fn judge(
        &mut self,
        common: &Common,
        id: TrackId,
        tool: &Declaration,
        key: &Map<String, Value>,
        odds: Odds,
    ) -> Decision {
        let name = &tool.spec.name;
        let policy = &common.policy.speculation;
        let is_handed = self.track(id).is_some_and(|track| {
            let mut handed = track.handed.iter();
            handed.any(|(of, arguments)| of == name && arguments == key)
        });
        if gate::eligibility(tool, policy) == Eligibility::Full
            && (is_handed || self.ledger.same(id, tool, key).is_some())
        {
            return Decision::Known;
        }
        let write_pending = self.write_pending(&tool.reads);
        let lacks_result = self.results.lack_one_for(tool);
        let running = self.ledger.speculating();
        let expected = super::expected(&common.experience, name, 0.5);
        let track = self.track(id);
        let failed = track
            .as_ref()
            .is_some_and(|track| track.failed.contains(&(name.clone(), key.clone())));
        let (started, started_of_tool) = track
            .map(|track| {
                let of_tool = track.started.get(name).copied().unwrap_or(0);
                (track.started.values().sum(), of_tool)
            })
            .unwrap_or_default();
        let situation = Situation {
            started,
            started_of_tool,
            running,
            failed,
            write_pending,
            lacks_result,
            expected,
        };
        gate::decide(tool, odds, situation, policy)
    }

    fn start_early(
        &mut self,
        common: &mut Common,
        track: TrackId,
        tool: &Arc<Declaration>,
        key: Map<String, Value>,
        prediction: &Prediction,
    ) -> RunId {
        let run = common.run_id();
        let name = &tool.spec.name;
        if let Some(track) = self.track(track) {
            *track.started.entry(name.clone()).or_default() += 1;
        }
        self.ledger.insert(Run {
            predicted: Some(Predicted::by(prediction.source, prediction.confidence)),
            cost: tool.speculation.cost,
            key,
            ..Run::new(
                run,
                track,
                (name, Some(tool)),
                prediction.arguments.clone(),
                common.now,
            )
        });
        common.outputs.push_back(Output::StartTool {
            run,
            committed: None,
            name: name.clone(),
            arguments: prediction.arguments.clone(),
            by_client: tool.by_client,
            taken: self.results.taken_by(Some(tool), None),
        });
        common.notify(Event::Speculation(SpeculationEvent::Started {
            at: common.now,
            run,
            tool: name.clone(),
            arguments: prediction.arguments.clone(),
            source: prediction.source,
            confidence: prediction.confidence,
            by_client: tool.by_client,
        }));
        run
    }

    /// Handles changed tools of the client: discards runs of tools that have changed.
    pub(in crate::conversation) fn withdraw(&mut self, common: &mut Common, clients: ClientTools) {
        let is_other = |run: &Run| {
            let now = clients.declared(&common.policy, &run.tool);
            now != run.declaration.as_ref()
        };
        for run in self.ledger.uncommitted(is_other) {
            self.discard(common, run, Discard::Withdrawn);
        }
    }

    /// Handles a handoff: discards everything that was started for the previous agent.
    pub(in crate::conversation) fn change_agent(&mut self, common: &mut Common) {
        self.discard_all(common, Discard::AgentChanged);
    }

    /// Nothing runs early from now on: discards what was begun, and ignores answers that have not come yet.
    pub(in crate::conversation) fn stop(&mut self, common: &mut Common) {
        self.routes.clear();
        self.discard_all(common, Discard::Withdrawn);
    }

    fn discard_all(&mut self, common: &mut Common, reason: Discard) {
        for run in self.ledger.uncommitted(|_| true) {
            self.discard(common, run, reason);
        }
    }

    pub(super) fn warm_up(&mut self, common: &mut Common, name: &str) {
        let warm = self.warmed.get(name);
        if warm.is_some_and(|at| common.now.since(*at).as_ms() < STAYS_WARM_MS) {
            return;
        }
        self.warmed.insert(name.to_owned(), common.now);
        let tool = name.to_owned();
        common.outputs.push_back(Output::WarmUp { tool });
    }
}
