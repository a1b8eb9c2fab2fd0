//! The user's side: utterances and conversation items.

use super::requests::footprint;
use super::{Asked, Committed, Pending, Realtime, Recording, Told, Utterance};
use crate::conversation::{ItemId, Micros, Samples};
use crate::transport::realtime::client_events::{ItemContent, spoken_message};
use crate::transport::realtime::items::Spot;
use crate::transport::realtime::server_events as shape;
use serde_json::{Value, json};

impl Realtime {
    pub(super) fn speech_started(&mut self, at: Samples) {
        let name = match self.utterance.take() {
            Some(utterance) => utterance.name,
            None => self.writer.id("item"),
        };
        self.tell(
            "input_audio_buffer.speech_started",
            json!({"audio_start_ms": at.as_ms(), "item_id": name}),
        );
        self.told = Told::default();
        self.next_item = None;
        self.utterance = Some(Utterance {
            name,
            from: at,
            to: None,
            failed: false,
        });
    }

    pub(super) fn speech_stopped(&mut self, at: Samples) {
        let Some(utterance) = &mut self.utterance else {
            return;
        };
        utterance.to = Some(at);
        let name = utterance.name.clone();
        self.tell(
            "input_audio_buffer.speech_stopped",
            json!({"audio_end_ms": at.as_ms(), "item_id": name}),
        );
    }

    pub(super) fn partial(&mut self, text: &str) {
        let name = match self.open_utterance() {
            Some(utterance) => utterance.name.clone(),
            None => self
                .next_item
                .get_or_insert_with(|| self.writer.id("item"))
                .clone(),
        };
        if self.session.transcribes
            && let Some(delta) = self.told.partial(text)
        {
            self.transcript_delta(&name, &delta);
        }
        self.tell_vendor(
            "undertone.transcript.partial",
            json!({"item_id": name, "text": text}),
        );
    }

    fn transcript_delta(&mut self, name: &str, delta: &str) {
        self.tell(
            "conversation.item.input_audio_transcription.delta",
            json!({"item_id": name, "content_index": 0, "delta": delta}),
        );
    }

    /// Announces that the user has been silent for too long. No item is added.
    pub(super) fn idle_timeout(&mut self, from: Samples, to: Samples) {
        let name = self.writer.id("item");
        self.tell(
            "input_audio_buffer.timeout_triggered",
            json!({
                "audio_start_ms": from.as_ms(), "audio_end_ms": to.as_ms(), "item_id": name,
            }),
        );
    }

    /// An item that the client added as audio, and may have deleted since, has its transcript.
    pub(super) fn item_transcribed(&mut self, id: ItemId, words: &str) {
        let Some((name, recording)) = self.recording_of(id) else {
            return;
        };
        let Recording { text, length } = recording;
        let words = words.strip_prefix(&text).unwrap_or(words).trim();
        self.heard = self.heard + length;
        let json = spoken_message(&name, &text, Some(words));
        let index = place_of_audio(&json);
        self.items.tell(&name, json);
        if self.session.transcripts {
            self.tell(
                "conversation.item.input_audio_transcription.completed",
                json!({
                    "item_id": name, "content_index": index, "transcript": words,
                    "usage": transcription_usage(length),
                }),
            );
        }
    }

    /// An item that the client added as audio has no words (`wordless`), or transcription failed.
    pub(super) fn item_not_transcribed(&mut self, id: ItemId, wordless: bool) {
        let Some((name, recording)) = self.recording_of(id) else {
            return;
        };
        let error = match wordless {
            true => json!({
                "type": "invalid_request_error", "code": "audio_unintelligible", "param": null,
                "message": "No words were recognised in the audio.",
            }),
            false => json!({
                "type": "server_error", "code": "asr_failed", "param": null,
                "message": "The recogniser is busy or has failed: delete the item, and add it again later.",
            }),
        };
        let index = place_of_audio(&spoken_message(&name, &recording.text, None));
        self.tell(
            "conversation.item.input_audio_transcription.failed",
            json!({"item_id": name, "content_index": index, "error": error}),
        );
    }

    /// Takes the recording of item `id`, with the item's name; `None` if it has been deleted.
    fn recording_of(&mut self, id: ItemId) -> Option<(String, Recording)> {
        let recording = self.recordings.remove(&id)?;
        Some((self.items.name(id)?.to_owned(), recording))
    }

    /// The utterance, unless the client has committed it.
    fn open_utterance(&self) -> Option<&Utterance> {
        let utterance = self.utterance.as_ref()?;
        let mut committed = self.committed.iter();
        let is_committed = committed.any(|turn| turn.name == utterance.name);
        (!is_committed).then_some(utterance)
    }

