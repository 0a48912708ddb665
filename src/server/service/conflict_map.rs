//! The conflict map: where runs could collide, and whether a set could be granted.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Desk, error::Result, run::RunView};
use crate::{
    model::{
        id::RunId,
        kind::Verb,
        overlap::{self, Collision, Overlap, Plan, overlaps},
        problem::{Code, Problem},
        run::{self as rules, Scope, WriteRequest},
        time::Timestamp,
    },
    server::{
        store::{
            self, Conn,
            run::{self, Run},
        },
        web::auth::Principal,
    },
};

/// Live runs looked at, the newest first.
const MAX_RUNS: i64 = 500;

/// The map as JSON.
#[derive(Debug, Serialize, ToSchema)]
pub struct MapView {
    pub runs: Vec<RunView>,
    /// The worst first.
    pub overlaps: Vec<OverlapView>,
    /// There are more runs or overlaps than are named.
    pub truncated: bool,
}

/// One place where two runs could collide.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct OverlapView {
    pub collision: Collision,
    /// One target, or a prefix of several.
    pub resource: Scope,
    /// The run that writes; `null` for the set that is asked about.
    #[schema(value_type = Option<String>)]
    pub writer: Option<RunId>,
    pub writer_name: String,
    pub writer_verbs: BTreeSet<Verb>,
    #[schema(value_type = Option<String>)]
    pub other: Option<RunId>,
    pub other_name: String,
    /// Empty where the other does not write.
    pub other_verbs: BTreeSet<Verb>,
    pub from: Timestamp,
    pub until: Timestamp,
    pub sentence: String,
}

/// A run as sentences call it.
fn name(run: &Run) -> String {
    format!("{} ({})", run.agent_name, run.label)
}

fn plan<'p>(run: &'p Run, name: &'p str) -> Plan<'p> {
    Plan {
        name,
        write_set: run.write_set.as_deref().unwrap_or_default(),
        reads: run.reads.as_deref().unwrap_or_default(),
        defaults: run.defaults.as_deref().unwrap_or_default(),
        expires_at: run.expires_at,
    }
}

/// Live runs that said what they do.
async fn declared(conn: &mut Conn, now: Timestamp) -> store::Result<Vec<Run>> {
    let says = |run: &Run| run.write_set.is_some() || run.reads.is_some() || run.defaults.is_some();
    Ok(run::live(conn, now, MAX_RUNS).await?.into_iter().filter(says).collect())
}

/// All live runs that said what they do, and where they could collide; to a program only what its own runs have part in.
///
/// # Errors
/// `forbidden` for executors.
pub async fn map(desk: &Desk, principal: &Principal) -> Result<MapView> {
    if matches!(principal, Principal::Executor(_)) {
        return Err(Problem::new(Code::Forbidden, "an executor has no runs").into());
    }
    let now = desk.now();
    let mut runs = declared(&mut desk.store.read().await?, now).await?;
    let names: Vec<_> = runs.iter().map(name).collect();
    let plans: Vec<_> = runs.iter().zip(&names).map(|(run, name)| plan(run, name)).collect();
    let found = overlaps(&plans, now);
    let truncated = found.len() == overlap::MAX_OVERLAPS || runs.len() as i64 == MAX_RUNS;
    let agent = principal.agent();
    let is_own = |run: &Run| agent.is_none_or(|agent| *agent == run.agent);
    let concerns = |found: &&Overlap| is_own(&runs[found.writer]) || is_own(&runs[found.other]);
    let id = |place: usize| Some(runs[place].id.clone());
    let overlaps = found.iter().filter(concerns).map(|found| view(found, &plans, id)).collect();
    runs.retain(is_own);
    Ok(MapView { overlaps, runs: runs.into_iter().map(|run| RunView::new(run, now)).collect(), truncated })
}

fn view(found: &Overlap, plans: &[Plan], id: impl Fn(usize) -> Option<RunId>) -> OverlapView {
    OverlapView {
        collision: found.collision,
        resource: found.resource.clone(),
        writer: id(found.writer),
        writer_name: plans[found.writer].name.to_owned(),
        writer_verbs: found.writer_verbs.clone(),
        other: id(found.other),
        other_name: plans[found.other].name.to_owned(),
        other_verbs: found.other_verbs.clone(),
        from: found.from,
        until: found.until,
        sentence: found.sentence(plans),
    }
}

