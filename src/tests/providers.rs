//! Providers: declared by admins, believed only as far as a check has shown.

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::{App, on_both_databases, provider::Provider};

const CREDENTIAL: &str = "Bearer sk_live_planted_credential";

/// What each check said, by guarantee.
fn verdicts(checks: &Value) -> Vec<(String, bool)> {
    let checks = checks["checks"].as_array().unwrap().iter();
    checks.map(|check| (check["guarantee"].as_str().unwrap().to_owned(), check["passed"] == true)).collect()
}

on_both_databases! {
    async fn admins_declare_providers_and_people_read_them(app: App) {
        let (asha, _, run) = app.world().await;
        let admin = app.person("ada", "admin", "").await;
        let contract = Provider::start().await.contract(json!({}));
        app.get("providers").await.refused(401, "unauthenticated");
        run.post("providers", contract.clone()).await.refused(403, "humans_only");
        asha.post("providers", contract.clone()).await.refused(403, "forbidden");

        let added = admin.post("providers", contract.clone()).await.ok(201).body["provider"].clone();
        assert_eq!((&added["version"], &added["checks"], &added["has_credential"]), (&json!(1), &json!([]), &json!(false)));
        assert_eq!(admin.post("providers", contract.clone()).await.ok(200).body["provider"], added);
        let mut newer = contract;
        newer["max_in_flight_s"] = json!("unbounded");
        assert_eq!(admin.post("providers", newer).await.ok(201).body["provider"]["version"], 2);
        assert_eq!(asha.get("providers").await.ok(200).body["providers"].as_array().unwrap().len(), 1);
        asha.get("providers/mail").await.refused(404, "not_found");
        for (pointer, value) in [
            ("/destination/base_url", json!("ftp://x/")),
            ("/destination/base_url", json!("https://user:pw@x/")),
            ("/destination/allow_private/0", json!("10.0.0.1/8")),
            ("/lookup", json!("sometimes")),
        ] {
            let mut document = Provider::start().await.contract(json!({}));
            *document.pointer_mut(pointer).unwrap() = value;
            let refused = admin.post("providers", document).await.refused(422, "validation_failed");
            assert_eq!(refused.body["errors"][0]["pointer"], pointer);
        }
    }

    async fn a_guarantee_is_believed_only_once_a_check_has_shown_it(app: App) {
        let admin = app.person("ada", "admin", "").await;
        let provider = Provider::start().await;
        admin.post("providers", provider.contract(json!({}))).await.ok(201);
        let check = async || admin.post("providers/payments/check", json!({})).await.ok(200).body;
        let body = check().await;
        assert_eq!(verdicts(&body), [("idempotency".to_owned(), false), ("lookup".to_owned(), false)]);
        assert!(body["checks"][0]["detail"].as_str().unwrap().contains("credential"), "nothing is sent without it");
        assert!(provider.effects().is_empty());

        admin.call(Method::PATCH, "providers/payments").json(json!({"credential": CREDENTIAL})).await.ok(200);
        assert_eq!(verdicts(&check().await), [("idempotency".to_owned(), true), ("lookup".to_owned(), true)]);
        assert!(provider.effects().iter().all(|effect| effect.headers["authorization"] == CREDENTIAL));
        let stored = admin.get("providers/payments").await.ok(200).body["provider"]["checks"].clone();
        assert!(stored.as_array().unwrap().iter().all(|check| check["passed"] == true));

        provider.behave(|habits| habits.honours_keys = false);
        assert_eq!(verdicts(&check().await), [("idempotency".to_owned(), false), ("lookup".to_owned(), true)]);
        provider.behave(|habits| (habits.honours_keys, habits.blind) = (true, true));
        assert_eq!(verdicts(&check().await), [("idempotency".to_owned(), false), ("lookup".to_owned(), false)]);
        let checked = app.events().await.into_iter().filter(|event| event == "admin.provider_checked").count();
        assert_eq!(checked, 8);
    }

    async fn a_credential_is_sealed_and_shown_nowhere(app: App) {
        let admin = app.person("ada", "admin", "").await;
        admin.post("providers", Provider::start().await.contract(json!({}))).await.ok(201);
        for bad in ["", "two\nlines", "caf\u{e9}"] {
            let patch = admin.call(Method::PATCH, "providers/payments").json(json!({"credential": bad}));
            patch.await.refused(422, "validation_failed");
        }
        let kept = admin.call(Method::PATCH, "providers/payments").json(json!({"credential": CREDENTIAL})).await.ok(200);
        assert_eq!(kept.body["provider"]["has_credential"], true);
        let everywhere = [kept.text, admin.get("providers").await.text, app.export().await].concat();
        assert!(!everywhere.contains("planted"));
        let mut conn = app.desk.store.read().await.unwrap();
        let sealed = counterfoil::server::store::provider::credentials(&mut conn).await.unwrap();
        assert!(sealed.len() == 1 && !sealed[0].1.contains("planted"));
        for file in std::fs::read_dir(app.folder()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains("planted"));
        }
    }

    async fn a_private_address_is_reached_only_where_it_is_listed(app: App) {
        let admin = app.person("ada", "admin", "").await;
        let provider = Provider::start().await;
        let mut contract = provider.contract(json!({}));
        contract["destination"]["allow_private"] = json!([]);
        admin.post("providers", contract.clone()).await.ok(201);
        admin.call(Method::PATCH, "providers/payments").json(json!({"credential": CREDENTIAL})).await.ok(200);
        for host in [provider.address.to_string(), format!("localhost:{}", provider.address.port()), "[::ffff:127.0.0.1]:1".into()] {
            contract["destination"]["base_url"] = json!(format!("http://{host}"));
            admin.post("providers", contract.clone()).await;
            let body = admin.post("providers/payments/check", json!({})).await.ok(200).body;
            assert!(body["checks"][0]["detail"].as_str().unwrap().contains("not a public address"), "{body}");
        }
        assert!(provider.effects().is_empty());
    }
}
