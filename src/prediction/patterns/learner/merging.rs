//! Adds what one server has learned to what all of them know.
//!
//! A server compares what it knows with what it knew when it last looked at the store. It adds the difference to what is
//! stored by now. Of what others have forgotten meanwhile, it keeps nothing.

use super::{DECAY, FORMS, Followed, Known, LEAST, ORIGINS, Offered, Patterns, Rate, Traced};
use std::collections::BTreeMap;

/// The weight of endless observations.
const FULL: f64 = 1.0 / (1.0 - DECAY);

/// Knowledge that several servers add to.
trait Shared: Clone {
    /// Adds the difference between `now` and `before`. `None`: nothing was known before.
    fn gain(&mut self, before: Option<&Self>, now: &Self);
}

impl Patterns {
    /// Adds what was learned between `before` and `now`. What `before` has and `self` has no longer stays forgotten.
    pub fn add_learned(&mut self, before: &Self, now: &Self) {
        self.gain(Some(before), now);
    }
}

impl Shared for Patterns {
    fn gain(&mut self, before: Option<&Self>, now: &Self) {
        let known_before = before.map_or(0, |one| one.learnt);
        self.learnt += now.learnt.saturating_sub(known_before);
        self.conversation = now.conversation;
        self.contexts
            .gain(before.map(|one| &one.contexts), &now.contexts);
        for (context, followed) in &mut self.contexts {
            let last = |of: &Self| of.contexts.get(context).map(|one| one.last);
            if last(now).is_some() && before.and_then(last) != last(now) {
                followed.last = self.learnt;
            }
        }
        self.contexts
            .retain(|_, followed| !followed.next.is_empty());
        self.tools.gain(before.map(|one| &one.tools), &now.tools);
        self.count();
        self.bound();
    }
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

/// An element of a list in which its place means nothing.
trait Entry: Shared {
    fn is_same(&self, other: &Self) -> bool;
}

impl<T: Entry> Shared for Vec<T> {
    fn gain(&mut self, before: Option<&Self>, now: &Self) {
        for now in now {
            let before = before.and_then(|all| all.iter().find(|one| one.is_same(now)));
            match self.iter_mut().find(|one| one.is_same(now)) {
                Some(stored) => stored.gain(before, now),
                None if before.is_none() => self.push(now.clone()),
                None => {}
            }
        }
    }
}

impl Shared for f64 {
    fn gain(&mut self, before: Option<&Self>, now: &Self) {
        *self = (*self + (now - before.unwrap_or(&0.0))).clamp(0.0, FULL);
    }
}

impl Shared for Rate {
    fn gain(&mut self, before: Option<&Self>, now: &Self) {
        self.tries.gain(before.map(|one| &one.tries), &now.tries);
        self.hits.gain(before.map(|one| &one.hits), &now.hits);
        self.hits = self.hits.min(self.tries);
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
        self.next.gain(before.map(|one| &one.next), &now.next);
        self.next.retain(|_, weight| *weight >= LEAST);
        let all: f64 = self.next.values().sum();
        if all > FULL {
            self.next
                .values_mut()
                .for_each(|weight| *weight *= FULL / all);
        }
    }
}

impl Shared for Known {
    fn gain(&mut self, before: Option<&Self>, now: &Self) {
        self.forms.gain(before.map(|one| &one.forms), &now.forms);
        self.forms.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        self.forms.truncate(FORMS);
        self.origins
            .gain(before.map(|one| &one.origins), &now.origins);
        for origins in self.origins.values_mut() {
            origins.sort_by(|a, b| b.rate.least().total_cmp(&a.rate.least()));
            origins.truncate(ORIGINS);
        }
        self.repeated
            .gain(before.map(|one| &one.repeated), &now.repeated);
        self.alike.gain(before.map(|one| &one.alike), &now.alike);
        self.endings
            .gain(before.map(|one| &one.endings), &now.endings);
        self.offered
            .gain(before.map(|one| &one.offered), &now.offered);
    }
}

/// The names of arguments and their weight.
impl Entry for (Vec<String>, f64) {
    fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Shared for (Vec<String>, f64) {
    fn gain(&mut self, before: Option<&Self>, now: &Self) {
        self.1.gain(before.map(|one| &one.1), &now.1);
    }
}

impl Entry for Traced {
    fn is_same(&self, other: &Self) -> bool {
        self.origin == other.origin
    }
}

impl Shared for Traced {
    fn gain(&mut self, before: Option<&Self>, now: &Self) {
        self.rate.gain(before.map(|one| &one.rate), &now.rate);
        self.after.gain(before.map(|one| &one.after), &now.after);
        let known_before = before.map_or(0, |one| one.conversations);
        let more = now.conversations.saturating_sub(known_before);
        self.conversations = (self.conversations + more).min(2);
        self.last_conversation = now.last_conversation;
    }
}
