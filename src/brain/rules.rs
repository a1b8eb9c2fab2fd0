//! Rules for plain requests. A sentence that one of them matches completely needs no classifier.

use super::when;
use crate::language::en::mood::{self, Mood};
use crate::language::en::places;
use crate::language::en::units::Unit;
use crate::language::en::{durations, expression, slots, text, units};
use crate::language::request::{Request, Talk, Target};
use regex::{Captures, Regex};
use std::sync::LazyLock;

/// The longest timer, in seconds, as in the tool.
const DAY: u64 = 24 * 60 * 60;
/// The longest name of a timer, in bytes.
const LONGEST_NAME: usize = 40;
/// The most timers of one length that are set at once.
const MOST_TIMERS: usize = 20;

fn rule(pattern: &str) -> Option<Regex> {
    let built = Regex::new(pattern);
    assert!(built.is_ok() || !cfg!(test), "{built:?}");
    built.ok()
}

macro_rules! rule {
    ($name:ident, $pattern:expr) => {
        static $name: LazyLock<Option<Regex>> = LazyLock::new(|| rule(&$pattern));
    };
}

rule!(
    OPENERS,
    r"^(?:help me (?:to )?|(?:(?:can|could|would|will)(?: not)?|cannot) you (?:please |just |maybe |quickly )*|would you mind |do (?:not )?you (?:happen to )?know |why do not (?:you|we) |(?:do not|never) forget to |remember to |(?:make|be) sure to |please |just |quickly |i (?:want|need|would like|would love|have) (?:you )?to (?:know )?|i (?:(?:am|was) (?:just )?wondering|wonder) (?:(?:if|whether) you (?:can|could|would) )?|let me know |let us |tell me |show me |give me |check |look up |find out |go ahead and |may i (?:know |ask )?|can i (?:get|have|know|ask) |any idea |telling me |me )+"
);
rule!(
    TAILS,
    r"(?: (?:please|right now|now|currently|at the moment|at present|exactly|for me|thanks|thank you|again|then|over there|there|here|around here|if you can|if you do not mind|today|you know|man|buddy|will you|would you|can you|could you|!|=))+$|!+$"
);

// Signs that the user asks not to do something.
rule!(
    NEGATED,
    r"\b(?:do not|does not|did not|never ?mind|not|never|no need|without|rather not|no timers?|forget (?:about )?(?:it|that|the)|skip|instead of|will not|cannot)\b|^no\b"
);
rule!(
    REFUSAL,
    r"\b(?:never ?mind|no need|no timers?|forget|rather not|skip)\b"
);
rule!(
    INSTEAD,
    r"\b(?:but(?: just)?|instead|i (?:just|only|simply) (?:want|wanted|would like|meant|wish) to(?: say)?|just) (?P<rest>[^,]+)$"
);
rule!(
    GREETS,
    r"^(?:hello|hi|hey|hiya|howdy|good (?:morning|afternoon|evening|day))\b"
);
rule!(
    LEAVES,
    r"\b(?:bye|goodbye|good night|night|later|leave|leaving|go|going|run|hang|farewell|take care|see you|see ya|ciao|cheers|cheerio|off|done|end|ttyl|(?:until|till|talk|speak|call)(?: (?:to )?you)? tomorrow)\b"
);
rule!(
    REPEATS,
    r"\b(?:say|said|saying|repeat|again|hear|heard|catch|caught|pardon|once more|one more time|come again|excuse me|sorry|understand|louder|slower|slowly|what was that)\b"
);
// Words that say that something was said before.
rule!(
    SAID,
    r"\b(?:say|said|saying|repeat|again|once more|one more time|what was that)\b"
);
rule!(
    ADDRESSES,
    r"\b(?:you|your|yourself|undertone|things|everything|life)\b|\bit going$"
);
rule!(
    STOPS,
    r"\b(?:stop|quiet|enough|shut|silence|silent|hush|shush|cancel|leave|drop|forget|mind|talking|pause|wait|end)\b"
);
rule!(REMINDER, r"^remind (?:me|us)\b");
// The beginning of an order, which is no report, whatever else it mentions.
rule!(
    ORDER,
    r"^(?:(?:set|start|create|make|begin|add|put|run|get|i need|i want|i would like|cancel|stop|delete|remove|clear|end) .*\b(?:timers?|countdowns?|(?:another|new|second) (?:one|1))\b|(?:(?:an? |another |half an hour |[\d.]+ (?:hours?|minutes?|seconds?) )+(?:[a-z]+ )?)?timers? (?:for|to|called|so|because)\b|[a-z]+ timers? for [\d.]+ (?:hours?|minutes?|seconds?)\b|count ?down\b|(?:remind|alert|notify|ping|buzz|wake) (?:me|us)\b)"
);
// "A timer for the eggs was set", "my timer for 10 minutes".
rule!(
    REPORT,
    r"^(?:(?:the|my|our|your|his|her|their|this|that|[a-z]+'s) |(?:an?|another|[\d.]+|(?:[a-z]+ )?timers?) .*\b(?:was|were|had)\b)"
);
rule!(TO_CANCEL, r"^(?:cancel|stop|delete|remove|clear|end)\b");
// A request to remove something, which is the opposite of what most tools do.
rule!(
    REMOVE,
    r"^(?:(?:please|now|just|and|(?:can|could|would|will) you) )*(?:delete|remove|erase|discard|undo|get rid of)\b"
);
rule!(
    REMOVES,
    r"\b(?:delet|remov|eras|discard|undo|cancel|clear|drop|get rid|take[sn]?\b.*\boff|empt|archiv|unsubscrib|uninstall)"
);
// Words that make an order conditional or a report.
rule!(
    SUPPOSED,
    r"\b(?:if|unless|(?:when|once|after|as soon as) (?:i|you|he|she|it|we|they|the|my|our|his|her|your|everybody|everyone)|yesterday|ago|would have)\b"
);
// "And tell me when it is done" makes no order conditional.
rule!(
    ALERT,
    r" (?:and |then |to )*(?:tell|let|alert|notify|warn|ping|wake|remind|call|beep|ring|buzz)s?(?: (?:me|us))?(?: know)? (?:when|once|after|as soon as) .*$"
);
// Words at the end that may take an order back or correct it.
const BACK: &str = r"(?P<back> (?:(?:no|never ?mind|forget|skip (?:it|that|this)|rather not|wait|but|actually|sorry|scratch that|or rather|i (?:mean|meant)|make (?:it|that) (?:[\d.]+|an?|half)|cancel (?:it|that)|do not (?:set|start|do|bother))\b.*|do not(?: please)?))?$";
// A word before them. "So I do not forget it" takes nothing back.
const WORD: &str = r"(?:(?:not|never|to|i|we|will|would|might|may|can|could|cannot|always|often) (?:forget|skip|wait)|[^ ]+)";
// A mishap that a timer is to prevent.
const MISHAP: &str = r"(?:be late|burn|forget|lose|miss|overcook|oversleep|remember|ruin)";
// The reason for an order.
rule!(
    REASON,
    format!(
        r" (?:so(?: that)? (?:i|we|you|he|she|it|they|the|that|this|my|our|nobody|nothing)\b|so as\b|in order\b|because\b|(?:and )?do not let me [a-z]+|i (?:do not want to|must not|should not|cannot|will not|never|always|keep) {MISHAP}\b)(?: {WORD})*?{BACK}"
    )
);
// The beginning of what a reminder is about.
const ABOUT: &str = r"(?:(?:not |never )?to|about|of|that)";
// The subject of a reminder or timer.
rule!(
    SUBJECT,
    format!(
        r"^(?P<order>.*\b(?:(?:remind|alert|notify|ping|buzz|wake) (?:me|us)|timers?)\b.*?) {ABOUT} (?:not (?:forget|skip)|[a-z][^ ]*)(?: {WORD})*?{BACK}"
    )
);
// The timers that an order to cancel excludes.
rule!(
    EXCLUDED,
    format!(
        r"^(?P<order>.*\b(?:all|every|both|timers|countdowns)\b.*?) (?:(?:that|which) (?:[a-z]+ )?(?:not|never)|not (?:for|called|named|the|my)|without (?:an?|any|the|my))\b(?: {WORD})*?{BACK}"
    )
);
rule!(
    REMIND_OF,
    format!(r"^(?:remind|alert|notify) (?:me|us) (?P<what>{ABOUT} .+)$")
);
rule!(
    REMIND_LATER,
    format!(
        r"^(?:remind|alert|ping|notify) (?:me|us) (?P<what>{ABOUT} .+?) in (?:about )?(?P<length>\d.+)$"
    )
);

