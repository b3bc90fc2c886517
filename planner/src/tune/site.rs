//! What a row is chosen for.

use std::fmt;

use crate::kernels::of_plan::Template;

/// A template with everything that its speed depends on, as text: `linear Q4_K 3584x18944 rows 1`. Additions,
/// biases and checks of a linear layer are no part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site(String);

impl Site {
    /// Of a text, such as that of a table: it need not be one that a template has.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The site of a template; none for those that have no rows: they take a small part of a step, or are as fast
/// as memory.
pub fn site(template: &Template) -> Option<Site> {
    match template {
        Template::Linear(weights, x, _) => {
            let (format, n, width) = (weights.format(), weights.rows(), weights.width());
            Some(Site(format!("linear {format} {n}x{width} rows {}", x.rows())))
        }
        Template::AttentionDecode(attention, states) => {
            let (layout, heads) = (attention.layout, attention.heads);
            let window = attention.window.map_or(String::new(), |window| format!(" window {window}"));
            let cap = if attention.soft_cap.is_some() { " capped" } else { "" };
            Some(Site(format!(
                "attention-decode kv {}x{} heads {heads}{window}{cap} states {states}",
                layout.heads, layout.head_len
            )))
        }
        _ => None,
    }
}
