//! The core. Pure rules about turns, speech and tools: no clock, no runtime, no locks, no I/O.
//!
//! Pass each event to [`Conversation::handle_input`], carry out the decisions of
//! [`Conversation::poll_output`] until it returns `None`, then wait for the next input or until
//! [`Conversation::poll_timeout`].
//!
//! Each rule is a type with its own file, states and tests. It takes what it needs as arguments and returns
//! what is to be done; no rule knows [`Conversation`]. The folder `wiring` connects them: it passes inputs to
//! the rules and carries out their decisions.
//!
//! | where | rule |
//! |---|---|
//! | `endpointer` | what counts as speech; how much silence ends a turn |
//! | `utterance` | the user's utterance, from first sound to transcript; when the turn is over |
//! | `turn` | which audio belongs to the utterance; turns that the client commits by hand |
//! | `dictation` | how audio is transcribed that the client has not committed yet |
//! | `partials`, `segments` | transcripts of speech that goes on, and of long speech |
//! | `overlap` | which speech over the agent's voice interrupts it |
//! | `interruption` | barge-in and false interruptions |
//! | `answer` | the parts of an answer, and how it ends |
//! | `generation` | one run of the model: clauses and calls |
//! | `calls` | the tool calls of an answer, round by round |
//! | `plan` | several calls that the model writes at once, some of which need the results of others |
//! | `answer_end` | where an answer without an end is cut |
//! | `aside` | text responses outside the conversation |
//! | `early_tools` | the client's tools that may run early |
//! | `speculation` | which calls may run before they are committed, and how runs end |
//! | `draft`, `speculation/drafting` | calls that a draft model samples |
//! | `preempt` | answers that are generated before the end of the turn is certain |
//! | `assumed` | answers that are generated before their call is committed |
//! | `tool_cache` | results that the model's server goes on with by itself |
//! | `ending` | how the conversation ends: by a tool call or a hang-up |
//! | `confirm` | calls that wait for the user's yes |
//! | `filler` | speech that covers a wait |
//! | `announced` | which announcements are not said again |
//! | `keypad` | the meaning of telephone keys |
//! | `silence` | when a silent user is prompted, and when the session ends |
//! | `absence` | a client whose connection was lost and that may come back |
//! | `opening` | the words with which the agent begins |
//! | `agenda` | work that waits until nobody speaks |
//! | `text_limits` | how much text a client may add |
//! | `clauses` | where a clause ends; which text is not spoken |
//! | `playout` | how much audio was sent, and how much was heard |
//! | `history` | the conversation as the model sees it |
//! | `agent`, `wiring/handoff` | which agent answers, and when another one goes on |
//! | `wiring/calls` | commits, and where results go |
//! | `wiring/client` | the client's requests |
//! | `wiring/relayed` | clients that run their own recogniser and voice |

mod absence;
mod agenda;
mod agent;
mod announced;
mod answer;
mod answer_end;
mod aside;
mod assumed;
mod briefing;
mod calls;
mod clarity;
mod clauses;
mod client_settings;
mod common;
mod confirm;
mod dictation;
mod draft;
mod early_tools;
mod ending;
mod endpointer;
mod experience;
mod filler;
mod gain;
mod generation;
mod held;
mod held_back;
mod history;
mod ids;
mod input;
mod interruption;
mod items;
mod keypad;
mod latency;
mod machine;
mod model_pace;
mod opening;
mod outcome;
mod output;
mod overlap;
mod partials;
mod pause;
mod plan;
mod playout;
mod policy;
mod preempt;
mod segments;
mod sentence;
mod shed;
mod silence;
mod speculation;
mod template;
#[cfg(test)]
mod tests;
mod text_limits;
mod timer;
mod tool_cache;
mod turn;
mod turn_detection;
mod utterance;
mod verdict;
mod wait;
mod wiring;

pub use crate::time::{Micros, Samples, Time};
pub use agent::Agent;
pub use answer_end::AnswerPolicy;
pub use briefing::Briefing;
pub use clauses::Clauses;
pub use draft::{DraftPolicy, SampledCall};
pub use early_tools::{CLIENT_TIMEOUT, EarlyTool};
pub use experience::{Experience, Lesson};
pub use ids::{CallId, ClauseId, ItemId, Job, RequestId, RunId, TurnId};
pub use input::{
    Context, HeardUpTo, Input, MaxTokens, NewItem, Place, ResponsePlace, ResponseTerms, Settings,
};
pub use latency::TurnLatency;
pub use opening::Opening;
pub use outcome::{ConfirmationOutcome, HangUpReason, ResponseStatus};
pub use output::{Event, Output};
pub use overlap::{BargeInPolicy, ListeningWords};
pub use policy::{
    Declarations, EndpointPolicy, FillerLead, FillerPolicy, Policy, SpeculationPolicy, TextLimits,
    Timeouts, VadPolicy,
};
pub use sentence::spoken_length;
pub use shed::Shed;
#[doc(hidden)]
pub use speculation::Rehearsal;
pub use speculation::{
    Because, Before, Decision, Decline, Discard, DraftRecord, Fate, HeldRecord, PredictionRecord,
    RunRecord, SpeculationEvent, TurnRecord, Verdict, verdict,
};
pub use turn_detection::{Eagerness, EndOfTurnRule, TurnDetection};
pub use wiring::Conversation;