    /// Takes the committed turn that ends, unless it is the turn of an utterance that nobody has committed.
    fn next_committed(&mut self) -> Option<Committed> {
        match self.open_utterance() {
            Some(_) => None,
            None => self.committed.pop_front(),
        }
    }

    /// The session has accepted the client's commit.
    pub(super) fn audio_committed(&mut self) {
        let asked = self.answered("commitaudio").map(|pending| pending.asked);
        let (length, by_hand) = match asked {
            Some(Asked::Commit {
                length, by_hand, ..
            }) => (length, by_hand),
            _ => (Micros(0), false),
        };
        let next = self.next_item.take();
        // By hand audio behind it is committed: what the session ended itself has a turn of its own.
        let (name, failed) = match self.open_utterance().filter(|_| !by_hand) {
            Some(utterance) => (utterance.name.clone(), utterance.failed),
            None => (next.unwrap_or_else(|| self.writer.id("item")), false),
        };
        self.tell_committed(&name);
        let told = std::mem::take(&mut self.told);
        self.committed.push_back(Committed {
            name,
            length,
            told,
            failed,
        });
    }

    fn tell_committed(&mut self, name: &str) {
        // Turns that wait for their words have no items yet.
        let waiting = self.committed.back().map(|turn| turn.name.as_str());
        let previous = waiting.or(self.items.last()).map(str::to_owned);
        self.tell(
            "input_audio_buffer.committed",
            json!({"previous_item_id": previous, "item_id": name}),
        );
    }

    /// The session has discarded the audio that was not committed.
    pub(super) fn audio_cleared(&mut self) {
        self.forget_dictation();
        self.tell("input_audio_buffer.cleared", json!({}));
    }

    /// Forgets the words that the client was told of audio that it will not commit.
    pub(super) fn forget_dictation(&mut self) {
        self.next_item = None;
        if self.open_utterance().is_none() {
            self.told = Told::default();
        }
    }

    /// Marks the turn whose words are due as one whose transcription failed. Returns its name.
    pub(super) fn transcription_failed(&mut self) -> Option<String> {
        let is_open = self.open_utterance().is_some();
        let committed = self.committed.front_mut().filter(|_| !is_open);
        let (name, failed) = match (committed, &mut self.utterance) {
            (Some(turn), _) => (&turn.name, &mut turn.failed),
            (None, Some(utterance)) => (&utterance.name, &mut utterance.failed),
            (None, None) => return None,
        };
        *failed = true;
        Some(name.clone())
    }

    pub(super) fn utterance_dropped(&mut self) {
        let committed = self.next_committed();
        let utterance = self.utterance.take();
        if let Some(utterance) = utterance.as_ref().filter(|u| u.to.is_none()) {
            self.tell(
                "input_audio_buffer.speech_stopped",
                json!({"audio_end_ms": utterance.from.as_ms(), "item_id": utterance.name}),
            );
        }
        match committed {
            Some(turn) if turn.failed => {}
            Some(turn) => self.wordless_item(turn),
            None => self.told = Told::default(),
        }
        if let Some(utterance) = utterance {
            self.tell_vendor(
                "undertone.utterance_dropped",
                json!({"item_id": utterance.name}),
            );
        }
    }

    /// The turn has no words. The client waits for its item, so it gets one.
    fn wordless_item(&mut self, turn: Committed) {
        let json = shape::spoken_item(&turn.name, Some(""));
        self.add_wordless(&turn.name, json, &Spot::End);
        if self.session.transcripts {
            self.transcript(&turn.name, "", turn.length, turn.told);
        }
    }

    /// Adds an item that the session does not have.
    pub(super) fn add_wordless(&mut self, name: &str, json: Value, spot: &Spot) {
        self.items.put_wordless(name, json.clone(), spot);
        self.tell_added(name, &json);
        self.item_done(name, json);
    }

    /// Adds pictures before which no other item waits to be added.
    pub(super) fn add_pictures(&mut self) {
        let is_item =
            |one: &Pending| matches!(one.asked, Asked::Add { .. } | Asked::Pictures { .. });
        while let Some(at) = self.pending.iter().position(is_item) {
            let Asked::Pictures { name, spot } = &self.pending[at].asked else {
                return;
            };
            let (name, spot) = (name.clone(), spot.clone());
            self.pending.remove(at);
            let json = ItemContent::Pictures.to_json(&name);
            self.add_wordless(&name, json, &spot);
        }
    }

