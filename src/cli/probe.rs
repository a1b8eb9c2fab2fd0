//! `undertone probe`: asks a language model some forty questions and says how to set its entry.

use crate::config::{Config, LlmEngine, RemoteLlm};
use crate::llm::Calls;
use crate::llm::markup::CallForm;
use crate::llm::probe::{Context as Fit, Indexes, ModeReport, Report, probe};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct Probe {
    /// A name under [llm.models]; by default the model of [llm]
    model: Option<String>,
}

impl Probe {
    pub(super) fn run(&self, config: &Config) -> Result<()> {
        let remote = self.remote(config)?;
        let settings = &remote.settings;
        super::print(&format!(
            "{} at {}",
            settings.model,
            settings.base_url.host_str().unwrap_or_default()
        ))?;
        let mut say = |doing: &str| super::print_error(format!("... {doing}"));
        let probing = probe(
            settings,
            &remote.prompts,
            remote.max_prompt_tokens,
            &mut say,
        );
        let report = super::runtime()?
            .block_on(probing)
            .map_err(|error| anyhow!("{}", error.details()))?;
        super::print(&table(&report, remote.max_prompt_tokens))?;
        super::print(&fragment(&report, self.model.as_deref()))?;
        if let Some(cache) = &config.cache {
            remember(cache, remote, report.calls());
        }
        Ok(())
    }

    fn remote<'c>(&self, config: &'c Config) -> Result<&'c RemoteLlm> {
        match (&self.model, &config.llm) {
            (Some(name), _) => config
                .further_llms
                .get(name)
                .with_context(|| format!("there is no [llm.models.{name}] in the configuration")),
            (None, LlmEngine::Remote(remote)) => Ok(remote),
            (None, LlmEngine::Brain) => bail!(
                "llm.engine is \"brain\", which needs no probe: set llm.engine, llm.base_url and llm.model"
            ),
        }
    }
}

fn table(report: &Report, max_prompt_tokens: usize) -> String {
    let (markup, native) = (&report.markup, &report.native);
    let mut lines = vec![format!("{:<26}{:>14}{:>14}", "", "markup", "native")];
    let mut row = |name: &str, of: &dyn Fn(&ModeReport) -> String| {
        lines.push(format!("{name:<26}{:>14}{:>14}", of(markup), of(native)));
    };
    for (at, (kind, _, _)) in markup.kinds.iter().enumerate() {
        row(kind, &|mode| {
            mode.kinds
                .get(at)
                .map_or_else(String::new, |(_, right, all)| format!("{right} of {all}"))
        });
    }
    row("words before a call", &|mode| {
        let (spoke, all) = mode.speaks_before_calls;
        format!("{spoke} of {all}")
    });
    row("calls it cannot write", &|mode| mode.unreadable.to_string());
    row("calls read aloud", &|mode| mode.leaks.to_string());
    row("failed requests", &|mode| mode.failures.0.to_string());
    let names = [
        "first word or call, ms",
        "name of the tool, ms",
        "whole call, ms",
    ];
    for (at, name) in names.into_iter().enumerate() {
        row(name, &|mode| {
            mode.times[at].map_or_else(|| "-".into(), |ms| ms.to_string())
        });
    }
    row("arguments", &|mode| match mode.streams_arguments {
        true => "in pieces".into(),
        false => "at once".into(),
    });
    row("score", &|mode| format!("{:.0} %", 100.0 * mode.score()));
    lines.push(String::new());
    lines.extend(facts(report, max_prompt_tokens));
    lines.join("\n")
}

