//! Tools that are programs: started without a shell, with no more of our environment than the
//! declaration names, and gone with everything they started when nobody waits for them any more.
//! Processes that a program leaves running when it ends by itself are not killed.

mod family;

use super::template::{Template, context};
use super::{CallContext, Declaration, Effect, Tool, ToolError, mcp};
use futures_util::future::BoxFuture;
use rustix::process::{Pid, Signal, kill_process_group};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// Names the run in the environment of all that it starts.
const MARK: &str = "UNDERTONE_RUN";
/// How long a program's output is read after its end, if a process that it has left running holds its pipes open.
const AFTER_THE_END: Duration = Duration::from_millis(100);
/// How much of a program's stderr is kept, bytes.
const MOST_COMPLAINT: usize = 4096;
/// Where programs are looked for unless the declaration sets PATH: POSIX's own places.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The value of an environment variable.
#[derive(Debug, Clone)]
pub(crate) enum Variable {
    /// As it is written in the declaration.
    Text(String),
    /// From our environment or a file.
    Secret(SecretString),
}

impl Variable {
    fn value(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Secret(secret) => secret.expose_secret(),
        }
    }
}

/// A program and how it is run.
#[derive(Debug, Clone)]
pub struct SubprocessPlan {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<Template>,
    pub(crate) stdin: bool,
    pub(crate) json: bool,
    pub(crate) environment: Vec<(String, Variable)>,
    pub(crate) folder: PathBuf,
    pub(crate) limit: usize,
}

