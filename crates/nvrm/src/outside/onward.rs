//! The search that goes on from round to round, for clients that were not found at once.

use std::collections::{BTreeMap, HashSet};

use super::files;
use super::search::Questions;
use super::searcher::{Process, ProcessKey, Searcher};

/// The least that is asked for on one file per round.
const LEAST: u32 = 1 << 12;
/// Rounds after which a file on which there is no client is searched once more from the start.
const REST: u64 = 600;

/// An equal part of what may be asked, for one of so many.
fn part_of(questions: &Questions, many: usize) -> u32 {
    questions.left() / u32::try_from(many).unwrap_or(u32::MAX).max(1)
}

impl Searcher {
    /// Searches on for clients of the open files of these processes and says on whose there is a client that was not known. Each crowd has
    /// its part of the questions, and in it the file that has waited longest comes first.
    pub fn search(&mut self, processes: &[Process<'_>], questions: &Questions) -> HashSet<ProcessKey> {
        let mut crowds = self.waiting();
        // Who needs least is asked first, and leaves the rest to the others.
        crowds.sort_by_key(Vec::len);
        let mut with_new = HashSet::new();
        for (at, waiting) in crowds.iter().enumerate() {
            let part = Questions::new(part_of(questions, crowds.len() - at));
            let given = part.left();
            for (nth, (_, id)) in waiting.iter().enumerate() {
                let share = part_of(&part, waiting.len() - nth).max(LEAST).min(part.left());
                if share == 0 {
                    break;
                }
                if self.search_on(*id, processes, &Questions::new(share), &part) {
                    let holders = self.files.get_mut(*id).into_iter().flat_map(|file| file.holders.iter());
                    with_new.extend(holders.map(|(key, _)| *key));
                }
            }
            questions.spend(given - part.left());
        }
        with_new
    }

    /// The files on which not all clients were asked for, by crowd, with the round in which they were last.
    fn waiting(&mut self) -> Vec<Vec<(u64, u64)>> {
        let mut waiting: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
        let newest = self.numbering.newest();
        for (id, file) in self.files.iter_mut() {
            if file.search.clients().is_empty() && file.completed.is_some_and(|at| at + REST < self.round) {
                file.completed = None;
                file.search.begin_again(newest);
            }
            if file.completed.is_none() || file.search.is_behind(newest) {
                waiting.entry(file.crowd.clone()).or_default().push((file.served, id));
            }
        }
        let mut crowds: Vec<_> = waiting.into_values().collect();
        crowds.iter_mut().for_each(|crowd| crowd.sort_unstable());
        crowds
    }

    /// Whether there is a client that was not known.
    fn search_on(
        &mut self,
        id: u64,
        processes: &[Process<'_>],
        share: &Questions,
        questions: &Questions,
    ) -> bool {
        let (circle, newest) = (self.circle(), self.numbering.newest());
        let Some(file) = self.files.get_mut(id) else { return false };
        let copy = file.holders.iter().find_map(|(key, number)| {
            let whom = processes.iter().find(|process| process.key == *key)?;
            files::copy(whom.process, *number, self.simulated).ok().flatten()
        });
        let Some(copy) = copy else { return false };
        file.served = self.round;
        let (known, given) = (file.search.clients().len(), share.left());
        // Whatever the driver says, it is asked again.
        if file.search.is_behind(newest) {
            let _ = file.search.catch_up(&copy.controls, newest, share);
        }
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
