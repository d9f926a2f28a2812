//! The watcher with a fake driver. No test depends on time: intervals are a millisecond, and each test waits for the
//! expected event.

use super::super::driver::{Condition, DriverEvent};
use super::super::fake::{FakeDriver, gpu};
use super::super::health::Fault;
use super::*;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

fn settings() -> Settings {
    Settings { slots_per_gpu: 3, scan_every: Duration::from_millis(1), ..Settings::default() }
}

async fn watching(gpus: &Arc<FakeDriver>) -> (GpuWatch, CancellationToken) {
    let stop = CancellationToken::new();
    let watched = watch(gpus.clone(), settings(), stop.clone(), |_| {}).await.unwrap();
    (watched, stop)
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.unwrap()
}

#[tokio::test]
async fn inventory_is_available_at_once_and_follows_loss_and_return() {
    let gpus = Arc::new(FakeDriver::healthy(2));
    let (mut watched, stop) = watching(&gpus).await;
    assert_eq!(watched.inventory.borrow().device_slots(), 6);
    gpus.lose(1);
    let lost = soon(watched.inventory.wait_for(|now| now.device_slots() == 3)).await.unwrap().clone();
    assert!(lost.gpu(&gpu(1).uuid).is_some_and(|gpu| gpu.unhealthy_reason.is_some()));
    gpus.set_condition(1, Condition::Good);
    soon(watched.inventory.wait_for(|now| now.device_slots() == 6)).await.unwrap();
    stop.cancel();
    assert!(soon(watched.inventory.changed()).await.is_err(), "nothing is published after the end");
}

#[tokio::test]
async fn watch_waits_for_an_absent_driver() {
    let gpus = Arc::new(FakeDriver::answering(Err(DriverUnavailable("not yet".into()))));
    let stop = CancellationToken::new();
    let mut watching = Box::pin(watch(gpus.clone(), settings(), stop.clone(), |_| {}));
    assert!(futures::poll!(&mut watching).is_pending());
    gpus.set_answer(Ok(vec![ScannedGpu::Known(gpu(0), Condition::Good)]));
    assert_eq!(soon(watching).await.unwrap().inventory.borrow().gpus.len(), 1);
    stop.cancel();
    gpus.set_answer(Err(DriverUnavailable("never".into())));
    assert!(soon(watch(gpus, settings(), stop, |_| {})).await.is_none(), "stopped before an answer");
}

#[tokio::test]
async fn application_xids_do_not_change_the_inventory() {
    let gpus = Arc::new(FakeDriver::healthy(1));
    let (mut watched, _stop) = watching(&gpus).await;
    watched.inventory.mark_unchanged();
    let mut events = watched.events.subscribe();
    for code in [13, 31, 43] {
        gpus.report_xid(0, code);
        assert!(
            matches!(soon(events.recv()).await.unwrap(), GpuEvent::Xid { code: reported, .. } if reported == code)
        );
    }
    assert!(!watched.inventory.has_changed().unwrap());
}

/// A driver whose second scan blocks until the test releases it or has failed.
struct Hanging {
    scans: AtomicUsize,
    release: Mutex<Receiver<()>>,
}

impl GpuDriver for Hanging {
    fn inventory(&self) -> Result<Vec<ScannedGpu>, DriverUnavailable> {
        if self.scans.fetch_add(1, Ordering::Relaxed) == 1 {
            let _ = self.release.lock().unwrap().recv();
        }
        Ok(vec![ScannedGpu::Known(gpu(0), Condition::Good)])
    }

    fn listen(&self, _hear: &mut dyn FnMut(DriverEvent) -> ControlFlow<()>) -> Result<(), DriverUnavailable> {
        Err(DriverUnavailable("it has no events".into()))
    }
}

#[tokio::test]
async fn hanging_driver_counts_as_unavailable_and_is_called_once() {
    let (let_go, release) = channel();
    let gpus = Arc::new(Hanging { scans: AtomicUsize::new(0), release: Mutex::new(release) });
    let settings = Settings { answer_timeout: Duration::from_millis(10), ..settings() };
    let stop = CancellationToken::new();
    let mut watched = watch(gpus.clone(), settings, stop.clone(), |_| {}).await.unwrap();
    let hung = soon(watched.inventory.wait_for(|now| now.device_slots() == 0)).await.unwrap().clone();
    assert_eq!(
        hung.gpus[0].unhealthy_reason.as_deref(),
        Some("the NVIDIA driver does not answer: no answer for 10ms")
    );
    assert_eq!(gpus.scans.load(Ordering::Relaxed), 2);
    assert!(!*watched.listens.borrow());
    let_go.send(()).unwrap();
    soon(watched.inventory.wait_for(|now| now.device_slots() == 3)).await.unwrap();
    stop.cancel();
}

#[tokio::test]
async fn panicking_scan_is_a_fault_and_later_scans_go_on() {
    struct Panicking(AtomicUsize);
    impl GpuDriver for Panicking {
        fn inventory(&self) -> Result<Vec<ScannedGpu>, DriverUnavailable> {
            assert_ne!(self.0.fetch_add(1, Ordering::Relaxed), 1, "the second scan");
            Ok(vec![ScannedGpu::Known(gpu(0), Condition::Good)])
        }

        fn listen(
            &self,
            _hear: &mut dyn FnMut(DriverEvent) -> ControlFlow<()>,
        ) -> Result<(), DriverUnavailable> {
            Err(DriverUnavailable("it has no events".into()))
        }
    }
    let stop = CancellationToken::new();
    let mut watched =
        watch(Arc::new(Panicking(AtomicUsize::new(0))), settings(), stop.clone(), |_| {}).await.unwrap();
    let mut events = watched.events.subscribe();
    let event = soon(events.recv()).await;
    assert!(
        matches!(event, Ok(GpuEvent::Unhealthy { reason: Fault::DriverUnavailable(why), .. }) if why.contains("panic"))
    );
    soon(watched.inventory.wait_for(|now| now.device_slots() == 3)).await.unwrap();
    stop.cancel();
}

/// A GPU that was unhealthy once, beside one that reports Xids without end.
struct Noisy {
    scans: AtomicUsize,
    code: u64,
}

impl GpuDriver for Noisy {
    fn inventory(&self) -> Result<Vec<ScannedGpu>, DriverUnavailable> {
        let is_first = self.scans.fetch_add(1, Ordering::Relaxed) == 0;
        let bad = Condition::Bad(Fault::DriverUnavailable("faulty".into()));
        Ok(vec![ScannedGpu::Known(gpu(0), if is_first { bad } else { Condition::Good })])
    }

    fn listen(
        &self,
        on_event: &mut dyn FnMut(DriverEvent) -> ControlFlow<()>,
    ) -> Result<(), DriverUnavailable> {
        while on_event(DriverEvent::Xid { uuid: Some(gpu(1).uuid), code: self.code }).is_continue() {
            std::thread::yield_now();
        }
        Ok(())
    }
}

#[tokio::test]
async fn gpu_recovers_during_a_flood_of_xids() {
    for code in [13, 79] {
        let gpus = Arc::new(Noisy { scans: AtomicUsize::new(0), code });
        let stop = CancellationToken::new();
        let mut watched = watch(gpus, settings(), stop.clone(), |_| {}).await.unwrap();
        soon(watched.inventory.wait_for(|now| now.device_slots() == 3)).await.unwrap();
        stop.cancel();
    }
}
