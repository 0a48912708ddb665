//! Unknown outcomes: settled by evidence, tried again only under a guarantee, owned by a person otherwise.

use counterfoil::server::{config::Database, gateway::http, worker};
use serde_json::{Value, json};

use crate::support::{
    App, Person, Program, fresh_key, id_of, on_both_databases, process, provider::Provider, succeeded,
};

/// A desk with a provider that answers for the kind `payment.refund`, an approver, an operator, an admin and a run.
struct Desk {
    app: App,
    provider: Provider,
    asha: Person,
    omar: Person,
    olga: Person,
    admin: Person,
    run: Program,
}

impl Desk {
    /// `contract` replaces members of the declaration; what it declares is checked, and so proven.
    async fn new(app: App, contract: Value) -> Self {
        let (asha, omar, run) = app.world().await;
        let admin = app.person("ada", "admin", "").await;
        let olga = app.person("olga", "operator", "").await;
        let desk = Self { app, provider: Provider::start().await, asha, omar, olga, admin, run };
        desk.declare(contract).await;
        desk
    }

    async fn declare(&self, contract: Value) {
        let mut document = self.provider.contract(contract);
        document["kinds"] = json!(["payment.*"]);
        document["destination"].as_object_mut().unwrap().remove("credential_header");
        if let Some(away) = document.as_object_mut().unwrap().remove("away") {
            document["destination"]["check"]["base_url"] = document["destination"]["base_url"].take();
            document["destination"]["base_url"] = away;
        }
        self.admin.post("providers", document).await.ok(201);
        self.admin.post("providers/payments/check", json!({})).await;
    }

    async fn approved(&self, order: &str) -> Value {
        let params = json!({"order": order, "original_transaction": "t-1", "amount_minor": 100, "currency": "EUR"});
        let body = json!({"kind": "payment.refund", "target": format!("order/{order}"), "params": params});
        let op = self.run.propose_as(&fresh_key(), body).await.ok(201).operation().clone();
        self.asha.approve(id_of(&op)).await.ok(200);
        op
    }

    /// Approved, claimed and sent; nobody has an answer. The effect is made as `applied` says.
    async fn lost(&self, order: &str, applied: Applied) -> Value {
        let op = self.approved(order).await;
        self.run.send(&op).await;
        if applied == Applied::Yes {
            self.apply(&op).await;
        }
        self.app.advance_s(60);
        assert_eq!(self.read(&op).await["state"], "unknown");
        op
    }

    /// The effect is made under the operation's downstream key.
    async fn apply(&self, op: &Value) {
        let client = http::builder().build().unwrap();
        let request = client.post(format!("http://{}/charges", self.provider.address));
        let reply = request.header("idempotency-key", id_of(op)).json(&op["params"]).send().await.unwrap();
        assert!(reply.status().is_success());
    }

    async fn read(&self, op: &Value) -> Value {
        self.run.read(op).await
    }

    async fn step(&self) -> usize {
        worker::reconcile(&self.app.desk).await.unwrap()
    }

    async fn state(&self, op: &Value) -> Value {
        self.read(op).await["state"].clone()
    }

    /// After a look at everything.
    async fn settled(&self, op: &Value) -> Value {
        self.step().await;
        self.read(op).await
    }

    async fn retry(&self, person: &Person, op: &Value) -> crate::support::Reply {
        let body = json!({"fingerprint": op["fingerprint"], "note": "the provider was down"});
        person.post(&format!("operations/{}/retry-authorization", id_of(op)), body).await
    }

    async fn evidence(&self, op: &Value) -> Vec<Value> {
        let listed = self.olga.get(&format!("operations/{}/evidence", id_of(op))).await.ok(200);
        listed.body["evidence"].as_array().unwrap().clone()
    }

