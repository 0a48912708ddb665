//! Managed writes: Counterfoil holds the document, so the transaction that approves a write carries it out.

use serde_json::Value;

use super::rules::{self, Appears};
use crate::{
    model::{
        audit::{Actor, Entry, Event},
        diff::{ArrayKeys, diff},
        document,
        fingerprint::Account,
        id::{ClaimId, ConflictId},
        kind::Verb,
        operation::{Operation, State, rules as transitions, rules::Done, rules::ManagedFacts},
        problem::{Code, Problem},
        resource::{Author, MAX_DOCUMENT, VersionChange, outcome_of},
        target::Target,
    },
    server::{
        ids,
        service::{By, Desk, conflict, evidence, operation::standing, ownership, version},
        store::{
            self, Conn, Tx,
            committer::{Notice, Topic},
            operation, resource,
            resource::{Field, Known, Written},
            resource_rule,
        },
    },
};

/// A write of something held here.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub target: &'a Target,
    pub verb: Verb,
    pub params: &'a Value,
    pub expected: Option<i64>,
}

/// What a write makes of its resource.
pub struct Plan {
    known: Option<Known>,
    before: Option<Value>,
    after: Option<Value>,
    keys: ArrayKeys,
}

impl Plan {
    /// Versions go on after a deletion.
    fn version(&self) -> i64 {
        self.known.as_ref().map_or(0, |known| known.version) + 1
    }

    fn change(&self) -> VersionChange {
        match (&self.before, &self.after) {
            (_, None) => VersionChange::Deleted,
            (None, Some(_)) => VersionChange::Created,
            (Some(_), Some(_)) => VersionChange::Changed,
        }
    }
}

/// Works out what the write makes of the resource as it is now, or why it is refused: `stale_version`,
/// `invariant_violated`, `payload_too_large`.
pub async fn plan(
    desk: &Desk,
    conn: &mut Conn,
    wanted: Wanted<'_>,
) -> store::Result<std::result::Result<Plan, Problem>> {
    let target = wanted.target.as_str();
    let known = resource::find(conn, target).await?;
    if known.as_ref().is_some_and(|known| !known.is_managed()) {
        return Ok(Err(Problem::new(
            Code::InvariantViolated,
            format!("`{target}` lives elsewhere, and here only its version is known; no document of it can be written"),
        )
        .with("error", "invariant_violated")
        .with("invariant", "external")));
    }
    let current = known.as_ref().map_or(0, Known::current);
    if let Some(expected) = wanted.expected.filter(|expected| *expected != current) {
        return Ok(Err(transitions::stale_version(target, expected, current)));
    }
    let before = resource::document(conn, target).await?;
    let after = outcome_of(wanted.verb, wanted.params, before.as_ref());
    let rules = rules::of(desk, conn, target).await?;
    if let Some(document) = &after {
        let bytes = document.to_string().len();
        if bytes > MAX_DOCUMENT {
            let detail = format!("the document would be {bytes} bytes long, and {MAX_DOCUMENT} are allowed");
            return Ok(Err(Problem::new(Code::PayloadTooLarge, detail)));
        }
        let appears = if before.is_some() { Appears::Again } else { Appears::Anew };
        if let Some(problem) = rules::violation(conn, &rules, document, appears).await? {
            return Ok(Err(problem));
        }
    }
    Ok(Ok(Plan { known, before, after, keys: rules::array_keys(&rules) }))
}

/// The current document for everybody who decides; nothing where a rule names its readers, since not all of them are.
pub async fn shown(conn: &mut Conn, target: &str) -> store::Result<Option<Value>> {
    let rules = resource_rule::in_force(conn).await?;
    let is_restricted =
        rules.iter().any(|stored| !stored.rule.readers.is_empty() && stored.rule.scope.contains(target));
    if is_restricted { Ok(None) } else { resource::document(conn, target).await }
}

