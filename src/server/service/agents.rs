//! Agents and executors: the principals of programs. Their tokens are shown once.

use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use super::{Desk, account::Administrator, account::name_taken, error::Result, principal};
use crate::{
    model::{
        audit::{Entry, Event},
        id::{AgentId, ExecutorId, PersonId, RunId},
        problem::{Code, Problem},
        run::Allowance,
        time::Timestamp,
    },
    server::{
        ids::{self, Secret, TokenKind},
        store::{agent, agent::Agent, executor, executor::Executor, person, run, run::Run},
        web::auth::PersonIdentity,
    },
};

/// What a program is called: text people read, on one line.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(try_from = "String")]
#[schema(min_length = 1, max_length = 100)]
pub struct Label(String);

impl Label {
    const MAX_CHARS: usize = 100;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Label {
    type Error = &'static str;

    fn try_from(text: String) -> std::result::Result<Self, &'static str> {
        if text.trim().is_empty() || text.chars().count() > Self::MAX_CHARS {
            return Err("a name has 1 to 100 characters");
        }
        if text.contains(|c: char| c.is_ascii_control()) {
            return Err("a name has no control characters");
        }
        Ok(Self(text))
    }
}

/// A pattern of kind names, `payment.*`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(try_from = "String")]
#[schema(pattern = "^[a-z0-9._*-]{1,100}$", example = "payment.*")]
pub struct KindPattern(String);

impl TryFrom<String> for KindPattern {
    type Error = &'static str;

    fn try_from(text: String) -> std::result::Result<Self, &'static str> {
        let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"._-*".contains(&c);
        if (1..=100).contains(&text.len()) && text.bytes().all(fits) {
            Ok(Self(text))
        } else {
            Err("a kind is named by lower-case letters, digits, `.`, `_`, `-`, with `*` for any part")
        }
    }
}

/// A principal just made, with the token that is never shown again.
pub struct Issued<T> {
    pub principal: T,
    pub token: Secret,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAgent {
    pub name: Label,
    /// A person's name, or their id.
    pub owner: String,
    pub allow: Option<Vec<Allowance>>,
}

/// # Errors
/// `validation_failed` when there is no such owner · `invalid_state` when the name is taken.
pub async fn create_agent(desk: &Desk, admin: &Administrator, new: NewAgent) -> Result<Issued<Agent>> {
    let token = Secret::token(TokenKind::Agent);
    let (hash, by) = (token.hash(), admin.by().clone());
    let agent = desk
        .commit(move |tx| {
            Box::pin(async move {
                let owner = match new.owner.parse::<PersonId>() {
                    Ok(id) => person::by_id(tx, &id).await?,
                    Err(_) => person::by_name(tx, &new.owner).await?,
                };
                let Some(owner) = owner.filter(|person| person.is_enabled()) else {
                    return Ok(Err(no_owner(&new.owner)));
                };
                let agent = Agent {
                    id: ids::new(tx.now()),
                    name: new.name.0,
                    owner: owner.id,
                    owner_name: owner.name,
                    allow: new.allow,
                    created_at: tx.now(),
                    revoked_at: None,
                };
                if !agent::insert(tx, &agent, &hash).await? {
                    return Ok(Err(name_taken(&agent.name)));
                }
                let mut entry = by.entry(Event::AdminAgentCreated);
                entry.resource = principal("agent", &agent.id);
                entry.reason = Some(format!("owner {}", agent.owner));
                tx.audit(&entry).await?;
                Ok(Ok(agent))
            })
        })
        .await?;
    Ok(Issued { principal: agent, token })
}

/// The agent and the run through which a person writes by hand, made when they first do. Nobody has a token of either,
/// and neither is listed among the programs.
///
/// # Errors
/// When the database is away.
pub async fn by_hand(desk: &Desk, identity: &PersonIdentity) -> Result<(Agent, RunId)> {
    if let Some(known) = agent::by_hand(&mut desk.store.read().await?, identity.id()).await? {
        return Ok(known);
    }
    let (person, by) = (identity.person().clone(), identity.by());
    desk.commit(move |tx| {
        Box::pin(async move {
            if let Some(known) = agent::by_hand(tx, &person.id).await? {
                return Ok(Ok(known));
            }
            let now = tx.now();
            let agent_of = |name: String| Agent {
                id: ids::new(now),
                name,
                owner: person.id.clone(),
                owner_name: person.name.clone(),
                allow: None,
                created_at: now,
                revoked_at: None,
            };
            let mut agent = agent_of(format!("{}, by hand", person.name));
            if !agent::insert(tx, &agent, &Secret::new().hash()).await? {
                // A program has the name; no program has the name of an id.
                agent = agent_of(format!("{}, by hand", person.id));
                agent::insert(tx, &agent, &Secret::new().hash()).await?;
            }
            agent::give_to(tx, &agent.id, &person.id).await?;
            let run = Run {
                id: ids::new(now),
                agent: agent.id.clone(),
                agent_name: agent.name.clone(),
                label: "by hand".to_owned(),
                write_set: None,
                reads: None,
                defaults: None,
                created_at: now,
                expires_at: NEVER,
                stopped: None,
            };
            run::insert(tx, &run, &Secret::new().hash()).await?;
            let resource = principal("agent", &agent.id);
            tx.audit(&Entry { resource, ..by.entry(Event::AdminAgentCreated) }).await?;
            tx.audit(&Entry { run: Some(run.id.clone()), ..by.entry(Event::RunStarted) }).await?;
            Ok(Ok((agent, run.id)))
        })
    })
    .await
}

/// 9999-12-31T23:59:59Z: a person's own run ends with the person.
const NEVER: Timestamp = Timestamp(253_402_300_799_000);

fn no_owner(owner: &str) -> Problem {
    Problem::at(Code::ValidationFailed, "/owner", format!("there is no person `{owner}` who can sign in"))
}

/// What an admin changes about an agent; absent members stay. A revoked agent stays revoked.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentChange {
    pub owner: Option<String>,
    /// `null` takes the ceiling away.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Vec<Allowance>>)]
    pub allow: Option<Option<Vec<Allowance>>>,
    #[schema(value_type = Option<bool>)]
    pub revoked: Option<Revoked>,
}

