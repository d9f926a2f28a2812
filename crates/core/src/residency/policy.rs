//! The settings of the pager.

/// How much memory there is to give, and how often it changes hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagerPolicy {
    /// Bytes of the GPU for the memory of all clients, fixed and movable. The rest is the operator's reserve.
    pub capacity: u64,
    /// How long a client keeps its memory at least while another one waits for it, nanoseconds.
    pub min_quantum_ns: u64,
    /// After moves that took a time together, so many times that time passes before the next moves that no fixed memory needs. With 9, moves
    /// take at most a tenth of the time.
    pub run_per_move: u64,
    /// How long a move may take until the client counts as one that does not answer, nanoseconds.
    pub move_timeout_ns: u64,
    /// For how long a client that did not leave in time is not asked again, nanoseconds.
    pub unasked_ns: u64,
}

impl Default for PagerPolicy {
    fn default() -> Self {
        Self {
            capacity: 0,
            min_quantum_ns: 2_000_000_000,
            run_per_move: 9,
            move_timeout_ns: 20_000_000_000,
            unasked_ns: 60_000_000_000,
        }
    }
}
