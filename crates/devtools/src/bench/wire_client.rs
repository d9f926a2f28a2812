//! A client of the pod-manager without the hook, for benchmarks of the wire alone.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use sluice_comm::attach::{ATTACH_VERSION, AttachPayload};
use sluice_comm::page::GrantView;
use sluice_comm::{
    AttachStatus, Channel, FrameReader, Name, RESPONSE_LEN, Request, RequestBody, Response, ResponseBody,
};
use sluice_sys::page::{Access, SharedPage};
use sluice_sys::{memfd, socket};

/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// One connection.
#[derive(Debug)]
pub(crate) struct WireClient {
    stream: UnixStream,
    name: Name,
    next_id: i32,
    grant_page: Option<SharedPage>,
}

impl WireClient {
    /// Connects. Before [`WireClient::attach`] this is a peer of Gemini's protocol.
    pub(crate) fn connect(manager: &Path, name: &str) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(manager).context("the pod-manager does not listen")?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { stream, name: Name::new(name)?, next_id: 0, grant_page: None })
    }

    /// Makes this the token channel of this process.
    pub(crate) fn attach(&mut self) -> anyhow::Result<()> {
        let pages = self.attach_channel(Channel::Token)?;
        let grant = pages.first().context("the pod-manager gave no grant page")?;
        self.grant_page =
            Some(SharedPage::map(grant.as_fd(), Access::ReadOnly).context("cannot map the grant page")?);
        Ok(())
    }

    /// Makes this the memory channel of this process.
    pub(crate) fn attach_memory(&mut self) -> anyhow::Result<()> {
        self.attach_channel(Channel::Memory).map(drop)
    }

    /// Returns the descriptors that came with the answer.
    fn attach_channel(&mut self, channel: Channel) -> anyhow::Result<Vec<OwnedFd>> {
        let payload = AttachPayload {
            pid: std::process::id(),
            device_ordinal: 0,
            device_uuid: [0; 16],
            contexts: Vec::new(),
        };
        let payload =
            memfd::sealed("sluice-attach", &payload.encode()).context("cannot make the attach payload")?;
        let request = self.request(RequestBody::Attach { version: ATTACH_VERSION, channel, used_bytes: 0 });
        let frame = request.encode()?;
        let sent = socket::send_with_fds(self.stream.as_fd(), &frame, &[payload.as_fd()])
            .context("cannot attach")?;
        if sent != frame.len() {
            bail!("ATTACH was cut short");
        }
        let mut frames = FrameReader::<RESPONSE_LEN>::new();
        let mut pages = Vec::new();
        let answer = loop {
            let (read, fds) =
                socket::recv_with_fds(self.stream.as_fd(), frames.spare()).context("no answer to ATTACH")?;
            if read == 0 {
                bail!("the pod-manager closed the connection after ATTACH");
            }
            pages.extend(fds);
            frames.filled(read);
            if let Some(frame) = frames.next() {
                break Response::decode(&frame, request.body.kind())?;
            }
        };
        let ResponseBody::Attach { status: AttachStatus::Ok, .. } = answer.body else {
            bail!("the pod-manager refuses: {answer:?}");
        };
        Ok(pages)
    }

    /// Sends a request and waits for the answer. Fails if the answer belongs to another request.
    pub(crate) fn ask(&mut self, body: RequestBody) -> anyhow::Result<ResponseBody> {
        let request = self.send(body)?;
        let mut frame = [0; RESPONSE_LEN];
        self.stream.read_exact(&mut frame).context("no answer from the pod-manager")?;
        let answer = Response::decode(&frame, request.body.kind())?;
        if answer.id != request.id {
            bail!("the answer is to {} and not to {}", answer.id, request.id);
        }
        Ok(answer.body)
    }

    pub(crate) fn send(&mut self, body: RequestBody) -> anyhow::Result<Request> {
        let request = self.request(body);
        self.stream.write_all(&request.encode()?).context("cannot write to the pod-manager")?;
        Ok(request)
    }

    /// Deadline of the grant in the grant page, CLOCK_MONOTONIC in nanoseconds; 0 if the launch gate is closed.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.grant_page.as_ref().map_or(0, |page| GrantView::new(page.words()).deadline_ns())
    }

    fn request(&mut self, body: RequestBody) -> Request {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        Request { name: self.name, id, body }
    }
}
