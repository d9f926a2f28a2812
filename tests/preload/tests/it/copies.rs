//! Copies of a latency-critical service beside a process that copies or allocates: a kernel makes them, with the same results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use sluice_preload_tests::recording_manager::{RecordingManager, Understands};
use sluice_preload_tests::{Node, Tenant, exclusive, shared};
use sluice_sim::client::{Gpu, Stream, StreamCommand};
use sluice_sim::engine::{CopyEngine, StreamKind, Work};

const REQUESTS: usize = 100;
/// Windows of so many requests in which the neighbour has to be noticed.
const PATIENCE: usize = 20;
/// A copy of the neighbour, and how many it has in flight in each direction.
const COPY_BYTES: u64 = 256 << 20;
const IN_FLIGHT: usize = 4;
/// What the program copies in a captured graph.
const GRAPH_BYTES: u64 = 300_000;
const ALLOCATED_BYTES: u64 = 512 << 20;

/// A process that keeps a copy engine busy and has no kernels, by the simulator's own client: copies without effect, which cost this machine
/// nothing.
struct Neighbour {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Neighbour {
    fn copies(node: &Node) -> Self {
        let gpu = Arc::new(Gpu::connect(node.simulator(), "neighbour").expect("the simulated GPU"));
        let context = gpu.open_context(None).expect("a context");
        let directions = [CopyEngine::ToDevice, CopyEngine::ToHost];
        let streams = directions.map(|engine| {
            (engine, Stream::open(&gpu, context, StreamKind::NonBlocking, 0).expect("a stream"), Vec::new())
        });
        let mut streams = Vec::from(streams);
        Self::start(move || {
            for (engine, stream, marks) in &mut streams {
                let copy = StreamCommand::Work(Work::Copy { engine: *engine, bytes: COPY_BYTES });
                marks.retain(|mark| !gpu.is_done(*mark));
                while marks.len() < IN_FLIGHT {
                    marks.push(stream.submit(copy, None).expect("a copy"));
                }
            }
        })
    }

    fn allocations(node: &Node) -> Self {
        let gpu = Gpu::connect(node.simulator(), "neighbour").expect("the simulated GPU");
        Self::start(move || {
            gpu.allocate(ALLOCATED_BYTES).expect("memory");
            gpu.free(ALLOCATED_BYTES).expect("the end of the memory");
        })
    }

