use super::requests::WORDING;
use super::{PACK, words};
use crate::language::Reply;
use crate::language::en::assent::Asked;
use crate::language::request::{Request, Talk, Target};
use crate::language::sentences::Ending;
use serde_json::{Map, json};
use std::time::Duration;

fn one(said: &str) -> Request {
    let mut requests = (WORDING.requests)(said);
    assert_eq!(requests.len(), 1, "{said}: {requests:?}");
    requests.remove(0)
}

fn timer(seconds: u64) -> Request {
    Request::SetTimer {
        seconds: Some(seconds),
        label: None,
    }
}

#[test]
fn requests_are_read() {
    let time = |place: Option<&str>| Request::Time(place.map(str::to_owned));
    let sum = |sum: &str| Request::Calculate(sum.into());
    let convert = |value, from, to| Request::Convert { value, from, to };
    for (said, request) in [
        ("Wie spät ist es?", time(None)),
        ("Können Sie mir bitte sagen, wie spät es ist?", time(None)),
        ("Wie viel Uhr ist es in Tokio?", time(Some("Tokyo"))),
        ("Wie spät ist es gerade in München?", time(Some("Munich"))),
        ("Wie spät ist es in dann?", time(None)),
        ("Welcher Tag ist heute?", time(None)),
        ("Welches Datum haben wir heute?", time(None)),
        ("Stell einen Timer auf zehn Minuten.", timer(600)),
        (
            "Bitte stellen Sie einen Timer auf eine halbe Stunde",
            timer(1800),
        ),
        ("Timer, fünf Minuten und dreißig Sekunden", timer(330)),
        ("Weck mich in anderthalb Stunden", timer(5400)),
        ("Stelle einen Timer für 3 Minuten", timer(180)),
        ("Ein Timer auf eine Dreiviertelstunde, bitte", timer(2700)),
        ("Wie lange läuft der Timer noch?", Request::ListTimers),
        ("Welche Timer laufen?", Request::ListTimers),
        ("Stopp den Timer", Request::CancelTimer(Target::Only)),
        ("Lösche alle Timer", Request::CancelTimer(Target::All)),
        (
            "Brich den Timer auf fünf Minuten ab",
            Request::CancelTimer(Target::Seconds(300)),
        ),
        ("Was ist zwölf mal sieben?", sum("12 * 7")),
        ("Wie viel ist 3,5 plus 2?", sum("3.5 + 2")),
        ("Was sind 15 Prozent von 80?", sum("15% of 80")),
        ("Berechne 100 geteilt durch 8", sum("100 / 8")),
        ("Was ist die Wurzel aus 81?", sum("sqrt(81)")),
        (
            "Wie viele Kilometer sind 5 Meilen?",
            convert(5.0, "miles", "kilometers"),
        ),
        (
            "Was sind 20 Grad Celsius in Fahrenheit?",
            convert(20.0, "degrees Celsius", "degrees Fahrenheit"),
        ),
        ("Danke schön!", Request::Talk(Talk::Thanks)),
        ("Tschüss", Request::Talk(Talk::Goodbye)),
        (
            "Stell mir den Wecker auf morgen um 7 Uhr",
            Request::Talk(Talk::TimeOfDay),
        ),
        (
            "Stell einen Timer auf 30 Stunden",
            Request::Talk(Talk::BadLength),
        ),
        ("Stell keinen Timer", Request::Refused),
        (
            "Wer hat die Relativitätstheorie erfunden?",
            Request::Unknown,
        ),
        ("Ich war auf dem Wochenmarkt", Request::Unknown),
    ] {
        assert_eq!(one(said), request, "{said}");
    }
    let weather = one("Wie wird das Wetter morgen in Köln?");
    let place = Some("Cologne".to_owned());
    assert_eq!(
        weather,
        Request::Weather {
            place,
            day: "tomorrow"
        }
    );
    let none = one("Wie ist das Wetter?");
    assert_eq!(
        none,
        Request::Weather {
            place: None,
            day: "now"
        }
    );
    let labelled = one("Stell einen Timer auf acht Minuten für die Pasta");
    let label = Some("pasta".to_owned());
    assert_eq!(
        labelled,
        Request::SetTimer {
            seconds: Some(480),
            label
        }
    );
    let without_length = Request::SetTimer {
        seconds: None,
        label: None,
    };
    assert_eq!(one("Stell einen Timer"), without_length);
}

#[test]
fn several_requests_are_read_and_the_last_word_counts() {
    let both = (WORDING.requests)("Stell einen Timer auf 5 Minuten und wie spät ist es in Rom?");
    assert_eq!(both, [timer(300), Request::Time(Some("Rome".into()))]);
    let refused = (WORDING.requests)("Stell einen Timer auf 5 Minuten. Nein, lass das.");
    assert!(!refused.iter().any(Request::needs_tool), "{refused:?}");
    assert_eq!((WORDING.timer_of)("Zehn Minuten, bitte."), Some(timer(600)));
    assert_eq!((WORDING.timer_of)("Zehn"), None);
}

/// Only the last one was set.
#[test]
fn none_of_several_timers_is_dropped() {
    for said in [
        "Stell zwei Timer, einen auf fünf und einen auf zehn Minuten.",
        "Stell zwei Timer auf 5 und 10 Minuten, bitte.",
        "Stell einen Timer auf fünf Minuten und noch einen auf zehn.",
        "Zwei Timer: fünf Minuten und zehn Minuten",
    ] {
        let requests = (WORDING.requests)(said);
        assert_eq!(requests, [timer(300), timer(600)], "{said}");
    }
    let named = |seconds, label: &str| Request::SetTimer {
        seconds: Some(seconds),
        label: Some(label.to_owned()),
    };
    let both = "Stell einen Timer für die Pasta auf 8 und einen für die Eier auf 6 Minuten.";
    assert_eq!(
        (WORDING.requests)(both),
        [named(480, "pasta"), named(360, "eier")]
    );
    let same = (WORDING.requests)("Stell zwei Timer auf zehn Minuten.");
    assert_eq!(same, [timer(600), timer(600)]);
    for (said, seconds) in [
        ("Stell einen Zehn-Minuten-Timer.", 600),
        ("Stell einen fünf Minuten Timer", 300),
    ] {
        assert_eq!((WORDING.requests)(said), [timer(seconds)], "{said}");
    }
    let pair = (WORDING.requests)("Stell zwei 5-Minuten-Timer.");
    assert_eq!(pair, [timer(300), timer(300)]);
    let unclear = one("Stell einen Timer auf 5 und 10 Minuten.");
    assert_eq!(unclear, Request::Talk(Talk::WhichLength));
    let cancelled = (WORDING.requests)("Lösche die Timer auf 5 und 10 Minuten.");
    let lengths = [300, 600].map(|seconds| Request::CancelTimer(Target::Seconds(seconds)));
    assert_eq!(cancelled, lengths);
}

/// The first length was kept, and "eine Stunde, nein, 30 Minuten" was an hour and a half.
#[test]
fn a_length_corrected_in_the_same_breath_is_not_set() {
    for said in [
        "Stell einen Timer auf fünf Minuten. Nein, zehn Minuten.",
        "Stell einen Timer auf fünf Minuten. Ich meinte zehn.",
    ] {
        assert_eq!(one(said), timer(600), "{said}");
    }
    let unclear = one("Stell einen Timer auf eine Stunde, nein, 30 Minuten.");
    assert_eq!(unclear, Request::Talk(Talk::WhichLength));
    for said in [
        "Stell einen Timer auf eine Stunde und 30 Minuten.",
        "Stell einen Timer auf eine Stunde, 30 Minuten.",
        "Stell einen Timer auf eine Stunde plus 30 Minuten.",
        "Stell einen Timer auf eine Stunde, äh, 30 Minuten.",
    ] {
        assert_eq!(one(said), timer(5400), "{said}");
    }
}

/// A timer called "welche laufen" was to be cancelled.
#[test]
fn a_question_is_no_name_of_a_timer() {
    for said in [
        "Welche Timer laufen?",
        "Welche laufen?",
        "Lass beide laufen.",
    ] {
        assert_eq!((WORDING.target_of)(said), None, "{said}");
    }
    let noodles = Some(Target::Label("nudel".into()));
    assert_eq!((WORDING.target_of)("Den Nudeltimer."), noodles);
}

/// Another timer was set, and thanks for one were answered with a question for its length.
#[test]
fn telling_of_a_timer_sets_none() {
    for said in [
        "Ich habe schon einen Timer auf zehn Minuten gestellt.",
        "Meine Frau hat einen Timer auf zehn Minuten gestellt.",
        "Du hast den Timer auf zehn Minuten gestellt.",
    ] {
        assert_eq!(one(said), Request::Unknown, "{said}");
    }
    let thanks = Request::Talk(Talk::Thanks);
    assert_eq!(one("Danke für den Timer."), thanks);
    for said in [
        "Ich habe schon einen Timer gestellt, stell noch einen auf zehn Minuten.",
        "Stell noch einen auf zehn Minuten, ich habe den Timer gestellt.",
        "Ich hätte gern einen Timer auf zehn Minuten gestellt.",
        "Ich habe die Pizza in den Ofen gestellt, stell einen Timer auf zehn Minuten.",
    ] {
        assert_eq!(one(said), timer(600), "{said}");
    }
    let cancelled = one("Lösche den Timer, den ich gestellt habe.");
    assert_eq!(cancelled, Request::CancelTimer(Target::Only));
}

