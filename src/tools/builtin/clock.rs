//! `get_time`: the time and the date, here or anywhere.

use super::{CURRENT, lookup, text};
use crate::language::en::places::{self, Place};
use crate::tools::{CallContext, Declaration, Tool, ToolError};
use futures_util::future::{BoxFuture, ready};
use jiff::{
    Timestamp,
    tz::{TimeZone, TimeZoneDatabase},
};
use serde_json::{Map, Value, json};

/// `get_time{place?}`: `{place?, reference?, time, date, zone}`. Without a place it is the
/// session's zone. `reference` names the city that was taken for a place with several zones.
pub struct GetTime(Declaration);

impl Default for GetTime {
    fn default() -> Self {
        Self(lookup(
            "get_time",
            "The current time, date and day of the week, here or in another place.",
            json!({
                "type": "object",
                "properties": {
                    "place": {
                        "type": "string",
                        "maxLength": 100,
                        "description": "A city, country, US state or IANA time zone. Leave it out for the user's own time."
                    }
                },
                "additionalProperties": false
            }),
            CURRENT,
        ))
    }
}

impl Tool for GetTime {
    fn declaration(&self) -> &Declaration {
        &self.0
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        context: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let now = context.session.clock().now();
        Box::pin(ready(match text(&arguments, "place") {
            Some(name) => elsewhere(name, now),
            None => Ok(describe(now, context.session.zone().clone())),
        }))
    }
}

fn elsewhere(name: &str, now: Timestamp) -> Result<Value, ToolError> {
    let failed = |reason: String| ToolError::Failed(reason);
    let Place {
        name,
        zone,
        reference,
    } = places::find(name).map_err(|e| failed(e.to_string()))?;
    let zone = time_zone(&zone).map_err(|_| failed(format!("unknown time zone: {zone}")))?;
    let mut result = json!({ "place": name });
    if let (Some(city), Some(result)) = (reference, result.as_object_mut()) {
        result.insert("reference".into(), city.into());
    }
    merge(&mut result, describe(now, zone));
    Ok(result)
}

/// By the system's rules; by those of this program for a name that the system does not know.
fn time_zone(name: &str) -> Result<TimeZone, jiff::Error> {
    TimeZone::get(name).or_else(|_| TimeZoneDatabase::bundled().get(name))
}

fn describe(now: Timestamp, zone: TimeZone) -> Value {
    let local = now.to_zoned(zone);
    let zone = local.time_zone().iana_name().unwrap_or("local");
    json!({
        "time": local.strftime("%-I:%M %p").to_string(),
        "date": local.strftime("%A, %B %-d, %Y").to_string(),
        "zone": zone,
    })
}

fn merge(into: &mut Value, from: Value) {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Clock, SessionTools};
    use std::sync::Arc;

    struct Fixed;

    impl Clock for Fixed {
        fn now(&self) -> Timestamp {
            "2026-11-21T06:05:00Z".parse().unwrap()
        }
    }

    async fn time_in(arguments: Value) -> Result<Value, ToolError> {
        let session = SessionTools::new(TimeZone::get("Europe/Berlin").unwrap(), Arc::new(Fixed));
        let arguments = arguments.as_object().cloned().unwrap();
        let context = CallContext::new(session, "key");
        GetTime::default().call(arguments, &context).await
    }

    #[tokio::test]
    async fn tells_the_time_here_and_elsewhere() {
        assert_eq!(
            time_in(json!({"place": "tokyo"})).await.unwrap(),
            json!({"place": "Tokyo", "time": "3:05 PM", "date": "Saturday, November 21, 2026", "zone": "Asia/Tokyo"})
        );
        let here = time_in(json!({})).await.unwrap();
        assert_eq!(here["time"], "7:05 AM");
        assert_eq!(here.get("place"), None);
        let west = time_in(json!({"place": "LA"})).await.unwrap();
        assert_eq!(west["date"], "Friday, November 20, 2026");
        let wide = time_in(json!({"place": "Australia"})).await.unwrap();
        assert_eq!(wide["reference"], "Sydney");
    }

    #[tokio::test]
    async fn an_unknown_place_is_named() {
        let error = time_in(json!({"place": "Atlantis"})).await.unwrap_err();
        assert_eq!(error.to_string(), "unknown place: Atlantis");
    }
}
