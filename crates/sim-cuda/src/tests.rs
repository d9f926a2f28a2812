//! The driver API as a program uses it, against a daemon on a thread.
//!
//! A process has one driver, and captures concern all of its threads: the tests take turns.

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

/// A test's turn: a context, and the kernels of [`MODULE`].
struct Turn {
    context: CUcontext,
    mix: Ptr<CUfunc_st>,
    add: Ptr<CUfunc_st>,
    none: Ptr<CUfunc_st>,
    _turn: MutexGuard<'static, ()>,
}

fn handle<T>(handle: *mut T) -> Ptr<T> {
    Ptr::to_address(handle.expose_provenance())
}

fn turn() -> Turn {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    init_at(gpu().socket().to_str().unwrap(), "tests").unwrap();
    let mut context = std::ptr::null_mut();
    cuCtxCreate_v2(Ptr::of(&mut context), 0, 0).unwrap();
    let mut module = std::ptr::null_mut();
    cuModuleLoadData(Ptr::of(&mut module), Ptr::first_of(&mut MODULE.to_vec()).cast()).unwrap();
    let function = |name: &str| {
        let mut function = std::ptr::null_mut();
        let mut name: Vec<i8> = name.bytes().chain([0]).map(u8::cast_signed).collect();
        cuModuleGetFunction(Ptr::of(&mut function), handle(module), Ptr::first_of(&mut name)).unwrap();
        handle(function)
    };
    Turn { context, mix: function("mix"), add: function("add"), none: function("none"), _turn: turn }
}

