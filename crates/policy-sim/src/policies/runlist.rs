//! The GPU's runlist: the contexts that may run take turns, each for its time slice.

use super::Decision;

#[derive(Clone, Debug)]
pub(super) struct Runlist {
    /// Time slice of each client, nanoseconds.
    pub(super) slices_ns: Vec<u64>,
    running: Option<usize>,
    /// What the running one has left of its slice.
    left_ns: u64,
    /// Another one can run.
    contended: bool,
}

impl Runlist {
    pub(super) fn new(slices_ns: Vec<u64>) -> Self {
        Self { slices_ns, running: None, left_ns: 0, contended: false }
    }

    /// The client that runs among those that can. It keeps the GPU to the end of its slice, or of its work.
    pub(super) fn choose(&mut self, now: u64, can_run: impl Fn(usize) -> bool) -> Decision {
        let count = self.slices_ns.len();
        let runs_on = self.running.filter(|running| can_run(*running));
        let first = self.running.map_or(0, |running| running + 1);
        let next =
            (first..first + count).map(|n| n % count).find(|n| Some(*n) != self.running && can_run(*n));
        self.contended = runs_on.is_some() && next.is_some();
        let keeps = runs_on.is_some() && (self.left_ns > 0 || next.is_none());
        if !keeps && let Some(next) = next {
            (self.running, self.left_ns) = (Some(next), self.slices_ns[next]);
            self.contended = runs_on.is_some() || (0..count).any(|n| n != next && can_run(n));
        }
        let client = if keeps { runs_on } else { next };
        let review_at = if self.contended { now.saturating_add(self.left_ns) } else { u64::MAX };
        Decision { client, review_at, is_held: false }
    }

    /// A client has executed. The slices of one that runs alone follow each other.
    pub(super) fn ran(&mut self, client: usize, ns: u64) {
        if self.running != Some(client) {
            return;
        }
        self.left_ns = match ns.checked_sub(self.left_ns) {
            None => self.left_ns - ns,
            Some(_) if self.contended => 0,
            Some(beyond) => {
                let slice_ns = self.slices_ns[client].max(1);
                slice_ns - beyond % slice_ns
            }
        };
    }
}
