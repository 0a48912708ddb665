//! Resources: read, written and reported. What is held here is written by [`managed`] alone.

pub mod managed;
pub mod rules;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::{
    Desk,
    error::Result,
    propose::{self, Headers, NewOperation, Proposed, Proposer},
    version,
};
use crate::{
    model::{
        approval::Role,
        audit::{Entry, Event},
        etag::Tags,
        json::is_exact,
        problem::{Code, Problem},
        resource::{Author, FieldChange, VersionChange},
        run::{Allowance, Scope, WriteGrant},
        target::Target,
        time::Timestamp,
    },
    server::{
        store::{
            self, Conn,
            committer::{Notice, Topic},
            operation, resource,
            resource::{Known, VersionRow},
            resource_rule::{self, Stored},
        },
        web::auth::{Principal, RunIdentity},
    },
};

/// A resource at one version.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ResourceDoc {
    #[schema(value_type = String)]
    pub resource: Target,
    pub version: i64,
    /// The document; null of what lives elsewhere.
    #[schema(value_type = Option<Object>)]
    pub value: Option<Value>,
    pub managed: bool,
    pub updated_at: Timestamp,
    pub by: Author,
}

fn not_found() -> Problem {
    Problem::new(Code::NotFound, "There is no such resource, or it is not yours to see")
}

// Who may read

/// Whether `principal` may see the content of `target`. Where no rule names readers everybody may; where one does,
/// people of its groups, and programs whose write set, declared reads or ceiling hold the target.
///
/// # Errors
/// When the database is away.
pub async fn may_read(conn: &mut Conn, principal: &Principal, target: &str) -> store::Result<bool> {
    Ok(permits(&resource_rule::in_force(conn).await?, principal, target))
}

fn permits(rules: &[Stored], principal: &Principal, target: &str) -> bool {
    let restricting = |stored: &&Stored| !stored.rule.readers.is_empty() && stored.rule.scope.contains(target);
    rules.iter().filter(restricting).all(|stored| reads(principal, &stored.rule.readers, target))
}

fn reads(principal: &Principal, readers: &[String], target: &str) -> bool {
    match principal {
        Principal::Person(person) => person.groups().iter().any(|group| readers.contains(group)),
        Principal::Run(run) => is_within(run, target),
        Principal::Agent(agent) => agent.allow().is_some_and(|allow| holds(allow, target)),
        Principal::Executor(_) => false,
    }
}

fn holds(allow: &[Allowance], target: &str) -> bool {
    allow.iter().any(|allowance| allowance.resource.contains(target))
}

/// What a run declares counts within its agent's ceiling; without a declaration the ceiling itself does.
fn is_within(run: &RunIdentity, target: &str) -> bool {
    let writes = |grant: &WriteGrant| grant.resource.contains(target);
    let declared = run.write_set().is_some_and(|set| set.iter().any(writes))
        || run.run().reads.as_ref().is_some_and(|reads| reads.iter().any(|scope: &Scope| scope.contains(target)));
    match run.ceiling() {
        Some(allow) => holds(allow, target),
        None => declared,
    }
}

/// What is known of a target that `principal` may read.
async fn visible(conn: &mut Conn, principal: &Principal, target: &Target) -> Result<Known> {
    let known = resource::find(conn, target.as_str()).await?;
    match known {
        Some(known) if may_read(conn, principal, target.as_str()).await? => Ok(known),
        _ => Err(not_found().into()),
    }
}

/// A resource as it is, or as it was at `version`.
///
/// # Errors
/// `not_found`, also for what was deleted and for what the caller may not read.
pub async fn read(desk: &Desk, principal: &Principal, target: &Target, version: Option<i64>) -> Result<ResourceDoc> {
    let mut conn = desk.store.read().await?;
    let known = visible(&mut conn, principal, target).await?;
    let version = version.unwrap_or_else(|| known.current());
    Ok(at(&mut conn, target, &known, version).await?.ok_or_else(not_found)?)
}

/// One version in full; `None` where nothing was there then.
async fn at(conn: &mut Conn, target: &Target, known: &Known, version: i64) -> store::Result<Option<ResourceDoc>> {
    let row = resource::author_of(conn, target.as_str(), version).await?;
    let value = resource::document_at(conn, target.as_str(), version).await?;
    let there = row.filter(|row| row.change != VersionChange::Deleted);
    Ok(there.map(|row| ResourceDoc {
        resource: target.clone(),
        version,
        value,
        managed: known.is_managed(),
        updated_at: row.at,
        by: row.author,
    }))
}

// Lists

