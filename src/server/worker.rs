//! What happens by itself. Nothing here is needed for a rule to hold: deadlines are decided by whoever looks first, and
//! these loops only look at what nobody else does.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{
    service::{By, Desk, audit, cancel, change_set, error::Result, operation::load, reconcile as outcomes},
    store::{lease, operation, provider, run},
};
use crate::model::time::Timestamp;

/// Operations or runs looked at in one step.
const BATCH: i64 = 200;
/// How long events are kept for streams to resume from. Milliseconds.
const KEEP_EVENTS_MS: i64 = 24 * 3600 * 1000;
/// Seconds between two looks at what is old.
const TIDY: Duration = Duration::from_secs(60);

/// Runs the loops until `stop`.
pub fn start(desk: &Desk, stop: &CancellationToken) {
    if desk.config.sweep_s > 0 {
        let every = Duration::from_secs(desk.config.sweep_s as u64);
        tokio::spawn(repeat(desk.clone(), stop.clone(), every, "sweep", |desk| async move { sweep(&desk).await }));
    }
    if desk.config.sweep_s > 0 {
        let every = Duration::from_secs(1);
        tokio::spawn(repeat(
            desk.clone(),
            stop.clone(),
            every,
            "reconcile",
            |desk| async move { reconcile(&desk).await },
        ));
    }
    tokio::spawn(repeat(desk.clone(), stop.clone(), TIDY, "tidy", |desk| async move { tidy(&desk).await }));
    tokio::spawn(repeat(desk.clone(), stop.clone(), TIDY, "checkpoint", |desk| async move {
        audit::checkpoint(&desk).await.map(|signed| signed.iter().count())
    }));
    tokio::spawn(repeat(desk.clone(), stop.clone(), Duration::from_secs(1), "checkpoint", |desk| async move {
        if audit::is_due(&desk).await? {
            audit::checkpoint(&desk).await?;
        }
        Ok(0)
    }));
}

async fn repeat<F>(desk: Desk, stop: CancellationToken, every: Duration, name: &str, step: impl Fn(Desk) -> F)
where
    F: Future<Output = Result<usize>>,
{
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = stop.cancelled() => return,
        }
        if let Err(error) = step(desk.clone()).await {
            tracing::warn!(worker = name, %error, "a worker's step failed; it is tried again");
        }
    }
}

/// Records lapses that nobody has looked at, ends what runs have left behind, and carries on with change sets; how many
/// there were.
pub async fn sweep(desk: &Desk) -> Result<usize> {
    let now = desk.now();
    let mut conn = desk.store.read().await?;
    let overdue = operation::overdue(&mut conn, now, BATCH).await?;
    let ended = run::ended_with_unsent(&mut conn, now, BATCH).await?;
    drop(conn);
    let found = overdue.len() + ended.len();
    let lapses = overdue
        .into_iter()
        .map(|id| desk.commit(move |tx| Box::pin(async move { load(tx, &id).await.map(|op| op.map(drop)) })));
    futures::future::try_join_all(lapses).await?;
    for id in ended {
        desk.commit(move |tx| {
            Box::pin(
                async move { cancel::all_unsent_of_run(tx, &By::system("clock"), &id, "the run ended").await.map(Ok) },
            )
        })
        .await?;
    }
    Ok(found + change_set::step(desk).await?)
}

/// Settles what evidence settles about unknown outcomes, and asks providers; how many it did something about.
pub async fn reconcile(desk: &Desk) -> Result<usize> {
    outcomes::step(desk).await
}

/// Forgets events too old to resume from, and keys, ended leases and providers' messages past their retention; how many there were.
pub async fn tidy(desk: &Desk) -> Result<usize> {
    let retention_ms = desk.config.key_retention_s.saturating_mul(1000);
    desk.commit(move |tx| {
        Box::pin(async move {
            let now = tx.now().as_millis();
            let events = crate::server::store::log::forget_events(tx, Timestamp(now - KEEP_EVENTS_MS)).await?;
            let past_retention = Timestamp(now.saturating_sub(retention_ms));
            let keys = operation::expire_keys(tx, past_retention).await?;
            let leases = lease::forget(tx, past_retention).await?;
            let messages = provider::forget_messages(tx, past_retention).await?;
            Ok(Ok((events + keys + leases + messages) as usize))
        })
    })
    .await
}
