use super::*;

fn timer(seconds: u64, label: Option<&str>) -> Vec<Request> {
    vec![Request::SetTimer {
        seconds: Some(seconds),
        label: label.map(str::to_owned),
    }]
}

fn of(said: &str) -> Vec<Request> {
    read(&text::normalise(said))
}

#[test]
fn reads_timers() {
    assert_eq!(
        of("Set a timer for 10 minutes and 30 seconds."),
        timer(630, None)
    );
    assert_eq!(
        of("set a pasta timer for nine minutes"),
        timer(540, Some("pasta"))
    );
    assert_eq!(
        of("Set a 10-minute timer for the eggs"),
        timer(600, Some("eggs"))
    );
    assert_eq!(of("half an hour timer please"), timer(1800, None));
    assert_eq!(
        of("set a timer for 5 minutes no wait 10 minutes"),
        timer(600, None)
    );
    assert_eq!(
        of("remind me to check the oven"),
        vec![Request::SetTimer {
            seconds: None,
            label: Some("check the oven".into()),
        }]
    );
    assert_eq!(
        of("remind me to call bob at 6 pm"),
        vec![Request::Talk(Talk::TimeOfDay)]
    );
    assert_eq!(
        of("remind me in 15 minutes to check the oven"),
        timer(900, Some("check the oven"))
    );
    assert_eq!(of("set two timers for 5 minutes and 10 minutes").len(), 2);
    let two = [timer(300, Some("pasta")), timer(600, Some("eggs"))].concat();
    for said in [
        "Set a pasta timer for five minutes and another one for the eggs for ten minutes.",
        "set a pasta timer for 5 minutes, and one for 10 minutes for the eggs",
    ] {
        assert_eq!(of(said), two, "{said}");
    }
    let two = [timer(300, None), timer(600, None)].concat();
    for said in [
        "Set a timer for five minutes and another for ten minutes.",
        "Set a timer for five minutes and one for ten minutes, please.",
        "Start a five minute timer and another ten minute timer.",
    ] {
        assert_eq!(of(said), two, "{said}");
    }
    assert_eq!(
        of("set a timer for one hour and one minute"),
        timer(3660, None)
    );
    assert_eq!(
        of("set a timer"),
        [Request::SetTimer {
            seconds: None,
            label: None
        }]
    );
    let untimed = |label: Option<&str>| Request::SetTimer {
        seconds: None,
        label: label.map(str::to_owned),
    };
    assert_eq!(of("Set a second timer."), [untimed(None)]);
    assert_eq!(
        of("Set up a second timer for the eggs."),
        [untimed(Some("eggs"))]
    );
    for said in [
        "Set a second timer for ten minutes.",
        "Start a second ten minute timer",
        "Set a second one for ten minutes.",
    ] {
        assert_eq!(of(said), timer(600, None), "{said}");
    }
    assert_eq!(
        of("Set a timer for five minutes and a second one for ten minutes."),
        [timer(300, None), timer(600, None)].concat()
    );
    assert_eq!(
        of("Set a timer for a minute and a second."),
        timer(61, None)
    );
    assert_eq!(of("set a timer for 7 am"), [Request::Talk(Talk::TimeOfDay)]);
    assert_eq!(
        of("cancel the 5 minute timer"),
        [Request::CancelTimer(Target::Seconds(300))]
    );
    assert_eq!(of("cancel my timers"), [Request::CancelTimer(Target::All)]);
    assert_eq!(
        of("stop the pasta timer"),
        [Request::CancelTimer(Target::Label("pasta".into()))]
    );
    assert_eq!(
        of("Turn the timer off."),
        [Request::CancelTimer(Target::Only)]
    );
    assert_eq!(of("did I set a timer?"), [Request::ListTimers]);
    assert_eq!(of("my sister set a timer yesterday"), []);
}

