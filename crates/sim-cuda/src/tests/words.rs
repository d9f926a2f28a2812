//! Streams that wait for words and write them, memory that is registered for reading, and hold kernels.

use super::*;
use crate::border::Span;
use crate::state::mapping::{PAGE, file};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

const GEQ: u32 = CU_STREAM_WAIT_VALUE_GEQ;

/// A page of host memory, and its address.
fn pinned() -> (Ptr<c_void>, u64) {
    let mut page = std::ptr::null_mut();
    cuMemHostAlloc(Ptr::of(&mut page), PAGE, 0).unwrap();
    (handle(page), page.expose_provenance() as u64)
}

fn word(address: u64, at: usize) -> Span {
    Span::found(usize::try_from(address).unwrap() + at, 4)
}

fn wait_until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::yield_now();
    }
}

#[test]
fn only_the_waiting_stream_stops_at_a_memory_word() {
    let test = begin_test();
    let (page, address) = pinned();
    let (gated, free) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    cuStreamWaitValue32_v2(gated, address, 2, GEQ).unwrap();
    spin(&test, 50, gated);
    spin(&test, 50, free);
    cuStreamSynchronize(free).unwrap();
    word(address, 0).store(1);
    spin(&test, 500, free);
    cuStreamSynchronize(free).unwrap();
    assert_eq!(cuStreamQuery(gated), Err(CUresult::ERROR_NOT_READY));
    word(address, 0).store(2);
    cuStreamSynchronize(gated).unwrap();
    cuMemFreeHost(page).unwrap();
}

#[test]
fn one_store_closes_a_gate_and_one_opens_it() {
    let test = begin_test();
    let (page, address) = pinned();
    let on = stream(CU_STREAM_NON_BLOCKING);
    let before = row().kernels_completed;
    let (gate, start) = (word(address, 0), word(address, 64));
    gate.store(1);
    cuStreamWaitValue32_v2(on, address + 64, 1, GEQ).unwrap();
    for us in std::iter::once(50_000).chain([10; 63]) {
        cuStreamWaitValue32_v2(on, address, 1, GEQ).unwrap();
        cuStreamWriteValue32_v2(on, address + 128, 1, 0).unwrap();
        spin(&test, us, on);
    }
    // The stream passes the gate in front of the first kernel, and finds the others closed, which were open when submitted.
    start.store(1);
    wait_until(|| word(address, 128).load() == 1);
    gate.store(0);
    let free = stream(CU_STREAM_NON_BLOCKING);
    spin(&test, 100_000, free);
    cuStreamSynchronize(free).unwrap();
    assert_eq!(row().kernels_completed - before, 2, "one of each stream");
    gate.store(1);
    cuStreamSynchronize(on).unwrap();
    assert_eq!(row().kernels_completed - before, 65);
    cuMemFreeHost(page).unwrap();
}

#[test]
fn stream_write_is_visible_to_host_and_other_streams() {
    let test = begin_test();
    let (page, address) = pinned();
    let (first, second) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    cuStreamWaitValue64_v2(second, address + 8, 1 << 40, GEQ).unwrap();
    spin(&test, 1_000, first);
    cuStreamWriteValue32_v2(first, address, 7, 0).unwrap();
    cuStreamWriteValue64_v2(first, address + 8, 1 << 41, 0).unwrap();
    wait_until(|| word(address, 0).load() == 7);
    assert_eq!(cuStreamQuery(first), Ok(()));
    cuStreamSynchronize(second).unwrap();
    cuMemFreeHost(page).unwrap();
}

#[test]
fn memory_is_freed_in_stream_order_while_another_stream_waits_for_a_word() {
    let test = begin_test();
    let (page, address) = pinned();
    let (gated, freeing) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let before = row().memory_bytes;
    cuStreamWaitValue32_v2(gated, address, 1, GEQ).unwrap();
    let mut memory = 0;
    cuMemAllocAsync(Ptr::of(&mut memory), 4 << 20, freeing).unwrap();
    spin(&test, 50, freeing);
    cuMemFreeAsync(memory, freeing).unwrap();
    // No call of the program asks for the stream: the thread that reads the words does, and finds the free completed.
    wait_until(|| row().memory_bytes == before);
    word(address, 0).store(1);
    cuStreamSynchronize(gated).unwrap();
    cuMemFreeHost(page).unwrap();
}

#[test]
fn batch_executes_its_operations_in_order() {
    let _test = begin_test();
    let (page, address) = pinned();
    let on = stream(CU_STREAM_NON_BLOCKING);
    let operation = |kind: u64, at: u64, value: u64| [kind, address + at, value, 0, 0, 0];
    let mut batch = [operation(2, 0, 5), operation(1, 0, 5), operation(5, 8, 1 << 33)].concat();
    let operations = Ptr::first_of(&mut batch).cast();
    cuStreamBatchMemOp_v2(on, 3, operations, 0).unwrap();
    cuStreamSynchronize(on).unwrap();
    assert_eq!(
        (word(address, 0).load(), Span::found(usize::try_from(address).unwrap() + 8, 8).load()),
        (5, 1 << 33)
    );
    batch[0] = 99;
    let operations = Ptr::first_of(&mut batch).cast();
    assert_eq!(cuStreamBatchMemOp_v2(on, 1, operations, 0), Err(CUresult::ERROR_INVALID_VALUE));
    cuMemFreeHost(page).unwrap();
}

