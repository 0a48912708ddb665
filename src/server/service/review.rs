//! The review document: what an approver is shown, as data.

use serde_json::Value;

use super::{Desk, error::Result, operation, resource::managed};
use crate::{
    model::{
        approval::{Duplicate, OldPlan, Review},
        document,
        id::OperationId,
        json,
        operation::{Operation, State},
    },
    server::{
        store::{self, Conn, operation as operations, resource},
        web::auth::PersonIdentity,
    },
};

/// Other operations named in one document.
const MAX_OTHERS: usize = 20;

/// The review document of an operation, as of now.
///
/// # Errors
/// `not_found`.
pub async fn get(desk: &Desk, person: &PersonIdentity, id: &OperationId) -> Result<(Operation, Review)> {
    let principal = crate::server::web::auth::Principal::Person(person.clone());
    let op = operation::get(desk, &principal, id).await?;
    let review = of(&mut desk.store.read().await?, &op).await?;
    Ok((op, review))
}

/// The document for `op`. It says nothing that changes by time alone or with each step of its neighbours, or a digest
/// would never be met again.
pub async fn of(conn: &mut Conn, op: &Operation) -> store::Result<Review> {
    let p = &op.proposal;
    let target = p.target.as_str();
    let same = operations::same_command(conn, &p.agent, &p.fingerprint).await?;
    let current = match p.expected_version {
        Some(_) if p.managed => managed::shown(conn, target).await?,
        Some(_) => operations::last_succeeded(conn, target).await?.as_ref().map(document::params),
        None => None,
    };
    let others = same.iter().filter(|other| other.id() != op.id());
    let old_plan = match &p.links.replans {
        Some(id) => operations::find(conn, id).await?,
        None => None,
    };
    let replans =
        old_plan.map(|old| OldPlan { changes: super::conflict::differences(&old, op), operation: old.id().clone() });
    let duplicates = others.map(|other| Duplicate { operation: other.id().clone(), state: relevant(other) });
    Ok(Review {
        operation: op.id().clone(),
        content: json::parse(p.canonical.as_bytes(), json::Limits::STORED).unwrap_or(Value::Null),
        fingerprint: p.fingerprint.clone(),
        consequence: p.consequence.clone(),
        rollback: p.rollback.clone(),
        risk: p.risk,
        rule: op.life.approval.rule.clone(),
        policy_version: op.life.approval.policy_version,
        required: op.life.approval.required,
        groups: op.life.approval.groups.clone(),
        current_version: resource::find(conn, target).await?.map(|known| known.current()),
        current,
        duplicates: duplicates.take(MAX_OTHERS).collect(),
        conflicts: op.life.conflict.iter().map(ToString::to_string).collect(),
        replans,
        run_approval: op.life.approval.run_approval.clone(),
        hold_override: op.life.hold_override.clone(),
        guarantee: guarantee(op),
    })
}

/// The state as far as it matters to a reviewer: whether it may have happened, not each step on the way.
fn relevant(other: &Operation) -> State {
    match other.life.state {
        State::Pending | State::Approved | State::Claimed => State::Pending,
        State::Sent | State::Accepted => State::Sent,
        state => state,
    }
}

/// What is known about a lost answer.
fn guarantee(op: &Operation) -> String {
    if op.proposal.managed {
        return "The document is held here and written with the last vote: no answer can be lost.".to_owned();
    }
    match &op.proposal.provider {
        Some(provider) => format!("{provider} has declared no contract here: a lost answer goes to a person."),
        None => {
            "No provider is declared for this kind: a lost answer is unknown until a person has evidence.".to_owned()
        }
    }
}
