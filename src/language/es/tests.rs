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

/// The recogniser leaves accents out at times, and nothing was understood then.
#[test]
fn requests_are_read_without_their_accents() {
    for (said, request) in [
        (
            "que hora es en Tokio?.",
            Request::Time(Some("Tokyo".into())),
        ),
        ("Que dia es hoy?", Request::Time(None)),
        (
            "Cuanto es doce por siete?",
            Request::Calculate("12 * 7".into()),
        ),
        ("Que puedes hacer?", Request::Talk(Talk::Capabilities)),
        ("Que temporizadores hay?", Request::ListTimers),
        ("Cancela esta alarma", Request::CancelTimer(Target::Only)),
    ] {
        assert_eq!(one(said), request, "{said}");
    }
}

#[test]
fn requests_are_read() {
    let time = |place: Option<&str>| Request::Time(place.map(str::to_owned));
    let sum = |sum: &str| Request::Calculate(sum.into());
    let convert = |value, from, to| Request::Convert { value, from, to };
    for (said, request) in [
        ("¿Qué hora es?", time(None)),
        ("¿Me puede decir qué hora es, por favor?", time(None)),
        ("¿Qué hora es en Tokio?", time(Some("Tokyo"))),
        ("¿Qué hora es en entonces?", time(None)),
        ("¿Qué hora es ahora en Londres?", time(Some("London"))),
        ("¿Qué día es hoy?", time(None)),
        ("¿A cuántos estamos?", time(None)),
        ("Pon un temporizador de diez minutos.", timer(600)),
        (
            "Ponga un temporizador de media hora, por favor",
            timer(1800),
        ),
        (
            "Temporizador de cinco minutos y treinta segundos",
            timer(330),
        ),
        ("Avísame en una hora y media", timer(5400)),
        ("Pon una alarma de tres cuartos de hora", timer(2700)),
        ("¿Cuánto le queda al temporizador?", Request::ListTimers),
        ("¿Qué temporizadores hay?", Request::ListTimers),
        (
            "Cancela el temporizador",
            Request::CancelTimer(Target::Only),
        ),
        (
            "Cancela todos los temporizadores",
            Request::CancelTimer(Target::All),
        ),
        (
            "Cancela el temporizador de cinco minutos",
            Request::CancelTimer(Target::Seconds(300)),
        ),
        ("¿Cuánto es doce por siete?", sum("12 * 7")),
        ("¿Cuánto es 3,5 más 2?", sum("3.5 + 2")),
        ("¿Cuánto es el 15 por ciento de 80?", sum("15% of 80")),
        ("Calcula cien entre ocho", sum("100 / 8")),
        ("¿Cuánto es la raíz cuadrada de 81?", sum("sqrt(81)")),
        (
            "¿Cuántos kilómetros son cinco millas?",
            convert(5.0, "miles", "kilometers"),
        ),
        (
            "Convierte 20 grados celsius a fahrenheit",
            convert(20.0, "degrees Celsius", "degrees Fahrenheit"),
        ),
        ("¡Muchas gracias!", Request::Talk(Talk::Thanks)),
        ("Adiós", Request::Talk(Talk::Goodbye)),
        (
            "Pon la alarma mañana a las 7",
            Request::Talk(Talk::TimeOfDay),
        ),
        (
            "Pon un temporizador de 30 horas",
            Request::Talk(Talk::BadLength),
        ),
        ("No pongas un temporizador", Request::Refused),
        (
            "¿Quién inventó la teoría de la relatividad?",
            Request::Unknown,
        ),
    ] {
        assert_eq!(one(said), request, "{said}");
    }
    let weather = one("¿Qué tiempo hará mañana en Sevilla?");
    let place = Some("Seville".to_owned());
    assert_eq!(
        weather,
        Request::Weather {
            place,
            day: "tomorrow"
        }
    );
    let labelled = one("Pon un temporizador de ocho minutos para la pasta");
    let label = Some("pasta".to_owned());
    assert_eq!(
        labelled,
        Request::SetTimer {
            seconds: Some(480),
            label
        }
    );
    assert_eq!((WORDING.timer_of)("Diez minutos."), Some(timer(600)));
}

/// Only the last one was set.
#[test]
fn none_of_several_timers_is_dropped() {
    for said in [
        "Pon dos temporizadores, uno de cinco y otro de diez minutos.",
        "Pon dos temporizadores de 5 y 10 minutos, por favor.",
        "Pon un temporizador de cinco minutos y otro de diez.",
        "Pon un temporizador de cinco minutos y otro de diez minutos.",
    ] {
        let requests = (WORDING.requests)(said);
        assert_eq!(requests, [timer(300), timer(600)], "{said}");
    }
    let named = |seconds, label: &str| Request::SetTimer {
        seconds: Some(seconds),
        label: Some(label.to_owned()),
    };
    let both =
        "Pon un temporizador de 8 minutos para la pasta y otro de 6 minutos para los huevos.";
    assert_eq!(
        (WORDING.requests)(both),
        [named(480, "pasta"), named(360, "huevos")]
    );
    let same = (WORDING.requests)("Pon dos temporizadores de diez minutos.");
    assert_eq!(same, [timer(600), timer(600)]);
    let unclear = one("Pon un temporizador de 5 y 10 minutos.");
    assert_eq!(unclear, Request::Talk(Talk::WhichLength));
    let cancelled = (WORDING.requests)("Cancela los temporizadores de 5 y 10 minutos.");
    let lengths = [300, 600].map(|seconds| Request::CancelTimer(Target::Seconds(seconds)));
    assert_eq!(cancelled, lengths);
}

/// The first length was kept, and "una hora, perdón, treinta minutos" was an hour and a half.
#[test]
fn a_length_corrected_in_the_same_breath_is_not_set() {
    for said in [
        "Pon un temporizador de cinco minutos. No, diez minutos.",
        "Pon un temporizador de cinco minutos. Perdón, diez.",
    ] {
        assert_eq!(one(said), timer(600), "{said}");
    }
    let unclear = one("Pon un temporizador de una hora, perdón, treinta minutos.");
    assert_eq!(unclear, Request::Talk(Talk::WhichLength));
    for said in [
        "Pon un temporizador de una hora con treinta minutos.",
        "Pon un temporizador de una hora más treinta minutos.",
        "Pon un temporizador de una hora, eh, treinta minutos.",
    ] {
        assert_eq!(one(said), timer(5400), "{said}");
    }
}

/// A timer called "qué hay" was to be cancelled.
#[test]
fn a_question_is_no_name_of_a_timer() {
    for said in ["¿Qué temporizadores hay?", "¿Cuáles hay?", "Deja ambos."] {
        assert_eq!((WORDING.target_of)(said), None, "{said}");
    }
    let pasta = Some(Target::Label("pasta".into()));
    assert_eq!((WORDING.target_of)("La pasta."), pasta);
}

/// Another timer was set, and thanks for one were answered with a question for its length.
#[test]
fn telling_of_a_timer_sets_none() {
    for said in [
        "He puesto un temporizador de diez minutos.",
        "Has puesto el temporizador a diez minutos.",
        "Mi mujer puso una alarma de diez minutos.",
    ] {
        assert_eq!(one(said), Request::Unknown, "{said}");
    }
    let thanks = Request::Talk(Talk::Thanks);
    assert_eq!(one("Gracias por el temporizador."), thanks);
    for said in [
        "He puesto la pizza en el horno, pon un temporizador de diez minutos.",
        "He puesto un temporizador, pon otro de diez minutos.",
    ] {
        assert_eq!(one(said), timer(600), "{said}");
    }
    let cancelled = one("Cancela el temporizador que he puesto.");
    assert_eq!(cancelled, Request::CancelTimer(Target::Only));
}

