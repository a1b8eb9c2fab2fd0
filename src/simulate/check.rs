//! From a scenario as typed to one that can be played. The first thing that is wrong ends it.

use super::scenario::{
    Expect, GUIDE, RawCall, RawOrder, RawReply, RawScenario, Reply, Scenario, ScenarioError,
    WantedCall,
};
use super::voices::{VOICE_FORMS, VoiceName};
use super::wanted::{Want, words};
use crate::session::TRANSPORTS;
use crate::tools::Registry;
use crate::tools::builtin::{HANG_UP, TRANSFER_TO_AGENT};
use crate::tts::Speed;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::Path;

type Checked<T> = Result<T, ScenarioError>;

/// The most turns of a caller.
const MOST_TURNS: usize = 100;

/// The longest pause and the slowest reply, ms.
const LONGEST_MS: u64 = 600_000;

/// The only key of a date or time of TOML's, as its reader passes it on.
const DATE: &str = "$__toml_private_datetime";

struct Check<'a> {
    file: &'a Path,
}

pub(super) fn check(file: &Path, raw: RawScenario) -> Checked<Scenario> {
    let check = Check { file };
    check.caller(&raw)?;
    check.turns(&raw)?;
    let replies = raw.reply.into_iter().enumerate();
    let replies: Vec<_> = replies
        .map(|(nth, reply)| check.reply(nth, reply))
        .collect::<Checked<_>>()?;
    for (key, texts) in [
        ("expect.said", &raw.expect.said),
        ("expect.not_said", &raw.expect.not_said),
    ] {
        if texts.iter().any(|text| words(text).is_empty()) {
            return check.wrong(
                key,
                "a text has no word in it",
                "write the words to look for",
            );
        }
    }
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    Ok(Scenario {
        name: name.into_owned(),
        file: file.to_owned(),
        agent: raw.agent,
        caller: raw.caller,
        turns: raw.turn,
        real: raw.tools.real,
        replies,
        expect: Expect {
            calls: check.calls("expect.call", raw.expect.call)?,
            in_order: raw.expect.order == RawOrder::Given,
            no_calls: check.calls("expect.no_call", raw.expect.no_call)?,
            said: raw.expect.said,
            not_said: raw.expect.not_said,
            ends: raw.expect.ends,
        },
        limits: raw.limits,
    })
}

