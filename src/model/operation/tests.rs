//! One test per row of the transition table and per refusal; random lives are in [`machine`].

mod machine;

use serde_json::json;

use super::{
    rules::{
        Ballot, ClaimFacts, ClaimRef, Done, ManagedFacts, Report, Reported, Standing, Step, accepted, auto_grant,
        cancel, carry_out, claim, dispute, heartbeat, lapse, open_review, override_hold, replan, report, resolve,
        resolve_conflict, sent, stale, supersede, vote, withdraw,
    },
    *,
};
use crate::model::{
    approval::{Role, Voter, may_vote, shortfall},
    audit::{Entry, Event, key_ref, replay::Replay, seal},
    conflict::{Action, ConflictResolution},
    fingerprint::Account,
    policy::Ttl,
    problem::{Code, Problem, RetryMode},
};

/// Whether something changed, or why not.
type Reply = Result<bool, Problem>;

const APPROVAL_S: i64 = 900;
const EXECUTION_S: i64 = 600;
const RETRY_S: i64 = 3600;
const CLAIM_S: i64 = 60;
const IN_FLIGHT_S: i64 = 1800;
const START: Timestamp = Timestamp(1_796_083_200_000);

/// People by number: the agent's owner, three who may approve, one in another group, one who never votes.
const OWNER: u128 = 0;
const APPROVERS: [u128; 3] = [1, 2, 3];
const STRANGER: u128 = 4;
const VIEWER: u128 = 5;

fn person(n: u128) -> PersonId {
    PersonId::from_parts(0, n)
}

fn people(numbers: impl IntoIterator<Item = u128>) -> Vec<PersonId> {
    numbers.into_iter().map(person).collect()
}

fn voter(n: u128) -> Voter {
    let role = if n == VIEWER { Role::Viewer } else { Role::Approver };
    let group = if n == STRANGER { "finance" } else { "approvers" };
    Voter { id: person(n), role, groups: vec![group.to_owned()] }
}

/// The agent's run, and executors.
fn worker(n: u128) -> Claimant {
    match n {
        0 => Claimant::Run(RunId::from_parts(0, 1)),
        n => Claimant::Executor(ExecutorId::from_parts(0, n)),
    }
}

fn ttl(seconds: i64) -> Ttl {
    Ttl::try_from(seconds).unwrap()
}

fn rule(approvals: i64) -> Effective {
    Effective {
        rule: "default".into(),
        policy_version: 1,
        approvals,
        groups: vec!["approvers".into()],
        auto: false,
        step_up: false,
        approval_ttl: ttl(APPROVAL_S),
        execution_ttl: ttl(EXECUTION_S),
        retry_ttl: ttl(RETRY_S),
        one_reject: true,
        review_owner: None,
        review_due: ttl(3600),
        escalation: Vec::new(),
    }
}

fn ballot(by: u128, decision: Decision, op: &Operation) -> Ballot {
    Ballot {
        by: person(by),
        name: format!("person {by}"),
        decision,
        fingerprint: op.proposal.fingerprint.to_string(),
        review_digest: "digest".into(),
        reason_code: (decision == Decision::Reject).then_some(ReasonCode::NotNow),
        reason: None,
        confirm_target: Some(op.proposal.target.to_string()),
    }
}

fn answer(status: OutcomeStatus) -> Report {
    Report {
        status,
        provider_reference: (status == OutcomeStatus::Succeeded).then(|| "TCK-1".to_owned()),
        provider_status: None,
        response: None,
        resulting_version: None,
    }
}

fn case() -> ReviewCase {
    ReviewCase {
        id: CaseId::from_parts(0, 1),
        owner: None,
        due_at: START,
        opened_at: START,
        reason: "nobody knows".into(),
        overdue_since: None,
        escalated: 0,
        seconded: None,
        retry_asked: None,
        resolution: None,
    }
}

fn finding(by: u128, finding: ResolutionFinding) -> Resolution {
    Resolution {
        finding,
        by: person(by),
        name: format!("person {by}"),
        evidence: vec![EvidenceId::from_parts(0, 1)],
        note: "seen in the provider's console".into(),
        duplicate_effect: false,
        cost: None,
        at: START,
    }
}

/// One operation and its log. Whatever is stored is checked: versions rise, endings last, the events are the step, and
/// the verifier of the log finds nothing to object to.
struct Trial {
    op: Operation,
    now: Timestamp,
    events: Vec<Entry>,
    replay: Replay,
    /// A grant that nobody has spent or taken back.
    unspent: bool,
    claims: Vec<ClaimRef>,
}

impl Trial {
    fn new(rule: Effective) -> Self {
        Self::of(rule, |_| {})
    }

    fn of(rule: Effective, change: impl FnOnce(&mut Proposal)) -> Self {
        let canonical = r#"{"kind":"ticket.create"}"#;
        let agent = AgentId::from_parts(0, 1);
        let mut proposal = Proposal {
            id: OperationId::from_parts(0, 1),
            agent: agent.clone(),
            owner: person(OWNER),
            run: RunId::from_parts(0, 1),
            kind: "ticket.create".into(),
            kind_version: 1,
            title: "Ticket".into(),
            target: "project/ops".parse().unwrap(),
            canonical: canonical.into(),
            fingerprint: Fingerprint::of_canonical(canonical),
            fingerprint_version: 1,
            idempotency_key: "0123456789abcdef".into(),
            reason: None,
            source_event_id: None,
            expected_version: Some(41),
            current_version: Some(41),
            links: Links::default(),
            headline: Vec::new(),
            consequence: String::new(),
            rollback: String::new(),
            risk: Risk::Medium,
            money: false,
            locks_release: false,
            managed: false,
            gateway: false,
            lease: LeaseRule::Never,
            verb: Verb::Create,
            provider: None,
            in_flight_s: IN_FLIGHT_S,
            duplicate_of: None,
            decided_by: Vec::new(),
            created_at: START,
        };
        change(&mut proposal);
        let life = Life::new(Approval::new(ApprovalId::from_parts(0, 1), rule, START), START);
        let op = Operation { proposal, life };
        let mut trial =
            Self { op, now: START, events: Vec::new(), replay: Replay::default(), unspent: false, claims: Vec::new() };
        trial.log(Entry {
            to: Some(State::Pending),
            key_ref: Some(key_ref(&Account::Agent(agent), "0123456789abcdef")),
            ..rules::entry(&trial.op, Event::OperationProposed, Actor::run(&trial.op.proposal.run))
        });
        trial
    }

    fn approved() -> Self {
        let mut trial = Self::new(rule(1));
        assert_eq!(trial.approve(1), Ok(true));
        trial
    }

    fn claimed() -> Self {
        let mut trial = Self::approved();
        assert_eq!(trial.claim(0), Ok(true));
        trial
    }

    fn sent() -> Self {
        let mut trial = Self::claimed();
        assert_eq!(trial.send(0), Ok(true));
        trial
    }

    fn unknown() -> Self {
        let mut trial = Self::sent();
        trial.wait(CLAIM_S);
        assert_eq!(trial.state(), State::Unknown);
        trial
    }

    fn in_review(money: bool) -> Self {
        let mut trial = Self::unknown();
        trial.op.proposal.money = money;
        assert_eq!(trial.review(), Ok(true));
        trial
    }

    fn state(&self) -> State {
        self.op.life.state
    }

    fn log(&mut self, entry: Entry) {
        let seq = self.events.len() as u64;
        let record = seal(&entry, seq, &Hash::ZERO, self.now).record;
        assert_eq!(entry.missing(), None, "{}", entry.event);
        assert_eq!(self.replay.apply(&record), Ok(()), "{} in {:?}", entry.event, self.events);
        self.events.push(entry);
    }

    /// Lets time pass, and records what it decides.
    fn wait(&mut self, seconds: i64) {
        self.now = self.now.plus_seconds(seconds);
        self.settle();
    }

    fn settle(&mut self) {
        if let Some(step) = lapse(&self.op, self.now) {
            let (human, before, from) = (Actor::human(&person(1)).kind, self.op.granted(), self.state());
            assert!(step.events.iter().all(|event| event.actor.kind != human), "the clock is nobody's decision");
            self.store(step);
            assert_eq!(self.op.granted(), before);
            let moved = self.state() != from;
            assert!(!moved || matches!(self.state(), State::Expired | State::Unknown), "time proves nothing");
        }
    }