    /// What the command line tells of it, from an export that it has verified.
    async fn story(&self, op: &Value) -> String {
        let place = process::Place::new(&[]);
        let file = place.folder().join("export.jsonl").display().to_string();
        std::fs::write(&file, self.app.export().await).unwrap();
        let vkey = self.app.desk.signer().await.unwrap().verifier().to_string();
        place.cli(&["audit", "verify", &file, "--vkey", &vkey, "--operation", id_of(op)], "")
    }

    async fn state_as(&self, person: &Person, op: &Value, statement: Value) -> Value {
        let mut body =
            json!({"finding": "applied", "kind": "receipt", "observed_at": self.app.clock.now().to_string()});
        for (name, value) in statement.as_object().unwrap() {
            body[name] = value.clone();
        }
        let kept = person.post(&format!("operations/{}/evidence", id_of(op)), body).await.ok(201);
        kept.body["evidence"].clone()
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Applied {
    Yes,
    No,
}

fn no_keys() -> Value {
    json!({"idempotency": "none"})
}

on_both_databases! {
    async fn what_the_provider_has_done_is_found_by_its_downstream_key(app: App) {
        let desk = Desk::new(app, json!({})).await;
        let op = desk.lost("1", Applied::Yes).await;
        let done = desk.settled(&op).await;
        assert_eq!((&done["state"], &done["outcome"]["source"], &done["outcome"]["confirmed"]), (&json!("succeeded"), &json!("lookup"), &json!(true)));
        let kept = &desk.evidence(&op).await[0];
        assert_eq!((&kept["finding"], &kept["kind"], &kept["bound"], &kept["first_hand"]), (&json!("applied"), &json!("lookup"), &json!(true), &json!(true)));
        assert_eq!(done["outcome"]["provider_reference"], kept["reference"]);
        assert_eq!(desk.step().await, 0, "there is nothing left to do");
        assert!(desk.app.events().await.contains(&"reconcile.applied".to_owned()));
    }

    // Row 20: the provider is asked first, and remembers the key.
    async fn an_honoured_key_is_sent_again_by_a_claim_and_makes_one_effect(app: App) {
        let desk = Desk::new(app, json!({})).await;
        let op = desk.lost("1", Applied::No).await;
        let claim = json!({"fingerprint": op["fingerprint"]});
        let refused = desk.run.post(&format!("operations/{}/claim", id_of(&op)), claim.clone()).await.refused(409, "outcome_unknown");
        assert_eq!(refused.body["no_further_attempt"], "the provider has to be asked first");
        assert_eq!(desk.settled(&op).await["state"], "unknown", "a licence waits for whoever claims");
        let again = desk.run.send(&op).await;
        assert_eq!(again["claim_fence"], 2);
        assert_eq!(again["downstream_key"], op["id"]);
        assert!(desk.app.events().await.ends_with(&["attempt.licensed".to_owned(), "operation.claimed".to_owned(), "effect.resent".to_owned()]));
        desk.apply(&op).await;
        let done = desk.run.report(&op, "outcome", &again, succeeded("ch_1")).await.ok(200).operation().clone();
        assert_eq!((&done["state"], done["attempts"].as_array().unwrap().len()), (&json!("succeeded"), 2));
        assert_eq!(desk.provider.effects().iter().filter(|effect| effect.key == id_of(&op)).count(), 1);
    }

    async fn a_licensed_attempt_that_sends_nothing_leaves_the_doubt(app: App) {
        let desk = Desk::new(app, json!({})).await;
        let op = desk.lost("1", Applied::No).await;
        desk.step().await;
        let claim = desk.run.take(&op).await;
        desk.app.advance_s(60);
        assert_eq!(desk.state(&op).await, "unknown");
        desk.run.report(&op, "sent", &claim, json!({"fingerprint": op["fingerprint"]})).await.refused(409, "outcome_unknown");
        desk.run.take(&op).await;
        let proof = desk.olga.post(&format!("operations/{}/lookup", id_of(&op)), json!({})).await.ok(200);
        assert_eq!(proof.body["evidence"]["finding"], "not_applied");
        desk.apply(&op).await;
        let proof = desk.olga.post(&format!("operations/{}/lookup", id_of(&op)), json!({})).await.ok(200);
        assert_eq!((&proof.operation()["state"], &proof.operation()["outcome"]["source"]), (&json!("succeeded"), &json!("lookup")));
    }

    async fn three_attempts_are_all_there_are(app: App) {
        let desk = Desk::new(app, json!({})).await;
        let op = desk.lost("1", Applied::No).await;
        for _ in 0..2 {
            desk.step().await;
            desk.run.send(&op).await;
            desk.app.advance_s(60);
            assert_eq!(desk.state(&op).await, "unknown");
        }
        desk.step().await;
        desk.run.claim(&op).await.refused(409, "outcome_unknown");
        desk.app.advance_s(60);
        let done = desk.settled(&op).await;
        assert_eq!((&done["state"], &done["outcome"]["source"]), (&json!("failed"), &json!("lookup")), "absent, and nothing is under way any more");
    }

    // C25
    async fn an_empty_look_up_is_no_proof_before_both_bounds(app: App) {
        let mut contract = no_keys();
        contract["lookup"] = json!({"eventual": {"settle_s": 1}});
        let desk = Desk::new(app, contract).await;
        let op = desk.lost("1", Applied::No).await;
        desk.app.advance_s(1);
        assert_eq!(desk.settled(&op).await["state"], "unknown", "(a) an empty look-up after a second");
        desk.run.claim(&op).await.refused(409, "outcome_unknown");
        let word = json!({"finding": "not_applied", "kind": "statement", "observed_at": desk.app.clock.now().to_string()});
        let word = desk.run.post(&format!("operations/{}/evidence", id_of(&op)), word).await.ok(201);
        assert_eq!((&word.body["evidence"]["bound"], &word.body["evidence"]["first_hand"]), (&json!(false), &json!(false)));
        desk.state_as(&desk.olga, &op, json!({"reference": "ch_other", "note": "the same amount"})).await;
        assert_eq!(desk.settled(&op).await["state"], "unknown", "(b), (c) neither a word nor another record");
        desk.app.advance_s(3600);
        let done = desk.settled(&op).await;
        assert_eq!((&done["state"], &done["safe_new_key"]), (&json!("failed"), &json!(true)), "(d) both bounds and the approval are over");
        assert!(desk.app.events().await.contains(&"reconcile.not_applied".to_owned()));
        desk.apply(&op).await;
        let late = desk.olga.post(&format!("operations/{}/lookup", id_of(&op)), json!({})).await.ok(200);
        assert_eq!((&late.operation()["state"], &late.operation()["disputed"]), (&json!("failed"), &json!(true)), "(e)");
        assert!(late.operation()["review_case"]["owner"].is_null() && late.operation()["safe_new_key"] == false);
    }

    // C24
    async fn without_any_guarantee_a_person_owns_the_outcome(app: App) {
        let (asha, _, run) = app.world().await;
        let op = run.ticket("Rotate").await;
        asha.approve(id_of(&op)).await.ok(200);
        run.send(&op).await;
        app.advance_s(60);
        assert_eq!(run.read(&op).await["state"], "unknown");
        worker::reconcile(&app.desk).await.unwrap();
        let case = run.read(&op).await;
        assert_eq!((&case["state"], &case["review_case"]["overdue"]), (&json!("needs_review"), &json!(false)));
        assert!(case["review_case"]["due_at"].is_string());
        run.claim(&op).await.refused(409, "outcome_unknown");
        for seconds in [1, 3600, 24 * 3600] {
            app.advance_s(seconds);
            worker::reconcile(&app.desk).await.unwrap();
            assert_eq!(run.read(&op).await["state"], "needs_review", "time is not evidence");
        }
        assert_eq!(run.read(&op).await["review_case"]["overdue"], true);
    }

    async fn what_is_overdue_is_passed_on_and_nothing_else_follows(app: App) {
        let (asha, _, run) = app.world().await;
        app.rules(json!([{"name": "r", "require": {"review_owner": "olga", "review_due_s": 60, "escalation": ["oskar"]}}])).await;
        let op = run.ticket("Rotate").await;
        asha.approve(id_of(&op)).await.ok(200);
        run.send(&op).await;
        app.advance_s(60);
        run.read(&op).await;
        worker::reconcile(&app.desk).await.unwrap();
        for owner in ["olga", "oskar", "admins", "admins"] {
            let case = run.read(&op).await["review_case"].clone();
            assert_eq!((&case["owner"], &case["overdue"]), (&json!(owner), &json!(owner != "olga")));
            app.advance_s(60);
        }
        assert_eq!(run.read(&op).await["state"], "needs_review");
        assert_eq!(app.events().await.iter().filter(|event| *event == "review.overdue").count(), 4);
    }

    // Row 23
    async fn two_people_authorise_one_more_attempt_under_a_guarantee(app: App) {
        let desk = Desk::new(app, json!({})).await;
        let op = desk.lost("1", Applied::No).await;
        desk.provider.behave(|habits| habits.blind = true);
        desk.retry(&desk.olga, &op).await.refused(409, "invalid_state");
        desk.olga.post(&format!("operations/{}/lookup", id_of(&op)), json!({})).await.ok(200);
        let body = json!({"finding": "not_applied", "evidence": [], "note": "x"});
        desk.olga.post(&format!("operations/{}/resolution", id_of(&op)), body).await;
        assert_eq!(desk.state(&op).await, "needs_review", "an operator opened the case");
        desk.retry(&desk.omar, &op).await.refused(403, "self_approval");
        let other = json!({"fingerprint": format!("sha256:{}", "0".repeat(64)), "note": "x"});
        desk.olga.post(&format!("operations/{}/retry-authorization", id_of(&op)), other).await.refused(409, "approval_mismatch");
        for _ in 0..2 {
            let asked = desk.retry(&desk.olga, &op).await.ok(200);
            assert_eq!((&asked.operation()["state"], &asked.operation()["review_case"]["retry_asked_by"]), (&json!("needs_review"), &json!("olga")));
        }
        let given = desk.retry(&desk.asha, &op).await.ok(200);
        assert_eq!((&given.operation()["state"], &given.operation()["review_case"]), (&json!("unknown"), &json!(null)));
        desk.run.send(&op).await;
        assert_eq!(desk.state(&op).await, "sent");
        assert!(desk.app.events().await.contains(&"review.retry_authorized".to_owned()));
    }

    async fn no_attempt_is_authorised_without_a_guarantee(app: App) {
        let mut contract = no_keys();
        contract["lookup"] = json!("none");
        let desk = Desk::new(app, contract).await;
        let op = desk.lost("1", Applied::No).await;
        assert_eq!(desk.settled(&op).await["state"], "needs_review");
        let refused = desk.retry(&desk.olga, &op).await.refused(409, "invalid_state");
        assert!(refused.body["detail"].as_str().unwrap().contains("cannot be asked"), "{}", refused.text);
    }

    async fn a_record_of_the_same_amount_is_no_proof_and_the_right_reference_is(app: App) {
        let mut contract = no_keys();
        contract["lookup"] = json!("none");
        let desk = Desk::new(app, contract).await;
        let oskar = desk.app.person("oskar", "operator", "").await;
        let op = desk.lost("4711", Applied::Yes).await;
        desk.step().await;
        let path = format!("operations/{}/resolution", id_of(&op));
        let other = desk.state_as(&desk.olga, &op, json!({"reference": "re_other", "note": "EUR 1.00, same order"})).await;
        let on = |evidence: &Value| json!({"finding": "applied", "evidence": [evidence["id"]], "note": "seen in the console"});
        let refused = desk.olga.post(&path, on(&other)).await.refused(422, "validation_failed");
        assert!(refused.text.contains("same amount"), "{}", refused.text);
        let right = desk.state_as(&desk.olga, &op, json!({"reference": op["id"]})).await;
        assert_eq!(desk.olga.post(&path, on(&right)).await.ok(200).operation()["state"], "needs_review", "money takes two");
        let done = oskar.post(&path, on(&right)).await.ok(200);
        assert_eq!((&done.operation()["state"], &done.operation()["outcome"]["source"]), (&json!("succeeded"), &json!("operator")));
    }

    async fn the_audit_story_of_a_lost_reply_answers_the_three_questions(app: App) {
        let desk = Desk::new(app, json!({"idempotency": "none"})).await;
        let oskar = desk.app.person("oskar", "operator", "").await;
        let op = desk.lost("4711", Applied::No).await;
        desk.step().await;
        desk.app.advance_s(60);
        desk.step().await;
        let claim = desk.run.send(&op).await;
        desk.apply(&op).await;
        desk.app.advance_s(60);
        assert_eq!(desk.state(&op).await, "unknown", "the second reply is lost as well");
        desk.provider.behave(|habits| habits.blind = true);

        let path = format!("operations/{}", id_of(&op));
        let other = desk.state_as(&desk.olga, &op, json!({"reference": "re_other", "note": "EUR 1.00, same order"})).await;
        let on = |evidence: &Value| json!({"finding": "applied", "evidence": [evidence["id"]], "note": "seen in the console"});
        let resolve = |person: &Person, evidence: &Value| person.post(&format!("{path}/resolution"), on(evidence));
        assert!(resolve(&desk.olga, &other).await.refused(422, "validation_failed").text.contains("same amount"));
        let right = desk.state_as(&desk.olga, &op, json!({"reference": op["id"]})).await;
        let page = desk.asha.get(&format!("/operations/{}", id_of(&op))).await.ok(200).text;
        for heading in ["What was authorised", "What is the evidence", "Why another try"] {
            assert!(page.contains(heading), "{heading}");
        }
        resolve(&desk.olga, &right).await.ok(200);
        assert_eq!(resolve(&oskar, &right).await.ok(200).operation()["state"], "succeeded");

        let story = desk.story(&op).await;
        let answer = |question: &str| {
            let from = story.find(question).unwrap_or_else(|| panic!("{question}: {story}"));
            story[from..].split("\n\n").next().unwrap().to_owned()
        };
        let authorised = answer("What was authorised, and by whom?");
        for words in ["approval.granted", desk.asha.id.as_str(), op["fingerprint"].as_str().unwrap()] {
            assert!(authorised.contains(words), "{words}: {authorised}");
        }
        let again = answer("Why was another try justified?");
        assert!(again.contains("attempt.licensed") && again.contains("nothing was applied"), "{again}");
        let evidence = answer("What is the evidence of its outcome?");
        let names = |one: &Value| one["id"].as_str().unwrap().to_owned();
        for words in ["status not_applied", &names(&other), "is no proof", &names(&right), "review.seconded", "seen in the console"] {
            assert!(evidence.contains(words), "{words}: {evidence}");
        }
        assert!(answer("Who sent what, and what came back?").contains(claim["id"].as_str().unwrap()));
    }

    async fn a_look_up_confirms_what_was_only_reported_or_disputes_it(app: App) {
        let mut contract = no_keys();
        contract["lookup"] = json!({"eventual": {"settle_s": 30}});
        let desk = Desk::new(app, contract).await;
        let look = async |op: &Value| {
            desk.olga.post(&format!("operations/{}/lookup", id_of(op)), json!({})).await.ok(200).operation().clone()
        };
        for applied in [Applied::Yes, Applied::No] {
            let op = desk.approved(&format!("{applied:?}")).await;
            let claim = desk.run.send(&op).await;
            if applied == Applied::Yes {
                desk.apply(&op).await;
            }
            let reported = desk.run.report(&op, "outcome", &claim, succeeded("ch_1")).await.ok(200).operation().clone();
            assert_eq!(reported["outcome"]["confirmed"], false);
            desk.provider.behave(|habits| habits.blind = true);
            let early = look(&op).await;
            assert_eq!((&early["disputed"], &early["outcome"]), (&json!(false), &reported["outcome"]), "it may not show yet");
            desk.app.advance_s(30);
            desk.provider.behave(|habits| habits.blind = false);
            let late = look(&op).await;
            let (confirmed, disputed) = (json!(applied == Applied::Yes), json!(applied == Applied::No));
            assert_eq!((&late["state"], &late["outcome"]["source"]), (&json!("succeeded"), &json!("run")));
            assert_eq!((&late["outcome"]["confirmed"], &late["disputed"]), (&confirmed, &disputed));
        }
        assert!(desk.app.events().await.contains(&"evidence.confirmation".to_owned()));
    }

    async fn what_was_attached_to_evidence_is_erased_and_the_log_still_verifies(app: App) {
        let desk = Desk::new(app, json!({})).await;
        let op = desk.lost("4711", Applied::No).await;
        let seen = desk.state_as(&desk.olga, &op, json!({"reference": op["id"], "body": {"iban": "DE00 planted"}})).await;
        let url = match &desk.app.database {
            Database::Sqlite(path) => format!("sqlite:{}", path.display()),
            Database::Postgres(url) => url.clone(),
        };
        let place = process::Place::new(&[("COUNTERFOIL_DATABASE_URL", &url)]);
        let erase = |reason: &str| {
            let output = place.run(&["evidence", "erase", id_of(&seen), "--reason", reason], "");
            (output.status.success(), String::from_utf8(output.stderr).unwrap())
        };
        assert!(!erase(" ").0);
        assert_eq!(desk.evidence(&op).await[0]["body"], json!({"iban": "DE00 planted"}));
        assert!(erase("a person asked for it").0);
        let kept = desk.evidence(&op).await[0].clone();
        let mut rest = seen.clone();
        rest.as_object_mut().unwrap().remove("body");
        assert_eq!(kept, rest);
        assert!(erase("once more").1.contains("nothing is attached"));
        let story = desk.story(&op).await;
        assert!(story.contains("admin.body_erased") && story.contains("a person asked for it"), "{story}");
        assert!(!desk.app.export().await.contains("planted"));
    }

    async fn look_ups_that_fail_come_later_and_later_and_end_with_a_person(app: App) {
        let mut contract = no_keys();
        contract["away"] = json!("http://127.0.0.1:1");
        let desk = Desk::new(app, contract).await;
        let op = desk.lost("1", Applied::No).await;
        let mut asked = 0;
        for _ in 0..120 {
            asked += desk.step().await;
            desk.app.advance_s(1);
        }
        assert!((5..12).contains(&asked), "{asked}");
        assert_eq!(desk.state(&op).await, "needs_review");
        assert!(desk.evidence(&op).await.iter().all(|one| one["finding"] == "inconclusive"));
    }

    async fn nobody_asks_about_what_was_not_sent_or_cannot_be_asked(app: App) {
        let (asha, _, run) = app.world().await;
        let olga = app.person("olga", "operator", "").await;
        let op = run.ticket("Rotate").await;
        let path = format!("operations/{}/lookup", id_of(&op));
        olga.post(&path, json!({})).await.refused(409, "invalid_state");
        asha.post(&path, json!({})).await.refused(403, "forbidden");
        run.post(&path, json!({})).await.refused(403, "humans_only");
        asha.approve(id_of(&op)).await.ok(200);
        run.send(&op).await;
        olga.post(&path, json!({})).await.refused(409, "invalid_state");
    }
}
