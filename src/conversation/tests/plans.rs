//! Sessions in which the model makes plans.

use super::sim::{Script, Sim, Step, call, call_with, end, say};
use super::*;
use crate::llm::plan::PLAN;
use crate::prediction::{Prediction, Source};
use crate::tools::Eligibility;
use serde_json::{Value, json};

/// Finds flights and seats, books a flight, sends a message, and asks before it pays.
fn travel() -> Policy {
    let read = |name: &str| (*tool(name, Effect::Read)).clone();
    let change = |name: &str| (*tool(name, Effect::Reversible)).clone();
    let mut policy = with(vec![
        read("flights"),
        read("seats"),
        read("weather"),
        read("failing"),
        change("book"),
        change("notify"),
        asking("pay", "Pay {{ amount }} dollars?"),
        ending("hang_up", EndsCall::HangUp),
        change("transfer_to_agent"),
    ]);
    policy.briefing.plans = true;
    policy
}

fn step(name: &str, tool: &str, arguments: Value) -> Value {
    json!({"name": name, "tool": tool, "arguments": arguments})
}

/// Flights, then their seats.
fn seats() -> Value {
    json!([
        step("flights", "flights", json!({"to": "Oslo"})),
        step("seats", "seats", json!({"flight": "$flights[0].id"})),
    ])
}

fn planned(steps: &Value) -> Script {
    let mut script = vec![say("Let me look. ")];
    script.extend(call_with(PLAN, json!({ "steps": steps })));
    script.push(end());
    script
}

/// A session whose model answers with these steps, and with the words of the simulator after that.
fn session(policy: Policy, steps: &Value) -> Sim {
    let mut sim = Sim::new(policy);
    sim.results
        .insert("flights".into(), json!([{"id": "SK1", "price": 80}]));
    sim.results.insert("seats".into(), json!(["12A", "14C"]));
    sim.results.insert("book".into(), json!({"booking": "QX7"}));
    sim.tool_ms = 500;
    sim.scripts.push_back(planned(steps));
    sim
}

fn asked(policy: Policy, steps: &Value) -> Sim {
    let mut sim = session(policy, steps);
    ask(&mut sim, "find me a seat to oslo", 12_000);
    sim
}

/// The calls that started, with their times and arguments.
fn starts(sim: &Sim) -> Vec<(Time, String, Value)> {
    let starts = sim.outputs.iter().filter_map(|(at, output)| match output {
        Output::StartTool {
            name, arguments, ..
        } => Some((*at, name.clone(), Value::Object(arguments.clone()))),
        _ => None,
    });
    starts.collect()
}

fn names(sim: &Sim) -> Vec<String> {
    starts(sim).into_iter().map(|(_, name, _)| name).collect()
}

/// The calls and the results in the history: the tool and the result.
fn results(sim: &Sim) -> Vec<(String, Value)> {
    let messages = sim.core.history.messages().into_iter();
    let results = messages.filter_map(|message| match message {
        Message::ToolResult { name, output, .. } => Some((name, output)),
        _ => None,
    });
    results.collect()
}

fn only_result(sim: &Sim) -> Value {
    let results = results(sim);
    assert_eq!(results.len(), 1, "{results:?}");
    assert_eq!(results[0].0, PLAN);
    results[0].1.clone()
}

fn only_result_of(sim: &Sim, tool: &str) -> Value {
    let mut of_tool = results(sim);
    of_tool.retain(|(name, _)| name == tool);
    assert_eq!(of_tool.len(), 1, "{of_tool:?}");
    of_tool[0].1.clone()
}

