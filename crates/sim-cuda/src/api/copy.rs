//! Copies of plain memory.
//!
//! A call waits as with the real driver. A copy to pageable memory has completed when the call returns. From pageable
//! memory the bytes are read before the call returns. A copy within device memory never waits.

pub(crate) use super::array::*;

use super::memory::{address, span};
use super::with_twin;
use crate::border::{Ptr, Span, Status};
use crate::state::driver::{driver, driver_for_unsafe_call};
use crate::state::memory::Origin;
use crate::state::stream::{Effect, Null, Stream, stream};
use sluice_driver_api::types::*;
use sluice_sim::engine::{CopyEngine, Work};
use std::sync::Arc;

/// Largest number of pageable bytes that an asynchronous copy stages; a larger copy waits.
const STAGED: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Memory of the device, managed memory too.
    Device,
    /// Host memory that the device can reach.
    Pinned,
    /// Any other host memory.
    Pageable,
}

/// The kind of memory at an address of the unified address space. Memory that the driver does not know is pageable.
pub(super) fn side(at: usize) -> Result<Side, CUresult> {
    Ok(match driver()?.memory.find(at).map(|found| found.origin) {
        Some(Origin::Host | Origin::Registered) => Side::Pinned,
        Some(_) => Side::Device,
        None => Side::Pageable,
    })
}

/// Whether the caller waits for the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    Sync,
    Async,
}

pub(super) fn copy(to: (Span, Side), from: (Span, Side), stream: &Stream, waits: Waits) -> Status {
    let ((to, to_side), (from, from_side)) = (to, from);
    let engine = match (from_side, to_side) {
        (Side::Device, Side::Device) => CopyEngine::OnDevice,
        (Side::Device, _) => CopyEngine::ToHost,
        (_, Side::Device) => CopyEngine::ToDevice,
        _ => CopyEngine::OnDevice,
    };
    let work = Work::Copy { engine, bytes: to.len() as u64 };
    let is_pageable = from_side == Side::Pageable || to_side == Side::Pageable;
    let is_captured = stream.is_captured(|_| Ok(()))?;
    let memory = &driver()?.memory;
    let effect: Effect = if memory.is_read_only(to) {
        let context = stream.context.clone();
        Arc::new(move || context.fail(CUresult::ERROR_LAUNCH_FAILED))
    } else if from_side == Side::Pageable && to.len() <= STAGED && !is_captured {
        let staged = from.to_vec();
        Arc::new(move || to.overwrite(&staged))
    } else {
        Arc::new(move || from.copy_to(to))
    };
    stream.work(work, Some(effect))?;
    let must_wait = match waits {
        Waits::Sync => engine != CopyEngine::OnDevice || is_pageable,
        Waits::Async => to_side == Side::Pageable || (from_side == Side::Pageable && to.len() > STAGED),
    };
    if must_wait && !is_captured { stream.synchronize() } else { Ok(()) }
}

/// The default stream for a synchronous call. Such a call is forbidden during a capture.
pub(super) fn sync_stream(null: Null) -> Result<Arc<Stream>, CUresult> {
    driver_for_unsafe_call()?;
    stream(Ptr::<CUstream_st>::null(), null)
}

pub(super) fn host_end<T>(pointer: Ptr<T>, len: usize) -> Result<(Span, Side), CUresult> {
    Ok((Span::host(pointer, len)?, side(pointer.address())?))
}

fn device(pointer: CUdeviceptr, len: usize) -> Result<(Span, Side), CUresult> {
    Ok((span(pointer, len)?, side(address(pointer)?)?))
}

/// Device or host memory, by the address.
fn unified(pointer: CUdeviceptr, len: usize) -> Result<(Span, Side), CUresult> {
    let at = address(pointer)?;
    match side(at)? {
        Side::Pageable => host_end(Ptr::<c_void>::to_address(at), len),
        _ => device(pointer, len),
    }
}

with_twin! {
    fn cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds(to: CUdeviceptr, from: Ptr<c_void>, len: usize) |null|
        = copy(device(to, len)?, host_end(from, len)?, &*sync_stream(null)?, Waits::Sync);
    fn cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds(to: Ptr<c_void>, from: CUdeviceptr, len: usize) |null|
        = copy(host_end(to, len)?, device(from, len)?, &*sync_stream(null)?, Waits::Sync);
    fn cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds(to: CUdeviceptr, from: CUdeviceptr, len: usize) |null|
        = copy(device(to, len)?, device(from, len)?, &*sync_stream(null)?, Waits::Sync);
    fn cuMemcpy / cuMemcpy_ptds(to: CUdeviceptr, from: CUdeviceptr, len: usize) |null|
        = copy(unified(to, len)?, unified(from, len)?, &*sync_stream(null)?, Waits::Sync);
    fn cuMemcpyPeer / cuMemcpyPeer_ptds(
        to: CUdeviceptr, _to_context: Ptr<CUctx_st>, from: CUdeviceptr, _from_context: Ptr<CUctx_st>, len: usize
    ) |null|
        = copy(device(to, len)?, device(from, len)?, &*sync_stream(null)?, Waits::Sync);
    fn cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz(
        to: CUdeviceptr, from: Ptr<c_void>, len: usize, on: Ptr<CUstream_st>
    ) |null|
        = copy(device(to, len)?, host_end(from, len)?, &*stream(on, null)?, Waits::Async);
    fn cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz(
        to: Ptr<c_void>, from: CUdeviceptr, len: usize, on: Ptr<CUstream_st>
    ) |null|
        = copy(host_end(to, len)?, device(from, len)?, &*stream(on, null)?, Waits::Async);
    fn cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz(
        to: CUdeviceptr, from: CUdeviceptr, len: usize, on: Ptr<CUstream_st>
    ) |null|
        = copy(device(to, len)?, device(from, len)?, &*stream(on, null)?, Waits::Async);
    fn cuMemcpyAsync / cuMemcpyAsync_ptsz(to: CUdeviceptr, from: CUdeviceptr, len: usize, on: Ptr<CUstream_st>) |null|
        = copy(unified(to, len)?, unified(from, len)?, &*stream(on, null)?, Waits::Async);
    fn cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz(
        to: CUdeviceptr, _to_context: Ptr<CUctx_st>, from: CUdeviceptr, _from_context: Ptr<CUctx_st>, len: usize,
        on: Ptr<CUstream_st>
    ) |null|
        = copy(device(to, len)?, device(from, len)?, &*stream(on, null)?, Waits::Async);
}
