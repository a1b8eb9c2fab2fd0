//! The user's requests, slots included.

/// One thing asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Request {
    /// The time, here or at a place.
    Time(Option<String>),
    /// An expression to work out.
    Calculate(String),
    /// A value to convert between two units, by their usual names.
    Convert {
        value: f64,
        from: &'static str,
        to: &'static str,
    },
    /// A timer; without a length it is asked for.
    SetTimer {
        seconds: Option<u64>,
        label: Option<String>,
    },
    /// The running timers.
    ListTimers,
    /// A timer to stop.
    CancelTimer(Target),
    /// Something said that needs no tool.
    Talk(Talk),
    /// The user says not to do something.
    Refused,
    /// Nothing that we can do.
    Unknown,
}

/// Which timer to stop.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Target {
    Only,
    All,
    Seconds(u64),
    Label(String),
}

/// Requests that are answered with words alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Talk {
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
    /// A length no timer can have.
    BadLength,
    /// Several lengths for one timer.
    WhichLength,
}

impl Talk {
    /// The user wants something done, and is told that it cannot be.
    pub(super) fn is_refusal(self) -> bool {
        matches!(self, Self::WhichSum | Self::TimeOfDay | Self::BadLength)
    }
}

impl Request {
    /// Whether a tool is needed.
    pub(super) fn needs_tool(&self) -> bool {
        !matches!(self, Self::Talk(_) | Self::Refused | Self::Unknown)
    }
}
