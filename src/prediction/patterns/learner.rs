//! Learns which call follows which, and where its arguments come from.

mod merging;

use super::leaves::{put, slots};
use super::origin::{Origin, Schemas};
use super::trail::{OPEN, Trail};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The version of the form in which patterns are kept.
pub const VERSION: u32 = 1;

/// Each observation multiplies the weight of all earlier ones by this, so that about the last hundred count.
const DECAY: f64 = 0.99;
/// Weights below this are dropped.
const LEAST: f64 = 0.02;
/// The most patterns of one agent.
const PATTERNS: usize = 4_096;
/// The most tools of one agent.
const TOOLS: usize = 256;
/// The most sets of argument names that are kept for one tool.
const FORMS: usize = 4;
/// The most arguments that are kept for one tool.
const SLOTS: usize = 64;
/// The most previous tools by which a rate is told apart.
const PREVIOUS: usize = 32;
/// The most sources that are kept for one argument.
const ORIGINS: usize = 24;
/// The most sources of one argument that a prediction looks up.
const LOOKED_UP: usize = 12;
/// The most tools whose arguments one prediction derives.
const DERIVED: usize = 5;
/// The most values that are tried for one argument.
const VALUES: usize = 3;
/// The most combinations of those values.
const COMBINED: usize = 9;
/// Tools with a smaller share are not predicted.
const UNLIKELY: f64 = 0.02;
/// The number of likely tools for which each call teaches whether their arguments were available.
const COMPARED: usize = 8;
/// The number of turns without a call, the latest first, that teach the same.
const PAUSES: u32 = 3;
/// The z-score of the lower bounds: one standard deviation.
const Z: f64 = 1.0;
/// Stands for "no call follows". It cannot be a tool's name.
const NOTHING: &str = "(no call)";

/// A hit rate in which recent cases weigh more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Weight of the cases in which it was right.
    pub hits: f64,
    /// Weight of all cases.
    pub tries: f64,
    /// The cases that this server has added.
    #[serde(skip)]
    added: u32,
}

impl Rate {
    pub(super) fn add(&mut self, hit: bool, decay: f64) {
        self.added = self.added.wrapping_add(1);
        self.hits = self.hits * decay + f64::from(u8::from(hit));
        self.tries = self.tries * decay + 1.0;
    }

    /// The estimated share of hits, smoothed so that a few cases do not decide it.
    fn likely(self) -> f64 {
        (self.hits + 0.5) / (self.tries + 2.0)
    }

    /// The lower bound of the share of hits.
    fn least(self) -> f64 {
        lower_bound(self.hits / self.tries.max(1.0), self.tries)
    }
}

/// The lower bound of a share that was observed in `tries` cases (Wilson's score interval).
pub(super) fn lower_bound(share: f64, tries: f64) -> f64 {
    if tries <= 0.0 {
        return 0.0;
    }
    let square = Z * Z;
    let centre = share + square / (2.0 * tries);
    let spread = Z * (share * (1.0 - share) / tries + square / (4.0 * tries * tries)).sqrt();
    ((centre - spread) / (1.0 + square / tries)).clamp(0.0, 1.0)
}

/// A call that may come next.
#[derive(Debug, Clone, PartialEq)]
pub struct Guess {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// The estimated probability, by which guesses are ordered.
    pub likelihood: f64,
    /// The lower bound of the probability.
    pub confidence: f64,
}

/// The successors of a context.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Followed {
    /// The weight of each tool.
    next: BTreeMap<String, f64>,
    /// When it was last observed, in calls of this agent.
    last: u64,
    /// The observations that this server has added.
    #[serde(skip)]
    added: u32,
}

/// A source of an argument, and how often it was right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Traced {
    origin: Origin,
    rate: Rate,
    /// The hit rate after each previous tool.
    after: BTreeMap<String, Rate>,
    /// Conversations in which it was found, up to two. What one conversation alone has shown is not kept.
    conversations: u8,
    #[serde(skip)]
    last_conversation: u64,
}

/// The knowledge of the calls of one tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Known {
    /// The places of its arguments, and the weight of calls with exactly these.
    forms: Vec<(Vec<String>, f64)>,
    origins: BTreeMap<String, Vec<Traced>>,
    /// Whether a call was made before in its conversation.
    repeated: Rate,
    /// Whether two arguments of a call had the same value.
    #[serde(default)]
    alike: Rate,
    /// The weight of each kind of result, as it was when the next call came.
    #[serde(default)]
    endings: BTreeMap<String, f64>,
    /// For each previous tool: how often unused arguments for this one were available.
    #[serde(default)]
    offered: BTreeMap<String, Offered>,
    /// The forms and the endings that this server has added.
    #[serde(skip)]
    added: (u32, u32),
}