/// What a list of resources asks for.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
pub struct ListQuery {
    /// What the targets begin with, `notification-policy/`.
    pub prefix: String,
    /// The last target of the page before.
    pub cursor: Option<String>,
    pub limit: Option<i64>,
}

/// A resource in a list, without its document.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ResourceLine {
    pub resource: String,
    pub version: i64,
    pub managed: bool,
    pub updated_at: Timestamp,
}

const PAGE: i64 = 50;
const MAX_PAGE: i64 = 200;

/// Resources that exist and the caller may read, by target; and where the next page begins.
///
/// # Errors
/// When the database is away.
pub async fn list(desk: &Desk, principal: &Principal, query: ListQuery) -> Result<(Vec<ResourceLine>, Option<String>)> {
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE) as usize;
    let mut conn = desk.store.read().await?;
    let rules = resource_rule::in_force(&mut conn).await?;
    let mut after = query.cursor.unwrap_or_default();
    let mut lines: Vec<ResourceLine> = Vec::new();
    loop {
        let found = resource::list(&mut conn, &query.prefix, &after, MAX_PAGE).await?;
        let is_last = (found.len() as i64) < MAX_PAGE;
        for listed in found {
            if lines.len() == limit {
                let next = lines.last().map(|line| line.resource.clone());
                return Ok((lines, next));
            }
            after.clone_from(&listed.target);
            if permits(&rules, principal, &listed.target) {
                lines.push(ResourceLine {
                    resource: listed.target,
                    version: listed.known.version,
                    managed: listed.known.is_managed(),
                    updated_at: listed.known.updated_at,
                });
            }
        }
        if is_last {
            return Ok((lines, None));
        }
    }
}

/// One field in a version's history. Digests are salted with the resource's own salt.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct FieldDoc {
    pub pointer: String,
    pub change: FieldChange,
    pub old_digest: Option<String>,
    pub new_digest: Option<String>,
}

/// One version in the history of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct VersionDoc {
    pub version: i64,
    pub change: VersionChange,
    pub by: Author,
    pub at: Timestamp,
    pub fields: Vec<FieldDoc>,
}

impl From<VersionRow> for VersionDoc {
    fn from(row: VersionRow) -> Self {
        let fields = row.fields.into_iter().map(|field| FieldDoc {
            pointer: field.pointer,
            change: field.change,
            old_digest: field.old_digest,
            new_digest: field.new_digest,
        });
        Self { version: row.version, change: row.change, by: row.author, at: row.at, fields: fields.collect() }
    }
}

/// What a page of the history asks for.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
pub struct HistoryQuery {
    /// The oldest version of the page before.
    pub cursor: Option<i64>,
    pub limit: Option<i64>,
}

/// Versions of a resource, the newest first, also of one that was deleted; and where the next page begins.
///
/// # Errors
/// `not_found`.
pub async fn history(
    desk: &Desk,
    principal: &Principal,
    target: &Target,
    query: HistoryQuery,
) -> Result<(Vec<VersionDoc>, Option<i64>)> {
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let mut conn = desk.store.read().await?;
    visible(&mut conn, principal, target).await?;
    let mut rows = resource::history(&mut conn, target.as_str(), query.cursor, limit + 1).await?;
    let has_more = rows.len() as i64 > limit;
    rows.truncate(limit as usize);
    let next = rows.last().filter(|_| has_more).map(|row| row.version);
    Ok((rows.into_iter().map(VersionDoc::from).collect(), next))
}

// Writes

/// What is asked of one resource.
#[derive(Debug, Clone)]
pub enum Change {
    /// The whole document.
    Put(Value),
    /// A merge patch (RFC 7396).
    Patch(Value),
    Delete,
}

