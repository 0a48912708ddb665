//! The same tasks through Counterfoil, with the people it needs.

use std::sync::{
    RwLock,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use axum::http::Method;
use counterfoil::server::{gateway, worker};
use serde_json::{Value, json};

use crate::{
    cells::{Arm, Contract},
    direct::{Intent, Life, Told},
    guards::Guard,
    provider::{Answer, Providers, Wire},
    sim::Sim,
    support::{App, Call, Person, Program, Reply, id_of},
};

/// Looks at one operation before its story is given up as lost.
const PATIENCE: usize = 300;
/// For how long the desk remembers the key of what has ended.
pub const KEY_RETENTION_MS: i64 = 2 * 3_600_000;
/// Runs of the agent: whoever delivers a task again does it in another one.
const RUNS: usize = 5;

/// What people did for one task.
#[derive(Debug, Default)]
pub struct Work {
    /// Approvals and rejections: the work that is asked for.
    pub decisions: AtomicUsize,
    /// Looking into an outcome and concluding what became of it.
    pub interventions: AtomicUsize,
}

/// A desk with one provider, the agent's runs, and its people.
pub struct Desk {
    app: RwLock<App>,
    sim: Sim,
    arm: Arm,
    contract: Contract,
    broken: Option<Guard>,
    /// Tasks under way.
    busy: AtomicUsize,
    approver: Person,
    operator: Person,
    runs: Vec<Program>,
}

impl Desk {
    pub async fn open(arm: Arm, providers: &Providers, contract: Contract, broken: Option<Guard>) -> Self {
        let app = if arm.is_on_postgres() { App::postgres().await } else { App::sqlite().await };
        let app = app.restart(&settings()).await;
        let (approver, _, _) = app.world().await;
        let agent = app.agent("sender", "omar").await;
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            runs.push(agent.run(json!({})).await);
        }
        let operator = app.person("olga", "operator", "").await;
        let admin = app.person("ada", "admin", "").await;
        let name = contract.name();
        admin.post("providers", contract.declaration(&providers.url)).await.ok(201);
        admin.post("kinds", kind(arm, contract, broken)).await.ok(201);
        let credential = json!({"credential": "Bearer simulated"});
        admin.call(Method::PATCH, &format!("providers/{name}")).json(credential).await.ok(200);
        let sim = Sim::new(app.clock.clone());
        providers.tell_the_time(sim.now()).await;
        if contract.is_checkable() {
            let checked = admin.post(&format!("providers/{name}/check"), json!({})).await.ok(200).body;
            for check in checked["checks"].as_array().unwrap() {
                assert_eq!(check["passed"], true, "{name}: {check}");
            }
        }
        Self { app: RwLock::new(app), sim, arm, contract, broken, busy: AtomicUsize::new(0), approver, operator, runs }
    }

    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    fn app(&self) -> App {
        self.app.read().unwrap().clone()
    }

    /// Asserts that the log is what the rules allow, and lets go of the database.
    pub async fn close(self) {
        let app = self.app();
        let verdict = app.verdict(&app.export().await).await;
        assert_eq!(verdict.exit_code(), 0, "{verdict}");
        app.stop.cancel();
        app.desk.store.close().await;
    }

    /// What the desk does by itself, while anybody is at work.
    pub async fn by_itself(&self, providers: &Providers, working: &AtomicUsize) {
        for tick in 0_usize.. {
            if working.load(Relaxed) == 0 {
                return;
            }
            let desk = self.app().desk.clone();
            providers.tell_the_time(self.sim.now()).await;
            // With the database away nothing happens, and it is tried again.
            drop(worker::sweep(&desk).await);
            drop(worker::reconcile(&desk).await);
            if self.arm.is_gateway() {
                self.step(&desk).await;
            }
            if tick % 20 == 19 {
                drop(worker::tidy(&desk).await);
            }
            // Nobody waits for it when all agents are away.
            let is_quiet = self.busy.load(Relaxed) == 0;
            self.sim.sleep_ms(if is_quiet { 240_000 } else { 30_000 }).await;
        }
    }

    /// The database goes away for half a minute, again and again, while anybody is at work.
    pub async fn outages(&self, working: &AtomicUsize) {
        while working.load(Relaxed) > 0 {
            self.sim.sleep_ms(25_000).await;
            self.app().desk.store.close().await;
            self.sim.sleep_ms(30_000).await;
            let app = self.app().restart(&settings()).await;
            *self.app.write().unwrap() = app;
        }
    }

    /// Every seed stands for a world of its own: what failed in another one does not hold this one back.
    async fn step(&self, desk: &counterfoil::server::service::Desk) {
        desk.gateway.forget(self.contract.name());
        drop(gateway::step(desk).await);
    }

    /// Repeats a call while the database is away.
    async fn insist(&self, call: impl Fn(&App) -> Call) -> Reply {
        loop {
            let reply = call(&self.app()).await;
            if reply.status != 503 {
                return reply;
            }
            self.sim.sleep_ms(5_000).await;
        }
    }

    async fn read(&self, run: &Program, id: &str) -> Value {
        let reply = self.insist(|app| run.at(app).get(&format!("operations/{id}"))).await;
        reply.ok(200).operation().clone()
    }

    /// The operation for a task, new or known, as it is now; `None` where it was refused.
    pub async fn propose(&self, delivery: usize, intent: &Intent) -> Option<Value> {
        let run = &self.runs[delivery];
        let name = self.contract.name();
        let mut params = intent.body();
        if self.arm.is_gateway() {
            let path = format!("/{name}/effects");
            params = json!({"order": intent.order, "method": "POST", "path": path, "body": params});
        }
        let (mut key, mut event) = (intent.key.clone(), intent.event.clone());
        if self.broken == Some(Guard::Identity) {
            (key, event) = (format!("content-of-{}", intent.order), intent.order.clone());
        }
        let mut body = json!({
            "kind": format!("sim.{name}"), "target": format!("order/{}", intent.order), "params": params,
            "source_event_id": event,
        });
        if let (Some(version), false) = (intent.planned_on, self.broken == Some(Guard::Precondition)) {
            body["expected_version"] = json!(version);
        }
        let reply = self.insist(|app| run.at(app).propose_as(&key, body.clone())).await;
        match reply.code() {
            "fingerprint_conflict" => {
                let path = format!("operations/by-key/{key}");
                Some(self.insist(|app| run.at(app).get(&path)).await.ok(200).operation().clone())
            }
            "idempotency_key_expired" => Some(self.read(run, reply.body["operation_id"].as_str().unwrap()).await),
            _ => reply.status.is_success().then(|| reply.operation().clone()),
        }
    }

    /// The approver's answer: no to what may have happened already.
    pub async fn decide(&self, op: &Value, work: &Work) {
        let id = id_of(op);
        let shown = self.insist(|app| self.approver.at(app).get(&format!("operations/{id}"))).await.ok(200);
        if shown.operation()["state"] != "pending" {
            return;
        }
        let mut body = json!({
            "decision": "approve", "fingerprint": shown.operation()["fingerprint"],
            "review_digest": shown.body["review_digest"],
        });
        if !op["duplicate_of"].is_null() {
            body["decision"] = json!("reject");
            body["reason_code"] = json!("duplicate");
            body["reason"] = json!("the first may have happened");
        }
        let path = format!("operations/{id}/decisions");
        if self.insist(|app| self.approver.at(app).post(&path, body.clone())).await.status.is_success() {
            work.decisions.fetch_add(1, Relaxed);
        }
    }

    /// Takes the approval back, and has the agent try nevertheless; `None` where the gateway was faster.
    pub async fn withdraw(&self, wire: &Wire, intent: &Intent, op: &Value, work: &Work) -> Option<Told> {
        let path = format!("operations/{}/decisions", id_of(op));
        let taken_back = self.insist(|app| self.approver.at(app).call(Method::DELETE, &path)).await;
        if self.arm.is_gateway() && taken_back.code() == "approval_spent" {
            return None;
        }
        taken_back.ok(200);
        work.decisions.fetch_add(1, Relaxed);
        if self.broken == Some(Guard::Withdrawal) {
            return Some(self.past(wire, intent, op).await);
        }
        let is_sent = self.attempt(0, wire, intent, op, Life::Lives).await;
        Some(if is_sent { Told::Done } else { Told::NotDone })
    }

    /// What the agent would rather have is refused: under the same key, and at the claim.
    pub async fn refuses(&self, op: &Value, changed: &Intent) {
        let known = self.propose(0, changed).await;
        assert_eq!(known.as_ref().map(id_of), Some(id_of(op)), "the key is bound");
        let path = format!("operations/{}/claim", id_of(op));
        let fingerprint = format!("sha256:{}", "0".repeat(64));
        let claimed = self.runs[0].at(&self.app()).post(&path, json!({"fingerprint": fingerprint})).await;
        assert!(claimed.status.is_client_error(), "{}", claimed.text);
    }

    /// Somebody brings a record of the provider that says no.
    pub async fn contradict(&self, op: &Value) {
        let id = id_of(op);
        let seen = json!({
            "finding": "not_applied", "kind": "receipt", "reference": id, "observed_at": self.app().clock.now(),
            "note": "the provider's console shows nothing",
        });
        let path = format!("operations/{id}/evidence");
        self.insist(|app| self.operator.at(app).post(&path, seen.clone())).await.ok(201);
    }

    /// One delivery of the task.
    pub async fn act(&self, delivery: usize, wire: &Wire, intent: &Intent, life: Life, work: &Work) -> Told {
        let Some(op) = self.propose(delivery, intent).await else { return Told::NotDone };
        self.carry_out(delivery, wire, intent, op, life, work).await
    }

    /// From wherever the operation is to its end.
    pub async fn carry_out(
        &self,
        delivery: usize,
        wire: &Wire,
        intent: &Intent,
        op: Value,
        life: Life,
        work: &Work,
    ) -> Told {
        self.busy.fetch_add(1, Relaxed);
        let told = self.to_its_end(delivery, wire, intent, op, life, work).await;
        self.busy.fetch_sub(1, Relaxed);
        told
    }

    async fn to_its_end(
        &self,
        delivery: usize,
        wire: &Wire,
        intent: &Intent,
        op: Value,
        life: Life,
        work: &Work,
    ) -> Told {
        let (mut op, mut key) = (op, intent.key.clone());
        for _ in 0..PATIENCE {
            op = self.read(&self.runs[delivery], id_of(&op)).await;
            let state = op["state"].as_str().unwrap();
            let is_past = match self.broken {
                Some(Guard::Claim) => state == "approved",
                Some(Guard::LookUp) => state == "unknown",
                Some(Guard::Absence) => state == "unknown" && wire.find("key", id_of(&op)).await == Some(0),
                Some(Guard::Expiry) => state == "expired",
                _ => false,
            };
            if is_past {
                return self.past(wire, intent, &op).await;
            }
            match state {
                "pending" => self.decide(&op, work).await,
                // What another agent has claimed and not sent can be claimed again in time.
                "approved" | "claimed" | "unknown" => {
                    if !self.attempt(delivery, wire, intent, &op, life).await {
                        self.sim.sleep_ms(30_000).await;
                    } else if matches!(life, Life::DiesAfterClaim | Life::DiesBeforeByte | Life::DiesAfterSending) {
                        return Told::Silence;
                    }
                }
                "sent" | "accepted" => self.sim.sleep_ms(15_000).await,
                "needs_review" => {
                    if !self.look_into(wire, &op, work).await {
                        return Told::InDoubt;
                    }
                }
                _ if op["disputed"] == true => {
                    work.interventions.fetch_add(1, Relaxed);
                    return Told::InDoubt;
                }
                "succeeded" => return Told::Done,
                // What a person has found not to have happened is asked for again, under a new key.
                "failed" if op["safe_new_key"] == true => {
                    key.push_str("-again");
                    let again = Intent { key: key.clone(), ..intent.clone() };
                    let Some(next) = self.propose(delivery, &again).await else { return Told::NotDone };
                    op = next;
                }
                "rejected" if op["duplicate_of"].is_string() => op = json!({"id": op["duplicate_of"]}),
                _ => return Told::NotDone,
            }
        }
        Told::Lost
    }

    /// Claims, sends and reports, or has the gateway do it; whether it came as far as its life allows.
    async fn attempt(&self, delivery: usize, wire: &Wire, intent: &Intent, op: &Value, life: Life) -> bool {
        let (run, id) = (&self.runs[delivery], id_of(op));
        if self.arm.is_gateway() {
            // What is unknown is looked at again by the desk itself.
            if op["state"] != "approved" {
                return false;
            }
            let app = self.app();
            wire.tell_the_time().await;
            self.step(&app.desk).await;
            return self.read(run, id).await["state"] != "approved";
        }
        let claimed = self.insist(|app| run.at(app).claim(op)).await;
        if !claimed.status.is_success() {
            return false;
        }
        if life == Life::DiesAfterClaim {
            return true;
        }
        let claim = &claimed.body["claim"];
        let sent = self.insist(|app| run.at(app).report(op, "sent", claim, json!({}))).await;
        if !sent.status.is_success() {
            return false;
        }
        if life == Life::DiesBeforeByte {
            return true;
        }
        let (mut fence, mut key) =
            (claim["claim_fence"].as_i64().unwrap(), claim["downstream_key"].as_str().unwrap().to_owned());
        if let (Life::StopsFor { ms }, 1) = (life, fence) {
            self.sim.sleep_ms(ms).await;
        }
        let mut body = claim["params"].clone();
        match self.broken {
            Some(Guard::Key) => key = format!("{key}-{fence}"),
            Some(Guard::Fence) => fence = i64::MAX,
            Some(Guard::Payload) => body = intent.body(),
            _ => {}
        }
        let outcome = match wire.send(Some(&key), fence, &body).await {
            Answer::Done { reference, version } => {
                json!({"status": "succeeded", "provider_reference": reference, "resulting_version": version})
            }
            Answer::Refused(status) => json!({"status": "failed", "response": {"status": status}}),
            Answer::Doubt => json!({"status": "unknown", "provider_status": "no reply"}),
        };
        // Too late, it is kept as evidence.
        drop(self.insist(|app| run.at(app).report(op, "outcome", claim, outcome.clone())).await);
        true
    }

    /// Sends without asking the desk.
    async fn past(&self, wire: &Wire, intent: &Intent, op: &Value) -> Told {
        match wire.send(Some(id_of(op)), i64::MAX, &intent.body()).await {
            Answer::Done { .. } => Told::Done,
            Answer::Refused(_) => Told::NotDone,
            Answer::Doubt => Told::InDoubt,
        }
    }

    /// What an operator does: asks the provider's console for the downstream key, and concludes only from what is found.
    async fn look_into(&self, wire: &Wire, op: &Value, work: &Work) -> bool {
        work.interventions.fetch_add(1, Relaxed);
        let id = id_of(op);
        let is_found = wire.find("key", id).await.unwrap_or_default() > 0;
        if !is_found && self.broken != Some(Guard::Proof) {
            return false;
        }
        let seen = json!({
            "finding": "applied", "kind": "receipt", "reference": id, "observed_at": self.app().clock.now(),
            "note": "in the provider's console under the downstream key",
        });
        let path = format!("operations/{id}/evidence");
        let kept = self.insist(|app| self.operator.at(app).post(&path, seen.clone())).await.ok(201);
        let finding = json!({
            "finding": "applied", "evidence": [kept.body["evidence"]["id"]], "note": "found by its downstream key",
        });
        let path = format!("operations/{id}/resolution");
        self.insist(|app| self.operator.at(app).post(&path, finding.clone())).await.ok(200);
        true
    }
}

