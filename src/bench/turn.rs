//! `turn`: a spoken question that needs a tool, with ever more speculation.

use super::Settings;
use super::clock::{as_seconds, seconds};
use super::report::{Cell, Check, Mark, Plot, Report, Series, Spread, Table};
use super::simulated::{CITY, FORECAST, WORDS};
use super::world::{self, By, Call, Played, Round, Task, Voice};
use crate::conversation::{Micros, Policy, Time};
use crate::dice::Dice;
use crate::prediction::{Evidence, Prediction, Source};
use crate::tools::Declaration;
use serde_json::{Map, json};
use std::sync::Arc;

const DELAYS: [f64; 8] = [0.1, 0.3, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0];
const REPEATS: usize = 5;

/// Said before the call: D = 1.5 s.
const FILLER: &str = "Checking the forecast for Boulder. ";
const FILLER_LENGTH: f64 = 1.5;

/// The times of a turn, s: the mid values of the two-tracks article. In a repeat each is up to a fifth longer or
/// shorter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// The length of the user's speech. All other times count from its end.
    pub speech: f64,
    /// The time before the end of speech at which a partial has all words that matter.
    pub lead: f64,
    /// E and A: the end-of-turn wait and the rest of the transcript.
    pub heard: f64,
    /// F: until the model's first words.
    pub first: f64,
    /// G: until the call is complete.
    pub call: f64,
    /// The time between the arguments and the complete call.
    pub written: f64,
    /// R: the router.
    pub router: f64,
    /// L: the second pass.
    pub answer: f64,
    /// X: from text to audio.
    pub voice: f64,
}

pub(super) const MIDDLE: Times = Times {
    speech: 3.0,
    lead: 0.8,
    heard: 0.3,
    first: 0.57,
    call: 0.9,
    written: 0.15,
    router: 0.075,
    answer: 0.3,
    voice: 0.275,
};

/// Each arm adds to the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Arm {
    Serial,
    SpeechFirst,
    Stream,
    Router,
    Partials,
    Assumed,
    Oracle,
}

const ARMS: [Arm; 7] = [
    Arm::Serial,
    Arm::SpeechFirst,
    Arm::Stream,
    Arm::Router,
    Arm::Partials,
    Arm::Assumed,
    Arm::Oracle,
];

/// The times at which the user hears something, s after the end of speech.
#[derive(Debug, Clone, Copy)]
pub(super) struct Latencies {
    pub first: f64,
    /// When the answer could be heard, if no filler were being said.
    ready: f64,
    pub answer: f64,
    dead_air: f64,
}

impl Arm {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::SpeechFirst => "speech first",
            Self::Stream => "+ stream",
            Self::Router => "+ router",
            Self::Partials => "+ partials",
            Self::Assumed => "+ assumed commit",
            Self::Oracle => "oracle",
        }
    }

    /// The closed form.
    fn closed(self, times: &Times, tool: f64) -> Latencies {
        let commit = times.heard + times.call;
        let start = match self {
            Self::Serial | Self::SpeechFirst => commit,
            Self::Stream => commit - times.written,
            Self::Router => (times.heard + times.router).min(commit - times.written),
            Self::Partials | Self::Assumed => times.router - times.lead,
            Self::Oracle => -times.speech,
        };
        let ready = commit.max(start + tool);
        let text = match self {
            Self::Assumed | Self::Oracle => commit.max(start + tool + times.answer),
            _ => ready + times.answer,
        };
        let filler = times.heard + times.first + times.voice;
        let ready = text + times.voice;
        match self {
            Self::Serial => Latencies {
                first: ready,
                ready,
                answer: ready,
                dead_air: 0.0,
            },
            _ => Latencies {
                first: filler,
                ready,
                answer: ready.max(filler + FILLER_LENGTH),
                dead_air: (ready - filler - FILLER_LENGTH).max(0.0),
            },
        }
    }

    pub(super) fn policy(self, tools: Vec<Arc<Declaration>>) -> Policy {
        let mut policy = world::policy(tools, self >= Self::Stream);
        policy.speculation.preemptive = false;
        policy.speculation.assumed_per_turn = u32::from(self >= Self::Assumed);
        policy
    }

    /// The simulated router: how long it takes, and what it predicts.
    pub(super) fn predict(
        self,
        times: &Times,
        heard: &Evidence,
    ) -> Option<(Micros, Vec<Prediction>)> {
        let wait = match self {
            Self::Oracle => 0.0,
            _ => times.router,
        };
        let prediction = Prediction {
            tool: FORECAST.into(),
            arguments: arguments(),
            confidence: 0.9,
            source: Source::Rule,
            open: Vec::new(),
        };
        let predicts = self >= Self::Router && heard.calls.is_empty() && world::is_asked(heard);
        predicts.then(|| (seconds(wait), vec![prediction]))
    }

    /// When a partial with all words is there, s after the beginning.
    pub(super) fn partial(self, times: &Times) -> Option<f64> {
        match self {
            Self::Oracle => Some(0.0),
            Self::Partials | Self::Assumed => Some(times.speech - times.lead),
            _ => None,
        }
    }
}