// Signs of a report, a question about how to do something, or a supposition.
rule!(
    TOLD,
    r"\b(?:yesterday|ago|used to|once|last (?:night|week|year|month|time|monday|summer)|earlier|if|my (?:sister|brother|mom|mum|mother|dad|father|wife|husband|friend|boss|kids?|son|daughter|roommate|neighbou?r|coworker|colleague|teacher|grandmother|grandma)|he|she|they|we|told|said|asked|was|were|had|would have|should|how (?:do|can|to|would|did)|why|when (?:i|you)|because|always|hate|love|like to|imagine|suppose|pretend|wish|story|song|movie)\b"
);

rule!(
    TIME,
    r"^(?:what time is it|what time it is|what is the (?:current |exact |local |right )?time|what the (?:current |exact |local )?time is|what is the hour|what hour is it|what time do (?:you|they) have|what time have you got|the (?:current |exact |local )?time|current (?:local )?time|local time|time|time check|(?:do you )?(?:have |got |have got )?the time|(?:have you )?got the time|how late is it|what is time|what time|is it late)(?: is it)?(?: (?:(?:(?:over|out|back|up|down) )?(?:in|for|at)|on) (?P<place>.+))?$"
);
rule!(
    TIME_FIRST,
    r"^(?:in|for) (?P<place>.+?) what (?:time is it|is the time|is the current time)$"
);
rule!(
    TIME_OF,
    r"^what is (?:the )?(?P<place>.+?)(?:'s)? (?:current |local )?time$"
);
rule!(
    DATE,
    r"^(?:what (?:is )?(?:the )?(?:(?:current|today's|todays) )?(?:day|date|month|year|weekday)(?: and (?:month|year|date|day))?(?: of the (?:week|month))?(?: is it| is today| it is| is| do we have| are we on)?|which (?:day|date|month|year)(?: of the week)?(?: is it| is today| it is| is)?|what is today(?:'s)?(?: date)?|what day (?:is|of the week is|of the week) (?:it|today)|today(?:'s|s)? (?:date|day)|the (?:current |today's )?date|the day of the week|the day|today is what (?:day|date)|what today's date is|what today is|what the date is)(?: (?:over )?in (?P<place>.+))?$"
);
rule!(
    TIME_AND_DATE,
    r"^(?:what is |what are |what )?(?:the )?(?:current |exact |local )?(?:time and (?:the )?(?:date|day)|(?:date|day) and (?:the )?(?:current )?time)(?: is it)?(?: (?:in|for|at) (?P<place>.+))?$"
);
rule!(
    ZONE,
    r"^(?:what|which) (?:time ?zone) (?:is|does|are) (?P<a>.+?)(?: in| use| have| on)?$|^(?:what is )?(?:the )?time ?zone (?:of|in|for) (?P<b>.+)$|^(?:what is )?(?P<c>.+?)'s time ?zone(?: is what)?$"
);

rule!(
    CONVERT,
    format!(
        r"^(?:convert |change |turn |express |what is |what are |how much is |how many is |how (?:far|long|hot|cold|heavy|tall|much|high|fast|big|warm) (?:is|are) |calculate )*(?P<n>(?:minus |negative |-)?\d+(?:\.\d+)?|an?|half an?) (?P<from>{0})(?: equals?| is| are| make)?(?: in| into| to| as| is how many| how many| equal to how many| is what in| in terms of)+ (?P<to>{0})$",
        units::pattern()
    )
);
rule!(
    HOW_MANY,
    format!(
        r"^(?:what is |how many |(?:what is )?the (?:total )?number of )(?P<to>{0})(?: are| is| or)?(?: there)?(?: in| equals?| make| makes| per| for)* (?P<n>-?\d+(?:\.\d+)?|an?|half (?:of )?an?|the) (?P<from>{0})$",
        units::pattern()
    )
);
rule!(
    FEET,
    r"^(?:convert |what is |how (?:tall|much|long|high) is )*(?P<feet>\d+) (?:feet|foot|ft)(?: and)? (?P<inches>\d+(?:\.\d+)?)(?: inch(?:es)?)? (?:in|into|to) (?P<to>.+)$"
);
rule!(
    DEGREES,
    r"^(?:convert |change |turn |what is |what are |how much is |how (?:hot|cold|warm) is )*(?P<n>(?:minus |negative |-)?\d+(?:\.\d+)?) degrees? (?:in|into|to|as) (?:degrees )?(?:(?P<c>celsius|centigrade|c)|fahrenheit|f)$"
);

