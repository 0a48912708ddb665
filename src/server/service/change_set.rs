//! Change sets: opened by a run, carried on by the desk, done again by a run where a step is missing, and undone.
//!
//! Each write is proposed as an ordinary operation under a key of the set's own, so that a restart, a second worker or a
//! repeated request finds the operation instead of making another one.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    By, Desk,
    agents::Label,
    error::{Error, Result},
    operation::{as_of, lapse},
    ownership,
    propose::{self, Examined, Headers, NewOperation, Proposed, Proposer},
};
use crate::{
    model::{
        approval::Role,
        audit::{Actor, Entry, Event, key_ref},
        change_set::{
            self as rules, ChangeSet, MAX_STEPS, Next, Operations, Part, Place, Planned, Progress, Refused, SetState,
            Tries,
        },
        fingerprint::Account,
        id::{AgentId, ChangeSetId, OperationId, RunId},
        kind::{CompensationLimit, Conditional, RequiredLink},
        operation::{CompensationNote, CompensationStatus, Operation, State, rules as operations},
        problem::{Code, Problem},
        run::RunStatus,
        target::Target,
        time::Timestamp,
    },
    server::{
        ids,
        store::{
            self, Conn, Tx, agent,
            change_set::{self, Attention, Bound},
            committer::{Notice, Topic},
            operation, resource, run,
        },
        web::auth::{PersonIdentity, Principal, RunIdentity},
    },
};

/// Sets looked at in one step.
const BATCH: i64 = 200;
/// Seconds until a proposal that was refused for now is tried again.
const AGAIN_S: i64 = 5;

/// The body that opens a set.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewChangeSet {
    pub title: Label,
    /// 1 to 50.
    #[schema(min_items = 1, max_items = 50)]
    pub steps: Vec<Planned>,
}

/// What a missing step is done with instead; absent members stay.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Redo {
    /// The step that is meant, from 1: told where anything else is.
    #[serde(default)]
    pub step: Option<i64>,
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub params: Option<Value>,
    #[serde(default)]
    pub target: Option<String>,
    #[serde(default)]
    pub expected_version: Option<i64>,
    #[serde(default)]
    pub reason: Option<String>,
}

impl Redo {
    /// The step that is meant, and its plan with what is given in its place; `None` when nothing is given.
    fn of(self, steps: &[rules::Step]) -> std::result::Result<Option<(usize, Planned)>, Problem> {
        let Self { step, params, target, expected_version, reason } = self;
        let is_changed = params.is_some() || target.is_some() || expected_version.is_some() || reason.is_some();
        if step.is_none() && !is_changed {
            return Ok(None);
        }
        let step = step.and_then(|number| usize::try_from(number).ok()?.checked_sub(1)).filter(|i| *i < steps.len());
        let Some(step) = step else {
            let detail = format!("expected the step that is meant, 1 to {}", steps.len());
            return Err(Problem::at(Code::ValidationFailed, "/step", detail));
        };
        let plan = steps[step].plan.clone();
        let plan = Planned {
            params: params.unwrap_or(plan.params),
            target: target.or(plan.target),
            expected_version: expected_version.or(plan.expected_version),
            reason: reason.or(plan.reason),
            ..plan
        };
        Ok(Some((step, plan)))
    }
}

/// A set with its operations.
#[derive(Debug, Clone)]
pub struct Known {
    pub set: ChangeSet,
    pub ops: Operations,
}

/// How a request for a set was met.
pub enum Opened {
    /// 201
    New(Known),
    /// 200: the key is known.
    Replayed(Known),
}

/// Opens a set and proposes its first step, or finds the one that the key has opened.
///
/// # Errors
/// `fingerprint_conflict`, and the refusals of each step's proposal and compensation, with the place in the body. Nothing
/// is stored then.
pub async fn open(desk: &Desk, run: &RunIdentity, key: String, new: NewChangeSet) -> Result<Opened> {
    let opened = try_open(desk, run, key, new).await;
    if let Err(Error::Refused(problem)) = &opened {
        propose::record_refusal(desk, &Proposer::run(run), problem).await;
    }
    opened
}

