//! Tests what several servers share with a real Redis: who begins a call, budgets, and used tickets.

use crate::support::faults::Cutter;
use crate::support::program::until;
use crate::support::replicas::Redis;
use crate::support::tls::Authority;
use futures_util::future::join_all;
use jiff::Timestamp;
use jiff::civil::date;
use rcgen::date_time_ymd;
use redis::cmd;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use undertone::session::{BudgetShared, BudgetStore, Spending};
use undertone::store::{Store, StoreFigures, StoreSettings, StoreTls, key};
use undertone::tools::journal::{
    Begun, Intent, Journal, JournalError, JournalFigures, JournalShared, JournalStore,
};
use undertone::tools::{SessionValues, ToolError};
use undertone::transport::phone::tickets::{SharedTickets, Tickets};

fn journal(store: &Store) -> (JournalShared, JournalFigures) {
    let figures = JournalFigures::default();
    (JournalShared::new(store.clone(), figures.clone()), figures)
}

fn intent(key: &str) -> Intent {
    let arguments = json!({"text": "buy milk"});
    Intent {
        key: key.into(),
        call: None,
        tool: "add_note".into(),
        arguments: arguments.as_object().cloned().expect("an object"),
        time: Timestamp::UNIX_EPOCH,
        span: Some(Duration::from_hours(1)),
    }
}

async fn begin(journal: &JournalShared, key: &str) -> Result<Begun, JournalError> {
    Journal::new(journal.clone()).begin(intent(key)).await
}

async fn finish(
    journal: &JournalShared,
    key: &str,
    result: &Result<Value, ToolError>,
) -> Result<(), JournalError> {
    let now = Timestamp::UNIX_EPOCH;
    journal.finish(key.into(), result.clone(), now).await
}

async fn begun(journal: &JournalShared, key: &str) -> Begun {
    begin(journal, key).await.expect("the store answers")
}

#[tokio::test]
async fn a_call_begun_by_another_server_is_not_begun_again() {
    let redis = Redis::start().await;
    let stores = [redis.store().await, redis.store().await];
    let [one, other] = stores.each_ref().map(|store| journal(store).0);
    assert_eq!(begun(&one, "a").await, Begun::Started);
    for journal in [&one, &other] {
        assert_eq!(begun(journal, "a").await, Begun::Unknown);
    }
    let done = Ok(json!({"added": "buy milk"}));
    let foreign = finish(&other, "a", &done).await;
    assert!(
        matches!(foreign, Err(JournalError::NotBegun(_))),
        "{foreign:?}"
    );
    finish(&one, "a", &done).await.expect("recorded");
    let again = finish(&one, "a", &done).await;
    assert!(matches!(again, Err(JournalError::NotBegun(_))), "{again:?}");
    for journal in [&one, &other] {
        assert_eq!(begun(journal, "a").await, Begun::Done(done.clone()));
    }
    let late = Err(ToolError::Timeout(5));
    assert_eq!(begun(&other, "b").await, Begun::Started);
    finish(&other, "b", &late).await.expect("recorded");
    assert_eq!(begun(&one, "b").await, Begun::Done(late));
    let changed = Intent {
        arguments: Map::new(),
        ..intent("a")
    };
    let reused = Journal::new(other.clone()).begin(changed).await;
    assert!(
        matches!(reused, Err(JournalError::KeyReused(_))),
        "{reused:?}"
    );

    let keys: Vec<_> = (0..40).map(|number| format!("k{}", number / 2)).collect();
    let both = keys.iter().enumerate().map(|(number, key)| {
        let journal = if number % 2 == 0 { &one } else { &other };
        begun(journal, key)
    });
    let both = join_all(both).await;
    let started = both.iter().filter(|begun| **begun == Begun::Started);
    assert_eq!(started.count(), 20);
}