/// Only the last one was set, or the last one cancelled.
#[test]
fn none_of_several_timers_is_dropped() {
    let two = [timer(300, None), timer(600, None)].concat();
    for said in [
        "Set two timers, one for 5 and one for 10 minutes.",
        "Set two timers, one for five minutes and one for ten.",
        "Set timers for 5 and 10 minutes.",
        "Set a timer for five and another for ten minutes.",
        "Set a timer for five minutes and another one for ten, please.",
    ] {
        assert_eq!(of(said), two, "{said}");
    }
    let third = timer(900, None);
    assert_eq!(
        of("Set timers for 5, 10 and 15 minutes"),
        [two, third].concat()
    );
    let same = [timer(600, None), timer(600, None)].concat();
    for said in [
        "Set two timers for ten minutes.",
        "set two ten minute timers",
    ] {
        assert_eq!(of(said), same, "{said}");
    }
    let pasta = [timer(600, Some("pasta")), timer(600, Some("pasta"))].concat();
    assert_eq!(of("Set two pasta timers for ten minutes."), pasta);
    for said in [
        "Set a timer for 5 and 10 minutes.",
        "Set a pasta timer for 5 and an egg timer for 10 minutes.",
        "Set two timers for five minutes and ten.",
    ] {
        assert_eq!(of(said), [Request::Talk(Talk::WhichLength)], "{said}");
    }
    let both = [300, 600].map(|seconds| Request::CancelTimer(Target::Seconds(seconds)));
    for said in [
        "Cancel the 5 and 10 minute timers.",
        "cancel the five minute and the ten minute timer",
    ] {
        assert_eq!(of(said), both, "{said}");
    }
}

