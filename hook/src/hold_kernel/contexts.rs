//! The contexts of this process that can hold, and those that are being made ready for it.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use sluice_hook_core::hold_kernel;

use super::resources::Resources;

static CONTEXTS: Mutex<Contexts> = Mutex::new(Contexts::new());
/// Held while a context is made ready, and while one may end.
static PREPARING: Mutex<()> = Mutex::new(());

/// See [`hint::Contexts`].
pub(super) type Contexts = hold_kernel::HoldContexts<Resources>;

/// The contexts, unless another thread is busy with them: nobody waits here on the way to a launch.
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

/// No context ends and no other is made ready while this is held.
pub(super) fn preparing() -> MutexGuard<'static, ()> {
    PREPARING.lock().unwrap_or_else(PoisonError::into_inner)
}
