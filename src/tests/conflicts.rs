//! Conflicts: a refused write changes nothing, says what it met, and is decided once.

use counterfoil::{
    model::resource::{Author, FieldChange, VersionChange},
    server::store::{
        resource,
        resource::{Field, Written},
    },
};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{App, Call, Person, Program, Reply, fresh_key, id_of, on_both_databases, release};

const POLICY: &str = "notification-policy/prod-alerts";

/// `asha`, who approves; `planner`, whose writes wait for her; `fixer`, whose writes are granted by rule.
struct Desk {
    asha: Person,
    planner: Program,
    fixer: Program,
}

impl Desk {
    async fn new(app: &App) -> Self {
        let (asha, _, planner) = app.world().await;
        app.rules(json!([{"name": "documents", "match": {"kind": "resource.*"}, "require": {"auto": true}}])).await;
        let verbs = json!(["create", "replace", "update", "delete"]);
        let set = json!([{"resource": "notification-policy/*", "verbs": verbs}]);
        let fixer = app.agent("fixer", "omar").await.run(json!({"write_set": set})).await;
        Self { asha, planner, fixer }
    }

    /// The policy at version 41.
    async fn at_41(app: &App, document: Value) -> Self {
        let desk = Self::new(app).await;
        write(&desk.fixer, "resource.create", 0, json!({"value": {"n": 0}})).await.ok(201);
        for version in 1..40 {
            write(&desk.fixer, "resource.update", version, json!({"patch": {"n": version}})).await.ok(201);
        }
        write(&desk.fixer, "resource.replace", 40, json!({"value": document})).await.ok(201);
        desk
    }

    async fn policy(&self) -> (i64, Value) {
        let body = self.asha.get(&format!("resources/{POLICY}")).await.ok(200).body;
        (body["version"].as_i64().unwrap(), body["value"].clone())
    }

    async fn conflict(&self, id: &Value) -> Value {
        self.asha.get(&format!("conflicts/{}", id.as_str().unwrap())).await.ok(200).body["conflict"].clone()
    }
}

fn write(run: &Program, kind: &str, expected: i64, params: Value) -> Call {
    let body = json!({"kind": kind, "target": POLICY, "params": params, "expected_version": expected});
    run.propose_as(&fresh_key(), body)
}

/// A patch as `fixer` makes it, which is written at once.
async fn patched(run: &Program, expected: i64, patch: Value) -> Value {
    write(run, "resource.update", expected, json!({"patch": patch})).await.ok(201).operation().clone()
}

fn resolution(id: &Value) -> String {
    format!("conflicts/{}/resolution", id.as_str().unwrap())
}

fn pointers(fields: &Value) -> Vec<&str> {
    fields.as_array().unwrap().iter().map(|field| field["pointer"].as_str().unwrap()).collect()
}

/// What every conflict carries.
#[track_caller]
fn enveloped(reply: &Reply, resource: &str, resolver: &str) {
    let body = &reply.body;
    assert_eq!((&body["error"], &body["category"]), (&body["code"], &body["code"]), "{}", reply.text);
    assert_eq!((&body["resource"], &body["resolver"]), (&json!(resource), &json!(resolver)), "{}", reply.text);
    assert!(body["operation"]["id"].is_string(), "{}", reply.text);
}

