//! Settings of the whole desk: the pause.

use super::{
    Desk,
    error::Result,
    operation::{PAUSE, Pause},
};
use crate::{
    model::{
        audit::{Entry, Event},
        problem::{Code, Problem},
    },
    server::{store::setting, web::auth::Admin},
};

/// Pauses the desk: claims and `sent` are answered 503, deadlines keep running.
///
/// # Errors
/// `validation_failed`.
pub async fn pause(desk: &Desk, admin: &Admin, reason: String) -> Result<Pause> {
    if reason.trim().is_empty() || reason.chars().count() > 1000 {
        return Err(Problem::at(Code::ValidationFailed, "/reason", "a reason has 1 to 1000 characters").into());
    }
    let (by, name) = (admin.by(), admin.name().to_owned());
    desk.commit(move |tx| {
        Box::pin(async move {
            let pause = Pause { by: name, reason, at: tx.now() };
            setting::put(tx, PAUSE, &pause).await?;
            tx.audit(&Entry { reason: Some(pause.reason.clone()), ..by.entry(Event::AdminPaused) }).await?;
            Ok(Ok(pause))
        })
    })
    .await
}

/// Ends the pause; there need not be one.
///
/// # Errors
/// The database is not to be had.
pub async fn resume(desk: &Desk, admin: &Admin) -> Result<()> {
    let by = admin.by();
    desk.commit(move |tx| {
        Box::pin(async move {
            if setting::get::<Pause>(tx, PAUSE).await?.is_some() {
                setting::remove(tx, PAUSE).await?;
                tx.audit(&by.entry(Event::AdminResumed)).await?;
            }
            Ok(Ok(()))
        })
    })
    .await
}
