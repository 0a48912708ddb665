//! Many at once: two tabs, twenty executors, two server processes.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{App, id_of, on_both_databases, process::nodes, ticket};

on_both_databases! {
    async fn twenty_deciders_and_twenty_claimers_make_one_decision_and_one_claim(app: App) {
        let (asha, _, run) = app.world().await;
        let other = app.node(&[]).await;
        let op = run.ticket("Rotate").await;
        let votes = (0..20).map(|i| {
            let asha = if i % 2 == 0 { asha.clone() } else { asha.at(&other) };
            let id = id_of(&op).to_owned();
            async move { asha.approve(&id).await }
        });
        let claims = (0..20).map(|i| {
            let run = if i % 2 == 0 { run.clone() } else { run.at(&other) };
            let op = op.clone();
            async move { run.claim(&op).await }
        });
        let (votes, claims) = tokio::join!(join_all(votes), join_all(claims));
        assert!(votes.iter().all(|reply| matches!(reply.status.as_u16(), 200 | 409 | 412)), "{votes:?}");
        assert!(claims.iter().all(|reply| reply.status == 200 || reply.code() == "not_approved"), "{claims:?}");
        let mine = run.claim(&op).await.ok(200);
        let granted: Vec<_> = claims.iter().filter(|reply| reply.status == 200).collect();
        assert!(granted.iter().all(|reply| reply.body["claim"]["id"] == mine.body["claim"]["id"]));
        let events = app.events().await;
        let count = |event: &str| events.iter().filter(|seen| *seen == event).count();
        assert_eq!((count("approval.granted"), count("approval.spent"), count("operation.claimed")), (1, 1, 1));
    }

    async fn a_decision_wakes_every_waiter_that_is_still_there(app: App) {
        let (asha, _, run) = app.world().await;
        let other = app.node(&[]).await;
        for round in 0..40 {
            let op = run.ticket(&format!("Round {round}")).await;
            let path = format!("operations/{}?wait=30", id_of(&op));
            let waiters: Vec<_> = (0..20)
                .map(|i| {
                    let run = if i % 2 == 0 { run.clone() } else { run.at(&other) };
                    let path = path.clone();
                    tokio::spawn(async move { run.get(&path).header("if-none-match", "\"1\"").await })
                })
                .collect();
            for waiter in waiters.iter().skip(10) {
                waiter.abort();
            }
            asha.approve(id_of(&op)).await.ok(200);
            for waiter in waiters.into_iter().take(10) {
                assert_eq!(waiter.await.unwrap().ok(200).operation()["state"], "approved");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_on_one_database_decide_once_and_claim_once() {
    let [one, two] = nodes().await;
    let (_first, _second) = (one.serve().await, two.serve().await);
    let cookie = one.person("asha", "approver", "approvers").await;
    one.person("omar", "viewer", "none").await;
    let run = one.start_run(&one.cli(&["agent", "add", "deployer", "--owner", "omar"], "")).await;
    let proposal = ticket("Rotate");
    let key = crate::support::fresh_key();
    let proposals = (0..50).map(|i| {
        let place = if i % 2 == 0 { &one } else { &two };
        place.post("operations", &run, &proposal).header("idempotency-key", &key).send()
    });
    let statuses: Vec<_> =
        join_all(proposals).await.into_iter().map(|reply| reply.unwrap().status().as_u16()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 201 | 202)), "{statuses:?}");

    let op = one.get(&format!("operations/by-key/{key}"), &run).send().await.unwrap().json::<Value>().await.unwrap();
    let op = op["operation"].clone();
    let view = one.look(&format!("operations/{}", id_of(&op)), &cookie).send().await.unwrap();
    let digest = view.json::<Value>().await.unwrap()["review_digest"].clone();
    let vote = json!({"decision": "approve", "fingerprint": op["fingerprint"], "review_digest": digest});
    let votes = (0..20).map(|i| {
        let place = if i % 2 == 0 { &one } else { &two };
        place.send(&format!("operations/{}/decisions", id_of(&op)), &cookie, &vote).send()
    });
    let claims = (0..20).map(|i| {
        let place = if i % 2 == 0 { &one } else { &two };
        let body = json!({"fingerprint": op["fingerprint"]});
        place.post(&format!("operations/{}/claim", id_of(&op)), &run, &body).send()
    });
    let (votes, claims) = tokio::join!(join_all(votes), join_all(claims));
    assert!(votes.into_iter().all(|reply| reply.unwrap().status() == 200));
    assert!(claims.into_iter().all(|reply| matches!(reply.unwrap().status().as_u16(), 200 | 409)));

    let log = one.log_verifies();
    for event in ["operation.proposed", "approval.granted"] {
        assert_eq!(log.matches(&format!("\"event\":\"{event}\"")).count(), 1, "{event}");
    }
    assert!(log.matches("\"event\":\"approval.spent\"").count() <= 1);
}
