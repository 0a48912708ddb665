//! Proposing an operation: one key, one operation, however often it arrives.
//!
//! What can be checked without the database is checked before the command; the command then decides, in this order:
//! known key → run → caps → write set → precondition → *the key is bound* → stale, business key, invariants.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    By, Desk, agents, catalogue, conflict,
    error::Result,
    kinds::{CompiledKind, ConsequenceFacts, LinkedPayment},
    provider,
    resource::managed::{self, Wanted},
    run_approval,
};
use crate::{
    model::{
        audit::{Actor, Entry, Event, key_ref},
        conflict::{Conflict, Met},
        document,
        etag::Tags,
        fingerprint::{Account, Command, FINGERPRINT_VERSION, Fingerprint, Links},
        id::{AgentId, ApprovalId, ConflictId, OperationId, PersonId, RunId},
        json,
        kind::{Amount, Conditional, Executor, Extent, KeyLife, Limit, Lock, OnDuplicate, RequiredLink},
        operation::{Approval, Life, Operation, Proposal, State, rules, rules::Step},
        policy::MatchFacts,
        problem::{Code, Problem, RetryMode},
        run::{self, WriteGrant},
        target::Target,
        time::Timestamp,
    },
    server::{
        ids,
        store::{self, Conn, Tx, agent, agent::Agent, operation, operation::Stored, resource, run as runs},
        web::auth::{PersonIdentity, RunIdentity},
    },
};

/// Characters of an agent's own words, and of a source event's id.
const MAX_REASON: usize = 10_000;
const MAX_EVENT_ID: usize = 255;
/// Seconds for which an accepted effect may be under way where no provider says otherwise.
const IN_FLIGHT_S: i64 = 3600;

/// The body of a proposal.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewOperation {
    pub kind: String,
    #[schema(value_type = Object)]
    pub params: Value,
    #[serde(default)]
    pub target: Option<String>,
    /// The agent's own words; outside the fingerprint.
    #[serde(default)]
    pub reason: Option<String>,
    /// The version of the target the write was planned on; 0 when it must not exist.
    #[serde(default)]
    pub expected_version: Option<i64>,
    /// The event that caused this, in the source's own spelling.
    #[serde(default)]
    pub source_event_id: Option<String>,
    /// A declared retry: an unknown key creates nothing.
    #[serde(default)]
    pub retry: Option<bool>,
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub supersedes: Option<OperationId>,
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub replans: Option<OperationId>,
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub compensates: Option<OperationId>,
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub rolls_back: Option<OperationId>,
}

/// The headers that matter, read.
#[derive(Debug, Clone)]
pub struct Headers {
    pub key: String,
    pub if_match: Option<Tags>,
    pub if_none_match: Option<Tags>,
}

/// What a proposal came to.
#[derive(Debug, Clone)]
pub enum Proposed {
    /// 201
    Created(Operation),
    /// 202: a known key, still open.
    InProgress(Operation),
    /// 200: a known key, ended; the stored outcome.
    Replayed(Operation),
    /// 200: a new key for an event that has its operation already.
    Existing { operation: Operation, differs: Vec<String> },
}

/// Reads one `Idempotency-Key` field line: a bare token, or the same as a string (RFC 9651 §3.3.3).
///
/// # Errors
/// `idempotency_key_missing`, `idempotency_key_invalid`.
pub fn read_key<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> std::result::Result<String, Problem> {
    let mut lines = lines.into_iter();
    let Some(line) = lines.next() else {
        return Err(Problem::new(
            Code::IdempotencyKeyMissing,
            "send `Idempotency-Key: <16 to 255 of A-Z a-z 0-9 . _ ~ : ->`, the same on every retry of this action",
        ));
    };
    let invalid = |detail: &str| Problem::new(Code::IdempotencyKeyInvalid, detail);
    if lines.next().is_some() {
        return Err(invalid("send one `Idempotency-Key` line"));
    }
    let text = std::str::from_utf8(line).unwrap_or_default().trim_matches([' ', '\t']);
    let token = text.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')).unwrap_or(text);
    let is_token = token.bytes().all(|b| b.is_ascii_alphanumeric() || b"._~:-".contains(&b));
    if !is_token || !(16..=255).contains(&token.len()) {
        return Err(invalid("a key is 16 to 255 characters of A-Z a-z 0-9 . _ ~ : -, bare or in double quotes"));
    }
    Ok(token.to_owned())
}

/// In whose name something is proposed: a run of an agent, or a person by hand. Only from an identity.
#[derive(Debug, Clone)]
pub struct Proposer {
    account: Account,
    agent: AgentId,
    agent_name: String,
    owner: PersonId,
    run: RunId,
    write_set: Option<Vec<WriteGrant>>,
    by: By,
    /// What it belongs to, in words for the log.
    part_of: Option<String>,
}

impl Proposer {
    pub fn run(run: &RunIdentity) -> Self {
        Self {
            account: Account::Agent(run.agent().clone()),
            agent: run.agent().clone(),
            agent_name: run.agent_name().to_owned(),
            owner: run.owner().clone(),
            run: run.id().clone(),
            write_set: run.write_set().map(<[_]>::to_vec),
            by: run.by(),
            part_of: None,
        }
    }

