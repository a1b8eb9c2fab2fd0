//! The report of `capacity`.

use super::part::Kind;
use super::{LENGTH, Level};
use crate::bench::Settings;
use crate::bench::report::{Check, Mark, Plot, Report, Series, Table};

const KINDS: [Kind; 3] = [Kind::Echo, Kind::Stubs, Kind::Detector];

/// The goals: calls on a core with stubs and with the real detector, µs for a frame in and a frame out, KiB a call.
const CALLS: f64 = 1_000.0;
const DETECTED: f64 = 200.0;
const PAIR: f64 = 15.0;
const MEMORY: f64 = 64.0;

pub(super) fn report(settings: &Settings, levels: &[Level], cores: usize) -> Report {
    Report {
        name: "capacity".into(),
        title: "Calls on a core".into(),
        seed: settings.seed,
        method: method(cores),
        findings: findings(levels),
        tables: vec![table(levels)],
        plots: vec![plot(levels)],
        checks: checks(levels),
    }
}

fn label(kind: Kind) -> &'static str {
    match kind {
        Kind::Echo => "bare echo",
        Kind::Stubs => "server with stubs",
        Kind::Detector => "with the real detector",
    }
}

/// The greatest level at which frames kept their time.
fn held(levels: &[Level], kind: Kind) -> Option<&Level> {
    levels
        .iter()
        .rfind(|level| level.kind == kind && level.holds())
}

fn held_calls(levels: &[Level], kind: Kind) -> usize {
    held(levels, kind).map_or(0, |level| level.calls)
}

fn method(cores: usize) -> Vec<String> {
    let pinned = match cores {
        1 => "Server and load share the machine's only core.",
        _ => "Server and load are processes of their own, each on a core of its own.",
    };
    vec![
        format!(
            "Full-duplex calls over bare PCM on WebSockets: a frame of 20 ms goes in every 20 ms, and while the agent speaks, \
             one comes out. {pinned} The server is the product's, with its sessions, core, voice activity, pacing and \
             sockets; recogniser, language model and voice are stubs that take no time. Callers of the stubs ask with a \
             tone of 0.3 s and hear an answer of 30 s, again and again. With the real detector they say a sentence of \
             about 3 s and hear an answer of 3 s. The number of calls grows until more than 0.1 % of the frames miss \
             their time, which is when everything before them has been played; each level is measured for {} s after \
             a warm-up of 4 s, with a fresh server.",
            LENGTH.as_secs()
        ),
        "CPU is the user and system time of the server's process; a pair is a frame in and a frame out. The bare echo sends \
         back what it gets over the same kind of socket: what sockets and kernel cost without a server. The load and the \
         bare echo read into buffers of 4 KiB. Memory is what the server's process has grown by since before the first \
         call. It is read half-way through the measured time, while the calls are open, and counts the process's own pages \
         (RssAnon): those of files, such as the weights of models, are shared. Most of it is sound: two clauses of 3 s that \
         are made ahead and wait to be played are 188 KiB, the user's last second is 40 KiB, and what was freed stays with \
         the process. If the load itself sends its frames more than 20 ms late (99th percentile), the level says nothing of \
         the server and does not count as held."
            .into(),
    ]
}

fn findings(levels: &[Level]) -> Vec<String> {
    let pair = |kind| held(levels, kind).map_or(0.0, Level::pair);
    vec![format!(
        "A core carries {} full-duplex calls without models at {:.1} µs for a frame in and one out (a bare echo takes {:.1} µs), and \
         {} with the real voice activity detector.",
        held_calls(levels, Kind::Stubs),
        pair(Kind::Stubs),
        pair(Kind::Echo),
        held_calls(levels, Kind::Detector)
    )]
}

fn table(levels: &[Level]) -> Table {
    let columns = [
        ("server", 0),
        ("calls", 0),
        ("CPU, cores", 3),
        ("a pair, µs", 1),
        ("memory a call, KiB", 0),
        ("frames missed, %", 3),
        ("unanswered, %", 2),
        ("refused", 0),
        ("load: CPU, cores", 3),
        ("load: late, p99 ms", 1),
        ("held", 0),
    ];
    let mut table = Table::new("Calls at the same time", &columns);
    for level in levels {
        let length = level.tally.sent as f64 / (50.0 * level.calls as f64);
        let cores = |cpu: f64| cpu / length.max(f64::MIN_POSITIVE);
        let held = match (level.holds(), level.is_generators()) {
            (true, _) => "yes",
            (false, true) => "load too slow",
            (false, false) => "no",
        };
        table.rows.push(vec![
            label(level.kind).into(),
            (level.calls as f64).into(),
            cores(level.cpu).into(),
            level.pair().into(),
            (level.memory / 1_024.0).into(),
            (100.0 * level.late()).into(),
            (100.0 * level.unanswered()).into(),
            (level.tally.refused as f64).into(),
            cores(level.generator).into(),
            level.tally.lag_ms.into(),
            held.into(),
        ]);
    }
    table
}

fn plot(levels: &[Level]) -> Plot {
    let series = |kind: Kind| Series {
        label: label(kind).into(),
        mark: Mark::Both,
        points: levels
            .iter()
            .filter(|level| level.kind == kind)
            .map(|level| (level.calls as f64, level.pair()))
            .collect(),
    };
    Plot {
        name: "capacity-pair".into(),
        title: "What a frame in and a frame out cost".into(),
        x: "calls at the same time".into(),
        y: "CPU of the server, µs".into(),
        series: KINDS.map(series).into(),
    }
}

fn checks(levels: &[Level]) -> Vec<Check> {
    let calls = |kind| held_calls(levels, kind) as f64;
    let mut checks = vec![
        Check::at_least(
            "calls held, server with stubs",
            calls(Kind::Stubs),
            CALLS,
            "",
        ),
        Check::at_least(
            "calls held, with the real detector",
            calls(Kind::Detector),
            DETECTED,
            "",
        ),
    ];
    if let Some(level) = held(levels, Kind::Stubs) {
        let memory = level.memory / 1_024.0;
        checks.push(Check::at_most(
            "a frame in and a frame out",
            level.pair(),
            PAIR,
            " µs",
        ));
        checks.push(Check::at_most("memory of a call", memory, MEMORY, " KiB"));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::super::load::Tally;
    use super::*;

    #[test]
    fn the_last_level_without_misses_is_what_is_held() {
        let level = |kind, calls: usize, late| Level {
            kind,
            calls,
            tally: Tally {
                sent: 250 * calls as u64,
                heard: 240 * calls as u64,
                late,
                asked: 10,
                ..Tally::default()
            },
            cpu: 0.0025 * calls as f64,
            generator: 0.1,
            memory: 32_768.0,
        };
        let levels = [
            level(Kind::Echo, 250, 0),
            level(Kind::Stubs, 250, 0),
            level(Kind::Stubs, 500, 900),
            level(Kind::Detector, 25, 0),
        ];
        let report = report(&Settings::default(), &levels, 2);
        let found: Vec<_> = report.checks.iter().map(|c| (&*c.found, c.holds)).collect();
        assert_eq!(
            found,
            [
                ("250.00", false),
                ("25.00", false),
                ("10.0000 µs", true),
                ("32.0000 KiB", true)
            ]
        );
        let table = report.tables[0].markdown();
        assert!(table.contains("| no "), "{table}");
        report.plots[0].svg().unwrap();
    }
}
