//! How scans and Xids change the node's GPUs.

use super::super::fake::gpu;
use super::super::health::Recovery;
use super::*;
use proptest::prelude::*;
use sluice_placement::inventory::MigInstance;

const TWO: NonZeroU32 = NonZeroU32::new(2).unwrap();

fn known(index: u32, condition: Condition) -> ScannedGpu {
    ScannedGpu::Known(gpu(index), condition)
}

fn good(indices: &[u32]) -> Result<Vec<ScannedGpu>, DriverUnavailable> {
    Ok(indices.iter().map(|index| known(*index, Condition::Good)).collect())
}

/// A registry that has seen GPUs 0 and 1, and a clock that advances with each step.
struct Node {
    registry: GpuRegistry,
    now: u64,
}

impl Node {
    fn new() -> Self {
        let mut node = Self { registry: GpuRegistry::new(Policy::default(), TWO), now: 0 };
        node.scan(good(&[0, 1]));
        node
    }

    fn scan(&mut self, result: Result<Vec<ScannedGpu>, DriverUnavailable>) -> Vec<GpuEvent> {
        let scan = self.registry.begin_scan(ScanPurpose::Scheduled);
        self.now += 1;
        self.registry.finish_scan(scan, result, self.now)
    }

    fn record_xid(&mut self, index: Option<u32>, code: u64) -> Vec<GpuEvent> {
        self.now += 1;
        self.registry.record_xid(index.map(|index| gpu(index).uuid).as_deref(), code, self.now)
    }

    fn healthy(&self) -> Vec<u32> {
        let gpus = self.registry.inventory(1, ContextReserve::PerSlot(0)).gpus;
        gpus.iter().filter(|gpu| gpu.healthy).map(|gpu| gpu.index).collect()
    }

    fn reason(&self, index: u32) -> Option<String> {
        self.registry
            .inventory(1, ContextReserve::PerSlot(0))
            .gpu(&gpu(index).uuid)
            .and_then(|gpu| gpu.unhealthy_reason.clone())
    }
}

#[test]
fn critical_xid_affects_only_its_gpu_and_is_reported_with_its_effect() {
    let mut node = Node::new();
    let (uuid, reason) = (gpu(1).uuid, Fault::Xid(79));
    let expected = [
        GpuEvent::Xid { uuid: Some(uuid.clone()), code: 79, class: Class::Critical },
        GpuEvent::Unhealthy { uuid: uuid.clone(), reason: reason.clone() },
    ];
    assert_eq!(node.record_xid(Some(1), 79), expected);
    assert_eq!(node.healthy(), [0]);
    assert_eq!(node.scan(good(&[0, 1])), []);
    assert_eq!(node.scan(good(&[0, 1])), [GpuEvent::Healthy { uuid, was: reason, after_ns: 2 }]);
    assert_eq!(node.healthy(), [0, 1]);
}

#[test]
fn gpu_is_lost_from_a_scan_that_says_that_no_program_can_work_on_it_until_it_is_healthy() {
    let mut node = Node::new();
    let found = |fault: Fault| Ok(vec![known(0, Condition::Good), known(1, Condition::Bad(fault))]);
    node.record_xid(Some(1), 48);
    assert!(node.registry.lost().is_empty(), "no scan has followed the Xid");
    node.scan(found(Fault::NeedsRecovery(Recovery::Reset)));
    let lost = node.registry.lost();
    assert_eq!(lost.keys().collect::<Vec<_>>(), [&gpu(1).uuid]);
    assert!(lost[&gpu(1).uuid].contains("Xid 48") && lost[&gpu(1).uuid].contains("reset"), "{lost:?}");
    node.scan(good(&[0, 1]));
    assert_eq!(node.registry.lost().len(), 1, "one good scan of two");
    node.scan(good(&[0, 1]));
    assert!(node.registry.lost().is_empty());
    for fault in [Fault::Lost, Fault::Mig, Fault::NeedsRecovery(Recovery::Reboot)] {
        node.scan(found(fault.clone()));
        assert_eq!(node.registry.lost().len(), 1, "{fault}");
    }
    // Another fault does not show that the GPU is back.
    let lost = node.registry.lost();
    for fault in [Fault::Failed("unknown error".into()), Fault::NeedsRecovery(Recovery::DrainAndReset)] {
        node.scan(found(fault.clone()));
        assert_eq!(
            node.registry.lost().keys().collect::<Vec<_>>(),
            lost.keys().collect::<Vec<_>>(),
            "{fault}"
        );
    }
    node.scan(Err(DriverUnavailable("no answer".into())));
    assert_eq!(node.registry.lost().len(), 1, "the driver has not answered once");
    node.scan(good(&[0, 1]));
    node.scan(good(&[0, 1]));
    assert!(node.registry.lost().is_empty());
    // Programs may go on.
    for fault in [Fault::Failed("unknown error".into()), Fault::NeedsRecovery(Recovery::DrainAndReset)] {
        node.scan(found(fault.clone()));
        assert!(node.registry.lost().is_empty(), "{fault}");
    }
    node.scan(Err(DriverUnavailable("not loaded".into())));
    assert!(node.registry.lost().is_empty(), "nothing is known while the driver does not answer");
    node.scan(good(&[0]));
    assert_eq!(node.registry.lost().len(), 1, "not listed any more");
}

