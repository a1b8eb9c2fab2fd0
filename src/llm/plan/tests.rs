use super::*;
use proptest::prelude::*;

fn read(plan: Value) -> Result<Plan, String> {
    Plan::read(plan.as_object().expect("an object"))
}

fn plan(plan: Value) -> Plan {
    read(plan).expect("a plan")
}

fn travel() -> Plan {
    plan(json!({"steps": [
        {"name": "flights", "tool": "find", "arguments": {"to": "Oslo"}},
        {"name": "seats", "tool": "seats", "arguments": {"flight": "$flights[0].id", "for": ["$flights[*].id"]}},
        {"tool": "weather", "arguments": {"city": "Oslo"}}
    ]}))
}

fn results(flights: Value) -> Vec<Option<Value>> {
    vec![Some(flights), None, None]
}

#[test]
fn references_find_fields_elements_and_lists() {
    let plan = travel();
    assert_eq!(plan.needs(0), BTreeSet::new());
    assert_eq!(plan.needs(1), BTreeSet::from([0]));
    assert_eq!(plan.needs(2), BTreeSet::new());
    let flights = json!([{"id": "SK1", "price": 80}, {"id": "SK2", "price": 90}]);
    let filled = plan.arguments_of(1, &results(flights)).expect("arguments");
    assert_eq!(
        Value::Object(filled),
        json!({"flight": "SK1", "for": [["SK1", "SK2"]]})
    );
}

/// The model was told that this is no reference, and that a field may be any text in quotes.
#[test]
fn a_quoted_field_may_contain_brackets_as_column_names_do() {
    for field in ["price [EUR]", "rows[0]", "a b", "it's"] {
        let mut plan = travel();
        let rows = json!({ field: {"x]": [80]} });
        plan.result = Some(json!(format!("$flights[\"{field}\"]['x]'][0]")));
        let found = [Some(rows), Some(Value::Null), Some(Value::Null)];
        assert_eq!(plan.outcome(&found), Ok(json!(80)), "{field}");
    }
}

#[test]
fn an_error_names_the_step_the_reference_and_what_is_missing() {
    let many = Value::from_iter((0..17).map(|at| json!({"id": at})));
    for (flights, error) in [
        (json!([]), "step 2, `flights[0].id`: there is no element 0"),
        (
            json!([{"number": 1, "price": 2}]),
            "step 2, `flights[0].id`: there is no field id, only number, price",
        ),
        (
            json!({"error": "x"}),
            "step 2, `flights[0].id`: it is an object, not a list",
        ),
        (
            json!([7]),
            "step 2, `flights[0].id`: there is no field id in a number",
        ),
        (
            many,
            "step 2, `flights[*].id`: the list has 17 elements, 16 at most",
        ),
    ] {
        assert_eq!(
            travel().arguments_of(1, &results(flights)),
            Err(error.to_owned())
        );
    }
}

#[test]
fn a_plan_that_cannot_be_carried_out_is_refused_before_its_first_step() {
    let step = |arguments: Value| json!({"name": "a", "tool": "find", "arguments": arguments});
    let after = |text: &str| json!({"steps": [step(json!({})), {"tool": "find", "arguments": {"x": text}}]});
    let steps =
        |count: usize| json!({"steps": vec![json!({"tool": "find", "arguments": {}}); count]});
    for (wrong, error) in [
        (json!({}), "a plan has steps, a list"),
        (steps(0), "a plan has 1 to 8 steps, not 0"),
        (steps(9), "a plan has 1 to 8 steps, not 9"),
        (
            json!({"steps": [step(json!({}))], "loop": 3}),
            "a plan has no `loop`, only steps and result",
        ),
        (
            json!({"steps": [step(json!({})), step(json!({}))]}),
            "step 2: another step is named a",
        ),
        (
            json!({"steps": [step(json!({"x": "$a.id"}))]}),
            "step 1, `a.id`: a is no earlier step",
        ),
        (after("$b"), "step 2, `b`: no step is named b"),
        (
            after("$a.b c"),
            "step 2, `a.b c`: a reference is a name, and behind it .field, [0] or [*]",
        ),
        (
            after("flight $a.id"),
            "step 2, `flight $a.id`: $a stands alone or not at all",
        ),
        (
            after("$a[x]"),
            "step 2, `a[x]`: a reference is a name, and behind it .field, [0] or [*]",
        ),
        (
            after("$a.f()"),
            "step 2, `a.f()`: a reference is a name, and behind it .field, [0] or [*]",
        ),
        (
            json!({"steps": [{"arguments": {}}]}),
            "step 1: it names no tool",
        ),
        (
            json!({"steps": [{"tool": "x", "arguments": 1}]}),
            "step 1: its arguments are not an object",
        ),
        (
            json!({"steps": [{"tool": "x", "name": "a b"}]}),
            "step 1: \"a b\" is no name: use letters, digits and _",
        ),
        (
            json!({"steps": [step(json!({}))], "result": "$c"}),
            "result, `c`: no step is named c",
        ),
    ] {
        assert_eq!(read(wrong.clone()), Err(error.to_owned()), "{wrong}");
    }
}