/// Each order in common words, with fillers and without marks. Those that tell of another time besides are orders, too.
#[test]
fn an_order_in_common_words_sets_a_timer() {
    for said in [
        "Stell einen Timer auf zehn Minuten",
        "ähm stell mal bitte einen timer auf zehn minuten",
        "Richte einen Timer auf zehn Minuten ein",
        "Richten Sie bitte einen Timer auf zehn Minuten ein",
        "Kannst du einen Timer auf zehn Minuten einrichten?",
        "Schalte einen Timer auf zehn Minuten ein",
        "Können Sie einen Timer für zehn Minuten einschalten",
        "Ich brauche einen Timer auf zehn Minuten",
        "ich bräuchte einen timer von zehn minuten bitte",
        "brauche einen timer auf zehn minuten",
        "Kannst du einen Timer auf zehn Minuten stellen?",
        "Würdest du bitte einen Timer auf zehn Minuten stellen?",
        "würdest du mir einen timer auf zehn minuten stellen",
        "Könntest du mir einen Timer auf zehn Minuten stellen",
        "Mach mir einen Timer auf zehn Minuten",
        "Mach mal bitte einen Timer für zehn Minuten an",
        "Timer auf zehn Minuten",
        "Timer zehn Minuten",
        "zehn Minuten Timer bitte",
        "einen zehn minuten timer bitte",
        "Ich hätte gern einen Timer auf zehn Minuten",
        "Ich möchte einen Timer auf zehn Minuten",
        "Ich will einen Timer auf zehn Minuten stellen",
        "Stellst du mir einen Timer auf zehn Minuten?",
        "Stellt bitte einen Timer auf zehn Minuten",
        "Stell wie immer einen Timer auf zehn Minuten",
        "Einen Timer wie gestern, zehn Minuten bitte",
        "Timer auf zehn Minuten, das war's, danke",
        "Es wäre nett, wenn du einen Timer auf zehn Minuten stellst",
        "Ich wollte fragen, ob du einen Timer auf zehn Minuten stellen kannst",
        "Wenn du Zeit hast, stell bitte einen Timer auf zehn Minuten",
        "Wenn ich koche, brauche ich immer einen Timer auf zehn Minuten",
        "Ich habe den Timer gestern vergessen, stell ihn heute auf zehn Minuten",
        "Gestern war der Timer zu kurz, mach heute einen auf zehn Minuten",
        "Ich koche, stell also einen Timer auf zehn Minuten",
        "Starte den Timer, zehn Minuten",
        "Bitte Timer auf zehn Minuten stellen",
        "Den Timer auf zehn Minuten stellen",
        "Programmier einen Timer auf zehn Minuten",
        "Aktiviere einen Timer auf zehn Minuten",
        "Erstelle einen Timer mit zehn Minuten",
        "Lass einen Timer auf zehn Minuten laufen",
        "Ich muss einen Timer auf zehn Minuten stellen",
        "weck mich in zehn minuten",
        "nochmal den timer von vorhin zehn minuten",
        "Der Timer ist abgelaufen, noch einen auf zehn Minuten",
        "Einen Timer, zehn Minuten, ich vergesse das immer",
        "Ich vergesse das immer, Timer auf zehn Minuten",
        "Timer auf zehn Minuten, meistens reicht das",
        "Der Zug startet bald, Timer auf zehn Minuten",
        "Ich wollte fragen, ob ich einen Timer auf zehn Minuten haben kann",
        "Es wäre super, wenn man einen Timer auf zehn Minuten stellen könnte",
        "Gestern hatte ich einen Timer auf zehn Minuten, kann ich den wieder haben",
        "Gestern habe ich den Timer vergessen, leg heute einen auf zehn Minuten an",
        "Können Sie immer einen Timer auf zehn Minuten stellen",
    ] {
        assert_eq!(one(said), timer(600), "{said}");
    }
    for (said, label) in [
        ("Stell einen Tee-Timer auf zehn Minuten", "tee"),
        ("Stell einen Eier-Timer auf zehn Minuten", "eier"),
        ("Teetimer auf zehn Minuten", "tee"),
    ] {
        let labelled = Request::SetTimer {
            seconds: Some(600),
            label: Some(label.to_owned()),
        };
        assert_eq!(one(said), labelled, "{said}");
    }
}

/// Habits, hearsay and what was long over set a timer at once, or were asked how long.
#[test]
fn narration_sets_no_timer() {
    for said in [
        "Meine Frau stellt immer einen Timer auf zehn Minuten",
        "Gestern habe ich einen Timer auf zehn Minuten gestellt",
        "gestern habe ich einen timer auf zehn minuten gestellt",
        "Ich stelle immer einen Timer auf zehn Minuten",
        "ähm ich stelle normalerweise einen timer auf zehn minuten",
        "Normalerweise stelle ich einen Timer auf zehn Minuten",
        "Meine Mutter stellte früher einen Timer auf zehn Minuten",
        "Ich habe gestern einen Timer auf zehn Minuten gestellt und der hat nie geklingelt",
        "Der Timer auf zehn Minuten war zu kurz",
        "Mein Timer auf sieben Minuten hat vorhin geklingelt",
        "Gestern hatte ich einen Timer auf zehn Minuten",
        "Im Rezept steht, ich soll einen Timer auf zwölf Minuten stellen",
        "Mein Mann sagt, er stellt einen Timer auf zehn Minuten",
        "Wenn ich einen Timer auf zehn Minuten stelle, verbrennt die Pizza",
        "Was passiert, wenn ich einen Timer auf zwei Tage stelle?",
        "Ich überlege, ob ich einen Timer auf zehn Minuten stellen soll",
        "Jeden Morgen stellt er einen Timer auf zehn Minuten",
        "Früher habe ich den Timer auf zehn Minuten eingestellt",
        "Meine Frau stellt einen Timer auf zehn Minuten",
        "Sie hatte einen Timer auf zehn Minuten eingerichtet",
        "Einen Timer auf zehn Minuten habe ich gestern gestellt",
        "Den Timer auf zehn Minuten hat meine Frau gestern gestellt",
        "Ein Timer auf zehn Minuten war gestern zu kurz",
        "Meine Frau startet immer einen Timer auf zehn Minuten",
        "Wir hatten immer einen Timer auf zehn Minuten",
        "Jeden Abend mache ich einen Timer auf zehn Minuten an",
        "Mein Mann benutzt meistens einen Timer auf zehn Minuten",
    ] {
        assert_eq!(one(said), Request::Unknown, "{said}");
    }
}

/// Any negation refused the order beside it.
#[test]
fn the_negation_of_a_purpose_refuses_no_order() {
    for said in [
        "Stell einen Timer auf zehn Minuten, damit ich es nicht vergesse",
        "stell einen timer auf zehn minuten damit die pizza nicht verbrennt",
        "Stell einen Timer auf zehn Minuten, damit Pizza und Brot nicht verbrennen",
        "Stell einen Timer auf zehn Minuten, um nicht zu spät zu kommen",
        "Stell einen Timer auf zehn Minuten, um es nicht zu vergessen",
        "Stell einen Timer auf zehn Minuten, weil ich keine Uhr habe",
        "Damit ich es nicht vergesse, stell bitte einen Timer auf zehn Minuten",
        "Stell bitte einen Timer auf zehn Minuten, wenn es dir nichts ausmacht",
        "Kannst du, wenn es keine Umstände macht, einen Timer auf zehn Minuten stellen",
    ] {
        assert_eq!(one(said), timer(600), "{said}");
    }
}

/// An order in doubt runs nothing: a part with a negation may take it back.
#[test]
fn a_negation_in_doubt_refuses_the_order() {
    for said in [
        "Ich weiß nicht, ob ich einen Timer auf zehn Minuten brauche",
        "ich weiß nicht ob ich einen timer auf zehn minuten stellen soll",
        "Stell einen Timer auf zehn Minuten, obwohl, nein, lass es",
        "stell einen timer auf zehn minuten obwohl nein lass es",
        "Stell einen Timer auf zehn Minuten, nein, doch nicht",
        "Stell einen Timer auf zehn Minuten. Nein, doch nicht.",
        "Stell einen Timer auf zehn Minuten und, nein, doch nicht",
        "Stell einen Timer auf zehn Minuten, damit, nein, doch nicht",
        "Stell einen Timer auf zehn Minuten, damit ich es nicht vergesse, nein, lass es",
        "Stell einen Timer auf zehn Minuten, damit ich es nicht vergesse, ach lieber nicht",
        "Stell einen Timer auf zehn Minuten, damit ich, ach nein, doch nicht",
        "Stell keinen Timer auf zehn Minuten, damit ich schlafen kann",
        "Stell bitte keinen Timer auf zehn Minuten, weil ich nicht koche",
        "Damit ich es nicht vergesse, stell bitte keinen Timer auf zehn Minuten",
        "Stell den Timer nicht auf zehn Minuten",
        "Stell einen Timer auf zehn Minuten, nein",
        "Stelle keinen Timer auf zehn Minuten, sondern auf zwanzig",
        "Stell einen Timer auf zehn Minuten, weil ich, nein, ich brauche ihn nicht",
        "Brich den Timer nicht ab",
        "Stell einen Timer auf zehn Minuten, weil ich nicht weiß, ob ich ihn brauche",
        "Stell einen Timer auf zehn Minuten, damit ich das, ich will das nicht",
        "Stell einen Timer auf zehn Minuten, aber nein",
        "stell einen timer auf zehn minuten damit ich es nicht vergesse hm ne",
    ] {
        let requests = (WORDING.requests)(said);
        assert!(!requests.iter().any(Request::needs_tool), "{said}");
        assert_eq!(requests.last(), Some(&Request::Refused), "{said}");
    }
}

/// The rest of a sentence was part of a place, and a place before it was none.
#[test]
fn a_place_ends_where_its_name_ends() {
    let time = |place: Option<&str>| Request::Time(place.map(str::to_owned));
    let weather = |place: &str, day| Request::Weather {
        place: Some(place.to_owned()),
        day,
    };
    for (said, request) in [
        ("Ich habe gefragt, wie spät es ist", time(None)),
        ("Ich habe mich gefragt, wie spät es ist", time(None)),
        ("Ich wollte fragen, wie spät es ist", time(None)),
        ("ich weiß nicht wie spät es ist", time(None)),
        ("Weißt du, wie spät es in Tokio ist", time(Some("Tokyo"))),
        (
            "weißt du wie spät es jetzt gerade in tokio ist",
            time(Some("Tokyo")),
        ),
        (
            "Können Sie mir bitte sagen, wie spät es in New York ist?",
            time(Some("New York")),
        ),
        (
            "Wie spät ist es in Dar es Salaam?",
            time(Some("Dar es Salaam")),
        ),
        (
            "Wie spät ist es in Kleinmachnow an der Havel?",
            time(Some("Kleinmachnow An Der Havel")),
        ),
        (
            "Wie spät ist es in Kleinmachnow an der Havel bei Potsdam?",
            time(Some("Kleinmachnow An Der Havel Bei Potsdam")),
        ),
        ("In Tokio, wie spät ist es da?", time(Some("Tokyo"))),
        (
            "Ich wüsste gern, wie das Wetter in Rom wird",
            weather("Rome", "now"),
        ),
        (
            "Ich wüsste gern, wie das Wetter morgen in Rom wird",
            weather("Rome", "tomorrow"),
        ),
        (
            "Können Sie mir sagen, wie das Wetter in Hamburg ist?",
            weather("Hamburg", "now"),
        ),
        ("Wie ist in Rom das Wetter?", weather("Rome", "now")),
        ("wie ist in rom heute das wetter", weather("Rome", "today")),
        (
            "Brauche ich heute in Köln einen Regenschirm?",
            weather("Cologne", "today"),
        ),
        ("Regnet es in Köln gerade?", weather("Cologne", "now")),
        ("Ist es in Köln gerade kalt?", weather("Cologne", "now")),
        (
            "Muss ich morgen in Köln einen Schirm mitnehmen?",
            weather("Cologne", "tomorrow"),
        ),
        ("Zeig mir das Wetter in Köln", weather("Cologne", "now")),
        ("Das Wetter in Köln, bitte", weather("Cologne", "now")),
        (
            "Wie warm ist es in Köln draußen?",
            weather("Cologne", "now"),
        ),
        ("weißt du ob es in rom regnet", weather("Rome", "now")),
        (
            "Wie ist das Wetter bei euch in Berlin?",
            weather("Berlin", "now"),
        ),
        (
            "Hallo, ähm, wie ist denn das Wetter in Berlin so?",
            weather("Berlin", "now"),
        ),
        (
            "Sag mir bitte, wie das Wetter in München heute wird",
            weather("Munich", "today"),
        ),
        ("Wie ist das Wetter in Regen?", weather("Regen", "now")),
        ("Ist das Wetter in Rom schön?", weather("Rome", "now")),
        (
            "Wie ist das Wetter in Neustadt an der Weinstraße?",
            weather("Neustadt An Der Weinstraße", "now"),
        ),
    ] {
        assert_eq!(one(said), request, "{said}");
    }
}

