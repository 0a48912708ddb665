//! The log: everything that happened is in it, and an export shows whether it is still the log that was written.

use axum::http::Method;
use counterfoil::{
    model::audit::{Verdict, verify::Reason},
    server::{service::audit, worker},
};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{App, fresh_key, id_of, on_both_databases, release, succeeded, ticket};

/// The place and the reason of a verdict that is not good.
fn fault(verdict: Verdict) -> (Option<u64>, Reason) {
    match verdict {
        Verdict::Tampered(tampered) => (tampered.seq, tampered.reason),
        other => panic!("{other}"),
    }
}

fn lines(export: &str) -> Vec<String> {
    export.lines().map(str::to_owned).collect()
}

fn text(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The last refusal on record, with who, by which route, and about which operation.
async fn last_refusal(app: &App) -> Value {
    app.audit().await.pop().unwrap()
}

on_both_databases! {
    async fn every_refused_attempt_is_on_record_with_its_code_and_its_author(app: App) {
        let (asha, omar, run) = app.world().await;
        let on_call = app.person("olga", "operator", "").await;
        let op = run.ticket("Rotate").await;
        let path = format!("operations/{}", id_of(&op));
        let bound = fresh_key();
        run.propose_as(&bound, ticket("Bound")).await.ok(201);
        let by_run = json!({"kind": "run", "id": run.id});
        let human = |id: &str| json!({"kind": "human", "id": id});

        let limited = app.agent("bounded", "omar").await.run(json!({"write_set": []})).await;
        limited.propose_as(&fresh_key(), ticket("x")).await.refused(403, "outside_write_set");
        let record = last_refusal(&app).await;
        assert_eq!((&record["event"], &record["status"], &record["actor"]["id"]), (&json!("proposal.refused"), &json!("outside_write_set"), &json!(limited.id)));
        assert_eq!(record["route"], "POST /api/v1/operations");

        let mut retry = ticket("x");
        retry["retry"] = json!(true);
        for (body, code) in [(release("staging", Value::Null), "precondition_required"), (retry, "unknown_key"), (json!({"kind": "ticket.create", "params": {}}), "validation_failed")] {
            run.propose_as(&fresh_key(), body).await;
            let record = last_refusal(&app).await;
            assert_eq!((&record["event"], &record["status"], &record["actor"]), (&json!("proposal.refused"), &json!(code), &by_run));
        }
        run.propose_as(&bound, ticket("Other content")).await.refused(409, "fingerprint_conflict");
        let record = last_refusal(&app).await;
        assert_eq!((&record["event"], &record["status"]), (&json!("operation.key_conflict"), &json!("fingerprint_conflict")));
        assert_eq!(record["key_ref"].as_str().unwrap().len(), 16);

        omar.approve(id_of(&op)).await.refused(403, "self_approval");
        let record = last_refusal(&app).await;
        assert_eq!((&record["event"], &record["status"], &record["actor"], &record["operation"]), (&json!("approval.refused"), &json!("self_approval"), &human(&omar.id), &op["id"]));
        assert_eq!(record["route"], "POST /api/v1/operations/{id}/decisions");
        on_call.approve(id_of(&op)).await.refused(403, "not_eligible");
        assert_eq!(last_refusal(&app).await["status"], "not_eligible");
        asha.decide(id_of(&op), "approve", json!({"review_digest": "sha256:0"})).await.refused(412, "stale_view");
        assert_eq!(last_refusal(&app).await["status"], "stale_view");
        asha.call(Method::DELETE, &format!("{path}/decisions")).await.refused(403, "not_eligible");
        assert_eq!(last_refusal(&app).await["event"], "approval.refused");

        let claimed = run.claim(&op).await.refused(409, "not_approved");
        let record = last_refusal(&app).await;
        assert_eq!((&record["event"], &record["status"], &record["actor"]), (&json!("claim.refused"), &json!("not_approved"), &by_run));
        assert_eq!(record["correlation"], claimed.header("x-correlation-id"));
        asha.approve(id_of(&op)).await.ok(200);
        let claim = run.take(&op).await;
        run.report(&op, "outcome", &claim, succeeded("T-1")).await.refused(409, "invalid_state");
        let record = last_refusal(&app).await;
        assert_eq!((&record["event"], &record["status"]), (&json!("report.refused"), &json!("invalid_state")));
        asha.post(&format!("{path}/cancel"), json!({"reason": "x"})).await.refused(403, "forbidden");
        assert_eq!(last_refusal(&app).await["status"], "forbidden");
        asha.post(&format!("{path}/resolution"), json!({"finding": "applied", "note": "x"})).await.refused(403, "forbidden");
        assert_eq!(last_refusal(&app).await["actor"], human(&asha.id));
    }

    async fn no_key_token_or_body_is_in_the_log(app: App) {
        let (asha, _, run) = app.world().await;
        let key = format!("canary-{}", fresh_key());
        let mut body = ticket("CANARY-TITLE");
        body["reason"] = json!("CANARY-REASON");
        let op = run.propose_as(&key, body.clone()).await.ok(201).operation().clone();
        run.propose_as(&key, body).await.ok(202);
        run.propose_as(&key, ticket("CANARY-OTHER")).await.refused(409, "fingerprint_conflict");
        asha.approve(id_of(&op)).await.ok(200);
        let response = json!({"status": "succeeded", "response": {"status": 200, "body": {"secret": "CANARY-BODY"}}});
        run.complete(&op, response).await;
        let export = app.export().await;
        for secret in [key.as_str(), "canary", "CANARY", run.token.as_str(), asha.cookie.split_once('=').unwrap().1] {
            assert!(!export.contains(secret), "{secret}");
        }
        let refs: Vec<_> = app.audit().await.iter().filter_map(|record| record["key_ref"].as_str().map(str::to_owned)).collect();
        assert_eq!(refs.len(), 3);
        assert!(refs.iter().all(|name| *name == refs[0]));
    }

    // Promise 14: every way through the life of an operation leaves a log that its rules allow.
    async fn a_long_day_leaves_a_log_that_verifies_anywhere(app: App) {
        let (asha, omar, run) = app.world().await;
        let admin = app.person("ada", "admin", "approvers").await;
        let on_call = app.person("olga", "operator", "approvers").await;
        let executor = app.executor("tracker", &["ticket.*"]).await;
        let agent = app.agent("fleet", "omar").await;
        let new = async |title: &str| {
            let op = run.ticket(title).await;
            asha.approve(id_of(&op)).await.ok(200);
            op
        };
        let path = |op: &Value, verb: &str| format!("operations/{}/{verb}", id_of(op));

        let done = new("Zertifikat \u{e4}ndern \u{1f511}").await;
        let claim = executor.send(&done).await;
        executor.report(&done, "accepted", &claim, json!({"provider_reference": "j-1"})).await.ok(200);
        executor.report(&done, "outcome", &claim, succeeded("j-1")).await.ok(200);
        run.complete(&new("Refused").await, json!({"status": "failed", "provider_status": "d\u{e9}clin\u{e9}"})).await;
        run.complete(&new("Overtaken").await, json!({"status": "conflicted"})).await;
        let withdrawn = new("Withdrawn").await;
        asha.call(Method::DELETE, &path(&withdrawn, "decisions")).await.ok(200);
        on_call.decide(id_of(&withdrawn), "reject", json!({"reason": "\u{202e}odd"})).await.ok(200);
        let cancelled = new("Cancelled").await;
        omar.post(&path(&cancelled, "cancel"), json!({"reason": "not needed"})).await.ok(200);
        let old = run.ticket("Superseded").await;
        let mut newer = ticket("Newer");
        newer["supersedes"] = old["id"].clone();
        run.propose_as(&fresh_key(), newer).await.ok(201);
        let key = fresh_key();
        run.propose_as(&key, release("staging", json!(3))).await.ok(201);
        let deployed = run.release("staging", 3).await.ok(201).operation().clone();
        asha.approve(id_of(&deployed)).await.ok(200);
        run.complete(&deployed, json!({"status": "succeeded", "provider_reference": "r", "resulting_version": 4})).await;
        run.release("staging", 3).await.refused(412, "stale_version");
        run.propose_as(&key, release("staging", json!(3))).await.ok(200);

        let abandoned = new("Taken over").await;
        let paused = run.take(&abandoned).await;
        app.clock.advance_ms(60_000);
        let taken = executor.take(&abandoned).await;
        run.report(&abandoned, "outcome", &paused, succeeded("late")).await.refused(409, "stale_fence");
        executor.report(&abandoned, "sent", &taken, json!({})).await.ok(200);
        executor.report(&abandoned, "outcome", &taken, succeeded("t-1")).await.ok(200);
        let (found, gone) = (new("Found").await, run.propose("ticket.create", "project/gone", json!({"project": "gone", "title": "Gone"})).await.ok(201).operation().clone());
        asha.approve(id_of(&gone)).await.ok(200);
        for op in [&found, &gone] {
            run.send(op).await;
        }
        app.clock.advance_ms(60_000);
        worker::sweep(&app.desk).await.unwrap();
        let seen = json!({"finding": "applied", "kind": "lookup", "reference": id_of(&found), "observed_at": "2026-12-01T00:01:00.123Z"});
        let seen = on_call.post(&path(&found, "evidence"), seen).await.ok(201).body["evidence"]["id"].clone();
        on_call.post(&path(&found, "resolution"), json!({"finding": "applied", "evidence": [seen], "note": "there"})).await.ok(200);
        let missing = json!({"finding": "not_applied", "kind": "lookup", "reference": id_of(&found), "observed_at": "2026-12-01T00:01:00Z"});
        let missing = on_call.post(&path(&found, "evidence"), missing).await.ok(201);
        assert_eq!(missing.operation()["disputed"], true);
        let ended = json!({"finding": "applied", "evidence": [seen], "note": "there all the same"});
        on_call.post(&path(&found, "resolution"), ended).await.ok(200);
        admin.post(&path(&gone, "resolution"), json!({"finding": "abandon", "note": "nobody knows"})).await.ok(200);

        app.rules(json!([{"name": "two", "require": {"approvals": 2, "one_reject": false}}])).await;
        let policy = new("Two").await;
        on_call.approve(id_of(&policy)).await.ok(200);
        app.rules(json!([{"name": "three", "require": {"approvals": 3}}])).await;
        run.claim(&policy).await;
        admin.approve(id_of(&policy)).await;
        app.rules(json!([{"name": "auto", "require": {"auto": true}}])).await;
        let trusted = agent.run(json!({"write_set": [{"resource": "project/*", "verbs": ["create"]}]})).await;
        trusted.complete(&trusted.ticket("Granted").await, json!({"status": "unknown"})).await;
        let unsent = trusted.propose("ticket.create", "project/web", json!({"project": "web", "title": "x"})).await.ok(201);
        trusted.post(&format!("runs/{}/stop", trusted.id), json!({"reason": "enough"})).await.ok(200);
        assert_eq!(run.get("operations").await.status, 200);
        assert_eq!(trusted.read(unsent.operation()).await["state"], "cancelled");
        let slow = run.ticket("Nobody looks").await;
        app.advance_s(7 * 24 * 3600);
        worker::sweep(&app.desk).await.unwrap();
        assert_eq!(run.read(&slow).await["state"], "expired");
        let pin = audit::checkpoint(&app.desk).await.unwrap().unwrap().note;

        // C37: from cold, on another node, with nothing but the key.
        let app = app.restart(&[]).await;
        let export = app.export().await;
        assert_eq!(app.verdict(&export).await.exit_code(), 0);
        let vkey = app.desk.signer().await.unwrap().verifier().to_string();
        let verdict = counterfoil::model::audit::verify(export.as_bytes(), &vkey, &[&pin]);
        assert!(matches!(&verdict, Verdict::Verified(verified) if verified.anchored_to.is_some()), "{verdict}");
        let used: std::collections::BTreeSet<_> = app.audit().await.iter().map(|record| record["event"].to_string()).collect();
        assert!(used.len() > 30, "{used:?}");

        // Any byte of any record.
        let lines = lines(&export);
        for seq in (0..lines.len() - 1).step_by(7) {
            let mut changed = lines.clone();
            let at = changed[seq].find("\"at\":").unwrap() + 9;
            let digit = if &changed[seq][at..=at] == "1" { "2" } else { "1" };
            changed[seq].replace_range(at..=at, digit);
            let (found, reason) = fault(app.verdict(&text(&changed)).await);
            assert_eq!(found, Some(seq as u64), "{reason}");
        }
        let mut cut = lines.clone();
        cut.remove(cut.len() - 2);
        assert!(matches!(fault(app.verdict(&text(&cut)).await).1, Reason::Truncated { .. } | Reason::Root { .. }));
        let shorter = text(&lines[..lines.len() - 1]);
        assert_eq!(fault(app.verdict(&shorter).await).1, Reason::NoCheckpoint);
    }

    // C36
    async fn honest_load_on_two_nodes_is_one_chain(app: App) {
        let (asha, _, run) = app.world().await;
        let other = app.node(&[]).await;
        let ops: Vec<_> = join_all((0..50).map(|i| {
            let node = if i % 2 == 0 { run.clone() } else { run.at(&other) };
            async move { node.ticket(&format!("Ticket {i}")).await }
        })).await;
        let work = ops.into_iter().enumerate().map(|(i, op)| {
            let (asha, run) = if i % 2 == 0 { (asha.at(&other), run.clone()) } else { (asha.clone(), run.at(&other)) };
            tokio::spawn(async move {
                asha.approve(id_of(&op)).await.ok(200);
                run.complete(&op, succeeded(&format!("T-{i}"))).await;
            })
        });
        for done in join_all(work).await {
            done.unwrap();
        }
        let records = app.audit().await;
        assert!(records.len() > 350, "{}", records.len());
        let prevs: std::collections::BTreeSet<_> = records.iter().map(|record| record["prev"].as_str().unwrap()).collect();
        assert_eq!(prevs.len(), records.len());
        assert!(records.iter().enumerate().all(|(i, record)| record["seq"] == i));
        let export = app.export().await;
        assert_eq!(other.verdict(&export).await.exit_code(), 0);

        let lines = lines(&export);
        let mut gap = lines.clone();
        gap.remove(100);
        let (seq, reason) = fault(app.verdict(&text(&gap)).await);
        assert!(seq == Some(100) && matches!(reason, Reason::Gap { .. }), "{seq:?} {reason}");
        let mut fork = lines.clone();
        fork.insert(101, lines[100].clone());
        let (_, reason) = fault(app.verdict(&text(&fork)).await);
        assert!(matches!(reason, Reason::Duplicate | Reason::Fork), "{reason}");
        let mut swapped = lines.clone();
        swapped.swap(100, 101);
        assert!(matches!(fault(app.verdict(&text(&swapped)).await).1, Reason::Gap { .. }));
        let mut changed = lines.clone();
        changed[100] = changed[100].replacen("\"resource\":\"project/ops\"", "\"resource\":\"project/opt\"", 1);
        if changed[100] != lines[100] {
            assert_eq!(fault(app.verdict(&text(&changed)).await).0, Some(100));
        }
    }

    async fn the_log_is_for_auditors_and_admins(app: App) {
        let (asha, _, run) = app.world().await;
        let auditor = app.person("udo", "auditor", "").await;
        let op = run.ticket("Rotate").await;
        for path in ["audit", "audit/export", "audit/checkpoint"] {
            asha.get(path).await.refused(403, "forbidden");
            run.get(path).await.refused(403, "humans_only");
            auditor.get(path).await.ok(200);
        }
        let told = auditor.get(&format!("audit?operation={}", id_of(&op))).await.ok(200);
        assert_eq!(told.body["records"][0]["event"], "operation.proposed");
        let exported = auditor.get("audit/export").await.ok(200);
        assert_eq!(app.verdict(&exported.text).await.exit_code(), 0);
    }
}
