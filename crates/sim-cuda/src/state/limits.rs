//! The limits of a context that take GPU memory: the stacks of all threads that can run at once, and the heap of kernels.
//!
//! The memory of the initial limits is a part of the context. What a program adds is counted at once.

use super::context::Device;
use super::lock;
use super::memory::count;
use crate::border::Status;
use sluice_driver_api::types::*;
use sluice_sim::params;
use std::sync::Mutex;

/// Bytes of a new context: of each thread's stack, and of the heap.
const INITIAL: [usize; 2] = [1 << 10, 8 << 20];
/// How often the GPU has a stack and a heap.
const NUMBER: [usize; 2] = [params::SMS as usize * params::THREADS_PER_SM as usize, 1];

pub(crate) struct Limits(Mutex<[usize; 2]>);

impl Default for Limits {
    fn default() -> Self {
        Self(Mutex::new(INITIAL))
    }
}

fn index(limit: CUlimit) -> Option<usize> {
    match limit {
        CU_LIMIT_STACK_SIZE => Some(0),
        CU_LIMIT_MALLOC_HEAP_SIZE => Some(1),
        _ => None,
    }
}

/// Bytes beyond those of a new context.
fn added(index: usize, value: usize) -> usize {
    value.saturating_sub(INITIAL[index]).saturating_mul(NUMBER[index])
}

impl Limits {
    pub(crate) fn get(&self, limit: CUlimit) -> Option<usize> {
        index(limit).map(|index| lock(&self.0)[index])
    }

    pub(crate) fn set(&self, device: &Device, limit: CUlimit, value: usize) -> Status {
        let Some(index) = index(limit) else { return Ok(()) };
        let mut values = lock(&self.0);
        let (before, after) = (added(index, values[index]), added(index, value));
        if after > before {
            count(device, after - before)?;
        }
        values[index] = value;
        free(device, before.saturating_sub(after));
        Ok(())
    }

    /// The context ends.
    pub(crate) fn end(&self, device: &Device) {
        let values = std::mem::replace(&mut *lock(&self.0), INITIAL);
        values.iter().enumerate().for_each(|(index, value)| free(device, added(index, *value)));
    }
}

fn free(device: &Device, bytes: usize) {
    if bytes > 0 {
        // The daemon may have ended, and with it the count.
        let _ = device.gpu.free(bytes as u64);
    }
}
