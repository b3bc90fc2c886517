//! Answers that have to call, or may: what they follow, as a grammar.
//!
//! A model that may choose (`tool_choice` "auto") follows nothing, unless `response_format` says what it says when it does not call.
//! One that has to call follows the form in which its template would write calls, with the parameters that each tool has.

use serde_json::{Value as Json, json};
use unisonic_engine::chat::Data;
use unisonic_engine::constraint::{Constraint, ConstraintError, ConstraintKind, lark_json};
use unisonic_engine::tokenizer::{Specials, TokenKind};

use super::params::Checked;
use super::parts::Rules;
use super::tools::{Calls, Choice, Tools};
use crate::error::ApiError;
use crate::model::Model;

/// Gives an answer the grammar that its format and its tools make, and takes the parts out of its rules that it then cannot have.
/// `template` is the chat template's text.
pub fn follow(
    params: &mut Checked,
    rules: &mut Rules,
    tools: &Tools,
    model: &Model,
    template: &str,
) -> Result<(), ApiError> {
    let Some(calls) = rules.calls else {
        if params.format().is_some() {
            (rules.reasons, rules.begins_reasoning) = (false, false);
        }
        return params.follow_format(model);
    };
    let format = params.format().cloned();
    if tools.choice == Choice::Auto && format.is_none() {
        return Ok(());
    }
    // What the grammar has no place for is not looked for.
    (rules.reasons, rules.begins_reasoning) = (false, false);
    let form = Form { calls, tools, model, has_arguments_mark: template.contains("[ARGS]") };
    match format.filter(|_| tools.choice == Choice::Auto) {
        None => {
            let grammar = form.grammar(None).map_err(|error| ApiError::field("tools", error))?;
            params.follow(model, "tools", &grammar)
        }
        Some(format) => {
            let param = params.format_param();
            let constraint = match calls {
                Calls::Bare => form.bare_or(&format, param)?,
                _ => form.grammar(Some(&format)).map_err(|error| ApiError::field(param, error))?,
            };
            params.follow(model, param, &constraint)
        }
    }
}

/// How calls of these tools are written.
struct Form<'a> {
    calls: Calls,
    tools: &'a Tools,
    model: &'a Model,
    /// `[TOOL_CALLS]name[ARGS]{…}` in the place of a list.
    has_arguments_mark: bool,
}

impl Form<'_> {
    /// Calls, or what has this format.
    fn grammar(&self, otherwise: Option<&Constraint>) -> Result<Constraint, ConstraintError> {
        let tools: Vec<&Data> = self.tools.callable().collect();
        let names = (0..tools.len()).map(|index| format!("call_{index}")).collect::<Vec<_>>().join(" | ");
        // One that is named is called once, as at OpenAI.
        let parallel = self.tools.parallel && !matches!(self.tools.choice, Choice::Named(_));
        let more = |separator: &str| match parallel {
            true => format!("({separator} one)*"),
            false => String::new(),
        };
        let (start, head, member, tail) = match self.calls {
            Calls::Tagged | Calls::Told => {
                let (open, close) = (self.mark("<tool_call>"), self.mark("</tool_call>"));
                (
                    format!("one {}", more(r#""\n""#)),
                    format!("{open} \"\\n\""),
                    "arguments",
                    format!("\"\\n\" {close}"),
                )
            }
            Calls::Marked if self.has_arguments_mark => {
                (format!("one {}", more("")), self.mark("[TOOL_CALLS]"), "", String::new())
            }
            Calls::Marked => {
                let mark = self.mark("[TOOL_CALLS]");
                (
                    format!(r#"{mark} "[" one {} "]""#, more(r#"", ""#)),
                    String::new(),
                    "arguments",
                    String::new(),
                )
            }
            Calls::Bare => (format!("one {}", more(r#""; ""#)), String::new(), "parameters", String::new()),
        };
        let mut lark = match otherwise {
            None => format!("start: {start}\n"),
            Some(format) => {
                format!("start: calls | content\ncalls: {start}\ncontent: {}\n", lark_json(format.text())?)
            }
        };
        lark += &format!("one: {head} ({names}) {tail}\n");
        for (index, tool) in tools.iter().enumerate() {
            let name = tool.get("name").and_then(Data::as_text).unwrap_or_default();
            let parameters = match tool.get("parameters") {
                None | Some(Data::Null) => r#"{"type":"object"}"#.to_owned(),
                Some(parameters) => parameters.to_string(),
            };
            let (before, after) = match member {
                "" => (format!("{} {}", quoted(name), self.mark("[ARGS]")), ""),
                member => (quoted(&format!(r#"{{"name": {}, "{member}": "#, json!(name))), r#""}""#),
            };
            lark += &format!("call_{index}: {before} arguments_{index} {after}\n");
            lark += &format!("arguments_{index}: {}\n", lark_json(&parameters)?);
        }
        Ok(Constraint::new(ConstraintKind::Lark, lark))
    }

    /// A call as an object, or what has this format: one schema, since both may begin with the same text.
    fn bare_or(&self, format: &Constraint, param: &str) -> Result<Constraint, ApiError> {
        let mut schemas: Vec<Json> =
            vec![serde_json::from_str(format.text()).map_err(|error| ApiError::field(param, error))?];
        for tool in self.tools.callable() {
            let member = |name| tool.get(name).map_or(Json::Null, |data| json!(data));
            let parameters = Some(member("parameters")).filter(|of| !of.is_null());
            schemas.push(json!({
                "type": "object",
                "properties": {
                    "name": { "const": member("name") },
                    "parameters": parameters.unwrap_or_else(|| json!({ "type": "object" })),
                },
                "required": ["name", "parameters"],
                "additionalProperties": false,
            }));
        }
        let text = json!({ "anyOf": schemas }).to_string();
        if text.contains("\"$ref\"") {
            let problem = "with tools, schemas that have $ref are not supported for this model; write out what they name";
            return Err(ApiError::unsupported(param, problem));
        }
        Ok(Constraint::new(ConstraintKind::JsonSchema, text))
    }

    /// A mark: the model's control token of that name, or its text.
    fn mark(&self, name: &str) -> String {
        let tokenizer = &self.model.tokenizer;
        match tokenizer.encode(name, Specials::Parse).as_deref() {
            Ok(&[id]) if tokenizer.token_kind(id).is_some_and(TokenKind::is_control) => format!("<[{id}]>"),
            _ => quoted(name),
        }
    }
}

/// A text as Lark has it.
fn quoted(text: &str) -> String {
    json!(text).to_string()
}
