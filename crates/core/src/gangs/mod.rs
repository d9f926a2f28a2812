//! Gangs: clients with processes on several GPUs run on all of them in the same slot.
//!
//! A rank of a data-parallel training spins in a collective until its peers run, so a rank uses its quantum only if its peers have theirs at
//! the same time. With independent quanta two jobs with shares of 0.3 and 0.7 made 0.73 of what one makes alone (measured on two H200).
//!
//! Time is divided into cycles of [`CYCLE_NS`] of CLOCK_MONOTONIC, which all managers of a node share. Each gang has one [`Slot`] in every
//! cycle, the same on all of its GPUs. Every manager computes all slots by [`assign`] from the same tables. No manager leads, and
//! none waits for a message of another one before a hand-off. The token ledger grants the GPU to the gang whose slot is open, and the rest of
//! the time first to clients that have processes on this GPU alone. A client that is far behind its share is granted before all others.
//!
//! A latency-critical gang runs at any time. Beyond its limit or its request a manager may delay it, outside of its [`Window`], which is the
//! same on all of its GPUs.

mod assignment;
mod slots;
mod window;

pub use assignment::{GangTable, NodeGangs, assign};
pub use slots::{CYCLE_BY_GRANTS_NS, CYCLE_NS, Slot, Slots};
pub use window::Window;
