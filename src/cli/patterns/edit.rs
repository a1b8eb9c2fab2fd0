//! `undertone patterns list`, `show`, `forget`, `export`: what was learned, looked at and edited.

use crate::cli::{engines, print, print_json};
use crate::config::Config;
use crate::prediction::patterns::{Book, PatternStore, PatternStoreError, Patterns, Rate, Shown};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;

#[derive(Debug, Args)]
pub(in crate::cli) struct List {
    #[command(flatten)]
    of: Of,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Show {
    /// The tool
    tool: String,
    #[command(flatten)]
    of: Of,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Forget {
    /// The tool
    #[arg(
        value_name = "TOOL|--all",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    tool: Option<String>,
    /// Forget everything
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    of: Of,
}

#[derive(Debug, Args)]
struct Of {
    /// Only this agent; all by default
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
}

/// A pattern of an agent.
#[derive(Serialize)]
struct Row<'a> {
    agent: &'a str,
    #[serde(flatten)]
    pattern: Shown,
}

/// Where an argument of a tool comes from.
#[derive(Serialize)]
struct Source<'a> {
    agent: &'a str,
    argument: String,
    source: String,
    #[serde(flatten)]
    rate: Rate,
}

/// The store of the patterns.
pub(super) fn store(config: &Config) -> Result<Box<dyn PatternStore>> {
    engines::pattern_store(config).context(
        "nothing is learned, because speculation.enabled or speculation.patterns is false: set both to true",
    )
}

fn book(config: &Config) -> Result<Book> {
    stored(&mut *store(config)?)
}

fn stored(store: &mut dyn PatternStore) -> Result<Book> {
    let stored = store.load().map_err(|error| told(&error))?;
    Ok(stored.unwrap_or_default().book)
}

/// The error without its causes, which its text names.
fn told(error: &PatternStoreError) -> anyhow::Error {
    anyhow!("{error}")
}

/// Changes what is stored.
pub(super) fn edit(store: &mut dyn PatternStore, mut change: impl FnMut(&mut Book)) -> Result<()> {
    let updated = store.update(&mut |mut stored| {
        change(&mut stored.book);
        stored.book
    });
    updated.map(drop).map_err(|error| told(&error))
}

impl Of {
    fn agents<'a>(&self, book: &'a Book) -> Result<Vec<(&'a str, &'a Patterns)>> {
        self.is_there(book)?;
        let all = book.0.iter().map(|(agent, one)| (agent.as_str(), one));
        Ok(all.filter(|(agent, _)| self.is(agent)).collect())
    }

    fn is(&self, agent: &str) -> bool {
        self.agent.as_ref().is_none_or(|wanted| wanted == agent)
    }

    fn is_there(&self, book: &Book) -> Result<()> {
        match &self.agent {
            Some(agent) if !book.0.contains_key(agent) => {
                let known: Vec<&str> = book.0.keys().map(String::as_str).collect();
                bail!(
                    "--agent: nothing was learned of \"{agent}\"; known are: {}",
                    known.join(", ")
                )
            }
            _ => Ok(()),
        }
    }
}

impl List {
    pub(super) fn run(&self, config: &Config) -> Result<()> {
        let book = book(config)?;
        let agents = self.of.agents(&book)?;
        let lines = agents.iter().flat_map(|(agent, patterns)| {
            let listed = patterns.list().into_iter();
            listed.map(|pattern| Row { agent, pattern })
        });
        let lines: Vec<Row<'_>> = lines.collect();
        if self.json {
            return print_json(&lines);
        }
        if lines.is_empty() {
            return print("nothing was learned yet");
        }
        print(table(&lines).trim_end())
    }
}

