//! The calls that the server has placed: how many there may be, and what became of each.

use super::OutboundCalls;
use crate::session::PlacedCall;
use crate::tools::{Named, Origin, SessionValues};
use crate::transport::Placed;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

const HOUR: Duration = Duration::from_secs(3_600);

/// The time after the ringing in which the call may still come to this server.
pub(in crate::server) const LATE: Duration = Duration::from_secs(15);

/// The longest that a call through Twilio lasts: Twilio hangs up then. A call whose end it has not told is over by then.
pub(in crate::server) const LONGEST: Duration = Duration::from_secs(4 * 3_600);

/// Calls that are remembered.
const MOST: usize = 1_000;

/// The reason that a call is not placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::server) enum Refused {
    /// Too many go on.
    #[error("There are already as many calls as outbound.max_calls allows.")]
    Calls,
    /// Too many were placed.
    #[error("There were already as many calls within an hour as outbound.per_hour allows.")]
    Hour,
    /// An earlier call may ring there.
    #[error("An earlier call to this number may have been placed: its status will tell.")]
    Uncertain,
}

/// The status of a call that the line has not confirmed, and may be dialing.
const UNCERTAIN: &str = "uncertain";

/// The state of a call, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(in crate::server) struct State {
    id: String,
    to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// `ringing`, `uncertain`, `answered`, or how it ended: `completed`, `busy`, `no_answer`, `canceled`, `failed`.
    status: &'static str,
}

/// The calls.
#[derive(Debug, Default)]
pub(in crate::server) struct PlacedCalls(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    calls: VecDeque<Call>,
    /// The times at which calls were placed within the last hour.
    placed: VecDeque<Instant>,
}

#[derive(Debug)]
struct Call {
    state: State,
    /// SHA-256 of the ticket, so that the time of a lookup reveals nothing.
    ticket: [u8; 32],
    /// The line's name of the call, once it is answered.
    line: Option<String>,
    placed: Placed,
    /// The time at which it is over although nobody has told; `None` if somebody watches it.
    until: Option<Instant>,
}

impl Call {
    fn is_over(&self) -> bool {
        !self.may_ring() && self.state.status != "answered"
    }

    /// Whether somebody may still answer it.
    fn may_ring(&self) -> bool {
        ["ringing", UNCERTAIN].contains(&self.state.status)
    }

