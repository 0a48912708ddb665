//! Leases: one holder at a time, tokens that only rise, and writers that come back too late.

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::{App, Program, Reply, id_of, on_both_databases};

const RESOURCE: &str = "release/prod-eu";

impl Program {
    fn acquire(&self, resource: &str, ttl_s: i64) -> crate::support::Call {
        self.post("leases", json!({"resource": resource, "ttl_s": ttl_s}))
    }

    /// A lease newly acquired, as its document.
    async fn lease(&self, resource: &str) -> Value {
        self.acquire(resource, 30).await.ok(201).body["lease"].clone()
    }

    async fn release_lease(&self, lease: &Value) -> Reply {
        self.call(Method::DELETE, &format!("leases/{}", id_of(lease))).await
    }
}

fn token(lease: &Value) -> i64 {
    lease["fencing_token"].as_i64().unwrap()
}

on_both_databases! {
    async fn a_lease_has_one_holder_who_may_ask_again(app: App) {
        let (_, _, run) = app.world().await;
        let other = app.agent("other", "omar").await.run(json!({"label": "other run"})).await;
        let lease = run.lease(RESOURCE).await;
        assert_eq!((&lease["resource"], token(&lease)), (&json!(RESOURCE), 1));
        assert_eq!(lease["expires_at"], "2026-12-01T00:00:30.000Z");
        app.advance_s(10);
        let again = run.acquire(RESOURCE, 300).await.ok(200).body["lease"].clone();
        assert_eq!((&again["id"], &again["expires_at"]), (&lease["id"], &lease["expires_at"]));
        let held = other.acquire(RESOURCE, 30).await.refused(409, "lease_held");
        assert_eq!((&held.body["holder"], &held.body["expires_at"]), (&json!(run.id), &lease["expires_at"]));
        assert_eq!((&held.body["retry"]["after_s"], &held.body["resource"]), (&json!(20), &json!(RESOURCE)));
        other.lease("release/prod-us").await;

        run.release_lease(&lease).await.ok(200);
        let released = run.release_lease(&lease).await.ok(200);
        assert_eq!(released.body["lease"]["state"], "released");
        other.release_lease(&lease).await.refused(404, "not_found");
        assert_eq!(token(&other.lease(RESOURCE).await), 2);
        let leases: Vec<_> = app.events().await.into_iter().filter(|event| event.starts_with("lease.")).collect();
        assert_eq!(leases, ["lease.acquired", "lease.acquired", "lease.released", "lease.acquired"]);
    }
}
