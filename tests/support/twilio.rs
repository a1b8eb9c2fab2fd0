//! Simulates Twilio's side of the webhook and the socket.

use super::{Client, Server, local};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use undertone::server::{ServerSettings, Twilio};

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";
pub(crate) const ACCOUNT: &str = "AC00000000000000000000000000000001";
pub(crate) const CALL: &str = "CA00000000000000000000000000000001";
pub(crate) const PUBLIC: &str = "voice.example.com";

pub(crate) fn settings(api: &str) -> ServerSettings {
    ServerSettings {
        twilio: Some(Twilio {
            public_url: format!("https://{PUBLIC}").parse().expect("a URL"),
            account_sid: ACCOUNT.into(),
            auth_token: TOKEN.into(),
            api_url: api.parse().expect("a URL"),
            transfer: [("reception".to_owned(), "+15557654321".to_owned())].into(),
            relay: false,
        }),
        ..local()
    }
}

pub(crate) fn sign(url: &str, parameters: &[(&str, &str)]) -> String {
    let mut mac = Hmac::<sha1::Sha1>::new_from_slice(TOKEN.as_bytes()).expect("a key");
    mac.update(url.as_bytes());
    let mut parameters = parameters.to_vec();
    parameters.sort_unstable();
    for (name, value) in parameters {
        mac.update(name.as_bytes());
        mac.update(value.as_bytes());
    }
    STANDARD.encode(mac.finalize().into_bytes())
}

pub(crate) fn socket_signature() -> String {
    sign(&format!("wss://{PUBLIC}/twilio/media"), &[])
}

/// Posts an incoming call to the webhook, as Twilio does. Returns the status and the TwiML.
pub(crate) async fn ring(server: &Server, call: &str, signature: Option<&str>) -> (u16, String) {
    let parameters = [
        ("AccountSid", ACCOUNT),
        ("CallSid", call),
        ("From", "+15551230000"),
    ];
    tell(server, "voice", &parameters, signature).await
}

/// The same with the number that is called.
pub(crate) async fn ring_at(server: &Server, call: &str, called: &str) -> (u16, String) {
    let parameters = [
        ("AccountSid", ACCOUNT),
        ("CallSid", call),
        ("From", "+15551230000"),
        ("To", called),
    ];
    tell(server, "voice", &parameters, None).await
}

/// Posts to a webhook, signed correctly unless a signature is given. Returns the status and the
/// TwiML.
pub(crate) async fn tell(
    server: &Server,
    hook: &str,
    parameters: &[(&str, &str)],
    signature: Option<&str>,
) -> (u16, String) {
    tell_at(&server.address.to_string(), hook, parameters, signature).await
}

/// The same at an address.
pub(crate) async fn tell_at(
    address: &str,
    hook: &str,
    parameters: &[(&str, &str)],
    signature: Option<&str>,
) -> (u16, String) {
    let signed = sign(&format!("https://{PUBLIC}/twilio/{hook}"), parameters);
    let form = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(parameters)
        .finish();
    let answer = reqwest::Client::new()
        .post(format!("http://{address}/twilio/{hook}"))
        .header("content-type", "application/x-www-form-urlencoded")
        .header("x-twilio-signature", signature.unwrap_or(&signed))
        .body(form)
        .send()
        .await
        .expect("an answer");
    let status = answer.status().as_u16();
    (status, answer.text().await.expect("text"))
}

pub(crate) fn ticket(instructions: &str) -> &str {
    let (_, rest) = instructions
        .split_once("<Parameter name=\"ticket\" value=\"")
        .expect("a ticket");
    rest.split_once('"').expect("its end").0
}

pub(crate) fn start(call: &str, account: &str, ticket: &str) -> Value {
    json!({
        "event": "start", "sequenceNumber": "1", "streamSid": "MZ1",
        "start": {
            "streamSid": "MZ1", "accountSid": account, "callSid": call, "tracks": ["inbound"],
            "customParameters": {"ticket": ticket},
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
        }
    })
}

/// An answered call whose stream has started.
pub(crate) async fn call(server: &Server) -> Client {
    let first = |ticket: &str| start(CALL, ACCOUNT, ticket);
    answered(server, "/twilio/media", first).await
}

/// An answered call whose socket begins with the `first` message, made with the ticket.
pub(crate) async fn answered(server: &Server, path: &str, first: impl Fn(&str) -> Value) -> Client {
    let (status, instructions) = ring(server, CALL, None).await;
    assert_eq!(status, 200, "{instructions}");
    let signature = sign(&format!("wss://{PUBLIC}{path}"), &[]);
    let signed = [("x-twilio-signature", signature.as_str())];
    let opened = server.try_open(path, &signed).await;
    let mut client = opened.expect("the socket opens");
    client.send(first(ticket(&instructions))).await;
    client
}

/// The start messages of Telnyx and Plivo streams.
pub(crate) fn start_of_others() -> Value {
    json!({
        "event": "start", "stream_id": "s",
        "start": {
            "callId": "c", "streamId": "s", "call_control_id": "c",
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000},
            "media_format": {"encoding": "PCMU", "sample_rate": 8000, "channels": 1}
        }
    })
}
