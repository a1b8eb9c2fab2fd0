//! The kinds of generated sessions: the client, its tools, and the typical moves.

use super::super::*;
use super::Dice;
use super::moves::Move;
use crate::llm::plan::PLAN;
use crate::tools::Eligibility;

/// A kind of session.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) policy: fn(&mut Dice) -> Policy,
    /// The tools that the model calls and the router predicts.
    pub(super) calls: &'static [&'static str],
    /// The percentage of answers that call tools; `faults` is that of answers that fail or run on.
    pub(super) calling: u64,
    pub(super) faults: u64,
    /// The percentage of answers whose server takes results.
    pub(super) caching: u64,
    pub(super) client_speaks: bool,
    pub(super) opening: &'static [Move],
    /// The moves. One that is listed twice is made twice as often.
    pub(super) moves: &'static [Move],
    /// Time after the last move, ms.
    pub(super) rest_ms: u64,
}

/// Conversation without tools.
const TALK: Kind = Kind {
    name: "talk",
    policy: plain,
    calls: &["unknown"],
    calling: 0,
    faults: 5,
    caching: 0,
    client_speaks: false,
    opening: &[Move::Speak],
    moves: &[
        Move::Speak,
        Move::Speak,
        Move::Noise,
        Move::Pause,
        Move::Wait,
        Move::Wait,
        Move::Mute,
        Move::Announce,
    ],
    rest_ms: 10_000,
};

