//! One record of the log: what it may say, what each event must say, and how it is written and read.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Hash, State, merkle::leaf_hash};
use crate::model::{
    fingerprint::Fingerprint,
    id::{AgentId, ApprovalId, ClaimId, CorrelationId, ExecutorId, OperationId, PersonId, RunId},
    target::Target,
    time::Timestamp,
};

macro_rules! events {
    ($($(#[$doc:meta])* $name:literal $event:ident [$($member:ident)*];)*) => {
        /// What happened: a closed list. A verifier refuses a name that is not on it.
        ///
        /// The list below is also the table of the members each event must carry; others may be present.
        /// Besides it, a record that moves an operation from one state to another carries `from` and `to`
        /// (`operation.proposed`, which has no state before it, only `to`); on other records they are absent.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Event { $($(#[$doc])* $event,)* }

        impl Event {
            pub const ALL: &[Event] = &[$(Event::$event,)*];

            /// The dotted name, `operation.proposed`.
            pub fn as_str(self) -> &'static str {
                match self { $(Event::$event => $name,)* }
            }
        }

        impl Entry {
            /// The first member that the event demands and the entry lacks.
            pub fn missing(&self) -> Option<&'static str> {
                match self.event {
                    $(Event::$event => { $(if self.$member.is_none() { return Some(stringify!($member)); })* })*
                }
                None
            }
        }
    };
}

