//! What a frame means, by what its connection is.

use super::DataPlane;
use crate::connection::{Role, Transport};
use crate::identity::{Claim, Identity};
use crate::process::{MAX_PENDING, Process};
use crate::reason::Reason;
use sluice_comm::{Name, Request, RequestBody, Response, ResponseBody};
use sluice_core::ledger::{Ask, PeerKind, Returned};
use sluice_core::memory::Verdict;
use sluice_core::{ClientId, ProcessId};
use std::os::fd::OwnedFd;
use tracing::{debug, warn};

/// Whose process a peer is.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) client: ClientId,
    /// The container that it is in, where identity knows it.
    pub(super) container: Option<String>,
}

/// A frame was dealt with, or its connection is to be closed.
pub(super) type Outcome = Result<(), Reason>;

impl DataPlane {
    pub(super) fn handle(&mut self, number: u64, request: &Request, fds: &mut Vec<OwnedFd>) -> Outcome {
        let Some(connection) = self.connections.get(&number) else { return Ok(()) };
        let (role, transport) = (connection.role, connection.transport);
        if let RequestBody::Attach { version, channel, used_bytes } = request.body {
            return match (role, transport) {
                (_, Transport::Tcp) => Err(Reason::OutOfOrder("ATTACH over TCP")),
                (Role::New, Transport::Unix) => {
                    self.attach(number, request, version, channel, used_bytes, fds)
                }
                _ => self.attach_twice(number, request.id),
            };
        }
        if let (RequestBody::Contexts { version }, Role::Attached(process, _)) = (request.body, role) {
            return self.replace_contexts(number, process, version, fds);
        }
        if !fds.is_empty() {
            return Err(Reason::BadPayload(
                "a descriptor beside something else than ATTACH and CONTEXTS".into(),
            ));
        }
        match role {
            Role::Attached(process, _) => self.handle_attached(number, process, request),
            // What is held is not read.
            Role::Held => Ok(()),
            Role::New | Role::Legacy(_) => self.handle_legacy(number, request),
        }
    }

    fn handle_attached(&mut self, number: u64, process: ProcessId, request: &Request) -> Outcome {
        match request.body {
            // A grant that it held before it was steered: what it ran since is known better here.
            RequestBody::Yield { .. } if self.is_steered(process) => Ok(()),
            RequestBody::Yield { used_ms, overuse_ms } => {
                let now = self.clock.now_ns();
                let outcome = self.tokens.returned(process, now, ms_to_ns(used_ms), ms_to_ns(overuse_ms));
                if outcome == Ok(Returned::NothingHeld) {
                    debug!(?process, "returned a grant that it does not hold");
                    return Ok(());
                }
                if let Some(pages) = self.processes.get(&process).and_then(|process| process.pages.as_ref()) {
                    pages.grant().close();
                }
                Ok(())
            }
            RequestBody::Hint { lead_us } => {
                self.announced_work(process, lead_us);
                Ok(())
            }
            RequestBody::Detach => {
                self.answer(number, request.id, ResponseBody::Detach)?;
                self.drop_connection(number);
                Ok(())
            }
            _ => self.handle_common(number, process, request),
        }
    }

    /// The requests of the old protocol, from whichever peer.
    fn handle_common(&mut self, number: u64, id: ProcessId, request: &Request) -> Outcome {
        match request.body {
            RequestBody::Quota { overuse_ms, next_burst_ms } => {
                let now = self.clock.now_ns();
                let Some(process) = self.processes.get_mut(&id) else { return Ok(()) };
                if process.token != Some(number) {
                    return Err(Reason::OutOfOrder("QUOTA on the memory channel"));
                }
                if process.pending.len() >= MAX_PENDING {
                    return Err(Reason::OutOfOrder("too many QUOTA requests at once"));
                }
                process.pending.push(request.id);
                if process.steered {
                    self.answer_pending(id);
                    return Ok(());
                }
                let ask = Ask { burst_ns: ms_to_ns(next_burst_ms), overuse_ns: ms_to_ns(overuse_ms) };
                if let Err(refused) = self.tokens.request(id, now, ask) {
                    debug!(%refused, "request for a token");
                }
                Ok(())
            }
            RequestBody::MemLimit => {
                let client = self.processes.get(&id).map(|process| process.client);
                let account = client.and_then(|client| self.memory.client(client)).unwrap_or_default();
                self.answer(
                    number,
                    request.id,
                    ResponseBody::MemLimit { used: account.used, limit: account.limit },
                )
            }
            RequestBody::MemUpdate { bytes, allocate } => {
                let granted = self.update_memory(id, bytes, allocate);
                self.answer(number, request.id, ResponseBody::MemUpdate { granted })
            }
            _ => Err(Reason::OutOfOrder("a request of the extended protocol before ATTACH")),
        }
    }