    /// The desk itself, for a run of `agent` that said beforehand what it would do.
    pub fn on_behalf(run: &runs::Run, agent: &Agent, part_of: String) -> Self {
        Self {
            account: Account::Agent(agent.id.clone()),
            agent: agent.id.clone(),
            agent_name: agent.name.clone(),
            owner: agent.owner.clone(),
            run: run.id.clone(),
            write_set: run.write_set.clone(),
            by: By { run: Some(run.id.clone()), ..By::system("change-set") },
            part_of: Some(part_of),
        }
    }

    /// A person writes through an agent of their own, which nobody has a token of: as its owner they are *self*, and
    /// without a write set nothing of theirs is granted by rule.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn person(desk: &Desk, person: &PersonIdentity) -> Result<Self> {
        let (agent, run) = agents::by_hand(desk, person).await?;
        Ok(Self {
            account: Account::Person(person.id().clone()),
            agent: agent.id,
            agent_name: agent.name,
            owner: person.id().clone(),
            by: By { run: Some(run.clone()), ..person.by() },
            run,
            write_set: None,
            part_of: None,
        })
    }

    pub fn agent(&self) -> &AgentId {
        &self.agent
    }

    fn actor(&self) -> Actor {
        self.by.actor.clone()
    }
}

/// A proposal whose content is valid.
struct Valid {
    kind: Arc<CompiledKind>,
    command: Command,
    business_key: Option<String>,
    amount: Option<Amount>,
    /// The groups that decide whatever the rule says.
    decided_by: Vec<String>,
    body: NewOperation,
    headers: Headers,
}

/// Proposes `body` in the name of `proposer`.
///
/// # Errors
/// The refusals of the contract, in its order; each is on record.
pub async fn propose(desk: &Desk, proposer: &Proposer, headers: Headers, body: NewOperation) -> Result<Proposed> {
    match try_propose(desk, proposer, headers, body).await {
        Err(super::error::Error::Refused(problem)) => {
            record_refusal(desk, proposer, &problem).await;
            Err(problem.into())
        }
        Ok(Err(recorded)) => Err(recorded.into()),
        Ok(Ok(proposed)) => Ok(proposed),
        Err(other) => Err(other),
    }
}

/// Proposes in a transaction that does more. The outer refusal has bound nothing.
pub async fn within(
    desk: &Desk,
    tx: &mut Tx,
    proposer: &Proposer,
    headers: Headers,
    body: NewOperation,
) -> store::Result<std::result::Result<Answer, Problem>> {
    match validated(desk, tx, proposer, headers, body).await? {
        Ok(valid) => decide(desk, tx, proposer, valid).await,
        Err(problem) => Ok(Err(problem)),
    }
}

/// What a proposal that is planned for later will be about.
pub struct Examined {
    pub kind: Arc<CompiledKind>,
    pub target: Target,
    pub amount: Option<Amount>,
    pub expected_version: Option<i64>,
}

impl Examined {
    pub fn extent(&self) -> Extent<'_> {
        Extent { target: &self.target, amount: self.amount }
    }
}

/// Checks a proposal of `run` as far as it can be checked before its time: content, destination and write set.
pub async fn examine(
    desk: &Desk,
    conn: &mut Conn,
    run: &RunIdentity,
    body: NewOperation,
) -> store::Result<std::result::Result<Examined, Problem>> {
    let proposer = Proposer::run(run);
    let headers = Headers { key: String::new(), if_match: None, if_none_match: None };
    let valid = match validated(desk, conn, &proposer, headers, body).await? {
        Ok(valid) => valid,
        Err(problem) => return Ok(Err(problem)),
    };
    if let Err(problem) = in_write_set(&proposer, &valid, desk.now()) {
        return Ok(Err(problem));
    }
    if let Err(problem) = destination(conn, &valid).await? {
        return Ok(Err(problem));
    }
    let Valid { kind, command: Command { target, expected_version, .. }, amount, .. } = valid;
    Ok(Ok(Examined { kind, target, amount, expected_version }))
}

/// Refused before anything was bound: on record, as far as the caller's rate allows.
pub(super) async fn record_refusal(desk: &Desk, proposer: &Proposer, problem: &Problem) {
    if !matches!(problem.code.status(), 403 | 409 | 422 | 428 | 429)
        || desk.refusals.take(&proposer.agent, desk.now()).is_err()
    {
        return;
    }
    let entry = Entry { status: Some(problem.code.as_str()), ..proposer.by.entry(Event::ProposalRefused) };
    let recorded = desk.commit(move |tx| Box::pin(async move { tx.audit(&entry).await.map(|_| Ok(())) })).await;
    if let Err(error) = recorded {
        tracing::warn!(%error, "a refused proposal is not on record");
    }
}

/// What a proposal came to; its refusal is bound to the key.
pub type Answer = std::result::Result<Proposed, Problem>;

async fn try_propose(desk: &Desk, proposer: &Proposer, headers: Headers, body: NewOperation) -> Result<Answer> {
    let mut conn = desk.store.read().await?;
    let valid = validated(desk, &mut conn, proposer, headers, body).await??;
    drop(conn);
    let (desk_in, proposer) = (desk.clone(), proposer.clone());
    Ok(desk.store.commit(move |tx| Box::pin(async move { decide(&desk_in, tx, &proposer, valid).await })).await??)
}

