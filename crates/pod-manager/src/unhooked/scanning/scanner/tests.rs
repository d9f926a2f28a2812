use super::*;
use crate::closer::Closer;
use crate::message::{self, Inbox, Message};
use crate::unhooked::scanning::{ContinuedSearch, Inspection, Walk};
use nix::sys::eventfd::EventFd;
use sluice_core::pod_cgroup::PodCgroup;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

const S: u64 = 1_000_000_000;

/// A process, its pod, and the driver queries of one inspection.
type Process = (ProcessKey, &'static str, u32);

/// Finds these processes, and notes which were inspected.
struct Fake {
    processes: Vec<Process>,
    inspected: Arc<Mutex<Vec<ProcessKey>>>,
    /// Every second complete search has no time.
    postpones: bool,
    searches: u64,
}

impl Fake {
    fn candidates_if(&self, is_wanted: impl Fn(&ProcessKey) -> bool) -> Vec<Candidate> {
        let wanted = self.processes.iter().filter(|(key, ..)| is_wanted(key));
        let candidate = |(key, pod, _): &Process| Candidate {
            key: *key,
            command: "program".into(),
            pod: PodCgroup { uid: (*pod).to_owned(), container: None },
            pidfd: never_readable(),
            descriptors: vec![3],
        };
        wanted.map(candidate).collect()
    }
}

fn never_readable() -> OwnedFd {
    EventFd::new().unwrap().into()
}

impl ProcessDiscovery for Fake {
    fn candidates(&mut self, _: &Scope) -> io::Result<CandidateList> {
        self.searches += 1;
        if self.postpones && self.searches.is_multiple_of(2) {
            let postponed = self.processes.iter().map(|(key, ..)| *key).collect();
            return Ok(CandidateList { candidates: Vec::new(), postponed });
        }
        Ok(CandidateList { candidates: self.candidates_if(|_| true), ..Default::default() })
    }

    fn changed(
        &mut self,
        _: &HashSet<ProcessKey>,
        requested: &HashSet<ProcessKey>,
        _: &Scope,
    ) -> io::Result<Vec<Candidate>> {
        Ok(self.candidates_if(|key| requested.contains(key)))
    }

    fn inspect(&mut self, candidate: &Candidate, _: Walk) -> Inspection {
        self.inspected.lock().unwrap().push(candidate.key);
        let queries = self.processes.iter().find(|(key, ..)| *key == candidate.key).unwrap().2;
        Inspection { result: Ok(Vec::new()), queries }
    }

    fn maps_page(&mut self, _: ProcessKey, _: &GrantPageMapping) -> Option<bool> {
        None
    }

    fn maps_hook(&mut self, _: ProcessKey) -> bool {
        false
    }

    fn continue_search(&mut self, _: &[Candidate], _: u32) -> ContinuedSearch {
        ContinuedSearch::default()
    }

    fn owns(&mut self, check: &OwnershipCheck) -> Ownership {
        let queries = if check.pod == "flood" { 1 << 15 } else { 64 };
        Ownership { result: Ok(true), queries }
    }
}

fn eventually(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        std::thread::sleep(Duration::from_micros(50));
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain");
    }
}

/// A scanner of attached processes.
struct Rig {
    scanner: UnhookedScanner,
    inbox: Inbox,
    attached: HashSet<ProcessKey>,
    inspected: Arc<Mutex<Vec<ProcessKey>>>,
    scans: u64,
}

impl Rig {
    fn new(processes: Vec<Process>) -> Self {
        Self::with(processes, false)
    }

    fn with(processes: Vec<Process>, postpones: bool) -> Self {
        let (remote, inbox) = message::pair().unwrap();
        let reports = (remote.report(Message::ScanResult), remote.report(Message::OwnershipProof));
        let attached = processes.iter().map(|(key, ..)| *key).collect();
        let inspected = Arc::default();
        let fake = Fake { processes, inspected: Arc::clone(&inspected), postpones, searches: 0 };
        let scanner = UnhookedScanner::start(Box::new(fake), reports).unwrap();
        Self { scanner, inbox, attached, inspected, scans: 0 }
    }

