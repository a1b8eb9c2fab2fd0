//! One client connection. Each event is answered before the next is read.

use super::Refused;
use super::agent::Talk;
use super::event::{BadEvent, Event, encode};
use super::info::{answered, info};
use super::kept::{ConversationName, ConversationStore};
use super::recording::{Format, PART, Recording, followed};
use crate::audio::{to_i16, to_pcm16le};
use crate::conversation::Clauses;
use crate::language::{base, is_tag};
use crate::session::{Engines, LiveEngines};
use crate::transport::door::{Door, Places};
use crate::transport::pump::{self, PumpContext};
use crate::tts::Speaker;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;
use tracing::{Instrument, Span};

/// The longest text of one request, characters: about five minutes of speech, and as much as OpenAI's
/// speech endpoint accepts.
pub(super) const MOST_TEXT: usize = 4_096;

/// The longest conversation id, bytes: Home Assistant's have 26.
pub(super) const MOST_NAME: usize = 256;

/// How many times longer a client may be silent than while it sends audio: between requests, or in a text that an agent
/// with slow tools writes. With the default limits this is five minutes, after which Home Assistant, too, considers a
/// conversation over.
const PATIENCE: u32 = 10;

/// The most missing voices that are warned of.
const MOST_MISSING: usize = 16;

/// Samples of one `audio-chunk`.
const CHUNK: usize = 4_096;

/// The longest reason to send and log, characters.
const MOST_REASON: usize = 200;

/// The reason a connection ends.
type End = pump::End<Refused>;

/// The reason if a recording was not transcribed.
const NOT_HEARD: &str = "the recogniser is busy or has failed";

impl From<Refused> for End {
    fn from(refused: Refused) -> Self {
        Self::Bad(refused)
    }
}

/// State shared by all clients.
#[derive(Clone)]
pub struct Service {
    engines: Arc<dyn LiveEngines>,
    kept: Arc<dyn ConversationStore>,
    connections: Arc<AtomicU64>,
    /// The voices that clients named and that are not there.
    missing: Arc<Mutex<BTreeSet<String>>>,
}

impl Service {
    /// A service with these models. `kept` holds conversations between sentences.
    pub fn new(engines: Arc<dyn LiveEngines>, kept: Arc<dyn ConversationStore>) -> Self {
        Self {
            engines,
            kept,
            connections: Arc::default(),
            missing: Arc::default(),
        }
    }

    /// The engines of an event that comes now.
    fn engines(&self) -> Arc<Engines> {
        self.engines.clone().now()
    }

    /// Warns once of a voice that is not there.
    fn misses(&self, voice: &str) {
        let voice = excerpt(voice);
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        if missing.len() < MOST_MISSING && missing.insert(voice.clone()) {
            tracing::warn!(
                voice,
                "a Wyoming client asks for a voice that does not exist; the server's own is used. Choose another in the client"
            );
        }
    }
}

/// Home Assistant keeps connections open for long, which must not block calls.
impl Door for Service {
    fn places(&self) -> Places {
        Places::OfTheirOwn
    }

    fn serve(&self, stream: TcpStream, context: PumpContext) -> BoxFuture<'static, ()> {
        serve(stream, self.clone(), context).boxed()
    }

    fn turn_away(&self, stream: TcpStream) -> BoxFuture<'static, ()> {
        turn_away(stream).boxed()
    }
}

/// Serves a client until it leaves or the server stops.
async fn serve(stream: TcpStream, service: Service, context: PumpContext) {
    let nameless = stream.peer_addr().map(|peer| ConversationName::Connection {
        id: service.connections.fetch_add(1, Relaxed),
        from: peer.ip(),
    });
    let Ok(nameless) = nameless else {
        return tracing::debug!("a Wyoming client disconnected before it was served");
    };
    let (reader, writer) = stream.into_split();
    let stop = context.stop.clone();
    let mut connection = Connection {
        reader: BufReader::new(reader),
        writer,
        service,
        context,
        asked: false,
        recording: None,
        spoken: None,
        reading_out: None,
        nameless,
        span: Span::none(),
    };
    let end = tokio::select! {
        biased;
        () = stop.cancelled() => End::Closed("the server shuts down"),
        end = connection.run() => end,
    };
    end.count(&connection.context.counters);
    let span = connection.span.clone();
    if let Some(reason) = span.in_scope(|| told(end)) {
        let reader = connection.reader.into_inner();
        say_goodbye(reader, connection.writer, &reason).await;
    }
}

