//! One seed of one cell: plans what goes wrong, runs the tasks, and asks the ledger what happened.

use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use counterfoil::server::clock::Clock;
use futures::future::LocalBoxFuture;
use serde_json::Value;

use crate::{
    cells::{Arm, Contract, Fate, Injection},
    desk::{Desk, KEY_RETENTION_MS, Work},
    direct::{self, Intent, Life, Told},
    guards::Guard,
    provider::{Plan, Providers, Wire},
    report::Seen,
    sim::{Chance, Sim},
    support::START,
};

/// Milliseconds between two seeds' beginnings, on average.
const SPREAD_MS: u64 = 5_000;
/// By then an outcome that can be found out has been.
const SETTLED_MS: i64 = 420_000;
const TEN_MINUTES_MS: i64 = 600_000;
/// For how long a proposal waits for a decision.
const APPROVAL_MS: i64 = 900_000;

/// Where a seed runs.
struct Place<'a> {
    arm: Arm,
    /// As the names of its orders begin.
    slug: String,
    desk: Option<&'a Desk>,
    wire: Wire,
    work: Work,
}

impl Place<'_> {
    async fn act(&self, intent: &Intent, life: Life, delivery: usize) -> Told {
        match self.desk {
            Some(desk) => desk.act(delivery, &self.wire, intent, life, &self.work).await,
            None => direct::act(self.arm, &self.wire, intent, life, delivery).await,
        }
    }
}

/// What happens to the requests about one order.
fn plan(injection: Injection, contract: Contract, step: usize, chance: &mut Chance) -> Plan {
    let lag_ms = contract.settle_ms().map_or(0, |settle| if settle == 0 { 0 } else { chance.delay_ms(10_000, settle) });
    let answered = Fate::Answered { after_ms: chance.delay_ms(200, 8_000) };
    let reply_lost = Fate::ReplyLost { commit_after_ms: 0 };
    let fates = match injection {
        Injection::RequestLost => vec![Fate::RequestLost],
        Injection::InternalErrorAfterCommit => vec![Fate::Failed { status: 500 }],
        Injection::BadGatewayAfterCommit => vec![Fate::Failed { status: 502 }],
        Injection::LateCommit => {
            let limit = contract.in_flight_ms().map_or(2 * 3_600_000, |bound| bound - 5_000);
            vec![Fate::ReplyLost { commit_after_ms: chance.delay_ms(15_000, limit) }]
        }
        Injection::SecondRequest => vec![answered, reply_lost],
        Injection::PartialBatch if step != 1 => vec![answered],
        Injection::DatabaseAway if chance.next().is_multiple_of(2) => vec![reply_lost],
        Injection::ReplyLost
        | Injection::RestartWithKey
        | Injection::RestartWithoutKey
        | Injection::ChangedParameter
        | Injection::ProviderForgets
        | Injection::ClockAhead
        | Injection::ClockBehind
        | Injection::PartialBatch => vec![reply_lost],
        _ => vec![answered; 5],
    };
    let gains_ms = match injection {
        Injection::ClockAhead => TEN_MINUTES_MS,
        Injection::ClockBehind => -TEN_MINUTES_MS,
        _ => 0,
    };
    // A record that is never shown.
    let lag_ms = if injection == Injection::Contradiction { 1 << 40 } else { lag_ms };
    Plan { fates, lag_ms, gains_ms }
}

/// A delivery, and what whoever made it was told.
struct Task {
    order: String,
    body: Value,
    /// How many effects of this content there are when it is really done.
    nth: usize,
    told: Told,
}

impl Task {
    fn of(intent: &Intent, told: Told) -> Self {
        Self { order: intent.order.clone(), body: intent.body(), nth: 1, told }
    }
}

