//! The bytes of controls as the driver receives them, and the results of its answers.

use std::io;
use std::sync::{Arc, Mutex};

use sluice_nvrm::abi::{ControlBlock, CtxswStats, DisableChannels, Preempt};
use sluice_nvrm::transport::Transport;
use sluice_nvrm::{ControlError, Controls, NvStatus};

/// Blocks and parameters.
type Received = Vec<(ControlBlock, Vec<u8>)>;

/// A driver that records controls and returns a fixed result.
#[derive(Debug, Clone, Default)]
struct Driver {
    received: Arc<Mutex<Received>>,
    status: u32,
    error: Option<io::ErrorKind>,
    answer: Vec<u8>,
}

impl Transport for Driver {
    fn escape(&self, nr: u8, block: &mut [u8], params: &mut [u8]) -> io::Result<()> {
        assert_eq!(nr, 0x2a);
        let mut control = ControlBlock::decode(block).unwrap();
        self.received.lock().unwrap().push((control, params.to_vec()));
        if let Some(kind) = self.error {
            return Err(kind.into());
        }
        control.status = self.status;
        block.copy_from_slice(&control.encode());
        if !self.answer.is_empty() {
            params.copy_from_slice(&self.answer);
        }
        Ok(())
    }
}

fn made(call: impl FnOnce(&Controls)) -> (u32, u32, u32, u32, Vec<u8>) {
    let driver = Driver { answer: Vec::new(), ..Driver::default() };
    call(&Controls::new(Box::new(driver.clone())));
    let received = driver.received.lock().unwrap();
    let [(block, params)] = received.as_slice() else { panic!("{} controls", received.len()) };
    assert_eq!((block.flags, block.params, block.params_len as usize), (0, 0, params.len()));
    (block.client, block.object, block.command, block.params_len, params.clone())
}

#[test]
fn control_is_addressed_to_its_object_with_its_command_and_parameters() {
    let slice = made(|controls| controls.set_timeslice(0xc1, 0x15, 2000).unwrap());
    assert_eq!(slice, (0xc1, 0x15, 0xa06c_0103, 8, 2000_u64.to_le_bytes().to_vec()));
    let stop = |disable| {
        let channels = vec![(0xc1, 0x16), (0xc1, 0x17)];
        DisableChannels { disable, only_scheduling: false, channels }.encode().to_vec()
    };
    let disabled = made(|controls| controls.disable(0xc1, 2, &[0x16, 0x17]).unwrap());
    assert_eq!(disabled, (0xc1, 2, 0x2080_110b, 536, stop(true)));
    let enabled = made(|controls| controls.enable(0xc1, 2, &[0x16, 0x17]).unwrap());
    assert_eq!(enabled, (0xc1, 2, 0x2080_110b, 536, stop(false)));
    let preempt = Preempt { wait: true, timeout_us: Some(5) };
    let preempted = made(|controls| controls.preempt(0xc1, 0x15, preempt).unwrap());
    assert_eq!(preempted, (0xc1, 0x15, 0xa06c_0105, 8, vec![1, 1, 0, 0, 5, 0, 0, 0]));
}

#[test]
fn answers_are_decoded() {
    let stats = CtxswStats { saves: 7, restores: 8, wfi: 1, cta: 2, cilp: 4, gfxp: 0 };
    let driver = Driver { answer: stats.encode(0x15).to_vec(), ..Driver::default() };
    assert_eq!(Controls::new(Box::new(driver)).ctxsw_stats(0xc1, 2, 0x15).unwrap(), stats);
    let driver = Driver { answer: 1024_u64.to_le_bytes().to_vec(), ..Driver::default() };
    assert_eq!(Controls::new(Box::new(driver)).timeslice(0xc1, 0x15).unwrap(), 1024);
    let driver = Driver { answer: vec![5, 0, 0, 0], ..Driver::default() };
    assert_eq!(Controls::new(Box::new(driver)).group_id(0xc1, 0x15).unwrap(), 5);
}

#[test]
fn refusals_timeouts_and_io_errors_are_distinguished() {
    let fails = |driver: Driver| Controls::new(Box::new(driver)).set_timeslice(1, 2, 3).unwrap_err();
    let error = fails(Driver { status: 0x23, ..Driver::default() });
    assert!(matches!(error, ControlError::Refused(NvStatus::INVALID_CLIENT)) && error.is_gone());
    assert_eq!(error.to_string(), "driver refused the control: 0x23 (invalid client)");
    assert!(!fails(Driver { status: 0x1f, ..Driver::default() }).is_gone());
    assert!(matches!(fails(Driver { status: 0x65, ..Driver::default() }), ControlError::Timeout));
    let late = Driver { error: Some(io::ErrorKind::WouldBlock), ..Driver::default() };
    assert!(matches!(fails(late), ControlError::Timeout));
    let broken = Driver { error: Some(io::ErrorKind::BrokenPipe), ..Driver::default() };
    assert!(matches!(fails(broken), ControlError::Io(_)));
}

#[test]
fn invalid_controls_are_refused_before_the_driver() {
    let driver = Driver::default();
    let controls = Controls::new(Box::new(driver.clone()));
    let refused = |result: Result<(), ControlError>| {
        assert!(matches!(result, Err(ControlError::Refused(NvStatus::INVALID_ARGUMENT))));
    };
    refused(controls.set_timeslice(1, 2, 0));
    refused(controls.disable(1, 2, &[]));
    refused(controls.enable(1, 2, &[3; 65]));
    assert!(driver.received.lock().unwrap().is_empty());
}
