//! Commits: the calls that the model has asked for in full, and what comes of them.

use super::ids::CallId;
use super::response::{Response, Words};
use super::{Conversation, Event};
use crate::tools::ToolError;
use serde_json::{Map, Value, json};

/// A committed call.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) call: CallId,
    /// What the history is going to hold, once it is there.
    pub(super) result: Option<Value>,
}

impl Conversation {
    /// The model asked for a tool and the call is complete: this, and nothing before it, makes it
    /// count.
    pub(super) fn commit(&mut self, name: &str, arguments: Result<Map<String, Value>, String>) {
        let call = CallId(self.ids.next());
        let now = self.now;
        let most = self.policy.tool_steps;
        let Some(response) = &mut self.response else {
            return;
        };
        if response.steps >= most {
            response.overstepped = true;
            return;
        }
        response.latency.commit.get_or_insert(now);
        let arguments = match arguments {
            Ok(arguments) => arguments,
            Err(reason) => {
                let item = self.item_id();
                self.history.add_call(item, call, name, Map::new());
                let error = format!("the call could not be read: {reason}");
                return self.wait_for(call, Some(json!({ "error": error })));
            }
        };
        if self.is_clients(name) {
            return self.hand_to_client(call, name, arguments);
        }
        match self.declaration(name) {
            Some(tool) if tool.ends_call => self.end_call(call, name, arguments),
            Some(tool) if self.needs_confirmation(call, &tool, &arguments) => {}
            _ => self.run_call(call, name, arguments),
        }
    }

    fn hand_to_client(&mut self, call: CallId, name: &str, arguments: Map<String, Value>) {
        if let Some(response) = &mut self.response {
            response.client_called = true;
        }
        self.tell_call(call, name, arguments, true);
    }

    /// Runs a committed call, or takes over the run that was predicted.
    pub(super) fn run_call(&mut self, call: CallId, name: &str, arguments: Map<String, Value>) {
        let track = self.response.as_ref().and_then(|r| r.track.as_ref());
        let Some(track) = track.map(|track| track.id) else {
            return;
        };
        self.tell_call(call, name, arguments.clone(), false);
        self.wait_for(call, None);
        self.commit_run(track, call, name, arguments.clone());
        self.fill_silent_call(call, name, &arguments);
    }

    /// The call joins the history, and the client hears of it.
    fn tell_call(
        &mut self,
        call: CallId,
        name: &str,
        arguments: Map<String, Value>,
        by_client: bool,
    ) {
        let item = self.item_id();
        self.history.add_call(item, call, name, arguments.clone());
        if !by_client {
            self.running.insert(call, item);
        }
        self.notify(Event::ToolCalled {
            item,
            call,
            name: name.to_owned(),
            arguments,
            by_client,
        });
    }

    pub(super) fn wait_for(&mut self, call: CallId, result: Option<Value>) {
        if let Some(response) = &mut self.response {
            response.waiting.push(Waiting { call, result });
        }
    }

    /// The agent ends the conversation: not now, but when its goodbye has been heard.
    fn end_call(&mut self, call: CallId, name: &str, arguments: Map<String, Value>) {
        self.tell_call(call, name, arguments, false);
        let Some(response) = &mut self.response else {
            return;
        };
        if response.ends_with.is_some() {
            let already = json!({ "status": "the conversation ends already" });
            return self.on_call_finished(call, Ok(already));
        }
        response.ends_with = Some(call);
        if !response.said {
            let goodbye = self.policy.phrases.goodbye.clone();
            self.speak(&goodbye, Words::Answer);
        }
    }

    /// What a call that was to end the conversation came to.
    pub(super) fn close_ending_call(&mut self, response: &mut Response, result: Value) -> bool {
        let Some(call) = response.ends_with.take() else {
            return false;
        };
        self.on_call_finished(call, Ok(result));
        true
    }

    /// A committed call has its result. It joins the history even if the user has gone on.
    pub(super) fn on_call_finished(&mut self, call: CallId, result: Result<Value, ToolError>) {
        let Some(item) = self.running.remove(&call) else {
            return;
        };
        let output = match &result {
            Ok(output) => output.clone(),
            Err(error) => json!({ "error": error.to_string() }),
        };
        self.notify(Event::ToolFinished { item, call, result });
        let now = self.now;
        let waited = self.response.as_mut().and_then(|response| {
            let waiting = response.waiting.iter_mut().find(|w| w.call == call)?;
            Some((waiting, &mut response.latency))
        });
        match waited {
            Some((waiting, latency)) => {
                waiting.result = Some(output);
                latency.tool_result = Some(now);
            }
            None => self.add_result(call, output),
        }
    }

    fn add_result(&mut self, call: CallId, output: Value) {
        let item = self.item_id();
        self.history.add_result(item, call, output);
    }

    /// Results join the history in the order of their calls, whenever they came: speculation must
    /// not show in what the model reads.
    pub(super) fn add_results(&mut self, waiting: Vec<Waiting>) {
        for Waiting { call, result } in waiting {
            if let Some(output) = result {
                self.add_result(call, output);
            }
        }
    }

    /// The model has said all it can without the results, and they are all there.
    pub(super) fn take_results(&mut self) {
        let Some(response) = &mut self.response else {
            return;
        };
        let open = response.waiting.iter().any(|w| w.result.is_none());
        if open || response.waiting.is_empty() || response.generation().is_some() {
            return;
        }
        response.owes_answer = !response.failed;
        let waiting = std::mem::take(&mut response.waiting);
        self.add_results(waiting);
    }
}
