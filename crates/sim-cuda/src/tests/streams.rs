//! Streams, events and host functions.

use super::*;

#[test]
fn kernels_of_a_stream_take_effect_once_each_and_in_order() {
    let test = begin_test();
    let pointer = words(64);
    let on = stream(CU_STREAM_DEFAULT);
    for _ in 0..50 {
        launch(test.mix, pointer, 64, on).unwrap();
    }
    assert_eq!(read(pointer, 64), mixed(50, 64), "the copy in the legacy stream comes after the kernels");
}

#[test]
fn legacy_stream_waits_for_blocking_streams_only() {
    let test = begin_test();
    let (blocking, other) = (stream(CU_STREAM_DEFAULT), stream(CU_STREAM_NON_BLOCKING));
    static RELEASED: AtomicBool = AtomicBool::new(false);
    extern "C" fn hold(_: *mut c_void) {
        while !RELEASED.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
    cuLaunchHostFunc(other, Some(hold), Ptr::null()).unwrap();
    spin(&test, 2_000, blocking);
    let before = event();
    cuEventRecord(before, blocking).unwrap();
    spin(&test, 1, legacy());
    cuStreamSynchronize(legacy()).unwrap();
    assert_eq!(cuEventQuery(before), Ok(()));
    assert_eq!(cuStreamQuery(other), Err(CUresult::ERROR_NOT_READY));
    RELEASED.store(true, Ordering::Release);
    cuStreamSynchronize(other).unwrap();
}

#[test]
fn events_order_streams_and_measure_the_time_between() {
    let test = begin_test();
    let (first, second) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let (begin, end) = (event(), event());
    let pointer = words(8);
    cuCtxSynchronize().unwrap();
    cuEventRecord(begin, first).unwrap();
    spin(&test, 3_000, first);
    launch(test.mix, pointer, 8, first).unwrap();
    cuEventRecord(end, first).unwrap();
    cuStreamWaitEvent(second, end, 0).unwrap();
    launch(test.add, pointer, 8, second).unwrap();
    cuStreamSynchronize(second).unwrap();
    let expected: Vec<u64> = mixed(1, 8).iter().map(|word| word.wrapping_add(1)).collect();
    assert_eq!(read(pointer, 8), expected);
    let mut ms = 0f32;
    cuEventElapsedTime(Ptr::of(&mut ms), begin, end).unwrap();
    assert!((3.02..1_000.0).contains(&ms), "{ms}");
    assert_eq!(cuEventElapsedTime(Ptr::of(&mut ms), begin, event()), Err(CUresult::ERROR_INVALID_HANDLE));
}

#[test]
fn event_never_recorded_counts_as_reached() {
    let _test = begin_test();
    assert_eq!((cuEventQuery(event()), cuEventSynchronize(event())), (Ok(()), Ok(())));
    assert_eq!(cuEventQuery(Ptr::to_address(0x1234)), Err(CUresult::ERROR_INVALID_HANDLE));
}

#[test]
fn ended_contexts_leave_no_events_behind() {
    const PER_CONTEXT: usize = 20_000;
    let _test = begin_test();
    // In all more events than a process has words for their times.
    for _ in 0..4 {
        let mut context = std::ptr::null_mut();
        cuCtxCreate_v2(Ptr::of(&mut context), 0, 0).unwrap();
        let events: Vec<_> = (0..PER_CONTEXT).map(|_| event()).collect();
        cuCtxDestroy_v2(handle(context)).unwrap();
        assert_eq!(cuEventQuery(events[0]), Err(CUresult::ERROR_INVALID_HANDLE));
    }
}

extern "C" fn note(data: *mut c_void) {
    handle(data).cast::<u64>().write(1).unwrap();
}

#[test]
fn host_function_runs_between_the_kernels_around_it() {
    let test = begin_test();
    let on = stream(CU_STREAM_NON_BLOCKING);
    let mut noted = [0u64; 3];
    for word in &mut noted {
        spin(&test, 50, on);
        cuLaunchHostFunc(on, Some(note), Ptr::of(word).cast()).unwrap();
    }
    spin(&test, 50, on);
    cuStreamSynchronize(on).unwrap();
    assert_eq!(noted, [1; 3]);
}

#[test]
fn more_host_functions_than_a_stream_holds_do_not_block_each_other() {
    let _test = begin_test();
    let on = stream(CU_STREAM_NON_BLOCKING);
    let mut noted = 0u64;
    for _ in 0..2_000 {
        cuLaunchHostFunc(on, Some(note), Ptr::of(&mut noted).cast()).unwrap();
    }
    cuStreamSynchronize(on).unwrap();
    assert_eq!(noted, 1);
}
