//! The witness on a real GPU.
//!
//! GPU time: the tenants' kernels are equally long, and a tenant's buffer proves at the end how many ran, so shares are counted
//! in kernels. Memory: NVML, by process; where it does not know our process ids (in a container, often), by what the whole
//! device gains, which is unambiguous because tenants start one after the other and only one of them allocates later.

use anyhow::Context;
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;

use super::cast::Player;
use super::witness::{Seen, Sight};

/// NVML counts in whole blocks of 2 MiB, of which each allocation of less than one may open another; the driver's own memory
/// grows a little while a process runs.
pub(crate) const MEMORY_SLACK: u64 = 32 << 20;

/// NVML's view of one device.
#[derive(Debug)]
pub(crate) struct DeviceWitness {
    nvml: Nvml,
    uuid: String,
    name: String,
    /// Bytes in use on the device when the last tenant had started.
    device_used: u64,
    tenants: Vec<Tracked>,
    /// Sum and number of utilisation samples, percent.
    utilization: (u64, u64),
}

/// Memory of one tenant.
#[derive(Debug)]
struct Tracked {
    pid: i32,
    runs_into_limit: bool,
    /// In use at its start, its driver's own memory included.
    at_start: u64,
    /// Of that, allocated by the tenant.
    held_at_start: u64,
    /// Allocated by the tenant when last seen, and at most.
    held: u64,
    peak: u64,
}

impl DeviceWitness {
    /// Opens NVML for the device of this UUID.
    ///
    /// # Errors
    /// If NVML is missing or does not know the device.
    pub(crate) fn open(uuid: &str) -> anyhow::Result<Self> {
        let nvml = Nvml::init().context("NVML, which is needed to see what a real GPU does")?;
        let (name, device_used) = {
            let device = nvml.device_by_uuid(uuid).with_context(|| format!("NVML does not know {uuid}"))?;
            (device.name()?, device.memory_info()?.used)
        };
        Ok(Self { nvml, uuid: uuid.to_owned(), name, device_used, tenants: Vec::new(), utilization: (0, 0) })
    }

    /// The device's name.
    pub(crate) fn name(&self) -> String {
        self.name.clone()
    }

    /// A tenant has started; nobody else has allocated since the last call.
    pub(crate) fn arrived(&mut self, player: &Player) -> anyhow::Result<()> {
        let used = self.device_used_now()?;
        let gained = used.saturating_sub(self.device_used);
        self.device_used = used;
        let pid = player.process.pid();
        let held = player.tenant.holds_at_start;
        self.tenants.push(Tracked {
            pid,
            runs_into_limit: player.tenant.runs_into_limit,
            at_start: self.used_by(pid)?.unwrap_or(gained),
            held_at_start: held,
            held,
            peak: held,
        });
        Ok(())
    }

    /// Takes a sample and says what has been seen so far. Kernel counts are the tenants' claims until the end.
    pub(crate) fn look(&mut self, players: &[Player]) -> anyhow::Result<Sight> {
        let gained = self.device_used_now()?.saturating_sub(self.device_used);
        let percent = self.nvml.device_by_uuid(self.uuid.as_str())?.utilization_rates()?.gpu;
        if players.iter().all(|player| player.ending.is_none()) {
            self.utilization = (self.utilization.0 + u64::from(percent), self.utilization.1 + 1);
        }
        let mut sight = Sight { busy: self.busy(), ..Sight::default() };
        for index in 0..self.tenants.len() {
            let now = self.tenants.get(index).map(|tenant| self.used_by(tenant.pid)).transpose()?.flatten();
            let Some(tenant) = self.tenants.get_mut(index) else { continue };
            tenant.saw(now, gained);
            let Some(player) = players.iter().find(|player| player.process.pid() == tenant.pid) else {
                continue;
            };
            let (submitted, completed) = player.claimed_kernels();
            let gpu_ns = completed * u64::from(player.tenant.kernel_us) * 1000;
            let seen = Seen { gpu_ns, memory: tenant.held, memory_peak: tenant.peak, submitted, completed };
            sight.tenants.insert(tenant.pid, seen);
        }
        Ok(sight)
    }

    fn busy(&self) -> f64 {
        self.utilization.0 as f64 / self.utilization.1.max(1) as f64 / 100.0
    }

    fn device_used_now(&self) -> anyhow::Result<u64> {
        Ok(self.nvml.device_by_uuid(self.uuid.as_str())?.memory_info()?.used)
    }

    /// Bytes that a process uses, if NVML knows it by the id that we know.
    fn used_by(&self, pid: i32) -> anyhow::Result<Option<u64>> {
        let processes = self.nvml.device_by_uuid(self.uuid.as_str())?.running_compute_processes()?;
        let process = processes.iter().find(|process| i32::try_from(process.pid) == Ok(pid));
        Ok(process.and_then(|process| match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        }))
    }
}

impl Tracked {
    /// `used` by the process, if NVML says so; `gained` by the device since all tenants had started.
    fn saw(&mut self, used: Option<u64>, gained: u64) {
        let more = match used {
            Some(used) => used.saturating_sub(self.at_start),
            None if self.runs_into_limit => gained,
            None => 0,
        };
        self.held = self.held_at_start + more;
        self.peak = self.peak.max(self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracked(runs_into_limit: bool) -> Tracked {
        Tracked { pid: 1, runs_into_limit, at_start: 600, held_at_start: 100, held: 100, peak: 100 }
    }

    #[test]
    fn the_drivers_own_memory_is_not_the_tenants() {
        let mut tenant = tracked(false);
        tenant.saw(Some(650), 9999);
        assert_eq!((tenant.held, tenant.peak), (150, 150));
        tenant.saw(Some(600), 9999);
        assert_eq!((tenant.held, tenant.peak), (100, 150));
    }

    #[test]
    fn where_processes_are_not_known_the_growing_tenant_is_what_the_device_gained() {
        let (mut growing, mut other) = (tracked(true), tracked(false));
        growing.saw(None, 70);
        other.saw(None, 70);
        assert_eq!((growing.held, other.held), (170, 100));
    }
}
