//! The driver's resource manager: objects that processes allocate by ioctl, and the controls of channel groups.
//!
//! [`Rm::request`] takes a request as bytes and returns the answer as bytes, with the time at which it is due. Controls are
//! applied to the engine. The resource manager reads no clock and no socket. The bytes are those of the real
//! driver ([`sluice_nvrm::abi`]), as are the rules. A client can be used only over the open file on which it was
//! allocated, by any process that has that file. Sizes are exact. Objects last until every descriptor of their file
//! is closed.

mod control;
mod object;
#[cfg(test)]
mod tests;

use crate::engine::{Control, Engine, GroupId};
use crate::fault::ControlFault;
use crate::params;
use object::Client;
use sluice_nvrm::NvStatus;
use sluice_nvrm::abi::{AllocBlock, ControlBlock, FreeBlock, Request};
use sluice_nvrm::transport::wire;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// An open file of the control device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(u64);

/// How the driver handles control requests for channel groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Support {
    /// As an unpatched driver with GSP.
    #[default]
    Full,
    /// Reports success without an effect.
    StatusOnly,
    /// Reports that controls are not supported.
    None,
}

/// An answer, and the time at which it is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The packet.
    pub bytes: Vec<u8>,
    /// Time of the engine's timeline, not before the request's.
    pub at_ns: u64,
}

/// The errno for a size or a number that the driver does not know.
const EINVAL: i32 = 22;

/// The resource manager of one GPU.
#[derive(Debug)]
pub struct Rm {
    /// UUID of the GPU, as NVML writes it.
    gpu: String,
    support: Support,
    fault: Option<ControlFault>,
    timeslice_us: u64,
    files: BTreeMap<FileId, BTreeMap<u32, Client>>,
    next_file: u64,
    client_numbers: ClientNumbers,
    next_group: u32,
    /// The GPU is busy with a control until this time; later controls wait.
    busy_until: u64,
}

/// First handle of a client (`docs/reference/driver-controls.md` §4).
const CLIENTS: u32 = 0xc1d0_0000;

/// The handle of the newest client. A driver numbers the clients of all its GPUs together.
#[derive(Debug, Clone)]
pub struct ClientNumbers(Arc<AtomicU32>);

impl Default for ClientNumbers {
    /// No client was made.
    fn default() -> Self {
        Self(Arc::new(AtomicU32::new(CLIENTS)))
    }
}

impl ClientNumbers {
    fn newest(&self) -> u32 {
        self.0.load(Relaxed)
    }

    fn next(&self) -> u32 {
        self.0.fetch_add(1, Relaxed) + 1
    }
}

impl Rm {
    /// A resource manager without clients of the GPU with this uuid; new groups get this time slice.
    pub fn new(gpu: [u8; 16], support: Support, timeslice_ns: u64) -> Self {
        Self {
            gpu: crate::identity::uuid_text(gpu),
            support,
            fault: None,
            timeslice_us: timeslice_ns / 1_000,
            files: BTreeMap::new(),
            next_file: 0,
            client_numbers: ClientNumbers::default(),
            next_group: 0,
            busy_until: 0,
        }
    }

    /// Numbers clients together with the resource managers of other GPUs.
    #[must_use]
    pub fn with_client_numbers(self, client_numbers: ClientNumbers) -> Self {
        Self { client_numbers, ..self }
    }

    /// Opens a file of the control device.
    pub fn open(&mut self) -> FileId {
        self.next_file += 1;
        let file = FileId(self.next_file);
        self.files.insert(file, BTreeMap::new());
        file
    }

    /// Ends the objects that were allocated over a file of which every descriptor has been closed.
    pub fn close(&mut self, file: FileId, engine: &mut Engine) {
        let clients = self.files.remove(&file).unwrap_or_default();
        clients.into_values().flat_map(Client::into_groups).for_each(|group| engine.remove_group(group));
    }

    /// Binds a channel group to a context. Earlier controls of the group apply to the context. Returns `false` if the
    /// group does not exist or has a context.
    pub fn bind(
        &mut self,
        file: FileId,
        client: u32,
        group: u32,
        context: GroupId,
        engine: &mut Engine,
    ) -> bool {
        let client = self.files.get_mut(&file).and_then(|clients| clients.get_mut(&client));
        let Some(client) = client else { return false };
        let Some(known) = client.group_mut(group).filter(|group| group.context.is_none()) else {
            return false;
        };
        known.context = Some(context);
        let slice_ns = known.timeslice_us.saturating_mul(1_000);
        if self.support == Support::Full {
            engine.control(context, Control::Timeslice(slice_ns));
            engine.control(context, Control::Access(client.access(group)));
        }
        true
    }

