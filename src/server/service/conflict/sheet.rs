//! What the pages about conflicts show, read at one moment.

use std::collections::HashMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::{AsOf, Conflict, Filter, as_of, differences, facts, may_read, resolve::by_person, visible};
use crate::{
    model::{
        conflict::{ConflictState, Facts},
        diff::FieldDiff,
        id::{AgentId, ApprovalId, ConflictId, OperationId, PersonId, RunId},
        operation::Operation,
        problem::{Code, Problem},
        resource::{FieldChange, VersionChange},
        time::Timestamp,
    },
    server::{
        service::{Desk, error::Result, operation::as_of as lapsed, sheet::names},
        store::{Conn, agent as agents, conflict, operation, resource, run},
        web::auth::{PersonIdentity, Principal},
    },
};

/// Versions that the chain of one conflict shows.
const MAX_STEPS: i64 = 50;

/// Whether a reader sees the content of the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Values {
    Shown,
    /// Pointers only: the reader may not read the resource.
    Withheld,
}

/// One conflict and everything its page shows.
pub struct ConflictSheet {
    pub conflict: Conflict,
    /// The refused operation; its votes say who had approved it.
    pub op: Operation,
    /// Of the refused write.
    pub agent: String,
    pub run_label: String,
    /// Three-way rows, overlapping first, and who changed which field last: as things are now while the conflict is
    /// open, as it was decided afterwards. Without values where they are withheld.
    pub facts: Facts,
    pub values: Values,
    /// The whole documents, for side by side and unified views; none where the resource lives elsewhere, did not exist
    /// at that version, or its values are withheld.
    pub as_read: Option<serde_json::Value>,
    pub proposed: Option<serde_json::Value>,
    pub now: Option<serde_json::Value>,
    /// Who moved the target on since the write was planned, the newest first.
    pub chain: Vec<VersionStep>,
    /// Older versions that the chain leaves out.
    pub earlier_steps: i64,
    /// The new plan that takes the refused one's place, and in what it differs.
    pub replanned_by: Option<Plan>,
    /// The plan that the refused one was itself a new version of, and in what the refused one differs from it.
    pub replans: Option<Plan>,
    pub rights: Rights,
    names: HashMap<String, String>,
}

/// What the reader may decide.
pub struct Rights {
    /// Any of the three; why not, otherwise.
    pub resolve: std::result::Result<(), Problem>,
}

/// One version of the target, and whose it is.
#[derive(Debug, Clone)]
pub struct VersionStep {
    pub version: i64,
    pub change: VersionChange,
    pub at: Timestamp,
    /// Pointers it changed; none of what lives elsewhere.
    pub fields: Vec<(String, FieldChange)>,
    pub by: Hand,
}

/// Through whose hands a version came about.
#[derive(Debug, Clone, Default)]
pub struct Hand {
    /// The id of who made or reported it, and what people call them.
    pub id: String,
    pub name: String,
    pub agent: Option<AgentId>,
    pub run: Option<RunId>,
    pub operation: Option<OperationId>,
    /// The operation's short code.
    pub number: Option<String>,
    pub person: Option<PersonId>,
    pub approval: Option<ApprovalId>,
    /// People who approved it, in the order they did.
    pub approvers: Vec<String>,
    /// The rule that granted it without a person.
    pub granted_by_rule: Option<String>,
}

/// Another plan of the same intent.
#[derive(Debug, Clone)]
pub struct Plan {
    pub op: Operation,
    /// From the older plan to the newer one; pointers into the command, `/params/…`, `/expected_version`.
    pub changes: Vec<FieldDiff>,
}

impl ConflictSheet {
    /// What people call a principal.
    pub fn name_of<'a>(&'a self, id: &'a str) -> &'a str {
        self.names.get(id).map_or(id, String::as_str)
    }
}

/// Everything about one conflict.
///
/// # Errors
/// `not_found`.
pub async fn sheet(desk: &Desk, reader: &PersonIdentity, id: &ConflictId) -> Result<ConflictSheet> {
    let principal = Principal::Person(reader.clone());
    let mut conn = desk.store.read().await?;
    let conn = &mut conn;
    let (conflict, op) = visible(conn, &principal, id).await?;
    let target = op.proposal.target.as_str();
    let as_of = as_of(&conflict);
    let facts = facts(desk, conn, &op, as_of).await?;
    let is_readable = may_read(conn, &principal, target).await?;
    let values = if is_readable { Values::Shown } else { Values::Withheld };
    let names = names(conn).await?;
    let (chain, earlier_steps) = chain(conn, &op, as_of, &names).await?;
    let document = document_sides(conn, &op, as_of).await?;
    let [as_read, proposed, now] = if is_readable { document } else { [None, None, None] };
    let run = run::by_id(conn, &op.proposal.run).await?;
    let decided = match &op.life.conflict_resolution {
        Some(made) => Err(Problem::new(Code::AlreadyDecided, format!("{} decided this at {}", made.by_name, made.at))),
        None => by_person(reader).map(drop),
    };
    Ok(ConflictSheet {
        agent: names.get(op.proposal.agent.as_str()).cloned().unwrap_or_default(),
        run_label: run.map(|run| run.label).unwrap_or_default(),
        facts: if is_readable { facts } else { facts.without_values() },
        values,
        as_read,
        proposed,
        now,
        chain,
        earlier_steps,
        replanned_by: plan(desk, conn, op.life.replanned_by.as_ref(), |other| differences(&op, other)).await?,
        replans: plan(desk, conn, op.proposal.links.replans.as_ref(), |other| differences(other, &op)).await?,
        rights: Rights { resolve: decided },
        names,
        conflict,
        op,
    })
}

