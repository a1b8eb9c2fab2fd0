//! The operator's own template of the system prompt, checked before it is used.

use super::{Prompts, SYSTEM};
use crate::llm::{Calls, Demands, Prompt};
use crate::tools::ToolSpec;
use minijinja::Error;
use serde_json::json;

/// The variables of a template:
///
/// - `tools`: a list with `name`, `description` and `parameters` (a JSON Schema on one line); empty without tools
/// - `instructions`: the operator's and client's instructions, or none
/// - `native`: the model calls tools natively, so the request lists them
/// - `call`: a call as the model is to write it, in markup
/// - `plan`: a plan as the model is to write it, natively its arguments; none if it makes no plans
/// - `speaks`: the model is to say something before it calls a tool
/// - `language`: the language to speak, as `German`, or none
pub const VARIABLES: [&str; 7] = [
    "tools",
    "instructions",
    "native",
    "call",
    "plan",
    "speaks",
    "language",
];

/// Placeholders for the operator's and the tools' texts.
const TOOL: &str = "undertone_checks_this_tool";
const INSTRUCTIONS: &str = "Undertone checks these instructions.";

/// An error of a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct TemplateError {
    /// The line, from 1.
    pub line: usize,
    /// The problem.
    pub problem: String,
    /// The allowed form, or what to add.
    pub fix: String,
}

impl Prompts {
    /// Sets the operator's own template of the system prompt. It is rendered with and without tools, for
    /// both ways of calling them, and must have all that the server depends on.
    ///
    /// # Errors
    /// The first thing that is wrong or missing.
    pub fn with_template(mut self, source: &str) -> Result<Self, TemplateError> {
        let syntax = |error: Error| TemplateError {
            line: error.line().unwrap_or(1),
            problem: format!("it is not a template: {error}"),
            fix: "write a value as {{ name }}, and a condition as {% if name %} ... {% endif %}"
                .into(),
        };
        self.templates
            .add_template_owned(SYSTEM, source.to_owned())
            .map_err(syntax)?;
        let unknown = self.templates.get_template(SYSTEM).map_err(syntax)?;
        let mut unknown: Vec<String> = (unknown.undeclared_variables(false).into_iter())
            .filter(|name| !VARIABLES.contains(&name.as_str()))
            .collect();
        unknown.sort();
        if let Some(name) = unknown.first() {
            let line = source.lines().position(|line| line.contains(name.as_str()));
            return Err(TemplateError {
                line: line.map_or(1, |line| line + 1),
                problem: format!("it uses `{name}`, which is no variable"),
                fix: format!("use {}", VARIABLES.join(", ")),
            });
        }
        for calls in [Calls::Markup, Calls::Native] {
            for has_tools in [true, false] {
                let text = self.trial(calls, has_tools)?;
                self.must_have_all(&text, calls, has_tools)?;
            }
        }
        Ok(self)
    }

    fn trial(&self, calls: Calls, has_tools: bool) -> Result<String, TemplateError> {
        let tool = ToolSpec {
            examples: Vec::new(),
            name: TOOL.into(),
            description: format!("{TOOL} describes itself."),
            parameters: json!({"type": "object", "properties": {TOOL: {"type": "string"}}}),
        };
        let tools = if has_tools { vec![tool] } else { Vec::new() };
        let prompts = self.clone().for_calls(calls);
        let prompt = Prompt {
            instructions: None,
            day: None,
            messages: Vec::new(),
            tools: tools.into(),
            demands: Demands::default(),
        };
        let text = prompts.render(&prompt, Some(INSTRUCTIONS));
        text.map_err(|error| TemplateError {
            line: error.line().unwrap_or(1),
            problem: format!("it cannot be filled in: {error}"),
            fix: "compare it with prompts/system.j2".into(),
        })
    }

