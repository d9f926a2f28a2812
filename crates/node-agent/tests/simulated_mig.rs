//! Instances of a GPU in MIG mode end to end: simulators, the simulator's `libnvidia-ml.so.1`, nvml-wrapper, scan. A binary of its own with
//! one test, because it sets an environment variable of the process.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::env;

use sluice_node_agent::gpus::driver::{Condition, GpuDriver, ScannedGpu};
use sluice_node_agent::gpus::{DriverPaths, Fault, Mig, NvmlDriver};
use sluice_placement::inventory::{Gpu, MigInstance};
use sluice_sim::client::{self, Instance};
use sluice_sim::daemon::{DaemonConfig, Handle, spawn_thread};
use sluice_sim::identity::{instance_uuid_text, uuid_text};
use sluice_test_programs::Layout;

const GPU: [u8; 16] = [1; 16];
const PARENT: [u8; 16] = [2; 16];
const WITHOUT: [u8; 16] = [3; 16];
const SMALL: [u8; 16] = [4; 16];
const LARGE: [u8; 16] = [5; 16];
const PART: [u8; 16] = [6; 16];

fn instance(slices: u32, compute_slices: u32) -> Option<Instance> {
    Some(Instance { parent: PARENT, slices, compute_slices })
}

#[test]
fn instances_of_a_gpu_in_mig_mode_are_gpus_of_their_own_where_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let kinds = [
        // Instances before their GPU, too: their order says nothing.
        (SMALL, instance(1, 1)),
        (GPU, None),
        (PARENT, None),
        (LARGE, instance(3, 3)),
        (PART, instance(2, 1)),
        (WITHOUT, None),
    ];
    let configs = kinds.map(|(uuid, instance)| {
        let mut config = DaemonConfig::at(folder.path().join(format!("gpu{}", uuid[0])));
        config.set_uuid(uuid);
        config.gpu.is_mig = [PARENT, WITHOUT].contains(&uuid);
        if let Some(instance) = &instance {
            config.gpu.name = format!("NVIDIA Simulated MIG {}g.16gb", instance.slices);
            config.gpu.memory_bytes = 16 << 30;
        }
        config.gpu.instance = instance;
        config
    });
    let sockets: Vec<String> = configs.iter().map(|config| config.socket.display().to_string()).collect();
    // SAFETY: the only test of this program, and it has started no threads yet that could read the environment.
    unsafe { env::set_var("SLUICE_SIM_SOCKET", sockets.join(",")) };
    let layout = Layout::of_this_test();
    layout.build(&["sluice-sim-cuda"]);
    let pci =
        |uuid: [u8; 16]| configs.iter().find(|config| config.gpu.uuid == uuid).unwrap().gpu.pci.to_string();
    let (pci, socket) = (pci(PARENT), folder.path().join("gpu2"));
    let _daemons: Vec<Handle> = configs.into_iter().map(|config| spawn_thread(config).unwrap()).collect();
    let paths = || DriverPaths {
        library: Some(layout.profile_dir.join("libcuda.so")),
        sysfs: folder.path().join("sys"),
    };

    // Left to others.
    let left = NvmlDriver::new(paths(), Mig::Off).inventory().unwrap();
    let [ScannedGpu::Known(gpu, _), parent, without] = left.as_slice() else { panic!("{left:?}") };
    assert_eq!((&gpu.uuid, &gpu.mig), (&uuid_text(GPU), &None));
    let not_given = |uuid, index, why| ScannedGpu::NotGiven { uuid, index, why };
    assert_eq!(*parent, not_given(uuid_text(PARENT), 1, Fault::Mig));
    assert_eq!(*without, not_given(uuid_text(WITHOUT), 2, Fault::Mig));

    // Given.
    let driver = NvmlDriver::new(paths(), Mig::Instances);
    let expected = |uuid, profile: &str| Gpu {
        uuid: instance_uuid_text(uuid),
        index: 1,
        model: format!("NVIDIA Simulated MIG {profile}"),
        memory_bytes: 16 << 30,
        memory_total_bytes: Some(16 << 30),
        host_memory_bytes: 0,
        numa: None,
        pci: pci.clone(),
        nvlink: Vec::new(),
        mig: Some(MigInstance { parent: uuid_text(PARENT), profile: profile.into(), is_shared: false }),
        healthy: true,
        unhealthy_reason: None,
    };
    let (small, large) = (expected(SMALL, "1g.16gb"), expected(LARGE, "3g.16gb"));
    let given = driver.inventory().unwrap();
    let known = |gpu: &Gpu| ScannedGpu::Known(gpu.clone(), Condition::Good);
    assert_eq!(
        given[1..],
        [
            known(&small),
            known(&large),
            // Half of the compute slices: another compute instance may use the same memory.
            not_given(instance_uuid_text(PART), 1, Fault::SharedMemory),
            not_given(uuid_text(WITHOUT), 2, Fault::NoInstances),
        ]
    );
    assert!(matches!(&given[0], ScannedGpu::Known(gpu, _) if gpu.uuid == uuid_text(GPU)), "{:?}", given[0]);

    // Processes and their memory are the instance's; energy is known of a whole GPU only.
    assert_eq!(driver.process_memory(&small.uuid).unwrap(), []);
    assert_eq!(driver.usage(&large.uuid).unwrap().processes, 0);
    assert_eq!((driver.energy_mj(&small.uuid), driver.energy_mj(&uuid_text(GPU)).is_some()), (None, true));

    // The GPU's recovery action concerns its instances.
    client::inject(&socket, 48).unwrap();
    let broken = driver.inventory().unwrap();
    let condition = |wanted: &Gpu| {
        broken.iter().find_map(|one| match one {
            ScannedGpu::Known(gpu, condition) if gpu.uuid == wanted.uuid => Some(condition),
            _ => None,
        })
    };
    assert!(matches!(condition(&small), Some(Condition::Bad(Fault::NeedsRecovery(_)))), "{broken:?}");
    assert!(matches!(condition(gpu), Some(Condition::Good)), "{broken:?}");
}
