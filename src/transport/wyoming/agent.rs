//! Conversations in words, which may go on over other connections.

#![allow(
    clippy::disallowed_methods,
    reason = "an edge: an answer is waited for in real time"
)]

use crate::conversation::{Event, Input, ResponseStatus};
use crate::session::{Inbound, Outbound, SessionHandle};
use crate::transport::{Door, SessionError, SessionFactory, SessionOptions, SpokenBy};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// Conversations that are kept for their next sentence. One takes some 64 KiB, and the session's own
/// rules end it when nothing comes.
const KEPT: usize = 64;

/// An answer that takes longer is none.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// The rate of audio that nobody hears, Hz.
const RATE: u32 = 16_000;

/// What the agent said to a sentence.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// All that was said since the answer before, also what nobody asked for: a timer may have rung.
    pub(super) text: String,
    /// It is an answer, and no apology.
    pub(super) handled: bool,
}

/// A conversation in words.
pub(super) struct Talk(SessionHandle);

impl Talk {
    pub(super) fn open(sessions: &SessionFactory) -> Result<Self, SessionError> {
        let options = SessionOptions {
            door: Door::Wyoming,
            input_rate: RATE,
            output_rate: RATE,
            spoken_by: SpokenBy::Nobody,
            model: None,
            client: None,
            call: None,
        };
        sessions(options).map(Self)
    }

    /// Its session is not over.
    pub(super) fn goes_on(&self) -> bool {
        !self.0.inbound.is_closed()
    }

    /// Says `text` and waits for the answer. The conversation comes back if it can go on.
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

    /// Listens to the end of the answer to the sentence that was said; `None` if the session is over.
    async fn listen(&mut self, answer: &mut Answer) -> Option<()> {
        let mut heard = false;
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
                Event::ResponseDone { status, .. } if heard => {
                    answer.handled = matches!(
                        status,
                        ResponseStatus::Completed | ResponseStatus::Incomplete
                    );
                    return Some(());
                }
                Event::UtteranceDropped => return Some(()),
                _ => {}
            }
        }
    }
}

/// Conversations between two connections, by the names that clients have for them; the one that was
/// left first is in front.
#[derive(Default)]
pub(super) struct Kept(Mutex<VecDeque<(String, Talk)>>);

impl Kept {
    pub(super) fn take(&self, name: &str) -> Option<Talk> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(_, talk)| talk.goes_on());
        let index = kept.iter().position(|(known, _)| known == name)?;
        kept.remove(index).map(|(_, talk)| talk)
    }

    pub(super) fn put(&self, name: String, talk: Talk) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(known, _)| *known != name);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back((name, talk));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{ItemId, Time, TurnId, TurnLatency};
    use tokio::sync::mpsc;

    /// A conversation, and its session's ends.
    fn talk() -> (Talk, mpsc::Receiver<Inbound>, mpsc::Sender<Outbound>) {
        let (inbound, requests) = mpsc::channel(8);
        let (tell, outbound) = mpsc::channel(32);
        (Talk(SessionHandle { inbound, outbound }), requests, tell)
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
                latency: TurnLatency::default(),
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
    async fn what_was_said_unasked_comes_before_the_answer() {
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

    #[tokio::test(start_paused = true)]
    async fn a_session_that_says_nothing_is_given_up() {
        let (silent, _requests, _session) = talk();
        let (answer, goes_on) = silent.ask("and?".into()).await;
        assert_eq!(answer, Answer::default());
        assert!(goes_on.is_none());
        let (over, ..) = talk();
        assert!(over.ask("and?".into()).await.1.is_none());
    }

    #[test]
    fn the_conversation_that_was_left_first_goes_first() {
        let kept = Kept::default();
        let mut sessions = vec![];
        for name in 0..=KEPT {
            let (talk, requests, session) = talk();
            sessions.push((requests, session));
            kept.put(name.to_string(), talk);
        }
        assert!(kept.take("0").is_none());
        assert!(
            kept.take("1")
                .is_some_and(|talk| !talk.0.inbound.is_closed())
        );
        assert!(kept.take("1").is_none());
        sessions.remove(2);
        assert!(kept.take("2").is_none(), "its session is over");
        assert!(kept.take("3").is_some());
    }
}
