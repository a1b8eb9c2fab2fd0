//! `undertone mcp`: what the tools of MCP servers are, and which of them the operator has accepted.

use crate::config::Config;
use crate::llm::tokens_of;
use crate::llm::untrusted::is_invisible;
use crate::tools::ToolSpec;
use crate::tools::declared::{Declared, Kind};
use crate::tools::mcp::{self, McpPlan, McpServer, Pin, Pins, Standing, differences, shortened};
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;

/// The most tokens that the description and the schema of one tool may take in a prompt: they are read before every
/// first word.
const MOST_PER_TOOL: u64 = 500;
/// The most tokens that all tools of MCP servers may take together.
const MOST_TOKENS: u64 = 1_500;
/// The longest text of a server that is printed, characters.
const LONGEST: usize = 300;

/// `undertone mcp ..`
#[derive(Debug, Subcommand)]
pub(super) enum Mcp {
    /// List the tools of the configured servers, and how each stands: pinned, drifted or unpinned
    List(Which),
    /// Pin the declared tools as their servers list them now: accept their descriptions and schemas
    Pin(Which),
    /// Show how the declared tools differ from their pins
    Diff(Which),
}

#[derive(Debug, Args)]
pub(super) struct Which {
    /// One of the servers in the configuration; all by default
    server: Option<String>,
}

/// A server and what it lists.
type Listed = (Arc<McpServer>, Result<Vec<Value>, String>);

impl Mcp {
    pub(super) fn run(&self, config: &Config) -> Result<ExitCode> {
        let (Self::List(which) | Self::Pin(which) | Self::Diff(which)) = self;
        let servers = which.servers(config)?;
        let listed = list(&servers)?;
        let is_fine = match self {
            Self::List(_) => print_list(config, &listed)?,
            Self::Pin(_) => pin(config, &listed)?,
            Self::Diff(_) => diff(config, &listed)?,
        };
        Ok(if is_fine {
            ExitCode::SUCCESS
        } else {
            super::FAILED.into()
        })
    }
}

impl Which {
    fn servers(&self, config: &Config) -> Result<Vec<Arc<McpServer>>> {
        let all = &config.tools.mcp.servers;
        ensure!(
            !all.is_empty(),
            "the configuration has no MCP servers; docs/mcp.md shows how to add one"
        );
        let Some(name) = &self.server else {
            return Ok(all.clone());
        };
        let Some(server) = all.iter().find(|server| server.name == *name) else {
            let known: Vec<&str> = all.iter().map(|server| &*server.name).collect();
            bail!(
                "there is no [mcp.{name}] in the configuration; known are: {}",
                known.join(", ")
            );
        };
        Ok(vec![server.clone()])
    }
}

/// Asks all servers at once.
fn list(servers: &[Arc<McpServer>]) -> Result<Vec<Listed>> {
    let asked = servers.iter().map(async |server| {
        let tools = mcp::list(server).await;
        (
            server.clone(),
            tools.map_err(|error| shortened(&format!("{:#}", anyhow::Error::from(error)), LONGEST)),
        )
    });
    Ok(super::runtime()?.block_on(futures_util::future::join_all(asked)))
}

/// The declared tools of a server.
fn declared<'a>(
    config: &'a Config,
    server: &'a McpServer,
) -> impl Iterator<Item = (&'a Declared, &'a McpPlan)> {
    config
        .tools
        .declared
        .iter()
        .filter_map(|tool| match &tool.kind {
            Kind::Mcp(plan) if plan.server.name == server.name => Some((tool, &**plan)),
            _ => None,
        })
}

fn find<'a>(tools: &'a [Value], name: &str) -> Option<&'a Value> {
    tools.iter().find(|tool| tool["name"] == name)
}

fn unreachable(server: &McpServer, why: &str) -> Result<()> {
    super::print(&format!("{}: not connected: {why}", server.name))
}

fn print_list(config: &Config, listed: &[Listed]) -> Result<bool> {
    for (server, tools) in listed {
        let tools = match tools {
            Ok(tools) => tools,
            Err(why) => {
                unreachable(server, why)?;
                continue;
            }
        };
        super::print(&format!("{}: {} tools", server.name, tools.len()))?;
        for tool in tools {
            let name = tool["name"].as_str().unwrap_or_default();
            let own = declared(config, server).find(|(_, plan)| plan.tool == name);
            let standing = own.map(|(own, plan)| {
                let standing = Standing::of(plan.pin.as_ref(), Some(tool)).name();
                format!("{standing}, declared as {}", own.declaration.spec.name)
            });
            let standing = standing.unwrap_or_else(|| "not declared".into());
            let described = visible(tool["description"].as_str().unwrap_or_default());
            let hints = tool
                .get("annotations")
                .map_or(String::new(), Value::to_string);
            super::print(&format!(
                "  {:<28} {standing}  {}",
                visible(name),
                visible(&hints)
            ))?;
            super::print(&format!("  {:<28} {described}", ""))?;
        }
    }
    Ok(listed.iter().all(|(_, tools)| tools.is_ok()))
}