#[test]
fn a_plan_runs_its_steps_and_the_model_sees_one_result() {
    let sim = asked(travel(), &seats());
    let started = starts(&sim);
    let expected = [
        ("flights", json!({"to": "Oslo"})),
        ("seats", json!({"flight": "SK1"})),
    ];
    let expected = expected.map(|(name, arguments)| (name.to_owned(), arguments));
    let calls: Vec<_> = started
        .iter()
        .cloned()
        .map(|(_, name, arguments)| (name, arguments))
        .collect();
    assert_eq!(calls, expected);
    assert!(started[1].0.since(started[0].0) >= Micros::from_ms(500));
    assert_eq!(only_result(&sim), json!(["12A", "14C"]));
    assert_eq!(
        sim.prompts.len(),
        2,
        "one generation before the plan, one after it"
    );
    let last = format!("{:?}", sim.prompts[1].messages);
    assert!(
        !last.contains("price"),
        "a step's result is in the prompt: {last}"
    );
    assert_eq!(sim.spoken(), ["Let me look.", "All right."]);
    assert_eq!(sim.ended(), [ResponseStatus::Completed]);
    // The client sees every step as a call.
    let seen = sim.events.iter().filter_map(|(_, event)| match event {
        Event::ToolCalled { call, name, .. } => Some((*call, name.as_str())),
        _ => None,
    });
    let seen: Vec<_> = seen.collect();
    assert_eq!(
        seen.iter().map(|(_, name)| *name).collect::<Vec<_>>(),
        ["flights", "seats"]
    );
    let is_over = |call: CallId| {
        sim.saw(|event| matches!(event, Event::ToolFinished { call: of, .. } if *of == call))
    };
    assert!(seen.iter().all(|(call, _)| is_over(*call)));
}

#[test]
fn steps_that_need_nothing_of_each_other_run_at_the_same_time() {
    let sim = asked(
        travel(),
        &json!([
            step("flights", "flights", json!({"to": "Oslo"})),
            step("weather", "weather", json!({"city": "Oslo"})),
            step("seats", "seats", json!({"flight": "$flights[0].id"})),
        ]),
    );
    let started = starts(&sim);
    assert_eq!(names(&sim), ["flights", "weather", "seats"]);
    assert_eq!(started[0].0, started[1].0);
    let output = only_result(&sim);
    assert_eq!(output["seats"], json!(["12A", "14C"]));
    assert_eq!(output["weather"], json!("weather of {\"city\":\"Oslo\"}"));
    assert!(output.get("flights").is_none());
}

#[test]
fn independent_calls_of_one_turn_run_at_the_same_time_without_plans() {
    let mut policy = travel();
    policy.briefing.plans = false;
    let mut sim = session(policy, &json!([]));
    let mut script = call("flights").to_vec();
    script.extend(call("weather"));
    script.push(end());
    sim.scripts = [script].into();
    ask(&mut sim, "flights and weather please", 6_000);
    let started = starts(&sim);
    assert_eq!(names(&sim), ["flights", "weather"]);
    assert_eq!(started[0].0, started[1].0);
    assert_eq!(sim.prompts.len(), 2, "one generation has both results");
    assert_eq!(results(&sim).len(), 2);
}

#[test]
fn a_reference_to_nothing_ends_the_plan_and_its_error_names_the_step() {
    let mut sim = session(travel(), &seats());
    sim.results.insert("flights".into(), json!([]));
    ask(&mut sim, "find me a seat to oslo", 6_000);
    assert_eq!(names(&sim), ["flights"]);
    let error = "step 2, `flights[0].id`: there is no element 0";
    assert_eq!(
        only_result(&sim),
        json!({"error": error, "done": ["flights"]})
    );
    assert_eq!(sim.spoken().last().unwrap(), "All right.");
}

#[test]
fn a_step_that_fails_ends_the_plan_and_changes_before_it_are_told() {
    let sim = asked(
        travel(),
        &json!([
            step("booked", "book", json!({"flight": "SK1"})),
            step("sure", "failing", json!({})),
            step("told", "notify", json!({"text": "$booked.booking"})),
        ]),
    );
    assert_eq!(names(&sim), ["book", "failing"]);
    let expected = json!({
        "error": "step 2, failing: there is no such city",
        "done": ["booked"],
        "results": {"booked": {"booking": "QX7"}},
    });
    assert_eq!(only_result(&sim), expected);
}

#[test]
fn a_change_waits_for_the_steps_before_it_and_those_behind_wait_for_it() {
    let mut sim = session(
        travel(),
        &json!([
            step("weather", "weather", json!({})),
            step("booked", "book", json!({"flight": "SK1"})),
            step("seats", "seats", json!({})),
            step("told", "notify", json!({"text": "$booked.booking"})),
        ]),
    );
    sim.router = Box::new(|_| {
        let change = |tool: &str| Prediction {
            tool: tool.into(),
            arguments: serde_json::Map::new(),
            confidence: 1.0,
            source: Source::Transition,
            open: Vec::new(),
        };
        vec![change("book"), change("notify")]
    });
    ask(&mut sim, "book it", 8_000);
    assert_eq!(names(&sim), ["weather", "book", "seats", "notify"]);
    let times: Vec<Time> = starts(&sim).iter().map(|(at, ..)| *at).collect();
    for pair in times.windows(2) {
        assert!(pair[1].since(pair[0]) >= Micros::from_ms(500), "{times:?}");
    }
    assert!(sim.started().iter().all(|(committed, _)| *committed));
}

