//! Channel groups: what the driver allocates by ioctl, and the controls over its file.

use super::*;
use crate::state::driver::driver;
use crate::state::ioctl::sluiceSimIoctl;
use sluice_nvrm::abi::{AllocBlock, Command, ControlBlock, Request, XferBlock, class, timeslice};
use sluice_nvrm::discovery::ObjectQueries;
use sluice_nvrm::{ControlError, Controls, NvStatus};
use sluice_sim::fault::ControlFault;
use std::os::fd::AsRawFd;

/// Contexts that exist, with their slices and whether they run.
fn groups() -> Vec<(u64, bool)> {
    let groups = client::ledger(gpu().socket()).unwrap().groups;
    groups.iter().map(|row| (row.timeslice_ns, row.is_enabled)).collect()
}

/// Handle of the channel group of the current context. The handles of its channels follow.
fn compute_group() -> u32 {
    let context = crate::state::context::current().unwrap();
    context.compute_group()
}

#[test]
fn context_has_a_channel_group_controlled_through_its_file() {
    let test = begin_test();
    let (file, client, subdevice) = driver().unwrap().devices[0].control.opened().unwrap();
    let controls = Controls::from_descriptor(file, true).unwrap();
    let group = compute_group();
    let channels: Vec<u32> = (group + 1..=group + 8).collect();
    assert_eq!(groups(), [(2_048_000, true)]);
    controls.set_timeslice(client, group, 1).unwrap();
    controls.disable(client, subdevice, &channels).unwrap();
    assert_eq!(groups(), [(1_000, false)]);
    let on = stream(CU_STREAM_NON_BLOCKING);
    spin(&test, 100, on);
    let (mut free, mut total, mut pointer) = (0, 0, 0);
    cuMemGetInfo_v2(Ptr::of(&mut free), Ptr::of(&mut total)).unwrap();
    cuMemAlloc_v2(Ptr::of(&mut pointer), 1 << 30).unwrap();
    assert_eq!(cuStreamQuery(on), Err(CUresult::ERROR_NOT_READY));
    controls.enable(client, subdevice, &channels).unwrap();
    cuStreamSynchronize(on).unwrap();
    cuMemFree_v2(pointer).unwrap();
    assert!(controls.ctxsw_stats(client, subdevice, group).unwrap().restores > 0);
    drop(test);
    assert_eq!(groups(), []);
    let gone = controls.set_timeslice(client, group, 1);
    assert!(matches!(gone, Err(ControlError::Refused(status)) if status.is_gone()), "{gone:?}");
}

#[test]
fn each_context_has_its_own_handles() {
    let _test = begin_test();
    let first = compute_group();
    let mut other = std::ptr::null_mut();
    cuCtxCreate_v2(Ptr::of(&mut other), 0, 0).unwrap();
    assert_ne!(compute_group(), first);
    assert_eq!(groups().len(), 2);
    cuCtxDestroy_v2(handle(other)).unwrap();
    assert_eq!(groups().len(), 1);
}

#[test]
fn failed_context_creation_leaves_no_channel_groups() {
    let _test = begin_test();
    let (file, client, _) = driver().unwrap().devices[0].control.opened().unwrap();
    let coming = compute_group() + 0x40;
    // The handle of its second group is in use.
    let taken = AllocBlock {
        client,
        parent: 0x5c00_0001,
        object: coming + 0x10,
        class: class::SUBDEVICE,
        ..AllocBlock::default()
    };
    let mut block = taken.encode();
    // SAFETY: a block of this size, without parameters.
    let done = unsafe {
        sluiceSimIoctl(file.as_raw_fd(), Request::ALLOC.number().into(), block.as_mut_ptr().cast())
    };
    assert_eq!((done, AllocBlock::decode(&block).unwrap().status), (0, 0));
    let mut other = std::ptr::null_mut();
    assert!(cuCtxCreate_v2(Ptr::of(&mut other), 0, 0).is_err());
    let controls = Controls::from_descriptor(file, true).unwrap();
    assert_eq!(controls.class(client, coming).unwrap(), None);
    cuCtxCreate_v2(Ptr::of(&mut other), 0, 0).unwrap();
    cuCtxDestroy_v2(handle(other)).unwrap();
}

