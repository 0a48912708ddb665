//! Kill -9 of the server, and of whoever carries a request out, at every point of the way: through the gateway and by an
//! executor, against providers of every guarantee. What the destination has made is read from its own ledger.

use std::collections::BTreeMap;

use counterfoil::{
    model::time::Timestamp,
    server::{clock::Clock, gateway, gateway::http, worker},
};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{
    Person, Program, fresh_key, id_of, postgres,
    process::{self, reached},
    provider::{Answer, Provider},
    succeeded,
};

/// Seconds until the provider of eventual look-ups shows what it has done.
const SETTLE_S: i64 = 30;
/// Seconds a claim lasts: longer than it takes to get to every point, so that none is in doubt before the last kill.
const CLAIM_TTL_S: i64 = 300;
/// Seconds for which a request may be under way at the provider.
const IN_FLIGHT_S: i64 = 1;
/// Seconds by which the clock moves on between two looks at what is left.
const TICK_S: i64 = 10;
/// Looks after which everything must have ended: beyond the claim, what may be under way, and the lag.
const LOOKS: usize = 60;

/// What the provider guarantees, and nothing besides.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Guarantee {
    Keys,
    Authoritative,
    Eventual,
    None,
}

const GUARANTEES: [Guarantee; 4] = [Guarantee::Keys, Guarantee::Authoritative, Guarantee::Eventual, Guarantee::None];

impl Guarantee {
    fn contract(self, provider: &Provider) -> Value {
        let (idempotency, lookup) = match self {
            Self::Keys => (json!({"header": "Idempotency-Key", "retention_s": 86_400}), json!("none")),
            Self::Authoritative => (json!("none"), json!("authoritative")),
            Self::Eventual => (json!("none"), json!({"eventual": {"settle_s": SETTLE_S}})),
            Self::None => (json!("none"), json!("none")),
        };
        let mut contract = provider.contract(json!({
            "idempotency": idempotency, "lookup": lookup, "max_in_flight_s": IN_FLIGHT_S, "kinds": ["payment.*"],
        }));
        contract["destination"].as_object_mut().unwrap().remove("credential_header");
        contract
    }
}

/// Where the server dies.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum Point {
    /// Inside a command, before it is committed.
    Proposing,
    Claiming,
    Sending,
    Concluding,
    /// The claim is on record.
    Claimed,
    /// `sent` is on record, and no byte has left.
    Sent,
    /// The destination has made the effect, and its answer is on its way.
    Made,
    /// The answer is here, and on no record.
    Answered,
    /// The outcome is on record.
    Concluded,
}

use Point::{Answered, Claimed, Claiming, Concluded, Concluding, Made, Proposing, Sending, Sent};

/// What sends on its own comes last: a server that starts again takes it up at once.
const OF_THE_GATEWAY: [Point; 6] = [Sent, Made, Answered, Concluding, Concluded, Sending];
const OF_AN_EXECUTOR: [Point; 9] = [Proposing, Claiming, Claimed, Sending, Sent, Made, Answered, Concluding, Concluded];

impl Point {
    /// The name at which the server is held, where it is held and not just killed.
    fn fault(self, way: Way) -> Option<&'static str> {
        match (way, self) {
            (Way::Gateway, Sending) => Some("gateway_sent"),
            (Way::Gateway, Sent) => Some("gateway_before_byte"),
            (Way::Gateway, Answered) => Some("gateway_after_reply"),
            (_, Proposing) => Some("after_key_claim"),
            (_, Claiming) => Some("after_claim"),
            (_, Sending) => Some("after_sent"),
            (_, Concluding) => Some("before_outcome"),
            (_, Claimed | Sent | Made | Answered | Concluded) => None,
        }
    }

    /// What is on record after it.
    fn state(self, way: Way) -> &'static str {
        match self {
            Proposing => "none",
            Sending if way == Way::Gateway => "approved",
            Claiming => "approved",
            Claimed | Sending => "claimed",
            Sent | Made | Answered | Concluding => "sent",
            Concluded => "succeeded",
        }
    }

    /// The effects of the destination at that moment.
    fn made(self) -> usize {
        usize::from(matches!(self, Made | Answered | Concluding | Concluded))
    }

    /// Whether nobody can tell any more what came of it.
    fn leaves_doubt(self) -> bool {
        matches!(self, Sent | Made | Answered | Concluding)
    }
}

