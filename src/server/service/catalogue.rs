//! The kinds and the policy in force, as the database has them at this moment, and how admins change them.

use std::{
    collections::HashMap,
    sync::{Arc, RwLock},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    By, Desk, account::Administrator, error::Result, kinds, kinds::CompiledKind, operation::voters, principal,
};
use crate::{
    model::{
        approval::Voter,
        audit::{Entry, Event},
        id::AgentId,
        kind::{Executor, Kind, KindName, Risk},
        operation::rules,
        policy::{Defaults, Effective, MatchFacts, Policy, Rule, Ttl},
        problem::{Code, FieldError, Problem},
        target::Target,
    },
    server::{
        config::Config,
        store::{
            self, Conn, Tx, agent, catalogue,
            catalogue::{PolicyVersion, Versioned},
        },
    },
};

/// Versions of the policy that its history shows.
const HISTORY: i64 = 50;

/// Kinds compiled so far. A version never changes, so nothing here goes stale.
#[derive(Default)]
pub struct Compiled(RwLock<HashMap<(String, i64), Arc<CompiledKind>>>);

impl Compiled {
    fn get(&self, name: &str, version: i64) -> Option<Arc<CompiledKind>> {
        let compiled = self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        compiled.get(&(name.to_owned(), version)).cloned()
    }

    fn put(&self, kind: CompiledKind) -> Arc<CompiledKind> {
        let kind = Arc::new(kind);
        let mut compiled = self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        compiled.insert((kind.kind.name.as_str().to_owned(), kind.version), kind.clone());
        kind
    }
}

impl Desk {
    /// A kind by its name; the newest version when none is named.
    pub async fn kind(
        &self,
        conn: &mut Conn,
        name: &str,
        version: Option<i64>,
    ) -> store::Result<Option<Arc<CompiledKind>>> {
        if let Some(kind) = version.and_then(|version| self.compiled.get(name, version)) {
            return Ok(Some(kind));
        }
        let Some(stored) = catalogue::kind(conn, name, version).await? else { return Ok(None) };
        if let Some(kind) = self.compiled.get(name, stored.version) {
            return Ok(Some(kind));
        }
        let compiled = Kind::load(&stored.document).and_then(|kind| CompiledKind::compile(kind, stored.version));
        compiled.map(|kind| Some(self.compiled.put(kind))).map_err(|p| store::Error::corrupt(p.to_string()))
    }

    /// The policy in force.
    pub async fn policy(&self, conn: &mut Conn) -> store::Result<Policy> {
        match catalogue::policy(conn).await? {
            Some(stored) => {
                Policy::load(&stored.document, stored.version).map_err(|p| store::Error::corrupt(p.to_string()))
            }
            None => Ok(Policy::default()),
        }
    }
}

/// The default rule's spans, from the settings.
pub fn defaults(config: &Config) -> Defaults {
    let ttl = |seconds: i64, default: Ttl| Ttl::try_from(seconds).unwrap_or(default);
    let fallback = Defaults::default();
    Defaults {
        approval_ttl: ttl(config.approval_ttl_s, fallback.approval_ttl),
        execution_ttl: ttl(config.execution_ttl_s, fallback.execution_ttl),
        retry_ttl: ttl(config.retry_ttl_s, fallback.retry_ttl),
    }
}

/// Brings the built-in kinds and a first, empty policy into the database; what is there already stays.
pub async fn seed(desk: &Desk) -> Result<()> {
    let builtin = kinds::builtin()?;
    desk.commit(move |tx| Box::pin(async move { seed_in(tx, builtin).await.map(Ok::<_, Problem>) })).await
}

async fn seed_in(tx: &mut Tx, builtin: Vec<Kind>) -> store::Result<()> {
    for kind in builtin {
        let name = kind.name.as_str().to_owned();
        let document = serde_json::to_value(&kind).map_err(|e| store::Error::corrupt(e.to_string()))?;
        let known = catalogue::kind(tx, &name, None).await?;
        if known.as_ref().is_some_and(|known| known.document == document) {
            continue;
        }
        let version = known.map_or(kinds::BUILTIN_VERSION, |known| known.version + 1);
        store_kind(tx, &By::system("desk"), &name, Versioned { version, document }).await?;
    }
    if catalogue::policy(tx).await?.is_none() {
        let first = Versioned { version: 1, document: Policy::default().document() };
        store_policy(tx, &By::system("desk"), None, first).await?;
    }
    Ok(())
}

async fn store_kind(tx: &mut Tx, by: &By, name: &str, kind: Versioned) -> store::Result<()> {
    catalogue::add_kind(tx, name, &kind).await?;
    let reason = Some(format!("version {}", kind.version));
    tx.audit(&Entry { resource: principal("kind", &name), reason, ..by.entry(Event::AdminKindAdded) }).await?;
    Ok(())
}

