//! Providers: what the systems downstream declare about a request whose answer was lost.
//!
//! A declaration licenses nothing by itself: each guarantee counts only while a check against the real destination, or
//! its sandbox, has shown it ([`Proofs`]).

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{
    destination::{Destination, is_free_header},
    problem::{Code, Problem},
    run_approval::KindGlob,
    strict,
    time::Timestamp,
};

/// Seconds for which a passed check counts: 30 days.
pub const PROOF_VALID_S: i64 = 30 * 24 * 3600;
/// Seconds any bound may declare: 400 days, longer than any provider keeps its keys.
const MAX_SECONDS: i64 = 400 * 24 * 3600;

/// Where a provider names no header for keys, the downstream key goes out under this one.
const KEY_HEADER: &str = "Idempotency-Key";

/// The name a kind refers to: `[a-z][a-z0-9-]{0,62}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ProviderName(String);

impl ProviderName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text names no provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected 1 to 63 lower-case letters, digits and `-`, beginning with a letter")]
pub struct InvalidProviderName;

impl FromStr for ProviderName {
    type Err = InvalidProviderName;

    fn from_str(text: &str) -> Result<Self, InvalidProviderName> {
        let right = text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.len() <= 63
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if right { Ok(Self(text.to_owned())) } else { Err(InvalidProviderName) }
    }
}

impl fmt::Display for ProviderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ProviderName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What a provider declares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    pub name: ProviderName,
    pub title: String,
    /// Kinds whose effects this provider makes, where the kind itself names none: `payment.*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<KindGlob>,
    pub idempotency: Idempotency,
    pub lookup: Lookup,
    pub max_in_flight_s: InFlight,
    /// It refuses a fencing token below the highest it has seen.
    pub fences: bool,
    /// Two people conclude what became of a lost answer, as they always do where money moves.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub two_people: bool,
    /// Where Counterfoil itself reaches it; without one it asks nothing and sends nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<Destination>,
}

/// Whether the same key makes the same request happen once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Idempotency {
    None,
    #[serde(untagged)]
    Honoured(Honoured),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Honoured {
    /// The header that carries the downstream key.
    pub header: String,
    /// Seconds for which the provider remembers a key, counted from its first use.
    pub retention_s: i64,
}

/// Whether it can be asked what became of a downstream key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lookup {
    /// What has been applied is found at once.
    Authoritative,
    /// What has been applied is found `settle_s` seconds later at the latest.
    Eventual {
        settle_s: i64,
    },
    None,
}

impl Lookup {
    /// Seconds by which an answer may lag behind the effect; `None` where nobody can be asked.
    pub fn lag_s(self) -> Option<i64> {
        match self {
            Lookup::Authoritative => Some(0),
            Lookup::Eventual { settle_s } => Some(settle_s),
            Lookup::None => None,
        }
    }
}

/// How long after the end of a claim what was sent under it may still be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InFlight {
    Unbounded,
    #[serde(untagged)]
    Seconds(i64),
}

impl InFlight {
    pub fn seconds(self) -> Option<i64> {
        match self {
            InFlight::Unbounded => None,
            InFlight::Seconds(seconds) => Some(seconds),
        }
    }
}

impl Contract {
    /// The header under which this provider takes the downstream key.
    pub fn key_header(&self) -> &str {
        match &self.idempotency {
            Idempotency::Honoured(honoured) => &honoured.header,
            Idempotency::None => KEY_HEADER,
        }
    }

    pub fn serves(&self, kind: &str) -> bool {
        self.kinds.iter().any(|glob| glob.matches(kind))
    }

    /// Reads a declaration.
    ///
    /// # Errors
    /// `validation_failed` with the JSON pointer of the first place that does not fit.
    pub fn read(document: &Value) -> Result<Self, Problem> {
        let contract: Self = strict::read(document)?;
        let refuse = |pointer: &str, detail: String| Err(Problem::at(Code::ValidationFailed, pointer, detail));
        if contract.title.trim().is_empty() || contract.title.chars().count() > 100 {
            return refuse("/title", "expected 1 to 100 characters".to_owned());
        }
        let in_range = |seconds: i64, least: i64| (least..=MAX_SECONDS).contains(&seconds);
        if let Idempotency::Honoured(honoured) = &contract.idempotency {
            if !is_free_header(&honoured.header) {
                let detail = "expected the name of a header that Counterfoil does not set itself";
                return refuse("/idempotency/header", detail.to_owned());
            }
            if !in_range(honoured.retention_s, 1) {
                return refuse("/idempotency/retention_s", format!("expected 1 to {MAX_SECONDS} seconds"));
            }
        }
        if let Lookup::Eventual { settle_s } = contract.lookup
            && !in_range(settle_s, 1)
        {
            return refuse("/lookup/eventual/settle_s", format!("expected 1 to {MAX_SECONDS} seconds"));
        }
        if contract.max_in_flight_s.seconds().is_some_and(|seconds| !in_range(seconds, 0)) {
            return refuse("/max_in_flight_s", format!("expected 0 to {MAX_SECONDS} seconds, or `unbounded`"));
        }
        if let Some(destination) = &contract.destination {
            destination.check()?;
            let key = contract.key_header();
            if destination.credential_header.as_ref().is_some_and(|header| header.eq_ignore_ascii_case(key)) {
                let detail = "this header carries the downstream key; the credential takes another";
                return refuse("/destination/credential_header", detail.to_owned());
            }
        }
        Ok(contract)
    }

