//! The driver API as a program uses it, against a daemon on a thread.
//!
//! A process has one driver, and captures concern all of its threads: the tests run one at a time.

mod captures;
mod checkpoints;
mod collectives;
mod controls;
mod launches;
mod loads;
mod memory;
mod streams;
mod words;

use crate::api::*;
use crate::border::{Ptr, Status};
use crate::state::driver::init_at;
use sluice_driver_api::types::*;
use sluice_sim::client;
use sluice_sim::daemon::{DaemonConfig, Handle, spawn_thread};
use sluice_sim::ledger::ProcessLedger;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

const MODULE: &[u8] = b"SLUICE-SIM 1
kernel mix params=ptr:u64,n:u32 ns=20000 effect=mix
kernel add params=ptr:u64,n:u32 ns=5000 effect=add
kernel none params=iters:u32 ns_per_iter=1000 effect=none
\0";

/// Memory of the simulated GPU: little enough to fill it.
const MEMORY: u64 = 4 << 30;

/// The one daemon of this process.
fn gpu() -> &'static Handle {
    static GPU: OnceLock<(Handle, tempfile::TempDir)> = OnceLock::new();
    let (handle, _) = GPU.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let mut config = DaemonConfig::at(dir.path().join("gpu"));
        config.gpu.memory_bytes = MEMORY;
        (spawn_thread(config).unwrap(), dir)
    });
    handle
}

/// Exclusive use of the process's driver: a context, and the kernels of [`MODULE`].
struct TestContext {
    context: CUcontext,
    mix: Ptr<CUfunc_st>,
    add: Ptr<CUfunc_st>,
    none: Ptr<CUfunc_st>,
    _exclusive: MutexGuard<'static, ()>,
}

fn handle<T>(handle: *mut T) -> Ptr<T> {
    Ptr::to_address(handle.expose_provenance())
}

fn begin_test() -> TestContext {
    static EXCLUSIVE: Mutex<()> = Mutex::new(());
    let exclusive = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
    init_at(gpu().socket().to_str().unwrap(), "tests").unwrap();
    let mut context = std::ptr::null_mut();
    cuCtxCreate_v2(Ptr::of(&mut context), 0, 0).unwrap();
    let mut module = std::ptr::null_mut();
    cuModuleLoadData(Ptr::of(&mut module), Ptr::first_of(&mut MODULE.to_vec()).cast()).unwrap();
    let function = |name: &str| {
        let mut function = std::ptr::null_mut();
        let mut name: Vec<c_char> =
            name.bytes().chain([0]).map(|byte| c_char::from_ne_bytes([byte])).collect();
        cuModuleGetFunction(Ptr::of(&mut function), handle(module), Ptr::first_of(&mut name)).unwrap();
        handle(function)
    };
    TestContext {
        context,
        mix: function("mix"),
        add: function("add"),
        none: function("none"),
        _exclusive: exclusive,
    }
}

impl Drop for TestContext {
    fn drop(&mut self) {
        let _ = cuCtxDestroy_v2(handle(self.context));
    }
}

fn legacy() -> Ptr<CUstream_st> {
    Ptr::null()
}

fn stream(flags: u32) -> Ptr<CUstream_st> {
    let mut stream = std::ptr::null_mut();
    cuStreamCreate(Ptr::of(&mut stream), flags).unwrap();
    handle(stream)
}

fn event() -> Ptr<CUevent_st> {
    let mut event = std::ptr::null_mut();
    cuEventCreate(Ptr::of(&mut event), 0).unwrap();
    handle(event)
}

fn words(n: usize) -> CUdeviceptr {
    let mut pointer = 0;
    cuMemAlloc_v2(Ptr::of(&mut pointer), n * 8).unwrap();
    cuMemsetD8_v2(pointer, 0, n * 8).unwrap();
    pointer
}

fn launch(function: Ptr<CUfunc_st>, mut pointer: CUdeviceptr, mut n: u32, on: Ptr<CUstream_st>) -> Status {
    let mut params: [*mut c_void; 2] = [(&raw mut pointer).cast(), (&raw mut n).cast()];
    cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, on, Ptr::first_of(&mut params), Ptr::null())
}

fn spin(test: &TestContext, mut us: u32, on: Ptr<CUstream_st>) {
    let mut params: [*mut c_void; 1] = [(&raw mut us).cast()];
    cuLaunchKernel(test.none, 1, 1, 1, 32, 1, 1, 0, on, Ptr::first_of(&mut params), Ptr::null()).unwrap();
}

fn read(pointer: CUdeviceptr, n: usize) -> Vec<u64> {
    let mut read = vec![0u64; n];
    cuMemcpyDtoH_v2(Ptr::first_of(&mut read).cast(), pointer, n * 8).unwrap();
    read
}

fn mixed(times: usize, n: usize) -> Vec<u64> {
    let mut words = vec![0; n];
    (0..times).for_each(|_| sluice_sim::effect::Effect::Mix.apply(&mut words));
    words
}

fn row() -> ProcessLedger {
    client::ledger(gpu().socket()).unwrap().by_label("tests").unwrap().clone()
}