    pub(super) fn user_item(&mut self, item: ItemId, text: &str, spoken: bool) {
        self.early.turns_to_other();
        if !spoken {
            let name = self.writer.id("item");
            let json = ItemContent::User(text.to_owned()).to_json(&name);
            self.add_item(&name, item, json.clone());
            self.item_done(&name, json);
            return;
        }
        let committed = self.next_committed();
        let utterance = self.utterance.take();
        let whole = match &committed {
            Some(turn) => turn.length,
            None if self.session.by_hand => Micros(0),
            None => std::mem::take(&mut self.uncommitted),
        };
        // Without turn detection there are no speech boundaries: the whole commit is the turn.
        let length = utterance.as_ref().map_or(whole, Utterance::length);
        self.heard = self.heard + length;
        let (name, told) = match committed {
            Some(turn) => (turn.name, turn.told),
            None => {
                let name = match utterance {
                    Some(utterance) => utterance.name,
                    None => self.writer.id("item"),
                };
                self.tell_committed(&name);
                (name, std::mem::take(&mut self.told))
            }
        };
        let json = shape::spoken_item(&name, None);
        self.add_item(&name, item, json.clone());
        self.item_done(&name, json);
        self.items
            .put(&name, item, shape::spoken_item(&name, Some(text)));
        if self.session.transcripts {
            self.transcript(&name, text, length, told);
        }
    }

    fn transcript(&mut self, name: &str, text: &str, length: Micros, told: Told) {
        let delta = told.rest(text);
        if !delta.is_empty() {
            self.transcript_delta(name, &delta);
        }
        self.tell(
            "conversation.item.input_audio_transcription.completed",
            json!({
                "item_id": name, "content_index": 0, "transcript": text,
                "usage": transcription_usage(length),
            }),
        );
    }

    /// Adds an item at the end and announces it.
    pub(super) fn add_item(&mut self, name: &str, id: ItemId, json: Value) {
        self.insert_item(name, id, json, &Spot::End);
    }

    fn insert_item(&mut self, name: &str, id: ItemId, json: Value, spot: &Spot) {
        self.items.insert(name, id, json.clone(), spot);
        self.tell_added(name, &json);
    }

    fn tell_added(&mut self, name: &str, json: &Value) {
        let previous = self.items.before(name).map(str::to_owned);
        self.tell(
            "conversation.item.added",
            json!({"previous_item_id": previous, "item": json}),
        );
    }

    pub(super) fn item_done(&mut self, name: &str, json: Value) {
        let previous = self.items.before(name).map(str::to_owned);
        self.items.tell(name, json.clone());
        self.tell(
            "conversation.item.done",
            json!({"previous_item_id": previous, "item": json}),
        );
    }

    pub(super) fn item_added(&mut self, id: ItemId) {
        let Some(Pending {
            asked:
                Asked::Add {
                    name,
                    content,
                    spot,
                    ..
                },
            ..
        }) = self.answered("additem")
        else {
            return;
        };
        let call = match &content {
            ItemContent::ToolCall { call: Some(id), .. } => self.calls.get(id).copied(),
            ItemContent::ToolOutput { call, .. } => {
                self.calls.remove(call);
                None
            }
            _ => None,
        };
        let json = content.to_json(&name);
        self.insert_item(&name, id, json.clone(), &spot);
        if let Some(item) = self.items.get_mut(&name) {
            item.created_text = footprint(&name, &content);
            item.call = call;
        }
        self.item_done(&name, json);
        self.add_pictures();
    }

    pub(super) fn item_deleted(&mut self, id: ItemId) {
        self.answered("deleteitem");
        let Some((name, item)) = self.items.remove_part(id) else {
            return;
        };
        self.created_text = self.created_text.saturating_sub(item.created_text);
        if item.json["type"] == "function_call"
            && let Some(call) = item.json["call_id"].as_str()
        {
            self.calls.remove(call);
        }
        self.tell("conversation.item.deleted", json!({"item_id": name}));
    }

    pub(super) fn item_truncated(&mut self, id: ItemId, heard: Micros, text: &str) {
        let asked = self.answered("truncate").map(|pending| pending.asked);
        let is_one_of_several = matches!(asked, Some(Asked::Truncate { more: true, .. }));
        let Some(name) = self.items.name(id).map(str::to_owned) else {
            return;
        };
        if let Some(part) = self.items.part_mut(id) {
            part.cut = (heard < part.audio).then_some(heard);
            part.text = text.to_owned();
        }
        // The end of an open item reports a truncation that the client did not request.
        if is_one_of_several || asked.is_none() && self.is_open(&name) {
            return;
        }
        let Some(item) = self.items.get(&name) else {
            return;
        };
        let (text, heard) = (item.said(), item.heard());
        let json = shape::agent_item(&name, "incomplete", false, Some(&text));
        if asked.is_none() && item.json == json {
            return;
        }
        self.items.tell(&name, json);
        self.tell(
            "conversation.item.truncated",
            json!({"item_id": name, "content_index": 0, "audio_end_ms": heard.as_ms()}),
        );
    }

    /// Whether this is the open speech item.
    fn is_open(&self, name: &str) -> bool {
        let speech = self.response.as_ref().and_then(|r| r.speech.as_ref());
        speech.is_some_and(|speech| speech.name == name)
    }
}

