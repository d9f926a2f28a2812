//! The bytes charged for CUDA arrays and mipmapped arrays.

/// The shape of a texture array, from its descriptor. Height and depth are 0 where the dimension does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrayShape {
    /// Width in elements.
    pub width: u64,
    /// Height in elements; 0 for one-dimensional arrays.
    pub height: u64,
    /// Depth, or number of layers or faces; 0 if there is none.
    pub depth: u64,
    /// The driver's `CUarray_format`.
    pub format: u32,
    /// Channels of an element.
    pub channels: u32,
    /// Whether the depth counts layers (which mipmap levels do not halve).
    pub layered: bool,
    /// Whether the array has no memory of its own (sparse, or mapped later).
    pub deferred: bool,
}

impl ArrayShape {
    /// Bytes of the array. 0 for deferred arrays. Saturating, so that no absurd shape wraps into a small charge.
    pub fn bytes(&self) -> u64 {
        if self.deferred {
            return 0;
        }
        let elements = self.width.max(1).saturating_mul(self.height.max(1)).saturating_mul(self.depth.max(1));
        let bits = elements.saturating_mul(u64::from(bits_per_element(self.format, self.channels)));
        bits.div_ceil(8)
    }

    /// Bytes of a mipmapped array with this shape as level 0 and at most `levels` levels.
    pub fn mipmap_bytes(&self, levels: u32) -> u64 {
        let mut level = *self;
        let mut total = 0u64;
        for _ in 0..levels.clamp(1, 64) {
            total = total.saturating_add(level.bytes());
            let depth_done = level.layered || level.depth <= 1;
            if level.width <= 1 && level.height <= 1 && depth_done {
                break;
            }
            level.width = (level.width / 2).max(1);
            level.height = halve(level.height);
            if !level.layered {
                level.depth = halve(level.depth);
            }
        }
        total
    }
}

/// Half of a dimension, at least 1, unless it does not exist.
fn halve(size: u64) -> u64 {
    if size == 0 { 0 } else { (size / 2).max(1) }
}

/// Bits of one element. Unknown formats count as 32 bits a channel: too much rather than too little.
fn bits_per_element(format: u32, channels: u32) -> u32 {
    let per_channel = match format {
        // 8-bit integers and normalised 8-bit formats.
        0x01 | 0x08 | 0xc0..=0xc5 => 8,
        // 16-bit integers, half floats and normalised 16-bit formats.
        0x02 | 0x09 | 0x10 | 0xc6..=0xcb => 16,
        // 32-bit integers and floats.
        0x03 | 0x0a | 0x20 => 32,
        // NV12: one byte of luma and half a byte of chroma for each pixel, whatever the number of channels.
        0xb0 => return 12,
        // Block-compressed formats: 4 bits a texel for BC1 and BC4, 8 for the others.
        0x91 | 0x92 | 0x97 | 0x98 => return 4,
        0x93..=0x96 | 0x99..=0x9f => return 8,
        _ => 32,
    };
    per_channel * channels.clamp(1, 4)
}

#[cfg(test)]
mod tests;