async fn document_sides(conn: &mut Conn, op: &Operation, as_of: AsOf) -> Result<[Option<serde_json::Value>; 3]> {
    let p = &op.proposal;
    let target = p.target.as_str();
    let known = resource::find(conn, target).await?.filter(|known| known.is_managed());
    let (Some(known), Some(expected), true) = (known, p.expected_version, p.managed) else {
        return Ok([None, None, None]);
    };
    let upto = match as_of {
        AsOf::Version(version) => version,
        AsOf::Now => known.version,
    };
    let as_read = resource::document_at(conn, target, expected).await?;
    let params = crate::model::document::params(op);
    let proposed = super::Write { verb: p.verb, params: &params }.outcome(as_read.as_ref());
    let now = resource::document_at(conn, target, upto).await?;
    Ok([as_read, proposed, now])
}

/// The other plan of the same intent, and in what the two differ.
pub async fn plan(
    desk: &Desk,
    conn: &mut Conn,
    id: Option<&OperationId>,
    changes: impl FnOnce(&Operation) -> Vec<FieldDiff>,
) -> Result<Option<Plan>> {
    let Some(id) = id else { return Ok(None) };
    let Some(op) = operation::find(conn, id).await?.map(|op| lapsed(op, desk.now())) else { return Ok(None) };
    Ok(Some(Plan { changes: changes(&op), op }))
}

async fn chain(
    conn: &mut Conn,
    op: &Operation,
    as_of: AsOf,
    names: &HashMap<String, String>,
) -> Result<(Vec<VersionStep>, i64)> {
    let target = op.proposal.target.as_str();
    let before = match as_of {
        AsOf::Version(version) => Some(version + 1),
        AsOf::Now => None,
    };
    let expected = op.proposal.expected_version.unwrap_or(i64::MAX);
    let history = resource::history(conn, target, before, MAX_STEPS).await?;
    let mut chain = Vec::new();
    for row in history.into_iter().filter(|row| row.version > expected) {
        let mut hand = Hand {
            name: names.get(&row.by).cloned().unwrap_or_else(|| row.by.clone()),
            id: row.by,
            agent: row.author.agent,
            run: row.author.run,
            operation: row.author.operation,
            person: row.author.person,
            approval: row.author.approval,
            ..Hand::default()
        };
        if let Some(agent) = &hand.agent {
            hand.name = names.get(agent.as_str()).cloned().unwrap_or_else(|| agent.to_string());
        }
        if let Some(id) = &hand.operation
            && let Some(made_by) = operation::find(conn, id).await?
        {
            let approval = &made_by.life.approval;
            hand.number = Some(made_by.proposal.fingerprint.short_code());
            hand.approvers = made_by.standing_approvals().map(|vote| vote.name.clone()).collect();
            hand.granted_by_rule =
                (hand.approvers.is_empty() && approval.granted_at.is_some()).then(|| approval.rule.clone());
        }
        let fields = row.fields.into_iter().map(|field| (field.pointer, field.change)).collect();
        chain.push(VersionStep { version: row.version, change: row.change, at: row.at, fields, by: hand });
    }
    let oldest = chain.last().map(|step| step.version);
    // Versions of what lives elsewhere may have gaps; what lies in between is not known here.
    let earlier = oldest.map_or(0, |oldest| (oldest - expected - 1).max(0));
    let is_cut = chain.len() as i64 == MAX_STEPS;
    Ok((chain, if is_cut { earlier } else { 0 }))
}

/// A conflict in the list of the pages.
pub struct Line {
    pub conflict: Conflict,
    pub kind: String,
    /// Whose write was refused.
    pub agent: String,
    /// Whose change it met, where that is known.
    pub met: Option<String>,
    /// The refused operation's headline is made of it.
    pub op: Operation,
}

/// One page of the list.
pub struct Listed {
    pub lines: Vec<Line>,
    pub next: Option<ConflictId>,
    /// All that wait for a decision.
    pub open: i64,
}

const PAGE: i64 = 50;

/// What the list of the pages asks for.
#[derive(Debug, Clone, Default)]
pub struct LinesQuery {
    pub state: Option<ConflictState>,
    /// Whose write was refused, by name.
    pub agent: Option<String>,
    pub run: Option<RunId>,
    pub kind: Option<String>,
    /// Part of a resource.
    pub q: Option<String>,
    pub before: Option<ConflictId>,
}

/// Conflicts, the newest first.
///
/// # Errors
/// When the database is away.
pub async fn list(desk: &Desk, query: LinesQuery) -> Result<Listed> {
    let LinesQuery { state, agent, run, kind, q, before } = query;
    let mut conn = desk.store.read().await?;
    let names = names(&mut conn).await?;
    let open = conflict::count_open(&mut conn).await?;
    let agent = match agent {
        Some(name) => match agents::list(&mut conn).await?.into_iter().find(|agent| agent.name == name) {
            Some(agent) => Some(agent.id),
            None => return Ok(Listed { lines: Vec::new(), next: None, open }),
        },
        None => None,
    };
    let filter = Filter { state, kind, agent, run, q, before, limit: PAGE + 1, ..Filter::default() };
    let mut found = conflict::list(&mut conn, &filter).await?;
    let has_more = found.len() as i64 > PAGE;
    found.truncate(PAGE as usize);
    let next = found.last().filter(|_| has_more).map(|last| last.conflict.id.clone());
    let name = |id: &AgentId| names.get(id.as_str()).cloned().unwrap_or_else(|| id.to_string());
    let mut lines = Vec::new();
    for listed in found {
        let Some(op) = operation::find(&mut conn, &listed.conflict.operation).await? else { continue };
        lines.push(Line {
            agent: name(&listed.agent),
            met: listed.met_agent.as_ref().map(name),
            kind: listed.kind,
            conflict: listed.conflict,
            op,
        });
    }
    Ok(Listed { lines, next, open })
}
