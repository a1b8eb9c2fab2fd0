//! The daily budget of speculation, over all sessions.

use crate::tools::Declaration;
use jiff::civil::Date;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The amount spent today.
#[derive(Debug, Default)]
pub(super) struct Budget(Mutex<Day>);

#[derive(Debug, Default)]
struct Day {
    date: Option<Date>,
    spent: HashMap<String, Spent>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Spent {
    calls: u32,
    cost: f64,
}

impl Budget {
    /// Takes one speculative call of `tool` out of the budget of `today`; `false` if there is none
    /// left. A tool without limits is not counted.
    pub(super) fn take(&self, tool: &Declaration, today: Date) -> bool {
        let limits = &tool.speculation;
        if limits.per_day.is_none() && limits.cost_per_day.is_none() {
            return true;
        }
        let mut day = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if day.date != Some(today) {
            *day = Day {
                date: Some(today),
                spent: HashMap::new(),
            };
        }
        let spent = day.spent.entry(tool.spec.name.clone()).or_default();
        let cost = spent.cost + limits.cost;
        let within = limits.per_day.is_none_or(|most| spent.calls < most)
            && limits.cost_per_day.is_none_or(|most| cost <= most);
        if within {
            spent.calls += 1;
            spent.cost = cost;
        }
        within
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Effect, ToolSpec};
    use jiff::civil::date;
    use std::time::Duration;

    #[test]
    fn a_day_s_budget_is_used_up_and_comes_back() {
        let spec = ToolSpec {
            name: "quote".into(),
            description: String::new(),
            parameters: serde_json::json!({"type": "object"}),
        };
        let mut tool = Declaration::new(spec, Effect::ReadCostly, Duration::from_secs(1));
        let (budget, today) = (Budget::default(), date(2026, 3, 1));
        assert!((0..100).all(|_| budget.take(&tool, today)));
        tool.speculation.per_day = Some(2);
        assert!(budget.take(&tool, today) && budget.take(&tool, today));
        assert!(!budget.take(&tool, today));
        assert!(budget.take(&tool, date(2026, 3, 2)));
        (tool.speculation.per_day, tool.speculation.cost) = (None, 0.4);
        tool.speculation.cost_per_day = Some(1.0);
        let next = date(2026, 3, 3);
        assert!(budget.take(&tool, next) && budget.take(&tool, next));
        assert!(!budget.take(&tool, next), "1.2 is more than 1.0");
    }
}
