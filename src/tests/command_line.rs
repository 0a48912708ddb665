//! The command line and the process: what it prints, refuses, and how it ends.

use std::{
    io::Write,
    net::TcpStream,
    process::Output,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    PASSWORD, fresh_key, id_of,
    process::{Place, reached},
    ticket,
};

fn words(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn data_goes_to_standard_output_and_everything_else_to_standard_error() {
    let place = Place::new(&[]);
    let (code, out, err) = words(&place.run(&["migrate"], ""));
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "", "the database is up to date\n"));
    let id = place.cli(
        &["user", "add", "Omar", "--role", "viewer", "--group", "b", "--group", "a", "--password-stdin"],
        PASSWORD,
    );
    assert!(id.starts_with("usr_"), "{id}");
    let (_, out, err) =
        words(&place.run(&["agent", "add", "deployer", "--owner", "omar", "--allow", "release/* deploy"], ""));
    assert!(out.starts_with("cfa_") && out.len() == 48, "{out}");
    assert_eq!(err, "added `deployer`; its token is not shown again\n");
    let token = place.cli(&["executor", "add", "payments", "--kind", "payment.*", "--kind", "ticket.create"], "");
    assert!(token.starts_with("cfe_"), "{token}");

    assert_eq!(place.cli(&["user", "list"], ""), "omar\tviewer\ta,b\tenabled");
    assert!(place.cli(&["agent", "list"], "").ends_with("\tdeployer\tomar\tactive"));
    assert!(place.cli(&["executor", "list"], "").ends_with("\tpayments\tpayment.*,ticket.create\tactive"));
    place.cli(&["agent", "revoke", "deployer"], "");
    assert!(place.cli(&["agent", "list"], "").ends_with("\trevoked"));
    place.cli(&["executor", "revoke", "payments"], "");
    assert!(place.cli(&["executor", "list"], "").ends_with("\trevoked"));
}

#[test]
fn what_cannot_be_done_is_said_with_a_way_on() {
    let place = Place::new(&[]);
    let refused = |arguments: &[&str], input: &str| {
        let (code, out, err) = words(&place.run(arguments, input));
        assert_eq!(out, "", "{arguments:?}");
        (code.unwrap(), err)
    };
    place.cli(&["user", "add", "omar", "--role", "viewer", "--password-stdin"], PASSWORD);
    assert_eq!(
        refused(&["user", "add", "omar", "--role", "viewer", "--password-stdin"], PASSWORD),
        (1, "error: the name `omar` is taken\n".into())
    );
    assert_eq!(
        refused(&["user", "add", "new", "--role", "viewer", "--password-stdin"], "short"),
        (1, "error: a password has at least 12 characters\n".into())
    );
    assert_eq!(
        refused(&["user", "passwd", "nobody", "--password-stdin"], PASSWORD),
        (1, "error: there is no person `nobody`\nhint: `counterfoil user list` shows who there is\n".into())
    );
    assert_eq!(
        refused(&["agent", "add", "a", "--owner", "nobody"], ""),
        (1, "error: `/owner`: there is no person `nobody` who can sign in\n".into())
    );
    assert_eq!(refused(&["agent", "revoke", "x"], "").0, 1);
    for arguments in [
        &["user", "add", "x", "--role", "root", "--password-stdin"][..],
        &["user", "add", "x", "--role", "viewer"],
        &["user", "add", "a b", "--role", "viewer", "--password-stdin"],
        &["agent", "add", "a", "--owner", "omar", "--allow", "release/*"],
        &["executor", "add", "x"],
        &["fly"],
    ] {
        let (code, err) = refused(arguments, PASSWORD);
        assert!(code == 2 && err.starts_with("error: "), "{arguments:?}: {err}");
    }
    let (code, err) = refused(&["healthcheck"], "");
    assert!(code == 1 && err.starts_with("error: the desk at `127.0.0.1:"), "{err}");
}

