//! The gateway: what was approved leaves once, as it was approved, and its reply proves no more than it says.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::http::Method;
use counterfoil::server::gateway::{self, circuit::CircuitState, http::Resolve};
use futures::future::{BoxFuture, join_all};
use serde_json::{Value, json};

use crate::support::{
    App, Person, Program, fresh_key, id_of, merge, on_both_databases, postgres, process,
    provider::{Answer, Machine, Provider, Script},
};

const CREDENTIAL: &str = "Bearer sk_live_planted_credential";

/// People, a run, and a destination that is registered with its credential.
struct Place {
    app: App,
    asha: Person,
    ada: Person,
    run: Program,
}

impl Place {
    async fn new(app: &App, contract: Value) -> Self {
        let (asha, _, run) = app.world().await;
        let ada = app.person("ada", "admin", "").await;
        let place = Self { app: app.clone(), asha, ada, run };
        place.declare(contract).await;
        place.ada.call(Method::PATCH, "providers/payments").json(json!({"credential": CREDENTIAL})).await.ok(200);
        place
    }

    async fn declare(&self, contract: Value) {
        self.ada.post("providers", contract).await.ok(201);
    }

    /// A request of its own to the destination; `more` are members of the proposal.
    fn proposal(&self, more: Value) -> Value {
        let target = format!("charge/{}", fresh_key());
        let params = json!({"destination": "payments", "method": "POST", "path": "/charges", "body": {"amount": 5}});
        let mut body = json!({"kind": "http.request", "target": target, "params": params});
        merge(&mut body, more);
        body
    }

    async fn propose(&self, more: Value) -> Value {
        self.run.propose_as(&fresh_key(), self.proposal(more)).await.ok(201).operation().clone()
    }

    async fn approved(&self, more: Value) -> Value {
        let op = self.propose(more).await;
        self.asha.approve(id_of(&op)).await.ok(200);
        op
    }

    async fn step(&self) -> usize {
        gateway::step(&self.app.desk).await.unwrap()
    }

    /// Approves one more request and sends it; how it is afterwards.
    async fn sent(&self) -> Value {
        let op = self.approved(json!({})).await;
        assert_eq!(self.step().await, 1);
        self.run.read(&op).await
    }

    fn circuit(&self) -> CircuitState {
        self.app.desk.gateway.circuit("payments").state(self.app.clock.now())
    }

    fn circuit_words(&self) -> String {
        self.app.desk.gateway.circuit("payments").words().unwrap_or_default().to_owned()
    }
}

/// A name that leads elsewhere with each question.
struct Turning {
    answers: Vec<SocketAddr>,
    asked: Arc<AtomicUsize>,
}

impl Resolve for Turning {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let turn = self.asked.fetch_add(1, Ordering::Relaxed).min(self.answers.len() - 1);
        let answer = self.answers[turn];
        Box::pin(async move { Ok(vec![answer]) })
    }
}

