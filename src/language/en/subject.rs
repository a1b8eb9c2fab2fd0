//! The words that a request is about, as opposed to those that every request has.

/// Words around a subject: function words, verbs of asking, courtesies. None of them begins or ends one.
const AROUND: &str = " \
    a an the this that these those some any all each every other another more most less much many few little lot lots \
    i me my mine we us our you your he him his she her it its they them their there here who whom whose \
    what which when where why how whether if and or but so then than as \
    is are am was were be been being do does did done doing has have had having can cannot could will would \
    should shall may might must not no yes \
    of in on at to for from by with about into onto over under above below up down out off near around between \
    through until please thanks thank hello hi hey okay ok well just really also still only already yet now today \
    tomorrow tonight yesterday currently right moment soon again maybe perhaps actually possible exactly ever though \
    anyway \
    tell show give check find found look looking lookup get got getting read list search searching fetch see know \
    knowing hear say let want wanted need needed like love wonder wondering wish ask asking try trying help call \
    calling offer carry sell have make makes making cook use using mean means curious interested question idea \
    cost costs price prices expensive cheap cheaper pay paying charge amount number kind sort type \
    available left free new good best great nice news info information details status result \
    start starts begin begins end ends open opens close closes leave leaves arrive arrives come comes coming go goes \
    going run runs work works take takes happen happening look looks sound sounds \
    buy buying long longer least most recently lately \
    something anything somebody anybody someone anyone one ones thing things way time day week year people ";

/// They join two parts of a subject: "lord of the rings".
pub const JOINS: [&str; 5] = ["of", "the", "and", "with", "a"];

/// After these stands a verb.
pub const BEFORE_A_VERB: [&str; 6] = ["i", "you", "we", "to", "they", "people"];

/// Whether a normalised word may stand around any subject.
pub fn is_around(word: &str) -> bool {
    AROUND.contains(&format!(" {word} "))
}

/// The form in which words are compared: without a plural's "s".
pub fn stem(word: &str) -> &str {
    let stem = word.strip_suffix("'s").unwrap_or(word);
    match stem.strip_suffix('s') {
        Some(singular) if singular.len() > 2 && !singular.ends_with(['s', 'u', 'i']) => singular,
        _ => stem,
    }
}
