//! Answering machines' words, in all languages that have a pack: networks speak another than the caller.

/// Parts of what machines say, and people who answer hardly ever do.
const PHRASES: [&str; 40] = [
    "leave a message",
    "leave me a message",
    "leave your message",
    "leave us a message",
    "leave your name",
    "after the tone",
    "after the beep",
    "at the tone",
    "at the beep",
    "record your message",
    "can't take your call",
    "cannot take your call",
    "can not take your call",
    "unable to take your call",
    "not available to take your call",
    "can't come to the phone",
    "cannot come to the phone",
    "can't get to the phone",
    "can't answer the phone",
    "the person you are calling",
    "the person you're calling",
    "the person you are trying to reach",
    "the number you have dialed",
    "the number you have dialled",
    "the customer you are calling",
    "voicemail",
    "voice mail",
    "answering machine",
    "mailbox",
    "nach dem signalton",
    "nach dem piepton",
    "nach dem ton",
    "eine nachricht hinterlassen",
    "hinterlassen sie",
    "anrufbeantworter",
    "nicht erreichbar",
    "después de la señal",
    "después del tono",
    "buzón de voz",
    "contestador",
];

/// Whether an answering machine says these words.
pub(crate) fn tells(words: &str) -> bool {
    let words = words.to_lowercase().replace('\u{2019}', "'");
    let plain = |c: char| c.is_alphanumeric() || c == '\'';
    let words: Vec<&str> = words
        .split(|c| !plain(c))
        .filter(|w| !w.is_empty())
        .collect();
    let words = format!(" {} ", words.join(" "));
    PHRASES
        .iter()
        .any(|phrase| words.contains(&format!(" {phrase} ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_told_from_people() {
        for machine in [
            "Hi, you've reached Ann. Please leave a message after the beep!",
            "I can’t come to the phone right now.",
            "The person you are calling is not available.",
            "Your call has been forwarded to an automatic voice mail system.",
            "Bitte hinterlassen Sie eine Nachricht nach dem Signalton.",
            "Deje su mensaje después de la señal.",
        ] {
            assert!(tells(machine), "{machine}");
        }
        for person in [
            "Hello?",
            "Acme Plumbing, this is Bob speaking, how can I help you?",
            "He is not available at the moment.",
            "You have reached the right person.",
            "Müller, guten Tag.",
            "¿Diga?",
        ] {
            assert!(!tells(person), "{person}");
        }
    }
}
