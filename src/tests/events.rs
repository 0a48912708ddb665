//! The stream of events: in the order of the log, each once, and resumable.

use std::{collections::BTreeSet, time::Duration};

use axum::http::Method;
use counterfoil::{
    model::audit::Event,
    server::{
        service::By,
        store::{
            self,
            committer::{Notice, Topic},
        },
        worker,
    },
};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{
    App,
    events::Message,
    fresh_key, id_of, on_both_databases,
    process::{self, Place},
    ticket,
};

/// Asserts that ids rise, and each names its place in the log.
#[track_caller]
fn in_order(messages: &[Message]) {
    assert!(messages.windows(2).all(|pair| pair[0].id < pair[1].id), "{messages:?}");
    assert!(messages.iter().all(|message| message.data["seq"] == json!(message.id)), "{messages:?}");
}

on_both_databases! {
    async fn every_change_arrives_once_in_the_order_of_the_log_on_every_node(app: App) {
        let (asha, _, run) = app.world().await;
        let other = app.node(&[]).await;
        let mut streams = [asha.get("events").events().await, asha.at(&other).get("events").events().await];
        let proposed = join_all((0..30).map(|i| {
            let run = if i % 2 == 0 { run.clone() } else { run.at(&other) };
            async move { run.ticket(&format!("Ticket {i}")).await }
        }));
        let proposed: BTreeSet<_> = proposed.await.iter().map(|op| id_of(op).to_owned()).collect();
        for id in &proposed {
            asha.approve(id).await.ok(200);
        }
        let mut seen = Vec::new();
        for stream in &mut streams {
            seen = stream.take(60).await;
            in_order(&seen);
            let of = |state: &str| -> BTreeSet<String> {
                let messages = seen.iter().filter(|message| message.data["state"] == state);
                messages.map(|message| id_of(&message.data).to_owned()).collect()
            };
            assert_eq!((of("pending"), of("approved")), (proposed.clone(), proposed.clone()));
            assert!(stream.is_silent().await, "each once");
        }
        for (app, resumed) in [(&app, 0), (&other, 17), (&app, 58)] {
            let last = seen[resumed].id.unwrap().to_string();
            let mut stream = asha.at(app).get("events").header("last-event-id", &last).events().await;
            assert_eq!(stream.take(59 - resumed).await, seen[resumed + 1..]);
            assert!(stream.is_silent().await);
        }
    }

    async fn a_command_that_was_undone_leaves_no_hole_and_holds_up_no_reader(app: App) {
        let (asha, _, run) = app.world().await;
        let mut stream = asha.get("events").events().await;
        run.ticket("Before").await;
        let undone = app.desk.store.commit(|tx| {
            Box::pin(async move {
                let seq = tx.audit(&By::system("test").entry(Event::AdminSettingsChanged)).await?;
                tx.publish(seq, Notice { topic: Topic::Run, subject: "run_x", agent: None, state: "x", version: 1 }).await?;
                Err::<(), _>(store::Error::corrupt("undone on purpose".into()))
            })
        });
        undone.await.unwrap_err();
        run.ticket("After").await;
        let seen = stream.take(2).await;
        in_order(&seen);
        let (before, after) = (seen[0].id.unwrap(), seen[1].id.unwrap());
        assert_eq!(after, before + 1, "the log goes on where it was");
    }

    async fn a_program_hears_of_its_own_operations_alone(app: App) {
        let (_, _, run) = app.world().await;
        let agent = app.agent("clerk", "omar").await;
        let own = agent.run(json!({})).await;
        let executor = app.executor("tickets", &["ticket.*"]).await;
        let mut streams = [own.get("events").events().await, agent.get("events").events().await];
        let mut none = executor.get("events").events().await;
        run.ticket("Another's").await;
        let mine = own.ticket("Mine").await;
        for stream in &mut streams {
            let message = stream.next().await.unwrap();
            assert_eq!((message.event.as_str(), &message.data["id"]), ("operation", &mine["id"]));
            assert!(stream.is_silent().await);
        }
        assert!(none.is_silent().await);
        app.get("events").await.refused(401, "unauthenticated");
    }

    async fn a_reader_who_cannot_go_on_starts_over(app: App) {
        let (mut asha, _, run) = app.world().await;
        run.ticket("Long ago").await;
        app.advance_s(25 * 3600);
        worker::tidy(&app.desk).await.unwrap();
        asha.sign_in().await;
        let run = app.agent("clerk", "omar").await.run(json!({})).await;
        for unknown in ["0", "999999999"] {
            let mut stream = asha.get("events").header("last-event-id", unknown).events().await;
            let reset = stream.next().await.unwrap();
            assert_eq!((reset.event.as_str(), reset.id), ("reset", None));
            let op = run.ticket(&format!("After {unknown}")).await;
            assert_eq!(stream.next().await.unwrap().data["id"], op["id"], "and follows from there");
        }
        for bad in ["x", "-1", "1.5"] {
            asha.get("events").header("last-event-id", bad).await.refused(400, "bad_request");
        }
    }

    async fn a_stream_ends_with_what_let_its_reader_in(app: App) {
        let (asha, _, run) = app.world().await;
        let ada = app.person("ada", "admin", "").await;
        let gone = app.person("gone", "viewer", "").await;
        let agent = app.agent("clerk", "omar").await;
        let of_agent = agent.run(json!({})).await;
        let mut streams = Vec::new();
        for call in [asha.get("events"), gone.get("events"), of_agent.get("events")] {
            streams.push(call.events().await);
        }
        let mut open = run.get("events").events().await;
        asha.call(Method::DELETE, "session").await.ok(204);
        ada.call(Method::PATCH, &format!("people/{}", gone.id)).json(json!({"disabled": true})).await.ok(200);
        ada.call(Method::PATCH, &format!("agents/{}", agent.id)).json(json!({"revoked": true})).await.ok(200);
        let ends = streams.iter_mut().map(|stream| async move { while stream.next().await.is_some() {} });
        tokio::time::timeout(Duration::from_secs(30), join_all(ends)).await.expect("closed within 30 s");
        run.ticket("Still").await;
        assert!(open.next().await.is_some(), "nobody else's");
        app.stop.cancel();
        assert!(open.next().await.is_none(), "all streams end with the server");
    }
}

