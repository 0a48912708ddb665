//! Conflicts: refused writes that are kept, with what they met and the way on.

mod resolve;
mod sheet;

use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::{
    By, Desk,
    error::{Error, Result},
    operation::sees,
    resource::{may_read, rules},
};
use crate::{
    model::{
        conflict::{
            Conflict, ConflictState, Facts, Fields, Met, ReportedBy, ResolvedBy, Sides, Write, compare, is_conflict,
            resolved_by,
        },
        diff::{ArrayKeys, FieldDiff, diff},
        document::{self, ResolutionDoc},
        fingerprint::Command,
        id::{AgentId, ConflictId, OperationId},
        kind::Resolver,
        operation::{Operation, rules::Step},
        problem::{Code, Problem, Retry, RetryMode},
        time::Timestamp,
    },
    server::{
        ids,
        store::{self, Conn, Tx, conflict, conflict::Filter, operation, resource},
        web::auth::Principal,
    },
};

pub use resolve::{ResolveRequest, replanned, resolve};
pub use sheet::{
    ConflictSheet, Hand, Line, LinesQuery, Listed, Plan, Rights, Values, VersionStep, list as lines, plan, sheet,
};

/// Changed fields that one answer names.
const MAX_FIELDS: usize = 500;

// Records

/// Ends `op` as conflicted by `step`, and keeps the refusal with what it met.
pub async fn end(
    tx: &mut Tx,
    by: &By,
    op: &Operation,
    step: Step,
    problem: &Problem,
    met: Met,
) -> store::Result<Operation> {
    let mut ended = end_all(tx, by, vec![(op, step, problem.clone())], &met).await?;
    ended.pop().ok_or_else(|| store::Error::corrupt(format!("`{}` has gone", op.id())))
}

/// The same of all operations that met this.
pub async fn end_all(
    tx: &mut Tx,
    by: &By,
    refused: Vec<(&Operation, Step, Problem)>,
    met: &Met,
) -> store::Result<Vec<Operation>> {
    let mut steps = Vec::with_capacity(refused.len());
    let mut kept = Vec::with_capacity(refused.len());
    for (op, mut step, problem) in refused {
        let id: ConflictId = step.life.conflict.take().unwrap_or_else(|| ids::new(tx.now()));
        step.life.conflict = Some(id.clone());
        steps.push((op, by.step(step)));
        kept.push((
            &op.proposal.agent,
            Conflict { met: met.clone(), ..Conflict::of(id, op, &problem, false, tx.now()) },
        ));
    }
    let ended = operation::apply_all(tx, steps).await?;
    conflict::insert(tx, &kept).await?;
    Ok(ended)
}

/// What an operation comes to whose destination refused it as conflicting, and applied nothing.
pub fn refused_by_destination(op: &Operation) -> Problem {
    let target = &op.proposal.target;
    let detail = format!("The destination refused the write to `{target}` as conflicting. Nothing was written");
    Problem::new(Code::StaleVersion, detail)
        .with("error", Code::StaleVersion)
        .with("category", Code::StaleVersion)
        .with("resource", target)
        .with("expected_version", op.proposal.expected_version)
        .safe_new_key(true)
}

/// The version that stands against a write to `target` now, and who made it.
pub async fn met(conn: &mut Conn, target: &str) -> store::Result<Met> {
    let newest = resource::history(conn, target, None, 1).await?.pop();
    Ok(newest.map_or_else(Met::default, |row| Met { version: Some(row.version), author: row.author, reported: None }))
}

// Facts

/// As of which version of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AsOf {
    Version(i64),
    Now,
}

