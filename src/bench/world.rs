//! One turn on the product's own rules: a [`Conversation`] in virtual time, with a simulated model, voice and
//! tools and simulated sources of predictions. Gate, ledger, matching, rounds, fillers and pacing are the product's.

use super::clock::Clock;
use crate::conversation::{
    ClauseId, Conversation, Event, Input, ItemId, Micros, NewItem, Output, Policy, RequestId,
    RunId, Samples, Time, Timeouts, TurnRecord, spoken_length,
};
use crate::llm::plan::PLAN;
use crate::llm::{LlmEvent, Message, Prompt};
use crate::prediction::{Evidence, PastCall, Prediction};
use crate::session::Pacer;
use crate::tools::{Declaration, Effect, Eligibility, ToolSpec};
use crate::tts::Speed;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// The interval at which a model that thinks sends a sign of life, as servers do.
const THINKS_EVERY: Micros = Micros::from_ms(1_000);

/// The answer, in one clause.
const ANSWER: &str = "That is all.";

/// The length of the pacer's frames.
const FRAME: Micros = Micros::from_ms(20);

/// The length of a spoken word.
const WORD: Micros = Micros::from_ms(300);

/// The user's question, and how the model answers it.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub words: String,
    pub by: By,
    /// The calls of each generation; one more generation answers.
    pub rounds: Vec<Round>,
    /// How long the answer takes to generate.
    pub answer: Micros,
    pub voice: Voice,
}

/// The side that turns the agent's words into speech.
#[derive(Debug, Clone, Copy)]
pub(super) enum Voice {
    /// The server's, which takes this time from the text of a clause to its first audio.
    Server(Micros),
    /// The client, which is handed each clause as soon as it is known. What counts as heard is when it has the words.
    Client,
}

/// The form in which the words arrive.
#[derive(Debug, Clone, Copy)]
pub(super) enum By {
    /// At once, at the beginning.
    Text,
    /// A partial with all words and later the final transcript.
    Speech {
        partial: Option<Micros>,
        last: Micros,
    },
}

#[derive(Debug, Clone)]
pub(super) struct Round {
    /// Time until the calls are complete.
    pub generation: Micros,
    /// Speech before the calls, and when it is there.
    pub filler: Option<(Micros, String)>,
    /// How long before that the arguments of the calls are written.
    pub written: Micros,
    pub calls: Vec<Call>,
    /// The arguments of the plan that makes these calls; each is made by itself if `None`.
    pub plan: Option<Map<String, Value>>,
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub tool: String,
    pub arguments: Map<String, Value>,
    pub result: Value,
    /// How long the tool takes.
    pub takes: Micros,
}

impl Round {
    /// The calls as the model writes them: names and arguments.
    fn written_calls(&self) -> Vec<(String, Map<String, Value>)> {
        match &self.plan {
            Some(plan) => vec![(PLAN.to_owned(), plan.clone())],
            None => {
                let calls = self.calls.iter();
                calls
                    .map(|call| (call.tool.clone(), call.arguments.clone()))
                    .collect()
            }
        }
    }
}

/// Sources of predictions: what they answer, and how long they take.
pub(super) type Sources<'a> = &'a mut dyn FnMut(&Evidence) -> Option<(Micros, Vec<Prediction>)>;

/// The outcome of a task.
#[derive(Debug)]
pub(super) struct Played {
    /// Time from the request for each generation of calls to the request for the next generation.
    pub rounds: Vec<Micros>,
    /// Time until the answer's text.
    pub total: Micros,
    /// When the first audio was heard, and the first of the answer.
    pub heard: Option<(Time, Time)>,
    /// Silence between the filler and the answer.
    pub dead_air: Micros,
    pub record: TurnRecord,
    /// Estimated tokens of all prompts.
    pub prompt_tokens: u64,
    /// The part of them that stood at the same place in the previous prompt.
    pub cached_tokens: u64,
}

/// A read-only tool that may run early.
pub(super) fn early_tool(name: &str, parameters: Value, cost: f64) -> Declaration {
    let spec = ToolSpec {
        examples: Vec::new(),
        name: name.to_owned(),
        description: format!("{} for the user.", name.replace('_', " ")),
        parameters,
    };
    let mut tool = Declaration::new(spec, Effect::Read, Duration::from_secs(60));
    tool.speculation.eligibility = Eligibility::Full;
    tool.speculation.ttl = Duration::from_secs(120);
    tool.speculation.cost = cost;
    tool.speculation.min_confidence = 0.05;
    tool.speculation.per_turn = u32::MAX;
    tool
}

