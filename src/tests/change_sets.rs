//! Change sets: what is done stays done, what is missing is done again, and what was done is undone backwards.

use std::future::IntoFuture;

use counterfoil::server::{service::change_set, worker};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{App, Call, Person, Program, fresh_key, id_of, merge, on_both_databases, succeeded};

fn refund() -> Value {
    let params = json!({"order": "4711", "original_transaction": "ch_1", "amount_minor": 1900, "currency": "EUR"});
    json!({"kind": "payment.refund", "params": params, "reason": "the parcel was lost"})
}

fn notice(id: &str) -> Value {
    json!({"kind": "ticket.comment", "params": {"ticket": "T-1", "comment_id": id, "body": "The money is on its way"}})
}

/// A ticket whose compensation closes another one of the same number.
fn ticket(n: i64) -> Value {
    let params = json!({"project": "ops", "title": format!("Rotate {n}")});
    let undo = json!({"ticket": format!("OPS-{n}"), "from": "open", "to": "closed"});
    json!({
        "kind": "ticket.create", "target": "project/ops", "params": params,
        "compensation": {"kind": "ticket.transition", "params": undo},
    })
}

fn set(title: &str, steps: &[Value]) -> Value {
    json!({"title": title, "steps": steps})
}

impl Program {
    fn open_as(&self, key: &str, body: Value) -> Call {
        self.post("change-sets", body).header("idempotency-key", key)
    }

    /// A set newly opened, as its document.
    async fn open_set(&self, steps: &[Value]) -> Value {
        self.open_as(&fresh_key(), set("Refund 4711", steps)).await.ok(201).body["change_set"].clone()
    }

    async fn set(&self, set: &Value) -> Value {
        self.get(&format!("change-sets/{}", id_of(set))).await.ok(200).body["change_set"].clone()
    }

    fn redo(&self, set: &Value, body: Value) -> Call {
        self.post(&format!("change-sets/{}/redo", id_of(set)), body)
    }

    /// The operation of a step, from 1, or what undoes it.
    async fn part(&self, set: &Value, step: usize, part: &str) -> Value {
        let set = self.set(set).await;
        let reference = &set["steps"][step - 1][part];
        assert!(reference.is_object(), "{set:#}");
        self.read(reference).await
    }

    async fn operations(&self) -> usize {
        self.get("operations?limit=200").await.ok(200).body["operations"].as_array().unwrap().len()
    }
}

impl Person {
    fn compensate(&self, set: &Value, reason: &str) -> Call {
        self.post(&format!("change-sets/{}/compensate", id_of(set)), json!({"reason": reason}))
    }
}

/// Approves the operation, carries it out with this outcome, and lets the desk go on.
async fn finish(app: &App, asha: &Person, run: &Program, op: &Value, outcome: Value) -> Value {
    asha.approve(id_of(op)).await.ok(200);
    let done = run.complete(op, outcome).await;
    change_set::step(&app.desk).await.unwrap();
    done
}

fn failed() -> Value {
    json!({"status": "failed"})
}

/// Where the set waits: the step, and for what.
fn waits(set: &Value) -> (i64, &str) {
    let waits = &set["waits_for"];
    (waits["step"].as_i64().unwrap_or(0), waits["progress"].as_str().unwrap_or_default())
}

