//! How words sound: a recogniser spells what it does not know by ear, "Paris" as "pairs".

/// The greatest distance at which two names may be the same: a vowel and a half.
const NEAR: f32 = 0.5;
/// A vowel that only one of them has.
const VOWEL: f32 = 0.4;
/// Consonants that are made alike: "p" and "b".
const ALIKE: f32 = 0.5;
/// Fewer consonants tell too little.
const LEAST: usize = 2;

/// The sounds of words, a byte each; all vowels are one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sounds(Vec<u8>);

impl Sounds {
    /// Of words as they are written. Spaces do not sound.
    pub fn of(words: &str) -> Self {
        let letters: Vec<char> = words
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric())
            .collect();
        let mut sounds = Vec::new();
        let mut at = 0;
        while at < letters.len() {
            let (sound, length) = sound(&letters, at);
            for &one in sound {
                if sounds.last() != Some(&one) {
                    sounds.push(one);
                }
            }
            at += length;
        }
        Self(sounds)
    }

    /// Whether both may be spellings of one name; the distance if so.
    pub fn near(&self, other: &Self) -> Option<f32> {
        let consonants = |sounds: &[u8]| sounds.iter().filter(|one| **one != b'a').count();
        let enough = consonants(&self.0).min(consonants(&other.0)) >= LEAST;
        let same_start = self.0.first() == other.0.first();
        if !enough || !same_start || self.0.len().abs_diff(other.0.len()) > 1 {
            return None;
        }
        let distance = distance(&self.0, &other.0);
        // Two consonants tell little: "rain" is no "Reno".
        let many = consonants(&self.0).min(consonants(&other.0)) > LEAST;
        let most = if many { NEAR } else { 0.0 };
        (distance <= most).then_some(distance)
    }
}

/// The name that sounds like the words, if only one does.
pub fn nearest<'n, T>(words: &str, names: impl IntoIterator<Item = (&'n Sounds, T)>) -> Option<T>
where
    T: PartialEq,
{
    let sounds = Sounds::of(words);
    let near = names
        .into_iter()
        .filter_map(|(name, value)| Some((sounds.near(name)?, value)));
    let mut near: Vec<(f32, T)> = near.collect();
    near.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut near = near.into_iter();
    let (best, value) = near.next()?;
    let rival = near.any(|(distance, other)| distance <= best && other != value);
    (!rival).then_some(value)
}

/// The sounds at a letter, and how many letters they take.
fn sound(letters: &[char], at: usize) -> (&'static [u8], usize) {
    let is = |text: &str| {
        let mut rest = letters[at..].iter();
        text.chars().all(|letter| rest.next() == Some(&letter))
    };
    let next = letters.get(at + 1).copied().unwrap_or(' ');
    let start = at == 0;
    let soft = matches!(next, 'e' | 'i' | 'y');
    if start && (is("kn") || is("gn")) {
        return (b"n", 2);
    }
    for (text, sound) in LONGER {
        if is(text) {
            return (sound, text.chars().count());
        }
    }
    let one: &[u8] = match letters[at] {
        'c' if soft => b"s",
        'c' | 'k' | 'q' => b"k",
        'g' if soft => b"j",
        'g' => b"g",
        'x' => b"ks",
        'z' | 's' => b"s",
        'j' => b"j",
        'b' => b"b",
        'd' => b"d",
        'f' => b"f",
        'h' if start => b"h",
        'h' => b"",
        'l' => b"l",
        'm' => b"m",
        'n' => b"n",
        'p' => b"p",
        'r' => b"r",
        't' => b"t",
        'v' => b"v",
        'w' if start || "aeiouy".contains(next) => b"w",
        'e' if next == ' ' && at > 1 => b"",
        digit if digit.is_ascii_digit() => DIGITS[digit as usize - '0' as usize],
        _ => b"a",
    };
    (one, 1)
}

const DIGITS: [&[u8]; 10] = [b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9"];

/// Letters that sound as one. `X` is the sound of "church", `S` of "ship", `T` of "thin".
const LONGER: [(&str, &[u8]); 11] = [
    ("tch", b"X"),
    ("ch", b"X"),
    ("sch", b"S"),
    ("sh", b"S"),
    ("tio", b"Sa"),
    ("sio", b"Sa"),
    ("th", b"T"),
    ("ph", b"f"),
    ("wr", b"r"),
    ("gh", b""),
    ("dg", b"j"),
];

fn alike(a: u8, b: u8) -> bool {
    const PAIRS: [(u8, u8); 9] = [
        (b'b', b'p'),
        (b'd', b't'),
        (b'g', b'k'),
        (b'f', b'v'),
        (b'm', b'n'),
        (b'X', b'S'),
        (b'X', b'j'),
        (b'X', b'k'),
        (b'T', b't'),
    ];
    PAIRS.contains(&(a, b)) || PAIRS.contains(&(b, a))
}

/// The edit distance, vowels light.
fn distance(a: &[u8], b: &[u8]) -> f32 {
    let weight = |sound: u8| if sound == b'a' { VOWEL } else { 1.0 };
    let mut row: Vec<f32> = vec![0.0];
    for sound in b {
        row.push(row[row.len() - 1] + weight(*sound));
    }
    for x in a {
        let mut next = vec![row[0] + weight(*x)];
        for (at, y) in b.iter().enumerate() {
            let change = match (x, y) {
                (x, y) if x == y => 0.0,
                (x, y) if alike(*x, *y) => ALIKE,
                _ => 1.0 + VOWEL,
            };
            let best = (row[at] + change)
                .min(row[at + 1] + weight(*x))
                .min(next[at] + weight(*y));
            next.push(best);
        }
        row = next;
    }
    row[row.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sounds_alike_is_near() {
        for (a, b) in [
            ("pairs", "Paris"),
            ("bolder", "Boulder"),
            ("roam", "Rome"),
            ("kyro", "Cairo"),
            ("leads", "Leeds"),
            ("comit", "comet"),
            ("hox", "hawks"),
        ] {
            assert!(Sounds::of(a).near(&Sounds::of(b)).is_some(), "{a}, {b}");
        }
        for (a, b) in [
            ("also", "Oslo"),
            ("general", "Geneva"),
            ("springvale", "Springfield"),
            ("town", "Taiwan"),
            ("rain", "Reno"),
            ("may", "Oma"),
            ("awesome", "Austin"),
        ] {
            assert!(Sounds::of(a).near(&Sounds::of(b)).is_none(), "{a}, {b}");
        }
    }

    #[test]
    fn only_one_name_may_fit() {
        let names = ["Rome", "Paris", "Ram"].map(|name| (Sounds::of(name), name));
        let nearest = |words| nearest(words, names.iter().map(|(sounds, name)| (sounds, *name)));
        assert_eq!(nearest("pairs"), Some("Paris"));
        assert_eq!(nearest("roam"), None);
        assert_eq!(nearest("boston"), None);
    }
}
