use std::collections::BTreeMap;

use sluice_proto::nri::ContainerState;

use super::*;
use crate::library::Library;
use crate::node::events::Reason;
use crate::nri::CdiFolders;
use crate::pods::{Assignments, Refusal};

/// The limit of each wait. It decides no outcome: it only ends a test that hangs.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
const CDI: &str = "kind: nvidia.com/gpu\ndevices: [{name: GPU-1}]\n";

struct Bed {
    plugin: TenantPlugin,
    pods: watch::Sender<Option<Arc<crate::pods::Pods>>>,
    assignments: watch::Sender<Option<Arc<Assignments>>>,
    events: tokio::sync::mpsc::Receiver<crate::node::events::PendingEvent>,
    root: tempfile::TempDir,
}

fn bed(injection: Injection) -> Bed {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("gpu.yaml"), CDI).unwrap();
    let source = root.path().join("libsluice.so");
    std::fs::write(&source, b"\x7fELF and more").unwrap();
    let library = Library::new(root.path().join("lib")).install(&source).unwrap();
    let (pods, known_pods) = watch::channel(None);
    let (assignments, known) = watch::channel(None);
    let (queue, events) = EventQueue::new();
    let plugin = TenantPlugin {
        injection,
        places: Places { socket: "/absent".into(), cdi: CdiFolders(vec![root.path().to_owned()]) },
        provision: Arc::new(Provision::of(&library, "/run/sluice")),
        library_folder: root.path().join("lib"),
        pods: known_pods,
        assignments: known,
        events: queue,
        registration: watch::channel(None).0,
        in_force: watch::channel(InForce::Nri("containerd v2.2.9".into(), None)).1,
        unsupported_reason: None,
    };
    Bed { plugin, pods, assignments, events, root }
}

