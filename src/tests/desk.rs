//! The desk's pages as a browser without scripts gets them.

use std::collections::BTreeSet;

use axum::http::Method;
use serde_json::json;

use crate::support::{App, Call, PASSWORD, Person, Reply, on_both_databases};

const FORM: &str = "application/x-www-form-urlencoded";

impl Person {
    fn page(&self, path: &str) -> Call {
        self.get(path).header("accept", "text/html")
    }

    fn send(&self, path: &str, fields: &[(&str, &str)]) -> Call {
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={}", percent(value))).collect();
        self.call(Method::POST, path).raw(FORM, fields.join("&")).header("accept", "text/html")
    }
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// What stands between the first `start` and the next `end`.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let rest = text.split_once(start).map(|(_, rest)| rest).unwrap_or_default();
    rest.split_once(end).map(|(found, _)| found).unwrap_or_default()
}

fn heading(reply: &Reply) -> String {
    let html = between(&reply.text, "<h1>", "</h1>");
    html.replace("<bdi>", "").replace("</bdi>", "").replace("<!>", "")
}

/// The ids of the rows, in their order.
fn rows(reply: &Reply) -> Vec<String> {
    let items = reply.text.split("<li ").skip(1).map(|item| item.split('>').next().unwrap_or_default());
    items
        .filter(|item| item.contains("class=\"row\""))
        .map(|item| between(item, "data-id=\"", "\"").to_owned())
        .collect()
}

