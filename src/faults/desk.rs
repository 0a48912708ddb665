//! The same tasks through Counterfoil, with the people it needs.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use axum::http::Method;
use counterfoil::server::worker;
use serde_json::{Value, json};

use crate::{
    cells::Contract,
    direct::{Intent, Life, Told},
    provider::{Answer, Providers, Wire},
    sim::Sim,
    support::{App, Person, Program, id_of},
};

/// Looks at one operation before its story is given up as unresolved.
const PATIENCE: usize = 300;

/// What people did for one task.
#[derive(Debug, Default)]
pub struct Work {
    /// Approvals and rejections: the work that is asked for.
    pub decisions: AtomicUsize,
    /// Looking into an outcome and concluding what became of it.
    pub interventions: AtomicUsize,
}

/// A desk with one provider, the agent's run, and its people.
pub struct Desk {
    pub app: App,
    contract: Contract,
    approver: Person,
    operator: Person,
    run: Program,
}

impl Desk {
    pub async fn open(app: App, providers: &Providers, contract: Contract) -> Self {
        let settings =
            [("COUNTERFOIL_OPEN_OPERATIONS_PER_AGENT", "100000"), ("COUNTERFOIL_PROPOSALS_PER_MINUTE", "100000")];
        let app = app.restart(&settings).await;
        let (approver, _, run) = app.world().await;
        let operator = app.person("olga", "operator", "").await;
        let admin = app.person("ada", "admin", "").await;
        let name = contract.name();
        let kind = json!({
            "name": format!("sim.{name}"), "title": "Act", "headline": "asks to act on {order}", "target": "order/{order}",
            "verb": "update", "consequence": "Acts", "rollback": "Cannot be undone", "risk": "low",
            "schema": {
                "type": "object", "additionalProperties": false, "required": ["order", "amount_minor"],
                "properties": {"order": {"type": "string"}, "amount_minor": {"type": "integer", "minimum": 1}},
            },
        });
        admin.post("kinds", kind).await.ok(201);
        admin.post("providers", contract.declaration(&providers.url)).await.ok(201);
        let credential = json!({"credential": "Bearer simulated"});
        admin.call(Method::PATCH, &format!("providers/{name}")).json(credential).await.ok(200);
        providers.tell_the_time(app.clock.now().as_millis()).await;
        if contract.is_checkable() {
            let checked = admin.post(&format!("providers/{name}/check"), json!({})).await.ok(200).body;
            for check in checked["checks"].as_array().unwrap() {
                assert_eq!(check["passed"], true, "{name}: {check}");
            }
        }
        Self { app, contract, approver, operator, run }
    }

    /// What the desk does by itself, while anybody is at work.
    pub async fn reconcile(&self, sim: &Sim, providers: &Providers, working: &AtomicUsize) {
        while working.load(Relaxed) > 0 {
            providers.tell_the_time(sim.now()).await;
            worker::reconcile(&self.app.desk).await.unwrap();
            sim.sleep_ms(30_000).await;
        }
    }

    /// The operation for a task, new or known, as it is now; `None` where it was refused.
    pub async fn propose(&self, intent: &Intent) -> Option<Value> {
        let body = json!({
            "kind": format!("sim.{}", self.contract.name()), "target": format!("order/{}", intent.order),
            "params": intent.body(), "source_event_id": intent.event,
        });
        let reply = self.run.propose_as(&intent.key, body).await;
        if reply.code() == "fingerprint_conflict" {
            let known = self.run.get(&format!("operations/by-key/{}", intent.key)).await.ok(200);
            return Some(known.operation().clone());
        }
        reply.status.is_success().then(|| reply.operation().clone())
    }

    /// The approver's answer: no to what may have happened already.
    pub async fn decide(&self, op: &Value, work: &Work) {
        let id = id_of(op);
        if self.approver.view(id).await["state"] != "pending" {
            return;
        }
        let decision = if op["duplicate_of"].is_null() { "approve" } else { "reject" };
        if self.approver.decide(id, decision, json!({})).await.status.is_success() {
            work.decisions.fetch_add(1, Relaxed);
        }
    }

