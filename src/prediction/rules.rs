//! Predictions by rule: regular expressions of a tool's declaration, their captures its arguments.
//!
//! A rule is searched for in the text of the turn, normalised by [`text::normalise`]: lower case, contractions written
//! out, numbers as digits, no "um" or "okay" at its beginning. With `raw:` in front it is searched for in the text as
//! it was transcribed, for what case or punctuation tells. `{number}`, `{unit}` and
//! `{length}` stand for patterns of theirs. A named capture is the argument of that name, brought
//! to the form that the tool's schema wants; a rule whose capture means nothing there, or that
//! leaves a required argument open, predicts nothing.
//!
//! Words around the match only lower the confidence, they forbid nothing: a read that was
//! started in vain is never heard, but costs. So "don't tell me the weather in Rome" and "what was
//! the weather in Rome yesterday" stay visible in a trace and fall below the default threshold
//! (0.5); an operator whose reads are free may set a lower one. A rule that names such words
//! itself ("did i set a timer") means them.

use super::matching::TOLD;
use super::parameters::{Kind, Parameter, Today, as_said, parameters};
use super::{
    Evidence, LocalPredictor, PredictError, Prediction, RouterHints, Source, builtin_rules,
};
use crate::language::en::factuality::Factuality;
use crate::language::en::{dates, mood, rule_syntax, slots, text};
use crate::language::pack;
use crate::language::wording::Wording;
use crate::tools::Declaration;
use crate::tools::builtin;
use jiff::civil::Date;
use regex::{Captures, Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Of a rule that fits a finished text, all arguments read.
const SURE: f32 = 0.9;
/// The text goes on, and an argument that is open yet may be named.
pub(super) const OPEN: f32 = 0.75;
/// The text goes on, and may change an argument at its end.
pub(super) const GROWING: f32 = 0.5;
/// Bytes of compiled programs for all rules together: some hundreds of rules.
const SIZE_LIMIT: usize = 64 << 20;

/// A rule that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    /// No regular expression.
    #[error("tool {tool}, rule {rule:?}: {reason}")]
    Pattern {
        /// The tool.
        tool: String,
        /// The rule as it was written.
        rule: String,
        /// Its fault.
        reason: String,
    },
    /// A capture that is none of the tool's parameters.
    #[error("tool {tool}, rule {rule:?}: it has no parameter {capture}; allowed: {allowed}")]
    Capture {
        /// The tool.
        tool: String,
        /// The rule as it was written.
        rule: String,
        /// The capture's name.
        capture: String,
        /// The tool's parameters.
        allowed: String,
    },
    /// A parameter that the tool requires and the rule never fills.
    #[error(
        "tool {tool}, rule {rule:?}: capture {parameter}, which the tool requires: (?P<{parameter}>..)"
    )]
    Missing {
        /// The tool.
        tool: String,
        /// The rule as it was written.
        rule: String,
        /// The parameter's name.
        parameter: String,
    },
    /// All rules together are too large.
    #[error("the rules are too large to be tried at once: {0}")]
    Size(String),
}

/// Predicts by rules.
#[derive(Debug)]
pub struct Rules {
    tools: Vec<RuledTool>,
    normalised: Rulebook,
    raw: Rulebook,
    /// Words for the required arguments of these tools, with which an unfinished request would end.
    values: BTreeSet<String>,
    today: Today,
}

#[derive(Debug)]
struct RuledTool {
    name: String,
    parameters: Vec<Parameter>,
    takes_day: bool,
    /// It is built in, and the operator has no rules for it.
    has_our_rules: bool,
}

/// Rules that are searched for in the same text, all in one pass.
#[derive(Debug)]
struct Rulebook {
    set: RegexSet,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    tool: usize,
    pattern: Regex,
    /// Signs in its own words: a rule about the past means the past.
    means: Factuality,
}

