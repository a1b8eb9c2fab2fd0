//! Microphone and loudspeaker through cpal: with PulseAudio, whose protocol PipeWire speaks too, or with
//! ALSA if neither runs. The real-time threads only move samples through ring buffers.

use super::DesktopError;
use super::playback::{self, Drain, Feed};
use super::sounds::{Mixer, Sounds, sounds};
use cpal::traits::{DeviceTrait, HostTrait, StreamTrait};
use cpal::{
    BufferSize, Device, ErrorKind, FromSample, Host, I24, SampleFormat, SizedSample, Stream,
    StreamConfig, SupportedStreamConfig,
};
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The chunk length to request from a device. A device buffers two chunks, so the agent stays
/// audible for that long after a barge-in.
const CHUNK_MS: u32 = 30;

/// The number of chunks that a device buffers with cpal.
const CHUNKS: u32 = 2;

/// The capacity of the ring buffers, s. It exceeds what the session sends ahead, and what accumulates
/// while the loop that drains them is blocked by loading a model.
const RING_SECONDS: usize = 4;

/// How long closing a device may take. It waits for the sound system, which may hang.
const CLOSING: Duration = Duration::from_secs(1);

/// The capacity of the channel for device failures. Only the first is used.
const FAULTS: usize = 4;

/// The loudest sample: 1 would be out of the range of 24 bits, and wrap round to -1.
const LOUDEST: f32 = 1.0 - f32::EPSILON;

/// The option of `undertone talk` that chooses the microphone.
pub const INPUT: &str = "--input";
/// The option of `undertone talk` that chooses the loudspeaker.
pub const OUTPUT: &str = "--output";

/// The direction of audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Recording from a microphone.
    Input,
    /// Playing on a loudspeaker.
    Output,
}

impl Direction {
    fn device(self) -> &'static str {
        match self {
            Self::Input => "microphone",
            Self::Output => "loudspeaker",
        }
    }
}

/// A device as it is listed for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The name that selects it.
    pub name: String,
    /// The system's description.
    pub description: String,
}

/// Lists this machine's devices for one direction, without opening any.
///
/// # Errors
/// [`DesktopError::Devices`] if there is no sound system.
pub fn list(direction: Direction) -> Result<Vec<Listed>, DesktopError> {
    let devices = devices(&cpal::default_host(), direction)?;
    Ok(devices.iter().map(listed).collect())
}

fn devices(host: &Host, direction: Direction) -> Result<Vec<Device>, DesktopError> {
    let all = host.devices().map_err(DesktopError::Devices)?;
    let fits = |device: &Device| match direction {
        Direction::Input => device.supports_input(),
        Direction::Output => device.supports_output(),
    };
    Ok(all.filter(fits).collect())
}

fn listed(device: &Device) -> Listed {
    let description = device.description();
    let description = description.map_or_else(|_| String::new(), |d| d.name().to_owned());
    Listed {
        name: name_of(device),
        description,
    }
}

fn name_of(device: &Device) -> String {
    device
        .id()
        .map_or_else(|_| device.to_string(), |id| id.id().to_owned())
}

/// Checks that both devices can be opened, and closes them again. If the microphone stayed open while
/// models are loaded, all audio of that time would arrive at once.
///
/// # Errors
/// [`DesktopError`] saying which device is missing or cannot be opened.
pub fn check(input: Option<&str>, output: Option<&str>) -> Result<(), DesktopError> {
    let faults = Faults::new();
    Microphone::open(input, &faults)?;
    Loudspeaker::open(output, OUTPUT, &faults).map(drop)
}

/// The device of this name, or the system's default. `option` is the option that named it, for errors.
fn choose(
    direction: Direction,
    name: Option<&str>,
    option: &'static str,
) -> Result<Device, DesktopError> {
    let Some(name) = name else {
        let host = cpal::default_host();
        let default = match direction {
            Direction::Input => host.default_input_device(),
            Direction::Output => host.default_output_device(),
        };
        return default.ok_or(DesktopError::NoDefault {
            device: direction.device(),
        });
    };
    let is_named = |device: &Device| {
        let listed = listed(device);
        listed.name == name || listed.description.eq_ignore_ascii_case(name)
    };
    // A device that the default sound system does not list may still be one of ALSA's.
    let hosts = cpal::available_hosts().into_iter();
    let hosts = hosts.filter_map(|id| cpal::host_from_id(id).ok());
    let mut all = hosts.flat_map(|host| devices(&host, direction).unwrap_or_default());
    all.find(is_named).ok_or_else(|| DesktopError::Unknown {
        device: direction.device(),
        option,
        name: name.to_owned(),
    })
}

