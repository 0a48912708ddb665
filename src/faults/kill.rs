//! Kill -9 of a real server while it sends, at points proved reached, in real time: one request, whatever is lost with
//! the process, makes one effect at most.

use futures::{StreamExt, stream};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    cells::{Arm, Contract, Fate},
    provider::{Plan, Providers},
    support::{
        fresh_key, id_of, postgres,
        process::{Place, reached},
    },
};

/// Around the first byte and around the record of the reply.
const POINTS: [&str; 4] = ["gateway_sent", "gateway_before_byte", "gateway_after_reply", "before_outcome"];
const CONTRACTS: [Contract; 4] = [Contract::Keys, Contract::Authoritative, Contract::Eventual, Contract::Nothing];
/// Servers at a time.
const AT_ONCE: usize = 6;
/// Long polls until an outcome has to be there or before a person.
const PATIENCE: usize = 30;

/// What became of one kill.
#[derive(Debug, Clone, Serialize)]
pub struct Killed {
    pub arm: Arm,
    pub contract: Contract,
    pub point: &'static str,
    pub effects: usize,
    pub state: String,
}

impl Killed {
    /// At most one effect, and one unless a person has it; a person is needed only without a guarantee.
    pub fn holds(&self) -> bool {
        match self.state.as_str() {
            "succeeded" => self.effects == 1,
            "needs_review" => self.effects <= 1 && self.contract == Contract::Nothing,
            _ => false,
        }
    }
}

/// Every point at every provider on both databases, once.
pub async fn all(providers: &Providers) -> Vec<Killed> {
    let arms = [Arm::GatewaySqlite, Arm::GatewayPostgres];
    let cells = arms.into_iter().flat_map(|arm| CONTRACTS.map(|contract| (arm, contract)));
    let cells = cells.flat_map(|(arm, contract)| POINTS.map(|point| (arm, contract, point)));
    let killed = stream::iter(cells).map(|(arm, contract, point)| one(providers, arm, contract, point));
    killed.buffer_unordered(AT_ONCE).collect().await
}

async fn one(providers: &Providers, arm: Arm, contract: Contract, point: &'static str) -> Killed {
    // What was sent before the kill is in doubt once its claim has run out.
    let mut settings = vec![("COUNTERFOIL_CLAIM_TTL_S", "5")];
    let database = if arm.is_on_postgres() { postgres::fresh_database().await } else { String::new() };
    if arm.is_on_postgres() {
        settings.push(("COUNTERFOIL_DATABASE_URL", &database));
    }
    let mut desk = Place::new(&settings);
    let marker = desk.folder().join("reached");
    desk.set("COUNTERFOIL_FAULT", &format!("{point}:{}", marker.display()));
    let mut server = desk.serve().await;
    let cookie = desk.person("asha", "approver", "approvers").await;
    desk.person("omar", "viewer", "none").await;
    let agent = desk.cli(&["agent", "add", "sender", "--owner", "omar"], "");
    let run = desk.start_run(&agent).await;
    let name = contract.name();
    desk.cli(&["provider", "add", "-"], &declaration(contract, &providers.url).to_string());
    desk.cli(&["provider", "credential", name], "Bearer simulated");
    if contract.is_checkable() {
        desk.cli(&["provider", "check", name], "");
    }

    let order = format!("kill-{}-{point}", arm.slug());
    let lag_ms = if contract == Contract::Eventual { 1_500 } else { 0 };
    let fates = vec![Fate::Answered { after_ms: 0 }; 3];
    providers.plan(contract, &order, &Plan { fates, lag_ms, gains_ms: 0 }).await;
    let sent = json!({"order": order, "amount_minor": 5});
    let params = json!({"destination": name, "method": "POST", "path": format!("/{name}/effects"), "body": sent});
    let body = json!({"kind": "http.request", "target": format!("order/{order}"), "params": params});
    let call = desk.post("operations", &run, &body).header("idempotency-key", fresh_key());
    let op = call.send().await.unwrap().json::<Value>().await.unwrap()["operation"].clone();
    let path = format!("operations/{}", id_of(&op));
    let view = desk.look(&path, &cookie).send().await.unwrap().json::<Value>().await.unwrap();
    let vote = json!({
        "decision": "approve", "fingerprint": op["fingerprint"], "review_digest": view["review_digest"],
        "confirm_target": op["target"],
    });
    assert_eq!(desk.send(&format!("{path}/decisions"), &cookie, &vote).send().await.unwrap().status(), 200);
    reached(&marker).await;
    server.signal("KILL");
    server.wait();
    desk.unset("COUNTERFOIL_FAULT");
    let _server = desk.serve().await;
    let (mut known, mut state) = (String::new(), String::new());
    for _ in 0..PATIENCE {
        let read = desk.get(&format!("{path}?wait=5"), &run).header("if-none-match", &known).send().await.unwrap();
        known = read.headers()["etag"].to_str().unwrap().to_owned();
        let Ok(now) = read.json::<Value>().await else { continue };
        state = now["operation"]["state"].as_str().unwrap().to_owned();
        if matches!(state.as_str(), "succeeded" | "needs_review" | "failed" | "expired") {
            break;
        }
    }
    desk.log_verifies();
    let effects = providers.ledger(contract, &order).await.len();
    Killed { arm, contract, point, effects, state }
}

/// With bounds that a test can wait for.
fn declaration(contract: Contract, url: &str) -> Value {
    let mut declaration = contract.declaration(url);
    declaration["destination"]["timeout_s"] = json!(1);
    if contract.in_flight_ms().is_some() {
        declaration["max_in_flight_s"] = json!(1);
    }
    if contract == Contract::Eventual {
        declaration["lookup"] = json!({"eventual": {"settle_s": 2}});
    }
    declaration
}
