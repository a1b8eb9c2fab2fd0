//! Tests conversations in languages other than English over real sockets, with the shipped detectors. In most of them
//! espeak-ng's voices speak on both ends, and the recogniser is scripted. In those with published weights SVOX Pico's
//! voices speak, and Whisper base hears them.

use crate::{common, support};
use serde_json::json;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use support::live::{self, Call, Heard, Hears};
use support::{Server, local, real};
use tokio::time::Instant;
use undertone::asr::{Asr, AsrError, Hints, Recognised};
use undertone::config::{Config, Environment, Flags};
use undertone::llm::scripted::{Cue, Scripted};
use undertone::server::App;
use undertone::session::{self, Builders, Engines, Observers};
use undertone::tts::Formant;

/// How long the caller is silent after an answer.
const BEFORE_THE_NEXT: Duration = Duration::from_millis(600);

/// A caller, and the recogniser that understands them.
struct Caller {
    voice: Voice,
    words: Arc<Mutex<Spoken>>,
    call: Call,
}

/// A sentence that the caller says, and its length from the first sound to the last, 16 kHz samples.
#[derive(Default)]
struct Spoken {
    text: String,
    length: usize,
}

/// The words of the sentence in this much of its audio: a gap behind "Hola," is not heard as the end of it. No sentence
/// may have one near its end, because it would be heard as complete there.
fn words_in(spoken: &Mutex<Spoken>, audio: &[f32]) -> String {
    let spoken = spoken.lock().unwrap_or_else(PoisonError::into_inner);
    let words: Vec<&str> = spoken.text.split_whitespace().collect();
    if audio.len() * 5 >= spoken.length * 4 {
        return spoken.text.clone();
    }
    let heard = (words.len() * audio.len()).div_ceil(spoken.length);
    words[..heard.min(words.len() - 1)].join(" ")
}

/// The caller's voice.
enum Voice {
    /// Of espeak-ng.
    Formant(Formant),
    /// Of SVOX Pico, in this language.
    Pico(&'static str),
}

impl Voice {
    /// Speech, 24 kHz.
    fn say(&mut self, text: &str) -> Vec<f32> {
        match self {
            Self::Formant(voice) => {
                let audio = undertone::tts::whole(voice, text).expect("a voice");
                common::resampled(&audio, 22_050, 24_000)
            }
            Self::Pico(language) => {
                let clip = common::pico::say(language, text);
                common::resampled(&clip.samples, 16_000, 24_000)
            }
        }
    }
}

/// A recogniser that is told what is said, and tells languages apart by a word of each.
struct Detects(Arc<Mutex<Spoken>>);

impl Asr for Detects {
    fn name(&self) -> &str {
        "scripted"
    }

    fn transcribe(&mut self, audio: &[f32]) -> Result<String, AsrError> {
        Ok(words_in(&self.0, audio))
    }

