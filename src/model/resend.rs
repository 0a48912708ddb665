//! After an ambiguous attempt: what the evidence and the provider's guarantees allow, as one pure function.
//!
//! Nothing here guesses. Time alone proves nothing, an empty look-up proves something only once the effect could have
//! been found, and no principal's own word proves that nothing happened.

use super::{
    evidence::{EvidenceKind, Finding},
    id::EvidenceId,
    provider::{Contract, Idempotency, Proofs, is_proven},
    time::Timestamp,
};

/// Attempts of one operation, the first included.
pub const MAX_ATTEMPTS: usize = 3;
/// Seconds before the end of a provider's memory of a key at which it is no longer relied on, besides the time a
/// request may be under way.
pub const KEY_MARGIN_S: i64 = 15 * 60;

/// One piece of evidence, as far as the rule looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    pub id: EvidenceId,
    pub finding: Finding,
    pub kind: EvidenceKind,
    /// Counterfoil asked, or verified the provider's signature, itself.
    pub first_hand: bool,
    /// It names the downstream key or the provider's reference; an equal amount or text binds nothing.
    pub bound: bool,
    pub observed_at: Timestamp,
}

impl Proof {
    fn shows(&self, finding: Finding) -> bool {
        self.finding == finding
            && self.first_hand
            && self.bound
            && matches!(self.kind, EvidenceKind::Lookup | EvidenceKind::Callback)
    }
}

/// Everything the rule looks at.
#[derive(Debug, Clone, Copy)]
pub struct Doubt<'a> {
    pub contract: Option<&'a Contract>,
    pub proofs: Proofs,
    pub evidence: &'a [Proof],
    pub first_sent_at: Timestamp,
    /// When the last claim ended: nothing has left since.
    pub claim_ended_at: Timestamp,
    pub attempts: usize,
    /// Unrevoked, its voters still eligible, the policy satisfied, and in time.
    pub approval_in_force: bool,
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// Row 18, by this evidence.
    Applied(EvidenceId),
    /// Row 19, by this evidence.
    NotApplied(EvidenceId),
    /// Row 20: one more attempt with the same fingerprint and the same downstream key.
    Resend(Licence),
    /// The provider is asked, not before this time; until then nothing follows.
    LookUp { not_before: Timestamp },
    /// Row 21: a person decides.
    Review(Stuck),
}

/// Why one more attempt cannot make a second effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Licence {
    /// The provider honours the key, and still remembers it.
    KeyHonoured,
    /// What was sent was not applied, and can no longer be.
    Absent(EvidenceId),
}

/// Why nothing is licensed and nothing more can be learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stuck {
    NoContract,
    Unproven,
    CannotBeAsked,
    Unbounded,
    AttemptsUsedUp,
    ApprovalOver,
    KeyForgotten,
}

impl Stuck {
    /// As the case's reason says it.
    pub fn sentence(self) -> &'static str {
        match self {
            Stuck::NoContract => "no provider has declared what a lost answer means",
            Stuck::Unproven => "what the provider declares has not been proven, or the proof has run out",
            Stuck::CannotBeAsked => "the provider cannot be asked",
            Stuck::Unbounded => "the provider sets no bound after which an absent effect stays absent",
            Stuck::AttemptsUsedUp => "all attempts are used up",
            Stuck::ApprovalOver => "the approval is no longer in force",
            Stuck::KeyForgotten => "the provider may have forgotten the key",
        }
    }
}

/// What `doubt` allows at `now`.
pub fn rule(doubt: Doubt<'_>, now: Timestamp) -> Ruling {
    if let Some(proof) = doubt.evidence.iter().find(|proof| proof.shows(Finding::Applied)) {
        return Ruling::Applied(proof.id.clone());
    }
    let Some(contract) = doubt.contract else { return Ruling::Review(Stuck::NoContract) };
    let may_try = || match () {
        () if doubt.attempts >= MAX_ATTEMPTS => Err(Stuck::AttemptsUsedUp),
        () if !doubt.approval_in_force => Err(Stuck::ApprovalOver),
        () => Ok(()),
    };
    if let Some(absent) = trusted_absence(&doubt, contract, now) {
        return match may_try() {
            Ok(()) => Ruling::Resend(Licence::Absent(absent)),
            Err(_) => Ruling::NotApplied(absent),
        };
    }
    let asked = |since: Timestamp| {
        doubt
            .evidence
            .iter()
            .any(|proof| proof.first_hand && proof.kind == EvidenceKind::Lookup && proof.observed_at >= since)
    };
    let can_ask = contract.lookup.lag_s().is_some() && is_proven(doubt.proofs.lookup, now);
    if can_ask && !asked(doubt.claim_ended_at) {
        return Ruling::LookUp { not_before: doubt.claim_ended_at };
    }
    let by_key = key_licence(&doubt, contract, now).and_then(|()| may_try());
    match (by_key, absence_trusted_from(&doubt, contract)) {
        (Ok(()), _) => Ruling::Resend(Licence::KeyHonoured),
        (Err(_), Ok(not_before)) if can_ask => Ruling::LookUp { not_before },
        (Err(_), Ok(_)) => Ruling::Review(Stuck::Unproven),
        (Err(stuck), Err(_)) if matches!(contract.idempotency, Idempotency::Honoured(_)) => Ruling::Review(stuck),
        (Err(_), Err(stuck)) => Ruling::Review(stuck),
    }
}

