//! Runs: one process of an agent, and what it may write.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::{
    kind::Verb,
    problem::{Code, Problem},
    target::{InvalidTarget, Target},
    time::Timestamp,
};

/// Seconds a run lives unless it says otherwise.
pub const DEFAULT_LIFE_S: i64 = 24 * 3600;
/// Seconds a run lives at most.
pub const MAX_LIFE_S: i64 = 30 * 24 * 3600;
/// Entries of one write set, and resources of one list of reads.
pub const MAX_ENTRIES: usize = 200;

/// Whether a run may still act. A stopped or expired one may read, replay and report its open claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    Live,
    Stopped,
    Expired,
}

impl RunStatus {
    /// A run that was stopped stays stopped after its expiry; at the expiry is too late.
    pub fn at(now: Timestamp, expires_at: Timestamp, stopped_at: Option<Timestamp>) -> Self {
        match stopped_at {
            Some(_) => Self::Stopped,
            None if now >= expires_at => Self::Expired,
            None => Self::Live,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Stopped => "stopped",
            Self::Expired => "expired",
        }
    }
}

/// One exact target, or one prefix: `order/4711` or `order/47*`. The type is always whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(
    pattern = "^[a-z][a-z0-9-]{0,62}/([A-Za-z0-9][A-Za-z0-9._~@:+-]{0,198})?[A-Za-z0-9._~@:+*-]$",
    example = "order/47*"
)]
pub struct Scope(String);

impl Scope {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn prefix(&self) -> Option<&str> {
        self.0.strip_suffix('*')
    }

    pub fn contains(&self, target: &str) -> bool {
        match self.prefix() {
            Some(prefix) => target.starts_with(prefix),
            None => target == self.0,
        }
    }

    /// Whether every target of `other` is one of this scope's.
    pub fn covers(&self, other: &Scope) -> bool {
        match (self.prefix(), other.prefix()) {
            (Some(prefix), Some(narrower)) => narrower.starts_with(prefix),
            (None, Some(_)) => false,
            (_, None) => self.contains(&other.0),
        }
    }
}

impl Scope {
    /// The targets of both: one of the two, or none.
    pub fn intersection<'s>(&'s self, other: &'s Scope) -> Option<&'s Scope> {
        match (self.covers(other), other.covers(self)) {
            (true, _) => Some(other),
            (_, true) => Some(self),
            _ => None,
        }
    }

    /// Sorts a prefix right before everything within it.
    pub fn order(&self) -> impl Ord + '_ {
        (self.prefix().unwrap_or(&self.0), self.prefix().is_none())
    }
}

impl FromStr for Scope {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        match text.strip_suffix('*') {
            // A prefix is right when it can be continued to a target.
            Some(prefix) => format!("{prefix}x").parse::<Target>()?,
            None => text.parse()?,
        };
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// One line of an agent's ceiling: what its runs may be granted at most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Allowance {
    pub resource: Scope,
    #[serde(deserialize_with = "some_verbs")]
    #[schema(min_items = 1)]
    pub verbs: BTreeSet<Verb>,
}

/// As the command line spells it: the scope, then the verbs, `release/* deploy rollback`.
impl FromStr for Allowance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let resource = words.next().unwrap_or_default().parse::<Scope>().map_err(|error| error.to_string())?;
        let verbs = words
            .map(|word| serde_json::from_value(word.into()).map_err(|_| format!("`{word}` is not a verb")))
            .collect::<Result<BTreeSet<_>, _>>()?;
        if verbs.is_empty() {
            return Err(format!("no verb follows `{resource}`"));
        }
        Ok(Self { resource, verbs })
    }
}

/// One entry of a write set as it is asked for.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteRequest {
    pub resource: Scope,
    #[serde(deserialize_with = "some_verbs")]
    #[schema(min_items = 1)]
    pub verbs: BTreeSet<Verb>,
    #[serde(default)]
    pub exclusive: bool,
    pub not_before: Option<Timestamp>,
    #[schema(minimum = 1, maximum = 2_592_000)]
    pub expires_in_s: Option<i64>,
}