/// Each order in common words, with fillers and without marks. Those that tell of another time besides are orders, too.
#[test]
fn an_order_in_common_words_sets_a_timer() {
    for said in [
        "Pon un temporizador de diez minutos",
        "eh pon un temporizador de diez minutos por favor",
        "Ponme un temporizador de diez minutos",
        "Pónme un temporizador de diez minutos",
        "Poné un temporizador de diez minutos",
        "pone un temporizador de diez minutos",
        "Poneme un temporizador de diez minutos",
        "Establece un temporizador de diez minutos",
        "Fija un temporizador de diez minutos",
        "Coloca un temporizador de diez minutos",
        "Ajusta el temporizador a diez minutos",
        "Programa un temporizador de diez minutos",
        "Programa el temporizador para diez minutos",
        "Inicia un temporizador de diez minutos",
        "Activa un temporizador de diez minutos",
        "Quería un temporizador de diez minutos",
        "Quiero un temporizador de diez minutos",
        "Quiero que pongas un temporizador de diez minutos",
        "Quisiera que me ponga un temporizador de diez minutos",
        "¿Me pones un temporizador de diez minutos?",
        "¿Me pone un temporizador de diez minutos, por favor?",
        "oye me pones un temporizador de diez minutos",
        "¿Puedes ponerme un temporizador de diez minutos?",
        "¿Podría poner un temporizador de diez minutos?",
        "Necesito un temporizador de diez minutos",
        "Temporizador de diez minutos",
        "diez minutos de temporizador por favor",
        "Una alarma de diez minutos, por favor",
        "Si, pon un temporizador de diez minutos",
        "Sí, por favor, pon un temporizador de diez minutos",
        "Pon como siempre un temporizador de diez minutos",
        "Si puedes, pon un temporizador de diez minutos",
        "Ayer sonó tarde, pon hoy un temporizador de diez minutos",
        "¿Serías tan amable de poner un temporizador de diez minutos?",
        "Poner un temporizador de diez minutos",
        "Hazme un temporizador de diez minutos",
        "Avísame en diez minutos",
        "No te olvides de poner un temporizador de diez minutos",
        "Un temporizador de diez minutos, siempre se me olvida",
        "El temporizador ha terminado, otro de diez minutos",
        "Mi mujer dice que pongas un temporizador de diez minutos",
        "Ayer se me quemó la pizza, así que un temporizador de diez minutos",
        "¿Ponemos un temporizador de diez minutos?",
    ] {
        assert_eq!(one(said), timer(600), "{said}");
    }
    for (said, label) in [
        (
            "Ponme un temporizador de diez minutos para la pasta",
            "pasta",
        ),
        ("Pon una alarma de diez minutos para el té", "té"),
        (
            "hazme un temporizador de diez minutos para los huevos",
            "huevos",
        ),
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
        "Mi mujer siempre pone un temporizador de diez minutos",
        "mi mujer pone siempre un temporizador de diez minutos",
        "Siempre pongo un temporizador de diez minutos para la pasta",
        "Ayer puse un temporizador de diez minutos",
        "Mi madre ponía un temporizador de diez minutos",
        "La receta dice que ponga un temporizador de diez minutos",
        "El temporizador de diez minutos ya sonó",
        "El temporizador de diez minutos era muy corto",
        "eh mi mujer normalmente pone una alarma de diez minutos",
        "Todos los días pongo un temporizador de diez minutos",
        "Mi madre siempre pone un temporizador",
        "Mi marido ha puesto un temporizador de diez minutos",
        "A veces pone un temporizador de diez minutos",
        "Suelo poner un temporizador de diez minutos",
        "Mi hermano pone una alarma de diez minutos",
        "Habíamos puesto un temporizador de diez minutos",
        "De vez en cuando uso un temporizador de diez minutos",
        "Mi marido nunca pone un temporizador de diez minutos",
        "Ayer tenía un temporizador de diez minutos",
    ] {
        assert_eq!(one(said), Request::Unknown, "{said}");
    }
}

/// Any negation refused the order beside it.
#[test]
fn the_negation_of_a_purpose_refuses_no_order() {
    for said in [
        "Pon un temporizador de diez minutos para que no se me olvide",
        "pon un temporizador de diez minutos para que no se queme la pizza",
        "Pon un temporizador de diez minutos porque no tengo reloj",
        "Pon un temporizador de diez minutos, que no se me olvide",
        "Pon un temporizador de diez minutos para no olvidarme",
        "Para que no se me olvide, pon un temporizador de diez minutos",
        "Si no te importa, pon un temporizador de diez minutos",
        "Pon un temporizador de diez minutos, si no es molestia",
        "Ponga un temporizador de diez minutos porque si no se me olvida",
    ] {
        assert_eq!(one(said), timer(600), "{said}");
    }
}

/// An order in doubt runs nothing: a part with a negation may take it back.
#[test]
fn a_negation_in_doubt_refuses_the_order() {
    for said in [
        "No sé si necesito un temporizador de diez minutos",
        "no se si poner un temporizador de diez minutos",
        "Pon un temporizador de diez minutos, aunque no, déjalo",
        "pon un temporizador de diez minutos aunque no dejalo",
        "Pon un temporizador de diez minutos. No, mejor no.",
        "Pon un temporizador de diez minutos, no, mejor no",
        "Pon un temporizador de diez minutos y, no, mejor no",
        "Pon un temporizador de diez minutos para que no, espera, déjalo",
        "Pon un temporizador de diez minutos para que no se me olvide, no, déjalo",
        "Pon un temporizador de diez minutos para que no se me olvide, mejor olvídalo",
        "No pongas un temporizador de diez minutos para que pueda dormir",
        "No pongas un temporizador de diez minutos porque no cocino",
        "Para que no se me olvide, no pongas un temporizador",
        "No quiero un temporizador de diez minutos",
        "No pongas un temporizador de diez minutos, sino de veinte",
        "No canceles el temporizador",
        "Pon un temporizador de diez minutos, no",
        "Pon un temporizador de diez minutos porque no sé si lo necesito",
        "Para el temporizador, no lo necesito",
        "Pon un temporizador de diez minutos para que no se me olvide, bueno, da igual",
        "Pon un temporizador de diez minutos porque no, en realidad da lo mismo",
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
        ("Me preguntaba qué hora es", time(None)),
        ("He preguntado qué hora es", time(None)),
        ("quería saber qué hora es", time(None)),
        ("No sé qué hora es", time(None)),
        (
            "¿Sabes qué hora es en Tokio ahora mismo?",
            time(Some("Tokyo")),
        ),
        (
            "me puedes decir qué hora es en tokio en este momento por favor",
            time(Some("Tokyo")),
        ),
        ("¿Tiene idea de qué hora es en Tokio?", time(Some("Tokyo"))),
        (
            "¿Qué hora es en este momento en Tokio?",
            time(Some("Tokyo")),
        ),
        ("en tokio qué hora es", time(Some("Tokyo"))),
        (
            "¿Qué hora es en Dar es Salaam?",
            time(Some("Dar es Salaam")),
        ),
        ("¿Qué hora es en Nueva York ahora?", time(Some("New York"))),
        (
            "¿Qué hora es en Villanueva de la Serena en Badajoz?",
            time(Some("Villanueva De La Serena En Badajoz")),
        ),
        (
            "Si en Londres es mediodía, ¿qué hora es en Nueva York?",
            time(Some("New York")),
        ),
        ("¿Está lloviendo en Bilbao?", weather("Bilbao", "now")),
        (
            "esta lloviendo en bilbao ahora mismo",
            weather("Bilbao", "now"),
        ),
        ("¿Cómo está en Madrid el tiempo?", weather("Madrid", "now")),
        ("¿En Madrid qué tiempo hace?", weather("Madrid", "now")),
        (
            "¿Necesito hoy en Madrid un paraguas?",
            weather("Madrid", "today"),
        ),
        (
            "¿Va a llover mañana en Madrid?",
            weather("Madrid", "tomorrow"),
        ),
        (
            "¿Cuál es la temperatura en Madrid?",
            weather("Madrid", "now"),
        ),
        (
            "Me gustaría saber qué tiempo hará mañana en Roma",
            weather("Rome", "tomorrow"),
        ),
        (
            "¿Sabes si hace frío en Madrid ahora mismo?",
            weather("Madrid", "now"),
        ),
        (
            "¿Sabes qué tiempo hace en Madrid hoy mismo ahora?",
            weather("Madrid", "today"),
        ),
        ("El tiempo en Madrid, por favor", weather("Madrid", "now")),
        ("¿Nieva en Londres?", weather("London", "now")),
        (
            "¿Qué tiempo hace en Santiago de Compostela hoy?",
            weather("Santiago De Compostela", "today"),
        ),
        ("¿Qué tiempo hace en Como?", weather("Como", "now")),
        ("¿Hace buen tiempo en Madrid?", weather("Madrid", "now")),
        (
            "¿Va a hacer calor mañana en Sevilla?",
            weather("Seville", "tomorrow"),
        ),
    ] {
        assert_eq!(one(said), request, "{said}");
    }
}

