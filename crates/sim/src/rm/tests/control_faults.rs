//! Faults of the driver's controls.

use super::*;
use crate::fault::ControlFault;

const SLICE_US: u64 = 7;

fn set_slice(fixture: &mut Fixture, tenant: &Tenant) -> (NvStatus, u64) {
    let before = fixture.engine.now();
    let (status, _, at) =
        fixture.control(tenant, GROUP, Number::SET_TIMESLICE, &abi::timeslice::encode(SLICE_US));
    (status, at - before)
}

fn slice_ns(fixture: &Fixture) -> u64 {
    fixture.engine.ledger().groups[0].timeslice_ns
}

#[test]
fn refused_controls_have_no_effect_until_the_fault_is_removed() {
    let mut fixture = Fixture::new(Support::Full);
    let tenant = fixture.tenant();
    fixture.rm.set_fault(Some(ControlFault::Refused));
    assert_eq!(set_slice(&mut fixture, &tenant).0, NvStatus::INVALID_STATE);
    fixture.run_for(10 * MS);
    assert_eq!(slice_ns(&fixture), params::TIMESLICE_NS);
    fixture.rm.set_fault(None);
    assert_eq!(set_slice(&mut fixture, &tenant), (NvStatus::OK, params::SET_TIMESLICE_NS));
}

#[test]
fn refused_slices_leave_other_controls() {
    let mut fixture = Fixture::new(Support::Full);
    let tenant = fixture.tenant();
    fixture.rm.set_fault(Some(ControlFault::SlicesRefused));
    assert_eq!(set_slice(&mut fixture, &tenant).0, NvStatus::INVALID_STATE);
    let slice = abi::timeslice::encode(0);
    assert_eq!(fixture.control(&tenant, GROUP, Number::GET_TIMESLICE, &slice).0, NvStatus::OK);
}

#[test]
fn slow_controls_take_effect_and_are_answered_after_the_wait() {
    let mut fixture = Fixture::new(Support::Full);
    let tenant = fixture.tenant();
    fixture.rm.set_fault(Some(ControlFault::Slow { ns: 100 * MS }));
    let (status, took) = set_slice(&mut fixture, &tenant);
    assert_eq!((status, took), (NvStatus::OK, 100 * MS + params::SET_TIMESLICE_NS));
    fixture.run_for(100 * MS);
    assert_eq!(slice_ns(&fixture), params::TIMESLICE_NS, "it has not taken effect yet");
    fixture.run_for(MS);
    assert_eq!(slice_ns(&fixture), SLICE_US * 1_000);
}
