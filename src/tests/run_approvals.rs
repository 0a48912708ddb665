//! Run approvals: what a person approves of a run ahead of time, and what stays individual.

use axum::http::Method;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{App, Call, Person, Program, fresh_key, id_of, merge, on_both_databases, release};

/// Tickets may be moved, and nothing else.
fn scope(more: Value) -> Value {
    let mut body = json!({"kinds": ["ticket.*"], "targets": ["ticket/OPS-*"], "max_count": 3, "expires_in_s": 600});
    merge(&mut body, more);
    body
}

fn approve(person: &Person, run: &Program, more: Value) -> Call {
    person.post(&format!("runs/{}/approvals", run.id), scope(more))
}

async fn records(person: &Person, run: &Program) -> Value {
    person.get(&format!("runs/{}/approvals", run.id)).await.ok(200).body["approvals"].clone()
}

fn revoke(person: &Person, record: &Value) -> Call {
    let (run, id) = (record["run"].as_str().unwrap(), id_of(record));
    person.call(Method::DELETE, &format!("runs/{run}/approvals/{id}"))
}

/// A move of a ticket, as it is proposed; `version` is what it was planned on, or null.
fn move_of(ticket: &str, version: Value) -> Value {
    let params = json!({"ticket": ticket, "from": "open", "to": "done"});
    json!({"kind": "ticket.transition", "params": params, "expected_version": version})
}

async fn propose(run: &Program, body: Value) -> Value {
    run.propose_as(&fresh_key(), body).await.ok(201).operation().clone()
}

/// An approver, the agent's owner, and a run that may move tickets and release.
async fn world(app: &App) -> (Person, Person, Program) {
    let (asha, omar, _) = app.world().await;
    let set = json!([
        {"resource": "ticket/*", "verbs": ["transition", "comment"]},
        {"resource": "release/*", "verbs": ["deploy"]},
    ]);
    let run = app.agent("mover", "omar").await.run(json!({"write_set": set})).await;
    (asha, omar, run)
}

