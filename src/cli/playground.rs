//! Describes this server to the page at `/`.

use crate::conversation::verdict;
use crate::language::ENGLISH;
use crate::language::wording::capitalised;
use crate::server::{Offered, Playground, Question, Say};
use crate::session::Engines;
use crate::tools::{Audience, Declaration, Eligibility, Registry};
use crate::transport::realtime::RATE;
use crate::tts::Speaker;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;

/// The number of questions that visitors are offered in each language.
const QUESTIONS: usize = 4;

/// Questions for built-in tools, which no file declares: the tool, the language, the words.
const BUILT_IN: [(&str, &str, &str); 6] = [
    ("get_time", ENGLISH, "what time is it in Tokyo"),
    ("get_time", "de", "Wie viel Uhr ist es in Tokio?"),
    ("get_time", "es", "¿Qué hora es en Tokio?"),
    ("calculate", ENGLISH, "what is fifteen percent of eighty"),
    ("calculate", "de", "Was sind 15 Prozent von 80?"),
    ("calculate", "es", "¿Cuánto es el 15 por ciento de 80?"),
];

/// The tools with the speculation gate's verdicts, and questions for some of them in the languages of conversations that
/// have a voice.
pub(super) fn of(engines: &Arc<Engines>) -> Playground {
    let (policy, registry) = (&engines.policy().speculation, engines.tools());
    let tools: Vec<_> = registry
        .declarations()
        .into_iter()
        .filter(|tool| is_for_the_page(registry.audience(&tool.spec.name)))
        .map(|tool| Offered {
            verdict: verdict(&tool, policy),
            demonstrates: registry.audience(&tool.spec.name) == Some(Audience::Demonstration),
            tool,
        })
        .collect();
    let languages = engines.offered_languages();
    let agent_languages = engines.agent_languages();
    let questions = spoken(&languages, &agent_languages)
        .into_iter()
        .filter(|language| has_voice(engines, language))
        .flat_map(|language| questions(&registry, &tools, language));
    Playground {
        questions: questions.collect(),
        pre_roll_ms: engines.policy().vad.pre_roll_ms,
        say: Some(say(engines.clone())),
        language: engines.common_language(),
        agent_languages,
        languages,
        tools,
    }
}

/// The languages of conversations, each once: those that a visitor may choose, and those of the agents, whose own
/// recognisers may know others.
fn spoken<'a>(offered: &'a [String], agents: &'a BTreeMap<String, String>) -> Vec<&'a str> {
    let mut spoken: Vec<&str> = Vec::new();
    for language in offered.iter().chain(agents.values()) {
        if !spoken.contains(&language.as_str()) {
            spoken.push(language);
        }
    }
    spoken
}

/// Whether a voice speaks this language that was made for it. Recognisers hardly understand espeak-ng's, which stands in
/// for one and is chosen by its language alone.
fn has_voice(engines: &Engines, language: &str) -> bool {
    let mut made = engines
        .local_voices()
        .filter(|voice| voice.speaker.language.is_none());
    made.any(|voice| voice.language.is_none_or(|own| own == language))
}

/// The questions in a language. Those for tools that may run speculatively come first, to demonstrate speculation.
fn questions(registry: &Registry, tools: &[Offered], language: &str) -> Vec<Question> {
    let mut asked: Vec<_> = tools
        .iter()
        .filter(|offered| !offered.tool.effect.changes())
        .filter_map(|offered| {
            let tool = &offered.tool;
            let declared = registry
                .hints(&tool.spec.name)
                .is_some_and(|hints| !hints.rules.is_empty());
            let early = offered.verdict.eligibility == Eligibility::Full;
            Some(Asked {
                demonstrates: offered.demonstrates && early,
                rank: (early, declared),
                network: tool.network,
                text: example(registry, tool, language)?,
            })
        })
        .collect();
    asked.sort_by_key(|asked| Reverse(asked.rank));
    let question =
        |asked: Asked| Question::new(asked.text, language).demonstrating(asked.demonstrates);
    in_order(asked).map(question).take(QUESTIONS).collect()
}

