//! The process whose requests `bench hook` times, call by call: one under the hook, one without.

use std::hint;
use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

use clap::Args;
use nix::unistd;
use serde::{Deserialize, Serialize};
use sluice_load::graph::Graph;
use sluice_load::memory::{DeviceBuffer, PinnedBuffer};
use sluice_load::record::write_line;
use sluice_load::session::{Session, Stream};

/// Requests of a block.
pub(crate) const BLOCK: usize = 64;
/// Requests before a block that are not measured.
const WARM_UP: usize = 4;
/// After this time the GPU has completed an empty kernel and two small copies. A later wait takes only host time.
const UNTIL_DONE: Duration = Duration::from_micros(250);
/// Words of a request, and of its answer.
const WORDS: u32 = 64;
/// Words that are read to clear the caches: 32 MiB.
const JUNK: usize = 4 << 20;
/// Words of a cache line.
const LINE: usize = 8;

/// The calls of a request, in their order.
pub(crate) const STEPS: [&str; 4] =
    ["cuMemcpyHtoDAsync", "cuGraphLaunch", "cuMemcpyDtoHAsync", "cuStreamSynchronize"];

/// Flags of the worker.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Make each call between two marker calls for the process that traces this one, instead of timing it
    #[arg(long)]
    counted: bool,
    /// Before each request, read so much memory that the processor's caches hold nothing of the request, as after other programs have run
    #[arg(long)]
    cold: bool,
}

/// Nanoseconds of each call of a block's requests.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Block {
    /// One list for each of [`STEPS`].
    pub(crate) ns: [Vec<u64>; 4],
}

/// Prints "ready", then measures one block for each line of input, or makes one block for the tracer to count.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let session = Session::open(0)?;
    let service = Service::new(&session, arguments.cold)?;
    service.block(|_, call| call())?;
    writeln!(io::stdout(), "ready")?;
    for line in io::stdin().lock().lines() {
        line?;
        if arguments.counted {
            return service.block(|_, call| {
                let _ = unistd::getppid();
                let called = call();
                let _ = unistd::getppid();
                called
            });
        }
        let mut block = Block { ns: Default::default() };
        service.block(|step, call| {
            let begun = Instant::now();
            let called = call();
            let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            if let Some(all) = block.ns.get_mut(step) {
                all.push(ns);
            }
            called
        })?;
        write_line(&block, &mut io::stdout())?;
    }
    Ok(())
}

type Call<'a> = &'a dyn Fn() -> anyhow::Result<()>;

struct Service<'s> {
    stream: Stream<'s>,
    buffer: DeviceBuffer<'s>,
    request: PinnedBuffer<'s>,
    answer: PinnedBuffer<'s>,
    graph: Graph<'s>,
    /// Memory that is read to clear the caches; empty if they are not cleared.
    junk: Vec<u64>,
}

impl<'s> Service<'s> {
    fn new(session: &'s Session, cold: bool) -> anyhow::Result<Self> {
        let bytes = WORDS as usize * size_of::<u64>();
        let (stream, buffer) = (session.stream()?, DeviceBuffer::with_initial_words(session, WORDS)?);
        let graph = Graph::of_a_kernel(session, &stream, &buffer, (1, 0))?;
        let (request, answer) = (PinnedBuffer::new(session, bytes)?, PinnedBuffer::new(session, bytes)?);
        // Different values: the kernel maps all pages of zeroes to one page.
        let junk = (0..if cold { JUNK as u64 } else { 0 }).collect();
        Ok(Self { stream, buffer, request, answer, graph, junk })
    }

    /// Makes requests. The calls of the last [`BLOCK`] are made by `observe`, which gets the number of the step and the call.
    fn block(&self, mut observe: impl FnMut(usize, Call<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        for nth in 0..WARM_UP + BLOCK {
            hint::black_box(self.junk.iter().step_by(LINE).fold(0, |sum: u64, word| sum.wrapping_add(*word)));
            let begun = Instant::now();
            let submit: [Call<'_>; 3] = [
                &|| Ok(self.request.copy_to(&self.buffer, &self.stream)?),
                &|| Ok(self.graph.launch(&self.stream)?),
                &|| Ok(self.answer.copy_from(&self.buffer, &self.stream)?),
            ];
            let wait: Call<'_> = &|| Ok(self.stream.synchronize()?);
            let mut make = |step, call: Call<'_>| if nth < WARM_UP { call() } else { observe(step, call) };
            for (step, call) in submit.into_iter().enumerate() {
                make(step, call)?;
            }
            while begun.elapsed() < UNTIL_DONE {
                hint::spin_loop();
            }
            make(submit.len(), wait)?;
        }
        Ok(())
    }
}
