//! Callers who hang up, and more of them than there is room for.

use std::{collections::HashMap, time::Duration};

use futures::{StreamExt, future::join_all, stream};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::support::{App, fresh_key, id_of, on_both_databases, postgres, process::Place, ticket};

/// A desk in a process of its own, with an approver and a run.
struct Busy {
    place: Place,
    cookie: String,
    run: String,
}

impl Busy {
    async fn begin(place: &Place) -> (String, String) {
        let cookie = place.person("asha", "approver", "approvers").await;
        place.person("omar", "viewer", "none").await;
        (cookie, place.start_run(&place.cli(&["agent", "add", "deployer", "--owner", "omar"], "")).await)
    }

    fn propose(&self, title: &str) -> RequestBuilder {
        self.place.post("operations", &self.run, &ticket(title)).header("idempotency-key", fresh_key())
    }

    async fn operation(&self, id: &str) -> Value {
        let reply = self.place.get(&format!("operations/{id}"), &self.run).send().await.unwrap();
        assert_eq!(reply.status(), 200);
        reply.json::<Value>().await.unwrap()["operation"].clone()
    }

    /// The write that leads on from where the operation is.
    async fn step(&self, op: &Value) -> Option<RequestBuilder> {
        let id = id_of(op);
        let post =
            |verb: &str, body: Value| Some(self.place.post(&format!("operations/{id}/{verb}"), &self.run, &body));
        let claim = |more: Value| {
            let mut body = json!({"claim_id": op["claim"]["id"], "claim_fence": op["claim"]["claim_fence"]});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        match op["state"].as_str().unwrap() {
            "pending" => {
                let view = self.place.look(&format!("operations/{id}"), &self.cookie).send().await.unwrap();
                let digest = view.json::<Value>().await.unwrap()["review_digest"].clone();
                let vote = json!({"decision": "approve", "fingerprint": op["fingerprint"], "review_digest": digest});
                Some(self.place.send(&format!("operations/{id}/decisions"), &self.cookie, &vote))
            }
            "approved" => post("claim", json!({"fingerprint": op["fingerprint"]})),
            "claimed" => post("sent", claim(json!({"fingerprint": op["fingerprint"]}))),
            "sent" => post("outcome", claim(json!({"status": "succeeded", "provider_reference": "T1"}))),
            _ => None,
        }
    }

    /// Asserts that what the operations say, what watchers were told and what is on record are one story.
    async fn one_story(&self, ids: &[String]) {
        let mut told: HashMap<String, Vec<Value>> = HashMap::new();
        let mut stream = self.place.events(&self.cookie, Some(0)).await;
        let mut versions = 0;
        for id in ids {
            versions += self.operation(id).await["version"].as_i64().unwrap();
        }
        while versions > 0 {
            let message = stream.next().await.unwrap();
            if message.event == "operation" {
                told.entry(id_of(&message.data).to_owned()).or_default().push(message.data);
                versions -= 1;
            }
        }
        assert!(stream.is_silent().await);
        for id in ids {
            let (op, told) = (self.operation(id).await, &told[id]);
            let versions: Vec<_> = told.iter().map(|data| data["version"].as_i64().unwrap()).collect();
            assert_eq!(versions, (1..=op["version"].as_i64().unwrap()).collect::<Vec<_>>());
            assert_eq!(told.last().unwrap()["state"], op["state"]);
        }
        let log = self.place.log_verifies();
        assert_eq!(log.matches("\"event\":\"operation.proposed\"").count(), ids.len());
    }
}

/// Sends it and closes the connection after that long, whatever has happened by then.
async fn hang_up(request: RequestBuilder, after: Duration) {
    drop(tokio::time::timeout(after, request.send()).await);
}

/// With so few connections that one which is lost or left in a transaction would be missed at once.
async fn whoever_hangs_up_harms_nobody(database: Option<String>) {
    let mut place = Place::new(&[("COUNTERFOIL_DATABASE_CONNECTIONS", "2")]);
    if let Some(url) = database {
        place.set("COUNTERFOIL_DATABASE_URL", &url);
    }
    let _server = place.serve().await;
    let (cookie, run) = Busy::begin(&place).await;
    let busy = &Busy { place, cookie, run };
    let rounds = stream::iter(0..200).map(|round| async move {
        let patience = Duration::from_millis(round % 51);
        let reply = busy.propose(&format!("Round {round}")).send().await.unwrap();
        assert_eq!(reply.status(), 201);
        let id = id_of(&reply.json::<Value>().await.unwrap()["operation"]).to_owned();
        // Each step at most once without an answer; what it did is then read, not guessed.
        for _ in 0..4 {
            let op = busy.operation(&id).await;
            if let Some(step) = busy.step(&op).await {
                hang_up(step, patience).await;
            }
        }
        id
    });
    let ids: Vec<_> = rounds.buffer_unordered(8).collect().await;
    for (n, id) in ids.iter().take(100).enumerate() {
        let op = busy.operation(id).await;
        match busy.step(&op).await {
            Some(step) => assert_eq!(step.send().await.unwrap().status(), 200),
            None => assert_eq!(busy.propose(&format!("Ordinary {n}")).send().await.unwrap().status(), 201),
        }
    }
    let list = busy.place.look("operations?limit=200", &busy.cookie).send().await.unwrap();
    assert_eq!(list.status(), 200);
    let log = busy.place.log_verifies();
    let all = ids_in(&log);
    busy.one_story(&all).await;
}

/// The operations of a log.
fn ids_in(log: &str) -> Vec<String> {
    let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let proposed = records.filter(|record| record["event"] == "operation.proposed");
    proposed.map(|record| record["operation"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_hangs_up_harms_nobody_on_sqlite() {
    whoever_hangs_up_harms_nobody(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_hangs_up_harms_nobody_on_postgres() {
    whoever_hangs_up_harms_nobody(Some(postgres::fresh_database().await)).await;
}

/// Repeats a call that was told to come back; any other failure fails the test.
async fn persist(call: impl Fn() -> RequestBuilder) -> Response {
    loop {
        let reply = call().send().await.unwrap();
        if reply.status() != 503 {
            assert!(reply.status().as_u16() < 500, "{}", reply.text().await.unwrap());
            return reply;
        }
        assert_eq!(reply.json::<Value>().await.unwrap()["code"], "unavailable");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tabs_twenty_agents_and_a_command_line_share_one_sqlite_file() {
    const EACH: usize = 8;
    let place = Place::new(&[]);
    let _server = place.serve().await;
    let (cookie, run) = Busy::begin(&place).await;
    let tabs = [cookie.clone(), place.person("bela", "approver", "approvers").await];
    let busy = &Busy { place, cookie, run };
    let done = &std::sync::atomic::AtomicBool::new(false);

    let agents = join_all((0..20).map(|agent| async move {
        let mut ids = Vec::new();
        for n in 0..EACH {
            let key = fresh_key();
            let body = ticket(&format!("{agent} {n}"));
            let call = || busy.place.post("operations", &busy.run, &body).header("idempotency-key", &key);
            let reply = persist(call).await;
            assert_eq!(reply.status(), 201);
            let mut op = reply.json::<Value>().await.unwrap()["operation"].clone();
            while op["state"] == "pending" {
                let path = format!("operations/{}?wait=30", id_of(&op));
                let etag = format!("\"{}\"", op["version"]);
                let reply = persist(|| busy.place.get(&path, &busy.run).header("if-none-match", &etag)).await;
                if reply.status() == 200 {
                    op = reply.json::<Value>().await.unwrap()["operation"].clone();
                }
            }
            while let Some(step) = busy.step(&op).await {
                let step = &step;
                assert_eq!(persist(|| step.try_clone().unwrap()).await.status(), 200);
                op = busy.operation(id_of(&op)).await;
            }
            assert_eq!(op["state"], "succeeded");
            ids.push(id_of(&op).to_owned());
        }
        ids
    }));
    let tabs = join_all(tabs.iter().map(|cookie| async move {
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            let page = busy.place.client.get(&busy.place.url).header("cookie", cookie).send().await.unwrap();
            assert_eq!(page.status(), 200);
            let list = persist(|| busy.place.look("operations?state=pending", cookie)).await;
            for op in list.json::<Value>().await.unwrap()["operations"].as_array().unwrap() {
                let path = format!("operations/{}", id_of(op));
                let view = persist(|| busy.place.look(&path, cookie)).await.json::<Value>().await.unwrap();
                let vote = json!({
                    "decision": "approve",
                    "fingerprint": view["operation"]["fingerprint"],
                    "review_digest": view["review_digest"],
                });
                let reply = persist(|| busy.place.send(&format!("{path}/decisions"), cookie, &vote)).await;
                assert!(matches!(reply.status().as_u16(), 200 | 409), "{}", reply.text().await.unwrap());
            }
        }
    }));
    // Another process that writes to the same file.
    let beside = async {
        for n in 0..10 {
            let name = format!("beside-{n}");
            tokio::task::block_in_place(|| busy.place.cli(&["agent", "add", &name, "--owner", "omar"], ""));
        }
    };
    let work = async {
        let (ids, ()) = tokio::join!(agents, beside);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        ids.concat()
    };
    let (ids, _) = tokio::join!(work, tabs);
    assert_eq!(ids.len(), 20 * EACH);
    busy.one_story(&ids).await;
    let log = busy.place.log_verifies();
    for event in ["approval.granted", "approval.spent", "effect.sent", "effect.completed"] {
        assert_eq!(log.matches(&format!("\"event\":\"{event}\"")).count(), ids.len(), "{event}");
    }
}

on_both_databases! {
    async fn whoever_finds_no_room_is_told_to_come_back_and_nothing_of_theirs_was_done(app: App) {
        const ROOM: usize = 1024;
        const CALLERS: usize = ROOM + 76;
        let app = app.node(&[("COUNTERFOIL_PROPOSALS_PER_MINUTE", "100000"), ("COUNTERFOIL_OPEN_OPERATIONS_PER_AGENT", "100000")]).await;
        let (_, _, run) = app.world().await;
        let (release, held) = oneshot::channel::<()>();
        let (holds, holding) = oneshot::channel::<()>();
        let store = app.desk.store.clone();
        let slow = tokio::spawn(async move {
            store.commit(|_| Box::pin(async move {
                holds.send(()).unwrap();
                held.await.unwrap();
                Ok(())
            })).await
        });
        holding.await.unwrap();
        let mut calls: stream::FuturesUnordered<_> = (0..CALLERS).map(|n| {
            let (run, key) = (run.clone(), fresh_key());
            tokio::spawn(async move {
                let reply = run.propose_as(&key, ticket(&n.to_string())).await;
                (key, n, reply)
            })
        }).collect();
        let mut sent_away = Vec::new();
        for _ in ROOM..CALLERS {
            let (key, n, reply) = calls.next().await.unwrap().unwrap();
            let reply = reply.refused(503, "unavailable");
            assert_eq!((reply.header("retry-after"), &reply.body["retryable"]), ("1", &json!(true)));
            sent_away.push((key, n));
        }
        release.send(()).unwrap();
        slow.await.unwrap().unwrap();
        while let Some(call) = calls.next().await {
            call.unwrap().2.ok(201);
        }
        for (key, n) in sent_away {
            assert_eq!(run.propose_as(&key, ticket(&n.to_string())).await.ok(201).body["disposition"], "created");
        }
        assert_eq!(app.events().await.iter().filter(|event| *event == "operation.proposed").count(), CALLERS);
    }
}
