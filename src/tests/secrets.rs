//! What must be known to its owner alone appears nowhere else: planted secrets are looked for in everything that leaves
//! the desk.

use std::path::Path;

use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::support::{PASSWORD, fresh_key, id_of, postgres, process::Place, ticket};

const METRICS_TOKEN: &str = "planted-metrics-token";
const WRONG_PASSWORD: &str = "planted wrong password";
const FIRST_PASSWORD: &str = "planted first password";
const NEXT_PASSWORD: &str = "planted next password";
const DATABASE_PASSWORD: &str = "planted-database-password";
const UNKNOWN_TOKEN: &str = "cfa_plantedUnknownTokenplantedUnknownToken00000";

/// Everything a reader could have seen, with where.
struct Seen(Vec<(String, String)>);

impl Seen {
    async fn of(&mut self, request: RequestBuilder) -> Value {
        let reply = request.send().await.unwrap();
        let at = format!("{} {}", reply.url(), reply.status());
        assert!(reply.status().as_u16() < 500, "{at}");
        let headers =
            format!("{:?}", reply.headers().iter().filter(|(name, _)| *name != "set-cookie").collect::<Vec<_>>());
        let text = reply.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or_default();
        self.0.push((at, headers + &text));
        body
    }

    /// Every file below a folder, but for the audit key.
    fn folder(&mut self, folder: &Path) {
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path.is_dir() {
                self.folder(&path);
            } else if path.file_name().is_some_and(|name| name != "audit.key") {
                let bytes = std::fs::read(&path).unwrap();
                self.0.push((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
    }
}

async fn secrets_leave_no_trace(database: Option<String>) {
    let mut place = Place::new(&[("COUNTERFOIL_LOG", "debug"), ("COUNTERFOIL_METRICS_TOKEN", METRICS_TOKEN)]);
    if let Some(url) = database {
        let url = url.replacen("counterfoil@", &format!("counterfoil:{DATABASE_PASSWORD}@"), 1);
        place.set("COUNTERFOIL_DATABASE_URL", &url);
    }
    let server = place.serve().await;
    let mut seen = Seen(Vec::new());
    let page = |path: &str, cookie: &str| {
        place.client.get(format!("{}{path}", place.url)).header("cookie", cookie).header("accept", "text/html")
    };
    let form = |path: &str, cookie: &str, fields: &[(&str, &str)]| {
        let body: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={}", value.replace(' ', "+"))).collect();
        let call =
            place.client.post(format!("{}{path}", place.url)).header("cookie", cookie).header("origin", &place.url);
        call.header("content-type", "application/x-www-form-urlencoded")
            .header("accept", "text/html")
            .body(body.join("&"))
    };

    // The link, and the people.
    let log = place.log();
    let link = log.lines().find_map(|line| line.strip_prefix("Set up: ")).unwrap();
    let setup_token = link.split_once("token=").unwrap().1.to_owned();
    page(&format!("/setup?token={setup_token}"), "").send().await.unwrap();
    seen.of(form("/setup", "", &[("token", &setup_token), ("name", "x"), ("password", "short")])).await;
    seen.0.pop(); // the form comes back with the token it needs
    seen.of(form("/setup", "", &[("token", &setup_token), ("name", "ada"), ("password", FIRST_PASSWORD)])).await;
    seen.of(page(&format!("/setup?token={setup_token}"), "")).await;
    let admin = place.sign_in("ada", FIRST_PASSWORD).await;
    let asha = place.person("asha", "approver", "approvers").await;
    let auditor = place.person("otto", "auditor", "none").await;
    place.person("omar", "viewer", "none").await;
    place.cli(&["user", "passwd", "omar", "--password-stdin"], NEXT_PASSWORD);
    let omar = place.sign_in("omar", NEXT_PASSWORD).await;
    let wrong = json!({"name": "asha", "password": WRONG_PASSWORD});
    seen.of(place.send("session", "", &wrong)).await;
    seen.of(form("/sign-in", "", &[("name", "asha"), ("password", WRONG_PASSWORD)])).await;
    seen.of(form("/sign-in", "", &[("name", WRONG_PASSWORD), ("password", "x")])).await;
    seen.0.pop(); // a password typed into the wrong field comes back to whoever typed it
    seen.of(place.send("session/step-up", &asha, &json!({"password": WRONG_PASSWORD}))).await;
    seen.of(place.send("people", &admin, &json!({"name": "new", "role": "root", "password": NEXT_PASSWORD}))).await;

    // The programs, and one operation from its start to its end.
    let agent = place.cli(&["agent", "add", "deployer", "--owner", "omar"], "");
    let executor = place.cli(&["executor", "add", "tickets", "--kind", "ticket.*"], "");
    let run = place.start_run(&agent).await;
    let key = fresh_key();
    let propose = |body: &Value| place.post("operations", &run, body).header("idempotency-key", &key);
    let op = propose(&ticket("Rotate")).send().await.unwrap().json::<Value>().await.unwrap()["operation"].clone();
    let path = format!("operations/{}", id_of(&op));
    seen.of(propose(&ticket("Other"))).await;
    place.approve(&asha, id_of(&op)).await.unwrap();
    let claim =
        seen.of(place.post(&format!("{path}/claim"), &executor, &json!({"fingerprint": op["fingerprint"]}))).await;
    let claim = &claim["claim"];
    let with = |more: Value| {
        let mut body = json!({"claim_id": claim["id"], "claim_fence": claim["claim_fence"]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    seen.of(place.post(&format!("{path}/sent"), &executor, &with(json!({"fingerprint": op["fingerprint"]})))).await;
    seen.of(place.post(&format!("{path}/outcome"), &executor, &with(json!({"status": "unknown"})))).await;

    // Credentials where they do not belong, and some that nobody has.
    for token in [&agent, &run, &executor, UNKNOWN_TOKEN] {
        seen.of(place.get("me", &format!("{token}x"))).await;
        seen.of(place.get("people", token)).await;
        seen.of(place.client.get(format!("{}/api/v1/me?token={token}", place.url))).await;
        seen.of(place.client.get(format!("{}/{token}", place.url))).await;
        seen.of(place.get(&format!("runs/{token}"), &run)).await;
        seen.of(place.get(&format!("operations/by-key/{token}"), &run)).await;
        seen.of(place.look("me", &format!("id={token}"))).await;
        seen.of(place.client.get(format!("{}/api/v1/me", place.url)).header("authorization", format!("Basic {token}")))
            .await;
    }

    // Everything there is to read.
    for cookie in [&admin, &asha, &auditor, &omar] {
        for path in [
            "/",
            "/?who=all",
            "/?lane=unknown",
            "/?lane=done",
            "/unknown",
            "/runs",
            "/audit",
            "/on-call",
            "/problems",
            "/settings/policies",
            "/settings/policies/edit",
            "/settings/kinds",
            "/settings/people",
            "/settings/agents",
            "/settings/executors",
            "/settings/pause",
            "/settings/sessions",
            "/settings/keyboard",
            "/no-such-page",
            &format!("/operations/{}", id_of(&op)),
            &format!("/audit?operation={}", id_of(&op)),
        ] {
            seen.of(page(path, cookie)).await;
        }
        for path in [
            "me",
            "operations",
            &path,
            &format!("{path}/review"),
            "runs",
            "people",
            "agents",
            "executors",
            "policies",
            "kinds",
            "sessions",
            "audit",
            "audit/export",
            "audit/checkpoint",
        ] {
            seen.of(place.look(path, cookie)).await;
        }
    }
    seen.of(place.client.get(format!("{}/openapi.json", place.url))).await;
    seen.of(place.client.get(format!("{}/metrics", place.url)).bearer_auth(METRICS_TOKEN)).await;
    seen.of(place.client.get(format!("{}/metrics", place.url)).bearer_auth(UNKNOWN_TOKEN)).await;
    let mut events = place.events(&asha, Some(0)).await;
    seen.0.push(("events".into(), format!("{:?}", events.take(5).await)));
    seen.0.push(("log".into(), place.log_verifies()));
    let sessions = [&admin, &asha, &auditor, &omar].map(|cookie| cookie.split_once('=').unwrap().1.to_owned());
    drop(server);

    let signing_key = std::fs::read_to_string(place.folder().join("audit.key")).unwrap();
    seen.folder(place.folder());
    // The link is printed once, for whoever started the server.
    for (at, text) in &mut seen.0 {
        if at.ends_with("server.log") {
            assert!(text.contains("\"level\":\"DEBUG\""), "there is a log to look through");
            *text = text.replacen(link, "", 1);
        }
    }
    let mut secrets = vec![
        METRICS_TOKEN,
        PASSWORD,
        WRONG_PASSWORD,
        FIRST_PASSWORD,
        NEXT_PASSWORD,
        DATABASE_PASSWORD,
        UNKNOWN_TOKEN,
        &setup_token,
        &agent,
        &run,
        &executor,
        signing_key.lines().next_back().unwrap(),
    ];
    secrets.extend(sessions.iter().map(String::as_str));
    for (at, text) in &seen.0 {
        for secret in &secrets {
            // Whoever asks for an address with a token in it has put it there.
            let asked = at.contains(secret);
            assert!(asked || !text.contains(secret), "`{secret}` is in {at}: {text}");
        }
    }
    // A key is kept, to find its operation by; it is never told to anybody but its agent.
    for (at, text) in seen.0.iter().filter(|(at, _)| !at.contains("counterfoil.db")) {
        assert!(!text.contains(&key), "{at}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_leave_no_trace_on_sqlite() {
    secrets_leave_no_trace(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_leave_no_trace_on_postgres() {
    secrets_leave_no_trace(Some(postgres::fresh_database().await)).await;
}
