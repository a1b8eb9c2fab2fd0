//! The store that several servers share: Redis, Valkey, or another server that speaks their protocol.
//!
//! A server writes to it once a second, with which it shows the others that it is alive, and notices
//! whether the store works. While it does not, every question fails at once, and its users do what is right
//! without it. All keys begin with `{undertone}:`, so that a store of several nodes behind one address keeps them in
//! one place. The nodes of a cluster themselves are not supported: a client would have to find out which of them has
//! the keys.

mod tls;

pub use tls::{BadCertificate, StoreTls};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Cmd, ConnectionInfo, FromRedisValue, IntoConnectionInfo, RedisError, cmd};
use secrecy::{ExposeSecret, SecretString};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use url::Url;
use uuid::Uuid;

/// The beginning of every key.
const PREFIX: &str = "{undertone}";

/// How often a server shows that it is alive.
const BEAT: Duration = Duration::from_secs(1);

/// How long a server counts as alive after that.
const ALIVE: Duration = Duration::from_secs(15);

/// The longest wait for a connection, and for an answer: callers wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// After so many failures in a row there is a new connection. The crate asks on where nothing comes back, as from a
/// host that has vanished, and keeps the refusal of a password for ever.
const GIVE_UP_AFTER: u32 = 2;

/// The address of a store.
#[derive(Debug, Clone)]
pub struct StoreSettings {
    /// `redis://HOST:PORT/DATABASE`, or `rediss` with TLS. May contain a user, and no password.
    pub url: Url,
    /// The password.
    pub password: Option<SecretString>,
    /// The certificates; only for addresses with TLS.
    pub tls: StoreTls,
}

impl StoreSettings {
    /// Whether the address can be read.
    ///
    /// # Errors
    /// [`StoreError::Failed`] with the reason.
    pub fn check(&self) -> Result<(), StoreError> {
        self.client().map(drop)
    }

    /// Connects and writes, once.
    ///
    /// # Errors
    /// [`StoreError::Failed`] with the reason.
    pub async fn try_out(&self) -> Result<(), StoreError> {
        let mut connection = connect(&self.client()?)?;
        let mut command = cmd("SET");
        command
            .arg(key(&["alive", "doctor"]))
            .arg(1)
            .arg("EX")
            .arg(1);
        let answer: Result<(), RedisError> = command.query_async(&mut connection).await;
        answer.map_err(|error| match self.guess(&error) {
            Some(mend) => StoreError::Failed(format!("{error}: {mend}")),
            None => error.into(),
        })
    }

    /// A connection for a thread of its own.
    ///
    /// # Errors
    /// [`StoreError::Failed`] with the reason.
    pub fn connect_blocking(&self) -> Result<redis::Connection, StoreError> {
        let connection = self.client()?.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        Ok(connection)
    }

    /// How to mend what happens if one side speaks TLS and the other does not.
    fn guess(&self, error: &RedisError) -> Option<&'static str> {
        let is_refused = error.is_connection_refusal();
        match self.url.scheme() {
            "redis" if error.is_connection_dropped() && !is_refused => {
                Some("if that is the store's TLS port, write rediss:// in store.url")
            }
            // Redis takes the handshake for the beginning of a line.
            "rediss" if error.is_timeout() => Some("is it the store's TLS port?"),
            _ => None,
        }
    }

    fn client(&self) -> Result<redis::Client, StoreError> {
        let info = self.info()?;
        Ok(if self.tls.is_default() {
            redis::Client::open(info)?
        } else {
            redis::Client::build_with_tls(info, self.tls.certificates())?
        })
    }

    fn info(&self) -> Result<ConnectionInfo, StoreError> {
        let info = self.url.clone().into_connection_info()?;
        let mut login = info.redis_settings().clone();
        if let Some(password) = &self.password {
            login = login.set_password(password.expose_secret());
        }
        Ok(info.set_redis_settings(login))
    }
}

/// The key of these names.
pub fn key(names: &[&str]) -> String {
    format!("{PREFIX}:{}", names.join(":"))
}

/// A connection that opens with the first question.
fn connect(client: &redis::Client) -> Result<ConnectionManager, RedisError> {
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    ConnectionManager::new_lazy_with_config(client.clone(), config)
}

