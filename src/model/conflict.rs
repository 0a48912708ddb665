//! A refused write, kept: what it expected, what it met, field by field, and the way on.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{
    audit::Actor,
    diff::{ArrayKeys, diff, find, present, touches},
    id::{ConflictId, OperationId},
    json::push_token,
    kind::{Resolver, Verb},
    operation::Operation,
    problem::{Code, Problem, Retry},
    resource::{Author, FieldChange, outcome_of},
    time::Timestamp,
};

/// A refused write as it is stored: what the agent was told, so that a replay can tell it again, and what became of it.
/// Which fields changed is not stored: the versions of the resource say it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conflict {
    pub id: ConflictId,
    pub operation: OperationId,
    #[serde(default)]
    pub kind: String,
    pub resource: String,
    pub code: Code,
    pub detail: String,
    pub retry: Retry,
    pub safe_new_key: bool,
    pub members: Map<String, Value>,
    /// The proposal itself was refused: a replay of its key repeats the problem.
    pub at_proposal: bool,
    /// What the write met.
    #[serde(default)]
    pub met: Met,
    pub at: Timestamp,
    #[serde(default)]
    pub resolution: Option<ConflictResolution>,
}

/// What a refused write met, as far as it is known here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Met {
    /// The version of the target that refused it.
    pub version: Option<i64>,
    /// Who made that version.
    #[serde(default)]
    pub author: Author,
    /// What the destination said, where it refused the write itself.
    #[serde(default)]
    pub reported: Option<Value>,
}

/// Where a conflict stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConflictState {
    Open,
    Resolved,
}

impl ConflictState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Resolved => "resolved",
        }
    }

    pub fn of(resolution: Option<&ConflictResolution>) -> Self {
        if resolution.is_some() { Self::Resolved } else { Self::Open }
    }
}

/// What somebody decided about a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The agent plans it anew, on a fresh read: a new operation with its own approval.
    Replan,
    /// What is there now stays, and nothing follows.
    AcceptCurrent,
    /// Nothing follows, whatever is there.
    Dismiss,
}

impl Action {
    pub const ALL: [Self; 3] = [Self::Replan, Self::AcceptCurrent, Self::Dismiss];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replan => "replan",
            Self::AcceptCurrent => "accept_current",
            Self::Dismiss => "dismiss",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == text)
    }
}

/// The decision about a conflict, which is made once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConflictResolution {
    pub action: Action,
    /// What the agent is told to do.
    pub instruction: Option<String>,
    /// Why; for people.
    pub note: Option<String>,
    pub by: Actor,
    /// A person's name, or the agent's.
    pub by_name: String,
    pub at: Timestamp,
    /// The version of the target that it was decided on.
    pub version: Option<i64>,
}

impl ConflictResolution {
    /// Whether `other` is the same decision, sent again.
    pub fn repeats(&self, other: &Self) -> bool {
        (self.action, &self.instruction, &self.note, &self.by)
            == (other.action, &other.instruction, &other.note, &other.by)
    }
}

impl Conflict {
    pub fn of(id: ConflictId, op: &Operation, problem: &Problem, at_proposal: bool, at: Timestamp) -> Self {
        let problem = problem.clone();
        Self {
            id,
            operation: op.id().clone(),
            kind: op.proposal.kind.clone(),
            resource: op.proposal.target.to_string(),
            code: problem.code,
            detail: problem.detail,
            retry: problem.retry,
            safe_new_key: problem.safe_new_key,
            members: problem.members,
            at_proposal,
            met: Met::default(),
            at,
            resolution: None,
        }
    }

    pub fn state(&self) -> ConflictState {
        ConflictState::of(self.resolution.as_ref())
    }

    /// The refusal, with the conflict and the operation named in it.
    pub fn problem(&self) -> Problem {
        let problem = Problem {
            code: self.code,
            detail: self.detail.clone(),
            retry: self.retry.clone(),
            safe_new_key: self.safe_new_key,
            members: self.members.clone(),
        };
        problem
            .with("conflict_id", &self.id)
            .with("operation", serde_json::json!({"id": self.operation, "state": "conflicted"}))
            .with("instance", format!("/api/v1/conflicts/{}", self.id))
    }
}

