//! `backup` and `restore`

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use super::{Failure, Result, open, say, serve};
use crate::{
    model::audit::Verdict,
    server::{
        config::{Config, Database},
        service::{Desk, account::Administrator, audit},
        store::backup,
    },
};

pub async fn run(config: Config, file: &Path) -> Result<()> {
    let database = sqlite(&config, "use `pg_dump`, which copies it while the desk is running")?;
    if !database.exists() {
        return Err(Failure::new(format!("there is no database at `{}`", database.display()))
            .hint("`COUNTERFOIL_DATA_DIR` or `COUNTERFOIL_DATABASE_URL` says where it is"));
    }
    let copy = create(file)?;
    // Absolute: SQLite takes some relative names for addresses.
    let copied = match std::path::absolute(file) {
        Ok(file) => backup::copy(database, &file).await.map_err(Failure::from),
        Err(error) => Err(error.into()),
    };
    if let Err(failure) = copied.and_then(|()| Ok(copy.sync_all()?)) {
        remove(file);
        return Err(failure);
    }
    say(&format!("copied `{}` to `{}`", database.display(), file.display()));
    say(&format!(
        "hint: keep `{}` too, in another place: the log goes on under it",
        audit::key_path(&config).display()
    ));
    Ok(())
}

pub async fn restore(config: Config, file: Option<&Path>) -> Result<()> {
    if let (Database::Postgres(_), None) = (&config.database, file) {
        let records = take_over(config).await?;
        say(&format!("took over the restored database: {records} records, each linked to the one before it"));
        return Ok(());
    }
    let database =
        sqlite(&config, "use `pg_restore` or `psql` on an empty database, then `counterfoil restore` without a file")?;
    let file = file.ok_or_else(|| Failure::new("name the file of the backup"))?;
    let _only = serve::only_server(database)?;
    // A journal left behind would be played into the restored database.
    for taken in [database.to_owned(), beside(database, "-wal")] {
        if taken.exists() {
            return Err(Failure::new(format!("`{}` is there already", taken.display()))
                .hint("move the database away, with its `-wal` and `-shm` files, or set `COUNTERFOIL_DATA_DIR`"));
        }
    }
    let mut backup = File::open(file).map_err(|error| failed(file, "read", &error))?;
    let draft = beside(database, ".restoring");
    remove(&draft);
    io::copy(&mut backup, &mut create(&draft)?)?;
    let on_draft = Config { database: Database::Sqlite(draft.clone()), ..config.clone() };
    let taken_over = match take_over(on_draft).await {
        Ok(records) => File::open(&draft)
            .and_then(|draft| draft.sync_all())
            .and_then(|()| fs::rename(&draft, database))
            .map(|()| records)
            .map_err(Failure::from),
        Err(failure) => Err(failure),
    };
    let records = taken_over.inspect_err(|_| remove(&draft))?;
    say(&format!("restored `{}`: {records} records, each linked to the one before it", database.display()));
    let key = audit::key_path(&config);
    if !key.exists() {
        say(&format!("hint: bring the audit key back to `{}` before the desk starts", key.display()));
    }
    Ok(())
}

/// Checks the copy and puts on record that it was restored; the number of records it came with.
async fn take_over(config: Config) -> Result<u64> {
    let desk = Desk::new(open(&config).await?, config);
    let taken_over = take_over_open(&desk).await;
    desk.store.close().await;
    taken_over
}

async fn take_over_open(desk: &Desk) -> Result<u64> {
    if let Some(damage) = backup::damage(&mut desk.store.read().await?).await? {
        return Err(Failure::new(format!("the backup is damaged: {damage}")));
    }
    match audit::check(desk).await? {
        Verdict::Verified(verified) if verified.checkpoint.size == 0 => {
            Err(Failure::new("the backup holds no audit log").hint("`counterfoil backup` writes one that does"))
        }
        Verdict::Verified(verified) => {
            audit::record_restored(desk, &Administrator::command_line(), verified.checkpoint.size).await?;
            Ok(verified.checkpoint.size)
        }
        verdict => Err(Failure::new(format!("the backup's log does not hold: {verdict}"))
            .hint("restore an older backup; keep this one as evidence")),
    }
}

fn sqlite<'c>(config: &'c Config, instead: &str) -> Result<&'c Path> {
    match &config.database {
        Database::Sqlite(path) => Ok(path),
        Database::Postgres(_) => {
            Err(Failure::new("the database is PostgreSQL, which has tools of its own for this").hint(instead))
        }
    }
}

/// A new file that only its owner reads: there are hashes of passwords in it.
fn create(path: &Path) -> Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.map_err(|error| failed(path, "made", &error))
}

fn failed(path: &Path, what: &str, error: &io::Error) -> Failure {
    Failure::new(format!("`{}` cannot be {what}: {error}", path.display()))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Removes an unfinished database, if it is there.
fn remove(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        drop(fs::remove_file(beside(path, suffix)));
    }
}