on_both_databases! {
    async fn what_was_approved_is_sent_once_as_it_was_approved(app: App) {
        let provider = Provider::start().await;
        let place = Place::new(&app, provider.contract(json!({}))).await;
        let more = json!({
            "expected_version": 41,
            "params": {
                "destination": "payments", "method": "PUT", "path": "/charges", "query": {"a b": "1&2", "c": "\u{e9}"},
                "body": {"zeta": 1, "alpha": [2, null]},
            },
        });
        let op = place.propose(more).await;
        assert_eq!(place.step().await, 0, "nobody has approved it");
        place.asha.approve(id_of(&op)).await.ok(200);
        let executor = app.executor("sender", &["*"]).await;
        for program in [&place.run, &executor] {
            program.claim(&op).await.refused(403, "forbidden");
        }
        assert_eq!(place.step().await, 1);
        assert_eq!(place.step().await, 0);

        let effects = provider.effects();
        let [effect] = &effects[..] else { panic!("{effects:?}") };
        let header = |name: &str| effect.headers.get(name).map_or("", |value| value.to_str().unwrap());
        assert_eq!(effect.line, "PUT /charges?a%20b=1%262&c=%C3%A9");
        assert_eq!(effect.body, json!({"zeta": 1, "alpha": [2, null]}));
        assert_eq!((header("idempotency-key"), header("if-match")), (id_of(&op), "\"41\""));
        assert_eq!((header("counterfoil-run"), header("counterfoil-claim-fence")), (place.run.id.as_str(), "1"));
        assert_eq!((header("authorization"), header("content-type")), (CREDENTIAL, "application/json"));

        let done = place.run.read(&op).await;
        assert_eq!(done["state"], "succeeded");
        let outcome = &done["outcome"];
        assert_eq!((&outcome["source"], &outcome["confirmed"]), (&json!("executor"), &json!(true)));
        assert_eq!((&outcome["provider_reference"], &outcome["response"]["status"]), (&json!("ch_1"), &json!(201)));
        assert_eq!(done["attempts"][0]["by"], "gateway");
        let records = app.audit().await;
        let of = |event: &str| records.iter().filter(|record| record["event"] == event).collect::<Vec<_>>();
        for event in ["approval.spent", "operation.claimed", "effect.sent", "effect.completed"] {
            let [record] = of(event)[..] else { panic!("{event}") };
            assert_eq!(record["actor"], json!({"kind": "executor", "id": "gateway"}));
            assert_eq!(record["correlation"], header("x-correlation-id"));
        }
    }

    async fn a_request_goes_only_where_an_admin_has_registered_it(app: App) {
        let provider = Provider::start().await;
        let place = Place::new(&app, provider.contract(json!({}))).await;
        let mut nowhere = provider.contract(json!({"name": "mail"}));
        nowhere.as_object_mut().unwrap().remove("destination");
        place.declare(nowhere).await;
        for name in ["ledger", "mail"] {
            let more = json!({"params": {"destination": name, "method": "POST", "path": "/charges"}});
            let refused = place.run.propose_as(&fresh_key(), place.proposal(more)).await.refused(422, "validation_failed");
            assert_eq!(refused.body["errors"][0]["pointer"], "/params/destination");
        }
    }

    async fn people_see_what_a_lost_answer_means_and_how_requests_go(app: App) {
        let provider = Provider::start().await;
        let place = Place::new(&app, provider.contract(json!({}))).await;
        let op = place.propose(json!({})).await;
        let guarantee = async || {
            let body = place.asha.get(&format!("operations/{}/review", id_of(&op))).await.ok(200).body;
            body["review"]["guarantee"].as_str().unwrap().to_owned()
        };
        let before = guarantee().await;
        assert!(before.contains("That it honours the key: never shown."), "{before}");
        assert!(before.contains(&format!("Counterfoil itself sends it, to http://{}.", provider.address)), "{before}");
        place.ada.post("providers/payments/check", json!({})).await.ok(200);
        let shown = guarantee().await;
        assert!(shown.contains("shown on 2026-12-01, which counts until 2026-12-31"), "{shown}");
        app.advance_s(60);
        assert_eq!(guarantee().await, shown, "it does not change while somebody reads it");

        for (reader, sees) in [(&place.asha, false), (&place.ada, true)] {
            let list = reader.get("/settings/providers").await.ok(200).text;
            assert!(list.contains("proven") && list.contains("go out"), "{list}");
            let page = reader.get("/settings/providers/payments").await.ok(200).text;
            assert_eq!(page.contains("never shown again"), sees);
            assert!(!page.contains("planted"));
        }
        let form = |path: &str, body: &str| {
            place.ada.call(Method::POST, path).raw("application/x-www-form-urlencoded", body.to_owned())
        };
        let refused = form("/settings/providers", "document=%7B%22name%22%3A%22x%22%7D").await;
        assert!(refused.status == 422 && refused.text.contains("Nothing was saved."), "{}", refused.text);
        form("/settings/providers/payments/check", "").await.ok(303);
        form("/settings/providers/payments/credential", "credential=fresh-one").await.ok(303);
        for _ in 0..3 {
            provider.answers(Answer::Failed(503));
            place.sent().await;
        }
        assert!(place.ada.get("/settings/providers").await.ok(200).text.contains("held until"));
    }

    async fn a_kind_of_ones_own_goes_through_the_gateway_if_it_says_what_is_sent(app: App) {
        let provider = Provider::start().await;
        let place = Place::new(&app, provider.contract(json!({}))).await;
        let kind = |params: Value| {
            let required: Vec<_> = params.as_object().unwrap().keys().cloned().collect();
            json!({
                "name": "acme.charge", "title": "Charge", "headline": "asks to charge at {target}",
                "schema": {"type": "object", "additionalProperties": false, "required": required, "properties": params},
                "target": "body", "verb": "pay", "consequence": "Charges {{ target }}", "rollback": "Refund it",
                "risk": "medium", "conditional": "never", "lease": "never", "resolver": "irreversible",
                "executor": "gateway", "provider": "payments",
            })
        };
        let text = json!({"type": "string"});
        let refused = place.ada.post("kinds", kind(json!({"amount": {"type": "integer"}}))).await;
        assert_eq!(refused.refused(422, "validation_failed").body["errors"][0]["pointer"], "/executor");
        place.ada.post("kinds", kind(json!({"method": text, "path": text}))).await.ok(201);
        let more = json!({"kind": "acme.charge", "params": {"method": "POST", "path": "/charges"}});
        let op = place.approved(more).await;
        assert_eq!(place.step().await, 1);
        assert_eq!(place.run.read(&op).await["state"], "succeeded");
        let more = json!({"kind": "acme.charge", "params": {"method": "POST", "path": "/v1%2f..%2fadmin"}});
        let op = place.approved(more).await;
        assert_eq!((place.step().await, place.circuit()), (0, CircuitState::Closed));
        assert_eq!(place.run.read(&op).await["state"], "approved");
    }

    async fn a_reply_proves_no_more_than_it_says(app: App) {
        let provider = Provider::start().await;
        let mut contract = provider.contract(json!({}));
        contract["destination"]["timeout_s"] = json!(1);
        let place = Place::new(&app, contract).await;
        for (answer, state) in [
            (Answer::Plain, "succeeded"),
            (Answer::Queued, "accepted"),
            (Answer::Refused(403), "failed"),
            (Answer::Refused(409), "conflicted"),
            (Answer::Refused(412), "conflicted"),
            (Answer::Lost, "unknown"),
            (Answer::Plain, "succeeded"),
            (Answer::Failed(500), "unknown"),
            (Answer::Failed(502), "unknown"),
            (Answer::Plain, "succeeded"),
            (Answer::Elsewhere, "unknown"),
            (Answer::Garbage, "unknown"),
            (Answer::Plain, "succeeded"),
            (Answer::Endless, "unknown"),
        ] {
            provider.answers(answer);
            let op = place.sent().await;
            assert_eq!(op["state"], state, "{answer:?}: {op}");
            if state == "conflicted" {
                assert_eq!(op["outcome"]["response"]["body"], json!({"error": "no"}));
            }
            if state == "unknown" {
                assert_eq!(op["safe_new_key"], false);
            }
        }
        assert_eq!(provider.strays(), 0, "a redirect is not followed");
        let keys: std::collections::HashSet<_> = provider.effects().into_iter().map(|effect| effect.key).collect();
        assert_eq!(keys.len(), provider.effects().len());
    }

    async fn a_hostile_destination_is_cut_off_and_proves_nothing(app: App) {
        let place = Place::new(&app, Provider::start().await.contract(json!({}))).await;
        let head = |more: &str| format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{more}\r\n").into_bytes();
        let done = r#"{"id": "ch_9"}"#;
        let whole = [head(&format!("content-length: {}\r\n", done.len())), done.into()].concat();
        let zipped = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3][..], &[0; 400]].concat();
        for (script, state) in [
            (Script::HangUp, "unknown"),
            (Script::Say(b"\0\xff\xfe nonsense\r\n\r\n".to_vec()), "unknown"),
            (Script::Say(b"HTTP/1.1 99999 OK\r\n\r\n".to_vec()), "unknown"),
            (Script::Say([head("content-length: 500\r\n"), done.into()].concat()), "unknown"),
            (Script::Say([whole.clone(), whole.clone()].concat()), "succeeded"),
            (Script::Say([head("content-encoding: gzip\r\ncontent-length: 410\r\n"), zipped].concat()), "unknown"),
            (Script::Drip(head("content-length: 1000\r\n")), "unknown"),
            (Script::Drip(b"HTTP/1.1 200 OK\r\nx-slow: ".to_vec()), "unknown"),
            (Script::Pour(head("content-length: 10000000000\r\n")), "unknown"),
            (Script::Pour(b"HTTP/1.1 200 OK\r\nx-long: ".to_vec()), "unknown"),
            (Script::Say(whole), "succeeded"),
        ] {
            let machine = Machine::start(script.clone()).await;
            let mut contract = Provider::start().await.contract(json!({}));
            contract["destination"]["base_url"] = json!(format!("http://{}", machine.address));
            contract["destination"]["timeout_s"] = json!(1);
            place.declare(contract).await;
            let op = place.sent().await;
            assert_eq!(op["state"], state, "{script:?}: {op}");
            assert_eq!(machine.heard().len(), 1, "{script:?}");
            let page = place.asha.get(&format!("/operations/{}", id_of(&op))).await;
            assert_eq!(page.status, 200);
        }
    }

    async fn a_destination_out_of_reach_uses_nothing_up(app: App) {
        let provider = Provider::start().await;
        let mut contract = provider.contract(json!({}));
        let free = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
        contract["destination"]["base_url"] = json!(format!("http://{free}"));
        let place = Place::new(&app, contract.clone()).await;
        let op = place.approved(json!({})).await;
        for _ in 0..3 {
            assert_eq!((place.circuit(), place.step().await), (CircuitState::Closed, 0));
            app.advance_s(5);
        }
        assert!(place.circuit_words().contains("no connection was made"), "{}", place.circuit_words());
        for (member, value, words) in [
            ("base_url", json!(format!("http://localhost:{}", free.port())), "not a public address"),
            ("credential_header", json!("X-Other"), "no connection"),
        ] {
            let mut contract = contract.clone();
            contract["destination"][member] = value;
            if words.contains("public") {
                contract["destination"]["allow_private"] = json!([]);
            }
            place.declare(contract).await;
            assert_eq!(place.step().await, 0);
            assert!(place.circuit_words().contains(words), "{}", place.circuit_words());
            app.advance_s(61);
        }
        let waiting = place.run.read(&op).await;
        assert_eq!((&waiting["state"], &waiting["approval"]["spent_at"]), (&json!("approved"), &Value::Null));
        place.declare(provider.contract(json!({}))).await;
        assert_eq!(place.step().await, 1);
        assert_eq!(place.run.read(&op).await["state"], "succeeded");
        assert_eq!((provider.effects().len(), place.circuit()), (1, CircuitState::Closed));
        assert_eq!(app.events().await.iter().filter(|event| *event == "claim.refused").count(), 0);
    }

    async fn an_open_circuit_claims_nothing_and_one_request_finds_out(app: App) {
        let provider = Provider::start().await;
        let place = Place::new(&app, provider.contract(json!({}))).await;
        provider.answers(Answer::Failed(503));
        for _ in 0..3 {
            assert_eq!(place.sent().await["state"], "unknown");
        }
        assert!(matches!(place.circuit(), CircuitState::Open { .. }));
        let waiting = [place.approved(json!({})).await, place.approved(json!({})).await];
        assert_eq!(place.step().await, 0);
        app.advance_s(61);
        assert_eq!(place.circuit(), CircuitState::HalfOpen);
        provider.answers(Answer::Plain);
        assert_eq!(place.step().await, 1, "one at a time");
        assert_eq!((place.circuit(), place.step().await), (CircuitState::Closed, 1));
        for op in waiting {
            assert_eq!(place.run.read(&op).await["state"], "succeeded");
        }
    }

    async fn what_may_not_be_sent_any_more_is_not_sent(app: App) {
        let provider = Provider::start().await;
        let place = Place::new(&app, provider.contract(json!({}))).await;
        let [late, withdrawn, held] =
            [place.approved(json!({})).await, place.approved(json!({})).await, place.approved(json!({})).await];
        place.ada.post("pause", json!({"reason": "maintenance"})).await.ok(200);
        assert_eq!(place.step().await, 0);
        place.ada.call(Method::DELETE, "pause").await;
        place.asha.call(Method::DELETE, &format!("operations/{}/decisions", id_of(&withdrawn))).await.ok(200);
        place.run.post(&format!("operations/{}/cancel", id_of(&held)), json!({"reason": "no longer"})).await.ok(200);
        app.advance_s(601);
        assert_eq!(place.step().await, 0);
        assert_eq!(place.run.read(&late).await["state"], "expired");
        assert!(provider.effects().is_empty());
    }

    async fn a_lost_reply_is_followed_by_the_same_key_only_where_a_guarantee_is_proven(app: App) {
        let provider = Provider::start().await;
        let mut contract = provider.contract(json!({"lookup": "none"}));
        contract["destination"]["timeout_s"] = json!(1);
        let place = Place::new(&app, contract).await;
        provider.answers(Answer::Lost);
        let op = place.sent().await;
        assert_eq!(op["state"], "unknown");
        provider.answers(Answer::Plain);
        assert_eq!(place.step().await, 0, "nothing is proven");

        let checked = place.ada.post("providers/payments/check", json!({})).await.ok(200);
        assert_eq!(checked.body["checks"][0]["passed"], true, "{}", checked.text);
        app.advance_s(5);
        assert_eq!(place.step().await, 1);
        let done = place.run.read(&op).await;
        assert_eq!((&done["state"], done["attempts"].as_array().unwrap().len()), (&json!("succeeded"), 2));
        let made: Vec<_> = provider.effects().into_iter().filter(|effect| effect.key == id_of(&op)).collect();
        assert_eq!(made.len(), 1);
        assert_eq!(done["outcome"]["provider_reference"], made[0].id);
        let events = app.events().await;
        for event in ["effect.sent", "effect.outcome_unknown", "attempt.licensed", "effect.resent", "effect.completed"] {
            assert_eq!(events.iter().filter(|known| *known == event).count(), 1, "{event}");
        }
    }

    async fn a_name_that_leads_elsewhere_later_is_not_followed(app: App) {
        let provider = Provider::start().await;
        let trap = Machine::start(Script::HangUp).await;
        let mut contract = provider.contract(json!({}));
        contract["destination"]["base_url"] = json!(format!("http://api.example.test:{}", provider.address.port()));
        let place = Place::new(&app, contract).await;
        let asked = Arc::new(AtomicUsize::new(0));
        // The second answer is another loopback address, which is not listed.
        let elsewhere = SocketAddr::new(Ipv4Addr::new(127, 0, 0, 2).into(), trap.address.port());
        app.desk.http.resolve_with(Turning { answers: vec![provider.address, elsewhere], asked: asked.clone() });
        assert_eq!(place.sent().await["state"], "succeeded");
        assert_eq!(asked.load(Ordering::Relaxed), 1, "what was checked is what was connected to");
        let op = place.approved(json!({})).await;
        assert_eq!(place.step().await, 0);
        assert!(place.circuit_words().contains("not a public address"));
        assert_eq!(place.run.read(&op).await["state"], "approved");
        assert!(trap.heard().is_empty());
    }

    async fn a_credential_that_comes_back_is_not_kept(app: App) {
        let provider = Provider::start().await;
        let place = Place::new(&app, provider.contract(json!({}))).await;
        provider.answers(Answer::Echo);
        let op = place.sent().await;
        assert_eq!(op["state"], "succeeded");
        assert!(provider.effects()[0].headers["authorization"] == CREDENTIAL);
        let page = place.asha.get(&format!("/operations/{}", id_of(&op))).await.text;
        for text in [op.to_string(), page, app.export().await] {
            assert!(!text.contains("planted"), "{text}");
        }
        assert!(op["outcome"]["response"]["body"].to_string().contains("[credential]"));
    }

    async fn two_nodes_send_what_was_approved_once(app: App) {
        let provider = Provider::start().await;
        let place = Place::new(&app, provider.contract(json!({}))).await;
        provider.behave(|habits| habits.honours_keys = false);
        let mut ops = Vec::new();
        for _ in 0..20 {
            ops.push(place.approved(json!({})).await);
        }
        let other = app.node(&[]).await;
        let drain = async |app: &App| {
            let mut sent = 0;
            while provider.effects().len() < 20 {
                sent += gateway::step(&app.desk).await.unwrap();
                // What the other node was faster with is due again later.
                app.desk.gateway.forget("payments");
            }
            sent
        };
        let (here, there) = tokio::join!(drain(&app), drain(&other));
        assert_eq!((here + there, provider.effects().len()), (20, 20));
        for op in ops {
            assert_eq!(place.run.read(&op).await["state"], "succeeded");
        }
    }
}

