//! Steering with a ledger, a GPU and a driver that are made up, in simulated time.

mod failures;
mod hand_overs;
mod invariant;
mod model;
mod release;
mod shares;
mod world;
