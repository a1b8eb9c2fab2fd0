//! `undertone patterns learn`: patterns from conversations that were recorded or written elsewhere.

use super::edit::{edit, store};
use crate::cli::{engines, print};
use crate::config::Config;
use crate::conversation::{Event, Input, Output};
use crate::prediction::patterns::{Happened, PastConversation, Schemas};
use crate::recording::{Recording, Step};
use crate::session::DEFAULT_AGENT;
use anyhow::{Context, Result, bail};
use clap::Args;
use jiff::civil::Date;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(in crate::cli) struct Learn {
    /// Recordings (`*.jsonl`), data sets of EVA or historical runs of tau-bench (`*.json`), or folders of them
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The agent that learns; by default the one of a recording, or else `default`
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The day of conversations that do not name theirs, for dates without a year
    #[arg(long, value_name = "YYYY-MM-DD", default_value = "2026-01-01")]
    date: Date,
}

/// A conversation to learn from.
struct Lesson {
    agent: String,
    conversation: PastConversation,
}

impl Learn {
    pub(super) fn run(&self, config: &Config) -> Result<()> {
        crate::cli::check_agent(self.agent.as_deref(), config)?;
        let mut store = store(config)?;
        let tools = engines::registry(config)?;
        let schemas = Schemas::of(tools.declarations().iter().map(|tool| &**tool));
        let mut lessons = Vec::new();
        for file in files(&self.paths)? {
            let name = file.display().to_string();
            lessons.extend(self.read(&file).context(name)?);
        }
        let mut unknown: BTreeMap<&str, usize> = BTreeMap::new();
        let mut calls = 0;
        for happened in lessons.iter().flat_map(|one| &one.conversation.happened) {
            match happened {
                Happened::Called(tool, _) if schemas.knows(tool) => calls += 1,
                Happened::Called(tool, _) => *unknown.entry(tool).or_default() += 1,
                _ => {}
            }
        }
        let unknown: Vec<String> = unknown
            .iter()
            .map(|(tool, calls)| format!("{tool} ({calls})"))
            .collect();
        let unknown = unknown.join(", ");
        if calls == 0 {
            match unknown.as_str() {
                "" => bail!("these conversations have no calls"),
                _ => bail!(
                    "no tool of these conversations is declared here: {unknown}; declare them first"
                ),
            }
        }
        edit(&mut *store, |book| {
            for lesson in &lessons {
                let patterns = book.0.entry(lesson.agent.clone()).or_default();
                patterns.study(&lesson.conversation, &schemas);
            }
            *book = std::mem::take(book).kept();
        })?;
        let mut text = format!(
            "learned from {calls} calls of {} conversations\n",
            lessons.len()
        );
        if !unknown.is_empty() {
            text.push_str("left out, because these tools are not declared here: ");
            text.push_str(&unknown);
            text.push('\n');
        }
        print(text.trim_end())
    }

    fn read(&self, file: &Path) -> Result<Vec<Lesson>> {
        if file.extension().is_some_and(|end| end == "jsonl") {
            return Ok(vec![self.recorded(file)?]);
        }
        let conversations = PastConversation::read(&std::fs::read_to_string(file)?, self.date)?;
        let lesson = |conversation| Lesson {
            agent: self.agent.clone().unwrap_or_else(|| DEFAULT_AGENT.into()),
            conversation,
        };
        Ok(conversations.into_iter().map(lesson).collect())
    }

    fn recorded(&self, file: &Path) -> Result<Lesson> {
        let recording = Recording::read(BufReader::new(File::open(file)?))?;
        let header = &recording.header;
        let own = self.agent.clone();
        let agent = own.or_else(|| header.policy.briefing.agent.clone());
        Ok(Lesson {
            agent: agent.unwrap_or_else(|| DEFAULT_AGENT.into()),
            conversation: conversation(&recording, header.day().unwrap_or(self.date))?,
        })
    }
}

/// The files, in order; of a folder, all recordings and data sets in it.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
        let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        found.retain(|file| {
            let end = file.extension();
            file.is_file() && end.is_some_and(|end| end == "json" || end == "jsonl")
        });
        if found.is_empty() {
            bail!(
                "{}: this folder has no *.json and no *.jsonl",
                path.display()
            );
        }
        found.sort();
        files.append(&mut found);
    }
    Ok(files)
}

/// A decision in a recording.
#[derive(Deserialize)]
struct Decision {
    output: Output,
}

/// A recorded session, as far as its first agent went: the user's words, and the calls of the server's tools.
fn conversation(recording: &Recording, day: Date) -> Result<PastConversation> {
    let mut happened = Vec::new();
    let mut places = HashMap::new();
    for event in events(recording)? {
        match event {
            Event::UserItem { text, .. } => happened.push((Happened::Said(text), None)),
            Event::ToolCalled {
                call,
                name,
                arguments,
                by_client: false,
                ..
            } => {
                places.insert(call, happened.len());
                happened.push((Happened::Called(name, arguments), None));
            }
            Event::ToolFinished { call, result, .. } => {
                let place = places.get(&call).and_then(|place| happened.get_mut(*place));
                if let (Some((_, returned)), Ok(result)) = (place, result) {
                    *returned = Some(Happened::Resulted(result));
                }
            }
            _ => {}
        }
    }
    let happened = happened
        .into_iter()
        .flat_map(|(event, returned)| [Some(event), returned]);
    Ok(PastConversation {
        task: String::new(),
        day,
        happened: happened.flatten().collect(),
    })
}

/// The events up to the first handoff. A line that cannot be read is an error: without its call, the calls around it
/// would be learned as following each other.
fn events(recording: &Recording) -> Result<Vec<Event>> {
    let is_handoff = |step: &&Step| matches!(step.input, Some(Input::Agent(_)));
    let mut events = Vec::new();
    for step in recording.steps.iter().take_while(|step| !is_handoff(step)) {
        for (line, text) in (step.line + 1..).zip(&step.outputs) {
            let read = serde_json::from_str(text);
            let Decision { output } =
                read.with_context(|| format!("line {line}: this decision cannot be read"))?;
            if let Output::Notify(event) = output {
                events.push(event);
            }
        }
    }
    Ok(events)
}