/// The key is honoured, what is under way is bounded, and the provider still remembers the key when the last of it
/// arrives.
fn key_licence(doubt: &Doubt<'_>, contract: &Contract, now: Timestamp) -> Result<(), Stuck> {
    let Idempotency::Honoured(honoured) = &contract.idempotency else { return Err(Stuck::CannotBeAsked) };
    let Some(in_flight_s) = contract.max_in_flight_s.seconds() else { return Err(Stuck::Unbounded) };
    if !is_proven(doubt.proofs.idempotency, now) {
        return Err(Stuck::Unproven);
    }
    let until = doubt.first_sent_at.plus_seconds(honoured.retention_s - (KEY_MARGIN_S + in_flight_s));
    if now < until { Ok(()) } else { Err(Stuck::KeyForgotten) }
}

/// From when on an empty look-up proves absence: whatever was sent has been applied by then or never will be, and what
/// was applied can be found.
fn absence_trusted_from(doubt: &Doubt<'_>, contract: &Contract) -> Result<Timestamp, Stuck> {
    let lag_s = contract.lookup.lag_s().ok_or(Stuck::CannotBeAsked)?;
    let in_flight_s = contract.max_in_flight_s.seconds().ok_or(Stuck::Unbounded)?;
    Ok(doubt.claim_ended_at.plus_seconds(in_flight_s + lag_s))
}

