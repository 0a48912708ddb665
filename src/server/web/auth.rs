//! Who is asking. Identities are built here and nowhere else: a service that takes one cannot be called without it.
//!
//! An `Authorization` header decides alone: with it the cookie counts for nothing. Programs are refused on people's
//! routes by the extractor, before anything is looked up.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Deref,
};

use axum::{
    extract::{ConnectInfo, FromRequestParts, MatchedPath, OptionalFromRequestParts},
    http::{HeaderMap, header::AUTHORIZATION, request::Parts},
};
use tower_sessions::Session;

use super::{session_store, state::AppState};
use crate::{
    model::{
        approval::{Role, Voter},
        audit::Actor,
        id::{AgentId, CorrelationId, ExecutorId, PersonId, RunId, SessionId},
        kind::KindName,
        problem::{Code, Problem},
        run::{Allowance, RunStatus, WriteGrant},
        target::glob_matches,
        time::Timestamp,
    },
    server::{
        ids::{self, TokenKind},
        service::{
            By,
            error::{Error, Result},
        },
        store::{agent, agent::Agent, executor, executor::Executor, person, person::Person, run, run::Run, session},
    },
};

/// Milliseconds for which a password entered again counts.
pub const STEP_UP_MS: i64 = 5 * 60 * 1000;

/// The request as the audit log names it.
#[derive(Debug, Clone)]
struct Origin {
    correlation: Option<CorrelationId>,
    route: Option<String>,
}

impl Origin {
    fn of(parts: &Parts) -> Self {
        let route = parts.extensions.get::<MatchedPath>().map(|path| format!("{} {}", parts.method, path.as_str()));
        Self { correlation: parts.extensions.get::<CorrelationId>().cloned(), route }
    }

    fn by(&self, actor: Actor) -> By {
        By { actor, run: None, correlation: self.correlation.clone(), route: self.route.clone() }
    }
}

/// For what happens before anybody is known, such as signing in: the system acts.
pub struct Anonymous(Origin);

impl Anonymous {
    pub fn by(&self, part: &'static str) -> By {
        self.0.by(Actor::system(part))
    }
}

impl<S: Sync> FromRequestParts<S> for Anonymous {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        Ok(Self(Origin::of(parts)))
    }
}

/// A person with a live session, as they are in this moment.
#[derive(Debug, Clone)]
pub struct PersonIdentity {
    person: Person,
    session: session::Session,
    origin: Origin,
}

impl PersonIdentity {
    pub fn id(&self) -> &PersonId {
        &self.person.id
    }

    pub fn name(&self) -> &str {
        &self.person.name
    }

    pub fn role(&self) -> Role {
        self.person.role
    }

    pub fn groups(&self) -> &[String] {
        &self.person.groups
    }

    pub fn person(&self) -> &Person {
        &self.person
    }

    pub fn session(&self) -> &SessionId {
        &self.session.id
    }

    pub(super) fn content(&self) -> &session::Content {
        &self.session.content
    }

    /// When the session began.
    pub fn signed_in_at(&self) -> Timestamp {
        self.session.content.signed_in_at
    }

    /// Until when the password entered again counts, if it was entered again in this session.
    pub fn stepped_up_until(&self) -> Option<Timestamp> {
        self.session.content.stepped_up_at.map(|at| Timestamp(at.as_millis() + STEP_UP_MS))
    }

    /// The same person, who has entered the password again in this request.
    pub(super) fn stepped_up(&self, at: Timestamp) -> Self {
        let mut again = self.clone();
        again.session.content.stepped_up_at = Some(at);
        again
    }

    pub fn is_stepped_up(&self, now: Timestamp) -> bool {
        self.stepped_up_until().is_some_and(|until| now < until)
    }

    pub fn voter(&self) -> Voter {
        Voter { id: self.person.id.clone(), role: self.person.role, groups: self.person.groups.clone() }
    }

    pub fn by(&self) -> By {
        self.origin.by(Actor::human(&self.person.id))
    }
}

