//! Resources: what operations write. A managed one is a document that is held here; an external one lives elsewhere,
//! and here its version is known at most.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::id::{AgentId, ApprovalId, OperationId, PersonId, RunId};

/// Where the resource is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// Here, as a document.
    Managed,
    /// Elsewhere.
    External,
}

/// How a version came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VersionChange {
    Created,
    Changed,
    Deleted,
    /// Somebody reported it of what lives elsewhere.
    Observed,
}

impl VersionChange {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Deleted => "deleted",
            Self::Observed => "observed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Created, Self::Changed, Self::Deleted, Self::Observed].into_iter().find(|change| change.as_str() == text)
    }
}

/// What happened to one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FieldChange {
    Add,
    Replace,
    Remove,
}

impl FieldChange {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Remove => "remove",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Add, Self::Replace, Self::Remove].into_iter().find(|change| change.as_str() == text)
    }
}

/// Who made a version, as far as it went through this desk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Author {
    #[schema(value_type = Option<String>)]
    pub run: Option<RunId>,
    #[schema(value_type = Option<String>)]
    pub operation: Option<OperationId>,
    #[schema(value_type = Option<String>)]
    pub agent: Option<AgentId>,
    #[schema(value_type = Option<String>)]
    pub approval: Option<ApprovalId>,
    /// The person who wrote it by hand.
    #[schema(value_type = Option<String>)]
    pub person: Option<PersonId>,
}

/// Applies a merge patch (RFC 7396 §2): null removes, an object merges, everything else replaces.
pub fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(object) = target.as_object_mut() else { return };
    for (name, change) in members {
        match change {
            Value::Null => drop(object.remove(name)),
            change => merge_patch(object.entry(name.clone()).or_insert(Value::Null), change),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// RFC 7396, appendix A.
    #[test]
    fn a_merge_patch_does_what_its_specification_shows() {
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (original, patch, result) in cases {
            let mut target = original.clone();
            merge_patch(&mut target, &patch);
            assert_eq!(target, result, "{original} patched with {patch}");
        }
    }

    #[test]
    fn words_survive_the_database() {
        use FieldChange::*;
        for change in [Add, Replace, Remove] {
            assert_eq!(FieldChange::parse(change.as_str()), Some(change));
        }
        use VersionChange::*;
        for change in [Created, Changed, Deleted, Observed] {
            assert_eq!(VersionChange::parse(change.as_str()), Some(change));
        }
    }
}