/// What can be checked without the transaction.
async fn validated(
    desk: &Desk,
    conn: &mut Conn,
    proposer: &Proposer,
    headers: Headers,
    body: NewOperation,
) -> store::Result<std::result::Result<Valid, Problem>> {
    if let Err(problem) = check_body(&body) {
        return Ok(Err(problem));
    }
    let known = operation::bound_key(conn, &proposer.agent, &headers.key).await?;
    let known = match &known {
        Some(bound) => operation::find(conn, &bound.operation).await?.filter(|op| op.proposal.kind == body.kind),
        None => None,
    };
    // A row keeps the version of its kind: a replay is read as the proposal was.
    let version = known.as_ref().map(|op| op.proposal.kind_version);
    let Some(kind) = desk.kind(conn, &body.kind, version).await? else {
        let detail = format!("`{}` is not a kind of this desk", body.kind);
        return Ok(Err(Problem::at(Code::ValidationFailed, "/kind", detail)));
    };
    let checked = match kind.check(&body.params, body.target.as_deref(), body.source_event_id.as_deref()) {
        Ok(checked) => checked,
        Err(problem) => return Ok(Err(problem)),
    };
    let current = resource::find(conn, checked.target.as_str()).await?.map(|known| known.current());
    let expected_version = match expected(&kind, &headers, &body, known.as_ref(), current) {
        Ok(version) => version,
        Err(problem) => return Ok(Err(problem)),
    };
    let command = Command {
        account: proposer.account.clone(),
        kind: body.kind.clone(),
        target: checked.target,
        params: checked.params,
        expected_version,
        source_event_id: body.source_event_id.clone(),
        links: Links {
            supersedes: body.supersedes.clone(),
            replans: body.replans.clone(),
            compensates: body.compensates.clone(),
            rolls_back: body.rolls_back.clone(),
        },
    };
    let (business_key, amount) = (checked.business_key, checked.amount);
    Ok(Ok(Valid { kind, command, business_key, amount, decided_by: Vec::new(), body, headers }))
}

fn check_body(body: &NewOperation) -> std::result::Result<(), Problem> {
    let too_long = |pointer: &str, max: usize| {
        Problem::at(Code::ValidationFailed, pointer, format!("expected at most {max} characters"))
    };
    if body.reason.as_ref().is_some_and(|text| text.chars().count() > MAX_REASON) {
        return Err(too_long("/reason", MAX_REASON));
    }
    if body.source_event_id.as_ref().is_some_and(|text| text.is_empty() || text.chars().count() > MAX_EVENT_ID) {
        return Err(Problem::at(Code::ValidationFailed, "/source_event_id", "expected 1 to 255 characters"));
    }
    if body.expected_version.is_some_and(|version| version < 0 || !json::is_exact(version)) {
        return Err(Problem::at(Code::ValidationFailed, "/expected_version", "expected a version, 0 or more"));
    }
    Ok(())
}

/// The version the write was planned on, from header or body.
fn expected(
    kind: &CompiledKind,
    headers: &Headers,
    body: &NewOperation,
    known: Option<&Operation>,
    current: Option<i64>,
) -> std::result::Result<Option<i64>, Problem> {
    let conditional = kind.kind.conditional;
    let absent = matches!(headers.if_none_match, Some(Tags::Any)).then_some(0);
    let from_header = match &headers.if_match {
        None | Some(Tags::Any) => absent,
        Some(Tags::List(_)) if absent.is_some() => {
            let detail =
                "`If-Match` says that the target exists and `If-None-Match: *` that it does not; send one of them";
            return Err(Problem::new(Code::BadRequest, detail));
        }
        Some(tags) => {
            let versions = tags.versions();
            // A retry of our own success carries the version of then; otherwise the tag that matches now counts.
            let replayed = known.and_then(|op| op.proposal.expected_version).filter(|v| versions.contains(v));
            let matching = replayed.or_else(|| current.filter(|v| versions.contains(v)));
            let Some(version) = matching.or_else(|| versions.first().copied()) else {
                return Err(Problem::new(
                    Code::StaleVersion,
                    "No tag in `If-Match` is a strong tag of ours. A proxy that compresses may have weakened it; send \
                     the version in the body as `expected_version`",
                )
                .with("current_version", current));
            };
            Some(version)
        }
    };
    let expected = match (from_header, body.expected_version) {
        (Some(header), Some(body)) if header != body => {
            return Err(Problem::new(
                Code::BadRequest,
                format!("`If-Match` says {header} and `expected_version` says {body}; send one of them"),
            ));
        }
        (header, body) => header.or(body),
    };
    match (conditional, expected) {
        (Conditional::Never, Some(_)) => Err(Problem::at(
            Code::ValidationFailed,
            "/expected_version",
            format!("`{}` takes no precondition", kind.kind.name.as_str()),
        )),
        (Conditional::Absent, Some(version)) if version != 0 => {
            Err(Problem::at(Code::ValidationFailed, "/expected_version", "a creation expects version 0"))
        }
        (Conditional::Absent, None) => Ok(Some(0)),
        (Conditional::Required, Some(0)) if kind.kind.executor == Executor::Managed => Err(Problem::at(
            Code::ValidationFailed,
            "/expected_version",
            format!("`{}` writes what exists, and version 0 says that nothing does", kind.kind.name),
        )),
        (_, expected) => Ok(expected),
    }
}

