//! Resources: what is held here is written where it is approved, on the version it was planned on, or not at all.

use std::collections::BTreeSet;

use axum::http::Method;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{
    App, Call, Person, Program, Reply, fresh_key, id_of, on_both_databases, postgres, process::Place,
};

const MERGE_PATCH: &str = "application/merge-patch+json";

/// Whoever writes: a run with its token, or a person with their cookie.
trait Writer {
    fn request(&self, method: Method, path: &str) -> Call;

    fn write(&self, method: Method, target: &str) -> Call {
        self.request(method, &format!("resources/{target}")).header("idempotency-key", &fresh_key())
    }

    fn create(&self, target: &str, value: Value) -> Call {
        self.write(Method::PUT, target).header("if-none-match", "*").json(value)
    }

    fn replace(&self, target: &str, version: i64, value: Value) -> Call {
        self.write(Method::PUT, target).header("if-match", &format!("\"{version}\"")).json(value)
    }

    fn patch(&self, target: &str, version: i64, patch: Value) -> Call {
        let call = self.write(Method::PATCH, target).header("if-match", &format!("\"{version}\""));
        call.raw(MERGE_PATCH, patch.to_string())
    }

    fn delete(&self, target: &str, version: i64) -> Call {
        self.write(Method::DELETE, target).header("if-match", &format!("\"{version}\""))
    }
}

impl Writer for Program {
    fn request(&self, method: Method, path: &str) -> Call {
        self.call(method, path)
    }
}

impl Writer for Person {
    fn request(&self, method: Method, path: &str) -> Call {
        self.call(method, path)
    }
}

/// `asha`, who approves; a run whose writes wait for her; and one whose writes of notes are granted by rule.
async fn desk(app: &App) -> (Person, Program, Program) {
    let (asha, _, asks) = app.world().await;
    app.rules(json!([{"name": "notes", "match": {"kind": "resource.*"}, "require": {"auto": true}}])).await;
    let verbs = json!(["create", "replace", "update", "delete"]);
    let set = json!([{"resource": "note/*", "verbs": verbs}]);
    let writes = app.agent("writer", "omar").await.run(json!({"write_set": set})).await;
    (asha, asks, writes)
}

/// Brings a note to `version`.
async fn note_at(writes: &Program, target: &str, version: i64) {
    writes.create(target, json!({"severity": "low", "n": 1})).await.ok(201);
    for at in 1..version {
        writes.patch(target, at, json!({"n": at + 1})).await.ok(200);
    }
}

async fn value(reader: &Program, target: &str) -> (i64, Value) {
    let body = reader.get(&format!("resources/{target}")).await.ok(200).body;
    (body["version"].as_i64().unwrap(), body["value"].clone())
}