fn paying() -> Value {
    json!([
        step("flights", "flights", json!({})),
        step("paid", "pay", json!({"amount": "$flights[0].price"})),
        step("told", "notify", json!({"text": "$flights[0].id"})),
    ])
}

fn histories_calls(sim: &Sim) -> Vec<Value> {
    let messages = sim.core.history.messages().into_iter();
    let calls = messages.filter_map(|message| match message {
        Message::ToolCall {
            name, arguments, ..
        } => {
            assert_eq!(name, PLAN);
            Some(Value::Object(arguments))
        }
        _ => None,
    });
    calls.collect()
}

#[test]
fn a_step_that_needs_a_yes_asks_with_its_values_and_the_plan_goes_on_after_it() {
    let mut sim = asked(travel(), &paying());
    assert_eq!(names(&sim), ["flights"]);
    assert_eq!(sim.spoken(), ["Let me look.", "Pay 80 dollars?"]);
    assert_eq!(
        sim.prompts.len(),
        1,
        "nothing is asked of the model before the question"
    );
    let waiting = only_result(&sim);
    assert_eq!(waiting["done"], json!(["flights"]));
    assert!(
        waiting["status"]
            .as_str()
            .unwrap()
            .starts_with("step 2, pay, waits for the user's yes")
    );
    ask(&mut sim, "Yes.", 6_000);
    assert_eq!(names(&sim), ["flights", "pay", "notify"]);
    assert_eq!(starts(&sim)[1].2, json!({"amount": 80}));
    assert_eq!(starts(&sim)[2].2, json!({"text": "SK1"}));
    let calls = histories_calls(&sim);
    assert_eq!(calls.len(), 2);
    assert_eq!(
        calls[1]["steps"][0],
        step("paid", "pay", json!({"amount": 80}))
    );
    let all = results(&sim);
    assert_eq!(all.len(), 2);
    assert_eq!(all[1].1["told"], json!("notify of {\"text\":\"SK1\"}"));
    ask(&mut sim, "Yes.", 3_000);
    assert_eq!(names(&sim).len(), 3, "a second yes is just a word");
}

/// The model's results for calls that were not run, after the result that says that one waits.
fn told_not_run(sim: &Sim) -> Vec<String> {
    let messages = sim.core.history.messages();
    let waits = messages
        .iter()
        .position(|message| matches!(message, Message::ToolResult { .. }))
        .expect("a result");
    let told = messages[waits..]
        .iter()
        .filter_map(|message| match message {
            Message::System { text } => Some(text.clone()),
            _ => None,
        });
    told.collect()
}

const NOT_RUN: &str = "The user did not confirm pay: it was not run.";

#[test]
fn the_model_is_told_that_a_plans_question_has_expired() {
    let mut sim = asked(travel(), &paying());
    assert!(told_not_run(&sim).is_empty());
    sim.silence(60_000);
    assert_eq!(told_not_run(&sim), [NOT_RUN]);
    assert_eq!(names(&sim), ["flights"]);
}

#[test]
fn the_model_is_told_that_a_plans_question_was_talked_over() {
    let mut sim = session(travel(), &paying());
    sim.scripts.push_back(vec![say("As you like."), end()]);
    ask(&mut sim, "find me a seat to oslo", 2_600);
    assert_eq!(sim.spoken().last().unwrap(), "Pay 80 dollars?");
    ask(&mut sim, "what time is it", 6_000);
    assert_eq!(told_not_run(&sim), [NOT_RUN]);
}

#[test]
fn without_a_yes_the_rest_of_the_plan_never_runs() {
    for words in ["No.", "What time is it?"] {
        let mut sim = asked(travel(), &paying());
        ask(&mut sim, words, 4_000);
        ask(&mut sim, "Yes.", 4_000);
        assert_eq!(names(&sim), ["flights"], "{words}");
        let told = format!("{:?}", sim.core.history.messages());
        assert!(told.contains("The user did not confirm pay: it was not run."));
    }
}

