//! The whole way of one operation, through HTTP.

use serde_json::json;

use crate::support::{App, id_of, on_both_databases};

on_both_databases! {
    async fn an_operation_is_proposed_approved_claimed_sent_and_done(app: App) {
        let (asha, _, run) = app.world().await;
        let op = run.ticket("Rotate staging certificate").await;
        assert_eq!(op["state"], "pending");
        assert_eq!(op["consequence"], "Creates ticket \"Rotate staging certificate\" in project ops");
        asha.approve(id_of(&op)).await.ok(200);
        let claimed = run.claim(&op).await.ok(200);
        let claim = &claimed.body["claim"];
        assert_eq!(claim["downstream_key"], op["id"]);
        assert_eq!(claim["approval"]["approved_by"], json!([asha.id]));
        run.report(&op, "sent", claim, json!({})).await.ok(200);
        let done = json!({"status": "succeeded", "provider_reference": "TCK-1"});
        let reply = run.report(&op, "outcome", claim, done).await.ok(200);
        assert_eq!(reply.operation()["state"], "succeeded");
        assert_eq!(reply.operation()["outcome"]["confirmed"], false);
        let story: Vec<_> = app.events().await.into_iter().filter(|event| event.starts_with(['o', 'e']) || event.starts_with("ap")).collect();
        assert_eq!(
            story,
            ["operation.proposed", "approval.voted", "approval.granted", "approval.spent", "operation.claimed", "effect.sent", "effect.completed"]
        );
    }

    async fn a_waiting_agent_wakes_with_the_decision(app: App) {
        let (asha, _, run) = app.world().await;
        let op = run.ticket("Rotate").await;
        let path = format!("operations/{}?wait=60", id_of(&op));
        let waiting = tokio::spawn({
            let run = run.clone();
            async move { run.get(&path).header("if-none-match", "\"1\"").await }
        });
        asha.approve(id_of(&op)).await.ok(200);
        let woken = waiting.await.unwrap().ok(200);
        assert_eq!(woken.operation()["state"], "approved");
    }
}
