//! The desktop assistant: what is left of its own voice in the microphone, by the real models, and
//! the real program between a microphone and a loudspeaker of a PulseAudio without a sound card.
//!
//! `cargo test --features desktop --test desktop -- --nocapture the_agents_own_voice` prints the
//! figures of the echo canceller.

mod common;

use common::Errors;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::TempDir;
use undertone::asr::{Asr, WhisperOnnx};
use undertone::audio::{Resampler, level_dbfs, to_f32, to_i16};
use undertone::desktop::echo::{EchoCanceller, FRAME, RATE};
use undertone::tts::{Piper, Tts};
use undertone::vad::{Gated, Silero, SileroModel, Vad, WINDOW};

/// What the agent says: half a minute.
const STORY: &str = "Once upon a time there was a lighthouse on a small island. \
    Every evening the keeper climbed two hundred steps to light the lamp. \
    He counted the ships that passed and wrote their names into a big green book. \
    One night a storm came up, and the lamp went out three times. \
    The keeper stayed awake until the morning and lit it again and again. \
    When the sun rose there were eleven ships in the harbour, all of them safe. \
    The captains came up the stairs and thanked him with a silver bell.";

const DELAYS_MS: [usize; 3] = [40, 150, 300];
const GAINS_DB: [f32; 3] = [-6.0, -12.0, -20.0];

/// Windows of speech in a row that interrupt the agent: the policy's.
const INTERRUPTS: usize = 5;

/// How loud the user is over the echo, against the voice as it was made.
const USER: f32 = 0.7;

/// No answer takes this long unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(90);

/// Sound is heard in real time: one of these tests at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn voice() -> Piper {
    Piper::load(&common::weights().join("piper-joe")).expect("the voice")
}

/// The text as speech at 16 kHz.
fn spoken(voice: &mut Piper, text: &str) -> Vec<f32> {
    let mut speech = Vec::new();
    voice
        .speak(text, &mut |chunk| {
            speech.extend(chunk);
            ControlFlow::Continue(())
        })
        .expect("speech");
    let mut resampler = Resampler::new(voice.sample_rate(), RATE);
    let mut samples = resampler.push(&speech);
    samples.extend(resampler.flush());
    samples
}

/// Noise that is always the same, -1..1.
fn noise(seed: u32) -> impl FnMut() -> f32 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// What a microphone hears of `played` in a room: after `delay_ms`, with a hundred milliseconds of
/// reverberation, `gain_db` louder in all.
fn echo(played: &[f32], delay_ms: usize, gain_db: f32) -> Vec<f32> {
    let rate = RATE as usize;
    let mut random = noise(7);
    let reflections = (1..40).map(|n| {
        let at = n * rate / 400;
        (at, 0.35 * random() * (-(n as f32) / 13.0).exp())
    });
    let path: Vec<(usize, f32)> = std::iter::once((0, 1.0)).chain(reflections).collect();
    let delay = delay_ms * rate / 1_000;
    let mut heard = vec![0.0; played.len()];
    for (at, gain) in path {
        let from = (delay + at).min(heard.len());
        for (sound, sample) in heard[from..].iter_mut().zip(played) {
            *sound += gain * sample;
        }
    }
    let gain = 10f32.powf((gain_db + level_dbfs(played) - level_dbfs(&heard)) / 20.0);
    heard.iter().map(|sample| sample * gain).collect()
}

/// The quiet noise of a room, -65 dBFS or so.
fn room(samples: &mut [f32]) {
    let mut random = noise(3);
    for sample in samples {
        *sample += random() * 0.001;
    }
}

fn cancelled(played: &[f32], heard: &[f32]) -> Vec<f32> {
    let mut canceller = EchoCanceller::new().expect("a canceller");
    let frames = played.as_chunks::<FRAME>().0.iter();
    let frames = frames.zip(heard.as_chunks::<FRAME>().0);
    frames
        .flat_map(|(played, heard)| canceller.process(played, heard).expect("10 ms"))
        .collect()
}

