//! `demo`

use super::{Failure, Result, healthcheck::reachable, say, serve};
use crate::server::{
    config::Config,
    demo::{self, Api, Cast},
    store::person,
};

/// Seconds of a claim: short, so that an outcome that nobody reports becomes unknown while somebody is looking.
const CLAIM_TTL_S: i64 = 20;

pub async fn run(config: Config) -> Result<()> {
    let config = Config { claim_ttl_s: config.claim_ttl_s.min(CLAIM_TTL_S), ..config };
    serve::run_after(config, async |desk, stop| {
        if person::count(&mut desk.store.read().await?).await? > 0 {
            let words =
                format!("the demo fills a fresh database, and there are people in `{:?}`", desk.config.database);
            return Err(Failure::new(words).hint("set `COUNTERFOIL_DATA_DIR` to a new folder, or run `make demo`"));
        }
        let cast = Cast::hire(desk).await?;
        invite(&cast, &desk.config.public_url);
        let api = Api::new(reachable(desk.config.listen), &desk.config.public_url);
        tokio::spawn(stop.clone().run_until_cancelled_owned(demo::play(api, cast)));
        Ok(())
    })
    .await
}

fn invite(cast: &Cast, url: &str) {
    say(&format!("\nSign in at {url}\n"));
    for visitor in &cast.visitors {
        say(&format!("  {:<10}{:<20}{}", visitor.name, visitor.password, visitor.part));
    }
    say(
        "\nSix simulated agents propose, claim and report over HTTP. What you leave alone, a simulated colleague decides.\n",
    );
}
