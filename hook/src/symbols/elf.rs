//! Finds libc's `dlsym` in the loaded objects' own symbol tables.
//!
//! This library exports `dlsym` and `dlvsym`, so looking them up through the loader would find this library.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;

use libc::{Dl_info, Elf64_Sym, dl_phdr_info};

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const STT_FUNC: u8 = 2;

#[repr(C)]
struct DynamicEntry {
    tag: u64,
    value: u64,
}

/// The object that contains an address, from dladdr.
pub(super) fn place(address: *const c_void) -> Option<Dl_info> {
    if address.is_null() {
        return None;
    }
    let mut place = MaybeUninit::<Dl_info>::zeroed();
    // SAFETY: dladdr takes any address and fills the struct, which is valid as zeros.
    let (found, place) = unsafe { (libc::dladdr(address, place.as_mut_ptr()), place.assume_init()) };
    (found != 0).then_some(place)
}

/// Whether an address lies in this library.
pub(super) fn is_ours(address: *const c_void) -> bool {
    let own = place(is_ours as *const c_void);
    own.zip(place(address)).is_some_and(|(own, other)| own.dli_fbase == other.dli_fbase)
}

/// Whether an address lies in an object of this library's own namespace. `dlmopen` loads objects into others.
pub(super) fn is_in_our_namespace(address: *const c_void) -> bool {
    // dl_iterate_phdr visits the objects of its caller's namespace.
    let mut address = address;
    // SAFETY: the callback gets the address as its third argument, for the length of this call.
    unsafe { libc::dl_iterate_phdr(Some(contains), (&raw mut address).cast()) != 0 }
}

unsafe extern "C" fn contains(info: *mut dl_phdr_info, _: usize, address: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid description of a loaded object, and what `is_in_our_namespace` gave it.
    let (info, address) = unsafe { (&*info, *address.cast::<*const c_void>()) };
    // SAFETY: the object is loaded, so its program headers are mapped.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    c_int::from(holds(headers, info.dlpi_addr, address.addr() as u64))
}

/// Whether a loaded segment of the object at `base` contains the address.
fn holds(headers: &[libc::Elf64_Phdr], base: u64, address: u64) -> bool {
    headers.iter().any(|header| {
        let start = base.wrapping_add(header.p_vaddr);
        header.p_type == PT_LOAD && address >= start && address - start < header.p_memsz
    })
}

struct Search<const N: usize> {
    names: [&'static CStr; N],
    /// Found in an object behind this one, which is the next definition.
    behind: [*mut c_void; N],
    /// Found in any object but this one.
    anywhere: [*mut c_void; N],
    passed_us: bool,
}

/// The functions of these names in the first object behind this library that defines them, otherwise in any other object.
pub(super) fn find<const N: usize>(names: [&'static CStr; N]) -> [*mut c_void; N] {
    let none = [std::ptr::null_mut(); N];
    let mut search = Search { names, behind: none, anywhere: none, passed_us: false };
    // SAFETY: the callback gets this search as its third argument, for the length of this call.
    unsafe { libc::dl_iterate_phdr(Some(visit::<N>), (&raw mut search).cast()) };
    std::array::from_fn(
        |at| if search.behind[at].is_null() { search.anywhere[at] } else { search.behind[at] },
    )
}

unsafe extern "C" fn visit<const N: usize>(info: *mut dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid description of a loaded object, and the search that `find` gave it.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<N>>()) };
    // SAFETY: the object is loaded, so its program headers are mapped.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let base = info.dlpi_addr;
    let us = (visit::<N> as *const c_void).addr() as u64;
    if holds(headers, base, us) {
        search.passed_us = true;
        return 0;
    }
    let Some(dynamic) = headers.iter().find(|header| header.p_type == PT_DYNAMIC) else { return 0 };
    let dynamic = std::ptr::with_exposed_provenance(address(base.wrapping_add(dynamic.p_vaddr)));
    // SAFETY: the header states where the object's dynamic section is mapped.
    let Some(symbols) = (unsafe { Symbols::read(base, dynamic) }) else { return 0 };
    for at in 0..N {
        // SAFETY: the tables belong to a loaded object.
        let found = unsafe { symbols.find(search.names[at]) };
        let slot = if search.passed_us { &mut search.behind[at] } else { &mut search.anywhere[at] };
        if slot.is_null() {
            *slot = found;
        }
    }
    0
}

