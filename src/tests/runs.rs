//! Agents, executors and runs.

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::{App, id_of, on_both_databases};

on_both_databases! {
    async fn an_agents_token_is_shown_once_and_can_be_taken_away(app: App) {
        let admin = app.person("ada", "admin", "").await;
        app.person("omar", "viewer", "").await;
        let made = admin.post("agents", json!({"name": "Deployer 7", "owner": "omar"})).await.ok(201).body;
        let token = made["token"].as_str().unwrap();
        assert!(token.starts_with("cfa_") && token.len() == 47, "{token}");
        let agent = app.get("me").header("authorization", &format!("bearer {token}")).await.ok(200).body;
        assert_eq!(agent, json!({"kind": "agent", "agent": made["agent"]}));
        assert_eq!(agent["agent"]["owner_name"], "omar");

        let listed = admin.get("agents").await.ok(200).text;
        assert!(!listed.contains(token) && !listed.contains("token"), "{listed}");
        let start = app.post("runs", json!({"label": "x"})).header("authorization", &format!("Bearer {token}"));
        let run = start.await.ok(201).body["token"].as_str().unwrap().to_owned();

        let path = format!("agents/{}", agent["agent"]["id"].as_str().unwrap());
        admin.call(Method::PATCH, &path).json(json!({"revoked": false})).await.refused(422, "validation_failed");
        admin.call(Method::PATCH, &path).json(json!({"revoked": true})).await.ok(200);
        for token in [token, &run] {
            app.get("me").header("authorization", &format!("Bearer {token}")).await.refused(401, "unauthenticated");
        }
        assert_eq!(app.events().await.last().unwrap(), "admin.agent_revoked");
    }

    async fn an_agent_has_a_name_of_its_own_and_a_living_owner(app: App) {
        let admin = app.person("ada", "admin", "").await;
        let gone = app.person("gone", "viewer", "").await;
        admin.call(Method::PATCH, &format!("people/{}", gone.id)).json(json!({"disabled": true})).await.ok(200);
        admin.post("agents", json!({"name": "a", "owner": admin.id})).await.ok(201);
        admin.post("agents", json!({"name": "a", "owner": "ada"})).await.refused(409, "invalid_state");
        for (name, owner, pointer) in [
            ("b", "gone", "/owner"),
            ("b", "nobody", "/owner"),
            ("b", "usr_00000000000000000000000000", "/owner"),
            ("", "ada", "/name"),
            ("  ", "ada", "/name"),
            ("a\nb", "ada", "/name"),
            (&"x".repeat(101), "ada", "/name"),
        ] {
            let reply = admin.post("agents", json!({"name": name, "owner": owner})).await.refused(422, "validation_failed");
            assert_eq!(reply.body["errors"][0]["pointer"], pointer, "{name:?} {owner}");
        }
        admin.post("agents", json!({"name": "\u{202e}\u{430}pi", "owner": "ada"})).await.ok(201);
    }

    async fn an_admin_sets_what_an_agent_may_be_granted(app: App) {
        let admin = app.person("ada", "admin", "").await;
        let agent = app.agent("deployer", "ada").await;
        let free = json!([{"resource": "order/*", "verbs": ["pay", "refund"]}]);
        agent.run(json!({"write_set": free})).await;

        let path = format!("agents/{}", agent.id);
        let allow = json!([{"resource": "release/*", "verbs": ["deploy"]}]);
        let changed = admin.call(Method::PATCH, &path).json(json!({"allow": allow})).await.ok(200);
        assert_eq!(changed.body["agent"]["allow"], allow);
        let beyond = agent.post("runs", json!({"label": "x", "write_set": free})).await.refused(403, "outside_write_set");
        assert_eq!((&beyond.body["resource"], &beyond.body["verb"]), (&json!("order/*"), &json!("pay")));
        agent.run(json!({"write_set": [{"resource": "release/prod-eu", "verbs": ["deploy"]}]})).await;

        admin.call(Method::PATCH, &path).json(json!({"allow": null})).await.ok(200);
        agent.run(json!({"write_set": free})).await;
        assert_eq!(admin.get("agents").await.body["agents"][0]["allow"], Value::Null);
    }

    async fn an_agent_changes_hands(app: App) {
        let admin = app.person("ada", "admin", "").await;
        app.person("omar", "viewer", "").await;
        let agent = app.agent("deployer", "ada").await;
        let path = format!("agents/{}", agent.id);
        let changed = admin.call(Method::PATCH, &path).json(json!({"owner": "omar"})).await.ok(200);
        assert_eq!(changed.body["agent"]["owner_name"], "omar");
        admin.call(Method::PATCH, &path).json(json!({"owner": "nobody"})).await.refused(422, "validation_failed");
    }

    async fn an_executor_is_made_narrowed_and_revoked(app: App) {
        let admin = app.person("ada", "admin", "").await;
        let made = admin.post("executors", json!({"name": "payments", "kinds": ["payment.*"]})).await.ok(201).body;
        let token = made["token"].as_str().unwrap().to_owned();
        assert!(token.starts_with("cfe_"));
        let me = || app.get("me").header("authorization", &format!("Bearer {token}"));
        assert_eq!(me().await.ok(200).body["kind"], "executor");
        let path = format!("executors/{}", made["executor"]["id"].as_str().unwrap());
        let change = json!({"kinds": ["payment.refund"]});
        let changed = admin.call(Method::PATCH, &path).json(change).await.ok(200);
        assert_eq!(changed.body["executor"]["kinds"], json!(["payment.refund"]));
        for kinds in [json!([]), json!(["Payment.*"]), json!([""]), json!("payment.*")] {
            admin.post("executors", json!({"name": "x", "kinds": kinds})).await.refused(422, "validation_failed");
        }
        admin.call(Method::PATCH, &path).json(json!({"revoked": true})).await.ok(200);
        me().await.refused(401, "unauthenticated");
    }

    async fn a_run_lives_until_its_end_and_can_still_read_after_it(app: App) {
        app.person("omar", "viewer", "").await;
        let agent = app.agent("deployer", "omar").await;
        let run = agent.run(json!({"label": "nightly", "expires_in_s": 60, "reads": ["order/*"], "defaults": ["config/tax"]})).await;
        let document = run.get("me").await.ok(200).body["run"].clone();
        let expected = json!({
            "id": run.id, "agent": agent.id, "agent_name": "deployer", "label": "nightly", "state": "live",
            "created_at": "2026-12-01T00:00:00.000Z", "expires_at": "2026-12-01T00:01:00.000Z",
            "stopped_at": null, "stopped_by": null, "stop_reason": null,
            "write_set": null, "reads": ["order/*"], "defaults": ["config/tax"],
        });
        assert_eq!(document, expected);
        app.advance_s(59);
        assert_eq!(run.get("me").await.body["run"]["state"], "live");
        app.advance_s(1);
        assert_eq!(run.get("me").await.ok(200).body["run"]["state"], "expired");
        assert_eq!(agent.run(json!({})).await.get("me").await.body["run"]["expires_at"], "2026-12-02T00:01:00.000Z");
        assert_eq!(app.events().await.iter().filter(|event| *event == "run.started").count(), 2);
    }

    async fn a_run_is_stopped_by_itself_its_owner_and_on_call(app: App) {
        let owner = app.person("omar", "viewer", "").await;
        let on_call = app.person("olga", "operator", "").await;
        let approver = app.person("asha", "approver", "approvers").await;
        let agent = app.agent("deployer", "omar").await;
        let why = json!({"reason": "no longer needed"});
        let path = |id: &str| format!("runs/{id}/stop");

        let one = agent.run(json!({})).await;
        let sibling = agent.run(json!({})).await;
        sibling.post(&path(&one.id), why.clone()).await.refused(403, "forbidden");
        agent.post(&path(&one.id), why.clone()).await.refused(403, "forbidden");
        approver.post(&path(&one.id), why.clone()).await.refused(403, "forbidden");
        app.person("xena", "viewer", "").await;
        let stranger = app.agent("other", "xena").await.run(json!({})).await;
        stranger.post(&path(&one.id), why.clone()).await.refused(404, "not_found");
        for reason in [json!({}), json!({"reason": " "}), json!({"reason": "x".repeat(1001)})] {
            one.post(&path(&one.id), reason).await.refused(422, "validation_failed");
        }

        let stopped = one.post(&path(&one.id), why.clone()).await.ok(200).body["run"].clone();
        assert_eq!((&stopped["state"], &stopped["stop_reason"]), (&json!("stopped"), &json!("no longer needed")));
        app.advance_s(5);
        let again = one.post(&path(&one.id), json!({"reason": "again"})).await.ok(200).body["run"].clone();
        assert_eq!(again, stopped);
        let two = agent.run(json!({})).await;
        assert_eq!(owner.post(&path(&two.id), why.clone()).await.ok(200).body["run"]["stopped_by"], owner.id.as_str());
        let three = agent.run(json!({})).await;
        on_call.post(&path(&three.id), why.clone()).await.ok(200);
        app.advance_s(48 * 3600);
        assert_eq!(three.get("me").await.ok(200).body["run"]["state"], "stopped");
        assert_eq!(app.events().await.iter().filter(|event| *event == "run.stopped").count(), 3);
    }

    async fn what_a_stopped_run_has_not_sent_is_cancelled_with_it(app: App) {
        let (approver, owner, run) = app.world().await;
        let other = app.agent("other", "omar").await.run(json!({})).await;
        let (pending, approved, sent, theirs) =
            (run.ticket("a").await, run.ticket("b").await, run.ticket("c").await, other.ticket("d").await);
        for operation in [&approved, &sent] {
            approver.approve(id_of(operation)).await.ok(200);
        }
        let claim = run.claim(&sent).await.ok(200).body["claim"].clone();
        run.report(&sent, "sent", &claim, json!({})).await.ok(200);

        owner.post(&format!("runs/{}/stop", run.id), json!({"reason": "it loops"})).await.ok(200);
        for (operation, state) in [(&pending, "cancelled"), (&approved, "cancelled"), (&sent, "sent"), (&theirs, "pending")] {
            let reply = owner.get(&format!("operations/{}", id_of(operation))).await.ok(200);
            assert_eq!(reply.operation()["state"], state);
        }
        run.claim(&approved).await.refused(403, "run_stopped");
        run.propose("ticket.create", "project/ops", json!({"project": "ops", "title": "e"})).await.refused(403, "run_stopped");
        let report = json!({"status": "succeeded", "provider_reference": "T-1", "response": {"status": 201}});
        let done = run.report(&sent, "outcome", &claim, report).await.ok(200);
        assert_eq!(done.operation()["state"], "succeeded");
        let events = app.events().await;
        let stopped = events.iter().position(|event| event == "run.stopped").unwrap();
        assert_eq!(events[stopped + 1..stopped + 3], ["operation.cancelled", "operation.cancelled"]);
    }

    async fn an_agent_sees_its_own_runs_and_people_see_all(app: App) {
        let person = app.person("omar", "viewer", "").await;
        let (agent, other) = (app.agent("a", "omar").await, app.agent("b", "omar").await);
        let (mine, theirs) = (agent.run(json!({})).await, other.run(json!({})).await);
        let executor = app.executor("x", &["*"]).await;

        for principal in [&agent, &mine] {
            principal.get(&format!("runs/{}", mine.id)).await.ok(200);
            principal.get(&format!("runs/{}", theirs.id)).await.refused(404, "not_found");
            assert_eq!(principal.get("runs").await.ok(200).body["runs"].as_array().unwrap().len(), 1);
        }
        executor.get(&format!("runs/{}", mine.id)).await.refused(404, "not_found");
        executor.get("runs").await.refused(403, "forbidden");
        person.get(&format!("runs/{}", theirs.id)).await.ok(200);
        assert_eq!(person.get("runs").await.ok(200).body["runs"].as_array().unwrap().len(), 2);
        person.get("runs/run_00000000000000000000000000").await.refused(404, "not_found");
        mine.post("runs", json!({"label": "x"})).await.refused(403, "forbidden");
        person.post("runs", json!({"label": "x"})).await.refused(403, "forbidden");
    }

    async fn runs_are_read_page_by_page(app: App) {
        let person = app.person("omar", "viewer", "").await;
        let agent = app.agent("a", "omar").await;
        let mut made = Vec::new();
        for _ in 0..5 {
            app.advance_s(1);
            made.insert(0, agent.run(json!({})).await.id);
        }
        let (mut seen, mut path) = (Vec::new(), "runs?limit=2".to_owned());
        loop {
            let page = person.get(&path).await.ok(200).body;
            seen.extend(page["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()));
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            path = format!("runs?limit=2&cursor={cursor}");
        }
        assert_eq!(seen, made);
        for query in ["limit=x", "cursor=op_1", "colour=red", "limit=1&limit=2", "cursor=%00"] {
            person.get(&format!("runs?{query}")).await.refused(400, "bad_request");
        }
    }

    async fn what_does_not_fit_a_run_is_refused_with_its_place(app: App) {
        app.person("omar", "viewer", "").await;
        let agent = app.agent("a", "omar").await;
        let many: Vec<_> = (0..201).map(|i| json!({"resource": format!("order/{i}"), "verbs": ["pay"]})).collect();
        for (more, pointer) in [
            (json!({"label": ""}), "/label"),
            (json!({"label": 1}), "/label"),
            (json!({"expires_in_s": 0}), "/expires_in_s"),
            (json!({"expires_in_s": 30 * 24 * 3600 + 1}), "/expires_in_s"),
            (json!({"expires_in_s": "60"}), "/expires_in_s"),
            (json!({"priority": "critical"}), "/priority"),
            (json!({"write_set": [{"resource": "*", "verbs": ["pay"]}]}), "/write_set/0/resource"),
            (json!({"write_set": [{"resource": "order", "verbs": ["pay"]}]}), "/write_set/0/resource"),
            (json!({"write_set": [{"resource": "order/1", "verbs": []}]}), "/write_set/0/verbs"),
            (json!({"write_set": [{"resource": "order/1", "verbs": ["pay", "fly"]}]}), "/write_set/0/verbs/1"),
            (json!({"write_set": [{"resource": "order/1", "verbs": ["pay"], "expires_in_s": 0}]}), "/write_set/0/expires_in_s"),
            (json!({"write_set": [{"resource": "order/1", "verbs": ["pay"], "exclusive": 1}]}), "/write_set/0/exclusive"),
            (json!({"write_set": [{"resource": "order/1"}]}), "/write_set/0"),
            (json!({"write_set": many}), "/write_set"),
            (json!({"reads": ["a b"]}), "/reads/0"),
            (json!({"reads": vec!["order/1"; 201]}), "/reads"),
        ] {
            let mut body = json!({"label": "x"});
            body.as_object_mut().unwrap().append(more.clone().as_object_mut().unwrap());
            let reply = agent.post("runs", body).await.refused(422, "validation_failed");
            assert_eq!(reply.body["errors"][0]["pointer"], pointer, "{more} {}", reply.text);
        }
        assert!(!app.events().await.contains(&"run.started".to_owned()));
    }
}
