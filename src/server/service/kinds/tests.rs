use serde_json::{Value, json};

use super::{
    CompiledKind, ConsequenceFacts, LinkedPayment, builtin,
    samples::{Sample, samples},
};
use crate::model::{
    kind::{Amount, Kind, Phrase},
    money::Currency,
    problem::{Code, Problem},
};

fn compiled(name: &str) -> CompiledKind {
    let kind = builtin().unwrap().into_iter().find(|kind| kind.name.as_str() == name).unwrap();
    CompiledKind::compile(kind, 1).unwrap()
}

fn sample(name: &str) -> Sample {
    samples().into_iter().find(|sample| sample.kind == name).unwrap()
}

/// `sample` with one parameter set, or removed by null.
fn varied(name: &str, param: &str, value: Value) -> Value {
    let mut params = sample(name).params;
    match value {
        Value::Null => params.as_object_mut().unwrap().remove(param),
        value => params.as_object_mut().unwrap().insert(param.to_owned(), value),
    };
    params
}

fn check(sample: &Sample) -> Result<super::Checked, Problem> {
    compiled(sample.kind).check(&sample.params, Some(sample.target), sample.source_event_id)
}

/// Pointer and detail of every place.
fn places(problem: &Problem) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    problem.members["errors"].as_array().unwrap().iter().map(|e| (text(&e["pointer"]), text(&e["detail"]))).collect()
}

#[derive(Default)]
struct Known {
    current: Option<Value>,
    payment: Option<LinkedPayment>,
}

/// Consequence and rollback.
fn sentences(sample: &Sample, known: &Known) -> (String, String) {
    let kind = compiled(sample.kind);
    let checked = kind.check(&sample.params, Some(sample.target), sample.source_event_id).unwrap();
    let facts = ConsequenceFacts {
        params: &checked.params,
        target: &checked.target,
        expected_version: sample.expected_version,
        current: known.current.as_ref(),
        payment: known.payment.as_ref(),
    };
    (kind.consequence(&facts), kind.rollback(&facts))
}

/// A small kind, with some members of its document replaced.
fn own(changes: Value) -> Result<CompiledKind, Problem> {
    let mut document = json!({
        "name": "flag.set", "title": "Set flag", "headline": "asks to set {flag}",
        "schema": {
            "type": "object",
            "properties": {
                "flag": {"type": "string", "maxLength": 300},
                "note": {"type": "string"},
                "share": {"type": "integer", "default": 100},
            },
            "required": ["flag"],
            "additionalProperties": false,
        },
        "target": "flag/{flag}", "verb": "update", "risk": "low",
        "consequence": "Sets {{ params.flag }}", "rollback": "Set it back",
    });
    for (name, value) in changes.as_object().unwrap() {
        document[name] = value.clone();
    }
    CompiledKind::compile(Kind::load(&document)?, 1)
}

fn own_sentence(consequence: &str, params: Value) -> String {
    let kind = own(json!({"consequence": consequence})).unwrap();
    let checked = kind.check(&params, None, None).unwrap();
    let (params, target) = (&checked.params, &checked.target);
    kind.consequence(&ConsequenceFacts { params, target, expected_version: None, current: None, payment: None })
}

#[test]
fn every_built_in_kind_compiles_and_has_a_valid_sample() {
    let kinds = builtin().unwrap();
    assert_eq!(kinds.len(), 15);
    for (kind, sample) in kinds.into_iter().zip(samples()) {
        assert_eq!(kind.name.as_str(), sample.kind);
        let risk = kind.risk;
        let checked = check(&sample).unwrap();
        assert_eq!(checked.target.as_str(), sample.target);
        assert!(checked.risk >= risk);
    }
}

#[test]
fn every_golden_vector_is_valid_as_it_stands() {
    let vectors: Value = serde_json::from_str(include_str!("../../../model/vectors/fingerprint-v1.json")).unwrap();
    for vector in vectors.as_array().unwrap() {
        let command = &vector["preimage"];
        let checked = compiled(command["kind"].as_str().unwrap())
            .check(&command["params"], command["target"].as_str(), command["source_event_id"].as_str())
            .unwrap();
        assert_eq!(checked.params, command["params"], "{}", vector["name"]);
    }
}