async fn try_open(desk: &Desk, run: &RunIdentity, key: String, new: NewChangeSet) -> Result<Opened> {
    let fingerprint = rules::fingerprint(new.title.as_str(), &new.steps);
    let mut conn = desk.store.read().await?;
    if change_set::by_key(&mut conn, run.agent(), &key).await?.is_none() {
        check_plan(desk, &mut conn, run, &new.steps).await?;
    }
    drop(conn);
    let (desk_in, run) = (desk.clone(), run.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let now = tx.now();
            if let Some((set, bound)) = change_set::by_key(tx, run.agent(), &key).await? {
                let detail = format!("The key has opened `{}` with other content", set.id);
                let conflict = || Problem::new(Code::FingerprintConflict, detail).with("change_set_id", &set.id);
                if bound != fingerprint {
                    return Ok(Err(conflict()));
                }
                let ops = load(tx, &set).await?;
                return Ok(Ok(Opened::Replayed(Known { set, ops })));
            }
            let steps = new.steps.into_iter();
            let mut set = ChangeSet {
                id: ids::new(now),
                agent: run.agent().clone(),
                run: run.id().clone(),
                title: new.title.as_str().to_owned(),
                state: SetState::Open,
                version: 1,
                steps: steps.map(|plan| rules::Step { plan, write: Tries::first(), undo: Tries::first() }).collect(),
                refused: None,
                reason: None,
                created_at: now,
                updated_at: now,
            };
            let first = Place { step: 0, part: Part::Write };
            let mut ops = Operations::new();
            let attention = match propose(&desk_in, tx, &set, first, &ops).await? {
                Ok(op) => bind(&mut set, first, op, &mut ops),
                Err(problem) => return Ok(Err(problem.below("/steps/0"))),
            };
            change_set::insert(tx, &set, Bound { key: &key, fingerprint: &fingerprint }, &attention).await?;
            let entry = Entry {
                key_ref: Some(key_ref(&Account::Agent(set.agent.clone()), &key)),
                fingerprint: Some(fingerprint),
                ..run.by().entry(Event::ChangeSetOpened)
            };
            record(tx, &set, entry).await?;
            Ok(Ok(Opened::New(Known { set, ops })))
        })
    })
    .await
}

// The plan

async fn check_plan(desk: &Desk, conn: &mut Conn, run: &RunIdentity, steps: &[Planned]) -> Result<()> {
    if steps.is_empty() || steps.len() > MAX_STEPS {
        let detail = format!("a change set has 1 to {MAX_STEPS} steps");
        return Err(Problem::at(Code::ValidationFailed, "/steps", detail).into());
    }
    let mut written = Vec::new();
    for (i, plan) in steps.iter().enumerate() {
        let checked = check_step(desk, conn, run, plan, &written).await?;
        written.push(checked.map_err(|problem| problem.below(&format!("/steps/{i}")))?);
    }
    Ok(())
}

/// Checks one step and its compensation; the target it writes. `written` are those of the steps before it.
async fn check_step(
    desk: &Desk,
    conn: &mut Conn,
    run: &RunIdentity,
    plan: &Planned,
    written: &[Target],
) -> store::Result<std::result::Result<Target, Problem>> {
    let write = match propose::examine(desk, conn, run, body_of(plan)).await? {
        Ok(write) => write,
        Err(problem) => return Ok(Err(problem)),
    };
    if write.kind.kind.required_link.is_some() {
        let detail = "this kind names the operation it follows, and a step names none";
        return Ok(Err(Problem::at(Code::ValidationFailed, "/kind", detail)));
    }
    let needs_version = write.kind.kind.conditional == Conditional::Required;
    if needs_version && write.expected_version.is_none() && !written.contains(&write.target) {
        let detail = format!("`{}` needs the version it was planned on", plan.kind);
        return Ok(Err(Problem::at(Code::PreconditionRequired, "/expected_version", detail)));
    }
    if let Some(compensation) = &plan.compensation {
        let body =
            NewOperation { target: compensation.target.clone(), ..body(&compensation.kind, &compensation.params) };
        let undo = propose::examine(desk, conn, run, body).await?;
        if let Err(problem) = undo.and_then(|undo| may_undo(&write, &undo)) {
            return Ok(Err(problem.below("/compensation")));
        }
    }
    Ok(Ok(write.target))
}

