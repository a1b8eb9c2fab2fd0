//! The settings with which a session opens. The transport chooses them: a session does not know by
//! which way its client came.

use crate::tools::{Named, SessionValues};
use crate::traces::Parent;
use crate::tts::Speaker;
use std::sync::Arc;

/// The settings with which a transport opens a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOptions {
    /// The policy and the greeting that it begins with.
    pub profile: Profile,
    /// Rate of the client's audio, Hz.
    pub input_rate: u32,
    /// Rate of the audio that the client wants, Hz.
    pub output_rate: u32,
    /// The side that makes the agent's voice.
    pub spoken_by: SpokenBy,
    /// Whether the opening waits until the client has set up the session, half a second at most.
    pub opens_later: bool,
    /// The agent's voice and language; the server's default voice if the name is unknown.
    pub speaker: Speaker,
    /// The name of the recogniser, which listens in the speaker's language; the server's default if
    /// `None` or unknown.
    pub recogniser: Option<String>,
    /// The client's words that its user is likely to say; the agent's if `None`.
    pub keyterms: Option<Arc<[String]>>,
    /// The model that the client named, for what it is worth.
    pub model: Option<String>,
    /// The client's `User-Agent`.
    pub client: Option<String>,
    /// The provider's name of a telephone call that it can put through to others. Tools that need such
    /// a call are offered.
    pub call: Option<String>,
    /// The call, if the server has placed it.
    pub placed: Option<PlacedCall>,
    /// The facts on the caller.
    pub values: SessionValues,
    /// The agent that the client was granted or may choose, and has chosen. Otherwise the routes lead to one.
    pub agent: Option<String>,
    /// The client shows the server's demonstration. Its tools are offered.
    pub demonstrates: bool,
    /// It begins without what earlier sessions have learned or spent, as the first one of a server does.
    pub begins_anew: bool,
    /// The client's span, to which the trace of the session belongs.
    pub parent: Option<Parent>,
}

impl SessionOptions {
    /// Options for audio of the same rate, Hz, in both directions and the server's default voice.
    pub fn new(profile: Profile, rate: u32) -> Self {
        Self {
            profile,
            input_rate: rate,
            output_rate: rate,
            spoken_by: SpokenBy::Server,
            opens_later: false,
            speaker: Speaker::default(),
            recogniser: None,
            keyterms: None,
            model: None,
            client: None,
            call: None,
            placed: None,
            values: SessionValues::default(),
            agent: None,
            demonstrates: false,
            begins_anew: false,
            parent: None,
        }
    }

    /// Whether there is a telephone line.
    pub(super) fn has_line(&self) -> bool {
        self.profile == Profile::PhoneCall || self.placed.is_some()
    }

    /// The message for an answering machine, if one may have answered.
    pub(super) fn machine_message(&self) -> Option<&String> {
        match &self.placed {
            Some(PlacedCall::Answered { message }) => Some(message),
            Some(PlacedCall::Back) | None => None,
        }
    }

    /// The number or address of the person at the other end: of a call that the server has placed, the called one.
    pub(super) fn other_party(&self) -> Option<&str> {
        let name = match self.placed {
            Some(_) => Named::Called,
            None => Named::Caller,
        };
        Some(self.values.get(&name)?.0)
    }
}

/// A call that the server has placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacedCall {
    /// It has just been answered, perhaps by a machine, which is listened for.
    Answered {
        /// The message for a machine, which is hung up on if this is empty.
        message: String,
    },
    /// It was connected to a session before, and comes back from a transfer: the other party is a person.
    Back,
}

/// The policy and the greeting that a session begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Profile {
    /// The server's policy; the agent greets.
    Conversation,
    /// The server's policy; the client speaks first.
    ClientFirst,
    /// The policy of telephone calls: a greeting of their own, and the agent may hang up.
    PhoneCall,
}

/// The side that turns the agent's words into speech.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpokenBy {
    /// The server: audio goes out, and the words of each clause right before it.
    Server,
    /// The client. Only words go out, as [`crate::conversation::Event::AgentSpeech`], as soon as
    /// they are known; how long they take to say is estimated.
    Client,
    /// Nobody: the words are read. They go out as for [`SpokenBy::Client`] and take no time.
    Nobody,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Origin;

    /// Recordings of calls that the server had placed were listed under its own number, and `undertone forget` with that
    /// of the called person did not find them.
    #[test]
    fn the_other_party_of_a_call_that_the_server_has_placed_is_the_called_one() {
        let values = SessionValues::default()
            .with(Named::Caller, "+15550199", Origin::Signalled)
            .with(Named::Called, "+15550100", Origin::Verified);
        let mut options = SessionOptions {
            values,
            ..SessionOptions::new(Profile::PhoneCall, 8_000)
        };
        assert_eq!(options.other_party(), Some("+15550199"));
        for (placed, watched) in [
            (
                PlacedCall::Answered {
                    message: String::new(),
                },
                true,
            ),
            (PlacedCall::Back, false),
        ] {
            options.placed = Some(placed);
            assert_eq!(options.other_party(), Some("+15550100"));
            assert_eq!(options.machine_message().is_some(), watched);
        }
    }
}