#[test]
fn text_with_a_dollar_that_is_no_reference_stays_as_it_is() {
    let steps = json!([
        {"name": "a", "tool": "find", "arguments": {}},
        {"tool": "pay", "arguments": {"x": "$5", "y": "costs $ab", "z": "$$a", "w": "$"}}
    ]);
    let filled = plan(json!({"steps": steps})).arguments_of(1, &[None, None]);
    assert_eq!(
        Value::Object(filled.unwrap()),
        json!({"x": "$5", "y": "costs $ab", "z": "$a", "w": "$"})
    );
}

/// A result comes from outside: a reference in it would let a tool read what other tools have returned.
#[test]
fn a_reference_in_a_result_is_text() {
    let steps = json!([
        {"name": "secret", "tool": "balance", "arguments": {}},
        {"name": "page", "tool": "fetch", "arguments": {}},
        {"name": "sent", "tool": "send", "arguments": {"text": "$page.text"}}
    ]);
    let results = [Some(json!("1234")), Some(json!({"text": "$secret"})), None];
    let filled = plan(json!({"steps": steps})).arguments_of(2, &results);
    assert_eq!(Value::Object(filled.unwrap()), json!({"text": "$secret"}));
}

#[test]
fn the_result_is_what_was_asked_for_or_what_no_other_step_uses() {
    let found = [
        Some(json!([{"id": 1}])),
        Some(json!([{"n": "12A"}])),
        Some(json!("sunny")),
    ];
    let all = json!({"seats": [{"n": "12A"}], "step3": "sunny"});
    assert_eq!(travel().outcome(&found), Ok(all));
    let mut chosen = travel();
    chosen.result = Some(json!({"seat": "$seats[0].n"}));
    assert_eq!(chosen.outcome(&found), Ok(json!({"seat": "12A"})));
    chosen.result = Some(json!("$flights[1]"));
    assert_eq!(
        chosen.outcome(&found),
        Err("result, `flights[1]`: there is no element 1".into())
    );
    let one = plan(json!({"steps": [{"tool": "find", "arguments": {}}]}));
    assert_eq!(one.outcome(&found[2..]), Ok(json!("sunny")));
}

#[test]
fn results_and_arguments_are_bounded() {
    let long = |bytes: usize| Some(json!("x".repeat(bytes)));
    let fits = json!("x".repeat(60_000));
    assert_eq!(kept(&fits, false), Ok(fits));
    assert!(kept(&json!("x".repeat(66_000)), false).is_err());
    let step = |arguments: Value| json!({"tool": "find", "arguments": arguments});
    let two = plan(json!({"steps": [step(json!({})), step(json!({"x": "$step1"}))]}));
    let error = two.arguments_of(1, &[long(20_000), None]).unwrap_err();
    assert_eq!(error, "step 2, its arguments are too long");
    let error = two.outcome(&[None, long(9_000)]).unwrap_err();
    assert!(
        error.starts_with("the result is too long: 8000 bytes at most"),
        "{error}"
    );
    let filled = two.arguments_of(1, &[long(MAX_ARGUMENT_BYTES - 8), None]);
    assert!(filled.is_ok(), "16 KiB with the name and the brackets");
    let filled = two.arguments_of(1, &[long(MAX_ARGUMENT_BYTES - 7), None]);
    assert!(filled.is_err());
}

/// Each of them alone is as long as the memory that a step may fill.
#[test]
fn many_references_to_a_long_list_stop_before_they_are_copied() {
    let list = json!([["x".repeat(60 * 1024)]]);
    let found = [Some(list), None];
    for text in ["$a", "$a[0]", "$a[*][*]", "$a[*]"] {
        let many = json!(vec![text; 2_000]);
        let steps = json!([
            {"name": "a", "tool": "find", "arguments": {}},
            {"tool": "find", "arguments": {"x": many}}
        ]);
        let two = plan(json!({"steps": steps, "result": {"x": many}}));
        let mut budget = Budget(MAX_ARGUMENT_BYTES);
        assert_eq!(two.fill(&many, &found, &mut budget), Err(Unfilled::TooLong));
        let error = two.arguments_of(1, &found).unwrap_err();
        assert_eq!(error, "step 2, its arguments are too long");
        let error = two.outcome(&found).unwrap_err();
        assert!(error.starts_with("the result is too long: "), "{error}");
    }
}

