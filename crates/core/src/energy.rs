//! The energy of a GPU, attributed to clients by execution time.
//!
//! The driver counts the energy of the whole GPU. What the GPU draws without work is kept apart: it is learned in times in which no client
//! executed. The rest of each period is divided by the time that each client executed in it. All parts add up to what the driver counted
//! from the first reading on.

use crate::ids::ClientId;
use std::collections::BTreeMap;

/// The shortest period that is attributed, nanoseconds: the driver brings its counter up to date some ten times a second.
const LEAST_PERIOD_NS: u64 = 200_000_000;
/// The weight of a new period without execution in the idle power, as a divisor.
const SMOOTHING: u64 = 8;
/// The part of a period, as a divisor, below which execution does not count: the power is that of an idle GPU.
const NEGLIGIBLE: u64 = 1_000;

/// Energy of a period, millijoules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnergyParts {
    /// What the GPU drew, or would have drawn, without work.
    pub idle_mj: u64,
    /// What each client caused beyond that.
    pub clients: Vec<(ClientId, u64)>,
}

#[derive(Clone, Debug)]
struct Reading {
    at: u64,
    total_mj: u64,
    /// GPU time of each client until then, nanoseconds.
    executed: BTreeMap<ClientId, u64>,
}

/// Attributes the energy of one GPU.
#[derive(Clone, Debug, Default)]
pub struct EnergyMeter {
    last: Option<Reading>,
    /// Power without work, milliwatts; `None`: no period without execution has been seen, and clients are attributed all of it.
    idle_mw: Option<u64>,
}

impl EnergyMeter {
    /// Takes a reading of the driver's counter at `now`, when each client has executed for so long since it was added, nanoseconds. Returns
    /// the parts of the energy since the last reading that was attributed. `None`: it is the first one, or too short a time has passed.
    pub fn read(
        &mut self,
        total_mj: u64,
        now: u64,
        executed: impl Iterator<Item = (ClientId, u64)>,
    ) -> Option<EnergyParts> {
        let last = self.last.as_ref();
        if last.is_some_and(|last| now < last.at.saturating_add(LEAST_PERIOD_NS)) {
            return None;
        }
        let this = Reading { at: now, total_mj, executed: executed.collect() };
        let last = self.last.replace(this.clone())?;
        // The counter begins anew when the driver is loaded.
        let energy_mj = total_mj.checked_sub(last.total_mj)?;
        let since = |(id, ns): (&ClientId, &u64)| {
            (*id, ns.saturating_sub(last.executed.get(id).copied().unwrap_or(0)))
        };
        let used: Vec<(ClientId, u64)> = this.executed.iter().map(since).collect();
        Some(self.divide(energy_mj, now - last.at, &used))
    }

    fn divide(&mut self, energy_mj: u64, period_ns: u64, used: &[(ClientId, u64)]) -> EnergyParts {
        let executed_ns: u64 = used.iter().map(|(_, ns)| ns).sum();
        if executed_ns <= period_ns / NEGLIGIBLE {
            let power_mw = scaled(energy_mj, 1_000_000_000, period_ns);
            self.idle_mw = Some(match self.idle_mw {
                Some(known) => known.saturating_mul(SMOOTHING - 1).saturating_add(power_mw) / SMOOTHING,
                None => power_mw,
            });
            return EnergyParts { idle_mj: energy_mj, clients: Vec::new() };
        }
        let idle_mj = scaled(self.idle_mw.unwrap_or(0), period_ns, 1_000_000_000).min(energy_mj);
        let (mut left_mj, mut left_ns) = (energy_mj - idle_mj, executed_ns);
        let mut clients = Vec::new();
        for (id, ns) in used.iter().filter(|(_, ns)| *ns > 0) {
            // Of what is left, so that the parts add up.
            let part_mj = scaled(left_mj, *ns, left_ns);
            (left_mj, left_ns) = (left_mj - part_mj, left_ns - ns);
            clients.push((*id, part_mj));
        }
        EnergyParts { idle_mj, clients }
    }
}

/// `amount` × `by` / `of`, rounded down.
fn scaled(amount: u64, by: u64, of: u64) -> u64 {
    u64::try_from(u128::from(amount) * u128::from(by) / u128::from(of.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
