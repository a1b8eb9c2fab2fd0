//! The agents, one file each in the folder `agents` beside the configuration file, and the routes to them.

use super::check::{Check, Checked, SPEEDS, TAGS};
use super::error::{ConfigError, SettingOrigin, suggest};
use super::raw::RawRoute;
use super::{AgentConfig, Keypad, RemoteLlm, Scope, ToolsConfig};
use crate::asr::keyterms;
use crate::language::is_tag;
use crate::server::Twilio;
use crate::session::{DEFAULT_AGENT, Route, TRANSPORTS, check_greeting, check_instructions};
use crate::tools::{Audience, Named, Origin, builtin};
use crate::transport::realtime::DEFAULT_MODEL;
use crate::tts::Speed;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::de::DeTable;

/// The folder, beside the configuration file.
const FOLDER: &str = "agents";

/// The keys of a file.
const KEYS: [&str; 15] = [
    "description",
    "instructions",
    "instructions_file",
    "greeting",
    "model",
    "voice",
    "speed",
    "language",
    "recogniser",
    "keyterms",
    "tools",
    "speculation",
    "plans",
    "handoff",
    "by_name",
];

/// The file of an agent.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawAgent {
    description: String,
    instructions: Option<String>,
    instructions_file: Option<String>,
    greeting: Option<String>,
    model: Option<String>,
    voice: Option<String>,
    speed: Option<f64>,
    language: Option<String>,
    recogniser: Option<String>,
    keyterms: Option<Vec<String>>,
    tools: Option<Vec<String>>,
    speculation: Option<bool>,
    plans: Option<bool>,
    handoff: Vec<String>,
    by_name: bool,
}

/// The names that agents may use.
pub(super) struct Known<'a> {
    pub(super) models: &'a BTreeMap<String, RemoteLlm>,
    pub(super) voices: Vec<&'a String>,
    pub(super) recognisers: Vec<&'a String>,
    pub(super) tools: &'a ToolsConfig,
    pub(super) twilio: Option<&'a Twilio>,
    pub(super) keypad: Option<Keypad>,
}

impl Known<'_> {
    /// The tools that an agent may have.
    fn tools(&self) -> Vec<String> {
        let declared = self.tools.declared.iter();
        let declared = declared.filter(|tool| tool.audience != Audience::Lookup);
        let declared = declared.map(|tool| tool.declaration.spec.name.clone());
        let transfer = self.twilio.filter(|twilio| !twilio.transfer.is_empty());
        let transfer = transfer.map(|_| builtin::TRANSFER_CALL.to_owned());
        let all = builtin::always_there().into_iter().chain(declared);
        let keypad = self.keypad.map(|_| builtin::SEND_DIGITS.to_owned());
        let all: BTreeSet<String> = all.chain(transfer).chain(keypad).collect();
        all.into_iter().collect()
    }
}

/// The text of an agent's file, for errors with the key's line.
struct File {
    path: PathBuf,
    text: String,
}

impl File {
    fn wrong(&self, key: &str, problem: impl std::fmt::Display, fix: &str) -> ConfigError {
        let keys = DeTable::parse(&self.text).ok();
        let span = keys.and_then(|keys| {
            let mut keys = keys.get_ref().keys();
            keys.find(|name| name.get_ref() == key)
                .map(|name| name.span())
        });
        self.at(span, format!("{key}: {problem}"), fix)
    }

    fn at(&self, span: Option<std::ops::Range<usize>>, problem: String, fix: &str) -> ConfigError {
        let before = span.map_or("", |span| &self.text[..span.start.min(self.text.len())]);
        ConfigError {
            origin: SettingOrigin::File {
                path: self.path.clone(),
                line: 1 + before.matches('\n').count(),
            },
            problem,
            fix: fix.into(),
        }
    }

