//! Steering: whose channel groups may run on the GPU, and with which time slice, whatever their owners do.
//!
//! [`Steering`] is the only public question: it asks and returns in the [token ledger](crate::ledger) on behalf of the
//! processes that it steers, turns the ledger's grants into a setting for each channel group, and says which control
//! to make next. Controls are slow (0.3 to 0.9 ms) and lock the driver for the whole node, so one is in flight at a time,
//! and none is made where nothing changes.
//!
//! * *Free*: nobody waits, at most one client holds a grant, and no latency-critical process is attached. Who has no limit runs with
//!   the driver's own slice.
//! * *Turns*: somebody else waits or holds a grant. Who holds one runs, all others are stopped.
//! * *Guarded*: a latency-critical process is attached. Best-effort groups have the shortest slice there is, and at most
//!   one of them runs: two of them would take turns without ever getting anything done. The one changes while no
//!   latency-critical process is busy, or after a time, whatever they do.
//!
//! At most one running group has a slice below [`TINY_US`], also between two controls and when one fails: that is what
//! [`Reconciler`] is for, and [`Release`] where nobody will come back to make things good.

mod activity;
mod allowance;
mod budget;
mod control;
mod gate;
mod group;
mod members;
mod plan;
mod policy;
mod process;
mod reconciler;
mod release;
mod steer;
#[cfg(test)]
mod tests;
mod turns;

pub use activity::Activity;
pub use allowance::Allowance;
pub use control::{Control, GroupId, Op, Outcome, Setting};
pub use gate::Gate;
pub use policy::{DEFAULT_US, SteeringPolicy, TINY_US};
pub use process::Turn;
pub use reconciler::{Change, Reconciler, Released};
pub use release::{Known, Release};
pub use steer::{Event, Steering};
