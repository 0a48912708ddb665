//! What every use case about one operation shares: finding it, deciding its lapse first, who may see it, and what other
//! records say about it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::{By, Desk, catalogue, error::Result, run_approval};
use crate::{
    model::{
        approval::{Voter, shortfall},
        audit::{Entry, Event},
        id::{AgentId, OperationId, PersonId, RunId},
        kind::{KindName, Risk},
        operation::{Operation, State, rules, rules::Standing},
        policy::MatchFacts,
        problem::{Code, Problem},
        time::Timestamp,
    },
    server::{
        store::{self, Conn, Tx, agent, operation, operation::Filter, person, resource, setting},
        web::auth::Principal,
    },
};

/// Records what the clock has decided about `op`, whoever looks first.
pub async fn lapse(tx: &mut Tx, op: Operation) -> store::Result<Operation> {
    match rules::lapse(&op, tx.now()) {
        Some(step) => operation::apply(tx, &op, step).await,
        None => Ok(op),
    }
}

/// The operation with its lapse recorded, or the refusal that tells a stranger nothing.
pub async fn load(tx: &mut Tx, id: &OperationId) -> store::Result<std::result::Result<Operation, Problem>> {
    match operation::find(tx, id).await? {
        Some(op) => Ok(Ok(lapse(tx, op).await?)),
        None => Ok(Err(not_found())),
    }
}

pub fn not_found() -> Problem {
    Problem::new(Code::NotFound, "There is no such operation, or it is not yours to see")
}

/// Whether `principal` may read `op`: people, the agent and its runs, executors of its kind.
pub fn sees(principal: &Principal, op: &Operation) -> bool {
    match principal {
        Principal::Person(_) => true,
        Principal::Run(run) => *run.agent() == op.proposal.agent,
        Principal::Agent(agent) => *agent.id() == op.proposal.agent,
        Principal::Executor(executor) => op.proposal.kind.parse::<KindName>().is_ok_and(|kind| executor.serves(&kind)),
    }
}

/// A refused attempt leaves a trace: who, what, and the code.
pub async fn record_refusal(
    tx: &mut Tx,
    by: &By,
    op: &Operation,
    event: Event,
    problem: &Problem,
) -> store::Result<()> {
    // Whatever a successor has overtaken is told apart from what was wrong from the start.
    let event = if problem.code == Code::StaleFence { Event::FenceRejected } else { event };
    let entry = Entry { status: Some(problem.code.as_str()), ..by.on(rules::entry(op, event, by.actor.clone())) };
    tx.audit(&entry).await.map(drop)
}

/// One operation, its lapse recorded.
///
/// # Errors
/// `not_found`, also for what is not the caller's to see.
pub async fn get(desk: &Desk, principal: &Principal, id: &OperationId) -> Result<Operation> {
    let op = operation::find(&mut desk.store.read().await?, id).await?;
    let op = op.filter(|op| sees(principal, op)).ok_or_else(not_found)?;
    settle(desk, op).await
}

/// Records the lapse of an operation that was read, if there is one.
pub async fn settle(desk: &Desk, op: Operation) -> Result<Operation> {
    if rules::lapse(&op, desk.now()).is_none() {
        return Ok(op);
    }
    let id = op.id().clone();
    desk.commit(move |tx| Box::pin(async move { load(tx, &id).await })).await
}

/// The operation once its version is another than `known`, or as it is when `wait` is over or the server stops.
pub async fn wait(
    desk: &Desk,
    principal: &Principal,
    id: &OperationId,
    known: i64,
    wait: Duration,
    stop: impl Future<Output = ()>,
) -> Result<Operation> {
    // Subscribed before the state is read: no change falls between the two.
    let mut watch = desk.signals.watch(id.as_str());
    let over = tokio::time::sleep(wait);
    tokio::pin!(over, stop);
    loop {
        let op = get(desk, principal, id).await?;
        if op.life.version != known {
            return Ok(op);
        }
        let lapses_in = rules::next_lapse(&op).map(|at| (at - desk.now()).max(0) as u64);
        let lapse = tokio::time::sleep(Duration::from_millis(lapses_in.unwrap_or(u64::from(u32::MAX))));
        tokio::select! {
            () = watch.changed() => {}
            () = lapse => {}
            () = &mut over => return get(desk, principal, id).await,
            () = &mut stop => return Ok(op),
        }
    }
}

