//! The committer: the one place of a node through which all state changes go.
//!
//! It folds the commands waiting at this moment into one transaction, a savepoint each, so that one failure harms no
//! neighbour. Each command brings its guarded writes, its audit records and its outbox rows; the transaction advances
//! the audit chain and commits once; then the callers are answered and the waiters woken. Group commit, atomic audit
//! and one order of events are this one mechanism.
//!
//! Nothing slow runs in here. A command whose caller has gone away is carried out all the same, whole or not at all.

use std::{
    ops::{Deref, DerefMut},
    panic::AssertUnwindSafe,
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};
use tokio::sync::{Notify, mpsc, oneshot};

use super::{
    Conn, Error, Result, Store, dialect,
    dialect::Pools,
    sql::{Value, sql},
};
use crate::{
    model::{
        audit::{Entry, Frontier, Hash, seal},
        conflict::ConflictState,
        id::ConflictId,
        operation::Receipt,
        time::Timestamp,
    },
    server::clock::Clock,
};

/// Commands that may wait; beyond it the answer is 503 and nothing was done.
const QUEUE: usize = 1024;
/// Commands folded into one transaction.
const BATCH: usize = 128;

/// What one command sees: a connection inside the transaction, its time, and the end of the audit chain.
pub struct Tx {
    conn: Conn,
    now: Timestamp,
    head: Head,
    stored: u64,
}

/// The end of the audit chain.
#[derive(Debug, Clone)]
struct Head {
    hash: Hash,
    at: Timestamp,
    frontier: Frontier,
}

/// An outbox row: what changed, for those who watch.
#[derive(Debug, Clone)]
pub struct Notice<'a> {
    pub topic: Topic,
    pub subject: &'a str,
    pub agent: Option<&'a str>,
    pub state: &'a str,
    pub version: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    Operation,
    Conflict,
    Review,
    Resource,
    Lease,
    Run,
    ChangeSet,
}

impl Topic {
    pub fn as_str(self) -> &'static str {
        match self {
            Topic::Operation => "operation",
            Topic::Conflict => "conflict",
            Topic::Review => "review",
            Topic::Resource => "resource",
            Topic::Lease => "lease",
            Topic::Run => "run",
            Topic::ChangeSet => "change_set",
        }
    }
}

/// Records and outbox rows of one command that are written in one go.
#[derive(Debug, Default)]
pub struct Batch {
    records: Vec<Vec<Value>>,
    events: Vec<Vec<Value>>,
}

impl Batch {
    /// Tells watchers; `seq` is the record that this goes with. `conflict` is the id of the operation's conflict, and
    /// where it stands, where it is about that as well.
    pub fn publish(
        &mut self,
        seq: u64,
        notice: Notice<'_>,
        conflict: Option<(&ConflictId, ConflictState)>,
        now: Timestamp,
    ) {
        self.events.push(vec![
            (seq as i64).into(),
            notice.topic.as_str().into(),
            notice.subject.into(),
            notice.agent.into(),
            notice.state.into(),
            notice.version.into(),
            conflict.map(|(id, _)| id.as_str()).into(),
            conflict.map(|(_, state)| state.as_str()).into(),
            now.into(),
        ]);
    }
}

impl Deref for Tx {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        &self.conn
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.conn
    }
}

impl Tx {
    async fn begin(pools: &Pools, clock: &Clock) -> Result<Self> {
        let mut conn = pools.begin().await?;
        match Self::read_head(&mut conn, clock).await {
            Ok((now, head)) => {
                let stored = head.frontier.size();
                Ok(Self { conn, now, head, stored })
            }
            Err(error) => {
                conn.discard().await;
                Err(error)
            }
        }
    }

    async fn read_head(conn: &mut Conn, clock: &Clock) -> Result<(Timestamp, Head)> {
        let row = conn.fetch_optional(sql("SELECT hash, at, frontier FROM audit_head WHERE id = 1")).await?;
        let head = match row {
            Some(row) => {
                Head { hash: row.parsed("hash")?, at: Timestamp(row.int("at")?), frontier: row.parsed("frontier")? }
            }
            None => Head { hash: Hash::ZERO, at: Timestamp(0), frontier: Frontier::default() },
        };
        if !clock.is_manual()
            && let Some(database) = dialect::database_now(conn).await?
        {
            clock.correct(database);
        }
        // Records never run backwards, whatever the clock does.
        Ok((clock.now().max(head.at), head))
    }

    /// The time of this transaction: every deadline in it is decided by this one.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Appends a record to the chain; its `seq`.
    pub async fn audit(&mut self, entry: &Entry) -> Result<u64> {
        let mut batch = Batch::default();
        let seq = self.append(entry, &mut batch);
        self.write(batch).await?;
        Ok(seq)
    }

    /// Appends a record to the chain, to be written with the batch; its `seq`.
    pub fn append(&mut self, entry: &Entry, batch: &mut Batch) -> u64 {
        let seq = self.head.frontier.size();
        let sealed = seal(entry, seq, &self.head.hash, self.now);
        let operation = entry.operation.as_ref().map(|id| id.as_str());
        batch.records.push(vec![
            (seq as i64).into(),
            entry.event.as_str().into(),
            operation.into(),
            self.now.into(),
            sealed.json.into(),
        ]);
        self.head.hash = sealed.hash;
        self.head.at = self.now;
        self.head.frontier.push(sealed.leaf);
        seq
    }

    /// Tells watchers; `seq` is the record that this goes with.
    pub async fn publish(&mut self, seq: u64, notice: Notice<'_>) -> Result<()> {
        let mut batch = Batch::default();
        batch.publish(seq, notice, None, self.now);
        self.write(batch).await
    }

