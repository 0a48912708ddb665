//! People and their sessions, and what admins change.

use axum::http::Method;
use counterfoil::server::service::account;
use serde_json::{Value, json};

use crate::support::{App, PASSWORD, Reply, cookie_of, on_both_databases};

const WRONG: &str = "not the password at all";

on_both_databases! {
    async fn a_person_signs_in_and_out(app: App) {
        let mut asha = app.person("asha", "approver", "approvers").await;
        let reply = app.sign_in("Asha", PASSWORD).await.ok(200);
        let cookie = reply.header("set-cookie");
        assert!(cookie.starts_with("counterfoil_session="), "{cookie}");
        for attribute in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=604800"] {
            assert!(cookie.contains(attribute), "{cookie}");
        }
        assert!(!cookie.contains("Secure"), "the desk is reached over http here: {cookie}");
        asha.cookie = cookie_of(&reply);

        let me = asha.get("me").await.ok(200).body;
        assert_eq!((&me["kind"], &me["person"]["name"], &me["person"]["role"]), (&json!("person"), &json!("asha"), &json!("approver")));
        let gone = asha.call(Method::DELETE, "session").await.ok(204);
        assert!(gone.header("set-cookie").contains("Max-Age=0"), "{:?}", gone.headers);
        asha.get("me").await.refused(401, "unauthenticated");

        let audit = app.audit().await;
        let signed_in = audit.iter().rfind(|record| record["event"] == "account.signed_in").unwrap();
        assert_eq!(signed_in["actor"], json!({"kind": "human", "id": asha.id}));
        assert_eq!(signed_in["route"], "POST /api/v1/session");
        assert_eq!(signed_in["correlation"], reply.header("x-correlation-id"));
        assert_eq!(audit.last().unwrap()["event"], "account.signed_out");
    }

    async fn a_desk_on_https_sets_a_secure_cookie(app: App) {
        app.person("asha", "approver", "").await;
        let url = "https://desk.example.test";
        let app = app.restart(&[("COUNTERFOIL_PUBLIC_URL", url)]).await;
        let sign_in = app.post("session", json!({"name": "asha", "password": PASSWORD}));
        let reply = sign_in.header("origin", url).await.ok(200);
        assert!(reply.header("set-cookie").contains("Secure"), "{:?}", reply.headers);
        assert_eq!(reply.header("strict-transport-security"), "max-age=31536000");
    }

    async fn unknown_names_wrong_passwords_and_disabled_accounts_look_and_cost_the_same(app: App) {
        let admin = app.person("ada", "admin", "").await;
        app.person("asha", "approver", "").await;
        let disabled = app.person("dora", "approver", "").await;
        admin.call(Method::PATCH, &format!("people/{}", disabled.id)).json(json!({"disabled": true})).await.ok(200);

        let attempts = [("asha", WRONG), ("nobody", PASSWORD), ("dora", PASSWORD), ("a name\u{202e}", PASSWORD), ("", "")];
        for (name, password) in attempts {
            let (before, records) = (app.desk.passwords.computed(), app.audit().await.len());
            let reply = app.sign_in(name, password).await.refused(401, "unauthenticated");
            assert_eq!(reply.body["detail"], "the name or the password is not right");
            assert_eq!(reply.header("set-cookie"), "");
            assert_eq!(app.desk.passwords.computed() - before, 1, "{name}");
            let audit = app.audit().await;
            assert_eq!(audit.len() - records, 1, "{name}");
            assert_eq!(audit.last().unwrap()["event"], "account.sign_in_refused");
        }
        assert!(!format!("{:?}", app.audit().await).contains("nobody"), "a name may be a mistyped password");
    }

    async fn a_desk_under_siege_answers_that_it_is_busy(app: App) {
        app.person("asha", "approver", "").await;
        let calls = (0..100).map(|i| app.sign_in(&format!("guess{i}"), WRONG).from(&format!("192.0.2.{i}")).into_future());
        let replies = futures::future::join_all(calls).await;
        let count = |code: &str| replies.iter().filter(|reply| reply.code() == code).count();
        assert!(count("unauthenticated") >= 66 && count("unavailable") > 0, "{}", count("unavailable"));
        assert_eq!(count("unauthenticated") + count("unavailable"), 100);
        app.sign_in("asha", PASSWORD).await.ok(200);
    }

    async fn guessing_is_slowed_down_per_account(app: App) {
        app.person("asha", "approver", "").await;
        for i in 0..10 {
            app.sign_in("asha", WRONG).from(&format!("192.0.2.{i}")).await.refused(401, "unauthenticated");
        }
        let before = app.desk.passwords.computed();
        let reply = app.sign_in("asha", PASSWORD).from("192.0.2.99").await.refused(429, "rate_limited");
        assert_eq!(app.desk.passwords.computed(), before);
        let after_s: i64 = reply.header("retry-after").parse().unwrap();
        assert_eq!(reply.body["retry"], json!({"mode": "same_key", "after_s": after_s}));
        app.sign_in("omar", WRONG).from("192.0.2.99").await.refused(401, "unauthenticated");
        app.advance_s(after_s);
        app.sign_in("asha", PASSWORD).await.ok(200);
    }

    async fn guessing_is_slowed_down_per_address(app: App) {
        app.person("asha", "approver", "").await;
        for i in 0..50 {
            app.sign_in(&format!("guess{i}"), WRONG).from("2001:db8::1").await.refused(401, "unauthenticated");
        }
        app.sign_in("asha", PASSWORD).from("2001:db8::2").await.refused(429, "rate_limited");
        app.sign_in("asha", PASSWORD).from("2001:db8:0:1::1").await.ok(200);
    }

    async fn whoever_knows_the_password_is_never_slowed_down(app: App) {
        app.person("asha", "approver", "").await;
        for _ in 0..15 {
            app.sign_in("asha", PASSWORD).await.ok(200);
        }
    }

    async fn a_session_ends_after_twelve_idle_hours(app: App) {
        let asha = app.person("asha", "approver", "").await;
        for _ in 0..3 {
            app.advance_s(12 * 3600 - 61);
            asha.get("me").await.ok(200);
        }
        app.advance_s(12 * 3600);
        asha.get("me").await.refused(401, "unauthenticated");
    }

    async fn a_session_ends_after_seven_days_however_busy(app: App) {
        let asha = app.person("asha", "approver", "").await;
        for _ in 0..14 {
            app.advance_s(11 * 3600);
            asha.get("me").await.ok(200);
        }
        asha.post("session/step-up", json!({"password": WRONG})).await.refused(403, "step_up_required");
        let stepped_up = asha.post("session/step-up", json!({"password": PASSWORD})).await.ok(200);
        let asha = crate::support::Person { cookie: cookie_of(&stepped_up), ..asha };
        app.advance_s(10 * 3600);
        asha.get("me").await.ok(200);
        app.advance_s(4 * 3600);
        asha.get("me").await.refused(401, "unauthenticated");
    }

    async fn sessions_are_listed_and_revoked(app: App) {
        let here = app.person("asha", "approver", "").await;
        let mut there = here.clone();
        app.advance_s(60);
        there.sign_in().await;
        let stranger = app.person("omar", "operator", "").await;

        let listed = here.get("sessions").await.ok(200).body;
        let sessions = listed["sessions"].as_array().unwrap();
        assert_eq!(sessions.len(), 2);
        assert_eq!(sessions.iter().filter(|session| session["current"] == true).count(), 1);
        let other = sessions.iter().find(|session| session["current"] == false).unwrap();
        let path = format!("sessions/{}", other["id"].as_str().unwrap());

        stranger.call(Method::DELETE, &path).await.refused(404, "not_found");
        there.get("me").await.ok(200);
        here.call(Method::DELETE, &path).await.ok(204);
        there.get("me").await.refused(401, "unauthenticated");
        here.get("me").await.ok(200);
        here.call(Method::DELETE, &path).await.refused(404, "not_found");
        here.call(Method::DELETE, "sessions/se_nonsense").await.refused(404, "not_found");
        assert_eq!(app.events().await.last().unwrap(), "account.session_revoked");
    }

    async fn signing_in_again_takes_a_new_cookie_and_ends_the_old_one(app: App) {
        let asha = app.person("asha", "approver", "").await;
        let reply = app.sign_in("asha", PASSWORD).header("cookie", &asha.cookie).await.ok(200);
        assert_ne!(cookie_of(&reply), asha.cookie);
        asha.get("me").await.refused(401, "unauthenticated");
        let forged = "counterfoil_session=AAAAAAAAAAAAAAAAAAAAAA";
        let reply = app.sign_in("asha", PASSWORD).header("cookie", forged).await.ok(200);
        assert_ne!(cookie_of(&reply), forged, "the id is ours to choose");
    }

    async fn stepping_up_changes_the_cookie_and_lasts_five_minutes(app: App) {
        let mut asha = app.person("asha", "approver", "").await;
        assert_eq!(asha.get("me").await.ok(200).body["session"]["stepped_up_until"], Value::Null);
        let reply = asha.post("session/step-up", json!({"password": PASSWORD})).await.ok(200);
        asha.get("me").await.refused(401, "unauthenticated");
        asha.cookie = cookie_of(&reply);
        let me = asha.get("me").await.ok(200).body;
        assert_eq!(me["session"]["stepped_up_until"], "2026-12-01T00:05:00.000Z");
        assert_eq!(me["session"]["stepped_up_until"], reply.body["stepped_up_until"]);
        assert_eq!(app.events().await.last().unwrap(), "account.stepped_up");
        assert_eq!(asha.get("sessions").await.body["sessions"].as_array().unwrap().len(), 1);
    }

    async fn a_slow_request_does_not_bring_back_a_session_that_was_ended(app: App) {
        for round in 0..20 {
            let asha = app.person(&format!("asha{round}"), "approver", "").await;
            let (stepped_up, signed_out) = tokio::join!(
                asha.post("session/step-up", json!({"password": PASSWORD})).into_future(),
                async {
                    tokio::time::sleep(std::time::Duration::from_millis(round * 3)).await;
                    asha.call(Method::DELETE, "session").await
                },
            );
            if signed_out.status == 204 {
                for cookie in [asha.cookie.clone(), cookie_of(&stepped_up)] {
                    app.get("me").header("cookie", &cookie).await.refused(401, "unauthenticated");
                }
            } else {
                stepped_up.ok(200);
            }
        }
    }

    async fn a_disabled_person_is_out_at_once(app: App) {
        let admin = app.person("ada", "admin", "").await;
        let asha = app.person("asha", "approver", "").await;
        let path = format!("people/{}", asha.id);
        let reply = admin.call(Method::PATCH, &path).json(json!({"disabled": true})).await.ok(200);
        assert!(reply.body["person"]["disabled_at"].is_string());
        asha.get("me").await.refused(401, "unauthenticated");
        app.sign_in("asha", PASSWORD).await.refused(401, "unauthenticated");
        admin.call(Method::PATCH, &path).json(json!({"disabled": false})).await.ok(200);
        asha.get("me").await.refused(401, "unauthenticated");
        app.sign_in("asha", PASSWORD).await.ok(200);
    }

    async fn a_new_password_ends_the_sessions_of_the_old_one(app: App) {
        let admin = app.person("ada", "admin", "").await;
        let asha = app.person("asha", "approver", "").await;
        let new = "another long password";
        admin.call(Method::PATCH, &format!("people/{}", asha.id)).json(json!({"password": new})).await.ok(200);
        asha.get("me").await.refused(401, "unauthenticated");
        app.sign_in("asha", PASSWORD).await.refused(401, "unauthenticated");
        app.sign_in("asha", new).await.ok(200);
    }

    async fn a_changed_role_counts_from_the_next_request(app: App) {
        let admin = app.person("ada", "admin", "").await;
        let second = app.person("bela", "admin", "").await;
        second.get("agents").await.ok(200);
        let path = format!("people/{}", second.id);
        let change = json!({"role": "auditor", "groups": ["b", "a", "B"]});
        let reply = admin.call(Method::PATCH, &path).json(change).await.ok(200);
        assert_eq!(reply.body["person"]["groups"], json!(["a", "b"]));
        second.post("people", json!({})).await.refused(403, "forbidden");
        let audit = app.audit().await;
        let changed = audit.iter().rfind(|record| record["event"] == "admin.person_changed").unwrap();
        assert_eq!(changed["reason"], "role auditor, groups a b");
        assert_eq!(changed["resource"], format!("person/{}", second.id));
    }

    async fn the_last_admin_stays(app: App) {
        let admin = app.person("ada", "admin", "").await;
        let path = format!("people/{}", admin.id);
        for change in [json!({"disabled": true}), json!({"role": "viewer"})] {
            admin.call(Method::PATCH, &path).json(change).await.refused(409, "invalid_state");
        }
        app.person("bela", "admin", "").await;
        admin.call(Method::PATCH, &path).json(json!({"role": "viewer"})).await.ok(200);
    }

    async fn people_are_changed_by_admins_and_read_by_people(app: App) {
        let new = json!({"name": "New.Person", "role": "approver", "groups": ["approvers"], "password": PASSWORD});
        for role in ["viewer", "approver", "operator", "auditor"] {
            let person = app.person(role, role, "").await;
            person.post("people", new.clone()).await.refused(403, "forbidden");
            person.call(Method::PATCH, &format!("people/{}", person.id)).json(json!({"role": "admin"})).await.refused(403, "forbidden");
            assert!(person.get("people").await.ok(200).body["people"].is_array());
        }
        let admin = app.person("ada", "admin", "").await;
        let made = admin.post("people", new.clone()).await.ok(201).body;
        assert_eq!((&made["person"]["name"], &made["person"]["groups"]), (&json!("new.person"), &json!(["approvers"])));
        admin.post("people", new).await.refused(409, "invalid_state");
        let listed = admin.get("people").await.ok(200).text;
        assert!(!listed.contains("argon2"), "{listed}");
        admin.call(Method::PATCH, "people/usr_00000000000000000000000000").json(json!({})).await.refused(404, "not_found");
    }

    async fn what_does_not_fit_a_person_is_refused_with_its_place(app: App) {
        let admin = app.person("ada", "admin", "").await;
        let good = json!({"name": "new", "role": "viewer", "groups": [], "password": PASSWORD});
        for (member, value) in [
            ("/name", json!("a b")),
            ("/name", json!(".a")),
            ("/name", json!("a".repeat(65))),
            ("/name", json!(7)),
            ("/role", json!("root")),
            ("/groups/0", json!("no group")),
            ("/password", json!("short")),
            ("/password", json!("x".repeat(1025))),
            ("/colour", json!("red")),
        ] {
            let mut body = good.clone();
            match member {
                "/groups/0" => body["groups"] = json!([value]),
                name => body[&name[1..]] = value,
            }
            let reply = admin.post("people", body).await.refused(422, "validation_failed");
            assert_eq!(reply.body["errors"][0]["pointer"], member, "{}", reply.text);
        }
        assert_eq!(admin.get("people").await.body["people"].as_array().unwrap().len(), 1);
    }

    async fn the_set_up_link_works_once_and_for_an_hour(app: App) {
        let token = |url: Option<String>| url.unwrap().split_once("token=").unwrap().1.to_owned();
        let desk = &app.desk;
        let name = || account::Name::try_from("Ada".to_owned()).unwrap();
        let password = || account::Password::try_from(PASSWORD.to_owned()).unwrap();

        let first = token(account::begin_setup(desk).await.unwrap());
        let second = token(account::begin_setup(desk).await.unwrap());
        assert!(account::check_setup(desk, &first).await.is_err(), "a restart replaces the link");
        assert!(account::check_setup(desk, &second).await.is_ok());
        app.advance_s(3600);
        assert!(account::complete_setup(desk, &second, name(), password()).await.is_err());

        let third = token(account::begin_setup(desk).await.unwrap());
        let before = desk.passwords.computed();
        assert!(account::complete_setup(desk, "guessed", name(), password()).await.is_err());
        assert_eq!(desk.passwords.computed(), before, "a guess costs us nothing");
        let tries = futures::future::join_all((0..5).map(|_| account::complete_setup(desk, &third, name(), password()))).await;
        assert_eq!(tries.iter().filter(|done| done.is_ok()).count(), 1);
        assert!(account::begin_setup(desk).await.unwrap().is_none());
        assert_eq!(app.events().await.iter().filter(|event| *event == "admin.setup_completed").count(), 1);
        let reply = app.sign_in("ada", PASSWORD).await.ok(200);
        assert_eq!(reply.body["person"]["role"], "admin");
    }

    async fn an_empty_desk_that_got_its_first_person_otherwise_needs_no_link(app: App) {
        let url = account::begin_setup(&app.desk).await.unwrap().unwrap();
        app.person("ada", "admin", "").await;
        let (_, token) = url.split_once("token=").unwrap();
        let name = account::Name::try_from("eve".to_owned()).unwrap();
        let password = account::Password::try_from(PASSWORD.to_owned()).unwrap();
        assert!(account::complete_setup(&app.desk, token, name, password).await.is_err());
    }

    async fn a_session_outlives_a_restart_and_counts_on_every_node(app: App) {
        let asha = app.person("asha", "approver", "").await;
        let app = app.restart(&[]).await;
        let other = app.node(&[]).await;
        let asha = asha.at(&app);
        asha.get("me").await.ok(200);
        asha.at(&other).get("me").await.ok(200);
        asha.at(&other).call(Method::DELETE, "session").await.ok(204);
        let reply: Reply = asha.get("me").await;
        reply.refused(401, "unauthenticated");
    }
}