rule!(
    SET,
    r"^(?:set|start|create|make|begin|add|run|put|new|another|i need|i want|i would like|get me|get|fire up|kick off)(?: (?:up|me|on|off|going|running|a|an|another|the|my|one more|new|quick|brand|please)\b)* ?(?P<label>.*?) ?\b(?:timers?|countdowns?)(?P<rest>(?: .*)?)$"
);
rule!(
    SET_ONE,
    r"^(?:set|start|create|make|begin)(?: up)? (?:a |an |another |the )?(?:new |second |other )?(?:another|one|1) (?:for|of) (?P<rest>\d.*)$"
);
rule!(
    BARE_SET,
    r"^(?:an? )?(?:\d+(?:\.\d+)? (?:hours?|minutes?|seconds?) (?:and )?)*(?P<label>[a-z]+ )??timers?(?P<rest> .*)?$"
);
rule!(
    REMIND,
    r"^(?:remind|alert|ping|notify|buzz|wake) me(?: up)? (?:in|after|when) (?P<rest>.+)$|^(?:tell me |let me know )(?:when|after|once|in) (?P<when>.+?)(?: (?:are|is|have|has) (?:up|over|passed|gone by|elapsed|done))?$|^count ?down (?:from )?(?P<down>.+)$|^(?:put|set) (?P<clock>.+) on the (?:clock|timer)$|^(?:time|start timing) (?P<time>\d.+)$"
);
// Words between a name and the length behind it: "pasta for about 10 minutes". "#" stands for a length.
const LENGTH: &str = r"(?:(?: (?:for|of|in|at|to|lasting|about|around|roughly|approximately|exactly|maybe|just))*(?: #.*)?)";
rule!(
    NAMED,
    format!(
        r"\b(?:called|named|labell?ed|label it|call it|name it) (?:the |my |a )?(?P<name>[a-z0-9 ]+?){LENGTH}$"
    )
);
rule!(
    MEANT_FOR,
    format!(r"\b(?:for|to) (?:the |my |a |some )?(?P<name>[a-z ]+?){LENGTH}$")
);
const DAY_OR_HOUR: &str = r"(?:\d+(?: \d+)? ?(?:am|pm)|\d+ ?:\d+|oclock|noon|midnight|until|till|tomorrow|tonight|at \d+|morning|evening|afternoon|every day|monday|tuesday|wednesday|thursday|friday|saturday|sunday)";
rule!(TIME_OF_DAY, format!(r"\b{DAY_OR_HOUR}\b"));
const HOUR: &str = r"\b(?:\d+(?: \d+)? ?(?:am|pm)|\d+ ?:\d+|oclock|noon|midnight|at \d+)\b";
// An hour, or a time of day beside the only length.
rule!(
    TIMED,
    format!(
        r"\b{DAY_OR_HOUR}(?: (?:for|in|after|lasting|(?:that|which) (?:lasts?|is|runs?)))* #|{HOUR}|timers? (?:(?:to|that|which|starts?|starting|begins?|beginning|in the|on|this) )+{DAY_OR_HOUR}\b|#(?: (?:timer|countdown))?(?: (?:for|from|on|at|by|before|after|to|in the|this|starting|beginning|long))* {DAY_OR_HOUR}\b"
    )
);
rule!(
    CORRECTION,
    r"\b(?:no wait|wait no|no sorry|sorry no|i mean|i meant|actually|make that|make it|scratch that|or rather|no)\b"
);

// A number behind or before an "and" that may be a length without its unit.
rule!(
    UNREAD,
    r"\bfor \d+(?:\.\d+)?(?: and\b|$)| and (?:another |one |1 |for |of )*\d+(?:\.\d+)?$"
);

rule!(
    LIST,
    r"^(?:(?:what|which|how many)(?: of my)? (?:timers?|countdowns?)(?: (?:do i have|have i (?:got|set)|are (?:there|running|on|set|active|going|left)|is (?:running|on|set|active)|did i set|i have|i set))*(?: (?:running|set|on|going|active|left|at the moment))*|(?:list|show|read|see|what are|how are|how is|status of|what about)?(?: me| out)? ?(?:all )?(?:of )?(?:my|the|any|active|running|current) (?:(?:active|running|current|[a-z]+) )?timers?(?: status| doing| at| left)?|(?:list|show)(?: all)? timers|timer status|(?:how much|what|how many minutes|how many seconds)(?: is the)?(?: time| longer)? ?(?:is left|is remaining|is the remaining time|remains|do i have(?: left)?|have i got left|are left|left|remaining|time is left|is there)(?: (?:on|in|for|of|until|before) (?:(?:the|my|that|this) )?(?:.*)?timers?(?: .*)?)?|how much longer(?: (?:on|for|until|is|does|will) .*timers?.*)?|how long (?:is left|left|until|till|before|does|is|do i have).*timers?.*|how long (?:is left|left|do i have left)|(?:did|have) i (?:already )?(?:set|start|started|got|have) (?:a|any|the|my|that) ?.*timers?(?: .*)?|do i (?:still |already )?have (?:a|any|the|my) ?.*timers?(?: .*)?|(?:is|are) (?:there )?(?:a|an|any|my|the|that) ?.*timers? ?(?:still |almost |nearly )?(?:running|on|set|going|active|done|left|over|up|finished|ready)?|when (?:does|will|is|do) (?:my|the|that) ?.*timers? (?:go off|end|ring|be done|be up|finish|done|over|be over|up|ring|going off|going to (?:ring|go off))|any timers(?: (?:set|running|on|going))?|is my .*timer .*|what is (?:left|remaining) on .*timers?|what is the remaining time(?: (?:on|for|of) .*timers?)?)$"
);
rule!(
    CANCEL,
    r"^(?:cancel|stop|delete|remove|clear|kill|end|dismiss|get rid of|abort|scrap|erase|turn off|shut off|switch off|shut down)(?: (?:off|out))?(?P<what>.*?) ?\b(?P<noun>timers?|countdowns?)(?P<rest>(?: .*)?)$|^(?:turn|shut|switch) (?P<what2>.*?)(?P<noun2>timers?) off$"
);
// A new timer behind one that is cancelled.
rule!(AND_SET, r" (?:and|but) (?P<verb>set|start) ");
// Some timers are to be kept: "all timers except the pasta one".
rule!(
    EXCEPT,
    r"\b(?:except|excepting|excluding|besides|apart from|aside from|other than|(?:all|everything) but|but (?:not )?(?:the|my|that|this|\d+)|keep (?:only )?(?:the|my|that|this)|(?:all|every|both|timers|countdowns) .*\b(?:not|never|without))\b|\bbut (?:not )?[a-z]+$|(?:^|\b(?:and|but|just|then|please|timers?|countdowns?) )leave (?:only )?(?:the|my|that|this)\b|^(?:and |just )*not (?:the|my|that|this)\b"
);
// The length of a running timer is to be changed: "add 5 minutes to my timer".
rule!(
    CHANGE,
    concat!(
        r"^(?:(?:add|give|take|subtract|remove)(?: (?:another|an|extra|additional|about|off))* [\d.]+(?: (?:more|extra|additional))? ?(?:hours?|minutes?|mins?|seconds?|secs?)(?: more)? (?:to|on|onto|from|off)(?: of)? .*\b(?:timers?|countdowns?)\b.*",
        r"|add (?:another [\d.]+|[\d.]+ more) (?:hours?|minutes?|seconds?)|add [\d.]+ (?:hours?|minutes?|seconds?) more",
        r"|(?:(?:put|set|i need|i want|i would like|get me) )?(?:another [\d.]+|[\d.]+ (?:more|extra|additional)) (?:hours?|minutes?|mins?|seconds?|secs?)(?: more)? (?:on|onto|to|for) (?:the|my|that|this) .*\b(?:timers?|countdowns?|clock)",
        r"|give (?:the|my|that|this) .*\b(?:timers?|countdowns?) .*\d.*",
        r"|(?:extend|lengthen|prolong|shorten|increase|decrease|reduce|change|adjust|update|replace|swap) (?:the|my|that|this) .*\b(?:timers?|countdowns?)\b.*",
        r"|.*\b(?:the|my|that|this) .*\b(?:timers?|countdowns?) .*\b(?:longer|shorter|another [\d.]+ [a-z]+|(?:more|extra|additional) (?:hours?|minutes?|mins?|seconds?|secs?)))$"
    )
);
// The same for the timer that was just spoken of.
rule!(
    CHANGE_IT,
    r"^(?:add|put|give it|take|subtract|remove)(?: (?:another|an|extra|additional|about|off))* [\d.]+(?: (?:more|extra|additional))? ?(?:hours?|minutes?|mins?|seconds?|secs?)(?: more)?(?: (?:to|on|onto|from|off)(?: of)? (?:it|that))?$"
);
// A new timer, or a question.
rule!(
    NO_CHANGE,
    r"^(?:(?:set|start|restart|run|begin|create)\b.* for (?:another|(?:about )?[\d.]+ (?:more|extra|additional))\b|(?:do|does|did|is|are|was|has|have|what|which|how|why|when|who)\b)"
);
rule!(
    WHICH_DROP,
    r"\b(?:the|my|that|this|a|an|all|of|every|both|running|set|current|one|for|please|called|named|only|now|earlier|minutes?|i|just|off|and|them|down|it|last|is)\b"
);

