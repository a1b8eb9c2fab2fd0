//! Adds what one server has learned to what all of them know.
//!
//! A server compares what it knows (`now`) with what it knew when it last looked at the store (`before`), and makes its
//! observations since then anew upon what is stored by now: older weights decay by as many. So the order of two servers'
//! observations matters as little as that of two calls. Of what others have forgotten meanwhile nothing comes back.

use super::{
    DECAY, FORMS, Followed, Known, LEAST, ORIGINS, Offered, PREVIOUS, Patterns, Rate, SLOTS, TOOLS,
    Traced,
};
use std::collections::BTreeMap;

/// Knowledge that several servers add to.
trait Shared: Clone {
    /// Makes the observations between `before` and `now` upon this.
    fn gain(&mut self, before: Option<&Self>, now: &Self);
}

impl Patterns {
    /// Adds what was learned between `before` and `now`. What `before` has and `self` has no longer stays forgotten.
    pub fn add_learned(&mut self, before: &Self, now: &Self) {
        self.learnt += now.learnt.saturating_sub(before.learnt);
        self.conversation = now.conversation;
        self.contexts.gain(Some(&before.contexts), &now.contexts);
        for (context, followed) in &mut self.contexts {
            let last = |of: &Self| of.contexts.get(context).map(|one| one.last);
            if let Some(at) = last(now).filter(|at| last(before) != Some(*at)) {
                let calls_since = now.learnt.saturating_sub(at);
                followed.last = self.learnt.saturating_sub(calls_since);
            }
        }
        self.contexts
            .retain(|_, followed| !followed.next.is_empty());
        self.tools.gain(Some(&before.tools), &now.tools);
        shorten(&mut self.tools, TOOLS);
        self.count();
        self.bound();
    }

    /// Adds what `known` knows better, to a store that begins anew.
    pub fn recover(&mut self, known: &Self) {
        let seen = |one: &Followed| one.next.values().sum::<f64>();
        let called = |one: &Known| one.forms.iter().map(|(_, weight)| weight).sum::<f64>();
        self.learnt = self.learnt.max(known.learnt);
        keep_better(&mut self.contexts, &known.contexts, seen);
        keep_better(&mut self.tools, &known.tools, called);
        shorten(&mut self.tools, TOOLS);
        self.count();
        self.bound();
    }
}

fn keep_better<T: Clone>(
    stored: &mut BTreeMap<String, T>,
    known: &BTreeMap<String, T>,
    weight: impl Fn(&T) -> f64,
) {
    for (name, known) in known {
        let worth = stored.get(name).map_or(0.0, &weight);
        if weight(known) >= worth {
            stored.insert(name.clone(), known.clone());
        }
    }
}

fn shorten<T>(all: &mut BTreeMap<String, T>, most: usize) {
    while all.len() > most {
        all.pop_last();
    }
}

/// The share that is left of a weight after the observations between the two counts.
fn left_after(before: u32, now: u32) -> f64 {
    DECAY.powf(f64::from(now.wrapping_sub(before)))
}

/// The weight after the observations that have changed `before` to `now`, of which `left` of older weights is left.
fn moved(stored: f64, before: f64, now: f64, left: f64) -> f64 {
    (stored * left + (now - before * left)).max(0.0)
}

/// Moves the weights of alternatives of which each observation has added to one.
fn move_weights(
    stored: &mut BTreeMap<String, f64>,
    before: Option<&BTreeMap<String, f64>>,
    now: &BTreeMap<String, f64>,
    left: f64,
) {
    let earlier = |name: &str| before.and_then(|all| all.get(name)).copied();
    for (name, weight) in &mut *stored {
        let now = now.get(name).copied().unwrap_or_default();
        *weight = moved(*weight, earlier(name).unwrap_or_default(), now, left);
    }
    for (name, weight) in now {
        if earlier(name).is_none() && !stored.contains_key(name) {
            stored.insert(name.clone(), *weight);
        }
    }
    stored.retain(|_, weight| *weight >= LEAST);
}

impl<T: Shared> Shared for BTreeMap<String, T> {
    fn gain(&mut self, before: Option<&Self>, now: &Self) {
        for (name, now) in now {
            let before = before.and_then(|all| all.get(name));
            match self.get_mut(name) {
                Some(stored) => stored.gain(before, now),
                None if before.is_none() => {
                    self.insert(name.clone(), now.clone());
                }
                None => {}
            }
        }
    }
}

