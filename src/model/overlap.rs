//! The conflict map: where two runs could collide, found before they do.

use std::collections::BTreeSet;

use serde::Serialize;
use utoipa::ToSchema;

use super::{
    conflict::ResolvedBy,
    kind::Verb,
    problem::{Code, Problem},
    run::{Scope, WriteGrant},
    time::Timestamp,
};

/// Overlaps named at most; a map with more is not read by anybody.
pub const MAX_OVERLAPS: usize = 1000;

/// What one run, live or planned, writes, reads and relies on.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'p> {
    /// As a sentence calls it.
    pub name: &'p str,
    pub write_set: &'p [WriteGrant],
    pub reads: &'p [Scope],
    pub defaults: &'p [Scope],
    pub expires_at: Timestamp,
}

/// How two plans collide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Collision {
    /// One deletes what the other writes or deletes.
    Delete,
    /// Both write.
    Write,
    /// One writes what the other uses as a shared default.
    Default,
    /// One writes what the other reads.
    Read,
}

/// One place where two plans collide. `writer` and `other` are places in the list of plans; where both write, the
/// writer is the one that deletes, or comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overlap {
    pub writer: usize,
    pub other: usize,
    pub collision: Collision,
    /// The narrower of the two scopes: all of it belongs to both.
    pub resource: Scope,
    pub writer_verbs: BTreeSet<Verb>,
    /// Empty where the other does not write.
    pub other_verbs: BTreeSet<Verb>,
    /// When both may act for the first time, and no longer.
    pub from: Timestamp,
    pub until: Timestamp,
}

impl Overlap {
    /// What collides, in a sentence.
    pub fn sentence(&self, plans: &[Plan]) -> String {
        let (writer, other, resource) = (plans[self.writer].name, plans[self.other].name, &self.resource);
        let verbs = |verbs: &BTreeSet<Verb>| verbs.iter().map(|verb| verb.as_str()).collect::<Vec<_>>().join(", ");
        match self.collision {
            Collision::Delete if self.other_verbs.contains(&Verb::Delete) => {
                format!("{writer} and {other} may both delete {resource}")
            }
            Collision::Delete => {
                format!("{writer} may delete {resource}, which {other} writes ({})", verbs(&self.other_verbs))
            }
            Collision::Write => format!(
                "{writer} ({}) and {other} ({}) may both write {resource}",
                verbs(&self.writer_verbs),
                verbs(&self.other_verbs)
            ),
            Collision::Default => format!(
                "{writer} may write {resource} ({}), which {other} uses as a shared default",
                verbs(&self.writer_verbs)
            ),
            Collision::Read => {
                format!("{writer} may write {resource} ({}), which {other} reads", verbs(&self.writer_verbs))
            }
        }
    }
}

/// One scope of one plan.
struct Entry<'p> {
    plan: usize,
    scope: &'p Scope,
    usage: Usage<'p>,
}

enum Usage<'p> {
    Write(&'p WriteGrant),
    Read,
    Default,
}

/// Where any two of the plans collide from `now` on, the worst first; [`MAX_OVERLAPS`] at most. Taking a lease is not
/// writing.
pub fn overlaps(plans: &[Plan], now: Timestamp) -> Vec<Overlap> {
    let mut entries: Vec<_> = plans.iter().enumerate().flat_map(|(plan, set)| entries(plan, set)).collect();
    entries.sort_by(|a, b| a.scope.order().cmp(&b.scope.order()));
    let mut found = BTreeSet::new();
    // Scopes are whole targets or prefixes, so those that contain the current one form a chain.
    let mut around: Vec<&Entry> = Vec::new();
    for entry in &entries {
        while around.last().is_some_and(|outer| !outer.scope.covers(entry.scope)) {
            around.pop();
        }
        found.extend(around.iter().filter_map(|outer| collide(outer, entry, plans, now)));
        around.push(entry);
        while found.len() > MAX_OVERLAPS {
            found.pop_last();
        }
    }
    found.into_iter().map(|(_, overlap)| overlap).collect()
}

fn entries<'p>(plan: usize, set: &Plan<'p>) -> impl Iterator<Item = Entry<'p>> + use<'p> {
    let writes = set.write_set.iter().filter(|grant| writing(grant).next().is_some());
    let writes = writes.map(move |grant| Entry { plan, scope: &grant.resource, usage: Usage::Write(grant) });
    let reads = set.reads.iter().map(move |scope| Entry { plan, scope, usage: Usage::Read });
    let defaults = set.defaults.iter().map(move |scope| Entry { plan, scope, usage: Usage::Default });
    writes.chain(reads).chain(defaults)
}

fn writing(grant: &WriteGrant) -> impl Iterator<Item = Verb> {
    grant.verbs.iter().copied().filter(|verb| *verb != Verb::Lease)
}

