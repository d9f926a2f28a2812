//! Shared pages: accesses that the other side cannot make, and accesses that a reader cannot make at all.

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use sluice_sys::page::{Access, SharedPage, SharedRegion, WORDS};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A grant page as a manager sends it: the manager's mapping and descriptor, and the reader's descriptor.
fn sealed() -> (SharedPage, OwnedFd, OwnedFd) {
    let (page, fd) = SharedPage::create("page").unwrap();
    SharedPage::seal_future_write(&fd).unwrap();
    let reader = SharedPage::reopen_read_only(&fd).unwrap();
    (page, fd, reader)
}

/// A memfd of this many bytes without any seal.
fn unsealed(bytes: u64) -> File {
    let flags = nix::sys::memfd::MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(nix::sys::memfd::memfd_create("unsealed", flags).unwrap());
    file.set_len(bytes).unwrap();
    file
}

#[test]
fn stores_of_one_side_are_loaded_by_the_other() {
    let (ours, fd) = SharedPage::create("page").unwrap();
    let theirs = SharedPage::map(fd.as_fd(), Access::ReadWrite).unwrap();
    assert!(theirs.words().iter().all(|word| word.load(Relaxed) == 0));
    ours.words()[0].store(1, Relaxed);
    theirs.words()[WORDS - 1].store(2, Relaxed);
    assert_eq!((theirs.words()[0].load(Relaxed), ours.words()[WORDS - 1].load(Relaxed)), (1, 2));
}

#[test]
fn sealed_page_accepts_the_stores_of_its_owner() {
    let (page, _fd, reader) = sealed();
    let view = SharedPage::map(reader.as_fd(), Access::ReadOnly).unwrap();
    page.words()[16].store(7, Relaxed);
    assert_eq!(view.words()[16].load(Relaxed), 7);
}

#[test]
fn sealed_page_cannot_be_mapped_for_writing_by_any_descriptor() {
    let (_page, fd, reader) = sealed();
    let refused = |fd: &OwnedFd| SharedPage::map(fd.as_fd(), Access::ReadWrite).unwrap_err().kind();
    assert_eq!(refused(&reader), ErrorKind::PermissionDenied);
    // A receiver of the same user can open the file behind the descriptor for writing; the seal still holds.
    let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
    let mut reopened = OpenOptions::new().read(true).write(true).open(path).unwrap();
    assert_eq!(reopened.write(&[1]).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(reopened.set_len(0).unwrap_err().kind(), ErrorKind::PermissionDenied);
    let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    assert_eq!(fallocate(&reopened, hole, 0, 4096), Err(nix::Error::EPERM));
    assert_eq!(refused(&reopened.into()), ErrorKind::PermissionDenied);
    // Nor does the owner's own descriptor give a second mapping for writing.
    assert_eq!(refused(&fd), ErrorKind::PermissionDenied);
    assert!(SharedPage::map(fd.as_fd(), Access::ReadOnly).is_ok());
}

#[test]
fn receiver_of_a_report_page_cannot_resize_it() {
    let (_page, fd) = SharedPage::create("page").unwrap();
    let file = File::from(fd);
    for size in [0, 4095, 8192] {
        assert_eq!(file.set_len(size).unwrap_err().kind(), ErrorKind::PermissionDenied, "{size} bytes");
    }
}

#[test]
fn page_that_could_be_shrunk_is_not_mapped() {
    let file = unsealed(4096);
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let error = SharedPage::map(file.as_fd(), access).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert_eq!(error.to_string(), "memfd has seals 0x0, expected at least 0x2");
    }
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
    assert!(SharedPage::map(file.as_fd(), Access::ReadOnly).is_ok());
}

#[test]
fn file_of_another_size_or_kind_is_not_mapped() {
    for bytes in [0, 4088, 8192] {
        let file = unsealed(bytes);
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
        let error = SharedPage::map(file.as_fd(), Access::ReadOnly).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot map memfd: it has {bytes} bytes, expected 4096"));
    }
    let ordinary = File::open(std::env::current_exe().unwrap()).unwrap();
    assert!(SharedPage::map(ordinary.as_fd(), Access::ReadOnly).is_err());
}

#[test]
fn child_process_shares_an_anonymous_page() {
    let page = SharedPage::anonymous().unwrap();
    // SAFETY: the child only stores to shared memory and leaves with _exit; both may be done between fork and exec of a
    // process with several threads.
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            page.words()[3].store(99, Relaxed);
            // SAFETY: _exit takes an integer and does not return.
            unsafe { nix::libc::_exit(0) }
        }
        nix::unistd::ForkResult::Parent { child } => {
            nix::sys::wait::waitpid(child, None).unwrap();
            assert_eq!(page.words()[3].load(Relaxed), 99);
        }
    }
}

#[test]
fn region_has_the_requested_length() {
    let (ours, fd) = SharedRegion::create("ring", 3 * WORDS).unwrap();
    assert_eq!(ours.words().len(), 3 * WORDS);
    let theirs = SharedRegion::map(fd.as_fd(), 3 * WORDS).unwrap();
    theirs.words()[3 * WORDS - 1].store(5, Relaxed);
    assert_eq!(ours.words()[3 * WORDS - 1].load(Relaxed), 5);
    assert_eq!(SharedRegion::map(fd.as_fd(), WORDS).unwrap_err().kind(), ErrorKind::InvalidData);
    assert!(SharedRegion::create("ring", 0).is_err());
    assert!(SharedRegion::create("ring", usize::MAX).is_err());
    assert_eq!(SharedRegion::anonymous(5).unwrap().words().len(), 5);
}

#[test]
fn pages_of_a_region_exist_once_another_mapping_has_written_to_them() {
    let (ours, fd) = SharedRegion::create("pages", 8 * WORDS).unwrap();
    let theirs = SharedRegion::map_whole(fd.as_fd()).unwrap();
    let page = WORDS * size_of::<AtomicU64>();
    assert!(!theirs.has_pages(0, page));
    ours.words()[WORDS].store(1, Relaxed);
    assert!(theirs.has_pages(page, page) && theirs.has_pages(page + 5, 8));
    assert!(!theirs.has_pages(0, 2 * page) && !theirs.has_pages(page, page + 1));
    ours.words()[0].store(1, Relaxed);
    assert!(theirs.has_pages(0, 2 * page) && !theirs.has_pages(0, 9 * page), "nothing exists beyond the end");
}
