//! What waits for everything that was submitted to the context: loads, and launches that need more local memory than any before.

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
    let mut name: Vec<i8> = name.bytes().chain([0]).map(u8::cast_signed).collect();
    cuModuleGetFunction(Ptr::of(&mut function), handle(module), Ptr::first_of(&mut name)).unwrap();
    handle(function)
}

/// A stream that stands, and the word that lets it go on.
fn standing() -> Span {
    let mut page = std::ptr::null_mut();
    cuMemHostAlloc(Ptr::of(&mut page), PAGE, 0).unwrap();
    let address = page.expose_provenance();
    let gate = Span::found(address, 4);
    gate.store(0);
    cuStreamWaitValue32_v2(stream(CU_STREAM_NON_BLOCKING), address as u64, 1, CU_STREAM_WAIT_VALUE_GEQ)
        .unwrap();
    gate
}

/// Another thread makes a call in the turn's context; when it has come back. By then, or when this returns, it waits for all that the
/// context has been given.
fn meanwhile(turn: &Turn, call: impl FnOnce() + Send + 'static) -> Receiver<()> {
    let (tell, told) = channel();
    let context = turn.context.expose_provenance();
    let thread = std::thread::spawn(move || {
        cuCtxSetCurrent(Ptr::to_address(context)).unwrap();
        call();
        tell.send(()).unwrap();
    });
    while current().unwrap().draining() == 0 && !thread.is_finished() {
        std::thread::yield_now();
    }
    told
}

/// The GPU does other things for a while.
fn time_goes_by(turn: &Turn) {
    let beside = stream(CU_STREAM_NON_BLOCKING);
    spin(turn, 20_000, beside);
    cuStreamSynchronize(beside).unwrap();
}

/// The call that is made meanwhile comes back when the gate is opened, and not before.
fn waits_for(gate: &Span, turn: &Turn, done: &Receiver<()>) {
    time_goes_by(turn);
    let early = done.try_recv();
    gate.store(1);
    assert_eq!(early, Err(TryRecvError::Empty));
    done.recv().unwrap();
    cuCtxSynchronize().unwrap();
}

#[test]
fn a_load_waits_for_a_stream_that_stands() {
    let turn = turn();
    for call in [|| _ = load(MODULE), || load_library(MODULE)] {
        let gate = standing();
        let done = meanwhile(&turn, call);
        waits_for(&gate, &turn, &done);
    }
}

#[test]
fn a_launch_that_needs_more_local_memory_than_any_before_waits_for_a_stream_that_stands() {
    let turn = turn();
    let module = load(DEEP);
    let (deep, deeper) = (kernel(module, "deep"), kernel(module, "deeper"));
    let (on, data) = (stream(CU_STREAM_NON_BLOCKING), words(8));
    launch(deep, data, 8, on).unwrap();
    let gate = standing();
    launch(deep, data, 8, on).unwrap();
    cuStreamSynchronize(on).unwrap();
    let (deeper, on) = (deeper.address(), on.address());
    let launched = move || launch(Ptr::to_address(deeper), data, 8, Ptr::to_address(on)).unwrap();
    let done = meanwhile(&turn, launched);
    waits_for(&gate, &turn, &done);
    assert_eq!(read(data, 8), [3; 8]);
}

#[test]
fn a_load_during_a_capture_leaves_it_alone_and_a_captured_launch_waits_for_nothing() {
    let turn = turn();
    let (on, data) = (stream(CU_STREAM_NON_BLOCKING), words(8));
    let capture = |launches: &dyn Fn()| {
        cuStreamBeginCapture_v2(on, CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
        launches();
        let mut graph = std::ptr::null_mut();
        cuStreamEndCapture(on, Ptr::of(&mut graph)).unwrap();
    };
    let deep = std::cell::Cell::new(turn.add);
    capture(&|| {
        launch(turn.add, data, 8, on).unwrap();
        deep.set(kernel(load(DEEP), "deep"));
        launch(turn.add, data, 8, on).unwrap();
    });
    let gate = standing();
    capture(&|| launch(deep.get(), data, 8, on).unwrap());
    gate.store(1);
    assert_eq!(read(data, 8), [0; 8]);
}