/// Who carries it out.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Gateway,
    Executor,
}

/// One desk with one provider. At each point one operation is cut off; then the desk opens again on a later day.
struct Cell {
    way: Way,
    guarantee: Guarantee,
    provider: Provider,
    place: process::Place,
    asha: Person,
    run: Program,
    /// The key and body of the operation that was cut off at each point, in order.
    asked: Vec<(Point, String, Value)>,
}

impl Cell {
    async fn new(way: Way, guarantee: Guarantee, database: Option<String>) -> Self {
        let ttl = CLAIM_TTL_S.to_string();
        let mut place = process::Place::new(&[("COUNTERFOIL_CLAIM_TTL_S", &ttl)]);
        if let Some(url) = database {
            place.set("COUNTERFOIL_DATABASE_URL", &url);
        }
        let app = place.open(Clock::manual(Clock::system().now())).await;
        let (asha, _, run) = app.world().await;
        let ada = app.person("ada", "admin", "").await;
        let provider = Provider::start().await;
        provider.behave(|habits| habits.honours_keys = guarantee == Guarantee::Keys);
        ada.post("providers", guarantee.contract(&provider)).await.ok(201);
        if guarantee != Guarantee::None {
            let checked = ada.post("providers/payments/check", json!({})).await.ok(200);
            assert!(checked.body["checks"].as_array().unwrap().iter().all(|check| check["passed"] == true));
        }
        app.close().await;
        Self { way, guarantee, provider, place, asha, run, asked: Vec::new() }
    }

    fn body(&self, point: Point) -> Value {
        let target = format!("order/{point:?}").to_lowercase();
        let refund =
            json!({"order": &target[6..], "original_transaction": target, "amount_minor": 100, "currency": "EUR"});
        let request = json!({"destination": "payments", "method": "POST", "path": "/charges", "body": refund});
        match self.way {
            Way::Gateway => json!({"kind": "http.request", "target": target, "params": request}),
            Way::Executor => json!({"kind": "payment.refund", "target": target, "params": refund}),
        }
    }

    fn made(&self, op: &Value) -> usize {
        self.provider.effects().iter().filter(|effect| effect.key == id_of(op)).count()
    }

    /// Goes as far as `point`, and kills the server there.
    async fn cut_off(&mut self, point: Point) {
        let marker = self.place.folder().join(format!("{point:?}"));
        if let Some(fault) = point.fault(self.way) {
            self.place.set("COUNTERFOIL_FAULT", &format!("{fault}:{}", marker.display()));
        }
        self.provider.answers(if point == Made { Answer::Lost } else { Answer::Plain });
        let (key, body) = (fresh_key(), self.body(point));
        self.asked.push((point, key.clone(), body.clone()));
        let mut server = self.place.serve().await;
        let walk = Walk {
            way: self.way,
            point,
            client: self.place.client.clone(),
            desk: format!("{}/api/v1/operations", self.place.url),
            provider: format!("http://{}/charges", self.provider.address),
            token: self.run.token.clone(),
            cookie: self.asha.cookie.clone(),
            origin: self.place.url.clone(),
        };
        let before = self.provider.effects().len();
        let fault = point.fault(self.way);
        let there = async {
            match point {
                Made => self.provider.has_made(before + 1).await,
                _ => reached(&marker).await,
            }
        };
        tokio::select! {
            () = there => {}
            _ = walk.go(key, body) => assert!(fault.is_none() && point != Made, "{point:?} was not reached"),
        }
        server.signal("KILL");
        server.wait();
        self.place.unset("COUNTERFOIL_FAULT");
    }