/// The arguments of the only call.
fn arguments() -> Map<String, serde_json::Value> {
    Map::from_iter([("city".to_owned(), json!(CITY))])
}

/// The tool, as it is declared for conversations without limits.
fn tools() -> Vec<Arc<Declaration>> {
    let parameters = json!({
        "type": "object",
        "properties": { "city": { "type": "string" } },
        "required": ["city"],
    });
    vec![world::early_tool(FORECAST, parameters, 0.0).into()]
}

impl Times {
    /// The turn with all times multiplied.
    pub(super) fn scaled(self, by: f64) -> Self {
        Self {
            speech: by * self.speech,
            lead: by * self.lead,
            heard: by * self.heard,
            first: by * self.first,
            call: by * self.call,
            written: by * self.written,
            router: by * self.router,
            answer: by * self.answer,
            voice: by * self.voice,
        }
    }

    pub(super) fn draw(dice: &mut Dice) -> Self {
        let mut about = |mean: f64| mean * (0.8 + 0.4 * dice.share());
        let first = about(MIDDLE.first);
        Self {
            speech: MIDDLE.speech,
            lead: MIDDLE.lead,
            heard: about(MIDDLE.heard),
            first,
            call: first + about(MIDDLE.call - MIDDLE.first),
            written: about(MIDDLE.written),
            router: about(MIDDLE.router),
            answer: about(MIDDLE.answer),
            voice: about(MIDDLE.voice),
        }
    }
}

/// Plays a turn.
fn play(arm: Arm, times: &Times, tool: f64) -> Option<Latencies> {
    let voice = Voice::Server(seconds(times.voice));
    play_with(arm, times, tool, tools(), voice)
}

/// Plays a turn with a tool that is declared like this.
pub(super) fn play_with(
    arm: Arm,
    times: &Times,
    tool: f64,
    tools: Vec<Arc<Declaration>>,
    voice: Voice,
) -> Option<Latencies> {
    let task = Task {
        words: WORDS.into(),
        by: By::Speech {
            partial: arm.partial(times).map(seconds),
            last: seconds(times.speech + times.heard),
        },
        rounds: vec![Round {
            generation: seconds(times.call),
            filler: (arm > Arm::Serial).then(|| (seconds(times.first), FILLER.to_owned())),
            written: seconds(times.written),
            calls: vec![Call {
                tool: FORECAST.into(),
                arguments: arguments(),
                result: json!({ "sky": "clear" }),
                takes: seconds(tool),
            }],
            plan: None,
        }],
        answer: seconds(times.answer),
        voice,
    };
    let mut router = |heard: &Evidence| arm.predict(times, heard);
    let Played {
        total,
        heard,
        dead_air,
        ..
    } = world::play(arm.policy(tools), &task, &mut router)?;
    let (first, answer) = heard?;
    let after = |at: Time| as_seconds(at.since(Time(0))) - times.speech;
    let said = match voice {
        Voice::Server(takes) => as_seconds(takes),
        Voice::Client => 0.0,
    };
    Some(Latencies {
        first: after(first),
        ready: as_seconds(total) - times.speech + said,
        answer: after(answer),
        dead_air: as_seconds(dead_air),
    })
}

/// A cell: an arm and a delay in all repeats, heard and in closed form.
struct Point {
    arm: Arm,
    tool: f64,
    heard: Vec<(Latencies, Latencies)>,
    /// The time by which the answer was ready earlier than with speech first: played, and by the closed form, s.
    hidden: Vec<(f64, f64)>,
}

pub(super) fn run(settings: &Settings) -> Report {
    let points = measure(settings.seed);
    Report {
        name: "turn".into(),
        title: "A spoken turn with a tool".into(),
        seed: settings.seed,
        method: method(),
        findings: findings(&points),
        tables: vec![table(&points), hidden_table(&points), gap_table()],
        plots: vec![
            plot(
                &points,
                "turn-answer",
                "When the answer is heard",
                "answer heard after the end of speech, s",
                |heard| heard.answer,
            ),
            plot(
                &points,
                "turn-dead-air",
                "Silence before the answer",
                "dead air, s",
                |heard| heard.dead_air,
            ),
        ],
        checks: checks(&points),
    }
}

