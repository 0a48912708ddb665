//! The meaning of a log: every record must be a step the life of an operation allows.
//!
//! This is a second, independent statement of the rules the server enforces. A server that signed a log in which an
//! unapproved write was sent has signed the proof of it.

use std::collections::{BTreeMap, HashMap};

use super::record::{ActorKind, Entry, Event, Record};
use crate::model::{
    fingerprint::Fingerprint,
    id::{ApprovalId, ClaimId, OperationId},
    operation::State,
    target::Target,
    time::Timestamp,
};

/// A rule that a record breaks, although chain and signature hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    #[error("its time is before its predecessor's")]
    ClockWentBack,
    #[error("`{0}` was never proposed")]
    NeverProposed(OperationId),
    #[error("`{0}` is proposed a second time")]
    ProposedTwice(OperationId),
    #[error("a proposal leads from nothing to pending")]
    NotPending,
    #[error("`{event}` cannot happen to an operation that is {state}")]
    NotAllowed { event: Event, state: State },
    #[error("`from` and `to` are not the step from {from} to {to}")]
    OtherStep { from: State, to: State },
    #[error("its fingerprint is not the operation's")]
    OtherFingerprint,
    #[error("its fingerprint is the operation's, so there is no conflict")]
    SameFingerprint,
    #[error("it is not the act of a person")]
    NotAPerson,
    #[error("`status` is neither `approve` nor `reject`")]
    NoVote,
    #[error("this person has voted already")]
    VotedTwice,
    #[error("the approval was not completed by an approving vote")]
    GrantedWithoutVote,
    #[error("the approval is not the one in force")]
    OtherApproval,
    #[error("the approval is spent already")]
    AlreadySpent,
    #[error("nothing entitles this claim: no approval spent, no claim abandoned, no attempt licensed for it")]
    ClaimWithoutRight,
    #[error("the claim fence {found} is not above {last}")]
    FenceNotAbove { last: i64, found: i64 },
    #[error("it is not done under the current claim and its fence")]
    OtherClaim,
    #[error("something was sent before, so this is a repetition")]
    SentBefore,
    #[error("nothing was sent before, so there is nothing to repeat")]
    NothingSentBefore,
    #[error("something was sent, so it is not provable that nothing was applied")]
    MayHaveApplied,
    #[error("an earlier attempt ended unknown, so one refusal proves nothing")]
    EarlierAttemptUnknown,
    #[error("no effect of this operation made version {0}")]
    VersionWithoutEffect(i64),
    #[error("version {found} of `{resource}` is not above {last}")]
    VersionNotAbove { resource: Target, last: i64, found: i64 },
    #[error("`{event}` cannot follow on {last} for `{resource}`")]
    NotTheSetsTurn { resource: Target, event: Event, last: &'static str },
    #[error("the fencing token {found} of `{resource}` is not above {last}")]
    TokenNotAbove { resource: Target, last: i64, found: i64 },
    #[error("the fencing token {found} of `{resource}` is not the current one, {last}")]
    StaleToken { resource: Target, last: i64, found: i64 },
}

/// What the log has established so far.
#[derive(Debug, Default)]
pub struct Replay {
    clock: Timestamp,
    operations: HashMap<OperationId, Operation>,
    /// The highest fencing token of each resource.
    tokens: HashMap<Target, i64>,
    /// The last version of each resource.
    versions: HashMap<Target, i64>,
    /// The last event of each change set, but for who took it up.
    sets: HashMap<Target, Event>,
}

impl Replay {
    /// Takes the next record. After a breach the replay is of no further use.
    pub fn apply(&mut self, record: &Record) -> Result<(), Breach> {
        if record.at < self.clock {
            return Err(Breach::ClockWentBack);
        }
        self.clock = record.at;
        let entry = &record.entry;
        if let (Some(resource), Some(token)) = (&entry.resource, entry.fence) {
            self.lease(entry.event, resource, token)?;
        }
        if let (true, Some(resource), Some(version)) = (is_version(entry.event), &entry.resource, entry.result_version)
        {
            self.version(resource, version)?;
        }
        if let Some(resource) = &entry.resource {
            self.change_set(entry.event, resource)?;
        }
        match &entry.operation {
            None => Ok(()),
            Some(id) if entry.event == Event::OperationProposed => self.propose(id, entry),
            Some(id) => match self.operations.get_mut(id) {
                Some(operation) => operation.apply(entry),
                None => Err(Breach::NeverProposed(id.clone())),
            },
        }
    }

