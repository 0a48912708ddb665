//! What the on-call page and `/metrics` count, of stories that are known.

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::{App, Call, Person, Program, Reply, fresh_key, id_of, on_both_databases, succeeded, ticket};

async fn measures(reader: &Person, window: &str) -> Value {
    reader.get(&format!("measures?window={window}")).await.ok(200).body
}

fn page(reader: &Person, path: &str) -> Call {
    reader.get(path).header("accept", "text/html")
}

/// The value of one line of `/metrics`.
fn sample(text: &str, name: &str) -> i64 {
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    let line = line.unwrap_or_else(|| panic!("no `{name}` in\n{text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

async fn scrape(app: &App) -> String {
    app.get("/metrics").await.ok(200).text
}

/// Approved, sent, and never answered.
async fn lost(approver: &Person, run: &Program, project: &str) -> Value {
    let params = json!({"project": project, "title": "Rotate"});
    let op = run.propose("ticket.create", &format!("project/{project}"), params).await.ok(201).operation().clone();
    approver.approve(id_of(&op)).await.ok(200);
    let claim = run.send(&op).await;
    run.report(&op, "outcome", &claim, json!({"status": "unknown"})).await.ok(200);
    op
}

/// An operator's finding, on evidence that names the operation.
async fn settle(operator: &Person, op: &Value, finding: &str) -> Reply {
    let now = operator.app.clock.now().to_string();
    let word = json!({"finding": finding, "kind": "receipt", "reference": op["id"], "observed_at": now});
    let kept = operator.post(&format!("operations/{}/evidence", id_of(op)), word).await.ok(201);
    let id = kept.body["evidence"]["id"].clone();
    let body = json!({"finding": finding, "evidence": [id], "note": "Seen at the provider"});
    operator.post(&format!("operations/{}/resolution", id_of(op)), body).await
}

on_both_databases! {
    async fn requests_that_did_not_act_twice_are_counted_by_why(app: App) {
        let (asha, _, run) = app.world().await;
        let key = fresh_key();
        run.propose_as(&key, ticket("One")).await.ok(201);
        for _ in 0..3 {
            run.propose_as(&key, ticket("One")).await.ok(202);
        }
        run.propose_as(&key, ticket("Other")).await.refused(409, "fingerprint_conflict");
        let mut event = ticket("Of an event");
        event["source_event_id"] = json!("event-1");
        run.propose_as(&fresh_key(), event.clone()).await.ok(201);
        run.propose_as(&fresh_key(), event).await.ok(200);
        let again = run.propose_as(&fresh_key(), ticket("One")).await.ok(201);
        assert!(again.operation()["duplicate_of"].is_string());

        let counted = measures(&asha, "24h").await;
        let d = &counted["duplicates"];
        let numbers = ["same_key", "same_event", "same_command", "other_content", "wrongly_held"].map(|name| d[name].as_i64().unwrap());
        assert_eq!(numbers, [3, 1, 1, 1, 0]);
        let hours = counted["slots"].as_array().unwrap();
        assert_eq!((hours.len(), &hours[23]["same_key"]), (24, &json!(3)));

        // A person finds that the second was meant.
        asha.approve(id_of(again.operation())).await.ok(200);
        assert_eq!(measures(&asha, "7d").await["duplicates"]["wrongly_held"], 1);

        let text = scrape(&app).await;
        assert_eq!(sample(&text, "counterfoil_duplicates_suppressed_total{kind=\"same_key\"}"), 3);
        assert_eq!(sample(&text, "counterfoil_key_conflicts_total"), 1);
        assert_eq!(sample(&text, "counterfoil_false_deduplications{kind=\"held\"}"), 1);
    }

    async fn a_lost_answer_is_open_until_it_is_proven_and_its_time_is_counted(app: App) {
        let (asha, _, run) = app.world().await;
        let lin = app.person("lin", "operator", "approvers").await;
        let (first, second) = (lost(&asha, &run, "one").await, lost(&asha, &run, "two").await);
        let open = measures(&asha, "24h").await;
        assert_eq!((open["unknown"].as_array().unwrap().len(), &open["recovery"]["p50_s"]), (2, &Value::Null));

        app.advance_s(240);
        settle(&lin, &first, "applied").await.ok(200);
        app.advance_s(360);
        settle(&lin, &second, "not_applied").await.ok(200);
        let done = measures(&asha, "24h").await;
        assert_eq!(done["unknown"], json!([]));
        assert_eq!(done["recovery"], json!({"count": 2, "p50_s": 240, "p95_s": 600}));
        assert_eq!((&done["completed"], &done["missed"]["failed"]), (&json!(1), &json!(1)));
        assert_eq!(done["people"], json!({"decisions": 2, "interventions": 4}));

        let text = scrape(&app).await;
        assert_eq!(sample(&text, "counterfoil_recovery_seconds{quantile=\"0.95\"}"), 600);
        assert_eq!(sample(&text, "counterfoil_recovery_seconds_count"), 2);
        assert_eq!(sample(&text, "counterfoil_unknown_outcomes_total"), 2);
        assert_eq!(sample(&text, "counterfoil_unknown_open"), 0);
    }

    async fn what_is_overdue_is_seen_on_every_page(app: App) {
        let (asha, _, run) = app.world().await;
        let lin = app.person("lin", "operator", "approvers").await;
        let op = lost(&asha, &run, "one").await;
        let empty = json!({"finding": "not_applied", "evidence": [], "note": "Nobody knows"});
        lin.post(&format!("operations/{}/resolution", id_of(&op)), empty).await;
        let due_s = 3600;
        assert!(!page(&asha, "/").await.ok(200).text.contains("1 overdue"));
        app.advance_s(due_s);
        for path in ["/", "/conflicts", "/on-call", "/settings/policies", "/unknown"] {
            assert!(page(&asha, path).await.ok(200).text.contains("class=\"overdue\""), "{path}");
        }
        let counted = measures(&asha, "24h").await;
        assert_eq!((&counted["overdue"], &counted["unknown"][0]["overdue"]), (&json!(1), &json!(true)));
        assert_eq!(sample(&scrape(&app).await, "counterfoil_cases_overdue"), 1);
    }

    async fn what_was_approved_and_never_applied_is_missed(app: App) {
        let (asha, _, run) = app.world().await;
        let late = run.ticket("Late").await;
        asha.approve(id_of(&late)).await.ok(200);
        let undecided = run.ticket("Undecided").await;
        let failed = run.ticket("Failed").await;
        asha.approve(id_of(&failed)).await.ok(200);
        run.complete(&failed, json!({"status": "failed", "response": {"status": 422}})).await;
        let done = run.ticket("Done").await;
        asha.approve(id_of(&done)).await.ok(200);
        run.complete(&done, succeeded("T-1")).await;
        app.advance_s(901);
        for op in [&late, &undecided] {
            assert_eq!(run.read(op).await["state"], "expired");
        }
        let counted = measures(&asha, "24h").await;
        assert_eq!(counted["missed"], json!({"granted": 3, "expired": 1, "failed": 1, "conflicted": 0}));
        assert_eq!(counted["completed"], 1);
        assert_eq!(sample(&scrape(&app).await, "counterfoil_missed_effects_total{reason=\"expired\"}"), 1);
    }

    async fn what_waits_is_counted_by_its_age(app: App) {
        let (asha, _, run) = app.world().await;
        run.ticket("Old").await;
        app.advance_s(400);
        run.ticket("New").await;
        let waiting = measures(&asha, "24h").await["waiting"].clone();
        assert_eq!(waiting, json!({"count": 2, "oldest_s": 400, "ages": [1, 0, 1, 0, 0]}));
        assert_eq!(sample(&scrape(&app).await, "counterfoil_approvals_oldest_seconds"), 400);
    }

    async fn conflicts_are_counted_by_kind_and_by_who_met(app: App) {
        let (asha, _, run) = app.world().await;
        let live = run.release("prod-eu", 0).await.ok(201).operation().clone();
        asha.approve(id_of(&live)).await.ok(200);
        run.complete(&live, json!({"status": "succeeded", "provider_reference": "d-1", "resulting_version": 42})).await;
        let other = app.agent("second", "omar").await.run(json!({})).await;
        other.release("prod-eu", 41).await.refused(412, "stale_version");
        let counted = measures(&asha, "24h").await;
        assert_eq!(counted["conflicts"], json!([{"code": "stale_version", "count": 1}]));
        assert_eq!(counted["pairs"], json!([{"agent": "second", "met": "deployer", "count": 1}]));
        assert_eq!(sample(&scrape(&app).await, "counterfoil_conflicts_total{stage=\"proposal\"}"), 1);
    }

    async fn a_cost_is_said_only_once_unit_costs_are_set(app: App) {
        let (asha, _, run) = app.world().await;
        let admin = app.person("root", "admin", "").await;
        let op = run.ticket("One").await;
        asha.approve(id_of(&op)).await.ok(200);
        run.complete(&op, succeeded("T-1")).await;
        assert_eq!(measures(&asha, "24h").await["cost"], Value::Null);
        assert!(page(&asha, "/on-call").await.ok(200).text.contains("Unit costs are not set"));

        let costs = json!({"currency": "EUR", "decision_minor": 150, "intervention_minor": 900, "unknown_minute_minor": 5, "duplicate_effect_minor": 9000});
        asha.call(Method::PUT, "unit-costs").json(costs.clone()).await.refused(403, "forbidden");
        for (member, bad) in [("currency", json!("XXX")), ("decision_minor", json!(-1)), ("intervention_minor", json!(2_000_000_000))] {
            let mut wrong = costs.clone();
            wrong[member] = bad;
            let refused = admin.call(Method::PUT, "unit-costs").json(wrong).await.refused(422, "validation_failed");
            assert_eq!(refused.body["errors"][0]["pointer"], format!("/{member}"));
        }
        admin.call(Method::PUT, "unit-costs").json(costs).await.ok(200);
        let cost = measures(&asha, "24h").await["cost"].clone();
        assert_eq!(cost, json!({"currency": "EUR", "total_minor": 150, "each_minor": 150, "unknown_minutes": 0, "noted_minor": 0}));
        assert!(page(&asha, "/on-call").await.ok(200).text.contains("EUR 1.50"));
        assert_eq!(sample(&scrape(&app).await, "counterfoil_cost_per_completion_minor{currency=\"EUR\"}"), 150);
    }

    async fn a_quiet_desk_says_so_and_measures_are_for_people(app: App) {
        let (asha, _, run) = app.world().await;
        let quiet = page(&asha, "/on-call?window=30d").await.ok(200).text;
        assert!(quiet.contains("Nothing happened in this time"), "{quiet}");
        assert_eq!(page(&asha, "/on-call?window=1y").await.status, 400);
        run.get("measures").await.refused(403, "humans_only");
    }

    async fn measures_are_served_again_for_some_seconds_and_never_count_twice(app: App) {
        let (_, _, run) = app.world().await;
        let key = fresh_key();
        run.propose_as(&key, ticket("One")).await.ok(201);
        run.propose_as(&key, ticket("One")).await.ok(202);
        let name = "counterfoil_duplicates_suppressed_total{kind=\"same_key\"}";
        assert_eq!(sample(&scrape(&app).await, name), 1);
        run.propose_as(&key, ticket("One")).await.ok(202);
        assert_eq!(sample(&scrape(&app).await, name), 1);
        for _ in 0..2 {
            app.advance_s(5);
            assert_eq!(sample(&scrape(&app).await, name), 2);
        }
    }
}