#[test]
fn a_reason_or_a_subject_neither_refuses_nor_reports() {
    for (said, seconds, label) in [
        (
            "Set a timer for ten minutes so I don't forget the pizza.",
            600,
            None,
        ),
        (
            "Set a ten minute timer so that nobody burns the cake",
            600,
            None,
        ),
        (
            "Set a timer for ten minutes, so I don't burn the cake.",
            600,
            None,
        ),
        (
            "I was wondering if you could set a timer for ten minutes because I'm baking.",
            600,
            None,
        ),
        (
            "Start a five minute timer, I don't want to burn my tea.",
            300,
            None,
        ),
        (
            "Set a timer for ten minutes and don't let me forget the pasta",
            600,
            None,
        ),
        (
            "Remind me in ten minutes, I have to call my mom.",
            600,
            Some("call my mom"),
        ),
        (
            "Remind me in ten minutes not to forget the laundry.",
            600,
            Some("laundry"),
        ),
        (
            "Remind me in ten minutes to not forget my laundry.",
            600,
            Some("laundry"),
        ),
        (
            "Remind me never to do that in ten minutes",
            600,
            Some("never to do that"),
        ),
        (
            "Remind me not to forget the laundry in ten minutes.",
            600,
            Some("laundry"),
        ),
        (
            "Remind me in ten minutes to call mom or dad",
            600,
            Some("call mom or dad"),
        ),
        ("Remind me in an hour not to eat", 3600, Some("not to eat")),
        (
            "Remind me in ten minutes to call my mom.",
            600,
            Some("call my mom"),
        ),
        (
            "Can you remind me to call my mom in ten minutes?",
            600,
            Some("call my mom"),
        ),
        ("Set a ten minute timer for my wife.", 600, Some("wife")),
        ("I need a ten minute timer for my wife", 600, Some("wife")),
        (
            "Remind me to check if the oven is off in 10 minutes.",
            600,
            Some("check if the oven is off"),
        ),
        (
            "Set a timer for twenty minutes because the cake is in the oven.",
            1200,
            None,
        ),
        (
            "Set a timer for ten minutes so I don't forget it.",
            600,
            None,
        ),
        (
            "Remind me in ten minutes to wait for the bus.",
            600,
            Some("wait for the bus"),
        ),
        (
            "Remind me in ten minutes to not forget it.",
            600,
            Some("it"),
        ),
        (
            "Remind me to call my mom in ten minutes because I always forget.",
            600,
            Some("call my mom"),
        ),
        ("Set a timer so I can leave in ten minutes.", 600, None),
        ("Half an hour timer so I don't forget.", 1800, None),
        (
            "Set a ten minute timer and tell me when it's done.",
            600,
            None,
        ),
        (
            "Egg timer for ten minutes so I don't forget.",
            600,
            Some("egg"),
        ),
        ("Set a timer so the eggs cook for ten minutes.", 600, None),
        (
            "Set a timer for ten minutes so the eggs are hard, make it twelve minutes.",
            720,
            None,
        ),
        (
            "Set a timer for ten minutes so I can make it to the train.",
            600,
            None,
        ),
    ] {
        let sentence = text::normalise(said);
        assert!(!is_negated(&sentence) && !is_told(&sentence), "{said}");
        assert_eq!(of(said), timer(seconds, label), "{said}");
    }
    for (said, expected) in [
        ("So I don't forget the pizza.", true),
        ("Because my wife is asleep.", true),
        ("I don't want to burn the cake.", true),
        ("So I don't want it.", false),
        ("I don't want to set it.", false),
        ("So I changed my mind, don't set it.", false),
        ("So what time is it?", false),
        ("I can't remember why, forget it.", false),
        ("So I don't burn it, please don't.", false),
    ] {
        assert_eq!(is_reason(&text::normalise(said)), expected, "{said}");
    }
    for said in [
        "Don't set a timer so I don't forget the pizza.",
        "Set a timer for ten minutes because I'm hungry, no, don't.",
        "Remind me in ten minutes to call my mom, no, never mind.",
        "Set a timer for ten minutes, but don't tell me the time",
        "Never remind me to call my mom.",
        "Set a timer for ten minutes so I don't forget, wait, don't.",
        "Remind me in ten minutes to call my mom, forget it.",
        "Remind me in ten minutes to boil eggs, please don't.",
        "Remind me in ten minutes to boil eggs, skip it.",
        "Remind me in ten minutes to boil eggs, on second thought don't.",
        "Set the timer to half an hour, oh, forget it.",
        "Cancel all timers that are not for pasta, no, don't.",
    ] {
        assert!(is_negated(&text::normalise(said)), "{said}");
    }
    for said in [
        "My sister asked to set a timer",
        "My boss told me to set a timer for ten minutes",
        "If I set a timer for 5 minutes would it ring?",
        "Set a timer for ten minutes if the oven is on",
        "The timer rang because my wife set it for ten minutes",
        "My timer for the eggs was ten minutes.",
        "The timer for the roast was set for two hours.",
        "A timer for the roast was set for two hours.",
        "My timer for ten minutes was too short.",
        "Make a note that my husband set a timer for ten minutes.",
        "Start over, she set a timer for five minutes.",
        "I need help, how do I set a timer for ten minutes?",
        "I want my kids to set a ten minute timer.",
        "Remove the note my wife made about the five minute timer.",
        "Set a timer for ten minutes once the water boils.",
        "Set a timer for ten minutes after she leaves.",
        "Set a timer for ten minutes when my wife gets home.",
    ] {
        assert!(is_told(&text::normalise(said)), "{said}");
        assert_eq!(of(said), [], "{said}");
    }
    let corrected =
        "Set a timer for ten minutes so I don't forget the pizza, I mean fifteen minutes.";
    assert_eq!(of(corrected), timer(900, None));
}

#[test]
fn only_a_name_becomes_the_name_of_a_timer() {
    for (said, seconds, label) in [
        ("Set a timer for five minutes from now.", 300, None),
        ("set a timer for about ten minutes", 600, None),
        (
            "Set a timer for ten minutes, thank you very much.",
            600,
            None,
        ),
        ("Set a timer for five minutes, I'm boiling eggs.", 300, None),
        (
            "Set a timer for five minutes, I have to boil my eggs.",
            300,
            None,
        ),
        ("Set a five minute timer, the pasta has to cook.", 300, None),
        ("Set a timer for the next ten minutes.", 600, None),
        ("Set a timer for one hour fifteen", 4500, None),
        (
            "Set a timer for two minutes thirty for the eggs",
            150,
            Some("eggs"),
        ),
        (
            "set a timer for the eggs for about ten minutes",
            600,
            Some("eggs"),
        ),
        (
            "set a ten minute timer for the eggs, I'm hungry",
            600,
            Some("eggs"),
        ),
        (
            "set a timer called tea for five minutes, thanks a lot",
            300,
            Some("tea"),
        ),
        (
            "Set a timer for ten minutes to boil the eggs",
            600,
            Some("boil the eggs"),
        ),
    ] {
        assert_eq!(of(said), timer(seconds, label), "{said}");
    }
}

