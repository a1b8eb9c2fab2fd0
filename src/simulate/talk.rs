//! One conversation between a caller and the agent: the caller waits, speaks, interrupts and hangs up.
//!
//! In text, words go in when they are said, and the agent's words are read as soon as they are there. If the scenario
//! interrupts, the session's client is one with its own voice, as a telephone relay has: it reports which words were
//! heard, so that an interruption cuts those behind them. Nobody waits for a voice in either case.

use super::caller::{Caller, Next};
use super::log::{Log, Who};
use super::scenario::{Ends, Scenario, Turn};
use super::voice::{FRAME, Voice};
use super::wanted::has_words;
use crate::conversation::{Event, Input, ResponseStatus, spoken_length};
use crate::session::{self, Engines, Inbound, Outbound, SessionHandle, SessionOptions};
use futures_util::future::BoxFuture;
use std::future::pending;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout};

/// The silence between the agent's last sound and the caller's first, if the scenario has none of its own.
const PAUSE: Duration = Duration::from_millis(500);

/// How long nothing may happen while the caller waits. It is only reached if something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest conversation.
const LONGEST: Duration = Duration::from_mins(15);

/// How long the caller stays on the line for an agent that is expected to hang up.
const GOODBYE: Duration = Duration::from_secs(10);

/// How long the session may take to end after the caller has hung up.
const LAST_EVENTS: Duration = Duration::from_secs(10);

/// How words get from one side to the other.
pub(super) enum Medium {
    /// As text, which is read, or `spoken` by a voice that takes no time.
    Text {
        /// An interruption cuts it.
        spoken: bool,
    },
    /// As sound.
    Voice(Box<Voice>),
}

/// Speech of a turn that a model has thought of.
type Thought = BoxFuture<'static, Result<(Next, Option<Vec<f32>>), String>>;

/// Holds a conversation. Returns its session, what happened, and its sound.
pub(super) async fn talk(
    engines: &Arc<Engines>,
    options: &SessionOptions,
    scenario: &Scenario,
    caller: Caller,
    medium: Medium,
) -> (String, Log, Option<(Vec<i16>, u32)>) {
    let greets = !engines.greeting(options).is_empty();
    let (id, handle) = session::open_known(engines, options);
    let SessionHandle {
        inbound,
        mut outbound,
        ..
    } = handle;
    let began = now();
    let mut ticks = matches!(medium, Medium::Voice(_)).then(|| {
        let mut ticks = interval(FRAME);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        ticks
    });
    let mut thinking: Option<Thought> = None;
    let mut talk = Talk {
        inbound,
        began,
        log: Log::default(),
        medium,
        caller,
        next: None,
        clip: None,
        phase: Phase::Listening,
        hearing: Hearing::new(began, greets),
        ends: scenario.expect.ends,
    };
    loop {
        if talk.step(&mut thinking).await.is_break() {
            break;
        }
        let wake = talk.wake();
        tokio::select! {
            biased;
            message = outbound.recv() => match message {
                Some(message) => if talk.take(message).await.is_break() { break },
                // It has failed: an agent that hangs up says so.
                None => {
                    let _ = talk.give_up("the session ended before anybody hung up");
                    break;
                }
            },
            thought = ready(&mut thinking) => {
                thinking = None;
                if talk.thought(thought).is_break() {
                    break;
                }
            }
            () = tick(&mut ticks) => talk.send_frame().await,
            () = sleep_until(wake) => {}
        }
    }
    let Talk {
        inbound,
        mut log,
        medium,
        ..
    } = talk;
    drop(inbound);
    let rest = async {
        while let Some(message) = outbound.recv().await {
            if let Outbound::Event { at, event } = message {
                log.take(at, &event);
            }
        }
    };
    // What is missing then was not heard either.
    let _ = timeout(LAST_EVENTS, rest).await;
    let sound = match medium {
        Medium::Text { .. } => None,
        Medium::Voice(voice) => Some(voice.sound()),
    };
    (id.to_string(), log, sound)
}

struct Talk {
    inbound: mpsc::Sender<Inbound>,
    began: Instant,
    log: Log,
    medium: Medium,
    caller: Caller,
    next: Option<Next>,
    /// The speech of `next`, if a model has thought of it.
    clip: Option<Vec<f32>>,
    phase: Phase,
    hearing: Hearing,
    ends: Option<Ends>,
}

