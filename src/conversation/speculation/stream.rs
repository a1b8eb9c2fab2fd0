//! The open call in the model's stream. Its tool starts as soon as the arguments can be complete, before the call
//! is: at the name, if none is required; later, if no further argument can follow or their list is closed.

use super::gate::{self, Odds};
use super::ledger::Run;
use super::open_call::OpenCall;
use super::record::Discard;
use super::{Speculation, TrackId};
use crate::conversation::client_settings::ClientTools;
use crate::conversation::common::Common;
use crate::conversation::ids::RunId;
use crate::prediction::{Prediction, Source};
use crate::tools::{Declaration, Eligibility, ToolSpec, canonical};
use serde_json::{Map, Value};

/// The confidence of a call that lacks only its end, and of the tool of one that has begun.
const STREAMED: f32 = 0.95;

/// The confidence of a call without arguments whose tool has optional ones. They may still come, so a tool with a
/// higher `min_confidence` waits for the end of the list.
const AT_THE_NAME: f32 = 0.6;

/// How likely a call is meant to have exactly these arguments; `None` if others must follow, or may before the list
/// is closed.
fn confidence(tool: &ToolSpec, arguments: &Map<String, Value>, whole: bool) -> Option<f32> {
    let is_given = |name: &str| arguments.contains_key(name);
    if !tool.required().all(is_given) {
        None
    } else if whole || tool.properties().all(|(name, _)| is_given(name)) {
        Some(STREAMED)
    } else {
        arguments.is_empty().then_some(AT_THE_NAME)
    }
}

impl Speculation {
    /// Handles the beginning of a call: its tool is now almost certain, and the predicted arguments are as likely as
    /// before.
    pub(in crate::conversation) fn on_tool_opened(
        &mut self,
        common: &mut Common,
        clients: ClientTools,
        track: TrackId,
        name: &str,
    ) {
        let Some(of) = self.track(track) else {
            return;
        };
        // A held-back answer that is taken over opens its call a second time.
        let again = of.open.take().filter(|open| open.tool == name);
        of.open = Some(OpenCall {
            tool: name.to_owned(),
            run: again.and_then(|open| open.run),
            read: (Map::new(), false),
        });
        if let Some(candidate) = of.candidates.get(name) {
            let Prediction {
                arguments,
                confidence: call,
                ..
            } = candidate.call.clone();
            let tool = call.max(STREAMED);
            self.follow_stream(common, clients, track, arguments, Odds { tool, call });
        } else if let Some(tool) = clients.declared(&common.policy, name)
            && gate::eligibility(tool, &common.policy.speculation) > Eligibility::Forbid
        {
            self.warm_up(common, name);
        }
    }

    /// Handles the finished arguments of the open call; `whole` if there are no others.
    pub(in crate::conversation) fn on_arguments_read(
        &mut self,
        common: &mut Common,
        clients: ClientTools,
        track: TrackId,
        arguments: Map<String, Value>,
        whole: bool,
    ) {
        let Some(of) = self.track(track) else {
            return;
        };
        let Some(open) = &mut of.open else {
            return;
        };
        open.read = (arguments.clone(), whole);
        let name = open.tool.clone();
        let at_the_name = arguments.is_empty() && !whole;
        let is_predicted = of.candidates.contains_key(&name);
        self.discard_other(common, track);
        let tool = clients.declared(&common.policy, &name);
        let policy = &common.policy.speculation;
        let tool = tool.filter(|tool| gate::eligibility(tool, policy) == Eligibility::Full);
        let Some(tool) = tool else {
            return;
        };
        let Some(confidence) = confidence(&tool.spec, &arguments, whole) else {
            return;
        };
        // At the name, the words say more about the arguments than the stream does.
        if at_the_name && is_predicted {
            return;
        }
        match self.started(track, tool, &arguments) {
            Some(run) => self.ledger.confirm(run, confidence),
            None => self.follow_stream(common, clients, track, arguments, Odds::of(confidence)),
        }
    }