async fn decide(
    desk: &Desk,
    tx: &mut Tx,
    proposer: &Proposer,
    valid: Valid,
) -> store::Result<std::result::Result<Answer, Problem>> {
    let fingerprint = valid.command.fingerprint();
    if let Some(bound) = operation::bound_key(tx, &proposer.agent, &valid.headers.key).await? {
        return Ok(Ok(replay(tx, proposer, &valid, bound, &fingerprint).await?));
    }
    if let Err(refusal) = may_propose(desk, tx, proposer, &valid).await? {
        return Ok(Err(refusal));
    }
    let valid = match beyond_limits(desk, tx, &valid).await? {
        Ok(decided_by) => Valid { decided_by, ..valid },
        Err(refusal) => return Ok(Err(refusal)),
    };
    let now = tx.now();
    let id: OperationId = ids::new(now);
    let existing = existing(tx, &valid).await?;
    if let (Some(found), OnDuplicate::Existing) = (&existing, on_duplicate(&valid)) {
        operation::bind_key(tx, &proposer.agent, &valid.headers.key, found.id(), &fingerprint).await?;
        let entry = Entry {
            key_ref: Some(key_ref(&proposer.account, &valid.headers.key)),
            reason: Some("business key".to_owned()),
            ..via(proposer, rules::entry(found, Event::OperationReplayed, proposer.actor()))
        };
        tx.audit(&entry).await?;
        return Ok(Ok(Ok(Proposed::Existing { differs: differs(found, &valid.command), operation: found.clone() })));
    }
    let refusal = content_refusal(desk, tx, &valid, existing.as_ref()).await?;
    if let Some(problem) = refusal.as_ref().filter(|problem| problem.code == Code::PayloadTooLarge) {
        return Ok(Err(problem.clone()));
    }
    let duplicate_of = match refusal {
        Some(_) => None,
        None => duplicate(tx, proposer, &fingerprint, valid.command.links.supersedes.as_ref()).await?,
    };
    let mut op = compose(desk, tx, proposer, &valid, id, fingerprint, duplicate_of).await?;
    let is_by_rule = op.proposal.decided_by.is_empty();
    if refusal.is_none() && is_by_rule && !op.life.approval.auto && proposer.write_set.is_some() {
        op.life.approval.run_approval = run_approval::covering(tx, &op).await?;
    }
    if refusal.is_none()
        && op.proposal.managed
        && rules::auto_grant(&op, proposer.actor(), now).is_some()
        && let Some(problem) = rules::hindrance(&super::operation::standing(desk, tx, &op).await?)
    {
        return Ok(Err(problem));
    }
    let Proposal { id, fingerprint, .. } = &op.proposal;
    if !operation::bind_key(tx, &proposer.agent, &valid.headers.key, id, fingerprint).await? {
        return Err(store::Error::corrupt("a key was bound under the lock".into()));
    }
    desk.faults.reach("after_key_claim").await;
    create(desk, tx, proposer, op, valid.business_key.as_deref(), refusal).await.map(Ok)
}

// Replays

async fn replay(
    tx: &mut Tx,
    proposer: &Proposer,
    valid: &Valid,
    bound: operation::BoundKey,
    fingerprint: &Fingerprint,
) -> store::Result<Answer> {
    if let Some(at) = bound.expired_at {
        return Ok(Err(Problem::new(
            Code::IdempotencyKeyExpired,
            format!("The key ended with its operation and was forgotten at {at}; a new action needs a new key"),
        )
        .with("operation_id", &bound.operation)));
    }
    let op = operation::find(tx, &bound.operation).await?;
    let op = op.ok_or_else(|| store::Error::corrupt(format!("`{}` has gone", bound.operation)))?;
    let op = super::operation::lapse(tx, op).await?;
    let key = Some(key_ref(&proposer.account, &valid.headers.key));
    if bound.fingerprint != *fingerprint {
        let differs = differs(&op, &valid.command);
        let entry = Entry {
            key_ref: key,
            fingerprint: Some(fingerprint.clone()),
            status: Some(Code::FingerprintConflict.as_str()),
            ..via(proposer, rules::entry(&op, Event::OperationKeyConflict, proposer.actor()))
        };
        tx.audit(&entry).await?;
        return Ok(Err(rules::key_conflict(&op, &differs)));
    }
    let entry = Entry { key_ref: key, ..via(proposer, rules::entry(&op, Event::OperationReplayed, proposer.actor())) };
    tx.audit(&entry).await?;
    if let Some(id) = &op.life.conflict
        && let Some(conflict) = store::conflict::find(tx, id).await?.filter(|conflict| conflict.at_proposal)
    {
        return Ok(Err(conflict.problem()));
    }
    Ok(Ok(match op {
        op if op.proposal.idempotency_key != valid.headers.key || op.proposal.agent != proposer.agent => {
            Proposed::Existing { differs: differs(&op, &valid.command), operation: op }
        }
        op if op.life.state.is_terminal() => Proposed::Replayed(op),
        op => Proposed::InProgress(op),
    }))
}

/// The caller's route and correlation on a record about an operation.
fn via(proposer: &Proposer, entry: Entry) -> Entry {
    proposer.by.on(entry)
}

/// JSON pointers into the body at which the stored command and this one differ.
fn differs(op: &Operation, command: &Command) -> Vec<String> {
    let Ok(stored) = Command::parse_canonical(&op.proposal.canonical) else { return Vec::new() };
    let mut pointers = json::differing_pointers(&stored.preimage(), &command.preimage());
    pointers.retain(|pointer| pointer != "/account");
    pointers.truncate(50);
    pointers
}

