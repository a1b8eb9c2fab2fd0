//! The changes since a baseline.

use super::report::{Figures, Percentiles, Report, ScenarioReport, money};

/// The differences between a report and its baseline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// All differences, in words.
    pub changes: Vec<String>,
    /// Those for the worse that count as failures.
    pub regressions: Vec<String>,
}

/// Compares a report with its baseline.
///
/// A scenario regresses if a smaller share of its runs succeeds than in the baseline, or if it is over an asserted
/// limit that it kept then, even if it was over another one. One that the baseline does not have must succeed. Latency,
/// tokens and cost are told and are no regressions.
pub fn compare(baseline: &Report, now: &Report) -> Comparison {
    let mut found = Comparison::default();
    if baseline.text != now.text {
        let told = |text| if text { "text" } else { "speech" };
        found.changes.push(format!(
            "the baseline was made in {}, this report in {}: their latencies differ for that reason",
            told(baseline.text),
            told(now.text)
        ));
    } else if baseline.jobs != now.jobs {
        found.changes.push(format!(
            "the baseline held {} conversations at the same time, this report {}: their latencies differ for that \
             reason, too",
            baseline.jobs, now.jobs
        ));
    }
    for scenario in &now.scenarios {
        let before = baseline
            .scenarios
            .iter()
            .find(|one| one.name == scenario.name);
        match before {
            Some(before) => found.scenario(before, scenario),
            None => found.new_scenario(scenario),
        }
    }
    for before in &baseline.scenarios {
        if !now.scenarios.iter().any(|one| one.name == before.name) {
            let name = &before.name;
            found.changes.push(format!("{name}: only in the baseline"));
        }
    }
    found
}

impl Comparison {
    fn scenario(&mut self, before: &ScenarioReport, now: &ScenarioReport) {
        let name = &now.name;
        let (old, new) = (&before.figures, &now.figures);
        // Shares of different numbers of runs, without division.
        let fell = new.succeeded * old.runs < old.succeeded * new.runs;
        if fell {
            self.regressions.push(format!(
                "{name}: {}/{} runs succeeded, {}/{} in the baseline",
                new.succeeded, new.runs, old.succeeded, old.runs
            ));
        }
        self.limits(now, &before.over_limit);
        self.changes
            .extend(differences(old, new).map(|change| format!("{name}: {change}")));
    }

    fn new_scenario(&mut self, now: &ScenarioReport) {
        let (name, figures) = (&now.name, &now.figures);
        self.changes.push(format!("{name}: not in the baseline"));
        if figures.succeeded < figures.runs {
            self.regressions.push(format!(
                "{name}: {}/{} runs succeeded, and it is not in the baseline",
                figures.succeeded, figures.runs
            ));
        }
        self.limits(now, &[]);
    }

    /// Notes the asserted limits that are exceeded and were not exceeded `before`.
    fn limits(&mut self, now: &ScenarioReport, before: &[String]) {
        let was_over = |text: &String| before.iter().any(|old| limit_of(old) == limit_of(text));
        let over = now.over_limit.iter().filter(|text| !was_over(text));
        if now.asserts_limits {
            self.regressions
                .extend(over.map(|text| format!("{}: {text}", now.name)));
        }
    }
}

/// The name of the limit that was exceeded.
fn limit_of(text: &str) -> &str {
    text.split_once(':').map_or(text, |(limit, _)| limit)
}

