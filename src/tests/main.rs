//! Integration tests; the modules mirror `server::service`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod audit;
mod backup;
mod callbacks;
mod cases;
mod catalogue;
mod change_sets;
mod claim;
mod collide;
mod command_line;
mod conflicts;
mod crash;
mod decide;
mod demo;
mod desk;
mod events;
mod gateway;
mod leases;
mod lifecycle;
mod load;
mod measures;
mod openapi;
mod ownership;
mod people;
mod propose;
mod providers;
mod races;
mod reconcile;
mod report;
mod resources;
mod run_approvals;
mod runs;
mod schema;
mod secrets;
mod security;
mod support;