#[test]
fn a_plan_that_begins_with_a_question_joins_the_history_after_the_yes() {
    let steps = json!([
        step("paid", "pay", json!({"amount": 5})),
        step("told", "notify", json!({"text": "$paid"})),
    ]);
    let mut sim = asked(travel(), &steps);
    assert_eq!(sim.spoken(), ["Let me look.", "Pay 5 dollars?"]);
    assert!(histories_calls(&sim).is_empty());
    ask(&mut sim, "Yes.", 6_000);
    assert_eq!(names(&sim), ["pay", "notify"]);
    assert_eq!(histories_calls(&sim), [json!({ "steps": steps })]);
    assert_eq!(results(&sim).len(), 1);
}

#[test]
fn one_plan_asks_twice_if_two_steps_need_a_yes() {
    let steps = json!([
        step("first", "pay", json!({"amount": 1})),
        step("second", "pay", json!({"amount": 2})),
    ]);
    let mut sim = asked(travel(), &steps);
    ask(&mut sim, "Yes.", 5_000);
    assert_eq!(names(&sim), ["pay"]);
    assert_eq!(sim.spoken().last().unwrap(), "Pay 2 dollars?");
    ask(&mut sim, "Yes.", 5_000);
    assert_eq!(names(&sim), ["pay", "pay"]);
    assert_eq!(results(&sim).len(), 2);
}

#[test]
fn a_call_beside_a_plan_that_asks_is_put_off_however_fast_the_plans_reads_are() {
    for tool_ms in [0, 500, 3_000] {
        let mut sim = session(travel(), &paying());
        sim.tool_ms = tool_ms;
        let script = sim.scripts.front_mut().unwrap();
        let end = script.pop().unwrap();
        script.push(Step::Wait(1_000));
        script.extend(call_with("pay", json!({"amount": 5})));
        script.push(end);
        ask(&mut sim, "find me a seat to oslo", 12_000);
        assert_eq!(sim.spoken().last().unwrap(), "Pay 80 dollars?");
        let put_off = "A call of pay was not run: only one call at a time can wait for the user's yes: call it again \
                       after that one";
        let told = format!("{:?}", sim.core.history.messages());
        assert_eq!(told.matches(put_off).count(), 1, "{told}");
        ask(&mut sim, "Yes.", 12_000);
        assert_eq!(names(&sim), ["flights", "pay", "notify"]);
    }
}

#[test]
fn a_barge_in_ends_the_rest_of_the_plan() {
    let mut sim = session(
        travel(),
        &json!([
            step("flights", "flights", json!({})),
            step("booked", "book", json!({"flight": "$flights[0].id"})),
        ]),
    );
    sim.tool_ms = 3_000;
    ask(&mut sim, "find me a seat to oslo", 1_200);
    assert_eq!(names(&sim), ["flights"]);
    ask(&mut sim, "no wait", 10_000);
    assert_eq!(
        names(&sim),
        ["flights"],
        "what was running ran on, and nothing else began"
    );
    let expected =
        json!({"error": "the answer was stopped, and the plan with it", "done": ["flights"]});
    assert_eq!(only_result(&sim), expected);
    assert!(sim.core.running.calls.is_empty());
    sim.scripts.push_back(planned(&seats()));
    ask(&mut sim, "then find me a seat", 12_000);
    assert_eq!(results(&sim).len(), 2, "another plan may follow");
}

/// The answer to the user's words did not know that the plan was over.
#[test]
fn the_answer_after_a_barge_in_knows_what_became_of_the_plan() {
    let mut sim = session(
        travel(),
        &json!([
            step("flights", "flights", json!({})),
            step("booked", "book", json!({"flight": "$flights[0].id"})),
        ]),
    );
    sim.tool_ms = 1_000;
    ask(&mut sim, "find me a seat to oslo", 500);
    sim.speak("no wait, don't book it", 1_500);
    sim.silence(4_000);
    assert_eq!(names(&sim), ["flights"]);
    let prompt = format!("{:?}", sim.prompts.last().unwrap().messages);
    assert!(prompt.contains("the answer was stopped"), "{prompt}");
}

#[test]
fn noise_while_a_plan_runs_does_not_end_it() {
    let mut sim = session(
        travel(),
        &json!([
            step("flights", "flights", json!({})),
            step("booked", "book", json!({"flight": "$flights[0].id"})),
        ]),
    );
    sim.tool_ms = 1_500;
    ask(&mut sim, "book me a flight to oslo", 700);
    assert_eq!(names(&sim), ["flights"]);
    sim.speak("", 300);
    sim.silence(10_000);
    assert_eq!(names(&sim), ["flights", "book"]);
    assert_eq!(only_result(&sim), json!({"booking": "QX7"}));
}

