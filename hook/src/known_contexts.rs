//! The contexts that the program has made: primary ones, and those of `cuCtxCreate`. Green contexts are not among them: their work is waited
//! for with their primary context.

use std::collections::BTreeSet;
use std::sync::Mutex;

use sluice_hook_core::lock;

use crate::fork;
use crate::guard::guarded;

static CONTEXTS: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// The program has made a context, or uses a primary one.
pub(crate) fn add(context: u64) {
    change(|contexts| _ = contexts.insert(context));
}

/// A context has ended.
pub(crate) fn remove(context: u64) {
    change(|contexts| _ = contexts.remove(&context));
}

/// Whether this is one of them.
pub(crate) fn contains(context: u64) -> bool {
    lock(&CONTEXTS).contains(&context)
}

/// All of them.
pub(crate) fn all() -> Vec<u64> {
    lock(&CONTEXTS).iter().copied().collect()
}

/// In the child of a fork the lock may be held for ever, and no context works there.
fn change(edit: impl FnOnce(&mut BTreeSet<u64>)) {
    if !fork::has_forked() {
        guarded((), || edit(&mut lock(&CONTEXTS)));
    }
}
