//! Callbacks: what a provider says by itself, under its signature, and what its declaration asks of people.

use axum::http::Method;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{App, Call, Person, Program, id_of, on_both_databases, provider::Provider, succeeded};

const SECRET: [u8; 32] = [7; 32];

/// A desk whose tickets go to a provider that declares `more`.
struct World {
    app: App,
    ada: Person,
    asha: Person,
    lin: Person,
    run: Program,
}

impl World {
    async fn new(app: &App, more: Value) -> Self {
        let (asha, _, run) = app.world().await;
        let ada = app.person("ada", "admin", "").await;
        let lin = app.person("lin", "operator", "").await;
        let provider = Provider::start().await;
        let mut contract = provider.contract(json!({"kinds": ["ticket.*"]}));
        contract["destination"]["callback"] = json!({"key": "/key", "reference": "/id", "status": "/status", "applied": ["paid"], "not_applied": ["void"]});
        for (name, value) in more.as_object().unwrap() {
            contract[name] = value.clone();
        }
        ada.post("providers", contract).await.ok(201);
        let secrets =
            json!({"credential": "Bearer k", "callback_secret": format!("whsec_{}", STANDARD.encode(SECRET))});
        ada.call(Method::PATCH, "providers/payments").json(secrets).await.ok(200);
        Self { app: app.clone(), ada, asha, lin, run }
    }

    /// Approved and sent.
    async fn sent(&self) -> Value {
        let op = self.run.ticket("Rotate").await;
        self.asha.approve(id_of(&op)).await.ok(200);
        self.run.send(&op).await;
        op
    }

    /// Approved, sent, and never answered.
    async fn lost(&self) -> Value {
        let op = self.sent().await;
        self.app.advance_s(60);
        assert_eq!(self.state(&op).await, "unknown");
        op
    }

    async fn state(&self, op: &Value) -> Value {
        self.run.read(op).await["state"].clone()
    }

    async fn count(&self, event: &str) -> usize {
        self.app.events().await.iter().filter(|name| *name == event).count()
    }

    /// A message of the provider, signed now.
    fn callback(&self, id: &str, body: &Value) -> Call {
        let text = body.to_string();
        let at = self.app.desk.now().as_millis() / 1000;
        message(&self.app, id, at, &format!("v1,{}", STANDARD.encode(sign(&SECRET, id, at, &text))), &text)
    }
}

fn message(app: &App, id: &str, at: i64, signatures: &str, body: &str) -> Call {
    let call = app.call(Method::POST, "callbacks/payments").raw("application/json", body.to_owned());
    let call = call.also_header("webhook-id", id).also_header("webhook-timestamp", &at.to_string());
    call.also_header("webhook-signature", signatures)
}

/// A message that nobody has signed.
async fn bare_refused(app: &App) {
    app.call(Method::POST, "callbacks/payments").raw("application/json", "{}").await.refused(401, "unauthenticated");
}

/// HMAC-SHA256 over `id.timestamp.body`.
fn sign(key: &[u8; 32], id: &str, at: i64, body: &str) -> Vec<u8> {
    let pad = |with: u8| -> Vec<u8> { (0..64).map(|i| key.get(i).copied().unwrap_or(0) ^ with).collect() };
    let inner = Sha256::digest([pad(0x36), format!("{id}.{at}.{body}").into_bytes()].concat());
    Sha256::digest([pad(0x5c), inner.to_vec()].concat()).to_vec()
}

