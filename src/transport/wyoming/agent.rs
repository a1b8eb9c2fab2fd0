//! Conversations in words, which may go on over other connections.

use crate::conversation::{Event, Input, ResponseStatus};
use crate::session::{
    Inbound, Outbound, Profile, SessionError, SessionFactory, SessionHandle, SessionOptions,
    SpokenBy,
};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Conversations that are kept for their next sentence. One takes some 64 KiB, and the session's own
/// rules end it when nothing comes.
const KEPT: usize = 64;

/// For so long a sentence without a name goes on with the one before it from the same address: a minute
/// is a pause in a talk, and after it somebody else may be speaking.
const NAMELESS: Duration = Duration::from_secs(60);

/// An answer that takes longer is none.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// The rate of audio that nobody hears, Hz.
const RATE: u32 = 16_000;

/// The agent's answer to a sentence.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// All that was said since the answer before, also what nobody asked for: a timer may have rung.
    pub(super) text: String,
    /// It is an answer: no apology, not the word that this cannot be done, not of a tool that failed.
    pub(super) handled: bool,
}

/// A conversation in words.
pub(super) struct Talk(SessionHandle);

impl Talk {
    pub(super) fn open(sessions: &SessionFactory) -> Result<Self, SessionError> {
        let options = SessionOptions {
            profile: Profile::ClientFirst,
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

/// Which conversation a sentence belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Name {
    /// The client has a name for it.
    Given(String),
    /// It is that of a connection from an address.
    Connection { id: u64, from: IpAddr },
}

/// Conversations between two sentences; the one that was left first is in front.
#[derive(Default)]
pub(super) struct Kept(Mutex<VecDeque<Left>>);

/// A conversation and when it was left.
struct Left {
    name: Name,
    at: Instant,
    talk: Talk,
}

impl Left {
    /// It goes on with a sentence of this name: its own, or without one from the same address.
    fn is_for(&self, name: &Name) -> bool {
        match (&self.name, name) {
            (Name::Connection { from, .. }, Name::Connection { from: same, .. })
                if self.at.elapsed() < NAMELESS =>
            {
                from == same
            }
            (known, name) => known == name,
        }
    }
}

impl Kept {
    /// The conversation that a sentence of this name goes on with; of several the one that was left
    /// last, but first of all that of the same name.
    pub(super) fn take(&self, name: &Name) -> Option<Talk> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|left| left.talk.goes_on());
        let own = kept.iter().position(|left| left.name == *name);
        let index = own.or_else(|| kept.iter().rposition(|left| left.is_for(name)))?;
        kept.remove(index).map(|left| left.talk)
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: an answer is waited for in real time"
    )]
    pub(super) fn put(&self, name: Name, talk: Talk) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|left| left.name != name);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        let at = Instant::now();
        kept.push_back(Left { name, at, talk });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{CallId, ItemId, Time, TurnId, TurnLatency};
    use crate::llm::TokenUsage;
    use crate::tools::ToolError;
    use serde_json::json;
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
    async fn a_session_that_says_nothing_is_given_up() {
        let (silent, _requests, _session) = talk();
        let (answer, goes_on) = silent.ask("and?".into()).await;
        assert_eq!(answer, Answer::default());
        assert!(goes_on.is_none());
        let (over, ..) = talk();
        assert!(over.ask("and?".into()).await.1.is_none());
    }

    /// The outcome of a sentence whose session sends these events and then ends its answer.
    async fn handled(events: impl IntoIterator<Item = Event>) -> bool {
        let (talk, _requests, session) = talk();
        tell(&session, [heard()]).await;
        tell(&session, events).await;
        tell(&session, said("Some words.")).await;
        talk.ask("and?".into()).await.0.handled
    }

    #[tokio::test]
    async fn what_cannot_be_done_is_not_handled() {
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

    fn given(name: impl ToString) -> Name {
        Name::Given(name.to_string())
    }

    #[tokio::test]
    async fn the_conversation_that_was_left_first_goes_first() {
        let kept = Kept::default();
        let mut sessions = vec![];
        for name in 0..=KEPT {
            let (talk, requests, session) = talk();
            sessions.push((requests, session));
            kept.put(given(name), talk);
        }
        assert!(kept.take(&given(0)).is_none());
        assert!(kept.take(&given(1)).is_some_and(|talk| talk.goes_on()));
        assert!(kept.take(&given(1)).is_none());
        sessions.remove(2);
        assert!(kept.take(&given(2)).is_none(), "its session is over");
        assert!(kept.take(&given(3)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_name_a_conversation_goes_on_from_the_same_address_for_a_minute() {
        let kept = Kept::default();
        let name = |id, last| Name::Connection {
            id,
            from: [127, 0, 0, last].into(),
        };
        let (first, _requests, _session) = talk();
        kept.put(name(1, 1), first);
        assert!(kept.take(&name(2, 2)).is_none(), "another address");
        assert!(kept.take(&given("a")).is_none());
        tokio::time::advance(Duration::from_secs(59)).await;
        let talk = kept.take(&name(2, 1)).expect("the same address");
        kept.put(name(2, 1), talk);
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(kept.take(&name(3, 1)).is_none(), "too long ago");
        assert!(kept.take(&name(2, 1)).is_some(), "the same connection");
    }

    #[tokio::test]
    async fn a_connection_keeps_its_own_conversation() {
        let kept = Kept::default();
        let name = |id| Name::Connection {
            id,
            from: [127, 0, 0, 1].into(),
        };
        let (first, mut requests, _session) = talk();
        let (second, _requests, _other) = talk();
        kept.put(name(1), first);
        kept.put(name(2), second);
        let own = kept
            .take(&name(1))
            .expect("its own, although the other was left last");
        own.0
            .inbound
            .send(Inbound::Request(Input::HangUp))
            .await
            .expect("room");
        assert!(requests.recv().await.is_some());
    }
}
