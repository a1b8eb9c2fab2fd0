//! Digits in languages that write a comma before the decimals and a dot between thousands.

/// A text in lower case without marks, except signs of arithmetic and points before decimals: "1.200,5" becomes
/// "1200.5".
pub(super) fn without_marks(text: &str) -> String {
    let joined = joined_digits(text);
    let letters: Vec<char> = joined.chars().collect();
    let digit = |at: usize| letters.get(at).is_some_and(char::is_ascii_digit);
    let kept: String = letters
        .iter()
        .enumerate()
        .map(|(at, c)| match c {
            '.' if at > 0 && digit(at - 1) && digit(at + 1) => '.',
            '+' | '*' | '/' | '^' | '%' | '(' | ')' | '€' | '°' | '\'' => *c,
            '-' | '−' if digit(at + 1) && (at == 0 || letters[at - 1] == ' ') => '-',
            c if c.is_alphanumeric() => *c,
            _ => ' ',
        })
        .collect();
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn joined_digits(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let digit = |at: usize| letters.get(at).is_some_and(char::is_ascii_digit);
    let mut joined = String::with_capacity(text.len());
    for (at, c) in letters.iter().enumerate() {
        let inside = at > 0 && digit(at - 1) && digit(at + 1);
        let groups = (1..=3).all(|step| digit(at + step)) && !digit(at + 4);
        match c {
            '.' if inside && groups => {}
            ',' if inside => joined.push('.'),
            c => joined.push(*c),
        }
    }
    joined
}

/// "2 komma 5" as "2.5", with these words for the comma.
pub(super) fn with_decimals(words: &[String], commas: &[&str]) -> String {
    let is_number = |word: &String| word.bytes().all(|byte| byte.is_ascii_digit());
    let mut out: Vec<String> = Vec::new();
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        let is_comma = commas.contains(&word.as_str());
        let decimals = rest.next_if(|next| is_comma && is_number(next));
        match (out.last_mut().filter(|last| is_number(last)), decimals) {
            (Some(last), Some(decimals)) => {
                last.push('.');
                last.push_str(decimals);
            }
            (_, decimals) => {
                out.push(word.clone());
                out.extend(decimals.cloned());
            }
        }
    }
    out.join(" ")
}