    fn store(&mut self, mut step: Step) {
        if step.life.state == State::Conflicted {
            // Whoever stores it names the conflict.
            step.life.conflict.get_or_insert(ConflictId::from_parts(0, 1));
        }
        let before = self.op.clone();
        assert_eq!(step.life.version, before.life.version + 1, "every change has its version");
        assert_eq!(step.life.updated_at, self.now);
        assert!(!before.life.may_have_applied || step.life.may_have_applied, "what was sent stays sent");
        if before.life.state.is_terminal() {
            assert_eq!(step.life.state, before.life.state, "an ending lasts");
        }
        let mut state = before.life.state;
        for event in step.events {
            assert_eq!(event.from.is_some(), event.to.is_some());
            if let Some((from, to)) = event.from.zip(event.to) {
                assert_eq!(from, state, "{}", event.event);
                state = to;
            }
            match event.event {
                Event::ApprovalGranted | Event::ApprovalAutoGranted => self.unspent = true,
                Event::ApprovalWithdrawn => self.unspent = false,
                Event::ApprovalSpent => assert!(std::mem::take(&mut self.unspent), "spent without a grant"),
                _ => {}
            }
            self.log(event);
        }
        assert_eq!(state, step.life.state, "the events tell the whole way");
        // As a restart would find it.
        let stored: Life = serde_json::from_str(&serde_json::to_string(&step.life).unwrap()).unwrap();
        assert_eq!(stored, step.life);
        self.op.life = stored;
    }

    /// Whether it changed anything.
    fn done(&mut self, result: Result<Done, Problem>) -> Reply {
        match result? {
            Done::Already => Ok(false),
            Done::Step(step) => {
                self.store(step);
                Ok(true)
            }
            Done::Refused(step, problem) => {
                self.store(step);
                Err(problem)
            }
        }
    }

    fn reported(&mut self, result: Result<Reported, Problem>) -> Reply {
        match result? {
            Reported::Done(done) => self.done(Ok(done)),
            Reported::Late(problem) => Err(problem),
        }
    }

    fn cast(&mut self, ballot: &Ballot) -> Reply {
        let result = vote(&self.op, ballot, "digest", &people(APPROVERS), self.now);
        self.done(result)
    }

    fn approve(&mut self, by: u128) -> Reply {
        self.cast(&ballot(by, Decision::Approve, &self.op))
    }

    fn reject(&mut self, by: u128) -> Reply {
        self.cast(&ballot(by, Decision::Reject, &self.op))
    }

    fn withdraw(&mut self, whose: &[u128]) -> Reply {
        let whose = people(whose.iter().copied());
        let result = withdraw(&self.op, &whose, Actor::human(&whose[0]), self.now).map(Done::Step);
        self.done(result)
    }

    fn claim(&mut self, by: u128) -> Reply {
        self.claim_with(by, Standing::default())
    }

    fn claim_with(&mut self, by: u128, standing: Standing) -> Reply {
        let fingerprint = self.op.proposal.fingerprint.to_string();
        self.claim_quoting(by, &fingerprint, standing)
    }

    fn claim_quoting(&mut self, by: u128, fingerprint: &str, standing: Standing) -> Reply {
        let id = ClaimId::from_parts(0, self.claims.len() as u128 + 1);
        let facts = ClaimFacts {
            claim: id.clone(),
            by: worker(by),
            ttl_s: CLAIM_S,
            lease: None,
            licence: Err(String::new()),
            standing,
        };
        let result = claim(&self.op, fingerprint, facts, self.now);
        let changed = self.done(result)?;
        if changed {
            let fence = self.op.life.claim.as_ref().unwrap().fence;
            self.claims.push(ClaimRef { id, fence, by: worker(by) });
        }
        Ok(changed)
    }

    /// Counterfoil's own write, which makes version 42 or is refused.
    fn carry_out(&mut self, standing: Standing, write: Result<i64, Problem>) -> Reply {
        let claim = ClaimId::from_parts(0, self.claims.len() as u128 + 1);
        let conflict = ConflictId::from_parts(0, 1);
        let facts = ManagedFacts { claim: claim.clone(), ttl_s: CLAIM_S, standing, write, conflict };
        let result = carry_out(&self.op, facts, self.now);
        let changed = self.done(result)?;
        self.claims.push(ClaimRef { id: claim, fence: 1, by: Claimant::Managed });
        Ok(changed)
    }

    /// The claim of that number, or one that was never given.
    fn claim_ref(&self, number: usize) -> ClaimRef {
        let foreign = ClaimRef { id: ClaimId::from_parts(9, 9), fence: 1, by: worker(9) };
        self.claims.get(number).cloned().unwrap_or(foreign)
    }

    fn send(&mut self, claim: usize) -> Reply {
        self.send_with(claim, Standing::default())
    }

    fn send_with(&mut self, claim: usize, standing: Standing) -> Reply {
        let fingerprint = self.op.proposal.fingerprint.to_string();
        self.send_quoting(claim, &fingerprint, standing)
    }

    fn send_quoting(&mut self, claim: usize, fingerprint: &str, standing: Standing) -> Reply {
        let result = sent(&self.op, &self.claim_ref(claim), fingerprint, None, &standing, self.now);
        self.done(result)
    }

    fn accept(&mut self, claim: usize) -> Reply {
        let result = accepted(&self.op, &self.claim_ref(claim), "TCK-1", self.now);
        self.reported(result)
    }

    fn beat(&mut self, claim: usize) -> Reply {
        let result = heartbeat(&self.op, &self.claim_ref(claim), CLAIM_S, self.now);
        self.done(result)
    }

    fn report(&mut self, claim: usize, status: OutcomeStatus) -> Reply {
        let result = report(&self.op, &self.claim_ref(claim), &answer(status), self.now);
        self.reported(result)
    }

    fn cancel(&mut self) -> Reply {
        let result = cancel(&self.op, Actor::human(&person(OWNER)), None, "no longer needed", self.now);
        self.done(result)
    }

    fn supersede(&mut self) -> Reply {
        let by = OperationId::from_parts(0, 2);
        let result = supersede(&self.op, &by, Actor::run(&self.op.proposal.run), self.now);
        self.done(result)
    }

    fn stale(&mut self) -> bool {
        stale(&self.op, self.now).map(|step| self.store(step)).is_some()
    }

    fn review(&mut self) -> Reply {
        let result = open_review(&self.op, case(), Actor::human(&person(1)), self.now).map(Done::Step);
        self.done(result)
    }

    fn dispute(&mut self) -> bool {
        dispute(&self.op, case(), Actor::human(&person(1)), self.now).map(|step| self.store(step)).is_some()
    }

    fn resolve(&mut self, by: u128, found: ResolutionFinding) -> Reply {
        let people = rules::Conclusion::of(&self.op, None);
        self.done(resolve(&self.op, finding(by, found), people, self.now))
    }

    fn decide(&mut self, by: u128, action: Action) -> Reply {
        let decision = ConflictResolution {
            action,
            instruction: None,
            note: None,
            by: Actor::human(&person(by)),
            by_name: format!("person {by}"),
            at: self.now,
            version: Some(42),
        };
        self.done(resolve_conflict(&self.op, decision, self.now))
    }

    fn replan(&mut self) -> Reply {
        self.done(replan(&self.op, &OperationId::from_parts(0, 77), self.now))
    }

    fn told(&self) -> Vec<Event> {
        self.events.iter().map(|event| event.event).collect()
    }
}

#[track_caller]
fn refused(result: Reply, code: Code) -> Problem {
    let problem = result.expect_err("expected a refusal");
    assert_eq!(problem.code, code, "{problem}");
    problem
}

const OTHER: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

// Row 2

#[test]
fn a_rule_grants_by_itself_what_is_neither_grave_nor_a_duplicate() {
    let auto = || Effective { auto: true, ..rule(1) };
    let mut trial = Trial::new(auto());
    let policy = Actor::policy("default@1");
    let step = auto_grant(&trial.op, policy.clone(), START).unwrap();
    assert_eq!((step.life.state, step.life.version), (State::Approved, 1), "proposal and grant are one change");
    trial.store(Step { life: Life { version: 2, ..step.life }, ..step });
    assert_eq!(trial.op.life.execution_deadline, Some(START.plus_seconds(EXECUTION_S)));
    assert_eq!(auto_grant(&trial.op, policy.clone(), START), None);
    let problem = refused(trial.approve(1), Code::AlreadyDecided);
    assert_eq!((&problem.members["decision"], &problem.members["by"]), (&"approve".into(), &"default@1".into()));

    assert_eq!(auto_grant(&Trial::new(rule(1)).op, policy.clone(), START), None);
    for risk in [Risk::High, Risk::Critical] {
        assert_eq!(auto_grant(&Trial::of(auto(), |p| p.risk = risk).op, policy.clone(), START), None);
    }
    let duplicate = Trial::of(auto(), |p| p.duplicate_of = Some(OperationId::from_parts(0, 9)));
    assert_eq!(auto_grant(&duplicate.op, policy, START), None);
}

// Row 3

