//! Words in this process's memory that the GPU waits for: a thread looks at them as long as something does, and tells the
//! simulated GPU of every change.

use super::context::Context;
use super::lock;
use crate::border::Span;
use sluice_sim::client::{Gpu, Mark};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Pause between two looks: what the GPU itself takes to see a store of the host's (`gpu-measurements.md` §15: 9.6 µs), and
/// what a machine of few cores can bear.
const PAUSE: Duration = Duration::from_micros(30);
/// Pause when nothing has changed for [`CALM`].
const LONG_PAUSE: Duration = Duration::from_micros(150);
const CALM: Duration = Duration::from_millis(20);
/// How often the GPU is asked how far its streams are.
const ASK: Duration = Duration::from_millis(10);

/// A word, and who waits for it.
struct Word {
    span: Span,
    told: u64,
    /// Commands that are being submitted.
    coming: usize,
    waiting: Vec<(Mark, Arc<Context>)>,
}

/// All words of one device that are waited for.
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

/// Something is about to wait for a word.
pub(crate) struct Coming<'a> {
    words: &'a Words,
    address: usize,
}

impl Words {
    /// Tells the GPU of a word that something will wait for. Until that is submitted, the word is looked at.
    pub(crate) fn watch(&self, gpu: &Arc<Gpu>, span: Span) -> Coming<'_> {
        {
            let mut words = lock(&self.shared.words);
            let now = span.load();
            let word = words.entry(span.address()).or_insert_with(|| {
                gpu.set_word(span.address() as u64, now);
                Word { span, told: now, coming: 0, waiting: Vec::new() }
            });
            // The same word may be waited for in both widths.
            if span.len() > word.span.len() {
                word.span = span;
            }
            word.coming += 1;
            word.tell(gpu);
        }
        self.started.get_or_init(|| start(gpu.clone(), self.shared.clone()));
        self.shared.wake.notify_one();
        Coming { words: self, address: span.address() }
    }

    /// The memory is about to go.
    pub(crate) fn forget(&self, address: usize, len: usize) {
        lock(&self.shared.words).retain(|at, _| !(address..address + len).contains(at));
    }
}

impl Coming<'_> {
    /// What waits is submitted.
    pub(crate) fn submitted(self, mark: Mark, context: &Arc<Context>) {
        if let Some(word) = lock(&self.words.shared.words).get_mut(&self.address) {
            word.waiting.retain(|(other, _)| !mark.follows(other));
            word.waiting.push((mark, context.clone()));
        }
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        if let Some(word) = lock(&self.words.shared.words).get_mut(&self.address) {
            word.coming = word.coming.saturating_sub(1);
        }
    }
}

impl Word {
    /// Looks, and tells the GPU if the word has changed. True if so.
    fn tell(&mut self, gpu: &Gpu) -> bool {
        let now = self.span.load();
        let changed = now != self.told;
        if changed {
            self.told = now;
            gpu.set_word(self.span.address() as u64, now);
        }
        changed
    }
}

fn start(gpu: Arc<Gpu>, shared: Arc<Shared>) {
    let run = move || {
        // The default slack of 50 µs would be added to every pause.
        let _ = nix::sys::prctl::set_timerslack(1);
        let (mut changed, mut asked) = (Instant::now(), Instant::now());
        loop {
            let mut words = lock(&shared.words);
            while words.is_empty() {
                words = shared.wake.wait(words).unwrap_or_else(PoisonError::into_inner);
                changed = Instant::now();
            }
            let asks = asked.elapsed() >= ASK;
            if asks {
                asked = Instant::now();
                if !gpu.is_connected() {
                    words.clear();
                    continue;
                }
            }
            for word in words.values_mut() {
                if word.tell(&gpu) {
                    changed = Instant::now();
                }
                let is_done = |mark: Mark| if asks { gpu.is_done(mark) } else { gpu.is_known_done(mark) };
                word.waiting.retain(|(mark, context)| context.check().is_ok() && !is_done(*mark));
            }
            words.retain(|_, word| word.coming > 0 || !word.waiting.is_empty());
            drop(words);
            std::thread::sleep(if changed.elapsed() < CALM { PAUSE } else { LONG_PAUSE });
        }
    };
    // Without a thread the streams that wait for a change go on waiting, which the caller sees.
    let _ = std::thread::Builder::new().name("cuda-sim-words".into()).spawn(run);
}
