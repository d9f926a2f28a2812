//! Channel-group scheduling: which channel groups may run on the GPU, and with which time slice, enforced by the
//! driver.
//!
//! [`ChannelGroupScheduler`] is the only public entry. It requests and returns grants in the [token
//! ledger](crate::ledger) for the hardware-scheduled processes, derives a setting for each channel group from the
//! grants, and returns the next control to make. A control takes 0.3 to 0.9 ms and locks the driver of the whole node.
//! Therefore at most one is in flight, and none is made where nothing changes.
//!
//! * *Free*: no client waits, at most one client holds a grant, and no latency-critical process works. The groups
//!   of a client without a limit keep the driver's default slice.
//! * *Quanta*: another client waits or holds a grant. The groups of the holder are enabled, all others are disabled.
//! * *Guarded*: a latency-critical process has had work in the last [`absent_ns`](ChannelGroupPolicy::absent_ns). Best-effort groups have
//!   the shortest slice that exists, and at most one of them is enabled: two of them would switch contexts without making progress. The enabled group changes
//!   while no latency-critical process is busy, or after a bounded wait. A second group of its client is enabled with a slice of
//!   [`TINY_SLICE_US`] where hold kernels hide that slice (`second_group`). If every latency-critical process with work is
//!   host-bound, all groups have the driver's default slice instead.
//!
//! At most one enabled group has a slice below [`TINY_SLICE_US`], also between two controls and when one fails.
//! [`Reconciler`] keeps this invariant while the manager lives. [`ReleaseSequence`] keeps it where no later control can correct
//! the setting.

mod announcements;
mod control;
mod failures;
mod group;
mod hand_off_window;
mod plan;
mod policy;
mod probation;
mod process;
mod quanta;
mod rebuild;
mod reconciler;
mod release_sequence;
mod scheduler;
mod second_group;
mod slices;
mod stalled;
mod stop;
#[cfg(test)]
mod tests;
mod waits;

pub use control::{Control, ControlOp, ControlOutcome, GroupId, Setting};
pub use policy::{ChannelGroupPolicy, DEFAULT_SLICE_US, TINY_SLICE_US};
pub use process::{Activity, QuantumState};
pub use reconciler::Reconciler;
pub use release_sequence::{KnownSetting, ReleaseSequence};
pub use scheduler::{ChannelGroupScheduler, Event};
pub use stalled::{Progress, StallDetector};
