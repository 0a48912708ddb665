//! People: passwords, signing in, the first one, and what admins change.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use argon2::{Argon2, PasswordHasher, PasswordVerifier};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use utoipa::ToSchema;

use super::{
    By, Desk,
    error::{Error, Result},
    principal,
    throttle::Throttle,
};
use crate::{
    model::{
        approval::Role,
        audit::Event,
        id::{PersonId, SessionId},
        problem::{Code, Problem, RetryMode},
        time::Timestamp,
    },
    server::{
        config::Config,
        ids,
        store::{Tx, person, person::Person, session, setting},
        web::auth::{Admin, PersonIdentity},
    },
};

/// Password computations at the same time, 19 MiB each.
const AT_ONCE: usize = 2;
/// Password computations that may wait for their turn.
const WAITING: usize = 64;
/// Seconds for which a set-up link works.
const SETUP_LIFE_S: i64 = 3600;

/// A hash of no one's password, with the parameters of all others: an unknown name costs the same work.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$qqqqqqqqqqqqqqqqqqqqqg$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Argon2id, a few at a time, off the threads that answer requests.
pub struct Passwords {
    turns: Arc<Semaphore>,
    places: Arc<Semaphore>,
    computed: AtomicU64,
}

impl Default for Passwords {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(AT_ONCE + WAITING));
        Self { turns: Arc::new(Semaphore::new(AT_ONCE)), places, computed: AtomicU64::new(0) }
    }
}

impl Passwords {
    /// How many computations there were.
    pub fn computed(&self) -> u64 {
        self.computed.load(Ordering::Relaxed)
    }

    /// # Errors
    /// [`Error::Unavailable`] when too many wait already.
    pub async fn hash(&self, password: Password) -> Result<String> {
        self.compute(move || Argon2::default().hash_password(password.0.as_bytes()).map(|hash| hash.to_string()))
            .await?
            .map_err(|error| Error::internal(error.to_string()))
    }

    /// Whether `password` is the one behind `hash`; with no hash the same work is done, and the answer is no.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when too many wait already.
    pub async fn verify(&self, password: String, hash: Option<String>) -> Result<bool> {
        self.compute(move || {
            let right =
                Argon2::default().verify_password(password.as_bytes(), hash.as_deref().unwrap_or(NOBODY)).is_ok();
            right && hash.is_some()
        })
        .await
    }

    async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| Error::Unavailable)?;
        let turn = self.turns.clone().acquire_owned().await.map_err(Error::internal)?;
        self.computed.fetch_add(1, Ordering::Relaxed);
        let work = move || {
            // Held by the work, not by the request: a caller who hangs up frees nothing early.
            let _held = (place, turn);
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(Error::internal)
    }
}

/// A password that may be set: 12 characters at least, 1024 bytes at most.
#[derive(Deserialize, ToSchema)]
#[serde(try_from = "String")]
#[schema(min_length = 12, max_length = 1024)]
pub struct Password(String);

impl TryFrom<String> for Password {
    type Error = &'static str;

    fn try_from(text: String) -> std::result::Result<Self, &'static str> {
        if text.chars().count() < 12 {
            return Err("a password has at least 12 characters");
        }
        if text.len() > 1024 {
            return Err("a password has at most 1024 bytes");
        }
        Ok(Self(text))
    }
}

/// How somebody signs in, and how a group is called: `[a-z0-9][a-z0-9._-]{0,63}`; capitals are folded.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(try_from = "String")]
#[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
pub struct Name(String);

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = &'static str;

    fn try_from(mut text: String) -> std::result::Result<Self, &'static str> {
        text.make_ascii_lowercase();
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        match text.as_bytes() {
            [first, rest @ ..]
                if plain(*first) && rest.len() < 64 && rest.iter().all(|&c| plain(c) || b"._-".contains(&c)) =>
            {
                Ok(Self(text))
            }
            _ => Err("a name is a letter or digit, then up to 63 letters, digits, `.`, `_` or `-`"),
        }
    }
}

/// Who may change people, agents and settings.
pub struct Administrator(By);

impl Administrator {
    /// Whoever has a shell where the data is.
    pub fn command_line() -> Self {
        Self(By::system("command-line"))
    }