on_both_databases! {
    async fn two_people_conclude_where_the_declaration_asks_for_it(app: App) {
        let world = World::new(&app, json!({"lookup": "none", "two_people": true})).await;
        let mira = app.person("mira", "operator", "").await;
        let op = world.lost().await;
        let path = format!("operations/{}", id_of(&op));
        let seen = async |reference: &str| {
            let seen = json!({"finding": "applied", "kind": "receipt", "reference": reference, "observed_at": "2026-12-01T00:00:00.000Z"});
            world.lin.post(&format!("{path}/evidence"), seen).await.ok(201).body["evidence"]["id"].clone()
        };
        let (foreign, right) = (seen("ch_of_somebody_else").await, seen(id_of(&op)).await);
        let resolve = |person: &Person, evidence: &Value| {
            person.post(&format!("{path}/resolution"), json!({"finding": "applied", "evidence": [evidence], "note": "it is there"}))
        };
        let refused = resolve(&world.lin, &foreign).await.refused(422, "validation_failed");
        assert!(refused.body["errors"][0]["detail"].as_str().unwrap().contains("same amount"));
        for _ in 0..2 {
            assert_eq!(resolve(&world.lin, &right).await.ok(200).operation()["state"], "needs_review");
        }
        assert_eq!(resolve(&mira, &right).await.ok(200).operation()["state"], "succeeded");
    }

    // C25 (e)
    async fn a_signed_callback_settles_what_its_key_names_and_a_contradiction_is_disputed(app: App) {
        let world = World::new(&app, json!({"idempotency": "none", "lookup": "none", "max_in_flight_s": 0})).await;
        let op = world.lost().await;
        let paid = json!({"key": op["id"], "id": "ch_1", "status": "paid"});
        assert_eq!(world.callback("m1", &json!({"key": op["id"], "status": "pending"})).await.ok(200).body["taken"], "kept");
        assert_eq!(world.callback("m2", &json!({"id": "ch_1", "status": "paid"})).await.ok(200).body["taken"], "unbound");
        assert_eq!(world.callback("m3", &json!({"key": "op_00000000000000000000000000", "status": "paid"})).await.ok(200).body["taken"], "unbound");
        assert_ne!(world.state(&op).await, "succeeded");
        assert_eq!(world.callback("m4", &paid).await.ok(200).body["taken"], "kept");
        assert_eq!(world.callback("m4", &paid).await.ok(200).body["taken"], "repeated");
        let ended = world.run.read(&op).await;
        assert_eq!((&ended["state"], &ended["outcome"]["source"], &ended["outcome"]["provider_reference"]), (&json!("succeeded"), &json!("callback"), &json!("ch_1")));

        world.callback("m5", &json!({"key": op["id"], "status": "void"})).await.ok(200);
        let disputed = world.run.read(&op).await;
        assert_eq!((&disputed["state"], &disputed["disputed"]), (&json!("succeeded"), &json!(true)));
        assert!(disputed["review_case"]["id"].is_string());
        assert_eq!(world.count("evidence.contradiction").await, 1);
    }

    async fn what_was_only_reported_is_confirmed_by_a_signed_callback_and_disputed_by_a_contrary_one(app: App) {
        let world = World::new(&app, json!({})).await;
        for (id, status, confirmed) in [("m1", "paid", true), ("m2", "void", false)] {
            let op = world.run.ticket(id).await;
            world.asha.approve(id_of(&op)).await.ok(200);
            let claim = world.run.send(&op).await;
            let reported = world.run.report(&op, "outcome", &claim, succeeded("ch_1")).await.ok(200).operation().clone();
            assert_eq!((&reported["state"], &reported["outcome"]["confirmed"]), (&json!("succeeded"), &json!(false)));
            world.callback(id, &json!({"key": op["id"], "status": "pending"})).await.ok(200);
            assert_eq!(world.run.read(&op).await["version"], reported["version"], "it says neither");
            for _ in 0..2 {
                let again = format!("{id}-{}", world.count("evidence.added").await);
                world.callback(&again, &json!({"key": op["id"], "id": "ch_1", "status": status})).await.ok(200);
            }
            let now = world.run.read(&op).await;
            let found = (&now["state"], &now["outcome"]["source"], &now["outcome"]["confirmed"], &now["disputed"]);
            assert_eq!(found, (&json!("succeeded"), &json!("run"), &json!(confirmed), &json!(!confirmed)));
            assert_eq!(now["version"].as_i64().unwrap(), reported["version"].as_i64().unwrap() + 1);
        }
        assert_eq!((world.count("evidence.confirmation").await, world.count("evidence.contradiction").await), (1, 1));
    }

    async fn a_signed_callback_answers_the_attempt_under_way(app: App) {
        let world = World::new(&app, json!({})).await;
        for (id, status, state) in [("m1", "paid", "succeeded"), ("m2", "void", "failed")] {
            let op = world.sent().await;
            world.callback(id, &json!({"key": op["id"], "status": status})).await.ok(200);
            let ended = world.run.read(&op).await;
            assert_eq!((&ended["state"], &ended["outcome"]["source"]), (&json!(state), &json!("callback")));
        }
    }

    async fn a_callback_without_the_right_signature_is_a_strangers(app: App) {
        let world = World::new(&app, json!({})).await;
        let op = world.lost().await;
        let body = json!({"key": op["id"], "status": "paid"}).to_string();
        let now = app.desk.now().as_millis() / 1000;
        let right = |id: &str, at| format!("v1,{}", STANDARD.encode(sign(&SECRET, id, at, &body)));
        let wrong = format!("v1,{}", STANDARD.encode(sign(&[8; 32], "m", now, &body)));
        let hostile = [
            ("m", now, wrong.clone(), body.as_str()),
            ("other", now, right("m", now), &body),
            ("m", now + 1, right("m", now), &body),
            ("m", now - 301, right("m", now - 301), &body),
            ("m", now + 301, right("m", now + 301), &body),
            ("m", now, right("m", now), "{}"),
            ("m", now, right("m", now).replace("v1,", "v1a,"), &body),
            ("m", now, "v1,".to_owned(), &body),
            ("m", now, "v1,%%%".to_owned(), &body),
            ("m", now, String::new(), &body),
            ("", now, right("", now), &body),
        ];
        for (id, at, signatures, body) in hostile {
            message(&app, id, at, &signatures, body).await.refused(401, "unauthenticated");
        }
        let stranger = app.call(Method::POST, "callbacks/nobody").raw("application/json", body.clone());
        let bare = app.call(Method::POST, "callbacks/payments").raw("application/json", body.clone());
        assert_eq!(stranger.await.refused(401, "unauthenticated").body["detail"], bare.await.refused(401, "unauthenticated").body["detail"]);
        assert_eq!(world.state(&op).await, "unknown");
        let refused: Vec<_> = app.audit().await.into_iter().filter(|record| record["event"] == "report.refused").collect();
        assert_eq!(refused.len(), 10, "what costs a stranger nothing does not fill the log");
        for record in &refused {
            assert_eq!((&record["status"], &record["actor"]["id"]), (&json!("unauthenticated"), &json!("callback")));
            assert!(record["resource"].as_str().unwrap().contains("payments"));
        }
        let reasons: std::collections::HashSet<_> = refused.iter().map(|record| record["reason"].as_str().unwrap()).collect();
        assert_eq!(reasons.len(), 2, "{reasons:?}");
        app.advance_s(60);
        bare_refused(&app).await;
        let count = |records: Vec<Value>| records.iter().filter(|record| record["event"] == "report.refused").count();
        assert_eq!(count(app.audit().await), 11);
        app.clock.advance_ms(-60_000);
        message(&app, "m", now - 299, &format!("{wrong} {}", right("m", now - 299)), &body).await.ok(200);
        assert_eq!(world.state(&op).await, "succeeded");
        for bad in ["secret", "whsec_", "whsec_c2hvcnQ="] {
            let patch = world.ada.call(Method::PATCH, "providers/payments").json(json!({"callback_secret": bad}));
            assert_eq!(patch.await.refused(422, "validation_failed").body["errors"][0]["pointer"], "/callback_secret");
        }
    }
}
