//! Audio on a track beside the events, as over WebRTC: events report what is played, and the server truncates
//! the rest.

use super::{Asked, Realtime};
use crate::audio::{Resampler, to_f32, to_i16};
use crate::conversation::{ClauseId, Input, ItemId, Micros};
use crate::transport::Action;
use crate::transport::realtime::codec::RATE;
use crate::transport::realtime::fault::Fault;
use serde_json::json;

/// The rate of the user's audio on a track, Hz: that of the session's models.
const INPUT_RATE: u32 = 16_000;

/// The beginning or the end of a piece: a clause, or the part of one until its audio ran dry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// Whether it begins or ends.
    pub kind: EdgeKind,
    /// The clause.
    pub clause: ClauseId,
    /// The part of the clause before it.
    pub at: Micros,
    /// The RTP time of the first sample after that, in ticks of 48 kHz.
    pub time: u64,
}

/// The kind of an [`Edge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeKind {
    /// It begins.
    Started,
    /// It ends, or its audio has run dry.
    Ended,
    /// The rest of the clause was dropped.
    Cleared,
}

impl EdgeKind {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Ended => "ended",
            Self::Cleared => "cleared",
        }
    }
}

/// The state of the client's track.
#[derive(Debug, Default)]
pub(super) struct Track {
    /// The response whose audio is played.
    playing: Option<String>,
    /// The response whose audio was played last.
    last: Option<String>,
    /// The session's item that was played last.
    item: Option<ItemId>,
    /// Audio that waits to be sent.
    waiting: Micros,
    /// Audio of the active response that was dropped before it was sent.
    unsent: Micros,
}

impl Track {
    /// Notes that queued audio is dropped. Returns the response that was playing.
    fn drop_waiting(&mut self) -> Option<String> {
        self.unsent = self.unsent + std::mem::take(&mut self.waiting);
        self.playing.take()
    }
}

impl Realtime {
    /// Moves the audio of both directions from the events to a track: 16 kHz from the user, 24 kHz to it.
    #[must_use]
    pub fn on_track(mut self) -> Self {
        self.options.input_rate = INPUT_RATE;
        self.track = Some(Track::default());
        self
    }

    /// Moves the audio of both directions back into events. The session goes on with the rate of the track.
    #[must_use]
    pub fn off_track(mut self) -> Self {
        if self.track.take().is_some() {
            self.to_track_rate = Some(Resampler::new(RATE, INPUT_RATE));
        }
        self
    }

    /// The user's audio in events, as the session takes it.
    pub(super) fn at_session_rate(&mut self, samples: Vec<i16>) -> Vec<i16> {
        match &mut self.to_track_rate {
            Some(resampler) => to_i16(&resampler.push(&to_f32(&samples))),
            None => samples,
        }
    }

    /// The event with which a second client of the session begins.
    pub fn welcome(&mut self) -> String {
        let session = self.shown();
        let event = self
            .writer
            .event("session.created", json!({ "session": session }));
        event.unwrap_or_default()
    }

    /// Takes in audio of the user's track.
    pub fn heard(&mut self, samples: Vec<i16>) -> Vec<Action> {
        let length = Micros::of_samples(samples.len() as u64, INPUT_RATE);
        self.uncommitted = self.uncommitted + length;
        vec![Action::Audio(samples)]
    }

    /// Sets how much of the agent's audio waits to be sent. Must be called before anything that may drop it.
    pub fn waits(&mut self, waiting: Micros) {
        if let Some(track) = &mut self.track {
            track.waiting = waiting;
        }
    }

    /// All of the agent's audio so far has been sent.
    pub fn played_out(&mut self) -> Vec<Action> {
        let active = self.response.as_ref().map(|response| &response.id);
        if let Some(track) = &mut self.track
            && track.playing.as_ref() != active
            && let Some(id) = track.playing.take()
        {
            self.tell("output_audio_buffer.stopped", json!({ "response_id": id }));
        }
        std::mem::take(&mut self.actions)
    }