fn pin(config: &Config, listed: &[Listed]) -> Result<bool> {
    let file = config
        .tools
        .mcp
        .file
        .as_ref()
        .context("the pins lie beside the configuration file, and there is none: write undertone.toml, or name one with --config")?;
    let mut pins: Pins = config.tools.mcp.pins.clone();
    let mut is_fine = true;
    for (server, tools) in listed {
        let tools = match tools {
            Ok(tools) => tools,
            Err(why) => {
                unreachable(server, why)?;
                is_fine = false;
                continue;
            }
        };
        for (own, plan) in declared(config, server) {
            let name = format!("{}: {}", server.name, visible(&plan.tool));
            let Some(tool) = find(tools, &plan.tool) else {
                super::print(&format!(
                    "{name}: the server has no such tool ({})",
                    own.file.display()
                ))?;
                is_fine = false;
                continue;
            };
            let was = plan.pin.as_ref();
            if !pins.pin(&server.name, &plan.tool, Pin::of(tool.clone())) {
                super::print(&format!("{name}: as before"))?;
                continue;
            }
            super::print(&format!(
                "{name}: {}",
                if was.is_some() { "changed" } else { "pinned" }
            ))?;
            print_differences(was.map_or(&json!({}), |was| &was.tool), tool)?;
        }
        let is_declared = |tool: &str| declared(config, server).any(|(_, plan)| plan.tool == tool);
        for gone in pins.retain(&server.name, &is_declared) {
            let name = visible(&gone);
            super::print(&format!(
                "{}: {name}: no longer declared, its pin is removed",
                server.name
            ))?;
        }
    }
    pins.write(file)?;
    super::print(&format!("wrote {}", file.display()))?;
    Ok(is_fine)
}

fn diff(config: &Config, listed: &[Listed]) -> Result<bool> {
    let mut is_fine = true;
    for (server, tools) in listed {
        let tools = match tools {
            Ok(tools) => tools,
            Err(why) => {
                unreachable(server, why)?;
                is_fine = false;
                continue;
            }
        };
        for (_, plan) in declared(config, server) {
            let found = find(tools, &plan.tool);
            let standing = Standing::of(plan.pin.as_ref(), found);
            super::print(&format!(
                "{}: {}: {}",
                server.name,
                visible(&plan.tool),
                standing.name()
            ))?;
            is_fine &= standing == Standing::Pinned;
            if let (Some(pin), Some(found)) = (&plan.pin, found) {
                print_differences(&pin.tool, found)?;
            }
        }
    }
    Ok(is_fine)
}

fn print_differences(old: &Value, new: &Value) -> Result<()> {
    for (place, old, new) in differences(old, new) {
        for (sign, value) in [("-", old), ("+", new)] {
            if let Some(value) = value {
                super::print(&format!("  {sign} {place} {}", visible(&value.to_string())))?;
            }
        }
    }
    Ok(())
}

/// A server's text on one line, its hidden characters written out.
fn visible(text: &str) -> String {
    let mut shown = String::new();
    for c in shortened(text, LONGEST).chars() {
        match is_invisible(c) {
            true => drop(write!(shown, "{}", c.escape_unicode())),
            false => shown.push(c),
        }
    }
    shown
}

/// The tokens that a tool takes in a prompt, estimated.
fn tokens(spec: &ToolSpec) -> u64 {
    let texts = [&spec.name, &spec.description, &spec.parameters.to_string()];
    tokens_of(texts.iter().map(|text| text.chars().count()).sum())
}

/// For `undertone doctor`: whether the servers answer, their tools are the pinned ones, and prompts have room for
/// them.
pub(super) fn examine(config: &Config) -> Result<String> {
    let (mut notes, mut faults) = (Vec::new(), Vec::new());
    let mut total = 0;
    for (server, tools) in list(&config.tools.mcp.servers)? {
        let tools = match tools {
            Ok(tools) => tools,
            Err(why) => {
                faults.push(format!("{} is not connected: {why}", server.name));
                continue;
            }
        };
        for (own, plan) in declared(config, &server) {
            let name = &own.declaration.spec.name;
            let standing = Standing::of(plan.pin.as_ref(), find(&tools, &plan.tool));
            if standing != Standing::Pinned {
                faults.push(format!("{name} is {}", standing.name()));
                continue;
            }
            let tokens = tokens(&own.declaration.spec);
            total += tokens;
            notes.push(format!("{name} {tokens} tokens"));
            if tokens > MOST_PER_TOOL {
                faults.push(format!(
                    "{name} takes {tokens} tokens of every prompt, more than {MOST_PER_TOOL}"
                ));
            }
            if let Some(hint) = plan.contradiction() {
                let effect = own.declaration.effect;
                notes.push(format!(
                    "{name} is declared {:?} and counts as {effect:?}: the server says so by {hint} \
                     (disregard = [\"{hint}\"] if you know better)",
                    plan.declared
                ));
            }
        }
    }
    let (named, said) = strangers(config);
    faults.extend(named);
    notes.extend(said);
    if total > MOST_TOKENS {
        faults.push(format!(
            "together they take {total} tokens of every prompt, more than {MOST_TOKENS}"
        ));
    }
    let notes = notes.join("; ");
    ensure!(
        faults.is_empty(),
        "{}{}",
        faults.join("; "),
        if notes.is_empty() {
            String::new()
        } else {
            format!("; {notes}")
        }
    );
    let servers = config.tools.mcp.servers.len();
    Ok(format!("{servers} connected; {notes}"))
}