/// Each place would be read for each word before it, which takes too long.
#[test]
fn a_sentence_of_many_places_is_read_once() {
    let said = "die uhrzeit in es in es und ".repeat(40);
    let requests = (WORDING.requests)(&said);
    assert!(requests.iter().any(Request::needs_tool), "{requests:?}");
}

/// A statement was answered as a question.
#[test]
fn telling_of_the_weather_asks_for_none() {
    for said in [
        "Das Wetter in Rom war letzte Woche schön",
        "Das Wetter in Rom war schön",
        "Das Wetter in Rom ist schön",
        "das wetter war schön in rom",
        "Ich liebe das Wetter in Rom",
        "Mein Bruder sagt, das Wetter in Rom ist gut",
        "Gestern war das Wetter in Rom schlecht",
        "In Hamburg war das Wetter schlecht",
    ] {
        assert_eq!(one(said), Request::Unknown, "{said}");
    }
}

/// They were not understood.
#[test]
fn a_goodbye_may_have_more_words() {
    for said in [
        "Tschüss, bis morgen",
        "okay danke tschüss und schönen tag noch",
        "Danke, das wär's",
        "Das war alles, vielen Dank",
        "Vielen Dank und auf Wiederhören",
        "Ich muss los, tschüss",
        "Tschüssi",
        "Auf Wiedersehen und vielen Dank für Ihre Hilfe",
        "Gut, dann bis zum nächsten Mal",
        "Ich wünsche Ihnen noch einen schönen Tag",
    ] {
        assert_eq!(one(said), Request::Talk(Talk::Goodbye), "{said}");
    }
    for said in [
        "Tschüss ist ein schönes Wort.",
        "Ich muss los, aber stell noch einen Timer.",
        "Bis morgen ist es fertig.",
    ] {
        assert_ne!(one(said), Request::Talk(Talk::Goodbye), "{said}");
    }
}

/// "Gut, dann lasse ich es", and it kept running.
#[test]
fn a_timer_that_is_no_longer_needed_is_cancelled() {
    for said in [
        "Ich brauche den Timer nicht mehr.",
        "Den Timer brauche ich doch nicht mehr.",
        "Ich brauche keinen Timer mehr.",
    ] {
        assert_eq!(one(said), Request::CancelTimer(Target::Only), "{said}");
    }
    for said in [
        "Brich den Timer nicht ab.",
        "Ich brauche keinen Timer.",
        "Ich brauche den Timer noch nicht.",
        "Stell keinen Timer mehr.",
    ] {
        assert_eq!(one(said), Request::Refused, "{said}");
    }
    let another = "Stell einen Timer auf zehn Minuten, ich brauche den alten nicht mehr.";
    let requests = (WORDING.requests)(another);
    let cancels = |request: &Request| matches!(request, Request::CancelTimer(_));
    assert!(!requests.iter().any(cancels), "{requests:?}");
    for said in ["Abbrechen.", "Nein, brich ihn bitte ab.", "Doch nicht."] {
        assert!((WORDING.takes_back)(said), "{said}");
    }
    for said in ["Nein.", "Stopp.", "Brich ihn nicht ab.", "Danke."] {
        assert!(!(WORDING.takes_back)(said), "{said}");
    }
    for said in [
        "Ich brauche den Timer doch nicht.",
        "Nein. Den Timer brauche ich nicht mehr.",
    ] {
        assert!((WORDING.declines)(said), "{said}");
    }
    for said in [
        "Lösche den Timer.",
        "Ich brauche den Timer nicht mehr. Lösche den Timer.",
        "Nein.",
    ] {
        assert!(!(WORDING.declines)(said), "{said}");
    }
}

/// Both places were taken for one, and "dort" for here.
#[test]
fn a_question_of_several_places_or_days_is_one_of_each() {
    let weather = |place: &str, day| Request::Weather {
        place: Some(place.to_owned()),
        day,
    };
    let time = |place: &str| Request::Time(Some(place.to_owned()));
    for (said, requests) in [
        (
            "Wie spät ist es in New York und in Tokio?",
            [time("New York"), time("Tokyo")],
        ),
        (
            "Wie ist das Wetter in Berlin und in Kleinmachnow?",
            [weather("Berlin", "now"), weather("Kleinmachnow", "now")],
        ),
        (
            "Wie ist das Wetter in Berlin und in Longmont, Colorado?",
            [
                weather("Berlin", "now"),
                weather("Longmont, Colorado", "now"),
            ],
        ),
        (
            "Wie wird das Wetter heute und morgen in Rom?",
            [weather("Rome", "today"), weather("Rome", "tomorrow")],
        ),
        (
            "Wie ist das Wetter in Rom und wie spät ist es dort?",
            [weather("Rome", "now"), time("Rome")],
        ),
        (
            "Wie spät ist es in Rom? Und wie ist das Wetter da?",
            [time("Rome"), weather("Rome", "now")],
        ),
        (
            "Wie spät ist es hier und in Tokio?",
            [Request::Time(None), time("Tokyo")],
        ),
    ] {
        assert_eq!((WORDING.requests)(said), requests, "{said}");
    }
    // The second half was a part of the name.
    let berlin = one("Wie ist das Wetter in Berlin und wie geht es dir?");
    assert_eq!(berlin, weather("Berlin", "now"));
    let berlin = one("Wie ist das Wetter in Berlin und wie groß ist Japan?");
    assert_eq!(berlin, weather("Berlin", "now"));
    let tokyo = one("Wie spät ist es in Tokio und wie heißt du?");
    assert_eq!(tokyo, time("Tokyo"));
    // A second half that asks nothing was left out.
    let islands = one("Wie ist das Wetter in Trinidad und Tobago?");
    assert_eq!(islands, weather("Trinidad and Tobago", "now"));
    let both = one("Wie ist das Wetter in München und Garmisch?");
    assert_eq!(both, weather("München Und Garmisch", "now"));
}

#[test]
fn results_are_said_in_words() {
    let say = |tool, output, said| (WORDING.result)(tool, &output, said).unwrap();
    let tokyo = json!({"place": "Tokyo", "time": "3:05 PM", "date": "Sunday, March 1, 2026", "zone": "Asia/Tokyo"});
    assert_eq!(
        say("get_time", tokyo.clone(), "Wie spät ist es in Tokio?"),
        "Es ist 15 Uhr 5 in Tokio."
    );
    assert_eq!(
        say("get_time", tokyo, "Welcher Tag ist in Tokio?"),
        "Es ist Sonntag, der 1. März 2026 in Tokio."
    );
    let midnight = json!({"time": "12:00 AM", "date": "Sunday, March 1, 2026", "zone": "local"});
    assert_eq!(
        say("get_time", midnight, "Wie spät ist es?"),
        "Es ist 0 Uhr."
    );
    let sum = json!({"expression": "12 * 7.5", "result": "90", "approximate": false});
    assert_eq!(say("calculate", sum, ""), "12 mal 7,5 ist 90.");
    let percent = json!({"expression": "15% of 80", "result": "12", "approximate": false});
    assert_eq!(say("calculate", percent, ""), "15 Prozent von 80 ist 12.");
    // It was read digit by digit.
    let million = json!({"expression": "1000000 * 1.5", "result": "1500000", "approximate": false});
    let million = say("calculate", million, "");
    assert_eq!(million, "1.000.000 mal 1,5 ist 1.500.000.");
    speaks(&million, "1000000 mal 1,5 ist 1500000");
    let long = json!({"value": 1250.0, "from": "kilometers", "result": 1_250_000.0, "to": "meters", "approximate": false});
    assert_eq!(
        say("convert_units", long, ""),
        "1250 Kilometer sind 1.250.000 Meter."
    );
    let miles = json!({"value": 5.0, "from": "miles", "result": 8.05, "to": "kilometers", "approximate": true});
    assert_eq!(
        say("convert_units", miles, ""),
        "5 Meilen sind etwa 8,05 Kilometer."
    );
    let set = json!({"id": 1, "seconds": 600, "remaining_seconds": 600});
    assert_eq!(
        say("set_timer", set.clone(), ""),
        "Gut, der Timer auf 10 Minuten läuft."
    );
    let list = json!({"timers": [set, {"id": 2, "seconds": 480, "remaining_seconds": 61, "label": "tee"}]});
    assert_eq!(
        say("list_timers", list, ""),
        "Es laufen 2 Timer: einer auf 10 Minuten, noch 10 Minuten; einer auf 8 Minuten für Tee, noch 1 Minute und 1 Sekunde."
    );
    let today = json!({"place": "Munich", "day": "now", "sky": "cloudy", "temperature": 12, "high": 14, "low": 7});
    assert_eq!(
        say("get_weather", today, ""),
        "In München sind es 12 Grad, bewölkt."
    );
    let rings = (WORDING.rings)(Duration::from_secs(300), None);
    assert_eq!(rings, "Der Timer auf 5 Minuten ist abgelaufen.");
    let seconds = json!({"seconds": 300}).as_object().cloned().unwrap();
    let question = (WORDING.question)("set_timer", &seconds);
    assert_eq!(
        question.as_deref(),
        Some("Soll ich einen Timer auf 5 Minuten stellen?")
    );
}

#[test]
fn listening_words_take_no_turn() {
    for text in [
        "Mhm.",
        "Ja, genau.",
        "Ach so, alles klar.",
        "Verstehe.",
        "Bitte.",
        "Ja, bitte!",
    ] {
        assert!(PACK.only_listens(text), "{text}");
    }
    for text in [
        "Ja, aber wann?",
        "Stopp.",
        "Wie bitte?",
        "Bitte?",
        "Bitte warten.",
        "Nein.",
    ] {
        assert!(!PACK.only_listens(text), "{text}");
    }
    assert!(
        PACK.takes_turn("Ja, aber") && PACK.takes_turn("Bitte warten") && !PACK.takes_turn("Klar")
    );
    assert!(PACK.is_politeness("Bitte.") && !PACK.is_politeness("Bitte?"));
    assert!(PACK.adds_nothing("Wie spät ist es,", "Wie spät ist es, bitte?"));
    assert!(!PACK.adds_nothing("Wie spät ist es,", "Wie spät ist es in Rom?"));
    assert!(!PACK.adds_nothing("Was sind 50", "Was sind 50 €, bitte?"));
}