/// The state of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits for the agent to finish.
    Listening,
    /// Says nothing until then, and speaks if the turn has words.
    Pausing(Instant),
    Speaking,
    /// Hangs up then.
    Leaving(Instant),
}

/// The events that the caller has noticed.
#[derive(Debug)]
struct Hearing {
    is_responding: bool,
    /// The agent has heard the beginning of speech, and not its end.
    hears: bool,
    /// Turns of the caller's that the agent has understood, and the last of them that it has answered.
    understood: u64,
    answered: u64,
    waits: Waits,
    /// The last time at which something happened.
    last: Instant,
    /// The agent's words since the caller's last turn, as far as they are finished.
    since: String,
    /// The words of the response that is being given, before its current item, and that item's words.
    before: usize,
    item: String,
    /// The time at which the words are heard that `next` interrupts.
    interrupts: Option<Instant>,
}

/// The event before which it is not the caller's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    Nothing,
    Greeting,
    /// An answer to a turn after so many.
    Answer(u64),
}

impl Hearing {
    fn new(began: Instant, greets: bool) -> Self {
        Self {
            is_responding: false,
            hears: false,
            understood: 0,
            answered: 0,
            waits: if greets {
                Waits::Greeting
            } else {
                Waits::Nothing
            },
            last: began,
            since: String::new(),
            before: 0,
            item: String::new(),
            interrupts: None,
        }
    }

    /// The agent has nothing more to say to the caller's last turn.
    fn is_answered(&self) -> bool {
        match self.waits {
            Waits::Nothing => true,
            Waits::Greeting => false,
            Waits::Answer(before) => self.understood > before && self.answered == self.understood,
        }
    }

    fn take(&mut self, event: &Event) {
        match event {
            Event::SpeechStarted { .. } => self.hears = true,
            Event::UtteranceDropped => self.hears = false,
            Event::UserItem { .. } => {
                self.hears = false;
                self.understood += 1;
            }
            Event::ResponseStarted { .. } => {
                self.is_responding = true;
                self.before = 0;
                self.item.clear();
                self.interrupts = None;
            }
            Event::AgentItemStarted { .. } => {
                self.before += self.item.split_whitespace().count();
                self.item.clear();
            }
            Event::AgentSpeech { text, .. } => {
                if !self.item.is_empty() {
                    self.item.push(' ');
                }
                self.item.push_str(text);
            }
            Event::AgentItemDone { text, .. } => {
                self.since.push_str(text);
                self.since.push(' ');
            }
            Event::ResponseDone { status, .. } => {
                self.is_responding = false;
                if *status != ResponseStatus::Interrupted {
                    self.answered = self.understood;
                }
                if self.waits == Waits::Greeting {
                    self.waits = Waits::Nothing;
                }
            }
            _ => {}
        }
    }

    fn words(&self) -> usize {
        self.before + self.item.split_whitespace().count()
    }
}

impl Talk {
    /// Since the beginning.
    fn elapsed(&self) -> Duration {
        now() - self.began
    }