async fn seed(providers: &Providers, place: Place<'_>, injection: Injection, seed: u64, latest_ms: u64) -> Seen {
    let contract = place.wire.contract;
    let mut chance = Chance::new(seed ^ ((injection as u64) << 40) ^ ((contract as u64) << 50));
    let sim = place.wire.sim.clone();
    let steps = if injection == Injection::PartialBatch { 3 } else { 1 };
    let mut intents = Vec::new();
    for step in 0..steps {
        let order = format!("{}-{injection:?}-{seed}-{step}", place.slug);
        providers.plan(contract, &order, &plan(injection, contract, step, &mut chance)).await;
        let (key, event) = (format!("key-{order}"), format!("event-{order}"));
        let amount_minor = 1 + (chance.next() % 10_000) as i64;
        let planned_on = (injection == Injection::TwoDeploys).then_some(0);
        intents.push(Intent { order, key, event, amount_minor, planned_on });
    }
    sim.sleep_ms((chance.next() % latest_ms) as i64).await;
    let (first, mut began) = (&intents[0], sim.now());
    let changed = Intent { amount_minor: first.amount_minor + 1, ..first.clone() };
    let pause_ms = chance.delay_ms(30_000, TEN_MINUTES_MS);
    let mut tasks = Vec::new();
    let mut is_wanted = !matches!(injection, Injection::Expiry | Injection::Withdrawal);
    match injection {
        Injection::Redelivery | Injection::DeskForgets => {
            tasks.push(Task::of(first, place.act(first, Life::Lives, 0).await));
            let long = injection == Injection::DeskForgets;
            sim.sleep_ms(if long { KEY_RETENTION_MS + 2 * pause_ms } else { pause_ms }).await;
            began = sim.now();
            tasks.push(Task::of(first, place.act(first, Life::Lives, 1).await));
        }
        Injection::Copies => {
            let copies = sim.all((0..5).map(|copy| place.act(first, Life::Lives, copy)).collect()).await;
            tasks.extend(copies.into_iter().map(|told| Task::of(first, told)));
        }
        Injection::DiesAfterClaim
        | Injection::DiesBeforeByte
        | Injection::RestartWithKey
        | Injection::RestartWithoutKey
        | Injection::ChangedParameter
        | Injection::ProviderForgets
        | Injection::ClockAhead
        | Injection::ClockBehind => {
            let life = match injection {
                Injection::DiesAfterClaim => Life::DiesAfterClaim,
                Injection::DiesBeforeByte => Life::DiesBeforeByte,
                _ => Life::DiesAfterSending,
            };
            place.act(first, life, 0).await;
            sim.sleep_ms(match injection {
                Injection::ProviderForgets => 3_600_000 + pause_ms,
                // Between 52 and 58 minutes of the hour for which a key is remembered.
                Injection::ClockAhead | Injection::ClockBehind => 3_120_000 + (chance.next() % 360_000) as i64,
                // By then what became of the first is known in every second seed.
                Injection::RestartWithoutKey if seed % 2 == 1 => SETTLED_MS + pause_ms,
                _ => pause_ms,
            })
            .await;
            began = sim.now();
            let again = match injection {
                Injection::RestartWithoutKey => Intent { key: format!("{}-new", first.key), ..first.clone() },
                Injection::ChangedParameter => changed,
                _ => first.clone(),
            };
            tasks.push(Task::of(first, place.act(&again, Life::Lives, 1).await));
        }
        Injection::Paused => {
            let ms = 200_000 + (chance.next() % 200_000) as i64;
            let stopped: LocalBoxFuture<'_, Told> = Box::pin(place.act(first, Life::StopsFor { ms }, 0));
            let second: LocalBoxFuture<'_, Told> = Box::pin(async {
                sim.sleep_ms(20_000).await;
                place.act(first, Life::Lives, 1).await
            });
            tasks.extend(sim.all(vec![stopped, second]).await.into_iter().map(|told| Task::of(first, told)));
        }
        Injection::PayloadChanged => tasks.push(match place.desk {
            Some(desk) => {
                let op = desk.propose(0, first).await.expect("a new operation");
                desk.decide(&op, &place.work).await;
                desk.refuses(&op, &changed).await;
                let told = desk.carry_out(0, &place.wire, &changed, op, Life::Lives, &place.work).await;
                Task::of(first, told)
            }
            None => Task::of(first, place.act(&changed, Life::Lives, 0).await),
        }),
        Injection::Contradiction => {
            tasks.push(Task::of(first, place.act(first, Life::Lives, 0).await));
            if let Some(desk) = place.desk {
                let op = desk.propose(0, first).await.expect("the key is known");
                desk.contradict(&op).await;
            }
            sim.sleep_ms(pause_ms).await;
            began = sim.now();
            let again = Intent { key: format!("{}-new", first.key), ..first.clone() };
            tasks.push(Task::of(first, place.act(&again, Life::Lives, 1).await));
        }
        Injection::PartialBatch => {
            // It stops at the step whose reply is lost, and everything is delivered again.
            for intent in &intents[..2] {
                let life = if intent.order == intents[1].order { Life::DiesAfterSending } else { Life::Lives };
                place.act(intent, life, 0).await;
            }
            sim.sleep_ms(pause_ms).await;
            began = sim.now();
            for intent in &intents {
                tasks.push(Task::of(intent, place.act(intent, Life::Lives, 1).await));
            }
        }
        Injection::SecondRequest => {
            tasks.push(Task::of(first, place.act(first, Life::Lives, 0).await));
            sim.sleep_ms(pause_ms).await;
            began = sim.now();
            let (key, event) = (format!("{}-second", first.key), format!("{}-second", first.event));
            let told = place.act(&Intent { key, event, ..first.clone() }, Life::Lives, 0).await;
            tasks.push(Task { nth: 2, ..Task::of(first, told) });
        }
        Injection::TwoDeploys => {
            let (key, event) = (format!("{}-other", first.key), format!("{}-other", first.event));
            let other = Intent { key, event, ..changed };
            let told = sim.all(vec![place.act(first, Life::Lives, 0), place.act(&other, Life::Lives, 1)]).await;
            tasks.extend([Task::of(first, told[0]), Task::of(&other, told[1])]);
        }
        Injection::Expiry | Injection::Withdrawal => {
            let desk = place.desk.expect("only a desk approves");
            let op = desk.propose(0, first).await.expect("a new operation");
            // The gateway does not wait with what is approved: there the decision comes too late.
            let is_late = injection == Injection::Expiry && place.arm.is_gateway();
            if is_late {
                sim.sleep_ms(APPROVAL_MS + pause_ms).await;
            }
            desk.decide(&op, &place.work).await;
            let told = if injection == Injection::Expiry {
                sim.sleep_ms(if is_late { 0 } else { TEN_MINUTES_MS + pause_ms }).await;
                desk.carry_out(0, &place.wire, first, op, Life::Lives, &place.work).await
            } else {
                let withdrawn = desk.withdraw(&place.wire, first, &op, &place.work).await;
                is_wanted = withdrawn.is_none();
                match withdrawn {
                    Some(told) => told,
                    None => desk.carry_out(0, &place.wire, first, op, Life::Lives, &place.work).await,
                }
            };
            tasks.push(Task::of(first, told));
        }
        _ => tasks.push(Task::of(first, place.act(first, Life::Lives, 0).await)),
    }
    let told = |told: Told| tasks.iter().any(|task| task.told == told);
    let mut seen = Seen {
        seed,
        in_doubt: told(Told::InDoubt),
        lost: told(Told::Lost),
        took_ms: sim.now() - began,
        decisions: place.work.decisions.load(Relaxed),
        interventions: place.work.interventions.load(Relaxed),
        ..Seen::default()
    };
    let wanted = match injection {
        Injection::SecondRequest => 2,
        _ => usize::from(is_wanted),
    };
    // Whatever is still on its way arrives: the ledger holds it with its time.
    for intent in &intents {
        let ledger = providers.ledger(contract, &intent.order).await;
        let mut right = vec![intent.body()];
        if injection == Injection::TwoDeploys {
            right.extend(tasks.iter().map(|task| task.body.clone()));
        }
        let made = ledger.iter().filter(|effect| right.contains(&effect.body)).count();
        seen.wrong += ledger.len() - made;
        seen.duplicates += made.saturating_sub(wanted);
        seen.lacking += wanted.saturating_sub(made);
        for task in tasks.iter().filter(|task| task.order == intent.order && task.told == Told::Done) {
            if ledger.iter().filter(|effect| effect.body == task.body).count() < task.nth {
                let count = if task.nth > 1 { &mut seen.deduplicated } else { &mut seen.untrue };
                *count += 1;
            }
        }
        seen.tasks += tasks.iter().filter(|task| task.order == intent.order).count();
    }
    seen
}

