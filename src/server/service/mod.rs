//! Use cases, one per file, over `store` and `model`. Rights are arguments: the identities that `web::auth` builds.

pub mod account;
pub mod agents;
pub mod desk;
pub mod error;
pub mod kinds;
pub mod run;
pub mod throttle;

use std::{ops::Deref, sync::Arc};

use futures::future::BoxFuture;

use super::{
    config::Config,
    store::{self, Store, Tx},
};
use crate::model::{
    audit::{Actor, Entry, Event},
    id::{AgentId, CorrelationId, RunId},
    problem::Problem,
    target::Target,
    time::Timestamp,
};
use account::{Passwords, SignIns};
use error::Result;
use throttle::Throttle;

/// What use cases work with. Cheap to clone.
#[derive(Clone)]
pub struct Desk(Arc<Parts>);

pub struct Parts {
    pub store: Store,
    pub config: Config,
    pub passwords: Passwords,
    pub sign_ins: SignIns,
    /// Proposals, per agent.
    pub proposals: Throttle<AgentId>,
}

impl Desk {
    pub fn new(store: Store, config: Config) -> Self {
        let per_minute = config.proposals_per_minute;
        Self(Arc::new(Parts {
            store,
            config,
            passwords: Passwords::default(),
            sign_ins: SignIns::default(),
            proposals: Throttle::new(per_minute, per_minute),
        }))
    }

    pub fn now(&self) -> Timestamp {
        self.store.clock().now()
    }

    /// Carries out one command. A refusal that must leave a trace is an `Ok(Err(problem))`: what was written before it
    /// is kept. An `Err` undoes everything.
    ///
    /// # Errors
    /// The command's refusal, or what went wrong on the way to the database.
    pub async fn commit<T, F>(&self, command: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, store::Result<std::result::Result<T, Problem>>> + Send + 'static,
    {
        Ok(self.store.commit(command).await??)
    }
}

impl Deref for Desk {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// Who acts, and through which request: what every audit record says about where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct By {
    pub actor: Actor,
    pub run: Option<RunId>,
    pub correlation: Option<CorrelationId>,
    /// Method and route template.
    pub route: Option<String>,
}

impl By {
    /// A part of the program itself, such as `command-line` or `clock`.
    pub fn system(part: &'static str) -> Self {
        Self { actor: Actor::system(part), run: None, correlation: None, route: None }
    }

    /// A record of `event` that names its origin.
    pub fn entry(&self, event: Event) -> Entry {
        Entry {
            run: self.run.clone(),
            correlation: self.correlation.clone(),
            route: self.route.clone(),
            ..Entry::new(event, self.actor.clone())
        }
    }
}

/// How the log names a principal: `agent/ag_…`.
fn principal(word: &str, id: &impl std::fmt::Display) -> Option<Target> {
    format!("{word}/{id}").parse().ok()
}