/// What the write of `op` met, with all values.
async fn facts(desk: &Desk, conn: &mut Conn, op: &Operation, as_of: AsOf) -> store::Result<Facts> {
    let p = &op.proposal;
    let target = p.target.as_str();
    let class = class(desk, conn, op).await?;
    let known = resource::find(conn, target).await?;
    let expected = p.expected_version;
    let managed = known.as_ref().filter(|known| known.is_managed());
    let (Some(known), true, Some(expected)) = (managed, p.managed, expected) else {
        let elsewhere = known.as_ref().is_some_and(|known| !known.is_managed());
        let before = match as_of {
            AsOf::Version(version) => Some(version.saturating_add(1)),
            AsOf::Now => None,
        };
        let newest = resource::history(conn, target, before, 1).await?.pop();
        return Ok(Facts {
            expected_version: expected,
            current_version: match (as_of, &newest) {
                (AsOf::Version(_), Some(row)) => Some(row.version),
                _ => known.as_ref().map(resource::Known::current),
            },
            changed_fields: Vec::new(),
            changed_fields_complete: false,
            already_satisfied: false,
            resolver: resolved_by(class, Fields::Shared),
            rows: Vec::new(),
            reported_by: newest.filter(|_| elsewhere).map(|row| ReportedBy { id: row.by, at: row.at }),
        });
    };
    let upto = match as_of {
        AsOf::Version(version) => version.min(known.version),
        AsOf::Now => known.version,
    };
    let as_read = resource::document_at(conn, target, expected).await?;
    let now = resource::document_at(conn, target, upto).await?;
    // One more than is told shows that there are more.
    let mut past = resource::changes_between(conn, target, expected, upto, MAX_FIELDS as i64 + 1).await?;
    let is_complete = past.len() <= MAX_FIELDS && expected <= upto && (expected == 0 || as_read.is_some());
    past.truncate(MAX_FIELDS);
    let keys = rules::array_keys(&rules::of(desk, conn, target).await?);
    let params = document::params(op);
    let write = Write { verb: p.verb, params: &params };
    let found = compare(write, Sides { as_read: as_read.as_ref(), now: now.as_ref(), keys: &keys }, past);
    let is_disjoint = is_complete && found.changed_fields.iter().all(|field| !field.in_your_write);
    Ok(Facts {
        expected_version: Some(expected),
        current_version: Some(if now.is_some() { upto } else { 0 }),
        changed_fields: found.changed_fields,
        changed_fields_complete: is_complete,
        already_satisfied: found.already_satisfied,
        resolver: resolved_by(class, if is_disjoint { Fields::Disjoint } else { Fields::Shared }),
        rows: found.rows,
        reported_by: None,
    })
}

/// What a stale write of the operation's kind calls for.
async fn class(desk: &Desk, conn: &mut Conn, op: &Operation) -> store::Result<Resolver> {
    let kind = desk.kind(conn, &op.proposal.kind, Some(op.proposal.kind_version)).await?;
    Ok(kind.map(|kind| kind.kind.resolver).unwrap_or_default())
}

/// The facts as `reader` may see them: as the conflict was refused, as it was decided, or as things are now.
async fn told_facts(
    desk: &Desk,
    conn: &mut Conn,
    reader: &Principal,
    op: &Operation,
    as_of: AsOf,
) -> store::Result<(Facts, Values)> {
    let facts = facts(desk, conn, op, as_of).await?;
    Ok(match may_read(conn, reader, op.proposal.target.as_str()).await? {
        true => (facts, Values::Shown),
        false => (facts.without_values(), Values::Withheld),
    })
}

/// A decided conflict stays as it was decided.
fn as_of(conflict: &Conflict) -> AsOf {
    let decided = conflict.resolution.as_ref().and_then(|resolution| resolution.version);
    decided.map_or(AsOf::Now, AsOf::Version)
}

// What a refusal says

/// `result`, with what the refused caller may know about the conflict that it met: an operation that was kept has its
/// facts, any other conflict its envelope. `about` is the operation that the request named.
///
/// # Errors
/// Those of `result`.
pub async fn told<T>(desk: &Desk, caller: &Principal, about: Option<&OperationId>, result: Result<T>) -> Result<T> {
    match result {
        Err(Error::Refused(problem)) if is_conflict(problem.code) => {
            Err(explained(desk, caller, about, problem).await?.into())
        }
        result => result,
    }
}

async fn explained(desk: &Desk, caller: &Principal, about: Option<&OperationId>, problem: Problem) -> Result<Problem> {
    let mut conn = desk.store.read().await?;
    let conn = &mut conn;
    let named = problem.members.get("conflict_id").and_then(|id| id.as_str()).and_then(|id| id.parse().ok());
    let mut op = match about {
        Some(id) => operation::find(conn, id).await?,
        None => None,
    };
    let id = named.or_else(|| op.as_ref().and_then(|op| op.life.conflict.clone()));
    let Some(kept) = (match id {
        Some(id) => conflict::find(conn, &id).await?,
        None => None,
    }) else {
        return Ok(match op {
            Some(op) => {
                let class = class(desk, conn, &op).await?;
                let problem = enveloped(problem, op.proposal.target.as_str(), class);
                problem.with("operation", json!({"id": op.id(), "state": op.state()}))
            }
            None => problem,
        });
    };
    if op.as_ref().map(Operation::id) != Some(&kept.operation) {
        op = operation::find(conn, &kept.operation).await?;
    }
    let Some(op) = op else { return Ok(problem) };
    let class = class(desk, conn, &op).await?;
    let problem = enveloped(kept.problem(), op.proposal.target.as_str(), class);
    if kept.code != Code::StaleVersion {
        return Ok(problem);
    }
    let as_of = kept.met.version.map_or(AsOf::Now, AsOf::Version);
    Ok(told_facts(desk, conn, caller, &op, as_of).await?.0.into_problem(problem))
}

