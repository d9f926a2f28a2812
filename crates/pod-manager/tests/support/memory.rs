//! What a driver reports of the memory of processes, as the test sets it.

use sluice_pod_manager::measured_memory::{MemoryReader, ProcessMemory};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct State {
    processes: BTreeMap<i32, Option<u64>>,
    readings: u64,
    fails: bool,
    blocks: bool,
    energy_mj: Option<u64>,
}

/// Reports the processes that the test has set.
#[derive(Clone, Default)]
pub struct FakeMemory(Arc<Mutex<State>>);

impl FakeMemory {
    /// Sets the memory of a process; `None`: the driver does not report it.
    pub fn set(&self, pid: i32, bytes: Option<u64>) {
        self.0.lock().unwrap().processes.insert(pid, bytes);
    }

    pub fn set_failing(&self, fails: bool) {
        self.0.lock().unwrap().fails = fails;
    }

    /// Whether readings do not return.
    pub fn block(&self, blocks: bool) {
        self.0.lock().unwrap().blocks = blocks;
    }

    /// Sets the energy that the GPU has drawn in all.
    pub fn set_energy(&self, mj: u64) {
        self.0.lock().unwrap().energy_mj = Some(mj);
    }

    /// Readings so far.
    pub fn readings(&self) -> u64 {
        self.0.lock().unwrap().readings
    }
}

impl MemoryReader for FakeMemory {
    fn read(&mut self) -> Result<Vec<ProcessMemory>, String> {
        let mut state = self.0.lock().unwrap();
        state.readings += 1;
        while state.blocks {
            drop(state);
            std::thread::sleep(std::time::Duration::from_millis(1));
            state = self.0.lock().unwrap();
        }
        if state.fails {
            return Err("the test fails it".into());
        }
        Ok(state.processes.iter().map(|(pid, bytes)| ProcessMemory { pid: *pid, bytes: *bytes }).collect())
    }

    fn energy_mj(&mut self) -> Option<u64> {
        self.0.lock().unwrap().energy_mj
    }
}
