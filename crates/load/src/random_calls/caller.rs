//! One thread's calls.

use std::ptr;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use sluice_driver_api::types::{CUmemoryPool, CUmodule, CUstream};

use super::allocation::{Allocation, create_pool};
use super::captured::CapturedGraph;
use super::patterned::PatternedBlock;
use super::random::Random;
use super::{Failure, Shared, children, second_context};
use crate::driver::{Error, call};
use crate::kernel;
use crate::memory::DeviceBuffer;
use crate::session::{Event, Session, Stream};

/// Words of the buffer that shows how many kernels ran.
const WORDS: u32 = 1024;
/// The same if it is to leave the GPU: 2 MiB, the least memory that may.
const MOVABLE_WORDS: u32 = 1 << 18;
/// Blocks of a launch.
const BLOCKS: u32 = 8;
/// Allocations that a thread keeps at most.
const ALLOCATIONS: usize = 12;
/// Blocks that a thread keeps at most: a few, so that two threads and a short child fit into the client's limit.
const MOVABLE_BLOCKS: usize = 3;
/// Bytes of a memset or a copy, which are really written.
const TOUCHED: usize = 64 << 10;
/// Pause between two attempts to get the first buffer.
const RETRY: Duration = Duration::from_millis(50);
/// How often a thread of a short child tries to get it: for 5 s, longer than a manager is stopped. Its client may have more memory than its
/// limit, because each process has the whole limit while the manager is away. The other processes may be quiet by then, and keep what they
/// have until the child has ended.
const CHILD_ATTEMPTS: u32 = 100;

/// The state of a thread.
pub(crate) struct Caller<'s> {
    session: &'s Session,
    shared: &'s Shared,
    random: Random,
    allocations: Vec<Allocation>,
    /// Allocations of a program with movable memory.
    blocks: Vec<PatternedBlock<'s>>,
    graph: Option<CapturedGraph<'s>>,
    pool: Option<CUmemoryPool>,
    buffer: DeviceBuffer<'s>,
    words: u32,
    /// Kernels that were launched on the buffer.
    launched: u64,
    events: [Event<'s>; 2],
    /// Kernels on the buffer, and everything else.
    work: Stream<'s>,
    aside: Stream<'s>,
}

/// Whether memory was granted. A refusal is no failure.
fn granted<T>(result: Result<T, Error>, shared: &Shared) -> Result<Option<T>, Error> {
    match result {
        Err(error) if error.is_out_of_memory() => {
            shared.refused.fetch_add(1, Ordering::Relaxed);
            Ok(None)
        }
        other => other.map(Some),
    }
}

impl<'s> Caller<'s> {
    /// Waits until there is memory for the buffer; `None` if a short child has been refused too often.
    pub(crate) fn new(
        session: &'s Session,
        shared: &'s Shared,
        random: Random,
    ) -> Result<Option<Self>, Error> {
        let mut attempts = 0;
        let words = if shared.config.movable { MOVABLE_WORDS } else { WORDS };
        let buffer = loop {
            if let Some(buffer) = granted(DeviceBuffer::with_initial_words(session, words), shared)? {
                break buffer;
            }
            attempts += 1;
            if shared.config.calls.is_some() && attempts == CHILD_ATTEMPTS {
                return Ok(None);
            }
            thread::sleep(RETRY);
        };
        Ok(Some(Self {
            session,
            shared,
            random,
            allocations: Vec::new(),
            blocks: Vec::new(),
            graph: None,
            pool: None,
            buffer,
            words,
            launched: 0,
            events: [session.event()?, session.event()?],
            work: session.stream()?,
            aside: session.stream()?,
        }))
    }

    /// Makes a random call, or several that belong together, and pauses.
    pub(crate) fn call(&mut self) -> Result<(), Failure> {
        self.shared.calls.fetch_add(1, Ordering::Relaxed);
        match self.random.below(1000) {
            0..300 => self.launch()?,
            300..440 if self.shared.config.movable => self.allocate_block()?,
            440..570 if self.shared.config.movable => self.free_block()?,
            570..660 if self.shared.config.movable => self.verify_block()?,
            300..440 => self.allocate()?,
            440..570 => self.free_one()?,
            570..660 => self.touch()?,
            660..750 => self.use_event()?,
            750..830 => self.wait()?,
            830..870 => drop(self.session.memory_info()?),
            870..910 => self.use_graph()?,
            910..930 => second_context::use_one(self.session, &mut self.random)?,
            930..950 => self.load_module()?,
            950..970 => self.use_new_stream()?,
            970..980 => self.replace_pool()?,
            980..990 => self.retain_primary()?,
            990..995 => children::fork_one(self.session)?,
            _ if self.random.once_in(8) => {
                children::start_one(&self.shared.config.child, self.random.word())?
            }
            _ => {}
        }
        let longest = u64::try_from(self.shared.config.pause.as_micros()).unwrap_or(u64::MAX);
        thread::sleep(Duration::from_micros(self.random.below(longest)));
        Ok(())
    }