/// Whether a step's kind lets it be compensated like this.
fn may_undo(write: &Examined, undo: &Examined) -> std::result::Result<(), Problem> {
    let refuse = |pointer: &str, detail: String| Err(Problem::at(Code::ValidationFailed, pointer, detail));
    if matches!(undo.kind.kind.required_link, Some(RequiredLink::Supersedes | RequiredLink::Replans)) {
        return refuse("/kind", "this kind names another operation than the one it makes good for".to_owned());
    }
    let Some(rule) = &write.kind.kind.compensation else { return Ok(()) };
    rule.allows(&undo.kind.kind.name).or_else(|detail| refuse("/kind", detail))?;
    match rule.excess(write.extent(), undo.extent(), 0) {
        Some((limit, words)) if rule.groups.is_empty() => match limit {
            CompensationLimit::SameTarget => refuse("/target", words),
            CompensationLimit::AmountWithinOriginal => refuse("/params", words),
        },
        _ => Ok(()),
    }
}

fn body(kind: &str, params: &Value) -> NewOperation {
    NewOperation {
        kind: kind.to_owned(),
        params: params.clone(),
        target: None,
        reason: None,
        expected_version: None,
        source_event_id: None,
        retry: None,
        supersedes: None,
        replans: None,
        compensates: None,
        rolls_back: None,
    }
}

fn body_of(plan: &Planned) -> NewOperation {
    NewOperation {
        target: plan.target.clone(),
        reason: plan.reason.clone(),
        expected_version: plan.expected_version,
        ..body(&plan.kind, &plan.params)
    }
}

// Proposals

/// Proposes the operation of a place in the name of the set's run. A refusal has bound nothing.
async fn propose(
    desk: &Desk,
    tx: &mut Tx,
    set: &ChangeSet,
    place: Place,
    ops: &Operations,
) -> store::Result<std::result::Result<Operation, Problem>> {
    let stopped = || Problem::new(Code::RunStopped, "The run has stopped or expired; another run of the agent goes on");
    let now = tx.now();
    let run = run::by_id(tx, &set.run).await?.filter(|run| run.status(now) == RunStatus::Live);
    let agent = agent::by_id(tx, &set.agent).await?.filter(|agent| agent.revoked_at.is_none());
    let (Some(run), Some(agent)) = (run, agent) else { return Ok(Err(stopped())) };
    let body = match composed(desk, tx, set, place, ops).await? {
        Ok(body) => body,
        Err(problem) => return Ok(Err(problem)),
    };
    let part = match place.part {
        Part::Write => "step",
        Part::Compensation => "compensation of step",
    };
    let words = format!("{part} {} of {}, `{}`", place.step + 1, set.id, set.title);
    let proposer = Proposer::on_behalf(&run, &agent, words);
    let key = set.key(place);
    let headers = Headers { key: key.clone(), if_match: None, if_none_match: None };
    let refused = match propose::within(desk, tx, &proposer, headers, body).await? {
        Ok(Ok(Proposed::Created(op) | Proposed::InProgress(op) | Proposed::Replayed(op))) => return Ok(Ok(op)),
        Ok(Ok(Proposed::Existing { operation, .. })) => return Ok(Ok(operation)),
        Ok(Err(recorded)) if recorded.code == Code::FingerprintConflict => return Ok(Err(recorded)),
        Ok(Err(recorded)) => recorded,
        Err(problem) => return Ok(Err(problem)),
    };
    // It is kept, and has ended in conflict.
    let bound = operation::bound_key(tx, &set.agent, &key).await?;
    match bound {
        Some(bound) => Ok(operation::find(tx, &bound.operation).await?.ok_or(refused)),
        None => Ok(Err(refused)),
    }
}

/// The body of a place's proposal. A version that was left out is the one that the set itself has made of the target: a
/// write by somebody else in between is a conflict.
async fn composed(
    desk: &Desk,
    tx: &mut Tx,
    set: &ChangeSet,
    place: Place,
    ops: &Operations,
) -> store::Result<std::result::Result<NewOperation, Problem>> {
    let rules::Step { plan, write, undo: undone } = &set.steps[place.step];
    let mut body = match (place.part, &plan.compensation) {
        (Part::Write, _) => NewOperation { replans: write.replans.clone(), ..body_of(plan) },
        (Part::Compensation, Some(undo)) => NewOperation {
            target: undo.target.clone(),
            compensates: write.operation.clone(),
            replans: undone.replans.clone(),
            ..body(&undo.kind, &undo.params)
        },
        (Part::Compensation, None) => return Err(store::Error::corrupt(format!("`{}` undoes what it cannot", set.id))),
    };
    let Some(kind) = desk.kind(tx, &body.kind, None).await? else { return Ok(Ok(body)) };
    if place.part == Part::Compensation && kind.kind.required_link == Some(RequiredLink::RollsBack) {
        body.rolls_back.clone_from(&body.compensates);
    }
    let takes_version = match kind.kind.conditional {
        Conditional::Required => true,
        Conditional::Optional => place.part == Part::Compensation,
        Conditional::Absent | Conditional::Never => false,
    };
    if takes_version && body.expected_version.is_none() {
        let target = match kind.check(&body.params, body.target.as_deref(), None) {
            Ok(checked) => checked.target,
            Err(problem) => return Ok(Err(problem)),
        };
        body.expected_version = set.version_made(&target, ops);
        if body.expected_version.is_none() && place.part == Part::Compensation {
            body.expected_version = resource::find(tx, target.as_str()).await?.map(|known| known.current());
        }
    }
    Ok(Ok(body))
}