/// Collects failures from the devices' threads.
#[derive(Debug)]
pub struct Faults {
    tell: mpsc::Sender<DesktopError>,
    told: mpsc::Receiver<DesktopError>,
}

impl Faults {
    /// A collector without failures.
    pub fn new() -> Self {
        let (tell, told) = mpsc::channel(FAULTS);
        Self { tell, told }
    }

    /// Waits for the first failure. Cancel safe.
    pub async fn first(&mut self) -> DesktopError {
        match self.told.recv().await {
            Some(fault) => fault,
            // Unreachable: this struct holds a sender.
            None => std::future::pending().await,
        }
    }

    /// The first failure so far.
    pub fn try_first(&mut self) -> Option<DesktopError> {
        self.told.try_recv().ok()
    }

    /// The error handler of a stream: logs glitches, and reports other errors as a lost device.
    fn handler(&self, device: &'static str, name: &str) -> impl FnMut(cpal::Error) + Send + use<> {
        let (tell, name) = (self.tell.clone(), name.to_owned());
        move |reason| match reason.kind() {
            ErrorKind::Xrun | ErrorKind::RealtimeDenied | ErrorKind::DeviceChanged => {
                tracing::debug!(device, %reason, "glitch");
            }
            _ => {
                let lost = DesktopError::Lost {
                    device,
                    name: name.clone(),
                    reason,
                };
                // If the channel is full, an earlier fault already closes both devices.
                drop(tell.try_send(lost));
            }
        }
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::new()
    }
}

/// An opened microphone.
pub struct Microphone {
    /// The system's name for it.
    pub name: String,
    /// Rate of its audio, Hz.
    pub rate: u32,
    samples: Consumer<f32>,
    /// `None` once it is closed.
    stream: Option<Stream>,
}

impl Microphone {
    /// Opens the microphone of this name, or the default one, without starting it.
    ///
    /// # Errors
    /// [`DesktopError`] saying which device is missing or cannot be opened.
    pub fn open(name: Option<&str>, faults: &Faults) -> Result<Self, DesktopError> {
        let device = choose(Direction::Input, name, INPUT)?;
        let name = name_of(&device);
        let cannot = |reason| DesktopError::Open {
            device: "microphone",
            option: INPUT,
            name: name.clone(),
            reason,
        };
        let supported = device.default_input_config().map_err(cannot)?;
        let rate = supported.sample_rate();
        let (stream, samples) = with_chunks(&supported, |config| {
            record(&device, &supported, config, faults, &name)
        })
        .map_err(cannot)?;
        Ok(Self {
            name,
            rate,
            samples,
            stream: Some(stream),
        })
    }

    /// Starts recording.
    ///
    /// # Errors
    /// [`DesktopError::Lost`] if the device is gone.
    pub fn start(&self) -> Result<(), DesktopError> {
        start(self.stream.as_ref(), "microphone", &self.name)
    }

    /// Gives the device back to the system.
    pub fn close(&mut self) {
        close(self.stream.take());
    }

    /// Takes the audio recorded since the last call: mono, -1..1.
    pub fn take(&mut self) -> Vec<f32> {
        take_all(&mut self.samples)
    }
}

impl Drop for Microphone {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for Microphone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Microphone")
            .field("name", &self.name)
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}

/// An opened loudspeaker.
pub struct Loudspeaker {
    /// The system's name for it.
    pub name: String,
    /// Rate of its audio, Hz.
    pub rate: u32,
    /// The most audio that it has accepted and not played yet, ms.
    pub buffer_ms: u32,
    /// Takes the audio to play: mono, -1..1, at its rate.
    pub feed: Feed,
    /// The sounds other than speech.
    pub sounds: Sounds,
    played: Consumer<f32>,
    /// `None` once it is closed.
    stream: Option<Stream>,
}

