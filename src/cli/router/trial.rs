//! `undertone router try`: which calls words would predict, and whether they would run early.

use crate::cli::engines;
use crate::cli::{print, print_json};
use crate::config::Config;
use crate::conversation::{Because, SpeculationPolicy, verdict};
use crate::language::en::mood::{self, Mood};
use crate::models::Models;
use crate::prediction::{Considered, Evidence, Prediction, Trial};
use crate::tools::declared::{Declared, Kind};
use crate::tools::{Declaration, Eligibility, Registry};
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// Tools farther away are not shown.
const WORTH_SHOWING: f32 = 0.3;

#[derive(Debug, Args)]
pub(in crate::cli) struct Try {
    /// Words as a user says them
    words: String,
    /// The user is still speaking: the words may go on
    #[arg(long)]
    unfinished: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A predicted call.
#[derive(Debug, Serialize)]
struct Call {
    tool: String,
    arguments: Map<String, Value>,
    /// Of all sources together.
    confidence: f32,
    /// Each source's own.
    sources: Vec<(String, f32)>,
    runs_early: bool,
    /// The changes needed for it to run early.
    because: Vec<String>,
}

/// A tool that the words are near to, but that is not predicted.
#[derive(Debug, Serialize)]
struct Near {
    tool: String,
    similarity: f32,
    missing: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    meant: String,
    calls: Vec<Call>,
    near: Vec<Near>,
}

impl Try {
    pub(super) fn run(&self, config: &Config, models: &Models) -> Result<()> {
        let (registry, settings) = engines::predictable(config, models)?;
        let heard = Evidence {
            text: self.words.clone(),
            paused: !self.unfinished,
            language: config.policy.speaker.language.clone(),
            ..Evidence::default()
        };
        let trial = Trial::of(&settings, &heard)?;
        let meant = mood::meant(&self.words).mood;
        let report = report(meant, &trial, &registry, config);
        if self.json {
            return print_json(&report);
        }
        print(text(&report).trim_end())
    }
}

fn report(meant: Mood, trial: &Trial, registry: &Registry, config: &Config) -> Report {
    let call = |prediction: &Prediction| {
        let same = |one: &&Prediction| {
            one.tool == prediction.tool && one.arguments == prediction.arguments
        };
        let named = |one: &Prediction| (one.source.name().to_owned(), one.confidence);
        let tool = registry.declaration(&prediction.tool);
        let because = tool.map_or_else(
            || vec!["there is no such tool".to_owned()],
            |tool| obstacles(tool, prediction.confidence, config),
        );
        Call {
            tool: prediction.tool.clone(),
            arguments: prediction.arguments.clone(),
            confidence: prediction.confidence,
            sources: trial.all.iter().filter(same).map(named).collect(),
            runs_early: because.is_empty(),
            because,
        }
    };
    let near = |one: &Considered| {
        let missing = &one.call.open;
        (!missing.is_empty() && one.likeness.near >= WORTH_SHOWING).then(|| Near {
            tool: one.tool.clone(),
            similarity: one.likeness.near,
            missing: missing.clone(),
        })
    };
    let whole = trial.merged.iter().filter(|one| one.open.is_empty());
    Report {
        meant: mood_name(meant).into(),
        calls: whole.map(call).collect(),
        near: trial.considered.iter().filter_map(near).take(2).collect(),
    }
}

fn mood_name(mood: Mood) -> &'static str {
    match mood {
        Mood::Question => "a question",
        Mood::Request => "a request",
        Mood::Fragment => "words without a verb",
        Mood::Statement => "a statement or a refusal",
    }
}

/// The reason that keeps a call from running early, as something to change.
fn obstacles(tool: &Declaration, confidence: f32, config: &Config) -> Vec<String> {
    let policy: &SpeculationPolicy = &config.policy.speculation;
    let mut obstacles = Vec::new();
    match verdict(tool, policy).because {
        Because::Allowed => {}
        Because::Off => obstacles.push("[speculation] enabled = false in undertone.toml".into()),
        Because::EndsCall => obstacles.push("it ends the conversation".into()),
        Because::Confirmation => obstacles.push("the user has to say yes first".into()),
        Because::Effect => {
            obstacles.push("it may change something: its effect is not \"read\"".into())
        }
        Because::Declaration | Because::Network => {
            let name = &tool.spec.name;
            let mut declared = config.tools.declared.iter();
            let declared = declared.find(|one: &&Declared| one.declaration.spec.name == *name);
            let file = declared.map_or_else(
                || "its declaration".to_owned(),
                |one| one.file.display().to_string(),
            );
            if tool.speculation.eligibility != Eligibility::Full {
                obstacles.push(format!("{file} lacks allow = \"full\" under [speculation]"));
            }
            if tool.network && !tool.speculation.network {
                let local = declared.filter(|one| matches!(one.kind, Kind::Subprocess(_)));
                let local = match local {
                    Some(_) => ", or network = false under [subprocess] if its program uses none",
                    None => "",
                };
                obstacles.push(format!(
                    "{file} lacks network = true under [speculation]{local}"
                ));
            }
        }
    }
    let least = tool.speculation.min_confidence;
    if confidence < least {
        obstacles.push(format!(
            "its confidence is below {least:.2} (min_confidence)"
        ));
    }
    obstacles
}

fn text(report: &Report) -> String {
    let mut text = format!("These words are {}.\n", report.meant);
    if report.calls.is_empty() {
        text += "No call is predicted.\n";
    }
    for call in &report.calls {
        let arguments = Value::Object(call.arguments.clone());
        let sources: Vec<String> = call
            .sources
            .iter()
            .map(|(name, confidence)| format!("{name} {confidence:.2}"))
            .collect();
        let _ = writeln!(
            text,
            "{} {arguments}\n  confidence {:.2} ({})",
            call.tool,
            call.confidence,
            sources.join(", ")
        );
        text += match call.runs_early {
            true => "  runs early\n",
            false => "  does not run early:\n",
        };
        for obstacle in &call.because {
            let _ = writeln!(text, "    {obstacle}");
        }
    }
    for near in &report.near {
        let missing = near.missing.join(", ");
        let Near {
            tool, similarity, ..
        } = near;
        let _ = writeln!(
            text,
            "{tool} is near ({similarity:.2}), but these words name no {missing}"
        );
    }
    text
}