#[test]
fn a_kind_is_added_from_a_file_or_from_standard_input() {
    let place = Place::new(&[]);
    let mut kind = json!({
        "name": "acme.restart", "title": "Restart", "headline": "asks to restart {service}",
        "schema": {
            "type": "object", "additionalProperties": false, "required": ["service"],
            "properties": {"service": {"type": "string", "maxLength": 60}},
        },
        "target": "service/{service}", "verb": "update", "consequence": "Restarts {{ params.service }}",
        "rollback": "Cannot be undone", "risk": "high",
    });
    let (code, out, err) = words(&place.run(&["kind", "add", "-"], &kind.to_string()));
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "acme.restart\t1\n", "added `acme.restart` version 1\n"));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(kind.to_string().as_bytes()).unwrap();
    let path = file.path().to_str().unwrap();
    let (_, out, err) = words(&place.run(&["kind", "add", path], ""));
    assert_eq!((out.as_str(), err.as_str()), ("acme.restart\t1\n", "there is already `acme.restart` version 1\n"));
    kind["risk"] = json!("critical");
    assert_eq!(place.cli(&["kind", "add", "-"], &kind.to_string()), "acme.restart\t2");
    let listed = place.cli(&["kind", "list"], "");
    assert!(listed.starts_with("acme.restart\t2\tcritical\tRestart\town\n"), "{listed}");
    assert!(listed.contains("\nticket.create\t1\tlow\tCreate ticket\tbuilt in"), "{listed}");
    assert_eq!(listed.lines().count(), 16);

    let refused = |arguments: &[&str], input: &str| {
        let (code, out, err) = words(&place.run(arguments, input));
        assert_eq!((code, out.as_str()), (Some(1), ""), "{arguments:?}");
        err
    };
    kind["name"] = json!("ticket.create");
    let err = refused(&["kind", "add", "-"], &kind.to_string());
    assert!(err.starts_with("error: `/name`: `ticket.create` is built in; "), "{err}");
    (kind["title"], kind["name"]) = (json!(""), json!("acme.restart"));
    kind["rollback"] = json!("");
    let err = refused(&["kind", "add", "-"], &kind.to_string());
    assert!(err.contains("\n  `/title`: ") && err.contains("\n  `/rollback`: "), "{err}");
    assert!(refused(&["kind", "add", "-"], "{\"name\": 1, \"name\": 2}").starts_with("error: "));
    assert!(refused(&["kind", "add", "no/such/file"], "").starts_with("error: `no/such/file` cannot be read: "));
}

#[test]
fn a_setting_that_cannot_be_used_stops_the_start_and_shows_no_secret() {
    for (name, value) in [
        ("COUNTERFOIL_APPROVAL_TTL_S", "0"),
        ("COUNTERFOIL_EXECUTION_TTL_S", "-5"),
        ("COUNTERFOIL_RETRY_TTL_S", "soon"),
        ("COUNTERFOIL_LISTEN", "here"),
        ("COUNTERFOIL_PUBLIC_URL", "desk"),
        ("COUNTERFOIL_DATABASE_URL", "mysql://u:canary@localhost/x"),
    ] {
        let (code, out, err) = words(&Place::new(&[(name, value)]).run(&["serve"], ""));
        assert_eq!((code, out.as_str()), (Some(1), ""), "{name}");
        assert!(err.starts_with(&format!("error: `{name}` ")) && err.contains("\nhint: "), "{err}");
        assert!(!err.contains("canary"), "{err}");
    }
    let unreachable = Place::new(&[("COUNTERFOIL_DATABASE_URL", "postgres://u:canary@127.0.0.1:1/x")]);
    let (code, _, err) = words(&unreachable.run(&["migrate"], ""));
    assert!(code == Some(1) && err.contains("\nhint: ") && !err.contains("canary"), "{err}");
}

#[tokio::test]
async fn the_command_line_works_beside_a_running_server() {
    let place = Place::new(&[]);
    let mut server = place.serve().await;
    let link = place.log();
    assert!(link.contains(&format!("Set up: {}/setup?token=", place.url)), "{link}");
    let cookie = place.person("omar", "viewer", "approvers").await;
    let me = place.client.get(format!("{}/api/v1/me", place.url)).header("cookie", &cookie).send().await.unwrap();
    assert_eq!(me.json::<Value>().await.unwrap()["person"]["groups"], json!(["approvers"]));
    let run = place.start_run(&place.cli(&["agent", "add", "a", "--owner", "omar"], "")).await;
    place.cli(&["user", "passwd", "omar", "--password-stdin"], "another long password\n");
    let me = place.client.get(format!("{}/api/v1/me", place.url)).header("cookie", &cookie).send().await.unwrap();
    assert_eq!(me.status(), 401);
    place.cli(&["healthcheck"], "");
    assert_eq!(place.get("me", &run).send().await.unwrap().status(), 200);

    let (code, _, err) = words(&place.run(&["serve"], ""));
    assert_eq!(code, Some(1));
    assert!(err.contains("error: another `counterfoil serve` is using `"), "{err}");
    server.signal("KILL");
    server.wait();
    let _server = place.serve().await;
    assert_eq!(place.get("me", &run).send().await.unwrap().status(), 200, "the lock went with the process");
    assert_eq!(place.log().matches("Set up:").count(), 1, "there are people now");
}