/// Who finds the way on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolvedBy {
    Agent,
    Human,
}

/// One field that changed since the write was planned, and who changed it last. Without the right to read the resource
/// a reader has no values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangedField {
    /// RFC 6901, with names in place of indices where an array has a key.
    pub pointer: String,
    /// What came of it in all; what its last change did, where it changed back.
    pub change: FieldChange,
    /// When the write was planned; absent where there was no such field.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    pub from: Option<Value>,
    /// Now.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    pub to: Option<Value>,
    /// The version that changed it last.
    pub version: i64,
    pub by: Author,
    pub at: Timestamp,
    /// The refused write sets it, or removes it.
    pub in_your_write: bool,
}

/// One field in the three-way view. A side without a value has no such field; without the right to read the resource
/// there are no values at all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ThreeWayRow {
    pub pointer: String,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    pub as_read: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    pub proposed: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    pub now: Option<Value>,
    /// Others changed it, and the write would have left something else there.
    pub overlap: bool,
}

/// What a refused write met, field by field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Facts {
    pub expected_version: Option<i64>,
    /// 0 where nothing is there any more.
    pub current_version: Option<i64>,
    /// By pointer.
    pub changed_fields: Vec<ChangedField>,
    /// False where not every version in between is known field by field.
    pub changed_fields_complete: bool,
    /// What is there now is what the write wants.
    pub already_satisfied: bool,
    pub resolver: ResolvedBy,
    /// Overlapping fields first, then by pointer.
    pub rows: Vec<ThreeWayRow>,
    /// Who said at which version the target is, where it lives elsewhere.
    pub reported_by: Option<ReportedBy>,
}

/// Who last reported a version of what lives elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReportedBy {
    /// Of a run, an executor or a person.
    pub id: String,
    pub at: Timestamp,
}

impl Facts {
    /// What is told to those who may not read the resource: where, and by whom, but no values.
    pub fn without_values(mut self) -> Self {
        for field in &mut self.changed_fields {
            (field.from, field.to) = (None, None);
        }
        for row in &mut self.rows {
            (row.as_read, row.proposed, row.now) = (None, None, None);
        }
        self
    }

    /// The members of a refusal that say it.
    pub fn into_problem(self, problem: Problem) -> Problem {
        let problem = problem
            .with("changed_fields", &self.changed_fields)
            .with("changed_fields_complete", self.changed_fields_complete)
            .with("already_satisfied", self.already_satisfied)
            .with("resolver", self.resolver);
        match &self.reported_by {
            Some(reported_by) => problem.with("reported_by", reported_by),
            None => problem,
        }
    }
}

/// Who finds the way on after a write of this class was refused: the agent where the content can be made anew from what
/// is there, or merged because nobody else changed the same fields; a human otherwise.
pub fn resolved_by(class: Resolver, fields: Fields) -> ResolvedBy {
    match (class, fields) {
        (Resolver::Regenerable, _) | (Resolver::Mergeable, Fields::Disjoint) => ResolvedBy::Agent,
        _ => ResolvedBy::Human,
    }
}

/// Whether others changed what the write sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fields {
    /// Nobody did, and everything is known.
    Disjoint,
    /// Somebody did, or may have.
    Shared,
}

/// Whether the refusal is a conflict: the write was well-formed, and what it met stood against it.
pub fn is_conflict(code: Code) -> bool {
    matches!(
        code,
        Code::StaleVersion
            | Code::OwnershipConflict
            | Code::LeaseHeld
            | Code::StaleFence
            | Code::ReleaseLocked
            | Code::BusinessKeyConflict
            | Code::InvariantViolated
    )
}

