//! Collisions of real processes. An agent is stopped between its read and its write, another one writes, the first one
//! goes on. Four results count: the refused write changes nothing, its answer says stale, nobody sends the old body
//! again, and the log joins both attempts to their runs and approvals.

use std::{
    path::PathBuf,
    process::{Child, Command},
    time::Duration,
};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::support::{
    fresh_key,
    process::{Place, nodes, reached},
};

const POLICY: &str = "notification-policy/prod-alerts";

/// Started by the tests below as a process of its own: reads the policy, waits for the word, and replaces the document
/// it has read.
#[tokio::test]
#[ignore = "a process that the other tests start"]
async fn agent_process() {
    let set = |name: &str| std::env::var(format!("COLLIDE_{name}")).unwrap();
    let folder = PathBuf::from(set("FOLDER"));
    let client = counterfoil::server::gateway::http::builder().build().unwrap();
    let url = format!("{}/api/v1/resources/{POLICY}", set("URL"));
    let read = client.get(&url).bearer_auth(set("TOKEN")).send().await.unwrap();
    let tag = read.headers()["etag"].to_str().unwrap().to_owned();
    let mut value = read.json::<Value>().await.unwrap()["value"].clone();
    std::fs::write(folder.join("read"), &tag).unwrap();
    reached(&folder.join("go")).await;
    value["repeat_minutes"] = json!(15);
    let write =
        client.put(&url).bearer_auth(set("TOKEN")).header("if-match", tag).header("idempotency-key", set("KEY"));
    let reply = write.json(&value).send().await.unwrap();
    let status = reply.status().as_u16();
    let answer = json!({"status": status, "body": reply.json::<Value>().await.unwrap()});
    std::fs::write(folder.join("answer"), answer.to_string()).unwrap();
}

/// An agent in a process of its own; it ends with this value.
struct Agent {
    process: Child,
    folder: PathBuf,
}

impl Agent {
    fn start(place: &Place, token: &str, key: &str) -> Self {
        let folder = place.folder().join("agent");
        std::fs::create_dir(&folder).unwrap();
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["collide::agent_process", "--exact", "--ignored", "--quiet"])
            .env("COLLIDE_URL", &place.url)
            .env("COLLIDE_TOKEN", token)
            .env("COLLIDE_KEY", key)
            .env("COLLIDE_FOLDER", &folder)
            .spawn()
            .unwrap();
        Self { process, folder }
    }

    fn marker(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.process.id().to_string()).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end; what it was answered.
    fn answer(mut self) -> Value {
        assert!(self.process.wait().unwrap().success());
        serde_json::from_slice(&std::fs::read(self.marker("answer")).unwrap()).unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A desk with a person who approves, one who owns, and a policy document at version 1.
struct Stage<'a> {
    place: &'a Place,
    approver: String,
}

impl<'a> Stage<'a> {
    async fn set(place: &'a Place) -> Self {
        let approver = place.person("asha", "approver", "approvers").await;
        place.cli(&["user", "add", "omar", "--role", "viewer", "--password-stdin"], "correct horse battery\n");
        let stage = Self { place, approver };
        let run = stage.run("setup", &["create"]).await;
        let value = json!({"severity": "high", "channel": "#payments-alerts", "repeat_minutes": 30});
        let create = json!({"kind": "resource.create", "target": POLICY, "params": {"value": value}});
        let op = stage.propose(&run.token, &create).await;
        stage.approve(&op).await;
        assert_eq!(stage.document(&run.token).await["version"], 1);
        stage
    }

    /// A run, with a write set, of an agent of its own.
    async fn run(&self, name: &str, verbs: &[&str]) -> Run {
        let agent = self.place.cli(&["agent", "add", name, "--owner", "omar"], "");
        let set = json!([{"resource": POLICY, "verbs": verbs}]);
        let started = self.place.post("runs", &agent, &json!({"label": name, "write_set": set})).send().await.unwrap();
        let started: Value = started.json().await.unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Run { id: text(&started["run"]["id"]), token: text(&started["token"]) }
    }

    async fn propose(&self, token: &str, body: &Value) -> Value {
        let call = self.place.post("operations", token, body).header("idempotency-key", fresh_key());
        let reply = call.send().await.unwrap();
        assert_eq!(reply.status(), 201);
        reply.json::<Value>().await.unwrap()["operation"].clone()
    }

    async fn approve(&self, operation: &Value) {
        let reply = self.place.approve(&self.approver, operation["id"].as_str().unwrap()).await.unwrap();
        assert_eq!(reply.status(), 200, "{}", reply.text().await.unwrap());
    }

    async fn document(&self, token: &str) -> Value {
        let reply = self.place.get(&format!("resources/{POLICY}"), token).send().await.unwrap();
        reply.json().await.unwrap()
    }
}

struct Run {
    id: String,
    token: String,
}

