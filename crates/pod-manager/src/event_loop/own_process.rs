//! Which of the processes that NVML lists are of the asking client.

use super::EventLoop;
use crate::peer::Peers;
use sluice_core::ProcessId;

impl EventLoop {
    /// Whether `pid` is a process of the client of `asking`, as NVML numbers processes for it: in its own pid namespace, or in the host's.
    pub(super) fn is_own_process(&mut self, asking: ProcessId, pid: u32) -> bool {
        let processes = &mut self.processes;
        let (Ok(pid), Some(client)) = (i32::try_from(pid), processes.client_of(asking)) else { return false };
        // Those of attached processes were read at the ATTACH. Each is read once: a tenant that asks often causes no system calls.
        for id in processes.ids_of_client(client) {
            if let Some(process) = processes.get_mut(id)
                && let Some(of_host) = process.pid
                && process.endpoint.namespace_pids.is_empty()
            {
                process.endpoint.namespace_pids = namespace_pids(of_host, &mut *self.connections.peers);
            }
        }
        let depth = processes.get(asking).map_or(0, |process| process.endpoint.namespace_pids.len());
        let in_namespace = |pids: &[i32]| depth.checked_sub(1).and_then(|at| pids.get(at)).copied();
        processes.of_client(client).any(|(_, process)| {
            process.pid == Some(pid) || in_namespace(&process.endpoint.namespace_pids) == Some(pid)
        })
    }
}

/// The number of a process in each of its pid namespaces; only the host's if the others cannot be read.
pub(super) fn namespace_pids(pid: i32, peers: &mut dyn Peers) -> Vec<i32> {
    let pids = peers.namespace_pids(pid);
    if pids.is_empty() { vec![pid] } else { pids }
}
