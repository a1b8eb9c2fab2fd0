//! A request to transcribe a recording, and the forms of its answer.

use super::{MAX_FIELDS, MAX_FILE};
use crate::language::{ENGLISH, pack, packs};
use crate::server::errors::{error, fault};
use crate::server::realtime_client::is_set;
use crate::time::Micros;
use crate::transport::realtime::{Fault, transcription_usage};
use axum::Json;
use axum::extract::Multipart;
use axum::extract::multipart::{Field, MultipartError};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Value, json};
use std::fmt::Write;

/// A recording, and the form in which its transcript is wanted.
pub(super) struct Transcription {
    /// The file, in any container that is read here.
    pub(super) file: Bytes,
    pub(super) shape: Shape,
    /// The language that is spoken, as the client named it; to be detected if `None`.
    pub(super) language: Option<String>,
    /// Whether the transcript is sent as events while it is made.
    pub(super) streams: bool,
}

/// The form of a transcript.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Shape {
    /// An object with the text.
    #[default]
    Json,
    /// The text alone.
    Text,
    /// An object with the text, the duration and the segments.
    Verbose,
    /// Subtitles.
    Srt,
    /// Subtitles of the web.
    Vtt,
}

/// The words between two pauses.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Segment {
    /// Seconds from the start of the recording.
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) text: String,
    /// A BCP 47 tag.
    pub(super) language: String,
}

impl Transcription {
    /// Reads a form. Fields that change nothing here, such as `temperature` and `prompt`, are ignored, and
    /// every `model` means the server's recogniser.
    ///
    /// # Errors
    /// The response that names the field.
    pub(super) async fn read(mut form: Multipart) -> Result<Self, Response> {
        let (mut file, mut shape, mut streams) = (None, Shape::default(), false);
        let (mut language, mut languages) = (None, Vec::new());
        let mut granularities = Vec::new();
        while let Some(field) = form.next_field().await.map_err(unreadable)? {
            let name = field.name().unwrap_or_default().to_owned();
            match name.as_str() {
                "file" => {
                    let bytes = field.bytes().await.map_err(unreadable)?;
                    if bytes.len() > MAX_FILE {
                        return Err(too_large());
                    }
                    file = Some(bytes);
                }
                "response_format" => shape = shape_of(&text(field).await?)?,
                "stream" => streams = is_set(Some(&text(field).await?)),
                "language" => language = tag_of(&text(field).await?),
                "languages[]" | "languages" => languages.extend(tag_of(&text(field).await?)),
                "timestamp_granularities[]" | "timestamp_granularities" => {
                    granularities.push(text(field).await?);
                }
                _ => drop(text(field).await?),
            }
        }
        check_granularities(&granularities)?;
        let Some(file) = file else {
            return Err(wrong(
                "missing_required_parameter",
                "file",
                "It is missing.",
            ));
        };
        // The recogniser cannot be told to choose among several.
        if languages.len() == 1 {
            language = language.or_else(|| languages.pop());
        }
        Ok(Self {
            file,
            shape,
            language,
            streams,
        })
    }
}

async fn text(field: Field<'_>) -> Result<String, Response> {
    let name = field.name().unwrap_or_default().to_owned();
    let text = field.text().await.map_err(unreadable)?;
    if text.len() > MAX_FIELDS {
        let message = format!("It is longer than {MAX_FIELDS} bytes.");
        return Err(wrong("string_above_max_length", &name, &message));
    }
    Ok(text)
}

#[allow(
    clippy::result_large_err,
    reason = "the error is the response, made once per refused request"
)]
fn shape_of(name: &str) -> Result<Shape, Response> {
    Ok(match name {
        "json" | "" => Shape::Json,
        "text" => Shape::Text,
        "verbose_json" => Shape::Verbose,
        "srt" => Shape::Srt,
        "vtt" => Shape::Vtt,
        _ => {
            let message = format!(
                "There is no form '{name}': known are json, text, verbose_json, srt and vtt."
            );
            return Err(wrong("invalid_value", "response_format", &message));
        }
    })
}

/// The tag of a language that is named by a tag or by its name in English; `None` if it is to be detected.
fn tag_of(typed: &str) -> Option<String> {
    let typed = typed.trim().to_ascii_lowercase().replace('_', "-");
    let named = packs().find(|pack| pack.name.eq_ignore_ascii_case(&typed));
    let tag = named.map_or(typed, |pack| pack.tag.to_owned());
    Some(tag).filter(|tag| !["", "auto"].contains(&tag.as_str()))
}

/// The refusal of a language that the recogniser does not know.
pub(super) fn unknown_language(tag: &str, known: &[String]) -> Response {
    let known = known.join(", ");
    let message = format!("The recogniser does not know the language '{tag}', but {known}.");
    wrong("unsupported_language", "language", &message)
}

#[allow(
    clippy::result_large_err,
    reason = "the error is the response, made once per refused request"
)]
fn check_granularities(asked: &[String]) -> Result<(), Response> {
    let has_segments = asked.iter().any(|of| of == "segment");
    // Who asks for both gets the segments alone.
    let is_fine = |of: &str| match of {
        "segment" | "" => true,
        "word" => has_segments,
        _ => false,
    };
    match asked.iter().find(|of| !is_fine(of)) {
        None => Ok(()),
        Some(of) => {
            let message = format!("There are no times of a '{of}': known is segment.");
            Err(wrong("invalid_value", "timestamp_granularities", &message))
        }
    }
}