/// The members that every conflict carries.
pub fn enveloped(problem: Problem, target: &str, class: Resolver) -> Problem {
    // What passes by itself needs nobody.
    let resolver = match problem.retry.mode {
        RetryMode::SameKey => ResolvedBy::Agent,
        _ => resolved_by(class, Fields::Shared),
    };
    let code = problem.code;
    let missing = |problem: &Problem, name: &str| !problem.members.contains_key(name);
    let mut problem = problem;
    for (name, value) in
        [("error", json!(code)), ("category", json!(code)), ("resource", json!(target)), ("resolver", json!(resolver))]
    {
        if missing(&problem, name) {
            problem = problem.with(name, value);
        }
    }
    problem
}

// Reading

fn not_found() -> Problem {
    Problem::new(Code::NotFound, "There is no such conflict, or it is not yours to see")
}

/// A conflict as it is read over HTTP.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ConflictDoc {
    #[schema(value_type = String)]
    pub id: ConflictId,
    pub state: ConflictState,
    /// Of the refusal.
    #[schema(value_type = String)]
    pub code: Code,
    #[schema(value_type = String)]
    pub error: Code,
    #[schema(value_type = String)]
    pub category: Code,
    pub detail: String,
    pub resource: String,
    pub kind: String,
    #[schema(value_type = Object)]
    pub operation: serde_json::Value,
    /// Whose write was refused.
    #[schema(value_type = String)]
    pub agent: AgentId,
    /// Whose change it met, where that went through this desk.
    #[schema(value_type = Option<String>)]
    pub met_agent: Option<AgentId>,
    pub expected_etag: Option<String>,
    pub current_etag: Option<String>,
    #[serde(flatten)]
    pub facts: Facts,
    pub values: Values,
    /// What the destination said, where it refused the write itself.
    #[schema(value_type = Option<Object>)]
    pub reported: Option<serde_json::Value>,
    pub retryable: bool,
    #[schema(value_type = Object)]
    pub retry: Retry,
    pub safe_new_key: bool,
    pub at: Timestamp,
    pub resolution: Option<ResolutionDoc>,
    /// The operation that the refused one was itself a new plan of.
    #[schema(value_type = Option<String>)]
    pub replans: Option<OperationId>,
    /// The operation that takes the place of the refused one.
    #[schema(value_type = Option<String>)]
    pub replanned_by: Option<OperationId>,
}

/// One conflict with its facts: as things are now while it is open, as it was decided afterwards.
///
/// # Errors
/// `not_found`, also for what is not the caller's to see.
pub async fn read(desk: &Desk, reader: &Principal, id: &ConflictId) -> Result<(ConflictDoc, Operation)> {
    let mut conn = desk.store.read().await?;
    let (conflict, op) = visible(&mut conn, reader, id).await?;
    let (facts, values) = told_facts(desk, &mut conn, reader, &op, as_of(&conflict)).await?;
    Ok((document_of(conflict, &op, facts, values), op))
}

async fn visible(conn: &mut Conn, reader: &Principal, id: &ConflictId) -> Result<(Conflict, Operation)> {
    let conflict = conflict::find(conn, id).await?.ok_or_else(not_found)?;
    let op = operation::find(conn, &conflict.operation).await?.filter(|op| may_see(reader, op));
    Ok((conflict, op.ok_or_else(not_found)?))
}

/// People see all conflicts, an agent and its runs their own; an executor works on none.
fn may_see(reader: &Principal, op: &Operation) -> bool {
    !matches!(reader, Principal::Executor(_)) && sees(reader, op)
}

