//! `undertone router`: tries words, and trains and evaluates the intent classifier.

mod trial;

use super::engines;
use crate::config::{Config, Scope};
use crate::models::Models;
use crate::prediction::training::evaluation::{CurvePoint, Evaluation, Latency, evaluate};
use crate::prediction::training::examples::{self, DataSet, Example, Part};
use crate::prediction::{
    Embedder, Evidence, Heads, IntentHead, LocalPredictor, RouterHints, Rules, Today, embed_all,
};
use crate::tools::{Registry, builtin};
use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How many intents a warning names.
const SHOWN: usize = 10;

const FORMATS: &str = "\
DATA is a file or a folder:
  NAME.jsonl    one example a line:
                {\"text\": \"weather in Rome\", \"intent\": \"get_weather\", \"slots\": {\"city\": \"Rome\"}}
                An intent is a tool's name, or \"none\" for what asks for nothing. \"slots\" (words of
                the text, by parameter) and \"split\" (train, val or test) may be missing.
  NAME.json     {\"train\": [[text, intent], ..], \"val\": .., \"oos_train\": ..}, as CLINC150
  a folder of train_INTENT.json files, as SNIPS
  a folder with any of these: each set gets a head of its own
Without a split, every tenth example is held out to measure with; it is not trained on.";

/// `undertone router ..`
#[derive(Debug, Subcommand)]
pub(super) enum Router {
    /// Show which calls words would predict, from which source, and whether they would run early
    Try(trial::Try),
    /// Train the intent classifier on examples
    #[command(after_help = FORMATS)]
    Train(Train),
    /// Measure accuracy, rejection, slots, latency, and accuracy on partial transcripts
    #[command(after_help = FORMATS)]
    Eval(Eval),
}

#[derive(Debug, Args)]
pub(super) struct Train {
    #[command(flatten)]
    examples: Examples,
    /// The file for the trained head
    #[arg(long, value_name = "FILE.json")]
    out: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct Eval {
    #[command(flatten)]
    examples: Examples,
    /// Evaluate this head; by default one is trained first and discarded
    #[arg(long, value_name = "FILE.json")]
    head: Option<PathBuf>,
    /// How many requests of each set to use for the accuracy on partial transcripts; 0 for none
    #[arg(long, value_name = "N", default_value_t = 300)]
    curve: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Examples {
    /// Examples: a file or a folder
    data: PathBuf,
    /// Also train on the examples in the [router] tables of the tools declared here
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,
    /// Share of requests that the threshold should accept, 0..1
    #[arg(long, value_name = "SHARE", default_value_t = 0.9)]
    coverage: f32,
}

impl Router {
    /// The part of the configuration that it uses.
    pub(super) fn scope(&self) -> Scope {
        match self {
            Self::Try(_) => Scope::Server,
            Self::Train(_) | Self::Eval(_) => Scope::Models,
        }
    }

    pub(super) fn run(&self, config: &Config) -> Result<()> {
        let models = engines::with_runtime(config)?;
        match self {
            Self::Try(words) => words.run(config, &models),
            Self::Train(train) => train.run(&models),
            Self::Eval(eval) => eval.run(&models),
        }
    }
}

impl Train {
    fn run(&self, models: &Models) -> Result<()> {
        let sets = self.examples.read()?;
        let heads = self.examples.train(&sets, models)?;
        heads.save(&self.out)?;
        let bytes = std::fs::metadata(&self.out)?.len();
        super::print(&format!(
            "{}: {} heads, {:.1} MB",
            self.out.display(),
            heads.heads.len(),
            bytes as f64 / 1e6
        ))
    }
}

impl Examples {
    fn read(&self) -> Result<Vec<DataSet>> {
        ensure!(
            self.coverage > 0.0 && self.coverage <= 1.0,
            "--coverage {}: expected a share above 0 and up to 1",
            self.coverage
        );
        let mut sets = examples::read(&self.data)?;
        if let Some(folder) = &self.tools {
            let tools = declared(folder)?;
            if let Some(told) = of_no_tool(&sets, &tools, folder) {
                super::print_error(told);
            }
            add_tools(&mut sets, tool_examples(tools));
        }
        Ok(sets)
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "it measures how long the router takes"
    )]
    fn train(&self, sets: &[DataSet], models: &Models) -> Result<Heads> {
        let mut heads = Vec::new();
        for set in sets {
            let start = Instant::now();
            let embed = |texts: &[String]| embed_all(&models.minilm(), texts);
            let head = IntentHead::train(set, self.coverage, embed)
                .with_context(|| format!("cannot train on {}", set.name))?;
            tracing::info!(
                set = set.name,
                examples = set.training().len(),
                intents = head.intents().len(),
                seconds = start.elapsed().as_secs_f32(),
                "trained"
            );
            heads.push(head);
        }
        Ok(Heads::new(heads))
    }
}

/// Adds the examples to a set that shares an intent with them, or else as a set of their own.
fn add_tools(sets: &mut Vec<DataSet>, examples: Vec<Example>) {
    let knows = |set: &DataSet| {
        let known = |example: &Example| set.examples.iter().any(|e| e.intent == example.intent);
        examples.iter().any(known)
    };
    match sets.iter_mut().find(|set| knows(set)) {
        Some(set) => set.examples.extend(examples),
        None if examples.is_empty() => {}
        None => sets.push(DataSet {
            name: "tools".into(),
            examples,
        }),
    }
}

/// The part of a tool's declaration that is needed here.
#[derive(Deserialize)]
struct Declared {
    name: String,
    #[serde(default)]
    router: DeclaredHints,
}

#[derive(Default, Deserialize)]
struct DeclaredHints {
    #[serde(default)]
    examples: Vec<String>,
    #[serde(default)]
    intents: Vec<String>,
}

/// A warning about intents that ask for none of these tools; `None` if there are none.
fn of_no_tool(sets: &[DataSet], tools: &[Declared], folder: &Path) -> Option<String> {
    let is_asked_by = |tool: &Declared, intent: &String| {
        tool.name == *intent || tool.router.intents.contains(intent)
    };
    let always_there = builtin::always_there();
    let intents = sets.iter().flat_map(|set| &set.examples);
    let intents: BTreeSet<&str> = intents
        .map(|example| &example.intent)
        .filter(|intent| *intent != examples::NONE && !always_there.contains(intent))
        .filter(|intent| !tools.iter().any(|tool| is_asked_by(tool, intent)))
        .map(String::as_str)
        .collect();
    let shown: Vec<&str> = intents.iter().copied().take(SHOWN).collect();
    let more = match intents.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!intents.is_empty()).then(|| {
        format!(
            "no tool in {} has these intents, so they call nothing: {}{more}; a tool may list more than \
             its name in router.intents",
            folder.display(),
            shown.join(", ")
        )
    })
}

fn declared(folder: &Path) -> Result<Vec<Declared>> {
    let entries = folder
        .read_dir()
        .with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    paths.sort();
    let read = |path: PathBuf| -> Result<Declared> {
        let text = std::fs::read_to_string(&path)?;
        toml::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
    };
    paths.into_iter().map(read).collect()
}

fn tool_examples(tools: Vec<Declared>) -> Vec<Example> {
    let examples = |tool: Declared| {
        let texts = tool.router.examples.into_iter();
        texts.map(move |text| Example {
            text,
            intent: tool.name.clone(),
            slots: Vec::new(),
            part: Part::Train,
        })
    };
    tools.into_iter().flat_map(examples).collect()
}

/// The results of `eval`.
#[derive(Serialize)]
struct Report {
    sets: Vec<Evaluation>,
    /// Latency of the built-in tools' rules on the same texts, including normalisation.
    rules: Latency,
}

impl Eval {
    fn run(&self, models: &Models) -> Result<()> {
        let sets = self.examples.read()?;
        let heads = match &self.head {
            Some(path) => Heads::load(path)?,
            None => self.examples.train(&sets, models)?,
        };
        let mut embedder = Embedder::load(&models.minilm())?;
        let mut report = Report {
            sets: Vec::new(),
            rules: rules_latency(&sets)?,
        };
        for set in sets {
            let head = head_for(&heads, &set)?;
            let set = unseen(set, head);
            let embed = |text: &str| embedder.embed(text);
            let figures = evaluate(&set.name, head, &set.measuring(), self.curve, embed)?;
            report.sets.push(figures);
        }
        if self.json {
            return super::print_json(&report);
        }
        let lines = report.sets.iter().flat_map(lines);
        for line in lines.chain([latency_line("rules", report.rules)]) {
            super::print(&line)?;
        }
        Ok(())
    }
}

/// The head that was trained on the set of this name, or else one that knows all of its intents.
fn head_for<'h>(heads: &'h Heads, set: &DataSet) -> Result<&'h IntentHead> {
    let same = heads.heads.iter().find(|head| head.name == set.name);
    let knows_all = |head: &&IntentHead| {
        let known = |example: &Example| {
            example.intent == examples::NONE || head.intents().contains(&example.intent)
        };
        set.examples.iter().all(known)
    };
    same.or_else(|| heads.heads.iter().find(knows_all))
        .with_context(|| format!("no head has been trained on the intents of {}", set.name))
}

