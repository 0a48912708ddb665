//! Everything the page of one operation shows, read at one moment.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;

use super::{
    Desk, case,
    claim::GATEWAY,
    conflict::{Plan, differences, plan},
    error::{Error, Result},
    kinds::CompiledKind,
    operation::{approvers, as_of, get, owner_now, voters},
    provider::{self, ProviderView},
    reconcile::{self, Known},
    resource::{may_read, rules},
    review,
};
use crate::{
    model::{
        approval::{Review, Voter, may_vote},
        audit::{Actor, Entry, Event, Record},
        change_set::{self, ChangeSet},
        conflict::Conflict,
        diff::ArrayKeys,
        evidence::Evidence,
        fingerprint::Command,
        id::{AgentId, OperationId, PersonId, RunId},
        operation::{AttemptResult, Claimant, Decision, Operation, State},
        problem::Problem,
        time::Timestamp,
    },
    server::{
        store::{
            Conn,
            agent::{self, Agent},
            change_set as sets, conflict, evidence, executor, log,
            operation::{self, Filter, Order, list, same_command, unsettled_on_target, waiting_on_target},
            person, resource, run,
        },
        web::auth::{PersonIdentity, Principal},
    },
};

/// One operation, and what a reader of it has to know.
pub struct Sheet {
    pub op: Operation,
    /// Read back from the canonical text the fingerprint covers.
    pub command: Command,
    pub kind: Option<Arc<CompiledKind>>,
    pub review: Review,
    /// Of `review`: a vote says with it what the voter was shown.
    pub digest: String,
    pub agent: Agent,
    pub run_label: String,
    pub rights: Rights,
    /// Open operations with the same command, oldest first.
    pub duplicates: Vec<Operation>,
    /// Later ones on the target that wait because the outcome of this one is not known.
    pub waiting_behind: Vec<Operation>,
    /// An earlier one on the target whose outcome is not known, for which this one waits.
    pub waits_for: Option<Operation>,
    pub conflict: Option<Conflict>,
    /// The plan whose place this one takes after a conflict, and in what this one differs from it.
    pub replans: Option<Plan>,
    /// The plan that took the place of this one.
    pub replanned_by: Option<Operation>,
    /// The change set that it was proposed for, and where in it.
    pub change_set: Option<(ChangeSet, change_set::Place)>,
    /// Oldest first.
    pub evidence: Vec<Evidence>,
    /// What whoever makes the effect declares, where somebody declared it.
    pub provider: Option<ProviderView>,
    /// What is known about an outcome nobody is sure of.
    pub doubt: Option<Known>,
    /// What people and the desk did about it: cases, owners, licences. Oldest first.
    pub told: Vec<Told>,
    /// Who may own a case about it.
    pub owners: Vec<String>,
    /// Numbers of the first and the last record about it.
    pub records: Option<(u64, u64)>,
    /// What is known here of the target.
    pub known: Option<resource::Known>,
    pub document: Document,
    /// How the lists in it are compared.
    pub array_keys: ArrayKeys,
    pub place: Place,
    names: HashMap<String, String>,
}

/// The document that is written, where it is held here.
pub enum Document {
    /// As it is now; `None` where nothing is there, or it lives elsewhere.
    Shown(Option<Value>),
    /// Its rules do not name a group of the reader.
    NotForReader,
}

/// One record about a case, or about another try.
pub struct Told {
    pub event: Event,
    pub at: Timestamp,
    pub by: Actor,
    pub status: Option<String>,
    pub reason: Option<String>,
}

fn told(lines: &[log::Line]) -> Result<Vec<Told>> {
    let mut told = Vec::new();
    for line in lines {
        let record: Record = serde_json::from_str(&line.record).map_err(Error::internal)?;
        let Entry { event, actor, status, reason, .. } = record.entry;
        if matches!(
            event,
            Event::ReviewOpened
                | Event::ReviewAssigned
                | Event::ReviewOverdue
                | Event::ReviewSeconded
                | Event::ReviewRetryAuthorized
                | Event::ReviewResolved
                | Event::ReviewAbandoned
                | Event::AttemptLicensed
                | Event::ReconcileApplied
                | Event::ReconcileNotApplied
                | Event::EvidenceContradiction
                | Event::EvidenceConfirmation
        ) {
            told.push(Told { event, at: record.at, by: actor, status, reason });
        }
    }
    Ok(told)
}

/// What the reader may do about it.
pub struct Rights {
    pub approve: std::result::Result<(), Problem>,
    pub reject: std::result::Result<(), Problem>,
    /// People besides the reader who may approve it and have not voted.
    pub others: usize,
    /// The rule asks for the password again, and it was not entered lately.
    pub needs_password: bool,
}

/// Among what waits for the reader, soonest deadline first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// From 1; none if this one does not wait for the reader.
    pub position: Option<usize>,
    pub total: usize,
    pub previous: Option<OperationId>,
    pub next: Option<OperationId>,
}

