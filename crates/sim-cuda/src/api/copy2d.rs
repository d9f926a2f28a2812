//! Copies of rows and boxes, and of arrays.

pub(crate) use super::copy::*;

use super::array::{array_pitch, array_span};
use super::copy::{Side, Waits, host_end, side, sync_stream};
use super::memory::span;
use super::with_twin;
use crate::border::{Ptr, Span, Status};
use crate::state::stream::{Effect, Null, Stream, stream};
use sluice_driver_api::types::*;
use sluice_sim::engine::{CopyEngine, Work};
use std::sync::Arc;

/// One end of a copy: rows of bytes, in slices.
#[derive(Clone)]
struct Box3 {
    whole: Span,
    side: Side,
    /// Bytes from row to row.
    pitch: usize,
    /// Rows from slice to slice.
    height: usize,
    /// Offset of the first byte in `whole`.
    first: usize,
}

/// The size of a copy: bytes of a row, rows, slices.
type Extent = [usize; 3];

/// The fields of one end, as the structs for two and three dimensions have them.
struct End {
    kind: CUmemorytype,
    host: Ptr<c_void>,
    device: CUdeviceptr,
    array: Ptr<CUarray_st>,
    pitch: usize,
    height: usize,
    at: Extent,
}

impl End {
    fn resolve(self, extent: Extent) -> Result<Box3, CUresult> {
        let [width, rows, slices] = extent;
        let (pitch, height) = match self.kind {
            CU_MEMORYTYPE_ARRAY => array_pitch(self.array)?,
            _ => (if self.pitch == 0 { width } else { self.pitch }, self.height.max(rows)),
        };
        if pitch < width && rows > 1 {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        let offset = |[x, y, z]: Extent| {
            let rows = z.checked_mul(height)?.checked_add(y)?;
            rows.checked_mul(pitch)?.checked_add(x)
        };
        let first = offset(self.at).ok_or(CUresult::ERROR_INVALID_VALUE)?;
        let last = offset([width, rows - 1, slices - 1]).ok_or(CUresult::ERROR_INVALID_VALUE)?;
        let len = first.checked_add(last).ok_or(CUresult::ERROR_INVALID_VALUE)?;
        let (whole, side) = match self.kind {
            CU_MEMORYTYPE_HOST => host_end(self.host, len)?,
            CU_MEMORYTYPE_ARRAY => (array_span(self.array, 0, len)?, Side::Device),
            CU_MEMORYTYPE_DEVICE => (span(self.device, len)?, Side::Device),
            CU_MEMORYTYPE_UNIFIED => {
                let at = usize::try_from(self.device).map_err(|_| CUresult::ERROR_INVALID_VALUE)?;
                (Span::host(Ptr::<c_void>::to_address(at), len)?, side(at)?)
            }
            _ => return Err(CUresult::ERROR_INVALID_VALUE),
        };
        Ok(Box3 { whole, side, pitch, height, first })
    }
}

impl Box3 {
    fn row(&self, row: usize, slice: usize, width: usize) -> Span {
        Span::found(self.whole.address() + self.first + (slice * self.height + row) * self.pitch, width)
    }
}

fn copy_box(to: End, from: End, extent: Extent, stream: &Stream, waits: Waits) -> Status {
    if extent.contains(&0) {
        return Ok(());
    }
    let (to, from) = (to.resolve(extent)?, from.resolve(extent)?);
    let engine = match (from.side, to.side) {
        (Side::Device, Side::Device) => CopyEngine::OnDevice,
        (Side::Device, _) => CopyEngine::ToHost,
        _ => CopyEngine::ToDevice,
    };
    let pageable = from.side == Side::Pageable || to.side == Side::Pageable;
    let [width, rows, slices] = extent;
    let effect: Effect = Arc::new(move || {
        for (slice, row) in (0..slices).flat_map(|slice| (0..rows).map(move |row| (slice, row))) {
            from.row(row, slice, width).copy_to(to.row(row, slice, width));
        }
    });
    stream.work(Work::Copy { engine, bytes: (width * rows * slices) as u64 }, Some(effect))?;
    let is_captured = stream.is_captured(|_| Ok(()))?;
    let must_wait = pageable || (waits == Waits::Sync && engine != CopyEngine::OnDevice);
    if must_wait && !is_captured { stream.synchronize() } else { Ok(()) }
}

/// Both ends of a copy. The struct for two dimensions has no height of slices and no third offset.
macro_rules! ends {
    ($copy:ident, to: ($to_height:expr, $to_z:expr), from: ($from_height:expr, $from_z:expr)) => {{
        let to = End {
            kind: $copy.dstMemoryType,
            host: Ptr::to_address($copy.dstHost.expose_provenance()),
            device: $copy.dstDevice,
            array: Ptr::to_address($copy.dstArray.expose_provenance()),
            pitch: $copy.dstPitch,
            height: $to_height,
            at: [$copy.dstXInBytes, $copy.dstY, $to_z],
        };
        let from = End {
            kind: $copy.srcMemoryType,
            host: Ptr::to_address($copy.srcHost.expose_provenance()),
            device: $copy.srcDevice,
            array: Ptr::to_address($copy.srcArray.expose_provenance()),
            pitch: $copy.srcPitch,
            height: $from_height,
            at: [$copy.srcXInBytes, $copy.srcY, $from_z],
        };
        (to, from)
    }};
}

fn copy_2d(copy: Ptr<CUDA_MEMCPY2D>, stream: &Stream, waits: Waits) -> Status {
    let copy = copy.read()?;
    let (to, from) = ends!(copy, to: (0, 0), from: (0, 0));
    copy_box(to, from, [copy.WidthInBytes, copy.Height, 1], stream, waits)
}

fn copy_3d(copy: Ptr<CUDA_MEMCPY3D>, stream: &Stream, waits: Waits) -> Status {
    let copy = copy.read()?;
    let (to, from) = ends!(copy, to: (copy.dstHeight, copy.dstZ), from: (copy.srcHeight, copy.srcZ));
    copy_box(to, from, [copy.WidthInBytes, copy.Height, copy.Depth], stream, waits)
}

with_twin! {
    fn cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds(copy: Ptr<CUDA_MEMCPY2D>) |null|
        = copy_2d(copy, &*sync_stream(null)?, Waits::Sync);
    fn cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds(copy: Ptr<CUDA_MEMCPY2D>) |null|
        = copy_2d(copy, &*sync_stream(null)?, Waits::Sync);
    fn cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz(copy: Ptr<CUDA_MEMCPY2D>, on: Ptr<CUstream_st>) |null|
        = copy_2d(copy, &*stream(on, null)?, Waits::Async);
    fn cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds(copy: Ptr<CUDA_MEMCPY3D>) |null|
        = copy_3d(copy, &*sync_stream(null)?, Waits::Sync);
    fn cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz(copy: Ptr<CUDA_MEMCPY3D>, on: Ptr<CUstream_st>) |null|
        = copy_3d(copy, &*stream(on, null)?, Waits::Async);
    fn cuMemcpyHtoA_v2 / cuMemcpyHtoA_v2_ptds(to: Ptr<CUarray_st>, offset: usize, from: Ptr<c_void>, len: usize) |null|
        = copy((array_span(to, offset, len)?, Side::Device), host_end(from, len)?, &*sync_stream(null)?, Waits::Sync);
    fn cuMemcpyAtoH_v2 / cuMemcpyAtoH_v2_ptds(to: Ptr<c_void>, from: Ptr<CUarray_st>, offset: usize, len: usize) |null|
        = copy(host_end(to, len)?, (array_span(from, offset, len)?, Side::Device), &*sync_stream(null)?, Waits::Sync);
}
