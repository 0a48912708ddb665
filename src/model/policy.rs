//! Policies: ordered rules that say who must sign what, and by when. The first rule that matches holds; where none
//! does, or a rule leaves something open, the default rule does. Nothing waits for ever, and silence grants nothing.

use std::{collections::BTreeSet, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IntoDeserializer, SeqAccess, Visitor, value::SeqAccessDeserializer},
};
use serde_json::Value;

use super::{
    id::PersonId,
    kind::Risk,
    problem::{Code, FieldError, Problem},
    strict,
    target::{Target, glob_matches},
};

/// A span that a policy may grant, in seconds: 1 s … 7 d.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Ttl(i64);

impl Ttl {
    pub const MAX_SECONDS: i64 = 7 * 24 * 60 * 60;

    pub const fn as_seconds(self) -> i64 {
        self.0
    }
}

/// The number of seconds is none that a policy may grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected 1 to {} seconds (7 days)", Ttl::MAX_SECONDS)]
pub struct InvalidTtl;

impl TryFrom<i64> for Ttl {
    type Error = InvalidTtl;

    fn try_from(seconds: i64) -> Result<Self, InvalidTtl> {
        if (1..=Self::MAX_SECONDS).contains(&seconds) { Ok(Self(seconds)) } else { Err(InvalidTtl) }
    }
}

impl<'de> Deserialize<'de> for Ttl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        i64::deserialize(deserializer)?.try_into().map_err(serde::de::Error::custom)
    }
}

/// What the default rule allows, from the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defaults {
    pub approval_ttl: Ttl,
    pub execution_ttl: Ttl,
    pub retry_ttl: Ttl,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { approval_ttl: Ttl(900), execution_ttl: Ttl(600), retry_ttl: Ttl(3600) }
    }
}

/// The group that decides where no rule names another.
pub const DEFAULT_GROUP: &str = "approvers";
const DEFAULT_REVIEW_DUE: Ttl = Ttl(3600);
const MAX_RULES: usize = 200;
const MAX_APPROVALS: i64 = 10;
/// Characters of a name or a glob; the longest target has 264.
const MAX_TEXT: usize = 300;

/// One version of the rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    pub version: i64,
    pub rules: Vec<Rule>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub name: String,
    #[serde(rename = "match", default)]
    pub matches: Match,
    #[serde(default)]
    pub require: Require,
}

/// What a rule is about. A member that is left out matches everything; of several values one is enough.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Match {
    /// Globs over kind names: `deployment.*`.
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub kind: Vec<String>,
    /// Globs over targets: `release/prod*`.
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub target: Vec<String>,
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub risk: Vec<Risk>,
    /// Globs over the names and ids of agents.
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub agent: Vec<String>,
}

/// What a rule asks for. A member that is left out takes the default rule's value.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Require {
    /// Distinct people, 1 … 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvals: Option<i64>,
    /// Each of the people is in one of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
    /// Low and medium risk is granted at once, without a vote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto: Option<bool>,
    /// The password is entered again within 5 minutes before the vote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_up: Option<bool>,
    /// Seconds to decide.
    #[serde(rename = "approval_ttl_s", skip_serializing_if = "Option::is_none")]
    pub approval_ttl: Option<Ttl>,
    /// Seconds from the grant to the claim, and to `sent`.
    #[serde(rename = "execution_ttl_s", skip_serializing_if = "Option::is_none")]
    pub execution_ttl: Option<Ttl>,
    /// Seconds from the grant during which a spent approval may license another attempt.
    #[serde(rename = "retry_ttl_s", skip_serializing_if = "Option::is_none")]
    pub retry_ttl: Option<Ttl>,
    /// One rejection is enough; without it the operation is rejected once the quorum cannot be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_reject: Option<bool>,
    /// Who looks into an unknown outcome first: the name of a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub review_owner: Option<String>,
    /// Seconds until an unknown outcome is escalated.
    #[serde(rename = "review_due_s", skip_serializing_if = "Option::is_none")]
    pub review_due: Option<Ttl>,
    /// The next owners, in order; admins come last in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escalation: Option<Vec<String>>,
}

