//! Device memory that other processes import. It counts for the process that allocated it, and for no other: measured on an H200
//! (docs/design/memory.md).

use super::context::Context;
use super::lock;
use super::mapping::{Mapping, file};
use super::memory::{Memory, Origin, Piece};
use crate::border::Span;
use sluice_driver_api::CUresult;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

/// The part of an allocation that is copied at once when its memory becomes a file.
const PART: usize = 64 << 10;

/// Where a process finds the memory of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Export {
    pub(crate) pid: u32,
    pub(crate) descriptor: i32,
    pub(crate) len: u64,
}

impl Memory {
    /// Makes an allocation one that other processes can import. Its context has no work in progress.
    pub(crate) fn export(&self, address: usize) -> Result<Export, CUresult> {
        let piece = self.at(address).filter(|piece| piece.origin == Origin::Device);
        let piece = piece.ok_or(CUresult::ERROR_INVALID_VALUE)?;
        let mut known = lock(&piece.exported);
        if known.is_none() {
            *known = Some(share(&piece).map_err(|_| CUresult::ERROR_OUT_OF_MEMORY)?);
        }
        let descriptor = known.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        Ok(Export { pid: std::process::id(), descriptor, len: piece.len as u64 })
    }

    /// Maps memory that another process has exported. Returns its address.
    pub(crate) fn import(&self, context: &Context, export: Export) -> Result<usize, CUresult> {
        if export.pid == std::process::id() {
            return Err(CUresult::ERROR_INVALID_CONTEXT);
        }
        let path = format!("/proc/{}/fd/{}", export.pid, export.descriptor);
        let unknown = |_| CUresult::ERROR_INVALID_VALUE;
        let file = File::options().read(true).write(true).open(path).map_err(unknown)?;
        let len = usize::try_from(export.len).map_err(|_| CUresult::ERROR_INVALID_VALUE)?;
        let mapping = Mapping::memory(len).map_err(|_| CUresult::ERROR_OUT_OF_MEMORY)?;
        mapping.back(0, len, Some(file.as_fd())).map_err(unknown)?;
        let address = mapping.address();
        let (device, context) = (context.device.clone(), context.handle);
        self.keep(Piece {
            address,
            len,
            origin: Origin::Imported,
            device,
            context,
            flags: 0,
            mapping: Some(mapping),
            is_backed: false.into(),
            exported: Default::default(),
        });
        Ok(address)
    }
}

/// Replaces the pages of an allocation by those of a file with the same content.
fn share(piece: &Piece) -> std::io::Result<File> {
    let mapping = piece.mapping.as_ref().ok_or(std::io::ErrorKind::InvalidInput)?;
    let file = File::from(file(piece.len)?);
    for offset in (0..piece.len).step_by(PART) {
        let part = Span::found(piece.address + offset, PART.min(piece.len - offset)).to_vec();
        if part.iter().any(|byte| *byte != 0) {
            file.write_all_at(&part, offset as u64)?;
        }
    }
    mapping.back(0, piece.len, Some(file.as_fd()))?;
    Ok(file)
}
