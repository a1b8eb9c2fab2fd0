//! The moves of a generated session. A move depends on the dice and on the events that the client has
//! received, never on the state of the conversation.

use super::super::sim::{Sim, may_run_early};
use super::super::*;
use super::kinds::tools;
use super::model::{SENTENCES, drafts, guesses, numbered, script};
use super::{Dice, Kind, dice};
use crate::asr::{TurnReport, TurnState};
use crate::llm::ToolChoice;
use std::collections::VecDeque;

#[derive(Debug, Clone, Copy)]
pub(super) enum Move {
    /// The user speaks for up to two seconds.
    Speak,
    /// The user answers a question of the agent.
    Answer,
    /// A sound without words.
    Noise,
    /// A silence of less than a second.
    Pause,
    /// A silence that is long enough for an answer.
    Wait,
    /// The client sends no audio.
    Mute,
    /// The client reports received audio.
    Received,
    Cancel,
    Commit,
    Clear,
    Respond,
    RespondOn,
    CancelAside,
    Announce,
    Click,
    Key,
    Type,
    Insert,
    /// The transcript of an item that was spoken elsewhere.
    Heard,
    Delete,
    ToolOutput,
    Truncate,
    Played,
    Said,
    Stopped,
    VoiceEnded,
    Detection,
    /// The recogniser judges the turn.
    Judged,
    Demand,
    ClientTools,
    Instructions,
    Unspeculated,
    TranscribeOnly,
    Load,
    DraftBudget,
    ServerTools,
    /// Another agent goes on.
    Handoff,
    Recogniser,
    Voice,
    TurnModel,
    DetectorFails,
    /// The caller cannot be heard any more.
    Unheard,
    /// Words of an answering machine.
    Machine,
    /// The server has placed the call.
    Placed,
    Beep,
    LongText,
    HangUp,
    Drain,
    Farewell,
    /// The client's connection is lost.
    Lose,
    /// The client is back.
    Return,
}

const WORDS: &[&str] = &[
    "what time is it",
    "set a timer for",
    "Stop.",
    "what is the weather in Boulder",
    "and now",
    "I do not want that",
];
const ANSWERS: &[&str] = &[
    "Yes.",
    "Yes, please.",
    "No.",
    "no",
    "Yes, but make it six.",
    "What?",
];

/// A running session.
pub(super) struct Session<'a> {
    pub(super) sim: Sim,
    dice: Dice,
    kind: &'a Kind,
    items: u64,
    /// Items that were spoken elsewhere and wait for their transcripts.
    spoken: VecDeque<ItemId>,
}

impl<'a> Session<'a> {
    pub(super) fn new(kind: &'a Kind, seed: u64) -> Self {
        let mut dice = dice(kind, seed);
        let policy = (kind.policy)(&mut dice);
        let is_drafted = policy.speculation.draft.is_some();
        let mut sim = Sim::recorded(policy, format!("{}-{seed:02}", kind.name));
        sim.marked = dice.chance(50);
        sim.completeness = dice.below(100) as f32 / 100.0;
        sim.asr_ms = dice.pick(&[30, 70, 150, 400]);
        sim.tool_ms = dice.pick(&[0, 200, 1_000, 3_000]);
        sim.router_ms = dice.pick(&[5, 10, 300]);
        sim.refuses = dice.chance(10);
        sim.refusal = dice.pick(&[Discard::Budget, Discard::Overloaded]);
        sim.client_speaks = kind.client_speaks;
        sim.router = guesses(&mut dice, kind.calls);
        if seed.is_multiple_of(2) {
            sim.foresee();
        }
        for _ in 0..6 {
            let script = script(&mut dice, kind);
            sim.scripts.push_back(script);
        }
        if is_drafted {
            sim.drafts = drafts(&mut dice, kind.calls);
        }
        Self {
            sim,
            dice,
            kind,
            items: 0,
            spoken: VecDeque::new(),
        }
    }

    /// Runs the session: a question, the moves, a wait, a hang-up.
    pub(super) fn run(mut self) -> Sim {
        for one in self.kind.opening {
            self.act(*one);
        }
        for _ in 0..4 + self.dice.below(7) {
            if self.sim.hung_up.is_none() {
                let one = self.dice.pick(self.kind.moves);
                self.act(one);
            }
        }
        if self.sim.hung_up.is_none() {
            self.sim.no_audio(self.kind.rest_ms);
        }
        if self.sim.hung_up.is_none() {
            self.sim.input(Input::HangUp);
        }
        self.sim
    }

