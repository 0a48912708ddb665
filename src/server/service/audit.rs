//! The log as a whole: its key, its checkpoints, its export.

use std::{
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::stream::{self, Stream, StreamExt};

use super::{
    By, Desk,
    account::Administrator,
    error::{Error, Result},
};
use crate::{
    model::{
        audit::{Entry, Event, SigningKey, Verdict, Verifier, verify::closing_line},
        id::OperationId,
    },
    server::{
        config::Config,
        ids,
        store::{
            self, lease,
            log::{self, Line, Signed},
            setting,
        },
    },
};

/// Where the public half of the log's key is kept, so that no second key signs one log.
const VERIFIER: &str = "audit_verifier";
/// Records read at once.
const BATCH: i64 = 1000;
/// A checkpoint is signed after this many records, whatever the time.
pub const EVERY_RECORDS: u64 = 256;

impl Desk {
    /// The key that signs this log: from the file that is set, or made at first use in the data folder.
    ///
    /// # Errors
    /// The file cannot be read or made, or the log is signed by another key.
    pub async fn signer(&self) -> Result<&Arc<SigningKey>> {
        self.signer.get_or_try_init(|| async { open_key(self).await.map(Arc::new) }).await
    }
}

/// The file of the key that signs this log.
pub fn key_path(config: &Config) -> PathBuf {
    config.audit_key_file.clone().unwrap_or_else(|| config.data_dir.join("audit.key"))
}

async fn open_key(desk: &Desk) -> Result<SigningKey> {
    let path = key_path(&desk.config);
    let key = match std::fs::read_to_string(&path) {
        Ok(text) => SigningKey::parse(text.trim()).map_err(|error| in_file(&path, error))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => make_key(desk, &path)?,
        Err(error) => return Err(in_file(&path, error)),
    };
    let ours = key.verifier().to_string();
    let known = desk
        .commit(move |tx| {
            Box::pin(async move {
                if let Some(known) = setting::get::<String>(tx, VERIFIER).await? {
                    return Ok(Ok(known));
                }
                setting::put(tx, VERIFIER, &ours).await?;
                Ok(Ok(ours))
            })
        })
        .await?;
    if known != key.verifier().to_string() {
        let words = format!(
            "`{}` is not the key this log is signed with (`{known}`); bring that key here, or name its file in \
             `COUNTERFOIL_AUDIT_KEY_FILE`",
            path.display()
        );
        return Err(Error::internal(words));
    }
    Ok(key)
}

fn in_file(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::internal(format!("the audit key `{}`: {error}", path.display()))
}

fn make_key(desk: &Desk, path: &Path) -> Result<SigningKey> {
    let log: OperationId = ids::new(desk.now());
    let name = format!("counterfoil/{}", log.as_str().trim_start_matches(OperationId::PREFIX).to_lowercase());
    let key = SigningKey::from_seed(&name, &ids::random()).map_err(Error::internal)?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| in_file(path, error))?;
    }
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| {
        writeln!(file, "{}", key.to_private_text())?;
        file.sync_all()
    });
    written.map_err(|error| in_file(path, error))?;
    Ok(key)
}

/// The newest checkpoint, signing one first if anything but a checkpoint happened since the last.
///
/// # Errors
/// The key or the database is not to be had.
pub async fn checkpoint(desk: &Desk) -> Result<Option<Signed>> {
    let key = desk.signer().await?.clone();
    let fresh = desk.commit(move |tx| Box::pin(async move { sign(tx, &key).await.map(Ok) })).await?;
    if let Some(note) = fresh {
        keep_outside(desk, &note);
    }
    Ok(log::checkpoints(&mut desk.store.read().await?, 1).await?.into_iter().next())
}

async fn sign(tx: &mut store::Tx, key: &SigningKey) -> store::Result<Option<String>> {
    let head = tx.receipt();
    let last = log::checkpoints(tx, 1).await?.first().map(|signed| signed.size);
    // The record of the last checkpoint is no news.
    if head.size <= last.map_or(0, |size| size + 1) {
        return Ok(None);
    }
    let note = key.sign(head.size, head.root);
    log::add_checkpoint(tx, head.size, &note).await?;
    let entry = Entry {
        result_version: Some(head.size as i64),
        response_digest: Some(format!("sha256:{}", head.root)),
        ..By::system("checkpoint").entry(Event::CheckpointSigned)
    };
    tx.audit(&entry).await?;
    Ok(Some(note))
}

