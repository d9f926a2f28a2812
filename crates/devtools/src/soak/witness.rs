//! The limits that must hold while calls are made, by the simulator's ledger.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sluice_sim::ledger::Ledger;

use super::clients::{CLIENTS, Client};
use super::disturbances::Targets;
use super::node::SoakNode;
use super::report::Findings;
use super::tenant_node::TenantNode;

/// Time between two readings.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a client with pools may be above its limit: an allocation that made a pool exceed it waits up to 1 s for its stream and may be
/// stopped meanwhile, and other threads make such allocations in the same time.
const LONGEST_EXCESS: Duration = Duration::from_secs(5);
/// What a client may have of the GPU above its limit over a round: kernels in flight, and the last grant.
const SHARE_TOLERANCE: f64 = 0.05;

/// The witness of a round.
pub(super) struct Witness {
    targets: Targets,
    from_ns: u64,
    state: RefCell<State>,
}

struct State {
    looked: Instant,
    /// Clients above their limit at the last reading, with the time of the first of such readings in a row.
    above: BTreeMap<&'static str, Instant>,
}

impl Witness {
    pub(super) fn begin(node: &SoakNode, targets: Targets) -> anyhow::Result<Self> {
        let from_ns = node.gpu().ledger()?.gpu.now_ns;
        let state = RefCell::new(State { looked: Instant::now(), above: BTreeMap::new() });
        Ok(Self { targets, from_ns, state })
    }

    /// Reads the ledger if it is time.
    pub(super) fn look(&self, node: &SoakNode, findings: &mut Findings) -> anyhow::Result<()> {
        let mut state = self.state.borrow_mut();
        if state.looked.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        state.looked = Instant::now();
        let ledger = node.gpu().ledger()?;
        // The manager may learn of a free before the simulator does: one reading proves nothing.
        let before = std::mem::take(&mut state.above);
        // Two processes share a limit only through the manager.
        let checked = |client: &&Client| client.is_single() || self.targets == Targets::Tenants;
        for client in CLIENTS.iter().filter(checked) {
            let used = memory_of_running(&ledger, client.name);
            let mut lasts = Duration::ZERO;
            if used > client.memory_bytes() {
                let since = before.get(client.name).copied().unwrap_or(state.looked);
                lasts = state.looked - since;
                state.above.insert(client.name, since);
            }
            let (statement, longest) = if client.pools {
                ("no client with pools has more memory than its limit for 5 s", LONGEST_EXCESS)
            } else {
                ("no client has more memory than its limit for two readings", Duration::ZERO)
            };
            findings.check(statement, lasts <= longest, || {
                format!("{} has {used} of {} bytes", client.name, client.memory_bytes())
            });
        }
        Ok(())
    }

    /// Checks what holds over the whole round.
    pub(super) fn end(&self, node: &SoakNode, findings: &mut Findings) -> anyhow::Result<()> {
        let ledger = node.gpu().ledger()?;
        for client in CLIENTS.iter().filter(|client| !client.pools) {
            let own = ledger.processes.iter().filter(|row| row.label == client.name);
            let peak = own.map(|row| row.memory_peak_bytes).max().unwrap_or(0);
            let statement = "no process ever had more memory than its client's limit";
            findings.check(statement, peak <= client.memory_bytes(), || {
                format!("{} had {peak} of {} bytes", client.name, client.memory_bytes())
            });
        }
        if self.targets == Targets::Tenants {
            let window = node.gpu().window(self.from_ns, ledger.gpu.now_ns)?;
            for client in CLIENTS.iter().filter(|client| client.limit < 1.0) {
                let share = share(&ledger, &window, client);
                let is_kept = share <= client.limit + SHARE_TOLERANCE;
                findings.check("no client has more of the GPU than its limit", is_kept, || {
                    format!("{} had {share:.3} with a limit of {}", client.name, client.limit)
                });
            }
        }
        Ok(())
    }
}

/// Memory of the processes of a client that run. As on a GPU, that of a killed one stays until the manager and the agent have closed their
/// copies of its control descriptor, which a stopped agent does later.
pub(super) fn memory_of_running(ledger: &Ledger, client: &str) -> u64 {
    let own = ledger.processes.iter().filter(|row| row.label == client && !row.ended);
    own.map(|row| row.memory_bytes).sum()
}

/// Memory of all processes of a client, ended ones included.
pub(super) fn memory(ledger: &Ledger, client: &str) -> u64 {
    ledger.labels.get(client).map_or(0, |label| label.memory_bytes)
}

fn share(ledger: &Ledger, window: &sluice_sim::ledger::Window, client: &Client) -> f64 {
    let own = ledger.processes.iter().filter(|row| row.label == client.name);
    own.map(|row| window.share_of_time(row.pid)).sum()
}
