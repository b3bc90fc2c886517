//! Running a template that nobody has looked at.
//!
//! A template comes with a model file from anywhere. It can reach nothing but its input: there is no loader, so
//! nothing can be included, and values have no attributes but their own. What is left to limit is time, memory and
//! stack. Fuel, which each instruction and each byte costs, bounds the first two, with the checks of [`guard`] for
//! values that are larger than their bytes; the size of the source and of each tag in it bounds the depth of the
//! syntax tree, which the engine walks recursively.

use std::collections::BTreeMap;
use std::error::Error as _;

use jiff::civil::Date;
use minijinja::machinery::{CodeGenerator, Instructions, Token, eval, make_string_output, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

use super::python::Refusal;
use super::{ChatError, guard, python};

/// Largest template; those that models ship with are below 20 KiB. The engine counts lines and columns in 16 bits.
const TEMPLATE_LEN_MAX_BYTES: usize = 60_000;
/// Tokens in one tag, and `elif` branches in all: each may be a level of the syntax tree.
const TAG_LEN_MAX_TOKENS: usize = 600;
const ELIF_MAX: usize = 200;

const NAME: &str = "chat template";

/// How much a template may do for an input of a certain size.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    fuel: u64,
    value_len_max_bytes: usize,
}

impl Budget {
    /// Some work for the template itself, and some for each message and each byte of the input.
    pub fn for_input(messages: usize, input_len_bytes: usize) -> Self {
        let fuel = 500_000 + 4_000 * messages as u64 + 2 * input_len_bytes as u64;
        Self { fuel, value_len_max_bytes: (256 << 10) + 1024 * messages + 8 * input_len_bytes }
    }
}

/// Checks that a template can be compiled, and makes it one that the engine knows all tags of.
pub fn prepare(source: &str) -> Result<String, ChatError> {
    if source.len() > TEMPLATE_LEN_MAX_BYTES {
        let (found_bytes, limit_bytes) = (source.len(), TEMPLATE_LEN_MAX_BYTES);
        return Err(ChatError::TooLarge { found_bytes, limit_bytes });
    }
    let prepared = check_tags(source)?;
    compile(&prepared)?;
    Ok(prepared)
}

/// Runs a prepared template.
pub fn render(source: &str, input: Value, budget: Budget, date: Option<Date>) -> Result<String, ChatError> {
    let mut env = Environment::new();
    env.set_fuel(Some(budget.fuel));
    python::install(&mut env, date);
    guard::install(&mut env, budget.value_len_max_bytes);
    let program = compile(source)?;
    let blocks = BTreeMap::new();
    let mut text = String::new();
    let outcome = eval(&env, &program, input, &blocks, &mut make_string_output(&mut text), AutoEscape::None);
    match outcome {
        Ok(_) => {}
        Err(error) => return Err(explain(&error)),
    }
    Ok(text)
}

/// As the library that templates are written for sets it: a tag alone on its line leaves no line.
fn syntax() -> Result<SyntaxConfig, ChatError> {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(|e| explain(&e))
}

fn compile(source: &str) -> Result<Instructions<'_>, ChatError> {
    let tree = parse(source, NAME, syntax()?).map_err(|e| explain(&e))?;
    let mut generator = CodeGenerator::new(NAME, source);
    generator.compile_stmt(&tree);
    let (plain, _) = generator.finish();
    Ok(guard::guarded(&plain, NAME, source))
}

/// Bounds the depth of the syntax tree before it is built, and replaces `{% generation %}`, which marks what to train
/// on and does nothing in a prompt, by a tag that does nothing. Errors of the lexer are left to the parser.
fn check_tags(source: &str) -> Result<String, ChatError> {
    let mut prepared = source.to_owned();
    let mut tag_len_tokens = 0;
    let mut elifs = 0;
    for (token, span) in tokenize(source, false, syntax()?).map_while(Result::ok) {
        let too_much = |what: &str| {
            let line = usize::from(span.start_line);
            Err(ChatError::Budget { line, what: what.to_owned() })
        };
        tag_len_tokens += 1;
        match token {
            Token::VariableStart => tag_len_tokens = 1,
            Token::BlockStart => tag_len_tokens = 0,
            Token::Ident("elif") if tag_len_tokens == 1 => elifs += 1,
            Token::Ident(tag @ ("generation" | "endgeneration")) if tag_len_tokens == 1 => {
                let nothing = if tag == "generation" { "if true" } else { "endif" };
                let range = span.start_offset as usize..span.end_offset as usize;
                if source.get(range.clone()) == Some(tag) {
                    // As long as before, so that the other offsets stay.
                    prepared.replace_range(range, &format!("{nothing:width$}", width = tag.len()));
                }
            }
            _ => {}
        }
        if tag_len_tokens > TAG_LEN_MAX_TOKENS {
            return too_much("a tag is too long");
        }
        if elifs > ELIF_MAX {
            return too_much("too many elif branches");
        }
    }
    Ok(prepared)
}

fn explain(error: &Error) -> ChatError {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(Refusal(message)) = cause.downcast_ref() {
            return ChatError::Refused { message: message.clone() };
        }
        source = cause.source();
    }
    let line = error.line().unwrap_or(1);
    let kind = error.kind();
    match (kind, error.detail()) {
        (ErrorKind::OutOfFuel, detail) => {
            let what = detail.unwrap_or("it ran for too long or wrote too much").to_owned();
            ChatError::Budget { line, what }
        }
        (ErrorKind::UnknownFunction, Some(detail)) if detail.starts_with("strftime_now") => {
            let detail = "it needs today's date, which was not given (--date 2026-01-31)".to_owned();
            ChatError::Template { line, detail }
        }
        (_, Some(detail)) => ChatError::Template { line, detail: format!("{kind}: {detail}") },
        (_, None) => ChatError::Template { line, detail: kind.to_string() },
    }
}