/// Each place would be read for each word before it, which takes too long.
#[test]
fn a_sentence_of_many_places_is_read_once() {
    let said = "la hora en es en es y ".repeat(40);
    let requests = (WORDING.requests)(&said);
    assert!(requests.iter().any(Request::needs_tool), "{requests:?}");
}

/// A statement was answered as a question.
#[test]
fn telling_of_the_weather_asks_for_none() {
    for said in [
        "Ayer hizo buen tiempo en Madrid",
        "El tiempo en Sevilla era estupendo",
        "El tiempo en Madrid es muy bueno",
        "Mi hermano dice que hace frío en Bilbao",
        "Me encanta el clima de Sevilla",
        "¿Cuánto tiempo hace que vives en Madrid?",
        "El clima en Sevilla fue horrible",
        "Hizo buen tiempo en Madrid",
    ] {
        assert_eq!(one(said), Request::Unknown, "{said}");
    }
}

/// They were not understood.
#[test]
fn a_goodbye_may_have_more_words() {
    for said in [
        "Adiós, hasta luego",
        "Eso es todo, muchas gracias",
        "Muchas gracias por todo, adiós",
        "bueno me voy adiós",
        "Adiós y gracias",
        "Hasta luego, que tenga un buen día",
        "Chao, nos vemos mañana",
        "Gracias, hasta la próxima",
    ] {
        assert_eq!(one(said), Request::Talk(Talk::Goodbye), "{said}");
    }
    for said in [
        "Adiós es una palabra bonita.",
        "Me voy a Madrid.",
        "Hasta mañana no lo sé.",
    ] {
        assert_ne!(one(said), Request::Talk(Talk::Goodbye), "{said}");
    }
}

/// It kept running.
#[test]
fn a_timer_that_is_no_longer_needed_is_cancelled() {
    for said in [
        "Ya no necesito el temporizador.",
        "El temporizador ya no lo necesito.",
    ] {
        assert_eq!(one(said), Request::CancelTimer(Target::Only), "{said}");
    }
    for said in ["No canceles el temporizador.", "No quiero un temporizador."] {
        assert_eq!(one(said), Request::Refused, "{said}");
    }
    // The order or question beside it is not lost to the timer.
    for said in [
        "Ya no necesito la receta, ¿cuánto le queda al temporizador?",
        "Ya no quiero la pizza, pon un temporizador de diez minutos.",
        "Ya no quiero el temporizador de cinco minutos, pon uno de diez minutos.",
    ] {
        let requests = (WORDING.requests)(said);
        let cancels = |request: &Request| matches!(request, Request::CancelTimer(_));
        assert!(!requests.iter().any(cancels), "{said}: {requests:?}");
    }
    for said in ["Cancélalo.", "No, cancélalo.", "Cancela.", "Mejor no."] {
        assert!((WORDING.takes_back)(said), "{said}");
    }
    for said in ["No.", "Para.", "No lo canceles.", "Gracias."] {
        assert!(!(WORDING.takes_back)(said), "{said}");
    }
    assert!((WORDING.declines)("Ya no quiero el temporizador."));
    for said in [
        "Cancela el temporizador.",
        "Ya no quiero el temporizador. Cancela el temporizador.",
        "No.",
    ] {
        assert!(!(WORDING.declines)(said), "{said}");
    }
}

/// Both places were taken for one, and "allí" for here.
#[test]
fn a_question_of_several_places_or_days_is_one_of_each() {
    let weather = |place: &str, day| Request::Weather {
        place: Some(place.to_owned()),
        day,
    };
    let time = |place: &str| Request::Time(Some(place.to_owned()));
    for (said, requests) in [
        (
            "¿Qué hora es en Nueva York y en Tokio?",
            [time("New York"), time("Tokyo")],
        ),
        (
            "¿Qué tiempo hace en Madrid y en Barcelona?",
            [weather("Madrid", "now"), weather("Barcelona", "now")],
        ),
        (
            "¿Qué tiempo hará hoy y mañana en Sevilla?",
            [weather("Seville", "today"), weather("Seville", "tomorrow")],
        ),
        (
            "¿Qué tiempo hace en Roma y qué hora es allí?",
            [weather("Rome", "now"), time("Rome")],
        ),
    ] {
        assert_eq!((WORDING.requests)(said), requests, "{said}");
    }
    // The second half was a part of the name.
    let tokyo = one("¿Qué hora es en Tokio y cómo te llamas?");
    assert_eq!(tokyo, time("Tokyo"));
    let madrid = one("¿Qué tiempo hace en Madrid y dónde está Portugal?");
    assert_eq!(madrid, weather("Madrid", "now"));
    // A second half that asks nothing was left out.
    let islands = one("¿Qué tiempo hace en Trinidad y Tobago?");
    assert_eq!(islands, weather("Trinidad and Tobago", "now"));
}

#[test]
fn results_are_said_in_words() {
    let say = |tool, output, said| (WORDING.result)(tool, &output, said).unwrap();
    let at = |time: &str| json!({"time": time, "date": "Sunday, March 1, 2026", "zone": "local"});
    assert_eq!(
        say("get_time", at("3:05 PM"), "¿Qué hora es?"),
        "Son las 3 y 5 de la tarde."
    );
    assert_eq!(
        say("get_time", at("1:30 AM"), "¿Qué hora es?"),
        "Es la 1 y media de la madrugada."
    );
    assert_eq!(
        say("get_time", at("3:05 PM"), "¿Qué día es hoy?"),
        "Es domingo, 1 de marzo de 2026."
    );
    let tokyo = json!({"place": "Tokyo", "time": "9:00 AM", "date": "Sunday, March 1, 2026"});
    assert_eq!(
        say("get_time", tokyo, "¿Qué hora es en Tokio?"),
        "En Tokio son las 9 de la mañana."
    );
    let sum = json!({"expression": "12 * 7.5", "result": "90", "approximate": false});
    assert_eq!(say("calculate", sum, ""), "12 por 7,5 son 90.");
    // It was read digit by digit.
    let million = json!({"expression": "1000 * 1000", "result": "1000000", "approximate": false});
    let million = say("calculate", million, "");
    assert_eq!(million, "1000 por 1000 son 1.000.000.");
    speaks(&million, "1000 por 1000 son 1000000");
    let long = json!({"value": 1250.0, "from": "kilometers", "result": 1_250_000.0, "to": "meters", "approximate": false});
    assert_eq!(
        say("convert_units", long, ""),
        "1250 kilómetros son 1.250.000 metros."
    );
    let miles = json!({"value": 5.0, "from": "miles", "result": 8.05, "to": "kilometers", "approximate": true});
    assert_eq!(
        say("convert_units", miles, ""),
        "5 millas son aproximadamente 8,05 kilómetros."
    );
    let set = json!({"id": 1, "seconds": 600, "remaining_seconds": 600});
    assert_eq!(
        say("set_timer", set, ""),
        "Vale, el temporizador de 10 minutos está en marcha."
    );
    let rings = (WORDING.rings)(Duration::from_secs(300), None);
    assert_eq!(rings, "El temporizador de 5 minutos ha terminado.");
    let seconds = json!({"seconds": 300}).as_object().cloned().unwrap();
    let question = (WORDING.question)("set_timer", &seconds);
    assert_eq!(
        question.as_deref(),
        Some("¿Pongo un temporizador de 5 minutos?")
    );
}

