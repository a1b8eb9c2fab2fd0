//! Describes this server to the page at `/`.

use crate::conversation::verdict;
use crate::language::wording::capitalised;
use crate::server::{Offered, Playground, Question, Say};
use crate::session::Engines;
use crate::tools::{Audience, Declaration, Eligibility, Registry};
use crate::transport::realtime::RATE;
use crate::tts::Speaker;
use std::cmp::Reverse;
use std::io::Cursor;
use std::sync::Arc;

/// The number of questions that visitors are offered.
const QUESTIONS: usize = 4;

/// Questions for built-in tools, which no file declares.
const BUILT_IN: [(&str, &str); 2] = [
    ("get_time", "what time is it in Tokyo"),
    ("calculate", "what is fifteen percent of eighty"),
];

/// The tools with the speculation gate's verdicts, and questions for some of them.
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
    // Tools that may run speculatively come first, to demonstrate speculation.
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
                text: example(&registry, tool)?,
            })
        })
        .collect();
    asked.sort_by_key(|asked| Reverse(asked.rank));
    let questions =
        in_order(asked).map(|asked| Question::new(asked.text).demonstrating(asked.demonstrates));
    Playground {
        questions: questions.take(QUESTIONS).collect(),
        pre_roll_ms: engines.policy().vad.pre_roll_ms,
        say: Some(say(engines.clone())),
        languages: engines.offered_languages(),
        language: engines.common_language(),
        tools,
    }
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

/// A written question that calls for the tool.
fn example(registry: &Registry, tool: &Declaration) -> Option<String> {
    let name = &*tool.spec.name;
    let hints = registry.hints(name);
    let declared = hints
        .and_then(|hints| hints.examples.first())
        .map(|text| &**text);
    let built_in = BUILT_IN
        .iter()
        .find(|(tool, _)| *tool == name)
        .map(|(_, text)| *text);
    let text = declared.or(built_in)?;
    Some(format!(
        "{}?",
        capitalised(text.trim_end_matches(['?', '.']))
    ))
}

fn say(engines: Arc<Engines>) -> Say {
    Arc::new(move |text| {
        let engines = engines.clone();
        Box::pin(async move {
            let audio = engines.say(&Speaker::default(), &text, RATE).await?;
            let mut wav = Cursor::new(Vec::new());
            crate::audio::write_wav(&mut wav, RATE, &audio).ok()?;
            Some(wav.into_inner())
        })
    })
}
