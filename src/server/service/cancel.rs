//! Taking back what was not sent.

use super::{
    By, Desk,
    decide::carry_out,
    error::Result,
    operation::{load, sees},
};
use crate::{
    model::{
        approval::Role,
        audit::{Actor, Event},
        id::{OperationId, RunId},
        operation::{Operation, rules},
        problem::{Code, Problem},
    },
    server::{
        store::{self, Tx, operation},
        web::auth::Principal,
    },
};

/// Characters of a reason.
const MAX_REASON: usize = 1_000;

/// Cancels an operation of which nothing was sent.
///
/// # Errors
/// `forbidden` to all but a live run of its agent, the owner and operators; `invalid_state` once it was sent.
pub async fn cancel(desk: &Desk, principal: &Principal, id: &OperationId, reason: String) -> Result<Operation> {
    if reason.trim().is_empty() || reason.chars().count() > MAX_REASON {
        let detail = format!("a reason has 1 to {MAX_REASON} characters");
        return Err(Problem::at(Code::ValidationFailed, "/reason", detail).into());
    }
    let (principal, id) = (principal.clone(), id.clone());
    desk.commit(move |tx| Box::pin(async move { cancel_in(tx, &principal, &id, &reason).await })).await
}

async fn cancel_in(
    tx: &mut Tx,
    principal: &Principal,
    id: &OperationId,
    reason: &str,
) -> store::Result<std::result::Result<Operation, Problem>> {
    let Some(op) = operation::find(tx, id).await?.filter(|op| sees(principal, op)) else {
        return Ok(Err(super::operation::not_found()));
    };
    let owner = super::operation::owner_now(tx, &op).await?;
    let (right, name) = match principal {
        Principal::Run(run) => (run.live(), None),
        Principal::Person(person) => {
            let may = *person.id() == owner || matches!(person.role(), Role::Operator | Role::Admin);
            let refusal = Problem::new(Code::Forbidden, "The agent's owner, an operator or an admin may cancel this");
            (may.then_some(()).ok_or(refusal), Some(person.name().to_owned()))
        }
        Principal::Agent(_) | Principal::Executor(_) => {
            (Err(Problem::new(Code::Forbidden, "A run of the agent, its owner or an operator may cancel this")), None)
        }
    };
    let op = match load(tx, id).await? {
        Ok(op) => op,
        Err(problem) => return Ok(Err(problem)),
    };
    let by = principal.by();
    let result = match right {
        Ok(()) => rules::cancel(&op, by.actor.clone(), name, reason, tx.now()),
        Err(problem) => Err(problem),
    };
    carry_out(tx, &by, op, Event::ReportRefused, result).await
}

/// Cancels what a run that has stopped or expired has not sent.
pub async fn all_unsent_of_run(tx: &mut Tx, by: &By, run: &RunId, reason: &str) -> store::Result<()> {
    let now = tx.now();
    for op in operation::unsent_of_run(tx, run).await? {
        let op = super::operation::lapse(tx, op).await?;
        if let Ok(rules::Done::Step(step)) = rules::cancel(&op, Actor::system("desk"), None, reason, now) {
            operation::apply(tx, &op, by.step(step)).await?;
        }
    }
    Ok(())
}
