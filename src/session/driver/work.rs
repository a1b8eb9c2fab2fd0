//! Work beside the conversation: generations, predictions, tools, and the budgets that they are counted in.

use super::{Done, Driver, failure};
use crate::conversation::{CLIENT_TIMEOUT, CallId, Discard, Input, Job, RequestId, RunId, Shed};
use crate::llm::{GivenResult, LlmEvent, Prompt};
use crate::prediction::{Evidence, Moment};
use crate::session::agents::came_by;
use crate::session::budget::Spending;
use crate::tools::{CallContext, Caller, Known, ToolError};
use futures_util::{FutureExt, StreamExt};
use serde_json::{Map, Value};
use std::panic::AssertUnwindSafe;
use tracing::Instrument;

impl Driver {
    /// Stops a generation, and what was made in advance of its words.
    pub(super) fn cancel_generation(&mut self, request: RequestId) {
        self.ahead.cancel(request);
        if let Some((generation, _)) = self.generations.remove(&request) {
            generation.abort();
        }
    }

    pub(super) fn generate(&mut self, request: RequestId, mut prompt: Prompt, agent: Option<&str>) {
        prompt.demands.session = self.id;
        let agent = agent.and_then(|name| self.engines.agents.get(name));
        let llm = agent.unwrap_or(&self.agent).llm.clone();
        self.conversation.asked(request, || llm.id());
        let mut events = llm.generate(prompt);
        let results = self.results.clone();
        let job = Job::Generation(request);
        let stream = async move {
            while let Some(event) = events.next().await {
                let event = event.map_err(|error| error.to_string())?;
                let end = event == LlmEvent::End;
                let input = Input::Llm { request, event };
                if results.send(Done::Input(Box::new(input))).await.is_err() || end {
                    return Ok(());
                }
            }
            Err("the stream ended too early".to_owned())
        };
        let results = self.results.clone();
        let task = async move {
            let outcome = AssertUnwindSafe(stream).catch_unwind().await;
            if let Err(reason) = outcome.unwrap_or_else(|_| Err("the engine panicked".into())) {
                tracing::error!(reason, "generation failed");
                drop(
                    results
                        .send(Done::Input(Box::new(failure(job, reason))))
                        .await,
                );
            }
        };
        let task = self.tasks.spawn(task.in_current_span());
        self.generations.retain(|_, (task, _)| !task.is_finished());
        self.generations.insert(request, (task, llm));
    }

    /// Gives a result to the server that makes a generation.
    pub(super) fn give(&mut self, request: RequestId, response: &str, result: GivenResult) {
        let Some((_, llm)) = self.generations.get(&request) else {
            return;
        };
        let given = llm.give(response, result);
        let give = async move {
            if let Err(error) = given.await {
                // The server's words may repeat the result.
                tracing::debug!(reason = error.details());
                let reason = error.cause();
                tracing::warn!(reason, "the model's server refused the result of a tool");
            }
        };
        self.tasks.spawn(give.in_current_span());
    }

    /// Asks the sources of predictions.
    pub(super) fn route(&mut self, request: RequestId, heard: Evidence) {
        // A Realtime client declares only after the opening which tools may run early.
        let is_too_soon =
            heard.moment == Moment::Opened && came_by(&self.options.values) == Some("realtime");
        if is_too_soon || self.routing.is_empty() {
            let predictions = Vec::new();
            return self.input(Input::Predicted {
                request,
                predictions,
            });
        }
        let (tasks, results) = (&mut self.tasks, &self.results);
        self.routing.ask(request, heard, tasks, results);
    }

