//! Kill -9 at named points, inside a command and right after its acknowledgement: nothing acknowledged is lost, nothing
//! half-done stays, and no effect happens twice.

use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    fresh_key, postgres,
    process::{Place, Server, reached},
    ticket,
};

/// One step of the way, the point inside its command, and the states around it.
const STEPS: [(&str, &str, &str); 5] = [
    ("after_key_claim", "unknown", "pending"),
    ("after_approval", "pending", "approved"),
    ("after_claim", "approved", "claimed"),
    ("after_sent", "claimed", "sent"),
    ("before_outcome", "sent", "succeeded"),
];

/// One operation on its way through a server that dies.
struct Way {
    place: Place,
    cookie: String,
    run: String,
    key: String,
}

impl Way {
    async fn begin(place: Place) -> (Self, Server) {
        let server = place.serve().await;
        let cookie = place.person("asha", "approver", "approvers").await;
        place.person("omar", "viewer", "none").await;
        let agent = place.cli(&["agent", "add", "deployer", "--owner", "omar"], "");
        let run = place.start_run(&agent).await;
        (Self { place, cookie, run, key: fresh_key() }, server)
    }

    /// The operation as it is known under its key, or its state as `unknown`.
    async fn look(&self) -> Value {
        let reply = self.place.get(&format!("operations/by-key/{}", self.key), &self.run).send().await.unwrap();
        if reply.status() == StatusCode::NOT_FOUND {
            return json!({"state": "unknown"});
        }
        reply.json::<Value>().await.unwrap()["operation"].clone()
    }

    async fn state(&self) -> String {
        self.look().await["state"].as_str().unwrap().to_owned()
    }

    /// Waits until somebody else has brought it there.
    async fn becomes(&self, state: &str) {
        while self.state().await != state {
            tokio::task::yield_now().await;
        }
    }

