//! The user's requests, with their slots.

use serde_json::{Map, Value, json};

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Request {
    /// The time, here or at a place.
    Time(Option<String>),
    /// An expression to evaluate.
    Calculate(String),
    /// A value to convert, with the plural names of both units.
    Convert {
        value: f64,
        from: &'static str,
        to: &'static str,
    },
    /// A new timer. The user is asked for a missing length.
    SetTimer {
        seconds: Option<u64>,
        label: Option<String>,
    },
    /// The running timers.
    ListTimers,
    /// The timers to cancel.
    CancelTimer(Target),
    /// The weather at a place, `now`, `today` or `tomorrow`. The user is asked for a missing place.
    Weather {
        place: Option<String>,
        day: &'static str,
    },
    /// Small talk, which needs no tool.
    Talk(Talk),
    /// The user asks not to do something.
    Refused,
    /// Anything that the local brain cannot do.
    Unknown,
}

/// The timers to cancel.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Target {
    Only,
    All,
    Seconds(u64),
    Label(String),
}

/// Requests that are answered with words alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Talk {
    Greeting,
    HowAreYou,
    Thanks,
    Goodbye,
    WhoAreYou,
    Capabilities,
    Repeat,
    Yes,
    No,
    Stop,
    /// The user asks for a moment, which takes nothing back.
    Wait,
    /// A sum that could not be read.
    WhichSum,
    /// A timer at a time of day.
    TimeOfDay,
    /// A length that is too short or too long for a timer.
    BadLength,
    /// Several lengths for one timer.
    WhichLength,
    /// Timers to cancel of which some are to be kept.
    WhichTimer,
    /// Another length for a running timer.
    FixedLength,
}

impl Talk {
    /// Whether the answer tells the user that the request cannot be met.
    pub(crate) fn is_refusal(self) -> bool {
        matches!(
            self,
            Self::WhichSum | Self::TimeOfDay | Self::BadLength | Self::FixedLength
        )
    }
}

impl Request {
    /// Whether a tool is needed.
    pub(crate) fn needs_tool(&self) -> bool {
        !matches!(self, Self::Talk(_) | Self::Refused | Self::Unknown)
    }

    /// The question that this call answers, if it can be asked again of another place or day.
    pub(crate) fn of_call(name: &str, arguments: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        let place = text("place").map(str::to_owned);
        match name {
            "get_time" => Some(Self::Time(place)),
            "get_weather" => {
                let days = ["now", "today", "tomorrow"];
                let day = days.into_iter().find(|day| text("day") == Some(day));
                Some(Self::Weather {
                    place,
                    day: day.unwrap_or("now"),
                })
            }
            _ => None,
        }
    }

    /// The place of a question about one.
    pub(crate) fn place_mut(&mut self) -> Option<&mut Option<String>> {
        match self {
            Self::Time(place) | Self::Weather { place, .. } => Some(place),
            _ => None,
        }
    }

    /// The same question about the weather, without its place.
    pub(crate) fn anywhere(&self) -> Option<Self> {
        match self {
            Self::Weather { day, .. } => Some(Self::Weather { place: None, day }),
            _ => None,
        }
    }

    /// Gives each question without a place the one of the question before it, at first `place`.
    pub(crate) fn share_place(requests: &mut [Self], mut place: Option<String>) {
        for own in requests.iter_mut().filter_map(Self::place_mut) {
            match own {
                Some(named) => place = Some(named.clone()),
                None => own.clone_from(&place),
            }
        }
    }

    /// The tool that fulfils it, with its arguments; `None` if no tool is needed or an argument is missing.
    pub(crate) fn call(&self) -> Option<(&'static str, Map<String, Value>)> {
        let (name, arguments) = match self {
            Self::Time(None) => ("get_time", json!({})),
            Self::Time(Some(place)) => ("get_time", json!({ "place": place })),
            Self::Calculate(expression) => ("calculate", json!({ "expression": expression })),
            Self::Convert { value, from, to } => (
                "convert_units",
                json!({"value": value, "from": from, "to": to}),
            ),
            Self::SetTimer {
                seconds,
                label: None,
            } => ("set_timer", json!({"seconds": (*seconds)?})),
            Self::SetTimer { seconds, label } => {
                ("set_timer", json!({"seconds": (*seconds)?, "label": label}))
            }
            Self::ListTimers => ("list_timers", json!({})),
            Self::CancelTimer(target) => (
                "cancel_timer",
                match target {
                    Target::Only => json!({}),
                    Target::All => json!({"all": true}),
                    Target::Seconds(seconds) => json!({ "seconds": seconds }),
                    Target::Label(label) => json!({ "label": label }),
                },
            ),
            Self::Weather { place, day } => {
                ("get_weather", json!({"place": place.as_ref()?, "day": day}))
            }
            Self::Talk(_) | Self::Refused | Self::Unknown => return None,
        };
        Some((name, arguments.as_object().cloned().unwrap_or_default()))
    }

    /// Whether more words may change it, because it ends in a place, a sum or a label.
    pub(crate) fn may_grow(&self) -> bool {
        match self {
            Self::Time(place) => place.is_some(),
            Self::Calculate(_) | Self::SetTimer { .. } | Self::Weather { .. } => true,
            _ => false,
        }
    }
}
