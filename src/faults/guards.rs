//! What keeps an effect single, broken on purpose: for each guard there is a cell that shows its absence. It is broken
//! outside of Counterfoil, in the agent, the people or the kind, and never by a switch inside.

use serde::Serialize;

use crate::cells::{Contract, Injection};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Guard {
    Claim,
    LookUp,
    Absence,
    Key,
    Expiry,
    Withdrawal,
    Fence,
    Payload,
    Precondition,
    BusinessKey,
    Identity,
    Proof,
}

impl Guard {
    pub const ALL: [Self; 12] = [
        Self::Claim,
        Self::LookUp,
        Self::Absence,
        Self::Key,
        Self::Expiry,
        Self::Withdrawal,
        Self::Fence,
        Self::Payload,
        Self::Precondition,
        Self::BusinessKey,
        Self::Identity,
        Self::Proof,
    ];

    /// What is done instead.
    pub fn title(self) -> &'static str {
        match self {
            Self::Claim => "the agent sends without a claim",
            Self::LookUp => "the agent sends again without asking what happened",
            Self::Absence => "the agent takes an early empty look-up for absence",
            Self::Key => "the agent uses another downstream key for each attempt",
            Self::Expiry => "the agent sends what has expired",
            Self::Withdrawal => "the agent sends what was withdrawn",
            Self::Fence => "the agent presents the highest fence there is",
            Self::Payload => "the agent sends its own parameters, not the approved ones",
            Self::Precondition => "the deploys name no version and take no lock",
            Self::BusinessKey => "the kind does not say which event it answers",
            Self::Identity => "the agent derives key and event from the content",
            Self::Proof => "the operator concludes without a proof",
        }
    }

    /// Where it shows.
    pub fn cell(self) -> (Contract, Injection) {
        match self {
            Self::Claim => (Contract::Authoritative, Injection::Copies),
            Self::LookUp => (Contract::Authoritative, Injection::ReplyLost),
            Self::Absence => (Contract::Eventual, Injection::LateCommit),
            Self::Key => (Contract::Keys, Injection::ReplyLost),
            Self::Expiry => (Contract::Keys, Injection::Expiry),
            Self::Withdrawal => (Contract::Keys, Injection::Withdrawal),
            Self::Fence => (Contract::Fenced, Injection::Paused),
            Self::Payload => (Contract::Keys, Injection::PayloadChanged),
            Self::Precondition => (Contract::Fenced, Injection::TwoDeploys),
            Self::BusinessKey => (Contract::Authoritative, Injection::RestartWithoutKey),
            Self::Identity => (Contract::Keys, Injection::SecondRequest),
            Self::Proof => (Contract::Unbounded, Injection::RequestLost),
        }
    }
}
