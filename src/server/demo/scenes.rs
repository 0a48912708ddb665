//! What the simulated agents do: each repeats one scene, one at a time, so that what waits for people stays countable.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::{
    sync::OnceCell,
    time::{sleep, timeout},
};

use super::{
    COLLEAGUE, Cast, SHORT_LIVED,
    client::{Api, Operation, Person, Result, Run, Vote, fresh_key},
};
use crate::model::{
    audit::Hash,
    operation::{ReasonCode, State},
};

/// Between two steps of a scene.
pub(super) const BREATH: Duration = Duration::from_secs(3);
/// How long the colleague leaves routine work to others, and what is worth a visitor's look.
pub(super) const ROUTINE: Duration = Duration::from_secs(15);
pub(super) const NOTABLE: Duration = Duration::from_secs(90);
/// Outcomes nobody knows: somebody has to settle them, so there are not many.
const SILENCES: i64 = 3;

/// Plays until it is dropped.
pub async fn play(api: Api, cast: Cast) {
    let Cast { tokens, colleague_password, .. } = cast;
    let stage = Stage { api, colleague_password, colleague: OnceCell::new(), released: AtomicI64::new(41) };
    tokio::join!(
        stage.repeat(Scene::Ticket, &tokens.triage),
        stage.repeat(Scene::Expiry, &tokens.batch),
        stage.repeat(Scene::Silence, &tokens.onboarding),
        stage.repeat(Scene::StagedRefund, &tokens.billing),
        stage.repeat(Scene::Release, &tokens.deployer),
        stage.repeat(Scene::Deletion, &tokens.janitor),
        stage.repeat(Scene::StalePlan { responder: &tokens.responder }, &tokens.tuner),
        stage.repeat(Scene::Hotfix, &tokens.hotfix),
        stage.repeat(Scene::Handover { agent: &tokens.reindexer }, &tokens.reindexer),
        stage.repeat(Scene::Tuning, &tokens.cache),
    );
}

#[derive(Debug, Clone, Copy)]
enum Scene<'a> {
    Ticket,
    Expiry,
    Silence,
    StagedRefund,
    Release,
    Deletion,
    /// With the token of the agent whose change it meets.
    StalePlan {
        responder: &'a str,
    },
    Hotfix,
    /// With the token under which the second worker runs.
    Handover {
        agent: &'a str,
    },
    Tuning,
}

impl Scene<'_> {
    /// What the agent calls its run.
    fn label(self) -> &'static str {
        match self {
            Self::Ticket => "alerts",
            Self::Expiry => "night batch",
            Self::Silence => "joiners",
            Self::StagedRefund => "refunds",
            Self::Release => "releases",
            Self::Deletion => "rotation",
            Self::StalePlan { .. } => "alert tuning",
            Self::Hotfix => "hotfixes",
            Self::Handover { .. } => "reindex",
            Self::Tuning => "cache tuning",
        }
    }

    /// What it may write, where that is bounded.
    fn write_set(self) -> Option<Value> {
        let (resource, verbs): (&str, &[&str]) = match self {
            Self::StalePlan { .. } => ("notification-policy/*", &["create", "replace"]),
            Self::Handover { .. } => ("search-index/*", &["lease"]),
            Self::Tuning => ("cache-policy/*", &["create", "update"]),
            _ => return None,
        };
        Some(json!([{"resource": resource, "verbs": verbs}]))
    }

    /// Between two rounds.
    fn rest(self) -> Duration {
        Duration::from_secs(match self {
            Self::Ticket => 20,
            Self::StagedRefund => 30,
            Self::Expiry | Self::Release | Self::Handover { .. } | Self::Tuning => 40,
            Self::Deletion | Self::StalePlan { .. } | Self::Hotfix => 60,
            Self::Silence => 120,
        })
    }
}

pub(super) struct Stage {
    pub(super) api: Api,
    colleague_password: String,
    /// Signs in when there is something to decide.
    colleague: OnceCell<Person>,
    /// Version of the production release pointer.
    pub(super) released: AtomicI64,
}

impl Stage {
    /// One agent's life: the scene, a rest, the scene again. A run that is stopped or disturbed makes room for the next.
    async fn repeat(&self, scene: Scene<'_>, agent: &str) {
        let mut round = 0;
        loop {
            let Err(error) = self.rounds(scene, agent, &mut round).await;
            tracing::info!(?scene, %error, "a simulated agent was disturbed and starts again");
            sleep(scene.rest()).await;
        }
    }