    /// A clause begins or ends on the track.
    pub fn plays(&mut self, edge: Edge) -> Vec<Action> {
        // RTP's clock wraps around on the wire, too.
        let time = edge.time as u32;
        let fields = json!({
            "kind": edge.kind.name(), "clause": edge.clause, "audio_ms": edge.at.as_ms(), "rtp_timestamp": time,
        });
        self.tell_vendor("undertone.playout", fields);
        std::mem::take(&mut self.actions)
    }

    /// Refuses audio in events if it belongs on the track.
    pub(super) fn check_audio_in_events(&self) -> Result<(), Fault> {
        if self.track.is_none() {
            return Ok(());
        }
        let message = "Over WebRTC the user's audio is on the audio track: input_audio_buffer.append is not \
                       accepted.";
        Err(Fault::new("invalid_event_for_transport", "type", message))
    }

    /// Plays audio of the active response.
    pub(super) fn play(&mut self, item: ItemId, id: String, samples: &[i16]) {
        let Some(track) = &mut self.track else {
            return;
        };
        track.item = Some(item);
        let before = track.playing.replace(id.clone());
        track.last = Some(id.clone());
        if before.as_ref() != Some(&id) {
            if let Some(before) = before {
                let fields = json!({ "response_id": before });
                self.tell("output_audio_buffer.stopped", fields);
            }
            self.tell("output_audio_buffer.started", json!({ "response_id": id }));
        }
        self.actions.push(Action::Play(samples.to_vec()));
    }

    /// Begins another response.
    pub(super) fn next_on_track(&mut self) {
        if let Some(track) = &mut self.track {
            track.unsent = Micros(0);
        }
    }

    /// Handles that the session has dropped the audio that was not played yet.
    pub(super) fn track_cleared(&mut self) {
        let playing = self.track.as_mut().and_then(Track::drop_waiting);
        if let Some(id) = playing {
            self.tell("output_audio_buffer.cleared", json!({ "response_id": id }));
        }
    }

    /// The client drops the audio that was not played yet. Without an active response the session does not
    /// know of it, so the last item is truncated.
    pub(super) fn clear_track(&mut self) {
        let active = self.response.as_ref().map(|response| response.id.clone());
        let is_answering = self.is_answering();
        let Some(track) = &mut self.track else {
            return;
        };
        let waiting = track.waiting;
        let item = track.item.filter(|_| !is_answering && waiting > Micros(0));
        let id = track.drop_waiting().or(active).or(track.last.clone());
        if let Some(id) = id {
            self.tell("output_audio_buffer.cleared", json!({ "response_id": id }));
        }
        if let Some(item) = item {
            self.truncate_unsent(item, waiting);
        }
    }

    fn truncate_unsent(&mut self, item: ItemId, unsent: Micros) {
        let Some(name) = self.items.name(item).map(str::to_owned) else {
            return;
        };
        let Some(part) = self.items.part_mut(item) else {
            return;
        };
        let heard = Micros(part.audio.0.saturating_sub(unsent.0));
        if self
            .expect(&None, Asked::Truncate { name, more: false })
            .is_ok()
        {
            self.ask(Input::Truncate { item, heard });
        }
    }

    /// How much of the `given` audio of an interrupted item has left the server.
    pub(super) fn left(&mut self, given: Micros) -> Micros {
        let track = self.track.as_mut();
        let unsent = track.map(|track| std::mem::take(&mut track.unsent));
        Micros(given.0.saturating_sub(unsent.unwrap_or_default().0))
    }

    /// Tells a client with a track where its user interrupted an item: it does not truncate by itself.
    pub(super) fn tell_cut(&mut self, item: ItemId) {
        if self.track.is_none() {
            return;
        }
        let Some(name) = self.items.name(item).map(str::to_owned) else {
            return;
        };
        let Some(heard) = self
            .items
            .get(&name)
            .filter(|item| item.speech)
            .map(|item| item.heard().as_ms())
        else {
            return;
        };
        self.tell(
            "conversation.item.truncated",
            json!({"item_id": name, "content_index": 0, "audio_end_ms": heard}),
        );
    }
}