/// What is looked at to find the rule of an operation.
#[derive(Debug, Clone, Copy)]
pub struct MatchFacts<'a> {
    pub kind: &'a str,
    pub target: &'a Target,
    pub risk: Risk,
    pub agent_name: &'a str,
    pub agent_id: &'a str,
}

/// A rule with nothing left open, as it stands in the review document and with the approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effective {
    /// The rule's name; `default` if none matched.
    pub rule: String,
    pub policy_version: i64,
    pub approvals: i64,
    pub groups: Vec<String>,
    /// Granted without a vote. Never set for high and critical risk.
    pub auto: bool,
    pub step_up: bool,
    #[serde(rename = "approval_ttl_s")]
    pub approval_ttl: Ttl,
    #[serde(rename = "execution_ttl_s")]
    pub execution_ttl: Ttl,
    #[serde(rename = "retry_ttl_s")]
    pub retry_ttl: Ttl,
    pub one_reject: bool,
    pub review_owner: Option<String>,
    #[serde(rename = "review_due_s")]
    pub review_due: Ttl,
    pub escalation: Vec<String>,
}

impl Policy {
    /// Reads a policy: `{"rules": [{"name", "match", "require"}, …]}`. `version` is the one it is kept under.
    ///
    /// # Errors
    /// 422 `validation_failed` with the place: an unknown member, a wrong type, a span outside 1 s … 7 d, an empty
    /// list, or granting high or critical risk without a vote.
    pub fn load(document: &Value, version: i64) -> Result<Self, Problem> {
        let Document { rules } = strict::read(document)?;
        let mut errors = Vec::new();
        let mut names = BTreeSet::new();
        if rules.len() > MAX_RULES {
            errors.push(FieldError { pointer: "/rules".into(), detail: format!("expected at most {MAX_RULES} rules") });
        }
        for (i, rule) in rules.iter().enumerate() {
            errors.extend(rule.faults(&format!("/rules/{i}")));
            if !names.insert(&rule.name) {
                let detail = "another rule has this name".to_owned();
                errors.push(FieldError { pointer: format!("/rules/{i}/name"), detail });
            }
        }
        if errors.is_empty() {
            Ok(Self { version, rules })
        } else {
            Err(Problem::invalid(Code::ValidationFailed, errors))
        }
    }

    /// The document that [`Policy::load`] reads.
    pub fn document(&self) -> Value {
        serde_json::to_value(Document { rules: self.rules.clone() }).unwrap_or_default()
    }

    /// The first rule that matches, and its place from 0.
    pub fn find(&self, facts: &MatchFacts) -> Option<(usize, &Rule)> {
        self.rules.iter().enumerate().find(|(_, rule)| rule.matches.holds(facts))
    }

    /// What the rule that matches asks for, with nothing left open.
    pub fn matching(&self, facts: &MatchFacts, defaults: &Defaults) -> Effective {
        match self.find(facts) {
            Some((_, rule)) => self.fill(&rule.name, rule.require.clone(), facts.risk, defaults),
            None => self.fill("default", Require::default(), facts.risk, defaults),
        }
    }

    /// The rules of which one holds for a write of this kind and agent, whatever its target and risk.
    pub fn possible(&self, kind: &str, agent: [&str; 2], defaults: &Defaults) -> Vec<Effective> {
        let concerns =
            |rule: &&Rule| matches_any(&rule.matches.kind, &[kind]) && matches_any(&rule.matches.agent, &agent);
        let mut possible = Vec::new();
        for rule in self.rules.iter().filter(concerns) {
            possible.push(self.fill(&rule.name, rule.require.clone(), Risk::Low, defaults));
            if rule.matches.target.is_empty() && rule.matches.risk.is_empty() {
                return possible;
            }
        }
        possible.push(self.default_rule(defaults));
        possible
    }

    /// What holds where no rule matches.
    pub fn default_rule(&self, defaults: &Defaults) -> Effective {
        self.fill("default", Require::default(), Risk::Low, defaults)
    }

