//! `sluice-dev bench comm`: time of a frame in the codec, and of a request to the pod-manager until its answer.

use std::hint::black_box;
use std::io::{self, Write};

use anyhow::Context;
use serde::Serialize;
use sluice_comm::{Name, Request, RequestBody, RequestKind, Response, ResponseBody};
use sluice_load::samples::Samples;
use sluice_sys::clock::monotonic_ns;

use super::wire_client::WireClient;
use super::{Common, Percentiles, start_bed};
use sluice_test_bed::{Interrupts, TestBed};

const CLIENT: &str = "bench";
/// Frames of one sample: the clock is too coarse for a single frame.
const BATCH: u64 = 1000;
const BATCHES: u64 = 500;
const ROUND_TRIPS: u64 = 20_000;

/// What was measured.
#[derive(Debug, Serialize)]
pub(crate) struct CommFigures {
    request_encode_ns: Percentiles,
    request_decode_ns: Percentiles,
    response_encode_ns: Percentiles,
    response_decode_ns: Percentiles,
    /// REQ_MEM_LIMIT over the unix socket, from before the write until after the read.
    round_trip_us: Percentiles,
}

/// Measures and prints the figures.
pub(crate) fn measure(common: &Common, interrupts: &Interrupts) -> anyhow::Result<CommFigures> {
    let request = Request {
        name: Name::new("client1")?,
        id: 7,
        body: RequestBody::Quota { overuse_ms: 1.5, next_burst_ms: 300.0 },
    };
    let response = Response { id: 7, body: ResponseBody::Quota { quota_ms: 50.0 } };
    let (request_frame, response_frame) = (request.encode()?, response.encode());
    let bed = start_bed(common.options(&[(CLIENT, 1.0, 1.0, 1 << 30)]), || interrupts.pause())?;
    let figures = CommFigures {
        request_encode_ns: per_frame(|| black_box(&request).encode()),
        request_decode_ns: per_frame(|| Request::decode(black_box(&request_frame))),
        response_encode_ns: per_frame(|| black_box(&response).encode()),
        response_decode_ns: per_frame(|| Response::decode(black_box(&response_frame), RequestKind::Quota)),
        round_trip_us: round_trips(&bed, interrupts)?,
    };
    figures.print()?;
    Ok(figures)
}

fn per_frame<T>(mut work: impl FnMut() -> T) -> Percentiles {
    let samples: Samples = (0..BATCHES)
        .map(|_| {
            let begin = monotonic_ns();
            (0..BATCH).for_each(|_| drop(black_box(work())));
            monotonic_ns() - begin
        })
        .collect();
    Percentiles::of(&samples, BATCH as f64)
}

fn round_trips(bed: &TestBed, interrupts: &Interrupts) -> anyhow::Result<Percentiles> {
    let mut wire = WireClient::connect(&bed.manager_socket(), CLIENT)?;
    let mut samples = Samples::default();
    for _ in 0..ROUND_TRIPS {
        let begin = monotonic_ns();
        wire.ask(RequestBody::MemLimit).context("REQ_MEM_LIMIT")?;
        samples.push(monotonic_ns() - begin);
        interrupts.check()?;
    }
    Ok(Percentiles::of(&samples, 1e3))
}

impl CommFigures {
    fn print(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "                              p50        p99")?;
        for (operation, percentiles, unit) in [
            ("encode a request", self.request_encode_ns, "ns"),
            ("decode a request", self.request_decode_ns, "ns"),
            ("encode an answer", self.response_encode_ns, "ns"),
            ("decode an answer", self.response_decode_ns, "ns"),
            ("round trip to the manager", self.round_trip_us, "µs"),
        ] {
            writeln!(out, "  {operation:25} {:7.1} {unit} {:7.1} {unit}", percentiles.p50, percentiles.p99)?;
        }
        Ok(())
    }
}
