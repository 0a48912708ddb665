//! Run approvals: granted by people, used up by proposals, revoked.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    By, Desk, catalogue as catalogues,
    error::Result,
    operation::{lapse, owner_now, voters},
    ownership,
};
use crate::{
    model::{
        approval::{Role, Voter},
        audit::{Entry, Event},
        id::{ApprovalId, PersonId, RunId},
        kind::Kind,
        operation::{Operation, rules},
        problem::{Code, Problem},
        run::Scope,
        run_approval::{self as bounds, GrantedUnder, KindGlob, RunApproval, Standing},
        time::Timestamp,
    },
    server::{
        ids,
        store::{
            self, Conn, Tx, agent, catalogue,
            committer::{Notice, Topic},
            operation, run, run_approval,
        },
        web::auth::{PersonIdentity, Principal},
    },
};

/// Characters of a reason.
const MAX_REASON: usize = 1_000;

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRunApproval {
    #[schema(min_items = 1, max_items = 50)]
    pub kinds: Vec<KindGlob>,
    /// Exact targets, or prefixes ending in `*`.
    #[schema(min_items = 1, max_items = 50)]
    pub targets: Vec<Scope>,
    /// Operations it covers.
    #[schema(minimum = 1, maximum = 1000)]
    pub max_count: i64,
    /// It ends with the run in any case.
    #[schema(minimum = 1, maximum = 604_800)]
    pub expires_in_s: i64,
    #[serde(default)]
    pub reason: Option<String>,
}

fn check(new: &NewRunApproval) -> std::result::Result<(), Problem> {
    let invalid = |pointer: &str, detail: String| Err(Problem::at(Code::ValidationFailed, pointer, detail));
    for (pointer, len) in [("/kinds", new.kinds.len()), ("/targets", new.targets.len())] {
        if !(1..=bounds::MAX_ENTRIES).contains(&len) {
            return invalid(pointer, format!("expected 1 to {} entries", bounds::MAX_ENTRIES));
        }
    }
    if !(1..=bounds::MAX_COUNT).contains(&new.max_count) {
        return invalid("/max_count", format!("expected 1 to {}", bounds::MAX_COUNT));
    }
    if !(1..=bounds::MAX_LIFE_S).contains(&new.expires_in_s) {
        return invalid("/expires_in_s", format!("expected 1 to {} seconds", bounds::MAX_LIFE_S));
    }
    if new.reason.as_ref().is_some_and(|text| text.chars().count() > MAX_REASON) {
        return invalid("/reason", format!("expected at most {MAX_REASON} characters"));
    }
    Ok(())
}

/// Approves, ahead of time, what a live run with a write set proposes within these bounds.
///
/// # Errors
/// `validation_failed`, also for kinds that are decided one at a time · `not_found` · `run_stopped` ·
/// `outside_write_set` · `self_approval` · `not_eligible`. Who was not entitled is on record.
pub async fn grant(desk: &Desk, person: &PersonIdentity, run: &RunId, new: NewRunApproval) -> Result<RunApproval> {
    check(&new)?;
    let (desk_in, person, run) = (desk.clone(), person.clone(), run.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let by = person.by();
            let granted = grant_in(&desk_in, tx, &person, &run, new).await?;
            if let Err(problem) = &granted
                && problem.code.status() == 403
            {
                let refused =
                    Entry { status: Some(problem.code.as_str()), run: Some(run), ..by.entry(Event::ApprovalRefused) };
                tx.audit(&refused).await?;
            }
            Ok(granted)
        })
    })
    .await
}