/// Flights are looked up, and one is booked.
fn booking() -> Value {
    json!([
        step("flights", "flights", json!({})),
        step("booked", "book", json!({"flight": "$flights[0].id"})),
    ])
}

/// A plan and another call in one answer.
fn beside(policy: Policy, other: &str) -> Sim {
    let mut sim = session(policy, &booking());
    sim.scripts.clear();
    let mut script = vec![say("Let me book it for you, and then goodbye. ")];
    script.extend(call_with(PLAN, json!({ "steps": booking() })));
    script.extend(call(other));
    script.push(end());
    sim.scripts.push_back(script);
    sim.tool_ms = 1_500;
    sim
}

#[test]
fn a_cough_beside_a_goodbye_does_not_end_the_plan() {
    let mut sim = beside(travel(), "hang_up");
    ask(&mut sim, "book me a flight to oslo and goodbye", 700);
    assert_eq!(names(&sim), ["flights"]);
    sim.speak("", 300);
    sim.silence(12_000);
    assert_eq!(names(&sim), ["flights", "book"]);
    assert_eq!(only_result_of(&sim, PLAN), json!({"booking": "QX7"}));
    assert_eq!(sim.hung_up, Some(HangUpReason::AgentEnded));
}

#[test]
fn words_beside_a_goodbye_end_the_plan() {
    let mut sim = beside(travel(), "hang_up");
    ask(&mut sim, "book me a flight to oslo and goodbye", 700);
    ask(&mut sim, "no wait", 12_000);
    assert_eq!(names(&sim), ["flights"]);
    assert_eq!(sim.hung_up, None);
    assert!(sim.core.running.calls.is_empty());
}

#[test]
fn a_cough_beside_a_clients_call_does_not_end_the_plan() {
    let mut sim = beside(travel(), "own");
    sim.client_has(&["own"]);
    ask(&mut sim, "book me a flight to oslo", 700);
    assert_eq!(names(&sim), ["flights"]);
    sim.speak("", 300);
    sim.silence(12_000);
    assert_eq!(names(&sim), ["flights", "book"]);
    assert_eq!(only_result_of(&sim, PLAN), json!({"booking": "QX7"}));
    assert_eq!(sim.prompts.len(), 1, "the client requests the next answer");
    assert!(sim.core.running.calls.is_empty());
}

#[test]
fn a_failed_answer_ends_the_rest_of_the_plan() {
    let mut sim = session(
        travel(),
        &json!([
            step("flights", "flights", json!({})),
            step("booked", "book", json!({"flight": "$flights[0].id"})),
        ]),
    );
    sim.tool_ms = 2_000;
    sim.tts_fails.insert("Let me look.".into());
    ask(&mut sim, "book me a flight to oslo", 10_000);
    assert_eq!(sim.ended(), [ResponseStatus::Failed]);
    assert_eq!(names(&sim), ["flights"]);
    assert!(sim.core.running.calls.is_empty());
}

#[test]
fn without_the_setting_there_are_no_plans() {
    let mut policy = travel();
    policy.briefing.plans = false;
    let sim = asked(policy, &seats());
    assert!(sim.prompts[0].tools.iter().all(|tool| tool.name != PLAN));
    assert_eq!(names(&sim), [PLAN], "it is a tool that does not exist");
    let on = asked(travel(), &seats());
    assert!(on.prompts[0].tools.iter().any(|tool| tool.name == PLAN));
}

#[test]
fn what_a_plan_cannot_do_is_refused_before_its_first_step() {
    let first = step("flights", "flights", json!({}));
    for (tool, error) in [
        (
            "hang_up",
            "step 2, hang_up: it ends the conversation, so it is no step of a plan: call it alone",
        ),
        (
            "transfer_to_agent",
            "step 2, transfer_to_agent: it hands the conversation over, so it is no step of a plan: call it alone",
        ),
        (
            "own",
            "step 2, own: the client runs it, so it is no step of a plan: call it alone",
        ),
        ("nothing", "step 2, nothing: there is no tool named nothing"),
        (PLAN, "step 2, plan: a plan is no step of a plan"),
    ] {
        let mut sim = session(travel(), &json!([first, step("second", tool, json!({}))]));
        sim.client_has(&["own"]);
        ask(&mut sim, "find me a seat", 5_000);
        assert!(names(&sim).is_empty(), "{tool}");
        assert_eq!(only_result(&sim), json!({ "error": error }));
    }
}

