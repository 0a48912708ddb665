//! What the integration tests share: the real router over a real database, driven without a socket, on a clock that
//! the test moves.

pub mod events;
pub mod postgres;
pub mod process;
pub mod provider;

use std::{
    future::{Future, IntoFuture},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Deref,
    pin::Pin,
    sync::Arc,
};

use axum::{
    Router,
    body::Body,
    extract::ConnectInfo,
    http::{HeaderMap, Method, Request, StatusCode, header},
    response::Response,
};
use counterfoil::{
    model::{audit, time::Timestamp},
    server::{
        clock::Clock,
        config::{Config, Database},
        service::{
            Desk,
            account::{self, Administrator, NewPerson},
            agents::{self, NewAgent, NewExecutor},
            audit::export,
            catalogue,
        },
        store::{Store, log},
        web::{self, state::AppState},
    },
};
use futures::TryStreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use events::Events;

/// 2026-12-01T00:00:00Z.
pub const START: Timestamp = Timestamp(1_796_083_200_000);
pub const PASSWORD: &str = "correct horse battery staple";
pub const PUBLIC_URL: &str = "http://desk.example.test";

/// Runs each test on SQLite and on PostgreSQL, as `name::sqlite` and `name::postgres`. Whatever it did, its log verifies.
macro_rules! on_both_databases {
    ($($(#[$meta:meta])* async fn $name:ident($app:ident: $type:ident) $body:block)*) => {$(
        async fn $name($app: $type) $body

        mod $name {
            $(#[$meta])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                let app = super::$type::sqlite().await;
                super::$name(app.clone()).await;
                app.log_verifies().await;
            }

            $(#[$meta])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                let app = super::$type::postgres().await;
                super::$name(app.clone()).await;
                app.log_verifies().await;
            }
        }
    )*};
}
pub(crate) use on_both_databases;

/// One node of the desk.
#[derive(Clone)]
pub struct App(Arc<Node>);

pub struct Node {
    pub desk: Desk,
    pub clock: Clock,
    pub stop: CancellationToken,
    pub database: Database,
    router: Router,
    folder: Arc<TempDir>,
}

impl Deref for App {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.0
    }
}