    /// Waits for all work and compares the buffer with the number of kernels.
    pub(crate) fn verify(&mut self) -> Result<(), Failure> {
        self.work.synchronize()?;
        self.aside.synchronize()?;
        let words = self.buffer.words()?;
        let launched = self.launched;
        if kernel::checksum(words) != kernel::expected_checksum(self.words, launched) {
            return Err(Failure::WrongResult { launched });
        }
        self.shared.verified.fetch_add(launched, Ordering::Relaxed);
        self.blocks.iter().try_for_each(PatternedBlock::verify)?;
        // From here on the buffer counts anew.
        self.buffer.fill_with_initial_words()?;
        self.launched = 0;
        Ok(())
    }

    /// Frees all memory but the buffer, and what the driver keeps for graphs.
    pub(crate) fn free_all(&mut self) -> Result<(), Failure> {
        for allocation in self.allocations.drain(..) {
            allocation.free(self.session, &mut self.random, &self.aside)?;
        }
        self.blocks.clear();
        self.aside.synchronize()?;
        self.drop_pool()?;
        Ok(())
    }

    fn launch(&mut self) -> Result<(), Error> {
        // Mostly short kernels; some are longer than a context switch, and few longer than a quantum's tenth.
        let us = match self.random.below(100) {
            0..90 => self.random.below(300),
            90..99 => self.random.below(2_000),
            _ => self.random.below(10_000),
        };
        let iterations = kernel::iterations(Duration::from_micros(us));
        self.work.launch(&self.buffer, BLOCKS, iterations)?;
        self.launched += 1;
        Ok(())
    }

    fn allocate(&mut self) -> Result<(), Error> {
        if self.allocations.len() >= ALLOCATIONS {
            return self.free_one();
        }
        if self.shared.config.pools && self.pool.is_none() {
            self.pool = Some(create_pool(self.session, &mut self.random)?);
        }
        let made = Allocation::random(self.session, &mut self.random, &self.aside, self.pool);
        self.allocations.extend(granted(made, self.shared)?);
        Ok(())
    }

    fn free_one(&mut self) -> Result<(), Error> {
        if self.allocations.is_empty() {
            return Ok(());
        }
        let index = self.random.index(self.allocations.len());
        self.allocations.swap_remove(index).free(self.session, &mut self.random, &self.aside)
    }

    fn allocate_block(&mut self) -> Result<(), Failure> {
        if self.blocks.len() >= MOVABLE_BLOCKS {
            return self.free_block();
        }
        let made = PatternedBlock::random(self.session, &mut self.random);
        self.blocks.extend(granted(made, self.shared)?);
        Ok(())
    }