    fn act(&mut self, one: Move) {
        match one {
            Move::Speak => self.speak(WORDS),
            Move::Answer => self.speak(ANSWERS),
            Move::Noise => self.speak(&[""]),
            Move::Machine => self.speak(&["leave a message after the tone"]),
            Move::Pause => self.sim.silence(64 + self.dice.below(900)),
            Move::Wait => self.sim.silence(1_000 + self.dice.below(3_000)),
            Move::Mute => self.sim.no_audio(500 + self.dice.below(4_000)),
            Move::Recogniser => self.recogniser(),
            Move::Voice => self.voice(),
            Move::TurnModel => self.sim.turn_model_fails ^= true,
            other => {
                let input = self.input(other);
                self.sim.input(input);
            }
        }
    }

    fn speak(&mut self, words: &[&str]) {
        let words = self.dice.pick(words);
        let ms = 200 + self.dice.below(1_200);
        self.sim.speak(words, ms);
        if self.dice.chance(50) {
            self.sim.fade(32 + self.dice.below(200));
        }
    }

    /// The recogniser fails, hangs, or recovers.
    fn recogniser(&mut self) {
        self.sim.asr_fails = self.dice.chance(40);
        self.sim.asr_ms = self.dice.pick(&[70, 60_000]);
    }

    /// The voice fails on most sentences, hangs, is loaded first, or recovers.
    fn voice(&mut self) {
        self.sim.tts_hangs = self.dice.chance(20);
        let loads = self.dice.chance(30);
        self.sim.voice_loads_ms = loads.then(|| 1_000 * (1 + self.dice.below(40)));
        self.sim.tts_fails.clear();
        if self.dice.chance(60) {
            let failing = SENTENCES.iter().skip(self.dice.index(3));
            let failing = failing.map(|sentence| sentence.trim().to_owned());
            self.sim.tts_fails.extend(failing);
        }
    }

    fn input(&mut self, one: Move) -> Input {
        let dice = &mut self.dice;
        let ms = Micros::from_ms(dice.below(3_000));
        match one {
            Move::Received => Input::Received {
                end: Samples(dice.below(400_000)),
            },
            Move::Cancel => Input::CancelResponse,
            Move::Commit => Input::CommitAudio,
            Move::Clear => Input::ClearAudio,
            Move::Respond => Input::Respond {
                instructions: dice.chance(50).then(|| "Be brief.".into()),
            },
            Move::RespondOn => Input::RespondWith(Box::new(self.terms())),
            Move::CancelAside => Input::CancelAside {
                aside: self.aside(),
            },
            Move::Announce => Input::Announce {
                text: "Ding dong.".into(),
            },
            Move::Click => Input::Confirm {
                accepted: dice.chance(60),
                call: self.asked(),
            },
            Move::Key => Input::Key {
                key: dice.pick(&['1', '2', '5', '0', '#', '*', 'x']),
            },
            Move::Type => NewItem::User {
                text: dice.pick(&["yes", "no", "and now"]).into(),
            }
            .at_the_end(),
            Move::Insert => self.insert(),
            Move::Heard => Input::ItemHeard {
                item: self.spoken.pop_front().unwrap_or(ItemId(1)),
                words: dice
                    .pick(&[None, Some(""), Some("and in Oslo")])
                    .map(str::to_owned),
            },
            Move::Delete => Input::DeleteItem { item: self.item() },
            Move::ToolOutput => NewItem::ToolOutput {
                call: self.own_call(),
                output: "rain".into(),
            }
            .at_the_end(),
            Move::Truncate => Input::Truncate {
                item: self.item(),
                heard: ms,
            },
            Move::Played => Input::Played {
                clause: self.clause(),
                until: ms,
            },
            Move::Said => {
                let text = dice.pick(&["", "what time is it", "what time is", "Yes.", "no"]);
                let last = dice.chance(50);
                Input::Said {
                    text: text.into(),
                    last,
                }
            }
            Move::Stopped => {
                let heard = dice.pick(&["", "Some words", "One two three", "Hello"]);
                Input::Stopped {
                    heard: heard.into(),
                }
            }
            Move::VoiceEnded => Input::VoiceEnded,
            Move::Judged => {
                let states = [
                    TurnState::Open,
                    TurnState::PerhapsOver,
                    TurnState::Resumed,
                    TurnState::Over,
                ];
                Input::TurnJudged(TurnReport {
                    state: dice.pick(&states),
                    to: self.sim.audio().minus_ms(dice.below(300)),
                })
            }
            Move::LongText => long_text(dice),
            Move::Load if dice.chance(10) => Input::Notes {
                notes: vec!["The caller's plan is gold.".into()],
            },
            Move::Load if dice.chance(30) => Input::TokenBudget {
                spent: dice.chance(60),
            },
            Move::DraftBudget => Input::DraftBudget {
                spent: dice.chance(40),
            },
            Move::Load => Input::Load {
                shed: dice.pick(&[
                    Shed::Nothing,
                    Shed::Nothing,
                    Shed::Speculation,
                    Shed::Partials,
                    Shed::PreemptiveAnswers,
                ]),
            },
            Move::ServerTools => {
                let tools = tools().into_iter().filter(|_| dice.chance(70));
                let tools = Arc::new(tools.map(Arc::new).collect());
                Input::Tools { tools }
            }
            Move::Handoff => {
                let name = dice.pick(&["billing", "sales"]);
                let speculation = dice.chance(80);
                let tools = tools().into_iter().filter(|_| dice.chance(70));
                Input::Agent(Box::new(Agent {
                    briefing: Briefing {
                        agent: Some(name.into()),
                        instructions: Some(format!("You are {name}.")),
                        ..Briefing::default()
                    },
                    tools: Arc::new(tools.map(Arc::new).collect()),
                    speaker: Speaker::default(),
                    speculation,
                    max_tokens: None,
                }))
            }
            Move::DetectorFails => Input::Failed {
                job: Job::Detection,
                reason: "scripted".into(),
            },
            Move::Unheard => Input::Unheard,
            Move::Placed => Input::Placed {
                message: dice.pick(&["", "Your cake is ready."]).into(),
            },
            Move::Beep => Input::Beep,
            Move::HangUp => Input::HangUp,
            Move::Drain => Input::Drain,
            Move::Farewell => Input::Farewell,
            Move::Lose => Input::ClientLost,
            Move::Return => Input::ClientBack {
                heard: dice
                    .chance(50)
                    .then(|| self.sim.heard_of_the_last_item(ms.as_ms()))
                    .flatten(),
            },
            setting => Input::Configure(Box::new(settings(dice, setting))),
        }
    }

