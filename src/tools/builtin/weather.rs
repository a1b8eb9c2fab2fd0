//! `get_weather`: the weather by Open-Meteo, which asks for no key. Two requests: where the place
//! is, then what the sky does there.

use super::{declare, text};
use crate::language::en::places;
use crate::tools::http::{Failure, Request, Web, is_loopback, is_private_host, refusal};
use crate::tools::{CallContext, Declaration, Effect, Equivalence, Tool, ToolError};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Open-Meteo's answers are some 2 KiB.
const LIMIT: usize = 64 * 1024;
const TIMEOUT: Duration = Duration::from_secs(6);

/// The units that are spoken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Units {
    /// The units that are usual at the place.
    #[default]
    Local,
    Celsius,
    Fahrenheit,
}

/// The addresses of the service, and how to use it.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    geocoding: Url,
    forecast: Url,
    units: Units,
    allow_private: bool,
}

/// The settings as typed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSettings {
    #[serde(default = "geocoding")]
    geocoding: String,
    #[serde(default = "forecast")]
    forecast: String,
    #[serde(default)]
    units: Units,
    #[serde(default)]
    allow_private: bool,
}

fn geocoding() -> String {
    "https://geocoding-api.open-meteo.com/v1/search".into()
}

fn forecast() -> String {
    "https://api.open-meteo.com/v1/forecast".into()
}

impl Settings {
    pub(super) fn read(table: toml::Table) -> Result<Self, (String, String, String)> {
        let raw: RawSettings = crate::tools::settings::read(table)?;
        let url = |key: &str, typed: &str| {
            let wrong = |problem: &str, fix: &str| {
                (
                    format!("settings.{key}"),
                    format!("\"{typed}\" {problem}"),
                    fix.to_owned(),
                )
            };
            let url = Url::parse(typed)
                .ok()
                .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
            let url = url.ok_or_else(|| {
                wrong(
                    "is no http or https address",
                    "give the address up to the query",
                )
            })?;
            if is_private_host(&url) && !raw.allow_private {
                return Err(wrong(
                    "is not a public address",
                    "add allow_private = true if this host is meant",
                ));
            }
            Ok(url)
        };
        Ok(Self {
            geocoding: url("geocoding", &raw.geocoding)?,
            forecast: url("forecast", &raw.forecast)?,
            units: raw.units,
            allow_private: raw.allow_private,
        })
    }

    pub(super) fn is_local(&self) -> bool {
        self.allow_private && is_loopback(&self.geocoding) && is_loopback(&self.forecast)
    }
}

pub(super) fn declaration() -> Declaration {
    let parameters = json!({
        "type": "object",
        "properties": {
            "place": {
                "type": "string",
                "minLength": 2,
                "maxLength": 100,
                "description": "A city, with its state or country where that is needed, such as Boulder, Colorado."
            },
            "day": {
                "type": "string",
                "enum": ["now", "today", "tomorrow"],
                "default": "now",
                "description": "now for the current weather, otherwise the forecast for the day."
            }
        },
        "required": ["place"],
        "additionalProperties": false
    });
    let mut declaration = declare(
        "get_weather",
        "The weather in a place: now, today or tomorrow.",
        Effect::Read,
        parameters,
    );
    let equivalent = vec![
        Equivalence::Place,
        Equivalence::Case,
        Equivalence::Punctuation,
    ];
    declaration.equivalence.insert("place".into(), equivalent);
    declaration.timeout = TIMEOUT;
    declaration
}

/// `get_weather{place, day?}`: `{place, region, day, sky, temperature?, high, low, rain_chance,
/// unit}`, temperatures in whole degrees.
pub(super) struct GetWeather {
    declaration: Declaration,
    service: Arc<Service>,
}

struct Service {
    settings: Settings,
    web: Arc<Web>,
}

/// A place that Open-Meteo knows.
#[derive(Debug, Deserialize)]
struct Found {
    name: String,
    latitude: f64,
    longitude: f64,
    #[serde(default)]
    country: String,
    #[serde(default)]
    country_code: String,
    #[serde(default)]
    admin1: String,
}