#[test]
fn a_proposal_refused_by_what_it_says_is_kept_with_its_conflict() {
    let mut trial = Trial::new(rule(1));
    let id = ConflictId::from_parts(0, 1);
    let problem = rules::stale_version("project/ops", 41, 42);
    let step = rules::refuse_proposal(&trial.op, id.clone(), &problem, START);
    assert_eq!((step.life.state, step.life.version), (State::Conflicted, 1), "proposal and refusal are one change");
    trial.store(Step { life: Life { version: 2, ..step.life }, ..step });
    assert_eq!(trial.events.last().unwrap().status.as_deref(), Some("stale_version"));
    assert_eq!(trial.op.life.ending.as_ref().unwrap().reason, Some(problem.detail));
    assert_eq!(refused(trial.approve(1), Code::InvalidState).members["conflict_id"], id.as_str());
    assert!(trial.op.safe_new_key());
}

// Rows 4 and 5

#[test]
fn one_vote_of_two_is_counted_and_the_second_one_approves() {
    let mut trial = Trial::new(rule(2));
    assert_eq!(trial.approve(1), Ok(true));
    assert_eq!((trial.state(), trial.op.granted()), (State::Pending, 1));
    assert_eq!(trial.told()[1..], [Event::ApprovalVoted]);
    trial.wait(10);
    assert_eq!(trial.approve(2), Ok(true));
    assert_eq!((trial.state(), trial.op.life.version), (State::Approved, 3));
    assert_eq!(trial.told()[2..], [Event::ApprovalVoted, Event::ApprovalGranted]);
    let approval = &trial.op.life.approval;
    assert_eq!(approval.granted_at, Some(trial.now));
    assert_eq!(approval.retry_until, Some(trial.now.plus_seconds(RETRY_S)));
    assert_eq!(trial.op.life.execution_deadline, Some(trial.now.plus_seconds(EXECUTION_S)));
}

#[test]
fn one_person_is_one_vote() {
    let mut trial = Trial::new(rule(2));
    assert_eq!(trial.approve(1), Ok(true));
    let before = trial.op.clone();
    assert_eq!(trial.approve(1), Ok(false), "the same vote again is the recorded one");
    for other in [
        ballot(1, Decision::Reject, &trial.op),
        Ballot { fingerprint: OTHER.into(), ..ballot(1, Decision::Approve, &trial.op) },
        Ballot { review_digest: "older".into(), ..ballot(1, Decision::Approve, &trial.op) },
        Ballot { reason: Some("on second thoughts".into()), ..ballot(1, Decision::Approve, &trial.op) },
    ] {
        let problem = refused(trial.cast(&other), Code::AlreadyDecided);
        assert_eq!(problem.members["by"], person(1).as_str());
        assert_eq!(problem.members["decision"], "approve");
        assert_eq!(problem.members["at"], START.to_string());
    }
    assert_eq!(trial.op, before);
}

#[test]
fn a_repeated_vote_is_answered_however_the_operation_went_on() {
    let mut trial = Trial::sent();
    assert_eq!(trial.approve(1), Ok(false));
    assert_eq!(trial.report(0, OutcomeStatus::Succeeded), Ok(true));
    assert_eq!(trial.approve(1), Ok(false));
    assert_eq!(refused(trial.approve(2), Code::AlreadyDecided).members["by"], person(1).as_str());

    let mut trial = Trial::new(rule(1));
    assert_eq!(trial.reject(1), Ok(true));
    assert_eq!(trial.reject(1), Ok(false));
    let problem = refused(trial.approve(2), Code::AlreadyDecided);
    assert_eq!(problem.members["decision"], "reject");
    assert_eq!(problem.members["by_name"], "person 1");
}

#[test]
fn a_vote_on_what_ended_without_people_names_the_state() {
    let mut trial = Trial::approved();
    assert!(trial.stale());
    trial.op.life.conflict = Some(ConflictId::from_parts(0, 1));
    let problem = refused(trial.approve(2), Code::InvalidState);
    assert_eq!(problem.members["state"], "conflicted");
    assert_eq!(problem.members["conflict_id"], ConflictId::from_parts(0, 1).as_str());
    assert_eq!(problem.retry.mode, RetryMode::AfterFreshRead);

    for end in [Trial::cancel, Trial::supersede] {
        let mut trial = Trial::new(rule(1));
        assert_eq!(end(&mut trial), Ok(true));
        let problem = refused(trial.approve(1), Code::InvalidState);
        assert_eq!((problem.retry.mode, problem.safe_new_key), (RetryMode::NewOperation, true));
    }
}

#[test]
fn a_vote_counts_for_what_was_shown_only() {
    let mut trial = Trial::new(rule(1));
    let shown = ballot(1, Decision::Approve, &trial.op);
    let wrong = Ballot { fingerprint: OTHER.into(), review_digest: "older".into(), ..shown.clone() };
    let problem = refused(trial.cast(&wrong), Code::ApprovalMismatch);
    assert_eq!(problem.members["fingerprint"], trial.op.proposal.fingerprint.as_str());
    let old = Ballot { review_digest: "older".into(), ..shown };
    assert_eq!(refused(trial.cast(&old), Code::StaleView).members["review_digest"], "digest");
    assert_eq!((trial.op.life.version, trial.op.life.votes.len()), (1, 0));
}

#[test]
fn what_is_grave_is_approved_by_typing_its_target() {
    for risk in Risk::ALL {
        let mut trial = Trial::of(rule(1), |proposal| proposal.risk = risk);
        for typed in [None, Some("project/op".to_owned())] {
            let vote = Ballot { confirm_target: typed, ..ballot(1, Decision::Approve, &trial.op) };
            if risk.needs_care() {
                let problem = refused(trial.cast(&vote), Code::ValidationFailed);
                assert_eq!(problem.members["errors"][0]["pointer"], "/confirm_target");
            }
        }
        assert_eq!(trial.state(), State::Pending);
        assert_eq!(trial.approve(1), Ok(true));
        let no = Ballot { confirm_target: None, ..ballot(1, Decision::Reject, &trial.op) };
        let mut trial = Trial::of(rule(1), |proposal| proposal.risk = risk);
        assert_eq!(trial.cast(&no), Ok(true), "a rejection needs no second step");
    }
}

#[test]
fn one_rejection_is_enough_and_names_its_reason() {
    let mut trial = Trial::new(rule(2));
    assert_eq!(trial.approve(1), Ok(true));
    let silent = Ballot { reason_code: None, ..ballot(2, Decision::Reject, &trial.op) };
    let problem = refused(trial.cast(&silent), Code::ValidationFailed);
    assert_eq!(problem.members["errors"][0]["pointer"], "/reason_code");
    let why = Ballot { reason: Some("after the release".into()), ..ballot(2, Decision::Reject, &trial.op) };
    assert_eq!(trial.cast(&why), Ok(true));
    assert_eq!(trial.state(), State::Rejected);
    assert_eq!(trial.events.last().unwrap().reason.as_deref(), Some("not_now: after the release"));
    let ending = trial.op.life.ending.as_ref().unwrap();
    assert_eq!((ending.name.as_deref(), ending.reason.as_deref()), (Some("person 2"), Some("after the release")));
    assert!(trial.op.safe_new_key());
}

#[test]
fn without_one_reject_it_is_rejected_once_the_quorum_cannot_be_reached() {
    let mut trial = Trial::new(Effective { one_reject: false, ..rule(2) });
    assert_eq!(trial.reject(OWNER), Ok(true), "the owner's no takes no approver away");
    assert_eq!(trial.reject(1), Ok(true));
    assert_eq!(trial.state(), State::Pending, "two of three may still approve");
    assert_eq!(trial.approve(2), Ok(true));
    assert_eq!(trial.reject(3), Ok(true));
    assert_eq!(trial.state(), State::Rejected);
    assert_eq!(
        trial.told()[1..],
        [Event::ApprovalVoted, Event::ApprovalVoted, Event::ApprovalVoted, Event::ApprovalRejected]
    );
}

#[test]
fn nobody_approves_their_own_agents_work() {
    let trial = Trial::new(rule(1));
    let code = |n, decision, owner_now: u128| {
        may_vote(&trial.op, &voter(n), decision, &person(owner_now)).map_err(|problem| problem.code)
    };
    assert_eq!(code(OWNER, Decision::Approve, OWNER), Err(Code::SelfApproval));
    assert_eq!(code(OWNER, Decision::Approve, 9), Err(Code::SelfApproval), "also who owned it when it proposed");
    assert_eq!(code(1, Decision::Approve, 1), Err(Code::SelfApproval), "also who owns it now");
    assert_eq!(code(OWNER, Decision::Reject, OWNER), Ok(()));
    assert_eq!(code(1, Decision::Approve, OWNER), Ok(()));
    for decision in [Decision::Approve, Decision::Reject] {
        assert_eq!(code(VIEWER, decision, OWNER), Err(Code::NotEligible));
        assert_eq!(code(STRANGER, decision, OWNER), Err(Code::NotEligible));
    }
}

