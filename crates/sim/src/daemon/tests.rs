//! A daemon on a thread and clients in the same process.

use super::*;
use crate::client::{self, Gpu, Stream, StreamCommand};
use crate::engine::{StreamKind, Work};

fn daemon() -> (tempfile::TempDir, Handle) {
    let dir = tempfile::tempdir().unwrap();
    let handle = spawn_thread(DaemonConfig::at(dir.path().join("gpu"))).unwrap();
    (dir, handle)
}

#[test]
fn a_process_runs_kernels_and_the_ledger_tells_of_it_after_its_end() {
    let (_dir, handle) = daemon();
    let gpu = Arc::new(Gpu::connect(handle.socket(), "me").unwrap());
    let group = gpu.open_context().unwrap();
    let stream = Stream::open(&gpu, group, StreamKind::Blocking, 0).unwrap();
    let name = gpu.name("spin").unwrap();
    gpu.allocate(1_000).unwrap();
    let effects = Arc::new(std::sync::Mutex::new(Vec::new()));
    for i in 0..10 {
        let seen = effects.clone();
        let work = Work::Kernel { ns: 100_000, sms: 132, name };
        let effect = Box::new(move || seen.lock().unwrap().push(i));
        stream.submit(StreamCommand::Work(work), Some(effect)).unwrap();
    }
    gpu.wait_for(stream.mark()).unwrap();
    assert_eq!(*effects.lock().unwrap(), (0..10).collect::<Vec<_>>());
    let row = client::ledger(handle.socket()).unwrap().by_label("me").unwrap().clone();
    assert_eq!((row.kernels_submitted, row.kernels_completed, row.gpu_ns), (10, 10, 1_000_000));
    assert_eq!((row.memory_bytes, row.ended, row.kernels["spin"]), (1_000, false, 10));
    drop(stream);
    drop(Arc::try_unwrap(gpu).ok().unwrap());
    let ledger = client::ledger(handle.socket()).unwrap();
    let row = ledger.by_label("me").unwrap();
    assert_eq!((row.memory_bytes, row.memory_peak_bytes, row.ended), (0, 1_000, true));
    assert_eq!(ledger.gpu.memory_used, 0);
}