fn settings() -> [(&'static str, &'static str); 3] {
    [
        ("COUNTERFOIL_OPEN_OPERATIONS_PER_AGENT", "100000"),
        ("COUNTERFOIL_PROPOSALS_PER_MINUTE", "100000"),
        ("COUNTERFOIL_KEY_RETENTION_S", "7200"),
    ]
}

fn kind(arm: Arm, contract: Contract, broken: Option<Guard>) -> Value {
    let mut kind = json!({
        "name": format!("sim.{}", contract.name()), "title": "Act", "headline": "asks to act on {order}",
        "target": "order/{order}", "verb": "update", "consequence": "Acts", "rollback": "Cannot be undone",
        "risk": "low", "conditional": "optional", "lock": "release",
        "business_key": {"fields": ["source_event_id"], "on_duplicate": "existing"},
        "schema": {
            "type": "object", "additionalProperties": false, "required": ["order", "amount_minor"],
            "properties": {"order": {"type": "string"}, "amount_minor": {"type": "integer", "minimum": 1}},
        },
    });
    if arm.is_gateway() {
        kind["executor"] = json!("gateway");
        kind["provider"] = json!(contract.name());
        kind["schema"] = json!({
            "type": "object", "additionalProperties": false, "required": ["order", "method", "path", "body"],
            "properties": {
                "order": {"type": "string"}, "method": {"const": "POST"}, "path": {"type": "string"},
                "body": {"type": "object"},
            },
        });
    }
    let left_out = match broken {
        Some(Guard::Precondition) => "lock",
        Some(Guard::BusinessKey) => "business_key",
        _ => return kind,
    };
    kind.as_object_mut().unwrap().remove(left_out);
    kind
}
