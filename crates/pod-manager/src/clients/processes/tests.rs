use super::*;
use crate::io::test_io;

fn process(client: u64, key: (i32, u64)) -> Process {
    Process { key: Some(key), ..Process::new(ClientId(client), format!("pid {}", key.0), None) }
}

#[test]
fn processes_are_found_by_client_and_by_kernel_identity_until_they_are_removed() {
    let (io, mut processes) = (test_io(), Processes::default());
    let first = processes.add(process(1, (10, 1)), &io);
    let second = processes.add(process(1, (11, 1)), &io);
    let other = processes.add(process(2, (12, 1)), &io);
    assert_eq!(processes.ids_of_client(ClientId(1)), [first, second]);
    assert_eq!(processes.find((12, 1)), Some(other));
    assert!(processes.remove(first).is_some() && processes.remove(first).is_none());
    assert_eq!(processes.of_client(ClientId(1)).map(|(id, _)| id).collect::<Vec<_>>(), [second]);
    assert_eq!(processes.find((10, 1)), None);
    processes.remove(second);
    assert!(!processes.has_client(ClientId(1)) && processes.has_client(ClientId(2)));
}

fn own_process() -> Process {
    let pidfd = sluice_sys::pidfd::open(std::process::id().cast_signed()).unwrap();
    Process { pidfd: Some(pidfd), ..process(1, (10, 1)) }
}

fn connect(processes: &mut Processes, io: &Io) -> ProcessId {
    processes.add(own_process(), io)
}

fn depart(processes: &mut Processes, id: ProcessId, has_groups: bool, io: &Io) {
    let process = processes.remove(id).unwrap();
    processes.wait_for_end(id, process, has_groups, io);
}

#[test]
fn process_that_reconnects_and_keeps_groups_costs_one_descriptor() {
    let (io, mut processes) = (test_io(), Processes::default());
    let mut ids = Vec::new();
    for _ in 0..10 {
        let id = connect(&mut processes, &io);
        assert_eq!(processes.departed.descriptors(), 0, "the connection's own pidfd reports the end");
        depart(&mut processes, id, true, &io);
        assert_eq!(processes.departed.descriptors(), 1);
        ids.push(id);
    }
    assert_eq!(processes.take_departed(ids[9], &io), ids, "the end concerns all of its departures");
    assert_eq!(processes.departed.descriptors(), 0);
}

#[test]
fn end_of_a_process_that_reconnects_and_departs_without_groups_is_still_reported_for_its_earlier_groups() {
    let (io, mut processes) = (test_io(), Processes::default());
    let first = connect(&mut processes, &io);
    depart(&mut processes, first, true, &io);
    let second = connect(&mut processes, &io);
    depart(&mut processes, second, false, &io);
    assert_eq!(processes.departed.descriptors(), 1);
    assert_eq!(processes.take_departed(second, &io), [first]);
}

#[test]
fn departed_process_costs_nothing_once_its_groups_are_gone() {
    let (io, mut processes) = (test_io(), Processes::default());
    let id = connect(&mut processes, &io);
    depart(&mut processes, id, true, &io);
    processes.forget_departed(id, &io);
    assert_eq!(processes.departed.descriptors(), 0);
    let other = connect(&mut processes, &io);
    depart(&mut processes, other, false, &io);
    assert_eq!(processes.departed.descriptors(), 0);
}