/// The last change of one field in a range of versions.
#[derive(Debug, Clone, PartialEq)]
pub struct Past {
    pub pointer: String,
    pub change: FieldChange,
    pub version: i64,
    pub by: Author,
    pub at: Timestamp,
}

/// A write of a document that is held here.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    pub verb: Verb,
    pub params: &'a Value,
}

impl Write<'_> {
    /// What it makes of `current`: `None` deletes.
    pub fn outcome(&self, current: Option<&Value>) -> Option<Value> {
        outcome_of(self.verb, self.params, current)
    }

    /// The pointers of what it sets or removes; the whole document unless it is a patch.
    fn sets(&self) -> Vec<String> {
        let mut found = Vec::new();
        match self.verb {
            Verb::Update => leaves(&self.params["patch"], &mut String::new(), &mut found),
            _ => found.push(String::new()),
        }
        found
    }
}

fn leaves(patch: &Value, pointer: &mut String, found: &mut Vec<String>) {
    match patch {
        Value::Object(members) if !members.is_empty() => {
            for (name, member) in members {
                let here = pointer.len();
                push_token(pointer, name);
                leaves(member, pointer, found);
                pointer.truncate(here);
            }
        }
        // An empty patch of the whole document sets nothing.
        Value::Object(_) if pointer.is_empty() => {}
        _ => found.push(pointer.clone()),
    }
}

/// The document as the write was planned on it, and as it is now.
#[derive(Debug, Clone, Copy)]
pub struct Sides<'a> {
    pub as_read: Option<&'a Value>,
    pub now: Option<&'a Value>,
    pub keys: &'a ArrayKeys,
}

/// What a comparison found.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    pub changed_fields: Vec<ChangedField>,
    pub rows: Vec<ThreeWayRow>,
    pub already_satisfied: bool,
}

/// Compares a refused write with what it met. `past` has the last change of every field that changed in between, also
/// of those that changed back.
pub fn compare(write: Write<'_>, sides: Sides<'_>, past: Vec<Past>) -> Compared {
    let Sides { as_read, now, keys } = sides;
    let proposed = write.outcome(as_read);
    let sets = write.sets();
    let at = |document: Option<&Value>, pointer: &str| document.and_then(|it| find(it, pointer, keys)).cloned();
    let changed_fields: Vec<_> = by_field(past, sides)
        .into_iter()
        .map(|past| {
            let (from, to) = (at(as_read, &past.pointer), at(now, &past.pointer));
            let change = match (&from, &to) {
                (None, Some(_)) => FieldChange::Add,
                (Some(_), None) => FieldChange::Remove,
                (Some(from), Some(to)) if from != to => FieldChange::Replace,
                _ => past.change,
            };
            let in_your_write = sets.iter().any(|set| touches(set, &past.pointer));
            let Past { pointer, version, by, at, .. } = past;
            ChangedField { pointer, change, from, to, version, by, at, in_your_write }
        })
        .collect();
    let own = diff(as_read, proposed.as_ref(), keys).into_iter().map(|field| field.pointer);
    let pointers: BTreeSet<_> = own.chain(changed_fields.iter().map(|field| field.pointer.clone())).collect();
    let mut rows: Vec<_> = outermost(pointers)
        .into_iter()
        .map(|pointer| {
            let row = |document: Option<&Value>| at(document, &pointer);
            let (as_read, proposed, now) = (row(as_read), row(proposed.as_ref()), row(now));
            let theirs = |field: &ChangedField| field.in_your_write && touches(&field.pointer, &pointer);
            let overlap = proposed != now && changed_fields.iter().any(theirs);
            ThreeWayRow { pointer, as_read, proposed, now, overlap }
        })
        .collect();
    rows.sort_by_key(|row| !row.overlap);
    let already_satisfied = write.outcome(now).as_ref() == now;
    Compared { changed_fields, rows, already_satisfied }
}

