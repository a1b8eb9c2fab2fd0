//! Amounts of money as people write and say them.

use super::numbers::grouped;
use regex::{Captures, Regex};
use std::sync::LazyLock;

/// A currency in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Currency {
    /// ISO 4217.
    code: &'static str,
    /// Name, singular and plural.
    pub(crate) whole: (&'static str, &'static str),
    /// Name of one hundredth, singular and plural; `None` if there is none in everyday use.
    pub(crate) hundredth: Option<(&'static str, &'static str)>,
}

const CENT: Option<(&str, &str)> = Some(("cent", "cents"));
const PENNY: Option<(&str, &str)> = Some(("penny", "pence"));

/// Currencies whose codes are not also common words.
const CURRENCIES: &[Currency] = &[
    currency("USD", ("US dollar", "US dollars"), CENT),
    currency("EUR", ("euro", "euros"), CENT),
    currency("GBP", ("British pound", "British pounds"), PENNY),
    currency("JPY", ("yen", "yen"), None),
    currency(
        "CHF",
        ("Swiss franc", "Swiss francs"),
        Some(("centime", "centimes")),
    ),
    currency("CAD", ("Canadian dollar", "Canadian dollars"), CENT),
    currency("AUD", ("Australian dollar", "Australian dollars"), CENT),
    currency("NZD", ("New Zealand dollar", "New Zealand dollars"), CENT),
    currency("HKD", ("Hong Kong dollar", "Hong Kong dollars"), CENT),
    currency("SGD", ("Singapore dollar", "Singapore dollars"), CENT),
    currency("CNY", ("yuan", "yuan"), None),
    currency(
        "INR",
        ("Indian rupee", "Indian rupees"),
        Some(("paisa", "paise")),
    ),
    currency("KRW", ("Korean won", "Korean won"), None),
    currency("SEK", ("Swedish krona", "Swedish kronor"), None),
    currency("NOK", ("Norwegian krone", "Norwegian kroner"), None),
    currency("DKK", ("Danish krone", "Danish kroner"), None),
    currency("PLN", ("Polish zloty", "Polish zlotys"), None),
    currency("CZK", ("Czech koruna", "Czech korunas"), None),
    currency("HUF", ("Hungarian forint", "Hungarian forints"), None),
    currency(
        "MXN",
        ("Mexican peso", "Mexican pesos"),
        Some(("centavo", "centavos")),
    ),
    currency(
        "BRL",
        ("Brazilian real", "Brazilian reais"),
        Some(("centavo", "centavos")),
    ),
    currency("ZAR", ("South African rand", "South African rand"), CENT),
    currency("ILS", ("Israeli shekel", "Israeli shekels"), None),
    currency("THB", ("Thai baht", "Thai baht"), None),
];

/// Symbols written before or after a number, and their currencies.
const SYMBOLS: &[(&str, Currency)] = &[
    ("US$", currency("USD", ("US dollar", "US dollars"), CENT)),
    (
        "CA$",
        currency("CAD", ("Canadian dollar", "Canadian dollars"), CENT),
    ),
    (
        "A$",
        currency("AUD", ("Australian dollar", "Australian dollars"), CENT),
    ),
    (
        "C$",
        currency("CAD", ("Canadian dollar", "Canadian dollars"), CENT),
    ),
    (
        "HK$",
        currency("HKD", ("Hong Kong dollar", "Hong Kong dollars"), CENT),
    ),
    (
        "NZ$",
        currency("NZD", ("New Zealand dollar", "New Zealand dollars"), CENT),
    ),
    (
        "S$",
        currency("SGD", ("Singapore dollar", "Singapore dollars"), CENT),
    ),
    (
        "R$",
        currency(
            "BRL",
            ("Brazilian real", "Brazilian reais"),
            Some(("centavo", "centavos")),
        ),
    ),
    ("$", currency("", ("dollar", "dollars"), CENT)),
    ("€", currency("EUR", ("euro", "euros"), CENT)),
    ("£", currency("", ("pound", "pounds"), PENNY)),
    ("¥", currency("JPY", ("yen", "yen"), None)),
    ("₩", currency("KRW", ("Korean won", "Korean won"), None)),
    (
        "₹",
        currency("", ("rupee", "rupees"), Some(("paisa", "paise"))),
    ),
];

const fn currency(
    code: &'static str,
    whole: (&'static str, &'static str),
    hundredth: Option<(&'static str, &'static str)>,
) -> Currency {
    Currency {
        code,
        whole,
        hundredth,
    }
}

/// Finds a currency by ISO 4217 code, symbol or name: "USD", "$", "US dollars".
pub(crate) fn named(written: &str) -> Option<Currency> {
    let by_code = CURRENCIES.iter().find(|c| c.code == written);
    let by_symbol = || SYMBOLS.iter().find(|(symbol, _)| *symbol == written);
    let all = || CURRENCIES.iter().chain(SYMBOLS.iter().map(|(_, c)| c));
    let by_name = || {
        let is_name = |name: &str| name.eq_ignore_ascii_case(written);
        all().find(|c| is_name(c.whole.0) || is_name(c.whole.1))
    };
    let found = by_code.or_else(|| by_symbol().map(|(_, c)| c));
    found.or_else(by_name).copied()
}

