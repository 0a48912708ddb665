//! `serve`

use std::{
    fs::{File, TryLockError},
    io::{self, IsTerminal},
    net::SocketAddr,
    path::Path,
};

use axum::serve::ListenerExt;
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use super::{Failure, Result, desk, say};
use crate::server::{
    config::{Config, Database},
    gateway,
    service::{Desk, account, audit},
    web::{self, state::AppState},
    worker,
};

pub async fn run(config: Config) -> Result<()> {
    run_after(config, async |_, _| Ok(())).await
}

/// Runs the desk after `prepare`, which sees it before anybody else does, with the word that ends it.
pub async fn run_after(
    config: Config,
    prepare: impl AsyncFnOnce(&Desk, &CancellationToken) -> Result<()>,
) -> Result<()> {
    log();
    site_is_there()?;
    // Held until the process ends; the system lets go of it even after a kill.
    let _only = match &config.database {
        Database::Sqlite(path) => Some(only_server(path)?),
        Database::Postgres(_) => None,
    };
    web::recorder();
    let mut signals = Signals::new()?;
    let listener = TcpListener::bind(config.listen).await.map_err(|error| {
        Failure::new(format!("`{}` cannot be listened on: {error}", config.listen))
            .hint("set `COUNTERFOIL_LISTEN` to another address and port")
    })?;
    let patience = config.shutdown;
    let desk = desk(config).await?;
    let stop = CancellationToken::new();
    prepare(&desk, &stop).await?;
    if let Some(url) = account::begin_setup(&desk).await? {
        say(&format!("Set up: {url}"));
    }
    desk.signer().await?;
    tokio::spawn(desk.signals.clone().run(desk.store.clone(), stop.clone()));
    worker::start(&desk, &stop);
    let gateway = tokio::spawn(gateway::run(desk.clone(), stop.clone()));
    let router = web::router(AppState { desk: desk.clone(), stop: stop.clone() });
    tracing::info!(address = %desk.config.listen, database = ?desk.config.database, "the desk is open");
    say(&format!("Counterfoil is at {}", desk.config.public_url));

    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    // A woken waiter's answer is small: it must not sit in the kernel until the one before is acknowledged.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let server = axum::serve(listener, service).with_graceful_shutdown(stop.clone().cancelled_owned());
    let server = tokio::spawn(async move {
        let served = server.await;
        // What has left is answered within its time, or not; an answer that comes now is still put on record.
        drop(gateway.await);
        served
    });
    signals.next().await;
    tracing::info!("stopping; a second signal stops at once");
    stop.cancel();
    tokio::select! {
        finished = tokio::time::timeout(patience, server) => match finished {
            Ok(finished) => finished.map_err(Failure::new)??,
            Err(_) => tracing::warn!("requests were still under way when the time to stop was up"),
        },
        () = signals.next() => return Err(Failure::new("stopped at once by a second signal")),
    }
    if let Err(error) = audit::checkpoint(&desk).await {
        tracing::warn!(%error, "the last records are not under a checkpoint");
    }
    desk.store.close().await;
    Ok(())
}

/// A desk without its site serves bare paper. While developing that may be what is wanted.
fn site_is_there() -> Result<()> {
    let Some(file) = web::assets::missing() else { return Ok(()) };
    let words = format!("the site is not complete: `{file}` is missing");
    if cfg!(debug_assertions) {
        say(&format!("warning: {words}\nhint: `make site` builds it"));
        return Ok(());
    }
    Err(Failure::new(words).hint("run `make site`, then build the server again: it carries the site with it"))
}

/// Structured logs on standard error, or lines for whoever is watching: `COUNTERFOIL_LOG` is `info`, `debug` or a
/// filter by module.
fn log() {
    let filter = EnvFilter::try_from_env("COUNTERFOIL_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    if io::stderr().is_terminal() {
        lines.init();
    } else {
        lines.json().flatten_event(true).init();
    }
}

/// Takes the lock beside the database: two servers on one SQLite file would each be missing the other's news.
pub fn only_server(database: &Path) -> Result<File> {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    let path = Path::new(&path);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let cannot = |error: io::Error| Failure::new(format!("`{}` cannot be locked: {error}", path.display()));
    let file = File::create(path).map_err(cannot)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Failure::new(format!("another `counterfoil serve` is using `{}`", database.display()))
                .hint("stop it first, or use PostgreSQL to run several servers on one database"))
        }
        Err(TryLockError::Error(error)) => Err(cannot(error)),
    }
}

/// What tells a process to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