const TALK: &[(Talk, &str)] = &[
    (
        Talk::Stop,
        r"^(?:stop|stop (?:it|that|talking|speaking|now)|(?:please )?(?:(?:hold|hang) on|wait)(?: (?:a|an|1|one|just|for))*(?: (?:moment|second|minute|sec|instant|bit|while))(?: please)?|(?:please )?(?:hold|hang) on(?: please)?|(?:just )?be quiet|quiet|shut up|hush|silence|enough|that is enough|never ?mind|forget (?:about )?(?:it|that)|cancel(?: that| it)?|leave it|drop it|skip it|no stop)$",
    ),
    (
        Talk::Wait,
        r"^(?:(?:(?:please|oh|sorry) )*(?:give me|just|1|one)(?: (?:a|an|1|one|just|for))* (?:moment|second|minute|sec|instant|bit|while)|no (?:just )?(?:1|one) (?:moment|second|sec))(?: please)?$",
    ),
    (
        Talk::Repeat,
        r"^(?:what did you (?:just )?say|(?:say|repeat) (?:that|it)(?: again| once more)?|repeat|pardon(?: me)?|come again|what was that|say again|one more time|once more|i did not (?:hear|catch|get) (?:you|that|it)|repeat what you (?:just )?said)$",
    ),
    (
        Talk::Thanks,
        r"^(?:(?:(?:many|great|okay|ok|perfect|cool|good|alright|all right|oh|no|that is (?:all|it|everything)(?: for (?:now|today))?) )*(?:thanks(?: a lot| so much| very much| a bunch)?|thank you(?: so much| very much)?)(?: for (?:that|this|everything|(?:your|the|all the|all your) help))?(?: (?:that is (?:all|it|everything)|that (?:was|will be) (?:all|it|everything)|nothing else)(?: for (?:now|today)| i (?:need|needed|wanted))?)?|i appreciate it|cheers)$",
    ),
    (
        Talk::Goodbye,
        r"^(?:(?:(?:okay|ok|alright|all right|well|great|perfect|no|and|(?:thanks(?: a lot| so much| very much| a bunch)?|thank you(?: so much| very much)?)(?: for (?:that|this|everything|(?:all )?(?:your|the) help))?|(?:that is|that was|that will be) (?:all|it|everything)(?: for (?:now|today)| i (?:need|needed|wanted))?|have a (?:nice|good|great) (?:day|one|night|evening)) )*(?:good ?)?bye(?: bye)?(?: for now| now| then)?|(?:please |you can |let us )?(?:hang up|end (?:the|this) call)(?: now| please)?|good ?night|see you(?: later| soon| tomorrow)?|(?:i (?:have|need|have got) to (?:run|go|leave) )?(?:talk|speak)(?: to you)? (?:later|soon)|have a (?:nice|good|great) (?:day|one|night|evening)|take care)$",
    ),
    (
        Talk::Greeting,
        r"^(?:(?:hi|hello|hey|howdy|hiya|greetings|good (?:morning|afternoon|evening|day)) ?)*(?:(?:there|again|assistant|undertone) ?)*(?:(?:can|do) you hear me(?: now| okay| well)?|are you there|is (?:anybody|anyone|somebody|someone) there|i have (?:a|1|one) (?:quick )?question|(?:hi|hello|hey|howdy|hiya|greetings|good (?:morning|afternoon|evening|day))(?: (?:there|again|assistant|undertone))?)$",
    ),
    (
        Talk::HowAreYou,
        r"^how (?:are you|are you doing|is it going|do you do|have you been|are things)$",
    ),
    (
        Talk::WhoAreYou,
        r"^(?:who are you|what are you|what is your name|are you (?:a |an )?(?:robot|bot|human|ai|real|computer|machine|person)|who (?:made|built|created) you)$",
    ),
    (
        Talk::Capabilities,
        r"^(?:what (?:else )?can (?:you do|i (?:ask|say))(?: you| for me)?|what are you able to do|how can you help(?: me)?|help|help me|what do you do)$",
    ),
    (
        Talk::Yes,
        r"^(?:yes|yeah|yep|yup|sure|of course|okay|ok|correct|right|absolutely|please do|go ahead)$",
    ),
    (
        Talk::No,
        r"^(?:no|nope|nah|not really|no thanks|no thank you|not now)$",
    ),
];

static TALKS: LazyLock<Vec<(Talk, Regex)>> = LazyLock::new(|| {
    let build = |(talk, pattern): &(Talk, &str)| Some((*talk, rule(pattern)?));
    TALK.iter().filter_map(build).collect()
});

fn matches(rule: &Option<Regex>, text: &str) -> bool {
    rule.as_ref().is_some_and(|rule| rule.is_match(text))
}

fn captured<'t>(rule: &Option<Regex>, text: &'t str, names: &[&str]) -> Option<Option<&'t str>> {
    let found = rule.as_ref()?.captures(text)?;
    Some(
        names
            .iter()
            .find_map(|name| found.name(name))
            .map(|part| part.as_str().trim()),
    )
}

fn without(rule: &Option<Regex>, text: &str) -> String {
    match rule {
        Some(rule) => rule.replace_all(text, "").trim().to_owned(),
        None => text.to_owned(),
    }
}

/// The request without the phrases and the reason around it.
pub(super) fn core(sentence: &str) -> String {
    let opened = opened(sentence);
    let order = is_order(&opened).then(|| cut(&REASON, &opened));
    // "So that I can leave in 10 minutes" names the length.
    let is_timed = |text: &String| !durations::all(text).is_empty();
    let order = order.filter(|order| is_timed(order) || !is_timed(&opened));
    let core = without(&TAILS, &order.unwrap_or(opened));
    if core.is_empty() {
        sentence.to_owned()
    } else {
        core
    }
}

/// The request without the phrases before it. "Do not let me forget" asks for a reminder.
fn opened(sentence: &str) -> String {
    let polite = mood::without_courtesy(sentence);
    let opened = without(&OPENERS, text::without_fillers(&polite));
    match opened.strip_prefix("do not let me forget ") {
        Some(rest) => format!("remind me not to forget {rest}"),
        None => opened,
    }
}

/// Whether the words begin with an order. "I need help, how do I set a timer" does not.
fn is_order(opened: &str) -> bool {
    static TIMER: LazyLock<Option<Regex>> = LazyLock::new(|| rule(r"\b(?:timers?|countdowns?)\b"));
    static REMINDS: LazyLock<Option<Regex>> =
        LazyLock::new(|| rule(r"^(?:remind|alert|notify|ping|buzz|wake) (?:me|us)\b"));
    let timer = TIMER.as_ref().and_then(|timer| timer.find(opened));
    let before = timer.map_or("", |timer| &opened[..timer.start()]);
    let is_told = || matches(&TOLD, before) || matches(&REPORT, &cut(&REASON, opened));
    matches(&ORDER, opened) && (matches(&REMINDS, opened) || !is_told())
}