#[test]
fn an_approval_is_measured_by_the_rule_in_force() {
    let mut trial = Trial::new(rule(2));
    assert_eq!(trial.approve(1), Ok(true));
    assert_eq!(trial.approve(2), Ok(true));
    let voters: Vec<_> = (0..=VIEWER).map(voter).collect();
    let measured = |in_force: Effective, voters: &[Voter], owner: u128| {
        let (lost, gap) = shortfall(&trial.op, in_force, voters, &person(owner), None);
        (lost, gap.map(|rule| rule.approvals))
    };
    assert_eq!(measured(rule(2), &voters, OWNER), (vec![], None));
    assert_eq!(measured(rule(3), &voters, OWNER), (vec![], Some(3)));
    assert_eq!(measured(rule(2), &voters, 1), (people([1]), Some(2)), "who owns the agent now no longer counts");
    assert_eq!(measured(rule(1), &voters, 1), (people([1]), None));
    assert_eq!(measured(rule(2), &voters[2..], OWNER), (people([1]), Some(2)), "gone");
    let finance = Effective { groups: vec!["finance".into()], ..rule(1) };
    assert_eq!(measured(finance, &voters, OWNER), (people([1, 2]), Some(1)), "another group is asked now");
    let mut demoted = voters.clone();
    demoted[2].role = Role::Auditor;
    assert_eq!(measured(rule(2), &demoted, OWNER), (people([2]), Some(2)));
    assert_eq!(measured(Effective { auto: true, ..rule(1) }, &[], OWNER), (people([1, 2]), None));
}

// Row 6

#[test]
fn at_the_approval_deadline_it_is_too_late_to_decide() {
    let mut trial = Trial::new(rule(2));
    assert_eq!(trial.approve(1), Ok(true));
    trial.now = START.plus_seconds(APPROVAL_S);
    let before = trial.op.clone();
    let attempts: [fn(&mut Trial) -> Reply; 7] = [
        |trial| trial.approve(1),
        |trial| trial.approve(2),
        |trial| trial.reject(2),
        |trial| trial.withdraw(&[1]),
        |trial| trial.claim(0),
        |trial| trial.cancel(),
        |trial| trial.supersede(),
    ];
    for attempt in attempts {
        refused(attempt(&mut trial), Code::ApprovalExpired);
        assert_eq!(trial.op, before, "not even without a recorded lapse");
    }
    trial.settle();
    assert_eq!(trial.state(), State::Expired);
    assert_eq!(trial.events.last().unwrap().actor, Actor::system("clock"));
    for attempt in attempts {
        let problem = refused(attempt(&mut trial), Code::ApprovalExpired);
        assert_eq!((problem.members["state"].as_str(), problem.safe_new_key), (Some("expired"), true));
    }
    assert_eq!(trial.op.life.version, before.life.version + 1);
}

#[test]
fn a_millisecond_before_the_deadline_counts() {
    let mut trial = Trial::new(rule(1));
    trial.now = Timestamp(START.plus_seconds(APPROVAL_S).as_millis() - 1);
    assert_eq!(trial.approve(1), Ok(true));
    trial.now = Timestamp(trial.now.plus_seconds(EXECUTION_S).as_millis() - 1);
    assert_eq!(trial.claim(0), Ok(true));
    assert_eq!(trial.send(0), Ok(true));
}

#[test]
fn what_was_approved_runs_before_its_execution_deadline_or_never() {
    let mut trial = Trial::approved();
    trial.now = trial.now.plus_seconds(EXECUTION_S);
    refused(trial.claim(0), Code::ApprovalExpired);
    trial.settle();
    refused(trial.claim(0), Code::ApprovalExpired);
    assert_eq!(trial.state(), State::Expired);

    let mut trial = Trial::approved();
    trial.wait(EXECUTION_S - 1);
    assert_eq!(trial.claim(0), Ok(true));
    trial.now = trial.now.plus_seconds(1);
    refused(trial.send(0), Code::ApprovalExpired);
    refused(trial.beat(0), Code::ApprovalExpired);
    trial.settle();
    for attempt in [Trial::send, Trial::beat, Trial::accept] {
        refused(attempt(&mut trial, 0), Code::ApprovalExpired);
    }
    refused(trial.report(0, OutcomeStatus::Succeeded), Code::ApprovalExpired);
    assert_eq!(trial.op.life.attempts[0].result, Some(AttemptResult::Unsent));
    assert!(!trial.op.life.may_have_applied);
    assert!(!trial.told().contains(&Event::EffectSent));
}

// Row 7 and 9

#[test]
fn what_was_not_sent_can_be_cancelled_and_what_was_cannot() {
    for mut trial in [Trial::new(rule(1)), Trial::approved(), Trial::claimed()] {
        assert_eq!(trial.cancel(), Ok(true));
        assert_eq!(trial.state(), State::Cancelled);
        assert_eq!(trial.cancel(), Ok(false));
        assert!(trial.op.life.attempts.iter().all(|attempt| attempt.result == Some(AttemptResult::Unsent)));
    }
    let mut accepted = Trial::sent();
    assert_eq!(accepted.accept(0), Ok(true));
    for mut trial in [Trial::sent(), accepted, Trial::unknown(), Trial::in_review(false)] {
        let problem = refused(trial.cancel(), Code::InvalidState);
        assert_eq!((problem.retry.mode, problem.safe_new_key), (RetryMode::Operator, false));
    }
    let mut trial = Trial::claimed();
    assert_eq!(trial.cancel(), Ok(true));
    refused(trial.send(0), Code::InvalidState);
    refused(trial.beat(0), Code::InvalidState);
    refused(trial.claim(0), Code::InvalidState);
}

#[test]
fn an_operation_is_superseded_before_its_claim_only() {
    for mut trial in [Trial::new(rule(1)), Trial::approved()] {
        assert_eq!(trial.supersede(), Ok(true));
        assert_eq!(trial.state(), State::Superseded);
        refused(trial.supersede(), Code::InvalidState);
    }
    for mut trial in [Trial::claimed(), Trial::sent(), Trial::unknown()] {
        refused(trial.supersede(), Code::InvalidState);
    }
}

// Row 8

#[test]
fn a_withdrawn_approval_waits_for_people_again_under_the_same_deadline() {
    let mut trial = Trial::new(rule(2));
    assert_eq!(trial.approve(1), Ok(true));
    assert_eq!(trial.approve(2), Ok(true));
    let expires_at = trial.op.life.approval.expires_at;
    trial.wait(30);
    assert_eq!(trial.withdraw(&[1]), Ok(true));
    assert_eq!((trial.state(), trial.op.granted()), (State::Pending, 1));
    assert_eq!((trial.op.life.execution_deadline, trial.op.life.approval.expires_at), (None, expires_at));
    refused(trial.claim(0), Code::ApprovalWithdrawn);
    refused(trial.withdraw(&[1]), Code::InvalidState);
    assert_eq!(trial.approve(2), Ok(false), "the other vote stands");
    assert_eq!(trial.approve(1), Ok(true));
    assert_eq!(trial.state(), State::Approved);
    assert_eq!(trial.op.life.approval.withdrawn_at, None);
    assert_eq!(trial.claim(0), Ok(true));
}

#[test]
fn a_vote_taken_back_before_the_quorum_withdraws_no_approval() {
    let mut trial = Trial::new(rule(2));
    assert_eq!(trial.approve(1), Ok(true));
    assert_eq!(trial.withdraw(&[1]), Ok(true));
    assert_eq!((trial.state(), trial.op.granted()), (State::Pending, 0));
    refused(trial.claim(0), Code::NotApproved);
}

#[test]
fn withdrawn_after_the_approval_deadline_it_expires_at_once() {
    let mut trial = Trial::new(rule(1));
    trial.wait(APPROVAL_S - 1);
    assert_eq!(trial.approve(1), Ok(true));
    trial.wait(1);
    let version = trial.op.life.version;
    assert_eq!(trial.withdraw(&[1]), Ok(true));
    assert_eq!((trial.state(), trial.op.life.version), (State::Expired, version + 1));
    assert_eq!(trial.told()[3..], [Event::ApprovalWithdrawn, Event::OperationExpired]);
    refused(trial.approve(2), Code::ApprovalExpired);
}

#[test]
fn a_spent_approval_cannot_be_withdrawn() {
    for mut trial in [Trial::claimed(), Trial::sent(), Trial::unknown()] {
        refused(trial.withdraw(&[1]), Code::ApprovalSpent);
    }
    let mut trial = Trial::new(rule(1));
    refused(trial.withdraw(&[1]), Code::InvalidState);
    assert_eq!(trial.reject(1), Ok(true));
    refused(trial.withdraw(&[1]), Code::InvalidState);
}

