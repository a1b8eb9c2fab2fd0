//! Reads the built-in assistant's requests in a language other than English: one engine over a table of patterns.
//!
//! A request is read only if a pattern names it. Everything else is [`Request::Unknown`].

mod timers;

use super::accents;
use super::en::places;
use super::en::units::Unit;
use super::request::{Request, Talk, Target};
use regex::Regex;

const CELSIUS: &str = "degrees Celsius";
const FAHRENHEIT: &str = "degrees Fahrenheit";

/// The patterns of one language, over normalised text.
pub(super) struct Grammar {
    /// A question that goes on from the one before, with the other place or day in the group `rest`.
    pub(super) again: &'static str,
    /// Words before a request that do not change it, each followed by a space.
    pub(super) leads: &'static str,
    /// Words after a request that do not change it, each preceded by a space.
    pub(super) tails: &'static str,
    /// A request that is taken back or refused.
    pub(super) refused: &'static str,
    /// Parts of a request whose one negation refuses nothing, in the group `aside`: its purpose, its reason, a courtesy.
    pub(super) asides: &'static [&'static str],
    /// Such a part takes the request back all the same, or doubts it.
    pub(super) revokes: &'static str,
    /// Whole sentences of small talk.
    pub(super) talk: &'static [(&'static str, Talk)],
    /// Asks for the time; for the date.
    pub(super) time: &'static str,
    pub(super) date: &'static str,
    /// Such words ask for another time than the present one: "at what time does it open".
    pub(super) elsewhen: &'static str,
    /// The end of such a question, with the group `place`.
    pub(super) place: &'static str,
    /// Words with which a place ends, because no name has them; but a listed place may: "Dar es Salaam".
    pub(super) no_place: &'static str,
    /// Points at a place that was named before.
    pub(super) there: &'static str,
    /// Words of a date question besides the day and the place. With any other word it may be about another date.
    pub(super) date_words: &'static [&'static str],
    /// Those that speak of the past.
    pub(super) past: &'static [&'static str],
    /// Today, or a part of it.
    pub(super) today: &'static str,
    /// Other days with their distance from today and their names at the beginning of an answer.
    pub(super) other_days: &'static [(&'static str, i64, &'static str)],
    /// The days of the week, from Monday, and the words before and behind one of which the next of that name is meant.
    pub(super) weekdays: [&'static str; 7],
    pub(super) near_weekday: (&'static str, &'static str),
    /// Words of a longer time, none of which is part of a place.
    pub(super) long_time: &'static str,
    /// A sentence is about timers.
    pub(super) timer: &'static str,
    /// Such a sentence asks about those that run, whatever its verb.
    pub(super) asks: &'static str,
    /// A whole sentence that asks how much time is left, without a timer in it.
    pub(super) rest: &'static str,
    /// Corrects the length of the timer that was just set, with the other in the group `length`.
    pub(super) corrects: &'static str,
    /// A whole sentence that takes back the timer that was just set without naming it.
    pub(super) takes_back: &'static str,
    /// A sentence about timers says that one is no longer needed.
    pub(super) unneeded: &'static str,
    /// An answer to the question for a timer to cancel keeps it.
    pub(super) keeps: &'static str,
    /// A sentence about timers asks for a reason, or tells something.
    pub(super) wonders: &'static str,
    /// Such a sentence, with or without its lengths of time, tells of one that was set, or of a habit.
    pub(super) tells: &'static str,
    /// Words of such a sentence that look like an order and are none: "ich stelle".
    pub(super) own_acts: &'static str,
    /// Such a sentence orders one all the same; in other words than a verb that sets one.
    pub(super) orders: &'static str,
    pub(super) wishes: &'static str,
    /// Such a sentence gives a timer that runs another length.
    pub(super) changes: &'static str,
    /// Such a sentence only asks to be reminded, whatever else it names.
    pub(super) reminds: &'static str,
    /// Such a sentence cancels one; asks for those that run; means all; names a time of day.
    pub(super) cancel: &'static str,
    pub(super) list: &'static str,
    pub(super) all: &'static str,
    pub(super) time_of_day: &'static str,
    /// The name of a timer or what it is for, in the group `label`; the first that fits.
    pub(super) labels: &'static [&'static str],
    /// Words that stand in its place.
    pub(super) no_labels: &'static [&'static str],
    /// Words before a length that belong to it: "auf zehn Minuten".
    pub(super) before_length: &'static [&'static str],
    /// Words inside one length: "eine Stunde und zehn Minuten".
    pub(super) within_length: &'static [&'static str],
    /// A sentence is about the weather; days other than now; days without a forecast.
    pub(super) weather: &'static str,
    pub(super) no_forecast: &'static str,
    /// Such a sentence tells of the weather; asks for it all the same.
    pub(super) reports: &'static str,
    pub(super) enquires: &'static str,
    pub(super) days: &'static [(&'static str, &'static str)],
    /// A sentence with several lengths is about as many timers.
    pub(super) several: &'static str,
    /// Lengths of time that are rewritten as digits and units first.
    pub(super) lengths: &'static [(&'static str, &'static str)],
    /// Hours, minutes, seconds.
    pub(super) units_of_time: [&'static str; 3],
    /// A sum, in the group `sum`.
    pub(super) sum: &'static str,
    /// Words of arithmetic and their notation.
    pub(super) operations: &'static [(&'static str, &'static str)],
    /// Conversions, with the groups `value`, `from` and `to`.
    pub(super) conversions: &'static [&'static str],
    /// The English plural of a unit, its forms here: singular, plural, and others.
    pub(super) units: &'static [(&'static str, &'static [&'static str])],
    /// Degrees of either scale.
    pub(super) degrees: &'static str,
    /// The names of places that are others than in English: here and there. Those with a capital are only said.
    pub(super) places: &'static [(&'static str, &'static str)],
    /// Articles before the name of a place.
    pub(super) articles: &'static [&'static str],
    /// The months. The dot before one belongs to the number before it.
    pub(super) months: [&'static str; 12],
    /// The word between two requests.
    pub(super) and: &'static str,
    /// Words behind it with which a new sentence begins, and no second half of a place's name.
    pub(super) begins: &'static str,
    /// A text in lower case, without marks, with numbers as digits.
    pub(super) normalise: fn(&str) -> String,
}

