//! What the hook offers to the program it is in, found as any program finds it.

use libloading::os::unix::Library;

/// Functions of `sluice.h`, where the hook is in this process.
#[derive(Debug, Default)]
pub(super) struct Hook {
    hint: Option<unsafe extern "C" fn(u32) -> i32>,
    holds: Option<unsafe extern "C" fn(*mut u64, usize) -> usize>,
}

impl Hook {
    /// Looks among everything that is loaded.
    pub(super) fn find() -> Self {
        let all = Library::this();
        // SAFETY: these names are the hook's, whose header gives them these types; it is never unloaded.
        let (hint, holds) = unsafe { (all.get(b"sluice_hint\0"), all.get(b"sluice_hook_holds\0")) };
        Self { hint: hint.ok().map(|found| *found), holds: holds.ok().map(|found| *found) }
    }

    /// Whether there is one.
    pub(super) fn is_there(&self) -> bool {
        self.hint.is_some()
    }

    /// `sluice_hint`; `None` without a hook.
    pub(super) fn hint(&self, lead_us: u32) -> Option<i32> {
        // SAFETY: the function takes any number.
        self.hint.map(|hint| unsafe { hint(lead_us) })
    }

    /// Holds launched so far.
    pub(super) fn holds(&self) -> u64 {
        let mut counts = [0_u64; 2];
        if let Some(holds) = self.holds {
            // SAFETY: the pointer is to as many numbers as are said to be there.
            let _ = unsafe { holds(counts.as_mut_ptr(), counts.len()) };
        }
        counts[0]
    }
}
