//! The server's tools as one session knows them.

use super::agents::Agent;
use super::options::{Profile, SessionOptions};
use crate::conversation::{Declarations, Input};
use crate::tools::{Audience, Declaration, LiveTools, Registry, builtin};
use std::sync::Arc;
use tokio::sync::watch;

/// The tools that a session is offered, and those that it will be.
pub(super) struct Offer {
    profile: Profile,
    is_call: bool,
    placed: bool,
    demonstrates: bool,
    /// The agent that speaks, or is about to.
    agent: Arc<Agent>,
    live: watch::Receiver<Arc<Registry>>,
    /// The tools that the conversation works with.
    registry: Arc<Registry>,
    /// The last change that the conversation was told of. It adopts it when it can.
    next: Option<(Declarations, Arc<Registry>)>,
}

impl Offer {
    /// The tools of a session that begins now, and their declarations.
    pub(super) fn open(
        tools: &LiveTools,
        options: &SessionOptions,
        agent: Arc<Agent>,
    ) -> (Self, Declarations) {
        let mut live = tools.changes();
        let registry = live.borrow_and_update().clone();
        let offer = Self {
            profile: options.profile,
            is_call: options.call.is_some(),
            placed: options.placed.is_some(),
            demonstrates: options.demonstrates,
            agent,
            live,
            registry,
            next: None,
        };
        let declarations = offer.of(&offer.registry);
        (offer, declarations)
    }

    fn of(&self, tools: &Registry) -> Declarations {
        let its = |audience| {
            let offered = tools.offered_to(audience).into_iter();
            offered.filter(|tool| self.agent.has(tool))
        };
        let mut offered: Vec<_> = its(Audience::Everyone).collect();
        offered.extend(self.agent.transfer.clone());
        if self.profile == Profile::PhoneCall {
            may_hang_up(&mut offered);
            offered.extend(its(Audience::Lines));
        }
        if self.placed {
            offered.extend(its(Audience::PlacedCalls));
        }
        if self.is_call {
            offered.extend(its(Audience::Calls));
        }
        if self.demonstrates {
            offered.extend(tools.offered_to(Audience::Demonstration));
        }
        Arc::new(offered)
    }

    /// Changes to another agent. Returns its tools.
    pub(super) fn change_agent(&mut self, agent: Arc<Agent>) -> Declarations {
        self.agent = agent;
        let registry = self.live.borrow().clone();
        let tools = self.of(&registry);
        self.next = Some((tools.clone(), registry));
        tools
    }

    /// Waits for a change of the server's tools.
    pub(super) async fn changed(&mut self) -> Arc<Registry> {
        match self.live.changed().await {
            Ok(()) => self.live.borrow_and_update().clone(),
            Err(_) => std::future::pending().await,
        }
    }

    /// The change of declarations to tell the conversation, which has `known`.
    pub(super) fn tell(&mut self, known: &Declarations, changed: Arc<Registry>) -> Input {
        self.registry(known);
        let tools = self.of(&changed);
        self.next = Some((tools.clone(), changed));
        Input::Tools { tools }
    }

    /// The tools that the conversation works with, whose declarations are `known`.
    pub(super) fn registry(&mut self, known: &Declarations) -> Arc<Registry> {
        if let Some((_, adopted)) = self.next.take_if(|(next, _)| Arc::ptr_eq(next, known)) {
            self.registry = adopted;
        }
        self.registry.clone()
    }

    /// Whether the server still has a tool of this name that a model may call.
    pub(super) fn is_there(&self, name: &str) -> bool {
        let audience = self.live.borrow().audience(name);
        audience.is_some_and(|audience| audience != Audience::Lookup)
    }
}

/// Adds the tool with which the agent ends a telephone call.
fn may_hang_up(tools: &mut Vec<Arc<Declaration>>) {
    // The operator's own takes its place.
    if !tools.iter().any(|tool| tool.spec.name == builtin::HANG_UP) {
        tools.push(Arc::new(builtin::hang_up()));
    }
}