fn wrong(code: &'static str, param: &str, message: &str) -> Response {
    fault(&Fault::new(code, param, message))
}

fn unreadable(failure: MultipartError) -> Response {
    if failure.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return too_large();
    }
    let message = format!("The form cannot be read: {}.", failure.body_text());
    error(failure.status(), "invalid_form", None, message)
}

fn too_large() -> Response {
    let message = format!(
        "The recording is larger than {} MB.",
        MAX_FILE / 1024 / 1024
    );
    let status = StatusCode::PAYLOAD_TOO_LARGE;
    error(status, "request_too_large", Some("file"), message)
}

impl Shape {
    /// The answer for a recording of this length, s.
    pub(super) fn response(self, segments: &[Segment], seconds: f64) -> Response {
        let plain = |text| ([(CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response();
        match self {
            Self::Json => {
                let usage = usage(seconds);
                Json(json!({"text": whole(segments), "usage": usage})).into_response()
            }
            Self::Verbose => Json(verbose(segments, seconds)).into_response(),
            Self::Text => plain(whole(segments) + "\n"),
            Self::Srt => plain(subtitles(segments, ',')),
            Self::Vtt => {
                let text = format!("WEBVTT\n\n{}", subtitles(segments, '.'));
                ([(CONTENT_TYPE, "text/vtt; charset=utf-8")], text).into_response()
            }
        }
    }
}

fn usage(seconds: f64) -> Value {
    transcription_usage(Micros((seconds * 1e6) as u64))
}

fn whole(segments: &[Segment]) -> String {
    let texts: Vec<&str> = segments.iter().map(|segment| &*segment.text).collect();
    texts.join(" ")
}

fn verbose(segments: &[Segment], seconds: f64) -> Value {
    let each: Vec<Value> = segments
        .iter()
        .enumerate()
        .map(|(id, segment)| {
            let Segment {
                start, end, text, ..
            } = segment;
            // Clients require all of these fields. The recogniser tells none of the last six.
            json!({
                "id": id, "start": start, "end": end, "text": text,
                "seek": 0, "tokens": [], "temperature": 0.0,
                "avg_logprob": 0.0, "compression_ratio": 1.0, "no_speech_prob": 0.0,
            })
        })
        .collect();
    let language = segments.first().map_or(ENGLISH, |first| &first.language);
    json!({
        "task": "transcribe",
        "language": name_of(language),
        "duration": seconds,
        "text": whole(segments),
        "segments": each,
        "usage": usage(seconds),
    })
}

/// The name of a language as OpenAI's API gives it; its tag if it has no pack.
fn name_of(tag: &str) -> String {
    let name = pack(Some(tag)).name;
    match name.is_empty() {
        true => tag.to_owned(),
        false => name.to_ascii_lowercase(),
    }
}

/// Subtitles; those of SRT are numbered, and have a comma before the milliseconds.
fn subtitles(segments: &[Segment], point: char) -> String {
    let mut text = String::new();
    for (index, segment) in segments.iter().enumerate() {
        if point == ',' {
            let _ = writeln!(text, "{}", index + 1);
        }
        let (start, end) = (clock(segment.start, point), clock(segment.end, point));
        let _ = writeln!(text, "{start} --> {end}\n{}\n", segment.text);
    }
    text
}

fn clock(seconds: f64, point: char) -> String {
    let ms = (seconds * 1_000.0).round() as u64;
    let (s, ms) = (ms / 1_000, ms % 1_000);
    format!(
        "{:02}:{:02}:{:02}{point}{ms:03}",
        s / 3_600,
        s / 60 % 60,
        s % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtitles_have_the_form_of_their_kind() {
        let segments = [
            Segment {
                start: 0.0,
                end: 2.5,
                text: "Hello.".into(),
                language: "en".into(),
            },
            Segment {
                start: 3_723.004,
                end: 3_724.0,
                text: "Goodbye.".into(),
                language: "en".into(),
            },
        ];
        assert_eq!(
            subtitles(&segments, ','),
            "1\n00:00:00,000 --> 00:00:02,500\nHello.\n\n\
             2\n01:02:03,004 --> 01:02:04,000\nGoodbye.\n\n"
        );
        assert!(subtitles(&segments, '.').starts_with("00:00:00.000 --> 00:00:02.500\nHello."));
    }

    /// The AI SDK refused the whole transcript without them.
    #[test]
    fn a_segment_has_every_field_that_clients_require() {
        let segment = Segment {
            start: 0.5,
            end: 2.5,
            text: "Hello.".into(),
            language: "en".into(),
        };
        assert_eq!(
            verbose(&[segment], 3.0)["segments"],
            json!([{
                "id": 0, "start": 0.5, "end": 2.5, "text": "Hello.", "seek": 0, "tokens": [],
                "temperature": 0.0, "avg_logprob": 0.0, "compression_ratio": 1.0,
                "no_speech_prob": 0.0,
            }])
        );
    }
}
