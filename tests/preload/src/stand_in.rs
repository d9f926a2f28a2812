//! A manager that lets everybody run, gives all memory, and says of the company what the test says.

use sluice_comm::page::{Flags, GrantView, PAGE_VERSION, ReportView, STANDING};
use sluice_comm::{AttachStatus, Channel, REQUEST_LEN, Request, RequestBody, Response, ResponseBody};
use sluice_sys::page::SharedPage;
use sluice_sys::socket;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// What such a manager says.
#[derive(Debug, Default)]
struct Word {
    flags: Flags,
    company: u64,
    pages: Vec<SharedPage>,
}

/// A manager in the test's own process.
#[derive(Debug, Clone)]
pub struct StandIn(Arc<Mutex<Word>>);

impl StandIn {
    /// Serves at `path` until the test process ends. All clients are latency-critical, or none.
    ///
    /// # Panics
    /// When nobody can listen there.
    #[must_use]
    pub fn serve(path: &Path, latency_critical: bool, company: u64) -> Self {
        let listener = UnixListener::bind(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let flags = Flags { latency_critical, ..Flags::default() };
        let manager = Self(Arc::new(Mutex::new(Word { flags, company, pages: Vec::new() })));
        let shared = manager.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let manager = shared.clone();
                thread::spawn(move || while manager.answer(&stream).is_ok() {});
            }
        });
        manager
    }

    /// Tells all clients, those of now and those to come, how many others there are.
    pub fn say(&self, company: u64) {
        let mut word = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        word.company = company;
        word.pages.iter().for_each(|page| GrantView::new(page.words()).set_company(company));
    }

    fn answer(&self, mut stream: &UnixStream) -> io::Result<()> {
        let mut frame = [0; REQUEST_LEN];
        let (first, _payload) = socket::recv_with_fds(stream.as_fd(), &mut frame)?;
        if first == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        stream.read_exact(&mut frame[first..])?;
        let request = Request::decode(&frame).map_err(io::Error::other)?;
        let mut pages = Vec::new();
        let body = match request.body {
            RequestBody::Attach { channel, .. } => {
                if channel == Channel::Token {
                    pages = self.pages()?;
                }
                ResponseBody::Attach { status: AttachStatus::Ok, page_version: PAGE_VERSION }
            }
            RequestBody::Quota { .. } => ResponseBody::Quota { quota_ms: 1000.0 },
            RequestBody::MemLimit => ResponseBody::MemLimit { used: 0, limit: 1 << 40 },
            RequestBody::MemUpdate { .. } => ResponseBody::MemUpdate { granted: true },
            RequestBody::Detach => ResponseBody::Detach,
            _ => return Ok(()),
        };
        let descriptors: Vec<BorrowedFd<'_>> = pages.iter().map(AsFd::as_fd).collect();
        let bytes = Response { id: request.id, body }.encode();
        socket::send_with_fds(stream.as_fd(), &bytes, &descriptors).map(|_| ())
    }

    /// A standing grant for a client that attaches.
    fn pages(&self) -> io::Result<Vec<OwnedFd>> {
        let (grant, grant_fd) = SharedPage::create("grant")?;
        let (report, report_fd) = SharedPage::create("report")?;
        let mut word = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let view = GrantView::new(grant.words());
        view.init();
        view.set_flags(word.flags);
        view.set_company(word.company);
        view.open(STANDING, STANDING, 1);
        ReportView::new(report.words()).init();
        word.pages.push(grant);
        Ok(vec![SharedPage::reopen_read_only(&grant_fd)?, report_fd])
    }
}
