//! A node with an agent: fake GPUs, an API server, the control API of each manager. The managers' processes are idle.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::{Value, json};
use sluice_node_agent::metrics::http::Listeners;
use sluice_node_agent::wiring::{self, Environment};
use sluice_node_agent::{Arguments, Config};
use sluice_proto::control::{Client, SetClientsRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::api::{Api, Kind, NODE, Seen};
use super::manager::{Manager, Received};
use crate::fake_gpus::{self, FakeDriver};

/// The limit of each wait. It decides no outcome: it only ends a test that hangs.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The pause before a page is read again.
const BETWEEN_READS: Duration = Duration::from_millis(5);

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
}

/// Takes the place of `sluice`: an idle pod-manager, and a self-test in which everything is proven.
const SLUICE: &str = r#"#!/bin/sh
here=$(dirname "$0")
if [ "$3" = self-test ]; then
    echo "$@" >> "$here/tests"
    [ -p "$here/hold" ] && read -r line < "$here/hold"
    while [ $# -gt 1 ]; do
        case "$1" in --gpu-uuid) gpu=$2;; --write) file=$2;; esac
        shift
    done
    boot=$(cat /proc/sys/kernel/random/boot_id)
    proven='{"effect": "proven"}'
    about="{\"driver\": \"700.1\", \"gpu\": \"$gpu\", \"boot\": \"$boot\"}"
    echo "{\"about\": $about, \"slices\": $proven, \"stops\": $proven, \"counts\": $proven}" > "$file"
    exit 0
fi
echo $$ >> "$here/pids"
echo "$@" >> "$here/arguments"
exec sleep 100000
"#;

pub struct Node {
    pub api: Api,
    pub gpus: Arc<FakeDriver>,
    pub managers: Vec<Manager>,
    root: tempfile::TempDir,
    port: AtomicU16,
    health_port: AtomicU16,
    state_port: AtomicU16,
}