/// The set with the operation in its place, and when it is looked at next.
fn bind(set: &mut ChangeSet, place: Place, op: Operation, ops: &mut Operations) -> Attention {
    set.place_mut(place).operation = Some(op.id().clone());
    set.refused = None;
    // What has ended at once is looked at at once.
    let seen = if op.life.state.is_terminal() { 0 } else { op.life.version };
    let attention = Attention::On(op.id().clone(), seen);
    ops.insert(op.id().clone(), op);
    attention
}

/// Its operations, their lapses recorded.
async fn load(tx: &mut Tx, set: &ChangeSet) -> store::Result<Operations> {
    let mut ops = Operations::new();
    for id in set.operations() {
        if let Some(op) = operation::find(tx, id).await? {
            ops.insert(id.clone(), lapse(tx, op).await?);
        }
    }
    Ok(ops)
}

/// Does what is next in a set that was read as version `before`, and stores it.
async fn advance(
    desk: &Desk,
    tx: &mut Tx,
    mut set: ChangeSet,
    mut ops: Operations,
    before: i64,
) -> store::Result<Known> {
    let now = tx.now();
    let old = set.clone();
    let mut event = None;
    let attention = match set.next(&ops) {
        Next::Propose(place) => match propose(desk, tx, &set, place, &ops).await? {
            Ok(op) => bind(&mut set, place, op, &mut ops),
            Err(problem) => {
                let is_for_now = problem.retryable();
                set.refused = Some(Refused { code: problem.code, detail: problem.detail });
                if is_for_now { Attention::At(now.plus_seconds(AGAIN_S)) } else { Attention::Never }
            }
        },
        Next::Wait(place, _) => match set.place(place).operation.as_ref().and_then(|id| ops.get(id)) {
            Some(op) => Attention::On(op.id().clone(), op.life.version),
            None => Attention::Never,
        },
        Next::Done => {
            (set.state, event) = (SetState::Done, Some((Event::ChangeSetDone, None)));
            Attention::Never
        }
        Next::Compensated => {
            (set.state, event) = (SetState::Compensated, Some((Event::ChangeSetCompensated, None)));
            Attention::Never
        }
        Next::Stuck(..) => {
            set.state = SetState::Stuck;
            event = Some((Event::ChangeSetStuck, set.stuck_because(&ops)));
            Attention::Never
        }
        Next::Nothing => Attention::Never,
    };
    if set != old && set.version == before {
        set.version += 1;
        set.updated_at = now;
    }
    change_set::update(tx, &set, before, &attention).await?;
    if let Some((event, reason)) = event {
        record(tx, &set, Entry { reason, ..By::system("change-set").entry(event) }).await?;
    }
    Ok(Known { set, ops })
}

async fn record(tx: &mut Tx, set: &ChangeSet, entry: Entry) -> store::Result<()> {
    let resource = format!("change-set/{}", set.id).parse();
    let resource = resource.map_err(|_| store::Error::corrupt(format!("`{}` is no part of a target", set.id)))?;
    let seq = tx.audit(&Entry { resource: Some(resource), ..entry }).await?;
    let notice = Notice {
        topic: Topic::ChangeSet,
        subject: set.id.as_str(),
        agent: Some(set.agent.as_str()),
        state: set.state.as_str(),
        version: set.version,
    };
    tx.publish(seq, notice).await
}

