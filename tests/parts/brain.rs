//! Tests the local brain on sentences that it was not trained on: which tools it calls, what it
//! says, and that it calls nothing unasked.

use crate::common;
use futures_util::StreamExt;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use undertone::asr::{Asr, WhisperOnnx};
use undertone::brain::Brain;
use undertone::llm::{Demands, Llm, LlmEvent, Message, Prompt, ToolChoice};
use undertone::prediction::{ExampleFiles, Settings, Today};
use undertone::tools::{
    CallContext, Clock, Registry, SessionTools, ToolError, ToolSpec, builtin, declared,
};

static BRAIN: LazyLock<Brain> = LazyLock::new(|| started(&TOOLS, Today::default()));

fn started(tools: &Registry, today: Today) -> Brain {
    let files = ExampleFiles {
        embedder: common::weights().join("minilm"),
        cache: None,
    };
    Brain::start(Settings::of(tools, files, today), tools).unwrap()
}

static TOOLS: LazyLock<Registry> = LazyLock::new(|| {
    let mut registry = Registry::new();
    builtin::register(&mut registry).unwrap();
    registry
});

/// Calls as `name {arguments}`, and the words.
#[derive(Debug, Default, PartialEq)]
struct Said {
    unable: bool,
    calls: Vec<(String, Map<String, Value>)>,
    words: String,
}

