//! A text conversation: one sentence, one answer.

use crate::conversation::{Event, Input, ResponseStatus};
use crate::session::{
    Inbound, Outbound, Profile, SessionError, SessionFactory, SessionHandle, SessionOptions,
    SpokenBy,
};
use crate::tools::{Named, Origin, SessionValues};
use crate::tts::Speaker;
use std::time::Duration;
use tokio::time::timeout;

/// How long to wait for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// A placeholder rate, Hz: the session produces no audio.
const RATE: u32 = 16_000;

/// The agent's answer to a sentence.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// Everything the agent has said since the previous answer, including announcements such as a
    /// timer's.
    pub(super) text: String,
    /// Whether the request was carried out: the response completed, the agent did not decline it,
    /// and at least one of its tool calls, if any, succeeded.
    pub(super) handled: bool,
}

/// A text conversation.
pub(super) struct Talk(pub(super) SessionHandle);

impl Talk {
    /// Opens one in this language, a BCP 47 tag; in the agent's own if `None`.
    pub(super) fn open(
        sessions: &SessionFactory,
        language: Option<String>,
    ) -> Result<Self, SessionError> {
        let options = SessionOptions {
            speaker: Speaker {
                language,
                ..Speaker::default()
            },
            spoken_by: SpokenBy::Nobody,
            values: SessionValues::default().with(Named::Transport, "wyoming", Origin::Verified),
            ..SessionOptions::new(Profile::ClientFirst, RATE)
        };
        sessions(options).map(Self)
    }

    /// Sends `text` and waits for the answer. Returns the conversation as well if it can go on.
    pub(super) async fn ask(mut self, text: String) -> (Answer, Option<Self>) {
        if text.trim().is_empty() {
            return (Answer::default(), Some(self));
        }
        let said = Inbound::Request(Input::Said { text, last: true });
        let mut answer = Answer::default();
        let answered = async {
            self.0.inbound.send(said).await.ok()?;
            self.listen(&mut answer).await
        };
        let answered = timeout(ANSWER_WITHIN, answered).await;
        let goes_on = matches!(answered, Ok(Some(())));
        (answer, goes_on.then_some(self))
    }

    /// Collects events until the answer ends; `None` if the session is over.
    async fn listen(&mut self, answer: &mut Answer) -> Option<()> {
        let (mut heard, mut unable) = (false, false);
        let (mut worked, mut failed) = (false, false);
        loop {
            let Outbound::Event { event, .. } = self.0.outbound.recv().await? else {
                continue;
            };
            match event {
                Event::UserItem { .. } => heard = true,
                Event::AgentItemDone { text, .. } => {
                    let gap = if answer.text.is_empty() { "" } else { " " };
                    answer.text.extend([gap, &text]);
                }
                Event::Unable { .. } if heard => unable = true,
                Event::ToolFinished { result, .. } if heard => {
                    worked |= result.is_ok();
                    failed |= result.is_err();
                }
                Event::ResponseDone { status, .. } if heard => {
                    let done = matches!(
                        status,
                        ResponseStatus::Completed | ResponseStatus::Incomplete
                    );
                    answer.handled = done && !unable && (worked || !failed);
                    return Some(());
                }
                Event::Refused { message, .. } if !heard => {
                    answer.text = message;
                    return Some(());
                }
                Event::UtteranceDropped => return Some(()),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{CallId, ItemId, Time, TurnId};
    use crate::llm::TokenUsage;
    use crate::tools::ToolError;
    use serde_json::json;
    use tokio::sync::mpsc;

    /// A conversation, and the session's side of its channels.
    fn talk() -> (Talk, mpsc::Receiver<Inbound>, mpsc::Sender<Outbound>) {
        let (inbound, requests) = mpsc::channel(8);
        let (tell, outbound) = mpsc::channel(32);
        (
            Talk(SessionHandle {
                inbound,
                outbound,
                span: tracing::Span::none(),
            }),
            requests,
            tell,
        )
    }

    async fn tell(session: &mpsc::Sender<Outbound>, events: impl IntoIterator<Item = Event>) {
        for event in events {
            let at = Time(0);
            session
                .send(Outbound::Event { at, event })
                .await
                .expect("room");
        }
    }

    fn said(text: &str) -> [Event; 2] {
        let (item, turn) = (ItemId(1), TurnId(1));
        [
            Event::AgentItemDone {
                item,
                text: text.into(),
                interrupted: false,
            },
            Event::ResponseDone {
                turn,
                status: ResponseStatus::Completed,
                latency: Box::default(),
                usage: TokenUsage::default(),
            },
        ]
    }

    fn heard() -> Event {
        Event::UserItem {
            item: ItemId(1),
            text: "and?".into(),
            spoken: true,
        }
    }

    #[tokio::test]
    async fn an_announcement_comes_before_the_answer() {
        let (talk, mut requests, session) = talk();
        tell(&session, said("Your timer is done.")).await;
        tell(&session, [heard()]).await;
        tell(&session, said("Nothing else.")).await;
        let (answer, goes_on) = talk.ask("and?".into()).await;
        assert_eq!(answer.text, "Your timer is done. Nothing else.");
        assert!(answer.handled && goes_on.is_some());
        let request = requests.recv().await;
        assert!(
            matches!(request, Some(Inbound::Request(Input::Said { text, last: true })) if text == "and?")
        );
    }

    #[tokio::test]
    async fn a_sentence_that_is_too_long_is_answered_with_the_reason() {
        let (talk, _requests, session) = talk();
        let refused = Event::Refused {
            request: "Said".into(),
            message: "what was said is too long".into(),
        };
        tell(&session, [refused]).await;
        let (answer, goes_on) = talk.ask("and so on".into()).await;
        assert_eq!(answer.text, "what was said is too long");
        assert!(!answer.handled && goes_on.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_does_not_answer_is_given_up() {
        let (silent, _requests, _session) = talk();
        let (answer, goes_on) = silent.ask("and?".into()).await;
        assert_eq!(answer, Answer::default());
        assert!(goes_on.is_none());
        let (over, ..) = talk();
        assert!(over.ask("and?".into()).await.1.is_none());
    }

    /// Whether a sentence counts as handled if the session sends these events before its answer.
    async fn handled(events: impl IntoIterator<Item = Event>) -> bool {
        let (talk, _requests, session) = talk();
        tell(&session, [heard()]).await;
        tell(&session, events).await;
        tell(&session, said("Some words.")).await;
        talk.ask("and?".into()).await.0.handled
    }

    #[tokio::test]
    async fn declined_and_failed_requests_are_not_handled() {
        let finished = |result| Event::ToolFinished {
            item: ItemId(1),
            call: CallId(1),
            result,
        };
        let (worked, failed) = (Ok(json!(1)), Err(ToolError::Broken("down".into())));
        assert!(handled([]).await);
        assert!(!handled([Event::Unable { turn: TurnId(1) }]).await);
        assert!(handled([finished(worked.clone())]).await);
        assert!(!handled([finished(failed.clone())]).await);
        assert!(
            handled([finished(failed), finished(worked)]).await,
            "one of two is something"
        );
    }
}
