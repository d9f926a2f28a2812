//! Event sets: waiting for faults.

use super::session::{FIRST_HANDLE, is_open, socket};
use super::{Answer, Error, NO_INSTANCE, nvml, put};
use crate::border::Ptr;
use crate::state::lock;
use sluice_driver_api::types::{c_uint, c_ulonglong, c_void};
use sluice_sim::client::{Listener, ListenerEvent, wait_any};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

/// `nvmlEventTypeXidCriticalError`: the only kind of event of a simulated GPU.
const XID: c_ulonglong = 8;

/// `nvmlEventData_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Event {
    device: usize,
    kind: c_ulonglong,
    data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// The GPUs to which a set listens, with the device of each listener.
#[derive(Default)]
struct Set {
    ordinals: Vec<usize>,
    listeners: Vec<Listener>,
}

#[derive(Default)]
struct Sets {
    next: usize,
    all: HashMap<usize, Arc<Mutex<Set>>>,
}

static SETS: LazyLock<Mutex<Sets>> = LazyLock::new(Mutex::default);

fn set(handle: Ptr<c_void>) -> Result<Arc<Mutex<Set>>, Error> {
    lock(&SETS).all.get(&handle.address()).cloned().ok_or(Error::InvalidArgument)
}

fn register(device: Ptr<c_void>, kinds: c_ulonglong, handle: Ptr<c_void>) -> Answer {
    if kinds == 0 || kinds & !XID != 0 {
        return Err(Error::NotSupported);
    }
    let (ordinal, socket) = socket(device)?;
    let set = set(handle)?;
    let listener = Listener::open(&socket).map_err(|_| Error::GpuIsLost)?;
    let mut set = lock(&set);
    if !set.ordinals.contains(&ordinal) {
        set.ordinals.push(ordinal);
        set.listeners.push(listener);
    }
    Ok(())
}

fn wait(handle: Ptr<c_void>, timeout_ms: c_uint) -> Result<Event, Error> {
    let set = set(handle)?;
    let mut set = lock(&set);
    let timeout = Duration::from_millis(timeout_ms.into());
    match wait_any(&mut set.listeners, timeout).map_err(|_| Error::Unknown)? {
        None => Err(Error::Timeout),
        Some((index, ListenerEvent::Xid(code))) => Ok(Event {
            device: FIRST_HANDLE + set.ordinals[index],
            kind: XID,
            data: code,
            gpu_instance: NO_INSTANCE,
            compute_instance: NO_INSTANCE,
        }),
        Some((index, ListenerEvent::Disconnected)) => {
            set.ordinals.remove(index);
            set.listeners.remove(index);
            Err(Error::GpuIsLost)
        }
    }
}

nvml! { once initialised:
    fn nvmlDeviceGetSupportedEventTypes(device: *mut c_void, out: *mut c_ulonglong) {
        super::mig::whole_gpu(device)?;
        put(out, XID)
    }

    fn nvmlEventSetCreate(out: *mut *mut c_void) {
        let mut sets = lock(&SETS);
        sets.next += 1;
        let handle = sets.next;
        sets.all.insert(handle, Arc::default());
        out.write_handle(handle).map_err(|_| Error::InvalidArgument)
    }

    fn nvmlDeviceRegisterEvents(device: *mut c_void, kinds: c_ulonglong, set: *mut c_void) {
        register(device, kinds, set)
    }

    fn nvmlEventSetWait_v2(set: *mut c_void, out: *mut Event, timeout_ms: c_uint) {
        put(out, wait(set, timeout_ms)?)
    }
}

nvml! {
    fn nvmlEventSetFree(set: *mut c_void) {
        is_open()?;
        lock(&SETS).all.remove(&set.address()).map(drop).ok_or(Error::InvalidArgument)
    }
}