    /// Handles the end of the open call. If its arguments could not be read, it is likely to be repeated, so its run
    /// goes on.
    pub(in crate::conversation) fn on_tool_closed(
        &mut self,
        common: &mut Common,
        track: TrackId,
        arguments: Option<&Map<String, Value>>,
    ) {
        if let Some(open) = self.track(track).and_then(|track| track.open.as_mut())
            && let Some(arguments) = arguments
        {
            open.read = (arguments.clone(), true);
            self.discard_other(common, track);
        }
        if let Some(track) = self.track(track) {
            track.open = None;
        }
    }

    /// The generation that may have begun a call is over: the next one may begin another.
    pub(in crate::conversation) fn forget_open_call(&mut self) {
        let tracks = [Some(&mut self.listening), self.answering.as_mut()];
        for track in tracks.into_iter().flatten() {
            track.open = None;
        }
    }

    /// Handles a complete call in a held-back answer. It is a prediction until the answer is used.
    pub(in crate::conversation) fn on_held_call(
        &mut self,
        common: &mut Common,
        clients: ClientTools,
        tool: &str,
        arguments: Map<String, Value>,
    ) {
        let (track, asked) = (self.listening.id, self.listening.last_words());
        self.on_tool_closed(common, track, Some(&arguments));
        let prediction = Prediction {
            tool: tool.to_owned(),
            arguments,
            confidence: STREAMED,
            source: Source::Stream,
            open: Vec::new(),
        };
        let odds = Odds::of(STREAMED);
        self.follow(common, clients, (track, asked), prediction, odds);
    }

    /// Whether the open call of its track turns out to be another than that of `run`.
    pub(super) fn is_refuted(&self, run: &Run, tool: &Declaration) -> bool {
        let tracks = [Some(&self.listening), self.answering.as_ref()];
        let of = tracks.into_iter().flatten().find(|of| of.id == run.track);
        let open = of.and_then(|of| of.open.as_ref());
        open.is_some_and(|open| open.differs_from((&run.tool, &run.key), tool))
    }

    fn follow_stream(
        &mut self,
        common: &mut Common,
        clients: ClientTools,
        track: TrackId,
        arguments: Map<String, Value>,
        odds: Odds,
    ) {
        let Some(of) = self.track(track) else {
            return;
        };
        let (Some(open), asked) = (&of.open, of.last_words()) else {
            return;
        };
        let prediction = Prediction {
            tool: open.tool.clone(),
            arguments,
            confidence: odds.call,
            source: Source::Stream,
            open: Vec::new(),
        };
        let run = self.follow(common, clients, (track, asked), prediction, odds);
        if let Some(open) = self.track(track).and_then(|track| track.open.as_mut()) {
            open.run = run.or(open.run);
        }
    }

    /// The run of exactly these arguments, if the open call has started it.
    fn started(
        &mut self,
        track: TrackId,
        tool: &Declaration,
        arguments: &Map<String, Value>,
    ) -> Option<RunId> {
        let open = self.track(track).and_then(|track| track.open.as_ref());
        let run = open.and_then(|open| open.run)?;
        let run = self.ledger.get(run)?;
        (run.key == canonical(tool, arguments)).then_some(run.id)
    }

    /// Discards the run that the open call has started, if the call turns out to be another.
    fn discard_other(&mut self, common: &mut Common, track: TrackId) {
        let open = self.track(track).and_then(|track| track.open.as_ref());
        let run = open.and_then(|open| open.run);
        let Some(run) = run.and_then(|run| self.ledger.get(run)) else {
            return;
        };
        let (id, tool) = (run.id, run.declaration.as_ref());
        if tool.is_some_and(|tool| self.is_refuted(run, tool)) {
            self.discard(common, id, Discard::Superseded);
        }
    }
}