    fn propose(&mut self, id: &OperationId, entry: &Entry) -> Result<(), Breach> {
        if (entry.from, entry.to) != (None, Some(State::Pending)) {
            return Err(Breach::NotPending);
        }
        match self.operations.insert(id.clone(), Operation::new(entry)) {
            None => Ok(()),
            Some(_) => Err(Breach::ProposedTwice(id.clone())),
        }
    }

    fn version(&mut self, resource: &Target, found: i64) -> Result<(), Breach> {
        match self.versions.insert(resource.clone(), found) {
            Some(last) if found <= last => Err(Breach::VersionNotAbove { resource: resource.clone(), last, found }),
            _ => Ok(()),
        }
    }

    /// A set is opened once, and what is done or stuck only turns back.
    fn change_set(&mut self, event: Event, resource: &Target) -> Result<(), Breach> {
        use Event::*;
        let last = self.sets.get(resource).copied();
        let is_turn = match event {
            ChangeSetOpened => last.is_none(),
            ChangeSetResumed => matches!(last, Some(ChangeSetOpened | ChangeSetCompensating)),
            ChangeSetDone => last == Some(ChangeSetOpened),
            ChangeSetCompensating => matches!(last, Some(ChangeSetOpened | ChangeSetDone | ChangeSetStuck)),
            ChangeSetCompensated | ChangeSetStuck => last == Some(ChangeSetCompensating),
            _ => return Ok(()),
        };
        if !is_turn {
            let last = last.map_or("nothing", Event::as_str);
            return Err(Breach::NotTheSetsTurn { resource: resource.clone(), event, last });
        }
        if event != ChangeSetResumed {
            self.sets.insert(resource.clone(), event);
        }
        Ok(())
    }

