//! Reports and evidence: what is proven, what is only said, and what nobody knows.

use serde_json::{Value, json};

use crate::support::{App, Person, Program, fresh_key, id_of, on_both_databases, succeeded, ticket};

/// Proposed, approved, claimed and reported as sent; the operation and its claim.
async fn sent(approver: &Person, run: &Program, body: Value) -> (Value, Value) {
    let op = run.propose_as(&fresh_key(), body).await.ok(201).operation().clone();
    approver.approve(id_of(&op)).await.ok(200);
    let claim = run.send(&op).await;
    (op, claim)
}

async fn evidence(reader: &Program, op: &Value) -> Vec<Value> {
    let listed = reader.get(&format!("operations/{}/evidence", id_of(op))).await.ok(200);
    listed.body["evidence"].as_array().unwrap().clone()
}

fn refund() -> Value {
    let params = json!({"order": "4711", "original_transaction": "t-1", "amount_minor": 100, "currency": "EUR"});
    json!({"kind": "payment.refund", "target": "order/4711", "params": params})
}

const NOW: &str = "2026-12-01T00:00:00.000Z";

on_both_databases! {
    async fn a_report_sent_twice_counts_once(app: App) {
        let (asha, _, run) = app.world().await;
        let op = run.ticket("Rotate").await;
        asha.approve(id_of(&op)).await.ok(200);
        let claim = run.take(&op).await;
        let mut last = String::new();
        let accepted = json!({"provider_reference": "T-1"});
        let outcome = json!({"status": "succeeded", "provider_reference": "T-1", "response": {"status": 201, "body": {"b": [1, {"x": null}], "a": "é"}}});
        for (verb, more, state) in [("sent", json!({}), "sent"), ("accepted", accepted, "accepted"), ("outcome", outcome, "succeeded")] {
            for _ in 0..3 {
                let reply = run.report(&op, verb, &claim, more.clone()).await.ok(200);
                assert_eq!(reply.operation()["state"], state);
                last = reply.header("etag").to_owned();
            }
        }
        assert_eq!(last, "\"6\"", "proposed, approved, claimed, sent, accepted, succeeded");
        let reordered = json!({"status": "succeeded", "provider_reference": "T-1", "response": {"status": 201, "body": {"a": "\u{e9}", "b": [1, {"x": null}]}}});
        run.report(&op, "outcome", &claim, reordered).await.ok(200);
        assert_eq!(evidence(&run, &op).await, Vec::<Value>::new());
        let other = run.report(&op, "outcome", &claim, succeeded("T-2")).await.refused(409, "invalid_state");
        assert_eq!(evidence(&run, &op).await[0]["id"], other.body["evidence"]);
        assert_eq!(run.read(&op).await["outcome"]["provider_reference"], "T-1");
    }

    async fn success_is_shown_and_a_runs_own_word_is_not_a_confirmation(app: App) {
        let (asha, _, run) = app.world().await;
        let (op, claim) = sent(&asha, &run, ticket("Rotate")).await;
        let reply = run.report(&op, "outcome", &claim, json!({"status": "succeeded"})).await.refused(422, "validation_failed");
        assert_eq!(reply.body["errors"][0]["pointer"], "/provider_reference");
        for bad in [json!({"status": "done"}), json!({"status": "succeeded", "provider_reference": " "}), json!({"status": "succeeded", "resulting_version": -1})] {
            run.report(&op, "outcome", &claim, bad).await.refused(422, "validation_failed");
        }
        let reported = run.report(&op, "outcome", &claim, succeeded("T-1")).await.ok(200);
        assert_eq!((&reported.operation()["outcome"]["source"], &reported.operation()["outcome"]["confirmed"]), (&json!("run"), &json!(false)));

        let executor = app.executor("tracker", &["ticket.*"]).await;
        let op = run.ticket("By an executor").await;
        asha.approve(id_of(&op)).await.ok(200);
        let done = executor.complete(&op, json!({"status": "succeeded", "response": {"status": 201}})).await;
        assert_eq!((&done["outcome"]["source"], &done["outcome"]["confirmed"]), (&json!("executor"), &json!(true)));
    }

    async fn reports_come_in_their_order(app: App) {
        let (asha, _, run) = app.world().await;
        let op = run.ticket("Rotate").await;
        asha.approve(id_of(&op)).await.ok(200);
        let nobodys = json!({"id": "cl_00000000000000000000000000", "claim_fence": 1, "fingerprint": op["fingerprint"]});
        run.report(&op, "sent", &nobodys, json!({})).await.refused(409, "invalid_state");
        let claim = run.take(&op).await;
        run.report(&op, "outcome", &claim, succeeded("T-1")).await.refused(409, "invalid_state");
        run.report(&op, "accepted", &claim, json!({"provider_reference": "T-1"})).await.refused(409, "invalid_state");
        run.report(&op, "sent", &nobodys, json!({})).await.refused(409, "already_claimed");
        run.report(&op, "sent", &claim, json!({"claim_fence": 2})).await.refused(409, "already_claimed");
        for bad in [json!(0.5), json!("1"), Value::Null] {
            run.report(&op, "sent", &claim, json!({"claim_fence": bad})).await;
        }
        let read = run.read(&op).await;
        assert_eq!((&read["state"], &read["may_have_applied"]), (&json!("claimed"), &json!(false)));
    }

    // C24 (ii), promise 10
    async fn a_lost_answer_is_unknown_and_time_proves_nothing(app: App) {
        let (asha, _, _) = app.world().await;
        let run = app.agent("steady", "omar").await.run(json!({"expires_in_s": 30 * 24 * 3600})).await;
        let key = fresh_key();
        let op = run.propose_as(&key, ticket("Rotate")).await.ok(201).operation().clone();
        asha.approve(id_of(&op)).await.ok(200);
        let claim = run.send(&op).await;
        for (after_s, state) in [(1, "sent"), (58, "sent"), (1, "unknown"), (24 * 3600, "unknown"), (28 * 24 * 3600, "unknown")] {
            app.advance_s(after_s);
            let replay = run.propose_as(&key, ticket("Rotate")).await.ok(202);
            assert_eq!((&replay.body["disposition"], &replay.operation()["state"]), (&json!("in_progress"), &json!(state)));
            assert_eq!(replay.operation()["safe_new_key"], false);
        }
        run.claim(&op).await.refused(409, "outcome_unknown");
        run.post(&format!("operations/{}/cancel", id_of(&op)), json!({"reason": "x"})).await.refused(409, "invalid_state");
        run.report(&op, "heartbeat", &claim, json!({})).await.refused(409, "invalid_state");
        // The claimant's own word is evidence now, for and against.
        for late in [json!({"status": "failed"}), succeeded("T-1")] {
            app.clock.advance_ms(1);
            run.report(&op, "outcome", &claim, late).await.refused(409, "outcome_unknown");
        }
        let findings: Vec<_> = evidence(&run, &op).await.iter().map(|kept| kept["finding"].clone()).collect();
        assert_eq!(findings, ["not_applied", "applied"]);
        let read = run.read(&op).await;
        assert_eq!((&read["state"], &read["outcome"]["status"]), (&json!("unknown"), &json!("unknown")));
        assert_eq!(run.get("operations?state=unknown").await.ok(200).body["operations"][0]["id"], op["id"]);
        let effects = app.events().await.iter().filter(|event| event.starts_with("effect.sent")).count();
        assert_eq!(effects, 1);
    }

    async fn what_the_claimant_calls_unknown_is_unknown_at_once(app: App) {
        let (asha, _, run) = app.world().await;
        let (op, claim) = sent(&asha, &run, ticket("Rotate")).await;
        let doubt = json!({"status": "unknown", "provider_status": "timeout"});
        assert_eq!(run.report(&op, "outcome", &claim, doubt.clone()).await.ok(200).operation()["state"], "unknown");
        run.report(&op, "outcome", &claim, doubt).await.ok(200);
        run.report(&op, "outcome", &claim, json!({"status": "failed"})).await.refused(409, "outcome_unknown");
        assert_eq!(run.read(&op).await["state"], "unknown");
    }

    async fn what_a_provider_queued_is_unknown_once_its_bound_has_passed(app: App) {
        let (asha, _, run) = app.world().await;
        let (op, claim) = sent(&asha, &run, ticket("Rotate")).await;
        run.report(&op, "accepted", &claim, json!({"provider_reference": "job-1"})).await.ok(200);
        app.advance_s(59 + 3600);
        assert_eq!(run.read(&op).await["state"], "accepted");
        app.advance_s(1);
        let read = run.read(&op).await;
        assert_eq!((&read["state"], &read["outcome"]["provider_reference"]), (&json!("unknown"), &json!("job-1")));
    }

    // C24: the provider refuses outright
    async fn a_definite_refusal_under_a_live_claim_is_failed(app: App) {
        let (asha, _, run) = app.world().await;
        for (status, state) in [("failed", "failed"), ("conflicted", "conflicted")] {
            let key = fresh_key();
            let op = run.propose_as(&key, ticket(status)).await.ok(201).operation().clone();
            asha.approve(id_of(&op)).await.ok(200);
            let done = run.complete(&op, json!({"status": status, "response": {"status": 409}})).await;
            assert_eq!((&done["state"], &done["safe_new_key"]), (&json!(state), &json!(true)));
            let replay = run.propose_as(&key, ticket(status)).await.ok(200);
            assert_eq!((&replay.body["disposition"], &replay.operation()["outcome"]), (&json!("replayed"), &done["outcome"]));
        }
        // Accepted, and the claim is over: the refusal is somebody's word.
        let (op, claim) = sent(&asha, &run, ticket("Queued")).await;
        run.report(&op, "accepted", &claim, json!({"provider_reference": "job-1"})).await.ok(200);
        app.advance_s(60);
        run.report(&op, "outcome", &claim, json!({"status": "failed"})).await.refused(409, "invalid_state");
        assert_eq!(run.read(&op).await["state"], "accepted");
        assert_eq!(evidence(&run, &op).await[0]["finding"], "not_applied");
        run.report(&op, "outcome", &claim, succeeded("job-1")).await.ok(200);
    }

    async fn an_operator_resolves_an_unknown_outcome_on_evidence(app: App) {
        let (asha, _, run) = app.world().await;
        let on_call = app.person("olga", "operator", "").await;
        let (op, _) = sent(&asha, &run, ticket("Rotate")).await;
        let (other, _) = sent(&asha, &run, ticket("Other")).await;
        app.advance_s(60);
        let path = format!("operations/{}", id_of(&op));
        let state = async |finding: &str, kind: &str| {
            let body = json!({"finding": finding, "kind": kind, "reference": op["id"], "observed_at": NOW, "note": "seen in the tracker"});
            on_call.post(&format!("{path}/evidence"), body).await.ok(201).body["evidence"]["id"].clone()
        };
        let (applied, inconclusive) = (state("applied", "lookup").await, state("inconclusive", "statement").await);
        let foreign = json!({"finding": "applied", "kind": "receipt", "observed_at": NOW});
        let foreign = on_call.post(&format!("operations/{}/evidence", id_of(&other)), foreign).await.ok(201).body["evidence"]["id"].clone();
        assert_eq!(run.read(&op).await["state"], "unknown", "evidence alone decides nothing");

        let resolve = |person: &Person, finding: &str, evidence: Value, note: &str| {
            person.post(&format!("{path}/resolution"), json!({"finding": finding, "evidence": evidence, "note": note}))
        };
        resolve(&asha, "applied", json!([applied]), "x").await.refused(403, "forbidden");
        resolve(&on_call, "abandon", json!([]), "x").await.refused(403, "forbidden");
        resolve(&on_call, "applied", json!([applied]), " ").await.refused(422, "validation_failed");
        resolve(&on_call, "applied", json!([]), "x").await.refused(422, "validation_failed");
        for wrong in [&inconclusive, &foreign] {
            resolve(&on_call, "applied", json!([wrong]), "x").await.refused(422, "validation_failed");
        }
        resolve(&on_call, "not_applied", json!([applied]), "x").await.refused(422, "validation_failed");
        let resolved = resolve(&on_call, "applied", json!([applied]), "ticket T-1 is there").await.ok(200);
        assert_eq!((&resolved.operation()["state"], &resolved.operation()["outcome"]["source"]), (&json!("succeeded"), &json!("operator")));
        let again = resolve(&on_call, "applied", json!([applied]), "ticket T-1 is there").await.ok(200);
        assert_eq!(again.header("etag"), resolved.header("etag"));
        resolve(&on_call, "not_applied", json!([]), "x").await.refused(409, "invalid_state");
    }

    async fn an_unknown_payment_takes_two_people_who_agree(app: App) {
        let (asha, _, run) = app.world().await;
        let (olga, oskar) = (app.person("olga", "operator", "").await, app.person("oskar", "admin", "").await);
        let (op, claim) = sent(&asha, &run, refund()).await;
        run.report(&op, "outcome", &claim, json!({"status": "unknown"})).await.ok(200);
        let path = format!("operations/{}", id_of(&op));
        let state = async |finding: &str| {
            let body = json!({"finding": finding, "kind": "receipt", "reference": op["id"], "observed_at": NOW});
            olga.post(&format!("{path}/evidence"), body).await.ok(201).body["evidence"]["id"].clone()
        };
        let (yes, no) = (state("applied").await, state("not_applied").await);
        let resolve = |person: &Person, finding: &str, evidence: &Value| {
            person.post(&format!("{path}/resolution"), json!({"finding": finding, "evidence": [evidence], "note": "see the ledger"}))
        };
        for _ in 0..2 {
            assert_eq!(resolve(&olga, "applied", &yes).await.ok(200).operation()["state"], "needs_review");
        }
        assert_eq!(resolve(&oskar, "not_applied", &no).await.ok(200).operation()["state"], "needs_review", "they disagree");
        let done = resolve(&olga, "not_applied", &no).await.ok(200);
        assert_eq!((&done.operation()["state"], &done.operation()["safe_new_key"]), (&json!("failed"), &json!(true)));
    }

    // Row 28
    async fn evidence_against_an_outcome_opens_a_dispute_and_moves_nothing(app: App) {
        let (asha, _, run) = app.world().await;
        let on_call = app.person("olga", "operator", "").await;
        let key = fresh_key();
        let op = run.propose_as(&key, ticket("Rotate")).await.ok(201).operation().clone();
        asha.approve(id_of(&op)).await.ok(200);
        run.complete(&op, json!({"status": "failed"})).await;
        let path = format!("operations/{}", id_of(&op));
        let seen = json!({"finding": "applied", "kind": "receipt", "reference": op["id"], "observed_at": NOW});
        let added = run.post(&format!("{path}/evidence"), seen).await.ok(201);
        assert_eq!((&added.operation()["state"], &added.operation()["disputed"], &added.operation()["safe_new_key"]), (&json!("failed"), &json!(true), &json!(false)));
        assert_eq!(added.body["evidence"]["by"]["id"], run.id);
        let replay = run.propose_as(&key, ticket("Rotate")).await.ok(200);
        assert_eq!((&replay.operation()["state"], &replay.operation()["disputed"]), (&json!("failed"), &json!(true)));
        let found = json!({"finding": "applied", "evidence": [added.body["evidence"]["id"]], "note": "it is there"});
        let resolved = on_call.post(&format!("{path}/resolution"), found).await.ok(200);
        assert_eq!((&resolved.operation()["state"], &resolved.operation()["disputed"]), (&json!("failed"), &json!(false)));
        assert!(app.events().await.contains(&"evidence.contradiction".to_owned()));
        let next = run.ticket("Rotate").await;
        assert_eq!(next["duplicate_of"], op["id"], "it happened after all");
    }

    async fn evidence_has_an_author_and_a_time_and_is_about_something_sent(app: App) {
        let (asha, _, run) = app.world().await;
        let unsent = run.ticket("Unsent").await;
        let body = json!({"finding": "applied", "kind": "statement", "observed_at": NOW});
        run.post(&format!("operations/{}/evidence", id_of(&unsent)), body.clone()).await.refused(409, "invalid_state");
        let (op, _) = sent(&asha, &run, ticket("Rotate")).await;
        let path = format!("operations/{}/evidence", id_of(&op));
        for (member, value) in [
            ("kind", json!("callback")), ("kind", json!("late_report")), ("kind", json!("rumour")), ("finding", json!("maybe")),
            ("observed_at", json!("2026-12-01T00:00:06.000Z")), ("reference", json!(" ")), ("note", json!("x".repeat(4001))), ("by", json!("somebody")),
        ] {
            let mut bad = body.clone();
            bad[member] = value;
            let reply = run.post(&path, bad).await.refused(422, "validation_failed");
            assert_eq!(reply.body["errors"][0]["pointer"], format!("/{member}"));
        }
        run.post(&path, body).await.ok(201);
        asha.call(axum::http::Method::DELETE, &path).await.refused(405, "method_not_allowed");
    }
    async fn evidence_keeps_what_was_seen_beside_the_log_and_up_to_a_cap(app: App) {
        let (asha, _, run) = app.world().await;
        let (op, _) = sent(&asha, &run, ticket("Rotate")).await;
        let path = format!("operations/{}/evidence", id_of(&op));
        let seen = |body: Value| json!({"finding": "applied", "kind": "receipt", "observed_at": NOW, "body": body});
        let receipt = json!({"receipt": "planted-receipt", "lines": [1, null]});
        let kept = run.post(&path, seen(receipt.clone())).await.ok(201).body["evidence"].clone();
        assert_eq!((&kept["body"], &evidence(&run, &op).await[0]), (&receipt, &kept));
        let other = run.post(&path, seen(json!({"receipt": "another"}))).await.ok(201).body["evidence"]["digest"].clone();
        assert_ne!(other, kept["digest"], "the digest covers the body");
        let export = app.export().await;
        assert!(export.contains(kept["digest"].as_str().unwrap()) && !export.contains("planted-receipt"));

        let roomy = run.at(&app.node(&[("COUNTERFOIL_MAX_BODY_BYTES", "1048576")]).await);
        let refused = roomy.post(&path, seen(json!("x".repeat(64 * 1024)))).await.refused(422, "validation_failed");
        assert_eq!(refused.body["errors"][0]["pointer"], "/body");
        roomy.post(&path, seen(json!("x".repeat(64 * 1024 - 2)))).await.ok(201);
    }
}