impl Rules {
    /// The rules of these tools, and ours for the built-in ones among them. Days are read from
    /// `today`.
    ///
    /// # Errors
    /// [`RuleError`] naming tool, rule and what to do.
    pub fn new(tools: &[(Arc<Declaration>, RouterHints)], today: Today) -> Result<Self, RuleError> {
        let mut written = Vec::new();
        for (at, (declaration, hints)) in tools.iter().enumerate() {
            let own = hints.rules.iter().map(String::as_str);
            let builtin = builtin_rules::of(&declaration.spec.name).iter().copied();
            let rules = own.chain(builtin.filter(|_| hints.rules.is_empty()));
            written.extend(rules.map(|rule| (at, &**declaration, rule)));
        }
        let (raw, normalised): (Vec<_>, Vec<_>) = written
            .into_iter()
            .partition(|(_, _, rule)| rule.starts_with("raw:"));
        let tools = tools
            .iter()
            .map(|(declaration, hints)| RuledTool::of(declaration, hints));
        let tools: Vec<RuledTool> = tools.collect();
        let normalised = Rulebook::new(&normalised)?;
        let rules = normalised.rules.iter();
        Ok(Self {
            values: rules
                .flat_map(|rule| rule.values(&tools[rule.tool]))
                .collect(),
            tools,
            normalised,
            raw: Rulebook::new(&raw)?,
            today,
        })
    }

    /// The calls that normalised words ask for, in the order of the rules. `said` is how they were
    /// transcribed: free text and names keep the capitals that they have there. If not `paused`,
    /// the words may go on.
    pub fn read(&self, normalised: &str, said: &str, paused: bool) -> Vec<Prediction> {
        let books = [(&self.normalised, normalised), (&self.raw, said)];
        let mut predictions = Vec::new();
        for (book, words) in books {
            for at in book.set.matches(words) {
                let rule = &book.rules[at];
                let tool = &self.tools[rule.tool];
                let Some(found) = rule.pattern.captures(words) else {
                    continue;
                };
                let Some(filled) = tool.fill(&found, words, said, self.today.date()) else {
                    continue;
                };
                let unsure = match (paused, filled.growing, filled.open) {
                    (true, _, _) => 1.0,
                    (false, true, _) => GROWING,
                    (false, false, true) => OPEN,
                    (false, false, false) => 1.0,
                };
                predictions.push(Prediction {
                    tool: tool.name.clone(),
                    arguments: filled.arguments,
                    confidence: SURE * unsure * rule.meant(tool, &found, words, said),
                    source: Source::Rule,
                    open: Vec::new(),
                });
            }
        }
        predictions
    }

    /// The tools that normalised words would ask for if a value followed: "set a timer for". None of `found`,
    /// which the words ask for as they are.
    fn begun(&self, normalised: &str, found: &[Prediction]) -> Vec<Prediction> {
        let mut begun: Vec<Prediction> = Vec::new();
        if normalised.is_empty() {
            return begun;
        }
        for value in &self.values {
            let words = format!("{normalised} {value}");
            for at in self.normalised.set.matches(&words) {
                let rule = &self.normalised.rules[at];
                let tool = &self.tools[rule.tool];
                if found.iter().chain(&begun).any(|one| one.tool == tool.name) {
                    continue;
                }
                let Some(caught) = rule.pattern.captures(&words) else {
                    continue;
                };
                if tool
                    .fill(&caught, &words, &words, self.today.date())
                    .is_none()
                {
                    continue;
                }
                let open = tool.named_behind(&caught, normalised.len());
                if open.is_empty() {
                    continue;
                }
                begun.push(Prediction {
                    tool: tool.name.clone(),
                    arguments: Map::new(),
                    confidence: SURE * rule.meant(tool, &caught, &words, &words),
                    source: Source::Rule,
                    open,
                });
            }
        }
        begun
    }
}

impl Rules {
    /// The calls of built-in tools that the words ask for in a language other than English. Requests that the user
    /// negates or takes back ask for nothing.
    fn in_other_language(&self, wording: &Wording, evidence: &Evidence) -> Vec<Prediction> {
        let requests = (wording.requests)(&evidence.text);
        let calls = requests.iter().filter_map(|request| {
            let (name, arguments) = request.call()?;
            self.tools
                .iter()
                .find(|tool| tool.name == name && tool.has_our_rules)?;
            let unsure = match (evidence.paused, request.may_grow()) {
                (true, _) => 1.0,
                (false, true) => GROWING,
                (false, false) => OPEN,
            };
            Some(Prediction {
                tool: name.to_owned(),
                arguments,
                confidence: SURE * unsure,
                source: Source::Rule,
                open: Vec::new(),
            })
        });
        calls.collect()
    }
}