#[test]
fn a_default_left_out_and_a_default_written_out_are_one_command() {
    let written = check(&sample("ticket.create")).unwrap();
    let params = varied("ticket.create", "priority", Value::Null);
    assert_eq!(compiled("ticket.create").check(&params, None, Some("alert-7c91")).unwrap(), written);
}

#[test]
fn every_parameter_is_checked_for_presence_and_type() {
    for sample in samples() {
        let kind = compiled(sample.kind);
        let required = kind.kind.schema["required"].as_array().unwrap().clone();
        for (name, schema) in kind.kind.params() {
            let pointer = format!("/params/{name}");
            let check = |params| {
                kind.check(&params, Some(sample.target), None).map_err(|problem| {
                    assert_eq!(problem.code, Code::ValidationFailed);
                    places(&problem)
                })
            };
            let without = check(varied(sample.kind, name, Value::Null));
            match required.contains(&json!(name)) {
                true => assert_eq!(without.unwrap_err(), [(pointer.clone(), "is required".to_owned())]),
                false => assert!(without.is_ok(), "{} {name}", sample.kind),
            }
            if schema.get("type").is_none() {
                continue;
            }
            let mistyped = check(varied(sample.kind, name, json!(true))).unwrap_err();
            assert_eq!(mistyped[0].0, pointer);
            assert!(mistyped[0].1.starts_with("expected "), "{mistyped:?}");
        }
        let unknown = kind.check(&varied(sample.kind, "x/y", json!(1)), Some(sample.target), None).unwrap_err();
        assert_eq!(places(&unknown), [("/params/x~1y".to_owned(), format!("`{}` has no such parameter", sample.kind))]);
    }
}

#[test]
fn everything_that_is_wrong_is_listed() {
    let params = json!({"project": "", "priority": "asap", "x": 1});
    let problem = compiled("ticket.create").check(&params, None, None).unwrap_err();
    let mut found = places(&problem);
    found.sort();
    let expected = [
        ("/params/priority", "expected one of `\"low\"`, `\"normal\"`, `\"high\"`, `\"urgent\"`"),
        ("/params/project", "is empty"),
        ("/params/title", "is required"),
        ("/params/x", "`ticket.create` has no such parameter"),
    ];
    assert_eq!(found, expected.map(|(pointer, detail)| (pointer.to_owned(), detail.to_owned())));
    let problem = compiled("ticket.create").check(&json!([]), None, None).unwrap_err();
    assert_eq!(places(&problem), [("/params".to_owned(), "expected an object".to_owned())]);
}

