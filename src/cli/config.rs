//! `undertone config`.

use crate::config::{Loaded, Scope, Setting};
use anyhow::Result;
use clap::Subcommand;
use serde_json::{Map, Value, json};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Check the configuration and the files it names, without starting anything
    Check,
    /// Show every value in effect and its origin, without secrets
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    /// `show` works even if one of the server's secrets is missing.
    pub(super) fn scope(&self) -> Scope {
        match self {
            Self::Check => Scope::Server,
            Self::Show { .. } => Scope::Conversation,
        }
    }

    pub(super) fn run(&self, loaded: &Loaded) -> Result<()> {
        super::ignored(loaded).for_each(super::print_error);
        match self {
            Self::Check => check(loaded),
            Self::Show { json: true } => show_json(loaded),
            Self::Show { json: false } => show(loaded),
        }
    }
}

fn check(loaded: &Loaded) -> Result<()> {
    loaded.verify()?;
    super::print(&match &loaded.file {
        Some(file) => format!("{} is valid", file.display()),
        None => "no configuration file; the built-in settings are in effect".into(),
    })
}

fn show(loaded: &Loaded) -> Result<()> {
    loaded
        .settings
        .iter()
        .try_for_each(|setting| super::print(&line(setting)))
}

fn line(setting: &Setting) -> String {
    let value = match &setting.value {
        Value::Null => "(not set)".into(),
        value => value.to_string(),
    };
    format!("{:<25} = {value:<28} # {}", setting.key, setting.origin)
}

fn show_json(loaded: &Loaded) -> Result<()> {
    let settings: Map<String, Value> = loaded
        .settings
        .iter()
        .map(|setting| {
            let shown = json!({ "value": setting.value, "origin": setting.origin.to_string() });
            (setting.key.clone(), shown)
        })
        .collect();
    super::print_json(&json!({ "file": loaded.file, "settings": settings }))
}
