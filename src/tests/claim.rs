//! Claims: an approval is spent once, in time, by the exact write it was given for.

use std::future::IntoFuture;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{App, Call, Person, Program, fresh_key, id_of, on_both_databases, succeeded, ticket};

/// A ticket proposed and approved.
async fn approved(approver: &Person, run: &Program, title: &str) -> Value {
    let op = run.ticket(title).await;
    approver.approve(id_of(&op)).await.ok(200);
    op
}

/// A deployment proposed and approved.
async fn release(approver: &Person, run: &Program, environment: &str) -> Value {
    let op = run.release(environment, 1).await.ok(201).operation().clone();
    approver.approve(id_of(&op)).await.ok(200);
    op
}

async fn events(app: &App, op: &Value) -> Vec<String> {
    let records = app.audit().await.into_iter().filter(|record| record["operation"] == op["id"]);
    records.map(|record| record["event"].as_str().unwrap().to_owned()).collect()
}

on_both_databases! {
    // Promise 2
    async fn of_twenty_claimers_on_two_nodes_one_wins(app: App) {
        let (asha, _, _) = app.world().await;
        let agent = app.agent("fleet", "omar").await;
        let other = app.node(&[]).await;
        let mut claimers = Vec::new();
        for i in 0..10 {
            claimers.push(agent.run(json!({"label": format!("run {i}")})).await);
            claimers.push(app.executor(&format!("executor {i}"), &["ticket.*"]).await);
        }
        let op = approved(&asha, &claimers[0], "Rotate").await;
        let calls = claimers.iter().enumerate().map(|(i, claimer)| {
            let claimer = if i % 4 < 2 { claimer.clone() } else { claimer.at(&other) };
            let call = claimer.claim(&op).into_future();
            tokio::spawn(async move { (claimer, call.await) })
        });
        let replies: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
        let (won, lost): (Vec<_>, Vec<_>) = replies.into_iter().partition(|(_, reply)| reply.status == 200);
        assert_eq!(won.len(), 1);
        for (_, reply) in lost {
            reply.refused(409, "already_claimed");
        }
        let (winner, reply) = &won[0];
        let claim = &reply.body["claim"];
        let again = winner.claim(&op).await.ok(200);
        assert_eq!((&again.body["claim"], again.header("etag")), (claim, reply.header("etag")), "its own claim comes back");
        for claimer in claimers.iter().filter(|claimer| claimer.id != winner.id) {
            claimer.report(&op, "sent", claim, json!({})).await.refused(409, "already_claimed");
        }
        winner.report(&op, "sent", claim, json!({})).await.ok(200);
        let events = events(&app, &op).await;
        for once in ["approval.spent", "operation.claimed", "effect.sent"] {
            assert_eq!(events.iter().filter(|event| *event == once).count(), 1, "{once}");
        }
        assert_eq!(events.iter().filter(|event| *event == "claim.refused").count(), 19);
    }

    // Promise 1
    async fn any_other_fingerprint_spends_nothing(app: App) {
        let (asha, _, run) = app.world().await;
        let op = approved(&asha, &run, "Rotate").await;
        let other = approved(&asha, &run, "Revoke").await;
        let path = format!("operations/{}/claim", id_of(&op));
        let refused = run.post(&path, json!({"fingerprint": other["fingerprint"]})).await.refused(409, "approval_mismatch");
        assert_eq!(refused.body["fingerprint"], op["fingerprint"]);
        let upper = op["fingerprint"].as_str().unwrap().to_uppercase().replace("SHA256", "sha256");
        for bad in [json!(upper), json!(""), json!("sha256:00"), Value::Null, json!(7)] {
            run.post(&path, json!({"fingerprint": bad})).await.refused(422, "validation_failed");
        }
        run.post(&path, json!({})).await.refused(422, "validation_failed");
        let read = run.read(&op).await;
        assert_eq!((&read["state"], &read["approval"]["spent_at"]), (&json!("approved"), &Value::Null));
        let claim = run.take(&op).await;
        for (member, from) in [("downstream_key", "id"), ("fingerprint", "fingerprint"), ("params", "params"), ("target", "target"), ("kind", "kind")] {
            assert_eq!(claim[member], op[from], "{member}");
        }
        run.report(&op, "sent", &claim, json!({"fingerprint": other["fingerprint"]})).await.refused(409, "approval_mismatch");
        assert_eq!(run.read(&op).await["may_have_applied"], false);
        run.report(&op, "sent", &claim, json!({})).await.ok(200);
    }

    // C08, promise 1
    async fn an_approval_fits_one_command_and_none_that_comes_later(app: App) {
        let (asha, _, run) = app.world().await;
        let ada = app.person("ada", "admin", "").await;
        for name in ["acme.pay", "acme.hold"] {
            let kind = json!({
                "name": name, "title": "Pay", "headline": "asks to pay for {order}", "target": "order/{order}", "verb": "pay",
                "consequence": "Pays", "rollback": "Cannot be undone", "risk": "low",
                "schema": {
                    "type": "object", "additionalProperties": false, "required": ["order", "amount_minor"],
                    "properties": {"order": {"type": "string"}, "amount_minor": {"type": "integer", "minimum": 1}},
                },
            });
            ada.post("kinds", kind).await.ok(201);
        }
        let body = |kind: &str, amount: i64| json!({"kind": kind, "target": "order/7", "params": {"order": "7", "amount_minor": amount}});
        let key = fresh_key();
        let op = run.propose_as(&key, body("acme.pay", 1000)).await.ok(201).operation().clone();
        asha.approve(id_of(&op)).await.ok(200);
        let before = run.read(&op).await;

        let conflict = run.propose_as(&key, body("acme.pay", 1010)).await.refused(409, "fingerprint_conflict");
        assert_eq!(conflict.body["differs"], json!(["/params/amount_minor"]));
        assert_eq!(events(&app, &op).await.last().unwrap(), "operation.key_conflict");
        let path = format!("operations/{}/claim", id_of(&op));
        for (kind, amount) in [("acme.pay", 1010), ("acme.hold", 1000), ("acme.hold", 1010)] {
            let other = run.propose_as(&fresh_key(), body(kind, amount)).await.ok(201).operation().clone();
            assert_ne!(other["fingerprint"], op["fingerprint"]);
            run.post(&path, json!({"fingerprint": other["fingerprint"]})).await.refused(409, "approval_mismatch");
            run.claim(&other).await.refused(409, "not_approved");
            let after = run.read(&op).await;
            for member in ["state", "version", "approval", "attempts", "may_have_applied"] {
                assert_eq!(after[member], before[member], "{member}");
            }
        }

        let traced = |call: Call| call.header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").header("x-request-id", "7");
        let again = traced(run.propose_as(&key, body("acme.pay", 1000))).await.ok(202);
        assert_eq!((&again.body["disposition"], &again.operation()["fingerprint"]), (&json!("in_progress"), &op["fingerprint"]));
        let claim = traced(run.claim(&op)).await.ok(200).body["claim"].clone();
        assert_eq!(claim["params"]["amount_minor"], 1000);
    }

    // C09 (a)
    async fn what_nobody_runs_stays_approved_until_its_deadline_and_is_then_run_once(app: App) {
        let (asha, _, run) = app.world().await;
        let op = run.ticket("Rotate").await;
        let path = format!("operations/{}?wait=30", id_of(&op));
        let poll = tokio::spawn(run.get(&path).header("if-none-match", "\"1\"").into_future());
        poll.abort();
        asha.approve(id_of(&op)).await.ok(200);
        let app = app.restart(&[]).await;
        let (asha, run) = (asha.at(&app), run.at(&app));
        app.advance_s(300);
        let read = run.read(&op).await;
        assert_eq!((&read["state"], &read["claim"]), (&json!("approved"), &Value::Null));
        let page = asha.get(&format!("/operations/{}", id_of(&op))).header("accept", "text/html").await.ok(200);
        let deadline = read["execution_deadline"].as_str().unwrap();
        assert!(page.text.contains(&format!("datetime=\"{deadline}\"")), "{deadline}");
        run.complete(&op, succeeded("T-1")).await;
        let executor = app.executor("tickets", &["ticket.*"]).await;
        executor.claim(&op).await.refused(409, "invalid_state");
        assert_eq!(events(&app, &op).await.iter().filter(|event| *event == "effect.sent").count(), 1);
    }

    // C09 (b)
    async fn a_waiting_run_and_its_executors_all_claim_and_one_does(app: App) {
        let (asha, _, run) = app.world().await;
        let other = app.node(&[]).await;
        let op = run.ticket("Rotate").await;
        let executors = [app.executor("one", &["ticket.*"]).await, app.executor("two", &["*"]).await.at(&other)];
        let path = format!("operations/{}?wait=30", id_of(&op));
        let claims: Vec<_> = executors.into_iter().chain([run.clone()]).map(|claimer| {
            let (op, path) = (op.clone(), path.clone());
            tokio::spawn(async move {
                claimer.get(&path).header("if-none-match", "\"1\"").await.ok(200);
                let reply = claimer.claim(&op).await;
                (claimer, reply)
            })
        }).collect();
        asha.approve(id_of(&op)).await.ok(200);
        let mut effects = 0;
        for claim in claims {
            let (claimer, reply) = claim.await.unwrap();
            if reply.status == 200 {
                effects += 1;
                claimer.report(&op, "sent", &reply.body["claim"], json!({})).await.ok(200);
            } else {
                reply.refused(409, "already_claimed");
            }
        }
        assert_eq!(effects, 1);
    }

    // C10, promise 3
    async fn what_was_approved_runs_in_time_or_never(app: App) {
        app.rules(json!([{"name": "quick", "require": {"approval_ttl_s": 5, "execution_ttl_s": 5}}])).await;
        let (asha, _, run) = app.world().await;
        let late_claim = approved(&asha, &run, "Late claim").await;
        app.clock.advance_ms(5_001);
        let refused = run.claim(&late_claim).await.refused(409, "approval_expired");
        assert_eq!(refused.body["state"], "expired");
        assert_eq!(run.read(&late_claim).await["state"], "expired");

        let late_sent = approved(&asha, &run, "Late sent").await;
        app.clock.advance_ms(4_800);
        let claim = run.take(&late_sent).await;
        app.clock.advance_ms(200);
        run.report(&late_sent, "sent", &claim, json!({})).await.refused(409, "approval_expired");
        run.report(&late_sent, "heartbeat", &claim, json!({})).await.refused(409, "approval_expired");
        let read = run.read(&late_sent).await;
        assert_eq!((&read["state"], &read["may_have_applied"], &read["attempts"][0]["result"]), (&json!("expired"), &json!(false), &json!("unsent")));
        assert_eq!(events(&app, &late_sent).await[3..], ["approval.spent", "operation.claimed", "operation.expired", "report.refused", "report.refused"]);
        asha.approve(id_of(&late_sent)).await.refused(409, "approval_expired");

        let unasked = run.ticket("Unasked").await;
        app.clock.advance_ms(5_000);
        run.claim(&unasked).await.refused(409, "approval_expired");
    }

    // C24 (i), row 12
    async fn a_claim_nobody_used_is_taken_over_and_its_holder_is_stale(app: App) {
        let (asha, _, _) = app.world().await;
        let agent = app.agent("fleet", "omar").await;
        let (first, second) = (agent.run(json!({})).await, app.executor("tracker", &["ticket.*"]).await);
        let op = approved(&asha, &first, "Rotate").await;
        let paused = first.take(&op).await;
        app.clock.advance_ms(59_999);
        second.claim(&op).await.refused(409, "already_claimed");
        app.clock.advance_ms(1);
        first.report(&op, "sent", &paused, json!({})).await.refused(409, "invalid_state");
        let taken = second.take(&op).await;
        assert_eq!((&paused["claim_fence"], &taken["claim_fence"]), (&json!(1), &json!(2)));
        assert_eq!(taken["downstream_key"], paused["downstream_key"], "the same on every attempt");
        second.report(&op, "sent", &taken, json!({})).await.ok(200);

        // Promise 9: whatever the paused one sends now is refused, and what it says happened is kept.
        for verb in ["sent", "heartbeat"] {
            first.report(&op, verb, &paused, json!({})).await.refused(409, "stale_fence");
        }
        first.report(&op, "accepted", &paused, json!({"provider_reference": "T-0"})).await.refused(409, "stale_fence");
        app.clock.advance_ms(1);
        let late = first.report(&op, "outcome", &paused, succeeded("T-0")).await.refused(409, "stale_fence");
        let evidence = first.get(&format!("operations/{}/evidence", id_of(&op))).await.ok(200).body["evidence"].clone();
        let kept = evidence.as_array().unwrap().last().unwrap();
        assert_eq!((&kept["id"], &kept["kind"], &kept["finding"], &kept["reference"]), (&late.body["evidence"], &json!("late_report"), &json!("applied"), &json!("T-0")));
        assert!(events(&app, &op).await.contains(&"fence.rejected".to_owned()));

        let done = second.report(&op, "outcome", &taken, succeeded("T-1")).await.ok(200);
        assert_eq!(done.operation()["outcome"]["provider_reference"], "T-1");
        let results: Vec<_> = done.operation()["attempts"].as_array().unwrap().iter().map(|attempt| attempt["result"].clone()).collect();
        assert_eq!(results, ["unsent", "succeeded"]);
        assert_eq!(events(&app, &op).await.iter().filter(|event| *event == "approval.spent").count(), 1);
    }

    // C24 (i)
    async fn time_alone_makes_no_effect_of_a_claim_without_sent(app: App) {
        let (asha, _, run) = app.world().await;
        let key = fresh_key();
        let op = run.propose_as(&key, ticket("Rotate")).await.ok(201).operation().clone();
        asha.approve(id_of(&op)).await.ok(200);
        run.take(&op).await;
        for s in [1, 60] {
            app.advance_s(s);
            assert_eq!(run.propose_as(&key, ticket("Rotate")).await.ok(202).operation()["state"], "claimed");
        }
        app.advance_s(24 * 3600 - 61);
        let replay = run.propose_as(&key, ticket("Rotate")).await.ok(200);
        assert_eq!((&replay.body["disposition"], &replay.operation()["state"], &replay.operation()["may_have_applied"]), (&json!("replayed"), &json!("expired"), &json!(false)));
        assert!(!events(&app, &op).await.contains(&"effect.sent".to_owned()));
    }

    async fn heartbeats_keep_a_claim_for_fifteen_minutes_at_most(app: App) {
        app.rules(json!([{"name": "slow", "require": {"execution_ttl_s": 7200}}])).await;
        let (asha, _, run) = app.world().await;
        let op = approved(&asha, &run, "Rotate").await;
        let claim = run.take(&op).await;
        let beat = || run.report(&op, "heartbeat", &claim, json!({}));
        for _ in 0..18 {
            app.advance_s(50);
            if app.clock.now().to_string().as_str() >= "2026-12-01T00:15:00.000Z" {
                break;
            }
            beat().await.ok(200);
        }
        assert_eq!(run.read(&op).await["claim"]["deadline_at"], "2026-12-01T00:15:00.000Z");
        beat().await.refused(409, "invalid_state");
        assert_eq!(run.take(&op).await["claim_fence"], 2);
        beat().await.refused(409, "stale_fence");
    }

    async fn an_executor_serves_the_kinds_it_names_and_sees_no_others(app: App) {
        let (asha, _, run) = app.world().await;
        let tickets = app.executor("tickets", &["ticket.*"]).await;
        let exact = app.executor("exact", &["ticket.comment", "payment.refund"]).await;
        let op = approved(&asha, &run, "Rotate").await;
        let path = format!("operations/{}", id_of(&op));
        exact.get(&path).await.refused(404, "not_found");
        exact.claim(&op).await.refused(404, "not_found");
        assert_eq!(exact.get("operations").await.ok(200).body["operations"], json!([]));
        exact.post("operations", ticket("x")).header("idempotency-key", &fresh_key()).await.refused(403, "forbidden");
        assert_eq!(tickets.get("operations").await.ok(200).body["operations"][0]["id"], op["id"]);
        let claim = tickets.take(&op).await;
        exact.report(&op, "sent", &claim, json!({})).await.refused(404, "not_found");
        run.report(&op, "sent", &claim, json!({})).await.refused(409, "already_claimed");
        assert_eq!(tickets.report(&op, "sent", &claim, json!({})).await.ok(200).operation()["claim"]["by"], tickets.id);
        let agent = app.agent("second", "omar").await;
        agent.claim(&op).await.refused(403, "forbidden");
        asha.post(&format!("{path}/claim"), json!({"fingerprint": op["fingerprint"]})).await.refused(403, "forbidden");
    }

    // Promise 10: an unknown outcome holds its target.
    async fn nobody_writes_to_a_target_whose_last_outcome_is_unknown(app: App) {
        let (asha, _, run) = app.world().await;
        let admin = app.person("ada", "admin", "").await;
        let lost = release(&asha, &run, "staging").await;
        // However many wait on the same target, the one that matters is found.
        let waiting = join_all((0..210).map(|_| run.release("staging", 7).into_future())).await;
        assert!(waiting.iter().all(|reply| reply.status == 201));
        let unknown = release(&asha, &run, "staging").await;
        run.send(&unknown).await;
        app.advance_s(60);
        let refused = run.claim(&lost).await.refused(409, "outcome_unknown");
        assert_eq!((&refused.body["blocking_operation"], &refused.body["retry"]["mode"]), (&unknown["id"], &json!("operator")));
        assert_eq!(run.read(&lost).await["approval"]["spent_at"], Value::Null);
        let elsewhere = release(&asha, &run, "prod-eu").await;
        run.send(&elsewhere).await;

        // Given up without proof it still counts as possibly applied.
        let given_up = json!({"finding": "abandon", "note": "the cluster is gone"});
        admin.post(&format!("operations/{}/resolution", id_of(&unknown)), given_up).await.ok(200);
        let refused = run.claim(&lost).await.refused(409, "outcome_unknown");
        assert_eq!(refused.body["blocking_operation"], unknown["id"]);
    }

    async fn a_disputed_success_holds_its_target_until_it_is_resolved(app: App) {
        let (asha, _, run) = app.world().await;
        let on_call = app.person("olga", "operator", "").await;
        let first = release(&asha, &run, "staging").await;
        let done = run.complete(&first, succeeded("rel-1")).await;
        assert_eq!(done["state"], "succeeded");
        let next = release(&asha, &run, "staging").await;
        let stated = json!({"finding": "not_applied", "kind": "lookup", "reference": "rel-1", "observed_at": "2026-12-01T00:00:00.000Z"});
        let added = on_call.post(&format!("operations/{}/evidence", id_of(&first)), stated).await.ok(201);
        assert_eq!((&added.operation()["state"], &added.operation()["disputed"], &added.operation()["safe_new_key"]), (&json!("succeeded"), &json!(true), &json!(false)));
        run.claim(&next).await.refused(409, "outcome_unknown");
        let found = json!({"finding": "not_applied", "evidence": [added.body["evidence"]["id"]], "note": "it was rolled back at once"});
        let resolved = on_call.post(&format!("operations/{}/resolution", id_of(&first)), found).await.ok(200);
        assert_eq!(resolved.operation()["disputed"], false);
        run.take(&next).await;
    }

    async fn an_environment_takes_one_deployment_at_a_time(app: App) {
        let (asha, _, run) = app.world().await;
        let (first, second) = (release(&asha, &run, "staging").await, release(&asha, &run, "staging").await);
        let claim = run.take(&first).await;
        let refused = run.claim(&second).await.refused(409, "release_locked");
        assert_eq!((&refused.body["holder"], &refused.body["retryable"]), (&first["id"], &json!(true)));
        run.report(&first, "sent", &claim, json!({})).await.ok(200);
        run.report(&first, "accepted", &claim, json!({"provider_reference": "dep-1"})).await.ok(200);
        run.claim(&second).await.refused(409, "release_locked");
        run.report(&first, "outcome", &claim, json!({"status": "failed", "provider_status": "canceled"})).await.ok(200);
        run.take(&second).await;
        let third = release(&asha, &run, "staging").await;
        run.claim(&third).await.refused(409, "release_locked");
        // The claim that nobody used gives the lock back with its operation.
        app.advance_s(600);
        assert_eq!(run.read(&second).await["state"], "expired");
        let fourth = release(&asha, &run, "staging").await;
        run.take(&fourth).await;
    }

    async fn a_claim_on_a_version_that_has_passed_ends_as_a_conflict(app: App) {
        let (asha, _, run) = app.world().await;
        let (first, second) = (release(&asha, &run, "staging").await, release(&asha, &run, "staging").await);
        let mut outcome = succeeded("rel-1");
        outcome["resulting_version"] = json!(2);
        run.complete(&first, outcome).await;
        let refused = run.claim(&second).await.refused(409, "invalid_state");
        assert_eq!(refused.body["state"], "conflicted");
        assert_eq!(run.read(&second).await["approval"]["spent_at"], Value::Null);
    }

    async fn a_pause_stops_claims_and_sends_and_freezes_no_deadline(app: App) {
        let (asha, _, run) = app.world().await;
        let admin = app.person("ada", "admin", "").await;
        let waiting = approved(&asha, &run, "Waiting").await;
        let claimed = approved(&asha, &run, "Claimed").await;
        let claim = run.take(&claimed).await;
        let sent = approved(&asha, &run, "Sent").await;
        let sent_claim = run.send(&sent).await;
        asha.post("pause", json!({"reason": "x"})).await.refused(403, "forbidden");
        admin.post("pause", json!({"reason": "change freeze"})).await.ok(200);
        let refused = run.claim(&waiting).await.refused(503, "paused");
        assert_eq!((&refused.body["retryable"], refused.header("retry-after").is_empty()), (&json!(true), false));
        run.report(&claimed, "sent", &claim, json!({})).await.refused(503, "paused");
        run.report(&sent, "outcome", &sent_claim, succeeded("T-1")).await.ok(200);
        let proposed = run.ticket("Proposed meanwhile").await;
        asha.approve(id_of(&proposed)).await.ok(200);
        assert_eq!(run.read(&waiting).await["approval"]["spent_at"], Value::Null);
        // Another reason comes before the pause.
        run.post(&format!("operations/{}/claim", id_of(&waiting)), json!({"fingerprint": claimed["fingerprint"]})).await.refused(409, "approval_mismatch");
        app.advance_s(600);
        run.claim(&waiting).await.refused(409, "approval_expired");
        admin.call(axum::http::Method::DELETE, "pause").await.ok(204);
        assert_eq!(run.read(&claimed).await["state"], "expired");
    }

    async fn a_run_that_ended_or_lost_its_write_set_starts_nothing(app: App) {
        let (asha, _, _) = app.world().await;
        let agent = app.agent("fleet", "omar").await;
        let bounded = agent.run(json!({"write_set": [{"resource": "project/ops", "verbs": ["create"], "expires_in_s": 100}]})).await;
        let op = approved(&asha, &bounded, "Rotate").await;
        let claim = bounded.take(&op).await;
        let unclaimed = approved(&asha, &bounded, "Unclaimed").await;
        bounded.report(&op, "heartbeat", &claim, json!({})).await.ok(200);
        app.advance_s(50);
        bounded.report(&op, "heartbeat", &claim, json!({})).await.ok(200);
        app.advance_s(50);
        bounded.report(&op, "sent", &claim, json!({})).await.refused(403, "outside_write_set");
        bounded.claim(&unclaimed).await.refused(403, "outside_write_set");
        assert_eq!(bounded.read(&unclaimed).await["state"], "approved", "a lost write set changes nothing");
        agent.run(json!({})).await.take(&unclaimed).await;

        let stopped = agent.run(json!({})).await;
        let (sent, unsent) = (approved(&asha, &stopped, "Sent").await, approved(&asha, &stopped, "Unsent").await);
        let claim = stopped.send(&sent).await;
        stopped.post(&format!("runs/{}/stop", stopped.id), json!({"reason": "enough"})).await.ok(200);
        assert_eq!(stopped.read(&unsent).await["state"], "cancelled");
        stopped.claim(&unsent).await.refused(403, "run_stopped");
        assert_eq!(stopped.report(&sent, "outcome", &claim, succeeded("T-1")).await.ok(200).operation()["state"], "succeeded");
    }

    // The order of refusals: right, expired, terminal, not approved, fingerprint, claimed, unknown, hold.
    async fn the_first_reason_to_refuse_a_claim_is_the_one_named(app: App) {
        let (asha, _, run) = app.world().await;
        let admin = app.person("ada", "admin", "").await;
        let second = app.agent("second", "omar").await.run(json!({})).await;
        let op = run.ticket("Rotate").await;
        let other = run.ticket("Other").await;
        admin.post("pause", json!({"reason": "freeze"})).await.ok(200);
        let wrong = || run.post(&format!("operations/{}/claim", id_of(&op)), json!({"fingerprint": other["fingerprint"]}));
        second.claim(&op).await.refused(404, "not_found");
        wrong().await.refused(409, "not_approved");
        asha.approve(id_of(&op)).await.ok(200);
        wrong().await.refused(409, "approval_mismatch");
        run.claim(&op).await.refused(503, "paused");
        admin.call(axum::http::Method::DELETE, "pause").await.ok(204);
        run.send(&op).await;
        wrong().await.refused(409, "approval_mismatch");
        app.executor("tracker", &["*"]).await.claim(&op).await.refused(409, "already_claimed");
        app.advance_s(60);
        wrong().await.refused(409, "approval_mismatch");
        run.claim(&op).await.refused(409, "outcome_unknown");
        asha.decide(id_of(&other), "reject", json!({})).await.ok(200);
        let refused = run.claim(&other).await.refused(409, "invalid_state");
        assert_eq!((&refused.body["state"], &refused.body["safe_new_key"]), (&json!("rejected"), &json!(true)));
    }
}
