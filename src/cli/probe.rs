//! `undertone probe`: asks a language model some forty questions and says how to set its entry.

use crate::config::{Config, LlmEngine, RemoteLlm};
use crate::llm::Calls;
use crate::llm::markup::CallForm;
use crate::llm::probe::{Context as Fit, ModeReport, Report, probe};
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
    fact(
        "refused parameters",
        match report.refused.as_slice() {
            [] => "none".into(),
            names => names.join(", "),
        },
    );
    let forms = report.forms.iter();
    let forms = forms.map(|(form, right, all)| format!("{} {right} of {all}", name_of(*form)));
    fact(
        "form of calls in markup",
        forms.collect::<Vec<_>>().join(", "),
    );
    fact(
        "thoughts",
        match (report.thinks_first, report.thinks) {
            (true, _) => "in its text, without an opening tag: they would be spoken".into(),
            (false, true) => "beside its text: never spoken, but they cost time".into(),
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
    fact(
        "context",
        match &report.context {
            Fit::Fits(tokens) => format!("a prompt of {tokens} tokens arrives whole"),
            Fit::Cut(tokens) => format!(
                "CUT: only {tokens} tokens of a long prompt arrive, and llm.max_prompt_tokens is {max_prompt_tokens}; \
             give the server a larger context (Ollama: num_ctx)"
            ),
            Fit::Refused(why) => format!("a long prompt is refused: {why}"),
            Fit::Unknown => "the server does not count tokens".into(),
        },
    );
    fact(
        "hanging up",
        match report.stops {
            Some(true) => "stops the server".into(),
            Some(false) => "the next answer is late: the server seems to go on".into(),
            None => "cannot be told".into(),
        },
    );
    fact(
        "two streams at once",
        match report.slower {
            Some(slower) => format!("each takes {slower:.2} times as long"),
            None => "cannot be told".into(),
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
    if report.thinks {
        lines.push(
            "reasoning_effort = \"none\"     # or the server's own switch in extra_body".into(),
        );
    }
    if !report.may_assume() {
        lines.push("\n[speculation]".into());
        lines.push("assumed_per_turn = 0           # a second stream slows the first".into());
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
        tracing::warn!(%error, "the probe is not remembered for `undertone doctor`");
    }
}
