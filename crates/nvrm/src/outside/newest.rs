//! Where the driver's numbering of clients has got to.

use std::fs::File;
use std::io;

use crate::NvStatus;
use crate::abi::{AllocBlock, Request, class};
use crate::transport::{self, Transport};

/// Where the control device usually is.
const CONTROL: &str = "/dev/nvidiactl";

/// Makes a client and lets it go: its handle is above those of all that were made before, until the driver's numbering begins
/// again from below after a million.
///
/// # Errors
/// The control device cannot be opened, or the driver makes no client.
pub fn newest_client() -> io::Result<u32> {
    let opened = File::options().read(true).write(true).open(CONTROL);
    let file = opened.map_err(|why| io::Error::new(why.kind(), format!("{CONTROL}: {why}")))?;
    let way = transport::adopt(file.into(), false).map_err(io::Error::other)?;
    make(way.as_ref())
}

/// Closing the file frees the client.
fn make(way: &dyn Transport) -> io::Result<u32> {
    let mut block = AllocBlock { class: class::ROOT_CLIENT, ..AllocBlock::default() }.encode();
    way.escape(Request::ALLOC.nr, &mut block, &mut [])?;
    match AllocBlock::decode(&block) {
        Some(AllocBlock { status: 0, object, .. }) if object != 0 => Ok(object),
        made => {
            let status = NvStatus(made.map_or(u32::MAX, |made| made.status));
            Err(io::Error::other(format!("the driver makes no client: {status}")))
        }
    }
}