impl App {
    pub async fn sqlite() -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let database = Database::Sqlite(folder.path().join("counterfoil.db"));
        Self::open(database, folder, Clock::manual(START), &[]).await
    }

    pub async fn postgres() -> Self {
        let database = Database::Postgres(postgres::fresh_database().await);
        Self::open(database, Arc::new(tempfile::tempdir().unwrap()), Clock::manual(START), &[]).await
    }

    /// A node on this database that keeps its files in `folder`.
    pub async fn open(database: Database, folder: Arc<TempDir>, clock: Clock, settings: &[(&str, &str)]) -> Self {
        let set = |name: &str| settings.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
        let mut config = Config::from(|name| match name {
            "COUNTERFOIL_PUBLIC_URL" => set(name).or(Some(PUBLIC_URL.to_owned())),
            "COUNTERFOIL_DATA_DIR" => Some(folder.path().display().to_string()),
            _ => set(name),
        })
        .unwrap();
        config.database = database.clone();
        let store = Store::open(&database, config.database_connections, clock.clone()).await.unwrap();
        let desk = Desk::new(store, config);
        catalogue::seed(&desk).await.unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(desk.signals.clone().run(desk.store.clone(), stop.clone()));
        let router = web::router(AppState { desk: desk.clone(), stop: stop.clone() });
        Self(Arc::new(Node { desk, clock, stop, database, router, folder }))
    }

    /// Another node on the same database and the same clock, with these settings of the environment.
    pub async fn node(&self, settings: &[(&str, &str)]) -> Self {
        Self::open(self.database.clone(), self.folder.clone(), self.clock.clone(), settings).await
    }

    /// Stops this node and starts one in its place.
    pub async fn restart(&self, settings: &[(&str, &str)]) -> Self {
        self.close().await;
        self.node(settings).await
    }

    /// Stops this node, and lets go of its database.
    pub async fn close(&self) {
        self.stop.cancel();
        self.desk.store.close().await;
    }

    /// Where this node keeps its files.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub fn advance_s(&self, seconds: i64) {
        self.clock.advance_ms(seconds * 1000);
    }

    /// A call without credentials. A path without a leading `/` is under `/api/v1/`.
    pub fn call(&self, method: Method, path: &str) -> Call {
        let uri = if path.starts_with('/') { path.to_owned() } else { format!("/api/v1/{path}") };
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, "desk.example.test".parse().unwrap());
        Call { app: self.clone(), method, uri, headers, body: Body::empty(), from: Ipv4Addr::LOCALHOST.into() }
    }

    pub fn get(&self, path: &str) -> Call {
        self.call(Method::GET, path)
    }

    pub fn post(&self, path: &str, body: Value) -> Call {
        self.call(Method::POST, path).json(body)
    }

    /// A new person, signed in. `groups` by blanks.
    pub async fn person(&self, name: &str, role: &str, groups: &str) -> Person {
        let groups: Vec<_> = groups.split_whitespace().collect();
        let new = json!({"name": name, "role": role, "groups": groups, "password": PASSWORD});
        let new: NewPerson = serde_json::from_value(new).unwrap();
        let made = account::create_person(&self.desk, &Administrator::command_line(), new).await.unwrap();
        let mut person = Person { app: self.clone(), id: made.id.to_string(), name: made.name, cookie: String::new() };
        person.sign_in().await;
        person
    }

    /// A new agent of the person called `owner`.
    pub async fn agent(&self, name: &str, owner: &str) -> Program {
        let new: NewAgent = serde_json::from_value(json!({"name": name, "owner": owner})).unwrap();
        let issued = agents::create_agent(&self.desk, &Administrator::command_line(), new).await.unwrap();
        Program { app: self.clone(), id: issued.principal.id.to_string(), token: issued.token.reveal().to_owned() }
    }

    /// A new executor for the kinds that match `kinds`.
    pub async fn executor(&self, name: &str, kinds: &[&str]) -> Program {
        let new: NewExecutor = serde_json::from_value(json!({"name": name, "kinds": kinds})).unwrap();
        let issued = agents::create_executor(&self.desk, &Administrator::command_line(), new).await.unwrap();
        Program { app: self.clone(), id: issued.principal.id.to_string(), token: issued.token.reveal().to_owned() }
    }

    /// `asha`, who approves; `omar`, who owns the agent; and a live run of that agent.
    pub async fn world(&self) -> (Person, Person, Program) {
        let approver = self.person("asha", "approver", "approvers").await;
        let owner = self.person("omar", "viewer", "").await;
        let run = self.agent("deployer", "omar").await.run(json!({})).await;
        (approver, owner, run)
    }

    /// The whole audit log, record by record.
    pub async fn audit(&self) -> Vec<Value> {
        let mut conn = self.desk.store.read().await.unwrap();
        let lines = log::records(&mut conn, 0, i64::MAX).await.unwrap();
        lines.iter().map(|line| serde_json::from_str(&line.record).unwrap()).collect()
    }

    /// Puts a policy of these rules in force.
    pub async fn rules(&self, rules: Value) {
        let document = json!({"rules": rules});
        catalogue::change_policy(&self.desk, &Administrator::command_line(), &document, None).await.unwrap();
    }

    /// The log as an auditor takes it away.
    pub async fn export(&self) -> String {
        let chunks: Vec<_> = export(&self.desk).await.unwrap().try_collect().await.unwrap();
        chunks.concat()
    }

    /// What the offline verifier says about an export, with this desk's key.
    pub async fn verdict(&self, export: &str) -> audit::Verdict {
        let vkey = self.desk.signer().await.unwrap().verifier().to_string();
        audit::verify(export.as_bytes(), &vkey, &[] as &[&str])
    }

    /// Asserts that the log is what the rules allow, as any node finds it.
    pub async fn log_verifies(&self) {
        let app = self.node(&[]).await;
        let verdict = app.verdict(&app.export().await).await;
        assert_eq!(verdict.exit_code(), 0, "{verdict}");
    }

    /// The names of the events in the log.
    pub async fn events(&self) -> Vec<String> {
        self.audit().await.iter().map(|record| record["event"].as_str().unwrap().to_owned()).collect()
    }
}

/// A request in the making; awaiting it sends it.
#[must_use]
pub struct Call {
    app: App,
    method: Method,
    uri: String,
    headers: HeaderMap,
    body: Body,
    from: IpAddr,
}

impl Call {
    /// Replaces the header; an empty value takes it away.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        match value {
            "" => drop(self.headers.remove(name)),
            value => drop(self.headers.insert(name, value.parse().unwrap())),
        }
        self
    }

    /// Adds another line of the header.
    pub fn also_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.append(name, value.parse().unwrap());
        self
    }

    pub fn json(self, body: Value) -> Self {
        self.raw("application/json", body.to_string())
    }

    pub fn raw(mut self, media_type: &str, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self.header("content-type", media_type)
    }

    pub fn from(mut self, address: &str) -> Self {
        self.from = address.parse().unwrap();
        self
    }

    async fn send(self) -> Response {
        let mut request = Request::builder().method(self.method).uri(self.uri).body(self.body).unwrap();
        *request.headers_mut() = self.headers;
        request.extensions_mut().insert(ConnectInfo(SocketAddr::new(self.from, 40_000)));
        self.app.router.clone().oneshot(request).await.unwrap()
    }

    /// Sends it, and reads the answer as a stream of events.
    pub async fn events(self) -> Events {
        let response = self.send().await;
        assert_eq!(response.status(), 200);
        Events::new(response.into_body().into_data_stream().map_err(drop))
    }
}

