//! Unit tests of fillers; whole sessions are in `../tests/`.

use super::*;
use crate::conversation::experience::Experience;
use crate::conversation::policy::Policy;
use crate::tools::{Declaration, Effect, ToolSpec};
use std::time::Duration;

const PATIENCE: Micros = Micros::from_ms(1_500);

fn tool(short: &[&str], long: &[&str]) -> Declaration {
    let spec = ToolSpec {
        examples: Vec::new(),
        name: "weather".into(),
        description: String::new(),
        parameters: serde_json::json!({"type": "object"}),
    };
    let mut tool = Declaration::new(spec, Effect::Read, Duration::from_secs(1));
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    tool.fillers.short = owned(short);
    tool.fillers.long = owned(long);
    tool
}

fn chosen(tool: &Declaration, wait_ms: u64) -> Option<String> {
    let wait = Micros::from_ms(wait_ms);
    choose(&tool.fillers, wait, &FillerPolicy::default())
}

#[test]
fn fillers_are_in_the_agents_language() {
    let mut tool = tool(&[], &[]);
    for (language, text) in [("en", "Let me look."), ("de", "Ich sehe nach.")] {
        let fillers = Fillers {
            short: vec![text.to_owned()],
            ..Fillers::default()
        };
        tool.fillers_by_language.insert(language.into(), fillers);
    }
    let first = |tool: &Declaration, language: Option<&str>| {
        let mut policy = Policy::default();
        policy.speaker.language = language.map(str::to_owned);
        let common = Common::new(policy, Experience::default());
        common.fillers(tool).short.first().cloned()
    };
    assert_eq!(first(&tool, None).unwrap(), "Let me look.");
    assert_eq!(first(&tool, Some("de-AT")).unwrap(), "Ich sehe nach.");
    assert_eq!(first(&tool, Some("fr")), None);
    tool.fillers.short = vec!["Hm.".into()];
    assert_eq!(first(&tool, Some("fr")).unwrap(), "Hm.");
}

#[test]
fn the_wait_decides_the_length_of_the_filler() {
    let tool = tool(&["One moment."], &["This takes a while."]);
    assert_eq!(chosen(&tool, 699), None, "not worth it");
    assert_eq!(chosen(&tool, 700).unwrap(), "One moment.");
    assert_eq!(chosen(&tool, 2_500).unwrap(), "This takes a while.");
}

#[test]
fn a_filler_of_the_other_length_is_better_than_none() {
    let long = tool(&[], &["This takes a while."]);
    assert_eq!(chosen(&long, 1_000).unwrap(), "This takes a while.");
    let short = tool(&["One moment."], &[]);
    assert_eq!(chosen(&short, 9_000).unwrap(), "One moment.");
    assert_eq!(chosen(&tool(&[], &[]), 9_000), None);
}

#[test]
fn each_filler_waits_longer_and_there_are_two() {
    let mut silence = DeadAir::since(Time::from_ms(1_000));
    let ends = |silence: &DeadAir| silence.ends(Time(0), PATIENCE, false);
    let say = |silence: &mut DeadAir| {
        silence.fill_again();
        silence.fill();
    };
    assert_eq!(ends(&silence), Some(Time::from_ms(2_500)));
    say(&mut silence);
    assert_eq!(ends(&silence), Some(Time::from_ms(4_000)));
    say(&mut silence);
    assert_eq!(ends(&silence), None);
}

#[test]
fn silence_counts_from_the_last_sound() {
    let silence = DeadAir::since(Time::from_ms(1_000));
    let end = silence.ends(Time::from_ms(3_000), PATIENCE, false);
    assert_eq!(end, Some(Time::from_ms(4_500)));
}

#[test]
fn silence_behind_a_filler_is_filled_soon_and_once() {
    let mut silence = DeadAir::since(Time::from_ms(1_000));
    silence.fill();
    let end = |silence: &DeadAir| silence.ends(Time::from_ms(3_000), PATIENCE, true).unwrap();
    assert_eq!(end(&silence), Time::from_ms(3_000));
    silence.fill_again();
    assert_eq!(end(&silence), Time::from_ms(6_000));
}

#[test]
fn a_near_answer_puts_a_filler_off() {
    let mut silence = DeadAir::since(Time(0));
    let (now, ms) = (Time::from_ms(1_500), Micros::from_ms);
    let wait = |expected| Wait {
        expected: ms(expected),
        least: ms(0),
    };
    assert!(wait(399).is_near() && !wait(400).is_near());
    silence.put_off(now, wait(200));
    assert_eq!(silence.ends(Time(0), PATIENCE, false), Some(now + ms(200)));
}

#[test]
fn a_restarted_wait_has_its_full_length() {
    let mut common = Common::new(Policy::default(), Experience::default());
    common.now = Time::from_ms(8_000);
    let mut silence = DeadAir::since(Time(0));
    silence.restart(&common);
    let end = silence.ends(Time(0), PATIENCE, false);
    assert_eq!(end, Some(common.now + common.policy.timeouts.dead_air));
}

#[test]
fn an_announcement_is_drawn_out_to_the_answer_within_reason() {
    let (usual, ms) = (Speed::NORMAL, Micros::from_ms);
    let speed = |wait| drawn_out(usual, ms(1_000), ms(wait)).factor();
    assert_eq!(speed(0), 1.0);
    assert_eq!(speed(1_000), 1.0);
    assert_eq!(speed(1_100), 0.91);
    assert_eq!(speed(1_200), speed(9_000));
    assert_eq!(drawn_out(usual, Micros(0), ms(500)), usual);
}
