//! Threads that wait, and for what. Waking a thread costs as much as submitting several commands, so only the right
//! ones are woken.

use crate::ids::QueueId;

/// Threads that wait.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// Those that wait for any change.
    any_change: usize,
    /// Those that wait until a queue has submitted so many operations.
    positions: Vec<(QueueId, u64)>,
}

impl Waiters {
    /// Number of waiting threads.
    pub(crate) fn count(&self) -> usize {
        self.any_change + self.positions.len()
    }

    /// A thread begins to wait, for a position or for any change.
    pub(crate) fn enter(&mut self, position: Option<(QueueId, u64)>) {
        match position {
            Some(position) => self.positions.push(position),
            None => self.any_change += 1,
        }
    }

    /// A thread stops waiting.
    pub(crate) fn leave(&mut self, position: Option<(QueueId, u64)>) {
        match position {
            Some(position) => {
                if let Some(at) = self.positions.iter().position(|known| *known == position) {
                    self.positions.swap_remove(at);
                }
            }
            None => self.any_change = self.any_change.saturating_sub(1),
        }
    }

    /// Whether a thread waits for a queue that has submitted so many operations, or is gone.
    pub(crate) fn is_satisfied(&self, id: QueueId, submitted: Option<u64>) -> bool {
        let met = |(queue, position): &(QueueId, u64)| {
            *queue == id && submitted.is_none_or(|submitted| submitted >= *position)
        };
        self.any_change > 0 || self.positions.iter().any(met)
    }
}

#[cfg(test)]
mod tests;
