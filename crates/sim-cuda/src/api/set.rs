//! Memsets.

pub(crate) use super::copy2d::*;

use super::copy::sync_stream;
use super::memory::{address, span};
use super::with_twin;
use crate::border::{Ptr, Span, Status};
use crate::state::driver::driver;
use crate::state::memory::Origin;
use crate::state::stream::{Effect, Null, Stream, stream};
use sluice_driver_api::types::*;
use sluice_sim::engine::Work;
use std::sync::Arc;

struct Rows {
    pointer: CUdeviceptr,
    pitch: usize,
    /// Bytes of a row that are written.
    width: usize,
    height: usize,
}

impl Rows {
    fn one(pointer: CUdeviceptr, items: usize, size: usize) -> Result<Self, CUresult> {
        let width = items.checked_mul(size).ok_or(CUresult::ERROR_INVALID_VALUE)?;
        Ok(Self { pointer, pitch: width, width, height: 1 })
    }

    fn many(
        pointer: CUdeviceptr,
        pitch: usize,
        items: usize,
        size: usize,
        height: usize,
    ) -> Result<Self, CUresult> {
        let width = items.checked_mul(size).filter(|width| *width <= pitch || height <= 1);
        Ok(Self { pointer, pitch, width: width.ok_or(CUresult::ERROR_INVALID_VALUE)?, height })
    }

    /// The rows as spans; checks that they are within one allocation.
    fn spans(&self) -> Result<Vec<Span>, CUresult> {
        let Some(last) = self.height.checked_sub(1) else { return Ok(Vec::new()) };
        let whole = last.checked_mul(self.pitch).and_then(|before| before.checked_add(self.width));
        span(self.pointer, whole.ok_or(CUresult::ERROR_INVALID_VALUE)?)?;
        let first = address(self.pointer)?;
        Ok((0..self.height).map(|row| Span::found(first + row * self.pitch, self.width)).collect())
    }
}

fn fill(rows: &Rows, pattern: &[u8], stream: &Stream) -> Status {
    if !address(rows.pointer)?.is_multiple_of(pattern.len()) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let (spans, pattern) = (rows.spans()?, pattern.to_vec());
    let memory = &driver()?.memory;
    if spans.iter().any(|span| memory.is_read_only(*span)) {
        let context = stream.context.clone();
        let fault: Effect = Arc::new(move || context.fail(CUresult::ERROR_LAUNCH_FAILED));
        return stream.work(Work::Fill { bytes: 1 }, Some(fault));
    }
    let effect: Effect = Arc::new(move || spans.iter().for_each(|span| span.fill(&pattern)));
    stream.work(Work::Fill { bytes: (rows.width * rows.height) as u64 }, Some(effect))
}

/// Fills memory in a synchronous call. The call waits only for memory that the host can read.
fn fill_now(rows: &Rows, pattern: &[u8], null: Null) -> Status {
    let stream = sync_stream(null)?;
    fill(rows, pattern, &stream)?;
    let found = driver()?.memory.find(address(rows.pointer)?).map(|found| found.origin);
    match found {
        Some(Origin::Host | Origin::Registered | Origin::Managed) => stream.synchronize(),
        _ => Ok(()),
    }
}

macro_rules! memsets {
    ($($value:ty: $one:ident / $one_twin:ident, $one_async:ident / $one_async_twin:ident,
       $two:ident / $two_twin:ident, $two_async:ident / $two_async_twin:ident;)*) => { $(
        with_twin! {
            fn $one / $one_twin(pointer: CUdeviceptr, value: $value, items: usize) |null| = {
                fill_now(&Rows::one(pointer, items, size_of::<$value>())?, &value.to_le_bytes(), null)
            };

            fn $one_async / $one_async_twin(
                pointer: CUdeviceptr, value: $value, items: usize, on: Ptr<CUstream_st>
            ) |null| = {
                fill(&Rows::one(pointer, items, size_of::<$value>())?, &value.to_le_bytes(), &*stream(on, null)?)
            };

            fn $two / $two_twin(
                pointer: CUdeviceptr, pitch: usize, value: $value, width: usize, height: usize
            ) |null| = {
                let rows = Rows::many(pointer, pitch, width, size_of::<$value>(), height)?;
                fill_now(&rows, &value.to_le_bytes(), null)
            };

            fn $two_async / $two_async_twin(
                pointer: CUdeviceptr, pitch: usize, value: $value, width: usize, height: usize, on: Ptr<CUstream_st>
            ) |null| = {
                let rows = Rows::many(pointer, pitch, width, size_of::<$value>(), height)?;
                fill(&rows, &value.to_le_bytes(), &*stream(on, null)?)
            };
        }
    )* };
}

memsets! {
    u8: cuMemsetD8_v2 / cuMemsetD8_v2_ptds, cuMemsetD8Async / cuMemsetD8Async_ptsz,
        cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds, cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz;
    u16: cuMemsetD16_v2 / cuMemsetD16_v2_ptds, cuMemsetD16Async / cuMemsetD16Async_ptsz,
        cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds, cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz;
    u32: cuMemsetD32_v2 / cuMemsetD32_v2_ptds, cuMemsetD32Async / cuMemsetD32Async_ptsz,
        cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds, cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz;
}