    fn parsed(&self) -> Checked<RawAgent> {
        let wrong = |key: String, error: &toml::de::Error| {
            let problem = format!("{key}{}", error.message());
            self.at(
                error.span(),
                problem,
                "docs/agents.md has the keys and their types",
            )
        };
        let syntax = |error| wrong("this is not an agent: ".into(), &error);
        let keys = DeTable::parse(&self.text).map_err(syntax)?;
        for key in keys.get_ref().keys() {
            let name: &str = key.get_ref();
            if !KEYS.contains(&name) {
                let problem = format!("an agent has no key `{name}`");
                return Err(self.at(Some(key.span()), problem, &suggest(name, KEYS)));
            }
        }
        let document = toml::Deserializer::parse(&self.text).map_err(syntax)?;
        serde_path_to_error::deserialize(document)
            .map_err(|error| wrong(format!("{}: ", error.path()), error.inner()))
    }
}

impl Check<'_> {
    /// The agents. Without the folder there are none.
    pub(super) fn agents(&self, known: &Known<'_>) -> Checked<Vec<AgentConfig>> {
        let folder = self.layers.file_read().and_then(Path::parent);
        let folder = folder.map(|folder| folder.join(FOLDER));
        let folder = folder.filter(|folder| self.scope > Scope::Models && folder.is_dir());
        let Some(folder) = folder else {
            return Ok(Vec::new());
        };
        let files = toml_files(&folder).map_err(|error| ConfigError {
            origin: SettingOrigin::Default,
            problem: format!("cannot read {}: {error}", folder.display()),
            fix: "make the folder and its files readable for this user".into(),
        })?;
        let names = files.keys().cloned();
        let names: BTreeSet<String> = names.chain([DEFAULT_AGENT.to_owned()]).collect();
        let agents = files.into_iter();
        let agents: Vec<_> = agents
            .map(|(name, path)| self.agent(name, path, &names, known))
            .collect::<Checked<_>>()?;
        if agents.iter().any(|agent| !agent.handoff.is_empty()) {
            self.nothing_is_named(
                builtin::TRANSFER_TO_AGENT,
                "how agents hand over",
                known.tools,
            )?;
        }
        Ok(agents)
    }

    fn agent(
        &self,
        name: String,
        path: PathBuf,
        names: &BTreeSet<String>,
        known: &Known<'_>,
    ) -> Checked<AgentConfig> {
        let text = std::fs::read_to_string(&path);
        let file = File {
            text: text.as_ref().map_or_else(|_| String::new(), Clone::clone),
            path,
        };
        if let Err(error) = text {
            let fix = "make the file readable for this user";
            return Err(file.at(None, format!("cannot read it: {error}"), fix));
        }
        check_name(&name, &file)?;
        let raw = file.parsed()?;
        let instructions = instructions(&raw, &file)?;
        let greeting = raw.greeting.map(|typed| typed.trim().to_owned());
        if let Some(typed) = &greeting {
            check_greeting(typed)
                .map_err(|(problem, fix)| file.wrong("greeting", problem, &fix))?;
        }
        let one_of = |key: &str, named: &String, known: Vec<&str>, nothing: &str| {
            if known.contains(&named.as_str()) {
                return Ok(());
            }
            let fix = match known.is_empty() {
                true => nothing.to_owned(),
                false => suggest(named, known),
            };
            Err(file.wrong(key, format!("there is no \"{named}\""), &fix))
        };
        if let Some(model) = &raw.model {
            let models = known.models.keys().map(String::as_str).collect();
            let fix = "add a section [llm.models.NAME] to the configuration, or remove the key";
            one_of("model", model, models, fix)?;
        }
        if let Some(voice) = &raw.voice {
            let voices = known.voices.iter().map(|name| name.as_str()).collect();
            let fix =
                "add it to tts.voices or tts.services in the configuration, or remove the key";
            one_of("voice", voice, voices, fix)?;
        }
        let speed = raw.speed.map(|typed| {
            let wrong = || file.wrong("speed", format!("{typed} is out of bounds"), SPEEDS);
            Speed::of(typed).ok_or_else(wrong)
        });
        if let Some(language) = &raw.language
            && !is_tag(language)
        {
            let problem = format!("\"{language}\" is no BCP 47 tag");
            return Err(file.wrong("language", problem, TAGS));
        }
        if let Some(recogniser) = &raw.recogniser {
            let known = known.recognisers.iter().map(|name| name.as_str());
            let fix = "add it to asr.services in the configuration, or remove the key";
            one_of("recogniser", recogniser, known.collect(), fix)?;
        }
        if let Some((problem, fix)) = raw.keyterms.as_deref().and_then(keyterms::wrong) {
            return Err(file.wrong("keyterms", problem, fix));
        }
        let tools = known.tools();
        for tool in raw.tools.iter().flatten() {
            let tools = tools.iter().map(String::as_str).collect();
            one_of("tools", tool, tools, "")?;
        }
        for to in &raw.handoff {
            let others = names.iter().filter(|other| **other != name);
            one_of(
                "handoff",
                to,
                others.map(String::as_str).collect(),
                "add its file",
            )?;
        }
        Ok(AgentConfig {
            name,
            file: file.path,
            description: raw.description.trim().to_owned(),
            instructions,
            greeting,
            model: raw.model,
            voice: raw.voice,
            speed: speed.transpose()?,
            language: raw.language,
            recogniser: raw.recogniser,
            keyterms: raw.keyterms.map(Arc::from),
            tools: raw.tools.map(BTreeSet::from_iter),
            speculation: raw.speculation,
            plans: raw.plans,
            handoff: raw.handoff,
            by_name: raw.by_name,
        })
    }

    /// A tool of the server's own, which is `what`, has its name to itself.
    pub(super) fn nothing_is_named(
        &self,
        name: &str,
        what: &str,
        tools: &ToolsConfig,
    ) -> Checked<()> {
        let mut declared = tools.declared.iter();
        let taken = declared.find(|tool| tool.declaration.spec.name == name);
        taken.map_or(Ok(()), |tool| {
            Err(ConfigError {
                origin: SettingOrigin::File {
                    path: tool.file.clone(),
                    line: 1,
                },
                problem: format!("{name} is {what}"),
                fix: "give the tool another name".into(),
            })
        })
    }

    /// The routes, in their order.
    pub(super) fn routes(&self, raw: &[RawRoute], agents: &[AgentConfig]) -> Checked<Vec<Route>> {
        if self.scope == Scope::Models {
            return Ok(Vec::new());
        }
        let routes = raw.iter().enumerate();
        let routes: Vec<Route> = routes
            .map(|(at, raw)| self.route(at, raw, agents))
            .collect::<Checked<_>>()?;
        let leads_all = |route: &Route| route.transport.is_none() && route.values.is_empty();
        match routes.iter().position(leads_all) {
            Some(at) if at + 1 < routes.len() => Err(self.wrong(
                &format!("route.{}", at + 1),
                "[[route]]: the route before this one has no condition, so nothing comes here"
                    .into(),
                "put the route without conditions last",
            )),
            _ => Ok(routes),
        }
    }

    fn route(&self, at: usize, raw: &RawRoute, agents: &[AgentConfig]) -> Checked<Route> {
        let key = |key: &str| format!("route.{at}.{key}");
        let wrong = |of: &str, problem: String, fix: &str| {
            Err(self.wrong(&key(of), format!("[[route]] {of}: {problem}"), fix))
        };
        let names = agents.iter().map(|agent| agent.name.as_str());
        let names: Vec<&str> = names.chain([DEFAULT_AGENT]).collect();
        if !names.contains(&raw.agent.as_str()) {
            let problem = format!("there is no agent \"{}\"", raw.agent);
            return wrong("agent", problem, &suggest(&raw.agent, names));
        }
        let transport = Some(raw.transport.clone()).filter(|name| !name.is_empty());
        if let Some(name) = transport
            .as_ref()
            .filter(|name| !TRANSPORTS.contains(&name.as_str()))
        {
            let problem = format!("\"{name}\" is unknown");
            return wrong("transport", problem, &suggest(name, TRANSPORTS));
        }
        let trusts = [Origin::Claimed, Origin::Signalled, Origin::Verified];
        let trusts = trusts.map(|origin| (origin.name(), origin));
        let trust = match raw.trust.as_str() {
            "" => Origin::Signalled,
            typed => self.choice(&key("trust"), typed, &trusts)?,
        };
        if let Some(name) = raw.header.keys().next().filter(|_| trust > Origin::Claimed) {
            let header = format!("header.{name}");
            let problem = format!(
                "a SIP header is only claimed, and the route asks for \"{}\", so it never holds",
                trust.name()
            );
            return wrong(
                &header,
                problem,
                "set trust = \"claimed\" in this [[route]]",
            );
        }
        let single = [
            (Named::Called, &raw.called),
            (Named::Caller, &raw.caller),
            (Named::ForwardedFrom, &raw.forwarded_from),
        ];
        let single = single.into_iter().filter(|(_, typed)| !typed.is_empty());
        let headers = raw.header.iter();
        let headers = headers.map(|(name, typed)| (Named::Header(name.to_lowercase()), typed));
        let params = raw.param.iter();
        let params = params.map(|(name, typed)| (Named::Param(name.clone()), typed));
        let values = single.chain(headers).chain(params);
        Ok(Route {
            transport,
            values: values
                .map(|(name, typed)| (name, typed.trim().to_owned()))
                .collect(),
            trust,
            agent: raw.agent.clone(),
        })
    }

    /// The voices that agents may have, by name.
    pub(super) fn voices(
        &self,
        raw: &BTreeMap<String, String>,
    ) -> Checked<BTreeMap<String, PathBuf>> {
        let mut voices = BTreeMap::new();
        for (name, typed) in raw {
            let Some(folder) = self.existing("tts.voices", typed)? else {
                let problem = format!("tts.voices: {name} has no folder");
                return Err(self.wrong(
                    "tts.voices",
                    problem,
                    "name a Piper voice, its folder or its file that ends in .onnx, or a Kokoro voice, its file that ends \
                     in .bin",
                ));
            };
            voices.insert(name.clone(), folder);
        }
        Ok(voices)
    }
}