    fn hear_with(&mut self, audio: &[f32], hints: &Hints) -> Result<Recognised, AsrError> {
        let text = self.transcribe(audio)?;
        let spoken = match () {
            () if text.contains("spät") => "de",
            () if text.contains("hora") => "es",
            () if text.contains("time") => "en",
            () => hints.language.as_deref().unwrap_or("en"),
        };
        let allowed = hints.others.iter().any(|other| other == spoken);
        Ok(Recognised {
            language: allowed.then(|| spoken.to_owned()),
            ..Recognised::from(text)
        })
    }
}

/// A server whose recogniser hears the words that the caller is about to say.
fn serve(config: &Config, change: impl FnOnce(&mut Builders)) -> (Server, Arc<Mutex<Spoken>>) {
    let words = Arc::<Mutex<Spoken>>::default();
    let heard = words.clone();
    let hears = move |builders: &mut Builders| {
        builders.asr = Box::new(move || {
            let heard = heard.clone();
            Ok(Box::new(Hears(move |audio: &[f32]| {
                Ok(words_in(&heard, audio))
            })))
        });
        change(builders);
    };
    (serve_built(config, hears), words)
}

/// A server with the engines of a configuration, but those that `change` replaces.
fn serve_built(config: &Config, change: impl FnOnce(&mut Builders)) -> Server {
    let mut builders = real::built(config, Observers::default());
    change(&mut builders);
    let engines = Engines::start(builders).expect("engines");
    let opener = engines.clone();
    let factory: undertone::server::SessionFactory =
        Arc::new(move |options| Ok(session::open(&opener, &options)));
    Server::serve(App {
        speech: Some(engines),
        ..App::new(local(), factory)
    })
}

/// A server that tells languages apart by a word of each.
fn serve_detecting(config: &Config) -> (Server, Arc<Mutex<Spoken>>) {
    let words = Arc::<Mutex<Spoken>>::default();
    let heard = words.clone();
    let server = serve_built(config, |builders| {
        builders.asr = Box::new(move || Ok(Box::new(Detects(heard.clone()))));
    });
    (server, words)
}

/// The configuration with this text, and tools of these names and texts.
fn configured(folder: &Path, text: &str, tools: &[(&str, &str)]) -> Config {
    let file = folder.join("undertone.toml");
    let models = common::weights();
    let text = format!(
        "[models]\ndir = \"{}\"\n{text}[tools]\nfolder = \"tools\"\njournal = \"journal.jsonl\"\n",
        models.display()
    );
    std::fs::write(&file, text).expect("the configuration");
    let folder = folder.join("tools");
    std::fs::create_dir_all(&folder).expect("the folder");
    for (name, tool) in tools {
        std::fs::write(folder.join(name), tool).expect("a tool");
    }
    let flags = Flags {
        config: Some(file),
        ..Flags::default()
    };
    let loaded = undertone::config::load(&flags, &Environment::default());
    let mut config = loaded.unwrap_or_else(|error| panic!("{error}")).config;
    config.cache = Some(real::cache());
    config
}

impl Caller {
    async fn new(server: &Server, words: Arc<Mutex<Spoken>>, language: &str) -> Self {
        Self {
            voice: Voice::Formant(Formant::new(language)),
            words,
            call: Call::to(server).await,
        }
    }

    /// A caller whom nobody tells the recogniser about.
    async fn of_pico(server: &Server, language: &'static str) -> Self {
        Self {
            voice: Voice::Pico(language),
            words: Arc::default(),
            call: Call::to(server).await,
        }
    }

    /// Begins to say something.
    async fn say(&mut self, text: &str) {
        let audio = tokio::task::block_in_place(|| self.voice.say(text));
        let is_sound = |sample: &f32| sample.abs() > 0.01;
        let sound = audio.iter().position(is_sound)..audio.iter().rposition(is_sound);
        let length = sound.end.unwrap_or(0) - sound.start.unwrap_or(0);
        *self.words.lock().unwrap_or_else(PoisonError::into_inner) = Spoken {
            text: text.to_owned(),
            length: length * 2 / 3,
        };
        let audio: Vec<i16> = audio
            .iter()
            .map(|sample| (sample * 32_767.0) as i16)
            .collect();
        self.call.say(&audio).await;
    }

    /// Says something, hears the answer to its end, and returns its words, with those of the rounds of tools before it.
    /// Who gets another answer says it again, up to twice: a recogniser mishears a word at times.
    async fn ask(&mut self, text: &str, until: &str) -> String {
        self.say(text).await;
        let (mut all, mut tries) = (String::new(), 1);
        let mut heard_until: Option<Instant> = None;
        loop {
            let events = self.call.until("undertone.turn").await;
            for event in &events {
                let from = heard_until.map_or(event.at, |until| until.max(event.at));
                heard_until = Some(from + Duration::from_millis(event.audio_ms()));
            }
            // What came late of the question has cut this answer, and another one follows.
            if events.last().expect("the end").event["status"] != "completed" {
                continue;
            }
            all.push_str(&live::said(&events));
            all.push(' ');
            let quiet_from = heard_until.expect("events") + BEFORE_THE_NEXT;
            tokio::time::sleep_until(quiet_from).await;
            if all.contains(until) {
                return all;
            }
            let transcripts = events
                .iter()
                .filter_map(|event| event.event["transcript"].as_str());
            let transcripts: Vec<&str> = transcripts.collect();
            assert!(tries < 3, "{text}: {transcripts:?}");
            tries += 1;
            self.say(text).await;
        }
    }