/// Prints the patterns as a table: agent, tool, share, times seen, and the context before it.
fn table(lines: &[Row<'_>]) -> String {
    let widest = |widths: &mut dyn Iterator<Item = usize>| widths.max().unwrap_or(0);
    let agent = widest(&mut lines.iter().map(|line| line.agent.chars().count())).max(5);
    let tool = widest(&mut lines.iter().map(|line| line.pattern.tool.chars().count())).max(4);
    let mut text = format!("{:agent$}  {:tool$}  share  seen  after\n", "agent", "tool");
    for Row { agent: of, pattern } in lines {
        let after = match pattern.after.as_str() {
            "" => "(anything)",
            after => after,
        };
        let _ = writeln!(
            text,
            "{of:agent$}  {:tool$}  {:4.0} %  {:4.0}  {after}",
            pattern.tool,
            100.0 * pattern.share,
            pattern.observed,
        );
    }
    text
}

impl Show {
    pub(super) fn run(&self, config: &Config) -> Result<()> {
        let book = book(config)?;
        let agents = self.of.agents(&book)?;
        let sources = agents.iter().flat_map(|(agent, patterns)| {
            let sources = patterns.sources(&self.tool).into_iter();
            sources.map(|(argument, source, rate)| Source {
                agent,
                argument,
                source,
                rate,
            })
        });
        let sources: Vec<Source<'_>> = sources.collect();
        let before = agents.iter().flat_map(|(agent, patterns)| {
            let listed = patterns.list().into_iter();
            let listed = listed.filter(|one| one.tool == self.tool);
            listed.map(|pattern| Row { agent, pattern })
        });
        let before: Vec<Row<'_>> = before.collect();
        if before.is_empty() && sources.is_empty() {
            return Err(unknown(&self.tool, &agents));
        }
        if self.json {
            return print_json(&serde_json::json!({ "patterns": before, "sources": sources }));
        }
        let mut text = table(&before);
        if !sources.is_empty() {
            text.push_str("\nargument: source, right in so many of so many cases, recent ones weighing more\n");
        }
        for Source {
            agent,
            argument,
            source,
            rate,
        } in sources
        {
            let argument = argument.trim_start_matches('/');
            let _ = writeln!(
                text,
                "{agent}  {argument}: {source}, {:.1} of {:.1}",
                rate.hits, rate.tries
            );
        }
        print(text.trim_end())
    }
}

fn unknown(tool: &str, agents: &[(&str, &Patterns)]) -> anyhow::Error {
    let tools = agents.iter().flat_map(|(_, patterns)| patterns.tools());
    let tools: Vec<&str> = tools.collect::<BTreeSet<_>>().into_iter().collect();
    match tools.as_slice() {
        [] => anyhow::anyhow!("nothing was learned of {tool}, nor of any other tool"),
        tools => anyhow::anyhow!(
            "nothing was learned of {tool}; known are: {}",
            tools.join(", ")
        ),
    }
}

impl Forget {
    pub(super) fn run(&self, config: &Config) -> Result<()> {
        let mut store = store(config)?;
        // Before anything is written.
        let before = stored(&mut *store)?;
        let agents = self.of.agents(&before)?;
        if let Some(tool) = &self.tool
            && !agents
                .iter()
                .any(|(_, one)| one.tools().any(|of| of == tool))
        {
            return Err(unknown(tool, &agents));
        }
        let mut gone = 0;
        edit(&mut *store, |book| {
            gone = match &self.tool {
                Some(tool) => {
                    let agents = book.0.iter_mut();
                    let agents = agents.filter(|(agent, _)| self.of.is(agent));
                    agents.map(|(_, one)| one.forget(tool)).sum::<usize>()
                }
                None => {
                    let gone = book.0.iter().filter(|(agent, _)| self.of.is(agent));
                    let gone = gone.map(|(_, one)| one.len()).sum();
                    book.0.retain(|agent, _| !self.of.is(agent));
                    gone
                }
            }
        })?;
        print(&format!("forgot {gone} patterns"))
    }
}

pub(super) fn export(config: &Config) -> Result<()> {
    let text = book(config)?.text()?;
    print(&text)
}
