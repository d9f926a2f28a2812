//! The mappings of a process, from /proc/PID/maps.

use super::GrantPageMapping;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

/// The end of the path of a mapped hook.
const HOOK: &[u8] = b"/libsluice.so";
/// Bytes of a list of mappings that are read: some 10,000 mappings. PyTorch's has about 2,000.
const MAPS_READ: u64 = 1 << 20;

/// Whether a file with this inode is mapped at the page's address, by the text of /proc/PID/maps.
pub(super) fn maps_page(maps: &str, page: &GrantPageMapping) -> bool {
    let is_here = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (begin, _) = words.next()?.split_once('-')?;
        let inode = words.nth(3)?;
        Some(u64::from_str_radix(begin, 16).ok()? == page.address && inode.parse() == Ok(page.inode))
    };
    maps.lines().any(|line| is_here(line) == Some(true))
}

/// Whether the name of a mapped file is that of the hook. Of a long list only the first part is read.
pub(super) fn maps_hook(pid: i32) -> io::Result<bool> {
    let mut maps = BufReader::new(File::open(format!("/proc/{pid}/maps"))?.take(MAPS_READ));
    let mut line = Vec::new();
    while maps.read_until(b'\n', &mut line)? > 0 {
        if line.trim_ascii_end().ends_with(HOOK) {
            return Ok(true);
        }
        line.clear();
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