    pub(super) fn start_tool(
        &mut self,
        run: RunId,
        committed: Option<CallId>,
        name: String,
        (arguments, taken): (Map<String, Value>, Map<String, Value>),
    ) {
        if committed.is_none() && self.engines.shed() >= Shed::Speculation {
            let reason = Discard::Overloaded;
            return self.input(Input::RunRefused { run, reason });
        }
        let key = match committed {
            Some(call) => format!("{}-{call}", self.key),
            None => format!("{}-{run}", self.key),
        };
        let mut offered = self.conversation.tools().iter();
        let offered = offered.find(|tool| tool.spec.name == name).cloned();
        if let Some(tool) = &offered
            && self.engines.agents.hand_over_by(tool)
        {
            return self.hand_to_agent(run, tool, &arguments);
        }
        if offered.is_none() || !self.offer.is_there(&name) {
            let result = Err(ToolError::Unknown(name));
            return self.input(Input::ToolFinished { run, result });
        }
        let tools = self.registry();
        let declaration = tools.declaration(&name);
        let changes = declaration.is_some_and(|tool| tool.effect.changes());
        let spending = declaration.filter(|_| committed.is_none());
        let spending = spending.and_then(|tool| Spending::of(tool, self.today()));
        let session = self.tools.clone();
        let journal = self.engines.journal.clone().filter(|_| changes);
        let audit = self.engines.observers.audit.as_ref().filter(|_| changes);
        let audited = audit.zip(declaration).map(|(audit, tool)| {
            let caller = Caller {
                session: self.key,
                agent: self.agent.policy.briefing.agent.as_deref(),
                values: &self.options.values,
            };
            audit.begin(caller, tool, &key)
        });
        let results = self.results.clone();
        let budget = self.budget.clone();
        let metrics = self.engines.observers.metrics.clone();
        let task = async move {
            if let Some(spending) = spending
                && !budget.take(spending).await
            {
                let reason = Discard::Budget;
                let refused = Input::RunRefused { run, reason };
                return drop(results.send(Done::Input(Box::new(refused))).await);
            }
            tracing::info!(%run, tool = name, speculative = committed.is_none(), "tool started");
            let found = tools.found_for(&name, &session).await;
            let known = Known::new(session.values(), &found, &taken);
            let arguments = tools.complete(&name, arguments, known);
            let complete = arguments.as_ref().ok();
            let same = complete.and_then(|complete| tools.same(&name, complete, session.values()));
            let call = |key| {
                let context = CallContext::new(session.clone(), key);
                tools.run(&name, arguments.clone(), &context)
            };
            let now = || session.clock().now();
            let result = match (journal, &arguments, same) {
                (Some(journal), Ok(arguments), Some(same)) => {
                    let once = journal.once_per(&same, &key, &name, arguments, now, call);
                    AssertUnwindSafe(once).catch_unwind().await
                }
                (Some(journal), Ok(arguments), None) => {
                    let once = journal.once(&key, &name, arguments, now, call(key.clone()));
                    AssertUnwindSafe(once).catch_unwind().await
                }
                _ => AssertUnwindSafe(call(key)).catch_unwind().await,
            };
            let result =
                result.unwrap_or_else(|_| Err(ToolError::Broken("the tool crashed".into())));
            if let Some(audited) = audited {
                audited.ended(now(), arguments.as_ref().ok(), &result);
            }
            tracing::info!(%run, tool = name, ok = result.is_ok(), "tool finished");
            if let Err(error) = &result
                && metrics.tool_failed(&name, error)
            {
                tracing::warn!(%run, tool = name, error = error.details(), "tool failed");
            }
            let finished = Input::ToolFinished { run, result };
            drop(results.send(Done::Input(Box::new(finished))).await);
        };
        let task = task.in_current_span();
        if changes {
            // A change runs to its end even if the session does not: half a change is worse than a whole one.
            self.engines.changes.spawn(task);
            return;
        }
        let task = self.tasks.spawn(task);
        self.runs.retain(|_, task| !task.is_finished());
        self.runs.insert(run, task);
    }

    /// Limits how long the client may take for a run of its own tool.
    pub(super) fn await_client(&mut self, run: RunId) {
        let results = self.results.clone();
        let task = self.tasks.spawn(async move {
            tokio::time::sleep(CLIENT_TIMEOUT).await;
            let limit = u64::try_from(CLIENT_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
            let result = Err(ToolError::Timeout(limit));
            let finished = Input::ToolFinished { run, result };
            drop(results.send(Done::Input(Box::new(finished))).await);
        });
        self.runs.retain(|_, task| !task.is_finished());
        self.runs.insert(run, task);
    }

    /// Counts the tokens of discarded generations, and tells the conversation whether the day's budget is spent.
    pub(super) fn spend_tokens(&mut self, tokens: u64) {
        let policy = &self.engines.policy().speculation;
        let Some(spending) = Spending::of_tokens(policy, tokens, self.today()) else {
            return;
        };
        self.spend(spending, |spent| Input::TokenBudget { spent });
    }

    /// Counts the tokens of the draft model in the same way.
    pub(super) fn spend_on_drafts(&mut self, tokens: u64) {
        let draft = self.engines.policy().speculation.draft;
        let spending = draft.and_then(|draft| Spending::of_drafts(&draft, tokens, self.today()));
        if let Some(spending) = spending {
            self.spend(spending, |spent| Input::DraftBudget { spent });
        }
    }

    pub(super) fn spend(&mut self, spending: Spending, told: fn(bool) -> Input) {
        let spent = self.budget.spent(spending);
        let results = self.results.clone();
        self.tasks.spawn(async move {
            let told = told(!spent.await);
            drop(results.send(Done::Input(Box::new(told))).await);
        });
    }

    pub(super) fn today(&self) -> jiff::civil::Date {
        let now = self.tools.clock().now();
        now.to_zoned(self.tools.zone().clone()).date()
    }
}