/// The collision of two entries of which one scope contains the other, with its rank.
fn collide(a: &Entry, b: &Entry, plans: &[Plan], now: Timestamp) -> Option<(Collision, Overlap)> {
    if a.plan == b.plan {
        return None;
    }
    let (writer, grant, other) = match (&a.usage, &b.usage) {
        (Usage::Write(one), Usage::Write(two)) => {
            let goes_first = (one.verbs.contains(&Verb::Delete), b.plan) > (two.verbs.contains(&Verb::Delete), a.plan);
            if goes_first { (a, *one, b) } else { (b, *two, a) }
        }
        (Usage::Write(grant), _) => (a, *grant, b),
        (_, Usage::Write(grant)) => (b, *grant, a),
        _ => return None,
    };
    let window = |entry: &Entry| match &entry.usage {
        Usage::Write(grant) => grant.window(plans[entry.plan].expires_at),
        Usage::Read | Usage::Default => (Timestamp(i64::MIN), plans[entry.plan].expires_at),
    };
    let (one, two) = (window(writer), window(other));
    let (from, until) = (one.0.max(two.0).max(now), one.1.min(two.1));
    if from >= until {
        return None;
    }
    let writer_verbs: BTreeSet<_> = writing(grant).collect();
    let (collision, other_verbs) = match &other.usage {
        Usage::Write(grant) if writer_verbs.contains(&Verb::Delete) => (Collision::Delete, writing(grant).collect()),
        Usage::Write(grant) => (Collision::Write, writing(grant).collect()),
        Usage::Default => (Collision::Default, BTreeSet::new()),
        Usage::Read => (Collision::Read, BTreeSet::new()),
    };
    let resource = if a.scope.covers(b.scope) { b.scope } else { a.scope }.clone();
    let (writer, other) = (writer.plan, other.plan);
    Some((collision, Overlap { writer, other, collision, resource, writer_verbs, other_verbs, from, until }))
}

/// Exclusive rights of two plans that meet: resource, verb, and the time until which the other one holds.
pub fn contested<'p>(wanted: &'p Plan, held: &'p Plan, now: Timestamp) -> Option<(usize, &'p Scope, Verb, Timestamp)> {
    wanted.write_set.iter().enumerate().filter(|(_, mine)| mine.exclusive).find_map(|(index, mine)| {
        held.write_set.iter().filter(|theirs| theirs.exclusive).find_map(|theirs| {
            let verb = *mine.verbs.intersection(&theirs.verbs).next()?;
            let resource = mine.resource.intersection(&theirs.resource)?;
            let (one, two) = (mine.window(wanted.expires_at), theirs.window(held.expires_at));
            (one.0.max(two.0).max(now) < one.1.min(two.1)).then_some((index, resource, verb, two.1))
        })
    })
}