#[test]
fn the_tools_that_cannot_be_steps_are_not_offered_as_such() {
    let sim = asked(travel(), &seats());
    let plan = sim.prompts[0]
        .tools
        .iter()
        .find(|tool| tool.name == PLAN)
        .expect("it is offered");
    let steps = &plan.parameters["properties"]["steps"]["items"]["properties"];
    let names = json!([
        "flights", "seats", "weather", "failing", "book", "notify", "pay"
    ]);
    assert_eq!(steps["tool"]["enum"], names);
}

#[test]
fn a_clients_tool_of_that_name_takes_the_place_of_plans() {
    let mut sim = session(travel(), &seats());
    sim.client_has(&[PLAN]);
    ask(&mut sim, "find me a seat", 3_000);
    assert!(names(&sim).is_empty());
    assert!(sim.saw(
        |event| matches!(event, Event::ToolCalled { by_client: true, name, .. } if name == PLAN)
    ));
    let offered = sim.prompts[0].tools.iter().filter(|tool| tool.name == PLAN);
    assert_eq!(offered.count(), 1);
}

/// Also if the first is over before it comes: the outcome must not depend on that.
#[test]
fn a_second_plan_of_one_answer_is_refused() {
    for tool_ms in [0, 500] {
        let mut sim = session(travel(), &seats());
        sim.tool_ms = tool_ms;
        let mut script = call_with(PLAN, json!({"steps": seats()})).to_vec();
        script.push(Step::Wait(100));
        script.extend(call_with(PLAN, json!({"steps": seats()})));
        script.push(end());
        sim.scripts = [script].into();
        ask(&mut sim, "find me a seat", 8_000);
        let results = results(&sim);
        assert_eq!(results[0].1, json!(["12A", "14C"]));
        let error =
            "only one plan at a time: call it again when the result of the other one is there";
        assert_eq!(results[1].1, json!({ "error": error }));
    }
}

#[test]
fn a_fixed_argument_of_a_step_is_dropped_like_that_of_a_call() {
    let mut policy = travel();
    let mut balance = (*tool("balance", Effect::Read)).clone();
    balance.fixed = vec!["account".into()];
    policy.tools = Arc::new(vec![Arc::new(balance)]);
    let sim = asked(
        policy,
        &json!([step(
            "mine",
            "balance",
            json!({"account": "other", "day": 1})
        )]),
    );
    assert_eq!(starts(&sim)[0].2, json!({"day": 1}));
    assert_eq!(
        histories_calls(&sim)[0]["steps"][0]["arguments"],
        json!({"day": 1})
    );
}

#[test]
fn a_step_waits_for_the_result_that_the_server_sets_its_argument_from() {
    let mut policy = travel();
    let mut find = (*tool("find", Effect::Read)).clone();
    let mut balance = (*tool("balance", Effect::Read)).clone();
    find.feeds = true;
    (balance.fixed, balance.takes) = (vec!["account".into()], vec!["find".into()]);
    policy.tools = Arc::new(vec![Arc::new(find), Arc::new(balance)]);
    let steps = json!([
        step("who", "find", json!({})),
        step("mine", "balance", json!({}))
    ]);
    let sim = asked(policy, &steps);
    assert_eq!(names(&sim), ["find", "balance"]);
    let last = sim
        .outputs
        .iter()
        .rev()
        .find_map(|(_, output)| match output {
            Output::StartTool { taken, .. } => Some(taken.clone()),
            _ => None,
        });
    assert!(last.is_some_and(|taken| taken.contains_key("find")));
    // What only the server needs is not the plan's result.
    assert_eq!(results(&sim)[0].1.get("who"), None);
}

#[test]
fn a_client_may_delete_the_item_of_a_step_or_add_one_behind_it() {
    let mut sim = asked(travel(), &seats());
    let before = sim.core.history.messages();
    let steps = sim.events.iter().filter_map(|(_, event)| match event {
        Event::ToolCalled { item, .. } => Some(*item),
        _ => None,
    });
    let steps: Vec<ItemId> = steps.collect();
    assert_eq!(steps.len(), 2);
    sim.input(Input::DeleteItem { item: steps[0] });
    sim.input(Input::AddItem {
        id: None,
        place: Place::After(steps[1]),
        item: NewItem::System {
            text: "Seats are free.".into(),
        },
    });
    assert!(sim.saw(|event| matches!(event, Event::ItemDeleted { item } if *item == steps[0])));
    assert!(!sim.saw(|event| matches!(event, Event::Refused { .. })));
    let mut after = sim.core.history.messages();
    after.retain(|message| !matches!(message, Message::System { .. }));
    assert_eq!(after, before, "the model was told of the plan alone");
}