/// What a list asks for.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
pub struct ListQuery {
    pub state: Option<State>,
    pub kind: Option<String>,
    pub target: Option<String>,
    #[param(value_type = Option<String>)]
    pub risk: Option<Risk>,
    #[param(value_type = Option<String>)]
    pub agent: Option<AgentId>,
    #[param(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// Part of a target, kind, number, id or agent's name.
    pub q: Option<String>,
    #[param(value_type = Option<String>)]
    pub cursor: Option<OperationId>,
    pub limit: Option<i64>,
}

/// One page, newest first.
#[derive(Debug, Clone)]
pub struct Page {
    pub operations: Vec<Operation>,
    pub next_cursor: Option<OperationId>,
}

const PAGE: i64 = 50;
const MAX_PAGE: i64 = 200;

/// Operations the caller may see. States are as of now: what has lapsed is shown and filtered as lapsed.
pub async fn list(desk: &Desk, principal: &Principal, query: ListQuery) -> Result<Page> {
    let agent = match principal {
        Principal::Person(_) => None,
        Principal::Executor(_) => None,
        own => own.agent().cloned(),
    };
    if agent.is_some() && query.agent.is_some() && agent != query.agent {
        return Ok(Page { operations: Vec::new(), next_cursor: None });
    }
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let mut filter = Filter {
        states: query.state.map(stored_states).unwrap_or_default(),
        kind: query.kind,
        target: query.target,
        agent: agent.or(query.agent),
        run: query.run,
        risk: query.risk.map(|risk| risk.as_str().to_owned()),
        q: query.q.filter(|q| !q.trim().is_empty()),
        before: query.cursor,
        limit: limit + 1,
        ..Filter::default()
    };
    let now = desk.now();
    let mut conn = desk.store.read().await?;
    let mut operations = Vec::new();
    // A page is filled from as many batches as it takes: some of what is read is not shown.
    loop {
        let batch = operation::list(&mut conn, &filter).await?;
        let is_last = (batch.len() as i64) < filter.limit;
        filter.before = batch.last().map(|op| op.id().clone());
        operations.extend(batch.into_iter().filter_map(|op| {
            let op = as_of(op, now);
            (sees(principal, &op) && query.state.is_none_or(|state| op.life.state == state)).then_some(op)
        }));
        if is_last || operations.len() as i64 > limit {
            break;
        }
    }
    let next_cursor = (operations.len() as i64 > limit).then(|| operations[limit as usize - 1].id().clone());
    operations.truncate(limit as usize);
    Ok(Page { operations, next_cursor })
}

/// `op` with its lapse decided but not recorded: what lists show.
pub fn as_of(op: Operation, now: Timestamp) -> Operation {
    match rules::lapse(&op, now) {
        Some(step) => Operation { life: step.life, ..op },
        None => op,
    }
}

/// States as stored among which operations of `state` are found, lapses not decided.
pub fn stored_states(state: State) -> Vec<State> {
    match state {
        State::Expired => vec![State::Expired, State::Pending, State::Approved, State::Claimed],
        State::Unknown => vec![State::Unknown, State::Sent, State::Accepted, State::Claimed],
        state => vec![state],
    }
}

/// Who owns the agent today.
pub async fn owner_now(conn: &mut Conn, op: &Operation) -> store::Result<PersonId> {
    let agent = agent::by_id(conn, &op.proposal.agent).await?;
    Ok(agent.map_or_else(|| op.proposal.owner.clone(), |agent| agent.owner))
}

/// Enabled people as voters.
pub async fn voters(conn: &mut Conn) -> store::Result<Vec<Voter>> {
    let people = person::list(conn).await?.into_iter().filter(|person| person.is_enabled());
    Ok(people.map(|person| Voter { id: person.id, role: person.role, groups: person.groups }).collect())
}

