//! Kinds and policies: what admins add and change, and what follows for operations.

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::{App, Person, Program, on_both_databases};

fn own_kind() -> Value {
    json!({
        "name": "acme.feature-flag",
        "title": "Feature flag",
        "headline": "asks to turn {flag} {state}",
        "schema": {
            "type": "object",
            "additionalProperties": false,
            "required": ["flag", "state"],
            "properties": {
                "flag": {"type": "string", "minLength": 1, "maxLength": 60},
                "state": {"type": "string", "enum": ["on", "off"]},
            },
        },
        "target": "flag/{flag}",
        "verb": "update",
        "consequence": "Turns the flag {{ params.flag }} {{ params.state }}",
        "rollback": "Turn it back",
        "risk": "medium",
    })
}

async fn save_policy(admin: &Person, rules: Value) -> Value {
    admin.post("policies", json!({"rules": rules})).await.ok(201).body["policy"].clone()
}

async fn claim_of(run: &Program, operation: &Value) -> Value {
    run.claim(operation).await.ok(200).body["claim"].clone()
}

on_both_databases! {
    async fn people_read_kinds_and_admins_add_them(app: App) {
        let (asha, _, run) = app.world().await;
        let admin = app.person("ada", "admin", "").await;
        app.get("kinds").await.refused(401, "unauthenticated");
        run.get("kinds").await.refused(403, "humans_only");
        run.post("kinds", own_kind()).await.refused(403, "humans_only");
        asha.post("kinds", own_kind()).await.refused(403, "forbidden");

        let built_in = asha.get("kinds").await.ok(200).body["kinds"].as_array().unwrap().clone();
        assert_eq!(built_in.len(), 15);
        assert!(built_in.iter().all(|kind| kind["built_in"] == true && kind["version"] == 1));
        asha.get("kinds/acme.feature-flag").await.refused(404, "not_found");
        asha.get("kinds/Not-a-name").await.refused(404, "not_found");

        let added = admin.post("kinds", own_kind()).await.ok(201).body["kind"].clone();
        assert_eq!((&added["name"], &added["version"], &added["built_in"]), (&json!("acme.feature-flag"), &json!(1), &json!(false)));
        assert_eq!(admin.post("kinds", own_kind()).await.ok(200).body["kind"], added, "the same again adds nothing");
        assert_eq!(asha.get("kinds/acme.feature-flag").await.ok(200).body["kind"], added);
        let records: Vec<_> = app.audit().await.into_iter().filter(|r| r["resource"] == "kind/acme.feature-flag").collect();
        assert_eq!(records.len(), 1);
        assert_eq!(records[0]["event"], "admin.kind_added");
        assert_eq!(records[0]["actor"], json!({"kind": "human", "id": admin.id}));
        assert_eq!(records[0]["route"], "POST /api/v1/kinds");
    }

    async fn an_operation_keeps_the_version_of_its_kind(app: App) {
        let (asha, _, run) = app.world().await;
        let admin = app.person("ada", "admin", "").await;
        let body = json!({"kind": "acme.feature-flag", "params": {"flag": "dark-mode", "state": "on"}});
        run.propose_as("flag-0000000000001", body.clone()).await.refused(422, "validation_failed");
        admin.post("kinds", own_kind()).await.ok(201);
        let old = run.propose_as("flag-0000000000001", body.clone()).await.ok(201).operation().clone();
        assert_eq!((&old["kind_version"], &old["target"]), (&json!(1), &json!("flag/dark-mode")));
        assert_eq!(old["consequence"], "Turns the flag dark-mode on");

        let mut stricter = own_kind();
        stricter["schema"]["properties"]["state"]["enum"] = json!(["off"]);
        stricter["risk"] = json!("high");
        assert_eq!(admin.post("kinds", stricter).await.ok(201).body["kind"]["version"], 2);
        assert_eq!(asha.get("kinds/acme.feature-flag").await.ok(200).body["kind"]["version"], 2);
        let again = run.propose_as("flag-0000000000001", body.clone()).await.ok(202);
        assert_eq!(again.operation()["id"], old["id"], "a retry is read as the proposal was");
        assert_eq!(again.operation()["risk"], "medium");
        run.propose_as("flag-0000000000002", body).await.refused(422, "validation_failed");
        let off = json!({"kind": "acme.feature-flag", "params": {"flag": "dark-mode", "state": "off"}});
        let new = run.propose_as("flag-0000000000003", off).await.ok(201).operation().clone();
        assert_eq!((&new["kind_version"], &new["risk"]), (&json!(2), &json!("high")));

        let restarted = app.restart(&[]).await;
        assert_eq!(asha.at(&restarted).get("kinds/acme.feature-flag").await.ok(200).body["kind"]["version"], 2);
        assert_eq!(asha.at(&restarted).approve(old["id"].as_str().unwrap()).await.ok(200).operation()["state"], "approved");
    }

    async fn a_kind_that_is_not_valid_is_refused_with_every_place(app: App) {
        let admin = app.person("ada", "admin", "").await;
        let with = |change: &dyn Fn(&mut Value)| {
            let mut kind = own_kind();
            change(&mut kind);
            kind
        };
        let before = app.audit().await.len();
        for (document, pointer) in [
            (json!([]), ""),
            (with(&|kind| kind["name"] = json!("ticket.create")), "/name"),
            (with(&|kind| kind["name"] = json!("one")), "/name"),
            (with(&|kind| kind["color"] = json!("red")), "/color"),
            (with(&|kind| kind["risk"] = json!("tiny")), "/risk"),
            (with(&|kind| kind["target"] = json!("flag/{banner}")), "/target"),
            (with(&|kind| kind["schema"]["properties"]["flag"]["maxLength"] = json!("long")), "/schema"),
            (with(&|kind| kind["consequence"] = json!("{% if %}")), "/consequence"),
        ] {
            let reply = admin.post("kinds", document.clone()).await.refused(422, "validation_failed");
            let found = reply.body["errors"][0]["pointer"].as_str().unwrap();
            assert!(found.starts_with(pointer), "{document}: {}", reply.text);
        }
        let built_in = admin.get("kinds/ticket.create").await.ok(200).body["kind"]["document"].clone();
        let reply = admin.post("kinds", built_in).await.refused(422, "validation_failed");
        assert!(reply.body["detail"].as_str().unwrap().contains("is built in"), "{}", reply.text);
        let float = admin.call(Method::POST, "kinds").raw("application/json", r#"{"name": 1.5}"#).await;
        float.refused(422, "number_out_of_range");
        assert_eq!(admin.get("kinds").await.ok(200).body["kinds"].as_array().unwrap().len(), 15);
        assert_eq!(app.audit().await.len(), before);
    }

    async fn the_policy_is_changed_version_by_version(app: App) {
        let (asha, _, run) = app.world().await;
        let admin = app.person("ada", "admin", "").await;
        let first = asha.get("policies").await.ok(200);
        assert_eq!(first.header("etag"), "\"1\"");
        let policy = &first.body["policy"];
        assert_eq!((&policy["rules"], &policy["version"], &policy["warnings"]), (&json!([]), &json!(1), &json!([])));
        assert_eq!(policy["default"]["groups"], json!(["approvers"]));
        assert_eq!(policy["default"]["approval_ttl_s"], 900);
        run.get("policies").await.refused(403, "humans_only");
        asha.post("policies", json!({"rules": []})).await.refused(403, "forbidden");

        let rules = json!([
            {"name": "production", "match": {"target": ["release/prod*"]}, "require": {"approvals": 2, "groups": ["sre"]}},
            {"name": "tickets", "match": {"kind": ["ticket.*"]}, "require": {"approval_ttl_s": 60}},
        ]);
        let edit = |tag: &str, rules: &Value| admin.post("policies", json!({"rules": rules})).header("if-match", tag);
        let saved = edit("\"1\"", &rules).await.ok(201);
        assert_eq!(saved.header("etag"), "\"2\"");
        let policy = &saved.body["policy"];
        assert_eq!(policy["rules"], rules);
        assert_eq!(policy["warnings"][0]["pointer"], "/rules/0", "nobody is in that group");
        assert_eq!(policy["warnings"].as_array().unwrap().len(), 1);
        assert_eq!(policy["versions"][0]["changed_by"], admin.id.as_str());
        assert_eq!(policy["versions"][1]["changed_by"], Value::Null);

        let stale = edit("\"1\"", &json!([])).await.refused(412, "stale_version");
        assert_eq!((&stale.body["expected_version"], &stale.body["current_version"]), (&json!(1), &json!(2)));
        edit("W/\"2\"", &json!([])).await.refused(412, "stale_version");
        edit("2", &json!([])).await.refused(400, "malformed_etag");
        edit("\"2\"", &rules).await.ok(200);
        for (rules, pointer) in [
            (json!({}), "/rules"),
            (json!([{"name": "a", "require": {"approval_ttl_s": 0}}]), "/rules/0/require/approval_ttl_s"),
            (json!([{"name": "a", "require": {"timeout": "approve"}}]), "/rules/0/require/timeout"),
        ] {
            let reply = edit("\"2\"", &rules).await.refused(422, "validation_failed");
            assert_eq!(reply.body["errors"][0]["pointer"], pointer, "{}", reply.text);
        }
        let changes: Vec<_> = app.audit().await.into_iter().filter(|r| r["event"] == "admin.policy_changed").collect();
        assert_eq!(changes.len(), 2);
        assert_eq!((&changes[1]["policy"], &changes[1]["actor"]["id"]), (&json!("policy@2"), &json!(admin.id)));

        let ticket = run.ticket("Rotate staging certificate").await;
        assert_eq!((&ticket["approval"]["rule"], &ticket["approval"]["policy_version"]), (&json!("tickets"), &json!(2)));
        app.advance_s(60);
        asha.decide(ticket["id"].as_str().unwrap(), "approve", json!({})).await.refused(409, "approval_expired");
    }

    async fn people_ask_which_rule_would_match(app: App) {
        let (asha, _, run) = app.world().await;
        let admin = app.person("ada", "admin", "").await;
        save_policy(&admin, json!([
            {"name": "careful", "match": {"risk": "critical"}, "require": {"approvals": 2}},
            {"name": "this agent", "match": {"agent": "deploy*", "target": "project/*"}, "require": {"step_up": true}},
        ])).await;
        let ask = |question: Value| asha.post("policies/match", question);
        let question = json!({"kind": "ticket.create", "target": "project/ops", "agent": "deployer"});
        let found = ask(question.clone()).await.ok(200).body;
        assert_eq!((&found["place"], &found["rule"]["rule"], &found["risk"]), (&json!(1), &json!("this agent"), &json!("low")));
        assert_eq!(found["rule"]["step_up"], true);
        let with = |member: &str, value: Value| {
            let mut question = question.clone();
            question[member] = value;
            question
        };
        let critical = ask(with("risk", json!("critical"))).await.ok(200).body;
        assert_eq!((&critical["place"], &critical["rule"]["approvals"]), (&json!(0), &json!(2)));
        let other = ask(with("target", json!("order/4711"))).await.ok(200).body;
        assert_eq!((&other["place"], &other["rule"]["rule"]), (&Value::Null, &json!("default")));
        for (member, value) in
            [("kind", "ticket.burn"), ("agent", "nobody"), ("target", "project"), ("risk", "tiny"), ("colour", "red")]
        {
            let reply = ask(with(member, json!(value))).await.refused(422, "validation_failed");
            assert_eq!(reply.body["errors"][0]["pointer"], format!("/{member}"), "{}", reply.text);
        }
        run.post("policies/match", question).await.refused(403, "humans_only");
    }

    async fn a_claim_needs_the_policy_of_its_moment(app: App) {
        let (asha, _, run) = app.world().await;
        let admin = app.person("ada", "admin", "").await;
        let lina = app.person("lina", "approver", "approvers").await;
        let ticket = run.ticket("Rotate staging certificate").await;
        let id = ticket["id"].as_str().unwrap();
        asha.approve(id).await.ok(200);
        save_policy(&admin, json!([{"name": "two", "require": {"approvals": 2}}])).await;
        let refusal = run.claim(&ticket).await.refused(409, "policy_changed");
        assert_eq!(refusal.body["rule"], "two");
        let back = asha.view(id).await;
        assert_eq!((&back["state"], &back["approval"]["required"], &back["approval"]["granted"]), (&json!("pending"), &json!(2), &json!(1)));
        run.claim(&ticket).await.refused(409, "approval_withdrawn");
        assert_eq!(lina.approve(id).await.ok(200).operation()["state"], "approved");
        let claim = claim_of(&run, &ticket).await;

        // Spent, it cannot go back to people: nothing is sent under it, however often it is tried.
        save_policy(&admin, json!([{"name": "three", "require": {"approvals": 3}}])).await;
        run.report(&ticket, "sent", &claim, json!({})).await.refused(409, "policy_changed");
        app.advance_s(60);
        run.claim(&ticket).await.refused(409, "policy_changed");
        assert_eq!(asha.view(id).await["state"], "claimed");
        assert!(!app.events().await.contains(&"effect.sent".to_owned()));
        app.advance_s(600);
        run.claim(&ticket).await.refused(409, "approval_expired");
    }

    async fn an_approver_who_left_no_longer_approves(app: App) {
        let (asha, _, run) = app.world().await;
        let admin = app.person("ada", "admin", "").await;
        let lina = app.person("lina", "approver", "approvers").await;
        let ticket = run.ticket("Rotate staging certificate").await;
        let id = ticket["id"].as_str().unwrap();
        asha.approve(id).await.ok(200);
        admin.call(Method::PATCH, &format!("people/{}", asha.id)).json(json!({"disabled": true})).await.ok(200);
        run.claim(&ticket).await.refused(409, "policy_changed");
        assert_eq!(lina.view(id).await["approval"]["granted"], 0);
        lina.approve(id).await.ok(200);
        claim_of(&run, &ticket).await;
    }
}