#[test]
fn yes_and_no_are_told_apart() {
    let asked = Asked {
        question: "Soll ich einen Timer auf 5 Minuten stellen?",
        tool: "set_timer",
        arguments: &Map::new(),
    };
    for text in [
        "Ja.",
        "Ja, bitte!",
        "Ja gerne, danke",
        "Okay, machen Sie das.",
        "Genau, mach das bitte",
        "Na klar!",
        "Ja, einverstanden",
        "Auf jeden Fall",
        "Gut, ja.",
    ] {
        assert_eq!(PACK.reply(text, asked), Reply::Yes, "{text}");
    }
    for text in [
        "Nein.",
        "Nein danke",
        "Bitte nicht!",
        "Lieber nicht",
        "Stopp, lassen Sie das",
        "Auf keinen Fall",
    ] {
        assert_eq!(PACK.reply(text, asked), Reply::No, "{text}");
    }
    for text in [
        "Ja?",
        "Ja, aber auf zehn Minuten",
        "Danke",
        "Bitte",
        "Ja nein",
        "Wie spät ist es?",
        "",
        "Ja, das habe ich doch gestern gesagt",
    ] {
        assert_eq!(PACK.reply(text, asked), Reply::Other, "{text}");
    }
}

#[test]
fn the_last_word_shows_whether_a_sentence_goes_on() {
    for text in [
        "Stell einen Timer auf",
        "Ich möchte in die",
        "Also, ähm...",
        "Meine Nummer ist,",
        "Wie spät ist es in",
    ] {
        assert!(words::SENTENCES.reads_unfinished(text), "{text}");
    }
    for text in [
        "Wie spät ist es?",
        "Ja.",
        "Stell einen Timer auf zehn Minuten.",
        "Hör auf zu reden",
    ] {
        assert!(!words::SENTENCES.reads_unfinished(text), "{text}");
    }
    let done = |text| PACK.finished(text, None);
    assert!(done("Wie spät ist es?").unwrap() > 0.6);
    assert_eq!(done("wie spät ist"), None);
}

#[test]
fn only_announcements_are_fillers() {
    for text in [
        "Einen Moment, bitte.",
        "Okay, ich schaue nach.",
        "Ich prüfe das für Sie.",
        "Ich sehe mal nach.",
        "Einen Moment, ich schaue, wann der Flug geht.",
        "Alles klar.",
    ] {
        assert!(PACK.is_filler(text), "{text}");
    }
    for text in [
        "Es ist 15 Uhr.",
        "Ich schaue, das Wetter ist schön.",
        "Der Flug geht um neun.",
        "Ich sehe drei freie Termine am Montag.",
        "Einen Moment, Ihr Flug geht um neun.",
        "Ja.",
        "Ja, gerne.",
    ] {
        assert!(!PACK.is_filler(text), "{text}");
    }
    assert!(PACK.is_filler("Ja, einen Moment."));
}

#[test]
fn written_forms_are_spoken() {
    for (text, spoken) in [
        ("Es kostet 12,50 €.", "Es kostet 12 Euro 50"),
        ("1.250 €", "1250 Euro"),
        ("Um 15:05 Uhr", "Um 15 Uhr 5"),
        ("9:00", "9 Uhr"),
        ("am 3. Oktober", "am dritten Oktober"),
        ("der 3.10.2026", "der dritte Oktober 2026"),
        ("20 %", "20 Prozent"),
        ("anna.b@beispiel.de", "anna Punkt b ät beispiel Punkt de"),
        ("5 km/h", "5 Kilometer pro Stunde"),
        ("-5 °C", "-5 Grad Celsius"),
        ("030 1234567", "0 3 0 1 2 3 4 5 6 7"),
        ("z.B. morgen", "zum Beispiel morgen"),
        ("1.200 Meter", "1200 Meter"),
        ("3,5 Liter", "3,5 Liter"),
    ] {
        let words: Vec<String> = PACK
            .spoken(text, 60)
            .into_iter()
            .map(|phrase| phrase.words)
            .collect();
        assert_eq!(words.join(", "), spoken, "{text}");
    }
}

fn reply(question: &str, text: &str) -> Reply {
    let asked = Asked {
        question,
        tool: "tool",
        arguments: &Map::new(),
    };
    PACK.reply(text, asked)
}

#[test]
fn hesitation_and_apologies_are_no_yes() {
    let question = "Soll ich die Bestellung abschicken?";
    for text in [
        "Na ja.",
        "Naja.",
        "Na ja, gut.",
        "Ja, tut mir leid.",
        "Ja, also.",
        "Ja, leider.",
        "Tut mir leid.",
        "Na?",
        "Gut, also",
    ] {
        assert_eq!(reply(question, text), Reply::Other, "{text}");
        assert!(!PACK.agrees(text), "{text}");
    }
    for text in [
        "Na klar.",
        "Na gut.",
        "Also gut.",
        "Na gut, bitte.",
        "Na los!",
    ] {
        assert_eq!(reply(question, text), Reply::Yes, "{text}");
    }
    for text in [
        "Nein, tut mir leid.",
        "Leider nein.",
        "Nein, leider nicht.",
        "Also nein.",
    ] {
        assert_eq!(reply(question, text), Reply::No, "{text}");
    }
}

#[test]
fn the_verb_of_a_question_about_ending_is_no_refusal() {
    let timer = "Soll ich den Timer abbrechen?";
    for (question, text) in [
        (timer, "Ja, abbrechen."),
        (timer, "Brechen Sie ihn ab."),
        (timer, "Ja, brich den Timer ab."),
        (timer, "Bitte den Timer abbrechen."),
        (timer, "Ja bitte, stoppen Sie ihn."),
        ("Soll ich den Timer beenden?", "Ja, beenden."),
        ("Soll ich den Timer auf 5 Minuten stoppen?", "Ja, stoppen."),
        (
            "Soll ich den Termin am 3. Oktober absagen?",
            "Ja, sagen Sie ihn ab.",
        ),
        ("Soll ich die Notiz löschen?", "Ja, löschen Sie die Notiz."),
        ("Soll ich die Notiz wirklich löschen, ja?", "Ja, lösch sie."),
        ("Soll die Buchung storniert werden?", "Ja, stornieren."),
        ("Soll ich das tun: cancel booking?", "Ja, bitte stornieren."),
    ] {
        assert_eq!(reply(question, text), Reply::Yes, "{question} {text}");
    }
    for (question, text) in [
        (timer, "Nein."),
        (timer, "Nein, nicht abbrechen."),
        (timer, "Brechen Sie ihn bitte nicht ab."),
        (timer, "Nein, lassen Sie ihn laufen."),
        ("Soll ich einen Timer stellen?", "Abbrechen."),
        ("Soll ich den Termin buchen oder abbrechen?", "Abbrechen."),
        (
            "Sie können später stornieren. Soll ich buchen?",
            "Stopp, abbrechen.",
        ),
        ("Soll ich die Notiz löschen?", "Stopp!"),
    ] {
        let said = text.replace("bitte ", "");
        assert_eq!(reply(question, &said), Reply::No, "{question} {said}");
    }
    for (question, text) in [
        (timer, "Stoppen."),
        (timer, "Ja, stopp!"),
        (timer, "Ja, brich den Wecker ab."),
        (timer, "Ja, alle Timer abbrechen."),
        (
            "Soll ich den Flug und den Wagen stornieren?",
            "Ja, stornieren Sie den Wagen.",
        ),
        ("Soll ich einen Timer stellen?", "Ja, abbrechen."),
    ] {
        assert_eq!(reply(question, text), Reply::Other, "{question} {text}");
    }
}

#[test]
fn questions_about_timers_leave_them_alone() {
    for said in [
        "Wann geht der Timer aus?",
        "Um wie viel Uhr klingelt der Wecker?",
        "Bis wann läuft der Timer?",
        "Ist der Timer schon aus?",
        "Läuft noch ein Timer?",
        "Wie viel Zeit habe ich noch auf dem Timer?",
        "Welchen Timer habe ich gestellt?",
        "Sag mir, wie lange der Timer noch läuft.",
        "Wie lange noch?",
        "Wie viel Zeit ist noch übrig?",
    ] {
        assert_eq!(one(said), Request::ListTimers, "{said}");
    }
    assert_eq!(one("Warum ist der Timer aus?"), Request::Unknown);
    for said in [
        "Mach den Timer aus.",
        "Schalte bitte den Wecker aus!",
        "Timer aus.",
        "Können Sie den Timer stoppen?",
        "Stell den Timer ab.",
    ] {
        assert_eq!(one(said), Request::CancelTimer(Target::Only), "{said}");
    }
    for said in [
        "Stell noch einen Timer auf fünf Minuten.",
        "Noch ein Timer auf fünf Minuten, bitte",
        "Stell einen Timer auf fünf Minuten, ich gehe aus dem Haus",
    ] {
        assert_eq!(one(said), timer(300), "{said}");
    }
}

/// Reminders were beyond the local brain, and compounds no timers.
#[test]
fn a_timer_is_named_by_what_it_is_for() {
    let named = |seconds, label: &str| Request::SetTimer {
        seconds,
        label: Some(label.to_owned()),
    };
    for (said, label) in [
        ("Stell einen Nudeltimer auf zehn Minuten.", "nudel"),
        ("Stell einen Pasta-Timer auf zehn Minuten", "pasta"),
        ("Stelle einen Timer namens Pizza auf zehn Minuten.", "pizza"),
        ("Erinnere mich in zehn Minuten an die Wäsche.", "wäsche"),
        (
            "Kannst du mich in zehn Minuten an die Wäsche erinnern?",
            "wäsche",
        ),
        (
            "Erinnern Sie mich in zehn Minuten daran, den Herd ausmachen.",
            "herd ausmachen",
        ),
    ] {
        assert_eq!(one(said), named(Some(600), label), "{said}");
    }
    let open = one("Erinnere mich an die Wäsche.");
    assert_eq!(open, named(None, "wäsche"));
    for said in [
        "Stell einen neuen Timer auf fünf Minuten.",
        "Stell einen Kurzzeittimer auf fünf Minuten",
        "Gib mir in fünf Minuten Bescheid.",
    ] {
        assert_eq!(one(said), timer(300), "{said}");
    }
    let label = |label: &str| Request::CancelTimer(Target::Label(label.to_owned()));
    assert_eq!(one("Lösche den Pasta-Timer."), label("pasta"));
    assert_eq!(one("Brich den Nudeltimer ab."), label("nudel"));
    let first = one("Lösch den ersten Timer.");
    assert_eq!(first, Request::CancelTimer(Target::Only));
    let appointment = one("Erinnere mich morgen um neun an den Termin.");
    assert_eq!(appointment, Request::Talk(Talk::TimeOfDay));
    for said in [
        "Was kostet ein Oldtimer?",
        "Ich erinnere mich an das Konzert.",
        "Daran kann ich mich gut erinnern.",
        "Können Sie sich an mich erinnern?",
        "Er gibt mir in zehn Minuten Bescheid.",
        "Ich sage Ihnen in zehn Minuten Bescheid.",
        "Heute scheint die Sonne.",
    ] {
        assert_eq!(one(said), Request::Unknown, "{said}");
    }
}