impl Loudspeaker {
    /// Opens the loudspeaker of this name, or the default one, without starting it. `option` is the
    /// option that chooses another, for errors.
    ///
    /// # Errors
    /// [`DesktopError`] saying which device is missing or cannot be opened.
    pub fn open(
        name: Option<&str>,
        option: &'static str,
        faults: &Faults,
    ) -> Result<Self, DesktopError> {
        let device = choose(Direction::Output, name, option)?;
        let name = name_of(&device);
        let cannot = |reason| DesktopError::Open {
            device: "loudspeaker",
            option,
            name: name.clone(),
            reason,
        };
        let supported = device.default_output_config().map_err(cannot)?;
        let rate = supported.sample_rate();
        let (stream, (feed, sounds, played)) = with_chunks(&supported, |config| {
            play(&device, &supported, config, faults, &name)
        })
        .map_err(cannot)?;
        let asked = rate * CHUNK_MS / 1_000;
        let chunk = stream.buffer_size().unwrap_or(asked).max(asked);
        Ok(Self {
            name,
            rate,
            buffer_ms: (u64::from(CHUNKS * chunk) * 1_000 / u64::from(rate.max(1))) as u32,
            feed,
            sounds,
            played,
            stream: Some(stream),
        })
    }

    /// Starts playing; silence while nothing is fed.
    ///
    /// # Errors
    /// [`DesktopError::Lost`] if the device is gone.
    pub fn start(&self) -> Result<(), DesktopError> {
        start(self.stream.as_ref(), "loudspeaker", &self.name)
    }

    /// Gives the device back to the system.
    pub fn close(&mut self) {
        close(self.stream.take());
    }

    /// Takes the audio played since the last call, including silence: mono, -1..1.
    pub fn take_played(&mut self) -> Vec<f32> {
        take_all(&mut self.played)
    }
}

impl Drop for Loudspeaker {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for Loudspeaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loudspeaker")
            .field("name", &self.name)
            .field("rate", &self.rate)
            .field("buffer_ms", &self.buffer_ms)
            .finish_non_exhaustive()
    }
}

fn start(stream: Option<&Stream>, device: &'static str, name: &str) -> Result<(), DesktopError> {
    let started = stream.map_or(Ok(()), Stream::play);
    started.map_err(|reason| DesktopError::Lost {
        device,
        name: name.to_owned(),
        reason,
    })
}

/// Closes a stream on a thread of its own, which is abandoned if it hangs.
fn close(stream: Option<Stream>) {
    let Some(stream) = stream else { return };
    let (close, closed) = sync_channel(1);
    std::thread::spawn(move || {
        drop(stream);
        // The receiver may have timed out.
        let _ = close.send(());
    });
    if closed.recv_timeout(CLOSING).is_err() {
        tracing::warn!("the sound system did not close a device in time");
    }
}

fn take_all(ring: &mut Consumer<f32>) -> Vec<f32> {
    let mut samples = vec![0.0; ring.slots()];
    let (taken, _) = ring.pop_partial_slice(&mut samples);
    let taken = taken.len();
    samples.truncate(taken);
    samples
}

/// Builds a stream with small chunks, or with the device's default size if it refuses them.
fn with_chunks<T>(
    supported: &SupportedStreamConfig,
    build: impl Fn(StreamConfig) -> Result<T, cpal::Error>,
) -> Result<T, cpal::Error> {
    let config = supported.config();
    let small = BufferSize::Fixed(config.sample_rate * CHUNK_MS / 1_000);
    build(StreamConfig {
        buffer_size: small,
        ..config
    })
    .or_else(|_| build(config))
}

fn ring(rate: u32) -> (Producer<f32>, Consumer<f32>) {
    RingBuffer::new(RING_SECONDS * rate as usize)
}

fn record(
    device: &Device,
    supported: &SupportedStreamConfig,
    config: StreamConfig,
    faults: &Faults,
    name: &str,
) -> Result<(Stream, Consumer<f32>), cpal::Error> {
    match supported.sample_format() {
        SampleFormat::F32 => record_as::<f32>(device, config, faults, name, f32::from_sample_),
        SampleFormat::I16 => record_as::<i16>(device, config, faults, name, f32::from_sample_),
        SampleFormat::I24 => record_as(device, config, faults, name, of_24_bits),
        SampleFormat::I32 => record_as::<i32>(device, config, faults, name, f32::from_sample_),
        SampleFormat::U8 => record_as::<u8>(device, config, faults, name, f32::from_sample_),
        other => Err(unsupported(other)),
    }
}