#[test]
fn listening_words_take_no_turn() {
    for text in [
        "Ajá.",
        "Sí, sí.",
        "Claro que sí.",
        "Vale, entiendo.",
        "Por favor.",
        "Mm-hm.",
    ] {
        assert!(PACK.only_listens(text), "{text}");
    }
    for text in [
        "Sí, pero no.",
        "Para.",
        "¿Qué?",
        "Por favor, espere.",
        "Sí, mañana.",
    ] {
        assert!(!PACK.only_listens(text), "{text}");
    }
    assert!(PACK.takes_turn("Sí, pero") && PACK.takes_turn("¿Cuándo") && !PACK.takes_turn("Vale"));
    assert!(PACK.is_politeness("¡Por favor!") && !PACK.is_politeness("Sí, por favor."));
}

#[test]
fn yes_and_no_are_told_apart() {
    let asked = Asked {
        question: "¿Pongo un temporizador de 5 minutos?",
        tool: "set_timer",
        arguments: &Map::new(),
    };
    for text in [
        "Sí.",
        "Sí, por favor!",
        "Claro que sí",
        "Vale, hágalo.",
        "De acuerdo, gracias",
        "Adelante",
        "¡Perfecto!",
    ] {
        assert_eq!(PACK.reply(text, asked), Reply::Yes, "{text}");
    }
    for text in [
        "No.",
        "No, gracias",
        "Mejor no",
        "Espere, déjelo",
        "No, cancélelo",
    ] {
        assert_eq!(PACK.reply(text, asked), Reply::No, "{text}");
    }
    for text in [
        "¿Sí?",
        "Sí, pero de diez minutos",
        "Gracias",
        "Sí no",
        "¿Qué hora es?",
        "",
    ] {
        assert_eq!(PACK.reply(text, asked), Reply::Other, "{text}");
    }
}

#[test]
fn the_last_word_shows_whether_a_sentence_goes_on() {
    for text in [
        "Pon un temporizador de",
        "Quiero ir a la",
        "Pues, eh...",
        "Mi número es,",
        "Qué hora es en",
    ] {
        assert!(words::SENTENCES.reads_unfinished(text), "{text}");
    }
    for text in [
        "¿Qué hora es?",
        "Sí.",
        "Pon un temporizador de diez minutos.",
    ] {
        assert!(!words::SENTENCES.reads_unfinished(text), "{text}");
    }
}

#[test]
fn only_announcements_are_fillers() {
    for text in [
        "Un momento, por favor.",
        "Vale, voy a mirar.",
        "Déjeme ver.",
    ] {
        assert!(PACK.is_filler(text), "{text}");
    }
    for text in [
        "Son las tres.",
        "Un momento, el vuelo está cancelado.",
        "Un momento, su vuelo sale a las doce.",
        "Veo tres citas libres.",
        "Sí.",
        "Sí, claro.",
    ] {
        assert!(!PACK.is_filler(text), "{text}");
    }
    assert!(PACK.is_filler("Sí, un momento."));
}

