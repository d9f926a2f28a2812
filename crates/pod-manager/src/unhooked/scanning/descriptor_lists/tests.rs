use super::*;

const S: u64 = 1_000_000_000;

/// A process with so many descriptors, of which the one with number `driver` leads to the driver.
struct Process {
    key: ProcessKey,
    pod: &'static str,
    count: usize,
    driver: RawFd,
    /// Descriptors listed so far.
    listed: usize,
}

impl Process {
    fn new(pid: i32, pod: &'static str, count: usize, driver: RawFd) -> Self {
        Self { key: (pid, 1), pod, count, driver, listed: 0 }
    }

    fn descriptors(&mut self, lists: &mut DescriptorLists, now: u64) -> Vec<RawFd> {
        let (count, driver, mut listed) = (self.count, self.driver, 0);
        let mut list = |from: RawFd, most: usize| {
            let first = usize::try_from(from).unwrap();
            let end = count.min(first + most);
            listed += end - first;
            let numbers = from..RawFd::try_from(end).unwrap();
            let next = (end < count).then_some(numbers.end);
            let driver = numbers.filter(|number| *number == driver).collect();
            Ok(DescriptorPart { driver, listed: end - first, next })
        };
        let count = u64::try_from(count).unwrap();
        let found = lists.descriptors(self.key, self.pod, count, now, &mut list).unwrap();
        self.listed += listed;
        found
    }
}

/// Four searches a second.
fn searches(seconds: u64) -> impl Iterator<Item = u64> {
    (0..4 * seconds).map(|quarter| quarter * S / 4)
}

#[test]
fn process_in_which_nothing_changes_is_listed_every_few_seconds() {
    let (mut lists, mut process) = (DescriptorLists::default(), Process::new(8, "pod", 10, 3));
    for now in searches(20) {
        assert_eq!(process.descriptors(&mut lists, now), [3]);
    }
    assert_eq!(process.listed, 100, "every 2 s");
    process.count = 11;
    process.descriptors(&mut lists, 20 * S - 1);
    assert_eq!(process.listed, 111, "at once, as the number has changed");
}

#[test]
fn file_under_another_number_is_found_within_three_seconds() {
    for pid in 1..=20 {
        let (mut lists, mut process) = (DescriptorLists::default(), Process::new(pid, "pod", 10, 3));
        process.descriptors(&mut lists, 0);
        process.driver = 4;
        let found = searches(10).find(|now| process.descriptors(&mut lists, *now) == [4]);
        assert!(found.is_some_and(|found| found <= 3 * S), "{found:?}");
    }
}

#[test]
fn flood_of_descriptors_delays_only_its_own_pod() {
    let mut lists = DescriptorLists::default();
    let mut flood = Process::new(1, "flood", 16_000, 15_900);
    let mut other = Process::new(2, "other", 100, 50);
    let mut found = None;
    for now in searches(40) {
        lists.begin_scan(|_| true, &HashSet::from(["flood", "other"]), now);
        // Its number of descriptors changes all the time.
        flood.count ^= 1;
        other.count ^= 1;
        let before = (flood.listed, other.listed);
        if !flood.descriptors(&mut lists, now).is_empty() {
            found.get_or_insert(now);
        }
        other.descriptors(&mut lists, now);
        assert!(flood.listed - before.0 <= 1024, "a search lists a part of it");
        assert!(other.listed > before.1, "the other pod is listed in each search");
    }
    assert!(found.is_some_and(|found| found < 20 * S), "{found:?}");
}

#[test]
fn pod_beyond_its_rate_lists_its_processes_in_turn() {
    let mut lists = DescriptorLists::default();
    let mut processes: Vec<_> = (0..40).map(|pid| Process::new(pid, "pod", PART, 7)).collect();
    let mut known = [0; 2];
    for (at, now) in searches(30).enumerate() {
        lists.begin_scan(|_| true, &HashSet::from(["pod"]), now);
        let mut pids: Vec<i32> = (0..40).collect();
        lists.order(&mut pids);
        let found = pids.iter().filter(|pid| {
            let process = &mut processes[usize::try_from(**pid).unwrap()];
            process.descriptors(&mut lists, now) == [7]
        });
        known[usize::from(at > 0)] = found.count();
    }
    assert!(known[0] < 10, "{known:?}");
    assert_eq!(known[1], 40, "those of the last listing stay");
}

/// When the process counts as one with too many descriptors, in four searches a second.
fn late(lists: &mut DescriptorLists, process: &mut Process, mut others: Vec<Process>) -> Option<u64> {
    searches(120).find(|now| {
        lists.begin_scan(|_| true, &HashSet::from(["pod"]), *now);
        // The others come first.
        others.iter_mut().for_each(|other| drop(other.descriptors(lists, *now)));
        process.descriptors(lists, *now);
        lists.excess(process.key, u64::try_from(process.count).unwrap(), *now).is_some()
    })
}

#[test]
fn process_with_the_driver_behind_a_flood_of_descriptors_has_too_many_at_once() {
    let (mut lists, mut process) = (DescriptorLists::default(), Process::new(1, "pod", 500_001, 500_000));
    assert_eq!(late(&mut lists, &mut process, Vec::new()), Some(0));
    assert_eq!(process.listed, 0, "its listing would only cost time");
    process.count = 100;
    process.descriptors(&mut lists, S);
    assert_eq!(lists.excess(process.key, 100, S), None, "it has closed them");
}

#[test]
fn process_that_waits_behind_decoys_has_too_many_descriptors_after_ten_seconds() {
    let decoys = || (2..200).map(|pid| Process::new(pid, "pod", 1 << 14, 7)).collect::<Vec<_>>();
    let (mut lists, mut process) = (DescriptorLists::default(), Process::new(1, "pod", 10, 3));
    assert_eq!(late(&mut lists, &mut process, decoys()), Some(10 * S));
    let (mut lists, mut listed) = (DescriptorLists::default(), Process::new(1, "pod", 10, 3));
    assert_eq!(listed.descriptors(&mut lists, 0), [3]);
    listed.driver = 4;
    let overdue = late(&mut lists, &mut listed, decoys());
    assert!(overdue.is_some_and(|at| at <= 34 * S), "{overdue:?}");
}

#[test]
fn changed_number_of_descriptors_is_not_lost_when_the_pod_has_used_up_its_listings() {
    let (mut lists, mut process) = (DescriptorLists::default(), Process::new(1, "pod", 10, 3));
    process.descriptors(&mut lists, 0);
    lists.limits.charge("pod", 1 << 20, 0);
    (process.count, process.driver) = (11, 10);
    assert_eq!(process.descriptors(&mut lists, S / 4), [3]);
    assert!(lists.is_unfinished(process.key, 11));
}