/// The text without the words that the rule matches, but with its parts "order" and "back".
fn cut(rule: &Option<Regex>, text: &str) -> String {
    match rule {
        Some(rule) => rule.replace(text, "${order}${back}").into_owned(),
        None => text.to_owned(),
    }
}

/// Whether a sentence only gives a reason for the one before it: "so I don't forget the pizza". "So I don't want it" does
/// not.
pub(super) fn is_reason(sentence: &str) -> bool {
    static FEARS: LazyLock<Option<Regex>> =
        LazyLock::new(|| rule(&format!(r"\bwant to {MISHAP}\b")));
    let sentence = format!(" {sentence}");
    let found = REASON
        .as_ref()
        .and_then(|reason| reason.captures(&sentence));
    let found = found.filter(|found| found.name("back").is_none());
    let is_whole = found.is_some_and(|found| sentence.len() == found[0].len());
    let refuses = |word: &str| ["want", "need", "like", "mind"].contains(&word);
    is_whole && !without(&FEARS, &sentence).split(' ').any(refuses)
}

/// An order without its reason and without the subject of a reminder or timer, which may negate or tell anything: "remind
/// me in 10 minutes" for "remind me in 10 minutes not to forget my keys". An order to cancel is given without the timers
/// that it excludes. `None` if the sentence is no order.
fn order_alone(sentence: &str) -> Option<String> {
    let opened = opened(sentence);
    let rest = match matches(&TO_CANCEL, &opened) {
        true => &EXCLUDED,
        false => &SUBJECT,
    };
    is_order(&opened).then(|| cut(rest, &durations::plain(&cut(&REASON, &opened))))
}

/// Whether the user asks not to do something, or says what is not so.
pub(super) fn is_negated(sentence: &str) -> bool {
    let order = order_alone(sentence);
    let said = order.as_deref().unwrap_or(sentence);
    matches(&NEGATED, &mood::plain(text::without_fillers(said)))
}

/// Whether a negated sentence refuses something: "do not set it", but not "I do not know".
pub(super) fn is_refusal(sentence: &str) -> bool {
    const PEOPLE: [&str; 7] = ["i", "we", "they", "people", "really", "still", "actually"];
    const WISHES: [&str; 8] = [
        "want", "need", "wish", "require", "like", "care", "really", "actually",
    ];
    const STATES: [&str; 9] = [
        "know",
        "think",
        "remember",
        "recall",
        "understand",
        "see",
        "believe",
        "hear",
        "mean",
    ];
    let words: Vec<&str> = sentence.split(' ').collect();
    let refuses = |at: usize| {
        let before = at.checked_sub(1).map(|before| words[before]);
        let next = words.get(at + 2).copied().unwrap_or_default();
        match before {
            Some(person) if PEOPLE.contains(&person) => WISHES.contains(&next),
            _ => !STATES.contains(&next),
        }
    };
    let not = |at: &usize| words[*at..].starts_with(&["do", "not"]);
    matches(&REFUSAL, sentence) || (0..words.len()).filter(not).any(refuses)
}

/// The request that a negated sentence makes instead: "I do not want a timer, just tell me the time".
pub(super) fn instead(sentence: &str) -> Vec<Request> {
    let found = INSTEAD.as_ref().and_then(|rule| rule.captures(sentence));
    let rest = found.and_then(|found| found.name("rest"));
    let rest = rest.map_or("", |rest| rest.as_str());
    match is_negated(rest) {
        true => Vec::new(),
        false => read(rest),
    }
}

/// Whether the words of a sentence that was classified as this talk are evidence of it. These answers
/// embarrass if they are wrong.
pub(super) fn is_evident(talk: Talk, sentence: &str) -> bool {
    match talk {
        Talk::Goodbye => matches(&LEAVES, sentence) && !matches(&GREETS, sentence),
        Talk::Repeat => matches(&REPEATS, sentence),
        Talk::Stop => matches(&STOPS, sentence),
        // "How is the weather" is about something else.
        Talk::HowAreYou | Talk::WhoAreYou => matches(&ADDRESSES, sentence),
        _ => true,
    }
}

/// Whether the words ask for something that was said before. "Excuse me" does not.
pub(super) fn asks_for_words(said: &str) -> bool {
    matches(&SAID, &text::normalise(said))
}

/// The timer to cancel, if the words take back the last call and that set this one, with these seconds and label: "cancel
/// it".
pub(super) fn takes_back_timer(
    sentence: &str,
    seconds: u64,
    label: Option<&str>,
) -> Option<Target> {
    static IT: LazyLock<Option<Regex>> = LazyLock::new(|| {
        rule(
            r"^(?:(?:no|oh|wait|sorry|actually|okay|please) )*(?:(?:cancel|stop|delete|remove|clear|kill|end|undo|abort|scrap|drop)(?: (?:it|that|this|that one|this one|the last one))|cancel|undo|(?:turn|switch|shut) (?:it|that|that one) off|turn off (?:it|that))(?: (?:please|again|now|actually|then|thanks))*$",
        )
    });
    let fits = matches(&IT, sentence) || matches(&IT, &core(sentence));
    fits.then(|| match label {
        Some(label) => Target::Label(label.to_owned()),
        None => Target::Seconds(seconds),
    })
}

/// The timer that the words refuse: "I don't need the timer anymore", [`Target::Only`] if they name none. A name must be
/// one of `labels`.
pub(super) fn refused_timer(sentence: &str, labels: &[&str]) -> Option<Target> {
    static REFUSED: LazyLock<Option<Regex>> = LazyLock::new(|| {
        rule(
            r"^(?:(?:no|oh|wait|sorry|actually|okay|please) )*(?:i (?:do not|no longer) (?:need|want) |forget (?:about )?|never ?mind (?:about )?)(?:the|that|this|my) (?P<what>.*?) ?(?:timer|countdown)(?: (?:any ?more|any longer|now|please|after all|again|then|thanks))*$",
        )
    });
    let found = REFUSED.as_ref()?.captures(sentence)?;
    match target(&found["what"], false) {
        Target::All => None,
        Target::Label(label) if !labels.contains(&label.as_str()) => None,
        target => Some(target),
    }
}

/// The timer that "cancel the ten minute one" means. A name must be one of `labels`.
pub(super) fn which_one(sentence: &str, labels: &[&str]) -> Option<Target> {
    static ONE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        rule(
            r"^(?:no )?(?:cancel|stop|delete|remove|clear|kill|end)(?: the| my| that)? (?P<what>.+?) (?:ones?|1)$",
        )
    });
    let core = core(sentence);
    let found = ONE.as_ref()?.captures(&core)?;
    match target(&found["what"], false) {
        Target::Seconds(seconds) => Some(Target::Seconds(seconds)),
        Target::Label(label) if labels.contains(&label.as_str()) => Some(Target::Label(label)),
        _ => None,
    }
}

