//! The voices that a client may choose by name.

use super::fault::Fault;

/// The name of the agent's own voice, which is the server's default unless the operator chose another.
pub const DEFAULT_VOICE: &str = "default";

/// OpenAI's voices, which clients name that know no others: they mean the agent's own, unless the operator has
/// given a voice that name.
const OPENAI_VOICES: [&str; 13] = [
    "alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage",
    "shimmer", "verse",
];

/// The names of the voices that a client may choose, beside the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfferedVoices(Vec<String>);

impl FromIterator<String> for OfferedVoices {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        Self(names.into_iter().collect())
    }
}

impl OfferedVoices {
    /// The voice that a client names; `None` if it is the agent's own. `param` is the path of the field.
    ///
    /// # Errors
    /// There is no such voice, or the client may not choose it.
    pub fn choice(&self, name: &str, param: &str) -> Result<Option<String>, Fault> {
        if self.0.iter().any(|known| known == name) {
            return Ok(Some(name.to_owned()));
        }
        if name == DEFAULT_VOICE || OPENAI_VOICES.contains(&name) {
            return Ok(None);
        }
        let known: Vec<_> = self.names().map(|known| format!("'{known}'")).collect();
        Err(Fault::value(param, name, &known.join(", ")))
    }

    /// All names, the default first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let named = self.0.iter().map(String::as_str);
        std::iter::once(DEFAULT_VOICE).chain(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openais_names_mean_the_default_unless_the_operator_gave_them_to_a_voice() {
        let voices = OfferedVoices::from_iter(["amy".to_owned(), "nova".to_owned()]);
        let choice = |name| voices.choice(name, "voice");
        assert_eq!(choice("amy"), Ok(Some("amy".to_owned())));
        assert_eq!(choice("nova"), Ok(Some("nova".to_owned())));
        assert_eq!(choice("marin"), Ok(None));
        assert_eq!(choice(DEFAULT_VOICE), Ok(None));
        let fault = choice("nobody").unwrap_err();
        assert_eq!(fault.param.as_deref(), Some("voice"));
        assert!(fault.message.contains("'default', 'amy'"), "{fault:?}");
    }
}
