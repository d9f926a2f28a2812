//! Whether a process may announce groups now: each group costs controls, which delay those of others.

use super::{ChannelGroups, ControlDescriptorId};
use crate::clients::Processes;
use crate::io::Io;
use sluice_comm::attach::ContextHandles;
use sluice_core::ProcessId;
use sluice_rate_limiter::{Rate, RateLimiter};
use std::os::fd::OwnedFd;
use tracing::warn;

/// When groups may be announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Now,
    /// Not before this time.
    At(u64),
    Never,
}

/// Groups of one client's processes that are kept.
const MAX_OF_CLIENT: usize = 64;

/// Groups of all clients that are kept.
const MAX_GROUPS: usize = 1024;

/// New groups that one client may announce: 64 at once, and 10 a second in the long run. The controls of a group take about 1.5 ms, so
/// that is 1.5 % of the driver's time.
const ANNOUNCEMENTS: Rate = Rate::one_per(64, 100_000_000);

impl ChannelGroups {
    /// Whether a process may announce these groups now. Groups that it has already cost nothing.
    pub(crate) fn admit(
        &mut self,
        id: ProcessId,
        contexts: &[ContextHandles],
        processes: &Processes,
        io: &mut Io,
    ) -> Admission {
        let Some(client) = processes.client_of(id).filter(|_| self.driver.is_some()) else {
            return Admission::Never;
        };
        let (now, count) = (io.now(), contexts.len());
        let new = contexts.iter().filter(|context| self.unchanged(id, context).is_none()).count();
        let of_client = self.of_others(Some(id)).filter(|g| processes.client_of(g.process) == Some(client));
        let fits = of_client.count() + count <= MAX_OF_CLIENT
            && self.of_others(Some(id)).count() + count <= MAX_GROUPS;
        let limit = self.announcement_limits.entry(client).or_insert(RateLimiter::full(ANNOUNCEMENTS));
        if count == 0 || fits && limit.try_take(new as u64, now) {
            return Admission::Now;
        }
        // It gives back all its groups meanwhile, so all of them are announced anew.
        let ready_at = limit.ready_at(count as u64).filter(|_| fits);
        io.metrics.channel_groups.announcements_refused.inc();
        if io.may_log("announcement").is_some() {
            let peer = processes.label(id);
            warn!(peer, "client announces too many contexts, or too often: process is scheduled by token");
        }
        ready_at.map_or(Admission::Never, |at| Admission::At(at.max(now)))
    }

    /// Opens the control descriptors of a process; `None` for descriptors that are none.
    pub(super) fn open_all(
        &mut self,
        id: ProcessId,
        descriptors: Vec<OwnedFd>,
        processes: &Processes,
        io: &mut Io,
    ) -> Vec<Option<ControlDescriptorId>> {
        let pidfd = processes.get(id).and_then(|process| process.pidfd.as_ref());
        let mut opened = Vec::new();
        for fd in descriptors {
            opened.push(match self.open(fd, pidfd) {
                Ok(descriptor) => Some(descriptor),
                Err((fd, why)) => {
                    io.closer.close(fd);
                    io.metrics.channel_groups.descriptors_refused.inc();
                    if io.may_log("descriptor").is_some() {
                        let peer = processes.label(id);
                        warn!(peer, "contexts cannot be controlled, process is scheduled by token: {why}");
                    }
                    None
                }
            });
        }
        opened
    }
}
