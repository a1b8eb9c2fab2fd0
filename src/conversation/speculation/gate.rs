//! The gate: the only code that decides what a prediction may trigger before the model commits the call.

use crate::conversation::policy::SpeculationPolicy;
use crate::time::Micros;
use crate::tools::{Confirmation, Declaration, Effect, Eligibility};
use serde::{Deserialize, Serialize};

/// The gate's decision about a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Its call was started.
    Started,
    /// The tool's connections were opened.
    WarmedUp,
    /// The same call is running or was made already.
    Known,
    /// Nothing was done, for this reason.
    Declined(Decline),
}

impl Decision {
    /// The name in records and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::WarmedUp => "warmed_up",
            Self::Known => "known",
            Self::Declined(Decline::UnknownTool) => "unknown_tool",
            Self::Declined(Decline::FailedBefore) => "failed_before",
            Self::Declined(Decline::Forbidden) => "forbidden",
            Self::Declined(Decline::Unlikely) => "unlikely",
            Self::Declined(Decline::TurnCap) => "turn_cap",
            Self::Declined(Decline::ToolCap) => "tool_cap",
            Self::Declined(Decline::AtOnceCap) => "at_once_cap",
            Self::Declined(Decline::NotWorthIt) => "not_worth_it",
            Self::Declined(Decline::WritePending) => "write_pending",
            Self::Declined(Decline::ResultMissing) => "result_missing",
        }
    }
}

/// The reason why a prediction was not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decline {
    /// The server has no such tool.
    UnknownTool,
    /// The same call failed earlier in this turn.
    FailedBefore,
    /// The tool must not run before its call is committed.
    Forbidden,
    /// The prediction's confidence is too low.
    Unlikely,
    /// The turn has reached its limit of speculative runs.
    TurnCap,
    /// The turn has reached its limit of speculative runs of this tool.
    ToolCap,
    /// The limit of simultaneous speculative runs is reached.
    AtOnceCap,
    /// Its expected cost exceeds the expected gain.
    NotWorthIt,
    /// A write that its result depends on is running.
    WritePending,
    /// An earlier result that sets one of its fixed arguments is not there.
    ResultMissing,
}

/// The state that the gate considers besides the tool and the policy.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::conversation) struct Situation {
    /// Speculative runs started in this turn.
    pub started: u32,
    /// Speculative runs of this tool started in this turn.
    pub started_of_tool: u32,
    /// Speculative runs that are running and not committed.
    pub running: u32,
    /// The same call failed earlier in this turn.
    pub failed: bool,
    /// A committed write that the tool's result depends on is running.
    pub write_pending: bool,
    /// An earlier result that sets one of its fixed arguments is not there.
    pub lacks_result: bool,
    /// How long the tool is expected to take.
    pub expected: Micros,
}

/// The furthest that a call may go before it is committed, and the rule that decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The limit.
    pub eligibility: Eligibility,
    /// The strictest rule.
    pub because: Because,
}

/// The rule that decides how far a call may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Because {
    /// Nothing forbids it.
    Allowed,
    /// Speculation is turned off.
    Off,
    /// It ends the conversation.
    EndsCall,
    /// The user has to say yes first.
    Confirmation,
    /// It may change something.
    Effect,
    /// Its declaration allows no more.
    Declaration,
    /// It would send words over the network before the user has finished.
    Network,
}

/// Returns the furthest that a call of `tool` may go before it is committed.
pub(in crate::conversation) fn eligibility(
    tool: &Declaration,
    policy: &SpeculationPolicy,
) -> Eligibility {
    verdict(tool, policy).eligibility
}