    /// Opens the desk again, and goes on until nothing can be done any more. The end of each operation.
    async fn recover(&self) -> BTreeMap<String, String> {
        let app = self.place.open(Clock::manual(Clock::system().now())).await;
        let (asha, run) = (self.asha.at(&app), self.run.at(&app));
        self.provider.answers(Answer::Plain);
        let mut claims = Vec::new();
        for (point, key, _) in &self.asked {
            let found = run.get(&format!("operations/by-key/{key}")).await;
            let state = found.operation()["state"].as_str().unwrap_or("none").to_owned();
            assert_eq!((state.as_str(), point), (point.state(self.way), point), "{:?} {:?}", self.way, self.guarantee);
            assert!(state == "none" || self.made(found.operation()) == point.made(), "{point:?}");
            claims.extend(serde_json::from_value::<Timestamp>(found.operation()["claim"]["deadline_at"].clone()));
        }
        // As late as the provider may show what came to it in the last moment of the first claim.
        let shown_from = claims.iter().min().map(|claim| claim.plus_seconds(IN_FLIGHT_S + SETTLE_S)).unwrap();
        let mut ends = BTreeMap::new();
        for _ in 0..LOOKS {
            self.provider.behave(|habits| {
                habits.blind = self.guarantee == Guarantee::Eventual && app.clock.now() < shown_from;
            });
            worker::sweep(&app.desk).await.unwrap();
            worker::reconcile(&app.desk).await.unwrap();
            app.desk.gateway.forget("payments");
            gateway::step(&app.desk).await.unwrap();
            for (point, key, body) in &self.asked {
                if ends.contains_key(&format!("{point:?}")) {
                    continue;
                }
                let found = run.get(&format!("operations/by-key/{key}")).await;
                let op = if found.status == 404 {
                    run.propose_as(key, body.clone()).await.ok(201).operation().clone()
                } else {
                    found.operation().clone()
                };
                let state = self.go_on(&asha, &run, &op).await;
                if state == "succeeded" || state == "needs_review" {
                    let made = self.made(&op);
                    let is_right = made == 1 || (made == 0 && state == "needs_review");
                    assert!(is_right, "{:?} {:?} {point:?}: {state}, {made} effects", self.way, self.guarantee);
                    ends.insert(format!("{point:?}"), state);
                }
            }
            if ends.len() == self.asked.len() {
                break;
            }
            app.advance_s(TICK_S);
        }
        app.log_verifies().await;
        app.close().await;
        ends
    }

    /// What an executor that has started again does about an operation, and how that is afterwards. What was sent under
    /// its last claim may have arrived, so it is left alone.
    async fn go_on(&self, asha: &Person, run: &Program, op: &Value) -> String {
        if op["state"] == "pending" {
            asha.approve(id_of(op)).await.ok(200);
        }
        let claimed = match op["state"].as_str().unwrap() {
            "approved" | "claimed" | "unknown" | "pending" if self.way == Way::Executor => run.claim(op).await,
            state => return state.to_owned(),
        };
        if claimed.status == 200 {
            let claim = &claimed.body["claim"];
            if run.report(op, "sent", claim, json!({})).await.status == 200 {
                let call = http::builder().build().unwrap().post(format!("http://{}/charges", self.provider.address));
                let reply = call.header("idempotency-key", id_of(op)).json(&op["params"]).send().await.unwrap();
                let made = reply.json::<Value>().await.unwrap()["id"].as_str().unwrap().to_owned();
                run.report(op, "outcome", claim, succeeded(&made)).await.ok(200);
            }
        }
        run.read(op).await["state"].as_str().unwrap().to_owned()
    }
}

/// The agent, the person and the executor of one operation, until the server is gone.
struct Walk {
    way: Way,
    point: Point,
    client: reqwest::Client,
    desk: String,
    provider: String,
    token: String,
    cookie: String,
    origin: String,
}

impl Walk {
    async fn post(&self, path: &str, body: &Value) -> Option<Value> {
        let call = self.client.post(format!("{}{path}", self.desk)).bearer_auth(&self.token).json(body);
        let reply = call.send().await.ok()?;
        assert!(reply.status().is_success(), "{:?} {path}: {}", self.point, reply.text().await.unwrap());
        reply.json().await.ok()
    }

