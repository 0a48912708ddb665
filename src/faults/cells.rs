//! What is crossed with what: arms, contracts, injections.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How an intent is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// Another key for every attempt, as an agent does that reasons about a timeout.
    NewKey,
    /// The HTTP client repeats the request, which has no key.
    Transparent,
    /// Looks for the order first, and repeats what it does not find.
    VerifyThenRetry,
    /// Waits for a minute, looks, repeats.
    WaitThenRetry,
    /// One key for all attempts.
    SameKey,
    /// Through Counterfoil; the agent carries out what was approved.
    AgentSqlite,
    AgentPostgres,
    /// Through Counterfoil, which sends what was approved itself.
    GatewaySqlite,
    GatewayPostgres,
}

impl Arm {
    pub const ALL: [Self; 9] = [
        Self::NewKey,
        Self::Transparent,
        Self::VerifyThenRetry,
        Self::WaitThenRetry,
        Self::SameKey,
        Self::AgentSqlite,
        Self::AgentPostgres,
        Self::GatewaySqlite,
        Self::GatewayPostgres,
    ];

    pub fn is_desk(self) -> bool {
        matches!(self, Self::AgentSqlite | Self::AgentPostgres) || self.is_gateway()
    }

    pub fn is_gateway(self) -> bool {
        matches!(self, Self::GatewaySqlite | Self::GatewayPostgres)
    }

    pub fn is_on_postgres(self) -> bool {
        matches!(self, Self::AgentPostgres | Self::GatewayPostgres)
    }

    /// As the names of its orders begin.
    pub fn slug(self) -> &'static str {
        match self {
            Self::NewKey => "new",
            Self::Transparent => "http",
            Self::VerifyThenRetry => "verify",
            Self::WaitThenRetry => "wait",
            Self::SameKey => "same",
            Self::AgentSqlite => "agent-lite",
            Self::AgentPostgres => "agent-pg",
            Self::GatewaySqlite => "gateway-lite",
            Self::GatewayPostgres => "gateway-pg",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::NewKey => "new key",
            Self::Transparent => "transparent retry",
            Self::VerifyThenRetry => "verify, then retry",
            Self::WaitThenRetry => "wait, then retry",
            Self::SameKey => "same key",
            Self::AgentSqlite => "Counterfoil, agent sends, SQLite",
            Self::AgentPostgres => "Counterfoil, agent sends, PostgreSQL",
            Self::GatewaySqlite => "Counterfoil sends, SQLite",
            Self::GatewayPostgres => "Counterfoil sends, PostgreSQL",
        }
    }
}

/// What a provider guarantees, and keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Contract {
    /// Payments: one effect for a key within an hour.
    Keys,
    /// Refunds: no keys; what happened is found at once, and nothing acts later than a minute.
    Authoritative,
    /// Tickets: no keys; what happened is found within two minutes.
    Eventual,
    /// Configuration: found at once, but a request may act at any time.
    Unbounded,
    /// Deployments: a token below the highest seen is refused; found at once, and nothing acts later than a minute.
    Fenced,
    /// E-mail: no keys, and nobody to ask.
    Nothing,
}

impl Contract {
    pub const ALL: [Self; 6] =
        [Self::Keys, Self::Authoritative, Self::Eventual, Self::Unbounded, Self::Fenced, Self::Nothing];