impl IntoFuture for Call {
    type Output = Reply;
    type IntoFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (parts, body) = self.send().await.into_parts();
            let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            let body = serde_json::from_str(&text).unwrap_or_default();
            Reply { status: parts.status, headers: parts.headers, body, text }
        })
    }
}

/// What came back; `body` is null unless it is JSON.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
    pub text: String,
}

impl Reply {
    /// The header's value, empty when there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The code of a refusal, empty on success.
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    pub fn operation(&self) -> &Value {
        &self.body["operation"]
    }

    /// Asserts success with this status.
    #[track_caller]
    pub fn ok(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self
    }

    /// Asserts a refusal: a problem document with this code, its status, and every member it must have.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Self {
        assert_eq!((self.code(), self.status.as_u16()), (code, status), "{}", self.text);
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(self.header("cache-control"), "no-store");
        assert_eq!(self.body["type"], format!("urn:counterfoil:problem:{code}"));
        assert_eq!(self.body["status"], status);
        assert_eq!(self.body["correlation_id"], self.header("x-correlation-id"));
        assert!(self.body["title"].is_string() && self.body["detail"].is_string(), "{}", self.text);
        assert!(self.body["retryable"].is_boolean() && self.body["safe_new_key"].is_boolean(), "{}", self.text);
        assert!(self.body["retry"]["mode"].is_string(), "{}", self.text);
        self
    }
}

/// Somebody signed in with a browser.
#[derive(Clone)]
pub struct Person {
    pub app: App,
    pub id: String,
    pub name: String,
    pub cookie: String,
}

impl Person {
    pub async fn sign_in(&mut self) {
        let reply = self.app.sign_in(&self.name, PASSWORD).await.ok(200);
        self.cookie = cookie_of(&reply);
    }

    /// The same person at another node.
    pub fn at(&self, app: &App) -> Self {
        Self { app: app.clone(), ..self.clone() }
    }

    /// As the desk's own page sends it.
    pub fn call(&self, method: Method, path: &str) -> Call {
        let call = self.app.call(method, path).header("cookie", &self.cookie);
        call.header("origin", PUBLIC_URL).header("sec-fetch-site", "same-origin")
    }

    pub fn get(&self, path: &str) -> Call {
        self.call(Method::GET, path)
    }

    pub fn post(&self, path: &str, body: Value) -> Call {
        self.call(Method::POST, path).json(body)
    }

    /// The operation with its review digest, as the person is shown it.
    pub async fn view(&self, id: &str) -> Value {
        let reply = self.get(&format!("operations/{id}")).await.ok(200);
        let mut view = reply.operation().clone();
        view["review_digest"] = reply.body["review_digest"].clone();
        view
    }

    /// Decides on what the person is shown now; `over` replaces members of the decision.
    pub async fn decide(&self, id: &str, decision: &str, over: Value) -> Reply {
        let view = self.view(id).await;
        let mut body = json!({
            "decision": decision, "fingerprint": view["fingerprint"], "review_digest": view["review_digest"],
        });
        if decision == "approve" && (view["risk"] == "high" || view["risk"] == "critical") {
            body["confirm_target"] = view["target"].clone();
        }
        if decision == "reject" {
            body["reason_code"] = json!("other");
            body["reason"] = json!("not now");
        }
        merge(&mut body, over);
        self.post(&format!("operations/{id}/decisions"), body).await
    }

    pub async fn approve(&self, id: &str) -> Reply {
        self.decide(id, "approve", json!({})).await
    }
}

impl App {
    /// Signing in, as the sign-in page does it.
    pub fn sign_in(&self, name: &str, password: &str) -> Call {
        let call = self.post("session", json!({"name": name, "password": password}));
        call.header("origin", PUBLIC_URL).header("sec-fetch-site", "same-origin")
    }
}

/// The session cookie a reply sets, as the next request sends it.
pub fn cookie_of(reply: &Reply) -> String {
    reply.header("set-cookie").split(';').next().unwrap_or_default().to_owned()
}

