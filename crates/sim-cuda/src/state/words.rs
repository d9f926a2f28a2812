//! Words in this process's memory for which streams and hold kernels wait. While there are any, a thread reads them and reports
//! every change to the simulated GPU.

use super::context::Context;
use super::lock;
use crate::border::Span;
use sluice_sim::client::{Gpu, Mark};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Pause between two readings: the time that the GPU itself takes to see a store of the host (`docs/reference/gpu.md`
/// §15: 9.6 µs), and an acceptable load for a machine with few cores.
const PAUSE: Duration = Duration::from_micros(30);
/// Pause when nothing has changed for [`QUIET_TIME`].
const LONG_PAUSE: Duration = Duration::from_micros(150);
const QUIET_TIME: Duration = Duration::from_millis(20);
/// Interval at which the GPU is asked for the progress of its streams.
const QUERY_INTERVAL: Duration = Duration::from_millis(10);

/// A word, and the number of its waiters.
struct Word {
    span: Span,
    reported: u64,
    /// Commands that are being submitted.
    being_submitted: usize,
    waiting: Vec<(Mark, Arc<Context>)>,
}

/// The words for which streams and hold kernels of one device wait.
#[derive(Default)]
pub(crate) struct Words {
    shared: Arc<Shared>,
    started: OnceLock<()>,
}

#[derive(Default)]
struct Shared {
    words: Mutex<BTreeMap<usize, Word>>,
    wake: Condvar,
}

/// The registration of a word whose waiter is being submitted.
pub(crate) struct Registration<'a> {
    words: &'a Words,
    address: usize,
}

impl Words {
    /// Registers a word before its waiter is submitted: from now on the thread reads it.
    pub(crate) fn watch(&self, gpu: &Arc<Gpu>, span: Span) -> Registration<'_> {
        {
            let mut words = lock(&self.shared.words);
            let now = span.load();
            let word = words.entry(span.address()).or_insert_with(|| {
                gpu.set_word(span.address() as u64, now);
                Word { span, reported: now, being_submitted: 0, waiting: Vec::new() }
            });
            // The same word may be waited for in both widths.
            if span.len() > word.span.len() {
                word.span = span;
            }
            word.being_submitted += 1;
            word.report(gpu);
        }
        self.started.get_or_init(|| start(gpu.clone(), self.shared.clone()));
        self.shared.wake.notify_one();
        Registration { words: self, address: span.address() }
    }

    /// Forgets words. Must run before their memory is unmapped or returned to the program: the thread reads every
    /// registered word.
    pub(crate) fn forget(&self, address: usize, len: usize) {
        lock(&self.shared.words).retain(|at, _| !(address..address + len).contains(at));
    }
}

impl Registration<'_> {
    /// The waiter is submitted: it has reached its position when `mark` is completed.
    pub(crate) fn submitted(self, mark: Mark, context: &Arc<Context>) {
        if let Some(word) = lock(&self.words.shared.words).get_mut(&self.address) {
            word.waiting.retain(|(other, _)| !mark.follows(other));
            word.waiting.push((mark, context.clone()));
        }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        if let Some(word) = lock(&self.words.shared.words).get_mut(&self.address) {
            word.being_submitted = word.being_submitted.saturating_sub(1);
        }
    }
}

impl Word {
    /// Reads the word and reports it to the GPU if it has changed. Returns `true` if so.
    fn report(&mut self, gpu: &Gpu) -> bool {
        let now = self.span.load();
        let changed = now != self.reported;
        if changed {
            self.reported = now;
            gpu.set_word(self.span.address() as u64, now);
        }
        changed
    }
}

fn start(gpu: Arc<Gpu>, shared: Arc<Shared>) {
    let run = move || {
        // The default slack of 50 µs would be added to every pause.
        let _ = nix::sys::prctl::set_timerslack(1);
        let (mut changed, mut last_query) = (Instant::now(), Instant::now());
        loop {
            let mut words = lock(&shared.words);
            while words.is_empty() {
                words = shared.wake.wait(words).unwrap_or_else(PoisonError::into_inner);
                changed = Instant::now();
            }
            if last_query.elapsed() >= QUERY_INTERVAL {
                last_query = Instant::now();
                if !gpu.is_connected() {
                    words.clear();
                    continue;
                }
                let waiting = words.values().flat_map(|word| &word.waiting);
                let running = waiting.filter(|(_, context)| context.check().is_ok());
                let marks: Vec<Mark> = running.map(|(mark, _)| *mark).collect();
                // Without the lock: the query applies the effects of completed commands, and that of a free forgets words.
                drop(words);
                marks.into_iter().for_each(|mark| _ = gpu.is_done(mark));
                words = lock(&shared.words);
            }
            for word in words.values_mut() {
                if word.report(&gpu) {
                    changed = Instant::now();
                }
                word.waiting.retain(|(mark, context)| context.check().is_ok() && !gpu.is_known_done(*mark));
            }
            words.retain(|_, word| word.being_submitted > 0 || !word.waiting.is_empty());
            drop(words);
            std::thread::sleep(if changed.elapsed() < QUIET_TIME { PAUSE } else { LONG_PAUSE });
        }
    };
    // Without a thread the streams continue to wait for a change, which the caller sees.
    let _ = std::thread::Builder::new().name("cuda-sim-words".into()).spawn(run);
}