/// Evidence that what was sent was not applied and never will be.
fn trusted_absence(doubt: &Doubt<'_>, contract: &Contract, now: Timestamp) -> Option<EvidenceId> {
    let in_flight_s = contract.max_in_flight_s.seconds()?;
    let landed = doubt.claim_ended_at.plus_seconds(in_flight_s);
    let trusted_from = absence_trusted_from(doubt, contract).ok().filter(|_| is_proven(doubt.proofs.lookup, now));
    let proves = |proof: &&Proof| {
        proof.shows(Finding::NotApplied)
            && match proof.kind {
                EvidenceKind::Lookup => trusted_from.is_some_and(|from| proof.observed_at >= from),
                // The provider's signed word about this very request; an earlier one may still be under way.
                _ => now >= landed,
            }
    };
    doubt.evidence.iter().find(proves).map(|proof| proof.id.clone())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const SENT: Timestamp = Timestamp(1_000_000);
    const ENDED: Timestamp = Timestamp(1_060_000);

    fn contract(idempotency: serde_json::Value, lookup: serde_json::Value, bound: serde_json::Value) -> Contract {
        Contract::read(&json!({
            "name": "p", "title": "P", "idempotency": idempotency, "lookup": lookup, "max_in_flight_s": bound, "fences": false
        }))
        .unwrap()
    }

    fn keys() -> serde_json::Value {
        json!({"header": "Idempotency-Key", "retention_s": 86_400})
    }

    fn proof(n: u128, finding: Finding, kind: EvidenceKind, at: Timestamp) -> Proof {
        Proof { id: EvidenceId::from_parts(1, n), finding, kind, first_hand: true, bound: true, observed_at: at }
    }

    fn empty(at: Timestamp) -> Proof {
        proof(1, Finding::NotApplied, EvidenceKind::Lookup, at)
    }

    #[derive(Debug)]
    struct Trial {
        contract: Option<Contract>,
        proofs: Proofs,
        evidence: Vec<Proof>,
        attempts: usize,
        in_force: bool,
    }

    impl Trial {
        fn of(contract: Contract) -> Self {
            let proofs = Proofs { idempotency: Some(SENT), lookup: Some(SENT) };
            Self { contract: Some(contract), proofs, evidence: Vec::new(), attempts: 1, in_force: true }
        }

        fn with(mut self, proof: Proof) -> Self {
            self.evidence.push(proof);
            self
        }

        fn at(&self, now: Timestamp) -> Ruling {
            let doubt = Doubt {
                contract: self.contract.as_ref(),
                proofs: self.proofs,
                evidence: &self.evidence,
                first_sent_at: SENT,
                claim_ended_at: ENDED,
                attempts: self.attempts,
                approval_in_force: self.in_force,
            };
            rule(doubt, now)
        }
    }

    fn after(seconds: i64) -> Timestamp {
        ENDED.plus_seconds(seconds)
    }

    #[test]
    fn without_a_guarantee_a_person_decides_however_much_time_passes() {
        let none = json!("none");
        for (trial, stuck) in [
            (Trial { contract: None, ..Trial::of(contract(none.clone(), none.clone(), json!(1))) }, Stuck::NoContract),
            (Trial::of(contract(none.clone(), none.clone(), json!(1))), Stuck::CannotBeAsked),
            (Trial::of(contract(keys(), none.clone(), json!("unbounded"))), Stuck::Unbounded),
            (Trial { proofs: Proofs::default(), ..Trial::of(contract(keys(), none, json!(1))) }, Stuck::Unproven),
        ] {
            for seconds in [0, 60, 3600, 86_400 * 20] {
                assert_eq!(trial.at(after(seconds)), Ruling::Review(stuck));
            }
        }
    }

    #[test]
    fn an_honoured_key_is_sent_again_while_the_provider_remembers_it() {
        let trial = Trial::of(contract(keys(), json!("none"), json!(60)));
        let last = SENT.plus_seconds(86_400 - (KEY_MARGIN_S + 60));
        assert_eq!(trial.at(after(0)), Ruling::Resend(Licence::KeyHonoured));
        assert_eq!(trial.at(Timestamp(last.0 - 1)), Ruling::Resend(Licence::KeyHonoured));
        assert_eq!(trial.at(last), Ruling::Review(Stuck::KeyForgotten));
        assert_eq!(Trial { attempts: 3, ..trial }.at(after(0)), Ruling::Review(Stuck::AttemptsUsedUp));
        let over = Trial { in_force: false, ..Trial::of(contract(keys(), json!("none"), json!(60))) };
        assert_eq!(over.at(after(0)), Ruling::Review(Stuck::ApprovalOver));
    }

    #[test]
    fn whoever_can_be_asked_is_asked_before_the_key_is_sent_again() {
        let trial = Trial::of(contract(keys(), json!("authoritative"), json!(60)));
        assert_eq!(trial.at(after(0)), Ruling::LookUp { not_before: ENDED });
        assert_eq!(trial.with(empty(after(1))).at(after(1)), Ruling::Resend(Licence::KeyHonoured));
    }

    #[test]
    fn an_empty_look_up_proves_absence_only_once_the_effect_would_be_found() {
        let authoritative = || Trial::of(contract(json!("none"), json!("authoritative"), json!(60)));
        let eventual = || Trial::of(contract(json!("none"), json!({"eventual": {"settle_s": 60}}), json!(60)));
        let unbounded = || Trial::of(contract(json!("none"), json!("authoritative"), json!("unbounded")));
        assert_eq!(authoritative().with(empty(after(59))).at(after(59)), Ruling::LookUp { not_before: after(60) });
        assert!(matches!(authoritative().with(empty(after(60))).at(after(60)), Ruling::Resend(Licence::Absent(_))));
        assert_eq!(eventual().with(empty(after(119))).at(after(500)), Ruling::LookUp { not_before: after(120) });
        assert!(matches!(eventual().with(empty(after(120))).at(after(120)), Ruling::Resend(Licence::Absent(_))));
        assert_eq!(unbounded().with(empty(after(9_999))).at(after(9_999)), Ruling::Review(Stuck::Unbounded));
        for over in [Trial { in_force: false, ..authoritative() }, Trial { attempts: 3, ..authoritative() }] {
            assert!(matches!(over.with(empty(after(60))).at(after(60)), Ruling::NotApplied(_)));
        }
        let unproven = Trial { proofs: Proofs::default(), ..authoritative() };
        assert_eq!(unproven.with(empty(after(60))).at(after(60)), Ruling::Review(Stuck::Unproven));
    }

    #[test]
    fn nobodys_own_word_and_no_unbound_record_proves_anything() {
        let trial = || Trial::of(contract(json!("none"), json!("authoritative"), json!(60)));
        let asks = Ruling::LookUp { not_before: ENDED };
        for finding in [Finding::Applied, Finding::NotApplied] {
            let found = |kind| proof(1, finding, kind, after(100));
            for not_proof in [
                Proof { first_hand: false, ..found(EvidenceKind::Lookup) },
                found(EvidenceKind::Statement),
                found(EvidenceKind::Receipt),
                found(EvidenceKind::LateReport),
            ] {
                assert_eq!(trial().with(not_proof).at(after(100)), asks);
            }
            let unbound = Proof { bound: false, ..found(EvidenceKind::Lookup) };
            assert_eq!(trial().with(unbound).at(after(100)), Ruling::LookUp { not_before: after(60) });
        }
        let failed = proof(1, Finding::Inconclusive, EvidenceKind::Lookup, after(100));
        assert_eq!(trial().with(failed).at(after(100)), Ruling::LookUp { not_before: after(60) });
    }

    #[test]
    fn a_signed_refusal_counts_once_nothing_is_under_way() {
        let refused = proof(1, Finding::NotApplied, EvidenceKind::Callback, after(1));
        let trial = Trial { in_force: false, ..Trial::of(contract(json!("none"), json!("none"), json!(60))) };
        let trial = trial.with(refused.clone());
        assert_eq!(trial.at(after(59)), Ruling::Review(Stuck::CannotBeAsked));
        assert_eq!(trial.at(after(60)), Ruling::NotApplied(refused.id));
    }

    fn any_trial() -> impl Strategy<Value = Trial> {
        let key =
            prop_oneof![Just(json!("none")), (1i64..90_000).prop_map(|r| json!({"header": "K", "retention_s": r}))];
        let lookup = prop_oneof![
            Just(json!("none")),
            Just(json!("authoritative")),
            (1i64..500).prop_map(|s| json!({"eventual": {"settle_s": s}}))
        ];
        let bound = prop_oneof![Just(json!("unbounded")), (0i64..500).prop_map(|m| json!(m))];
        let kind = prop_oneof![
            Just(EvidenceKind::Lookup),
            Just(EvidenceKind::Callback),
            Just(EvidenceKind::Receipt),
            Just(EvidenceKind::Statement),
            Just(EvidenceKind::LateReport)
        ];
        let finding = prop_oneof![Just(Finding::Applied), Just(Finding::NotApplied), Just(Finding::Inconclusive)];
        let item = (finding, kind, any::<bool>(), any::<bool>(), -100i64..1_000).prop_map(
            |(finding, kind, first_hand, bound, s)| Proof { first_hand, bound, ..proof(1, finding, kind, after(s)) },
        );
        let shown = || proptest::option::of(Just(SENT));
        let contract = proptest::option::of((key, lookup, bound).prop_map(|(k, l, b)| contract(k, l, b)));
        (contract, shown(), shown(), proptest::collection::vec(item, 0..4), 1usize..5, any::<bool>()).prop_map(
            |(contract, idempotency, lookup, evidence, attempts, in_force)| Trial {
                contract,
                proofs: Proofs { idempotency, lookup },
                evidence,
                attempts,
                in_force,
            },
        )
    }

    proptest! {
        #[test]
        fn an_effect_that_may_exist_is_never_repeated_without_a_proven_guarantee(
            trial in any_trial(), seconds in 0i64..100_000
        ) {
            let now = after(seconds);
            let contract = trial.contract.clone();
            match trial.at(now) {
                Ruling::Resend(licence) => {
                    prop_assert!(trial.attempts < MAX_ATTEMPTS && trial.in_force);
                    let contract = contract.unwrap();
                    let bound = contract.max_in_flight_s.seconds().unwrap();
                    match licence {
                        Licence::KeyHonoured => {
                            let Idempotency::Honoured(key) = contract.idempotency else { panic!("no key") };
                            prop_assert!(trial.proofs.idempotency.is_some());
                            prop_assert!(now < SENT.plus_seconds(key.retention_s - bound - KEY_MARGIN_S));
                        }
                        Licence::Absent(_) => prop_assert!(now >= ENDED.plus_seconds(bound)),
                    }
                }
                Ruling::NotApplied(_) => {
                    let bound = contract.unwrap().max_in_flight_s.seconds().unwrap();
                    prop_assert!(now >= ENDED.plus_seconds(bound));
                }
                Ruling::Applied(_) => prop_assert!(trial.evidence.iter().any(|p| p.shows(Finding::Applied))),
                Ruling::LookUp { .. } => prop_assert!(contract.unwrap().lookup.lag_s().is_some()),
                Ruling::Review(_) => {}
            }
        }

        #[test]
        fn time_alone_never_turns_doubt_into_an_outcome(trial in any_trial(), a in 0i64..1_000, b in 0i64..100_000) {
            let trial = Trial { evidence: Vec::new(), ..trial };
            for seconds in [a, a + b] {
                prop_assert!(!matches!(trial.at(after(seconds)), Ruling::Applied(_) | Ruling::NotApplied(_)));
            }
        }
    }
}
