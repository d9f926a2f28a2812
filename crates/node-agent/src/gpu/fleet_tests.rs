//! What the node's GPUs become by looks and Xids.

use super::super::fake::gpu;
use super::*;
use proptest::prelude::*;

const TWO: NonZeroU32 = NonZeroU32::new(2).unwrap();

fn known(index: u32, condition: Condition) -> Sighting {
    Sighting::Known(gpu(index), condition)
}

fn good(indices: &[u32]) -> Result<Vec<Sighting>, NoDriver> {
    Ok(indices.iter().map(|index| known(*index, Condition::Good)).collect())
}

/// A fleet that has seen GPUs 0 and 1, and the time that passes with each step.
struct World {
    fleet: Fleet,
    now: u64,
}

impl World {
    fn new() -> Self {
        let mut world = Self { fleet: Fleet::new(Policy::default(), TWO), now: 0 };
        world.look(good(&[0, 1]));
        world
    }

    fn look(&mut self, result: Result<Vec<Sighting>, NoDriver>) -> Vec<News> {
        let look = self.fleet.begin(Purpose::Scheduled);
        self.now += 1;
        self.fleet.looked(look, result, self.now)
    }

    fn hear(&mut self, index: Option<u32>, code: u64) -> Vec<News> {
        self.now += 1;
        self.fleet.heard(index.map(|index| gpu(index).uuid).as_deref(), code, self.now)
    }

    fn healthy(&self) -> Vec<u32> {
        let gpus = self.fleet.inventory(1).gpus;
        gpus.iter().filter(|gpu| gpu.healthy).map(|gpu| gpu.index).collect()
    }

    fn reason(&self, index: u32) -> Option<String> {
        self.fleet.inventory(1).gpu(&gpu(index).uuid).and_then(|gpu| gpu.unhealthy_reason.clone())
    }
}

#[test]
fn an_xid_hits_its_own_gpu_and_is_told_with_what_it_did() {
    let mut world = World::new();
    let (uuid, reason) = (gpu(1).uuid, Sickness::Xid(79));
    let told = [
        News::Xid { uuid: Some(uuid.clone()), code: 79, class: Class::Critical },
        News::Unhealthy { uuid: uuid.clone(), reason: reason.clone() },
    ];
    assert_eq!(world.hear(Some(1), 79), told);
    assert_eq!(world.healthy(), [0]);
    assert_eq!(world.look(good(&[0, 1])), []);
    assert_eq!(world.look(good(&[0, 1])), [News::Healthy { uuid, was: reason, after_ns: 2 }]);
    assert_eq!(world.healthy(), [0, 1]);
}

#[test]
fn programs_faults_change_nothing_whoever_they_are_told_of() {
    let mut world = World::new();
    let before = world.fleet.inventory(1);
    for code in super::super::xid::OF_APPLICATIONS {
        assert_eq!(world.hear(Some(0), code).len(), 1);
        assert_eq!(world.hear(None, code).len(), 1);
    }
    assert_eq!(world.fleet.inventory(1), before);
}

#[test]
fn a_critical_xid_of_nobody_knows_whom_suspects_all() {
    let mut world = World::new();
    assert_eq!(world.hear(None, 79).len(), 3);
    assert!(world.healthy().is_empty());
}

#[test]
fn a_look_that_began_before_the_xid_does_not_speak_for_the_gpu() {
    let mut world = World::new();
    let before = world.fleet.begin(Purpose::Scheduled);
    world.hear(Some(0), 48);
    assert_eq!(world.fleet.looked(before, good(&[0, 1]), 9), []);
    world.look(good(&[0, 1]));
    assert_eq!(world.healthy(), [1], "one good look since, two are needed");
    world.look(good(&[0, 1]));
    assert_eq!(world.healthy(), [0, 1]);
}

#[test]
fn looks_that_an_xid_prompted_find_what_is_bad_and_prove_nothing_good() {
    let mut world = World::new();
    world.hear(Some(0), 79);
    for _ in 0..10 {
        let look = world.fleet.begin(Purpose::Prompted);
        world.fleet.looked(look, good(&[0, 1]), 5);
    }
    assert_eq!(world.healthy(), [1]);
    let look = world.fleet.begin(Purpose::Prompted);
    world.fleet.looked(
        look,
        Ok(vec![known(0, Condition::Good), known(1, Condition::Bad(Sickness::Lost))]),
        6,
    );
    assert!(world.healthy().is_empty());
}