/// What was seen in one cell.
pub type Results = Vec<(Injection, Seen)>;

/// These seeds of these injections at one provider, together in one simulated time.
pub async fn cells(
    providers: &Providers,
    (arm, contract): (Arm, Contract),
    injections: &[Injection],
    seeds: Range<u64>,
    broken: Option<Guard>,
) -> Results {
    let desk = match arm.is_desk() {
        true => Some(Desk::open(arm, providers, contract, broken).await),
        false => None,
    };
    let sim = desk.as_ref().map_or_else(|| Sim::new(Clock::manual(START)), |desk| desk.sim().clone());
    let working = AtomicUsize::new(injections.len() * seeds.clone().count());
    let latest_ms = SPREAD_MS * seeds.clone().count() as u64;
    let slug = broken.map_or_else(|| arm.slug().to_owned(), |guard| format!("{guard:?}"));
    let one = async |injection: Injection, number: u64| {
        let wire = Wire::new(providers, &sim, contract);
        let place = Place { arm, slug: slug.clone(), desk: desk.as_ref(), wire, work: Work::default() };
        let seen = seed(providers, place, injection, number, latest_ms).await;
        working.fetch_sub(1, Relaxed);
        Some((injection, seen))
    };
    let mut actors: Vec<LocalBoxFuture<'_, Option<(Injection, Seen)>>> = Vec::new();
    for injection in injections {
        for number in seeds.clone() {
            actors.push(Box::pin(one(*injection, number)));
        }
    }
    if let Some(desk) = &desk {
        actors.push(Box::pin(async {
            desk.by_itself(providers, &working).await;
            None
        }));
        if injections.contains(&Injection::DatabaseAway) {
            actors.push(Box::pin(async {
                desk.outages(&working).await;
                None
            }));
        }
    }
    let seen = sim.run(actors).await.into_iter().flatten().collect();
    if let Some(desk) = desk {
        desk.close().await;
    }
    seen
}