async fn grant_in(
    desk: &Desk,
    tx: &mut Tx,
    person: &PersonIdentity,
    id: &RunId,
    new: NewRunApproval,
) -> store::Result<std::result::Result<RunApproval, Problem>> {
    let now = tx.now();
    let Some(run) = run::by_id(tx, id).await? else { return Ok(Err(unknown_run(id))) };
    let agent = agent::by_id(tx, &run.agent).await?;
    let agent = agent.ok_or_else(|| store::Error::corrupt(format!("the agent of `{id}` has gone")))?;
    if agent.owner == *person.id() {
        let detail = "You own this agent: somebody else approves its work. Nothing was granted";
        return Ok(Err(Problem::new(Code::SelfApproval, detail)));
    }
    let run = match ownership::live(Some(run), now) {
        Ok(run) => run,
        Err(problem) => return Ok(Err(problem)),
    };
    if run.write_set.is_none() {
        let detail = "The run did not say what it would write: people decide each of its operations";
        return Ok(Err(Problem::new(Code::OutsideWriteSet, detail)));
    }
    let kinds = match coverable(tx, &new.kinds).await? {
        Ok(kinds) => kinds,
        Err(problem) => return Ok(Err(problem)),
    };
    let policy = desk.policy(tx).await?;
    let defaults = catalogues::defaults(&desk.config);
    let names = [agent.name.as_str(), agent.id.as_str()];
    let rules: Vec<_> = kinds.iter().flat_map(|kind| policy.possible(kind.name.as_str(), names, &defaults)).collect();
    let voter = voters(tx).await?.into_iter().find(|voter| voter.id == *person.id());
    if !voter.is_some_and(|voter| rules.iter().any(|rule| voter.is_eligible(&rule.groups))) {
        let groups: BTreeSet<_> = rules.into_iter().flat_map(|rule| rule.groups).collect();
        let detail = "No rule lets your role and groups approve operations of these kinds. Nothing was granted";
        return Ok(Err(Problem::new(Code::NotEligible, detail).with("groups", groups)));
    }
    let approval = RunApproval {
        id: ids::new(now),
        run: run.id.clone(),
        kinds: new.kinds,
        targets: new.targets,
        max_count: new.max_count,
        used: 0,
        reason: new.reason.filter(|text| !text.trim().is_empty()),
        by: person.id().clone(),
        by_name: person.name().to_owned(),
        created_at: now,
        expires_at: now.plus_seconds(new.expires_in_s).min(run.expires_at),
        revoked: None,
    };
    run_approval::insert(tx, &approval).await?;
    record(tx, &person.by(), Event::AdminRunApproved, &run, &approval, Some(in_words(&approval))).await?;
    Ok(Ok(approval))
}

/// The kinds named by the globs that can be covered at all.
///
/// # Errors
/// `validation_failed` for a glob that names none.
async fn coverable(conn: &mut Conn, globs: &[KindGlob]) -> store::Result<std::result::Result<Vec<Kind>, Problem>> {
    let kinds: std::result::Result<Vec<_>, _> =
        catalogue::kinds(conn).await?.iter().map(|stored| Kind::load(&stored.document)).collect();
    let kinds = kinds.map_err(|problem| store::Error::corrupt(problem.to_string()))?;
    for (i, glob) in globs.iter().enumerate() {
        let named: Vec<_> = kinds.iter().filter(|kind| glob.matches(kind.name.as_str())).collect();
        let detail = match named.is_empty() {
            true => "names no kind of this desk",
            false if named.iter().any(|kind| bounds::may_cover(kind)) => continue,
            false => "names only kinds of high risk or without a version check: people decide those one at a time",
        };
        return Ok(Err(Problem::at(Code::ValidationFailed, format!("/kinds/{i}"), format!("`{glob}` {detail}"))));
    }
    let is_covered = |kind: &Kind| bounds::may_cover(kind) && globs.iter().any(|glob| glob.matches(kind.name.as_str()));
    Ok(Ok(kinds.into_iter().filter(is_covered).collect()))
}

/// Names of the kinds of which some operation can be covered.
///
/// # Errors
/// When the database is away.
pub async fn coverable_kinds(desk: &Desk) -> Result<Vec<String>> {
    let stored = catalogue::kinds(&mut desk.store.read().await?).await?;
    let kinds = stored.iter().filter_map(|stored| Kind::load(&stored.document).ok()).filter(bounds::may_cover);
    Ok(kinds.map(|kind| kind.name.to_string()).collect())
}

fn in_words(approval: &RunApproval) -> String {
    let list = |texts: Vec<String>| texts.join(", ");
    format!(
        "up to {} of {} on {} until {}",
        approval.max_count,
        list(approval.kinds.iter().map(ToString::to_string).collect()),
        list(approval.targets.iter().map(ToString::to_string).collect()),
        approval.expires_at,
    )
}

async fn record(
    tx: &mut Tx,
    by: &By,
    event: Event,
    run: &run::Run,
    approval: &RunApproval,
    reason: Option<String>,
) -> store::Result<()> {
    let entry = Entry { run: Some(run.id.clone()), approval: Some(approval.id.clone()), reason, ..by.entry(event) };
    let seq = tx.audit(&entry).await?;
    let state = run.status(tx.now()).as_str();
    let notice =
        Notice { topic: Topic::Run, subject: run.id.as_str(), agent: Some(run.agent.as_str()), state, version: 1 };
    tx.publish(seq, notice).await
}

/// The record that grants `op`, just proposed and not stored yet.
pub async fn covering(tx: &mut Tx, op: &Operation) -> store::Result<Option<GrantedUnder>> {
    let now = tx.now();
    let records = run_approval::of_run(tx, &op.proposal.run).await?;
    let mut covering = records.into_iter().filter(|record| record.covers(op, now)).peekable();
    if covering.peek().is_none() {
        return Ok(None);
    }
    let voters = voters(tx).await?;
    let owner = owner_now(tx, op).await?;
    let suffices = |by: &PersonId| {
        let voter = voters.iter().find(|voter: &&Voter| voter.id == *by);
        *by != owner && voter.is_some_and(|voter| bounds::suffices(op, voter))
    };
    let found = covering.find(|record| suffices(&record.by));
    Ok(found.map(|record| GrantedUnder { id: record.id, by: record.by, by_name: record.by_name }))
}