/// A second timer was set, which rang before the first.
#[test]
fn a_running_timer_keeps_its_length_and_no_other_is_set() {
    for said in [
        "Verlängere den Timer um fünf Minuten.",
        "Kannst du den Timer um fünf Minuten verlängern?",
        "Ändere den Timer auf zehn Minuten",
        "Füge dem Timer fünf Minuten hinzu.",
        "Gib dem Timer noch fünf Minuten mehr",
        "Mach den Timer fünf Minuten länger.",
        "Zieh fünf Minuten vom Timer ab.",
        "Könnten Sie den Timer ändern?",
        "Verlängern Sie den Timer um zehn Minuten.",
    ] {
        assert_eq!(one(said), Request::Talk(Talk::FixedLength), "{said}");
    }
    for said in [
        "Füge einen Timer von fünf Minuten hinzu.",
        "Stell den Timer auf fünf Minuten.",
    ] {
        assert_eq!(one(said), timer(300), "{said}");
    }
    for said in [
        "Stell einen Timer für die Verlängerung auf 15 Minuten.",
        "Stell einen Timer auf 15 Minuten, um die Soße zu reduzieren.",
    ] {
        let request = one(said);
        assert!(
            matches!(
                request,
                Request::SetTimer {
                    seconds: Some(900),
                    ..
                }
            ),
            "{said}: {request:?}"
        );
    }
}

/// The tool calls a single unit "hour", and the answer said so.
#[test]
fn a_single_unit_is_not_said_in_english() {
    let say = |output| (WORDING.result)("convert_units", &output, "");
    let hour = json!({"value": 1.0, "from": "hour", "result": 60.0, "to": "minutes", "approximate": false});
    assert_eq!(say(hour).as_deref(), Some("1 Stunde ist 60 Minuten."));
    let foot =
        json!({"value": 12.0, "from": "inches", "result": 1.0, "to": "foot", "approximate": false});
    assert_eq!(say(foot).as_deref(), Some("12 Zoll sind 1 Fuß."));
}

/// The agent said that it could not do that alone.
#[test]
fn an_acknowledgement_is_no_request() {
    for said in ["Super, danke!", "Alles klar, vielen Dank.", "Okay, danke."] {
        assert_eq!(one(said), Request::Talk(Talk::Thanks), "{said}");
    }
    for said in ["Alles klar.", "Gut.", "Okay, perfekt.", "Ja, bitte."] {
        assert_eq!(one(said), Request::Talk(Talk::Yes), "{said}");
    }
}

/// Such a sum was not understood.
#[test]
fn a_polite_word_is_no_part_of_a_sum() {
    for said in ["Rechne bitte 12 mal 7.", "Berechnen Sie mal 12 mal 7"] {
        assert_eq!(one(said), Request::Calculate("12 * 7".into()), "{said}");
    }
}

/// Neither a sum without a question nor one of an amount was understood.
#[test]
fn a_sum_needs_no_question_and_may_be_of_an_amount() {
    for (said, sum) in [
        ("Zehn plus fünf.", "10 + 5"),
        ("12 mal 7, bitte", "12 * 7"),
        ("Was sind 20 Prozent von 150 Euro?", "20% of 150"),
        ("Wie viel ist 50 € minus 20 €?", "50 - 20"),
    ] {
        assert_eq!(one(said), Request::Calculate(sum.into()), "{said}");
    }
    for said in ["Fünf und zehn.", "3/10", "Zwei mal am Tag", "5 + 3 = 8"] {
        assert_eq!(one(said), Request::Unknown, "{said}");
    }
}

/// They were beyond the local brain.
#[test]
fn everyday_small_talk_is_answered() {
    for (said, talk) in [
        ("Können Sie mich hören?", Talk::Greeting),
        ("Sind Sie noch da?", Talk::Greeting),
        ("Vielen Dank für Ihre Hilfe.", Talk::Thanks),
        ("Nein, das war alles.", Talk::Goodbye),
        ("Nein, danke, das war alles.", Talk::Goodbye),
        ("Vielen Dank, auf Wiederhören.", Talk::Goodbye),
        ("Danke schön, tschüss!", Talk::Goodbye),
        ("Nein, danke.", Talk::No),
        ("Schönen Tag noch!", Talk::Goodbye),
        ("Gute Nacht.", Talk::Goodbye),
        ("Bist du ein Roboter?", Talk::WhoAreYou),
        ("Wer hat Sie programmiert?", Talk::WhoAreYou),
        ("Kannst du das noch mal sagen?", Talk::Repeat),
        ("Einen Moment, bitte.", Talk::Wait),
        ("Entschuldigung, eine Sekunde.", Talk::Wait),
        ("Warten Sie kurz.", Talk::Stop),
    ] {
        assert_eq!(one(said), Request::Talk(talk), "{said}");
    }
    for said in ["Das ist alles nicht wahr.", "Bis morgen ist es fertig."] {
        let requests = (WORDING.requests)(said);
        assert_ne!(requests, [Request::Talk(Talk::Goodbye)], "{said}");
    }
    let patient = (WORDING.requests)("Stell einen Timer auf zehn Minuten. Einen Moment, bitte.");
    assert_eq!(patient, [timer(600)]);
    let taken_back = (WORDING.requests)("Lösche alle Timer. Warte!");
    assert_eq!(taken_back, [Request::Talk(Talk::Stop)]);
}

/// Only "wird es regnen" was understood.
#[test]
fn rain_may_be_asked_for_behind_the_day_and_the_place() {
    let weather = |place: Option<&str>, day| Request::Weather {
        place: place.map(str::to_owned),
        day,
    };
    for (said, request) in [
        (
            "Wird es morgen in Berlin regnen?",
            weather(Some("Berlin"), "tomorrow"),
        ),
        (
            "Wird es heute noch in Köln schneien?",
            weather(Some("Cologne"), "today"),
        ),
        ("Wird es in der Nacht regnen?", weather(None, "today")),
        (
            "Wird es morgen am Abend in Köln regnen?",
            weather(Some("Cologne"), "tomorrow"),
        ),
        ("Wird es heute regnen?", weather(None, "today")),
        (
            "Wie ist das Wetter in den Vereinigten Staaten?",
            weather(Some("United States"), "now"),
        ),
        (
            "Wie viel Grad hat es in Köln?",
            weather(Some("Cologne"), "now"),
        ),
        (
            "Scheint morgen die Sonne in Berlin?",
            weather(Some("Berlin"), "tomorrow"),
        ),
        (
            "Brauche ich heute einen Regenschirm in Berlin?",
            weather(Some("Berlin"), "today"),
        ),
        ("Wird es am Wochenende regnen?", Request::Unknown),
    ] {
        assert_eq!(one(said), request, "{said}");
    }
}

/// The answer was the present time.
#[test]
fn the_time_of_something_else_is_not_the_present_time() {
    for said in [
        "Um wie viel Uhr macht die Apotheke auf?",
        "Bis wie viel Uhr haben Sie geöffnet?",
        "Können Sie mir sagen, um wie viel Uhr das Spiel anfängt?",
        "Zu welcher Uhrzeit beginnt der Film?",
        "Wie spät ist es in einer Stunde?",
        "Wie spät ist es in zwei Stunden?",
    ] {
        assert_eq!(one(said), Request::Unknown, "{said}");
    }
    let tokyo = Request::Time(Some("Tokyo".into()));
    assert_eq!(one("Wie viel Uhr ist es jetzt in Tokio?"), tokyo);
    assert_eq!(one("Welche Uhrzeit haben wir?"), Request::Time(None));
}

#[test]
fn another_day_is_computed_or_left_unanswered() {
    let today = json!({"time": "3:05 PM", "date": "Saturday, February 28, 2026", "zone": "local"});
    for (said, answer) in [
        (
            "Welcher Tag ist heute?",
            "Es ist Samstag, der 28. Februar 2026.",
        ),
        (
            "Guten Morgen, welcher Tag ist heute?",
            "Es ist Samstag, der 28. Februar 2026.",
        ),
        (
            "Was ist das heutige Datum?",
            "Es ist Samstag, der 28. Februar 2026.",
        ),
        (
            "Welcher Tag der Woche ist heute?",
            "Es ist Samstag, der 28. Februar 2026.",
        ),
        (
            "Welcher Tag ist morgen?",
            "Morgen ist Sonntag, der 1. März 2026.",
        ),
        (
            "Welches Datum haben wir übermorgen?",
            "Übermorgen ist Montag, der 2. März 2026.",
        ),
        (
            "Welcher Tag war gestern?",
            "Gestern war Freitag, der 27. Februar 2026.",
        ),
        (
            "Welches Datum ist am Montag?",
            "Am Montag ist der 2. März 2026.",
        ),
        (
            "Der wievielte ist nächsten Samstag?",
            "Am Samstag ist der 7. März 2026.",
        ),
    ] {
        assert_eq!(one(said), Request::Time(None), "{said}");
        let result = (WORDING.result)("get_time", &today, said);
        assert_eq!(result.as_deref(), Some(answer), "{said}");
    }
    for (said, answer) in [
        (
            "Wie spät ist es und welcher Tag ist heute?",
            "Es ist 15 Uhr 5, und es ist Samstag, der 28. Februar 2026.",
        ),
        (
            "Wie spät ist es? Und welcher Tag ist morgen?",
            "Es ist 15 Uhr 5, und morgen ist Sonntag, der 1. März 2026.",
        ),
    ] {
        assert_eq!(one(said), Request::Time(None), "{said}");
        let result = (WORDING.result)("get_time", &today, said);
        assert_eq!(result.as_deref(), Some(answer), "{said}");
    }
    for said in [
        "Welcher Tag ist in einer Woche?",
        "Welches Datum war letzten Montag?",
        "Welches Datum war am Montag?",
        "Welcher Wochentag ist der dritte Oktober?",
        "Welcher Tag ist der Muttertag?",
        "Welcher Tag ist in drei Tagen?",
        "Wie wird das Wetter übermorgen in Köln?",
        "Wie wird das Wetter am Montag in Köln?",
        "Wie wird das Wetter am 3. Oktober in Köln?",
        "Wie wird das Wetter am 3.10. in Köln?",
        "Wie wird das Wetter am 3.10.2026 in Köln?",
        "Wie wird das Wetter am dritten in Köln?",
        "Welcher Wochentag ist der 3. Oktober?",
        "Regnet es am Wochenende?",
    ] {
        assert_eq!(one(said), Request::Unknown, "{said}");
    }
    let morning = one("Wie ist das Wetter heute Morgen in Köln?");
    let place = Some("Cologne".to_owned());
    assert_eq!(
        morning,
        Request::Weather {
            place,
            day: "today"
        }
    );
}

