use super::*;
use crate::abi::{ControlBlock, handle_info};
use crate::discovery::{ClientNumbering, FIRST_CLIENT};
use crate::transport::Transport;
use crate::{Controls, NvStatus};
use std::fs::File;
use std::io;

/// A driver with at most one client on the file.
#[derive(Debug)]
struct FakeDriver(Option<u32>);

impl Transport for FakeDriver {
    fn escape(&self, _: u8, block: &mut [u8], params: &mut [u8]) -> io::Result<()> {
        let mut control = ControlBlock::decode(block).unwrap();
        if Some(control.client) == self.0 {
            params.copy_from_slice(&handle_info::encode(control.client, handle_info::CLASS, 0x41));
        } else {
            control.status = NvStatus::INVALID_CLIENT.0;
        }
        block.copy_from_slice(&control.encode());
        Ok(())
    }
}

fn copy(client: Option<u32>) -> DescriptorCopy {
    let descriptor = File::open("/dev/null").unwrap().into();
    DescriptorCopy { descriptor, controls: Controls::new(Box::new(FakeDriver(client))) }
}

#[test]
fn file_under_a_reused_descriptor_number_is_identified_by_its_clients() {
    let pidfd = File::open("/dev/null").unwrap();
    let process = ScannedProcess { key: (1, 1), pidfd: pidfd.as_fd(), pod: "pod" };
    let (empty, full, other) = (copy(None), copy(Some(FIRST_CLIENT + 1)), copy(Some(FIRST_CLIENT + 2)));
    let newest = ClientNumbering::from_newest(Some(FIRST_CLIENT + 2)).newest();
    let (mut files, queries) = (OpenFiles::default(), QueryBudget::new(1000));
    let mut identify = |number, copy| files.identify(&process, number, copy, newest, &queries).unwrap();
    let (first, second) = (identify(3, &empty), identify(4, &full));
    assert_ne!(first, second);
    assert_eq!(identify(3, &empty), first, "nothing changed");
    // The second file was searched, and is now open under the first file's number.
    let search = &mut files.get_mut(second).unwrap().search;
    search.search_older(&full.controls, 4, &queries, |_, _| false).unwrap();
    let mut identify = |number, copy| files.identify(&process, number, copy, newest, &queries).unwrap();
    assert_eq!(identify(3, &full), second);
    // A third file is open under the second file's former number.
    assert!(![first, second].contains(&identify(4, &other)));
}
