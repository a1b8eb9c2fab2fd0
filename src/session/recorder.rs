//! Writes down what goes into a conversation and what it decides, without ever holding it up.

use crate::conversation::{
    Conversation, Declarations, Experience, HangUpReason, Input, Lesson, Output, Policy, RequestId,
    Samples, Time, TurnRecord,
};
use crate::llm::ModelId;
use crate::recording::{Header, RecordingLine};
use crate::traces::Watch;
use prometheus_client::metrics::counter::Counter;
use std::collections::VecDeque;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// Lines that may wait for the disk: some ten seconds of a lively session.
const QUEUE: usize = 4_096;

/// How long the last lines may take when the server stops.
const LAST_LINES: Duration = Duration::from_secs(10);

/// Where sessions are recorded. The files hold what people said: only their owner may read them.
#[derive(Debug, Clone)]
pub struct Recordings {
    folder: PathBuf,
    writers: TaskTracker,
    lost: Counter,
}

impl Recordings {
    /// Recordings in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(folder: &Path) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            writers: TaskTracker::new(),
            lost: Counter::default(),
        })
    }

    /// Recordings that could not be made, or not to their end.
    pub fn lost(&self) -> Counter {
        self.lost.clone()
    }

    /// Waits until everything is written of the sessions that are over, ten seconds at most.
    pub async fn finish(&self) {
        self.writers.close();
        let wait = tokio::time::timeout(LAST_LINES, self.writers.wait());
        if wait.await.is_err() {
            tracing::warn!(left = self.writers.len(), "recordings were cut short");
        }
    }

    /// Begins the recording of a session. Without a thread for it there is none.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: files are named after the time"
    )]
    fn begin(&self, session: u64) -> Option<Recorder> {
        let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S");
        let process = std::process::id();
        let path = self.folder.join(format!("{now}-{process}-{session}.jsonl"));
        let (token, lost) = (self.writers.token(), self.lost.clone());
        let recorder = Recorder::start(QUEUE, self.lost.clone(), move |lines| {
            let written = create(&path).and_then(|file| write(BufWriter::new(file), &lines));
            if let Err(error) = written {
                lost.inc();
                tracing::warn!(%error, path = %path.display(), "the recording ends");
            }
            drop(token);
        });
        let failed = |error: &io::Error| {
            self.lost.inc();
            tracing::warn!(%error, "the session is not recorded");
        };
        recorder.inspect_err(failed).ok()
    }
}

fn create(path: &Path) -> io::Result<std::fs::File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// One line to be written.
enum Entry {
    Header(Box<Header>),
    Line(Box<RecordingLine>),
}

impl Entry {
    fn write(&self, file: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Header(header) => serde_json::to_writer(&mut *file, header)?,
            Self::Line(line) => serde_json::to_writer(&mut *file, line)?,
        }
        file.write_all(b"\n")
    }
}

/// Writes all lines; what was written is on its way to the disk whenever there is a pause.
fn write(mut file: impl Write, lines: &Receiver<Entry>) -> io::Result<()> {
    loop {
        let line = match lines.try_recv() {
            Ok(line) => line,
            Err(TryRecvError::Disconnected) => return file.flush(),
            Err(TryRecvError::Empty) => {
                file.flush()?;
                let Ok(line) = lines.recv() else {
                    return Ok(());
                };
                line
            }
        };
        line.write(&mut file)?;
    }
}

/// The recording of one session.
struct Recorder {
    /// `None` once the recording has ended.
    lines: Option<SyncSender<Entry>>,
    lost: Counter,
}

impl Recorder {
    fn start(
        queue: usize,
        lost: Counter,
        write: impl FnOnce(Receiver<Entry>) + Send + 'static,
    ) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(queue);
        let session = tracing::Span::current();
        std::thread::Builder::new()
            .name("recorder".into())
            .spawn(move || session.in_scope(|| write(waiting)))?;
        let lines = Some(lines);
        Ok(Self { lines, lost })
    }

    fn put(&mut self, entry: impl FnOnce() -> Entry) {
        let Some(lines) = &self.lines else { return };
        match lines.try_send(entry()) {
            Ok(()) => return,
            Err(TrySendError::Full(_)) => {
                self.lost.inc();
                tracing::warn!("the recording ends: the disk is too slow for it");
            }
            // The writer has said why.
            Err(TrySendError::Disconnected(_)) => {}
        }
        self.lines = None;
    }
}

