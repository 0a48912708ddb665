use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The states of the life cycle. `failed` and `conflicted` mean *provably not applied*.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Pending,
    Approved,
    Claimed,
    Sent,
    Accepted,
    Unknown,
    NeedsReview,
    Succeeded,
    Failed,
    Conflicted,
    Rejected,
    Expired,
    Cancelled,
    Superseded,
    Abandoned,
}

impl State {
    pub const ALL: [State; 15] = [
        State::Pending,
        State::Approved,
        State::Claimed,
        State::Sent,
        State::Accepted,
        State::Unknown,
        State::NeedsReview,
        State::Succeeded,
        State::Failed,
        State::Conflicted,
        State::Rejected,
        State::Expired,
        State::Cancelled,
        State::Superseded,
        State::Abandoned,
    ];

    pub fn is_terminal(self) -> bool {
        self >= State::Succeeded
    }

    pub fn as_str(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Approved => "approved",
            State::Claimed => "claimed",
            State::Sent => "sent",
            State::Accepted => "accepted",
            State::Unknown => "unknown",
            State::NeedsReview => "needs_review",
            State::Succeeded => "succeeded",
            State::Failed => "failed",
            State::Conflicted => "conflicted",
            State::Rejected => "rejected",
            State::Expired => "expired",
            State::Cancelled => "cancelled",
            State::Superseded => "superseded",
            State::Abandoned => "abandoned",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
