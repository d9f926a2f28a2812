//! The whole agent with a driver, an API server and managers that do what the tests say.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs, reason = "a test")]

mod api;
mod limits;
mod manager;
mod node;
mod pages;
mod restarts;
