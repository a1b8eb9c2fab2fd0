//! The agents of a server: what each is made of, and which one a session begins with.

use super::builders::PhoneSettings;
use super::notes::Instructions;
use super::options::{Profile, SessionOptions};
use super::phrases::Sayings;
use super::warmth::Warmth;
use crate::conversation::{Opening, Policy};
use crate::language::pack;
use crate::llm::Llm;
use crate::metrics::Metrics;
use crate::tools::{Audience, Declaration, Named, Origin, Registry, SessionValues, builtin};
use crate::tts::{Speaker, Speed};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The agent of a server that has no others, and of sessions that match no route.
pub const DEFAULT_AGENT: &str = "default";

/// The transports of telephone calls, for routes whose `transport` is `phone`.
pub(crate) const PHONE: [&str; 5] = ["twilio", "telnyx", "plivo", "asterisk", "audiosocket"];

/// The values of `transport` in a route: `phone` is any telephone line.
pub(crate) const TRANSPORTS: [&str; 11] = [
    "phone", PHONE[0], PHONE[1], PHONE[2], PHONE[3], PHONE[4], "realtime", "pcm", "wyoming",
    "desktop", "ask",
];

/// How a client came: `phone` for every telephone line, or else its transport.
pub(super) fn came_by(values: &SessionValues) -> Option<&str> {
    let (name, _) = values.get(&Named::Transport)?;
    Some(if PHONE.contains(&name) { "phone" } else { name })
}

/// The settings of an agent. `None` stands for the server's.
#[derive(Clone)]
pub struct AgentSettings {
    /// Its name: letters, digits, `_` and `-`.
    pub name: String,
    /// When other agents should hand over to it, for their models.
    pub description: String,
    /// Its language model, and that one's limit on the tokens of a generation.
    pub model: Option<(Arc<dyn Llm>, Option<u32>)>,
    /// Its instructions.
    pub instructions: Option<String>,
    /// Its greeting, on the telephone and elsewhere.
    pub greeting: Option<String>,
    /// The name of its voice.
    pub voice: Option<String>,
    /// How fast it speaks.
    pub speed: Option<Speed>,
    /// The language that it speaks, a BCP 47 tag.
    pub language: Option<String>,
    /// The name of the recogniser of sessions that begin with it.
    pub recogniser: Option<String>,
    /// Words that are likely to be said to it, for the recogniser.
    pub keyterms: Option<Arc<[String]>>,
    /// The names of its tools; all that the session may have if `None`.
    pub tools: Option<BTreeSet<String>>,
    /// Whether anything may run early.
    pub speculation: Option<bool>,
    /// Whether its model may make plans.
    pub plans: Option<bool>,
    /// The agents that it may hand over to.
    pub handoff: Vec<String>,
}

impl AgentSettings {
    /// An agent with the server's settings.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            model: None,
            instructions: None,
            greeting: None,
            voice: None,
            speed: None,
            language: None,
            recogniser: None,
            keyterms: None,
            tools: None,
            speculation: None,
            plans: None,
            handoff: Vec::new(),
        }
    }
}

/// Leads sessions to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// How the client came, as in `session.transport`, or `phone`.
    pub transport: Option<String>,
    /// The values that the session must have.
    pub values: Vec<(Named, String)>,
    /// The least origin of these values.
    pub trust: Origin,
    /// The agent.
    pub agent: String,
}

impl Route {
    /// Whether it leads a session with these values.
    fn leads(&self, values: &SessionValues) -> bool {
        let transport = values.get(&Named::Transport).map(|(name, _)| name);
        let is_there = |wanted: &String| match transport {
            Some(name) if wanted == "phone" => PHONE.contains(&name),
            name => name == Some(wanted.as_str()),
        };
        if !self.transport.as_ref().is_none_or(is_there) {
            return false;
        }
        let is_same = |(name, wanted): &(Named, String)| {
            values.get(name).filter(|(value, _)| value == wanted)
        };
        let found: Option<Vec<_>> = self.values.iter().map(is_same).collect();
        let Some(found) = found else {
            return false;
        };
        let is_trusted = found.iter().all(|(_, origin)| *origin >= self.trust);
        if !is_trusted {
            let (agent, trust) = (&self.agent, self.trust.name());
            tracing::info!(
                agent,
                trust,
                "skipped a route: its conditions hold, but a value is less trusted than `trust` in the route \
                 requires"
            );
        }
        is_trusted
    }
}

/// The agents of a server, and the routes to them.
#[derive(Clone, Default)]
pub struct Cast {
    /// The agents; without one named [`DEFAULT_AGENT`] the server itself is that one.
    pub agents: Vec<AgentSettings>,
    /// The routes. The first that leads a session decides.
    pub routes: Vec<Route>,
    /// The keyterms of agents that have none of their own.
    pub keyterms: Arc<[String]>,
}