impl Sheet {
    /// # Errors
    /// `not_found`.
    pub async fn read(desk: &Desk, reader: &PersonIdentity, id: &OperationId) -> Result<Self> {
        let op = get(desk, &Principal::Person(reader.clone()), id).await?;
        let now = desk.now();
        let mut conn = desk.store.read().await?;
        let conn = &mut conn;
        let p = &op.proposal;
        let command = Command::parse_canonical(&p.canonical).map_err(Error::internal)?;
        let review = review::of(conn, &op).await?;
        let agent = agent::by_id(conn, &p.agent).await?;
        let agent = agent.ok_or_else(|| Error::internal(format!("the agent of `{id}` has gone")))?;
        let run = run::by_id(conn, &p.run).await?;
        let conflict = match &op.life.conflict {
            Some(id) => conflict::find(conn, id).await?,
            None => None,
        };
        let waiting_behind = if is_doubtful(&op) { held_behind(conn, &op, now).await? } else { Vec::new() };
        let unsettled = unsettled_on_target(conn, p.target.as_str()).await?.into_iter().map(|other| as_of(other, now));
        let waits_for = unsettled.into_iter().find(|other| other.id() != op.id() && is_doubtful(other));
        let lines = log::of_operation(conn, id).await?;
        let rules = rules::of(desk, conn, p.target.as_str()).await?;
        let is_readable = may_read(conn, &Principal::Person(reader.clone()), p.target.as_str()).await?;
        let document = match is_readable {
            true => Document::Shown(resource::document(conn, p.target.as_str()).await?),
            false => Document::NotForReader,
        };
        let replans = plan(desk, conn, p.links.replans.as_ref(), |old| differences(old, &op)).await?;
        let replanned_by = match &op.life.replanned_by {
            Some(id) => operation::find(conn, id).await?.map(|op| as_of(op, now)),
            None => None,
        };
        let known = resource::find(conn, p.target.as_str()).await?;
        let mut names = names(conn).await?;
        if let Some(known) = &known {
            learn(&mut names, conn, &known.updated_by).await?;
        }
        Ok(Self {
            command,
            kind: desk.kind(conn, &p.kind, Some(p.kind_version)).await?,
            digest: review.digest(),
            review,
            agent,
            run_label: run.map(|run| run.label).unwrap_or_default(),
            rights: rights(conn, &op, reader, now).await?,
            duplicates: duplicates(conn, &op, now).await?,
            waiting_behind,
            waits_for,
            conflict,
            replans,
            replanned_by,
            change_set: sets::of_operation(conn, id).await?,
            evidence: evidence::of_operation(conn, id).await?,
            provider: match &p.provider {
                Some(name) => provider::find(conn, name).await?,
                None => None,
            },
            doubt: if is_doubtful(&op) { reconcile::known(desk, conn, &op, now).await? } else { None },
            told: told(&lines)?,
            owners: case::owners(conn).await?,
            records: lines.first().zip(lines.last()).map(|(first, last)| (first.seq, last.seq)),
            known,
            document,
            array_keys: rules::array_keys(&rules),
            place: place(conn, &reader.voter(), id, now).await?,
            names,
            op,
        })
    }

    /// What people call a principal.
    pub fn name<'a>(&'a self, actor: &'a Actor) -> &'a str {
        self.name_of(&actor.id)
    }

    /// The same of an id; a run is called by its agent.
    pub fn name_of<'a>(&'a self, id: &'a str) -> &'a str {
        match self.names.get(id) {
            Some(name) => name,
            None if id == Claimant::Gateway.actor().id => GATEWAY,
            None if id == self.op.proposal.run.as_str() => &self.agent.name,
            None => id,
        }
    }

    pub fn claimant<'a>(&'a self, claimant: &'a Claimant) -> &'a str {
        match claimant {
            // Only runs of the proposing agent claim.
            Claimant::Run(_) => &self.agent.name,
            Claimant::Executor(id) => self.name_of(id.as_str()),
            Claimant::Managed => "Counterfoil",
            Claimant::Gateway => GATEWAY,
        }
    }
}

/// Approved writes to its target that wait until it is settled.
async fn held_behind(conn: &mut Conn, op: &Operation, now: Timestamp) -> Result<Vec<Operation>> {
    let waiting = waiting_on_target(conn, op.proposal.target.as_str()).await?;
    let waiting = waiting.into_iter().map(|other| as_of(other, now));
    Ok(waiting.filter(|other| other.state() == State::Approved && other.life.hold_override.is_none()).collect())
}

/// Later writes to the target wait for an answer about it.
fn is_doubtful(op: &Operation) -> bool {
    op.life.disputed || matches!(op.state(), State::Unknown | State::NeedsReview | State::Abandoned)
}

async fn rights(conn: &mut Conn, op: &Operation, reader: &PersonIdentity, now: Timestamp) -> Result<Rights> {
    let (owner, voters) = (owner_now(conn, op).await?, voters(conn).await?);
    let has_voted = |id: &PersonId| op.standing_votes().any(|vote| vote.by == *id);
    let others = approvers(op, &op.life.approval.groups, &voters, &owner)
        .filter(|voter| voter.id != *reader.id() && !has_voted(&voter.id));
    Ok(Rights {
        others: others.count(),
        approve: may_vote(op, &reader.voter(), Decision::Approve, &owner),
        reject: may_vote(op, &reader.voter(), Decision::Reject, &owner),
        needs_password: op.life.approval.step_up && !reader.is_stepped_up(now),
    })
}