    async fn rounds(&self, scene: Scene<'_>, agent: &str, round: &mut i64) -> Result<Infallible> {
        let run = match scene.write_set() {
            Some(set) => self.api.start_run_within(agent, scene.label(), set).await?,
            None => self.api.start_run(agent, scene.label()).await?,
        };
        loop {
            *round += 1;
            match scene {
                Scene::Ticket => self.ticket(&run, *round).await?,
                Scene::Expiry => self.expiry(&run, *round).await?,
                Scene::Silence => self.silence(&run, *round).await?,
                Scene::StagedRefund => self.staged_refund(&run, *round).await?,
                Scene::Release => self.release(&run, *round).await?,
                Scene::Deletion => self.deletion(&run, *round).await?,
                Scene::StalePlan { responder } => self.stale_plan(&run, responder, *round).await?,
                Scene::Hotfix => self.hotfix(&run, *round).await?,
                Scene::Handover { agent } => self.handover(&run, agent, *round).await?,
                Scene::Tuning => self.tuning(&run, *round).await?,
            }
            sleep(scene.rest()).await;
        }
    }

    /// Waits for a decision; after `patience` the colleague makes it.
    pub(super) async fn decision(&self, run: &Run, op: Operation, patience: Duration, vote: Vote) -> Result<Operation> {
        if let Ok(changed) = timeout(patience, run.change(&op)).await {
            return changed;
        }
        self.colleague().await?.vote(&op, &vote).await?;
        run.change(&op).await
    }

    pub(super) async fn colleague(&self) -> Result<&Person> {
        self.colleague.get_or_try_init(|| self.api.sign_in(COLLEAGUE, &self.colleague_password)).await
    }

    /// Carries out what was approved, and reports success; whether it came to that.
    pub(super) async fn carry_out(&self, run: &Run, op: &Operation, mut outcome: Value) -> Result<bool> {
        if op.state != State::Approved {
            return Ok(false);
        }
        let claim = run.claim(op).await?;
        sleep(BREATH).await;
        run.sent(op, &claim).await?;
        sleep(BREATH).await;
        outcome["status"] = json!("succeeded");
        run.outcome(op, &claim, outcome).await?;
        Ok(true)
    }

    /// Proposes, waits and carries out under one provider reference; whether it was done.
    async fn walk(&self, run: &Run, body: Value, patience: Duration, reference: &str) -> Result<bool> {
        let op = run.propose(&fresh_key(), &body).await?;
        let op = self.decision(run, op, patience, Vote::Approve).await?;
        self.carry_out(run, &op, json!({"provider_reference": reference})).await
    }

    /// A ticket from an alert. The alert comes twice, an answer is lost, and a key is used for something else.
    async fn ticket(&self, run: &Run, n: i64) -> Result<()> {
        const ALERTS: [(&str, &str); 4] = [
            ("Rotate staging certificate", "normal"),
            ("Disk of the search index is 90 % full", "high"),
            ("Checkout answers slower than its objective", "urgent"),
            ("Nightly export has not arrived", "normal"),
        ];
        let (title, priority) = ALERTS[(n as usize) % ALERTS.len()];
        let title = format!("{title} ({n})");
        let alert = json!({
            "kind": "ticket.create",
            "params": {"project": "ops", "title": title, "priority": priority},
            "source_event_id": format!("alert-{n:04}"),
            "reason": "The alert has been firing for ten minutes and nobody has a ticket for it.",
        });
        let key = fresh_key();
        let op = run.propose(&key, &alert).await?;
        sleep(BREATH).await;
        run.propose_again(&key, &alert, &[StatusCode::ACCEPTED, StatusCode::OK]).await?;
        sleep(BREATH).await;
        run.propose_again(&fresh_key(), &alert, &[StatusCode::OK]).await?;
        let mut other = alert.clone();
        other["params"]["priority"] = json!("low");
        run.propose_again(&key, &other, &[StatusCode::CONFLICT]).await?;
        let op = self.decision(run, op, ROUTINE, Vote::Approve).await?;
        self.carry_out(run, &op, json!({"provider_reference": format!("OPS-{}", 480 + n)})).await?;
        run.propose_again(&key, &alert, &[StatusCode::OK]).await
    }