async fn store_policy(tx: &mut Tx, by: &By, changed_by: Option<&str>, policy: Versioned) -> store::Result<()> {
    catalogue::add_policy(tx, &policy, changed_by).await?;
    let version = Some(format!("policy@{}", policy.version));
    tx.audit(&Entry { policy: version, ..by.entry(Event::AdminPolicyChanged) }).await?;
    Ok(())
}

/// What an admin's document came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Saved<T> {
    /// A new version.
    New(T),
    /// It says what is in force already; nothing was saved.
    Same(T),
}

impl<T> Saved<T> {
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Saved<U> {
        match self {
            Self::New(saved) => Saved::New(change(saved)),
            Self::Same(known) => Saved::Same(change(known)),
        }
    }
}

// Kinds

/// The newest version of a kind.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct KindView {
    pub name: String,
    pub version: i64,
    /// It came with the desk, and nobody redefines it.
    pub built_in: bool,
    #[schema(value_type = Object)]
    pub document: Value,
}

impl KindView {
    fn of(kind: Versioned) -> Self {
        let name = kind.document["name"].as_str().unwrap_or_default().to_owned();
        Self { built_in: kinds::is_builtin(&name), name, version: kind.version, document: kind.document }
    }
}

/// The newest version of every kind, by name.
pub async fn all_kinds(desk: &Desk) -> Result<Vec<KindView>> {
    let stored = catalogue::kinds(&mut desk.store.read().await?).await?;
    Ok(stored.into_iter().map(KindView::of).collect())
}

/// # Errors
/// `not_found`.
pub async fn newest_kind(desk: &Desk, name: &KindName) -> Result<KindView> {
    let stored = catalogue::kind(&mut desk.store.read().await?, name.as_str(), None).await?;
    Ok(stored.map(KindView::of).ok_or_else(|| Problem::new(Code::NotFound, format!("there is no kind `{name}`")))?)
}

/// Adds a kind, or a newer version of it. What was proposed before keeps the version it was proposed under.
///
/// # Errors
/// `validation_failed` with every place that is not valid, also for the name of a built-in kind.
pub async fn add_kind(desk: &Desk, admin: &Administrator, document: &Value) -> Result<Saved<KindView>> {
    let kind = Kind::load(document)?;
    let name = kind.name.clone();
    if kinds::is_builtin(name.as_str()) {
        let detail = format!("`{name}` is built in; give yours another name, such as `acme.{name}`");
        return Err(Problem::at(Code::ValidationFailed, "/name", detail).into());
    }
    if kind.executor == Executor::Gateway {
        let asked = |name: &str| {
            kind.schema["required"].as_array().is_some_and(|names| names.iter().any(|required| required == name))
        };
        if !asked("method") || !asked("path") || !(asked("destination") || kind.provider.is_some()) {
            let detail = "the gateway sends what the parameters say: require `method` and `path`, and `destination` where \
                          the kind names no provider; or leave this out and let an executor carry the kind out";
            return Err(Problem::at(Code::ValidationFailed, "/executor", detail).into());
        }
    }
    let document = serde_json::to_value(&kind).map_err(super::error::Error::internal)?;
    CompiledKind::compile(kind, 0)?;
    let by = admin.by().clone();
    desk.commit(move |tx| {
        Box::pin(async move {
            let known = catalogue::kind(tx, name.as_str(), None).await?;
            let last = known.as_ref().map_or(0, |known| known.version);
            if let Some(known) = known.filter(|known| known.document == document) {
                return Ok(Ok(Saved::Same(KindView::of(known))));
            }
            let kind = Versioned { version: last + 1, document };
            store_kind(tx, &by, name.as_str(), kind.clone()).await?;
            Ok(Ok(Saved::New(KindView::of(kind))))
        })
    })
    .await
}

// Policies

/// The policy in force.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PolicyView {
    pub version: i64,
    /// In order; the first that matches holds.
    #[schema(value_type = Vec<Object>)]
    pub rules: Vec<Rule>,
    /// What holds where no rule matches.
    #[serde(rename = "default")]
    #[schema(value_type = Object)]
    pub default_rule: Effective,
    /// Rules under which too few people could approve.
    #[schema(value_type = Vec<Object>)]
    pub warnings: Vec<FieldError>,
    /// Newest first.
    pub versions: Vec<PolicyVersion>,
}

