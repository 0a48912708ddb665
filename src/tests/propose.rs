//! Proposals: one key is one operation, however often it arrives; another content is another answer.

use axum::http::Method;
use counterfoil::server::worker;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{App, Call, Person, Program, fresh_key, id_of, on_both_databases, release, succeeded, ticket};

const HOUR_S: i64 = 3600;

fn payment(kind: &str, over: &[(&str, Value)]) -> Value {
    let mut params = json!({"order": "4711", "amount_minor": 10_000, "currency": "EUR"});
    for (name, value) in over {
        params[*name] = value.clone();
    }
    json!({"kind": format!("payment.{kind}"), "target": "order/4711", "params": params})
}

fn refund(minor: i64, currency: &str) -> Value {
    let over =
        [("amount_minor", json!(minor)), ("currency", json!(currency)), ("original_transaction", json!("txn-1"))];
    payment("refund", &over)
}

fn comment(id: &str, body: &str) -> Value {
    json!({"kind": "ticket.comment", "target": "ticket/OPS-1", "params": {"ticket": "OPS-1", "comment_id": id, "body": body}})
}

/// Proposed under a fresh key, approved and carried out.
async fn done(approver: &Person, run: &Program, body: Value, outcome: Value) -> Value {
    let op = run.propose_as(&fresh_key(), body).await.ok(201).operation().clone();
    approver.approve(id_of(&op)).await.ok(200);
    run.complete(&op, outcome).await
}

/// A deployment that left `release/staging` at this version.
async fn at_version(approver: &Person, run: &Program, version: i64) {
    let mut outcome = succeeded("rel-1");
    outcome["resulting_version"] = json!(version);
    let op = done(approver, run, release("staging", json!(version - 1)), outcome).await;
    assert_eq!(op["state"], "succeeded");
}

async fn count(app: &App, event: &str) -> usize {
    app.events().await.iter().filter(|name| *name == event).count()
}