/// Returns the furthest that a call of `tool` may go, and why: the strictest of its effect, its confirmation, its
/// network access and its declaration.
pub fn verdict(tool: &Declaration, policy: &SpeculationPolicy) -> Verdict {
    let forbid = |because| Verdict {
        eligibility: Eligibility::Forbid,
        because,
    };
    if !policy.enabled {
        return forbid(Because::Off);
    }
    if tool.ends_call.is_some() {
        return forbid(Because::EndsCall);
    }
    if tool.confirmation != Confirmation::None {
        return forbid(Because::Confirmation);
    }
    let by_effect = match tool.effect {
        // A tool with `writes` is never treated as a read.
        Effect::Read | Effect::ReadCostly if !tool.writes.is_empty() => Eligibility::Forbid,
        Effect::Read | Effect::ReadCostly => Eligibility::Full,
        Effect::Keyed => Eligibility::WarmUp,
        Effect::Reversible | Effect::Irreversible => Eligibility::Forbid,
    };
    // A call discloses the user's words; opening a connection does not.
    let by_network = if tool.network && !tool.speculation.network {
        Eligibility::WarmUp
    } else {
        Eligibility::Full
    };
    let (eligibility, because) = [
        (Eligibility::Full, Because::Allowed),
        (by_effect, Because::Effect),
        (tool.speculation.eligibility, Because::Declaration),
        (by_network, Because::Network),
    ]
    .into_iter()
    .min_by_key(|(eligibility, _)| *eligibility)
    .unwrap_or((Eligibility::Forbid, Because::Effect));
    Verdict {
        eligibility,
        because,
    }
}

/// How likely a prediction is right, 0..1.
#[derive(Debug, Clone, Copy)]
pub(in crate::conversation) struct Odds {
    /// That its tool is called, which must reach the tool's least confidence.
    pub tool: f32,
    /// That the very call is made, with which its cost is weighed.
    pub call: f32,
}

impl Odds {
    /// Of a prediction with this confidence, before the model has begun a call.
    pub(in crate::conversation) fn of(confidence: f32) -> Self {
        Self {
            tool: confidence,
            call: confidence,
        }
    }
}

/// The decision on a prediction.
pub(in crate::conversation) fn decide(
    tool: &Declaration,
    odds: Odds,
    situation: Situation,
    policy: &SpeculationPolicy,
) -> Decision {
    let likely = odds.tool >= tool.speculation.min_confidence;
    match eligibility(tool, policy) {
        Eligibility::Forbid => return Decision::Declined(Decline::Forbidden),
        Eligibility::WarmUp => return Decision::WarmedUp,
        Eligibility::Full if !likely => return Decision::Declined(Decline::Unlikely),
        Eligibility::Full => {}
    }
    let decline = if situation.failed {
        Decline::FailedBefore
    } else if situation.write_pending {
        Decline::WritePending
    } else if situation.lacks_result {
        Decline::ResultMissing
    } else if situation.started >= policy.per_turn {
        Decline::TurnCap
    } else if situation.started_of_tool >= tool.speculation.per_turn {
        Decline::ToolCap
    } else if situation.running >= policy.at_once {
        Decline::AtOnceCap
    } else if !worth_it(tool, odds, situation.expected, policy) {
        Decline::NotWorthIt
    } else {
        return Decision::Started;
    };
    Decision::Declined(decline)
}

/// Whether a prediction alone would begin its call: nothing but its odds is considered.
pub(in crate::conversation) fn would_begin(
    tool: &Declaration,
    odds: Odds,
    expected: Micros,
    policy: &SpeculationPolicy,
) -> bool {
    odds.tool >= tool.speculation.min_confidence && worth_it(tool, odds, expected, policy)
}