async fn view(desk: &Desk, conn: &mut Conn) -> store::Result<PolicyView> {
    let policy = desk.policy(conn).await?;
    let default_rule = policy.default_rule(&defaults(&desk.config));
    let warnings = shortages(&policy, &default_rule, &voters(conn).await?);
    let versions = catalogue::policy_versions(conn, HISTORY).await?;
    Ok(PolicyView { version: policy.version, rules: policy.rules, default_rule, warnings, versions })
}

/// What waits for more people than there are. An agent's owner counts here, though not for that agent's work.
fn shortages(policy: &Policy, default_rule: &Effective, voters: &[Voter]) -> Vec<FieldError> {
    let shortage = |pointer: String, approvals: i64, groups: &[String]| {
        let able = voters.iter().filter(|voter| voter.is_eligible(groups)).count() as i64;
        let detail = format!("asks {approvals} of group {}, and {able} could approve", groups.join(" or "));
        (able < approvals).then_some(FieldError { pointer, detail })
    };
    let asking = policy.rules.iter().enumerate().filter(|(_, rule)| rule.require.auto != Some(true));
    let by_rule = asking.filter_map(|(i, rule)| {
        let approvals = rule.require.approvals.unwrap_or(default_rule.approvals);
        let groups = rule.require.groups.as_ref().unwrap_or(&default_rule.groups);
        shortage(format!("/rules/{i}"), approvals, groups)
    });
    by_rule.chain(shortage("/default".to_owned(), default_rule.approvals, &default_rule.groups)).collect()
}

pub async fn policy_in_force(desk: &Desk) -> Result<PolicyView> {
    Ok(view(desk, &mut desk.store.read().await?).await?)
}

/// Puts a new version of the policy in force: `{"rules": […]}`. `edited` is the version it was made from; whoever leaves
/// it out overwrites whatever is there.
///
/// # Errors
/// `validation_failed` with every place that is not valid · `stale_version` when somebody else was faster.
pub async fn change_policy(
    desk: &Desk,
    admin: &Administrator,
    document: &Value,
    edited: Option<i64>,
) -> Result<Saved<PolicyView>> {
    let rules = Policy::load(document, 0)?.rules;
    let (desk_in, by) = (desk.clone(), admin.by().clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let current = desk_in.policy(tx).await?;
            if let Some(edited) = edited.filter(|edited| *edited != current.version) {
                return Ok(Err(rules::stale_version("setting/policy", edited, current.version)));
            }
            if rules == current.rules {
                return Ok(Ok(Saved::Same(view(&desk_in, tx).await?)));
            }
            let next = Policy { version: current.version + 1, rules };
            let stored = Versioned { version: next.version, document: next.document() };
            store_policy(tx, &by, Some(&by.actor.id), stored).await?;
            Ok(Ok(Saved::New(view(&desk_in, tx).await?)))
        })
    })
    .await
}

/// Which rule would match this?
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MatchQuestion {
    #[schema(value_type = String)]
    pub kind: KindName,
    #[schema(value_type = String)]
    pub target: Target,
    /// Left out, it is the kind's own, before its content raises it.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub risk: Option<Risk>,
    /// Name or id.
    pub agent: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct MatchAnswer {
    #[schema(value_type = String)]
    pub risk: Risk,
    /// The rule's place from 0; none for the default rule.
    pub place: Option<usize>,
    /// What it asks, with nothing left open.
    #[schema(value_type = Object)]
    pub rule: Effective,
}

/// # Errors
/// `validation_failed` for a kind or an agent that there is not.
pub async fn match_rule(desk: &Desk, question: &MatchQuestion) -> Result<MatchAnswer> {
    let mut conn = desk.store.read().await?;
    let unknown = |pointer: &str, word: &str, name: &str| {
        Problem::at(Code::ValidationFailed, pointer, format!("there is no {word} `{name}`"))
    };
    let kind = desk.kind(&mut conn, question.kind.as_str(), None).await?;
    let kind = kind.ok_or_else(|| unknown("/kind", "kind", question.kind.as_str()))?;
    let agent = match question.agent.parse::<AgentId>() {
        Ok(id) => agent::by_id(&mut conn, &id).await?,
        Err(_) => agent::by_name(&mut conn, &question.agent).await?,
    };
    let agent = agent.ok_or_else(|| unknown("/agent", "agent", &question.agent))?;
    let risk = question.risk.unwrap_or(kind.kind.risk);
    let facts = MatchFacts {
        kind: question.kind.as_str(),
        target: &question.target,
        risk,
        agent_name: &agent.name,
        agent_id: agent.id.as_str(),
    };
    let policy = desk.policy(&mut conn).await?;
    let place = policy.find(&facts).map(|(place, _)| place);
    Ok(MatchAnswer { risk, place, rule: policy.matching(&facts, &defaults(&desk.config)) })
}
