//! The voices and recognisers that a client may choose by name.

use super::fault::Fault;

/// The name of the agent's own voice, which is the server's default unless the operator chose another.
pub const DEFAULT_VOICE: &str = "default";

/// OpenAI's voices, which clients name that know no others: they mean the agent's own, unless the operator has
/// given a voice that name.
const OPENAI_VOICES: [&str; 13] = [
    "alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage",
    "shimmer", "verse",
];

/// The names of the voices and recognisers that a client may choose, beside the agent's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offered {
    voices: Vec<String>,
    recognisers: Vec<String>,
}

impl FromIterator<String> for Offered {
    /// Offers voices of these names.
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        Self {
            voices: names.into_iter().collect(),
            recognisers: Vec::new(),
        }
    }
}

impl Offered {
    /// Offers recognisers of these names, too.
    #[must_use]
    pub fn with_recognisers(self, names: impl IntoIterator<Item = String>) -> Self {
        Self {
            recognisers: names.into_iter().collect(),
            ..self
        }
    }

    /// The recogniser that a client names. Any other name means the agent's own: clients name models of OpenAI's.
    pub fn recogniser(&self, name: &str) -> Option<&String> {
        self.recognisers.iter().find(|known| *known == name)
    }

    /// The voice that a client names; `None` if it is the agent's own. `param` is the path of the field.
    ///
    /// # Errors
    /// There is no such voice, or the client may not choose it.
    pub fn voice(&self, name: &str, param: &str) -> Result<Option<String>, Fault> {
        if self.voices.iter().any(|known| known == name) {
            return Ok(Some(name.to_owned()));
        }
        if name == DEFAULT_VOICE || OPENAI_VOICES.contains(&name) {
            return Ok(None);
        }
        let known: Vec<_> = self.voices().map(|known| format!("'{known}'")).collect();
        Err(Fault::value(param, name, &known.join(", ")))
    }

    /// The name under which a client is shown the agent's own voice before it has named one: one of OpenAI's, because
    /// the types of older clients list no other.
    pub(super) fn name_of_own(&self) -> &'static str {
        let is_given = |name: &&str| self.voices.iter().any(|known| known == name);
        let mut own = OPENAI_VOICES.into_iter().filter(|name| !is_given(name));
        own.next().unwrap_or(DEFAULT_VOICE)
    }

    /// The names of the voices, the default first.
    pub fn voices(&self) -> impl Iterator<Item = &str> {
        let named = self.voices.iter().map(String::as_str);
        std::iter::once(DEFAULT_VOICE).chain(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openais_names_mean_the_default_unless_the_operator_gave_them_to_a_voice() {
        let voices = Offered::from_iter(["amy".to_owned(), "nova".to_owned()]);
        let choice = |name| voices.voice(name, "voice");
        assert_eq!(choice("amy"), Ok(Some("amy".to_owned())));
        assert_eq!(choice("nova"), Ok(Some("nova".to_owned())));
        assert_eq!(choice("marin"), Ok(None));
        assert_eq!(choice(DEFAULT_VOICE), Ok(None));
        assert_eq!(voices.name_of_own(), "alloy");
        let all = OPENAI_VOICES.map(str::to_owned);
        assert_eq!(Offered::from_iter(all).name_of_own(), DEFAULT_VOICE);
        let fault = choice("nobody").unwrap_err();
        assert_eq!(fault.param.as_deref(), Some("voice"));
        assert!(fault.message.contains("'default', 'amy'"), "{fault:?}");
    }
}
