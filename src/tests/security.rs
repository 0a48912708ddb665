//! What strangers, other sites and hostile bytes meet at the edge.

use axum::{
    Router,
    body::Body,
    http::{Method, Request},
    middleware,
    routing::get,
};
use counterfoil::server::web::{problem, security, state::AppState};
use serde_json::json;
use tower::ServiceExt;

use crate::support::{App, PASSWORD, PUBLIC_URL, on_both_databases};

const SEC_FETCH_SITE: &str = "sec-fetch-site";

on_both_databases! {
    async fn every_early_refusal_is_a_problem_document(app: App) {
        app.person("omar", "viewer", "").await;
        let agent = app.agent("a", "omar").await;
        let post = || agent.call(Method::POST, "runs");
        let json_type = "application/json";
        post().raw(json_type, r#"{"label":"#).await.refused(400, "malformed_json");
        post().raw(json_type, "").await.refused(400, "malformed_json");
        post().raw("text/plain", r#"{"label":"x"}"#).await.refused(415, "unsupported_media_type");
        post().await.refused(415, "unsupported_media_type");
        post().raw("application/json; charset=utf-16", r#"{"label":"x"}"#).await.refused(415, "unsupported_media_type");
        for (body, pointer) in [(json!({"label": "x", "extra": 1}), "/extra"), (json!({"label": 7}), "/label"), (json!([]), "")] {
            let reply = post().json(body).await.refused(422, "validation_failed");
            assert_eq!(reply.body["errors"][0]["pointer"], pointer);
            assert!(reply.body["errors"][0]["detail"].is_string());
        }
        let large = json!({"label": "x".repeat(70_000)}).to_string();
        post().raw(json_type, large.clone()).await.refused(413, "payload_too_large");
        let pieces = large.into_bytes().chunks(1000).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect::<Vec<_>>();
        let unannounced = Body::from_stream(futures::stream::iter(pieces));
        post().raw(json_type, unannounced).await.refused(413, "payload_too_large");

        agent.get("runs/run_nonsense").await.refused(404, "not_found");
        agent.get("runs/%FF").await.refused(404, "not_found");
        agent.get("runs/%00").await.refused(400, "bad_request");
        agent.get("nothing/here").await.refused(404, "not_found");
        agent.get("runs/").await.refused(404, "not_found");
        let wrong = agent.call(Method::DELETE, "runs").await.refused(405, "method_not_allowed");
        assert_eq!(wrong.header("allow"), "GET,HEAD,POST");
        app.get("/nothing").await.refused(404, "not_found");
        app.post("/healthz", json!({})).header("authorization", "Bearer x").await.refused(405, "method_not_allowed");
        assert!(!app.events().await.contains(&"run.started".to_owned()));
    }

    async fn text_that_cannot_be_stored_is_refused_early(app: App) {
        let admin = app.person("ada", "admin", "").await;
        let agents = |body: String| admin.call(Method::POST, "agents").raw("application/json", body);
        for name in [r"a\u0000b", r"\ud800", r"\udc00x"] {
            agents(format!(r#"{{"owner":"ada","name":"{name}"}}"#)).await.refused(400, "malformed_json");
        }
        agents(r#"{"owner":"ada","a\u0000":1,"name":"x"}"#.into()).await.refused(400, "malformed_json");
        agents(format!(r#"{{"owner":"ada","name":{}1{}}}"#, "[".repeat(200), "]".repeat(200))).await.refused(400, "malformed_json");
        agents(r#"{"owner":"ada","name":"x","\u006eame":"y"}"#.into()).await.refused(400, "duplicate_json_key");
        agents(json!({"owner": "ada", "name": "x".repeat(1_000_000)}).to_string()).await.refused(413, "payload_too_large");
        agents(r#"{"owner":"ada","name":1.0}"#.into()).await.refused(422, "number_out_of_range");
        let sign_in = r#"{"name":"a\u0000","password":"x"}"#;
        app.call(Method::POST, "session").raw("application/json", sign_in).header("origin", PUBLIC_URL).await.refused(400, "malformed_json");
        assert_eq!(admin.get("agents").await.ok(200).body, json!({"agents": []}));
    }

    async fn another_site_changes_nothing_with_somebodys_cookie(app: App) {
        let admin = app.person("ada", "admin", "").await;
        let run = app.agent("a", "ada").await.run(json!({})).await;
        let before = app.events().await.len();
        let new = json!({"name": "eve", "role": "admin", "password": PASSWORD});
        let calls = || [
            app.post("session", json!({"name": "ada", "password": PASSWORD})),
            app.call(Method::DELETE, "session").header("cookie", &admin.cookie),
            app.post("session/step-up", json!({"password": PASSWORD})).header("cookie", &admin.cookie),
            app.post("people", new.clone()).header("cookie", &admin.cookie),
            app.call(Method::PATCH, &format!("people/{}", admin.id)).json(json!({"role": "viewer"})).header("cookie", &admin.cookie),
            app.post(&format!("runs/{}/stop", run.id), json!({"reason": "x"})).header("cookie", &admin.cookie),
            app.post("/sign-in", json!({})),
        ];
        for (origin, site) in [
            ("https://evil.example.test", ""),
            ("https://evil.example.test", "cross-site"),
            ("https://evil.example.test", "same-origin"),
            ("null", ""),
            ("null", "same-origin"),
            ("", "cross-site"),
            ("", "same-site"),
            (PUBLIC_URL, "cross-site"),
            ("", ""),
        ] {
            for call in calls() {
                call.header("origin", origin).header(SEC_FETCH_SITE, site).await.refused(403, "cross_site");
            }
        }
        assert_eq!(app.events().await.len(), before);
        admin.get("me").header("origin", "https://evil.example.test").header(SEC_FETCH_SITE, "cross-site").await.ok(200);
        admin.call(Method::POST, "people").raw("text/plain", new.to_string()).await.refused(415, "unsupported_media_type");
        for (origin, site) in [(PUBLIC_URL, ""), ("", "same-origin"), (PUBLIC_URL, "same-origin"), ("", "none")] {
            let call = app.post("session/step-up", json!({"password": "not the password"})).header("cookie", &admin.cookie);
            call.header("origin", origin).header(SEC_FETCH_SITE, site).await.refused(403, "step_up_required");
        }
    }

    async fn a_bearer_call_neither_gains_nor_loses_by_the_cookie(app: App) {
        let admin = app.person("ada", "admin", "").await;
        let agent = app.agent("a", "ada").await;
        let with_cookie = |call: crate::support::Call| call.header("cookie", &admin.cookie).header("origin", "https://evil.example.test");
        assert_eq!(with_cookie(agent.get("me")).await.ok(200).body["kind"], "agent");
        with_cookie(agent.post("runs", json!({"label": "x"}))).await.ok(201);
        let new = json!({"name": "eve", "role": "admin", "password": PASSWORD});
        with_cookie(agent.post("people", new)).await.refused(403, "humans_only");
        for header in ["Bearer nonsense", "Bearer cfa_", "Bearer", "Basic YWRhOmFkYQ==", "bearer  "] {
            admin.get("me").header("authorization", header).await.refused(401, "unauthenticated");
        }
        let twice = agent.get("me").also_header("authorization", "Bearer x").await.refused(401, "unauthenticated");
        assert!(twice.header("www-authenticate").starts_with("Bearer"));
    }

    async fn programs_are_refused_on_peoples_routes(app: App) {
        app.person("ada", "admin", "").await;
        let agent = app.agent("a", "ada").await;
        let programs = [agent.run(json!({})).await, agent, app.executor("x", &["*"]).await];
        for program in programs {
            for path in ["people", "agents", "executors", "sessions"] {
                program.get(path).await.refused(403, "humans_only");
            }
            program.post("people", json!({})).await.refused(403, "humans_only");
            program.post("session/step-up", json!({"password": PASSWORD})).await.refused(403, "humans_only");
            program.call(Method::DELETE, "session").await.refused(403, "humans_only");
            program.call(Method::PATCH, "people/usr_x").json(json!({})).await.refused(403, "humans_only");
        }
    }

    async fn strangers_learn_nothing(app: App) {
        let omar = app.person("omar", "viewer", "").await;
        let run = app.agent("a", "omar").await.run(json!({})).await;
        for path in ["me", "people", "runs", "sessions", "nothing", &format!("runs/{}", run.id), "runs/run_x"] {
            app.get(path).await.refused(401, "unauthenticated");
        }
        app.post("runs", json!("nonsense")).await.refused(401, "unauthenticated");
        app.call(Method::DELETE, "runs").await.refused(401, "unauthenticated");
        app.call(Method::PATCH, &format!("people/{}", omar.id)).raw("text/plain", "x").await.refused(401, "unauthenticated");
    }

    async fn every_answer_carries_the_security_headers(app: App) {
        let asha = app.person("asha", "approver", "").await;
        for reply in [asha.get("me").await, asha.get("nothing").await, app.get("/healthz").await, app.get("/nothing").await] {
            assert_eq!(reply.header("x-content-type-options"), "nosniff");
            assert_eq!(reply.header("referrer-policy"), "same-origin");
            assert_eq!(reply.header("cross-origin-opener-policy"), "same-origin");
            assert_eq!(reply.header("cross-origin-resource-policy"), "same-origin");
            assert!(reply.header("content-security-policy").starts_with("default-src 'none'; frame-ancestors 'none'"));
            assert!(reply.header("permissions-policy").contains("camera=()"));
            assert_eq!(reply.header("strict-transport-security"), "", "the desk is reached over http here");
            assert!(reply.header("x-correlation-id").starts_with("co_"));
        }
        assert_eq!(asha.get("me").await.header("cache-control"), "no-store");
        let page = |path: &'static str| app.get(path).header("accept", "text/html,*/*");
        let (one, two) = (page("/nothing").await, page("/nothing").await);
        assert_eq!(one.status, 404);
        assert!(one.header("content-type").starts_with("text/html"));
        let policy = one.header("content-security-policy");
        for directive in ["default-src 'none'", "script-src 'nonce-", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"] {
            assert!(policy.contains(directive), "{policy}");
        }
        assert!(!policy.contains("unsafe-inline") && !policy.contains("'unsafe-eval'"), "{policy}");
        assert_ne!(policy, two.header("content-security-policy"), "a nonce is used once");
        page("/api/v1/nothing").await.refused(401, "unauthenticated");
    }

    async fn a_panic_and_a_fault_are_answered_without_their_words(app: App) {
        use counterfoil::server::service::error::Error;
        let state = AppState { desk: app.desk.clone(), stop: app.stop.clone() };
        let faulty = || async { Err::<(), _>(Error::internal("the secret reason")) };
        let router = Router::new()
            .route("/panic", get(|| async { if true { panic!("the secret reason") } }))
            .route("/fault", get(faulty))
            .layer(middleware::from_fn_with_state(state.clone(), problem::finish))
            .layer(middleware::from_fn_with_state(state, security::headers));
        for path in ["/panic", "/fault"] {
            let reply = router.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(reply.status(), 500);
            assert_eq!(reply.headers()["content-type"], "application/problem+json");
            let body = axum::body::to_bytes(reply.into_body(), usize::MAX).await.unwrap();
            let body = String::from_utf8(body.to_vec()).unwrap();
            assert!(body.contains("\"internal\"") && !body.contains("secret"), "{body}");
        }
    }

    async fn measures_are_for_this_machine_or_the_token(app: App) {
        let app = app.restart(&[("COUNTERFOIL_METRICS_TOKEN", "metrics canary")]).await;
        app.get("/metrics").await.ok(200);
        app.get("/metrics").from("192.0.2.1").await.refused(401, "unauthenticated");
        app.get("/metrics").header("x-forwarded-for", "192.0.2.1").await.refused(401, "unauthenticated");
        let with = |token: &str| app.get("/metrics").from("192.0.2.1").header("authorization", token);
        with("Bearer metrics canary").await.ok(200);
        with("Bearer metrics canar").await.refused(401, "unauthenticated");
    }

    async fn a_desk_about_to_stop_is_alive_and_not_ready(app: App) {
        app.get("/healthz").await.ok(200);
        app.get("/readyz").await.ok(200);
        app.stop.cancel();
        app.get("/healthz").await.ok(200);
        app.get("/readyz").await.refused(503, "unavailable");
    }

    async fn a_desk_without_its_database_says_so_and_does_nothing(app: App) {
        let asha = app.person("asha", "approver", "").await;
        app.desk.store.close().await;
        let reply = asha.get("me").await.refused(503, "unavailable");
        assert_eq!((reply.header("retry-after"), &reply.body["retryable"]), ("1", &json!(true)));
        app.get("/readyz").await.refused(503, "unavailable");
        app.get("/healthz").await.ok(200);
    }
}