impl GetWeather {
    pub(super) fn new(declaration: Declaration, settings: Settings, web: Arc<Web>) -> Self {
        let service = Arc::new(Service { settings, web });
        Self {
            declaration,
            service,
        }
    }
}

impl Tool for GetWeather {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        _: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let service = self.service.clone();
        Box::pin(async move {
            let place = text(&arguments, "place").unwrap_or_default();
            let day = text(&arguments, "day").unwrap_or("now");
            let found = service.find(place).await?;
            service.forecast(&found, day).await
        })
    }

    fn warm_up(&self) -> BoxFuture<'static, ()> {
        let service = self.service.clone();
        Box::pin(async move {
            let settings = &service.settings;
            let open = |url: &Url| {
                let root = url.join("/").unwrap_or_else(|_| url.clone());
                let service = service.clone();
                async move { service.web.warm_up(&root, service.allowed(&root)).await }
            };
            tokio::join!(open(&settings.geocoding), open(&settings.forecast));
        })
    }
}

impl Service {
    /// The place of this name: the name as a whole, or else its first words in the region that
    /// the last ones name.
    async fn find(&self, place: &str) -> Result<Found, ToolError> {
        for (name, region) in readings(place) {
            let mut url = self.settings.geocoding.clone();
            url.query_pairs_mut()
                .append_pair("name", &name)
                .append_pair("count", "10")
                .append_pair("language", "en")
                .append_pair("format", "json");
            let mut answer = self.get(url).await?;
            let results = answer
                .get_mut("results")
                .map(Value::take)
                .unwrap_or_default();
            let found: Vec<Found> = match results {
                Value::Null => Vec::new(),
                list => serde_json::from_value(list).map_err(|_| unreadable())?,
            };
            if let Some(found) = found
                .into_iter()
                .find(|found| found.lies_in(region.as_deref()))
            {
                return Ok(found);
            }
        }
        Err(ToolError::Failed(format!("unknown place: {place}")))
    }

    async fn forecast(&self, found: &Found, day: &str) -> Result<Value, ToolError> {
        let american = match self.settings.units {
            Units::Local => ["US", "LR", "MM", "BS", "BZ", "KY", "PW", "FM", "MH"]
                .contains(&found.country_code.as_str()),
            Units::Fahrenheit => true,
            Units::Celsius => false,
        };
        let unit = if american { "fahrenheit" } else { "celsius" };
        let mut url = self.settings.forecast.clone();
        url.query_pairs_mut()
            .append_pair("latitude", &found.latitude.to_string())
            .append_pair("longitude", &found.longitude.to_string())
            .append_pair("current", "temperature_2m,weather_code")
            .append_pair(
                "daily",
                "weather_code,temperature_2m_max,temperature_2m_min,precipitation_probability_max",
            )
            .append_pair("temperature_unit", unit)
            .append_pair("timezone", "auto")
            .append_pair("forecast_days", "2");
        let answer = self.get(url).await?;
        told(&answer, found, day, unit).ok_or_else(unreadable)
    }

    async fn get(&self, url: Url) -> Result<Value, ToolError> {
        let broken = |failure: Failure| {
            ToolError::Broken(format!("the weather service: {}", failure.reason))
        };
        let allowed = url.clone();
        let answer = self
            .web
            .fetch(Request::get(url), self.allowed(&allowed), LIMIT)
            .await
            .map_err(broken)?;
        if answer.status.is_success() {
            return Ok(answer.body);
        }
        // The service's words are for the developer, not for the user.
        Err(refusal(&answer, None, "the weather service"))
    }

    fn allowed<'a>(&self, url: &'a Url) -> Option<&'a Url> {
        self.settings.allow_private.then_some(url)
    }
}

fn unreadable() -> ToolError {
    ToolError::Broken("the weather service's answer cannot be read".into())
}

