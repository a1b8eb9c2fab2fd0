//! A generation whose output is held back: nothing of it is heard before it is taken over.

use super::clauses::Clauses;
use super::common::Common;
use super::experience::Lesson;
use super::gain::Early;
use super::ids::RequestId;
use super::output::Output;
use super::speculation::{Before, HeldRecord};
use crate::llm::{LlmEvent, Prompt, TokenUsage, tokens_of};
use crate::time::{Micros, Time};
use serde_json::{Map, Value};

/// A generation whose output is held back.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) request: RequestId,
    prompt: Prompt,
    before: Before,
    /// The tool of the call that it speaks of.
    tool: Option<String>,
    began: Time,
    events: Vec<LlmEvent>,
    /// When its first event came.
    first: Option<Time>,
    /// When its first clause or its first call was complete.
    usable: Option<Time>,
    /// Bytes of speech streamed.
    streamed: usize,
    /// The tool whose call is open.
    open_tool: Option<String>,
    /// Cuts its words until the first clause is complete, which is then prepared.
    first_clause: Option<Clauses>,
}

/// News of a call in a held-back answer. It may run early like any prediction, but is not committed.
#[derive(Debug)]
pub(super) enum HeldCall {
    /// The call of a tool has begun.
    Opened(String),
    /// These arguments of the call are finished, and whether there are no others.
    Read(Map<String, Value>, bool),
    /// The call is complete.
    Complete(String, Map<String, Value>),
}

/// A generation that was taken over.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) request: RequestId,
    /// When it was requested.
    pub(super) began: Time,
    /// Its events so far.
    pub(super) events: Vec<LlmEvent>,
    /// The time gained by it if it was held back.
    pub(super) early: Option<Early>,
}

impl Taken {
    /// Whether it has neither begun a call nor ended.
    pub(super) fn is_undecided(&self) -> bool {
        let decides =
            |event: &LlmEvent| matches!(event, LlmEvent::ToolOpened { .. } | LlmEvent::End);
        !self.events.iter().any(decides)
    }

    /// Asks the model for a generation that is not held back.
    pub(super) fn begin(common: &mut Common, prompt: Prompt) -> Self {
        let (request, agent) = (common.request_id(), common.policy.briefing.agent.clone());
        common.outputs.push_back(Output::Generate {
            request,
            prompt,
            agent,
        });
        Self {
            request,
            began: common.now,
            events: Vec::new(),
            early: None,
        }
    }
}

impl Held {
    /// Asks the model. `tool` is the tool of the call that the prompt assumes or ends with.
    pub(super) fn begin(
        common: &mut Common,
        prompt: Prompt,
        before: Before,
        tool: Option<&str>,
    ) -> Self {
        let Taken {
            request,
            began,
            events,
            early: _,
        } = Taken::begin(common, prompt.clone());
        Self {
            request,
            prompt,
            before,
            tool: tool.map(str::to_owned),
            began,
            events,
            first: None,
            usable: None,
            streamed: 0,
            open_tool: None,
            first_clause: Some(Clauses::new(common.language())),
        }
    }

    /// When it was requested.
    pub(super) fn asked(&self) -> Time {
        self.began
    }

    pub(super) fn prompt(&self) -> &Prompt {
        &self.prompt
    }

    /// Whether it has produced something.
    pub(super) fn has_begun(&self) -> bool {
        self.first.is_some()
    }

    /// Whether it has begun to call a tool.
    pub(super) fn has_called(&self) -> bool {
        let opens = |event: &LlmEvent| matches!(event, LlmEvent::ToolOpened { .. });
        self.events.iter().any(opens)
    }

    /// The call that it has completed, if there is no other and not a word before it.
    pub(super) fn only_call(&self) -> Option<(&str, &Map<String, Value>)> {
        let mut tool = None;
        let mut call = None;
        for event in &self.events {
            match event {
                LlmEvent::ToolOpened { name } if tool.is_none() => tool = Some(name.as_str()),
                LlmEvent::ToolOpened { .. } => return None,
                LlmEvent::ToolClosed { arguments } => {
                    call = Some((tool?, arguments.as_ref().ok()?))
                }
                LlmEvent::Speech { text } if !text.trim().is_empty() => return None,
                _ => {}
            }
        }
        call
    }

    /// Whether its answer may be that to a call: to one that is still to come, or to its only one.
    pub(super) fn may_call_next(&self) -> bool {
        !self.has_called() || self.only_call().is_some()
    }

    /// Whether it has completed a call.
    pub(super) fn has_completed_call(&self) -> bool {
        let closes = |event: &LlmEvent| matches!(event, LlmEvent::ToolClosed { .. });
        self.events.iter().any(closes)
    }

