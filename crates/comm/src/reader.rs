//! Assembles frames from the pieces that a stream delivers.

/// Assembles frames of `N` bytes, one at a time.
///
/// It offers room for the rest of *one* frame and no more: the next frame's bytes stay in the socket, so descriptors
/// that arrive with a read belong to the frame being assembled.
///
/// ```
/// # use sluice_comm::FrameReader;
/// # use std::io::Read;
/// # let mut stream = std::io::Cursor::new(vec![7; 100]);
/// let mut frames = FrameReader::<40>::new();
/// loop {
///     let read = stream.read(frames.spare())?;
///     if read == 0 {
///         break; // end of the stream; `frames.is_mid_frame()` tells whether it cuts a frame
///     }
///     frames.filled(read);
///     if let Some(frame) = frames.next() {
///         assert_eq!(frame, [7; 40]);
///     }
/// }
/// assert!(frames.is_mid_frame());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct FrameReader<const N: usize> {
    frame: [u8; N],
    len: usize,
}

impl<const N: usize> FrameReader<N> {
    /// An empty reader.
    pub const fn new() -> Self {
        Self { frame: [0; N], len: 0 }
    }

    /// Buffer for the next bytes of the stream. Never empty if [`next`](Iterator::next) is called after each
    /// [`filled`](Self::filled), so a read of 0 bytes always means the end of the stream.
    pub fn spare(&mut self) -> &mut [u8] {
        self.frame.get_mut(self.len..).unwrap_or_default()
    }

    /// Records that the first `n` bytes of [`spare`](Self::spare) have been filled. A larger `n` counts as all of it.
    pub fn filled(&mut self, n: usize) {
        self.len = self.len.saturating_add(n).min(N);
    }

    /// Whether a frame is incomplete: the end of the stream here would cut it in two.
    pub fn is_mid_frame(&self) -> bool {
        self.len > 0
    }
}

impl<const N: usize> Default for FrameReader<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// Yields the frame once it is complete; `None` means that more bytes are needed, not that the stream has ended.
impl<const N: usize> Iterator for FrameReader<N> {
    type Item = [u8; N];

    fn next(&mut self) -> Option<[u8; N]> {
        if self.len < N {
            return None;
        }
        self.len = 0;
        Some(self.frame)
    }
}
