//! Who looks into an unknown outcome, and until when.

use serde_json::{Value, json};

use crate::support::{App, Person, Program, id_of, on_both_databases};

/// Approved, sent, and never answered.
async fn lost(approver: &Person, run: &Program) -> Value {
    let op = run.ticket("Rotate").await;
    approver.approve(id_of(&op)).await.ok(200);
    let claim = run.send(&op).await;
    run.report(&op, "outcome", &claim, json!({"status": "unknown"})).await.ok(200);
    op
}

on_both_databases! {
    async fn a_case_has_an_owner_and_a_due_time_that_operators_set(app: App) {
        let (asha, _, run) = app.world().await;
        let lin = app.person("lin", "operator", "").await;
        let mira = app.person("mira", "operator", "").await;
        let op = lost(&asha, &run).await;
        let path = format!("operations/{}/case", id_of(&op));

        asha.post(&path, json!({"owner": "asha"})).await.refused(403, "forbidden");
        run.post(&path, json!({"owner": "lin"})).await.refused(403, "humans_only");
        for (bad, pointer) in [
            (json!({}), "/owner"),
            (json!({"owner": "asha"}), "/owner"),
            (json!({"owner": "nobody"}), "/owner"),
            (json!({"due_at": "2026-12-01T00:00:00.000Z"}), "/due_at"),
            (json!({"due_at": "2027-12-01T00:00:00.000Z"}), "/due_at"),
        ] {
            let refused = lin.post(&path, bad).await.refused(422, "validation_failed");
            assert_eq!(refused.body["errors"][0]["pointer"], pointer);
        }
        assert_eq!(run.read(&op).await["state"], "unknown");

        let taken = lin.post(&path, json!({"owner": "lin"})).await.ok(200);
        let case = &taken.operation()["review_case"];
        assert_eq!((&taken.operation()["state"], &case["owner"]), (&json!("needs_review"), &json!("lin")));
        assert_eq!(case["due_at"], "2026-12-01T01:00:00.000Z", "by the rule");
        let due = json!({"owner": "mira", "due_at": "2026-12-01T04:00:00.000Z"});
        let handed = mira.post(&path, due.clone()).await.ok(200);
        assert_eq!(handed.operation()["review_case"]["due_at"], "2026-12-01T04:00:00.000Z");
        let again = mira.post(&path, due).await.ok(200);
        assert_eq!(again.operation()["version"], handed.operation()["version"]);

        let assigned: Vec<_> = app.audit().await.into_iter().filter(|record| record["event"] == "review.assigned").collect();
        let reasons: Vec<_> = assigned.iter().map(|record| record["reason"].as_str().unwrap()).collect();
        assert_eq!(reasons, ["owner lin, due 2026-12-01T01:00:00.000Z", "owner mira, due 2026-12-01T04:00:00.000Z"]);
        assert_eq!(assigned[1]["actor"]["id"], mira.id);
    }

    async fn there_is_no_case_where_nothing_is_doubtful(app: App) {
        let (asha, _, run) = app.world().await;
        let lin = app.person("lin", "operator", "").await;
        let op = run.ticket("Rotate").await;
        let path = format!("operations/{}/case", id_of(&op));
        lin.post(&path, json!({"owner": "lin"})).await.refused(409, "invalid_state");
        asha.approve(id_of(&op)).await.ok(200);
        run.send(&op).await;
        lin.post(&path, json!({"owner": "lin"})).await.refused(409, "invalid_state");
    }
}
