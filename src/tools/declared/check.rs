//! From what was typed to what is meant. The first thing that is wrong ends it.

mod kinds;

use super::file::{self, RawConfirm, RawKind, RawTool};
use super::{DeclarationError, Declared, Kind, RouterHints, is_unpinned};
use crate::language::{base, is_tag};
use crate::tools::builtin::Builtin;
use crate::tools::mcp::{McpCatalogue, McpPlan};
use crate::tools::template::{Template, parameters};
use crate::tools::{
    Audience, Confirmation, Declaration, Effect, Eligibility, EndsCall, Fillers, Fixed, OncePer,
    Origin, SpeculationLimits, ToolSpec, once, schema,
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::de::{DeTable, DeValue};

type Checked<T> = Result<T, DeclarationError>;

const DEFAULT_TIMEOUT_MS: u64 = 5_000;
const LONGEST_TIMEOUT_MS: u64 = 120_000;
/// A caller hears the greeting meanwhile.
const LOOKUP_TIMEOUT_MS: u64 = 800;
/// Long enough to think about a question, short enough that a later "yes" means something else.
const CONFIRM_EXPIRY_S: u64 = 30;
const DAY_MS: u64 = 86_400_000;

pub(super) fn read(
    path: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
    mcp: &McpCatalogue,
) -> Checked<Declared> {
    let check = Check {
        path,
        variable,
        mcp,
    };
    let text = std::fs::read_to_string(path).map_err(|error| {
        check.wrong(
            "",
            format!("cannot read it: {error}"),
            "make it readable, or remove it",
        )
    })?;
    parse(path, &text, variable, mcp)
}

/// Checks the text of the file at `path`.
pub(super) fn parse(
    path: &Path,
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
    mcp: &McpCatalogue,
) -> Checked<Declared> {
    let check = Check {
        path,
        variable,
        mcp,
    };
    check
        .tool(file::parse(path, text)?)
        .map_err(|error| located(error, text))
}

/// Notes which tools' results set fixed arguments of others, and whether they can.
pub(super) fn results(tools: &mut [Declared]) -> Checked<()> {
    let names = |tool: &Declared| tool.declaration.spec.name.clone();
    let mut feeding = BTreeSet::new();
    for at in 0..tools.len() {
        let taker = &tools[at];
        let takes = taker.fixed.as_ref().map(Fixed::takes).unwrap_or_default();
        for (from, argument) in &takes {
            let wrong = |problem: String, fix: &str| {
                let key = format!("fixed.{argument}");
                Err(wrong_in(taker, key, problem, fix.into()))
            };
            if taker.audience == Audience::Lookup {
                let problem = "a lookup runs before any call has a result".into();
                return wrong(problem, "use the session's values");
            }
            let Some(feeder) = tools.iter().find(|tool| names(tool) == *from) else {
                let known: Vec<String> = tools.iter().map(names).collect();
                let problem = format!("`result.{from}`: no tool of this name is declared here");
                return wrong(problem, &format!("declared are: {}", known.join(", ")));
            };
            if *from == names(taker) {
                let problem = format!("`result.{from}` is the tool's own result");
                return wrong(problem, "name another tool");
            }
            if feeder.audience == Audience::Lookup {
                let problem = format!("`result.{from}` is a lookup, which no model calls");
                return wrong(problem, &format!("use {{{{ session.lookup.{from} }}}}"));
            }
            let (origin, trust) = (origin_of(feeder), taker.trust());
            if origin < trust {
                let problem = format!(
                    "the result of {from} is worth no more than what it is asked with, {}; this tool takes {} values \
                     only",
                    origin.name(),
                    trust.name()
                );
                let fix = format!(
                    "set the arguments of {from} in [fixed], or set fixed_trust = \"{}\" here",
                    origin.name()
                );
                return wrong(problem, &fix);
            }
        }
        let takes: Vec<String> = takes.into_keys().collect();
        feeding.extend(takes.iter().cloned());
        tools[at].declaration.takes = takes;
    }
    for tool in tools {
        tool.declaration.feeds = feeding.contains(&tool.declaration.spec.name);
    }
    Ok(())
}

/// Whether there are the lookups whose results set fixed arguments.
pub(super) fn lookups(tools: &[Declared]) -> Checked<()> {
    let is_lookup = |tool: &&Declared| tool.audience == Audience::Lookup;
    for taker in tools {
        let takes = taker.fixed.as_ref().map(Fixed::lookups);
        for (name, argument) in takes.unwrap_or_default() {
            let named = |tool: &&Declared| tool.declaration.spec.name == name;
            let (problem, fix) = match tools.iter().find(named) {
                // Whether an unpinned tool is a lookup is known once it is pinned.
                Some(tool) if is_lookup(&tool) || is_unpinned(tool) => continue,
                Some(tool) => (
                    format!("`session.lookup.{name}`: {name} is no lookup"),
                    format!(
                        "set lookup = true in {}, or use {{{{ result.{name}.FIELD }}}}",
                        tool.file.display()
                    ),
                ),
                None => {
                    let known = tools.iter().filter(is_lookup);
                    let known: Vec<&str> = known
                        .map(|tool| tool.declaration.spec.name.as_str())
                        .collect();
                    let fix = match known.as_slice() {
                        [] => "declare a tool of this name with lookup = true".to_owned(),
                        known => format!("lookups are: {}", known.join(", ")),
                    };
                    let problem =
                        format!("`session.lookup.{name}`: no lookup of this name is declared here");
                    (problem, fix)
                }
            };
            return Err(wrong_in(taker, format!("fixed.{argument}"), problem, fix));
        }
    }
    Ok(())
}

/// An error in a file that was read before.
fn wrong_in(tool: &Declared, key: String, problem: String, fix: String) -> DeclarationError {
    let text = std::fs::read_to_string(&tool.file).unwrap_or_default();
    let error = DeclarationError {
        file: tool.file.clone(),
        line: 1,
        key,
        problem,
        fix,
    };
    located(error, &text)
}

/// The origin of a tool's results: that of what it is asked with.
fn origin_of(tool: &Declared) -> Origin {
    let spec = &tool.declaration.spec;
    let takes_others = spec.parameters["additionalProperties"] != false
        || spec.parameters.get("patternProperties").is_some();
    match spec.properties().next() {
        None if !takes_others => tool.fixed.as_ref().map_or(Origin::Verified, Fixed::origin),
        _ => Origin::Claimed,
    }
}

/// Whether all programs are there that tools run.
pub(super) fn programs(tools: &[Declared]) -> Checked<()> {
    for tool in tools {
        let Kind::Subprocess(plan) = &tool.kind else {
            continue;
        };
        if let Err((problem, fix)) = plan.check() {
            return Err(wrong_in(tool, "subprocess.argv".into(), problem, fix));
        }
    }
    Ok(())
}

/// Finds the line of the key, where only its name is known: of the key itself, or of the innermost
/// table around it that is written down.
fn located(mut error: DeclarationError, text: &str) -> DeclarationError {
    let parsed = DeTable::parse(text).ok();
    let at = parsed.and_then(|table| place(table.get_ref(), &error.key));
    let before = text.get(..at.unwrap_or(0)).unwrap_or_default();
    error.line = 1 + before.matches('\n').count();
    error
}

/// Where the longest beginning of `path` stands, in bytes. A key may have dots in it itself.
fn place(table: &DeTable<'_>, path: &str) -> Option<usize> {
    let behind = |name: &str| match path.strip_prefix(name)? {
        "" => Some(""),
        rest => rest.strip_prefix('.'),
    };
    let known = table.iter().filter_map(|(key, value)| {
        let rest = behind(key.get_ref())?;
        let inner = match value.get_ref() {
            DeValue::Table(table) => place(table, rest),
            _ => None,
        };
        Some((rest.len(), inner.unwrap_or(key.span().start)))
    });
    known.min().map(|(_, at)| at)
}

/// The schema of an object with no other parameters than those that it declares.
fn object(mut schema: Map<String, Value>) -> Value {
    schema.entry("type").or_insert_with(|| "object".into());
    schema.entry("properties").or_insert_with(|| json!({}));
    let mut schema = Value::Object(schema);
    if schema.get("additionalProperties").is_none() && schema::lists_all(&schema) {
        schema["additionalProperties"] = false.into();
    }
    schema
}

struct Check<'a> {
    path: &'a Path,
    variable: &'a dyn Fn(&str) -> Option<String>,
    mcp: &'a McpCatalogue,
}

