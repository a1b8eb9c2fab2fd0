//! Sessions with clients that send more text than a prompt can hold.

use super::*;

fn small() -> Policy {
    Policy {
        text: TextLimits {
            set_up: 400,
            item: 100,
        },
        ..Policy::default()
    }
}

fn refusals(sim: &Sim) -> Vec<(String, String)> {
    let refused = |(_, event): &(Time, Event)| match event {
        Event::Refused { request, message } => Some((request.clone(), message.clone())),
        _ => None,
    };
    sim.events.iter().filter_map(refused).collect()
}

#[track_caller]
fn is_refused(sim: &mut Sim, input: Input, request: &str, message: &str) {
    let before = (sim.core.history.messages(), sim.prompts.len());
    sim.input(input);
    let (refused, why) = refusals(sim).pop().expect("it was taken");
    assert_eq!(refused, request);
    assert!(why.contains(message), "{why}");
    assert_eq!((sim.core.history.messages(), sim.prompts.len()), before);
}

fn set(instructions: Option<&str>, tools: Option<Vec<ToolSpec>>) -> Input {
    Input::Configure(Box::new(Settings {
        instructions: instructions.map(str::to_owned),
        tools,
        ..Settings::default()
    }))
}

#[test]
fn instructions_and_tools_that_fit_no_prompt_are_refused_and_the_old_ones_stay() {
    let mut sim = Sim::new(small());
    sim.input(set(Some(&"kind ".repeat(50)), None));
    assert_eq!(refusals(&sim), []);
    let long = "x".repeat(907_595);
    is_refused(
        &mut sim,
        set(Some(&long), None),
        "Configure",
        "907595 characters",
    );
    let mut own = tool("own", Effect::Read).spec.clone();
    own.description = "y".repeat(150);
    is_refused(
        &mut sim,
        set(None, Some(vec![own])),
        "Configure",
        "at most 400",
    );
    let instructions = Some("z".repeat(401));
    is_refused(
        &mut sim,
        Input::Respond { instructions },
        "Respond",
        "401 characters",
    );
    ask(&mut sim, "what time is it", 3_000);
    let prompt = sim.prompts.pop().expect("a prompt");
    assert_eq!(prompt.instructions, Some("kind ".repeat(50)));
    assert!(prompt.tools.is_empty());
}

#[test]
fn items_and_words_that_are_too_long_are_refused() {
    let mut sim = Sim::new(small());
    let text = || "long ".repeat(21);
    for item in [
        NewItem::User { text: text() },
        NewItem::System { text: text() },
        NewItem::Agent { text: text() },
    ] {
        is_refused(&mut sim, item.at_the_end(), "AddItem", "105 characters");
    }
    for last in [false, true] {
        let said = Input::Said { text: text(), last };
        is_refused(&mut sim, said, "Said", "at most 100");
    }
    assert!(!sim.core.turn.is_open());
    let said = |text: &str| Input::Said {
        text: text.into(),
        last: true,
    };
    sim.input(said("What time is it?"));
    sim.no_audio(3_000);
    assert_eq!(sim.spoken(), ["All right."]);
}