/// The words for a timer in a request to cancel one that need not say "timer", as an answer to the question for it: "the 5
/// minute" of "can you turn off the five minute one" and of "how about the five minute one".
pub(super) fn named_to_cancel(sentence: &str) -> Option<String> {
    static NAMED: LazyLock<Option<Regex>> = LazyLock::new(|| {
        rule(
            r"^(?:cancel|stop|delete|remove|clear|kill|end|dismiss|get rid of|abort|scrap|erase|turn off|shut off|switch off|shut down) (?P<what>.+?)(?: (?:ones?|1))?$|^(?:turn|shut|switch) (?P<off>.+?)(?: (?:ones?|1))? off$|^(?:how|what) about (?P<about>.*\b(?:all|both|them|timers?|countdowns?))$|^(?:how|what) about (?P<one>.+) (?:ones?|1)$",
        )
    });
    let core = core(sentence);
    let words = captured(&NAMED, &core, &["what", "off", "about", "one"]);
    words.flatten().map(str::to_owned)
}

/// The length that corrects a timer of so many seconds: "no, I said 50 minutes", "actually make it 10", but not "sorry, one
/// second" or "no, wait a minute".
pub(super) fn other_length(sentence: &str, seconds: u64) -> Option<u64> {
    static INSTEAD_OF: LazyLock<Option<Regex>> = LazyLock::new(|| {
        rule(
            r"^(?:(?:please|oh|no|wait|sorry|actually|rather|i (?:mean|meant|said|wanted)|(?:can you )?make (?:it|that)|(?:can you )?change (?:it|that) to|set it (?:to|for)) ?)+ (?:an? )??(?P<length>(?:\d|half|an? (?:hour|minute|quarter|half|couple)).*?)(?: (?:please|instead|timer|then|thanks))*$",
        )
    });
    static LEAD: LazyLock<Option<Regex>> =
        LazyLock::new(|| rule(r"^(?:(?:no|oh|actually|sorry|please) )+"));
    static WAITS: LazyLock<Option<Regex>> =
        LazyLock::new(|| rule(r"\bwait (?:an?|1|one) (?:minute|second|sec|moment)$"));
    let bare = without(&LEAD, sentence);
    let waits = match talk(&bare) {
        Some(Talk::Stop) => true,
        // "No, one minute" is a length.
        Some(Talk::Wait) => !bare.ends_with(" minute"),
        _ => matches(&WAITS, sentence),
    };
    if waits || matches!(talk(sentence), Some(Talk::Stop | Talk::Wait)) {
        return None;
    }
    let found = INSTEAD_OF.as_ref()?.captures(sentence)?;
    let length = &found["length"];
    let unit = if seconds.is_multiple_of(60) { 60 } else { 1 };
    let bare = length.parse::<u64>().ok().map(|number| number * unit);
    let only = || durations::without(length).trim().is_empty();
    let length = bare.or_else(|| durations::seconds(length).filter(|_| only()))?;
    (1..=DAY).contains(&length).then_some(length)
}

/// Whether the sentence dictates a reminder.
pub(super) fn is_reminder(sentence: &str) -> bool {
    matches(&REMINDER, &core(sentence))
}

/// Whether the core of a sentence asks for the time.
pub(super) fn is_time(core: &str) -> bool {
    matches(&TIME, core) || matches(&TIME_FIRST, core)
}

/// Whether the core of a sentence asks for the date.
pub(super) fn is_date(core: &str) -> bool {
    matches(&DATE, core)
}

/// The parts of a sentence that may be questions of their own: "what time is it in rome what day is it".
pub(super) fn questions(sentence: &str) -> Vec<String> {
    let apart = sentence.replace(" what ", " and what ");
    let apart = apart.replace(" which ", " and which ");
    apart
        .replace(" and and ", " and ")
        .split(" and ")
        .map(str::to_owned)
        .collect()
}

/// Whether the core of a sentence asks for both.
pub(super) fn is_time_and_date(core: &str) -> bool {
    matches(&TIME_AND_DATE, core)
}

/// Whether the user reports or supposes something, or asks how to do it.
pub(super) fn is_told(sentence: &str) -> bool {
    match order_alone(sentence) {
        Some(order) => matches(&SUPPOSED, &without(&ALERT, &order)),
        None => matches(&TOLD, &mood::plain(text::without_fillers(sentence))),
    }
}

/// Whether the sentence asks for something to be removed.
pub(super) fn asks_to_remove(sentence: &str) -> bool {
    matches(&REMOVE, text::without_fillers(sentence))
}

/// Whether a tool's words, in lower case, tell of removing something.
pub(super) fn tells_of_removing(text: &str) -> bool {
    matches(&REMOVES, text)
}

/// Whether the user corrects a part of the sentence.
pub(super) fn is_corrected(sentence: &str) -> bool {
    matches(&CORRECTION, sentence)
}

/// The requests in a normalised sentence, if a rule matches all of it.
pub(super) fn read(sentence: &str) -> Vec<Request> {
    let core = core(sentence);
    if let Some(talk) = talk(sentence).or_else(|| talk(&core)) {
        // "Hello bye" is a greeting that was misheard.
        let greets = talk == Talk::Goodbye && matches(&GREETS, sentence);
        return vec![Request::Talk(if greets { Talk::Greeting } else { talk })];
    }
    if is_list(&core) || is_list(sentence) {
        return vec![Request::ListTimers];
    }
    if let Some(place) = when::place(&core) {
        return place.map_or_else(|| vec![Request::Time(None)], here_or_there);
    }
    if is_told(&core) {
        return Vec::new();
    }
    if let Some(expression) = expression::read(&core) {
        return vec![Request::Calculate(expression)];
    }
    if let Some(convert) = convert(&core) {
        return vec![convert];
    }
    if let Some(mut times) = time(&core) {
        if text::without_fillers(sentence).ends_with(" and here") {
            times.push(Request::Time(None));
        }
        return times;
    }
    if changes(&core) {
        let is_timed = durations::all(&core).is_empty() && matches(&TIME_OF_DAY, &core);
        return vec![Request::Talk(match is_timed {
            true => Talk::TimeOfDay,
            false => Talk::FixedLength,
        })];
    }
    cancel(&core)
        .or_else(|| set(&core))
        .or_else(|| remind(&core, sentence))
        .unwrap_or_default()
}

fn changes(core: &str) -> bool {
    let core = durations::plain(core);
    matches(&CHANGE, &core) && !matches(&NO_CHANGE, &core)
}

/// Whether the words change the length of the timer that was just spoken of: "add one minute".
pub(super) fn changes_it(sentence: &str) -> bool {
    matches(&CHANGE_IT, &durations::plain(&core(sentence)))
}

pub(super) fn talk(sentence: &str) -> Option<Talk> {
    let fits = |(_, pattern): &&(Talk, Regex)| pattern.is_match(sentence);
    TALKS.iter().find(fits).map(|(talk, _)| *talk)
}

fn is_list(core: &str) -> bool {
    const SUBJECTS: [&str; 9] = [
        "time",
        "longer",
        "long",
        "minutes",
        "seconds",
        "timer",
        "timers",
        "countdown",
        "countdowns",
    ];
    core.split(' ').any(|word| SUBJECTS.contains(&word)) && matches(&LIST, core)
}

/// Whether the words ask for the rest of a timer if they follow a request for one: "how much is left".
pub(super) fn asks_for_rest(sentence: &str) -> bool {
    matches(&LIST, &core(sentence))
}

