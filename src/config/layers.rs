//! Merges defaults, file, environment and command line, and tracks the origin of each key.

use super::error::{ConfigError, SettingOrigin, nearest, suggest};
use super::raw::{RawConfig, RawMcp, RawRoute};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Variables with a meaning of their own. Only the tests read `UNDERTONE_DATA`.
pub(super) const SPECIAL: [&str; 10] = [
    "UNDERTONE_ARI_PASSWORD",
    "UNDERTONE_AUTH_TOKEN",
    "UNDERTONE_CLIENT_SECRET_KEY",
    "UNDERTONE_CONFIG",
    "UNDERTONE_DATA",
    "UNDERTONE_LOG",
    "UNDERTONE_MODELS",
    "UNDERTONE_STORE_PASSWORD",
    "UNDERTONE_TWILIO_AUTH_TOKEN",
    "UNDERTONE_WEBHOOK_SECRET",
];

/// The section that comes several times.
const REPEATED: &str = "route";

/// The section whose tables have the operator's names.
const NAMED: &str = "mcp";

/// The merged settings that override the defaults.
#[derive(Debug, Default)]
pub(super) struct Layers {
    file: Option<PathBuf>,
    table: toml::Table,
    origins: BTreeMap<String, SettingOrigin>,
    ignored: Vec<Ignored>,
}

/// A variable with our prefix that is not a setting. Kubernetes sets such variables in every
/// container next to a service called "undertone" (`UNDERTONE_PORT`, `UNDERTONE_SERVICE_HOST`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    /// The variable's name.
    pub name: String,
    /// The most similar variable of ours, if it may be a typo.
    pub meant: Option<&'static str>,
}

