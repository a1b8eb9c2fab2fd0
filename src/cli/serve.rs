//! `undertone serve`.

use super::Common;
use crate::config::{Config, Flags};
use anyhow::{Result, bail};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// The address to listen on; 0.0.0.0 for every interface
    #[arg(long, value_name = "ADDRESS")]
    host: Option<String>,
    /// The TCP port; 0 takes any free one
    #[arg(long)]
    port: Option<u16>,
    /// Let other machines in without a token
    #[arg(long)]
    insecure: bool,
}

impl Serve {
    pub(super) fn flags(&self, common: Common) -> Flags {
        Flags {
            config: common.config,
            host: self.host.clone(),
            port: self.port,
            insecure: self.insecure,
        }
    }

    pub(super) fn run(&self, config: &Config) -> Result<()> {
        super::engines::verified_models(config)?;
        bail!("serve is not built yet")
    }
}