#[tokio::test]
async fn earlier_attempts_at_a_change_are_kept_as_long_as_the_last_one() {
    let redis = Redis::start().await;
    let store = redis.store().await;
    let (journal, _) = journal(&store);
    let refused = Err(ToolError::Failed("no room is free".into()));
    let record = key(&["journal", "once-x"]);
    let ages = async || {
        let mut ages = cmd("PEXPIRE");
        let aged: u32 = store.ask(ages.arg(&record).arg(60_000)).await.expect("set");
        assert_eq!(aged, 1);
    };
    let left = async || {
        let mut left = cmd("PTTL");
        store.ask::<i64>(left.arg(&record)).await.expect("a time")
    };
    begun(&journal, "once-x").await;
    finish(&journal, "once-x", &refused)
        .await
        .expect("recorded");
    ages().await;
    begun(&journal, "once-x-1").await;
    assert!(left().await > 60_000);
}

#[tokio::test]
async fn without_the_store_no_call_is_begun_and_results_wait_for_it() {
    let mut redis = Redis::start().await;
    let stores = [redis.store().await, redis.store().await];
    let ([one, other], figures) = {
        let [one, other] = stores.each_ref().map(journal);
        ([one.0, other.0], one.1)
    };
    assert_eq!(begun(&one, "a").await, Begun::Started);
    redis.stop().await;
    let done = Ok(json!({"added": "buy milk"}));
    assert!(finish(&one, "a", &done).await.is_err());
    assert!(begin(&one, "b").await.is_err());
    assert_eq!(
        begin(&one, "a").await.expect("it is known here"),
        Begun::Done(done.clone())
    );
    until(async || figures.is_failing().then_some(())).await;

    redis.resume().await;
    until(async || (!figures.is_failing()).then_some(())).await;
    until(async || stores[1].is_up().then_some(())).await;
    until(async || (begun(&other, "a").await == Begun::Done(done.clone())).then_some(())).await;
    assert_eq!(begun(&other, "b").await, Begun::Started);
}

/// The answer is lost because the store stalls: the call does not run, so nobody may be kept from making it.
#[tokio::test]
async fn an_intent_whose_answer_was_lost_is_taken_back() {
    let redis = Redis::start().await;
    let stores = [redis.store().await, redis.store().await];
    let [one, other] = stores.each_ref().map(|store| journal(store).0);
    let mut pause = cmd("CLIENT");
    pause.arg("PAUSE").arg(6_000).arg("WRITE");
    let _: () = stores[1].ask(&pause).await.expect("paused");
    let lost = begin(&one, "a").await;
    assert!(matches!(lost, Err(JournalError::Store(_))), "{lost:?}");
    until(async || {
        let begun = begin(&other, "a").await.ok();
        begun.filter(|begun| *begun == Begun::Started)
    })
    .await;
    assert_eq!(begun(&one, "a").await, Begun::Unknown);
}

/// A store behind a proxy.
async fn behind(proxy: &Cutter, redis: &Redis) -> Store {
    let mut settings = redis.settings(StoreTls::default());
    settings.url = format!("redis://{}", proxy.address).parse().expect("a URL");
    let store = Store::open(&settings, StoreFigures::default()).await;
    store.expect("an address")
}

/// Its host had vanished, and for a quarter of an hour the server asked on over the connection that led there.
#[tokio::test]
async fn a_store_that_has_fallen_silent_is_asked_over_another_connection() {
    let redis = Redis::start().await;
    let proxy = Cutter::before(redis.address()).await;
    let store = behind(&proxy, &redis).await;
    let (journal, _) = journal(&store);
    assert_eq!(begun(&journal, "a").await, Begun::Started);
    let _for_ever = proxy.fall_silent();
    let lost = begin(&journal, "b").await;
    assert!(matches!(lost, Err(JournalError::Store(_))), "{lost:?}");
    until(async || {
        let begun = begin(&journal, "b").await.ok();
        begun.filter(|begun| *begun == Begun::Started)
    })
    .await;
}

/// It was among what a connection still had to send when it was given up, and for a month nobody could make the change.
#[tokio::test]
async fn an_intent_that_arrives_after_it_was_taken_back_is_taken_back_again() {
    let redis = Redis::start().await;
    let proxy = Cutter::before(redis.address()).await;
    let stores = [behind(&proxy, &redis).await, redis.store().await];
    let ((one, figures), (other, _)) = (journal(&stores[0]), journal(&stores[1]));
    let recorded = async |intents: u32| {
        let mut told = cmd("INFO");
        let told: String = stores[1]
            .ask(told.arg("commandstats"))
            .await
            .expect("an answer");
        // Nothing else adds to a set.
        let counted = format!("cmdstat_sadd:calls={intents},");
        told.contains(&counted).then_some(())
    };
    assert_eq!(begun(&one, "a").await, Begun::Started);
    until(async || recorded(1).await).await;
    let silence = proxy.fall_silent();
    let lost = begin(&one, "b").await;
    assert!(matches!(lost, Err(JournalError::Store(_))), "{lost:?}");
    until(async || (!figures.is_failing()).then_some(())).await;
    silence.cancel();
    until(async || recorded(2).await).await;
    until(async || {
        let begun = begin(&other, "b").await.ok();
        begun.filter(|begun| *begun == Begun::Started)
    })
    .await;
}