/// The findings that do not depend on the way of calling tools.
fn facts(report: &Report, max_prompt_tokens: usize) -> Vec<String> {
    let (markup, native) = (&report.markup, &report.native);
    let mut lines = Vec::new();
    let mut fact = |name: &str, text: String| lines.push(format!("{name:<26}{text}"));
    let refused = match report.refused.as_slice() {
        [] => "none".into(),
        names => names.join(", "),
    };
    fact("refused parameters", refused);
    if let Some(effort) = report.effort {
        let text = format!("only \"{effort}\" works of the efforts that were tried");
        fact("reasoning effort", text);
    }
    let forms = report.forms.iter();
    let forms = forms.map(|(form, right, all)| format!("{} {right} of {all}", name_of(*form)));
    fact(
        "form of calls in markup",
        forms.collect::<Vec<_>>().join(", "),
    );
    fact("deltas of native calls", deltas(report));
    fact(
        "thoughts",
        match (report.thinks_first, report.thinks) {
            (true, _) => "in its text, without an opening tag: they would be spoken".into(),
            (false, true) => "kept apart from its speech, but they cost time".into(),
            (false, false) => "none seen".into(),
        },
    );
    fact(
        "prompt cache",
        match report.cache {
            None => "the server does not count tokens".into(),
            Some((0, _)) => "not used, or not reported".into(),
            Some((cached, all)) => format!("{cached} of {all} tokens of a repeated prompt"),
        },
    );
    fact("context", context(&report.context, max_prompt_tokens));
    if let Some(known) = &report.properties {
        let number = |number: Option<u64>| number.map_or("?".into(), |n| n.to_string());
        let (context, slots) = (number(known.context), number(known.slots));
        fact(
            "llama.cpp's server",
            format!("{context} tokens of context, streams at the same time: {slots}"),
        );
        if known.lacks_tools {
            fact(
                "WARNING",
                "its chat template has no tools: llama.cpp offers native calls in a generic form, which streams no \
                 words before a call, or not at all; use calls = \"markup\", or a template with tools (--chat-template-file)"
                    .into(),
            );
        }
    }
    let failure = report.failure.as_deref();
    let untold = |otherwise: &str| format!("cannot be told: {}", failure.unwrap_or(otherwise));
    fact(
        "hanging up",
        match report.stops {
            Some(true) => "stops the server".into(),
            Some(false) => {
                "does not stop the server: the next answer is as late as beside another".into()
            }
            None => untold("an answer is as quick beside another as alone"),
        },
    );
    fact(
        "two streams at once",
        match (report.queues, report.slower) {
            (Some(true), _) => "the second begins when the first is over (one slot)".into(),
            (_, Some(slower)) => format!("each takes {slower:.2} times as long"),
            (_, None) => untold("the answers are too short to compare"),
        },
    );
    for (name, mode) in [("markup", markup), ("native", native)] {
        if let Some(why) = &mode.failures.1 {
            fact(&format!("failure ({name})"), why.clone());
        }
    }
    lines.push(format!("\n{} requests", report.requests));
    if [markup, native]
        .iter()
        .all(|mode| mode.speaks_before_calls.1 == 0)
    {
        lines.push(
            "It called no tool in either way: it can only talk. Choose a larger model for tools."
                .into(),
        );
    }
    lines
}

fn deltas(report: &Report) -> String {
    let Some(shape) = report.shape else {
        return "no native call was made".into();
    };
    let indexes = match shape.indexes {
        Indexes::Own => "each call has an index",
        Indexes::Shared => "the calls share an index",
        Indexes::Absent => "no index",
    };
    let ids = if shape.has_ids { "an id" } else { "no id" };
    format!(
        "{} calls in {} pieces; {indexes} and {ids}",
        shape.calls, shape.pieces
    )
}

fn context(context: &Fit, max_prompt_tokens: usize) -> String {
    let set = |limit: &Option<u64>| match limit {
        Some(limit) => format!("; a llm.max_prompt_tokens of {limit} fits"),
        None => String::new(),
    };
    match context {
        Fit::Fits { tokens, recalls } => {
            let forgets = match recalls {
                Some(false) => ", but the model does not remember its beginning",
                _ => "",
            };
            format!("a prompt of {tokens} tokens arrives whole{forgets}")
        }
        Fit::Recalled => format!(
            "the server does not count tokens, but the model knows the beginning of a prompt of {max_prompt_tokens}"
        ),
        Fit::Cut {
            arrived,
            sent,
            limit,
        } => format!(
            "CUT: of a prompt of {sent} tokens only {arrived} arrive, and llm.max_prompt_tokens is \
             {max_prompt_tokens}; give the server a larger context (Ollama: OLLAMA_CONTEXT_LENGTH), or set {limit}"
        ),
        Fit::Forgotten { limit } => format!(
            "the model forgets the beginning of a prompt of {max_prompt_tokens} tokens, which may have been cut{}",
            set(limit)
        ),
        Fit::Refused { why, limit } => {
            format!(
                "a prompt of {max_prompt_tokens} tokens is refused{}: {why}",
                set(limit)
            )
        }
        Fit::Unknown(why) => format!("cannot be told: {why}"),
    }
}

/// The form as `llm.call_form` names it.
fn name_of(form: CallForm) -> &'static str {
    match form {
        CallForm::Python => "python",
        CallForm::Json => "json",
        CallForm::Hermes => "hermes",
    }
}