    /// Takes the step that leads on from where the operation is.
    async fn step(&self) -> reqwest::Result<Response> {
        let op = self.look().await;
        let path = |verb: &str| format!("operations/{}/{verb}", op["id"].as_str().unwrap());
        let claim = json!({"claim_id": op["claim"]["id"], "claim_fence": op["claim"]["claim_fence"]});
        let with = |more: Value| {
            let mut body = claim.clone();
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        match op["state"].as_str().unwrap() {
            "unknown" => {
                self.place
                    .post("operations", &self.run, &ticket("Rotate"))
                    .header("idempotency-key", &self.key)
                    .send()
                    .await
            }
            "pending" => self.approve(op["id"].as_str().unwrap()).await,
            "approved" => {
                self.place.post(&path("claim"), &self.run, &json!({"fingerprint": op["fingerprint"]})).send().await
            }
            "claimed" => {
                self.place.post(&path("sent"), &self.run, &with(json!({"fingerprint": op["fingerprint"]}))).send().await
            }
            "sent" => {
                let done = with(json!({"status": "succeeded", "provider_reference": "T1"}));
                self.place.post(&path("outcome"), &self.run, &done).send().await
            }
            state => panic!("no step leads on from {state}"),
        }
    }

    async fn approve(&self, id: &str) -> reqwest::Result<Response> {
        self.place.approve(&self.cookie, id).await
    }

    /// Goes on to the end; then the log tells of one of everything, and verifies.
    async fn finish(&self) {
        while self.state().await != "succeeded" {
            let reply = self.step().await.unwrap();
            assert!(reply.status().is_success(), "{}", reply.text().await.unwrap());
        }
        let log = self.place.log_verifies();
        for event in [
            "operation.proposed",
            "approval.granted",
            "approval.spent",
            "operation.claimed",
            "effect.sent",
            "effect.completed",
        ] {
            assert_eq!(log.matches(&format!("\"event\":\"{event}\"")).count(), 1, "{event}");
        }
    }
}

async fn place(database: Option<String>) -> Place {
    match database {
        Some(url) => Place::new(&[("COUNTERFOIL_DATABASE_URL", &url)]),
        None => Place::new(&[]),
    }
}

/// Dies inside each step's command, before it is committed.
async fn a_command_that_dies_half_way_has_done_nothing(
    database: fn() -> futures::future::BoxFuture<'static, Option<String>>,
) {
    for (point, before, after) in STEPS {
        let mut place = place(database().await).await;
        let marker = place.folder().join("reached");
        place.set("COUNTERFOIL_FAULT", &format!("{point}:{}", marker.display()));
        let (mut way, mut server) = Way::begin(place).await;
        while way.state().await != before {
            assert!(way.step().await.unwrap().status().is_success(), "on the way to {point}");
        }
        let lost = tokio::select! {
            reply = way.step() => panic!("{point} was not reached: {reply:?}"),
            () = reached(&marker) => server,
        };
        lost.signal("KILL");
        server = lost;
        server.wait();
        way.place.unset("COUNTERFOIL_FAULT");
        let _server = way.place.serve().await;
        assert_eq!(way.state().await, before, "{point}");
        assert!(way.step().await.unwrap().status().is_success(), "{point}");
        assert_eq!(way.state().await, after, "{point}");
        way.finish().await;
    }
}

/// Dies right after each acknowledgement.
async fn what_was_acknowledged_survives_a_kill(database: Option<String>) {
    let (way, mut server) = Way::begin(place(database).await).await;
    for (point, before, after) in STEPS {
        assert_eq!(way.state().await, before, "{point}");
        assert!(way.step().await.unwrap().status().is_success(), "{point}");
        server.signal("KILL");
        server.wait();
        server = way.place.serve().await;
        assert_eq!(way.state().await, after, "{point}");
    }
    way.finish().await;
}

/// What waits, until when, and who is signed in, are as they were; a waiting agent takes up where it was cut off.
async fn a_queue_survives_a_kill(database: Option<String>) {
    let (way, mut server) = Way::begin(place(database).await).await;
    let Way { place, cookie, run, .. } = &way;
    for title in ["One", "Two", "Three"] {
        let reply = place.post("operations", run, &ticket(title)).header("idempotency-key", fresh_key()).send().await;
        assert_eq!(reply.unwrap().status(), 201);
    }
    let list = async || {
        let reply = place.look("operations?state=pending", cookie).send().await.unwrap();
        let mut list = reply.json::<Value>().await.unwrap()["operations"].clone();
        for op in list.as_array_mut().unwrap() {
            op.as_object_mut().unwrap().remove("server_time");
        }
        list
    };
    let before = list().await;
    assert_eq!(before.as_array().unwrap().len(), 3);
    let id = before[1]["id"].as_str().unwrap().to_owned();
    let poll = || place.get(&format!("operations/{id}?wait=30"), run).header("if-none-match", "\"1\"").send();
    let cut_off = tokio::spawn(poll());
    server.signal("KILL");
    server.wait();
    cut_off.await.unwrap().unwrap_err();
    let _server = place.serve().await;
    assert_eq!(list().await, before);
    let waiting = tokio::spawn(poll());
    assert_eq!(way.approve(&id).await.unwrap().status(), 200, "in the same sign-in");
    let woken = waiting.await.unwrap().unwrap().json::<Value>().await.unwrap();
    assert_eq!(woken["operation"]["state"], "approved");
    place.log_verifies();
}

/// Steps of the change set that is killed on its way.
const SET: usize = 3;

/// Dies after each command of each step, and while the desk itself proposes the next: one operation and one effect a
/// step, whatever happens.
async fn a_change_set_survives_a_kill_between_any_two_steps(database: Option<String>) {
    let mut place = place(database).await;
    place.set("COUNTERFOIL_SWEEP_S", "0");
    let marker = place.folder().join("reached");
    let (mut way, mut server) = Way::begin(place).await;
    let steps: Vec<_> = (0..SET).map(|n| ticket(&format!("Rotate {n}"))).collect();
    let opening = json!({"title": "Rotate", "steps": steps});
    let opened = way.place.post("change-sets", &way.run, &opening).header("idempotency-key", &way.key).send().await;
    let opened = opened.unwrap().json::<Value>().await.unwrap();
    let set = opened["change_set"]["id"].as_str().unwrap().to_owned();
    let killed = |mut server: Server| {
        server.signal("KILL");
        server.wait();
    };
    for step in 1..=SET {
        way.key = format!("{set}:{step}:write:1");
        if step > 1 {
            assert_eq!(way.state().await, "unknown", "nobody has carried on yet");
            killed(server);
            way.place.set("COUNTERFOIL_SWEEP_S", "1");
            way.place.set("COUNTERFOIL_FAULT", &format!("after_key_claim:{}", marker.display()));
            server = way.place.serve().await;
            reached(&marker).await;
            killed(server);
            way.place.unset("COUNTERFOIL_FAULT");
            std::fs::remove_file(&marker).unwrap();
            server = way.place.serve().await;
            way.becomes("pending").await;
            way.place.set("COUNTERFOIL_SWEEP_S", "0");
        }
        for before in ["pending", "approved", "claimed", "sent"] {
            killed(server);
            server = way.place.serve().await;
            assert_eq!(way.state().await, before, "step {step}");
            assert!(way.step().await.unwrap().status().is_success(), "step {step}, {before}");
        }
        assert_eq!(way.state().await, "succeeded");
    }
    killed(server);
    way.place.set("COUNTERFOIL_SWEEP_S", "1");
    let _server = way.place.serve().await;
    let state = async || {
        let reply = way.place.get(&format!("change-sets/{set}"), &way.run).send().await.unwrap();
        reply.json::<Value>().await.unwrap()["change_set"]["state"].clone()
    };
    while state().await != "done" {
        tokio::task::yield_now().await;
    }
    let log = way.place.log_verifies();
    for (event, times) in
        [("operation.proposed", SET), ("effect.sent", SET), ("effect.completed", SET), ("change_set.done", 1)]
    {
        assert_eq!(log.matches(&format!("\"event\":\"{event}\"")).count(), times, "{event}");
    }
}

#[tokio::test]
async fn a_change_set_survives_a_kill_between_any_two_steps_on_sqlite() {
    a_change_set_survives_a_kill_between_any_two_steps(None).await;
}

#[tokio::test]
async fn a_change_set_survives_a_kill_between_any_two_steps_on_postgres() {
    a_change_set_survives_a_kill_between_any_two_steps(Some(postgres::fresh_database().await)).await;
}

#[tokio::test]
async fn a_queue_survives_a_kill_on_sqlite() {
    a_queue_survives_a_kill(None).await;
}

#[tokio::test]
async fn a_queue_survives_a_kill_on_postgres() {
    a_queue_survives_a_kill(Some(postgres::fresh_database().await)).await;
}

#[tokio::test]
async fn a_command_that_dies_half_way_has_done_nothing_on_sqlite() {
    a_command_that_dies_half_way_has_done_nothing(|| Box::pin(async { None })).await;
}

#[tokio::test]
async fn a_command_that_dies_half_way_has_done_nothing_on_postgres() {
    a_command_that_dies_half_way_has_done_nothing(|| Box::pin(async { Some(postgres::fresh_database().await) })).await;
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill_on_sqlite() {
    what_was_acknowledged_survives_a_kill(None).await;
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill_on_postgres() {
    what_was_acknowledged_survives_a_kill(Some(postgres::fresh_database().await)).await;
}