/// Uses all examples for testing if the head was trained on another set and the set has no split. A set of the head's
/// name is the same one, even if there is more in it now.
fn unseen(set: DataSet, head: &IntentHead) -> DataSet {
    let has_split = set.examples.iter().any(|e| e.part == Part::Test);
    if has_split || head.fingerprint == set.fingerprint() {
        return set;
    }
    if head.name != set.name {
        return set.all_as(Part::Test);
    }
    super::print_error(format!(
        "the head was trained on a set named {}, so only what was held out of it is measured; a set of another name is \
         measured whole",
        set.name
    ));
    set
}

#[allow(
    clippy::disallowed_methods,
    reason = "it measures how long the router takes"
)]
fn rules_latency(sets: &[DataSet]) -> Result<Latency> {
    let mut registry = Registry::new();
    builtin::register(&mut registry)?;
    let tools = registry.declarations().into_iter();
    let tools: Vec<_> = tools.map(|tool| (tool, RouterHints::default())).collect();
    let mut rules = Rules::new(&tools, Today::default())?;
    let measured = sets.iter().flat_map(DataSet::measuring);
    let heard: Vec<Evidence> = measured
        .map(|example| Evidence {
            text: example.text.clone(),
            paused: true,
            ..Evidence::default()
        })
        .collect();
    let mut times = Vec::with_capacity(heard.len());
    // The first pass warms up lazily built state.
    for _ in 0..2 {
        times.clear();
        for heard in &heard {
            let start = Instant::now();
            rules.predict(heard)?;
            times.push(start.elapsed());
        }
    }
    Ok(Latency::of(&times))
}