pub struct Agent {
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Node {
    pub async fn with_gpus(count: u32) -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("state/control")).unwrap();
        fs::create_dir_all(path("plugins")).unwrap();
        fs::write(path("libsluice.so"), b"\x7fELF and so on").unwrap();
        fs::write(path("sluice"), SLUICE).unwrap();
        fs::set_permissions(path("sluice"), fs::Permissions::from_mode(0o755)).unwrap();
        let start = |index| {
            let gpu = uuid(index);
            Manager::start(&path(&format!("state/control/{gpu}.sock")), &gpu)
        };
        let managers = (0..count).map(start).collect();
        Self {
            api: Api::start().await,
            gpus: Arc::new(FakeDriver::healthy(count)),
            managers,
            root,
            port: AtomicU16::new(0),
            health_port: AtomicU16::new(0),
            state_port: AtomicU16::new(0),
        }
    }

    pub async fn start_agent(&self) -> Agent {
        self.start_agent_with("runtime").await
    }

    /// `injection`: `auto`, `nri` or `runtime`.
    pub async fn start_agent_with(&self, injection: &str) -> Agent {
        self.start_agent_with_flags(injection, &[]).await
    }

    /// With further flags.
    pub async fn start_agent_with_flags(&self, injection: &str, more: &[String]) -> Agent {
        let listen = async || tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listeners = Listeners { pages: listen().await, health: listen().await, state: listen().await };
        self.port.store(listeners.pages.local_addr().unwrap().port(), Ordering::SeqCst);
        self.health_port.store(listeners.health.local_addr().unwrap().port(), Ordering::SeqCst);
        self.state_port.store(listeners.state.local_addr().unwrap().port(), Ordering::SeqCst);
        let path = |name: &str| self.root.path().join(name).to_string_lossy().into_owned();
        let flags = [
            "agent".to_owned(),
            format!("--node={NODE}"),
            format!("--library={}", path("libsluice.so")),
            format!("--state-folder={}", path("state")),
            format!("--socket-folder={}", path("sockets")),
            format!("--plugin-folder={}", path("plugins")),
            format!("--nri-socket={}", path("nri.sock")),
            format!("--cdi-folder={}", path("cdi")),
            format!("--injection={injection}"),
        ];
        let flags = flags.iter().chain(more);
        let config = Config::read(&Program::parse_from(flags).arguments, |name| {
            (name == "NVIDIA_VISIBLE_DEVICES").then(|| "void".to_owned())
        })
        .unwrap();
        let environment = Environment {
            client: self.api.client.clone(),
            gpus: self.gpus.clone(),
            program: PathBuf::from(path("sluice")),
            listeners,
        };
        let stop = CancellationToken::new();
        Agent { task: tokio::spawn(wiring::serve(config, environment, stop.clone())), stop }
    }

    /// Process ids of all managers that were ever started, at least of those that [`Node::started`] has returned.
    pub fn pids(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.root.path().join("pids")).unwrap_or_default();
        text.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    /// The arguments of every manager that was started.
    pub fn arguments(&self) -> Vec<String> {
        let text = fs::read_to_string(self.root.path().join("arguments")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The arguments of every self-test that was started.
    pub fn tests(&self) -> Vec<String> {
        let text = fs::read_to_string(self.root.path().join("tests")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Blocks self-tests from now on, until the returned function is called.
    pub fn block_tests(&self) -> impl FnOnce() + use<> {
        let hold = self.root.path().join("hold");
        nix::unistd::mkfifo(&hold, nix::sys::stat::Mode::S_IRWXU).unwrap();
        move || {
            // Opening it waits for a reader. A self-test that starts later finds no pipe and does not wait.
            let mut writer = fs::File::options().write(true).open(&hold).unwrap();
            fs::remove_file(&hold).unwrap();
            writer.write_all(b"\n").unwrap();
        }
    }

    /// Waits until this many managers were started. Returns their arguments.
    pub async fn started(&self, count: usize) -> Vec<String> {
        soon("managers", async {
            loop {
                match self.arguments() {
                    all if all.len() == count => break all,
                    _ => tokio::task::yield_now().await,
                }
            }
        })
        .await
    }

    /// Kubelet's folder of device plugins.
    pub fn plugin_folder(&self) -> PathBuf {
        self.root.path().join("plugins")
    }

    /// Writes kubelet's checkpoint as kubelet does: these pods hold these slots.
    pub fn write_checkpoint(&self, held: &[(&str, &[u64])]) {
        let entry = |(pod, slots): &(&str, &[u64])| {
            let ids: Vec<String> = slots.iter().map(|slot| format!("sluice-seat-{slot}")).collect();
            json!({
                "PodUID": format!("uid-{pod}"), "ContainerName": "main", "ResourceName": "sluice.dev/gpu",
                "DeviceIDs": {"-1": ids}, "AllocResp": "",
            })
        };
        let entries: Vec<Value> = held.iter().map(entry).collect();
        let text = json!({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 0});
        let file = self.plugin_folder().join("kubelet_internal_checkpoint");
        fs::write(file.with_extension("new"), text.to_string()).unwrap();
        fs::rename(file.with_extension("new"), file).unwrap();
    }

    /// Kubelet's root folder, where DRA drivers register.
    pub fn kubelet_folder(&self) -> PathBuf {
        self.root.path().join("kubelet")
    }

    /// The CDI specification that the agent writes.
    pub fn library_specification(&self) -> Value {
        let file = self.root.path().join("cdi/sluice.dev-library.json");
        serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
    }

    /// Where the agent looks for the runtime.
    pub fn nri_socket(&self) -> PathBuf {
        self.root.path().join("nri.sock")
    }

    /// Writes a CDI specification with these devices.
    pub fn write_cdi(&self, devices: &[String]) {
        let devices: Vec<Value> = devices.iter().map(|name| json!({"name": name})).collect();
        let folder = self.root.path().join("cdi");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("gpu.json"), json!({"kind": "nvidia.com/gpu", "devices": devices}).to_string())
            .unwrap();
    }

    pub fn socket_folder(&self) -> PathBuf {
        self.root.path().join("sockets")
    }

    /// The control socket of the manager of this GPU.
    pub fn control_socket(&self, gpu: &str) -> PathBuf {
        self.root.path().join(format!("state/control/{gpu}.sock"))
    }

    pub fn library_folder(&self) -> PathBuf {
        self.root.path().join("state/lib")
    }

    pub async fn get(&self, page: &str) -> (u16, String) {
        get(self.port.load(Ordering::SeqCst), page).await
    }

    /// A page of the listener for probes.
    pub async fn probe(&self, page: &str) -> (u16, String) {
        get(self.health_port.load(Ordering::SeqCst), page).await
    }

    /// Opens connections to both listeners and sends half of a request on each.
    pub async fn half_open(&self, count: usize) -> Vec<tokio::net::TcpStream> {
        let mut streams = Vec::new();
        for port in [&self.port, &self.health_port] {
            for _ in 0..count {
                let address = ("127.0.0.1", port.load(Ordering::SeqCst));
                let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
                stream.write_all(b"GET /metrics HTTP/1.1\r\nHost:").await.unwrap();
                streams.push(stream);
            }
        }
        streams
    }

    /// Reads a page until it satisfies the condition. Returns its status and body.
    pub async fn page_with(
        &self,
        page: &str,
        what: &str,
        is_wanted: impl Fn(u16, &str) -> bool,
    ) -> (u16, String) {
        let port = self.port.load(Ordering::SeqCst);
        read_until(what, async || get(port, page).await, |(status, text)| is_wanted(*status, text)).await
    }

    /// Reads the metrics until they satisfy the condition.
    pub async fn metrics_with(&self, what: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        self.page_with("/metrics", what, |status, text| status == 200 && is_wanted(text)).await.1
    }

    /// Reads the state page until it satisfies the condition.
    pub async fn state_with(&self, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let port = self.state_port.load(Ordering::SeqCst);
        let read = async || serde_json::from_str(&get(port, "/state").await.1).unwrap();
        read_until(what, read, is_wanted).await
    }

    /// Waits until the agent knows that the manager of each GPU has accepted its clients.
    pub async fn managers_serve(&self) {
        let serves = |gpu: &Value| gpu["manager"]["state"] == "serving";
        let all_serve = |state: &Value| {
            let gpus = state["gpus"].as_array().unwrap();
            gpus.len() == self.managers.len() && gpus.iter().all(serves)
        };
        self.state_with("managers serve", all_serve).await;
    }
}

impl Agent {
    /// Why it has ended by itself, with all causes.
    pub async fn failure(self) -> String {
        format!("{:#}", soon("the agent fails", self.task).await.unwrap().unwrap_err())
    }

    pub async fn end(self) {
        self.stop.cancel();
        soon("the agent ends", self.task).await.unwrap().unwrap();
    }
}

pub fn uuid(index: u32) -> String {
    fake_gpus::gpu(index).uuid
}

/// A pod on the node, with annotations given without the prefix of Sluice's keys.
pub fn pod(name: &str, annotations: &[(&str, &str)]) -> Value {
    let annotations = annotations.iter().map(|(key, value)| (format!("sluice.dev/{key}"), json!(value)));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "ml", "uid": format!("uid-{name}"),
            "annotations": annotations.collect::<serde_json::Map<_, _>>(),
        },
        "spec": {"nodeName": NODE, "containers": [
            {"name": "main", "resources": {"limits": {"sluice.dev/gpu": "1"}}},
            {"name": "side"},
        ]},
        "status": {"phase": "Running", "containerStatuses": [
            {"name": "side", "containerID": "containerd://cafe", "image": "", "imageID": "", "ready": true, "restartCount": 0},
        ]},
    })
}