on_both_databases! {
    async fn a_document_is_created_replaced_patched_read_and_remembered(app: App) {
        let (asha, _, run) = desk(&app).await;
        let made = run.create("note/a", json!({"severity": "low", "to": ["ops"]})).await.ok(201);
        assert_eq!((made.header("etag"), made.body["disposition"].as_str()), ("\"1\"", Some("created")));
        let op = made.operation();
        let outcome = &op["outcome"];
        assert_eq!((&op["state"], &outcome["source"]), (&json!("succeeded"), &json!("system")));
        assert_eq!((&outcome["confirmed"], &outcome["resulting_version"]), (&json!(true), &json!(1)));
        assert_eq!(run.replace("note/a", 1, json!({"severity": "high", "to": ["ops"]})).await.ok(200).header("etag"), "\"2\"");
        let patched = run.patch("note/a", 2, json!({"to": null, "from": {"team": "net"}})).await.ok(200);
        assert_eq!(patched.header("etag"), "\"3\"");
        assert_eq!(patched.body["value"], json!({"severity": "high", "from": {"team": "net"}}));

        let read = run.get("resources/note/a").await.ok(200);
        assert_eq!((read.header("etag"), read.header("cache-control")), ("\"3\"", "private, no-cache"));
        assert_eq!(read.body["by"]["operation"], patched.operation()["id"]);
        let read = (&read.body["version"], &read.body["managed"], &read.body["resource"]);
        assert_eq!(read, (&json!(3), &json!(true), &json!("note/a")));
        for tags in ["\"3\"", "W/\"3\"", "\"1\", \"3\"", "*"] {
            let same = run.get("resources/note/a").header("if-none-match", tags).await.ok(304);
            assert_eq!((same.header("etag"), same.text.as_str()), ("\"3\"", ""));
        }
        asha.get("resources/note/a").header("if-none-match", "\"2\"").header("accept-encoding", "gzip, br").await.ok(200);
        let first = run.get("resources/note/a?version=1").await.ok(200).body;
        assert_eq!((&first["value"]["severity"], &first["version"]), (&json!("low"), &json!(1)));

        let history = asha.get("resources/note/a/history").await.ok(200).body;
        let versions = history["versions"].as_array().unwrap().iter();
        let versions: Vec<_> = versions.map(|v| (v["version"].clone(), v["change"].as_str().unwrap())).collect();
        assert_eq!(versions, [(json!(3), "changed"), (json!(2), "changed"), (json!(1), "created")]);
        let second = &history["versions"][1];
        assert_eq!(second["fields"].as_array().unwrap().len(), 1);
        assert_eq!((&second["fields"][0]["pointer"], &second["fields"][0]["change"]), (&json!("/severity"), &json!("replace")));
        assert!(second["by"]["approval"].is_string() && second["by"]["run"] == run.id.as_str());
        let page = asha.get("resources/note/a/history?limit=2").await.ok(200).body;
        let rest = asha.get(&format!("resources/note/a/history?cursor={}", page["next_cursor"])).await.ok(200).body;
        assert_eq!((page["next_cursor"].clone(), rest["versions"][0]["version"].clone()), (json!(2), json!(1)));

        let events = app.events().await;
        let wrote = ["approval.spent", "operation.claimed", "effect.sent", "effect.completed"];
        let at = events.iter().position(|event| event == "resource.created").unwrap();
        assert_eq!(events[at - 4..at], wrote);
        let listed = run.get("resources?prefix=note/").await.ok(200).body;
        assert_eq!(listed["resources"][0]["resource"], "note/a");
        run.get("resources/note/b").await.refused(404, "not_found");
        run.get("resources/note/b/history").await.refused(404, "not_found");
        run.get("resources/NOTE/b").await.refused(404, "not_found");
    }

    async fn lists_go_on_where_a_page_ended(app: App) {
        let (asha, _, run) = desk(&app).await;
        for name in ["a", "b+1", "c"] {
            run.create(&format!("note/{name}"), json!({})).await.ok(201);
        }
        let page = asha.get("resources?prefix=note/&limit=2").await.ok(200);
        assert_eq!(page.body["next_cursor"], "note/b+1");
        let next = page.header("link").trim_start_matches('<').split('>').next().unwrap();
        let next = asha.get(next.trim_start_matches(crate::support::PUBLIC_URL)).await.ok(200).body;
        assert_eq!(next["resources"].as_array().unwrap().len(), 1);
        assert_eq!((&next["resources"][0]["resource"], &next["next_cursor"]), (&json!("note/c"), &Value::Null));
    }

    async fn the_vote_that_completes_the_quorum_writes_it(app: App) {
        let (asha, run, _) = desk(&app).await;
        let key = fresh_key();
        let create = || run.create("note/a", json!({"n": 1})).header("idempotency-key", &key);
        let asked = create().await.ok(202);
        let op = asked.operation().clone();
        assert!(asked.header("location").ends_with(&format!("/api/v1/operations/{}", id_of(&op))));
        assert_eq!((asked.header("etag"), op["state"].as_str()), ("", Some("pending")));
        run.get("resources/note/a").await.refused(404, "not_found");
        assert_eq!(create().await.ok(202).header("idempotency-replayed"), "true");

        let executor = app.executor("any", &["*"]).await;
        for claimer in [&run, &executor] {
            let refused = claimer.claim(&op).await.refused(403, "forbidden");
            assert!(refused.body["detail"].as_str().unwrap().contains("Nobody claims `resource.create`"));
        }
        let voted = asha.approve(id_of(&op)).await.ok(200);
        assert_eq!(voted.operation()["state"], "succeeded");
        assert_eq!(voted.operation()["claim"]["by"], "managed");
        assert_eq!(value(&run, "note/a").await, (1, json!({"n": 1})));
        let replayed = create().await.ok(200);
        assert_eq!((replayed.header("etag"), replayed.body["disposition"].as_str()), ("\"1\"", Some("replayed")));
        run.claim(&op).await.refused(403, "forbidden");
        // The same vote again, as it was shown then.
        let shown = json!({"review_digest": voted.body["vote"]["review_digest"]});
        assert_eq!(asha.decide(id_of(&op), "approve", shown).await.ok(200).body["vote"], voted.body["vote"]);
    }

    async fn a_write_by_its_address_is_the_operation_posted(app: App) {
        let (_, asks, _) = desk(&app).await;
        for (call, kind, params, version) in [
            (asks.create("note/a", json!({"n": [1, null]})), "resource.create", json!({"value": {"n": [1, null]}}), 0),
            (asks.replace("note/a", 7, json!("text")), "resource.replace", json!({"value": "text"}), 7),
            (asks.write(Method::PUT, "note/a?expected_version=7").json(json!("text")), "resource.replace", json!({"value": "text"}), 7),
        ] {
            let by_address = call.await;
            let body = json!({"kind": kind, "target": "note/a", "params": params, "expected_version": version});
            let posted = asks.propose_as(&fresh_key(), body).await;
            let fingerprint = |reply: &Reply, op: Value| match reply.status.as_u16() {
                412 => op["fingerprint"].clone(),
                _ => reply.operation()["fingerprint"].clone(),
            };
            let mut found = Vec::new();
            for reply in [by_address, posted] {
                let op = asks.get(&format!("operations/{}", id_of(reply.operation()))).await.ok(200).operation().clone();
                found.push(fingerprint(&reply, op));
            }
            assert!(found[0].is_string() && found[0] == found[1], "{kind}: {found:?}");
        }
    }

    async fn an_approval_of_old_state_undoes_no_newer_change(app: App) {
        let (asha, asks, writes) = desk(&app).await;
        note_at(&writes, "note/a", 41).await;
        let planned = asks.replace("note/a", 41, json!({"severity": "low", "n": 0})).await.ok(202).operation().clone();
        writes.patch("note/a", 41, json!({"severity": "critical"})).await.ok(200);
        assert_eq!(asks.read(&planned).await["state"], "conflicted");
        asha.approve(id_of(&planned)).await.refused(409, "invalid_state");
        assert_eq!(value(&writes, "note/a").await.0, 42);
        let late = asks.replace("note/a", 41, json!({"severity": "low", "n": 0})).await.refused(412, "stale_version");
        assert_eq!((&late.body["expected_version"], &late.body["current_version"]), (&json!(41), &json!(42)));
        assert_eq!(late.operation()["state"], "conflicted");
        let replanned = json!({
            "kind": "resource.replace", "target": "note/a", "expected_version": 42, "replans": planned["id"],
            "params": {"value": {"severity": "critical", "n": 0}},
        });
        let again = asks.propose_as(&fresh_key(), replanned).await.ok(201).operation().clone();
        assert_eq!((&again["state"], &again["approval"]["granted"]), (&json!("pending"), &json!(0)));
        asha.approve(id_of(&again)).await.ok(200);
        assert_eq!(value(&writes, "note/a").await, (43, json!({"severity": "critical", "n": 0})));
    }

    async fn a_stale_tag_writes_nothing(app: App) {
        let (_, _, run) = desk(&app).await;
        note_at(&run, "note/a", 3).await;
        for call in [
            run.replace("note/a", 2, json!({})),
            run.patch("note/a", 2, json!({"n": 9})),
            run.delete("note/a", 2),
            run.create("note/a", json!({})),
            run.replace("note/b", 2, json!({})),
            run.replace("note/a", 0, json!({})),
        ] {
            let refused = call.await;
            let code = if refused.status == 422 { "validation_failed" } else { "stale_version" };
            refused.refused(if code == "stale_version" { 412 } else { 422 }, code);
        }
        assert_eq!(value(&run, "note/a").await, (3, json!({"severity": "low", "n": 3})));
        run.get("resources/note/b").await.refused(404, "not_found");
    }

    async fn of_sixteen_writers_with_one_tag_one_writes(app: App) {
        let (_, _, run) = desk(&app).await;
        let other = run.at(&app.node(&[]).await);
        note_at(&run, "note/a", 7).await;
        let calls = (0..16).map(|i| {
            let run = if i % 2 == 0 { &run } else { &other };
            let call = if i % 4 < 2 { run.replace("note/a", 7, json!({"by": i})) } else { run.patch("note/a", 7, json!({"by": i})) };
            async move { (i, call.await) }
        });
        let replies = join_all(calls).await;
        let winners: Vec<_> = replies.iter().filter(|(_, reply)| reply.status == 200).collect();
        assert_eq!(winners.len(), 1, "{replies:?}");
        assert!(replies.iter().all(|(_, reply)| reply.status == 200 || reply.code() == "stale_version"), "{replies:?}");
        let (version, value) = value(&run, "note/a").await;
        assert_eq!((version, &value["by"]), (8, &json!(winners[0].0)));
    }

    async fn of_twenty_creators_one_creates(app: App) {
        let (_, _, run) = desk(&app).await;
        let replies = join_all((0..20).map(|i| run.create("note/a", json!({"by": i})).into_future())).await;
        assert_eq!(replies.iter().filter(|reply| reply.status == 201).count(), 1, "{replies:?}");
        assert!(replies.iter().all(|reply| reply.status == 201 || reply.code() == "stale_version"), "{replies:?}");
        assert_eq!(value(&run, "note/a").await.0, 1);
    }

    async fn tags_that_only_look_equal_write_nothing(app: App) {
        let (_, _, run) = desk(&app).await;
        note_at(&run, "note/a", 41).await;
        let many = vec!["\"1\""; 10_000].join(", ");
        for (tag, status, code) in [
            ("W/\"41\"", 412, "stale_version"),
            ("\"\"", 412, "stale_version"),
            ("\"041\"", 412, "stale_version"),
            ("\"41 \"", 400, "malformed_etag"),
            ("41", 400, "malformed_etag"),
            ("\"41", 400, "malformed_etag"),
            ("w/\"41\"", 400, "malformed_etag"),
            ("\"41\" \"42\"", 400, "malformed_etag"),
            ("'41'", 400, "malformed_etag"),
            (many.as_str(), 400, "malformed_etag"),
            ("\"40\", \"42\"", 412, "stale_version"),
        ] {
            for method in [Method::PUT, Method::PATCH, Method::DELETE] {
                let call = run.write(method.clone(), "note/a").header("if-match", tag);
                let call = call.raw(if method == Method::PATCH { MERGE_PATCH } else { "application/json" }, "{}");
                let reply = call.await.refused(status, code);
                if tag == "W/\"41\"" {
                    assert!(reply.body["detail"].as_str().unwrap().contains("proxy"));
                }
            }
            let body = json!({"kind": "resource.replace", "target": "note/a", "params": {"value": 1}});
            run.propose_as(&fresh_key(), body).header("if-match", tag).await.refused(status, code);
        }
        assert_eq!(value(&run, "note/a").await.0, 41);
        let both = run.write(Method::PUT, "note/a?expected_version=40").header("if-match", "\"41\"").json(json!({}));
        both.await.refused(400, "bad_request");
        let neither = run.create("note/a", json!({})).header("if-match", "\"41\"");
        neither.await.refused(400, "bad_request");
        let listed = run.write(Method::PUT, "note/a").header("if-match", "\"7\", W/\"41\", \"41\"").json(json!({}));
        assert_eq!(listed.await.ok(200).header("etag"), "\"42\"");
        let lines = run.write(Method::PUT, "note/a").header("if-match", "\"7\"").also_header("if-match", "\"42\"");
        assert_eq!(lines.json(json!({"n": 1})).header("accept-encoding", "gzip").await.ok(200).header("etag"), "\"43\"");
    }

    async fn a_write_without_a_precondition_is_told_which(app: App) {
        let (_, _, run) = desk(&app).await;
        note_at(&run, "note/a", 2).await;
        let body = |call: Call, method: &Method| call.raw(if *method == Method::PATCH { MERGE_PATCH } else { "application/json" }, "{}");
        for method in [Method::PUT, Method::PATCH, Method::DELETE] {
            let key = fresh_key();
            let call = || body(run.write(method.clone(), "note/a").header("idempotency-key", &key), &method);
            for call in [call(), call().header("if-match", "*"), call().header("if-match", " ")] {
                assert_eq!(call.await.refused(428, "precondition_required").body["header"], "If-Match");
            }
            // The key stayed free.
            let status = if method == Method::DELETE { 202 } else { 200 };
            let version = value(&run, "note/a").await.0;
            call().header("if-match", &format!("\"{version}\"")).await.ok(status);
            for tag in ["", "*"] {
                let absent = body(run.write(method.clone(), "note/absent").header("if-match", tag), &method).await;
                match method {
                    Method::PUT => absent.refused(428, "precondition_required"),
                    _ => absent.refused(404, "not_found"),
                };
            }
        }
        run.get("resources/note/absent").await.refused(404, "not_found");
        let body = json!({"kind": "resource.replace", "target": "note/a", "params": {"value": 1}});
        run.propose_as(&fresh_key(), body).await.refused(428, "precondition_required");
    }

    async fn a_lost_reply_is_found_again_by_its_key(app: App) {
        let (asha, asks, run) = desk(&app).await;
        note_at(&run, "note/a", 2).await;
        let key = fresh_key();
        let mine = || run.patch("note/a", 2, json!({"mine": 1})).header("idempotency-key", &key);
        assert_eq!(mine().await.ok(200).header("etag"), "\"3\"");
        run.patch("note/a", 3, json!({"theirs": 1})).await.ok(200);
        for _ in 0..2 {
            let replayed = mine().await.ok(200);
            assert_eq!((replayed.header("etag"), replayed.header("idempotency-replayed")), ("\"3\"", "true"));
            assert_eq!((&replayed.body["version"], &replayed.body["value"]["theirs"]), (&json!(3), &Value::Null));
        }
        mine().header("if-match", "\"4\"").await.refused(409, "fingerprint_conflict");
        assert_eq!(value(&run, "note/a").await.0, 4);

        // A deletion whose reply was lost is no 404.
        let key = fresh_key();
        let delete = || asks.delete("note/a", 4).header("idempotency-key", &key);
        let op = delete().await.ok(202).operation().clone();
        asha.approve(id_of(&op)).await.ok(200);
        let replayed = delete().await.ok(200);
        assert_eq!((replayed.header("etag"), &replayed.body["version"], &replayed.body["value"]), ("", &json!(5), &Value::Null));
    }

    async fn versions_go_on_after_a_deletion(app: App) {
        let (asha, _, run) = desk(&app).await;
        note_at(&run, "note/a", 2).await;
        let op = run.delete("note/a", 2).await.ok(202).operation().clone();
        asha.approve(id_of(&op)).await.ok(200);
        run.get("resources/note/a").await.refused(404, "not_found");
        run.get("resources/note/a?version=3").await.refused(404, "not_found");
        assert_eq!(run.get("resources/note/a?version=2").await.ok(200).body["value"]["n"], 2);
        run.patch("note/a", 3, json!({})).await.refused(404, "not_found");
        let stale = run.replace("note/a", 3, json!({})).await.refused(412, "stale_version");
        assert_eq!(stale.body["current_version"], 0);
        assert_eq!(run.create("note/a", json!({"again": true})).await.ok(201).header("etag"), "\"4\"");
        run.replace("note/a", 2, json!({})).await.refused(412, "stale_version");
        let history = asha.get("resources/note/a/history").await.ok(200).body;
        let changes: Vec<_> = history["versions"].as_array().unwrap().iter().map(|v| v["change"].clone()).collect();
        assert_eq!(changes, ["created", "deleted", "changed", "created"]);
        let events = app.events().await;
        assert_eq!(events.iter().filter(|event| *event == "resource.deleted").count(), 1);
    }

    async fn what_is_no_write_is_refused_before_a_key_is_bound(app: App) {
        let (_, _, run) = desk(&app).await;
        note_at(&run, "note/a", 1).await;
        let patch = |media: &str, body: String| run.write(Method::PATCH, "note/a").header("if-match", "\"1\"").raw(media, body);
        let big = |bytes: usize| format!(r#"{{"text":"{}"}}"#, "x".repeat(bytes));
        for (call, status, code) in [
            (patch("application/json", "{}".into()), 415, "unsupported_media_type"),
            (patch("application/json-patch+json", "[]".into()), 415, "unsupported_media_type"),
            (run.replace("note/a", 1, json!({})).raw(MERGE_PATCH, "{}"), 415, "unsupported_media_type"),
            (patch(MERGE_PATCH, "{".into()), 400, "malformed_json"),
            (patch(MERGE_PATCH, r#"{"a":1,"a":2}"#.into()), 400, "duplicate_json_key"),
            (patch(MERGE_PATCH, r#"{"a":1.5}"#.into()), 422, "number_out_of_range"),
            (patch(MERGE_PATCH, r#"{"a":"\u0000"}"#.into()), 400, "malformed_json"),
            (patch(MERGE_PATCH, big(70_000)), 413, "payload_too_large"),
            (run.create("Note/b", json!({})), 422, "validation_failed"),
            (run.create("note/%20", json!({})), 422, "validation_failed"),
            (run.create("note/b", json!({})).header("idempotency-key", "short"), 400, "idempotency_key_invalid"),
            (run.create("note/b", json!({})).header("idempotency-key", ""), 400, "idempotency_key_missing"),
            (run.create("page/b", json!({})), 403, "outside_write_set"),
            (run.write(Method::POST, "note/a").json(json!({})), 405, "method_not_allowed"),
        ] {
            call.await.refused(status, code);
        }
        for patch_of in ["[]", "null", "\"x\"", "7"] {
            let refused = patch(MERGE_PATCH, patch_of.into()).await.refused(422, "validation_failed");
            assert_eq!(refused.body["errors"][0]["pointer"], "");
        }
        // Two halves that fit make a whole that does not.
        run.patch("note/a", 1, json!({"first": "x".repeat(40_000)})).await.ok(200);
        let key = fresh_key();
        let more = |value: Value| run.patch("note/a", 2, value).header("idempotency-key", &key);
        more(json!({"second": "x".repeat(40_000)})).await.refused(413, "payload_too_large");
        assert_eq!(more(json!({"second": 1})).await.ok(200).header("etag"), "\"3\"");
        app.agent("idle", "omar").await.create("note/c", json!({})).await.refused(403, "forbidden");
    }

    async fn what_may_not_exist_is_not_written(app: App) {
        let (asha, asks, run) = desk(&app).await;
        let admin = app.person("ada", "admin", "").await;
        let rule = json!({
            "scope": "note/*", "max_items": [{"pointer": "/to", "max": 2}],
            "schema": {"type": "object", "required": ["severity"], "properties": {"severity": {"enum": ["low", "high"]}}},
        });
        asha.post("resource-rules", rule.clone()).await.refused(403, "forbidden");
        let made = admin.post("resource-rules", rule.clone()).await.ok(201).body["rule"].clone();
        assert_eq!((&made["version"], &made["created_by"]), (&json!(1), &json!(admin.id)));
        admin.post("resource-rules", rule.clone()).await.ok(200);
        admin.post("resource-rules", json!({"scope": "note/*", "schema": {"type": "x"}})).await.refused(422, "validation_failed");
        for (document, invariant, pointer) in [
            (json!({}), "schema", ""),
            (json!({"severity": "secret-word"}), "schema", "/severity"),
            (json!({"severity": "low", "to": [1, 2, 3]}), "max_items", "/to"),
        ] {
            let key = fresh_key();
            let create = || run.create("note/a", document.clone()).header("idempotency-key", &key);
            let refused = create().await.refused(409, "invariant_violated");
            let said = (&refused.body["rule"], &refused.body["invariant"], &refused.body["pointer"]);
            assert_eq!(said, (&made["id"], &json!(invariant), &json!(pointer)));
            assert!(!refused.text.contains("secret-word"), "{}", refused.text);
            // The key is bound, and says the same again.
            assert_eq!(create().await.refused(409, "invariant_violated").body["conflict_id"], refused.body["conflict_id"]);
        }
        run.create("note/a", json!({"severity": "low", "to": [1, 2]})).await.ok(201);
        run.patch("note/a", 1, json!({"severity": null})).await.refused(409, "invariant_violated");

        // A rule that came after the proposal holds at the write.
        let op = asks.patch("note/a", 1, json!({"to": [1]})).await.ok(202).operation().clone();
        let stricter = json!({"scope": "note/*", "max_items": [{"pointer": "/to", "max": 0}]});
        assert_eq!(admin.post("resource-rules", stricter).await.ok(201).body["rule"]["version"], 2);
        let voted = asha.approve(id_of(&op)).await.ok(200).operation().clone();
        assert_eq!((&voted["state"], &voted["approval"]["spent_at"]), (&json!("conflicted"), &Value::Null));
        assert!(voted["conflict"]["id"].is_string());
        assert_eq!(value(&run, "note/a").await.0, 1);

        admin.request(Method::DELETE, &format!("resource-rules/{}", id_of(&made))).await.ok(204);
        admin.request(Method::DELETE, &format!("resource-rules/{}", id_of(&made))).await.refused(404, "not_found");
        assert_eq!(asha.get("resource-rules").await.ok(200).body["rules"], json!([]));
        run.patch("note/a", 1, json!({"severity": null})).await.ok(200);
        let events = app.events().await;
        assert_eq!(events.iter().filter(|event| event.starts_with("admin.resource_rule")).count(), 3);
    }

    async fn twenty_racers_never_make_more_than_may_live(app: App) {
        let (asha, asks, run) = desk(&app).await;
        let admin = app.person("ada", "admin", "").await;
        admin.post("resource-rules", json!({"scope": "note/key-*", "max_live": 2})).await.ok(201);
        let waiting = asks.create("note/key-late", json!({})).await.ok(202).operation().clone();
        let other = run.at(&app.node(&[]).await);
        let racers = (0..20).map(|i| if i % 2 == 0 { &run } else { &other }.create(&format!("note/key-{i}"), json!({})).into_future());
        let replies = join_all(racers).await;
        assert_eq!(replies.iter().filter(|reply| reply.status == 201).count(), 2, "{replies:?}");
        assert!(replies.iter().all(|reply| reply.status == 201 || reply.code() == "invariant_violated"), "{replies:?}");
        assert_eq!(asha.approve(id_of(&waiting)).await.ok(200).operation()["state"], "conflicted");
        let live = run.get("resources?prefix=note/key-").await.ok(200).body["resources"].as_array().unwrap().clone();
        assert_eq!(live.len(), 2);
        let gone = live[0]["resource"].as_str().unwrap();
        let op = run.delete(gone, 1).await.ok(202).operation().clone();
        asha.approve(id_of(&op)).await.ok(200);
        run.create("note/key-next", json!({})).await.ok(201);
        run.create("note/other", json!({})).await.ok(201);
    }

    async fn a_person_writes_by_hand_and_another_decides(app: App) {
        let (asha, _, run) = desk(&app).await;
        let ben = app.person("ben", "approver", "approvers").await;
        let key = fresh_key();
        let create = || asha.create("note/a", json!({"n": 1})).header("idempotency-key", &key);
        let op = create().await.ok(202).operation().clone();
        assert_eq!(op["state"], "pending", "a rule that grants by itself grants no person");
        assert_eq!(create().await.ok(202).operation()["id"], op["id"]);
        asha.approve(id_of(&op)).await.refused(403, "self_approval");
        ben.approve(id_of(&op)).await.ok(200);
        let made = create().await.ok(200);
        assert_eq!((&made.body["by"]["person"], &made.body["by"]["run"]), (&json!(asha.id), &Value::Null));
        // Another person's key is another key.
        ben.create("note/a", json!({"n": 1})).header("idempotency-key", &key).await.refused(412, "stale_version");
        let foreign = asha.create("note/b", json!({})).header("origin", "https://evil.example.test").header("sec-fetch-site", "cross-site");
        foreign.await.refused(403, "cross_site");

        let proposed: Vec<_> = app.audit().await.into_iter().filter(|record| record["event"] == "operation.proposed").collect();
        assert_eq!(proposed[0]["actor"], json!({"kind": "human", "id": asha.id}));
        let listed = app.person("ada", "admin", "").await.get("agents").await.ok(200).text;
        assert!(!listed.contains("by hand"), "{listed}");
        assert_eq!(value(&run, "note/a").await.0, 1);
        let mine = asha.patch("note/a", 1, json!({"n": 2})).await.ok(202).operation().clone();
        let cancelled = asha.post(&format!("operations/{}/cancel", id_of(&mine)), json!({"reason": "not now"})).await.ok(200);
        assert_eq!(cancelled.operation()["state"], "cancelled");
    }

    async fn only_readers_see_what_has_readers(app: App) {
        let (asha, asks, run) = desk(&app).await;
        let admin = app.person("ada", "admin", "").await;
        let sre = app.person("sam", "viewer", "sre").await;
        run.create("note/a", json!({"secret": 1})).await.ok(201);
        admin.post("resource-rules", json!({"scope": "note/*", "readers": ["sre"]})).await.ok(201);
        for stranger in [&asha, &admin] {
            stranger.get("resources/note/a").await.refused(404, "not_found");
            stranger.get("resources/note/a/history").await.refused(404, "not_found");
            assert_eq!(stranger.get("resources").await.ok(200).body["resources"], json!([]));
            stranger.patch("note/a", 1, json!({"n": 1})).await.refused(404, "not_found");
        }
        asks.get("resources/note/a").await.refused(404, "not_found");
        sre.get("resources/note/a").await.ok(200);
        run.get("resources/note/a").await.ok(200);
        run.patch("note/a", 1, json!({"secret": 2})).await.ok(200);
        let reads = app.agent("reader", "omar").await.run(json!({"reads": ["note/a"]})).await;
        assert_eq!(value(&reads, "note/a").await.0, 2);
    }

    async fn versions_of_what_lives_elsewhere_are_reported(app: App) {
        let (asha, asks, run) = desk(&app).await;
        let executor = app.executor("deployer", &["deployment.*"]).await;
        let operator = app.person("olga", "operator", "").await;
        let observe = "resources/release/eu/observed-version";
        let seen = executor.post(observe, json!({"version": 41})).await.ok(200);
        assert_eq!((seen.header("etag"), &seen.body["managed"], &seen.body["value"]), ("\"41\"", &json!(false), &Value::Null));
        let op = asks.release("eu", 41).await.ok(201).operation().clone();
        for (version, known) in [(41, 41), (40, 41), (42, 42)] {
            assert_eq!(asks.post(observe, json!({"version": version})).await.ok(200).body["version"], known);
        }
        assert_eq!(asks.read(&op).await["state"], "conflicted");
        operator.post(observe, json!({"version": 43})).await.ok(200);
        asha.post(observe, json!({"version": 44})).await.refused(403, "forbidden");
        run.post(observe, json!({"version": 44})).await.refused(403, "outside_write_set");
        for version in [json!(0), json!(-1), json!("44"), json!(null)] {
            executor.post(observe, json!({"version": version})).await.refused(422, "validation_failed");
        }
        let read = asha.get("resources/release/eu").await.ok(200);
        assert_eq!((read.header("etag"), &read.body["by"]["person"]), ("\"43\"", &json!(operator.id)));
        for call in [asks.create("release/eu", json!({})), asks.replace("release/eu", 43, json!({}))] {
            assert_eq!(call.await.refused(409, "invariant_violated").body["invariant"], "external");
        }
        run.create("note/a", json!({})).await.ok(201);
        executor.post("resources/note/a/observed-version", json!({"version": 9})).await.refused(409, "invalid_state");
        assert_eq!(value(&run, "note/a").await.0, 1);
    }

    async fn a_pause_counts_no_final_vote_and_grants_nothing(app: App) {
        let (asha, asks, run) = desk(&app).await;
        let admin = app.person("ada", "admin", "").await;
        let op = asks.create("note/a", json!({})).await.ok(202).operation().clone();
        admin.post("pause", json!({"reason": "incident"})).await.ok(200);
        asha.approve(id_of(&op)).await.refused(503, "paused");
        assert_eq!(asks.read(&op).await["approval"]["granted"], 0);
        let key = fresh_key();
        let create = || run.create("note/b", json!({})).header("idempotency-key", &key);
        create().await.refused(503, "paused");
        run.get(&format!("operations/by-key/{key}")).await.refused(404, "not_found");
        admin.request(Method::DELETE, "pause").await.ok(204);
        asha.approve(id_of(&op)).await.ok(200);
        create().await.ok(201);
        assert_eq!(value(&run, "note/a").await.0, 1);
    }

    async fn a_managed_write_ends_in_conflict_where_its_run_has_ended(app: App) {
        let (asha, _, _) = desk(&app).await;
        let brief = json!([{"resource": "note/*", "verbs": ["create"], "expires_in_s": 60}]);
        let run = app.agent("brief", "omar").await.run(json!({"write_set": brief})).await;
        app.rules(json!([])).await;
        let op = run.create("note/a", json!({})).await.ok(202).operation().clone();
        app.advance_s(60);
        assert_eq!(asha.approve(id_of(&op)).await.ok(200).operation()["state"], "conflicted");
        asha.get("resources/note/a").await.refused(404, "not_found");
    }

    async fn a_kind_that_nothing_could_carry_out_is_not_added(app: App) {
        let admin = app.person("ada", "admin", "").await;
        let kind = |more: Value| {
            let mut kind = json!({
                "name": "acme.note", "title": "Note", "headline": "asks to update {target}", "target": "body", "verb": "update",
                "consequence": "Updates {{ target }}", "rollback": "Update it again", "risk": "low", "conditional": "required",
                "executor": "managed",
                "schema": {"type": "object", "properties": {"patch": {"type": "object"}}, "required": ["patch"], "additionalProperties": false},
            });
            kind.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            kind
        };
        for (more, pointer) in [
            (json!({"executor": "gateway"}), "/executor"),
            (json!({"verb": "deploy"}), "/executor"),
            (json!({"conditional": "optional"}), "/conditional"),
            (json!({"lease": "required"}), "/lease"),
            (json!({"verb": "replace"}), "/schema"),
        ] {
            let refused = admin.post("kinds", kind(more)).await.refused(422, "validation_failed");
            assert_eq!(refused.body["errors"][0]["pointer"], pointer, "{}", refused.text);
        }
        admin.post("kinds", kind(json!({}))).await.ok(201);
        let (asha, _, run) = desk(&app).await;
        run.create("note/a", json!({"n": 1})).await.ok(201);
        let body = json!({"kind": "acme.note", "target": "note/a", "expected_version": 1, "params": {"patch": {"n": 2}}});
        let op = run.propose_as(&fresh_key(), body).await.ok(201).operation().clone();
        asha.approve(id_of(&op)).await.ok(200);
        assert_eq!(value(&run, "note/a").await, (2, json!({"n": 2})));
        let gateway = run.propose("http.request", "note/a", json!({"destination": "ledger", "method": "POST", "path": "/x"}));
        gateway.await.refused(403, "outside_write_set");
    }
}

// Processes

/// A server with somebody who approves and a run whose notes are granted by rule; the cookie and the run's token.
async fn furnish(place: &Place) -> (String, String) {
    let cookie = place.person("asha", "approver", "approvers").await;
    place.person("omar", "viewer", "none").await;
    let admin = place.person("ada", "admin", "none").await;
    let rules = json!({"rules": [{"name": "notes", "match": {"kind": "resource.*"}, "require": {"auto": true}}]});
    let policy = place.client.post(format!("{}/api/v1/policies", place.url)).json(&rules);
    assert_eq!(policy.header("cookie", admin).header("origin", &place.url).send().await.unwrap().status(), 201);
    let agent = place.cli(&["agent", "add", "writer", "--owner", "omar"], "");
    let set = json!([{"resource": "note/*", "verbs": ["create", "replace", "update", "delete"]}]);
    let run = place.post("runs", &agent, &json!({"label": "test", "write_set": set})).send().await.unwrap();
    let token = run.json::<Value>().await.unwrap()["token"].as_str().unwrap().to_owned();
    (cookie, token)
}

fn put(place: &Place, run: &str, key: &str, precondition: (&str, &str), value: &Value) -> reqwest::RequestBuilder {
    let call = place.client.put(format!("{}/api/v1/resources/note/a", place.url)).bearer_auth(run).json(value);
    call.header("idempotency-key", key).header(precondition.0, precondition.1)
}

async fn verify(place: &Place) {
    let export = place.folder().join("export.jsonl").display().to_string();
    place.cli(&["audit", "export", "--out", &export], "");
    let vkey = place.cli(&["audit", "vkey"], "");
    place.cli(&["audit", "verify", &export, "--vkey", &vkey], "");
}

/// Sixteen with one tag, on `places`, the first of them held between its check and its write until all have asked.
async fn sixteen_with_one_tag(mut places: Vec<Place>) {
    let marker = places[0].folder().join("reached");
    let first = places[0].serve().await;
    let (_, run) = furnish(&places[0]).await;
    let made =
        put(&places[0], &run, &fresh_key(), ("if-none-match", "*"), &json!({"by": "nobody"})).send().await.unwrap();
    assert_eq!(made.status(), 201);
    drop(first);
    for place in &mut places {
        place.set("COUNTERFOIL_FAULT", &format!("before_managed_write:{}", marker.display()));
    }
    let mut servers = Vec::new();
    for place in &places {
        servers.push(place.serve().await);
    }
    let writers: Vec<_> = (0..16)
        .map(|i| {
            let call = put(&places[i % places.len()], &run, &fresh_key(), ("if-match", "\"1\""), &json!({"by": i}));
            tokio::spawn(async move { (i, call.send().await.unwrap().status().as_u16()) })
        })
        .collect();
    // Each process holds its first writer between check and write, until nobody does.
    let mut held = 0;
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        if marker.exists() {
            held += 1;
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            std::fs::remove_file(&marker).unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(held >= 1, "nobody was held between check and write");
    let replies: Vec<_> = join_all(writers).await.into_iter().map(Result::unwrap).collect();
    let winners: Vec<_> = replies.iter().filter(|(_, status)| *status == 200).collect();
    assert_eq!(winners.len(), 1, "{replies:?}");
    assert_eq!(
        replies.iter().map(|(_, status)| *status).collect::<BTreeSet<_>>(),
        BTreeSet::from([200, 412]),
        "{replies:?}"
    );
    let now = places[0].get("resources/note/a", &run).send().await.unwrap().json::<Value>().await.unwrap();
    assert_eq!((&now["version"], &now["value"]["by"]), (&json!(2), &json!(winners[0].0)));
    verify(&places[0]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sixteen_writers_held_between_check_and_write_one_writes_on_sqlite() {
    sixteen_with_one_tag(vec![Place::new(&[])]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sixteen_writers_held_between_check_and_write_one_writes_on_two_nodes_on_postgres() {
    let database = postgres::fresh_database().await;
    let key = std::env::temp_dir().join(format!("counterfoil-{}.key", fresh_key())).display().to_string();
    let place = || Place::new(&[("COUNTERFOIL_DATABASE_URL", &database), ("COUNTERFOIL_AUDIT_KEY_FILE", &key)]);
    sixteen_with_one_tag(vec![place(), place()]).await;
}

/// Dies inside the command that approves and writes: afterwards nothing of it is there, and the same key does it once.
async fn a_managed_write_that_dies_half_way(mut place: Place) {
    let server = place.serve().await;
    let (_, run) = furnish(&place).await;
    drop(server);
    for (round, point) in ["after_key_claim", "before_managed_write", "after_managed_write"].into_iter().enumerate() {
        let marker = place.folder().join(point);
        place.set("COUNTERFOIL_FAULT", &format!("{point}:{}", marker.display()));
        let mut server = place.serve().await;
        let key = fresh_key();
        let tag = format!("\"{round}\"");
        let precondition = if round == 0 { ("if-none-match", "*") } else { ("if-match", tag.as_str()) };
        let write = || put(&place, &run, &key, precondition, &json!({"round": round}));
        let lost = tokio::spawn(write().send());
        while !marker.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        server.signal("KILL");
        server.wait();
        assert!(lost.await.unwrap().is_err());
        std::fs::remove_file(marker).unwrap();
        let retry = write();
        place.unset("COUNTERFOIL_FAULT");
        let _server = place.serve().await;
        let before = place.get("resources/note/a", &run).send().await.unwrap();
        match round {
            0 => assert_eq!(before.status(), 404),
            _ => assert_eq!(before.json::<Value>().await.unwrap()["version"], json!(round)),
        }
        assert!(retry.send().await.unwrap().status().is_success(), "{point}");
        let after = place.get("resources/note/a", &run).send().await.unwrap().json::<Value>().await.unwrap();
        assert_eq!((&after["version"], &after["value"]["round"]), (&json!(round + 1), &json!(round)));
        verify(&place).await;
    }
}

#[tokio::test]
async fn a_managed_write_that_dies_half_way_has_written_nothing_on_sqlite() {
    a_managed_write_that_dies_half_way(Place::new(&[])).await;
}

#[tokio::test]
async fn a_managed_write_that_dies_half_way_has_written_nothing_on_postgres() {
    let database = postgres::fresh_database().await;
    a_managed_write_that_dies_half_way(Place::new(&[("COUNTERFOIL_DATABASE_URL", &database)])).await;
}
