//! Resources: what operations write. A managed one is a document that is held here; an external one lives elsewhere,
//! and here its version is known at most.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{
    id::{AgentId, ApprovalId, OperationId, PersonId, RunId},
    json,
    kind::Verb,
    problem::{Code, FieldError, Problem},
    run::Scope,
    strict,
};

/// Bytes of a document held here, as JSON without white space.
pub const MAX_DOCUMENT: usize = 64 * 1024;

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
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub run: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub operation: Option<OperationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub agent: Option<AgentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub approval: Option<ApprovalId>,
    /// The person who wrote it by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub person: Option<PersonId>,
}

/// What a managed write makes of `current`: `None` deletes. The kind has checked `params`.
pub fn outcome_of(verb: Verb, params: &Value, current: Option<&Value>) -> Option<Value> {
    match verb {
        Verb::Delete => None,
        Verb::Update => {
            let mut document = current.cloned().unwrap_or_default();
            merge_patch(&mut document, &params["patch"]);
            Some(document)
        }
        _ => Some(params["value"].clone()),
    }
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

/// At most `max` elements of the list at `pointer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MaxItems {
    /// RFC 6901 JSON pointer into the document.
    pub pointer: String,
    #[schema(minimum = 0)]
    pub max: i64,
}

/// What an admin asks of the documents in a scope. Every rule whose scope holds the resource applies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceRule {
    pub scope: Scope,
    /// JSON Schema (2020-12) of the whole document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Value>,
    /// By JSON pointer, the member that tells the elements of a list apart when versions are compared.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub array_keys: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub max_items: Vec<MaxItems>,
    /// Resources of the scope that exist at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub max_live: Option<i64>,
    /// Groups whose people may read the documents; empty means everyone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readers: Vec<String>,
}

impl ResourceRule {
    /// Reads and checks a rule, but for what only a compiler can see in its schema.
    ///
    /// # Errors
    /// 422 `validation_failed` with every place that is not valid.
    pub fn load(document: &Value) -> Result<Self, Problem> {
        let rule: Self = strict::read(document)?;
        let mut errors = Vec::new();
        let mut fault = |pointer: String, detail: &str| errors.push(FieldError { pointer, detail: detail.to_owned() });
        let is_pointer = |text: &str| text.is_empty() || text.starts_with('/');
        for (pointer, key) in &rule.array_keys {
            let mut at = "/array_keys".to_owned();
            json::push_token(&mut at, pointer);
            if !is_pointer(pointer) {
                fault(at.clone(), "expected a JSON pointer such as `/steps`");
            }
            if key.is_empty() {
                fault(at, "expected the name of a member");
            }
        }
        for (i, limit) in rule.max_items.iter().enumerate() {
            if !is_pointer(&limit.pointer) {
                fault(format!("/max_items/{i}/pointer"), "expected a JSON pointer such as `/destinations`");
            }
            if limit.max < 0 {
                fault(format!("/max_items/{i}/max"), "expected 0 or more");
            }
        }
        if rule.max_live.is_some_and(|max| max < 0) {
            fault("/max_live".to_owned(), "expected 0 or more");
        }
        for (i, group) in rule.readers.iter().enumerate() {
            if group.trim().is_empty() || group.chars().count() > 64 {
                fault(format!("/readers/{i}"), "expected 1 to 64 characters");
            }
        }
        if errors.is_empty() { Ok(rule) } else { Err(Problem::invalid(Code::ValidationFailed, errors)) }
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
    fn a_rule_says_where_it_is_wrong() {
        let places = |rule: Value| {
            let problem = ResourceRule::load(&rule).unwrap_err();
            problem.errors().into_iter().map(|error| error.pointer).collect::<Vec<_>>()
        };
        let rule =
            json!({"scope": "note/*", "array_keys": {"/steps": "id"}, "max_items": [{"pointer": "/to", "max": 3}]});
        assert!(ResourceRule::load(&rule).is_ok());
        assert_eq!(places(json!({"scope": "note/*", "max_live": -1})), ["/max_live"]);
        assert_eq!(places(json!({"scope": "note/*", "array_keys": {"steps": ""}})), ["/array_keys/steps"; 2]);
        assert_eq!(
            places(json!({"scope": "note/*", "max_items": [{"pointer": "to", "max": 1}]})),
            ["/max_items/0/pointer"]
        );
        assert_eq!(places(json!({"scope": "note/*", "readers": [" "]})), ["/readers/0"]);
        assert_eq!(places(json!({"scope": "*"})), ["/scope"]);
        assert_eq!(places(json!({"scope": "note/*", "max_alive": 1})), ["/max_alive"]);
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