/// Proposes the write: fingerprinted, replayed and refused exactly as the same operation posted.
///
/// # Errors
/// `not_found` where a patch or a deletion names nothing and no earlier request of this key is known; those of a
/// proposal.
pub async fn write(
    desk: &Desk,
    principal: &Principal,
    headers: Headers,
    target: &Target,
    change: Change,
    expected_version: Option<i64>,
) -> Result<Proposed> {
    let proposer = match principal {
        Principal::Run(run) => Proposer::run(run),
        Principal::Person(person) => Proposer::person(desk, person).await?,
        Principal::Agent(_) | Principal::Executor(_) => {
            return Err(Problem::new(Code::Forbidden, "A run or a person writes resources").into());
        }
    };
    let mut conn = desk.store.read().await?;
    let known = resource::find(&mut conn, target.as_str()).await?;
    let is_there = known.is_some_and(|known| known.current() > 0);
    let may_read = may_read(&mut conn, principal, target.as_str()).await?;
    let names_nothing = !is_there && !matches!(change, Change::Put(_));
    if (names_nothing || !may_read) && operation::bound_key(&mut conn, proposer.agent(), &headers.key).await?.is_none()
    {
        return Err(not_found().into());
    }
    drop(conn);
    let creates = headers.if_none_match == Some(Tags::Any) || expected_version == Some(0);
    let (kind, params) = match change {
        Change::Put(value) if creates => ("resource.create", json!({"value": value})),
        Change::Put(value) => ("resource.replace", json!({"value": value})),
        Change::Patch(patch) => ("resource.update", json!({"patch": patch})),
        Change::Delete => ("resource.delete", json!({})),
    };
    let body = NewOperation {
        kind: kind.to_owned(),
        params,
        target: Some(target.to_string()),
        reason: None,
        expected_version,
        source_event_id: None,
        retry: None,
        supersedes: None,
        replans: None,
        compensates: None,
        rolls_back: None,
    };
    propose::propose(desk, &proposer, headers, body).await
}

/// The resource as a succeeded write made it; `None` after a deletion.
///
/// # Errors
/// When the database is away.
pub async fn made(desk: &Desk, target: &Target, version: i64) -> Result<Option<ResourceDoc>> {
    let mut conn = desk.store.read().await?;
    match resource::find(&mut conn, target.as_str()).await? {
        Some(known) => Ok(at(&mut conn, target, &known, version).await?),
        None => Ok(None),
    }
}

// Versions of what lives elsewhere

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// What the resource is at now, 1 or more.
    pub version: i64,
}

/// Records the version somebody saw; a lower one than is known changes nothing.
///
/// # Errors
/// `forbidden` to those who neither write nor look after targets · `outside_write_set` · `run_stopped` ·
/// `validation_failed` · `invalid_state` for what is held here.
pub async fn observe(
    desk: &Desk,
    principal: &Principal,
    target: &Target,
    observation: Observation,
) -> Result<ResourceDoc> {
    let version = observation.version;
    if version < 1 || !is_exact(version) {
        return Err(Problem::at(Code::ValidationFailed, "/version", "expected a version, 1 or more").into());
    }
    let author = observer(desk, principal, target)?;
    let (by, target) = (principal.by(), target.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let known = resource::find(tx, target.as_str()).await?;
            if known.as_ref().is_some_and(Known::is_managed) {
                let detail = format!("Counterfoil holds `{target}` and counts its versions itself");
                return Ok(Err(Problem::new(Code::InvalidState, detail)));
            }
            if known.is_none_or(|known| known.version < version) {
                let record = Entry {
                    resource: Some(target.clone()),
                    result_version: Some(version),
                    ..by.entry(Event::ResourceChanged)
                };
                let seq = tx.audit(&record).await?;
                let notice = Notice {
                    topic: Topic::Resource,
                    subject: target.as_str(),
                    agent: author.agent.as_ref().map(|agent| agent.as_str()),
                    state: VersionChange::Observed.as_str(),
                    version,
                };
                tx.publish(seq, notice).await?;
                version::observe(tx, &by, target.as_str(), version, &author).await?;
            }
            let Some(known) = resource::find(tx, target.as_str()).await? else { return Ok(Err(not_found())) };
            Ok(at(tx, &target, &known, known.version).await?.ok_or_else(not_found))
        })
    })
    .await
}

/// Executors and runs see what they write; operators may correct what nobody reported.
fn observer(desk: &Desk, principal: &Principal, target: &Target) -> std::result::Result<Author, Problem> {
    match principal {
        Principal::Executor(_) => Ok(Author::default()),
        Principal::Run(run) => {
            run.live()?;
            let now = desk.now();
            let sees = |grant: &WriteGrant| {
                grant.resource.contains(target.as_str()) && grant.expires_at.is_none_or(|end| now < end)
            };
            if run.write_set().is_some_and(|set| !set.iter().any(sees)) {
                let detail = format!("The run has no part in `{target}`");
                return Err(Problem::new(Code::OutsideWriteSet, detail));
            }
            Ok(Author { run: Some(run.id().clone()), agent: Some(run.agent().clone()), ..Author::default() })
        }
        Principal::Person(person) if matches!(person.role(), Role::Operator | Role::Admin) => {
            Ok(Author { person: Some(person.id().clone()), ..Author::default() })
        }
        Principal::Person(_) | Principal::Agent(_) => {
            Err(Problem::new(Code::Forbidden, "A run, an executor or an operator reports versions"))
        }
    }
}