#[test]
fn invalid_word_address_is_refused() {
    let _test = begin_test();
    let (page, address) = pinned();
    let on = stream(CU_STREAM_NON_BLOCKING);
    let mut local = 0u32;
    let foreign = (&raw mut local).expose_provenance() as u64;
    for (pointer, flags) in [(foreign, GEQ), (address + 2, GEQ), (address + PAGE as u64, GEQ), (address, 77)]
    {
        assert_eq!(cuStreamWaitValue32_v2(on, pointer, 1, flags), Err(CUresult::ERROR_INVALID_VALUE));
    }
    assert_eq!(cuStreamWriteValue64_v2(on, address + 4, 1, 0), Err(CUresult::ERROR_INVALID_VALUE));
    // Writes without a fence are of the first version, which no driver accepts.
    let unfenced = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
    assert_eq!(cuStreamWriteValue32_v2(on, address, 1, unfenced), Err(CUresult::ERROR_INVALID_VALUE));
    assert_eq!(cuStreamWriteValue32(on, address, 1, unfenced), Err(CUresult::ERROR_NOT_SUPPORTED));
    let mut operation = [2, address, 1, u64::from(unfenced), 0, 0];
    let operation = Ptr::first_of(&mut operation).cast();
    assert_eq!(cuStreamBatchMemOp_v2(on, 1, operation, 0), Err(CUresult::ERROR_INVALID_VALUE));
    assert_eq!(cuStreamBatchMemOp(on, 1, operation, 0), Err(CUresult::ERROR_NOT_SUPPORTED));
    cuStreamBeginCapture_v2(on, 2).unwrap();
    let captured = cuStreamWaitValue32_v2(on, address, 1, GEQ);
    assert_eq!(captured, Err(CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED));
    let mut graph = std::ptr::null_mut();
    assert!(cuStreamEndCapture(on, Ptr::of(&mut graph)).is_err());
    cuMemFreeHost(page).unwrap();
}

/// A page that this process can only read, and the file behind it.
fn read_only() -> (usize, OwnedFd) {
    let file = file(PAGE).unwrap();
    let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, read, shared, file.as_raw_fd(), 0) };
    assert_ne!(page, libc::MAP_FAILED);
    (page.expose_provenance(), file)
}

#[test]
fn read_only_page_can_be_waited_for_and_a_write_breaks_only_its_writer() {
    use std::os::unix::fs::FileExt;
    let test = begin_test();
    let (page, file) = read_only();
    let pointer = Ptr::to_address(page);
    assert_eq!(cuMemHostRegister_v2(pointer, PAGE, 2), Err(CUresult::ERROR_INVALID_VALUE));
    assert_eq!(cuMemHostRegister_v2(pointer, PAGE, 16), Err(CUresult::ERROR_INVALID_VALUE));
    cuMemHostRegister_v2(pointer, PAGE, 2 | 8).unwrap();
    let mut address = 0;
    cuMemHostGetDevicePointer_v2(Ptr::of(&mut address), pointer, 0).unwrap();
    let on = stream(CU_STREAM_NON_BLOCKING);
    cuStreamWaitValue32_v2(on, address, 1, GEQ).unwrap();
    spin(&test, 10, on);
    assert_eq!(cuStreamQuery(on), Err(CUresult::ERROR_NOT_READY));
    std::fs::File::from(file.try_clone().unwrap()).write_all_at(&1u32.to_le_bytes(), 0).unwrap();
    cuStreamSynchronize(on).unwrap();
    for fault in 0..3 {
        let mut other = std::ptr::null_mut();
        cuCtxCreate_v2(Ptr::of(&mut other), 0, 0).unwrap();
        let on = stream(CU_STREAM_NON_BLOCKING);
        match fault {
            0 => cuStreamWriteValue32_v2(on, address, 9, 0).unwrap(),
            1 => launch(test.add, address, 1, on).unwrap(),
            _ => cuMemsetD32Async(address, 9, 1, on).unwrap(),
        }
        assert_eq!(cuStreamSynchronize(on), Err(CUresult::ERROR_LAUNCH_FAILED));
        cuCtxDestroy_v2(handle(other)).unwrap();
    }
    assert_eq!((word(address, 0).load(), cuCtxSynchronize()), (1, Ok(())));
    cuMemHostUnregister(pointer).unwrap();
}