    /// Writes what the batch holds.
    pub async fn write(&mut self, batch: Batch) -> Result<()> {
        let into = "INSERT INTO audit (seq, event, operation, at, record)";
        self.conn.execute_rows(into, &batch.records, "").await?;
        let into =
            "INSERT INTO event (seq, topic, subject, agent, state, version, conflict, conflict_state, created_at)";
        self.conn.execute_rows(into, &batch.events, "").await?;
        Ok(())
    }

    /// Where the log stands now.
    pub fn receipt(&self) -> Receipt {
        Receipt { size: self.head.frontier.size(), root: self.head.frontier.root() }
    }

    async fn store_head(&mut self) -> Result<()> {
        let Head { hash, at, frontier } = self.head.clone();
        if frontier.size() == self.stored {
            return Ok(());
        }
        self.conn
            .execute(
                sql("INSERT INTO audit_head (id, size, hash, at, frontier) VALUES (1, $1, $2, $3, $4) \
                     ON CONFLICT (id) DO UPDATE SET size = excluded.size, hash = excluded.hash, at = excluded.at, \
                     frontier = excluded.frontier")
                .bind(frontier.size() as i64)
                .bind(hash.to_string())
                .bind(at)
                .bind(frontier.to_string()),
            )
            .await?;
        Ok(())
    }
}

/// A command waiting for its turn.
trait Job: Send {
    /// Runs inside a savepoint; whether to keep what it wrote.
    fn run<'t>(&'t mut self, tx: &'t mut Tx) -> BoxFuture<'t, bool>;
    /// Answers the caller; `committed` is false when the transaction did not make it.
    fn answer(self: Box<Self>, committed: Option<&Error>);
}

struct Pending<T, F> {
    command: Option<F>,
    result: Option<Result<T>>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T, F> Job for Pending<T, F>
where
    T: Send + 'static,
    F: for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T>> + Send + 'static,
{
    fn run<'t>(&'t mut self, tx: &'t mut Tx) -> BoxFuture<'t, bool> {
        Box::pin(async move {
            let Some(command) = self.command.take() else { return false };
            let result = match AssertUnwindSafe(async { command(tx).await }).catch_unwind().await {
                Ok(result) => result,
                Err(panic) => Err(Error::Panicked(panic_words(&*panic))),
            };
            let keep = result.is_ok();
            self.result = Some(result);
            keep
        })
    }

    fn answer(self: Box<Self>, failed: Option<&Error>) {
        let result = match (failed, self.result) {
            (None, Some(result)) => result,
            (Some(error), _) => {
                tracing::warn!(error = %error, "a transaction was not committed");
                Err(Error::Unavailable(None))
            }
            (None, None) => Err(Error::Unavailable(None)),
        };
        // The caller may have gone away; the command stands.
        drop(self.reply.send(result));
    }
}

fn panic_words(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

/// The queue in front of the committing task.
#[derive(Clone)]
pub struct Committer {
    queue: mpsc::Sender<Box<dyn Job>>,
}

impl Committer {
    pub(super) fn start(pools: Pools, clock: Clock, committed: Arc<Notify>) -> Self {
        let (queue, mut waiting) = mpsc::channel::<Box<dyn Job>>(QUEUE);
        tokio::spawn(async move {
            let mut jobs = Vec::with_capacity(BATCH);
            while waiting.recv_many(&mut jobs, BATCH).await > 0 {
                metrics::histogram!("counterfoil_commands_per_commit").record(jobs.len() as f64);
                let failed = commit(&pools, &clock, &mut jobs).await.err();
                if failed.is_none() {
                    committed.notify_waiters();
                }
                for job in jobs.drain(..) {
                    job.answer(failed.as_ref());
                }
            }
        });
        Self { queue }
    }

    /// Returns when everything queued before has been answered.
    pub(super) async fn drain(&self) {
        let (reply, done) = oneshot::channel();
        fn nothing(_: &mut Tx) -> BoxFuture<'_, Result<()>> {
            futures::future::ok(()).boxed()
        }
        type Nothing = fn(&mut Tx) -> BoxFuture<'_, Result<()>>;
        let last: Pending<(), Nothing> = Pending { command: Some(nothing), result: None, reply };
        if self.queue.send(Box::new(last)).await.is_ok() {
            drop(done.await);
        }
    }
}

async fn commit(pools: &Pools, clock: &Clock, jobs: &mut [Box<dyn Job>]) -> Result<()> {
    let mut tx = Tx::begin(pools, clock).await?;
    match fold(&mut tx, jobs).await {
        Ok(()) => pools.commit(tx.conn).await,
        Err(error) => {
            tx.conn.discard().await;
            Err(error)
        }
    }
}

async fn fold(tx: &mut Tx, jobs: &mut [Box<dyn Job>]) -> Result<()> {
    for job in jobs {
        let head = tx.head.clone();
        tx.execute(sql("SAVEPOINT command")).await?;
        if !job.run(tx).await {
            tx.execute(sql("ROLLBACK TO SAVEPOINT command")).await?;
            tx.head = head;
        }
        tx.execute(sql("RELEASE SAVEPOINT command")).await?;
    }
    tx.store_head().await
}

impl Store {
    /// Carries out one command: everything it writes is committed together with its audit records, or nothing is.
    /// `Err` from the command undoes all it wrote.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the queue is full or the transaction was not committed: nothing was done.
    pub async fn commit<T, F>(&self, command: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T>> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let pending = Pending { command: Some(command), result: None, reply };
        self.committer.queue.try_send(Box::new(pending)).map_err(|_| Error::Unavailable(None))?;
        answer.await.map_err(|_| Error::Unavailable(None))?
    }
}