events! {
    // The life of an operation. The rows of the state table that write two records write them in this order:
    // proposed + auto_granted, proposed + conflicted, voted + granted, spent + claimed, abandoned + claimed,
    // licensed + claimed; the first of each pair but `proposed` moves nothing.
    /// ∅ → pending.
    "operation.proposed" OperationProposed [operation resource fingerprint key_ref];
    /// A known key with the same content: answered, nothing created.
    "operation.replayed" OperationReplayed [operation key_ref];
    /// A known key with other content, whose `fingerprint` this is: refused.
    "operation.key_conflict" OperationKeyConflict [operation key_ref];
    /// → conflicted, before anything was sent, or as the provider's definite answer.
    "operation.conflicted" OperationConflicted [operation];
    "operation.expired" OperationExpired [operation];
    "operation.cancelled" OperationCancelled [operation];
    "operation.superseded" OperationSuperseded [operation];
    /// How far its effect is undone: `status`, by the operation in `reason`. Nothing moves.
    "operation.compensation" OperationCompensation [operation status reason];
    /// → claimed, with the new claim and its claim fence.
    "operation.claimed" OperationClaimed [operation claim fence];

    /// pending → approved, by a rule or a run approval.
    "approval.auto_granted" ApprovalAutoGranted [operation approval fingerprint];
    /// One person's vote: `status` is `approve` or `reject`, `request_digest` the review document they saw.
    "approval.voted" ApprovalVoted [operation fingerprint status request_digest];
    /// pending → approved, by the person whose vote completed the quorum.
    "approval.granted" ApprovalGranted [operation approval fingerprint];
    /// pending → rejected; `reason` begins with the reason code.
    "approval.rejected" ApprovalRejected [operation reason];
    /// approved → pending; on a pending operation a vote is taken back and nothing moves.
    "approval.withdrawn" ApprovalWithdrawn [operation];
    /// The approval is used up by `claim`.
    "approval.spent" ApprovalSpent [operation approval claim fence fingerprint];
    /// The claim's deadline passed with nothing sent.
    "claim.abandoned" ClaimAbandoned [operation claim];

    /// claimed → sent, the first time: written before any byte leaves.
    "effect.sent" EffectSent [operation claim fence fingerprint];
    /// claimed → sent, every later time.
    "effect.resent" EffectResent [operation claim fence fingerprint];
    "effect.accepted" EffectAccepted [operation claim];
    "effect.completed" EffectCompleted [operation claim];
    "effect.failed" EffectFailed [operation claim];
    "effect.outcome_unknown" EffectOutcomeUnknown [operation claim];

    "reconcile.applied" ReconcileApplied [operation];
    "reconcile.not_applied" ReconcileNotApplied [operation];
    /// One more attempt is allowed; `reason` is its justification.
    "attempt.licensed" AttemptLicensed [operation reason];

    "review.opened" ReviewOpened [operation];
    /// The case has another owner or due time; nothing moves.
    "review.assigned" ReviewAssigned [operation reason];
    "review.seconded" ReviewSeconded [operation];
    /// needs_review → `to`; on a disputed operation the dispute ends and nothing moves.
    "review.resolved" ReviewResolved [operation reason];
    /// needs_review → unknown, with one attempt authorised.
    "review.retry_authorized" ReviewRetryAuthorized [operation fingerprint reason];
    "review.overdue" ReviewOverdue [operation];
    /// needs_review → abandoned; on a disputed operation the dispute ends and nothing moves.
    "review.abandoned" ReviewAbandoned [operation reason];
    /// A statement about the outcome: `status` is what it finds, `response_digest` its content's.
    "evidence.added" EvidenceAdded [operation];
    /// Evidence against a settled outcome: the state stays, the operation is disputed.
    "evidence.contradiction" EvidenceContradiction [operation];
    /// First-hand evidence for an outcome that was only reported: the state stays, `reason` is the evidence.
    "evidence.confirmation" EvidenceConfirmation [operation];

    // Refused attempts; `status` is the problem code.
    "proposal.refused" ProposalRefused [status];
    "approval.refused" ApprovalRefused [status];
    "claim.refused" ClaimRefused [status];
    "report.refused" ReportRefused [status];

    "run.started" RunStarted [run];
    "run.stopped" RunStopped [run];

    // Leases: `resource`, and its fencing token in `fence`.
    "lease.acquired" LeaseAcquired [resource fence];
    "lease.renewed" LeaseRenewed [resource fence];
    "lease.released" LeaseReleased [resource fence];
    "lease.taken_over" LeaseTakenOver [resource fence];
    "lease.force_released" LeaseForceReleased [resource fence];
    /// A write or report below the highest token or claim fence.
    "fence.rejected" FenceRejected [];

    // Change sets: `resource` is `change-set/` and the id.
    "change_set.opened" ChangeSetOpened [resource run key_ref fingerprint];
    /// A run takes it up, or does a missing step again; `reason` says which.
    "change_set.resumed" ChangeSetResumed [resource run reason];
    "change_set.done" ChangeSetDone [resource];
    "change_set.compensating" ChangeSetCompensating [resource reason];
    "change_set.compensated" ChangeSetCompensated [resource];
    "change_set.stuck" ChangeSetStuck [resource reason];

    /// What somebody decided about a conflict: `status` is `replan`, `accept_current` or `dismiss`. Nothing moves.
    "conflict.resolved" ConflictResolved [operation status];
    "resource.created" ResourceCreated [resource result_version];
    "resource.changed" ResourceChanged [resource result_version];
    "resource.deleted" ResourceDeleted [resource result_version];

    /// `result_version` is the number of records signed, `response_digest` `sha256:` and the root in hex.
    "checkpoint.signed" CheckpointSigned [];

    // Settings; `reason` says what in one phrase.
    "admin.setup_completed" AdminSetupCompleted [];
    "admin.settings_changed" AdminSettingsChanged [];
    "admin.policy_changed" AdminPolicyChanged [policy];
    "admin.kind_added" AdminKindAdded [];
    "admin.resource_rule_changed" AdminResourceRuleChanged [resource];
    "admin.resource_rule_removed" AdminResourceRuleRemoved [resource];
    "admin.provider_added" AdminProviderAdded [];
    "admin.provider_checked" AdminProviderChecked [status];
    "admin.person_created" AdminPersonCreated [];
    "admin.person_changed" AdminPersonChanged [];
    "admin.agent_created" AdminAgentCreated [];
    "admin.agent_changed" AdminAgentChanged [];
    "admin.agent_revoked" AdminAgentRevoked [];
    "admin.executor_created" AdminExecutorCreated [];
    "admin.executor_changed" AdminExecutorChanged [];
    "admin.executor_revoked" AdminExecutorRevoked [];
    "admin.run_approved" AdminRunApproved [run approval];
    "admin.run_approval_revoked" AdminRunApprovalRevoked [run approval];
    "admin.hold_overridden" AdminHoldOverridden [operation reason];
    "admin.body_erased" AdminBodyErased [];
    "admin.paused" AdminPaused [];
    "admin.resumed" AdminResumed [];
    "admin.restored" AdminRestored [];

    "account.created" AccountCreated [];
    "account.signed_in" AccountSignedIn [];
    "account.signed_out" AccountSignedOut [];
    "account.sign_in_refused" AccountSignInRefused [];
    "account.stepped_up" AccountSteppedUp [];
    "account.session_revoked" AccountSessionRevoked [];
    "account.password_changed" AccountPasswordChanged [];
    "account.disabled" AccountDisabled [];
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The name is not on the list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown event `{0}`")]
pub struct UnknownEvent(pub String);

impl FromStr for Event {
    type Err = UnknownEvent;

    fn from_str(name: &str) -> Result<Self, UnknownEvent> {
        Self::ALL.iter().copied().find(|event| event.as_str() == name).ok_or_else(|| UnknownEvent(name.to_owned()))
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    Human,
    Agent,
    Run,
    Executor,
    Policy,
    System,
}

/// Who did it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Actor {
    pub kind: ActorKind,
    /// The principal's id; of a policy `rule@version`; of the system and the built-in executors the part that acted.
    pub id: String,
}

impl Actor {
    fn new(kind: ActorKind, id: impl fmt::Display) -> Self {
        Self { kind, id: id.to_string() }
    }

    pub fn human(id: &PersonId) -> Self {
        Self::new(ActorKind::Human, id)
    }

    pub fn agent(id: &AgentId) -> Self {
        Self::new(ActorKind::Agent, id)
    }

    pub fn run(id: &RunId) -> Self {
        Self::new(ActorKind::Run, id)
    }

    pub fn executor(id: &ExecutorId) -> Self {
        Self::new(ActorKind::Executor, id)
    }

    /// A built-in executor: `managed` or `gateway`.
    pub fn built_in(name: &'static str) -> Self {
        Self::new(ActorKind::Executor, name)
    }

    /// `rule` names the policy rule, with its version.
    pub fn policy(rule: impl fmt::Display) -> Self {
        Self::new(ActorKind::Policy, rule)
    }

    /// `part` says which: `clock`, `reconciler`, `command-line` …
    pub fn system(part: &'static str) -> Self {
        Self::new(ActorKind::System, part)
    }
}

/// The kind in words and the id: `person usr_…`.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ActorKind::Human => "person",
            ActorKind::Agent => "agent",
            ActorKind::Run => "run",
            ActorKind::Executor => "executor",
            ActorKind::Policy => "policy",
            ActorKind::System => "system",
        };
        write!(f, "{kind} {}", self.id)
    }
}