impl LocalPredictor for Rules {
    fn source(&self) -> Source {
        Source::Rule
    }

    fn predict(&mut self, evidence: &Evidence) -> Result<Vec<Prediction>, PredictError> {
        let normalised = text::normalise(&evidence.text);
        let core = text::without_fillers(&normalised);
        let mut predictions = self.read(core, &evidence.text, evidence.paused);
        let wording = pack(evidence.language.as_deref()).wording;
        predictions.extend(wording.map_or_else(Vec::new, |wording| {
            self.in_other_language(wording, evidence)
        }));
        if evidence.paused {
            predictions.extend(self.begun(core, &predictions));
        }
        Ok(predictions)
    }
}

struct Filled {
    arguments: Map<String, Value>,
    /// The last words of the text are in an argument that more words could change.
    growing: bool,
    /// An optional argument was not named.
    open: bool,
}

impl RuledTool {
    fn of(declaration: &Declaration, hints: &RouterHints) -> Self {
        let parameters = parameters(declaration, hints);
        let name = declaration.spec.name.clone();
        Self {
            has_our_rules: hints.rules.is_empty() && builtin::is_ours(&declaration.spec),
            name,
            takes_day: parameters
                .iter()
                .any(|one| matches!(one.kind, Kind::Date | Kind::Day)),
            parameters,
        }
    }

    /// The arguments that the captures give; `None` if one means nothing or one is missing.
    fn fill(&self, found: &Captures<'_>, words: &str, said: &str, today: Date) -> Option<Filled> {
        let end = words.trim_end_matches(['!', '.', '?', ' ']).len();
        let mut filled = Filled {
            arguments: Map::new(),
            growing: false,
            open: false,
        };
        for parameter in &self.parameters {
            let Some(caught) = found.name(&parameter.name) else {
                if parameter.required {
                    return None;
                }
                filled.open = true;
                continue;
            };
            let value = parameter.value(caught.as_str(), today)?;
            let value = as_said(&parameter.kind, value, said);
            filled.arguments.insert(parameter.name.clone(), value);
            filled.growing |= caught.end() >= end && parameter.may_grow(caught.as_str());
        }
        // A day that no capture has: the tool takes it, or the words ask for something else.
        let day = found.get(0).and_then(|all| dates::other_day(all.as_str()));
        let parameter = self.parameters.iter().find(|one| one.is_day());
        if let (Some(day), Some(parameter)) = (day, parameter)
            && !filled.arguments.contains_key(&parameter.name)
        {
            let value = as_said(&parameter.kind, parameter.value(day, today)?, said);
            filled.arguments.insert(parameter.name.clone(), value);
        }
        Some(filled)
    }

    /// The required arguments whose words go beyond this place.
    fn named_behind(&self, found: &Captures<'_>, at: usize) -> Vec<String> {
        let behind = self.parameters.iter().filter(|one| {
            let caught = found.name(&one.name);
            one.required && caught.is_some_and(|caught| caught.end() > at)
        });
        behind.map(|one| one.name.clone()).collect()
    }

    /// The words that the rule needs: those of its match without what follows a place's name in it. "The weather in
    /// boulder is nice" needs "weather in boulder".
    fn used<'w>(&self, found: &Captures<'w>) -> &'w str {
        let Some(whole) = found.get(0) else {
            return "";
        };
        let places = self.parameters.iter().filter(|one| one.kind == Kind::Place);
        let mut longer = places.filter_map(|one| {
            let caught = found.name(&one.name)?;
            let name = slots::words_of_a_name(caught.as_str());
            (name.len() < caught.len()).then_some(caught.start() - whole.start() + name.len())
        });
        let end = longer.next().unwrap_or(whole.len());
        &whole.as_str()[..end]
    }

    /// The words around free text, which may say anything: "add a note not to forget the milk" is
    /// no refusal.
    fn around<'w>(&self, found: &Captures<'_>, words: &'w str) -> Cow<'w, str> {
        let mut around = Cow::Borrowed(words);
        for parameter in self.parameters.iter().filter(|one| one.kind == Kind::Text) {
            if let Some(text) = found.name(&parameter.name) {
                around = around.replace(text.as_str(), "it").into();
            }
        }
        around
    }
}

