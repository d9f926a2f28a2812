use sluice_proto::nri::{Container, ContainerAdjustment, PodSandbox};
use tokio::net::UnixListener;
use tokio::time::Instant;

use super::super::session::RuntimeName;
use super::*;

struct NoPlugin;

impl Plugin for NoPlugin {
    fn name(&self) -> &'static str {
        "none"
    }

    fn index(&self) -> &'static str {
        "50"
    }

    fn registered(&mut self, _runtime: RuntimeName, _pods: &[PodSandbox], _containers: &[Container]) {}

    async fn adjust(
        &mut self,
        _pod: &PodSandbox,
        _container: &Container,
        _within: Duration,
    ) -> Result<ContainerAdjustment, String> {
        Ok(ContainerAdjustment::default())
    }
}

/// Simulated time between the last two of these attempts.
async fn pause_before(attempt: usize, socket: &Path) -> Duration {
    let mut ends = Vec::new();
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let mut plugin = NoPlugin;
    let connects = keep_connected(socket, &mut plugin, |_| sender.send(Instant::now()).unwrap());
    let counts = async {
        while ends.len() < attempt {
            ends.push(received.recv().await.unwrap());
        }
    };
    tokio::select! { () = connects => {}, () = counts => {} }
    ends[attempt - 1] - ends[attempt - 2]
}

#[tokio::test(start_paused = true)]
async fn runtime_that_closes_each_connection_before_the_registration_is_tried_each_second() {
    let root = tempfile::tempdir().unwrap();
    let socket = root.path().join("nri.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let closes = async {
        loop {
            drop(listener.accept().await.unwrap());
        }
    };
    let pause = tokio::select! { pause = pause_before(20, &socket) => pause, () = closes => unreachable!() };
    assert_eq!(pause, LONGEST_DELAY);
}

#[tokio::test(start_paused = true)]
async fn node_without_the_socket_is_tried_every_ten_seconds() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(pause_before(20, &root.path().join("nri.sock")).await, Duration::from_secs(10));
}