    pub fn by(&self) -> &By {
        &self.0
    }
}

impl From<&Admin> for Administrator {
    fn from(admin: &Admin) -> Self {
        Self(admin.by())
    }
}

/// How often a password may be tried: per account and per address.
pub struct SignIns {
    accounts: Throttle<String>,
    addresses: Throttle<IpAddr>,
}

impl Default for SignIns {
    fn default() -> Self {
        Self { accounts: Throttle::new(10, 2), addresses: Throttle::new(50, 10) }
    }
}

impl SignIns {
    fn take(&self, name: &str, address: IpAddr, now: Timestamp) -> std::result::Result<(), Problem> {
        let taken = self.addresses.take(&network(address), now).and_then(|()| {
            let taken = self.accounts.take(&name.to_owned(), now);
            taken.inspect_err(|_| self.addresses.give_back(&network(address)))
        });
        taken.map_err(|after_s| {
            let detail = format!("too many attempts to sign in; the next one is possible in {after_s} s");
            Problem::new(Code::RateLimited, detail).retry(RetryMode::SameKey, Some(after_s))
        })
    }

    fn give_back(&self, name: &str, address: IpAddr) {
        self.addresses.give_back(&network(address));
        self.accounts.give_back(&name.to_owned());
    }
}

/// What one customer of a network usually holds: an IPv4 address, or an IPv6 /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
        v4 => v4,
    }
}

/// The person behind a name and a password. An unknown name, a wrong password and a disabled account look the same and
/// take the same work.
///
/// # Errors
/// `unauthenticated` · `rate_limited`.
pub async fn check_password(desk: &Desk, name: &str, password: String, address: IpAddr, by: By) -> Result<Person> {
    let name: String = name.chars().take(64).map(|c| c.to_ascii_lowercase()).collect();
    desk.sign_ins.take(&name, address, desk.now())?;
    let known = person::with_password(&mut desk.store.read().await?, &name).await?;
    let (person, hash) = known.filter(|(person, _)| person.is_enabled()).unzip();
    let right = desk.passwords.verify(password, hash).await?;
    match person {
        Some(person) if right => {
            desk.sign_ins.give_back(&name, address);
            Ok(person)
        }
        person => {
            // The same record and the same time for a name nobody has; the name itself might be a mistyped password.
            let resource = person.and_then(|person| principal("person", &person.id));
            desk.commit(move |tx| {
                Box::pin(async move {
                    let mut entry = by.entry(Event::AccountSignInRefused);
                    entry.resource = resource;
                    tx.audit(&entry).await?;
                    Ok(Err(Problem::new(Code::Unauthenticated, "the name or the password is not right")))
                })
            })
            .await
        }
    }
}

/// Ends the session of this request.
pub async fn sign_out(desk: &Desk, person: &PersonIdentity) -> Result<()> {
    end_session(desk, person, person.session().clone(), Event::AccountSignedOut).await
}

/// Ends one of the person's own sessions.
///
/// # Errors
/// `not_found`.
pub async fn revoke_session(desk: &Desk, person: &PersonIdentity, id: SessionId) -> Result<()> {
    end_session(desk, person, id, Event::AccountSessionRevoked).await
}

async fn end_session(desk: &Desk, person: &PersonIdentity, id: SessionId, event: Event) -> Result<()> {
    let (owner, entry) = (person.id().clone(), person.by().entry(event));
    desk.commit(move |tx| {
        Box::pin(async move {
            if !session::delete(tx, &owner, &id).await? {
                return Ok(Err(Problem::new(Code::NotFound, format!("you have no session `{id}`"))));
            }
            tx.audit(&entry).await?;
            Ok(Ok(()))
        })
    })
    .await
}

/// A person to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPerson {
    pub name: Name,
    pub role: Role,
    #[serde(default)]
    pub groups: Vec<Name>,
    pub password: Password,
}

fn group_names(groups: Vec<Name>) -> Vec<String> {
    let mut names: Vec<String> = groups.into_iter().map(|group| group.0).collect();
    names.sort();
    names.dedup();
    names
}

