//! The reader's end of the trace socket.

use super::event::TraceEvent;
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The manager sends a line every 20 ms, unless it is hung or ends.
const SILENCE: Duration = Duration::from_secs(2);

/// Reads the trace of the manager with this trace socket until the trace is so long.
/// Errors: the socket cannot be reached, the manager serves as many readers as it may, or it sends something else than events.
pub fn read_trace(socket: &Path, length: Duration) -> io::Result<Vec<TraceEvent>> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(SILENCE))?;
    let (mut lines, mut line) = (BufReader::new(stream), String::new());
    let (mut events, mut begin_ns) = (Vec::new(), None);
    let latest = Instant::now() + length + SILENCE;
    while Instant::now() < latest {
        line.clear();
        if lines.read_line(&mut line).map_err(silence)? == 0 {
            if events.is_empty() {
                let why = "the manager closed the connection: it serves four readers at once, and only its own user's";
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, why));
            }
            break;
        }
        let event = serde_json::from_str(&line).map_err(|why| {
            io::Error::other(format!("the manager sent {:?}, which is no event: {why}", line.trim_end()))
        })?;
        let time = if let TraceEvent::Time { at_ns } = event { Some(at_ns) } else { None };
        events.push(event);
        if let Some(at_ns) = time {
            let begin_ns = *begin_ns.get_or_insert(at_ns);
            if u128::from(at_ns.saturating_sub(begin_ns)) >= length.as_nanos() {
                break;
            }
        }
    }
    Ok(events)
}

/// Says what a timeout of the socket means.
fn silence(why: io::Error) -> io::Error {
    if why.kind() == io::ErrorKind::WouldBlock {
        let words =
            format!("no event within {SILENCE:?}: the manager is hung, or this is not its trace socket");
        return io::Error::new(io::ErrorKind::TimedOut, words);
    }
    why
}
