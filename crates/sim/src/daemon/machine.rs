//! The daemon's loop: sleep, compute the timeline of all GPUs, answer.

use super::server::{Server, Source};
use super::{Clock, DaemonConfig};
use crate::engine::{Engine, Interconnect};
use crate::rm::ClientNumbers;
use crate::wire::message::Answer;
use crate::wire::record::{Order, Record};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::EventFd;
use nix::sys::time::TimeSpec;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// The urgency of the commands that were in the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Drained {
    Nothing,
    /// No process waits for them; a process may query them later.
    Deferrable,
    /// A process waits for one of them.
    Urgent,
}

/// The GPUs of one daemon, which have one clock and one timeline.
pub(super) struct Machine {
    servers: Vec<Server>,
    interconnect: Interconnect,
    clock: Clock,
    stop: Arc<EventFd>,
}

impl Machine {
    /// Binds the sockets of all GPUs. They follow the clock of the first.
    pub(super) fn bind(configs: Vec<DaemonConfig>, stop: Arc<EventFd>) -> io::Result<Self> {
        let clock = configs.first().map_or(Clock::Real, |config| config.clock);
        let configs = configs.into_iter().map(|config| DaemonConfig { clock, ..config });
        let client_numbers = ClientNumbers::default();
        let servers =
            configs.map(|config| Server::bind(config, &client_numbers)).collect::<io::Result<_>>()?;
        Ok(Self { servers, interconnect: Interconnect::default(), clock, stop })
    }

    pub(super) fn run(mut self) -> io::Result<()> {
        // The default timer slack of 50 µs would be added to every wait of a client.
        if let Err(error) = nix::sys::prctl::set_timerslack(1) {
            tracing::warn!("cannot set the timer slack, waits will be late: {error}");
        }
        loop {
            let Some(ready) = self.sleep()? else {
                self.servers.iter().for_each(Server::unbind);
                return Ok(());
            };
            self.compute();
            // Directly after `compute`, so that a process counts as idle only if none of its commands is left in its ring.
            self.deliver();
            for (index, source, events) in ready {
                self.servers[index].serve_source(source, events);
                for (key, ns) in self.servers[index].take_advances() {
                    self.advance(ns);
                    self.servers[index].answer_later(key, &Answer::Done);
                }
            }
        }
    }

    fn deliver(&mut self) {
        self.servers.iter_mut().for_each(Server::deliver);
    }

    /// Calls `act` with the engines of all GPUs.
    fn with_engines<T>(&mut self, act: impl FnOnce(&mut Interconnect, &mut [&mut Engine]) -> T) -> T {
        let mut engines: Vec<&mut Engine> =
            self.servers.iter_mut().map(|server| &mut server.gpu.engine).collect();
        act(&mut self.interconnect, &mut engines)
    }

    /// Removes all commands from the rings, and executes them in the order of submission.
    fn drain(&mut self) -> Drained {
        let mut all: Vec<(usize, u64, Record)> = Vec::new();
        for (index, server) in self.servers.iter().enumerate() {
            server.gpu.take_commands(|key, record| all.push((index, key, record)));
        }
        // The order of dependent commands of one process is the same as in the ring: the later command has a later
        // stamp.
        all.sort_by_key(|(.., record)| record.stamp);
        let now = self.clock.now();
        let mut drained = Drained::Nothing;
        for (index, key, mut record) in all {
            record.stamp = self.clock.submitted_at(record.stamp);
            let is_external = matches!(record.order, Order::HostDone { .. } | Order::Word { .. });
            let is_urgent = is_external || matches!(record.order, Order::Watch { .. });
            drained = drained.max(if is_urgent { Drained::Urgent } else { Drained::Deferrable });
            if is_external {
                // The command applies from the time of its submission, not from the last step of the timeline.
                let at = record.stamp.min(now);
                self.with_engines(|interconnect, engines| interconnect.advance(engines, at));
            }
            self.servers[index].gpu.execute(key, record);
        }
        drained
    }

    /// Computes the timeline up to `now`, and publishes the progress to the clients.
    fn step(&mut self, now: u64) {
        let next = self.with_engines(|interconnect, engines| {
            interconnect.advance(engines, now);
            interconnect.next_event(engines)
        });
        self.servers.iter_mut().for_each(|server| server.gpu.publish(next));
    }

    /// Brings the timeline to the present.
    fn compute(&mut self) {
        // The clock is read first: commands submitted after this moment belong to the next step.
        let now = self.clock.now();
        self.drain();
        self.step(now);
    }

    /// Moves a stepped clock by `ns`, from one time to the next at which a real clock would have woken the daemon.
    fn advance(&mut self, ns: u64) {
        let Clock::Stepped { mut now } = self.clock else { return };
        let end = now.saturating_add(ns);
        // What is in the rings was submitted before this request.
        self.drain();
        self.step(now);
        self.deliver();
        while now < end {
            now = self.next_due(now).filter(|at| (now + 1..end).contains(at)).unwrap_or(end);
            self.clock = Clock::Stepped { now };
            self.servers.iter_mut().for_each(|server| server.gpu.clock = self.clock);
            self.step(now);
            self.deliver();
        }
    }

    /// The next time at which a process or a request that waits may have to be answered.
    fn next_due(&mut self, now: u64) -> Option<u64> {
        let next = self.with_engines(Interconnect::next_event);
        self.servers.iter().filter_map(|server| server.next_due(now, next)).min()
    }

    /// Sleeps until an event arrives or the timeline has to be computed. Returns the sources of events with the index of their GPU, in
    /// the order in which they are served; `None` if the daemon is to stop.
    fn sleep(&mut self) -> io::Result<Option<Vec<(usize, Source, PollFlags)>>> {
        self.compute();
        self.servers.iter().for_each(|server| server.gpu.park());
        let drained = self.drain();
        let timeout = if drained == Drained::Urgent {
            Some(Duration::ZERO)
        } else {
            let now = self.clock.now();
            if drained == Drained::Deferrable {
                // Clients decide by the published time of the next event, which does not include these commands yet.
                self.step(now);
            }
            self.next_due(now).and_then(|at| self.clock.until(at))
        };
        let polled: Vec<_> = self.servers.iter().map(Server::polled).collect();
        let of_gpus = polled.iter().flatten().map(|(_, fd, flags)| PollFd::new(*fd, *flags));
        let mut fds = vec![PollFd::new(self.stop.as_fd(), PollFlags::POLLIN)];
        fds.extend(of_gpus);
        match ppoll(&mut fds, timeout.map(TimeSpec::from_duration), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let events = |fd: &PollFd<'_>| fd.revents().filter(|events| !events.is_empty());
        let is_stopped = events(&fds[0]).is_some();
        let indexed =
            (0..).zip(&polled).flat_map(|(index, of_gpu)| of_gpu.iter().map(move |polled| (index, polled.0)));
        let ready = indexed.zip(&fds[1..]);
        let ready = ready.filter_map(|((index, source), fd)| Some((index, source, events(fd)?))).collect();
        self.servers.iter().for_each(|server| server.gpu.unpark());
        Ok((!is_stopped).then_some(ready))
    }
}
