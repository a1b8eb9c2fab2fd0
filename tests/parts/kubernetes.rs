//! Tests that the manifests in `contrib/kubernetes` fit the product: configuration, ports, paths, arguments, metrics.

use crate::support::{Server, local};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use undertone::config::{Config, Environment, Flags, load};
use undertone::metrics::Metrics;
use undertone::server::{App, ServerSettings};
use undertone::session::SessionError;
use yaml_rust2::{Yaml, YamlLoader};

const MANIFESTS: &str = include_str!("../../contrib/kubernetes/undertone.yaml");
const MONITOR: &str = include_str!("../../contrib/kubernetes/podmonitor.yaml");
const ALERTS: &str = include_str!("../../contrib/prometheus/undertone.rules.yml");

fn manifests(kind: &str) -> Vec<Yaml> {
    let documents = YamlLoader::load_from_str(MANIFESTS).expect("YAML");
    let of_kind = |document: &Yaml| document["kind"].as_str() == Some(kind);
    documents.into_iter().filter(of_kind).collect()
}

fn manifest(kind: &str) -> Yaml {
    let found = manifests(kind).into_iter().next();
    found.unwrap_or_else(|| panic!("there is no {kind}"))
}

/// The labels of the pods.
fn labels() -> Yaml {
    manifest("StatefulSet")["spec"]["template"]["metadata"]["labels"].clone()
}

fn pod() -> Yaml {
    manifest("StatefulSet")["spec"]["template"]["spec"].clone()
}

fn container() -> Yaml {
    pod()["containers"][0].clone()
}

fn list<'a>(yaml: &'a Yaml, key: &str) -> &'a [Yaml] {
    yaml[key].as_vec().map_or(&[], Vec::as_slice)
}

fn text<'a>(yaml: &'a Yaml, key: &str) -> &'a str {
    yaml[key]
        .as_str()
        .unwrap_or_else(|| panic!("no {key}: {yaml:?}"))
}

/// The value of a key of the secret.
fn secret(key: &str) -> String {
    format!("the-{key}-of-this-installation")
}

/// The configuration of a pod, with its environment. Unknown keys and variables are errors.
fn configuration() -> Config {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["token", "key"] {
        std::fs::write(folder.path().join(name), secret(name)).expect("written");
    }
    let map = manifest("ConfigMap");
    let here = folder.path().to_str().expect("a path");
    let file = text(&map["data"], "undertone.toml");
    let mounted = list(&container(), "volumeMounts")
        .iter()
        .map(|mount| text(mount, "mountPath").to_owned())
        .find(|path| path.ends_with("/secrets/undertone"));
    let secrets = mounted.expect("a mount for the secrets");
    for name in ["token", "key"] {
        let secret = format!("\"{secrets}/{name}\"");
        assert!(file.contains(&secret), "the {name} is mounted elsewhere");
    }
    let path = folder.path().join("undertone.toml");
    std::fs::write(&path, file.replace(&secrets, here)).expect("written");
    let container = container();
    let variables = list(&container, "env").iter().map(|variable| {
        let field = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str();
        let value = match field {
            Some("status.hostIP") => "192.0.2.7",
            other => panic!("{other:?}"),
        };
        (text(variable, "name").to_owned(), value.to_owned())
    });
    let flags = Flags {
        config: Some(path),
        ..Flags::default()
    };
    let loaded = load(&flags, &Environment::from_iter(variables));
    loaded.unwrap_or_else(|error| panic!("{error}")).config
}

#[test]
fn the_ports_are_those_of_the_configuration() {
    let (config, container) = (configuration(), container());
    let port = |name: &str, key: &str| {
        let mut ports = list(&container, "ports").iter();
        let port = ports.find(|port| text(port, "name") == name);
        port.expect("a port")[key].as_i64()
    };
    let served = i64::from(config.server.bind.port());
    assert_eq!(port("http", "containerPort"), Some(served));
    let webrtc = i64::from(config.webrtc.address(config.server.bind).port());
    assert_eq!(port("webrtc", "containerPort"), Some(webrtc));
    assert_eq!(
        port("webrtc", "hostPort"),
        Some(webrtc),
        "clients are told this number"
    );
    assert_eq!(
        config.webrtc.advertise,
        ["192.0.2.7".parse::<std::net::IpAddr>().unwrap()]
    );
    assert!(config.server.bind.ip().is_unspecified());
    for service in manifests("Service") {
        let target = service["spec"]["ports"][0]["targetPort"].as_str();
        assert_eq!(target, Some("http"), "{service:?}");
    }
}

#[test]
fn only_browsers_are_led_to_the_pod_that_they_had() {
    let mut affinities = BTreeMap::new();
    for service in manifests("Service") {
        let (name, spec) = (text(&service["metadata"], "name"), &service["spec"]);
        assert_eq!(spec["selector"], labels(), "{name}");
        if spec["clusterIP"].is_badvalue() {
            let affinity = spec["sessionAffinity"].as_str().map(str::to_owned);
            affinities.insert(name.to_owned(), affinity);
        } else {
            // That of the pods' names, which is not for calls.
            assert_eq!(text(&manifest("StatefulSet")["spec"], "serviceName"), name);
        }
    }
    let expected = BTreeMap::from([
        ("undertone".to_owned(), Some("ClientIP".to_owned())),
        ("undertone-phones".to_owned(), None),
    ]);
    assert_eq!(affinities, expected);
}