#[test]
fn written_forms_are_spoken() {
    for (text, spoken) in [
        ("¿Cuesta 12,50 €?", "Cuesta 12 euros con 50"),
        ("1.250 €", "1250 euros"),
        ("a las 15:30", "a las 15 y media"),
        ("el 3/10/2026", "el 3 de octubre de 2026"),
        ("20 %", "20 por ciento"),
        ("ana@ejemplo.es", "ana arroba ejemplo punto es"),
        ("5 km/h", "5 kilómetros por hora"),
        ("-5 °C", "menos 5 grados Celsius"),
        ("600 123 456", "6 0 0 1 2 3 4 5 6"),
        ("el Sr. López", "el señor López"),
        ("3,5 litros", "3,5 litros"),
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
    let question = "¿Envío el pedido?";
    for text in [
        "Sí, lo siento.",
        "Lo siento.",
        "Sí, bueno…",
        "Bueno.",
        "Pues…",
        "Sí, pues",
    ] {
        assert_eq!(reply(question, text), Reply::Other, "{text}");
        assert!(!PACK.agrees(text), "{text}");
    }
    for text in [
        "Sí, es correcto.",
        "Está correcto.",
        "Sí, está correcto, gracias.",
        "Bueno, sí.",
        "Pues claro.",
        "Bueno, vale.",
    ] {
        assert_eq!(reply(question, text), Reply::Yes, "{text}");
    }
    for text in [
        "No, lo siento.",
        "Lo siento, no.",
        "Bueno, no.",
        "Pues no, gracias.",
    ] {
        assert_eq!(reply(question, text), Reply::No, "{text}");
    }
}

#[test]
fn the_verb_of_a_question_about_ending_is_no_refusal() {
    let timer = "¿Cancelo el temporizador?";
    for (question, text) in [
        (timer, "Cancélelo, por favor."),
        (timer, "Sí, cancélelo."),
        (timer, "Sí, cancele el temporizador."),
        (timer, "Sí, cancelar."),
        (
            "¿Quiere que cancele la reserva del 3. de mayo?",
            "Sí, cancélela.",
        ),
        ("¿Desea cancelar su reserva?", "Sí, quiero cancelarla."),
        ("¿Paro el temporizador?", "Sí, páralo."),
        ("¿Borro la nota?", "Bórrala, por favor."),
        ("¿Quiere que haga esto: cancel booking?", "Sí, cancélalo."),
    ] {
        assert_eq!(reply(question, text), Reply::Yes, "{question} {text}");
    }
    for (question, text) in [
        (timer, "No."),
        (timer, "No, no lo cancele."),
        (timer, "No cancele el temporizador."),
        (timer, "No, déjelo."),
        ("¿Pongo un temporizador?", "Cancélelo, por favor."),
        ("¿Guardo la nota cancelar la reunión?", "Cancela."),
        ("¿Confirmo la reserva con cancelación gratuita?", "Cancele."),
        ("¿Lo guardo o lo cancelo?", "Cancélelo."),
        ("¿Borro la nota?", "Cancela."),
    ] {
        assert_eq!(reply(question, text), Reply::No, "{question} {text}");
    }
    for (question, text) in [
        (timer, "Cancelar."),
        (timer, "No, cancélelo."),
        (timer, "Sí, cancele la alarma."),
        ("¿Pongo un temporizador?", "Sí, cancélelo."),
        ("¿Cancelo el vuelo y el coche?", "Sí, cancele el coche."),
    ] {
        assert_eq!(reply(question, text), Reply::Other, "{question} {text}");
    }
}

#[test]
fn questions_about_timers_leave_them_alone() {
    for said in [
        "¿Cuándo termina el temporizador?",
        "¿A qué hora suena la alarma?",
        "¿Cuánto falta para que termine el temporizador?",
        "¿Está apagada la alarma?",
        "¿Cuántos temporizadores hay?",
        "¿Me puede decir cuánto le queda al temporizador?",
        "¿Cuánto queda?",
        "¿Cuánto tiempo falta todavía?",
    ] {
        assert_eq!(one(said), Request::ListTimers, "{said}");
    }
    assert_eq!(one("¿Por qué termina el temporizador?"), Request::Unknown);
    for said in [
        "Cancela temporizador.",
        "Para el temporizador.",
        "¿Puedes parar el temporizador?",
        "Quiero que canceles el temporizador.",
        "Apaga la alarma",
        "Quítame la alarma",
    ] {
        assert_eq!(one(said), Request::CancelTimer(Target::Only), "{said}");
    }
    assert_eq!(
        one("Cancela temporizador de dos horas."),
        Request::CancelTimer(Target::Seconds(7200))
    );
    assert_eq!(one("Pon otro temporizador de cinco minutos."), timer(300));
}

/// Reminders were beyond the local brain.
#[test]
fn a_timer_is_named_by_what_it_is_for() {
    let named = |seconds, label: &str| Request::SetTimer {
        seconds,
        label: Some(label.to_owned()),
    };
    for (said, label) in [
        (
            "Pon un temporizador llamado pizza de diez minutos.",
            "pizza",
        ),
        ("Pon un temporizador de pasta de diez minutos", "pasta"),
        (
            "Recuérdame en diez minutos sacar la basura.",
            "sacar la basura",
        ),
        (
            "¿Puedes recordarme apagar el horno dentro de diez minutos?",
            "apagar el horno",
        ),
    ] {
        assert_eq!(one(said), named(Some(600), label), "{said}");
    }
    let open = one("Recuérdame sacar la basura.");
    assert_eq!(open, named(None, "sacar la basura"));
    for said in [
        "Pon un temporizador de cocina de cinco minutos.",
        "Avísame dentro de cinco minutos.",
    ] {
        assert_eq!(one(said), timer(300), "{said}");
    }
    let label = |label: &str| Request::CancelTimer(Target::Label(label.to_owned()));
    assert_eq!(one("Cancela el temporizador de la pasta."), label("pasta"));
    let appointment = one("Recuérdame mañana a las nueve la cita.");
    assert_eq!(appointment, Request::Talk(Talk::TimeOfDay));
}

/// A second timer was set, which rang before the first.
#[test]
fn a_running_timer_keeps_its_length_and_no_other_is_set() {
    for said in [
        "Añade cinco minutos al temporizador.",
        "Añádele cinco minutos más a la alarma",
        "¿Puedes añadir al temporizador cinco minutos?",
        "Alarga el temporizador cinco minutos.",
        "Cambia el temporizador a diez minutos.",
        "Quita cinco minutos del temporizador.",
        "Pon cinco minutos más en el temporizador",
        "Reduce la duración de la alarma a dos minutos.",
        "¿Podría cambiar el tiempo a diez minutos en el temporizador?",
    ] {
        assert_eq!(one(said), Request::Talk(Talk::FixedLength), "{said}");
    }
    for said in [
        "Añade un temporizador de cinco minutos.",
        "Pon el temporizador a cinco minutos.",
    ] {
        assert_eq!(one(said), timer(300), "{said}");
    }
    for said in [
        "Pon un temporizador de 15 minutos para cambiar al bebé.",
        "Para cambiar al bebé pon una alarma de 15 minutos.",
        "Pon un temporizador de 15 minutos más en el salón.",
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
    assert_eq!(say(hour).as_deref(), Some("1 hora es 60 minutos."));
    let foot =
        json!({"value": 12.0, "from": "inches", "result": 1.0, "to": "foot", "approximate": false});
    assert_eq!(say(foot).as_deref(), Some("12 pulgadas son 1 pie."));
}

/// The agent said that it could not do that alone.
#[test]
fn an_acknowledgement_is_no_request() {
    for said in [
        "¡Perfecto, gracias!",
        "Muy bien, muchas gracias.",
        "Vale, gracias.",
    ] {
        assert_eq!(one(said), Request::Talk(Talk::Thanks), "{said}");
    }
    for said in ["Muy bien.", "Perfecto.", "Vale, genial.", "Sí, por favor."] {
        assert_eq!(one(said), Request::Talk(Talk::Yes), "{said}");
    }
}

/// They were beyond the local brain.
#[test]
fn everyday_small_talk_is_answered() {
    for (said, talk) in [
        ("¿Me oye?", Talk::Greeting),
        ("¿Hay alguien ahí?", Talk::Greeting),
        ("Muchas gracias por su ayuda.", Talk::Thanks),
        ("No, eso es todo.", Talk::Goodbye),
        ("No, gracias, eso es todo.", Talk::Goodbye),
        ("No, nada más, gracias.", Talk::Goodbye),
        ("Nada más, gracias.", Talk::Goodbye),
        ("Muchas gracias, adiós.", Talk::Goodbye),
        ("Muchas gracias, hasta luego.", Talk::Goodbye),
        ("No, gracias.", Talk::No),
        ("¡Que tenga un buen día!", Talk::Goodbye),
        ("¿Eres un robot?", Talk::WhoAreYou),
        ("¿Quién te ha creado?", Talk::WhoAreYou),
        ("¿Puede repetir eso, por favor?", Talk::Repeat),
        ("Un momento, por favor.", Talk::Wait),
        ("Espere un segundo.", Talk::Wait),
        ("Perdona, un segundo.", Talk::Wait),
        ("Espere.", Talk::Stop),
    ] {
        assert_eq!(one(said), Request::Talk(talk), "{said}");
    }
}

/// Only some words for the weather were understood.
#[test]
fn the_weather_may_be_asked_for_in_other_words() {
    let madrid = |day| Request::Weather {
        place: Some("Madrid".to_owned()),
        day,
    };
    for (said, day) in [
        ("¿Hace frío en Madrid?", "now"),
        ("¿Cuántos grados hace en Madrid?", "now"),
        ("¿Necesito paraguas hoy en Madrid?", "today"),
    ] {
        assert_eq!(one(said), madrid(day), "{said}");
    }
    assert_eq!(one("Hace frío."), Request::Unknown);
}

/// Such a sum was not understood.
#[test]
fn a_polite_word_is_no_part_of_a_sum() {
    let sum = Request::Calculate("12 * 7".into());
    assert_eq!(one("Calcula, por favor, doce por siete."), sum);
}

/// Neither a sum without a question nor one of an amount was understood.
#[test]
fn a_sum_needs_no_question_and_may_be_of_an_amount() {
    for (said, sum) in [
        ("Diez más cinco.", "10 + 5"),
        ("¿Cuánto es el 20 por ciento de 150 euros?", "20% of 150"),
        ("¿Cuánto es 50 € menos 20 €?", "50 - 20"),
    ] {
        assert_eq!(one(said), Request::Calculate(sum.into()), "{said}");
    }
    for said in ["Cinco y diez.", "3/10", "Dos veces al día"] {
        assert_eq!(one(said), Request::Unknown, "{said}");
    }
}

/// The answer was the present time.
#[test]
fn the_time_of_something_else_is_not_the_present_time() {
    for said in [
        "¿A qué hora abre la farmacia?",
        "¿Hasta qué hora están abiertos?",
        "¿Me puede decir a qué hora empieza el partido?",
        "A que hora cierra el museo?",
        "¿Qué hora es dentro de dos horas?",
    ] {
        assert_eq!(one(said), Request::Unknown, "{said}");
    }
    let tokyo = Request::Time(Some("Tokyo".into()));
    assert_eq!(one("¿Qué hora es ahora en Tokio?"), tokyo);
    assert_eq!(one("¿Tiene idea de qué hora es?"), Request::Time(None));
}

#[test]
fn another_day_is_computed_or_left_unanswered() {
    let today = json!({"time": "3:05 PM", "date": "Saturday, February 28, 2026", "zone": "local"});
    for (said, answer) in [
        ("¿Qué día es hoy?", "Es sábado, 28 de febrero de 2026."),
        (
            "¿Cuál es la fecha de hoy?",
            "Es sábado, 28 de febrero de 2026.",
        ),
        (
            "¿Qué día de la semana es hoy?",
            "Es sábado, 28 de febrero de 2026.",
        ),
        (
            "¿A cuántos estamos hoy?",
            "Es sábado, 28 de febrero de 2026.",
        ),
        (
            "¿Qué día es mañana?",
            "Mañana es domingo, 1 de marzo de 2026.",
        ),
        (
            "¿Qué día es pasado mañana?",
            "Pasado mañana es lunes, 2 de marzo de 2026.",
        ),
        (
            "¿Qué fecha fue ayer?",
            "Ayer fue viernes, 27 de febrero de 2026.",
        ),
        ("¿Qué fecha es el lunes?", "El lunes es 2 de marzo de 2026."),
        (
            "¿Qué día cae el próximo sábado?",
            "El sábado es 7 de marzo de 2026.",
        ),
    ] {
        assert_eq!(one(said), Request::Time(None), "{said}");
        let result = (WORDING.result)("get_time", &today, said);
        assert_eq!(result.as_deref(), Some(answer), "{said}");
    }
    for (said, answer) in [
        (
            "¿Qué hora es y qué día es hoy?",
            "Son las 3 y 5 de la tarde y es sábado, 28 de febrero de 2026.",
        ),
        (
            "¿Qué hora es? ¿Y qué día es mañana?",
            "Son las 3 y 5 de la tarde y mañana es domingo, 1 de marzo de 2026.",
        ),
    ] {
        assert_eq!(one(said), Request::Time(None), "{said}");
        let result = (WORDING.result)("get_time", &today, said);
        assert_eq!(result.as_deref(), Some(answer), "{said}");
    }
    for said in [
        "¿Qué día es dentro de una semana?",
        "¿Qué fecha fue el lunes pasado?",
        "¿Qué día de la semana es el tres de octubre?",
        "¿Qué día es Navidad?",
        "¿Qué tiempo hará pasado mañana en Sevilla?",
        "¿Qué tiempo hará el lunes en Sevilla?",
        "¿Qué tiempo hará el 3/10 en Sevilla?",
        "¿Qué tiempo hará el día 3 en Sevilla?",
        "¿Va a llover el fin de semana?",
    ] {
        assert_eq!(one(said), Request::Unknown, "{said}");
    }
    let morning = one("¿Qué tiempo hace esta mañana en Sevilla?");
    let place = Some("Seville".to_owned());
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
        ("Pon un temporizador para media hora", 1800),
        ("Pon un temporizador para una hora.", 3600),
        ("Pon un temporizador de dos horas y cuarto", 8100),
        ("Pon un temporizador de dos horas y media", 9000),
        ("Pon un temporizador de una hora y diez", 4200),
        ("Pon un temporizador de treinta y un minutos", 1860),
        ("Pon un temporizador de dos minutos y treinta segundos", 150),
    ] {
        assert_eq!(one(said), timer(seconds), "{said}");
    }
    for said in [
        "Pon la alarma para las siete",
        "Pon una alarma a la una",
        "Despiértame a mediodía con la alarma",
        "Cambia la alarma a las siete.",
        "¿Puedes cambiar la alarma para las 7:30?",
        "Pon una alarma para el lunes",
        "Pon una alarma para el 3/10",
        "Pon una alarma el 3 de octubre a las 9.",
    ] {
        assert_eq!(one(said), Request::Talk(Talk::TimeOfDay), "{said}");
    }
    let label = Some("pasta".to_owned());
    let pasta = Request::SetTimer {
        seconds: Some(480),
        label,
    };
    assert_eq!(
        one("Pon un temporizador para la pasta de ocho minutos"),
        pasta
    );
}

#[test]
fn phrases_that_were_misread() {
    let fahrenheit = Request::Convert {
        value: 20.0,
        from: "degrees Celsius",
        to: "degrees Fahrenheit",
    };
    for said in [
        "¿Cuántos grados Fahrenheit son veinte grados Celsius?",
        "¿A cuántos grados Fahrenheit equivalen 20 grados Celsius?",
        "¿Cuánto son 20 grados en Fahrenheit?",
        "20 grados a Fahrenheit",
    ] {
        assert_eq!(one(said), fahrenheit, "{said}");
    }
    for said in [
        "No le he entendido.",
        "No entiendo.",
        "Perdón, no te entendí bien",
        "No he entendido nada.",
        "¿Qué ha dicho?",
    ] {
        assert_eq!(one(said), Request::Talk(Talk::Repeat), "{said}");
    }
    let mexico = Request::Time(Some("Mexico City".into()));
    assert_eq!(one("¿Qué hora es en la Ciudad de México?"), mexico);
    let usa = Request::Time(Some("United States".into()));
    assert_eq!(one("¿Qué hora es en los Estados Unidos?"), usa);
    let time = json!({"place": "Mexico City", "time": "9:00 AM", "date": "Sunday, March 1, 2026"});
    let answer = (WORDING.result)("get_time", &time, "¿Qué hora es en la Ciudad de México?");
    assert_eq!(
        answer.as_deref(),
        Some("En Ciudad de México son las 9 de la mañana.")
    );
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
        ("1.250.000 €", "1250000 euros"),
        ("3.700.000 habitantes", "3700000 habitantes"),
        ("20-30 €", "20 a 30 euros"),
        ("5-10 minutos", "5 a 10 minutos"),
        ("de 10 - 12 horas", "de 10 a 12 horas"),
        ("2024-2025", "2024 a 2025"),
        ("el 2026-03-01", "el 1 de marzo de 2026"),
        ("91 123 45 67", "9 1 1 2 3 4 5 6 7"),
        ("+34 600 123 456", "más 3 4 6 0 0 1 2 3 4 5 6"),
        ("600123456", "6 0 0 1 2 3 4 5 6"),
        (
            "Su pedido es 48219375 y llega hoy",
            "Su pedido es 4 8 2 1 9 3 7 5 y llega hoy",
        ),
    ] {
        speaks(text, spoken);
    }
}

