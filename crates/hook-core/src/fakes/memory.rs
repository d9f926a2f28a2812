//! A manager's memory account.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use crate::lock;
use crate::platform::*;

/// A manager's memory account.
#[derive(Debug)]
pub(crate) struct FakeMemory {
    limit: u64,
    used: AtomicU64,
    connected: AtomicBool,
    dead: AtomicBool,
    silent: AtomicBool,
    /// The manager has no room for this process.
    pub(crate) full: AtomicBool,
    /// Requests and attachments that got no answer.
    pub(crate) unanswered: AtomicU64,
    /// Attachments that were tried.
    pub(crate) attempts: AtomicU64,
    reservations: Mutex<Vec<u64>>,
}

impl FakeMemory {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
            connected: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            full: AtomicBool::new(false),
            unanswered: AtomicU64::new(0),
            attempts: AtomicU64::new(0),
            reservations: Mutex::default(),
        }
    }

    /// The manager stops, or runs again.
    pub(crate) fn set_silent(&self, silent: bool) {
        self.silent.store(silent, SeqCst);
    }

    fn answer(&self) -> Result<(), LinkError> {
        if !self.silent.load(SeqCst) {
            return Ok(());
        }
        self.unanswered.fetch_add(1, SeqCst);
        self.connected.store(false, SeqCst);
        Err(LinkError::Silent)
    }

    /// The bytes of each reservation that was decided.
    pub(crate) fn reservations(&self) -> Vec<u64> {
        lock(&self.reservations).clone()
    }

    pub(crate) fn die(&self) {
        self.dead.store(true, SeqCst);
        self.connected.store(false, SeqCst);
    }

    pub(crate) fn return_empty(&self) {
        self.used.store(0, SeqCst);
        self.dead.store(false, SeqCst);
    }
}

impl MemoryLink for FakeMemory {
    fn connect(&self, used_bytes: u64) -> Result<(), LinkError> {
        self.attempts.fetch_add(1, SeqCst);
        if self.full.load(SeqCst) {
            return Err(LinkError::NoRoom);
        }
        if self.dead.load(SeqCst) {
            return Err(LinkError::Gone);
        }
        self.answer()?;
        // What was declared before is replaced.
        self.used.store(used_bytes, SeqCst);
        self.connected.store(true, SeqCst);
        Ok(())
    }

    fn is_alive(&self) -> bool {
        self.connected.load(SeqCst)
    }

    fn usage(&self) -> Result<(u64, u64), LinkError> {
        self.answer()?;
        Ok((self.used.load(SeqCst), self.limit))
    }

    fn owns_process(&self, pid: u32) -> Result<bool, LinkError> {
        self.answer()?;
        Ok(pid == 7)
    }

    fn reserve(&self, bytes: u64) -> Result<bool, LinkError> {
        self.answer()?;
        lock(&self.reservations).push(bytes);
        let fits = self.used.load(SeqCst) + bytes <= self.limit;
        if fits {
            self.used.fetch_add(bytes, SeqCst);
        }
        Ok(fits)
    }

    fn release(&self, bytes: u64) -> Result<(), LinkError> {
        self.answer()?;
        self.used.fetch_sub(bytes, SeqCst);
        Ok(())
    }
}