    fn handle_legacy(&mut self, number: u64, request: &Request) -> Outcome {
        let Some(connection) = self.connections.get(&number) else { return Ok(()) };
        let (role, transport) = (connection.role, connection.transport);
        if matches!(
            request.body,
            RequestBody::Yield { .. }
                | RequestBody::Hint { .. }
                | RequestBody::Detach
                | RequestBody::Contexts { .. }
        ) {
            return Err(Reason::OutOfOrder("a request of the extended protocol before ATTACH"));
        }
        let found = match self.who(number, &request.name) {
            Ok(found) => found,
            // Gemini's peers take a closed connection for an answer, so they get silence, as from Gemini.
            Err(reason) if transport == Transport::Tcp => {
                self.log_silence(number, &reason);
                return Ok(());
            }
            Err(reason) => return Err(reason),
        };
        let client = found.client;
        let process = match role {
            Role::Legacy(process) => {
                let first = self.processes.get(&process).map(|process| process.client);
                if let Some(first) = first.filter(|first| *first != client) {
                    let (first, second) =
                        (self.clients.name(first).to_owned(), self.clients.name(client).to_owned());
                    return Err(Reason::NameChanged { first, second });
                }
                process
            }
            _ => self.add_legacy(number, found)?,
        };
        self.handle_common(number, process, request)
    }

    /// Says once per connection that it gets no answers: its peer may ask again and again.
    fn log_silence(&mut self, number: u64, reason: &Reason) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if !std::mem::replace(&mut connection.silence_logged, true)
            && self.throttle.pass("silence", self.clock.now_ns()).is_some()
        {
            warn!(peer = %connection, "gets no answer: {reason}");
        }
    }

    /// A connection of the old protocol becomes a process by itself.
    fn add_legacy(&mut self, number: u64, found: Found) -> Result<ProcessId, Reason> {
        let Found { client, container } = found;
        let id = ProcessId(self.next_number(true));
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(id) };
        connection.role = Role::Legacy(id);
        let process = Process {
            pid: connection.pid,
            pidfd: connection.peer.take().and_then(|peer| peer.pidfd),
            token: Some(number),
            ..Process::new(client, connection.label.clone(), container)
        };
        self.memory.open(id, client);
        let added = self.tokens.add_process(id, client, PeerKind::ByTimer);
        self.keep_process(id, process);
        added.map_err(|_| Reason::ClientRemoved)?;
        Ok(id)
    }

    /// The client that the peer of a connection belongs to, when it claims this name.
    pub(super) fn who(&mut self, number: u64, name: &Name) -> Result<Found, Reason> {
        // A peer of the old protocol is asked anew with every frame; its process knows its pod already.
        let connection = self.connections.get(&number);
        if let Some(Role::Legacy(process)) = connection.map(|connection| connection.role)
            && self.recognises_pods
            && let Some(process) = self.processes.get(&process)
        {
            return Ok(Found { client: process.client, container: None });
        }
        let peer = connection.and_then(|connection| connection.peer.as_ref());
        let identity = self
            .identify
            .identify(&Claim { name, peer })
            .map_err(|refusal| Reason::NotAllowed(refusal.to_string()))?;
        let client = self.clients.find(&identity);
        match (client, identity) {
            (Some(client), Identity::Named(_)) => Ok(Found { client, container: None }),
            (Some(client), Identity::Pod(pod)) => Ok(Found { client, container: pod.container }),
            (None, Identity::Named(name)) => Err(Reason::UnknownClient(name.as_str().to_owned())),
            (None, Identity::Pod(pod)) => Err(Reason::UnknownPod { uid: pod.uid, waited_ms: 0 }),
        }
    }

    pub(super) fn answer(&mut self, number: u64, id: i32, body: ResponseBody) -> Outcome {
        let Some(connection) = self.connections.get(&number) else { return Ok(()) };
        connection.send(&Response { id, body }, &[])
    }

    fn is_steered(&self, id: ProcessId) -> bool {
        self.processes.get(&id).is_some_and(|process| process.steered)
    }

    fn update_memory(&mut self, id: ProcessId, bytes: u64, allocate: bool) -> bool {
        let granted = if allocate {
            self.memory.reserve(id, bytes) == Verdict::Granted
        } else {
            let released = self.memory.release(id, bytes);
            if released < bytes {
                debug!(process = ?id, bytes, released, "released more than it holds");
            }
            true
        };
        if !granted
            && let Some(client) = self.processes.get(&id).and_then(|process| self.clients.get(process.client))
        {
            client.metrics.memory_denied.inc();
            debug!(client = client.name, bytes, "memory denied");
        }
        granted
    }
}

/// Milliseconds of the wire, checked there to be finite and not negative, in nanoseconds; saturates.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float to integer conversion saturates, and the codec lets no negative time through"
)]
fn ms_to_ns(ms: f64) -> u64 {
    (ms * 1e6) as u64
}