    async fn go(&self, key: String, body: Value) -> Option<()> {
        let call = self.client.post(&self.desk).bearer_auth(&self.token).header("idempotency-key", key).json(&body);
        let op = call.send().await.ok()?.json::<Value>().await.ok()?["operation"].clone();
        let id = id_of(&op).to_owned();
        let view = self.client.get(format!("{}/{id}", self.desk)).header("cookie", &self.cookie).send().await.ok()?;
        let vote = json!({
            "decision": "approve", "fingerprint": op["fingerprint"], "confirm_target": op["target"],
            "review_digest": view.json::<Value>().await.ok()?["review_digest"],
        });
        let call = self.client.post(format!("{}/{id}/decisions", self.desk)).header("cookie", &self.cookie);
        let voted = call.header("origin", &self.origin).json(&vote).send().await.ok()?;
        assert!(voted.status().is_success(), "{}", voted.text().await.unwrap());
        if self.way == Way::Gateway {
            return self.ended(&id).await;
        }
        let mut claim =
            self.post(&format!("/{id}/claim"), &json!({"fingerprint": op["fingerprint"]})).await?["claim"].clone();
        if self.point == Claimed {
            return Some(());
        }
        let mut report = json!({"claim_id": claim["id"].take(), "claim_fence": claim["claim_fence"].take()});
        report["fingerprint"] = op["fingerprint"].clone();
        self.post(&format!("/{id}/sent"), &report).await?;
        if self.point == Sent {
            return Some(());
        }
        let call = self.client.post(&self.provider).header("idempotency-key", &id).json(&op["params"]);
        let made = call.send().await.ok()?.json::<Value>().await.ok()?;
        if self.point == Answered {
            return Some(());
        }
        let report = json!({
            "claim_id": report["claim_id"], "claim_fence": report["claim_fence"], "status": "succeeded",
            "provider_reference": made["id"],
        });
        self.post(&format!("/{id}/outcome"), &report).await.map(drop)
    }

    /// Until the gateway has put the outcome on record.
    async fn ended(&self, id: &str) -> Option<()> {
        let mut known = String::new();
        loop {
            let call = self.client.get(format!("{}/{id}?wait=10", self.desk)).bearer_auth(&self.token);
            let reply = call.header("if-none-match", &known).send().await.ok()?;
            known = reply.headers()["etag"].to_str().unwrap().to_owned();
            if let Ok(read) = reply.json::<Value>().await
                && read["operation"]["state"] == "succeeded"
            {
                return Some(());
            }
        }
    }
}

async fn every_point(way: Way, guarantee: Guarantee, database: Option<String>) {
    let mut cell = Cell::new(way, guarantee, database).await;
    let points: &[Point] = if way == Way::Gateway { &OF_THE_GATEWAY } else { &OF_AN_EXECUTOR };
    for point in points {
        cell.cut_off(*point).await;
    }
    let ends = cell.recover().await;
    for point in points {
        let needs_a_person = guarantee == Guarantee::None && point.leaves_doubt();
        let end = if needs_a_person { "needs_review" } else { "succeeded" };
        assert_eq!(ends.get(&format!("{point:?}")).map(String::as_str), Some(end), "{way:?} {guarantee:?} {point:?}");
    }
}

async fn every_guarantee(way: Way, database: impl AsyncFn() -> Option<String>) {
    join_all(GUARANTEES.map(async |guarantee| every_point(way, guarantee, database().await).await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_of_the_gateway_at_any_point_leaves_one_effect_on_sqlite() {
    every_guarantee(Way::Gateway, async || None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_of_the_gateway_at_any_point_leaves_one_effect_on_postgres() {
    every_guarantee(Way::Gateway, async || Some(postgres::fresh_database().await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_under_an_executor_at_any_point_leaves_one_effect_on_sqlite() {
    every_guarantee(Way::Executor, async || None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_under_an_executor_at_any_point_leaves_one_effect_on_postgres() {
    every_guarantee(Way::Executor, async || Some(postgres::fresh_database().await)).await;
}