#[test]
fn lengths_are_no_labels_and_times_of_day_no_lengths() {
    for (said, seconds) in [
        ("Stell einen Timer für eine Stunde.", 3600),
        ("Stell einen Timer für eine halbe Stunde", 1800),
        ("Timer auf eine Stunde dreißig", 5400),
        ("Stell einen Timer auf zwei Stunden und zehn", 7800),
        ("Stell einen Timer auf zwei Minuten dreißig", 150),
        ("Timer auf drei viertel Stunden", 2700),
        ("Stell einen Timer auf zwei Stunden und eine halbe", 9000),
    ] {
        assert_eq!(one(said), timer(seconds), "{said}");
    }
    for said in [
        "Stell den Wecker auf sieben Uhr",
        "Stell den Wecker auf halb acht",
        "Weck mich um viertel nach sechs",
        "Stell den Wecker auf sieben",
        "Weck mich um sieben Uhr dreißig.",
        "Stell den Wecker auf 7:30 Uhr.",
        "Stell den Wecker auf 7.30 Uhr",
        "Ändere den Wecker auf sieben Uhr.",
        "Kannst du den Wecker auf 8:15 Uhr ändern?",
        "Stell einen Wecker für Montag",
        "Stell den Wecker am 3.10. um 9 Uhr.",
        "Stell den Wecker für den 3. Oktober um 9 Uhr.",
    ] {
        assert_eq!(one(said), Request::Talk(Talk::TimeOfDay), "{said}");
    }
    let label = Some("pasta".to_owned());
    let pasta = Request::SetTimer {
        seconds: Some(480),
        label,
    };
    assert_eq!(
        one("Stell einen Timer für die Pasta auf acht Minuten"),
        pasta
    );
    let label = Target::Label("pasta".into());
    assert_eq!(
        one("Mach den Timer für die Pasta aus"),
        Request::CancelTimer(label)
    );
}

#[test]
fn phrases_that_were_misread() {
    let fahrenheit = |value| Request::Convert {
        value,
        from: "degrees Celsius",
        to: "degrees Fahrenheit",
    };
    for said in [
        "Wie viel Grad Fahrenheit sind zwanzig Grad Celsius?",
        "Wie viel Fahrenheit sind 20 Grad Celsius?",
        "Wieviel Grad Fahrenheit entsprechen 20 Grad Celsius?",
        "Wie viel sind 20 Grad in Fahrenheit?",
        "Wie viel Grad Fahrenheit sind 20 Grad?",
    ] {
        assert_eq!(one(said), fahrenheit(20.0), "{said}");
    }
    let inch = Request::Convert {
        value: 1.0,
        from: "inches",
        to: "centimeters",
    };
    assert_eq!(one("Wie viele Zentimeter sind ein Zoll?"), inch);
    for said in [
        "Das habe ich nicht verstanden.",
        "Entschuldigung, ich habe Sie nicht verstanden.",
        "Das hab ich leider akustisch nicht verstanden",
        "Ich verstehe Sie nicht.",
        "Was haben Sie gesagt?",
    ] {
        assert_eq!(one(said), Request::Talk(Talk::Repeat), "{said}");
    }
    let usa = Request::Time(Some("United States".into()));
    assert_eq!(one("Wie spät ist es in den USA?"), usa);
    let time =
        json!({"place": "United States", "time": "3:05 PM", "date": "Sunday, March 1, 2026"});
    let answer = (WORDING.result)("get_time", &time, "Wie spät ist es in den USA?");
    assert_eq!(answer.as_deref(), Some("Es ist 15 Uhr 5 in den USA."));
}

#[track_caller]
fn speaks(text: &str, spoken: &str) {
    let phrases = PACK.spoken(text, 60).into_iter();
    let words: Vec<String> = phrases.map(|phrase| phrase.words).collect();
    assert_eq!(words.join(", "), spoken, "{text}");
}

#[test]
fn ranges_and_long_numbers_are_no_telephone_numbers() {
    for (text, spoken) in [
        ("1.250.000 €", "1250000 Euro"),
        ("3.700.000 Einwohner", "3700000 Einwohner"),
        ("1250000 Einwohner", "1250000 Einwohner"),
        ("250 000 Einwohner", "250000 Einwohner"),
        ("20-30 €", "20 bis 30 Euro"),
        ("20 € – 30 €", "20 Euro bis 30 Euro"),
        ("$20-$30", "20 bis 30 Dollar"),
        ("1.000-2.000 €", "1000 bis 2000 Euro"),
        ("von 10 - 12 Uhr", "von 10 bis 12 Uhr"),
        ("8:00-10:30 Uhr", "8 Uhr bis 10 Uhr 30"),
        ("von 22-6 Uhr", "von 22 bis 6 Uhr"),
        ("2024-2025", "2024 bis 2025"),
        ("2024/2025", "2024 2025"),
        ("3–4 Tage", "3 bis 4 Tage"),
        ("Sie gewannen 3-1.", "Sie gewannen 3 zu 1"),
        ("10 - 4 ist 6", "10 minus 4 ist 6"),
        ("am 2026-03-01", "am ersten März 2026"),
        ("+49 30 1234567", "plus 4 9 3 0 1 2 3 4 5 6 7"),
        ("0171-123 45 67", "0 1 7 1 1 2 3 4 5 6 7"),
        ("555-123-4567", "5 5 5 1 2 3 4 5 6 7"),
        (
            "Ihre Bestellnummer ist 48219375.",
            "Ihre Bestellnummer ist 4 8 2 1 9 3 7 5",
        ),
    ] {
        speaks(text, spoken);
    }
}

/// "1,250.50" as English writes it was cut behind the comma, and decimals lost their comma before a currency.
#[test]
fn prices_are_read_whole_however_they_are_written() {
    for (text, spoken) in [
        ("$1,250.50", "1250 Dollar 50"),
        ("$12,500", "12500 Dollar"),
        ("1,250,000 Euro", "1250000 Euro"),
        ("3,000 Menschen", "3000 Menschen"),
        ("$3.50", "3 Dollar 50"),
        ("3.50 €", "3 Euro 50"),
        ("1,859 €", "1,859 Euro"),
        ("1,1 €", "1,1 Euro"),
        ("0,99 €", "99 Cent"),
        ("$20 USD", "20 Dollar"),
        ("-$5", "minus 5 Dollar"),
        ("0,125 Liter", "0,125 Liter"),
        ("20 €/Monat", "20 Euro pro Monat"),
    ] {
        speaks(text, spoken);
    }
}

/// The signs were dropped: "5 3 8", "2 Millionen".
#[test]
fn signs_are_said_whatever_is_around_them() {
    for (text, spoken) in [
        ("2 Millionen €", "2 Millionen Euro"),
        ("3,5 Mio. Euro", "3,5 Millionen Euro"),
        ("3,5 Mio. € Umsatz", "3,5 Millionen Euro Umsatz"),
        ("$2 Mrd.", "2 Milliarden Dollar"),
        ("1 Mio. Einwohner", "eine Million Einwohner"),
        ("ein paar €", "ein paar Euro"),
        ("5 + 3 = 8", "5 plus 3 ist gleich 8"),
        ("5 + 3 + 2 = 10", "5 plus 3 plus 2 ist gleich 10"),
        ("10 - 3 - 2", "10 minus 3 minus 2"),
        ("2 - 5 = -3", "2 minus 5 ist gleich -3"),
        ("2 × 3 × 4", "2 mal 3 mal 4"),
        ("5*3 = 15", "5 mal 3 ist gleich 15"),
        ("2x täglich", "2 mal täglich"),
        ("10 : 2", "10 geteilt durch 2"),
        ("Müller & Söhne", "Müller und Söhne"),
        ("C++", "C plus plus"),
        ("+49 30 1234567", "plus 4 9 3 0 1 2 3 4 5 6 7"),
    ] {
        speaks(text, spoken);
    }
}

/// "Version 1.2.3" was "Version erste Februar3".
#[test]
fn versions_and_addresses_are_no_dates() {
    for (text, spoken) in [
        ("Version 1.2.3", "Version 1.2.3"),
        ("Version 10.11.12", "Version 10.11.12"),
        ("10.1.2.3", "10.1.2.3"),
        ("192.168.1.1.", "192 Punkt 168.1.1"),
        ("am 3.10.", "am dritten Oktober"),
        ("am 3.10.2026.", "am dritten Oktober 2026"),
        ("am 3.10.26", "am dritten Oktober 26"),
        ("03.10.26", "dritte Oktober 26"),
        ("am 03-10-2026", "am dritten Oktober 2026"),
        ("vom 3.10.-5.10.", "vom dritten Oktober bis fünften Oktober"),
    ] {
        speaks(text, spoken);
    }
}

/// The stroke, the colon and the square of everyday texts were dropped, and short codes were numbers.
#[test]
fn everyday_texts_are_said_as_people_say_them() {
    for (text, spoken) in [
        ("um 8.30 Uhr", "um 8 Uhr 30"),
        ("Sie gewannen 3:1.", "Sie gewannen 3 zu 1"),
        ("Mo-Fr 9-17 Uhr", "Montag bis Freitag 9 bis 17 Uhr"),
        ("Montag–Mittwoch", "Montag bis Mittwoch"),
        ("Januar–März", "Januar bis März"),
        ("10 %–15 %", "10 Prozent bis 15 Prozent"),
        ("2 1/2 Stunden", "2 einhalb Stunden"),
        ("1½ Liter", "eineinhalb Liter"),
        ("3/4 Liter", "drei Viertel Liter"),
        ("8/10 Punkten", "8 von 10 Punkten"),
        ("120/80", "120 zu 80"),
        ("24/7", "24 7"),
        ("60 m² oder 1 m²", "60 Quadratmeter oder ein Quadratmeter"),
        ("3.–5. Mai", "dritter bis fünfter Mai"),
        ("vom 3.-5. Mai", "vom dritten bis fünften Mai"),
        ("Sa. 10–14 Uhr", "Samstag 10 bis 14 Uhr"),
        (
            "19 % MwSt. nach § 12",
            "19 Prozent Mehrwertsteuer nach Paragraf 12",
        ),
        ("500 mg", "500 Milligramm"),
        ("Ihr Code ist 482913.", "Ihr Code ist 4 8 2 9 1 3"),
        ("PLZ 10115 Berlin", "PLZ 1 0 1 1 5 Berlin"),
        ("www.beispiel.de", "beispiel Punkt de"),
        ("https://beispiel.com/a?b=1", "beispiel Punkt com"),
        ("u. a. hier", "unter anderem hier"),
        ("~5 km", "etwa 5 Kilometer"),
    ] {
        speaks(text, spoken);
    }
}

