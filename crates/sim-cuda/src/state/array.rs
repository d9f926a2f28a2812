//! Arrays and mipmapped arrays.

use sluice_driver_api::types::*;
use std::sync::Arc;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Width, height and depth; 0 for a dimension that the array does not have.
    pub(crate) size: [usize; 3],
    pub(crate) format: CUarray_format,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

impl Shape {
    fn element(&self) -> usize {
        let channel = match self.format {
            0x01 | 0x08 => 1,
            0x02 | 0x09 | 0x10 => 2,
            _ => 4,
        };
        channel * self.channels as usize
    }

    pub(crate) fn row(&self) -> usize {
        self.size[0].saturating_mul(self.element())
    }

    /// Size in bytes; `None` if there are no elements, or too many.
    pub(crate) fn bytes(&self) -> Option<usize> {
        let [width, height, depth] = self.size;
        let elements = width.checked_mul(height.max(1))?.checked_mul(depth.max(1))?;
        elements.checked_mul(self.element()).filter(|bytes| *bytes > 0)
    }

    /// The shape of a level of a mipmapped array of this shape.
    pub(crate) fn level(&self, level: u32, is_layered: bool) -> Self {
        let half = |size: usize| if size == 0 { 0 } else { (size >> level).max(1) };
        let [width, height, depth] = self.size;
        let depth = if is_layered { depth } else { half(depth) };
        Self { size: [half(width), half(height), depth], ..*self }
    }
}

pub(crate) struct Array {
    pub(crate) handle: usize,
    pub(crate) shape: Shape,
    pub(crate) address: usize,
    pub(crate) len: usize,
    /// Whether it is not a level of a mipmapped array.
    pub(crate) is_own: bool,
}

pub(crate) struct Mipmap {
    pub(crate) handle: usize,
    pub(crate) address: usize,
    pub(crate) levels: Vec<Arc<Array>>,
}
