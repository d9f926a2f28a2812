//! A queue of lines and the thread that writes them. The sender of a line never waits.
//!
//! `tracing-appender` (0.2.5) has such a writer and is not used, because a daemon could hang at its end: if the queue is full then, its guard
//! prints to standard output, which blocks where standard output and standard error have the same reader that stands still. The line that
//! reports dropped lines and an end of the wait that is configurable would need a part of our own at either side of it.

use nix::sys::signal::{SigSet, SigmaskHow};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

/// Lines that wait to be written: about 1 MB, and several seconds of the busiest start.
pub const QUEUED_LINES: usize = 8192;

/// What the thread receives.
enum Entry {
    Line(Vec<u8>),
    /// Answered when all lines before it are written.
    Flush(Sender<()>),
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct LossyLog {
    queue: SyncSender<Entry>,
    dropped: Arc<AtomicU64>,
}

impl LossyLog {
    /// Starts the thread that writes to `output`, and reports the number of dropped lines by `report`. It ends with the process.
    pub(crate) fn start(output: impl Write + Send + 'static, report: fn(u64) -> String) -> io::Result<Self> {
        let (queue, lines) = sync_channel(QUEUED_LINES);
        let dropped = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&dropped);
        // A signal to the process goes to any thread that does not block it. The daemon's own threads decide which signals they take, so
        // this one takes none.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let started = std::thread::Builder::new()
            .name("sluice-log".into())
            .spawn(move || write(&lines, output, report, &count));
        before.thread_set_mask()?;
        started?;
        Ok(Self { queue, dropped })
    }

    /// A writer of one event.
    pub(crate) fn writer(&self) -> LineWriter<'_> {
        LineWriter(self)
    }

    /// Lines dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until all lines so far are written, or until `timeout` has passed.
    pub(crate) fn flush(&self, timeout: Duration) {
        let end = Instant::now() + timeout;
        let (sender, written) = channel();
        let mut entry = Entry::Flush(sender);
        // A full queue has no room for the request either.
        while let Err(TrySendError::Full(refused)) = self.queue.try_send(entry) {
            if Instant::now() >= end {
                return;
            }
            entry = refused;
            std::thread::sleep(Duration::from_millis(10));
        }
        let wait = end.saturating_duration_since(Instant::now());
        // An error: the time has passed, or the thread has ended.
        let _ = written.recv_timeout(wait);
    }
}

/// Takes the lines of one event. `tracing-subscriber` writes an event by one call.
#[derive(Debug)]
pub(crate) struct LineWriter<'a>(&'a LossyLog);

impl Write for LineWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.0.queue.try_send(Entry::Line(line.to_vec())).is_err() {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write(lines: &Receiver<Entry>, mut output: impl Write, report: fn(u64) -> String, dropped: &AtomicU64) {
    let mut reported = 0;
    for entry in lines {
        let line = match entry {
            Entry::Line(line) => line,
            Entry::Flush(written) => {
                // The flush may have ended without it.
                let _ = written.send(());
                continue;
            }
        };
        // There is no other place to report that standard error fails.
        let _ = output.write_all(&line);
        let dropped = dropped.load(Ordering::Relaxed);
        if dropped > reported {
            let _ = output.write_all(report(dropped - reported).as_bytes());
            reported = dropped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// An output whose reader stands still until the test lets it read.
    struct Stuck {
        may_read: Receiver<()>,
        text: Arc<Mutex<String>>,
    }

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // An error: the test has let it read for ever.
            let _ = self.may_read.recv();
            self.text.lock().unwrap().push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn report(dropped: u64) -> String {
        format!("{dropped} were dropped\n")
    }

    fn stuck() -> (LossyLog, Sender<()>, Arc<Mutex<String>>) {
        let ((reads, may_read), text) = (channel(), Arc::new(Mutex::new(String::new())));
        (LossyLog::start(Stuck { may_read, text: Arc::clone(&text) }, report).unwrap(), reads, text)
    }

    #[test]
    fn lines_are_dropped_and_counted_while_the_reader_stands_still() {
        let (log, reads, text) = stuck();
        for number in 0..2 * QUEUED_LINES {
            log.writer().write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        let dropped = log.dropped();
        assert!(dropped >= (QUEUED_LINES - 1) as u64, "{dropped}");
        drop(reads);
        log.flush(Duration::from_secs(60));
        let text = text.lock().unwrap();
        assert!(text.starts_with("line 0\n"), "{}", &text[..80]);
        assert!(text.contains(&format!("\n{dropped} were dropped\n")));
    }

    #[test]
    fn flush_returns_although_the_reader_stands_still() {
        let (log, _reads, _) = stuck();
        log.writer().write_all(b"a\n").unwrap();
        log.flush(Duration::from_millis(1));
        for _ in 0..2 * QUEUED_LINES {
            log.writer().write_all(b"b\n").unwrap();
        }
        log.flush(Duration::from_millis(1));
    }
}
