//! The core. Pure rules about turns, speech and tools: no clock, no runtime, no locks, no I/O.
//!
//! Give it what happens with [`Conversation::handle_input`], carry out what
//! [`Conversation::poll_output`] decides until there is nothing more, then wait until
//! [`Conversation::poll_timeout`] or the next input.
//!
//! Each rule is a type with its own file, states and tests. It is given what it needs, and returns what is
//! to be done; none of them knows a [`Conversation`]. The folder `wiring` holds them together: it gives
//! each rule what happens and carries out what the rules decide.
//!
//! | where | rule |
//! |---|---|
//! | `endpointer` | what is speech; how much silence ends a turn |
//! | `utterance` | what the user says, from first sound to transcript; when the turn is over |
//! | `turn` | which audio is the user's utterance, and what the client commits by hand |
//! | `interruption` | the user speaks over the agent; false interruptions |
//! | `answer` | what an answer is made of, and how it ends |
//! | `generation` | one run of the model: clauses and calls |
//! | `calls` | the calls of an answer, round by round |
//! | `answer_end` | where an answer ends that the model does not end |
//! | `aside` | answers in writing, beside the conversation |
//! | `speculation` | what may run before it is committed, and how it ends |
//! | `preempt` | answers that are made before the turn is certainly over |
//! | `ending` | how the conversation ends, by a call of the agent or a hang-up |
//! | `confirm` | calls that wait for the user's yes |
//! | `filler` | what is said while the user waits |
//! | `keypad` | what the keys of a telephone mean |
//! | `silence` | a user who says nothing is asked, and in the end left |
//! | `agenda` | what waits until nobody speaks |
//! | `text_limits` | how much text a client may add |
//! | `clauses` | where a clause ends; which text is not spoken |
//! | `playout` | what was sent and what was heard |
//! | `history` | what the model is told was said |
//! | `wiring/calls` | which calls run, and where their results go |
//! | `wiring/client` | what the client may ask for |
//! | `wiring/relayed` | clients with a recogniser and a voice of their own |

mod agenda;
mod answer;
mod answer_end;
mod aside;
mod calls;
mod clauses;
mod client_settings;
mod common;
mod confirm;
mod ending;
mod endpointer;
mod filler;
mod generation;
mod history;
mod ids;
mod input;
mod interruption;
mod keypad;
mod latency;
mod outcome;
mod output;
mod playout;
mod policy;
mod preempt;
mod sentence;
mod silence;
mod speculation;
mod template;
#[cfg(test)]
mod tests;
mod text_limits;
mod timer;
mod turn;
mod turn_detection;
mod utterance;
mod wiring;

pub use crate::time::{Micros, Samples, Time};
pub use clauses::Clauses;
pub use ids::{CallId, ClauseId, ItemId, RequestId, RunId, TurnId};
pub use input::{
    Context, Input, Job, MaxTokens, NewItem, Place, ResponsePlace, ResponseTerms, Settings,
};
pub use latency::TurnLatency;
pub use outcome::{ConfirmationOutcome, HangUpReason, ResponseStatus};
pub use output::{Event, Output};
pub use policy::{
    AnswerPolicy, Declarations, EndpointPolicy, FillerLead, FillerPolicy, Policy,
    SpeculationPolicy, TextLimits, Timeouts, VadPolicy,
};
pub use speculation::{
    Because, Decision, Decline, Discard, Fate, PredictionRecord, RunRecord, SpeculationEvent,
    TurnRecord, Verdict, verdict,
};
pub use turn_detection::{Eagerness, EndOfTurnRule, TurnDetection};
pub use wiring::Conversation;