on_both_databases! {
    async fn what_is_inside_is_granted_with_the_records_id_and_the_rest_waits(app: App) {
        let (asha, _, run) = world(&app).await;
        let record = approve(&asha, &run, json!({"reason": "tonight"})).await.ok(201).body["approval"].clone();
        assert_eq!((&record["by"], &record["state"], &record["used"]), (&json!(asha.id), &json!("open"), &json!(0)));
        assert_eq!(record["expires_at"], "2026-12-01T00:10:00.000Z");
        let granted = propose(&run, move_of("OPS-1", json!(4))).await;
        assert_eq!(granted["state"], "approved");
        assert_eq!(granted["approval"]["run_approval"], json!({"id": record["id"], "by": asha.id, "by_name": "asha"}));
        assert_eq!(granted["approval"]["approved_by"], json!([asha.id]));

        let comment = json!({"kind": "ticket.comment", "params": {"ticket": "OPS-2", "comment_id": "c-1", "body": "Done"}});
        for outside in [
            move_of("OPS-2", json!(null)),
            move_of("WEB-1", json!(4)),
            move_of("OPS-1", json!(4)),
            comment,
            release("staging", json!(1)),
        ] {
            let waits = propose(&run, outside).await;
            assert_eq!((&waits["state"], &waits["approval"]["run_approval"]), (&json!("pending"), &json!(null)), "{waits}");
        }
        let sibling = app.agent("other", "omar").await.run(json!({"write_set": [{"resource": "ticket/*", "verbs": ["transition"]}]})).await;
        assert_eq!(propose(&sibling, move_of("OPS-5", json!(4))).await["state"], "pending");

        assert_eq!(records(&asha, &run).await[0]["used"], 1);
        let review = asha.get(&format!("operations/{}/review", id_of(&granted))).await.ok(200).body;
        assert_eq!(review["review"]["run_approval"]["id"], record["id"]);
        let decided = asha.approve(id_of(&granted)).await.refused(409, "already_decided");
        assert_eq!(decided.body["by"], asha.id);
        run.take(&granted).await;
        let log = app.audit().await;
        let record_of = |event: &str| log.iter().find(|entry| entry["event"] == event).unwrap();
        assert_eq!(record_of("admin.run_approved")["approval"], record["id"]);
        assert_eq!(record_of("admin.run_approved")["reason"], "up to 3 of ticket.* on ticket/OPS-* until 2026-12-01T00:10:00.000Z");
        let reason = record_of("approval.auto_granted")["reason"].as_str().unwrap();
        assert!(reason.contains(id_of(&record)) && reason.contains(&asha.id), "{reason}");
    }

    async fn of_twenty_racers_no_more_than_the_count_are_granted(app: App) {
        let (asha, _, run) = world(&app).await;
        let other = app.node(&[]).await;
        approve(&asha, &run, json!({"max_count": 7})).await.ok(201);
        let calls = (0..20).map(|i| {
            let run = if i % 2 == 0 { run.clone() } else { run.at(&other) };
            tokio::spawn(async move { propose(&run, move_of(&format!("OPS-{i}"), json!(4))).await })
        });
        let operations: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
        let count = |state: &str| operations.iter().filter(|op| op["state"] == state).count();
        assert_eq!((count("approved"), count("pending")), (7, 13));
        let record = records(&asha, &run).await[0].clone();
        assert_eq!((&record["used"], &record["state"]), (&json!(7), &json!("used_up")));
    }

    async fn a_revoked_record_grants_nothing_more_and_what_nobody_claimed_waits_again(app: App) {
        let (asha, omar, run) = world(&app).await;
        let record = approve(&asha, &run, json!({})).await.ok(201).body["approval"].clone();
        let (unspent, spent) = (propose(&run, move_of("OPS-1", json!(4))).await, propose(&run, move_of("OPS-2", json!(4))).await);
        let claim = run.take(&spent).await;
        let stranger = app.person("sven", "approver", "approvers").await;
        revoke(&stranger, &record).await.refused(403, "forbidden");
        let revoked = revoke(&omar, &record).await.ok(200).body["approval"].clone();
        assert_eq!((&revoked["state"], &revoked["revoked_by"]), (&json!("revoked"), &json!(omar.id)));
        assert_eq!(revoke(&asha, &record).await.ok(200).body["approval"]["revoked_by"], omar.id);

        let waits = run.read(&unspent).await;
        assert_eq!((&waits["state"], &waits["approval"]["run_approval"]), (&json!("pending"), &json!(null)));
        run.claim(&unspent).await.refused(409, "approval_withdrawn");
        run.report(&spent, "sent", &claim, json!({})).await.refused(409, "policy_changed");
        assert_eq!(propose(&run, move_of("OPS-3", json!(4))).await["state"], "pending");
        asha.approve(id_of(&unspent)).await.ok(200);
        run.take(&unspent).await;
        assert!(app.events().await.contains(&"admin.run_approval_revoked".to_owned()));
    }

    async fn an_expired_record_no_longer_stands_for_what_was_not_claimed(app: App) {
        let (asha, _, run) = world(&app).await;
        approve(&asha, &run, json!({"expires_in_s": 60})).await.ok(201);
        let (unspent, spent) = (propose(&run, move_of("OPS-1", json!(4))).await, propose(&run, move_of("OPS-2", json!(4))).await);
        app.advance_s(59);
        let claim = run.take(&spent).await;
        app.advance_s(1);
        run.report(&spent, "sent", &claim, json!({})).await.ok(200);
        run.claim(&unspent).await.refused(409, "policy_changed");
        assert_eq!(run.read(&unspent).await["state"], "pending");
        assert_eq!(propose(&run, move_of("OPS-3", json!(4))).await["state"], "pending");
        assert_eq!(records(&asha, &run).await[0]["state"], "expired");
    }

    async fn only_people_whom_the_rules_let_approve_it_grant_and_never_the_owner(app: App) {
        let (asha, omar, run) = world(&app).await;
        app.rules(json!([
            {"name": "two", "match": {"kind": "ticket.transition", "target": "ticket/OPS-2*"}, "require": {"approvals": 2}},
            {"name": "desk", "match": {"kind": "ticket.*", "target": "ticket/OPS-3*"}, "require": {"groups": ["desk"]}},
        ])).await;
        approve(&omar, &run, json!({})).await.refused(403, "self_approval");
        let viewer = app.person("vera", "viewer", "approvers").await;
        approve(&viewer, &run, json!({})).await.refused(403, "not_eligible");
        let elsewhere = app.person("nora", "approver", "finance").await;
        let refused = approve(&elsewhere, &run, json!({})).await.refused(403, "not_eligible");
        assert_eq!(refused.body["groups"], json!(["approvers", "desk"]));
        run.post(&format!("runs/{}/approvals", run.id), scope(json!({}))).await.refused(403, "humans_only");
        assert_eq!(app.events().await.iter().filter(|event| *event == "approval.refused").count(), 4);

        approve(&asha, &run, json!({})).await.ok(201);
        assert_eq!(propose(&run, move_of("OPS-2", json!(4))).await["state"], "pending", "two people are asked");
        assert_eq!(propose(&run, move_of("OPS-3", json!(4))).await["state"], "pending", "another group is asked");
        assert_eq!(propose(&run, move_of("OPS-1", json!(4))).await["state"], "approved");
        app.rules(json!([{"name": "all", "require": {"groups": ["desk"]}}])).await;
        let op = run.get("operations?state=approved").await.ok(200).body["operations"][0].clone();
        run.claim(&op).await.refused(409, "policy_changed");
    }

    async fn kinds_that_are_decided_one_at_a_time_are_refused_by_name(app: App) {
        let (asha, _, run) = world(&app).await;
        for (more, pointer) in [
            (json!({"kinds": ["ticket.*", "payment.*"]}), "/kinds/1"),
            (json!({"kinds": ["deployment.release"]}), "/kinds/0"),
            (json!({"kinds": ["ticket.create"]}), "/kinds/0"),
            (json!({"kinds": ["no.such"]}), "/kinds/0"),
            (json!({"kinds": ["Ticket"]}), "/kinds/0"),
            (json!({"kinds": []}), "/kinds"),
            (json!({"targets": []}), "/targets"),
            (json!({"targets": ["*"]}), "/targets/0"),
            (json!({"max_count": 0}), "/max_count"),
            (json!({"max_count": 1001}), "/max_count"),
            (json!({"expires_in_s": 0}), "/expires_in_s"),
            (json!({"expires_in_s": 604_801}), "/expires_in_s"),
            (json!({"reason": "x".repeat(1001)}), "/reason"),
        ] {
            let reply = approve(&asha, &run, more.clone()).await.refused(422, "validation_failed");
            assert_eq!(reply.body["errors"][0]["pointer"], pointer, "{more} {}", reply.text);
        }
        assert_eq!(records(&asha, &run).await, json!([]));
    }

    async fn only_a_live_run_that_said_what_it_writes_is_approved(app: App) {
        let (asha, omar, run) = world(&app).await;
        let open = app.agent("open", "omar").await.run(json!({})).await;
        approve(&asha, &open, json!({})).await.refused(403, "outside_write_set");
        let long = approve(&asha, &run, json!({"expires_in_s": 604_800})).await.ok(201).body["approval"].clone();
        assert_eq!(long["expires_at"], "2026-12-02T00:00:00.000Z", "no longer than its run");
        run.get(&format!("runs/{}/approvals", run.id)).await.ok(200);
        open.get(&format!("runs/{}/approvals", run.id)).await.refused(404, "not_found");
        omar.post(&format!("runs/{}/stop", run.id), json!({"reason": "done"})).await.ok(200);
        approve(&asha, &run, json!({})).await.refused(403, "run_stopped");
        asha.post("runs/run_00000000000000000000000000/approvals", scope(json!({}))).await.refused(404, "not_found");
    }
}
