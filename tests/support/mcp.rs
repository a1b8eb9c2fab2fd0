//! MCP servers for tests, and configurations that name them.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use undertone::config::{ConfigError, Environment, Flags, Loaded};
use undertone::tools::mcp::{self, Pin};

/// A configuration in a folder of its own, with a scripted server that is a program.
pub(crate) struct Setup {
    pub(crate) folder: tempfile::TempDir,
}

/// A tool object of the scripted server.
pub(crate) fn object(name: &str) -> Value {
    json!({
        "name": name,
        "description": format!("Does {name}."),
        "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
    })
}

impl Setup {
    /// The server `crm` is the scripted program, which lists these tools.
    pub(crate) fn of_program(tools: &[Value]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/mcp_server.py");
        let setup = Self::of("[mcp.crm]\n");
        let command = json!(["python3", script, setup.folder.path()]);
        setup.configure(&format!("[mcp.crm]\ncommand = {command}\n"));
        setup.list(tools);
        setup
    }

    /// A configuration with this text.
    pub(crate) fn of(text: &str) -> Self {
        let setup = Self {
            folder: tempfile::tempdir().expect("a folder"),
        };
        std::fs::create_dir(setup.path("tools")).expect("a folder");
        setup.configure(text);
        setup
    }

    /// Writes the configuration, with the folder of the tools.
    pub(crate) fn configure(&self, text: &str) {
        let text = format!("{text}[tools]\nfolder = \"tools\"\n");
        self.write("undertone.toml", &text);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("a file");
    }

    /// The tools that the program lists from now on.
    pub(crate) fn list(&self, tools: &[Value]) {
        self.write("tools.json.new", &json!(tools).to_string());
        std::fs::rename(self.path("tools.json.new"), self.path("tools.json")).expect("a file");
    }

    /// The program says that its tools have changed.
    pub(crate) fn say_changed(&self) {
        self.write("changed", "");
    }

    /// Text that has reached the program.
    pub(crate) fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn times(&self, line: &str) -> usize {
        self.log().iter().filter(|logged| *logged == line).count()
    }

    /// Declares the tool `name` of the server `crm` under the same name.
    pub(crate) fn declare(&self, name: &str, more: &str) {
        let mcp = format!("mcp = {{ server = \"crm\", tool = \"{name}\" }}");
        let text = format!("name = \"{name}\"\nkind = \"mcp\"\n{mcp}\n{more}\n");
        self.write(&format!("tools/{name}.toml"), &text);
    }

    pub(crate) fn load(&self) -> Result<Loaded, ConfigError> {
        self.load_with(&[])
    }

    /// Loads it with these environment variables and `PATH`.
    pub(crate) fn load_with(&self, variables: &[(&str, &str)]) -> Result<Loaded, ConfigError> {
        let flags = Flags {
            config: Some(self.path("undertone.toml")),
            ..Flags::default()
        };
        let path = std::env::var("PATH").expect("a path");
        let all = variables.iter().copied().chain([("PATH", &*path)]);
        let environment: Environment = all
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        undertone::config::load(&flags, &environment)
    }

    /// Pins all that the servers list.
    pub(crate) async fn pin(&self) {
        let catalogue = self.load().expect("a configuration").config.tools.mcp;
        let mut pins = catalogue.pins;
        for server in &catalogue.servers {
            for tool in mcp::list(server).await.expect("tools") {
                let name = tool["name"].as_str().expect("a name").to_owned();
                pins.pin(&server.name, &name, Pin::of(tool));
            }
        }
        pins.write(&catalogue.file.expect("a file")).expect("pins");
    }
}

/// A server over streamable HTTP, made with the SDK. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Web(Arc<Mutex<Vec<Value>>>);

impl Web {
    pub(crate) fn list(&self, tools: &[Value]) {
        *self.0.lock().expect("no panic") = tools.to_vec();
    }

    /// Serves at the address that it returns.
    pub(crate) fn serve(&self) -> String {
        use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
        use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
        let own = self.clone();
        let service = StreamableHttpService::new(
            move || Ok(own.clone()),
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default(),
        );
        let address = super::serve_on_a_thread(axum::Router::new().fallback_service(service));
        format!("http://{address}/mcp")
    }
}

impl rmcp::ServerHandler for Web {
    fn get_info(&self) -> rmcp::model::ServerConfig {
        let tools = rmcp::model::ServerCapabilities::builder()
            .enable_tools()
            .build();
        rmcp::model::ServerConfig::new(tools)
    }

    async fn list_tools(
        &self,
        _: Option<rmcp::model::PaginatedRequestParams>,
        _: rmcp::service::RequestContext<rmcp::RoleServer>,
    ) -> Result<rmcp::model::ListToolsResult, rmcp::ErrorData> {
        let tools = self.0.lock().expect("no panic").clone();
        let tools = serde_json::from_value(json!({ "tools": tools }));
        Ok(tools.expect("tools"))
    }

    async fn call_tool(
        &self,
        call: rmcp::model::CallToolRequestParams,
        _: rmcp::service::RequestContext<rmcp::RoleServer>,
    ) -> Result<rmcp::model::CallToolResponse, rmcp::ErrorData> {
        let given = json!({"tool": call.name, "given": call.arguments});
        let result = json!({"content": [], "structuredContent": given});
        let result: rmcp::model::CallToolResult = serde_json::from_value(result).expect("a result");
        Ok(result.into())
    }
}

/// A server over HTTP of the revisions with a handshake, in raw JSON-RPC. It forgets its session at the first call.
#[derive(Clone, Default)]
pub(crate) struct Forgetful(Arc<Mutex<Vec<String>>>);

impl Forgetful {
    /// Serves at the address that it returns.
    pub(crate) fn serve(&self) -> String {
        let own = self.clone();
        let answer = move |axum::Json(request): axum::Json<Value>| {
            let answer = own.answer(&request);
            std::future::ready(answer)
        };
        let router = axum::Router::new().route("/mcp", axum::routing::post(answer));
        format!("http://{}/mcp", super::serve_on_a_thread(router))
    }

    /// How often a method was called.
    pub(crate) fn times(&self, method: &str) -> usize {
        let called = self.0.lock().expect("no panic");
        called.iter().filter(|called| *called == method).count()
    }

    fn answer(&self, request: &Value) -> axum::response::Response {
        use axum::http::StatusCode;
        use axum::response::IntoResponse;
        let method = request["method"].as_str().unwrap_or_default();
        self.0.lock().expect("no panic").push(method.to_owned());
        let (id, sessions) = (&request["id"], self.times("initialize"));
        let result = match method {
            "initialize" => json!({
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "forgetful", "version": "1"},
            }),
            // From the first call on the first session is gone.
            "tools/call" | "tools/list" if sessions == 1 && self.times("tools/call") > 0 => {
                return StatusCode::NOT_FOUND.into_response();
            }
            "tools/list" => json!({"tools": [object("book")]}),
            "tools/call" => json!({"content": [{"type": "text", "text": "booked"}]}),
            _ if id.is_null() => return StatusCode::ACCEPTED.into_response(),
            _ => {
                let error = json!({"code": -32601, "message": "no such method"});
                return axum::Json(json!({"jsonrpc": "2.0", "id": id, "error": error}))
                    .into_response();
            }
        };
        let answer = axum::Json(json!({"jsonrpc": "2.0", "id": id, "result": result}));
        ([("mcp-session-id", format!("s{sessions}"))], answer).into_response()
    }
}
