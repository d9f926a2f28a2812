//! A value that is made once, shared by all threads, and never freed.
//!
//! It takes no lock: if two threads make the value at once, the first one published stays. The hook runs inside loaders, signal handlers
//! and children of forks, where a lock may be held forever.

use std::sync::atomic::{AtomicPtr, Ordering::*};

/// A place for such a value.
#[derive(Debug)]
pub(crate) struct Leaked<T>(AtomicPtr<T>);

impl<T: Sync> Leaked<T> {
    pub(crate) const fn none() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The value, if it has been published.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null or that of a value of `publish` or `share`, which are never freed.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    /// Publishes a value, unless another thread was first. Returns the published one.
    pub(crate) fn publish(&self, value: T) -> &'static T {
        let fresh = Box::into_raw(Box::new(value));
        match self.0.compare_exchange(std::ptr::null_mut(), fresh, AcqRel, Acquire) {
            // SAFETY: `fresh` is valid and from here on shared and never freed.
            Ok(_) => unsafe { &*fresh },
            Err(first) => {
                // SAFETY: `fresh` was not published, so this is its only owner; `first` was published and is never freed.
                unsafe {
                    drop(Box::from_raw(fresh));
                    &*first
                }
            }
        }
    }

    /// Publishes a value that is never freed, in place of the present one.
    pub(crate) fn share(&self, value: &'static T) {
        self.0.store(std::ptr::from_ref(value).cast_mut(), Release);
    }

    /// Forgets the value without freeing it: in the child of a fork, whose parent's other threads may have been using it.
    pub(crate) fn forget(&self) {
        self.0.store(std::ptr::null_mut(), Release);
    }
}