/// "$1,250.50" was "un dólar con 250.50", and "$12,500" was "12 dólares con 500".
#[test]
fn prices_are_read_whole_however_they_are_written() {
    for (text, spoken) in [
        ("$1,250.50", "1250 dólares con 50"),
        ("$12,500", "12500 dólares"),
        ("$1,250,000", "1250000 dólares"),
        ("12,500 pesos", "12500 pesos"),
        ("1,250.50 pesos", "1250 pesos con 50"),
        ("5,000 km", "5000 kilómetros"),
        ("$3.50", "3 dólares con 50"),
        ("12,50 €", "12 euros con 50"),
        ("0,99 €", "99 céntimos"),
        ("1,609 km", "1,609 kilómetros"),
        ("$20 USD o US$ 20", "20 dólares o 20 dólares"),
        ("20 €/mes", "20 euros por mes"),
    ] {
        speaks(text, spoken);
    }
}

/// The signs were dropped: "5 3 8", "2 millones de".
#[test]
fn signs_are_said_whatever_is_around_them() {
    for (text, spoken) in [
        ("2 millones de €", "2 millones de euros"),
        ("$2 millones", "2 millones de dólares"),
        ("20 mil €", "20 mil euros"),
        ("1 millón de euros", "un millón de euros"),
        ("5 + 3 = 8", "5 más 3 es igual a 8"),
        ("5 + 3 + 2 = 10", "5 más 3 más 2 es igual a 10"),
        ("10 - 3 = 7", "10 menos 3 es igual a 7"),
        ("10 - 3 - 2", "10 menos 3 menos 2"),
        ("2 × 3 × 4", "2 por 3 por 4"),
        ("5*3", "5 por 3"),
        ("10 ÷ 2", "10 entre 2"),
        ("2x al día", "2 veces al día"),
        ("Pérez & Hijos", "Pérez y Hijos"),
        ("C++", "C más más"),
    ] {
        speaks(text, spoken);
    }
}