/// The reason that a store has not done what it was asked for.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// It was not asked, because it did not answer before.
    #[error("the shared store does not answer")]
    Down,
    /// It refused, or its answer was lost. It may have done what it was asked for.
    #[error("the shared store: {0}")]
    Failed(String),
}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        Self::Failed(told(&error))
    }
}

/// How to mend the answers of a cluster's node (MOVED, ASK, CLUSTERDOWN).
const NODE: &str = "this is a node of a cluster, which is not supported: name a store without cluster mode in \
                    store.url (on ElastiCache, cluster mode disabled; on Azure Managed Redis, the Enterprise or the \
                    non-clustered policy)";

/// The error, and how to mend it if that is known.
fn told(error: &RedisError) -> String {
    let of_cluster = error.is_cluster_error().then_some(NODE);
    match of_cluster.or_else(|| tls::mend(error)) {
        Some(mend) => format!("{error}: {mend}"),
        None => error.to_string(),
    }
}

/// The state of the store, for metrics.
#[derive(Debug, Clone)]
pub struct StoreFigures {
    /// 1 while the store answers, and without a store.
    pub(crate) up: Gauge,
    /// Spendings of a day's budget that were counted by this server alone.
    pub(crate) local_budgets: Counter,
    used: Arc<AtomicBool>,
}

impl Default for StoreFigures {
    fn default() -> Self {
        let figures = Self {
            up: Gauge::default(),
            local_budgets: Counter::default(),
            used: Arc::default(),
        };
        figures.up.set(1);
        figures
    }
}

impl StoreFigures {
    /// Whether this server shares a store with others.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether there is a store and it does not answer.
    pub fn is_down(&self) -> bool {
        self.is_used() && self.up.get() == 0
    }
}

/// A connection to a store. Clones are the same one, which comes back by itself after it was lost.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    client: redis::Client,
    connection: Mutex<ConnectionManager>,
    /// Without the password.
    url: Url,
    /// This run of the server, unlike any other.
    server: String,
    up: watch::Sender<bool>,
    figures: StoreFigures,
}

impl Store {
    /// Connects, and stays connected as long as a clone is left. A store that does not answer is logged, and asked
    /// again once a second.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if the address cannot be used.
    pub async fn open(settings: &StoreSettings, figures: StoreFigures) -> Result<Self, StoreError> {
        let client = settings.client()?;
        let connection = connect(&client)?;
        figures.used.store(true, Ordering::Relaxed);
        let store = Self(Arc::new(Inner {
            client,
            connection: Mutex::new(connection),
            url: settings.url.clone(),
            server: Uuid::new_v4().simple().to_string(),
            // So that a failure of the first beat is a change, and logged.
            up: watch::Sender::new(true),
            figures,
        }));
        let answers = store.beat().await;
        let inner = Arc::downgrade(&store.0);
        tokio::spawn(async move {
            let mut beats = interval(BEAT);
            beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut failures = u32::from(!answers);
            loop {
                beats.tick().await;
                let Some(store) = inner.upgrade().map(Self) else {
                    return;
                };
                failures = match store.beat().await {
                    true => 0,
                    false => failures + 1,
                };
                if failures == GIVE_UP_AFTER {
                    failures = 0;
                    store.connect_anew();
                }
            }
        });
        Ok(store)
    }

