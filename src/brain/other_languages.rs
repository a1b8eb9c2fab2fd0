//! The local brain in languages other than English: requests by the rules of the language's pack alone, without the
//! classifier, which knows English only.

use super::declared::{self, Known, Match};
use super::last_timer::{LastTimer, lists_timers};
use super::respond::{
    call, last_agent, last_user, speech, unable, unanswered, with_words, without_mark,
};
use super::there::place_among;
use crate::language::Pack;
use crate::language::request::{Request, Talk};
use crate::language::wording::Wording;
use crate::llm::{LlmEvent, Message, Phrases, Prompt, ToolChoice};
use crate::tools::builtin::{self, HANG_UP};
use crate::tools::{BROKEN, LATE, ToolSpec, UNANSWERED, UNCERTAIN};
use serde_json::{Map, Value};

/// The most tool calls in one answer.
const MOST_CALLS: usize = 12;

/// The local brain's answer to one prompt.
pub(super) struct OtherLanguage<'a> {
    pub(super) pack: &'static Pack,
    pub(super) wording: &'static Wording,
    pub(super) prompt: &'a Prompt,
    pub(super) known: &'a Known,
}

impl OtherLanguage<'_> {
    /// The answer, as the events of a model.
    pub(super) fn reply(&self) -> Vec<LlmEvent> {
        let messages = &self.prompt.messages;
        match messages.last() {
            Some(Message::ToolResult { .. }) => self.results(),
            Some(Message::User { .. }) => {
                let (said, before) = unanswered(messages);
                self.answer(&said.join(" "), before)
            }
            Some(Message::System { .. }) => self.noted(),
            None => self.talk(Talk::Greeting, &[]),
            Some(Message::Agent { .. } | Message::ToolCall { .. }) => Vec::new(),
        }
    }

    /// The answer to a note: to an open question before it, otherwise a greeting.
    fn noted(&self) -> Vec<LlmEvent> {
        let mut prompt = self.prompt.clone();
        prompt
            .messages
            .retain(|message| !matches!(message, Message::System { .. }));
        match prompt.messages.last() {
            Some(Message::User { .. } | Message::ToolResult { .. }) => {
                let open = OtherLanguage {
                    prompt: &prompt,
                    ..*self
                };
                open.reply()
            }
            _ if last_agent(&prompt.messages).is_none() => self.talk(Talk::Greeting, &[]),
            _ => speech(self.can()),
        }
    }

    fn answer(&self, said: &str, before: &[Message]) -> Vec<LlmEvent> {
        if let Some(tool) = self.demanded() {
            return self.called(tool, said);
        }
        let theirs: Vec<&ToolSpec> = self
            .prompt
            .tools
            .iter()
            .filter(|tool| !is_ours(tool))
            .collect();
        let words = self.pack.normalise(said);
        let is_negated = words
            .split(' ')
            .any(|word| self.wording.negations.contains(&word));
        if !is_negated
            && let Some((name, arguments)) = self.known.ruled_as(&words, said, &theirs)
            && !self.wording.knows(&name)
        {
            return self.with_filler(&name, arguments);
        }
        let requests = self.requests(said, before);
        if requests.iter().any(Request::needs_tool) {
            return self.calls(&requests).unwrap_or_else(|| self.beyond());
        }
        let is_goodbye = requests.last() == Some(&Request::Talk(Talk::Goodbye));
        if is_goodbye && requests.contains(&Request::Unknown) {
            return self.beyond();
        }
        let mut events = match requests.last() {
            Some(Request::Talk(talk)) => self.talk(*talk, before),
            Some(Request::Refused) => speech(self.wording.left_alone.into()),
            _ => return self.beyond(),
        };
        let leaves = is_goodbye && !said.trim_end().ends_with('?');
        if leaves && self.has(HANG_UP) {
            events.extend(call(HANG_UP, Map::new()));
        }
        events
    }

    fn requests(&self, said: &str, before: &[Message]) -> Vec<Request> {
        let asked = last_agent(before).unwrap_or_default();
        let answers = asked.ends_with(self.wording.how_long);
        if let Some(mut timer) = answers.then(|| (self.wording.timer_of)(said)).flatten() {
            let asked = (self.wording.requests)(last_user(before)).into_iter();
            let mut unset = asked.filter_map(|request| match request {
                Request::SetTimer {
                    seconds: None,
                    label,
                } => label,
                _ => None,
            });
            if let Request::SetTimer { label, .. } = &mut timer {
                *label = unset.next();
            }
            return vec![timer];
        }
        let which = asked.ends_with(self.wording.which_timer);
        if let Some(target) = which.then(|| (self.wording.target_of)(said)).flatten() {
            return vec![Request::CancelTimer(target)];
        }
        let of_last_timer = || {
            let back = self.taken_back(said, before);
            back.or_else(|| self.corrected(said, before))
        };
        if let Some(requests) = (!answers).then(of_last_timer).flatten() {
            return requests;
        }
        let mut requests = (self.wording.requests)(said);
        if answers && (self.wording.declines)(said) {
            // It was not set, and another may run.
            for request in &mut requests {
                if matches!(request, Request::CancelTimer(_)) {
                    *request = Request::Refused;
                }
            }
        }
        if (self.wording.points)(said) {
            let mut messages = before.iter().rev();
            let place = messages.find_map(|message| match message {
                Message::ToolCall { arguments, .. } => place_among(arguments),
                _ => None,
            });
            Request::share_place(&mut requests, place.map(str::to_owned));
        }
        let is_open = |request: &Request| matches!(request, Request::Unknown | Request::Refused);
        let may_go_on = requests.iter().all(is_open);
        let again = may_go_on.then(|| self.again(said, before)).flatten();
        again.map_or(requests, |again| vec![again])
    }

    /// Takes back the timer that was set last, if since then only the timers were spoken of: "cancel it".
    fn taken_back(&self, said: &str, before: &[Message]) -> Option<Vec<Request>> {
        let timer = LastTimer::of(before)?;
        let since = || before[timer.at..].iter();
        let turns = since().filter(|message| matches!(message, Message::User { .. }));
        let lists = since().filter(|message| lists_timers(message));
        let is_fresh = turns.count() <= lists.count();
        let takes_back = is_fresh && (self.wording.takes_back)(said);
        takes_back.then(|| vec![Request::CancelTimer(timer.target())])
    }

    /// Another length for the timer that was set last: "no, I meant ten".
    fn corrected(&self, said: &str, before: &[Message]) -> Option<Vec<Request>> {
        let timer = LastTimer::of(before)?;
        let other = (self.wording.other_length)(said, timer.seconds)?;
        Some(timer.with_length(other))
    }

    /// The request that the last one becomes with another place or day: "And in Rome?"
    fn again(&self, said: &str, before: &[Message]) -> Option<Request> {
        if last_agent(before)?.ends_with(self.wording.where_to) {
            let asked = last_user(before);
            let open = (self.wording.requests)(asked).pop()?;
            return (self.wording.again)(said, asked, &open);
        }
        let calls = before.iter().enumerate().rev();
        let (at, earlier) = calls
            .filter_map(|(at, message)| match message {
                Message::ToolCall {
                    name, arguments, ..
                } => Some((at, Request::of_call(name, arguments))),
                _ => None,
            })
            .next()?;
        (self.wording.again)(said, last_user(&before[..at]), &earlier?)
    }

    /// The tool that the client forces the model to call.
    fn demanded(&self) -> Option<&ToolSpec> {
        let tools = &self.prompt.tools;
        match &self.prompt.demands.tool_choice {
            ToolChoice::Auto | ToolChoice::None => None,
            ToolChoice::Function(name) => tools.iter().find(|tool| tool.name == *name),
            ToolChoice::Required if tools.len() == 1 => tools.first(),
            ToolChoice::Required => None,
        }
    }

    /// A call of a forced tool, or a question for the argument that is missing.
    fn called(&self, tool: &ToolSpec, said: &str) -> Vec<LlmEvent> {
        let requests = (self.wording.requests)(said);
        let mut found = requests.iter().filter_map(Request::call);
        if let Some((name, arguments)) = found.find(|(name, _)| *name == tool.name) {
            return call(name, arguments);
        }
        match declared::call(said, &self.pack.normalise(said), tool) {
            Match::Call(name, arguments) => call(&name, arguments),
            Match::Missing(argument) => speech(self.wording.need.replace("{}", &argument)),
            Match::OtherDay(_) | Match::None => Vec::new(),
        }
    }

    /// The calls for all requests, or a question if an argument is missing; `None` if a tool is not offered.
    fn calls(&self, requests: &[Request]) -> Option<Vec<LlmEvent>> {
        let mut events = Vec::new();
        for request in requests
            .iter()
            .filter(|request| request.needs_tool())
            .take(MOST_CALLS)
        {
            match request {
                Request::SetTimer { seconds: None, .. } if self.has("set_timer") => {
                    return Some(speech(self.wording.how_long.into()));
                }
                Request::Weather { place: None, .. } if self.has("get_weather") => {
                    return Some(speech(self.wording.where_to.into()));
                }
                request => {
                    let (name, arguments) = request.call()?;
                    if !self.has(name) {
                        return None;
                    }
                    let waits = matches!(request, Request::Weather { .. });
                    match waits && events.is_empty() {
                        true => events.extend(self.with_filler(name, arguments)),
                        false => events.extend(call(name, arguments)),
                    }
                }
            }
        }
        Some(events)
    }

    /// All results since somebody last spoke, in words.
    fn results(&self) -> Vec<LlmEvent> {
        let messages = &self.prompt.messages;
        let said = last_user(messages);
        let spoke =
            |message: &Message| matches!(message, Message::User { .. } | Message::Agent { .. });
        let start = messages.iter().rposition(spoke).map_or(0, |at| at + 1);
        let (mut words, mut worked) = (Vec::new(), false);
        for message in &messages[start..] {
            let Message::ToolResult { id, name, output } = message else {
                continue;
            };
            let (output, is_old) = without_mark(output);
            worked |= output.get("error").is_none();
            if is_old {
                words.push(self.wording.done_before.to_owned());
            }
            words.push(match output.get("error").and_then(Value::as_str) {
                Some(error) => self.failure(name, error),
                None => self.result(id, name, &output, said),
            });
        }
        match worked {
            true => speech(words.join(" ")),
            false => unable(words.join(" ")),
        }
    }

    fn result(&self, id: &str, name: &str, output: &Value, said: &str) -> String {
        let is_others = self.known.is_others(name, self.prompt.tools.iter());
        let built_in = || (self.wording.result)(name, output, said);
        let declared = || {
            let arguments = super::respond::arguments_of(id, &self.prompt.messages);
            self.known.answer(name, &arguments, output)
        };
        let own = (!is_others).then(|| built_in().or_else(declared)).flatten();
        own.unwrap_or_else(|| match output {
            Value::Null => self.wording.done.to_owned(),
            other => super::answers::anything(other),
        })
    }

    fn failure(&self, tool: &str, error: &str) -> String {
        let wording = self.wording;
        if let Some(place) = error.strip_prefix("unknown place: ") {
            let place = (wording.place_here)(place);
            return wording.unknown_place.replace("{}", &place);
        }
        match (tool, error) {
            ("cancel_timer", "no timer is running") => wording.no_timer.into(),
            ("cancel_timer", error) if error.contains("say which one") => {
                wording.which_timer.into()
            }
            (_, BROKEN) => wording.broken.into(),
            (_, LATE) => wording.late.into(),
            (_, UNCERTAIN | UNANSWERED) => wording.uncertain.into(),
            // Tools report failures in English.
            _ => wording.no_use.into(),
        }
    }

    fn talk(&self, talk: Talk, before: &[Message]) -> Vec<LlmEvent> {
        let wording = self.wording;
        let said = match talk {
            Talk::Greeting => wording.greeting,
            Talk::HowAreYou => wording.how_are_you,
            Talk::Thanks => wording.welcome,
            Talk::Goodbye => wording.goodbye,
            Talk::WhoAreYou => wording.who_are_you,
            Talk::Yes => wording.go_on,
            Talk::No | Talk::Stop | Talk::Wait => wording.okay,
            Talk::WhichSum => wording.which_sum,
            Talk::TimeOfDay => wording.time_of_day,
            Talk::BadLength => wording.bad_length,
            Talk::WhichLength => wording.which_length,
            Talk::WhichTimer => wording.which_timer,
            Talk::FixedLength => wording.fixed_length,
            Talk::Capabilities => return speech(format!("{} {}", self.can(), wording.connect)),
            Talk::Repeat => {
                let before = last_agent(before);
                let prefix = wording.i_said.trim_end_matches("{}");
                let again =
                    before.map(|said| format!("{prefix}{}", said.trim_start_matches(prefix)));
                return speech(again.unwrap_or_else(|| wording.nothing_said.into()));
            }
        };
        match talk.is_refusal() {
            true => unable(said.into()),
            false => speech(said.into()),
        }
    }

    /// Says that the request is beyond the brain, and what it can do.
    fn beyond(&self) -> Vec<LlmEvent> {
        unable(self.wording.beyond_me(&self.can()))
    }

    fn can(&self) -> String {
        self.wording.abilities(|name| self.has(name))
    }

    fn has(&self, name: &str) -> bool {
        self.prompt.tools.iter().any(|tool| tool.name == name)
    }

    fn one_moment(&self) -> String {
        let phrases = Phrases::of(self.pack);
        phrases.map_or_else(String::new, |phrases| phrases.one_moment.clone())
    }

    fn with_filler(&self, name: &str, arguments: Map<String, Value>) -> Vec<LlmEvent> {
        let language = self.prompt.demands.language.as_deref();
        let mut named = arguments.clone();
        if let Some(Value::String(place)) = named.get_mut("place") {
            *place = (self.wording.place_here)(place);
        }
        let filler = self.known.filler(name, &named, language);
        with_words(filler.unwrap_or_else(|| self.one_moment()), name, arguments)
    }
}

fn is_ours(tool: &ToolSpec) -> bool {
    builtin::is_ours(tool) || tool.name == HANG_UP
}