#[test]
fn each_kind_refuses_what_its_rules_exclude() {
    use Code::{MutableReference, NumberOutOfRange, ValidationFailed};

    let long = |n| json!("x".repeat(n));
    let artifact = "sha256:".to_owned() + &"0".repeat(63);
    for (kind, param, value, code, detail) in [
        ("ticket.create", "title", long(301), ValidationFailed, "is longer than 300 characters"),
        ("ticket.create", "title", json!(""), ValidationFailed, "is empty"),
        ("ticket.create", "description", long(50_001), ValidationFailed, "is longer than 50000 characters"),
        ("ticket.create", "project", json!("ops/x"), ValidationFailed, "character 12 of the target is `/`"),
        ("ticket.create", "project", json!("\u{43e}ps"), ValidationFailed, "character 9 of the target is U+043E"),
        ("ticket.comment", "comment_id", json!(7), ValidationFailed, "expected a string"),
        ("ticket.comment", "body", json!(""), ValidationFailed, "is empty"),
        ("ticket.transition", "ticket", json!("OPS 482"), ValidationFailed, "character 11 of the target is U+0020"),
        ("ticket.transition", "to", json!(""), ValidationFailed, "is empty"),
        ("payment.authorize", "amount_minor", json!(0), ValidationFailed, "expected at least 1"),
        ("payment.authorize", "amount_minor", json!(-5), ValidationFailed, "expected at least 1"),
        ("payment.authorize", "amount_minor", json!(10.5), NumberOutOfRange, "expected an integer within ±(2^53−1)"),
        ("payment.authorize", "amount_minor", json!(1.0), NumberOutOfRange, "expected an integer within ±(2^53−1)"),
        ("payment.authorize", "amount_minor", json!(1_u64 << 53), NumberOutOfRange, "expected an integer within"),
        ("payment.authorize", "amount_minor", json!("14900"), ValidationFailed, "expected an integer"),
        ("payment.capture", "currency", json!("eur"), ValidationFailed, "does not match `^[A-Z]{3}$`: ISO 4217 code"),
        ("payment.capture", "currency", json!("EUR\n"), ValidationFailed, "does not match"),
        ("payment.refund", "currency", json!("XYZ"), ValidationFailed, "expected the code of an active currency"),
        ("payment.refund", "original_transaction", json!(""), ValidationFailed, "is empty"),
        ("deployment.release", "artifact", json!("latest"), MutableReference, "expected `sha256:` and 64"),
        ("deployment.release", "artifact", json!("shop/checkout:1.2"), MutableReference, "a tag can move"),
        ("deployment.release", "artifact", json!(artifact), MutableReference, "expected `sha256:`"),
        ("deployment.release", "artifact", json!("SHA256:".to_owned() + &"0".repeat(64)), MutableReference, ""),
        ("deployment.release", "artifact", json!("sha256:".to_owned() + &"A".repeat(64)), MutableReference, ""),
        ("deployment.release", "commit", json!("main"), MutableReference, "expected a full commit"),
        ("deployment.release", "commit", json!("b498bae"), MutableReference, "short hash can move"),
        ("deployment.release", "environment", json!("prod/eu"), ValidationFailed, "of the target is `/`"),
        ("deployment.release", "environment", json!("-prod"), ValidationFailed, "of the target is `-`"),
        ("deployment.rollback", "artifact", json!("v41"), MutableReference, "expected `sha256:`"),
        ("resource.replace", "value", json!({"deep": [{"share": 0.5}]}), NumberOutOfRange, ""),
        ("resource.update", "patch", json!("x"), ValidationFailed, "expected an object"),
        ("resource.delete", "value", json!({}), ValidationFailed, "`resource.delete` has no such parameter"),
        ("user.invite", "email", json!("nika"), ValidationFailed, "does not match"),
        ("user.invite", "email", json!("nika@@example.test"), ValidationFailed, "does not match"),
        ("user.invite", "email", json!("ni ka@example.test"), ValidationFailed, "character 8 of the target"),
        ("credential.delete", "system", json!("billing.sync"), ValidationFailed, "without a dot"),
        ("credential.delete", "credential", json!("key/07"), ValidationFailed, "of the target is `/`"),
        ("http.request", "method", json!("GET"), ValidationFailed, "expected one of `\"POST\"`"),
        ("http.request", "destination", json!("https://example.test"), ValidationFailed, "A registered destination"),
        ("http.request", "path", json!("v1"), ValidationFailed, "does not match"),
        ("http.request", "path", json!("/a?b"), ValidationFailed, "does not match"),
        ("http.request", "path", json!("//example.test/"), ValidationFailed, "is not allowed: Absolute path"),
        ("http.request", "path", json!("/v1/../admin"), ValidationFailed, "is not allowed"),
        ("http.request", "path", json!("/v1/%2e%2E/admin"), ValidationFailed, "is not allowed"),
        ("http.request", "path", json!("/v1%2f..%2fadmin"), ValidationFailed, "is not allowed"),
        ("http.request", "path", json!("/v1/."), ValidationFailed, "is not allowed"),
        ("http.request", "body", json!("text"), ValidationFailed, "expected a list or an object"),
    ] {
        let refused =
            compiled(kind).check(&varied(kind, param, value.clone()), None.or(Some(sample(kind).target)), None);
        let problem = refused.expect_err(&format!("{kind} {param} {value}"));
        assert_eq!(problem.code, code, "{kind} {param} {value}: {problem}");
        let places = places(&problem);
        assert!(places[0].0.starts_with(&format!("/params/{param}")), "{places:?}");
        assert!(places[0].1.contains(detail), "{kind} {param} {value}: {places:?}");
    }
    let query = json!({"page": 1});
    let problem =
        compiled("http.request").check(&varied("http.request", "query", query), Some("a/b"), None).unwrap_err();
    assert_eq!(places(&problem), [("/params/query/page".to_owned(), "expected a string".to_owned())]);
}

