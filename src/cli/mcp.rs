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
    faults.extend(strangers(config));
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

/// The tools whose texts name a tool of another server: that is how one server makes a model misuse another.
fn strangers(config: &Config) -> Vec<String> {
    let tools = config.tools.declared.iter();
    let all: Vec<(&Declared, &McpPlan)> = tools
        .filter_map(|tool| match &tool.kind {
            Kind::Mcp(plan) => Some((tool, &**plan)),
            _ => None,
        })
        .collect();
    let mut found = Vec::new();
    for (tool, plan) in &all {
        let spec = &tool.declaration.spec;
        let text = format!("{} {}", spec.description, spec.parameters);
        let is_part = |c: char| !(c.is_alphanumeric() || c == '_' || c == '-');
        let words: Vec<&str> = text.split(is_part).collect();
        for (other, its) in &all {
            let name = &*other.declaration.spec.name;
            let named = words.contains(&name) || words.contains(&&*its.tool);
            if named && its.server.name != plan.server.name {
                let server = &its.server.name;
                found.push(format!(
                    "the texts of {} name {name} of {server}",
                    spec.name
                ));
            }
        }
    }
    found
}