/// "03-10-2026" was a telephone number.
#[test]
fn dates_are_no_telephone_numbers() {
    for (text, spoken) in [
        ("el 03-10-2026", "el 3 de octubre de 2026"),
        ("15-10-2026", "15 de octubre de 2026"),
        ("15.10.2026", "15 de octubre de 2026"),
        ("el 3/10/26", "el 3 de octubre de 2026"),
        ("el 3/10", "el 3 de octubre"),
        ("el lunes 3/10", "el lunes 3 de octubre"),
        ("el jueves 1/2 a las 9", "el jueves 1 de febrero a las 9"),
        ("el día 3/10", "el día 3 de octubre"),
        ("Versión 1.2.3", "Versión 1.2.3"),
        ("192.168.1.1", "192 punto 168.1.1"),
    ] {
        speaks(text, spoken);
    }
}

/// "3:30 p. m." was "3 y media p, m", and strokes, colons and squares were dropped.
#[test]
fn everyday_texts_are_said_as_people_say_them() {
    for (text, spoken) in [
        ("a las 3:30 p. m.", "a las 3 y media de la tarde"),
        ("a las 9:00 a.m. en punto", "a las 9 de la mañana en punto"),
        ("a la 1:00 p. m.", "a la una de la tarde"),
        ("9am-5pm", "9 de la mañana a 5 de la tarde"),
        ("a las 10 pm", "a las 10 de la noche"),
        ("Ganaron 3:1.", "Ganaron 3 a 1"),
        ("lunes–viernes", "lunes a viernes"),
        ("10%-15%", "10 por ciento a 15 por ciento"),
        ("2 1/2 horas", "2 horas y media"),
        ("1/2 taza", "media taza"),
        ("1/2 litro", "medio litro"),
        ("3/4 de taza", "tres cuartos de taza"),
        ("8/10", "8 sobre 10"),
        ("24/7", "24 7"),
        ("1 ½ tazas", "una taza y media"),
        ("60 m² o 1 m²", "60 metros cuadrados o un metro cuadrado"),
        (
            "el 1.er piso, la 2.ª planta",
            "el primer piso, la 2ª planta",
        ),
        ("del 3-5 de mayo", "del 3 al 5 de mayo"),
        ("500 mg", "500 miligramos"),
        ("Su código es 482913.", "Su código es 4 8 2 9 1 3"),
        ("código postal 28013", "código postal 2 8 0 1 3"),
        ("www.ejemplo.es", "ejemplo punto es"),
        ("(55) 1234-5678", "5 5 1 2 3 4 5 6 7 8"),
        ("n.º 5", "número 5"),
        ("~5 km", "aproximadamente 5 kilómetros"),
    ] {
        speaks(text, spoken);
    }
}

/// Amounts were read digit by digit, and shares of something were dates.
#[test]
fn amounts_and_times_are_no_identifiers_and_no_dates() {
    for (text, spoken) in [
        (
            "Su cuenta tiene 1.250.000 pesos",
            "Su cuenta tiene 1250000 pesos",
        ),
        ("la población es 1,500,000", "la población es 1500000"),
        ("todo el día 24/7", "todo el día 24 7"),
        ("El 2/3 de los usuarios", "El dos tercios de los usuarios"),
        ("el 24/7/2026", "el 24 de julio de 2026"),
        ("9 a.m. - 2 personas", "9 de la mañana, 2 personas"),
        (
            "9 a. m. - 5 p. m. hoy",
            "9 de la mañana a 5 de la tarde hoy",
        ),
        ("22:00 - 6:00", "22 a 6"),
    ] {
        speaks(text, spoken);
    }
}

/// "20 €/h" was "20 euros/h", and only the hour and the kilo had a "por".
#[test]
fn a_stroke_before_a_short_unit_is_por() {
    for (text, spoken) in [
        ("20 €/h", "20 euros por hora"),
        ("$25/h", "25 dólares por hora"),
        ("5 €/kg", "5 euros por kilo"),
        ("12 €/m²", "12 euros por metro cuadrado"),
        ("0,10 €/min", "10 céntimos por minuto"),
        ("60 km/h", "60 kilómetros por hora"),
        ("5 m/s", "5 metros por segundo"),
        ("y/o", "y/o"),
        ("WLAN 802.11 b/g/n", "WLAN 802.11 b/g/n"),
        ("talla s/m/l", "talla s/m/l"),
    ] {
        speaks(text, spoken);
    }
}

/// "1½." was "1medio", "1½ meses" "un mese y medio", and "1/2 día" "media día".
#[test]
fn a_half_agrees_with_its_noun() {
    for (text, spoken) in [
        ("½ hora", "media hora"),
        ("en ½ hora", "en media hora"),
        ("½ kilo", "medio kilo"),
        ("½ h, ½ kg", "media hora, medio kilogramo"),
        ("1/2 día", "medio día"),
        ("1/2 es igual", "medio es igual"),
        ("1/2 menos", "medio menos"),
        ("1/2 más", "medio más"),
        ("1/2 después", "medio después"),
        ("1/2 las veces", "medio las veces"),
        ("½ pizza, ½ pollo", "media pizza, medio pollo"),
        ("½ m²", "medio metro cuadrado"),
        ("1½ m²", "un metro cuadrado y medio"),
        ("1½ h", "una hora y media"),
        ("1½ horas", "una hora y media"),
        ("2½ horas", "2 horas y media"),
        ("1½ meses", "un mes y medio"),
        ("1½ noches", "una noche y media"),
        ("Son 1½.", "Son 1 y medio"),
    ] {
        speaks(text, spoken);
    }
}

#[test]
fn abbreviations_with_spaces_are_spoken_as_words() {
    for (text, spoken) in [
        (
            "P. ej. mañana, p. ej. Madrid",
            "Por ejemplo mañana, por ejemplo Madrid",
        ),
        ("Vive en EE. UU.", "Vive en Estados Unidos"),
        ("EE. UU. y Canadá", "Estados Unidos y Canadá"),
        ("Es para iOS 17.4.", "Es para iOS 17.4"),
    ] {
        speaks(text, spoken);
    }
    for text in ["Vive en EE. UU.", "Lápices, etc."] {
        let last = PACK.spoken(text, 60).pop().unwrap();
        assert_eq!(last.mark, Some('.'), "{text}");
    }
    for text in ["Vive en EE.", "Hay, p.", "Hay, p. ej."] {
        assert_eq!(words::SENTENCES.ending(text), Ending::None, "{text}");
    }
    assert_eq!(words::SENTENCES.ending("en EE. UU."), Ending::Perhaps);
}

#[test]
fn digits_behind_a_word_for_a_code_are_read_one_by_one() {
    for (text, spoken) in [
        (
            "código de confirmación 482913",
            "código de confirmación 4 8 2 9 1 3",
        ),
        (
            "Su número de confirmación es el 482913",
            "Su número de confirmación es el 4 8 2 9 1 3",
        ),
        ("Localizador: 48291", "Localizador, 4 8 2 9 1"),
        ("el número de personas 1500", "el número de personas 1500"),
        (
            "Este es su código. 2026 fue bueno.",
            "Este es su código, 2026 fue bueno",
        ),
        ("código: 1000 puntos", "código, 1000 puntos"),
        ("El código (1500 letras)", "El código, 1500 letras"),
        ("Su código, 2024 incluido", "Su código, 2024 incluido"),
    ] {
        speaks(text, spoken);
    }
}

/// The dash was dropped, and a price before it began a range.
#[test]
fn a_spaced_dash_between_different_things_is_a_pause() {
    for (text, spoken) in [
        ("5 € – 3 artículos", "5 euros, 3 artículos"),
        ("$5 – 3 artículos", "5 dólares, 3 artículos"),
        ("$5 – 10 artículos", "5 dólares, 10 artículos"),
        ("$5 – 10 por persona", "5 a 10 dólares por persona"),
        ("$100 – 150 USD", "100 a 150 dólares"),
        ("$100 – 150 pesos", "100 a 150 pesos"),
        ("$100 – 150 dólares", "100 a 150 dólares"),
        ("5 km - 3 horas", "5 kilómetros, 3 horas"),
        ("Opción 1 – 20 €", "Opción 1, 20 euros"),
        ("Paso 1 – 20 minutos", "Paso 1, 20 minutos"),
        ("Vuelo IB 204 – 8:30", "Vuelo IB 204, 8 y media"),
        ("de 5 – 10 minutos", "de 5 a 10 minutos"),
        ("Madrid – soleado", "Madrid, soleado"),
    ] {
        speaks(text, spoken);
    }
}