#[test]
fn a_day_in_the_subject_is_no_time_for_the_timer() {
    for (said, seconds, label) in [
        (
            "Remind me in 20 minutes to pack for tomorrow.",
            1200,
            Some("pack for tomorrow"),
        ),
        (
            "Set a ten minute timer for my morning coffee.",
            600,
            Some("morning coffee"),
        ),
    ] {
        assert_eq!(of(said), timer(seconds, label), "{said}");
    }
    for said in [
        "set a timer for 7 am",
        "set a timer at 6 pm",
        "set a timer for ten minutes at 6 pm",
        "set a ten minute timer for tomorrow morning",
        "set a timer for tomorrow for 10 minutes",
        "set a timer for 10 minutes until noon",
        "set a timer for ten minutes before noon",
        "Set a twenty minute timer for my nap at 3 pm.",
        "Set a ten minute timer to start at noon.",
        "Set a ten minute timer to start in the morning.",
        "Set a timer for tomorrow morning that lasts ten minutes.",
    ] {
        assert_eq!(of(said), [Request::Talk(Talk::TimeOfDay)], "{said}");
    }
}

#[test]
fn a_running_timer_is_not_changed_by_another() {
    for said in [
        "Add five minutes to my timer.",
        "add another five minutes to the pasta timer",
        "Add five more minutes.",
        "take two minutes off my timer",
        "remove 5 minutes from the timer",
        "put five more minutes on the timer",
        "I need another five minutes on my timer",
        "give me five more minutes on the timer",
        "Give my timer another five minutes.",
        "Extend the timer by ten minutes",
        "replace my timer with a ten minute one",
        "can my timer run five minutes longer",
        "My timer needs five more minutes.",
        "change my timer to 10 minutes",
        "make the timer five minutes longer",
    ] {
        assert_eq!(of(said), [Request::Talk(Talk::FixedLength)], "{said}");
    }
    for said in ["change my timer to 7 am", "Change the timer to noon."] {
        assert_eq!(of(said), [Request::Talk(Talk::TimeOfDay)], "{said}");
    }
    for said in ["add a five minute timer", "put five minutes on the timer"] {
        assert_eq!(of(said), timer(300, None), "{said}");
    }
    for said in [
        "Does my timer have five more minutes?",
        "Which of my timers is longer?",
        "Add one minute.",
        "Take one minute from it.",
        "Make one for two people in thirty minutes.",
    ] {
        assert_eq!(of(said), [], "{said}");
    }
    for said in [
        "Add one minute.",
        "Take one minute from it.",
        "Give it five more minutes.",
        "Put another five minutes on it.",
    ] {
        assert!(changes_it(&text::normalise(said)), "{said}");
    }
    for said in [
        "Cancel all my timers except the pasta one.",
        "cancel all but the pasta timer",
        "Cancel all timers and keep the pasta one.",
        "Cancel all timers but not the pasta one.",
        "Cancel all but one timer.",
        "Cancel all timers but pasta.",
        "Cancel all timers that are not for pasta.",
        "Cancel all my timers that aren't called pasta.",
        "Delete all timers of mine that don't ring.",
    ] {
        assert!(!is_negated(&text::normalise(said)), "{said}");
        assert_eq!(of(said), [Request::Talk(Talk::WhichTimer)], "{said}");
    }
    for (said, target) in [
        ("Cancel all my timers, I have to leave.", Target::All),
        ("Turn off all my timers, I'm about to leave.", Target::All),
        ("Cancel the leave timer.", Target::Label("leave".into())),
    ] {
        assert_eq!(of(said), [Request::CancelTimer(target)], "{said}");
    }
    assert!(!leaves_some("i have to leave") && leaves_some("keep the pasta 1"));
    for said in [
        "set a new one for ten minutes",
        "start another for ten minutes",
        "Set the timer for another ten minutes.",
        "Start the timer for ten more minutes.",
    ] {
        assert_eq!(of(said), timer(600, None), "{said}");
    }
    assert_eq!(
        of("cancel the timer and start the music for ten minutes"),
        [Request::CancelTimer(Target::Only)]
    );
}