    /// Whether it is complete.
    pub(super) fn has_ended(&self) -> bool {
        self.events.last() == Some(&LlmEvent::End)
    }

    /// Keeps an event of the model. Returns the call that it begins or completes.
    pub(super) fn hold(&mut self, common: &mut Common, event: LlmEvent) -> Option<HeldCall> {
        let most = common.policy.answer.bytes();
        if self.streamed > most || event == LlmEvent::Thinking {
            return None;
        }
        if self.first.is_none() && event.is_output() {
            self.first = Some(common.now);
            let wait = common.now.since(self.began);
            common.learn(Lesson::Began { wait }, false);
        }
        self.events.push(event.clone());
        let may_call = self.prompt.may_call();
        match event {
            LlmEvent::Speech { text } => {
                self.streamed += text.len();
                if self.streamed > most {
                    // More is held back than may be spoken.
                    let request = self.request;
                    common
                        .outputs
                        .push_back(Output::CancelGeneration { request });
                }
                self.prepare(common, |clauses| clauses.push(&text).into_iter().next());
                None
            }
            LlmEvent::ToolOpened { name } => {
                self.prepare(common, Clauses::finish);
                self.open_tool = Some(name.clone());
                may_call.then_some(HeldCall::Opened(name))
            }
            LlmEvent::ToolRead { arguments, whole } => {
                may_call.then_some(HeldCall::Read(arguments, whole))
            }
            LlmEvent::ToolClosed { arguments } => {
                self.usable.get_or_insert(common.now);
                let name = self.open_tool.take()?;
                let call = HeldCall::Complete(name, arguments.ok()?);
                may_call.then_some(call)
            }
            LlmEvent::End => {
                self.prepare(common, Clauses::finish);
                None
            }
            LlmEvent::ToolArguments { .. }
            | LlmEvent::Thinking
            | LlmEvent::TakesResults { .. }
            | LlmEvent::GoesOn
            | LlmEvent::Unable
            | LlmEvent::Cut
            | LlmEvent::Used { .. } => None,
        }
    }

    /// Has the first clause synthesised in advance, so that it is heard at once if it is to be said.
    fn prepare(&mut self, common: &mut Common, first: impl Fn(&mut Clauses) -> Option<String>) {
        let Some(text) = self.first_clause.as_mut().and_then(first) else {
            return;
        };
        self.first_clause = None;
        self.usable.get_or_insert(common.now);
        common.outputs.push_back(Output::Prepare {
            request: self.request,
            text,
            speaker: common.policy.speaker.clone(),
        });
    }

    /// Takes it over. `certain`: when it would have been requested if it were not held back. `unsaid_until`: when
    /// a filler would have ended that is not said because of it.
    pub(super) fn take(self, certain: Time, now: Time, unsaid_until: Option<Time>) -> Taken {
        let usable = self.usable.unwrap_or(certain).min(certain);
        let early = Early {
            record: self.record(now, true),
            later: usable.since(self.began),
            unsaid_until,
        };
        Taken {
            request: self.request,
            began: self.began,
            events: self.events,
            early: Some(early),
        }
    }

    /// Discards it. `delayed`: how long other words were held back for it in vain.
    pub(super) fn discard(self, common: &mut Common, delayed: Micros) {
        let request = self.request;
        common
            .outputs
            .push_back(Output::CancelGeneration { request });
        common.held.push(HeldRecord {
            delayed,
            ..self.record(common.now, false)
        });
    }

    /// Records that it failed.
    pub(super) fn fail(self, common: &mut Common) {
        let record = self.record(common.now, false);
        common.held.push(record);
    }

    fn record(&self, now: Time, used: bool) -> HeldRecord {
        HeldRecord {
            before: self.before,
            tool: self.tool.clone(),
            began: self.began,
            ended: now,
            used,
            saved: Micros(0),
            delayed: Micros(0),
            usage: self.usage(),
        }
    }

    /// Its tokens so far: counted by the engine, or else estimated.
    fn usage(&self) -> TokenUsage {
        let mut written = 0;
        for event in &self.events {
            written += match event {
                LlmEvent::Used { usage } => return *usage,
                LlmEvent::Speech { text } => text.chars().count(),
                LlmEvent::ToolOpened { name } => name.chars().count(),
                LlmEvent::ToolArguments { piece } => piece.chars().count(),
                _ => 0,
            };
        }
        TokenUsage {
            input: self.prompt.estimate(),
            output: tokens_of(written),
            ..TokenUsage::default()
        }
    }
}
