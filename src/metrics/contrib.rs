//! Tests that the board for Grafana, the alerts for Prometheus and the table in docs/deploy.md name metrics that are
//! exported, with labels that they have.

use super::*;
use regex::Regex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use yaml_rust2::{Yaml, YamlLoader};

const BOARD: &str = include_str!("../../contrib/grafana/undertone.json");
const ALERTS: &str = include_str!("../../contrib/prometheus/undertone.rules.yml");
const GUIDE: &str = include_str!("../../docs/deploy.md");

/// The labels that Prometheus adds to all metrics of a server.
const SCRAPED: [&str; 2] = ["job", "instance"];

/// The names of samples, as `/metrics` shows them, and their labels.
type Exported = BTreeMap<String, BTreeSet<String>>;

/// Metrics of a server to which everything has happened: a family is exported once it has a member.
fn exported() -> Exported {
    let metrics = Metrics::default();
    metrics.turns.show_everything();
    metrics.stage_failed("asr");
    metrics.tool_failed("weather", &ToolError::Timeout(1));
    metrics.service_failed("asr", "deepgram", "late");
    metrics.service_is_up("asr", "deepgram", true);
    metrics.refused(Refusal::Full);
    let epoch = jiff::Timestamp::UNIX_EPOCH;
    metrics.certificate("example.com", epoch, epoch);
    metrics.call_ended(CallEnd::Connected);
    metrics.udp_lost(UdpLoss::Busy);
    metrics.queued("asr", Duration::ZERO);
    metrics.agent_turn("desk");
    metrics.handed_over("desk", "billing");
    metrics.mcp.have_server();
    metrics.fallbacks.have_model();
    let text = metrics.render();
    let label = Regex::new(r#"([a-z_]+)=""#).expect("a pattern");
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let mut exported = Exported::new();
    for sample in samples {
        let end = sample.find(['{', ' ']).expect("a value");
        let labels = label.captures_iter(sample).map(|found| found[1].to_owned());
        let known = exported.entry(sample[..end].to_owned()).or_default();
        known.extend(labels);
    }
    exported
}

/// The name of a sample without what a histogram adds to it.
fn base(sample: &str) -> &str {
    let parts = ["_bucket", "_sum", "_count"];
    let base = parts.iter().find_map(|part| sample.strip_suffix(part));
    base.unwrap_or(sample)
}

/// The registered names without prefix and suffixes, as the program's source has them.
fn registered() -> BTreeSet<String> {
    let source = concat!(include_str!("../metrics.rs"), include_str!("turns.rs"));
    let name =
        Regex::new(r#"(?:register(?:_with_unit)?\(|\(\n)\s*"([a-z_]+)","#).expect("a pattern");
    let found = name.captures_iter(source);
    found.map(|found| found[1].to_owned()).collect()
}

/// Asserts that a PromQL expression can have a result, and returns the labels of that.
fn check(expression: &str, exported: &Exported) -> BTreeSet<String> {
    let metric = Regex::new(r"\b(undertone_[a-z_]+|up\b)(\{[^}]*\})?").expect("a pattern");
    let compared = Regex::new(r"([a-z_]+)\s*(?:=~|!=|=)").expect("a pattern");
    let by = Regex::new(r"by \(([a-z_, ]+)\)").expect("a pattern");
    let mut labels: BTreeSet<String> = SCRAPED.map(str::to_owned).into();
    let of_up = BTreeSet::new();
    assert!(metric.is_match(expression), "no metric in {expression}");
    for found in metric.captures_iter(expression) {
        let (name, selector) = (&found[1], found.get(2).map_or("", |all| all.as_str()));
        let own = match name {
            // Prometheus's own: whether it reaches the server.
            "up" => Some(&of_up),
            name => exported.get(name),
        };
        let own = own.unwrap_or_else(|| panic!("{name} is not exported: {expression}"));
        for label in compared.captures_iter(selector) {
            let label = &label[1];
            let is_known = own.contains(label) || SCRAPED.contains(&label);
            assert!(is_known, "{name} has no label {label}: {expression}");
        }
        labels.extend(own.iter().cloned());
    }
    let mut grouped: Option<BTreeSet<String>> = None;
    for found in by.captures_iter(expression) {
        let names = found[1].split(',').map(|name| name.trim().to_owned());
        for name in names {
            assert!(labels.contains(&name), "no label {name}: {expression}");
            grouped.get_or_insert_default().insert(name);
        }
    }
    grouped.unwrap_or(labels)
}

/// Asserts that a text uses only these labels.
fn check_text(text: &str, pattern: &str, labels: &BTreeSet<String>) {
    let used = Regex::new(pattern).expect("a pattern");
    for found in used.captures_iter(text) {
        assert!(labels.contains(&found[1]), "no label {}: {text}", &found[1]);
    }
}

#[test]
fn every_family_is_known_to_these_tests() {
    let exported = exported();
    let registered = registered();
    assert!(registered.len() > 40, "{registered:?}");
    for name in registered {
        let start = format!("undertone_{name}");
        let is_there = exported.keys().any(|sample| sample.starts_with(&start));
        assert!(is_there, "{name}: add a sample of it to `exported`");
    }
}

#[test]
fn the_board_shows_every_metric_and_no_other() {
    let exported = exported();
    let board: Value = serde_json::from_str(BOARD).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let metric = Regex::new(r"\bundertone_[a-z_]+").expect("a pattern");
    let mut shown = BTreeSet::new();
    let mut places = BTreeSet::new();
    for panel in panels {
        let place = &panel["gridPos"];
        let is_free = places.insert((place["y"].as_u64(), place["x"].as_u64()));
        assert!(is_free, "two panels in one place: {}", panel["title"]);
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().expect("an expression");
            let labels = check(expression, &exported);
            shown.extend(
                metric
                    .find_iter(expression)
                    .map(|found| base(found.as_str())),
            );
            let legend = target["legendFormat"].as_str().expect("a legend");
            check_text(legend, r"\{\{([a-z_]+)\}\}", &labels);
        }
    }
    for sample in exported.keys() {
        let name = base(sample);
        assert!(shown.contains(name), "{name} is not on the board");
    }
    for variable in board["templating"]["list"].as_array().expect("variables") {
        if variable["type"] == "query" {
            check(variable["query"].as_str().expect("a query"), &exported);
        }
    }
}

#[test]
fn alerts_watch_metrics_that_are_exported() {
    let exported = exported();
    let documents = YamlLoader::load_from_str(ALERTS).expect("YAML");
    let rules = documents[0]["groups"][0]["rules"].as_vec().expect("rules");
    assert!(rules.len() > 10, "{}", rules.len());
    let mut names = BTreeSet::new();
    for rule in rules {
        let text = |value: &Yaml| value.as_str().expect("a text").to_owned();
        assert!(names.insert(text(&rule["alert"])), "{rule:?}");
        let labels = check(&text(&rule["expr"]), &exported);
        for part in ["summary", "description"] {
            let annotation = text(&rule["annotations"][part]);
            check_text(&annotation, r"\$labels\.([a-z_]+)", &labels);
        }
        let severity = text(&rule["labels"]["severity"]);
        assert!(["warning", "critical"].contains(&&*severity), "{severity}");
    }
}

#[test]
fn the_guide_lists_every_metric_and_no_other() {
    let exported = exported();
    let (_, section) = GUIDE.split_once("\n## Metrics\n").expect("a section");
    let section = section.split("\n## ").next().expect("a section");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let name = Regex::new("`([a-z_…]+)(?:\\{([a-z,]+)\\})?`").expect("a pattern");
    let mut listed = Vec::new();
    for found in cells.flat_map(|cell| name.captures_iter(cell)) {
        let full = format!("undertone_{}", &found[1]);
        listed.push(full.clone());
        if full.ends_with('…') {
            continue;
        }
        let histogram = format!("{full}_bucket");
        let own = exported.get(&full).or_else(|| exported.get(&histogram));
        let own = own.unwrap_or_else(|| panic!("{full} is listed and not exported"));
        let labels = found.get(2).map_or("", |all| all.as_str()).split(',');
        for label in labels.filter(|label| !label.is_empty()) {
            assert!(own.contains(label), "{full} has no label {label}");
        }
    }
    assert!(listed.len() > 30, "{listed:?}");
    for sample in exported.keys() {
        let base = base(sample);
        let is_listed = listed.iter().any(|name| match name.strip_suffix('…') {
            Some(start) => base.starts_with(start),
            None => name == base,
        });
        assert!(is_listed, "{base} is not in the table of docs/deploy.md");
    }
}
