//! Locks of processes at their next driver call, and the requests that wait until such a process has no work in progress.

use super::gpu::Gpu;
use crate::params;
use crate::wire::message::{Answer, LockFailure};
use std::collections::BTreeMap;

/// A request that waits until a process has no work in progress.
#[derive(Debug)]
struct Waiting {
    peer: u64,
    pid: i32,
    not_before: u64,
    deadline: Option<u64>,
}

/// Waiting requests, and answers that are not due yet.
#[derive(Debug, Default)]
pub(super) struct Locks {
    waiting: Vec<Waiting>,
    answers: BTreeMap<(u64, u64), (u64, Answer)>,
    count: u64,
}

impl Locks {
    /// Begins to lock a process for a peer of this user. The answer comes from [`step`](Self::step).
    pub(super) fn lock(&mut self, gpu: &Gpu, peer: (u64, u32), pid: i32, timeout_ms: u32, now: u64) {
        let (peer, uid) = peer;
        if let Err(failure) = check(gpu, uid, pid, false) {
            return self.answer(now, peer, Answer::NotLocked(failure));
        }
        gpu.set_locked(pid, true);
        let deadline = (timeout_ms > 0).then(|| now + u64::from(timeout_ms) * 1_000_000);
        self.waiting.push(Waiting { peer, pid, not_before: now + params::LOCK_NS, deadline });
    }

    pub(super) fn unlock(&mut self, gpu: &Gpu, peer: (u64, u32), pid: i32, now: u64) {
        let (peer, uid) = peer;
        match check(gpu, uid, pid, true) {
            Ok(()) => {
                gpu.set_locked(pid, false);
                self.answer(now + params::UNLOCK_NS, peer, Answer::Done);
            }
            Err(failure) => self.answer(now, peer, Answer::NotLocked(failure)),
        }
    }

    pub(super) fn answer(&mut self, at: u64, peer: u64, answer: Answer) {
        self.count += 1;
        self.answers.insert((at, self.count), (peer, answer));
    }

    /// The time of the next [`step`](Self::step) that has an answer. A request whose process has work in progress past
    /// `not_before` waits for the timeline instead.
    pub(super) fn next_due(&self, gpu: &Gpu, now: u64) -> Option<u64> {
        let answer = self.answers.first_key_value().map(|((at, _), _)| *at);
        let idle = |request: &Waiting| {
            (request.not_before > now || gpu.is_idle(request.pid)).then_some(request.not_before)
        };
        let waiting = self.waiting.iter().flat_map(|request| [idle(request), request.deadline]).flatten();
        waiting.chain(answer).min()
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Drops the requests of a peer that has ended.
    pub(super) fn cancel(&mut self, gpu: &Gpu, peer: u64) {
        for request in self.waiting.extract_if(.., |request| request.peer == peer) {
            gpu.set_locked(request.pid, false);
        }
        self.answers.retain(|_, (to, _)| *to != peer);
    }

    /// The answers that are due, with their peers.
    pub(super) fn step(&mut self, gpu: &Gpu, now: u64) -> Vec<(u64, Answer)> {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|request| {
            if request.not_before <= now && gpu.is_idle(request.pid) {
                self.answer(now, request.peer, Answer::Done);
                return false;
            }
            if request.deadline.is_some_and(|deadline| deadline <= now) {
                gpu.set_locked(request.pid, false);
                self.answer(now, request.peer, Answer::NotLocked(LockFailure::NotInTime));
                return false;
            }
            true
        });
        self.waiting = waiting;
        let later = self.answers.split_off(&(now + 1, 0));
        std::mem::replace(&mut self.answers, later).into_values().collect()
    }
}

/// Whether a process exists, may be locked by this user (root may lock all), and is in the given state.
fn check(gpu: &Gpu, uid: u32, pid: i32, is_locked: bool) -> Result<(), LockFailure> {
    match gpu.lock_state(pid) {
        None => Err(LockFailure::NoSuchProcess),
        Some((owner, _)) if uid != 0 && uid != owner => Err(LockFailure::NotPermitted),
        Some((_, state)) if state != is_locked => Err(LockFailure::WrongState),
        Some(_) => Ok(()),
    }
}
