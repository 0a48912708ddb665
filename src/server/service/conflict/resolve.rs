//! What is decided about a conflict, once.

use serde::Deserialize;
use utoipa::ToSchema;

use super::{AsOf, Conflict, facts, may_see, not_found};
use crate::{
    model::{
        approval::Role,
        audit::Event,
        conflict::{Action, ConflictResolution, ResolvedBy},
        id::ConflictId,
        operation::{Operation, rules, rules::Done},
        problem::{Code, Problem},
    },
    server::{
        service::{By, Desk, error::Result, operation::record_refusal},
        store::{self, Conn, Tx, conflict, operation, resource},
        web::auth::{PersonIdentity, Principal, RunIdentity},
    },
};

/// Characters of an instruction, and of a note.
const MAX_WORDS: usize = 2_000;

/// A decision about a conflict, as it is sent.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolveRequest {
    pub action: Action,
    /// What the agent is to do; with `replan` only.
    #[serde(default)]
    pub instruction: Option<String>,
    /// Why; for people.
    #[serde(default)]
    pub note: Option<String>,
}

impl ResolveRequest {
    fn checked(self) -> std::result::Result<Self, Problem> {
        for (pointer, words) in [("/instruction", &self.instruction), ("/note", &self.note)] {
            if words.as_ref().is_some_and(|words| words.chars().count() > MAX_WORDS) {
                let detail = format!("expected at most {MAX_WORDS} characters");
                return Err(Problem::at(Code::ValidationFailed, pointer, detail));
            }
        }
        let said = |words: Option<String>| words.filter(|words| !words.trim().is_empty());
        let request = Self { action: self.action, instruction: said(self.instruction), note: said(self.note) };
        if request.instruction.is_some() && request.action != Action::Replan {
            let detail = "only `replan` asks the agent to do something; write a `note` instead";
            return Err(Problem::at(Code::ValidationFailed, "/instruction", detail));
        }
        Ok(request)
    }
}

/// Records what `principal` decides about a conflict; its agent is told on the operation.
///
/// # Errors
/// `not_found`, `forbidden`, `humans_only`, and `already_decided` with who and when. The same decision again is answered
/// like the first time.
pub async fn resolve(
    desk: &Desk,
    principal: &Principal,
    id: &ConflictId,
    request: ResolveRequest,
) -> Result<(Conflict, Operation)> {
    let request = request.checked()?;
    let (desk_in, principal, id) = (desk.clone(), principal.clone(), id.clone());
    desk.commit(move |tx| Box::pin(async move { resolve_in(&desk_in, tx, &principal, &id, request).await })).await
}

async fn resolve_in(
    desk: &Desk,
    tx: &mut Tx,
    principal: &Principal,
    id: &ConflictId,
    request: ResolveRequest,
) -> store::Result<std::result::Result<(Conflict, Operation), Problem>> {
    let Some(conflict) = conflict::find(tx, id).await? else { return Ok(Err(not_found())) };
    let op = operation::find(tx, &conflict.operation).await?.filter(|op| may_see(principal, op));
    let Some(op) = op else { return Ok(Err(not_found())) };
    let by = principal.by();
    let name = match may_resolve(desk, tx, principal, &op, request.action).await? {
        Ok(name) => name,
        Err(problem) => {
            record_refusal(tx, &by, &op, Event::ReportRefused, &problem).await?;
            return Ok(Err(problem));
        }
    };
    let resolution = ConflictResolution {
        action: request.action,
        instruction: request.instruction,
        note: request.note,
        by: by.actor.clone(),
        by_name: name,
        at: tx.now(),
        version: version_now(tx, &op).await?,
    };
    store_resolution(tx, &by, conflict, op, resolution).await
}

/// The version of the target that the decision is about.
async fn version_now(conn: &mut Conn, op: &Operation) -> store::Result<Option<i64>> {
    Ok(resource::find(conn, op.proposal.target.as_str()).await?.map(|known| known.version))
}