#[test]
fn ioctl_returns_when_a_slow_driver_is_done_however_long_that_takes() {
    let _test = begin_test();
    let (file, client, _) = driver().unwrap().devices[0].control.opened().unwrap();
    // Other users of the socket give up after 2 s.
    let slow = ControlFault::Slow { ns: 2_300_000_000 };
    client::set_control_fault(gpu().socket(), Some(slow)).unwrap();
    let mut params = timeslice::encode(2_048);
    let mut block = ControlBlock {
        client,
        object: compute_group(),
        command: Command::SET_TIMESLICE.number,
        params: params.as_mut_ptr().expose_provenance() as u64,
        params_len: 8,
        ..ControlBlock::default()
    }
    .encode();
    // SAFETY: a block and parameters of this test, of the right sizes.
    let done = unsafe {
        sluiceSimIoctl(file.as_raw_fd(), Request::CONTROL.number().into(), block.as_mut_ptr().cast())
    };
    client::set_control_fault(gpu().socket(), None).unwrap();
    assert_eq!((done, ControlBlock::decode(&block).unwrap().status), (0, 0));
}

#[test]
fn control_ioctl_works_through_a_function_pointer_and_on_no_other_file() {
    let _test = begin_test();
    let (file, client, _) = driver().unwrap().devices[0].control.opened().unwrap();
    let mut params = timeslice::encode(0);
    let control = ControlBlock {
        client,
        object: compute_group(),
        command: Command::GET_TIMESLICE.number,
        params: params.as_mut_ptr().expose_provenance() as u64,
        params_len: 8,
        ..ControlBlock::default()
    };
    let mut block = control.encode();
    let call = |fd, request: Request, block: *mut u8| {
        // SAFETY: blocks and parameters of this test, of the right sizes.
        unsafe { sluiceSimIoctl(fd, request.number().into(), block.cast()) }
    };
    assert_eq!(call(file.as_raw_fd(), Request::CONTROL, block.as_mut_ptr()), 0);
    assert_eq!(timeslice::decode(&params), Some(2_048));
    assert_eq!(ControlBlock::decode(&block).unwrap().params, control.params, "the pointer is unchanged");
    let mut block = ControlBlock { object: 0x77, ..control }.encode();
    let xfer = XferBlock {
        nr: Request::CONTROL.nr.into(),
        len: Request::CONTROL.len.into(),
        block: block.as_mut_ptr().expose_provenance() as u64,
    };
    assert_eq!(call(file.as_raw_fd(), Request::XFER, xfer.encode().as_mut_ptr()), 0);
    assert_eq!(ControlBlock::decode(&block).unwrap().status, NvStatus::INVALID_OBJECT_HANDLE.0);
    let refused = |errno, fd, request, block| {
        assert_eq!(call(fd, request, block), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(errno));
    };
    // On another file the argument need not be an address.
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    for (fd, errno) in [(ours.as_raw_fd(), libc::ENOTTY), (-1, libc::EBADF), (1 << 20, libc::EBADF)] {
        refused(errno, fd, Request::CONTROL, std::ptr::without_provenance_mut(1));
        refused(errno, fd, Request::XFER, std::ptr::without_provenance_mut(1));
    }
    let nowhere = XferBlock { block: 0, ..xfer };
    refused(libc::EFAULT, file.as_raw_fd(), Request::XFER, nowhere.encode().as_mut_ptr());
    refused(libc::EFAULT, file.as_raw_fd(), Request::CONTROL, std::ptr::null_mut());
    let too_long = ControlBlock { params_len: u32::MAX, ..control };
    refused(libc::EINVAL, file.as_raw_fd(), Request::CONTROL, too_long.encode().as_mut_ptr());
}
