//! Agents that call the provider themselves.

use serde_json::{Value, json};

use crate::{
    cells::Arm,
    provider::{Answer, Wire},
};

/// One thing that is to happen once.
#[derive(Debug, Clone)]
pub struct Intent {
    pub order: String,
    pub key: String,
    /// The customer's own request, which tells two of the same content apart.
    pub event: String,
    pub amount_minor: i64,
    /// What the order was when this was planned, where that matters.
    pub planned_on: Option<i64>,
}

impl Intent {
    pub fn body(&self) -> Value {
        json!({"order": self.order, "amount_minor": self.amount_minor})
    }
}

/// Whether the agent lives to see the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Lives,
    DiesAfterClaim,
    DiesBeforeByte,
    DiesAfterSending,
    /// Stops before the first byte, and sends it then.
    StopsFor {
        ms: i64,
    },
}

/// What whoever gave the task is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Done,
    NotDone,
    /// Nobody is sure, and a person has to find out.
    InDoubt,
    /// Nothing: the agent is gone.
    Silence,
    /// Nothing, though the agent is there: nobody owns what became of it.
    Lost,
}

const ATTEMPTS: u32 = 4;

/// One delivery of the task; `delivery` counts them.
pub async fn act(arm: Arm, wire: &Wire, intent: &Intent, life: Life, delivery: usize) -> Told {
    // Whoever holds a lock on the order presents its token.
    let fence = delivery as i64 + 1;
    let mut doubts = 0;
    for attempt in 0..ATTEMPTS {
        let looks = match arm {
            Arm::VerifyThenRetry => true,
            Arm::WaitThenRetry => attempt > 0,
            _ => false,
        };
        if looks && wire.find("order", &intent.order).await.unwrap_or_default() > 0 {
            return Told::Done;
        }
        let key = match arm {
            Arm::Transparent => None,
            Arm::SameKey => Some(intent.key.clone()),
            _ => Some(format!("{}-{delivery}-{attempt}", intent.key)),
        };
        match life {
            Life::StopsFor { ms } if attempt == 0 => wire.sim.sleep_ms(ms).await,
            Life::DiesBeforeByte => return Told::Silence,
            _ => {}
        }
        match wire.send(key.as_deref(), fence, &intent.body()).await {
            _ if life == Life::DiesAfterSending => return Told::Silence,
            Answer::Done { .. } => return Told::Done,
            Answer::Refused(_) if doubts == 0 => return Told::NotDone,
            Answer::Refused(_) => return Told::InDoubt,
            Answer::Doubt => doubts += 1,
        }
        let wait_s = match arm {
            Arm::Transparent => 1,
            Arm::WaitThenRetry => 60,
            Arm::SameKey => 5 << attempt,
            _ => 5,
        };
        wire.sim.sleep_ms(wait_s * 1000).await;
    }
    Told::InDoubt
}
