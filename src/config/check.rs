//! Checks shared by the settings of several sections. Each error names the key and its origin.

use super::Environment;
use super::Scope;
use super::error::{ConfigError, SettingOrigin, nearest};
use super::layers::Layers;
use crate::conversation::Micros;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use url::Url;

/// The allowed form of a language.
pub(super) const TAGS: &str = "name a language in BCP 47, such as \"de\" or \"es-MX\"";

/// How to mend a speed.
pub(super) const SPEEDS: &str = "set it to 0.25 to 4, where 1 is the voice's usual speed";

pub(super) type Checked<T> = Result<T, ConfigError>;

/// The settings' origins, and the environment that may contain secrets.
pub(super) struct Check<'a> {
    pub(super) layers: &'a Layers,
    pub(super) env: &'a Environment,
    pub(super) scope: Scope,
}

impl Check<'_> {
    /// An http or https address without a query or a password.
    pub(super) fn address(&self, key: &str, typed: &str, fix: &str) -> Checked<Url> {
        let url = self.address_with_query(key, typed, fix)?;
        match url.query() {
            None => Ok(url),
            Some(_) => Err(self.wrong(key, format!("{key} has a query, `?…`"), fix)),
        }
    }

    /// An http or https address without a password.
    pub(super) fn address_with_query(&self, key: &str, typed: &str, fix: &str) -> Checked<Url> {
        let plain = |url: &Url| {
            matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && url.username().is_empty()
                && url.password().is_none()
                && url.fragment().is_none()
        };
        let url = Url::parse(typed.trim()).ok().filter(plain);
        url.ok_or_else(|| {
            let problem = format!("{key} is not a plain http or https address");
            self.wrong(key, problem, fix)
        })
    }

    /// A secret from the file that `key` names or from the environment, and where it was found.
    pub(super) fn secret<'a>(
        &self,
        key: &'a str,
        file: &str,
        variable: &'a str,
    ) -> Checked<Option<(&'a str, String)>> {
        match (self.secret_file(key, file)?, self.env.get(variable)) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(self.wrong(
                key,
                format!("{key} and {variable} are both set"),
                "keep one of them",
            )),
            (Some(secret), None) => Ok(Some((key, secret))),
            (None, Some(secret)) => Ok(Some((variable, secret.trim().to_owned()))),
        }
    }

    pub(super) fn secret_file(&self, key: &str, typed: &str) -> Checked<Option<String>> {
        self.text_file(key, typed)?
            .map(|text| match text.trim() {
                "" => Err(self.wrong(
                    key,
                    format!("{key}: {typed} is empty"),
                    "put the secret in it",
                )),
                secret => Ok(secret.to_owned()),
            })
            .transpose()
    }

    pub(super) fn text_file(&self, key: &str, typed: &str) -> Checked<Option<String>> {
        let Some(path) = self.path(key, typed) else {
            return Ok(None);
        };
        std::fs::read_to_string(&path).map(Some).map_err(|error| {
            self.wrong(
                key,
                format!("{key}: cannot read {}: {error}", path.display()),
                "name a file that this user may read",
            )
        })
    }

    /// The path in `key`, resolved against the folder of the configuration file if that sets it or nothing does;
    /// `None` if empty.
    pub(super) fn path(&self, key: &str, typed: &str) -> Option<PathBuf> {
        let base = self.layers.base_of(key).unwrap_or_default();
        (!typed.is_empty()).then(|| base.join(typed))
    }

    pub(super) fn existing(&self, key: &str, typed: &str) -> Checked<Option<PathBuf>> {
        let path = self.path(key, typed);
        match path.as_ref().filter(|path| !path.exists()) {
            None => Ok(path),
            Some(path) => Err(self.wrong(
                key,
                format!("{key}: there is nothing at {}", path.display()),
                "correct the path, or remove the key to use the default model",
            )),
        }
    }

    pub(super) fn whole<T: TryFrom<i64>>(
        &self,
        key: &str,
        typed: i64,
        range: RangeInclusive<i64>,
    ) -> Checked<T> {
        let fitting = range.contains(&typed).then(|| T::try_from(typed).ok());
        fitting
            .flatten()
            .ok_or_else(|| self.out_of(key, typed, &range))
    }

    pub(super) fn seconds(
        &self,
        key: &str,
        typed: i64,
        range: RangeInclusive<i64>,
    ) -> Checked<Micros> {
        let seconds: u64 = self.whole(key, typed, range)?;
        Ok(Micros::from_ms(1_000 * seconds))
    }

    pub(super) fn millis(
        &self,
        key: &str,
        typed: i64,
        range: RangeInclusive<i64>,
    ) -> Checked<Micros> {
        self.whole(key, typed, range).map(Micros::from_ms)
    }

    pub(super) fn real(&self, key: &str, typed: f64, range: RangeInclusive<f64>) -> Checked<f64> {
        if range.contains(&typed) {
            return Ok(typed);
        }
        Err(self.out_of(key, typed, &range))
    }

    pub(super) fn out_of<T: std::fmt::Display>(
        &self,
        key: &str,
        typed: T,
        range: &RangeInclusive<T>,
    ) -> ConfigError {
        self.wrong(
            key,
            format!("{key} = {typed} is out of range"),
            &format!("use {} to {}", range.start(), range.end()),
        )
    }

    pub(super) fn ordered<T: PartialOrd + std::fmt::Display>(
        &self,
        less: (&str, T),
        more: (&str, T),
    ) -> Checked<()> {
        if less.1 <= more.1 {
            return Ok(());
        }
        let (key, other) = (less.0, more.0);
        let is_default = self.layers.origin(key) == SettingOrigin::Default;
        Err(self.wrong(
            if is_default { other } else { key },
            format!("{key} = {} is longer than {other} = {}", less.1, more.1),
            "the first must not be longer than the second",
        ))
    }

    pub(super) fn choice<T: Clone>(
        &self,
        key: &str,
        typed: &str,
        choices: &[(&str, T)],
    ) -> Checked<T> {
        let found = choices.iter().find(|(name, _)| *name == typed);
        found.map(|(_, choice)| choice.clone()).ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            let meant = nearest(typed, &names)
                .map(|near| format!("did you mean \"{near}\"? "))
                .unwrap_or_default();
            self.wrong(
                key,
                format!("{key} = \"{typed}\" is unknown"),
                &format!("{meant}use one of: {}", names.join(", ")),
            )
        })
    }

    pub(super) fn wrong(&self, key: &str, problem: String, fix: &str) -> ConfigError {
        let is_variable = ["UNDERTONE_", "OTEL_"]
            .iter()
            .any(|begin| key.starts_with(begin));
        let origin = if is_variable {
            SettingOrigin::Env(key.into())
        } else {
            self.layers.origin(key)
        };
        ConfigError {
            origin,
            problem,
            fix: fix.into(),
        }
    }
}
