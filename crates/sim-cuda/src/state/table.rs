//! Handles: numbers that stand for objects of the driver. A stale or foreign handle is refused.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// The kind of object that a handle refers to; part of the handle's value, so that handles of different kinds differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Context = 1,
    Module,
    Function,
    Stream,
    Event,
    Graph,
    GraphExec,
    Array,
    Mipmap,
}

struct Rows<T> {
    objects: HashMap<usize, Arc<T>>,
    next: usize,
}

pub(crate) struct Table<T> {
    kind: Kind,
    rows: RwLock<Rows<T>>,
}

impl<T> Table<T> {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, rows: RwLock::new(Rows { objects: HashMap::new(), next: 1 }) }
    }

    /// Adds an object and returns it; `make` gets its handle.
    pub(crate) fn add(&self, make: impl FnOnce(usize) -> T) -> Arc<T> {
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        let handle = handle_of(self.kind, rows.next);
        rows.next += 1;
        let object = Arc::new(make(handle));
        rows.objects.insert(handle, object.clone());
        object
    }

    pub(crate) fn get(&self, handle: usize) -> Option<Arc<T>> {
        let strict = pause_before_lookup();
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        let object = rows.objects.get(&handle).cloned();
        self.check(strict, &rows, handle, object.is_some());
        object
    }

    /// Removes the object of a handle.
    pub(crate) fn remove(&self, handle: usize) -> Option<Arc<T>> {
        let strict = pause_before_lookup();
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        let object = rows.objects.remove(&handle);
        self.check(strict, &rows, handle, object.is_some());
        object
    }

    /// Ends the process, if `strict`, for the handle of a destroyed object, which a real driver would follow. A real
    /// driver refuses any other invalid handle.
    fn check(&self, strict: bool, rows: &Rows<T>, handle: usize, exists: bool) {
        if strict && !exists && (1..rows.next).any(|number| handle == handle_of(self.kind, number)) {
            crash(self.kind, handle);
        }
    }

    /// Removes all objects that fulfil a condition.
    pub(crate) fn remove_all(&self, mut which: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        rows.objects.extract_if(|_, object| which(object)).map(|(_, object)| object).collect()
    }
}

/// A value that resembles an address, but lies outside every process's address space.
fn handle_of(kind: Kind, number: usize) -> usize {
    0x00c0_de00_0000_0000 | (kind as usize) << 36 | number << 4
}

/// For tests: microseconds before each handle is looked up. If set, the handle of a destroyed object ends the process, as it may
/// crash a real driver. If unset, the driver answers at once and refuses such handles.
const VARIABLE: &str = "SLUICE_SIM_STRICT";

/// Waits, so that another thread may destroy the object of the call. Returns whether [`VARIABLE`] is set.
fn pause_before_lookup() -> bool {
    static PAUSE: OnceLock<Option<Duration>> = OnceLock::new();
    let pause = PAUSE.get_or_init(|| {
        let micros = std::env::var(VARIABLE).ok()?.parse().ok()?;
        Some(Duration::from_micros(micros))
    });
    if let Some(pause) = pause {
        std::thread::sleep(*pause);
    }
    pause.is_some()
}

fn crash(kind: Kind, handle: usize) -> ! {
    eprintln!("the simulated driver follows {handle:#x}, a {kind:?} that has been destroyed");
    std::process::abort()
}
