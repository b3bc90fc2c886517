//! What chat templates expect of Python and of the library that they are written for.

use jiff::civil::Date;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, State, Value};

/// Widest indentation that `tojson` takes.
const INDENT_MAX: usize = 16;

/// `raise_exception(message)`: the error that carries it has this as its source.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// Adds the functions, filters and methods to an environment. `strftime_now` exists only with a date, since the date
/// is part of what a prompt depends on; templates test for it.
pub fn install(env: &mut Environment<'_>, date: Option<Date>) {
    env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Refusal(message)))
    });
    if let Some(date) = date {
        env.add_function("strftime_now", move |format: String| {
            jiff::fmt::strtime::format(&format, date.at(0, 0, 0, 0))
                .map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {e}")))
        });
    }
    env.add_filter("tojson", tojson);
    // The engine iterates over none as over nothing; in Python it is not iterable, and templates ask that of `tools`.
    env.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    env.set_unknown_method_callback(method);
}

/// Methods of Python's strings, lists and dicts. `str.format` takes no format specifications: a width of 10^10 in
/// one is 10 GB at once.
fn method(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if name == "format" && value.as_str().is_some_and(|s| s.contains([':', '!']) && s.contains('{')) {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "str.format with a format specification is not supported",
        ));
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

/// JSON as Python's `json.dumps(value, ensure_ascii=False)` writes it. The engine's own filter escapes `<`, `>`, `&`
/// and `'` for HTML, which models were not trained on.
fn tojson(value: &Value, indent: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => kwargs.get::<Option<Value>>("indent")?,
    };
    if indent.as_ref().and_then(Value::as_usize).is_some_and(|width| width > INDENT_MAX) {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("tojson indents by at most {INDENT_MAX}"),
        ));
    }
    // Python's other arguments that templates use; the output is the same with and without them.
    for ignored in ["ensure_ascii", "separators", "sort_keys"] {
        kwargs.get::<Option<Value>>(ignored)?;
    }
    kwargs.assert_all_used()?;
    let no_kwargs: [(&str, Value); 0] = [];
    let json =
        minijinja::filters::tojson(value, indent.filter(|i| !i.is_none()), Kwargs::from_iter(no_kwargs))?;
    Ok(Value::from(without_html_escapes(json.as_str().unwrap_or_default())))
}

/// Undoes `\u003c` and the like; a backslash that is itself escaped starts none.
fn without_html_escapes(json: &str) -> String {
    let escapes = [("\\u003c", '<'), ("\\u003e", '>'), ("\\u0026", '&'), ("\\u0027", '\'')];
    let mut plain = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        plain.push_str(before);
        let known = escapes.iter().find_map(|(code, c)| Some((*c, escape.strip_prefix(code)?)));
        rest = match known {
            Some((c, tail)) => {
                plain.push(c);
                tail
            }
            None => {
                let escaped_len = escape.chars().take(2).map(char::len_utf8).sum();
                let (pair, tail) = escape.split_at(escaped_len);
                plain.push_str(pair);
                tail
            }
        };
    }
    plain + rest
}
