//! The kinds and the policy in force, as the database has them at this moment.

use std::{
    collections::HashMap,
    sync::{Arc, RwLock},
};

use super::{Desk, kinds, kinds::CompiledKind};
use crate::{
    model::{
        audit::{Entry, Event},
        kind::Kind,
        policy::{Defaults, Policy, Ttl},
        problem::Problem,
    },
    server::{
        config::Config,
        service::By,
        store::{self, Conn, Tx, catalogue, catalogue::Versioned},
    },
};

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
pub async fn seed(desk: &Desk) -> super::error::Result<()> {
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
        catalogue::add_kind(tx, &name, &Versioned { version, document }).await?;
        let reason = Some(format!("{name} version {version}, built in"));
        tx.audit(&Entry { reason, ..By::system("desk").entry(Event::AdminKindAdded) }).await?;
    }
    if catalogue::policy(tx).await?.is_none() {
        let first = Versioned { version: 1, document: Policy::default().document() };
        catalogue::add_policy(tx, &first, None).await?;
        let policy = Some("policy@1".to_owned());
        tx.audit(&Entry { policy, ..By::system("desk").entry(Event::AdminPolicyChanged) }).await?;
    }
    Ok(())
}
