use sluice_placement::annotations::parse_quantity;
use sluice_placement::inventory::MigInstance;

use super::*;
use crate::gpus::fake;

fn inventory(gpus: Vec<Gpu>) -> NodeInventory {
    NodeInventory::new(10, gpus)
}

fn attribute(device: &Device, name: &str) -> Option<String> {
    device.attributes.as_ref()?.get(name)?.string.clone()
}

#[test]
fn device_has_the_gpus_name_attributes_and_no_taint() {
    let gpu = Gpu { numa: Some(1), uuid: "GPU-AB".into(), pci: "0000:18:00.0".into(), ..fake::gpu(0) };
    let roots = BTreeMap::from([("GPU-AB".to_owned(), "pci0000:17".to_owned())]);
    let [device] = devices(&inventory(vec![gpu]), &roots, &LostSince::new()).try_into().unwrap();
    assert_eq!((device.name.as_str(), device.allow_multiple_allocations), ("gpu-ab", Some(true)));
    for (name, value) in [
        ("model", "Fake GPU"),
        ("uuid", "GPU-AB"),
        ("resource.kubernetes.io/pciBusID", "0000:18:00.0"),
        ("resource.kubernetes.io/pcieRoot", "pci0000:17"),
    ] {
        assert_eq!(attribute(&device, name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(device.attributes.as_ref().unwrap()["numaNode"].int, Some(1));
    assert_eq!(attribute(&device, "nvlinkDomain"), None);
    assert_eq!(device.taints, None);
}

#[test]
fn capacities_are_a_thousand_thousandths_whole_mebibytes_and_seats() {
    let gpu = Gpu { memory_bytes: (10 << 30) + 12345, ..fake::gpu(0) };
    let [device] = devices(&inventory(vec![gpu]), &BTreeMap::new(), &LostSince::new()).try_into().unwrap();
    let capacity = device.capacity.unwrap();
    let value = |name: &str| parse_quantity(&capacity[name].value.0);
    assert_eq!((value("milli"), value("memory"), value("seats")), (Some(1000), Some(10 << 30), Some(10)));
    for (name, step, min) in [("milli", 1, 0), ("memory", 1 << 20, 1 << 20)] {
        let policy = capacity[name].request_policy.as_ref().unwrap();
        let range = policy.valid_range.as_ref().unwrap();
        assert_eq!(parse_quantity(&range.step.as_ref().unwrap().0), Some(step), "{name}");
        assert_eq!(parse_quantity(&range.min.0), Some(min), "{name}");
        // A claim that names no capacity is a whole GPU.
        assert_eq!(policy.default.as_ref(), Some(&capacity[name].value), "{name}");
        // `validateRequestPolicyRange` of Kubernetes: the maximum is a whole number of steps above the minimum.
        assert_eq!((value(name).unwrap() - min) % step, 0, "{name}");
    }
    // One claim that asks for it keeps all others out that do, and claims that do not ask are not concerned.
    let critical = capacity["critical"].request_policy.as_ref().unwrap();
    assert_eq!((value("critical"), critical.default.as_ref()), (Some(1), Some(&Quantity("0".into()))));
    let seats = capacity["seats"].request_policy.as_ref().unwrap();
    assert_eq!(seats.valid_values.as_deref(), Some([Quantity("1".into())].as_slice()));
}

#[test]
fn instance_names_its_gpu_and_profile_and_has_one_seat_unless_it_is_shared() {
    let instance = |is_shared| Gpu {
        uuid: "MIG-AB".into(),
        mig: Some(MigInstance { parent: "GPU-AB".into(), profile: "1g.10gb".into(), is_shared }),
        ..fake::gpu(0)
    };
    for (is_shared, seats) in [(false, 1), (true, 10)] {
        let gpus = inventory(vec![fake::gpu(1), instance(is_shared)]);
        let [gpu, device] = devices(&gpus, &BTreeMap::new(), &LostSince::new()).try_into().unwrap();
        assert_eq!(device.name, "mig-ab");
        let attributes = [attribute(&device, "parentUUID"), attribute(&device, "profile")];
        assert_eq!(attributes, [Some("GPU-AB".into()), Some("1g.10gb".into())]);
        assert_eq!(parse_quantity(&device.capacity.unwrap()["seats"].value.0), Some(seats));
        // The class of GPUs leaves out devices with a profile.
        assert_eq!(attribute(&gpu, "profile"), None);
    }
}

#[test]
fn unhealthy_gpu_is_tainted_until_it_is_healthy_again() {
    let mut gpus = inventory(vec![fake::gpu(0), Gpu { healthy: false, ..fake::gpu(1) }]);
    let tainted = |gpus: &NodeInventory| -> Vec<bool> {
        devices(gpus, &BTreeMap::new(), &LostSince::new())
            .iter()
            .map(|device| device.taints.is_some())
            .collect()
    };
    assert_eq!(tainted(&gpus), [false, true]);
    let taint = devices(&gpus, &BTreeMap::new(), &LostSince::new())[1].taints.as_ref().unwrap()[0].clone();
    assert_eq!((taint.key.as_str(), taint.effect.as_str()), ("gpu.sluice.dev/unhealthy", "NoSchedule"));
    gpus.gpus[1].healthy = true;
    assert_eq!(tainted(&gpus), [false, false]);
}

#[test]
fn lost_gpu_has_a_taint_that_evicts_since_the_time_of_its_loss() {
    let gpus = inventory(vec![fake::gpu(0), Gpu { healthy: false, ..fake::gpu(1) }]);
    let since = Time("2026-11-29T20:00:00Z".parse().unwrap());
    let lost = LostSince::from([(fake::gpu(1).uuid, since.clone())]);
    let [good, bad] = devices(&gpus, &BTreeMap::new(), &lost).try_into().unwrap();
    assert_eq!(good.taints, None);
    let effects: Vec<_> =
        bad.taints.unwrap().into_iter().map(|taint| (taint.key, taint.effect, taint.time_added)).collect();
    let wanted = |key: &str, effect: &str, time| (format!("gpu.sluice.dev/{key}"), effect.to_owned(), time);
    assert_eq!(effects, [wanted("unhealthy", "NoSchedule", None), wanted("lost", "NoExecute", Some(since))]);
}

#[test]
fn gpus_that_reach_each_other_by_links_are_one_domain() {
    let linked = |index, to: &[u32]| Gpu {
        nvlink: to.iter().map(|to| fake::gpu(*to).uuid).collect(),
        ..fake::gpu(index)
    };
    // 0-1-2 in a chain, 3 and 4 linked as one of them reports it, 5 alone.
    let gpus = vec![
        linked(0, &[1]),
        linked(1, &[0, 2]),
        linked(2, &[]),
        linked(3, &[4]),
        linked(4, &[]),
        linked(5, &[]),
    ];
    let domains = nvlink_domains(&inventory(gpus));
    let of = |index: u32| domains.get(&fake::gpu(index).uuid).cloned();
    let named = |index: u32| Some(fake::gpu(index).uuid);
    assert_eq!([of(0), of(1), of(2)], [named(0), named(0), named(0)]);
    assert_eq!([of(3), of(4), of(5)], [named(3), named(3), None]);
}

#[test]
fn long_model_is_cut_at_a_character() {
    let gpu = Gpu { model: format!("{}é", "x".repeat(63)), ..fake::gpu(0) };
    let [device] = devices(&inventory(vec![gpu]), &BTreeMap::new(), &LostSince::new()).try_into().unwrap();
    assert_eq!(attribute(&device, "model"), Some("x".repeat(63)));
}