fn annotations() -> BTreeMap<String, String> {
    [("sluice.dev/quota", "0.3"), ("sluice.dev/container", "main"), ("sluice.dev/assigned-gpu", "GPU-1")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

impl Bed {
    /// The API server reports the pod `u` with this GPU.
    fn report(&self, gpu: &str) {
        let view = PodView { uid: "u".into(), annotations: annotations(), ..PodView::default() };
        self.pods.send_replace(Some(Arc::new([("u".to_owned(), Arc::new(view))].into())));
        let gpus = [("u".to_owned(), vec![gpu.to_owned()])].into();
        self.assignments.send_replace(Some(Arc::new(Assignments { gpus, ..Assignments::default() })));
    }

    async fn adjust(&mut self, container: &str) -> Result<ContainerAdjustment, String> {
        let container = Container { name: container.into(), ..Container::default() };
        self.plugin.adjust(&sandbox(), &container, LONGEST_WAIT).await
    }
}

fn sandbox() -> PodSandbox {
    PodSandbox { id: "s".into(), uid: "u".into(), annotations: annotations(), ..PodSandbox::default() }
}

fn devices(adjustment: &ContainerAdjustment) -> Vec<&str> {
    adjustment.cdi_devices.iter().map(|device| device.name.as_str()).collect()
}

#[tokio::test]
async fn only_the_chosen_container_gets_the_assigned_gpu() {
    let mut bed = bed(Injection::Nri);
    bed.report("GPU-1");
    let main = bed.adjust("main").await.unwrap();
    assert_eq!(devices(&main), ["nvidia.com/gpu=GPU-1"]);
    assert_eq!(main.mounts.len(), 3);
    assert_eq!(bed.adjust("side").await.unwrap(), ContainerAdjustment::default());
}

#[tokio::test]
async fn pod_without_sluice_gets_nothing_although_the_api_server_is_silent() {
    let mut bed = bed(Injection::Nri);
    let container = Container { env: vec!["NVIDIA_VISIBLE_DEVICES=all".into()], ..Container::default() };
    let adjusted = bed.plugin.adjust(&PodSandbox::default(), &container, Duration::MAX).await;
    assert_eq!(adjusted, Ok(ContainerAdjustment::default()));
}

#[tokio::test]
async fn container_waits_for_its_pod_and_is_refused_at_the_bound() {
    let mut bed = bed(Injection::Nri);
    let container = Container { name: "main".into(), ..Container::default() };
    let why = bed.plugin.adjust(&sandbox(), &container, Duration::from_millis(1)).await.unwrap_err();
    assert!(why.contains("does not know the GPU of pod u") && why.contains("1ms"), "{why}");
    // The news arrives while the container waits.
    let (pods, assignments) = (bed.pods.clone(), bed.assignments.clone());
    let news = async {
        tokio::task::yield_now().await;
        let view = PodView { uid: "u".into(), annotations: annotations(), ..PodView::default() };
        pods.send_replace(Some(Arc::new([("u".to_owned(), Arc::new(view))].into())));
        let gpus = [("u".to_owned(), vec!["GPU-1".to_owned()])].into();
        assignments.send_replace(Some(Arc::new(Assignments { gpus, ..Assignments::default() })));
    };
    let (adjusted, ()) = tokio::join!(bed.adjust("main"), news);
    assert_eq!(devices(&adjusted.unwrap()), ["nvidia.com/gpu=GPU-1"]);
}

#[tokio::test]
async fn unknown_pod_is_left_to_nvidias_runtime_by_auto() {
    let mut bed = bed(Injection::Auto);
    let container = Container { name: "main".into(), ..Container::default() };
    let adjusted = bed.plugin.adjust(&sandbox(), &container, Duration::from_millis(1)).await;
    assert_eq!(adjusted, Ok(ContainerAdjustment::default()));
}

#[tokio::test(start_paused = true)]
async fn auto_neither_delays_nor_refuses_a_container_where_nri_is_not_in_force() {
    let mut bed = bed(Injection::Auto);
    bed.plugin.in_force = watch::channel(InForce::Runtime("no CDI specification".into())).1;
    let start = tokio::time::Instant::now();
    assert_eq!(bed.adjust("main").await, Ok(ContainerAdjustment::default()));
    assert_eq!(start.elapsed(), Duration::ZERO);
    let refused = [("u".to_owned(), Refusal::NotAssigned)].into();
    bed.assignments.send_replace(Some(Arc::new(Assignments { refused, ..Assignments::default() })));
    assert_eq!(bed.adjust("main").await, Ok(ContainerAdjustment::default()));
}

#[tokio::test(start_paused = true)]
async fn absence_of_nri_is_published_once() {
    let bed = bed(Injection::Auto);
    let mut registration = bed.plugin.registration.subscribe();
    let published = async {
        registration.changed().await.unwrap();
        let again = tokio::time::timeout(Duration::from_secs(60), registration.changed()).await;
        assert!(again.is_err(), "published again: {:?}", registration.borrow());
    };
    tokio::select! { () = serve_tenants(bed.plugin) => {}, () = published => {} }
}

#[tokio::test]
async fn refused_pod_gets_the_reason() {
    let mut bed = bed(Injection::Auto);
    let refused = [("u".to_owned(), Refusal::NotAssigned)].into();
    bed.assignments.send_replace(Some(Arc::new(Assignments { refused, ..Assignments::default() })));
    assert!(bed.adjust("main").await.unwrap_err().contains("it has to be scheduled by"));
}

#[tokio::test]
async fn gpu_without_a_cdi_device_is_refused_by_nri_and_left_to_the_runtime_by_auto() {
    let mut bed = bed(Injection::Nri);
    bed.report("GPU-2");
    assert!(bed.adjust("main").await.unwrap_err().contains("GPU-2"));
    bed.plugin.injection = Injection::Auto;
    let adjusted = bed.adjust("main").await.unwrap();
    assert_eq!((devices(&adjusted).len(), adjusted.env.len(), adjusted.mounts.len()), (0, 0, 3));
}

#[tokio::test]
async fn old_runtime_is_left_to_nvidias_runtime_by_auto_and_refused_by_nri() {
    let mut bed = bed(Injection::Auto);
    let registration = bed.plugin.registration.subscribe();
    bed.report("GPU-1");
    bed.plugin.registered("containerd v1.7.27".into(), &[], &[]);
    assert!(matches!(&*registration.borrow(), Some(Err(why)) if why.contains("1.7.27")));
    let adjusted = bed.adjust("main").await.unwrap();
    assert_eq!((devices(&adjusted).len(), adjusted.env.len()), (0, 0));
    bed.plugin.injection = Injection::Nri;
    assert!(bed.adjust("main").await.unwrap_err().contains("1.7.27"));
}

#[tokio::test]
async fn containers_that_were_created_without_the_plugin_are_reported() {
    let mut bed = bed(Injection::Nri);
    bed.report("GPU-1");
    let running = |name: &str, adjusted: &ContainerAdjustment| Container {
        name: name.into(),
        pod_sandbox_id: "s".into(),
        state: ContainerState::ContainerRunning.into(),
        mounts: adjusted.mounts.clone(),
        env: adjusted.env.iter().map(|one| format!("{}={}", one.key, one.value)).collect(),
        ..Container::default()
    };
    let complete = bed.adjust("main").await.unwrap();
    // A pod that no webhook has seen names no container.
    let mut unnamed = sandbox();
    unnamed.annotations.remove("sluice.dev/container");
    let view = PodView {
        uid: "u".into(),
        container: "main".into(),
        annotations: unnamed.annotations.clone(),
        ..PodView::default()
    };
    bed.pods.send_replace(Some(Arc::new([("u".to_owned(), Arc::new(view))].into())));
    bed.plugin.registered(
        "containerd v2.2.9".into(),
        &[unnamed],
        &[running("main", &ContainerAdjustment::default())],
    );
    assert!(bed.events.try_recv().unwrap().note.contains("nothing limits it"));
    bed.report("GPU-1");
    let without_gpu = ContainerAdjustment { env: Vec::new(), ..complete.clone() };
    let nothing = ContainerAdjustment::default();
    let containers = [running("main", &complete), running("side", &nothing)];
    bed.plugin.registered("containerd v2.2.9".into(), &[sandbox()], &containers);
    assert!(bed.events.try_recv().is_err());
    for (adjusted, word) in
        [(&without_gpu, "unless NVIDIA's runtime gave it one"), (&nothing, "nothing limits it")]
    {
        bed.plugin.registered("containerd v2.2.9".into(), &[sandbox()], &[running("main", adjusted)]);
        let event = bed.events.try_recv().unwrap();
        assert_eq!((event.about.uid.as_deref(), event.reason), (Some("u"), Reason::NotInjected));
        assert!(event.note.contains(word), "{}", event.note);
    }
    drop(bed.root);
}
