//! Spanish numbers that end in one: "una hora", "veintiún minutos", "la una". espeak-ng would say "uno".

use regex::Captures;

/// Nouns with their plural.
const MASCULINE: &[(&str, &str)] = &[
    ("minuto", "minutos"),
    ("segundo", "segundos"),
    ("día", "días"),
    ("mes", "meses"),
    ("año", "años"),
    ("euro", "euros"),
    ("dólar", "dólares"),
    ("peso", "pesos"),
    ("céntimo", "céntimos"),
    ("millón", "millones"),
    ("grado", "grados"),
    ("metro cuadrado", "metros cuadrados"),
    ("metro", "metros"),
    ("kilómetro", "kilómetros"),
    ("centímetro", "centímetros"),
    ("milímetro", "milímetros"),
    ("litro", "litros"),
    ("mililitro", "mililitros"),
    ("kilo", "kilos"),
    ("kilogramo", "kilogramos"),
    ("gramo", "gramos"),
    ("kilovatio", "kilovatios"),
    ("galón", "galones"),
    ("pie", "pies"),
    ("punto", "puntos"),
    ("paso", "pasos"),
    ("temporizador", "temporizadores"),
    ("mensaje", "mensajes"),
    ("cliente", "clientes"),
    ("pedido", "pedidos"),
    ("billete", "billetes"),
    ("resultado", "resultados"),
    ("habitante", "habitantes"),
    ("vaso", "vasos"),
    ("huevo", "huevos"),
    ("diente", "dientes"),
    ("paquete", "paquetes"),
    ("producto", "productos"),
    ("artículo", "artículos"),
    ("vuelo", "vuelos"),
    ("adulto", "adultos"),
    ("niño", "niños"),
];
const FEMININE: &[(&str, &str)] = &[
    ("hora", "horas"),
    ("semana", "semanas"),
    ("noche", "noches"),
    ("libra", "libras"),
    ("onza", "onzas"),
    ("milla", "millas"),
    ("yarda", "yardas"),
    ("pulgada", "pulgadas"),
    ("tonelada", "toneladas"),
    ("persona", "personas"),
    ("vez", "veces"),
    ("página", "páginas"),
    ("llamada", "llamadas"),
    ("reserva", "reservas"),
    ("habitación", "habitaciones"),
    ("unidad", "unidades"),
    ("nota", "notas"),
    ("alarma", "alarmas"),
    ("taza", "tazas"),
    ("cucharadita", "cucharaditas"),
    ("cucharada", "cucharadas"),
    ("pizca", "pizcas"),
    ("cebolla", "cebollas"),
    ("botella", "botellas"),
    ("lata", "latas"),
    ("caja", "cajas"),
    ("mesa", "mesas"),
    ("maleta", "maletas"),
    ("entrada", "entradas"),
    ("parada", "paradas"),
    ("opción", "opciones"),
    ("cita", "citas"),
];

/// A number that ends in one before one of the nouns: what is before it, the number, and the noun.
pub(super) fn pattern() -> String {
    let nouns = MASCULINE.iter().chain(FEMININE);
    let nouns: Vec<String> = nouns.map(|(one, more)| format!("{more}|{one}")).collect();
    format!(r"(^|[^\d.,:/–-])(\d*1) ({})\b", nouns.join("|"))
}

/// A noun in the singular, and whether it is feminine. Other nouns than these are so if they end in "a".
pub(super) fn singular(noun: &str) -> (&str, bool) {
    let is_noun = |(one, more): &&(&str, &str)| *one == noun || *more == noun;
    let is_feminine = FEMININE.iter().any(|pair| is_noun(&pair));
    match MASCULINE.iter().chain(FEMININE).find(is_noun) {
        Some((one, _)) => (*one, is_feminine),
        None => {
            let one = noun.trim_end_matches('s');
            (one, one.ends_with('a'))
        }
    }
}

