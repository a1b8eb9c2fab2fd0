//! Written English as it is spoken.

use super::*;

#[test]
fn written_forms_are_said_as_people_say_them() {
    let table = include_str!("../spoken.tsv").lines();
    let cases = table.filter(|line| !line.is_empty() && !line.starts_with("# "));
    let mut wrong = Vec::new();
    let mut count = 0;
    for case in cases {
        let (written, said) = case.split_once('\t').unwrap();
        count += 1;
        let spoken = RULES.applied(written);
        if spoken != said {
            wrong.push(format!("{written:?}: {spoken:?}, not {said:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 150, "{count} cases");
}

#[test]
fn phrases_end_at_marks() {
    let phrases = phrases("Well (really), 1,234 is big. OK?", 12);
    let pairs: Vec<_> = phrases.iter().map(|p| (p.words.as_str(), p.mark)).collect();
    assert_eq!(
        pairs,
        [
            ("Well", Some(',')),
            ("really", Some(',')),
            ("1234 is big", Some('.')),
            ("OK", Some('?'))
        ]
    );
}

#[test]
fn long_phrases_are_cut() {
    let phrases = phrases("one two three four five.", 2);
    let words: Vec<_> = phrases.iter().map(|p| p.words.as_str()).collect();
    assert_eq!(words, ["one two", "three four", "five"]);
    assert_eq!(phrases[1].mark, None);
    assert_eq!(phrases[2].mark, Some('.'));
}

#[test]
fn text_without_words_gives_no_phrase() {
    assert!(phrases("... ?! ()", 12).is_empty());
    assert!(phrases("", 12).is_empty());
}

#[track_caller]
fn says(table: &[(&str, &str)]) {
    for (written, said) in table {
        assert_eq!(RULES.applied(written), *said, "{written}");
    }
}

/// "$1.2M" was "1 dollar and 20 centsM", and "$20k" was "20 dollarsk".
#[test]
fn a_letter_after_an_amount_is_its_scale() {
    says(&[
        ("$1.2M", "1 point 2 million dollars"),
        ("$20k", "20 thousand dollars"),
        ("$20K/year", "20 thousand dollars per year"),
        ("€2.5bn", "2 point 5 billion euros"),
        ("£3m, or $5B", "3 million pounds, or 5 billion dollars"),
        ("$10k-$20k", "10 thousand to 20 thousand dollars"),
        ("5M USD", "5 million US dollars"),
        ("$2.5 M", "2 point 5 million dollars"),
        ("1.4B people", "1 point 4 billion people"),
        ("1.2M users", "1 point 2 million users"),
        ("50¢ or $.99", "50 cents or 99 cents"),
        ("$5/mo", "5 dollars per month"),
    ]);
}

/// Amounts from a billion on were read digit by digit once their commas were gone.
#[test]
fn large_numbers_with_commas_stay_numbers() {
    says(&[
        ("8,100,000,000 people", "8100000000 people"),
        ("$1,500,000,000", "1500000000 dollars"),
        ("order 4837261590.", "order 4 8 3, 7 2 6, 1 5 9 0."),
        ("0.12345678901", "0 point 1 2 3 4 5 6 7 8 9 0 1"),
    ]);
}

/// The second sign was lost, as the digit before it belonged to the first.
#[test]
fn every_sign_of_a_sum_is_said() {
    says(&[
        ("5 + 3 + 2 = 10", "5 plus 3 plus 2 equals 10"),
        ("2 × 3 × 4", "2 times 3 times 4"),
        ("2*3*4=24", "2 times 3 times 4 equals 24"),
        ("10 - 3 - 2", "10 minus 3 minus 2"),
        ("10 – 3 = 7", "10 minus 3 equals 7"),
        ("10-3=7", "10 minus 3 equals 7"),
        ("3 - 5 = -2", "3 minus 5 equals minus 2"),
        ("x² + y²", "x squared plus y squared"),
        ("8 ÷ 2 ÷ 2", "8 divided by 2 divided by 2"),
        ("(2 + 3) * 4", "(2 plus 3) times 4"),
        ("C++ and 18+", "C plus plus and 18 plus"),
    ]);
}

/// A hyphen or dash between times, days or measures was dropped: "9 AM 5 PM".
#[test]
fn ranges_of_times_days_and_measures_have_a_to() {
    says(&[
        ("9am-5pm", "9 AM to 5 PM"),
        ("9:00 AM – 5:00 PM", "9 AM to 5 PM"),
        ("9 a.m.–4 p.m. daily", "9 AM to 4 PM daily"),
        ("9:00-17:30", "9 o'clock to 17 30"),
        ("June 10-12", "June 10th to 12th"),
        ("June 10–12, 2026", "June 10th to 12th, 20 26"),
        ("June 30 – July 2", "June 30th to July 2nd"),
        ("Jan–Mar", "January to March"),
        ("Mon-Fri, Sat–Sun", "Monday to Friday, Saturday to Sunday"),
        ("Monday–Thursday", "Monday to Thursday"),
        ("10%–15%", "10 percent to 15 percent"),
        (
            "60°F-70°F",
            "60 degrees Fahrenheit to 70 degrees Fahrenheit",
        ),
        ("5 km - 10 km", "5 kilometers to 10 kilometers"),
        ("the 1st–3rd", "the 1st to 3rd"),
        ("5 – 10 minutes", "5 to 10 minutes"),
        ("500-1000 words", "500 to 1000 words"),
        ("5 - 10 minutes", "5 to 10 minutes"),
        ("2020-2024", "20 20 to 20 24"),
        ("in 2008 - 2012", "in 2008 to 20 12"),
        ("5€-10€", "5 euros to 10 euros"),
        (
            "£5.99–£9.99",
            "5 pounds and 99 pence to 9 pounds and 99 pence",
        ),
    ]);
}

/// "123-45-6789" was "123 to 45-6789".
#[test]
fn chains_of_digits_are_no_ranges() {
    says(&[
        ("123-45-6789", "1 2 3, 4 5, 6 7 8 9"),
        ("114-3941689-7772424", "1 1 4, 3 9 4 1 6 8 9, 7 7 7 2 4 2 4"),
        ("94105-1234", "9 4 1 0 5, 1 2 3 4"),
        ("555-1234", "5 5 5, 1 2 3 4"),
        ("12-34-5678", "1 2, 3 4, 5 6 7 8"),
        ("555 123 4567", "5 5 5, 1 2 3, 4 5 6 7"),
        ("+15551234567", "plus 1 5 5, 5 1 2, 3 4 5, 6 7"),
    ]);
}

/// Dates with hyphens were ranges, those with dots versions, and those with a short year fractions.
#[test]
fn dates_are_dates_however_they_are_written() {
    says(&[
        ("05-03-2024", "May 3rd, 20 24"),
        ("15-10-2026", "October 15th, 20 26"),
        ("15/10/2026", "October 15th, 20 26"),
        ("15.10.2026", "October 15th, 20 26"),
        ("10/3/24", "October 3rd, 20 24"),
        ("2024/05/03", "May 3rd, 20 24"),
        ("born 10/3/85", "born October 3rd, 19 85"),
        ("on 10/3", "on October 3rd"),
        ("Friday, 10/3", "Friday, October 3rd"),
        ("Dec 25", "December 25th"),
        ("the '90s, in her 30s", "the nineties, in her thirties"),
        ("wait 30s", "wait 30s"),
    ]);
}

/// "Your code is 482913" was a number of six digits, "8/10" was "8 tenths", and "½ cup" was "and a half cup".
#[test]
fn codes_marks_and_parts_are_said_as_people_say_them() {
    says(&[
        ("Your code is 482913.", "Your code is 4 8 2 9 1 3."),
        ("ZIP code: 90210", "ZIP code: 9 0 2 1 0"),
        ("the card ending in 4821", "the card ending in 4 8 2 1"),
        ("I give it 8/10", "I give it 8 out of 10"),
        ("5/5 stars, 85/100", "5 out of 5 stars, 85 out of 100"),
        ("120/80", "120 over 80"),
        ("1½ cups, ½ cup", "1 and a half cups, a half cup"),
        ("60 m²", "60 square meters"),
        ("v2.1.0", "v2 point 1 point 0"),
        ("≥ 5", "at least 5"),
        ("1.5x", "1 point 5 times"),
        ("a 50/50 chance", "a 50 50 chance"),
        ("2h 15m", "2 hours 15 minutes"),
        ("2 tbsp and 1 tsp", "2 tablespoons and 1 teaspoon"),
        ("(555)123-4567", "5 5 5, 1 2 3, 4 5 6 7"),
    ]);
}

/// A time, a count or a price behind a spaced dash was taken for the end of a range, and shares of something for dates.
#[test]
fn what_looks_like_a_range_or_a_date_may_be_none() {
    says(&[
        ("We're open every day 24/7", "We're open every day 24 7"),
        ("a house on 1/2 acre", "a house on 1 half acre"),
        ("every day 1/2 tablet", "every day 1 half tablet"),
        ("on 2/3 of the days", "on 2 thirds of the days"),
        ("June 12 - 7:00 PM", "June 12th, 7 PM"),
        ("Dec 24 – 8 PM", "December 24th, 8 PM"),
        ("June 5 - 7 PM", "June 5th, 7 PM"),
        ("May 5 – 2 nights", "May 5th, 2 nights"),
        ("June 10 – 12, 2026", "June 10th to 12th, 20 26"),
        ("500 mg – 3 times a day", "500 milligrams, 3 times a day"),
        (
            "72°F – 45% humidity",
            "72 degrees Fahrenheit, 45 percent humidity",
        ),
        ("12 km - 3 hours", "12 kilometers, 3 hours"),
        ("7:30 PM - 4 guests", "7 30 PM, 4 guests"),
        ("5 lbs - $10", "5 pounds, 10 dollars"),
        ("20% - 30%", "20 percent to 30 percent"),
        (
            "Option 1 – $20, option 2 – $30",
            "Option 1, 20 dollars, option 2, 30 dollars",
        ),
        ("Step 1 – 20 minutes", "Step 1, 20 minutes"),
        ("Flight 204 – 8:30 AM", "Flight 204, 8 30 AM"),
        ("Wait 5 - 10 minutes", "Wait 5 to 10 minutes"),
        (
            "100% - 20% = 80%",
            "100 percent minus 20 percent equals 80 percent",
        ),
        (
            "$100 - $20 = $80",
            "100 dollars minus 20 dollars equals 80 dollars",
        ),
        ("$1.5-2 million", "1 point 5 to 2 million dollars"),
        ("Your 30s timer", "Your 30s timer"),
        (
            "3M makes tape, with 3M users",
            "3 M makes tape, with 3 million users",
        ),
        ("in 2023-2024", "in 20 23 to 20 24"),
        ("Mon.–Fri. 9–5", "Monday to Friday 9 to 5"),
        ("We open Mon.-Fri.", "We open Monday to Friday."),
        ("Rated 4.7/5", "Rated 4 point 7 out of 5"),
        ("4/5 stars", "4 out of 5 stars"),
    ]);
}

/// "$5 – 3 items" was "5 to 3 dollars items".
#[test]
fn a_number_behind_a_price_and_a_spaced_dash_may_be_no_price() {
    says(&[
        ("$5 – 3 items", "5 dollars, 3 items"),
        ("$20 - 30 items", "20 dollars, 30 items"),
        ("Tickets: $5 – 7 PM", "Tickets: 5 dollars, 7 PM"),
        ("$20 – 50% off", "20 dollars, 50 percent off"),
        ("$10k – 3 years", "10 thousand dollars, 3 years"),
        ("€12.50 – 2 coffees", "12 euros and 50 cents, 2 coffees"),
        ("$5 – 10", "5 to 10 dollars"),
        ("$5 – 10. Thanks", "5 to 10 dollars. Thanks"),
        ("$5 – 10 per person", "5 to 10 dollars per person"),
        ("$5 - $10 each", "5 to 10 dollars each"),
        ("$1.5 – 2 million", "1 point 5 to 2 million dollars"),
        ("$900k – 1.2M", "900 thousand to 1 point 2 million dollars"),
        ("$25 – 30/hr", "25 to 30 dollars per hour"),
        ("$20 - 30 dollars", "20 to 30 dollars"),
        ("$20 - 30 bucks", "20 to 30 bucks"),
        ("$80 - 120 nightly", "80 to 120 dollars nightly"),
        ("$15 - 20 was the price", "15 to 20 dollars was the price"),
        ("$40 - 60 as of today", "40 to 60 dollars as of today"),
        ("€20 – 30 EUR", "20 to 30 euros"),
        ("$20 - 5 = $15", "20 dollars minus 5 equals 15 dollars"),
    ]);
}

/// "rated 4/5" was "rated 4 fifths".
#[test]
fn a_mark_is_out_of_the_best_one() {
    says(&[
        ("It is rated 4/5.", "It is rated 4 out of 5."),
        ("Rating: 3/5", "Rating: 3 out of 5"),
        ("a score of 17/20", "a score of 17 out of 20"),
        ("They gave it a 4/5", "They gave it a 4 out of 5"),
        ("Rated 4/5 stars", "Rated 4 out of 5 stars"),
        ("a 4/5-star hotel", "a 4 out of 5-star hotel"),
        ("a 4/5 rating", "a 4 out of 5 rating"),
        ("scored 4/5 of the points", "scored 4 fifths of the points"),
        ("4/5 of it", "4 fifths of it"),
        ("on 4/5", "on April 5th"),
        ("reviewed on 4/5", "reviewed on April 5th"),
        ("It gives us a 50/50 chance.", "It gives us a 50 50 chance."),
        ("It gives us 1/5 more", "It gives us 1 fifth more"),
    ]);
}

/// "$25/hr" was "25 dollars slash hr", and "5 €/kg" "5 euros slash kg".
#[test]
fn a_stroke_before_a_short_unit_is_per() {
    says(&[
        ("It pays $25/hr.", "It pays 25 dollars per hour."),
        ("$25/h", "25 dollars per hour"),
        ("5 €/kg", "5 euros per kilogram"),
        ("$3.99/lb", "3 dollars and 99 cents per pound"),
        (
            "$10/month or $5/mo",
            "10 dollars per month or 5 dollars per month",
        ),
        ("$0.10/min", "10 cents per minute"),
        ("$20/m²", "20 dollars per square meter"),
        ("$2/sq ft", "2 dollars per square foot"),
        ("60 km/h", "60 kilometers per hour"),
        ("60 km/hr", "60 kilometers per hour"),
        ("5 km/day", "5 kilometers per day"),
        ("10 MB/s", "10 megabytes per second"),
        ("5 m/s", "5 meters per second"),
        ("1/2 lb", "1 half lb"),
        ("and/or", "and or"),
        (
            "It is $10/mo. for students",
            "It is 10 dollars per month for students",
        ),
        ("$5/gal. in Ohio", "5 dollars per gallon in Ohio"),
        ("It is $10/mo. Is it?", "It is 10 dollars per month. Is it?"),
        ("size 8 M/L", "size 8 M slash L"),
        ("2 rooms w/ L-shaped sofa", "2 rooms w/ L-shaped sofa"),
    ]);
}

#[test]
fn the_dot_behind_a_version_ends_the_sentence() {
    says(&[
        ("It needs iOS 17.4.", "It needs iOS 17 point 4."),
        ("Update to 1.2.3.", "Update to 1 point 2 point 3."),
    ]);
}

/// Abbreviations kept their dot before a small letter, which was heard as the end of a sentence, and were not written out.
#[test]
fn abbreviations_are_written_out_without_their_dot() {
    says(&[
        (
            "It weighs 5 lbs. and 3 oz. or so",
            "It weighs 5 pounds and 3 ounces or so",
        ),
        (
            "It takes approx. 5 min. to get there",
            "It takes approximately 5 minutes to get there",
        ),
        ("1/2 tsp. salt", "1 half teaspoon salt"),
        ("1 oz. of gold", "1 ounce of gold"),
        ("Call 555-0123 ext. 4.", "Call 5 5 5, 0 1 2 3 extension 4."),
        ("Mr. & Mrs. Smith", "Mister and Missus Smith"),
        (
            "Martin Luther King Jr. was here",
            "Martin Luther King Junior was here",
        ),
        ("Apple Inc. is big", "Apple Incorporated is big"),
        ("George W. Bush", "George W Bush"),
        (
            "He lives at 221B Baker St. in London",
            "He lives at 221B Baker Street in London",
        ),
        ("St. Mary's St. is near", "Saint Mary's Street is near"),
        ("123 Main St., Apt. 4", "123 Main Street, apartment 4"),
        ("12 Oak Dr. is here", "12 Oak Drive is here"),
        ("at 9 AM Dr. Smith comes", "at 9 AM Doctor Smith comes"),
        ("10 Downing St.", "10 Downing Street."),
        (
            "on 5th Ave. and Sunset Blvd.",
            "on 5th Avenue and Sunset Boulevard.",
        ),
        (
            "Gov. Newsom and Sen. Cruz",
            "Governor Newsom and Senator Cruz",
        ),
        ("p. 42 and pp. 10-12", "page 42 and pages 10 to 12"),
        (
            "Fig. 3, Sec. 2.1, Vol. 3, Ch. 4",
            "figure 3, section 2 point 1, volume 3, chapter 4",
        ),
        ("Nos. 1 and 2", "numbers 1 and 2"),
        ("a Ph.D. in physics", "a PhD in physics"),
        ("Jr.", "Junior."),
    ]);
}

/// "Dec. 25th", "Mon. at 5" and "12/25" were not read as dates, and "2025-11-29T14:30:00Z" was "2025 to 11 to 29T14".
#[test]
fn short_days_and_months_are_said_whole() {
    says(&[
        ("on Dec. 25th", "on December 25th"),
        ("in Jan. 2026", "in January 20 26"),
        ("on 5 Jan. it rained", "on 5 January it rained"),
        ("on 3 Dec 2025", "on 3 December 20 25"),
        ("See you Mon. at 5", "See you Monday at 5"),
        ("Sun, Dec 7", "Sunday, December 7th"),
        ("Sat 5 PM", "Saturday 5 PM"),
        ("The Sun, 5 planets", "The Sun, 5 planets"),
        ("after 9/11", "after 9 11"),
        ("It ships 11/30.", "It ships November 30th."),
        ("12/25", "December 25th"),
        ("20/20 vision", "20 20 vision"),
        ("5/16 of an inch", "5 sixteenths of an inch"),
        ("the 2000s", "the 2 thousands"),
        (
            "at 2025-11-29T14:30:00Z.",
            "at November 29th, 20 25 at 14 30 UTC.",
        ),
        ("2025-11-29 14:30", "November 29th, 20 25 at 14 30"),
    ]);
}

/// "Henry VIII" was "Henry Roman eight" and "World War II" "World War Roman two".
#[test]
fn roman_numerals_are_numbers() {
    says(&[
        ("Henry VIII", "Henry the 8th"),
        ("Pope Leo XIV", "Pope Leo the 14th"),
        ("World War II", "World War 2"),
        ("World War I", "World War 1"),
        ("Chapter IV, Part II", "Chapter 4, Part 2"),
        ("Super Bowl LVIII", "Super Bowl 58"),
        ("Malcolm X", "Malcolm X"),
        ("size XL", "size XL"),
        ("Vitamin X", "Vitamin X"),
        ("I am", "I am"),
    ]);
}

/// "Settings > Wi-Fi" was "greater than", and small digits, "<", arrows and strokes were dropped or read as signs.
#[test]
fn signs_of_today_are_said_as_people_say_them() {
    says(&[
        ("Settings > Network > Wi-Fi", "Settings, Network, Wi-Fi"),
        ("5 > 3", "5 greater than 3"),
        ("x > 5", "x greater than 5"),
        ("<5 min, >100", "less than 5 minutes, more than 100"),
        ("File → Save", "File, Save"),
        ("CO₂ and H₂O", "C O 2 and H2O"),
        (
            "10⁶ and 10⁻³",
            "10 to the power of 6 and 10 to the power of -3",
        ),
        ("a note¹", "a note"),
        ("1e-3", "1 times 10 to the power of minus 3"),
        ("1.5e+6", "1 point 5 times 10 to the power of 6"),
        ("75°/60°", "75 degrees, 60 degrees"),
        (
            "100 °C / 212 °F",
            "100 degrees Celsius, 212 degrees Fahrenheit",
        ),
        ("I/O and N/A", "I O and not applicable"),
        ("w/o sugar", "without sugar"),
        ("1920x1080", "1920 by 1080"),
        ("3x4 = 12", "3 times 4 equals 12"),
        ("3 m/s²", "3 meters per second squared"),
        ("5 µg, 20 mcg", "5 micrograms, 20 micrograms"),
        ("10 mg/dL", "10 milligrams per deciliter"),
        ("120/80 mmHg", "120 over 80 millimeters of mercury"),
        ("60fps", "60 frames per second"),
        ("a 30-min walk", "a 30 minute walk"),
        ("a 6' ladder", "a 6 feet ladder"),
        ("'5' is", "'5' is"),
        (
            "C$20 and HK$100",
            "20 Canadian dollars and 100 Hong Kong dollars",
        ),
        ("1-800-FLOWERS", "1 800 FLOWERS"),
    ]);
}

/// "code X7K9P2" was left to the voice, which read "AB12" as "ab twelve".
#[test]
fn letters_and_digits_of_a_code_are_spelled() {
    says(&[
        ("Your code is AB12CD.", "Your code is A B 1 2 C D."),
        ("booking number AB-1234", "booking number A B, 1 2 3 4"),
        ("order #A-10293", "order #A, 1 0 2 9 3"),
        ("in that case COVID-19", "in that case COVID-19"),
        ("Flight BA2490", "Flight BA2490"),
    ]);
}

/// "The IV" was "The 4", "plan B. Everything" lost the end of its sentence, a quoted number was in feet, a score a date,
/// and the L of a code liters.
#[test]
fn plain_words_are_no_numerals_initials_or_units() {
    says(&[
        ("The IV drip is in", "The IV drip is in"),
        ("Size XL", "Size XL"),
        ("James V. Smith", "James V Smith"),
        ("George V was", "George the 5th was"),
        ("plan B. Everything else", "plan B. Everything else"),
        ("Press 'star 5' now", "Press 'star 5' now"),
        ("a 6' x 4' rug", "a 6 feet by 4 feet rug"),
        ("You got 9/13 right.", "You got 9 out of 13 right."),
        (
            "2025-11-29 14:30-15:30",
            "November 29th, 20 25 at 14 30 to 15 30",
        ),
        ("code A2L9W", "code A 2 L 9 W"),
        ("at 5 EST. 3 people", "at 5 EST. 3 people"),
    ]);
}