impl Check<'_> {
    fn wrong<T>(
        &self,
        key: impl Into<String>,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) -> Checked<T> {
        Err(ScenarioError {
            file: self.file.to_owned(),
            line: 1,
            key: key.into(),
            problem: problem.into(),
            fix: fix.into(),
        })
    }

    fn caller(&self, raw: &RawScenario) -> Checked<()> {
        let caller = &raw.caller;
        let transports = TRANSPORTS.iter().filter(|name| **name != "phone");
        let transports: Vec<&str> = transports.copied().collect();
        if !transports.contains(&caller.transport.as_str()) {
            return self.wrong(
                "caller.transport",
                format!("no client comes by \"{}\"", caller.transport),
                format!("use one of {}", transports.join(", ")),
            );
        }
        if Speed::of(caller.speed).is_none() {
            return self.wrong(
                "caller.speed",
                format!("{} is no speed", caller.speed),
                "use 0.25 to 4; 1 is the voice's usual speed",
            );
        }
        let voices = caller.voice.all();
        if voices.is_empty() {
            return self.wrong("caller.voice", "there is no voice in the list", VOICE_FORMS);
        }
        for voice in voices {
            if let Err(problem) = VoiceName::read(voice) {
                return self.wrong("caller.voice", problem, VOICE_FORMS);
            }
        }
        if let Some(noise) = &caller.noise
            && !(-10.0..=60.0).contains(&noise.snr_db)
        {
            return self.wrong(
                "caller.noise",
                format!("snr_db = {} is out of range", noise.snr_db),
                "use -10 to 60: how much quieter than the caller the noise is, dB",
            );
        }
        if caller.max_turns == 0 || caller.max_turns > MOST_TURNS {
            return self.wrong(
                "caller.max_turns",
                format!("{} is out of range", caller.max_turns),
                format!("use 1 to {MOST_TURNS}"),
            );
        }
        match (caller.goal.trim().is_empty(), caller.model.is_empty()) {
            (true, true) | (false, false) => Ok(()),
            (false, true) => self.wrong(
                "caller.goal",
                "a caller with a goal is played by a language model, and caller.model names none",
                "set caller.model to the name of an entry of [llm.models], or write [[turn]]s instead",
            ),
            (true, false) => self.wrong(
                "caller.model",
                "the model is not told the caller's goal",
                "set caller.goal to it, in words",
            ),
        }
    }

    fn turns(&self, raw: &RawScenario) -> Checked<()> {
        let has_goal = !raw.caller.goal.trim().is_empty();
        match (has_goal, raw.turn.is_empty()) {
            (false, true) => {
                return self.wrong(
                    "turn",
                    "nobody speaks",
                    "add [[turn]]s with `say`, or caller.goal and caller.model",
                );
            }
            (true, false) => {
                return self.wrong(
                    "turn",
                    "there are both turns and a goal",
                    "remove caller.goal and caller.model, or the turns",
                );
            }
            _ => {}
        }
        for (nth, turn) in raw.turn.iter().enumerate() {
            let key = |name: &str| format!("turn[{nth}].{name}");
            match &turn.say {
                Some(say) if words(say).is_empty() => {
                    return self.wrong(key("say"), "there is no word in it", "write what is said");
                }
                None if turn.pause_ms.is_none() => {
                    let problem = "the turn has neither `say` nor `pause_ms`";
                    return self.wrong(key("say"), problem, "add one of them");
                }
                None if turn.interrupt_after_words.is_some() => {
                    let problem = "nothing is said, so nothing interrupts";
                    return self.wrong(key("interrupt_after_words"), problem, "add `say`");
                }
                _ => {}
            }
            if turn.pause_ms.is_some_and(|ms| ms > LONGEST_MS) {
                let fix = format!("use at most {LONGEST_MS}");
                return self.wrong(key("pause_ms"), "the pause is too long", fix);
            }
            let waits = turn.wait_for.is_some() || turn.pause_ms.is_some();
            if turn.interrupt_after_words.is_some() && waits {
                return self.wrong(
                    key("interrupt_after_words"),
                    "a caller who interrupts does not wait",
                    "remove wait_for and pause_ms, or this",
                );
            }
            if turn.interrupt_after_words == Some(0) {
                return self.wrong(
                    key("interrupt_after_words"),
                    "nothing was heard that could be interrupted",
                    "use 1 or more",
                );
            }
        }
        if raw.turn.len() > MOST_TURNS {
            return self.wrong(
                "turn",
                "there are too many turns",
                format!("use at most {MOST_TURNS}"),
            );
        }
        Ok(())
    }

    fn reply(&self, nth: usize, raw: RawReply) -> Checked<Reply> {
        let key = |name: &str| format!("reply[{nth}].{name}");
        let result = match (raw.result, raw.error) {
            (Some(result), None) => Ok(result),
            (None, Some(error)) => Err(error),
            (None, None) => {
                let problem = "the reply has neither `result` nor `error`";
                return self.wrong(key("result"), problem, "add one of them");
            }
            (Some(_), Some(_)) => {
                let problem = "the reply has both `result` and `error`";
                return self.wrong(key("error"), problem, "remove one of them");
            }
        };
        if let Ok(result) = &result {
            self.without_dates(&key("result"), result)?;
        }
        if raw.after_ms > LONGEST_MS {
            let fix = format!("use at most {LONGEST_MS}");
            return self.wrong(key("after_ms"), "the reply is too late", fix);
        }
        Ok(Reply {
            tool: raw.tool,
            when: self.wants(&key("when"), raw.when)?,
            result,
            after_ms: raw.after_ms,
        })
    }

    fn calls(&self, table: &str, raw: Vec<RawCall>) -> Checked<Vec<WantedCall>> {
        let call = |(nth, raw): (usize, RawCall)| {
            let key = |name: &str| format!("{table}[{nth}].{name}");
            if raw.times == Some(0) {
                let fix = "write it as [[expect.no_call]]";
                return self.wrong(key("times"), "a call that is made 0 times is not made", fix);
            }
            if raw.times.is_some() && table == "expect.no_call" {
                let fix = "remove it, or write [[expect.call]]";
                return self.wrong(key("times"), "it is not to be made at all", fix);
            }
            Ok(WantedCall {
                arguments: self.wants(&key("arguments"), raw.arguments)?,
                tool: raw.tool,
                times: raw.times,
            })
        };
        raw.into_iter().enumerate().map(call).collect()
    }

    fn wants(&self, key: &str, raw: Map<String, Value>) -> Checked<Vec<(String, Want)>> {
        let want = |(name, value): (String, Value)| {
            self.without_dates(key, &value)?;
            match Want::read(value) {
                Ok(want) => Ok((name, want)),
                Err(problem) => self.wrong(
                    key,
                    format!("{name}: {problem}"),
                    "write a value, { one_of = [values] } or { contains = \"words\" }",
                ),
            }
        };
        raw.into_iter().map(want).collect()
    }

    /// Refuses a date or time that is not in quotes: tools have texts for them.
    fn without_dates(&self, key: &str, value: &Value) -> Checked<()> {
        match date_in(value) {
            Some(date) => self.wrong(
                key,
                format!("{date} is a date or time of TOML's, and no tool has such a value"),
                "write it in quotes",
            ),
            None => Ok(()),
        }
    }
}