    pub fn name(self) -> &'static str {
        match self {
            Self::Keys => "payments",
            Self::Authoritative => "refunds",
            Self::Eventual => "tickets",
            Self::Unbounded => "config",
            Self::Fenced => "deploys",
            Self::Nothing => "mail",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Keys => "payments: keys",
            Self::Authoritative => "refunds: authoritative look-up",
            Self::Eventual => "tickets: eventual look-up",
            Self::Unbounded => "config: look-up, unbounded",
            Self::Fenced => "deploys: fence, look-up",
            Self::Nothing => "mail: no guarantee",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|contract| contract.name() == name)
    }

    /// For how long a key is remembered.
    pub fn retention_ms(self) -> Option<i64> {
        (self == Self::Keys).then_some(3_600_000)
    }

    /// By how much a look-up may lag.
    pub fn settle_ms(self) -> Option<i64> {
        match self {
            Self::Authoritative | Self::Unbounded | Self::Fenced => Some(0),
            Self::Eventual => Some(120_000),
            Self::Keys | Self::Nothing => None,
        }
    }

    /// How late a request may still act.
    pub fn in_flight_ms(self) -> Option<i64> {
        match self {
            Self::Keys | Self::Authoritative | Self::Eventual | Self::Fenced => Some(60_000),
            Self::Unbounded | Self::Nothing => None,
        }
    }

    /// Whether it declares anything that a check could show.
    pub fn is_checkable(self) -> bool {
        self.retention_ms().is_some() || self.settle_ms().is_some()
    }

    pub fn fences(self) -> bool {
        self == Self::Fenced
    }

    /// As the desk is told; `url` is where the provider listens.
    pub fn declaration(self, url: &str) -> Value {
        let seconds = |ms: i64| ms / 1000;
        let name = self.name();
        let mut declaration = json!({
            "name": name, "title": self.title(), "kinds": [format!("sim.{name}")],
            "idempotency": self.retention_ms().map_or(json!("none"), |ms| {
                json!({"header": "Idempotency-Key", "retention_s": seconds(ms)})
            }),
            "lookup": match self.settle_ms() {
                None => json!("none"),
                Some(0) => json!("authoritative"),
                Some(ms) => json!({"eventual": {"settle_s": seconds(ms)}}),
            },
            "max_in_flight_s": self.in_flight_ms().map_or(json!("unbounded"), |ms| json!(seconds(ms))),
            "fences": self.fences(),
            "destination": {
                "base_url": url, "allow_private": ["127.0.0.1/32"], "timeout_s": 5, "concurrency": 64,
                "credential_header": "Authorization", "reference": "/id",
                "check": {
                    "method": "POST", "path": format!("/{name}/effects"),
                    "body": {"order": "check", "amount_minor": 1}, "other_body": {"order": "check", "amount_minor": 2},
                },
            },
        });
        if self.settle_ms().is_some() {
            let path = format!("/{name}/effects?key={{key}}");
            declaration["destination"]["lookup"] = json!({"path": path, "items": "/data", "echo": "/key"});
        }
        declaration
    }
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Injection {
    Nothing,
    RequestLost,
    ReplyLost,
    InternalErrorAfterCommit,
    BadGatewayAfterCommit,
    /// The reply is lost and the effect comes after a look-up has found nothing.
    LateCommit,
    /// The task reaches the agent twice.
    Redelivery,
    /// Five agents get the task at once.
    Copies,
    /// The agent dies with the claim in its hands, and another one gets the task.
    DiesAfterClaim,
    /// The agent dies with the request on record as sent, and nothing sent.
    DiesBeforeByte,
    RestartWithKey,
    RestartWithoutKey,
    /// The agent stops between its last check and its first byte, and goes on when another has taken over.
    Paused,
    /// The second attempt has another amount.
    ChangedParameter,
    /// The agent would send another amount than was approved.
    PayloadChanged,
    /// The approval runs out before it is used.
    Expiry,
    /// The approval is withdrawn before it is used.
    Withdrawal,
    /// The agent comes back after the provider has forgotten its keys.
    ProviderForgets,
    /// The task is delivered again after Counterfoil has forgotten the key.
    DeskForgets,
    /// The provider's clock gains ten minutes, and the agent comes back just before the key would be forgotten.
    ClockAhead,
    ClockBehind,
    /// The reply says yes and the provider's records say no; the task is delivered again.
    Contradiction,
    /// Three steps; the second's reply is lost, and the whole batch is delivered again.
    PartialBatch,
    /// Two real requests that look the same; the second's reply is lost.
    SecondRequest,
    /// Two agents deploy to one environment, each on the release it knows.
    TwoDeploys,
    /// Counterfoil's database goes away and comes back, again and again.
    DatabaseAway,
}