/// Amounts were read digit by digit, and times with dots or over midnight were differences.
#[test]
fn amounts_and_times_are_no_identifiers_and_no_dates() {
    for (text, spoken) in [
        (
            "Auf Ihrem Konto sind 1.250.000 Euro",
            "Auf Ihrem Konto sind 1250000 Euro",
        ),
        (
            "Auf dem Konto sind 1,250,000 Euro",
            "Auf dem Konto sind 1250000 Euro",
        ),
        ("$1500000", "1500000 Dollar"),
        ("4711-1234567", "4 7 1 1 1 2 3 4 5 6 7"),
        ("8.30 bis 17.00 Uhr", "8 Uhr 30 bis 17 Uhr"),
        ("8.00-18.00 Uhr", "8 Uhr bis 18 Uhr"),
        ("um 10.15 und 11.45 Uhr", "um 10 Uhr 15 und 11 Uhr 45"),
        ("22:00 - 6:00", "22 Uhr bis 6 Uhr"),
        ("22:00-6:00", "22 Uhr bis 6 Uhr"),
        (
            "100 € - 20 € = 80 €",
            "100 Euro minus 20 Euro ist gleich 80 Euro",
        ),
        ("5 km - 3 Stunden", "5 Kilometer, 3 Stunden"),
        ("Mo.-Fr. 8-17 Uhr", "Montag bis Freitag 8 bis 17 Uhr"),
    ] {
        speaks(text, spoken);
    }
}

/// "20 €/h" was "20 Euro/h", and only the hour and the kilogram had a "pro".
#[test]
fn a_stroke_before_a_short_unit_is_pro() {
    for (text, spoken) in [
        ("20 €/h", "20 Euro pro Stunde"),
        (
            "Das kostet 20,50 €/Std.",
            "Das kostet 20 Euro 50 pro Stunde",
        ),
        ("$25/h", "25 Dollar pro Stunde"),
        ("5 €/kg", "5 Euro pro Kilogramm"),
        ("12 €/m²", "12 Euro pro Quadratmeter"),
        ("0,10 €/min", "10 Cent pro Minute"),
        ("20-25 €/h", "20 bis 25 Euro pro Stunde"),
        ("60 km/h", "60 Kilometer pro Stunde"),
        ("7 l/km", "7 Liter pro Kilometer"),
        ("5 m/s", "5 Meter pro Sekunde"),
        ("und/oder", "und/oder"),
        ("15 €/Std. netto", "15 Euro pro Stunde netto"),
        ("WLAN 802.11 b/g/n", "WLAN 802.11 b/g/n"),
        ("Max/Min", "Max/Min"),
        ("Größe s/m/l", "Größe s/m/l"),
    ] {
        speaks(text, spoken);
    }
}

/// "½ Stunde" was "ein halb Stunde".
#[test]
fn a_half_agrees_with_its_noun() {
    for (text, spoken) in [
        ("½ Stunde", "eine halbe Stunde"),
        ("1/2 Stunde", "eine halbe Stunde"),
        ("in ½ Stunde", "in einer halben Stunde"),
        ("alle ½ Stunden", "alle halbe Stunde"),
        ("keine ½ Stunde", "keine halbe Stunde"),
        ("zur ½ Stunde", "zur halben Stunde"),
        ("im ½ Jahr", "im halben Jahr"),
        ("Das dauert ½ Tag", "Das dauert einen halben Tag"),
        ("Nimm ½ Liter Milch", "Nimm einen halben Liter Milch"),
        ("Das ist ½ Liter", "Das ist ein halber Liter"),
        ("½ Hähnchen", "ein halbes Hähnchen"),
        ("½ Brötchen", "ein halbes Brötchen"),
        ("½ Kuchen", "ein halber Kuchen"),
        ("½ Packungen", "eine halbe Packung"),
        ("½ Garten", "ein halb Garten"),
        ("½ m²", "ein halber Quadratmeter"),
        ("jede ½ Stunde", "jede halbe Stunde"),
        ("½ Tasse", "eine halbe Tasse"),
        ("½ Liter", "ein halber Liter"),
        ("für ½ Tag", "für einen halben Tag"),
        ("½ Jahr", "ein halbes Jahr"),
        (
            "in ½ h, ½ kg",
            "in einer halben Stunde, ein halbes Kilogramm",
        ),
        ("1½ h", "eineinhalb Stunden"),
        ("vor ½ Jahr", "vor einem halben Jahr"),
        ("1½ Stunden", "eineinhalb Stunden"),
        ("2½ Stunden", "2 einhalb Stunden"),
        ("3/4 Stunde", "drei Viertel Stunde"),
    ] {
        speaks(text, spoken);
    }
}

/// "iOS 17.4." was "iOS siebzehnte April".
#[test]
fn numbers_behind_the_name_of_a_product_are_no_date() {
    for (text, spoken) in [
        ("Das Update auf iOS 17.4.", "Das Update auf iOS 17.4"),
        ("Das geht ab USB 3.2.", "Das geht ab USB 3.2"),
        ("GPT-4.1.", "GPT-4.1"),
        ("Es läuft mit Python 3.12.", "Es läuft mit Python 3.12"),
        ("Siehe Abschnitt 4.2.", "Siehe Abschnitt 4.2"),
        ("macOS 14.04.24", "macOS 14.04.24"),
        (
            "Der Termin ist am 17.4.",
            "Der Termin ist am siebzehnten April",
        ),
        ("Montag, 17.4.", "Montag, siebzehnte April"),
        ("TÜV 17.04.2026", "TÜV siebzehnte April 2026"),
        ("TÜV 17.4. um 9 Uhr", "TÜV siebzehnte April um 9 Uhr"),
        ("MRT 03.06. um 8 Uhr", "MRT dritte Juni um 8 Uhr"),
        (
            "Beginn der EM 14.6. in München",
            "Beginn der EM vierzehnte Juni in München",
        ),
        ("GmbH 17.4.", "GmbH siebzehnte April"),
        ("WM 11.06.26", "WM elfte Juni 26"),
        (
            "TÜV 17.4. - 18.4.",
            "TÜV siebzehnte April bis achtzehnten April",
        ),
    ] {
        speaks(text, spoken);
    }
}

/// "Bestätigungscode 482913" was a number of six digits.
#[test]
fn digits_behind_a_compound_that_names_a_code_are_read_one_by_one() {
    for (text, spoken) in [
        ("Bestätigungscode 482913", "Bestätigungscode 4 8 2 9 1 3"),
        (
            "Ihre Buchungsnummer lautet: 482913.",
            "Ihre Buchungsnummer lautet, 4 8 2 9 1 3",
        ),
        ("Kundennummer 48291", "Kundennummer 4 8 2 9 1"),
        ("Telefonnummer 482913", "Telefonnummer 4 8 2 9 1 3"),
        (
            "die Auftragsnummer ist die 4711",
            "die Auftragsnummer ist die 4 7 1 1",
        ),
        ("Postleitzahl 10115", "Postleitzahl 1 0 1 1 5"),
        ("Gerätekennung 4711", "Gerätekennung 4 7 1 1"),
        ("Kunden-ID 4711", "Kunden-ID 4 7 1 1"),
        ("Ihre PIN ist 1234", "Ihre PIN ist 1 2 3 4"),
        ("die Nummer 1500", "die Nummer 1500"),
        (
            "Nennen Sie Ihre Kundennummer. 2026 war gut.",
            "Nennen Sie Ihre Kundennummer, 2026 war gut",
        ),
        ("der Sultan 1500", "der Sultan 1500"),
        ("Artikelnummer: 1000 Stück", "Artikelnummer, 1000 Stück"),
        ("Gutscheincode 5000 Punkte", "Gutscheincode 5000 Punkte"),
        ("Barcode – 1974 erfunden", "Barcode, 1974 erfunden"),
        ("Der Code (1500 Zeichen)", "Der Code, 1500 Zeichen"),
        ("Rabattcode, 2024 gültig", "Rabattcode, 2024 gültig"),
    ] {
        speaks(text, spoken);
    }
}

/// The dash was dropped, and a price before it began a range.
#[test]
fn a_spaced_dash_between_different_things_is_a_pause() {
    for (text, spoken) in [
        ("5 € – 3 Artikel", "5 Euro, 3 Artikel"),
        ("$5 – 3 Artikel", "5 Dollar, 3 Artikel"),
        ("$5 – 10 Artikel", "5 Dollar, 10 Artikel"),
        ("$5 – 10 pro Person", "5 bis 10 Dollar pro Person"),
        ("€ 20 – 30 kosten", "20 bis 30 Euro kosten"),
        ("€ 20 – 30 EUR", "20 bis 30 Euro"),
        ("€ 20 – 30 Rabatt", "20 bis 30 Euro Rabatt"),
        ("$20 - 5 = $15", "20 Dollar minus 5 ist gleich 15 Dollar"),
        (
            "22 °C – 45 % Luftfeuchte",
            "22 Grad Celsius, 45 Prozent Luftfeuchte",
        ),
        ("Option 1 – 20 €", "Option 1, 20 Euro"),
        ("Schritt 1 – 20 Minuten", "Schritt 1, 20 Minuten"),
        ("Flug 204 – 8:30 Uhr", "Flug 204, 8 Uhr 30"),
        ("Flug LH 204 – 8:30 Uhr", "Flug LH 204, 8 Uhr 30"),
        ("Zimmer 3 – 5", "Zimmer 3 bis 5"),
        ("Dauer 5 – 10 Minuten", "Dauer 5 bis 10 Minuten"),
        ("Berlin – sonnig", "Berlin, sonnig"),
    ] {
        speaks(text, spoken);
    }
}

/// "Wir haben u. a. Büros" was two sentences.
#[test]
fn the_dots_of_an_abbreviation_with_spaces_end_no_sentence() {
    for text in [
        "Wir haben u. a.",
        "Wir haben (u. a.",
        "Das geht z. B.",
        "Das heißt, d. h.",
        "Das dauert i. d. R.",
        "Das dauert i.d.R.",
        "Stifte o. ä.",
        "Das hilft v. a.",
        "Das gilt u. U.",
        "Das gilt z. Zt.",
        "Im Jahr 50 v. Chr.",
        "Stifte u. v. m.",
    ] {
        assert_eq!(words::SENTENCES.ending(text), Ending::None, "{text}");
    }
    for (text, end) in [
        ("Stifte o. ä. Das", Some("Stifte o. ä.")),
        ("Büros u. a. Wir", Some("Büros u. a.")),
        ("Wir haben u. a. Büros", None),
        ("Das geht z. B. Die", None),
        ("Details s. u. Das", Some("Details s. u.")),
        ("Das dauert i. d. R. Das", Some("Das dauert i. d. R.")),
    ] {
        let before = words::SENTENCES.end_before_last(text);
        assert_eq!(before.map(|at| &text[..at]), end, "{text}");
    }
    for text in ["Es sind 5 m.", "Das ist Variante b."] {
        assert_eq!(words::SENTENCES.ending(text), Ending::Sentence, "{text}");
    }
}

