//! The report of `spoken`.

use super::{Measured, SILENCE, ToolArms, Turn};
use crate::bench::Settings;
use crate::bench::report::{Cell, Check, Mark, Plot, Report, Series, Table, quantile};
use std::time::Duration;

/// The arms with a tool, and those without.
const ARMS: [&str; 2] = ["off", "on"];
const PLAIN: [&str; 2] = ["local brain", "simulated model"];

/// By the tool's delay: when the answer is heard and the silence before it, medians, s.
const GOALS: [(f64, f64); 4] = [(1.0, 0.25), (1.65, 0.15), (1.94, 0.45), (2.6, 0.3)];

/// The most that p95 may be above the median, s.
const APART: f64 = 0.2;

/// Without speculation: how long after the tool's end and the model's first token the answer may come, s.
const BEHIND: f64 = 0.4;

/// Without a tool: first audio, median and p95, s.
const FIRST: [(f64, f64); 2] = [(0.28, 0.7), (0.62, 0.9)];

/// The most CPU of a call and of a silent one, cores.
const CPU: f64 = 0.08;
const SILENT: f64 = 0.022;

pub(super) fn report(settings: &Settings, measured: &Measured) -> Report {
    Report {
        name: "spoken".into(),
        title: "A spoken question to the real models".into(),
        seed: settings.seed,
        method: method(),
        findings: findings(measured),
        tables: vec![with_tool(measured), floors(measured), plain(measured)],
        plots: plots(measured),
        checks: checks(measured),
    }
}

fn method() -> Vec<String> {
    vec![
        "The server is `undertone serve` in a process of its own, with its default settings and real models: voice activity, \
         end of turn, recogniser, voice. The language model and its tool are simulated by real HTTP servers: 350 ms to \
         the model's first token, 15 ms a token, \"Let me check that.\" before a call. Voices of flite and espeak-ng ask, or \
         the WAV files of `--data`, at the pace of speech over a WebSocket. Both arms are asked each question one right after \
         the other, in random order; every call is a new session, and the first one of each server does not count."
            .into(),
        "Times are taken outside, after the end of speech in the sound: the last 10 ms above 5 % of the loudest. A sound is \
         heard from its first 10 ms above 1 % of full scale on, by a listener who plays audio as it arrives. The answer is the \
         first sound of the words that speak the tool's result. Silence is what lies between the last sound before it and \
         the answer, in the turns in which something was said before. Turns in which the agent spoke before the question \
         was over are counted and left out of the times. The floor is max(commit, start + delay + 350) + 90 ms of the same \
         turn: the tool's start and the model's call as they were."
            .into(),
        format!(
            "CPU is that of the server's process and its children over the length of the calls, which end a second after \
             the last sound; with a tool, callers hang up when they have heard the answer begin. A silent call lasts {} s.",
            SILENCE.as_secs()
        ),
    ]
}

fn is_fair(turn: &&Turn) -> bool {
    !turn.heard.early
}

/// A figure of all fair turns that have it.
fn figures(turns: &[Turn], figure: impl Fn(&Turn) -> Option<f64>) -> Vec<f64> {
    turns.iter().filter(is_fair).filter_map(figure).collect()
}

fn answers(turns: &[Turn]) -> Vec<f64> {
    figures(turns, |turn| turn.heard.answer)
}

fn silences(turns: &[Turn]) -> Vec<f64> {
    figures(turns, |turn| Some(turn.heard.answer? - turn.heard.before?))
}

fn firsts(turns: &[Turn]) -> Vec<f64> {
    figures(turns, |turn| turn.heard.first)
}

/// The time from the tool's end and the model's first token to the answer.
fn behind(turns: &[Turn]) -> Vec<f64> {
    figures(turns, |turn| {
        Some(turn.heard.answer? - turn.call?.ended - super::FIRST.as_secs_f64())
    })
}

fn floor(turns: &[Turn], delay: Duration) -> Vec<f64> {
    figures(turns, |turn| Some(turn.call?.floor(delay)))
}