/// How often unused arguments for a tool were available when it was called, when another tool was called, and when the
/// user had spoken and no call followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Offered {
    called: Rate,
    other: Rate,
    #[serde(default)]
    none: Rate,
}

impl Offered {
    fn add(&mut self, is_new: bool, tool: &str, called: &str) {
        let rate = match called {
            NOTHING => &mut self.none,
            called if called == tool => &mut self.called,
            _ => &mut self.other,
        };
        rate.add(is_new, DECAY);
    }

    /// The factor by which unused arguments, or their absence, make a call of the tool likelier (above 1) or less so
    /// than one of another. Before much is known, 1.
    fn odds(self, is_new: bool) -> f64 {
        share_of(self.called, is_new) / share_of(self.other, is_new)
    }

    /// The factor by which they make it likelier that no call follows. Before much is known of turns without a call, 1.
    fn odds_of_none(self, is_new: bool) -> f64 {
        let called = share_of(self.called, is_new);
        let seen = match is_new {
            true => self.none.hits,
            false => self.none.tries - self.none.hits,
        };
        let none = (seen + 2.0 * called) / (self.none.tries + 2.0);
        none / called
    }
}

/// The estimated share of cases in which unused arguments were available, or not.
fn share_of(rate: Rate, is_new: bool) -> f64 {
    let new = (rate.hits + 1.0) / (rate.tries + 2.0);
    if is_new { new } else { 1.0 - new }
}

/// The patterns of one agent: which call follows which, and where its arguments come from. It holds names of tools and
/// fields, shapes and weights, and no value of any conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Patterns {
    contexts: BTreeMap<String, Followed>,
    tools: BTreeMap<String, Known>,
    /// The number of calls learned from.
    learnt: u64,
    #[serde(skip)]
    size: usize,
    #[serde(skip)]
    conversation: u64,
}

/// A pattern as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shown {
    /// The calls before, oldest first, with `^` for the start of the conversation.
    pub after: String,
    /// The tool that follows.
    pub tool: String,
    /// Its share among the calls that followed.
    pub share: f64,
    /// The weight of all observations in this context.
    pub observed: f64,
}

/// Learning.
impl Patterns {
    /// Begins a conversation. [`Self::learn`] belongs to the latest.
    pub fn begin(&mut self) -> u64 {
        self.conversation += 1;
        self.conversation
    }

    /// The number of calls learned from.
    pub fn learnt(&self) -> u64 {
        self.learnt
    }

    /// The number of patterns.
    pub fn len(&self) -> usize {
        self.size
    }

    /// Returns `true` if nothing has been learned yet.
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Learns that this call was committed at this point of the conversation that `begin` named. A call of an
    /// unknown tool teaches nothing.
    pub fn learn(
        &mut self,
        conversation: u64,
        trail: &Trail,
        schemas: &Schemas,
        tool: &str,
        arguments: &Map<String, Value>,
    ) {
        if !schemas.knows(tool) {
            return;
        }
        self.learnt += 1;
        if !self.tools.contains_key(tool) && self.tools.len() >= TOOLS {
            return;
        }
        self.compare(trail, schemas, tool);
        self.pauses(trail, schemas, true);
        self.ends(trail);
        for context in contexts(trail, trail.spoke, trail.ending()) {
            self.observe(context, tool, 1.0);
        }
        let repeated = trail.was_made(tool, arguments);
        let previous = trail.previous();
        let known = self.tools.entry(tool.to_owned()).or_default();
        known.repeated.add(repeated, DECAY);
        let is_declared = schemas.declared(tool, arguments) == *arguments;
        let Some(slots) = slots(arguments).filter(|_| is_declared) else {
            return;
        };
        known.alike.add(are_alike(&slots), DECAY);
        known.add_form(slots.iter().map(|(slot, _)| slot.clone()).collect());
        for (slot, value) in slots {
            let origins = known.origins.entry(slot.clone()).or_default();
            let mined = Origin::mine(trail, schemas, tool, &slot, value);
            for origin in mined {
                if !origins.iter().any(|known| known.origin == origin) {
                    origins.push(Traced::new(origin));
                }
            }
            for traced in origins.iter_mut() {
                let now = traced.origin.value(trail, schemas, tool, &slot);
                if let Some(now) = now {
                    let hit = *now == *value;
                    traced.add(hit, previous, conversation);
                }
            }
            origins.sort_by(|a, b| b.rate.least().total_cmp(&a.rate.least()));
            origins.truncate(ORIGINS);
        }
        if known.origins.len() > SLOTS {
            known.origins.pop_last();
        }
        self.bound();
    }

