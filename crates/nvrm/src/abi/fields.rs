//! Little-endian fields at fixed offsets. A field outside the slice reads as `None`, and writing it does nothing.

pub(super) fn get<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub(super) fn get32(bytes: &[u8], at: usize) -> Option<u32> {
    get(bytes, at).map(u32::from_le_bytes)
}

pub(super) fn get64(bytes: &[u8], at: usize) -> Option<u64> {
    get(bytes, at).map(u64::from_le_bytes)
}

pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    for (slot, byte) in bytes.iter_mut().skip(at).zip(value) {
        *slot = *byte;
    }
}

pub(super) fn put32(bytes: &mut [u8], at: usize, value: u32) {
    put(bytes, at, &value.to_le_bytes());
}

pub(super) fn put64(bytes: &mut [u8], at: usize, value: u64) {
    put(bytes, at, &value.to_le_bytes());
}

/// Writes `decode` and `encode` of a structure of `$len` bytes from the offsets of its fields.
macro_rules! layout {
    ($type:ident, $len:expr, { $($field:ident: $kind:ty = $at:expr),+ $(,)? }) => {
        impl $type {
            /// Decodes the structure; `None` if the bytes have another size.
            pub fn decode(bytes: &[u8]) -> Option<Self> {
                let bytes: &[u8; $len] = bytes.try_into().ok()?;
                Some(Self { $($field: <$kind>::from_le_bytes(crate::abi::fields::get(bytes, $at)?)),+ })
            }

            /// Encodes the structure, 0 elsewhere.
            pub fn encode(&self) -> [u8; $len] {
                let mut bytes = [0; $len];
                $(crate::abi::fields::put(&mut bytes, $at, &self.$field.to_le_bytes());)+
                bytes
            }
        }
    };
}
pub(super) use layout;
