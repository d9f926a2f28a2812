//! How long a thread waits for an answer.

use std::time::Duration;

use sluice_comm::{HOOK_TIMEOUT, SILENCE_NS};

/// How long an answer may take. A manager that is known to be silent is never waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerLimit {
    /// While the manager's heartbeat is fresh.
    pub(super) present: Option<Duration>,
    /// Without a heartbeat to read. A manager that takes longer counts as silent.
    pub(super) unknown: Option<Duration>,
}

impl AnswerLimit {
    /// For requests that a pod-manager answers when it reads them.
    pub(super) const AT_ONCE: Self =
        Self { present: Some(HOOK_TIMEOUT), unknown: Some(Duration::from_nanos(SILENCE_NS)) };

    /// For requests that a running manager may answer late, within this time.
    pub(super) const fn within(limit: Duration) -> Self {
        Self { present: Some(limit), unknown: Some(limit) }
    }

    /// For requests for a grant. A manager with a heartbeat answers when other clients let it.
    pub(super) const GRANT: Self = Self { present: None, unknown: Some(GRANT_TIMEOUT) };

    /// For a manager whose requests and silence are not seen.
    pub(super) const NONE: Self = Self { present: None, unknown: None };
}

/// How long a manager without a heartbeat may take for a grant. Such managers account for the limits of clients over 10 s.
const GRANT_TIMEOUT: Duration = Duration::from_secs(10);