macro_rules! people {
    ($($(#[$doc:meta])* $name:ident: $($role:ident)|+, $words:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $name(PersonIdentity);

        impl Deref for $name {
            type Target = PersonIdentity;

            fn deref(&self) -> &PersonIdentity {
                &self.0
            }
        }

        impl FromRequestParts<AppState> for $name {
            type Rejection = Error;

            async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self> {
                let person = person(parts, state).await?;
                match person.role() {
                    $(Role::$role)|+ => Ok(Self(person)),
                    role => Err(forbidden(role, $words)),
                }
            }
        }
    )*};
}

people! {
    /// Somebody who may decide about others' work and look after what has gone wrong.
    Operator: Operator | Admin, "an operator or an admin";
    /// Somebody who may change people, agents and settings.
    Admin: Admin, "an admin";
    /// Somebody who may read the audit log.
    Auditor: Auditor | Admin, "an auditor or an admin";
}

fn forbidden(role: Role, needed: &str) -> Error {
    let detail = format!("this takes {needed}, and your role is `{}`", role.as_str());
    Problem::new(Code::Forbidden, detail).into()
}

/// A run by its token, whether it still runs or not: what a stopped one may do is each service's rule.
#[derive(Debug, Clone)]
pub struct RunIdentity {
    run: Run,
    status: RunStatus,
    agent: Agent,
    origin: Origin,
}

impl RunIdentity {
    pub fn id(&self) -> &RunId {
        &self.run.id
    }

    pub fn run(&self) -> &Run {
        &self.run
    }

    pub fn agent(&self) -> &AgentId {
        &self.agent.id
    }

    pub fn agent_name(&self) -> &str {
        &self.agent.name
    }

    /// Who owns the agent now.
    pub fn owner(&self) -> &PersonId {
        &self.agent.owner
    }

    pub fn write_set(&self) -> Option<&[WriteGrant]> {
        self.run.write_set.as_deref()
    }

    /// What runs of its agent may be granted at most.
    pub fn ceiling(&self) -> Option<&[Allowance]> {
        self.agent.allow.as_deref()
    }

    /// Whether it still runs, at the time of the request.
    pub fn status(&self) -> RunStatus {
        self.status
    }

    /// # Errors
    /// `run_stopped` unless the run is live.
    pub fn live(&self) -> std::result::Result<(), Problem> {
        match self.status {
            RunStatus::Live => Ok(()),
            status => Err(Problem::new(Code::RunStopped, format!("the run is {}", status.as_str()))),
        }
    }

    pub fn by(&self) -> By {
        By { run: Some(self.run.id.clone()), ..self.origin.by(Actor::run(&self.run.id)) }
    }
}

/// An agent by its own token: it starts runs and reads; every other write takes a run.
#[derive(Debug, Clone)]
pub struct AgentIdentity {
    agent: Agent,
    origin: Origin,
}

impl AgentIdentity {
    pub fn id(&self) -> &AgentId {
        &self.agent.id
    }

    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    pub fn allow(&self) -> Option<&[Allowance]> {
        self.agent.allow.as_deref()
    }

    pub fn by(&self) -> By {
        self.origin.by(Actor::agent(&self.agent.id))
    }
}

#[derive(Debug, Clone)]
pub struct ExecutorIdentity {
    executor: Executor,
    origin: Origin,
}

impl ExecutorIdentity {
    pub fn id(&self) -> &ExecutorId {
        &self.executor.id
    }

    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Whether it may claim operations of this kind.
    pub fn serves(&self, kind: &KindName) -> bool {
        self.executor.kinds.iter().any(|pattern| glob_matches(pattern, kind.as_str()))
    }

    pub fn by(&self) -> By {
        self.origin.by(Actor::executor(&self.executor.id))
    }
}

/// Anybody who can prove who they are.
#[derive(Debug, Clone)]
pub enum Principal {
    Person(PersonIdentity),
    Run(RunIdentity),
    Agent(AgentIdentity),
    Executor(ExecutorIdentity),
}

impl Principal {
    /// The agent whose operations this principal calls its own.
    pub fn agent(&self) -> Option<&AgentId> {
        match self {
            Self::Run(run) => Some(run.agent()),
            Self::Agent(agent) => Some(agent.id()),
            Self::Person(_) | Self::Executor(_) => None,
        }
    }

    pub fn by(&self) -> By {
        match self {
            Self::Person(person) => person.by(),
            Self::Run(run) => run.by(),
            Self::Agent(agent) => agent.by(),
            Self::Executor(executor) => executor.by(),
        }
    }
}

impl Principal {
    /// Whether the session or the token still speaks for them: for streams, which outlive their request.
    pub async fn is_still_valid(&self, desk: &crate::server::service::Desk) -> Result<bool> {
        let mut conn = desk.store.read().await?;
        Ok(match self {
            Self::Person(person) => {
                let open = session::of_person(&mut conn, person.id(), desk.now()).await?;
                let enabled = person::by_id(&mut conn, person.id()).await?.is_some_and(|person| person.is_enabled());
                enabled && open.iter().any(|session| session.id == *person.session())
            }
            Self::Run(run) => is_active(agent::by_id(&mut conn, run.agent()).await?),
            Self::Agent(agent) => is_active(agent::by_id(&mut conn, agent.id()).await?),
            Self::Executor(executor) => {
                executor::by_id(&mut conn, executor.id()).await?.is_some_and(|ex| ex.revoked_at.is_none())
            }
        })
    }
}

fn is_active(agent: Option<Agent>) -> bool {
    agent.is_some_and(|agent| agent.revoked_at.is_none())
}

impl FromRequestParts<AppState> for Principal {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self> {
        if parts.headers.contains_key(AUTHORIZATION) {
            return program(parts, state).await;
        }
        Ok(Self::Person(by_cookie(parts, state).await?))
    }
}

impl FromRequestParts<AppState> for PersonIdentity {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self> {
        person(parts, state).await
    }
}

/// `None` when nobody is signed in.
impl OptionalFromRequestParts<AppState> for PersonIdentity {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Option<Self>> {
        match person(parts, state).await {
            Err(Error::Refused(problem)) if problem.code == Code::Unauthenticated => Ok(None),
            other => other.map(Some),
        }
    }
}

impl FromRequestParts<AppState> for RunIdentity {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self> {
        match Principal::from_request_parts(parts, state).await? {
            Principal::Run(run) => Ok(run),
            _ => Err(Problem::new(Code::Forbidden, "this takes the token of a run").into()),
        }
    }
}

impl FromRequestParts<AppState> for AgentIdentity {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self> {
        match Principal::from_request_parts(parts, state).await? {
            Principal::Agent(agent) => Ok(agent),
            _ => Err(Problem::new(Code::Forbidden, "this takes the token of an agent").into()),
        }
    }
}

async fn person(parts: &mut Parts, state: &AppState) -> Result<PersonIdentity> {
    if parts.headers.contains_key(AUTHORIZATION) {
        program(parts, state).await?;
        return Err(
            Problem::new(Code::HumansOnly, "only a signed-in person may do this, and no program for them").into()
        );
    }
    by_cookie(parts, state).await
}

async fn by_cookie(parts: &Parts, state: &AppState) -> Result<PersonIdentity> {
    let nobody = || Problem::new(Code::Unauthenticated, "nobody is signed in");
    let cookie = parts.extensions.get::<Session>().and_then(Session::id).ok_or_else(nobody)?;
    let now = state.desk.now();
    let found = session::find(&mut state.desk.store.read().await?, &session_store::hash(&cookie)).await?;
    let (session, person) =
        found.filter(|(session, person)| person.is_enabled() && !session.is_over(now)).ok_or_else(nobody)?;
    if now - session.last_seen_at >= session::TOUCH_MS {
        session_store::touch(&state.desk, session.id.clone()).await;
    }
    Ok(PersonIdentity { person, session, origin: Origin::of(parts) })
}

async fn program(parts: &Parts, state: &AppState) -> Result<Principal> {
    let unknown = || Problem::new(Code::Unauthenticated, "the token is not known, or is revoked");
    let token = bearer(&parts.headers).ok_or_else(unknown)?;
    let kind = TokenKind::of(token).ok_or_else(unknown)?;
    let hash = ids::hash(token);
    let origin = Origin::of(parts);
    let mut conn = state.desk.store.read().await?;
    let principal = match kind {
        TokenKind::Agent => {
            let agent = agent::by_token(&mut conn, &hash).await?.filter(|agent| agent.revoked_at.is_none());
            Principal::Agent(AgentIdentity { agent: agent.ok_or_else(unknown)?, origin })
        }
        TokenKind::Run => {
            let run = run::by_token(&mut conn, &hash).await?.ok_or_else(unknown)?;
            let agent = agent::by_id(&mut conn, &run.agent).await?.filter(|agent| agent.revoked_at.is_none());
            let status = run.status(state.desk.now());
            Principal::Run(RunIdentity { run, status, agent: agent.ok_or_else(unknown)?, origin })
        }
        TokenKind::Executor => {
            let executor = executor::by_token(&mut conn, &hash).await?.filter(|ex| ex.revoked_at.is_none());
            Principal::Executor(ExecutorIdentity { executor: executor.ok_or_else(unknown)?, origin })
        }
    };
    Ok(principal)
}

/// The one bearer token of the request (RFC 6750, section 2.1).
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (scheme, token) = values.next()?.to_str().ok()?.split_once(' ')?;
    (values.next().is_none() && scheme.eq_ignore_ascii_case("bearer")).then(|| token.trim())
}

/// Where the request comes from.
pub struct ClientAddress(pub IpAddr);

impl<S: Sync> FromRequestParts<S> for ClientAddress {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        Ok(Self(peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |ConnectInfo(peer)| peer.ip())))
    }
}
