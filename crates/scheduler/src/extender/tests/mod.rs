//! The extender as a kube-scheduler and an API server meet it.

mod burst;
mod calls;
mod fake_api;
mod json;
mod stale;
mod time;
mod world;
