//! The MCP servers in LangChain's tests, from its source distribution. `make verify` installs and runs them.

use super::need;
use crate::mcp::AllTools;
use serde_json::json;

#[tokio::test]
#[ignore = "an SDK of its own: `make verify` installs and runs it"]
async fn every_tool_of_langchains_servers_is_pinned_and_called() {
    let calls = [
        ("math", "add", json!({"a": 2, "b": 3}), json!(5)),
        ("math", "multiply", json!({"a": 2, "b": 3}), json!(6)),
        (
            "weather",
            "get_weather",
            json!({"location": "Rome"}),
            json!("It's always sunny in Rome"),
        ),
        ("time", "get_time", json!({}), json!("5:20:00 PM EST")),
    ];
    let python = need(".venv-mcp/bin/python");
    for (server, tool, given, expected) in calls {
        let script = need(&format!(".venv-mcp/tests/servers/{server}_server.py"));
        let all = AllTools::of(&format!("command = [{python:?}, {script:?}]"), &[]).await;
        let known = |name: &String| calls_of(server).contains(&name.as_str());
        assert!(all.names.iter().all(known), "{:?}", all.names);
        assert_eq!(
            all.call(tool, given).await,
            Ok(json!({ "result": expected }))
        );
        let wrong = all.call(tool, json!({"c": 1})).await;
        assert!(wrong.is_err(), "{wrong:?}");
    }
}

fn calls_of(server: &str) -> &'static [&'static str] {
    match server {
        "math" => &["add", "multiply"],
        "weather" => &["get_weather"],
        _ => &["get_time"],
    }
}
