//! Ends of sentences behind abbreviations, numbers and letters.

use super::{check, check_in};

/// "ext. 4", "2 tsp. salt" and "Apt. 4B" were two clauses each, with the end of a sentence between them.
#[test]
fn the_dot_of_an_abbreviation_before_a_number_or_a_small_letter_ends_no_sentence() {
    for text in [
        "Call us, ext. 4.",
        "Add 2 tsp. salt.",
        "It weighs 5 lbs. and 3 oz. or so.",
        "He lives in Apt. 4B.",
        "It is on p. 42 and pp. 50-52.",
        "Come on Mon. at 5.",
        "She has a Ph.D. in physics.",
    ] {
        check(text, &[text]);
    }
    for text in [
        "Siehe § 5 Abs. 2 BGB.",
        "Tel. 0800 1234567 hilft.",
        "Das dauert 2 Std. 30 Min. zu Fuß.",
        "Das sind 15 Min. Fußweg.",
        "Am 3. Dez. um 9 Uhr.",
        "Am 24.12. ist Heiligabend.",
        "Vom 1.–3. Mai ist zu.",
        "Ludwig XIV. war König.",
    ] {
        check_in("de", text, &[text]);
    }
    for text in [
        "Tarda 15 min. a pie.",
        "Llame al tel. 600 123 456 hoy.",
        "Vive en la Avda. de América.",
        "Habla la Lic. Pérez.",
        "Nació en nov. de 2025.",
    ] {
        check_in("es", text, &[text]);
    }
}

/// "7 p.m." was the end of a sentence, and "EST" the next one.
#[test]
fn a_time_zone_belongs_to_its_time() {
    check(
        "It is at 7 p.m. EST on Monday.",
        &["It is at 7 p.m. EST on Monday."],
    );
    check("It is 4 p.m. I go.", &["It is 4 p.m.", "I go."]);
}

/// "Plan B. It is cheaper." was one clause, as a name goes on behind its initial: the first words waited for the last.
#[test]
fn a_sentence_that_ends_with_a_letter_or_an_ordinal_is_not_held_back() {
    check(
        "Choose plan B. It is cheaper. Ask J. Smith.",
        &["Choose plan B.", "It is cheaper.", "Ask J. Smith."],
    );
    check(
        "I live in the U.S. It is big. Turn at Main St. Then stop in St. Louis.",
        &[
            "I live in the U.S.",
            "It is big.",
            "Turn at Main St.",
            "Then stop in St. Louis.",
        ],
    );
    check_in(
        "de",
        "Ihr Termin ist um 10. Möchten Sie ihn? Nimm Vitamin C. Das geht z. B. Die da.",
        &[
            "Ihr Termin ist um 10.",
            "Möchten Sie ihn?",
            "Nimm Vitamin C.",
            "Das geht z. B. Die da.",
        ],
    );
    check_in(
        "es",
        "Es el plan B. El otro no.",
        &["Es el plan B.", "El otro no."],
    );
}

/// "sat", "sun" and "no" are words, too.
#[test]
fn a_word_that_looks_like_an_abbreviation_ends_its_sentence() {
    check(
        "He sat. Then he saw the sun. It was no. I mean yes.",
        &[
            "He sat.",
            "Then he saw the sun.",
            "It was no.",
            "I mean yes.",
        ],
    );
    check("No. Two of them.", &["No.", "Two of them."]);
    check_in(
        "de",
        "Das ist meine Art. Danach ist es so. Das geht.",
        &["Das ist meine Art.", "Danach ist es so.", "Das geht."],
    );
    check_in("es", "No. Son tres.", &["No.", "Son tres."]);
}

/// "1) Milk" and "2) Eggs" on lines of their own were one clause.
#[test]
fn items_with_a_bracket_behind_their_number_are_apart() {
    check("1) Milk\n2) Eggs", &["1) Milk", "2) Eggs"]);
}

/// The address was read out.
#[test]
fn the_target_of_a_link_is_not_spoken() {
    check(
        "See [the page](https://example.com/a_b?c=1).",
        &["See [the page]."],
    );
    check(
        "Ask [us](mailto:a@b.com) or [1](see below).",
        &["Ask [us] or [1](see below)."],
    );
    let long = format!("[it](https://{}", "x".repeat(5000));
    let mut cutter = super::Clauses::default();
    assert!(!cutter.push(&long).is_empty(), "held back without an end");
}