/// # Errors
/// `invalid_state` when the name is taken.
pub async fn create_person(desk: &Desk, admin: &Administrator, new: NewPerson) -> Result<Person> {
    let hash = desk.passwords.hash(new.password).await?;
    let (name, role, groups) = (new.name.0, new.role, group_names(new.groups));
    let by = admin.by().clone();
    desk.commit(move |tx| {
        Box::pin(async move {
            let person = fresh(tx, name, role, groups);
            if !person::insert(tx, &person, &hash).await? {
                return Ok(Err(name_taken(&person.name)));
            }
            let mut entry = by.entry(Event::AdminPersonCreated);
            entry.resource = principal("person", &person.id);
            entry.reason = Some(rights(&person));
            tx.audit(&entry).await?;
            Ok(Ok(person))
        })
    })
    .await
}

fn fresh(tx: &Tx, name: String, role: Role, groups: Vec<String>) -> Person {
    Person { id: ids::new(tx.now()), name, role, groups, created_at: tx.now(), disabled_at: None }
}

pub(super) fn name_taken(name: &str) -> Problem {
    Problem::new(Code::InvalidState, format!("the name `{name}` is taken"))
}

/// Role and groups, for the log.
fn rights(person: &Person) -> String {
    let mut words = format!("role {}", person.role.as_str());
    if !person.groups.is_empty() {
        words.push_str(&format!(", groups {}", person.groups.join(" ")));
    }
    words
}

/// What an admin changes about a person; absent members stay.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PersonChange {
    pub role: Option<Role>,
    pub groups: Option<Vec<Name>>,
    pub disabled: Option<bool>,
    pub password: Option<Password>,
}

/// A disabled person loses all sessions at once, and so does one whose password an admin sets.
///
/// # Errors
/// `not_found` · `invalid_state` when no admin would be left.
pub async fn change_person(desk: &Desk, admin: &Administrator, id: PersonId, change: PersonChange) -> Result<Person> {
    let password = match change.password {
        Some(password) => Some(desk.passwords.hash(password).await?),
        None => None,
    };
    let by = admin.by().clone();
    desk.commit(move |tx| {
        Box::pin(async move {
            let Some(before) = person::by_id(tx, &id).await? else {
                return Ok(Err(Problem::new(Code::NotFound, format!("there is no person `{id}`"))));
            };
            let mut after = before.clone();
            after.role = change.role.unwrap_or(after.role);
            after.groups = change.groups.map(group_names).unwrap_or(after.groups);
            after.disabled_at = match change.disabled {
                Some(true) => after.disabled_at.or(Some(tx.now())),
                Some(false) => None,
                None => after.disabled_at,
            };
            let governs = |person: &Person| person.role == Role::Admin && person.is_enabled();
            if governs(&before) && !governs(&after) && person::other_admins(tx, &id).await? == 0 {
                return Ok(Err(Problem::new(Code::InvalidState, "this is the last admin")));
            }
            person::update(tx, &after).await?;
            let mut events = Vec::new();
            if rights(&after) != rights(&before) || (after.is_enabled() && !before.is_enabled()) {
                events.push(Event::AdminPersonChanged);
            }
            if before.is_enabled() && !after.is_enabled() {
                events.push(Event::AccountDisabled);
            }
            if let Some(hash) = &password {
                person::set_password(tx, &id, hash).await?;
                events.push(Event::AccountPasswordChanged);
            }
            if !after.is_enabled() || password.is_some() {
                session::delete_all(tx, &id).await?;
            }
            for event in events {
                let mut entry = by.entry(event);
                entry.resource = principal("person", &id);
                entry.reason = (event == Event::AdminPersonChanged).then(|| rights(&after));
                tx.audit(&entry).await?;
            }
            Ok(Ok(after))
        })
    })
    .await
}

/// One-time link by which the first admin is made.
#[derive(Serialize, Deserialize)]
struct SetupLink {
    hash: String,
    expires_at: Timestamp,
}

const SETUP: &str = "setup_link";

/// Makes a new set-up link while there are no people; earlier ones stop working.
pub async fn begin_setup(desk: &Desk) -> Result<Option<String>> {
    let token = ids::Secret::new();
    let hash = token.hash();
    let begun = desk
        .commit(move |tx| {
            Box::pin(async move {
                if person::count(tx).await? > 0 {
                    return Ok(Ok(false));
                }
                let expires_at = tx.now().plus_seconds(SETUP_LIFE_S);
                setting::put(tx, SETUP, &SetupLink { hash, expires_at }).await?;
                Ok(Ok(true))
            })
        })
        .await?;
    Ok(begun.then(|| setup_url(&desk.config, &token)))
}

