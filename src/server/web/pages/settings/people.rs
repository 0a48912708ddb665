//! Settings: people.

use axum::{
    Router,
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use leptos::prelude::*;
use serde::Deserialize;

use super::{
    super::{
        parts::{self, Head, List, Sheet},
        render::{Page, Visitor},
        shell::Place,
    },
    Tab, beside_form, fault, faults, is_admin, tabs, words,
};
use crate::{
    model::{
        approval::Role,
        id::PersonId,
        problem::{Code, Problem},
    },
    server::{
        service::{
            account::{self, Name, NewPerson, Password, PersonChange},
            error::Result,
        },
        store::person::{self, Person},
        web::{
            auth::Admin,
            body::{Form, Path},
            state::AppState,
        },
    },
    ui::time::Form as TimeForm,
};

pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/settings/people", get(people).post(add_person))
        .route("/settings/people/{id}", get(one_person).post(change_person))
        .route("/settings/people/{id}/password", post(set_password))
}

fn groups(text: &str) -> std::result::Result<Vec<Name>, Problem> {
    words(text).map(|word| Name::try_from(word.to_owned()).map_err(fault("/groups"))).collect()
}

fn roles(chosen: Role) -> Vec<AnyView> {
    let option = |role: Role| view! { <option selected=role == chosen>{role.as_str()}</option> }.into_any();
    Role::ALL.into_iter().map(option).collect()
}

fn role_words(role: Role) -> &'static str {
    match role {
        Role::Viewer => "reads",
        Role::Approver => "votes, in their groups",
        Role::Operator => "on-call: votes, stops runs, resolves unknown outcomes",
        Role::Admin => "votes, and changes everything here",
        Role::Auditor => "reads the log, never votes",
    }
}

/// What was typed into the form for a new person; never the password.
#[derive(Deserialize, Default)]
#[serde(default)]
struct GivenPerson {
    name: String,
    role: String,
    groups: String,
    password: String,
}

async fn people(visitor: Visitor) -> Result<Page> {
    people_page(&visitor, GivenPerson::default(), None).await
}

async fn add_person(visitor: Visitor, admin: Admin, Form(given): Form<GivenPerson>) -> Result<Response> {
    let read = || -> std::result::Result<NewPerson, Problem> {
        Ok(NewPerson {
            name: Name::try_from(given.name.clone()).map_err(fault("/name"))?,
            role: given.role.parse()?,
            groups: groups(&given.groups)?,
            password: Password::try_from(given.password.clone()).map_err(fault("/password"))?,
        })
    };
    let added = match read() {
        Ok(new) => account::create_person(&visitor.desk, &(&admin).into(), new).await,
        Err(problem) => Err(problem.into()),
    };
    match added {
        Ok(_) => Ok(Redirect::to("/settings/people").into_response()),
        Err(error) => {
            let problem = beside_form(error)?;
            Ok(people_page(&visitor, given, Some(&problem)).await?.refused(problem.code).into_response())
        }
    }
}

async fn people_page(visitor: &Visitor, given: GivenPerson, refused: Option<&Problem>) -> Result<Page> {
    let people = person::list(&mut visitor.desk.store.read().await?).await?;
    let (now, is_admin) = (visitor.now, is_admin(visitor));
    Ok(visitor.page("People", Place::Settings, || {
        let rows: Vec<_> = people
            .iter()
            .map(|person| {
                let name = if is_admin {
                    view! { <a href=format!("/settings/people/{}", person.id)>{person.name.clone()}</a> }.into_any()
                } else {
                    person.name.clone().into_any()
                };
                let state = match person.disabled_at {
                    Some(at) => view! { "disabled "{parts::when(at, now, TimeForm::Day)} }.into_any(),
                    None => view! { "since "{parts::when(person.created_at, now, TimeForm::Day)} }.into_any(),
                };
                view! {
                    <tr>
                        <th scope="row">{name}</th>
                        <td><b>{person.role.as_str()}</b>", "{role_words(person.role)}</td>
                        <td class="mono">{person.groups.join(" ")}</td>
                        <td class="meta">{state}</td>
                    </tr>
                }
            })
            .collect();
        let slip = view! {
            <section class="sec sec-first">
                <List label="People" heads=vec!["Name", "Role", "Groups", ""]>{rows}</List>
            </section>
        };
        let stub = if is_admin {
            view! {
                <form class="p p-first" action="/settings/people" method="post">
                    <div class="p-head"><h2>"Add a person"</h2></div>
                    <div class="stack">
                        <label class="field">
                            <span>"Name"</span>
                            <input
                                class="in"
                                name="name"
                                maxlength="64"
                                required
                                autocomplete="off"
                                autocapitalize="off"
                                spellcheck="false"
                                value=given.name.clone()
                            />
                        </label>
                        <label class="field">
                            <span>"Role"</span>
                            <select class="in" name="role">{roles(given.role.parse().unwrap_or(Role::Approver))}</select>
                        </label>
                        <label class="field">
                            <span>"Groups"</span>
                            <input
                                class="in"
                                name="groups"
                                maxlength="500"
                                autocapitalize="off"
                                spellcheck="false"
                                placeholder="approvers sre"
                                value=given.groups.clone()
                            />
                        </label>
                        <label class="field">
                            <span>"First password"</span>
                            <input
                                class="in"
                                type="password"
                                name="password"
                                minlength="12"
                                maxlength="1024"
                                required
                                autocomplete="new-password"
                            />
                            <small>"12 characters at least."</small>
                        </label>
                        <button class="btn btn-ink" type="submit">"Add"</button>
                    </div>
                </form>
            }
            .into_any()
        } else {
            view! { <section class="p p-first"><p>"An admin adds and changes people."</p></section> }.into_any()
        };
        view! {
            <Head title="People">"Who may sign in, and what they may sign."</Head>
            {tabs(Tab::People)}
            {faults(refused)}
            <div class="gap-top"><Sheet slip=slip.into_any() stub=stub stub_label="Add a person" /></div>
        }
    }))
}

