//! Spanish numbers in words.

use crate::language::digits;

const NUMBERS: [(&str, u64); 45] = [
    ("cero", 0),
    ("uno", 1),
    ("dos", 2),
    ("tres", 3),
    ("cuatro", 4),
    ("cinco", 5),
    ("seis", 6),
    ("siete", 7),
    ("ocho", 8),
    ("nueve", 9),
    ("diez", 10),
    ("once", 11),
    ("doce", 12),
    ("trece", 13),
    ("catorce", 14),
    ("quince", 15),
    ("dieciséis", 16),
    ("dieciseis", 16),
    ("diecisiete", 17),
    ("dieciocho", 18),
    ("diecinueve", 19),
    ("veinte", 20),
    ("veintiuno", 21),
    ("veintiún", 21),
    ("veintiuna", 21),
    ("veintidós", 22),
    ("veintidos", 22),
    ("veintitrés", 23),
    ("veintitres", 23),
    ("veinticuatro", 24),
    ("veinticinco", 25),
    ("veintiséis", 26),
    ("veintiseis", 26),
    ("veintisiete", 27),
    ("veintiocho", 28),
    ("veintinueve", 29),
    ("treinta", 30),
    ("cuarenta", 40),
    ("cincuenta", 50),
    ("sesenta", 60),
    ("setenta", 70),
    ("ochenta", 80),
    ("noventa", 90),
    ("cien", 100),
    ("ciento", 100),
];
const HUNDREDS: [(&str, u64); 9] = [
    ("doscient", 200),
    ("trescient", 300),
    ("cuatrocient", 400),
    ("quinient", 500),
    ("seiscient", 600),
    ("setecient", 700),
    ("ochocient", 800),
    ("novecient", 900),
    ("mil", 1000),
];

/// Lower case, without marks, numbers as digits with a decimal point. "un" and "una" stay: they are articles.
pub(super) fn normalise(text: &str) -> String {
    let text = digits::without_marks(&text.to_lowercase());
    let mut out: Vec<String> = Vec::new();
    let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
    let mut at = 0;
    while at < words.len() {
        match number(&words[at..]) {
            Some((value, length)) => {
                out.push(value.to_string());
                at += length;
            }
            None => {
                out.push(words[at].to_owned());
                at += 1;
            }
        }
    }
    digits::with_decimals(&out, &["coma", "punto"])
}

fn value(word: &str) -> Option<u64> {
    let small = NUMBERS.iter().find(|(name, _)| *name == word);
    let hundreds = || {
        let stem = word
            .strip_suffix("os")
            .or_else(|| word.strip_suffix("as"))?;
        HUNDREDS.iter().find(|(name, _)| *name == stem)
    };
    let found = small
        .or_else(hundreds)
        .or_else(|| HUNDREDS.last().filter(|(name, _)| *name == word));
    found.map(|(_, value)| *value)
}

/// The number with which `words` begin, and how many of them name it: "mil doscientos treinta y cuatro".
fn number(words: &[&str]) -> Option<(u64, usize)> {
    let (mut total, mut group, mut length) = (0, value(words.first()?)?, 1);
    if group == 1000 {
        (total, group) = (1000, 0);
    }
    loop {
        let next = words.get(length).copied().and_then(value);
        match (words.get(length).copied(), next) {
            // "treinta y cinco", but not "5 y 10".
            (Some("y"), _) if (30..100).contains(&(group % 100)) && group % 10 == 0 => {
                let one = |word: &str| matches!(word, "un" | "una").then_some(1);
                let unit = words.get(length + 1).copied();
                let unit = unit.and_then(|word| value(word).or_else(|| one(word)));
                match unit.filter(|unit| (1..10).contains(unit)) {
                    Some(unit) => {
                        group += unit;
                        length += 2;
                    }
                    None => break,
                }
            }
            // "ciento un euros"
            (Some("un" | "una"), _)
                if group >= 100 && group % 100 == 0 && words[length - 1] != "cien" =>
            {
                group += 1;
                length += 1;
            }
            (_, Some(1000)) if total == 0 && group > 1 => {
                (total, group) = (group * 1000, 0);
                length += 1;
            }
            (_, Some(rest)) if rest < 1000 && rest > 0 && fits(group, rest, total) => {
                group += rest;
                length += 1;
            }
            _ => break,
        }
    }
    Some((total + group, length))
}

/// Whether `rest` goes on with a number whose last group is `group`.
fn fits(group: u64, rest: u64, total: u64) -> bool {
    match group {
        0 => total > 0,
        group if group % 100 == 0 => rest < 100,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_words_become_digits() {
        for (text, expected) in [
            (
                "Pon un temporizador de diez minutos.",
                "pon un temporizador de 10 minutos",
            ),
            ("treinta y cinco segundos", "35 segundos"),
            ("mil doscientos treinta y cuatro", "1234"),
            ("dos mil quinientas", "2500"),
            ("ciento veinte, veintidós", "120 22"),
            ("cinco y diez", "5 y 10"),
            ("tres coma cinco por dos", "3.5 por 2"),
            ("1.200 metros y 2,5 litros", "1200 metros y 2.5 litros"),
            ("una hora y media", "una hora y media"),
            ("treinta y un minutos", "31 minutos"),
            ("cuarenta y una, veintiuna", "41 21"),
            ("quiero uno", "quiero 1"),
            ("ciento un euros", "101 euros"),
            ("doscientas una páginas", "201 páginas"),
            ("mil quinientos un días", "1501 días"),
            ("cien una vez", "100 una vez"),
        ] {
            assert_eq!(normalise(text), expected, "{text}");
        }
    }
}