/// Logs the end of a connection. Returns the reason that its client is told, if it is there.
fn told(end: End) -> Option<String> {
    let reason = match end {
        End::Bad(error) => {
            let reason = excerpt(&error.to_string());
            // The reason may quote what the user said.
            tracing::warn!("closed a Wyoming connection after an invalid request");
            tracing::debug!(reason);
            reason
        }
        End::Closed(reason) => {
            tracing::debug!(reason, "closed a Wyoming connection");
            reason.to_owned()
        }
        end => {
            tracing::debug!(?end, "a Wyoming connection ended");
            return None;
        }
    };
    Some(reason)
}

/// Refuses a client because the server is full.
async fn turn_away(stream: TcpStream) {
    let (reader, writer) = stream.into_split();
    say_goodbye(reader, writer, "the server is busy: try again later").await;
}

async fn say_goodbye(reader: OwnedReadHalf, writer: OwnedWriteHalf, reason: &str) {
    let error = encode("error", &json!({ "text": reason }), &[]);
    pump::say_last(reader, writer, &error).await;
}

struct Connection {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    service: Service,
    context: PumpContext,
    /// Whether the client has sent an event.
    asked: bool,
    /// Audio to transcribe.
    recording: Option<Recording>,
    /// The language that is spoken in it, a BCP 47 tag, if the client has named it.
    spoken: Option<String>,
    /// A text that is synthesised as it arrives.
    reading_out: Option<ReadingOut>,
    /// The conversation for sentences without a `conversation_id`.
    nameless: ConversationName,
    /// That of the session that answered last: what is logged of the client belongs in it.
    span: Span,
}

struct ReadingOut {
    speaker: Speaker,
    clauses: Clauses,
    /// Text so far, characters.
    length: usize,
}

#[derive(Deserialize)]
struct Transcribe {
    language: Option<String>,
}

/// `synthesize`, and `synthesize-start` without the text.
#[derive(Deserialize)]
struct Synthesize {
    #[serde(default)]
    text: String,
    voice: Option<Voice>,
    text_format: Option<String>,
}

#[derive(Deserialize)]
struct Voice {
    name: Option<String>,
    language: Option<String>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
}

/// `transcript`: a sentence for the agent.
#[derive(Deserialize)]
struct Sentence {
    text: String,
    language: Option<String>,
    context: Option<Context>,
}

#[derive(Deserialize)]
struct Context {
    conversation_id: Option<String>,
}

impl Connection {
    async fn run(&mut self) -> End {
        loop {
            let event = match self.next().await {
                Ok(event) => event,
                Err(end) => return end,
            };
            self.asked = true;
            let span = self.span.clone();
            if let Err(end) = self.answer(&event).instrument(span).await {
                return end;
            }
        }
    }

    async fn next(&mut self) -> Result<Event, End> {
        let idle = self.recording.is_none() && self.reading_out.is_none();
        let limits = &self.context.limits;
        let patience = match (self.asked, &self.recording) {
            (false, _) => limits.open_within,
            (true, Some(_)) => limits.gone_after,
            (true, None) => PATIENCE * limits.gone_after,
        };
        tokio::select! {
            biased;
            () = self.context.drain.cancelled(), if idle => Err(End::Closed("the server shuts down")),
            read = timeout(patience, Event::read(&mut self.reader)) => match read {
                Ok(Ok(Some(event))) => Ok(event),
                Ok(Ok(None)) => Err(End::Left),
                Ok(Err(BadEvent::Broken(_))) | Err(_) => Err(End::Vanished),
                Ok(Err(bad)) => Err(End::Bad(bad.into())),
            },
        }
    }

    async fn answer(&mut self, event: &Event) -> Result<(), End> {
        match &*event.kind {
            "describe" => {
                let info = info(&self.service.engines());
                self.send("info", &info, &[]).await
            }
            "ping" => {
                let text = event.data.get("text").unwrap_or(&Value::Null);
                self.send("pong", &json!({"text": text}), &[]).await
            }
            "transcribe" => {
                let language = tag_of(says::<Transcribe>(event)?.language)?;
                let known = |tag: &String| self.service.engines().hears(tag);
                if let Some(unknown) = language.as_ref().filter(|tag| !known(tag)) {
                    return Err(Refused::Language(unknown.clone()).into());
                }
                self.spoken = language;
                self.recording = None;
                Ok(())
            }
            "audio-start" => {
                self.recording = Some(Recording::begin(says(event)?)?);
                Ok(())
            }
            "audio-chunk" => self.record(says(event)?, &event.payload).await,
            "audio-stop" => self.transcribe().await,
            "synthesize" => self.synthesize(&says(event)?).await,
            "synthesize-start" => {
                let speaker = self.speaker(&says(event)?)?;
                self.reading_out = Some(ReadingOut {
                    clauses: Clauses::new(speaker.pack()),
                    speaker,
                    length: 0,
                });
                self.start_audio().await
            }
            "synthesize-chunk" => self.read_out(&says::<Text>(event)?.text).await,
            "synthesize-stop" => self.stop_reading_out().await,
            "transcript" => self.handle(says(event)?).await,
            kind => {
                tracing::debug!(kind, "ignored");
                Ok(())
            }
        }
    }