impl Layers {
    /// Adds the configuration file at `path` with the content `text`.
    pub(super) fn file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let at = |span: Option<std::ops::Range<usize>>| SettingOrigin::File {
            path: path.into(),
            line: span.map_or(1, |span| line(span.start)),
        };
        let syntax = |error: toml::de::Error| ConfigError {
            origin: at(error.span()),
            problem: format!("this is not TOML: {}", error.message()),
            fix: "undertone.example.toml shows the syntax".into(),
        };
        let spans = DeTable::parse(text).map_err(syntax)?;
        self.file = Some(path.to_owned());
        for (section, content) in spans.get_ref() {
            let origin = at(Some(section.span()));
            if section.get_ref() == REPEATED {
                self.repeated(content.get_ref(), &origin, &at)?;
                continue;
            }
            let Some(content) = content.get_ref().as_table() else {
                return Err(not_a_section(section.get_ref(), origin));
            };
            if section.get_ref() == NAMED {
                self.named(content, &at)?;
                continue;
            }
            let keys = keys_of(section.get_ref(), &origin)?;
            for key in content.keys() {
                let origin = at(Some(key.span()));
                known_key(section.get_ref(), key.get_ref(), &keys, &origin)?;
                self.origins
                    .insert(format!("{}.{}", section.get_ref(), key.get_ref()), origin);
            }
        }
        self.table = toml::from_str(text).map_err(syntax)?;
        Ok(())
    }

    /// The tables `[[route]]`.
    fn repeated(
        &mut self,
        content: &DeValue<'_>,
        origin: &SettingOrigin,
        at: &dyn Fn(Option<std::ops::Range<usize>>) -> SettingOrigin,
    ) -> Result<(), ConfigError> {
        let keys = keys_of_table(&RawRoute::default());
        let tables = content.as_array().into_iter().flatten();
        let tables: Vec<_> = tables
            .map(|table| (table.span(), table.get_ref().as_table()))
            .collect();
        if content.as_array().is_none() || tables.iter().any(|(_, table)| table.is_none()) {
            return Err(ConfigError {
                origin: origin.clone(),
                problem: format!("`{REPEATED}` is not a list of tables"),
                fix: format!("write [[{REPEATED}]] on a line of its own and the keys below it"),
            });
        }
        for (nth, (span, table)) in tables.into_iter().enumerate() {
            let path = format!("{REPEATED}.{nth}");
            for key in table.into_iter().flat_map(|table| table.keys()) {
                let origin = at(Some(key.span()));
                known_key(REPEATED, key.get_ref(), &keys, &origin)?;
                self.origins
                    .insert(format!("{path}.{}", key.get_ref()), origin);
            }
            self.origins.insert(path, at(Some(span)));
        }
        Ok(())
    }

    /// The tables `[mcp.NAME]`.
    fn named(
        &mut self,
        tables: &DeTable<'_>,
        at: &dyn Fn(Option<std::ops::Range<usize>>) -> SettingOrigin,
    ) -> Result<(), ConfigError> {
        let keys = keys_of_table(&RawMcp::default());
        for (name, table) in tables {
            let (path, origin) = (format!("{NAMED}.{}", name.get_ref()), at(Some(name.span())));
            let Some(table) = table.get_ref().as_table() else {
                return Err(ConfigError {
                    origin,
                    problem: format!("`{path}` is not a table"),
                    fix: format!("write [{NAMED}.NAME] on a line of its own and the keys below it"),
                });
            };
            for key in table.keys() {
                let origin = at(Some(key.span()));
                known_key(&path, key.get_ref(), &keys, &origin)?;
                self.origins
                    .insert(format!("{path}.{}", key.get_ref()), origin);
            }
            self.origins.insert(path, origin);
        }
        Ok(())
    }

    /// Adds every `UNDERTONE_SECTION__KEY` variable. Those without `__` and without a meaning of
    /// their own are ignored.
    pub(super) fn environment(
        &mut self,
        variables: &BTreeMap<String, String>,
    ) -> Result<(), ConfigError> {
        for (name, value) in variables {
            match name.as_str() {
                "UNDERTONE_LOG" => self.variable("log.level", name, value),
                "UNDERTONE_MODELS" => self.variable("models.dir", name, value),
                special if SPECIAL.contains(&special) => {}
                other if !other.contains("__") => self.ignored.push(Ignored {
                    name: name.clone(),
                    meant: nearest(other, &SPECIAL),
                }),
                _ => self.variable(&key_of_variable(name)?, name, value),
            }
        }
        Ok(())
    }

    /// Adds one command-line option.
    pub(super) fn flag(&mut self, key: &str, flag: &str, value: toml::Value) {
        self.set(key, value, SettingOrigin::Flag(flag.into()));
    }

    /// The merged values, typed.
    pub(super) fn raw(&self) -> Result<RawConfig, ConfigError> {
        serde_path_to_error::deserialize(toml::Value::Table(self.table.clone()))
            .map_err(|error| self.wrong_type(&error.path().to_string(), error.inner().message()))
    }

    /// The origin of the value of `key` (`section.key`). What stands within a table has the origin of the table.
    pub(super) fn origin(&self, key: &str) -> SettingOrigin {
        fn outer<'k>(key: &&'k str) -> Option<&'k str> {
            key.rsplit_once('.').map(|(outer, _)| outer)
        }
        std::iter::successors(Some(key), outer)
            .find_map(|key| self.origins.get(key).cloned())
            .unwrap_or(SettingOrigin::Default)
    }

    /// The configuration file that was read.
    pub(super) fn file_read(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The variables with our prefix that are not settings.
    pub(super) fn ignored(&self) -> &[Ignored] {
        &self.ignored
    }

    /// The folder that a relative path in `key` is resolved against, for a default one that of the configuration
    /// file; `None` is the working directory.
    pub(super) fn base_of(&self, key: &str) -> Option<PathBuf> {
        match self.origin(key) {
            SettingOrigin::File { path, .. } => path.parent().map(Path::to_path_buf),
            SettingOrigin::Default => self.file_read()?.parent().map(Path::to_path_buf),
            SettingOrigin::Env(_) | SettingOrigin::Flag(_) => None,
        }
    }

    fn variable(&mut self, key: &str, name: &str, value: &str) {
        let typed = typed(value, &default_of(key));
        self.set(key, typed, SettingOrigin::Env(name.into()));
    }

    fn set(&mut self, key: &str, value: toml::Value, origin: SettingOrigin) {
        let Some((section, name)) = key.split_once('.') else {
            return;
        };
        let section = self
            .table
            .entry(section)
            .or_insert_with(|| toml::Value::Table(toml::Table::new()));
        if let Some(section) = section.as_table_mut() {
            section.insert(name.into(), value);
            self.origins.insert(key.into(), origin);
        }
    }

    fn wrong_type(&self, path: &str, message: &str) -> ConfigError {
        let repeated = path.strip_prefix(REPEATED).filter(|of| of.starts_with('['));
        let repeated = repeated.map(|of| format!("{REPEATED}.{}", of[1..].replace(']', "")));
        let path = repeated.as_deref().unwrap_or(path);
        let key = path.split('[').next().unwrap_or(path);
        if key.matches('.').count() > 1 {
            // Within a table whose names are the operator's.
            return ConfigError {
                origin: self.origin(key),
                problem: format!("{key}: {message}"),
                fix: "undertone.example.toml has the keys and their types".into(),
            };
        }
        let value = key
            .split_once('.')
            .and_then(|(section, name)| self.table.get(section)?.get(name));
        ConfigError {
            origin: self.origin(key),
            problem: format!(
                "{key} = {} has the wrong type",
                value.map_or_else(String::new, ToString::to_string)
            ),
            fix: format!("it must be {}", kind_of(&default_of(key))),
        }
    }
}

/// Every key (`section.key`) with its default value, in the order of the example file.
pub(super) fn defaults() -> Vec<(String, Json)> {
    flatten(&RawConfig::default())
}