macro_rules! entry {
    ($($(#[$doc:meta])* $member:ident: $type:ty,)*) => {
        /// A record before it has its place in the log. Every member but the first two is optional:
        ///
        /// ```
        /// # use counterfoil::model::{audit::{Actor, Entry, Event}, id::RunId};
        /// # let run = RunId::from_parts(0, 0);
        /// let entry = Entry { run: Some(run.clone()), ..Entry::new(Event::RunStarted, Actor::run(&run)) };
        /// ```
        ///
        /// Integers lie within ±(2^53 − 1), as everywhere in JSON (RFC 8785 §3.2.2.3).
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Entry {
            pub event: Event,
            pub actor: Actor,
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $member: Option<$type>,)*
        }

        impl Entry {
            pub fn new(event: Event, actor: Actor) -> Self {
                Self { event, actor, $($member: None,)* }
            }
        }
    };
}

entry! {
    operation: OperationId,
    approval: ApprovalId,
    claim: ClaimId,
    run: RunId,
    correlation: CorrelationId,
    resource: Target,
    /// Method and route template of the request, `POST /api/v1/operations`.
    route: String,
    /// Of the command in question.
    fingerprint: Fingerprint,
    /// See [`super::key_ref`].
    key_ref: String,
    /// The version the write was planned on.
    expected_version: i64,
    /// The version the write made.
    result_version: i64,
    /// The claim fence; on `lease.*` the fencing token.
    fence: i64,
    /// What came back: the provider's status, the vote, the code of a refusal.
    status: String,
    /// The provider's own name for what it did.
    provider_ref: String,
    /// See [`super::salted_digest`]; on a vote the review digest.
    request_digest: String,
    /// See [`super::salted_digest`].
    response_digest: String,
    /// A code, or the words of a person.
    reason: String,
    /// The rule that decided, `rule@version`.
    policy: String,
    /// The operation's state before this record.
    from: State,
    /// The operation's state after this record.
    to: State,
}

/// The format's version, `1` in every record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub(super) struct Version;

impl TryFrom<u8> for Version {
    type Error = &'static str;

    fn try_from(v: u8) -> Result<Self, Self::Error> {
        if v == 1 { Ok(Self) } else { Err("only version 1 of the format is known") }
    }
}

impl From<Version> for u8 {
    fn from(_: Version) -> Self {
        1
    }
}

mod millis {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::model::time::Timestamp;

    pub fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(at.as_millis())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        i64::deserialize(deserializer).map(Timestamp)
    }
}

