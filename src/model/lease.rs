//! Leases: short exclusive rights to one resource, each with a fencing token that only rises. Whoever was paused past
//! the end of its lease finds that a higher token has been handed out, here and at every sink that asks.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::{
    conflict::ResolvedBy,
    id::{AgentId, LeaseId, RunId},
    json,
    problem::{Code, Problem, RetryMode},
    target::Target,
    time::Timestamp,
};

/// Seconds for which a lease holds after it was acquired or renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(try_from = "i64")]
#[schema(minimum = 1, maximum = 300, default = 30)]
pub struct Ttl(i64);

impl Ttl {
    pub const MAX_S: i64 = 300;
}

impl Default for Ttl {
    fn default() -> Self {
        Self(30)
    }
}

impl TryFrom<i64> for Ttl {
    type Error = String;

    fn try_from(seconds: i64) -> Result<Self, String> {
        match seconds {
            1..=Self::MAX_S => Ok(Self(seconds)),
            _ => Err(format!("expected 1 to {} seconds", Self::MAX_S)),
        }
    }
}

/// Seconds of one lease in all, however often it is renewed.
pub const MAX_LIFE_S: i64 = 3600;
/// Seconds for which a holder may renew without getting anywhere.
pub const MAX_STILL_S: i64 = 300;

/// The number that orders the holders of one resource: 1 … 2^53 − 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "i64")]
#[schema(minimum = 1, maximum = 9_007_199_254_740_991_i64)]
pub struct FencingToken(i64);

impl FencingToken {
    pub fn as_i64(self) -> i64 {
        self.0
    }
}

impl TryFrom<i64> for FencingToken {
    type Error = &'static str;

    fn try_from(number: i64) -> Result<Self, &'static str> {
        if number >= 1 && json::is_exact(number) { Ok(Self(number)) } else { Err("a fencing token is 1 or more") }
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How far a holder says it has got: text or a number, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(min_length = 1, max_length = 200)]
pub struct Progress(String);

impl Progress {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Progress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        if text.trim().is_empty() || text.chars().count() > 200 {
            Err("a progress mark has 1 to 200 characters")
        } else {
            Ok(Self(text.to_owned()))
        }
    }
}

impl<'de> Deserialize<'de> for Progress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a progress mark is text or an integer")]
        enum Mark {
            Text(String),
            Number(i64),
        }
        match Mark::deserialize(deserializer)? {
            Mark::Text(text) => text.parse().map_err(serde::de::Error::custom),
            Mark::Number(number) => Ok(Self(number.to_string())),
        }
    }
}

/// What a claimant presents: the lease, and the token it was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRef {
    #[schema(value_type = String)]
    pub id: LeaseId,
    pub fencing_token: FencingToken,
}

impl fmt::Display for LeaseRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease {} with fencing token {}", self.id, self.fencing_token)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub id: LeaseId,
    pub resource: Target,
    pub fencing_token: FencingToken,
    pub run: RunId,
    pub agent: AgentId,
    /// Counts every change but the passing of time.
    pub version: i64,
    pub acquired_at: Timestamp,
    pub expires_at: Timestamp,
    pub progress: Option<Progress>,
    /// When `progress` last moved.
    pub progressed_at: Timestamp,
    pub ended: Option<Ended>,
}

/// How a lease ended before its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub how: Ending,
    pub at: Timestamp,
    /// The id of who ended it.
    pub by: String,
    pub reason: Option<String>,
}