/// The refusal was kept for ever, so the server needed a restart.
#[tokio::test]
async fn a_password_that_the_store_has_refused_is_shown_again() {
    let redis = Redis::start().await;
    let known = redis.store().await;
    let mut settings = redis.settings(StoreTls::default());
    settings.url.set_username("ann").expect("a user");
    settings.password = Some("secret".into());
    let store = Store::open(&settings, StoreFigures::default()).await;
    let store = store.expect("an address");
    assert!(!store.is_up());
    let mut acl = cmd("ACL");
    acl.arg("SETUSER").arg("ann");
    acl.arg("on").arg(">secret").arg("~*").arg("+@all");
    let _: () = known.ask(&acl).await.expect("it answers");
    until(async || store.is_up().then_some(())).await;
}

/// It answers all the while, so nothing but the next look finds out that it takes results again.
#[tokio::test]
async fn a_result_that_the_store_has_refused_is_written_later() {
    let redis = Redis::start().await;
    let stores = [redis.store().await, redis.store().await];
    let ((one, figures), (other, _)) = (journal(&stores[0]), journal(&stores[1]));
    assert_eq!(begun(&one, "a").await, Begun::Started);
    let permit = async |scripts: &str| {
        let mut acl = cmd("ACL");
        acl.arg("SETUSER").arg("default").arg(scripts);
        let _: () = stores[0].ask(&acl).await.expect("it answers");
    };
    permit("-eval").await;
    let done = Ok(json!({"added": "buy milk"}));
    let refused = finish(&one, "a", &done).await;
    assert!(
        matches!(refused, Err(JournalError::Store(_))),
        "{refused:?}"
    );
    assert!(figures.is_failing() && stores[0].is_up());
    permit("+eval").await;
    until(async || (!figures.is_failing()).then_some(())).await;
    assert_eq!(begun(&other, "a").await, Begun::Done(done));
}

