//! A program's connection to the doctor's manager.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use sluice_comm::attach::{AttachPayload, MAX_LEN};
use sluice_comm::page::{GrantView, PAGE_VERSION, ReportView, UNLIMITED};
use sluice_comm::{
    AttachStatus, Channel, FrameReader, REQUEST_LEN, Request, RequestBody, Response, ResponseBody,
};
use sluice_nvrm::Controls;
use sluice_sys::page::SharedPage;
use sluice_sys::{memfd, socket};

use super::groups::Group;
use super::manager::Shared;

/// A grant that lasts longer than the doctor.
pub(super) const ENDLESS: ResponseBody = ResponseBody::Quota { quota_ms: 1e6 };
/// Memory limit of every program: the doctor limits nothing.
const NO_MEMORY_LIMIT: u64 = 1 << 50;

/// Serves the connection until it ends.
pub(super) fn serve(stream: &UnixStream, shared: &Shared) -> io::Result<()> {
    let pid = socket::peer_credentials(stream.as_fd())?.pid;
    let mut frames = FrameReader::<REQUEST_LEN>::new();
    let mut came = Vec::new();
    loop {
        let (read, fds) = socket::recv_with_fds(stream.as_fd(), frames.spare())?;
        if read == 0 {
            return Ok(());
        }
        frames.filled(read);
        came.extend(fds);
        let Some(frame) = frames.next() else { continue };
        let request = Request::decode(&frame).map_err(io::Error::other)?;
        let fds = std::mem::take(&mut came);
        let mut sent = Vec::new();
        let body = match request.body {
            RequestBody::Attach { channel, .. } => {
                if channel == Channel::Token {
                    let groups = announced(fds, shared.simulated)?;
                    sent = attach(pid, groups, shared)?;
                }
                ResponseBody::Attach { status: AttachStatus::Ok, page_version: PAGE_VERSION }
            }
            RequestBody::Contexts { .. } => {
                let groups = announced(fds, shared.simulated)?;
                shared.change(pid, |client| client.groups = groups);
                continue;
            }
            RequestBody::Quota { .. } if shared.withhold(pid, stream, request.id)? => continue,
            RequestBody::Quota { .. } => ENDLESS,
            RequestBody::MemLimit => ResponseBody::MemLimit { used: 0, limit: NO_MEMORY_LIMIT },
            RequestBody::MemUpdate { .. } => ResponseBody::MemUpdate { granted: true },
            RequestBody::Detach => ResponseBody::Detach,
            _ => continue,
        };
        answer(stream, request.id, body, &sent)?;
    }
}

pub(super) fn answer(stream: &UnixStream, id: i32, body: ResponseBody, fds: &[OwnedFd]) -> io::Result<()> {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    socket::send_with_fds(stream.as_fd(), &Response { id, body }.encode(), &fds)?;
    Ok(())
}

/// The channel groups that a process announces: the payload, and the control descriptors that its contexts refer to.
fn announced(fds: Vec<OwnedFd>, simulated: bool) -> io::Result<Vec<Group>> {
    let mut fds = fds.into_iter();
    let payload = fds.next().ok_or(io::ErrorKind::InvalidData)?;
    let payload = memfd::read_sealed(payload.as_fd(), MAX_LEN)?;
    let contexts = AttachPayload::decode(&payload).map_err(io::Error::other)?.contexts;
    let descriptors: Result<Vec<_>, _> =
        fds.map(|fd| Controls::from_descriptor(fd, simulated).map(Arc::new)).collect();
    let descriptors = descriptors.map_err(io::Error::other)?;
    let groups = contexts.into_iter().map(|handles| {
        let controls = usize::try_from(handles.descriptor).ok().and_then(|at| descriptors.get(at));
        Ok(Group { controls: Arc::clone(controls.ok_or(io::ErrorKind::InvalidData)?), handles })
    });
    groups.collect()
}

fn attach(pid: i32, groups: Vec<Group>, shared: &Shared) -> io::Result<Vec<OwnedFd>> {
    let (grant, writable) = SharedPage::create("doctor-grant")?;
    GrantView::new(grant.words()).init();
    let (report, report_fd) = SharedPage::create("doctor-report")?;
    ReportView::new(report.words()).init();
    let fds = vec![SharedPage::reopen_read_only(&writable)?, report_fd];
    shared.change(pid, |client| {
        client.groups = groups;
        client.pages = vec![grant, report];
    });
    // A release before this point did not find the page; a later one does.
    let state = shared.lock();
    if state.released.contains(&pid) {
        state.clients.get(&pid).and_then(|client| client.pages.first()).into_iter().for_each(open);
    }
    Ok(fds)
}

pub(super) fn open(grant: &SharedPage) {
    GrantView::new(grant.words()).open(UNLIMITED, UNLIMITED, 1);
}
