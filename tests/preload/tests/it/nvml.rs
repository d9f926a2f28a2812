//! NVML in tenants: the limit is the size of the GPU's memory, and only the client's processes are listed, however a program reaches NVML.

use sluice_driver_api::nvml::{
    NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_NOT_FOUND, NVML_SUCCESS, NVML_SYMBOLS,
};
use sluice_preload_tests::{MIB, Node, Tenant, TenantOptions, artifacts, eventually, shared};
use std::fs;
use std::os::unix::fs::symlink;

const LIMIT: u64 = 1_234 * MIB;

fn node() -> Node {
    Node::start(&format!("2\nown 0.5 1.0 {LIMIT}\nother 0.5 1.0 8589934592\n"))
}

/// A process of `client` that uses NVML and not CUDA.
fn monitor(node: &Node, client: &str) -> Tenant {
    started(node.tenant(client, "nvml"))
}

fn started(options: TenantOptions) -> Tenant {
    let mut tenant = options.opening_the_driver_late().start();
    tenant.expect("ready");
    tenant
}

/// A process of `client` that has taken memory with CUDA.
fn user(node: &Node, client: &str, bytes: u64) -> Tenant {
    let mut tenant = node.tenant(client, "tenant").start();
    tenant.expect("ready");
    assert_eq!(tenant.ask(&format!("take alloc {bytes}")), "took 0");
    tenant
}

fn numbers<const N: usize>(line: &str) -> [u64; N] {
    let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap_or(u64::MAX)).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("{N} numbers in {line:?}"))
}

/// Result, count and pids of a list.
fn list(monitor: &mut Tenant, command: &str) -> (u32, usize, Vec<i32>) {
    let line = monitor.ask(command);
    let words: Vec<u32> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let mut pids: Vec<i32> = words[2..].iter().map(|pid| pid.cast_signed()).collect();
    pids.sort_unstable();
    (words[0], words[1] as usize, pids)
}

fn sorted(tenants: &[&Tenant]) -> Vec<i32> {
    let mut pids: Vec<i32> = tenants.iter().map(|tenant| tenant.pid()).collect();
    pids.sort_unstable();
    pids
}

#[test]
fn memory_is_the_limit_and_the_use_of_the_client_also_for_a_process_without_cuda() {
    let _lock = shared();
    let node = node();
    let mut user = user(&node, "own", 1_000 * MIB);
    let _other = self::user(&node, "other", 2_000 * MIB);
    let mut monitor = monitor(&node, "own");
    let [free, total] = numbers(&user.ask("info"));
    assert_eq!(total, LIMIT);
    assert_eq!(numbers(&monitor.ask("memory")), [LIMIT, free, LIMIT - free]);
    assert_eq!(numbers(&monitor.ask("memory2")), [LIMIT, 0, free, LIMIT - free]);
    assert!(LIMIT - free >= 1_000 * MIB, "{free} free");
    assert_eq!(user.ask("drop 0"), "dropped");
    let [later, _] = numbers(&user.ask("info"));
    assert_eq!(numbers(&monitor.ask("memory")), [LIMIT, later, LIMIT - later]);
    // It uses no GPU and takes no part in scheduling.
    assert!(node.ledger().by_pid(monitor.pid()).is_none());
    assert_eq!(node.metrics().sum("sluice_level", &[]), Some(2.0));
    // Bare, the same program sees the whole GPU.
    let mut bare = started(node.tenant("bare", "nvml").without_hook());
    let gpu = node.ledger().gpu;
    assert_eq!(
        numbers(&bare.ask("memory")),
        [gpu.memory_total, gpu.memory_total - gpu.memory_used, gpu.memory_used]
    );
}

