//! Managers that exchange tables in a directory.

use super::*;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

const MS: u64 = 1_000_000;

/// How long a thread may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);

struct Manager {
    thread: SideThread,
    tables: TableSender,
    gangs: Receiver<NodeGangs>,
}

impl Manager {
    fn start(directory: &Path, gpu: &str) -> Self {
        let (sender, gangs) = channel();
        let report = Report::new(move |gangs| drop(sender.send(gangs)));
        let (thread, tables) = start(directory, gpu, report).unwrap();
        Self { thread, tables, gangs }
    }

    fn tell(&self, clients: &[(&str, u32)]) {
        self.tables.send(table(clients));
    }

    /// Waits until the manager has reported these slots, in milliseconds.
    fn expect(&self, wanted: &[(&str, u64, u64)]) {
        let mut last = None;
        loop {
            match self.gangs.recv_timeout(PATIENCE) {
                Ok(gangs) => {
                    let in_ms: Vec<(String, u64, u64)> = gangs
                        .slots
                        .into_iter()
                        .map(|(name, slot)| (name, slot.start_ns / MS, slot.end_ns / MS))
                        .collect();
                    let is_wanted = in_ms.iter().map(|(name, start, end)| (name.as_str(), *start, *end));
                    if is_wanted.eq(wanted.iter().copied()) {
                        return;
                    }
                    last = Some(in_ms);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{wanted:?} was not reported, but last {last:?}")
                }
            }
        }
    }
}

fn table(clients: &[(&str, u32)]) -> GangTable {
    let shares = clients.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect();
    GangTable { shares, ..GangTable::default() }
}

#[test]
fn managers_come_to_the_same_slots_and_follow_changes() {
    let directory = tempfile::tempdir().unwrap();
    let managers = ["GPU-1", "GPU-2"].map(|gpu| Manager::start(directory.path(), gpu));
    managers.iter().for_each(|manager| manager.tell(&[("a", 300_000), ("b", 700_000)]));
    managers.iter().for_each(|manager| manager.expect(&[("a", 140, 200), ("b", 0, 140)]));
    // The last process of b on the second GPU has ended.
    managers[1].tell(&[("a", 300_000)]);
    managers.iter().for_each(|manager| manager.expect(&[("a", 0, 60)]));
    // A manager that stops takes its table along.
    let [first, second] = managers;
    second.thread.stop().unwrap();
    first.expect(&[]);
    first.thread.stop().unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_manager_that_starts_reads_what_the_others_have_told() {
    let directory = tempfile::tempdir().unwrap();
    let first = Manager::start(directory.path(), "GPU-1");
    first.tell(&[("a", 500_000), ("b", 500_000)]);
    let second = Manager::start(directory.path(), "GPU-2");
    second.tell(&[("a", 500_000), ("b", 500_000)]);
    first.expect(&[("a", 0, 100), ("b", 100, 200)]);
    second.expect(&[("a", 0, 100), ("b", 100, 200)]);
}

#[test]
fn files_that_are_no_tables_of_managers_are_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let valid = r#"{"shares":{"a":500000},"critical":[]}"#;
    std::fs::write(place("text.json"), "not json").unwrap();
    std::fs::write(place("unknown-key.json"), r#"{"shares":{"a":1},"critical":[],"leader":true}"#).unwrap();
    std::fs::write(place("other-ending.new"), valid).unwrap();
    std::fs::write(place("writable.json"), valid).unwrap();
    let writable = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(place("writable.json"), writable).unwrap();
    std::os::unix::fs::symlink(place("other-ending.new"), place("link.json")).unwrap();
    std::fs::create_dir(place("folder.json")).unwrap();
    let manager = Manager::start(directory.path(), "GPU-1");
    manager.tell(&[("a", 500_000)]);
    // Only a valid table makes a gang of the client.
    std::fs::write(place("valid.new"), valid).unwrap();
    std::fs::rename(place("valid.new"), place("valid.json")).unwrap();
    manager.expect(&[("a", 0, 200)]);
    std::fs::remove_file(place("valid.json")).unwrap();
    manager.expect(&[]);
}