impl Told {
    /// The words that two consecutive partials agree on and that were not sent yet. Deltas cannot
    /// be taken back, and the last words of a partial change most.
    fn partial(&mut self, partial: &str) -> Option<String> {
        let before = std::mem::replace(&mut self.partial, partial.to_owned());
        let agreed = agreement(&before, partial);
        let delta = behind(&self.text, agreed)?.to_owned();
        self.text.push_str(&delta);
        (!delta.is_empty()).then_some(delta)
    }

    /// The part of the transcript that has not been sent; empty if the words already sent differ
    /// from it.
    fn rest(self, whole: &str) -> String {
        behind(&self.text, whole).unwrap_or_default().to_owned()
    }
}

/// The rest of `whole` after the words of `told`, ignoring case and punctuation; `None` if `whole`
/// begins with other words.
fn behind<'a>(told: &str, whole: &'a str) -> Option<&'a str> {
    let mut rest = whole;
    for letter in told.chars().filter(|c| c.is_alphanumeric()) {
        let at = rest.find(char::is_alphanumeric)?;
        let found = rest[at..].chars().next()?;
        if !found.to_lowercase().eq(letter.to_lowercase()) {
            return None;
        }
        rest = &rest[at + found.len_utf8()..];
    }
    let is_mark = |c: char| !c.is_alphanumeric() && !c.is_whitespace();
    match told.ends_with(is_mark) {
        true => Some(rest.trim_start_matches(is_mark)),
        false => Some(rest),
    }
}

/// The index of the audio in an item's content, where it comes last.
fn place_of_audio(item: &Value) -> usize {
    item["content"].as_array().map_or(0, Vec::len) - 1
}

/// The longest run of whole words that begins both texts.
fn agreement<'a>(before: &str, text: &'a str) -> &'a str {
    let letters = before.chars().zip(text.chars());
    let alike = letters.take_while(|(one, other)| one == other);
    let end: usize = alike.map(|(letter, _)| letter.len_utf8()).sum();
    let is_whole =
        |text: &str| text[end..].is_empty() || text[end..].starts_with(char::is_whitespace);
    match is_whole(before) && is_whole(text) {
        true => &text[..end],
        false => &text[..text[..end].rfind(char::is_whitespace).unwrap_or(0)],
    }
}

impl Utterance {
    fn length(&self) -> Micros {
        let samples = self.to.map_or(0, |to| to.since(self.from));
        Micros::of_samples(samples, Samples::RATE)
    }
}

/// The usage of a transcription: the length of its audio, in whole seconds, rounded up, as OpenAI counts them. Clients in
/// languages with strict types, such as its .NET library, read an integer.
pub fn transcription_usage(length: Micros) -> Value {
    json!({"type": "duration", "seconds": length.0.div_ceil(1_000_000)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_two_partials_agree_on_are_sent_and_never_taken_back() {
        let mut told = Told::default();
        let deltas: Vec<_> = [
            "how",
            "how our",
            "how are you",
            "how are you today",
            "now are you today my",
            "how are you today my friend",
        ]
        .into_iter()
        .map(|partial| told.partial(partial))
        .collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            deltas,
            [None, some("how"), None, some(" are you"), None, None]
        );
        assert_eq!(
            told.rest("how are you today, my friend?"),
            " today, my friend?"
        );
    }

    #[test]
    fn two_texts_agree_on_whole_words() {
        for (before, text, agreed) in [
            ("how are you", "how are you", "how are you"),
            ("how are", "how are you", "how are"),
            ("how are you", "how are", "how are"),
            ("how are your", "how are you", "how are"),
            ("how our", "how are", "how"),
            ("now", "how", ""),
            ("", "how", ""),
            ("grüß dich", "grüße dich", ""),
        ] {
            assert_eq!(agreement(before, text), agreed, "{before}, {text}");
        }
    }

    #[test]
    fn the_rest_of_a_transcript_ignores_case_and_punctuation() {
        for (partial, whole, rest) in [
            ("how are you", "How are you, my friend?", ", my friend?"),
            ("well, I", "Well I think so.", " think so."),
            ("is that it?", "Is that it, then?", " then?"),
            ("how are you", "how are your friends?", "r friends?"),
            ("it costs 2", "It costs two.", ""),
        ] {
            let mut told = Told::default();
            told.partial(partial);
            assert_eq!(told.partial(partial).as_deref(), Some(partial));
            assert_eq!(told.rest(whole), rest, "{whole}");
        }
    }

    #[test]
    fn a_transcript_that_differs_from_the_sent_words_has_no_rest() {
        let mut told = Told::default();
        told.partial("how are");
        told.partial("how are you");
        assert_eq!(told.rest("Now, are you there?"), "");
    }
}
