//! Server-sent events, as a reader gets them.

use std::{pin::Pin, time::Duration};

use futures::{Stream, StreamExt, future::ready};
use serde_json::Value;

/// Longest time to wait for something that is certain to come.
const PATIENCE: Duration = Duration::from_secs(40);

/// One event; those that cannot be resumed from have no id.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub id: Option<i64>,
    pub event: String,
    pub data: Value,
}

/// An open stream of events.
pub struct Events {
    chunks: Pin<Box<dyn Stream<Item = Vec<u8>> + Send>>,
    text: String,
}

impl Events {
    /// What arrives chunk by chunk; an error is the end.
    pub fn new<B: AsRef<[u8]>>(chunks: impl Stream<Item = Result<B, ()>> + Send + 'static) -> Self {
        let chunks = chunks.scan((), |(), chunk| ready(chunk.ok().map(|bytes| bytes.as_ref().to_vec())));
        Self { chunks: Box::pin(chunks), text: String::new() }
    }

    /// The next event; `None` once the stream has ended.
    pub async fn next(&mut self) -> Option<Message> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let message = message(block);
                self.text = rest.to_owned();
                if message.is_some() {
                    return message;
                }
            }
            let chunk = tokio::time::timeout(PATIENCE, self.chunks.next()).await.expect("an event or the end")?;
            self.text += std::str::from_utf8(&chunk).unwrap();
        }
    }

    /// The next so many events.
    pub async fn take(&mut self, count: usize) -> Vec<Message> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            taken.push(self.next().await.expect("the stream goes on"));
        }
        taken
    }

    /// Whether nothing comes for a while.
    pub async fn is_silent(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(300), self.next()).await.is_err()
    }
}

/// A block of lines as an event; comments alone are none.
fn message(block: &str) -> Option<Message> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let data = field("data")?.trim();
    Some(Message {
        id: field("id").map(|id| id.trim().parse().unwrap()),
        event: field("event").unwrap_or("message").trim().to_owned(),
        data: serde_json::from_str(data).unwrap(),
    })
}
