//! Rules about documents: what their content must be, how many there may be, and who may read them.

use std::{
    collections::HashMap,
    sync::{Arc, RwLock},
};

use jsonschema::Validator;
use serde::Serialize;
use serde_json::Value;

use crate::{
    model::{
        audit::{Entry, Event},
        diff::ArrayKeys,
        id::ResourceRuleId,
        json,
        problem::{Code, Problem},
        resource::ResourceRule,
        time::Timestamp,
    },
    server::{
        ids,
        service::{Desk, account::Administrator, catalogue::Saved, error::Result, kinds, principal},
        store::{
            self, Conn, resource,
            resource_rule::{self, Stored},
        },
    },
};

/// A version of a rule with its schema compiled.
pub struct CompiledRule {
    pub id: ResourceRuleId,
    pub rule: ResourceRule,
    validator: Option<Validator>,
}

/// Rules compiled so far. A version never changes, so nothing here goes stale.
#[derive(Default)]
pub struct Compiled(RwLock<HashMap<(ResourceRuleId, i64), Arc<CompiledRule>>>);

impl Compiled {
    fn of(&self, stored: Stored) -> store::Result<Arc<CompiledRule>> {
        let key = (stored.id.clone(), stored.version);
        if let Some(known) = self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(&key) {
            return Ok(known.clone());
        }
        let validator = stored.rule.schema.as_ref().map(kinds::compile_schema).transpose();
        let validator = validator.map_err(|problem| store::Error::corrupt(problem.to_string()))?;
        let compiled = Arc::new(CompiledRule { id: stored.id, rule: stored.rule, validator });
        self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(key, compiled.clone());
        Ok(compiled)
    }
}

/// The rules whose scope holds `target`.
pub async fn of(desk: &Desk, conn: &mut Conn, target: &str) -> store::Result<Vec<Arc<CompiledRule>>> {
    let in_force = resource_rule::in_force(conn).await?;
    let holding = in_force.into_iter().filter(|stored| stored.rule.scope.contains(target));
    holding.map(|stored| desk.document_rules.of(stored)).collect()
}

/// The member that tells the elements of each list apart.
pub fn array_keys(rules: &[Arc<CompiledRule>]) -> ArrayKeys {
    ArrayKeys::new(rules.iter().flat_map(|rule| rule.rule.array_keys.clone()))
}

/// Whether the document is new among those that exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appears {
    Anew,
    Again,
}

/// The first rule that `document` breaks.
pub async fn violation(
    conn: &mut Conn,
    rules: &[Arc<CompiledRule>],
    document: &Value,
    appears: Appears,
) -> store::Result<Option<Problem>> {
    for rule in rules {
        if let Some(problem) = rule.content_violation(document) {
            return Ok(Some(problem));
        }
        if let (Some(max), Appears::Anew) = (rule.rule.max_live, appears)
            && resource::count_live(conn, rule.rule.scope.as_str()).await? >= max
        {
            let detail = format!("`{}` holds {max} at most, and that many exist", rule.rule.scope);
            return Ok(Some(rule.broken("max_live", "", detail).with("max", max)));
        }
    }
    Ok(None)
}

impl CompiledRule {
    fn content_violation(&self, document: &Value) -> Option<Problem> {
        let mut errors = self.validator.iter().flat_map(|validator| validator.iter_errors(document));
        if let Some(error) = errors.next() {
            // What is in the document is not repeated: not everybody who is told may read it.
            return Some(self.broken(
                "schema",
                error.instance_path().as_str(),
                error.masked_with("this value").to_string(),
            ));
        }
        self.rule.max_items.iter().find_map(|limit| {
            let items = document.pointer(&limit.pointer)?.as_array()?.len() as i64;
            let detail = || format!("`{}` has {items} elements, and {} are allowed", limit.pointer, limit.max);
            (items > limit.max).then(|| self.broken("max_items", &limit.pointer, detail()).with("max", limit.max))
        })
    }

    fn broken(&self, invariant: &str, pointer: &str, detail: String) -> Problem {
        let errors = [serde_json::json!({"pointer": pointer, "detail": detail})];
        Problem::new(
            Code::InvariantViolated,
            format!("The rule of `{}` does not allow this: {detail}", self.rule.scope),
        )
        .with("error", "invariant_violated")
        .with("rule", &self.id)
        .with("scope", &self.rule.scope)
        .with("invariant", invariant)
        .with("pointer", pointer)
        .with("errors", errors)
    }
}

/// A rule in force.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuleView {
    pub id: ResourceRuleId,
    pub version: i64,
    #[serde(flatten)]
    pub rule: ResourceRule,
    pub created_by: String,
    pub created_at: Timestamp,
}

impl From<Stored> for RuleView {
    fn from(stored: Stored) -> Self {
        let Stored { id, version, rule, created_by, created_at } = stored;
        Self { id, version, rule, created_by, created_at }
    }
}

/// The rules in force.
pub async fn list(desk: &Desk) -> Result<Vec<RuleView>> {
    let stored = resource_rule::in_force(&mut desk.store.read().await?).await?;
    Ok(stored.into_iter().map(RuleView::from).collect())
}

/// Puts a rule in force. The rule of the same scope, if there is one, gets a new version.
///
/// # Errors
/// `validation_failed` with every place that is not valid.
pub async fn put(desk: &Desk, admin: &Administrator, document: &Value) -> Result<Saved<RuleView>> {
    let rule = ResourceRule::load(document)?;
    rule.schema.as_ref().map(kinds::compile_schema).transpose()?;
    let by = admin.by().clone();
    desk.commit(move |tx| {
        Box::pin(async move {
            let known = resource_rule::in_force(tx).await?.into_iter().find(|known| known.rule.scope == rule.scope);
            let (id, version) = match known {
                Some(known) if known.rule == rule => return Ok(Ok(Saved::Same(known.into()))),
                Some(known) => (known.id, known.version + 1),
                None => (ids::new(tx.now()), 1),
            };
            let stored = Stored { id, version, rule, created_by: by.actor.id.clone(), created_at: tx.now() };
            resource_rule::insert(tx, &stored).await?;
            tx.audit(&Entry {
                resource: principal("resource-rule", &stored.id),
                reason: Some(format!("{} version {}", stored.rule.scope, stored.version)),
                request_digest: Some(content_digest(&stored.rule)?),
                ..by.entry(Event::AdminResourceRuleChanged)
            })
            .await?;
            Ok(Ok(Saved::New(stored.into())))
        })
    })
    .await
}

/// A rule is no secret: its digest needs no salt.
fn content_digest(rule: &ResourceRule) -> store::Result<String> {
    let document = serde_json::to_value(rule).map_err(|error| store::Error::corrupt(error.to_string()))?;
    Ok(crate::model::audit::salted_digest(b"", json::canonical(&document).as_bytes()))
}

/// Takes a rule out of force. Documents that were written under it stay.
///
/// # Errors
/// `not_found`.
pub async fn remove(desk: &Desk, admin: &Administrator, id: ResourceRuleId) -> Result<()> {
    let by = admin.by().clone();
    desk.commit(move |tx| {
        Box::pin(async move {
            if !resource_rule::remove(tx, &id).await? {
                return Ok(Err(Problem::new(Code::NotFound, format!("there is no rule `{id}` in force"))));
            }
            let resource = principal("resource-rule", &id);
            tx.audit(&Entry { resource, ..by.entry(Event::AdminResourceRuleRemoved) }).await?;
            Ok(Ok(()))
        })
    })
    .await
}
