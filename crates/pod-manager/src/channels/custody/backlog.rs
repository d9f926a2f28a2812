//! What the supervisor has still to be given, in order. As long as what is controlled: what was taken back before it was
//! given is not given at all.

use super::Spare;
use sluice_comm::custody::Deposit;
use std::collections::{HashSet, VecDeque};

#[derive(Default)]
pub(super) struct Backlog {
    waiting: VecDeque<(Deposit, Option<Spare>)>,
    /// Lines and groups that the supervisor has, so that they have to be taken back.
    lines: HashSet<u64>,
    groups: HashSet<u64>,
}

impl Backlog {
    /// To be given after all that waits. Gives back a spare that is not needed any more.
    pub(super) fn push(&mut self, deposit: Deposit, spare: Option<Spare>) -> Option<Spare> {
        let mut unneeded = None;
        match &deposit {
            Deposit::Line(_) => {}
            Deposit::Group { group, .. } => self.remove_group(*group),
            Deposit::Forget(group) => {
                self.remove_group(*group);
                if !self.groups.contains(group) {
                    return None;
                }
            }
            Deposit::Close(line) => {
                let is_its = |deposit: &Deposit| match deposit {
                    Deposit::Line(number) => number == line,
                    Deposit::Group { line: behind, .. } => behind == line,
                    Deposit::Forget(_) | Deposit::Close(_) => false,
                };
                self.waiting.retain_mut(|(deposit, spare)| {
                    let goes = is_its(deposit);
                    if goes && spare.is_some() {
                        unneeded = spare.take();
                    }
                    !goes
                });
                if !self.lines.contains(line) {
                    return unneeded;
                }
            }
        }
        self.waiting.push_back((deposit, spare));
        unneeded
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn first(&self) -> Option<&(Deposit, Option<Spare>)> {
        self.waiting.front()
    }

    /// The first was taken. Gives back its spare.
    pub(super) fn taken(&mut self) -> Option<Spare> {
        let (deposit, spare) = self.waiting.pop_front()?;
        // Whether it was there before is no news.
        let _ = match deposit {
            Deposit::Line(line) => self.lines.insert(line),
            Deposit::Group { group, .. } => self.groups.insert(group),
            Deposit::Forget(group) => self.groups.remove(&group),
            Deposit::Close(line) => self.lines.remove(&line),
        };
        spare
    }

    /// Nothing will be given any more. Gives back all spares.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Spare> + '_ {
        self.waiting.drain(..).filter_map(|(_, spare)| spare)
    }

    fn remove_group(&mut self, group: u64) {
        self.waiting.retain(|(deposit, _)| match deposit {
            Deposit::Group { group: number, .. } => *number != group,
            Deposit::Line(_) | Deposit::Forget(_) | Deposit::Close(_) => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_comm::attach::ContextHandles;
    use std::os::fd::OwnedFd;

    fn spare() -> Spare {
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        Spare { descriptor: file(), process: file() }
    }

    fn group(group: u64, line: u64) -> Deposit {
        let handles =
            ContextHandles { descriptor: 0, client: 1, subdevice: 2, channel_group: 3, channels: Vec::new() };
        Deposit::Group { group, line, handles }
    }

    fn left(backlog: &Backlog) -> Vec<&Deposit> {
        backlog.waiting.iter().map(|(deposit, _)| deposit).collect()
    }

    #[test]
    fn what_is_taken_back_before_it_was_given_is_not_given_and_its_descriptors_come_back() {
        let mut backlog = Backlog::default();
        backlog.push(Deposit::Line(1), Some(spare()));
        backlog.push(Deposit::Line(2), Some(spare()));
        backlog.push(group(7, 1), None);
        backlog.push(group(8, 2), None);
        assert!(backlog.push(Deposit::Forget(7), None).is_none());
        assert!(backlog.push(Deposit::Close(1), None).is_some());
        assert_eq!(left(&backlog), [&Deposit::Line(2), &group(8, 2)]);
    }

    #[test]
    fn what_was_given_is_taken_back_once_and_the_newest_way_to_a_group_counts() {
        let mut backlog = Backlog::default();
        backlog.push(Deposit::Line(1), Some(spare()));
        backlog.push(group(7, 1), None);
        assert!(backlog.taken().is_some() && backlog.taken().is_none());
        backlog.push(Deposit::Line(2), Some(spare()));
        backlog.push(group(7, 2), None);
        backlog.push(Deposit::Close(1), None);
        backlog.push(Deposit::Forget(7), None);
        backlog.push(Deposit::Close(2), None);
        assert_eq!(left(&backlog), [&Deposit::Close(1), &Deposit::Forget(7)]);
        while backlog.first().is_some() {
            backlog.taken();
        }
        backlog.push(Deposit::Forget(7), None);
        backlog.push(Deposit::Close(1), None);
        assert_eq!(backlog.len(), 0);
    }
}