#[test]
fn paths_that_stay_where_they_point_are_accepted() {
    for path in ["/", "/v1/adjustments", "/v1/.well-known/x", "/a/..b", "/a/...", "/projects/team%2Frepo", "/a/b/"] {
        compiled("http.request").check(&varied("http.request", "path", json!(path)), Some("a/b"), None).expect(path);
    }
}

#[test]
fn the_target_follows_from_the_parameters_or_from_the_body_and_never_from_both() {
    let ticket = compiled("ticket.create");
    let params = sample("ticket.create").params;
    assert_eq!(ticket.check(&params, None, None).unwrap().target.as_str(), "project/ops");
    let problem = ticket.check(&params, Some("project/OPS"), None).unwrap_err();
    assert_eq!(problem.code, Code::ValidationFailed);
    let detail = "the parameters name `project/ops`: leave `target` out, or state the same";
    assert_eq!(places(&problem), [("/target".to_owned(), detail.to_owned())]);

    let resource = compiled("resource.delete");
    for (target, detail) in [
        (None, "`resource.delete` needs a target, such as `order/4711`"),
        (Some("flags"), "a target is `type/name`, and there is no `/`"),
        (Some("flags/\u{202e}iu"), "character 7 of the target is U+202E"),
    ] {
        let problem = resource.check(&json!({}), target, None).unwrap_err();
        assert_eq!(problem.code, Code::ValidationFailed);
        let [(pointer, found)] = &places(&problem)[..] else { panic!("{problem}") };
        assert_eq!(pointer, "/target");
        assert!(found.starts_with(detail), "{found}");
    }
}

#[test]
fn a_release_to_production_is_critical_however_it_is_spelled() {
    for (environment, risk) in [
        ("prod-eu", "critical"),
        ("production", "critical"),
        ("PROD", "critical"),
        ("staging", "high"),
        ("pro", "high"),
        ("xprod", "high"),
    ] {
        let params = varied("deployment.release", "environment", json!(environment));
        assert_eq!(compiled("deployment.release").check(&params, None, None).unwrap().risk.as_str(), risk);
    }
}

#[test]
fn a_business_key_names_the_event_and_nothing_else() {
    let key = |name: &str, params: &Value, event| compiled(name).check(params, None, event).unwrap().business_key;

    let ticket = sample("ticket.create").params;
    let retitled = varied("ticket.create", "title", json!("Another title"));
    let elsewhere = varied("ticket.create", "project", json!("web"));
    assert_eq!(key("ticket.create", &ticket, None), None);
    assert!(key("ticket.create", &ticket, Some("e1")).is_some());
    assert_eq!(key("ticket.create", &ticket, Some("e1")), key("ticket.create", &retitled, Some("e1")));
    assert_ne!(key("ticket.create", &ticket, Some("e1")), key("ticket.create", &ticket, Some("e2")));
    assert_ne!(key("ticket.create", &ticket, Some("e1")), key("ticket.create", &elsewhere, Some("e1")));

    let invite = sample("user.invite").params;
    assert_eq!(
        key("user.invite", &invite, None),
        key("user.invite", &varied("user.invite", "role", json!("admin")), Some("e1"))
    );
    assert_ne!(
        key("user.invite", &invite, None),
        key("user.invite", &varied("user.invite", "workspace", json!("x")), None)
    );

    let authorize = sample("payment.authorize").params;
    let larger = varied("payment.authorize", "amount_minor", json!(20_000));
    assert_eq!(key("payment.authorize", &authorize, None), key("payment.authorize", &larger, None));
    assert_eq!(key("payment.refund", &sample("payment.refund").params, None), None);
}