pub(super) const KINDS: &[Kind] = &[
    TALK,
    Kind {
        name: "interruptions",
        opening: &[Move::Speak, Move::Wait],
        moves: &[
            Move::Noise,
            Move::Noise,
            Move::Speak,
            Move::Pause,
            Move::Wait,
            Move::Key,
            Move::Played,
            Move::Detection,
        ],
        ..TALK
    },
    Kind {
        name: "judged",
        opening: &[Move::Speak, Move::Judged],
        moves: &[
            Move::Judged,
            Move::Judged,
            Move::Judged,
            Move::Judged,
            Move::Speak,
            Move::Pause,
            Move::Noise,
            Move::Wait,
            Move::Detection,
        ],
        ..TALK
    },
    Kind {
        name: "listeners",
        policy: lenient,
        opening: &[Move::Speak, Move::Wait],
        moves: &[
            Move::Noise,
            Move::Speak,
            Move::Answer,
            Move::Pause,
            Move::Wait,
            Move::Load,
        ],
        ..TALK
    },
    Kind {
        name: "confirmations",
        policy: with_tools,
        calls: &["asks", "hasty", "read"],
        calling: 80,
        opening: &[Move::Speak, Move::Wait, Move::Wait],
        moves: &[
            Move::Answer,
            Move::Answer,
            Move::Answer,
            Move::Wait,
            Move::Wait,
            Move::Pause,
            Move::Noise,
            Move::Click,
            Move::Key,
            Move::Type,
            Move::Announce,
            Move::Respond,
        ],
        rest_ms: 15_000,
        ..TALK
    },
    Kind {
        name: "endings",
        policy: with_tools,
        calls: &["ends", "passes", "broken_pass", "asks"],
        calling: 70,
        opening: &[Move::Speak, Move::Pause],
        moves: &[
            Move::Noise,
            Move::Speak,
            Move::Pause,
            Move::Wait,
            Move::Wait,
            Move::Key,
            Move::Answer,
            Move::Cancel,
            Move::Farewell,
        ],
        rest_ms: 20_000,
        ..TALK
    },
    Kind {
        name: "speculation",
        policy: with_tools,
        calls: &[
            "read", "read", "shared", "brief", "costly", "failing", "distant", "write", "unknown",
        ],
        calling: 70,
        moves: &[
            Move::Speak,
            Move::Speak,
            Move::Pause,
            Move::Pause,
            Move::Wait,
            Move::Wait,
            Move::Noise,
            Move::Unspeculated,
            Move::Load,
            Move::Cancel,
        ],
        ..TALK
    },
    Kind {
        name: "plans",
        policy: with_plans,
        calls: &[
            PLAN, PLAN, "read", "shared", "failing", "write", "asks", "ends", "unknown",
        ],
        calling: 80,
        moves: &[
            Move::Speak,
            Move::Answer,
            Move::Answer,
            Move::Pause,
            Move::Wait,
            Move::Wait,
            Move::Noise,
            Move::Cancel,
            Move::ClientTools,
            Move::ServerTools,
            Move::Click,
        ],
        rest_ms: 20_000,
        ..TALK
    },
    Kind {
        name: "fed",
        policy: fed,
        calls: &["read", "shared", "shared", "broken", "write"],
        calling: 90,
        moves: &[
            Move::Speak,
            Move::Speak,
            Move::Pause,
            Move::Wait,
            Move::Cancel,
        ],
        ..TALK
    },
    Kind {
        name: "passing_results",
        policy: with_tools,
        calls: &["brief", "brief", "costly", "costly"],
        calling: 90,
        moves: &[Move::Speak, Move::Speak, Move::Pause, Move::Wait],
        ..TALK
    },
    Kind {
        name: "tools",
        policy: with_tools,
        calls: &[
            "read", "slow", "broken", "failing", "strict", "late", "gone", "keyed", "write",
            "unknown",
        ],
        calling: 90,
        moves: &[
            Move::Speak,
            Move::Wait,
            Move::Wait,
            Move::Pause,
            Move::Noise,
            Move::Cancel,
            Move::Respond,
        ],
        rest_ms: 20_000,
        ..TALK
    },
    Kind {
        name: "failures",
        policy: with_tools,
        calls: &["read", "broken", "asks"],
        calling: 30,
        faults: 40,
        moves: &[
            Move::Speak,
            Move::Speak,
            Move::Wait,
            Move::Wait,
            Move::Recogniser,
            Move::Voice,
            Move::Voice,
            Move::TurnModel,
            Move::DetectorFails,
            Move::Answer,
        ],
        rest_ms: 30_000,
        ..TALK
    },
    Kind {
        name: "clients",
        policy: with_tools,
        calls: &["own", "own", "read", "asks", "write"],
        calling: 60,
        faults: 10,
        opening: &[Move::ClientTools, Move::Speak, Move::Wait],
        moves: &[
            Move::RespondOn,
            Move::RespondOn,
            Move::RespondOn,
            Move::CancelAside,
            Move::ToolOutput,
            Move::Respond,
            Move::Demand,
            Move::ClientTools,
            Move::Instructions,
            Move::Insert,
            Move::Insert,
            Move::Heard,
            Move::Heard,
            Move::Delete,
            Move::Truncate,
            Move::Type,
            Move::Speak,
            Move::Wait,
            Move::Pause,
            Move::Noise,
            Move::Mute,
        ],
        ..TALK
    },
    Kind {
        name: "push_to_talk",
        opening: &[Move::Detection, Move::Speak],
        moves: &[
            Move::Speak,
            Move::Commit,
            Move::Commit,
            Move::Clear,
            Move::Cancel,
            Move::Respond,
            Move::Pause,
            Move::Wait,
            Move::Received,
            Move::Detection,
        ],
        ..TALK
    },
    Kind {
        name: "transcription",
        opening: &[Move::Speak, Move::TranscribeOnly],
        moves: &[
            Move::Speak,
            Move::Speak,
            Move::Wait,
            Move::Pause,
            Move::Noise,
            Move::Commit,
            Move::Respond,
            Move::Announce,
            Move::Insert,
            Move::Heard,
        ],
        ..TALK
    },
    Kind {
        name: "relayed",
        policy: with_tools,
        calls: &["read", "asks", "ends", "passes", "own"],
        calling: 40,
        client_speaks: true,
        opening: &[Move::Said, Move::Mute],
        moves: &[
            Move::Said,
            Move::Said,
            Move::Said,
            Move::Stopped,
            Move::Stopped,
            Move::VoiceEnded,
            Move::Mute,
            Move::Mute,
            Move::Key,
            Move::Announce,
        ],
        rest_ms: 15_000,
        ..TALK
    },
    Kind {
        name: "telephone",
        policy: telephone,
        calls: &["asks", "passes", "ends", "read"],
        calling: 40,
        opening: &[Move::Wait],
        moves: &[
            Move::Key,
            Move::Key,
            Move::Key,
            Move::Speak,
            Move::Answer,
            Move::Noise,
            Move::Wait,
            Move::Wait,
            Move::Mute,
            Move::Played,
            Move::Unheard,
            Move::HangUp,
        ],
        rest_ms: 60_000,
        ..TALK
    },
    Kind {
        name: "placed_calls",
        policy: telephone,
        calls: &["read", "ends"],
        calling: 20,
        opening: &[Move::Placed, Move::Pause],
        moves: &[
            Move::Speak,
            Move::Machine,
            Move::Beep,
            Move::Noise,
            Move::Wait,
            Move::Wait,
            Move::Pause,
            Move::Said,
        ],
        rest_ms: 30_000,
        ..TALK
    },
    Kind {
        name: "absences",
        policy: with_tools,
        calls: &["asks", "read", "slow", "ends"],
        calling: 50,
        opening: &[Move::Speak, Move::Wait],
        moves: &[
            Move::Lose,
            Move::Lose,
            Move::Lose,
            Move::Return,
            Move::Return,
            Move::Return,
            Move::Return,
            Move::Speak,
            Move::Answer,
            Move::Noise,
            Move::Pause,
            Move::Wait,
            Move::Wait,
            Move::Mute,
            Move::Click,
            Move::Type,
            Move::Announce,
            Move::Drain,
        ],
        rest_ms: 15_000,
        ..TALK
    },
    Kind {
        name: "limits",
        policy: limited,
        calls: &["read", "own"],
        calling: 20,
        faults: 30,
        moves: &[
            Move::Speak,
            Move::Wait,
            Move::Wait,
            Move::LongText,
            Move::LongText,
            Move::Demand,
            Move::Type,
            Move::Respond,
            Move::Load,
            Move::Key,
            Move::Click,
            Move::Commit,
        ],
        rest_ms: 30_000,
        ..TALK
    },
    Kind {
        name: "tool_changes",
        policy: with_tools,
        calls: &["read", "shared", "asks", "write", "slow", "unknown"],
        calling: 80,
        opening: &[Move::Speak, Move::Wait],
        moves: &[
            Move::ServerTools,
            Move::ServerTools,
            Move::Speak,
            Move::Speak,
            Move::Answer,
            Move::Pause,
            Move::Wait,
            Move::Wait,
            Move::Noise,
        ],
        ..TALK
    },
    Kind {
        name: "handoffs",
        policy: with_tools,
        calls: &["read", "shared", "asks", "write", "slow", "unknown"],
        calling: 80,
        opening: &[Move::Speak, Move::Handoff],
        moves: &[
            Move::Handoff,
            Move::Handoff,
            Move::ServerTools,
            Move::Speak,
            Move::Speak,
            Move::Answer,
            Move::Pause,
            Move::Wait,
            Move::Wait,
            Move::Noise,
            Move::Unspeculated,
        ],
        ..TALK
    },
    Kind {
        name: "drafts",
        policy: drafted,
        calls: &["read", "shared", "costly", "slow", "write", "unknown"],
        calling: 80,
        opening: &[Move::Speak, Move::Wait],
        moves: &[
            Move::Speak,
            Move::Speak,
            Move::Pause,
            Move::Wait,
            Move::Wait,
            Move::Noise,
            Move::DraftBudget,
            Move::Load,
            Move::ServerTools,
            Move::Handoff,
            Move::ClientTools,
        ],
        rest_ms: 20_000,
        ..TALK
    },
    Kind {
        name: "tool_cache",
        policy: with_tool_cache,
        calls: &["read", "read", "shared", "brief", "write", "asks"],
        calling: 90,
        caching: 90,
        moves: &[
            Move::Speak,
            Move::Speak,
            Move::Pause,
            Move::Wait,
            Move::Wait,
            Move::Type,
            Move::Noise,
            Move::Handoff,
        ],
        ..TALK
    },
    Kind {
        name: "changes",
        policy: with_doubtful_changes,
        calls: &["write", "unreached", "lost", "unanswered"],
        calling: 90,
        moves: &[Move::Speak, Move::Wait, Move::Pause, Move::Respond],
        ..TALK
    },
];

