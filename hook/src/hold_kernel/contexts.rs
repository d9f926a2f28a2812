//! The contexts of this process with resources for hold kernels, and those whose resources are being made.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use sluice_hook_core::hold_kernel;

use super::resources::Resources;

static CONTEXTS: Mutex<Contexts> = Mutex::new(Contexts::new());
/// Held while resources of a context are made, and while a context may end.
static PREPARING: Mutex<()> = Mutex::new(());

/// See [`sluice_hook_core::hold_kernel::HoldContexts`].
pub(super) type Contexts = hold_kernel::HoldContexts<Resources>;

/// The contexts, unless another thread has the lock: no thread waits here on the way to a launch.
pub(super) fn try_lock() -> Option<MutexGuard<'static, Contexts>> {
    match CONTEXTS.try_lock() {
        Ok(contexts) => Some(contexts),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The contexts.
pub(super) fn lock() -> MutexGuard<'static, Contexts> {
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While this is held, no context ends and no resources are made.
pub(super) fn preparing() -> MutexGuard<'static, ()> {
    PREPARING.lock().unwrap_or_else(PoisonError::into_inner)
}