const PTX: &[u8] = b".version 6.4
.target sm_70
.visible .entry sluice_hold(
    .param .u64 word,
    .param .u32 value,
    .param .u32 activity,
    .param .u64 timeout_ns,
    .param .u64 linger_ns,
    .param .u64 still_ns,
    .param .u64 longest_ns
)
{ ret; }
\0";

fn hold_kernel() -> Ptr<CUfunc_st> {
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    cuModuleLoadData(Ptr::of(&mut module), Ptr::first_of(&mut PTX.to_vec()).cast()).unwrap();
    let mut name: Vec<c_char> = b"sluice_hold\0".map(|byte| c_char::from_ne_bytes([byte])).to_vec();
    cuModuleGetFunction(Ptr::of(&mut function), handle(module), Ptr::first_of(&mut name)).unwrap();
    handle(function)
}

/// Launches a hold kernel that ends `timeout_ns` after its begin, and `linger_ns` after a change to an even activity.
fn hold(
    kernel: Ptr<CUfunc_st>,
    (mut word, mut value): (u64, u32),
    (mut timeout_ns, mut linger_ns): (u64, u64),
    on: Ptr<CUstream_st>,
) {
    let (mut activity, mut still_ns, mut longest_ns) = (0u32, LONG_NS, LONG_NS);
    let mut params: [*mut c_void; 7] = [
        (&raw mut word).cast(),
        (&raw mut value).cast(),
        (&raw mut activity).cast(),
        (&raw mut timeout_ns).cast(),
        (&raw mut linger_ns).cast(),
        (&raw mut still_ns).cast(),
        (&raw mut longest_ns).cast(),
    ];
    cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, on, Ptr::first_of(&mut params), Ptr::null()).unwrap();
}

const LONG_NS: u64 = 60_000_000_000;

#[test]
fn hold_kernel_ends_with_its_word_and_stores_the_time() {
    let _test = begin_test();
    let (page, address) = pinned();
    let on = stream(CU_STREAM_NON_BLOCKING);
    let kernel = hold_kernel();
    hold(kernel, (address, 5), (LONG_NS, 0), on);
    hold(kernel, (address + 256, 5), (0, 0), on);
    word(address, 0).store(4);
    assert_eq!(cuStreamQuery(on), Err(CUresult::ERROR_NOT_READY));
    word(address, 0).store(5);
    // Without a driver call, because another thread may read the values.
    wait_until(|| word(address, 64).load() == 5);
    let value = |at| Span::found(usize::try_from(address).unwrap() + at, 8).load();
    let (began, seen, idle) = (value(72), value(88), value(96));
    assert!(began > 0 && seen == 0 && (1..LONG_NS).contains(&idle), "{began}, {idle}");
    cuStreamSynchronize(on).unwrap();
    assert_eq!(word(address, 256 + 64).load(), 5, "the second has ended as well");
    cuMemFreeHost(page).unwrap();
}

#[test]
fn unreleased_hold_kernel_ends_after_its_timeout() {
    let test = begin_test();
    let (page, address) = pinned();
    let on = stream(CU_STREAM_NON_BLOCKING);
    let before = row().kernel_ns;
    hold(hold_kernel(), (address, 1), (3_000_000, 0), on);
    spin(&test, 10, on);
    cuStreamSynchronize(on).unwrap();
    assert_eq!(row().kernel_ns - before, 3_010_000);
    assert_eq!((word(address, 64).load(), cuCtxSynchronize()), (1, Ok(())));
    let idle = Span::found(usize::try_from(address).unwrap() + 96, 8).load();
    assert_eq!(idle, 3_000_000);
    cuMemFreeHost(page).unwrap();
    hold(hold_kernel(), (address, 1), (1_000, 0), on);
    assert_eq!(cuStreamSynchronize(on), Err(CUresult::ERROR_ILLEGAL_ADDRESS));
}

/// Bits of the activity.
const KEEPS: u32 = 1;
const WORKING: u32 = 2;

#[test]
fn hold_kernel_stays_while_the_activity_is_odd_and_ends_after_its_linger_time() {
    let _test = begin_test();
    let (page, address) = pinned();
    let on = stream(CU_STREAM_NON_BLOCKING);
    let before = row().kernel_ns;
    hold(hold_kernel(), (address, 1), (LONG_NS, 3_000_000), on);
    word(address, 4).store(u64::from(4 | KEEPS | WORKING));
    let value = |at| Span::found(usize::try_from(address).unwrap() + at, 8).load();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(cuStreamQuery(on), Err(CUresult::ERROR_NOT_READY));
    word(address, 4).store(8);
    cuStreamSynchronize(on).unwrap();
    wait_until(|| word(address, 64).load() == 1);
    let (ran, idle) = (row().kernel_ns - before, value(96));
    assert!(value(88) >= value(72), "it saw the change");
    assert!((3_000_000..ran).contains(&idle), "the work of the program does not count: {idle} of {ran}");
    cuMemFreeHost(page).unwrap();
}