#[tokio::test]
async fn a_call_without_a_record_is_struck_off_and_one_of_another_version_stays() {
    let redis = Redis::start().await;
    let store = redis.store().await;
    let open = key(&["journal-open"]);
    let add = async |key: &str| {
        let mut add = cmd("SADD");
        add.arg(&open).arg(key);
        let _: () = store.ask(&add).await.expect("an answer");
    };
    let is_open = async |key: &str| {
        let mut is_open = cmd("SISMEMBER");
        is_open.arg(&open).arg(key);
        store.ask::<bool>(&is_open).await.expect("an answer")
    };
    let mut set = cmd("SET");
    set.arg(key(&["journal", "newer"])).arg(r#"{"form": 2}"#);
    let _: () = store.ask(&set).await.expect("an answer");
    add("newer").await;
    let _journal = journal(&store);
    // By two looks in turn: when the second begins, the first is over.
    for gone in ["gone", "gone too"] {
        add(gone).await;
        until(async || (!is_open(gone).await).then_some(())).await;
    }
    assert!(is_open("newer").await);
}

/// An older server told the model that no record of changes can be kept, each time it met such a result.
#[tokio::test]
async fn a_result_that_only_a_newer_server_can_read_says_that_the_change_may_have_been_made() {
    let redis = Redis::start().await;
    let store = redis.store().await;
    let (journal, figures) = journal(&store);
    let record = json!({
        "server": "newer", "lease": "1", "time": Timestamp::UNIX_EPOCH,
        "tool": "add_note", "arguments": {"text": "buy milk"},
        "result": {"Err": {"Unheard": 5}}
    });
    let mut set = cmd("SET");
    set.arg(key(&["journal", "a"])).arg(record.to_string());
    let _: () = store.ask(&set).await.expect("an answer");
    let begun = begun(&journal, "a").await;
    assert!(
        matches!(begun, Begun::Done(Err(ToolError::Uncertain(_)))),
        "{begun:?}"
    );
    assert!(!figures.is_failing());
}

/// Trusts `authority`, and shows a certificate of `own`.
fn certificates(authority: &Authority, own: Option<&Authority>) -> StoreTls {
    let tls = StoreTls::default().trusting(authority.pem());
    let tls = tls.expect("a certificate");
    match own.map(Authority::issue) {
        Some((certificate, key)) => tls.identified(certificate, key.into()).expect("a pair"),
        None => tls,
    }
}

#[tokio::test]
async fn a_store_over_tls_that_wants_client_certificates() {
    let authority = Authority::new();
    let mut redis = Redis::with_tls(&authority, None, |_| {}).await;
    let settings = redis.settings(certificates(&authority, Some(&authority)));
    settings.try_out().await.expect("it answers");
    let open = async || {
        let store = Store::open(&settings, StoreFigures::default()).await;
        store.expect("an address")
    };
    let (one, other) = (journal(&open().await).0, journal(&open().await).0);
    assert_eq!(begun(&one, "a").await, Begun::Started);
    assert_eq!(begun(&other, "a").await, Begun::Unknown);
    redis.stop().await;
    assert!(begin(&other, "b").await.is_err());
    redis.resume().await;
    until(async || begin(&other, "b").await.ok()).await;
    assert_eq!(begun(&one, "b").await, Begun::Unknown);
}

#[tokio::test]
async fn a_failed_handshake_with_the_store_is_told_with_its_mend() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let redis = Redis::with_tls(&authority, None, |_| {}).await;
    let misnamed = Redis::with_tls(&authority, Some("redis.example"), |_| {}).await;
    let expired = Redis::with_tls(&authority, None, |params| {
        params.not_after = date_time_ymd(2020, 1, 1);
    });
    let expired = expired.await;
    let plain = Redis::start().await;
    let mut without_tls = plain.settings(certificates(&authority, None));
    without_tls.url = plain
        .url()
        .replace("redis:", "rediss:")
        .parse()
        .expect("a URL");
    let mut with_tls = redis.settings(StoreTls::default());
    with_tls.url = redis
        .url()
        .replace("rediss:", "redis:")
        .parse()
        .expect("a URL");

    let own = |redis: &Redis| redis.settings(certificates(&authority, Some(&authority)));
    for (settings, problem, mend) in [
        (
            redis.settings(certificates(&foreign, Some(&authority))),
            "invalid peer certificate",
            "store.ca",
        ),
        (
            redis.settings(StoreTls::default()),
            "invalid peer certificate",
            "store.ca",
        ),
        (
            redis.settings(certificates(&authority, None)),
            "CertificateRequired",
            "store.cert",
        ),
        (
            redis.settings(certificates(&authority, Some(&foreign))),
            "fatal alert",
            "store.cert",
        ),
        (own(&misnamed), "redis.example", "store.url"),
        (own(&expired), "expired", "renew"),
        (without_tls, "timed out", "TLS port"),
        (with_tls, "", "rediss://"),
    ] {
        let error = settings
            .try_out()
            .await
            .expect_err("no handshake")
            .to_string();
        assert!(
            error.contains(problem) && error.contains(mend),
            "{mend}: {error}"
        );
    }
}

/// The server took it for a store that does not answer.
#[tokio::test]
async fn a_node_of_a_cluster_is_told_with_its_mend() {
    for answer in [
        "-MOVED 15495 10.0.0.6:6379\r\n",
        "-ASK 15495 10.0.0.6:6379\r\n",
        "-CLUSTERDOWN Hash slot not served\r\n",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let node = tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.expect("a client");
            let mut bytes = [0; 1_024];
            while let Ok(read @ 1..) = client.read(&mut bytes).await {
                // Each command is an array, and nothing in it has an asterisk.
                let commands = bytes[..read].iter().filter(|byte| **byte == b'*');
                let answers = answer.repeat(commands.count());
                client.write_all(answers.as_bytes()).await.expect("sent");
            }
        });
        let settings = StoreSettings {
            url: format!("redis://{address}").parse().expect("a URL"),
            password: None,
            tls: StoreTls::default(),
        };
        let told = settings.try_out().await.expect_err("an error").to_string();
        assert!(
            told.contains("a node of a cluster") && told.contains("store.url"),
            "{told}"
        );
        node.abort();
    }
}

