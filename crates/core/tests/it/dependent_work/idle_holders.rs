//! How long clients hold the GPU while none of their work can run and another client waits.

use super::tracker::{IDLE_NS, UNCONTENDED_POLL_NS};
use sluice_core::ledger::Policy;

/// The longest time if the hook can find what all holding processes of the client wait for. These are waits of threads, and commands of streams
/// that wait, if the hook has recorded an event before them or knows that their stream has no kernel. It does so while the page
/// shows that another client wants the GPU, and from the begin of the first grant if the client has a limit.
///
/// A limit does not change the time. The tracker of a client with a limit, too, polls every [`UNCONTENDED_POLL_NS`] and returns an idle grant
/// after 20 ms until another client wants the GPU, and sooner from then on. Idle time before that does not count here: no other client waits.
///
/// The tracker has begun to sleep before another client wanted the GPU. Its first poll finds launches since the one before. The next one finds that all kernels have ended, and a third
/// one that this was so for [`IDLE_NS`].
pub(super) const FOUND_NS: u64 = UNCONTENDED_POLL_NS + 2 * IDLE_NS;

/// The longest time if the hook takes a wait for a running kernel: the rest of the grant, and the time in which it must be returned. It does so
/// for
/// * a kernel that polls a value in memory;
/// * a command that waits and was submitted before another client wanted the GPU, if the page shows no limit;
/// * a command that waits, if a kernel is behind it. The hook holds such a launch back only if, when it begins, the page shows contention or a
///   limit, no kernel of the process runs, and the launch is the first one behind a command that is known to be ahead. It does so for 100 ms.
///   If the command has not ended by then, launches of this process wait for no command for 10 s.
pub(super) fn not_found_ns(policy: &Policy) -> u64 {
    policy.quota.cap_ns + policy.return_timeout_ns
}

/// One client's present time as an idle holder.
#[derive(Clone, Copy, Debug)]
struct Span {
    since: u64,
    /// The hook has taken a wait of one of its processes for a running kernel.
    is_unnoticed: bool,
}

/// The longest times so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Longest {
    pub(super) found_ns: u64,
    pub(super) not_found_ns: u64,
}

#[derive(Clone, Debug)]
pub(super) struct IdleHolders {
    spans: Vec<Option<Span>>,
    pub(super) longest: Longest,
}

impl IdleHolders {
    pub(super) fn new(clients: usize) -> Self {
        Self { spans: vec![None; clients], longest: Longest::default() }
    }

    /// Whether all spans so far were within the bounds. `Err`: the longest ones.
    pub(super) fn check(&self, policy: &Policy) -> Result<(), String> {
        let Longest { found_ns, not_found_ns: other_ns } = self.longest;
        let is_within = found_ns <= FOUND_NS && other_ns <= not_found_ns(policy);
        if is_within {
            Ok(())
        } else {
            Err(format!("a client held the GPU without work: {:?}", self.longest))
        }
    }

    /// Whether all spans so far were within [`FOUND_NS`]. `Err`: the longest ones.
    pub(super) fn check_all_found(&self) -> Result<(), String> {
        let Longest { found_ns, not_found_ns: other_ns } = self.longest;
        if found_ns.max(other_ns) <= FOUND_NS {
            Ok(())
        } else {
            Err(format!("a client held the GPU without work in a way that must be found: {:?}", self.longest))
        }
    }

    /// The client is an idle holder at `now`, or not. `is_unnoticed`: the hook takes a wait of one of its processes for a running kernel.
    pub(super) fn observe(&mut self, client: usize, now: u64, is_idle: bool, is_unnoticed: bool) {
        let before = self.spans[client];
        if let Some(span) = before {
            let longest = match span.is_unnoticed {
                true => &mut self.longest.not_found_ns,
                false => &mut self.longest.found_ns,
            };
            *longest = (*longest).max(now - span.since);
        }
        self.spans[client] = is_idle.then(|| {
            let span = before.unwrap_or(Span { since: now, is_unnoticed });
            Span { is_unnoticed: span.is_unnoticed || is_unnoticed, ..span }
        });
    }
}
