//! What the manager logs, by thread-independent collection into one text.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

static LOG: OnceLock<()> = OnceLock::new();
static TEXT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

thread_local! {
    /// Where in the text this thread's test began. What the tests before it collected is long, and managers wait while it is read.
    static FIRST: Cell<usize> = const { Cell::new(0) };
}

struct Sink;

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        TEXT.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Collects everything logged by any manager of this test program from here on.
pub fn collect() {
    LOG.get_or_init(|| {
        let filter = tracing_subscriber::EnvFilter::new("sluice_pod_manager=debug");
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(|| Sink).init();
    });
    FIRST.set(TEXT.lock().unwrap_or_else(PoisonError::into_inner).len());
}

/// The lines since this thread's call of [`collect`] that contain all of `words`.
pub fn lines_with(words: &[&str]) -> Vec<String> {
    let text = TEXT.lock().unwrap_or_else(PoisonError::into_inner);
    let text = String::from_utf8_lossy(&text[FIRST.get()..]);
    text.lines().filter(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned).collect()
}
