//! Keys that tools press on a telephone line.

use super::Driver;
use crate::audio::dtmf;
use crate::session::Outbound;
use crate::session::options::{SessionOptions, SpokenBy};
use crate::tools::{KeyPress, SessionTools};
use tokio::sync::mpsc;

/// Presses of keys that may wait. Tools press them one after the other.
const KEYS: usize = 4;

/// The keys of a telephone line.
pub(super) struct Keypad {
    /// Keys that tools want to be pressed.
    presses: mpsc::Receiver<KeyPress>,
    /// Those that are being pressed.
    pressed: Vec<KeyPress>,
}

impl Keypad {
    /// The keys of a session's line, if it has one, for its tools.
    pub(super) fn of(options: &SessionOptions, tools: &SessionTools) -> Option<Box<Self>> {
        options.has_line().then(|| {
            let (keypad, presses) = mpsc::channel(KEYS);
            tools.press_at(keypad);
            Box::new(Self {
                presses,
                pressed: Vec::new(),
            })
        })
    }

    /// The next keys that a tool wants to be pressed; `None` without a line.
    pub(super) async fn next(keypad: Option<&mut Self>) -> Option<KeyPress> {
        keypad?.presses.recv().await
    }
}

impl Driver {
    /// Presses keys: as tones in the agent's audio, or by the client if that makes the agent's voice.
    pub(super) fn press(&mut self, press: KeyPress) {
        match self.options.spoken_by {
            SpokenBy::Server => {
                let tones = dtmf::tones(&press.keys, self.options.output_rate);
                self.pacer.dial(&tones);
                if let Some(keypad) = &mut self.keypad {
                    keypad.pressed.push(press);
                }
            }
            SpokenBy::Client | SpokenBy::Nobody => {
                if self.send(Outbound::Keys(press.keys)).is_ok() {
                    let _ = press.done.send(());
                }
            }
        }
    }

    /// Tells the tools that their keys have been pressed. One that has given up is told in vain.
    pub(super) fn tell_pressed(&mut self) {
        let keypads = self.keypad.iter_mut();
        let pressed = keypads.flat_map(|keypad| keypad.pressed.drain(..));
        let over = pressed.map(|press| press.done.send(()));
        over.for_each(drop);
    }
}
