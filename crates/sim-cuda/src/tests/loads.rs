//! Calls that wait for everything submitted to the context: loads, and launches that need more local memory than any before.

use super::*;
use crate::border::Span;
use crate::state::context::current;
use crate::state::mapping::PAGE;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

const DEEP: &[u8] = b"SLUICE-SIM 1
kernel deep params=ptr:u64,n:u32 ns=1000 local=16384 effect=add
kernel deeper params=ptr:u64,n:u32 ns=1000 local=16385 effect=add
\0";

fn load(image: &[u8]) -> CUmodule {
    let mut module = std::ptr::null_mut();
    cuModuleLoadData(Ptr::of(&mut module), Ptr::first_of(&mut image.to_vec()).cast()).unwrap();
    module
}

fn load_library(image: &[u8]) {
    let mut library = std::ptr::null_mut();
    let mut image = image.to_vec();
    let image = Ptr::first_of(&mut image).cast();
    let none = Ptr::null;
    cuLibraryLoadData(Ptr::of(&mut library), image, none(), Ptr::null(), 0, Ptr::null(), Ptr::null(), 0)
        .unwrap();
}

fn kernel(module: CUmodule, name: &str) -> Ptr<CUfunc_st> {
    let mut function = std::ptr::null_mut();
    let mut name: Vec<c_char> = name.bytes().chain([0]).map(|byte| c_char::from_ne_bytes([byte])).collect();
    cuModuleGetFunction(Ptr::of(&mut function), handle(module), Ptr::first_of(&mut name)).unwrap();
    handle(function)
}

/// Stops a stream at a gate; returns the word that opens the gate.
fn stopped_stream() -> Span {
    let mut page = std::ptr::null_mut();
    cuMemHostAlloc(Ptr::of(&mut page), PAGE, 0).unwrap();
    let address = page.expose_provenance();
    let gate = Span::found(address, 4);
    gate.store(0);
    cuStreamWaitValue32_v2(stream(CU_STREAM_NON_BLOCKING), address as u64, 1, CU_STREAM_WAIT_VALUE_GEQ)
        .unwrap();
    gate
}

/// Makes a call in the test's context on another thread; the channel reports its return. When this function returns, the call has
/// returned or waits for all work of the context.
fn call_on_thread(test: &TestContext, call: impl FnOnce() + Send + 'static) -> Receiver<()> {
    let (sender, returned) = channel();
    let context = test.context.expose_provenance();
    let thread = std::thread::spawn(move || {
        cuCtxSetCurrent(Ptr::to_address(context)).unwrap();
        call();
        sender.send(()).unwrap();
    });
    while current().unwrap().draining() == 0 && !thread.is_finished() {
        std::thread::yield_now();
    }
    returned
}

/// Lets the GPU run work of another stream for 20 ms.
fn run_other_work(test: &TestContext) {
    let beside = stream(CU_STREAM_NON_BLOCKING);
    spin(test, 20_000, beside);
    cuStreamSynchronize(beside).unwrap();
}

/// Asserts that the call returns when the gate is opened, and not before.
fn assert_returns_after_gate(gate: &Span, test: &TestContext, done: &Receiver<()>) {
    run_other_work(test);
    let early = done.try_recv();
    gate.store(1);
    assert_eq!(early, Err(TryRecvError::Empty));
    done.recv().unwrap();
    cuCtxSynchronize().unwrap();
}

#[test]
fn module_load_waits_for_a_stream_at_a_closed_gate() {
    let test = begin_test();
    for call in [|| _ = load(MODULE), || load_library(MODULE)] {
        let gate = stopped_stream();
        let done = call_on_thread(&test, call);
        assert_returns_after_gate(&gate, &test, &done);
    }
}

#[test]
fn launch_with_more_local_memory_than_any_before_waits_for_a_stream_at_a_closed_gate() {
    let test = begin_test();
    let module = load(DEEP);
    let (deep, deeper) = (kernel(module, "deep"), kernel(module, "deeper"));
    let (on, data) = (stream(CU_STREAM_NON_BLOCKING), words(8));
    launch(deep, data, 8, on).unwrap();
    let gate = stopped_stream();
    launch(deep, data, 8, on).unwrap();
    cuStreamSynchronize(on).unwrap();
    let (deeper, on) = (deeper.address(), on.address());
    let launched = move || launch(Ptr::to_address(deeper), data, 8, Ptr::to_address(on)).unwrap();
    let done = call_on_thread(&test, launched);
    assert_returns_after_gate(&gate, &test, &done);
    assert_eq!(read(data, 8), [3; 8]);
}

#[test]
fn module_load_does_not_disturb_a_capture_and_captured_launch_does_not_wait() {
    let test = begin_test();
    let (on, data) = (stream(CU_STREAM_NON_BLOCKING), words(8));
    let capture = |launches: &dyn Fn()| {
        cuStreamBeginCapture_v2(on, CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
        launches();
        let mut graph = std::ptr::null_mut();
        cuStreamEndCapture(on, Ptr::of(&mut graph)).unwrap();
    };
    let deep = std::cell::Cell::new(test.add);
    capture(&|| {
        launch(test.add, data, 8, on).unwrap();
        deep.set(kernel(load(DEEP), "deep"));
        launch(test.add, data, 8, on).unwrap();
    });
    let gate = stopped_stream();
    capture(&|| launch(deep.get(), data, 8, on).unwrap());
    gate.store(1);
    assert_eq!(read(data, 8), [0; 8]);
}