impl SubprocessPlan {
    /// The secrets in its environment.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretString> {
        self.environment
            .iter()
            .filter_map(|(_, value)| match value {
                Variable::Secret(secret) => Some(secret),
                Variable::Text(_) => None,
            })
    }

    /// Whether the program is there and may be run.
    ///
    /// # Errors
    /// If the program cannot be run: the problem, and what to do.
    pub(crate) fn check(&self) -> Result<(), (String, String)> {
        let program = self.program.display();
        let places: Vec<PathBuf> = if self.program.is_absolute() {
            vec![self.program.clone()]
        } else {
            let own = self.environment.iter().rfind(|(name, _)| name == "PATH");
            let path = own.map_or(PATH, |(_, value)| value.value());
            let folders = std::env::split_paths(path);
            folders.map(|folder| folder.join(&self.program)).collect()
        };
        if places.iter().any(|place| may_run(place)) {
            return Ok(());
        }
        Err(match places.iter().find(|place| place.exists()) {
            Some(found) => (
                format!("{} is no program that may be run", found.display()),
                "name a file that this user may execute, as after chmod +x".into(),
            ),
            None => (
                format!("there is no program {program}"),
                format!(
                    "install it, or correct its name; programs without a path are looked for in {PATH}"
                ),
            ),
        })
    }

    fn command(
        &self,
        parameters: &Value,
        arguments: &Map<String, Value>,
        run: &str,
    ) -> Result<Command, String> {
        let seen = context(parameters, arguments, []);
        let mut command = Command::new(&self.program);
        let mut options = true;
        for template in &self.arguments {
            let argument = template.text(&seen)?;
            // An option that goes with an argument which was left out.
            if argument.is_empty() && template.source().starts_with("{%") {
                continue;
            }
            if argument.contains('\0') {
                return Err("an argument holds a zero byte".into());
            }
            // A user's words must not become an option.
            if options && argument.starts_with('-') && template.begins_with_value(&seen)? {
                return Err("an argument may not begin with a hyphen".into());
            }
            options &= argument != "--";
            command.arg(argument);
        }
        command
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", PATH)
            .envs(
                self.environment
                    .iter()
                    .map(|(name, value)| (name, value.value())),
            )
            .env(MARK, run)
            .stdin(if self.stdin {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        Ok(command)
    }

    async fn run(
        &self,
        parameters: &Value,
        arguments: &Map<String, Value>,
        effect: Effect,
    ) -> Result<Value, ToolError> {
        let run = uuid::Uuid::new_v4().to_string();
        let command = self.command(parameters, arguments, &run);
        let child = command.map_err(ToolError::NotBegun)?.spawn();
        let child = child.map_err(|error| {
            let program = self.program.display();
            tracing::error!(%program, %error, "a program cannot be started");
            ToolError::NotBegun("the program could not be started".into())
        })?;
        let answer = self.answer(Group { child, run }, arguments).await;
        answer.map_err(|failure| match failure {
            Failure::Unread(why) => ToolError::lost(effect, why),
            Failure::Refused(why) => ToolError::Broken(why),
        })
    }

    async fn answer(
        &self,
        mut group: Group,
        arguments: &Map<String, Value>,
    ) -> Result<Value, Failure> {
        let program = self.program.display();
        let (input, stdout, stderr) = (
            group.child.stdin.take(),
            group.child.stdout.take(),
            group.child.stderr.take(),
        );
        let write = async {
            if let Some(mut input) = input {
                // A program need not read its input.
                let _ = input
                    .write_all(Value::Object(arguments.clone()).to_string().as_bytes())
                    .await;
            }
        };
        let (mut output, mut complaint) = (Vec::new(), Vec::new());
        let status = {
            let read = async {
                let all = all(stdout, self.limit, &mut output);
                tokio::join!(write, all, start(stderr, &mut complaint)).1
            };
            let mut read = pin!(read);
            tokio::select! {
                read = &mut read => read.and(Ok(group.child.wait().await)),
                status = group.child.wait() => match timeout(AFTER_THE_END, &mut read).await {
                    Ok(read) => read.and(Ok(status)),
                    Err(_) => Ok(status),
                },
            }
        };
        if output.len() > self.limit {
            let why = format!("it printed more than {} KiB", self.limit / 1024);
            return Err(Failure::Unread(why));
        }
        if !complaint.is_empty() {
            // It may repeat what was said. Quoted, so that it forges no line of the log.
            let complaint = String::from_utf8_lossy(&complaint);
            tracing::debug!(%program, ?complaint, "what a program says on stderr");
        }
        let status = status.map_err(Failure::Unread)?.map_err(|error| {
            tracing::error!(%program, %error, "a program cannot be waited for");
            Failure::Unread("the program did not do it".into())
        })?;
        if !status.success() {
            tracing::warn!(%program, %status, "a program failed");
            return Err(Failure::Refused("the program did not do it".into()));
        }
        if !self.json {
            return Ok(Value::String(
                String::from_utf8_lossy(&output).trim().to_owned(),
            ));
        }
        serde_json::from_slice(&output).map_err(|error| {
            tracing::warn!(%program, %error, "a program printed no JSON");
            Failure::Unread("the program's answer could not be read".into())
        })
    }
}

/// The failure of a program that was started.
enum Failure {
    /// It says so by its exit status.
    Refused(String),
    /// Its answer cannot be used: it may have done what it was asked for.
    Unread(String),
}

/// Whether this is a file that may be executed, by whoever it is.
fn may_run(path: &Path) -> bool {
    let found = std::fs::metadata(path);
    found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// A running program; with it goes everything that it started.
pub(super) struct Group {
    child: Child,
    /// The value of [`MARK`].
    run: String,
}

impl Group {
    /// Starts a program that is spoken to over its standard input and output. What it says on stderr goes
    /// to the log at `debug`.
    pub(super) fn talking(
        name: &str,
        plan: &mcp::Program,
    ) -> std::io::Result<(Self, ChildStdin, ChildStdout)> {
        let run = uuid::Uuid::new_v4().to_string();
        let secrets = plan.secrets.iter();
        let secrets = secrets.map(|(name, secret)| (name, secret.expose_secret()));
        let mut child = Command::new(&plan.program)
            .args(&plan.arguments)
            .current_dir(&plan.folder)
            .env_clear()
            .envs(plan.environment.iter().map(|(name, value)| (name, value)))
            .envs(secrets)
            .env(MARK, &run)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let (name, stderr) = (name.to_owned(), child.stderr.take());
        tokio::spawn(async move {
            let mut lines = BufReader::new(stderr?).split(b'\n');
            while let Ok(Some(line)) = lines.next_segment().await {
                let kept = &line[..line.len().min(MOST_COMPLAINT)];
                let line = String::from_utf8_lossy(kept);
                tracing::debug!(server = name, ?line, "what an MCP server says on stderr");
            }
            Some(())
        });
        match pipes {
            (Some(stdin), Some(stdout)) => Ok((Self { child, run }, stdin, stdout)),
            _ => Err(std::io::Error::other("it has no standard input or output")),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // An id means that it was not waited for yet, so that no other group can have that number.
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(Pid::from_raw) {
            family::kill(
                group.as_raw_nonzero().get(),
                &format!("{MARK}={}", self.run),
            );
            // Where there is no /proc this is all that can be done. It may be gone already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// All that comes, up to one byte more than `limit`.
async fn all(
    stream: Option<impl AsyncRead + Unpin>,
    limit: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), String> {
    if let Some(stream) = stream {
        let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
        stream
            .take(most)
            .read_to_end(bytes)
            .await
            .map_err(|_| "the program's answer could not be read".to_owned())?;
    }
    Ok(())
}

/// The first of what comes; the rest is read and forgotten, or the program would block.
async fn start(stream: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let mut buffer = [0; 1024];
    if let Some(mut stream) = stream {
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            let room = MOST_COMPLAINT.saturating_sub(kept.len());
            kept.extend_from_slice(&buffer[..read.min(room)]);
        }
    }
}

/// A declared tool that runs a program.
pub(super) struct SubprocessTool {
    declaration: Declaration,
    plan: Arc<SubprocessPlan>,
}

impl SubprocessTool {
    pub(super) fn new(declaration: Declaration, plan: SubprocessPlan) -> Self {
        Self {
            declaration,
            plan: Arc::new(plan),
        }
    }
}

impl Tool for SubprocessTool {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        _: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let plan = self.plan.clone();
        let parameters = self.declaration.spec.parameters.clone();
        let effect = self.declaration.effect;
        Box::pin(async move { plan.run(&parameters, &arguments, effect).await })
    }
}