macro_rules! endings {
    ($($(#[$doc:meta])* $variant:ident $name:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Ending { $($(#[$doc])* $variant,)* }

        impl Ending {
            const ALL: &[Self] = &[$(Self::$variant,)*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

endings! {
    /// By its holder, or with its run.
    Released "released";
    /// It had expired, and somebody else took the resource.
    TakenOver "taken_over";
    /// By an operator.
    ForceReleased "force_released";
    /// Its holder renewed it without getting anywhere.
    Stalled "stalled";
    /// The database was restored from a backup: nobody knows what followed.
    Restored "restored";
}

impl std::str::FromStr for Ending {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.iter().copied().find(|ending| ending.as_str() == text).ok_or(())
    }
}

/// Why a renewal is refused.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// It was lost before.
    Lost(Problem),
    /// It is lost by this: store the end of it.
    Ends { how: Ending, reason: &'static str, problem: Problem },
}

/// What a run that asks for a resource gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquisition<'l> {
    /// It holds it already.
    Same(&'l Lease),
    /// Nobody has it.
    Free,
    /// Its holder let it run out.
    TakeOver(&'l Lease),
}

/// Whether `run` may have the resource whose last lease is `last`.
///
/// # Errors
/// `lease_held`.
pub fn acquire<'l>(last: Option<&'l Lease>, run: &RunId, now: Timestamp) -> Result<Acquisition<'l>, Problem> {
    match last {
        Some(lease) if lease.is_live(now) && lease.run == *run => Ok(Acquisition::Same(lease)),
        Some(lease) if lease.is_live(now) => Err(held(lease, now)),
        Some(lease) if lease.ended.is_none() => Ok(Acquisition::TakeOver(lease)),
        _ => Ok(Acquisition::Free),
    }
}

impl Lease {
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.ended.is_none() && now < self.expires_at
    }

    /// `live`, `expired`, or how it ended.
    pub fn state(&self, now: Timestamp) -> &'static str {
        match &self.ended {
            Some(ended) => ended.how.as_str(),
            None if now < self.expires_at => "live",
            None => "expired",
        }
    }

    /// The lease for another `ttl` from `now`, never past its hour nor past `run_ends_at`. A renewal revives nothing.
    ///
    /// # Errors
    /// `lease_lost`, also where the progress mark has not moved for too long.
    pub fn renew(
        &self,
        ttl: Ttl,
        progress: Option<Progress>,
        run_ends_at: Timestamp,
        now: Timestamp,
    ) -> Result<Self, Refusal> {
        if !self.is_live(now) {
            return Err(Refusal::Lost(self.lost(now)));
        }
        let moved = progress.is_some() && progress != self.progress;
        if !moved && now >= self.progressed_at.plus_seconds(MAX_STILL_S) {
            let reason = "no progress for 5 minutes";
            let problem = Problem::new(Code::LeaseLost, format!("The lease is lost: {reason}"));
            return Err(Refusal::Ends { how: Ending::Stalled, reason, problem: self.described(problem) });
        }
        let latest = self.acquired_at.plus_seconds(MAX_LIFE_S).min(run_ends_at);
        Ok(Self {
            version: self.version + 1,
            expires_at: now.plus_seconds(ttl.0).min(latest).max(self.expires_at),
            progressed_at: if moved { now } else { self.progressed_at },
            progress: progress.or_else(|| self.progress.clone()),
            ..self.clone()
        })
    }

    pub fn end(&self, how: Ending, by: String, reason: Option<String>, now: Timestamp) -> Self {
        Self { version: self.version + 1, ended: Some(Ended { how, at: now, by, reason }), ..self.clone() }
    }

    /// The refusal of whoever acts as its holder after it was lost.
    pub fn lost(&self, now: Timestamp) -> Problem {
        let detail = match &self.ended {
            Some(ended) if ended.how == Ending::TakenOver => {
                format!("The lease ended at {}, and a successor took the resource at {}", self.expires_at, ended.at)
            }
            Some(ended) => format!("The lease ended at {}: {}", ended.at, self.state(now).replace('_', " ")),
            None => format!("The lease expired at {}", self.expires_at),
        };
        self.described(Problem::new(Code::LeaseLost, detail))
    }

    fn described(&self, problem: Problem) -> Problem {
        conflict(problem, &self.resource).with("lease", &self.id).with("fencing_token", self.fencing_token)
    }
}

/// When a lease asked for at `now` ends.
pub fn first_expiry(ttl: Ttl, run_ends_at: Timestamp, now: Timestamp) -> Timestamp {
    now.plus_seconds(ttl.0).min(run_ends_at)
}

/// The members that every conflict about a lease carries. Leases are short: their way on needs nobody else.
pub fn conflict(problem: Problem, resource: &Target) -> Problem {
    let code = problem.code;
    problem.with("error", code).with("category", code).with("resource", resource).with("resolver", ResolvedBy::Agent)
}

fn held(lease: &Lease, now: Timestamp) -> Problem {
    let wait_s = ((lease.expires_at - now) / 1000).clamp(1, 30);
    conflict(
        Problem::new(Code::LeaseHeld, format!("`{}` holds `{}` until {}", lease.run, lease.resource, lease.expires_at)),
        &lease.resource,
    )
    .with("holder", &lease.run)
    .with("expires_at", lease.expires_at)
    .retry(RetryMode::SameKey, Some(wait_s))
}

/// Whether a write under `token` may go ahead, when `highest` is the last token handed out for the resource. `pointer`
/// leads to the token in the body.
///
/// # Errors
/// `stale_fence` below it; `validation_failed` above it, for nobody was ever given that token.
pub fn check_fence(resource: &Target, token: FencingToken, highest: i64, pointer: &str) -> Result<(), Problem> {
    if token.0 > highest {
        let detail = format!("no lease of `{resource}` was ever given this token");
        return Err(Problem::at(Code::ValidationFailed, pointer, detail));
    }
    if token.0 < highest {
        let detail = format!("Fencing token {token} of `{resource}` is stale: {highest} has been handed out since");
        return Err(conflict(Problem::new(Code::StaleFence, detail), resource)
            .with("fencing_token", token)
            .with("highest", highest));
    }
    Ok(())
}

/// The refusal of a claimant that presents no lease where the kind asks for one.
pub fn missing(resource: &Target) -> Problem {
    let detail = format!("This kind is carried out under a lease of `{resource}`: acquire one, and send it as `lease`");
    Problem::new(Code::PreconditionRequired, detail).with("resource", resource)
}

/// Whether what a claimant presents holds `resource`. `found` is the lease of that id, if it is the claimant's to use.
///
/// # Errors
/// `stale_fence` · `lease_lost`.
pub fn check_presented(
    resource: &Target,
    presented: &LeaseRef,
    found: Option<&Lease>,
    highest: i64,
    now: Timestamp,
) -> Result<(), Problem> {
    check_fence(resource, presented.fencing_token, highest, "/lease/fencing_token")?;
    match found {
        Some(lease) if lease.resource == *resource && lease.fencing_token == presented.fencing_token => {
            if lease.is_live(now) { Ok(()) } else { Err(lease.lost(now)) }
        }
        _ => {
            let detail = format!("No lease of yours on `{resource}` has this id and token");
            Err(conflict(Problem::new(Code::LeaseLost, detail), resource))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FOREVER: Timestamp = Timestamp(i64::MAX);

    fn lease(expires_s: i64) -> Lease {
        Lease {
            id: LeaseId::from_parts(1, 1),
            resource: "release/prod-eu".parse().unwrap(),
            fencing_token: FencingToken(7),
            run: RunId::from_parts(1, 1),
            agent: AgentId::from_parts(1, 1),
            version: 1,
            acquired_at: Timestamp(0),
            expires_at: Timestamp(0).plus_seconds(expires_s),
            progress: None,
            progressed_at: Timestamp(0),
            ended: None,
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp(0).plus_seconds(seconds)
    }

    fn mark(text: &str) -> Option<Progress> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_lease_is_lost_at_its_expiry_even_if_nobody_takes_it() {
        let lease = lease(30);
        assert!(lease.renew(Ttl(30), mark("a"), FOREVER, at(29)).is_ok());
        let Err(Refusal::Lost(problem)) = lease.renew(Ttl(30), mark("a"), FOREVER, at(30)) else { panic!() };
        assert_eq!(problem.code, Code::LeaseLost);
    }

    #[test]
    fn a_renewal_keeps_the_token_and_moves_the_end() {
        let renewed = lease(30).renew(Ttl(60), mark("half"), FOREVER, at(20)).unwrap();
        assert_eq!((renewed.fencing_token, renewed.expires_at, renewed.version), (FencingToken(7), at(80), 2));
        assert_eq!(renewed.renew(Ttl(1), mark("half"), FOREVER, at(21)).unwrap().expires_at, at(80));
        assert_eq!(lease(30).renew(Ttl(60), mark("half"), at(40), at(20)).unwrap().expires_at, at(40));
    }

    #[test]
    fn a_holder_that_gets_nowhere_loses_the_lease_after_five_minutes() {
        let mut lease = lease(300);
        for second in [100, 200, 299] {
            lease = lease.renew(Ttl(300), mark("step 1"), FOREVER, at(second)).unwrap();
        }
        assert_eq!(lease.progressed_at, at(100));
        assert!(lease.renew(Ttl(300), mark("step 2"), FOREVER, at(400)).is_ok());
        for still in [mark("step 1"), None] {
            let Err(Refusal::Ends { how, .. }) = lease.renew(Ttl(300), still, FOREVER, at(400)) else { panic!() };
            assert_eq!(how, Ending::Stalled);
        }
    }

    #[test]
    fn the_live_holder_asking_again_has_it_and_a_stranger_does_not() {
        let lease = lease(30);
        let stranger = RunId::from_parts(2, 2);
        assert_eq!(acquire(Some(&lease), &lease.run, at(29)), Ok(Acquisition::Same(&lease)));
        assert_eq!(acquire(Some(&lease), &stranger, at(29)).unwrap_err().code, Code::LeaseHeld);
        assert_eq!(acquire(Some(&lease), &lease.run, at(30)), Ok(Acquisition::TakeOver(&lease)));
        assert_eq!(acquire(Some(&lease), &stranger, at(30)), Ok(Acquisition::TakeOver(&lease)));
        let ended = lease.end(Ending::Released, "run".into(), None, at(1));
        assert_eq!(acquire(Some(&ended), &stranger, at(2)), Ok(Acquisition::Free));
        assert_eq!(acquire(None, &stranger, at(2)), Ok(Acquisition::Free));
    }

    #[test]
    fn what_is_presented_has_to_be_the_newest_lease_and_live() {
        let lease = lease(30);
        let presented = LeaseRef { id: lease.id.clone(), fencing_token: lease.fencing_token };
        let check = |found, highest, now| {
            check_presented(&lease.resource, &presented, found, highest, now).map_err(|problem| problem.code)
        };
        assert_eq!(check(Some(&lease), 7, at(29)), Ok(()));
        assert_eq!(check(Some(&lease), 8, at(29)), Err(Code::StaleFence));
        assert_eq!(check(Some(&lease), 6, at(29)), Err(Code::ValidationFailed));
        assert_eq!(check(Some(&lease), 7, at(30)), Err(Code::LeaseLost));
        assert_eq!(check(None, 7, at(29)), Err(Code::LeaseLost));
    }

    proptest! {
        #[test]
        fn no_lease_outlives_its_hour_or_its_run(
            steps in prop::collection::vec((1i64..300, 1i64..=300), 1..100),
            run_ends_s in 1i64..8000,
        ) {
            let mut held = lease(30.min(run_ends_s));
            let mut now_s = 0;
            for (i, (wait, ttl)) in steps.into_iter().enumerate() {
                now_s += wait;
                match held.renew(Ttl(ttl), mark(&i.to_string()), at(run_ends_s), at(now_s)) {
                    Ok(renewed) => {
                        prop_assert!(renewed.expires_at >= held.expires_at);
                        prop_assert!(renewed.expires_at <= at(MAX_LIFE_S.min(run_ends_s)));
                        held = renewed;
                    }
                    Err(_) => prop_assert!(at(now_s) >= held.expires_at),
                }
            }
        }
    }
}
