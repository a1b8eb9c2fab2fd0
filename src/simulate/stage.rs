//! The agent's tools on a stage: the same declarations, with the replies of a scenario. What changes something never
//! runs, and what reads runs only where the scenario says so.

use super::CONVERSATION;
use super::scenario::{Reply, Scenario};
use super::wanted::fits;
use crate::tools::{
    Audience, CallContext, Declaration, Fixed, Named, OncePer, Registry, RegistryError, Tool,
    ToolError,
};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The error of a call for which the scenario has no reply.
pub(super) const NO_REPLY: &str = "the scenario has no reply for this call";

/// The replies of all running conversations.
#[derive(Debug, Default)]
pub struct Stage(Mutex<HashMap<String, Arc<Props>>>);

/// The replies of one conversation, and the tools that really run in it.
#[derive(Debug)]
pub(super) struct Props {
    replies: Vec<Reply>,
    real: BTreeSet<String>,
}

impl Props {
    pub(super) fn of(scenario: &Scenario) -> Self {
        Self {
            replies: scenario.replies.clone(),
            real: scenario.real.clone(),
        }
    }

    fn reply(&self, tool: &str, arguments: &Map<String, Value>) -> Option<&Reply> {
        let mut replies = self.replies.iter().filter(|reply| reply.tool == tool);
        replies.find(|reply| fits(&reply.when, arguments))
    }
}

/// A conversation's replies, until it is dropped.
pub(super) struct OnStage {
    stage: Arc<Stage>,
    id: String,
}

impl Drop for OnStage {
    fn drop(&mut self) {
        self.stage.running().remove(&self.id);
    }
}

impl Stage {
    /// These tools, with the replies of whichever scenario a session plays. A session of no scenario has none.
    ///
    /// # Errors
    /// [`RegistryError`] if a tool cannot be registered.
    pub fn set(self: &Arc<Self>, tools: &Registry) -> Result<Registry, RegistryError> {
        tools.mapped(|tool| {
            let stage = self.clone();
            Arc::new(StandIn { tool, stage })
        })
    }

    pub(super) fn enter(self: &Arc<Self>, id: &str, props: Props) -> OnStage {
        self.running().insert(id.to_owned(), Arc::new(props));
        OnStage {
            stage: self.clone(),
            id: id.to_owned(),
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Props>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn props(&self, context: &CallContext) -> Option<Arc<Props>> {
        let name = Named::Param(CONVERSATION.into());
        let (id, _) = context.session.values().get(&name)?;
        self.running().get(id).cloned()
    }
}

/// Stands in for a tool.
struct StandIn {
    tool: Arc<dyn Tool>,
    stage: Arc<Stage>,
}

impl Tool for StandIn {
    fn declaration(&self) -> &Declaration {
        self.tool.declaration()
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        context: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let declaration = self.tool.declaration();
        let name = &declaration.spec.name;
        let props = self.stage.props(context);
        let reply = props
            .as_ref()
            .and_then(|props| props.reply(name, &arguments).cloned());
        let is_real = props.is_some_and(|props| props.real.contains(name));
        match reply {
            Some(reply) => Box::pin(async move {
                if reply.after_ms > 0 {
                    tokio::time::sleep(Duration::from_millis(reply.after_ms)).await;
                }
                reply.result.map_err(ToolError::Failed)
            }),
            None if is_real && !declaration.effect.changes() => self.tool.call(arguments, context),
            None => Box::pin(std::future::ready(Err(ToolError::Failed(NO_REPLY.into())))),
        }
    }

    fn audience(&self) -> Audience {
        self.tool.audience()
    }

    fn fixed(&self) -> Option<&Fixed> {
        self.tool.fixed()
    }

    fn once_per(&self) -> Option<&OncePer> {
        self.tool.once_per()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{
        Effect, Origin, SessionTools, SessionValues, SystemClock, ToolSpec, builtin,
    };
    use jiff::tz::TimeZone;
    use serde_json::json;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Counting(Declaration, Arc<AtomicUsize>);

    impl Tool for Counting {
        fn declaration(&self) -> &Declaration {
            &self.0
        }

        fn call(
            &self,
            _: Map<String, Value>,
            _: &CallContext,
        ) -> BoxFuture<'static, Result<Value, ToolError>> {
            self.1.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(json!("real")) })
        }
    }

    fn context(id: &str) -> CallContext {
        let name = Named::Param(CONVERSATION.into());
        let values = SessionValues::default().with(name, id, Origin::Verified);
        let session = SessionTools::of_call(TimeZone::UTC, Arc::new(SystemClock), None, values);
        CallContext::new(session, "key")
    }

    #[tokio::test]
    async fn replies_are_given_and_only_named_reads_run() {
        let ran = Arc::new(AtomicUsize::new(0));
        let mut real = Registry::new();
        for (name, effect) in [("look", Effect::Read), ("book", Effect::Keyed)] {
            let spec = ToolSpec {
                examples: Vec::new(),
                name: name.into(),
                description: String::new(),
                parameters: json!({"type": "object", "properties": {"day": {"type": "string"}}}),
            };
            let declaration = Declaration::new(spec, effect, Duration::from_secs(60));
            real.register(Arc::new(Counting(declaration, ran.clone())))
                .unwrap();
        }
        builtin::register(&mut real).unwrap();
        let stage = Arc::new(Stage::default());
        let tools = stage.set(&real).unwrap();
        assert_eq!(tools.specs(), real.specs());
        let text = "[[turn]]\nsay = \"a\"\n\
                    [tools]\nreal = [\"look\", \"book\"]\n\
                    [[reply]]\ntool = \"book\"\nwhen = { day = \"Friday\" }\nresult = { number = 17 }\n\
                    [[reply]]\ntool = \"book\"\nwhen = { day = \"Sunday\" }\nerror = \"We are closed.\"\n";
        let scenario = Scenario::parse(Path::new("a.toml"), text).unwrap();
        let on_stage = stage.enter("1", Props::of(&scenario));
        let call = async |id: &str, tool: &str, day: &str| {
            let arguments = Map::from_iter([("day".to_owned(), json!(day))]);
            tools.call(tool, arguments, &context(id)).await
        };
        let none = Err(ToolError::Failed(NO_REPLY.into()));
        assert_eq!(call("1", "book", "friday").await, Ok(json!({"number": 17})));
        let closed = ToolError::Failed("We are closed.".into());
        assert_eq!(call("1", "book", "Sunday").await, Err(closed));
        assert_eq!(
            call("1", "book", "Monday").await,
            none,
            "named, but it changes something"
        );
        assert_eq!(call("2", "look", "Friday").await, none, "of no scenario");
        assert_eq!(ran.load(Ordering::Relaxed), 0);
        assert_eq!(call("1", "look", "Friday").await, Ok(json!("real")));
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        drop(on_stage);
        assert_eq!(call("1", "look", "Friday").await, none);
    }
}