/// The windows that the detector takes for speech.
fn speech(detector: Silero, samples: &[f32]) -> Vec<bool> {
    let mut vad = Gated::new(detector);
    let windows = samples.as_chunks::<WINDOW>().0.iter();
    windows
        .map(|window| vad.push(window).expect("a verdict") >= 0.5)
        .collect()
}

/// The longest run of speech, windows.
fn longest(windows: &[bool]) -> usize {
    windows
        .split(|speech| !speech)
        .map(<[bool]>::len)
        .max()
        .unwrap_or(0)
}

/// What a small loudspeaker that is turned up makes of it.
fn distorted(samples: &[f32]) -> Vec<f32> {
    samples.iter().map(|s| (4.0 * s).tanh() / 4.0).collect()
}

#[test]
fn the_agents_own_voice_is_no_interruption_and_the_users_is() {
    let _alone = alone();
    let weights = common::weights();
    let silero = SileroModel::load(&weights.join("silero/silero_vad.onnx")).expect("a detector");
    let mut asr = WhisperOnnx::load(&weights.join("whisper-tiny.en")).expect("a recogniser");
    let mut voice = voice();
    let agent = spoken(&mut voice, STORY);
    let user = spoken(&mut voice, "Please stop that story now.");
    let second = RATE as usize;
    let mut understood = Vec::new();
    println!("               | echo return loss   | longest speech, windows of 32 ms");
    println!("delay   echo   | 1st second, later  | uncancelled, 1st 2 s, later; user over it");
    for (delay, gain, loud) in [false, true].into_iter().flat_map(|loud| {
        DELAYS_MS
            .into_iter()
            .flat_map(move |delay| GAINS_DB.map(|gain| (delay, gain, loud)))
    }) {
        let sound = if loud {
            distorted(&agent)
        } else {
            agent.clone()
        };
        let mut heard = echo(&sound, delay, gain);
        room(&mut heard);
        let clean = cancelled(&agent, &heard);
        let loss = |range: std::ops::Range<usize>| {
            level_dbfs(&heard[range.clone()]) - level_dbfs(&clean[range])
        };
        let later = loss(2 * second..clean.len());
        let raw = longest(&speech(silero.detector(), &heard));
        let left = speech(silero.detector(), &clean);
        let (first, rest) = left.split_at(2 * second / WINDOW);
        let (first, rest) = (longest(first), longest(rest));

        let begin = 8 * second;
        let mut both = heard.clone();
        for (sound, sample) in both[begin..].iter_mut().zip(&user) {
            *sound += sample * USER;
        }
        let clean_both = cancelled(&agent, &both);
        let found = speech(silero.detector(), &clean_both);
        let found = longest(&found[begin / WINDOW..(begin + user.len()) / WINDOW]);
        let around = begin - second / 2..begin + user.len() + second / 2;
        let words = asr.transcribe(&clean_both[around]).expect("words");
        let row = format!(
            "{delay:3} ms {gain:4} dB{} | {:7.1} {later:7.1} dB | {raw:3}, {first}, {rest}; {found:3} {words:?}",
            if loud { "*" } else { " " },
            loss(0..second),
        );
        println!("{row}");
        assert!(
            raw > INTERRUPTS,
            "the echo is no speech to begin with: {row}"
        );
        assert!(first.max(rest) < INTERRUPTS, "it interrupts itself: {row}");
        assert!(found >= 2 * INTERRUPTS, "the user is not heard: {row}");
        understood.push(words.to_lowercase().contains("stop"));
        assert!(later > 15.0, "{row}");
    }
    println!("* the loudspeaker distorts");
    // The voice is never quite the same, and now and then a word under the story is misheard.
    let right = understood.iter().filter(|right| **right).count();
    assert!(
        right >= understood.len() * 3 / 4,
        "understood {right} times"
    );
}

