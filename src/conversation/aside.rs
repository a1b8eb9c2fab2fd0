//! Answers in writing beside the conversation: they read its history, leave no trace in it, and may
//! be made while somebody speaks.

use super::ids::{RequestId, TurnId};
use super::{Context, Conversation, Event, Output, ResponseStatus, ResponseTerms};
use crate::llm::{LlmEvent, Message, TokenUsage, tokens_of};

/// Answers at a time.
const MOST: usize = 4;

/// An answer that is being made.
#[derive(Debug)]
pub(super) struct Aside {
    id: TurnId,
    request: RequestId,
    usage: TokenUsage,
    /// What it was asked, in tokens, and the characters of its answer.
    estimate: (u64, usize),
    /// Bytes that the model has streamed, which have the same end as those of an answer aloud.
    streamed: usize,
    open_tool: Option<String>,
    is_cut: bool,
    begun: bool,
    /// White space that is only told when more words follow.
    space: String,
}

impl Aside {
    /// What is to be told of more words.
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

impl Conversation {
    pub(super) fn respond_aside(&mut self, terms: &ResponseTerms) {
        if self.asides.len() == MOST {
            let message = format!("{MOST} responses are under way beside the conversation");
            return self.common.refuse("RespondAside", message);
        }
        let messages = match &terms.context {
            None => self.history.messages(),
            Some(context) => self.messages_of(context),
        };
        let prompt = self.prompt(messages, terms, 0, 0);
        let (id, request) = (self.common.turn_id(), self.common.request_id());
        self.asides.push(Aside {
            id,
            request,
            usage: TokenUsage::default(),
            estimate: (prompt.estimate(), 0),
            streamed: 0,
            open_tool: None,
            is_cut: false,
            begun: false,
            space: String::new(),
        });
        self.common.notify(Event::AsideStarted { aside: id });
        self.common
            .outputs
            .push_back(Output::Generate { request, prompt });
    }

    /// What a model is shown in place of the history. Items that have been deleted are left out.
    pub(super) fn messages_of(&self, context: &[Context]) -> Vec<Message> {
        let message = |context: &Context| match context {
            Context::Item(id) => self.history.message(*id),
            Context::Message(message) => Some(message.clone()),
        };
        context.iter().filter_map(message).collect()
    }

    /// The model said something; `false` if it was not beside the conversation.
    pub(super) fn on_aside(&mut self, request: RequestId, event: &LlmEvent) -> bool {
        let Some(aside) = self.asides.iter_mut().find(|a| a.request == request) else {
            return false;
        };
        let id = aside.id;
        if let LlmEvent::Speech { text } | LlmEvent::ToolArguments { piece: text } = event {
            aside.streamed += text.len();
            if aside.streamed > self.common.policy.answer.bytes() {
                self.common
                    .outputs
                    .push_back(Output::CancelGeneration { request });
                self.end_aside(id, ResponseStatus::Incomplete);
                return true;
            }
        }
        match event {
            LlmEvent::Speech { text } => {
                aside.estimate.1 += text.chars().count();
                if let Some(text) = aside.words(text) {
                    self.common.notify(Event::AsideText { aside: id, text });
                }
            }
            LlmEvent::ToolOpened { name } => aside.open_tool = Some(name.clone()),
            LlmEvent::ToolArguments { piece } => aside.estimate.1 += piece.chars().count(),
            LlmEvent::ToolClosed { arguments } => {
                if let (Some(name), Ok(arguments)) = (aside.open_tool.take(), arguments.clone()) {
                    self.common.notify(Event::AsideCalled {
                        aside: id,
                        name,
                        arguments,
                    });
                }
            }
            LlmEvent::Unable => {}
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
                self.end_aside(id, status);
            }
        }
        true
    }

    /// The generation failed; `false` if it was not beside the conversation.
    pub(super) fn on_aside_failed(&mut self, request: RequestId) -> bool {
        let failed = self.asides.iter().find(|a| a.request == request);
        let failed = failed.map(|aside| aside.id);
        if let Some(id) = failed {
            self.end_aside(id, ResponseStatus::Failed);
        }
        failed.is_some()
    }

    pub(super) fn cancel_aside(&mut self, id: TurnId) {
        let Some(aside) = self.asides.iter().find(|aside| aside.id == id) else {
            return self
                .common
                .refuse("CancelAside", "no such response is being given".into());
        };
        let request = aside.request;
        self.common
            .outputs
            .push_back(Output::CancelGeneration { request });
        self.end_aside(id, ResponseStatus::Cancelled);
    }

    fn end_aside(&mut self, id: TurnId, status: ResponseStatus) {
        let Some(at) = self.asides.iter().position(|aside| aside.id == id) else {
            return;
        };
        let mut aside = self.asides.remove(at);
        let (input, chars) = aside.estimate;
        aside.usage.add(TokenUsage {
            input,
            cached: 0,
            output: tokens_of(chars),
        });
        self.common.notify(Event::AsideDone {
            aside: id,
            status,
            usage: aside.usage,
        });
    }
}