fn plain(dice: &mut Dice) -> Policy {
    let mut policy = Policy::default();
    if dice.chance(30) {
        policy.opening = Opening::greeting("Hello there.");
    }
    policy.speculation.preemptive = dice.chance(70);
    policy
}

/// Listening words do not stop the agent.
fn lenient(dice: &mut Dice) -> Policy {
    let mut policy = plain(dice);
    policy.vad.barge_in.listening_words = ListeningWords::Pass;
    policy
}

fn with_tools(dice: &mut Dice) -> Policy {
    let mut policy = Policy {
        tools: Arc::new(tools().into_iter().map(Arc::new).collect()),
        ..plain(dice)
    };
    policy.filler.lead = dice.pick(&[FillerLead::Model, FillerLead::Router]);
    policy.speculation.at_once = dice.pick(&[1, 2, 3]);
    policy
}

/// `unreached` cannot begin, and whether `lost` or `unanswered` was done is not known.
fn with_doubtful_changes(dice: &mut Dice) -> Policy {
    let mut policy = with_tools(dice);
    let tools = Arc::make_mut(&mut policy.tools);
    for name in ["unreached", "lost", "unanswered"] {
        let spec = ToolSpec {
            name: name.to_owned(),
            ..tools[0].spec.clone()
        };
        let timeout = tools[0].timeout;
        tools.push(Arc::new(Declaration::new(
            spec,
            Effect::Reversible,
            timeout,
        )));
    }
    policy
}