#[test]
fn a_drain_is_not_cut_short() {
    let seconds =
        |yaml: &Yaml| Duration::from_secs(yaml.as_i64().expect("a number").unsigned_abs());
    let grace = seconds(&pod()["terminationGracePeriodSeconds"]);
    let before = seconds(&container()["lifecycle"]["preStop"]["sleep"]["seconds"]);
    let drain = configuration().server.drain_deadline;
    assert!(
        before + drain + Duration::from_secs(20) <= grace,
        "{before:?}, {drain:?}, {grace:?}"
    );
}

#[test]
fn replicas_share_a_store_and_a_key() {
    let config = configuration();
    let store = config.store.expect("a store");
    assert_eq!(store.url.scheme(), "redis");
    assert!(config.server.client_secret_key.is_some());
}

/// A server with the settings of a pod, at a free port of loopback.
fn serve() -> Server {
    let settings = ServerSettings {
        bind: local().bind,
        ..configuration().server
    };
    let nobody = Arc::new(|_| Err(SessionError::Overloaded));
    Server::serve(App::new(settings, nobody))
}

#[tokio::test]
async fn the_probes_ask_for_paths_that_are_there() {
    let server = serve();
    let container = container();
    let path = |probe: &str| text(&container[probe]["httpGet"], "path").to_owned();
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let answer = server.get(&path(probe), "").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{probe}: {answer}");
    }
    assert_ne!(
        path("livenessProbe"),
        path("readinessProbe"),
        "a drain is no death"
    );
}

#[tokio::test]
async fn prometheus_shows_the_token_of_the_secret() {
    let server = serve();
    let documents = YamlLoader::load_from_str(MONITOR).expect("YAML");
    let monitor = &documents[0]["spec"];
    let endpoint = &list(monitor, "podMetricsEndpoints")[0];
    let path = text(endpoint, "path");
    let answer = server.get(path, "").await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    let (scheme, shown) = (
        text(&endpoint["authorization"], "type"),
        &endpoint["authorization"]["credentials"],
    );
    let authorization = format!("Authorization: {scheme} {}\r\n", secret(text(shown, "key")));
    let answer = server.get(path, &authorization).await;
    assert!(answer.contains("\nundertone_sessions "), "{answer}");

    let (pod, container) = (pod(), container());
    let mut volumes = list(&pod, "volumes").iter();
    let mounted = volumes.find_map(|volume| volume["secret"]["secretName"].as_str());
    assert_eq!(mounted, Some(text(shown, "name")));
    let mut ports = list(&container, "ports").iter();
    assert!(ports.any(|port| text(port, "name") == text(endpoint, "port")));
    let labels = labels();
    assert_eq!(monitor["selector"]["matchLabels"], labels);
    let job = text(&labels, text(monitor, "jobLabel"));
    assert!(
        ALERTS.contains(&format!("up{{job=\"{job}\"}}")),
        "the alerts are on another job than {job}"
    );
}

#[test]
fn the_program_takes_the_arguments() {
    let container = container();
    let arguments = list(&container, "args").iter().filter_map(Yaml::as_str);
    let mut program = Command::new(env!("CARGO_BIN_EXE_undertone"));
    let output = program.args(arguments).arg("--help").output().expect("run");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_autoscaler_counts_open_sessions_below_their_limit() {
    let metric = &manifest("HorizontalPodAutoscaler")["spec"]["metrics"][0]["pods"];
    let exported = Metrics::default().render();
    let name = text(&metric["metric"], "name");
    assert!(exported.contains(&format!("\n{name} ")), "{name}");
    let wanted: usize = text(&metric["target"], "averageValue")
        .parse()
        .expect("a number");
    assert!(wanted < configuration().server.max_sessions);
}

#[test]
fn the_pod_is_locked_down_and_has_what_it_mounts() {
    let (pod, container) = (pod(), container());
    assert_eq!(pod["securityContext"]["runAsNonRoot"].as_bool(), Some(true));
    let security = &container["securityContext"];
    assert_eq!(security["readOnlyRootFilesystem"].as_bool(), Some(true));
    assert_eq!(security["allowPrivilegeEscalation"].as_bool(), Some(false));
    let set = manifest("StatefulSet");
    let claims = list(&set["spec"], "volumeClaimTemplates").iter();
    let claimed = claims.map(|claim| text(&claim["metadata"], "name"));
    let volumes = list(&pod, "volumes")
        .iter()
        .map(|volume| text(volume, "name"));
    let known: Vec<&str> = claimed.chain(volumes).collect();
    let mounts = list(&container, "volumeMounts");
    for mount in mounts {
        assert!(known.contains(&text(mount, "name")), "{mount:?}");
    }
    for written in ["/var/lib/undertone", "/tmp"] {
        let mount = mounts
            .iter()
            .find(|mount| text(mount, "mountPath") == written);
        assert!(
            mount.expect("a mount")["readOnly"].is_badvalue(),
            "{written}"
        );
    }
    for kind in ["StatefulSet", "PodDisruptionBudget"] {
        let selected = manifest(kind)["spec"]["selector"]["matchLabels"].clone();
        assert_eq!(selected, labels(), "{kind}");
    }
}