    /// Checks the text of a template for what the server depends on.
    fn must_have_all(
        &self,
        text: &str,
        calls: Calls,
        has_tools: bool,
    ) -> Result<(), TemplateError> {
        let (is_markup, call) = (calls == Calls::Markup, self.example());
        let parts: [(bool, &str, &str, &str); 6] = [
            (true, INSTRUCTIONS, "the instructions", "{{ instructions }}"),
            (
                true,
                "<note>",
                "that only <note> messages instruct, and that what users and tools say does not",
                "that sentence of prompts/system.j2",
            ),
            (
                is_markup,
                "<speech>",
                "how to speak",
                "<speech>Hello, how can I help?</speech>",
            ),
            (
                is_markup && has_tools,
                &call,
                "how to call a tool",
                "{{ call }}",
            ),
            (
                is_markup && has_tools,
                &format!("{TOOL} describes"),
                "the tools",
                "{% for tool in tools %}{{ tool.name }}: {{ tool.description }} {{ tool.parameters }}{% endfor %}",
            ),
            (
                is_markup && has_tools,
                &format!("\"{TOOL}\""),
                "the arguments of the tools",
                "{{ tool.parameters }}",
            ),
        ];
        let missing = parts
            .iter()
            .find(|(needed, part, ..)| *needed && !text.contains(part));
        if let Some((_, _, what, fix)) = missing {
            let when = match (calls, has_tools) {
                (Calls::Markup, true) => "with tools in markup",
                (Calls::Markup, false) => "without tools in markup",
                (Calls::Native, true) => "with native tools",
                (Calls::Native, false) => "without native tools",
            };
            return Err(TemplateError {
                line: 1,
                problem: format!("{when} it does not tell {what}"),
                fix: format!("add {fix}"),
            });
        }
        if !is_markup && (text.contains("<speech>") || text.contains(&call)) {
            return Err(TemplateError {
                line: 1,
                problem: "with native tools it still teaches tags".into(),
                fix: "put that part behind {% if not native %}".into(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::prompt::EMBEDDED;

    fn refused(source: &str) -> TemplateError {
        Prompts::default().with_template(source).unwrap_err()
    }

    #[test]
    fn the_shipped_template_passes_and_gives_the_same_prompt() {
        let own = Prompts::default().with_template(EMBEDDED).unwrap();
        for calls in [Calls::Markup, Calls::Native] {
            let shipped = Prompts::default().trial(calls, true).unwrap();
            assert_eq!(own.trial(calls, true).unwrap(), shipped);
        }
    }

    #[test]
    fn a_template_that_leaves_out_what_the_server_needs_is_refused() {
        for (part, with, problem) in [
            ("{{ instructions }}", "", "the instructions"),
            ("<note>", "", "only <note> messages"),
            ("<speech>", "", "how to speak"),
            ("{{ call }}", "", "how to call"),
            ("{{ tool.description }}", "", "the tools"),
            ("{{ tool.parameters }}", "", "the arguments"),
            ("{% if native -%}", "{% if false -%}", "still teaches tags"),
        ] {
            let error = refused(&EMBEDDED.replace(part, with));
            assert!(error.problem.contains(problem), "{part}: {error:?}");
            assert!(!error.fix.is_empty());
        }
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let error = refused("Be kind.\n{% if tools %}\n{{ tool_list }}\n{% endif %}");
        assert_eq!(error.line, 3);
        assert!(error.problem.contains("`tool_list`") && error.fix.contains("tools, instructions"));
        let error = refused("Be kind.\n{% if tools");
        assert_eq!(error.line, 2, "{error:?}");
        let error = refused("Be kind.\n{{ instructions | nonsense }}");
        assert_eq!(error.line, 2, "{error:?}");
    }

    /// Nothing before calls: the tool's filler is said instead, so that two never meet.
    #[test]
    fn a_model_that_cannot_speak_before_calls_is_not_asked_to() {
        for calls in [Calls::Markup, Calls::Native] {
            let asked = Prompts::default().trial(calls, true).unwrap();
            assert!(asked.contains("say first in a few words"));
            let not = Prompts::default().with_words_before_calls(false);
            let not = not.trial(calls, true).unwrap();
            assert!(
                !not.contains("say first") && !not.contains("Let me look"),
                "{not}"
            );
        }
    }
}
