//! The hook's C API as a program finds it: by symbol name among the loaded libraries.

use libloading::os::unix::Library;

/// Functions of `sluice.h`; all absent if the hook is not loaded.
#[derive(Debug, Default)]
pub(super) struct HookApi {
    hint: Option<unsafe extern "C" fn(u32) -> i32>,
    holds: Option<unsafe extern "C" fn(*mut u64, usize) -> usize>,
}

impl HookApi {
    pub(super) fn find() -> Self {
        let all = Library::this();
        // SAFETY: only the hook exports these names, and its header declares these types; it is never unloaded.
        let (hint, holds) = unsafe { (all.get(b"sluice_hint\0"), all.get(b"sluice_hook_holds\0")) };
        Self { hint: hint.ok().map(|found| *found), holds: holds.ok().map(|found| *found) }
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.hint.is_some()
    }

    /// Calls `sluice_hint`; `None` without a hook.
    pub(super) fn hint(&self, lead_us: u32) -> Option<i32> {
        // SAFETY: the function accepts any number.
        self.hint.map(|hint| unsafe { hint(lead_us) })
    }

    /// The count of hold kernels that the hook has launched.
    pub(super) fn hold_kernels(&self) -> u64 {
        let mut counts = [0_u64; 2];
        if let Some(holds) = self.holds {
            // SAFETY: the pointer leads to as many numbers as the second argument states.
            let _ = unsafe { holds(counts.as_mut_ptr(), counts.len()) };
        }
        counts[0]
    }
}
