//! Kill -9 at named points, inside a command and right after its acknowledgement: nothing acknowledged is lost, nothing
//! half-done stays, and no effect happens twice.

use std::{path::PathBuf, time::Duration};

use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    fresh_key, postgres,
    process::{Place, Server},
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
                let params = json!({"project": "ops", "title": "Rotate"});
                let body = json!({"kind": "ticket.create", "target": "project/ops", "params": params});
                self.place.post("operations", &self.run, &body).header("idempotency-key", &self.key).send().await
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
        let url = format!("{}/api/v1/operations/{id}", self.place.url);
        let view = self.place.client.get(&url).header("cookie", &self.cookie).send().await?.json::<Value>().await?;
        let vote = json!({
            "decision": "approve",
            "fingerprint": view["operation"]["fingerprint"],
            "review_digest": view["review_digest"],
        });
        let call = self.place.client.post(format!("{url}/decisions")).header("cookie", &self.cookie).json(&vote);
        call.header("origin", &self.place.url).send().await
    }

    /// Goes on to the end; then the log tells of one of everything, and verifies.
    async fn finish(&self) {
        while self.state().await != "succeeded" {
            let reply = self.step().await.unwrap();
            assert!(reply.status().is_success(), "{}", reply.text().await.unwrap());
        }
        let export = self.place.folder().join("export.jsonl");
        let pin = self.place.folder().join("pin");
        let path = |path: &PathBuf| path.display().to_string();
        self.place.cli(&["audit", "checkpoint", "--out", &path(&pin)], "");
        self.place.cli(&["audit", "export", "--out", &path(&export)], "");
        let vkey = self.place.cli(&["audit", "vkey"], "");
        self.place.cli(&["audit", "verify", &path(&export), "--vkey", &vkey, "--pin", &path(&pin)], "");
        let log = std::fs::read_to_string(export).unwrap();
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

async fn reached(marker: &std::path::Path) {
    while !marker.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
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