    fn terms(&mut self) -> ResponseTerms {
        let dice = &mut self.dice;
        let places = [
            ResponsePlace::Conversation,
            ResponsePlace::Aloud,
            ResponsePlace::Aside,
        ];
        let place = dice.pick(&places);
        let instructions = dice.chance(30).then(|| "Be short.".into());
        let tools = dice.chance(40).then(|| vec![own("own")]);
        let tool_choice = dice.chance(40).then(|| tool_choice(dice));
        let max_tokens = dice.chance(30).then(|| max_tokens(dice));
        let context = dice.chance(30).then(|| {
            let text = "what time is it".into();
            let item = Context::Item(self.item());
            vec![item, Context::Message(Message::User { text })]
        });
        ResponseTerms {
            instructions,
            tools,
            tool_choice,
            max_tokens,
            context,
            place,
        }
    }

    /// Adds an item anywhere in the history.
    fn insert(&mut self) -> Input {
        let dice = &mut self.dice;
        let text = "Rome is sunny.".to_owned();
        let call = CallId::of_client(dice.below(3));
        let item = match dice.below(6) {
            0 => NewItem::System { text },
            1 => NewItem::User { text },
            2 => NewItem::Agent { text },
            3 => NewItem::Spoken { text },
            4 => NewItem::ToolCall {
                call,
                name: "own".into(),
                arguments: numbered(1),
            },
            _ => NewItem::ToolOutput {
                call,
                output: text.into(),
            },
        };
        let place = match dice.below(3) {
            0 => Place::Start,
            1 => Place::End,
            _ => Place::After(self.item()),
        };
        self.items += 1;
        let id = ItemId::of_client(100 + self.items);
        let spoken = matches!(item, NewItem::Spoken { .. });
        if spoken {
            self.spoken.push_back(id);
        }
        let id = (spoken || self.dice.chance(50)).then_some(id);
        Input::AddItem { id, place, item }
    }