#[test]
fn the_consequence_and_the_way_back_of_every_kind() {
    let digest = |pair: &str| format!("sha256:{}", pair.repeat(32));
    let (new, old) = (digest("2b"), digest("cf"));
    let votes = "It is a new operation with its own votes";
    let lost = "payee, amount and invoice of that payment are not known here";
    for (kind, consequence, rollback) in [
        ("ticket.create", "Creates ticket \"Rotate staging certificate\" in project ops".to_owned(), "Close the ticket".to_owned()),
        (
            "ticket.comment",
            "Comments \"The new certificate is in place.\" on ticket OPS-482".to_owned(),
            "Delete the comment at the tracker; whoever was notified has read it".to_owned(),
        ),
        (
            "ticket.transition",
            "Moves OPS-482 from in_progress to done".to_owned(),
            "Propose ticket.transition from done back to in_progress".to_owned(),
        ),
        (
            "payment.authorize",
            "Reserves EUR 149.00 for customer 3318, invoice INV-2291, on order 4711".to_owned(),
            "Void the authorisation at the provider while nothing of it is captured; until then no money has moved".to_owned(),
        ),
        (
            "payment.capture",
            format!("Takes EUR 149.00 on order 4711 under authorisation auth_52d0; {lost}"),
            "A capture cannot be undone. Money goes back by payment.refund, a new operation with its own votes".to_owned(),
        ),
        (
            "payment.refund",
            format!("Returns EUR 86.40 on order 4711 from transaction txn_7c20; {lost}"),
            "A refund cannot be undone. Taking the money again needs a new authorisation and capture".to_owned(),
        ),
        (
            "deployment.release",
            format!("Puts checkout {new} on prod-eu, where what runs now is not known here; deployment.rollback undoes it"),
            format!("Propose deployment.rollback with the artifact that runs now; which one that is, is not known here. {votes}"),
        ),
        (
            "deployment.rollback",
            format!("Puts checkout {old} back on prod-eu, where what runs now is not known here; deployment.release undoes it"),
            format!("Propose deployment.release with the artifact that runs now; which one that is, is not known here. {votes}"),
        ),
        (
            "resource.create",
            "Creates notification-policy/staging-alerts with destinations and severity".to_owned(),
            "Propose resource.delete. Its history stays".to_owned(),
        ),
        (
            "resource.replace",
            "Replaces all of version 7 with enabled and max".to_owned(),
            "Propose resource.replace with the value of version 7, which the history keeps".to_owned(),
        ),
        (
            "resource.update",
            "Changes quiet_hours.from and quiet_hours.to and removes severity on version 12".to_owned(),
            "Propose resource.replace with the value of version 12, which the history keeps".to_owned(),
        ),
        (
            "resource.delete",
            "Deletes notification-policy/staging-alerts at version 12".to_owned(),
            "Propose resource.create with the value of version 12, which the history keeps; its version goes on from there".to_owned(),
        ),
        (
            "user.invite",
            "Invites nika@example.test to workspace payments as member".to_owned(),
            "Withdraw the invitation, or remove the member once it is accepted; what was read meanwhile stays read".to_owned(),
        ),
        (
            "credential.delete",
            "Removes key-07 of billing-sync. It cannot be undone".to_owned(),
            "It cannot be undone. A new credential has to be issued and given to whoever used this one".to_owned(),
        ),
        (
            "http.request",
            "Sends POST /v1/adjustments to destination ledger with 3 fields".to_owned(),
            "Not known here: it depends on what ledger does with the request".to_owned(),
        ),
    ] {
        assert_eq!(sentences(&sample(kind), &Known::default()), (consequence, rollback), "{kind}");
    }
}