impl Rulebook {
    fn new(written: &[(usize, &Declaration, &str)]) -> Result<Self, RuleError> {
        let mut rules = Vec::new();
        for (tool, declaration, rule) in written {
            rules.push(Rule::new(*tool, declaration, rule)?);
        }
        let patterns = rules.iter().map(|rule| rule.pattern.as_str());
        let set = RegexSetBuilder::new(patterns)
            .case_insensitive(true)
            .size_limit(SIZE_LIMIT)
            .dfa_size_limit(SIZE_LIMIT)
            .build()
            .map_err(|error| RuleError::Size(error.to_string()))?;
        Ok(Self { set, rules })
    }
}

impl Rule {
    fn new(tool: usize, declaration: &Declaration, rule: &str) -> Result<Self, RuleError> {
        let name = || declaration.spec.name.clone();
        let pattern = RegexBuilder::new(&rule_syntax::pattern(rule))
            .case_insensitive(true)
            .build()
            .map_err(|error| RuleError::Pattern {
                tool: name(),
                rule: rule.into(),
                reason: error.to_string(),
            })?;
        let parameters = parameters(declaration, &RouterHints::default());
        let captures: Vec<&str> = pattern.capture_names().flatten().collect();
        let known = |capture: &str| parameters.iter().any(|one| one.name == capture);
        if let Some(capture) = captures.iter().find(|capture| !known(capture)) {
            let names: Vec<&str> = parameters.iter().map(|one| one.name.as_str()).collect();
            return Err(RuleError::Capture {
                tool: name(),
                rule: rule.into(),
                capture: (*capture).to_owned(),
                allowed: names.join(", "),
            });
        }
        let open = |one: &&Parameter| one.required && !captures.contains(&one.name.as_str());
        if let Some(parameter) = parameters.iter().find(open) {
            return Err(RuleError::Missing {
                tool: name(),
                rule: rule.into(),
                parameter: parameter.name.clone(),
            });
        }
        Ok(Self {
            tool,
            pattern,
            // An escape would stick to the word after it: `\bwas`.
            means: Factuality::of(&rule.replace(r"\b", " ")),
        })
    }

    /// The factor for words that deny, remember or suppose something, or only tell it.
    fn meant(&self, tool: &RuledTool, found: &Captures<'_>, words: &str, said: &str) -> f32 {
        let factuality = Factuality::of_clause(&tool.around(found, words));
        let told = match mood::tells(said, &text::normalise(tool.used(found))) {
            true => TOLD,
            false => 1.0,
        };
        told * factuality.discount(self.means, tool.takes_day)
    }

    /// Words for the last required argument of this rule, for the last two, and so on.
    fn values(&self, tool: &RuledTool) -> Vec<String> {
        let captures = self.pattern.capture_names().flatten();
        let captured = captures.filter_map(|name| {
            let mut parameters = tool.parameters.iter();
            parameters.find(|one| one.required && one.name == name)
        });
        let values: Vec<&str> = captured.map(Parameter::example).collect();
        (0..values.len())
            .map(|from| values[from..].join(" "))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Clock, Effect, ToolSpec};
    use jiff::{Timestamp, tz::TimeZone};
    use serde_json::json;
    use std::sync::Arc;
    use std::time::Duration;

    /// Saturday, 21 November 2026.
    struct Still;

    impl Clock for Still {
        fn now(&self) -> Timestamp {
            "2026-11-21T12:00:00Z".parse().unwrap()
        }
    }

