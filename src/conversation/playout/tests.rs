//! Unit tests of sent and heard audio.

use super::*;

fn one_clause() -> Playout {
    one_clause_of("words")
}

fn one_clause_of(text: &str) -> Playout {
    let (mut playout, text) = (Playout::default(), (text.to_owned(), Micros(0)));
    playout.push(ClauseId(1), (ItemId(1), 0), text, Words::Answer);
    playout
}

/// A line with a lag of 180 ms. Reports come another 20 ms to 13 s late, and a third are lost.
#[test]
fn heard_audio_is_known_to_a_word_although_marks_are_late_or_lost() {
    const WORD_MS: u64 = 350;
    const LAG_MS: u64 = 180;
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for _ in 0..200 {
        let mut playout = one_clause();
        playout.made(ClauseId(1), Micros::from_ms(20_000), true);
        let stop = 1_000 + next(15_000);
        let mut reports = Vec::new();
        for frame in 1..=1_000 {
            let sent_at = (frame * 20_u64).saturating_sub(200);
            if sent_at > stop {
                break;
            }
            if frame % 10 == 0 && next(3) > 0 {
                let late = if next(2) == 0 {
                    20 + next(60)
                } else {
                    next(13_000)
                };
                reports.push((frame * 20 + LAG_MS + late, frame * 20));
            }
            reports.sort_unstable();
            while let Some(&(at, until)) = reports.first().filter(|(at, _)| *at <= sent_at) {
                playout.played(Time::from_ms(at), ClauseId(1), Micros::from_ms(until));
                reports.remove(0);
            }
            let until = Micros::from_ms(frame * 20);
            playout.sent(Time::from_ms(sent_at), ClauseId(1), until);
        }
        let heard = playout.heard(ItemId(1), Time::from_ms(stop)).as_ms();
        let truly = stop.saturating_sub(LAG_MS);
        assert!(
            heard.abs_diff(truly) <= WORD_MS,
            "{heard} ms for {truly} ms"
        );
    }
}

#[test]
fn silence_after_a_flush_begins_at_once() {
    let mut playout = one_clause();
    playout.made(ClauseId(1), Micros::from_ms(1_000), true);
    playout.sent(Time::from_ms(0), ClauseId(1), Micros::from_ms(1_000));
    playout.played(Time::from_ms(700), ClauseId(1), Micros::from_ms(500));
    assert_eq!(playout.audible_until(), Time::from_ms(1_200));
    let heard = playout.heard(ItemId(1), Time::from_ms(700));
    assert_eq!(heard, Micros::from_ms(500));
    assert_eq!(playout.unheard_items(Time::from_ms(1_100)), [ItemId(1)]);
    playout.flush(Time::from_ms(800));
    assert_eq!(playout.audible_until(), Time::from_ms(800));
}

/// An okay to an Arabic question was taken for that of a listener.
#[test]
fn a_sentence_is_a_question_by_the_mark_of_its_script() {
    for (text, asks) in [
        ("What time is it?", true),
        ("何時ですか？", true),
        ("كم الساعة؟", true),
        ("यह समय है।", false),
    ] {
        let mut playout = one_clause_of(text);
        playout.made(ClauseId(1), Micros::from_ms(1_000), true);
        playout.sent(Time::from_ms(0), ClauseId(1), Micros::from_ms(1_000));
        assert_eq!(playout.is_asking(Time::from_ms(500)), asks, "{text}");
    }
}