    /// Calls `act` each 0.2 ms until this is dropped.
    fn start(mut act: impl FnMut() + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while !over.load(Relaxed) {
                act();
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

struct CopyBed {
    node: Node,
    manager: RecordingManager,
}

impl CopyBed {
    /// A node whose manager reports one contender.
    fn new() -> Self {
        let node =
            Node::with("2\nlc 0.5 1.0 8589934592\nother 0.5 1.0 8589934592\n").without_manager().start();
        let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
        manager.set_contenders(true, 1);
        Self { node, manager }
    }

    fn service(&self) -> Tenant {
        let mut service = self.node.tenant("lc", "copies").start();
        service.expect("ready");
        service
    }

    /// A service whose copies a kernel makes, because memory of others moves.
    fn by_kernel(&self) -> Tenant {
        let mut service = self.service();
        self.manager.set_memory_moves(true);
        assert_eq!(service.ask("until-kernel"), "by kernel");
        service
    }
}

/// The numbers of an answer, between words.
fn numbers(answer: &str) -> Vec<u64> {
    answer.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Median time of requests on the GPU in µs, and the part of their copies that a kernel made.
fn requests(service: &mut Tenant) -> (f64, f64) {
    let answer = service.ask(&format!("requests {REQUESTS}"));
    let [median, made] = numbers(&answer)[..] else { panic!("{answer}") };
    (median as f64, made as f64 / (2 * REQUESTS) as f64)
}

/// A service beside a neighbour without kernels, compared with the same service alone.
fn service_is_as_fast_as_alone(start: fn(&Node) -> Neighbour) {
    // The hook compares times of requests on the real clock.
    let _lock = exclusive();
    let bed = CopyBed::new();
    let mut service = bed.service();
    // Until the tests of hold kernels and copies are over.
    for _ in 0..2 {
        requests(&mut service);
    }
    let (alone, made) = requests(&mut service);
    assert!(made < 0.1, "alone a kernel made {made} of the copies");
    let neighbour = start(&bed.node);
    // Without hold kernels the hook learns nothing about requests.
    let mut by_engine = bed.node.tenant("lc", "copies").environment("SLUICE_HINTS", "off").start();
    by_engine.expect("ready");
    // On a busy machine the neighbour may not run for a while.
    let mut disturbed = (0..PATIENCE).map(|_| requests(&mut by_engine));
    let is_disturbed = |(median, made): (f64, f64)| made == 0.0 && median > 1.2 * alone;
    assert!(disturbed.any(is_disturbed), "by copy engine it is as fast as alone, {alone} µs");
    by_engine.finish().expect_success();
    assert_eq!(service.ask("until-kernel"), "by kernel");
    let (beside, made) = requests(&mut service);
    eprintln!("alone {alone} µs, beside the neighbour {beside} µs, {made} of the copies by a kernel");
    assert!(made > 0.9, "a kernel made {made} of the copies");
    assert!(beside <= 1.15 * alone, "{beside} µs, alone {alone} µs");
    drop(neighbour);
    service.finish().expect_success();
}

#[test]
fn service_beside_copies_is_as_fast_as_alone() {
    service_is_as_fast_as_alone(Neighbour::copies);
}

#[test]
fn service_beside_allocations_is_as_fast_as_alone() {
    service_is_as_fast_as_alone(Neighbour::allocations);
}

#[test]
fn kernel_makes_the_copies_at_once_while_memory_of_others_moves() {
    // Other tests' load may not make the requests slow, or the hook learns from that.
    let _lock = exclusive();
    let bed = CopyBed::new();
    let mut service = bed.service();
    // Until the tests of hold kernels and copies are over.
    for _ in 0..2 {
        requests(&mut service);
    }
    let mut made = |moves: bool| {
        bed.manager.set_memory_moves(moves);
        requests(&mut service).1
    };
    let (before, during, after) = (made(false), made(true), made(false));
    assert_eq!(during, 1.0, "copies by a kernel during the moves");
    assert!(
        before < 0.1 && after < 0.1,
        "by a kernel: {before} of the copies before and {after} after the moves"
    );
    service.finish().expect_success();
}

#[test]
fn copies_of_any_size_and_alignment_have_the_same_result() {
    let _lock = shared();
    let bed = CopyBed::new();
    let mut service = bed.by_kernel();
    let answer = service.ask("random 200 1");
    let [made, _] = numbers(&answer)[..] else { panic!("{answer}") };
    assert!(made > 200, "{answer}");
    service.finish().expect_success();
}

#[test]
fn captured_graph_contains_the_copies_of_the_program() {
    let _lock = shared();
    let bed = CopyBed::new();
    let mut service = bed.by_kernel();
    let before = bed.node.row(&service);
    // The three commands that the program captured.
    assert_eq!(service.ask("graph 20"), "made 0 nodes 3");
    let after = bed.node.row(&service);
    let by_engine_ns = after.copy_ns - before.copy_ns;
    assert_eq!(by_engine_ns, 40 * CopyEngine::ToDevice.copy_ns(GRAPH_BYTES), "two copies of each launch");
    assert_eq!(service.ask("until-kernel"), "by kernel");
    service.finish().expect_success();
}

#[test]
fn no_kernel_reads_host_memory_that_is_not_registered_any_more() {
    let _lock = shared();
    let bed = CopyBed::new();
    let mut service = bed.by_kernel();
    let answer = service.ask("unregistered");
    let [registered, unregistered] = numbers(&answer)[..] else { panic!("{answer}") };
    assert!(registered > 0 && unregistered == 0, "{answer}");
    service.finish().expect_success();
}

#[test]
fn no_kernel_makes_a_copy_for_which_a_kernel_on_another_stream_may_wait() {
    let _lock = shared();
    let bed = CopyBed::new();
    let mut service = bed.by_kernel();
    assert_eq!(service.ask("beside 20"), "made 0");
    assert_eq!(service.ask("until-kernel"), "by kernel");
    service.finish().expect_success();
}

#[test]
fn copy_past_the_mapped_part_of_reserved_addresses_gets_the_answer_of_the_driver() {
    let _lock = shared();
    let bed = CopyBed::new();
    let mut service = bed.by_kernel();
    assert_eq!(service.ask("mapped"), "inside 20 past 0");
    service.finish().expect_success();
}

#[test]
fn no_kernel_writes_to_memory_that_the_gpu_may_only_read() {
    let _lock = shared();
    let bed = CopyBed::new();
    let mut service = bed.by_kernel();
    assert_eq!(service.ask("read-only"), "read 1 written 0");
    service.finish().expect_success();
}

#[test]
fn copies_keep_the_order_of_their_stream() {
    let _lock = shared();
    let bed = CopyBed::new();
    let mut service = bed.by_kernel();
    let answer = service.ask("streams");
    assert!(numbers(&answer)[0] > 80, "{answer}");
    service.finish().expect_success();
}