fn record_as<T>(
    device: &Device,
    config: StreamConfig,
    faults: &Faults,
    name: &str,
    read: fn(T) -> f32,
) -> Result<(Stream, Consumer<f32>), cpal::Error>
where
    T: SizedSample + 'static,
{
    let (mut to, samples) = ring(config.sample_rate);
    let channels = usize::from(config.channels).max(1);
    let stream = device.build_input_stream(
        config,
        move |data: &[T], _| {
            for frame in data.chunks_exact(channels) {
                let sum: f32 = frame.iter().map(|&sample| read(sample)).sum();
                // A full ring means that nobody drains it, and the audio is lost in any case.
                let _ = to.push(sum / channels as f32);
            }
        },
        faults.handler("microphone", name),
        None,
    )?;
    Ok((stream, samples))
}

/// A sample of 24 bits in 32, of which the upper eight may be anything: PulseAudio leaves them empty in negative ones.
fn of_24_bits(sample: I24) -> f32 {
    f32::from_sample_(I24::new_unchecked(sample.inner() << 8 >> 8))
}

/// The feed of a loudspeaker, and the audio that it has played.
type Playing = (Feed, Sounds, Consumer<f32>);

fn play(
    device: &Device,
    supported: &SupportedStreamConfig,
    config: StreamConfig,
    faults: &Faults,
    name: &str,
) -> Result<(Stream, Playing), cpal::Error> {
    match supported.sample_format() {
        SampleFormat::F32 => play_as::<f32>(device, config, faults, name),
        SampleFormat::I16 => play_as::<i16>(device, config, faults, name),
        SampleFormat::I24 => play_as::<I24>(device, config, faults, name),
        SampleFormat::I32 => play_as::<i32>(device, config, faults, name),
        SampleFormat::U8 => play_as::<u8>(device, config, faults, name),
        other => Err(unsupported(other)),
    }
}

fn play_as<T>(
    device: &Device,
    config: StreamConfig,
    faults: &Faults,
    name: &str,
) -> Result<(Stream, Playing), cpal::Error>
where
    T: SizedSample + FromSample<f32>,
{
    let (mut to, played) = ring(config.sample_rate);
    let (feed, mut drain) = playback::queue(RING_SECONDS * config.sample_rate as usize);
    let (sounds, mut mixer) = sounds(config.sample_rate);
    let channels = usize::from(config.channels).max(1);
    let stream = device.build_output_stream(
        config,
        move |data: &mut [T], _| fill(data, channels, (&mut drain, &mut mixer), &mut to),
        faults.handler("loudspeaker", name),
        None,
    )?;
    Ok((stream, (feed, sounds, played)))
}

/// Plays the queue and the sounds on all channels, and records what was played.
fn fill<T: SizedSample + FromSample<f32>>(
    data: &mut [T],
    channels: usize,
    (drain, mixer): (&mut Drain, &mut Mixer),
    played: &mut Producer<f32>,
) {
    drain.catch_up();
    mixer.catch_up();
    for frame in data.chunks_exact_mut(channels) {
        let voice = match mixer.holds_the_voice() {
            true => 0.0,
            false => drain.next_sample(),
        };
        let sample = (voice + mixer.next_sample()).clamp(-1.0, LOUDEST);
        frame.fill(T::from_sample_(sample));
        // A full ring means that nobody drains the microphone either.
        let _ = played.push(sample);
    }
}

fn unsupported(format: SampleFormat) -> cpal::Error {
    let message = format!("the sample format {format} is not supported");
    cpal::Error::with_message(ErrorKind::UnsupportedConfig, message)
}

/// The time, for devices and their loops.
#[allow(
    clippy::disallowed_methods,
    reason = "an edge: sound is played and polled in real time"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loudest_sound_fits_into_24_bits() {
        let (mut feed, mut drain) = playback::queue(4);
        let (_sounds, mut mixer) = sounds(48_000);
        let (mut to, _played) = ring(1);
        feed.push(&[1.0, -1.0]);
        let mut data = [I24::default(); 4];
        fill(&mut data, 2, (&mut drain, &mut mixer), &mut to);
        let loudest = [8_388_607, 8_388_607, -8_388_608, -8_388_608];
        assert_eq!(data.map(I24::inner), loudest);
    }

    /// The lower half of the sound was above its upper half.
    #[test]
    fn negative_samples_of_pulseaudio_have_their_sign() {
        let read = |bits| of_24_bits(I24::new_unchecked(bits));
        assert_eq!(read(0x0040_0000), 0.5);
        assert_eq!(read(0x00c0_0000), -0.5);
        assert_eq!(read(-0x0040_0000), -0.5);
    }
}
