//! The daily budget of speculation, over all sessions. A [`BudgetStore`] keeps count of it:
//! [`BudgetMemory`] for one server, [`BudgetShared`] for several with a store.

mod shared;

pub use shared::BudgetShared;

use crate::conversation::{DraftPolicy, SpeculationPolicy};
use crate::tools::Declaration;
use futures_util::future::BoxFuture;
use jiff::civil::Date;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// The name under which the tokens of discarded generations are counted; no tool has a space in its name.
const TOKENS: &str = "discarded tokens";

/// The name under which the tokens of the draft model are counted.
const DRAFTS: &str = "draft tokens";

/// A speculative call of a tool that has limits, or the tokens of discarded generations or of the draft model.
#[derive(Debug, Clone, PartialEq)]
pub struct Spending {
    /// The tool's name, `discarded tokens` or `draft tokens`.
    pub tool: String,
    /// The day, in the time zone of the session.
    pub day: Date,
    /// Its cost, in the operator's currency.
    pub cost: f64,
    /// Calls of the tool in a day; no limit if `None`.
    pub most_calls: Option<u32>,
    /// Their cost in a day; no limit if `None`.
    pub most_cost: Option<f64>,
}

impl Spending {
    /// One speculative call of `tool`; `None` if the tool has no limits and is not counted.
    pub(super) fn of(tool: &Declaration, day: Date) -> Option<Self> {
        let limits = &tool.speculation;
        (limits.per_day.is_some() || limits.cost_per_day.is_some()).then(|| Self {
            tool: tool.spec.name.clone(),
            day,
            cost: limits.cost,
            most_calls: limits.per_day,
            most_cost: limits.cost_per_day,
        })
    }

    /// The tokens of generations that were discarded, at the price and within the limit of `policy`. `None` if
    /// there is no limit.
    pub(super) fn of_tokens(policy: &SpeculationPolicy, tokens: u64, day: Date) -> Option<Self> {
        Some(Self {
            tool: TOKENS.to_owned(),
            day,
            cost: tokens as f64 * policy.token_price / 1e6,
            most_calls: None,
            most_cost: Some(policy.token_cost_per_day?),
        })
    }

    /// The tokens of the draft model, at its price and within its limit. `None` if there is no limit.
    pub(super) fn of_drafts(policy: &DraftPolicy, tokens: u64, day: Date) -> Option<Self> {
        Some(Self {
            tool: DRAFTS.to_owned(),
            day,
            cost: policy.cost(tokens),
            most_calls: None,
            most_cost: Some(policy.token_cost_per_day?),
        })
    }

    /// Whether it keeps within its limits after `calls` of the tool that have cost `cost` on this day.
    pub fn fits(&self, calls: u32, cost: f64) -> bool {
        self.most_calls.is_none_or(|most| calls < most)
            && self.most_cost.is_none_or(|most| cost + self.cost <= most)
    }
}

/// Keeps count of a day's speculative calls.
pub trait BudgetStore: Send + Sync {
    /// Counts a call if it [fits](Spending::fits), as one step. `false` if it does not, or if that
    /// cannot be known: then nothing runs early.
    fn take(&self, call: Spending) -> BoxFuture<'static, bool>;

    /// Counts what has been spent already, even if it does not fit, or if the answer is dropped. `false` if nothing is
    /// left for the day, or if that cannot be known. By default it is counted only if it fits.
    fn spent(&self, spending: Spending) -> BoxFuture<'static, bool> {
        self.take(spending)
    }
}

/// The days that are remembered: a clock that is set forward and back gives no second budget.
const DAYS: usize = 4;

/// Keeps count in this server's memory, until it ends.
#[derive(Debug, Default)]
pub struct BudgetMemory(Mutex<VecDeque<Day>>);

#[derive(Debug)]
struct Day {
    date: Date,
    spent: HashMap<String, Spent>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Spent {
    calls: u32,
    cost: f64,
}

impl BudgetMemory {
    /// Counts a call if it fits, or anyway if it is `made` already. Returns whether it fits.
    fn count(&self, call: &Spending, made: bool) -> bool {
        let mut days = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = days.iter().position(|day| day.date == call.day);
        // The last one used comes last.
        let mut day = known.and_then(|at| days.remove(at)).unwrap_or(Day {
            date: call.day,
            spent: HashMap::new(),
        });
        let spent = day.spent.entry(call.tool.clone()).or_default();
        let within = call.fits(spent.calls, spent.cost);
        if within || made {
            spent.calls += 1;
            spent.cost += call.cost;
        }
        days.push_back(day);
        if days.len() > DAYS {
            days.pop_front();
        }
        within
    }
}

impl BudgetStore for BudgetMemory {
    fn take(&self, call: Spending) -> BoxFuture<'static, bool> {
        Box::pin(std::future::ready(self.count(&call, false)))
    }

    fn spent(&self, spending: Spending) -> BoxFuture<'static, bool> {
        Box::pin(std::future::ready(self.count(&spending, true)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Effect, ToolSpec};
    use jiff::civil::date;
    use std::time::Duration;

    #[tokio::test]
    async fn a_day_s_budget_is_used_up_and_comes_back() {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: "quote".into(),
            description: String::new(),
            parameters: serde_json::json!({"type": "object"}),
        };
        let mut tool = Declaration::new(spec, Effect::ReadCostly, Duration::from_secs(1));
        let (budget, today) = (BudgetMemory::default(), date(2026, 3, 1));
        assert_eq!(Spending::of(&tool, today), None);
        tool.speculation.per_day = Some(2);
        let call = |tool: &Declaration, day| budget.take(Spending::of(tool, day).unwrap());
        assert!(call(&tool, today).await && call(&tool, today).await);
        assert!(!call(&tool, today).await);
        assert!(call(&tool, date(2026, 3, 2)).await);
        (tool.speculation.per_day, tool.speculation.cost) = (None, 0.4);
        tool.speculation.cost_per_day = Some(1.0);
        let next = date(2026, 3, 3);
        assert!(call(&tool, next).await && call(&tool, next).await);
        assert!(!call(&tool, next).await, "1.2 is more than 1.0");
    }

    #[tokio::test]
    async fn a_clock_that_is_set_forward_and_back_gives_no_second_budget() {
        let (budget, today) = (BudgetMemory::default(), date(2026, 3, 1));
        let call = |day| {
            budget.take(Spending {
                tool: "quote".into(),
                day,
                cost: 0.0,
                most_calls: Some(1),
                most_cost: None,
            })
        };
        assert!(call(today).await);
        for other in [date(2026, 3, 2), date(2026, 2, 28), date(2099, 1, 1)] {
            assert!(call(other).await);
            assert!(!call(today).await, "after {other}");
        }
        assert_eq!(budget.0.lock().unwrap().len(), DAYS);
    }

    #[tokio::test]
    async fn tokens_that_were_discarded_count_even_if_they_were_too_many() {
        let (budget, today) = (BudgetMemory::default(), date(2026, 3, 1));
        let mut policy = SpeculationPolicy {
            token_price: 2.0,
            ..SpeculationPolicy::default()
        };
        assert_eq!(Spending::of_tokens(&policy, 1_000, today), None);
        policy.token_cost_per_day = Some(0.01);
        let spent = |tokens, day| {
            let spending = Spending::of_tokens(&policy, tokens, day);
            budget.spent(spending.expect("a limit"))
        };
        assert!(spent(0, today).await && spent(4_000, today).await);
        assert!(!spent(4_000, today).await, "0.016 is more than 0.01");
        assert!(!spent(0, today).await);
        assert!(spent(0, date(2026, 3, 2)).await);
    }
}