/// A proposal under way.
fn proposal(place: &Place, run: &str, key: &str) -> tokio::task::JoinHandle<reqwest::Result<reqwest::Response>> {
    tokio::spawn(place.post("operations", run, &ticket(key)).header("idempotency-key", key).send())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_commit_is_not_passed_over_and_one_that_never_comes_holds_up_nobody() {
    let [mut one, two] = process::nodes().await;
    let marker = one.folder().join("held");
    one.set("COUNTERFOIL_FAULT", &format!("after_key_claim:{}", marker.display()));
    let (mut first, _second) = (one.serve().await, two.serve().await);
    let cookie = two.person("asha", "approver", "approvers").await;
    two.person("omar", "viewer", "none").await;
    let run = two.start_run(&two.cli(&["agent", "add", "deployer", "--owner", "omar"], "")).await;
    let mut stream = two.events(&cookie, None).await;
    let known = fresh_key();
    assert_eq!(proposal(&two, &run, &known).await.unwrap().unwrap().status(), 201);
    let start = stream.next().await.unwrap();

    // One node holds its writer just before the commit; the other has something to commit as well.
    let (late, next) = (fresh_key(), fresh_key());
    let held = proposal(&one, &run, &late);
    process::reached(&marker).await;
    let waiting = proposal(&two, &run, &next);
    assert!(stream.is_silent().await, "what is not committed is not told");
    let read = two.get(&format!("operations/by-key/{known}"), &run).send().await.unwrap();
    assert_eq!(read.status(), 200, "readers wait for nobody");
    assert!(two.events(&cookie, start.id).await.is_silent().await);
    std::fs::remove_file(&marker).unwrap();
    let proposed = [held.await.unwrap().unwrap(), waiting.await.unwrap().unwrap()];
    let mut ids = BTreeSet::new();
    for reply in proposed {
        assert_eq!(reply.status(), 201);
        ids.insert(id_of(&reply.json::<Value>().await.unwrap()["operation"]).to_owned());
    }
    let seen = stream.take(2).await;
    in_order(&seen);
    assert_eq!(seen.iter().map(|message| id_of(&message.data).to_owned()).collect::<BTreeSet<_>>(), ids);
    assert!(stream.is_silent().await, "each once");
    for place in [&one, &two] {
        assert_eq!(place.events(&cookie, start.id).await.take(2).await, seen);
        assert_eq!(place.events(&cookie, seen[0].id).await.next().await.as_ref(), Some(&seen[1]));
    }

    // The writer dies in the middle: its command is undone, and the other goes on at the same place of the log.
    first.signal("KILL");
    first.wait();
    let mut first = one.serve().await;
    let dying = proposal(&one, &run, &fresh_key());
    process::reached(&marker).await;
    let waiting = proposal(&two, &run, &fresh_key());
    assert!(stream.is_silent().await);
    first.signal("KILL");
    first.wait();
    dying.await.unwrap().unwrap_err();
    let reply = waiting.await.unwrap().unwrap();
    assert_eq!(reply.status(), 201);
    let id = reply.json::<Value>().await.unwrap()["operation"]["id"].clone();
    let message = stream.next().await.unwrap();
    assert_eq!((&message.data["id"], message.id.unwrap()), (&id, seen[1].id.unwrap() + 1));
    two.log_verifies();
}