// Guards before the key is bound

async fn may_propose(
    desk: &Desk,
    tx: &mut Tx,
    proposer: &Proposer,
    valid: &Valid,
) -> store::Result<std::result::Result<(), Problem>> {
    if valid.body.retry == Some(true) {
        return Ok(Err(Problem::new(
            Code::UnknownKey,
            "This was declared a retry, and nothing was ever proposed under this key. Nothing was created",
        )));
    }
    let now = tx.now();
    let live = runs::by_id(tx, &proposer.run).await?.map(|run| run.status(now));
    if live != Some(run::RunStatus::Live) {
        return Ok(Err(Problem::new(Code::RunStopped, "The run has stopped or expired; start another one")));
    }
    if operation::count_open(tx, &proposer.agent, now).await? >= desk.config.open_operations_per_agent {
        return Ok(Err(Problem::new(
            Code::OpenOperationsLimit,
            format!(
                "The agent has {} operations open; wait until some have ended, or cancel them",
                desk.config.open_operations_per_agent
            ),
        )
        .retry(RetryMode::SameKey, Some(30))));
    }
    if let Err(wait_s) = desk.proposals.take(&proposer.agent, now) {
        return Ok(Err(Problem::new(
            Code::RateLimited,
            format!("The agent may propose {} operations a minute", desk.config.proposals_per_minute),
        )
        .retry(RetryMode::SameKey, Some(wait_s))));
    }
    if let Err(problem) = in_write_set(proposer, valid, now) {
        return Ok(Err(problem));
    }
    if valid.kind.kind.conditional == Conditional::Required && valid.command.expected_version.is_none() {
        return Ok(Err(Problem::new(
            Code::PreconditionRequired,
            format!(
                "`{}` needs the version it was planned on: `If-Match: \"<version>\"`, or `expected_version` in the body",
                valid.kind.kind.name.as_str()
            ),
        )
        .with("header", "If-Match")));
    }
    if let Err(problem) = destination(tx, valid).await? {
        return Ok(Err(problem));
    }
    linked(tx, proposer, valid).await
}

fn in_write_set(proposer: &Proposer, valid: &Valid, now: Timestamp) -> std::result::Result<(), Problem> {
    let (target, verb) = (valid.command.target.as_str(), valid.kind.kind.verb);
    if run::permits(proposer.write_set.as_deref(), target, verb, now) {
        return Ok(());
    }
    Err(Problem::new(Code::OutsideWriteSet, format!("The run may not `{}` `{target}`", verb.as_str()))
        .with("resource", target)
        .with("verb", verb.as_str()))
}

/// What Counterfoil itself sends goes to a registered destination.
async fn destination(conn: &mut Conn, valid: &Valid) -> store::Result<std::result::Result<(), Problem>> {
    match valid.kind.kind.executor {
        Executor::Gateway => provider::registered(conn, &valid.kind.kind, &valid.command.params).await,
        Executor::Agent | Executor::Managed => Ok(Ok(())),
    }
}

/// The operations that this one names exist, and are the caller's own.
async fn linked(tx: &mut Tx, proposer: &Proposer, valid: &Valid) -> store::Result<std::result::Result<(), Problem>> {
    let links = &valid.command.links;
    for (pointer, id) in [
        ("/supersedes", &links.supersedes),
        ("/replans", &links.replans),
        ("/compensates", &links.compensates),
        ("/rolls_back", &links.rolls_back),
    ] {
        let Some(id) = id else { continue };
        let found = operation::find(tx, id).await?.filter(|op| op.proposal.agent == proposer.agent);
        let Some(found) = found else {
            return Ok(Err(Problem::at(
                Code::ValidationFailed,
                pointer,
                format!("`{id}` is no operation of this agent"),
            )));
        };
        let found = super::operation::lapse(tx, found).await?;
        if pointer == "/supersedes" && !matches!(found.life.state, State::Pending | State::Approved) {
            return Ok(Err(Problem::new(
                Code::InvalidState,
                format!("`{id}` is {} and can no longer be superseded", rules::words(found.life.state)),
            )
            .with("state", found.life.state)));
        }
    }
    if let Some(id) = &links.replans
        && let Err(problem) = may_replan(tx, id).await?
    {
        return Ok(Err(problem));
    }
    let missing = valid.kind.kind.required_link.and_then(|link| {
        let (pointer, present) = match link {
            RequiredLink::Supersedes => ("/supersedes", links.supersedes.is_some()),
            RequiredLink::Replans => ("/replans", links.replans.is_some()),
            RequiredLink::Compensates => ("/compensates", links.compensates.is_some()),
            RequiredLink::RollsBack => ("/rolls_back", links.rolls_back.is_some()),
        };
        (!present).then_some(pointer)
    });
    Ok(match missing {
        Some(pointer) => Err(Problem::at(Code::ValidationFailed, pointer, "this kind names the operation it follows")),
        None => Ok(()),
    })
}

