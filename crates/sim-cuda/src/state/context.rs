//! Devices and contexts, and which context is current in a thread.

use super::driver::driver;
use super::groups::{Control, Groups};
use super::host::HostThread;
use super::limits::Limits;
use super::memory::PoolId;
use super::stream::Stream;
use super::words::Words;
use super::{lock, status_of};
use crate::border::Status;
use sluice_driver_api::CUresult;
use sluice_sim::client::{Gpu, Mark};
use sluice_sim::engine::StreamKind;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Local memory of a thread in a new context, in bytes: the driver's initial limit of a thread's stack.
const LOCAL: u32 = 1 << 10;

#[derive(Default)]
pub(crate) struct Primary {
    pub(crate) retained: usize,
    pub(crate) context: Option<Arc<Context>>,
    pub(crate) flags: u32,
}

pub(crate) struct Device {
    pub(crate) ordinal: usize,
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) socket: PathBuf,
    pub(crate) primary: Mutex<Primary>,
    /// The pool that stream-ordered allocations come from.
    pub(crate) current_pool: Mutex<Option<PoolId>>,
    /// The thread that runs its host functions.
    pub(crate) host: HostThread,
    /// The words in memory for which its streams and hold kernels wait.
    pub(crate) words: Words,
    /// Its file of the control device, opened with the first context.
    pub(crate) control: Control,
}

impl Device {
    /// Waits until the GPU has reached the mark. From then on pools can give back what was freed before it.
    pub(crate) fn wait_for(&self, mark: Mark) -> Status {
        self.gpu.wait_for(mark).map_err(status_of)?;
        self.gpu.apply_effects();
        driver()?.memory.observe_frees();
        Ok(())
    }

    pub(super) fn connect(ordinal: usize, socket: &Path, label: &str) -> Result<Self, CUresult> {
        let gpu = Gpu::connect(socket, label).map_err(|_| CUresult::ERROR_NO_DEVICE)?;
        Ok(Self {
            ordinal,
            gpu: Arc::new(gpu),
            socket: socket.to_owned(),
            primary: Mutex::new(Primary::default()),
            current_pool: Mutex::new(None),
            host: HostThread::default(),
            words: Words::default(),
            control: Control::default(),
        })
    }

    pub(crate) fn number(&self) -> i32 {
        i32::try_from(self.ordinal).unwrap_or(i32::MAX)
    }

    /// Retains the primary context, and creates it if there is none.
    pub(crate) fn retain(self: &Arc<Self>) -> Result<Arc<Context>, CUresult> {
        let mut primary = lock(&self.primary);
        let context = match &primary.context {
            Some(context) => context.clone(),
            None => Context::open(self, primary.flags)?,
        };
        primary.retained += 1;
        primary.context = Some(context.clone());
        Ok(context)
    }

    /// Releases the primary context; the last release destroys it, or any release with `all`.
    pub(crate) fn release(&self, all: bool) -> Status {
        let context = {
            let mut primary = lock(&self.primary);
            if primary.retained == 0 && !all {
                return Err(CUresult::ERROR_INVALID_CONTEXT);
            }
            primary.retained = if all { primary.retained } else { primary.retained - 1 };
            if primary.retained > 0 && !all {
                return Ok(());
            }
            primary.context.take()
        };
        context.map_or(Ok(()), |context| context.destroy())
    }
}

pub(crate) struct Context {
    pub(crate) handle: usize,
    pub(crate) device: Arc<Device>,
    /// Number of its kernels' channel group.
    pub(crate) group: u64,
    /// All of its channel groups, as the resource manager knows them.
    groups: Groups,
    pub(crate) flags: u32,
    /// The legacy default stream, and all others that are open, by handle.
    streams: Mutex<BTreeMap<usize, Arc<Stream>>>,
    legacy: Mutex<Option<Arc<Stream>>>,
    /// End positions of streams that were closed with work in them.
    closing: Mutex<Vec<Mark>>,
    /// Local memory of each thread, in bytes.
    local: AtomicU32,
    /// Uses besides that of the program that has made it.
    attached: AtomicU32,
    /// Limits with memory of their own.
    pub(crate) limits: Limits,
    /// See [`draining`](Self::draining).
    draining: AtomicU32,
    alive: AtomicBool,
    /// The first asynchronous error: every later call returns it. 0 for none.
    error: AtomicU32,
}

impl Context {
    pub(crate) fn open(device: &Arc<Device>, flags: u32) -> Result<Arc<Self>, CUresult> {
        let groups = device.control.open_groups(&device.gpu)?;
        let group = device.gpu.open_context(Some(groups.compute())).map_err(|error| {
            device.control.free(&groups);
            status_of(error)
        })?;
        let context = driver()?.contexts.add(|handle| Self {
            handle,
            device: device.clone(),
            group,
            groups,
            flags,
            streams: Mutex::new(BTreeMap::new()),
            legacy: Mutex::new(None),
            closing: Mutex::new(Vec::new()),
            local: AtomicU32::new(LOCAL),
            attached: AtomicU32::new(0),
            limits: Limits::default(),
            draining: AtomicU32::new(0),
            alive: AtomicBool::new(true),
            error: AtomicU32::new(0),
        });
        *lock(&context.legacy) = Some(Stream::open(&context, StreamKind::Legacy, 0, 0)?);
        Ok(context)
    }

