//! A page for each refusal: what it means, what to do, and whether a new key is safe.

use axum::{Router, response::IntoResponse, routing::get};
use leptos::prelude::*;

use super::{
    parts::{Head, List, Sheet},
    render::Passer,
    shell::Place,
};
use crate::{
    model::problem::{Code, Problem, RetryMode},
    server::{
        service::error::Result,
        web::{body::Path, state::AppState},
    },
};

pub fn routes() -> Router<AppState> {
    Router::new().route("/problems", get(all)).route("/problems/{code}", get(one))
}

/// Whether the same action may be proposed under a new key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NewKey {
    /// Refused before anything was bound to the key.
    Unbound,
    /// The operation is over, provably without effect.
    Safe,
    /// There is an operation, and it may act.
    Unsafe,
    /// It depends on the operation; the reply says.
    Told,
    /// Not about proposing.
    None,
}

impl NewKey {
    fn words(self) -> &'static str {
        match self {
            Self::Unbound => "Safe. Nothing was bound to the key: the same key or a new one, both are fine.",
            Self::Safe => "Safe. The operation ended without effect, and the key stays bound to it.",
            Self::Unsafe => "Not safe. The first operation may still act, and a second key could do it twice.",
            Self::Told => "It depends on the operation: read `safe_new_key` in the reply.",
            Self::None => "No key is involved.",
        }
    }
}

struct Explained {
    /// What happened, and what did not.
    means: &'static str,
    /// The way on.
    way_on: &'static str,
    new_key: NewKey,
}

