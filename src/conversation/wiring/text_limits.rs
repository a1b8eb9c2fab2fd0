//! Refusal of client text that is too long.

use super::Conversation;
use crate::conversation::input::{Input, ResponseTerms, Settings};
use crate::conversation::text_limits::check;

impl Conversation {
    /// Refuses an input with too much text. `true` if it was refused.
    pub(super) fn refuse_long_text(&mut self, input: &Input) -> bool {
        let limits = &self.common.policy.text;
        let (request, checked) = match input {
            Input::Configure(settings) => ("Configure", self.check_settings(settings)),
            Input::AddItem { item, .. } => ("AddItem", limits.check_item(item)),
            Input::Respond { instructions } => {
                let terms = ResponseTerms::of(instructions.clone());
                ("Respond", self.check_terms(&terms))
            }
            Input::RespondWith(terms) => (terms.request(), self.check_terms(terms)),
            Input::Said { text, .. } => ("Said", check("what was said", text, limits.item)),
            _ => return false,
        };
        let Err(message) = checked else {
            return false;
        };
        if matches!(input, Input::Said { last: true, .. }) {
            self.drop_utterance();
        }
        self.common.refuse(request, message);
        true
    }

    fn check_terms(&self, terms: &ResponseTerms) -> Result<(), String> {
        let set = self.client.instructions.as_ref();
        let set = set.map_or(0, |text| text.chars().count());
        let limits = &self.common.policy.text;
        limits.check_terms(terms, set, &self.client.tools)
    }

    /// Existing text counts too, unless `settings` replace it.
    fn check_settings(&self, settings: &Settings) -> Result<(), String> {
        if settings.instructions.is_none() && settings.tools.is_none() {
            return Ok(());
        }
        let instructions = settings.instructions.as_ref();
        let instructions = instructions.or(self.client.instructions.as_ref());
        let instructions = instructions.map_or(0, |text| text.chars().count());
        let tools = settings.tools.as_ref().unwrap_or(&self.client.tools);
        self.common.policy.text.check_set_up(instructions, tools)
    }
}