/// The tools whose texts name a tool of another server: that is how one server makes a model misuse another. The second list has
/// those whose texts only have a word that is such a name.
fn strangers(config: &Config) -> (Vec<String>, Vec<String>) {
    let tools = config.tools.declared.iter();
    let all: Vec<(&Declared, &McpPlan)> = tools
        .filter_map(|tool| match &tool.kind {
            Kind::Mcp(plan) => Some((tool, &**plan)),
            _ => None,
        })
        .collect();
    let (mut named, mut said) = (Vec::new(), Vec::new());
    for (tool, plan) in &all {
        let spec = &tool.declaration.spec;
        for (other, its) in &all {
            let server = &its.server.name;
            if *server == plan.server.name {
                continue;
            }
            let name = &*other.declaration.spec.name;
            let mention = mention(spec, name).max(mention(spec, &its.tool));
            match mention {
                Mention::None => {}
                Mention::Word => said.push(format!(
                    "the texts of {} have a word that is also the name of a tool: {name} of {server}",
                    spec.name
                )),
                Mention::Tool => named.push(format!(
                    "the texts of {} name {name} of {server}",
                    spec.name
                )),
            }
        }
    }
    (named, said)
}

/// The way in which the texts of a tool mention the name of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mention {
    None,
    /// As a word of the language, such as `search`.
    Word,
    /// As a tool.
    Tool,
}

fn mention(spec: &ToolSpec, name: &str) -> Mention {
    let is_word =
        name.chars().all(char::is_alphabetic) && !name.chars().skip(1).any(char::is_uppercase);
    let mut text = spec.description.clone();
    match is_word {
        true => add_descriptions(&spec.parameters, &mut text),
        false => text += &format!(" {}", spec.parameters),
    }
    let places = text.match_indices(name);
    let around = places.map(|(at, _)| (&text[..at], &text[at + name.len()..]));
    let whole = around.filter(|(before, after)| {
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        !before.ends_with(is_part) && !after.starts_with(is_part)
    });
    let mention = whole.map(
        |(before, after)| match is_word && !speaks_of_tool(before, after) {
            true => Mention::Word,
            false => Mention::Tool,
        },
    );
    mention.max().unwrap_or(Mention::None)
}

/// Whether a word between these texts stands for a tool: it is quoted, called, or said to be one.
fn speaks_of_tool(before: &str, after: &str) -> bool {
    let is_quoted = |quote: char| before.ends_with(quote) && after.starts_with(quote);
    let is_one_of = |word: Option<&str>, words: &[&str]| {
        let word = word.unwrap_or_default();
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        words.iter().any(|known| word.eq_ignore_ascii_case(known))
    };
    ['`', '"', '\''].into_iter().any(is_quoted)
        || after.starts_with('(')
        || is_one_of(
            before.split_whitespace().next_back(),
            &["call", "invoke", "tool", "function"],
        )
        || is_one_of(after.split_whitespace().next(), &["tool", "function"])
}

/// Adds the texts of a schema that are for people and models.
fn add_descriptions(schema: &Value, text: &mut String) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str() {
                    Some(said) if ["description", "title"].contains(&key.as_str()) => {
                        *text += " ";
                        *text += said;
                    }
                    _ => add_descriptions(value, text),
                }
            }
        }
        Value::Array(values) => {
            for value in values {
                add_descriptions(value, text);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each text with the word "search" in it was taken for one that names the tool `search` of another server.
    #[test]
    fn a_word_of_the_language_is_not_taken_for_the_tool_of_that_name() {
        let named = |description: &str, name: &str| {
            let spec = ToolSpec {
                examples: Vec::new(),
                name: "look".into(),
                description: description.into(),
                parameters: json!({"type": "object", "properties": {
                    "query": {"type": "string", "description": "The text to look for."},
                    "event_id": {"type": "string"}
                }}),
            };
            mention(&spec, name)
        };
        for (description, name, expected) in [
            ("Lets you search the web.", "search", Mention::Word),
            (
                "Before that, call search with the file.",
                "search",
                Mention::Tool,
            ),
            ("Use `search` first.", "search", Mention::Tool),
            ("Like search(text).", "search", Mention::Tool),
            ("Never use the search tool.", "search", Mention::Tool),
            ("A word in research.", "search", Mention::None),
            // The name of an argument says nothing.
            ("Looks.", "query", Mention::None),
            ("Looks.", "text", Mention::Word),
            ("Then create_event runs.", "create_event", Mention::Tool),
            ("Then createEvent runs.", "createEvent", Mention::Tool),
            ("Looks.", "event_id", Mention::Tool),
        ] {
            assert_eq!(named(description, name), expected, "{description} {name}");
        }
    }
}