/// An agent, with what it takes over from the server.
pub(super) struct Agent {
    pub(super) name: String,
    pub(super) llm: Arc<dyn Llm>,
    pub(super) warmth: Arc<Warmth>,
    pub(super) instructions: Instructions,
    pub(super) policy: Policy,
    pub(super) phone_policy: Policy,
    /// The name of the recogniser of sessions that begin with it.
    pub(super) recogniser: Option<String>,
    /// Words that are likely to be said to it.
    pub(super) keyterms: Arc<[String]>,
    pub(super) tools: Option<BTreeSet<String>>,
    /// Its tool for handoffs.
    pub(super) transfer: Option<Arc<Declaration>>,
}

impl Agent {
    /// Whether it is offered the tool.
    pub(super) fn has(&self, tool: &Declaration) -> bool {
        let tools = self.tools.as_ref();
        tools.is_none_or(|tools| tools.contains(&tool.spec.name))
    }

    /// Its greeting in sessions of this profile, as the operator has written it.
    pub(super) fn greeting(&self, profile: Profile) -> &str {
        match profile {
            Profile::Conversation => &self.policy.opening.greeting,
            Profile::ClientFirst => "",
            Profile::PhoneCall => &self.phone_policy.opening.greeting,
        }
    }
}

/// All agents of a server.
#[derive(Clone)]
pub(super) struct Agents {
    by_name: BTreeMap<String, Arc<Agent>>,
    routes: Arc<Vec<Route>>,
}

/// The server's settings for agents that have none of their own.
pub(super) struct Shared<'a> {
    pub(super) llm: Arc<dyn Llm>,
    pub(super) policy: Policy,
    pub(super) phone: PhoneSettings,
    pub(super) tools: &'a Registry,
    pub(super) metrics: Arc<Metrics>,
}

impl Agents {
    /// The agents of `cast`, whose models begin to warm up.
    pub(super) fn start(cast: Cast, shared: &Shared<'_>) -> Self {
        let Cast {
            mut agents,
            routes,
            keyterms,
        } = cast;
        let is_alone = agents.is_empty();
        if !agents.iter().any(|agent| agent.name == DEFAULT_AGENT) {
            agents.push(AgentSettings::new(DEFAULT_AGENT));
        }
        let about: BTreeMap<String, String> = agents
            .iter()
            .map(|agent| (agent.name.clone(), agent.description.clone()))
            .collect();
        let agents = agents.into_iter().map(|mut agent| {
            agent.keyterms.get_or_insert_with(|| keyterms.clone());
            let handoff = agent
                .handoff
                .iter()
                .filter_map(|name| about.get_key_value(name));
            let transfer = builtin::transfer_to_agent(handoff).map(Arc::new);
            let name = agent.name.clone();
            (name, Arc::new(shared.agent(agent, transfer, is_alone)))
        });
        Self {
            by_name: agents.collect(),
            routes: routes.into(),
        }
    }