    fn at_ms(&self) -> u64 {
        u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The turn that comes next, if it is known.
    fn turn(&self) -> Option<&Turn> {
        match &self.next {
            Some(Next::Turn(turn)) => Some(turn),
            _ => None,
        }
    }

    /// It is the caller's turn.
    fn may_speak(&self) -> bool {
        let hearing = &self.hearing;
        let is_quiet = match &self.medium {
            Medium::Text { .. } => true,
            Medium::Voice(voice) => voice.played() <= self.elapsed(),
        };
        !hearing.is_responding && !hearing.hears && is_quiet && hearing.is_answered()
    }

    /// When to look again if nothing happens.
    fn wake(&self) -> Instant {
        let due = match self.phase {
            Phase::Pausing(until) | Phase::Leaving(until) => until,
            Phase::Listening | Phase::Speaking => self.hearing.last + PATIENCE,
        };
        // A deadline that has passed waits for something else, such as a model that thinks.
        due.max(now() + FRAME)
    }

    async fn step(&mut self, thinking: &mut Option<Thought>) -> ControlFlow<()> {
        let now = now();
        if now - self.began > LONGEST {
            return self.give_up("the conversation takes too long");
        }
        match self.phase {
            Phase::Speaking => {
                if !matches!(&self.medium, Medium::Voice(voice) if voice.is_speaking()) {
                    self.hearing.last = now;
                    self.phase = Phase::Listening;
                }
            }
            Phase::Leaving(until) => {
                if now >= until {
                    return ControlFlow::Break(());
                }
            }
            Phase::Pausing(until) => {
                let speaks = self.turn().is_some_and(|turn| turn.say.is_some());
                if speaks && !self.may_speak() {
                    self.phase = Phase::Listening;
                } else if now >= until {
                    return self.speak(false).await;
                }
            }
            Phase::Listening => return self.listen(now, thinking).await,
        }
        ControlFlow::Continue(())
    }

    async fn listen(&mut self, now: Instant, thinking: &mut Option<Thought>) -> ControlFlow<()> {
        if self.next.is_none() {
            self.next = self.caller.scripted();
        }
        if self.interrupts_now(now) {
            return self.speak(true).await;
        }
        let is_late = now - self.hearing.last >= PATIENCE;
        if !self.may_speak() {
            if is_late {
                return self.give_up("the agent does not answer");
            }
            return ControlFlow::Continue(());
        }
        match &self.next {
            None => {
                if thinking.is_none()
                    && let Caller::Model(model) = &mut self.caller
                {
                    let next = model.next(self.log.lines());
                    *thinking = Some(self.spoken(next));
                }
            }
            Some(Next::HangUp) => match self.ends {
                Some(Ends::Agent | Ends::Transferred) => {
                    self.phase = Phase::Leaving(now + GOODBYE);
                }
                Some(Ends::Caller) | None => return ControlFlow::Break(()),
            },
            Some(Next::Turn(turn)) => {
                let wanted = turn.wait_for.as_ref();
                if let Some(wanted) =
                    wanted.filter(|wanted| !has_words(&self.hearing.since, wanted))
                {
                    if is_late {
                        let problem = format!(
                            "the agent never said \"{wanted}\", which the caller waits for"
                        );
                        return self.give_up(&problem);
                    }
                    return ControlFlow::Continue(());
                }
                let usual = match &self.medium {
                    Medium::Text { .. } => Duration::ZERO,
                    Medium::Voice(_) => PAUSE,
                };
                let pause = turn.pause_ms.map_or(usual, Duration::from_millis);
                if pause.is_zero() {
                    return self.speak(false).await;
                }
                self.phase = Phase::Pausing(now + pause);
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether the words were heard after which the next turn interrupts.
    fn interrupts_now(&self, now: Instant) -> bool {
        let after = self.turn().and_then(|turn| turn.interrupt_after_words);
        let Some(after) = after.filter(|_| self.hearing.is_responding) else {
            return false;
        };
        // An answer to an earlier turn is not meant.
        if let Waits::Answer(before) = self.hearing.waits
            && self.hearing.understood <= before
        {
            return false;
        }
        match &self.medium {
            Medium::Text { .. } => self.hearing.words() >= after,
            Medium::Voice(_) => self.hearing.interrupts.is_some_and(|at| now >= at),
        }
    }

    /// Says the next turn, or ends its silence.
    async fn speak(&mut self, interrupts: bool) -> ControlFlow<()> {
        let Some(Next::Turn(turn)) = self.next.take() else {
            return ControlFlow::Continue(());
        };
        self.phase = Phase::Listening;
        self.hearing.last = now();
        let Some(say) = &turn.say else {
            return ControlFlow::Continue(());
        };
        let heard = interrupts.then(|| self.heard_words(&turn));
        self.log.planned += u64::from(turn.interrupt_after_words.is_some());
        self.log.interrupted += u64::from(interrupts);
        self.log.line(self.at_ms(), Who::Caller, say.clone());
        if let Caller::Model(model) = &mut self.caller {
            model.took(turn.is_last);
        }
        self.hearing.waits = Waits::Answer(self.hearing.understood);
        self.hearing.since.clear();
        self.hearing.interrupts = None;
        match &mut self.medium {
            Medium::Text { .. } => {
                if let Some(heard) = heard {
                    self.request(Input::Stopped { heard }).await;
                }
                let (text, last) = (say.clone(), true);
                self.request(Input::Said { text, last }).await;
            }
            Medium::Voice(voice) => {
                let clip = match self.clip.take() {
                    Some(clip) => Ok(clip),
                    // A line of the script, which is there.
                    None => voice.speak(say).await,
                };
                match clip {
                    Ok(clip) => voice.begin(clip),
                    Err(problem) => return self.give_up(&problem),
                }
                self.phase = Phase::Speaking;
            }
        }
        ControlFlow::Continue(())
    }

    /// The words of the agent's current item that were heard before the turn interrupts it in text.
    fn heard_words(&self, turn: &Turn) -> String {
        let after = turn.interrupt_after_words.unwrap_or_default();
        let of_item = after.saturating_sub(self.hearing.before);
        let words = self.hearing.item.split_whitespace().take(of_item);
        words.collect::<Vec<_>>().join(" ")
    }

    /// A model's turn, as speech if this is a conversation in sound.
    fn spoken(&self, next: BoxFuture<'static, Result<Next, String>>) -> Thought {
        let speak = match &self.medium {
            Medium::Text { .. } => None,
            Medium::Voice(voice) => Some(voice.synthesis()),
        };
        Box::pin(async move {
            let next = next.await?;
            let clip = match (&next, speak) {
                (Next::Turn(Turn { say: Some(say), .. }), Some(synthesis)) => {
                    Some(synthesis.speak(say).await?)
                }
                _ => None,
            };
            Ok((next, clip))
        })
    }

    fn thought(&mut self, thought: Result<(Next, Option<Vec<f32>>), String>) -> ControlFlow<()> {
        match thought {
            Ok((next, clip)) => {
                self.next = Some(next);
                self.clip = clip;
                ControlFlow::Continue(())
            }
            Err(problem) => self.give_up(&problem),
        }
    }

    async fn take(&mut self, message: Outbound) -> ControlFlow<()> {
        self.hearing.last = now();
        match message {
            Outbound::Audio { samples, .. } | Outbound::Tones(samples) => {
                let at = self.elapsed();
                if let Medium::Voice(voice) = &mut self.medium {
                    voice.play(at, &samples);
                }
            }
            Outbound::Clear => {
                let at = self.elapsed();
                if let Medium::Voice(voice) = &mut self.medium {
                    voice.clear(at);
                }
            }
            Outbound::Event { at, event } => {
                self.log.take(at, &event);
                self.hear(&event).await;
            }
            Outbound::HangUp(reason) => {
                self.log.hung_up(reason);
                if let Some(line) = self.caller.unsaid(self.next.as_ref()) {
                    let problem =
                        format!("the agent hung up before the caller could say \"{line}\"");
                    self.log.problem(self.at_ms(), problem);
                }
                return ControlFlow::Break(());
            }
            Outbound::TimerRings | Outbound::Keys(_) => {}
        }
        ControlFlow::Continue(())
    }

    async fn hear(&mut self, event: &Event) {
        let words_before = self.hearing.words();
        self.hearing.take(event);
        let after = self.turn().and_then(|turn| turn.interrupt_after_words);
        match (&self.medium, event) {
            (Medium::Text { spoken: true }, Event::ResponseDone { status, .. })
                if *status != ResponseStatus::Interrupted =>
            {
                // All of it was heard.
                let heard = self.hearing.item.clone();
                self.request(Input::Stopped { heard }).await;
            }
            (Medium::Voice(voice), Event::AgentSpeech { text, .. }) => {
                let begins = self.began + voice.played().max(self.elapsed());
                let here = after.and_then(|after| after.checked_sub(words_before));
                let count = text.split_whitespace().count();
                if let Some(here) = here.filter(|here| (1..=count).contains(here)) {
                    let until: Vec<&str> = text.split_whitespace().take(here).collect();
                    let lasts = spoken_length(&until.join(" ")).duration();
                    self.hearing.interrupts = Some(begins + lasts);
                }
            }
            _ => {}
        }
    }

    async fn request(&self, input: Input) {
        // A session that is over says so by its outbound queue.
        let _ = self.inbound.send(Inbound::Request(input)).await;
    }

    async fn send_frame(&mut self) {
        if let Medium::Voice(voice) = &mut self.medium {
            let frame = voice.frame();
            let _ = self.inbound.send(Inbound::Audio(frame)).await;
        }
    }

    /// Ends the conversation, which has failed.
    fn give_up(&mut self, problem: &str) -> ControlFlow<()> {
        self.log.problem(self.at_ms(), problem.to_owned());
        ControlFlow::Break(())
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "an edge: callers speak in real time"
)]
fn now() -> Instant {
    Instant::now()
}

async fn ready(thinking: &mut Option<Thought>) -> Result<(Next, Option<Vec<f32>>), String> {
    match thinking {
        Some(thought) => thought.await,
        None => pending().await,
    }
}

async fn tick(ticks: &mut Option<Interval>) {
    match ticks {
        Some(ticks) => drop(ticks.tick().await),
        None => pending().await,
    }
}
