//! The newest client number that the driver has given out.

use std::fs::File;
use std::io;

use crate::NvStatus;
use crate::abi::{AllocBlock, FreeBlock, Request, class};
use crate::transport::{self, Transport};

/// The usual path of the control device.
const CONTROL_DEVICE: &str = "/dev/nvidiactl";

/// An open file of the control device on which clients are made to read their numbers.
#[derive(Debug, Default)]
pub struct NewestClient(Option<Box<dyn Transport + Send>>);

impl NewestClient {
    /// Makes a client and frees it. Its number is above those of all earlier clients, until the numbering begins again.
    ///
    /// # Errors
    /// The control device cannot be opened, or the driver makes no client. The next call opens the device again.
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
///
/// # Errors
/// As [`NewestClient::read`].
pub fn newest_client() -> io::Result<u32> {
    NewestClient::default().read()
}

fn open() -> io::Result<Box<dyn Transport + Send>> {
    let opened = File::options().read(true).write(true).open(CONTROL_DEVICE);
    let file = opened.map_err(|why| io::Error::new(why.kind(), format!("{CONTROL_DEVICE}: {why}")))?;
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
