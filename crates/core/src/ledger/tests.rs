//! The token policy on a simulated clock.