    fn fill(&self, rule: &str, require: Require, risk: Risk, defaults: &Defaults) -> Effective {
        Effective {
            rule: rule.to_owned(),
            policy_version: self.version,
            approvals: require.approvals.unwrap_or(1),
            groups: require.groups.unwrap_or_else(|| vec![DEFAULT_GROUP.to_owned()]),
            auto: require.auto.unwrap_or(false) && !risk.needs_care(),
            step_up: require.step_up.unwrap_or(false),
            approval_ttl: require.approval_ttl.unwrap_or(defaults.approval_ttl),
            execution_ttl: require.execution_ttl.unwrap_or(defaults.execution_ttl),
            retry_ttl: require.retry_ttl.unwrap_or(defaults.retry_ttl),
            one_reject: require.one_reject.unwrap_or(true),
            review_owner: require.review_owner,
            review_due: require.review_due.unwrap_or(DEFAULT_REVIEW_DUE),
            escalation: require.escalation.unwrap_or_default(),
        }
    }
}

/// Whether one of the globs matches one of the texts; no globs match everything.
fn matches_any(globs: &[String], texts: &[&str]) -> bool {
    globs.is_empty() || globs.iter().any(|glob| texts.iter().any(|text| glob_matches(glob, text)))
}

impl Match {
    fn holds(&self, facts: &MatchFacts) -> bool {
        matches_any(&self.kind, &[facts.kind])
            && matches_any(&self.target, &[facts.target.as_str()])
            && matches_any(&self.agent, &[facts.agent_name, facts.agent_id])
            && (self.risk.is_empty() || self.risk.contains(&facts.risk))
    }
}

impl Rule {
    fn faults(&self, at: &str) -> Vec<FieldError> {
        let mut faults = Vec::new();
        let mut fault = |member: &str, detail: &str| {
            faults.push(FieldError { pointer: format!("{at}{member}"), detail: detail.to_owned() });
        };
        let Match { kind, target, agent, risk } = &self.matches;
        let Require { approvals, groups, auto, review_owner, escalation, .. } = &self.require;

        let lists = [
            ("/match/kind", kind.as_slice()),
            ("/match/target", target),
            ("/match/agent", agent),
            ("/require/groups", groups.as_deref().unwrap_or_default()),
            ("/require/escalation", escalation.as_deref().unwrap_or_default()),
        ];
        let texts = lists.iter().flat_map(|(member, texts)| {
            texts.iter().enumerate().map(move |(i, text)| (format!("{member}/{i}"), text.as_str()))
        });
        let single = [("/name", Some(&self.name)), ("/require/review_owner", review_owner.as_ref())];
        let single = single.into_iter().filter_map(|(member, text)| Some((member.to_owned(), text?.as_str())));
        for (member, text) in single.chain(texts) {
            if text.trim().is_empty() || text.chars().count() > MAX_TEXT {
                fault(&member, &format!("expected 1 to {MAX_TEXT} characters"));
            }
        }
        if approvals.is_some_and(|n| !(1..=MAX_APPROVALS).contains(&n)) {
            fault("/require/approvals", "expected 1 to 10 people; `auto` grants without a vote");
        }
        if groups.as_ref().is_some_and(Vec::is_empty) {
            fault("/require/groups", "expected at least one group: nobody could decide");
        }
        if *auto == Some(true) && risk.iter().any(|risk| risk.needs_care()) {
            fault("/require/auto", "high and critical risk is never granted without a vote");
        }
        faults
    }
}

impl Effective {
    /// The same rule, decided by other groups and never without a vote; as it is where none is named.
    pub fn decided_by(self, groups: &[String]) -> Self {
        match groups {
            [] => self,
            groups => Self { groups: groups.to_vec(), auto: false, ..self },
        }
    }

    /// Whether somebody in `groups` may vote under this rule.
    pub fn admits(&self, groups: &[String]) -> bool {
        self.groups.iter().any(|group| groups.contains(group))
    }