/// The shipped policy, without the limits of a spoken turn: a bench of a limit would show the limit.
pub(super) fn policy(tools: Vec<Arc<Declaration>>, speculate: bool) -> Policy {
    let mut policy = Policy {
        tools: Arc::new(tools),
        tool_steps: 32,
        // A text agent has no listener, so no filler covers its waits.
        timeouts: Timeouts {
            dead_air: Micros::from_ms(3_600_000),
            ..Timeouts::default()
        },
        ..Policy::default()
    };
    policy.speculation.enabled = speculate;
    policy.speculation.per_turn = u32::MAX;
    policy.speculation.at_once = u32::MAX;
    policy.speculation.assumed_per_turn = 0;
    policy
}

/// Plays a task to its answer. `None` if the conversation came to rest without one.
pub(super) fn play(policy: Policy, task: &Task, sources: Sources) -> Option<Played> {
    let mut world = World {
        core: Conversation::new(policy),
        clock: Clock::new(),
        task,
        sources,
        asked: Vec::new(),
        cancelled: HashSet::new(),
        answered: None,
        pacer: Pacer::new(Samples::RATE),
        plays: Time(0),
        first: None,
        answer: None,
        dead_air: Micros(0),
        record: None,
        prompt_tokens: 0,
        cached_tokens: 0,
        last_prompt: None,
    };
    world.drain();
    world.open();
    world.run();
    world.finish()
}

#[derive(Debug)]
enum Due {
    Input(Input),
    ToolDone(RunId, Value),
    /// A clause was synthesised, in one piece.
    Made(ClauseId, Micros),
}

struct World<'a> {
    core: Conversation,
    clock: Clock<Due>,
    task: &'a Task,
    sources: Sources<'a>,
    /// When each generation was requested that was not cancelled.
    asked: Vec<Time>,
    cancelled: HashSet<RequestId>,
    answered: Option<Time>,
    pacer: Pacer,
    /// When all audio that was sent will have been heard.
    plays: Time,
    first: Option<Time>,
    answer: Option<(ClauseId, Option<Time>)>,
    dead_air: Micros,
    record: Option<TurnRecord>,
    prompt_tokens: u64,
    cached_tokens: u64,
    last_prompt: Option<Prompt>,
}