    /// Learns that the conversation has ended here.
    pub fn ended(&mut self, trail: &Trail, schemas: &Schemas) {
        self.pauses(trail, schemas, false);
        self.ends(trail);
        for context in contexts(trail, trail.spoke, trail.ending()) {
            self.observe(context, NOTHING, 1.0);
        }
        self.bound();
    }

    /// Learns whether the tools that were likely had new arguments when this one was called, or none.
    fn compare(&mut self, trail: &Trail, schemas: &Schemas, called: &str) {
        let (mut shares, _) = self.shares(trail);
        shares.retain(|(tool, share)| *share >= UNLIKELY && *tool != NOTHING);
        shares.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let likely = shares.iter().take(COMPARED).map(|(tool, _)| *tool);
        let compared: Vec<(String, bool)> = likely
            .map(|tool| (tool.to_owned(), self.has_new(trail, schemas, tool)))
            .collect();
        let previous = trail.previous();
        for (tool, is_new) in compared {
            let Some(known) = self.tools.get_mut(&tool) else {
                continue;
            };
            if known.offered.len() < PREVIOUS || known.offered.contains_key(previous) {
                let offered = known.offered.entry(previous.to_owned()).or_default();
                offered.add(is_new, &tool, called);
            }
        }
    }

    /// Whether the conversation offers arguments with which the tool was not called yet.
    fn has_new(&self, trail: &Trail, schemas: &Schemas, tool: &str) -> bool {
        let known = self.tools.get(tool);
        let Some((known, (form, _))) = known.and_then(|one| Some((one, one.forms.first()?))) else {
            return false;
        };
        let mut arguments = Map::new();
        for slot in form {
            let values = known.values(trail, schemas, (tool, slot, trail.previous()));
            let Some(first) = values.into_iter().next() else {
                return false;
            };
            if put(&mut arguments, slot, first.value.into_owned()).is_none() {
                return false;
            }
        }
        !trail.was_made(tool, &arguments)
    }

    /// Counts the outcome of the last call, which is known now.
    fn ends(&mut self, trail: &Trail) {
        let last = trail.calls.last();
        if let Some((call, known)) =
            last.and_then(|one| Some((one, self.tools.get_mut(&one.tool)?)))
        {
            known
                .endings
                .values_mut()
                .for_each(|weight| *weight *= DECAY);
            *known.endings.entry(call.ending.to_owned()).or_default() += 1.0;
            known.added.1 = known.added.1.wrapping_add(1);
        }
    }

    /// Records, if the user has spoken since the last call, that no call followed until then.
    fn pauses(&mut self, trail: &Trail, schemas: &Schemas, called: bool) {
        if !trail.spoke {
            return;
        }
        for context in aware(trail, false, trail.ending()) {
            self.observe(context, NOTHING, 1.0);
        }
        let others = trail.turns.saturating_sub(u32::from(called)).min(8);
        let mut earlier = Cow::Borrowed(trail);
        for nth in 0..others {
            if nth < PAUSES {
                if nth > 0 || called {
                    earlier = Cow::Owned(earlier.before_last_words());
                }
                self.compare(&earlier, schemas, NOTHING);
            }
            for context in aware(trail, true, trail.ending()) {
                self.observe(context, NOTHING, 1.0);
            }
        }
    }

    fn observe(&mut self, context: String, next: &str, weight: f64) {
        let followed = self.contexts.entry(context).or_default();
        let before = followed.next.len();
        followed.next.values_mut().for_each(|known| *known *= DECAY);
        *followed.next.entry(next.to_owned()).or_default() += weight;
        followed.next.retain(|_, weight| *weight >= LEAST);
        followed.last = self.learnt;
        followed.added = followed.added.wrapping_add(1);
        self.size = self.size + followed.next.len() - before;
    }

