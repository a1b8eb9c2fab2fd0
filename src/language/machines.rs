//! Answering machines' words, in all languages that have a pack: networks speak another than the caller.

/// Phrases of machines that people who answer never say, not even in an offer.
const TONES: [&str; 26] = [
    "after the tone",
    "after the beep",
    "at the tone",
    "at the beep",
    "leave your voicemail",
    "leave your voice mail",
    "record your voicemail",
    "nach dem signalton",
    "nach dem piepton",
    "nach dem piep",
    "nach dem ton",
    "después de la señal",
    "después del tono",
    "después de oír la señal",
    "después de oír el tono",
    "después de escuchar la señal",
    "después de escuchar el tono",
    "al oír la señal",
    "al oír el tono",
    "al escuchar la señal",
    "al escuchar el tono",
    "cuando oiga la señal",
    "cuando oiga el tono",
    "tras la señal",
    "tras oír la señal",
    "tras el tono",
];

/// Phrases of machines that people say in questions and offers only: "Would you like to leave a message?"
const PHRASES: [&str; 39] = [
    "leave a message",
    "leave me a message",
    "leave your message",
    "leave us a message",
    "leave your name",
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
    "the number you have dialed",
    "the number you have dialled",
    "the customer you are calling",
    "voicemail",
    "voice mail",
    "answering machine",
    "mailbox",
    "eine nachricht hinterlassen",
    "anrufbeantworter",
    "buzón de voz",
    "contestador",
    "dejar un mensaje",
    "deje su mensaje",
    "deje un mensaje",
    "deja tu mensaje",
    "deja un mensaje",
    "déjenos un mensaje",
    "déjame un mensaje",
    "grabe su mensaje",
    "el número que ha marcado",
    "el número que usted marcó",
    "el teléfono al que llama",
    "la persona a la que llama",
    "fuera de cobertura",
];

/// The same, but a sentence that begins so may still turn out to be a screening service's.
const BEGINNINGS: [&str; 3] = [
    "the person you are calling",
    "the person you're calling",
    "the person you are trying to reach",
];

/// Phrases that only machines say together with one of these words: a person, too, is "nicht erreichbar".
const TOGETHER: [(&str, &[&str]); 2] = [
    (
        "nicht erreichbar",
        &[
            "teilnehmer",
            "teilnehmerin",
            "gesprächspartner",
            "rufnummer",
            "anschluss",
            "ich bin",
            "bin ich",
            "wir sind",
            "sind wir",
        ],
    ),
    (
        "hinterlassen sie",
        &[
            "ton",
            "signalton",
            "piepton",
            "piep",
            "signal",
            "teilnehmer",
            "rufnummer",
            "ich bin",
            "bin ich",
            "wir sind",
            "sind wir",
            "rufe zurück",
            "rufen zurück",
        ],
    ),
];

/// A person who takes a message says one of these.
const OFFERS: [&str; 20] = [
    "would you like",
    "would you care",
    "do you want",
    "do you wish",
    "take a message",
    "leave a message with me",
    "may i ask",
    "can i ask",
    "möchten sie",
    "möchtest du",
    "wollen sie",
    "willst du",
    "soll ich",
    "nachricht bei mir",
    "quiere",
    "quieres",
    "desea",
    "deseas",
    "le gustaría",
    "te gustaría",
];

/// Beginnings that are no offer but a condition, which machines say; and people who speak of somebody else, of a
/// letterbox, or of a message that they were left.
const NOT_COUNTED: [&str; 20] = [
    " si desea ",
    " si deseas ",
    " si quiere ",
    " si quieres ",
    " he can't ",
    " she can't ",
    " he cannot ",
    " she cannot ",
    " in the mailbox ",
    " in my mailbox ",
    " in our mailbox ",
    " your voicemail ",
    " your voice mail ",
    " got a voicemail ",
    " left a voicemail ",
    " left me a voicemail ",
    " habe ihre nachricht auf der mailbox ",
    " habe ihre nachricht auf dem anrufbeantworter ",
    " he escuchado su mensaje en el contestador ",
    " he escuchado su mensaje en el buzón de voz ",
];