fn spending(cost: f64) -> Spending {
    Spending {
        tool: "quote".into(),
        day: date(2026, 3, 1),
        cost,
        most_calls: Some(4),
        most_cost: Some(1.0),
    }
}

#[tokio::test]
async fn servers_share_a_days_budget_and_count_alone_without_the_store() {
    let mut redis = Redis::start().await;
    let stores = [redis.store().await, redis.store().await];
    let [one, other] = stores
        .each_ref()
        .map(|store| BudgetShared::new(store.clone()));
    assert!(one.take(spending(0.3)).await && other.take(spending(0.3)).await);
    assert!(!one.take(spending(0.5)).await, "1.1 is more than 1.0");
    assert!(one.take(spending(0.1)).await);

    redis.stop().await;
    // This server has spent 0.4 so far, in two calls.
    assert!(one.take(spending(0.1)).await);
    assert!(one.spent(spending(0.1)).await);
    assert!(!one.take(spending(0.1)).await, "it was the fifth call here");
    let alone = &stores[0];
    assert!(!alone.is_up());

    redis.resume().await;
    for store in &stores {
        until(async || store.is_up().then_some(())).await;
    }
    // What was spent meanwhile counts, too, as soon as the first asks.
    let most_cost = |most| Spending {
        most_calls: None,
        most_cost: Some(most),
        ..spending(0.0)
    };
    assert!(one.take(most_cost(0.95)).await);
    assert!(!other.take(most_cost(0.85)).await, "0.9 are spent");
    assert!(!other.take(spending(0.0)).await);
    let tomorrow = Spending {
        day: date(2026, 3, 2),
        ..spending(0.9)
    };
    assert!(other.take(tomorrow).await);
}

/// A session that ended dropped the answer before anything was counted.
#[tokio::test]
async fn what_is_spent_counts_for_all_servers_although_nobody_waits_for_the_answer() {
    let redis = Redis::start().await;
    let stores = [redis.store().await, redis.store().await];
    let [one, other] = stores.map(BudgetShared::new);
    drop(one.spent(spending(0.9)));
    let half = || Spending {
        most_calls: None,
        most_cost: Some(0.5),
        ..spending(0.0)
    };
    until(async || (!other.take(half()).await).then_some(())).await;
}

#[tokio::test]
async fn a_ticket_is_used_once_among_all_servers_and_calls_go_on_without_the_store() {
    let mut redis = Redis::start().await;
    let stores = [redis.store().await, redis.store().await];
    let [one, other] = stores.each_ref().map(|store| {
        let used = SharedTickets::new(store.clone());
        Tickets::new(Some("the operator's".into()), Arc::new(used))
    });
    let known = Some(SessionValues::default());
    let ticket = one.issue("CA1", SessionValues::default());
    assert_eq!(other.redeem(&ticket, "CA1").await, known);
    assert_eq!(one.redeem(&ticket, "CA1").await, None);
    let ticket = one.issue("CA1", SessionValues::default());
    redis.stop().await;
    assert_eq!(one.redeem(&ticket, "CA1").await, known);
    assert_eq!(one.redeem(&ticket, "CA1").await, None);
    assert!(!stores[0].is_up());
}

#[tokio::test]
async fn a_server_that_is_gone_is_not_alive() {
    let redis = Redis::start().await;
    let (one, other) = (redis.store().await, redis.store().await);
    let name = one.server().to_owned();
    assert_ne!(name, other.server());
    assert!(other.is_alive(&name).await.expect("an answer"));
    assert!(!other.is_alive("nobody").await.expect("an answer"));
    drop(one);
    let gone = async || !other.is_alive(&name).await.expect("an answer");
    until(async || gone().await.then_some(())).await;
    let claimed = other.claim("name", Duration::from_secs(60)).await;
    assert!(claimed.expect("an answer"));
    let again = other.claim("name", Duration::from_secs(60)).await;
    assert!(!again.expect("an answer"));
}