fn document_of(conflict: Conflict, op: &Operation, facts: Facts, values: Values) -> ConflictDoc {
    let etag = |version: Option<i64>| version.map(crate::model::etag::of);
    ConflictDoc {
        state: conflict.state(),
        code: conflict.code,
        error: conflict.code,
        category: conflict.code,
        kind: op.proposal.kind.clone(),
        operation: json!({"id": op.id(), "state": op.state(), "version": op.life.version}),
        agent: op.proposal.agent.clone(),
        met_agent: conflict.met.author.agent.clone(),
        expected_etag: etag(facts.expected_version),
        current_etag: etag(facts.current_version),
        facts,
        values,
        reported: conflict.met.reported.filter(|_| values == Values::Shown),
        retryable: conflict.retry.mode == RetryMode::SameKey,
        retry: conflict.retry,
        safe_new_key: conflict.safe_new_key,
        at: conflict.at,
        resolution: conflict.resolution.as_ref().map(ResolutionDoc::of),
        replans: op.proposal.links.replans.clone(),
        replanned_by: op.life.replanned_by.clone(),
        id: conflict.id,
        detail: conflict.detail,
        resource: conflict.resource,
    }
}

// Lists

/// What a list asks for.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
pub struct ListQuery {
    pub state: Option<ConflictState>,
    pub kind: Option<String>,
    pub target: Option<String>,
    /// Whose write was refused.
    #[param(value_type = Option<String>)]
    pub agent: Option<AgentId>,
    #[param(value_type = Option<String>)]
    pub cursor: Option<ConflictId>,
    pub limit: Option<i64>,
}

const PAGE: i64 = 50;
const MAX_PAGE: i64 = 200;

/// A conflict in a list: without its facts.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ConflictLine {
    #[schema(value_type = String)]
    pub id: ConflictId,
    pub state: ConflictState,
    #[schema(value_type = String)]
    pub code: Code,
    pub kind: String,
    pub resource: String,
    #[schema(value_type = String)]
    pub operation: OperationId,
    /// Whose write was refused.
    #[schema(value_type = String)]
    pub agent: AgentId,
    /// Whose change it met.
    #[schema(value_type = Option<String>)]
    pub met_agent: Option<AgentId>,
    pub detail: String,
    pub at: Timestamp,
    pub resolution: Option<ResolutionDoc>,
}

/// One page, the newest first, and where the next one begins.
///
/// # Errors
/// `forbidden` to executors; when the database is away.
pub async fn list(
    desk: &Desk,
    reader: &Principal,
    query: ListQuery,
) -> Result<(Vec<ConflictLine>, Option<ConflictId>)> {
    let agent = match reader {
        Principal::Person(_) => query.agent,
        Principal::Run(_) | Principal::Agent(_) => match (reader.agent(), query.agent) {
            (Some(own), Some(asked)) if *own != asked => return Ok((Vec::new(), None)),
            (own, _) => own.cloned(),
        },
        Principal::Executor(_) => {
            return Err(
                Problem::new(Code::Forbidden, "Conflicts are read by people and by the agent they are of").into()
            );
        }
    };
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let filter = Filter {
        state: query.state,
        kind: query.kind,
        target: query.target,
        agent,
        before: query.cursor,
        limit: limit + 1,
        ..Filter::default()
    };
    let mut found = conflict::list(&mut desk.store.read().await?, &filter).await?;
    let has_more = found.len() as i64 > limit;
    found.truncate(limit as usize);
    let next = found.last().filter(|_| has_more).map(|last| last.conflict.id.clone());
    let lines = found.into_iter().map(|listed| {
        let conflict = listed.conflict;
        ConflictLine {
            state: conflict.state(),
            resolution: conflict.resolution.as_ref().map(ResolutionDoc::of),
            id: conflict.id,
            code: conflict.code,
            kind: listed.kind,
            resource: conflict.resource,
            operation: conflict.operation,
            agent: listed.agent,
            met_agent: listed.met_agent,
            detail: conflict.detail,
            at: conflict.at,
        }
    });
    Ok((lines.collect(), next))
}

/// In what a new plan differs from the one that somebody saw: pointers into the command, without what is new by nature.
pub fn differences(old: &Operation, new: &Operation) -> Vec<FieldDiff> {
    let command =
        |op: &Operation| Command::parse_canonical(&op.proposal.canonical).map(|command| command.preimage()).ok();
    let mut found = diff(command(old).as_ref(), command(new).as_ref(), &ArrayKeys::default());
    found.retain(|field| field.pointer != "/account" && !field.pointer.starts_with("/links"));
    found
}