/// A program with its bearer token: an agent, a run or an executor.
#[derive(Clone)]
pub struct Program {
    pub app: App,
    pub id: String,
    pub token: String,
}

impl Program {
    /// The same program at another node.
    pub fn at(&self, app: &App) -> Self {
        Self { app: app.clone(), ..self.clone() }
    }

    pub fn call(&self, method: Method, path: &str) -> Call {
        self.app.call(method, path).header("authorization", &format!("Bearer {}", self.token))
    }

    pub fn get(&self, path: &str) -> Call {
        self.call(Method::GET, path)
    }

    pub fn post(&self, path: &str, body: Value) -> Call {
        self.call(Method::POST, path).json(body)
    }

    /// Starts a run of this agent; `more` are members of the request.
    pub async fn run(&self, more: Value) -> Program {
        let mut body = json!({"label": "test"});
        merge(&mut body, more);
        let reply = self.post("runs", body).await.ok(201);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Program { app: self.app.clone(), id: text(&reply.body["run"]["id"]), token: text(&reply.body["token"]) }
    }

    /// A proposal under a fresh key.
    pub fn propose(&self, kind: &str, target: &str, params: Value) -> Call {
        self.propose_as(&fresh_key(), json!({"kind": kind, "target": target, "params": params}))
    }

    pub fn propose_as(&self, key: &str, body: Value) -> Call {
        self.post("operations", body).header("idempotency-key", key)
    }

    /// A ticket proposed, as its operation.
    pub async fn ticket(&self, title: &str) -> Value {
        let params = json!({"project": "ops", "title": title});
        self.propose("ticket.create", "project/ops", params).await.ok(201).operation().clone()
    }

    /// A deployment planned on `version`, under a fresh key.
    pub fn release(&self, environment: &str, version: i64) -> Call {
        self.propose_as(&fresh_key(), release(environment, json!(version)))
    }

    /// Claims the operation, reports it sent and then this outcome; the operation as it is after that.
    pub async fn complete(&self, operation: &Value, outcome: Value) -> Value {
        let claim = self.take(operation).await;
        self.report(operation, "sent", &claim, json!({})).await.ok(200);
        self.report(operation, "outcome", &claim, outcome).await.ok(200).operation().clone()
    }

    /// A claim that succeeds, as its document.
    pub async fn take(&self, operation: &Value) -> Value {
        self.claim(operation).await.ok(200).body["claim"].clone()
    }

    /// A claim reported as sent.
    pub async fn send(&self, operation: &Value) -> Value {
        let claim = self.take(operation).await;
        self.report(operation, "sent", &claim, json!({})).await.ok(200);
        claim
    }

    /// The operation as this program sees it.
    pub async fn read(&self, operation: &Value) -> Value {
        self.get(&format!("operations/{}", id_of(operation))).await.ok(200).operation().clone()
    }

    pub fn claim(&self, operation: &Value) -> Call {
        self.post(&format!("operations/{}/claim", id_of(operation)), json!({"fingerprint": operation["fingerprint"]}))
    }

    /// `sent`, `accepted`, `heartbeat` or `outcome` under a claim; `more` are members of the report.
    pub fn report(&self, operation: &Value, verb: &str, claim: &Value, more: Value) -> Call {
        let mut body = json!({"claim_id": claim["id"], "claim_fence": claim["claim_fence"]});
        if verb == "sent" {
            body["fingerprint"] = claim["fingerprint"].clone();
        }
        merge(&mut body, more);
        self.post(&format!("operations/{}/{verb}", id_of(operation)), body)
    }
}

/// A ticket as it is proposed.
pub fn ticket(title: &str) -> Value {
    json!({"kind": "ticket.create", "target": "project/ops", "params": {"project": "ops", "title": title}})
}

/// A deployment as it is proposed; `version` is what it was planned on, or null.
pub fn release(environment: &str, version: Value) -> Value {
    let artifact = format!("sha256:{}", "2b".repeat(32));
    json!({
        "kind": "deployment.release", "target": format!("release/{environment}"), "expected_version": version,
        "params": {"environment": environment, "service": "checkout", "artifact": artifact},
    })
}

/// An outcome that succeeded, as a report has it.
pub fn succeeded(reference: &str) -> Value {
    json!({"status": "succeeded", "provider_reference": reference})
}

pub fn id_of(document: &Value) -> &str {
    document["id"].as_str().unwrap()
}

pub fn fresh_key() -> String {
    format!("key-{:032x}", u128::from_le_bytes(counterfoil::server::ids::random()))
}

pub fn merge(into: &mut Value, more: Value) {
    for (name, value) in more.as_object().cloned().unwrap_or_default() {
        into[name] = value;
    }
}