#[test]
fn application_xids_never_change_health() {
    let mut node = Node::new();
    let before = node.registry.inventory(1, ContextReserve::PerSlot(0));
    for code in super::super::xid::APPLICATION_XIDS {
        assert_eq!(node.record_xid(Some(0), code).len(), 1);
        assert_eq!(node.record_xid(None, code).len(), 1);
    }
    assert_eq!(node.registry.inventory(1, ContextReserve::PerSlot(0)), before);
}

#[test]
fn critical_xid_without_gpu_makes_all_gpus_unhealthy() {
    let mut node = Node::new();
    assert_eq!(node.record_xid(None, 79).len(), 3);
    assert!(node.healthy().is_empty());
}

#[test]
fn scan_that_began_before_the_xid_does_not_count() {
    let mut node = Node::new();
    let before = node.registry.begin_scan(ScanPurpose::Scheduled);
    node.record_xid(Some(0), 48);
    assert_eq!(node.registry.finish_scan(before, good(&[0, 1]), 9), []);
    node.scan(good(&[0, 1]));
    assert_eq!(node.healthy(), [1], "one good scan since, two are needed");
    node.scan(good(&[0, 1]));
    assert_eq!(node.healthy(), [0, 1]);
}

#[test]
fn prompted_scans_find_faults_but_do_not_count_towards_recovery() {
    let mut node = Node::new();
    node.record_xid(Some(0), 79);
    for _ in 0..10 {
        let scan = node.registry.begin_scan(ScanPurpose::Prompted);
        node.registry.finish_scan(scan, good(&[0, 1]), 5);
    }
    assert_eq!(node.healthy(), [1]);
    let scan = node.registry.begin_scan(ScanPurpose::Prompted);
    node.registry.finish_scan(
        scan,
        Ok(vec![known(0, Condition::Good), known(1, Condition::Bad(Fault::Lost))]),
        6,
    );
    assert!(node.healthy().is_empty());
}

#[test]
fn vanished_gpu_stays_in_the_inventory_and_returns_by_its_uuid() {
    let mut node = Node::new();
    node.scan(good(&[0]));
    assert_eq!(node.reason(1).as_deref(), Some("the driver no longer lists this GPU"));
    let mut elsewhere = gpu(1);
    elsewhere.index = 7;
    for _ in 0..2 {
        node.scan(Ok(vec![known(0, Condition::Good), ScannedGpu::Known(elsewhere.clone(), Condition::Good)]));
    }
    assert_eq!(node.healthy(), [0, 7]);
    assert_eq!(node.registry.inventory(1, ContextReserve::PerSlot(0)).gpus.len(), 2);
}

#[test]
fn unidentified_gpu_is_matched_with_the_missing_one() {
    let mut node = Node::new();
    node.scan(Ok(vec![known(0, Condition::Good), ScannedGpu::Unidentified { index: 1, why: Fault::Lost }]));
    assert_eq!(node.reason(1).as_deref(), Some("GPU is lost: it does not answer the driver"));
    assert_eq!(node.registry.skipped().len(), 1);
    node.scan(good(&[0, 1]));
    assert!(node.registry.skipped().is_empty());
}

#[test]
fn failed_driver_makes_all_gpus_unhealthy_until_it_recovers() {
    let mut node = Node::new();
    let events = node.scan(Err(DriverUnavailable("it is being updated".into())));
    assert_eq!((events.len(), node.healthy().len()), (2, 0));
    assert_eq!(node.scan(Err(DriverUnavailable("it is being updated".into()))), [], "reported once");
    node.scan(good(&[0, 1]));
    assert_eq!(node.scan(good(&[0, 1])).len(), 2);
}

#[test]
fn mig_gpu_is_skipped_at_the_start_and_unhealthy_later() {
    let mut node = Node::new();
    let mig = |index: u32| ScannedGpu::NotGiven { uuid: gpu(index).uuid, index, why: Fault::Mig };
    node.scan(Ok(vec![known(0, Condition::Good), mig(1), mig(2)]));
    assert_eq!(node.reason(1).as_deref(), Some("GPU is in MIG mode"));
    let skipped = [Skipped { uuid: Some(gpu(2).uuid), index: 2, reason: Fault::Mig }];
    assert_eq!(node.registry.skipped(), skipped);
}