/// The dynamic symbol table of one object.
struct Symbols {
    base: u64,
    strings: *const u8,
    table: *const Elf64_Sym,
    gnu_hash: *const u32,
}

impl Symbols {
    /// # Safety
    /// `dynamic` is the dynamic section of an object loaded at `base`.
    unsafe fn read(base: u64, mut dynamic: *const DynamicEntry) -> Option<Self> {
        let (mut strings, mut table, mut gnu_hash) = (0, 0, 0);
        loop {
            // SAFETY: the section ends with an entry of tag 0, where this loop ends.
            let entry = unsafe { &*dynamic };
            // glibc has turned most pointers into addresses; those of the vDSO are still offsets.
            let value = if entry.value < base { base.wrapping_add(entry.value) } else { entry.value };
            match entry.tag {
                0 => break,
                DT_STRTAB => strings = value,
                DT_SYMTAB => table = value,
                DT_GNU_HASH => gnu_hash = value,
                _ => {}
            }
            // SAFETY: not at the end yet.
            dynamic = unsafe { dynamic.add(1) };
        }
        (strings != 0 && table != 0 && gnu_hash != 0).then(|| Self {
            base,
            strings: std::ptr::with_exposed_provenance(address(strings)),
            table: std::ptr::with_exposed_provenance(address(table)),
            gnu_hash: std::ptr::with_exposed_provenance(address(gnu_hash)),
        })
    }

    /// Looks a name up by the GNU hash table, which glibc and musl have.
    ///
    /// # Safety
    /// The tables are those of a loaded object.
    unsafe fn find(&self, name: &CStr) -> *mut c_void {
        let wanted =
            name.to_bytes().iter().fold(5381u32, |h, b| h.wrapping_mul(33).wrapping_add(u32::from(*b)));
        // SAFETY: the table begins with four words, a filter of 64-bit words, buckets, and chains that end with an odd hash.
        unsafe {
            let (buckets, first, filter) = (*self.gnu_hash, *self.gnu_hash.add(1), *self.gnu_hash.add(2));
            if buckets == 0 {
                return std::ptr::null_mut();
            }
            let bucket = self.gnu_hash.add(4 + 2 * filter as usize);
            let chain = bucket.add(buckets as usize);
            let mut at = *bucket.add((wanted % buckets) as usize);
            if at < first {
                return std::ptr::null_mut();
            }
            loop {
                let hash = *chain.add((at - first) as usize);
                if hash | 1 == wanted | 1 {
                    let found = self.matches(at, name);
                    if !found.is_null() {
                        return found;
                    }
                }
                if hash & 1 == 1 {
                    return std::ptr::null_mut();
                }
                at += 1;
            }
        }
    }

    /// The address of the symbol at an index of the table, if it is a function of that name which the object defines.
    unsafe fn matches(&self, at: u32, name: &CStr) -> *mut c_void {
        // SAFETY: the index comes from the object's own hash table, and names are C strings in its string table.
        unsafe {
            let symbol = &*self.table.add(at as usize);
            let is_function = symbol.st_info & 0xf == STT_FUNC && symbol.st_shndx != 0;
            let symbol_name = CStr::from_ptr(self.strings.add(symbol.st_name as usize).cast());
            if is_function && symbol_name == name {
                std::ptr::with_exposed_provenance_mut(address(self.base.wrapping_add(symbol.st_value)))
            } else {
                std::ptr::null_mut()
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "addresses have 64 bits here")]
fn address(value: u64) -> usize {
    value as usize
}