    /// Records audio. What is too long for the recogniser is transcribed at once, so that it takes no more memory.
    async fn record(&mut self, format: Format, payload: &[u8]) -> Result<(), End> {
        let mut recording = match self.recording.take() {
            Some(recording) => recording,
            None => Recording::begin(format)?,
        };
        for part in payload.chunks(PART) {
            recording.push(format, part)?;
            while let Some(audio) = recording.cut() {
                let (engines, spoken) = (self.service.engines(), self.spoken.as_deref());
                let heard = engines.transcribe_aside(audio, spoken).await;
                let heard = heard.map_err(|failure| {
                    tracing::warn!(failure, "a long recording was not transcribed");
                    End::Closed(NOT_HEARD)
                })?;
                recording.heard(&heard.text);
            }
        }
        self.recording = Some(recording);
        Ok(())
    }

    async fn transcribe(&mut self) -> Result<(), End> {
        let recorded = self.recording.take().map(Recording::end);
        let (engines, spoken) = (self.service.engines(), self.spoken.take());
        let text = match recorded {
            Some((words, audio)) => {
                let last = engines.transcribe(audio, spoken.as_deref()).await;
                followed(&words, &last.ok_or(End::Closed(NOT_HEARD))?)
            }
            None => String::new(),
        };
        let language = spoken.unwrap_or_else(|| engines.language());
        let transcript = json!({"text": text, "language": language});
        self.send("transcript", &transcript, &[]).await
    }

    /// Within a stream the event is ignored: Home Assistant repeats the whole text there for
    /// servers that do not support streaming.
    async fn synthesize(&mut self, request: &Synthesize) -> Result<(), End> {
        if self.reading_out.is_some() {
            return Ok(());
        }
        let speaker = self.speaker(request)?;
        if request.text.chars().count() > MOST_TEXT {
            return Err(Refused::LongText.into());
        }
        self.start_audio().await?;
        let clauses = Clauses::of(speaker.pack(), &request.text);
        self.speak(&speaker, clauses).await?;
        self.send("audio-stop", &json!({}), &[]).await
    }

    async fn read_out(&mut self, text: &str) -> Result<(), End> {
        let Some(reading) = &mut self.reading_out else {
            return Ok(());
        };
        reading.length += text.chars().count();
        if reading.length > MOST_TEXT {
            return Err(Refused::LongText.into());
        }
        let texts = reading.clauses.push(text);
        let speaker = reading.speaker.clone();
        self.speak(&speaker, texts).await
    }

    async fn stop_reading_out(&mut self) -> Result<(), End> {
        let Some(mut reading) = self.reading_out.take() else {
            return Ok(());
        };
        self.speak(&reading.speaker, reading.clauses.finish())
            .await?;
        self.send("audio-stop", &json!({}), &[]).await?;
        self.send("synthesize-stopped", &json!({}), &[]).await
    }

    async fn handle(&mut self, sentence: Sentence) -> Result<(), End> {
        let language = self.answered_in(sentence.language)?;
        if sentence.text.chars().count() > MOST_TEXT {
            return Err(Refused::LongText.into());
        }
        let name = sentence.context.and_then(|context| context.conversation_id);
        let name = match name {
            Some(name) if name.len() > MOST_NAME => return Err(Refused::LongName.into()),
            Some(name) => ConversationName::Given(name),
            None => self.nameless.clone(),
        };
        let talk = match self.service.kept.take(&name).await {
            Some(session) => Talk(session),
            None => self.open_talk(language)?,
        };
        self.span = talk.0.span.clone();
        let asked = talk.ask(sentence.text).instrument(self.span.clone());
        let (answer, talk) = asked.await;
        if let Some(Talk(session)) = talk {
            self.service.kept.put(name, session).await;
        }
        let kind = if answer.handled {
            "handled"
        } else {
            "not-handled"
        };
        self.send(kind, &json!({"text": answer.text}), &[]).await
    }

