//! Many pods at once, an API server with every kind of failure, and two restarts: no share is given twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::cluster::{Cluster, GIB, SOON, assigned, names, node, pod};
use super::fake_api::{Api, Fault, NODES, PODS};

const PODS_IN_THE_BURST: usize = 200;
const AT_ONCE: usize = 16;
const NODE_NAMES: [&str; 16] =
    ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"];

/// A pod for the number: shares of all sizes, of one GPU and of several, and some whole GPUs.
fn pod_number(number: usize) -> Value {
    let name = format!("pod-{number}");
    match number % 8 {
        0 => pod(&name, &[("quota", "0.5")]),
        1 => pod(&name, &[("quota", "0.25"), ("memory", "30Gi")]),
        2 => pod(&name, &[("quota", "0.1"), ("memory", "50Gi")]),
        3 => pod(&name, &[("memory", "20Gi")]),
        4 if number.is_multiple_of(3) => pod(&name, &[("gpus", "3"), ("quota", "0.2"), ("memory", "5Gi")]),
        4 => pod(&name, &[("quota", "0.333")]),
        5 => pod(&name, &[("quota", "1")]),
        6 => pod(&name, &[("quota", "0.2")]),
        _ => pod(&name, &[("quota", if number.is_multiple_of(5) { "2" } else { "0.05" })]),
    }
}

/// Tries until the API server has the pod bound, as a kube-scheduler would.
async fn schedule(pod: Value, cluster: Arc<Mutex<Arc<Cluster>>>, api: Arc<Api>) {
    let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
    loop {
        let cluster = cluster.lock().await.clone();
        let answer = cluster.filter(&pod, &NODE_NAMES).await;
        if let Some(node) = names(&answer).first() {
            cluster.bind(&pod, node).await;
        }
        if assigned(&api, &name).is_some() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// What is assigned on each GPU by the API's objects: thousandths, bytes, pods, whole-GPU pods.
fn given(api: &Api) -> BTreeMap<String, (u64, u64, u32, u32)> {
    let mut given: BTreeMap<String, (u64, u64, u32, u32)> = BTreeMap::new();
    for pod in api.all(PODS) {
        let annotations = serde_json::from_value(pod["metadata"]["annotations"].clone()).unwrap();
        let request =
            sluice_placement::annotations::GpuRequest::from_annotations(&annotations).unwrap().unwrap();
        let demand = request.demand;
        let gpus = sluice_placement::annotations::assigned(&annotations).unwrap().unwrap_or_default();
        assert!(gpus.is_empty() || gpus.len() == demand.gpus as usize, "{pod}");
        for gpu in gpus {
            let node = pod["spec"]["nodeName"].as_str().unwrap();
            assert!(gpu.starts_with(&format!("GPU-{node}-")), "{gpu} on {node}");
            let sum = given.entry(gpu).or_default();
            sum.0 += u64::from(demand.share.ppm());
            sum.1 += demand.memory_on(80 * GIB);
            sum.2 += 1;
            sum.3 += u32::from(demand.is_whole());
        }
    }
    given
}

/// A failure for the number of the bind.
fn fault(number: usize) -> Fault {
    match number % 11 {
        1 => Fault::Refuse(500),
        3 => Fault::DoneButError,
        5 => Fault::Refuse(403),
        7 if number.is_multiple_of(3) => Fault::DoneButSilent,
        9 => Fault::Refuse(409),
        _ => Fault::None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_pods_with_failures_and_restarts_get_each_share_once() {
    let api = Api::new();
    for name in NODE_NAMES {
        api.put(NODES, node(name, 8));
    }
    let client = api.serve().await;
    let binds = Arc::new(AtomicUsize::new(0));
    let counter = binds.clone();
    *api.fault.lock().unwrap() = Box::new(move || fault(counter.fetch_add(1, Ordering::Relaxed)));

    let cluster = Arc::new(Mutex::new(Arc::new(Cluster::leading(client.clone()).await)));
    let mut burst = JoinSet::new();
    let mut waiting = (0..PODS_IN_THE_BURST).map(pod_number);
    let mut done = 0;
    let mut restarts = 0;
    loop {
        while burst.len() < AT_ONCE
            && let Some(pod) = waiting.next()
        {
            api.put(PODS, pod.clone());
            burst.spawn(schedule(pod, cluster.clone(), api.clone()));
        }
        let Ok(Some(one)) = tokio::time::timeout(SOON, burst.join_next()).await else { break };
        one.unwrap();
        done += 1;
        if done == PODS_IN_THE_BURST / 3 || done == PODS_IN_THE_BURST / 2 {
            // No call arrives while the new extender starts: the kube-scheduler has no extender then.
            let mut current = cluster.lock().await;
            current.kill().await;
            *current = Arc::new(Cluster::leading(client.clone()).await);
            restarts += 1;
        }
    }
    assert_eq!((done, restarts), (PODS_IN_THE_BURST, 2));
    let given = given(&api);
    for (gpu, (ppm, memory, pods, whole)) in &given {
        assert!(
            *ppm <= 1_000_000 && *memory <= 80 * GIB && (*whole == 0 || *pods == 1),
            "{gpu}: {ppm} {memory} {pods}"
        );
    }
    let cluster = cluster.lock().await.clone();
    cluster
        .until("all binds are seen", |extender| extender.state().index.counts() == (0, PODS_IN_THE_BURST))
        .await;
    let state = cluster.extender.state();
    let known = state.index.uses().flat_map(|(_, uses)| uses).filter(|one| one.pods > 0);
    let known: BTreeMap<String, (u64, u64, u32)> =
        known.map(|one| (one.gpu.to_string(), (one.ppm, one.memory_bytes, one.pods))).collect();
    let expected: BTreeMap<String, (u64, u64, u32)> =
        given.into_iter().map(|(gpu, (ppm, memory, pods, _))| (gpu, (ppm, memory, pods))).collect();
    assert_eq!(known, expected);
    assert!(binds.load(Ordering::Relaxed) > PODS_IN_THE_BURST, "no failure was injected");
}
