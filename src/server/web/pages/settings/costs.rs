//! Settings: what people's time costs, for the on-call page.

use axum::{
    Router,
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use leptos::prelude::*;
use serde::Deserialize;

use super::{
    super::{
        parts::Head,
        render::{Page, Visitor},
        shell::Place,
    },
    Tab, beside_form, fault, faults, is_admin, tabs,
};
use crate::{
    model::problem::Problem,
    server::{
        service::{
            error::Result,
            measures::{self, UnitCosts},
        },
        web::{auth::Admin, body::Form, state::AppState},
    },
};

pub fn routes() -> Router<AppState> {
    Router::new().route("/settings/costs", get(costs).post(save))
}

async fn costs(visitor: Visitor) -> Result<Page> {
    let costs = measures::unit_costs(&mut visitor.desk.store.read().await?).await?;
    Ok(page(&visitor, costs.as_ref().map_or_else(Typed::default, Typed::from), None))
}

/// The form, as it was filled in.
#[derive(Default, Deserialize)]
struct Typed {
    currency: String,
    decision: String,
    intervention: String,
    unknown_minute: String,
    duplicate_effect: String,
}

impl From<&UnitCosts> for Typed {
    fn from(costs: &UnitCosts) -> Self {
        Self {
            currency: costs.currency.clone(),
            decision: costs.decision_minor.to_string(),
            intervention: costs.intervention_minor.to_string(),
            unknown_minute: costs.unknown_minute_minor.to_string(),
            duplicate_effect: costs.duplicate_effect_minor.to_string(),
        }
    }
}

impl Typed {
    fn costs(&self) -> std::result::Result<UnitCosts, Problem> {
        let minor = |text: &str, pointer| {
            text.trim().parse().map_err(|_| fault(pointer)("expected a whole number of minor units"))
        };
        Ok(UnitCosts {
            currency: self.currency.trim().to_uppercase(),
            decision_minor: minor(&self.decision, "/decision_minor")?,
            intervention_minor: minor(&self.intervention, "/intervention_minor")?,
            unknown_minute_minor: minor(&self.unknown_minute, "/unknown_minute_minor")?,
            duplicate_effect_minor: minor(&self.duplicate_effect, "/duplicate_effect_minor")?,
        })
    }
}

async fn save(visitor: Visitor, admin: Admin, Form(typed): Form<Typed>) -> Result<Response> {
    let saved = match typed.costs() {
        Ok(costs) => measures::set_unit_costs(&visitor.desk, &admin, costs).await,
        Err(problem) => Err(problem.into()),
    };
    match saved {
        Ok(_) => Ok(Redirect::to("/on-call").into_response()),
        Err(error) => {
            let problem = beside_form(error)?;
            Ok(page(&visitor, typed, Some(&problem)).refused(problem.code).into_response())
        }
    }
}

fn page(visitor: &Visitor, typed: Typed, refused: Option<&Problem>) -> Page {
    let is_admin = is_admin(visitor);
    visitor.page("Costs", Place::Settings, || {
        let amount = |name: &'static str, words: &'static str, value: String| {
            view! {
                <label class="field">
                    <span>{words}</span>
                    <input class="in in-mono" name=name inputmode="numeric" maxlength="12" required value=value disabled=!is_admin />
                </label>
            }
        };
        let foot = match is_admin {
            true => view! {
                <div class="acts">
                    <button class="btn btn-ink" type="submit">"Save"</button>
                    <a href="/on-call">"Back to On call"</a>
                </div>
            }
            .into_any(),
            false => view! { <p class="second">"An admin sets these."</p> }.into_any(),
        };
        view! {
            <Head title="Costs">
                "What one act of a person costs, in minor units: 250 is EUR 2.50. The on-call page says with them what one operation costs that was completed correctly."
            </Head>
            {tabs(Tab::Costs)}
            {faults(refused)}
            <form class="card pane gap-top stack narrow" action="/settings/costs" method="post">
                <label class="field">
                    <span>"Currency"</span>
                    <input class="in in-mono" name="currency" maxlength="3" required autocomplete="off" spellcheck="false" value=typed.currency disabled=!is_admin />
                </label>
                {amount("decision", "One vote", typed.decision)}
                {amount("intervention", "One intervention: a finding, a resolved conflict, an override, a stopped run", typed.intervention)}
                {amount("unknown_minute", "One minute in which an outcome is not known", typed.unknown_minute)}
                {amount("duplicate_effect", "One effect that was made more than once", typed.duplicate_effect)}
                {foot}
            </form>
        }
    })
}
