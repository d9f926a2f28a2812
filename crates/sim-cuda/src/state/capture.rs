//! Stream capture: work that is recorded into a graph instead of submitted, and the calls that a capture forbids.

use super::context::Context;
use super::graph::{Body, GraphNode};
use super::lock;
use super::stream::{Effect, Stream};
use crate::border::Status;
use sluice_driver_api::CUresult;
use sluice_sim::engine::{StreamKind, Work};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

/// The calls that a capture forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Unsafe calls of any thread.
    Global,
    /// Unsafe calls of the thread that began it.
    ThreadLocal,
    /// No calls.
    Relaxed,
}

impl Mode {
    pub(crate) fn parse(number: u32) -> Result<Self, CUresult> {
        match number {
            0 => Ok(Self::Global),
            1 => Ok(Self::ThreadLocal),
            2 => Ok(Self::Relaxed),
            _ => Err(CUresult::ERROR_INVALID_VALUE),
        }
    }
}

#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<GraphNode>,
    /// A forbidden call was made: the capture yields no graph any more.
    pub(crate) invalid: bool,
    pub(crate) ended: bool,
}

pub(crate) struct Capture {
    pub(crate) id: u64,
    mode: Mode,
    context: usize,
    thread: ThreadId,
    pub(crate) origin: usize,
    pub(crate) graph: Mutex<Graph>,
    /// Whether a stream that synchronises with the legacy default stream takes part.
    blocking: Mutex<bool>,
}

impl Capture {
    pub(crate) fn invalidate(&self) {
        lock(&self.graph).invalid = true;
    }

    fn is_active(&self) -> bool {
        !lock(&self.graph).ended
    }
}

/// A position in a capture, of a stream or of an event: the nodes on which the next node depends.
#[derive(Clone)]
pub(crate) struct Position {
    pub(crate) capture: Arc<Capture>,
    pub(crate) nodes: Vec<usize>,
}

impl Position {
    pub(crate) fn add(&mut self, stream: &Stream, work: Work, effect: Option<Effect>) -> Status {
        self.add_node(stream, Body::Work { work, effect })
    }

