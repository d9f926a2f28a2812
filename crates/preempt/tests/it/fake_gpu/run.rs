//! Execution of the fake GPU's streams over time.

use sluice_preempt::ids::Code;

use super::{Effect, GpuState, Job, Op};

impl GpuState {
    /// Runs what can run until `until`.
    pub(crate) fn run_until(&mut self, until: u64) {
        loop {
            while self.step() {}
            let next = self.streams.values().filter(|fake| !fake.held).filter_map(|fake| fake.ends).min();
            match next.filter(|next| *next <= until) {
                Some(next) => self.now = self.now.max(next),
                None => break,
            }
        }
        self.now = self.now.max(until);
    }

    /// Begins or ends one operation; `false` if none can.
    fn step(&mut self) -> bool {
        let handles: Vec<u64> = self.streams.keys().copied().collect();
        handles.into_iter().any(|handle| self.step_lane(handle))
    }

    fn step_lane(&mut self, handle: u64) -> bool {
        let fake = &self.streams[&handle];
        let Some((seq, op)) = fake.ops.front().cloned() else { return false };
        if fake.held || self.sticky.is_some() || !self.in_order(handle, seq) {
            return false;
        }
        match op {
            Op::Job(job) => match fake.ends {
                None => {
                    self.fake(handle).ends = Some(self.now + job.ns);
                    return true;
                }
                Some(ends) if ends > self.now => return false,
                Some(_) => {
                    self.fake(handle).ends = None;
                    self.apply(handle, job);
                }
            },
            Op::Record(record) => {
                let now = self.now;
                self.records.insert(record, Some(now));
            }
            Op::Wait(record) if self.records[&record].is_none() => return false,
            Op::Wait(_) => {}
            Op::Arrive(number) => {
                if self.fake(handle).arrived == number {
                    return false;
                }
                self.fake(handle).arrived = number;
            }
            Op::Gate(number) => match fake.ends {
                None if fake.word.wrapping_sub(number) >= 1 << 31 => return false,
                None if self.passing_ns > 0 => {
                    let ends = self.now + self.passing_ns;
                    self.fake(handle).ends = Some(ends);
                    return true;
                }
                Some(ends) if ends > self.now => return false,
                // A later change of the word no longer matters.
                Some(_) | None => self.fake(handle).ends = None,
            },
            Op::Pass(number) => self.fake(handle).passed = number,
        }
        self.fake(handle).ops.pop_front();
        true
    }

    fn fake(&mut self, handle: u64) -> &mut super::FakeStream {
        self.streams.get_mut(&handle).unwrap()
    }

    /// The ordering rule of the legacy default stream.
    fn in_order(&self, handle: u64, seq: u64) -> bool {
        let stream = self.streams[&handle].stream.unwrap();
        self.streams.values().all(|fake| {
            let other = fake.stream.unwrap();
            !other.is_ordered_with(stream) || fake.ops.front().is_none_or(|(first, _)| *first > seq)
        })
    }

    fn apply(&mut self, handle: u64, job: Job) {
        self.executed.push((handle, job.tag));
        let read = |state: &Self, address| state.memory.get(&address).copied().unwrap_or(0);
        match job.effect {
            Effect::Affine { to, add } => {
                let value = read(self, to).wrapping_mul(3).wrapping_add(add);
                self.memory.insert(to, value);
            }
            Effect::Mix { to, from } => {
                let mixed =
                    read(self, to).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ read(self, from).rotate_left(17);
                self.memory.insert(to, mixed);
            }
            Effect::Store { to, value } => {
                self.memory.insert(to, value);
            }
            Effect::Copy { to, from } => {
                let value = read(self, from);
                self.memory.insert(to, value);
            }
            Effect::Host(data) => self.host_calls.push(data),
            Effect::Fault => self.sticky = Some(Code::ILLEGAL_ADDRESS),
            Effect::Nothing => {}
        }
    }
}