fn explain(code: Code) -> Explained {
    use NewKey::*;
    let (means, way_on, new_key) = match code {
        Code::IdempotencyKeyMissing => (
            "A proposal came without the `Idempotency-Key` header. Nothing was proposed.",
            "Choose one key per intended action, store it with the action, and send it with every attempt.",
            Unbound,
        ),
        Code::IdempotencyKeyInvalid => (
            "The header came twice, or is not 16 to 255 characters of letters, digits and `. _ ~ : -`, bare or in double \
             quotes. Nothing was proposed.",
            "Send one header line with a valid key. A UUID or a ULID will do.",
            Unbound,
        ),
        Code::MalformedJson => (
            "The body is not JSON as this API reads it: broken syntax, U+0000, half a surrogate pair, or more than 32 \
             levels. `errors` gives the place. Nothing was bound.",
            "Mend the body at the pointer and send it again.",
            Unbound,
        ),
        Code::DuplicateJsonKey => (
            "An object names the same member twice. Parsers differ on which one counts, so neither does here.",
            "Write each member once. `errors` gives the pointer.",
            Unbound,
        ),
        Code::MalformedEtag => (
            "`If-Match` or `If-None-Match` is not a list of entity tags: a tag stands in double quotes, as in `\"41\"`.",
            "Copy the `ETag` of your last read as it came, quotes included.",
            Unbound,
        ),
        Code::BadRequest => (
            "The request contradicts itself or cannot be read: an unknown query member, two versions that differ, a body \
             that ended early.",
            "Read `detail`, mend the request, send it again.",
            Unbound,
        ),
        Code::Unauthenticated => (
            "No credential came with the request, or it is unknown, revoked or over. Nothing was looked up.",
            "People sign in. Programs send `Authorization: Bearer` with their token; a run's token ends with the run.",
            None,
        ),
        Code::Forbidden => (
            "The credential is good, and this is not among the things it may do.",
            "Use a principal with the right role or token kind, or ask an admin.",
            None,
        ),
        Code::NotEligible => (
            "The rule asks for votes from certain groups, and you are in none of them, or your role never votes. Nothing \
             was decided.",
            "Leave it to those it is open to. An admin changes groups.",
            None,
        ),
        Code::SelfApproval => (
            "You own the agent that proposed this, now or when it did. Nobody approves their own agent's work, at any \
             amount, by any path. Nothing was decided.",
            "You may reject it. Somebody else approves.",
            None,
        ),
        Code::OutsideWriteSet => (
            "The target or verb is outside what the run, or its agent, was granted. Nothing was bound.",
            "Start a run with a write set that covers it, within what the agent is allowed.",
            Unbound,
        ),
        Code::RunStopped => (
            "The run was stopped or has expired. It may still read, replay keys, and report claims that were open.",
            "Start a new run. Keys belong to the agent: the new run finds the same operations.",
            Told,
        ),
        Code::HumansOnly => (
            "A program called something that only a signed-in person may do. Nothing was decided.",
            "Wait for a person. `GET /operations/{id}?wait=30` wakes when they have decided.",
            None,
        ),
        Code::CrossSite => (
            "The browser says that another site made this request, and the cookie alone would have authorised it. Nothing \
             was done.",
            "Open the desk itself and do it there.",
            None,
        ),
        Code::StepUpRequired => (
            "The rule asks for the password again, within the last 5 minutes. Nothing was decided.",
            "Enter the password when asked, then decide again.",
            None,
        ),
        Code::NotFound => (
            "The address is wrong, or you may not read what is there. Both look the same on purpose.",
            "Check the id and its prefix, and which principal is asking.",
            None,
        ),
        Code::MethodNotAllowed => {
            ("The address exists and does not take this method.", "The `Allow` header names those it takes.", None)
        }
        Code::FingerprintConflict => (
            "The key is bound to another command. The reply names that operation, its state and the places that differ. \
             Nothing changed.",
            "If it is the same action, send it unchanged. If it is a new action, it takes a key of its own.",
            Told,
        ),
        Code::UnknownKey => (
            "The request says `\"retry\": true`, and this agent has never bound the key here. Nothing was proposed.",
            "If the first attempt certainly never arrived, send it without `retry`. If memory was lost, ask a person \
             first.",
            Told,
        ),
        Code::ApprovalExpired => (
            "The time to decide, or the time to run, has passed. Expired is neither approved nor rejected, and nothing was \
             sent.",
            "If the action is still wanted, propose it again.",
            Safe,
        ),
        Code::ApprovalSpent => (
            "The approval was used by a claim. It is used once.",
            "Follow the operation. What was approved is under way or done.",
            Unsafe,
        ),
        Code::ApprovalMismatch => (
            "The fingerprint in the request is not the one that was approved. The approval stays unspent.",
            "Claim with the operation's own fingerprint. Other content is another operation, with its own approval.",
            Unsafe,
        ),
        Code::ApprovalWithdrawn => (
            "A vote was taken back before the approval was used. The operation waits for a decision again.",
            "Wait for the decision.",
            Unsafe,
        ),
        Code::NotApproved => ("The operation has no approval yet.", "Wait for the decision, then claim.", Unsafe),
        Code::AlreadyDecided => (
            "Somebody decided first, or you decided differently before. The reply says how, who and when. Your vote was \
             not counted.",
            "Read what was decided. Your own vote can be withdrawn until the approval is spent.",
            None,
        ),
        Code::AlreadyClaimed => (
            "Another executor holds the claim. One claim acts, the others do not.",
            "Leave it to the holder. If nothing was sent when its deadline passes, it can be claimed again.",
            Unsafe,
        ),
        Code::InvalidState => (
            "The operation, or what else was named, is in a state that does not allow this. The reply names the state.",
            "Read it again and go on from where it is.",
            Told,
        ),
        Code::PolicyChanged => (
            "The policy now asks for more than this approval has. The operation waits for votes again; the votes that \
             still count stay.",
            "Wait for the decision.",
            Unsafe,
        ),
        Code::OwnershipConflict => (
            "A live run has reserved the target for itself. The reply names the run and when its right ends.",
            "Wait until then, or plan around it.",
            Unbound,
        ),
        Code::LeaseHeld => (
            "Somebody else holds the lease on the resource. The reply says until when.",
            "Ask again after that. Leases are short.",
            Told,
        ),
        Code::LeaseLost => (
            "The lease has expired, was released or was taken over. It does not come back.",
            "Stop writing, read the resource again, and ask for a new lease.",
            Told,
        ),
        Code::StaleFence => (
            "A successor has taken over with a higher fence. A late report is kept as evidence and changes nothing.",
            "Stop. The successor carries on.",
            Unsafe,
        ),
        Code::ReleaseLocked => (
            "Another deployment of the same environment is between claim and outcome. The reply names it.",
            "Claim again once it is over.",
            Unsafe,
        ),
        Code::BusinessKeyConflict => (
            "The event this stands for already has an operation that is open or succeeded. This proposal ended as \
             conflicted, and its key repeats this answer.",
            "Follow the operation that the reply names.",
            Unsafe,
        ),
        Code::InvariantViolated => (
            "The write would break a rule of its target: refund more than was captured, or make a document that a rule of \
             its scope does not allow. `rule`, `invariant` and `pointer` say which and where. Nothing was applied.",
            "Read the target again and plan within the rule.",
            Safe,
        ),
        Code::OutcomeUnknown => (
            "An earlier write on this target was sent and nobody knows what became of it. Until there is evidence, \
             nothing else is sent there.",
            "Wait. On-call looks for evidence; time alone proves nothing.",
            Unsafe,
        ),
        Code::NotBulk => (
            "High and critical operations are decided one at a time. This one was left as it was.",
            "Open it and decide it there.",
            None,
        ),
        Code::IdempotencyKeyExpired => (
            "The operation behind this key ended so long ago that only the key's mark is kept.",
            "Check what became of the action before doing it again.",
            Told,
        ),
        Code::StaleVersion => (
            "The resource has changed since it was read. Nothing was written. `changed_fields` lists what changed since, \
             field by field, and by whom; `changed_fields_complete` is false where not all of it is known. `conflict_id` \
             names the conflict, on which people decide.",
            "Read again, plan again, and propose the new write with the new version, naming the old operation in \
             `replans`. With `already_satisfied` nothing is left to write: accept the conflict. Where `resolver` is \
             `human`, wait for the decision on the operation's `conflict`.",
            Safe,
        ),
        Code::StaleView => (
            "The page you decided on was older than the operation: a duplicate or a new version had appeared. Your vote \
             was not counted.",
            "Read it again, then decide.",
            None,
        ),
        Code::PayloadTooLarge => (
            "The body is larger than this desk takes, 64 KiB unless set otherwise, or would make a document larger than \
             64 KiB. It was not cut; nothing was bound.",
            "Send a reference instead of the content.",
            Unbound,
        ),
        Code::UnsupportedMediaType => {
            ("The body is not of a type this address takes.", "`detail` names the `Content-Type` to send.", Unbound)
        }
        Code::ValidationFailed => (
            "The content does not fit its schema or a rule of its kind. `errors` lists each place and why. Nothing was \
             bound.",
            "Mend those places and send it again.",
            Unbound,
        ),
        Code::MutableReference => (
            "A branch, a tag, `latest` or a short hash could mean something else by the time it runs. Nothing was bound.",
            "Name the artifact by `sha256:` digest, the commit by its full hash.",
            Unbound,
        ),
        Code::NumberOutOfRange => (
            "A number is not an integer within ±(2^53 − 1). Floats, `1.0` and `1e3` are refused, because readers round \
             them differently.",
            "Send integers. Money is `amount_minor`, in cents.",
            Unbound,
        ),
        Code::PreconditionRequired => (
            "This kind of write states the version it was planned on. Absent, empty and `*` say nothing. Nothing was \
             bound.",
            "Send `If-Match` or `expected_version` with the version you read.",
            Unbound,
        ),
        Code::RateLimited => (
            "More came than this principal may send in the time. Nothing was done.",
            "Wait as long as `Retry-After` says, then send the same again.",
            Unbound,
        ),
        Code::OpenOperationsLimit => (
            "The agent has as many open operations as one agent may. Nothing was bound.",
            "Wait for some to be decided, or cancel those no longer wanted.",
            Unbound,
        ),
        Code::Internal => (
            "Something went wrong on this side. It is in our log under the correlation id.",
            "Send the same request again with the same key: what was done is found, and not done twice.",
            Unsafe,
        ),
        Code::Unavailable => (
            "The server is too busy, or its database is away. Nothing was done and nothing was bound.",
            "Send the same again after `Retry-After`.",
            Unbound,
        ),
        Code::Paused => (
            "An admin has paused the desk: nothing is claimed or sent. Deadlines keep running.",
            "Wait, and claim again with the same key.",
            Unsafe,
        ),
    };
    Explained { means, way_on, new_key }
}

