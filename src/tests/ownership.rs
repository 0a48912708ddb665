//! Write sets, exclusive rights, the conflict map, and what an operator lifts.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{App, Program, fresh_key, id_of, on_both_databases, release, succeeded};

/// A write set of one entry.
fn set(resource: &str, verbs: &[&str], more: Value) -> Value {
    let mut entry = json!({"resource": resource, "verbs": verbs});
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"write_set": [entry]})
}

fn exclusive(resource: &str, verbs: &[&str]) -> Value {
    set(resource, verbs, json!({"exclusive": true}))
}

fn labelled(mut body: Value) -> Value {
    body["label"] = json!("test");
    body
}

fn check(principal: &Program, run: &Program, resource: &str, verb: &str) -> crate::support::Call {
    principal.post("write-sets/check", json!({"run": run.id, "resource": resource, "verb": verb}))
}

on_both_databases! {
    async fn nothing_outside_its_write_set_is_proposed_leased_or_claimed(app: App) {
        let (asha, _, _) = app.world().await;
        let agent = app.agent("narrow", "omar").await;
        let executor = app.executor("tickets", &["ticket.*"]).await;
        let run = agent.run(set("project/ops", &["create", "lease"], json!({"expires_in_s": 60}))).await;
        let op = run.ticket("Rotate").await;
        asha.approve(id_of(&op)).await.ok(200);
        let elsewhere = json!({"project": "web", "title": "Rotate"});
        let outside = run.propose("ticket.create", "project/web", elsewhere).await.refused(403, "outside_write_set");
        assert_eq!((&outside.body["resource"], &outside.body["verb"]), (&json!("project/web"), &json!("create")));
        run.post("leases", json!({"resource": "project/web"})).await.refused(403, "outside_write_set");
        run.post("leases", json!({"resource": "project/ops"})).await.ok(201);
        app.advance_s(60);
        for claimer in [&run, &executor] {
            let lost = claimer.claim(&op).await.refused(403, "outside_write_set");
            assert_eq!(lost.body["resource"], "project/ops");
        }
        let unchanged = run.read(&op).await;
        assert_eq!((&unchanged["state"], &unchanged["approval"]["spent_at"]), (&json!("approved"), &json!(null)));
        run.post("leases", json!({"resource": "project/ops"})).await.refused(403, "outside_write_set");
    }

    async fn a_claim_is_not_sent_once_the_write_set_is_lost(app: App) {
        let (asha, _, _) = app.world().await;
        let run = app.agent("narrow", "omar").await.run(set("project/*", &["create"], json!({"expires_in_s": 30}))).await;
        let op = run.ticket("Rotate").await;
        asha.approve(id_of(&op)).await.ok(200);
        let claim = run.take(&op).await;
        app.advance_s(30);
        run.report(&op, "sent", &claim, json!({})).await.refused(403, "outside_write_set");
        assert_eq!(run.read(&op).await["may_have_applied"], false);
    }

    async fn executors_and_sinks_ask_what_a_run_may_write(app: App) {
        let (_, owner, free) = app.world().await;
        let agent = app.agent("narrow", "omar").await;
        let run = agent.run(set("order/47*", &["refund"], json!({"expires_in_s": 60}))).await;
        let executor = app.executor("payments", &["payment.*"]).await;
        let yes = check(&executor, &run, "order/4711", "refund").await.ok(200).body;
        assert_eq!(yes["ok"], true);
        assert_eq!((&yes["has_write_set"], &yes["expires_at"]), (&json!(true), &json!("2026-12-01T00:01:00.000Z")));
        check(&executor, &run, "order/4811", "refund").await.refused(403, "outside_write_set");
        check(&executor, &run, "order/4711", "pay").await.refused(403, "outside_write_set");
        check(&executor, &run, "order", "pay").await.refused(422, "validation_failed");
        check(&executor, &run, "order/1", "fly").await.refused(422, "validation_failed");
        assert_eq!(check(&executor, &free, "order/1", "pay").await.ok(200).body["has_write_set"], false);
        check(&run, &run, "order/4711", "refund").await.ok(200);
        check(&free, &run, "order/4711", "refund").await.refused(404, "not_found");
        app.advance_s(60);
        check(&executor, &run, "order/4711", "refund").await.refused(403, "outside_write_set");
        owner.post(&format!("runs/{}/stop", run.id), json!({"reason": "done"})).await.ok(200);
        check(&executor, &run, "order/4711", "refund").await.refused(403, "run_stopped");
    }

    async fn what_a_live_run_has_for_itself_no_other_gets(app: App) {
        let (_, owner, _) = app.world().await;
        let (one, two) = (app.agent("one", "omar").await, app.agent("two", "omar").await);
        let holder = one.run(exclusive("release/prod*", &["deploy", "rollback"])).await;
        let wanted = labelled(exclusive("release/prod-eu", &["rollback"]));
        let taken = two.post("runs", wanted.clone()).await.refused(409, "ownership_conflict");
        assert_eq!((&taken.body["run"], &taken.body["expires_at"]), (&json!(holder.id), &json!("2026-12-02T00:00:00.000Z")));
        assert_eq!((&taken.body["resource"], &taken.body["pointer"]), (&json!("release/prod-eu"), &json!("/write_set/0")));
        one.post("runs", wanted.clone()).await.refused(409, "ownership_conflict");

        two.run(exclusive("release/staging", &["deploy"])).await;
        two.run(exclusive("release/prod-eu", &["comment"])).await;
        two.run(set("release/prod-eu", &["deploy"], json!({}))).await;
        let later = json!({"exclusive": true, "not_before": "2026-12-02T00:00:00Z"});
        let mut later = labelled(set("release/prod-eu", &["deploy"], later));
        later["expires_in_s"] = json!(2 * 24 * 3600);
        two.post("runs", later).await.ok(201);
        owner.post(&format!("runs/{}/stop", holder.id), json!({"reason": "done"})).await.ok(200);
        two.post("runs", wanted).await.ok(201);
    }

    async fn of_twenty_runs_that_want_the_same_for_themselves_one_starts(app: App) {
        app.world().await;
        let other = app.node(&[]).await;
        let mut agents = Vec::new();
        for i in 0..20 {
            let agent = app.agent(&format!("agent {i}"), "omar").await;
            agents.push(if i % 2 == 0 { agent } else { agent.at(&other) });
        }
        let starts = agents.iter().enumerate().map(|(i, agent)| {
            let resource = if i % 3 == 0 { "release/*" } else { "release/prod-eu" };
            agent.post("runs", labelled(exclusive(resource, &["deploy"]))).into_future()
        });
        let replies = join_all(starts.map(tokio::spawn)).await.into_iter().map(Result::unwrap);
        let (won, lost): (Vec<_>, Vec<_>) = replies.partition(|reply| reply.status == 201);
        assert_eq!((won.len(), lost.len()), (1, 19));
        for reply in lost {
            assert_eq!(reply.refused(409, "ownership_conflict").body["run"], won[0].body["run"]["id"]);
        }
    }

    async fn runs_with_sets_apart_do_not_wait_for_each_other(app: App) {
        let (asha, _, _) = app.world().await;
        let agent = app.agent("fleet", "omar").await;
        let mut runs = Vec::new();
        for i in 0..5 {
            let environment = format!("staging-{i}");
            runs.push((agent.run(exclusive(&format!("release/{environment}"), &["deploy"])).await, environment));
        }
        let done = runs.iter().map(|(run, environment)| async {
            let op = run.release(environment, 1).await.ok(201).operation().clone();
            asha.approve(id_of(&op)).await.ok(200);
            run.complete(&op, succeeded("D-1")).await
        });
        assert!(join_all(done).await.iter().all(|op| op["state"] == "succeeded"));
    }

    async fn the_map_names_who_would_collide_and_a_set_is_tried_before_it_is_granted(app: App) {
        let (asha, _, stranger) = app.world().await;
        let (one, two) = (app.agent("one", "omar").await, app.agent("two", "omar").await);
        let deployer = one.run(exclusive("release/prod-eu", &["deploy"])).await;
        let reader = two.run(json!({"label": "reporter", "reads": ["release/*"], "defaults": ["config/tax"]})).await;
        let map = asha.get("conflict-map").await.ok(200).body;
        assert_eq!(map["runs"].as_array().unwrap().len(), 2, "only runs that said what they do");
        let overlaps = map["overlaps"].as_array().unwrap();
        assert_eq!(overlaps.len(), 1);
        assert_eq!((&overlaps[0]["writer"], &overlaps[0]["other"]), (&json!(deployer.id), &json!(reader.id)));
        assert_eq!((&overlaps[0]["collision"], &overlaps[0]["resource"]), (&json!("read"), &json!("release/prod-eu")));
        assert_eq!(overlaps[0]["sentence"], "one (test) may write release/prod-eu (deploy), which two (reporter) reads");
        let theirs = stranger.get("conflict-map").await.ok(200).body;
        assert_eq!((&theirs["runs"], &theirs["overlaps"]), (&json!([]), &json!([])));
        assert_eq!(reader.get("conflict-map").await.ok(200).body["overlaps"], map["overlaps"]);

        let planned = json!({"write_set": [
            {"resource": "config/*", "verbs": ["update"]},
            {"resource": "release/*", "verbs": ["deploy"], "exclusive": true},
        ]});
        let tried = two.post("conflict-map/check", planned).await.ok(200).body;
        assert_eq!((&tried["grantable"], &tried["refusal"]["code"]), (&json!(false), &json!("ownership_conflict")));
        assert_eq!(tried["refusal"]["run"], deployer.id);
        let sentences: Vec<_> = tried["overlaps"].as_array().unwrap().iter().map(|found| found["sentence"].as_str().unwrap()).collect();
        assert_eq!(sentences, [
            "one (test) (deploy) and this set (deploy) may both write release/prod-eu",
            "this set may write config/tax (update), which two (reporter) uses as a shared default",
            "this set may write release/* (deploy), which two (reporter) reads",
        ]);
        let free = two.post("conflict-map/check", set("order/1", &["pay"], json!({}))).await.ok(200).body;
        assert_eq!(free, json!({"grantable": true, "refusal": null, "overlaps": []}));
        two.post("conflict-map/check", set("order", &["pay"], json!({}))).await.refused(422, "validation_failed");
        app.executor("x", &["*"]).await.get("conflict-map").await.refused(403, "forbidden");
    }

    async fn an_operator_lets_a_rollback_pass_a_release_nobody_knows_the_outcome_of(app: App) {
        let (asha, omar, run) = app.world().await;
        let operator = app.person("olga", "operator", "approvers").await;
        let release = async |more: Value| {
            let mut body = release("prod-eu", json!(1));
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let op = run.propose_as(&fresh_key(), body).await.ok(201).operation().clone();
            asha.approve(id_of(&op)).await.ok(200);
            op
        };
        let first = release(json!({})).await;
        let other = release(json!({"params": {"environment": "prod-eu", "service": "web", "artifact": format!("sha256:{}", "3c".repeat(32))}})).await;
        let rollback = release(json!({"kind": "deployment.rollback", "rolls_back": first["id"]})).await;
        let claim = run.send(&first).await;
        let locked = run.claim(&rollback).await.refused(409, "release_locked");
        assert_eq!((&locked.body["holder"], &locked.body["resource"]), (&first["id"], &json!("release/prod-eu")));
        run.report(&first, "outcome", &claim, json!({"status": "unknown"})).await.ok(200);
        run.claim(&rollback).await.refused(409, "outcome_unknown");

        let path = format!("operations/{}/override", id_of(&rollback));
        let why = json!({"reason": "the release hangs; go back"});
        asha.post(&path, why.clone()).await.refused(403, "forbidden");
        run.post(&path, why.clone()).await.refused(403, "humans_only");
        operator.post(&path, json!({"reason": ""})).await.refused(422, "validation_failed");
        omar.post(&path, why.clone()).await.refused(403, "forbidden");
        let digest = operator.view(id_of(&rollback)).await["review_digest"].clone();
        let overridden = operator.post(&path, why.clone()).await.ok(200).operation()["override"].clone();
        assert_eq!((&overridden["by"], &overridden["by_name"]), (&json!(operator.id), &json!("olga")));
        let again = operator.post(&path, json!({"reason": "again"})).await.ok(200);
        assert_eq!(again.operation()["override"], overridden);
        let review = operator.get(&format!("operations/{}/review", id_of(&rollback))).await.ok(200).body;
        assert_eq!(review["review"]["override"], overridden);
        assert_ne!(review["review_digest"], digest);

        run.claim(&other).await.refused(409, "outcome_unknown");
        assert_eq!(run.complete(&rollback, succeeded("D-2")).await["state"], "succeeded");
        operator.post(&path, why).await.refused(409, "invalid_state");
        let record = app.audit().await.into_iter().find(|record| record["event"] == "admin.hold_overridden").unwrap();
        assert_eq!((&record["operation"], &record["reason"]), (&rollback["id"], &json!("the release hangs; go back")));
    }

    async fn nobody_lifts_what_holds_their_own_agents_work(app: App) {
        app.world().await;
        let owner = app.person("olga", "operator", "").await;
        let run = app.agent("own", "olga").await.run(json!({})).await;
        let op = run.ticket("Rotate").await;
        let path = format!("operations/{}/override", id_of(&op));
        owner.post(&path, json!({"reason": "mine"})).await.refused(403, "self_approval");
    }
}
