//! The phrases that must be audible even if the voice fails.

use super::notes::is_template;
use crate::conversation::{Clauses, Policy};
use crate::language::{ENGLISH, base, pack};
use crate::llm::untrusted::sanitise;
use crate::tools::{Declaration, Fillers};
use crate::tts::Speed;
use serde_json::Map;
use std::collections::{BTreeMap, BTreeSet};

/// Clauses to prepare, so that they can be said when the voice is dead or late, by their primary language and the speed
/// of the agents that say them.
#[derive(Debug, Default)]
pub(super) struct Sayings(BTreeMap<(String, Option<Speed>), Vec<String>>);

impl Sayings {
    /// Adds those of an agent.
    pub(super) fn add(&mut self, policy: &Policy, phone_policy: &Policy) {
        let language = policy.speaker.language.as_deref().unwrap_or(ENGLISH);
        let known = self.0.entry((base(language), policy.speaker.speed));
        let known = known.or_default();
        for text in sayings(policy, phone_policy) {
            if !known.contains(&text) {
                known.push(text);
            }
        }
    }

    /// Those of a voice that speaks this language, or any if `None`, by their speed.
    pub(super) fn of(&self, language: Option<&str>) -> BTreeMap<Option<Speed>, Vec<String>> {
        let language = language.map(base);
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ((spoken, speed), sayings) in &self.0 {
            if language.as_ref().is_none_or(|language| language == spoken) {
                let known = all.entry(*speed).or_default();
                known.extend(sayings.iter().cloned());
            }
        }
        all
    }

    /// All speeds.
    pub(super) fn speeds(&self) -> Vec<Option<Speed>> {
        self.of(None).into_keys().collect()
    }

    /// The languages.
    pub(super) fn languages(&self) -> BTreeSet<String> {
        self.0
            .keys()
            .map(|(language, _)| language.clone())
            .collect()
    }
}

/// The clauses of an agent.
fn sayings(policy: &Policy, phone_policy: &Policy) -> Vec<String> {
    let phrases = policy.phrases().all().map(str::to_owned);
    let greetings =
        [&policy.opening, &phone_policy.opening].map(|opening| opening.greeting.clone());
    let greetings = greetings
        .into_iter()
        .filter(|text| !(text.is_empty() || is_template(text)));
    let language = policy.speaker.language.as_deref();
    let tools = policy.tools.iter();
    let fillers = tools.flat_map(|tool| fixed_fillers(tool, language));
    let sayings = phrases.into_iter().chain(greetings).chain(fillers);
    sayings
        .flat_map(|text| as_clauses(&text, language))
        .collect()
}

/// The clauses that a response in this language cuts a text into: the voice is asked for one at a time.
pub(super) fn as_clauses(text: &str, language: Option<&str>) -> Vec<String> {
    Clauses::of(pack(language), text)
}

/// The fillers of a tool in a language that are the same for every call.
fn fixed_fillers(tool: &Declaration, language: Option<&str>) -> Vec<String> {
    let Fillers { short, long, again } = tool.fillers_in(language);
    let templates = short.iter().chain(long).chain(again);
    let fixed = templates.filter(|template| !template.contains('{'));
    // As the conversation would say them.
    fixed
        .filter_map(|template| crate::tools::say(tool, template, &Map::new(), None))
        .map(|text| sanitise(&text))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Effect, ToolSpec};
    use crate::tts::{Prepared, Scripted, Speaker};
    use std::time::Duration;

    #[test]
    fn fillers_that_are_always_the_same_are_prepared() {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: "get_weather".into(),
            description: String::new(),
            parameters: serde_json::json!({"properties": {"city": {}}}),
        };
        let mut tool = Declaration::new(spec, Effect::Read, Duration::from_secs(1));
        tool.fillers = Fillers {
            short: vec!["Let me look.".into(), "{{ city }}, let me see.".into()],
            long: vec!["This takes  a while. Please bear with me.".into()],
            again: vec!["Still looking.".into()],
        };
        let sayings = fixed_fillers(&tool, None)
            .into_iter()
            .flat_map(|text| as_clauses(&text, None));
        let (prepared, server) = (Prepared::default(), Speaker::default());
        prepared.render(&server, &mut Scripted::new(), sayings);
        let mut cutter = Clauses::default();
        let mut spoken = vec!["Let me look.".to_owned(), "Still looking.".into()];
        spoken.extend(cutter.push("This takes a while. Please bear with me."));
        spoken.extend(cutter.finish());
        assert!(spoken.len() > 2, "{spoken:?}");
        for clause in spoken {
            assert!(prepared.get(&server, &clause).is_some(), "{clause}");
        }
    }
}