#[test]
fn a_sentence_says_more_where_more_is_known() {
    let known = |current: Value| Known { current: Some(current), payment: None };
    let digest = |pair: &str| format!("sha256:{}", pair.repeat(32));
    let (new, old) = (digest("2b"), digest("cf"));

    let release = sample("deployment.release");
    let (consequence, rollback) = sentences(&release, &known(json!({"service": "checkout", "artifact": old})));
    assert_eq!(consequence, format!("Puts checkout {new} on prod-eu in place of {old}; deployment.rollback undoes it"));
    assert_eq!(
        rollback,
        format!("Propose deployment.rollback, which puts {old} back. It is a new operation with its own votes")
    );
    let (consequence, _) = sentences(&release, &known(json!({"service": "basket", "artifact": old})));
    assert_eq!(
        consequence,
        format!("Puts checkout {new} on prod-eu in place of basket {old}; deployment.rollback undoes it")
    );
    let (consequence, rollback) = sentences(&Sample { expected_version: Some(0), ..release }, &Known::default());
    assert_eq!(
        consequence,
        format!("Puts checkout {new} on prod-eu as its first release; deployment.rollback undoes it")
    );
    assert_eq!(rollback, "Nothing was released there before, so there is nothing to put back");

    let payment = Some(LinkedPayment {
        payee: "customer 3318".into(),
        invoice: "INV-2291".into(),
        amount: Amount { minor: 14_900, currency: Currency::parse("EUR").unwrap() },
    });
    let known_payment = Known { current: None, payment };
    assert_eq!(
        sentences(&sample("payment.capture"), &known_payment).0,
        "Takes EUR 149.00 of EUR 149.00 for customer 3318, invoice INV-2291, under authorisation auth_52d0"
    );
    assert_eq!(
        sentences(&sample("payment.refund"), &known_payment).0,
        "Returns EUR 86.40 of EUR 149.00 paid to customer 3318, invoice INV-2291, from transaction txn_7c20"
    );

    let replace = sample("resource.replace");
    assert_eq!(
        sentences(&replace, &known(json!({"enabled": true, "max": 5}))).0,
        "Replaces all of version 7: enabled stays true, max goes from 5 to 3"
    );
    assert_eq!(
        sentences(&replace, &known(json!({"max": 3, "owner": {"team": "web"}}))).0,
        "Replaces all of version 7: max stays 3, enabled is added as true, owner.team is removed"
    );
    let many: Value =
        (b'a'..=b'k').map(|c| (char::from(c).to_string(), json!(1))).collect::<serde_json::Map<_, _>>().into();
    let replace = Sample { params: json!({"value": many}), ..replace };
    assert_eq!(
        sentences(&replace, &known(json!({"a": 1, "b": 1, "c": 1, "d": 0}))).0,
        "Replaces all of version 7: 3 stay, d goes from 0 to 1, e is added as 1, f is added as 1, g is added as 1, 4 more change"
    );
    assert_eq!(sentences(&replace, &Known::default()).0, "Replaces all of version 7 with a, b, c, d and 7 more");

    let replace = |value: Value| Sample { params: json!({"value": value}), ..sample("resource.replace") };
    for (value, current, sentence) in [
        (json!(["b", "a"]), None, "Replaces all of version 7 with a list of 2"),
        (json!("é"), None, "Replaces all of version 7 with é"),
        (json!({}), None, "Replaces all of version 7 with no fields"),
        (json!(["b", "a"]), Some(json!(["a", "b"])), "Replaces all of version 7: the value changes"),
        (json!({"a": {}}), Some(json!({"a": null})), "Replaces all of version 7: a goes from null to an empty object"),
        (
            json!("x".repeat(41)),
            Some(json!(3)),
            "Replaces all of version 7: the value goes from 3 to a text of 41 characters",
        ),
    ] {
        assert_eq!(sentences(&replace(value), &Known { current, payment: None }).0, sentence);
    }

    let update = |patch: Value| Sample { params: json!({"patch": patch}), ..sample("resource.update") };
    assert_eq!(sentences(&update(json!({"a": {"b": null}})), &Known::default()).0, "Removes a.b on version 12");
    assert_eq!(sentences(&update(json!({})), &Known::default()).0, "Changes nothing on version 12");

    let ticket = Sample { params: varied("ticket.create", "priority", json!("urgent")), ..sample("ticket.create") };
    assert_eq!(
        sentences(&ticket, &Known::default()).0,
        "Creates ticket \"Rotate staging certificate\" in project ops, priority urgent"
    );
    let comment =
        Sample { params: varied("ticket.comment", "body", json!("é".repeat(5000))), ..sample("ticket.comment") };
    assert_eq!(sentences(&comment, &Known::default()).0, "Adds a comment of 5000 characters to ticket OPS-482");
    let request =
        json!({"destination": "ledger", "method": "DELETE", "path": "/v1/x", "query": {"force": "yes"}, "body": [1]});
    let request = Sample { params: request, ..sample("http.request") };
    assert_eq!(
        sentences(&request, &Known::default()).0,
        "Sends DELETE /v1/x to destination ledger with query force with 1 element"
    );
}

#[test]
fn the_headline_keeps_our_words_and_the_agents_values_apart() {
    use Phrase::{Value as V, Words as W};

    let headline = |name: &str| {
        let checked = check(&sample(name)).unwrap();
        compiled(name).kind.headline_of(&checked.params, &checked.target)
    };
    let parts = [W("asks to release ".into()), V("checkout".into()), W(" to ".into()), V("prod-eu".into())];
    assert_eq!(headline("deployment.release"), parts);
    let text = |name: &str| headline(name).iter().map(Phrase::as_str).collect::<String>();
    assert_eq!(text("payment.refund"), "asks to refund EUR 86.40 on order 4711");
    assert_eq!(text("resource.update"), "asks to update notification-policy/staging-alerts");
    assert_eq!(text("http.request"), "asks to send POST /v1/adjustments to ledger");
}

