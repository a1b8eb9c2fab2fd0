//! Unit tests of runs; whole sessions are in `../../tests/speculation.rs`.

use super::*;
use crate::conversation::client_settings::ClientSettings;
use crate::conversation::experience::Experience;
use crate::conversation::policy::Policy;
use crate::prediction::{Prediction, Source};
use crate::tools::{Effect, ToolSpec};
use serde_json::json;
use std::time::Duration;

/// A session whose only tool looks up the weather of a city and may run early. Each run has its result at once.
struct Session {
    speculation: Speculation,
    common: Common,
    client: ClientSettings,
}

fn of_city(city: &str) -> Map<String, Value> {
    Map::from_iter([("city".to_owned(), json!(city))])
}

impl Session {
    fn new() -> Self {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: "weather".into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
        };
        let mut tool = Declaration::new(spec, Effect::Read, Duration::from_secs(1));
        tool.speculation.eligibility = Eligibility::Full;
        let policy = Policy {
            tools: Arc::new(vec![Arc::new(tool)]),
            ..Policy::default()
        };
        Self {
            speculation: Speculation::default(),
            client: ClientSettings::new(&policy),
            common: Common::new(policy, Experience::default()),
        }
    }

    /// The user has said this so far, for which a rule predicts the weather of a city with this confidence, 0..1.
    fn hears(&mut self, (text, paused): (&str, bool), city: &str, confidence: f32) {
        let speculation = &mut self.speculation;
        speculation.route(&mut self.common, &self.client, text, paused);
        let mut outputs = self.common.outputs.drain(..);
        let request = outputs.find_map(|output| match output {
            Output::Route { request, .. } => Some(request),
            _ => None,
        });
        drop(outputs);
        let prediction = Prediction {
            tool: "weather".into(),
            arguments: of_city(city),
            confidence,
            source: Source::Rule,
            open: Vec::new(),
        };
        self.speculation.on_predicted(
            &mut self.common,
            ClientTools::of(&self.client, None),
            request.expect("a question"),
            vec![prediction],
        );
        self.finish_runs();
    }

    /// A held-back answer to these words calls the tool for this city.
    fn holds_call(&mut self, city: &str) {
        let clients = ClientTools::of(&self.client, None);
        let (speculation, common) = (&mut self.speculation, &mut self.common);
        let track = speculation.listening().id;
        speculation.on_tool_opened(common, clients, track, "weather");
        speculation.on_held_call(common, clients, "weather", of_city(city));
        self.finish_runs();
    }

    fn finish_runs(&mut self) {
        let outputs = self.common.outputs.drain(..);
        let started = outputs.filter_map(|output| match output {
            Output::StartTool { run, .. } => Some(run),
            _ => None,
        });
        for run in started.collect::<Vec<RunId>>() {
            let result = Ok(json!("sunny"));
            self.speculation.finish(&mut self.common, run, result);
        }
    }

    /// The city of the likeliest call whose result is there, and how likely it is, 0..1.
    fn likeliest(&self) -> (Value, f32) {
        let clients = ClientTools::of(&self.client, None);
        let guess = self.speculation.guess_held(&self.common, clients, None);
        let guess = guess.expect("a result");
        (guess.arguments["city"].clone(), guess.confidence)
    }
}

/// It stayed as likely as the answer had made it, and the next answer was generated for the wrong call.
#[test]
fn a_call_of_a_dropped_answer_is_no_likelier_for_other_words() {
    let mut session = Session::new();
    session.hears(("weather in boulder", false), "boulder", 0.2);
    session.holds_call("boulder");
    assert_eq!(session.likeliest(), (json!("boulder"), 0.95));
    // The same words.
    session.hears(("weather in boulder", true), "boulder", 0.2);
    assert_eq!(session.likeliest(), (json!("boulder"), 0.95));
    session.hears(("weather in boulder or rather", false), "boulder", 0.2);
    assert_eq!(session.likeliest(), (json!("boulder"), 0.2));
    // An answer to these words makes the call, too.
    session.holds_call("boulder");
    assert_eq!(session.likeliest(), (json!("boulder"), 0.95));
    session.hears(("weather in boulder or rather denver", true), "denver", 0.9);
    assert_eq!(session.likeliest(), (json!("denver"), 0.9));
}

/// It was surer than any prediction for the words that followed, and the next answer was generated for the wrong call.
#[test]
fn a_call_that_only_a_dropped_answer_has_made_gives_way_to_other_words() {
    let mut session = Session::new();
    session.hears(("weather there", false), "there", 0.2);
    session.holds_call("boulder");
    assert_eq!(session.likeliest(), (json!("boulder"), 0.95));
    session.hears(("weather there or rather denver", true), "denver", 0.9);
    assert_eq!(session.likeliest(), (json!("denver"), 0.9));
    // An answer to these words makes the call after all.
    session.holds_call("boulder");
    assert_eq!(session.likeliest(), (json!("boulder"), 0.95));
}