/// Phrases of menus, which want keys to be pressed.
const MENUS: [&str; 9] = [
    "press",
    "dial",
    "drücken",
    "wählen sie",
    "die taste",
    "pulse",
    "oprima",
    "presione",
    "marque",
];

/// Phrases of services that ask who calls before somebody answers. "Leave your name and reason for calling" is none: a
/// machine says it.
const SCREENS: [&str; 16] = [
    "screening service",
    "call screening",
    "call assist",
    "record your name and reason",
    "go ahead and say your name",
    "state your name after",
    "will try to connect you",
    "if this person is available",
    "before i try to connect you",
    "screening dienst",
    "anruffilter",
    "ob diese person verfügbar ist",
    "bevor ich sie verbinde",
    "filtro de llamadas",
    "filtrado de llamadas",
    "si esta persona está disponible",
];

/// Whether a service that screens calls says these words: it is answered. A machine whose owner screens calls still says
/// that a message can be left.
pub(crate) fn screens(words: &str) -> bool {
    let words = plain(&words.to_lowercase());
    let says = |phrase: &&str| words.contains(&format!(" {phrase} "));
    SCREENS.iter().any(says) && !PHRASES.iter().any(says)
}

/// Whether a menu says these words: it is no answering machine because it speaks for long.
pub(crate) fn is_menu(words: &str) -> bool {
    let words = plain(&words.to_lowercase());
    let says = |phrase: &&str| words.contains(&format!(" {phrase} "));
    MENUS.iter().any(says)
}

/// Whether an answering machine says these words, which are `all` of a turn's or its first ones.
pub(crate) fn tells(words: &str, all: bool) -> bool {
    let text = words.to_lowercase();
    let sentences = text.split_inclusive(['.', '!', '?', ';']);
    let says = |text: &str, phrase: &str| text.contains(&format!(" {phrase} "));
    let whole = plain(&text);
    if TONES.iter().any(|phrase| says(&whole, phrase)) {
        return true;
    }
    let whole = counted(&whole);
    if OFFERS.iter().any(|phrase| says(&whole, phrase)) {
        return false;
    }
    let together = |(phrase, others): &(&str, &[&str])| {
        says(&whole, phrase) && others.iter().any(|other| says(&whole, other))
    };
    let tells = |sentence: &str| {
        let words = counted(&plain(sentence));
        let begins = || BEGINNINGS.iter().any(|phrase| says(&words, phrase));
        PHRASES.iter().any(|phrase| says(&words, phrase)) || (all && begins())
    };
    let mut statements = sentences.filter(|sentence| !sentence.ends_with('?'));
    TOGETHER.iter().any(together) || statements.any(tells)
}

/// Plain words without those that are not counted.
fn counted(plain: &str) -> String {
    let words = NOT_COUNTED.iter();
    words.fold(plain.to_owned(), |plain, words| plain.replace(words, " "))
}

