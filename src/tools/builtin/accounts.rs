//! `get_balance`: what is on an account, by a JSON file. A demonstration of a tool over one's own
//! data; a bank would be an HTTP tool.

use super::{bad_file, blocking, declare, text};
use crate::tools::{CallContext, Declaration, Effect, Equivalence, Tool, ToolError};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Account {
    name: String,
    balance: f64,
    /// ISO 4217.
    currency: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Accounts {
    accounts: Vec<Account>,
}

pub(super) fn declaration() -> Declaration {
    let parameters = json!({
        "type": "object",
        "properties": {
            "account": {
                "type": "string",
                "maxLength": 60,
                "description": "The account's name, such as checking or savings. Leave it out for all of them."
            }
        },
        "additionalProperties": false
    });
    let mut declaration = declare(
        "get_balance",
        "How much money is on the user's accounts.",
        Effect::Read,
        parameters,
    );
    declaration.reads = vec!["accounts".into()];
    let equivalent = vec![Equivalence::Case, Equivalence::Punctuation];
    declaration.equivalence.insert("account".into(), equivalent);
    declaration
}

/// The path, if accounts can be read there.
pub(super) fn checked(path: PathBuf) -> Result<PathBuf, (String, String, String)> {
    match read(&path) {
        Ok(_) => Ok(path),
        Err(error) => Err(bad_file(
            &path,
            error,
            "write {\"accounts\": [{\"name\": \"checking\", \"balance\": 12.5, \"currency\": \"USD\"}]}",
        )),
    }
}

fn read(path: &Path) -> Result<Vec<Account>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let read: Accounts = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    Ok(read.accounts)
}

/// `get_balance{account?}`: `{accounts: [{name, balance, currency}]}`.
pub(super) struct GetBalance {
    declaration: Declaration,
    file: PathBuf,
}

impl GetBalance {
    pub(super) fn new(declaration: Declaration, file: PathBuf) -> Self {
        Self { declaration, file }
    }
}

impl Tool for GetBalance {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        _: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let file = self.file.clone();
        Box::pin(blocking(move || {
            balance(&file, text(&arguments, "account"))
        }))
    }
}

fn balance(file: &Path, wanted: Option<&str>) -> Result<Value, ToolError> {
    let mut accounts = read(file)
        .map_err(|error| ToolError::Broken(format!("the accounts cannot be read: {error}")))?;
    if let Some(wanted) = wanted {
        let plain = |name: &str| name.to_lowercase().replace("account", "").trim().to_owned();
        let names: Vec<String> = accounts
            .iter()
            .map(|account| account.name.clone())
            .collect();
        accounts.retain(|account| plain(&account.name) == plain(wanted));
        if accounts.is_empty() {
            let known = names.join(", ");
            return Err(ToolError::Failed(format!(
                "there is no account named {wanted}; there are: {known}"
            )));
        }
    }
    Ok(json!({ "accounts": accounts }))
}