/// The codes, as alternatives of a regular expression.
pub(crate) fn codes() -> String {
    let codes: Vec<&str> = CURRENCIES.iter().map(|c| c.code).collect();
    codes.join("|")
}

/// The symbols, likewise, longer ones first.
pub(crate) fn symbols() -> String {
    let symbols: Vec<String> = SYMBOLS.iter().map(|(s, _)| regex::escape(s)).collect();
    symbols.join("|")
}

/// The names, singular and plural, likewise, longer ones first. "Pound" is left out, since it may be a
/// weight.
pub(crate) fn names() -> String {
    let all = CURRENCIES.iter().chain(SYMBOLS.iter().map(|(_, c)| c));
    let all = all.filter(|c| c.whole.0 != "pound");
    let mut names: Vec<&str> = all.flat_map(|c| [c.whole.1, c.whole.0]).collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names.dedup();
    names.join("|")
}

/// An amount written out: "12,500 US dollars", "1,840.25 euros".
pub(crate) fn written(amount: &str, currency: Currency) -> String {
    let (minus, amount) = match amount.strip_prefix('-') {
        Some(amount) => ("-", amount),
        None => ("", amount),
    };
    let amount = amount.replace(',', "");
    let (whole, decimals) = amount.split_once('.').unwrap_or((&amount, ""));
    let decimals = match decimals.trim_end_matches('0') {
        "" => String::new(),
        // "12.5 dollars" is twelve dollars and fifty cents.
        short if short.len() == 1 && currency.hundredth.is_some() => format!(".{short}0"),
        more => format!(".{more}"),
    };
    let name = match (whole, decimals.as_str()) {
        ("1", "") => currency.whole.0,
        _ => currency.whole.1,
    };
    format!("{minus}{}{decimals} {name}", grouped(whole, ','))
}

/// A text with its amounts written out: "12500.0 USD" and "USD 12500" become "12,500 US dollars". The rest
/// stays as it is.
pub(crate) fn spelled(text: &str) -> String {
    static AMOUNTS: LazyLock<Option<[Regex; 2]>> = LazyLock::new(|| {
        let number = r"(-?\d+(?:,\d{3})*(?:\.\d+)?)";
        let behind = Regex::new(&format!(r"{number} ?({})\b", codes())).ok()?;
        let before = Regex::new(&format!(r"\b({}) {number}\b", codes())).ok()?;
        Some([behind, before])
    });
    let Some([behind, before]) = AMOUNTS.as_ref() else {
        return text.to_owned();
    };
    let say = |c: &Captures<'_>, amount: usize, code: usize| match named(&c[code]) {
        Some(currency) => written(&c[amount], currency),
        None => c[0].to_owned(),
    };
    let text = behind.replace_all(text, |c: &Captures<'_>| say(c, 1, 2));
    before
        .replace_all(&text, |c: &Captures<'_>| say(c, 2, 1))
        .into_owned()
}

/// A text with the signs of its amounts as words after them: "$50" becomes "50 dollars".
pub(crate) fn without_signs(text: &str) -> String {
    static SIGN: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"([$€£]) ?(\d+(?:,\d{3})*(?:\.\d+)?)").ok());
    let Some(sign) = SIGN.as_ref() else {
        return text.to_owned();
    };
    let say = |c: &Captures<'_>| {
        let unit = match &c[1] {
            "$" => "dollars",
            "€" => "euros",
            _ => "pounds",
        };
        format!("{} {unit}", &c[2])
    };
    sign.replace_all(text, say).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_people_write_them() {
        for (text, expected) in [
            (
                "You have 12500.0 USD in savings",
                "You have 12,500 US dollars in savings",
            ),
            ("1840.25 USD", "1,840.25 US dollars"),
            ("12.5 EUR.", "12.50 euros."),
            ("1 USD", "1 US dollar"),
            ("1.0 GBP", "1 British pound"),
            ("-3 EUR", "-3 euros"),
            ("USD 1234567", "1,234,567 US dollars"),
            ("1,200 JPY, about 7.5 EUR", "1,200 yen, about 7.50 euros"),
            ("0.333 CHF", "0.333 Swiss francs"),
            ("flight USD 12", "flight 12 US dollars"),
            ("gate 12 USDA", "gate 12 USDA"),
            ("version 2.0", "version 2.0"),
        ] {
            assert_eq!(spelled(text), expected, "{text}");
        }
    }

    #[test]
    fn a_currency_has_a_code_a_symbol_and_names() {
        for written in ["USD", "US$", "US dollars", "us dollar"] {
            assert_eq!(named(written).unwrap().whole.1, "US dollars", "{written}");
        }
        assert_eq!(named("$").unwrap().whole.1, "dollars");
        assert_eq!(named("usd"), None, "a code is written in capitals");
        assert!(Regex::new(&format!("{}|{}|{}", codes(), symbols(), names())).is_ok());
    }
}
