//! The option `--play`.

#[cfg(feature = "desktop")]
use crate::desktop::player::Player;
#[cfg(feature = "desktop")]
use anyhow::Context;
use anyhow::Result;
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct Play {
    /// Play the speech on the loudspeaker; --play=NAME on another than the system's, see `undertone
    /// talk --list-devices`. It needs a build with the feature `desktop`
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    play: Option<String>,
}

/// The loudspeaker, if the speech is to be played.
pub(super) struct Loudspeaker {
    #[cfg(feature = "desktop")]
    player: Option<Player>,
}

#[cfg(feature = "desktop")]
impl Play {
    /// Opens the loudspeaker for mono audio at `rate`, Hz, if the user asks for it.
    pub(super) fn open(&self, rate: u32) -> Result<Loudspeaker> {
        let open = |name: &String| {
            let name = Some(name.as_str()).filter(|name| !name.is_empty());
            Player::open(name, "--play=NAME", rate).context("cannot play the speech")
        };
        let player = self.play.as_ref().map(open).transpose()?;
        Ok(Loudspeaker { player })
    }
}

#[cfg(not(feature = "desktop"))]
impl Play {
    /// Refuses to play: this build has no sound.
    pub(super) fn open(&self, _rate: u32) -> Result<Loudspeaker> {
        anyhow::ensure!(
            self.play.is_none(),
            "--play: this undertone was built without sound; build it with `cargo build --release --locked \
             --features desktop`, or write a file with --out"
        );
        Ok(Loudspeaker {})
    }
}

#[cfg(feature = "desktop")]
impl Loudspeaker {
    /// Queues samples in -1..1.
    pub(super) fn play(&mut self, samples: &[f32]) -> Result<()> {
        let player = self.player.as_mut();
        player.map_or(Ok(()), |player| Ok(player.play(samples)?))
    }

    /// Drops everything that has not been played.
    pub(super) fn clear(&mut self) {
        if let Some(player) = &mut self.player {
            player.clear();
        }
    }

    /// Waits until everything has been played.
    pub(super) fn finish(self) -> Result<()> {
        self.player.map_or(Ok(()), |player| Ok(player.finish()?))
    }
}

#[cfg(not(feature = "desktop"))]
impl Loudspeaker {
    pub(super) fn play(&mut self, _samples: &[f32]) -> Result<()> {
        Ok(())
    }

    pub(super) fn clear(&mut self) {}

    pub(super) fn finish(self) -> Result<()> {
        Ok(())
    }
}
