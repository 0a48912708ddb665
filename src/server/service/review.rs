//! The review document: what an approver is shown, as data.

use serde_json::Value;

use super::{
    Desk,
    error::Result,
    operation,
    provider::{self, ProviderView},
    resource::managed,
};
use crate::{
    model::{
        approval::{Duplicate, OldPlan, Review},
        document,
        id::OperationId,
        json,
        operation::{Operation, State},
        provider::{Idempotency, Lookup, PROOF_VALID_S},
    },
    server::{
        store::{self, Conn, operation as operations, provider::Guarantee, resource},
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
        guarantee: guarantee(conn, op).await?,
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

/// What is known about a lost answer: what its provider declares, and on which day that was last shown. Days alone, so
/// that the document does not change while it is read.
async fn guarantee(conn: &mut Conn, op: &Operation) -> store::Result<String> {
    if op.proposal.managed {
        return Ok("The document is held here and written with the last vote: no answer can be lost.".to_owned());
    }
    let Some(name) = &op.proposal.provider else {
        let words = "No provider is declared for this kind: a lost answer is unknown until a person has evidence.";
        return Ok(words.to_owned());
    };
    let Some(ProviderView { document: contract, checks, .. }) = provider::find(conn, name).await? else {
        return Ok(format!("{name} has declared no contract here: a lost answer goes to a person."));
    };
    let shown = |guarantee: Guarantee| match checks.iter().find(|check| check.guarantee == guarantee) {
        None => "never shown".to_owned(),
        Some(check) if check.passed => {
            let until = check.checked_at.plus_seconds(PROOF_VALID_S);
            format!("shown on {}, which counts until {}", check.checked_at.day(), until.day())
        }
        Some(check) => format!("not kept when it was checked on {}", check.checked_at.day()),
    };
    let mut words = format!("{}.", contract.sentence());
    if let Idempotency::Honoured(_) = contract.idempotency {
        words.push_str(&format!(" That it honours the key: {}.", shown(Guarantee::Idempotency)));
    }
    if contract.lookup != Lookup::None {
        words.push_str(&format!(" That it can be asked: {}.", shown(Guarantee::Lookup)));
    }
    if let Some(destination) = contract.destination.filter(|_| op.proposal.gateway) {
        words.push_str(&format!(" Counterfoil itself sends it, to {}.", destination.base_url));
    }
    Ok(words)
}