    /// Notes how it ended, unless that is known; nobody has answered it if it still rang.
    fn end(&mut self, how: &'static str) {
        self.state.status = match (self.state.status, how) {
            ("ringing" | UNCERTAIN, "completed") => "no_answer",
            ("ringing" | UNCERTAIN | "answered", how) => how,
            (known, _) => known,
        };
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "an edge: telephones ring in real time"
)]
impl PlacedCalls {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        for call in &mut calls.calls {
            if call.until.is_some_and(|until| until < now) {
                // If the line had placed it, it would have reported its end.
                let is_uncertain = call.state.status == UNCERTAIN;
                call.end(if is_uncertain { "failed" } else { "completed" });
            }
        }
        calls.placed.retain(|at| now.duration_since(*at) < HOUR);
        calls
    }

    /// Notes a call that is about to be placed. Returns its id, and the ticket with which it comes back.
    pub(in crate::server) fn begin(
        &self,
        outbound: &OutboundCalls,
        to: &str,
        agent: Option<String>,
        values: SessionValues,
    ) -> Result<(String, String), Refused> {
        let mut calls = self.lock();
        let uncertain = |call: &Call| call.state.status == UNCERTAIN && call.state.to == to;
        if calls.calls.iter().any(uncertain) {
            return Err(Refused::Uncertain);
        }
        let going_on = calls.calls.iter().filter(|call| !call.is_over()).count();
        if going_on >= outbound.max_calls {
            return Err(Refused::Calls);
        }
        if calls.placed.len() >= outbound.per_hour {
            return Err(Refused::Hour);
        }
        let now = Instant::now();
        calls.placed.push_back(now);
        if calls.calls.len() >= MOST {
            // One that goes on has to be found again, and counts.
            let oldest = calls.calls.iter().position(Call::is_over);
            oldest.and_then(|oldest| calls.calls.remove(oldest));
        }
        let unique = || Uuid::new_v4().simple().to_string();
        let (id, ticket) = (unique(), unique());
        calls.calls.push_back(Call {
            state: State {
                id: id.clone(),
                to: to.to_owned(),
                agent: agent.clone(),
                status: "ringing",
            },
            ticket: Sha256::digest(&ticket).into(),
            line: None,
            placed: Placed {
                agent,
                // Lines tell it less reliably.
                values: values.with(Named::Called, to, Origin::Verified),
                call: PlacedCall::Answered {
                    message: outbound.message.clone(),
                },
            },
            until: Some(now + outbound.ring + LATE),
        });
        Ok((id, ticket))
    }

    /// The call with this id was answered, and its line calls it `line`. `false` if it was not awaited.
    pub(in crate::server) fn answered(&self, id: &str, line: &str) -> bool {
        self.answer(|call| call.state.id == id, line).is_some()
    }

    /// The call with this ticket was answered. `None` if none with it is awaited.
    pub(in crate::server) fn redeem(&self, ticket: &str) -> Option<Placed> {
        let shown: [u8; 32] = Sha256::digest(ticket).into();
        self.answer(|call| call.ticket == shown, "")
    }

    fn answer(&self, is_it: impl Fn(&Call) -> bool, line: &str) -> Option<Placed> {
        let mut calls = self.lock();
        let mut ringing = calls.calls.iter_mut();
        let call = ringing.find(|call| call.may_ring() && is_it(call))?;
        call.state.status = "answered";
        call.line = Some(line.to_owned()).filter(|line| !line.is_empty());
        call.until = call.line.as_ref().map(|_| Instant::now() + LONGEST);
        Some(call.placed.clone())
    }

    /// The call that was answered and that its line calls so; `None` if the server has not placed it.
    pub(in crate::server) fn of_line(&self, line: &str) -> Option<Placed> {
        let calls = self.lock();
        let mut calls = calls.calls.iter();
        let call = calls.find(|call| call.line.as_deref() == Some(line))?;
        Some(call.placed.clone())
    }

    /// The call that was answered and that its line calls so, on a new stream; `None` if the server has not placed it.
    pub(in crate::server) fn on_line(&self, line: &str) -> Option<Placed> {
        let mut calls = self.lock();
        let mut calls = calls.calls.iter_mut();
        let call = calls.find(|call| call.line.as_deref() == Some(line))?;
        let placed = call.placed.clone();
        call.placed.call = PlacedCall::Back;
        Some(placed)
    }

    /// The line has not said whether it dials a call. If it does, the telephone rings for this time from now on.
    pub(in crate::server) fn is_uncertain(&self, id: &str, ring: Duration) {
        let mut calls = self.lock();
        let mut calls = calls.calls.iter_mut();
        let call = calls.find(|call| call.state.id == id && call.state.status == "ringing");
        if let Some(call) = call {
            call.state.status = UNCERTAIN;
            call.until = Some(Instant::now() + ring + LATE);
        }
    }

    /// Records how a call ended. Returns whether it was still ringing: then nobody has answered it.
    pub(in crate::server) fn over(&self, id: &str, how: &'static str) -> bool {
        let mut calls = self.lock();
        let call = calls.calls.iter_mut().find(|call| call.state.id == id);
        call.is_some_and(|call| {
            let rang = call.may_ring();
            call.end(how);
            rang
        })
    }

    /// The state of a call.
    pub(in crate::server) fn state(&self, id: &str) -> Option<State> {
        let calls = self.lock();
        let call = calls.calls.iter().find(|call| call.state.id == id)?;
        Some(call.state.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::OutboundLine;
    use super::*;
    use tokio::time::advance;

    fn outbound(max_calls: usize, per_hour: usize) -> OutboundCalls {
        OutboundCalls {
            allow: Vec::new(),
            max_calls,
            per_hour,
            ring: Duration::from_secs(30),
            message: "Bye.".into(),
            line: OutboundLine::Twilio { from: "+1".into() },
        }
    }

    fn begin(calls: &PlacedCalls, outbound: &OutboundCalls) -> Result<(String, String), Refused> {
        calls.begin(outbound, "+15550100", None, SessionValues::default())
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_limited_at_a_time_and_by_the_hour() {
        let (calls, outbound) = (PlacedCalls::default(), outbound(2, 3));
        let (first, _) = begin(&calls, &outbound).unwrap();
        begin(&calls, &outbound).unwrap();
        assert_eq!(begin(&calls, &outbound), Err(Refused::Calls));
        assert!(calls.over(&first, "busy"));
        begin(&calls, &outbound).unwrap();
        advance(Duration::from_secs(60)).await;
        assert_eq!(begin(&calls, &outbound), Err(Refused::Hour));
        advance(HOUR).await;
        assert!(begin(&calls, &outbound).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_ticket_is_for_one_call_while_it_rings() {
        let (calls, outbound) = (PlacedCalls::default(), outbound(9, 9));
        let (id, ticket) = begin(&calls, &outbound).unwrap();
        assert_eq!(calls.redeem("forged"), None);
        let placed = calls.redeem(&ticket).unwrap();
        let message = "Bye.".to_owned();
        assert_eq!(placed.call, PlacedCall::Answered { message });
        let called = placed.values.get(&Named::Called);
        assert_eq!(called, Some(("+15550100", Origin::Verified)));
        assert_eq!(calls.redeem(&ticket), None, "it is used up");
        assert_eq!(calls.state(&id).unwrap().status, "answered");
        assert!(!calls.over(&id, "completed"));
        assert_eq!(calls.state(&id).unwrap().status, "completed");

        let (id, ticket) = begin(&calls, &outbound).unwrap();
        advance(Duration::from_secs(46)).await;
        assert_eq!(calls.redeem(&ticket), None);
        assert_eq!(calls.state(&id).unwrap().status, "no_answer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_may_have_been_placed_ends_as_the_line_tells_or_has_failed() {
        let (calls, outbound) = (PlacedCalls::default(), outbound(9, 9));
        let uncertain = || {
            let (id, _) = begin(&calls, &outbound).unwrap();
            calls.is_uncertain(&id, outbound.ring);
            assert_eq!(calls.state(&id).unwrap().status, UNCERTAIN);
            assert_eq!(begin(&calls, &outbound), Err(Refused::Uncertain));
            id
        };
        let id = uncertain();
        assert!(calls.over(&id, "busy"));
        assert_eq!(calls.state(&id).unwrap().status, "busy");
        let id = uncertain();
        assert!(calls.answered(&id, "CA1"));
        calls.is_uncertain(&id, outbound.ring);
        assert_eq!(calls.state(&id).unwrap().status, "answered");
        let id = uncertain();
        advance(outbound.ring + LATE + Duration::from_secs(1)).await;
        assert_eq!(calls.state(&id).unwrap().status, "failed");
        assert!(!calls.answered(&id, "CA2"));
        assert!(begin(&calls, &outbound).is_ok());
    }

    /// It used to take a place of `outbound.max_calls` until the server's end.
    #[tokio::test(start_paused = true)]
    async fn an_answered_call_whose_end_twilio_has_not_told_is_over_at_its_longest() {
        let (calls, outbound) = (PlacedCalls::default(), outbound(1, 9));
        let (id, _) = begin(&calls, &outbound).unwrap();
        assert!(calls.answered(&id, "CA1"));
        advance(LONGEST - Duration::from_secs(1)).await;
        assert_eq!(begin(&calls, &outbound), Err(Refused::Calls));
        advance(Duration::from_secs(2)).await;
        assert_eq!(calls.state(&id).unwrap().status, "completed");
        let (_, ticket) = begin(&calls, &outbound).unwrap();
        assert!(calls.redeem(&ticket).is_some());
        advance(2 * LONGEST).await;
        assert_eq!(
            begin(&calls, &outbound),
            Err(Refused::Calls),
            "a call through Asterisk is watched"
        );
    }

    /// A call that had gone on for long used to be forgotten when a thousand others were placed.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_goes_on_is_remembered() {
        let (calls, outbound) = (PlacedCalls::default(), outbound(2, 2 * MOST));
        let (first, ticket) = begin(&calls, &outbound).unwrap();
        assert!(calls.redeem(&ticket).is_some());
        for _ in 0..MOST + 1 {
            let (id, _) = begin(&calls, &outbound).unwrap();
            calls.over(&id, "busy");
        }
        assert_eq!(calls.state(&first).unwrap().status, "answered");
        assert_eq!(calls.lock().calls.len(), MOST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_knows_the_calls_that_were_answered() {
        let (calls, outbound) = (PlacedCalls::default(), outbound(9, 9));
        let (id, _) = begin(&calls, &outbound).unwrap();
        assert_eq!(calls.on_line("CA1"), None);
        assert!(calls.answered(&id, "CA1") && !calls.answered(&id, "CA2"));
        // A look at it is no stream of its.
        for _ in 0..2 {
            assert_ne!(calls.of_line("CA1").unwrap().call, PlacedCall::Back);
        }
        assert_ne!(calls.on_line("CA1").unwrap().call, PlacedCall::Back);
        // Whoever came back from a transfer used to be taken for a machine after a long sentence.
        assert_eq!(calls.on_line("CA1").unwrap().call, PlacedCall::Back);
        assert_eq!((calls.on_line("CA2"), calls.on_line("")), (None, None));
    }
}