fn setup_url(config: &Config, token: &ids::Secret) -> String {
    format!("{}/setup?token={}", config.public_url, token.reveal())
}

/// Whether the set-up page may be shown.
///
/// # Errors
/// `not_found` when the link is not the current one, is used or has expired.
pub async fn check_setup(desk: &Desk, token: &str) -> Result<()> {
    let mut conn = desk.store.read().await?;
    let link = setting::get::<SetupLink>(&mut conn, SETUP).await?;
    Ok(opens(link.as_ref(), &ids::hash(token), desk.now())?)
}

fn opens(link: Option<&SetupLink>, hash: &str, now: Timestamp) -> std::result::Result<(), Problem> {
    match link {
        Some(link) if link.hash == hash && now < link.expires_at => Ok(()),
        _ => Err(Problem::new(Code::NotFound, "this set-up link does not work any more; a restart prints a new one")),
    }
}

/// Makes the first admin. The link is used up.
///
/// # Errors
/// `not_found` when the link is not the current one, is used or has expired.
pub async fn complete_setup(desk: &Desk, token: &str, name: Name, password: Password) -> Result<Person> {
    check_setup(desk, token).await?;
    let (token, hash) = (ids::hash(token), desk.passwords.hash(password).await?);
    desk.commit(move |tx| {
        Box::pin(async move {
            // Somebody may have been added by the command line meanwhile: the link is for an empty desk only.
            let link = match person::count(tx).await? {
                0 => setting::get::<SetupLink>(tx, SETUP).await?,
                _ => None,
            };
            if let Err(problem) = opens(link.as_ref(), &token, tx.now()) {
                return Ok(Err(problem));
            }
            setting::remove(tx, SETUP).await?;
            let person = fresh(tx, name.0, Role::Admin, Vec::new());
            person::insert(tx, &person, &hash).await?;
            let mut entry = By::system("setup").entry(Event::AdminSetupCompleted);
            entry.resource = principal("person", &person.id);
            tx.audit(&entry).await?;
            Ok(Ok(person))
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use argon2::password_hash::phc::PasswordHash;

    use super::*;

    #[tokio::test]
    async fn nobodys_hash_costs_what_everybodys_does() {
        let passwords = Passwords::default();
        let real = passwords.hash(Password("a long enough password".into())).await.unwrap();
        let (real, nobody) = (PasswordHash::new(&real).unwrap(), PasswordHash::new(NOBODY).unwrap());
        assert_eq!((real.algorithm, real.version, real.params), (nobody.algorithm, nobody.version, nobody.params));
        assert!(!passwords.verify("anything".into(), None).await.unwrap());
        assert_eq!(passwords.computed(), 2);
    }

    #[tokio::test]
    async fn a_crowd_is_turned_away_and_not_queued_for_ever() {
        let passwords = Arc::new(Passwords::default());
        let all = (0..AT_ONCE + WAITING + 5).map(|_| passwords.verify("anything".into(), None));
        let answers = futures::future::join_all(all).await;
        assert_eq!(answers.iter().filter(|answer| matches!(answer, Err(Error::Unavailable))).count(), 5);
    }

    #[test]
    fn a_name_is_folded_and_a_password_measured() {
        let name = |text: &str| Name::try_from(text.to_owned()).map(|name| name.0);
        assert_eq!(name("Asha.K-1_x"), Ok("asha.k-1_x".into()));
        for bad in ["", ".asha", "-", "a b", "ash\u{e4}", "a/b", "a\0", &"a".repeat(65)] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
        assert!(name(&"a".repeat(64)).is_ok());
        let password = |text: &str| Password::try_from(text.to_owned()).is_ok();
        assert!(password("zw\u{f6}lf zeichen"));
        assert!(!password("eleven char"));
        assert!(password(&"x".repeat(1024)) && !password(&"x".repeat(1025)));
    }

    #[test]
    fn neighbours_in_one_ipv6_network_share_their_attempts() {
        let at = |text: &str| network(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
    }
}