#[test]
fn processes_of_other_clients_are_in_no_list() {
    let _lock = shared();
    let node = node();
    let users = [user(&node, "own", MIB), user(&node, "own", MIB)];
    let other = user(&node, "other", MIB);
    let own = sorted(&[&users[0], &users[1]]);
    let mut monitors = ["own", "other"].map(|client| monitor(&node, client));
    let mut bare = started(node.tenant("bare", "nvml").without_hook());
    let lists = NVML_SYMBOLS.iter().filter_map(|symbol| symbol.to_str().ok());
    let lists = lists.filter(|symbol| symbol.contains("RunningProcesses"));
    let mut commands: Vec<String> = lists.map(|symbol| format!("list {symbol} 64")).collect();
    assert_eq!(commands.len(), 9);
    commands.push("details 64".into());
    for command in commands {
        let [of_own, of_other] = monitors.each_mut().map(|monitor| list(monitor, &command));
        let all = list(&mut bare, &command);
        if command.contains("Compute") && !command.contains("MPS") || command.contains("details") {
            assert_eq!(of_own, (NVML_SUCCESS, 2, own.clone()), "{command}");
            assert_eq!(of_other, (NVML_SUCCESS, 1, vec![other.pid()]), "{command}");
            assert_eq!(all.1, 3, "{command}");
        } else {
            assert_eq!((of_own, of_other, all.1), ((0, 0, vec![]), (0, 0, vec![]), 0), "{command}");
        }
    }
}

#[test]
fn list_that_does_not_fit_is_refused_with_the_number_of_own_processes() {
    let _lock = shared();
    let node = node();
    let users = [user(&node, "own", MIB), user(&node, "own", MIB)];
    let _others = [user(&node, "other", MIB), user(&node, "other", MIB)];
    let mut monitor = monitor(&node, "own");
    for name in ["nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v3"] {
        for room in [0, 1] {
            let answer = list(&mut monitor, &format!("list {name} {room}"));
            assert_eq!(answer, (NVML_ERROR_INSUFFICIENT_SIZE, 2, vec![]), "{name}: {room}");
        }
        // The same room does not suffice for all processes of the GPU.
        let fits = list(&mut monitor, &format!("list {name} 2"));
        assert_eq!(fits, (NVML_SUCCESS, 2, sorted(&[&users[0], &users[1]])), "{name}");
    }
    assert_eq!(list(&mut monitor, "details 1"), (NVML_ERROR_INSUFFICIENT_SIZE, 2, vec![]));
    drop(users);
    eventually("an empty list", || {
        let empty = list(&mut monitor, "list nvmlDeviceGetComputeRunningProcesses_v3 0");
        (empty == (NVML_SUCCESS, 0, vec![])).then_some(())
    });
}

#[test]
fn utilisation_has_the_processes_of_the_client_only() {
    let _lock = shared();
    let node = Node::with("2\nown 0.5 1.0 8589934592\nother 0.5 1.0 8589934592\n").stepped().start();
    let mut users = [user(&node, "own", MIB), user(&node, "other", MIB)];
    let mut monitor = monitor(&node, "own");
    for command in ["samples 64", "percents 64"] {
        assert_eq!(list(&mut monitor, command).0, NVML_ERROR_NOT_FOUND, "{command}: nothing has run");
    }
    for user in &mut users {
        node.during(|| assert_eq!([user.ask("launch 1 1000"), user.ask("sync")], ["launched", "synced"]));
    }
    let mut bare = started(node.tenant("bare", "nvml").without_hook());
    for command in ["samples 64", "percents 64"] {
        assert_eq!(list(&mut monitor, command), (NVML_SUCCESS, 1, vec![users[0].pid()]), "{command}");
        assert_eq!(list(&mut bare, command).2, sorted(&[&users[0], &users[1]]), "{command}");
    }
}

#[test]
fn every_function_of_the_table_is_reached_through_the_hook_in_every_way() {
    let _lock = shared();
    let node = node();
    for way in ["handle", "default"] {
        let mut hooked = started(node.tenant("own", "nvml").arguments(way));
        let mut bare = started(node.tenant("bare", "nvml").arguments(way).without_hook());
        for symbol in NVML_SYMBOLS {
            let question = format!("where {}", symbol.to_string_lossy());
            assert_eq!(hooked.ask(&question), "libsluice.so", "{way}: {question}");
            assert_eq!(bare.ask(&question), "libnvidia-ml.so.1", "{way}: {question}");
        }
        // All other functions are the library's.
        for name in
            ["nvmlInit_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetUtilizationRates", "nvmlNoSuchFunction"]
        {
            let question = format!("where {name}");
            assert_eq!(hooked.ask(&question), bare.ask(&question), "{way}");
        }
        // No function of the library has a version of its own.
        let question = "version nvmlDeviceGetMemoryInfo";
        assert_eq!(hooked.ask(question), bare.ask(question));
        let [total, ..] = numbers::<3>(&hooked.ask("memory"));
        assert_eq!(total, LIMIT, "{way}");
    }
    let linked =
        node.tenant("own", "nvml_linked").linked_with(&artifacts::built().driver.join("libnvidia-ml.so.1"));
    let lines = linked.opening_the_driver_late().start().finish().expect_success().lines;
    assert_eq!(lines, [format!("{LIMIT} {LIMIT} 0 0")]);
}

