//! Kubelet's list of who holds seats.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use sluice_node_agent::plugin::pod_resources::{Holder, PodResourcesError, PodResourcesReader};
use sluice_proto::podresources::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use sluice_proto::podresources::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices, ContainerResources,
    GetPodResourcesRequest, GetPodResourcesResponse, ListPodResourcesRequest, ListPodResourcesResponse,
    PodResources,
};
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// A kubelet with these pods, that answers as 1.34 does.
struct Lister(Vec<PodResources>);

#[tonic::async_trait]
impl PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        Ok(Response::new(ListPodResourcesResponse { pod_resources: self.0.clone() }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn get(
        &self,
        request: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        let GetPodResourcesRequest { pod_name, pod_namespace } = request.into_inner();
        if pod_name == "forbidden" {
            return Err(Status::unknown("PodResources API Get method disabled"));
        }
        let found = self.0.iter().find(|pod| pod.name == pod_name && pod.namespace == pod_namespace);
        let absent = || Status::unknown(format!("pod {pod_name} in namespace {pod_namespace} not found"));
        Ok(Response::new(GetPodResourcesResponse { pod_resources: Some(found.cloned().ok_or_else(absent)?) }))
    }
}

fn container(name: &str, devices: &[(&str, &[&str])]) -> ContainerResources {
    let devices = devices.iter().map(|(resource, ids)| ContainerDevices {
        resource_name: (*resource).to_owned(),
        device_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        topology: None,
    });
    ContainerResources { name: name.to_owned(), devices: devices.collect(), ..ContainerResources::default() }
}

fn pod(namespace: &str, name: &str, containers: Vec<ContainerResources>) -> PodResources {
    PodResources { name: name.to_owned(), namespace: namespace.to_owned(), containers }
}

fn holder(namespace: &str, pod: &str, container: &str, seats: &[&str]) -> Holder {
    let seats = seats.iter().map(|seat| (*seat).to_owned()).collect();
    Holder { namespace: namespace.into(), pod: pod.into(), container: container.into(), seats }
}

/// Serves on a socket in the folder until the test's end.
fn serve(folder: &Path, pods: Vec<PodResources>) -> PathBuf {
    let socket = folder.join("kubelet.sock");
    let connections = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
    let lister = PodResourcesListerServer::new(Lister(pods));
    tokio::spawn(async move { Server::builder().serve_with_incoming(lister, connections).await });
    socket
}

fn pods() -> Vec<PodResources> {
    vec![
        pod(
            "ml",
            "train",
            vec![
                container(
                    "main",
                    &[("sluice.dev/gpu", &["sluice-seat-4"]), ("sluice.dev/gpu", &["sluice-seat-2"])],
                ),
                container("logs", &[]),
            ],
        ),
        pod("ml", "other", vec![container("main", &[("nvidia.com/gpu", &["GPU-0"])])]),
        pod(
            "a",
            "serve",
            vec![container("main", &[("sluice.dev/gpu", &["sluice-seat-0"]), ("example.com/x", &["x"])])],
        ),
    ]
}

#[tokio::test]
async fn it_names_the_containers_that_hold_seats_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let reader = PodResourcesReader::new(serve(folder.path(), pods()), "sluice.dev/gpu");
    let train = holder("ml", "train", "main", &["sluice-seat-2", "sluice-seat-4"]);
    let all = support::soon("the list", reader.holders()).await.unwrap();
    assert_eq!(all, [holder("a", "serve", "main", &["sluice-seat-0"]), train.clone()]);
    assert_eq!(support::soon("a pod", reader.holders_of("ml", "train")).await.unwrap(), [train]);
    assert_eq!(reader.holders_of("ml", "other").await.unwrap(), []);
    assert_eq!(reader.holders_of("a", "train").await.unwrap(), [], "a pod that kubelet does not know");
}

#[tokio::test]
async fn a_node_full_of_pods_is_listed_whole() {
    let folder = tempfile::tempdir().unwrap();
    let long = "x".repeat(1000);
    let many = (0..6000).map(|n| {
        let seat = format!("sluice-seat-{n}");
        pod("ml", &format!("{n:04}{long}"), vec![container("main", &[("sluice.dev/gpu", &[seat.as_str()])])])
    });
    let reader = PodResourcesReader::new(serve(folder.path(), many.collect()), "sluice.dev/gpu");
    assert_eq!(support::soon("the list", reader.holders()).await.unwrap().len(), 6000);
}

#[tokio::test]
async fn it_says_who_does_not_answer_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let absent = PodResourcesReader::new(folder.path().join("none.sock"), "sluice.dev/gpu");
    let error = absent.holders().await.unwrap_err();
    assert!(matches!(error, PodResourcesError::Connect { .. }), "{error}");
    assert!(error.to_string().contains("none.sock") && error.to_string().contains("No such file"), "{error}");
    let reader = PodResourcesReader::new(serve(folder.path(), pods()), "sluice.dev/gpu");
    let error = reader.holders_of("ml", "forbidden").await.unwrap_err().to_string();
    assert!(error.ends_with("refuses Get: PodResources API Get method disabled"), "{error}");
}
