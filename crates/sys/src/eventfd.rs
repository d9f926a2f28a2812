//! Distinguishing eventfds, which share one inode: by the kernel's number (exact, three system calls), or by a mark
//! (one system call).

use std::os::fd::{AsRawFd, BorrowedFd};

/// The kernel's number of an eventfd; `None` for another file, before Linux 5.2, or without /proc. Allocates nothing.
pub fn id(fd: BorrowedFd<'_>) -> Option<u64> {
    const ROOM: usize = 256;
    let path = Path::of(fd.as_raw_fd());
    // SAFETY: the path is a C string.
    let info = unsafe { libc::open(path.0.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if info < 0 {
        return None;
    }
    let mut text = [0_u8; ROOM];
    // SAFETY: `text` is writable, and the descriptor was opened just above.
    let read = unsafe {
        let read = libc::read(info, text.as_mut_ptr().cast(), ROOM);
        libc::close(info);
        read
    };
    let text = text.get(..usize::try_from(read).ok()?)?;
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"eventfd-id:"))?;
    let digits = line.iter().filter(|byte| byte.is_ascii_digit());
    let mut digits = digits.map(|byte| u64::from(byte - b'0')).peekable();
    digits.peek()?;
    Some(digits.fold(0, |number: u64, digit| number.wrapping_mul(10).wrapping_add(digit)))
}

/// `fcntl`'s commands for the signal by which a file's readiness is announced.
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;

/// Marks the open file behind a descriptor and behind all its copies in any process with one of [`MARKS`] numbers.
/// Returns `false` if the system refuses. A later mark replaces an earlier one.
///
/// The mark is the file's `O_ASYNC` signal (`F_SETSIG`). No program uses `O_ASYNC` on an eventfd, and new files have no
/// such signal.
#[must_use]
pub fn mark(fd: BorrowedFd<'_>, number: u32) -> bool {
    // SAFETY: the command takes a number and refuses invalid ones.
    unsafe { libc::fcntl(fd.as_raw_fd(), F_SETSIG, signal(number)) == 0 }
}

/// Whether the open file behind a descriptor has this mark. Allocates nothing.
#[must_use]
pub fn has_mark(fd: BorrowedFd<'_>, number: u32) -> bool {
    // SAFETY: the command takes no argument and changes nothing.
    unsafe { libc::fcntl(fd.as_raw_fd(), F_GETSIG) == signal(number) }
}

/// Number of marks.
pub const MARKS: u32 = 28;

/// The signal of a mark, from the last real-time signal downwards: programs use real-time signals from the first one
/// upwards.
fn signal(number: u32) -> i32 {
    64 - i32::try_from(number % MARKS).unwrap_or(0)
}

/// `/proc/self/fdinfo/N` as a C string.
struct Path([u8; 40]);

impl Path {
    fn of(fd: i32) -> Self {
        const FOLDER: &[u8] = b"/proc/self/fdinfo/";
        let mut path = [0; 40];
        path[..FOLDER.len()].copy_from_slice(FOLDER);
        let mut digits = [0; 10];
        let (mut rest, mut count) = (fd.unsigned_abs(), 0);
        loop {
            digits[count] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            (rest, count) = (rest / 10, count + 1);
            if rest == 0 {
                break;
            }
        }
        for (at, digit) in digits[..count].iter().rev().enumerate() {
            path[FOLDER.len() + at] = *digit;
        }
        Self(path)
    }
}

#[cfg(test)]
mod tests;
