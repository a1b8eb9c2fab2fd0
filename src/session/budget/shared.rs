//! Keeps count for all servers that share a store. While it does not answer, each server goes on by itself,
//! from what it has spent of the day so far; the store is told with the next spending of that budget.

use super::{BudgetMemory, BudgetStore, Spending, Spent};
use crate::store::{Store, StoreError, key};
use futures_util::future::BoxFuture;
use jiff::civil::Date;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::Instrument;

/// How long a day's count is kept: until the day is over in every time zone.
const KEEP: Duration = Duration::from_hours(72);

/// Adds what waits (arguments 5 and 6), and then a spending of this cost (1) if it is made already (4) or keeps within
/// the most calls (2) and the most cost (3) of a day; either may be empty. Returns whether it keeps within them.
const COUNT: &str = "
    if ARGV[5] ~= '0' then
        redis.call('HINCRBY', KEYS[1], 'calls', ARGV[5])
        redis.call('HINCRBYFLOAT', KEYS[1], 'cost', ARGV[6])
    end
    local calls = tonumber(redis.call('HGET', KEYS[1], 'calls') or '0')
    local cost = tonumber(redis.call('HGET', KEYS[1], 'cost') or '0')
    local fits = (ARGV[2] == '' or calls < tonumber(ARGV[2]))
        and (ARGV[3] == '' or cost + tonumber(ARGV[1]) <= tonumber(ARGV[3]))
    if fits or ARGV[4] == '1' then
        redis.call('HINCRBY', KEYS[1], 'calls', 1)
        redis.call('HINCRBYFLOAT', KEYS[1], 'cost', ARGV[1])
    end
    redis.call('PEXPIRE', KEYS[1], ARGV[7])
    return fits and 1 or 0";

/// Keeps count in a store. Clones are the same one.
#[derive(Debug, Clone)]
pub struct BudgetShared(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    /// Spent by this server, for while the store does not answer.
    own: BudgetMemory,
    /// Spent, and not known to the store yet.
    waiting: Mutex<HashMap<(Date, String), Spent>>,
}

impl BudgetShared {
    /// Keeps count in `store`.
    pub fn new(store: Store) -> Self {
        Self(Arc::new(Inner {
            store,
            own: BudgetMemory::default(),
            waiting: Mutex::default(),
        }))
    }

    fn count(&self, spending: Spending, made: bool) -> BoxFuture<'static, bool> {
        let inner = self.0.clone();
        let count = async move { inner.count(&spending, made).await };
        // At once and to its end, also if nobody waits for it: a session that ends drops what it waits for.
        let counted = tokio::spawn(count.in_current_span());
        Box::pin(async move { counted.await.unwrap_or(false) })
    }
}

impl BudgetStore for BudgetShared {
    fn take(&self, call: Spending) -> BoxFuture<'static, bool> {
        self.count(call, false)
    }

    fn spent(&self, spending: Spending) -> BoxFuture<'static, bool> {
        self.count(spending, true)
    }
}

impl Inner {
    async fn count(&self, spending: &Spending, made: bool) -> bool {
        let key = (spending.day, spending.tool.clone());
        let waiting = self.waiting().remove(&key).unwrap_or_default();
        match self.ask(spending, made, waiting).await {
            Ok(fits) => {
                if fits || made {
                    self.own.count(spending, true);
                }
                fits
            }
            Err(error) => {
                self.store.figures().local_budgets.inc();
                // A store that is down has said so already.
                if self.store.is_up() {
                    tracing::warn!(%error, tool = spending.tool, "this server counts a budget by itself");
                }
                let fits = self.own.count(spending, made);
                self.wait(key, waiting, spending, fits || made);
                fits
            }
        }
    }

    /// Keeps what could not be told to the store: `waiting`, and the spending if it is made.
    fn wait(&self, key: (Date, String), waiting: Spent, spending: &Spending, is_made: bool) {
        let mut all = self.waiting();
        let kept = all.entry(key).or_default();
        kept.add(waiting);
        if is_made {
            kept.add(Spent {
                calls: 1,
                cost: spending.cost,
            });
        }
        // A day that is long over counts for nobody.
        all.retain(|(day, _), _| spending.day.duration_since(*day).unsigned_abs() < KEEP);
    }

    async fn ask(
        &self,
        spending: &Spending,
        made: bool,
        waiting: Spent,
    ) -> Result<bool, StoreError> {
        let day = spending.day.to_string();
        let key = key(&["budget", &day, &spending.tool]);
        let or_empty = |limit: Option<String>| limit.unwrap_or_default();
        let arguments = [
            spending.cost.to_string(),
            or_empty(spending.most_calls.map(|most| most.to_string())),
            or_empty(spending.most_cost.map(|most| most.to_string())),
            u8::from(made).to_string(),
            waiting.calls.to_string(),
            waiting.cost.to_string(),
            KEEP.as_millis().to_string(),
        ];
        let arguments = arguments.each_ref().map(String::as_str);
        self.store.run(COUNT, &[&key], &arguments).await
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<(Date, String), Spent>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spent {
    fn add(&mut self, more: Self) {
        self.calls += more.calls;
        self.cost += more.cost;
    }
}