impl World<'_> {
    fn feed(&mut self, input: Input) {
        self.core.handle_input(self.clock.now, input);
        self.drain();
    }

    fn open(&mut self) {
        let text = self.task.words.clone();
        match self.task.by {
            By::Text => {
                self.feed(NewItem::User { text }.at_the_end());
                self.feed(Input::Respond { instructions: None });
            }
            By::Speech { partial, last } => {
                let said = |last| Input::Said {
                    text: text.clone(),
                    last,
                };
                if let Some(partial) = partial {
                    self.clock.after(partial, Due::Input(said(false)));
                }
                self.clock.after(last, Due::Input(said(true)));
            }
        }
    }

    /// Runs until the turn is over.
    fn run(&mut self) {
        while self.record.is_none() {
            let due = self.clock.next_at();
            let timer = self.core.poll_timeout();
            let frame = self.pacer.due().map(|at| at.max(self.clock.now));
            let Some(at) = [due, timer, frame].into_iter().flatten().min() else {
                return;
            };
            self.clock.now = self.clock.now.max(at);
            if due == Some(at) {
                self.deliver();
            } else if frame == Some(at) {
                self.send_frame();
            } else {
                self.core.handle_timeout(self.clock.now);
                self.drain();
            }
        }
    }

    fn deliver(&mut self) {
        match self.clock.next() {
            Some(Due::Input(Input::Llm { request, .. })) if self.cancelled.contains(&request) => {}
            Some(Due::Input(input)) => self.feed(input),
            Some(Due::ToolDone(run, result)) => {
                let result = Ok(result);
                self.feed(Input::ToolFinished { run, result });
            }
            Some(Due::Made(clause, length)) => {
                let samples = vec![0; Samples::from_ms(length.as_ms()).0 as usize];
                let last = true;
                if let Some(length) = self.pacer.push(clause, &samples, last) {
                    self.feed(Input::Synthesised {
                        clause,
                        length,
                        last,
                        word_ends: Vec::new(),
                    });
                }
            }
            None => {}
        }
    }

    fn send_frame(&mut self) {
        let Some(frame) = self.pacer.pop(self.clock.now) else {
            return;
        };
        let clause = frame.clause;
        if frame.first {
            let begins = self.plays.max(self.clock.now);
            let silent_since = self.first.map_or(begins, |_| self.plays);
            self.first.get_or_insert(begins);
            if let Some((answer, heard @ None)) = &mut self.answer
                && *answer == clause
            {
                *heard = Some(begins);
                self.dead_air = begins.since(silent_since);
            }
            let until = Micros(0);
            self.feed(Input::Sent { clause, until });
        }
        self.plays = self.plays.max(self.clock.now) + FRAME;
        let until = frame.until;
        self.feed(Input::Sent { clause, until });
    }

    fn finish(self) -> Option<Played> {
        let answered = self.answered?;
        let asked = self.asked.windows(2);
        Some(Played {
            rounds: asked.map(|two| two[1].since(two[0])).collect(),
            total: answered.since(Time(0)),
            heard: self.first.zip(self.answer.and_then(|(_, heard)| heard)),
            dead_air: self.dead_air,
            record: self.record?,
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
        })
    }

    fn drain(&mut self) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Generate {
                    request, prompt, ..
                } => self.generate(request, prompt),
                Output::CancelGeneration { request } => {
                    self.cancelled.insert(request);
                }
                Output::Route { request, heard } => {
                    if is_asked(&heard)
                        && let Some((wait, predictions)) = (self.sources)(&heard)
                    {
                        let predicted = Input::Predicted {
                            request,
                            predictions,
                        };
                        self.clock.after(wait, Due::Input(predicted));
                    }
                }
                Output::StartTool {
                    run,
                    name,
                    arguments,
                    ..
                } => self.run_tool(run, &name, &arguments),
                Output::Speak {
                    clause,
                    item,
                    text,
                    speaker,
                } => {
                    if text == ANSWER {
                        self.answered = Some(self.clock.now);
                        self.answer = Some((clause, None));
                    }
                    match self.task.voice {
                        Voice::Server(takes) => {
                            self.speak((clause, item), &text, speaker.speed(), takes);
                        }
                        Voice::Client => self.hand_over(clause, &text),
                    }
                }
                Output::CancelClause { clause } => self.pacer.cancel(clause),
                Output::Flush => {
                    self.pacer.flush(self.clock.now);
                    self.plays = self.plays.min(self.clock.now);
                }
                Output::Notify(Event::TurnRecorded(record)) => self.record = Some(*record),
                // An aborted tool goes on here: its result must be ignored.
                Output::AbortTool { .. }
                | Output::Notify(_)
                | Output::WarmUp { .. }
                | Output::Prepare { .. }
                | Output::AskDraft { .. }
                | Output::StopDraft { .. }
                | Output::GiveResult { .. }
                | Output::Transcribe { .. }
                | Output::ScoreEndOfTurn { .. }
                | Output::HangUp { .. } => {}
            }
        }
    }

    fn speak(
        &mut self,
        (clause, item): (ClauseId, ItemId),
        text: &str,
        speed: Speed,
        takes: Micros,
    ) {
        let words = text.split_whitespace().count() as u64;
        let length = match self.task.by {
            By::Text => FRAME,
            By::Speech { .. } => speed.lasts(Micros(WORD.0 * words)),
        };
        self.pacer.expect(clause, item, length);
        self.clock.after(takes, Due::Made(clause, length));
    }

    /// Handles a clause as the session does for a client with a voice of its own.
    fn hand_over(&mut self, clause: ClauseId, text: &str) {
        let now = self.clock.now;
        self.first.get_or_insert(now);
        if let Some((answer, heard @ None)) = &mut self.answer
            && *answer == clause
        {
            *heard = Some(now);
        }
        let length = spoken_length(text);
        let sent = |until| Input::Sent { clause, until };
        let made = Input::Synthesised {
            clause,
            length,
            last: true,
            word_ends: Vec::new(),
        };
        for input in [sent(Micros(0)), made, sent(length)] {
            self.core.handle_input(now, input);
        }
    }

    /// Lets the model do what the task says for the number of results that it has.
    fn generate(&mut self, request: RequestId, prompt: Prompt) {
        let results = |message: &&Message| matches!(message, Message::ToolResult { .. });
        let mut known = prompt.messages.iter().filter(results).count();
        self.count(prompt);
        self.asked.push(self.clock.now);
        for round in &self.task.rounds {
            if known == 0 {
                return self.call(request, round);
            }
            known = known.saturating_sub(round.written_calls().len());
        }
        let text = ANSWER.to_owned();
        self.think(request, self.task.answer);
        self.stream(request, self.task.answer, LlmEvent::Speech { text });
        self.stream(request, self.task.answer, LlmEvent::End);
    }

    fn call(&mut self, request: RequestId, round: &Round) {
        let end = round.generation;
        self.think(request, end);
        if let Some((at, text)) = &round.filler {
            let text = text.clone();
            self.stream(request, *at, LlmEvent::Speech { text });
        }
        for (name, arguments) in round.written_calls() {
            let written = Micros(end.0.saturating_sub(round.written.0));
            self.stream(request, written, LlmEvent::ToolOpened { name });
            if round.written > Micros(0) {
                let read = LlmEvent::ToolRead {
                    arguments: arguments.clone(),
                    whole: true,
                };
                self.stream(request, written, read);
            }
            let arguments = Ok(arguments);
            self.stream(request, end, LlmEvent::ToolClosed { arguments });
        }
        self.stream(request, end, LlmEvent::End);
    }

    fn think(&mut self, request: RequestId, until: Micros) {
        let mut at = THINKS_EVERY;
        while at < until {
            self.stream(request, at, LlmEvent::Thinking);
            at = at + THINKS_EVERY;
        }
    }

    fn stream(&mut self, request: RequestId, after: Micros, event: LlmEvent) {
        let input = Input::Llm { request, event };
        self.clock.after(after, Due::Input(input));
    }

    fn count(&mut self, prompt: Prompt) {
        self.prompt_tokens += prompt.estimate();
        if let Some(mut before) = self.last_prompt.take() {
            let same = before.messages.iter().zip(&prompt.messages);
            before
                .messages
                .truncate(same.take_while(|(a, b)| a == b).count());
            self.cached_tokens += before.estimate();
        }
        self.last_prompt = Some(prompt);
    }

    /// Runs a tool. A call that is not the task's takes as long as one of the same tool that is.
    fn run_tool(&mut self, run: RunId, name: &str, arguments: &Map<String, Value>) {
        let calls = || self.task.rounds.iter().flat_map(|round| &round.calls);
        let same = calls().find(|call| call.tool == name && call.arguments == *arguments);
        let any = same.or_else(|| calls().find(|call| call.tool == name));
        let takes = any
            .or_else(|| calls().next())
            .map_or(Micros(0), |call| call.takes);
        let result = same.map_or_else(|| json!({ "found": false }), |call| call.result.clone());
        self.clock.after(takes, Due::ToolDone(run, result));
    }
}