/// Short nouns that are halved.
const SHORT: [&str; 12] = [
    "caja", "copa", "hoja", "lata", "pavo", "pera", "piña", "rato", "saco", "taza", "tiro", "vaso",
];
/// Longer words that end like nouns.
const NO_NOUNS: [&str; 31] = [
    "además",
    "ahora",
    "ambas",
    "ambos",
    "bajo",
    "cerca",
    "contra",
    "cuando",
    "cuanto",
    "dentro",
    "ellas",
    "ellos",
    "entonces",
    "equivale",
    "estas",
    "estos",
    "fuera",
    "hasta",
    "igualmente",
    "luego",
    "menos",
    "mucho",
    "nosotros",
    "nuestra",
    "nuestro",
    "otras",
    "otros",
    "tanto",
    "todas",
    "todos",
    "mientras",
];

/// A noun after a half, as [`singular`] gives it; `None` if the word may be none.
pub(super) fn halved(noun: &str) -> Option<(&str, bool)> {
    let is_known = MASCULINE
        .iter()
        .chain(FEMININE)
        .any(|(one, more)| *one == noun || *more == noun);
    let (one, is_feminine) = singular(noun);
    let is_long = noun.chars().count() > 4 && !NO_NOUNS.contains(&noun);
    let is_likely = one.ends_with(['a', 'o']) && (is_long || SHORT.contains(&one));
    (is_known || is_likely).then_some((one, is_feminine))
}

/// Text that matches [`pattern`], with its number in words.
pub(super) fn one(found: &Captures<'_>) -> String {
    let (one, is_feminine) = singular(&found[3]);
    let noun = match &found[2] {
        "1" => one,
        _ => &found[3],
    };
    format!(
        "{}{} {noun}",
        &found[1],
        ending_in_one(&found[2], is_feminine)
    )
}

/// Thousands that end in one: "21000".
pub(super) const THOUSANDS: &str = r"\b(\d{1,2}1)(\d{3})\b";

/// Text that matches [`THOUSANDS`]: "veintiún mil".
pub(super) fn thousands(found: &Captures<'_>) -> String {
    let thousands = ending_in_one(&found[1], false);
    match found[2].trim_start_matches('0') {
        _ if found[1].ends_with("11") => found[0].to_owned(),
        "" => format!("{thousands} mil"),
        rest => format!("{thousands} mil {rest}"),
    }
}

/// The hours of one and of twenty-one, and the mark after them.
pub(super) const HOURS: &str = r"\b(la 1|las 21)( |$|[.,;?!](?: |$))";

/// Text that matches [`HOURS`].
pub(super) fn hours(found: &Captures<'_>) -> String {
    let hour = match &found[1] {
        "la 1" => "la una",
        _ => "las veintiuna",
    };
    format!("{hour}{}", &found[2])
}

/// "veintiún", "treinta y una", "1000 ciento un". Eleven stays.
fn ending_in_one(number: &str, is_feminine: bool) -> String {
    const TENS: [&str; 10] = [
        "",
        "",
        "",
        "treinta",
        "cuarenta",
        "cincuenta",
        "sesenta",
        "setenta",
        "ochenta",
        "noventa",
    ];
    let Ok(value) = number.parse::<u64>() else {
        return number.to_owned();
    };
    let one = if is_feminine { "una" } else { "un" };
    let last = match value % 100 / 10 {
        0 => one.to_owned(),
        1 => return number.to_owned(),
        2 if is_feminine => "veintiuna".to_owned(),
        2 => "veintiún".to_owned(),
        tens => match TENS.get(usize::try_from(tens).unwrap_or_default()) {
            Some(tens) => format!("{tens} y {one}"),
            None => return number.to_owned(),
        },
    };
    let (thousands, hundreds) = (value / 1000 * 1000, value % 1000 / 100 * 100);
    let mut words = Vec::new();
    words.extend((thousands > 0).then(|| thousands.to_string()));
    match hundreds {
        0 => {}
        100 => words.push("ciento".to_owned()),
        hundreds => words.push(hundreds.to_string()),
    }
    words.push(last);
    words.join(" ")
}