#[test]
fn xid_of_a_gpu_in_mig_mode_concerns_its_instances_and_no_other_gpu() {
    let mut node = Node::new();
    let instance = |uuid: &str, of: u32| Gpu {
        uuid: uuid.to_owned(),
        mig: Some(MigInstance { parent: gpu(of).uuid, profile: "1g.10gb".into(), is_shared: false }),
        ..gpu(of)
    };
    let all = [("MIG-a", 2), ("MIG-b", 2), ("MIG-c", 3)].map(|(uuid, of)| instance(uuid, of));
    let found = || [gpu(0), gpu(1)].into_iter().chain(all.clone());
    let scanned =
        |condition: &Condition| found().map(|one| ScannedGpu::Known(one, condition.clone())).collect();
    node.scan(Ok(scanned(&Condition::Good)));
    node.record_xid(Some(2), 79);
    let inventory = node.registry.inventory(1, ContextReserve::PerSlot(0));
    let healthy: Vec<_> =
        inventory.gpus.iter().filter(|one| one.healthy).map(|one| one.uuid.as_str()).collect();
    assert_eq!(healthy, [&gpu(0).uuid, &gpu(1).uuid, "MIG-c"]);
    // An instance that is destroyed is listed no more.
    node.scan(Ok(scanned(&Condition::Good).into_iter().take(4).collect()));
    let inventory = node.registry.inventory(1, ContextReserve::PerSlot(0));
    assert_eq!(
        inventory.gpu("MIG-c").and_then(|one| one.unhealthy_reason.as_deref()),
        Some("the driver no longer lists this GPU")
    );
}

fn condition() -> impl Strategy<Value = Option<Condition>> {
    prop_oneof![
        3 => Just(Some(Condition::Good)),
        1 => Just(Some(Condition::Bad(Fault::Lost))),
        1 => Just(None),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    Scan(Vec<Option<Condition>>),
    Xid(Option<u32>, u64),
    DriverUnavailable,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::collection::vec(condition(), 3).prop_map(Step::Scan),
        1 => (prop::option::of(0..3u32), prop::sample::select(vec![13, 31, 79, 154]))
            .prop_map(|(index, code)| Step::Xid(index, code)),
        1 => Just(Step::DriverUnavailable),
    ]
}

proptest! {
    #[test]
    fn events_report_every_change_of_health_and_no_gpu_disappears(steps in prop::collection::vec(step(), 0..40)) {
        let mut node = Node::new();
        let mut known_then = 2;
        let mut reported: std::collections::BTreeMap<String, bool> = [0, 1].map(|index| (gpu(index).uuid, true)).into();
        for step in steps {
            let events = match step {
                Step::Scan(conditions) => {
                    let seen = (0..).zip(conditions).filter_map(|(index, condition)| Some(known(index, condition?)));
                    node.scan(Ok(seen.collect()))
                }
                Step::Xid(index, code) => node.record_xid(index, code),
                Step::DriverUnavailable => node.scan(Err(DriverUnavailable("away".into()))),
            };
            for one in events {
                match one {
                    GpuEvent::Appeared { uuid } => drop(reported.insert(uuid, true)),
                    GpuEvent::Unhealthy { uuid, .. } => drop(reported.insert(uuid, false)),
                    GpuEvent::Healthy { uuid, .. } => drop(reported.insert(uuid, true)),
                    GpuEvent::Xid { .. } => {}
                }
            }
            let gpus = node.registry.inventory(1, ContextReserve::PerSlot(0)).gpus;
            prop_assert!(gpus.len() >= known_then);
            known_then = gpus.len();
            let now = gpus.iter().map(|gpu| (gpu.uuid.clone(), gpu.healthy)).collect();
            prop_assert_eq!(&reported, &now);
            prop_assert!(gpus.iter().all(|gpu| gpu.healthy == gpu.unhealthy_reason.is_none()));
        }
    }
}

#[test]
fn inventory_leaves_out_the_reserve_and_states_all_memory() {
    let mut registry = GpuRegistry::new(Policy::default(), std::num::NonZeroU32::MIN);
    let scan = registry.begin_scan(ScanPurpose::Scheduled);
    let found = Gpu { memory_bytes: 79 << 30, memory_total_bytes: Some(80 << 30), ..gpu(0) };
    registry.finish_scan(scan, Ok(vec![ScannedGpu::Known(found, Condition::Good)]), 0);
    let inventory = registry.inventory(10, ContextReserve::Default);
    assert_eq!((inventory.gpus[0].memory_bytes, inventory.gpus[0].memory_total()), (74 << 30, 80 << 30));
}
