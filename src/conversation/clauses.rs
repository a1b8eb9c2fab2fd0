//! Clause cutting.

/// Cuts streamed text into clauses.
#[derive(Debug, Default)]
pub struct Clauses {
    text: String,
}

impl Clauses {
    /// Adds text and returns the clauses that are complete.
    pub fn push(&mut self, text: &str) -> Vec<String> {
        self.text.push_str(text);
        let mut out = Vec::new();
        while let Some(at) = self
            .text
            .find(['.', '?', '!'])
            .filter(|at| at + 1 < self.text.len())
        {
            let rest = self.text.split_off(at + 1);
            out.push(std::mem::replace(
                &mut self.text,
                rest.trim_start().to_owned(),
            ));
        }
        out
    }

    /// The rest.
    pub fn finish(self) -> Option<String> {
        (!self.text.trim().is_empty()).then(|| self.text.trim().to_owned())
    }
}
