//! Handles: numbers that stand for objects of the driver. A stale or foreign handle is found out, never followed.

use super::strict;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The kind of object that a handle refers to; part of the handle's value, so that handles of different kinds differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// CUcontext.
    Context = 1,
    /// CUmodule and CUlibrary.
    Module,
    /// CUfunction and CUkernel.
    Function,
    /// CUstream.
    Stream,
    /// CUevent.
    Event,
    /// CUgraph.
    Graph,
    /// CUgraphExec.
    GraphExec,
    /// CUarray.
    Array,
    /// CUmipmappedArray.
    Mipmap,
}

struct Rows<T> {
    objects: HashMap<usize, Arc<T>>,
    next: usize,
}

/// All objects of one kind.
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

    /// The object of a handle.
    pub(crate) fn get(&self, handle: usize) -> Option<Arc<T>> {
        let strict = strict::dwell();
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        let object = rows.objects.get(&handle).cloned();
        self.check(strict, &rows, handle, object.is_some());
        object
    }

    /// Takes the object of a handle out; the handle is stale from here on.
    pub(crate) fn remove(&self, handle: usize) -> Option<Arc<T>> {
        let strict = strict::dwell();
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        let object = rows.objects.remove(&handle);
        self.check(strict, &rows, handle, object.is_some());
        object
    }

    /// A real driver would follow the handle of a destroyed object. It refuses any other invalid handle.
    fn check(&self, strict: bool, rows: &Rows<T>, handle: usize, is_there: bool) {
        if strict && !is_there && (1..rows.next).any(|number| handle == handle_of(self.kind, number)) {
            strict::crash(self.kind, handle);
        }
    }

    /// Takes out all objects that answer yes.
    pub(crate) fn remove_all(&self, mut which: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        rows.objects.extract_if(|_, object| which(object)).map(|(_, object)| object).collect()
    }
}

/// A value that resembles an address, but lies outside every process's address space.
fn handle_of(kind: Kind, number: usize) -> usize {
    0x00c0_de00_0000_0000 | (kind as usize) << 36 | number << 4
}