#[tokio::test]
async fn a_signal_ends_the_server_in_order() {
    let place = Place::new(&[]);
    for signal in ["TERM", "INT"] {
        let mut server = place.serve().await;
        server.signal(signal);
        let (status, took) = server.wait();
        assert!(status.success() && took < Duration::from_secs(2), "{signal}: {status} after {took:?}");
    }
}

#[tokio::test]
async fn a_request_that_never_ends_does_not_hold_up_the_end() {
    let place = Place::new(&[("COUNTERFOIL_SHUTDOWN_S", "1")]);
    let hang = |place: &Place| {
        let mut stream = TcpStream::connect(place.url.trim_start_matches("http://")).unwrap();
        let head =
            "POST /api/v1/session HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n";
        write!(stream, "{head}Origin: {}\r\n\r\n{{", place.url).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        stream
    };
    let mut server = place.serve().await;
    let open = hang(&place);
    server.signal("TERM");
    let (status, took) = server.wait();
    assert!(status.success() && took < Duration::from_secs(3), "{status} after {took:?}");
    drop(open);

    let place = Place::new(&[("COUNTERFOIL_SHUTDOWN_S", "60")]);
    let mut server = place.serve().await;
    let open = hang(&place);
    server.signal("TERM");
    std::thread::sleep(Duration::from_millis(200));
    server.signal("TERM");
    let (status, took) = server.wait();
    assert!(!status.success() && took < Duration::from_secs(2), "{status} after {took:?}");
    drop(open);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_pages_and_waiting_agents_do_not_hold_up_the_end_and_go_on_after_the_next_start() {
    for signals in [1, 2] {
        let mut place = Place::new(&[("COUNTERFOIL_SHUTDOWN_S", "20")]);
        let marker = place.folder().join("held");
        place.set("COUNTERFOIL_FAULT", &format!("after_claim:{}", marker.display()));
        let mut server = place.serve().await;
        let cookie = place.person("asha", "approver", "approvers").await;
        place.person("omar", "viewer", "none").await;
        let run = place.start_run(&place.cli(&["agent", "add", "deployer", "--owner", "omar"], "")).await;
        let mut proposed = Vec::new();
        for title in ["Claimed", "Waits"] {
            let call = place.post("operations", &run, &ticket(title)).header("idempotency-key", fresh_key());
            proposed.push(call.send().await.unwrap().json::<Value>().await.unwrap()["operation"].clone());
        }
        let [claimed, waits] = proposed.try_into().unwrap();
        assert_eq!(place.approve(&cookie, id_of(&claimed)).await.unwrap().status(), 200);
        let mut streams = Vec::new();
        for _ in 0..3 {
            streams.push(place.events(&cookie, Some(0)).await);
        }
        // Of the run, two proposals and the approval.
        let last = streams[0].take(4).await[3].id;
        let poll = |place: &Place| {
            let call = place.get(&format!("operations/{}?wait=60", id_of(&waits)), &run);
            tokio::spawn(call.header("if-none-match", "\"1\"").send())
        };
        let polls = [poll(&place), poll(&place)];
        let path = format!("operations/{}/claim", id_of(&claimed));
        let claim = tokio::spawn(place.post(&path, &run, &json!({"fingerprint": claimed["fingerprint"]})).send());
        reached(&marker).await;

        server.signal("TERM");
        let start = Instant::now();
        for stream in &mut streams {
            while stream.next().await.is_some() {}
        }
        for poll in polls {
            assert_eq!(poll.await.unwrap().unwrap().status(), 304);
        }
        assert!(start.elapsed() < Duration::from_secs(5), "what only waits ends at once");
        let state = if signals == 1 {
            std::fs::remove_file(&marker).unwrap();
            assert_eq!(claim.await.unwrap().unwrap().status(), 200, "what was under way is finished");
            "claimed"
        } else {
            server.signal("TERM");
            claim.await.unwrap().unwrap_err();
            "approved"
        };
        let (status, _) = server.wait();
        assert_eq!(status.success(), signals == 1, "{status}");
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());

        place.unset("COUNTERFOIL_FAULT");
        let _server = place.serve().await;
        let read = place.get(&format!("operations/{}", id_of(&claimed)), &run).send().await.unwrap();
        assert_eq!(read.json::<Value>().await.unwrap()["operation"]["state"], state);
        let (mut stream, waiting) = (place.events(&cookie, last).await, poll(&place));
        if signals == 1 {
            assert_eq!(stream.next().await.unwrap().data["state"], "claimed");
        }
        assert_eq!(place.approve(&cookie, id_of(&waits)).await.unwrap().status(), 200);
        assert_eq!(stream.next().await.unwrap().data["state"], "approved");
        assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
        place.log_verifies();
    }
}