    fn lease(&mut self, event: Event, resource: &Target, found: i64) -> Result<(), Breach> {
        let last = self.tokens.get(resource).copied().unwrap_or(0);
        let resource = resource.clone();
        match event {
            Event::LeaseAcquired | Event::LeaseTakenOver if found <= last => {
                return Err(Breach::TokenNotAbove { resource, last, found });
            }
            Event::LeaseRenewed | Event::LeaseReleased if found != last => {
                return Err(Breach::StaleToken { resource, last, found });
            }
            Event::LeaseForceReleased if found < last => return Err(Breach::StaleToken { resource, last, found }),
            Event::LeaseAcquired | Event::LeaseTakenOver | Event::LeaseForceReleased => {
                self.tokens.insert(resource, found);
            }
            _ => {}
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vote {
    Approve,
    Reject,
}

/// What entitles the next `operation.claimed`; used up by it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Right {
    Spent { claim: Option<ClaimId>, fence: Option<i64> },
    Abandoned,
    Licensed,
}

#[derive(Debug)]
struct Approval {
    id: Option<ApprovalId>,
    spent: bool,
}

#[derive(Debug)]
struct Operation {
    state: State,
    fingerprint: Option<Fingerprint>,
    key_ref: Option<String>,
    /// By person, since the last withdrawal.
    votes: BTreeMap<String, Vote>,
    /// Granted and not withdrawn.
    approval: Option<Approval>,
    right: Option<Right>,
    claim: Option<ClaimId>,
    /// The highest claim fence.
    fence: i64,
    /// Something was sent, under this claim or an earlier one.
    sent: bool,
    /// An attempt ended unknown.
    ambiguous: bool,
    disputed: bool,
    /// The version that its effect made, until the resource's own record.
    made: Option<i64>,
    /// Its conflict was decided.
    resolved: bool,
}

impl Operation {
    fn new(proposed: &Entry) -> Self {
        Self {
            state: State::Pending,
            fingerprint: proposed.fingerprint.clone(),
            key_ref: proposed.key_ref.clone(),
            votes: BTreeMap::new(),
            approval: None,
            right: None,
            claim: None,
            fence: 0,
            sent: false,
            ambiguous: false,
            disputed: false,
            made: None,
            resolved: false,
        }
    }

    fn apply(&mut self, entry: &Entry) -> Result<(), Breach> {
        let from = self.state;
        let to = self.step(entry)?;
        // Where nothing moves, `from` and `to` may be left out.
        let states = |stated: Option<State>, state| stated == Some(state) || (from == to && stated.is_none());
        if !states(entry.from, from) || !states(entry.to, to) {
            return Err(Breach::OtherStep { from, to });
        }
        if from != to {
            self.right = None;
        }
        self.state = to;
        Ok(())
    }

    /// The state the event leads to.
    fn step(&mut self, entry: &Entry) -> Result<State, Breach> {
        use Event as E;
        use State::*;

        let state = self.state;
        Ok(match (entry.event, state) {
            (E::ApprovalAutoGranted, Pending) => self.grant(entry)?,
            (E::ApprovalVoted, Pending) => self.vote(entry)?,
            (E::ApprovalGranted, Pending) => {
                if self.votes.get(self.person(entry)?) != Some(&Vote::Approve) {
                    return Err(Breach::GrantedWithoutVote);
                }
                self.grant(entry)?
            }
            (E::ApprovalRejected, Pending) => self.person(entry).map(|_| Rejected)?,
            (E::ApprovalWithdrawn, Pending | Approved) => self.withdraw(entry)?,
            (E::ApprovalSpent, Approved) => self.spend(entry)?,

            (E::OperationClaimed, Approved | Claimed | Unknown) => self.claim(entry)?,
            (E::ClaimAbandoned, Claimed) => {
                self.under_claim(entry)?;
                self.right = Some(Right::Abandoned);
                Claimed
            }
            (E::AttemptLicensed, Unknown) => {
                self.right = Some(Right::Licensed);
                Unknown
            }

            (E::EffectSent, Claimed) if self.sent => return Err(Breach::SentBefore),
            (E::EffectResent, Claimed) if !self.sent => return Err(Breach::NothingSentBefore),
            (E::EffectSent | E::EffectResent, Claimed) => {
                self.same_fingerprint(entry)?;
                self.under_claim(entry)?;
                self.sent = true;
                Sent
            }
            (E::EffectAccepted, Sent) => self.under_claim(entry).map(|()| Accepted)?,
            (E::EffectCompleted, Sent | Accepted) => {
                self.under_claim(entry)?;
                self.made = entry.result_version;
                Succeeded
            }
            (event, _) if is_version(event) => {
                if self.made.take() != entry.result_version {
                    return Err(Breach::VersionWithoutEffect(entry.result_version.unwrap_or(0)));
                }
                state
            }
            (E::EffectFailed | E::OperationConflicted, Sent | Accepted) if self.ambiguous => {
                return Err(Breach::EarlierAttemptUnknown);
            }
            (E::EffectFailed, Sent | Accepted) => self.under_claim(entry).map(|()| Failed)?,
            (E::OperationConflicted, Sent | Accepted) => Conflicted,
            // From `claimed`: a licensed repetition that lapsed before it was sent.
            (E::EffectOutcomeUnknown, Sent | Accepted | Claimed) => {
                if !self.sent {
                    return Err(Breach::NothingSentBefore);
                }
                self.under_claim(entry)?;
                self.ambiguous = true;
                Unknown
            }

            (E::OperationConflicted | E::OperationExpired | E::OperationCancelled, Claimed) if self.sent => {
                return Err(Breach::MayHaveApplied);
            }
            (E::OperationConflicted, Pending | Approved | Claimed) => Conflicted,
            (E::OperationExpired, Pending | Approved | Claimed) => Expired,
            (E::OperationCancelled, Pending | Approved | Claimed) => Cancelled,
            (E::OperationSuperseded, Pending | Approved) => Superseded,

            (E::ReconcileApplied, Unknown | NeedsReview) => Succeeded,
            (E::ReconcileNotApplied, Unknown | NeedsReview) => Failed,
            // Whatever was under way is open from here on, also where another attempt is authorised.
            (E::ReviewOpened, Unknown | Accepted) => {
                self.ambiguous = true;
                NeedsReview
            }
            (E::ReviewResolved, NeedsReview) => match entry.to {
                Some(to @ (Succeeded | Failed)) => to,
                _ => return Err(Breach::NotAllowed { event: entry.event, state }),
            },
            (E::ReviewRetryAuthorized, NeedsReview) => self.same_fingerprint(entry).map(|()| Unknown)?,
            (E::ReviewAbandoned, NeedsReview) => Abandoned,
            (E::ReviewAssigned | E::ReviewSeconded | E::ReviewOverdue, NeedsReview) => NeedsReview,

            (E::EvidenceContradiction, _) if state.is_terminal() => {
                self.disputed = true;
                state
            }
            (E::EvidenceConfirmation, Succeeded | Failed | Conflicted) if self.sent && !self.disputed => state,
            (E::ReviewOpened | E::ReviewAssigned | E::ReviewSeconded | E::ReviewOverdue, _) if self.disputed => state,
            (E::ReviewResolved | E::ReviewAbandoned, _) if self.disputed => {
                self.disputed = false;
                state
            }

            (E::ConflictResolved, Conflicted) if !self.resolved => {
                self.resolved = true;
                state
            }
            (event @ E::ConflictResolved, _) => return Err(Breach::NotAllowed { event, state }),

            (E::OperationCompensation, _) => state,

            (E::OperationReplayed, _) => self.same_key_same_fingerprint(entry).map(|()| state)?,
            (E::OperationKeyConflict, _) => {
                if entry.key_ref == self.key_ref && entry.fingerprint == self.fingerprint {
                    return Err(Breach::SameFingerprint);
                }
                state
            }

            (event, _) if is_step(event) => return Err(Breach::NotAllowed { event, state }),
            _ => state,
        })
    }

    fn same_fingerprint(&self, entry: &Entry) -> Result<(), Breach> {
        if entry.fingerprint == self.fingerprint { Ok(()) } else { Err(Breach::OtherFingerprint) }
    }

    /// An answer under an alias of the key (a business key already known) may be to other content.
    fn same_key_same_fingerprint(&self, entry: &Entry) -> Result<(), Breach> {
        if entry.key_ref != self.key_ref || entry.fingerprint.is_none() { Ok(()) } else { self.same_fingerprint(entry) }
    }

    fn person<'e>(&self, entry: &'e Entry) -> Result<&'e str, Breach> {
        if entry.actor.kind == ActorKind::Human { Ok(&entry.actor.id) } else { Err(Breach::NotAPerson) }
    }

