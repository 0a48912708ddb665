//! Evidence: an immutable, attributed statement about an outcome.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{audit::Actor, id::EvidenceId, time::Timestamp};

/// What it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    Applied,
    NotApplied,
    Inconclusive,
}

impl Finding {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::NotApplied => "not_applied",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// How it came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceKind {
    /// Somebody asked the destination.
    Lookup,
    /// The destination said so by itself.
    Callback,
    Receipt,
    /// Somebody's word.
    Statement,
    /// The claimant's own report, after its claim was over.
    LateReport,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Evidence {
    #[schema(value_type = String)]
    pub id: EvidenceId,
    pub finding: Finding,
    pub kind: EvidenceKind,
    /// The provider's own name for the effect. An equal amount or text binds nothing.
    pub reference: Option<String>,
    pub observed_at: Timestamp,
    #[schema(value_type = Object)]
    pub by: Actor,
    pub by_name: String,
    /// `sha256:` and hex over the salted statement.
    pub digest: String,
    pub note: Option<String>,
    /// What was seen, as it was. It is kept apart and can be erased; `digest` covers it for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub body: Option<Value>,
    /// Counterfoil asked the provider, or verified its signature, itself.
    #[serde(default)]
    pub first_hand: bool,
    /// It names this operation's downstream key, or the provider's reference of it.
    #[serde(default)]
    pub bound: bool,
}