/// Break-even: P(hit) × value of the saved time against P(miss) × cost of the call.
fn worth_it(tool: &Declaration, odds: Odds, expected: Micros, policy: &SpeculationPolicy) -> bool {
    let hit = f64::from(odds.call);
    let saved = expected.0 as f64 / 1e6 * policy.value_per_second;
    hit * saved >= (1.0 - hit) * tool.speculation.cost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{EndsCall, ToolSpec};
    use serde_json::json;
    use std::time::Duration;

    fn tool(effect: Effect) -> Declaration {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: "t".into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
        };
        let mut tool = Declaration::new(spec, effect, Duration::from_secs(1));
        tool.speculation.eligibility = Eligibility::Full;
        tool
    }

    fn eligible(tool: &Declaration) -> Eligibility {
        eligibility(tool, &SpeculationPolicy::default())
    }

    /// Metrics and recordings use the same names.
    #[test]
    fn a_decision_has_the_name_that_recordings_give_it() {
        use Decline::*;
        let declines = [
            UnknownTool,
            FailedBefore,
            Forbidden,
            Unlikely,
            TurnCap,
            ToolCap,
            AtOnceCap,
            NotWorthIt,
            WritePending,
            ResultMissing,
        ];
        let declines = declines.into_iter().map(Decision::Declined);
        let others = [Decision::Started, Decision::WarmedUp, Decision::Known];
        for decision in declines.chain(others) {
            let recorded = json!(decision);
            let reason = recorded.get("declined").unwrap_or(&recorded);
            assert_eq!(reason, decision.name());
        }
    }

    #[test]
    fn only_reads_run_early_whatever_the_operator_writes() {
        assert_eq!(eligible(&tool(Effect::Read)), Eligibility::Full);
        assert_eq!(eligible(&tool(Effect::ReadCostly)), Eligibility::Full);
        assert_eq!(eligible(&tool(Effect::Keyed)), Eligibility::WarmUp);
        assert_eq!(eligible(&tool(Effect::Reversible)), Eligibility::Forbid);
        assert_eq!(eligible(&tool(Effect::Irreversible)), Eligibility::Forbid);
    }

    #[test]
    fn a_read_with_writes_is_not_a_read() {
        for effect in [Effect::Read, Effect::ReadCostly] {
            let mut liar = tool(effect);
            liar.writes = vec!["notes".into()];
            assert_eq!(eligible(&liar), Eligibility::Forbid);
        }
    }

    #[test]
    fn every_switch_tightens() {
        let mut default = tool(Effect::Read);
        default.speculation = crate::tools::SpeculationLimits::default();
        assert_eq!(eligible(&default), Eligibility::Forbid);
        let mut warm = tool(Effect::Read);
        warm.speculation.eligibility = Eligibility::WarmUp;
        assert_eq!(eligible(&warm), Eligibility::WarmUp);
        let mut far = tool(Effect::Read);
        far.network = true;
        assert_eq!(eligible(&far), Eligibility::WarmUp);
        far.speculation.network = true;
        assert_eq!(eligible(&far), Eligibility::Full);
        let mut asks = tool(Effect::Read);
        asks.confirmation = Confirmation::Spoken {
            question: None,
            expiry: Duration::from_secs(30),
        };
        assert_eq!(eligible(&asks), Eligibility::Forbid);
        let mut ends = tool(Effect::Read);
        ends.ends_call = Some(EndsCall::HandOver);
        assert_eq!(eligible(&ends), Eligibility::Forbid);
        let off = SpeculationPolicy {
            enabled: false,
            ..SpeculationPolicy::default()
        };
        assert_eq!(eligibility(&tool(Effect::Read), &off), Eligibility::Forbid);
    }

    #[test]
    fn the_strictest_rule_is_the_reason() {
        let because = |tool: &Declaration| verdict(tool, &SpeculationPolicy::default()).because;
        assert_eq!(because(&tool(Effect::Read)), Because::Allowed);
        assert_eq!(because(&tool(Effect::Keyed)), Because::Effect);
        let mut far = tool(Effect::Read);
        far.network = true;
        assert_eq!(because(&far), Because::Network);
        far.speculation.eligibility = Eligibility::Forbid;
        assert_eq!(because(&far), Because::Declaration);
        far.effect = Effect::Irreversible;
        assert_eq!(because(&far), Because::Effect);
        far.ends_call = Some(EndsCall::HandOver);
        assert_eq!(because(&far), Because::EndsCall);
    }

    #[test]
    fn caps_hold_at_their_number() {
        let read = tool(Effect::Read);
        let policy = SpeculationPolicy::default();
        let decide =
            |confidence, situation| decide(&read, Odds::of(confidence), situation, &policy);
        let free = Situation::default();
        assert_eq!(decide(0.5, free), Decision::Started);
        assert_eq!(decide(0.49, free), Decision::Declined(Decline::Unlikely));
        let started = |started| Situation { started, ..free };
        assert_eq!(decide(0.9, started(2)), Decision::Started);
        assert_eq!(
            decide(0.9, started(3)),
            Decision::Declined(Decline::TurnCap)
        );
        let running = |running| Situation { running, ..free };
        assert_eq!(decide(0.9, running(1)), Decision::Started);
        assert_eq!(
            decide(0.9, running(2)),
            Decision::Declined(Decline::AtOnceCap)
        );
        let of_tool = |started_of_tool| Situation {
            started_of_tool,
            ..free
        };
        assert_eq!(decide(0.9, of_tool(2)), Decision::Started);
        assert_eq!(
            decide(0.9, of_tool(3)),
            Decision::Declined(Decline::ToolCap)
        );
        let failed = Situation {
            failed: true,
            ..free
        };
        assert_eq!(
            decide(0.9, failed),
            Decision::Declined(Decline::FailedBefore)
        );
        let pending = Situation {
            write_pending: true,
            ..free
        };
        assert_eq!(
            decide(0.9, pending),
            Decision::Declined(Decline::WritePending)
        );
        let lacking = Situation {
            lacks_result: true,
            ..free
        };
        assert_eq!(
            decide(0.9, lacking),
            Decision::Declined(Decline::ResultMissing)
        );
        let keyed = super::decide(&tool(Effect::Keyed), Odds::of(0.1), free, &policy);
        assert_eq!(keyed, Decision::WarmedUp);
        let write = super::decide(&tool(Effect::Reversible), Odds::of(1.0), free, &policy);
        assert_eq!(write, Decision::Declined(Decline::Forbidden));
    }

    #[test]
    fn a_costly_call_must_be_worth_it() {
        let mut costly = tool(Effect::ReadCostly);
        costly.speculation.cost = 0.01;
        let policy = SpeculationPolicy::default();
        let taking = |seconds: u64| Situation {
            expected: Micros::from_ms(seconds * 1_000),
            ..Situation::default()
        };
        let decide =
            |tool: &Declaration, odds, seconds| decide(tool, odds, taking(seconds), &policy);
        let not_worth_it = Decision::Declined(Decline::NotWorthIt);
        // A second is worth as much as a call costs, so even odds break even.
        let even = Odds::of(0.5);
        assert_eq!(decide(&costly, even, 1), Decision::Started);
        assert_eq!(decide(&costly, Odds::of(0.9), 0), not_worth_it);
        // The tool is certain, the call is not.
        let begun = Odds { tool: 0.95, ..even };
        assert_eq!(decide(&costly, begun, 1), Decision::Started);
        let begun = Odds { call: 0.4, ..begun };
        assert_eq!(decide(&costly, begun, 1), not_worth_it);
        costly.speculation.cost = 0.011;
        assert_eq!(decide(&costly, even, 1), not_worth_it);
        assert_eq!(decide(&costly, even, 2), Decision::Started);
    }

    /// The confidence of the call was compared, and its cost was not.
    #[test]
    fn another_source_would_have_begun_a_call_by_the_rule_of_the_gate() {
        let policy = SpeculationPolicy::default();
        let mut quote = tool(Effect::ReadCostly);
        let begins =
            |tool: &Declaration, odds| would_begin(tool, odds, Micros::from_ms(1_000), &policy);
        let [open, unlikely] = [(0.95, 0.4), (0.4, 0.4)].map(|(tool, call)| Odds { tool, call });
        assert!(begins(&quote, open) && !begins(&quote, unlikely));
        quote.speculation.cost = 0.01;
        assert!(!begins(&quote, open) && begins(&quote, Odds::of(0.6)));
    }
}
