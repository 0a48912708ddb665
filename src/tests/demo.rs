//! `counterfoil demo`, as a visitor meets it.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::process::Place;

#[tokio::test]
async fn a_visitor_of_the_demo_signs_in_and_sees_agents_at_work() {
    let place = Place::new(&[("COUNTERFOIL_LOG", "warn")]);
    let mut server = place.start("demo").await;
    let log = place.log();
    let password = |name: &str| {
        let line = log.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    for name in ["oncall", "admin", "auditor"] {
        place.sign_in(name, &password(name)).await;
    }
    let cookie = place.sign_in("approver", &password("approver")).await;
    assert!(!log.contains("Set up:"), "there are people already");

    let kinds = async || {
        let all = place.client.get(format!("{}/api/v1/operations", place.url)).header("cookie", &cookie);
        let all: Value = all.send().await.unwrap().json().await.unwrap();
        let kinds = all["operations"].as_array().unwrap().iter().map(|op| op["kind"].as_str().unwrap().to_owned());
        kinds.collect::<BTreeSet<_>>()
    };
    let start = Instant::now();
    while kinds().await.len() < 5 {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", kinds().await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    server.signal("TERM");
    let (status, took) = server.wait();
    assert!(status.success() && took < Duration::from_secs(3), "{status} after {took:?}");

    let output = place.run(&["demo"], "");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("a fresh database"), "{said}");
    assert_eq!(place.cli(&["user", "list"], "").lines().count(), 5);
}