fn lines(set: &Evaluation) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{}: {} requests, {} that ask for nothing",
            set.set, set.requests, set.nothing
        ),
        format!(
            "  intent right                    {}",
            percent(set.accuracy)
        ),
        format!(
            "  nothing rejected, 90 % answered {}",
            percent(set.rejected_at_90)
        ),
        format!(
            "  at the head's threshold: answered {}, right of those {}, nothing rejected {}",
            percent(set.operating.coverage),
            percent(set.operating.accuracy),
            percent(set.operating.rejected)
        ),
    ];
    if set.requests + set.nothing == 0 {
        lines.push(
            "  nothing is measured: none of its examples is held out; give more of them, or mark some with \
             \"split\": \"test\""
                .into(),
        );
    }
    if let Some(slots) = set.slots {
        lines.push(format!(
            "  slots: F1 {}, precision {}, recall {}",
            percent(Some(slots.f1)),
            percent(Some(slots.precision)),
            percent(Some(slots.recall))
        ));
    }
    for (right, found, count) in &set.confusions {
        lines.push(format!("  {count:>4} x {right} taken for {found}"));
    }
    lines.extend(set.curve.iter().map(curve_line));
    lines.push(latency_line("  embedding, head and slots", set.latency));
    lines
}

fn curve_line(point: &CurvePoint) -> String {
    format!(
        "  {:>3} % heard: right {}, answered {}, right of those {}",
        point.heard_percent,
        percent(Some(point.accuracy)),
        percent(Some(point.answered)),
        percent(point.accuracy_of_answered)
    )
}

fn latency_line(what: &str, latency: Latency) -> String {
    format!(
        "{what}: p50 {:.1} us, p99 {:.1} us",
        latency.p50_us, latency.p99_us
    )
}

fn percent(share: Option<f32>) -> String {
    share.map_or("   -  ".into(), |share| format!("{:5.1} %", 100.0 * share))
}