    /// Compares a block and frees it.
    fn free_block(&mut self) -> Result<(), Failure> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let index = self.random.index(self.blocks.len());
        self.blocks.swap_remove(index).verify()
    }

    fn verify_block(&mut self) -> Result<(), Failure> {
        let index = self.random.index(self.blocks.len());
        self.blocks.get(index).map_or(Ok(()), PatternedBlock::verify)
    }

    /// A memset or a copy between two allocations.
    fn touch(&mut self) -> Result<(), Error> {
        let addresses: Vec<u64> = self.allocations.iter().filter_map(Allocation::address).collect();
        if addresses.is_empty() {
            return Ok(());
        }
        let mut any = || addresses[self.random.index(addresses.len())];
        let (to, from) = (any(), any());
        let (driver, on) = (self.session.driver(), self.aside.handle());
        if to == from {
            // SAFETY: the allocation is larger, and it is freed only behind or after this stream's work.
            unsafe { call!(driver, cuMemsetD8Async(to, 1, TOUCHED, on)) }
        } else {
            // SAFETY: as above, for both.
            unsafe { call!(driver, cuMemcpyDtoDAsync_v2(to, from, TOUCHED, on)) }
        }
    }

    fn use_event(&mut self) -> Result<(), Error> {
        let event = &self.events[self.random.index(2)];
        let (from, to) =
            if self.random.once_in(2) { (&self.work, &self.aside) } else { (&self.aside, &self.work) };
        match self.random.below(4) {
            0 => event.record(from),
            1 => event.is_reached().map(drop),
            2 => event.wait(),
            _ => {
                event.record(from)?;
                event.hold_back(to)
            }
        }
    }

    fn wait(&mut self) -> Result<(), Error> {
        match self.random.below(8) {
            0 => {
                let _no_capture = self.shared.captures.write().unwrap_or_else(PoisonError::into_inner);
                self.session.synchronize()
            }
            1 | 2 => self.aside.synchronize(),
            3 => self.work.is_idle().map(drop),
            _ => self.work.synchronize(),
        }
    }

    /// Captures a graph, or launches the one that exists, or destroys it.
    fn use_graph(&mut self) -> Result<(), Error> {
        match self.graph.take() {
            None => {
                let _capture = self.shared.captures.read().unwrap_or_else(PoisonError::into_inner);
                let made = CapturedGraph::capture(
                    self.session,
                    &self.work,
                    &self.buffer,
                    self.shared.config.pools,
                    &mut self.random,
                )?;
                self.graph = Some(made);
            }
            Some(graph) if self.random.once_in(4) => {
                self.work.synchronize()?;
                graph.destroy()?;
            }
            Some(graph) => {
                self.launched += graph.launch(&self.work, &mut self.random)?;
                self.graph = Some(graph);
            }
        }
        Ok(())
    }

    fn load_module(&mut self) -> Result<(), Error> {
        let driver = self.session.driver();
        let mut image = kernel::module_for(self.session.device_name()).into_bytes();
        image.push(0);
        let mut module: CUmodule = ptr::null_mut();
        // SAFETY: the image is text with a terminating zero byte, and outlives the call.
        unsafe { call!(driver, cuModuleLoadData(&raw mut module, image.as_ptr().cast()))? };
        // SAFETY: the module was just loaded, and no function of it was taken.
        unsafe { call!(driver, cuModuleUnload(module)) }
    }

    /// A stream with work on it, destroyed at once.
    fn use_new_stream(&mut self) -> Result<(), Error> {
        // The buffer's kernels stay in one order.
        self.work.synchronize()?;
        let stream = self.session.stream()?;
        let buffer = &self.buffer;
        stream.launch(buffer, BLOCKS, kernel::iterations(Duration::from_micros(self.random.below(200))))?;
        self.launched += 1;
        if self.random.once_in(2) {
            stream.synchronize()?;
            return Ok(());
        }
        self.events[0].record(&stream)?;
        self.events[0].hold_back(&self.work)
    }

    fn replace_pool(&mut self) -> Result<(), Error> {
        if self.random.once_in(2) {
            return self.trim_default_pool();
        }
        // Memory of the pool stays valid until it is freed.
        self.drop_pool()
    }

    fn drop_pool(&mut self) -> Result<(), Error> {
        let Some(pool) = self.pool.take() else { return Ok(()) };
        // SAFETY: the pool was made by this thread, and it is destroyed only here.
        unsafe { call!(self.session.driver(), cuMemPoolDestroy(pool)) }
    }

    fn trim_default_pool(&mut self) -> Result<(), Error> {
        let (driver, mut pool): (_, CUmemoryPool) = (self.session.driver(), ptr::null_mut());
        // SAFETY: the driver writes one handle to a local.
        unsafe { call!(driver, cuDeviceGetDefaultMemPool(&raw mut pool, self.session.device()))? };
        // SAFETY: the default pool exists as long as the driver.
        unsafe { call!(driver, cuMemPoolTrimTo(pool, 0)) }
    }

    fn retain_primary(&mut self) -> Result<(), Error> {
        let (driver, mut context) = (self.session.driver(), ptr::null_mut());
        // SAFETY: the driver writes one handle to a local.
        unsafe { call!(driver, cuDevicePrimaryCtxRetain(&raw mut context, self.session.device()))? };
        // SAFETY: it was just retained; the session retains it besides.
        unsafe { call!(driver, cuDevicePrimaryCtxRelease_v2(self.session.device())) }
    }
}

/// The stream of a call on the legacy default stream.
pub(super) const DEFAULT: CUstream = ptr::null_mut();