/// An entry in its place in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub(super) v: Version,
    /// From 0, without holes.
    pub seq: u64,
    /// Link hash of the record before.
    pub prev: Hash,
    /// When it was committed; never before its predecessor.
    #[serde(with = "millis")]
    pub at: Timestamp,
    #[serde(flatten)]
    pub entry: Entry,
}

/// A record with its line and what the chain and the tree need of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub record: Record,
    /// The canonical line, without a line feed.
    pub json: String,
    /// Link hash: the next record's `prev`.
    pub hash: Hash,
    /// Merkle leaf hash.
    pub leaf: Hash,
}

/// Writes an entry into its place: `prev` is the [`Sealed::hash`] of the record before, [`Hash::ZERO`] for the first.
pub fn seal(entry: &Entry, seq: u64, prev: &Hash, at: Timestamp) -> Sealed {
    debug_assert_eq!(entry.missing(), None, "{} lacks a member", entry.event);
    Record { v: Version, seq, prev: *prev, at, entry: entry.clone() }.seal()
}

/// Why a line is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRecord {
    #[error("it is not a record: {0}")]
    Syntax(String),
    #[error("it is not in canonical form, or has members no record has")]
    NotCanonical,
    #[error("`{event}` lacks `{member}`")]
    Missing { event: Event, member: &'static str },
}

impl Record {
    pub(super) fn seal(self) -> Sealed {
        let json =
            serde_json_canonicalizer::to_string(&self).expect("strings and integers always have a canonical form");
        Sealed { hash: Hash::of(&[json.as_bytes()]), leaf: leaf_hash(json.as_bytes()), record: self, json }
    }