/// The session that is recorded.
#[derive(Debug, Default)]
pub(super) struct Subject {
    /// Its number since the server started.
    pub(super) number: u64,
    /// Its name in reports.
    pub(super) session: Option<String>,
    /// Its caller's number or address.
    pub(super) caller: Option<String>,
}

/// A conversation, recorded or not, and traced or not.
pub(super) struct Recorded {
    conversation: Conversation,
    decided: VecDeque<Output>,
    recorder: Option<Recorder>,
    watch: Option<Box<Watch>>,
}

impl Recorded {
    pub(super) fn new(
        policy: Policy,
        experience: Experience,
        recordings: Option<&Recordings>,
        subject: Subject,
        watch: Option<Watch>,
    ) -> Self {
        let recorder = recordings.and_then(|recordings| recordings.begin(subject.number));
        let header = Header {
            session: subject.session,
            caller: subject.caller,
            ..Header::new(policy, experience)
        };
        Self::with(header, recorder, watch)
    }

    fn with(header: Header, mut recorder: Option<Recorder>, watch: Option<Watch>) -> Self {
        if let Some(recorder) = &mut recorder {
            recorder.put(|| Entry::Header(Box::new(header.clone())));
        }
        let mut recorded = Self {
            conversation: header.conversation(),
            decided: VecDeque::new(),
            recorder,
            watch: watch.map(Box::new),
        };
        recorded.collect(Time(0));
        recorded
    }

    pub(super) fn input(&mut self, now: Time, input: Input) {
        self.put(|| RecordingLine::step(now, Some(input.clone())));
        if let Some(watch) = &mut self.watch {
            watch.input(now, &input);
        }
        self.conversation.handle_input(now, input);
        self.collect(now);
    }

    pub(super) fn timeout(&mut self, now: Time) {
        self.put(|| RecordingLine::step(now, None));
        self.conversation.handle_timeout(now);
        self.collect(now);
    }

    /// Takes what was decided at once, so that each decision stands below what caused it.
    fn collect(&mut self, now: Time) {
        while let Some(output) = self.conversation.poll_output() {
            self.put(|| RecordingLine::output(output.clone()));
            if let Some(watch) = &mut self.watch {
                watch.output(now, &output);
            }
            self.decided.push_back(output);
        }
    }

    pub(super) fn poll_output(&mut self) -> Option<Output> {
        self.decided.pop_front()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.conversation.poll_timeout()
    }

    pub(super) fn tools(&self) -> &Declarations {
        self.conversation.tools()
    }