    /// The agent of sessions that match no route.
    pub(super) fn default(&self) -> &Arc<Agent> {
        &self.by_name[DEFAULT_AGENT]
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<Agent>> {
        self.by_name.get(name)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.by_name.values()
    }

    /// Whether this is the tool by which one of them hands over, not a stranger of the same name.
    pub(super) fn hand_over_by(&self, tool: &Arc<Declaration>) -> bool {
        let mut own = self.all().filter_map(|agent| agent.transfer.as_ref());
        own.any(|own| Arc::ptr_eq(own, tool))
    }

    /// The phrases of all of them that must be audible even if the voice fails.
    pub(super) fn sayings(&self) -> Sayings {
        let mut sayings = Sayings::default();
        for agent in self.all() {
            sayings.add(&agent.policy, &agent.phone_policy);
        }
        sayings
    }

    /// Texts that each agent's model answers with again and again.
    pub(super) fn often_said(&self) -> Vec<(Speaker, Vec<String>)> {
        let often = |agent: &Arc<Agent>| (agent.policy.speaker.clone(), agent.warmth.often_said());
        self.all().map(often).collect()
    }

    /// The agent of a new session.
    pub(super) fn of(&self, options: &SessionOptions) -> &Arc<Agent> {
        let chosen = options.agent.as_ref();
        if let Some(agent) = chosen.and_then(|name| self.by_name.get(name)) {
            return agent;
        }
        let route = self
            .routes
            .iter()
            .find(|route| route.leads(&options.values));
        route
            .and_then(|route| self.by_name.get(&route.agent))
            .unwrap_or_else(|| self.default())
    }
}

impl Shared<'_> {
    fn agent(
        &self,
        settings: AgentSettings,
        transfer: Option<Arc<Declaration>>,
        is_alone: bool,
    ) -> Agent {
        let AgentSettings {
            name,
            model,
            instructions,
            greeting,
            voice,
            speed,
            language,
            recogniser,
            keyterms,
            tools,
            speculation,
            plans,
            ..
        } = settings;
        let mut policy = self.policy.clone();
        let typed = instructions.or_else(|| policy.briefing.instructions.take());
        let instructions = Instructions::new(typed.as_deref());
        policy
            .briefing
            .instructions
            .clone_from(&instructions.shared);
        policy.briefing.agent = (!is_alone).then(|| name.clone());
        policy.speculation.enabled = speculation.unwrap_or(policy.speculation.enabled);
        policy.briefing.plans = plans.unwrap_or(policy.briefing.plans);
        if voice.is_some() {
            policy.speaker.voice = voice;
        }
        if let Some(speed) = speed {
            policy.speaker.speed = Some(speed).filter(|speed| *speed != Speed::NORMAL);
        }
        if language.is_some() {
            policy.speaker.language = language;
        }
        let (llm, most) = model.unwrap_or_else(|| (self.llm.clone(), policy.max_tokens));
        policy.max_tokens = most;
        let mut phone = self.phone.clone();
        if phone.greeting == pack(None).hello {
            phone.greeting = policy.speaker.pack().hello.to_owned();
        }
        if let Some(greeting) = greeting {
            policy.opening = Opening::greeting(greeting.clone());
            phone.greeting = greeting;
        }
        let is_its = |tool: &Arc<Declaration>| {
            let tools = tools.as_ref();
            tools.is_none_or(|tools| tools.contains(&tool.spec.name))
        };
        let offered = self.tools.offered_to(Audience::Everyone).into_iter();
        policy.tools = Arc::new(offered.filter(is_its).chain(transfer.clone()).collect());
        Agent {
            name,
            warmth: Warmth::start(llm.clone(), &policy, &self.metrics),
            llm,
            instructions,
            phone_policy: phone.policy(&policy),
            policy,
            recogniser,
            keyterms: keyterms.unwrap_or_default(),
            tools,
            transfer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::scripted::Scripted;

    fn route(transport: Option<&str>, values: &[(Named, &str)], agent: &str) -> Route {
        let values = values.iter();
        Route {
            transport: transport.map(str::to_owned),
            values: values
                .map(|(name, value)| (name.clone(), (*value).to_owned()))
                .collect(),
            trust: Origin::Signalled,
            agent: agent.into(),
        }
    }

    fn agents(routes: Vec<Route>) -> Agents {
        let shared = Shared {
            llm: Arc::new(Scripted::always("Hello.")),
            policy: Policy::default(),
            phone: PhoneSettings::default(),
            tools: &Registry::new(),
            metrics: Arc::default(),
        };
        let agents = ["billing", "sales", "desk"].map(AgentSettings::new).into();
        let cast = Cast {
            agents,
            routes,
            ..Cast::default()
        };
        Agents::start(cast, &shared)
    }

    fn reached(agents: &Agents, values: SessionValues) -> String {
        let options = SessionOptions {
            values,
            ..SessionOptions::new(Profile::Conversation, 8_000)
        };
        agents.of(&options).name.clone()
    }

    #[test]
    fn the_first_route_that_leads_decides() {
        let plan = Named::Param("plan".into());
        let agents = agents(vec![
            route(
                None,
                &[(Named::Called, "+1"), (plan.clone(), "gold")],
                "sales",
            ),
            route(Some("phone"), &[(Named::Called, "+1")], "billing"),
            route(Some("wyoming"), &[], "desk"),
        ]);
        let came = |transport: &str| {
            SessionValues::default().with(Named::Transport, transport, Origin::Verified)
        };
        let called = |transport| came(transport).with(Named::Called, "+1", Origin::Signalled);
        let gold = |values: SessionValues| values.with(plan.clone(), "gold", Origin::Signalled);
        assert_eq!(reached(&agents, called("twilio")), "billing");
        assert_eq!(reached(&agents, gold(called("twilio"))), "sales");
        assert_eq!(reached(&agents, called("realtime")), DEFAULT_AGENT);
        assert_eq!(reached(&agents, came("twilio")), DEFAULT_AGENT);
        assert_eq!(reached(&agents, came("wyoming")), "desk");
        assert_eq!(reached(&agents, SessionValues::default()), DEFAULT_AGENT);
    }

    #[test]
    fn what_is_only_claimed_leads_nowhere_unless_the_route_takes_it() {
        let mut called = route(None, &[(Named::Called, "+1")], "billing");
        let claimed = SessionValues::default().with(Named::Called, "+1", Origin::Claimed);
        assert_eq!(
            reached(&agents(vec![called.clone()]), claimed.clone()),
            DEFAULT_AGENT
        );
        called.trust = Origin::Claimed;
        assert_eq!(reached(&agents(vec![called]), claimed), "billing");
    }

    #[test]
    fn who_was_chosen_needs_no_route() {
        let agents = agents(vec![route(None, &[], "desk")]);
        let mut options = SessionOptions::new(Profile::Conversation, 8_000);
        options.agent = Some("sales".into());
        assert_eq!(agents.of(&options).name, "sales");
        options.agent = Some("gone".into());
        assert_eq!(agents.of(&options).name, "desk");
    }
}