// Processes: the provider answers on other threads while this one waits for a command to end.

/// Kills the server at one point of a request's way. What the provider keeps by its key is asked for after the restart,
/// and sent again only where it is not there.
async fn a_kill_leaves_one_effect(database: Option<String>, point: &str) {
    let provider = Provider::start().await;
    // What was sent before the kill is in doubt once its claim has run out.
    let short = ("COUNTERFOIL_CLAIM_TTL_S", "5");
    let mut desk = match database {
        Some(url) => process::Place::new(&[short, ("COUNTERFOIL_DATABASE_URL", &url)]),
        None => process::Place::new(&[short]),
    };
    let marker = desk.folder().join("reached");
    desk.set("COUNTERFOIL_FAULT", &format!("{point}:{}", marker.display()));
    let mut server = desk.serve().await;
    let cookie = desk.person("asha", "approver", "approvers").await;
    desk.person("omar", "viewer", "none").await;
    let agent = desk.cli(&["agent", "add", "payer", "--owner", "omar"], "");
    let run = desk.start_run(&agent).await;
    let mut contract = provider.contract(json!({"max_in_flight_s": 1}));
    contract["destination"]["timeout_s"] = json!(1);
    desk.cli(&["provider", "add", "-"], &contract.to_string());
    desk.cli(&["provider", "credential", "payments"], CREDENTIAL);
    assert_eq!(desk.cli(&["provider", "check", "payments"], "").matches("\tpassed\t").count(), 2);

    let params = json!({"destination": "payments", "method": "POST", "path": "/charges", "body": {"amount": 5}});
    let body = json!({"kind": "http.request", "target": "charge/c1", "params": params});
    let call = desk.post("operations", &run, &body).header("idempotency-key", fresh_key());
    let op = call.send().await.unwrap().json::<Value>().await.unwrap()["operation"].clone();
    let path = format!("operations/{}", id_of(&op));
    let view = desk.look(&path, &cookie).send().await.unwrap().json::<Value>().await.unwrap();
    let vote = json!({
        "decision": "approve", "fingerprint": op["fingerprint"], "review_digest": view["review_digest"],
        "confirm_target": "charge/c1",
    });
    assert_eq!(desk.send(&format!("{path}/decisions"), &cookie, &vote).send().await.unwrap().status(), 200);
    process::reached(&marker).await;
    server.signal("KILL");
    server.wait();
    desk.unset("COUNTERFOIL_FAULT");
    let _server = desk.serve().await;
    let mut known = String::new();
    loop {
        let read = desk.get(&format!("{path}?wait=10"), &run).header("if-none-match", &known).send().await.unwrap();
        known = read.headers()["etag"].to_str().unwrap().to_owned();
        let Ok(now) = read.json::<Value>().await else { continue };
        assert_ne!(now["operation"]["state"], "needs_review", "{point}: {now}");
        if now["operation"]["state"] == "succeeded" {
            break;
        }
    }
    let made = provider.effects().into_iter().filter(|effect| effect.key == id_of(&op)).count();
    assert_eq!(made, 1, "{point}");
    desk.log_verifies();
}

const POINTS: [&str; 4] = ["gateway_sent", "gateway_before_byte", "gateway_after_reply", "before_outcome"];

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_leaves_one_effect_on_sqlite() {
    join_all(POINTS.map(|point| a_kill_leaves_one_effect(None, point))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_leaves_one_effect_on_postgres() {
    let each = async |point| a_kill_leaves_one_effect(Some(postgres::fresh_database().await), point).await;
    join_all(POINTS.map(each)).await;
}