async fn store_resolution(
    tx: &mut Tx,
    by: &By,
    conflict: Conflict,
    op: Operation,
    resolution: ConflictResolution,
) -> store::Result<std::result::Result<(Conflict, Operation), Problem>> {
    match rules::resolve_conflict(&op, resolution.clone(), tx.now()) {
        Ok(Done::Step(step)) => {
            let op = operation::apply(tx, &op, by.step(step)).await?;
            let conflict = Conflict { resolution: Some(resolution), ..conflict };
            if !conflict::resolve(tx, &conflict).await? {
                return Err(store::Error::corrupt(format!("`{}` was resolved under the lock", conflict.id)));
            }
            Ok(Ok((conflict, op)))
        }
        Ok(Done::Already) => Ok(Ok((conflict, op))),
        Ok(Done::Refused(_, problem)) | Err(problem) => Ok(Err(problem)),
    }
}

/// The name of who decides, if they may. A run decides only that what it wanted is there already.
async fn may_resolve(
    desk: &Desk,
    conn: &mut Conn,
    principal: &Principal,
    op: &Operation,
    action: Action,
) -> store::Result<std::result::Result<String, Problem>> {
    Ok(match principal {
        Principal::Person(person) => by_person(person),
        Principal::Run(run) if action == Action::AcceptCurrent => match run.live() {
            Ok(()) => by_run(desk, conn, run, op).await?,
            Err(problem) => Err(problem),
        },
        Principal::Run(_) | Principal::Agent(_) | Principal::Executor(_) => {
            let detail = "A person decides about a conflict; a run may accept what is there when it is what it wanted";
            Err(Problem::new(Code::HumansOnly, detail))
        }
    })
}

/// Whether `person` decides about conflicts at all.
pub(super) fn by_person(person: &PersonIdentity) -> std::result::Result<String, Problem> {
    match person.role() {
        Role::Approver | Role::Operator | Role::Admin => Ok(person.name().to_owned()),
        Role::Viewer | Role::Auditor => {
            let detail = "An approver, an operator or an admin decides about conflicts. Nothing was decided";
            Err(Problem::new(Code::Forbidden, detail))
        }
    }
}

async fn by_run(
    desk: &Desk,
    conn: &mut Conn,
    run: &RunIdentity,
    op: &Operation,
) -> store::Result<std::result::Result<String, Problem>> {
    // A decision made is told as such, whatever is there now.
    let is_decided = op.life.conflict_resolution.is_some();
    if is_decided || facts(desk, conn, op, AsOf::Now).await?.already_satisfied {
        return Ok(Ok(run.agent_name().to_owned()));
    }
    let detail = "What is there now is not what this write wanted; a person decides, or plan it anew with `replans`";
    Ok(Err(Problem::new(Code::HumansOnly, detail)))
}

/// Links `old` to the operation that is its new plan. Where the way on was the agent's to find, that settles the
/// conflict.
pub async fn replanned(
    desk: &Desk,
    tx: &mut Tx,
    by: &By,
    agent_name: &str,
    old: Operation,
    new: &Operation,
) -> store::Result<()> {
    let Ok(Done::Step(step)) = rules::replan(&old, new.id(), tx.now()) else { return Ok(()) };
    let old = operation::apply(tx, &old, by.step(step)).await?;
    let Some(id) = old.life.conflict.clone().filter(|_| old.life.conflict_resolution.is_none()) else {
        return Ok(());
    };
    let Some(conflict) = conflict::find(tx, &id).await? else { return Ok(()) };
    if facts(desk, tx, &old, AsOf::Now).await?.resolver != ResolvedBy::Agent {
        return Ok(());
    }
    let resolution = ConflictResolution {
        action: Action::Replan,
        instruction: None,
        note: Some(format!("planned anew as {}", new.id())),
        by: by.actor.clone(),
        by_name: agent_name.to_owned(),
        at: tx.now(),
        version: version_now(tx, &old).await?,
    };
    store_resolution(tx, by, conflict, old, resolution).await.map(drop)
}