    pub(crate) fn add_node(&mut self, stream: &Stream, body: Body) -> Status {
        stream.context.check()?;
        let mut graph = lock(&self.capture.graph);
        if graph.invalid {
            return Err(CUresult::ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        let dependencies = std::mem::take(&mut self.nodes);
        graph.nodes.push(GraphNode { body, dependencies });
        self.nodes = vec![graph.nodes.len() - 1];
        Ok(())
    }

    /// Adds all nodes of a graph behind the stream's last ones.
    pub(crate) fn add_graph(&mut self, nodes: &[GraphNode]) -> Status {
        let mut graph = lock(&self.capture.graph);
        if graph.invalid {
            return Err(CUresult::ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        let first = graph.nodes.len();
        let before = std::mem::take(&mut self.nodes);
        for node in nodes {
            let mut dependencies: Vec<usize> = node.dependencies.iter().map(|index| first + index).collect();
            if dependencies.is_empty() {
                dependencies.clone_from(&before);
            }
            graph.nodes.push(GraphNode { body: node.body.clone(), dependencies });
        }
        self.nodes =
            if nodes.is_empty() { before } else { super::graph::leaves(&graph.nodes[first..], first) };
        Ok(())
    }
}

#[derive(Default)]
pub(crate) struct Captures {
    active: Mutex<Vec<Arc<Capture>>>,
    count: AtomicUsize,
    next_id: AtomicU64,
}

thread_local! {
    /// The mode in which captures bind this thread.
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Sets how captures bind this thread, and returns the previous mode.
pub(crate) fn exchange_mode(mode: Mode) -> Mode {
    MODE.replace(mode)
}

impl Captures {
    /// Whether any stream is captured. Costs one load.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn begin(&self, stream: &Stream, mode: Mode) -> Status {
        if stream.kind == StreamKind::Legacy {
            return Err(CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let mut part = lock(&stream.capture);
        if part.is_some() {
            return Err(CUresult::ERROR_ILLEGAL_STATE);
        }
        let capture = Arc::new(Capture {
            id: self.next_id.fetch_add(1, Ordering::Relaxed) + 1,
            mode,
            context: stream.context.handle,
            thread: std::thread::current().id(),
            origin: stream.handle,
            graph: Mutex::new(Graph::default()),
            blocking: Mutex::new(stream.kind == StreamKind::Blocking),
        });
        let mut active = lock(&self.active);
        // Under the lock: a capture that begins while its context ends is refused here or ended by `end_context`.
        stream.context.check()?;
        active.push(capture.clone());
        self.count.store(active.len(), Ordering::Relaxed);
        drop(active);
        *part = Some(Position { capture, nodes: Vec::new() });
        Ok(())
    }

    pub(crate) fn end(&self, stream: &Stream) -> Result<Vec<GraphNode>, CUresult> {
        let (capture, at) = match lock(&stream.capture).as_ref() {
            Some(part) => (part.capture.clone(), part.nodes.clone()),
            None => return Err(CUresult::ERROR_ILLEGAL_STATE),
        };
        if capture.origin != stream.handle {
            capture.invalidate();
            return Err(CUresult::ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != Mode::Relaxed && capture.thread != std::thread::current().id() {
            return Err(CUresult::ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        let nodes = {
            let mut graph = lock(&capture.graph);
            graph.ended = true;
            let unjoined = super::graph::leaves(&graph.nodes, 0).iter().any(|leaf| !at.contains(leaf));
            match (graph.invalid, unjoined) {
                (true, _) => Err(CUresult::ERROR_STREAM_CAPTURE_INVALIDATED),
                (_, true) => Err(CUresult::ERROR_STREAM_CAPTURE_UNJOINED),
                _ => Ok(std::mem::take(&mut graph.nodes)),
            }
        };
        self.remove(|other| other.id == capture.id);
        for member in stream.context.streams() {
            lock(&member.capture).take_if(|part| part.capture.id == capture.id);
        }
        nodes
    }

    /// Ends the captures of a context that ends: they forbid no calls any more.
    pub(super) fn end_context(&self, context: usize) {
        self.remove(|capture| capture.context == context);
    }

    fn remove(&self, which: impl Fn(&Capture) -> bool) {
        let mut active = lock(&self.active);
        for capture in active.extract_if(.., |capture| which(capture)) {
            lock(&capture.graph).ended = true;
        }
        self.count.store(active.len(), Ordering::Relaxed);
    }

    /// Checks a call that is not safe during a capture: captures that forbid it become invalid, and the call fails.
    pub(crate) fn unsafe_call(&self) -> Status {
        if !self.any() || MODE.get() == Mode::Relaxed {
            return Ok(());
        }
        let caller = std::thread::current().id();
        let forbids = |capture: &&Arc<Capture>| match capture.mode {
            Mode::Relaxed => false,
            Mode::ThreadLocal => capture.thread == caller,
            Mode::Global => capture.thread == caller || MODE.get() == Mode::Global,
        };
        self.forbid(forbids, CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Checks a use of a context's legacy default stream, which would order captured blocking streams with it.
    pub(crate) fn forbid_legacy(&self, context: &Context) -> Status {
        let forbids = |capture: &&Arc<Capture>| capture.context == context.handle && *lock(&capture.blocking);
        self.forbid(forbids, CUresult::ERROR_STREAM_CAPTURE_IMPLICIT)
    }

    /// Checks a query whether the legacy default stream is captured. It fails while captured streams are ordered with it,
    /// and invalidates no capture.
    pub(crate) fn ask_legacy(&self, context: &Context) -> Status {
        let is_ordered =
            |capture: &Arc<Capture>| capture.context == context.handle && *lock(&capture.blocking);
        if lock(&self.active).iter().any(is_ordered) {
            Err(CUresult::ERROR_STREAM_CAPTURE_IMPLICIT)
        } else {
            Ok(())
        }
    }

    /// Checks a wait for the whole context.
    pub(crate) fn forbid_context(&self, context: &Context) -> Status {
        if !self.any() {
            return Ok(());
        }
        self.forbid(|capture| capture.context == context.handle, CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Checks a wait for a stream, or a query of it.
    pub(crate) fn forbid_stream(&self, stream: &Stream) -> Status {
        match lock(&stream.capture).as_ref().filter(|_| self.any()) {
            None => Ok(()),
            Some(part) => {
                part.capture.invalidate();
                Err(CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    fn forbid(&self, which: impl FnMut(&&Arc<Capture>) -> bool, error: CUresult) -> Status {
        let active = lock(&self.active);
        let forbidding: Vec<_> = active.iter().filter(which).collect();
        forbidding.iter().for_each(|capture| capture.invalidate());
        if forbidding.is_empty() { Ok(()) } else { Err(error) }
    }
}

/// Makes a stream wait for a position in a capture. A stream outside the capture joins it.
pub(crate) fn wait_for(stream: &Stream, at: &Position) -> Status {
    if !at.capture.is_active() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    if stream.kind == StreamKind::Legacy {
        at.capture.invalidate();
        return Err(CUresult::ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    let mut part = lock(&stream.capture);
    match part.as_mut() {
        None => {
            *lock(&at.capture.blocking) |= stream.kind == StreamKind::Blocking;
            *part = Some(at.clone());
        }
        Some(part) if part.capture.id == at.capture.id => {
            for node in &at.nodes {
                if !part.nodes.contains(node) {
                    part.nodes.push(*node);
                }
            }
        }
        Some(part) => {
            part.capture.invalidate();
            at.capture.invalidate();
            return Err(CUresult::ERROR_STREAM_CAPTURE_MERGE);
        }
    }
    Ok(())
}