    /// Unbinds a context that has ended from its group.
    pub fn unbind(&mut self, context: GroupId) {
        for client in self.files.values_mut().flat_map(BTreeMap::values_mut) {
            client.unbind(context);
        }
    }

    /// Sets or removes the fault of the controls that are requested from here on.
    pub fn set_fault(&mut self, fault: Option<ControlFault>) {
        self.fault = fault;
    }

    /// The time at which the last control ends. Requests for memory wait until then.
    pub fn busy_until(&self) -> u64 {
        self.busy_until
    }

    /// Executes an ioctl made at `now` over a file: a request packet of [`wire`]. Returns the answer packet.
    pub fn request(&mut self, now: u64, file: FileId, packet: &[u8], engine: &mut Engine) -> Reply {
        let Some(request) = wire::decode_request(packet) else {
            return Reply { bytes: wire::encode_answer(EINVAL, &[], &[]), at_ns: now };
        };
        let (mut block, mut params) = (request.block.to_vec(), request.params.to_vec());
        let mut call = Call { now, file, at_ns: now + params::DRIVER_CALL_NS, engine };
        let outcome = self.dispatch(&mut call, request.nr, &mut block, &mut params);
        let errno = outcome.err().unwrap_or(0);
        Reply { bytes: wire::encode_answer(errno, &block, &params), at_ns: call.at_ns }
    }

    fn dispatch(
        &mut self,
        call: &mut Call<'_>,
        nr: u32,
        block: &mut [u8],
        params: &mut [u8],
    ) -> Result<(), i32> {
        if nr == u32::from(wire::NEWEST_CLIENT) {
            let newest: &mut [u8; 4] = params.try_into().map_err(|_| EINVAL)?;
            *newest = self.client_numbers.newest().to_le_bytes();
            return Ok(());
        }
        let len = u16::try_from(block.len()).map_err(|_| EINVAL)?;
        let request = Request { nr: u8::try_from(nr).map_err(|_| EINVAL)?, len };
        match request {
            Request::ALLOC | Request::ALLOC_WITH_RIGHTS => {
                let mut fields = AllocBlock::decode(block).ok_or(EINVAL)?;
                fields.status = self.alloc(call, &mut fields, params).0;
                if request == Request::ALLOC {
                    block.copy_from_slice(&fields.encode());
                } else {
                    block.copy_from_slice(&fields.encode_with_rights());
                }
            }
            Request::CONTROL => {
                let mut fields = ControlBlock::decode(block).ok_or(EINVAL)?;
                fields.status = self.control(call, &fields, params).0;
                block.copy_from_slice(&fields.encode());
            }
            Request::FREE => {
                let mut fields = FreeBlock::decode(block).ok_or(EINVAL)?;
                fields.status = self.free(call, fields).0;
                block.copy_from_slice(&fields.encode());
            }
            _ => return Err(EINVAL),
        }
        Ok(())
    }

    /// The client of this handle, if it was made over this file.
    fn client(&mut self, file: FileId, client: u32) -> Result<&mut Client, NvStatus> {
        let clients = self.files.get_mut(&file).ok_or(NvStatus::INVALID_CLIENT)?;
        clients.get_mut(&client).ok_or(NvStatus::INVALID_CLIENT)
    }

    fn free(&mut self, call: &mut Call<'_>, fields: FreeBlock) -> NvStatus {
        let client = match self.client(call.file, fields.client) {
            Ok(client) => client,
            Err(status) => return status,
        };
        let removed = if fields.object == fields.client {
            let clients = self.files.get_mut(&call.file);
            clients.and_then(|clients| clients.remove(&fields.client)).map(Client::into_groups)
        } else {
            client.remove(fields.object)
        };
        let Some(removed) = removed else { return NvStatus::INVALID_OBJECT_HANDLE };
        removed.into_iter().for_each(|group| call.engine.remove_group(group));
        NvStatus::OK
    }
}

struct Call<'a> {
    now: u64,
    file: FileId,
    /// The time of the answer.
    at_ns: u64,
    engine: &'a mut Engine,
}
