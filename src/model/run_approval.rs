//! Run approvals: a person's consent, ahead of time, to what one run may write within bounds. They cover conditional
//! writes of low and medium risk alone; everything else is decided one operation at a time.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::{
    approval::Voter,
    id::{ApprovalId, PersonId, RunId},
    kind::{Conditional, Kind},
    operation::Operation,
    run::Scope,
    target::glob_matches,
    time::Timestamp,
};

/// Operations one record covers at most.
pub const MAX_COUNT: i64 = 1000;
/// Seconds one record holds at most.
pub const MAX_LIFE_S: i64 = 7 * 24 * 3600;
/// Kinds or targets of one record.
pub const MAX_ENTRIES: usize = 50;

/// A glob over kind names, `resource.*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(pattern = "^[a-z0-9.*-]{1,100}$", example = "resource.*")]
pub struct KindGlob(String);

impl KindGlob {
    pub fn matches(&self, kind: &str) -> bool {
        glob_matches(&self.0, kind)
    }
}

impl fmt::Display for KindGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for KindGlob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b".-*".contains(&c);
        if (1..=100).contains(&text.len()) && text.bytes().all(fits) {
            Ok(Self(text))
        } else {
            Err(serde::de::Error::custom(
                "a kind is named by lower-case letters, digits, `.`, `-`, with `*` for any part",
            ))
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunApproval {
    pub id: ApprovalId,
    pub run: RunId,
    pub kinds: Vec<KindGlob>,
    pub targets: Vec<Scope>,
    pub max_count: i64,
    /// Operations granted under it.
    pub used: i64,
    pub reason: Option<String>,
    pub by: PersonId,
    /// The name the person has now.
    pub by_name: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub revoked: Option<Revoked>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revoked {
    pub at: Timestamp,
    pub by: PersonId,
}

/// Where a record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    Open,
    UsedUp,
    Expired,
    Revoked,
}

impl RunApproval {
    pub fn standing(&self, now: Timestamp) -> Standing {
        match &self.revoked {
            Some(_) => Standing::Revoked,
            None if now >= self.expires_at => Standing::Expired,
            None if self.used >= self.max_count => Standing::UsedUp,
            None => Standing::Open,
        }
    }

    /// Whether `op`, proposed at `now`, is within the record's bounds, and one is left.
    pub fn covers(&self, op: &Operation, now: Timestamp) -> bool {
        let p = &op.proposal;
        self.standing(now) == Standing::Open
            && is_coverable(op)
            && p.run == self.run
            && self.kinds.iter().any(|kind| kind.matches(&p.kind))
            && self.targets.iter().any(|scope| scope.contains(p.target.as_str()))
    }

    /// Whether an operation granted under it may still be claimed, or, once claimed, sent: what was claimed in time is
    /// not lost to the record's end, only to its revocation.
    pub fn is_in_force(&self, op: &Operation, now: Timestamp) -> bool {
        self.revoked.is_none() && (op.life.approval.spent_at.is_some() || now < self.expires_at)
    }
}

/// Whether any record can cover `op`: low or medium risk, a version to check, and no repetition of an open one.
fn is_coverable(op: &Operation) -> bool {
    let p = &op.proposal;
    !p.risk.needs_care() && p.expected_version.is_some() && p.duplicate_of.is_none()
}

/// Whether some operation of `kind` can be covered.
pub fn may_cover(kind: &Kind) -> bool {
    !kind.risk.needs_care() && kind.conditional != Conditional::Never
}

/// Whether this person's word, given ahead of time, is all that the rule of `op` asks for.
pub fn suffices(op: &Operation, voter: &Voter) -> bool {
    let asked = &op.life.approval;
    asked.required == 1 && !asked.step_up && voter.is_eligible(&asked.groups)
}

/// Under which record an operation was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantedUnder {
    #[schema(value_type = String)]
    pub id: ApprovalId,
    #[schema(value_type = String)]
    pub by: PersonId,
    /// The name the person had then.
    pub by_name: String,
}
