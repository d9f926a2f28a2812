//! The process of a client of `bench disturb`: kernels back to back, or requests of one kernel, and what it is told to do besides.
//!
//! Each line of input is a [`Command`]. A thread of its own reads them, so a process whose launches hang still answers.

use std::io::{self, BufRead};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use nix::sys::signal::{Signal, raise};
use sluice_load::be::BLOCKS;
use sluice_load::driver::Error;
use sluice_load::kernel::iterations;
use sluice_load::memory::DeviceBuffer;
use sluice_load::record::write_line;
use sluice_load::session::{Event, Session, Stream};
use sluice_sys::clock::monotonic_ns;

use super::messages::{Answer, Command};

/// Words of the buffer that the kernels change, and bytes of a timed allocation.
const WORDS: u64 = 1024;
const ALLOCATION: u64 = 1 << 20;
/// Kernels in flight of a busy process: 50 ms of work, so that a busy host does not leave the GPU idle.
const DEPTH: usize = 25;
/// The kernel of a request in which the process stops itself.
const LAST_KERNEL: Duration = Duration::from_millis(20);

/// Flags of the process.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Time of a kernel on an H200
    #[arg(long)]
    kernel_us: u32,
    /// A request of one kernel each such time; kernels back to back if absent
    #[arg(long)]
    period_us: Option<u32>,
    /// Record when each of the kernels back to back ends
    #[arg(long)]
    completions: bool,
}

/// What the working thread records and the reading thread reports.
#[derive(Debug, Default)]
struct Records {
    latencies: Mutex<Vec<f64>>,
    completions: Mutex<Vec<u64>>,
}

fn add<T>(list: &Mutex<Vec<T>>, value: T) {
    list.lock().unwrap_or_else(PoisonError::into_inner).push(value);
}

fn take<T>(list: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs until the input ends or the driver fails.
pub(crate) fn run(flags: &Arguments) -> anyhow::Result<()> {
    let session = Session::open(0)?;
    let buffer = DeviceBuffer::new(&session, 8 * WORDS)?;
    let (sender, commands) = channel();
    let records = Records::default();
    write_line(&Answer::Ready { pid: std::process::id() }, &mut io::stdout())?;
    thread::scope(|scope| {
        scope.spawn(|| {
            if let Err(why) = read_commands(&session, &records, sender) {
                eprintln!("{why:#}");
            }
            // Work that hangs cannot be ended in another way.
            std::process::exit(0);
        });
        let stream = session.stream()?;
        let process = Program { flags, session: &session, stream, buffer, commands, records: &records };
        Ok(process.work()?)
    })
}

fn read_commands(session: &Session, records: &Records, work: Sender<Command>) -> anyhow::Result<()> {
    session.use_on_this_thread()?;
    for line in io::stdin().lock().lines() {
        match serde_json::from_str(&line?)? {
            Command::Allocate => {
                let begun = Instant::now();
                let allocated = DeviceBuffer::new(session, ALLOCATION)?;
                write_line(&Answer::Allocated(ms(begun.elapsed())), &mut io::stdout())?;
                drop(allocated);
            }
            Command::Latencies => {
                write_line(&Answer::Latencies(take(&records.latencies)), &mut io::stdout())?;
            }
            Command::Completions => {
                write_line(&Answer::Completions(take(&records.completions)), &mut io::stdout())?;
            }
            command => work.send(command)?,
        }
    }
    Ok(())
}

struct Program<'s> {
    flags: &'s Arguments,
    session: &'s Session,
    stream: Stream<'s>,
    buffer: DeviceBuffer<'s>,
    commands: Receiver<Command>,
    records: &'s Records,
}

impl Program<'_> {
    fn work(&self) -> Result<(), Error> {
        while self.commands.recv().is_ok_and(|command| command != Command::Go) {}
        match self.flags.period_us {
            None => self.stay_busy(),
            Some(period) => self.serve(Duration::from_micros(period.into())),
        }
    }

    fn stay_busy(&self) -> Result<(), Error> {
        let events = (0..DEPTH).map(|_| self.session.event()).collect::<Result<Vec<Event<'_>>, _>>()?;
        for (launched, event) in events.iter().cycle().enumerate() {
            if launched >= events.len() {
                event.wait()?;
                if self.flags.completions {
                    add(&self.records.completions, monotonic_ns());
                }
            }
            self.launch_next()?;
            event.record(&self.stream)?;
        }
        Ok(())
    }

    /// Serves requests on an absolute schedule. A request behind its schedule begins at once and moves the schedule.
    fn serve(&self, period: Duration) -> Result<(), Error> {
        let mut due = Instant::now() + period;
        loop {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            self.launch_next()?;
            self.stream.synchronize()?;
            let took = ms(due.elapsed());
            add(&self.records.latencies, took);
            due = (due + period).max(Instant::now());
        }
    }

    /// Launches the next kernel, as commanded.
    fn launch_next(&self) -> Result<(), Error> {
        let usual = Duration::from_micros(self.flags.kernel_us.into());
        match self.commands.try_recv() {
            Ok(Command::Long(ms)) => self.launch(Duration::from_millis(ms)),
            Ok(Command::Stop) => {
                self.launch(LAST_KERNEL)?;
                let _ = raise(Signal::SIGSTOP);
                Ok(())
            }
            _ => self.launch(usual),
        }
    }

    fn launch(&self, time: Duration) -> Result<(), Error> {
        self.stream.launch(&self.buffer, BLOCKS, iterations(time))
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