/// Carries on with the sets in which something may be next, one operation each, and tells what was compensated; how many
/// there were.
///
/// # Errors
/// When the database is away.
pub async fn step(desk: &Desk) -> Result<usize> {
    let mut conn = desk.store.read().await?;
    let due = change_set::due(&mut conn, desk.now(), BATCH).await?;
    let untold = change_set::untold(&mut conn, BATCH).await?;
    drop(conn);
    let found = due.len() + untold.len();
    for id in due {
        let (desk_in, set) = (desk.clone(), id.clone());
        let carried_on = desk.commit(move |tx| Box::pin(async move { carry_on(&desk_in, tx, &set).await.map(Ok) }));
        // One set that cannot go on does not hold up the others.
        if let Err(error) = carried_on.await {
            tracing::warn!(%error, change_set.id = %id, "a change set was not carried on");
        }
    }
    for (by, other) in untold {
        desk.commit(move |tx| Box::pin(async move { tell(tx, &by, &other).await.map(Ok) })).await?;
    }
    Ok(found)
}

async fn carry_on(desk: &Desk, tx: &mut Tx, id: &ChangeSetId) -> store::Result<()> {
    let Some(set) = change_set::find(tx, id).await? else { return Ok(()) };
    let (before, ops) = (set.version, load(tx, &set).await?);
    advance(desk, tx, set, ops, before).await.map(drop)
}

/// Notes on an operation how far another one has made good for it. What has is not undone by a later one that has not.
async fn tell(tx: &mut Tx, by: &OperationId, other: &OperationId) -> store::Result<()> {
    let (Some(by), Some(other)) = (operation::find(tx, by).await?, operation::find(tx, other).await?) else {
        return Ok(());
    };
    let by = lapse(tx, by).await?;
    let note = CompensationNote { by: by.id().clone(), status: CompensationStatus::by(&by) };
    let known = other.life.compensation.as_ref();
    let stands = known.is_some_and(|known| known.by != note.by && known.status == CompensationStatus::Compensated);
    if !stands && known != Some(&note) {
        let now = tx.now();
        operation::apply(tx, &other, operations::compensated(&other, note, now)).await?;
    }
    change_set::told(tx, &by).await
}

// Runs and people

fn unknown() -> Problem {
    Problem::new(Code::NotFound, "There is no such change set, or it is not yours to see")
}

/// Whether `principal` may read the set: people, the agent and its runs.
fn may_see(principal: &Principal, set: &ChangeSet) -> bool {
    matches!(principal, Principal::Person(_)) || principal.agent() == Some(&set.agent)
}

/// A set with its operations, as it is now.
///
/// # Errors
/// `not_found`, also for what is not the caller's to see.
pub async fn get(desk: &Desk, principal: &Principal, id: &ChangeSetId) -> Result<Known> {
    let mut conn = desk.store.read().await?;
    let set = change_set::find(&mut conn, id).await?.filter(|set| may_see(principal, set)).ok_or_else(unknown)?;
    let now = desk.now();
    let mut ops = Operations::new();
    for id in set.operations() {
        if let Some(op) = operation::find(&mut conn, id).await? {
            ops.insert(id.clone(), as_of(op, now));
        }
    }
    Ok(Known { set, ops })
}

/// The operations of a set in whose place another one stands, the oldest first.
///
/// # Errors
/// When the database is away.
pub async fn earlier(desk: &Desk, set: &ChangeSet) -> Result<Vec<(Place, Operation)>> {
    let mut conn = desk.store.read().await?;
    let now = desk.now();
    let mut earlier = Vec::new();
    for (id, place) in change_set::operations(&mut conn, &set.id).await? {
        if set.place(place).operation.as_ref() != Some(&id)
            && let Some(op) = operation::find(&mut conn, &id).await?
        {
            earlier.push((place, as_of(op, now)));
        }
    }
    Ok(earlier)
}

/// The newest sets for which a run has proposed something.
///
/// # Errors
/// When the database is away.
pub async fn of_run(desk: &Desk, run: &RunId) -> Result<Vec<ChangeSet>> {
    Ok(change_set::of_run(&mut desk.store.read().await?, run, BATCH).await?)
}

/// The sets that wait for a person, the oldest first.
///
/// # Errors
/// When the database is away.
pub async fn stuck(desk: &Desk) -> Result<Vec<ChangeSet>> {
    Ok(change_set::stuck(&mut desk.store.read().await?, BATCH).await?)
}