/// One entry of a write set as it was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WriteGrant {
    pub resource: Scope,
    pub verbs: BTreeSet<Verb>,
    pub exclusive: bool,
    pub not_before: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
}

impl WriteGrant {
    pub fn permits(&self, target: &str, verb: Verb, now: Timestamp) -> bool {
        self.resource.contains(target)
            && self.verbs.contains(&verb)
            && self.not_before.is_none_or(|start| now >= start)
            && self.expires_at.is_none_or(|end| now < end)
    }
}

impl WriteGrant {
    /// From when until when it holds, in a run that ends at `run_ends_at`.
    pub fn window(&self, run_ends_at: Timestamp) -> (Timestamp, Timestamp) {
        let ends = self.expires_at.map_or(run_ends_at, |at| at.min(run_ends_at));
        (self.not_before.unwrap_or(Timestamp(i64::MIN)), ends)
    }
}

/// Whether a run with this write set may write `target`. Without a set it may propose anything; nothing of that is
/// granted without a person.
pub fn permits(set: Option<&[WriteGrant]>, target: &str, verb: Verb, now: Timestamp) -> bool {
    set.is_none_or(|set| set.iter().any(|grant| grant.permits(target, verb, now)))
}

/// Seconds that a run lives which asks for `asked`.
///
/// # Errors
/// `validation_failed`.
pub fn life_s(asked: Option<i64>) -> Result<i64, Problem> {
    match asked.unwrap_or(DEFAULT_LIFE_S) {
        life_s @ 1..=MAX_LIFE_S => Ok(life_s),
        _ => {
            let detail = format!("is not a number of seconds from 1 to {MAX_LIFE_S}");
            Err(Problem::at(Code::ValidationFailed, "/expires_in_s", detail))
        }
    }
}

/// Whether the lists of what a run reads and relies on are short enough.
///
/// # Errors
/// `validation_failed`.
pub fn check_lists(reads: &[Scope], defaults: &[Scope]) -> Result<(), Problem> {
    for (pointer, list) in [("/reads", reads), ("/defaults", defaults)] {
        if list.len() > MAX_ENTRIES {
            let detail = format!("has more than {MAX_ENTRIES} entries");
            return Err(Problem::at(Code::ValidationFailed, pointer, detail));
        }
    }
    Ok(())
}

/// Turns a requested write set into a granted one, within the agent's ceiling; no ceiling allows any set.
/// `now` is when the run starts.
///
/// # Errors
/// `validation_failed` · `outside_write_set`, with the first entry that goes beyond the ceiling.
pub fn grant(
    requests: Vec<WriteRequest>,
    ceiling: Option<&[Allowance]>,
    now: Timestamp,
) -> Result<Vec<WriteGrant>, Problem> {
    if requests.len() > MAX_ENTRIES {
        let detail = format!("a write set has at most {MAX_ENTRIES} entries");
        return Err(Problem::at(Code::ValidationFailed, "/write_set", detail));
    }
    let grant = |(index, request): (usize, WriteRequest)| {
        if request.expires_in_s.is_some_and(|s| !(1..=MAX_LIFE_S).contains(&s)) {
            let pointer = format!("/write_set/{index}/expires_in_s");
            let detail = format!("is not a number of seconds from 1 to {MAX_LIFE_S}");
            return Err(Problem::at(Code::ValidationFailed, pointer, detail));
        }
        let beyond = ceiling.and_then(|allowed| {
            let allows =
                |verb: &Verb| allowed.iter().any(|a| a.resource.covers(&request.resource) && a.verbs.contains(verb));
            request.verbs.iter().find(|verb| !allows(verb))
        });
        if let Some(verb) = beyond {
            let detail = format!("the agent may not be granted `{}` on `{}`", verb.as_str(), request.resource);
            return Err(Problem::new(Code::OutsideWriteSet, detail)
                .with("resource", &request.resource)
                .with("verb", verb)
                .with("pointer", format!("/write_set/{index}")));
        }
        Ok(WriteGrant {
            resource: request.resource,
            verbs: request.verbs,
            exclusive: request.exclusive,
            not_before: request.not_before,
            expires_at: request.expires_in_s.map(|s| now.plus_seconds(s)),
        })
    };
    requests.into_iter().enumerate().map(grant).collect()
}

