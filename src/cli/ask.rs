//! `undertone ask`.

use super::play::Play;
use super::{audio_file, engines};
use crate::ask::{Answer, RATE, Reply};
use crate::audio::{to_f32, to_i16};
use crate::config::Config;
use crate::session::Observers;
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct Ask {
    /// The spoken question: WAV, MP3, FLAC, Ogg (Vorbis, Opus), WebM or M4A
    #[arg(value_name = "QUESTION")]
    question: PathBuf,
    /// The file for the spoken answer
    #[arg(long, value_name = "ANSWER.wav", required_unless_present_any = ["play", "json", "events", "record"])]
    out: Option<PathBuf>,
    #[command(flatten)]
    play: Play,
    /// Write the conversation's events to this file, one JSON object per line
    #[arg(long, value_name = "FILE.jsonl")]
    events: Option<PathBuf>,
    /// Record the session in this folder, for `undertone replay`; the file contains what was said
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    /// The agent to ask; by default the one that the routes lead to
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Print a JSON object with the transcripts, the answers and the latencies
    #[arg(long)]
    json: bool,
}

impl Ask {
    pub(super) fn run(&self, config: &Config) -> Result<()> {
        super::check_agent(self.agent.as_deref(), config)?;
        let question = to_i16(&audio_file::read(&self.question)?);
        let mut loudspeaker = self.play.open(RATE)?;
        let mut played = Ok(());
        let mut hear = |reply: Reply<'_>| match reply {
            Reply::Audio(samples) if played.is_ok() => played = loudspeaker.play(&to_f32(samples)),
            Reply::Audio(_) => {}
            Reply::Clear => loudspeaker.clear(),
        };
        let answer = super::runtime()?.block_on(async {
            let observers = Observers {
                recordings: super::recordings(self.record.as_deref())?,
                ..Observers::default()
            };
            let engines = engines::observed(config, observers)?;
            let agent = self.agent.as_deref();
            let answer = crate::ask::ask(&engines, &question, agent, &mut hear).await;
            engines.finish_changes().await;
            engines.finish_sessions().await;
            anyhow::Ok(answer)
        })?;
        if let Some(path) = &self.events {
            write_events(path, &answer)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        self.print(&answer)?;
        ensure!(
            !answer.audio.is_empty(),
            "there was no answer: {}",
            if answer.heard.is_empty() {
                "no speech was found in the question"
            } else {
                "see the log"
            }
        );
        if let Some(out) = &self.out {
            audio_file::write(out, RATE, &to_f32(&answer.audio))?;
        }
        played?;
        loudspeaker.finish()
    }

    fn print(&self, answer: &Answer) -> Result<()> {
        if self.json {
            return super::print_json(answer);
        }
        for text in &answer.heard {
            super::print(&format!("you:   {text}"))?;
        }
        for text in &answer.said {
            super::print(&format!("agent: {text}"))?;
        }
        for line in answer.runs() {
            super::print(&format!("tool:  {line}"))?;
        }
        answer
            .breakdown()
            .map_or(Ok(()), |line| super::print(&line))
    }
}

fn write_events(path: &Path, answer: &Answer) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for (ms, event) in &answer.events {
        writeln!(file, "{}", json!({ "ms": ms, "event": event }))?;
    }
    file.flush()
}
