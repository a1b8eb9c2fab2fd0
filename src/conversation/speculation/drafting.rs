//! Calls that a draft model samples while the main model generates: which predictions they are, when the samples
//! are stopped, and whether it is worth asking for them.

use super::drafts::{Draft, Sampled, Stage};
use super::gate::{self, Odds};
use super::record::{Discard, DraftRecord};
use super::{Speculation, TrackId};
use crate::conversation::client_settings::{ClientSettings, ClientTools};
use crate::conversation::common::Common;
use crate::conversation::draft::{DraftPolicy, SampledCall};
use crate::conversation::experience::{Experience, Lesson};
use crate::conversation::ids::RequestId;
use crate::conversation::output::Output;
use crate::llm::{Prompt, TokenUsage};
use crate::prediction::{Prediction, Source};
use crate::time::Micros;
use crate::tools::{Declaration, Eligibility, canonical};
use serde_json::{Map, Value};

/// The tries that a tool is credited with in advance, and how many of them were hits: the paper measured an
/// acceptance rate of 0.8.
const PRIOR: (f64, f64) = (4.0, 3.2);

/// The number of drafts after which their costs and savings are trusted.
const KNOWN: usize = 8;

/// The chances of which one is given to a draft model that is not worth its price, so that it can recover.
const TRIAL: u32 = 10;

/// Asking the draft model.
impl Speculation {
    /// Whether to ask the draft model beside a generation with this prompt: it may be asked, and is worth it.
    pub(in crate::conversation) fn wants_draft(
        &mut self,
        common: &mut Common,
        client: &ClientSettings,
        prompt: &Prompt,
    ) -> bool {
        let policy = &common.policy.speculation;
        let Some(draft) = policy.draft else {
            return false;
        };
        let tools = common.policy.tools.iter().chain(client.early.all());
        let may_run = |tool: &&_| gate::eligibility(tool, policy) == Eligibility::Full;
        let tools: Vec<&Declaration> = tools.map(|tool| &**tool).filter(may_run).collect();
        if self.drafts.is_spent || !prompt.may_call() || tools.is_empty() {
            return false;
        }
        let value = policy.value_per_second;
        if is_worth_asking(&common.experience, &tools, draft, value) {
            return true;
        }
        common.learn(Lesson::Undrafted, false);
        common.experience.undrafted().is_multiple_of(TRIAL)
    }

    /// Asks the draft model for calls beside a `generation` of the main model.
    pub(in crate::conversation) fn ask_draft(
        &mut self,
        common: &mut Common,
        track: TrackId,
        generation: RequestId,
        prompt: Prompt,
    ) {
        let Some(policy) = common.policy.speculation.draft else {
            return;
        };
        let (request, samples) = (common.request_id(), policy.samples);
        self.drafts.open.push(Draft {
            request,
            generation,
            track,
            policy,
            began: common.now,
            tokens: prompt.estimate(),
            running: samples,
            usage: TokenUsage::default(),
            called: 0,
            calls: Vec::new(),
            saved: Micros(0),
            missed: Vec::new(),
            stage: Stage::Sampling,
            is_decided: false,
        });
        common.outputs.push_back(Output::AskDraft {
            request,
            prompt,
            samples,
        });
    }

    /// Whether the draft model was asked beside this generation, which goes on.
    pub(in crate::conversation) fn is_drafted(&mut self, generation: RequestId) -> bool {
        self.drafts.of(generation).next().is_some()
    }

    /// Sets whether the day's budget for drafts is spent.
    pub(in crate::conversation) fn set_draft_budget(&mut self, spent: bool) {
        self.drafts.is_spent = spent;
    }
}

/// Its answers.
impl Speculation {
    /// Handles the end of a sample. Its call is a prediction, as confident as the share of all samples that have
    /// made it so far; a plan is the `calls` that it begins with.
    pub(in crate::conversation) fn on_drafted(
        &mut self,
        common: &mut Common,
        clients: ClientTools,
        request: RequestId,
        calls: Vec<SampledCall>,
        usage: TokenUsage,
    ) {
        let mut drafts = self.drafts.open.iter_mut();
        let draft = drafts.find(|draft| draft.request == request && draft.running > 0);
        let Some(draft) = draft else {
            return;
        };
        draft.running -= 1;
        draft.usage.add(usage);
        let track = draft.track;
        let is_in_time = draft.stage == Stage::Sampling;
        draft.called += u32::from(is_in_time && !calls.is_empty());
        let mut predictions = Vec::new();
        for SampledCall { tool, arguments } in calls.into_iter().filter(|_| is_in_time) {
            let declared = clients.declared(&common.policy, &tool);
            let count = draft.count(Sampled {
                tool: tool.clone(),
                by_client: declared.is_some_and(|tool| tool.by_client),
                key: declared.map_or_else(|| arguments.clone(), |tool| canonical(tool, &arguments)),
                count: 1,
                is_committed: false,
            });
            predictions.push(Prediction {
                tool,
                arguments,
                confidence: count as f32 / draft.policy.samples as f32,
                source: Source::Draft,
                open: Vec::new(),
            });
        }
        // No likelier to be committed than the tool's calls were so far.
        for prediction in predictions {
            let rate = acceptance(&common.experience, &prediction.tool) as f32;
            let odds = Odds::of(prediction.confidence.min(rate));
            self.follow(common, clients, (track, Some(request)), prediction, odds);
        }
        self.end_drafts(common, false);
    }