/// A document that went and came back changed as a whole; what differs now is said field by field all the same.
fn by_field(mut past: Vec<Past>, sides: Sides<'_>) -> Vec<Past> {
    let whole = past.iter().position(|one| one.pointer.is_empty());
    if let (Some(at), Some(_), Some(_)) = (whole, sides.as_read, sides.now) {
        let whole = past.remove(at);
        past.retain(|one| one.version > whole.version);
        for field in diff(sides.as_read, sides.now, sides.keys) {
            if !past.iter().any(|one| touches(&one.pointer, &field.pointer)) {
                past.push(Past { pointer: field.pointer, change: field.change, ..whole.clone() });
            }
        }
    }
    past.sort_by(|a, b| a.pointer.cmp(&b.pointer));
    past
}

/// Of pointers above and below each other those above, so that no field is shown twice. The whole document is shown
/// only where nothing smaller is.
fn outermost(mut pointers: BTreeSet<String>) -> Vec<String> {
    if pointers.len() > 1 {
        pointers.remove("");
    }
    let is_below = |pointer: &&String| {
        let mut above = pointer.match_indices('/').map(|(end, _)| &pointer[..end]);
        above.any(|above| !above.is_empty() && pointers.contains(above))
    };
    pointers.iter().filter(|pointer| !is_below(pointer)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::model::json::tests::values;

    fn past(pointer: &str, version: i64) -> Past {
        let (by, at) = (Author::default(), Timestamp(0));
        Past { pointer: pointer.to_owned(), change: FieldChange::Replace, version, by, at }
    }

    fn compared(verb: Verb, params: Value, as_read: Value, now: Value, past: Vec<Past>) -> Compared {
        let side = |value: &'static Value| if value.is_null() { None } else { Some(value) };
        let (as_read, now) = (Box::leak(Box::new(as_read)), Box::leak(Box::new(now)));
        let keys = ArrayKeys::default();
        compare(Write { verb, params: &params }, Sides { as_read: side(as_read), now: side(now), keys: &keys }, past)
    }

    #[test]
    fn a_replacement_sets_every_field_and_would_undo_what_changed() {
        let as_read = json!({"severity": "high", "to": ["a"], "name": "x"});
        let now = json!({"severity": "critical", "to": ["a"], "name": "x"});
        let mine = json!({"value": {"severity": "high", "to": ["a", "b"], "name": "x"}});
        let found = compared(Verb::Replace, mine, as_read, now, vec![past("/severity", 42)]);
        let field = &found.changed_fields[0];
        assert_eq!(
            (field.pointer.as_str(), field.change, field.in_your_write),
            ("/severity", FieldChange::Replace, true)
        );
        assert_eq!((&field.from, &field.to), (&Some(json!("high")), &Some(json!("critical"))));
        let rows: Vec<_> = found.rows.iter().map(|row| (row.pointer.as_str(), row.overlap)).collect();
        assert_eq!(rows, [("/severity", true), ("/to", false)]);
        assert!(!found.already_satisfied);
    }

    #[test]
    fn a_patch_sets_only_what_it_names() {
        let as_read = json!({"severity": "high", "owner": {"team": "a", "mail": "m"}});
        let now = json!({"severity": "critical", "owner": {"team": "b", "mail": "m"}});
        let changed = || vec![past("/severity", 42), past("/owner/team", 43)];
        for (patch, expected) in [
            (json!({"severity": null}), [false, true]),
            (json!({"owner": null}), [true, false]),
            (json!({"owner": {"team": "b"}}), [true, false]),
            (json!({"owner": {"mail": "n"}, "note": "x"}), [false, false]),
            (json!({}), [false, false]),
        ] {
            let params = json!({"patch": patch});
            let found = compared(Verb::Update, params, as_read.clone(), now.clone(), changed());
            let mine: Vec<_> = found.changed_fields.iter().map(|field| field.in_your_write).collect();
            assert_eq!(mine, expected, "{patch}");
        }
        let same = json!({"patch": {"owner": {"team": "b"}}});
        let found = compared(Verb::Update, same, as_read, now, changed());
        assert!(found.already_satisfied && found.rows.iter().all(|row| !row.overlap));
    }

    #[test]
    fn what_changed_and_changed_back_is_told() {
        let document = json!({"a": 1, "b": 2});
        let back = vec![past("/a", 43), past("/gone", 44)];
        let mine = json!({"patch": {"a": 3}});
        let found = compared(Verb::Update, mine, document.clone(), document, back);
        let told: Vec<_> = found.changed_fields.iter().map(|field| (field.pointer.as_str(), field.version)).collect();
        assert_eq!(told, [("/a", 43), ("/gone", 44)]);
        assert_eq!((&found.changed_fields[1].from, &found.changed_fields[1].to), (&None, &None));
        assert!(found.rows.iter().any(|row| row.pointer == "/a" && row.overlap));
    }

    #[test]
    fn a_deletion_sets_everything_and_is_satisfied_by_absence() {
        let found = compared(Verb::Delete, json!({}), json!({"a": 1}), json!({"a": 2}), vec![past("/a", 2)]);
        assert!(found.changed_fields[0].in_your_write && found.rows[0].overlap && !found.already_satisfied);
        assert_eq!(found.rows.len(), 1);
        let gone = compared(Verb::Delete, json!({}), json!({"a": 1}), Value::Null, vec![past("", 2)]);
        assert!(gone.already_satisfied && gone.changed_fields[0].change == FieldChange::Remove);
        let made = compared(Verb::Create, json!({"value": 1}), Value::Null, json!(1), vec![past("", 1)]);
        assert!(made.already_satisfied && made.changed_fields[0].change == FieldChange::Add);
    }

    #[test]
    fn a_document_that_went_and_came_back_is_compared_by_field() {
        let (old, new) = (json!({"a": 1, "b": 1, "c": 1}), json!({"a": 2, "b": 3, "c": 1}));
        let history = vec![past("", 43), past("/a", 42), past("/b", 44)];
        let found = compared(Verb::Update, json!({"patch": {"c": 2}}), old, new, history);
        let told: Vec<_> = found.changed_fields.iter().map(|field| (field.pointer.as_str(), field.version)).collect();
        assert_eq!(told, [("/a", 43), ("/b", 44)]);
    }

    #[test]
    fn only_what_can_be_made_anew_or_merged_is_left_to_the_agent() {
        use Resolver::*;
        for class in [Regenerable, Mergeable, Exclusive, Irreversible, Destructive] {
            let by = |fields| resolved_by(class, fields) == ResolvedBy::Agent;
            let expected = (class == Regenerable, matches!(class, Regenerable | Mergeable));
            assert_eq!((by(Fields::Shared), by(Fields::Disjoint)), expected, "{class:?}");
        }
    }

    proptest! {
        #[test]
        fn every_difference_is_in_the_view_and_no_field_twice(a in values(), b in values(), mine in values()) {
            let keys = ArrayKeys::default();
            let params = json!({ "value": mine });
            let past = diff(Some(&a), Some(&b), &keys).into_iter().map(|field| past(&field.pointer, 2)).collect();
            let write = Write { verb: Verb::Replace, params: &params };
            let found = compare(write, Sides { as_read: Some(&a), now: Some(&b), keys: &keys }, past);
            for (i, row) in found.rows.iter().enumerate() {
                prop_assert_eq!(&row.as_read, &find(&a, &row.pointer, &keys).cloned());
                prop_assert_eq!(&row.now, &find(&b, &row.pointer, &keys).cloned());
                prop_assert!(!found.rows[..i].iter().any(|other| touches(&other.pointer, &row.pointer)));
                prop_assert!(i == 0 || found.rows[i - 1].overlap >= row.overlap);
            }
            for field in &found.changed_fields {
                prop_assert!(field.in_your_write);
                prop_assert!(found.rows.iter().any(|row| touches(&row.pointer, &field.pointer)));
            }
            prop_assert_eq!(found.already_satisfied, mine == b);
        }
    }
}
