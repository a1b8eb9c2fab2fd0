//! Patterns that several servers share.

use super::learner::VERSION;
use super::store::{Book, Fault, MOST_BYTES, PatternStore, PatternStoreError, Stored};
use crate::store::{StoreError, StoreSettings, key};
use redis::{Cmd, Connection, FromRedisValue, cmd};
use uuid::Uuid;

/// Replaces the patterns (keys 1) if nobody has changed them since the writer read them, which the life of the store's
/// patterns (argument 1; empty if there were none) and the number of their last change (2) tell. 3 is the life to begin
/// if there were none, 4 the text, 5 the name of this update, which is kept (key 2) for a day.
const REPLACE: &str = "
local seen = redis.call('HMGET', KEYS[1], 'life', 'change')
if (seen[1] or '') ~= ARGV[1] or (seen[1] and seen[2] ~= ARGV[2]) then return false end
redis.call('HSET', KEYS[1], 'life', ARGV[3], 'patterns', ARGV[4])
redis.call('SET', KEYS[2], ARGV[5], 'EX', 86400)
return redis.call('HINCRBY', KEYS[1], 'change', 1)
";

/// Tries to write before others, who write every ten seconds at most.
const TRIES: usize = 16;

/// The patterns in a store that several servers share.
pub struct SharedPatterns {
    settings: StoreSettings,
    /// Programs that read other forms of patterns have another key.
    key: String,
    /// The key of this server's last update.
    update_key: String,
    /// The name of the update whose answer is missing.
    update: String,
    connection: Option<Connection>,
    /// The last version that was seen here; `None` before the first.
    seen: Option<Version>,
}

/// One content of the store.
#[derive(Debug, Clone, Default, PartialEq)]
struct Version {
    /// A name that a store has as long as it loses nothing.
    life: String,
    change: u64,
}

impl SharedPatterns {
    /// The patterns in this store, which need not answer yet.
    pub fn at(settings: StoreSettings) -> Self {
        let (key_of, version) = (key, VERSION.to_string());
        let server = Uuid::new_v4().simple().to_string();
        Self {
            settings,
            key: key_of(&["patterns", &version]),
            update_key: key_of(&["patterns-update", &version, &server]),
            update: String::new(),
            connection: None,
            seen: None,
        }
    }

    /// Asks over the open connection, or, if that has ended, over a new one.
    fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, StoreError> {
        if let Some(connection) = &mut self.connection
            && let Ok(answer) = command.query(connection)
        {
            return Ok(answer);
        }
        self.connection = None;
        let mut connection = self.settings.connect_blocking()?;
        let answer = command.query(&mut connection)?;
        self.connection = Some(connection);
        Ok(answer)
    }

    fn version(&mut self) -> Result<Option<Version>, StoreError> {
        let mut command = cmd("HMGET");
        command.arg(&self.key).arg("life").arg("change");
        let (life, change): (Option<String>, Option<u64>) = self.ask(&command)?;
        Ok(life.zip(change).map(Version::of))
    }

    /// The patterns, and the version of which they are; none of either if the store has none.
    fn read(&mut self) -> Result<(Book, Option<Version>), PatternStoreError> {
        let mut command = cmd("HMGET");
        command.arg(&self.key);
        command.arg("life").arg("change").arg("patterns");
        let (life, change, text): (Option<String>, Option<u64>, Option<String>) =
            self.ask(&command)?;
        let Some((version, text)) = life.zip(change).map(Version::of).zip(text) else {
            return Ok((Book::default(), None));
        };
        let foreign = |problem: String| PatternStoreError::SharedForeign {
            key: self.key.clone(),
            problem,
        };
        if text.len() as u64 > MOST_BYTES {
            return Err(foreign(format!("it is longer than {MOST_BYTES} bytes")));
        }
        let book = Book::parse(&text).map_err(|fault| match fault {
            Fault::Foreign(problem) => foreign(problem),
            Fault::Version(version) => foreign(format!("version {version}")),
        })?;
        Ok((book, Some(version)))
    }

    /// Whether these are not the patterns that were seen here before, changed by others at most: the store has lost
    /// them, or it has gone back to earlier ones.
    fn begins_anew(&self, version: Option<&Version>) -> bool {
        let goes_on =
            |now: &Version, seen: &Version| now.life == seen.life && now.change >= seen.change;
        let seen = self.seen.as_ref();
        seen.is_some_and(|seen| !version.is_some_and(|now| goes_on(now, seen)))
    }
}

impl Version {
    fn of((life, change): (String, u64)) -> Self {
        Self { life, change }
    }
}

impl PatternStore for SharedPatterns {
    fn load(&mut self) -> Result<Option<Stored>, PatternStoreError> {
        if self.version()? == self.seen {
            return Ok(None);
        }
        let (book, version) = self.read()?;
        let begins_anew = self.begins_anew(version.as_ref());
        if !begins_anew {
            self.seen = version;
        }
        Ok(Some(Stored { book, begins_anew }))
    }

    fn update(
        &mut self,
        change: &mut dyn FnMut(Stored) -> Book,
    ) -> Result<Book, PatternStoreError> {
        self.update = Uuid::new_v4().simple().to_string();
        for _ in 0..TRIES {
            let (book, version) = self.read()?;
            let begins_anew = self.begins_anew(version.as_ref());
            let book = change(Stored { book, begins_anew });
            let text = book.compact();
            let text = text.map_err(|error| StoreError::Failed(error.to_string()))?;
            let Version { life, change } = version.unwrap_or_default();
            let own_life = match life.as_str() {
                "" => &self.update,
                life => life,
            };
            let mut command = cmd("EVAL");
            command.arg(REPLACE).arg(2);
            command.arg(&self.key).arg(&self.update_key);
            command.arg(&life).arg(change).arg(own_life);
            command.arg(&text).arg(&self.update);
            // Not over another connection: over this one it may have been done, although the answer was lost.
            let Some(mut open) = self.connection.take() else {
                continue;
            };
            let written: Option<u64> = command.query(&mut open).map_err(StoreError::from)?;
            self.connection = Some(open);
            if let Some(change) = written {
                let life = own_life.to_owned();
                self.seen = Some(Version { life, change });
                return Ok(book);
            }
        }
        let problem = "other servers change the patterns all the time; try again";
        Err(StoreError::Failed(problem.to_owned()).into())
    }

    fn was_updated(&mut self) -> Result<bool, PatternStoreError> {
        let mut command = cmd("GET");
        command.arg(&self.update_key);
        let last: Option<String> = self.ask(&command)?;
        Ok(last.as_ref() == Some(&self.update))
    }
}