    #[cfg(test)]
    pub(crate) fn compute_group(&self) -> u32 {
        self.groups.compute().group
    }

    pub(crate) fn check(&self) -> Status {
        if self.alive.load(Ordering::Relaxed) { Ok(()) } else { Err(CUresult::ERROR_CONTEXT_IS_DESTROYED) }
    }

    pub(crate) fn healthy(&self) -> Status {
        CUresult(self.error.load(Ordering::Relaxed)).ok()
    }

    /// Records an asynchronous error; the first one is kept.
    pub(crate) fn fail(&self, error: CUresult) {
        let _ = self.error.compare_exchange(0, error.0, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn legacy(&self) -> Result<Arc<Stream>, CUresult> {
        lock(&self.legacy).clone().ok_or(CUresult::ERROR_CONTEXT_IS_DESTROYED)
    }

    pub(super) fn add_stream(&self, stream: &Arc<Stream>) {
        lock(&self.streams).insert(stream.handle, stream.clone());
    }

    /// Removes a closed stream. [`synchronize`](Self::synchronize) still waits for the commands in it.
    pub(crate) fn remove_stream(&self, stream: &Stream) {
        lock(&self.streams).remove(&stream.handle);
        let mut closing = lock(&self.closing);
        closing.retain(|mark| !self.device.gpu.is_done(*mark));
        closing.push(stream.sim.mark());
    }

    pub(crate) fn streams(&self) -> Vec<Arc<Stream>> {
        lock(&self.streams).values().cloned().collect()
    }

    pub(crate) fn synchronize(&self) -> Status {
        self.drain()?;
        self.healthy()
    }

    /// Waits for everything submitted, whatever the state of the context.
    pub(crate) fn drain(&self) -> Status {
        let marks: Vec<Mark> = self
            .streams()
            .iter()
            .map(|stream| stream.sim.mark())
            .chain(lock(&self.closing).iter().copied())
            .collect();
        self.draining.fetch_add(1, Ordering::Relaxed);
        let waited = marks.into_iter().try_for_each(|mark| self.device.wait_for(mark));
        self.draining.fetch_sub(1, Ordering::Relaxed);
        waited?;
        lock(&self.closing).retain(|mark| !self.device.gpu.is_done(*mark));
        Ok(())
    }

    /// Number of threads in [`drain`](Self::drain).
    pub(crate) fn draining(&self) -> u32 {
        self.draining.load(Ordering::Relaxed)
    }

    /// Provides local memory for a kernel that is about to be launched, in bytes per thread. To provide more than ever before,
    /// the driver waits for everything submitted to the context.
    pub(crate) fn reserve_local(&self, bytes: u32) -> Status {
        if bytes <= self.local.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.drain()?;
        self.local.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn attach(&self) {
        self.attached.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a use. The last one ends the context.
    pub(crate) fn detach(&self) -> Status {
        let others = |attached: u32| attached.checked_sub(1);
        match self.attached.fetch_update(Ordering::Relaxed, Ordering::Relaxed, others) {
            Ok(_) => Ok(()),
            Err(_) => self.destroy(),
        }
    }

    /// Ends the context with everything in it, after all submitted work is done.
    pub(crate) fn destroy(&self) -> Status {
        let driver = driver()?;
        if !self.alive.swap(false, Ordering::Relaxed) {
            return Err(CUresult::ERROR_CONTEXT_IS_DESTROYED);
        }
        // An asynchronous error ends with its context.
        let _ = self.synchronize();
        driver.contexts.remove(self.handle);
        driver.streams.remove_all(|stream| stream.context.handle == self.handle);
        driver.captures.end_context(self.handle);
        driver.events.remove_all(|event| event.context.handle == self.handle);
        for module in driver.modules.remove_all(|module| module.context == Some(self.handle)) {
            module.functions.iter().for_each(|function| drop(driver.functions.remove(function.handle)));
        }
        driver.memory.release_context(self.handle);
        self.limits.end(&self.device);
        lock(&self.streams).clear();
        lock(&self.legacy).take();
        CURRENT.with_borrow_mut(|stack| stack.retain(|other| other.handle != self.handle));
        self.device.gpu.close_context(self.group).map_err(status_of)?;
        self.device.control.free(&self.groups);
        Ok(())
    }
}

thread_local! {
    /// The contexts that this thread has pushed; the last is current.
    static CURRENT: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn current() -> Result<Arc<Context>, CUresult> {
    driver()?;
    let context = current_or_none().ok_or(CUresult::ERROR_INVALID_CONTEXT)?;
    context.check()?;
    Ok(context)
}

pub(crate) fn current_or_none() -> Option<Arc<Context>> {
    CURRENT.try_with(|stack| stack.borrow().last().cloned()).ok().flatten()
}

pub(crate) fn push(context: Arc<Context>) {
    CURRENT.with_borrow_mut(|stack| stack.push(context));
}

pub(crate) fn pop() -> Option<Arc<Context>> {
    CURRENT.with_borrow_mut(Vec::pop)
}