#[test]
fn a_no_taken_back_after_the_quorum_leaves_the_approval() {
    let mut trial = Trial::new(Effective { one_reject: false, ..rule(2) });
    assert_eq!(trial.reject(1), Ok(true));
    assert_eq!(trial.approve(2), Ok(true));
    assert_eq!(trial.approve(3), Ok(true));
    assert_eq!(trial.state(), State::Approved);
    refused(trial.withdraw(&[1]), Code::InvalidState);
    assert_eq!(trial.state(), State::Approved);
}

#[test]
fn a_claim_under_a_stricter_policy_sends_it_back_to_people() {
    let mut trial = Trial::approved();
    let expires_at = trial.op.life.approval.expires_at;
    let stricter = Effective {
        rule: "two".into(),
        policy_version: 2,
        step_up: true,
        execution_ttl: ttl(60),
        approval_ttl: ttl(86_400),
        ..rule(2)
    };
    let gap = Standing { policy_gap: Some(stricter), ..Standing::default() };
    let problem = refused(trial.claim_with(0, gap.clone()), Code::PolicyChanged);
    assert_eq!((problem.members["rule"].as_str(), problem.retry.mode), (Some("two"), RetryMode::AwaitDecision));
    let approval = &trial.op.life.approval;
    assert_eq!((trial.state(), trial.op.granted(), approval.required), (State::Pending, 1, 2));
    assert_eq!((approval.rule.as_str(), approval.step_up, approval.expires_at), ("two", true, expires_at));
    let event = trial.events.last().unwrap();
    assert_eq!((event.event, &event.actor), (Event::ApprovalWithdrawn, &Actor::system("desk")));
    refused(trial.claim(0), Code::ApprovalWithdrawn);
    assert_eq!(trial.approve(2), Ok(true));
    assert_eq!(trial.op.life.execution_deadline, Some(trial.now.plus_seconds(60)));
    assert_eq!(trial.claim(0), Ok(true));

    let mut trial = Trial::new(rule(1));
    trial.wait(APPROVAL_S - 1);
    assert_eq!(trial.approve(1), Ok(true));
    trial.wait(1);
    refused(trial.claim_with(0, gap), Code::ApprovalExpired);
    assert_eq!(trial.state(), State::Expired, "row 8 after the approval deadline ends in row 6");
}

#[test]
fn a_voter_who_lost_the_right_no_longer_counts() {
    let mut trial = Trial::new(rule(2));
    assert_eq!(trial.approve(1), Ok(true));
    assert_eq!(trial.approve(2), Ok(true));
    let lost = Standing { ineligible: people([2]), ..Standing::default() };
    refused(trial.claim_with(0, lost), Code::PolicyChanged);
    assert_eq!((trial.state(), trial.op.granted()), (State::Pending, 1));
    assert_eq!(trial.approve(3), Ok(true));
    assert_eq!(trial.claim(0), Ok(true));
}

#[test]
fn a_spent_approval_that_no_longer_satisfies_the_policy_sends_nothing_and_is_not_given_back() {
    let lost = || Standing { ineligible: people([1]), ..Standing::default() };
    let gap = Standing { policy_gap: Some(rule(2)), ..Standing::default() };
    let mut trial = Trial::claimed();
    let before = trial.op.clone();
    for standing in [lost(), gap.clone()] {
        let problem = refused(trial.send_with(0, standing), Code::PolicyChanged);
        assert_eq!((problem.retry.mode, problem.safe_new_key), (RetryMode::NewOperation, false));
    }
    trial.wait(CLAIM_S);
    for standing in [lost(), gap] {
        refused(trial.claim_with(1, standing), Code::PolicyChanged);
    }
    assert_eq!(trial.op, before, "nothing sent, nothing spent twice");
    assert_eq!(trial.claim(1), Ok(true), "the voter has the right again");
    assert_eq!(trial.send(1), Ok(true));
}

// Row 10

#[test]
fn a_target_that_moved_ends_what_was_not_sent() {
    for mut trial in [Trial::new(rule(1)), Trial::approved(), Trial::claimed()] {
        assert!(trial.stale());
        assert_eq!(trial.state(), State::Conflicted);
        assert!(!trial.stale());
        assert!(trial.op.safe_new_key());
    }
    for mut trial in [Trial::sent(), Trial::unknown()] {
        assert!(!trial.stale());
    }
    let moved = |version| Standing { current_version: Some(version), ..Standing::default() };
    let mut trial = Trial::approved();
    assert_eq!(trial.claim_with(0, moved(41)), Ok(true));
    let problem = refused(trial.send_with(0, moved(42)), Code::StaleVersion);
    assert_eq!(
        (problem.members["expected_version"].as_i64(), problem.members["current_version"].as_i64()),
        (Some(41), Some(42))
    );
    assert_eq!((trial.state(), trial.op.life.may_have_applied), (State::Conflicted, false));

    let mut trial = Trial::approved();
    refused(trial.claim_with(0, moved(42)), Code::StaleVersion);
    assert_eq!((trial.state(), trial.op.life.approval.spent_at), (State::Conflicted, None));
    assert_eq!(trial.events.last().unwrap().actor, Actor::system("desk"));
}

// Rows 11 and 12

#[test]
fn a_claim_spends_the_approval_once() {
    let mut trial = Trial::approved();
    trial.wait(5);
    assert_eq!(trial.claim(1), Ok(true));
    assert_eq!(trial.told()[3..], [Event::ApprovalSpent, Event::OperationClaimed]);
    let (approval, claim) = (&trial.op.life.approval, trial.op.life.claim.as_ref().unwrap());
    assert_eq!((approval.spent_at, &approval.spent_by), (Some(trial.now), &Some(worker(1).actor())));
    assert_eq!((claim.fence, claim.deadline_at), (1, trial.now.plus_seconds(CLAIM_S)));
    assert_eq!(trial.op.life.version, 3);

    assert_eq!(trial.claim(1), Ok(false), "a lost reply: the same caller has its own claim");
    let problem = refused(trial.claim(0), Code::AlreadyClaimed);
    assert_eq!(problem.members["deadline_at"], trial.now.plus_seconds(CLAIM_S).to_string());
    assert_eq!(trial.send(0), Ok(true));
    assert_eq!(trial.claim(1), Ok(false));
    refused(trial.claim(0), Code::AlreadyClaimed);
    assert_eq!(trial.accept(0), Ok(true));
    assert_eq!(trial.claim(1), Ok(false));
    refused(trial.claim(0), Code::AlreadyClaimed);
}

#[test]
fn only_what_was_approved_is_claimed() {
    let mut trial = Trial::new(rule(1));
    refused(trial.claim(0), Code::NotApproved);
    assert_eq!(trial.approve(1), Ok(true));
    refused(trial.claim_quoting(0, OTHER, Standing::default()), Code::ApprovalMismatch);
    assert_eq!((trial.state(), trial.op.life.approval.spent_at), (State::Approved, None));
    trial.op.proposal.canonical = r#"{"kind":"ticket.delete"}"#.into();
    refused(trial.claim(0), Code::ApprovalMismatch);
    assert_eq!((trial.state(), trial.op.life.approval.spent_at), (State::Approved, None));
}

#[test]
fn claims_are_refused_in_the_order_of_the_contract() {
    let other = || Some(OperationId::from_parts(0, 7));
    let mut standing = Standing {
        ineligible: Vec::new(),
        policy_gap: Some(rule(2)),
        hold: other(),
        lock: other(),
        current_version: Some(42),
        lease: Some(Problem::new(Code::LeaseLost, "")),
        paused: true,
    };
    let code = |trial: &mut Trial, standing: &Standing| trial.claim_with(0, standing.clone()).unwrap_err().code;
    assert_eq!(code(&mut Trial::new(rule(1)), &standing), Code::NotApproved);
    let mut trial = Trial::approved();
    refused(trial.claim_quoting(0, OTHER, standing.clone()), Code::ApprovalMismatch);
    assert_eq!(trial.state(), State::Approved);
    assert_eq!(code(&mut Trial::approved(), &standing), Code::PolicyChanged);
    standing.policy_gap = None;
    let problem = refused(trial.claim_with(0, standing.clone()), Code::OutcomeUnknown);
    assert_eq!(problem.members["blocking_operation"], OperationId::from_parts(0, 7).as_str());
    standing.hold = None;
    let problem = refused(trial.claim_with(0, standing.clone()), Code::ReleaseLocked);
    assert_eq!(
        (problem.members["holder"].as_str(), problem.retryable()),
        (OperationId::from_parts(0, 7).as_str().into(), true)
    );
    standing.lock = None;
    assert_eq!(code(&mut Trial::approved(), &standing), Code::StaleVersion);
    standing.current_version = Some(41);
    assert_eq!(code(&mut trial, &standing), Code::LeaseLost);
    standing.lease = None;
    assert_eq!(code(&mut trial, &standing), Code::Paused);
    assert_eq!((trial.state(), trial.op.life.approval.spent_at), (State::Approved, None));
    assert_eq!(code(&mut Trial::unknown(), &standing), Code::OutcomeUnknown);
    assert_eq!(code(&mut Trial::in_review(false), &standing), Code::OutcomeUnknown);
    // A claim that is there already is not asked about anything else.
    let mut claimed = Trial::claimed();
    assert_eq!(claimed.claim_with(0, standing.clone()), Ok(false));
    refused(claimed.claim_with(1, standing), Code::AlreadyClaimed);
}

