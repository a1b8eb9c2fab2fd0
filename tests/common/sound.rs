//! Runs `undertone talk` with a virtual microphone and loudspeaker of PulseAudio, without a sound
//! card.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use tempfile::TempDir;
use undertone::audio::{level_dbfs, to_f32, to_i16};
use undertone::desktop::echo::RATE;

/// A timeout that is reached only if something is wrong.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long an answer is awaited behind what the agent said: longer than the slowest tool of these
/// tests, 12 s.
const REST: Duration = Duration::from_secs(20);

/// A PulseAudio server for the test: audio played into `mic_in` reaches the microphone, and the
/// loudspeaker's audio appears on `speaker.monitor`.
pub struct Sound {
    folder: TempDir,
    server: Running,
}

/// A process that is killed at the end of the test.
pub struct Running(pub Child);

impl Running {
    fn stop(&mut self) {
        // It may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Sound {
    pub fn start() -> Self {
        for program in ["pulseaudio", "pactl", "paplay", "parec"] {
            let found = Command::new(program).arg("--version").output();
            if let Err(error) = found {
                panic!(
                    "{program}: {error}: run `make test-tools`, which installs Debian's pulseaudio and \
                     pulseaudio-utils"
                );
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        let server = serve(folder.path());
        let sound = Self { folder, server };
        sound.ready();
        sound
    }

    /// Stops the server, so that all devices disappear.
    pub fn stop(&mut self) {
        self.server.stop();
    }

    fn ready(&self) {
        let answers = || self.command("pactl").arg("info").output().expect("pactl");
        let mut tries = 0;
        while !answers().status.success() {
            tries += 1;
            assert!(tries < 300, "pulseaudio does not start");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn command(&self, program: &str) -> Command {
        at_home(Command::new(program), self.path())
    }

    pub fn pactl(&self, arguments: &[&str]) -> String {
        let output = self
            .command("pactl")
            .args(arguments)
            .output()
            .expect("pactl");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Feeds the loudspeaker back into the microphone.
    pub fn loop_back(&self) {
        self.pactl(&[
            "load-module",
            "module-loopback",
            "source=speaker.monitor",
            "sink=mic_in",
            "latency_msec=100",
            "adjust_time=0",
        ]);
        let inputs = self.pactl(&["list", "short", "sink-inputs"]);
        let (index, _) = inputs.split_once('\t').expect("the loopback");
        self.pactl(&["set-sink-input-volume", index, "-6dB"]);
    }

    /// Waits for a stream to the loudspeaker other than `but`, and returns its number.
    pub fn stream(&self, but: Option<u32>) -> u32 {
        for _ in 0..300 {
            let streams = self.pactl(&["list", "short", "sink-inputs"]);
            let numbers = streams.lines().filter_map(|line| line.split('\t').next());
            let mut numbers = numbers.map(|number| number.parse().expect("a number"));
            if let Some(number) = numbers.find(|number| Some(*number) != but) {
                return number;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("nobody opens the loudspeaker");
    }

    /// Ends a stream to the loudspeaker, as a failing sound system does.
    pub fn kill_stream(&self, stream: u32) {
        let path = self.path().join("pulse/cli");
        let mut server = UnixStream::connect(path).expect("the server's command line");
        let kill = format!("kill-sink-input {stream}\n");
        server.write_all(kill.as_bytes()).expect("it reads");
        server.shutdown(Shutdown::Write).expect("it is open");
        let mut answer = String::new();
        server.read_to_string(&mut answer).expect("text");
        assert!(!answer.contains("No sink input"), "{answer}");
    }

    /// Plays samples into the microphone, and returns when they have been played.
    pub fn say(&self, samples: &[f32]) {
        let path = self.write("said.wav", samples);
        let mut paplay = self.command("paplay");
        let said = paplay
            .arg("--device=mic_in")
            .arg(&path)
            .output()
            .expect("paplay");
        assert!(said.status.success(), "{said:?}");
    }

    /// Writes a WAV file of this name into the folder.
    pub fn write(&self, name: &str, samples: &[f32]) -> PathBuf {
        let path = self.path().join(name);
        let spec = hound::WavSpec {
            channels: 1,
            sample_rate: RATE,
            bits_per_sample: 16,
            sample_format: hound::SampleFormat::Int,
        };
        let mut file = hound::WavWriter::create(&path, spec).expect("a file");
        for sample in to_i16(samples) {
            file.write_sample(sample).expect("a sample");
        }
        file.finalize().expect("a file");
        path
    }

    pub fn undertone(&self, arguments: &[&str]) -> Program {
        let mut command = self.command(env!("CARGO_BIN_EXE_undertone"));
        command.args(arguments);
        Program::start(command)
    }
}

/// PulseAudio's start-up script. It accepts clients last, when all devices exist.
const SCRIPT: &str = "load-module module-null-sink sink_name=speaker
load-module module-null-sink sink_name=mic_in channels=1
load-module module-remap-source master=mic_in.monitor source_name=mic
set-default-sink speaker
set-default-source mic
load-module module-cli-protocol-unix
load-module module-native-protocol-unix
";

fn serve(home: &Path) -> Running {
    let script = home.join("pulse.pa");
    std::fs::write(&script, SCRIPT).expect("a file");
    let mut server = at_home(Command::new("pulseaudio"), home);
    server
        .args(["-n", "--daemonize=no", "--use-pid-file=no"])
        .args(["--exit-idle-time=-1", "-F"])
        .arg(script);
    Running(server.stderr(Stdio::null()).spawn().expect("pulseaudio"))
}

/// Restricts a command to the sound server and settings in `home`.
pub fn at_home(mut command: Command, home: &Path) -> Command {
    let models = std::path::absolute(super::weights()).expect("a path");
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["UNDERTONE_", "PULSE_", "ALSA_", "DBUS_"]
            .iter()
            .any(|ours| name.starts_with(ours))
        {
            command.env_remove(name);
        }
    }
    command
        .current_dir(home)
        .env("HOME", home)
        .env("XDG_RUNTIME_DIR", home)
        .env("XDG_CONFIG_HOME", home.join(".config"))
        .env("UNDERTONE_MODELS", models);
    command
}

/// The running program and its output lines.
pub struct Program {
    pub running: Running,
    stdin: ChildStdin,
    lines: Receiver<String>,
    pub seen: Vec<String>,
}

impl Program {
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program");
        let stdin = child.stdin.take().expect("stdin");
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let (send, lines) = sync_channel(1_024);
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            running: Running(child),
            stdin,
            lines,
            seen: Vec::new(),
        }
    }

    /// Waits for the next line that begins with `begin`.
    pub fn line(&mut self, begin: &str) -> String {
        let line = self.line_within(PATIENCE, begin);
        line.unwrap_or_else(|| panic!("no {begin:?} after {:#?}", self.seen))
    }

    /// Like [`line`](Self::line); `None` if nothing at all is printed for so long.
    fn line_within(&mut self, patience: Duration, begin: &str) -> Option<String> {
        loop {
            let line = self.lines.recv_timeout(patience).ok()?;
            println!("  {line}");
            self.seen.push(line.clone());
            if line.starts_with(begin) {
                return Some(line);
            }
        }
    }

    /// The agent's words before the user's first turn.
    pub fn said_before_the_first_turn(&mut self) -> String {
        if !self.seen.iter().any(|line| line.starts_with("you:")) {
            self.line("you:");
        }
        let lines = self.seen.iter();
        lines
            .take_while(|line| !line.starts_with("you:"))
            .filter_map(|line| line.strip_prefix("agent:"))
            .collect()
    }

    /// Asks until `is_right` accepts what the agent has said since it was asked: an answer that a
    /// false interruption pauses is printed in two lines. The agent may mishear a question, or on a
    /// busy machine give up on the recogniser; then it answers something else and is asked again.
    pub fn ask(&mut self, sound: &Sound, question: &[f32], is_right: impl Fn(&str) -> bool) {
        sound.say(question);
        self.answers(sound, question, is_right);
    }

    /// Like [`ask`](Self::ask), when the question has been asked once already. It is repeated only
    /// after the agent has finished: to ask during a filler would interrupt the answer.
    pub fn answers(&mut self, sound: &Sound, question: &[f32], is_right: impl Fn(&str) -> bool) {
        for _ in 0..8 {
            let mut answer = String::new();
            let mut said = Some(self.line("agent:"));
            while let Some(line) = said {
                answer += line.strip_prefix("agent:").expect("the agent's");
                if is_right(&answer) {
                    return;
                }
                said = self.line_within(REST, "agent:");
            }
            Recorder::start(sound).silence();
            sound.say(question);
        }
        panic!("never answered: {:#?}", self.seen);
    }

    /// Waits for its end. Returns all lines that it printed.
    pub fn ends(mut self) -> Vec<String> {
        assert!(self.running.0.wait().expect("its end").success());
        self.seen.extend(self.lines.iter());
        self.seen
    }

    pub fn press_enter(&mut self) {
        self.stdin.write_all(b"\n").expect("it reads");
    }

    /// Interrupts it as Ctrl-C does. Returns all lines that it printed.
    pub fn interrupt(mut self) -> Vec<String> {
        let process = self.running.0.id().to_string();
        let kill = Command::new("kill").args(["-INT", &process]).status();
        assert!(kill.expect("kill").success());
        self.line("(stopped)");
        assert!(self.running.0.wait().expect("its end").success());
        self.seen
    }
}

/// The samples of a tenth of a second.
const TENTH: usize = RATE as usize / 10;

/// The share of the energy of `samples` that lies at `tones`, Hz. Silence has none.
pub fn share_of_tones(samples: &[f32], tones: &[f32]) -> f32 {
    if level_dbfs(samples) < -65.0 {
        return 0.0;
    }
    let window = |n: usize| {
        let turn = std::f32::consts::TAU * n as f32 / samples.len() as f32;
        0.5 - 0.5 * turn.cos()
    };
    let shaped = samples.iter().enumerate().map(|(n, s)| s * window(n));
    let shaped: Vec<f32> = shaped.collect();
    let all: f32 = shaped.iter().map(|s| s * s).sum();
    let bins = (0..=samples.len() / 2).filter(|bin| {
        let hz = *bin as f32 * RATE as f32 / samples.len() as f32;
        tones.iter().any(|tone| (tone - hz).abs() < 25.0)
    });
    let energy = |bin: usize| {
        let step = std::f32::consts::TAU * bin as f32 / samples.len() as f32;
        let at = |n: usize| step * n as f32;
        let points = shaped.iter().enumerate();
        let (re, im) = points.fold((0.0f32, 0.0f32), |(re, im), (n, s)| {
            (re + s * at(n).cos(), im + s * at(n).sin())
        });
        2.0 * (re * re + im * im) / samples.len() as f32
    };
    bins.map(energy).sum::<f32>() / all
}

/// Records the loudspeaker, at 16 kHz.
pub struct Recorder {
    _parec: Running,
    chunks: Receiver<Vec<u8>>,
    samples: Vec<f32>,
}

impl Recorder {
    pub fn start(sound: &Sound) -> Self {
        let mut parec = sound.command("parec");
        parec.args([
            "--device=speaker.monitor",
            "--raw",
            "--format=s16le",
            "--channels=1",
        ]);
        parec.args([&format!("--rate={RATE}"), "--latency-msec=50"]);
        let mut parec = parec.stdout(Stdio::piped()).spawn().expect("parec");
        let mut stdout = parec.stdout.take().expect("stdout");
        let (send, chunks) = sync_channel(4_096);
        std::thread::spawn(move || {
            // 100 ms.
            let mut chunk = vec![0; RATE as usize / 5];
            while stdout.read_exact(&mut chunk).is_ok() && send.send(chunk.clone()).is_ok() {}
        });
        Self {
            _parec: Running(parec),
            chunks,
            samples: Vec::new(),
        }
    }

    pub fn next(&mut self) {
        let chunk = self
            .chunks
            .recv_timeout(PATIENCE)
            .expect("sound or silence");
        self.add(&chunk);
    }

    fn add(&mut self, chunk: &[u8]) {
        let samples = undertone::audio::from_pcm16le(chunk).expect("whole samples");
        self.samples.extend(to_f32(&samples));
    }

    /// Waits until the loudspeaker has played sound for `seconds`.
    fn sound(&mut self, seconds: usize) {
        assert!(self.hears_sound(seconds), "it falls silent");
    }

    /// Like [`sound`](Self::sound); false if that takes a minute longer.
    pub fn hears_sound(&mut self, seconds: usize) -> bool {
        let mut tenths = 0;
        while tenths < 10 * seconds && self.samples.len() / RATE as usize <= 60 + seconds {
            self.next();
            let last = self.samples.len() - TENTH;
            tenths += usize::from(level_dbfs(&self.samples[last..]) > -50.0);
        }
        tenths == 10 * seconds
    }

    /// Waits until a second of silence has been played.
    pub fn silence(&mut self) {
        let second = RATE as usize;
        (0..10).for_each(|_| self.next());
        while level_dbfs(&self.samples[self.samples.len() - second..]) > -60.0 {
            self.next();
        }
    }

    /// Waits until at least this share of what the loudspeaker plays lies at `tones`, Hz. Returns everything recorded
    /// since the last call.
    pub fn tones(&mut self, tones: &[f32], least: f32) -> Vec<f32> {
        let mut shares = Vec::new();
        while shares.len() < 1_200 {
            self.next();
            let last = self.samples.len() - TENTH;
            shares.push(share_of_tones(&self.samples[last..], tones));
            if shares.last() > Some(&least) {
                return std::mem::take(&mut self.samples);
            }
        }
        panic!("{tones:?} are never heard; their share of each tenth of a second: {shares:.1?}");
    }

    /// Everything recorded since the last call, without waiting for more.
    pub fn until_now(&mut self) -> Vec<f32> {
        while let Ok(chunk) = self.chunks.try_recv() {
            self.add(&chunk);
        }
        std::mem::take(&mut self.samples)
    }

    /// Waits for a sound followed by a second of silence. Returns everything recorded since the
    /// last call.
    pub fn utterance(&mut self) -> Vec<f32> {
        self.sound(1);
        self.silence();
        std::mem::take(&mut self.samples)
    }
}
