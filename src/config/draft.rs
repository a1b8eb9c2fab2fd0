//! The draft model: one of the further models, and what its tokens may cost.

use super::check::{Check, Checked};
use super::error::suggest;
use super::raw::RawDraft;
use super::{AgentConfig, LlmEngine, RemoteLlm, Scope};
use crate::conversation::DraftPolicy;
use std::collections::BTreeMap;

impl Check<'_> {
    /// How the draft model is asked; `None` if none is named.
    pub(super) fn draft_policy(&self, raw: &RawDraft) -> Checked<Option<DraftPolicy>> {
        let samples = self.whole("draft.samples", raw.samples, 1..=9)?;
        let price = self.real("draft.token_price", raw.token_price, 0.0..=100_000.0)?;
        let most = raw.token_cost_per_day;
        let most = self.real("draft.token_cost_per_day", most, 0.0..=1_000_000.0)?;
        if most > 0.0 && price == 0.0 {
            return Err(self.wrong(
                "draft.token_cost_per_day",
                "draft.token_cost_per_day limits what tokens cost, and draft.token_price is 0"
                    .into(),
                "set draft.token_price to the price of a million tokens of the draft model",
            ));
        }
        let policy = DraftPolicy {
            samples,
            token_price: price,
            token_cost_per_day: (most > 0.0).then_some(most),
        };
        Ok((!raw.model.trim().is_empty()).then_some(policy))
    }

    /// The draft model, by its name among the further ones.
    pub(super) fn draft_model(
        &self,
        raw: &RawDraft,
        models: &BTreeMap<String, RemoteLlm>,
        main: &LlmEngine,
        agents: &[AgentConfig],
    ) -> Checked<Option<RemoteLlm>> {
        let name = raw.model.trim();
        if name.is_empty() {
            return Ok(None);
        }
        let has_model = |agent: &AgentConfig| agent.model.is_some();
        // Models need no agents, so none were read.
        let has_agents = self.scope > Scope::Models;
        if has_agents && matches!(main, LlmEngine::Brain) && !agents.iter().any(has_model) {
            return Err(self.wrong(
                "draft.model",
                "draft.model is asked beside a language model on a server, and llm.engine is \"brain\""
                    .into(),
                "select such a model with llm.engine, or remove draft.model",
            ));
        }
        let Some(model) = models.get(name) else {
            let names: Vec<&str> = models.keys().map(String::as_str).collect();
            let fix = match names.is_empty() {
                true => format!("add a section [llm.models.{name}] with base_url and model"),
                false => suggest(name, names),
            };
            let problem = format!("draft.model = \"{name}\" is not among llm.models");
            return Err(self.wrong("draft.model", problem, &fix));
        };
        // Nobody hears what it says.
        let prompts = model.prompts.clone().with_words_before_calls(false);
        Ok(Some(RemoteLlm {
            prompts,
            ..model.clone()
        }))
    }
}