/// Only what ended without an effect is planned anew, and one new plan at a time stands in its place.
async fn may_replan(tx: &mut Tx, id: &OperationId) -> store::Result<std::result::Result<(), Problem>> {
    let now = tx.now();
    let Some(old) = operation::find(tx, id).await? else { return Ok(Ok(())) };
    if let Err(problem) = rules::replan(&old, id, now) {
        return Ok(Err(problem));
    }
    let earlier = match &old.life.replanned_by {
        Some(earlier) => operation::find(tx, earlier).await?,
        None => None,
    };
    let standing = earlier.filter(|op| !rules::state_at(op, now).is_terminal() || op.possibly_applied());
    Ok(match standing {
        Some(op) => Err(Problem::new(
            Code::InvalidState,
            format!("`{id}` was planned anew as `{}`, which is {}; follow that one", op.id(), rules::words(op.state())),
        )
        .with("state", old.state())
        .with("replanned_by", op.id())),
        None => Ok(()),
    })
}

fn on_duplicate(valid: &Valid) -> OnDuplicate {
    valid.kind.kind.business_key.as_ref().map_or(OnDuplicate::Refuse, |key| key.on_duplicate)
}

/// The operation that this event already has.
async fn existing(tx: &mut Tx, valid: &Valid) -> store::Result<Option<Operation>> {
    let (Some(rule), Some(key)) = (&valid.kind.kind.business_key, &valid.business_key) else { return Ok(None) };
    let kind = valid.kind.kind.name.as_str();
    let now = tx.now();
    let found = operation::by_business_key(tx, kind, valid.command.target.as_str(), key).await?;
    Ok(found.into_iter().find(|op| match (rules::state_at(op, now), rule.while_) {
        (State::Succeeded, KeyLife::Open) => op.life.disputed,
        (State::Succeeded, KeyLife::OpenOrSucceeded) => true,
        (state, _) => !state.is_terminal() || op.possibly_applied(),
    }))
}

// Guards after the key is bound: the operation is kept as conflicted

async fn content_refusal(
    desk: &Desk,
    tx: &mut Tx,
    valid: &Valid,
    existing: Option<&Operation>,
) -> store::Result<Option<Problem>> {
    let target = valid.command.target.as_str();
    if valid.kind.kind.executor == Executor::Managed {
        let Command { target, params, expected_version: expected, .. } = &valid.command;
        let wanted = Wanted { target, verb: valid.kind.kind.verb, params, expected: *expected };
        if let Err(problem) = managed::plan(desk, tx, wanted).await? {
            return Ok(Some(problem));
        }
    } else if let Some(expected) = valid.command.expected_version
        && let Some(known) = resource::find(tx, target).await?
        && known.current() != expected
    {
        return Ok(Some(rules::stale_version(target, expected, known.current())));
    }
    if let Some(found) = existing {
        return Ok(Some(
            Problem::new(
                Code::BusinessKeyConflict,
                format!("This event already has `{}`, which is {}", found.id(), rules::words(found.life.state)),
            )
            .with("existing", serde_json::json!({"id": found.id(), "state": found.life.state}))
            .with("error", "business_key_conflict"),
        ));
    }
    if valid.kind.kind.limits.contains(&Limit::RefundsWithinCaptured) {
        return refunds_within_captured(tx, valid).await;
    }
    Ok(None)
}

/// The open and succeeded refunds of an order stay within what was captured in their currency, if any capture of the
/// order is known here.
async fn refunds_within_captured(tx: &mut Tx, valid: &Valid) -> store::Result<Option<Problem>> {
    let target = valid.command.target.as_str();
    let now = tx.now();
    let Some(amount) = &valid.amount else { return Ok(None) };
    let same_currency = |op: &Operation| {
        let params = document::params(op);
        (params["currency"] == amount.currency.code()).then(|| params["amount_minor"].as_i64().unwrap_or(0))
    };
    let mut captures = operation::counting(tx, "payment.capture", target).await?;
    captures.retain(|op| op.life.state == State::Succeeded);
    if captures.is_empty() {
        return Ok(None);
    }
    let captured: i64 = captures.iter().filter_map(same_currency).sum();
    let refunds = operation::counting(tx, valid.kind.kind.name.as_str(), target).await?;
    let counted = refunds.iter().filter(|op| {
        let state = rules::state_at(op, now);
        state == State::Succeeded || !state.is_terminal() || op.possibly_applied()
    });
    let refunded: i64 = counted.filter_map(same_currency).sum();
    let left = captured - refunded;
    Ok((amount.minor > left).then(|| {
        Problem::new(
            Code::InvariantViolated,
            format!(
                "`{target}` has {captured} captured and {refunded} refunded or on the way in {}, in minor units; \
                 {left} can be refunded",
                amount.currency.code()
            ),
        )
        .with("invariant", "refunds_within_captured")
        .with("captured_minor", captured)
        .with("refunded_minor", refunded)
    }))
}

// Creation