impl Injection {
    pub const ALL: [Self; 26] = [
        Self::Nothing,
        Self::RequestLost,
        Self::ReplyLost,
        Self::InternalErrorAfterCommit,
        Self::BadGatewayAfterCommit,
        Self::LateCommit,
        Self::Redelivery,
        Self::Copies,
        Self::DiesAfterClaim,
        Self::DiesBeforeByte,
        Self::RestartWithKey,
        Self::RestartWithoutKey,
        Self::Paused,
        Self::ChangedParameter,
        Self::PayloadChanged,
        Self::Expiry,
        Self::Withdrawal,
        Self::ProviderForgets,
        Self::DeskForgets,
        Self::ClockAhead,
        Self::ClockBehind,
        Self::Contradiction,
        Self::PartialBatch,
        Self::SecondRequest,
        Self::TwoDeploys,
        Self::DatabaseAway,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::RequestLost => "request lost",
            Self::ReplyLost => "reply lost",
            Self::InternalErrorAfterCommit => "500 after commit",
            Self::BadGatewayAfterCommit => "502 after commit",
            Self::LateCommit => "late commit",
            Self::Redelivery => "redelivery",
            Self::Copies => "five copies",
            Self::DiesAfterClaim => "death after the claim",
            Self::DiesBeforeByte => "death before the first byte",
            Self::RestartWithKey => "restart with key",
            Self::RestartWithoutKey => "restart without key",
            Self::Paused => "paused before its first byte",
            Self::ChangedParameter => "changed parameter",
            Self::PayloadChanged => "changed after approval",
            Self::Expiry => "approval expired",
            Self::Withdrawal => "approval withdrawn",
            Self::ProviderForgets => "provider forgot the key",
            Self::DeskForgets => "Counterfoil forgot the key",
            Self::ClockAhead => "clock ten minutes ahead",
            Self::ClockBehind => "clock ten minutes behind",
            Self::Contradiction => "contradictory evidence",
            Self::PartialBatch => "partial batch",
            Self::SecondRequest => "second real request",
            Self::TwoDeploys => "two deploys at once",
            Self::DatabaseAway => "database away",
        }
    }

    /// There is no approval and no database to lose without a desk, and the gateway does not stop for an agent.
    pub fn is_for(self, arm: Arm) -> bool {
        match self {
            Self::Expiry | Self::Withdrawal | Self::DatabaseAway => arm.is_desk(),
            Self::Paused | Self::DiesBeforeByte => !arm.is_gateway(),
            Self::DiesAfterClaim => arm.is_desk() && !arm.is_gateway(),
            _ => true,
        }
    }
}

/// Whether nobody has to find out what happened: whatever is lost on the way, the provider's guarantee settles it.
/// Everything else may end before a person.
pub fn is_decidable(contract: Contract, injection: Injection) -> bool {
    let knows = !matches!(contract, Contract::Nothing);
    match injection {
        Injection::Nothing
        | Injection::Redelivery
        | Injection::Copies
        | Injection::DiesAfterClaim
        | Injection::PayloadChanged
        | Injection::Expiry
        | Injection::Withdrawal
        | Injection::DeskForgets
        | Injection::TwoDeploys => true,
        Injection::ReplyLost
        | Injection::InternalErrorAfterCommit
        | Injection::BadGatewayAfterCommit
        | Injection::RestartWithKey
        | Injection::RestartWithoutKey
        | Injection::ChangedParameter
        | Injection::PartialBatch
        | Injection::SecondRequest => knows,
        Injection::RequestLost | Injection::LateCommit | Injection::DiesBeforeByte => {
            knows && contract != Contract::Unbounded
        }
        Injection::Paused => matches!(contract, Contract::Keys | Contract::Fenced),
        Injection::ProviderForgets | Injection::ClockAhead | Injection::ClockBehind => {
            knows && contract != Contract::Keys
        }
        Injection::Contradiction | Injection::DatabaseAway => false,
    }
}

/// The one limit that no desk can lift: a worker that stops between its last check and its first byte acts late, and a
/// provider that takes neither keys nor fences lets it.
pub fn may_duplicate(contract: Contract, injection: Injection) -> bool {
    injection == Injection::Paused && matches!(contract, Contract::Authoritative | Contract::Eventual)
}

/// What becomes of one request on its way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    Answered { after_ms: i64 },
    RequestLost,
    ReplyLost { commit_after_ms: i64 },
    Failed { status: u16 },
}
