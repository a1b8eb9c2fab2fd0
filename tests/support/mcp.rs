//! MCP servers for tests, and configurations that name them.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
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

    /// Pins tools of the server `crm` without asking it.
    pub(crate) fn accept(&self, tools: &[Value]) {
        let catalogue = self.load().expect("a configuration").config.tools.mcp;
        let mut pins = catalogue.pins;
        for tool in tools {
            let name = tool["name"].as_str().expect("a name");
            pins.pin("crm", name, Pin::of(tool.clone()));
        }
        pins.write(&catalogue.file.expect("a file")).expect("pins");
    }

    /// Pins all that the servers list.
    pub(crate) async fn pin(&self) {
        self.pin_with(&[]).await;
    }

    /// The same with these environment variables.
    pub(crate) async fn pin_with(&self, variables: &[(&str, &str)]) {
        let loaded = self.load_with(variables);
        let catalogue = loaded.expect("a configuration").config.tools.mcp;
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

/// A server over streamable HTTP, made with the SDK: of both generations, as the client asks. Clones are the same.
#[derive(Clone)]
pub(crate) struct Web {
    tools: watch::Sender<Vec<Value>>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Default for Web {
    fn default() -> Self {
        Self {
            tools: watch::Sender::new(Vec::new()),
            log: Arc::default(),
        }
    }
}

impl Web {
    /// The tools from now on, of which subscribers are told.
    pub(crate) fn list(&self, tools: &[Value]) {
        self.tools.send_replace(tools.to_vec());
    }

    /// The requests that have reached it: "list", "call NAME", "cancel", "listen", and of each request "version
    /// VERSION", "session" if it names one, "query QUERY" if its address has one.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().expect("no panic").clone()
    }

    pub(crate) fn times(&self, line: &str) -> usize {
        self.log().iter().filter(|logged| *logged == line).count()
    }

    /// Serves at the address that it returns.
    pub(crate) fn serve(&self) -> String {
        self.serve_behind(|router| router)
    }

    /// Serves whoever sends this header, at the address that it returns.
    pub(crate) fn serve_with_key(&self, name: &'static str, value: &'static str) -> String {
        let check = move |request: axum::extract::Request, next: axum::middleware::Next| async move {
            let shown = request.headers().get(name);
            match shown.is_some_and(|shown| shown == value) {
                true => next.run(request).await,
                false => {
                    axum::response::IntoResponse::into_response(axum::http::StatusCode::FORBIDDEN)
                }
            }
        };
        self.serve_behind(|router| router.layer(axum::middleware::from_fn(check)))
    }

    /// Serves at the address that it returns, but answers requests for methods that begin as `refused` says with its
    /// status, unless that is 0. For clients that name the method in a header.
    pub(crate) fn serve_refusing(&self, refused: &Arc<Mutex<(&'static str, u16)>>) -> String {
        let refused = refused.clone();
        let check = move |request: axum::extract::Request, next: axum::middleware::Next| {
            let method = request.headers().get("mcp-method");
            let method = method.and_then(|method| method.to_str().ok());
            let (begin, status) = *refused.lock().expect("no panic");
            let is_refused = status != 0 && method.is_some_and(|method| method.starts_with(begin));
            async move {
                if !is_refused {
                    return next.run(request).await;
                }
                let status = axum::http::StatusCode::from_u16(status).expect("a status");
                let scope = "Bearer error=\"insufficient_scope\", scope=\"tools.write\"";
                axum::response::IntoResponse::into_response((status, [("www-authenticate", scope)]))
            }
        };
        self.serve_behind(|router| router.layer(axum::middleware::from_fn(check)))
    }

    /// Serves with what `guard` puts in front.
    fn serve_behind(&self, guard: impl FnOnce(axum::Router) -> axum::Router) -> String {
        let router = guard(self.router());
        format!("http://{}/mcp", super::serve_on_a_thread(router))
    }

    /// The server, at every path.
    pub(crate) fn router(&self) -> axum::Router {
        use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
        use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
        let own = self.clone();
        let service = StreamableHttpService::new(
            move || Ok(own.clone()),
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default(),
        );
        let own = self.clone();
        let note = move |request: axum::extract::Request, next: axum::middleware::Next| {
            own.note(request.headers());
            if let Some(query) = request.uri().query() {
                own.write(format!("query {query}"));
            }
            next.run(request)
        };
        let router = axum::Router::new().fallback_service(service);
        router.layer(axum::middleware::from_fn(note))
    }

    fn note(&self, headers: &axum::http::HeaderMap) {
        if let Some(version) = headers.get("mcp-protocol-version") {
            self.write(format!("version {}", version.to_str().expect("text")));
        }
        if headers.contains_key("mcp-session-id") {
            self.write("session".into());
        }
    }

    fn write(&self, line: String) {
        self.log.lock().expect("no panic").push(line);
    }
}

/// Notes that a call was given up, in whichever way.
struct Cancelled(Web);

impl Drop for Cancelled {
    fn drop(&mut self) {
        self.0.write("cancel".into());
    }
}

impl rmcp::ServerHandler for Web {
    fn get_info(&self) -> rmcp::model::ServerConfig {
        let tools = rmcp::model::ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        rmcp::model::ServerConfig::new(tools)
    }

    fn accepted_subscription_filter(
        &self,
        requested: &rmcp::model::SubscriptionFilter,
    ) -> Option<rmcp::model::SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(
        &self,
        subscription: rmcp::service::SubscriptionContext,
    ) -> Result<(), rmcp::ErrorData> {
        let mut tools = self.tools.subscribe();
        self.write("listen".into());
        loop {
            tokio::select! {
                () = subscription.cancelled() => return Ok(()),
                changed = tools.changed() => changed.expect("the server is there"),
            }
            if subscription
                .sink()
                .notify_tool_list_changed()
                .await
                .is_err()
            {
                return Ok(());
            }
        }
    }

    async fn list_tools(
        &self,
        _: Option<rmcp::model::PaginatedRequestParams>,
        _: rmcp::service::RequestContext<rmcp::RoleServer>,
    ) -> Result<rmcp::model::ListToolsResult, rmcp::ErrorData> {
        self.write("list".into());
        let tools = self.tools.borrow().clone();
        let tools = serde_json::from_value(json!({ "tools": tools }));
        Ok(tools.expect("tools"))
    }

    async fn call_tool(
        &self,
        call: rmcp::model::CallToolRequestParams,
        context: rmcp::service::RequestContext<rmcp::RoleServer>,
    ) -> Result<rmcp::model::CallToolResponse, rmcp::ErrorData> {
        self.write(format!("call {}", call.name));
        if call.name.starts_with("hang") {
            let _cancelled = Cancelled(self.clone());
            context.ct.cancelled().await;
        }
        let given = json!({"tool": call.name, "given": call.arguments});
        let result = json!({"content": [], "structuredContent": given});
        let result: rmcp::model::CallToolResult = serde_json::from_value(result).expect("a result");
        Ok(result.into())
    }
}

/// A scripted authorisation server with one client, as strict as RFC 6749 and RFC 8707 let it be. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Issuer(Arc<Mutex<Issued>>);

#[derive(Default)]
struct Issued {
    /// The server that tokens are given for.
    resource: String,
    count: usize,
    /// The token that counts.
    valid: Option<String>,
}

impl Issuer {
    pub(crate) const CLIENT: &str = "crm:client";
    pub(crate) const SECRET: &str = "s3cret +/% of the client";
    pub(crate) const SCOPE: &str = "tools.read tools.write";

    /// Serves tokens at the address that it returns.
    pub(crate) fn serve(&self) -> String {
        let own = self.clone();
        let give = move |headers: axum::http::HeaderMap, body: String| {
            let (status, answer) = own.give(&headers, &body);
            std::future::ready((status, axum::Json(answer)))
        };
        let router = axum::Router::new().route("/token", axum::routing::post(give));
        format!("http://{}/token", super::serve_on_a_thread(router))
    }

    /// Serves `web` to whoever has a token of this server, at the address that it returns.
    pub(crate) fn guard(&self, web: &Web) -> String {
        let own = self.clone();
        let check = move |request: axum::extract::Request, next: axum::middleware::Next| {
            let own = own.clone();
            async move {
                let refused = [("www-authenticate", "Bearer error=\"invalid_token\"")];
                let unauthorized = axum::http::StatusCode::UNAUTHORIZED;
                match own.admits(request.headers()) {
                    true => next.run(request).await,
                    false => axum::response::IntoResponse::into_response((unauthorized, refused)),
                }
            }
        };
        let url = web.serve_behind(|router| router.layer(axum::middleware::from_fn(check)));
        self.0.lock().expect("no panic").resource.clone_from(&url);
        url
    }

    /// The tokens so far are refused from now on.
    pub(crate) fn expire(&self) {
        self.0.lock().expect("no panic").valid = None;
    }

    /// How many tokens it has given.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().expect("no panic").count
    }

    fn admits(&self, headers: &axum::http::HeaderMap) -> bool {
        let issued = self.0.lock().expect("no panic");
        let valid = issued.valid.as_ref().map(|token| format!("Bearer {token}"));
        let shown = headers.get("authorization").and_then(|it| it.to_str().ok());
        valid.is_some() && shown == valid.as_deref()
    }

    fn give(&self, headers: &axum::http::HeaderMap, body: &str) -> (axum::http::StatusCode, Value) {
        use axum::http::StatusCode;
        use base64::Engine;
        let no = |code: &str| (StatusCode::BAD_REQUEST, json!({ "error": code }));
        let encoded = |text: &str| -> String {
            url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
        };
        let pair = format!("{}:{}", encoded(Self::CLIENT), encoded(Self::SECRET));
        let pair = base64::prelude::BASE64_STANDARD.encode(pair);
        let header = |name: &str| headers.get(name).and_then(|it| it.to_str().ok());
        if header("authorization") != Some(&format!("Basic {pair}")) {
            let error = json!({"error": "invalid_client", "error_description": "Unknown client."});
            return (StatusCode::UNAUTHORIZED, error);
        }
        if header("content-type") != Some("application/x-www-form-urlencoded") {
            return no("invalid_request");
        }
        let fields: Vec<(String, String)> = url::form_urlencoded::parse(body.as_bytes())
            .into_owned()
            .collect();
        let field = |name: &str| {
            let mut all = fields.iter().filter(|(key, _)| key == name);
            all.next()
                .map(|(_, value)| &**value)
                .filter(|_| all.next().is_none())
        };
        let mut issued = self.0.lock().expect("no panic");
        match (field("grant_type"), field("resource"), field("scope")) {
            (Some("client_credentials"), Some(resource), _) if resource != issued.resource => {
                no("invalid_target")
            }
            (Some("client_credentials"), Some(_), Some(Self::SCOPE)) => {
                issued.count += 1;
                let token = format!("t0ken-{}", issued.count);
                issued.valid = Some(token.clone());
                let given =
                    json!({"access_token": token, "token_type": "bearer", "expires_in": 60});
                (StatusCode::OK, given)
            }
            (Some("client_credentials"), Some(_), _) => no("invalid_scope"),
            (Some(_), ..) => no("unsupported_grant_type"),
            _ => no("invalid_request"),
        }
    }
}

/// A server over HTTP of the revisions with a handshake, in raw JSON-RPC. It forgets its session at the first call, and
/// answers what names it with 404.
#[derive(Clone, Default)]
pub(crate) struct Forgetful {
    called: Arc<Mutex<Vec<String>>>,
    /// The answer instead, with 400.
    error: Option<Value>,
}

impl Forgetful {
    /// One that answers with 400 and this message.
    pub(crate) fn with_error(error: Value) -> Self {
        Self {
            error: Some(error),
            ..Self::default()
        }
    }

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
        let called = self.called.lock().expect("no panic");
        called.iter().filter(|called| *called == method).count()
    }

    fn answer(&self, request: &Value) -> axum::response::Response {
        use axum::http::StatusCode;
        use axum::response::IntoResponse;
        let method = request["method"].as_str().unwrap_or_default();
        let called = &self.called;
        called.lock().expect("no panic").push(method.to_owned());
        let (id, sessions) = (&request["id"], self.times("initialize"));
        let result = match method {
            "initialize" => json!({
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "forgetful", "version": "1"},
            }),
            // From the first call on the first session is gone.
            "tools/call" | "tools/list" if sessions == 1 && self.times("tools/call") > 0 => {
                return match self.error.clone() {
                    None => StatusCode::NOT_FOUND.into_response(),
                    Some(error) => (StatusCode::BAD_REQUEST, axum::Json(error)).into_response(),
                };
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
