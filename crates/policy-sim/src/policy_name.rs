//! The names of the policies.

/// The policies, by the names in scenario files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyName {
    /// Sluice: its token ledger and its channel-group scheduler, with the time that controls take.
    Sluice,
    /// The same, with automatic holds: from a request's first call on, ahead of requests at a steady pace, and for the linger time after them.
    SluiceWithHolds,
    /// Gemini's token: the client that lags its request most in a window of 10 s.
    Gemini,
    /// Xen's credit scheduler.
    Credit,
    /// Virtual run time, as Linux' CFS.
    Fair,
    /// The earliest deadline first.
    Edf,
    /// The best class first, round robin inside it.
    Priority,
    /// The same, but a request whose `slo` allows it waits for the end of a burst that runs (seed 002 §5.2.4).
    SloThenEnergy,
    /// Round robin with a time slice that is ten times longer with each better class (seed 002 §5.2.1).
    Exponential,
    /// The driver's round robin.
    TimeSlicing,
}

impl PolicyName {
    /// Every policy.
    pub const ALL: [Self; 10] = {
        use PolicyName::*;
        [
            Sluice,
            SluiceWithHolds,
            Gemini,
            Credit,
            Fair,
            Edf,
            Priority,
            Exponential,
            TimeSlicing,
            SloThenEnergy,
        ]
    };

    /// Those of a scenario that names none. [`Self::SloThenEnergy`] differs from [`Self::Priority`] only with an `slo`.
    pub const DEFAULT: [Self; 9] = {
        use PolicyName::*;
        [Sluice, SluiceWithHolds, Gemini, Credit, Fair, Edf, Priority, Exponential, TimeSlicing]
    };

    /// The name in scenario files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sluice => "sluice",
            Self::SluiceWithHolds => "sluice-holds",
            Self::Gemini => "gemini",
            Self::Credit => "credit",
            Self::Fair => "fair",
            Self::Edf => "edf",
            Self::Priority => "priority",
            Self::SloThenEnergy => "slo-then-energy",
            Self::Exponential => "exponential-slices",
            Self::TimeSlicing => "time-slicing",
        }
    }
}