impl Shared for Rate {
    fn gain(&mut self, before: Option<&Self>, now: &Self) {
        let before = before.copied().unwrap_or_default();
        let left = left_after(before.added, now.added);
        self.tries = moved(self.tries, before.tries, now.tries, left);
        self.hits = moved(self.hits, before.hits, now.hits, left).min(self.tries);
        self.added = now.added;
    }
}

impl Shared for Offered {
    fn gain(&mut self, before: Option<&Self>, now: &Self) {
        self.called.gain(before.map(|one| &one.called), &now.called);
        self.other.gain(before.map(|one| &one.other), &now.other);
        self.none.gain(before.map(|one| &one.none), &now.none);
    }
}

impl Shared for Followed {
    fn gain(&mut self, before: Option<&Self>, now: &Self) {
        let left = left_after(before.map_or(0, |one| one.added), now.added);
        move_weights(&mut self.next, before.map(|one| &one.next), &now.next, left);
        self.added = now.added;
    }
}

impl Shared for Known {
    fn gain(&mut self, before: Option<&Self>, now: &Self) {
        let (forms, endings) = before.map_or((0, 0), |one| one.added);
        self.gain_forms(before, now, left_after(forms, now.added.0));
        let left = left_after(endings, now.added.1);
        let earlier = before.map(|one| &one.endings);
        move_weights(&mut self.endings, earlier, &now.endings, left);
        self.added = now.added;
        self.repeated
            .gain(before.map(|one| &one.repeated), &now.repeated);
        self.alike.gain(before.map(|one| &one.alike), &now.alike);
        self.offered
            .gain(before.map(|one| &one.offered), &now.offered);
        shorten(&mut self.offered, PREVIOUS);
        self.origins
            .gain(before.map(|one| &one.origins), &now.origins);
        shorten(&mut self.origins, SLOTS);
    }
}

impl Known {
    fn gain_forms(&mut self, before: Option<&Self>, now: &Self, left: f64) {
        let weight_in = |all: &[(Vec<String>, f64)], form: &[String]| {
            let found = all.iter().find(|(known, _)| known == form);
            found.map(|(_, weight)| *weight)
        };
        let before = before.map_or(&[][..], |one| &one.forms);
        for (form, weight) in &mut self.forms {
            let earlier = weight_in(before, form).unwrap_or_default();
            // Those of a tool that is not declared here are not known here.
            let now = weight_in(&now.forms, form).unwrap_or(earlier * left);
            *weight = moved(*weight, earlier, now, left);
        }
        self.forms.retain(|(_, weight)| *weight >= LEAST);
        for (form, weight) in &now.forms {
            let is_new = weight_in(before, form).is_none();
            if is_new && weight_in(&self.forms, form).is_none() {
                self.forms.push((form.clone(), *weight));
            }
        }
        self.forms.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        self.forms.truncate(FORMS);
    }
}

/// The sources of an argument.
impl Shared for Vec<Traced> {
    fn gain(&mut self, before: Option<&Self>, now: &Self) {
        for now in now {
            let is_it = |one: &&Traced| one.origin == now.origin;
            let before = before.and_then(|all| all.iter().find(is_it));
            match self.iter_mut().find(|one| one.origin == now.origin) {
                Some(stored) => stored.gain(before, now),
                None if before.is_none() => self.push(now.clone()),
                None => {}
            }
        }
        self.sort_by(|a, b| b.rate.least().total_cmp(&a.rate.least()));
        self.truncate(ORIGINS);
    }
}

impl Shared for Traced {
    fn gain(&mut self, before: Option<&Self>, now: &Self) {
        self.rate.gain(before.map(|one| &one.rate), &now.rate);
        self.after.gain(before.map(|one| &one.after), &now.after);
        shorten(&mut self.after, PREVIOUS);
        let known_before = before.map_or(0, |one| one.conversations);
        let more = now.conversations.saturating_sub(known_before);
        self.conversations = (self.conversations + more).min(2);
        self.last_conversation = now.last_conversation;
    }
}