#[test]
fn what_an_agent_writes_is_never_a_template_nor_markup() {
    for text in ["{{7*7}}", "{% for x in y %}", "<img src=\"x\" onerror=\"alert(1)\">", "</script><b>", "{# #}", "a\nb"]
    {
        let ticket = Sample { params: varied("ticket.create", "title", json!(text)), ..sample("ticket.create") };
        assert_eq!(sentences(&ticket, &Known::default()).0, format!("Creates ticket \"{text}\" in project ops"));
    }
    let headline = own(json!({})).unwrap().kind.headline_of(&json!({"flag": "{flag}"}), &"flag/x".parse().unwrap());
    assert_eq!(headline[1], Phrase::Value("{flag}".into()));
}

#[test]
fn a_parameter_left_out_is_said_to_be_left_out() {
    assert_eq!(own_sentence("{{ params.note }}, {{ params.share }} %", json!({"flag": "x"})), "not given, 100 %");
    assert_eq!(own_sentence("{% if params.note %}a{% else %}b{% endif %}", json!({"flag": "x"})), "b");
}

#[test]
fn a_sentence_that_cannot_be_written_says_so() {
    let fallback = "Set flag flag/x: what it does cannot be summed up here, read the content";
    for template in [
        "{{ current.anything.deep }}",
        "{{ params.flag / 2 }}",
        "{% for a in params.flag * 100000 %}{% for b in params.flag * 100000 %}x{% endfor %}{% endfor %}",
        "{{ params.flag * 9000 }}",
        "{% if params.note %}x{% endif %}",
    ] {
        assert_eq!(own_sentence(template, json!({"flag": "x"})), fallback, "{template}");
    }
}

#[test]
fn a_template_that_could_not_work_is_refused_when_the_kind_is_added() {
    for (template, detail) in [
        ("{{ params.flag", "syntax error"),
        ("{{ parms.flag }}", "`parms.flag` is none of params, target"),
        ("{{ params.flags }}", "`params.flags` is none of"),
        ("{{ range(10) }}", "`range` is none of"),
        ("{% include 'x' %}", "syntax error"),
        ("{{ params.flag|nope }}", "unknown filter"),
    ] {
        for member in ["consequence", "rollback"] {
            let problem = own(json!({member: template})).expect_err(template);
            let (pointer, found) = places(&problem)[0].clone();
            assert_eq!((problem.code, pointer), (Code::ValidationFailed, format!("/{member}")));
            assert!(found.contains(detail), "{template}: {found}");
        }
    }
}

#[test]
fn a_schema_is_compiled_alone_and_strictly() {
    let with = |flag: Value| {
        own(json!({"schema": {
            "type": "object", "properties": {"flag": flag}, "required": ["flag"], "additionalProperties": false,
            "$defs": {"short": {"maxLength": 3}},
        }}))
    };
    for flag in [
        json!({"type": "string", "$ref": "https://example.test/schema.json"}),
        json!({"type": "string", "$ref": "file:///etc/hostname"}),
        json!({"type": "string", "$ref": "#/$defs/none"}),
        json!({"type": "string", "pattern": "("}),
        json!({"type": "string", "pattern": "(a)\\1"}),
        json!({"type": "string", "format": "no-such-format"}),
        json!({"type": "string", "maxLength": "3"}),
    ] {
        let problem = with(flag.clone()).expect_err(&flag.to_string());
        assert_eq!(problem.code, Code::ValidationFailed);
        assert!(places(&problem)[0].0.starts_with("/schema"), "{problem}");
    }
    let local = with(json!({"type": "string", "$ref": "#/$defs/short"})).unwrap();
    let problem = local.check(&json!({"flag": "long"}), None, None).unwrap_err();
    assert_eq!(places(&problem), [("/params/flag".to_owned(), "is longer than 3 characters".to_owned())]);

    let slow = with(json!({"type": "string", "pattern": "^(a+)+$"})).unwrap();
    assert!(slow.check(&json!({"flag": "a".repeat(50_000) + "!"}), None, None).is_err());
}
