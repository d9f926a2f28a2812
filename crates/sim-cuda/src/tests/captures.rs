//! Stream capture and graphs.

use super::*;

fn capture(on: Ptr<CUstream_st>, mode: u32, work: impl FnOnce()) -> Result<Ptr<CUgraph_st>, CUresult> {
    let mut graph = std::ptr::null_mut();
    cuStreamBeginCapture_v2(on, mode).unwrap();
    work();
    cuStreamEndCapture(on, Ptr::of(&mut graph)).map(|()| handle(graph))
}

#[test]
fn captured_graph_runs_only_when_launched_and_each_time_alike() {
    let test = begin_test();
    let (on, side) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let pointer = words(16);
    cuCtxSynchronize().unwrap();
    let graph = capture(on, 0, || {
        launch(test.mix, pointer, 16, on).unwrap();
        let fork = event();
        cuEventRecord(fork, on).unwrap();
        cuStreamWaitEvent(side, fork, 0).unwrap();
        launch(test.mix, pointer, 16, side).unwrap();
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
fn call_forbidden_during_capture_fails_and_ends_the_capture() {
    let test = begin_test();
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
        (&|| launch(test.add, 0, 0, legacy()), CUresult::ERROR_STREAM_CAPTURE_IMPLICIT),
        (&|| cuEventRecord(captured, on).and(cuEventSynchronize(captured)), CUresult::ERROR_CAPTURED_EVENT),
    ];
    for (index, (call, error)) in forbidden.into_iter().enumerate() {
        let ended = capture(on, 0, || assert_eq!(call(), Err(error), "call {index}"));
        assert_eq!(ended.err(), Some(CUresult::ERROR_STREAM_CAPTURE_INVALIDATED), "call {index}");
    }
    let unjoined = capture(on, 0, || {
        cuEventRecord(captured, on).unwrap();
        cuStreamWaitEvent(side, captured, 0).unwrap();
        launch(test.add, 0, 0, side).unwrap();
    });
    assert_eq!(unjoined.err(), Some(CUresult::ERROR_STREAM_CAPTURE_UNJOINED));
    // After all that nothing is captured any more.
    cuStreamSynchronize(on).unwrap();
    cuStreamSynchronize(side).unwrap();
}

#[test]
fn thread_in_relaxed_mode_is_not_bound_by_other_threads_captures() {
    let _test = begin_test();
    let on = stream(CU_STREAM_NON_BLOCKING);
    let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    let captured = capture(on, CU_STREAM_CAPTURE_MODE_GLOBAL, || {
        cuThreadExchangeStreamCaptureMode(Ptr::of(&mut mode)).unwrap();
        cuMemAlloc_v2(Ptr::of(&mut 0), 8).unwrap();
        cuThreadExchangeStreamCaptureMode(Ptr::of(&mut mode)).unwrap();
    });
    assert_eq!((captured.err(), mode), (None, CU_STREAM_CAPTURE_MODE_RELAXED));
    let elsewhere = capture(on, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, || {
        let context = handle(current_context());
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

#[test]
fn capture_ends_with_its_context() {
    let _test = begin_test();
    let mut context = std::ptr::null_mut();
    cuCtxCreate_v2(Ptr::of(&mut context), 0, 0).unwrap();
    cuStreamBeginCapture_v2(stream(CU_STREAM_NON_BLOCKING), CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
    let captured = cuMemAlloc_v2(Ptr::of(&mut 0), 8);
    assert_eq!(captured, Err(CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED));
    cuCtxDestroy_v2(handle(context)).unwrap();
    assert_eq!(cuMemAlloc_v2(Ptr::of(&mut 0), 8), Ok(()), "in the test's context, which is current again");
}

fn current_context() -> CUcontext {
    let mut context = std::ptr::null_mut();
    cuCtxGetCurrent(Ptr::of(&mut context)).unwrap();
    context
}