fn measure(seed: u64) -> Vec<Point> {
    let mut points = Vec::new();
    for tool in DELAYS {
        let mut of_delay = ARMS.map(|arm| Point {
            arm,
            tool,
            heard: Vec::new(),
            hidden: Vec::new(),
        });
        for repeat in 0..REPEATS {
            let mut dice = Dice::named(seed, &format!("turn {tool} {repeat}"));
            // The first repeat has the article's mid values.
            let times = if repeat == 0 {
                MIDDLE
            } else {
                Times::draw(&mut dice)
            };
            let base = Arm::SpeechFirst.closed(&times, tool);
            let Some(without) = play(Arm::SpeechFirst, &times, tool) else {
                continue;
            };
            for point in &mut of_delay {
                let closed = point.arm.closed(&times, tool);
                let Some(heard) = play(point.arm, &times, tool) else {
                    continue;
                };
                point.heard.push((heard, closed));
                let gain = base.ready - closed.ready;
                point.hidden.push((without.ready - heard.ready, gain));
            }
        }
        points.extend(of_delay);
    }
    points
}

fn method() -> Vec<String> {
    vec![
        "One conversation of the product for each turn, in virtual time: its gate, ledger, fillers, held-back answers \
         and pacing, with a client that transcribes. Recogniser, model, router, voice and tool are simulated with the \
         mid values of the two-tracks article: 0.3 s from the end of speech to the transcript, the model's first words \
         after 0.57 s, its call after 0.9 s, a router of 75 ms, a second pass of 0.3 s, a voice of 275 ms, and a filler of \
         1.5 s. The first of five repeats has exactly these; in the others each is up to a fifth longer or shorter. \
         Preemptive answers are off, because the closed form has none. Where the tool takes long, the product says a \
         second filler, as it does in use; the closed form has only the first, so its dead air is longer."
            .into(),
        "Each arm adds to the one before: the filler first; the tool starts when the arguments are written, not when \
         the call is complete; a router on the final words; a router on words 0.8 s before the end of speech; the \
         second pass asked before the call is committed; and an oracle that knows the call before the user has spoken. \
         Dead air is the silence between a filler and the answer. With an assumed commit the filler is left out if the \
         answer is there first. It waits for that for at most 400 ms, so a model that takes longer from its filler to \
         its call loses the gain: the last table shows it. A result that comes while the model is already writing is \
         assumed when the call begins, which costs a part of the gain at delays around 1.5 s."
            .into(),
    ]
}

fn spread(point: &Point, figure: impl Fn(&(Latencies, Latencies)) -> f64) -> Spread {
    Spread::of(point.heard.iter().map(figure).collect())
}

/// The figures of the mid values.
fn middle(point: &Point, figure: fn(&Latencies) -> f64) -> f64 {
    point.heard.first().map_or(0.0, |(heard, _)| figure(heard))
}

/// The hidden time over that of the closed form, %; nothing where there is nothing to hide.
fn realised(hidden: &[(f64, f64)]) -> Option<f64> {
    let sum = |figure: fn(&(f64, f64)) -> f64| hidden.iter().map(figure).sum::<f64>();
    let closed = sum(|(_, closed)| *closed);
    (closed > 0.01).then(|| 100.0 * sum(|(heard, _)| *heard) / closed)
}

fn table(points: &[Point]) -> Table {
    let columns = [
        ("tool, s", 1),
        ("arm", 0),
        ("first audio, s", 2),
        ("answer ready, s", 2),
        ("closed form, s", 2),
        ("answer heard, s", 2),
        ("dead air, s", 2),
        ("closed form, s", 2),
    ];
    let mut table = Table::new(
        "After the end of speech: median of five, least and greatest",
        &columns,
    );
    for point in points
        .iter()
        .filter(|point| [0.3, 1.0, 2.0, 3.0].contains(&point.tool))
    {
        table.rows.push(vec![
            point.tool.into(),
            point.arm.name().into(),
            spread(point, |(heard, _)| heard.first).median.into(),
            spread(point, |(heard, _)| heard.ready).into(),
            spread(point, |(_, closed)| closed.ready).median.into(),
            spread(point, |(heard, _)| heard.answer).median.into(),
            spread(point, |(heard, _)| heard.dead_air).into(),
            spread(point, |(_, closed)| closed.dead_air).median.into(),
        ]);
    }
    table
}