on_both_databases! {
    async fn what_has_lapsed_is_nowhere_shown_as_waiting_before_anybody_recorded_it(app: App) {
        let (asha, _, run) = app.world().await;
        let (first, second) = (run.ticket("One").await, run.ticket("Two").await);
        asha.approve(second["id"].as_str().unwrap()).await.ok(200);
        assert_eq!(heading(&asha.page("/").await.ok(200)), "1 waits for you");
        assert_eq!(rows(&asha.page("/?lane=approved").await), [second["id"].as_str().unwrap()]);

        app.advance_s(800);
        assert_eq!(rows(&asha.page("/?lane=expiring").await), [first["id"].as_str().unwrap()]);
        app.advance_s(100);
        assert_eq!(heading(&asha.page("/").await.ok(200)), "Nothing waits for you");
        for lane in ["approved", "expiring", "unknown", "conflicts"] {
            assert!(rows(&asha.page(&format!("/?lane={lane}")).await.ok(200)).is_empty(), "{lane}");
        }
        let done = asha.page("/?lane=done").await.ok(200);
        assert_eq!(rows(&done), [second["id"].as_str().unwrap(), first["id"].as_str().unwrap()]);
        assert_eq!(done.text.matches(">Expired<").count(), 2, "{}", done.text);
        let stored = app.audit().await;
        assert!(stored.iter().all(|record| record["event"] != "operation.expired"), "a list records nothing");
    }

    async fn what_was_sent_and_never_answered_is_unknown_as_soon_as_its_deadline_passes(app: App) {
        let (asha, _, run) = app.world().await;
        let ticket = run.ticket("One").await;
        asha.approve(ticket["id"].as_str().unwrap()).await.ok(200);
        run.send(&ticket).await;
        assert_eq!(rows(&asha.page("/?lane=approved").await), [ticket["id"].as_str().unwrap()]);
        app.advance_s(61);
        assert!(rows(&asha.page("/?lane=approved").await).is_empty());
        let unknown = asha.page("/?lane=unknown").await.ok(200);
        assert_eq!(rows(&unknown), [ticket["id"].as_str().unwrap()]);
        assert!(unknown.text.contains("Do not retry"));
    }

    async fn pages_of_the_queue_go_on_where_the_last_one_ended(app: App) {
        let (asha, _, run) = app.world().await;
        let mut proposed = BTreeSet::new();
        for n in 0..70 {
            proposed.insert(run.ticket(&format!("Ticket {n}")).await["id"].as_str().unwrap().to_owned());
            if n % 10 == 0 {
                app.advance_s(1);
            }
        }
        for start in ["/", "/?who=all", "/?kind=ticket.create&risk=low"] {
            let (mut seen, mut next) = (Vec::new(), start.to_owned());
            while !next.is_empty() {
                let page = asha.page(&next).await.ok(200);
                seen.extend(rows(&page));
                next = between(&page.text, "rel=\"next\" href=\"", "\"").replace("&amp;", "&");
            }
            assert_eq!(seen.len(), proposed.len(), "{start}: none twice");
            assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), proposed, "{start}: none missing");
        }
        assert_eq!(heading(&asha.page("/").await), "70 wait for you");
        assert_eq!(heading(&asha.page("/?q=no-such-thing").await), "70 wait for you");
    }

    async fn only_what_one_may_decide_and_has_not_waits_for_one(app: App) {
        let (asha, omar, run) = app.world().await;
        app.rules(json!([{"name": "two", "match": {"kind": "ticket.*"}, "require": {"approvals": 2}}])).await;
        let own = app.agent("clerk", "asha").await.run(json!({})).await;
        let (theirs, mine) = (run.ticket("Theirs").await, own.ticket("Mine").await);
        assert_eq!(rows(&asha.page("/").await), [theirs["id"].as_str().unwrap()]);
        assert!(rows(&omar.page("/").await).is_empty(), "a viewer decides nothing");
        asha.approve(theirs["id"].as_str().unwrap()).await.ok(200);
        assert_eq!(heading(&asha.page("/").await), "Nothing waits for you");
        let all = asha.page("/?who=all").await;
        assert_eq!(rows(&all), [theirs["id"].as_str().unwrap(), mine["id"].as_str().unwrap()]);
        assert!(all.text.contains("You voted") && all.text.contains("Your agent") && all.text.contains("1 of 2"));
        assert!(!all.text.contains("name=\"pick\""), "neither can be ticked");
    }

    async fn what_an_agent_writes_is_text_in_the_html(app: App) {
        let (asha, _, run) = app.world().await;
        let title = "</script><svg onload=alert(1)> [x](javascript:alert(1)) {{7*7}} \u{202e}\u{0430}pi.example.test";
        let ticket = run.ticket(title).await;
        let named = app.agent("<b>clerk</b>\u{200b}", "omar").await.run(json!({"label": "<i>\u{2066}run"})).await;
        let other = named.ticket("x").await;
        for path in ["/", "/?who=all&q=<script>", &format!("/decide?pick={}&pick={}", ticket["id"].as_str().unwrap(), other["id"].as_str().unwrap()), "/runs", &format!("/runs/{}", named.id), "/settings/agents"] {
            let page = asha.page(&path.replace('<', "%3C").replace('>', "%3E")).await.ok(200);
            for markup in ["<svg onload", "<b>clerk", "<i>\u{2066}", "<script>\"", "\u{202e}", "\u{200b}", "\u{2066}"] {
                assert!(!page.text.contains(markup), "{path}: {markup:?}");
            }
        }
        let queue = asha.page("/").await;
        assert!(queue.text.contains("&lt;/script&gt;&lt;svg onload=alert(1)&gt; [x](javascript:alert(1)) {{7*7}}"));
        assert!(queue.text.contains("data-cp=\"202E\"") && queue.text.contains("1 hidden character") && queue.text.contains("Look-alike name"));
        assert!(!queue.text.contains("href=\"javascript:"));
    }

    async fn a_page_without_a_session_leads_to_the_door_and_a_program_is_told(app: App) {
        app.person("asha", "approver", "approvers").await;
        let door = app.get("/runs?before=x").header("accept", "text/html").await;
        assert_eq!((door.status.as_u16(), door.header("location")), (303, "/sign-in?next=/runs%3Fbefore%3Dx"));
        let form = format!("name=asha&password={}&next=//evil.example.test", percent(PASSWORD));
        let inside = app.call(Method::POST, "/sign-in").raw(FORM, form).header("origin", crate::support::PUBLIC_URL).await;
        assert_eq!((inside.status.as_u16(), inside.header("location")), (303, "/"));
        let wrong = app.call(Method::POST, "/sign-in").raw(FORM, "name=asha&password=x").header("origin", crate::support::PUBLIC_URL);
        let wrong = wrong.header("accept", "text/html").await.ok(401);
        assert!(wrong.text.contains("The name or the password is not right.") && wrong.text.contains("value=\"asha\""));
        app.get("/no-such-page").await.refused(404, "not_found");
    }

    async fn refusals_of_pages_are_pages_with_a_way_on(app: App) {
        let asha = app.person("asha", "approver", "approvers").await;
        for (reply, status, words) in [
            (asha.page("/no-such-page").await, 404, "There is nothing here for you"),
            (asha.page("/runs/run_nonsense").await, 404, "There is nothing here for you"),
            (asha.send("/runs", &[]).await, 405, "does not take that method"),
            (asha.send("/settings/people", &[("name", "x")]).await, 403, "may not do that"),
            (asha.send("/sign-out", &[]).header("origin", "https://evil.example.test").await, 403, "did not come from this site"),
            (asha.page("/problems/no_such_code").await, 404, "There is nothing here for you"),
        ] {
            let page = reply.ok(status);
            assert!(page.text.contains(words), "{}", page.text);
            assert!(page.header("content-type").starts_with("text/html"));
            assert!(page.text.contains("href=\"/\"") && page.text.contains("href=\"/problems/"), "{}", page.text);
            let policy = page.header("content-security-policy");
            let nonce = between(policy, "'nonce-", "'");
            assert_eq!(page.text.matches("<script").count(), page.text.matches(&format!("nonce=\"{nonce}\"")).count(), "{policy}");
        }
        let signed_in = asha.page("/no-such-page").await;
        assert!(signed_in.text.contains("<b>asha</b>"), "the bar stays");
        asha.page("/").await.ok(200);
    }

    async fn a_bulk_is_exactly_what_was_ticked_and_a_resend_decides_nothing_twice(app: App) {
        let (asha, _, run) = app.world().await;
        let (one, two, left) = (run.ticket("One").await, run.ticket("Two").await, run.ticket("Left").await);
        let grave = run.release("prod-eu", 41).await.ok(201).operation().clone();
        let id = |operation: &serde_json::Value| operation["id"].as_str().unwrap().to_owned();
        let picks: Vec<_> = [&one, &two, &grave].map(|operation| format!("pick={}", id(operation))).into();
        let confirm = asha.page(&format!("/decide?{}", picks.join("&"))).await.ok(200);
        assert_eq!(heading(&confirm), "Decide 2 operations");
        for operation in [&one, &two] {
            assert!(confirm.text.contains(operation["fingerprint"].as_str().unwrap()));
        }
        assert!(confirm.text.contains("critical risk is decided one at a time"));
        let form = confirm.text.split("<form").find(|form| form.contains("value=\"approve\"")).unwrap();
        let items: Vec<_> = form.split("name=\"item\" value=\"").skip(1).map(|item| item.split('"').next().unwrap()).collect();
        assert_eq!(items.len(), 2, "{form}");
        let mut fields: Vec<_> = items.iter().map(|item| ("item", *item)).collect();
        fields.push(("decision", "approve"));

        for _ in 0..2 {
            let answer = asha.send("/decide", &fields).await.ok(200);
            assert_eq!(heading(&answer), "2 of 2 approved");
        }
        let granted = app.events().await.into_iter().filter(|event| event == "approval.granted").count();
        assert_eq!(granted, 2);
        for untouched in [&left, &grave] {
            assert_eq!(run.read(untouched).await["state"], "pending");
        }
    }

    async fn no_get_of_a_page_changes_anything(app: App) {
        let ada = app.person("ada", "admin", "approvers").await;
        let (_, _, run) = app.world().await;
        let ticket = run.ticket("One").await;
        let id = ticket["id"].as_str().unwrap();
        let before = app.audit().await.len();
        for path in [
            "/", "/?lane=done", &format!("/decide?pick={id}&decision=approve"), &format!("/operations/{id}/row"), "/runs",
            &format!("/runs/{}", run.id), &format!("/runs/{}/stop?reason=x", run.id), "/sign-out", "/sign-in", "/problems",
            "/settings/policies", "/settings/policies?kind=ticket.create&target=project/ops&agent=deployer",
            "/settings/policies/edit", "/settings/kinds", "/settings/kinds/new", "/settings/kinds/ticket.create",
            "/settings/people", "/settings/agents", "/settings/executors", "/settings/pause", "/settings/pause/end",
            "/settings/sessions", "/settings/keyboard",
        ] {
            let reply = ada.page(path).await;
            assert!(reply.status.as_u16() < 500, "{path}: {}", reply.text);
        }
        assert_eq!(app.audit().await.len(), before);
        assert_eq!(run.read(&ticket).await["state"], "pending");
        ada.get("me").await.ok(200);
    }
}
