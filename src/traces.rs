//! Traces of conversations for OpenTelemetry: spans made from the record of each turn when it is over, and posted to a
//! collector as OTLP over HTTP. Calls never wait for them.
//!
//! | files | subject |
//! |---|---|
//! | `watch` | when each stage of a session's turns began and ended, as its inputs and decisions show it |
//! | `spans`, `names` | PURE: the spans of a turn; the names of attributes, those of the GenAI conventions included |
//! | `export` | the queue, batches, and what happens when the collector does not take them |
//! | `parent` | a client's `traceparent` |
//! | `sampler` | which conversations are traced |

mod export;
mod names;
mod parent;
mod sampler;
mod spans;
#[cfg(test)]
mod tests;
mod watch;

pub use export::Traces;
pub use parent::Parent;
pub use sampler::Sampler;
pub(crate) use watch::{Subject, Watch};

use reqwest::header::HeaderMap;
use url::Url;

/// The path of traces below a collector's address.
pub const PATH: &str = "v1/traces";

/// Where traces go, and what they contain.
#[derive(Debug, Clone)]
pub struct TraceSettings {
    /// The address to which spans are posted, [`PATH`] included.
    pub url: Url,
    /// Headers of each request, such as a key; secret.
    pub headers: HeaderMap,
    /// Attributes of this server, such as `service.name`.
    pub resource: Vec<(String, String)>,
    /// The conversations that are traced.
    pub sampler: Sampler,
    /// Whether spans contain words and arguments.
    pub content: bool,
}