/// Figures that differ, per run where they grow with the number of runs.
fn differences(old: &Figures, new: &Figures) -> impl Iterator<Item = String> {
    let each = |value: u64, runs: u64| format!("{:.1}", value as f64 / runs.max(1) as f64);
    let counted = |name: &str, before: u64, now: u64| {
        let (before, now) = (each(before, old.runs), each(now, new.runs));
        (before != now).then(|| format!("{name} a run: {before} → {now}"))
    };
    let timed = |name: &str, before: Option<Percentiles>, now: Option<Percentiles>| {
        let told = |of: Option<Percentiles>| {
            of.map_or("-".to_owned(), |of| format!("{}/{} ms", of.p50, of.p95))
        };
        let (before, now) = (told(before), told(now));
        (before != now).then(|| format!("{name} p50/p95: {before} → {now}"))
    };
    let share = |of: &Figures| format!("{}/{}", of.succeeded, of.runs);
    let cost = |of: &Figures| money(of.cost / of.runs.max(1) as f64);
    let is_same = new.succeeded * old.runs == old.succeeded * new.runs;
    let passed = (!is_same).then(|| format!("passed: {} → {}", share(old), share(new)));
    let paid =
        (cost(old) != cost(new)).then(|| format!("cost a run: {} → {}", cost(old), cost(new)));
    let tokens = |of: &Figures| of.tokens.input + of.tokens.output + of.tokens.wasted;
    [
        passed,
        counted("right calls", old.calls.right, new.calls.right),
        counted("wrong calls", old.calls.wrong, new.calls.wrong),
        counted("missing calls", old.calls.missing, new.calls.missing),
        counted("forbidden calls", old.calls.forbidden, new.calls.forbidden),
        counted("words cut", old.words_cut, new.words_cut),
        timed("first sound", old.first_ms, new.first_ms),
        timed("answer", old.answer_ms, new.answer_ms),
        counted("early hits", old.early.hits, new.early.hits),
        counted("early runs in vain", old.early.wasted, new.early.wasted),
        counted("tokens", tokens(old), tokens(new)),
        paid,
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::report::FailedRun;

    fn report(scenarios: &[(&str, u64, u64)]) -> Report {
        let scenario = |(name, succeeded, runs): &(&str, u64, u64)| ScenarioReport {
            name: (*name).into(),
            figures: Figures {
                runs: *runs,
                succeeded: *succeeded,
                ..Figures::default()
            },
            over_limit: Vec::new(),
            asserts_limits: false,
            failed: vec![FailedRun::default(); (runs - succeeded) as usize],
        };
        Report {
            version: 1,
            made_by: String::new(),
            text: true,
            runs: 3,
            seed: 1,
            jobs: 1,
            scenarios: scenarios.iter().map(scenario).collect(),
            total: Figures::default(),
        }
    }

    #[test]
    fn a_smaller_share_of_successes_is_a_regression_and_an_equal_one_is_not() {
        let baseline = report(&[("a", 3, 3), ("b", 1, 3), ("c", 0, 3)]);
        let regressions = |now: &[(&str, u64, u64)]| compare(&baseline, &report(now)).regressions;
        assert_eq!(
            regressions(&[("a", 6, 6), ("b", 2, 6), ("c", 0, 1)]),
            [""; 0]
        );
        let worse = regressions(&[("a", 5, 6), ("b", 2, 3), ("c", 3, 3)]);
        assert_eq!(worse, ["a: 5/6 runs succeeded, 3/3 in the baseline"]);
        let new = regressions(&[("a", 3, 3), ("d", 2, 3)]);
        assert_eq!(new.len(), 1, "{new:?}");
        assert!(new[0].starts_with("d: 2/3"), "{new:?}");
    }

    #[test]
    fn limits_are_told_and_count_only_if_they_are_asserted() {
        let baseline = report(&[("a", 3, 3)]);
        let mut now = report(&[("a", 3, 3)]);
        now.scenarios[0].over_limit = vec!["first sound: too late".into()];
        now.scenarios[0].figures.first_ms = Some(Percentiles {
            count: 1,
            p50: 900,
            p95: 1_200,
        });
        let found = compare(&baseline, &now);
        assert_eq!(found.regressions, [""; 0]);
        assert_eq!(found.changes, ["a: first sound p50/p95: - → 900/1200 ms"]);
        assert!(!now.has_failures());
        now.scenarios[0].asserts_limits = true;
        assert!(now.has_failures());
        let found = compare(&baseline, &now);
        assert_eq!(found.regressions, ["a: first sound: too late"]);
        let mut before = baseline;
        before.scenarios[0].over_limit = vec!["first sound: even later".into()];
        assert_eq!(
            compare(&before, &now).regressions,
            [""; 0],
            "it was so before"
        );
        now.scenarios[0].over_limit.push("answer: too late".into());
        let found = compare(&before, &now);
        assert_eq!(found.regressions, ["a: answer: too late"]);
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let report = report(&[("a", 2, 3), ("long name", 3, 3)]);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(Report::parse(&text).unwrap(), report);
        assert!(Report::parse("{}").is_err());
        let later = text.replace("\"version\":1", "\"version\":2");
        assert!(Report::parse(&later).unwrap_err().contains("format is 2"));
        let table = report.table();
        assert!(table.contains("long name     3/3"), "{table}");
    }
}