/// The models of the documents predict from words and results: neither before words nor while a call runs.
pub(super) fn is_asked(heard: &Evidence) -> bool {
    let has_result = |call: &PastCall| call.result.is_some();
    !heard.moment.is_before_words() && heard.calls.last().is_none_or(has_result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{Discard, Fate};
    use crate::prediction::Source;

    fn call(city: &str) -> Call {
        Call {
            tool: "weather".into(),
            arguments: Map::from_iter([("city".to_owned(), json!(city))]),
            result: json!({ "sky": "clear" }),
            takes: Micros::from_ms(3_000),
        }
    }

    /// Two rounds of a call each; the sources answer after a second.
    fn played(speculate: bool, guess: &str) -> Played {
        let round = |city| Round {
            generation: Micros::from_ms(2_000),
            filler: None,
            written: Micros(0),
            calls: vec![call(city)],
            plan: None,
        };
        let task = Task {
            words: "compare the weather".into(),
            by: By::Text,
            rounds: vec![round("rome"), round("oslo")],
            answer: Micros::from_ms(500),
            voice: Voice::Server(Micros(0)),
        };
        let parameters = json!({
            "type": "object",
            "properties": { "city": { "type": "string" } },
        });
        let tools = vec![early_tool("weather", parameters, 0.0).into()];
        let mut sources = |heard: &Evidence| {
            let next = ["rome", guess].get(heard.calls.len())?.to_owned();
            let prediction = Prediction {
                tool: "weather".into(),
                arguments: call(next).arguments,
                confidence: 0.9,
                source: Source::Draft,
                open: Vec::new(),
            };
            Some((Micros::from_ms(1_000), vec![prediction]))
        };
        play(policy(tools, speculate), &task, &mut sources).unwrap()
    }

    #[test]
    fn early_calls_hide_their_tools_behind_the_generation() {
        let ms = |played: &Played| {
            played
                .rounds
                .iter()
                .map(|round| round.as_ms())
                .collect::<Vec<_>>()
        };
        let serial = played(false, "oslo");
        assert_eq!(
            (ms(&serial), serial.total.as_ms()),
            (vec![5_000, 5_000], 10_500)
        );
        let early = played(true, "oslo");
        assert_eq!(
            (ms(&early), early.total.as_ms()),
            (vec![4_000, 4_000], 8_500)
        );
        assert_eq!(early.record.runs.len(), 2);
        let missed = played(true, "bern");
        assert_eq!(ms(&missed), [4_000, 5_000]);
        let dropped = |run: &&crate::conversation::RunRecord| {
            matches!(
                run.fate,
                Fate::Discarded {
                    reason: Discard::Superseded | Discard::TurnEnded,
                    ..
                }
            )
        };
        assert_eq!(missed.record.runs.iter().filter(dropped).count(), 1);
    }
}
