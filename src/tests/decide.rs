//! Decisions: people alone make them, on what they were shown, in time, and each of them once.

use std::time::Duration;

use axum::http::Method;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{App, PASSWORD, Person, Reply, cookie_of, id_of, on_both_databases, succeeded, ticket};

fn decisions(op: &Value) -> String {
    format!("operations/{}/decisions", id_of(op))
}

/// An approval of exactly what `view` showed.
fn approval(view: &Value) -> Value {
    json!({
        "decision": "approve", "fingerprint": view["fingerprint"], "review_digest": view["review_digest"],
        "confirm_target": view["target"],
    })
}

async fn withdraw(person: &Person, op: &Value) -> Reply {
    person.call(Method::DELETE, &decisions(op)).await
}

/// Changes a person's role and groups.
async fn becomes(admin: &Person, person: &Person, role: &str, groups: &[&str]) {
    let change = json!({"role": role, "groups": groups});
    admin.call(Method::PATCH, &format!("people/{}", person.id)).json(change).await.ok(200);
}

async fn records(app: &App, op: &Value) -> Vec<Value> {
    app.audit().await.into_iter().filter(|record| record["operation"] == op["id"]).collect()
}

async fn story(app: &App, op: &Value) -> Vec<String> {
    records(app, op).await.iter().map(|record| record["event"].as_str().unwrap().to_owned()).collect()
}

