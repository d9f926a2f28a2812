use super::*;

#[test]
fn only_faults_of_the_gpu_itself_persist() {
    assert!([13, 31, 43, 45, 68, 109, 0, 154].iter().all(|xid| Fault::of_xid(*xid).is_none()));
    let stopping = |xid| Fault::of_xid(xid).map(|fault| (fault.stops_work(), fault.recovery_action()));
    assert_eq!([79, 48, 94].map(stopping), [Some((true, 1)), Some((true, 1)), Some((false, 4))]);
}