    fn open_talk(&self, language: Option<String>) -> Result<Talk, End> {
        let talk = Talk::open(&self.context.sessions, language).map_err(|error| {
            tracing::warn!(%error, "cannot open a session");
            End::Closed("no session could be opened")
        })?;
        self.context.counters.sessions.fetch_add(1, Relaxed);
        Ok(talk)
    }

    /// The language of an answer, if it is not that of the server.
    fn answered_in(&self, language: Option<String>) -> Result<Option<String>, Refused> {
        let engines = self.service.engines();
        let other = tag_of(language)?.filter(|tag| base(tag) != base(&engines.language()));
        match other {
            Some(tag) if !answered(&engines).contains(&base(&tag)) => Err(Refused::Language(tag)),
            other => Ok(other),
        }
    }

    /// The voice of a request, with the language that it speaks: the server's if the request names neither, or a voice
    /// that is no longer there, whose name Home Assistant keeps.
    fn speaker(&self, request: &Synthesize) -> Result<Speaker, Refused> {
        let format = request.text_format.as_deref().unwrap_or("text");
        if format != "text" {
            return Err(Refused::TextFormat(format.into()));
        }
        let (name, language) = match &request.voice {
            Some(Voice { name, language }) => (name.as_deref(), tag_of(language.clone())?),
            None => (None, None),
        };
        let engines = self.service.engines();
        let own = engines.policy().speaker.language.as_ref();
        let spoken = language.as_ref().or(own);
        let named = name.and_then(|name| {
            let named = engines.local_voices().find(|known| known.name == name);
            if named.is_none() {
                self.service.misses(name);
            }
            named
        });
        let known = named.or_else(|| {
            let mut voices = engines.local_voices();
            match spoken.map(|tag| base(tag)) {
                Some(spoken) => voices.find(|known| known.language.is_none_or(|own| own == spoken)),
                None => voices.next(),
            }
        });
        let speaker = match (known, language.as_ref()) {
            (Some(known), _) => Speaker {
                language: known.language.map(str::to_owned).or(spoken.cloned()),
                ..known.speaker
            },
            (None, Some(tag)) => return Err(Refused::Language(tag.clone())),
            (None, None) => Speaker {
                language: spoken.cloned(),
                ..Speaker::default()
            },
        };
        Ok(speaker)
    }

    async fn start_audio(&mut self) -> Result<(), End> {
        let format = self.format();
        self.send("audio-start", &format, &[]).await
    }

    fn format(&self) -> Value {
        json!({"rate": self.service.engines().voice().1, "width": 2, "channels": 1})
    }

    /// Synthesises and sends clause by clause, so that playback starts early.
    async fn speak(
        &mut self,
        speaker: &Speaker,
        clauses: impl IntoIterator<Item = String>,
    ) -> Result<(), End> {
        let (engines, format) = (self.service.engines(), self.format());
        let rate = engines.voice().1;
        for clause in clauses {
            let audio = engines.say(speaker, &clause, rate).await;
            let audio = audio.ok_or(End::Closed("the voice is busy or has failed"))?;
            for chunk in audio.chunks(CHUNK) {
                let chunk = to_pcm16le(&to_i16(chunk));
                self.send("audio-chunk", &format, &chunk).await?;
            }
        }
        Ok(())
    }

    async fn send(&mut self, kind: &str, data: &Value, payload: &[u8]) -> Result<(), End> {
        let bytes = encode(kind, data, payload);
        match timeout(
            self.context.limits.write_timeout,
            self.writer.write_all(&bytes),
        )
        .await
        {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Vanished),
            Err(_) => Err(End::Slow),
        }
    }
}

/// The beginning of a text that may quote the client, on one line.
fn excerpt(reason: &str) -> String {
    let beginning = reason.chars().take(MOST_REASON);
    beginning
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn says<T: DeserializeOwned>(event: &Event) -> Result<T, Refused> {
    event.says().map_err(|error| Refused::Data {
        kind: event.kind.clone(),
        error,
    })
}

/// The BCP 47 tag that a client names; clients may write `de_DE`.
fn tag_of(language: Option<String>) -> Result<Option<String>, Refused> {
    let tag = language.map(|language| language.replace('_', "-"));
    match tag {
        Some(tag) if !is_tag(&tag) => Err(Refused::Language(tag)),
        tag => Ok(tag),
    }
}
