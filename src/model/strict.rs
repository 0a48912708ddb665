//! Typed reading of JSON documents: what does not fit is refused with its place.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::{
    json,
    problem::{Code, Problem},
};

/// Reads `document` as a `T`, whose types carry `deny_unknown_fields` and their own ranges.
///
/// # Errors
/// 422 `validation_failed` with the JSON pointer of the first place that does not fit.
pub fn read<T: DeserializeOwned>(document: &Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(document).map_err(|error| {
        let mut pointer = String::new();
        for segment in error.path() {
            match segment {
                Segment::Seq { index } => json::push_token(&mut pointer, &index.to_string()),
                Segment::Map { key } => json::push_token(&mut pointer, key),
                Segment::Enum { .. } | Segment::Unknown => {}
            }
        }
        Problem::at(Code::ValidationFailed, pointer, plain(&error.into_inner().to_string()))
    })
}

/// The reader's words without Rust's names of types, and without repeating what was sent.
fn plain(message: &str) -> String {
    let Some((sent, expected)) = message.strip_prefix("invalid ").and_then(|rest| rest.rsplit_once(", expected "))
    else {
        return message.to_owned();
    };
    let expected = match expected {
        "i8" | "i16" | "i32" | "i64" | "isize" | "u8" | "u16" | "u32" | "u64" | "usize" => "an integer",
        name if name.starts_with("struct ") => "an object",
        "a sequence" => "a list",
        other => other,
    };
    match sent.strip_prefix("type: ") {
        Some(sent) => {
            let sent = match sent.split(' ').next().unwrap_or_default() {
                "boolean" => "a boolean",
                "integer" => "an integer",
                "floating" => "a fraction",
                "string" => "a string",
                "sequence" => "a list",
                "map" => "an object",
                _ => "null",
            };
            format!("expected {expected}, not {sent}")
        }
        None => format!("expected {expected}"),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[expect(dead_code, reason = "only its reading is tested")]
        list: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[expect(dead_code, reason = "only its reading is tested")]
        count: u8,
    }

    #[test]
    fn a_refusal_names_the_place() {
        for (document, pointer) in [
            (json!({"list": [{"count": 1}, {"count": "2"}]}), "/list/1/count"),
            (json!({"list": [{"count": 1, "a/b": 2}]}), "/list/0/a~1b"),
            (json!({"list": [{"count": 1.5}]}), "/list/0/count"),
            (json!({"list": [{}]}), "/list/0"),
            (json!([]), ""),
        ] {
            let problem = read::<Outer>(&document).unwrap_err();
            assert_eq!(problem.code, Code::ValidationFailed);
            assert_eq!(problem.members["errors"][0]["pointer"], pointer, "{problem}");
        }
    }

    #[test]
    fn a_refusal_speaks_of_json_and_repeats_no_value() {
        for (document, detail) in [
            (json!({"list": [{"count": "secret"}]}), "expected an integer, not a string"),
            (json!({"list": [{"count": 1.5}]}), "expected an integer, not a fraction"),
            (json!({"list": [{"count": 300}]}), "expected an integer"),
            (json!({"list": [null]}), "expected an object, not null"),
            (json!({"list": {}}), "expected a list, not an object"),
            (json!({"list": [{"cnt": 1}]}), "unknown field `cnt`, expected `count`"),
        ] {
            assert_eq!(read::<Outer>(&document).unwrap_err().members["errors"][0]["detail"], detail);
        }
    }
}
