//! The captures of graphs that are in progress in this process. While there is one, no thread of the hook uses a stream that it may contain.

use sluice_hook_core::captures::Captures;

pub(crate) static CAPTURES: Captures = Captures::new();