#[test]
fn abbreviations_with_spaces_are_spoken_as_words() {
    for (text, spoken) in [
        ("Wir haben u. a. Büros", "Wir haben unter anderem Büros"),
        (
            "Z. B. morgen, d. h. bald",
            "Zum Beispiel morgen, das heißt bald",
        ),
        ("i. d. R. und v. a. hier", "in der Regel und vor allem hier"),
        (
            "Stifte o. ä. und u. U. mehr",
            "Stifte oder ähnliches und unter Umständen mehr",
        ),
        ("im Jahr 50 v. Chr.", "im Jahr 50 vor Christus"),
        ("Stifte, Hefte u. v. m.", "Stifte, Hefte und vieles mehr"),
    ] {
        speaks(text, spoken);
    }
    for text in ["Stifte usw.", "Stifte o. ä.", "Stifte u. v. m."] {
        let last = PACK.spoken(text, 60).pop().unwrap();
        assert_eq!(last.mark, Some('.'), "{text}");
    }
}

#[test]
fn one_is_an_article_before_a_noun() {
    for (text, spoken) in [
        ("1 Stunde und 1 Minute", "eine Stunde und eine Minute"),
        ("in 1 Stunde", "in einer Stunde"),
        ("auf 1 Minute", "auf eine Minute"),
        ("Es ist 1 Uhr 5.", "Es ist ein Uhr 5"),
        ("um 1:00 Uhr", "um ein Uhr"),
        ("für 1 Tag", "für einen Tag"),
        ("vor 1 Jahr", "vor einem Jahr"),
        ("1 Meile ist 1 h weit", "eine Meile ist eine Stunde weit"),
        ("1-2 Stunden", "ein bis 2 Stunden"),
        ("von 1 bis 2 Uhr", "von 1 bis 2 Uhr"),
        ("0,1 Liter", "0,1 Liter"),
        ("21 Stunden", "21 Stunden"),
        ("Zimmer 1", "Zimmer 1"),
    ] {
        speaks(text, spoken);
    }
}

#[test]
fn ordinals_are_not_torn_at_their_dot() {
    for (text, spoken) in [
        ("im 19. Jahrhundert", "im neunzehnten Jahrhundert"),
        ("Der 2. Platz", "Der zweite Platz"),
        ("in der 3. Etage", "in der dritten Etage"),
        ("Am Ende der 2. Halbzeit", "Am Ende der zweiten Halbzeit"),
        ("vom 1. bis 3. Oktober", "vom ersten bis dritten Oktober"),
        (
            "vom 1. bis zum 3. Oktober",
            "vom ersten bis zum dritten Oktober",
        ),
        ("der 1. und 2. Platz", "der erste und zweite Platz"),
        ("Das ist Ihr 3. Anruf", "Das ist Ihr dritter Anruf"),
        ("ein 2. Mal", "ein zweites Mal"),
        ("zum 100. Geburtstag", "zum hundertsten Geburtstag"),
        ("die 21. Frage", "die einundzwanzigste Frage"),
        ("Heute ist der 3.", "Heute ist der dritte"),
        (
            "Es ist Montag, der 2. März 2026.",
            "Es ist Montag, der zweite März 2026",
        ),
        (
            "Das ist, wie gesagt, der 2. Versuch",
            "Das ist, wie gesagt, der zweite Versuch",
        ),
        ("2024/25", "2024 25"),
        (
            "Wir treffen uns am 5. Danach essen wir.",
            "Wir treffen uns am fünften, Danach essen wir",
        ),
        (
            "Das waren 19. Danach kam nichts.",
            "Das waren 19, Danach kam nichts",
        ),
        (
            "Zähle bis 10. Morgen geht es weiter.",
            "Zähle bis 10, Morgen geht es weiter",
        ),
    ] {
        speaks(text, spoken);
    }
}

#[test]
fn a_question_goes_on_with_another_place_or_day() {
    let weather = |place: &str, day| Request::Weather {
        place: Some(place.to_owned()),
        day,
    };
    let asked = "Wie wird das Wetter morgen in London?";
    let before = weather("London", "tomorrow");
    let again = |said: &str| (WORDING.again)(said, asked, &before);
    for (said, request) in [
        ("Und in Rom?", weather("Rome", "tomorrow")),
        ("Und Paris?", weather("Paris", "tomorrow")),
        ("Okay, und heute?", weather("London", "today")),
        (
            "Wie sieht es in München aus?",
            weather("Munich", "tomorrow"),
        ),
        ("Was ist mit Tokio heute?", weather("Tokyo", "today")),
        (
            "Und in Longmont, Colorado?",
            weather("Longmont, Colorado", "tomorrow"),
        ),
    ] {
        assert_eq!(again(said), Some(request), "{said}");
    }
    for said in [
        "Und in einer Minute?",
        "Und wie geht es dir?",
        "Und übermorgen?",
        "Rom.",
        "Was ist mit dem Timer?",
        "Und wie groß ist Japan?",
    ] {
        assert_eq!(again(said), None, "{said}");
    }
    for (said, place, day) in [
        ("Wie wird das Wetter für morgen in Rom?", "Rome", "tomorrow"),
        ("Wie ist das Wetter in Rom für heute?", "Rome", "today"),
        ("Das Wetter für Rom, bitte.", "Rome", "now"),
    ] {
        assert_eq!(one(said), weather(place, day), "{said}");
    }
    let open = Request::Weather {
        place: None,
        day: "now",
    };
    for (said, place) in [
        ("In Rom, bitte.", "Rome"),
        ("Für Rom, bitte.", "Rome"),
        ("In Kleinmachnow.", "Kleinmachnow"),
    ] {
        let answer = (WORDING.again)(said, "", &open);
        assert_eq!(answer, Some(weather(place, "now")), "{said}");
    }
    let time = |place: &str| Request::Time(Some(place.to_owned()));
    let there = |asked: &str| (WORDING.again)("Und in Rom?", asked, &time("Tokyo"));
    assert_eq!(there("Wie spät ist es in Tokio?"), Some(time("Rome")));
    assert_eq!(there("Welcher Tag ist in Tokio?"), None, "a date");
    // It was the time "in Wie Groß Ist, Japan".
    let size = (WORDING.again)("Und wie groß ist Japan?", asked, &time("Tokyo"));
    assert_eq!(size, None);
    assert_eq!((WORDING.again)("Wie groß ist Japan?", "", &open), None);
}

/// "Abs. 2", "Hauptstr. 5", "Tel." and others kept their dot, "bis Fr." was "bis Frau", and "19:30 h" "19 Uhr 30 Stunden".
#[test]
fn abbreviations_are_written_out() {
    for (text, spoken) in [
        ("§ 5 Abs. 2 BGB", "Paragraf 5 Absatz 2 BGB"),
        ("§§ 5–7", "Paragrafen 5 bis 7"),
        ("Art. 3 Abs. 1 S. 2 GG", "Artikel 3 Absatz 1 Satz 2 GG"),
        ("Hauptstr. 5, Berlin", "Hauptstraße 5, Berlin"),
        ("in der Hauptstr.", "in der Hauptstraße"),
        ("St. Pauli", "Sankt Pauli"),
        ("Tel. 0800 1234567", "Telefon 0 8 0 0 1 2 3 4 5 6 7"),
        (
            "Geöffnet Mo. bis Fr. von 9:00 bis 18:00 Uhr",
            "Geöffnet Montag bis Freitag von 9 Uhr bis 18 Uhr",
        ),
        ("Sa 10–14 Uhr", "Samstag 10 bis 14 Uhr"),
        ("So 5 Minuten", "So 5 Minuten"),
        ("Am Mo. um 9 Uhr", "Am Montag um 9 Uhr"),
        ("Mi., 3.12.2025", "Mittwoch, dritte Dezember 2025"),
        ("Am 3. Dez. um 9 Uhr", "Am dritten Dezember um 9 Uhr"),
        ("Jan. bis Feb. 2026", "Januar bis Februar 2026"),
        ("Das ist Jan.", "Das ist Jan"),
        (
            "max. 5 kg, mind. 3 Personen",
            "maximal 5 Kilogramm, mindestens 3 Personen",
        ),
        ("Prof. Dr. Müller", "Professor Doktor Müller"),
        (
            "zzgl. MwSt., inkl. Versand",
            "zuzüglich Mehrwertsteuer, inklusive Versand",
        ),
        ("Köln Hbf. hält", "Köln Hauptbahnhof hält"),
        ("19:30 h", "19 Uhr 30"),
        ("5,- € oder 1.299,– €", "5 Euro oder 1299 Euro"),
        (
            "1/2 TL Salz, 2 EL Öl",
            "ein halber Teelöffel Salz, 2 Esslöffel Öl",
        ),
        ("7 l/100 km", "7 Liter pro 100 Kilometer"),
        ("5 µg, 65 W, 230 V", "5 Mikrogramm, 65 Watt, 230 Volt"),
    ] {
        speaks(text, spoken);
    }
}

/// "Ludwig XIV." was "Ludwig römisch vierzehn".
#[test]
fn roman_numerals_are_numbers() {
    for (text, spoken) in [
        ("Ludwig XIV. war König", "Ludwig der vierzehnte war König"),
        ("Mit Heinrich VIII. kam", "Mit Heinrich dem achten kam"),
        ("im II. Weltkrieg", "im zweiten Weltkrieg"),
        ("Kapitel IV", "Kapitel 4"),
    ] {
        speaks(text, spoken);
    }
}

/// Powers, small digits, arrows and "<" were dropped, and a way through menus was "größer als".
#[test]
fn signs_of_today_are_said_as_people_say_them() {
    for (text, spoken) in [
        ("10^6 und x²", "10 hoch 6 und x hoch 2"),
        ("10⁻³", "10 hoch -3"),
        ("CO₂", "C O 2"),
        ("A → B", "A, B"),
        (
            "Einstellungen > Netzwerk > WLAN",
            "Einstellungen, Netzwerk, WLAN",
        ),
        ("5 > 3", "5 größer als 3"),
        ("<5 min", "weniger als 5 Minuten"),
        (
            "um 2025-11-29T14:30:00Z",
            "um neunundzwanzigste November 2025 um 14 Uhr 30 UTC",
        ),
        (
            "Ihr Buchungscode lautet X7K9P2.",
            "Ihr Buchungscode lautet X 7 K 9 P 2",
        ),
        ("Bestellung #A-10293", "Bestellung #A, 1 0 2 9 3"),
    ] {
        speaks(text, spoken);
    }
}

/// "Größe XL." was "Größe der vierzigste".
#[test]
fn a_size_is_no_king() {
    for (text, spoken) in [
        ("Das ist Größe XL.", "Das ist Größe XL"),
        ("Das ist Rocky II.", "Das ist Rocky II"),
        ("Das war Ludwig XIV.", "Das war Ludwig der vierzehnte"),
        ("Elisabeth II. war da", "Elisabeth die zweite war da"),
        ("Der Code ist A2V9W", "Der Code ist A 2 V 9 W"),
    ] {
        speaks(text, spoken);
    }
}