    /// Asks for something, once. Fails at once while the store does not answer.
    ///
    /// # Errors
    /// [`StoreError`]. After [`StoreError::Failed`] it may have been done all the same.
    pub async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        if !self.is_up() {
            return Err(StoreError::Down);
        }
        let answer = command.query_async(&mut self.connection()).await;
        answer.map_err(|error| {
            if error.is_io_error() {
                self.set_down(&error);
            }
            error.into()
        })
    }

    /// Runs a script in one step.
    ///
    /// # Errors
    /// As [`Store::ask`].
    pub async fn run<T: FromRedisValue>(
        &self,
        script: &str,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<T, StoreError> {
        let mut command = cmd("EVAL");
        command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
        self.ask(&command).await
    }

    /// Takes a name for a time. Returns whether nobody had taken it.
    ///
    /// # Errors
    /// As [`Store::ask`].
    pub async fn claim(&self, key: &str, lasting: Duration) -> Result<bool, StoreError> {
        let mut command = cmd("SET");
        let millis = u64::try_from(lasting.as_millis()).unwrap_or(u64::MAX);
        command.arg(key).arg(1).arg("NX").arg("PX").arg(millis);
        let taken: Option<String> = self.ask(&command).await?;
        Ok(taken.is_some())
    }

    /// The name of this run of the server among all that share the store.
    pub fn server(&self) -> &str {
        &self.0.server
    }

    /// Whether a server of this name has shown lately that it is alive.
    ///
    /// # Errors
    /// As [`Store::ask`].
    pub async fn is_alive(&self, server: &str) -> Result<bool, StoreError> {
        let mut command = cmd("EXISTS");
        command.arg(key(&["alive", server]));
        self.ask(&command).await
    }

    /// Whether the store has answered last.
    pub fn is_up(&self) -> bool {
        *self.0.up.borrow()
    }

    /// Changes when the store stops answering and when it answers again.
    pub fn changes(&self) -> watch::Receiver<bool> {
        self.0.up.subscribe()
    }

    /// The metrics.
    pub fn figures(&self) -> &StoreFigures {
        &self.0.figures
    }

    fn connection(&self) -> ConnectionManager {
        let connection = self.0.connection.lock();
        connection.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Closes the connection as soon as nobody waits for an answer over it. What the store was asked there it may still
    /// do later.
    fn connect_anew(&self) {
        if let Ok(anew) = connect(&self.0.client) {
            let connection = self.0.connection.lock();
            *connection.unwrap_or_else(PoisonError::into_inner) = anew;
        }
    }

    /// Shows that this server is alive, with which it is seen whether the store can be written. Returns whether it can.
    async fn beat(&self) -> bool {
        let mut command = cmd("SET");
        command.arg(key(&["alive", self.server()])).arg(1);
        command.arg("EX").arg(ALIVE.as_secs());
        let answer = command.query_async::<()>(&mut self.connection()).await;
        match &answer {
            Ok(()) => {
                if self.set_is_up(true) {
                    tracing::info!("the shared store answers again");
                }
            }
            Err(error) => self.set_down(error),
        }
        answer.is_ok()
    }

    /// Returns whether this is a change. The gauge is set under the state's lock, so both always agree.
    fn set_is_up(&self, is_up: bool) -> bool {
        self.0.up.send_if_modified(|was_up| {
            self.0.figures.up.set(is_up.into());
            std::mem::replace(was_up, is_up) != is_up
        })
    }

    fn set_down(&self, error: &RedisError) {
        if self.set_is_up(false) {
            tracing::error!(
                error = told(error),
                store = %self.0.url,
                "the shared store does not answer: until it does, no call that changes something is made, and \
                 this server counts budgets by itself"
            );
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str) -> StoreSettings {
        StoreSettings {
            url: url.parse().expect("a URL"),
            password: None,
            tls: StoreTls::default(),
        }
    }

    #[tokio::test]
    async fn a_store_that_is_not_there_refuses_at_once_and_the_server_starts() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("an address");
        drop(taken);
        let figures = StoreFigures::default();
        assert!(!figures.is_down());
        let settings = settings(&format!("redis://{address}"));
        let store = Store::open(&settings, figures.clone()).await;
        let store = store.expect("an address that can be used");
        assert!(!store.is_up() && figures.is_down());
        let asked: Result<(), _> = store.ask(&cmd("PING")).await;
        assert!(matches!(asked, Err(StoreError::Down)), "{asked:?}");
    }

    #[test]
    fn the_password_is_not_part_of_the_address() {
        let mut settings = settings("redis://ann@localhost:7000/3");
        settings.password = Some("secret".into());
        let info = settings.info().expect("an address");
        let login = info.redis_settings();
        assert_eq!(
            (login.username(), login.password(), login.db()),
            (Some("ann"), Some("secret"), 3)
        );
        assert!(!format!("{settings:?}").contains("secret"));
        assert!(self::settings("redis://localhost/x").check().is_err());
    }
}
