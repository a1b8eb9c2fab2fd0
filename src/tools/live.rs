//! The tools of a running server, which may change.

use super::Registry;
use std::any::Any;
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::watch;

/// The tools of a running server. Clones are the same.
///
/// Sessions that open begin with [`LiveTools::now`]. An open one is offered a change as soon as
/// nothing of it is in flight: no answer, no running call, no question for a yes. Until then its
/// calls run as they were offered, but a tool whose name is gone is not called any more.
#[derive(Debug, Clone)]
pub struct LiveTools(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    tools: watch::Sender<Arc<Registry>>,
    /// Dropped with the last clone: the work that changes the tools.
    work: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// The tools of a running server for work that changes them. It does not keep them alive.
#[derive(Debug, Clone)]
pub(crate) struct WeakTools(Weak<Shared>);

impl WeakTools {
    /// The tools, unless they were dropped.
    pub(crate) fn upgrade(&self) -> Option<LiveTools> {
        self.0.upgrade().map(LiveTools)
    }
}

impl LiveTools {
    /// The tools as they are now.
    pub fn now(&self) -> Arc<Registry> {
        self.0.tools.borrow().clone()
    }

    /// A weak reference, for the work that changes the tools.
    pub(crate) fn downgrade(&self) -> WeakTools {
        WeakTools(Arc::downgrade(&self.0))
    }

    /// Drops `work` with the last clone. Only the first is kept.
    pub(crate) fn keep(&self, work: impl Any + Send + Sync) {
        drop(self.0.work.set(Box::new(work)));
    }

    /// Changes the tools: all that `change` does at once, or nothing if it fails.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn change<T, E>(&self, change: impl FnOnce(&mut Registry) -> Result<T, E>) -> Result<T, E> {
        let mut next = None;
        self.0.tools.send_if_modified(|tools| {
            let mut registry = Registry::clone(tools);
            let changed = change(&mut registry);
            let is_ok = changed.is_ok();
            next = Some(changed);
            if is_ok {
                *tools = Arc::new(registry);
            }
            is_ok
        });
        next.expect("the closure has run")
    }

    /// The work that is kept, if it is of this type.
    pub(crate) fn kept<T: Any>(&self) -> Option<&T> {
        self.0.work.get()?.downcast_ref()
    }

    /// Tells of every change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<Registry>> {
        self.0.tools.subscribe()
    }
}

impl From<Registry> for LiveTools {
    fn from(registry: Registry) -> Self {
        Self(Arc::new(Shared {
            tools: watch::Sender::new(Arc::new(registry)),
            work: OnceLock::new(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{RegistryError, builtin};

    #[test]
    fn a_change_that_fails_changes_nothing() {
        let mut registry = Registry::new();
        builtin::register(&mut registry).unwrap();
        let tools = LiveTools::from(registry);
        let (before, mut changes) = (tools.now(), tools.changes());
        let twice = tools.change(|registry| {
            assert!(registry.remove("get_time"));
            builtin::register(registry)
        });
        assert!(matches!(twice, Err(RegistryError::Duplicate(_))));
        assert!(Arc::ptr_eq(&before, &tools.now()));
        assert!(!changes.has_changed().unwrap());
        let gone = tools.change(|registry| Ok::<_, RegistryError>(registry.remove("get_time")));
        assert!(gone.unwrap() && changes.has_changed().unwrap());
        let now = changes.borrow_and_update();
        assert!(now.declaration("get_time").is_none());
        assert_eq!(now.specs().len() + 1, before.specs().len());
        assert!(before.declaration("get_time").is_some());
    }
}
