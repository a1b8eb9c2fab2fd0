//! The demonstration on the page: a small slow shop with made-up data.
//!
//! Newcomers hear what running early saves only if a tool is slow, and the shipped tools are not. This
//! service is slow on purpose, and it is real: its tools reach it over HTTP like any declared tool. Only
//! sessions that show the demonstration are offered them ([`Audience::Demonstration`]).

use crate::tools::Audience;
use crate::tools::declared::{self, DeclarationError, Declared};
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

/// The time that each answer takes: that of a slow shop system.
const DELAY: Duration = Duration::from_millis(1_500);

/// Any free port of this machine.
pub const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The declarations of its tools, with a placeholder for the service's address.
const FILES: [(&str, &str); 2] = [
    (
        "tools/demonstration/order.toml",
        include_str!("../../tools/demonstration/order.toml"),
    ),
    (
        "tools/demonstration/stock.toml",
        include_str!("../../tools/demonstration/stock.toml"),
    ),
];

/// The placeholder in the declarations.
const PLACEHOLDER: &str = "127.0.0.1:0";

/// How many of each colour are in stock.
const STOCK: [(&str, u32); 5] = [
    ("blue", 4),
    ("red", 0),
    ("green", 12),
    ("black", 1),
    ("white", 7),
];

/// Sent with every answer, so that nobody mistakes it for real data.
const MADE_UP: &str = "made up by undertone's demonstration";

/// The reason that there is no demonstration.
#[derive(Debug, thiserror::Error)]
pub enum DemonstrationError {
    /// Its port cannot be opened.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// A declaration is wrong.
    #[error(transparent)]
    Declaration(#[from] DeclarationError),
}

/// The running demonstration. It stops when this is dropped.
#[derive(Debug)]
pub struct Demonstration {
    address: SocketAddr,
    tools: Vec<Declared>,
    _serving: AbortOnDropHandle<io::Result<()>>,
}

impl Demonstration {
    /// Serves the shop at `address`, on the current runtime.
    ///
    /// # Errors
    /// [`DemonstrationError`].
    pub fn open(address: SocketAddr) -> Result<Self, DemonstrationError> {
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((tokio::net::TcpListener::from_std(listener)?, address))
        };
        let (listener, address) =
            listen().map_err(|error| DemonstrationError::Listen(address, error))?;
        let tools = FILES.iter().map(|(file, text)| {
            let text = text.replace(PLACEHOLDER, &address.to_string());
            let tool = declared::parse(file.as_ref(), &text)?;
            Ok(Declared {
                audience: Audience::Demonstration,
                ..tool
            })
        });
        let tools = tools.collect::<Result<_, DeclarationError>>()?;
        let serving = tokio::spawn(async move { axum::serve(listener, shop()).await });
        Ok(Self {
            address,
            tools,
            _serving: AbortOnDropHandle::new(serving),
        })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds its tools to `declared`. A tool of the same name there takes precedence.
    pub fn declare(&self, declared: &mut Vec<Declared>) {
        for tool in &self.tools {
            let name = &tool.declaration.spec.name;
            if !declared
                .iter()
                .any(|own| own.declaration.spec.name == *name)
            {
                declared.push(tool.clone());
            }
        }
    }
}

fn shop() -> Router {
    Router::new()
        .route("/orders/latest", get(order))
        .route("/stock/{colour}", get(stock))
}

async fn order() -> Json<Value> {
    sleep(DELAY).await;
    Json(json!({
        "item": "blue lamp", "left": "this morning", "arrives": "tomorrow", "source": MADE_UP,
    }))
}

async fn stock(Path(colour): Path<String>) -> (StatusCode, Json<Value>) {
    sleep(DELAY).await;
    let left = STOCK.iter().find(|(known, _)| *known == colour);
    match left {
        Some((_, left)) => (
            StatusCode::OK,
            Json(json!({ "in_stock": left, "source": MADE_UP })),
        ),
        None => (
            StatusCode::NOT_FOUND,
            Json(json!({ "message": "there is no lamp of that colour", "source": MADE_UP })),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{SpeculationPolicy, verdict};
    use crate::tools::{CallContext, Eligibility, Registry, SessionTools};

    fn registry(demonstration: &Demonstration) -> Registry {
        let mut tools = Vec::new();
        demonstration.declare(&mut tools);
        declared::registry(&tools).unwrap()
    }

    #[tokio::test]
    async fn the_shop_answers_its_declared_tools_over_http() {
        let demonstration = Demonstration::open(ANYWHERE).unwrap();
        let registry = registry(&demonstration);
        let context = CallContext::new(SessionTools::default(), "key");
        let call = |name: &str, arguments: Value| {
            let arguments = arguments.as_object().cloned().unwrap();
            registry.call(name, arguments, &context)
        };
        let stock = STOCK.map(|(colour, _)| call("get_demo_stock", json!({ "colour": colour })));
        let (order, stock, unknown) = futures_util::join!(
            call("get_demo_order", json!({})),
            futures_util::future::join_all(stock),
            call("get_demo_stock", json!({ "colour": "mauve" })),
        );
        assert_eq!(order.unwrap()["arrives"], "tomorrow");
        for (answer, (_, left)) in stock.into_iter().zip(STOCK) {
            assert_eq!(answer, Ok(json!({ "in_stock": left, "source": MADE_UP })));
        }
        assert!(unknown.is_err());
    }

    #[tokio::test]
    async fn its_tools_may_run_early_by_the_shipped_settings_and_only_it_is_offered_them() {
        let demonstration = Demonstration::open(ANYWHERE).unwrap();
        let registry = registry(&demonstration);
        let tools = registry.offered_to(Audience::Demonstration);
        assert_eq!(tools.len(), FILES.len());
        for tool in tools {
            let verdict = verdict(&tool, &SpeculationPolicy::default());
            assert_eq!(verdict.eligibility, Eligibility::Full, "{}", tool.spec.name);
            assert!(!tool.network && tool.spec.description.contains("made-up"));
        }
        let others = [Audience::Everyone, Audience::Calls];
        let mut others = others
            .into_iter()
            .flat_map(|audience| registry.offered_to(audience));
        assert!(!others.any(|tool| tool.spec.name.contains("demo")));
    }

    #[tokio::test]
    async fn a_tool_of_the_operators_takes_precedence() {
        let demonstration = Demonstration::open(ANYWHERE).unwrap();
        let mut tools = Vec::new();
        demonstration.declare(&mut tools);
        let mut own = tools[0].clone();
        own.audience = Audience::Everyone;
        let mut tools = vec![own];
        demonstration.declare(&mut tools);
        assert_eq!(tools.len(), FILES.len());
        assert_eq!(tools[0].audience, Audience::Everyone);
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error_that_names_it() {
        let first = Demonstration::open(ANYWHERE).unwrap();
        let second = Demonstration::open(first.address()).unwrap_err();
        assert!(
            second.to_string().contains(&first.address().to_string()),
            "{second}"
        );
    }
}