/// Cores.
fn cpu(turns: &[Turn]) -> f64 {
    let sum = |of: fn(&Turn) -> f64| turns.iter().map(of).fold(0.0, |all, one| all + one);
    sum(|turn| turn.cpu) / sum(|turn| turn.length).max(f64::MIN_POSITIVE)
}

/// Milliseconds, or a dash if there are no values.
fn ms(values: &[f64], share: f64) -> Cell {
    match values {
        [] => "-".into(),
        _ => (1_000.0 * quantile(values, share)).into(),
    }
}

/// A quantile for a goal: infinite if there are no values, so that no goal is met where nothing was heard.
fn reached(values: &[f64], share: f64) -> f64 {
    match values {
        [] => f64::INFINITY,
        _ => quantile(values, share),
    }
}

fn of(count: usize, all: usize) -> Cell {
    format!("{count} of {all}").into()
}

fn with_tool(measured: &Measured) -> Table {
    let columns = [
        ("tool, s", 1),
        ("speculation", 0),
        ("first sound, p50 ms", 0),
        ("p95", 0),
        ("answer, p50 ms", 0),
        ("p95", 0),
        ("floor, p50 ms", 0),
        ("silence before it, p50 ms", 0),
        ("p95", 0),
    ];
    let title = "With a tool, after the end of speech";
    let mut table = Table::new(title, &columns);
    for (delay, arms) in &measured.tool {
        for (name, turns) in ARMS.iter().zip(arms) {
            let (first, answer, silence) = (firsts(turns), answers(turns), silences(turns));
            table.rows.push(vec![
                delay.as_secs_f64().into(),
                (*name).into(),
                ms(&first, 0.5),
                ms(&first, 0.95),
                ms(&answer, 0.5),
                ms(&answer, 0.95),
                ms(&floor(turns, *delay), 0.5),
                ms(&silence, 0.5),
                ms(&silence, 0.95),
            ]);
        }
    }
    table
}

fn floors(measured: &Measured) -> Table {
    let columns = [
        ("tool, s", 1),
        ("speculation", 0),
        ("answered", 0),
        ("spoke too early", 0),
        ("something said before", 0),
        ("tool started before its call", 0),
        ("tool started, p50 ms", 0),
        ("call complete, p50 ms", 0),
        (
            "answer behind the tool's end and the first token, p50 ms",
            0,
        ),
        ("p95", 0),
    ];
    let mut table = Table::new("The same turns: what was done when", &columns);
    for (delay, arms) in &measured.tool {
        for (name, turns) in ARMS.iter().zip(arms) {
            let count =
                |is: fn(&Turn) -> bool| of(turns.iter().filter(|t| is(t)).count(), turns.len());
            let is_early = |turn: &Turn| turn.call.is_some_and(|call| call.began < call.committed);
            table.rows.push(vec![
                delay.as_secs_f64().into(),
                (*name).into(),
                count(|turn| turn.heard.answer.is_some()),
                count(|turn| turn.heard.early),
                count(|turn| turn.heard.answer.is_some() && turn.heard.before.is_some()),
                count(is_early),
                ms(&figures(turns, |turn| Some(turn.call?.began)), 0.5),
                ms(&figures(turns, |turn| Some(turn.call?.committed)), 0.5),
                ms(&behind(turns), 0.5),
                ms(&behind(turns), 0.95),
            ]);
        }
    }
    table
}