    /// Forgets the least useful contexts if there are too many.
    fn bound(&mut self) {
        if self.size <= PATTERNS {
            return;
        }
        let learnt = self.learnt;
        let use_of = |followed: &Followed| {
            let age = learnt.saturating_sub(followed.last) as f64;
            followed.next.values().sum::<f64>() * 0.5_f64.powf(age / PATTERNS as f64)
        };
        let contexts = self.contexts.iter();
        let mut uses: Vec<(f64, String)> = contexts
            .map(|(context, followed)| (use_of(followed), context.clone()))
            .collect();
        uses.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        for (_, context) in uses {
            if self.size <= PATTERNS - PATTERNS / 8 {
                break;
            }
            if let Some(gone) = self.contexts.remove(&context) {
                self.size -= gone.next.len();
            }
        }
    }
}

impl Known {
    fn add_form(&mut self, form: Vec<String>) {
        self.forms
            .iter_mut()
            .for_each(|(_, weight)| *weight *= DECAY);
        match self.forms.iter_mut().find(|(known, _)| *known == form) {
            Some((_, weight)) => *weight += 1.0,
            None => self.forms.push((form, 1.0)),
        }
        self.forms.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        self.forms.truncate(FORMS);
        self.added.0 = self.added.0.wrapping_add(1);
    }
}

impl Known {
    fn clean(&mut self, tool: &str, schemas: &Schemas) {
        let is_declared = |slot: &String| schemas.declares(tool, slot);
        self.forms.retain(|(form, _)| form.iter().all(is_declared));
        self.origins.retain(|slot, _| is_declared(slot));
        for (slot, origins) in &mut self.origins {
            origins.retain(|traced| traced.origin.is_clean(schemas, tool, slot));
            origins.truncate(ORIGINS);
        }
        self.forms.truncate(FORMS);
    }
}

impl Traced {
    fn new(origin: Origin) -> Self {
        Self {
            origin,
            rate: Rate::default(),
            after: BTreeMap::new(),
            conversations: 0,
            last_conversation: 0,
        }
    }

    fn add(&mut self, hit: bool, previous: &str, conversation: u64) {
        self.rate.add(hit, DECAY);
        if self.after.len() < PREVIOUS || self.after.contains_key(previous) {
            self.after
                .entry(previous.to_owned())
                .or_default()
                .add(hit, DECAY);
        }
        if hit && self.last_conversation != conversation {
            self.last_conversation = conversation;
            self.conversations = (self.conversations + 1).min(2);
        }
    }

    /// The estimated hit rate after a tool. The rate over all tools weighs as two cases.
    fn likely(&self, previous: &str) -> f64 {
        let all = self.rate.likely();
        match self.after.get(previous) {
            Some(rate) => (rate.hits + 2.0 * all) / (rate.tries + 2.0),
            None => all,
        }
    }
}

/// The contexts of a point in a conversation, the shortest first: one to three calls by tool and names of arguments,
/// the kind of the last result, whether the user has spoken since, how the client came.
fn contexts(trail: &Trail, spoke: bool, ending: &str) -> Vec<String> {
    let mut all = Vec::with_capacity(7);
    let last = trail.calls.last();
    all.push(String::new());
    all.push(last.map_or("^", |call| call.tool.as_str()).to_owned());
    if let Some(call) = last {
        all.push(format!("{} = {ending}", call.signature));
    }
    all.extend(aware(trail, spoke, ending));
    all
}

/// The contexts that include whether the user has spoken: one call, one call with the client's transport, two calls,
/// three.
fn aware(trail: &Trail, spoke: bool, ending: &str) -> Vec<String> {
    let mut calls = String::new();
    let said = if spoke { ", said" } else { "" };
    let mut all = Vec::with_capacity(4);
    let latest = trail.calls.iter().rev().map(|call| call.signature.as_str());
    for call in latest.chain(["^"]).take(3) {
        calls = match calls.is_empty() {
            true => call.to_owned(),
            false => format!("{call} > {calls}"),
        };
        let is_first = all.is_empty();
        all.push(match ending {
            "" => format!("{calls}{said}"),
            ending => format!("{calls} = {ending}{said}"),
        });
        // Brackets cannot occur in a tool's name.
        if let Some(came_by) = trail.came_by.as_ref().filter(|_| is_first) {
            all.push(format!("{} [{came_by}]", all[0]));
        }
    }
    all
}

