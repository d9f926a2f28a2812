//! How many connections there may be, by the configuration and by the descriptors that this process may have.

use crate::config::Config;
use nix::sys::resource::{Resource, getrlimit};

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) total: usize,
    pub(super) of_process: usize,
    /// Connections of one client's processes, and of one pod, whether it is a client or not: one of them cannot take those of all.
    pub(super) of_client: usize,
}

/// Connections that one client may have if there is room for those of others: 128 processes, such as the ranks of an MPI program on a
/// large host, also where the limit of descriptors is 1024.
const CLIENT_FLOOR: usize = 256;

/// Descriptors of a connection: a process has two connections, two pages, an eventfd and a pidfd.
const DESCRIPTORS_EACH: u64 = 3;

/// Descriptors for everything but connections: HTTP, the control API, driver files.
const DESCRIPTORS_RESERVED: u64 = 128;

impl Limits {
    /// Of this configuration, as far as the descriptors of this process suffice.
    pub(super) fn of(config: &Config) -> Self {
        Self::within(getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft), config)
    }

    fn within(descriptors: u64, config: &Config) -> Self {
        let free = descriptors - DESCRIPTORS_RESERVED.min(descriptors / 2);
        let possible = usize::try_from(free / DESCRIPTORS_EACH).unwrap_or(usize::MAX).max(4);
        let total = config.max_connections.min(possible);
        // A quarter, or the floor, but at least an eighth is left to others.
        let left = total.saturating_sub((total / 8).max(2));
        let of_client = (total / 4).max(CLIENT_FLOOR.min(left)).max(2);
        if possible < config.max_connections {
            tracing::warn!(
                descriptors,
                connections = total,
                of_client,
                "the limit of descriptors bounds the number of connections"
            );
        }
        Self { total, of_process: config.max_connections_per_process, of_client }
    }
}
