//! What the audit page shows: records, newest first, with the checkpoints between them.

use std::collections::HashMap;

use super::{
    Desk,
    error::Result,
    sheet::{learn, names},
};
use crate::{
    model::{
        audit::{
            Hash,
            record::{Record, Sealed},
        },
        id::{OperationId, RunId},
        time::Timestamp,
    },
    server::store::log::{self, Line, Signed},
};

/// Records of one page.
const PAGE: i64 = 100;

/// Which records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Which {
    #[default]
    Newest,
    /// Only those below this number.
    Before(u64),
    /// All about one operation.
    Of(OperationId),
}

/// One page of the log.
pub struct Chain {
    pub records: Vec<Entry>,
    /// Newest first; each stands above the last record it signs.
    pub seals: Vec<Seal>,
    /// Number of records in all.
    pub total: u64,
    pub newest_seal: Option<Seal>,
    /// By which anybody checks a checkpoint, as it is handed out.
    pub vkey: String,
    /// Where the next page begins.
    pub older: Option<u64>,
    names: HashMap<String, String>,
}

/// A record, or a line that is none.
pub enum Entry {
    Record(Box<Sealed>),
    Unreadable { seq: u64, why: String },
}

impl Entry {
    pub fn seq(&self) -> u64 {
        match self {
            Self::Record(sealed) => sealed.record.seq,
            Self::Unreadable { seq, .. } => *seq,
        }
    }

    fn run(&self) -> Option<&RunId> {
        match self {
            Self::Record(sealed) => sealed.record.entry.run.as_ref(),
            Self::Unreadable { .. } => None,
        }
    }
}

/// A signed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// From 1.
    pub number: u64,
    /// How many records it signs.
    pub size: u64,
    /// None if the note is not one that the key of this log signed.
    pub root: Option<Hash>,
    pub at: Timestamp,
}

impl Chain {
    /// # Errors
    /// The key or the database is not to be had.
    pub async fn read(desk: &Desk, which: &Which) -> Result<Self> {
        let signer = desk.signer().await?.clone();
        let mut conn = desk.store.read().await?;
        let conn = &mut conn;
        let lines = match which {
            Which::Newest => log::newest(conn, None, PAGE).await?,
            Which::Before(seq) => log::newest(conn, Some(*seq), PAGE).await?,
            Which::Of(id) => log::of_operation(conn, id).await?.into_iter().rev().collect(),
        };
        let total = log::head(conn).await?.size();
        let seal = |signed: Signed, number: u64| Seal {
            number,
            size: signed.size,
            root: signer.verifier().open(&signed.note).ok().map(|checkpoint| checkpoint.root),
            at: signed.at,
        };
        let seals = match (which, lines.first(), lines.last()) {
            (Which::Newest | Which::Before(_), Some(first), Some(last)) => {
                let found = log::checkpoints_between(conn, last.seq, first.seq + 1).await?;
                let newest = log::count_checkpoints(conn, first.seq + 1).await?;
                found.into_iter().zip((1..=newest).rev()).map(|(signed, number)| seal(signed, number)).collect()
            }
            _ => Vec::new(),
        };
        let newest_seal = match log::checkpoints(conn, 1).await?.pop() {
            Some(signed) => Some(seal(signed, log::count_checkpoints(conn, total).await?)),
            None => None,
        };
        let records: Vec<_> = lines.iter().map(entry).collect();
        let mut names = names(conn).await?;
        for id in records.iter().filter_map(Entry::run) {
            learn(&mut names, conn, id.as_str()).await?;
        }
        let older = lines.last().map(|line| line.seq).filter(|seq| *seq > 0 && !matches!(which, Which::Of(_)));
        Ok(Self { records, seals, total, newest_seal, vkey: signer.verifier().to_string(), older, names })
    }

    /// What people call the principal with this id; a run is called by its agent.
    pub fn name<'a>(&'a self, id: &'a str) -> &'a str {
        self.names.get(id).map_or(id, String::as_str)
    }
}

fn entry(line: &Line) -> Entry {
    match Record::parse(line.record.as_bytes()) {
        Ok(sealed) => Entry::Record(Box::new(sealed)),
        Err(why) => Entry::Unreadable { seq: line.seq, why: why.to_string() },
    }
}