on_both_databases! {
    // C12, promise 2
    async fn of_twenty_decisions_on_two_nodes_one_counts(app: App) {
        let (asha, _, run) = app.world().await;
        let second = app.person("bela", "approver", "approvers").await;
        let third = app.person("cora", "approver", "approvers").await;
        let other = app.node(&[]).await;
        let op = run.ticket("Rotate").await;
        let view = asha.view(id_of(&op)).await;
        let path = decisions(&op);
        let rejection = json!({
            "decision": "reject", "fingerprint": view["fingerprint"], "review_digest": view["review_digest"], "reason_code": "not_now",
        });
        let calls = (0..20).map(|i| {
            let (person, body) = match i {
                0..10 => (&asha, approval(&view)),
                10..19 => (&second, approval(&view)),
                _ => (&third, rejection.clone()),
            };
            let person = if i % 2 == 0 { person.clone() } else { person.at(&other) };
            let id = person.id.clone();
            let call = person.post(&path, body).into_future();
            tokio::spawn(async move { (id, call.await) })
        });
        let replies: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
        let (winner, vote) = replies.iter().find(|(_, reply)| reply.status == 200).map(|(id, reply)| (id.clone(), reply.body["vote"].clone())).unwrap();
        for (id, reply) in &replies {
            if *id == winner {
                assert_eq!((reply.status.as_u16(), &reply.body["vote"]), (200, &vote), "{}", reply.text);
            } else {
                assert_eq!((reply.status.as_u16(), reply.code()), (409, "already_decided"), "{}", reply.text);
                assert_eq!((&reply.body["by"], &reply.body["decision"], &reply.body["at"]), (&json!(winner), &vote["decision"], &vote["at"]));
            }
        }
        let op = run.read(&op).await;
        assert_eq!(op["version"], 2);
        let events = story(&app, &op).await;
        let decided = |event: &&String| ["approval.granted", "approval.rejected"].contains(&event.as_str());
        assert_eq!(events.iter().filter(decided).count(), 1);
        match op["state"].as_str().unwrap() {
            "approved" => drop(run.claim(&op).await.ok(200)),
            _ => drop(run.claim(&op).await.refused(409, "invalid_state")),
        }
    }

    // C10 (c), C11, promise 3
    async fn nothing_expired_is_decided_and_every_reader_agrees_without_a_sweeper(app: App) {
        let (asha, _, run) = app.world().await;
        let read_first = run.ticket("Read first").await;
        let listed_first = run.ticket("Listed first").await;
        let decided_first = run.ticket("Decided first").await;
        let in_time = run.ticket("In time").await;
        let view = asha.view(id_of(&decided_first)).await;
        app.clock.advance_ms(899_999);
        asha.approve(id_of(&in_time)).await.ok(200);
        app.clock.advance_ms(1);

        // At the deadline is too late.
        let late = asha.post(&decisions(&decided_first), approval(&view)).await.refused(409, "approval_expired");
        assert_eq!((&late.body["state"], &late.body["safe_new_key"]), (&json!("expired"), &json!(true)));
        let last: Vec<_> = records(&app, &decided_first).await.into_iter().rev().take(2).collect();
        assert_eq!((&last[1]["event"], &last[1]["actor"]["kind"], &last[1]["at"]), (&json!("operation.expired"), &json!("system"), &last[0]["at"]));
        assert_eq!((&last[0]["event"], &last[0]["status"]), (&json!("approval.refused"), &json!("approval_expired")));

        let ids = |reply: Reply| -> Vec<Value> { reply.body["operations"].as_array().unwrap().iter().map(|op| op["id"].clone()).collect() };
        assert!(ids(asha.get("operations?state=pending").await.ok(200)).is_empty());
        let expired = ids(asha.get("operations?state=expired").await.ok(200));
        assert!([&read_first, &listed_first, &decided_first].iter().all(|op| expired.contains(&op["id"])));
        let read = run.get(&format!("operations/{}", id_of(&read_first))).header("if-none-match", "\"1\"").await.ok(200);
        assert_eq!((&read.operation()["state"], read.header("etag")), (&json!("expired"), "\"2\""));
        assert_eq!(story(&app, &read_first).await, ["operation.proposed", "operation.expired"]);
        for op in [&read_first, &listed_first, &decided_first] {
            asha.approve(id_of(op)).await.refused(409, "approval_expired");
            asha.decide(id_of(op), "reject", json!({})).await.refused(409, "approval_expired");
            withdraw(&asha, op).await.refused(403, "not_eligible");
            run.claim(op).await.refused(409, "approval_expired");
        }
        run.take(&in_time).await;
    }

    // C13, promise 4
    async fn silence_ends_as_expired_and_names_no_person(app: App) {
        let (asha, omar, run) = app.world().await;
        let silent = run.ticket("Silent").await;
        let refused = run.ticket("Refused").await;
        let taken_back = run.ticket("Taken back").await;
        asha.decide(id_of(&refused), "reject", json!({"reason_code": "wrong_target", "reason": "Not this one"})).await.ok(200);
        omar.post(&format!("operations/{}/cancel", id_of(&taken_back)), json!({"reason": "changed my mind"})).await.ok(200);
        assert_eq!(run.read(&silent).await["state"], "pending");
        app.advance_s(900);
        for (op, state, kind) in [(&silent, "expired", "system"), (&refused, "rejected", "human"), (&taken_back, "cancelled", "human")] {
            let read = run.read(op).await;
            assert_eq!((&read["state"], &read["safe_new_key"]), (&json!(state), &json!(true)));
            let last = records(&app, op).await.pop().unwrap();
            assert_eq!((&last["to"], &last["actor"]["kind"]), (&json!(state), &json!(kind)));
        }
        let reason = records(&app, &refused).await.pop().unwrap()["reason"].clone();
        assert_eq!(reason, "wrong_target: Not this one");
    }

    // C14, C03
    async fn a_short_wait_ends_nothing_and_a_decision_before_it_is_not_lost(app: App) {
        let (asha, _, run) = app.world().await;
        let op = run.ticket("Rotate").await;
        let poll = |wait: &str| run.get(&format!("operations/{}?wait={wait}", id_of(&op))).header("if-none-match", "\"1\"");
        for _ in 0..3 {
            let reply = poll("0").await.ok(304);
            assert_eq!((reply.header("etag"), reply.text.as_str()), ("\"1\"", ""));
        }
        let mut prefer = run.get(&format!("operations/{}", id_of(&op))).header("if-none-match", "W/\"1\"").header("prefer", "wait=1").into_future();
        assert!(tokio::time::timeout(Duration::from_millis(200), &mut prefer).await.is_err(), "it waits");
        prefer.await.ok(304);
        drop(tokio::time::timeout(Duration::from_millis(20), poll("30").into_future()).await);
        assert_eq!(run.read(&op).await["state"], "pending");
        app.advance_s(60);
        asha.approve(id_of(&op)).await.ok(200);
        assert_eq!(poll("60").await.ok(200).operation()["state"], "approved");
        assert_eq!(story(&app, &op).await, ["operation.proposed", "approval.voted", "approval.granted"]);
    }

    async fn a_wait_ends_when_another_node_decides(app: App) {
        let (asha, _, run) = app.world().await;
        let other = app.node(&[]).await;
        let op = run.ticket("Rotate").await;
        let path = format!("operations/{}?wait=30", id_of(&op));
        let waiting = tokio::spawn(run.at(&other).get(&path).header("if-none-match", "\"1\"").into_future());
        tokio::time::sleep(Duration::from_millis(50)).await;
        asha.approve(id_of(&op)).await.ok(200);
        let woken = tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap().ok(200);
        assert_eq!(woken.operation()["state"], "approved");
    }

    // C15, promise 11
    async fn nobody_approves_their_own_agents_work_by_any_path(app: App) {
        let admin = app.person("ada", "admin", "approvers").await;
        let owner = app.person("omar", "admin", "approvers payments").await;
        let heir = app.person("hana", "approver", "approvers").await;
        let agent = app.agent("deployer", "omar").await;
        let run = agent.run(json!({})).await;
        let op = run.ticket("Rotate").await;
        let bulk = |view: &Value| {
            let mut item = approval(view);
            item["id"] = view["id"].clone();
            json!({"decisions": [item]})
        };
        let refuse_both = async |person: &Person| {
            person.approve(id_of(&op)).await.refused(403, "self_approval");
            let view = person.view(id_of(&op)).await;
            let many = person.post("decisions", bulk(&view)).await.ok(200);
            assert_eq!((&many.body["results"][0]["status"], &many.body["results"][0]["code"]), (&json!(403), &json!("self_approval")));
        };
        refuse_both(&owner).await;
        for minor in [1, 1_000_000] {
            let params = json!({"order": "4711", "original_transaction": "t", "amount_minor": minor, "currency": "EUR"});
            let payment = run.propose("payment.refund", "order/4711", params).await.ok(201).operation().clone();
            owner.approve(id_of(&payment)).await.refused(403, "self_approval");
        }
        // The owner at the proposal stays self, and so does whoever owns the agent now.
        admin.call(Method::PATCH, &format!("agents/{}", agent.id)).json(json!({"owner": "hana"})).await.ok(200);
        refuse_both(&owner).await;
        refuse_both(&heir).await;
        let read = run.read(&op).await;
        assert_eq!((&read["state"], &read["version"], &read["approval"]["votes"]), (&json!("pending"), &json!(1), &json!([])));
        assert_eq!(story(&app, &op).await.iter().filter(|event| *event == "approval.refused").count(), 6);
        // They may say no.
        heir.decide(id_of(&op), "reject", json!({"reason_code": "policy"})).await.ok(200);
        assert_eq!(run.read(&op).await["state"], "rejected");
    }

    async fn an_approver_who_becomes_the_owner_no_longer_counts(app: App) {
        let (asha, _, _) = app.world().await;
        let admin = app.person("ada", "admin", "approvers").await;
        let agent = app.agent("second", "omar").await;
        let run = agent.run(json!({})).await;
        let op = run.ticket("Rotate").await;
        asha.approve(id_of(&op)).await.ok(200);
        admin.call(Method::PATCH, &format!("agents/{}", agent.id)).json(json!({"owner": "asha"})).await.ok(200);
        run.claim(&op).await.refused(409, "policy_changed");
        asha.approve(id_of(&op)).await.refused(403, "self_approval");
        admin.approve(id_of(&op)).await.ok(200);
        run.take(&op).await;
    }

    async fn only_people_in_the_rules_groups_with_a_voting_role_decide(app: App) {
        app.rules(json!([{"name": "money", "require": {"groups": ["payments", "finance"]}}])).await;
        let (asha, _, run) = app.world().await;
        let op = run.ticket("Rotate").await;
        let refused = asha.approve(id_of(&op)).await.refused(403, "not_eligible");
        assert_eq!(refused.body["groups"], json!(["payments", "finance"]));
        for role in ["viewer", "auditor"] {
            let person = app.person(role, role, "payments").await;
            person.approve(id_of(&op)).await.refused(403, "not_eligible");
            person.decide(id_of(&op), "reject", json!({})).await.refused(403, "not_eligible");
        }
        for role in ["approver", "operator", "admin"] {
            let person = app.person(role, role, "finance").await;
            let op = run.propose_as(&crate::support::fresh_key(), ticket(role)).await.ok(201).operation().clone();
            person.approve(id_of(&op)).await.ok(200);
        }
        assert_eq!(run.read(&op).await["version"], 1);
    }

    // Promise 13
    async fn a_program_decides_nothing_whatever_it_sends(app: App) {
        let (asha, _, run) = app.world().await;
        let agent = app.agent("second", "omar").await;
        let executor = app.executor("tracker", &["ticket.*"]).await;
        let op = run.ticket("Rotate").await;
        let view = asha.view(id_of(&op)).await;
        let path = format!("operations/{}", id_of(&op));
        for program in [&run, &agent, &executor] {
            program.post(&decisions(&op), approval(&view)).await.refused(403, "humans_only");
            program.post(&decisions(&op), approval(&view)).header("cookie", &asha.cookie).await.refused(403, "humans_only");
            program.call(Method::DELETE, &decisions(&op)).await.refused(403, "humans_only");
            program.post("decisions", json!({"decisions": []})).await.refused(403, "humans_only");
            program.get(&format!("{path}/review")).await.refused(403, "humans_only");
            program.post(&format!("{path}/resolution"), json!({"finding": "abandon", "note": "x"})).await.refused(403, "humans_only");
        }
        let refused = app.audit().await.into_iter().filter(|record| record["status"] == "humans_only");
        let tried: Vec<_> = refused.map(|record| (record["actor"]["id"].clone(), record["operation"] == op["id"])).collect();
        for program in [&run, &agent, &executor] {
            let of = |named: bool| tried.iter().filter(|(id, about)| *id == program.id && *about == named).count();
            assert_eq!((of(true), of(false)), (3, 1), "by name or in bulk, every try is on record");
        }
        asha.post(&decisions(&op), approval(&view)).header("origin", "https://evil.example").header("sec-fetch-site", "cross-site").await.refused(403, "cross_site");
        for path in [decisions(&op), format!("{path}/review"), path.clone(), "decisions".to_owned()] {
            drop(asha.get(&path).await);
            drop(asha.call(Method::HEAD, &path).await);
        }
        let read = run.read(&op).await;
        assert_eq!((&read["state"], &read["version"]), (&json!("pending"), &json!(1)));
    }

    async fn a_quorum_is_distinct_people_and_a_repeated_vote_is_the_recorded_one(app: App) {
        app.rules(json!([{"name": "two", "require": {"approvals": 2}}])).await;
        let (asha, _, run) = app.world().await;
        let second = app.person("bela", "operator", "approvers").await;
        let third = app.person("cora", "approver", "approvers").await;
        let op = run.ticket("Rotate").await;
        let view = asha.view(id_of(&op)).await;
        let first = asha.post(&decisions(&op), approval(&view)).await.ok(200);
        app.advance_s(5);
        let again = asha.post(&decisions(&op), approval(&view)).await.ok(200);
        assert_eq!((&again.body["vote"], again.header("etag")), (&first.body["vote"], first.header("etag")));
        let read = run.read(&op).await;
        assert_eq!((&read["state"], &read["approval"]["granted"], &read["approval"]["required"]), (&json!("pending"), &json!(1), &json!(2)));
        run.claim(&op).await.refused(409, "not_approved");
        let opposite = asha.decide(id_of(&op), "reject", json!({})).await.refused(409, "already_decided");
        assert_eq!((&opposite.body["decision"], &opposite.body["by"]), (&json!("approve"), &json!(asha.id)));
        assert_eq!(second.approve(id_of(&op)).await.ok(200).operation()["state"], "approved");
        assert_eq!(asha.post(&decisions(&op), approval(&view)).await.ok(200).body["vote"], first.body["vote"]);
        let late = third.approve(id_of(&op)).await.refused(409, "already_decided");
        assert_eq!(late.body["by"], second.id);
        assert_eq!(run.take(&op).await["approval"]["approved_by"], json!([asha.id, second.id]));
        assert_eq!(story(&app, &op).await[..4], ["operation.proposed", "approval.voted", "claim.refused", "approval.refused"]);
    }

    async fn one_rejection_is_enough_unless_the_rule_says_otherwise(app: App) {
        let (asha, _, run) = app.world().await;
        let second = app.person("bela", "approver", "approvers").await;
        let third = app.person("cora", "approver", "approvers").await;
        app.rules(json!([{"name": "two", "require": {"approvals": 2}}])).await;
        let strict = run.ticket("Strict").await;
        asha.approve(id_of(&strict)).await.ok(200);
        assert_eq!(second.decide(id_of(&strict), "reject", json!({})).await.ok(200).operation()["state"], "rejected");
        third.approve(id_of(&strict)).await.refused(409, "already_decided");

        app.rules(json!([{"name": "majority", "require": {"approvals": 2, "one_reject": false}}])).await;
        let op = run.ticket("Majority").await;
        assert_eq!(asha.decide(id_of(&op), "reject", json!({})).await.ok(200).operation()["state"], "pending");
        second.approve(id_of(&op)).await.ok(200);
        assert_eq!(third.approve(id_of(&op)).await.ok(200).operation()["state"], "approved");

        let hopeless = run.ticket("Hopeless").await;
        asha.decide(id_of(&hopeless), "reject", json!({})).await.ok(200);
        assert_eq!(second.decide(id_of(&hopeless), "reject", json!({})).await.ok(200).operation()["state"], "rejected");

        let rethought = run.ticket("Rethought").await;
        asha.decide(id_of(&rethought), "reject", json!({})).await.ok(200);
        withdraw(&asha, &rethought).await.ok(200);
        asha.approve(id_of(&rethought)).await.ok(200);
        assert_eq!(second.approve(id_of(&rethought)).await.ok(200).operation()["state"], "approved");
    }

    async fn a_rejection_names_its_reason(app: App) {
        let (asha, _, run) = app.world().await;
        let op = run.ticket("Rotate").await;
        let reply = asha.decide(id_of(&op), "reject", json!({"reason_code": null})).await.refused(422, "validation_failed");
        assert_eq!(reply.body["errors"][0]["pointer"], "/reason_code");
        asha.decide(id_of(&op), "reject", json!({"reason_code": "because"})).await.refused(422, "validation_failed");
        asha.decide(id_of(&op), "reject", json!({"reason": "x".repeat(2001)})).await.refused(422, "validation_failed");
        asha.decide(id_of(&op), "abstain", json!({})).await.refused(422, "validation_failed");
        let done = asha.decide(id_of(&op), "reject", json!({"reason_code": "duplicate", "reason": "See OPS-1"})).await.ok(200);
        assert_eq!((&done.body["vote"]["reason_code"], &done.body["vote"]["reason"]), (&json!("duplicate"), &json!("See OPS-1")));
    }

    async fn a_vote_counts_for_what_was_shown_and_nothing_else(app: App) {
        let (asha, _, run) = app.world().await;
        let op = run.ticket("Rotate").await;
        let other = run.ticket("Other").await;
        let view = asha.view(id_of(&op)).await;
        let foreign = json!({"fingerprint": other["fingerprint"]});
        asha.decide(id_of(&op), "approve", foreign).await.refused(409, "approval_mismatch");
        // A duplicate turns up between the look and the click.
        run.ticket("Rotate").await;
        let stale = asha.post(&decisions(&op), approval(&view)).await.refused(412, "stale_view");
        assert_ne!(stale.body["review_digest"], view["review_digest"]);
        assert_eq!(stale.body["review_digest"], asha.view(id_of(&op)).await["review_digest"]);
        // Fingerprint before digest.
        let mut both = approval(&view);
        both["fingerprint"] = other["fingerprint"].clone();
        asha.post(&decisions(&op), both).await.refused(409, "approval_mismatch");
        assert_eq!(run.read(&op).await["version"], 1);
        let counted = asha.approve(id_of(&op)).await.ok(200);
        let review = asha.get(&format!("operations/{}/review", id_of(&op))).await.ok(200).body;
        assert_eq!((&counted.body["vote"]["review_digest"], review["review"]["fingerprint"].clone()), (&review["review_digest"], op["fingerprint"].clone()));
    }

    async fn what_neighbours_do_makes_no_view_stale(app: App) {
        app.rules(json!([{"name": "two", "require": {"approvals": 2}}])).await;
        let (asha, _, run) = app.world().await;
        let second = app.person("bela", "approver", "approvers").await;
        let op = run.ticket("Rotate").await;
        let neighbour = run.ticket("Neighbour").await;
        let done = run.ticket("Done meanwhile").await;
        let view = second.view(id_of(&op)).await;
        asha.approve(id_of(&op)).await.ok(200);
        asha.approve(id_of(&neighbour)).await.ok(200);
        asha.approve(id_of(&done)).await.ok(200);
        second.approve(id_of(&done)).await.ok(200);
        run.complete(&done, succeeded("T-1")).await;
        run.ticket("A newcomer").await;
        app.advance_s(300);
        second.post(&decisions(&op), approval(&view)).await.ok(200);
    }

    async fn high_and_critical_risk_takes_the_target_typed_and_no_bulk(app: App) {
        let (asha, _, run) = app.world().await;
        for environment in ["staging", "prod-eu"] {
            let op = run.release(environment, 1).await.ok(201).operation().clone();
            for typed in [Value::Null, json!(""), json!("release/stagin"), json!(environment), json!(format!("release/{environment} "))] {
                let reply = asha.decide(id_of(&op), "approve", json!({"confirm_target": typed})).await.refused(422, "validation_failed");
                assert_eq!(reply.body["errors"][0]["pointer"], "/confirm_target");
            }
            let mut item = approval(&asha.view(id_of(&op)).await);
            item["id"] = op["id"].clone();
            let many = asha.post("decisions", json!({"decisions": [item]})).await.ok(200);
            assert_eq!((&many.body["results"][0]["status"], &many.body["results"][0]["code"]), (&json!(409), &json!("not_bulk")));
            assert_eq!(records(&app, &op).await.pop().unwrap()["status"], "not_bulk");
            assert_eq!(run.read(&op).await["version"], 1);
            asha.approve(id_of(&op)).await.ok(200);
        }
    }

    async fn a_rule_may_ask_for_the_password_again(app: App) {
        app.rules(json!([{"name": "careful", "require": {"step_up": true}}])).await;
        let (mut asha, _, run) = app.world().await;
        let op = run.ticket("Rotate").await;
        asha.approve(id_of(&op)).await.refused(403, "step_up_required");
        let reply = asha.post("session/step-up", json!({"password": PASSWORD})).await.ok(200);
        asha.cookie = cookie_of(&reply);
        app.advance_s(300);
        asha.approve(id_of(&op)).await.refused(403, "step_up_required");
        let reply = asha.post("session/step-up", json!({"password": PASSWORD})).await.ok(200);
        asha.cookie = cookie_of(&reply);
        app.advance_s(299);
        asha.approve(id_of(&op)).await.ok(200);
        let mut fresh = asha.clone();
        fresh.sign_in().await;
        let refused = run.ticket("Refused").await;
        fresh.approve(id_of(&refused)).await.refused(403, "step_up_required");
        fresh.decide(id_of(&refused), "reject", json!({})).await.ok(200);
    }

    async fn an_approval_is_withdrawn_until_it_is_spent(app: App) {
        let (asha, _, run) = app.world().await;
        let second = app.person("bela", "approver", "approvers").await;
        let on_call = app.person("olga", "operator", "").await;
        let op = run.ticket("Rotate").await;
        withdraw(&asha, &op).await.refused(403, "not_eligible");
        asha.approve(id_of(&op)).await.ok(200);
        withdraw(&second, &op).await.refused(403, "not_eligible");
        let back = withdraw(&asha, &op).await.ok(200);
        assert_eq!((&back.operation()["state"], &back.operation()["execution_deadline"]), (&json!("pending"), &Value::Null));
        assert_eq!(back.operation()["approval"]["expires_at"], op["approval"]["expires_at"], "the deadline is kept");
        run.claim(&op).await.refused(409, "approval_withdrawn");
        second.approve(id_of(&op)).await.ok(200);
        withdraw(&on_call, &op).await.ok(200);
        asha.approve(id_of(&op)).await.ok(200);
        let claim = run.take(&op).await;
        for person in [&asha, &on_call] {
            withdraw(person, &op).await.refused(409, "approval_spent");
        }
        run.report(&op, "sent", &claim, json!({})).await.ok(200);
        withdraw(&asha, &op).await.refused(409, "approval_spent");

        let late = run.ticket("Late").await;
        asha.approve(id_of(&late)).await.ok(200);
        app.advance_s(599);
        withdraw(&asha, &late).await.ok(200);
        asha.approve(id_of(&late)).await.ok(200);
        app.advance_s(400);
        let passed = withdraw(&asha, &late).await.ok(200);
        assert_eq!(passed.operation()["state"], "expired", "its time to decide is over");
    }

    // Row 8
    async fn an_approval_counts_only_while_its_voters_could_still_give_it(app: App) {
        let (asha, _, run) = app.world().await;
        let admin = app.person("ada", "admin", "").await;
        let second = app.person("bela", "approver", "approvers").await;
        for (role, groups) in [("viewer", &["approvers"][..]), ("approver", &["others"])] {
            let op = run.propose_as(&crate::support::fresh_key(), ticket(role)).await.ok(201).operation().clone();
            asha.approve(id_of(&op)).await.ok(200);
            becomes(&admin, &asha, role, groups).await;
            let refused = run.claim(&op).await.refused(409, "policy_changed");
            assert_eq!(refused.body["retry"]["mode"], "await_decision");
            let read = run.read(&op).await;
            assert_eq!((&read["state"], &read["approval"]["granted"], &read["approval"]["spent_at"]), (&json!("pending"), &json!(0), &Value::Null));
            assert!(read["approval"]["votes"][0]["void_at"].is_string());
            second.approve(id_of(&op)).await.ok(200);
            run.take(&op).await;
            becomes(&admin, &asha, "approver", &["approvers"]).await;
        }
        let op = run.ticket("Disabled").await;
        asha.approve(id_of(&op)).await.ok(200);
        admin.call(Method::PATCH, &format!("people/{}", asha.id)).json(json!({"disabled": true})).await.ok(200);
        run.claim(&op).await.refused(409, "policy_changed");
    }

    async fn an_approval_counts_only_while_it_satisfies_the_policy_in_force(app: App) {
        let (asha, _, run) = app.world().await;
        let second = app.person("bela", "approver", "approvers").await;
        let op = run.ticket("Rotate").await;
        let claimed = run.ticket("Claimed").await;
        for op in [&op, &claimed] {
            asha.approve(id_of(op)).await.ok(200);
        }
        let claim = run.take(&claimed).await;
        app.rules(json!([{"name": "two", "require": {"approvals": 2}}])).await;
        run.report(&claimed, "sent", &claim, json!({})).await.refused(409, "policy_changed");
        let refused = run.claim(&op).await.refused(409, "policy_changed");
        assert_eq!(refused.body["rule"], "two");
        let read = run.read(&op).await;
        assert_eq!((&read["state"], &read["approval"]["granted"], &read["approval"]["required"]), (&json!("pending"), &json!(1), &json!(2)));
        assert_eq!(second.approve(id_of(&op)).await.ok(200).operation()["state"], "approved");
        assert_eq!(run.complete(&op, succeeded("T-1")).await["state"], "succeeded");

        app.rules(json!([{"name": "auto", "require": {"auto": true}}])).await;
        let trusted = app.agent("trusted", "omar").await.run(json!({"write_set": [{"resource": "project/ops", "verbs": ["create"]}]})).await;
        let granted = trusted.ticket("Granted").await;
        assert_eq!(granted["state"], "approved");
        app.rules(json!([])).await;
        trusted.claim(&granted).await.refused(409, "policy_changed");
        asha.approve(id_of(&granted)).await.ok(200);
        trusted.take(&granted).await;
    }

    // The order of refusals: right, expired, decided, fingerprint, digest.
    async fn the_first_reason_to_refuse_a_decision_is_the_one_named(app: App) {
        let (asha, omar, run) = app.world().await;
        let op = run.ticket("Rotate").await;
        let other = run.ticket("Other").await;
        let wrong = json!({"fingerprint": other["fingerprint"], "review_digest": "sha256:0"});
        let decide = async |person: &Person| person.decide(id_of(&op), "approve", wrong.clone()).await;
        decide(&asha).await.refused(409, "approval_mismatch");
        let second = app.person("bela", "approver", "approvers").await;
        second.approve(id_of(&op)).await.ok(200);
        decide(&asha).await.refused(409, "already_decided");
        decide(&omar).await.refused(403, "self_approval");
        app.advance_s(900);
        decide(&asha).await.refused(409, "approval_expired");
        decide(&omar).await.refused(403, "self_approval");
        let cancelled = run.ticket("Cancelled").await;
        run.post(&format!("operations/{}/cancel", id_of(&cancelled)), json!({"reason": "x"})).await.ok(200);
        let ended = asha.decide(id_of(&cancelled), "approve", wrong.clone()).await.refused(409, "invalid_state");
        assert_eq!(ended.body["state"], "cancelled");
        asha.post("operations/op_00000000000000000000000000/decisions", approval(&op)).await.refused(422, "validation_failed");
        let nowhere = json!({"decision": "approve", "fingerprint": op["fingerprint"], "review_digest": "x"});
        asha.post("operations/op_00000000000000000000000000/decisions", nowhere).await.refused(404, "not_found");
    }

    // C33, as far as the API goes
    async fn a_bulk_decision_is_about_the_named_items_alone_and_each_has_its_answer(app: App) {
        let (asha, omar, run) = app.world().await;
        let own = app.agent("ashas", "asha").await.run(json!({})).await;
        let expires = run.ticket("Expires").await;
        let superseded = run.ticket("Superseded").await;
        app.advance_s(500);
        let (one, two) = (run.ticket("One").await, run.ticket("Two").await);
        let mine = own.ticket("Mine").await;
        let mut items = Vec::new();
        for op in [&one, &two, &expires, &superseded, &mine] {
            let view = asha.view(id_of(op)).await;
            items.push(json!({"id": op["id"], "decision": "approve", "fingerprint": op["fingerprint"], "review_digest": view["review_digest"]}));
        }
        let mut replacement = ticket("Replacement");
        replacement["supersedes"] = superseded["id"].clone();
        let unlisted = run.propose_as(&crate::support::fresh_key(), replacement).await.ok(201).operation().clone();
        for item in &mut items {
            let view = asha.view(item["id"].as_str().unwrap()).await;
            item["review_digest"] = view["review_digest"].clone();
        }
        app.advance_s(400);
        let body = json!({"decisions": items});
        let codes = |reply: &Reply| -> Vec<(u64, String)> {
            let results = reply.body["results"].as_array().unwrap();
            results.iter().map(|r| (r["status"].as_u64().unwrap(), r["code"].as_str().unwrap_or_default().to_owned())).collect()
        };
        let first = asha.post("decisions", body.clone()).await.ok(200);
        let expected = [(200, ""), (200, ""), (409, "approval_expired"), (409, "invalid_state"), (403, "self_approval")];
        assert_eq!(codes(&first), expected.map(|(status, code)| (status, code.to_owned())));
        let before = run.read(&one).await;
        assert_eq!(codes(&asha.post("decisions", body).await.ok(200)), codes(&first), "sent twice, decided once");
        assert_eq!(run.read(&one).await["version"], before["version"]);
        assert_eq!(run.read(&unlisted).await["state"], "pending");
        asha.post("decisions", json!({"decisions": []})).await.refused(422, "validation_failed");
        omar.post("decisions", json!({"decisions": [{"id": one["id"]}]})).await.refused(422, "validation_failed");
    }

    async fn what_was_not_sent_is_cancelled_by_its_run_its_owner_and_on_call(app: App) {
        let (asha, omar, run) = app.world().await;
        let on_call = app.person("olga", "operator", "").await;
        let executor = app.executor("tracker", &["ticket.*"]).await;
        let why = json!({"reason": "no longer needed"});
        let cancel = |op: &Value| format!("operations/{}/cancel", id_of(op));
        let op = run.ticket("Pending").await;
        asha.post(&cancel(&op), why.clone()).await.refused(403, "forbidden");
        executor.post(&cancel(&op), why.clone()).await.refused(403, "forbidden");
        run.post(&cancel(&op), json!({"reason": " "})).await.refused(422, "validation_failed");
        for _ in 0..2 {
            assert_eq!(run.post(&cancel(&op), why.clone()).await.ok(200).operation()["version"], 2);
        }
        let approved = run.ticket("Approved").await;
        asha.approve(id_of(&approved)).await.ok(200);
        omar.post(&cancel(&approved), why.clone()).await.ok(200);
        run.claim(&approved).await.refused(409, "invalid_state");
        let claimed = run.ticket("Claimed").await;
        asha.approve(id_of(&claimed)).await.ok(200);
        let claim = run.take(&claimed).await;
        on_call.post(&cancel(&claimed), why.clone()).await.ok(200);
        run.report(&claimed, "sent", &claim, json!({})).await.refused(409, "invalid_state");
        let sent = run.ticket("Sent").await;
        asha.approve(id_of(&sent)).await.ok(200);
        run.send(&sent).await;
        let refused = on_call.post(&cancel(&sent), why).await.refused(409, "invalid_state");
        assert_eq!(refused.body["retry"]["mode"], "operator");
    }
}