#[test]
fn a_claim_that_ran_out_unsent_is_taken_over_and_its_holder_shut_out() {
    let mut trial = Trial::claimed();
    trial.wait(CLAIM_S);
    assert_eq!(trial.state(), State::Claimed);
    refused(trial.send(0), Code::InvalidState);
    refused(trial.beat(0), Code::InvalidState);
    assert_eq!(trial.claim(1), Ok(true));
    assert_eq!(trial.told()[5..], [Event::ClaimAbandoned, Event::OperationClaimed]);
    assert_eq!(trial.op.life.claim.as_ref().unwrap().fence, 2);
    assert_eq!(trial.op.life.attempts[0].result, Some(AttemptResult::Unsent));
    assert_eq!(trial.op.life.approval.spent_at, Some(START), "spent once, by the first claim");
    for attempt in [Trial::send, Trial::beat, Trial::accept] {
        assert_eq!(refused(attempt(&mut trial, 0), Code::StaleFence).members["claim_fence"], 2);
    }
    refused(trial.report(0, OutcomeStatus::Succeeded), Code::StaleFence);
    assert_eq!(trial.send(1), Ok(true));
    assert_eq!(trial.report(1, OutcomeStatus::Succeeded), Ok(true));
    let late = report(&trial.op, &trial.claim_ref(0), &answer(OutcomeStatus::Failed), trial.now);
    assert!(matches!(late, Ok(Reported::Late(problem)) if problem.code == Code::StaleFence), "kept as evidence");
    refused(trial.send(0), Code::StaleFence);
}

#[test]
fn an_approval_out_of_force_is_not_acted_on() {
    let mut trial = Trial::new(Effective { retry_ttl: ttl(30), ..rule(1) });
    assert_eq!(trial.approve(1), Ok(true));
    trial.wait(29);
    assert_eq!(trial.claim(0), Ok(true));
    trial.wait(1);
    let problem = refused(trial.send(0), Code::ApprovalExpired);
    assert_eq!((problem.members["state"].as_str(), problem.safe_new_key), (Some("claimed"), false));
    trial.wait(CLAIM_S);
    refused(trial.claim(1), Code::ApprovalExpired);
}

// Row 13

#[test]
fn sent_is_recorded_once_before_any_byte_leaves() {
    let mut trial = Trial::claimed();
    refused(trial.send_quoting(0, OTHER, Standing::default()), Code::ApprovalMismatch);
    refused(trial.send(7), Code::AlreadyClaimed);
    let wrong = ClaimRef { fence: 2, ..trial.claim_ref(0) };
    let fingerprint = trial.op.proposal.fingerprint.to_string();
    let result = sent(&trial.op, &wrong, &fingerprint, None, &Standing::default(), trial.now);
    assert_eq!(result.unwrap_err().code, Code::AlreadyClaimed, "a fence nobody was given supersedes nothing");
    assert!(!trial.op.life.may_have_applied);

    trial.wait(1);
    assert_eq!(trial.send(0), Ok(true));
    assert_eq!((trial.state(), trial.op.life.may_have_applied), (State::Sent, true));
    assert_eq!(trial.op.life.attempts[0].sent_at, Some(trial.now));
    let event = trial.events.last().unwrap();
    assert_eq!(
        (event.event, event.fence, event.claim.as_ref()),
        (Event::EffectSent, Some(1), Some(&trial.claims[0].id))
    );
    assert_eq!(trial.send(0), Ok(false), "a lost reply");
    assert_eq!(trial.accept(0), Ok(true));
    assert_eq!(trial.send(0), Ok(false));
    assert_eq!(trial.report(0, OutcomeStatus::Succeeded), Ok(true));
    refused(trial.send(0), Code::InvalidState);
    refused(Trial::unknown().send(0), Code::OutcomeUnknown);
    refused(Trial::approved().send(0), Code::InvalidState);
}

#[test]
fn what_stands_against_a_claim_stands_against_sent() {
    let other = || Some(OperationId::from_parts(0, 7));
    let mut trial = Trial::claimed();
    for (standing, code) in [
        (Standing { hold: other(), ..Standing::default() }, Code::OutcomeUnknown),
        (Standing { lock: other(), ..Standing::default() }, Code::ReleaseLocked),
        (Standing { lease: Some(Problem::new(Code::StaleFence, "")), ..Standing::default() }, Code::StaleFence),
        (Standing { paused: true, ..Standing::default() }, Code::Paused),
    ] {
        refused(trial.send_with(0, standing), code);
        assert_eq!((trial.state(), trial.op.life.may_have_applied), (State::Claimed, false));
    }
    assert_eq!(trial.send(0), Ok(true));
}

#[test]
fn an_override_is_for_what_was_not_sent_and_stands() {
    let by = HoldOverride { by: person(1), by_name: "olga".into(), reason: "roll back first".into(), at: START };
    let mut trial = Trial::approved();
    let Ok(Done::Step(step)) = override_hold(&trial.op, by.clone(), trial.now) else { panic!() };
    assert_eq!(step.events.iter().map(|event| event.event).collect::<Vec<_>>(), [Event::AdminHoldOverridden]);
    trial.op.life = step.life;
    assert_eq!(override_hold(&trial.op, by.clone(), trial.now), Ok(Done::Already));
    assert_eq!(trial.claim(0), Ok(true));
    assert_eq!(override_hold(&Trial::sent().op, by, START).unwrap_err().code, Code::InvalidState);
}

#[test]
fn heartbeats_hold_a_claim_for_a_quarter_of_an_hour_and_never_shorten_it() {
    let mut trial = Trial::claimed();
    assert_eq!(trial.beat(0), Ok(false), "nothing gained, nothing changed");
    let version = trial.op.life.version;
    trial.wait(20);
    assert_eq!(trial.beat(0), Ok(true));
    assert_eq!(trial.op.life.version, version + 1);
    assert_eq!(trial.op.life.claim.as_ref().unwrap().deadline_at, START.plus_seconds(80));
    assert_eq!(trial.op.life.attempts[0].deadline_at, START.plus_seconds(80));
    assert_eq!(trial.send(0), Ok(true));
    for _ in 0..17 {
        trial.wait(50);
        assert_eq!(trial.beat(0), Ok(true));
    }
    assert_eq!(trial.op.life.claim.as_ref().unwrap().deadline_at, START.plus_seconds(900));
    trial.wait(29);
    assert_eq!(trial.beat(0), Ok(false));
    trial.wait(1);
    assert_eq!(trial.state(), State::Unknown);
    refused(trial.beat(0), Code::InvalidState);

    let mut trial = Trial::approved();
    let facts = ClaimFacts {
        claim: ClaimId::from_parts(0, 1),
        by: worker(0),
        ttl_s: 3600,
        lease: None,
        licence: Err(String::new()),
        standing: Standing::default(),
    };
    let fingerprint = trial.op.proposal.fingerprint.to_string();
    assert_eq!(trial.done(claim(&trial.op, &fingerprint, facts, trial.now)), Ok(true));
    trial.claims.push(ClaimRef { id: ClaimId::from_parts(0, 1), fence: 1, by: worker(0) });
    trial.wait(1);
    assert_eq!(trial.beat(0), Ok(false));
    assert_eq!(trial.op.life.claim.as_ref().unwrap().deadline_at, START.plus_seconds(3600));
}

// Rows 14 to 17

#[test]
fn what_the_provider_queued_is_accepted_under_its_reference() {
    let mut trial = Trial::claimed();
    refused(trial.accept(0), Code::InvalidState);
    assert_eq!(trial.send(0), Ok(true));
    assert_eq!(trial.accept(0), Ok(true));
    assert_eq!(trial.state(), State::Accepted);
    assert_eq!(trial.events.last().unwrap().provider_ref.as_deref(), Some("TCK-1"));
    assert_eq!(trial.accept(0), Ok(false));
    let other = accepted(&trial.op, &trial.claim_ref(0), "TCK-2", trial.now);
    assert_eq!(other.unwrap_err().code, Code::InvalidState);
    // The reference on record proves the success.
    let bare = Report { provider_reference: None, ..answer(OutcomeStatus::Succeeded) };
    let result = report(&trial.op, &trial.claim_ref(0), &bare, trial.now);
    assert_eq!(trial.reported(result), Ok(true));
    assert_eq!(trial.op.life.outcome.as_ref().unwrap().provider_reference.as_deref(), Some("TCK-1"));
    let again = report(&trial.op, &trial.claim_ref(0), &bare, trial.now);
    assert_eq!(again, Ok(Reported::Done(Done::Already)));
    assert_eq!(trial.accept(0), Ok(false));
}