fn early(policy: &mut Policy, name: &str) {
    let tools = policy.tools.iter().map(|tool| {
        let mut tool = (**tool).clone();
        if tool.spec.name == name {
            tool.speculation.eligibility = Eligibility::Full;
        }
        Arc::new(tool)
    });
    policy.tools = Arc::new(tools.collect());
}

#[test]
fn a_step_takes_over_the_run_that_was_predicted_for_it() {
    let mut policy = travel();
    early(&mut policy, "flights");
    // A held-back answer would start the step by itself.
    policy.speculation.preemptive = false;
    let mut sim = session(policy, &seats());
    sim.router = Box::new(|_| {
        vec![Prediction {
            tool: "flights".into(),
            arguments: json!({"to": "Oslo"}).as_object().cloned().unwrap(),
            confidence: 0.9,
            source: Source::Rule,
            open: Vec::new(),
        }]
    });
    ask(&mut sim, "find me a seat to oslo", 8_000);
    assert_eq!(
        sim.started(),
        [(false, "flights".to_owned()), (true, "seats".to_owned())]
    );
    assert_eq!(only_result(&sim), json!(["12A", "14C"]));
    let runs = &sim.records()[0].runs;
    assert!(
        runs.iter()
            .all(|run| matches!(run.fate, Fate::Committed { .. }))
    );
}

#[test]
fn the_first_steps_of_a_held_back_plan_start_early() {
    let mut policy = travel();
    for name in ["flights", "weather", "seats"] {
        early(&mut policy, name);
    }
    let mut sim = session(
        policy,
        &json!([
            step("flights", "flights", json!({"to": "Oslo"})),
            step("seats", "seats", json!({"flight": "$flights[0].id"})),
            step("weather", "weather", json!({})),
        ]),
    );
    ask(&mut sim, "find me a seat to oslo", 8_000);
    let expected = [(false, "flights"), (false, "weather"), (true, "seats")];
    assert_eq!(
        sim.started(),
        expected.map(|(committed, name)| (committed, name.to_owned()))
    );
    assert_eq!(only_result(&sim)["seats"], json!(["12A", "14C"]));
}

/// The turn that does not use a held-back plan discards what it began.
#[test]
fn a_held_back_plan_that_nobody_hears_commits_nothing() {
    let mut policy = travel();
    early(&mut policy, "flights");
    let mut sim = session(policy, &paying());
    sim.completeness = 0.5;
    sim.speak("what time is it", 1_000);
    sim.silence(350);
    assert_eq!(sim.started(), [(false, "flights".to_owned())]);
    sim.speak("or rather not", 800);
    sim.silence(6_000);
    assert_eq!(sim.started().len(), 1);
    assert!(results(&sim).is_empty());
}

#[test]
fn a_step_with_too_long_a_result_ends_the_plan() {
    let mut sim = session(travel(), &seats());
    sim.results
        .insert("flights".into(), json!([{"id": "x".repeat(70_000)}]));
    ask(&mut sim, "find me a seat", 6_000);
    assert_eq!(names(&sim), ["flights"]);
    let error = only_result(&sim)["error"].to_string();
    assert!(
        error.contains("step 1, flights: its result is too long for a plan"),
        "{error}"
    );
}

/// Otherwise the model would book it again.
#[test]
fn a_change_with_too_long_a_result_is_told_as_done() {
    let booked = step("booked", "book", json!({"flight": "SK1"}));
    let weather = step("weather", "weather", json!({}));
    let told = step("told", "notify", json!({"text": "$booked.booking"}));
    let done = json!({"status": "done; its result was too long"});
    for (second, started, expected) in [
        (
            weather,
            ["book", "weather"].as_slice(),
            json!({"booked": done, "weather": "weather of {}"}),
        ),
        (
            told,
            &["book"],
            json!({
                "done": ["booked"],
                "results": {"booked": done},
                "error": "step 2, `booked.booking`: booked is done, but its result was too long",
            }),
        ),
    ] {
        let mut sim = session(travel(), &json!([booked, second]));
        sim.results
            .insert("book".into(), json!({"booking": "x".repeat(70_000)}));
        ask(&mut sim, "book it", 8_000);
        assert_eq!(names(&sim), started);
        assert_eq!(only_result(&sim).to_string(), expected.to_string());
    }
}

