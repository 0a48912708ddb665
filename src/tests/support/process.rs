//! The desk as a process of its own, for what only a process shows: signals, kills, locks and the command line.

use std::{
    io::Write,
    net::TcpListener,
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use counterfoil::server::{clock::Clock, config::Database};
use futures::TryStreamExt;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{App, PASSWORD, events::Events, fresh_key, postgres};

const PATIENCE: Duration = Duration::from_secs(30);

/// Settings of one desk with a data folder and a port of its own.
pub struct Place {
    folder: Arc<TempDir>,
    settings: Vec<(&'static str, String)>,
    pub url: String,
    pub client: reqwest::Client,
}

impl Place {
    /// On SQLite in its own folder; `settings` come on top.
    pub fn new(settings: &[(&'static str, &str)]) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        // Free now and taken by the server in a moment.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut all = vec![
            ("COUNTERFOIL_LISTEN", format!("127.0.0.1:{port}")),
            ("COUNTERFOIL_DATA_DIR", folder.path().display().to_string()),
        ];
        all.extend(settings.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let client = counterfoil::server::gateway::http::builder().timeout(PATIENCE).build().unwrap();
        Self { folder, settings: all, url: format!("http://127.0.0.1:{port}"), client }
    }

    /// Changes a setting for whatever starts from now on.
    pub fn set(&mut self, name: &'static str, value: &str) {
        self.unset(name);
        self.settings.push((name, value.to_owned()));
    }

    pub fn unset(&mut self, name: &str) {
        self.settings.retain(|(set, _)| *set != name);
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Opens this desk in the test's own process, while no server has it.
    pub async fn open(&self, clock: Clock) -> App {
        let url = self.settings.iter().find(|(name, _)| *name == "COUNTERFOIL_DATABASE_URL");
        let database = match url {
            Some((_, url)) => Database::parse(url).unwrap(),
            None => Database::Sqlite(self.folder().join("counterfoil.db")),
        };
        App::open(database, self.folder.clone(), clock, &[]).await
    }

    /// The audit log as it is now, which verifies under a checkpoint of now.
    #[track_caller]
    pub fn log_verifies(&self) -> String {
        let path = |name: &str| self.folder().join(name).display().to_string();
        let (pin, export) = (path("pin"), path("export.jsonl"));
        self.cli(&["audit", "checkpoint", "--out", &pin], "");
        self.cli(&["audit", "export", "--out", &export], "");
        let vkey = self.cli(&["audit", "vkey"], "");
        self.cli(&["audit", "verify", &export, "--vkey", &vkey, "--pin", &pin], "");
        std::fs::read_to_string(export).unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        command.args(arguments).env_clear().envs(self.settings.iter().map(|(name, value)| (*name, value)));
        command
    }

    /// Runs the command line to its end.
    pub fn run(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A command that refuses before it reads closes its end.
        drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
        child.wait_with_output().unwrap()
    }

    /// Runs the command line, which succeeds; its standard output without the last line feed.
    #[track_caller]
    pub fn cli(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Starts the server and waits until it is ready.
    pub async fn serve(&self) -> Server {
        self.start("serve").await
    }

    /// Starts the server by another word, and waits until it is ready.
    pub async fn start(&self, word: &str) -> Server {
        let server = self.spawn(word);
        let start = Instant::now();
        while !self.client.get(format!("{}/readyz", self.url)).send().await.is_ok_and(|reply| reply.status() == 200) {
            assert!(start.elapsed() < PATIENCE, "the server is not ready");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server
    }

    fn spawn(&self, word: &str) -> Server {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.folder().join("server.log")).unwrap();
        Server(self.command(&[word]).stderr(log).spawn().unwrap())
    }

    /// What the server has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder().join("server.log")).unwrap_or_default()
    }

    /// Adds a person by the command line and signs them in; their cookie.
    pub async fn person(&self, name: &str, role: &str, group: &str) -> String {
        self.cli(
            &["user", "add", name, "--role", role, "--group", group, "--password-stdin"],
            &format!("{PASSWORD}\n"),
        );
        self.sign_in(name, PASSWORD).await
    }

    /// Signs somebody in; their cookie.
    pub async fn sign_in(&self, name: &str, password: &str) -> String {
        let body = json!({"name": name, "password": password});
        let reply = self.client.post(format!("{}/api/v1/session", self.url)).header("origin", &self.url).json(&body);
        let reply = reply.send().await.unwrap();
        assert_eq!(reply.status(), 200);
        let cookie = reply.headers()["set-cookie"].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }

    /// Starts a run of the agent with this token; the run's token.
    pub async fn start_run(&self, agent: &str) -> String {
        let reply = self.post("runs", agent, &json!({"label": "test"})).send().await.unwrap();
        assert_eq!(reply.status(), 201);
        reply.json::<Value>().await.unwrap()["token"].as_str().unwrap().to_owned()
    }

    /// A read under `/api/v1/` by somebody signed in.
    pub fn look(&self, path: &str, cookie: &str) -> RequestBuilder {
        self.client.get(format!("{}/api/v1/{path}", self.url)).header("cookie", cookie)
    }

    /// A write under `/api/v1/` by somebody signed in.
    pub fn send(&self, path: &str, cookie: &str, body: &Value) -> RequestBuilder {
        let call = self.client.post(format!("{}/api/v1/{path}", self.url)).header("cookie", cookie);
        call.header("origin", &self.url).json(body)
    }

    /// Approves what the operation says now.
    pub async fn approve(&self, cookie: &str, id: &str) -> reqwest::Result<Response> {
        let view = self.look(&format!("operations/{id}"), cookie).send().await?.json::<Value>().await?;
        let vote = json!({
            "decision": "approve",
            "fingerprint": view["operation"]["fingerprint"],
            "review_digest": view["review_digest"],
        });
        self.send(&format!("operations/{id}/decisions"), cookie, &vote).send().await
    }

    /// The events somebody signed in is told, from now on or after the one with this id.
    pub async fn events(&self, cookie: &str, after: Option<i64>) -> Events {
        let mut call = self.look("events", cookie);
        if let Some(after) = after {
            call = call.header("last-event-id", after);
        }
        let reply = call.send().await.unwrap();
        assert_eq!(reply.status(), 200);
        Events::new(reply.bytes_stream().map_err(drop))
    }

    /// A write under `/api/v1/` with a bearer token.
    pub fn post(&self, path: &str, token: &str, body: &Value) -> RequestBuilder {
        self.client.post(format!("{}/api/v1/{path}", self.url)).bearer_auth(token).json(body)
    }

    /// A read under `/api/v1/` with a bearer token.
    pub fn get(&self, path: &str, token: &str) -> RequestBuilder {
        self.client.get(format!("{}/api/v1/{path}", self.url)).bearer_auth(token)
    }
}

/// Two nodes on one PostgreSQL database.
pub async fn nodes() -> [Place; 2] {
    let database = postgres::fresh_database().await;
    let key = std::env::temp_dir().join(format!("counterfoil-{}.key", fresh_key())).display().to_string();
    [(); 2].map(|()| Place::new(&[("COUNTERFOIL_DATABASE_URL", &database), ("COUNTERFOIL_AUDIT_KEY_FILE", &key)]))
}

/// Waits until a held command has made its marker.
pub async fn reached(marker: &Path) {
    while !marker.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A running server; it ends with this value.
#[must_use]
pub struct Server(Child);

impl Server {
    /// Sends a signal, such as `TERM` or `KILL`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.0.id().to_string()).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end; how it ended and how long that took.
    pub fn wait(&mut self) -> (ExitStatus, Duration) {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return (status, start.elapsed());
            }
            assert!(start.elapsed() < PATIENCE, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
