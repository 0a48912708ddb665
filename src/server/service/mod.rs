//! Use cases, one per file, over `store` and `model`. Rights are arguments: the identities that `web::auth` builds.

pub mod account;
pub mod agents;
pub mod audit;
pub mod callback;
pub mod cancel;
pub mod case;
pub mod catalogue;
pub mod chain;
pub mod change_set;
pub mod claim;
pub mod conflict;
pub mod conflict_map;
pub mod decide;
pub mod desk;
pub mod error;
pub mod evidence;
pub mod hold;
pub mod kinds;
pub mod lease;
pub mod measures;
pub mod operation;
pub mod ownership;
pub mod propose;
pub mod provider;
pub mod reconcile;
pub mod resource;
pub mod review;
pub mod run;
pub mod run_approval;
pub mod settings;
pub mod sheet;
pub mod shelf;
pub mod throttle;
mod version;

use std::{ops::Deref, sync::Arc};

use futures::future::BoxFuture;

use super::{
    config::Config,
    faults::Faults,
    gateway::{Gateway, http::Http},
    seal::Sealer,
    signals::Signals,
    store::{self, Store, Tx},
};
use crate::model::{
    audit::{Actor, Entry, Event, SigningKey},
    id::{AgentId, CorrelationId, RunId},
    operation::rules::Step,
    problem::Problem,
    provider::ProviderName,
    target::Target,
    time::Timestamp,
};
use account::{Passwords, SignIns};
use error::Result;
use throttle::Throttle;

/// Unbelieved callbacks of one provider that are put on record, at once and per minute.
const STRANGERS: i64 = 10;

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
    /// Refusals put on record, per agent: what is refused must not fill the log.
    pub refusals: Throttle<AgentId>,
    /// Callbacks put on record that nobody's signature covers, per provider.
    pub strangers: Throttle<ProviderName>,
    pub compiled: catalogue::Compiled,
    pub document_rules: resource::rules::Compiled,
    pub signals: Signals,
    pub totals: measures::Totals,
    pub faults: Faults,
    /// What requests to destinations go through.
    pub http: Http,
    /// What is under way through them.
    pub gateway: Gateway,
    sealer: tokio::sync::OnceCell<Sealer>,
    /// Opened when it is first needed: most commands need only the database.
    signer: tokio::sync::OnceCell<Arc<SigningKey>>,
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
            refusals: Throttle::new(per_minute, per_minute),
            strangers: Throttle::new(STRANGERS, STRANGERS),
            compiled: catalogue::Compiled::default(),
            document_rules: resource::rules::Compiled::default(),
            signals: Signals::default(),
            totals: measures::Totals::default(),
            faults: Faults::from_env(),
            http: Http::default(),
            gateway: Gateway::default(),
            sealer: tokio::sync::OnceCell::new(),
            signer: tokio::sync::OnceCell::new(),
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

    /// `entry`, with the request it came through.
    pub fn on(&self, entry: Entry) -> Entry {
        Entry { correlation: self.correlation.clone(), route: self.route.clone(), ..entry }
    }

    /// `step`, with the request it came through on all its records.
    pub fn step(&self, mut step: Step) -> Step {
        for event in &mut step.events {
            event.correlation = self.correlation.clone();
            event.route = self.route.clone();
        }
        step
    }
}

/// How the log names a principal: `agent/ag_…`.
fn principal(word: &str, id: &impl std::fmt::Display) -> Option<Target> {
    format!("{word}/{id}").parse().ok()
}