#[test]
fn a_question_for_a_rest_names_time_or_a_timer() {
    for said in [
        "How much time do I have?",
        "how much longer",
        "What's left on my timer?",
        "how many minutes are left",
    ] {
        assert_eq!(of(said), [Request::ListTimers], "{said}");
    }
    for said in ["How much do I have?", "What's left?", "What do I have?"] {
        assert_eq!(of(said), [], "{said}");
        assert!(asks_for_rest(&text::normalise(said)), "{said}");
    }
}

#[test]
fn a_timer_is_taken_back_by_it_and_corrected_by_another_length() {
    let it = |said: &str| takes_back_timer(&text::normalise(said), 300, None);
    for said in [
        "Cancel it.",
        "cancel that",
        "stop it please",
        "Can you cancel it?",
        "No, cancel that one.",
        "Turn it off.",
    ] {
        assert_eq!(it(said), Some(Target::Seconds(300)), "{said}");
    }
    for said in [
        "Don't cancel it.",
        "Stop.",
        "Cancel my flight.",
        "Cancel the timer.",
    ] {
        assert_eq!(it(said), None, "{said}");
    }
    let one = |said: &str| which_one(&text::normalise(said), &["eggs"]);
    assert_eq!(
        one("Cancel the ten minute one."),
        Some(Target::Seconds(600))
    );
    assert_eq!(
        one("please stop the eggs one"),
        Some(Target::Label("eggs".into()))
    );
    assert_eq!(one("Cancel the first one."), None);
    let refused = |said: &str| refused_timer(&text::normalise(said), &["eggs"]);
    for (said, target) in [
        ("I don't need the timer anymore.", Some(Target::Only)),
        ("No, forget about the timer, please.", Some(Target::Only)),
        (
            "Never mind the ten minute timer.",
            Some(Target::Seconds(600)),
        ),
        ("Forget the eggs timer.", Some(Target::Label("eggs".into()))),
        ("Forget the kitchen timer.", None),
        ("I don't want to forget the timer.", None),
        ("Don't cancel the timer.", None),
        ("I don't need a timer.", None),
    ] {
        assert_eq!(refused(said), target, "{said}");
    }
    let other = |said: &str| other_length(&text::normalise(said), 300);
    for (said, length) in [
        ("actually make it 10 minutes", Some(600)),
        ("No, I said fifty minutes.", Some(3000)),
        ("make that fifteen", Some(900)),
        ("No, half an hour please.", Some(1800)),
        ("Ten minutes.", None),
        // The timer became one of a second or a minute.
        ("Sorry, one second.", None),
        ("Wait a minute.", None),
        ("No, wait a minute.", None),
        ("Actually, wait a minute.", None),
        ("Oh wait, one second.", None),
        ("Actually, one second.", None),
        ("No, one minute.", Some(60)),
        ("Actually, make it a ten minute timer.", Some(600)),
        ("No, make it a large one.", None),
        ("I said no.", None),
    ] {
        assert_eq!(other(said), length, "{said}");
    }
}

#[test]
fn a_day_is_no_place() {
    for said in [
        "what is the time in Rome on Friday",
        "what time is it in an hour",
        "what time will it be in three hours",
    ] {
        assert_eq!(of(said), [], "{said}");
    }
    let both = [Request::Time(None), Request::Time(Some("Tokyo".into()))];
    assert_eq!(of("What time is it here and in Tokyo?"), both);
    assert_eq!(
        of("what is the time in Tokyo and here"),
        [both[1].clone(), both[0].clone()]
    );
}

#[test]
fn a_negated_question_is_no_refusal() {
    for said in [
        "don't you know what time it is",
        "Why don't you tell me the time?",
        "If you don't mind, what time is it?",
        "can't you tell me the time",
        "I was wondering what time it is",
    ] {
        let sentence = text::normalise(said);
        assert!(!is_negated(&sentence) && !is_told(&sentence), "{said}");
        assert_eq!(of(said), [Request::Time(None)], "{said}");
    }
    let reminded = "Don't forget to set a timer for ten minutes.";
    assert!(!is_negated(&text::normalise(reminded)));
    assert_eq!(of(reminded), timer(600, None));
    for said in [
        "Don't tell me the time.",
        "I don't want to know what time it is",
        "do not forget it",
    ] {
        assert!(is_negated(&text::normalise(said)), "{said}");
    }
}

