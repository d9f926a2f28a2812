//! How the driver numbers its clients, and the newest number that it has given out.
//!
//! All processes share one numbering. It goes up from a base; after a million clients it begins again and leaves out the numbers of
//! living clients (`rs_server.c`, `_serverCreateEntryAndLockForNewClient`). If a number is taken, the driver steps 1,024 further, so a
//! client may get a number somewhat above the next one.

use std::fs::File;
use std::io;

use crate::NvStatus;
use crate::abi::{AllocBlock, FreeBlock, Request, class};
use crate::transport::{self, Transport};

/// The lowest client handle.
pub const FIRST_CLIENT: u32 = 0xc1d0_0000;
/// How many client numbers there are.
pub const CLIENT_NUMBERS: u64 = 1 << 20;
/// Numbers that are searched first if the newest number is not known.
const ASSUMED_CLIENTS: u64 = 512;
/// A reading that is behind the last one by less than this begins no new round: the last one had stepped over taken numbers.
const MAX_STEPPED_OVER: u64 = 1 << 16;

/// A position in the numbering, counted without wrapping: a number that is given out again is another position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientPosition(pub(super) u64);

impl ClientPosition {
    /// The handle of a client with this number.
    pub(super) fn handle(self) -> u32 {
        let number = self.0 % CLIENT_NUMBERS;
        FIRST_CLIENT | u32::try_from(number).unwrap_or_default()
    }
}

/// If a number is taken, the driver steps so far ahead, and gives out the numbers in between afterwards.
const STEP: u64 = 1_024;

/// The position that the numbering has reached, from handles of clients made at the time of observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientNumbering {
    newest: ClientPosition,
    /// The newest position may be one that the driver has stepped to, so that older ones are given out after it.
    has_stepped: bool,
}

impl Default for ClientNumbering {
    /// Nothing was observed: assumes that few clients were made.
    fn default() -> Self {
        Self::at(CLIENT_NUMBERS + ASSUMED_CLIENTS)
    }
}

impl ClientNumbering {
    /// The next reading tells whether the driver has stepped.
    fn at(position: u64) -> Self {
        Self { newest: ClientPosition(position), has_stepped: true }
    }

    /// From the handle of a client made just now, if one could be made.
    pub fn from_newest(newest: Option<u32>) -> Self {
        let number = newest.and_then(number);
        number.map_or_else(Self::default, |number| Self::at(CLIENT_NUMBERS + number))
    }

    /// Takes in the handle of a client made just now.
    pub fn observe(&mut self, client: u32) {
        let Some(number) = number(client) else { return };
        if *self == Self::default() {
            *self = Self::from_newest(Some(client));
            return;
        }
        let ahead = (CLIENT_NUMBERS + number - self.newest.0 % CLIENT_NUMBERS) % CLIENT_NUMBERS;
        self.has_stepped = ahead >= STEP;
        if ahead < CLIENT_NUMBERS - MAX_STEPPED_OVER {
            self.newest.0 += ahead;
        }
    }

    /// The position of the newest observed client.
    pub fn newest(&self) -> ClientPosition {
        self.newest
    }

    /// Whether numbers below the newest one may be given out after it.
    pub(super) fn has_stepped(&self) -> bool {
        self.has_stepped
    }

    /// How many numbers were given out, if the numbering has not begun again.
    pub(super) fn count(&self) -> u64 {
        self.newest.0 - CLIENT_NUMBERS + 1
    }
}

fn number(client: u32) -> Option<u64> {
    client.checked_sub(FIRST_CLIENT).map(u64::from).filter(|number| *number < CLIENT_NUMBERS)
}

/// The usual path of the control device.
const CONTROL_DEVICE_PATH: &str = "/dev/nvidiactl";

/// An open file of the control device on which clients are made to read their numbers.
#[derive(Debug, Default)]
pub struct NewestClient(Option<Box<dyn Transport + Send>>);

impl NewestClient {
    /// Makes a client and frees it. Its number is above those of all earlier clients, until the numbering begins again.
    /// Errors: the control device cannot be opened, or the driver makes no client. The next call opens the device
    /// again.
    pub fn read(&mut self) -> io::Result<u32> {
        let transport = match self.0.take() {
            Some(transport) => transport,
            None => open()?,
        };
        let client = make_and_free(transport.as_ref())?;
        self.0 = Some(transport);
        Ok(client)
    }
}

/// As [`NewestClient::read`], once.
pub fn newest_client() -> io::Result<u32> {
    NewestClient::default().read()
}

fn open() -> io::Result<Box<dyn Transport + Send>> {
    let opened = File::options().read(true).write(true).open(CONTROL_DEVICE_PATH);
    let file = opened.map_err(|why| io::Error::new(why.kind(), format!("{CONTROL_DEVICE_PATH}: {why}")))?;
    transport::open_transport(file.into(), false).map_err(io::Error::other)
}

fn make_and_free(transport: &dyn Transport) -> io::Result<u32> {
    let mut block = AllocBlock { class: class::ROOT_CLIENT, ..AllocBlock::default() }.encode();
    transport.escape(Request::ALLOC.nr, &mut block, &mut [])?;
    let client = match AllocBlock::decode(&block) {
        Some(AllocBlock { status: 0, object, .. }) if object != 0 => object,
        refused => {
            let status = NvStatus(refused.map_or(u32::MAX, |block| block.status));
            return Err(io::Error::other(format!("the driver makes no client: {status}")));
        }
    };
    let mut block = FreeBlock { client, object: client, ..FreeBlock::default() }.encode();
    transport.escape(Request::FREE.nr, &mut block, &mut [])?;
    Ok(client)
}

#[cfg(test)]
mod tests;