fn hidden_table(points: &[Point]) -> Table {
    let mut columns = vec![("arm", 0)];
    let names = DELAYS.map(|delay| format!("{delay} s"));
    columns.extend(names.iter().map(|name| (name.as_str(), 1)));
    let mut table = Table::new(
        "Hidden time realised, % of the closed form, by the tool's delay",
        &columns,
    );
    for arm in &ARMS[2..] {
        let of = points.iter().filter(|point| point.arm == *arm);
        let cell = |point: &Point| realised(&point.hidden).map_or("-".into(), Cell::from);
        let mut row: Vec<Cell> = vec![arm.name().into()];
        row.extend(of.map(cell));
        table.rows.push(row);
    }
    table
}

/// A filler waits for an assumed commit for at most 400 ms; once it is said, the assumption is void.
fn gap_table() -> Table {
    let columns = [
        ("from filler to call, s", 1),
        ("first audio, s", 2),
        ("answer ready, s", 2),
        ("closed form, s", 2),
    ];
    let mut table = Table::new(
        "Assumed commits need a call soon after the filler: tools of 0.3 s",
        &columns,
    );
    for gap in [0.2, 0.3, 0.4, 0.5, 0.7] {
        let times = Times {
            first: MIDDLE.call - gap,
            ..MIDDLE
        };
        if let Some(heard) = play(Arm::Assumed, &times, 0.3) {
            let closed = Arm::Assumed.closed(&times, 0.3);
            let row = [gap, heard.first, heard.ready, closed.ready];
            table.rows.push(row.map(Cell::from).into());
        }
    }
    table
}

fn plot(points: &[Point], name: &str, title: &str, y: &str, figure: fn(&Latencies) -> f64) -> Plot {
    let series = |arm: &Arm| Series {
        label: arm.name().into(),
        mark: Mark::Both,
        points: points
            .iter()
            .filter(|point| point.arm == *arm)
            .map(|point| (point.tool, middle(point, figure)))
            .collect(),
    };
    Plot {
        name: name.into(),
        title: title.into(),
        x: "the tool's delay, s".into(),
        y: y.into(),
        series: ARMS.iter().map(series).collect(),
    }
}

fn find(points: &[Point], arm: Arm, tool: f64) -> Option<&Point> {
    points
        .iter()
        .find(|point| point.arm == arm && point.tool == tool)
}

fn findings(points: &[Point]) -> Vec<String> {
    let at = |arm, figure| find(points, arm, 2.0).map_or(0.0, |point| middle(point, figure));
    vec![format!(
        "A spoken question with a tool of 2 s is answered {:.2} s after the end of speech without speculation, with \
         {:.2} s of silence behind the fillers; {:.2} s with a router on the unfinished words and {:.2} s of silence; \
         {:.2} s with an assumed commit.",
        at(Arm::SpeechFirst, |heard| heard.answer),
        at(Arm::SpeechFirst, |heard| heard.dead_air),
        at(Arm::Partials, |heard| heard.answer),
        at(Arm::Partials, |heard| heard.dead_air),
        at(Arm::Assumed, |heard| heard.answer)
    )]
}

fn checks(points: &[Point]) -> Vec<Check> {
    let mut checks = Vec::new();
    for arm in &ARMS[2..] {
        let of = points.iter().filter(|point| point.arm == *arm);
        let all: Vec<(f64, f64)> = of.flat_map(|point| &point.hidden).copied().collect();
        let what = format!("hidden time realised, {}", arm.name());
        checks.push(Check::at_least(
            &what,
            realised(&all).unwrap_or(0.0),
            95.0,
            " %",
        ));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closed_form_gives_the_articles_turn() {
        for (arm, ready, dead_air) in [
            (Arm::Serial, 3.775, 0.0),
            (Arm::SpeechFirst, 3.775, 1.13),
            (Arm::Router, 2.95, 0.305),
            (Arm::Partials, 1.85, 0.0),
        ] {
            let closed = arm.closed(&MIDDLE, 2.0);
            assert!((closed.ready - ready).abs() < 1e-9, "{arm:?}: {closed:?}");
            assert!(
                (closed.dead_air - dead_air).abs() < 1e-9,
                "{arm:?}: {closed:?}"
            );
        }
    }

    #[test]
    fn without_a_filler_there_is_no_dead_air() {
        let heard = play(Arm::Serial, &MIDDLE, 0.5).unwrap();
        assert_eq!(heard.dead_air, 0.0);
        assert!((heard.first - heard.answer).abs() < 1e-9);
        assert!((heard.answer - Arm::Serial.closed(&MIDDLE, 0.5).answer).abs() < 0.03);
    }

    #[test]
    fn each_arm_hides_what_the_closed_form_says() {
        let points = measure(5);
        let failed: Vec<_> = checks(&points)
            .into_iter()
            .filter(|check| !check.holds)
            .collect();
        assert!(failed.is_empty(), "{failed:#?}");
    }
}