/// The words of a text in lower case with a space before and after each.
fn plain(text: &str) -> String {
    let is_letter = |c: char| c.is_alphanumeric() || c == '\'';
    let text = text.replace('\u{2019}', "'");
    let words = text
        .split(|c| !is_letter(c))
        .filter(|word| !word.is_empty());
    words.fold(" ".into(), |text: String, word| text + word + " ")
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
            "Deje su mensaje después de oír la señal.",
            "En este momento no podemos atenderle. Grabe su mensaje, por favor.",
            "Si desea dejar un mensaje, espere la señal.",
            "El teléfono al que llama está apagado o fuera de cobertura.",
            "Ahora no puedo atenderte. Deja un mensaje y te llamo.",
            "Leider kann ich Ihren Anruf nicht annehmen. Dies ist der Anrufbeantworter von Anna.",
            "Der gewünschte Teilnehmer ist zurzeit nicht erreichbar.",
            "Die gewählte Rufnummer ist momentan nicht erreichbar.",
            "Hier ist Familie Müller. Wir sind gerade nicht erreichbar. Bitte hinterlassen Sie eine Nachricht.",
            "Möchten Sie eine Nachricht hinterlassen, sprechen Sie bitte nach dem Signalton.",
            "If you would like to leave a message, press one.",
        ] {
            assert!(tells(machine, true), "{machine}");
        }
        for person in [
            "Hello?",
            "Acme Plumbing, this is Bob speaking, how can I help you?",
            "He is not available at the moment.",
            "You have reached the right person.",
            "Müller, guten Tag.",
            "¿Diga?",
        ] {
            assert!(!tells(person, true), "{person}");
        }
    }

    #[test]
    fn a_person_who_offers_to_take_a_message_is_no_machine() {
        for person in [
            "She's out, would you like to leave a message?",
            "He can't come to the phone right now.",
            "She can't come to the phone right now. Can I take a message?",
            "You can leave a message with me.",
            "Voicemail?",
            "Do you want to leave your name and number?",
            "Möchten Sie eine Nachricht hinterlassen?",
            "Er ist in einer Besprechung. Wollen Sie ihm eine Nachricht hinterlassen?",
            "Soll ich Sie zu seiner Mailbox durchstellen?",
            "Herr Müller ist gerade nicht erreichbar.",
            "Frau Weber ist nicht erreichbar, hinterlassen Sie mir doch Ihre Nummer.",
            "¿Quiere dejar un mensaje?",
            "No está en este momento, ¿desea dejar un mensaje?",
            "¿Quiere que le pase con su buzón de voz?",
        ] {
            assert!(!tells(person, true), "{person}");
        }
    }

    #[test]
    fn menus_are_told_by_the_keys_that_they_want_to_be_pressed() {
        for menu in [
            "For sales, press one. For anything else, press two.",
            "Für Bestellungen drücken Sie die Eins.",
            "Wählen Sie bitte die Zwei.",
            "Para español, oprima el dos.",
            "Para pedidos pulse 1.",
        ] {
            assert!(is_menu(menu) && !tells(menu, true), "{menu}");
        }
        assert!(!is_menu("Welcome to the bakery. We are open every day."));
    }

    /// The agent fell silent and hung up, mostly before the service had said what it is.
    #[test]
    fn a_screening_service_is_no_machine_not_even_by_its_first_words() {
        for service in [
            "Hi, the person you're calling is using a screening service from Google, and will get a copy of this \
             conversation. Go ahead and say your name and why you're calling.",
            "Hi, I'm Call Assist by Google recording this call for the person you are trying to reach. Before I try to \
             connect you, can I ask what you're calling about?",
            "Before I try to connect you, can I ask what you're calling about?",
            "Go ahead and say your name and why you’re calling.",
            "Hi, if you record your name and reason for calling, I'll see if this person is available.",
            "Please state your name after the tone, and Google Voice will try to connect you.",
            "Die Person, die Sie anrufen, nutzt einen Screening-Dienst.",
            "Wenn Sie Ihren Namen nennen, frage ich, ob diese Person verfügbar ist.",
            "Esta persona usa un filtro de llamadas.",
        ] {
            assert!(screens(service), "{service}");
            for (end, _) in service.match_indices(' ') {
                let first = &service[..end];
                assert!(screens(first) || !tells(first, false), "{first}");
            }
        }
        for machine in [
            "The person you are calling is not available.",
            "Please leave your name and reason for calling after the beep.",
            "Please state your name and number after the tone.",
            "Please say your name after the beep and leave a message, I'll call you back.",
            "Because of spam I use call screening. Please leave a message after the tone.",
            "Call screening is on. The person you are calling is not available. Please leave your message.",
        ] {
            assert!(tells(machine, true) && !screens(machine), "{machine}");
        }
    }

    /// The agent fell silent, left its message and hung up.
    #[test]
    fn a_person_who_speaks_of_a_mailbox_or_of_voicemail_is_no_machine() {
        for person in [
            "Just put it in the mailbox.",
            "There is something in my mailbox already.",
            "Oh yes, I got your voicemail.",
            "You left me a voicemail yesterday.",
            "Ich habe Ihre Nachricht auf der Mailbox gehört.",
            "Sí, he escuchado su mensaje en el contestador.",
        ] {
            assert!(!tells(person, true), "{person}");
        }
        for machine in [
            "Welcome to the mailbox of Ann.",
            "You have reached Bob's voicemail.",
            "Please leave a message in the mailbox.",
            "Please leave your voicemail.",
            "Please record your voicemail now.",
            "Sie sprechen mit der Mailbox von Anna.",
        ] {
            assert!(tells(machine, true), "{machine}");
        }
    }
}