/// Takes a set up for a run: the missing step is proposed again, with other content where some is given, and what
/// follows is proposed in the name of this run. What was done stays.
///
/// # Errors
/// `not_found` · `run_stopped` · `invalid_state` when the set has ended, or a step that is under way would be changed ·
/// the refusals of the step's proposal.
pub async fn redo(desk: &Desk, run: &RunIdentity, id: &ChangeSetId, change: Redo) -> Result<Known> {
    let (desk_in, run_in, id) = (desk.clone(), run.clone(), id.clone());
    let done = desk.commit(move |tx| Box::pin(async move { redo_in(&desk_in, tx, &run_in, &id, change).await })).await;
    if let Err(Error::Refused(problem)) = &done {
        propose::record_refusal(desk, &Proposer::run(run), problem).await;
    }
    done
}

async fn redo_in(
    desk: &Desk,
    tx: &mut Tx,
    run: &RunIdentity,
    id: &ChangeSetId,
    change: Redo,
) -> store::Result<std::result::Result<Known, Problem>> {
    let now = tx.now();
    let Some(mut set) = change_set::find(tx, id).await?.filter(|set| set.agent == *run.agent()) else {
        return Ok(Err(unknown()));
    };
    if let Err(problem) = ownership::live(run::by_id(tx, run.id()).await?, now) {
        return Ok(Err(problem));
    }
    let before = set.version;
    let mut ops = load(tx, &set).await?;
    let changed = match change.of(&set.steps) {
        Ok(changed) => changed,
        Err(problem) => return Ok(Err(problem)),
    };
    if let Some((step, plan)) = &changed {
        let earlier = set.steps[..*step].iter().filter_map(|step| ops.get(step.write.operation.as_ref()?));
        let written: Vec<_> = earlier.map(|op| op.proposal.target.clone()).collect();
        if let Err(problem) = check_step(desk, tx, run, plan, &written).await? {
            return Ok(Err(problem));
        }
    }
    let place = match set.redo(changed, &ops) {
        Ok(place) => place,
        Err(problem) => return Ok(Err(problem)),
    };
    let is_taken_up = set.run != *run.id();
    set.run = run.id().clone();
    let (reason, attention) = match place {
        None if !is_taken_up => return Ok(Ok(Known { set, ops })),
        None => ("taken up".to_owned(), None),
        Some(place) => match propose(desk, tx, &set, place, &ops).await? {
            Ok(op) => (format!("step {}", place.step + 1), Some(bind(&mut set, place, op, &mut ops))),
            Err(problem) => return Ok(Err(problem)),
        },
    };
    set.version += 1;
    set.updated_at = now;
    // Not bound to anything new, it is looked at as before.
    let attention = attention.unwrap_or(Attention::At(now));
    change_set::update(tx, &set, before, &attention).await?;
    record(tx, &set, Entry { reason: Some(reason), ..run.by().entry(Event::ChangeSetResumed) }).await?;
    Ok(Ok(Known { set, ops }))
}

/// Starts to undo what was done, the last step first. A step of which nothing was sent is cancelled; of one that is under
/// way the outcome is awaited.
///
/// # Errors
/// `not_found` · `run_stopped` · `forbidden` to all but a live run of its agent, the owner and operators.
pub async fn compensate(desk: &Desk, principal: &Principal, id: &ChangeSetId, reason: String) -> Result<Known> {
    let (desk_in, principal, id) = (desk.clone(), principal.clone(), id.clone());
    desk.commit(move |tx| Box::pin(async move { compensate_in(&desk_in, tx, &principal, &id, reason).await })).await
}

async fn compensate_in(
    desk: &Desk,
    tx: &mut Tx,
    principal: &Principal,
    id: &ChangeSetId,
    reason: String,
) -> store::Result<std::result::Result<Known, Problem>> {
    let now = tx.now();
    let Some(mut set) = change_set::find(tx, id).await?.filter(|set| may_see(principal, set)) else {
        return Ok(Err(unknown()));
    };
    if let Err(problem) = may_compensate(tx, principal, &set.agent).await? {
        return Ok(Err(problem));
    }
    let before = set.version;
    let mut ops = load(tx, &set).await?;
    if matches!(set.state, SetState::Compensating | SetState::Compensated) {
        return Ok(Ok(Known { set, ops }));
    }
    for op in ops.values_mut().filter(|op| op.nothing_sent()) {
        let words = format!("{} is undone", set.id);
        if let Ok(operations::Done::Step(step)) = operations::cancel(op, Actor::system("desk"), None, &words, now) {
            *op = operation::apply(tx, op, principal.by().step(step)).await?;
        }
    }
    if let Principal::Run(run) = principal {
        set.run = run.id().clone();
    }
    set.turn_back(reason.clone(), &ops);
    set.version += 1;
    set.updated_at = now;
    let entry = Entry { reason: Some(reason), ..principal.by().entry(Event::ChangeSetCompensating) };
    record(tx, &set, entry).await?;
    advance(desk, tx, set, ops, before).await.map(Ok)
}