impl Drop for Turn {
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

fn spin(turn: &Turn, mut us: u32, on: Ptr<CUstream_st>) {
    let mut params: [*mut c_void; 1] = [(&raw mut us).cast()];
    cuLaunchKernel(turn.none, 1, 1, 1, 32, 1, 1, 0, on, Ptr::first_of(&mut params), Ptr::null()).unwrap();
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

#[test]
fn kernels_of_a_stream_take_effect_once_each_and_in_order() {
    let turn = turn();
    let pointer = words(64);
    let on = stream(CU_STREAM_DEFAULT);
    for _ in 0..50 {
        launch(turn.mix, pointer, 64, on).unwrap();
    }
    assert_eq!(read(pointer, 64), mixed(50, 64), "the copy in the legacy stream comes after the kernels");
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_not_for_others() {
    let turn = turn();
    let (blocking, other) = (stream(CU_STREAM_DEFAULT), stream(CU_STREAM_NON_BLOCKING));
    static RELEASED: AtomicBool = AtomicBool::new(false);
    extern "C" fn hold(_: *mut c_void) {
        while !RELEASED.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
    cuLaunchHostFunc(other, Some(hold), Ptr::null()).unwrap();
    spin(&turn, 2_000, blocking);
    let before = event();
    cuEventRecord(before, blocking).unwrap();
    spin(&turn, 1, legacy());
    cuStreamSynchronize(legacy()).unwrap();
    assert_eq!(cuEventQuery(before), Ok(()));
    assert_eq!(cuStreamQuery(other), Err(CUresult::ERROR_NOT_READY));
    RELEASED.store(true, Ordering::Release);
    cuStreamSynchronize(other).unwrap();
}

#[test]
fn events_order_streams_and_measure_the_time_between() {
    let turn = turn();
    let (first, second) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let (begin, end) = (event(), event());
    let pointer = words(8);
    cuCtxSynchronize().unwrap();
    cuEventRecord(begin, first).unwrap();
    spin(&turn, 3_000, first);
    launch(turn.mix, pointer, 8, first).unwrap();
    cuEventRecord(end, first).unwrap();
    cuStreamWaitEvent(second, end, 0).unwrap();
    launch(turn.add, pointer, 8, second).unwrap();
    cuStreamSynchronize(second).unwrap();
    let expected: Vec<u64> = mixed(1, 8).iter().map(|word| word.wrapping_add(1)).collect();
    assert_eq!(read(pointer, 8), expected);
    let mut ms = 0f32;
    cuEventElapsedTime(Ptr::of(&mut ms), begin, end).unwrap();
    assert!((3.02..1_000.0).contains(&ms), "{ms}");
    assert_eq!(cuEventElapsedTime(Ptr::of(&mut ms), begin, event()), Err(CUresult::ERROR_INVALID_HANDLE));
}

#[test]
fn an_event_that_was_never_recorded_is_done() {
    let _turn = turn();
    assert_eq!((cuEventQuery(event()), cuEventSynchronize(event())), (Ok(()), Ok(())));
    assert_eq!(cuEventQuery(Ptr::to_address(0x1234)), Err(CUresult::ERROR_INVALID_HANDLE));
}

#[test]
fn pageable_memory_can_be_reused_right_after_an_asynchronous_copy() {
    let turn = turn();
    let pointer = words(4);
    let on = stream(CU_STREAM_NON_BLOCKING);
    cuCtxSynchronize().unwrap();
    spin(&turn, 1_000, on);
    let mut source = [7u64; 4];
    cuMemcpyHtoDAsync_v2(pointer, Ptr::first_of(&mut source).cast(), 32, on).unwrap();
    source = [0; 4];
    let mut back = [1u64; 4];
    cuMemcpyDtoHAsync_v2(Ptr::first_of(&mut back).cast(), pointer, 32, on).unwrap();
    assert_eq!((source, back), ([0; 4], [7; 4]), "a copy to pageable memory is over when the call returns");
}

#[test]
fn pinned_memory_is_read_when_the_stream_comes_to_the_copy() {
    let turn = turn();
    let pointer = words(1);
    let on = stream(CU_STREAM_NON_BLOCKING);
    cuCtxSynchronize().unwrap();
    let mut pinned = std::ptr::null_mut();
    cuMemHostAlloc(Ptr::of(&mut pinned), 8, 0).unwrap();
    spin(&turn, 20_000, on);
    cuMemcpyHtoDAsync_v2(pointer, handle(pinned), 8, on).unwrap();
    handle(pinned).cast::<u64>().write(5).unwrap();
    cuStreamSynchronize(on).unwrap();
    assert_eq!(read(pointer, 1), [5]);
    cuMemFreeHost(handle(pinned)).unwrap();
}

#[test]
fn memory_is_counted_to_the_byte_whatever_it_came_from_and_all_given_back() {
    let _turn = turn();
    let before = row().memory_bytes;
    let (mut a, mut b, mut c, mut d) = (0, 0, 0, 0);
    let mut pitch = 0;
    cuMemAlloc_v2(Ptr::of(&mut a), 1_001).unwrap();
    cuMemAllocManaged(Ptr::of(&mut b), 1_002, 1).unwrap();
    cuMemAllocPitch_v2(Ptr::of(&mut c), Ptr::of(&mut pitch), 100, 10, 4).unwrap();
    cuMemAllocAsync(Ptr::of(&mut d), 1_003, legacy()).unwrap();
    let mut array = std::ptr::null_mut();
    let mut descriptor = CUDA_ARRAY_DESCRIPTOR { Width: 10, Height: 3, Format: 0x20, NumChannels: 4 };
    cuArrayCreate_v2(Ptr::of(&mut array), Ptr::of(&mut descriptor)).unwrap();
    let counted = 1_001 + 1_002 + 512 * 10 + 1_003 + 10 * 3 * 16;
    assert_eq!((pitch, row().memory_bytes - before), (512, counted));
    cuMemFree_v2(a).unwrap();
    assert_eq!(cuMemFree_v2(a), Err(CUresult::ERROR_INVALID_VALUE), "freed twice");
    cuMemFree_v2(b).unwrap();
    cuMemFree_v2(c).unwrap();
    cuMemFreeAsync(d, legacy()).unwrap();
    cuArrayDestroy(handle(array)).unwrap();
    cuCtxSynchronize().unwrap();
    assert_eq!(row().memory_bytes, before);
}

#[test]
fn a_full_gpu_says_so_and_goes_on() {
    let _turn = turn();
    let (mut free, mut total) = (0, 0);
    cuMemGetInfo_v2(Ptr::of(&mut free), Ptr::of(&mut total)).unwrap();
    assert_eq!(total as u64, MEMORY);
    let mut pointer = 0;
    assert_eq!(cuMemAlloc_v2(Ptr::of(&mut pointer), free + 1), Err(CUresult::ERROR_OUT_OF_MEMORY));
    cuMemAlloc_v2(Ptr::of(&mut pointer), free).unwrap();
    assert_eq!(cuMemAlloc_v2(Ptr::of(&mut 0), 1), Err(CUresult::ERROR_OUT_OF_MEMORY));
    cuMemFreeAsync(pointer, legacy()).unwrap();
    cuStreamSynchronize(legacy()).unwrap();
    cuMemAlloc_v2(Ptr::of(&mut pointer), 1).unwrap();
}

#[test]
fn a_chunk_keeps_its_bytes_while_it_is_not_mapped() {
    let _turn = turn();
    const MIB: usize = 1 << 20;
    let before = row().memory_bytes;
    let mut prop =
        CUmemAllocationProp { kind: 1, location: CUmemLocation { kind: 1, id: 0 }, ..Default::default() };
    let (mut chunk, mut at, mut elsewhere) = (0, 0, 0);
    cuMemCreate(Ptr::of(&mut chunk), 2 * MIB, Ptr::of(&mut prop), 0).unwrap();
    assert_eq!(
        cuMemCreate(Ptr::of(&mut 0), 3 * MIB, Ptr::of(&mut prop), 0),
        Err(CUresult::ERROR_INVALID_VALUE)
    );
    cuMemAddressReserve(Ptr::of(&mut at), 4 * MIB, 0, 0, 0).unwrap();
    cuMemAddressReserve(Ptr::of(&mut elsewhere), 2 * MIB, 0, 0, 0).unwrap();
    cuMemMap(at + 2 * MIB as u64, 2 * MIB, 0, chunk, 0).unwrap();
    assert_eq!(cuMemsetD8_v2(at, 1, 8), Err(CUresult::ERROR_INVALID_VALUE), "nothing is mapped there");
    cuMemsetD32_v2(at + 2 * MIB as u64, 77, 4).unwrap();
    cuMemUnmap(at + 2 * MIB as u64, 2 * MIB).unwrap();
    cuMemMap(elsewhere, 2 * MIB, 0, chunk, 0).unwrap();
    assert_eq!(read(elsewhere, 2), [77 << 32 | 77; 2]);
    cuMemRelease(chunk).unwrap();
    assert_eq!(row().memory_bytes, before + 2 * MIB as u64, "still mapped");
    cuMemUnmap(elsewhere, 2 * MIB).unwrap();
    assert_eq!(row().memory_bytes, before);
    cuMemAddressFree(at, 4 * MIB).unwrap();
    cuMemAddressFree(elsewhere, 2 * MIB).unwrap();
}

fn capture(on: Ptr<CUstream_st>, mode: u32, work: impl FnOnce()) -> Result<Ptr<CUgraph_st>, CUresult> {
    let mut graph = std::ptr::null_mut();
    cuStreamBeginCapture_v2(on, mode).unwrap();
    work();
    cuStreamEndCapture(on, Ptr::of(&mut graph)).map(|()| handle(graph))
}

#[test]
fn a_captured_graph_does_nothing_until_launched_and_then_the_same_each_time() {
    let turn = turn();
    let (on, side) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let pointer = words(16);
    cuCtxSynchronize().unwrap();
    let graph = capture(on, 0, || {
        launch(turn.mix, pointer, 16, on).unwrap();
        let fork = event();
        cuEventRecord(fork, on).unwrap();
        cuStreamWaitEvent(side, fork, 0).unwrap();
        launch(turn.mix, pointer, 16, side).unwrap();
        cuEventRecord(fork, side).unwrap();
        cuStreamWaitEvent(on, fork, 0).unwrap();
    })
    .unwrap();
    let (mut nodes, mut exec) = (0, std::ptr::null_mut());
    cuGraphGetNodes(graph, Ptr::null(), Ptr::of(&mut nodes)).unwrap();
    cuGraphInstantiateWithFlags(Ptr::of(&mut exec), graph, 0).unwrap();
    cuGraphDestroy(graph).unwrap();
    assert_eq!((nodes, read(pointer, 16)), (2, vec![0; 16]));
    let before = row().kernels_completed;
    for _ in 0..5 {
        cuGraphLaunch(handle(exec), on).unwrap();
    }
    cuStreamSynchronize(on).unwrap();
    assert_eq!((read(pointer, 16), row().kernels_completed - before), (mixed(10, 16), 10));
    cuGraphExecDestroy(handle(exec)).unwrap();
}

#[test]
fn what_a_capture_forbids_fails_and_ends_the_capture() {
    let turn = turn();
    let (on, side) = (stream(CU_STREAM_DEFAULT), stream(CU_STREAM_NON_BLOCKING));
    let captured = event();
    let unsupported = CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED;
    type Forbidden<'a> = (&'a dyn Fn() -> Status, CUresult);
    let forbidden: [Forbidden<'_>; 7] = [
        (&|| cuMemAlloc_v2(Ptr::of(&mut 0), 8), unsupported),
        (&|| cuStreamSynchronize(on), unsupported),
        (&|| cuStreamQuery(on), unsupported),
        (&cuCtxSynchronize, unsupported),
        (&|| cuEventQuery(event()), unsupported),
        (&|| launch(turn.add, 0, 0, legacy()), CUresult::ERROR_STREAM_CAPTURE_IMPLICIT),
        (&|| cuEventRecord(captured, on).and(cuEventSynchronize(captured)), CUresult::ERROR_CAPTURED_EVENT),
    ];
    for (index, (call, error)) in forbidden.into_iter().enumerate() {
        let ended = capture(on, 0, || assert_eq!(call(), Err(error), "call {index}"));
        assert_eq!(ended.err(), Some(CUresult::ERROR_STREAM_CAPTURE_INVALIDATED), "call {index}");
    }
    let unjoined = capture(on, 0, || {
        cuEventRecord(captured, on).unwrap();
        cuStreamWaitEvent(side, captured, 0).unwrap();
        launch(turn.add, 0, 0, side).unwrap();
    });
    assert_eq!(unjoined.err(), Some(CUresult::ERROR_STREAM_CAPTURE_UNJOINED));
    // After all that nothing is captured any more.
    cuStreamSynchronize(on).unwrap();
    cuStreamSynchronize(side).unwrap();
}

#[test]
fn a_thread_can_opt_out_of_other_threads_captures() {
    let _turn = turn();
    let on = stream(CU_STREAM_NON_BLOCKING);
    let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    let captured = capture(on, CU_STREAM_CAPTURE_MODE_GLOBAL, || {
        cuThreadExchangeStreamCaptureMode(Ptr::of(&mut mode)).unwrap();
        cuMemAlloc_v2(Ptr::of(&mut 0), 8).unwrap();
        cuThreadExchangeStreamCaptureMode(Ptr::of(&mut mode)).unwrap();
    });
    assert_eq!((captured.err(), mode), (None, CU_STREAM_CAPTURE_MODE_RELAXED));
    let elsewhere = capture(on, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, || {
        let context = handle(turn_context());
        let allocated = std::thread::scope(|scope| {
            let address = context.address();
            let work = move || {
                cuCtxSetCurrent(Ptr::to_address(address)).unwrap();
                cuMemAlloc_v2(Ptr::of(&mut 0), 8)
            };
            scope.spawn(work).join().unwrap()
        });
        assert_eq!(allocated, Ok(()));
    });
    assert_eq!(elsewhere.err(), None);
}

fn turn_context() -> CUcontext {
    let mut context = std::ptr::null_mut();
    cuCtxGetCurrent(Ptr::of(&mut context)).unwrap();
    context
}

#[test]
fn a_kernel_that_leaves_its_memory_breaks_the_context_and_only_that() {
    let turn = turn();
    launch(turn.add, 0x1000, 8, legacy()).unwrap();
    assert_eq!(cuCtxSynchronize(), Err(CUresult::ERROR_ILLEGAL_ADDRESS));
    assert_eq!(launch(turn.add, 0x1000, 8, legacy()), Err(CUresult::ERROR_ILLEGAL_ADDRESS));
    let mut other = std::ptr::null_mut();
    cuCtxCreate_v2(Ptr::of(&mut other), 0, 0).unwrap();
    assert_eq!(cuCtxSynchronize(), Ok(()));
    cuCtxDestroy_v2(handle(other)).unwrap();
}

#[test]
fn what_a_launch_cannot_be_is_refused_at_once() {
    let turn = turn();
    let with = |grid: u32, block: u32, shared: u32| {
        let mut n = 0u32;
        let mut params: [*mut c_void; 1] = [(&raw mut n).cast()];
        cuLaunchKernel(
            turn.none,
            grid,
            1,
            1,
            block,
            1,
            1,
            shared,
            legacy(),
            Ptr::first_of(&mut params),
            Ptr::null(),
        )
    };
    assert_eq!(with(1, 1_024, 227 << 10), Ok(()));
    for (grid, block, shared) in [(0, 1, 0), (1, 0, 0), (1, 1_025, 0), (1, 1, (227 << 10) + 1)] {
        assert_eq!(with(grid, block, shared), Err(CUresult::ERROR_INVALID_VALUE));
    }
    let cooperative = |grid| {
        let mut n = 0u32;
        let mut params: [*mut c_void; 1] = [(&raw mut n).cast()];
        cuLaunchCooperativeKernel(turn.none, grid, 1, 1, 1_024, 1, 1, 0, legacy(), Ptr::first_of(&mut params))
    };
    assert_eq!(cooperative(264), Ok(()));
    assert_eq!(cooperative(265), Err(CUresult::ERROR_COOPERATIVE_LAUNCH_TOO_LARGE));
    assert_eq!(launch(Ptr::null(), 0, 0, legacy()), Err(CUresult::ERROR_INVALID_HANDLE));
}

#[test]
fn images_of_other_kinds_are_refused_as_the_driver_would() {
    let _turn = turn();
    let load = |image: &[u8]| {
        let mut module = std::ptr::null_mut();
        cuModuleLoadData(Ptr::of(&mut module), Ptr::first_of(&mut image.to_vec()).cast())
    };
    assert_eq!(load(b"\x7fELF\0"), Err(CUresult::ERROR_NO_BINARY_FOR_GPU));
    assert_eq!(load(b"\x50\xed\x55\xba\0"), Err(CUresult::ERROR_NO_BINARY_FOR_GPU));
    assert_eq!(load(b".version 8.0\0"), Err(CUresult::ERROR_INVALID_PTX));
    assert_eq!(load(b"S\0"), Err(CUresult::ERROR_INVALID_IMAGE));
    assert_eq!(load(b"SLUICE-SIM 1\nkernel\0"), Err(CUresult::ERROR_INVALID_IMAGE));
}

#[test]
fn every_name_is_found_in_the_variant_that_was_asked_for() {
    let _turn = turn();
    let find = |name: &str, version, flags| {
        let mut name: Vec<i8> = name.bytes().chain([0]).map(u8::cast_signed).collect();
        let (mut address, mut status) = (std::ptr::null_mut::<c_void>(), 9);
        cuGetProcAddress_v2(
            Ptr::first_of(&mut name),
            Ptr::of(&mut address),
            version,
            flags,
            Ptr::of(&mut status),
        )
        .map(|()| (address.expose_provenance(), status))
    };
    let (legacy, per_thread) =
        (find("cuLaunchKernel", 13_000, 0).unwrap(), find("cuLaunchKernel", 13_000, 2).unwrap());
    assert!(legacy.0 != 0 && per_thread.0 != 0 && legacy.0 != per_thread.0);
    assert_eq!(find("cuNoSuchFunction", 13_000, 0), Ok((0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)));
    assert_eq!(find("cuLaunchKernelEx", 10_000, 0), Ok((0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT)));
    for index in 0..sluice_driver_api::ENTRIES.len() {
        assert_ne!(crate::exports::address(index), None);
    }
}

extern "C" fn note(data: *mut c_void) {
    handle(data).cast::<u64>().write(1).unwrap();
}

#[test]
fn a_host_function_runs_between_the_kernels_around_it() {
    let turn = turn();
    let on = stream(CU_STREAM_NON_BLOCKING);
    let mut noted = [0u64; 3];
    for word in &mut noted {
        spin(&turn, 50, on);
        cuLaunchHostFunc(on, Some(note), Ptr::of(word).cast()).unwrap();
    }
    spin(&turn, 50, on);
    cuStreamSynchronize(on).unwrap();
    assert_eq!(noted, [1; 3]);
}

#[test]
fn more_host_functions_than_a_stream_holds_do_not_block_each_other() {
    let _turn = turn();
    let on = stream(CU_STREAM_NON_BLOCKING);
    let mut noted = 0u64;
    for _ in 0..2_000 {
        cuLaunchHostFunc(on, Some(note), Ptr::of(&mut noted).cast()).unwrap();
    }
    cuStreamSynchronize(on).unwrap();
    assert_eq!(noted, 1);
}
