//! Tests conversations in languages other than English over real sockets: espeak-ng's voices speak on both ends, the
//! detectors are the shipped ones, and the recogniser is scripted, because no multilingual weights are to be had.

use crate::{common, support};
use serde_json::json;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use support::live::{self, Call, Heard, Hears};
use support::{Server, local, real};
use tokio::time::Instant;
use undertone::config::{Config, Environment, Flags};
use undertone::llm::scripted::{Cue, Scripted};
use undertone::server::App;
use undertone::session::{self, Builders, Engines, Observers};
use undertone::tts::Formant;

/// How long the caller is silent after an answer.
const BEFORE_THE_NEXT: Duration = Duration::from_millis(600);

/// A caller with a voice of espeak-ng, and the recogniser that understands it.
struct Caller {
    voice: Formant,
    words: Arc<Mutex<String>>,
    call: Call,
}

/// A server whose recogniser hears the words that the caller is about to say.
fn serve(config: &Config, change: impl FnOnce(&mut Builders)) -> (Server, Arc<Mutex<String>>) {
    let words = Arc::new(Mutex::new(String::new()));
    let heard = words.clone();
    let mut builders = real::built(config, Observers::default());
    builders.asr = Box::new(move || {
        let heard = heard.clone();
        Ok(Box::new(Hears(move |_: &[f32]| {
            Ok(heard.lock().unwrap_or_else(PoisonError::into_inner).clone())
        })))
    });
    change(&mut builders);
    let engines = Engines::start(builders).expect("engines");
    let factory: undertone::server::SessionFactory =
        Arc::new(move |options| Ok(session::open(&engines, &options)));
    (Server::serve(App::new(local(), factory)), words)
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
    async fn new(server: &Server, words: Arc<Mutex<String>>, language: &str) -> Self {
        Self {
            voice: Formant::new(language),
            words,
            call: Call::to(server).await,
        }
    }

    /// Begins to say something.
    async fn say(&mut self, text: &str) {
        *self.words.lock().unwrap_or_else(PoisonError::into_inner) = text.to_owned();
        let audio = undertone::tts::whole(&mut self.voice, text).expect("a voice");
        let audio = common::resampled(&audio, 22_050, 24_000);
        let audio: Vec<i16> = audio
            .iter()
            .map(|sample| (sample * 32_767.0) as i16)
            .collect();
        self.call.say(&audio).await;
    }

    /// Says something, hears the answer to its end, and returns its words, with those of the rounds of tools before it.
    async fn ask(&mut self, text: &str, until: &str) -> String {
        self.say(text).await;
        let mut all = String::new();
        let mut heard_until: Option<Instant> = None;
        loop {
            let events = self.call.until("response.done").await;
            for event in &events {
                let from = heard_until.map_or(event.at, |until| until.max(event.at));
                heard_until = Some(from + Duration::from_millis(event.audio_ms()));
            }
            all.push_str(&live::said(&events));
            all.push(' ');
            if all.contains(until) {
                let until = heard_until.expect("events");
                tokio::time::sleep_until(until + BEFORE_THE_NEXT).await;
                return all;
            }
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
    let _alone = common::alone().await;
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
    let _alone = common::alone().await;
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
    let question = caller
        .ask(
            "Pon un temporizador de cinco minutos, por favor.",
            "minutos",
        )
        .await;
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
    let events = caller.interrupt("¡Pare!").await;
    let done = &events.last().expect("the end").event["response"];
    assert_eq!(done["status"], "cancelled", "{done}");
    let after = live::said(&caller.call.until("response.done").await);
    assert_eq!(after.trim(), "De acuerdo.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_chooses_german_and_a_language_model_is_told() {
    let _alone = common::alone().await;
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