/// The whole story: `agents` is the node the stopped agent speaks with, `desk` the other one's and the people's.
async fn a_stopped_agent_meets_a_newer_version(desk: &Place, agents: &Place) {
    let stage = Stage::set(desk).await;
    let (first, second) = (stage.run("tuner", &["replace"]).await, stage.run("responder", &["update"]).await);
    let key = fresh_key();
    let agent = Agent::start(agents, &first.token, &key);
    reached(&agent.marker("read")).await;
    agent.signal("STOP");

    let patch = json!({
        "kind": "resource.update", "target": POLICY, "params": {"patch": {"severity": "critical"}}, "expected_version": 1,
    });
    let won = stage.propose(&second.token, &patch).await;
    stage.approve(&won).await;
    let after = stage.document(&second.token).await;
    assert_eq!((&after["version"], &after["value"]["severity"]), (&json!(2), &json!("critical")));

    std::fs::write(agent.marker("go"), "").unwrap();
    agent.signal("CONT");
    let answer = agent.answer();

    // Unchanged by the first write.
    assert_eq!(stage.document(&second.token).await, after);

    // The answer says stale, what changed and by whom.
    let problem = &answer["body"];
    assert_eq!((&answer["status"], &problem["code"]), (&json!(412), &json!("stale_version")), "{answer}");
    assert_eq!((&problem["expected_version"], &problem["current_version"]), (&json!(1), &json!(2)));
    let field = &problem["changed_fields"][0];
    assert_eq!(
        (&field["pointer"], &field["from"], &field["to"]),
        (&json!("/severity"), &json!("high"), &json!("critical"))
    );
    assert_eq!((&field["by"]["run"], &field["by"]["operation"]), (&json!(second.id), &won["id"]));
    assert_eq!(problem["retryable"], false);

    // Nobody sends the old body again: one proposal, which ended.
    let log = desk.log_verifies();
    let records: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |event: &str, run: &str| -> Vec<&Value> {
        records.iter().filter(|record| record["event"] == event && record["run"] == run).collect()
    };
    let proposed = of("operation.proposed", &first.id);
    assert_eq!(proposed.len(), 1);
    assert!(
        records
            .iter()
            .all(|record| record["event"] != "effect.sent" || record["operation"] != proposed[0]["operation"])
    );
    let changed = records.iter().filter(|record| record["event"] == "resource.changed");
    assert_eq!(changed.count(), 1);

    // The log joins both attempts to their runs, and the one that was made to its approval.
    let refused = records.iter().find(|r| r["event"] == "operation.conflicted").unwrap();
    assert_eq!((&refused["operation"], &refused["resource"]), (&problem["operation"]["id"], &json!(POLICY)));
    assert_eq!((&refused["operation"], &proposed[0]["run"]), (&proposed[0]["operation"], &json!(first.id)));
    let granted = records.iter().find(|r| r["event"] == "approval.granted" && r["operation"] == won["id"]).unwrap();
    assert_eq!(field["by"]["approval"], granted["approval"]);
    assert_eq!(granted["actor"]["kind"], "human");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_agent_meets_a_newer_version_on_sqlite() {
    let place = Place::new(&[]);
    let _server = place.serve().await;
    a_stopped_agent_meets_a_newer_version(&place, &place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_agent_meets_a_newer_version_on_two_nodes() {
    let [one, two] = nodes().await;
    let _servers = [one.serve().await, two.serve().await];
    a_stopped_agent_meets_a_newer_version(&one, &two).await;
}

/// A write whose caller hangs up before the reply, sent again under its key, is answered with its own success: never
/// with a stale version that it made itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_of_a_write_whose_reply_was_lost_is_answered_with_its_success() {
    let place = Place::new(&[]);
    let _server = place.serve().await;
    let stage = Stage::set(&place).await;
    let run = stage.run("tuner", &["replace"]).await;
    let key = fresh_key();
    let body = json!({"severity": "low"}).to_string();
    let host = place.url.trim_start_matches("http://");
    let request = format!(
        "PUT /api/v1/resources/{POLICY} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nIdempotency-Key: {key}\r\n\
         If-Match: \"1\"\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        run.token,
        body.len()
    );
    let mut stream = TcpStream::connect(host).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let op = loop {
        let found = place.get(&format!("operations/by-key/{key}"), &run.token).send().await.unwrap();
        if found.status() == 200 {
            break found.json::<Value>().await.unwrap()["operation"].clone();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    drop(stream);
    stage.approve(&op).await;
    let version = stage.document(&run.token).await["version"].clone();
    assert_eq!(version, 2);

    let url = format!("{}/api/v1/resources/{POLICY}", place.url);
    let again = place.client.request(Method::PUT, &url).bearer_auth(&run.token).header("idempotency-key", &key);
    let again = again.header("if-match", "\"1\"").header("content-type", "application/json").body(body);
    let reply = again.send().await.unwrap();
    assert_eq!(reply.status(), 200);
    assert_eq!(reply.headers()["idempotency-replayed"], "true");
    assert_eq!(reply.headers()["etag"], "\"2\"");
    assert_eq!(stage.document(&run.token).await["version"], version);
    place.log_verifies();
}