    fn declaration(name: &str, parameters: Value) -> Declaration {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: name.into(),
            description: String::new(),
            parameters,
        };
        Declaration::new(spec, Effect::Read, Duration::from_secs(5))
    }

    fn weather(rules: &[&str]) -> (Arc<Declaration>, RouterHints) {
        let schema = json!({
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        });
        let rules = rules.iter().map(|rule| (*rule).to_owned()).collect();
        let hints = RouterHints {
            rules,
            ..RouterHints::default()
        };
        (declaration("get_weather", schema).into(), hints)
    }

    fn flight() -> (Arc<Declaration>, RouterHints) {
        let schema = json!({
            "type": "object",
            "properties": {
                "origin": {"type": "string"},
                "destination": {"type": "string"},
                "date": {"type": "string", "format": "date"},
                "cabin": {"type": "string", "enum": ["economy", "business"]},
            },
            "required": ["destination"],
        });
        let rule = r"\bflights?(?: from (?P<origin>[a-z ]+?))? to (?P<destination>[a-z ]+?)(?: (?P<date>today|tomorrow|(?:on|next|in) .+?))?(?: in (?P<cabin>economy|business))?$";
        let hints = RouterHints {
            rules: vec![rule.into()],
            ..RouterHints::default()
        };
        (declaration("find_flights", schema).into(), hints)
    }

    fn rules(tools: &[(Arc<Declaration>, RouterHints)]) -> Rules {
        Rules::new(tools, Today::new(Arc::new(Still), TimeZone::UTC)).unwrap()
    }

    fn builtins() -> Rules {
        let mut registry = crate::tools::Registry::new();
        builtin::register(&mut registry).unwrap();
        let tools = registry.declarations().into_iter();
        let tools: Vec<_> = tools.map(|one| (one, RouterHints::default())).collect();
        rules(&tools)
    }

    fn predict(rules: &Rules, said: &str, paused: bool) -> Vec<Prediction> {
        let words = text::normalise(said);
        rules.read(text::without_fillers(&words), said, paused)
    }

    fn best(rules: &Rules, text: &str, paused: bool) -> Option<(String, Value, f32)> {
        let mut all = predict(rules, text, paused);
        all.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
        let first = all.into_iter().next()?;
        Some((first.tool, Value::Object(first.arguments), first.confidence))
    }

    const CITY: &str = r"\bweather (?:like )?(?:in|for) (?P<city>.+)$";

    #[test]
    fn captures_are_brought_to_what_the_schema_wants() {
        let rules = rules(&[weather(&[CITY]), flight()]);
        for (text, tool, arguments) in [
            (
                "What's the weather in NYC today?",
                "get_weather",
                json!({"city": "New York"}),
            ),
            (
                "weather for Boulder, Colorado please",
                "get_weather",
                json!({"city": "Boulder, Colorado"}),
            ),
            (
                "Any flights from Boston to Los Angeles next Friday in business?",
                "find_flights",
                json!({"origin": "Boston", "destination": "Los Angeles", "date": "2026-11-27", "cabin": "business"}),
            ),
            (
                "flights to Rome on March fifth",
                "find_flights",
                json!({"destination": "Rome", "date": "2027-03-05"}),
            ),
        ] {
            let (name, found, confidence) = best(&rules, text, true).expect(text);
            assert_eq!((name.as_str(), &found), (tool, &arguments), "{text}");
            assert!(confidence > 0.85, "{text}: {confidence}");
        }
    }

    #[test]
    fn built_in_tools_have_rules() {
        let rules = builtins();
        for (text, tool, arguments) in [
            ("Hey, what time is it?", "get_time", json!({})),
            (
                "What's the time in Tokyo right now?",
                "get_time",
                json!({"place": "Tokyo"}),
            ),
            ("what day is it today", "get_time", json!({})),
            (
                "what timezone is Dallas in",
                "get_time",
                json!({"place": "Dallas"}),
            ),
            (
                "What is twelve times seven?",
                "calculate",
                json!({"expression": "12 * 7"}),
            ),
            (
                "what is the square root of 144",
                "calculate",
                json!({"expression": "sqrt(144)"}),
            ),
            ("15% of 80", "calculate", json!({"expression": "15% of 80"})),
            (
                "What's five miles in kilometres?",
                "convert_units",
                json!({"value": 5, "from": "miles", "to": "kilometers"}),
            ),
            (
                "how many inches are in a foot",
                "convert_units",
                json!({"value": 1, "from": "feet", "to": "inches"}),
            ),
            (
                "What's minus ten Celsius in Fahrenheit?",
                "convert_units",
                json!({"value": -10, "from": "degrees Celsius", "to": "degrees Fahrenheit"}),
            ),
            (
                "What's negative five plus three?",
                "calculate",
                json!({"expression": "-5 + 3"}),
            ),
            ("how long is left on my timer", "list_timers", json!({})),
            ("did I set a timer?", "list_timers", json!({})),
            (
                "Set a timer for 10 minutes and 30 seconds.",
                "set_timer",
                json!({"seconds": 630}),
            ),
            (
                "set a pasta timer for nine minutes",
                "set_timer",
                json!({"seconds": 540, "label": "pasta"}),
            ),
        ] {
            let (name, found, confidence) = best(&rules, text, true).expect(text);
            assert_eq!((name.as_str(), &found), (tool, &arguments), "{text}");
            assert!(confidence > 0.85, "{text}: {confidence}");
        }
        for text in [
            "",
            "I like your voice",
            "what is love",
            "5 people and 3 dogs",
            "how long is the film",
        ] {
            assert_eq!(best(&rules, text, true), None, "{text}");
        }
    }

    fn said_in(rules: &mut Rules, language: &str, said: &str, paused: bool) -> Vec<Prediction> {
        let evidence = Evidence {
            text: said.into(),
            paused,
            language: Some(language.into()),
            ..Evidence::default()
        };
        rules.predict(&evidence).unwrap()
    }

    #[test]
    fn built_in_tools_are_asked_for_in_the_sessions_language() {
        let mut rules = builtins();
        for (language, text, tool, arguments) in [
            (
                "de",
                "Wie spät ist es in Tokio?",
                "get_time",
                json!({"place": "Tokyo"}),
            ),
            (
                "de-AT",
                "Sag mal, welcher Tag ist heute?",
                "get_time",
                json!({}),
            ),
            (
                "de",
                "Was ist zwölf mal sieben?",
                "calculate",
                json!({"expression": "12 * 7"}),
            ),
            (
                "de",
                "Wie viele Kilometer sind fünf Meilen?",
                "convert_units",
                json!({"value": 5.0, "from": "miles", "to": "kilometers"}),
            ),
            ("de", "Welche Timer laufen noch?", "list_timers", json!({})),
            (
                "de",
                "Stell einen Timer auf zehn Minuten.",
                "set_timer",
                json!({"seconds": 600}),
            ),
            (
                "es",
                "¿Qué hora es en Tokio?",
                "get_time",
                json!({"place": "Tokyo"}),
            ),
            ("es-MX", "¿Qué día es hoy?", "get_time", json!({})),
            (
                "es",
                "¿Cuánto es doce por siete?",
                "calculate",
                json!({"expression": "12 * 7"}),
            ),
            (
                "es",
                "¿Cuántos kilómetros son cinco millas?",
                "convert_units",
                json!({"value": 5.0, "from": "miles", "to": "kilometers"}),
            ),
            (
                "es",
                "¿Qué temporizadores quedan?",
                "list_timers",
                json!({}),
            ),
        ] {
            let predicted = said_in(&mut rules, language, text, true);
            let [one] = predicted.as_slice() else {
                panic!("{text}: {predicted:?}");
            };
            assert_eq!(
                (one.tool.as_str(), Value::Object(one.arguments.clone())),
                (tool, arguments)
            );
            assert!(one.confidence > 0.85, "{text}");
        }
    }

    #[test]
    fn no_tool_is_asked_for_by_what_is_refused_or_small_talk_in_another_language() {
        let mut rules = builtins();
        for (language, text) in [
            ("de", "Ich will nicht wissen, wie spät es ist."),
            ("de", "Keinen Timer, bitte."),
            ("de", "Guten Tag, wie geht es Ihnen?"),
            ("de", "Das war ein schöner Tag in Tokio."),
            ("es", "No quiero saber qué hora es."),
            ("es", "Buenos días, ¿cómo está?"),
            // Another language than the session's.
            ("es", "Wie spät ist es in Tokio?"),
            ("fr", "Quelle heure est-il ?"),
        ] {
            assert_eq!(said_in(&mut rules, language, text, true), [], "{text}");
        }
        let said_in_english = Evidence {
            text: "Wie spät ist es in Tokio?".into(),
            paused: true,
            ..Evidence::default()
        };
        assert_eq!(rules.predict(&said_in_english).unwrap(), []);
    }

    #[test]
    fn a_place_that_may_go_on_is_less_sure_in_another_language_too() {
        let mut rules = builtins();
        let mut confidence = |text, paused| said_in(&mut rules, "de", text, paused)[0].confidence;
        assert!(confidence("Wie spät ist es in To", false) < 0.5);
        assert!(confidence("Wie spät ist es", false) > 0.5);
        assert!(confidence("Wie spät ist es in Tokio", true) > 0.85);
    }

    #[test]
    fn a_word_that_completes_nothing_is_no_place() {
        let rules = builtins();
        for text in ["What time is it in though?", "what time is it in please"] {
            let predicted = predict(&rules, text, true);
            let has_place = |one: &Prediction| !one.arguments.is_empty();
            assert!(!predicted.iter().any(has_place), "{text}: {predicted:?}");
        }
        let (_, arguments, _) = best(&rules, "What time is it in Rome though?", true).unwrap();
        assert_eq!(arguments["place"], "Rome");
    }

    #[test]
    fn what_is_denied_past_or_told_stays_below_the_default_threshold() {
        let rules = rules(&[weather(&[CITY]), flight()]);
        for text in [
            "I don't want to know the weather in Rome",
            "no need to check the weather in Rome",
            "what was the weather in Rome",
            "how do I find the weather in Rome",
            "my wife asked about the weather in Rome",
        ] {
            let (_, arguments, confidence) = best(&rules, text, true).expect(text);
            assert_eq!(arguments["city"], "Rome", "{text}");
            assert!(confidence < 0.5, "{text}: {confidence}");
        }
        // A tool that takes a day can be asked about any.
        let (_, _, confidence) = best(&rules, "were there flights to Rome", true).unwrap();
        assert!(confidence > 0.85);
    }

    #[test]
    fn a_rule_that_names_the_past_means_it() {
        let rules = rules(&[weather(&[r"\bwas the weather in (?P<city>\w+)"])]);
        let (_, _, confidence) = best(&rules, "what was the weather in Rome", true).unwrap();
        assert!(confidence > 0.85);
    }

    #[test]
    fn what_may_go_on_is_less_sure_until_a_pause() {
        let rules = rules(&[weather(&[CITY])]);
        let confidence = |text: &str, paused| best(&rules, text, paused).unwrap().2;
        assert!(confidence("weather in New", false) < 0.6);
        assert!(confidence("weather in Tokyo", false) > 0.8);
        assert!(confidence("weather in Tokyo right", false) > 0.8);
        assert!(confidence("weather in Tokyo", true) > 0.8);
        let time = builtins();
        let (_, _, open) = best(&time, "what time is it", false).unwrap();
        let (_, _, closed) = best(&time, "what time is it", true).unwrap();
        assert!(open < closed && open > 0.5);
        let (_, _, sum) = best(&time, "what is 12 times 7", false).unwrap();
        assert!(sum < closed);
    }

    #[test]
    fn a_request_that_a_value_would_complete_has_begun() {
        let mut registry = crate::tools::Registry::new();
        builtin::register(&mut registry).unwrap();
        let tools = registry.declarations().into_iter();
        let tools = tools.map(|one| (one, RouterHints::default()));
        let tools: Vec<_> = tools.chain([weather(&[CITY]), flight()]).collect();
        let mut rules = rules(&tools);
        let mut begun = |said: &str, paused| {
            let evidence = Evidence {
                text: said.into(),
                paused,
                ..Evidence::default()
            };
            let mut all = rules.predict(&evidence).unwrap();
            all.retain(|one| !one.open.is_empty());
            assert!(all.iter().all(|one| one.arguments.is_empty()), "{all:?}");
            let mut named = all.iter().map(|one| (one.tool.clone(), one.open.join(",")));
            named.next()
        };
        for (said, tool, open) in [
            ("Set a timer for", "set_timer", "seconds"),
            ("What's the weather in", "get_weather", "city"),
            ("what is the weather like in the", "get_weather", "city"),
            ("How many kilometers are in", "convert_units", "value,from"),
            ("convert five miles to", "convert_units", "to"),
            ("what is twelve times", "calculate", "expression"),
            ("Are there any flights to", "find_flights", "destination"),
        ] {
            let expected = Some((tool.to_owned(), open.to_owned()));
            assert_eq!(begun(said, true), expected, "{said}");
            assert_eq!(begun(said, false), None, "{said}");
        }
        for said in [
            "",
            "What time is it?",
            "What's the weather in Boston?",
            "Set a timer for ten minutes.",
            "I like it",
            "How are you?",
            "Thank you.",
        ] {
            assert_eq!(begun(said, true), None, "{said}");
        }
    }

    #[test]
    fn raw_rules_see_case_and_punctuation() {
        let schema = json!({
            "type": "object",
            "properties": {"id": {"type": "string"}},
            "required": ["id"],
        });
        let hints = RouterHints {
            rules: vec![r"raw:(?-i:\b(?P<id>[A-Z]{2}-\d{4})\b)".into()],
            ..RouterHints::default()
        };
        let rules = rules(&[(declaration("get_order", schema).into(), hints)]);
        let (_, arguments, _) = best(&rules, "Where is my order AB-1234?", true).unwrap();
        assert_eq!(arguments, json!({"id": "AB-1234"}));
        assert_eq!(best(&rules, "where is my order ab-1234", true), None);
    }

    #[test]
    fn a_bad_rule_is_named_with_its_mending() {
        for (rule, parts) in [
            ("weather in (", ["get_weather", "weather in (", "unclosed"]),
            ("weather in (?P<town>.+)", ["town", "allowed", "city"]),
            ("weather", ["requires", "(?P<city>", "get_weather"]),
        ] {
            let message = Rules::new(&[weather(&[rule])], Today::default())
                .unwrap_err()
                .to_string();
            for part in parts {
                assert!(message.contains(part), "{part}: {message}");
            }
        }
    }

    fn shipped() -> Rules {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tools");
        let declared = crate::tools::declared::load(&folder, &|_| None).unwrap();
        let registry = crate::tools::declared::registry(&declared).unwrap();
        let tools = registry.declarations().into_iter().map(|tool| {
            let hints = registry.hints(&tool.spec.name).cloned();
            (tool, hints.unwrap_or_default())
        });
        rules(&tools.collect::<Vec<_>>())
    }

    #[test]
    fn a_story_about_a_place_asks_for_nothing() {
        let rules = shipped();
        for text in [
            "I love the weather in Spain",
            "my brother says that the weather in Rome is great",
            "the weather in Boulder is nice today",
            "We talked about the weather in Berlin.",
            "I heard the forecast for London",
            "I'm here because of the weather in Chicago",
            "I already know what is on my calendar today",
        ] {
            for paused in [true, false] {
                let confidence = best(&rules, text, paused).map_or(0.0, |(_, _, sure)| sure);
                assert!(confidence < 0.5, "{text}: {confidence}");
            }
        }
        for (text, place) in [
            ("the weather in Paris", "Paris"),
            ("the weather in pairs", "Paris"),
            ("weather in London please", "London"),
            (
                "I was wondering what the weather is like in Denver.",
                "Denver",
            ),
            (
                "I'm on my way home, what's the forecast for Madrid?",
                "Madrid",
            ),
        ] {
            let (_, arguments, confidence) = best(&rules, text, true).expect(text);
            assert_eq!(arguments["place"], place, "{text}");
            assert!(confidence > 0.85, "{text}: {confidence}");
        }
    }

    #[test]
    fn a_day_that_the_tool_cannot_take_is_no_part_of_the_place() {
        let rules = shipped();
        for text in [
            "What is the weather in Rome on Friday?",
            "what's the weather in Rome next week",
            "the forecast for Oslo this weekend",
            "What is the weather on Monday in Berlin",
            "What time is it in a week",
        ] {
            let predicted = predict(&rules, text, true);
            assert!(
                predicted.iter().all(|one| one.arguments.is_empty()),
                "{text}: {predicted:?}"
            );
        }
        let (_, tomorrow, _) = best(&rules, "weather in Rome tomorrow please", true).unwrap();
        assert_eq!(tomorrow, json!({"place": "Rome", "day": "tomorrow"}));
    }
}
