//! What the manager logs, by thread-independent collection into one text.

use std::io::{self, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

static LOG: OnceLock<()> = OnceLock::new();
static TEXT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

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
}

/// The lines so far that contain all of `words`.
pub fn lines_with(words: &[&str]) -> Vec<String> {
    let text = TEXT.lock().unwrap_or_else(PoisonError::into_inner);
    let text = String::from_utf8_lossy(&text);
    text.lines().filter(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned).collect()
}
