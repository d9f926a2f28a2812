//! A manager with one fault, which the hook must detect.

use sluice_comm::page::GrantView;
use sluice_comm::{AttachStatus, REQUEST_LEN, Request, RequestBody, Response, ResponseBody};
use sluice_sys::page::SharedPage;
use sluice_sys::{memfd, socket};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Its answer names an unknown page version.
    AnnouncesOtherVersion,
    /// The pages are of another version than announced.
    PagesOfOtherVersion,
    /// The pages carry no magic.
    PagesOfZeroes,
    /// Accepts and passes no descriptors.
    NoPages,
    /// Passes files that are shorter than a page and would fault.
    ShortPages,
    /// Closes the connection in the middle of its answer.
    HalfAnAnswer,
    /// Answers with invalid bytes.
    Gibberish,
    /// Closes the connection at once.
    ClosesConnection,
}

/// All flaws.
pub const FLAWS: [Flaw; 8] = [
    Flaw::AnnouncesOtherVersion,
    Flaw::PagesOfOtherVersion,
    Flaw::PagesOfZeroes,
    Flaw::NoPages,
    Flaw::ShortPages,
    Flaw::HalfAnAnswer,
    Flaw::Gibberish,
    Flaw::ClosesConnection,
];

/// Serves at `path` until the test process ends. Returns the counter of its faulty answers.
///
/// # Panics
/// When the socket cannot be created.
pub fn serve(path: &Path, flaw: Flaw) -> Arc<AtomicUsize> {
    let listener = UnixListener::bind(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let answered = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&answered);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let counter = Arc::clone(&counter);
            thread::spawn(move || while answer(&stream, flaw, &counter).is_ok() {});
        }
    });
    answered
}

fn answer(mut stream: &UnixStream, flaw: Flaw, answered: &AtomicUsize) -> io::Result<()> {
    let mut frame = [0; REQUEST_LEN];
    let (first, _payload) = socket::recv_with_fds(stream.as_fd(), &mut frame)?;
    if first == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    stream.read_exact(&mut frame[first..])?;
    let request = Request::decode(&frame).map_err(io::Error::other)?;
    if !matches!(request.body, RequestBody::Attach { .. }) {
        // A hook that accepted the faulty answer must not go on.
        return Err(io::ErrorKind::InvalidData.into());
    }
    answered.fetch_add(1, Ordering::SeqCst);
    let page_version = if flaw == Flaw::AnnouncesOtherVersion { 99 } else { sluice_comm::page::PAGE_VERSION };
    let body = ResponseBody::Attach { status: AttachStatus::Ok, page_version };
    let mut bytes = Response { id: request.id, body }.encode();
    let pages = pages(flaw)?;
    let mut descriptors: Vec<BorrowedFd<'_>> = pages.iter().map(AsFd::as_fd).collect();
    match flaw {
        Flaw::NoPages => descriptors.clear(),
        Flaw::Gibberish => bytes.fill(0xa5),
        Flaw::HalfAnAnswer => {
            stream.write_all(&bytes[..20])?;
            stream.shutdown(std::net::Shutdown::Both)?;
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Flaw::ClosesConnection => {
            stream.shutdown(std::net::Shutdown::Both)?;
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        _ => {}
    }
    socket::send_with_fds(stream.as_fd(), &bytes, &descriptors).map(|_| ())
}

/// Grant page and report page, as far as the flaw allows.
fn pages(flaw: Flaw) -> io::Result<[OwnedFd; 2]> {
    if flaw == Flaw::ShortPages {
        return Ok([memfd::sealed("short", b"grant")?, memfd::sealed("short", b"report")?]);
    }
    let (grant, grant_fd) = SharedPage::create("grant")?;
    let (report, report_fd) = SharedPage::create("report")?;
    if flaw != Flaw::PagesOfZeroes {
        GrantView::new(grant.words()).init();
        sluice_comm::page::ReportView::new(report.words()).init();
    }
    if flaw == Flaw::PagesOfOtherVersion {
        grant.words()[sluice_comm::page::grant::VERSION].store(99, Ordering::SeqCst);
        report.words()[sluice_comm::page::report::VERSION].store(99, Ordering::SeqCst);
    }
    Ok([SharedPage::reopen_read_only(&grant_fd)?, report_fd])
}
