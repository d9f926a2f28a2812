//! The names of the policies.

use strum::{EnumString, IntoStaticStr, VariantArray};

/// The policies, by the names in scenario files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum PolicyName {
    /// Sluice: its token ledger and its channel-group scheduler, with the time that controls take.
    Sluice,
    /// The same, with automatic holds: from a request's first call on, ahead of requests at a steady pace, and for the linger time after them.
    #[strum(serialize = "sluice-holds")]
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
    /// Round robin with a time slice that is ten times longer with each better class (seed 002 §5.2.1).
    #[strum(serialize = "exponential-slices")]
    Exponential,
    /// The driver's round robin.
    TimeSlicing,
}

impl PolicyName {
    /// The name in scenario files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}