    /// The reason why the session cannot be handed over now, for the model.
    pub(super) fn refuses_handoff(&self) -> Option<&'static str> {
        self.conversation.refuses_handoff()
    }

    pub(super) fn take_lessons(&mut self) -> Vec<Lesson> {
        self.conversation.take_lessons()
    }

    pub(super) fn audio_needed_from(&self) -> Samples {
        self.conversation.audio_needed_from()
    }

    /// Notes for the trace which model was asked.
    pub(super) fn asked(&mut self, request: RequestId, model: impl FnOnce() -> ModelId) {
        if let Some(watch) = &mut self.watch {
            watch.asked(request, model());
        }
    }

    /// Passes on a turn that is over for the trace. `knows` says whether the session has a tool.
    pub(super) fn turn_over(
        &mut self,
        agent: Option<&str>,
        record: &TurnRecord,
        knows: impl Fn(&str) -> bool,
    ) {
        if let Some(watch) = &mut self.watch {
            watch.turn_over(agent, record, knows);
        }
    }

    /// Nothing follows. `reason`: why the server ended the session; `None` if the client has gone.
    pub(super) fn end(&mut self, now: Time, reason: Option<HangUpReason>) {
        self.put(RecordingLine::end);
        if let Some(watch) = self.watch.take() {
            watch.end(now, reason);
        }
    }

    fn put(&mut self, line: impl FnOnce() -> RecordingLine) {
        if let Some(recorder) = &mut self.recorder {
            recorder.put(|| Entry::Line(Box::new(line())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{Micros, Opening};
    use crate::recording::{Recording, replay};

    /// Writes into memory and hands it over at the end.
    fn in_memory(queue: usize) -> (Recorder, Receiver<Vec<u8>>) {
        let (done, written) = sync_channel(1);
        let recorder = Recorder::start(queue, Counter::default(), move |lines| {
            let mut file = Vec::new();
            write(&mut file, &lines).unwrap();
            done.send(file).unwrap();
        });
        (recorder.unwrap(), written)
    }

    fn learned() -> Experience {
        let mut experience = Experience::default();
        let wait = Micros::from_ms(120);
        experience.learn(Lesson::Began { wait });
        experience
    }

    fn announce(recorded: &mut Recorded, at: u64) {
        let text = "Ding dong.".into();
        recorded.input(Time::from_ms(at), Input::Announce { text });
    }

    #[test]
    fn what_is_recorded_can_be_replayed() {
        let (recorder, written) = in_memory(100);
        let policy = Policy {
            opening: Opening::greeting("Hello."),
            ..Policy::default()
        };
        let mut recorded = Recorded::with(Header::new(policy, learned()), Some(recorder), None);
        announce(&mut recorded, 10);
        recorded.timeout(Time::from_ms(9_000));
        recorded.input(Time::from_ms(9_001), Input::HangUp);
        recorded.end(Time::from_ms(9_001), None);
        let decided = recorded.decided.len();
        drop(recorded);
        let recording = Recording::read(&*written.recv().unwrap()).unwrap();
        let replayed = replay(&recording);
        assert_eq!(recording.header.experience, learned());
        assert_eq!(replayed.difference, None);
        assert!(recording.complete && !recording.opening.is_empty());
        assert_eq!((replayed.steps, replayed.outputs), (3, decided));
    }

    #[test]
    fn a_slow_disk_ends_the_recording_and_not_the_session() {
        let (go, may_go) = sync_channel::<()>(0);
        let (done, written) = sync_channel(1);
        let recorder = Recorder::start(4, Counter::default(), move |lines| {
            may_go.recv().unwrap();
            let mut file = Vec::new();
            write(&mut file, &lines).unwrap();
            done.send(file).unwrap();
        });
        let mut recorded = Recorded::with(
            Header::new(Policy::default(), Experience::default()),
            Some(recorder.unwrap()),
            None,
        );
        for at in 0..10 {
            announce(&mut recorded, at);
        }
        recorded.end(Time::from_ms(9_001), None);
        let recorder = recorded.recorder.as_ref().unwrap();
        assert!(recorder.lines.is_none());
        assert_eq!(recorder.lost.get(), 1);
        assert!(recorded.poll_output().is_some(), "the session goes on");
        go.send(()).unwrap();
        let recording = Recording::read(&*written.recv().unwrap()).unwrap();
        assert!(!recording.complete, "it says that it was cut short");
        assert_eq!(replay(&recording).difference, None);
    }

    #[test]
    fn a_disk_that_is_read_only_ends_the_recording_and_not_the_session() {
        // Nobody may make a file there.
        let recordings = Recordings::new(Path::new("/sys/kernel")).unwrap();
        let policy = Policy {
            opening: Opening::greeting("Hello."),
            ..Policy::default()
        };
        let (experience, subject) = (Experience::default(), Subject::default());
        let mut recorded = Recorded::new(policy, experience, Some(&recordings), subject, None);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(recordings.finish());
        assert_eq!(recordings.lost().get(), 1);
        announce(&mut recorded, 10);
        announce(&mut recorded, 20);
        assert!(recorded.recorder.as_ref().unwrap().lines.is_none());
        assert!(recorded.poll_output().is_some(), "the session goes on");
    }

    #[test]
    fn nobody_else_may_read_a_recording() {
        use std::os::unix::fs::PermissionsExt;
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("recordings");
        let recordings = Recordings::new(&folder).unwrap();
        let recorded = Recorded::new(
            Policy::default(),
            Experience::default(),
            Some(&recordings),
            Subject::default(),
            None,
        );
        drop(recorded);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(recordings.finish());
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let file = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
        assert_eq!((mode(&folder), mode(&file.path())), (0o700, 0o600));
    }
}