impl Said {
    fn calls(&self) -> String {
        let one = |(name, arguments): &(String, Map<String, Value>)| {
            format!("{name} {}", Value::Object(arguments.clone()))
        };
        self.calls.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}

async fn generate(messages: &[Message], tools: Arc<Vec<ToolSpec>>) -> Said {
    generate_with(&BRAIN, messages, tools).await
}

/// The call made with the only tool under a forced tool choice.
async fn forced(tool_choice: ToolChoice, said: &str) -> String {
    let city = json!({"type": "object", "properties": {"city": {"type": "string"}},
        "required": ["city"]});
    let tool = ToolSpec {
        examples: Vec::new(),
        name: "record_city".into(),
        description: "Writes down where the user lives".into(),
        parameters: city,
    };
    let prompt = Prompt {
        instructions: None,
        day: None,
        messages: vec![user(said)],
        tools: Arc::new(vec![tool]),
        demands: Demands {
            tool_choice,
            ..Demands::default()
        },
    };
    let events: Vec<_> = BRAIN.generate(prompt).map(Result::unwrap).collect().await;
    let call = events.iter().find_map(|event| match event {
        LlmEvent::ToolClosed { arguments } => Some(json!(arguments.clone().unwrap()).to_string()),
        _ => None,
    });
    call.unwrap_or_else(|| format!("{events:?}"))
}

#[tokio::test]
async fn a_forced_tool_is_called_or_its_missing_argument_is_asked_for() {
    let named = ToolChoice::Function("record_city".into());
    for choice in [named.clone(), ToolChoice::Required] {
        assert_eq!(
            forced(choice, "I live in Paris.").await,
            r#"{"city":"Paris"}"#
        );
    }
    let asked = forced(named, "I live far away.").await;
    assert!(asked.contains("For that I need the city"), "{asked}");
}

async fn generate_with(brain: &Brain, messages: &[Message], tools: Arc<Vec<ToolSpec>>) -> Said {
    generate_in(brain, None, messages, tools).await
}

async fn generate_in(
    brain: &Brain,
    language: Option<&str>,
    messages: &[Message],
    tools: Arc<Vec<ToolSpec>>,
) -> Said {
    let prompt = Prompt {
        instructions: None,
        day: None,
        messages: messages.to_vec(),
        tools,
        demands: Demands {
            language: language.map(str::to_owned),
            ..Demands::default()
        },
    };
    let events: Vec<LlmEvent> = brain
        .generate(prompt)
        .map(|event| event.unwrap())
        .collect()
        .await;
    assert_eq!(events.last(), Some(&LlmEvent::End));
    let (mut said, mut name) = (Said::default(), String::new());
    for event in events {
        match event {
            LlmEvent::Speech { text } => said.words.push_str(&text),
            LlmEvent::ToolOpened { name: opened } => name = opened,
            LlmEvent::ToolClosed { arguments } => {
                said.calls.push((name.clone(), arguments.unwrap()))
            }
            LlmEvent::Thinking | LlmEvent::TakesResults { .. } | LlmEvent::GoesOn => {}
            LlmEvent::Unable => said.unable = true,
            LlmEvent::ToolArguments { .. } | LlmEvent::ToolRead { .. } | LlmEvent::End => {}
            LlmEvent::Cut | LlmEvent::Used { .. } => {}
        }
    }
    said
}

fn user(text: &str) -> Message {
    Message::User { text: text.into() }
}

fn agent(text: &str) -> Message {
    Message::Agent {
        text: text.into(),
        interrupted: false,
    }
}

async fn say(text: &str) -> Said {
    generate(&[user(text)], TOOLS.specs()).await
}

/// Holds a conversation with the real tools. Returns the agent's answer to each sentence.
async fn converse(sentences: &[&str]) -> Vec<String> {
    let context = CallContext::new(SessionTools::default(), "key");
    let (mut messages, mut spoken) = (Vec::new(), Vec::new());
    for sentence in sentences {
        messages.push(user(sentence));
        let mut said = generate(&messages, TOOLS.specs()).await;
        while !said.calls.is_empty() {
            for (id, (name, arguments)) in said.calls.iter().enumerate() {
                let output = TOOLS.call(name, arguments.clone(), &context).await;
                let output = output.unwrap_or_else(|error| json!({"error": error.to_string()}));
                let (id, name, arguments) = (id.to_string(), name.clone(), arguments.clone());
                messages.push(Message::ToolCall {
                    id: id.clone(),
                    name: name.clone(),
                    arguments,
                });
                messages.push(Message::ToolResult { id, name, output });
            }
            said = generate(&messages, TOOLS.specs()).await;
        }
        messages.push(agent(&said.words));
        spoken.push(said.words);
    }
    spoken
}

const LIMIT: &str = "I can't do that on my own.";
const TOLD: &str = "I see. I can ";
const REMIND_WHEN: &str = "In how long should I remind you?";

/// Sentences, each with the expected call (`name {json}`) or the beginning of the answer.
const WANTED: &[(&str, &str)] = &[
    ("What time is it?", "get_time {}"),
    ("Hey, what's the time please?", "get_time {}"),
    ("Could you please tell me the time?", "get_time {}"),
    ("Do you happen to know what time it is?", "get_time {}"),
    ("Okay so what time is it now", "get_time {}"),
    ("what's the current time", "get_time {}"),
    ("I'd like to know the time.", "get_time {}"),
    ("Um, what time is it exactly?", "get_time {}"),
    ("How late is it?", "get_time {}"),
    ("have you got the time", "get_time {}"),
    ("What time is it in Tokyo?", r#"get_time {"place":"Tokyo"}"#),
    ("Whats the time in Sydney", r#"get_time {"place":"Sydney"}"#),
    (
        "what time is it over in new york city right now",
        r#"get_time {"place":"New York"}"#,
    ),
    (
        "Tell me the time in L.A.",
        r#"get_time {"place":"Los Angeles"}"#,
    ),
    (
        "What time is it in Washington, D.C.?",
        r#"get_time {"place":"Washington, D.C."}"#,
    ),
    (
        "In Nairobi, what time is it?",
        r#"get_time {"place":"Nairobi"}"#,
    ),
    (
        "Can you check the time in São Paulo?",
        r#"get_time {"place":"Sao Paulo"}"#,
    ),
    (
        "what's the local time in the Netherlands",
        r#"get_time {"place":"the Netherlands"}"#,
    ),
    (
        "what time is it on the east coast",
        r#"get_time {"place":"the East Coast"}"#,
    ),
    (
        "What's the time in Boulder, Colorado?",
        r#"get_time {"place":"Boulder"}"#,
    ),
    (
        "what time zone is Denver in",
        r#"get_time {"place":"Denver"}"#,
    ),
    (
        "What time is it in Paris and in Tokyo?",
        r#"get_time {"place":"Paris"}; get_time {"place":"Tokyo"}"#,
    ),
    (
        "What time is it in Atlantis?",
        r#"get_time {"place":"Atlantis"}"#,
    ),
    ("what is tokyo's time", r#"get_time {"place":"Tokyo"}"#),
    ("What's the date?", "get_time {}"),
    ("What day is it today?", "get_time {}"),
    ("Could you tell me what today's date is?", "get_time {}"),
    ("Which day of the week is it?", "get_time {}"),
    ("what's today's date please", "get_time {}"),
    ("What year is it?", "get_time {}"),
    ("what will the date be tomorrow", "get_time {}"),
    ("What is the date tomorrow?", "get_time {}"),
    ("What time is it and what day is it?", "get_time {}"),
    (
        "What time is it in New York and what day is it?",
        r#"get_time {"place":"New York"}"#,
    ),
    (
        "What time is it in Rome and what day?",
        r#"get_time {"place":"Rome"}"#,
    ),
    (
        "What time is it in Rome, and what day of the week?",
        r#"get_time {"place":"Rome"}"#,
    ),
    (
        "What's the time in Rome and the date?",
        r#"get_time {"place":"Rome"}"#,
    ),
    (
        "What day is it in Rome and what time?",
        r#"get_time {"place":"Rome"}"#,
    ),
    ("What time is it, and what day?", "get_time {}"),
    (
        "What time is it in Rome, what day?",
        r#"get_time {"place":"Rome"}"#,
    ),
    (
        "What time is it in Rome and which day is today?",
        r#"get_time {"place":"Rome"}"#,
    ),
    (
        "What time is it in Rome? And what day?",
        r#"get_time {"place":"Rome"}"#,
    ),
    (
        "What time and day is it in Rome?",
        r#"get_time {"place":"Rome"}"#,
    ),
    (
        "What day is it, and what time is it in Tokyo?",
        r#"get_time {"place":"Tokyo"}"#,
    ),
    (
        "is it afternoon in London",
        r#"get_time {"place":"London"}"#,
    ),
    ("what time is it if you don't mind", "get_time {}"),
    (
        "what day is it in Auckland",
        r#"get_time {"place":"Auckland"}"#,
    ),
    ("What's 12 times 7?", r#"calculate {"expression":"12 * 7"}"#),
    ("What is 12 x 7?", r#"calculate {"expression":"12 * 7"}"#),
    (
        "how much is fifteen percent of eighty",
        r#"calculate {"expression":"15% of 80"}"#,
    ),
    (
        "What's 20% of $200?",
        r#"calculate {"expression":"20% of 200"}"#,
    ),
    (
        "What's the square root of 144?",
        r#"calculate {"expression":"sqrt(144)"}"#,
    ),
    (
        "two to the power of ten",
        r#"calculate {"expression":"2 ^ 10"}"#,
    ),
    (
        "Can you calculate 1,250 divided by 5?",
        r#"calculate {"expression":"1250 / 5"}"#,
    ),
    (
        "please add 17 and 25",
        r#"calculate {"expression":"17 + 25"}"#,
    ),
    (
        "What's 100 minus 37 plus 2?",
        r#"calculate {"expression":"100 - 37 + 2"}"#,
    ),
    (
        "what is three point five times four",
        r#"calculate {"expression":"3.5 * 4"}"#,
    ),
    (
        "what's 30 percent off 120",
        r#"calculate {"expression":"120 - 30% of 120"}"#,
    ),
    (
        "Subtract 9 from 20.",
        r#"calculate {"expression":"20 - 9"}"#,
    ),
    (
        "what is nine squared",
        r#"calculate {"expression":"9 ^ 2"}"#,
    ),
    ("5+5", r#"calculate {"expression":"5 + 5"}"#),
    (
        "What's an 18% tip on 64 dollars?",
        r#"calculate {"expression":"18% of 64"}"#,
    ),
    (
        "what is twenty one plus nineteen",
        r#"calculate {"expression":"21 + 19"}"#,
    ),
    (
        "Do you know what 8 times 9 is?",
        r#"calculate {"expression":"8 * 9"}"#,
    ),
    (
        "What's 2.5 miles in kilometers?",
        r#"convert_units {"value":2.5,"from":"miles","to":"kilometers"}"#,
    ),
    (
        "five miles in kilometres",
        r#"convert_units {"value":5.0,"from":"miles","to":"kilometers"}"#,
    ),
    (
        "Convert 10 pounds to kilograms.",
        r#"convert_units {"value":10.0,"from":"pounds","to":"kilograms"}"#,
    ),
    (
        "how many inches are in 3 feet",
        r#"convert_units {"value":3.0,"from":"feet","to":"inches"}"#,
    ),
    (
        "How many ounces are there in a pound?",
        r#"convert_units {"value":1.0,"from":"pounds","to":"ounces"}"#,
    ),
    (
        "what is 72 degrees Fahrenheit in Celsius",
        r#"convert_units {"value":72.0,"from":"degrees Fahrenheit","to":"degrees Celsius"}"#,
    ),
    (
        "What's 30 celsius in fahrenheit?",
        r#"convert_units {"value":30.0,"from":"degrees Celsius","to":"degrees Fahrenheit"}"#,
    ),
    (
        "can you convert two cups into milliliters",
        r#"convert_units {"value":2.0,"from":"cups","to":"milliliters"}"#,
    ),
    (
        "how far is 10 kilometers in miles",
        r#"convert_units {"value":10.0,"from":"kilometers","to":"miles"}"#,
    ),
    (
        "how many minutes are in 3 hours",
        r#"convert_units {"value":3.0,"from":"hours","to":"minutes"}"#,
    ),
    (
        "Please turn 70 kilos into pounds",
        r#"convert_units {"value":70.0,"from":"kilograms","to":"pounds"}"#,
    ),
    (
        "60 miles per hour in kilometers per hour",
        r#"convert_units {"value":60.0,"from":"miles per hour","to":"kilometers per hour"}"#,
    ),
    (
        "how many grams is 8 ounces",
        r#"convert_units {"value":8.0,"from":"ounces","to":"grams"}"#,
    ),
    (
        "Set a timer for 10 minutes.",
        r#"set_timer {"seconds":600}"#,
    ),
    ("Set a 10-minute timer.", r#"set_timer {"seconds":600}"#),
    (
        "set a timer for 10 minutes and 30 seconds",
        r#"set_timer {"seconds":630}"#,
    ),
    (
        "Can you start a timer for half an hour?",
        r#"set_timer {"seconds":1800}"#,
    ),
    (
        "please set me a timer for an hour and a half",
        r#"set_timer {"seconds":5400}"#,
    ),
    ("I need a five minute timer", r#"set_timer {"seconds":300}"#),
    ("timer for 45 seconds", r#"set_timer {"seconds":45}"#),
    (
        "Start a two and a half minute timer",
        r#"set_timer {"seconds":150}"#,
    ),
    (
        "Set a pasta timer for nine minutes.",
        r#"set_timer {"seconds":540,"label":"pasta"}"#,
    ),
    (
        "Set a timer for 12 minutes called laundry",
        r#"set_timer {"seconds":720,"label":"laundry"}"#,
    ),
    (
        "Remind me in 15 minutes to check the oven",
        r#"set_timer {"seconds":900,"label":"check the oven"}"#,
    ),
    (
        "Remind me in 10 minutes to check the time and the weather.",
        r#"set_timer {"seconds":600,"label":"check the time and the weather"}"#,
    ),
    (
        "Remind me to check the oven in 15 minutes.",
        r#"set_timer {"seconds":900,"label":"check the oven"}"#,
    ),
    (
        "Set a timer for ten minutes for the fish and chips.",
        r#"set_timer {"seconds":600,"label":"fish and chips"}"#,
    ),
    (
        "let me know when 20 minutes have passed",
        r#"set_timer {"seconds":1200}"#,
    ),
    (
        "Set another timer for twenty five minutes",
        r#"set_timer {"seconds":1500}"#,
    ),
    (
        "put 12 minutes on the clock",
        r#"set_timer {"seconds":720}"#,
    ),
    (
        "could you set up a timer for one hour please",
        r#"set_timer {"seconds":3600}"#,
    ),
    (
        "I'm making eggs. Set a timer for 6 minutes.",
        r#"set_timer {"seconds":360}"#,
    ),
    (
        "Set a timer for 5 minutes, no wait, 10 minutes.",
        r#"set_timer {"seconds":600}"#,
    ),
    (
        "Set a timer for 5 minutes and tell me the time.",
        r#"set_timer {"seconds":300}; get_time {}"#,
    ),
    (
        "set two timers for 5 minutes and 10 minutes",
        r#"set_timer {"seconds":300}; set_timer {"seconds":600}"#,
    ),
    ("Set a timer.", "For how long"),
    ("can you set a timer for me", "For how long"),
    ("What timers do I have?", "list_timers {}"),
    ("How much time is left on my timer?", "list_timers {}"),
    ("did I set a timer?", "list_timers {}"),
    ("Are there any timers running?", "list_timers {}"),
    ("how long is left on the pasta timer", "list_timers {}"),
    ("list all my timers please", "list_timers {}"),
    ("When does my timer go off?", "list_timers {}"),
    ("is my timer still running", "list_timers {}"),
    ("Cancel the timer.", "cancel_timer {}"),
    ("please stop my timer", "cancel_timer {}"),
    ("Cancel all timers.", r#"cancel_timer {"all":true}"#),
    ("delete both timers", r#"cancel_timer {"all":true}"#),
    (
        "cancel the 5 minute timer",
        r#"cancel_timer {"seconds":300}"#,
    ),
    (
        "Can you remove the pasta timer?",
        r#"cancel_timer {"label":"pasta"}"#,
    ),
    ("turn the timer off please", "cancel_timer {}"),
    ("Hello there!", "Hello!"),
    ("Good morning.", "Hello!"),
    ("How are you doing today?", "All is well"),
    ("Thanks so much for that!", "You're welcome."),
    ("thank you very much", "You're welcome."),
    ("Red my timers.", "list_timers {}"),
    ("Okay, bye now.", "Goodbye!"),
    ("I have to run, talk later", "Goodbye!"),
    ("Who are you?", "I'm undertone's"),
    ("are you a real human being", "I'm undertone's"),
    ("What are you able to do for me?", "I can tell the time"),
    ("What can you do?", "I can tell the time"),
    ("Sorry, what did you just say?", "I have not said anything"),
    ("Stop.", "Okay."),
    ("please be quiet", "Okay."),
    ("Never mind.", "Okay."),
    ("Hello, bye.", "Hello!"),
    (
        "I don't want to know the time, I just wanted to say hello.",
        "Hello!",
    ),
    (
        "I don't want a timer, just tell me the time.",
        "get_time {}",
    ),
    (
        "I don't know the session ID, but the talk was by Harald Kirschner.",
        TOLD,
    ),
    ("I don't think so, it was the other one.", TOLD),
    ("But where is the second one?", LIMIT),
    ("Which door was it on the left?", LIMIT),
    ("Don't do that, please.", "Okay, I won't."),
    (
        "Set a timer for seven a.m.",
        "I can only set a timer for a length",
    ),
    ("Set a timer for 30 hours.", "A timer can run"),
];

/// Sentences that must not lead to a call.
const UNWANTED: &[&str] = &[
    "Don't set a timer.",
    "Please do not set a timer for 10 minutes",
    "I don't want to know the time.",
    "never mind the timer",
    "Don't cancel the timer!",
    "I do not need a timer for five minutes",
    "no timer please",
    "There's no need to convert 5 miles to kilometers.",
    "You don't have to tell me what time it is in Tokyo",
    "I never asked what 12 times 7 is",
    "Set a timer for 10 minutes. Actually, never mind.",
    "Set a timer for 10 minutes. No, don't.",
    "Forget the timer.",
    "I'd rather not set a timer",
    "My sister set a timer yesterday.",
    "My boss told me to set a timer for ten minutes",
    "If I set a timer for 5 minutes would it ring?",
    "How do I set a timer on my phone?",
    "why did my timer stop",
    "I wish I could cancel the timer in my head",
    "what time does the store open",
    "What time is my flight?",
    "when does the movie start in London",
    "how long does it take to get to Paris",
    "I had a great time in Tokyo last summer.",
    "What's the best time to visit Japan?",
    "what day is Christmas on",
    "In 20 minutes I have to leave.",
    "Book me a flight to Boston.",
    "What's the capital of France?",
    "Tell me the weather.",
    "What's the weather in Chicago?",
    "Play some jazz.",
    "Who is the president of France?",
    "I ran 5 miles this morning",
    "she's 5 feet 10 inches tall",
    "It's 30 degrees in Madrid.",
    "the recipe says bake for 45 minutes",
    "set an alarm for 7 am",
    "wake me up at noon",
    "remind me to call mom",
    "Remind me to check the time and the weather.",
    "set the thermostat to 70 degrees",
    "cancel my reservation",
    "stop the music",
    "Transfer 200 dollars to savings",
    "how many dollars is 50 euros",
    "how many people live in India",
    "How old is the universe?",
    "tell me a joke",
    "translate good morning to Spanish",
    "I've told you a hundred times",
    "What time did I wake up?",
    "Is it time for lunch?",
    "The timer on my oven is broken.",
    "that was two days ago",
];

#[tokio::test]
async fn requests_are_carried_out() {
    let mut wrong = Vec::new();
    for (sentence, expected) in WANTED {
        let said = say(sentence).await;
        let called = said.calls();
        let right = called == *expected || (called.is_empty() && said.words.starts_with(expected));
        if !right {
            wrong.push(format!(
                "{sentence}\n    {expected}\n    {called} {:?}",
                said.words
            ));
        }
    }
    println!("{} of {} wanted", WANTED.len() - wrong.len(), WANTED.len());
    println!("{}", wrong.join("\n"));
    assert!(wrong.len() * 20 <= WANTED.len(), "{} wrong", wrong.len());
}

#[tokio::test]
async fn other_sentences_call_nothing() {
    for sentence in UNWANTED {
        let said = say(sentence).await;
        assert_eq!(said.calls(), "", "{sentence}");
        let honest = [LIMIT, TOLD, REMIND_WHEN];
        let harmless = [
            &honest[..],
            &["Okay", "I can only set a timer for a length"],
        ]
        .concat();
        let honest = harmless.iter().any(|start| said.words.starts_with(start));
        assert!(honest, "{sentence}: {}", said.words);
    }
}

/// Sentences whose reason, subject or length must not be mistaken. All have to be right.
const EXACT: &[(&str, &str)] = &[
    (
        "Set a timer for ten minutes so I don't forget the pizza.",
        r#"set_timer {"seconds":600}"#,
    ),
    (
        "Set a timer for ten minutes. I don't want to burn the cake.",
        r#"set_timer {"seconds":600}"#,
    ),
    (
        "Set a timer for ten minutes. So I don't forget the pizza.",
        r#"set_timer {"seconds":600}"#,
    ),
    (
        "Remind me in ten minutes not to forget the laundry.",
        r#"set_timer {"seconds":600,"label":"laundry"}"#,
    ),
    (
        "Remind me in ten minutes to call my mom.",
        r#"set_timer {"seconds":600,"label":"call my mom"}"#,
    ),
    (
        "Remind me to check if the oven is off in 10 minutes.",
        r#"set_timer {"seconds":600,"label":"check if the oven is off"}"#,
    ),
    (
        "Set a timer for twenty minutes because the cake is in the oven.",
        r#"set_timer {"seconds":1200}"#,
    ),
    (
        "Set a timer for five minutes, I'm boiling eggs.",
        r#"set_timer {"seconds":300}"#,
    ),
    (
        "Remind me in 20 minutes to pack for tomorrow.",
        r#"set_timer {"seconds":1200,"label":"pack for tomorrow"}"#,
    ),
    (
        "Set a timer for one hour fifteen.",
        r#"set_timer {"seconds":4500}"#,
    ),
    (
        "Set a timer for an hour and twenty.",
        r#"set_timer {"seconds":4800}"#,
    ),
    (
        "Set a timer for an hour and a quarter, please.",
        r#"set_timer {"seconds":4500}"#,
    ),
    (
        "What time is it in New York and California?",
        r#"get_time {"place":"New York"}; get_time {"place":"California"}"#,
    ),
    (
        "What time is it in the state of Texas?",
        r#"get_time {"place":"Texas"}"#,
    ),
    (
        "What's minus ten Celsius in Fahrenheit?",
        r#"convert_units {"value":-10.0,"from":"degrees Celsius","to":"degrees Fahrenheit"}"#,
    ),
    (
        "What's negative five plus three?",
        r#"calculate {"expression":"-5 + 3"}"#,
    ),
    (
        "350 degrees in Celsius",
        r#"convert_units {"value":350.0,"from":"degrees Fahrenheit","to":"degrees Celsius"}"#,
    ),
    (
        "Cancel all my timers except the pasta one.",
        "I can cancel one timer or all of them. Which timer should I cancel?",
    ),
    (
        "Cancel all my timers, except the pasta one, please.",
        "I can cancel one timer or all of them. Which timer should I cancel?",
    ),
    (
        "Cancel all my timers. Except the pasta one.",
        "I can cancel one timer or all of them. Which timer should I cancel?",
    ),
    (
        "Add five minutes to my timer.",
        "I can't change the length of a timer",
    ),
    (
        "Cancel all timers that are not for pasta.",
        "I can cancel one timer or all of them. Which timer should I cancel?",
    ),
    (
        "Delete all timers of mine that don't ring.",
        "I can cancel one timer or all of them. Which timer should I cancel?",
    ),
    (
        "Cancel all my timers. I have to leave.",
        r#"cancel_timer {"all":true}"#,
    ),
    (
        "Turn off all my timers, I'm about to leave.",
        r#"cancel_timer {"all":true}"#,
    ),
    (
        "Cancel the timer but set a new one for ten minutes.",
        r#"cancel_timer {}; set_timer {"seconds":600}"#,
    ),
    (
        "Set a timer for ten minutes so I don't forget, wait, don't.",
        "Okay, I won't.",
    ),
    (
        "Remind me in ten minutes to call my mom, forget it.",
        "Okay, I won't.",
    ),
    (
        "Remind me in ten minutes to boil eggs, please don't.",
        "Okay, I won't.",
    ),
    (
        "Set a timer for ten minutes. I can't remember why, forget it.",
        "Okay, I won't.",
    ),
    (
        "Set the timer to half an hour, oh, forget it.",
        "Okay, I won't.",
    ),
    (
        "Set the timer for another ten minutes.",
        r#"set_timer {"seconds":600}"#,
    ),
    // The first length was set.
    (
        "Set a timer for five minutes. No, ten minutes.",
        r#"set_timer {"seconds":600}"#,
    ),
    (
        "Set a pasta timer for five minutes. Actually, make it ten.",
        r#"set_timer {"seconds":600,"label":"pasta"}"#,
    ),
    (
        "Set a timer for five minutes. Sorry, I mean ten minutes.",
        r#"set_timer {"seconds":600}"#,
    ),
    (
        "Set a timer for five minutes. Actually, make it a ten minute timer.",
        r#"set_timer {"seconds":600}"#,
    ),
    (
        "Set a timer for five minutes. Sorry, one second.",
        r#"set_timer {"seconds":300}"#,
    ),
    // A timer of one second was set.
    ("Set a second timer.", "For how long"),
    (
        "Set a second timer for ten minutes.",
        r#"set_timer {"seconds":600}"#,
    ),
    (
        "Set a timer for five minutes and a second timer for ten minutes.",
        r#"set_timer {"seconds":300}; set_timer {"seconds":600}"#,
    ),
    // That was taken for a refusal.
    (
        "Don't let me forget the pizza in ten minutes.",
        r#"set_timer {"seconds":600,"label":"pizza"}"#,
    ),
    ("Don't let me forget the pizza.", REMIND_WHEN),
    (
        "Set a timer for ten minutes. Don't let me forget the pizza.",
        r#"set_timer {"seconds":600}"#,
    ),
    (
        "Set a timer for ten minutes and don't let me forget the pizza.",
        r#"set_timer {"seconds":600}"#,
    ),
    (
        "What time is it in Truth or Consequences, New Mexico?",
        r#"get_time {"place":"Truth Or Consequences, New Mexico"}"#,
    ),
    (
        "What time is it in Hong Kong, China?",
        r#"get_time {"place":"Hong Kong"}"#,
    ),
    ("How much do I have?", LIMIT),
    ("What do I have?", "I can tell the time"),
];

#[tokio::test]
async fn reasons_subjects_and_lengths_are_not_mistaken() {
    for (sentence, expected) in EXACT {
        let said = say(sentence).await;
        let called = said.calls();
        let right = called == *expected || (called.is_empty() && said.words.starts_with(expected));
        assert!(right, "{sentence}: {called} {:?}", said.words);
    }
}

#[tokio::test]
async fn declined_requests_are_marked_as_such() {
    for (sentence, unable) in [
        ("Turn on the light in the kitchen.", true),
        ("Who won the World Cup in 1998?", true),
        ("Set a timer for 30 hours.", true),
        ("Add five minutes to my timer.", true),
        ("What is 12 times 12?", false),
        ("Set a timer.", false),
        ("What can you do?", false),
        ("Thank you.", false),
    ] {
        let said = say(sentence).await;
        assert_eq!(said.unable, unable, "{sentence}: {}", said.words);
    }
    let result = |name: &str, output: Value| {
        let (id, name) = ("1".to_owned(), name.to_owned());
        Message::ToolResult { id, name, output }
    };
    let broken = ToolError::Broken("failed to lookup address information".into());
    let failed = result("get_weather", json!({"error": broken.to_string()}));
    let worked = result("get_weather", json!("Sunny, 20 degrees"));
    let old = json!({"room": 7, "already_done": "Tell the user so."});
    for (results, unable, words) in [
        (
            vec![failed.clone()],
            true,
            "Sorry, that is not working right now.",
        ),
        (vec![worked.clone()], false, "Sunny, 20 degrees."),
        (
            vec![result("book_room", old)],
            false,
            "That was already done before. room: 7.",
        ),
        (
            vec![failed, worked],
            false,
            "Sorry, that is not working right now. Sunny, 20 degrees.",
        ),
    ] {
        let messages = [vec![user("What's the weather?")], results].concat();
        let said = generate(&messages, TOOLS.specs()).await;
        assert_eq!((said.unable, said.words.as_str()), (unable, words));
    }
}

#[tokio::test]
async fn carries_on_a_conversation() {
    let spoken = converse(&[
        "Set a timer",
        "Ten minutes.",
        "And a 5 minute timer for the tea",
        "What timers do I have?",
        "Cancel the timer",
        "the 5 minute one",
        "what's 5 miles in kilometers",
        "how about in feet",
        "what's 5 divided by zero",
        "What time is it in Atlantis?",
        "What is 7 times 6?",
        "what did you say",
        "say that again",
        "How tall is five foot eleven in centimeters?",
    ])
    .await;
    let expected = [
        "For how long should I set the timer?",
        "Okay, a 10 minute timer is set.",
        "Okay, a 5 minute timer for tea is set.",
        "You have 2 timers:",
        "Which timer should I cancel?",
        "Okay, the 5 minute timer for tea is cancelled.",
        "5 miles is about 8.05 kilometers.",
        "5 miles is 26,400 feet.",
        "Sorry, that did not work: nothing can be divided by zero.",
        "Sorry, I don't know a place called Atlantis.",
        "7 times 6 is 42.",
        "I said: 7 times 6 is 42.",
        "I said: 7 times 6 is 42.",
        "5 feet 11 inches is 180.34 centimeters.",
    ];
    for (said, expected) in spoken.iter().zip(expected) {
        assert!(said.starts_with(expected), "{said:?}, not {expected:?}");
    }
    let spoken = converse(&["what time is it in Paris", "and in London?"]).await;
    assert!(spoken[0].ends_with("in Paris."), "{spoken:?}");
    assert!(spoken[1].ends_with("in London."), "{spoken:?}");
    // The time was told, and Japan taken for a part of a town's name.
    let dates = [
        "What's the date in Tokyo?",
        "And in New York?",
        "And have you been to Japan?",
    ];
    let spoken = converse(&dates).await;
    assert!(spoken[1].ends_with("in New York."), "{spoken:?}");
    assert!(!spoken[1].contains(':'), "{spoken:?}");
    assert!(!spoken[2].contains("Japan"), "{spoken:?}");
    // A town that is not in the tables.
    let times = ["What time is it in Paris?", "And in Longmont, Colorado?"];
    let spoken = converse(&times).await;
    assert!(spoken[1].contains("in Longmont"), "{spoken:?}");
}

#[tokio::test]
async fn minutes_are_added_to_the_timer_that_was_spoken_of() {
    let fixed = "I can't change the length of a timer";
    answers_begin(&[
        (
            "Set a timer for ten minutes.",
            "Okay, a 10 minute timer is set.",
        ),
        ("Add one minute.", fixed),
        ("Take one minute from it.", fixed),
    ])
    .await;
    let said = say("Add one minute.").await;
    assert!(
        said.calls.is_empty() && !said.words.starts_with(fixed),
        "{}",
        said.words
    );
}

/// The beginnings of the agent's answers to a conversation.
async fn answers_begin(conversation: &[(&str, &str)]) {
    let sentences: Vec<&str> = conversation.iter().map(|(said, _)| *said).collect();
    let spoken = converse(&sentences).await;
    for ((said, expected), answer) in conversation.iter().zip(spoken) {
        assert!(answer.starts_with(expected), "{said}: {answer}");
    }
}

#[tokio::test]
async fn the_last_timer_is_taken_back_and_corrected() {
    let set = (
        "Set a timer for 5 minutes.",
        "Okay, a 5 minute timer is set.",
    );
    let cancelled = "Okay, the 5 minute timer is cancelled.";
    for back in [
        "Cancel it.",
        "cancel that",
        "stop it please",
        "No, cancel that one.",
    ] {
        answers_begin(&[set, (back, cancelled), ("Cancel it.", "Okay.")]).await;
    }
    for back in [
        "I don't need the timer anymore.",
        "Forget the timer.",
        "Never mind the five minute timer.",
    ] {
        answers_begin(&[set, (back, cancelled)]).await;
    }
    for other in ["actually make it 10 minutes", "No, I said ten minutes."] {
        let both = format!("{cancelled} Okay, a 10 minute timer is set.");
        let left = ("What timers do I have?", "You have a 10 minute timer");
        answers_begin(&[set, (other, &both), left]).await;
    }
    answers_begin(&[
        ("Set a timer for 10 minutes.", "Okay, a 10 minute timer"),
        set,
        (
            "Cancel the ten minute one.",
            "Okay, the 10 minute timer is cancelled.",
        ),
    ])
    .await;
    let left = ("What timers do I have?", "You have a 5 minute timer");
    answers_begin(&[set, left, ("Cancel it.", cancelled)]).await;
    answers_begin(&[("Cancel that.", "Okay.")]).await;
    // The timer before was cancelled, and the other set.
    for both in [
        "Set a timer for ten minutes. Oh wait, I don't need the timer.",
        "Set a timer for ten minutes. Cancel that.",
    ] {
        answers_begin(&[set, (both, "Okay"), left]).await;
    }
}

#[tokio::test]
async fn an_answer_to_a_question_neither_corrects_nor_cancels_the_timer_before_it() {
    let five = (
        "Set a timer for 5 minutes.",
        "Okay, a 5 minute timer is set.",
    );
    let another = ("Set another timer.", "For how long");
    let timers = "What timers do I have?";
    let both = (timers, "You have 2 timers");
    let ten = "Okay, a 10 minute timer is set.";
    for answer in ["Oh, ten minutes.", "Make it ten minutes."] {
        answers_begin(&[five, another, (answer, ten), both]).await;
    }
    let one = (timers, "You have a 5 minute timer");
    answers_begin(&[five, another, one]).await;
    answers_begin(&[five, another, ("Cancel that.", "Okay."), one]).await;
    let set = [five, ("Set a timer for 10 minutes.", ten)];
    let which = ("Cancel the timer.", "Which timer should I cancel?");
    for next in [both, ("What time is it?", "It's "), ("Stop.", "Okay.")] {
        answers_begin(&[set[0], set[1], which, next, both]).await;
    }
    let five = "Okay, the 5 minute timer is cancelled.";
    for answer in [
        "The five minute timer.",
        "five minute timer",
        "Turn off the five minute one.",
        "Get rid of the five minute one.",
        "How about the five minute one?",
    ] {
        answers_begin(&[set[0], set[1], which, (answer, five)]).await;
    }
    let none = (timers, "You have no timers");
    for answer in [
        "Can you cancel both?",
        "I want to cancel all of them.",
        "Turn them all off.",
    ] {
        answers_begin(&[set[0], set[1], which, (answer, "Okay"), none]).await;
    }
    // Both were cancelled, or the one of twenty minutes was.
    answers_begin(&[set[0], set[1], which, ("Keep both.", ""), both]).await;
    let twenty = "Okay, a 20 minute timer is set.";
    for another in [
        "Create a new timer for twenty minutes.",
        "Another timer for twenty minutes.",
    ] {
        answers_begin(&[set[0], set[1], which, (another, twenty)]).await;
    }
    let forget = ("Forget the timer.", which.1);
    answers_begin(&[set[0], set[1], forget, both]).await;
    let pasta = (
        "Set a pasta timer for 5 minutes.",
        "Okay, a 5 minute timer for pasta is set.",
    );
    let cancelled = "Okay, the 5 minute timer for pasta is cancelled.";
    answers_begin(&[pasta, set[1], which, ("The pasta timer.", cancelled)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_running_timer_is_kept_as_it_is_unless_it_is_cancelled() {
    let set = (
        "Set a pasta timer for 5 minutes.",
        "Okay, a 5 minute timer for pasta is set.",
    );
    let other = (
        "Set a timer for 10 minutes.",
        "Okay, a 10 minute timer is set.",
    );
    let left = (
        "What's left?",
        "You have a 5 minute timer for pasta with 5 minutes left.",
    );
    answers_begin(&[
        set,
        ("Add five minutes to my timer.", "I can't change the length"),
        left,
        other,
        (
            "Cancel all my timers except the pasta one.",
            "I can cancel one timer or all of them.",
        ),
        (
            "All except the pasta one.",
            "I can cancel one timer or all of them.",
        ),
        (
            "The ten minute one.",
            "Okay, the 10 minute timer is cancelled.",
        ),
        left,
    ])
    .await;
    answers_begin(&[
        other,
        (
            "Cancel the timer and set a new one for five minutes.",
            "Okay, the 10 minute timer is cancelled. Okay, a 5 minute timer is set.",
        ),
    ])
    .await;
}

#[tokio::test]
async fn small_talk_is_answered_as_such() {
    for (said, answer) in [
        ("Thanks, that's all.", "You're welcome."),
        ("Okay, thanks a lot, that's all.", "You're welcome."),
        ("Hello there, can you hear me?", "Hello!"),
        ("Hi, I have a question.", "Hello!"),
        ("Hold on a moment, please.", "Okay."),
        ("I don't understand.", "Sorry?"),
        ("Excuse me", "Sorry?"),
        ("How is the weather today?", LIMIT),
        ("What about tomorrow?", LIMIT),
    ] {
        answers_begin(&[(said, answer)]).await;
    }
}

/// The calls for the last of these utterances, which the earlier ones and their calls precede.
async fn called(sentences: &[&str]) -> String {
    called_in(None, sentences).await
}

async fn called_in(language: Option<&str>, sentences: &[&str]) -> String {
    let mut messages = Vec::new();
    let mut calls = String::new();
    for sentence in sentences {
        messages.push(user(sentence));
        let said = generate_in(&WITH_DECLARED, language, &messages, DECLARED.specs()).await;
        calls = said.calls();
        for (name, arguments) in said.calls {
            let (id, name) = ("1".to_owned(), name);
            let result = (id.clone(), name.clone());
            messages.push(Message::ToolCall {
                id,
                name,
                arguments,
            });
            let (id, name) = result;
            let output = json!({});
            messages.push(Message::ToolResult { id, name, output });
        }
        messages.push(agent("Here you are."));
    }
    calls
}

#[tokio::test]
async fn places_refusals_and_corrections_are_understood_in_their_sentence() {
    for (said, calls) in [
        (
            &["What is the weather in Oslo and what time is it there?"][..],
            r#"get_weather {"place":"Oslo"}; get_time {"place":"Oslo"}"#,
        ),
        (
            &["What's the time and the weather in Madrid?"],
            r#"get_time {"place":"Madrid"}; get_weather {"place":"Madrid"}"#,
        ),
        (
            &["What time is it in Tokyo?", "And what's the date there?"],
            r#"get_time {"place":"Tokyo"}"#,
        ),
        (
            &["What time is it here and in Tokyo?"],
            r#"get_time {}; get_time {"place":"Tokyo"}"#,
        ),
        (
            &["What time is it in pairs"],
            r#"get_time {"place":"Paris"}"#,
        ),
        (
            &["I don't care about the weather, what time is it"],
            "get_time {}",
        ),
        (&["Never mind, what time is it?"], "get_time {}"),
        (&["don't you know what time it is"], "get_time {}"),
        (&["I don't have a watch, what time is it?"], "get_time {}"),
        (&["If you don't mind, what time is it?"], "get_time {}"),
        (&["Not the time, the date please."], "get_time {}"),
        (&["Not the time but the date."], "get_time {}"),
        (
            &["Don't forget to set a timer for ten minutes."],
            r#"set_timer {"seconds":600}"#,
        ),
        (
            &["What's the weather in London? No wait, I mean Leeds."],
            r#"get_weather {"place":"Leeds"}"#,
        ),
        (
            &["What's the weather in London?", "And in Rome?"],
            r#"get_weather {"place":"Rome"}"#,
        ),
        (
            &[
                "Will it rain in London tomorrow?",
                "What about Oslo?",
                "And today?",
            ],
            r#"get_weather {"place":"Oslo","day":"today"}"#,
        ),
        (
            &[
                "What is the weather in Oslo and what time is it there?",
                "And in Rome?",
            ],
            r#"get_weather {"place":"Rome"}; get_time {"place":"Rome"}"#,
        ),
        // The request was dropped.
        (
            &["What time is it in London? Just a second."],
            r#"get_time {"place":"London"}"#,
        ),
        (
            &["What time is it in London?", "No, I meant Berlin."],
            r#"get_time {"place":"Berlin"}"#,
        ),
        (
            &["Can you tell me if I have any meetings tomorrow?"],
            r#"read_calendar {"day":"tomorrow"}"#,
        ),
        (
            &["I was wondering what the weather is like in Denver."],
            r#"get_weather {"place":"Denver"}"#,
        ),
        (
            &["What's the weather in the state of Texas?"],
            r#"get_weather {"place":"Texas"}"#,
        ),
        (
            &["What's the weather in England and Japan?"],
            r#"get_weather {"place":"England"}; get_weather {"place":"Japan"}"#,
        ),
        (
            &["What's the weather in London? And in Paris?"],
            r#"get_weather {"place":"London"}; get_weather {"place":"Paris"}"#,
        ),
        (
            &["What time is it in Tokyo? And in Rome?"],
            r#"get_time {"place":"Tokyo"}; get_time {"place":"Rome"}"#,
        ),
        (&["What is the date in a week?"], "get_time {}"),
        (&["I love the weather in Spain."], ""),
        (&["The weather in Boulder is nice today."], ""),
        (&["What is the weather in Rome on Friday?"], ""),
        (&["What time will it be in Tokyo in three hours?"], ""),
    ] {
        assert_eq!(called(said).await, calls, "{said:?}");
    }
    let friday = [user("What is the weather in Rome next week?")];
    let told = generate_with(&WITH_DECLARED, &friday, DECLARED.specs()).await;
    assert_eq!(
        told.words,
        "I can only look that up for now, today or tomorrow."
    );
}

/// "Dort" and "allí" were taken for here.
#[tokio::test]
async fn there_is_the_place_of_the_call_before_in_every_language() {
    let rome = r#"get_time {"place":"Rome"}"#;
    for (language, sentences) in [
        (
            "en",
            ["What's the weather in Rome?", "What time is it there?"],
        ),
        (
            "de",
            ["Wie ist das Wetter in Rom?", "Und wie spät ist es dort?"],
        ),
        ("es", ["¿Qué tiempo hace en Roma?", "¿Y qué hora es allí?"]),
    ] {
        let calls = called_in(Some(language), &sentences).await;
        assert_eq!(calls, rome, "{sentences:?}");
    }
    let here = [
        "Wie ist das Wetter in Rom?",
        "Sind Sie noch da? Wie spät ist es?",
    ];
    assert_eq!(called_in(Some("de"), &here).await, "get_time {}");
}

/// It was "Miro el tiempo en London."
#[tokio::test]
async fn a_place_has_its_name_in_the_language_of_the_answer() {
    for (language, asked, said) in [
        (
            "de",
            "Wie ist das Wetter in Köln?",
            "Ich sehe nach dem Wetter in Köln.",
        ),
        (
            "es",
            "¿Qué tiempo hace en Londres?",
            "Miro el tiempo en Londres.",
        ),
    ] {
        let tools = DECLARED.specs();
        let heard = generate_in(&WITH_DECLARED, Some(language), &[user(asked)], tools).await;
        assert_eq!(heard.words, said, "{asked}");
    }
}

/// "Abbrechen." and "cancélalo" were acknowledged, and the timer kept running.
#[tokio::test]
async fn the_last_timer_is_taken_back_in_every_language() {
    let of_last = r#"cancel_timer {"seconds":300}"#;
    for (language, set, list, hello, takes_back) in [
        (
            "de",
            "Stell einen Timer auf fünf Minuten.",
            "Welche Timer laufen?",
            "Hallo.",
            ["Abbrechen.", "Nein, brich ihn ab."],
        ),
        (
            "es",
            "Pon un temporizador de cinco minutos.",
            "¿Qué temporizadores hay?",
            "Hola.",
            ["No, cancélalo.", "Cancela."],
        ),
    ] {
        for back in takes_back {
            let calls = called_in(Some(language), &[set, back]).await;
            assert_eq!(calls, of_last, "{back}");
            let calls = called_in(Some(language), &[set, list, back]).await;
            assert_eq!(calls, of_last, "{back}");
            for kept in [&[set, hello, back][..], &[back]] {
                assert_eq!(called_in(Some(language), kept).await, "", "{kept:?}");
            }
        }
    }
    for (language, sentences) in [
        (
            "de",
            [
                "Stell einen Timer auf fünf Minuten.",
                "Ich brauche den Timer nicht mehr.",
            ],
        ),
        (
            "es",
            [
                "Pon un temporizador de cinco minutos.",
                "Ya no necesito el temporizador.",
            ],
        ),
    ] {
        let calls = called_in(Some(language), &sentences).await;
        assert_eq!(calls, "cancel_timer {}", "{sentences:?}");
    }
}

/// Such words were beyond the brain in other languages than English.
#[tokio::test]
async fn the_last_timer_is_corrected_and_one_of_several_cancelled_in_every_language() {
    let both = r#"cancel_timer {"seconds":300}; set_timer {"seconds":600}"#;
    for (language, set, others) in [
        (
            "de",
            "Stell einen Timer auf fünf Minuten.",
            [
                "Nein, ich meinte zehn Minuten.",
                "Nein, zehn.",
                "Mach lieber zehn Minuten daraus.",
            ],
        ),
        (
            "es",
            "Pon un temporizador de cinco minutos.",
            [
                "No, quería decir diez minutos.",
                "No, diez minutos.",
                "Perdón, diez.",
            ],
        ),
    ] {
        for other in others {
            let calls = called_in(Some(language), &[set, other]).await;
            assert_eq!(calls, both, "{other}");
        }
    }
    for (language, set, other) in [
        (
            "de",
            "Stell einen Timer auf fünf Minuten.",
            "Sorry, eine Sekunde.",
        ),
        (
            "de",
            "Stell einen Timer auf fünf Minuten.",
            "Moment, zwei Minuten bitte.",
        ),
        (
            "es",
            "Pon un temporizador de cinco minutos.",
            "Espera un segundo.",
        ),
        (
            "es",
            "Pon un temporizador de cinco minutos.",
            "Perdone, un minuto.",
        ),
    ] {
        let calls = called_in(Some(language), &[set, other]).await;
        assert_eq!(calls, "", "{other}");
    }
    for (language, which, question) in [
        (
            "de",
            "Welchen Timer soll ich beenden?",
            "Welche Timer laufen?",
        ),
        (
            "es",
            "¿Qué temporizador cancelo?",
            "¿Qué temporizadores hay?",
        ),
    ] {
        let messages = [user("Stopp."), agent(which), user(question)];
        let said = generate_in(&BRAIN, Some(language), &messages, TOOLS.specs()).await;
        assert_eq!(said.calls(), "list_timers {}", "{question}");
    }
    for (language, which, answer, target) in [
        (
            "de",
            "Welchen Timer soll ich beenden?",
            "Den auf fünf Minuten.",
            r#"{"seconds":300}"#,
        ),
        (
            "de",
            "Welchen Timer soll ich beenden?",
            "Den für die Pasta, bitte.",
            r#"{"label":"pasta"}"#,
        ),
        (
            "de",
            "Welchen Timer soll ich beenden?",
            "Den Nudeltimer.",
            r#"{"label":"nudel"}"#,
        ),
        (
            "es",
            "¿Qué temporizador cancelo?",
            "El de cinco minutos.",
            r#"{"seconds":300}"#,
        ),
        (
            "es",
            "¿Qué temporizador cancelo?",
            "Todos.",
            r#"{"all":true}"#,
        ),
    ] {
        let messages = [user("Stopp."), agent(which), user(answer)];
        let said = generate_in(&BRAIN, Some(language), &messages, TOOLS.specs()).await;
        assert_eq!(said.calls(), format!("cancel_timer {target}"), "{answer}");
    }
    let which = agent("Welchen Timer soll ich beenden?");
    for answer in ["Wie bitte?", "Nein.", "Stell einen auf fünf Minuten."] {
        let messages = [user("Stopp."), which.clone(), user(answer)];
        let said = generate_in(&BRAIN, Some("de"), &messages, TOOLS.specs()).await;
        assert_eq!(said.calls(), "", "{answer}");
    }
    let nowhere = [
        user("Wie ist das Wetter?"),
        agent("Für welchen Ort?"),
        user("Für keinen."),
    ];
    let said = generate_in(&WITH_DECLARED, Some("de"), &nowhere, DECLARED.specs()).await;
    assert_eq!(said.calls(), "");
    let berlin = called_in(
        Some("de"),
        &["Wie spät ist es in Rom?", "Nein, ich meinte Berlin."],
    );
    assert_eq!(berlin.await, r#"get_time {"place":"Berlin"}"#);
}

#[tokio::test]
async fn messages_in_a_row_are_one_utterance() {
    for said in [
        ["Set a timer for", "ten minutes."],
        ["Set a timer for five minutes.", "No, ten minutes."],
    ] {
        let said = generate(&said.map(user), TOOLS.specs()).await;
        assert_eq!(said.calls(), r#"set_timer {"seconds":600}"#);
    }
}

fn declared(name: &str, description: &str, parameters: Value) -> ToolSpec {
    ToolSpec {
        examples: Vec::new(),
        name: name.into(),
        description: description.into(),
        parameters,
    }
}

#[tokio::test]
async fn a_declared_tool_is_used_when_the_request_is_unambiguous() {
    let weather = declared(
        "get_weather",
        "Get the current weather for a city.",
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}),
    );
    let order = declared(
        "get_order_status",
        "Look up the status of an order by its id.",
        json!({"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}),
    );
    let tools = Arc::new(vec![weather, order]);
    let ask = |messages: Vec<Message>| {
        let tools = tools.clone();
        async move { generate(&messages, tools).await }
    };
    let mut wrong = Vec::new();
    for (sentence, call) in [
        (
            "What's the weather in Boulder?",
            r#"get_weather {"city":"Boulder"}"#,
        ),
        (
            "How is the weather in Smallville today?",
            r#"get_weather {"city":"Smallville"}"#,
        ),
        (
            "Can you tell me the weather for New York City",
            r#"get_weather {"city":"New York"}"#,
        ),
        (
            "What's the status of order 12345?",
            r#"get_order_status {"order_id":"12345"}"#,
        ),
    ] {
        let said = ask(vec![user(sentence)]).await;
        if said.calls() != call || said.words != "One moment." {
            wrong.push(format!("{sentence}: {} {:?}", said.calls(), said.words));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for sentence in [
        "I don't want to check the weather in Boulder",
        "What's the capital of France?",
        "What time is it?",
        "My sister checked the weather in Boston yesterday",
        "Order me a pizza",
        "Hello",
    ] {
        assert_eq!(ask(vec![user(sentence)]).await.calls(), "", "{sentence}");
    }
    let asked = ask(vec![user("What's the weather?")]).await;
    assert_eq!(asked.words, "For that I need the city. Which one?");
    let answered = vec![
        user("What's the weather?"),
        agent(&asked.words),
        user("Paris."),
    ];
    assert_eq!(
        ask(answered).await.calls(),
        r#"get_weather {"city":"Paris"}"#
    );
    let result = ask(vec![
        user("What's the weather in Boulder?"),
        agent("One moment."),
        Message::ToolCall {
            id: "1".into(),
            name: "get_weather".into(),
            arguments: Map::new(),
        },
        Message::ToolResult {
            id: "1".into(),
            name: "get_weather".into(),
            output: json!({"sky": "clear"}),
        },
    ]);
    assert_eq!(result.await.words, "sky: clear.");
}

#[tokio::test]
async fn a_client_tool_with_a_built_in_name_gets_its_declared_arguments() {
    let timer = declared(
        "set_timer",
        "Set a timer that rings after some minutes.",
        json!({"type": "object", "properties": {"minutes": {"type": "integer"}}, "required": ["minutes"]}),
    );
    let said = generate(
        &[user("Set a timer for 5 minutes")],
        Arc::new(vec![timer.clone()]),
    )
    .await;
    assert_eq!(said.calls(), r#"set_timer {"minutes":5}"#);
    let said = generate(&[user("What time is it?")], Arc::new(vec![timer])).await;
    assert_eq!(said.calls(), "");
}

/// Counts the brain's correct and false calls.
#[derive(Debug, Default)]
struct Tally {
    /// Requests that its tools can handle, and how many of them led to a call.
    ours: usize,
    called: usize,
    /// Other requests, and the false calls that they led to.
    others: usize,
    false_calls: Vec<String>,
}

impl Tally {
    async fn add(&mut self, sentence: &str, intent: &str, is_ours: bool) {
        let said = say(sentence).await;
        let calls = !said.calls.is_empty();
        if is_ours {
            self.ours += 1;
            self.called += usize::from(calls);
            return;
        }
        self.others += 1;
        if calls {
            let call = format!("{intent}: {sentence}: {}", said.calls());
            self.false_calls.push(call);
        }
    }

    /// Asserts at most one false call in 200 other requests, and at most `changes` with side
    /// effects in all.
    fn assert_few_false_calls(&self, changes: usize) {
        println!("{self:#?}");
        assert!(
            self.false_calls.len() * 200 <= self.others,
            "more than 0.5 % false calls: {self:#?}"
        );
        let changing = self.false_calls.iter();
        let changing = changing.filter(|call| call.contains("_timer {")).count();
        assert!(changing <= changes, "{self:#?}");
    }
}

#[tokio::test]
async fn our_own_requests_are_called_and_others_are_not() {
    let ours = ["time", "date", "set_timer", "calculate", "convert"];
    let mut tally = Tally::default();
    for line in super::router::REQUESTS.lines() {
        let request: Value = serde_json::from_str(line).unwrap();
        let (text, intent) = (&request["text"], request["intent"].as_str().unwrap());
        let is_ours = ours.contains(&intent);
        tally.add(text.as_str().unwrap(), intent, is_ours).await;
    }
    tally.assert_few_false_calls(0);
    // Measured: 69 of 80.
    assert!(tally.called * 4 >= tally.ours * 3, "{tally:#?}");
}

/// CLINC150: requests that our tools cannot handle must call nothing. Its timer, time, date,
/// calculator and conversion intents may.
#[tokio::test]
#[ignore = "measures a published set: make measure"]
async fn published_requests_for_other_tools_call_nothing() {
    let ours = [
        "timer",
        "time",
        "date",
        "calculator",
        "measurement_conversion",
        "timezone",
    ];
    let file = common::data("router").join("clinc150.json");
    let data: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let mut tally = Tally::default();
    for part in ["oos_train", "oos_val", "val"] {
        for pair in data[part].as_array().unwrap() {
            let (sentence, intent) = (pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
            tally.add(sentence, intent, ours.contains(&intent)).await;
        }
    }
    tally.assert_few_false_calls(3);
}

static DECLARED: LazyLock<Registry> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools");
    let tools = declared::load(&folder, &|_| None).unwrap();
    declared::registry(&tools).unwrap()
});

static WITH_DECLARED: LazyLock<Brain> = LazyLock::new(|| started(&DECLARED, Today::default()));

#[tokio::test]
async fn declared_tools_are_called_by_their_rules_and_examples() {
    let mut wrong = Vec::new();
    for (said, call) in [
        (
            "What's the weather in Boulder?",
            r#"get_weather {"place":"Boulder"}"#,
        ),
        (
            "What's the weather like in New York tomorrow?",
            r#"get_weather {"place":"New York","day":"tomorrow"}"#,
        ),
        (
            "Will it rain in London tomorrow?",
            r#"get_weather {"place":"London","day":"tomorrow"}"#,
        ),
        (
            "what is the forecast for tomorrow in denver",
            r#"get_weather {"place":"Denver","day":"tomorrow"}"#,
        ),
        (
            "What's on my calendar tomorrow?",
            r#"read_calendar {"day":"tomorrow"}"#,
        ),
        (
            "Do I have any meetings on Monday?",
            r#"read_calendar {"day":"Monday"}"#,
        ),
        ("Add a note, buy milk.", r#"add_note {"text":"buy milk"}"#),
        (
            "Please make a note that I don't need eggs.",
            r#"add_note {"text":"I don't need eggs"}"#,
        ),
        (
            "Add call Bob Miller to my notes.",
            r#"add_note {"text":"call Bob Miller"}"#,
        ),
        ("Read my notes.", "read_notes {}"),
        ("What's my account balance?", "get_balance {}"),
        (
            "How much money is in my savings account?",
            r#"get_balance {"account":"savings"}"#,
        ),
        (
            "How much is a hundred dollars in euros?",
            r#"convert_currency {"amount":100,"from":"USD","to":"EUR"}"#,
        ),
        (
            "Convert 20 euros to yen.",
            r#"convert_currency {"amount":20,"from":"EUR","to":"JPY"}"#,
        ),
        (
            "What's the weather in London and Paris?",
            r#"get_weather {"place":"London"}; get_weather {"place":"Paris"}"#,
        ),
        (
            "What's the weather like in Oslo, Rome and Madrid tomorrow?",
            r#"get_weather {"place":"Oslo","day":"tomorrow"}; get_weather {"place":"Rome","day":"tomorrow"}; get_weather {"place":"Madrid","day":"tomorrow"}"#,
        ),
        ("What is the date tomorrow?", "get_time {}"),
        (
            "What time is it, what is 3 plus 4, set a timer for 5 minutes, what's 5 miles in kilometers, and what's the weather in Oslo?",
            r#"get_time {}; calculate {"expression":"3 + 4"}; set_timer {"seconds":300}; convert_units {"value":5.0,"from":"miles","to":"kilometers"}; get_weather {"place":"Oslo"}"#,
        ),
        (
            "How much is $50 in euros?",
            r#"convert_currency {"amount":50,"from":"USD","to":"EUR"}"#,
        ),
        (
            "How many euros is 50 dollars?",
            r#"convert_currency {"amount":50,"from":"USD","to":"EUR"}"#,
        ),
        (
            "How much is 20 Canadian dollars in euros?",
            r#"convert_currency {"amount":20,"from":"CAD","to":"EUR"}"#,
        ),
        (
            "Convert 100 dollars to pounds.",
            r#"convert_currency {"amount":100,"from":"USD","to":"GBP"}"#,
        ),
        (
            "Convert 10 pounds to kilograms.",
            r#"convert_units {"value":10.0,"from":"pounds","to":"kilograms"}"#,
        ),
        ("I don't want to know the weather in Boulder.", ""),
        ("Don't add a note.", ""),
        // Each was noted.
        ("Delete that note.", ""),
        ("Please remove milk from my notes.", ""),
        ("What time is it?", "get_time {}"),
        (
            "What's 5 miles in kilometers?",
            r#"convert_units {"value":5.0,"from":"miles","to":"kilometers"}"#,
        ),
        ("What's the capital of France?", ""),
        ("Tell me a joke.", ""),
    ] {
        let heard = generate_with(&WITH_DECLARED, &[user(said)], DECLARED.specs()).await;
        if heard.calls() != call {
            wrong.push(format!("{said} -> {} {:?}", heard.calls(), heard.words));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let said = [user("Convert 100 dollars to doubloons.")];
    let heard = generate_with(&WITH_DECLARED, &said, DECLARED.specs()).await;
    assert!(!heard.words.contains("need the from"), "{}", heard.words);
    let said = [user("Convert 100 dollars.")];
    let asked = generate_with(&WITH_DECLARED, &said, DECLARED.specs()).await;
    let question = "For that I need the value of '";
    assert!(asked.words.starts_with(question), "{}", asked.words);
    let [first] = said;
    let answered = [first, agent(&asked.words), user("Euros.")];
    let heard = generate_with(&WITH_DECLARED, &answered, DECLARED.specs()).await;
    let call = r#"convert_currency {"amount":100,"from":"USD","to":"EUR"}"#;
    assert_eq!(heard.calls(), call);
}

/// Spoken by other voices, recognised by the shipped recogniser, answered with the shipped tools.
#[tokio::test]
async fn spoken_requests_are_understood() {
    let requests = include_str!("spoken.txt").lines();
    let requests = requests.filter(|line| !line.starts_with('#'));
    let requests: Vec<(&str, &str)> = requests
        .map(|line| line.split_once(" => ").unwrap())
        .collect();
    let mut asr = WhisperOnnx::load(&common::weights().join("whisper-tiny.en")).unwrap();
    let mut wrong = Vec::new();
    let lines: Vec<&str> = requests.iter().map(|(line, _)| *line).collect();
    let clips = common::speech::spoken(&lines.join("\n"));
    for (clip, (line, expected)) in clips.iter().zip(&requests) {
        let heard = asr.transcribe(&clip.samples).unwrap();
        let said = generate_with(&WITH_DECLARED, &[user(&heard)], DECLARED.specs()).await;
        let called = said.calls();
        let right = called == *expected || (called.is_empty() && said.words.starts_with(expected));
        if !right {
            wrong.push(format!(
                "{line}\n    {heard}\n    {called} {:?}",
                said.words
            ));
        }
    }
    println!(
        "{} of {} right",
        requests.len() - wrong.len(),
        requests.len()
    );
    println!("{}", wrong.join("\n"));
    assert!(wrong.len() * 10 <= requests.len(), "{} wrong", wrong.len());
}

#[tokio::test]
async fn results_are_spoken_with_the_declared_template() {
    for (name, arguments, output, expected) in [
        (
            "get_weather",
            json!({"place": "Boulder"}),
            json!({"place": "Boulder", "day": "now", "temperature": 62, "sky": "cloudy"}),
            "It's 62 degrees and cloudy in Boulder.",
        ),
        (
            "get_weather",
            json!({"place": "Boulder", "day": "tomorrow"}),
            json!({"place": "Boulder", "day": "tomorrow", "sky": "rainy", "low": 40, "high": 55, "rain_chance": 80}),
            "Tomorrow in Boulder: rainy, 40 to 55 degrees, with a 80 percent chance of rain.",
        ),
        (
            "read_calendar",
            json!({}),
            json!({"day": "Monday", "events": [{"title": "rent", "all_day": true}, {"title": "lunch", "all_day": false, "start": "12:30 PM"}]}),
            "On Monday you have rent all day and lunch at 12:30 PM.",
        ),
        (
            "read_notes",
            json!({}),
            json!({"notes": ["a", "b"]}),
            "You have 2 notes: a; b.",
        ),
        (
            "add_note",
            json!({"text": "x"}),
            json!({"added": "x", "count": 1}),
            "Okay, I noted: x.",
        ),
        (
            "get_balance",
            json!({}),
            json!({"accounts": [{"name": "checking", "balance": 18.5, "currency": "USD"}, {"name": "savings", "balance": 20, "currency": "USD"}]}),
            "You have 18.50 US dollars in checking and 20 US dollars in savings.",
        ),
        (
            "convert_currency",
            json!({"amount": 100, "from": "USD", "to": "EUR"}),
            json!({"converted": 92.13}),
            "100 US dollars is about 92.13 euros.",
        ),
        (
            "get_weather",
            json!({"place": "Atlantis"}),
            json!({"error": "unknown place: Atlantis"}),
            "Sorry, I don't know a place called Atlantis.",
        ),
    ] {
        let messages = [
            user("go on"),
            Message::ToolCall {
                id: "1".into(),
                name: name.into(),
                arguments: arguments.as_object().cloned().unwrap(),
            },
            Message::ToolResult {
                id: "1".into(),
                name: name.into(),
                output,
            },
        ];
        let heard = generate_with(&WITH_DECLARED, &messages, DECLARED.specs()).await;
        assert_eq!(heard.words, expected);
    }
}

#[tokio::test]
async fn a_client_tool_inherits_nothing_from_a_server_tool_of_the_same_name() {
    let own = ToolSpec {
        examples: Vec::new(),
        name: "get_weather".into(),
        description: "The current weather of a city".into(),
        parameters: json!({"type": "object", "properties": {"city": {"type": "string"}},
            "required": ["city"]}),
    };
    let tools = Arc::new(vec![own]);
    let mut messages = vec![user("What's the weather in Rome?")];
    let asked = generate_with(&WITH_DECLARED, &messages, tools.clone()).await;
    assert_eq!(asked.calls(), r#"get_weather {"city":"Rome"}"#);
    assert_eq!(asked.words, "One moment.");
    messages.push(Message::ToolCall {
        id: "1".into(),
        name: "get_weather".into(),
        arguments: asked.calls[0].1.clone(),
    });
    messages.push(Message::ToolResult {
        id: "1".into(),
        name: "get_weather".into(),
        output: json!({"report": "sunny and 21 degrees"}),
    });
    let told = generate_with(&WITH_DECLARED, &messages, tools).await;
    assert!(
        told.words.contains("sunny and 21 degrees"),
        "{}",
        told.words
    );
}

#[tokio::test]
async fn two_requests_in_one_sentence_are_both_carried_out() {
    let weather = declared(
        "get_weather",
        "The current weather of a city",
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}),
    );
    let with = |others: &Registry| {
        let mut tools = others.specs().to_vec();
        tools.retain(|tool| tool.name != "get_weather");
        tools.push(weather.clone());
        Arc::new(tools)
    };
    let mut wrong = Vec::new();
    let mut check = |said: &str, heard: Said, expected: &str| {
        if heard.calls() != expected {
            wrong.push(format!("{said}\n  {}\n  not {expected}", heard.calls()));
        }
    };
    for (said, calls) in [
        (
            "weather in Oslo and what time is it in Tokyo?",
            r#"get_weather {"city":"Oslo"}; get_time {"place":"Tokyo"}"#,
        ),
        (
            "What time is it in Tokyo, and what's the weather in Smallville?",
            r#"get_time {"place":"Tokyo"}; get_weather {"city":"Smallville"}"#,
        ),
        (
            "What's the weather in St. Louis, what time is it in Tokyo?",
            r#"get_weather {"city":"St. Louis"}; get_time {"place":"Tokyo"}"#,
        ),
        (
            "My name is Bob. What's the weather in Oslo, Norway? And set a timer for 5 minutes and 30 seconds. Thanks!",
            r#"get_weather {"city":"Oslo"}; set_timer {"seconds":330}"#,
        ),
        (
            "What's the weather and what time is it in Tokyo?",
            r#"get_weather {"city":"Tokyo"}; get_time {"place":"Tokyo"}"#,
        ),
        (
            "What's the weather in Oslo and in what mood are you?",
            r#"get_weather {"city":"Oslo"}"#,
        ),
        (
            "What's the weather in Oslo and what time is it? No, never mind.",
            "",
        ),
        ("Don't tell me the weather in Oslo and what time it is.", ""),
        (
            "My sister asked about the weather in Oslo and what time it is.",
            "",
        ),
    ] {
        for (brain, tools) in [(&*BRAIN, with(&TOOLS)), (&*WITH_DECLARED, with(&DECLARED))] {
            check(
                said,
                generate_with(brain, &[user(said)], tools).await,
                calls,
            );
        }
    }
    for (said, calls) in [
        (
            "What's the weather in Oslo and what time is it in Tokyo?",
            r#"get_weather {"place":"Oslo"}; get_time {"place":"Tokyo"}"#,
        ),
        (
            "Set a timer for five minutes and another for ten minutes.",
            r#"set_timer {"seconds":300}; set_timer {"seconds":600}"#,
        ),
        (
            "Set a pasta timer for five minutes and one for the eggs for ten minutes.",
            r#"set_timer {"seconds":300,"label":"pasta"}; set_timer {"seconds":600,"label":"eggs"}"#,
        ),
        (
            "Set a pasta timer for five minutes and an egg timer for ten minutes.",
            r#"set_timer {"seconds":300,"label":"pasta"}; set_timer {"seconds":600,"label":"egg"}"#,
        ),
        (
            "Set a ten minute timer for my wife and tell me the time.",
            r#"set_timer {"seconds":600,"label":"wife"}; get_time {}"#,
        ),
        (
            "Set a ten minute timer for my wife and a five minute timer for my son.",
            r#"set_timer {"seconds":600,"label":"wife"}; set_timer {"seconds":300,"label":"son"}"#,
        ),
        (
            "What time is it in England, France and Japan?",
            r#"get_time {"place":"England"}; get_time {"place":"France"}; get_time {"place":"Japan"}"#,
        ),
        (
            "Cancel the timer and set a new one for ten minutes.",
            r#"cancel_timer {}; set_timer {"seconds":600}"#,
        ),
        (
            "What time is it in England and Japan?",
            r#"get_time {"place":"England"}; get_time {"place":"Japan"}"#,
        ),
        (
            "Add a note: buy milk. What time is it in Tokyo?",
            r#"add_note {"text":"buy milk"}; get_time {"place":"Tokyo"}"#,
        ),
        (
            "What time is it in Tokyo, and add a note to buy milk and eggs.",
            r#"get_time {"place":"Tokyo"}; add_note {"text":"buy milk and eggs"}"#,
        ),
        (
            "Add a note: ask Bob and set a timer.",
            r#"add_note {"text":"ask Bob and set a timer"}"#,
        ),
        // The place was called "London And Can You Tell Me A Joke".
        (
            "What time is it in London and can you tell me a joke?",
            r#"get_time {"place":"London"}"#,
        ),
        (
            "What's the weather in Berlin and how are you?",
            r#"get_weather {"place":"Berlin"}"#,
        ),
    ] {
        let heard = generate_with(&WITH_DECLARED, &[user(said)], DECLARED.specs()).await;
        check(said, heard, calls);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The time in Rome was told.
    let places = [
        "What time is it in London?",
        "What's the weather in Paris and what about Rome?",
    ];
    assert_eq!(
        called_in(None, &places).await,
        r#"get_weather {"place":"Paris"}; get_weather {"place":"Rome"}"#
    );
    let both = [user("What time is it in Berlin and how are you?")];
    let told = generate(&both, TOOLS.specs()).await;
    assert_eq!(told.calls(), r#"get_time {"place":"Berlin"}"#);
    assert!(told.words.starts_with("All is well"), "{}", told.words);

    let said = "What's the weather and what is 5 plus 6?";
    let asked = generate_with(&BRAIN, &[user(said)], with(&TOOLS)).await;
    assert_eq!(asked.calls(), r#"calculate {"expression":"5 + 6"}"#);
    assert!(
        asked.words.starts_with("For that I need the city."),
        "{asked:?}"
    );
    let id = || "1".to_owned();
    let (name, arguments) = asked.calls[0].clone();
    let history = [
        user(said),
        agent(&asked.words),
        Message::ToolCall {
            id: id(),
            name: name.clone(),
            arguments,
        },
        Message::ToolResult {
            id: id(),
            name,
            output: json!({"result": 11}),
        },
        agent("5 plus 6 is 11."),
        user("In Oslo."),
    ];
    let told = generate_with(&BRAIN, &history, with(&TOOLS)).await;
    assert_eq!(told.calls(), r#"get_weather {"city":"Oslo"}"#);
}

#[tokio::test]
async fn a_reminder_without_a_time_is_asked_for_it_and_keeps_its_words() {
    for (request, question, label) in [
        (
            "Remind me to check the time and the weather.",
            REMIND_WHEN,
            "check the time and the weather",
        ),
        (
            "Set a pasta timer.",
            "For how long should I set the timer?",
            "pasta",
        ),
    ] {
        let asked = say(request).await;
        assert_eq!(
            (asked.calls().as_str(), asked.words.as_str()),
            ("", question)
        );
        let history = [user(request), agent(&asked.words), user("In ten minutes.")];
        let told = generate(&history, TOOLS.specs()).await;
        let expected = format!(r#"set_timer {{"seconds":600,"label":"{label}"}}"#);
        assert_eq!(told.calls(), expected);
    }
}

#[tokio::test]
async fn two_unanswered_messages_are_two_requests() {
    let messages = ["Add a note: buy milk", "Who won the World Cup in 1998?"].map(user);
    for messages in [messages.to_vec(), messages.iter().rev().cloned().collect()] {
        let heard = generate_with(&WITH_DECLARED, &messages, DECLARED.specs()).await;
        assert_eq!(heard.calls(), r#"add_note {"text":"buy milk"}"#);
        assert!(heard.words.starts_with(LIMIT), "{}", heard.words);
    }
    let both = ["What time is it?", "Add a note: buy milk."].map(user);
    let heard = generate_with(&WITH_DECLARED, &both, DECLARED.specs()).await;
    let calls = heard.calls();
    assert!(
        calls.contains("get_time {}") && calls.contains("add_note"),
        "{calls}"
    );
    let pieces = ["What's the weather", "in Tokyo right now?"].map(user);
    let heard = generate_with(&WITH_DECLARED, &pieces, DECLARED.specs()).await;
    assert_eq!(heard.calls.len(), 1, "a sentence in pieces: {heard:?}");
    assert!(heard.calls().contains("Tokyo"), "{heard:?}");
}

#[tokio::test]
async fn a_message_whose_answer_was_cancelled_before_its_first_word_is_not_answered_with_the_next()
{
    let cut = Message::Agent {
        text: String::new(),
        interrupted: true,
    };
    let messages = [user("What can you do?"), cut, user("What is 3 plus 4?")];
    let heard = generate(&messages, TOOLS.specs()).await;
    let alone = generate(&messages[2..], TOOLS.specs()).await;
    assert_eq!((heard.calls(), heard.words), (alone.calls(), alone.words));
}

#[tokio::test]
async fn a_message_may_take_back_an_earlier_request() {
    let timer = "Set a timer for ten minutes";
    for later in [
        "Never mind.",
        "Stop.",
        "No.",
        "Cancel that.",
        "No, don't do that.",
    ] {
        let heard =
            generate_with(&WITH_DECLARED, &[timer, later].map(user), DECLARED.specs()).await;
        assert_eq!(heard.calls(), "", "{later}");
        assert!(!heard.words.is_empty(), "{later}");
    }
    let time = [timer, "Never mind.", "What time is it?"].map(user);
    let heard = generate_with(&WITH_DECLARED, &time, DECLARED.specs()).await;
    assert_eq!(heard.calls(), "get_time {}");
    let first = ["Never mind.", timer].map(user);
    let heard = generate_with(&WITH_DECLARED, &first, DECLARED.specs()).await;
    assert!(heard.calls().starts_with("set_timer"), "{heard:?}");
}

#[tokio::test]
async fn a_user_who_has_not_spoken_yet_is_greeted() {
    let tools = || Arc::new(TOOLS.specs().to_vec());
    let note = Message::System {
        text: "Greet the caller.".into(),
    };
    for history in [vec![], vec![note.clone()]] {
        let said = generate(&history, tools()).await;
        assert_eq!(said.words, "Hello! What can I do for you?");
        assert!(said.calls.is_empty());
    }
    let greeted = Message::Agent {
        text: "Hello!".into(),
        interrupted: false,
    };
    let said = generate(&[greeted.clone(), note], tools()).await;
    assert!(said.words.contains("tell the time"), "{}", said.words);
    assert!(said.words.ends_with('?') && said.calls.is_empty());
    let said = generate(&[greeted], tools()).await;
    assert_eq!(said, Said::default(), "nothing is new");
}

/// Pipecat passes typed text on as a system message.
#[tokio::test]
async fn a_system_message_is_answered_only_if_it_asks_something() {
    let note = |text: &str| Message::System { text: text.into() };
    let spoke = || vec![user("What is 2 plus 2?"), agent("2 plus 2 is 4.")];
    let after = async |more: Vec<Message>| {
        let history = [spoke(), more].concat();
        generate(&history, TOOLS.specs()).await
    };
    let said = after(vec![note("What is 5 plus 6?")]).await;
    assert_eq!(said.calls(), r#"calculate {"expression":"5 + 6"}"#);
    let said = after(vec![note("Thanks!")]).await;
    assert!(said.words.contains("welcome"), "{}", said.words);
    for told in [
        "The user did not confirm set_timer: it was not run.",
        "The user has been quiet. Ask whether they want a timer for 5 minutes.",
        "Paris is the capital of France.",
    ] {
        let said = after(vec![note(told)]).await;
        assert!(said.calls.is_empty(), "{told}: {said:?}");
        assert!(said.words.ends_with("What would you like?"), "{told}");
    }
    let said = after(vec![user("What is 5 plus 6?"), note("They like sums.")]).await;
    assert_eq!(said.calls(), r#"calculate {"expression":"5 + 6"}"#);
}

/// On the telephone only a goodbye ends the call.
#[tokio::test]
async fn a_goodbye_hangs_up_if_there_is_a_tool_for_it() {
    let hang_up = declared(
        "hang_up",
        "Ends the telephone call. Only when the caller has said goodbye or asks for it.",
        json!({"type": "object", "properties": {}}),
    );
    let mut tools = (*TOOLS.specs()).clone();
    tools.push(hang_up);
    let tools = Arc::new(tools);
    for leaving in [
        "Goodbye.",
        "Okay, thank you. Bye!",
        "Please hang up.",
        "Thanks, bye bye.",
        "Thank you very much, goodbye.",
        "That's all, bye.",
        "No, that's all, thanks, bye.",
        "Okay, bye now.",
    ] {
        let said = generate(&[user(leaving)], tools.clone()).await;
        assert_eq!(said.calls(), "hang_up {}", "{leaving}");
        assert_eq!(say(leaving).await.calls(), "", "{leaving}");
    }
    for staying in [
        "Can you call my mother?",
        "Don't hang up!",
        "What is the telephone number of the call center?",
        "How do I say goodbye in French?",
        "I will call again later.",
        "That was a good buy.",
        "End the timer.",
    ] {
        let said = generate(&[user(staying)], tools.clone()).await;
        assert!(!said.calls().contains("hang_up"), "{staying}: {said:?}");
    }
    for (language, said, calls) in [
        ("es", "No, nada más, gracias.", "hang_up {}"),
        ("es", "¿Nada más?", ""),
        ("es", "¿Eso es todo?", ""),
        ("es", "Quiero pedir una pizza. Nada más, gracias.", ""),
        ("es", "Quiero pedir una pizza. Eso es todo.", ""),
        ("de", "Das war's.", "hang_up {}"),
        ("de", "Ich möchte eine Pizza bestellen. Das war's.", ""),
    ] {
        let heard = generate_in(&BRAIN, Some(language), &[user(said)], tools.clone()).await;
        assert_eq!(heard.calls(), calls, "{said}");
    }
}

/// Tools as newcomers declare them: a description, examples and a schema, no rule.
#[derive(serde::Deserialize)]
struct Newcomers {
    nothing: std::collections::BTreeMap<String, Vec<String>>,
    tool: Vec<Newcomer>,
}

#[derive(serde::Deserialize)]
struct Newcomer {
    #[serde(default)]
    judged: bool,
    declaration: String,
    asks: Vec<(String, Map<String, Value>)>,
    tells: Vec<String>,
}

/// Saturday, 21 November 2026.
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        "2026-11-21T12:00:00Z".parse().unwrap()
    }
}

#[tokio::test]
async fn a_declared_tool_is_called_for_the_words_for_which_it_is_predicted() {
    // The built-in converter takes the same requests.
    let is_judged = |name: &str| name != "convert_temperature";
    let all: Newcomers = toml::from_str(include_str!("newcomers.toml")).unwrap();
    let (mut wrong, mut weak) = (Vec::new(), false);
    for judged in [false, true] {
        let newcomers = || all.tool.iter().filter(|one| one.judged == judged);
        let folder = tempfile::tempdir().unwrap();
        for (at, tool) in newcomers().enumerate() {
            std::fs::write(folder.path().join(format!("{at}.toml")), &tool.declaration).unwrap();
        }
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools");
        let mut tools = declared::load(&shipped, &|_| None).unwrap();
        tools.extend(declared::load(folder.path(), &|_| None).unwrap());
        let registry = declared::registry(&tools).unwrap();
        let today = Today::new(Arc::new(Still), TimeZone::UTC);
        let brain = started(&registry, today);
        for tool in newcomers() {
            let table: toml::Table = toml::from_str(&tool.declaration).unwrap();
            let name = table["name"].as_str().unwrap();
            let mut right = 0;
            for (said, arguments) in &tool.asks {
                let heard = generate_with(&brain, &[user(said)], registry.specs()).await;
                let expected = (name.to_owned(), arguments.clone());
                if heard.calls == [expected] {
                    right += 1;
                } else {
                    wrong.push(format!(
                        "{name}: {said} -> {} {}",
                        heard.calls(),
                        heard.words
                    ));
                }
            }
            println!("{name}: {right} of {}", tool.asks.len());
            weak |= right < 8 && is_judged(name);
        }
        let half = if judged { "judged" } else { "tuned" };
        let told = newcomers().flat_map(|tool| &tool.tells);
        for said in told.chain(&all.nothing[half]) {
            let heard = generate_with(&brain, &[user(said)], registry.specs()).await;
            if !heard.calls.is_empty() {
                weak = true;
                wrong.push(format!("nothing: {said} -> {}", heard.calls()));
            }
        }
    }
    assert!(!weak, "{wrong:#?}");
}

/// "Is the front door unlocked?" unlocked it.
#[tokio::test]
async fn a_tool_that_changes_something_is_not_called_for_a_question() {
    let folder = tempfile::tempdir().unwrap();
    let door = r#"
        name = "unlock_door"
        kind = "subprocess"
        description = "Unlocks the front door."
        effect = "reversible"
        [subprocess]
        argv = ["true"]
        [router]
        examples = ["unlock the front door", "can you unlock the door", "open the front door please"]
    "#;
    let light = r#"
        name = "set_light"
        kind = "subprocess"
        description = "Switches the light of a room on or off."
        effect = "reversible"
        [subprocess]
        argv = ["true"]
        [parameters]
        required = ["room", "state"]
        [parameters.properties]
        room = { enum = ["kitchen", "bedroom"] }
        state = { enum = ["on", "off"] }
        [router]
        examples = ["turn on the light in the kitchen", "switch the bedroom light off", "kitchen light on"]
    "#;
    for (name, tool) in [("door.toml", door), ("light.toml", light)] {
        std::fs::write(folder.path().join(name), tool).unwrap();
    }
    let tools = declared::load(folder.path(), &|_| None).unwrap();
    let registry = declared::registry(&tools).unwrap();
    let brain = started(&registry, Today::new(Arc::new(Still), TimeZone::UTC));
    for asked in [
        "Is the front door unlocked?",
        "Who opened the front door?",
        "Did you unlock the front door?",
        "Should I unlock the front door?",
        "Can the front door be unlocked?",
        "Is the kitchen light on?",
        "Who turned the kitchen light on?",
        "Why is the bedroom light off?",
        "Could you tell me if the bedroom light is on?",
    ] {
        let heard = generate_with(&brain, &[user(asked)], registry.specs()).await;
        assert!(heard.calls.is_empty(), "{asked}: {}", heard.calls());
    }
    let light = |room: &str, state: &str| ("set_light", json!({"room": room, "state": state}));
    for (asked, (name, arguments)) in [
        ("Unlock the front door.", ("unlock_door", json!({}))),
        (
            "Could you unlock the front door?",
            ("unlock_door", json!({})),
        ),
        ("Unlock the front door, please?", ("unlock_door", json!({}))),
        ("Turn on the kitchen light.", light("kitchen", "on")),
        (
            "Can you switch the light in the bedroom off?",
            light("bedroom", "off"),
        ),
    ] {
        let heard = generate_with(&brain, &[user(asked)], registry.specs()).await;
        let arguments = arguments.as_object().cloned().unwrap();
        assert_eq!(
            heard.calls,
            [(name.to_owned(), arguments)],
            "{asked}: {}",
            heard.words
        );
    }
}

#[tokio::test]
async fn what_was_repeated_is_repeated_in_the_same_words() {
    for (language, again, said) in [
        ("en", "What did you say?", "I said: Hello."),
        ("de", "Was haben Sie gesagt?", "Ich sagte: Hello."),
        ("es", "¿Qué ha dicho?", "He dicho: Hello."),
    ] {
        let prompt = Prompt {
            instructions: None,
            day: None,
            messages: vec![agent(said), user(again)],
            tools: TOOLS.specs(),
            demands: Demands {
                language: Some(language.into()),
                ..Demands::default()
            },
        };
        let events: Vec<_> = BRAIN.generate(prompt).map(Result::unwrap).collect().await;
        let text = said.to_owned();
        assert_eq!(events, [LlmEvent::Speech { text }, LlmEvent::End]);
    }
}

/// So that voices prepare what is really said.
#[tokio::test]
async fn answers_that_are_often_given_are_among_those_often_said() {
    for language in [None, Some("de"), Some("es")] {
        let prompt = |text: &str| Prompt {
            instructions: None,
            day: None,
            messages: vec![user(text)],
            tools: TOOLS.specs(),
            demands: Demands {
                language: language.map(str::to_owned),
                ..Demands::default()
            },
        };
        let known = BRAIN.often_said(&prompt(""));
        let asked = match language {
            Some("de") => [
                "Danke.",
                "Was kannst du?",
                "Ich möchte eine große Pizza bestellen.",
            ],
            Some("es") => [
                "Gracias.",
                "¿Qué puedes hacer?",
                "Quiero pedir una pizza grande.",
            ],
            _ => [
                "Thank you.",
                "What can you do?",
                "I would like to order a large pizza.",
            ],
        };
        for text in asked {
            let events: Vec<_> = BRAIN
                .generate(prompt(text))
                .map(Result::unwrap)
                .collect()
                .await;
            let said = events.iter().filter_map(|event| match event {
                LlmEvent::Speech { text } => Some(text.as_str()),
                _ => None,
            });
            let said = said.collect::<String>();
            assert!(known.contains(&said), "{text}: {said} is not in {known:?}");
        }
    }
}

/// Another timer that ran was cancelled.
#[tokio::test]
async fn declining_the_question_for_a_length_cancels_no_other_timer() {
    for (language, set, how_long, declines, cancels) in [
        (
            "de",
            "Stell einen Timer.",
            "Wie lange soll der Timer laufen?",
            "Ich brauche den Timer doch nicht.",
            "Lösche den Timer.",
        ),
        (
            "es",
            "Pon un temporizador.",
            "¿De cuánto tiempo pongo el temporizador?",
            "Ya no quiero el temporizador.",
            "Cancela el temporizador.",
        ),
    ] {
        for (answer, calls) in [(declines, ""), (cancels, "cancel_timer {}")] {
            let messages = [user(set), agent(how_long), user(answer)];
            let said = generate_in(&BRAIN, Some(language), &messages, TOOLS.specs()).await;
            assert_eq!(said.calls(), calls, "{answer}");
        }
    }
}
