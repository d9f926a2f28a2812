//! The periodic service: each 10 ms a copy, a graph of 0.8 ms and a wait.

use super::gpu::{Context, Gpu};
use sluice_hook_core::burst_admission::{BurstAdmission, RequestForecast};

const PERIOD: u64 = 10_000_000;
const PREPARATION: u64 = 60_000;
const GRAPH: u64 = 800_000;
/// The host wakes up this long after the end of the GPU's work.
const WAKE: u64 = 20_000;
const SWITCH: u64 = 190_000;
/// A predicted hold kernel lasts this much longer than the expected arrival.
const HOLD_LATE: u64 = 400_000;

#[derive(Default)]
pub(super) struct Resnet {
    admission: BurstAdmission,
    requests: u64,
    is_periodic: bool,
    arrived: Option<u64>,
    launched: bool,
    ended: Option<u64>,
    pub(super) forecast: RequestForecast,
    /// Work was submitted and is not known to have finished, and since when that is so.
    pub(super) activity: (bool, u64),
    pub(super) latencies: Vec<u64>,
}

impl Resnet {
    pub(super) fn new(is_periodic: bool) -> Self {
        Self { is_periodic, ..Self::default() }
    }

    fn next_arrival(&self) -> u64 {
        let random = self.requests.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        // The host's timer is late by up to 40 us.
        let late = random % if self.is_periodic { 40_000 } else { PERIOD / 2 };
        (self.requests + 1) * PERIOD + late
    }

    pub(super) fn step(&mut self, now: u64, gpu: &mut Gpu) {
        let mine = Context::Resnet as usize;
        match self.arrived {
            None if now >= self.next_arrival() => {
                self.arrived = Some(now);
                self.admission.burst_began(now);
                self.activity = (true, now);
            }
            None => {
                let expected = self.forecast.expected_ns;
                if expected != 0 && now + SWITCH >= expected && now < expected + HOLD_LATE {
                    gpu.held_until[mine] = expected + HOLD_LATE;
                }
            }
            Some(arrived) if !self.launched && now >= arrived + PREPARATION => {
                self.launched = true;
                gpu.work[mine] = GRAPH;
                gpu.held_until[mine] = 0;
                self.forecast = self.admission.launched(now).unwrap_or(self.forecast);
            }
            Some(arrived) if self.launched && gpu.work[mine] == 0 => {
                let ended = *self.ended.get_or_insert(now + WAKE);
                if now >= ended {
                    self.latencies.push(now - arrived);
                    self.admission.burst_ended(now);
                    self.activity = (false, now);
                    (self.arrived, self.launched, self.ended) = (None, false, None);
                    self.requests += 1;
                }
            }
            Some(_) => {}
        }
    }
}