#[test]
fn an_acceptance_that_comes_too_late_is_evidence() {
    let trial = Trial::unknown();
    let late = accepted(&trial.op, &trial.claim_ref(0), "TCK-1", trial.now);
    assert!(matches!(late, Ok(Reported::Late(problem)) if problem.code == Code::OutcomeUnknown));
}

#[test]
fn a_definite_answer_under_a_live_claim_settles_it() {
    for (status, state, event) in [
        (OutcomeStatus::Succeeded, State::Succeeded, Event::EffectCompleted),
        (OutcomeStatus::Failed, State::Failed, Event::EffectFailed),
        (OutcomeStatus::Conflicted, State::Conflicted, Event::OperationConflicted),
        (OutcomeStatus::Unknown, State::Unknown, Event::EffectOutcomeUnknown),
    ] {
        for is_accepted in [false, true] {
            let mut trial = Trial::sent();
            if is_accepted {
                assert_eq!(trial.accept(0), Ok(true));
            }
            assert_eq!(trial.report(0, status), Ok(true));
            assert_eq!((trial.state(), trial.told().last()), (state, Some(&event)));
            let outcome = trial.op.life.outcome.as_ref().unwrap();
            assert_eq!((outcome.status, outcome.source, outcome.confirmed), (status, OutcomeSource::Run, false));
            assert!(trial.op.life.attempts[0].ended_at.is_some());
            assert_eq!(trial.report(0, status), Ok(false), "identical repeats are answered");
            let safe = matches!(state, State::Failed | State::Conflicted);
            assert_eq!((trial.op.safe_new_key(), trial.op.possibly_applied()), (safe, !safe));
        }
    }
}

#[test]
fn an_executors_answer_is_more_than_a_runs_own_word() {
    let mut trial = Trial::approved();
    assert_eq!(trial.claim(1), Ok(true));
    assert_eq!(trial.send(0), Ok(true));
    assert_eq!(trial.report(0, OutcomeStatus::Succeeded), Ok(true));
    let outcome = trial.op.life.outcome.as_ref().unwrap();
    assert_eq!((outcome.source, outcome.confirmed), (OutcomeSource::Executor, true));
}

#[test]
fn a_success_shows_something_and_nothing_is_reported_before_sent() {
    let mut trial = Trial::claimed();
    for status in [OutcomeStatus::Succeeded, OutcomeStatus::Failed, OutcomeStatus::Unknown] {
        refused(trial.report(0, status), Code::InvalidState);
    }
    assert_eq!(trial.send(0), Ok(true));
    let bare = Report { provider_reference: None, ..answer(OutcomeStatus::Succeeded) };
    let problem = report(&trial.op, &trial.claim_ref(0), &bare, trial.now).unwrap_err();
    assert_eq!(problem.members["errors"][0]["pointer"], "/provider_reference");
    let response = ProviderResponse { status: 201, digest: Some("sha256:1".into()), body: Some(serde_json::json!({})) };
    let shown = Report { response: Some(response), ..bare };
    let result = report(&trial.op, &trial.claim_ref(0), &shown, trial.now);
    assert_eq!(trial.reported(result), Ok(true));
    assert_eq!(trial.events.last().unwrap().response_digest.as_deref(), Some("sha256:1"));
    // The stored body may be erased; the digest still tells a repetition from another answer.
    trial.op.life.outcome.as_mut().unwrap().response.as_mut().unwrap().body = None;
    assert_eq!(report(&trial.op, &trial.claim_ref(0), &shown, trial.now), Ok(Reported::Done(Done::Already)));
    let other = Report { resulting_version: Some(42), ..shown };
    assert!(matches!(report(&trial.op, &trial.claim_ref(0), &other, trial.now), Ok(Reported::Late(_))));
}

#[test]
fn a_timeout_is_unknown_and_a_later_word_only_evidence() {
    let mut trial = Trial::sent();
    trial.now = trial.now.plus_seconds(CLAIM_S);
    for _ in ["not yet recorded", "recorded"] {
        for status in [OutcomeStatus::Succeeded, OutcomeStatus::Failed, OutcomeStatus::Conflicted] {
            let late = report(&trial.op, &trial.claim_ref(0), &answer(status), trial.now).unwrap();
            assert!(matches!(late, Reported::Late(problem) if problem.code == Code::OutcomeUnknown));
        }
        refused(trial.send(0), Code::OutcomeUnknown);
        trial.settle();
    }
    assert_eq!((trial.state(), trial.told().last()), (State::Unknown, Some(&Event::EffectOutcomeUnknown)));
    assert_eq!(trial.report(0, OutcomeStatus::Unknown), Ok(false), "that it is unknown is known");
    let outcome = trial.op.life.outcome.as_ref().unwrap();
    assert_eq!((outcome.status, outcome.source), (OutcomeStatus::Unknown, OutcomeSource::System));
    trial.wait(365 * 86_400);
    assert_eq!(trial.state(), State::Unknown, "time passing proves nothing");
    assert!(!trial.op.safe_new_key());
}

#[test]
fn what_is_under_way_is_unknown_once_its_bound_has_passed() {
    let mut trial = Trial::sent();
    assert_eq!(trial.accept(0), Ok(true));
    trial.wait(CLAIM_S - 1);
    assert_eq!(trial.beat(0), Ok(true), "the claim lives on while the provider works");
    trial.wait(CLAIM_S);
    assert_eq!(trial.state(), State::Accepted);
    for status in [OutcomeStatus::Failed, OutcomeStatus::Conflicted] {
        let late = report(&trial.op, &trial.claim_ref(0), &answer(status), trial.now).unwrap();
        assert!(matches!(late, Reported::Late(problem) if problem.code == Code::InvalidState), "the claim is over");
    }
    refused(trial.beat(0), Code::InvalidState);
    let mut late = Trial { op: trial.op.clone(), ..Trial::sent() };
    late.now = trial.now;
    assert!(report(&late.op, &late.claim_ref(0), &answer(OutcomeStatus::Succeeded), late.now).is_ok());
    trial.wait(IN_FLIGHT_S);
    assert_eq!(trial.state(), State::Unknown);
    assert_eq!(trial.op.life.outcome.as_ref().unwrap().provider_reference.as_deref(), Some("TCK-1"));
}

#[test]
fn a_refusal_does_not_settle_an_earlier_attempt_nobody_has_an_answer_to() {
    let mut trial = Trial::unknown();
    let (claim, attempt) = (trial.op.life.claim.clone().unwrap(), trial.op.life.attempts[0].clone());
    let id = ClaimId::from_parts(0, 2);
    let again = ClaimRef { id: id.clone(), fence: 2, by: worker(0) };
    let deadline_at = trial.now.plus_seconds(CLAIM_S);
    trial.op.life.claim = Some(Claim { id: id.clone(), fence: 2, deadline_at, sent_at: None, ..claim });
    trial.op.life.attempts.push(Attempt {
        claim_id: id,
        claim_fence: 2,
        result: None,
        ended_at: None,
        deadline_at,
        ..attempt
    });
    trial.op.life.state = State::Claimed;
    assert!(!trial.op.nothing_sent());
    let lapsed = lapse(&trial.op, trial.now.plus_seconds(EXECUTION_S)).unwrap().life;
    assert_eq!(lapsed.state, State::Unknown, "it may have been applied: it cannot expire");
    assert_eq!(lapsed.attempts[1].result, Some(AttemptResult::Unsent));
    assert!(stale(&trial.op, trial.now).is_none());
    assert!(cancel(&trial.op, Actor::system("desk"), None, "stopped", trial.now).is_err());
    let fingerprint = trial.op.proposal.fingerprint.to_string();
    let Ok(Done::Step(step)) = sent(&trial.op, &again, &fingerprint, None, &Standing::default(), trial.now) else {
        panic!()
    };
    assert_eq!(step.events[0].event, Event::EffectResent);
    trial.op.life = step.life;
    let Ok(Reported::Done(Done::Step(step))) = report(&trial.op, &again, &answer(OutcomeStatus::Failed), trial.now)
    else {
        panic!()
    };
    assert_eq!((step.life.state, step.life.outcome.unwrap().status), (State::Unknown, OutcomeStatus::Unknown));
}

// Rows 21, 22, 25 and 28

