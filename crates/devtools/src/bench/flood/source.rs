//! The processes that flood the pod-manager. A process may have 64 connections, so the idle ones need several.

use std::io::{self, Read, Write};
use std::iter::repeat_n;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use sluice_comm::{Name, REQUEST_LEN, RESPONSE_LEN, Request, RequestBody};

/// The client that the flood's valid requests name.
pub(super) const FLOODER: &str = "flooder";
/// Connections with valid requests.
pub(super) const VALID: usize = 60;
/// Idle connections, and those of one process.
pub(super) const IDLE: usize = 500;
const IDLE_EACH: usize = 63;
/// Half-open HTTP connections, half of them to the listener of probes.
pub(super) const HALF_OPEN: usize = 150;
/// Requests that are written at once.
const BATCH: usize = 32;
/// Pause of a source that could do nothing.
const PAUSE: Duration = Duration::from_millis(1);
/// Time between two looks at the half-open connections, of which closed ones are opened again.
const REOPEN_EVERY: Duration = Duration::from_millis(100);

/// What a process sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Valid requests without end, on 60 connections
    Valid,
    /// One frame of garbage on each of connections without end
    Garbage,
    /// Nothing, on 63 connections
    Idle,
    /// Half of the head of a request, on 150 HTTP connections
    HalfOpen,
}

impl Kind {
    /// The kinds of all processes of the flood.
    pub(super) fn processes() -> impl Iterator<Item = Self> {
        let idle = repeat_n(Self::Idle, IDLE.div_ceil(IDLE_EACH));
        idle.chain([Self::HalfOpen, Self::Garbage, Self::Valid])
    }

    /// The word for it in the flag.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Garbage => "garbage",
            Self::Idle => "idle",
            Self::HalfOpen => "half-open",
        }
    }
}

/// Flags of a source.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What to send
    #[arg(long, value_enum)]
    kind: Kind,
    /// Socket of the manager
    #[arg(long)]
    manager: PathBuf,
    /// Address of its probes
    #[arg(long)]
    http: SocketAddr,
    /// Address of its pages
    #[arg(long)]
    pages: SocketAddr,
}

/// Prints a line when its connections are open, and floods until it is killed.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let manager = &arguments.manager;
    match arguments.kind {
        Kind::Valid => send_requests(connect_all(manager, VALID)?),
        Kind::Garbage => send_garbage(manager),
        Kind::Idle => {
            let _open = connect_all(manager, IDLE_EACH)?;
            ready()?;
            loop {
                thread::park();
            }
        }
        Kind::HalfOpen => hold_half_open([arguments.http, arguments.pages]),
    }
}

fn ready() -> io::Result<()> {
    writeln!(io::stdout(), "ready")
}

fn connect(manager: &Path) -> anyhow::Result<UnixStream> {
    UnixStream::connect(manager).context("the pod-manager does not listen")
}

fn connect_all(manager: &Path, count: usize) -> anyhow::Result<Vec<UnixStream>> {
    (0..count).map(|_| connect(manager)).collect()
}

/// A connection with what is left to be written of a batch of requests.
struct Flooding {
    stream: UnixStream,
    written: usize,
}

fn send_requests(streams: Vec<UnixStream>) -> anyhow::Result<()> {
    let request = Request { name: Name::new(FLOODER)?, id: 1, body: RequestBody::MemLimit };
    let batch = request.encode()?.repeat(BATCH);
    let mut answers = vec![0; BATCH * RESPONSE_LEN];
    let mut flooding = Vec::new();
    for stream in streams {
        stream.set_nonblocking(true)?;
        flooding.push(Flooding { stream, written: 0 });
    }
    ready()?;
    loop {
        let mut moved = false;
        for connection in &mut flooding {
            // A manager closes a connection whose answers are not read.
            while matches!(connection.stream.read(&mut answers), Ok(read) if read > 0) {}
            if let Ok(written) = connection.stream.write(&batch[connection.written..]) {
                connection.written = (connection.written + written) % batch.len();
                moved = true;
            }
        }
        if !moved {
            thread::sleep(PAUSE);
        }
    }
}

fn send_garbage(manager: &Path) -> anyhow::Result<()> {
    ready()?;
    loop {
        let mut stream = connect(manager)?;
        // Either end may be the first to close.
        let _ = stream.write_all(&[0xff; REQUEST_LEN]);
        let _ = stream.read(&mut [0]);
    }
}

fn hold_half_open(addresses: [SocketAddr; 2]) -> anyhow::Result<()> {
    let open = |address: SocketAddr| -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost:")?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    let address = |number: usize| addresses[number % addresses.len()];
    let mut streams: Vec<Option<TcpStream>> =
        (0..HALF_OPEN).map(|number| open(address(number)).ok()).collect();
    ready()?;
    loop {
        thread::sleep(REOPEN_EVERY);
        for (number, slot) in streams.iter_mut().enumerate() {
            let is_open = slot.as_mut().is_some_and(|stream| {
                matches!(stream.read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            });
            if !is_open {
                *slot = open(address(number)).ok();
            }
        }
    }
}
