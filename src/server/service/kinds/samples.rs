//! One valid proposal of every built-in kind, for tests and for the demo.

use serde_json::{Value, json};

#[derive(Debug, Clone)]
pub struct Sample {
    pub kind: &'static str,
    pub target: &'static str,
    pub params: Value,
    pub expected_version: Option<i64>,
    pub source_event_id: Option<&'static str>,
}

/// In the order of the built-in kinds. A rollback also needs its `rolls_back` link.
pub fn samples() -> Vec<Sample> {
    let sample = |kind, target, params| Sample { kind, target, params, expected_version: None, source_event_id: None };
    let on_version = |version, sample| Sample { expected_version: Some(version), ..sample };
    let artifact = |pair: &str| format!("sha256:{}", pair.repeat(32));
    vec![
        Sample {
            source_event_id: Some("alert-7c91"),
            ..sample(
                "ticket.create",
                "project/ops",
                json!({"project": "ops", "title": "Rotate staging certificate", "priority": "normal"}),
            )
        },
        sample(
            "ticket.comment",
            "ticket/OPS-482",
            json!({"ticket": "OPS-482", "comment_id": "rotation-1", "body": "The new certificate is in place."}),
        ),
        sample(
            "ticket.transition",
            "ticket/OPS-482",
            json!({"ticket": "OPS-482", "from": "in_progress", "to": "done"}),
        ),
        sample(
            "payment.authorize",
            "order/4711",
            json!({"order": "4711", "payee": "customer 3318", "amount_minor": 14900, "currency": "EUR", "invoice": "INV-2291"}),
        ),
        sample(
            "payment.capture",
            "order/4711",
            json!({"order": "4711", "authorization": "auth_52d0", "amount_minor": 14900, "currency": "EUR"}),
        ),
        sample(
            "payment.refund",
            "order/4711",
            json!({"order": "4711", "original_transaction": "txn_7c20", "amount_minor": 8640, "currency": "EUR"}),
        ),
        on_version(
            41,
            sample(
                "deployment.release",
                "release/prod-eu",
                json!({"environment": "prod-eu", "service": "checkout", "artifact": artifact("2b"), "commit": "b4".repeat(20)}),
            ),
        ),
        on_version(
            42,
            sample(
                "deployment.rollback",
                "release/prod-eu",
                json!({"environment": "prod-eu", "service": "checkout", "artifact": artifact("cf")}),
            ),
        ),
        on_version(
            0,
            sample(
                "resource.create",
                "notification-policy/staging-alerts",
                json!({"value": {"severity": "high", "destinations": ["ops@example.test"]}}),
            ),
        ),
        on_version(
            7,
            sample("resource.replace", "feature-flag/checkout-retries", json!({"value": {"enabled": true, "max": 3}})),
        ),
        on_version(
            12,
            sample(
                "resource.update",
                "notification-policy/staging-alerts",
                json!({"patch": {"quiet_hours": {"from": "22:00", "to": "06:00"}, "severity": null}}),
            ),
        ),
        on_version(12, sample("resource.delete", "notification-policy/staging-alerts", json!({}))),
        sample(
            "user.invite",
            "user/nika@example.test",
            json!({"email": "nika@example.test", "role": "member", "workspace": "payments"}),
        ),
        on_version(
            3,
            sample(
                "credential.delete",
                "credential/billing-sync.key-07",
                json!({"system": "billing-sync", "credential": "key-07"}),
            ),
        ),
        sample(
            "http.request",
            "ledger/adjustments",
            json!({
                "destination": "ledger", "method": "POST", "path": "/v1/adjustments",
                "body": {"account": "3318", "amount_minor": 500, "currency": "EUR"},
            }),
        ),
    ]
}