    /// Compares the drafts of this generation with a call that the main model has committed.
    pub(in crate::conversation) fn compare_draft(
        &mut self,
        common: &Common,
        generation: RequestId,
        tool: &Declaration,
        arguments: &Map<String, Value>,
    ) {
        let key = canonical(tool, arguments);
        let track = self.drafts.of(generation).next().map(|draft| draft.track);
        let Some(track) = track else {
            return;
        };
        let run = self.run_for(common, track, tool, arguments);
        let earlier = run.and_then(|run| self.ledger.get(run));
        let earlier = earlier.map_or(Micros(0), |run| run.saved_by(Source::Draft, common.now));
        for draft in self.drafts.of(generation) {
            draft.meet(tool, &key, earlier);
        }
    }

    /// Marks the drafts of a generation that the main model has ended as decided.
    pub(in crate::conversation) fn decide_draft(&mut self, generation: RequestId) {
        for draft in self.drafts.of(generation) {
            draft.is_decided = true;
        }
    }

    /// Stops the samples that are no longer wanted. `going_on`: the generations of the main model that go on, and
    /// whether each has called a tool or answers.
    pub(in crate::conversation) fn watch_drafts(
        &mut self,
        common: &mut Common,
        going_on: [Option<(RequestId, bool)>; 3],
    ) {
        for draft in &mut self.drafts.open {
            let of = going_on.iter().flatten();
            let stage = match of.clone().find(|(of, _)| *of == draft.generation) {
                Some((_, false)) => Stage::Sampling,
                Some((_, true)) => Stage::Stopped,
                None => Stage::Over,
            };
            draft.move_to(common, stage);
        }
        self.end_drafts(common, false);
    }

    /// Stops the drafts of a track that closes for this reason. Returns the records of all drafts that have ended since
    /// this was last called: the samples that are stopped now still tell their tokens, unless the session is over.
    pub(super) fn close_drafts(
        &mut self,
        common: &mut Common,
        track: TrackId,
        reason: Discard,
    ) -> Vec<DraftRecord> {
        for draft in self.drafts.open.iter_mut().filter(|d| d.track == track) {
            draft.move_to(common, Stage::Over);
        }
        self.end_drafts(common, reason == Discard::HungUp);
        std::mem::take(&mut self.drafts.ended)
    }

    /// Ends the drafts whose generation is over and whose samples have all ended, or `at_once`.
    fn end_drafts(&mut self, common: &mut Common, at_once: bool) {
        let has_ended =
            |draft: &mut Draft| draft.stage == Stage::Over && (draft.running == 0 || at_once);
        for draft in self.drafts.open.extract_if(.., has_ended) {
            learn(common, &draft);
            self.drafts.ended.push(draft.record());
        }
    }
}

/// Lessons.
fn learn(common: &mut Common, draft: &Draft) {
    if draft.is_decided {
        let tried: Vec<(String, bool, bool)> = draft
            .likeliest()
            .map(|call| (call.tool.clone(), call.by_client, call.is_committed))
            .chain(
                draft
                    .missed
                    .iter()
                    .map(|(tool, by)| (tool.clone(), *by, false)),
            )
            .collect();
        for (tool, by_client, hit) in tried {
            common.learn(Lesson::Drafted { tool, hit }, by_client);
        }
    }
    let tokens = draft.usage().total();
    let saved = draft.saved;
    common.learn(Lesson::DraftCost { tokens, saved }, false);
}

/// How often the draft has the main model's call of a tool in time, of all times that either of them calls it.
fn acceptance(known: &Experience, tool: &str) -> f64 {
    let (hits, all) = known.drafted(tool);
    (hits as f64 + PRIOR.1) / (all as f64 + PRIOR.0)
}

/// Break-even: whether the draft is right often enough for its calls of at least one of `tools` to start, and saves
/// more than its tokens cost.
fn is_worth_asking(
    known: &Experience,
    tools: &[&Declaration],
    draft: DraftPolicy,
    value_per_second: f64,
) -> bool {
    let (asked, tokens, saved) = known.drafts();
    let gain = saved.0 as f64 / 1e6 * value_per_second;
    if asked >= KNOWN && draft.cost(tokens) > gain {
        return false;
    }
    let was_tried = |tool: &&&Declaration| known.drafted(&tool.spec.name).1 > 0;
    let mut tried = tools.iter().filter(was_tried).peekable();
    let is_right = |tool: &&Declaration| {
        acceptance(known, &tool.spec.name) >= f64::from(tool.speculation.min_confidence)
    };
    tried.peek().is_none() || tried.any(is_right)
}
