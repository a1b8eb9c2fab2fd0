//! Patterns that several servers share.

use super::learner::VERSION;
use super::store::{Book, Fault, PatternStore, PatternStoreError};
use crate::store::{StoreError, StoreSettings, key};
use redis::{Connection, RedisError, cmd};

/// Replaces the patterns if nobody else has: the key, the number of the change that the writer has seen (0 before the
/// first), the patterns. Returns the number of this change, or nothing.
const REPLACE: &str = "
local seen = redis.call('HGET', KEYS[1], 'change') or '0'
if seen ~= ARGV[1] then return false end
redis.call('HSET', KEYS[1], 'patterns', ARGV[2])
return redis.call('HINCRBY', KEYS[1], 'change', 1)
";

/// Tries to write before others, who write every ten seconds at most, count as a fault.
const TRIES: usize = 16;

/// The patterns in a store that several servers share.
pub struct SharedPatterns {
    settings: StoreSettings,
    /// Programs that read other forms of patterns have another key.
    key: String,
    connection: Option<Connection>,
    /// The number of the last change that was seen here.
    seen: u64,
}

impl SharedPatterns {
    /// The patterns in this store, which need not answer yet.
    pub fn at(settings: StoreSettings) -> Self {
        Self {
            settings,
            key: key(&["patterns", &VERSION.to_string()]),
            connection: None,
            seen: 0,
        }
    }

    /// Asks over the open connection, or else over a new one.
    fn ask<T>(
        &mut self,
        question: impl Fn(&str, &mut Connection) -> Result<T, RedisError>,
    ) -> Result<T, StoreError> {
        // A connection that was open may have ended since.
        if let Some(mut connection) = self.connection.take()
            && let Ok(answer) = question(&self.key, &mut connection)
        {
            self.connection = Some(connection);
            return Ok(answer);
        }
        let mut connection = self.settings.connect_blocking()?;
        let answer = question(&self.key, &mut connection)?;
        self.connection = Some(connection);
        Ok(answer)
    }

    /// The stored patterns and the number of their last change; `None` if there are none.
    fn read(&mut self) -> Result<Option<Book>, PatternStoreError> {
        let stored: (Option<u64>, Option<String>) = self.ask(|key, connection| {
            let mut command = cmd("HMGET");
            command.arg(key).arg("change").arg("patterns");
            command.query(connection)
        })?;
        let (Some(change), Some(text)) = stored else {
            self.seen = 0;
            return Ok(None);
        };
        let book = Book::parse(&text).map_err(|fault| PatternStoreError::SharedForeign {
            key: self.key.clone(),
            problem: match fault {
                Fault::Foreign(problem) => problem,
                Fault::Version(version) => format!("version {version}"),
            },
        })?;
        self.seen = change;
        Ok(Some(book))
    }
}

impl PatternStore for SharedPatterns {
    /// A store that has lost its patterns has not changed them: the next server that learns fills it again.
    fn load(&mut self) -> Result<Option<Book>, PatternStoreError> {
        let change: Option<u64> =
            self.ask(|key, connection| cmd("HGET").arg(key).arg("change").query(connection))?;
        match change {
            Some(change) if change != self.seen => self.read(),
            _ => Ok(None),
        }
    }

    fn update(
        &mut self,
        change: &mut dyn FnMut(Option<Book>) -> Book,
    ) -> Result<Book, PatternStoreError> {
        for _ in 0..TRIES {
            let stored = self.read()?;
            let book = change(stored);
            let text = book
                .text()
                .map_err(|error| StoreError::Failed(error.to_string()))?;
            let seen = self.seen;
            let written: Option<u64> = self.ask(|key, connection| {
                let mut command = cmd("EVAL");
                command.arg(REPLACE).arg(1).arg(key).arg(seen).arg(&text);
                command.query(connection)
            })?;
            if let Some(change) = written {
                self.seen = change;
                return Ok(book);
            }
        }
        let problem = "others change the patterns all the time";
        Err(StoreError::Failed(problem.to_owned()).into())
    }
}