#[test]
fn functions_of_a_second_library_are_its_own() {
    let _lock = shared();
    let node = node();
    let second = node.path().join("second");
    fs::create_dir(&second).expect("a folder");
    let copy = second.join("libnvidia-ml.so.1");
    fs::copy(&artifacts::built().simulator, &copy).expect("a copy of the library");
    let mut monitor = started(node.tenant("own", "nvml"));
    assert_eq!(numbers::<3>(&monitor.ask("memory"))[0], LIMIT);
    assert_eq!(
        monitor.ask(&format!("second {}", copy.display())),
        node.ledger().gpu.memory_total.to_string()
    );
    assert_eq!(numbers::<3>(&monitor.ask("memory"))[0], LIMIT);
}

#[test]
fn without_the_library_there_is_no_function() {
    let _lock = shared();
    let node = node();
    let tenant = |way| node.tenant("own", "nvml").arguments(way).arguments("libnvidia-ml.so.none");
    for way in ["default", "handle"] {
        let hooked = tenant(way).opening_the_driver_late().start().finish().expect_success();
        let bare = tenant(way).opening_the_driver_late().without_hook().start().finish().expect_success();
        assert_eq!(hooked.lines, bare.lines, "{way}");
        assert_eq!(hooked.lines, ["no library: no function"], "{way}");
    }
}

#[test]
fn process_that_uses_nvml_and_then_cuda_has_one_account() {
    let _lock = shared();
    let node = node();
    let mut both = monitor(&node, "own");
    let [_, before, _] = numbers(&both.ask("memory"));
    assert_eq!(both.ask(&format!("allocate {}", 1_000 * MIB)), "allocated");
    let [total, after, used] = numbers(&both.ask("memory"));
    assert_eq!((total, after + used), (LIMIT, LIMIT));
    assert!(before - after >= 1_000 * MIB, "{before} free, then {after}");
    assert_eq!(both.ask(&format!("allocate {}", 300 * MIB)), "refused 2");
    assert_eq!(node.metric("sluice_processes", "own"), 1.0);
    // NVML works in the child of a process that uses CUDA.
    assert_eq!(both.ask("fork"), format!("{LIMIT} {after} {used}"));
    assert_eq!(both.ask(&format!("allocate {}", 100 * MIB)), "allocated");
}

#[test]
fn child_of_a_process_that_uses_nvml_sees_the_limit() {
    let _lock = shared();
    let node = node();
    let mut monitor = monitor(&node, "own");
    let before = monitor.ask("memory");
    assert_eq!(monitor.ask("fork"), before);
    assert_eq!(monitor.ask("memory"), before);
}

#[test]
fn without_a_manager_the_last_limit_and_no_other_process_is_shown() {
    let _lock = shared();
    let mut node = node();
    let _users = [user(&node, "own", MIB), user(&node, "other", MIB)];
    let mut knows = monitor(&node, "own");
    assert_eq!(numbers::<3>(&knows.ask("memory"))[0], LIMIT);
    let mut uses = monitor(&node, "own");
    assert_eq!(uses.ask(&format!("allocate {MIB}")), "allocated");
    node.kill_manager();
    let mut late = monitor(&node, "own");
    assert_eq!(numbers(&knows.ask("memory")), [LIMIT, LIMIT, 0]);
    // The limit was never known here, as for cuMemGetInfo.
    assert_eq!(numbers::<3>(&late.ask("memory"))[0], node.ledger().gpu.memory_total);
    let lists = "list nvmlDeviceGetComputeRunningProcesses_v3 64";
    assert_eq!(list(&mut late, lists), (NVML_SUCCESS, 0, vec![]));
    let own = vec![uses.pid()];
    assert_eq!(list(&mut uses, lists), (NVML_SUCCESS, 1, own));
    node.start_manager();
    eventually("the limit", || (numbers::<3>(&late.ask("memory"))[0] == LIMIT).then_some(()));
}

