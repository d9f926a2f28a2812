//! A process that is locked at its next call.

use super::*;
use std::sync::mpsc;

type GetVersion = unsafe extern "C" fn(*mut i32) -> CUresult;

/// A function as a program finds it.
fn exported(symbol: &str) -> GetVersion {
    let index = sluice_driver_api::ENTRIES.iter().position(|entry| entry.symbol == symbol).unwrap();
    let address = std::ptr::with_exposed_provenance::<()>(crate::exports::address(index).unwrap());
    // SAFETY: the address of a function of that type; the callers here ask for such functions only.
    unsafe { std::mem::transmute::<*const (), GetVersion>(address) }
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap()
}

fn lock(timeout_ms: u32) -> Status {
    let mut args = [0u32; 16];
    args[0] = timeout_ms;
    cuCheckpointProcessLock(own_pid(), Ptr::first_of(&mut args).cast())
}

fn state() -> u32 {
    let mut state = 9;
    cuCheckpointProcessGetState(own_pid(), Ptr::of(&mut state)).unwrap();
    state
}

#[test]
fn locked_process_waits_in_its_next_call_until_unlocked() {
    let test = begin_test();
    assert_eq!(cuCheckpointProcessUnlock(own_pid(), Ptr::null()), Err(CUresult::ERROR_ILLEGAL_STATE));
    spin(&test, 1_000, legacy());
    let before = row().kernels_completed;
    lock(0).unwrap();
    assert_eq!(row().kernels_completed, before + 1, "submitted work is done");
    assert_eq!((state(), lock(0)), (1, Err(CUresult::ERROR_ILLEGAL_STATE)));
    let (done, is_done) = mpsc::channel();
    let held = std::thread::spawn(move || {
        let mut version = 0;
        // SAFETY: the function has this type, and the pointer is to a local for its result.
        let got = unsafe { exported("cuDriverGetVersion")(&raw mut version) };
        done.send((got, version)).unwrap();
    });
    assert_eq!(is_done.try_recv(), Err(mpsc::TryRecvError::Empty));
    cuCheckpointProcessUnlock(own_pid(), Ptr::null()).unwrap();
    assert_eq!(is_done.recv().unwrap(), (CUresult::SUCCESS, 13_000));
    held.join().unwrap();
    assert_eq!(state(), 0);
}

#[test]
fn process_with_work_past_the_timeout_is_not_locked() {
    let test = begin_test();
    let on = stream(CU_STREAM_NON_BLOCKING);
    static RELEASED: AtomicBool = AtomicBool::new(false);
    extern "C" fn hold(_: *mut c_void) {
        while !RELEASED.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
    cuLaunchHostFunc(on, Some(hold), Ptr::null()).unwrap();
    assert_eq!(lock(20), Err(CUresult::ERROR_NOT_READY));
    assert_eq!(state(), 0);
    RELEASED.store(true, Ordering::Release);
    cuStreamSynchronize(on).unwrap();
    drop(test);
    let mut state = 9;
    let unknown = cuCheckpointProcessGetState(1, Ptr::of(&mut state));
    assert_eq!(unknown, Err(CUresult::ERROR_INVALID_VALUE), "it does not use the GPU");
}
