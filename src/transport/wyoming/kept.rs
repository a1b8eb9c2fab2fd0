//! Keeps conversations between sentences, which may arrive over different connections.

use crate::session::SessionHandle;
use futures_util::future::BoxFuture;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The most conversations that are kept. Each takes about 64 KiB, and the session's own idle rules
/// end it.
const KEPT: usize = 64;

/// How long a sentence without a conversation id continues the previous conversation from the same
/// address. A minute is a pause in a conversation; after it somebody else may be speaking.
const NAMELESS: Duration = Duration::from_secs(60);

/// The conversation that a sentence belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConversationName {
    /// The id that the client gave.
    Given(String),
    /// A connection, for sentences without an id.
    Connection {
        /// The connection's number.
        id: u64,
        /// The client's address.
        from: IpAddr,
    },
}

impl ConversationName {
    /// Whether a sentence named `next` continues a conversation of this name that was last used
    /// `ago`: if the names are equal, or if both have no id and come from the same address.
    pub fn goes_on_with(&self, next: &Self, ago: Duration) -> bool {
        match (self, next) {
            (Self::Connection { from, .. }, Self::Connection { from: same, .. })
                if ago < NAMELESS =>
            {
                from == same
            }
            (known, next) => known == next,
        }
    }
}

/// Keeps conversations between sentences. A store shared by several servers returns handles that
/// lead to the server where the session runs.
pub trait ConversationStore: Send + Sync {
    /// Removes and returns the conversation that a sentence of this name
    /// [continues](ConversationName::goes_on_with): the one of the same name, otherwise the most
    /// recently used. Its session is not over.
    fn take(&self, name: &ConversationName) -> BoxFuture<'_, Option<SessionHandle>>;

    /// Keeps a conversation for its next sentence, replacing another of the same name. It may be
    /// dropped to make room.
    fn put(&self, name: ConversationName, session: SessionHandle) -> BoxFuture<'_, ()>;
}

/// The conversations of this server, the least recently used first.
#[derive(Debug, Default)]
pub struct ConversationMemory(Mutex<VecDeque<Left>>);

/// A conversation and when it was last used.
#[derive(Debug)]
struct Left {
    name: ConversationName,
    at: Instant,
    session: SessionHandle,
}

impl ConversationMemory {
    fn find(&self, name: &ConversationName) -> Option<SessionHandle> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|left| !left.session.inbound.is_closed());
        let is_for = |left: &Left| left.name.goes_on_with(name, left.at.elapsed());
        let own = kept.iter().position(|left| left.name == *name);
        let index = own.or_else(|| kept.iter().rposition(is_for))?;
        kept.remove(index).map(|left| left.session)
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: the next sentence is waited for in real time"
    )]
    fn keep(&self, name: ConversationName, session: SessionHandle) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|left| left.name != name);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        let at = Instant::now();
        kept.push_back(Left { name, at, session });
    }
}

impl ConversationStore for ConversationMemory {
    fn take(&self, name: &ConversationName) -> BoxFuture<'_, Option<SessionHandle>> {
        Box::pin(std::future::ready(self.find(name)))
    }

    fn put(&self, name: ConversationName, session: SessionHandle) -> BoxFuture<'_, ()> {
        self.keep(name, session);
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Input;
    use crate::session::{Inbound, Outbound};
    use tokio::sync::mpsc;

    /// A conversation, and the session's side of its channels.
    fn talk() -> (
        SessionHandle,
        mpsc::Receiver<Inbound>,
        mpsc::Sender<Outbound>,
    ) {
        let (inbound, requests) = mpsc::channel(8);
        let (tell, outbound) = mpsc::channel(32);
        (
            SessionHandle {
                inbound,
                outbound,
                span: tracing::Span::none(),
            },
            requests,
            tell,
        )
    }

    fn given(name: impl ToString) -> ConversationName {
        ConversationName::Given(name.to_string())
    }

    #[test]
    fn the_least_recently_used_conversation_is_dropped_first() {
        let kept = ConversationMemory::default();
        let mut sessions = vec![];
        for name in 0..=KEPT {
            let (talk, requests, session) = talk();
            sessions.push((requests, session));
            kept.keep(given(name), talk);
        }
        assert!(kept.find(&given(0)).is_none());
        assert!(kept.find(&given(1)).is_some());
        assert!(kept.find(&given(1)).is_none());
        sessions.remove(2);
        assert!(kept.find(&given(2)).is_none(), "its session is over");
        assert!(kept.find(&given(3)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_id_a_conversation_goes_on_from_the_same_address_for_a_minute() {
        let kept = ConversationMemory::default();
        let name = |id, last| ConversationName::Connection {
            id,
            from: [127, 0, 0, last].into(),
        };
        let (first, _requests, _session) = talk();
        kept.keep(name(1, 1), first);
        assert!(kept.find(&name(2, 2)).is_none(), "another address");
        assert!(kept.find(&given("a")).is_none());
        tokio::time::advance(Duration::from_secs(59)).await;
        let talk = kept.find(&name(2, 1)).expect("the same address");
        kept.keep(name(2, 1), talk);
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(kept.find(&name(3, 1)).is_none(), "too long ago");
        assert!(kept.find(&name(2, 1)).is_some(), "the same connection");
    }

    #[tokio::test]
    async fn a_connection_keeps_its_own_conversation() {
        let kept = ConversationMemory::default();
        let name = |id| ConversationName::Connection {
            id,
            from: [127, 0, 0, 1].into(),
        };
        let (first, mut requests, _session) = talk();
        let (second, _requests, _other) = talk();
        kept.keep(name(1), first);
        kept.keep(name(2), second);
        let own = kept
            .find(&name(1))
            .expect("its own, although the other was left last");
        own.inbound
            .send(Inbound::Request(Input::HangUp))
            .await
            .expect("room");
        assert!(requests.recv().await.is_some());
    }
}