/// Every key (`section.key`) of `config` with its value.
pub(super) fn flatten(config: &RawConfig) -> Vec<(String, Json)> {
    let Ok(Json::Object(sections)) = serde_json::to_value(config) else {
        return Vec::new();
    };
    let mut keys = Vec::new();
    for (section, content) in sections {
        if let Json::Object(content) = content {
            keys.extend(
                content
                    .into_iter()
                    .map(|(key, value)| (format!("{section}.{key}"), value)),
            );
        }
    }
    keys
}

/// Every key of a table.
fn keys_of_table(table: &impl serde::Serialize) -> Vec<String> {
    match serde_json::to_value(table) {
        Ok(Json::Object(keys)) => keys.into_iter().map(|(key, _)| key).collect(),
        _ => Vec::new(),
    }
}

fn default_of(key: &str) -> Json {
    defaults()
        .into_iter()
        .find_map(|(known, value)| (known == key).then_some(value))
        .unwrap_or_default()
}

fn sections() -> Vec<String> {
    let mut sections: Vec<String> = defaults()
        .iter()
        .filter_map(|(key, _)| Some(key.split_once('.')?.0.to_owned()))
        .collect();
    sections.dedup();
    sections
}

fn keys_of(section: &str, origin: &SettingOrigin) -> Result<Vec<String>, ConfigError> {
    let keys: Vec<String> = defaults()
        .into_iter()
        .filter_map(|(key, _)| Some(key.strip_prefix(section)?.strip_prefix('.')?.to_owned()))
        .collect();
    if keys.is_empty() {
        let known = sections();
        return Err(ConfigError {
            origin: origin.clone(),
            problem: format!("there is no section [{section}]"),
            fix: suggest(section, known.iter().map(String::as_str)),
        });
    }
    Ok(keys)
}

fn known_key(
    section: &str,
    key: &str,
    known: &[String],
    origin: &SettingOrigin,
) -> Result<(), ConfigError> {
    if known.iter().any(|candidate| candidate == key) {
        return Ok(());
    }
    Err(ConfigError {
        origin: origin.clone(),
        problem: format!("[{section}] has no key `{key}`"),
        fix: suggest(key, known.iter().map(String::as_str)),
    })
}

fn not_a_section(name: &str, origin: SettingOrigin) -> ConfigError {
    let known = sections();
    let (problem, fix) = if known.iter().any(|section| section == name) {
        let fix = format!("write [{name}] on a line of its own and the keys below it");
        (format!("`{name}` is a section, not a key"), fix)
    } else {
        let fix = format!("put it below one of [{}]", known.join("], ["));
        (format!("`{name}` stands outside of any section"), fix)
    };
    ConfigError {
        origin,
        problem,
        fix,
    }
}

fn variable_of(key: &str) -> String {
    format!("UNDERTONE_{}", key.replace('.', "__").to_uppercase())
}

fn key_of_variable(name: &str) -> Result<String, ConfigError> {
    let keys: Vec<String> = defaults().into_iter().map(|(key, _)| key).collect();
    if let Some(key) = keys.iter().find(|key| variable_of(key) == name) {
        return Ok(key.clone());
    }
    let names: Vec<String> = keys.iter().map(|key| variable_of(key)).collect();
    let mut known: Vec<&str> = names.iter().map(String::as_str).collect();
    known.extend(SPECIAL);
    let fix = nearest(name, &known).map_or_else(
        || "names are UNDERTONE_SECTION__KEY, as in UNDERTONE_SERVER__PORT".to_owned(),
        |near| format!("did you mean {near}? Names are UNDERTONE_SECTION__KEY"),
    );
    Err(ConfigError {
        origin: SettingOrigin::Env(name.into()),
        problem: "there is no such setting".into(),
        fix,
    })
}

/// Parses a variable's text as the type of the key's default. Text that does not parse stays a
/// string, and the type check then refuses it with the key's name.
fn typed(text: &str, default: &Json) -> toml::Value {
    let parsed = || match default {
        Json::Number(number) if number.is_i64() => text.parse().ok().map(toml::Value::Integer),
        Json::Bool(_) => text.parse().ok().map(toml::Value::Boolean),
        Json::Array(_) => Some(toml::Value::Array(list(text))),
        Json::String(_) => None,
        _ => text.parse().ok().map(toml::Value::Float),
    };
    parsed().unwrap_or_else(|| toml::Value::String(text.into()))
}

fn list(text: &str) -> Vec<toml::Value> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(|item| toml::Value::String(item.into()))
        .collect()
}

fn kind_of(default: &Json) -> &'static str {
    match default {
        Json::Bool(_) => "true or false",
        Json::Number(number) if number.is_i64() => "a whole number",
        Json::String(_) => "text in quotes",
        Json::Array(_) => "a list of texts, as in [\"a\", \"b\"]",
        Json::Object(_) => "a table, as in { name = \"value\" }",
        _ => "a number",
    }
}
