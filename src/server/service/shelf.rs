//! What the pages about resources show: what is held here, what is known of what lives elsewhere, and who made it so.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde_json::Value;

use super::{
    Desk,
    error::Result,
    operation::as_of,
    resource::{
        may_read,
        rules::{self, CompiledRule},
    },
    sheet,
};
use crate::{
    model::{
        id::OperationId,
        operation::{Operation, State},
        problem::{Code, Problem},
        resource::Author,
        target::Target,
    },
    server::{
        store::{
            Conn, operation,
            resource::{self, Known, Listed, VersionRow},
        },
        web::auth::{PersonIdentity, Principal},
    },
};

/// Rows of one page.
const PAGE: usize = 50;
/// Resources looked at in one go.
const SCAN: i64 = 200;

/// A resource in the list.
pub struct Row {
    pub target: String,
    pub known: Known,
    /// Who made or reported the version, by name.
    pub by: String,
}

/// What the reader may read, by name; `prefix` narrows it. With the name that the next page starts after.
///
/// # Errors
/// When the database is away.
pub async fn list(
    desk: &Desk,
    reader: &PersonIdentity,
    prefix: &str,
    after: &str,
) -> Result<(Vec<Row>, Option<String>)> {
    let reader = Principal::Person(reader.clone());
    let mut conn = desk.store.read().await?;
    let mut names = Names::read(&mut conn).await?;
    let mut rows: Vec<Row> = Vec::new();
    let mut after = after.to_owned();
    loop {
        let found = resource::list(&mut conn, prefix, &after, SCAN).await?;
        let is_last = (found.len() as i64) < SCAN;
        for Listed { target, known } in found {
            if rows.len() == PAGE {
                let next = rows.last().map(|row| row.target.clone());
                return Ok((rows, next));
            }
            after.clone_from(&target);
            if may_read(&mut conn, &reader, &target).await? {
                sheet::learn(&mut names.0, &mut conn, &known.updated_by).await?;
                let made = resource::author_of(&mut conn, &target, known.version).await?;
                let by = names.author(made.map(|row| row.author).unwrap_or_default(), &known.updated_by);
                rows.push(Row { by, target, known });
            }
        }
        if is_last {
            return Ok((rows, None));
        }
    }
}

/// What people call principals. A run is called by its agent, as far as it is known.
pub struct Names(HashMap<String, String>);

impl Names {
    pub async fn read(conn: &mut Conn) -> Result<Self> {
        Ok(Self(sheet::names(conn).await?))
    }

    /// The name, or the id where there is none.
    pub fn of(&self, id: &str) -> String {
        self.0.get(id).cloned().unwrap_or_else(|| id.to_owned())
    }

    /// Whoever made a version: the agent, or the person who wrote it by hand.
    pub fn author(&self, author: Author, actor: &str) -> String {
        match (&author.person, &author.agent) {
            (Some(person), _) => self.of(person.as_str()),
            (None, Some(agent)) => self.of(agent.as_str()),
            (None, None) => self.of(actor),
        }
    }
}

/// Everything the page of one resource shows.
pub struct Sheet {
    pub target: Target,
    pub known: Known,
    /// What it says now; none where it lives elsewhere or was deleted.
    pub document: Option<Value>,
    /// Who made or reported the version, by name.
    pub by: String,
    /// The newest first.
    pub history: Vec<VersionRow>,
    /// The version that older history is below of.
    pub older: Option<i64>,
    /// Through which the versions came about.
    pub operations: BTreeMap<OperationId, Operation>,
    /// Pending and approved writes of it.
    pub waiting: Vec<Operation>,
    pub rules: Vec<Arc<CompiledRule>>,
    pub names: Names,
}

impl Sheet {
    /// # Errors
    /// `not_found` where nothing is known of it, or it is not for the reader.
    pub async fn read(desk: &Desk, reader: &PersonIdentity, target: &Target, before: Option<i64>) -> Result<Self> {
        let now = desk.now();
        let mut conn = desk.store.read().await?;
        let conn = &mut conn;
        let known = resource::find(conn, target.as_str()).await?;
        let is_readable = may_read(conn, &Principal::Person(reader.clone()), target.as_str()).await?;
        let known = known.filter(|_| is_readable);
        let known = known.ok_or_else(|| Problem::new(Code::NotFound, "there is no such resource for you"))?;
        let rules = rules::of(desk, conn, target.as_str()).await?;
        let document = resource::document(conn, target.as_str()).await?;
        let mut history = resource::history(conn, target.as_str(), before, PAGE as i64 + 1).await?;
        let has_more = history.len() > PAGE;
        history.truncate(PAGE);
        let older = history.last().filter(|_| has_more).map(|version| version.version);
        let operations = operations(conn, history.iter().map(|version| &version.author)).await?;
        let waiting = operation::waiting_on_target(conn, target.as_str()).await?.into_iter().map(|op| as_of(op, now));
        let waiting = waiting.filter(|op| matches!(op.state(), State::Pending | State::Approved)).collect();
        let mut names = Names::read(conn).await?;
        sheet::learn(&mut names.0, conn, &known.updated_by).await?;
        let made = resource::author_of(conn, target.as_str(), known.version).await?;
        let by = names.author(made.map(|row| row.author).unwrap_or_default(), &known.updated_by);
        Ok(Self { target: target.clone(), known, document, by, history, older, operations, waiting, rules, names })
    }
}

/// The operations through which versions came about.
pub async fn operations(
    conn: &mut Conn,
    authors: impl Iterator<Item = &Author>,
) -> Result<BTreeMap<OperationId, Operation>> {
    let mut operations = BTreeMap::new();
    for id in authors.filter_map(|author| author.operation.as_ref()) {
        if !operations.contains_key(id)
            && let Some(op) = operation::find(conn, id).await?
        {
            operations.insert(id.clone(), op);
        }
    }
    Ok(operations)
}
