//! Random lives: whatever people, agents, executors, clocks and lost replies do in whatever order, the rules answer as a
//! small model written from the contract alone, and the promises hold at every step.

use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

/// What else is on record when a claim or `sent` is decided.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Facts {
    Fine,
    Paused,
    Hold,
    Lock,
    /// The target is at another version.
    Moved,
    /// The policy asks for three people by now.
    Stricter,
    /// This person lost the right to vote.
    Lost(u128),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Quote {
    Right,
    Wrong,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Command {
    Vote {
        by: u128,
        decision: Decision,
        fingerprint: Quote,
        view: Quote,
    },
    Withdraw {
        by: u128,
    },
    /// An operator takes back whatever stands.
    WithdrawAll,
    Claim {
        by: u128,
        fingerprint: Quote,
        facts: Facts,
    },
    Sent {
        claim: usize,
        fingerprint: Quote,
        facts: Facts,
    },
    /// Counterfoil writes it itself; what it would write may break a rule.
    CarryOut {
        facts: Facts,
        write: Quote,
    },
    Accepted {
        claim: usize,
    },
    Heartbeat {
        claim: usize,
    },
    Outcome {
        claim: usize,
        status: OutcomeStatus,
    },
    Cancel,
    Supersede,
    Moved,
    OpenReview,
    Resolve {
        by: u128,
        finding: ResolutionFinding,
    },
    Dispute,
    /// Somebody decides about a conflict.
    Decide {
        by: u128,
        action: Action,
    },
    /// The agent plans it anew.
    Replan,
    Wait {
        seconds: i64,
    },
    /// The reply was lost: the last command arrives once more.
    Again,
}

fn quote() -> impl Strategy<Value = Quote> {
    prop_oneof![9 => Just(Quote::Right), 1 => Just(Quote::Wrong)]
}

fn facts() -> impl Strategy<Value = Facts> {
    let odd =
        vec![Facts::Paused, Facts::Hold, Facts::Lock, Facts::Moved, Facts::Stricter, Facts::Lost(1), Facts::Lost(2)];
    prop_oneof![6 => Just(Facts::Fine), 1 => select(odd)]
}

fn decision() -> impl Strategy<Value = Decision> {
    prop_oneof![5 => Just(Decision::Approve), 1 => Just(Decision::Reject)]
}

fn status() -> impl Strategy<Value = OutcomeStatus> {
    use OutcomeStatus::*;
    select(&[Succeeded, Failed, Conflicted, Unknown][..])
}

fn resolution() -> impl Strategy<Value = ResolutionFinding> {
    use ResolutionFinding::*;
    select(&[Applied, NotApplied, Abandon][..])
}

fn command() -> impl Strategy<Value = Command> {
    let spans = vec![1, 29, 59, CLAIM_S, 100, EXECUTION_S - 1, EXECUTION_S, APPROVAL_S, IN_FLIGHT_S, RETRY_S, 864_000];
    prop_oneof![
        8 => (0..=VIEWER, decision(), quote(), quote())
            .prop_map(|(by, decision, fingerprint, view)| Command::Vote { by, decision, fingerprint, view }),
        1 => (0..=VIEWER).prop_map(|by| Command::Withdraw { by }),
        1 => Just(Command::WithdrawAll),
        8 => (0..3u128, quote(), facts()).prop_map(|(by, fingerprint, facts)| Command::Claim { by, fingerprint, facts }),
        8 => (0..3usize, quote(), facts())
            .prop_map(|(claim, fingerprint, facts)| Command::Sent { claim, fingerprint, facts }),
        1 => (facts(), quote()).prop_map(|(facts, write)| Command::CarryOut { facts, write }),
        3 => (0..3usize).prop_map(|claim| Command::Accepted { claim }),
        3 => (0..3usize).prop_map(|claim| Command::Heartbeat { claim }),
        4 => (0..3usize, status()).prop_map(|(claim, status)| Command::Outcome { claim, status }),
        1 => select(&[Command::Cancel, Command::Supersede, Command::Moved][..]),
        2 => Just(Command::OpenReview),
        3 => (1..=3u128, resolution()).prop_map(|(by, finding)| Command::Resolve { by, finding }),
        2 => Just(Command::Dispute),
        2 => (1..=2u128, select(&Action::ALL[..])).prop_map(|(by, action)| Command::Decide { by, action }),
        1 => Just(Command::Replan),
        5 => select(spans).prop_map(|seconds| Command::Wait { seconds }),
        5 => Just(Command::Again),
    ]
}

/// Whether something changed, or the code of the refusal.
type Answer = Result<bool, Code>;

#[derive(Debug, Clone, Copy)]
struct Held {
    number: usize,
    by: u128,
    since: i64,
    until: i64,
    is_accepted: bool,
}

/// What the contract says, without the documents that record it. Times are seconds from the proposal.
#[derive(Debug)]
struct Model {
    now: i64,
    state: State,
    required: usize,
    one_reject: bool,
    money: bool,
    yes: BTreeSet<u128>,
    no: BTreeSet<u128>,
    was_withdrawn: bool,
    run_by: i64,
    in_force_until: i64,
    is_spent: bool,
    held: Option<Held>,
    claims: usize,
    was_sent: bool,
    /// Status, and whether the provider's reference is known.
    outcome: Option<(OutcomeStatus, bool)>,
    is_disputed: bool,
    first_finding: Option<(u128, ResolutionFinding)>,
    resolution: Option<(u128, ResolutionFinding)>,
    decision: Option<(u128, Action)>,
    is_replanned: bool,
}

impl Model {
    fn new(required: usize, one_reject: bool, money: bool) -> Self {
        Self {
            now: 0,
            state: State::Pending,
            required,
            one_reject,
            money,
            yes: BTreeSet::new(),
            no: BTreeSet::new(),
            was_withdrawn: false,
            run_by: 0,
            in_force_until: 0,
            is_spent: false,
            held: None,
            claims: 0,
            was_sent: false,
            outcome: None,
            is_disputed: false,
            first_finding: None,
            resolution: None,
            decision: None,
            is_replanned: false,
        }
    }

    fn grant(&mut self) {
        self.state = State::Approved;
        self.was_withdrawn = false;
        self.run_by = self.now + EXECUTION_S;
        self.in_force_until = self.now + RETRY_S;
    }

    fn wait(&mut self, seconds: i64) {
        self.now += seconds;
        let held = self.held;
        let is_over = match self.state {
            State::Pending => self.now >= APPROVAL_S,
            State::Approved | State::Claimed => self.now >= self.run_by,
            State::Sent => held.is_some_and(|held| self.now >= held.until),
            State::Accepted => held.is_some_and(|held| self.now >= held.until + IN_FLIGHT_S),
            _ => false,
        };
        if is_over && self.was_sent {
            self.state = State::Unknown;
            self.outcome = Some((OutcomeStatus::Unknown, held.is_some_and(|held| held.is_accepted)));
        } else if is_over {
            self.state = State::Expired;
        }
    }

    fn ended(&self) -> Code {
        if self.state == State::Expired { Code::ApprovalExpired } else { Code::InvalidState }
    }

    fn may_apply_unknown(&self) -> bool {
        matches!(self.state, State::Unknown | State::NeedsReview)
    }

    fn run(&mut self, command: Command) -> Answer {
        match command {
            Command::Vote { by, decision, fingerprint, view } => self.vote(by, decision, fingerprint, view),
            Command::Withdraw { by } => self.withdraw(BTreeSet::from([by])),
            Command::WithdrawAll => self.withdraw((0..=VIEWER).collect()),
            Command::Claim { by, fingerprint, facts } => self.claim(by, fingerprint, facts),
            Command::Sent { claim, fingerprint, facts } => self.sent(claim, fingerprint, facts),
            Command::CarryOut { facts, write } => self.carry_out(facts, write),
            Command::Accepted { claim } => self.accepted(claim),
            Command::Heartbeat { claim } => self.heartbeat(claim),
            Command::Outcome { claim, status } => self.outcome(claim, status),
            Command::Cancel if self.state == State::Cancelled => Ok(false),
            Command::Cancel => self.end(State::Cancelled, &[State::Pending, State::Approved, State::Claimed]),
            Command::Supersede => self.end(State::Superseded, &[State::Pending, State::Approved]),
            Command::Moved => {
                let moved = self.end(State::Conflicted, &[State::Pending, State::Approved, State::Claimed]);
                Ok(moved.is_ok())
            }
            Command::OpenReview => {
                if !matches!(self.state, State::Unknown | State::Accepted) {
                    return Err(self.ended());
                }
                self.state = State::NeedsReview;
                let is_accepted = self.held.is_some_and(|held| held.is_accepted);
                self.outcome.get_or_insert((OutcomeStatus::Unknown, is_accepted));
                Ok(true)
            }
            Command::Resolve { by, finding } => self.resolve(by, finding),
            Command::Dispute => {
                let opens = self.state.is_terminal() && !self.is_disputed;
                if opens {
                    self.is_disputed = true;
                    (self.first_finding, self.resolution) = (None, None);
                }
                Ok(opens)
            }
            Command::Decide { by, action } => match self.decision {
                _ if self.state != State::Conflicted => Err(Code::InvalidState),
                None => {
                    self.decision = Some((by, action));
                    Ok(true)
                }
                Some(made) if made == (by, action) => Ok(false),
                Some(_) => Err(Code::AlreadyDecided),
            },
            Command::Replan => {
                use State::*;
                let without_effect =
                    matches!(self.state, Failed | Conflicted | Rejected | Expired | Cancelled | Superseded);
                let found_applied = self.resolution.is_some_and(|(_, found)| found == ResolutionFinding::Applied);
                if !without_effect || self.is_disputed || found_applied {
                    return Err(Code::InvalidState);
                }
                Ok(!std::mem::replace(&mut self.is_replanned, true))
            }
            Command::Wait { .. } | Command::Again => unreachable!(),
        }
    }

    fn end(&mut self, state: State, from: &[State]) -> Answer {
        if !from.contains(&self.state) {
            return Err(self.ended());
        }
        self.state = state;
        Ok(true)
    }

    fn vote(&mut self, by: u128, decision: Decision, fingerprint: Quote, view: Quote) -> Answer {
        match (by, decision) {
            (OWNER, Decision::Approve) => return Err(Code::SelfApproval),
            (STRANGER | VIEWER, _) => return Err(Code::NotEligible),
            _ => {}
        }
        if self.state == State::Expired {
            return Err(Code::ApprovalExpired);
        }
        let own = [(&self.yes, Decision::Approve), (&self.no, Decision::Reject)];
        if let Some((_, own)) = own.into_iter().find(|(votes, _)| votes.contains(&by)) {
            let same = own == decision && (fingerprint, view) == (Quote::Right, Quote::Right);
            return if same { Ok(false) } else { Err(Code::AlreadyDecided) };
        }
        match self.state {
            State::Pending => {}
            State::Conflicted | State::Cancelled | State::Superseded => return Err(Code::InvalidState),
            _ => return Err(Code::AlreadyDecided),
        }
        if fingerprint == Quote::Wrong {
            return Err(Code::ApprovalMismatch);
        }
        if view == Quote::Wrong {
            return Err(Code::StaleView);
        }
        if decision == Decision::Approve {
            self.yes.insert(by);
            if self.yes.len() >= self.required {
                self.grant();
            }
            return Ok(true);
        }
        self.no.insert(by);
        let may_still = APPROVERS.iter().filter(|n| !self.no.contains(n)).count();
        if self.one_reject || may_still < self.required {
            self.state = State::Rejected;
        }
        Ok(true)
    }

    fn withdraw(&mut self, whose: BTreeSet<u128>) -> Answer {
        if self.state == State::Expired {
            return Err(Code::ApprovalExpired);
        }
        if self.is_spent {
            return Err(Code::ApprovalSpent);
        }
        let standing = match self.state {
            State::Pending => self.yes.union(&self.no).any(|n| whose.contains(n)),
            State::Approved => self.yes.iter().any(|n| whose.contains(n)),
            _ => false,
        };
        if !standing {
            return Err(Code::InvalidState);
        }
        self.take_back(&whose);
        Ok(true)
    }

    fn take_back(&mut self, whose: &BTreeSet<u128>) {
        self.yes.retain(|n| !whose.contains(n));
        self.no.retain(|n| !whose.contains(n));
        if self.state == State::Approved {
            self.was_withdrawn = true;
            self.state = if self.now >= APPROVAL_S { State::Expired } else { State::Pending };
        }
    }

    /// What stands against acting on the approval.
    fn stands_against(&mut self, facts: Facts) -> Option<Code> {
        if self.is_spent && self.now >= self.in_force_until {
            return Some(Code::ApprovalExpired);
        }
        match facts {
            Facts::Stricter if self.yes.len() < 3 => {
                if !self.is_spent {
                    self.take_back(&BTreeSet::new());
                    self.required = 3;
                }
            }
            Facts::Lost(n) if self.yes.contains(&n) => {
                if !self.is_spent {
                    self.take_back(&BTreeSet::from([n]));
                }
            }
            Facts::Hold => return Some(Code::OutcomeUnknown),
            Facts::Lock => return Some(Code::ReleaseLocked),
            Facts::Moved => {
                self.state = State::Conflicted;
                return Some(Code::StaleVersion);
            }
            Facts::Paused => return Some(Code::Paused),
            _ => return None,
        }
        Some(if self.state == State::Expired { Code::ApprovalExpired } else { Code::PolicyChanged })
    }

    fn claim(&mut self, by: u128, fingerprint: Quote, facts: Facts) -> Answer {
        if self.state.is_terminal() {
            return Err(self.ended());
        }
        if self.state == State::Pending {
            return Err(if self.was_withdrawn { Code::ApprovalWithdrawn } else { Code::NotApproved });
        }
        if fingerprint == Quote::Wrong {
            return Err(Code::ApprovalMismatch);
        }
        if self.may_apply_unknown() {
            return Err(Code::OutcomeUnknown);
        }
        if let Some(held) = self.held
            && (self.was_sent || self.now < held.until)
        {
            return if held.by == by { Ok(false) } else { Err(Code::AlreadyClaimed) };
        }
        if let Some(code) = self.stands_against(facts) {
            return Err(code);
        }
        self.is_spent = true;
        self.state = State::Claimed;
        let (since, until) = (self.now, self.now + CLAIM_S);
        self.held = Some(Held { number: self.claims, by, since, until, is_accepted: false });
        self.claims += 1;
        Ok(true)
    }

    /// The current claim, if that is the one meant.
    fn mine(&self, claim: usize) -> Result<Held, Code> {
        match self.held {
            Some(held) if held.number == claim => Ok(held),
            Some(_) if claim < self.claims => Err(Code::StaleFence),
            Some(_) if !self.state.is_terminal() => Err(Code::AlreadyClaimed),
            _ => Err(self.ended()),
        }
    }

    fn sent(&mut self, claim: usize, fingerprint: Quote, facts: Facts) -> Answer {
        if self.state == State::Expired {
            return Err(Code::ApprovalExpired);
        }
        let held = self.mine(claim)?;
        if fingerprint == Quote::Wrong {
            return Err(Code::ApprovalMismatch);
        }
        match self.state {
            State::Claimed if self.now >= held.until => return Err(Code::InvalidState),
            State::Claimed => {}
            State::Sent | State::Accepted => return Ok(false),
            _ if self.may_apply_unknown() => return Err(Code::OutcomeUnknown),
            _ => return Err(Code::InvalidState),
        }
        if let Some(code) = self.stands_against(facts) {
            return Err(code);
        }
        self.was_sent = true;
        self.state = State::Sent;
        Ok(true)
    }

    fn carry_out(&mut self, facts: Facts, write: Quote) -> Answer {
        if self.state != State::Approved {
            return Err(self.ended());
        }
        if write == Quote::Wrong {
            self.state = State::Conflicted;
            return Err(Code::InvariantViolated);
        }
        if let Some(code) = self.stands_against(facts) {
            return Err(code);
        }
        self.is_spent = true;
        self.was_sent = true;
        self.state = State::Succeeded;
        self.outcome = Some((OutcomeStatus::Succeeded, false));
        let (since, until) = (self.now, self.now + CLAIM_S);
        self.held = Some(Held { number: self.claims, by: u128::MAX, since, until, is_accepted: false });
        self.claims += 1;
        Ok(true)
    }

    fn accepted(&mut self, claim: usize) -> Answer {
        let held = self.mine(claim)?;
        if held.is_accepted {
            return Ok(false);
        }
        match self.state {
            State::Sent => {}
            _ if self.may_apply_unknown() => return Err(Code::OutcomeUnknown),
            _ => return Err(self.ended()),
        }
        self.state = State::Accepted;
        self.held = Some(Held { is_accepted: true, ..held });
        Ok(true)
    }

    fn heartbeat(&mut self, claim: usize) -> Answer {
        if self.state == State::Expired {
            return Err(Code::ApprovalExpired);
        }
        let held = self.mine(claim)?;
        if !matches!(self.state, State::Claimed | State::Sent | State::Accepted) || self.now >= held.until {
            return Err(Code::InvalidState);
        }
        let until = held.until.max((self.now + CLAIM_S).min(held.since + 900));
        self.held = Some(Held { until, ..held });
        Ok(until != held.until)
    }

    fn outcome(&mut self, claim: usize, status: OutcomeStatus) -> Answer {
        let held = self.mine(claim)?;
        let reached = (status, status == OutcomeStatus::Succeeded || held.is_accepted);
        match self.state {
            State::Sent | State::Accepted => {}
            _ if self.outcome == Some(reached) => return Ok(false),
            _ if self.may_apply_unknown() => return Err(Code::OutcomeUnknown),
            _ => return Err(self.ended()),
        }
        self.state = match status {
            OutcomeStatus::Succeeded => State::Succeeded,
            OutcomeStatus::Unknown => State::Unknown,
            _ if self.now >= held.until => return Err(Code::InvalidState),
            OutcomeStatus::Failed => State::Failed,
            OutcomeStatus::Conflicted => State::Conflicted,
        };
        self.outcome = Some(reached);
        Ok(true)
    }

    fn resolve(&mut self, by: u128, finding: ResolutionFinding) -> Answer {
        if self.state != State::NeedsReview && !self.is_disputed {
            let same = self.resolution == Some((by, finding));
            return if same { Ok(false) } else { Err(Code::InvalidState) };
        }
        if self.is_disputed && finding == ResolutionFinding::Abandon {
            return Err(Code::InvalidState);
        }
        if self.money && finding != ResolutionFinding::Abandon {
            match self.first_finding {
                Some((first, known)) if known == finding && first == by => return Ok(false),
                Some((_, known)) if known == finding => {}
                _ => {
                    self.first_finding = Some((by, finding));
                    return Ok(true);
                }
            }
        }
        self.resolution = Some((by, finding));
        if std::mem::take(&mut self.is_disputed) {
            return Ok(true);
        }
        let has_reference = self.outcome.is_some_and(|(_, has_reference)| has_reference);
        let (state, status) = match finding {
            ResolutionFinding::Applied => (State::Succeeded, OutcomeStatus::Succeeded),
            ResolutionFinding::NotApplied => (State::Failed, OutcomeStatus::Failed),
            ResolutionFinding::Abandon => (State::Abandoned, OutcomeStatus::Unknown),
        };
        self.state = state;
        self.outcome = Some((status, has_reference));
        Ok(true)
    }
}

impl Trial {
    fn standing(&self, facts: Facts) -> Standing {
        let other = || Some(OperationId::from_parts(0, 7));
        let fine = Standing { current_version: Some(41), ..Standing::default() };
        match facts {
            Facts::Fine => fine,
            Facts::Paused => Standing { paused: true, ..fine },
            Facts::Hold => Standing { hold: other(), ..fine },
            Facts::Lock => Standing { lock: other(), ..fine },
            Facts::Moved => Standing { current_version: Some(42), ..fine },
            Facts::Stricter => Standing { policy_gap: (self.op.granted() < 3).then(|| rule_of(3, &self.op)), ..fine },
            Facts::Lost(n) => {
                let approves = self.op.standing_approvals().any(|vote| vote.by == person(n));
                Standing { ineligible: people(approves.then_some(n)), ..fine }
            }
        }
    }

    fn run(&mut self, command: Command) -> Reply {
        let fingerprint = |quote| match quote {
            Quote::Right => self.op.proposal.fingerprint.to_string(),
            Quote::Wrong => OTHER.to_owned(),
        };
        match command {
            Command::Vote { by, decision, fingerprint: quoted, view } => {
                may_vote(&self.op, &voter(by), decision, &person(OWNER))?;
                let shown = if view == Quote::Right { "digest" } else { "older" };
                let fingerprint = fingerprint(quoted);
                self.cast(&Ballot { fingerprint, review_digest: shown.into(), ..ballot(by, decision, &self.op) })
            }
            Command::Withdraw { by } => self.withdraw(&[by]),
            Command::WithdrawAll => self.withdraw(&(0..=VIEWER).collect::<Vec<_>>()),
            Command::Claim { by, fingerprint: quoted, facts } => {
                self.claim_quoting(by, &fingerprint(quoted), self.standing(facts))
            }
            Command::Sent { claim, fingerprint: quoted, facts } => {
                self.send_quoting(claim, &fingerprint(quoted), self.standing(facts))
            }
            Command::CarryOut { facts, write } => {
                let broken = || Problem::new(Code::InvariantViolated, "broken");
                self.carry_out(self.standing(facts), if write == Quote::Right { Ok(42) } else { Err(broken()) })
            }
            Command::Accepted { claim } => self.accept(claim),
            Command::Heartbeat { claim } => self.beat(claim),
            Command::Outcome { claim, status } => self.report(claim, status),
            Command::Cancel => self.cancel(),
            Command::Supersede => self.supersede(),
            Command::Moved => Ok(self.stale()),
            Command::OpenReview => self.review(),
            Command::Resolve { by, finding } => self.resolve(by, finding),
            Command::Dispute => Ok(self.dispute()),
            Command::Decide { by, action } => self.decide(by, action),
            Command::Replan => self.replan(),
            Command::Wait { .. } | Command::Again => unreachable!(),
        }
    }
}

/// The rule of `op`, asking for more people.
fn rule_of(approvals: i64, op: &Operation) -> Effective {
    Effective { one_reject: op.life.approval.one_reject, policy_version: 2, ..rule(approvals) }
}

/// The promises, read off what a command made of an operation.
fn check_promises(before: &Operation, trial: &Trial, command: Command) {
    let (op, now) = (&trial.op, trial.now);
    let (was, is) = (before.life.state, op.life.state);
    let changed = op.life != before.life;
    assert_eq!(op.life.version > before.life.version, changed, "a change has a version, and only a change");
    assert_eq!(op.life.conflict.is_some(), is == State::Conflicted, "every conflict is kept");
    let count = |event| trial.events.iter().filter(|entry| entry.event == event).count();

    // 1: what was approved is what runs.
    let quoted = match command {
        Command::Vote { fingerprint, .. } | Command::Claim { fingerprint, .. } | Command::Sent { fingerprint, .. } => {
            fingerprint
        }
        _ => Quote::Right,
    };
    assert!(quoted == Quote::Right || !changed);

    // 2 and 15: spent and sent at most once, whoever asks again.
    assert!(count(Event::ApprovalSpent) <= 1 && count(Event::EffectSent) <= 1 && count(Event::EffectResent) == 0);
    if is == State::Claimed {
        assert!(op.life.approval.spent_at.is_some() && op.life.approval.granted_at.is_some());
    }

    // 3: nothing is decided, claimed or sent at or after its deadline.
    let (approval, deadline) = (&op.life.approval, op.life.execution_deadline);
    if op.life.votes.len() > before.life.votes.len() {
        assert!(now < approval.expires_at);
    }
    if op.life.attempts.len() > before.life.attempts.len() {
        assert!(deadline.is_some_and(|deadline| now < deadline));
    }
    if was != is && is == State::Sent {
        assert_eq!(was, State::Claimed);
        let claim = op.life.claim.as_ref().unwrap();
        assert!(now < claim.deadline_at && deadline.is_some_and(|deadline| now < deadline));
        assert!(approval.retry_until.is_some_and(|until| now < until));
    }

    // 4 and 11: distinct people who may, and nobody for their own agent.
    let approving: BTreeSet<_> = op.standing_approvals().map(|vote| vote.by.clone()).collect();
    assert_eq!(approving.len() as i64, op.granted());
    assert!(approving.iter().all(|by| people(APPROVERS).contains(by)));
    if was == State::Pending && is == State::Approved {
        assert!(op.granted() >= approval.required && matches!(command, Command::Vote { .. }));
    }
    if is == State::Pending {
        assert!(op.granted() < approval.required);
    }
    if was != is && is == State::Rejected {
        assert!(op.standing_votes().any(|vote| vote.decision == Decision::Reject && vote.at == now));
    }

    // 10: an unknown outcome ends by people with evidence, and what may have applied never passes for undone.
    if matches!(was, State::Unknown | State::NeedsReview) && is.is_terminal() {
        assert!(matches!(command, Command::Resolve { .. }));
    }
    if op.life.may_have_applied {
        assert!(!matches!(is, State::Expired | State::Cancelled | State::Superseded | State::Rejected));
        assert!(op.possibly_applied() || matches!(is, State::Failed | State::Conflicted));
    }
    assert!(!(op.safe_new_key() && op.possibly_applied()));
}

/// Without a recorded lapse every command refuses, and changes nothing.
fn check_unsettled(trial: &mut Trial, command: Command) {
    if lapse(&trial.op, trial.now).is_none() || matches!(command, Command::Moved | Command::Dispute) {
        return;
    }
    let before = trial.op.clone();
    let answer = trial.run(command);
    assert!(!matches!(answer, Ok(true)), "{command:?} acted on what had lapsed");
    assert_eq!(trial.op, before);
}

fn live(required: i64, one_reject: bool, money: bool, commands: &[Command]) {
    let rule = Effective { one_reject, ..rule(required) };
    let mut trial = Trial::of(rule, |proposal| proposal.money = money);
    let mut model = Model::new(required as usize, one_reject, money);
    let mut last = None;
    for &command in commands {
        if let Command::Wait { seconds } = command {
            trial.now = trial.now.plus_seconds(seconds);
            model.wait(seconds);
            if let Some(last) = last.take() {
                check_unsettled(&mut trial, last);
            }
            trial.settle();
            assert_eq!(trial.state(), model.state, "{command:?}");
            continue;
        }
        let repeated = last.filter(|_| command == Command::Again);
        let Some(command) = repeated.or((command != Command::Again).then_some(command)) else { continue };
        let before = trial.op.clone();
        let expected = model.run(command);
        let answer = trial.run(command).map_err(|problem| problem.code);
        assert_eq!((answer, trial.state()), (expected, model.state), "{command:?}");
        assert_eq!(trial.op.life.disputed, model.is_disputed);
        check_promises(&before, &trial, command);
        if repeated.is_some() {
            assert!(!matches!(answer, Ok(true)), "{command:?} took effect twice");
        }
        last = Some(command);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_in_whatever_order_the_promises_hold(
        required in 1..=3i64,
        one_reject in any::<bool>(),
        money in any::<bool>(),
        commands in vec(command(), 1..60),
    ) {
        live(required, one_reject, money, &commands);
    }
}

/// That random lives get anywhere: without this, the test above could pass by being refused.
#[test]
fn random_lives_reach_every_state() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};

    let mut runner = TestRunner::deterministic();
    let mut reached = BTreeSet::new();
    for round in 0..400 {
        let commands = vec(command(), 60).new_tree(&mut runner).unwrap().current();
        let mut model = Model::new(1 + round % 3, round % 2 == 0, false);
        for command in commands {
            match command {
                Command::Wait { seconds } => model.wait(seconds),
                Command::Again => {}
                command => drop(model.run(command)),
            }
            reached.insert(model.state);
        }
    }
    assert_eq!(reached, State::ALL.into_iter().collect());
}
