//! Who looks into an outcome nobody is sure of, and until when.

use serde::Deserialize;
use utoipa::ToSchema;

use super::{Desk, decide::carry_out, error::Result, evidence, operation::load};
use crate::{
    model::{
        approval::Role,
        audit::Event,
        id::OperationId,
        operation::{Operation, State, rules},
        problem::{Code, Problem},
        time::Timestamp,
    },
    server::{
        store::{Conn, Result as Stored, operation, person},
        web::auth::Operator,
    },
};

/// The furthest due time. Seconds.
const MAX_DUE_S: i64 = 30 * 24 * 3600;

/// What changes of a case; what is left out stays.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// The name of an operator or an admin.
    #[serde(default)]
    pub owner: Option<String>,
    #[serde(default)]
    pub due_at: Option<Timestamp>,
}

/// Names of those who may own a case.
pub async fn owners(conn: &mut Conn) -> Stored<Vec<String>> {
    let people = person::list(conn).await?.into_iter();
    let can =
        |person: &person::Person| person.disabled_at.is_none() && matches!(person.role, Role::Operator | Role::Admin);
    Ok(people.filter(can).map(|person| person.name).collect())
}

/// Hands a case to somebody, or moves its due time; an outcome that is unknown and has no case gets one.
///
/// # Errors
/// `validation_failed` for a name of nobody who may own it, or a due time that is not ahead · `invalid_state` where
/// nothing is doubtful.
pub async fn assign(desk: &Desk, operator: &Operator, id: &OperationId, assignment: Assignment) -> Result<Operation> {
    let (operator, id) = (operator.clone(), id.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let mut op = match load(tx, &id).await? {
                Ok(op) => op,
                Err(problem) => return Ok(Err(problem)),
            };
            let Assignment { owner, due_at } = assignment;
            let invalid = |pointer, detail: &str| Ok(Err(Problem::at(Code::ValidationFailed, pointer, detail)));
            if owner.is_none() && due_at.is_none() {
                return invalid("/owner", "expected an owner, a due time, or both");
            }
            if let Some(name) = &owner
                && !owners(tx).await?.contains(name)
            {
                return invalid("/owner", "expected the name of an operator or an admin");
            }
            if due_at.is_some_and(|at| at <= tx.now() || at > tx.now().plus_seconds(MAX_DUE_S)) {
                return invalid("/due_at", "expected a time from now on, within 30 days");
            }
            let (by, now) = (operator.by(), tx.now());
            if op.life.state == State::Unknown {
                let case = evidence::case(&op, "an operator took it up", now);
                match rules::open_review(&op, case, by.actor.clone(), now) {
                    Ok(step) => op = operation::apply(tx, &op, by.step(step)).await?,
                    Err(problem) => return Ok(Err(problem)),
                }
            }
            let result = rules::assign(&op, owner, due_at, by.actor.clone(), now);
            carry_out(tx, &by, op, Event::ReportRefused, result).await
        })
    })
    .await
}