fn time(core: &str) -> Option<Vec<Request>> {
    // "what time is it here and in tokyo"
    if let Some((here, elsewhere)) = core.split_once(" here and ")
        && time(here)? == [Request::Time(None)]
    {
        let (_, place) = elsewhere
            .split_once(' ')
            .filter(|(word, _)| ["in", "at", "for"].contains(word))?;
        let mut times = vec![Request::Time(None)];
        times.extend(here_or_there(place));
        return Some(times);
    }
    let place = captured(&TIME, core, &["place"])
        .or_else(|| captured(&DATE, core, &["place"]))
        .or_else(|| captured(&TIME_AND_DATE, core, &["place"]))
        .or_else(|| captured(&TIME_FIRST, core, &["place"]))
        .or_else(|| known_only(captured(&ZONE, core, &["a", "b", "c"])))
        .or_else(|| known_only(captured(&TIME_OF, core, &["place"])))?;
    match place {
        None => Some(vec![Request::Time(None)]),
        Some(place) => Some(here_or_there(place)),
    }
}

/// Accepts a match only with a known place, because these patterns are too broad.
fn known_only(found: Option<Option<&str>>) -> Option<Option<&str>> {
    found.filter(|place| place.is_some_and(|place| !known(place).is_empty()))
}

/// The times at these places; empty if the words name a day or a length of time instead.
fn here_or_there(place: &str) -> Vec<Request> {
    // "tokyo and here": the last word was taken for an adverb.
    let place = place.strip_suffix(" and").unwrap_or(place);
    let place = before_question(place).unwrap_or(place);
    let places = known(place);
    if places.is_empty() {
        if slots::words_of_a_name(place).len() < place.len() {
            return Vec::new();
        }
        let name = places::title_case(place.trim_start_matches("the "));
        return vec![Request::Time(Some(name))];
    }
    places
        .into_iter()
        .map(|place| Request::Time(Some(place)))
        .collect()
}

/// The words before another question or request: "london" of "london and can you tell me a joke".
fn before_question(place: &str) -> Option<&str> {
    place.match_indices(" and ").find_map(|(at, and)| {
        let clause = &place[at + and.len()..];
        let asks = matches!(mood::meant(clause).mood, Mood::Question | Mood::Request);
        (asks && !places::is_certain(clause)).then_some(&place[..at])
    })
}

/// The usual names in "paris and in tokyo"; empty if one of them is unknown.
fn known(place: &str) -> Vec<String> {
    let name = |name: &str| {
        let name = without(&TAILS, name.trim());
        places::find(name.trim_start_matches("in "))
            .ok()
            .map(|place| place.name)
    };
    let several = || place.split(" and ").map(name).collect::<Option<Vec<_>>>();
    match name(place) {
        Some(whole) if places::is_listed(&whole) => vec![whole],
        whole => several()
            .or(whole.map(|whole| vec![whole]))
            .unwrap_or_default(),
    }
}

fn convert(core: &str) -> Option<Request> {
    const CELSIUS: &str = "degrees Celsius";
    const FAHRENHEIT: &str = "degrees Fahrenheit";
    if let Some(found) = DEGREES.as_ref()?.captures(core) {
        let (from, to) = match found.name("c") {
            Some(_) => (FAHRENHEIT, CELSIUS),
            None => (CELSIUS, FAHRENHEIT),
        };
        let value = slots::number(&found["n"])?;
        return Some(Request::Convert { value, from, to });
    }
    if let Some(found) = FEET.as_ref()?.captures(core) {
        let inches: f64 = found["inches"].parse().ok()?;
        let feet: f64 = found["feet"].parse().ok()?;
        return Some(Request::Convert {
            value: feet + inches / 12.0,
            from: "feet",
            to: Unit::named(&found["to"])?.plural,
        });
    }
    let found = CONVERT.as_ref()?.captures(core);
    let found = found.or_else(|| HOW_MANY.as_ref()?.captures(core))?;
    let value = match &found["n"] {
        "a" | "an" | "the" => 1.0,
        "half a" | "half an" | "half of a" | "half of an" => 0.5,
        number => slots::number(number)?,
    };
    Some(Request::Convert {
        value,
        from: Unit::named(&found["from"])?.plural,
        to: Unit::named(&found["to"])?.plural,
    })
}

fn cancel(core: &str) -> Option<Vec<Request>> {
    let found = CANCEL.as_ref()?.captures(core)?;
    let part = |a: &str, b: &str| {
        let part = found.name(a).or_else(|| found.name(b));
        part.map_or("", |part| part.as_str()).to_owned()
    };
    // "and set one for 10 minutes" is a request of its own.
    let rest = part("rest", "rest");
    let new = AND_SET.as_ref().and_then(|new| new.find(&rest));
    let rest = new.map_or(&rest[..], |new| &rest[..new.start()]);
    let words = format!("{} {rest}", part("what", "what2"));
    let plural = part("noun", "noun2").ends_with('s');
    if leaves_some(core) {
        return Some(vec![Request::Talk(Talk::WhichTimer)]);
    }
    let targets = match durations::all(&words).as_slice() {
        several @ [_, _, ..] => several.iter().copied().map(Target::Seconds).collect(),
        _ => vec![target(&words, plural)],
    };
    Some(targets.into_iter().map(Request::CancelTimer).collect())
}

/// "And set a new one" for "but set a new one".
pub(super) fn and_for_but(sentence: &str) -> String {
    match &*AND_SET {
        Some(rule) => rule.replace_all(sentence, " and $verb ").into_owned(),
        None => sentence.to_owned(),
    }
}

/// Whether some timers are to be kept: "all except the pasta one".
pub(super) fn leaves_some(words: &str) -> bool {
    matches(&EXCEPT, words)
}

/// The timers that the words around "timer" refer to.
pub(super) fn target(words: &str, plural: bool) -> Target {
    static ALL: LazyLock<Option<Regex>> =
        LazyLock::new(|| rule(r"\b(?:all|every|both|everything)\b"));
    let label = without(&WHICH_DROP, &durations::without(words));
    let label = label.split_whitespace().collect::<Vec<_>>().join(" ");
    if plural && label.is_empty() || matches(&ALL, words) {
        Target::All
    } else if let Some(seconds) = durations::seconds(words) {
        Target::Seconds(seconds)
    } else if label.is_empty() {
        Target::Only
    } else {
        Target::Label(label)
    }
}

fn set(core: &str) -> Option<Vec<Request>> {
    static LENGTH_FIRST: LazyLock<Option<Regex>> =
        LazyLock::new(|| rule(r"^#(?: (?:for|called|named|labell?ed|to|please|thanks?)\b.*)?$"));
    // "Set a second timer" asks for another, not for one of a second.
    static SECOND: LazyLock<Option<Regex>> = LazyLock::new(|| {
        rule(
            r"(?P<lead>^(?:(?:set|start|create|make|begin|add|run|i need|i want|i would like|get me|get)(?: up| me)* )?| and (?:(?:also|then) )*)a second (?P<what>(?:[a-z]+ )?(?:timer|countdown)|one\b|1\b|for \d|\d)",
        )
    });
    let core = match SECOND.as_ref() {
        Some(second) => second.replace_all(core, "${lead}another ${what}"),
        None => core.into(),
    };
    let core = durations::plain(&core);
    if let Some(timers) = set_another(&core) {
        return Some(timers);
    }
    let timed = !durations::all(&core).is_empty();
    let names_length =
        |found: &Captures<'_>| matches(&LENGTH_FIRST, &durations::marked(&found["rest"], "#"));
    let one = || SET_ONE.as_ref()?.captures(&core).filter(names_length);
    let found = SET
        .as_ref()?
        .captures(&core)
        .or_else(one)
        .or_else(|| BARE_SET.as_ref()?.captures(&core).filter(|_| timed))?;
    let part = |name| found.name(name).map_or("", |part| part.as_str());
    let first = part("rest").split_whitespace().next();
    let about_it = first.is_none_or(|word| ["for", "called", "named", "to", "at"].contains(&word));
    let around = format!("{} , {}", part("label"), part("rest"));
    (timed || about_it).then(|| timers(&core, label(&around)))
}