#[test]
fn without_a_limit_and_without_the_hook_the_answers_are_the_drivers() {
    let _lock = shared();
    let node = Node::start(&format!("2\nfree 0.5 1.0 {}\nother 0.5 1.0 8589934592\n", 1_u64 << 40));
    let _other = user(&node, "other", MIB);
    let mut bare = started(node.tenant("bare", "nvml").without_hook());
    let mut free = monitor(&node, "free");
    let mut disabled = started(node.tenant("free", "nvml").environment("SLUICE_DISABLE", "1"));
    for command in ["memory", "memory2"] {
        let driver = bare.ask(command);
        assert_eq!(free.ask(command), driver);
        assert_eq!(disabled.ask(command), driver);
    }
    let lists = "list nvmlDeviceGetComputeRunningProcesses_v3 64";
    assert_eq!(list(&mut free, lists), (NVML_SUCCESS, 0, vec![]));
    assert_eq!(list(&mut disabled, lists), list(&mut bare, lists));
}

/// NVML numbers the GPUs of the machine, whatever CUDA_VISIBLE_DEVICES is.
#[test]
fn each_gpu_has_the_limit_of_its_own_manager() {
    let _lock = shared();
    let uuid = |digit: u32| format!("00000000-0000-4000-8000-00000000000{digit}");
    let node = |digit: u32| {
        let resources = format!("1\nown 0.5 1.0 {}\n", u64::from(digit) * 100 * MIB);
        Node::with(&resources).simulator_arguments(&format!("--uuid GPU-{}", uuid(digit))).start()
    };
    // The third GPU has no manager.
    let nodes = [node(1), node(2), node(3)];
    let sockets = nodes[0].path().join("sockets");
    fs::create_dir(&sockets).expect("a folder");
    for (node, digit) in nodes.iter().zip([1, 2]) {
        symlink(node.socket(), sockets.join(format!("GPU-{}.sock", uuid(digit)))).expect("a link");
    }
    let gpus = [2, 0, 1].map(|at: usize| nodes[at].simulator().display().to_string()).join(",");
    let options = nodes[0].tenant("own", "nvml").without_environment("SLUICE_SOCKET");
    let mut monitor =
        started(options.environment("SLUICE_SIM_SOCKET", gpus).environment("SLUICE_SOCKET_DIR", &sockets));
    assert_eq!(monitor.ask("devices"), "3");
    let mut total = |device| {
        monitor.ask(&format!("device {device}"));
        numbers::<3>(&monitor.ask("memory"))[0]
    };
    assert_eq!([total(1), total(2)], [100 * MIB, 200 * MIB]);
    assert_eq!(total(0), nodes[2].ledger().gpu.memory_total);
}

#[test]
fn monitor_beside_a_manager_that_hangs_is_answered_and_sees_the_processes_later() {
    let _lock = shared();
    let node = node();
    let user = user(&node, "own", MIB);
    let mut monitor = monitor(&node, "own");
    let lists = "list nvmlDeviceGetComputeRunningProcesses_v3 64";
    let (memory, processes) = (monitor.ask("memory"), list(&mut monitor, lists));
    assert_eq!(processes, (NVML_SUCCESS, 1, vec![user.pid()]));
    node.stop_manager();
    assert_eq!(numbers::<3>(&monitor.ask("memory"))[0], LIMIT);
    assert_eq!(list(&mut monitor, lists), (NVML_SUCCESS, 0, vec![]));
    node.resume_manager();
    eventually("the list", || (list(&mut monitor, lists) == processes).then_some(()));
    assert_eq!(monitor.ask("memory"), memory);
}
