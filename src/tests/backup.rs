//! Copies of the database, and what a restore makes of them.

use std::{fs, path::PathBuf};

use serde_json::json;
use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};

use crate::support::process::Place;

/// The path of `name` in the place's folder, as an argument.
fn file(place: &Place, name: &str) -> String {
    place.folder().join(name).display().to_string()
}

/// What is said when the command is refused.
#[track_caller]
fn refused(place: &Place, arguments: &[&str]) -> String {
    let output = place.run(arguments, "");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A desk with an operation in it, and a backup made while it was running.
async fn backed_up() -> (Place, PathBuf) {
    let place = Place::new(&[]);
    let _server = place.serve().await;
    place.person("omar", "viewer", "approvers").await;
    let run = place.start_run(&place.cli(&["agent", "add", "a", "--owner", "omar"], "")).await;
    let ticket = json!({"kind": "ticket.create", "params": {"project": "ops", "title": "Rotate"}});
    let propose = place.post("operations", &run, &ticket).header("idempotency-key", "key-of-the-ticket");
    assert_eq!(propose.send().await.unwrap().status(), 201);
    place.cli(&["backup", &file(&place, "copy.db")], "");
    let copy = place.folder().join("copy.db");
    (place, copy)
}

async fn alter(database: &PathBuf, statement: &'static str) {
    let mut conn = SqliteConnectOptions::new().filename(database).connect().await.unwrap();
    sqlx::query(statement).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

#[tokio::test]
async fn a_backup_made_beside_a_running_server_is_restored_whole_and_says_so_in_its_log() {
    let (old, copy) = backed_up().await;
    old.cli(&["agent", "add", "too-late", "--owner", "omar"], "");
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&copy).unwrap().permissions()) & 0o777, 0o600);

    let new = Place::new(&[]);
    let output = new.run(&["restore", copy.to_str().unwrap()], "");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("each linked to the one before it"), "{said}");
    assert!(said.contains("hint: bring the audit key back"), "{said}");
    fs::copy(old.folder().join("audit.key"), new.folder().join("audit.key")).unwrap();

    let agents = new.cli(&["agent", "list"], "");
    assert!(agents.contains("\ta\tomar\tactive") && !agents.contains("too-late"), "{agents}");
    let _server = new.serve().await;
    let export = file(&new, "log");
    new.cli(&["audit", "export", "--out", &export], "");
    let vkey = old.cli(&["audit", "vkey"], "");
    let verdict = new.cli(&["audit", "verify", &export, "--vkey", &vkey], "");
    assert!(verdict.starts_with("verified: "), "{verdict}");
    let log = fs::read_to_string(&export).unwrap();
    assert!(log.contains("\"operation.proposed\"") && log.contains("\"admin.restored\""), "{log}");
}

#[tokio::test]
async fn a_backup_whose_log_does_not_hold_is_not_restored() {
    let (_old, copy) = backed_up().await;
    for (change, found) in [
        ("UPDATE audit SET record = replace(record, 'role viewer', 'role admin')", "its content was changed"),
        ("DELETE FROM audit WHERE seq = 3", "record 3: a gap"),
        ("DELETE FROM audit WHERE seq > 5", "is missing"),
        ("DELETE FROM audit_head", "holds no audit log"),
    ] {
        let place = Place::new(&[]);
        let altered = place.folder().join("altered");
        fs::copy(&copy, &altered).unwrap();
        alter(&altered, change).await;
        let said = refused(&place, &["restore", altered.to_str().unwrap()]);
        assert!(said.contains(found), "{change}: {said}");
        let left: Vec<_> = fs::read_dir(place.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "altered" || name == "counterfoil.db.lock"), "{left:?}");
    }
    let place = Place::new(&[]);
    fs::write(place.folder().join("text"), "not a database, however long it may be".repeat(100)).unwrap();
    refused(&place, &["restore", &file(&place, "text")]);
    assert!(refused(&place, &["restore", &file(&place, "absent")]).contains("cannot be read"));
}

#[tokio::test]
async fn nothing_is_overwritten_by_a_backup_or_a_restore() {
    let (place, copy) = backed_up().await;
    let copy = copy.to_str().unwrap();
    let before = fs::read(copy).unwrap();
    assert!(refused(&place, &["backup", copy]).contains("cannot be made"));
    assert!(fs::read(copy).unwrap() == before, "the first backup is untouched");
    assert!(refused(&place, &["restore", copy]).contains("is there already\nhint: "));
    let server = place.serve().await;
    assert!(refused(&place, &["restore", copy]).starts_with("error: another `counterfoil serve` is using `"));
    drop(server);
    fs::remove_file(place.folder().join("counterfoil.db")).unwrap();
    fs::write(place.folder().join("counterfoil.db-wal"), "").unwrap();
    assert!(refused(&place, &["restore", copy]).contains("counterfoil.db-wal` is there already"));
}

#[test]
fn postgres_is_backed_up_with_its_own_tools() {
    let place = Place::new(&[("COUNTERFOIL_DATABASE_URL", "postgres://u:canary@127.0.0.1:1/x")]);
    let said = refused(&place, &["backup", &file(&place, "copy")]);
    assert!(said.contains("hint: use `pg_dump`") && !said.contains("canary"), "{said}");
    assert!(refused(&place, &["restore", &file(&place, "copy")]).contains("hint: use `pg_restore`"));
    let place = Place::new(&[]);
    assert!(refused(&place, &["backup", &file(&place, "copy")]).starts_with("error: there is no database at `"));
    assert!(!place.folder().join("copy").exists());
}
