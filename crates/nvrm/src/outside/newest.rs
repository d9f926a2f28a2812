//! Where the driver's numbering of clients has got to.

use std::fs::File;
use std::io;

use crate::NvStatus;
use crate::abi::{AllocBlock, FreeBlock, Request, class};
use crate::transport::{self, Transport};

/// Where the control device usually is.
const CONTROL: &str = "/dev/nvidiactl";

/// A file of the control device of our own, on which clients are made to see their numbers.
#[derive(Debug, Default)]
pub struct Newest(Option<Box<dyn Transport + Send>>);

impl Newest {
    /// Makes a client and lets it go: its handle is above those of all that were made before, until the numbering begins again.
    ///
    /// # Errors
    /// The control device cannot be opened, or the driver makes no client.
    pub fn client(&mut self) -> io::Result<u32> {
        let way = match self.0.take() {
            Some(way) => way,
            None => open()?,
        };
        // One that fails is opened anew.
        let client = make(way.as_ref())?;
        self.0 = Some(way);
        Ok(client)
    }
}

/// As [`Newest::client`], for once.
///
/// # Errors
/// As there.
pub fn newest_client() -> io::Result<u32> {
    Newest::default().client()
}

fn open() -> io::Result<Box<dyn Transport + Send>> {
    let opened = File::options().read(true).write(true).open(CONTROL);
    let file = opened.map_err(|why| io::Error::new(why.kind(), format!("{CONTROL}: {why}")))?;
    transport::adopt(file.into(), false).map_err(io::Error::other)
}

fn make(way: &dyn Transport) -> io::Result<u32> {
    let mut block = AllocBlock { class: class::ROOT_CLIENT, ..AllocBlock::default() }.encode();
    way.escape(Request::ALLOC.nr, &mut block, &mut [])?;
    let client = match AllocBlock::decode(&block) {
        Some(AllocBlock { status: 0, object, .. }) if object != 0 => object,
        made => {
            let status = NvStatus(made.map_or(u32::MAX, |made| made.status));
            return Err(io::Error::other(format!("the driver makes no client: {status}")));
        }
    };
    let mut block = FreeBlock { client, object: client, ..FreeBlock::default() }.encode();
    way.escape(Request::FREE.nr, &mut block, &mut [])?;
    Ok(client)
}
