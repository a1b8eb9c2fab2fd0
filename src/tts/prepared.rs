//! Clips made while everything still works, to be played when it does not.

use std::collections::HashMap;
use std::sync::Arc;

use super::Tts;

/// Apologies, greeting and the like, synthesised at start and kept in memory.
#[derive(Debug, Clone, Default)]
pub struct Prepared {
    sample_rate: u32,
    clips: HashMap<String, Arc<[f32]>>,
}

impl Prepared {
    /// Speaks each of `texts` once. A text that cannot be spoken is logged and left out: a server
    /// without an apology is better than no server.
    pub fn render(tts: &mut dyn Tts, texts: impl IntoIterator<Item = String>) -> Self {
        let mut clips = HashMap::new();
        for text in texts {
            if !clips.contains_key(&text)
                && let Some(clip) = clip(tts, &text)
            {
                clips.insert(text, clip);
            }
        }
        Self {
            sample_rate: tts.sample_rate(),
            clips,
        }
    }

    /// Keeps a clip of this text, at the same rate as the others.
    pub fn put(&mut self, text: String, clip: Vec<f32>) {
        if !clip.is_empty() {
            self.clips.insert(text, clip.into());
        }
    }

    /// The audio of exactly this text, mono in -1..1, if it was prepared.
    #[must_use]
    pub fn get(&self, text: &str) -> Option<Arc<[f32]>> {
        self.clips.get(text).cloned()
    }

    /// Samples per second of every clip, Hz.
    #[must_use]
    pub fn sample_rate(&self) -> u32 {
        self.sample_rate
    }

    /// How many clips there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.clips.len()
    }

    /// Whether nothing was prepared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clips.is_empty()
    }
}

fn clip(tts: &mut dyn Tts, text: &str) -> Option<Arc<[f32]>> {
    match super::whole(tts, text) {
        Ok(samples) if samples.is_empty() => None,
        Ok(samples) => Some(samples.into()),
        Err(error) => {
            tracing::warn!(%error, "a clip could not be prepared");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tts::Scripted;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn a_prepared_text_has_its_audio() {
        let prepared = Prepared::render(&mut Scripted::new(), texts(&["Sorry about that.", "Hi."]));
        let clip = prepared.get("Sorry about that.").unwrap();
        assert_eq!(clip.len(), Scripted::samples(3));
        assert_eq!(prepared.sample_rate(), 22_050);
        assert!(prepared.get("Sorry").is_none());
    }

    #[test]
    fn a_text_that_fails_is_left_out_and_the_others_stay() {
        let prepared =
            Prepared::render(&mut Scripted::failing_on(1), texts(&["One two.", "Three."]));
        assert!(prepared.get("One two.").is_none());
        assert_eq!(prepared.len(), 1);
    }
}