    /// Whether the standing approvals are enough: each a person still able to vote, with their groups. However often
    /// somebody appears, one human is one vote.
    pub fn satisfied<'a>(&self, approvers: impl IntoIterator<Item = (&'a PersonId, &'a [String])>) -> bool {
        let counted = approvers.into_iter().filter(|(_, groups)| self.admits(groups)).map(|(person, _)| person);
        self.auto || counted.collect::<BTreeSet<_>>().len() as i64 >= self.approvals
    }
}

/// One value, or a list of at least one.
fn one_or_many<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct OneOrMany<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMany<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("text or a list of at least one text")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            T::deserialize(text.into_deserializer()).map(|one| vec![one])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<T>, A::Error> {
            let list = Vec::deserialize(SeqAccessDeserializer::new(list))?;
            if list.is_empty() { Err(serde::de::Error::invalid_length(0, &self)) } else { Ok(list) }
        }
    }

    deserializer.deserialize_any(OneOrMany(PhantomData))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const DEFAULTS: Defaults = Defaults { approval_ttl: Ttl(900), execution_ttl: Ttl(600), retry_ttl: Ttl(3600) };

    fn policy(rules: Value) -> Policy {
        Policy::load(&json!({"rules": rules}), 14).unwrap()
    }

    fn effective(policy: &Policy, kind: &str, target: &str, risk: Risk) -> Effective {
        let target = &target.parse().unwrap();
        let facts = MatchFacts { kind, target, risk, agent_name: "release-pilot", agent_id: "ag_1" };
        policy.matching(&facts, &DEFAULTS)
    }

    #[test]
    fn without_rules_one_approver_decides_within_the_default_spans() {
        let expected = json!({
            "rule": "default", "policy_version": 14, "approvals": 1, "groups": ["approvers"], "auto": false,
            "step_up": false, "approval_ttl_s": 900, "execution_ttl_s": 600, "retry_ttl_s": 3600, "one_reject": true,
            "review_owner": null, "review_due_s": 3600, "escalation": [],
        });
        let found = effective(&policy(json!([])), "ticket.create", "project/ops", Risk::Low);
        assert_eq!(serde_json::to_value(&found).unwrap(), expected);
        assert_eq!(serde_json::from_value::<Effective>(expected).unwrap(), found);
        assert_eq!(policy(json!([])).default_rule(&DEFAULTS), found);
    }

    #[test]
    fn the_first_rule_that_matches_holds_and_leaves_the_rest_to_the_defaults() {
        let policy = policy(json!([
            {"name": "production releases", "match": {"kind": "deployment.*", "target": "release/prod*"},
             "require": {"approvals": 2, "groups": ["sre"], "step_up": true, "approval_ttl_s": 300}},
            {"name": "all releases", "match": {"kind": ["deployment.release", "deployment.rollback"]},
             "require": {"execution_ttl_s": 60, "one_reject": false, "review_owner": "mira", "escalation": ["lin"]}},
            {"name": "critical", "match": {"risk": ["critical", "high"], "agent": ["other", "release-*"]}},
            {"name": "by id", "match": {"agent": "ag_1", "risk": "medium"}},
        ]));
        let rule = |kind, target, risk| effective(&policy, kind, target, risk).rule;
        assert_eq!(rule("deployment.release", "release/prod-eu", Risk::Critical), "production releases");
        assert_eq!(rule("deployment.release", "release/staging", Risk::High), "all releases");
        assert_eq!(rule("payment.refund", "order/1", Risk::High), "critical");
        assert_eq!(rule("payment.refund", "order/1", Risk::Medium), "by id");
        assert_eq!(rule("payment.refund", "order/1", Risk::Low), "default");

        let found = effective(&policy, "deployment.rollback", "release/prod", Risk::Critical);
        assert_eq!((found.approvals, found.groups, found.step_up), (2, vec!["sre".to_owned()], true));
        assert_eq!((found.approval_ttl, found.execution_ttl), (Ttl(300), Ttl(600)));
        let found = effective(&policy, "deployment.rollback", "release/x", Risk::Critical);
        assert_eq!((found.approvals, found.one_reject, found.execution_ttl), (1, false, Ttl(60)));
        assert_eq!((found.review_owner.as_deref(), found.escalation), (Some("mira"), vec!["lin".to_owned()]));
    }

    #[test]
    fn high_and_critical_risk_is_never_granted_without_a_vote() {
        let policy = policy(json!([{"name": "all", "require": {"auto": true}}]));
        for risk in Risk::ALL {
            let found = effective(&policy, "ticket.create", "project/ops", risk);
            assert_eq!(found.auto, risk <= Risk::Medium);
            assert_eq!(found.satisfied([]), found.auto);
        }
    }

    #[test]
    fn what_is_not_exactly_a_policy_refuses_to_load() {
        let rule = |rule: Value| json!({"rules": [{"name": "a"}, rule]});
        let require = |require: Value| rule(json!({"name": "b", "require": require}));
        let matches = |matches: Value| rule(json!({"name": "b", "match": matches}));
        for (document, pointer) in [
            (json!([]), ""),
            (json!({}), ""),
            (json!({"rules": {}}), "/rules"),
            (json!({"rules": [], "version": 3}), "/version"),
            (rule(json!({})), "/rules/1"),
            (rule(json!({"name": ""})), "/rules/1/name"),
            (rule(json!({"name": "a"})), "/rules/1/name"),
            (rule(json!({"name": "b", "when": {}})), "/rules/1/when"),
            (matches(json!({"verb": "pay"})), "/rules/1/match/verb"),
            (matches(json!({"kind": []})), "/rules/1/match/kind"),
            (matches(json!({"kind": ""})), "/rules/1/match/kind/0"),
            (matches(json!({"kind": ["a", 1]})), "/rules/1/match/kind/1"),
            (matches(json!({"kind": null})), "/rules/1/match/kind"),
            (matches(json!({"risk": "huge"})), "/rules/1/match/risk"),
            (matches(json!({"target": "x".repeat(301)})), "/rules/1/match/target/0"),
            (require(json!({"timeout_s": 0})), "/rules/1/require/timeout_s"),
            (require(json!({"approvals": 0})), "/rules/1/require/approvals"),
            (require(json!({"approvals": 11})), "/rules/1/require/approvals"),
            (require(json!({"approvals": "two"})), "/rules/1/require/approvals"),
            (require(json!({"groups": []})), "/rules/1/require/groups"),
            (require(json!({"groups": "sre"})), "/rules/1/require/groups"),
            (require(json!({"groups": ["sre", " "]})), "/rules/1/require/groups/1"),
            (require(json!({"auto": "yes"})), "/rules/1/require/auto"),
            (require(json!({"escalation": [""]})), "/rules/1/require/escalation/0"),
            (require(json!({"review_owner": ""})), "/rules/1/require/review_owner"),
            (
                rule(json!({"name": "b", "match": {"risk": ["low", "high"]}, "require": {"auto": true}})),
                "/rules/1/require/auto",
            ),
        ] {
            let problem = Policy::load(&document, 1).expect_err(&document.to_string());
            assert_eq!(problem.code, Code::ValidationFailed);
            assert_eq!(problem.members["errors"][0]["pointer"], pointer, "{document}: {problem}");
        }
        let many: Vec<_> = (0..=MAX_RULES).map(|i| json!({"name": i.to_string()})).collect();
        assert!(Policy::load(&json!({"rules": many}), 1).is_err());
    }

    #[test]
    fn a_span_outside_a_second_to_seven_days_refuses_to_load() {
        for member in ["approval_ttl_s", "execution_ttl_s", "retry_ttl_s", "review_due_s"] {
            let load = |value: Value| Policy::load(&json!({"rules": [{"name": "a", "require": {member: value}}]}), 1);
            for good in [1, 900, Ttl::MAX_SECONDS] {
                assert!(load(json!(good)).is_ok());
            }
            for bad in [json!(0), json!(-1), json!(Ttl::MAX_SECONDS + 1), json!(u64::MAX), json!("900"), json!(1.5)] {
                let problem = load(bad.clone()).expect_err(&bad.to_string());
                assert_eq!(problem.members["errors"][0]["pointer"], format!("/rules/0/require/{member}"));
            }
        }
    }

    #[test]
    fn a_quorum_counts_distinct_humans_of_the_rules_groups() {
        let person = |n| PersonId::from_parts(n, 0);
        let (asha, omar, lin) = (person(1), person(2), person(3));
        let (sre, web) = (["sre".to_owned()], ["web".to_owned(), "ops".to_owned()]);
        let rules = json!([{"name": "two", "require": {"approvals": 2, "groups": ["sre", "ops"]}}]);
        let two = effective(&policy(rules), "a.b", "c/d", Risk::Low);
        assert!(!two.satisfied([]));
        assert!(!two.satisfied([(&asha, &sre[..]), (&asha, &sre[..]), (&asha, &web[..])]));
        assert!(!two.satisfied([(&asha, &sre[..]), (&omar, &web[..1])]));
        assert!(!two.satisfied([(&asha, &sre[..]), (&omar, &[])]));
        assert!(two.satisfied([(&asha, &sre[..]), (&lin, &web[1..])]));
    }

    fn any_risk() -> impl Strategy<Value = Risk> {
        prop::sample::select(&Risk::ALL[..])
    }

    prop_compose! {
        fn any_rule()(
            name in "[a-z]{12}",
            kind in prop::option::of("[ab]{0,1}[.*][ab*]"),
            target in prop::option::of("[cd*]/[cd*]{1,2}"),
            risk in prop::option::of(any_risk()),
            approvals in prop::option::of(1..=MAX_APPROVALS),
            auto in any::<bool>(),
            approval_ttl in prop::option::of(1..=Ttl::MAX_SECONDS),
        ) -> Rule {
            Rule {
                name,
                matches: Match {
                    kind: kind.into_iter().collect(),
                    target: target.into_iter().collect(),
                    risk: risk.into_iter().filter(|risk| !auto || !risk.needs_care()).collect(),
                    agent: Vec::new(),
                },
                require: Require { approvals, auto: Some(auto), approval_ttl: approval_ttl.map(Ttl), ..Require::default() },
            }
        }
    }

    proptest! {
        #[test]
        fn a_policy_survives_being_stored(rules in prop::collection::vec(any_rule(), 0..8)) {
            let policy = Policy { version: 3, rules };
            prop_assume!(policy.rules.iter().map(|rule| &rule.name).collect::<BTreeSet<_>>().len() == policy.rules.len());
            prop_assert_eq!(Policy::load(&policy.document(), 3).unwrap(), policy);
        }

        #[test]
        fn whatever_the_rules_something_finite_and_careful_holds(
            rules in prop::collection::vec(any_rule(), 0..8),
            kind in "[ab]\\.[ab]", target in "[cd]/[cd]{1,2}", risk in any_risk(),
        ) {
            let policy = Policy { version: 3, rules };
            let found = effective(&policy, &kind, &target, risk);
            prop_assert!(!(found.auto && risk.needs_care()));
            prop_assert!((1..=MAX_APPROVALS).contains(&found.approvals) && !found.groups.is_empty());
            for span in [found.approval_ttl, found.execution_ttl, found.retry_ttl, found.review_due] {
                prop_assert!((1..=Ttl::MAX_SECONDS).contains(&span.as_seconds()));
            }

            let target = target.parse().unwrap();
            let facts = MatchFacts { kind: &kind, target: &target, risk, agent_name: "a", agent_id: "b" };
            let expected = policy.rules.iter().position(|rule| rule.matches.holds(&facts));
            prop_assert_eq!(policy.find(&facts).map(|(place, _)| place), expected);
            // A rule behind the one that matches changes nothing; one before it that matches everything does.
            let mut longer = policy.clone();
            longer.rules.push(Rule { name: "last".into(), matches: Match::default(), require: Require::default() });
            let last = if expected.is_some() { &found.rule } else { "last" };
            prop_assert_eq!(&longer.matching(&facts, &DEFAULTS).rule, last);
        }
    }
}