async fn create(
    desk: &Desk,
    tx: &mut Tx,
    proposer: &Proposer,
    op: Operation,
    business_key: Option<&str>,
    refusal: Option<Problem>,
) -> store::Result<Answer> {
    let now = tx.now();
    let superseded = op.proposal.links.supersedes.clone();
    if let Some(under) = &op.life.approval.run_approval {
        run_approval::use_up(tx, under).await?;
    }
    let salt = ids::Secret::new();
    let proposed = Step { life: op.life.clone(), events: vec![proposed_entry(proposer, &op, salt.reveal())] };
    let mut steps = vec![proposed];
    if refusal.is_none() {
        let policy = Actor::policy(format!("{}@{}", op.life.approval.rule, op.life.approval.policy_version));
        steps.extend(rules::auto_grant(&op, policy, now));
    }
    let met = match &refusal {
        Some(_) => conflict::met(tx, op.proposal.target.as_str()).await?,
        None => Met::default(),
    };
    let conflict = refusal.map(|problem| {
        let conflict = Conflict { met, ..Conflict::of(ids::new::<ConflictId>(now), &op, &problem, true, now) };
        steps.push(rules::refuse_proposal(&op, conflict.id.clone(), &problem, now));
        conflict
    });
    let steps = steps.into_iter().map(|step| proposer.by.step(step)).collect();
    let op = operation::insert(tx, &op, Stored { business_key, salt: salt.reveal() }, steps).await?;
    if let Some(other) = &op.proposal.links.compensates {
        store::change_set::compensates(tx, &op, other).await?;
    }
    if let Some(conflict) = conflict {
        let problem = conflict.problem();
        store::conflict::insert(tx, &[(&proposer.agent, conflict)]).await?;
        return Ok(Err(problem));
    }
    if let Some(old) = &op.proposal.links.replans
        && let Some(old) = operation::find(tx, old).await?
    {
        conflict::replanned(desk, tx, &proposer.by, &proposer.agent_name, old, &op).await?;
    }
    if let Some(old) = superseded
        && let Some(old) = operation::find(tx, &old).await?
        && let Ok(rules::Done::Step(step)) = rules::supersede(&old, op.id(), proposer.actor(), now)
    {
        operation::apply(tx, &old, proposer.by.step(step)).await?;
    }
    if op.proposal.managed && op.life.state == State::Approved {
        return Ok(managed::carry_out(desk, tx, &proposer.by, op).await?.map(Proposed::Created));
    }
    Ok(Ok(Proposed::Created(op)))
}

fn proposed_entry(proposer: &Proposer, op: &Operation, salt: &str) -> Entry {
    let duplicate = op.proposal.duplicate_of.as_ref();
    Entry {
        to: Some(State::Pending),
        approval: None,
        key_ref: Some(key_ref(&proposer.account, &op.proposal.idempotency_key)),
        expected_version: op.proposal.expected_version,
        reason: proposer.part_of.clone().or_else(|| duplicate.map(|first| format!("duplicate of {first}"))),
        request_digest: Some(crate::model::audit::salted_digest(salt.as_bytes(), op.proposal.canonical.as_bytes())),
        ..rules::entry(op, Event::OperationProposed, proposer.actor())
    }
}

/// Whether what it compensates may be compensated like this: the groups that decide where it goes beyond the limits, none
/// within them.
async fn beyond_limits(
    desk: &Desk,
    tx: &mut Tx,
    valid: &Valid,
) -> store::Result<std::result::Result<Vec<String>, Problem>> {
    let Some(id) = &valid.command.links.compensates else { return Ok(Ok(Vec::new())) };
    let Some(original) = operation::find(tx, id).await? else { return Ok(Ok(Vec::new())) };
    let kind = desk.kind(tx, &original.proposal.kind, None).await?;
    let Some((kind, rule)) = kind.as_ref().and_then(|kind| Some((kind, kind.kind.compensation.as_ref()?))) else {
        return Ok(Ok(Vec::new()));
    };
    if let Err(detail) = rule.allows(&valid.kind.kind.name) {
        return Ok(Err(Problem::at(Code::ValidationFailed, "/kind", detail)));
    }
    let now = tx.now();
    let mut spent = 0_i64;
    for other in store::change_set::compensating(tx, id).await? {
        let Some(other) = operation::find(tx, &other).await? else { continue };
        let still_counts = !rules::state_at(&other, now).is_terminal() || other.possibly_applied();
        let is_replaced = valid.command.links.supersedes.as_ref() == Some(other.id());
        let kind = desk.kind(tx, &other.proposal.kind, Some(other.proposal.kind_version)).await?;
        let amount = kind.and_then(|kind| kind.kind.amount_of(&document::params(&other)));
        if let Some(amount) = amount.filter(|_| still_counts && !is_replaced) {
            spent = spent.saturating_add(amount.minor);
        }
    }
    let whole = Extent { target: &original.proposal.target, amount: kind.kind.amount_of(&document::params(&original)) };
    let undo = Extent { target: &valid.command.target, amount: valid.amount };
    Ok(match rule.excess(whole, undo, spent) {
        None => Ok(Vec::new()),
        Some(_) if !rule.groups.is_empty() => Ok(rule.groups.clone()),
        Some((limit, words)) => {
            let detail = format!("Beyond what `{}` allows to compensate it: {words}", original.proposal.kind);
            Err(Problem::new(Code::InvariantViolated, detail).with("invariant", limit))
        }
    })
}

/// The oldest operation of the agent with the same command that is open or may have been applied: agents re-plan with
/// new keys after timeouts.
async fn duplicate(
    tx: &mut Tx,
    proposer: &Proposer,
    fingerprint: &Fingerprint,
    superseded: Option<&OperationId>,
) -> store::Result<Option<OperationId>> {
    let now = tx.now();
    let same = operation::same_command(tx, &proposer.agent, fingerprint).await?;
    let counts = |op: &Operation| !rules::state_at(op, now).is_terminal() || op.possibly_applied();
    let oldest = same.into_iter().find(|op| counts(op) && Some(op.id()) != superseded);
    Ok(oldest.map(|op| op.id().clone()))
}

