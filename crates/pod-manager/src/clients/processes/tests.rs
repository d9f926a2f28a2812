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