    fn under_claim(&self, entry: &Entry) -> Result<(), Breach> {
        let same = entry.claim == self.claim && entry.fence.is_none_or(|fence| fence == self.fence);
        if same { Ok(()) } else { Err(Breach::OtherClaim) }
    }

    fn vote(&mut self, entry: &Entry) -> Result<State, Breach> {
        self.same_fingerprint(entry)?;
        let person = self.person(entry)?.to_owned();
        let vote = match entry.status.as_deref() {
            Some("approve") => Vote::Approve,
            Some("reject") => Vote::Reject,
            _ => return Err(Breach::NoVote),
        };
        match self.votes.insert(person, vote) {
            None => Ok(State::Pending),
            Some(_) => Err(Breach::VotedTwice),
        }
    }

    fn grant(&mut self, entry: &Entry) -> Result<State, Breach> {
        self.same_fingerprint(entry)?;
        self.approval = Some(Approval { id: entry.approval.clone(), spent: false });
        Ok(State::Approved)
    }

    /// Whose vote an operator withdraws is not in the record: afterwards anybody may vote again.
    fn withdraw(&mut self, entry: &Entry) -> Result<State, Breach> {
        match &self.approval {
            Some(approval) if approval.spent => return Err(Breach::AlreadySpent),
            Some(approval) if entry.approval.is_some() && entry.approval != approval.id => {
                return Err(Breach::OtherApproval);
            }
            _ => {}
        }
        self.approval = None;
        self.votes.clear();
        Ok(State::Pending)
    }

    fn spend(&mut self, entry: &Entry) -> Result<State, Breach> {
        self.same_fingerprint(entry)?;
        match &mut self.approval {
            Some(approval) if approval.spent => return Err(Breach::AlreadySpent),
            Some(approval) if approval.id == entry.approval => approval.spent = true,
            _ => return Err(Breach::OtherApproval),
        }
        self.right = Some(Right::Spent { claim: entry.claim.clone(), fence: entry.fence });
        Ok(State::Approved)
    }

