//! Release of stopped processes, whatever happens to the worker's code.

use anyhow::bail;

use super::process_groups::ProcessGroups;

/// A process that can be released.
pub(super) trait Releasable {
    fn pid(&self) -> i32;
    fn has_ended(&self) -> bool;
    fn release(&self) -> Result<(), String>;
}

impl Releasable for ProcessGroups {
    fn pid(&self) -> i32 {
        ProcessGroups::pid(self)
    }

    fn has_ended(&self) -> bool {
        ProcessGroups::has_ended(self)
    }

    fn release(&self) -> Result<(), String> {
        self.enable_all().map_err(|why| why.to_string())
    }
}

/// Processes that are released when this value is dropped.
pub(super) struct ReleaseGuard<T: Releasable>(pub(super) Vec<T>);

impl<T: Releasable> ReleaseGuard<T> {
    /// Releases all processes, also those after one that could not be released.
    ///
    /// # Errors
    /// The processes that are still stopped, and why. A process that has ended is not among them.
    pub(super) fn release(&mut self) -> anyhow::Result<()> {
        let mut failed = Vec::new();
        for process in self.0.drain(..) {
            if let Err(why) = process.release()
                && !process.has_ended()
            {
                failed.push(format!("process {} could not be released: {why}", process.pid()));
            }
        }
        if failed.is_empty() { Ok(()) } else { bail!(failed.join("\n")) }
    }
}

impl<T: Releasable> Drop for ReleaseGuard<T> {
    fn drop(&mut self) {
        if let Err(why) = self.release() {
            eprintln!("sluice: {why:#}");
        }
    }
}

#[cfg(test)]
mod tests;