/// The settings that follow, as TOML.
fn fragment(report: &Report, model: Option<&str>) -> String {
    let section = model.map_or_else(|| "llm".to_owned(), |name| format!("llm.models.{name}"));
    let mut lines = vec![format!("\n[{section}]")];
    let calls = report.calls();
    lines.push(match calls {
        Calls::Markup => "calls = \"markup\"".into(),
        Calls::Native => "calls = \"native\"".into(),
    });
    if calls == Calls::Markup && report.form != CallForm::default() {
        lines.push(format!("call_form = \"{}\"", name_of(report.form)));
    }
    let mode = match calls {
        Calls::Markup => &report.markup,
        Calls::Native => &report.native,
    };
    let (spoke, all) = mode.speaks_before_calls;
    let is_mute = all > 0 && spoke * 5 < all;
    if is_mute {
        lines.push("speaks_before_calls = false    # it does not, so it is not asked to".into());
    }
    if report.thinks_first {
        lines.push("thinks_first = true            # thoughts have no opening tag".into());
    }
    match (report.effort, report.thinks) {
        (Some(effort), _) => lines.push(format!(
            "reasoning_effort = \"{effort}\"     # the server takes no other that was tried"
        )),
        (None, true) => lines.push(
            "reasoning_effort = \"none\"     # or the server's own switch in extra_body".into(),
        ),
        (None, false) => {}
    }
    if let Some(limit) = report.context.limit() {
        lines.push(format!(
            "max_prompt_tokens = {limit}       # longer prompts do not arrive whole"
        ));
    }
    if !report.refused.is_empty() {
        let names = report.refused.join(", ");
        lines.push(format!(
            "# The server refuses {names}: left out or renamed by itself, at the price of a request."
        ));
    }
    if !report.may_assume() {
        lines.push("\n[speculation]".into());
        lines.push(
            "assumed_per_turn = 0           # a second stream waits for the first, or slows it"
                .into(),
        );
    }
    if is_mute {
        lines.push("\n[filler]".into());
        lines.push(
            "lead = \"router\"                # the model says nothing before its calls".into(),
        );
    }
    lines.join("\n")
}

/// A probe of the past.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Probed {
    pub(super) calls: Calls,
}

type Probes = BTreeMap<String, Probed>;

fn path(cache: &Path) -> PathBuf {
    cache.join("probes.json")
}

fn key(remote: &RemoteLlm) -> String {
    format!("{} {}", remote.settings.base_url, remote.settings.model)
}

fn probes(cache: &Path) -> Probes {
    let text = std::fs::read_to_string(path(cache)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// The last probe of a model.
pub(super) fn last(cache: &Path, remote: &RemoteLlm) -> Option<Probed> {
    probes(cache).remove(&key(remote))
}

fn remember(cache: &Path, remote: &RemoteLlm, calls: Calls) {
    let mut probes = probes(cache);
    probes.insert(key(remote), Probed { calls });
    let write = || -> Result<()> {
        std::fs::create_dir_all(cache)?;
        std::fs::write(path(cache), serde_json::to_vec(&probes)?)?;
        Ok(())
    };
    if let Err(error) = write() {
        tracing::warn!(%error, "the probe's result was not saved for `undertone doctor`");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mode = ModeReport {
            kinds: vec![("one call", 8, 8)],
            ..ModeReport::default()
        };
        Report {
            markup: mode.clone(),
            native: mode,
            form: CallForm::Python,
            forms: Vec::new(),
            requests: 50,
            refused: Vec::new(),
            effort: None,
            thinks: false,
            thinks_first: false,
            cache: None,
            context: Fit::Recalled,
            properties: None,
            shape: None,
            stops: None,
            slower: Some(1.0),
            queues: Some(false),
            failure: None,
        }
    }

    /// A failed request was reported as "an answer is as quick beside another as alone".
    #[test]
    fn what_a_failed_request_leaves_unknown_is_reported_with_its_reason() {
        let failed = Report {
            slower: None,
            queues: None,
            failure: Some("nothing came".into()),
            ..report()
        };
        let facts = facts(&failed, 6_000);
        for name in ["hanging up", "two streams at once"] {
            let fact = facts.iter().find(|fact| fact.starts_with(name));
            let fact = fact.expect("a line");
            assert!(fact.ends_with("cannot be told: nothing came"), "{fact}");
        }
    }

    #[test]
    fn the_fragment_has_what_the_server_needs_and_is_toml() {
        let calls = "\n[llm]\ncalls = \"markup\"";
        assert_eq!(fragment(&report(), None), calls);
        let needs = Report {
            refused: vec!["max_tokens", "temperature"],
            effort: Some("minimal"),
            thinks: true,
            context: Fit::Cut {
                arrived: 4_050,
                sent: 5_700,
                limit: 3_500,
            },
            queues: Some(true),
            ..report()
        };
        let text = fragment(&needs, Some("small"));
        let read: toml::Table = text.parse().expect("TOML");
        let model = &read["llm"]["models"]["small"];
        assert_eq!(model["max_prompt_tokens"].as_integer(), Some(3_500));
        assert_eq!(model["reasoning_effort"].as_str(), Some("minimal"));
        assert!(text.contains("refuses max_tokens, temperature"), "{text}");
        assert_eq!(
            read["speculation"]["assumed_per_turn"].as_integer(),
            Some(0)
        );
    }

    #[test]
    fn a_cut_prompt_is_named_with_the_limit_that_fits() {
        let cut = Fit::Cut {
            arrived: 4_050,
            sent: 5_700,
            limit: 3_500,
        };
        let text = context(&cut, 6_000);
        for part in ["4050", "5700", "6000", "3500", "CUT"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
