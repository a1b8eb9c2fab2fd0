//! The agents that a client may choose.

use crate::transport::realtime::Fault;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The agents that clients may choose, and whether anybody may by name alone; empty if there are no several.
///
/// A client that shows the server's token may choose any, and a client secret may carry any: whoever issued it
/// has shown the token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choosable(Arc<BTreeMap<String, bool>>);

impl FromIterator<(String, bool)> for Choosable {
    fn from_iter<I: IntoIterator<Item = (String, bool)>>(agents: I) -> Self {
        Self(Arc::new(agents.into_iter().collect()))
    }
}

impl Choosable {
    fn may(&self, name: &str, is_trusted: bool) -> Option<bool> {
        self.0.get(name).map(|by_name| *by_name || is_trusted)
    }

    /// Those that this client may choose.
    pub(super) fn names(&self, is_trusted: bool) -> impl Iterator<Item = &str> {
        let may = move |(_, by_name): &(&String, &bool)| **by_name || is_trusted;
        self.0.iter().filter(may).map(|(name, _)| name.as_str())
    }

    /// The agent that a client chooses, if it names one. A `model` that names no agent, or one that the client
    /// may not choose, is ignored, because clients send models of all kinds.
    ///
    /// # Errors
    /// There is no such `agent`, or the client may not choose it.
    pub(super) fn choice(
        &self,
        is_trusted: bool,
        agent: Option<&str>,
        model: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        let wrong = |code, message| Err(Fault::new(code, "agent", message));
        match (agent, model) {
            (Some(name), _) => match self.may(name, is_trusted) {
                Some(true) => Ok(Some(name.to_owned())),
                Some(false) => wrong(
                    "agent_not_allowed",
                    format!(
                        "The agent '{name}' may not be chosen by name: use a client secret that was \
                         issued for it, show the server's token, or set by_name = true in its file."
                    ),
                ),
                None => wrong("agent_not_found", format!("There is no agent '{name}'.")),
            },
            (None, Some(name)) => match self.may(name, is_trusted) {
                Some(true) => Ok(Some(name.to_owned())),
                Some(false) => {
                    let agent = name;
                    tracing::info!(
                        agent,
                        "a client named an agent as its model that may not be chosen by name; \
                         by_name = true in the agent's file allows it"
                    );
                    Ok(None)
                }
                None => Ok(None),
            },
            (None, None) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_chosen_by_those_who_may() {
        let agents = [("desk", true), ("billing", false)];
        let agents = agents.map(|(name, by_name)| (name.to_owned(), by_name));
        let agents = Choosable::from_iter(agents);
        let choice = |trusted, agent, model| {
            let choice = agents.choice(trusted, agent, model);
            choice.map_err(|fault| fault.code)
        };
        let chosen = |name: &str| Ok(Some(name.to_owned()));
        assert_eq!(choice(false, Some("desk"), None), chosen("desk"));
        assert_eq!(choice(false, None, Some("desk")), chosen("desk"));
        assert_eq!(
            choice(false, Some("billing"), None),
            Err("agent_not_allowed")
        );
        assert_eq!(choice(false, None, Some("billing")), Ok(None));
        assert_eq!(choice(true, Some("billing"), None), chosen("billing"));
        assert_eq!(choice(true, None, Some("billing")), chosen("billing"));
        assert_eq!(choice(true, Some("nobody"), None), Err("agent_not_found"));
        assert_eq!(choice(true, None, Some("gpt-realtime")), Ok(None));
        assert_eq!(choice(true, None, None), Ok(None));
        assert_eq!(agents.names(false).collect::<Vec<_>>(), ["desk"]);
        assert_eq!(agents.names(true).count(), 2);
    }
}