    fn claim(&mut self, entry: &Entry) -> Result<State, Breach> {
        match (self.state, self.right.take()) {
            (State::Approved, Some(Right::Spent { claim, fence })) if claim == entry.claim && fence == entry.fence => {}
            (State::Claimed, Some(Right::Abandoned)) | (State::Unknown, Some(Right::Licensed)) => {}
            _ => return Err(Breach::ClaimWithoutRight),
        }
        let found = entry.fence.unwrap_or(0);
        if found <= self.fence {
            return Err(Breach::FenceNotAbove { last: self.fence, found });
        }
        self.fence = found;
        self.claim = entry.claim.clone();
        Ok(State::Claimed)
    }
}

/// Whether the event is a new version of a resource.
fn is_version(event: Event) -> bool {
    matches!(event, Event::ResourceCreated | Event::ResourceChanged | Event::ResourceDeleted)
}

/// Whether the event is one of the life cycle, allowed only where the table above has it. Refusals, evidence and the
/// events of other words may mention an operation in any state.
fn is_step(event: Event) -> bool {
    let (word, what) = event.as_str().split_once('.').unwrap_or_default();
    let steps = ["operation", "approval", "claim", "effect", "reconcile", "attempt", "review"];
    (steps.contains(&word) && what != "refused")
        || matches!(event, Event::EvidenceContradiction | Event::EvidenceConfirmation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::audit::{
        Actor,
        sample::{LIVES, Life, Log, life},
    };

    fn replay(entries: impl IntoIterator<Item = Entry>) -> Result<(), Breach> {
        let mut replay = Replay::default();
        Log::of(entries).records.iter().try_for_each(|sealed| replay.apply(&sealed.record))
    }

    #[track_caller]
    fn breach(life: Life) -> Breach {
        replay(life.entries).unwrap_err()
    }

    fn new() -> Life {
        Life::new(1)
    }

    fn claimed() -> Life {
        new().granted(1).spent().claimed()
    }

    fn clock() -> Actor {
        Actor::system("clock")
    }

    #[test]
    fn every_life_the_contract_allows_replays() {
        for which in 0..LIVES {
            assert_eq!(replay(life(which, 1)), Ok(()), "life {which}");
        }
    }

    #[test]
    fn no_step_of_a_life_can_be_left_out_or_happen_twice() {
        for which in 0..LIVES {
            let entries = life(which, 1);
            let steps = (0..entries.len()).filter(|&i| entries[i].to.is_some());
            for i in steps {
                if entries[i + 1..].iter().any(|later| later.to.is_some()) {
                    let mut without = entries.clone();
                    without.remove(i);
                    assert!(replay(without).is_err(), "life {which} without {}", entries[i].event);
                }
                let mut twice = entries.clone();
                twice.insert(i, entries[i].clone());
                assert!(replay(twice).is_err(), "life {which} with {} twice", entries[i].event);
            }
        }
    }

    #[test]
    fn nothing_is_sent_without_an_approval_spent_by_that_claim() {
        let not_allowed = |event, state| Breach::NotAllowed { event, state };
        assert_eq!(breach(new().sent()), not_allowed(Event::EffectSent, State::Pending));
        assert_eq!(breach(new().granted(1).sent()), not_allowed(Event::EffectSent, State::Approved));
        assert_eq!(breach(new().granted(1).claimed()), Breach::ClaimWithoutRight);
        assert_eq!(breach(new().spent()), not_allowed(Event::ApprovalSpent, State::Pending));

        let mut other_claim = claimed();
        other_claim.entries.last_mut().unwrap().claim = Some(ClaimId::from_parts(9, 9));
        assert_eq!(breach(other_claim), Breach::ClaimWithoutRight);
        let mut other_claim = claimed().sent();
        other_claim.entries.last_mut().unwrap().claim = Some(ClaimId::from_parts(9, 9));
        assert_eq!(breach(other_claim), Breach::OtherClaim);
        let mut other_fence = claimed().sent();
        other_fence.entries.last_mut().unwrap().fence = Some(2);
        assert_eq!(breach(other_fence), Breach::OtherClaim);
        let mut other_approval = new().granted(1).spent();
        other_approval.entries.last_mut().unwrap().approval = Some(ApprovalId::from_parts(9, 9));
        assert_eq!(breach(other_approval), Breach::OtherApproval);
    }

    #[test]
    fn one_fingerprint_runs_from_the_proposal_to_the_effect() {
        let honest = claimed().sent().entries;
        for i in 1..honest.len() {
            if honest[i].event == Event::OperationClaimed {
                continue;
            }
            let mut entries = honest.clone();
            entries[i].fingerprint = Some(Fingerprint::of_canonical("other"));
            assert_eq!(replay(entries), Err(Breach::OtherFingerprint), "{}", honest[i].event);
        }
    }

    #[test]
    fn an_approval_is_spent_once_and_not_withdrawn_afterwards() {
        assert_eq!(breach(new().granted(1).spent().spent()), Breach::AlreadySpent);
        let withdrawn = new().granted(1).spent().step(Event::ApprovalWithdrawn, Life::person(1), State::Pending);
        assert_eq!(breach(withdrawn), Breach::AlreadySpent);
        assert!(matches!(breach(claimed().spent()), Breach::NotAllowed { .. }));
    }

    #[test]
    fn only_votes_of_distinct_people_grant() {
        assert_eq!(breach(new().vote(1, "approve").vote(1, "approve")), Breach::VotedTwice);
        assert_eq!(breach(new().vote(1, "perhaps")), Breach::NoVote);
        let grant = |life: Life, actor| life.step(Event::ApprovalGranted, actor, State::Approved);
        assert_eq!(breach(grant(new(), Life::person(1))), Breach::GrantedWithoutVote);
        assert_eq!(breach(grant(new().vote(1, "reject"), Life::person(1))), Breach::GrantedWithoutVote);
        assert_eq!(breach(grant(new().vote(1, "approve"), Life::person(2))), Breach::GrantedWithoutVote);
        assert_eq!(breach(grant(new().vote(1, "approve"), clock())), Breach::NotAPerson);
        let mut rejected = new().rejected();
        rejected.entries.last_mut().unwrap().actor = clock();
        assert_eq!(breach(rejected), Breach::NotAPerson);
    }

    #[test]
    fn claim_fences_rise() {
        let mut life = claimed().reclaimed(Event::ClaimAbandoned);
        life.entries.last_mut().unwrap().fence = Some(1);
        assert_eq!(breach(life), Breach::FenceNotAbove { last: 1, found: 1 });
        assert_eq!(breach(claimed().claimed()), Breach::ClaimWithoutRight);
    }

    #[test]
    fn another_try_needs_a_licence_and_is_called_one() {
        let unknown = || claimed().sent().unknown();
        assert_eq!(breach(unknown().claimed()), Breach::ClaimWithoutRight);
        let kept = unknown().note(Event::AttemptLicensed, clock());
        let kept = kept.step(Event::ReviewOpened, clock(), State::NeedsReview);
        let kept = kept.step(Event::ReviewRetryAuthorized, clock(), State::Unknown);
        assert_eq!(breach(kept.claimed()), Breach::ClaimWithoutRight);
        assert_eq!(breach(unknown().reclaimed(Event::AttemptLicensed).sent()), Breach::SentBefore);
        assert_eq!(breach(claimed().resent()), Breach::NothingSentBefore);
    }

    #[test]
    fn what_may_have_applied_neither_lapses_nor_fails_by_one_refusal() {
        let again = || claimed().sent().unknown().reclaimed(Event::AttemptLicensed);
        let expired = again().step(Event::OperationExpired, clock(), State::Expired);
        assert_eq!(breach(expired), Breach::MayHaveApplied);
        let failed = again().resent().step(Event::EffectFailed, clock(), State::Failed);
        assert_eq!(breach(failed), Breach::EarlierAttemptUnknown);
        let reviewed = claimed().sent().step(Event::EffectAccepted, clock(), State::Accepted);
        let reviewed = reviewed.step(Event::ReviewOpened, clock(), State::NeedsReview);
        let again = reviewed.step(Event::ReviewRetryAuthorized, Life::person(1), State::Unknown);
        let again = again.reclaimed(Event::AttemptLicensed).resent();
        assert_eq!(breach(again.step(Event::EffectFailed, clock(), State::Failed)), Breach::EarlierAttemptUnknown);
        assert_eq!(breach(claimed().unknown()), Breach::NothingSentBefore);
    }

    #[test]
    fn a_conflict_is_decided_once_and_only_where_there_is_one() {
        let decided = |life: Life| {
            let mut life = life.note(Event::ConflictResolved, Life::person(1));
            life.entries.last_mut().unwrap().status = Some("dismiss".into());
            life
        };
        let conflicted = || new().step(Event::OperationConflicted, clock(), State::Conflicted);
        assert_eq!(replay(decided(conflicted()).entries), Ok(()));
        let twice = decided(decided(conflicted()));
        let not_allowed = |state| Breach::NotAllowed { event: Event::ConflictResolved, state };
        assert_eq!(breach(twice), not_allowed(State::Conflicted));
        assert_eq!(breach(decided(new())), not_allowed(State::Pending));
    }

    #[test]
    fn a_replay_creates_nothing_and_a_conflict_has_other_content() {
        let mut entries = new().note(Event::OperationReplayed, clock()).entries;
        entries.remove(0);
        assert_eq!(replay(entries), Err(Breach::NeverProposed(new().operation())));
        assert_eq!(replay([new().entries, new().entries].concat()), Err(Breach::ProposedTwice(new().operation())));
        assert_eq!(breach(new().note(Event::OperationKeyConflict, clock())), Breach::SameFingerprint);
    }

    #[test]
    fn from_and_to_are_the_step_that_was_made() {
        let expired = || new().step(Event::OperationExpired, clock(), State::Expired);
        for (from, to) in [
            (None, None),
            (None, Some(State::Expired)),
            (Some(State::Pending), None),
            (Some(State::Approved), Some(State::Expired)),
            (Some(State::Pending), Some(State::Cancelled)),
        ] {
            let mut life = expired();
            let last = life.entries.last_mut().unwrap();
            (last.from, last.to) = (from, to);
            assert_eq!(breach(life), Breach::OtherStep { from: State::Pending, to: State::Expired });
        }
        let mut life = new();
        life.entries[0].to = Some(State::Approved);
        assert_eq!(breach(life), Breach::NotPending);
    }

    #[test]
    fn fencing_tokens_rise_and_only_the_current_one_renews() {
        let lease = |event, resource: &str, token| Entry {
            resource: Some(resource.parse().unwrap()),
            fence: Some(token),
            ..Entry::new(event, clock())
        };
        let replay =
            |last| replay([lease(Event::LeaseAcquired, "a/1", 7), lease(Event::LeaseTakenOver, "a/1", 8), last]);
        assert_eq!(replay(lease(Event::LeaseAcquired, "a/2", 1)), Ok(()));
        assert_eq!(replay(lease(Event::LeaseReleased, "a/1", 8)), Ok(()));
        assert!(matches!(replay(lease(Event::LeaseAcquired, "a/1", 8)), Err(Breach::TokenNotAbove { last: 8, .. })));
        for event in [Event::LeaseRenewed, Event::LeaseReleased, Event::LeaseForceReleased] {
            assert!(matches!(replay(lease(event, "a/1", 7)), Err(Breach::StaleToken { last: 8, found: 7, .. })));
        }
    }

    #[test]
    fn a_version_is_the_effect_of_its_operation_and_above_the_last_one() {
        let wrote = |n, version| Life::new(n).granted(1).spent().claimed().sent().wrote("note/a", version);
        let two = |version| [wrote(1, 41).entries, wrote(2, version).entries].concat();
        assert_eq!(replay(two(42)), Ok(()));
        for version in [41, 40] {
            assert!(matches!(replay(two(version)), Err(Breach::VersionNotAbove { last: 41, .. })));
        }
        let mut life = wrote(1, 41);
        life.entries.last_mut().unwrap().result_version = Some(42);
        assert_eq!(breach(life), Breach::VersionWithoutEffect(42));
        let mut life = wrote(1, 41);
        life.entries.remove(life.entries.len() - 2);
        assert_eq!(breach(life), Breach::VersionWithoutEffect(41));
        let mut life = wrote(1, 41);
        let again = Entry { result_version: Some(42), ..life.entries.last().unwrap().clone() };
        life.entries.push(again);
        assert_eq!(breach(life), Breach::VersionWithoutEffect(42));
    }

    #[test]
    fn time_does_not_run_backwards() {
        let log = Log::of(life(0, 1));
        let mut late = log.records[0].record.clone();
        late.at = late.at.plus_seconds(1);
        let mut replay = Replay::default();
        assert_eq!(replay.apply(&late), Ok(()));
        assert_eq!(replay.apply(&log.records[1].record), Err(Breach::ClockWentBack));
    }
}