/// `shared` takes the result of `read`.
fn fed(dice: &mut Dice) -> Policy {
    let mut policy = with_tools(dice);
    let tools = policy.tools.iter().map(|tool| {
        let mut tool = (**tool).clone();
        match tool.spec.name.as_str() {
            "read" => tool.feeds = true,
            "shared" => (tool.fixed, tool.takes) = (vec!["of".into()], vec!["read".into()]),
            _ => {}
        }
        Arc::new(tool)
    });
    policy.tools = Arc::new(tools.collect());
    policy
}

fn drafted(dice: &mut Dice) -> Policy {
    let mut policy = with_tools(dice);
    policy.speculation.draft = Some(DraftPolicy {
        samples: dice.pick(&[1, 2, 3]),
        token_price: dice.pick(&[0.0, 1.0, 1_000.0]),
        token_cost_per_day: None,
    });
    policy
}

fn with_plans(dice: &mut Dice) -> Policy {
    let mut policy = with_tools(dice);
    policy.briefing.plans = true;
    policy
}

fn with_tool_cache(dice: &mut Dice) -> Policy {
    let mut policy = with_tools(dice);
    policy.briefing.tool_cache = true;
    policy
}

fn telephone(dice: &mut Dice) -> Policy {
    Policy {
        opening: Opening::greeting("Hello there."),
        timeouts: Timeouts {
            silence_prompt: Some(Micros::from_ms(4_000)),
            idle: Micros::from_ms(dice.pick(&[20_000, 300_000])),
            session: Micros::from_ms(dice.pick(&[15_000, 3_600_000])),
            ..Timeouts::default()
        },
        ..with_tools(dice)
    }
}

fn limited(dice: &mut Dice) -> Policy {
    Policy {
        text: TextLimits {
            set_up: 400,
            item: 100,
        },
        answer: AnswerPolicy {
            words: 60,
            speech: Micros::from_ms(20_000),
        },
        timeouts: Timeouts {
            session: Micros::from_ms(dice.pick(&[12_000, 3_600_000])),
            ..Timeouts::default()
        },
        tool_steps: 2,
        ..with_tools(dice)
    }
}

/// Tools of every kind, each as eligible as an operator can make it.
pub(super) fn tools() -> Vec<Declaration> {
    let declare = |name: &str, effect| {
        let mut tool = (*tool(name, effect)).clone();
        tool.speculation.eligibility = Eligibility::Full;
        tool
    };
    let mut read = declare("read", Effect::Read);
    read.reads = vec!["notes".into()];
    let mut shared = declare("shared", Effect::Read);
    shared.speculation.shareable = true;
    let mut brief = declare("brief", Effect::Read);
    brief.speculation.ttl = Duration::from_millis(200);
    let mut costly = declare("costly", Effect::ReadCostly);
    costly.speculation.cost = 0.02;
    costly.speculation.per_turn = 1;
    let mut distant = declare("distant", Effect::Read);
    distant.speculation.eligibility = Eligibility::WarmUp;
    let mut hasty = asking(
        "hasty",
        "I would do {{ n }} now, and it cannot be taken back. Shall I?",
    );
    if let Confirmation::Spoken { expiry, .. } = &mut hasty.confirmation {
        *expiry = Duration::from_secs(5);
    }
    let mut slow = declare("slow", Effect::Read);
    slow.fillers.short = vec!["One moment.".into()];
    slow.fillers.long = vec!["That takes a while.".into()];
    slow.fillers.again = vec!["Still at it.".into()];
    slow.answer = Some("It is {{ result }}.".into());
    let mut write = declare("write", Effect::Reversible);
    write.writes = vec!["notes".into()];
    vec![
        read,
        shared,
        brief,
        costly,
        distant,
        slow,
        write,
        declare("keyed", Effect::Keyed),
        declare("broken", Effect::Read),
        declare("failing", Effect::Read),
        declare("strict", Effect::Read),
        declare("late", Effect::Read),
        declare("gone", Effect::Read),
        asking("asks", "Shall I do {{ n }}?"),
        hasty,
        ending("ends", EndsCall::HangUp),
        ending("passes", EndsCall::HandOver),
        ending("broken_pass", EndsCall::HandOver),
    ]
}
