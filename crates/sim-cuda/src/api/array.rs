//! Arrays and mipmapped arrays: memory that is addressed by elements.

pub(crate) use super::ipc::*;

use crate::border::{Ptr, Span, Status};
use crate::state::array::{Array, Mipmap, Shape};
use crate::state::context::current;
use crate::state::driver::{driver, driver_for_unsafe_call};
use sluice_driver_api::types::*;
use std::sync::Arc;

/// The flag of an array whose depth counts layers.
const LAYERED: c_uint = 1;

fn array(handle: Ptr<CUarray_st>) -> Result<Arc<Array>, CUresult> {
    driver()?.arrays.get(handle.address()).ok_or(CUresult::ERROR_INVALID_HANDLE)
}

pub(super) fn array_span(handle: Ptr<CUarray_st>, offset: usize, len: usize) -> Result<Span, CUresult> {
    let array = array(handle)?;
    let end = offset.checked_add(len).filter(|end| *end <= array.len);
    end.ok_or(CUresult::ERROR_INVALID_VALUE)?;
    Ok(Span::found(array.address + offset, len))
}

/// Bytes of a row, and rows of a slice, of an array.
pub(super) fn array_pitch(handle: Ptr<CUarray_st>) -> Result<(usize, usize), CUresult> {
    let shape = array(handle)?.shape;
    Ok((shape.row(), shape.size[1].max(1)))
}

fn create(out: Ptr<CUarray>, shape: Shape) -> Status {
    let driver = driver_for_unsafe_call()?;
    if out.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let context = current()?;
    let len = shape.bytes().ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let address = driver.memory.allocate(&context, len, crate::state::memory::Origin::Array, 0)?;
    let array = driver.arrays.add(|handle| Array { handle, shape, address, len, is_own: true });
    out.write_handle(array.handle)
}

pub(crate) fn cuArrayCreate_v2(out: Ptr<CUarray>, descriptor: Ptr<CUDA_ARRAY_DESCRIPTOR>) -> Status {
    let descriptor = descriptor.read()?;
    let size = [descriptor.Width, descriptor.Height, 0];
    create(out, Shape { size, format: descriptor.Format, channels: descriptor.NumChannels, flags: 0 })
}

fn shape_of(descriptor: CUDA_ARRAY3D_DESCRIPTOR) -> Shape {
    let CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Depth, Format, NumChannels, Flags } = descriptor;
    Shape { size: [Width, Height, Depth], format: Format, channels: NumChannels, flags: Flags }
}

pub(crate) fn cuArray3DCreate_v2(out: Ptr<CUarray>, descriptor: Ptr<CUDA_ARRAY3D_DESCRIPTOR>) -> Status {
    create(out, shape_of(descriptor.read()?))
}

pub(crate) fn cuArrayDestroy(handle: Ptr<CUarray_st>) -> Status {
    let driver = driver_for_unsafe_call()?;
    let array = array(handle)?;
    if !array.is_own {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    if let Ok(context) = current() {
        context.synchronize()?;
    }
    driver.arrays.remove(array.handle);
    driver.memory.release(array.address, |_| true)
}

pub(crate) fn cuArrayGetDescriptor_v2(out: Ptr<CUDA_ARRAY_DESCRIPTOR>, handle: Ptr<CUarray_st>) -> Status {
    let Shape { size: [Width, Height, _], format: Format, channels: NumChannels, .. } = array(handle)?.shape;
    out.write(CUDA_ARRAY_DESCRIPTOR { Width, Height, Format, NumChannels })
}

pub(crate) fn cuArray3DGetDescriptor_v2(
    out: Ptr<CUDA_ARRAY3D_DESCRIPTOR>,
    handle: Ptr<CUarray_st>,
) -> Status {
    let Shape { size: [Width, Height, Depth], format: Format, channels: NumChannels, flags: Flags } =
        array(handle)?.shape;
    out.write(CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Depth, Format, NumChannels, Flags })
}

pub(crate) fn cuMipmappedArrayCreate(
    out: Ptr<CUmipmappedArray>,
    descriptor: Ptr<CUDA_ARRAY3D_DESCRIPTOR>,
    levels: c_uint,
) -> Status {
    let driver = driver_for_unsafe_call()?;
    let shape = shape_of(descriptor.read()?);
    if out.is_null() || levels == 0 || levels > 32 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let is_layered = shape.flags & LAYERED != 0;
    let shapes: Vec<Shape> = (0..levels).map(|level| shape.level(level, is_layered)).collect();
    let lens: Option<Vec<usize>> = shapes.iter().map(Shape::bytes).collect();
    let lens = lens.ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let context = current()?;
    let total = lens.iter().sum();
    let address = driver.memory.allocate(&context, total, crate::state::memory::Origin::Array, 0)?;
    let mut at = address;
    let mut arrays = Vec::new();
    for (shape, len) in shapes.into_iter().zip(lens) {
        let level = driver.arrays.add(|handle| Array { handle, shape, address: at, len, is_own: false });
        arrays.push(level);
        at += len;
    }
    out.write_handle(driver.mipmaps.add(|handle| Mipmap { handle, address, levels: arrays }).handle)
}

pub(crate) fn cuMipmappedArrayGetLevel(
    out: Ptr<CUarray>,
    handle: Ptr<CUmipmappedArray_st>,
    level: c_uint,
) -> Status {
    let mipmap = driver()?.mipmaps.get(handle.address()).ok_or(CUresult::ERROR_INVALID_HANDLE)?;
    out.write_handle(mipmap.levels.get(level as usize).ok_or(CUresult::ERROR_INVALID_VALUE)?.handle)
}

pub(crate) fn cuMipmappedArrayDestroy(handle: Ptr<CUmipmappedArray_st>) -> Status {
    let driver = driver_for_unsafe_call()?;
    let mipmap = driver.mipmaps.remove(handle.address()).ok_or(CUresult::ERROR_INVALID_HANDLE)?;
    if let Ok(context) = current() {
        context.synchronize()?;
    }
    for level in &mipmap.levels {
        driver.arrays.remove(level.handle);
    }
    driver.memory.release(mipmap.address, |_| true)
}