on_both_databases! {
    // C17, promise 8
    async fn an_approval_of_an_old_document_undoes_no_newer_change(app: App) {
        let desk = Desk::at_41(&app, json!({"severity": "high", "to": ["ops"]})).await;
        let mine = json!({"value": {"severity": "high", "to": ["ops", "sre"]}});
        let waiting = write(&desk.planner, "resource.replace", 41, mine.clone()).await.ok(201).operation().clone();
        let theirs = patched(&desk.fixer, 41, json!({"severity": "critical"})).await;
        let marked = desk.planner.read(&waiting).await;
        let conflict = &marked["conflict"]["id"];
        assert_eq!((&marked["state"], &marked["conflict"]["state"]), (&json!("conflicted"), &json!("open")));
        assert_eq!((&marked["retry"]["mode"], &marked["safe_new_key"]), (&json!("after_fresh_read"), &json!(true)));
        let page = desk.asha.get(&format!("/operations/{}", id_of(&waiting))).header("accept", "text/html").await.ok(200);
        assert!(page.text.contains("version 42"), "the page says so before the click");
        let refused = desk.asha.approve(id_of(&waiting)).await.refused(409, "invalid_state");
        assert_eq!(&refused.body["conflict_id"], conflict);
        assert_eq!(marked["approval"]["spent_at"], Value::Null);
        assert_eq!(desk.policy().await.0, 42);

        let late = write(&desk.planner, "resource.replace", 41, mine).await.refused(412, "stale_version");
        enveloped(&late, POLICY, "agent");
        for (member, expected) in [
            ("expected_etag", json!("\"41\"")), ("current_etag", json!("\"42\"")), ("expected_version", json!(41)),
            ("current_version", json!(42)), ("changed_fields_complete", json!(true)), ("already_satisfied", json!(false)),
            ("retryable", json!(false)), ("safe_new_key", json!(true)), ("retry", json!({"mode": "after_fresh_read"})),
        ] {
            assert_eq!(late.body[member], expected, "{member}");
        }
        let id = late.body["conflict_id"].as_str().unwrap();
        assert_eq!(late.body["instance"], format!("/api/v1/conflicts/{id}"));
        assert_eq!(late.operation()["state"], "conflicted");
        let fields = late.body["changed_fields"].as_array().unwrap();
        assert_eq!(fields.len(), 1);
        let field = &fields[0];
        assert_eq!((&field["pointer"], &field["change"], &field["from"], &field["to"]), (&json!("/severity"), &json!("replace"), &json!("high"), &json!("critical")));
        assert_eq!((&field["version"], &field["in_your_write"]), (&json!(42), &json!(true)));
        let by = &field["by"];
        assert_eq!((&by["run"], &by["operation"], &by["agent"], &by["approval"]), (&theirs["run"], &theirs["id"], &theirs["agent"], &theirs["approval"]["id"]));
    }

    // C17
    async fn an_approval_of_an_old_release_is_spent_on_nothing(app: App) {
        let (asha, _, run) = app.world().await;
        let executor = app.executor("releaser", &["deployment.*"]).await;
        let observe = |version: i64| executor.post("resources/release/eu/observed-version", json!({"version": version}));
        observe(41).await.ok(200);
        let op = run.release("eu", 41).await.ok(201).operation().clone();
        asha.approve(id_of(&op)).await.ok(200);
        observe(42).await.ok(200);
        let refused = run.claim(&op).await.refused(409, "invalid_state");
        let read = run.read(&op).await;
        assert_eq!((&read["state"], &read["conflict"]["id"]), (&json!("conflicted"), &refused.body["conflict_id"]));
        assert_eq!(read["approval"]["spent_at"], Value::Null);
        asha.approve(id_of(&op)).await.refused(409, "already_decided");
        let late = run.release("eu", 41).await.refused(412, "stale_version");
        enveloped(&late, "release/eu", "human");
        assert_eq!((&late.body["expected_version"], &late.body["current_version"]), (&json!(41), &json!(42)));
        assert_eq!((&late.body["changed_fields"], &late.body["changed_fields_complete"]), (&json!([]), &json!(false)));
        assert_eq!(late.body["reported_by"]["id"], executor.id.as_str());
        let again = json!({"replans": op["id"]});
        let mut body = release("eu", json!(42));
        body["replans"] = again["replans"].clone();
        let again = run.propose_as(&fresh_key(), body).await.ok(201).operation().clone();
        run.claim(&again).await.refused(409, "not_approved");
        asha.approve(id_of(&again)).await.ok(200);
        run.claim(&again).await.ok(200);
    }

    async fn a_reviewer_asks_for_a_new_plan_and_both_changes_land(app: App) {
        let desk = Desk::at_41(&app, json!({"severity": "high", "to": ["ops"]})).await;
        let mine = json!({"value": {"severity": "high", "to": ["ops", "sre"]}});
        let refused = {
            let waiting = write(&desk.planner, "resource.replace", 41, mine).await.ok(201).operation().clone();
            patched(&desk.fixer, 41, json!({"severity": "critical"})).await;
            desk.planner.read(&waiting).await
        };
        let id = &refused["conflict"]["id"];
        let conflict = desk.conflict(id).await;
        assert_eq!(pointers(&conflict["rows"]), ["/severity", "/to"]);
        let row = &conflict["rows"][0];
        assert_eq!((&row["as_read"], &row["proposed"], &row["now"], &row["overlap"]), (&json!("high"), &json!("high"), &json!("critical"), &json!(true)));
        assert_eq!(conflict["rows"][1]["overlap"], false);
        assert_eq!((&conflict["agent"], &conflict["met_agent"]), (&refused["agent"], &conflict["changed_fields"][0]["by"]["agent"]));

        let poll = desk.planner.get(&format!("operations/{}?wait=30", id_of(&refused)));
        let poll = tokio::spawn(poll.header("if-none-match", &format!("\"{}\"", refused["version"])).into_future());
        let mut stream = desk.asha.get("events").events().await;
        let decision = json!({"action": "replan", "instruction": "Keep severity critical; add sre only"});
        let decided = desk.asha.post(&resolution(id), decision.clone()).await.ok(200);
        assert_eq!(decided.header("etag"), format!("\"{}\"", decided.operation()["version"]));
        let woken = poll.await.unwrap().ok(200).operation()["conflict"].clone();
        assert_eq!((&woken["state"], &woken["resolution"]["action"]), (&json!("resolved"), &json!("replan")));
        assert_eq!(woken["resolution"]["instruction"], decision["instruction"]);
        assert_eq!((&woken["resolution"]["by"], &woken["resolution"]["by_name"]), (&json!(desk.asha.id), &json!("asha")));
        let told = stream.take(2).await;
        assert_eq!((told[0].event.as_str(), told[0].id, &told[0].data["id"], &told[0].data["state"]), ("conflict", None, id, &json!("resolved")));
        assert_eq!((told[1].event.as_str(), &told[1].data["id"]), ("operation", &refused["id"]));

        let body = json!({
            "kind": "resource.replace", "target": POLICY, "expected_version": 42, "replans": refused["id"],
            "params": {"value": {"severity": "critical", "to": ["ops", "sre"]}},
        });
        let again = desk.planner.propose_as(&fresh_key(), body.clone()).await.ok(201).operation().clone();
        assert_eq!((&again["links"]["replans"], &again["approval"]["granted"]), (&refused["id"], &json!(0)));
        assert_eq!(desk.planner.read(&refused).await["replanned_by"], again["id"]);
        assert_eq!(desk.conflict(id).await["replanned_by"], again["id"]);
        let review = desk.asha.get(&format!("operations/{}/review", id_of(&again))).await.ok(200).body["review"].clone();
        assert_eq!(review["replans"]["operation"], refused["id"]);
        assert_eq!(pointers(&review["replans"]["changes"]), ["/expected_version", "/params/value/severity"]);
        let twice = desk.planner.propose_as(&fresh_key(), body).await.refused(409, "invalid_state");
        assert_eq!(twice.body["replanned_by"], again["id"]);
        desk.asha.approve(id_of(&again)).await.ok(200);
        assert_eq!(desk.policy().await, (43, json!({"severity": "critical", "to": ["ops", "sre"]})));
        // The decision stays what it was made on.
        assert_eq!(desk.conflict(id).await["current_version"], 42);
        let story = app.audit().await.into_iter().find(|record| record["event"] == "conflict.resolved").unwrap();
        assert_eq!((&story["status"], &story["operation"], &story["actor"]["id"]), (&json!("replan"), &refused["id"], &json!(desk.asha.id)));
    }

    async fn what_changed_and_changed_back_is_told_with_its_last_version(app: App) {
        let desk = Desk::at_41(&app, json!({"severity": "high", "a/b~c": 1, "kept": true})).await;
        for (version, patch) in [
            (41, json!({"severity": "low"})), (42, json!({"added": 1, "a/b~c": 2})), (43, json!({"severity": "high"})),
            (44, json!({"added": null})),
        ] {
            patched(&desk.fixer, version, patch).await;
        }
        let late = write(&desk.planner, "resource.update", 41, json!({"patch": {"severity": "critical"}})).await;
        let late = late.refused(412, "stale_version");
        let fields = &late.body["changed_fields"];
        assert_eq!(pointers(fields), ["/added", "/a~1b~0c", "/severity"]);
        let told: Vec<_> = fields.as_array().unwrap().iter().map(|field| (field["version"].as_i64().unwrap(), field["in_your_write"].as_bool().unwrap())).collect();
        assert_eq!(told, [(45, false), (43, false), (44, true)]);
        assert_eq!((&fields[2]["from"], &fields[2]["to"]), (&json!("high"), &json!("high")));
        assert_eq!((fields[0].get("from"), &fields[0]["change"]), (None, &json!("remove")));
        enveloped(&late, POLICY, "human");
        assert_eq!(desk.policy().await.0, 45);
    }

    async fn disjoint_patches_are_left_to_the_agent_whose_new_plan_settles_it(app: App) {
        let desk = Desk::at_41(&app, json!({"severity": "high", "to": ["ops"]})).await;
        patched(&desk.fixer, 41, json!({"severity": "critical"})).await;
        let disjoint = write(&desk.planner, "resource.update", 41, json!({"patch": {"to": ["sre"]}})).await;
        let disjoint = disjoint.refused(412, "stale_version");
        enveloped(&disjoint, POLICY, "agent");
        assert_eq!(disjoint.body["changed_fields"][0]["in_your_write"], false);
        let shared = write(&desk.planner, "resource.update", 41, json!({"patch": {"severity": null}})).await;
        let shared = shared.refused(412, "stale_version");
        enveloped(&shared, POLICY, "human");
        let deletion = write(&desk.planner, "resource.delete", 41, json!({})).await.refused(412, "stale_version");
        enveloped(&deletion, POLICY, "human");
        for (refused, expected) in [(&disjoint, "resolved"), (&shared, "open")] {
            let body = json!({
                "kind": "resource.update", "target": POLICY, "expected_version": 42, "params": {"patch": {"to": ["sre"]}},
                "replans": refused.operation()["id"],
            });
            desk.planner.propose_as(&fresh_key(), body).await.ok(201);
            assert_eq!(desk.conflict(&refused.body["conflict_id"]).await["state"], expected);
        }
        let settled = desk.conflict(&disjoint.body["conflict_id"]).await["resolution"].clone();
        assert_eq!((&settled["action"], &settled["by"]), (&json!("replan"), &json!(desk.planner.id)));
    }

    async fn an_agent_accepts_what_it_wanted_and_nothing_else(app: App) {
        let desk = Desk::at_41(&app, json!({"severity": "high"})).await;
        patched(&desk.fixer, 41, json!({"severity": "critical"})).await;
        let refused = write(&desk.planner, "resource.update", 41, json!({"patch": {"severity": "critical"}})).await;
        let refused = refused.refused(412, "stale_version");
        assert_eq!(refused.body["already_satisfied"], true);
        let path = resolution(&refused.body["conflict_id"]);
        for action in ["replan", "dismiss"] {
            desk.planner.post(&path, json!({"action": action})).await.refused(403, "humans_only");
        }
        desk.fixer.post(&path, json!({"action": "accept_current"})).await.refused(404, "not_found");
        patched(&desk.fixer, 42, json!({"severity": "low"})).await;
        desk.planner.post(&path, json!({"action": "accept_current"})).await.refused(403, "humans_only");
        patched(&desk.fixer, 43, json!({"severity": "critical"})).await;
        let accepted = desk.planner.post(&path, json!({"action": "accept_current"})).await.ok(200);
        assert_eq!(accepted.body["conflict"]["resolution"]["by"], desk.planner.id);
        assert_eq!(accepted.operation()["retry"]["mode"], "none");
        desk.planner.post(&path, json!({"action": "accept_current"})).await.ok(200);
        assert_eq!(desk.policy().await.0, 44);
    }

    async fn of_twenty_who_decide_one_does(app: App) {
        let desk = Desk::at_41(&app, json!({"severity": "high"})).await;
        patched(&desk.fixer, 41, json!({"severity": "critical"})).await;
        let refused = write(&desk.planner, "resource.update", 41, json!({"patch": {"severity": "low"}})).await;
        let id = refused.refused(412, "stale_version").body["conflict_id"].clone();
        let other = app.node(&[]).await;
        let omar = app.person("omo", "operator", "").await;
        let calls = (0..20).map(|i| {
            let person = if i % 2 == 0 { desk.asha.clone() } else { omar.at(&other) };
            let action = ["replan", "accept_current", "dismiss"][i % 3];
            let body = json!({"action": action, "note": format!("note {i}")});
            let call = person.post(&resolution(&id), body.clone()).into_future();
            tokio::spawn(async move { (person, body, call.await) })
        });
        let replies: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
        let (won, lost): (Vec<_>, Vec<_>) = replies.into_iter().partition(|(_, _, reply)| reply.status == 200);
        assert_eq!(won.len(), 1);
        let (winner, body, first) = &won[0];
        for (_, _, reply) in lost {
            let reply = reply.refused(409, "already_decided");
            assert_eq!((&reply.body["by"], &reply.body["action"]), (&json!(winner.id), &body["action"]));
            assert!(reply.body["at"].is_string());
        }
        let again = winner.post(&resolution(&id), body.clone()).await.ok(200);
        assert_eq!((&again.body["conflict"], again.header("etag")), (&first.body["conflict"], first.header("etag")));
        let events = app.events().await;
        assert_eq!(events.iter().filter(|event| *event == "conflict.resolved").count(), 1);
    }

    async fn people_see_all_conflicts_and_an_agent_its_own(app: App) {
        let desk = Desk::at_41(&app, json!({"severity": "high"})).await;
        patched(&desk.fixer, 41, json!({"severity": "critical"})).await;
        for _ in 0..3 {
            write(&desk.planner, "resource.update", 41, json!({"patch": {"n": 1}})).await.refused(412, "stale_version");
        }
        let list = |query: &str| desk.asha.get(&format!("conflicts?{query}"));
        let page = list("state=open&limit=2").await.ok(200);
        assert_eq!(page.body["conflicts"].as_array().unwrap().len(), 2);
        let next = page.header("link").trim_start_matches('<').split('>').next().unwrap();
        let next = desk.asha.get(next.trim_start_matches(crate::support::PUBLIC_URL)).await.ok(200);
        assert_eq!((next.body["conflicts"].as_array().unwrap().len(), &next.body["next_cursor"]), (1, &Value::Null));
        let first = &page.body["conflicts"][0];
        assert_eq!((&first["code"], &first["kind"], &first["resource"]), (&json!("stale_version"), &json!("resource.update"), &json!(POLICY)));
        let id = &first["id"];
        desk.asha.post(&resolution(id), json!({"action": "dismiss"})).await.ok(200);
        for (query, expected) in [
            ("state=open", 2), ("state=resolved", 1), ("", 3), ("kind=resource.update", 3), ("kind=resource.delete", 0),
            ("target=notification-policy/prod-alerts", 3), ("target=note/x", 0),
            (&format!("agent={}", first["agent"].as_str().unwrap()), 3),
        ] {
            assert_eq!(list(query).await.ok(200).body["conflicts"].as_array().unwrap().len(), expected, "{query}");
        }
        list("state=gone").await.refused(400, "bad_request");
        let path = format!("conflicts/{}", id.as_str().unwrap());
        assert_eq!(desk.planner.get("conflicts").await.ok(200).body["conflicts"].as_array().unwrap().len(), 3);
        assert_eq!(desk.fixer.get("conflicts").await.ok(200).body["conflicts"], json!([]));
        desk.planner.get(&path).await.ok(200);
        desk.fixer.get(&path).await.refused(404, "not_found");
        let executor = app.executor("any", &["*"]).await;
        executor.get(&path).await.refused(404, "not_found");
        executor.get("conflicts").await.refused(403, "forbidden");
        app.get(&path).await.refused(401, "unauthenticated");
        desk.asha.get("conflicts/cf_00000000000000000000000000").await.refused(404, "not_found");
    }

    async fn only_those_who_decide_operations_decide_conflicts(app: App) {
        let desk = Desk::at_41(&app, json!({"severity": "high"})).await;
        patched(&desk.fixer, 41, json!({"severity": "critical"})).await;
        let refused = write(&desk.planner, "resource.delete", 41, json!({})).await.refused(412, "stale_version");
        let path = resolution(&refused.body["conflict_id"]);
        for role in ["viewer", "auditor"] {
            let person = app.person(role, role, "approvers").await;
            person.post(&path, json!({"action": "dismiss"})).await.refused(403, "forbidden");
        }
        for (body, pointer) in [
            (json!({"action": "merge"}), "/action"), (json!({}), "/action"),
            (json!({"action": "dismiss", "instruction": "go on"}), "/instruction"),
            (json!({"action": "replan", "instruction": "x".repeat(2001)}), "/instruction"),
            (json!({"action": "dismiss", "note": 7}), "/note"), (json!({"action": "dismiss", "by": "me"}), "/by"),
        ] {
            let reply = desk.asha.post(&path, body.clone()).await.refused(422, "validation_failed");
            assert!(reply.body["errors"][0]["pointer"].as_str().is_some_and(|at| pointer.starts_with(at)), "{body} {}", reply.text);
        }
        desk.asha.post(&path, json!({"action": "dismiss"})).header("sec-fetch-site", "cross-site").await.refused(403, "cross_site");
        assert_eq!(desk.conflict(&refused.body["conflict_id"]).await["state"], "open");
    }

    async fn values_are_for_those_who_may_read_the_resource(app: App) {
        let desk = Desk::at_41(&app, json!({"secret": "opaque-1", "open": 1})).await;
        let admin = app.person("ada", "admin", "sre").await;
        admin.post("resource-rules", json!({"scope": "notification-policy/*", "readers": ["sre"]})).await.ok(201);
        patched(&desk.fixer, 41, json!({"secret": "opaque-2"})).await;
        let late = write(&desk.planner, "resource.update", 41, json!({"patch": {"secret": "opaque-3"}})).await;
        let late = late.refused(412, "stale_version");
        assert_eq!(pointers(&late.body["changed_fields"]), ["/secret"]);
        assert!(!late.text.contains("opaque"), "{}", late.text);
        let path = format!("conflicts/{}", late.body["conflict_id"].as_str().unwrap());
        let withheld = desk.asha.get(&path).await.ok(200);
        assert!(!withheld.text.contains("opaque") && withheld.body["conflict"]["values"] == "withheld", "{}", withheld.text);
        assert_eq!(withheld.body["conflict"]["rows"][0], json!({"pointer": "/secret", "overlap": true}));
        let shown = admin.get(&path).await.ok(200).body["conflict"].clone();
        assert_eq!((&shown["rows"][0]["as_read"], &shown["values"]), (&json!("opaque-1"), &json!("shown")));
    }

    async fn lists_with_a_key_are_compared_by_name(app: App) {
        let route = |name: &str, to: &str| json!({"name": name, "to": to});
        let desk = Desk::new(&app).await;
        let admin = app.person("ada", "admin", "").await;
        let rule = json!({"scope": "notification-policy/*", "array_keys": {"/routes": "name"}});
        admin.post("resource-rules", rule).await.ok(201);
        let value = json!({"value": {"routes": [route("a", "x"), route("b/c", "y")]}});
        write(&desk.fixer, "resource.create", 0, value).await.ok(201);
        patched(&desk.fixer, 1, json!({"routes": [route("b/c", "z"), route("d", "w")]})).await;
        let late = write(&desk.planner, "resource.update", 1, json!({"patch": {"routes": []}})).await;
        let late = late.refused(412, "stale_version");
        assert_eq!(pointers(&late.body["changed_fields"]), ["/routes/a", "/routes/b~1c/to", "/routes/d"]);
        let field = &late.body["changed_fields"][1];
        assert_eq!((&field["from"], &field["to"], &field["in_your_write"]), (&json!("y"), &json!("z"), &json!(true)));
    }

    async fn what_the_destination_refuses_is_kept_with_its_words(app: App) {
        let (asha, _, run) = app.world().await;
        let op = run.release("eu", 7).await.ok(201).operation().clone();
        asha.approve(id_of(&op)).await.ok(200);
        let said = json!({"current": "sha256:aa"});
        let ended = run.complete(&op, json!({"status": "conflicted", "conflict": said})).await;
        assert_eq!((&ended["state"], &ended["outcome"]["status"]), (&json!("conflicted"), &json!("conflicted")));
        let id = &ended["conflict"]["id"];
        let conflict = asha.get(&format!("conflicts/{}", id.as_str().unwrap())).await.ok(200).body["conflict"].clone();
        assert_eq!((&conflict["reported"], &conflict["code"]), (&said, &json!("stale_version")));
        let bad = json!({"action": "replan", "instruction": "Roll forward on what runs now"});
        asha.post(&resolution(id), bad).await.ok(200);
        assert_eq!(run.read(&op).await["conflict"]["state"], "resolved");
    }

    async fn a_lock_is_a_conflict_without_a_record(app: App) {
        let (asha, _, run) = app.world().await;
        let [first, second] = [run.release("eu", 1).await, run.release("eu", 1).await].map(|reply| reply.ok(201).operation().clone());
        for op in [&first, &second] {
            asha.approve(id_of(op)).await.ok(200);
        }
        run.send(&first).await;
        let refused = run.claim(&second).await.refused(409, "release_locked");
        enveloped(&refused, "release/eu", "agent");
        assert_eq!((refused.body.get("conflict_id"), &refused.operation()["state"]), (None, &json!("approved")));
        assert_eq!(asha.get("conflicts").await.ok(200).body["conflicts"], json!([]));
    }

    async fn only_what_ended_without_an_effect_is_planned_anew(app: App) {
        let (asha, _, run) = app.world().await;
        let ticket = |replans: &Value| {
            let params = json!({"project": "ops", "title": "Again"});
            json!({"kind": "ticket.create", "target": "project/ops", "params": params, "replans": replans["id"]})
        };
        let open = run.ticket("Open").await;
        let refused = run.propose_as(&fresh_key(), ticket(&open)).await.refused(409, "invalid_state");
        assert_eq!(refused.body["state"], "pending");
        asha.approve(id_of(&open)).await.ok(200);
        run.complete(&open, json!({"status": "succeeded", "provider_reference": "T-1"})).await;
        run.propose_as(&fresh_key(), ticket(&open)).await.refused(409, "invalid_state");
        let rejected = run.ticket("Rejected").await;
        asha.decide(id_of(&rejected), "reject", json!({})).await.ok(200);
        let first = run.propose_as(&fresh_key(), ticket(&rejected)).await.ok(201).operation().clone();
        run.propose_as(&fresh_key(), ticket(&rejected)).await.refused(409, "invalid_state");
        run.post(&format!("operations/{}/cancel", id_of(&first)), json!({"reason": "another way"})).await.ok(200);
        let second = run.propose_as(&fresh_key(), ticket(&rejected)).await.ok(201).operation().clone();
        assert_eq!(run.read(&rejected).await["replanned_by"], second["id"]);
        let stranger = app.agent("stranger", "omar").await.run(json!({})).await;
        stranger.propose_as(&fresh_key(), ticket(&rejected)).await.refused(422, "validation_failed");
    }

    async fn one_transaction_ends_all_that_was_planned_on_an_older_version(app: App) {
        let desk = Desk::at_41(&app, json!({"severity": "high"})).await;
        let waiting = (0..100).map(|i| write(&desk.planner, "resource.update", 41, json!({"patch": {"n": i}})).into_future());
        let waiting: Vec<_> = join_all(waiting).await.into_iter().map(|reply| reply.ok(201).operation().clone()).collect();
        let future = write(&desk.planner, "resource.replace", 42, json!({"value": 1})).await;
        future.refused(412, "stale_version");
        patched(&desk.fixer, 41, json!({"severity": "critical"})).await;
        let log = app.audit().await;
        let at = log.iter().rposition(|record| record["event"] == "resource.changed").unwrap();
        let marked = &log[at + 1..];
        assert_eq!(marked.len(), waiting.len());
        assert!(marked.iter().all(|record| record["event"] == "operation.conflicted" && record["at"] == log[at]["at"]));
        let open = desk.asha.get("conflicts?state=open&limit=200").await.ok(200).body;
        assert_eq!(open["conflicts"].as_array().unwrap().len(), waiting.len() + 1);
    }

    async fn a_long_history_is_one_answer_that_says_where_it_ends(app: App) {
        let desk = Desk::at_41(&app, json!({"n": 0})).await;
        let document = Value::Object((0..600).map(|i| (format!("f{i:03}"), json!(i))).collect());
        let written = document.clone();
        app.desk
            .commit(|tx| {
                Box::pin(async move {
                    for i in 0..600i64 {
                        let field = Field {
                            pointer: format!("/f{i:03}"),
                            change: FieldChange::Add,
                            old_digest: None,
                            new_digest: None,
                        };
                        let version = Written {
                            target: POLICY,
                            after: 41 + i,
                            version: 42 + i,
                            change: VersionChange::Changed,
                            document: Some(&written),
                            salt: "salt",
                            by: "managed",
                            author: &Author::default(),
                            fields: &[field],
                        };
                        assert!(resource::write(tx, &version).await?);
                    }
                    Ok(Ok(()))
                })
            })
            .await
            .unwrap();
        let late = write(&desk.planner, "resource.update", 41, json!({"patch": {"n": 1}})).await;
        let late = late.refused(412, "stale_version");
        let fields = late.body["changed_fields"].as_array().unwrap();
        assert_eq!((fields.len(), &late.body["changed_fields_complete"]), (500, &json!(false)));
        assert_eq!((&fields[499]["to"], &fields[499]["version"]), (&json!(499), &json!(541)));
        enveloped(&late, POLICY, "human");
    }
}