impl Check<'_> {
    fn tool(&self, raw: RawTool) -> Checked<Declared> {
        self.own_sections(&raw)?;
        let mut declaration = self.basis(&raw)?;
        if let Some(plan) = self.mcp(&raw)?.filter(|plan| plan.pin.is_none()) {
            // The rest of the file refers to parameters that are known once the tool is pinned.
            return Ok(self.unpinned(declaration, plan));
        }
        let all = parameters(&declaration.spec.parameters);
        let fixed = self.fixed(&raw, &mut declaration)?;
        let once_per = self.once_per(&raw, &declaration, &all)?;
        let known = parameters(&declaration.spec.parameters);
        let default = match raw.lookup {
            true => Duration::from_millis(LOOKUP_TIMEOUT_MS),
            false => declaration.timeout,
        };
        declaration.timeout = self.timeout(raw.timeout_ms, default)?;
        if raw.lookup {
            self.lookup(&declaration, fixed.as_ref())?;
        }
        declaration.reads = raw.reads.clone().unwrap_or(declaration.reads);
        declaration.writes = raw.writes.clone().unwrap_or(declaration.writes);
        self.reads_only(&declaration)?;
        if raw.ends_call {
            declaration.ends_call = Some(EndsCall::HandOver);
        }
        if !raw.equivalence.is_empty() {
            declaration.equivalence = raw.equivalence.clone();
        }
        self.only_parameters("equivalence", raw.equivalence.keys(), &known)?;
        let typed = &raw.fillers;
        declaration.fillers = self.fillers("fillers", typed.any(), &known)?;
        declaration.fillers_by_language = self.by_language(&typed.by_language, &known)?;
        declaration.answer = self.answer(&raw, &known)?.or(declaration.answer);
        declaration.confirmation = self.confirmation(&raw.confirm, &declaration, &known)?;
        let (kind, network) = self.kind(&raw, &all, &declaration)?;
        declaration.network = network;
        declaration.speculation = self.speculation(&raw, &declaration)?;
        self.hints(&raw, &declaration.spec, &known)?;
        Ok(Declared {
            file: self.path.into(),
            declaration,
            hints: raw.router,
            kind,
            fixed,
            once_per,
            audience: match raw.lookup {
                true => Audience::Lookup,
                false => Audience::Everyone,
            },
        })
    }

    /// A tool of an MCP server that is not offered.
    fn unpinned(&self, declaration: Declaration, plan: McpPlan) -> Declared {
        Declared {
            file: self.path.into(),
            declaration,
            hints: RouterHints::default(),
            kind: Kind::Mcp(plan.into()),
            fixed: None,
            once_per: None,
            audience: Audience::Everyone,
        }
    }

    /// A lookup reads, and needs nothing that only a model could say.
    fn lookup(&self, declaration: &Declaration, fixed: Option<&Fixed>) -> Checked<()> {
        if declaration.effect.changes() {
            return Err(self.wrong(
                "lookup",
                "a lookup runs for every session, so it must not change anything".into(),
                "set effect = \"read\", or remove this line",
            ));
        }
        if let Some(name) = declaration.spec.required().next() {
            return Err(self.wrong(
                "lookup",
                format!("nobody sets `{name}`"),
                "set it in [fixed], or make it optional",
            ));
        }
        match fixed.is_some_and(Fixed::uses_lookups) {
            false => Ok(()),
            true => Err(self.wrong(
                "fixed",
                "a lookup cannot use what lookups find".into(),
                "use the session's other values",
            )),
        }
    }

    fn once_per(
        &self,
        raw: &RawTool,
        declaration: &Declaration,
        known: &BTreeSet<String>,
    ) -> Checked<Option<OncePer>> {
        let Some(typed) = &raw.once_per else {
            return match raw.once_for_s {
                None => Ok(None),
                Some(_) => Err(self.wrong(
                    "once_for_s",
                    "nothing says what makes two calls the same".into(),
                    "add once_per, or remove this line",
                )),
            };
        };
        if !declaration.effect.changes() {
            return Err(self.wrong(
                "once_per",
                "a tool that only reads may run again".into(),
                "remove this line, or say in `effect` what a call does to the world",
            ));
        }
        let most = once::MOST.as_secs();
        let seconds = raw.once_for_s.unwrap_or(most);
        if !(1..=most).contains(&seconds) {
            return Err(self.wrong(
                "once_for_s",
                format!("{seconds} is out of range"),
                &format!("use 1 to {most}"),
            ));
        }
        let trust = raw.fixed_trust.unwrap_or(Origin::Signalled);
        let once = OncePer::new(typed, known, Duration::from_secs(seconds), trust);
        let once = once.map_err(|(problem, fix)| self.wrong("once_per", problem, &fix))?;
        Ok(Some(once))
    }

    /// Takes the fixed arguments out of the schema that the model sees.
    fn fixed(&self, raw: &RawTool, declaration: &mut Declaration) -> Checked<Option<Fixed>> {
        if raw.fixed.is_empty() {
            return match raw.fixed_trust {
                Some(_) if raw.once_per.is_none() => Err(self.wrong(
                    "fixed_trust",
                    "this tool has neither fixed arguments nor once_per".into(),
                    "add [fixed], or remove this line",
                )),
                _ => Ok(None),
            };
        }
        let trust = raw.fixed_trust.unwrap_or(Origin::Signalled);
        let fixed = Fixed::new(&declaration.spec.parameters, &raw.fixed, trust);
        let fixed = fixed.map_err(|(name, (problem, fix))| {
            self.wrong(&format!("fixed.{name}"), problem, &fix)
        })?;
        declaration.fixed = fixed.names().cloned().collect();
        declaration.spec.parameters = fixed.shown();
        Ok(Some(fixed))
    }

    /// Name, description, schema and effect: from the file, or from the code of a built-in tool.
    fn basis(&self, raw: &RawTool) -> Checked<Declaration> {
        if raw.kind == RawKind::Builtin {
            return self.builtin_basis(raw);
        }
        if let Some(plan) = self.mcp(raw)? {
            return self.mcp_basis(raw, &plan);
        }
        let spec = ToolSpec {
            examples: Vec::new(),
            name: raw.name.clone(),
            description: self.needed(
                "description",
                raw.description.clone().or(raw.lookup.then(String::new)),
                "say in a sentence what it does and when to use it",
            )?,
            parameters: self.schema(raw)?,
        };
        self.validated(Declaration::new(
            spec,
            self.effect(raw)?,
            Duration::from_millis(DEFAULT_TIMEOUT_MS),
        ))
    }

    fn effect(&self, raw: &RawTool) -> Checked<Effect> {
        self.needed(
            "effect",
            raw.effect.or(raw.lookup.then_some(Effect::Read)),
            "say what a call does to the world: \"read\", \
            \"read-costly\", \"keyed\", \"reversible\" or \"irreversible\"",
        )
    }

    fn builtin_basis(&self, raw: &RawTool) -> Checked<Declaration> {
        let Some(mut declaration) = Builtin::declaration(&raw.name) else {
            let known = Builtin::names().join(", ");
            return Err(self.wrong(
                "name",
                format!("there is no built-in tool named {}", raw.name),
                &format!("known are: {known}; another kind is \"http\" or \"subprocess\""),
            ));
        };
        if raw.parameters.is_some() {
            return Err(self.wrong(
                "parameters",
                "a built-in tool has its own parameters".into(),
                "remove this table",
            ));
        }
        if let Some(effect) = raw.effect {
            if effect.strictness() < declaration.effect.strictness() {
                return Err(self.wrong(
                    "effect",
                    format!("{} does more than that to the world", raw.name),
                    "a file may make it stricter, never looser; remove this line",
                ));
            }
            declaration.effect = effect;
        }
        if let Some(description) = &raw.description {
            declaration.spec.description = description.clone();
        }
        Ok(declaration)
    }

    fn reads_only(&self, declaration: &Declaration) -> Checked<()> {
        let reads = !declaration.effect.changes();
        match declaration.writes.first().filter(|_| reads) {
            None => Ok(()),
            Some(label) => Err(self.wrong(
                "writes",
                format!("a tool that only reads cannot change {label}"),
                "remove this line, or say in `effect` what a call does to the world",
            )),
        }
    }

    fn schema(&self, raw: &RawTool) -> Checked<Value> {
        let schema = self.completed(raw.parameters.clone().unwrap_or_default())?;
        let taken = ["result", "body", "steps"]
            .into_iter()
            .find(|name| schema["properties"].get(*name).is_some());
        match taken {
            Some(name) => Err(self.wrong(
                &format!("parameters.properties.{name}"),
                format!("`{name}` has a meaning of its own in templates"),
                "rename this parameter",
            )),
            None => Ok(schema),
        }
    }

    fn completed(&self, schema: Map<String, Value>) -> Checked<Value> {
        let schema = object(schema);
        let is_unknown = |name: &&str| schema::properties(&schema).all(|(known, _)| known != *name);
        let unknown = schema::required(&schema).find(is_unknown);
        match unknown.map(str::to_owned) {
            Some(name) => Err(self.wrong(
                "parameters.required",
                format!("\"{name}\" is no property"),
                "declare it under [parameters.properties], or remove it here",
            )),
            None => Ok(schema),
        }
    }

    /// Applies the registry's checks; errors name the file.
    fn validated(&self, declaration: Declaration) -> Checked<Declaration> {
        let wrong = |key, error: crate::tools::RegistryError| {
            self.wrong(
                key,
                error.to_string(),
                "see the files in tools/ for examples",
            )
        };
        crate::tools::registry::check_name(&declaration.spec.name)
            .map_err(|error| wrong("name", error))?;
        crate::tools::registry::check_schema(&declaration.spec)
            .map_err(|error| wrong("parameters", error))?;
        Ok(declaration)
    }

    /// Exactly the section of its kind is there.
    fn own_sections(&self, raw: &RawTool) -> Checked<()> {
        let sections = [
            ("http", raw.http.is_some(), RawKind::Http),
            ("subprocess", raw.subprocess.is_some(), RawKind::Subprocess),
            ("mcp", raw.mcp.is_some(), RawKind::Mcp),
            ("settings", !raw.settings.is_empty(), RawKind::Builtin),
        ];
        for (name, there, kind) in sections {
            if there && kind != raw.kind {
                return Err(self.wrong(
                    name,
                    format!("[{name}] is not for this kind of tool"),
                    "remove it, or change `kind`",
                ));
            }
            if !there && kind == raw.kind && kind != RawKind::Builtin {
                return Err(self.wrong(
                    "kind",
                    format!("there is no section [{name}]"),
                    &format!("add [{name}]"),
                ));
            }
        }
        Ok(())
    }

    fn kind(
        &self,
        raw: &RawTool,
        known: &BTreeSet<String>,
        declaration: &Declaration,
    ) -> Checked<(Kind, bool)> {
        if let Some(http) = &raw.http {
            let plan = self.http(http, known, declaration.effect)?;
            let network = !plan.is_local();
            return Ok((Kind::Http(Box::new(plan)), network));
        }
        if declaration.effect == Effect::Keyed && raw.kind != RawKind::Builtin {
            return Err(self.wrong(
                "effect",
                "a keyed tool has to send its key, which programs and MCP servers do not get"
                    .into(),
                "use \"reversible\" or \"irreversible\"",
            ));
        }
        if let Some(plan) = self.mcp(raw)? {
            let network = plan.uses_network();
            return Ok((Kind::Mcp(plan.into()), network));
        }
        if let Some(subprocess) = &raw.subprocess {
            let plan = self.subprocess(subprocess, known)?;
            return Ok((Kind::Subprocess(plan), subprocess.network.unwrap_or(true)));
        }
        let builtin = Builtin::configured(&raw.name, raw.settings.clone(), &self.folder())
            .map_err(|(key, problem, fix)| self.wrong(&key, problem, &fix))?;
        let network = builtin.uses_network();
        Ok((Kind::Builtin(builtin), network))
    }

    fn timeout(&self, typed: Option<u64>, default: Duration) -> Checked<Duration> {
        match typed {
            None => Ok(default),
            Some(ms) if (1..=LONGEST_TIMEOUT_MS).contains(&ms) => Ok(Duration::from_millis(ms)),
            Some(ms) => Err(self.wrong(
                "timeout_ms",
                format!("{ms} is out of range"),
                &format!("use 1 to {LONGEST_TIMEOUT_MS}"),
            )),
        }
    }

    fn speculation(&self, raw: &RawTool, declaration: &Declaration) -> Checked<SpeculationLimits> {
        let (typed, defaults) = (&raw.speculation, SpeculationLimits::default());
        let most = match declaration.effect {
            Effect::Read | Effect::ReadCostly => Eligibility::Full,
            Effect::Keyed => Eligibility::WarmUp,
            Effect::Reversible | Effect::Irreversible => Eligibility::Forbid,
        };
        // Hints of a server may have made the effect stricter since this was written.
        let allow = match raw.kind {
            RawKind::Mcp if declaration.effect != self.effect(raw)? => typed.allow.min(most),
            _ => typed.allow,
        };
        if allow > most {
            return Err(self.wrong(
                "speculation.allow",
                "a tool that may change something never runs before it is certain".into(),
                "use \"forbid\", or \"warm-up\" for a keyed one",
            ));
        }
        // Calls that cost nothing never use an amount up.
        let is_bounded = typed.cost_per_day.is_some() && typed.cost > 0.0;
        let unlimited = typed.per_day.is_none() && !is_bounded;
        if declaration.effect == Effect::ReadCostly && typed.allow == Eligibility::Full && unlimited
        {
            return Err(self.wrong(
                "speculation.per_day",
                "each call costs, and no budget is set".into(),
                "set per_day, or cost and cost_per_day",
            ));
        }
        let confidence = typed.min_confidence.unwrap_or(defaults.min_confidence);
        if !(0.0..=1.0).contains(&confidence) {
            return Err(self.wrong(
                "speculation.min_confidence",
                format!("{confidence} is no probability"),
                "use 0.0 to 1.0",
            ));
        }
        for (key, amount) in [
            ("cost", Some(typed.cost)),
            ("cost_per_day", typed.cost_per_day),
        ] {
            if amount.is_some_and(|amount| !(amount.is_finite() && amount >= 0.0)) {
                return Err(self.wrong(
                    &format!("speculation.{key}"),
                    "this is no amount of money".into(),
                    "use 0.0 or more",
                ));
            }
        }
        let ttl = typed.ttl_ms.map_or(defaults.ttl, Duration::from_millis);
        if ttl > Duration::from_millis(DAY_MS) {
            return Err(self.wrong(
                "speculation.ttl_ms",
                "this is longer than a day".into(),
                &format!("use 0 to {DAY_MS}"),
            ));
        }
        Ok(SpeculationLimits {
            eligibility: allow,
            network: typed.network,
            ttl,
            shareable: typed.shareable,
            min_confidence: confidence,
            cost: typed.cost,
            assume: typed.assume.unwrap_or(defaults.assume),
            per_turn: typed.per_turn.unwrap_or(defaults.per_turn),
            per_day: typed.per_day,
            cost_per_day: typed.cost_per_day,
        })
    }

    fn fillers(&self, key: &str, fillers: Fillers, known: &BTreeSet<String>) -> Checked<Fillers> {
        for (kind, list) in [
            ("short", &fillers.short),
            ("long", &fillers.long),
            ("again", &fillers.again),
        ] {
            for source in list {
                self.template(&format!("{key}.{kind}"), source, known)?;
            }
        }
        Ok(fillers)
    }

    fn by_language(
        &self,
        typed: &toml::Table,
        known: &BTreeSet<String>,
    ) -> Checked<BTreeMap<String, Fillers>> {
        let one = |(language, phrases): (&String, &toml::Value)| {
            let key = format!("fillers.{language}");
            if !is_tag(language) || base(language) != *language {
                let problem = format!("`{language}` is neither a kind of fillers nor a language");
                let fix =
                    "write short, long or again, or a table for a language, such as [fillers.de]";
                return Err(self.wrong(&key, problem, fix));
            }
            let phrases = phrases
                .clone()
                .try_into()
                .map_err(|error: toml::de::Error| {
                    let fix = "write short, long and again as lists of texts";
                    self.wrong(&key, error.message().to_owned(), fix)
                })?;
            Ok((language.clone(), self.fillers(&key, phrases, known)?))
        };
        typed.iter().map(one).collect()
    }

    fn answer(&self, raw: &RawTool, known: &BTreeSet<String>) -> Checked<Option<String>> {
        if let Some(source) = &raw.answer {
            self.template("answer", source, &with(known, ["result"]))?;
        }
        Ok(raw.answer.clone())
    }

    fn confirmation(
        &self,
        typed: &RawConfirm,
        declaration: &Declaration,
        known: &BTreeSet<String>,
    ) -> Checked<Confirmation> {
        if let Some(question) = &typed.question {
            self.template("confirm.question", question, known)?;
        }
        let expiry = typed.expiry_s.unwrap_or(CONFIRM_EXPIRY_S);
        if !(5..=600).contains(&expiry) {
            return Err(self.wrong(
                "confirm.expiry_s",
                format!("{expiry} is out of range"),
                "use 5 to 600",
            ));
        }
        let spoken = Confirmation::Spoken {
            question: typed.question.clone(),
            expiry: Duration::from_secs(expiry),
        };
        Ok(
            match typed
                .spoken
                .unwrap_or(declaration.effect == Effect::Irreversible)
            {
                true => spoken,
                false => Confirmation::None,
            },
        )
    }

    fn hints(&self, raw: &RawTool, spec: &ToolSpec, known: &BTreeSet<String>) -> Checked<()> {
        for rule in &raw.router.rules {
            let regex = regex::Regex::new(&crate::language::en::rule_syntax::pattern(rule))
                .map_err(|error| {
                    let reason = error
                        .to_string()
                        .lines()
                        .last()
                        .unwrap_or_default()
                        .to_owned();
                    self.wrong(
                        "router.rules",
                        format!("'{rule}' is no regular expression: {reason}"),
                        "write it as the regex crate has it, in single quotes",
                    )
                })?;
            let names: Vec<String> = regex.capture_names().flatten().map(str::to_owned).collect();
            self.only_parameters("router.rules", names.iter(), known)?;
        }
        self.only_parameters("router.words", raw.router.words.keys(), known)?;
        for (name, schema) in spec.properties() {
            let Some(words) = raw.router.words.get(name) else {
                continue;
            };
            // A schema that refers to others cannot be compiled alone.
            let Ok(validator) = jsonschema::validator_for(schema) else {
                continue;
            };
            let is_wrong = |value: &String| !validator.is_valid(&Value::from(value.as_str()));
            if let Some((word, value)) = words.iter().find(|(_, value)| is_wrong(value)) {
                let listed = schema.get("enum").and_then(Value::as_array);
                let listed = listed.into_iter().flatten().filter_map(Value::as_str);
                let likeness = |name: &&str| strsim::jaro_winkler(value, name);
                let near = listed.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
                let fix = near.map_or_else(
                    || "use a text that the parameter's schema allows".to_owned(),
                    |near| format!("use a value of its enum; the nearest is \"{near}\""),
                );
                return Err(self.wrong(
                    &format!("router.words.{name}.{word}"),
                    format!("the schema of `{name}` refuses \"{value}\""),
                    &fix,
                ));
            }
        }
        Ok(())
    }

    fn only_parameters<'a>(
        &self,
        key: &str,
        names: impl IntoIterator<Item = &'a String>,
        known: &BTreeSet<String>,
    ) -> Checked<()> {
        match names.into_iter().find(|name| !known.contains(*name)) {
            None => Ok(()),
            Some(name) => {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                let known = if known.is_empty() {
                    "it has none".into()
                } else {
                    format!("its parameters are: {}", known.join(", "))
                };
                Err(self.wrong(
                    key,
                    format!("`{name}` is no parameter of this tool"),
                    &known,
                ))
            }
        }
    }

    fn template(&self, key: &str, source: &str, known: &BTreeSet<String>) -> Checked<Template> {
        Template::new(source, known).map_err(|(problem, fix)| self.wrong(key, problem, &fix))
    }

    fn needed<T>(&self, key: &str, typed: Option<T>, fix: &str) -> Checked<T> {
        typed.ok_or_else(|| self.wrong(key, format!("`{key}` is missing"), fix))
    }

    /// Where relative paths in the file count from.
    fn folder(&self) -> PathBuf {
        self.path
            .parent()
            .map(Path::to_path_buf)
            .unwrap_or_default()
    }

    fn wrong(&self, key: &str, problem: String, fix: &str) -> DeclarationError {
        DeclarationError {
            file: self.path.into(),
            line: 1,
            key: key.into(),
            problem,
            fix: fix.into(),
        }
    }
}

fn with<const N: usize>(known: &BTreeSet<String>, more: [&str; N]) -> BTreeSet<String> {
    known
        .iter()
        .cloned()
        .chain(more.map(str::to_owned))
        .collect()
}
