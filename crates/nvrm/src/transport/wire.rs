//! Escapes on the simulator's control socket.
//!
//! ```text
//! request   u32 nr, u32 block length, u32 parameter length, block, parameters      one packet
//! answer    i32 errno, block, parameters
//! ```
//! All numbers are little-endian; pointers in the block are 0. A request may carry one descriptor, a stream socket: then the answer is
//! written to that. Otherwise the answer is a packet on the connection itself.

use std::io;

/// A request with 4 bytes of parameters, to which the simulator writes the handle of the newest client. A real driver has no such request;
/// there the manager makes a client over an open file of its own.
pub const NEWEST_CLIENT: u8 = 0xfe;
/// The longest block.
pub const MAX_BLOCK: usize = 48;
/// The longest parameters.
pub const MAX_PARAMS: usize = 4096;
/// The longest request.
pub const MAX_REQUEST: usize = HEADER + MAX_BLOCK + MAX_PARAMS;

const HEADER: usize = 12;
const ERRNO: usize = 4;

/// A decoded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The function.
    pub nr: u32,
    /// Its block.
    pub block: &'a [u8],
    /// Its parameters.
    pub params: &'a [u8],
}

/// Encodes a request as a packet; `None` if it is too long.
pub fn encode_request(nr: u32, block: &[u8], params: &[u8]) -> Option<Vec<u8>> {
    if block.len() > MAX_BLOCK || params.len() > MAX_PARAMS {
        return None;
    }
    let lengths = [u32::try_from(block.len()).ok()?, u32::try_from(params.len()).ok()?];
    let mut packet = nr.to_le_bytes().to_vec();
    packet.extend(lengths.into_iter().flat_map(u32::to_le_bytes));
    packet.extend(block);
    packet.extend(params);
    Some(packet)
}

/// Decodes a packet; `None` if its lengths do not add up to its size.
pub fn decode_request(packet: &[u8]) -> Option<Request<'_>> {
    let (header, rest) = packet.split_at_checked(HEADER)?;
    let word = |at: usize| header.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let (nr, block, params) = (word(0)?, usize::try_from(word(4)?).ok()?, usize::try_from(word(8)?).ok()?);
    if block > MAX_BLOCK || params > MAX_PARAMS || rest.len() != block + params {
        return None;
    }
    let (block, params) = rest.split_at(block);
    Some(Request { nr, block, params })
}

/// Encodes the answer to a request.
pub fn encode_answer(errno: i32, block: &[u8], params: &[u8]) -> Vec<u8> {
    [&errno.to_le_bytes(), block, params].concat()
}

/// Size in bytes of the answer to a request with this block and these parameters.
pub fn answer_len(block: &[u8], params: &[u8]) -> usize {
    ERRNO + block.len() + params.len()
}

/// Decodes an answer into the request's block and parameters.
/// Errors: the errno of the answer; InvalidData if it has another length.
pub fn read_answer(answer: &[u8], block: &mut [u8], params: &mut [u8]) -> io::Result<()> {
    let (errno, rest) = answer.split_at_checked(ERRNO).ok_or(io::ErrorKind::InvalidData)?;
    let errno = errno.try_into().map_or(0, i32::from_le_bytes);
    if rest.len() != block.len() + params.len() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if errno != 0 {
        return Err(io::Error::from_raw_os_error(errno));
    }
    let (new_block, new_params) = rest.split_at(block.len());
    block.copy_from_slice(new_block);
    params.copy_from_slice(new_params);
    Ok(())
}
