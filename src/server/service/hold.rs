//! Lifting, for one operation, what holds its target back.

use super::{
    Desk,
    decide::carry_out,
    error::Result,
    operation::{load, owner_now},
};
use crate::{
    model::{
        audit::Event,
        id::OperationId,
        operation::{HoldOverride, Operation, rules},
        problem::{Code, Problem},
    },
    server::web::auth::Operator,
};

/// Lets an operation of which nothing was sent pass a doubtful outcome and a release lock on its target.
///
/// # Errors
/// `self_approval` to the agent's owner · `invalid_state` once something was sent, or it has ended.
pub async fn override_hold(desk: &Desk, operator: &Operator, id: &OperationId, reason: String) -> Result<Operation> {
    let (operator, id) = (operator.clone(), id.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let op = match load(tx, &id).await? {
                Ok(op) => op,
                Err(problem) => return Ok(Err(problem)),
            };
            let is_self = *operator.id() == op.proposal.owner || *operator.id() == owner_now(tx, &op).await?;
            let result = if is_self {
                Err(Problem::new(
                    Code::SelfApproval,
                    "You own this agent: somebody else lifts what holds its work back",
                ))
            } else {
                let by = HoldOverride {
                    by: operator.id().clone(),
                    by_name: operator.name().to_owned(),
                    reason,
                    at: tx.now(),
                };
                rules::override_hold(&op, by, tx.now())
            };
            carry_out(tx, &operator.by(), op, Event::ApprovalRefused, result).await
        })
    })
    .await
}