/// The refusal of a set that claims for itself what a live run has for itself.
pub fn ownership_conflict(index: usize, resource: &Scope, verb: Verb, run: &str, until: Timestamp) -> Problem {
    let code = Code::OwnershipConflict;
    let detail = format!("`{run}` has `{}` on `{resource}` for itself until {until}", verb.as_str());
    Problem::new(code, detail)
        .with("error", code)
        .with("category", code)
        .with("resolver", ResolvedBy::Human)
        .with("resource", resource)
        .with("verb", verb)
        .with("run", run)
        .with("expires_at", until)
        .with("pointer", format!("/write_set/{index}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const END: Timestamp = Timestamp(1000);

    fn grant(resource: &str, verbs: &[Verb]) -> WriteGrant {
        let verbs = verbs.iter().copied().collect();
        WriteGrant { resource: resource.parse().unwrap(), verbs, exclusive: true, not_before: None, expires_at: None }
    }

    fn plan<'p>(name: &'p str, write_set: &'p [WriteGrant], reads: &'p [Scope], defaults: &'p [Scope]) -> Plan<'p> {
        Plan { name, write_set, reads, defaults, expires_at: END }
    }

    #[test]
    fn each_collision_is_explained_in_a_sentence() {
        let scopes = |text: &str| vec![text.parse::<Scope>().unwrap()];
        let (one, two) = ([grant("order/47*", &[Verb::Pay])], [grant("order/4711", &[Verb::Refund, Verb::Delete])]);
        let (orders, config) = (scopes("order/4711"), scopes("order/*"));
        let plans = [plan("a", &one, &[], &[]), plan("b", &two, &[], &[]), plan("c", &[], &orders, &config)];
        let sentences: Vec<_> = overlaps(&plans, Timestamp(0)).iter().map(|found| found.sentence(&plans)).collect();
        assert_eq!(
            sentences,
            [
                "b may delete order/4711, which a writes (pay)",
                "a may write order/47* (pay), which c uses as a shared default",
                "b may write order/4711 (delete, refund), which c uses as a shared default",
                "a may write order/4711 (pay), which c reads",
                "b may write order/4711 (delete, refund), which c reads",
            ]
        );
    }

    #[test]
    fn leasing_and_times_that_do_not_meet_are_no_collision() {
        let lease = [grant("release/prod-eu", &[Verb::Lease])];
        let deploy = [grant("release/prod-eu", &[Verb::Deploy])];
        assert!(overlaps(&[plan("a", &lease, &[], &[]), plan("b", &deploy, &[], &[])], Timestamp(0)).is_empty());
        let early = [WriteGrant { expires_at: Some(Timestamp(10)), ..deploy[0].clone() }];
        let late = [WriteGrant { not_before: Some(Timestamp(10)), ..deploy[0].clone() }];
        let plans = [plan("a", &early, &[], &[]), plan("b", &late, &[], &[])];
        assert!(overlaps(&plans, Timestamp(0)).is_empty());
        assert_eq!(contested(&plans[0], &plans[1], Timestamp(0)), None);
    }

    fn a_grant() -> impl Strategy<Value = WriteGrant> {
        let verbs = prop::collection::btree_set(
            prop::sample::select(vec![Verb::Update, Verb::Delete, Verb::Lease, Verb::Deploy]),
            1..3,
        );
        let time = || prop::option::of((0i64..40).prop_map(Timestamp));
        ("t/[ab]{1,2}[ab*]", verbs, any::<bool>(), time(), time()).prop_map(
            |(resource, verbs, exclusive, not_before, expires_at)| WriteGrant {
                resource: resource.parse().unwrap(),
                verbs,
                exclusive,
                not_before,
                expires_at,
            },
        )
    }

    type Set = (Vec<WriteGrant>, Vec<Scope>, Vec<Scope>);

    fn a_set() -> impl Strategy<Value = Set> {
        let scopes = || prop::collection::vec("t/[ab]{1,2}[ab*]".prop_map(|text| text.parse().unwrap()), 0..3);
        (prop::collection::vec(a_grant(), 0..3), scopes(), scopes())
    }

    fn plans(sets: &[Set]) -> Vec<Plan<'_>> {
        sets.iter().map(|(writes, reads, defaults)| plan("run", writes, reads, defaults)).collect()
    }

    proptest! {
        #[test]
        fn the_map_names_every_target_and_time_that_two_plans_share(
            sets in prop::collection::vec(a_set(), 2..4), target in "t/[ab]{1,4}", now in 0i64..40,
        ) {
            let plans = plans(&sets);
            let found = overlaps(&plans, Timestamp(0));
            let writes = |plan: &Plan| {
                plan.write_set.iter().any(|grant| {
                    writing(grant).any(|verb| grant.permits(&target, verb, Timestamp(now)))
                })
            };
            let reads = |plan: &Plan| plan.reads.iter().chain(plan.defaults).any(|scope| scope.contains(&target));
            for (i, one) in plans.iter().enumerate() {
                for (j, two) in plans.iter().enumerate().filter(|(j, _)| *j != i) {
                    let shared = writes(one) && (writes(two) || reads(two));
                    let is_named = found.iter().any(|overlap| {
                        [(i, j), (j, i)].contains(&(overlap.writer, overlap.other))
                            && overlap.resource.contains(&target)
                            && (overlap.from..overlap.until).contains(&Timestamp(now))
                    });
                    prop_assert!(!shared || is_named);
                }
            }
        }

        #[test]
        fn the_map_does_not_depend_on_who_comes_first(one in a_set(), two in a_set()) {
            let named = |sets: [Set; 2], places: [usize; 2]| -> BTreeSet<_> {
                let found = overlaps(&plans(&sets), Timestamp(0)).into_iter();
                found.map(|overlap| {
                    let mut parties = vec![(places[overlap.writer], overlap.writer_verbs), (places[overlap.other], overlap.other_verbs)];
                    parties.sort();
                    (overlap.collision, overlap.resource, parties, overlap.from, overlap.until)
                }).collect()
            };
            prop_assert_eq!(named([one.clone(), two.clone()], [0, 1]), named([two, one], [1, 0]));
        }

        #[test]
        fn an_exclusive_right_is_contested_from_both_sides(one in a_set(), two in a_set(), target in "t/[ab]{1,4}", now in 0i64..40) {
            let sets = [one, two];
            let plans = plans(&sets);
            let (a, b) = (&plans[0], &plans[1]);
            let is_contested = contested(a, b, Timestamp(0)).is_some();
            prop_assert_eq!(is_contested, contested(b, a, Timestamp(0)).is_some());
            let has = |plan: &Plan, verb| {
                plan.write_set.iter().any(|grant| grant.exclusive && grant.permits(&target, verb, Timestamp(now)))
            };
            let both = [Verb::Update, Verb::Delete, Verb::Lease, Verb::Deploy].into_iter().any(|verb| has(a, verb) && has(b, verb));
            prop_assert!(!both || is_contested);
        }
    }
}