    /// Begins the next of four scans a second, of which one is complete.
    fn begin_scan(&mut self, requested: HashSet<ProcessKey>) -> u64 {
        let now = self.scans * S / 4;
        let (attached, only_changed) = (self.attached.clone(), !self.scans.is_multiple_of(4));
        self.scanner.request_scan(ScanRequest {
            now,
            attached,
            requested,
            only_changed,
            ..Default::default()
        });
        self.scans += 1;
        now
    }

    /// The messages until the result of the scan, and which processes it inspected.
    fn end_scan(&self) -> (Vec<Message>, Vec<ProcessKey>) {
        self.until(|messages| matches!(messages.last(), Some(Message::ScanResult(_))))
    }

    /// The messages until they are complete, and which processes the scan has inspected.
    fn until(&self, are_complete: impl Fn(&[Message]) -> bool) -> (Vec<Message>, Vec<ProcessKey>) {
        let mut messages = Vec::new();
        eventually(|| {
            messages.extend(self.inbox.take());
            are_complete(&messages)
        });
        (messages, std::mem::take(&mut *self.inspected.lock().unwrap()))
    }

    /// How many processes the scan has inspected so far.
    fn inspections(&self) -> usize {
        self.inspected.lock().unwrap().len()
    }

    fn check_ownership(&self, (pid, pod): (i32, &str)) {
        let (closer, pidfd) = (Closer::start().unwrap(), never_readable());
        let check =
            OwnershipCheck { key: (pid, 1), pod: pod.to_owned(), pidfd, descriptors: Vec::new(), closer };
        let process = ProcessId(u64::from(pid.unsigned_abs()));
        self.scanner.check_ownership(process, self.scans, check, self.scans * S / 4);
    }

    fn scan(&mut self, requested: HashSet<ProcessKey>) -> (u64, Vec<ProcessKey>) {
        let now = self.begin_scan(requested);
        (now, self.end_scan().1)
    }
}

#[test]
fn pod_with_many_attached_processes_delays_only_its_own_inspections() {
    let mut processes: Vec<Process> = (1..=30).map(|pid| ((pid, 1), "many", 1 << 14)).collect();
    processes.push(((1000, 1), "few", 500));
    let (mut rig, mut of_few, mut of_many) = (Rig::new(processes), Vec::new(), 0);
    for _ in 0..800 {
        let (now, inspected) = rig.scan(HashSet::new());
        let few = inspected.iter().filter(|key| key.0 == 1000).count();
        of_few.extend(std::iter::repeat_n(now, few));
        of_many += usize::from(now >= 100 * S) * (inspected.len() - few);
    }
    let longest = of_few.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest <= 17 * S, "{} s without an inspection", longest / S);
    assert!(of_many <= 20, "{of_many} inspections of 16 ms in 100 s, where 2 ms a second are allowed");
}