/// Who may approve `op`: enough role, one of the rule's groups, and not the agent's owner then or now.
pub fn approvers<'a>(
    op: &'a Operation,
    groups: &'a [String],
    voters: &'a [Voter],
    owner_now: &'a PersonId,
) -> impl Iterator<Item = &'a Voter> {
    let is_self = |voter: &Voter| voter.id == op.proposal.owner || voter.id == *owner_now;
    voters.iter().filter(move |voter| voter.is_eligible(groups) && !is_self(voter))
}

/// Whether the approval may be acted on now, as far as people, policy, target and desk say.
pub async fn standing(desk: &Desk, tx: &mut Tx, op: &Operation) -> store::Result<Standing> {
    let now = tx.now();
    standing_at(desk, tx, op, now).await
}

/// The same as of `now`, to be shown.
pub async fn standing_at(desk: &Desk, conn: &mut Conn, op: &Operation, now: Timestamp) -> store::Result<Standing> {
    let owner = owner_now(conn, op).await?;
    let voters = voters(conn).await?;
    let agent = agent::by_id(conn, &op.proposal.agent).await?;
    let rule = desk.policy(conn).await?.matching(
        &MatchFacts {
            kind: &op.proposal.kind,
            target: &op.proposal.target,
            risk: op.proposal.risk,
            agent_name: agent.as_ref().map_or("", |agent| &agent.name),
            agent_id: op.proposal.agent.as_str(),
        },
        &catalogue::defaults(&desk.config),
    );
    let rule = rule.decided_by(&op.proposal.decided_by);
    let ahead = run_approval::in_force(conn, op, now).await?.filter(|_| !rule.step_up);
    let (ineligible, policy_gap) = shortfall(op, rule, &voters, &owner, ahead.as_ref());
    let others = operation::unsettled_on_target(conn, op.proposal.target.as_str()).await?;
    let others: Vec<_> = others.into_iter().filter(|other| other.id() != op.id()).collect();
    let is_overridden = op.life.hold_override.is_some();
    let holds = |other: &&Operation| {
        other.life.disputed
            || matches!(rules::state_at(other, now), State::Unknown | State::NeedsReview | State::Abandoned)
    };
    let locks = |other: &&Operation| {
        let under_way = matches!(rules::state_at(other, now), State::Claimed | State::Sent | State::Accepted);
        op.proposal.locks_release && other.proposal.locks_release && under_way
    };
    Ok(Standing {
        ineligible,
        policy_gap,
        hold: others.iter().filter(|_| !is_overridden).find(holds).map(|other| other.id().clone()),
        lock: others.iter().filter(|_| !is_overridden).find(locks).map(|other| other.id().clone()),
        current_version: resource::find(conn, op.proposal.target.as_str()).await?.map(|known| known.current()),
        lease: None,
        paused: pause(conn).await?.is_some(),
    })
}

/// The desk is paused: nothing is claimed or sent. Deadlines keep running.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pause {
    pub by: String,
    pub reason: String,
    pub at: Timestamp,
}

pub const PAUSE: &str = "pause";

pub async fn pause(conn: &mut Conn) -> store::Result<Option<Pause>> {
    setting::get(conn, PAUSE).await
}

/// The caller's own operation by its key.
///
/// # Errors
/// `not_found`.
pub async fn by_key(desk: &Desk, agent: &AgentId, key: &str) -> Result<Operation> {
    let mut conn = desk.store.read().await?;
    let bound = operation::bound_key(&mut conn, agent, key).await?;
    let unknown = || Problem::new(Code::NotFound, "Nothing was proposed under this key");
    let bound = bound.ok_or_else(unknown)?;
    if bound.expired_at.is_some() {
        return Err(Problem::new(Code::IdempotencyKeyExpired, "The key is past its retention").into());
    }
    let op = operation::find(&mut conn, &bound.operation).await?.ok_or_else(unknown)?;
    drop(conn);
    settle(desk, op).await
}
