//! One seed of one cell: plans what goes wrong, runs the tasks, and asks the ledger what happened.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use counterfoil::server::clock::Clock;

use crate::{
    cells::{Arm, Contract, Fate, Injection},
    desk::{Desk, Work},
    direct::{self, Intent, Life, Told},
    provider::{Plan, Providers, Wire},
    report::{Cell, Seen},
    sim::{Chance, Sim},
    support::{App, START},
};

/// Where a seed runs.
struct Place<'a> {
    arm: Arm,
    desk: Option<&'a Desk>,
    wire: Wire,
    work: Work,
}

impl Place<'_> {
    async fn act(&self, intent: &Intent, life: Life, delivery: usize) -> Told {
        match self.desk {
            Some(desk) => desk.act(&self.wire, intent, life, &self.work).await,
            None => direct::act(self.arm, &self.wire, intent, life, delivery).await,
        }
    }
}

/// What happens to the requests about one order.
fn plan(injection: Injection, contract: Contract, step: usize, chance: &mut Chance) -> Plan {
    let lag_ms = contract.settle_ms().map_or(0, |settle| if settle == 0 { 0 } else { chance.delay_ms(10_000, settle) });
    let answered = Fate::Answered { after_ms: chance.delay_ms(200, 8_000) };
    let fates = match injection {
        Injection::RequestLost => vec![Fate::RequestLost],
        Injection::InternalErrorAfterCommit => vec![Fate::Failed { status: 500 }],
        Injection::BadGatewayAfterCommit => vec![Fate::Failed { status: 502 }],
        Injection::LateCommit => {
            let limit = contract.in_flight_ms().map_or(2 * 3_600_000, |bound| bound - 5_000);
            vec![Fate::ReplyLost { commit_after_ms: chance.delay_ms(15_000, limit) }]
        }
        Injection::SecondRequest => vec![answered, Fate::ReplyLost { commit_after_ms: 0 }],
        Injection::PartialBatch if step != 1 => vec![answered],
        Injection::Nothing | Injection::Redelivery | Injection::Copies | Injection::Expiry | Injection::Withdrawal => {
            vec![answered; 5]
        }
        _ => vec![Fate::ReplyLost { commit_after_ms: 0 }],
    };
    Plan { fates, lag_ms }
}