#[test]
fn small_talk_is_known_by_its_words() {
    for (said, expected) in [
        ("Thanks, that's all.", Some(Talk::Thanks)),
        ("Okay, thanks a lot, that's all.", Some(Talk::Thanks)),
        ("That's all, thank you.", Some(Talk::Thanks)),
        ("Hello there, can you hear me?", Some(Talk::Greeting)),
        ("Hi, I have a question.", Some(Talk::Greeting)),
        ("Hello? Are you there?", Some(Talk::Greeting)),
        ("Hold on a moment, please.", Some(Talk::Stop)),
        ("just a second", Some(Talk::Wait)),
        ("One moment, please.", Some(Talk::Wait)),
        ("Hang on.", Some(Talk::Stop)),
        ("there", None),
        ("", None),
        ("wait for me", None),
    ] {
        assert_eq!(talk(&text::normalise(said)), expected, "{said}");
    }
    assert!(!is_evident(Talk::HowAreYou, "how is the weather today"));
    assert!(is_evident(Talk::HowAreYou, "how are you doing today"));
    assert!(!is_evident(Talk::Goodbye, "what about tomorrow"));
    assert!(is_evident(Talk::Goodbye, "see you tomorrow"));
}

#[test]
fn reads_times_and_units() {
    let at = |place: &str| Request::Time(Some(place.into()));
    assert_eq!(of("What's the time?"), [Request::Time(None)]);
    assert_eq!(
        of("What time is it in Paris and in Tokyo?"),
        [at("Paris"), at("Tokyo")]
    );
    assert_eq!(
        of("could you tell me the time in NYC right now"),
        [at("New York")]
    );
    assert_eq!(of("what timezone is Dallas in"), [at("Dallas")]);
    assert_eq!(of("what time is it in Atlantis"), [at("Atlantis")]);
    assert_eq!(
        of("What's five miles in kilometres?"),
        [Request::Convert {
            value: 5.0,
            from: "miles",
            to: "kilometers"
        }]
    );
    assert_eq!(
        of("how many inches are in a foot"),
        [Request::Convert {
            value: 1.0,
            from: "feet",
            to: "inches"
        }]
    );
    for (said, value, from, to) in [
        (
            "What's minus ten Celsius in Fahrenheit?",
            -10.0,
            "degrees Celsius",
            "degrees Fahrenheit",
        ),
        (
            "negative 40 degrees fahrenheit in celsius",
            -40.0,
            "degrees Fahrenheit",
            "degrees Celsius",
        ),
        (
            "What's 350 degrees in Celsius?",
            350.0,
            "degrees Fahrenheit",
            "degrees Celsius",
        ),
        (
            "20 degrees in Fahrenheit",
            20.0,
            "degrees Celsius",
            "degrees Fahrenheit",
        ),
        (
            "How tall is six foot six in centimeters?",
            6.5,
            "feet",
            "centimeters",
        ),
    ] {
        assert_eq!(of(said), [Request::Convert { value, from, to }], "{said}");
    }
    for (said, places) in [
        (
            "What time is it in England and Japan?",
            ["England", "Japan"],
        ),
        (
            "what time is it in New York and California",
            ["New York", "California"],
        ),
    ] {
        assert_eq!(of(said), places.map(at), "{said}");
    }
    assert_eq!(
        of("what time is it in Trinidad and Tobago"),
        [at("Trinidad and Tobago")]
    );
    assert_eq!(
        of("What time is it in London and can you tell me a joke?"),
        [at("London")]
    );
    assert_eq!(
        of("What time is it in London and how big is Texas?"),
        [at("London")]
    );
    assert_eq!(
        of("what time is it in England and Japan and how are you"),
        [at("England"), at("Japan")]
    );
    assert_eq!(of("what time is it in the state of Texas"), [at("Texas")]);
    assert_eq!(
        of("what time is it in northern California"),
        [at("California")]
    );
    assert_eq!(of("what time does the store open"), []);
}