#[test]
fn numbers_that_end_in_one_agree_with_their_noun() {
    for (text, spoken) in [
        ("1 hora y 1 minuto", "una hora y un minuto"),
        ("21 minutos", "veintiún minutos"),
        ("31 horas", "treinta y una horas"),
        ("21 horas", "veintiuna horas"),
        ("101 días", "ciento un días"),
        ("21 €", "veintiún euros"),
        ("21.500 €", "veintiún mil 500 euros"),
        ("11 minutos", "11 minutos"),
        ("1 km", "un kilómetro"),
        (
            "Es la 1 y media de la madrugada.",
            "Es la una y media de la madrugada",
        ),
        ("a la 1:00", "a la una"),
        ("a las 21:15", "a las veintiuna y cuarto"),
        ("Son las 3 y 21.", "Son las 3 y 21"),
        ("2,1 litros", "2,1 litros"),
        ("el 21 de marzo", "el 21 de marzo"),
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
    let asked = "¿Qué tiempo hará mañana en Londres?";
    let before = weather("London", "tomorrow");
    let again = |said: &str| (WORDING.again)(said, asked, &before);
    for (said, request) in [
        ("¿Y en Roma?", weather("Rome", "tomorrow")),
        ("¿Y París?", weather("Paris", "tomorrow")),
        ("Vale, ¿y hoy?", weather("London", "today")),
        ("¿Qué tal en Tokio?", weather("Tokyo", "tomorrow")),
        (
            "¿Y en Longmont, Colorado?",
            weather("Longmont, Colorado", "tomorrow"),
        ),
    ] {
        assert_eq!(again(said), Some(request), "{said}");
    }
    for said in [
        "¿Y en un minuto?",
        "¿Y cómo estás?",
        "¿Y pasado mañana?",
        "Roma.",
        "¿Y el temporizador?",
        "¿Y dónde está Portugal?",
    ] {
        assert_eq!(again(said), None, "{said}");
    }
    for (said, place, day) in [
        (
            "¿Cuál es el pronóstico para mañana en Roma?",
            "Rome",
            "tomorrow",
        ),
        ("¿Qué tiempo hace en Roma para hoy?", "Rome", "today"),
        ("El pronóstico para Roma, por favor.", "Rome", "now"),
    ] {
        assert_eq!(one(said), weather(place, day), "{said}");
    }
    let open = Request::Weather {
        place: None,
        day: "now",
    };
    for (said, place) in [
        ("En Roma, por favor.", "Rome"),
        ("Para Roma, por favor.", "Rome"),
        ("En Villanueva.", "Villanueva"),
    ] {
        let answer = (WORDING.again)(said, "", &open);
        assert_eq!(answer, Some(weather(place, "now")), "{said}");
    }
    let time = |place: &str| Request::Time(Some(place.to_owned()));
    let there = |asked: &str| (WORDING.again)("¿Y en Roma?", asked, &time("Tokyo"));
    assert_eq!(there("¿Qué hora es en Tokio?"), Some(time("Rome")));
    assert_eq!(there("¿Qué día es en Tokio?"), None, "a date");
    // It was the time "in Dónde Está, Portugal".
    let where_is = (WORDING.again)("¿Y dónde está Portugal?", asked, &time("Tokyo"));
    assert_eq!(where_is, None);
    let india = (WORDING.again)("¿Y la India?", asked, &time("Tokyo"));
    assert_eq!(india, Some(time("India")));
}

/// Abbreviations kept their dot, which was heard as the end of a sentence, and were not written out.
#[test]
fn abbreviations_are_written_out() {
    for (text, spoken) in [
        (
            "D. Juan, Dña. Ana y la Srta. Pérez",
            "don Juan, doña Ana y la señorita Pérez",
        ),
        ("la Lic. Pérez", "la licenciada Pérez"),
        (
            "Av. Libertador 123, C/ Mayor, 5",
            "Avenida Libertador 123, Calle Mayor, 5",
        ),
        ("la Avda. de América", "la Avenida de América"),
        ("al tel. 600 123 456", "al teléfono 6 0 0 1 2 3 4 5 6"),
        (
            "ext. 4, art. 3, cap. 2",
            "extensión 4, artículo 3, capítulo 2",
        ),
        ("No. 5 y n.° 5", "número 5 y número 5"),
        ("Tarda 15 min. a pie", "Tarda 15 minutos a pie"),
        ("de 10 a 12 hrs, 3 seg", "de 10 a 12 horas, 3 segundos"),
        ("máx. 5 kg", "máximo 5 kilogramos"),
        (
            "lun.–vie. 9–18 h, sáb. 10–14 h",
            "lunes a viernes 9 a 18 horas, sábado 10 a 14 horas",
        ),
        ("del mar, 5 km", "del mar, 5 kilómetros"),
        ("en nov. de 2025", "en noviembre de 2025"),
        ("15 de ene. de 2026", "15 de enero de 2026"),
        ("A las 14.30 h empieza", "A las 14 y media empieza"),
        ("2do lugar, 1ra vez", "2º lugar, 1ª vez"),
        ("7 l/100 km", "7 litros por 100 kilómetros"),
        ("5 µg, 65 W", "5 microgramos, 65 vatios"),
        ("1 taza y 1 botella", "una taza y una botella"),
    ] {
        speaks(text, spoken);
    }
}

/// "Felipe VI" was spelled, and "La II Guerra" "la dos".
#[test]
fn roman_numerals_are_numbers() {
    for (text, spoken) in [
        ("Felipe VI", "Felipe 6º"),
        ("Luis XIV", "Luis 14"),
        ("siglo XXI", "siglo 21"),
        ("Carlos V", "Carlos 5º"),
        ("La II Guerra Mundial", "La 2ª Guerra Mundial"),
        ("Capítulo IV", "Capítulo 4"),
        ("vitamina X", "vitamina X"),
    ] {
        speaks(text, spoken);
    }
}

/// Powers, small digits, arrows and "<" were dropped, and a way through menus was "mayor que".
#[test]
fn signs_of_today_are_said_as_people_say_them() {
    for (text, spoken) in [
        ("10^6 y x²", "10 elevado a 6 y x al cuadrado"),
        ("10⁻³", "10 elevado a menos 3"),
        ("CO₂", "C O 2"),
        ("A → B", "A, B"),
        ("Ajustes > Red > Wi-Fi", "Ajustes, Red, Wi-Fi"),
        ("5 > 3", "5 mayor que 3"),
        ("<5 min", "menos de 5 minutos"),
        (
            "2025-11-29T14:30:00Z",
            "29 de noviembre de 2025 a las 14 y media UTC",
        ),
        (
            "Su código de reserva es X7K9P2.",
            "Su código de reserva es X 7 K 9 P 2",
        ),
        ("pedido #A-10293", "pedido #A, 1 0 2 9 3"),
    ] {
        speaks(text, spoken);
    }
}

/// "Talla XL" was "Talla 40", and "vitamina D. Luego" "vitamina don Luego".
#[test]
fn plain_words_are_no_numerals_or_titles() {
    for (text, spoken) in [
        ("Talla XL", "Talla XL"),
        ("La VI edición", "La VI edición"),
        ("Pedro V. García", "Pedro V, García"),
        ("vitamina D. Luego come", "vitamina D, Luego come"),
        ("Isabel II", "Isabel 2ª"),
        ("el 15 ene. de 2026", "el 15 enero de 2026"),
    ] {
        speaks(text, spoken);
    }
}
