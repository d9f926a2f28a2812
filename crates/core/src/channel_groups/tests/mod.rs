//! Channel-group scheduling with a ledger, and with a simulated GPU, driver and clock.

mod control_rate;
mod dependent;
mod failures;
mod hand_offs;
mod invariant;
mod model_check;
mod probation;
mod rebuild;
mod release_sequence;
mod second_group;
mod shares;
mod simulated_process;
mod simulation;
mod slices;
mod stalled;
mod stopped;
mod waiting;