/// Appends to a file beside the database: whoever changes the database does not change this.
fn keep_outside(desk: &Desk, note: &str) {
    let path = desk.config.data_dir.join("checkpoints.txt");
    let kept = std::fs::create_dir_all(&desk.config.data_dir)
        .and_then(|()| std::fs::OpenOptions::new().create(true).append(true).open(&path))
        .and_then(|mut file| writeln!(file, "{note}"));
    if let Err(error) = kept {
        tracing::error!(path = %path.display(), %error, "a checkpoint could not be kept outside the database");
    }
}

/// Whether enough has happened since the last checkpoint to sign the next one before its time.
///
/// # Errors
/// The database is not to be had.
pub async fn is_due(desk: &Desk) -> Result<bool> {
    let mut conn = desk.store.read().await?;
    let last = log::checkpoints(&mut conn, 1).await?.first().map_or(0, |signed| signed.size);
    Ok(log::head(&mut conn).await?.size() >= last + EVERY_RECORDS)
}

/// The whole log as text: every record's line, then a line that signs them all. Chunks end at line ends.
///
/// # Errors
/// The key or the database is not to be had; in the middle of it, the chunks end with an error.
pub async fn export(desk: &Desk) -> Result<impl Stream<Item = Result<String>> + Send + 'static> {
    export_under(desk, desk.signer().await?).await
}

/// What the database holds, checked as an export is. A key of this moment signs it: that the log is whole, not whose it
/// is.
///
/// # Errors
/// The database is not to be had.
pub async fn check(desk: &Desk) -> Result<Verdict> {
    let key = SigningKey::from_seed("counterfoil/check", &ids::random()).map_err(Error::internal)?;
    let mut verifier = Verifier::new(&key.verifier().to_string(), &[""; 0]).map_err(Error::internal)?;
    let mut chunks = std::pin::pin!(export_under(desk, &key).await?);
    while let Some(chunk) = chunks.next().await {
        verifier.push(chunk?.as_bytes());
    }
    Ok(verifier.finish())
}

/// Puts on record that this database was restored from a backup of `size` records: whoever holds a longer checkpoint
/// learns why the log no longer reaches it. What followed the backup may have handed out leases: none is live any more,
/// and no fencing token comes back.
///
/// # Errors
/// The database is not to be had.
pub async fn record_restored(desk: &Desk, admin: &Administrator, size: u64) -> Result<()> {
    let reason = Some(format!("from a backup of {size} records"));
    let entry = Entry { reason, ..admin.by().entry(Event::AdminRestored) };
    desk.commit(move |tx| {
        Box::pin(async move {
            lease::forget_after_restore(tx).await?;
            tx.audit(&entry).await.map(|_| Ok(()))
        })
    })
    .await
}

async fn export_under(desk: &Desk, key: &SigningKey) -> Result<impl Stream<Item = Result<String>> + Send + use<>> {
    let head = log::head(&mut desk.store.read().await?).await?;
    let size = head.size();
    let closing = format!("{}\n", closing_line(&key.sign(size, head.root())));
    let start = (desk.clone(), 0u64, Some(closing));
    Ok(stream::try_unfold(start, move |(desk, from, closing)| async move {
        if from >= size {
            return Ok(closing.map(|line| (line, (desk, from, None))));
        }
        let wanted = BATCH.min((size - from) as i64);
        let lines = log::records(&mut desk.store.read().await?, from, wanted).await?;
        let Some(last) = lines.last().map(|line| line.seq) else {
            return Err(Error::internal(format!("record {from} of the log is missing")));
        };
        let chunk = lines.into_iter().map(|line| line.record + "\n").collect();
        Ok(Some((chunk, (desk, last + 1, closing))))
    }))
}

/// A page of records, newest first, or all about one operation, oldest first.
///
/// # Errors
/// The database is not to be had.
pub async fn page(desk: &Desk, operation: Option<&OperationId>, before: Option<u64>, limit: i64) -> Result<Vec<Line>> {
    let mut conn = desk.store.read().await?;
    Ok(match operation {
        Some(id) => log::of_operation(&mut conn, id).await?,
        None => log::newest(&mut conn, before, limit).await?,
    })
}
