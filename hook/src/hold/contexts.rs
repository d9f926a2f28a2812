//! The contexts that can hold, and those that are being made ready for it.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::resources::Resources;

static CONTEXTS: Mutex<Contexts> = Mutex::new(Contexts(Vec::new()));
/// Held while a context is made ready, and while one may end.
static PREPARING: Mutex<()> = Mutex::new(());

/// Where a context stands.
#[derive(Debug)]
pub(super) enum Standing {
    /// It is being made ready, or about to be.
    Preparing,
    /// It can hold.
    Ready(Resources),
    /// It cannot.
    Unable,
}

/// All contexts that ever wanted to hold and still exist.
#[derive(Debug)]
pub(super) struct Contexts(Vec<(u64, Standing)>);

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

impl Contexts {
    pub(super) fn get(&mut self, context: u64) -> Option<&mut Standing> {
        self.0.iter_mut().find(|(known, _)| *known == context).map(|(_, standing)| standing)
    }

    pub(super) fn set(&mut self, context: u64, standing: Standing) {
        match self.get(context) {
            Some(known) => *known = standing,
            None => self.0.push((context, standing)),
        }
    }

    /// The next context that is to be made ready.
    pub(super) fn to_prepare(&self) -> Option<u64> {
        let waiting = self.0.iter().find(|(_, standing)| matches!(standing, Standing::Preparing));
        waiting.map(|(context, _)| *context)
    }

    /// Forgets a context that has ended.
    pub(super) fn remove(&mut self, context: u64) {
        if let Some(at) = self.0.iter().position(|(known, _)| *known == context)
            && let (_, Standing::Ready(resources)) = self.0.swap_remove(at)
        {
            resources.page().give_back();
        }
    }
}