#[test]
fn an_unknown_outcome_gets_an_owner_and_is_resolved_by_evidence() {
    for (found, state, status, event) in [
        (ResolutionFinding::Applied, State::Succeeded, Some(OutcomeStatus::Succeeded), Event::ReviewResolved),
        (ResolutionFinding::NotApplied, State::Failed, Some(OutcomeStatus::Failed), Event::ReviewResolved),
        (ResolutionFinding::Abandon, State::Abandoned, Some(OutcomeStatus::Unknown), Event::ReviewAbandoned),
    ] {
        let mut trial = Trial::unknown();
        refused(trial.resolve(1, found), Code::InvalidState);
        assert_eq!(trial.review(), Ok(true));
        assert_eq!(trial.state(), State::NeedsReview);
        refused(trial.review(), Code::InvalidState);
        assert_eq!(trial.resolve(1, found), Ok(true));
        assert_eq!((trial.state(), trial.told().last()), (state, Some(&event)));
        let outcome = trial.op.life.outcome.as_ref().unwrap();
        assert_eq!((Some(outcome.status), outcome.confirmed), (status, found != ResolutionFinding::Abandon));
        assert_eq!(trial.resolve(1, found), Ok(false));
        refused(trial.resolve(2, found), Code::InvalidState);
        assert_eq!(trial.op.possibly_applied(), state != State::Failed);
    }
    let mut trial = Trial::in_review(false);
    let nothing = Resolution { evidence: Vec::new(), ..finding(1, ResolutionFinding::NotApplied) };
    let problem = resolve(&trial.op, nothing.clone(), rules::Conclusion::One, trial.now).unwrap_err();
    assert_eq!(problem.members["errors"][0]["pointer"], "/evidence");
    let silent = Resolution { note: " ".into(), ..finding(1, ResolutionFinding::Abandon) };
    assert_eq!(
        resolve(&trial.op, silent, rules::Conclusion::One, trial.now).unwrap_err().members["errors"][0]["pointer"],
        "/note"
    );
    let abandoned = Resolution { finding: ResolutionFinding::Abandon, ..nothing };
    assert_eq!(
        trial.done(resolve(&trial.op, abandoned, rules::Conclusion::One, trial.now)),
        Ok(true),
        "without proof, and it says so"
    );
}

#[test]
fn an_operator_opens_a_case_on_what_is_under_way() {
    let mut trial = Trial::sent();
    refused(trial.review(), Code::InvalidState);
    assert_eq!(trial.accept(0), Ok(true));
    assert_eq!(trial.review(), Ok(true));
    let outcome = trial.op.life.outcome.as_ref().unwrap();
    assert_eq!((outcome.status, outcome.provider_reference.as_deref()), (OutcomeStatus::Unknown, Some("TCK-1")));
    let late = report(&trial.op, &trial.claim_ref(0), &answer(OutcomeStatus::Succeeded), trial.now).unwrap();
    assert!(matches!(late, Reported::Late(_)));
}

#[test]
fn money_takes_two_people_who_agree() {
    use ResolutionFinding::*;
    let mut trial = Trial::in_review(true);
    assert_eq!(trial.resolve(1, Applied), Ok(true));
    assert_eq!((trial.state(), trial.told().last()), (State::NeedsReview, Some(&Event::ReviewSeconded)));
    assert_eq!(trial.resolve(1, Applied), Ok(false), "one person twice is one person");
    assert_eq!(trial.resolve(2, NotApplied), Ok(true));
    assert_eq!(trial.state(), State::NeedsReview, "two people who disagree resolve nothing");
    assert_eq!(trial.resolve(1, NotApplied), Ok(true));
    assert_eq!(trial.state(), State::Failed);
    let mut trial = Trial::in_review(true);
    assert_eq!(trial.resolve(1, Abandon), Ok(true));
    assert_eq!(trial.state(), State::Abandoned);
}

#[test]
fn evidence_against_an_ending_opens_a_dispute_and_changes_no_state() {
    let mut trial = Trial::sent();
    assert!(!trial.dispute(), "nothing has ended yet");
    assert_eq!(trial.report(0, OutcomeStatus::Failed), Ok(true));
    assert!(trial.op.safe_new_key() && !trial.op.possibly_applied());
    assert!(trial.dispute());
    assert!(!trial.dispute());
    assert_eq!((trial.state(), trial.op.life.disputed), (State::Failed, true));
    assert!(!trial.op.safe_new_key() && trial.op.possibly_applied());
    refused(trial.resolve(1, ResolutionFinding::Abandon), Code::InvalidState);
    let outcome = trial.op.life.outcome.clone();
    assert_eq!(trial.resolve(1, ResolutionFinding::Applied), Ok(true));
    assert_eq!((trial.state(), trial.op.life.disputed, &trial.op.life.outcome), (State::Failed, false, &outcome));
    assert!(!trial.op.safe_new_key() && trial.op.possibly_applied(), "it was found to be applied after all");
    assert!(trial.dispute(), "and may be disputed again");
    assert_eq!(trial.resolve(1, ResolutionFinding::NotApplied), Ok(true));
    assert!(trial.op.safe_new_key() && !trial.op.possibly_applied());
}

// Managed operations: rows 11, 13 and 15 at once

#[test]
fn a_managed_write_is_claimed_sent_and_completed_in_one_step() {
    let mut trial = Trial::approved();
    let (version, told) = (trial.op.life.version, trial.told().len());
    assert_eq!(trial.carry_out(Standing::default(), Ok(42)), Ok(true));
    assert_eq!((trial.state(), trial.op.life.version), (State::Succeeded, version + 1));
    use Event::*;
    assert_eq!(trial.told()[told..], [ApprovalSpent, OperationClaimed, EffectSent, EffectCompleted]);
    let outcome = trial.op.life.outcome.clone().unwrap();
    assert_eq!((outcome.source, outcome.confirmed, outcome.resulting_version), (OutcomeSource::System, true, Some(42)));
    assert_eq!(trial.op.life.attempts.last().unwrap().result, Some(AttemptResult::Succeeded));
    assert_eq!(trial.op.life.approval.spent_by, Some(Actor::built_in("managed")));
    refused(trial.carry_out(Standing::default(), Ok(43)), Code::InvalidState);
}

#[test]
fn a_managed_write_that_breaks_a_rule_is_conflicted_and_spends_nothing() {
    let mut trial = Trial::approved();
    let broken = Problem::new(Code::InvariantViolated, "two are live already");
    refused(trial.carry_out(Standing::default(), Err(broken)), Code::InvariantViolated);
    assert_eq!((trial.state(), trial.op.life.approval.spent_at), (State::Conflicted, None));
    assert!(trial.op.life.conflict.is_some() && !trial.op.life.may_have_applied);
}

#[test]
fn only_what_is_approved_is_written_here() {
    let mut trial = Trial::new(rule(1));
    refused(trial.carry_out(Standing::default(), Ok(42)), Code::InvalidState);
    assert_eq!(trial.approve(1), Ok(true));
    trial.now = trial.now.plus_seconds(EXECUTION_S);
    refused(trial.carry_out(Standing::default(), Ok(42)), Code::ApprovalExpired);
}

#[test]
fn a_pause_and_a_doubt_about_the_target_hinder_a_managed_write() {
    let hold = OperationId::from_parts(0, 7);
    let code = |standing: Standing| rules::hindrance(&standing).map(|problem| problem.code);
    assert_eq!(code(Standing::default()), None);
    assert_eq!(code(Standing { paused: true, ..Standing::default() }), Some(Code::Paused));
    assert_eq!(code(Standing { hold: Some(hold), paused: true, ..Standing::default() }), Some(Code::OutcomeUnknown));
}

// Conflicts: decided once, and planned anew

#[test]
fn a_conflict_is_decided_once_and_moves_nothing() {
    let mut trial = Trial::approved();
    refused(trial.decide(1, Action::Dismiss), Code::InvalidState);
    assert!(trial.stale());
    let version = trial.op.life.version;
    assert_eq!(trial.decide(1, Action::Replan), Ok(true));
    assert_eq!((trial.state(), trial.op.life.version), (State::Conflicted, version + 1));
    assert_eq!(trial.decide(1, Action::Replan), Ok(false));
    let problem = refused(trial.decide(2, Action::Replan), Code::AlreadyDecided);
    assert_eq!((&problem.members["by"], &problem.members["by_name"]), (&json!(person(1)), &json!("person 1")));
    refused(trial.decide(1, Action::Dismiss), Code::AlreadyDecided);
    assert_eq!(trial.told().last(), Some(&Event::ConflictResolved));
}

#[test]
fn only_what_ended_without_an_effect_is_planned_anew() {
    let mut open = Trial::approved();
    let problem = refused(open.replan(), Code::InvalidState);
    assert!(problem.detail.contains("supersede or cancel"), "{problem}");
    let mut conflicted = Trial::approved();
    assert!(conflicted.stale());
    assert_eq!((conflicted.replan(), conflicted.replan()), (Ok(true), Ok(false)));
    assert_eq!(conflicted.op.life.replanned_by, Some(OperationId::from_parts(0, 77)));
    let mut done = Trial::sent();
    assert_eq!(done.report(0, OutcomeStatus::Succeeded), Ok(true));
    refused(done.replan(), Code::InvalidState);
}
