//! The user's requests, with their slots.

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
    /// A new timer; a missing length is asked for.
    SetTimer {
        seconds: Option<u64>,
        label: Option<String>,
    },
    /// The running timers.
    ListTimers,
    /// The timers to cancel.
    CancelTimer(Target),
    /// The weather at a place, `now`, `today` or `tomorrow`; a missing place is asked for.
    Weather {
        place: Option<String>,
        day: &'static str,
    },
    /// Small talk, which needs no tool.
    Talk(Talk),
    /// The user asks not to do something.
    Refused,
    /// Beyond the brain.
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
    /// A sum that could not be read.
    WhichSum,
    /// A timer at a time of day.
    TimeOfDay,
    /// A length that is too short or too long for a timer.
    BadLength,
    /// Several lengths for one timer.
    WhichLength,
}

impl Talk {
    /// The answer tells the user that the request cannot be met.
    pub(crate) fn is_refusal(self) -> bool {
        matches!(self, Self::WhichSum | Self::TimeOfDay | Self::BadLength)
    }
}

impl Request {
    /// Whether a tool is needed.
    pub(crate) fn needs_tool(&self) -> bool {
        !matches!(self, Self::Talk(_) | Self::Refused | Self::Unknown)
    }
}