/// "Boulder, CO" as Boulder in CO; "boulder colorado" as one name, then as Boulder in Colorado.
fn readings(place: &str) -> Vec<(String, Option<String>)> {
    if let Some((name, region)) = place.split_once(',') {
        return vec![(name.trim().to_owned(), Some(region.trim().to_owned()))];
    }
    let words: Vec<&str> = place.split_whitespace().collect();
    let cuts = (1..words.len()).rev().take(3);
    let cut = |at: usize| (words[..at].join(" "), Some(words[at..].join(" ")));
    std::iter::once((words.join(" "), None))
        .chain(cuts.map(cut))
        .collect()
}

impl Found {
    fn lies_in(&self, region: Option<&str>) -> bool {
        let Some(region) = region else {
            return true;
        };
        let whole = |region: &str| places::comparable(&format!("{}, {region}", self.name));
        let wanted = whole(region);
        let state = format!("{}, {}", self.admin1, self.country);
        [&self.admin1, &self.country, &self.country_code, &state]
            .into_iter()
            .filter(|known| !known.is_empty())
            .any(|known| {
                whole(known) == wanted || places::comparable(known) == places::comparable(region)
            })
    }
}

/// The answer in words and whole degrees; `None` if it is not what Open-Meteo documents.
fn told(answer: &Value, found: &Found, day: &str, unit: &str) -> Option<Value> {
    let index = usize::from(day == "tomorrow");
    let daily = |name: &str| answer.get("daily")?.get(name)?.get(index)?.as_f64();
    let current = |name: &str| answer.get("current")?.get(name)?.as_f64();
    let degrees = |value: f64| value.round() as i64;
    let now = day == "now";
    let code = if now {
        current("weather_code")?
    } else {
        daily("weather_code")?
    };
    let mut told = json!({
        "place": found.name,
        "region": if found.admin1.is_empty() { &found.country } else { &found.admin1 },
        "day": day,
        "sky": sky(code as i64)?,
        "high": degrees(daily("temperature_2m_max")?),
        "low": degrees(daily("temperature_2m_min")?),
        "rain_chance": daily("precipitation_probability_max").map(degrees),
        "unit": unit,
    });
    if now {
        told["temperature"] = degrees(current("temperature_2m")?).into();
    }
    Some(told)
}

/// WMO code table 4677, as Open-Meteo uses it.
fn sky(code: i64) -> Option<&'static str> {
    Some(match code {
        0 => "clear",
        1 => "mostly clear",
        2 => "partly cloudy",
        3 => "cloudy",
        45 | 48 => "foggy",
        51 | 53 | 55 => "drizzling",
        56 | 57 => "freezing drizzle",
        61 => "light rain",
        63 => "rainy",
        65 => "heavy rain",
        66 | 67 => "freezing rain",
        71 => "light snow",
        73 | 77 => "snowy",
        75 => "heavy snow",
        80 | 81 => "showers",
        82 => "heavy showers",
        85 | 86 => "snow showers",
        95 => "thunderstorms",
        96 | 99 => "thunderstorms with hail",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_decides_between_places_of_one_name() {
        let portland = |admin1: &str| Found {
            name: "Portland".into(),
            latitude: 0.0,
            longitude: 0.0,
            country: "United States".into(),
            country_code: "US".into(),
            admin1: admin1.into(),
        };
        let in_oregon = portland("Oregon");
        for region in ["OR", "Oregon", "oregon, usa", "USA", "United States"] {
            assert!(in_oregon.lies_in(Some(region)), "{region}");
        }
        for region in ["ME", "Maine", "Germany"] {
            assert!(!in_oregon.lies_in(Some(region)), "{region}");
        }
        assert!(portland("Maine").lies_in(None));
        assert_eq!(
            readings("boulder colorado"),
            [
                ("boulder colorado".into(), None),
                ("boulder".into(), Some("colorado".into()))
            ]
        );
        assert_eq!(
            readings("Boulder, CO"),
            [("Boulder".into(), Some("CO".into()))]
        );
    }
}
