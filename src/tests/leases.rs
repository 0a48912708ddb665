//! Leases: one holder at a time, tokens that only rise, and writers that come back too late.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use axum::http::Method;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{
    App, Call, Person, Program, Reply, fresh_key, id_of, on_both_databases, postgres, process::Place, succeeded,
};

const RESOURCE: &str = "pointer/prod-eu";

impl Program {
    fn acquire(&self, resource: &str, ttl_s: i64) -> Call {
        self.post("leases", json!({"resource": resource, "ttl_s": ttl_s}))
    }

    /// A lease newly acquired, as its document.
    async fn lease(&self, resource: &str) -> Value {
        self.acquire(resource, 30).await.ok(201).body["lease"].clone()
    }

    fn renew(&self, lease: &Value, progress: &str) -> Call {
        self.post(&format!("leases/{}/renew", id_of(lease)), json!({"ttl_s": 30, "progress": progress}))
    }

    async fn release_lease(&self, lease: &Value) -> Reply {
        self.call(Method::DELETE, &format!("leases/{}", id_of(lease))).await
    }

    fn check_fence(&self, resource: &str, token: &Value) -> Call {
        self.post("fences/check", json!({"resource": resource, "fencing_token": token}))
    }

    /// Claims with a lease.
    fn claim_under(&self, operation: &Value, lease: &Value) -> Call {
        let lease = json!({"id": lease["id"], "fencing_token": lease["fencing_token"]});
        let body = json!({"fingerprint": operation["fingerprint"], "lease": lease});
        self.post(&format!("operations/{}/claim", id_of(operation)), body)
    }

    /// `sent` with a lease.
    fn send_under(&self, operation: &Value, claim: &Value, lease: &Value) -> Call {
        let lease = json!({"id": lease["id"], "fencing_token": lease["fencing_token"]});
        self.report(operation, "sent", claim, json!({"lease": lease}))
    }
}

fn token(lease: &Value) -> i64 {
    lease["fencing_token"].as_i64().unwrap()
}

/// A kind that is carried out under a lease of its target.
async fn leased_kind(app: &App) {
    let kind = json!({
        "name": "pointer.move", "title": "Move pointer", "headline": "asks to move {name} to {to}", "target": "pointer/{name}",
        "schema": {"type": "object", "required": ["name", "to"], "additionalProperties": false, "properties": {
            "name": {"type": "string", "description": "Pointer", "minLength": 1, "maxLength": 100},
            "to": {"type": "string", "description": "Where it points", "minLength": 1, "maxLength": 100}}},
        "verb": "update", "consequence": "Moves {{ params.name }} to {{ params.to }}",
        "rollback": "Move it back", "risk": "low", "conditional": "never", "lease": "required",
    });
    app.person("ada", "admin", "").await.post("kinds", kind).await.ok(201);
}

/// A move of the pointer, proposed and approved.
async fn approved_move(approver: &Person, run: &Program, to: &str) -> Value {
    let proposal = run.propose("pointer.move", RESOURCE, json!({"name": "prod-eu", "to": to}));
    let operation = proposal.await.ok(201).operation().clone();
    approver.approve(id_of(&operation)).await.ok(200);
    operation
}

/// A hundred rounds of twenty contenders at two nodes for the round's resource; `then` ends what the winner got.
async fn contend(app: &App, resource: impl Fn(usize) -> String, then: impl AsyncFn(&App, &Program, &Value)) {
    app.world().await;
    let agent = app.agent("fleet", "omar").await;
    let other = app.node(&[]).await;
    let mut contenders = Vec::new();
    for i in 0..20 {
        let run = agent.run(json!({"label": format!("run {i}")})).await;
        contenders.push(if i % 2 == 0 { run } else { run.at(&other) });
    }
    let mut last = HashMap::new();
    for round in 0..100 {
        let resource = resource(round);
        let calls = contenders.iter().map(|run| {
            let call = run.acquire(&resource, 30).into_future();
            let run = run.clone();
            tokio::spawn(async move { (run, call.await) })
        });
        let replies = join_all(calls).await.into_iter().map(Result::unwrap);
        let (won, lost): (Vec<_>, Vec<_>) = replies.partition(|(_, reply)| reply.status == 201);
        assert_eq!((won.len(), lost.len()), (1, 19), "round {round}");
        for (_, reply) in lost {
            reply.refused(409, "lease_held");
        }
        let (winner, reply) = &won[0];
        let lease = &reply.body["lease"];
        let before = last.insert(resource, token(lease)).unwrap_or(0);
        assert!(token(lease) > before, "round {round}: {lease}");
        then(app, winner, lease).await;
    }
}