/// A day other than today.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Day {
    /// Its distance from today in days, and its name at the beginning of an answer.
    Away(i64, &'static str),
    /// The next day of this name, from Monday.
    Weekday(usize),
}

/// The patterns, compiled.
pub(super) struct Reader {
    grammar: &'static Grammar,
    again: Regex,
    leads: Regex,
    tails: Regex,
    refused: Regex,
    asides: Vec<Regex>,
    revokes: Regex,
    talk: Vec<(Regex, Talk)>,
    time: Regex,
    date: Regex,
    elsewhen: Regex,
    place: Regex,
    no_place: Regex,
    there: Regex,
    today: Regex,
    other_days: Vec<(Regex, i64, &'static str)>,
    weekdays: Vec<Regex>,
    long_time: Regex,
    timer: Regex,
    asks: Regex,
    rest: Regex,
    corrects: Regex,
    takes_back: Regex,
    unneeded: Regex,
    keeps: Regex,
    wonders: Regex,
    tells: Regex,
    own_acts: Regex,
    orders: Regex,
    wishes: Regex,
    changes: Regex,
    reminds: Regex,
    cancel: Regex,
    list: Regex,
    all: Regex,
    time_of_day: Regex,
    labels: Vec<Regex>,
    weather: Regex,
    no_forecast: Regex,
    reports: Regex,
    enquires: Regex,
    days: Vec<(Regex, &'static str)>,
    several: Regex,
    lengths: Vec<(Regex, &'static str)>,
    length: Regex,
    sum: Regex,
    operations: Vec<(Regex, &'static str)>,
    arithmetic: Regex,
    conversions: Vec<Regex>,
    begins: Regex,
}

/// The pattern's expression, in which accents are optional.
fn regex(pattern: &str) -> Result<Regex, regex::Error> {
    Regex::new(&accents::optional(pattern))
}

impl Reader {
    /// Compiles the patterns of a language.
    ///
    /// # Errors
    /// The pattern that does not parse.
    pub(super) fn new(grammar: &'static Grammar) -> Result<Self, regex::Error> {
        let table = |rules: &[(&str, &'static str)]| {
            let rules = rules.iter().map(|(from, to)| Ok((regex(from)?, *to)));
            rules.collect::<Result<Vec<_>, regex::Error>>()
        };
        let [hours, minutes, seconds] = grammar.units_of_time;
        let length =
            format!(r"(\d+(?:\.\d+)?) ?(?:(?P<h>{hours})|(?P<m>{minutes})|(?P<s>{seconds}))\b");
        let talk = grammar.talk.iter();
        let talk = talk.map(|(words, talk)| Ok((regex(&format!("^(?:{words})$"))?, *talk)));
        let conversions = grammar.conversions.iter().map(|rule| regex(rule));
        Ok(Self {
            again: regex(grammar.again)?,
            leads: regex(&format!("^(?:(?:{}) )+", grammar.leads))?,
            tails: regex(&format!("(?: (?:{}))+$", grammar.tails))?,
            refused: regex(grammar.refused)?,
            asides: (grammar.asides.iter())
                .map(|rule| regex(rule))
                .collect::<Result<_, _>>()?,
            revokes: regex(grammar.revokes)?,
            talk: talk.collect::<Result<_, regex::Error>>()?,
            time: regex(grammar.time)?,
            date: regex(grammar.date)?,
            elsewhen: regex(grammar.elsewhen)?,
            place: regex(grammar.place)?,
            no_place: regex(&format!(r"\b(?:{})\b", grammar.no_place))?,
            there: regex(grammar.there)?,
            today: regex(grammar.today)?,
            other_days: (grammar.other_days.iter())
                .map(|(words, days, name)| Ok((regex(words)?, *days, *name)))
                .collect::<Result<_, regex::Error>>()?,
            weekdays: (grammar.weekdays.iter())
                .map(|day| {
                    let (before, after) = grammar.near_weekday;
                    regex(&format!(r"\b(?:{before})*(?:{day})(?:{after})?\b"))
                })
                .collect::<Result<_, _>>()?,
            long_time: regex(grammar.long_time)?,
            timer: regex(grammar.timer)?,
            asks: regex(grammar.asks)?,
            rest: regex(grammar.rest)?,
            corrects: regex(grammar.corrects)?,
            takes_back: regex(&format!("^(?:{})$", grammar.takes_back))?,
            unneeded: regex(grammar.unneeded)?,
            keeps: regex(grammar.keeps)?,
            wonders: regex(grammar.wonders)?,
            tells: regex(grammar.tells)?,
            own_acts: regex(grammar.own_acts)?,
            orders: regex(grammar.orders)?,
            wishes: regex(grammar.wishes)?,
            changes: regex(grammar.changes)?,
            reminds: regex(grammar.reminds)?,
            cancel: regex(grammar.cancel)?,
            list: regex(grammar.list)?,
            all: regex(grammar.all)?,
            time_of_day: regex(grammar.time_of_day)?,
            labels: (grammar.labels.iter())
                .map(|rule| regex(rule))
                .collect::<Result<_, _>>()?,
            weather: regex(grammar.weather)?,
            no_forecast: regex(grammar.no_forecast)?,
            reports: regex(grammar.reports)?,
            enquires: regex(grammar.enquires)?,
            days: table(grammar.days)?,
            several: regex(grammar.several)?,
            lengths: table(grammar.lengths)?,
            length: regex(&length)?,
            sum: regex(grammar.sum)?,
            operations: table(grammar.operations)?,
            arithmetic: Regex::new(
                r"^[\d.() ]+(?:(?:[-+*/^]|% of|sqrt) ?[\d.() ]+)+$|^sqrt\([\d.]+\)$",
            )?,
            conversions: conversions.collect::<Result<_, _>>()?,
            begins: regex(&format!(r"^(?:{})\b", grammar.begins))?,
            grammar,
        })
    }

    /// The requests in what was said, sentence by sentence.
    pub(super) fn requests(&self, said: &str) -> Vec<Request> {
        let mut all: Vec<Request> = Vec::new();
        for sentence in self.sentences(said) {
            if let Some(Request::SetTimer {
                seconds: Some(seconds),
                ..
            }) = all.last_mut()
                && let Some(other) = self.other_length(sentence, *seconds)
            {
                *seconds = other;
                continue;
            }
            let sentence = (self.grammar.normalise)(sentence);
            let read = self.sentence(&sentence);
            if all.ends_with(&read) {
                continue;
            }
            for request in read {
                let taken_back = matches!(request, Request::Refused | Request::Talk(Talk::Stop));
                if taken_back {
                    all.retain(|request| !request.needs_tool());
                }
                all.push(request);
            }
            if self.is_there(&sentence) {
                Request::share_place(&mut all, None);
            }
        }
        if all.iter().any(Request::needs_tool) {
            all.retain(Request::needs_tool);
            // Two timers may have one length.
            all.dedup_by(|next, one| next == one && !matches!(one, Request::SetTimer { .. }));
        }
        all
    }

    /// The requests of a normalised sentence: one, or several with the word for "and" between them.
    fn sentence(&self, sentence: &str) -> Vec<Request> {
        if sentence.is_empty() {
            return Vec::new();
        }
        let parts: Vec<&str> = sentence.split(self.grammar.and).collect();
        let several = (parts.len() > 1).then(|| self.parts(&parts)).flatten();
        several.unwrap_or_else(|| self.part(sentence))
    }

    /// The requests of parts of a sentence, of which each makes one or asks the one before of another place or day: "and
    /// in Rome". `None` if a part does neither.
    fn parts(&self, parts: &[&str]) -> Option<Vec<Request>> {
        let (mut all, mut asked) = (Vec::<Request>::new(), "");
        for &part in parts {
            let read = self.part(part);
            if read.iter().all(Request::needs_tool) {
                all.extend(read);
                asked = part;
                continue;
            }
            let before = all.last()?;
            let goes_on = format!("{}{part}", self.grammar.and.trim_start());
            let elsewhere = || self.again(&goes_on, asked, &before.anywhere()?);
            let next = self.again(&goes_on, asked, before).or_else(elsewhere)?;
            all.push(next);
        }
        // "The weather today and tomorrow in Rome".
        let mut places = all.iter_mut().filter_map(Request::place_mut);
        let place = places.find_map(|place| place.clone());
        for request in &mut all {
            if let Request::Weather { place: none, .. } = request {
                *none = none.take().or_else(|| place.clone());
            }
        }
        Some(all)
    }

    /// The request of a sentence or a part of it: several if they are about timers.
    fn part(&self, part: &str) -> Vec<Request> {
        // The number of "10 minuten timer" is a length.
        let without = self.without_lengths(part);
        let several = self.several.captures(&without);
        match (self.one(part), several) {
            (Request::Talk(Talk::WhichLength), Some(_)) => self.timers(part),
            (timer @ Request::SetTimer { .. }, Some(several)) => {
                let count = several.name("count");
                let count = count.and_then(|count| count.as_str().parse().ok());
                vec![timer; count.unwrap_or(1)]
            }
            (Request::CancelTimer(Target::Only), _) => {
                match self.lengths(self.core(part)).as_slice() {
                    [] => vec![Request::CancelTimer(Target::Only)],
                    several => {
                        let several = several.iter().copied().map(Target::Seconds);
                        several.map(Request::CancelTimer).collect()
                    }
                }
            }
            (one, _) => vec![one],
        }
    }

    fn one(&self, sentence: &str) -> Request {
        let sentence = sentence.trim();
        let talk = |text: &str| self.talk.iter().find(|(words, _)| words.is_match(text));
        if let Some((_, talk)) = talk(sentence) {
            return Request::Talk(*talk);
        }
        let core = self.core(sentence);
        if let Some((_, talk)) = talk(&core) {
            return Request::Talk(*talk);
        }
        // "Si no te importa" begins like "sí".
        let core = self.without_asides(self.core(&self.without_asides(sentence.to_owned())));
        let of_timers = self.timer.is_match(&core);
        if of_timers && self.is_unneeded(&core) {
            return self.timer(&core);
        }
        if of_timers && self.asks.is_match(&core) || self.rest.is_match(&core) {
            return Request::ListTimers;
        }
        if self.refused.is_match(&core) {
            return Request::Refused;
        }
        if of_timers {
            return self.timer(&core);
        }
        if self.time.is_match(&core) {
            if self.elsewhen.is_match(&core) {
                return Request::Unknown;
            }
            let core = self.today.replace_all(&core, "");
            // "Si en Londres es mediodía, ¿qué hora es en Tokio?"
            let asked = self.time.find(&core).map_or(0, |asked| asked.start());
            let place = self.place(&core[asked..]);
            return Request::Time(place.or_else(|| self.place(&core)));
        }
        if self.date.is_match(&core) {
            return self
                .date(&core)
                .map_or(Request::Unknown, |(place, _)| Request::Time(place));
        }
        if self.weather.is_match(&core) {
            let is_told = self.reports.is_match(&core) && !self.enquires.is_match(&core);
            if self.no_forecast.is_match(&core) || is_told {
                return Request::Unknown;
            }
            let (day, core) = self.day(core);
            let place = self.place(&core);
            let day = day.unwrap_or("now");
            return Request::Weather { place, day };
        }
        if let Some(conversion) = self.conversion(&core) {
            return conversion;
        }
        self.sum(&core).unwrap_or(Request::Unknown)
    }

    /// The question `before`, asked of another place or day: "And in Rome?" `asked`: the user's words for it. If it has no
    /// place for its weather, this answers the question for one: the place alone is enough, even one that is unknown here.
    pub(super) fn again(&self, said: &str, asked: &str, before: &Request) -> Option<Request> {
        let answers = matches!(before, Request::Weather { place: None, .. });
        let all = self.sentences(said);
        let [sentence] = all.as_slice() else {
            return None;
        };
        let sentence = (self.grammar.normalise)(sentence);
        let goes_on = self.again.captures(&sentence);
        let rest = match goes_on.as_ref().and_then(|found| found.name("rest")) {
            Some(rest) => rest.as_str(),
            None if answers => &sentence,
            None => return None,
        };
        let rest = self.core(rest);
        if self.no_forecast.is_match(&rest) {
            return None;
        }
        let (day, rest) = self.day(rest);
        // "Boulder, Colorado" and "und in Boulder, Colorado", but not "und wie groß ist Japan": any words before a region
        // may be a town.
        let is_alone = goes_on.is_none() && !said.trim_end().ends_with('?');
        let named = |rest: &str| {
            let place = self.place.captures(rest);
            let place = place.filter(|found| found.get(0).is_some_and(|all| all.start() == 0));
            let place = place.and_then(|found| Some(found.name("place")?.as_str()));
            let place_name = place.unwrap_or(rest).trim();
            let (name, known) = self.named(place_name);
            let is_certain = is_alone || place.is_some() || self.is_listed(place_name);
            let known = known.filter(|_| is_certain);
            let names_one = answers && place.is_some() && !self.refused.is_match(rest);
            let other = || names_one.then(|| places::title_case(name));
            known.or_else(other)
        };
        let place = match rest.as_str() {
            "" => None,
            rest => Some(named(rest)?),
        };
        match before {
            Request::Weather {
                place: old,
                day: then,
            } => Some(Request::Weather {
                place: place.or_else(|| old.clone()),
                day: day.unwrap_or(then),
            }),
            Request::Time(_) if day.is_none() && !self.asks_for_date(asked) => {
                Some(Request::Time(Some(place?)))
            }
            _ => None,
        }
    }

    /// The day of a question about the weather, other than now, and the question without it.
    fn day(&self, core: String) -> (Option<&'static str>, String) {
        let mut days = self.days.iter();
        let Some((words, day)) = days.find(|(words, _)| words.is_match(&core)) else {
            return (None, core);
        };
        let rest = words.replace_all(&core, "");
        let rest: Vec<&str> = rest.split_whitespace().collect();
        (Some(day), rest.join(" "))
    }

    /// Whether a question of what was said points at a place that was named before: "there".
    pub(super) fn points(&self, said: &str) -> bool {
        let sentences = self.sentences(said).into_iter();
        let mut sentences = sentences.map(self.grammar.normalise);
        sentences.any(|sentence| self.is_there(&sentence))
    }

    /// Whether a normalised sentence is such a question. "Sind Sie noch da?" is none.
    fn is_there(&self, sentence: &str) -> bool {
        let is_placeless = |mut request: Request| matches!(request.place_mut(), Some(None));
        self.there.is_match(sentence) && self.sentence(sentence).into_iter().any(is_placeless)
    }

    /// A sentence without the words around it.
    fn core(&self, sentence: &str) -> String {
        let core = self.leads.replace(sentence, "");
        self.tails.replace(&core, "").into_owned()
    }

    /// A sentence without the parts whose negation refuses nothing. A part with two negations may take the request back.
    fn without_asides(&self, sentence: String) -> String {
        self.asides.iter().fold(sentence, |sentence, rule| {
            let aside = rule.captures(&sentence);
            let aside = aside.and_then(|found| found.name("aside"));
            let is_plain = |aside: &str| {
                self.refused.find_iter(aside).count() == 1 && !self.revokes.is_match(aside)
            };
            match aside.filter(|aside| is_plain(aside.as_str())) {
                Some(aside) => {
                    let (before, after) = (&sentence[..aside.start()], &sentence[aside.end()..]);
                    format!("{} {}", before.trim(), after.trim())
                        .trim()
                        .to_owned()
                }
                None => sentence,
            }
        })
    }

    /// Whether what was said asks for the date, and not for the time.
    pub(super) fn asks_for_date(&self, said: &str) -> bool {
        let said = (self.grammar.normalise)(said);
        self.date.is_match(&said) && !self.time.is_match(&said)
    }

    /// Whether what was said asks for both.
    pub(super) fn asks_for_both(&self, said: &str) -> bool {
        let said = (self.grammar.normalise)(said);
        self.date.is_match(&said) && self.time.is_match(&said)
    }

    /// The place and the day of a question for the date; `None` if it has words that may name another date.
    fn date(&self, core: &str) -> Option<(Option<String>, Option<Day>)> {
        let without = |rule: &Regex, text: &str| rule.replace_all(text, " ").into_owned();
        let rest = without(&self.today, &without(&self.date, core));
        let mut days = Vec::new();
        let mut rest = self
            .other_days
            .iter()
            .fold(rest, |rest, (words, away, name)| {
                days.extend(words.is_match(&rest).then_some(Day::Away(*away, name)));
                without(words, &rest)
            });
        for (day, words) in self.weekdays.iter().enumerate() {
            days.extend(words.is_match(&rest).then_some(Day::Weekday(day)));
            rest = without(words, &rest);
        }
        let rest = rest.split_whitespace().collect::<Vec<_>>().join(" ");
        if days.len() > 1 || self.long_time.is_match(&rest) {
            return None;
        }
        let place = self.place(&rest);
        let rest = without(&self.place, &rest);
        let mut words = rest.split_whitespace();
        let is_past = rest
            .split_whitespace()
            .any(|word| self.grammar.past.contains(&word));
        let is_relative = matches!(days.first(), Some(Day::Away(..)));
        let fits = is_relative || !is_past;
        let known = |word: &str| {
            self.grammar.date_words.contains(&word) || self.grammar.past.contains(&word)
        };
        (fits && words.all(known)).then(|| (place, days.first().copied()))
    }

    /// The day other than today whose date was asked for.
    pub(super) fn other_day(&self, said: &str) -> Option<Day> {
        let sentences = self.sentences(said).into_iter();
        let asked = |part: &str| {
            let core = Some(self.core(part)).filter(|core| self.date.is_match(core))?;
            self.date(&core)?.1
        };
        let mut sentences = sentences.map(self.grammar.normalise);
        sentences.find_map(|sentence| sentence.split(self.grammar.and).find_map(asked))
    }

    /// The sentences of a text. A dot between digits ends none, and neither does that of "am 3. Oktober".
    fn sentences<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let (mut parts, mut start) = (Vec::new(), 0);
        for (at, mark) in text
            .char_indices()
            .filter(|(_, c)| matches!(c, '.' | '?' | '!' | ';'))
        {
            let end = at + mark.len_utf8();
            let (before, after) = (&text[..at], &text[end..]);
            let ends = after.chars().next().is_none_or(char::is_whitespace);
            if ends && !(mark == '.' && self.is_of_a_number(before, after.trim_start())) {
                parts.push(text[start..at].trim());
                start = end;
            }
        }
        parts.push(text[start..].trim());
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// Whether the dot between these texts belongs to a number: "am 3. Oktober", "am 3.10. um 9 Uhr".
    fn is_of_a_number(&self, before: &str, after: &str) -> bool {
        let mut months = self.grammar.months.iter();
        let goes_on =
            after.starts_with(char::is_lowercase) || months.any(|month| after.starts_with(month));
        goes_on && before.ends_with(|c: char| c.is_ascii_digit())
    }

    fn place(&self, core: &str) -> Option<String> {
        let mut from = 0;
        loop {
            let found = self.place.captures_at(core, from)?.name("place")?;
            if let Some(name) = self.name_in(found.as_str().trim()) {
                // "Berlin und wie geht es dir", but not "Trinidad und Tobago".
                let mut cuts = name.match_indices(self.grammar.and);
                let cut = cuts.find(|(at, and)| self.is_sentence(&name[at + and.len()..]));
                let (name, known) = self.named(cut.map_or(name, |(at, _)| &name[..at]));
                return Some(known.unwrap_or_else(|| places::title_case(name)));
            }
            from = found.start();
        }
    }

    /// The name with which such words begin; `None` if they begin with none: "¿Tiene idea de qué hora es en Tokio?"
    fn name_in<'a>(&self, words: &'a str) -> Option<&'a str> {
        let mut ends = Vec::new();
        // Regen is a town.
        if words.contains(' ') {
            let others = self.no_place.find_iter(words);
            ends.extend(others.map(|word| word.start()));
        }
        ends.push(words.len());
        let until = |end: &usize| {
            let name = words[..*end].trim();
            let and = self.grammar.and.trim_end();
            name.strip_suffix(and).unwrap_or(name)
        };
        let mut longest = ends.iter().rev().map(until);
        let listed = longest.find(|name| self.is_listed(name));
        let name = listed.unwrap_or_else(|| until(&ends[0]));
        Some(name).filter(|name| !name.is_empty())
    }

    /// Whether words behind a place and the word for "and" are a sentence of their own.
    fn is_sentence(&self, words: &str) -> bool {
        let is_request = || match self.one(words) {
            Request::Talk(_) => true,
            other => other.needs_tool(),
        };
        // "Und sag mir bitte, wer".
        let begins = self.begins.is_match(words) || self.begins.is_match(&self.core(words));
        begins || is_request()
    }

    /// A place as it is called in English, as far as that is known, and the place that it is, if any.
    fn named<'a>(&self, name: &'a str) -> (&'a str, Option<String>) {
        let names = self.english(name);
        // "La India" is no town in India.
        let listed = names.iter().filter(|name| places::is_listed(name));
        let mut likely = listed.chain(&names);
        let known = likely.find_map(|name| places::find(name).ok());
        let name = names.first().copied().unwrap_or(name);
        (name, known.map(|place| place.name))
    }

    /// The names that a place may have in English, the likeliest first.
    fn english<'a>(&self, name: &'a str) -> Vec<&'a str> {
        let article = name.split_once(' ');
        let article = article.filter(|(first, _)| self.grammar.articles.contains(first));
        let names = [Some(name), article.map(|(_, rest)| rest)];
        let names = || names.into_iter().flatten();
        let english = names().filter_map(|name| {
            let mut places = self.grammar.places.iter();
            places.find_map(|(here, there)| (*here == name).then_some(*there))
        });
        english.chain(names()).collect()
    }