/// Whether a session of the page is offered a tool of this audience. The others are for telephone calls and lookups.
fn is_for_the_page(audience: Option<Audience>) -> bool {
    matches!(audience, Some(Audience::Everyone | Audience::Demonstration))
}

/// A question and its tool's properties.
struct Asked {
    /// Whether it demonstrates the difference that running early makes.
    demonstrates: bool,
    /// Whether the tool may run speculatively, and whether a file declares it.
    rank: (bool, bool),
    network: bool,
    text: String,
}

/// Orders questions. First come those of the demonstration; then one whose tool may run speculatively
/// without the network, since it works everywhere; then one whose tool uses the network, since it takes
/// long enough for the early start to be noticeable.
fn in_order(asked: Vec<Asked>) -> impl Iterator<Item = Asked> {
    let (shown, mut asked): (Vec<_>, Vec<_>) =
        asked.into_iter().partition(|asked| asked.demonstrates);
    let mut take = |network| {
        let fits = |asked: &Asked| asked.rank.0 && asked.network == network;
        let at = asked.iter().position(fits)?;
        Some(asked.remove(at))
    };
    let first = [take(false), take(true)];
    shown
        .into_iter()
        .chain(first.into_iter().flatten())
        .chain(asked)
}

/// A written question in this language that calls for the tool.
fn example(registry: &Registry, tool: &Declaration, language: &str) -> Option<String> {
    let name = &*tool.spec.name;
    let declared = registry.hints(name).and_then(|hints| match language {
        ENGLISH => hints.examples.first(),
        _ => hints.questions.get(language),
    });
    let built_in = BUILT_IN
        .iter()
        .find(|(tool, spoken, _)| (*tool, *spoken) == (name, language))
        .map(|(_, _, text)| *text);
    let text = declared.map(String::as_str).or(built_in)?;
    Some(format!(
        "{}?",
        capitalised(text.trim_end_matches(['?', '.']))
    ))
}

fn say(engines: Arc<Engines>) -> Say {
    Arc::new(move |text, language| {
        let engines = engines.clone();
        Box::pin(async move {
            let speaker = Speaker {
                language: Some(language),
                ..Speaker::default()
            };
            let audio = engines.say(&speaker, &text, RATE).await?;
            let mut wav = Cursor::new(Vec::new());
            crate::audio::write_wav(&mut wav, RATE, &audio).ok()?;
            Some(wav.into_inner())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::pack;
    use crate::language::request::Request;
    use crate::tools::declared;

    /// An agent whose own recogniser knows a language that the default agent's does not was offered English ones.
    #[test]
    fn there_are_questions_in_the_language_of_each_agent() {
        let agents = [("default", "es"), ("hotel", "de"), ("till", "de")];
        let agents = agents.map(|(name, language)| (name.to_owned(), language.to_owned()));
        let (offered, agents) = (["es".to_owned()], BTreeMap::from(agents));
        assert_eq!(spoken(&offered, &agents), ["es", "de"]);
    }

    /// They were English on every server, whatever its language.
    #[test]
    fn questions_are_understood_in_their_language() {
        let file = "tools/weather.toml";
        let weather = declared::parse(file.as_ref(), include_str!("../../tools/weather.toml"));
        let translated = weather.expect("the shipped tool").hints.questions;
        let translated = translated
            .iter()
            .map(|(language, text)| ("get_weather", &**language, &**text));
        let others = BUILT_IN
            .into_iter()
            .filter(|(_, language, _)| *language != ENGLISH);
        let all: Vec<_> = translated.chain(others).collect();
        assert_eq!(all.len(), 6, "each in German and in Spanish");
        for (tool, language, text) in all {
            let wording = pack(Some(language)).wording.expect("a pack");
            let requests = (wording.requests)(text);
            let calls: Vec<_> = requests.iter().filter_map(Request::call).collect();
            let [(called, arguments)] = &calls[..] else {
                panic!("{text}: {calls:?}");
            };
            assert_eq!(*called, tool, "{text}");
            let is_there = tool == "calculate" || arguments["place"] == "Tokyo";
            assert!(is_there, "{text}: {arguments:?}");
        }
    }
}