fn retry_words(mode: RetryMode) -> &'static str {
    match mode {
        RetryMode::None => "not as it is",
        RetryMode::SameKey => "the same request, same key",
        RetryMode::AfterFreshRead => "after a fresh read",
        RetryMode::NewOperation => "as a new proposal",
        RetryMode::AwaitDecision => "once it is decided",
        RetryMode::Operator => "once on-call has looked",
    }
}

async fn one(passer: Passer, Path(name): Path<String>) -> Result<impl IntoResponse> {
    let code = Code::parse(&name).ok_or_else(|| Problem::new(Code::NotFound, "there is no such refusal"))?;
    let Explained { means, way_on, new_key } = explain(code);
    Ok(passer.page(code.title(), Place::Nowhere, || {
        let slip = view! {
            <section class="sec sec-first">
                <div class="sec-head">
                    <h2>"What it means"</h2>
                </div>
                <p class="prose">{quoted(means)}</p>
            </section>
            <section class="sec">
                <div class="sec-head">
                    <h2>"What to do"</h2>
                </div>
                <p class="prose">{quoted(way_on)}</p>
            </section>
        };
        let stub = view! {
            <section class="p p-first">
                <dl class="facts">
                    <dt>"Code"</dt>
                    <dd>
                        <code>{code.as_str()}</code>
                    </dd>
                    <dt>"Status"</dt>
                    <dd>{code.status()}</dd>
                    <dt>"Again"</dt>
                    <dd>{retry_words(code.retry())}</dd>
                </dl>
            </section>
            <section class="p">
                <div class="p-head">
                    <h2>"A new key"</h2>
                </div>
                <p>{quoted(new_key.words())}</p>
            </section>
        };
        view! {
            <Head title=code.title()>"A refusal of this desk, and the way on."</Head>
            <Sheet slip=slip.into_any() stub=stub.into_any() stub_label="In short" />
            <p class="more">
                <a href="/problems">"All refusals"</a>
            </p>
        }
    }))
}

