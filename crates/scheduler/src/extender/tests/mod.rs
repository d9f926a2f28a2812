//! The extender as a kube-scheduler and an API server see it.

mod attempts;
mod burst;
mod calls;
mod cluster;
mod expiry;
mod fake_api;
mod gate;
mod json;
mod late_answers;
mod preempt;
mod recheck;
mod scale_up;
mod several_gpus;