/// Only `true`: a token that was taken away never works again.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "bool")]
pub struct Revoked;

impl TryFrom<bool> for Revoked {
    type Error = &'static str;

    fn try_from(revoked: bool) -> std::result::Result<Self, &'static str> {
        if revoked { Ok(Self) } else { Err("a revoked token stays revoked") }
    }
}

fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// # Errors
/// `not_found` · `validation_failed` when there is no such owner.
pub async fn change_agent(desk: &Desk, admin: &Administrator, id: AgentId, change: AgentChange) -> Result<Agent> {
    let by = admin.by().clone();
    desk.commit(move |tx| {
        Box::pin(async move {
            let Some(before) = agent::by_id(tx, &id).await? else {
                return Ok(Err(Problem::new(Code::NotFound, format!("there is no agent `{id}`"))));
            };
            let mut after = before.clone();
            if let Some(name) = &change.owner {
                let owner = match name.parse::<PersonId>() {
                    Ok(id) => person::by_id(tx, &id).await?,
                    Err(_) => person::by_name(tx, name).await?,
                };
                let Some(owner) = owner.filter(|person| person.is_enabled()) else { return Ok(Err(no_owner(name))) };
                (after.owner, after.owner_name) = (owner.id, owner.name);
            }
            after.allow = change.allow.unwrap_or(after.allow);
            if change.revoked.is_some() {
                after.revoked_at = after.revoked_at.or(Some(tx.now()));
            }
            agent::update(tx, &after).await?;
            let mut events = Vec::new();
            if (&after.owner, &after.allow) != (&before.owner, &before.allow) {
                events.push((Event::AdminAgentChanged, Some(format!("owner {}", after.owner))));
            }
            if after.revoked_at != before.revoked_at {
                events.push((Event::AdminAgentRevoked, None));
            }
            for (event, reason) in events {
                let mut entry = by.entry(event);
                entry.resource = principal("agent", &id);
                entry.reason = reason;
                tx.audit(&entry).await?;
            }
            Ok(Ok(after))
        })
    })
    .await
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewExecutor {
    pub name: Label,
    pub kinds: Vec<KindPattern>,
}

fn patterns(kinds: Vec<KindPattern>) -> std::result::Result<Vec<String>, Problem> {
    if kinds.is_empty() {
        return Err(Problem::at(Code::ValidationFailed, "/kinds", "an executor serves at least one kind"));
    }
    Ok(kinds.into_iter().map(|kind| kind.0).collect())
}

/// # Errors
/// `validation_failed` · `invalid_state` when the name is taken.
pub async fn create_executor(desk: &Desk, admin: &Administrator, new: NewExecutor) -> Result<Issued<Executor>> {
    let token = Secret::token(TokenKind::Executor);
    let (hash, by, kinds) = (token.hash(), admin.by().clone(), patterns(new.kinds)?);
    let executor = desk
        .commit(move |tx| {
            Box::pin(async move {
                let executor = Executor {
                    id: ids::new(tx.now()),
                    name: new.name.0,
                    kinds,
                    created_at: tx.now(),
                    revoked_at: None,
                };
                if !executor::insert(tx, &executor, &hash).await? {
                    return Ok(Err(name_taken(&executor.name)));
                }
                let mut entry = by.entry(Event::AdminExecutorCreated);
                entry.resource = principal("executor", &executor.id);
                entry.reason = Some(format!("kinds {}", executor.kinds.join(" ")));
                tx.audit(&entry).await?;
                Ok(Ok(executor))
            })
        })
        .await?;
    Ok(Issued { principal: executor, token })
}

/// What an admin changes about an executor; absent members stay.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecutorChange {
    pub kinds: Option<Vec<KindPattern>>,
    #[schema(value_type = Option<bool>)]
    pub revoked: Option<Revoked>,
}

/// # Errors
/// `not_found` · `validation_failed`.
pub async fn change_executor(
    desk: &Desk,
    admin: &Administrator,
    id: ExecutorId,
    change: ExecutorChange,
) -> Result<Executor> {
    let by = admin.by().clone();
    let kinds = change.kinds.map(patterns).transpose()?;
    desk.commit(move |tx| {
        Box::pin(async move {
            let Some(before) = executor::by_id(tx, &id).await? else {
                return Ok(Err(Problem::new(Code::NotFound, format!("there is no executor `{id}`"))));
            };
            let mut after = before.clone();
            after.kinds = kinds.unwrap_or(after.kinds);
            if change.revoked.is_some() {
                after.revoked_at = after.revoked_at.or(Some(tx.now()));
            }
            executor::update(tx, &after).await?;
            let mut events = Vec::new();
            if after.kinds != before.kinds {
                events.push((Event::AdminExecutorChanged, Some(format!("kinds {}", after.kinds.join(" ")))));
            }
            if after.revoked_at != before.revoked_at {
                events.push((Event::AdminExecutorRevoked, None));
            }
            for (event, reason) in events {
                let mut entry = by.entry(event);
                entry.resource = principal("executor", &id);
                entry.reason = reason;
                tx.audit(&entry).await?;
            }
            Ok(Ok(after))
        })
    })
    .await
}