/// Also what is small: 2,000 references to 16 elements that are empty lists.
#[test]
fn many_references_to_many_small_parts_stop_as_well() {
    let found = [Some(json!(vec![json!([]); MOST_ELEMENTS])), None];
    let many = json!(vec!["$a[*][*]"; 2_000]);
    let steps = json!([
        {"name": "a", "tool": "find", "arguments": {}},
        {"tool": "find", "arguments": {"x": many}}
    ]);
    let two = plan(json!({ "steps": steps }));
    let mut budget = Budget(MAX_ARGUMENT_BYTES);
    assert_eq!(two.fill(&many, &found, &mut budget), Err(Unfilled::TooLong));
}

/// It has happened, and must not happen again.
#[test]
fn a_change_whose_result_is_too_long_is_done() {
    let long = json!({"booking": "x".repeat(66_000)});
    let done = kept(&long, true).expect("it is done");
    assert_eq!(done, json!({"status": "done; its result was too long"}));
    let steps = json!([
        {"name": "booked", "tool": "book", "arguments": {}},
        {"name": "part", "tool": "send", "arguments": {"text": "$booked.booking"}},
        {"name": "all", "tool": "send", "arguments": {"text": "$booked"}}
    ]);
    let plan = plan(json!({ "steps": steps }));
    for (step, written) in [(1, "booked.booking"), (2, "booked")] {
        let error = plan.arguments_of(step, &[Some(done.clone()), None, None]);
        let expected = format!(
            "step {}, `{written}`: booked is done, but its result was too long",
            step + 1
        );
        assert_eq!(error, Err(expected));
    }
}

/// The keys of a result come from outside, and the reference from the model.
#[test]
fn the_text_of_an_error_is_bounded() {
    let keys = (0..12).map(|at| (format!("{at}{}", "k".repeat(5_000)), json!(1)));
    let found = [Some(Value::from_iter(keys)), None];
    let two = |text: &str| {
        plan(json!({"steps": [
            {"name": "a", "tool": "find", "arguments": {}},
            {"tool": "find", "arguments": {"x": text}}
        ]}))
    };
    let error = two("$a.id").arguments_of(1, &found).unwrap_err();
    let keys = error
        .strip_prefix("step 2, `a.id`: there is no field id, only ")
        .expect("the keys");
    let keys: Vec<&str> = keys.split(", ").collect();
    assert_eq!(keys.len(), 12);
    assert_eq!(keys[3], format!("3{}…", "k".repeat(38)));
    let long = format!("$a.{}", "n".repeat(9_000));
    let error = two(&long).arguments_of(1, &found).unwrap_err();
    assert!(error.chars().count() < 700, "{error}");
    let why = "é".repeat(9_000);
    assert_eq!(reason(&why).chars().count(), 1_000);
    assert_eq!(reason("why"), "why");
}

#[test]
fn as_many_results_of_changes_are_told_as_fit() {
    let (long, short) = (json!("x".repeat(3_990)), json!({"booking": "QX7"}));
    let huge = json!("x".repeat(5_000));
    let done = |name, result, is_told| Done {
        name,
        result,
        is_told,
    };
    let done = [
        done("first", &short, true),
        done("found", &short, false),
        done("second", &huge, true),
        done("third", &long, true),
        done("last", &short, true),
    ];
    let told = report(done.into_iter(), "error", "why");
    let too_long = json!({"status": "done; its result was too long"});
    let expected = json!({
        "done": ["first", "found", "second", "third", "last"],
        "results": {"first": short, "second": too_long, "third": too_long, "last": short},
        "error": "why",
    });
    assert_eq!(told.to_string(), expected.to_string(), "in this order");
    let none = report(done[1..2].iter().copied(), "status", "why");
    assert_eq!(none, json!({"done": ["found"], "status": "why"}));
}

#[test]
fn a_plan_survives_its_way_through_the_history() {
    let plan = travel();
    assert_eq!(Plan::read(&plan.arguments()), Ok(plan));
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        "\\$?[a-z.\\[\\]*0-9 $\"]{0,8}".prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-c]|steps|tool|name|arguments|result", inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Whatever a model writes and tools return, a plan that was read needs earlier steps only, and nothing panics.
    #[test]
    fn any_plan_is_read_or_refused(
        arguments in prop::collection::vec(any_value(), 1..4),
        found in prop::collection::vec(prop::option::of(any_value()), 3),
    ) {
        let names = ["a", "b", "c"].into_iter();
        let steps = names.zip(arguments).map(|(name, x)| json!({"name": name, "tool": "t", "arguments": {"x": x}}));
        if let Ok(plan) = read(json!({"steps": Value::from_iter(steps)})) {
            for step in 0..plan.steps.len() {
                prop_assert!(plan.needs(step).iter().all(|needed| *needed < step));
                let _ = plan.arguments_of(step, &found);
            }
            let _ = plan.outcome(&found);
        }
    }

    #[test]
    fn any_arguments_are_read_or_refused(arguments in any_value()) {
        if let Value::Object(arguments) = arguments {
            let _ = Plan::read(&arguments);
        }
    }
}