async fn duplicates(conn: &mut Conn, op: &Operation, now: Timestamp) -> Result<Vec<Operation>> {
    let same = same_command(conn, &op.proposal.agent, &op.proposal.fingerprint).await?;
    Ok(same.into_iter().filter(|other| other.id() != op.id()).map(|other| as_of(other, now)).collect())
}

/// Operations looked at to find the next one.
const SCAN: i64 = 500;

/// What waits for `reader`, soonest deadline first, and where `id` stands in it.
pub async fn place(conn: &mut Conn, reader: &Voter, id: &OperationId, now: Timestamp) -> Result<Place> {
    let owners: HashMap<AgentId, PersonId> =
        agent::all(conn).await?.into_iter().map(|agent| (agent.id, agent.owner)).collect();
    let waiting = Filter { states: vec![State::Pending], order: Order::SoonestFirst, limit: SCAN, ..Filter::default() };
    let waits = |op: &Operation| {
        let owner = owners.get(&op.proposal.agent).unwrap_or(&op.proposal.owner);
        as_of(op.clone(), now).state() == State::Pending
            && !op.standing_votes().any(|vote| vote.by == reader.id)
            && may_vote(op, reader, Decision::Approve, owner).is_ok()
    };
    let waiting: Vec<_> = list(conn, &waiting).await?.into_iter().filter(waits).map(|op| op.id().clone()).collect();
    let position = waiting.iter().position(|waiting| waiting == id);
    Ok(match position {
        Some(at) => Place {
            position: Some(at + 1),
            total: waiting.len(),
            previous: at.checked_sub(1).map(|at| waiting[at].clone()),
            next: waiting.get(at + 1).cloned(),
        },
        None => Place { position: None, total: waiting.len(), previous: None, next: waiting.into_iter().next() },
    })
}

/// Everybody by id: there are few, and sentences name many.
pub async fn names(conn: &mut Conn) -> Result<HashMap<String, String>> {
    let mut names = HashMap::new();
    names.extend(person::list(conn).await?.into_iter().map(|person| (person.id.to_string(), person.name)));
    names.extend(agent::all(conn).await?.into_iter().map(|agent| (agent.id.to_string(), agent.name)));
    names.extend(executor::list(conn).await?.into_iter().map(|executor| (executor.id.to_string(), executor.name)));
    Ok(names)
}

/// Adds what people call the principal with this id, if it is a run: it is called by its agent.
pub async fn learn(names: &mut HashMap<String, String>, conn: &mut Conn, id: &str) -> Result<()> {
    if !names.contains_key(id)
        && let Ok(run) = id.parse::<RunId>()
        && let Some(run) = run::by_id(conn, &run).await?
    {
        names.insert(id.to_owned(), run.agent_name);
    }
    Ok(())
}

/// An operation whose outcome nobody is sure of.
pub struct Doubtful {
    pub op: Operation,
    pub agent: String,
    /// Approved ones on the same target, which wait for this one.
    pub held: usize,
    /// Since when nobody knows.
    pub since: Timestamp,
}

/// All of them, the soonest due first; those without a case come last, the oldest first.
///
/// # Errors
/// The database is not to be had.
pub async fn doubtful(desk: &Desk, now: Timestamp) -> Result<Vec<Doubtful>> {
    let mut conn = desk.store.read().await?;
    // What is sent or accepted may have lapsed into it.
    let states = vec![State::Unknown, State::NeedsReview, State::Sent, State::Accepted];
    let filter = Filter { states, limit: SCAN, ..Filter::default() };
    let mut found = list(&mut conn, &filter).await?;
    found.extend(operation::disputed(&mut conn).await?);
    let found = found.into_iter().map(|op| as_of(op, now));
    let names = names(&mut conn).await?;
    let mut doubtful = Vec::new();
    for op in found.filter(|op| op.life.disputed || matches!(op.state(), State::Unknown | State::NeedsReview)) {
        doubtful.push(Doubtful {
            agent: names.get(op.proposal.agent.as_str()).cloned().unwrap_or_default(),
            held: held_behind(&mut conn, &op, now).await?.len(),
            since: unknown_since(&op),
            op,
        });
    }
    doubtful.sort_by_key(|one| {
        let due = one.op.life.review_case.as_ref().map(|case| case.due_at);
        (due.is_none(), due, one.since)
    });
    Ok(doubtful)
}

/// Since when the outcome is not known.
pub fn unknown_since(op: &Operation) -> Timestamp {
    let lost = op.life.attempts.iter().rev().find(|attempt| attempt.result == Some(AttemptResult::Unknown));
    lost.and_then(|attempt| attempt.ended_at).unwrap_or(op.life.updated_at)
}