impl Node {
    /// Creates or replaces such a pod.
    pub fn put(&self, name: &str, annotations: &[(&str, &str)]) {
        self.api.put(Kind::Pods, pod(name, annotations));
    }
}

/// Waits for the future, [`LONGEST_WAIT`] at most.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONGEST_WAIT, future)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within {LONGEST_WAIT:?}"))
}

/// Reads a page until it satisfies the condition, and returns it. Panics with the last page.
async fn read_until<T: std::fmt::Debug>(
    what: &str,
    read: impl AsyncFn() -> T,
    is_wanted: impl Fn(&T) -> bool,
) -> T {
    let begin = Instant::now();
    loop {
        let page = read().await;
        if is_wanted(&page) {
            return page;
        }
        assert!(
            begin.elapsed() < LONGEST_WAIT,
            "{what}: not within {LONGEST_WAIT:?}; the last page: {page:#?}"
        );
        tokio::time::sleep(BETWEEN_READS).await;
    }
}

/// Waits until there are this many events of a reason, and returns them.
pub async fn of_reason(seen: &mut watch::Receiver<Seen>, reason: &str, count: usize) -> Vec<Value> {
    let of = |seen: &Seen| -> Vec<Value> {
        seen.events.iter().filter(|event| event["reason"] == reason).cloned().collect()
    };
    of(&soon(reason, seen.wait_for(|seen| of(seen).len() >= count)).await.unwrap())
}

/// Waits until the last set of clients satisfies the condition.
pub async fn last_set(
    received: &mut watch::Receiver<Received>,
    what: &str,
    is_wanted: impl Fn(&SetClientsRequest) -> bool,
) -> SetClientsRequest {
    let wanted = received.wait_for(|received| received.last().is_some_and(&is_wanted));
    let received = soon(what, wanted).await.unwrap();
    received.last().unwrap().clone()
}

pub fn names(clients: &[Client]) -> Vec<&str> {
    clients.iter().map(|client| client.pod.as_str()).collect()
}

/// Status and body of a page.
async fn get(port: u16, page: &str) -> (u16, String) {
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET {page} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon("an answer", stream.read_to_string(&mut answer)).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Whether a file exists.
pub fn is_there(path: &Path) -> bool {
    path.try_exists().unwrap()
}
