//! Scenes in which runs meet at one resource: a stale write and its re-plan, two releases of one environment, a lease
//! that is taken over, and a scope approved once for many writes.

use std::{sync::atomic::Ordering, time::Duration};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{
    client::{Result, Run, Vote, fresh_key},
    scenes::{BREATH, NOTABLE, ROUTINE, Stage},
};
use crate::model::{audit::Hash, conflict::Action, operation::State};

/// What both the tuner and the responder write.
const ALERTS: &str = "notification-policy/prod-alerts";
/// What one worker at a time rebuilds.
const INDEX: &str = "search-index/products";
/// What is tuned within an approved scope.
const CACHE: &str = "cache-policy/edge";
/// Writes that one approval of a scope covers.
const SCOPE: i64 = 5;

impl Stage {
    /// The document and its version; it is proposed first where there is none.
    async fn document(&self, run: &Run, resource: &str, first: Value) -> Result<Option<(i64, Value)>> {
        if let Some(found) = run.resource(resource).await? {
            return Ok(Some(found));
        }
        let create =
            json!({"kind": "resource.create", "target": resource, "params": {"value": first}, "expected_version": 0});
        let op = run.propose(&fresh_key(), &create).await?;
        self.decision(run, op, ROUTINE, Vote::Approve).await?;
        run.resource(resource).await
    }

    /// A replacement planned on a version that somebody else's urgent change has passed: it is refused, a reviewer says
    /// how to go on, and the new plan carries both changes.
    pub(super) async fn stale_plan(&self, tuner: &Run, responder: &str, n: i64) -> Result<()> {
        let first = json!({"severity": "high", "channel": "#payments-alerts", "repeat_minutes": 30, "muted": false});
        let Some((version, read)) = self.document(tuner, ALERTS, first).await? else { return Ok(()) };
        let plan = |mut value: Value| {
            value["repeat_minutes"] = json!(15 + n % 30);
            value
        };
        let replace = |version: i64, value: Value| {
            json!({
                "kind": "resource.replace", "target": ALERTS, "params": {"value": value}, "expected_version": version,
                "reason": "Half an hour between repeats lets an alert be forgotten over a shift change.",
            })
        };
        sleep(BREATH).await;
        let set = json!([{"resource": ALERTS, "verbs": ["update"]}]);
        let responder = self.api.start_run_within(responder, "incident", set).await?;
        let severity = if read["severity"] == "critical" { "high" } else { "critical" };
        responder.patch(ALERTS, version, &json!({"severity": severity})).await?;
        responder.stop("the incident is over").await?;

        sleep(BREATH).await;
        let refused = tuner.propose_stale(&fresh_key(), &replace(version, plan(read))).await?;
        let resolved = match timeout(NOTABLE, tuner.resolution(&refused)).await {
            Ok(resolved) => resolved?,
            Err(_) => {
                let instruction = "Keep the severity that the responder set, and change the interval alone.";
                self.colleague().await?.resolve(&refused.conflict, Action::Replan, instruction).await?;
                tuner.resolution(&refused).await?
            }
        };
        if resolved != Action::Replan {
            return Ok(());
        }
        let Some((version, now)) = tuner.resource(ALERTS).await? else { return Ok(()) };
        let mut again = replace(version, plan(now));
        again["replans"] = json!(refused.operation());
        let op = tuner.propose(&fresh_key(), &again).await?;
        self.decision(tuner, op, NOTABLE, Vote::Approve).await.map(drop)
    }

    /// A second release of an environment, planned on the version that the first one replaces.
    pub(super) async fn hotfix(&self, run: &Run, n: i64) -> Result<()> {
        let version = self.released.load(Ordering::Relaxed);
        let artifact = format!("sha256:{}", Hash::of(&[b"hotfix", &n.to_be_bytes()]));
        let release = json!({
            "kind": "deployment.release",
            "params": {"environment": "prod-eu", "service": "checkout", "artifact": artifact},
            "expected_version": version,
            "reason": "Turns the retry budget down until the payment provider is stable again.",
        });
        let op = run.propose(&fresh_key(), &release).await?;
        let op = run.change(&op).await?;
        if op.state == State::Approved {
            let outcome = json!({"provider_reference": format!("hotfix-{n}"), "resulting_version": version + 1});
            if self.carry_out(run, &op, outcome).await? {
                self.released.store(version + 1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// A worker that hangs loses its lease to the next one, and cannot come back.
    pub(super) async fn handover(&self, run: &Run, agent: &str, n: i64) -> Result<()> {
        let Some(hung) = run.lease(INDEX, 12).await? else { return Ok(()) };
        for part in 1..=2 {
            sleep(BREATH).await;
            run.renew(&hung, 12, &format!("round {n}, part {part} of 9")).await?;
        }
        let set = json!([{"resource": INDEX, "verbs": ["lease"]}]);
        let successor = self.api.start_run_within(agent, "reindex, second worker", set).await?;
        let taken = loop {
            match successor.lease(INDEX, 12).await? {
                Some(lease) => break lease,
                None => sleep(BREATH).await,
            }
        };
        if run.renew(&hung, 12, "awake again").await? {
            tracing::warn!("a lost lease was renewed");
        }
        sleep(2 * BREATH).await;
        successor.release(&taken).await?;
        successor.stop("the index is built").await
    }

    /// Many small writes inside a scope that a person approved once.
    pub(super) async fn tuning(&self, run: &Run, n: i64) -> Result<()> {
        let first = json!({"ttl_seconds": 60, "stale_while_revalidate": 30});
        if self.document(run, CACHE, first).await?.is_none() {
            return Ok(());
        }
        if n % SCOPE == 1 {
            let scope = json!({
                "kinds": ["resource.update"], "targets": [CACHE], "max_count": SCOPE, "expires_in_s": 3600,
                "reason": "Tuning of the edge cache during the sale",
            });
            self.colleague().await?.approve_run(run, &scope).await?;
        }
        let Some((version, _)) = run.resource(CACHE).await? else { return Ok(()) };
        let status = run.patch(CACHE, version, &json!({"ttl_seconds": 60 + (n * 7) % 120})).await?;
        if status != StatusCode::OK {
            sleep(Duration::from_secs(30)).await;
        }
        Ok(())
    }
}
