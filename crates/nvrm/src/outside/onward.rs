//! The search that goes on from round to round, for clients that were not found at once.

use std::collections::HashSet;

use super::files;
use super::search::Questions;
use super::searcher::{Process, ProcessKey, Searcher};

/// The least that is asked for on one file per round.
const LEAST: u32 = 1 << 12;
/// Rounds after which a file on which there is no client is searched once more from the start.
const REST: u64 = 600;

impl Searcher {
    /// Searches on for clients of the open files of these processes, those that have waited longest first, and says on whose there is a
    /// client that was not known.
    pub fn search(&mut self, processes: &[Process<'_>], questions: &Questions) -> HashSet<ProcessKey> {
        let mut waiting: Vec<(u64, u64)> = Vec::new();
        for (id, file) in self.files.iter_mut() {
            if file.search.clients().is_empty() && file.completed.is_some_and(|at| at + REST < self.round) {
                file.completed = None;
                file.search.begin_again(self.numbering.newest());
            }
            if file.completed.is_none() {
                waiting.push((file.served, id));
            }
        }
        waiting.sort_unstable();
        let mut with_new = HashSet::new();
        for (at, (_, id)) in waiting.iter().enumerate() {
            let left = u32::try_from(waiting.len() - at).unwrap_or(u32::MAX);
            let share = (questions.left() / left).max(LEAST).min(questions.left());
            if share == 0 {
                break;
            }
            let share = Questions::new(share);
            if self.search_on(*id, processes, &share, questions) {
                let holders = self.files.get_mut(*id).into_iter().flat_map(|file| file.holders.iter());
                with_new.extend(holders.map(|(key, _)| *key));
            }
        }
        with_new
    }

    /// Whether there is a client that was not known.
    fn search_on(
        &mut self,
        id: u64,
        processes: &[Process<'_>],
        share: &Questions,
        questions: &Questions,
    ) -> bool {
        let circle = self.circle();
        let Some(file) = self.files.get_mut(id) else { return false };
        let copy = file.holders.iter().find_map(|(key, number)| {
            let whom = processes.iter().find(|process| process.key == *key)?;
            files::copy(whom.process, *number, self.simulated).ok().flatten()
        });
        let Some(copy) = copy else { return false };
        file.served = self.round;
        let (known, given) = (file.search.clients().len(), share.left());
        // Whatever the driver says, it is asked again.
        let _ = file.search.go_back(&copy.controls, circle, share, |_, _| false);
        questions.spend(given - share.left());
        file.completed = file.search.is_complete(circle).then_some(self.round);
        let has_new = file.search.clients().len() > known;
        if has_new {
            file.walked = None;
        }
        has_new
    }
}
