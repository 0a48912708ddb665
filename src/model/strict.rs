//! Typed reading of JSON documents: what does not fit is refused with its place.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::problem::{Code, Problem};

/// Reads `document` as a `T`, whose types carry `deny_unknown_fields` and their own ranges.
///
/// # Errors
/// 422 `validation_failed` with the JSON pointer of the first place that does not fit.
pub fn read<T: DeserializeOwned>(document: &Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(document).map_err(|error| {
        let mut pointer = String::new();
        for segment in error.path() {
            match segment {
                Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
                Segment::Map { key } => pointer.push_str(&format!("/{}", escape(key))),
                Segment::Enum { .. } | Segment::Unknown => {}
            }
        }
        Problem::at(Code::ValidationFailed, pointer, error.into_inner().to_string())
    })
}

/// One reference token of a JSON pointer (RFC 6901 §3).
pub fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
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
}
