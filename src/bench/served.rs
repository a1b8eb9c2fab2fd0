//! The product's server on a free port, with engines that need no models.

use super::BenchError;
use super::simulated::{MODEL, Simulation};
use crate::conversation::Policy;
use crate::llm::remote::Settings;
use crate::llm::{Llm, Prompts, Remote};
use crate::prediction::Predictor;
use crate::server::{self, ANYWHERE, App, ServerSettings, Twilio};
use crate::session::{
    self, BudgetMemory, Builders, Cast, Engines, LanguageDetection, ModelThreads, Observers,
    PhoneSettings,
};
use crate::simulate::Silent;
use crate::tools::Registry;
use crate::transport::phone::signature;
use crate::transport::phone::tickets::{TicketMemory, Tickets};
use crate::tts;
use crate::vad::Vad;
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use url::Url;

/// The account, the only call of the server, and the path of its socket.
pub(super) const ACCOUNT: &str = "AC00000000000000000000000000000000";
pub(super) const CALL: &str = "CA00000000000000000000000000000000";
const PATH: &str = "/twilio/relay";

/// Signs the tickets of its call.
const KEY: &str = "for tickets of the bench alone";

/// How long a server may take to stop.
const STOP: Duration = Duration::from_secs(10);

/// A running server.
pub(super) struct Served {
    pub(super) address: SocketAddr,
    twilio: Twilio,
    tickets: Tickets,
    shutdown: CancellationToken,
    serving: JoinHandle<Result<(), server::ServerError>>,
}

impl Served {
    /// Serves sessions with these engines.
    pub(super) fn start(engines: Arc<Engines>) -> Result<Self, BenchError> {
        Self::start_with(engines, ServerSettings::default())
    }

    /// Serves sessions with these engines and settings.
    pub(super) fn start_with(
        engines: Arc<Engines>,
        settings: ServerSettings,
    ) -> Result<Self, BenchError> {
        let cannot = |reason: &dyn std::fmt::Display| BenchError::sockets("the server", reason);
        let listener = server::bind(ANYWHERE).map_err(|error| cannot(&error))?;
        let address = listener.local_addr().map_err(|error| cannot(&error))?;
        let twilio = account(address).map_err(|error| cannot(&error))?;
        let settings = ServerSettings {
            twilio: Some(twilio.clone()),
            client_secret_key: Some(KEY.into()),
            ..settings
        };
        let tickets = Tickets::new(Some(KEY.into()), Arc::new(TicketMemory::default()));
        let sessions = Arc::new(move |options| Ok(session::open(&engines, &options)));
        let app = App::new(settings, sessions);
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(server::run(listener, app, shutdown.clone()));
        Ok(Self {
            address,
            twilio,
            tickets,
            shutdown,
            serving,
        })
    }

    /// The address of a socket for the text of a call, and the signature with which it opens.
    pub(super) fn relay(&self) -> Result<(String, String), BenchError> {
        let url = format!("ws://{}{PATH}", self.address);
        let signed =
            Url::parse(&url).map_err(|reason| BenchError::sockets(url.as_str(), reason))?;
        Ok((url, signature::sign(&self.twilio.auth_token, &signed)))
    }

    /// The ticket that the first message on that socket must carry.
    pub(super) fn ticket(&self) -> String {
        self.tickets.issue(CALL, Default::default())
    }

    /// Stops it, and waits for its sessions.
    pub(super) async fn stop(self) -> Result<(), BenchError> {
        self.shutdown.cancel();
        let stopped = timeout(STOP, self.serving).await;
        let cannot =
            |reason: &dyn std::fmt::Display| BenchError::sockets("the server's end", reason);
        let stopped = stopped.map_err(|error| cannot(&error))?;
        stopped
            .map_err(|error| cannot(&error))?
            .map_err(|error| cannot(&error))
    }
}

fn account(address: SocketAddr) -> Result<Twilio, url::ParseError> {
    Ok(Twilio {
        public_url: format!("http://{address}").parse()?,
        account_sid: ACCOUNT.into(),
        auth_token: SecretString::from("bench"),
        api_url: format!("http://{address}").parse()?,
        transfer: BTreeMap::new(),
        relay: true,
    })
}

/// Starts engines.
pub(super) fn started(builders: Builders) -> Result<Arc<Engines>, BenchError> {
    Engines::start(builders).map_err(|error| BenchError::sockets("the engines", error))
}

/// Engines whose model is the simulation's. Nothing is heard or spoken, because the client does both.
pub(super) fn builders(
    simulation: &Simulation,
    tools: Registry,
    predictors: Vec<Arc<dyn Predictor>>,
    policy: Policy,
) -> Result<Builders, BenchError> {
    let settings = Settings::new(simulation.base_url().clone(), MODEL);
    let llm = Remote::new(settings, Prompts::default());
    let llm = llm.map_err(|error| BenchError::sockets("the model's client", error.details()))?;
    Ok(with_llm(Arc::new(llm), tools, predictors, policy))
}

/// Engines with this model. Nothing is heard or spoken.
pub(super) fn with_llm(
    llm: Arc<dyn Llm>,
    tools: Registry,
    predictors: Vec<Arc<dyn Predictor>>,
    policy: Policy,
) -> Builders {
    Builders {
        vad: Box::new(|| Box::new(|| Ok(Box::new(Silent) as Box<dyn Vad>))),
        asr: Box::new(|| Ok(Box::new(Silent))),
        recognisers: BTreeMap::new(),
        recogniser: None,
        detection: LanguageDetection::default(),
        turn_model: None,
        threads: ModelThreads::SINGLE,
        tts: Box::new(|| Ok(Box::new(tts::Scripted::new()))),
        voices: BTreeMap::new(),
        voice_memory: 0,
        clips: None,
        llm,
        draft: None,
        tools: tools.into(),
        predictors,
        journal: None,
        budget: Arc::new(BudgetMemory::default()),
        zone: jiff::tz::TimeZone::UTC,
        policy,
        phone: PhoneSettings::default(),
        agents: Cast::default(),
        observers: Observers::default(),
    }
}