/// A call whose arguments are not built yet: the tool, its form, and the value of each argument among those of
/// `values`.
struct Candidate<'a> {
    tool: &'a str,
    form: &'a [String],
    values: Rc<[Vec<Valued<'a>>]>,
    chosen: Vec<u8>,
    likelihood: f64,
    observed: f64,
}

/// A value of an argument, how likely it is, and how much was observed of its source.
struct Valued<'a> {
    value: Cow<'a, Value>,
    likely: f64,
    observed: f64,
}

#[cfg(test)]
thread_local! {
    /// Counts the work of predictions: contexts, candidate calls, sources of arguments, combinations of values.
    pub(super) static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts what a prediction looks at, for a test of how much that is.
fn looks_at(_things: usize) {
    #[cfg(test)]
    LOOKED_AT.set(LOOKED_AT.get() + _things);
}

/// Prediction.
impl Patterns {
    /// The `most` likeliest next calls, likeliest first. `may` selects the tools.
    pub fn predict(
        &self,
        trail: &Trail,
        schemas: &Schemas,
        may: impl Fn(&str) -> bool,
        most: usize,
    ) -> Vec<Guess> {
        let (mut shares, observed) = self.shares(trail);
        self.weigh(&mut shares, trail, schemas);
        shares.retain(|(tool, share)| *share >= UNLIKELY && *tool != NOTHING && may(tool));
        shares.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let mut candidates: Vec<Candidate<'_>> = Vec::new();
        for (tool, share) in shares.into_iter().take(DERIVED) {
            // Tools from here on cannot be among the likeliest.
            let likelier = candidates.iter().filter(|one| one.likelihood > share);
            if likelier.count() >= most {
                break;
            }
            self.derive(&mut candidates, trail, schemas, (tool, share, observed));
        }
        candidates.sort_by(|a, b| b.likelihood.total_cmp(&a.likelihood));
        let mut guesses: Vec<Guess> = Vec::new();
        for candidate in candidates {
            let enough = guesses
                .iter()
                .filter(|one| one.likelihood >= candidate.likelihood);
            if enough.count() >= most {
                break;
            }
            if let Some(guess) = candidate.guess(trail, &self.tools)
                && !guesses
                    .iter()
                    .any(|one| one.tool == guess.tool && one.arguments == guess.arguments)
            {
                guesses.push(guess);
            }
        }
        guesses.sort_by(|a, b| b.likelihood.total_cmp(&a.likelihood));
        guesses.truncate(most);
        guesses
    }

    /// The share of each tool among what follows, and how much was observed: longer contexts count for more, the more
    /// is known of them.
    fn shares(&self, trail: &Trail) -> (Vec<(&str, f64)>, f64) {
        let mut shares: Vec<(&str, f64)> = Vec::new();
        let mut most = 0.0_f64;
        let (ending, likely) = self.ending(trail);
        for context in contexts(trail, trail.spoke, ending) {
            looks_at(1);
            let Some(followed) = self.contexts.get(&context) else {
                continue;
            };
            looks_at(followed.next.len());
            let all: f64 = followed.next.values().sum();
            let shorter = (followed.next.len() as f64).sqrt();
            for (_, share) in &mut shares {
                *share *= shorter / (all + shorter);
            }
            for (tool, weight) in &followed.next {
                let more = weight / (all + shorter);
                match shares.iter_mut().find(|(known, _)| known == tool) {
                    Some((_, share)) => *share += more,
                    None => shares.push((tool, more)),
                }
            }
            if !context.is_empty() {
                most = most.max(all);
            }
        }
        shares.iter_mut().for_each(|(_, share)| *share *= likely);
        (shares, most)
    }

    /// Weighs the tools by whether they have new arguments, and that no call follows by whether the likeliest has. The
    /// sum of the shares stays the same.
    fn weigh(&self, shares: &mut [(&str, f64)], trail: &Trail, schemas: &Schemas) {
        shares.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let sum = |shares: &[(&str, f64)]| shares.iter().map(|(_, share)| share).sum::<f64>();
        let before = sum(shares);
        let mut likeliest = (0.0, 1.0);
        for (tool, share) in shares.iter_mut().take(COMPARED) {
            let known = self.tools.get(*tool).filter(|_| *share >= UNLIKELY);
            if let Some(offered) = known.and_then(|one| one.offered.get(trail.previous())) {
                let is_new = self.has_new(trail, schemas, tool);
                *share *= offered.odds(is_new);
                if *share > likeliest.0 {
                    likeliest = (*share, offered.odds_of_none(is_new));
                }
            }
        }
        if let Some((_, none)) = shares.iter_mut().find(|(tool, _)| *tool == NOTHING) {
            *none *= likeliest.1;
        }
        let after = sum(shares);
        shares
            .iter_mut()
            .for_each(|(_, share)| *share *= before / after);
    }

    /// The kind of the last result, and how likely it is: of a call that still runs, the usual one.
    fn ending<'a>(&'a self, trail: &'a Trail) -> (&'a str, f64) {
        let running = trail.calls.last().filter(|call| call.ending == OPEN);
        let endings = running.and_then(|call| Some(&self.tools.get(&call.tool)?.endings));
        let usual = endings.and_then(|all| all.iter().max_by(|(_, a), (_, b)| a.total_cmp(b)));
        match (endings, usual) {
            (Some(all), Some((ending, weight))) => (ending, weight / all.values().sum::<f64>()),
            _ => (trail.ending(), 1.0),
        }
    }

    fn derive<'a>(
        &'a self,
        candidates: &mut Vec<Candidate<'a>>,
        trail: &'a Trail,
        schemas: &'a Schemas,
        (tool, share, observed): (&'a str, f64, f64),
    ) {
        let Some(known) = self.tools.get(tool) else {
            return;
        };
        let previous = trail.previous();
        let forms: f64 = known.forms.iter().map(|(_, weight)| weight).sum();
        for (form, weight) in known.forms.iter().take(2) {
            let mut values = Vec::with_capacity(form.len());
            for slot in form {
                let of_slot = known.values(trail, schemas, (tool, slot, previous));
                if of_slot.is_empty() {
                    break;
                }
                values.push(of_slot);
            }
            if values.len() < form.len() {
                continue;
            }
            let values: Rc<[_]> = values.into();
            for (chosen, likely, seen) in combined(&values) {
                candidates.push(Candidate {
                    tool,
                    form,
                    values: values.clone(),
                    chosen,
                    likelihood: share * weight / forms * likely,
                    observed: seen.min(observed),
                });
            }
        }
    }
}