on_both_databases! {
    async fn a_lease_has_one_holder_who_may_ask_again(app: App) {
        let (_, _, run) = app.world().await;
        let other = app.agent("other", "omar").await.run(json!({"label": "other run"})).await;
        let lease = run.lease(RESOURCE).await;
        assert_eq!((&lease["resource"], token(&lease)), (&json!(RESOURCE), 1));
        assert_eq!(lease["expires_at"], "2026-12-01T00:00:30.000Z");
        app.advance_s(10);
        let again = run.acquire(RESOURCE, 300).await.ok(200).body["lease"].clone();
        assert_eq!((&again["id"], &again["expires_at"]), (&lease["id"], &lease["expires_at"]));
        let held = other.acquire(RESOURCE, 30).await.refused(409, "lease_held");
        assert_eq!((&held.body["holder"], &held.body["expires_at"]), (&json!(run.id), &lease["expires_at"]));
        assert_eq!((&held.body["retry"]["after_s"], &held.body["resource"]), (&json!(20), &json!(RESOURCE)));
        other.lease("pointer/prod-us").await;

        run.release_lease(&lease).await.ok(200);
        assert_eq!(run.release_lease(&lease).await.ok(200).body["lease"]["state"], "released");
        other.release_lease(&lease).await.refused(404, "not_found");
        assert_eq!(token(&other.lease(RESOURCE).await), 2);
        let leases: Vec<_> = app.events().await.into_iter().filter(|event| event.starts_with("lease.")).collect();
        assert_eq!(leases, ["lease.acquired", "lease.acquired", "lease.released", "lease.acquired"]);
    }

    // Case 21
    async fn an_expired_lease_goes_to_one_of_twenty_contenders_under_a_higher_token(app: App) {
        contend(&app, |_| "pointer/expired".to_owned(), async |app, _, _| app.advance_s(30)).await;
    }

    // Case 21
    async fn a_released_lease_goes_to_one_of_twenty_contenders_under_a_higher_token(app: App) {
        let release = async |_: &App, winner: &Program, lease: &Value| drop(winner.release_lease(lease).await.ok(200));
        contend(&app, |_| "pointer/released".to_owned(), release).await;
    }

    // Case 21
    async fn a_resource_never_leased_goes_to_one_of_twenty_contenders(app: App) {
        contend(&app, |round| format!("pointer/{round}"), async |_, _, _| {}).await;
    }

    // Case 22, promise 9
    async fn a_holder_that_comes_back_late_changes_nothing_of_its_successors(app: App) {
        let (asha, _, _) = app.world().await;
        leased_kind(&app).await;
        let agent = app.agent("mover", "omar").await;
        let (a, b) = (agent.run(json!({"label": "mover"})).await, agent.run(json!({"label": "mover"})).await);
        for _ in 0..6 {
            let lease = a.lease(RESOURCE).await;
            a.release_lease(&lease).await.ok(200);
        }
        let operation = approved_move(&asha, &a, "v2").await;
        let (held_by_a, first) = {
            let lease = a.lease(RESOURCE).await;
            a.claim(&operation).await.refused(428, "precondition_required");
            let claim = a.claim_under(&operation, &lease).await.ok(200).body["claim"].clone();
            assert_eq!((token(&lease), &claim["claim_fence"]), (7, &json!(1)));
            assert_eq!(claim["lease"], json!({"id": lease["id"], "fencing_token": 7}));
            (lease, claim)
        };

        app.advance_s(61);
        let held_by_b = b.lease(RESOURCE).await;
        let second = b.claim_under(&operation, &held_by_b).await.ok(200).body["claim"].clone();
        assert_eq!((token(&held_by_b), &second["claim_fence"]), (8, &json!(2)));
        b.report(&operation, "sent", &second, json!({})).await.refused(428, "precondition_required");
        b.send_under(&operation, &second, &held_by_b).await.ok(200);
        let done = b.report(&operation, "outcome", &second, succeeded("P-1")).await.ok(200).operation().clone();

        let other = approved_move(&asha, &a, "v3").await;
        let sink = app.executor("sink", &["pointer.*"]).await;
        a.renew(&held_by_a, "awake").await.refused(409, "lease_lost");
        a.release_lease(&held_by_a).await.refused(409, "lease_lost");
        a.send_under(&operation, &first, &held_by_a).await.refused(409, "stale_fence");
        let late = a.report(&operation, "outcome", &first, succeeded("P-2")).await.refused(409, "stale_fence");
        assert!(late.body["evidence"].as_str().unwrap().starts_with("ev_"));
        a.claim_under(&other, &held_by_a).await.refused(409, "stale_fence");
        let stale = sink.check_fence(RESOURCE, &json!(7)).await.refused(409, "stale_fence");
        assert_eq!((&stale.body["fencing_token"], &stale.body["highest"]), (&json!(7), &json!(8)));

        assert_eq!(app.events().await.iter().filter(|event| *event == "fence.rejected").count(), 4);
        assert_eq!(b.acquire(RESOURCE, 30).await.ok(200).body["lease"]["id"], held_by_b["id"]);
        sink.check_fence(RESOURCE, &json!(8)).await.ok(200);
        let now = b.read(&operation).await;
        assert_eq!((&now["state"], &now["outcome"]), (&json!("succeeded"), &done["outcome"]));
        assert_eq!(b.claim_under(&other, &held_by_b).await.ok(200).body["claim"]["lease"]["fencing_token"], 8);
        let records = app.audit().await;
        let claimed = records.iter().find(|record| record["event"] == "operation.claimed").unwrap();
        assert!(claimed["reason"].as_str().unwrap().ends_with("with fencing token 7"), "{claimed}");
    }

    // Case 23
    async fn tokens_never_come_back_and_renewals_never_create(app: App) {
        let (_, _, run) = app.world().await;
        let lease = run.lease(RESOURCE).await;
        app.advance_s(20);
        let renewed = run.renew(&lease, "half").await.ok(200).body["lease"].clone();
        assert_eq!((token(&renewed), &renewed["progress"]), (token(&lease), &json!("half")));
        app.advance_s(30);
        run.renew(&lease, "more").await.refused(409, "lease_lost");
        let retaken = run.lease(RESOURCE).await;
        assert!(token(&retaken) > token(&lease) && retaken["id"] != lease["id"]);
        run.renew(&lease, "more").await.refused(409, "lease_lost");
        run.release_lease(&retaken).await.ok(200);
        run.renew(&retaken, "more").await.refused(409, "lease_lost");
        run.renew(&json!({"id": "ls_00000000000000000000000000"}), "more").await.refused(404, "not_found");
        run.renew(&json!({"id": "ls_1"}), "more").await.refused(404, "not_found");

        let mut last = token(&retaken);
        counterfoil::server::worker::tidy(&app.desk).await.unwrap();
        app.advance_s(31 * 24 * 3600);
        assert!(counterfoil::server::worker::tidy(&app.desk).await.unwrap() >= 2, "both leases are forgotten");
        let agent = app.agent("next", "omar").await;
        let run = agent.run(json!({})).await;
        let lease = run.lease(RESOURCE).await;
        assert!(token(&lease) > last);
        last = token(&lease);
        let restarted = app.restart(&[]).await;
        run.at(&restarted).release_lease(&lease).await.ok(200);
        assert!(token(&run.at(&restarted).lease(RESOURCE).await) > last);
    }

    // Case 23
    async fn a_token_that_is_none_is_refused_with_its_place(app: App) {
        let (asha, _, run) = app.world().await;
        leased_kind(&app).await;
        let lease = run.lease(RESOURCE).await;
        let operation = approved_move(&asha, &run, "v2").await;
        let sink = app.executor("sink", &["*"]).await;
        for (token, code) in [
            ("0", "validation_failed"),
            ("-1", "validation_failed"),
            ("\"7\"", "validation_failed"),
            ("null", "validation_failed"),
            ("true", "validation_failed"),
            ("2", "validation_failed"),
            ("7.5", "number_out_of_range"),
            ("9223372036854775808", "number_out_of_range"),
        ] {
            let check = format!(r#"{{"resource": "{RESOURCE}", "fencing_token": {token}}}"#);
            let reply = sink.call(Method::POST, "fences/check").raw("application/json", check).await.refused(422, code);
            assert_eq!(reply.body["errors"][0]["pointer"], "/fencing_token", "{token}: {}", reply.text);
            let (id, fingerprint) = (id_of(&lease), operation["fingerprint"].as_str().unwrap());
            let claim = format!(r#"{{"fingerprint": "{fingerprint}", "lease": {{"id": "{id}", "fencing_token": {token}}}}}"#);
            let path = format!("operations/{}/claim", id_of(&operation));
            let reply = run.call(Method::POST, &path).raw("application/json", claim).await.refused(422, code);
            assert_eq!(reply.body["errors"][0]["pointer"], "/lease/fencing_token", "{token}: {}", reply.text);
        }
        sink.post("fences/check", json!({"resource": RESOURCE})).await.refused(422, "validation_failed");
        sink.check_fence("no resource", &json!(1)).await.refused(422, "validation_failed");
        for ttl in [json!(0), json!(301), json!("30"), json!(null)] {
            run.post("leases", json!({"resource": RESOURCE, "ttl_s": ttl})).await.refused(422, "validation_failed");
        }
        assert_eq!(run.read(&operation).await["state"], "approved");
        run.claim_under(&operation, &lease).await.ok(200);
    }

    async fn a_lease_that_is_lost_carries_no_claim(app: App) {
        let (asha, _, run) = app.world().await;
        leased_kind(&app).await;
        let other = app.agent("other", "omar").await.run(json!({})).await;
        let executor = app.executor("pointers", &["pointer.*"]).await;
        let operation = approved_move(&asha, &run, "v2").await;
        let theirs = other.lease(RESOURCE).await;
        run.claim_under(&operation, &theirs).await.refused(409, "lease_lost");
        executor.claim_under(&operation, &theirs).await.refused(409, "lease_lost");
        other.release_lease(&theirs).await.ok(200);
        let lease = run.lease(RESOURCE).await;
        let elsewhere = run.lease("pointer/prod-us").await;
        run.claim_under(&operation, &json!({"id": elsewhere["id"], "fencing_token": lease["fencing_token"]}))
            .await
            .refused(409, "lease_lost");
        app.advance_s(30);
        run.claim_under(&operation, &lease).await.refused(409, "lease_lost");
        assert_eq!(run.read(&operation).await["approval"]["spent_at"], json!(null));
        let lease = run.lease(RESOURCE).await;
        let claim = executor.claim_under(&operation, &lease).await.ok(200).body["claim"].clone();
        run.release_lease(&lease).await.ok(200);
        executor.send_under(&operation, &claim, &lease).await.refused(409, "lease_lost");
        let lease = run.lease(RESOURCE).await;
        let sent = executor.send_under(&operation, &claim, &lease).await.ok(200);
        assert_eq!(sent.operation()["claim"]["lease"]["fencing_token"], lease["fencing_token"]);
    }

    async fn an_operator_breaks_a_lease_and_its_token_with_it(app: App) {
        let (asha, _, run) = app.world().await;
        let operator = app.person("olga", "operator", "").await;
        let lease = run.lease(RESOURCE).await;
        let path = format!("leases/{}/force-release", id_of(&lease));
        let why = json!({"reason": "the run hangs"});
        asha.post(&path, why.clone()).await.refused(403, "forbidden");
        run.post(&path, why.clone()).await.refused(403, "humans_only");
        operator.post(&path, json!({"reason": " "})).await.refused(422, "validation_failed");
        let broken = operator.post(&path, why.clone()).await.ok(200).body["lease"].clone();
        assert_eq!((&broken["state"], &broken["end_reason"]), (&json!("force_released"), &json!("the run hangs")));
        operator.post(&path, why.clone()).await.ok(200);
        run.check_fence(RESOURCE, &lease["fencing_token"]).await.refused(409, "stale_fence");
        run.renew(&lease, "on").await.refused(409, "lease_lost");
        let next = run.lease(RESOURCE).await;
        assert_eq!(token(&next), token(&lease) + 2);
        operator.post("leases/ls_00000000000000000000000000/force-release", why).await.refused(404, "not_found");
        let record = app.audit().await.into_iter().find(|record| record["event"] == "lease.force_released").unwrap();
        assert_eq!((&record["actor"]["id"], &record["fence"]), (&json!(operator.id), &json!(2)));
    }

    async fn a_lease_ends_with_its_run_and_with_its_progress(app: App) {
        let (asha, owner, run) = app.world().await;
        let agent = app.agent("other", "omar").await;
        let other = agent.run(json!({"expires_in_s": 20})).await;
        run.lease(RESOURCE).await;
        owner.post(&format!("runs/{}/stop", run.id), json!({"reason": "it loops"})).await.ok(200);
        run.acquire(RESOURCE, 30).await.refused(403, "run_stopped");
        let lease = other.lease(RESOURCE).await;
        assert_eq!(lease["expires_at"], "2026-12-01T00:00:20.000Z", "no longer than its run");
        app.advance_s(20);
        let third = agent.run(json!({})).await;
        let lease = third.acquire(RESOURCE, 300).await.ok(201).body["lease"].clone();
        app.advance_s(299);
        third.post(&format!("leases/{}/renew", id_of(&lease)), json!({"ttl_s": 300})).await.ok(200);
        app.advance_s(1);
        third.post(&format!("leases/{}/renew", id_of(&lease)), json!({"ttl_s": 300})).await.refused(409, "lease_lost");
        assert!(asha.get("leases").await.ok(200).body["leases"].as_array().unwrap().is_empty());
        assert_eq!(token(&third.lease(RESOURCE).await), 4);
    }

    async fn people_see_all_leases_and_programs_their_own(app: App) {
        let (asha, _, run) = app.world().await;
        let other = app.agent("other", "omar").await.run(json!({"label": "nightly"})).await;
        run.lease(RESOURCE).await;
        let theirs = other.lease("pointer/prod-us").await;
        app.advance_s(7);
        let listed = |reply: Reply| reply.ok(200).body["leases"].as_array().unwrap().clone();
        let all = listed(asha.get("leases").await);
        assert_eq!(all.len(), 2);
        assert_eq!((&all[0]["id"], &all[0]["age_s"]), (&theirs["id"], &json!(7)));
        assert_eq!((&all[0]["agent_name"], &all[0]["run_label"]), (&json!("other"), &json!("nightly")));
        assert_eq!(listed(run.get("leases").await)[0]["run"], run.id);
        assert_eq!(listed(run.get("leases").await).len(), 1);
        assert_eq!(listed(asha.get(&format!("leases?resource={RESOURCE}")).await).len(), 1);
        app.executor("x", &["*"]).await.get("leases").await.refused(403, "forbidden");
        asha.post("leases", json!({"resource": RESOURCE})).await.refused(403, "forbidden");
        app.get("leases").await.refused(401, "unauthenticated");
    }
}

/// The answer of a call to a process, as status and document.
async fn answer(call: reqwest::RequestBuilder) -> (u16, Value) {
    let reply = call.send().await.unwrap();
    (reply.status().as_u16(), reply.json().await.unwrap())
}

// Case 21
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contenders_at_two_processes_find_one_winner_each_round() {
    let database = postgres::fresh_database().await;
    let key = std::env::temp_dir().join(format!("counterfoil-{}.key", fresh_key())).display().to_string();
    let settings = [("COUNTERFOIL_DATABASE_URL", database.as_str()), ("COUNTERFOIL_AUDIT_KEY_FILE", &key)];
    let (one, two) = (Place::new(&settings), Place::new(&settings));
    let (_first, _second) = (one.serve().await, two.serve().await);
    one.person("omar", "viewer", "none").await;
    let agent = one.cli(&["agent", "add", "fleet", "--owner", "omar"], "");
    let runs = join_all((0..20).map(|_| one.start_run(&agent))).await;
    let contend = || async {
        let body = json!({"resource": RESOURCE, "ttl_s": 1});
        let calls = runs.iter().enumerate().map(|(i, run)| {
            let place = if i % 2 == 0 { &one } else { &two };
            answer(place.post("leases", run, &body))
        });
        let replies = join_all(calls).await;
        assert!(
            replies.iter().all(|(status, reply)| *status == 201 || reply["code"] == "lease_held" || *status == 200)
        );
        let won = replies.into_iter().enumerate().filter(|(_, (status, _))| *status == 201);
        won.map(|(i, (_, reply))| (i, reply["lease"].clone())).collect::<Vec<_>>()
    };
    let mut last = 0;
    for round in 0..20 {
        let start = Instant::now();
        let winners = loop {
            let winners = contend().await;
            if !winners.is_empty() {
                break winners;
            }
            assert!(start.elapsed() < Duration::from_secs(30), "the lease expires after a second");
        };
        assert_eq!(winners.len(), 1, "round {round}");
        let (winner, lease) = &winners[0];
        assert!(token(lease) > last, "round {round}");
        last = token(lease);
        if round % 4 != 0 {
            let url = format!("{}/api/v1/leases/{}", two.url, id_of(lease));
            two.client.delete(url).bearer_auth(&runs[*winner]).send().await.unwrap();
        }
    }
}

// Case 23
#[tokio::test]
async fn after_a_restore_no_token_comes_back_and_none_that_was_handed_out_is_current() {
    let old = Place::new(&[]);
    let server = old.serve().await;
    old.person("omar", "viewer", "none").await;
    let agent = old.cli(&["agent", "add", "mover", "--owner", "omar"], "");
    let run = old.start_run(&agent).await;
    let lease = async |place: &Place, resource: &str| {
        let (status, reply) = answer(place.post("leases", &run, &json!({"resource": resource}))).await;
        assert_eq!(status, 201, "{reply}");
        reply["lease"].clone()
    };
    let release = async |place: &Place, lease: &Value| {
        let url = format!("{}/api/v1/leases/{}", place.url, id_of(lease));
        assert_eq!(place.client.delete(url).bearer_auth(&run).send().await.unwrap().status(), 200);
    };
    let held = lease(&old, RESOURCE).await;
    let copy = old.folder().join("copy.db").display().to_string();
    old.cli(&["backup", &copy], "");
    let mut handed_out = Vec::new();
    release(&old, &held).await;
    for resource in [RESOURCE, "pointer/first-leased-after-the-backup"] {
        let lease = lease(&old, resource).await;
        release(&old, &lease).await;
        handed_out.push((resource, token(&lease)));
    }
    drop(server);

    let mut restored = Place::new(&[]);
    restored.set("COUNTERFOIL_AUDIT_KEY_FILE", &old.folder().join("audit.key").display().to_string());
    restored.cli(&["restore", &copy], "");
    let _server = restored.serve().await;
    let renew = restored.post(&format!("leases/{}/renew", id_of(&held)), &run, &json!({"progress": "on"}));
    assert_eq!(answer(renew).await.1["code"], "lease_lost");
    for (resource, old_token) in handed_out {
        let check = json!({"resource": resource, "fencing_token": old_token});
        assert_eq!(answer(restored.post("fences/check", &run, &check)).await.1["code"], "stale_fence");
        assert!(token(&lease(&restored, resource).await) > old_token);
    }
}

// Case 23
#[tokio::test]
async fn a_postgres_database_that_was_brought_back_is_taken_over_before_it_hands_out_tokens() {
    let database = postgres::fresh_database().await;
    let place = Place::new(&[("COUNTERFOIL_DATABASE_URL", &database)]);
    let server = place.serve().await;
    place.person("omar", "viewer", "none").await;
    let run = place.start_run(&place.cli(&["agent", "add", "mover", "--owner", "omar"], "")).await;
    let held = answer(place.post("leases", &run, &json!({"resource": RESOURCE}))).await.1["lease"].clone();
    drop(server);
    place.cli(&["restore"], "");
    let _server = place.serve().await;
    let (status, reply) = answer(place.post("leases", &run, &json!({"resource": RESOURCE}))).await;
    assert_eq!(status, 201, "the lease that was held is over: {reply}");
    assert!(token(&reply["lease"]) > token(&held) + 1, "{reply}");
    let check = json!({"resource": "pointer/never-leased", "fencing_token": 2});
    assert_eq!(answer(place.post("fences/check", &run, &check)).await.1["code"], "stale_fence");
}

/// A process of this test; it ends with this value.
struct Process(Child);

impl Process {
    fn python(arguments: &[&str]) -> Self {
        let mut command = Command::new("python3");
        Self(command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.0.id().to_string()).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Writes to a sink under a fencing token once a line comes in, and prints the status.
const WRITER: &str = "
import sys, urllib.error, urllib.request
sink, resource, token, body = sys.argv[1:]
sys.stdin.readline()
request = urllib.request.Request(f'{sink}/{resource}', body.encode(), {'X-Fencing-Token': token}, method='PUT')
try:
    print(urllib.request.urlopen(request, timeout=20).status)
except urllib.error.HTTPError as refusal:
    print(refusal.code)
";

// Promise 9
#[tokio::test]
async fn a_process_stopped_past_its_lease_writes_nothing_when_it_goes_on() {
    let place = Place::new(&[]);
    let _server = place.serve().await;
    place.person("omar", "viewer", "none").await;
    let agent = place.cli(&["agent", "add", "mover", "--owner", "omar"], "");
    let executor = place.cli(&["executor", "add", "sink", "--kind", "*"], "");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/sink.py");
    let mut sink = Process::python(&[script, &place.url, &executor]);
    let sink = format!("http://127.0.0.1:{}", sink.line());
    let acquire = async |run: &str| answer(place.post("leases", run, &json!({"resource": RESOURCE, "ttl_s": 1}))).await;
    let writer =
        |lease: &Value, body: &str| Process::python(&["-c", WRITER, &sink, RESOURCE, &token(lease).to_string(), body]);
    let (a, b) = (place.start_run(&agent).await, place.start_run(&agent).await);

    let (_, reply) = acquire(&a).await;
    let mut paused = writer(&reply["lease"], "written by a");
    paused.signal("STOP");
    let start = Instant::now();
    let reply = loop {
        let (status, reply) = acquire(&b).await;
        if status == 201 {
            break reply;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "the lease expires after a second");
    };
    let mut successor = writer(&reply["lease"], "written by b");
    writeln!(successor.0.stdin.as_mut().unwrap()).unwrap();
    assert_eq!(successor.line(), "200");

    writeln!(paused.0.stdin.as_mut().unwrap()).unwrap();
    paused.signal("CONT");
    assert_eq!(paused.line(), "409");
    let stored = place.client.get(format!("{sink}/{RESOURCE}")).send().await.unwrap().text().await.unwrap();
    assert_eq!(stored, "written by b");
    let export = place.folder().join("export.jsonl").display().to_string();
    place.cli(&["audit", "export", "--out", &export], "");
    place.cli(&["audit", "verify", &export, "--vkey", &place.cli(&["audit", "vkey"], "")], "");
    let log = std::fs::read_to_string(export).unwrap();
    let rejected: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let rejected = rejected.iter().find(|record| record["event"] == "fence.rejected").unwrap();
    assert_eq!((&rejected["resource"], &rejected["fence"]), (&json!(RESOURCE), &json!(1)));
}