on_both_databases! {
    async fn a_failed_notification_after_a_refund_redoes_only_the_notification(app: App) {
        let (asha, _, run) = app.world().await;
        let opened = run.open_set(&[refund(), notice("c1")]).await;
        assert_eq!((&opened["state"], waits(&opened)), (&json!("open"), (1, "decision")));
        assert_eq!((run.operations().await, change_set::step(&app.desk).await.unwrap()), (1, 0));
        let money = run.part(&opened, 1, "operation").await;
        assert_eq!((&money["kind"], &money["reason"]), (&json!("payment.refund"), &json!("the parcel was lost")));
        assert!(money["idempotency_key"].as_str().unwrap().starts_with(id_of(&opened)), "{money}");

        finish(&app, &asha, &run, &money, succeeded("re_1")).await;
        let first = run.part(&opened, 2, "operation").await;
        finish(&app, &asha, &run, &first, failed()).await;
        let waiting = run.set(&opened).await;
        assert_eq!((&waiting["state"], waits(&waiting)), (&json!("open"), (2, "missing")));

        let other = json!({"step": 2, "params": notice("c2")["params"]});
        let again = run.redo(&opened, other.clone()).await.ok(200).body["change_set"].clone();
        assert_eq!(waits(&again), (2, "decision"));
        let second = run.part(&opened, 2, "operation").await;
        assert_eq!((&second["links"]["replans"], &second["params"]["comment_id"]), (&first["id"], &json!("c2")));
        assert_eq!(run.part(&opened, 1, "operation").await["id"], money["id"]);
        let repeated = run.redo(&opened, other).await.ok(200).body["change_set"].clone();
        assert_eq!(repeated["version"], again["version"], "a lost answer is asked for again");
        run.redo(&opened, json!({"step": 2, "params": notice("c3")["params"]})).await.refused(409, "invalid_state");
        run.redo(&opened, json!({"step": 1, "params": refund()["params"], "reason": "x"})).await.refused(409, "invalid_state");

        finish(&app, &asha, &run, &second, succeeded("c2")).await;
        let done = run.set(&opened).await;
        assert_eq!((&done["state"], &done["waits_for"]), (&json!("done"), &Value::Null));
        assert_eq!((run.operations().await, change_set::step(&app.desk).await.unwrap()), (3, 0));
        let records = app.audit().await;
        let events: Vec<_> = records.iter().filter(|r| r["event"].as_str().unwrap().starts_with("change_set."))
            .map(|r| (r["event"].as_str().unwrap(), r["resource"].as_str().unwrap().to_owned())).collect();
        let resource = format!("change-set/{}", id_of(&opened));
        let expected = ["change_set.opened", "change_set.resumed", "change_set.done"];
        assert_eq!(events, expected.map(|event| (event, resource.clone())));
        let proposed = records.iter().find(|r| r["event"] == "operation.proposed" && r["operation"] == second["id"]).unwrap();
        assert_eq!(proposed["reason"], format!("step 2 of {}, `Refund 4711`", id_of(&opened)));
    }

    async fn a_step_that_was_rejected_expired_or_cancelled_waits_for_its_run(app: App) {
        let (asha, _, run) = app.world().await;
        let opened = run.open_set(&[ticket(1)]).await;
        let rejected = run.part(&opened, 1, "operation").await;
        asha.decide(id_of(&rejected), "reject", json!({})).await.ok(200);
        change_set::step(&app.desk).await.unwrap();
        assert_eq!(waits(&run.set(&opened).await), (1, "missing"));

        run.redo(&opened, json!({})).await.ok(200);
        app.advance_s(900);
        assert_eq!(waits(&run.set(&opened).await), (1, "missing"), "expired, though nobody has recorded it");
        worker::sweep(&app.desk).await.unwrap();
        assert_eq!(run.operations().await, 2, "nothing is done again by itself");

        run.redo(&opened, json!({})).await.ok(200);
        let third = run.part(&opened, 1, "operation").await;
        run.post(&format!("operations/{}/cancel", id_of(&third)), json!({"reason": "not now"})).await.ok(200);
        worker::sweep(&app.desk).await.unwrap();
        assert_eq!((waits(&run.set(&opened).await), run.operations().await), ((1, "missing"), 3));

        // The agent has planned the step anew itself: that one is followed.
        let mut own = ticket(1);
        own.as_object_mut().unwrap().remove("compensation");
        own["replans"] = third["id"].clone();
        run.propose_as(&fresh_key(), own).await.ok(201);
        run.redo(&opened, json!({})).await.refused(409, "invalid_state");
        assert_eq!(waits(&run.set(&opened).await), (1, "missing"));
    }

    async fn an_unknown_outcome_in_the_middle_holds_the_set(app: App) {
        let (asha, _, run) = app.world().await;
        let lin = app.person("lin", "operator", "").await;
        let opened = run.open_set(&[ticket(1), ticket(2), ticket(3)]).await;
        let first = run.part(&opened, 1, "operation").await;
        finish(&app, &asha, &run, &first, succeeded("T-1")).await;
        let second = run.part(&opened, 2, "operation").await;
        finish(&app, &asha, &run, &second, json!({"status": "unknown"})).await;
        for _ in 0..3 {
            app.advance_s(3600);
            worker::sweep(&app.desk).await.unwrap();
        }
        assert_eq!((waits(&run.set(&opened).await), run.operations().await), ((2, "unknown"), 2));
        run.redo(&opened, json!({})).await.ok(200);
        let changed = json!({"step": 2, "params": {"project": "ops", "title": "Another"}});
        run.redo(&opened, changed).await.refused(409, "invalid_state");
        assert_eq!(run.operations().await, 2);

        let path = format!("operations/{}", id_of(&second));
        let seen = json!({"finding": "applied", "kind": "lookup", "reference": id_of(&second), "observed_at": "2026-12-01T03:00:00.000Z"});
        let seen = lin.post(&format!("{path}/evidence"), seen).await.ok(201).body["evidence"]["id"].clone();
        lin.post(&format!("{path}/resolution"), json!({"finding": "applied", "evidence": [seen], "note": "there"})).await.ok(200);
        change_set::step(&app.desk).await.unwrap();
        assert_eq!(waits(&run.set(&opened).await), (3, "decision"));

        // Evidence against a step that was done holds what follows it, too.
        let third = run.part(&opened, 3, "operation").await;
        asha.approve(id_of(&third)).await.ok(200);
        run.complete(&third, succeeded("T-3")).await;
        let against = json!({"finding": "not_applied", "kind": "lookup", "reference": "T-3", "observed_at": "2026-12-01T03:00:00.000Z"});
        lin.post(&format!("operations/{}/evidence", id_of(&third)), against).await.ok(201);
        change_set::step(&app.desk).await.unwrap();
        assert_eq!(waits(&run.set(&opened).await), (3, "unknown"));
    }

    async fn a_restart_between_every_step_makes_no_second_operation(app: App) {
        let (asha, _, run) = app.world().await;
        let opened = run.open_set(&[ticket(1), ticket(2), ticket(3), ticket(4)]).await;
        let mut app = app;
        for step in 1..=4 {
            app = app.restart(&[]).await;
            let (asha, run) = (asha.at(&app), run.at(&app));
            let op = run.part(&opened, step, "operation").await;
            asha.approve(id_of(&op)).await.ok(200);
            run.complete(&op, succeeded("T")).await;
            app = app.restart(&[]).await;
            for _ in 0..2 {
                join_all((0..4).map(|_| change_set::step(&app.desk))).await;
            }
            let run = run.at(&app);
            assert_eq!(run.operations().await, (step + 1).min(4));
        }
        assert_eq!(run.at(&app).set(&opened).await["state"], "done");
    }

    async fn two_workers_and_a_run_propose_the_next_step_once(app: App) {
        let (asha, _, run) = app.world().await;
        let other = app.node(&[]).await;
        let opened = run.open_set(&[ticket(1), ticket(2)]).await;
        let first = run.part(&opened, 1, "operation").await;
        asha.approve(id_of(&first)).await.ok(200);
        run.complete(&first, succeeded("T-1")).await;
        let steps = [&app, &other, &app, &other].map(|app| change_set::step(&app.desk));
        let redone = [&app, &other].map(|app| run.at(app).redo(&opened, json!({})).into_future());
        let (stepped, redone) = futures::future::join(join_all(steps), join_all(redone)).await;
        assert!(stepped.iter().all(Result::is_ok), "{stepped:?}");
        for reply in redone {
            reply.ok(200);
        }
        assert_eq!(run.operations().await, 2);
    }

    async fn the_same_key_opens_one_set(app: App) {
        let (_, _, run) = app.world().await;
        let (key, body) = (fresh_key(), set("Refund 4711", &[refund(), notice("c1")]));
        let other = app.node(&[]).await;
        let calls = (0..8).map(|i| run.at(if i % 2 == 0 { &app } else { &other }).open_as(&key, body.clone()).into_future());
        let replies = join_all(calls).await;
        let (new, known): (Vec<_>, Vec<_>) = replies.into_iter().partition(|reply| reply.status == 201);
        assert_eq!((new.len(), known.len(), run.operations().await), (1, 7, 1));
        let id = id_of(&new[0].body["change_set"]).to_owned();
        assert_eq!(new[0].header("location"), format!("http://desk.example.test/api/v1/change-sets/{id}"));
        for reply in known {
            let reply = reply.ok(200);
            assert_eq!((reply.header("idempotency-replayed"), id_of(&reply.body["change_set"])), ("true", id.as_str()));
        }
        for changed in [json!({"title": "Other"}), json!({"steps": [refund()]}), json!({"steps": [refund(), notice("c2")]})] {
            let mut body = body.clone();
            merge(&mut body, changed);
            let refused = run.open_as(&key, body).await.refused(409, "fingerprint_conflict");
            assert_eq!(refused.body["change_set_id"], id);
        }
        run.post(&format!("runs/{}/stop", run.id), json!({"reason": "enough"})).await.ok(200);
        run.open_as(&key, body.clone()).await.ok(200);
        run.open_as(&fresh_key(), body).await.refused(403, "run_stopped");
        assert_eq!(run.operations().await, 1);
    }

    async fn a_body_that_cannot_be_carried_out_opens_nothing(app: App) {
        let (_, _, run) = app.world().await;
        let with = |mut step: Value, over: Value| {
            merge(&mut step, over);
            step
        };
        let release = json!({
            "kind": "deployment.release", "expected_version": 0,
            "params": {"environment": "staging", "service": "checkout", "artifact": format!("sha256:{}", "2b".repeat(32))},
        });
        let rollback = |environment: &str| json!({"kind": "deployment.rollback", "params": {
            "environment": environment, "service": "checkout", "artifact": format!("sha256:{}", "1a".repeat(32)),
        }});
        let steps = |second: Value| set("Plan", &[ticket(1), second]);
        for (body, status, code, pointer) in [
            (json!({}), 422, "validation_failed", ""),
            (set("", &[ticket(1)]), 422, "validation_failed", "/title"),
            (set("Plan", &[]), 422, "validation_failed", "/steps"),
            (set("Plan", &vec![ticket(1); 51]), 422, "validation_failed", "/steps"),
            (json!({"title": "Plan", "steps": {}}), 422, "validation_failed", "/steps"),
            (json!({"title": "Plan", "steps": [ticket(1)], "agent": "x"}), 422, "validation_failed", "/agent"),
            (steps(json!(7)), 422, "validation_failed", "/steps/1"),
            (steps(with(ticket(2), json!({"supersedes": "op_1"}))), 422, "validation_failed", "/steps/1/supersedes"),
            (steps(with(ticket(2), json!({"kind": "ticket.forget"}))), 422, "validation_failed", "/steps/1/kind"),
            (steps(with(ticket(2), json!({"target": "project/dev"}))), 422, "validation_failed", "/steps/1/target"),
            (steps(with(ticket(2), json!({"params": []}))), 422, "validation_failed", "/steps/1/params"),
            (steps(with(ticket(2), json!({"params": {"project": "ops", "title": 7}}))), 422, "validation_failed", "/steps/1/params/title"),
            (steps(with(ticket(2), json!({"params": {"project": "ops", "title": 1.5}}))), 422, "number_out_of_range", "/steps/1/params/title"),
            (steps(with(ticket(2), json!({"expected_version": 1}))), 422, "validation_failed", "/steps/1/expected_version"),
            (steps(with(ticket(2), json!({"expected_version": -1}))), 422, "validation_failed", "/steps/1/expected_version"),
            (steps(with(ticket(2), json!({"reason": "x".repeat(10_001)}))), 422, "validation_failed", "/steps/1/reason"),
            (steps(with(release.clone(), json!({"expected_version": null}))), 428, "precondition_required", "/steps/1/expected_version"),
            (steps(with(release.clone(), json!({"params": {"environment": "staging", "service": "checkout", "artifact": "latest"}}))), 422, "mutable_reference", "/steps/1/params/artifact"),
            (steps(with(rollback("staging"), json!({"expected_version": 0}))), 422, "validation_failed", "/steps/1/kind"),
            (steps(with(ticket(2), json!({"compensation": {"kind": "ticket.transition"}}))), 422, "validation_failed", "/steps/1/compensation"),
            (steps(with(ticket(2), json!({"compensation": {"kind": "ticket.transition", "params": {}}}))), 422, "validation_failed", "/steps/1/compensation/params/ticket"),
            (steps(with(ticket(2), json!({"compensation": {"kind": "ticket.transition", "params": {}, "compensation": {}}}))), 422, "validation_failed", "/steps/1/compensation/compensation"),
            (steps(with(release.clone(), json!({"compensation": ticket(3)["compensation"]}))), 422, "validation_failed", "/steps/1/compensation/kind"),
            (steps(with(release, json!({"compensation": rollback("qa")}))), 422, "validation_failed", "/steps/1/compensation/target"),
        ] {
            let refused = run.open_as(&fresh_key(), body.clone()).await.refused(status, code);
            let pointers: Vec<_> = refused.body["errors"].as_array().unwrap().iter().map(|e| e["pointer"].as_str().unwrap()).collect();
            assert!(pointers.contains(&pointer), "{body}: {pointers:?}");
        }
        run.post("change-sets", set("Plan", &[ticket(1)])).await.refused(400, "idempotency_key_missing");
        run.open_as("short", set("Plan", &[ticket(1)])).await.refused(400, "idempotency_key_invalid");
        run.open_as(&fresh_key(), json!({})).raw("application/json", r#"{"title":"a","title":"b"}"#).await.refused(400, "duplicate_json_key");
        let granted = json!([{"resource": "project/ops", "verbs": ["create"]}]);
        let bound = app.agent("bound", "omar").await.run(json!({"write_set": granted})).await;
        let refused = bound.open_as(&fresh_key(), steps(ticket(2))).await.refused(403, "outside_write_set");
        assert_eq!(refused.body["errors"][0]["pointer"], "/steps/0/compensation", "what undoes it is granted, too");
        assert_eq!((run.operations().await, bound.operations().await), (0, 0));
        assert!(!app.events().await.iter().any(|event| event.starts_with("change_set.")));
        run.open_as(&fresh_key(), set("Plan", &(1..=50).map(ticket).collect::<Vec<_>>())).await.ok(201);
    }

    async fn only_its_agent_and_people_see_a_set(app: App) {
        let (asha, omar, run) = app.world().await;
        let (stranger, executor) = (app.agent("other", "asha").await, app.executor("robot", &["*"]).await);
        let strange_run = stranger.run(json!({})).await;
        let opened = run.open_set(&[ticket(1)]).await;
        let path = format!("change-sets/{}", id_of(&opened));
        for program in [&stranger, &strange_run, &executor] {
            program.get(&path).await.refused(404, "not_found");
            program.post(&format!("{path}/compensate"), json!({"reason": "x"})).await.refused(404, "not_found");
        }
        strange_run.redo(&opened, json!({})).await.refused(404, "not_found");
        app.get(&path).await.refused(401, "unauthenticated");
        for person in [&asha, &omar] {
            person.get(&path).await.ok(200);
            person.post(&format!("{path}/redo"), json!({})).await.refused(403, "forbidden");
        }
        asha.compensate(&opened, "not mine").await.refused(403, "forbidden");
        asha.get("change-sets/cs_1").await.refused(404, "not_found");
        asha.post("change-sets", set("Plan", &[ticket(1)])).header("idempotency-key", &fresh_key()).await.refused(403, "forbidden");
        assert_eq!(run.set(&opened).await["state"], "open");
    }

    async fn what_was_done_is_undone_backwards_with_votes_of_its_own(app: App) {
        let (asha, omar, run) = app.world().await;
        let opened = run.open_set(&[ticket(1), ticket(2), ticket(3)]).await;
        for step in 1..=2 {
            let op = run.part(&opened, step, "operation").await;
            finish(&app, &asha, &run, &op, succeeded("T")).await;
        }
        omar.compensate(&opened, "").await.refused(422, "validation_failed");
        let turned = omar.compensate(&opened, "the customer called").await.ok(200).body["change_set"].clone();
        assert_eq!((&turned["state"], &turned["reason"]), (&json!("compensating"), &json!("the customer called")));
        assert_eq!(run.part(&opened, 3, "operation").await["state"], "cancelled", "nothing of it was sent");
        let again = omar.compensate(&opened, "the customer called").await.ok(200);
        assert_eq!(again.body["change_set"]["version"], turned["version"]);

        for (step, left) in [(2, "compensating"), (1, "compensated")] {
            let done = run.part(&opened, step, "operation").await;
            let undo = run.part(&opened, step, "compensated_by").await;
            assert_eq!((&undo["state"], &undo["links"]["compensates"]), (&json!("pending"), &done["id"]));
            assert_eq!(undo["target"], format!("ticket/OPS-{step}"));
            change_set::step(&app.desk).await.unwrap();
            assert_eq!(run.read(&done).await["compensation_status"], "proposed");
            finish(&app, &asha, &run, &undo, succeeded("T")).await;
            let done = run.read(&done).await;
            assert_eq!((&done["compensation_status"], &done["compensated_by"]), (&json!("compensated"), &undo["id"]));
            assert_eq!((&done["state"], &run.set(&opened).await["state"]), (&json!("succeeded"), &json!(left)));
        }
        assert_eq!(run.read(&run.set(&opened).await["steps"][2]["operation"]).await["compensation_status"], "none");
        assert_eq!((run.operations().await, change_set::step(&app.desk).await.unwrap()), (5, 0));
        run.redo(&opened, json!({})).await.refused(409, "invalid_state");
        omar.compensate(&opened, "again").await.ok(200);
        let record = app.audit().await.into_iter().find(|r| r["event"] == "change_set.compensating").unwrap();
        assert_eq!((&record["actor"]["id"], &record["reason"]), (&json!(omar.id), &json!("the customer called")));
    }

    async fn a_compensation_that_fails_or_is_missing_makes_the_set_stuck(app: App) {
        let (asha, _, run) = app.world().await;
        let lin = app.person("lin", "operator", "").await;
        let opened = run.open_set(&[refund(), ticket(2)]).await;
        for step in 1..=2 {
            let op = run.part(&opened, step, "operation").await;
            finish(&app, &asha, &run, &op, succeeded("T")).await;
        }
        assert_eq!(run.set(&opened).await["state"], "done");
        lin.compensate(&opened, "wrong order").await.ok(200);
        let first = run.part(&opened, 2, "compensated_by").await;
        finish(&app, &asha, &run, &first, failed()).await;
        change_set::step(&app.desk).await.unwrap();
        assert_eq!(run.set(&opened).await["state"], "stuck");
        assert_eq!(run.part(&opened, 2, "operation").await["compensation_status"], "failed");
        run.redo(&opened, json!({})).await.refused(409, "invalid_state");

        lin.compensate(&opened, "once more").await.ok(200);
        let second = run.part(&opened, 2, "compensated_by").await;
        assert_ne!(first["id"], second["id"]);
        finish(&app, &asha, &run, &second, succeeded("T")).await;
        assert_eq!(run.part(&opened, 2, "operation").await["compensation_status"], "compensated");
        assert_eq!(run.set(&opened).await["state"], "stuck", "nothing undoes a refund");
        let reasons: Vec<_> = app.audit().await.into_iter().filter(|r| r["event"] == "change_set.stuck").map(|r| r["reason"].clone()).collect();
        assert_eq!(reasons, ["step 2: its compensation ended without an effect", "step 1: it names no compensation"]);
    }

    async fn a_step_under_way_is_awaited_before_it_is_undone(app: App) {
        let (asha, omar, run) = app.world().await;
        let opened = run.open_set(&[ticket(1)]).await;
        let op = run.part(&opened, 1, "operation").await;
        asha.approve(id_of(&op)).await.ok(200);
        let claim = run.send(&op).await;
        let turned = omar.compensate(&opened, "stop").await.ok(200).body["change_set"].clone();
        assert_eq!((&turned["state"], waits(&turned)), (&json!("compensating"), (1, "outcome")));
        run.report(&op, "outcome", &claim, json!({"status": "unknown"})).await.ok(200);
        change_set::step(&app.desk).await.unwrap();
        assert_eq!((waits(&run.set(&opened).await), run.operations().await), ((1, "unknown"), 1));
        let admin = app.person("ada", "admin", "").await;
        let given_up = json!({"finding": "abandon", "note": "the tracker is gone"});
        admin.post(&format!("operations/{}/resolution", id_of(&op)), given_up).await.ok(200);
        change_set::step(&app.desk).await.unwrap();
        assert_eq!((&run.set(&opened).await["state"], run.operations().await), (&json!("stuck"), 1));
    }

    async fn a_compensation_is_made_on_the_version_that_the_set_made(app: App) {
        app.rules(json!([{"name": "documents", "match": {"kind": "resource.*"}, "require": {"auto": true}}])).await;
        let (_, omar, _) = app.world().await;
        let grants = json!([{"resource": "note/*", "verbs": ["create", "update", "delete"]}]);
        let run = app.agent("writer", "omar").await.run(json!({"write_set": grants})).await;
        let change = |name: &str, n: i64, back: i64| json!({
            "kind": "resource.update", "target": format!("note/{name}"), "params": {"patch": {"n": n}},
            "compensation": {"kind": "resource.update", "target": format!("note/{name}"), "params": {"patch": {"n": back}}},
        });
        let create = |name: &str| json!({"kind": "resource.create", "target": format!("note/{name}"), "params": {"value": {"n": 0}}});
        let stepped = async |times: usize| {
            for _ in 0..times {
                change_set::step(&app.desk).await.unwrap();
            }
        };
        let mut opened = Vec::new();
        for name in ["a", "b"] {
            run.propose_as(&fresh_key(), create(name)).await.ok(201);
            let mut first = change(name, 1, 0);
            first["expected_version"] = json!(1);
            opened.push(run.open_set(&[first, change(name, 2, 1)]).await);
        }
        stepped(3).await;
        for set in &opened {
            assert_eq!(run.set(set).await["state"], "done");
            assert_eq!(run.part(set, 2, "operation").await["expected_version"], 2, "the version that step 1 made");
        }
        run.propose_as(&fresh_key(), json!({
            "kind": "resource.update", "target": "note/b", "expected_version": 3, "params": {"patch": {"n": 7}},
        })).await.ok(201);
        for set in &opened {
            omar.compensate(set, "back").await.ok(200);
        }
        stepped(3).await;
        assert_eq!(run.set(&opened[0]).await["state"], "compensated");
        assert_eq!(run.get("resources/note/a").await.ok(200).body["value"]["n"], 0);
        assert_eq!(run.set(&opened[1]).await["state"], "stuck");
        assert_eq!(run.part(&opened[1], 2, "compensated_by").await["state"], "conflicted");
        assert_eq!(run.get("resources/note/b").await.ok(200).body["value"]["n"], 7, "what somebody else wrote stays");
    }

    async fn a_set_whose_run_has_ended_waits_until_another_one_takes_it_up(app: App) {
        let (asha, _, _) = app.world().await;
        let agent = app.agent("pair", "omar").await;
        let (first, second) = (agent.run(json!({})).await, agent.run(json!({})).await);
        let opened = first.open_set(&[ticket(1), ticket(2), ticket(3)]).await;
        let op = first.part(&opened, 1, "operation").await;
        asha.approve(id_of(&op)).await.ok(200);
        let claim = first.send(&op).await;
        first.post(&format!("runs/{}/stop", first.id), json!({"reason": "done for today"})).await.ok(200);
        first.report(&op, "outcome", &claim, succeeded("T-1")).await.ok(200);
        for _ in 0..2 {
            change_set::step(&app.desk).await.unwrap();
        }
        let waiting = second.set(&opened).await;
        assert_eq!((&waiting["state"], &waiting["waits_for"]["refused"]["code"]), (&json!("open"), &json!("run_stopped")));
        first.redo(&opened, json!({})).await.refused(403, "run_stopped");

        let taken = second.redo(&opened, json!({})).await.ok(200).body["change_set"].clone();
        assert_eq!((&taken["run"], waits(&taken), &taken["waits_for"]["refused"]), (&json!(second.id), (2, "decision"), &Value::Null));
        let op = second.part(&opened, 2, "operation").await;
        assert_eq!(op["run"], second.id);
        finish(&app, &asha, &second, &op, succeeded("T-2")).await;
        assert_eq!((waits(&second.set(&opened).await), second.operations().await), ((3, "decision"), 3));
    }

    async fn a_proposal_refused_for_now_is_tried_again(app: App) {
        let (asha, _, run) = app.world().await;
        let opened = run.open_set(&[ticket(1), ticket(2)]).await;
        let op = run.part(&opened, 1, "operation").await;
        asha.approve(id_of(&op)).await.ok(200);
        run.complete(&op, succeeded("T-1")).await;
        let full = app.node(&[("COUNTERFOIL_OPEN_OPERATIONS_PER_AGENT", "1")]).await;
        let other = run.ticket("In the way").await;
        change_set::step(&full.desk).await.unwrap();
        assert_eq!(run.set(&opened).await["waits_for"]["refused"]["code"], "open_operations_limit");
        assert_eq!(change_set::step(&full.desk).await.unwrap(), 0, "not at once");
        run.post(&format!("operations/{}/cancel", id_of(&other)), json!({"reason": "gone"})).await.ok(200);
        app.advance_s(5);
        change_set::step(&full.desk).await.unwrap();
        assert_eq!(waits(&run.set(&opened).await), (2, "decision"));
    }
    async fn a_compensation_beyond_its_limits_is_refused_or_takes_the_group_that_is_named(app: App) {
        let (asha, ..) = app.world().await;
        let granted = json!([{"resource": "voucher/*", "verbs": ["update"]}]);
        let run = app.agent("clerk", "omar").await.run(json!({"write_set": granted})).await;
        let (ada, fin) = (app.person("ada", "admin", "").await, app.person("fin", "approver", "finance").await);
        let money = |name: &str, headline: &str, more: Value| {
            let amount = json!({"type": "integer", "minimum": 1, "maximum": 1_000_000});
            let text = json!({"type": "string", "minLength": 1, "maxLength": 60});
            let mut kind = json!({
                "name": name, "title": "Voucher", "headline": format!("asks to {headline} {{money}}"),
                "schema": {
                    "type": "object", "additionalProperties": false, "required": ["voucher", "amount_minor", "currency"],
                    "properties": {"voucher": text, "amount_minor": amount, "currency": {"type": "string", "pattern": "^[A-Z]{3}$"}},
                },
                "target": "voucher/{voucher}", "verb": "update", "consequence": "Moves {{ money }}", "rollback": "Move it back",
                "risk": "medium", "money": {"amount": "amount_minor", "currency": "currency"},
            });
            merge(&mut kind, more);
            kind
        };
        let within = json!({"kinds": ["voucher.reclaim"], "limits": ["same_target", "amount_within_original"]});
        ada.post("kinds", money("voucher.reclaim", "reclaim", json!({}))).await.ok(201);
        ada.post("kinds", money("voucher.issue", "issue", json!({"compensation": within}))).await.ok(201);
        let (kind, params) = ("voucher.issue", |voucher: &str, minor: i64| json!({"voucher": voucher, "amount_minor": minor, "currency": "EUR"}));
        let issued = run.propose_as(&fresh_key(), json!({"kind": kind, "params": params("v1", 1000)})).await.ok(201).operation().clone();
        asha.approve(id_of(&issued)).await.ok(200);
        run.complete(&issued, succeeded("v1")).await;
        let reclaim = |voucher: &str, minor: i64| json!({"kind": "voucher.reclaim", "params": params(voucher, minor), "compensates": issued["id"]});

        run.propose_as(&fresh_key(), reclaim("v1", 600)).await.ok(201);
        let refused = run.propose_as(&fresh_key(), reclaim("v1", 401)).await.refused(409, "invariant_violated");
        assert!(refused.body["detail"].as_str().unwrap().contains("EUR 4.00 of EUR 10.00"), "{}", refused.body);
        run.propose_as(&fresh_key(), reclaim("v2", 1)).await.refused(409, "invariant_violated");
        let other = json!({"kind": kind, "params": params("v1", 1), "compensates": issued["id"]});
        run.propose_as(&fresh_key(), other).await.refused(422, "validation_failed");
        let step = json!({
            "kind": kind, "params": params("v3", 1000),
            "compensation": {"kind": "voucher.reclaim", "params": params("v3", 1001)},
        });
        run.open_as(&fresh_key(), set("Voucher", std::slice::from_ref(&step))).await.refused(422, "validation_failed");

        let mut named = within.clone();
        named["groups"] = json!(["finance"]);
        ada.post("kinds", money("voucher.issue", "issue", json!({"compensation": named}))).await.ok(201);
        app.rules(json!([{"name": "all", "match": {"kind": "voucher.*"}, "require": {"auto": true}}])).await;
        let inside = run.propose_as(&fresh_key(), reclaim("v1", 400)).await.ok(201).operation().clone();
        assert_eq!(inside["state"], "approved", "by the rule");
        let beyond = run.propose_as(&fresh_key(), reclaim("v1", 1)).await.ok(201).operation().clone();
        assert_eq!((&beyond["state"], &beyond["approval"]["groups"]), (&json!("pending"), &json!(["finance"])));
        asha.approve(id_of(&beyond)).await.refused(403, "not_eligible");
        fin.approve(id_of(&beyond)).await.ok(200);
        run.complete(&beyond, succeeded("v1")).await;
        let opened = run.open_set(&[step]).await;
        assert_eq!(opened["state"], "open", "the group decides when it comes to that");
    }
}