/// The likeliest combinations of values, with how likely each is and how much was observed of it.
fn combined(values: &[Vec<Valued<'_>>]) -> Vec<(Vec<u8>, f64, f64)> {
    let mut chosen = vec![(Vec::new(), 1.0_f64, f64::INFINITY)];
    for of_slot in values {
        looks_at(chosen.len() * of_slot.len());
        let mut longer = Vec::with_capacity(chosen.len() * of_slot.len());
        for (so_far, likely, seen) in &chosen {
            for (at, one) in (0u8..).zip(of_slot) {
                let with = [so_far.as_slice(), &[at]].concat();
                longer.push((with, likely * one.likely, one.observed.min(*seen)));
            }
        }
        longer.sort_by(|(_, a, _), (_, b, _)| b.total_cmp(a));
        longer.truncate(COMBINED);
        chosen = longer;
    }
    chosen
}

/// Returns `true` if two of the arguments are the same text.
fn are_alike(slots: &[(String, &Value)]) -> bool {
    let mut texts = slots.iter().filter_map(|(_, value)| value.as_str());
    let mut before = Vec::with_capacity(slots.len());
    texts.any(|text| {
        let is_there = before.contains(&text);
        before.push(text);
        is_there
    })
}

impl Candidate<'_> {
    fn guess(self, trail: &Trail, tools: &BTreeMap<String, Known>) -> Option<Guess> {
        let mut arguments = Map::new();
        let places = self.form.iter().zip(self.values.iter()).zip(&self.chosen);
        for ((slot, values), chosen) in places {
            let value = values.get(usize::from(*chosen))?;
            put(&mut arguments, slot, value.value.clone().into_owned())?;
        }
        let mut likelihood = self.likelihood;
        let known = tools.get(self.tool)?;
        if trail.was_made(self.tool, &arguments) {
            likelihood *= known.repeated.likely();
        }
        if slots(&arguments).is_some_and(|slots| are_alike(&slots)) {
            likelihood *= known.alike.likely();
        }
        Some(Guess {
            tool: self.tool.to_owned(),
            arguments,
            likelihood,
            confidence: lower_bound(likelihood, self.observed),
        })
    }
}