async fn find_person(visitor: &Visitor, id: &PersonId) -> Result<Person> {
    let found = person::by_id(&mut visitor.desk.store.read().await?, id).await?;
    Ok(found.ok_or_else(|| Problem::new(Code::NotFound, "there is no such person"))?)
}

async fn one_person(visitor: Visitor, _: Admin, Path(id): Path<PersonId>) -> Result<Page> {
    let person = find_person(&visitor, &id).await?;
    Ok(person_page(&visitor, &person, None))
}

#[derive(Deserialize)]
struct PersonForm {
    role: String,
    #[serde(default)]
    groups: String,
    /// `yes` when they may sign in.
    #[serde(default)]
    enabled: String,
}

async fn change_person(
    visitor: Visitor,
    admin: Admin,
    Path(id): Path<PersonId>,
    Form(given): Form<PersonForm>,
) -> Result<Response> {
    let read = || -> std::result::Result<PersonChange, Problem> {
        Ok(PersonChange {
            role: Some(given.role.parse()?),
            groups: Some(groups(&given.groups)?),
            disabled: Some(given.enabled != "yes"),
            password: None,
        })
    };
    let change = read();
    answer_person(&visitor, &admin, id, change).await
}

#[derive(Deserialize)]
struct NewPassword {
    password: String,
}

async fn set_password(
    visitor: Visitor,
    admin: Admin,
    Path(id): Path<PersonId>,
    Form(given): Form<NewPassword>,
) -> Result<Response> {
    let password = Password::try_from(given.password).map_err(fault("/password"));
    let change = password.map(|password| PersonChange { password: Some(password), ..PersonChange::default() });
    answer_person(&visitor, &admin, id, change).await
}

async fn answer_person(
    visitor: &Visitor,
    admin: &Admin,
    id: PersonId,
    change: std::result::Result<PersonChange, Problem>,
) -> Result<Response> {
    let person = find_person(visitor, &id).await?;
    let changed = match change {
        Ok(change) => account::change_person(&visitor.desk, &admin.into(), id, change).await,
        Err(problem) => Err(problem.into()),
    };
    match changed {
        Ok(_) => Ok(Redirect::to("/settings/people").into_response()),
        Err(error) => {
            let problem = beside_form(error)?;
            Ok(person_page(visitor, &person, Some(&problem)).refused(problem.code).into_response())
        }
    }
}

fn person_page(visitor: &Visitor, person: &Person, refused: Option<&Problem>) -> Page {
    let address = format!("/settings/people/{}", person.id);
    let password = format!("{address}/password");
    let does = role_words(person.role);
    visitor.page(&person.name, Place::Settings, || {
        let slip = view! {
            <form class="sec sec-first stack" action=address method="post">
                <label class="field">
                    <span>"Role"</span>
                    <select class="in" name="role">{roles(person.role)}</select>
                </label>
                <label class="field">
                    <span>"Groups"</span>
                    <input
                        class="in"
                        name="groups"
                        maxlength="500"
                        autocapitalize="off"
                        spellcheck="false"
                        value=person.groups.join(" ")
                    />
                </label>
                <label class="pick">
                    <input type="checkbox" name="enabled" value="yes" checked=person.is_enabled() />
                    " may sign in"
                </label>
                <div class="acts">
                    <button class="btn btn-ink" type="submit">"Save"</button>
                    <a href="/settings/people">"Back, and change nothing"</a>
                </div>
            </form>
        };
        let stub = view! {
            <form class="p p-first" action=password method="post">
                <div class="p-head"><h2>"Set a new password"</h2></div>
                <div class="stack">
                    <label class="field">
                        <span>"Password"</span>
                        <input
                            class="in"
                            type="password"
                            name="password"
                            minlength="12"
                            maxlength="1024"
                            required
                            autocomplete="new-password"
                        />
                        <small>"Ends all their sessions."</small>
                    </label>
                    <button class="btn" type="submit">"Set it"</button>
                </div>
            </form>
            <section class="p">
                <p>"Who is disabled loses their sessions at once, and their votes stop counting at the claim."</p>
                <p class="id">{person.id.to_string()}</p>
            </section>
        };
        view! {
            <nav class="crumbs" aria-label="Place"><a href="/settings/people">"People"</a></nav>
            <Head title=person.name.clone()>{does}</Head>
            {faults(refused)}
            <div class="gap-top"><Sheet slip=slip.into_any() stub=stub.into_any() stub_label="Password" /></div>
        }
    })
}
