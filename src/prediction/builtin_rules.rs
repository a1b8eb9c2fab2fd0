//! How people ask for the built-in tools.

/// The rules of a built-in tool; none for any other. A tool that declares rules has only those.
pub(super) fn of(tool: &str) -> &'static [&'static str] {
    match tool {
        "get_time" => GET_TIME,
        "calculate" => CALCULATE,
        "convert_units" => CONVERT_UNITS,
        "list_timers" => LIST_TIMERS,
        "set_timer" => SET_TIMER,
        _ => &[],
    }
}

/// Examples of requests for a built-in tool; none for any other.
pub(super) fn examples(tool: &str) -> &'static [&'static str] {
    match tool {
        "get_time" => &[
            "what time is it",
            "what is the time in London",
            "what day is it today",
            "what is the date",
            "tell me the local time in Tokyo",
        ],
        "calculate" => &[
            "what is 12 times 7",
            "how much is 15 percent of 80",
            "calculate 3 plus 4",
        ],
        "convert_units" => &[
            "how many miles are 5 kilometers",
            "convert 3 pounds to kilograms",
        ],
        "list_timers" => &[
            "which timers are running",
            "how much time is left on my timer",
            "do I have any timers set",
        ],
        "set_timer" => &[
            "set a timer for 10 minutes",
            "start a pasta timer for 9 minutes",
        ],
        "cancel_timer" => &["cancel my timer", "stop the timer"],
        _ => &[],
    }
}

const GET_TIME: &[&str] = &[
    r"\bwhat (?:time is it|time it is|is the (?:current |exact |local )?time|the (?:current |local )?time is|is the hour)(?: right now| now| currently| over there)?(?: (?:in|at|for) (?P<place>.+))?$",
    r"\b(?:tell me|give me|know|have|got|check) the (?:current |exact |local )?(?:time|date)(?: right now| now)?(?: (?:in|at|for) (?P<place>.+))?$",
    r"^(?:the )?(?:current |local )?time(?: right now| now)? (?:in|at) (?P<place>.+)$",
    r"\bin (?P<place>[a-z ]+?) what time is it(?: right now| now)?$",
    r"\bwhat(?: is)?(?: the| today's| todays)? ?(?:date|day|weekday|day of the week)(?: is)?(?: it| today| is it today)*(?: (?:in|at) (?P<place>.+))?$",
    r"\btime ?zone (?:is|does) (?P<place>.+?)(?: in| use)?$",
];

const CALCULATE: &[&str] = &[
    r"^(?P<expression>.*\d ?(?:plus|minus|times|divided by|multiplied by|over|to the power|percent|per cent|squared|cubed|x|%|[-+*/^×÷]).*)$",
    r"^(?P<expression>.*\b(?:square root|cube root|sqrt|half of|quarter of|third of|factorial|(?:sum|product|difference|square|cube) (?:of|between)|add|subtract|multiply|divide)\b.*\d.*)$",
];

const CONVERT_UNITS: &[&str] = &[
    r"(?:^|\s)(?P<value>(?:minus |negative )?{number}|an?|half an?) ?(?P<from>{unit})(?: equals?| is| are)? (?:in|into|to|as|in terms of) (?P<to>{unit})(?: please)?$",
    r"\bhow many (?P<to>{unit})(?: are| is)?(?: there)? (?:in|equals?|make|makes|per) (?P<value>{number}|an?|half an?) ?(?P<from>{unit})$",
];

const LIST_TIMERS: &[&str] = &[
    r"\b(?:what|which|how many|any|list|show|check|read)\b(?: me)?(?: all)?(?: of)?(?: my| the| active| running)* timers?\b",
    r"\bhow (?:much (?:time|longer)|long|many minutes|many seconds)\b.*\b(?:left|remain(?:s|ing)?|until|till|on)\b.*\btimers?\b",
    r"\b(?:is|are|do i have|have i got) (?:there )?(?:a|any|my|the)\b.*\btimers?(?: still| already)?(?: running| on| set| active| left| going| done)?$",
    r"\b(?:did|have) (?:i|you) (?:already )?(?:set|start|started)\b.*\btimers?\b",
    r"\bwhen (?:does|will|is|do)\b.*\btimers?\b",
    r"\btimers? status\b|\bstatus of (?:my|the) timers?\b",
];

/// It changes something, so it never runs early; what is predicted still warms up and shows.
const SET_TIMER: &[&str] = &[
    r"\b(?:set|start|create|make|begin|add)(?: me| up)?(?: an?| another| the| my| new)* ?(?P<label>[a-z]+ )?timer (?:for|of) (?P<seconds>{length})$",
    r"\b(?:set|start|create|make|begin|add)(?: me| up)?(?: an?| another| the| my| new)* (?P<seconds>{length}) ?timer$",
];
