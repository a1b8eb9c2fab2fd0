//! The paper's algorithms in virtual time, event by event, without a conversation: agents that generate, a draft
//! model that guesses, tools that run, an engine that decodes token by token.

use super::clock::{Clock, seconds};
use super::equations::{Engine, Request};
use crate::time::{Micros, Time};

/// A request as it goes in one run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drawn {
    pub times: Request,
    /// The draft model guesses the call.
    pub hit: bool,
}

#[derive(Debug)]
enum Step {
    Drafted,
    Generated,
    ToolDone { early: bool },
}

/// The early run of the guessed call.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Early {
    None,
    Running,
    Done,
}

/// Algorithm 1, and with `speculate` Algorithm 2, for one agent whose requests follow each other. Returns the
/// time until the last tool is done.
pub(super) fn client(requests: &[Drawn], speculate: bool) -> Micros {
    let mut clock = Clock::new();
    for request in requests {
        run_request(&mut clock, *request, speculate);
    }
    clock.now.since(Time(0))
}

fn run_request(clock: &mut Clock<Step>, request: Drawn, speculate: bool) {
    let Request {
        generation,
        tool,
        draft,
    } = request.times;
    clock.after(seconds(generation), Step::Generated);
    if speculate {
        clock.after(seconds(draft), Step::Drafted);
    }
    let (mut early, mut waits, mut called) = (Early::None, false, false);
    while let Some(step) = clock.next() {
        match step {
            // A guess after the call is useless, and a wrong one ends unseen.
            Step::Drafted if request.hit && !called => {
                early = Early::Running;
                clock.after(seconds(tool), Step::ToolDone { early: true });
            }
            Step::Drafted => {}
            Step::Generated => {
                called = true;
                match early {
                    Early::Done => break,
                    Early::Running => waits = true,
                    Early::None => clock.after(seconds(tool), Step::ToolDone { early: false }),
                }
            }
            Step::ToolDone { early: true } if !waits => early = Early::Done,
            Step::ToolDone { .. } => break,
        }
    }
    // Remaining events belong to this request: its draft is cancelled.
    clock.forget();
}

/// How an engine treats a sequence whose call goes to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    /// Nothing: Algorithm 3.
    Nothing,
    /// The prompt tokens that were prefilled: Algorithm 3 with a prefix cache.
    Prefix,
    /// The sequence stays, and results come from the tool cache: Algorithm 5.
    Sequence,
}

/// One turn in the engine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    /// The result of the model's call is on its way into the tool cache.
    pub guessed: bool,
    /// When the tool of an early call starts, after the turn's beginning, s.
    pub draft: f64,
}

#[derive(Debug)]
enum Engineering {
    /// The prompt, or what is new of it, is in the KV cache.
    Prefilled,
    /// A token was decoded, or a call was validated.
    Decoded,
    /// The early result is in the tool cache.
    Posted,
    /// The result is back in the engine's queue.
    Returned,
}

/// Consecutive turns of one agent. The time counts from the first prompt in the batch until the last result is
/// in the batch again, and prefilled unless the engine keeps nothing: this is what the equations count.
pub(super) fn engine(model: &Engine, turns: &[Turn], keeps: Keeps) -> Micros {
    let mut clock = Clock::new();
    let (mut tokens, mut fresh) = (model.prompt, model.prompt);
    for turn in turns {
        run_turn(&mut clock, model, *turn, fresh, keeps);
        let new = model.call + model.output;
        tokens += new;
        fresh = match keeps {
            Keeps::Nothing => tokens,
            Keeps::Prefix | Keeps::Sequence => new,
        };
    }
    if keeps != Keeps::Nothing {
        clock.after(
            seconds(model.prefill * fresh as f64),
            Engineering::Prefilled,
        );
        clock.next();
    }
    clock.now.since(Time(0))
}

fn run_turn(
    clock: &mut Clock<Engineering>,
    model: &Engine,
    turn: Turn,
    fresh: usize,
    keeps: Keeps,
) {
    let began = clock.now;
    clock.after(
        seconds(model.prefill * fresh as f64),
        Engineering::Prefilled,
    );
    let posted_after = seconds(turn.draft + model.tool);
    if turn.guessed && keeps == Keeps::Sequence {
        clock.after(posted_after, Engineering::Posted);
    }
    let (mut decoded, mut is_posted) = (0, false);
    let mut validated = false;
    while let Some(event) = clock.next() {
        match event {
            Engineering::Posted => is_posted = true,
            Engineering::Prefilled => clock.after(seconds(model.decode), Engineering::Decoded),
            // The call begins: one pass validates all its tokens, and the result follows from the cache.
            Engineering::Decoded if decoded + 1 == model.reasoning && is_posted => {
                (decoded, validated) = (model.reasoning + model.call - 1, true);
                clock.after(seconds(model.decode), Engineering::Decoded);
            }
            Engineering::Decoded => {
                decoded += 1;
                if decoded < model.reasoning + model.call {
                    clock.after(seconds(model.decode), Engineering::Decoded);
                } else if validated {
                    break;
                } else {
                    let at_client = clock.now + seconds(model.overhead);
                    // The client waits for its early run, or runs the tool now.
                    let done = match turn.guessed && keeps == Keeps::Sequence {
                        true => at_client.max(began + posted_after),
                        false => at_client + seconds(model.tool),
                    };
                    let back = done + seconds(model.overhead);
                    clock.after(back.since(clock.now), Engineering::Returned);
                }
            }
            Engineering::Returned => break,
        }
    }
    clock.forget();
}

#[cfg(test)]
mod tests {
    use super::super::clock::as_seconds;
    use super::*;

    fn once(draft: f64, tool: f64, hit: bool) -> f64 {
        let times = Request {
            generation: 2.0,
            tool,
            draft,
        };
        as_seconds(client(&[Drawn { times, hit }], true))
    }

    #[test]
    fn a_hit_hides_the_tool_behind_the_generation() {
        assert_eq!(once(0.5, 1.0, true), 2.0);
        assert_eq!(once(0.5, 3.0, true), 3.5);
        assert_eq!(once(0.5, 3.0, false), 5.0);
        assert_eq!(once(2.5, 3.0, true), 5.0, "the draft comes too late");
    }

    #[test]
    fn a_result_that_is_late_for_the_engine_still_spares_the_client_the_wait() {
        let model = Engine {
            turns: 1,
            overhead: 0.1,
            prefill: 0.0,
            decode: 0.01,
            prompt: 100,
            reasoning: 100,
            call: 20,
            output: 50,
            tool: 0.5,
        };
        let took = |tool, guessed| {
            let turn = Turn {
                guessed,
                draft: 0.2,
            };
            engine(&Engine { tool, ..model }, &[turn], Keeps::Sequence).as_ms()
        };
        let passed = "one pass for the call, and no way to the client";
        assert_eq!(took(0.5, true), 1_010, "{passed}");
        assert_eq!(took(0.5, false), 1_200 + 200 + 500);
        assert_eq!(took(2.0, true), 200 + 2_000 + 100, "posted too late");
    }
}
