use super::*;

#[test]
fn driver_status_becomes_the_cause_of_the_failure() {
    let cause = |error| match failure(error) {
        ControlFailure::Gone => None,
        ControlFailure::Failed(cause, _) => Some(cause),
    };
    let refused = |status| cause(ControlError::Refused(status));
    assert_eq!(refused(NvStatus::INVALID_OBJECT_HANDLE), None);
    assert_eq!(refused(NvStatus::TIMEOUT), Some(Cause::Timeout));
    assert_eq!(cause(ControlError::Timeout), Some(Cause::Timeout));
    assert_eq!(refused(NvStatus(0x51)), Some(Cause::NoMemory));
    assert_eq!(refused(NvStatus(0x0f)), Some(Cause::GpuHung));
    assert_eq!(refused(NvStatus::INVALID_STATE), Some(Cause::InvalidState));
    assert_eq!(refused(NvStatus::INSUFFICIENT_PERMISSIONS), Some(Cause::Refused));
    assert_eq!(cause(ControlError::Io(std::io::ErrorKind::BrokenPipe.into())), Some(Cause::Refused));
}
