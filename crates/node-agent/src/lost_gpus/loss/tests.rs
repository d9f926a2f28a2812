use super::*;
use crate::gpus::Fault;
use crate::gpus::fake::gpu;

#[test]
fn only_pods_with_an_overdue_gpu_are_to_be_evicted() {
    let inventory = NodeInventory::new(1, vec![gpu(0), gpu(1), gpu(2)]);
    let uuid = |index| gpu(index).uuid;
    let named = [
        ("healthy", vec![uuid(0)]),
        ("lost", vec![uuid(1)]),
        ("both", vec![uuid(0), uuid(1)]),
        ("waiting", vec![uuid(2)]),
        ("replaced", vec!["GPU-old".to_owned()]),
    ];
    let named = named.map(|(pod, gpus)| (pod.to_owned(), gpus)).into();
    let found = [(uuid(1), "Xid 79".to_owned()), (uuid(2), "reset it".to_owned())].into();
    let mut lost = lost_gpus(&found, &inventory, &[], &Assignments { named, ..Assignments::default() });
    assert_eq!(lost.keys().cloned().collect::<Vec<_>>(), [uuid(1), uuid(2), "GPU-old".to_owned()]);
    assert!(pods_to_evict(&lost).is_empty(), "no grace period has ended");
    for gpu in [uuid(1), "GPU-old".to_owned()] {
        lost.get_mut(&gpu).unwrap().is_overdue = true;
    }
    let evicted = pods_to_evict(&lost);
    assert_eq!(evicted.keys().collect::<Vec<_>>(), ["both", "lost", "replaced"]);
    assert!(evicted["lost"].contains("Xid 79") && evicted["replaced"].contains("not listed"), "{evicted:?}");
}

#[test]
fn absent_gpu_is_not_lost_while_programs_may_go_on_on_an_unidentified_one() {
    let inventory = NodeInventory::new(1, vec![gpu(0)]);
    let named = [("train".to_owned(), vec![gpu(1).uuid])].into();
    let assignments = Assignments { named, ..Assignments::default() };
    let skipped = |uuid: Option<&str>, reason| Skipped { uuid: uuid.map(str::to_owned), index: 1, reason };
    let failed = || Fault::Failed("unknown error".into());
    let count = |skipped| lost_gpus(&BTreeMap::new(), &inventory, &[skipped], &assignments).len();
    assert_eq!(count(skipped(None, failed())), 0);
    assert_eq!(count(skipped(None, Fault::Lost)), 1);
    assert_eq!(count(skipped(Some("GPU-other"), failed())), 1, "it is known to be another one");
}