    /// Authorise, capture, give a part back; then the agent forgets that it did, and asks for the refund again.
    async fn staged_refund(&self, run: &Run, n: i64) -> Result<()> {
        let order = (4710 + n).to_string();
        let (authorization, transaction) = (format!("auth_{order}"), format!("txn_{order}"));
        let authorize = json!({
            "kind": "payment.authorize",
            "params": {
                "order": order, "payee": "customer 3318", "amount_minor": 14900, "currency": "EUR",
                "invoice": format!("INV-{}", 2290 + n),
            },
        });
        let capture = json!({
            "kind": "payment.capture",
            "params": {"order": order, "authorization": authorization, "amount_minor": 14900, "currency": "EUR"},
        });
        let refund = json!({
            "kind": "payment.refund",
            "params": {
                "order": order, "original_transaction": transaction, "amount_minor": 4320, "currency": "EUR",
                "refund_reason": "One of three items came back",
            },
            "reason": "The parcel was scanned at the returns desk.",
        });
        let done = self.walk(run, authorize, ROUTINE, &authorization).await?
            && self.walk(run, capture, ROUTINE, &transaction).await?
            && self.walk(run, refund.clone(), NOTABLE, &format!("rf_{order}")).await?;
        if done {
            let op = run.propose(&fresh_key(), &refund).await?;
            let duplicate = Vote::Reject(ReasonCode::Duplicate, "The customer has this refund already.");
            let op = self.decision(run, op, NOTABLE, duplicate).await?;
            self.carry_out(run, &op, json!({"provider_reference": format!("rf_{order}_2")})).await?;
        }
        Ok(())
    }

    /// A release to production, on the version that runs.
    async fn release(&self, run: &Run, n: i64) -> Result<()> {
        let version = self.released.load(Ordering::Relaxed);
        let artifact = format!("sha256:{}", Hash::of(&[b"checkout", &n.to_be_bytes()]));
        let release = json!({
            "kind": "deployment.release",
            "params": {"environment": "prod-eu", "service": "checkout", "artifact": artifact},
            "expected_version": version,
            "reason": "Staging has run this build for a day without errors.",
        });
        let op = run.propose(&fresh_key(), &release).await?;
        let op = self.decision(run, op, NOTABLE, Vote::Approve).await?;
        let outcome = json!({"provider_reference": format!("deploy-{n}"), "resulting_version": version + 1});
        if self.carry_out(run, &op, outcome).await? {
            self.released.store(version + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The deletion of a credential, which the colleague does not like.
    async fn deletion(&self, run: &Run, n: i64) -> Result<()> {
        let delete = json!({
            "kind": "credential.delete",
            "params": {"system": "billing-sync", "credential": format!("key-{n:02}")},
            "expected_version": 3,
            "reason": "Its successor is in use, and nothing has used this one for a week.",
        });
        let op = run.propose(&fresh_key(), &delete).await?;
        let not_now = Vote::Reject(ReasonCode::NotNow, "Not before the monthly run is over.");
        let op = self.decision(run, op, NOTABLE, not_now).await?;
        self.carry_out(run, &op, json!({"provider_reference": format!("revoked-key-{n:02}")})).await.map(drop)
    }

    /// What nobody decides in time.
    async fn expiry(&self, run: &Run, n: i64) -> Result<()> {
        let project = SHORT_LIVED.trim_start_matches("project/");
        let ticket = json!({
            "kind": "ticket.create",
            "params": {"project": project, "title": format!("Batch {n} starts in half a minute"), "priority": "low"},
        });
        let op = run.propose(&fresh_key(), &ticket).await?;
        let op = run.change(&op).await?;
        self.carry_out(run, &op, json!({"provider_reference": format!("NB-{n}")})).await.map(drop)
    }

    /// An invitation that leaves, and is not heard of again.
    async fn silence(&self, run: &Run, n: i64) -> Result<()> {
        if n > SILENCES {
            return std::future::pending().await;
        }
        let invite = json!({
            "kind": "user.invite",
            "params": {"email": format!("joiner-{n}@example.test"), "role": "member", "workspace": "payments"},
            "reason": "Starts on Monday.",
        });
        let op = run.propose(&fresh_key(), &invite).await?;
        let op = self.decision(run, op, ROUTINE, Vote::Approve).await?;
        if op.state == State::Approved {
            let claim = run.claim(&op).await?;
            let sent = run.sent(&op, &claim).await?;
            run.change(&sent).await?;
        }
        Ok(())
    }
}