/// "a timer for 5 minutes and another for 10 minutes".
fn set_another(core: &str) -> Option<Vec<Request>> {
    static ANOTHER: LazyLock<Option<Regex>> = LazyLock::new(|| {
        rule(
            r" and (?:also |then )*(?:another|a second|a third|(?:one|1) more|one|1)(?: one| 1| timer)?(?: for| of)? ",
        )
    });
    let parts: Vec<&str> = ANOTHER.as_ref()?.split(core).collect();
    let has_length = |part: &&str| durations::all(part).len() == 1;
    if parts.len() < 2 || !parts.iter().all(has_length) {
        return None;
    }
    let others = parts[1..]
        .iter()
        .map(|part| set(&format!("set a timer for {}", part.replace(" timer", ""))));
    let timers = std::iter::once(set(parts[0])).chain(others);
    // "2 timers, 1 for 5 minutes": the others follow.
    let one = |timers: Option<Vec<Request>>| timers?.into_iter().next();
    timers.map(one).collect()
}

/// "remind me in 10 minutes to ...", "let me know when 5 minutes are up".
fn remind(core: &str, sentence: &str) -> Option<Vec<Request>> {
    let names = ["rest", "when", "down", "clock", "time"];
    let (core, whole) = (durations::plain(core), durations::plain(sentence));
    if let Some(found) = REMIND_LATER.as_ref()?.captures(&core) {
        let only = durations::without(&found["length"]).trim().is_empty();
        return only.then(|| timers(&core, subject(&found["what"])));
    }
    let untimed = REMIND_OF.as_ref()?.captures(&core);
    if let Some(found) = untimed.filter(|_| durations::all(&core).is_empty()) {
        return Some(timers(&core, subject(&found["what"])));
    }
    let found = captured(&REMIND, &core, &names).or_else(|| captured(&REMIND, &whole, &names));
    let rest = found??;
    let rest = rest.trim_start_matches("about ");
    let after = durations::marked(rest, "#");
    let after = after.strip_prefix('#')?.trim_start();
    let about = subject(after);
    (after.is_empty() || about.is_some()).then(|| timers(&core, about))
}

/// The name of a timer that reminds of something: "call my mom" of "to call my mom".
fn subject(about: &str) -> Option<String> {
    static SAID: LazyLock<Option<Regex>> = LazyLock::new(|| {
        rule(
            r"^(?:(?:(?:not to|to not) forget (?:to |about )?|(?:to|about|of|that|i (?:have|need|want) to) )(?:the |my )?(?P<what>.+)|(?P<never>(?:not|never) to .+))$",
        )
    });
    let said = captured(&SAID, about, &["what", "never"])?;
    said.map(str::to_owned)
}

/// The timers to set, with this label if there is only one.
fn timers(core: &str, label: Option<String>) -> Vec<Request> {
    let talk = |talk| vec![Request::Talk(talk)];
    let label = label.filter(|label| label.len() <= LONGEST_NAME);
    let at_time = match durations::seconds(core) {
        Some(_) => matches(&TIMED, &durations::marked(core, "#")),
        None => matches(&TIME_OF_DAY, &durations::without(core)),
    };
    if at_time {
        return talk(Talk::TimeOfDay);
    }
    let corrected = CORRECTION
        .as_ref()
        .and_then(|correction| correction.find_iter(core).last());
    let said = corrected.map_or(core, |found| &core[found.end()..]);
    let said = if durations::all(said).is_empty() {
        core
    } else {
        said
    };
    let lengths = durations::all(said);
    if lengths.iter().any(|&seconds| seconds == 0 || seconds > DAY) {
        return talk(Talk::BadLength);
    }
    let has_or = |label: Option<&str>| label.is_some_and(|label| label.contains(" or "));
    match lengths.as_slice() {
        [] => vec![Request::SetTimer {
            seconds: None,
            label,
        }],
        [_] if said.contains(" or ") && !has_or(label.as_deref()) => talk(Talk::WhichLength),
        [_] if matches(&UNREAD, &durations::marked(said, "#")) => talk(Talk::WhichLength),
        [one] => {
            let timer = Request::SetTimer {
                seconds: Some(*one),
                label: label.filter(|_| corrected.is_none()),
            };
            vec![timer; how_many(core)]
        }
        several if core.contains("timers") => several
            .iter()
            .map(|&one| Request::SetTimer {
                seconds: Some(one),
                label: None,
            })
            .collect(),
        _ => talk(Talk::WhichLength),
    }
}

/// The number of timers that are asked for: 2 in "2 10 minute timers".
fn how_many(core: &str) -> usize {
    static COUNT: LazyLock<Option<Regex>> =
        LazyLock::new(|| rule(r"\b(?P<count>\d+) (?:# )?(?:[a-z]+ )?timers\b"));
    let marked = durations::marked(core, "#");
    let count = captured(&COUNT, &marked, &["count"]).flatten();
    let count = count.and_then(|count| count.parse().ok());
    count
        .filter(|count| (1..=MOST_TIMERS).contains(count))
        .unwrap_or(1)
}

/// The label of a timer: "pasta" in "pasta timer", "called pasta", "for the pasta". `around` is the text that the rule did
/// not use.
fn label(around: &str) -> Option<String> {
    static NOISE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        rule(
            r"^(?:for|of|in|to|at|with|a|an|the|my|me|long|lasting|please|and|on|up|it|that|is|length|duration|new|go|countdown|about|around|roughly|approximately|exactly|maybe|just|next|another|more|extra|additional|timers?|one|second|minute|hour|!|[\d.]+| )*$",
        )
    });
    // Words that begin another clause.
    static BEHIND: LazyLock<Option<Regex>> = LazyLock::new(|| {
        rule(
            r"(?:^| )(?:i|we|you|he|she|it|they|which|please|thanks?|from now|and then|(?:the|my|our|this|that) [a-z]+ (?:is|are|has|have|needs?|takes?|must|should))\b.*$",
        )
    });
    let around = durations::marked(around, "#");
    let (before, after) = around.split_once(',').unwrap_or(("", &around));
    let tidy = |words: &str| words.split_whitespace().collect::<Vec<_>>().join(" ");
    let meant = |words: &String| {
        !words.is_empty() && words.len() <= LONGEST_NAME && !matches(&NOISE, words)
    };
    let after = without(&BEHIND, &tidy(after));
    let named =
        captured(&NAMED, &after, &["name"]).or_else(|| captured(&MEANT_FOR, &after, &["name"]));
    let named = named
        .flatten()
        .map(tidy)
        .filter(|name| !name.starts_with("and "));
    named
        .filter(meant)
        .or_else(|| Some(tidy(without_count(&before.replace('#', "")))).filter(meant))
}

/// "pasta" of "2 pasta".
fn without_count(words: &str) -> &str {
    words.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ')
}

#[cfg(test)]
mod tests;