    /// Takes the approval back; whether the operation can still be claimed.
    pub async fn withdraw(&self, op: &Value, work: &Work) -> Told {
        let path = format!("operations/{}/decisions", id_of(op));
        self.approver.call(Method::DELETE, &path).await.ok(200);
        work.decisions.fetch_add(1, Relaxed);
        if self.run.claim(op).await.status.is_success() { Told::Done } else { Told::NotDone }
    }

    /// One delivery of the task.
    pub async fn act(&self, wire: &Wire, intent: &Intent, life: Life, work: &Work) -> Told {
        let Some(op) = self.propose(intent).await else { return Told::NotDone };
        self.carry_out(wire, intent, op, life, work).await
    }

    /// From wherever the operation is to its end.
    pub async fn carry_out(&self, wire: &Wire, intent: &Intent, op: Value, life: Life, work: &Work) -> Told {
        let (mut op, mut key) = (op, intent.key.clone());
        for _ in 0..PATIENCE {
            op = self.run.read(&op).await;
            match op["state"].as_str().unwrap() {
                "pending" => self.decide(&op, work).await,
                "approved" | "unknown" => {
                    if !self.attempt(wire, &op).await {
                        wire.sim.sleep_ms(30_000).await;
                    } else if life == Life::DiesAfterSending {
                        return Told::InDoubt;
                    }
                }
                "claimed" | "sent" | "accepted" => wire.sim.sleep_ms(15_000).await,
                "needs_review" => {
                    if !self.look_into(wire, &op, work).await {
                        return Told::InDoubt;
                    }
                }
                "succeeded" => return Told::Done,
                // What a person has found not to have happened is asked for again, under a new key.
                "failed" if op["safe_new_key"] == true => {
                    key.push_str("-again");
                    let Some(next) = self.propose(&Intent { key: key.clone(), ..intent.clone() }).await else {
                        return Told::NotDone;
                    };
                    op = next;
                }
                "rejected" if op["duplicate_of"].is_string() => op = json!({"id": op["duplicate_of"]}),
                _ => return Told::NotDone,
            }
        }
        Told::InDoubt
    }

    /// Claims, sends and reports; whether anything was sent.
    async fn attempt(&self, wire: &Wire, op: &Value) -> bool {
        let claimed = self.run.claim(op).await;
        if !claimed.status.is_success() {
            return false;
        }
        let claim = &claimed.body["claim"];
        if !self.run.report(op, "sent", claim, json!({})).await.status.is_success() {
            return false;
        }
        let fence = claim["claim_fence"].as_i64().unwrap();
        let outcome = match wire.send(claim["downstream_key"].as_str(), fence, &claim["params"]).await {
            Answer::Done(reference) => json!({"status": "succeeded", "provider_reference": reference}),
            Answer::Refused(status) => json!({"status": "failed", "response": {"status": status}}),
            Answer::Doubt => json!({"status": "unknown", "provider_status": "no reply"}),
        };
        // Too late, it is kept as evidence.
        drop(self.run.report(op, "outcome", claim, outcome).await);
        true
    }

    /// What an operator does: asks the provider's console for the downstream key, and concludes only from what is found.
    async fn look_into(&self, wire: &Wire, op: &Value, work: &Work) -> bool {
        work.interventions.fetch_add(1, Relaxed);
        let id = id_of(op);
        if wire.find("key", id).await.unwrap_or_default() == 0 {
            return false;
        }
        let seen = json!({
            "finding": "applied", "kind": "receipt", "reference": id, "observed_at": self.app.clock.now(),
            "note": "in the provider's console under the downstream key",
        });
        let kept =
            self.operator.post(&format!("operations/{id}/evidence"), seen).await.ok(201).body["evidence"]["id"].clone();
        let finding = json!({"finding": "applied", "evidence": [kept], "note": "found by its downstream key"});
        self.operator.post(&format!("operations/{id}/resolution"), finding).await.ok(200);
        true
    }
}