async fn compose(
    desk: &Desk,
    tx: &mut Tx,
    proposer: &Proposer,
    valid: &Valid,
    id: OperationId,
    fingerprint: Fingerprint,
    duplicate_of: Option<OperationId>,
) -> store::Result<Operation> {
    let now = tx.now();
    let Valid { kind, command, body, headers, .. } = valid;
    let target = command.target.as_str();
    let owner = agent::by_id(tx, &proposer.agent).await?.map_or_else(|| proposer.owner.clone(), |agent| agent.owner);
    let current = current_content(tx, kind, target).await?;
    let current_version = resource::find(tx, target).await?.map(|known| known.current());
    let payment = linked_payment(tx, kind, command).await?;
    let facts = ConsequenceFacts {
        params: &command.params,
        target: &command.target,
        expected_version: command.expected_version,
        current: current.as_ref(),
        payment: payment.as_ref(),
    };
    let risk = kind.kind.risk_of(&command.params);
    let policy = desk.policy(tx).await?;
    let rule = policy.matching(
        &MatchFacts {
            kind: &command.kind,
            target: &command.target,
            risk,
            agent_name: &proposer.agent_name,
            agent_id: proposer.agent.as_str(),
        },
        &catalogue::defaults(&desk.config),
    );
    let effective = rule.decided_by(&valid.decided_by);
    let mut approval = Approval::new(ids::new::<ApprovalId>(now), effective, now);
    // Nothing is granted without a person to a run that did not say what it would write.
    approval.auto &= proposer.write_set.as_deref().is_some();
    let (provider, contract) = provider::of_command(tx, &kind.kind, &command.params).await?;
    let in_flight_s = contract.and_then(|contract| contract.max_in_flight_s.seconds()).unwrap_or(IN_FLIGHT_S);
    let proposal = Proposal {
        id,
        agent: proposer.agent.clone(),
        owner,
        run: proposer.run.clone(),
        kind: command.kind.clone(),
        kind_version: kind.version,
        title: kind.kind.title.clone(),
        target: command.target.clone(),
        canonical: command.canonical(),
        fingerprint,
        fingerprint_version: FINGERPRINT_VERSION,
        idempotency_key: headers.key.clone(),
        reason: body.reason.clone(),
        source_event_id: command.source_event_id.clone(),
        expected_version: command.expected_version,
        current_version,
        links: command.links.clone(),
        headline: kind.kind.headline_of(&command.params, &command.target),
        consequence: kind.consequence(&facts),
        rollback: kind.rollback(&facts),
        risk,
        money: kind.kind.money.is_some(),
        locks_release: kind.kind.lock == Some(Lock::Release),
        managed: kind.kind.executor == Executor::Managed,
        gateway: kind.kind.executor == Executor::Gateway,
        lease: kind.kind.lease,
        verb: kind.kind.verb,
        provider,
        in_flight_s,
        duplicate_of,
        decided_by: valid.decided_by.clone(),
        created_at: now,
    };
    Ok(Operation { proposal, life: Life::new(approval, now) })
}

/// What is on the target now: its document where it is held here, else the parameters that last succeeded on it.
async fn current_content(tx: &mut Tx, kind: &CompiledKind, target: &str) -> store::Result<Option<Value>> {
    match kind.kind.executor {
        Executor::Managed => managed::shown(tx, target).await,
        Executor::Agent | Executor::Gateway => {
            Ok(operation::last_succeeded(tx, target).await?.as_ref().map(document::params))
        }
    }
}

/// The payment that a capture or a refund draws on, if it went through this desk.
async fn linked_payment(tx: &mut Tx, kind: &CompiledKind, command: &Command) -> store::Result<Option<LinkedPayment>> {
    let draws_on = kind.kind.money.as_ref().and_then(|money| money.draws_on.as_deref());
    let Some(reference) = draws_on.and_then(|param| command.params[param].as_str()) else { return Ok(None) };
    let target = command.target.as_str();
    let refers = |op: &Operation| {
        op.life.outcome.as_ref().and_then(|outcome| outcome.provider_reference.as_deref()) == Some(reference)
    };
    let authorized = operation::counting(tx, "payment.authorize", target).await?;
    let captured = operation::counting(tx, "payment.capture", target).await?;
    // A refund names the capture; payee and invoice are the authorisation's.
    let through_capture = captured.iter().find(|op| refers(op)).map(|op| document::params(op)["authorization"].clone());
    let found = authorized.iter().find(|op| refers(op)).or_else(|| {
        let name = through_capture.as_ref()?.as_str()?;
        authorized
            .iter()
            .find(|op| op.life.outcome.as_ref().and_then(|outcome| outcome.provider_reference.as_deref()) == Some(name))
    });
    let Some(found) = found else { return Ok(None) };
    let params = document::params(found);
    let text = |name: &str| params[name].as_str().unwrap_or_default().to_owned();
    let amount = crate::model::money::Currency::parse(&text("currency"))
        .zip(params["amount_minor"].as_i64())
        .map(|(currency, minor)| Amount { minor, currency });
    Ok(amount.map(|amount| LinkedPayment { payee: text("payee"), invoice: text("invoice"), amount }))
}