    /// Some item that the client knows.
    fn item(&mut self) -> ItemId {
        let items = self.sim.events.iter().filter_map(|(_, event)| match event {
            Event::UserItem { item, .. }
            | Event::ItemAdded { item }
            | Event::AgentItemStarted { item }
            | Event::ToolCalled { item, .. } => Some(*item),
            _ => None,
        });
        let items: Vec<ItemId> = items.collect();
        match items.as_slice() {
            [] => ItemId(1),
            some => self.dice.pick(some),
        }
    }

    fn last<T>(&self, wanted: impl Fn(&Event) -> Option<T>) -> Option<T> {
        let mut events = self.sim.events.iter().rev();
        events.find_map(|(_, event)| wanted(event))
    }

    /// The last call that needed a confirmation.
    fn asked(&self) -> CallId {
        let call = self.last(|event| match event {
            Event::ConfirmationAsked { call, .. } => Some(*call),
            _ => None,
        });
        call.unwrap_or(CallId(0))
    }

    /// The last call of a client's tool.
    fn own_call(&self) -> CallId {
        let call = self.last(|event| match event {
            Event::ToolCalled {
                call,
                by_client: true,
                ..
            } => Some(*call),
            _ => None,
        });
        call.unwrap_or(CallId(0))
    }

    fn aside(&self) -> TurnId {
        let aside = self.last(|event| match event {
            Event::AsideStarted { aside } => Some(*aside),
            _ => None,
        });
        aside.unwrap_or(TurnId(0))
    }

    fn clause(&self) -> ClauseId {
        let clause = self.last(|event| match event {
            Event::AgentSpeech { clause, .. } => Some(*clause),
            _ => None,
        });
        clause.unwrap_or(ClauseId(0))
    }
}

fn own(name: &str) -> ToolSpec {
    tool(name, Effect::Read).spec.clone()
}

fn tool_choice(dice: &mut Dice) -> ToolChoice {
    match dice.below(5) {
        0 => ToolChoice::Auto,
        1 => ToolChoice::None,
        2 => ToolChoice::Required,
        3 => ToolChoice::Function("own".into()),
        _ => ToolChoice::Function("read".into()),
    }
}

fn max_tokens(dice: &mut Dice) -> MaxTokens {
    match dice.chance(70) {
        true => MaxTokens::At(dice.pick(&[1, 8, 40])),
        false => MaxTokens::Unlimited,
    }
}

fn settings(dice: &mut Dice, setting: Move) -> Settings {
    let mut settings = Settings::default();
    match setting {
        Move::Detection => settings.turn_detection = Some(detection(dice)),
        Move::Demand => {
            settings.tool_choice = Some(tool_choice(dice));
            settings.max_tokens = dice.chance(60).then(|| max_tokens(dice));
        }
        Move::ClientTools => {
            let names = dice.pick(&[&["own"][..], &["own", "read"], &["write"], &[]]);
            settings.tools = Some(names.iter().map(|name| own(name)).collect());
            if dice.chance(50) {
                settings.early = names.iter().map(|name| may_run_early(name)).collect();
            }
        }
        Move::Unspeculated => settings.speculation = Some(dice.chance(30)),
        Move::TranscribeOnly => settings.transcribe_only = true,
        _ => settings.instructions = Some(dice.pick(&["", "Speak like a pirate."]).into()),
    }
    settings
}

fn detection(dice: &mut Dice) -> TurnDetection {
    let rules = [
        EndOfTurnRule::Semantic,
        EndOfTurnRule::Semantic,
        EndOfTurnRule::Silence { ms: 700 },
        EndOfTurnRule::Client,
    ];
    TurnDetection {
        rule: dice.pick(&rules),
        respond: dice.chance(70),
        interrupt: dice.chance(60),
        threshold: dice.chance(30).then_some(0.7),
        prefix_padding_ms: dice.chance(30).then_some(100),
        idle_timeout_ms: dice.chance(40).then_some(2_000),
        eagerness: dice.pick(&[Eagerness::Low, Eagerness::Auto, Eagerness::High]),
    }
}

/// Text longer than the limits of the kind `limits` allow.
fn long_text(dice: &mut Dice) -> Input {
    let text = "long ".repeat(30);
    match dice.below(4) {
        0 => NewItem::User { text }.at_the_end(),
        1 => Input::Said { text, last: true },
        2 => Input::Respond {
            instructions: Some(text.repeat(4)),
        },
        _ => Input::Configure(Box::new(Settings {
            instructions: Some(text.repeat(4)),
            ..Settings::default()
        })),
    }
}
