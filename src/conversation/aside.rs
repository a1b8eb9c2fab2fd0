//! Text responses outside the conversation. They see its history but leave no trace in it, and may be
//! generated while somebody speaks.

use super::common::Common;
use super::ids::{RequestId, TurnId};
use super::input::ResponseTerms;
use super::outcome::ResponseStatus;
use super::output::{Event, Output};
use crate::llm::{LlmEvent, Prompt, TokenUsage, tokens_of};

#[cfg(test)]
mod tests;

/// The most such responses at a time.
const MOST: usize = 4;

/// The open responses.
#[derive(Debug, Default)]
pub(super) struct Asides(Vec<Aside>);

/// One open response.
#[derive(Debug)]
struct Aside {
    id: TurnId,
    stage: Stage,
    usage: TokenUsage,
    /// Tokens of the prompt (estimated) and characters of the answer.
    estimate: (u64, usize),
    /// Bytes that the model has streamed; the limit is that of a spoken answer.
    streamed: usize,
    /// Its calls count.
    may_call: bool,
    open_tool: Option<String>,
    is_cut: bool,
    begun: bool,
    /// White space, sent only when more words follow.
    space: String,
}

#[derive(Debug)]
enum Stage {
    /// Waits for the words of its context.
    Waits(Box<ResponseTerms>),
    /// The model writes it.
    Asked(RequestId),
}

impl Aside {
    fn is_of(&self, request: RequestId) -> bool {
        matches!(self.stage, Stage::Asked(asked) if asked == request)
    }

    /// The words to send now that `text` has come.
    fn words(&mut self, text: &str) -> Option<String> {
        let all = std::mem::take(&mut self.space) + text;
        let words = all.trim_end();
        all[words.len()..].clone_into(&mut self.space);
        let words = if self.begun {
            words
        } else {
            words.trim_start()
        };
        self.begun |= !words.is_empty();
        (!words.is_empty()).then(|| words.to_owned())
    }
}

impl Asides {
    /// Begins a response, unless too many are open. The model is asked with [`Asides::ask`].
    pub(super) fn begin(&mut self, common: &mut Common, terms: ResponseTerms) {
        if self.0.len() == MOST {
            let message = format!("{MOST} responses are under way beside the conversation");
            return common.refuse("RespondAside", message);
        }
        let id = common.turn_id();
        self.0.push(Aside {
            id,
            stage: Stage::Waits(Box::new(terms)),
            usage: TokenUsage::default(),
            estimate: (0, 0),
            streamed: 0,
            may_call: false,
            open_tool: None,
            is_cut: false,
            begun: false,
            space: String::new(),
        });
        common.notify(Event::AsideStarted { aside: id });
    }

    /// The responses for which the model has not been asked.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (TurnId, &ResponseTerms)> {
        self.0.iter().filter_map(|aside| match &aside.stage {
            Stage::Waits(terms) => Some((aside.id, &**terms)),
            Stage::Asked(_) => None,
        })
    }

    /// Asks the model for a response that has begun.
    pub(super) fn ask(&mut self, common: &mut Common, id: TurnId, prompt: Prompt) {
        let Some(aside) = self.0.iter_mut().find(|aside| aside.id == id) else {
            return;
        };
        let request = common.request_id();
        aside.stage = Stage::Asked(request);
        aside.estimate.0 = prompt.estimate();
        aside.may_call = prompt.may_call();
        let agent = common.policy.briefing.agent.clone();
        common.outputs.push_back(Output::Generate {
            request,
            prompt,
            agent,
        });
    }

    /// Handles an event of the model. `false` if it belongs to no response of these.
    pub(super) fn on_llm(
        &mut self,
        common: &mut Common,
        request: RequestId,
        event: &LlmEvent,
    ) -> bool {
        let Some(aside) = self.0.iter_mut().find(|aside| aside.is_of(request)) else {
            return false;
        };
        let id = aside.id;
        if let LlmEvent::Speech { text } | LlmEvent::ToolArguments { piece: text } = event {
            aside.streamed += text.len();
            if aside.streamed > common.policy.answer.bytes() {
                common
                    .outputs
                    .push_back(Output::CancelGeneration { request });
                self.end(common, id, ResponseStatus::Incomplete);
                return true;
            }
        }
        match event {
            LlmEvent::Speech { text } => {
                aside.estimate.1 += text.chars().count();
                if let Some(text) = aside.words(text) {
                    common.notify(Event::AsideText { aside: id, text });
                }
            }
            LlmEvent::ToolOpened { name } => aside.open_tool = Some(name.clone()),
            LlmEvent::ToolArguments { piece } => aside.estimate.1 += piece.chars().count(),
            LlmEvent::ToolClosed { arguments } => {
                let tool = aside.open_tool.take().filter(|_| aside.may_call);
                if let (Some(name), Ok(arguments)) = (tool, arguments.clone()) {
                    common.notify(Event::AsideCalled {
                        aside: id,
                        name,
                        arguments,
                    });
                }
            }
            LlmEvent::ToolRead { .. }
            | LlmEvent::Thinking
            | LlmEvent::TakesResults { .. }
            | LlmEvent::GoesOn
            | LlmEvent::Unable => {}
            LlmEvent::Cut => aside.is_cut = true,
            LlmEvent::Used { usage } => {
                aside.usage.add(*usage);
                aside.estimate = (0, 0);
            }
            LlmEvent::End => {
                let status = match aside.is_cut {
                    true => ResponseStatus::Incomplete,
                    false => ResponseStatus::Completed,
                };
                self.end(common, id, status);
            }
        }
        true
    }

    /// Handles a failed generation. `false` if it belongs to no response of these.
    pub(super) fn on_failed(&mut self, common: &mut Common, request: RequestId) -> bool {
        let failed = self.0.iter().find(|aside| aside.is_of(request));
        let failed = failed.map(|aside| aside.id);
        if let Some(id) = failed {
            self.end(common, id, ResponseStatus::Failed);
        }
        failed.is_some()
    }

    /// Cancels a response for the client.
    pub(super) fn cancel(&mut self, common: &mut Common, id: TurnId) {
        let Some(aside) = self.0.iter().find(|aside| aside.id == id) else {
            return common.refuse("CancelAside", "no such response is being given".into());
        };
        if let Stage::Asked(request) = aside.stage {
            common
                .outputs
                .push_back(Output::CancelGeneration { request });
        }
        self.end(common, id, ResponseStatus::Cancelled);
    }

    /// Cancels all of them: the session is over.
    pub(super) fn cancel_all(&mut self, common: &mut Common) {
        while let Some(id) = self.0.first().map(|aside| aside.id) {
            self.cancel(common, id);
        }
    }

    fn end(&mut self, common: &mut Common, id: TurnId, status: ResponseStatus) {
        let Some(at) = self.0.iter().position(|aside| aside.id == id) else {
            return;
        };
        let mut aside = self.0.remove(at);
        let (input, chars) = aside.estimate;
        aside.usage.add(TokenUsage {
            input,
            output: tokens_of(chars),
            ..TokenUsage::default()
        });
        common.notify(Event::AsideDone {
            aside: id,
            status,
            usage: aside.usage,
        });
    }
}