fn plain(measured: &Measured) -> Table {
    let columns = [
        ("model", 0),
        ("answered", 0),
        ("spoke too early", 0),
        ("first sound, p50 ms", 0),
        ("p95", 0),
        ("most", 0),
        ("CPU, cores", 3),
    ];
    let mut table = Table::new("Without a tool, after the end of speech", &columns);
    for (name, turns) in PLAIN.iter().zip(&measured.plain) {
        let first = firsts(turns);
        let answered = turns.iter().filter(|turn| turn.heard.first.is_some());
        let early = turns.iter().filter(|turn| turn.heard.early);
        table.rows.push(vec![
            (*name).into(),
            of(answered.count(), turns.len()),
            of(early.count(), turns.len()),
            ms(&first, 0.5),
            ms(&first, 0.95),
            ms(&first, 1.0),
            cpu(turns).into(),
        ]);
    }
    let mut row: Vec<Cell> = vec!["-".into(); columns.len()];
    row[0] = "a silent call".into();
    if let Some(cpu) = measured.silence {
        row[columns.len() - 1] = cpu.into();
        table.rows.push(row);
    }
    table
}

fn plots(measured: &Measured) -> Vec<Plot> {
    let series = |label: &str, mark, figure: &dyn Fn(&ToolArms) -> Vec<f64>| {
        let points = measured.tool.iter().filter_map(|cell| {
            let values = figure(cell);
            let is_there = !values.is_empty();
            is_there.then(|| (cell.0.as_secs_f64(), quantile(&values, 0.5)))
        });
        Series {
            label: label.into(),
            mark,
            points: points.collect(),
        }
    };
    let drawn = |series: Vec<Series>| -> Vec<Series> {
        let all = series.into_iter();
        all.filter(|series| !series.points.is_empty()).collect()
    };
    let plot = |name: &str, title: &str, series: Vec<Series>| Plot {
        name: name.into(),
        title: title.into(),
        x: "the tool takes, s".into(),
        y: "s after the end of speech".into(),
        series,
    };
    let answer = drawn(vec![
        series("speculation off", Mark::Both, &|cell| answers(&cell.1[0])),
        series("speculation on", Mark::Both, &|cell| answers(&cell.1[1])),
        series("floor of the same turns", Mark::Line, &|cell| {
            floor(&cell.1[1], cell.0)
        }),
    ]);
    let silence = drawn(vec![
        series("speculation off", Mark::Both, &|cell| silences(&cell.1[0])),
        series("speculation on", Mark::Both, &|cell| silences(&cell.1[1])),
    ]);
    let plots = [
        plot("spoken-answer", "When the answer is heard, median", answer),
        Plot {
            y: "s".into(),
            ..plot(
                "spoken-silence",
                "Silence before the answer, median",
                silence,
            )
        },
    ];
    plots
        .into_iter()
        .filter(|plot| !plot.series.is_empty())
        .collect()
}

fn findings(measured: &Measured) -> Vec<String> {
    let mut findings = Vec::new();
    if let Some((delay, arms)) = measured.tool.last() {
        let [off, on] = arms.each_ref().map(|turns| answers(turns));
        if !off.is_empty() && !on.is_empty() {
            findings.push(format!(
                "A caller with the real models hears the answer of a tool of {:.1} s {:.2} s after the end of speech, and {:.2} s without speculation (medians).",
                delay.as_secs_f64(),
                quantile(&on, 0.5),
                quantile(&off, 0.5),
            ));
        }
    }
    let [brain, model] = measured.plain.each_ref().map(|turns| firsts(turns));
    if brain.is_empty() || model.is_empty() {
        return findings;
    }
    findings.push(format!(
        "Without a tool the first sound comes {:.0} ms after the end of speech with the local brain, {:.0} ms with a model of 350 ms (medians).",
        1_000.0 * quantile(&brain, 0.5),
        1_000.0 * quantile(&model, 0.5),
    ));
    findings
}