    /// Interrupts an answer that is being heard, and returns its events after that.
    async fn interrupt(&mut self, text: &str) -> Vec<Heard> {
        let mut ms = 0;
        while ms < 1_000 {
            ms += self.call.next().await.audio_ms();
        }
        self.say(text).await;
        self.call.until("response.done").await
    }
}

const TIMER: &str = "name = \"set_timer\"\nkind = \"builtin\"\n[confirm]\nspoken = true\n";

/// A declared tool whose texts are in the language of its operator.
fn stock(answer: &str, filler: &str, rule: &str) -> String {
    format!(
        r#"
name = "count_chairs"
kind = "subprocess"
description = "Counts the chairs of a colour in the shop."
effect = "read"
answer = "{answer}"
[parameters.properties.colour]
type = "string"
[parameters]
required = ["colour"]
[subprocess]
argv = ["printf", "7"]
output = "text"
network = false
[fillers]
short = ["{filler}"]
[router]
rules = ['{rule}']
"#
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_german_conversation_with_the_local_brain() {
    let _together = common::together().await;
    let folder = tempfile::tempdir().expect("a folder");
    let stock = stock(
        "Wir haben {{ result|trim }} Stühle in {{ colour }}.",
        "Ich sehe im Lager nach.",
        r"\bwie viele Stühle in (?P<colour>\p{L}+)\b",
    );
    let tools = [("timer.toml", TIMER), ("stock.toml", &stock)];
    let config = configured(folder.path(), "[session]\nlanguage = \"de\"\n", &tools);
    let (server, words) = serve(&config, |_| {});
    let mut caller = Caller::new(&server, words, "de").await;

    let time = caller.ask("Guten Tag, wie spät ist es?", "Uhr").await;
    assert!(time.contains("Es ist "), "{time}");
    let there = caller.ask("Und in Tokio?", "Tokio").await;
    assert!(there.contains("Uhr"), "{there}");
    let question = caller
        .ask("Stell bitte einen Timer auf fünf Minuten.", "Minuten")
        .await;
    assert!(
        question.contains("Soll ich einen Timer auf 5 Minuten stellen?"),
        "{question}"
    );
    let set = caller.ask("Ja, bitte.", "läuft").await;
    assert!(set.contains("Gut, der Timer auf 5 Minuten läuft."), "{set}");
    let chairs = caller
        .ask("Wie viele Stühle in Rot haben Sie?", "Stühle")
        .await;
    assert!(
        chairs.to_lowercase().contains("wir haben 7 stühle in rot."),
        "{chairs}"
    );

    caller.say("Was können Sie?").await;
    let events = caller.interrupt("Halt!").await;
    let done = &events.last().expect("the end").event["response"];
    assert_eq!(done["status"], "cancelled", "{done}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spanish_conversation_with_the_local_brain() {
    let _together = common::together().await;
    let folder = tempfile::tempdir().expect("a folder");
    let stock = stock(
        "Tenemos {{ result|trim }} sillas de color {{ colour }}.",
        "Voy a mirar en el almacén.",
        r"\bcuántas sillas de color (?P<colour>\p{L}+)\b",
    );
    let tools = [("timer.toml", TIMER), ("stock.toml", &stock)];
    let config = configured(folder.path(), "[session]\nlanguage = \"es\"\n", &tools);
    let (server, words) = serve(&config, |_| {});
    let mut caller = Caller::new(&server, words, "es").await;

    let time = caller.ask("Hola, ¿qué hora es?", " de la ").await;
    assert!(
        time.contains("Son las ") || time.contains("Es la "),
        "{time}"
    );
    let there = caller.ask("¿Y en Tokio?", "Tokio").await;
    assert!(there.contains(" de la "), "{there}");
    let question = caller
        .ask("Pon un temporizador de cinco minutos.", "minutos")
        .await;
    assert!(
        question.contains("¿Pongo un temporizador de 5 minutos?"),
        "{question}"
    );
    let set = caller.ask("Claro que sí.", "marcha").await;
    assert!(
        set.contains("Vale, el temporizador de 5 minutos está en marcha."),
        "{set}"
    );
    let chairs = caller
        .ask("¿Cuántas sillas de color rojo tienen?", "sillas")
        .await;
    assert!(
        chairs.contains("Tenemos 7 sillas de color rojo."),
        "{chairs}"
    );

    caller.say("¿Qué puede hacer?").await;
    let events = caller.interrupt("¡Pare!").await;
    let done = &events.last().expect("the end").event["response"];
    assert_eq!(done["status"], "cancelled", "{done}");
    let after = live::said(&caller.call.until("response.done").await);
    assert_eq!(after.trim(), "De acuerdo.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_chooses_german_and_a_language_model_is_told() {
    let _together = common::together().await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = configured(folder.path(), "", &[("timer.toml", TIMER)]);
    let llm = Scripted::default()
        .on(
            Cue::result("set_timer"),
            "<speech>Der Timer läuft.</speech>",
        )
        .on(Cue::Always, "<tool>set_timer(seconds=300)</tool>");
    let (server, words) = serve(&config, |builders| builders.llm = Arc::new(llm.clone()));
    let mut caller = Caller::new(&server, words, "de").await;
    let german = json!({"type": "session.update", "session": {"type": "realtime",
        "audio": {"input": {"transcription": {"language": "de"}}}}});
    caller.call.send(german).await;
    caller.call.until("session.updated").await;

    let question = caller
        .ask("Stell einen Timer auf fünf Minuten.", "Minuten")
        .await;
    assert!(
        question.contains("Soll ich einen Timer auf 5 Minuten stellen?"),
        "{question}"
    );
    let set = caller.ask("Ja, gerne.", "läuft").await;
    assert!(set.contains("Der Timer läuft."), "{set}");
    let prompt = llm.asked(Cue::result("set_timer")).await;
    assert_eq!(prompt.demands.language.as_deref(), Some("de"));
}

/// The agent goes on in the language that is spoken, and back; a client that names its language is taken at its word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_goes_on_in_the_language_that_is_spoken() {
    let _together = common::together().await;
    let folder = tempfile::tempdir().expect("a folder");
    let text = "[asr]\nlanguages = [\"de\", \"es\"]\n";
    let (server, words) = serve_detecting(&configured(folder.path(), text, &[]));
    let mut caller = Caller::new(&server, words.clone(), "de").await;
    let english = caller.ask("What time is it?", "It").await;
    assert!(!english.contains("Es ist"), "{english}");
    let german = caller.ask("Guten Tag, wie spät ist es?", "Uhr").await;
    assert!(german.contains("Es ist "), "{german}");
    // No word tells the language: it stays.
    let stays = caller.ask("Vielen Dank.", "geschehen").await;
    assert!(stays.contains("Gern geschehen."), "{stays}");
    let spanish = caller.ask("Hola, ¿qué hora es?", " de la ").await;
    assert!(
        spanish.contains("Son las ") || spanish.contains("Es la "),
        "{spanish}"
    );
    let back = caller.ask("What time is it?", "It").await;
    // The end of the answer before may come with it.
    assert!(back.rfind("It") > back.rfind("Son las"), "{back}");

    let mut caller = Caller::new(&server, words, "de").await;
    let english = json!({"type": "session.update", "session": {"type": "realtime",
        "audio": {"input": {"transcription": {"language": "en"}}}}});
    caller.call.send(english).await;
    caller.call.until("session.updated").await;
    let named = caller.ask("Guten Tag, wie spät ist es?", ".").await;
    assert!(!named.contains("Es ist "), "{named}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_language_is_only_transcribed_if_the_operator_wants_it_so() {
    let _together = common::together().await;
    let folder = tempfile::tempdir().expect("a folder");
    let text = "[asr]\nlanguages = [\"de\"]\nfollow_language = false\n";
    let (server, words) = serve_detecting(&configured(folder.path(), text, &[]));
    let mut caller = Caller::new(&server, words, "de").await;
    let answer = caller.ask("Guten Tag, wie spät ist es?", ".").await;
    assert!(!answer.contains("Es ist "), "{answer}");
}

/// The record of the next turn.
async fn turn_of(caller: &mut Caller, said: &str) -> serde_json::Value {
    caller.say(said).await;
    let turn = caller.call.until("undertone.turn_record").await;
    turn.last().expect("a record").event.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_in_german_starts_its_tool_early_and_small_talk_does_not() {
    let _alone = common::alone().await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = configured(folder.path(), "[session]\nlanguage = \"de\"\n", &[]);
    // Its answers call nothing: what runs was predicted from the words.
    let llm = Scripted::always("<speech>Einen Augenblick.</speech>");
    let (server, words) = serve(&config, |builders| builders.llm = Arc::new(llm));
    let mut caller = Caller::new(&server, words, "de").await;
    caller.call.until("session.created").await;
    let record = turn_of(&mut caller, "Wie spät ist es in Tokio?").await;
    let runs = record["runs"].as_array().expect("runs");
    let early = runs.iter().any(|run| {
        let asked = &run["arguments"]["place"];
        run["tool"] == "get_time" && run["source"] == "rule" && asked == "Tokyo"
    });
    assert!(early, "{record}");
    let mut caller = Caller::new(&server, caller.words, "de").await;
    let record = turn_of(&mut caller, "Ich will nicht wissen, wie spät es ist.").await;
    assert_eq!(record["runs"], json!([]), "{record}");
}

/// Runs the German conversation with real weights: nothing is scripted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs whisper-base and SVOX Pico: make verify"]
async fn a_german_conversation_with_published_weights() {
    let _together = common::together().await;
    let folder = tempfile::tempdir().expect("a folder");
    let stock = stock(
        "Wir haben {{ result|trim }} Stühle dieser Farbe.",
        "Ich sehe im Lager nach.",
        r"\bwie viele (?P<colour>\p{L}+) Stühle\b",
    );
    let tools = [("timer.toml", TIMER), ("stock.toml", &stock)];
    let config = configured(folder.path(), "[session]\nlanguage = \"de\"\n", &tools);
    let server = serve_built(&config, |_| {});
    let mut caller = Caller::of_pico(&server, "de").await;
    let time = caller.ask("Guten Tag, wie spät ist es?", "Uhr").await;
    assert!(time.contains("Es ist "), "{time}");
    let set = "Stell einen Wecker auf fünf Minuten.";
    let question = caller.ask(set, "Minuten").await;
    assert!(
        question.contains("Soll ich einen Timer auf 5 Minuten stellen?"),
        "{question}"
    );
    let set = caller.ask("Ja, bitte.", "läuft").await;
    assert!(set.contains("Gut, der Timer auf 5 Minuten läuft."), "{set}");
    let chairs = caller
        .ask("Wie viele rote Stühle haben Sie?", "Stühle")
        .await;
    assert!(chairs.contains("Wir haben 7 Stühle"), "{chairs}");
    caller.say("Was können Sie?").await;
    let events = caller.interrupt("Stopp, das reicht mir schon.").await;
    let done = &events.last().expect("the end").event["response"];
    assert_eq!(done["status"], "cancelled", "{done}");
}

/// The same in Spanish, which is detected: the server speaks English first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs whisper-base and SVOX Pico: make verify"]
async fn a_spanish_conversation_with_published_weights() {
    let _together = common::together().await;
    let folder = tempfile::tempdir().expect("a folder");
    let stock = stock(
        "Tenemos {{ result|trim }} sillas de color {{ colour }}.",
        "Voy a mirar en el almacén.",
        r"\bcuántas sillas de color (?P<colour>\p{L}+)\b",
    );
    let tools = [("timer.toml", TIMER), ("stock.toml", &stock)];
    let text = "[asr]\nlanguages = [\"de\", \"es\"]\n";
    let config = configured(folder.path(), text, &tools);
    let server = serve_built(&config, |_| {});
    let mut caller = Caller::of_pico(&server, "es").await;
    let time = caller.ask("¿Qué hora es en Tokio?", "Tokio").await;
    assert!(
        time.contains("son las ") || time.contains("es la "),
        "{time}"
    );
    let set = "Pon un temporizador de cinco minutos, por favor.";
    let question = caller.ask(set, "minutos").await;
    assert!(
        question.contains("¿Pongo un temporizador de 5 minutos?"),
        "{question}"
    );
    let set = caller.ask("Sí, por favor.", "marcha").await;
    assert!(
        set.contains("Vale, el temporizador de 5 minutos está en marcha."),
        "{set}"
    );
    let chairs = caller
        .ask("¿Cuántas sillas de color rojo tienen?", "sillas")
        .await;
    assert!(
        chairs.contains("Tenemos 7 sillas de color rojo."),
        "{chairs}"
    );
    caller.say("¿Qué puede hacer?").await;
    let events = caller.interrupt("Un momento, por favor.").await;
    let done = &events.last().expect("the end").event["response"];
    assert_eq!(done["status"], "cancelled", "{done}");
}