/// With nothing playing the canceller is in the way, and must not cost words.
#[test]
fn without_an_echo_the_recogniser_hears_as_well_as_before() {
    let Some(clips) = common::speech() else {
        return;
    };
    let _alone = alone();
    let mut asr = WhisperOnnx::load(&common::weights().join("whisper-tiny.en")).expect("ears");
    let (mut before, mut after) = (Errors::default(), Errors::default());
    for clip in &clips {
        let clean = cancelled(&vec![0.0; clip.samples.len()], &clip.samples);
        before.add(&clip.text, &asr.transcribe(&clip.samples).expect("words"));
        after.add(&clip.text, &asr.transcribe(&clean).expect("words"));
    }
    let (before, after) = (before.percent(), after.percent());
    println!("word errors: {before:.1} % before the canceller, {after:.1} % behind it");
    assert!(after <= before + 1.0, "{before:.1} %, {after:.1} %");
}

/// A PulseAudio of our own: what is played into `mic_in` is heard by the microphone, and what the
/// loudspeaker plays is heard on `speaker.monitor`.
struct Sound {
    folder: TempDir,
    _server: Running,
}

/// A process that does not outlive the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Sound {
    /// `None`, and a note, where PulseAudio is not installed.
    fn start() -> Option<Self> {
        if Command::new("pulseaudio")
            .arg("--version")
            .output()
            .is_err()
        {
            eprintln!("SKIPPED: no pulseaudio here; `make test` installs it");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let to_pulse = "pcm.!default { type pulse }\nctl.!default { type pulse }\n";
        std::fs::write(folder.path().join(".asoundrc"), to_pulse).expect("a file");
        let mut server = at_home(Command::new("pulseaudio"), folder.path());
        server.args([
            "-n",
            "--daemonize=no",
            "--use-pid-file=no",
            "--exit-idle-time=-1",
        ]);
        for module in [
            "module-native-protocol-unix",
            "module-null-sink sink_name=speaker",
            "module-null-sink sink_name=mic_in channels=1",
            "module-remap-source master=mic_in.monitor source_name=mic",
        ] {
            server.args(["-L", module]);
        }
        let server = server.stderr(Stdio::null()).spawn().expect("pulseaudio");
        let sound = Self {
            folder,
            _server: Running(server),
        };
        let mut tries = 0;
        while !sound
            .command("pactl")
            .arg("info")
            .output()
            .expect("pactl")
            .status
            .success()
        {
            tries += 1;
            assert!(tries < 300, "pulseaudio does not start");
            std::thread::sleep(Duration::from_millis(100));
        }
        sound.pactl(&["set-default-sink", "speaker"]);
        sound.pactl(&["set-default-source", "mic"]);
        Some(sound)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, program: &str) -> Command {
        at_home(Command::new(program), self.path())
    }

    fn pactl(&self, arguments: &[&str]) -> String {
        let output = self
            .command("pactl")
            .args(arguments)
            .output()
            .expect("pactl");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// The loudspeaker stands before the microphone.
    fn loop_back(&self) {
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

    /// Speaks into the microphone, and returns when all is said.
    fn say(&self, samples: &[f32]) {
        let path = self.path().join("said.wav");
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
        let mut paplay = self.command("paplay");
        let said = paplay
            .arg("--device=mic_in")
            .arg(&path)
            .output()
            .expect("paplay");
        assert!(said.status.success(), "{said:?}");
    }

    fn undertone(&self, arguments: &[&str]) -> Program {
        let mut command = self.command(env!("CARGO_BIN_EXE_undertone"));
        command.args(arguments);
        Program::start(command)
    }
}

/// A command that finds only the sound server and the settings of `home`.
fn at_home(mut command: Command, home: &Path) -> Command {
    let models = std::path::absolute(common::weights()).expect("a path");
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
        .env("XDG_CONFIG_HOME", home)
        .env("UNDERTONE_MODELS", models);
    command
}

/// The program, and the lines that it prints.
struct Program {
    running: Running,
    stdin: ChildStdin,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Program {
    fn start(mut command: Command) -> Self {
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

    /// The next line that begins like this.
    fn line(&mut self, begin: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no {begin:?} after {:#?}", self.seen));
            println!("  {line}");
            self.seen.push(line.clone());
            if line.starts_with(begin) {
                return line;
            }
        }
    }

    /// Asks until it is understood: on a busy machine the recogniser may be given up, and then the
    /// agent asks back.
    fn ask(&mut self, sound: &Sound, question: &[f32]) {
        for _ in 0..3 {
            sound.say(question);
            loop {
                let line = self.line("");
                if line.starts_with("you:") {
                    assert!(line.to_lowercase().contains("times"), "{line}");
                    return;
                }
                if line.starts_with("agent: Sorry") {
                    break;
                }
            }
        }
        panic!("not understood: {:#?}", self.seen);
    }

    fn press_enter(&mut self) {
        self.stdin.write_all(b"\n").expect("it reads");
    }

    /// Ends it as Ctrl-C does. Returns all that it printed.
    fn interrupt(mut self) -> Vec<String> {
        let process = self.running.0.id().to_string();
        let kill = Command::new("kill").args(["-INT", &process]).status();
        assert!(kill.expect("kill").success());
        self.line("(stopped)");
        assert!(self.running.0.wait().expect("its end").success());
        self.seen
    }
}

/// What the loudspeaker plays from now on, at 16 kHz.
struct Recorder {
    _parec: Running,
    chunks: Receiver<Vec<u8>>,
    samples: Vec<f32>,
}

impl Recorder {
    fn start(sound: &Sound) -> Self {
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

    fn next(&mut self) {
        let chunk = self
            .chunks
            .recv_timeout(PATIENCE)
            .expect("sound or silence");
        let samples = undertone::audio::from_pcm16le(&chunk).expect("whole samples");
        self.samples.extend(to_f32(&samples));
    }

    /// Listens until the loudspeaker has played for `seconds`.
    fn sound(&mut self, seconds: usize) {
        let mut tenths = 0;
        while tenths < 10 * seconds {
            self.next();
            let all = self.samples.len() / RATE as usize;
            assert!(
                all < 60 + seconds,
                "only {tenths} tenths of a second of sound"
            );
            let last = self.samples.len() - RATE as usize / 10;
            tenths += usize::from(level_dbfs(&self.samples[last..]) > -50.0);
        }
    }

    /// Listens until there was a sound and after it a second of silence. Returns all of it.
    fn utterance(mut self) -> Vec<f32> {
        self.sound(1);
        let second = RATE as usize;
        while level_dbfs(&self.samples[self.samples.len().saturating_sub(second)..]) > -60.0 {
            self.next();
        }
        self.samples
    }
}

fn understood(samples: &[f32]) -> String {
    let mut asr = WhisperOnnx::load(&common::weights().join("whisper-tiny.en")).expect("ears");
    asr.transcribe(samples).expect("words")
}

/// A question with half a second of silence before it.
fn question() -> Vec<f32> {
    let mut samples = vec![0.0; RATE as usize / 2];
    samples.extend(spoken(&mut voice(), "What is twelve times seven?"));
    samples
}

#[test]
fn a_question_into_the_microphone_is_answered_on_the_loudspeaker() {
    let _alone = alone();
    let Some(sound) = Sound::start() else { return };
    let question = question();
    let mut talk = sound.undertone(&["talk"]);
    talk.line("microphone default");
    let recorder = Recorder::start(&sound);
    talk.ask(&sound, &question);
    assert_eq!(talk.line("agent:"), "agent: 12 times 7 is 84.");
    let heard = understood(&recorder.utterance());
    assert!(heard.contains("84"), "{heard}");
    talk.interrupt();
}

#[test]
fn with_the_loudspeaker_before_the_microphone_only_the_user_interrupts() {
    let _alone = alone();
    let Some(sound) = Sound::start() else { return };
    let question = question();
    let greeting = format!("[session]\ngreeting = {STORY:?}\n");
    std::fs::write(sound.path().join("undertone.toml"), greeting).expect("a file");
    sound.loop_back();
    let mut recorder = Recorder::start(&sound);
    let mut talk = sound.undertone(&["talk"]);
    recorder.sound(8);
    sound.say(&question);
    let story = talk.line("agent:");
    let told = story.trim_start_matches("agent: ");
    assert!(STORY.starts_with(told), "{story}");
    assert!(told.len() > 100, "it interrupted itself: {story}");
    assert!(
        told.len() < STORY.len() - 50,
        "nobody interrupted it: {story}"
    );
    assert!(
        !talk.seen.iter().any(|line| line.starts_with("you:")),
        "{:?}",
        talk.seen
    );
    assert!(talk.line("you:").to_lowercase().contains("times"));
    assert_eq!(talk.line("agent:"), "agent: 12 times 7 is 84.");
    // The answer's echo is nobody's turn either.
    let mut silence = Recorder::start(&sound);
    (0..30).for_each(|_| silence.next());
    let seen = talk.interrupt();
    let turns = seen.iter().filter(|line| line.starts_with("you:")).count();
    assert_eq!(turns, 1, "{seen:?}");
}

#[test]
fn a_server_is_talked_to_as_well_and_enter_opens_the_microphone() {
    let _alone = alone();
    let Some(sound) = Sound::start() else { return };
    let question = question();
    let mut serve = sound.command(env!("CARGO_BIN_EXE_undertone"));
    serve
        .args(["serve", "--port", "0"])
        .env("UNDERTONE_AUTH_TOKEN", "a-token-for-the-test");
    let mut server = Program::start(serve);
    let address = server.line("undertone listens on http://");
    let url = address.replace("undertone listens on http://", "ws://");

    let stranger = sound
        .command(env!("CARGO_BIN_EXE_undertone"))
        .args(["talk", "--server", &url])
        .output()
        .expect("the program");
    assert_eq!(stranger.status.code(), Some(1));
    let error = String::from_utf8_lossy(&stranger.stderr).into_owned();
    assert!(error.contains("UNDERTONE_AUTH_TOKEN"), "{error}");

    let mut talk = sound.command(env!("CARGO_BIN_EXE_undertone"));
    talk.args(["talk", "--push-to-talk", "--server", &url])
        .env("UNDERTONE_AUTH_TOKEN", "a-token-for-the-test");
    let mut talk = Program::start(talk);
    talk.line("microphone default");
    sound.say(&question);
    talk.press_enter();
    talk.line("(listening)");
    assert!(
        !talk.seen.iter().any(|line| line.starts_with("you:")),
        "{:?}",
        talk.seen
    );
    let recorder = Recorder::start(&sound);
    talk.ask(&sound, &question);
    assert_eq!(talk.line("agent:"), "agent: 12 times 7 is 84.");
    let heard = understood(&recorder.utterance());
    assert!(heard.contains("84"), "{heard}");
    talk.interrupt();
}

/// Runs `undertone talk` where ALSA knows no device at all.
fn without_devices(arguments: &[&str]) -> (Option<i32>, String) {
    let home = tempfile::tempdir().expect("a folder");
    let nothing = home.path().join("asound.conf");
    std::fs::write(&nothing, "").expect("a file");
    let output = at_home(Command::new(env!("CARGO_BIN_EXE_undertone")), home.path())
        .env("ALSA_CONFIG_PATH", &nothing)
        .arg("talk")
        .args(arguments)
        .output()
        .expect("the program");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), stderr)
}

#[test]
fn without_a_sound_card_it_says_what_is_missing_and_how_to_mend_it() {
    let (code, error) = without_devices(&[]);
    assert_eq!(code, Some(1));
    let last = error.lines().last().expect("an error");
    assert!(
        last.starts_with("error: cannot open the microphone"),
        "{error}"
    );
    assert!(
        last.contains("--input") && last.contains("--list-devices"),
        "{error}"
    );

    let (code, error) = without_devices(&["--input", "the good one"]);
    assert_eq!(code, Some(1));
    assert!(
        error.contains("no microphone \"the good one\" (--input)"),
        "{error}"
    );
}