#[test]
fn requested_inspections_wait_for_the_next_search_and_ownership_checks_do_not() {
    let processes: Vec<Process> = (1..=40).map(|pid| ((pid, 1), "many", 1)).collect();
    let mut rig = Rig::new(processes);
    let all = rig.attached.clone();
    (0..100).for_each(|_| drop(rig.scan(HashSet::new())));
    let is_result = |message: &Message| matches!(message, Message::ScanResult(_));
    let is_proof = |message: &Message| matches!(message, Message::OwnershipProof(_));
    let mut inspected = Vec::new();
    let is_checked_meanwhile = (101..121).any(|second| {
        rig.scans = second * 4 + 1;
        rig.begin_scan(all.clone());
        eventually(|| rig.inspections() > 0);
        rig.check_ownership((50, "other"));
        let before = rig.inspections();
        let (messages, of_scan) = rig.until(|all| all.iter().any(is_result) && all.iter().any(is_proof));
        assert!(of_scan.len() <= 11, "{} inspections in one search", of_scan.len());
        // A search inspects for 100 ms. If the machine stops one of the threads meanwhile, few inspections follow the check, and the scan
        // is repeated.
        let is_undisturbed = of_scan.len() >= before + 5;
        assert!(!is_undisturbed || is_proof(&messages[0]), "{messages:?}");
        inspected.extend(of_scan);
        is_undisturbed
    });
    assert!(is_checked_meanwhile, "no search inspects processes after an ownership check");
    for _ in 0..40 {
        inspected.extend(rig.scan(HashSet::new()).1);
    }
    let inspected: HashSet<ProcessKey> = inspected.into_iter().collect();
    assert_eq!(inspected, all);
}

/// Each of its checks lists and compares some 32,000 descriptors.
#[test]
fn pod_with_many_expensive_ownership_checks_delays_only_its_own() {
    let mut rig = Rig::new(vec![((1000, 1), "other", 1)]);
    rig.scan(HashSet::new());
    (1..=200).for_each(|pid| rig.check_ownership((pid, "flood")));
    let mut of_flood = 0;
    for search in 0..40 {
        rig.check_ownership((1000, "other"));
        rig.begin_scan(HashSet::new());
        let proofs: Vec<ProcessId> = rig.end_scan().0.iter().filter_map(proven).collect();
        assert!(proofs.contains(&ProcessId(1000)), "search {search}: {proofs:?}");
        of_flood += proofs.len() - 1;
    }
    assert!(
        (4..=7).contains(&of_flood),
        "{of_flood} checks of 2^15 queries in 10 s, of which 2^14 a second are allowed"
    );
}

#[test]
fn ownership_checks_of_a_process_that_announces_again_and_again_are_replaced() {
    let mut rig = Rig::new(vec![((1000, 1), "other", 1)]);
    rig.scan(HashSet::new());
    rig.check_ownership((1, "flood"));
    rig.scan(HashSet::new());
    // The pod has no queries left for two seconds.
    (0..100).for_each(|_| rig.check_ownership((1, "flood")));
    let proofs = (0..40).map(|_| {
        rig.begin_scan(HashSet::new());
        rig.end_scan().0.iter().filter_map(proven).count()
    });
    assert_eq!(proofs.sum::<usize>(), 1);
}

#[test]
fn process_for_which_a_complete_search_has_no_time_keeps_its_schedule_and_its_request() {
    let key = (1, 1);
    let mut rig = Rig::with(vec![(key, "pod", 1)], true);
    let inspected: usize = (0..400).map(|_| rig.scan(HashSet::new()).1.len()).sum();
    assert!((10..=30).contains(&inspected), "{inspected} inspections in 100 s");
    // The next complete search has time, the one after it has not.
    (0..4).for_each(|_| drop(rig.scan(HashSet::new())));
    let inspected = [rig.scan(HashSet::from([key])).1, rig.scan(HashSet::new()).1].concat();
    assert_eq!(inspected, [key]);
}

/// An attached process may close its connection while the search runs. What is remembered of it must not be forgotten then.
#[test]
fn complete_search_lists_attached_processes_among_its_candidates() {
    let mut rig = Rig::new(vec![((1, 1), "pod", 1), ((2, 1), "pod", 1)]);
    rig.attached.remove(&(2, 1));
    rig.begin_scan(HashSet::new());
    let Some(Message::ScanResult(result)) = rig.end_scan().0.pop() else { panic!("no result") };
    assert_eq!(result.candidates, Some(HashSet::from([(1, 1), (2, 1)])));
}

fn proven(message: &Message) -> Option<ProcessId> {
    if let Message::OwnershipProof(proof) = message { Some(proof.process) } else { None }
}
