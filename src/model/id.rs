//! Prefixed, time-ordered identifiers: a prefix that names the word, then a ULID (<https://github.com/ulid/spec>).
//! Unguessable, and not sufficient to read anything.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize};
use ulid::Ulid;

/// The text is not an identifier of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected `{prefix}` followed by a 26-character ULID")]
pub struct InvalidId {
    pub prefix: &'static str,
}

/// What all identifiers share, for code that makes one of any word.
pub trait Id: Sized {
    /// `unix_ms` in milliseconds since the epoch (48 bits are kept), `random` of which 80 bits are kept.
    fn from_parts(unix_ms: u64, random: u128) -> Self;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub const PREFIX: &str = $prefix;

            /// `unix_ms` in milliseconds since the epoch (48 bits are kept), `random` of which 80 bits are kept.
            pub fn from_parts(unix_ms: u64, random: u128) -> Self {
                Self(format!("{}{}", $prefix, Ulid::from_parts(unix_ms, random)))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Id for $name {
            fn from_parts(unix_ms: u64, random: u128) -> Self {
                Self::from_parts(unix_ms, random)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let error = InvalidId { prefix: $prefix };
                let ulid = text.strip_prefix($prefix).ok_or(error.clone())?;
                // Decoding accepts lower case and look-alike letters; only the canonical spelling names anything.
                match Ulid::from_string(ulid) {
                    Ok(parsed) if parsed.to_string() == ulid => Ok(Self(text.to_owned())),
                    _ => Err(error),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

ids! {
    /// One intended write.
    OperationId = "op_";
    /// A program's principal.
    AgentId = "ag_";
    /// One process of an agent.
    RunId = "run_";
    /// A principal allowed to claim operations of named kinds.
    ExecutorId = "ex_";
    /// A human.
    PersonId = "usr_";
    /// The record of people's consent to one fingerprint.
    ApprovalId = "ap_";
    /// One executor's exclusive right to carry out an approved operation.
    ClaimId = "cl_";
    /// A rule of an admin about documents held here.
    ResourceRuleId = "rr_";
    /// A short exclusive right to one resource.
    LeaseId = "ls_";
    /// A refused write with its facts.
    ConflictId = "cf_";
    /// Ordered writes that belong together.
    ChangeSetId = "cs_";
    /// An attributed statement about an outcome.
    EvidenceId = "ev_";
    /// An unknown outcome with an owner and a due time.
    CaseId = "rc_";
    /// A signed-in browser, as its owner sees it; never the cookie.
    SessionId = "se_";
    /// One request, for finding it again in the logs.
    CorrelationId = "co_";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_the_round_trip_and_sorts_by_time() {
        let early = OperationId::from_parts(1, u128::MAX);
        let late = OperationId::from_parts(2, 0);
        assert!(early < late);
        assert_eq!(early.as_str().parse::<OperationId>(), Ok(early));
    }

    #[test]
    fn another_prefix_or_another_spelling_is_no_id() {
        let id = RunId::from_parts(1_700_000_000_000, 42);
        let text = id.as_str();
        assert!(text.parse::<OperationId>().is_err());
        assert!(text.to_lowercase().parse::<RunId>().is_err());
        assert!("run_".parse::<RunId>().is_err());
        assert!("run_zzz".parse::<RunId>().is_err());
    }
}