    /// Whether the tables have a place, alone or before its region. [`places::find`] also takes any other words before a
    /// region for a town.
    fn is_listed(&self, name: &str) -> bool {
        let names = self.english(name);
        names.into_iter().any(places::is_listed_in_full)
    }

    /// A place as it is called here: "Tokio" for "Tokyo".
    pub(super) fn place_here(&self, name: &str) -> String {
        let lower = name.to_lowercase();
        let found = self
            .grammar
            .places
            .iter()
            .find(|(_, there)| *there == lower);
        let has_capital = |name: &str| name.contains(char::is_uppercase);
        match found {
            Some((here, _)) if has_capital(here) => (*here).to_owned(),
            Some((here, _)) => places::title_case(here),
            None => name.to_owned(),
        }
    }

    fn unit(&self, name: &str) -> Option<&'static str> {
        let units = self.grammar.units.iter();
        let mut units = units.filter(|(_, forms)| forms.contains(&name));
        units.next().map(|(english, _)| *english)
    }

    /// A unit, of which the name may be singular, as it is called here after a number.
    pub(super) fn unit_here(&self, english: &str, number: &str) -> String {
        let plural = Unit::named(english).map_or(english, |unit| unit.plural);
        let found = self.grammar.units.iter().find(|(unit, _)| *unit == plural);
        let form = found.and_then(|(_, forms)| forms.get(usize::from(number != "1")));
        form.map_or_else(|| english.to_owned(), |form| (*form).to_owned())
    }

    fn conversion(&self, core: &str) -> Option<Request> {
        let found = self
            .conversions
            .iter()
            .find_map(|rule| rule.captures(core))?;
        let value = found.name("value").map_or("", |value| value.as_str());
        // "Ein" and "una" are one.
        let value = match value.contains(|c: char| c.is_ascii_digit()) {
            true => value.parse().ok()?,
            false => 1.0,
        };
        let to = self.unit(&found["to"])?;
        let is_degree = &found["from"] == self.grammar.degrees;
        let from = self.unit(&found["from"]).or(match to {
            CELSIUS if is_degree => Some(FAHRENHEIT),
            FAHRENHEIT if is_degree => Some(CELSIUS),
            _ => None,
        })?;
        Some(Request::Convert { value, from, to })
    }

    fn sum(&self, core: &str) -> Option<Request> {
        let found = self.sum.captures(core);
        let sum = found.as_ref().map(|found| &found["sum"]);
        // "3/10" alone may be a date, and "5 and 10" two numbers.
        let is_bare = sum.is_none() && !core.contains('/') && !core.contains(self.grammar.and);
        let sum = sum.or_else(|| is_bare.then_some(core))?;
        let sum = rewritten(&self.operations, sum.to_owned());
        let sum = sum.split_whitespace().collect::<Vec<_>>().join(" ");
        // "5 + 3 = 8" lacks its sign.
        let is_digit = |at: usize| sum.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
        let mut spaces = sum.match_indices(' ');
        let is_torn = spaces.any(|(at, _)| at > 0 && is_digit(at - 1) && is_digit(at + 1));
        if !is_torn && self.arithmetic.is_match(&sum) {
            return Some(Request::Calculate(sum));
        }
        let has_digits = sum.contains(|c: char| c.is_ascii_digit());
        (has_digits && !is_bare).then_some(Request::Talk(Talk::WhichSum))
    }
}

fn rewritten(rules: &[(Regex, &'static str)], text: String) -> String {
    rules.iter().fold(text, |text, (from, to)| {
        from.replace_all(&text, *to).into_owned()
    })
}