/// The first date or time of TOML's in a value.
fn date_in(value: &Value) -> Option<&str> {
    match value {
        Value::Object(table) => match table.get(DATE) {
            Some(date) => date.as_str(),
            None => table.values().find_map(date_in),
        },
        Value::Array(values) => values.iter().find_map(date_in),
        _ => None,
    }
}

impl Scenario {
    /// Checks the names of tools, of the agent and of the caller's voice against a server's. `elsewhere` are tools that
    /// cannot run from here; `own_voices` are the server's beside its default.
    ///
    /// # Errors
    /// The first that the server does not have, or a tool that would change something for real.
    pub fn fits(
        &self,
        tools: &Registry,
        agents: &[String],
        own_voices: &[String],
        elsewhere: &BTreeSet<String>,
    ) -> Checked<()> {
        if let Some(agent) = &self.agent
            && !agents.contains(agent)
        {
            let fix = format!("use one of {}", agents.join(", "));
            return Err(self.wrong("agent", format!("there is no agent \"{agent}\""), fix));
        }
        for voice in self.caller.voice.all() {
            if let Ok(VoiceName::Own(name)) = VoiceName::read(voice)
                && !own_voices.contains(&name)
            {
                let problem = format!("the server has no voice \"{name}\"");
                let fix = match own_voices.is_empty() {
                    true => VOICE_FORMS.to_owned(),
                    false => format!("{VOICE_FORMS}; the server has {}", own_voices.join(", ")),
                };
                return Err(self.wrong("caller.voice", problem, fix));
            }
        }
        let specs = tools.specs();
        let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
        let known = |key: String, tool: &str, is_offered: bool| {
            let is_own = is_offered && [HANG_UP, TRANSFER_TO_AGENT].contains(&tool);
            if is_own || names.contains(&tool) {
                return Ok(());
            }
            let fix = format!("use one of {}", names.join(", "));
            Err(self.wrong(&key, format!("there is no tool \"{tool}\""), fix))
        };
        for (nth, reply) in self.replies.iter().enumerate() {
            known(format!("reply[{nth}].tool"), &reply.tool, false)?;
        }
        for (table, calls) in [
            ("expect.call", &self.expect.calls),
            ("expect.no_call", &self.expect.no_calls),
        ] {
            for (nth, call) in calls.iter().enumerate() {
                known(format!("{table}[{nth}].tool"), &call.tool, true)?;
            }
        }
        for tool in &self.real {
            known("tools.real".into(), tool, false)?;
            let fix = || format!("write a [[reply]] for it. {GUIDE}");
            if elsewhere.contains(tool) {
                let problem =
                    format!("\"{tool}\" is a tool of an MCP server, and none is connected here");
                return Err(self.wrong("tools.real", problem, fix()));
            }
            let declaration = tools.declaration(tool);
            if declaration.is_some_and(|tool| tool.effect.changes()) {
                let problem =
                    format!("\"{tool}\" may change something, so it never runs for real here");
                return Err(self.wrong("tools.real", problem, fix()));
            }
        }
        Ok(())
    }
}
