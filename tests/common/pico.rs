//! SVOX Pico: German and Spanish voices of another maker, which the multilingual recogniser understands. It hardly
//! understands espeak-ng's.

use super::{Clip, read};
use std::path::Path;
use std::process::Command;

/// Short requests as people make them, each with its language.
pub const REQUESTS: [(&str, &str); 24] = [
    ("de", "Guten Tag, wie spät ist es?"),
    ("de", "Wie spät ist es in Tokio?"),
    ("de", "Stell bitte einen Timer auf fünf Minuten."),
    ("de", "Ja, bitte."),
    ("de", "Was können Sie?"),
    ("de", "Was ist zwölf mal sieben?"),
    ("de", "Wie wird das Wetter morgen in Berlin?"),
    ("de", "Welche Timer laufen noch?"),
    ("de", "Wie viele Kilometer sind fünf Meilen?"),
    ("de", "Nein, danke."),
    (
        "de",
        "Ich möchte einen Tisch für vier Personen reservieren.",
    ),
    ("de", "Wie viele Stühle in Rot haben Sie?"),
    ("es", "Hola, ¿qué hora es?"),
    ("es", "¿Qué hora es en Tokio?"),
    ("es", "Pon un temporizador de cinco minutos, por favor."),
    ("es", "Sí, por favor."),
    ("es", "¿Qué puede hacer?"),
    ("es", "¿Cuánto es doce por siete?"),
    ("es", "¿Qué tiempo hará mañana en Madrid?"),
    ("es", "¿Qué temporizadores quedan?"),
    ("es", "¿Cuántos kilómetros son cinco millas?"),
    ("es", "No, gracias."),
    ("es", "Quiero reservar una mesa para cuatro personas."),
    ("es", "¿Cuántas sillas de color rojo tienen?"),
];

/// A text with its numbers in digits, to count the words that were heard wrong.
pub fn digits(text: &str) -> String {
    let digit = |word: &str| match word.to_lowercase().as_str() {
        "vier" | "cuatro" => "4".to_owned(),
        "fünf" | "cinco" => "5".to_owned(),
        "sieben" | "siete" => "7".to_owned(),
        "zwölf" | "doce" => "12".to_owned(),
        _ => word.to_owned(),
    };
    let mut all = String::new();
    for piece in text.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let word = piece.trim_end_matches(|c: char| !c.is_alphanumeric());
        all += &digit(word);
        all += &piece[word.len()..];
    }
    all
}

/// Speech, 16 kHz: a text in one of the languages `de`, `en`, `es`, `fr` and `it`.
pub fn say(language: &str, text: &str) -> Clip {
    let voice = match language {
        "de" => "de-DE",
        "es" => "es-ES",
        "fr" => "fr-FR",
        "it" => "it-IT",
        _ => "en-US",
    };
    let foreign = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("speech.wav");
    let spoken = Command::new(foreign.join(".venv-pico/bin/python"))
        .args(["-m", "py_nanotts", text, "-v", voice, "-o"])
        .arg(&path)
        .status();
    let spoken = spoken.expect("SVOX Pico is missing: run `make measure` or `make verify`");
    assert!(spoken.success(), "{voice}: {text}");
    Clip {
        name: format!("{language}: {text}"),
        text: text.into(),
        samples: read(&path),
    }
}