fn some_verbs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<Verb>, D::Error> {
    let verbs = BTreeSet::deserialize(deserializer)?;
    if verbs.is_empty() { Err(serde::de::Error::custom("at least one verb is needed")) } else { Ok(verbs) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn scope(text: &str) -> Scope {
        text.parse().unwrap()
    }

    fn requests(document: serde_json::Value) -> Vec<WriteRequest> {
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn a_scope_is_one_target_or_one_prefix_of_a_whole_type() {
        for text in ["order/4711", "order/47*", "release/*"] {
            assert_eq!(scope(text).as_str(), text);
        }
        for text in
            ["", "*", "order*", "order", "order/", "or*der/1", "order/4*7*", "order/47**", "Order/*", "order/ *"]
        {
            assert!(text.parse::<Scope>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_set_beyond_the_ceiling_is_refused_with_its_entry() {
        let ceiling: Vec<Allowance> =
            ["release/stag* deploy rollback", "release/prod-eu deploy"].map(|text| text.parse().unwrap()).into();
        let ask = |resource: &str, verbs: &[&str]| {
            grant(requests(json!([{"resource": resource, "verbs": verbs}])), Some(&ceiling), Timestamp(0))
        };
        assert!(ask("release/staging", &["deploy", "rollback"]).is_ok());
        assert!(ask("release/stag*", &["deploy"]).is_ok());
        assert!(ask("release/prod-eu", &["deploy"]).is_ok());
        for (resource, verbs) in
            [("release/prod-eu", &["deploy", "rollback"][..]), ("release/*", &["deploy"]), ("order/1", &["pay"])]
        {
            let problem = ask(resource, verbs).unwrap_err();
            assert_eq!(problem.code, Code::OutsideWriteSet, "{resource}");
            assert_eq!(problem.members["pointer"], "/write_set/0");
        }
        assert!(grant(requests(json!([{"resource": "order/1", "verbs": ["pay"]}])), None, Timestamp(0)).is_ok());
    }

    #[test]
    fn a_grant_holds_from_its_start_until_its_end() {
        let document = json!([{"resource": "order/1", "verbs": ["pay"], "not_before": "1970-01-01T00:00:01.000Z", "expires_in_s": 2}]);
        let set = grant(requests(document), None, Timestamp(0)).unwrap();
        let at = |ms| permits(Some(&set), "order/1", Verb::Pay, Timestamp(ms));
        assert_eq!([at(999), at(1000), at(1999), at(2000)], [false, true, true, false]);
        assert!(!permits(Some(&set), "order/1", Verb::Refund, Timestamp(1500)));
        assert!(permits(None, "order/1", Verb::Refund, Timestamp(1500)));
    }

    #[test]
    fn a_stopped_run_never_becomes_an_expired_one() {
        let (expiry, late) = (Timestamp(10), Timestamp(11));
        assert_eq!(RunStatus::at(Timestamp(9), expiry, None), RunStatus::Live);
        assert_eq!(RunStatus::at(expiry, expiry, None), RunStatus::Expired);
        assert_eq!(RunStatus::at(late, expiry, Some(Timestamp(1))), RunStatus::Stopped);
    }

    proptest! {
        #[test]
        fn a_scope_covers_another_only_if_it_contains_all_of_it(a in "t/[ab]{0,2}[ab*]", b in "t/[ab]{0,2}[ab*]", name in "[ab]{1,4}") {
            let (a, b) = (scope(&a), scope(&b));
            let target = format!("t/{name}");
            prop_assert!(!a.covers(&b) || !b.contains(&target) || a.contains(&target));
        }
    }
}
