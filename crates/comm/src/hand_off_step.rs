//! The steps of a hand-off of the token that hook and manager record if a benchmark asks for it.

/// Environment variable of hook and manager with the path of the record; without it nothing is recorded.
pub const HAND_OFF_STEPS: &str = "SLUICE_HAND_OFF_STEPS";

/// A step, in the order in which they follow each other. The holder's hook, the manager and the next client's hook each take some.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum HandOffStep {
    /// Holder: the tracker begins the drain.
    DrainBegun = 1,
    /// Holder: the launches of all threads are ordered with the drain.
    ThreadsOrdered,
    /// Holder: no launch is in flight.
    LaunchesEnded,
    /// Holder: events are recorded behind all work.
    WorkMarked,
    /// Holder: all work has ended on the GPU.
    WorkEnded,
    /// Holder: the grant is returned to the manager.
    Returned,
    /// Manager: the event loop has read the return.
    ReturnRead,
    /// Manager: the ledger has decided about the next grant.
    Decided,
    /// Manager: the next client's page shows the grant.
    Shown,
    /// Next client: the waiting launch has learnt of the grant.
    GrantRead,
    /// Next client: the launch gate is open.
    GateOpened,
    /// Next client: the launch is noted, and its begin is marked on the GPU.
    LaunchNoted,
    /// Holder: the tracker polls for the deadline.
    TrackerPolls = 32,
    /// Manager: the event loop polls.
    ManagerPolls,
    /// Next client: the waiting launch polls.
    LaunchPolls,
}

impl HandOffStep {
    /// The steps from the deadline to the launch.
    pub const ALL: [Self; 12] = [
        Self::DrainBegun,
        Self::ThreadsOrdered,
        Self::LaunchesEnded,
        Self::WorkMarked,
        Self::WorkEnded,
        Self::Returned,
        Self::ReturnRead,
        Self::Decided,
        Self::Shown,
        Self::GrantRead,
        Self::GateOpened,
        Self::LaunchNoted,
    ];
}