#[test]
fn changes_before_a_step_that_waits_for_a_yes_are_told() {
    let steps = json!([
        step("booked", "book", json!({"flight": "SK1"})),
        step("paid", "pay", json!({"amount": 80})),
    ]);
    let mut sim = asked(travel(), &steps);
    let waiting = only_result(&sim);
    assert_eq!(waiting["done"], json!(["booked"]));
    assert_eq!(waiting["results"], json!({"booked": {"booking": "QX7"}}));
    ask(&mut sim, "No.", 4_000);
    assert_eq!(names(&sim), ["book"]);
    let told = format!("{:?}", sim.core.history.messages());
    assert!(told.contains("QX7"), "the booking is known: {told}");
}

/// An agent with these tools, to whom the session is handed over while a question waits.
fn handed_over(tools: Vec<Arc<Declaration>>) -> Sim {
    let mut sim = asked(travel(), &paying());
    assert_eq!(sim.spoken().last().unwrap(), "Pay 80 dollars?");
    sim.input(Input::Agent(Box::new(Agent {
        briefing: Briefing {
            agent: Some("billing".into()),
            ..Briefing::default()
        },
        tools: Arc::new(tools),
        speaker: Speaker::default(),
        speculation: true,
        max_tokens: None,
    })));
    ask(&mut sim, "Yes.", 8_000);
    sim
}

#[test]
fn after_a_handoff_a_yes_does_not_go_on_with_tools_that_are_gone() {
    let all = travel().tools;
    let without = |name: &str| {
        let others = all.iter().filter(|tool| tool.spec.name != name);
        others.cloned().collect::<Vec<_>>()
    };
    let mut other = without("pay");
    other.push(Arc::new(asking("pay", "Pay the other company?")));
    for (tools, gone) in [
        (Vec::new(), "pay"),
        (without("pay"), "pay"),
        (without("notify"), "notify"),
        (other, "pay"),
    ] {
        let sim = handed_over(tools);
        assert_eq!(names(&sim), ["flights"], "{gone}");
        let error = format!(
            "the tools have changed since then, {gone} among them: no step from paid on has run"
        );
        let all = results(&sim);
        assert_eq!(all.len(), 2);
        assert_eq!(all[1].1, json!({"done": ["flights"], "error": error}));
        assert!(sim.core.running.calls.is_empty());
        assert_eq!(sim.spoken().last().unwrap(), "All right.");
    }
    // The same declarations may be those of another agent.
    let same = all.iter().map(|tool| Arc::new((**tool).clone()));
    assert_eq!(
        names(&handed_over(same.collect())),
        ["flights", "pay", "notify"]
    );
}

#[test]
fn a_long_wait_within_a_plan_is_filled() {
    let mut policy = travel();
    let tools = policy.tools.iter().map(|tool| {
        let mut tool = (**tool).clone();
        tool.fillers.short = vec![format!("I ask for {}.", tool.spec.name)];
        Arc::new(tool)
    });
    policy.tools = Arc::new(tools.collect());
    let mut sim = session(policy, &seats());
    sim.tool_ms = 3_000;
    sim.scripts = [[
        call_with(PLAN, json!({"steps": seats()})).to_vec(),
        vec![end()],
    ]
    .concat()]
    .into();
    ask(&mut sim, "find me a seat", 12_000);
    assert_eq!(sim.spoken()[0], "I ask for flights.");
    assert_eq!(only_result(&sim), json!(["12A", "14C"]));
}

#[test]
fn a_call_beside_a_plan_has_its_result_as_well() {
    let mut sim = session(travel(), &seats());
    let mut script = call_with(PLAN, json!({"steps": seats()})).to_vec();
    script.extend(call("weather"));
    script.push(Step::Wait(300));
    script.push(end());
    sim.scripts = [script].into();
    ask(&mut sim, "find me a seat", 8_000);
    let results = results(&sim);
    assert_eq!(
        results
            .iter()
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>(),
        [PLAN, "weather"]
    );
    assert_eq!(sim.prompts.len(), 2);
}