/// Carries out what was approved in this transaction, or ends it as conflicted: rows 11, 13 and 15, or 10.
pub async fn carry_out(
    desk: &Desk,
    tx: &mut Tx,
    by: &By,
    op: Operation,
) -> store::Result<std::result::Result<Operation, Problem>> {
    let params = document::params(&op);
    let p = &op.proposal;
    let wanted = Wanted { target: &p.target, verb: p.verb, params: &params, expected: p.expected_version };
    let plan = match ownership::proposer_may_write(tx, &op).await? {
        Ok(()) => plan(desk, tx, wanted).await?,
        Err(problem) => Err(problem),
    };
    desk.faults.reach("before_managed_write").await;
    let facts = ManagedFacts {
        claim: ids::new::<ClaimId>(tx.now()),
        ttl_s: desk.config.claim_ttl_s,
        standing: standing(desk, tx, &op).await?,
        write: plan.as_ref().map(Plan::version).map_err(Clone::clone),
        conflict: ids::new::<ConflictId>(tx.now()),
    };
    match (transitions::carry_out(&op, facts, tx.now()), plan) {
        (Ok(Done::Step(step)), Ok(plan)) => {
            let op = operation::apply(tx, &op, by.step(step)).await?;
            write(tx, by, &op, &plan).await?;
            desk.faults.reach("after_managed_write").await;
            Ok(Ok(op))
        }
        (Ok(Done::Refused(step, problem)), _) => {
            if step.life.state != State::Conflicted {
                operation::apply(tx, &op, by.step(step)).await?;
                return Ok(Err(problem));
            }
            let met = conflict::met(tx, op.proposal.target.as_str()).await?;
            Ok(Ok(conflict::end(tx, by, &op, step, &problem, met).await?))
        }
        (Ok(Done::Step(_) | Done::Already), _) => Ok(Ok(op)),
        (Err(problem), _) => Ok(Err(problem)),
    }
}

async fn write(tx: &mut Tx, by: &By, op: &Operation, plan: &Plan) -> store::Result<()> {
    let target = op.proposal.target.as_str();
    let salt = match resource::salt(tx, target).await? {
        Some(salt) => salt,
        None => ids::Secret::new().reveal().to_owned(),
    };
    let digest = |value: Option<&Value>| value.map(|value| evidence::digest(&salt, value));
    let changes = diff(plan.before.as_ref(), plan.after.as_ref(), &plan.keys);
    let fields: Vec<_> = changes
        .into_iter()
        .map(|change| Field {
            old_digest: digest(change.from.as_ref()),
            new_digest: digest(change.to.as_ref()),
            pointer: change.pointer,
            change: change.change,
        })
        .collect();
    let author = author(op);
    let written = Written {
        target,
        after: plan.known.as_ref().map_or(0, |known| known.version),
        version: plan.version(),
        change: plan.change(),
        document: plan.after.as_ref(),
        salt: &salt,
        by: author.person.as_ref().map_or(op.proposal.run.as_str(), |person| person.as_str()),
        author: &author,
        fields: &fields,
    };
    if !resource::write(tx, &written).await? {
        return Err(store::Error::corrupt(format!("`{target}` changed under the lock")));
    }
    let event = match plan.change() {
        VersionChange::Created => Event::ResourceCreated,
        VersionChange::Deleted => Event::ResourceDeleted,
        VersionChange::Changed | VersionChange::Observed => Event::ResourceChanged,
    };
    let record = Entry {
        expected_version: op.proposal.expected_version,
        result_version: Some(plan.version()),
        ..by.on(transitions::entry(op, event, Actor::built_in("managed")))
    };
    let seq = tx.audit(&record).await?;
    let notice = Notice {
        topic: Topic::Resource,
        subject: target,
        agent: Some(op.proposal.agent.as_str()),
        state: plan.change().as_str(),
        version: plan.version(),
    };
    tx.publish(seq, notice).await?;
    version::overtake(tx, by, target, plan.version()).await
}

/// Who a version is by: a run and its agent, or the person who wrote by hand.
pub fn author(op: &Operation) -> Author {
    let p = &op.proposal;
    let by_hand = match document::account(op) {
        Account::Person(person) => Some(person),
        Account::Agent(_) => None,
    };
    let is_program = by_hand.is_none();
    Author {
        run: is_program.then(|| p.run.clone()),
        operation: Some(p.id.clone()),
        agent: is_program.then(|| p.agent.clone()),
        approval: Some(op.life.approval.id.clone()),
        person: by_hand,
    }
}