    /// Reads one line, without its line feed.
    ///
    /// Strict by one comparison: whatever is written differently when written again (another order or spelling, white
    /// space, a member twice, unknown or null, an integer beyond 2^53) is refused.
    pub fn parse(line: &[u8]) -> Result<Sealed, InvalidRecord> {
        let record: Record = serde_json::from_slice(line).map_err(|error| InvalidRecord::Syntax(error.to_string()))?;
        if let Some(member) = record.entry.missing() {
            return Err(InvalidRecord::Missing { event: record.entry.event, member });
        }
        let sealed = record.seal();
        if sealed.json.as_bytes() == line { Ok(sealed) } else { Err(InvalidRecord::NotCanonical) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> String {
        let run = RunId::from_parts(1, 1);
        let entry = Entry {
            operation: Some(OperationId::from_parts(1, 2)),
            resource: Some("project/ops".parse().unwrap()),
            fingerprint: Some(Fingerprint::of_canonical("{}")),
            key_ref: Some("0123456789abcdef".into()),
            reason: Some("naïve \"quotes\"\n\u{1f}".into()),
            expected_version: Some(0),
            to: Some(State::Pending),
            ..Entry::new(Event::OperationProposed, Actor::run(&run))
        };
        seal(&entry, 7, &Hash::ZERO, Timestamp(1_796_083_260_123)).json
    }

    #[test]
    fn a_record_has_exactly_one_spelling() {
        assert_eq!(
            line(),
            concat!(
                r#"{"actor":{"id":"run_00000000010000000000000001","kind":"run"},"at":1796083260123,"#,
                r#""event":"operation.proposed","expected_version":0,"#,
                r#""fingerprint":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","#,
                r#""key_ref":"0123456789abcdef","operation":"op_00000000010000000000000002","#,
                r#""prev":"0000000000000000000000000000000000000000000000000000000000000000","#,
                r#""reason":"naïve \"quotes\"\n\u001f","resource":"project/ops","seq":7,"to":"pending","v":1}"#
            )
        );
        let sealed = Record::parse(line().as_bytes()).unwrap();
        assert_eq!(sealed.json, line());
        assert_eq!(sealed.record.at, Timestamp(1_796_083_260_123));
    }

    #[test]
    fn any_other_spelling_is_refused() {
        let edits: &[(&str, &str)] = &[
            (r#"{"actor""#, r#"{ "actor""#),
            (r#""v":1}"#, "\"v\":1}\r"),
            (r#""v":1}"#, "\"v\":1}{}"),
            (r#""v":1}"#, r#""v":1,"w":1}"#),
            (r#""v":1}"#, r#""v":1,"v":1}"#),
            (r#""v":1}"#, r#""v":2}"#),
            (r#""v":1}"#, r#""v":1.0}"#),
            (r#","v":1}"#, "}"),
            (r#""kind":"run"}"#, r#""kind":"run","name":"x"}"#),
            (r#""kind":"run""#, r#""kind":"root""#),
            (r#""seq":7"#, r#""seq":7e0"#),
            (r#""seq":7"#, r#""seq":-7"#),
            (r#""seq":7"#, r#""seq":9007199254740993"#),
            (r#""seq":7"#, r#""seq":7,"seq":7"#),
            (r#""seq":7"#, r#""seq":7,"status":null"#),
            (r#""seq":7"#, r#""seq":7,"status":1"#),
            (r#""seq":7,"to":"pending""#, r#""to":"pending","seq":7"#),
            (r#""to":"pending""#, r#""to":"Pending""#),
            ("naïve", "na\\u00efve"),
            ("naïve", "nai\\ud800ve"),
            (r"\u001f", r"\u001F"),
            ("operation.proposed", "operation.imagined"),
            ("op_0", "oq_0"),
            (r#""prev":"0"#, r#""prev":"A"#),
            ("sha256:4", "sha256:"),
            ("project/ops", "project"),
            (r#""resource":"project/ops","#, ""),
        ];
        for (old, new) in edits {
            let edited = line().replacen(old, new, 1);
            assert_ne!(edited, line(), "{old} is not in the record");
            assert!(Record::parse(edited.as_bytes()).is_err(), "{edited}");
        }
        assert!(Record::parse(b"").is_err());
        assert!(Record::parse(b"\xff").is_err());
    }

    #[test]
    fn every_event_is_found_by_its_dotted_name() {
        for &event in Event::ALL {
            assert_eq!(event.as_str().parse(), Ok(event));
        }
        assert_eq!("operation.imagined".parse::<Event>(), Err(UnknownEvent("operation.imagined".into())));
    }

    #[test]
    fn what_an_event_must_carry_is_checked_when_read() {
        let mut record = Record::parse(line().as_bytes()).unwrap().record;
        record.entry.key_ref = None;
        let missing = InvalidRecord::Missing { event: Event::OperationProposed, member: "key_ref" };
        assert_eq!(Record::parse(record.seal().json.as_bytes()), Err(missing));
    }
}