    /// What is promised about a lost answer, in a sentence for the reviewer.
    pub fn sentence(&self) -> String {
        let bound = match self.max_in_flight_s {
            InFlight::Unbounded => "with no bound on how late it may still act".to_owned(),
            InFlight::Seconds(seconds) => format!("and acts within {} or never", exactly(seconds)),
        };
        let key = match &self.idempotency {
            Idempotency::Honoured(honoured) => format!("honours one key for {}", exactly(honoured.retention_s)),
            Idempotency::None => "honours no key".to_owned(),
        };
        let lookup = match self.lookup {
            Lookup::Authoritative => "says at once whether it was applied".to_owned(),
            Lookup::Eventual { settle_s } => format!("says within {} whether it was applied", exactly(settle_s)),
            Lookup::None => "cannot be asked".to_owned(),
        };
        format!("{} {key}, {lookup}, {bound}", self.title)
    }
}

/// `86400` seconds as `24 h`; `90` as `90 s`, because nothing is rounded.
fn exactly(seconds: i64) -> String {
    match seconds {
        _ if seconds >= 3600 && seconds % 3600 == 0 => format!("{} h", seconds / 3600),
        _ if seconds >= 60 && seconds % 60 == 0 => format!("{} min", seconds / 60),
        _ => format!("{seconds} s"),
    }
}

/// When each guarantee was last shown against the real destination, or its sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Proofs {
    /// The same key twice made one effect, and a key with another body was refused.
    pub idempotency: Option<Timestamp>,
    /// What had been applied was found, and what had not was not.
    pub lookup: Option<Timestamp>,
}

/// A guarantee that was shown at `shown` and counts at `now`.
pub fn is_proven(shown: Option<Timestamp>, now: Timestamp) -> bool {
    shown.is_some_and(|shown| now < shown.plus_seconds(PROOF_VALID_S))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        json!({
            "name": "payments", "title": "Payments", "idempotency": {"header": "Idempotency-Key", "retention_s": 86_400},
            "lookup": {"eventual": {"settle_s": 60}}, "max_in_flight_s": 30, "fences": false
        })
    }

    #[test]
    fn a_declaration_survives_the_round_trip() {
        for (member, value) in [
            ("idempotency", json!("none")),
            ("lookup", json!("authoritative")),
            ("lookup", json!("none")),
            ("max_in_flight_s", json!("unbounded")),
            ("max_in_flight_s", json!(0)),
        ] {
            let mut document = document();
            document[member] = value;
            let contract = Contract::read(&document).unwrap();
            assert_eq!(serde_json::to_value(contract).unwrap(), document);
        }
    }

    #[test]
    fn what_declares_no_usable_bound_is_refused_with_its_place() {
        for (pointer, value) in [
            ("/name", json!("Payments")),
            ("/title", json!(" ")),
            ("/idempotency", json!("always")),
            ("/idempotency/header", json!("a b")),
            ("/idempotency/retention_s", json!(0)),
            ("/lookup/eventual/settle_s", json!(-1)),
            ("/max_in_flight_s", json!(-1)),
            ("/max_in_flight_s", json!("long")),
            ("/fences", json!("yes")),
        ] {
            let mut document = document();
            *document.pointer_mut(pointer).unwrap() = value;
            let problem = Contract::read(&document).unwrap_err();
            assert_eq!(problem.members["errors"][0]["pointer"], pointer, "{problem}");
        }
    }

    #[test]
    fn a_proof_counts_for_its_time_and_no_longer() {
        let shown = Timestamp(1_000);
        assert!(is_proven(Some(shown), shown));
        assert!(!is_proven(Some(shown), shown.plus_seconds(PROOF_VALID_S)));
        assert!(!is_proven(None, shown));
    }
}
