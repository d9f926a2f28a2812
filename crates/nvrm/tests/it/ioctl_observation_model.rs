//! The registry compared with a model of the driver's objects, for random ioctls.

use proptest::collection::vec;
use proptest::prelude::*;
use sluice_nvrm::abi::{AllocBlock, FreeBlock, GroupParams, Request, class};
use sluice_nvrm::ioctl_observation::{ObjectRegistry, observe};

const FD: std::os::fd::RawFd = 9;

/// One ioctl. There are few handles, so that they collide.
#[derive(Debug, Clone)]
enum Step {
    Alloc { client: u32, parent: u32, object: u32, class: u32, engine: u32 },
    Free { client: u32, object: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let class = prop_oneof![
        Just(class::ROOT_CLIENT),
        Just(class::DEVICE),
        Just(class::SUBDEVICE),
        Just(class::CHANNEL_GROUP),
        Just(class::CHANNEL_GROUP),
        Just(class::HOPPER_CHANNEL),
        Just(class::HOPPER_CHANNEL),
    ];
    let alloc = (1..3_u32, 1..12_u32, 3..12_u32, class, 1..3_u32);
    prop_oneof![
        4 => alloc.prop_map(|(client, parent, object, class, engine)| {
            let (parent, object) = if class == class::ROOT_CLIENT { (0, client) } else { (parent, object) };
            Step::Alloc { client, parent, object, class, engine }
        }),
        1 => (1..3_u32, 1..12_u32).prop_map(|(client, object)| Step::Free { client, object }),
    ]
}

/// The driver: (client, object) to (parent, class, engine). It refuses objects without a parent and handles in use.
#[derive(Default)]
struct Driver(std::collections::BTreeMap<(u32, u32), (u32, u32, u32)>);

impl Driver {
    fn step(&mut self, step: &Step) -> bool {
        match *step {
            Step::Alloc { client, parent, object, class, engine } => {
                let parent_class = if class == class::ROOT_CLIENT {
                    None
                } else {
                    let Some((_, parent_class, _)) = self.0.get(&(client, parent)) else { return false };
                    Some(*parent_class)
                };
                let fits = match class {
                    class::ROOT_CLIENT => true,
                    class::DEVICE => parent_class == Some(class::ROOT_CLIENT),
                    class::SUBDEVICE | class::CHANNEL_GROUP => parent_class == Some(class::DEVICE),
                    _ => matches!(parent_class, Some(class::DEVICE | class::CHANNEL_GROUP)),
                };
                fits && !self.0.contains_key(&(client, object)) && {
                    self.0.insert((client, object), (parent, class, engine));
                    true
                }
            }
            Step::Free { client, object } => {
                if self.0.remove(&(client, object)).is_none() {
                    return false;
                }
                let mut removed = vec![object];
                while let Some(parent) = removed.pop() {
                    let children =
                        self.0.iter().filter(|((of, _), (above, ..))| *of == client && *above == parent);
                    let children: Vec<u32> = children.map(|((_, child), _)| *child).collect();
                    self.0.retain(|(of, child), _| *of != client || !children.contains(child));
                    removed.extend(children);
                }
                true
            }
        }
    }

    /// (client, group, channels) of compute.
    fn groups(&self) -> Vec<(u32, u32, Vec<u32>)> {
        let groups =
            self.0.iter().filter(|(_, (_, class, engine))| (*class, *engine) == (class::CHANNEL_GROUP, 1));
        let mut groups: Vec<_> = groups
            .map(|((client, group), _)| {
                let children =
                    self.0.iter().filter(|((of, _), (parent, ..))| of == client && parent == group);
                (*client, *group, children.map(|((_, channel), _)| *channel).collect::<Vec<_>>())
            })
            .filter(|(_, _, channels)| !channels.is_empty())
            .collect();
        groups.sort();
        groups
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn registry_has_the_same_groups_as_the_driver(steps in vec(step(), 0..120)) {
        let mut driver = Driver::default();
        let mut registry = ObjectRegistry::default();
        for step in steps {
            let ok = driver.step(&step);
            let before = registry.groups();
            let status = u32::from(!ok);
            let (seen, params) = match step {
                Step::Alloc { client, parent, object, class, engine } => {
                    let root = class == class::ROOT_CLIENT;
                    let client = if root { 0 } else { client };
                    let block = AllocBlock { client, parent, object, class, params: 1, status, ..AllocBlock::default() };
                    (observe(Request::ALLOC, &block.encode()), GroupParams { engine }.encode())
                }
                Step::Free { client, object } => {
                    let block = FreeBlock { client, object, status, ..FreeBlock::default() };
                    (observe(Request::FREE, &block.encode()), [0; 20])
                }
            };
            prop_assert_eq!(seen.is_some(), ok);
            let since = registry.newest_entry();
            let changed = seen.is_some_and(|seen| registry.record(&seen, &params, FD, Some(0), since));
            let found = registry.groups();
            prop_assert!(changed || found == before, "a change was not reported");
            let mut groups: Vec<_> = found
                .into_iter()
                .map(|found| {
                    let mut channels = found.handles.channels;
                    channels.sort_unstable();
                    (found.handles.client, found.handles.channel_group, channels)
                })
                .collect();
            groups.sort();
            prop_assert_eq!(groups, driver.groups());
        }
    }

    #[test]
    fn any_bytes_are_observed_without_a_panic(number in any::<u64>(), block in vec(any::<u8>(), 0..64)) {
        if let Some(request) = Request::of(number) {
            let _ = observe(request, &block);
        }
        for request in [Request::ALLOC, Request::ALLOC_WITH_RIGHTS, Request::CONTROL, Request::FREE, Request::XFER] {
            let _ = observe(request, &block);
        }
    }
}