async fn all(passer: Passer) -> impl IntoResponse {
    passer.page("Refusals", Place::Nowhere, || {
        let rows = Code::ALL.iter().map(|code| {
            view! {
                <tr>
                    <th scope="row">
                        <a href=format!("/problems/{code}")>{code.as_str()}</a>
                    </th>
                    <td>{code.title()}</td>
                    <td class="meta">{code.status()}</td>
                </tr>
            }
        });
        view! {
            <Head title="Refusals">"Every answer that is a no, by status."</Head>
            <div class="card pane">
                <List label="Refusals" heads=vec!["Code", "In a sentence", "Status"]>{rows.collect::<Vec<_>>()}</List>
            </div>
        }
    })
}

/// What stands in backticks is code.
pub fn quoted(text: &str) -> Vec<AnyView> {
    let part = |(i, part): (usize, &str)| match i % 2 {
        0 => part.to_owned().into_any(),
        _ => view! { <code>{part.to_owned()}</code> }.into_any(),
    };
    text.split('`').enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_says_what_happened_and_the_way_on() {
        for &code in Code::ALL {
            let Explained { means, way_on, .. } = explain(code);
            for text in [means, way_on] {
                assert!(text.ends_with('.') && text.matches('`').count() % 2 == 0, "{code}: {text}");
            }
        }
    }

    #[test]
    fn no_page_calls_a_new_key_safe_where_the_problem_does_not() {
        for &code in Code::ALL {
            let is_safe = matches!(explain(code).new_key, NewKey::Unbound | NewKey::Safe);
            let problem = Problem::new(code, "");
            assert!(is_safe || !problem.safe_new_key, "{code}: the problem says that a new key is safe");
        }
    }
}
