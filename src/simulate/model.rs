//! A caller who is played by a language model.

use super::caller::Next;
use super::log::{Line, Who};
use super::scenario::{CallerSpec, Turn};
use super::wanted::words;
use crate::llm::{Demands, Llm, LlmError, LlmEvent, Message, Prompt};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

/// The mark with which the model hangs up.
const HANG_UP: &str = "HANG UP";

/// The most tokens of a caller's turn.
const MOST_TOKENS: u32 = 300;

/// The longest wait for a caller's turn. It is only reached if the model hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The caller's model, and its part.
pub(super) struct Model {
    llm: Arc<dyn Llm>,
    instructions: String,
    /// Turns that may still be said.
    left: usize,
    most: usize,
    /// The model has hung up with its last words.
    is_done: bool,
}

impl Model {
    pub(super) fn new(llm: Arc<dyn Llm>, caller: &CallerSpec) -> Self {
        let persona = match caller.persona.trim() {
            "" => String::new(),
            persona => format!("\nAbout you: {persona}"),
        };
        Self {
            llm,
            instructions: format!("Your goal: {}{persona}", caller.goal.trim()),
            left: caller.max_turns,
            most: caller.max_turns,
            is_done: false,
        }
    }

    /// Thinks about the next turn after these `lines`.
    ///
    /// # Errors
    /// The model fails, says nothing, or has had all its turns.
    pub(super) fn next<'a>(
        &mut self,
        lines: impl Iterator<Item = &'a Line>,
    ) -> BoxFuture<'static, Result<Next, String>> {
        if self.is_done {
            return Box::pin(std::future::ready(Ok(Next::HangUp)));
        }
        if self.left == 0 {
            let problem = format!(
                "the caller has not reached the end in {} turns (caller.max_turns)",
                self.most
            );
            return Box::pin(std::future::ready(Err(problem)));
        }
        self.left -= 1;
        let mut messages: Vec<Message> = lines.filter_map(message).collect();
        if messages.is_empty() {
            messages.push(Message::System {
                text: "The line is open. You speak first.".into(),
            });
        }
        let prompt = Prompt {
            instructions: Some(self.instructions.clone()),
            day: None,
            messages,
            tools: Arc::default(),
            demands: Demands {
                max_tokens: Some(MOST_TOKENS),
                ..Demands::default()
            },
        };
        let llm = self.llm.clone();
        Box::pin(async move {
            let said = tokio::time::timeout(PATIENCE, say(&*llm, prompt)).await;
            let said = said.map_err(|_| "the caller's model does not answer".to_owned())?;
            let said = said.map_err(|error| format!("the caller's model: {error}"))?;
            Ok(said)
        })
    }

    /// Notes that the words of this turn are the last.
    pub(super) fn took(&mut self, is_last: bool) {
        self.is_done = is_last;
    }
}

/// The conversation as the caller sees it: the agent's words are those of the other side.
fn message(line: &Line) -> Option<Message> {
    let text = line.text.clone();
    match line.who {
        Who::Agent => Some(Message::User { text }),
        Who::Caller => Some(Message::Agent {
            text,
            interrupted: false,
        }),
        Who::Heard | Who::Tool | Who::Note => None,
    }
}

async fn say(llm: &dyn Llm, prompt: Prompt) -> Result<Next, LlmError> {
    let mut said = String::new();
    let mut stream = llm.generate(prompt);
    while let Some(event) = stream.next().await {
        match event? {
            LlmEvent::Speech { text } => said.push_str(&text),
            LlmEvent::End => break,
            _ => {}
        }
    }
    read(&said).ok_or_else(|| LlmError::Engine("it said nothing".into()))
}

/// The step that a model's answer means. The mark may follow its last words.
fn read(said: &str) -> Option<Next> {
    let (before, hangs_up) = match said.split_once(HANG_UP) {
        Some((before, _)) => (before, true),
        None => (said, false),
    };
    let before = before.trim_end_matches(|c: char| !c.is_alphanumeric() && !".!?".contains(c));
    match (words(before).is_empty(), hangs_up) {
        (true, true) => Some(Next::HangUp),
        (true, false) => None,
        (false, _) => Some(Next::Turn(Turn {
            say: Some(before.trim().to_owned()),
            is_last: hangs_up,
            ..Turn::default()
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(say: &str, is_last: bool) -> Option<Next> {
        Some(Next::Turn(Turn {
            say: Some(say.into()),
            is_last,
            ..Turn::default()
        }))
    }

    #[test]
    fn the_mark_hangs_up_after_the_words_before_it() {
        assert_eq!(read("A table, please."), turn("A table, please.", false));
        assert_eq!(read("HANG UP"), Some(Next::HangUp));
        assert_eq!(read("  [HANG UP]\n"), Some(Next::HangUp));
        assert_eq!(read("Thanks, bye! [HANG UP]"), turn("Thanks, bye!", true));
        assert_eq!(read("Thanks\nHANG UP."), turn("Thanks", true));
        assert_eq!(read(" \n"), None);
        assert_eq!(read("Don't hang up!"), turn("Don't hang up!", false));
    }
}
