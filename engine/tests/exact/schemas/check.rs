//! Whether a value fits a schema of the generator's keywords, straight from the specification.

use serde_json::{Map, Value as Json};

use super::random::PATTERNS;

/// Whether `value` fits `schema`, a part of `root`.
pub fn fits(root: &Json, schema: &Json, value: &Json) -> bool {
    let Json::Object(keywords) = schema else { return schema.as_bool().unwrap() };
    keywords.iter().all(|(name, keyword)| {
        let fitting = || keyword.as_array().unwrap().iter().filter(|s| fits(root, s, value)).count();
        match name.as_str() {
            "$ref" => fits(root, root.pointer(&keyword.as_str().unwrap()[1..]).unwrap(), value),
            "type" => of_type(keyword, value),
            "const" => value == keyword,
            "enum" => keyword.as_array().unwrap().contains(value),
            "anyOf" => fitting() > 0,
            "allOf" => fitting() == keyword.as_array().unwrap().len(),
            "oneOf" => fitting() == 1,
            "$defs" | "$schema" | "description" => true,
            _ => match value {
                Json::Number(_) => number(name, keyword, value.as_f64().unwrap()),
                Json::String(text) => string(name, keyword, text),
                Json::Array(items) => array(root, keywords, name, keyword, items),
                Json::Object(members) => object(root, keywords, name, keyword, members),
                _ => true,
            },
        }
    })
}

fn of_type(types: &Json, value: &Json) -> bool {
    let is = |ty: &str| match value {
        Json::Null => ty == "null",
        Json::Bool(_) => ty == "boolean",
        Json::Number(_) => ty == "number" || ty == "integer" && value.as_f64().unwrap().fract() == 0.0,
        Json::String(_) => ty == "string",
        Json::Array(_) => ty == "array",
        Json::Object(_) => ty == "object",
    };
    match types {
        Json::Array(types) => types.iter().any(|ty| is(ty.as_str().unwrap())),
        ty => is(ty.as_str().unwrap()),
    }
}

fn number(name: &str, keyword: &Json, value: f64) -> bool {
    let Some(bound) = keyword.as_f64() else { return true };
    match name {
        "minimum" => value >= bound,
        "maximum" => value <= bound,
        "exclusiveMinimum" => value > bound,
        "exclusiveMaximum" => value < bound,
        "multipleOf" => value % bound == 0.0,
        _ => true,
    }
}

fn string(name: &str, keyword: &Json, text: &str) -> bool {
    let count = text.chars().count() as u64;
    match name {
        "minLength" => count >= keyword.as_u64().unwrap(),
        "maxLength" => count <= keyword.as_u64().unwrap(),
        "pattern" => matches(keyword.as_str().unwrap(), text),
        "format" => is_date(text),
        _ => true,
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    match PATTERNS.iter().position(|known| *known == pattern).unwrap() {
        0 => (2..=4).contains(&text.len()) && text.bytes().all(|byte| (b'a'..=b'c').contains(&byte)),
        1 => text
            .strip_prefix('x')
            .and_then(|rest| rest.strip_suffix('y'))
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())),
        _ => text == "on" || text == "off",
    }
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let number = |part: &str| part.parse::<u32>().unwrap_or(0);
    let lens: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    lens == [4, 2, 2] && (1..=12).contains(&number(parts[1])) && (1..=31).contains(&number(parts[2]))
}

fn array(root: &Json, keywords: &Map<String, Json>, name: &str, keyword: &Json, items: &[Json]) -> bool {
    let prefix = keywords.get("prefixItems").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    match name {
        "minItems" => items.len() as u64 >= keyword.as_u64().unwrap(),
        "maxItems" => items.len() as u64 <= keyword.as_u64().unwrap(),
        "prefixItems" => items.iter().zip(prefix).all(|(item, schema)| fits(root, schema, item)),
        "items" => items.iter().skip(prefix.len()).all(|item| fits(root, keyword, item)),
        _ => true,
    }
}

fn object(
    root: &Json,
    keywords: &Map<String, Json>,
    name: &str,
    keyword: &Json,
    members: &Map<String, Json>,
) -> bool {
    match name {
        "required" => {
            keyword.as_array().unwrap().iter().all(|name| members.contains_key(name.as_str().unwrap()))
        }
        "properties" => {
            let named = keyword.as_object().unwrap();
            named.iter().all(|(name, schema)| members.get(name).is_none_or(|value| fits(root, schema, value)))
        }
        "additionalProperties" => {
            let named = keywords.get("properties").and_then(Json::as_object);
            let others =
                members.iter().filter(|(name, _)| named.is_none_or(|named| !named.contains_key(*name)));
            others.into_iter().all(|(_, value)| fits(root, keyword, value))
        }
        "maxProperties" => members.len() as u64 <= keyword.as_u64().unwrap(),
        _ => true,
    }
}
