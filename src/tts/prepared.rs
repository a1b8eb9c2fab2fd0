//! Clips made while everything still works, to be played when it does not.

use super::{Kept, Speaker, Tts};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Apologies, greetings and the like, synthesised before they are needed and kept in memory, by
/// speaker. All engines of a server share them.
#[derive(Debug, Default)]
pub struct Prepared(RwLock<HashMap<Speaker, Clips>>);

type Clips = HashMap<String, Arc<[f32]>>;

impl Prepared {
    /// Takes over those of `texts` that were kept when the program last ran.
    pub fn recall<'a>(
        &self,
        speaker: &Speaker,
        kept: &Kept,
        texts: impl IntoIterator<Item = &'a String>,
    ) {
        for text in texts {
            if let Some(clip) = kept.get(text) {
                self.put(speaker, text.clone(), clip);
            }
        }
    }

    /// Keeps each of `texts` that was synthesised for the next time that the program runs.
    pub fn keep<'a>(
        &self,
        speaker: &Speaker,
        kept: &Kept,
        texts: impl IntoIterator<Item = &'a String>,
    ) {
        for text in texts {
            if let Some(clip) = self.get(speaker, text) {
                kept.put(text, &clip);
            }
        }
        kept.tidy();
    }

    /// Synthesises each of `texts` that is not prepared yet. A text that fails is logged and left out: a
    /// server without an apology is better than no server. Returns the texts that were synthesised.
    pub fn render(
        &self,
        speaker: &Speaker,
        tts: &mut dyn Tts,
        texts: impl IntoIterator<Item = String>,
    ) -> Vec<String> {
        let mut made = Vec::new();
        for text in texts {
            if self.get(speaker, &text).is_none() {
                match super::whole_at(tts, &text, speaker.speed()) {
                    Ok(clip) => {
                        self.put(speaker, text.clone(), clip);
                        made.push(text);
                    }
                    Err(error) => tracing::warn!(%error, "a phrase could not be prepared"),
                }
            }
        }
        made
    }

    /// Keeps a clip of this text, at the speaker's own sample rate.
    pub fn put(&self, speaker: &Speaker, text: String, clip: Vec<f32>) {
        if !clip.is_empty() {
            let mut clips = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let clips = clips.entry(speaker.clone()).or_default();
            clips.insert(text, clip.into());
        }
    }

    /// The audio of exactly this text by exactly this speaker, mono in -1..1, if it was prepared.
    #[must_use]
    pub fn get(&self, speaker: &Speaker, text: &str) -> Option<Arc<[f32]>> {
        let clips = self.0.read().unwrap_or_else(PoisonError::into_inner);
        clips.get(speaker)?.get(text).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tts::{Scripted, Speed};

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    fn somebody() -> Speaker {
        Speaker {
            voice: Some("somebody".into()),
            language: Some("de".into()),
            speed: Speed::of(1.5),
        }
    }

    #[test]
    fn a_prepared_text_has_its_audio() {
        let prepared = Prepared::default();
        let texts = texts(&["Sorry about that.", "Hi."]);
        prepared.render(&somebody(), &mut Scripted::new(), texts);
        let clip = prepared.get(&somebody(), "Sorry about that.").unwrap();
        assert_eq!(clip.len(), Scripted::samples(3) * 2 / 3);
        assert!(prepared.get(&somebody(), "Sorry").is_none());
    }

    #[test]
    fn a_text_is_prepared_for_one_speaker() {
        let prepared = Prepared::default();
        prepared.render(&somebody(), &mut Scripted::new(), texts(&["Hi."]));
        let same_voice = Speaker {
            language: None,
            ..somebody()
        };
        let slower = Speaker {
            speed: None,
            ..somebody()
        };
        for other in [Speaker::default(), same_voice, slower] {
            assert!(prepared.get(&other, "Hi.").is_none(), "{other:?}");
        }
    }

    #[test]
    fn a_text_that_fails_is_left_out_and_the_others_stay() {
        let (prepared, server) = (Prepared::default(), Speaker::default());
        let texts = texts(&["One two.", "Three."]);
        let made = prepared.render(&server, &mut Scripted::failing_on(1), texts);
        assert!(prepared.get(&server, "One two.").is_none());
        assert_eq!(made, ["Three."]);
    }

    #[test]
    fn what_was_kept_is_not_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let (kept, server) = (Kept::new(folder.path(), "voice"), Speaker::default());
        let all = texts(&["One two.", "Three."]);
        let before = Prepared::default();
        let made = before.render(&server, &mut Scripted::new(), all.clone());
        before.keep(&server, &kept, &made);
        let after = Prepared::default();
        after.recall(&server, &kept, &all[1..]);
        let made = after.render(&server, &mut Scripted::new(), all);
        assert_eq!(made, ["One two."]);
        assert!(after.get(&server, "Three.").is_some());
    }
}