/// Uses up one of what the record that grants an operation covers.
pub async fn use_up(tx: &mut Tx, under: &GrantedUnder) -> store::Result<()> {
    if run_approval::count(tx, &under.id).await? {
        Ok(())
    } else {
        Err(store::Error::corrupt(format!("`{}` was used up under the lock", under.id)))
    }
}

/// Who granted `op` ahead of time, while that is in force.
pub async fn in_force(conn: &mut Conn, op: &Operation, now: Timestamp) -> store::Result<Option<PersonId>> {
    let Some(under) = &op.life.approval.run_approval else { return Ok(None) };
    let record = run_approval::find(conn, &under.id).await?;
    Ok(record.filter(|record| record.is_in_force(op, now)).map(|record| record.by))
}

/// All records of a run, the oldest first.
///
/// # Errors
/// `not_found`, also for another agent's run.
pub async fn list(desk: &Desk, principal: &Principal, run: &RunId) -> Result<Vec<RunApproval>> {
    super::run::get(desk, principal, run).await?;
    Ok(run_approval::of_run(&mut desk.store.read().await?, run).await?)
}

/// Revokes a record. What it granted and nobody has claimed waits for people again; revoking it again changes nothing.
///
/// # Errors
/// `not_found` · `forbidden` to all but its granter, the agent's owner and operators.
pub async fn revoke(desk: &Desk, person: &PersonIdentity, run: &RunId, id: &ApprovalId) -> Result<RunApproval> {
    let (person, run, id) = (person.clone(), run.clone(), id.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let Some(record) = run_approval::find(tx, &id).await?.filter(|record| record.run == run) else {
                return Ok(Err(Problem::new(Code::NotFound, "this run has no approval of this id")));
            };
            let Some(run) = run::by_id(tx, &run).await? else { return Ok(Err(unknown_run(&run))) };
            let owner = agent::by_id(tx, &run.agent).await?.map(|agent| agent.owner);
            let may = record.by == *person.id()
                || owner.as_ref() == Some(person.id())
                || matches!(person.role(), Role::Operator | Role::Admin);
            if !may {
                let detail = "a run approval is revoked by who granted it, by the agent's owner or by an operator";
                return Ok(Err(Problem::new(Code::Forbidden, detail)));
            }
            if !run_approval::revoke(tx, &id, person.id()).await? {
                return Ok(Ok(record));
            }
            let by = person.by();
            self::record(tx, &by, Event::AdminRunApprovalRevoked, &run, &record, None).await?;
            for op in operation::unsent_of_run(tx, &run.id).await? {
                let op = lapse(tx, op).await?;
                let is_granted = op.life.approval.run_approval.as_ref().is_some_and(|under| under.id == id);
                if let (true, Some(step)) = (is_granted, rules::withdraw_grant(&op, by.actor.clone(), tx.now())) {
                    operation::apply(tx, &op, by.step(step)).await?;
                }
            }
            let revoked = run_approval::find(tx, &id).await?;
            Ok(Ok(revoked.ok_or_else(|| store::Error::corrupt(format!("`{id}` has gone")))?))
        })
    })
    .await
}

fn unknown_run(id: &RunId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no run `{id}` for you"))
}

/// The record as JSON.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RunApprovalView {
    #[schema(value_type = String)]
    pub id: ApprovalId,
    #[schema(value_type = String)]
    pub run: RunId,
    pub state: Standing,
    pub kinds: Vec<KindGlob>,
    pub targets: Vec<Scope>,
    pub max_count: i64,
    pub used: i64,
    pub reason: Option<String>,
    #[schema(value_type = String)]
    pub by: PersonId,
    pub by_name: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
    #[schema(value_type = Option<String>)]
    pub revoked_by: Option<PersonId>,
}

impl RunApprovalView {
    pub fn new(record: RunApproval, now: Timestamp) -> Self {
        Self {
            state: record.standing(now),
            id: record.id,
            run: record.run,
            kinds: record.kinds,
            targets: record.targets,
            max_count: record.max_count,
            used: record.used,
            reason: record.reason,
            by: record.by,
            by_name: record.by_name,
            created_at: record.created_at,
            expires_at: record.expires_at,
            revoked_at: record.revoked.as_ref().map(|revoked| revoked.at),
            revoked_by: record.revoked.map(|revoked| revoked.by),
        }
    }
}