fn check_name(name: &str, file: &File) -> Checked<()> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
        let problem = format!("\"{name}\" is no name of an agent");
        let fix = "name the file with letters, digits, _ and -, 64 at most";
        return Err(file.at(None, problem, fix));
    }
    if name == DEFAULT_MODEL {
        let problem = format!("\"{name}\" is the model that clients name who want no agent");
        return Err(file.at(None, problem, "give the file another name"));
    }
    Ok(())
}

fn instructions(raw: &RawAgent, file: &File) -> Checked<Option<String>> {
    let (key, text) = match (&raw.instructions, &raw.instructions_file) {
        (Some(_), Some(_)) => {
            let problem = "instructions and instructions_file are both set";
            return Err(file.wrong("instructions_file", problem, "keep one of them"));
        }
        (None, Some(named)) => {
            let path = file.path.parent().unwrap_or(Path::new("")).join(named);
            let text = std::fs::read_to_string(&path).map_err(|error| {
                let problem = format!("cannot read {}: {error}", path.display());
                file.wrong(
                    "instructions_file",
                    problem,
                    "name a file that this user may read",
                )
            })?;
            ("instructions_file", Some(text))
        }
        (typed, None) => ("instructions", typed.clone()),
    };
    if let Some(text) = &text {
        check_instructions(text).map_err(|(problem, fix)| file.wrong(key, problem, &fix))?;
    }
    Ok(text.map(|text| text.trim().to_owned()))
}

/// The names, without the ending, and the paths of all TOML files in `folder`.
fn toml_files(folder: &Path) -> std::io::Result<BTreeMap<String, PathBuf>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let is_toml = path.extension().is_some_and(|ending| ending == "toml");
        if let Some(name) = path.file_stem().filter(|_| is_toml) {
            files.insert(name.to_string_lossy().into_owned(), path.clone());
        }
    }
    Ok(files)
}