impl Known {
    /// The likeliest values of an argument.
    fn values<'a>(
        &'a self,
        trail: &'a Trail,
        schemas: &'a Schemas,
        (tool, slot, previous): (&str, &str, &str),
    ) -> Vec<Valued<'a>> {
        let mut values: Vec<Valued<'a>> = Vec::new();
        let mut found = 0;
        for traced in self.origins.get(slot).into_iter().flatten() {
            if found == LOOKED_UP {
                break;
            }
            looks_at(1);
            let Some(value) = traced.origin.value(trail, schemas, tool, slot) else {
                continue;
            };
            found += 1;
            let (likely, observed) = (traced.likely(previous), traced.rate.tries);
            match values.iter_mut().find(|known| known.value == value) {
                Some(known) if known.likely < likely => {
                    (known.likely, known.observed) = (likely, observed);
                }
                Some(_) => {}
                None => values.push(Valued {
                    value,
                    likely,
                    observed,
                }),
            }
        }
        values.sort_by(|a, b| b.likely.total_cmp(&a.likely));
        values.truncate(VALUES);
        values
    }
}

/// Listing and editing.
impl Patterns {
    /// All patterns, the surest first.
    pub fn list(&self) -> Vec<Shown> {
        let mut shown = Vec::with_capacity(self.size);
        for (context, followed) in &self.contexts {
            let observed: f64 = followed.next.values().sum();
            for (tool, weight) in &followed.next {
                shown.push(Shown {
                    after: context.clone(),
                    tool: tool.clone(),
                    share: weight / observed,
                    observed,
                });
            }
        }
        shown.sort_by(|a, b| {
            lower_bound(b.share, b.observed).total_cmp(&lower_bound(a.share, a.observed))
        });
        shown
    }

    /// Where the arguments of a tool come from: each argument, its sources in words, and how often each was right.
    pub fn sources(&self, tool: &str) -> Vec<(String, String, Rate)> {
        let known = self.tools.get(tool).into_iter();
        let slots = known.flat_map(|known| &known.origins);
        let all = slots.flat_map(|(slot, origins)| {
            let one = move |traced: &Traced| (slot.clone(), traced.origin.to_string(), traced.rate);
            origins.iter().map(one)
        });
        all.collect()
    }

    /// The tools of which something is known.
    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    /// Forgets a tool: what follows it, that it follows, and its arguments. Returns how many patterns went.
    pub fn forget(&mut self, tool: &str) -> usize {
        let before = self.size;
        self.tools.remove(tool);
        for known in self.tools.values_mut() {
            known.origins.values_mut().for_each(|origins| {
                origins.retain(|traced| match &traced.origin {
                    Origin::Argument { tool: of, .. } | Origin::Result { tool: of, .. } => {
                        of != tool
                    }
                    _ => true,
                });
                for traced in origins {
                    traced.after.remove(tool);
                }
            });
            known.offered.remove(tool);
        }
        let names = |context: &str| {
            let calls = context.split([' ', ',', '=']);
            calls
                .into_iter()
                .any(|call| call.split('(').next() == Some(tool))
        };
        self.contexts.retain(|context, followed| {
            followed.next.remove(tool);
            !names(context) && !followed.next.is_empty()
        });
        self.count();
        before - self.size
    }

    /// The part that may be kept: without sources that one conversation alone has shown.
    pub fn kept(&self) -> Self {
        let mut kept = self.clone();
        for known in kept.tools.values_mut() {
            known.origins.values_mut().for_each(|origins| {
                origins.retain(|traced| traced.conversations > 1 || !traced.origin.names_a_field());
            });
        }
        kept
    }

    /// Cleans patterns that were read from a file: within the bounds, and with nothing but declared names, shapes and
    /// values that the schemas name.
    pub fn admitted(mut self, schemas: &Schemas) -> Self {
        for (tool, known) in &mut self.tools {
            known.clean(tool, schemas);
        }
        self.count();
        self.bound();
        self
    }

    /// Cleans what is stored of the tools that are declared here. Of others another server may know what they declare.
    pub(super) fn cleaned(mut self, schemas: &Schemas) -> Self {
        for (tool, known) in &mut self.tools {
            if schemas.knows(tool) {
                known.clean(tool, schemas);
            }
        }
        self
    }

    pub(super) fn count(&mut self) {
        self.size = self
            .contexts
            .values()
            .map(|followed| followed.next.len())
            .sum();
    }
}