fn checks(measured: &Measured) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut behinds = Vec::new();
    for ((delay, [off, on]), (answer, silence)) in measured.tool.iter().zip(GOALS) {
        let tool = format!("tool of {:.1} s", delay.as_secs_f64());
        if on.is_empty() {
            continue;
        }
        let heard = answers(on);
        checks.push(Check::at_most(
            &format!("answer, {tool}, median"),
            reached(&heard, 0.5),
            answer,
            " s",
        ));
        let apart = reached(&heard, 0.95) - quantile(&heard, 0.5);
        checks.push(Check::at_most(
            &format!("answer, {tool}, p95 above it"),
            apart,
            APART,
            " s",
        ));
        let silences = silences(on);
        if !silences.is_empty() {
            let what = format!("silence before it, {tool}, median");
            checks.push(Check::at_most(
                &what,
                quantile(&silences, 0.5),
                silence,
                " s",
            ));
        }
        behinds.push(reached(&behind(off), 0.5));
    }
    if let Some(most) = behinds.into_iter().reduce(f64::max) {
        let what = "speculation off, any tool: answer behind its end and the first token, median";
        checks.push(Check::at_most(what, most, BEHIND, " s"));
    }
    for ((name, turns), (median, last)) in PLAIN.iter().zip(&measured.plain).zip(FIRST) {
        if turns.is_empty() {
            continue;
        }
        let first = firsts(turns);
        let what = |figure: &str| format!("first sound, {name}, {figure}");
        checks.push(Check::at_most(
            &what("median"),
            reached(&first, 0.5),
            median,
            " s",
        ));
        checks.push(Check::at_most(
            &what("p95"),
            reached(&first, 0.95),
            last,
            " s",
        ));
        checks.push(Check::at_most(
            &format!("CPU, {name}"),
            cpu(turns),
            CPU,
            " cores",
        ));
    }
    let silence = measured.silence.into_iter();
    checks.extend(silence.map(|cpu| Check::at_most("CPU, a silent call", cpu, SILENT, " cores")));
    checks
}

#[cfg(test)]
mod tests {
    use super::super::Call;
    use super::*;
    use crate::bench::caller::Heard;

    fn turn(answer: f64, before: Option<f64>, early: bool) -> Turn {
        Turn {
            heard: Heard {
                early,
                first: Some(0.5),
                answer: Some(answer),
                before,
            },
            call: Some(Call {
                committed: 0.6,
                began: -0.1,
                ended: 0.2,
            }),
            cpu: 0.4,
            length: 8.0,
        }
    }

    #[test]
    fn early_turns_are_counted_and_left_out() {
        let turns = vec![turn(0.9, Some(0.7), false), turn(9.0, None, true)];
        let measured = Measured {
            tool: vec![(Duration::from_millis(300), [turns.clone(), turns.clone()])],
            plain: [turns.clone(), turns],
            silence: Some(0.02),
        };
        let settings = Settings::default();
        let report = report(&settings, &measured);
        let row = &report.tables[0].rows[1];
        assert_eq!(row[4], Cell::Number(900.0));
        assert_eq!(row[6], Cell::Number(690.0), "the floor");
        assert_eq!(report.tables[1].rows[1][3], Cell::Text("1 of 2".into()));
        let failed = report.checks.iter().filter(|check| !check.holds);
        let failed: Vec<&str> = failed.map(|check| &*check.what).collect();
        assert_eq!(failed, ["first sound, local brain, median: at most 0.28 s"]);
        for plot in &report.plots {
            plot.svg().unwrap();
        }
    }

    /// The p95, the answers without speculation and the first sounds met their goals with 0 s.
    #[test]
    fn no_goal_is_met_where_nothing_is_heard() {
        let silent = Turn {
            heard: Heard::default(),
            call: None,
            ..turn(0.9, None, false)
        };
        let delay = Duration::from_millis(300);
        let measured = Measured {
            tool: vec![(delay, [vec![silent], vec![silent]])],
            plain: [vec![silent], vec![silent]],
            silence: None,
        };
        let report = report(&Settings::default(), &measured);
        let met = report.checks.iter().filter(|check| check.holds);
        let met: Vec<&str> = met.map(|check| &*check.what).collect();
        let cpu = PLAIN.map(|who| format!("CPU, {who}: at most 0.08 cores"));
        assert_eq!(met, cpu);
        assert!(report.findings.is_empty());
    }
}