on_both_databases! {
    // C01, promises 5 and 6
    async fn fifty_requests_on_two_nodes_with_one_key_are_one_operation(app: App) {
        let (_, _, run) = app.world().await;
        let other = app.node(&[]).await;
        let key = fresh_key();
        let title = |i: usize| if i == 25 { "Another" } else { "Rotate" };
        let calls = (0..50).map(|i| {
            let node = if i % 2 == 0 { run.clone() } else { run.at(&other) };
            tokio::spawn(node.propose_as(&key, ticket(title(i))).into_future())
        });
        let replies: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).enumerate().collect();
        let created: Vec<_> = replies.iter().filter(|(_, reply)| reply.status == 201).collect();
        assert_eq!(created.len(), 1);
        let (first, winner) = created[0];
        assert_eq!(winner.body["disposition"], "created");
        let id = id_of(winner.operation());
        for (i, reply) in &replies {
            if i == first {
                continue;
            }
            if title(*i) == title(*first) {
                assert_eq!((reply.status.as_u16(), &reply.body["disposition"]), (202, &json!("in_progress")), "{}", reply.text);
                assert_eq!(id_of(reply.operation()), id);
                assert!(!reply.header("retry-after").is_empty());
                assert_eq!(reply.header("idempotency-replayed"), "true");
            } else {
                assert_eq!((reply.status.as_u16(), reply.code()), (409, "fingerprint_conflict"), "{}", reply.text);
                assert_eq!(reply.operation(), &json!({"id": id, "state": "pending"}));
                assert_eq!(reply.body["differs"], json!(["/params/title"]));
            }
        }
        assert_eq!(count(&app, "operation.proposed").await, 1);
    }

    // C02
    async fn never_wait_and_already_are_told_apart_by_the_body_alone(app: App) {
        let (asha, _, run) = app.world().await;
        let key = fresh_key();
        let created = run.propose_as(&key, ticket("Rotate")).await.ok(201);
        assert_eq!(created.header("location"), created.operation()["urls"]["self"]);
        let op = created.operation().clone();
        asha.approve(id_of(&op)).await.ok(200);
        let claim = run.take(&op).await;

        let open = run.propose_as(&key, ticket("Rotate")).await.ok(202);
        assert_eq!((&open.body["disposition"], &open.operation()["state"]), (&json!("in_progress"), &json!("claimed")));
        assert_eq!((open.header("retry-after"), open.header("idempotency-replayed")), ("2", "true"));

        run.report(&op, "sent", &claim, json!({})).await.ok(200);
        let refusal = json!({"status": "failed", "response": {"status": 422, "body": {"error": "no such project"}}});
        let failed = run.report(&op, "outcome", &claim, refusal).await.ok(200);
        for _ in 0..3 {
            let again = run.propose_as(&key, ticket("Rotate")).await.ok(200);
            assert_eq!((&again.body["disposition"], &again.operation()["state"]), (&json!("replayed"), &json!("failed")));
            assert_eq!((again.header("retry-after"), again.header("idempotency-replayed")), ("", "true"));
            assert_eq!(again.operation()["outcome"], failed.operation()["outcome"]);
            assert_eq!(again.header("etag"), failed.header("etag"), "a replay changes nothing");
        }
        let other = run.propose_as(&key, ticket("Revoke")).await.refused(409, "fingerprint_conflict");
        assert_eq!(other.operation(), &json!({"id": op["id"], "state": "failed"}));
        assert_eq!((&other.body["differs"], &other.body["retryable"]), (&json!(["/params/title"]), &json!(false)));
        assert_eq!((count(&app, "operation.proposed").await, count(&app, "operation.replayed").await), (1, 4));
    }

    // C03, promise 7
    async fn equal_proposals_under_new_keys_are_marked_and_decided_apart(app: App) {
        app.rules(json!([{"name": "low", "match": {"kind": "ticket.*"}, "require": {"auto": true}}])).await;
        let (asha, _, run) = app.world().await;
        let first = run.ticket("Rotate").await;
        assert_eq!(run.read(&first).await["state"], "pending");
        for _ in 0..3 {
            app.clock.advance_ms(500);
            let again = run.ticket("Rotate").await;
            assert_eq!((&again["state"], &again["duplicate_of"]), (&json!("pending"), &first["id"]));
            let review = asha.get(&format!("operations/{}/review", id_of(&again))).await.ok(200);
            assert!(review.body["review"]["duplicates"].as_array().unwrap().iter().any(|other| other["operation"] == first["id"]));
        }
        asha.approve(id_of(&first)).await.ok(200);
        let listed = run.get("operations?state=pending").await.ok(200).body;
        assert_eq!(listed["operations"].as_array().unwrap().len(), 3);
    }

    // Promise 7
    async fn an_equal_request_after_the_end_is_a_second_operation(app: App) {
        let (asha, _, run) = app.world().await;
        let first = done(&asha, &run, ticket("Rotate"), succeeded("T-1")).await;
        let second = run.ticket("Rotate").await;
        assert_ne!(first["id"], second["id"]);
        assert_eq!((&second["fingerprint"], &second["duplicate_of"]), (&first["fingerprint"], &Value::Null));
        asha.approve(id_of(&second)).await.ok(200);
        assert_eq!(run.complete(&second, succeeded("T-2")).await["state"], "succeeded");
    }

    async fn what_was_given_up_without_proof_still_counts_as_a_possible_duplicate(app: App) {
        let (asha, _, run) = app.world().await;
        let admin = app.person("ada", "admin", "").await;
        let op = run.ticket("Rotate").await;
        asha.approve(id_of(&op)).await.ok(200);
        run.send(&op).await;
        app.advance_s(60);
        let given_up = json!({"finding": "abandon", "note": "the tracker is gone"});
        let reply = admin.post(&format!("operations/{}/resolution", id_of(&op)), given_up).await.ok(200);
        assert_eq!(reply.operation()["state"], "abandoned");
        assert_eq!(run.ticket("Rotate").await["duplicate_of"], op["id"]);
    }

    // C04
    async fn equal_content_is_one_operation_however_it_is_spelled(app: App) {
        let (_, _, run) = app.world().await;
        let key = fresh_key();
        let send = |key: &str, text: &str| run.call(Method::POST, "operations").raw("application/json", text.to_owned()).header("idempotency-key", key);
        let first = send(&key, r#"{"kind":"ticket.create","target":"project/ops","params":{"project":"ops","title":"Rotate A"}}"#).await.ok(201);
        for text in [
            r#"{"params":{"title":"Rotate A","project":"ops"},"target":"project/ops","kind":"ticket.create"}"#,
            " {\n\t\"kind\" : \"ticket.create\" , \"target\":\"project/ops\", \"params\":{ \"project\":\"ops\",\"title\":\"Rotate A\" } }\r\n",
            r#"{"kind":"ticket.create","target":"project/ops","params":{"project":"ops","title":"Rotate \u0041"}}"#,
            r#"{"k\u0069nd":"ticket.create","params":{"project":"ops","title":"Rotate A","priority":"normal"}}"#,
            r#"{"kind":"ticket.create","params":{"project":"ops","title":"Rotate A"},"reason":"second thoughts","source_event_id":null,"supersedes":null,"expected_version":null}"#,
        ] {
            let again = send(&key, text).await.ok(202);
            assert_eq!((again.operation()["id"].clone(), again.operation()["fingerprint"].clone()), (first.operation()["id"].clone(), first.operation()["fingerprint"].clone()));
        }
        let quoted = format!("\"{key}\"");
        run.propose_as(&quoted, ticket("Rotate A")).await.ok(202);

        let key = fresh_key();
        let create = |list: Value| json!({"kind": "resource.create", "target": "mailing-list/ops", "params": {"value": {"to": list}}});
        run.propose_as(&key, create(json!(["a", "b"]))).await.ok(201);
        let reordered = run.propose_as(&key, create(json!(["b", "a"]))).await.refused(409, "fingerprint_conflict");
        assert!(reordered.body["differs"][0].as_str().unwrap().starts_with("/params/value/to"), "{}", reordered.text);
    }

    // C05
    async fn a_name_given_twice_is_refused_and_the_key_stays_free(app: App) {
        let (_, _, run) = app.world().await;
        let key = fresh_key();
        let send = |text: &str| run.call(Method::POST, "operations").raw("application/json", text.to_owned()).header("idempotency-key", &key);
        for (text, pointer) in [
            (r#"{"kind":"ticket.create","target":"project/ops","target":"project/prod","params":{}}"#, "/target"),
            (r#"{"kind":"ticket.create","target":"project/ops","\u0074arget":"project/prod","params":{}}"#, "/target"),
            (r#"{"kind":"resource.create","target":"a/b","params":{"value":{"a":[{"b":1,"b":1}]}}}"#, "/params/value/a/0/b"),
        ] {
            let reply = send(text).await.refused(400, "duplicate_json_key");
            assert_eq!(reply.body["errors"][0]["pointer"], pointer, "{}", reply.text);
        }
        run.propose_as(&key, ticket("Rotate")).also_header("idempotency-key", &key).await.refused(400, "idempotency_key_invalid");
        run.get(&format!("operations/by-key/{key}")).await.refused(404, "not_found");
        run.propose_as(&key, ticket("Rotate")).await.ok(201);
    }

    // C06
    async fn text_and_keys_that_cannot_be_stored_are_refused_early(app: App) {
        let (_, _, run) = app.world().await;
        let key = fresh_key();
        let send = |text: String| run.call(Method::POST, "operations").raw("application/json", text).header("idempotency-key", &key);
        for (title, more) in [(r"\u0000", ""), (r"\ud800", ""), ("x", r#","a\u0000":1"#), ("x", r#","reason":"a\u0000b""#)] {
            let text = format!(r#"{{"kind":"ticket.create","params":{{"project":"ops","title":"{title}"}}{more}}}"#);
            send(text).await.refused(400, "malformed_json");
        }
        send(format!(r#"{{"kind":"ticket.create","params":{}1{}}}"#, "[".repeat(200), "]".repeat(200))).await.refused(400, "malformed_json");
        send(format!(r#"{{"{}":1}}"#, "x".repeat(1 << 20))).await.refused(413, "payload_too_large");
        let long = "k".repeat(10_000);
        for bad in [" ", "short", "key with blanks in it", "\"unclosed-but-long-enough", long.as_str()] {
            run.propose_as(&key, ticket("x")).header("idempotency-key", bad).await.refused(400, "idempotency_key_invalid");
        }
        run.propose_as(&key, ticket("x")).header("idempotency-key", "").also_header("idempotency-key", "").await.refused(400, "idempotency_key_invalid");
        run.propose_as(&key, ticket("x")).header("idempotency-key", "").await.refused(400, "idempotency_key_missing");
        run.propose_as(&key, ticket("x")).await.ok(201);
    }

    // C07
    async fn what_is_refused_early_claims_no_key(app: App) {
        let (_, _, run) = app.world().await;
        let key = fresh_key();
        let raw = |media: &str, text: &str| run.call(Method::POST, "operations").raw(media, text.to_owned()).header("idempotency-key", &key);
        raw("application/json", r#"{"kind":"#).await.refused(400, "malformed_json");
        raw("text/plain", &ticket("x").to_string()).await.refused(415, "unsupported_media_type");
        run.call(Method::PATCH, "operations").json(json!({})).await.refused(405, "method_not_allowed");
        run.get("operations/op_nonsense").await.refused(404, "not_found");
        let with = |name: &str, value: Value| {
            let mut body = ticket("x");
            body[name] = value;
            body
        };
        for (body, code, pointer) in [
            (with("priority", json!("critical")), "validation_failed", "/priority"),
            (with("kind", json!(7)), "validation_failed", "/kind"),
            (with("kind", json!("ticket.fly")), "validation_failed", "/kind"),
            (with("target", json!("project/other")), "validation_failed", "/target"),
            (with("target", json!("project/\u{202e}ops")), "validation_failed", "/target"),
            (with("params", json!({"project": "ops"})), "validation_failed", "/params"),
            (with("params", json!({"project": "ops", "title": "x", "priority": "critical"})), "validation_failed", "/params/priority"),
            (with("expected_version", json!(-1)), "validation_failed", "/expected_version"),
            (with("expected_version", json!(1.0)), "number_out_of_range", "/expected_version"),
            (with("expected_version", json!(9_007_199_254_740_992_i64)), "number_out_of_range", "/expected_version"),
            (with("reason", json!("x".repeat(10_001))), "validation_failed", "/reason"),
            (with("supersedes", json!("op_00000000000000000000000000")), "validation_failed", "/supersedes"),
        ] {
            let reply = run.propose_as(&key, body).await.refused(422, code);
            let at = reply.body["errors"][0]["pointer"].as_str().unwrap();
            assert!(at.starts_with(pointer), "{pointer}: {}", reply.text);
        }
        let mut moving = release("staging", json!(1));
        for artifact in ["latest", "sha256:abc", "v1.2.3", "main"] {
            moving["params"]["artifact"] = json!(artifact);
            run.propose_as(&key, moving.clone()).await.refused(422, "mutable_reference");
        }
        run.get(&format!("operations/by-key/{key}")).await.refused(404, "not_found");
        assert_eq!(count(&app, "operation.proposed").await, 0);
        run.propose_as(&key, ticket("x")).await.ok(201);
    }

    async fn a_declared_retry_of_an_unknown_key_creates_nothing(app: App) {
        let (_, _, run) = app.world().await;
        let key = fresh_key();
        let mut retry = ticket("Rotate");
        retry["retry"] = json!(true);
        let refused = run.propose_as(&key, retry.clone()).await.refused(409, "unknown_key");
        assert_eq!(refused.body["safe_new_key"], false);
        let id = run.propose_as(&key, ticket("Rotate")).await.ok(201).operation()["id"].clone();
        let again = run.propose_as(&key, retry).await.ok(202);
        assert_eq!(again.operation()["id"], id);
        assert_eq!(count(&app, "operation.proposed").await, 1);
    }

    // Promise 6
    async fn strangers_see_nothing_and_their_equal_key_is_another_key(app: App) {
        let (_, _, run) = app.world().await;
        app.person("xena", "viewer", "").await;
        let stranger = app.agent("other", "xena").await.run(json!({})).await;
        let key = fresh_key();
        let op = run.propose_as(&key, ticket("Rotate")).await.ok(201).operation().clone();
        let path = format!("operations/{}", id_of(&op));
        stranger.get(&path).await.refused(404, "not_found");
        stranger.get(&format!("operations/by-key/{key}")).await.refused(404, "not_found");
        stranger.claim(&op).await.refused(404, "not_found");
        stranger.post(&format!("{path}/cancel"), json!({"reason": "x"})).await.refused(404, "not_found");
        stranger.get(&format!("{path}/evidence")).await.refused(404, "not_found");
        assert_eq!(stranger.get("operations").await.ok(200).body["operations"], json!([]));
        for body in [ticket("Rotate"), ticket("Something else")] {
            let own = stranger.propose_as(&key, body).await;
            assert!([201, 409].contains(&own.status.as_u16()) && !own.text.contains(id_of(&op)), "{}", own.text);
        }
        assert_eq!(run.get(&format!("operations/by-key/{key}")).await.ok(200).operation()["id"], op["id"]);
        assert!(run.read(&op).await["idempotency_key"] == json!(key));
        let executor = app.executor("tracker", &["ticket.*"]).await;
        assert!(executor.read(&op).await.get("idempotency_key").is_none());
        assert_eq!(run.read(&op).await["version"], 1, "nobody touched it");
    }

    // Promise 5
    async fn a_key_outlives_its_run_and_the_server(app: App) {
        let (asha, _, _) = app.world().await;
        let agent = app.agent("second", "omar").await;
        let run = agent.run(json!({})).await;
        let key = fresh_key();
        let op = run.propose_as(&key, ticket("Rotate")).await.ok(201).operation().clone();
        asha.approve(id_of(&op)).await.ok(200);
        run.complete(&op, succeeded("T-1")).await;
        run.post(&format!("runs/{}/stop", run.id), json!({"reason": "done"})).await.ok(200);
        let app = app.restart(&[]).await;
        let next = agent.at(&app).run(json!({})).await;
        for run in [run.at(&app), next] {
            let again = run.propose_as(&key, ticket("Rotate")).await.ok(200);
            assert_eq!((&again.operation()["id"], &again.operation()["outcome"]["provider_reference"]), (&op["id"], &json!("T-1")));
        }
        run.at(&app).propose_as(&fresh_key(), ticket("Rotate")).await.refused(403, "run_stopped");
    }

    async fn a_key_is_kept_while_open_and_leaves_a_tombstone_after_its_retention(app: App) {
        let (asha, _, run) = app.world().await;
        let app = app.restart(&[("COUNTERFOIL_KEY_RETENTION_S", "3600")]).await;
        let (asha, run) = (asha.at(&app), run.at(&app));
        let (open_key, ended_key) = (fresh_key(), fresh_key());
        let open = run.propose_as(&open_key, ticket("Open")).await.ok(201).operation().clone();
        asha.approve(id_of(&open)).await.ok(200);
        run.send(&open).await;
        let ended = run.propose_as(&ended_key, ticket("Ended")).await.ok(201).operation().clone();
        asha.decide(id_of(&ended), "reject", json!({})).await.ok(200);

        app.advance_s(HOUR_S);
        worker::tidy(&app.desk).await.unwrap();
        assert_eq!(run.propose_as(&ended_key, ticket("Ended")).await.ok(200).operation()["state"], "rejected");
        app.advance_s(1);
        worker::tidy(&app.desk).await.unwrap();
        let mut retry = ticket("Ended");
        retry["retry"] = json!(true);
        for body in [ticket("Ended"), ticket("Other"), retry] {
            let gone = run.propose_as(&ended_key, body).await.refused(410, "idempotency_key_expired");
            assert_eq!(gone.body["operation_id"], ended["id"]);
        }
        run.get(&format!("operations/by-key/{ended_key}")).await.refused(410, "idempotency_key_expired");
        assert_eq!(run.read(&ended).await["state"], "rejected");

        app.advance_s(10 * HOUR_S);
        worker::tidy(&app.desk).await.unwrap();
        assert_eq!(run.propose_as(&open_key, ticket("Open")).await.ok(202).operation()["state"], "unknown");
    }

    async fn an_event_has_one_operation_across_agents_and_runs(app: App) {
        let (asha, _, run) = app.world().await;
        app.person("xena", "viewer", "").await;
        let stranger = app.agent("other", "xena").await.run(json!({})).await;
        let op = run.propose_as(&fresh_key(), comment("c-1", "Done.")).await.ok(201).operation().clone();

        let alias = fresh_key();
        for _ in 0..2 {
            let told = stranger.propose_as(&alias, comment("c-1", "Secretly different")).await.ok(200);
            assert_eq!(told.body["disposition"], "existing");
            assert_eq!(told.operation(), &json!({"id": op["id"], "state": "pending"}), "id and state only");
            assert_eq!((&told.body["content_differs"], &told.body["differs"]), (&json!(true), &json!(["/params/body"])));
            assert_eq!(told.body["provider_reference"], Value::Null);
            assert_eq!(told.header("etag"), "");
        }
        stranger.propose_as(&alias, comment("c-2", "Other")).await.refused(409, "fingerprint_conflict");
        stranger.get(&format!("operations/{}", id_of(&op))).await.refused(404, "not_found");
        let named = stranger.get(&format!("operations/by-key/{alias}")).await.ok(200);
        assert_eq!(named.operation(), &json!({"id": op["id"], "state": "pending"}));
        stranger.claim(&op).await.refused(404, "not_found");

        asha.approve(id_of(&op)).await.ok(200);
        run.complete(&op, succeeded("CMT-9")).await;
        let own = run.propose_as(&fresh_key(), comment("c-1", "Done.")).await.ok(200);
        assert_eq!((&own.body["disposition"], &own.body["provider_reference"]), (&json!("existing"), &json!("CMT-9")));
        assert_eq!((&own.operation()["state"], &own.body["content_differs"]), (&json!("succeeded"), &json!(false)));
        assert_eq!(count(&app, "operation.proposed").await, 1);

        let mut alert = ticket("Disk full");
        alert["source_event_id"] = json!("alert-7");
        let first = run.propose_as(&fresh_key(), alert.clone()).await.ok(201).operation().clone();
        assert_eq!(stranger.propose_as(&fresh_key(), alert.clone()).await.ok(200).operation()["id"], first["id"]);
        asha.decide(id_of(&first), "reject", json!({})).await.ok(200);
        let again = stranger.propose_as(&fresh_key(), alert).await.ok(201);
        assert_ne!(again.operation()["id"], first["id"], "what did not happen may be asked for again");
    }

    async fn a_second_payment_for_the_same_event_is_refused_and_kept(app: App) {
        let (asha, _, run) = app.world().await;
        let capture = payment("capture", &[("authorization", json!("auth-1"))]);
        let first = run.propose_as(&fresh_key(), capture.clone()).await.ok(201).operation().clone();
        let key = fresh_key();
        let refused = run.propose_as(&key, capture.clone()).await.refused(409, "business_key_conflict");
        assert_eq!(refused.body["existing"], json!({"id": first["id"], "state": "pending"}));
        assert_eq!(refused.operation()["state"], "conflicted");
        asha.decide(id_of(&first), "reject", json!({})).await.ok(200);
        let again = run.propose_as(&key, capture.clone()).await.refused(409, "business_key_conflict");
        assert_eq!((&again.body["conflict_id"], &again.operation()["id"]), (&refused.body["conflict_id"], &refused.operation()["id"]));
        let second = run.propose_as(&fresh_key(), capture.clone()).await.ok(201).operation().clone();
        asha.approve(id_of(&second)).await.ok(200);
        run.complete(&second, succeeded("txn-1")).await;
        run.propose_as(&fresh_key(), capture).await.refused(409, "business_key_conflict");

        let authorize = payment("authorize", &[("payee", json!("customer")), ("invoice", json!("INV-1"))]);
        run.propose_as(&fresh_key(), authorize.clone()).await.ok(201);
        let mut other = authorize;
        other["params"]["invoice"] = json!("INV-2");
        run.propose_as(&fresh_key(), other).await.refused(409, "business_key_conflict");
    }

    async fn refunds_stay_within_what_was_captured(app: App) {
        let (asha, _, run) = app.world().await;
        let on_call = app.person("olga", "operator", "").await;
        let second = app.person("oskar", "operator", "").await;
        let capture = payment("capture", &[("authorization", json!("auth-1"))]);
        done(&asha, &run, capture, succeeded("txn-1")).await;

        let propose = |minor: i64, currency: &str| run.propose_as(&fresh_key(), refund(minor, currency));
        let first = propose(6_000, "EUR").await.ok(201).operation().clone();
        let beyond = propose(4_001, "EUR").await.refused(409, "invariant_violated");
        assert_eq!((&beyond.body["captured_minor"], &beyond.body["refunded_minor"]), (&json!(10_000), &json!(6_000)));
        assert_eq!(beyond.operation()["state"], "conflicted");
        propose(1, "USD").await.refused(409, "invariant_violated");
        propose(4_000, "EUR").await.ok(201);
        propose(1, "EUR").await.refused(409, "invariant_violated");

        // Unknown counts as refunded until it is proven not to be.
        asha.approve(id_of(&first)).await.ok(200);
        let claim = run.send(&first).await;
        app.advance_s(60);
        assert_eq!(run.read(&first).await["state"], "unknown");
        propose(6_000, "EUR").await.refused(409, "invariant_violated");
        let late = json!({"status": "failed", "provider_status": "declined"});
        run.report(&first, "outcome", &claim, late).await.refused(409, "outcome_unknown");
        let evidence = run.get(&format!("operations/{}/evidence", id_of(&first))).await.ok(200).body["evidence"][0]["id"].clone();
        let found = json!({"finding": "not_applied", "evidence": [evidence], "note": "the ledger shows nothing"});
        for person in [&on_call, &second] {
            person.post(&format!("operations/{}/resolution", id_of(&first)), found.clone()).await.ok(200);
        }
        assert_eq!(run.read(&first).await["state"], "failed");
        propose(6_000, "EUR").await.ok(201);
    }

    async fn a_rollback_names_the_release_it_undoes(app: App) {
        let (_, _, run) = app.world().await;
        app.person("xena", "viewer", "").await;
        let stranger = app.agent("other", "xena").await.run(json!({})).await;
        let theirs = stranger.release("staging", 1).await.ok(201).operation()["id"].clone();
        let ours = run.release("staging", 1).await.ok(201).operation()["id"].clone();
        let mut rollback = release("staging", json!(2));
        rollback["kind"] = json!("deployment.rollback");
        let key = fresh_key();
        for link in [Value::Null, json!("op_00000000000000000000000000"), theirs] {
            rollback["rolls_back"] = link;
            let reply = run.propose_as(&key, rollback.clone()).await.refused(422, "validation_failed");
            assert_eq!(reply.body["errors"][0]["pointer"], "/rolls_back");
        }
        rollback["rolls_back"] = ours.clone();
        let op = run.propose_as(&key, rollback).await.ok(201).operation().clone();
        assert_eq!((&op["links"], &op["risk"]), (&json!({"rolls_back": ours}), &json!("critical")));
    }

    async fn a_write_that_needs_a_version_is_refused_without_one_and_its_key_stays_free(app: App) {
        let (_, _, run) = app.world().await;
        let key = fresh_key();
        let body = release("staging", Value::Null);
        let propose = || run.propose_as(&key, body.clone());
        for call in [propose(), propose().header("if-match", "*"), propose().also_header("if-match", ""), propose().also_header("if-match", " ")] {
            let reply = call.await.refused(428, "precondition_required");
            assert_eq!(reply.body["header"], "If-Match");
        }
        assert_eq!(count(&app, "proposal.refused").await, 4);
        let op = propose().header("if-match", "\"41\"").await.ok(201).operation().clone();
        assert_eq!((&op["expected_version"], &op["current_version"]), (&json!(41), &Value::Null));
    }

    // C19
    async fn only_a_strong_tag_in_quotes_is_a_version(app: App) {
        let (asha, _, run) = app.world().await;
        at_version(&asha, &run, 41).await;
        let key = fresh_key();
        let with = |tags: &str| run.propose_as(&key, release("staging", Value::Null)).header("if-match", tags);
        for tags in ["41", "\"41", "w/\"41\"", "\"41\" \"42\"", "\"4 1\""] {
            with(tags).await.refused(400, "malformed_etag");
        }
        for tags in ["W/\"41\"", "\"\"", "\"041\"", "\"abc\""] {
            let reply = with(tags).await.refused(412, "stale_version");
            assert!(reply.body["detail"].as_str().unwrap().contains("proxy"), "{}", reply.text);
        }
        let both = run.propose_as(&key, release("staging", json!(40))).header("if-match", "\"41\"");
        both.await.refused(400, "bad_request");
        let op = with("\"7\", W/\"41\", \"41\"").await.ok(201).operation().clone();
        assert_eq!((&op["expected_version"], &op["current_version"]), (&json!(41), &json!(41)));
        // A retry may list more tags than the one that matched.
        with("\"41\", \"42\"").await.ok(202);
        run.propose_as(&key, release("staging", json!(41))).await.ok(202);
        with("\"42\"").await.refused(409, "fingerprint_conflict");
    }

    // Promise 8
    async fn a_stale_proposal_is_kept_as_a_conflict_and_its_replay_says_the_same(app: App) {
        let (asha, _, run) = app.world().await;
        at_version(&asha, &run, 42).await;
        let key = fresh_key();
        let refused = run.propose_as(&key, release("staging", json!(41))).await.refused(412, "stale_version");
        for (member, value) in [
            ("error", json!("stale_version")), ("resource", json!("release/staging")),
            ("expected_etag", json!("\"41\"")), ("current_etag", json!("\"42\"")),
            ("expected_version", json!(41)), ("current_version", json!(42)),
            ("safe_new_key", json!(true)), ("retryable", json!(false)),
        ] {
            assert_eq!(refused.body[member], value, "{member}");
        }
        assert_eq!(refused.body["retry"]["mode"], "after_fresh_read");
        assert_eq!(refused.operation()["state"], "conflicted");
        let id = refused.operation()["id"].clone();
        let again = run.propose_as(&key, release("staging", json!(41))).await.refused(412, "stale_version");
        let without_correlation = |body: &Value| {
            let mut body = body.clone();
            body.as_object_mut().unwrap().remove("correlation_id");
            body
        };
        assert_eq!(without_correlation(&again.body), without_correlation(&refused.body));
        run.propose_as(&key, release("staging", json!(42))).await.refused(409, "fingerprint_conflict");
        let op = run.get(&format!("operations/{}", id.as_str().unwrap())).await.ok(200).operation().clone();
        assert_eq!((&op["state"], &op["conflict"]["id"]), (&json!("conflicted"), &refused.body["conflict_id"]));
        let late = asha.approve(id_of(&op)).await.refused(409, "invalid_state");
        assert_eq!(late.body["conflict_id"], op["conflict"]["id"]);
        let story: Vec<_> = app.audit().await.into_iter().filter(|record| record["operation"] == id).collect();
        let story: Vec<_> = story.iter().map(|record| record["event"].as_str().unwrap()).collect();
        assert_eq!(story, ["operation.proposed", "operation.conflicted", "operation.replayed", "operation.key_conflict", "approval.refused"]);
        run.release("staging", 42).await.ok(201);
    }

    async fn a_new_version_ends_what_was_planned_on_an_older_one(app: App) {
        let (asha, _, run) = app.world().await;
        let waiting = run.release("staging", 41).await.ok(201).operation().clone();
        let approved = run.release("staging", 41).await.ok(201).operation().clone();
        asha.approve(id_of(&approved)).await.ok(200);
        let newer = run.release("staging", 42).await.ok(201).operation().clone();
        at_version(&asha, &run, 42).await;
        for op in [&waiting, &approved] {
            assert_eq!(run.read(op).await["state"], "conflicted");
            run.claim(op).await.refused(409, "invalid_state");
        }
        assert_eq!(run.read(&newer).await["state"], "pending");
        assert!(!app.events().await.iter().any(|event| event == "claim.abandoned"));
    }

    async fn a_new_operation_takes_the_place_of_one_that_waits(app: App) {
        let (asha, _, run) = app.world().await;
        let replace = |old: &Value, title: &str| {
            let mut body = ticket(title);
            body["supersedes"] = old["id"].clone();
            run.propose_as(&fresh_key(), body)
        };
        let first = run.ticket("Rotate").await;
        let second = replace(&first, "Rotate").await.ok(201).operation().clone();
        assert_eq!((&second["state"], &second["duplicate_of"]), (&json!("pending"), &Value::Null));
        let old = run.read(&first).await;
        assert_eq!((&old["state"], &old["safe_new_key"]), (&json!("superseded"), &json!(true)));
        asha.approve(id_of(&first)).await.refused(409, "invalid_state");
        asha.approve(id_of(&second)).await.ok(200);
        let third = replace(&second, "Rotate all").await.ok(201).operation().clone();
        run.claim(&second).await.refused(409, "invalid_state");
        run.claim(&third).await.refused(409, "not_approved");
        replace(&first, "Again").await.refused(409, "invalid_state");
        asha.approve(id_of(&third)).await.ok(200);
        run.take(&third).await;
        replace(&third, "Too late").await.refused(409, "invalid_state");

        let lapsed = run.ticket("Lapse").await;
        app.advance_s(900);
        let late = replace(&lapsed, "After").await.refused(409, "invalid_state");
        assert_eq!(late.body["state"], "expired");
    }

    async fn a_policy_grants_only_low_and_medium_risk_of_runs_that_said_what_they_write(app: App) {
        app.rules(json!([{"name": "trusted", "require": {"auto": true}}])).await;
        app.person("omar", "viewer", "").await;
        let agent = app.agent("deployer", "omar").await;
        let write_set = json!([
            {"resource": "project/ops", "verbs": ["create"]}, {"resource": "ticket/*", "verbs": ["transition"]},
            {"resource": "release/*", "verbs": ["deploy"]},
        ]);
        let run = agent.run(json!({"write_set": write_set})).await;
        let moved = json!({"kind": "ticket.transition", "params": {"ticket": "OPS-1", "from": "open", "to": "done"}});
        for (body, risk) in [(ticket("Rotate"), "low"), (moved, "medium")] {
            let op = run.propose_as(&fresh_key(), body).await.ok(201).operation().clone();
            assert_eq!((&op["state"], &op["risk"], &op["version"]), (&json!("approved"), &json!(risk), &json!(1)));
            assert_eq!(op["approval"]["approved_by"], json!(["policy:trusted"]));
            assert_eq!(run.complete(&op, succeeded("X-1")).await["state"], "succeeded");
        }
        for environment in ["staging", "prod-eu"] {
            assert_eq!(run.release(environment, 1).await.ok(201).operation()["state"], "pending");
        }
        assert_eq!(agent.run(json!({})).await.ticket("Without a set").await["state"], "pending");
        let granted: Vec<_> = app.audit().await.into_iter().filter(|record| record["event"] == "approval.auto_granted").collect();
        assert_eq!(granted.len(), 2);
        assert_eq!(granted[0]["actor"]["kind"], "policy");
    }

    async fn a_run_writes_only_what_it_said(app: App) {
        app.person("omar", "viewer", "").await;
        let agent = app.agent("deployer", "omar").await;
        let run = agent.run(json!({"write_set": [{"resource": "project/ops", "verbs": ["create"], "expires_in_s": 60}]})).await;
        let key = fresh_key();
        let refused = run.propose_as(&key, comment("c-1", "x")).await.refused(403, "outside_write_set");
        assert_eq!((&refused.body["resource"], &refused.body["verb"]), (&json!("ticket/OPS-1"), &json!("comment")));
        // 403 comes before 428.
        run.propose_as(&key, release("staging", Value::Null)).await.refused(403, "outside_write_set");
        run.propose_as(&key, ticket("Rotate")).await.ok(201);
        app.advance_s(60);
        run.propose_as(&fresh_key(), ticket("Later")).await.refused(403, "outside_write_set");
        run.propose_as(&key, ticket("Rotate")).await.ok(202);
    }

    // C16
    async fn a_noisy_agent_meets_its_own_limits_alone(app: App) {
        let (asha, _, run) = app.world().await;
        let app = app.restart(&[("COUNTERFOIL_OPEN_OPERATIONS_PER_AGENT", "20"), ("COUNTERFOIL_PROPOSALS_PER_MINUTE", "30")]).await;
        let (asha, run) = (asha.at(&app), run.at(&app));
        let quiet = app.agent("quiet", "omar").await.run(json!({})).await;
        let calls = (0..60).map(|i| run.propose_as(&fresh_key(), ticket(&format!("Noise {i}"))).into_future());
        let replies = join_all(calls).await;
        let of = |code: &str| replies.iter().filter(|reply| reply.code() == code).count();
        assert_eq!((of(""), of("open_operations_limit")), (20, 40));
        let mut long = ticket("x");
        long["reason"] = json!("x".repeat(5 << 20));
        run.propose_as(&fresh_key(), long).await.refused(413, "payload_too_large");
        quiet.ticket("Quiet").await;
        asha.get("operations").await.ok(200);

        // Nobody has recorded yet that the twenty have expired: they count as what they are.
        app.advance_s(900);
        let key = fresh_key();
        let op = run.propose_as(&key, ticket("Room again")).await.ok(201).operation().clone();
        for _ in 0..40 {
            run.propose_as(&key, ticket("Room again")).await.ok(202);
        }
        for i in 0..29 {
            let made = run.propose_as(&fresh_key(), ticket(&format!("More {i}"))).await.ok(201).operation().clone();
            run.post(&format!("operations/{}/cancel", id_of(&made)), json!({"reason": "room"})).await.ok(200);
        }
        let limited = run.propose_as(&fresh_key(), ticket("Too fast")).await.refused(429, "rate_limited");
        assert!(limited.header("retry-after").parse::<i64>().unwrap() >= 1);
        assert_eq!(limited.body["retryable"], true);
        quiet.ticket("Still quiet").await;
        assert_eq!(run.read(&op).await["state"], "pending");
    }

    async fn a_list_is_read_page_by_page_with_its_filters(app: App) {
        let (asha, _, run) = app.world().await;
        let mut ids = Vec::new();
        for i in 0..5 {
            app.clock.advance_ms(1);
            ids.push(run.ticket(&format!("Ticket {i}")).await["id"].clone());
            run.propose_as(&fresh_key(), comment(&format!("c-{i}"), "x")).await.ok(201);
        }
        ids.reverse();
        let mut path = "operations?state=pending&kind=ticket.create&limit=2".to_owned();
        let mut seen = Vec::new();
        loop {
            let page = asha.get(&path).await.ok(200);
            seen.extend(page.body["operations"].as_array().unwrap().iter().map(|op| op["id"].clone()));
            let link = page.header("link");
            assert_eq!(link.is_empty(), page.body["next_cursor"].is_null());
            let Some((_, next)) = link.split_once("/api/v1/") else { break };
            path = next.split_once('>').unwrap().0.to_owned();
        }
        assert_eq!(seen, ids);

        let clerk = app.agent("clerk", "omar").await;
        let own = clerk.run(json!({})).await;
        let theirs = own.ticket("Another agent's").await;
        let grave = own.release("staging", 1).await.ok(201).operation().clone();
        let list = async |reader: Call| -> Vec<Value> {
            let page = reader.await.ok(200);
            page.body["operations"].as_array().unwrap().iter().map(|op| op["id"].clone()).collect()
        };
        let of_clerk = format!("operations?agent={}", clerk.id);
        assert_eq!(list(asha.get(&of_clerk)).await, [grave["id"].clone(), theirs["id"].clone()]);
        assert_eq!(list(asha.get(&format!("{of_clerk}&risk=low"))).await, [theirs["id"].clone()]);
        assert_eq!(list(asha.get("operations?risk=high")).await, [grave["id"].clone()]);
        assert_eq!(list(own.get(&of_clerk)).await.len(), 2);
        assert!(list(run.get(&of_clerk)).await.is_empty(), "programs see their own");
        for bad in ["colour=red", "risk=none", "agent=clerk"] {
            asha.get(&format!("operations?{bad}")).await.refused(400, "bad_request");
        }
        asha.get("operations?state=lost").await.refused(400, "bad_request");
    }
}