async fn may_compensate(
    tx: &mut Tx,
    principal: &Principal,
    agent: &AgentId,
) -> store::Result<std::result::Result<(), Problem>> {
    let now = tx.now();
    match principal {
        Principal::Run(run) => Ok(ownership::live(run::by_id(tx, run.id()).await?, now).map(drop)),
        Principal::Person(person) => {
            let may = person_may_compensate(tx, person, agent).await?;
            let detail = "The agent's owner, an operator or an admin may have a change set undone";
            Ok(may.then_some(()).ok_or_else(|| Problem::new(Code::Forbidden, detail)))
        }
        Principal::Agent(_) | Principal::Executor(_) => {
            let detail = "A run of the agent, its owner or an operator may have a change set undone";
            Ok(Err(Problem::new(Code::Forbidden, detail)))
        }
    }
}

/// Whether a person may have the sets of `agent` undone: its owner, operators and admins.
///
/// # Errors
/// When the database is away.
pub async fn person_may_compensate(conn: &mut Conn, person: &PersonIdentity, agent: &AgentId) -> store::Result<bool> {
    let owner = agent::by_id(conn, agent).await?.map(|agent| agent.owner);
    Ok(owner.as_ref() == Some(person.id()) || matches!(person.role(), Role::Operator | Role::Admin))
}

// As it is read

/// A set as JSON.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ChangeSetView {
    #[schema(value_type = String)]
    pub id: ChangeSetId,
    pub title: String,
    pub state: SetState,
    pub version: i64,
    #[schema(value_type = String)]
    pub agent: AgentId,
    /// The run in whose name the next operation is proposed.
    #[schema(value_type = String)]
    pub run: RunId,
    pub steps: Vec<StepView>,
    /// What it waits for; nothing once it has ended.
    pub waits_for: Option<Waits>,
    /// Why it cannot be undone as planned: a person decides.
    pub stuck: Option<String>,
    /// Why it is undone.
    pub reason: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct StepView {
    /// From 1.
    pub number: usize,
    #[serde(flatten)]
    pub plan: Planned,
    pub operation: Option<OperationRef>,
    /// What undoes it, once that is proposed.
    pub compensated_by: Option<OperationRef>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct OperationRef {
    #[schema(value_type = String)]
    pub id: OperationId,
    pub state: State,
}

/// The place at which a set waits, and for what.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Waits {
    /// From 1.
    pub step: usize,
    pub part: Part,
    /// Of its operation; nothing before that is proposed.
    pub progress: Option<Progress>,
    /// Why it could not be proposed.
    pub refused: Option<Refused>,
}

impl ChangeSetView {
    pub fn new(Known { set, ops }: Known) -> Self {
        let waits_for = match set.next(&ops) {
            Next::Propose(place) => Some((place, None)),
            Next::Wait(place, progress) => Some((place, Some(progress))),
            _ => None,
        };
        let waits_for = waits_for.map(|(place, progress)| Waits {
            step: place.step + 1,
            part: place.part,
            progress,
            refused: set.refused.clone(),
        });
        let reference = |tries: &Tries| {
            let id = tries.operation.as_ref()?;
            Some(OperationRef { id: id.clone(), state: ops.get(id)?.life.state })
        };
        let view = |(i, step): (usize, &rules::Step)| StepView {
            number: i + 1,
            operation: reference(&step.write),
            compensated_by: reference(&step.undo),
            plan: step.plan.clone(),
        };
        Self {
            steps: set.steps.iter().enumerate().map(view).collect(),
            waits_for,
            stuck: set.stuck_because(&ops),
            id: set.id,
            title: set.title,
            state: set.state,
            version: set.version,
            agent: set.agent,
            run: set.run,
            reason: set.reason,
            created_at: set.created_at,
            updated_at: set.updated_at,
        }
    }
}