/// A set that nobody has asked for yet.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedSet {
    #[serde(default)]
    #[schema(max_items = 200)]
    pub write_set: Vec<WriteRequest>,
    #[serde(default)]
    #[schema(max_items = 200)]
    pub reads: Vec<Scope>,
    #[serde(default)]
    #[schema(max_items = 200)]
    pub defaults: Vec<Scope>,
    /// Seconds the run would live.
    #[schema(minimum = 1, maximum = 2_592_000)]
    pub expires_in_s: Option<i64>,
}

/// What would come of a planned set.
#[derive(Debug, Serialize, ToSchema)]
pub struct PlannedView {
    /// Whether a run with this set would be started now.
    pub grantable: bool,
    /// The refusal it would get: `ownership_conflict` or `outside_write_set`.
    #[schema(value_type = Option<Object>)]
    pub refusal: Option<Refusal>,
    pub overlaps: Vec<OverlapView>,
}

#[derive(Debug, Serialize)]
pub struct Refusal {
    pub code: Code,
    pub detail: String,
    #[serde(flatten)]
    members: serde_json::Map<String, serde_json::Value>,
}

/// Where a set would collide with live runs, and whether it would be granted. Nothing is reserved.
///
/// # Errors
/// `forbidden` for executors · `validation_failed`.
pub async fn check(desk: &Desk, principal: &Principal, set: PlannedSet) -> Result<PlannedView> {
    let now = desk.now();
    let ceiling = match principal {
        Principal::Executor(_) => return Err(Problem::new(Code::Forbidden, "an executor has no runs").into()),
        Principal::Agent(agent) => agent.allow().map(<[_]>::to_vec),
        Principal::Run(run) => run.ceiling().map(<[_]>::to_vec),
        Principal::Person(_) => None,
    };
    let expires_at = now.plus_seconds(rules::life_s(set.expires_in_s)?);
    rules::check_lists(&set.reads, &set.defaults)?;
    let requested = set.write_set.clone();
    let granted = match rules::grant(requested, ceiling.as_deref(), now) {
        Err(problem) if problem.code == Code::ValidationFailed => return Err(problem.into()),
        granted => granted,
    };
    let write_set = match &granted {
        Ok(granted) => granted.clone(),
        // Beyond the ceiling it is still worth knowing whom it would meet.
        Err(_) => rules::grant(set.write_set, None, now)?,
    };
    let runs = declared(&mut desk.store.read().await?, now).await?;
    let names: Vec<_> = runs.iter().map(name).collect();
    let planned =
        Plan { name: "this set", write_set: &write_set, reads: &set.reads, defaults: &set.defaults, expires_at };
    let plans: Vec<_> = runs.iter().zip(&names).map(|(run, name)| plan(run, name)).chain([planned]).collect();
    let found = overlaps(&plans, now);
    let id = |place: usize| runs.get(place).map(|run| run.id.clone());
    let concerns = |found: &&Overlap| id(found.writer).is_none() || id(found.other).is_none();
    let refusal = granted.err().or_else(|| contested(&planned, &runs, now));
    Ok(PlannedView {
        grantable: refusal.is_none(),
        refusal: refusal.map(|Problem { code, detail, members, .. }| Refusal { code, detail, members }),
        overlaps: found.iter().filter(concerns).map(|found| view(found, &plans, id)).collect(),
    })
}

/// The refusal of a set of which another live run has something for itself.
fn contested(wanted: &Plan, runs: &[Run], now: Timestamp) -> Option<Problem> {
    runs.iter().find_map(|run| {
        let held = plan(run, run.id.as_str());
        let (index, resource, verb, until) = overlap::contested(wanted, &held, now)?;
        Some(overlap::ownership_conflict(index, resource, verb, held.name, until))
    })
}

/// Whether `run`, about to start, may have for itself what it asks for.
///
/// # Errors
/// `ownership_conflict`.
pub async fn check_ownership(
    conn: &mut Conn,
    run: &Run,
    now: Timestamp,
) -> store::Result<std::result::Result<(), Problem>> {
    if !run.write_set.iter().flatten().any(|grant| grant.exclusive) {
        return Ok(Ok(()));
    }
    let others = run::live(conn, now, i64::MAX).await?;
    Ok(contested(&plan(run, run.id.as_str()), &others, now).map_or(Ok(()), Err))
}