async fn seed(providers: &Providers, place: Place<'_>, cell: (Contract, Injection), seed: u64) -> Seen {
    let (contract, injection) = cell;
    let mut chance = Chance::new(seed ^ ((injection as u64) << 40) ^ ((contract as u64) << 50));
    let sim = place.wire.sim.clone();
    let steps = if injection == Injection::PartialBatch { 3 } else { 1 };
    let mut intents = Vec::new();
    for step in 0..steps {
        let name = format!("{}-{injection:?}-{seed}-{step}", place.arm.slug());
        providers.plan(contract, &name, &plan(injection, contract, step, &mut chance)).await;
        let (key, event) = (format!("key-{name}"), format!("event-{name}"));
        intents.push(Intent { order: name, key, event, amount_minor: 1 + (chance.next() % 10_000) as i64 });
    }
    sim.sleep_ms(chance.delay_ms(1_000, 10_000)).await;
    let (first, began) = (&intents[0], sim.now());
    let pause_ms = chance.delay_ms(30_000, 600_000);
    let mut told = Vec::new();
    match injection {
        Injection::Redelivery => {
            place.act(first, Life::Lives, 0).await;
            sim.sleep_ms(pause_ms).await;
            told.push(place.act(first, Life::Lives, 1).await);
        }
        Injection::Copies => {
            let copies = sim.all((0..5).map(|copy| place.act(first, Life::Lives, copy)).collect()).await;
            let known = [Told::Done, Told::InDoubt].into_iter().find(|one| copies.contains(one));
            told.push(known.unwrap_or(Told::NotDone));
        }
        Injection::RestartWithKey
        | Injection::RestartWithoutKey
        | Injection::ChangedParameter
        | Injection::RetentionOver => {
            place.act(first, Life::DiesAfterSending, 0).await;
            let long = injection == Injection::RetentionOver;
            sim.sleep_ms(if long { 3_600_000 + pause_ms } else { pause_ms }).await;
            let mut again = first.clone();
            match injection {
                Injection::RestartWithoutKey => again.key.push_str("-new"),
                Injection::ChangedParameter => again.amount_minor += 1,
                _ => {}
            }
            told.push(place.act(&again, Life::Lives, 1).await);
        }
        Injection::PartialBatch => {
            // It stops at the step whose reply is lost, and everything is delivered again.
            for intent in &intents[..2] {
                let life = if intent.order == intents[1].order { Life::DiesAfterSending } else { Life::Lives };
                place.act(intent, life, 0).await;
            }
            sim.sleep_ms(pause_ms).await;
            for intent in &intents {
                told.push(place.act(intent, Life::Lives, 1).await);
            }
        }
        Injection::SecondRequest => {
            told.push(place.act(first, Life::Lives, 0).await);
            sim.sleep_ms(pause_ms).await;
            let (key, event) = (format!("{}-second", first.key), format!("{}-second", first.event));
            told.push(place.act(&Intent { key, event, ..first.clone() }, Life::Lives, 0).await);
        }
        Injection::Expiry | Injection::Withdrawal => {
            let desk = place.desk.expect("only a desk approves");
            let op = desk.propose(first).await.expect("a new operation");
            desk.decide(&op, &place.work).await;
            told.push(if injection == Injection::Expiry {
                sim.sleep_ms(600_000 + pause_ms).await;
                desk.carry_out(&place.wire, first, op, Life::Lives, &place.work).await
            } else {
                desk.withdraw(&op, &place.work).await
            });
        }
        _ => told.push(place.act(first, Life::Lives, 0).await),
    }
    let took_ms = sim.now() - began;
    // Whatever is still on its way arrives: the ledger holds it with its time.
    let wanted = match injection {
        Injection::Expiry | Injection::Withdrawal => 0,
        Injection::SecondRequest => 2,
        _ => 1,
    };
    let mut seen = Seen {
        seed,
        in_doubt: told.contains(&Told::InDoubt),
        took_ms,
        decisions: place.work.decisions.load(Relaxed),
        interventions: place.work.interventions.load(Relaxed),
        ..Seen::default()
    };
    let mut effects = 0;
    for intent in &intents {
        let made = providers.ledger(contract, &intent.order).await.len();
        effects += made.min(wanted);
        seen.duplicates += made.saturating_sub(wanted);
        seen.lacking += wanted.saturating_sub(made);
    }
    let done = told.iter().filter(|one| **one == Told::Done).count();
    let untrue = done.saturating_sub(effects);
    if injection == Injection::SecondRequest {
        seen.deduplicated = untrue
    } else {
        seen.untrue = untrue
    }
    seen
}

/// All seeds of one cell.
pub async fn cell(providers: &Providers, arm: Arm, contract: Contract, injection: Injection, seeds: u64) -> Cell {
    let app = match arm {
        Arm::DeskSqlite => Some(App::sqlite().await),
        Arm::DeskPostgres => Some(App::postgres().await),
        _ => None,
    };
    let desk = match app {
        Some(app) => Some(Desk::open(app, providers, contract).await),
        None => None,
    };
    let clock = desk.as_ref().map_or_else(|| Clock::manual(START), |desk| desk.app.clock.clone());
    let sim = Sim::new(clock);
    let working = AtomicUsize::new(seeds as usize);
    let one = async |number: u64| {
        let place =
            Place { arm, desk: desk.as_ref(), wire: Wire::new(providers, &sim, contract), work: Work::default() };
        let seen = seed(providers, place, (contract, injection), number).await;
        working.fetch_sub(1, Relaxed);
        Some(seen)
    };
    let mut actors: Vec<futures::future::LocalBoxFuture<'_, Option<Seen>>> = Vec::new();
    for number in 0..seeds {
        actors.push(Box::pin(one(number)));
    }
    if let Some(desk) = &desk {
        actors.push(Box::pin(async {
            desk.reconcile(&sim, providers, &working).await;
            None
        }));
    }
    let seen = sim.run(actors).await.into_iter().flatten().collect();
    if let Some(desk) = &desk {
        desk.app.log_verifies().await;
    }
    Cell::of(arm, contract, injection, seen)
}
