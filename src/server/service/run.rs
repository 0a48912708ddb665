//! Runs: started by an agent, stopped by themselves, their owner or an operator.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Desk,
    agents::{Issued, Label},
    cancel, conflict_map,
    error::Result,
    lease,
};
use crate::{
    model::{
        approval::Role,
        audit::Event,
        id::{AgentId, RunId},
        problem::{Code, Problem},
        run::{self as rules, RunStatus, Scope, WriteGrant, WriteRequest},
        time::Timestamp,
    },
    server::{
        ids::{self, Secret, TokenKind},
        store::{
            agent,
            committer::{Notice, Topic},
            run::{self, Run, Stopped},
        },
        web::auth::{AgentIdentity, Principal},
    },
};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRun {
    pub label: Label,
    #[schema(minimum = 1, maximum = 2_592_000)]
    pub expires_in_s: Option<i64>,
    #[schema(max_items = 200)]
    pub write_set: Option<Vec<WriteRequest>>,
    /// What the run reads.
    #[schema(max_items = 200)]
    pub reads: Option<Vec<Scope>>,
    /// What it relies on as shared defaults.
    #[schema(max_items = 200)]
    pub defaults: Option<Vec<Scope>>,
}

/// # Errors
/// `validation_failed` · `outside_write_set` when the set goes beyond the agent's ceiling · `ownership_conflict` when a
/// live run has some of it for itself.
pub async fn start(desk: &Desk, agent: &AgentIdentity, new: NewRun) -> Result<Issued<Run>> {
    let life_s = rules::life_s(new.expires_in_s)?;
    rules::check_lists(new.reads.as_deref().unwrap_or_default(), new.defaults.as_deref().unwrap_or_default())?;
    let token = Secret::token(TokenKind::Run);
    let (hash, by, agent) = (token.hash(), agent.by(), agent.agent().clone());
    let run = desk
        .commit(move |tx| {
            Box::pin(async move {
                let now = tx.now();
                let granted = new.write_set.map(|set| rules::grant(set, agent.allow.as_deref(), now)).transpose();
                let write_set = match granted {
                    Ok(write_set) => write_set,
                    Err(problem) => return Ok(Err(problem)),
                };
                let run = Run {
                    id: ids::new(now),
                    agent: agent.id,
                    agent_name: agent.name,
                    label: new.label.as_str().to_owned(),
                    write_set,
                    reads: new.reads,
                    defaults: new.defaults,
                    created_at: now,
                    expires_at: now.plus_seconds(life_s),
                    stopped: None,
                };
                if let Err(problem) = conflict_map::check_ownership(tx, &run, now).await? {
                    return Ok(Err(problem));
                }
                run::insert(tx, &run, &hash).await?;
                let mut entry = by.entry(Event::RunStarted);
                entry.run = Some(run.id.clone());
                let seq = tx.audit(&entry).await?;
                tx.publish(seq, notice(&run, RunStatus::Live)).await?;
                Ok(Ok(run))
            })
        })
        .await?;
    Ok(Issued { principal: run, token })
}

fn notice(run: &Run, status: RunStatus) -> Notice<'_> {
    let version = if run.stopped.is_some() { 2 } else { 1 };
    Notice {
        topic: Topic::Run,
        subject: run.id.as_str(),
        agent: Some(run.agent.as_str()),
        state: status.as_str(),
        version,
    }
}

/// A run as its agent or a person sees it.
///
/// # Errors
/// `not_found`, also for another agent's run.
pub async fn get(desk: &Desk, principal: &Principal, id: &RunId) -> Result<Run> {
    let found = run::by_id(&mut desk.store.read().await?, id).await?;
    Ok(found.filter(|run| sees(principal, &run.agent)).ok_or_else(|| unknown(id))?)
}

fn sees(principal: &Principal, agent: &AgentId) -> bool {
    matches!(principal, Principal::Person(_)) || principal.agent() == Some(agent)
}

fn unknown(id: &RunId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no run `{id}` for you"))
}

/// The newest first, `limit` at most: all of them for people, its own for a program.
///
/// # Errors
/// `forbidden` for executors.
pub async fn list(desk: &Desk, principal: &Principal, before: Option<&RunId>, limit: i64) -> Result<Vec<Run>> {
    let agent = match principal {
        Principal::Person(_) => None,
        Principal::Executor(_) => return Err(Problem::new(Code::Forbidden, "an executor has no runs").into()),
        own => own.agent(),
    };
    Ok(run::list(&mut desk.store.read().await?, agent, before, limit).await?)
}

/// Stops a run for good; what it has not sent is cancelled with it. Stopping it again changes nothing.
///
/// # Errors
/// `not_found` · `forbidden` unless it is the run itself, the agent's owner or an operator.
pub async fn stop(desk: &Desk, principal: &Principal, id: &RunId, reason: String) -> Result<Run> {
    let (id, principal) = (id.clone(), principal.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let Some(mut run) = run::by_id(tx, &id).await?.filter(|run| sees(&principal, &run.agent)) else {
                return Ok(Err(unknown(&id)));
            };
            let allowed = match &principal {
                Principal::Run(own) => *own.id() == id,
                Principal::Person(person) => {
                    let owner = agent::by_id(tx, &run.agent).await?.map(|agent| agent.owner);
                    matches!(person.role(), Role::Operator | Role::Admin) || owner.as_ref() == Some(person.id())
                }
                Principal::Agent(_) | Principal::Executor(_) => false,
            };
            if !allowed {
                let detail = "a run is stopped by itself, by its agent's owner or by an operator";
                return Ok(Err(Problem::new(Code::Forbidden, detail)));
            }
            let by = principal.by();
            let stopped = Stopped { at: tx.now(), by: by.actor.id.clone(), reason };
            if !run::stop(tx, &id, &stopped).await? {
                return Ok(Ok(run));
            }
            let mut entry = by.entry(Event::RunStopped);
            entry.run = Some(id.clone());
            entry.reason = Some(stopped.reason.clone());
            run.stopped = Some(stopped);
            let seq = tx.audit(&entry).await?;
            tx.publish(seq, notice(&run, RunStatus::Stopped)).await?;
            cancel::all_unsent_of_run(tx, &by, &id, "the run was stopped").await?;
            lease::release_all_of_run(tx, &by, &id, "the run was stopped").await?;
            Ok(Ok(run))
        })
    })
    .await
}

/// The run as JSON.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunView {
    #[schema(value_type = String)]
    pub id: RunId,
    #[schema(value_type = String)]
    pub agent: AgentId,
    pub agent_name: String,
    pub label: String,
    pub state: RunStatus,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub stopped_at: Option<Timestamp>,
    pub stopped_by: Option<String>,
    pub stop_reason: Option<String>,
    pub write_set: Option<Vec<WriteGrant>>,
    pub reads: Option<Vec<Scope>>,
    pub defaults: Option<Vec<Scope>>,
}

impl RunView {
    pub fn new(run: Run, now: Timestamp) -> Self {
        let state = run.status(now);
        let (stopped_at, stopped_by, stop_reason) = match run.stopped {
            Some(Stopped { at, by, reason }) => (Some(at), Some(by), Some(reason)),
            None => (None, None, None),
        };
        Self {
            id: run.id,
            agent: run.agent,
            agent_name: run.agent_name,
            label: run.label,
            state,
            created_at: run.created_at,
            expires_at: run.expires_at,
            stopped_at,
            stopped_by,
            stop_reason,
            write_set: run.write_set,
            reads: run.reads,
            defaults: run.defaults,
        }
    }
}