#[test]
fn a_gpu_that_vanishes_stays_in_the_inventory_and_comes_back_by_its_uuid() {
    let mut world = World::new();
    world.look(good(&[0]));
    assert_eq!(world.reason(1).as_deref(), Some("the driver no longer lists this GPU"));
    let mut elsewhere = gpu(1);
    elsewhere.index = 7;
    for _ in 0..2 {
        world.look(Ok(vec![known(0, Condition::Good), Sighting::Known(elsewhere.clone(), Condition::Good)]));
    }
    assert_eq!(world.healthy(), [0, 7]);
    assert_eq!(world.fleet.inventory(1).gpus.len(), 2);
}

#[test]
fn a_mute_gpu_is_the_one_that_is_missing() {
    let mut world = World::new();
    world.look(Ok(vec![known(0, Condition::Good), Sighting::Mute { index: 1, why: Sickness::Lost }]));
    assert_eq!(world.reason(1).as_deref(), Some("GPU is lost: it does not answer the driver"));
    assert_eq!(world.fleet.skipped().len(), 1);
    world.look(good(&[0, 1]));
    assert!(world.fleet.skipped().is_empty());
}

#[test]
fn a_driver_that_fails_takes_all_and_gives_all_back() {
    let mut world = World::new();
    let told = world.look(Err(NoDriver("it is being updated".into())));
    assert_eq!((told.len(), world.healthy().len()), (2, 0));
    assert_eq!(world.look(Err(NoDriver("it is being updated".into()))), [], "told once");
    world.look(good(&[0, 1]));
    assert_eq!(world.look(good(&[0, 1])).len(), 2);
}

#[test]
fn mig_is_skipped_from_the_beginning_and_a_sickness_later() {
    let mut world = World::new();
    let mig = |index: u32| Sighting::Mig { uuid: gpu(index).uuid, index };
    world.look(Ok(vec![known(0, Condition::Good), mig(1), mig(2)]));
    assert_eq!(world.reason(1).as_deref(), Some("GPU is in MIG mode"));
    let skipped = [Skipped { uuid: Some(gpu(2).uuid), index: 2, reason: Sickness::Mig }];
    assert_eq!(world.fleet.skipped(), skipped);
}

fn condition() -> impl Strategy<Value = Option<Condition>> {
    prop_oneof![
        3 => Just(Some(Condition::Good)),
        1 => Just(Some(Condition::Bad(Sickness::Lost))),
        1 => Just(None),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    Look(Vec<Option<Condition>>),
    Hear(Option<u32>, u64),
    NoDriver,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::collection::vec(condition(), 3).prop_map(Step::Look),
        1 => (prop::option::of(0..3u32), prop::sample::select(vec![13, 31, 79, 154]))
            .prop_map(|(index, code)| Step::Hear(index, code)),
        1 => Just(Step::NoDriver),
    ]
}

proptest! {
    #[test]
    fn news_tell_every_change_of_health_and_no_gpu_is_ever_forgotten(steps in prop::collection::vec(step(), 0..40)) {
        let mut world = World::new();
        let mut known_then = 2;
        let mut told: std::collections::BTreeMap<String, bool> = [0, 1].map(|index| (gpu(index).uuid, true)).into();
        for step in steps {
            let news = match step {
                Step::Look(conditions) => {
                    let seen = (0..).zip(conditions).filter_map(|(index, condition)| Some(known(index, condition?)));
                    world.look(Ok(seen.collect()))
                }
                Step::Hear(index, code) => world.hear(index, code),
                Step::NoDriver => world.look(Err(NoDriver("away".into()))),
            };
            for one in news {
                match one {
                    News::Appeared { uuid } => drop(told.insert(uuid, true)),
                    News::Unhealthy { uuid, .. } => drop(told.insert(uuid, false)),
                    News::Healthy { uuid, .. } => drop(told.insert(uuid, true)),
                    News::Xid { .. } => {}
                }
            }
            let gpus = world.fleet.inventory(1).gpus;
            prop_assert!(gpus.len() >= known_then);
            known_then = gpus.len();
            let now = gpus.iter().map(|gpu| (gpu.uuid.clone(), gpu.healthy)).collect();
            prop_assert_eq!(&told, &now);
            prop_assert!(gpus.iter().all(|gpu| gpu.healthy == gpu.unhealthy_reason.is_none()));
        }
    }
}
