//! Allocations, frees and what a program is told of memory.

macro_rules! alloc {
    ("cuMemAlloc" $c:tt $pointer:ident $bytes:ident) => {
        unsafe { governed::alloc::linear($pointer, $bytes as u64, call!($c)) }
    };
    ("cuMemAllocManaged" $c:tt $pointer:ident $bytes:ident $flags:ident) => {
        unsafe { governed::alloc::of_context($pointer, $bytes as u64, call!($c)) }
    };
    ("cuMemAllocPitch" $c:tt $pointer:ident $pitch:ident $width:ident $rows:ident $element:ident) => {
        unsafe { governed::alloc::pitched(($pointer, $pitch), ($width as u64, $rows as u64), call!($c)) }
    };
    ("cuArrayCreate" $c:tt $array:ident $shape:ident) => {
        unsafe { governed::alloc::array($array, $shape, call!($c)) }
    };
    ("cuArray3DCreate" $c:tt $array:ident $shape:ident) => {
        unsafe { governed::alloc::array($array, $shape, call!($c)) }
    };
    ("cuMipmappedArrayCreate" $c:tt $array:ident $shape:ident $levels:ident) => {
        unsafe { governed::alloc::mipmapped_array($array, $shape, $levels, call!($c)) }
    };
    ("cuMemCreate" $c:tt $handle:ident $bytes:ident $properties:ident $flags:ident) => {
        unsafe { governed::physical::create($handle, $bytes, $properties, call!($c)) }
    };
}

macro_rules! alloc_async {
    ($name:tt $c:tt $pointer:ident $bytes:ident $($a:ident)+) => {{
        let stream = stream_of!($c $($a)+);
        unsafe {
            governed::pool::allocate($pointer, $bytes as u64, stream, None$(.or(Argument($a).pool()))+, || {
                let on = preempt::stands_for(stream.0, stream.1);
                real!($c)($pointer, $bytes $(, Argument($a).on(on))+)
            })
        }
    }};
}

macro_rules! pool {
    ("cuMemPoolDestroy" $c:tt $pool:ident) => {
        governed::pool::destroy($pool, || hold_kernel::may_wait(call!($c)))
    };
    ("cuGraphAddMemAllocNode" $c:tt $($a:ident)*) => { pool!(@add_node $c $($a)*) };
    ("cuGraphAddNode" $c:tt $($a:ident)*) => { pool!(@add_node $c $($a)*) };
    (@add_node $c:tt $($a:ident)*) => {
        governed::pool::add_node(call!($c), || None$(.or(Argument($a).node_location()))*)
    };
    ($name:tt $c:tt $pool:ident $place:ident $($a:ident)*) => {
        unsafe { governed::pool::locate($pool, Argument($place).location(), call!($c)) }
    };
}

macro_rules! trim {
    ($name:tt $c:tt $($a:ident)*) => {
        governed::pool::trim(|| hold_kernel::may_wait(call!($c)))
    };
}

macro_rules! free {
    ("cuMemFree" $c:tt $pointer:ident) => {
        governed::charge::free_and_wait(HandleSpace::Pointer, u64::from($pointer), || {
            residency::free(u64::from($pointer)).unwrap_or_else(call!($c))
        })
    };
    ("cuArrayDestroy" $c:tt $array:ident) => {
        governed::charge::free_and_wait(HandleSpace::Array, $array.addr() as u64, call!($c))
    };
    ("cuMipmappedArrayDestroy" $c:tt $array:ident) => {
        governed::charge::free_and_wait(HandleSpace::Mipmap, $array.addr() as u64, call!($c))
    };
    // Ordered in a stream.
    ("cuMemFreeAsync" $c:tt $pointer:ident $stream:ident) => {
        governed::charge::free_in_stream($pointer, ($stream, per_thread!($c)), move |on| unsafe {
            residency::free($pointer).unwrap_or_else(|| real!($c)($pointer, on))
        })
    };
    // Only drops a reference.
    ("cuMemRelease" $c:tt $handle:ident) => {
        governed::charge::free(HandleSpace::Physical, $handle, call!($c))
    };
}

/// Physical memory stays allocated while it is mapped, so mappings count as references.
macro_rules! physical {
    ("cuMemRetainAllocationHandle" $c:tt $handle:ident $address:ident) => {
        unsafe { governed::physical::retain($handle, call!($c)) }
    };
    ("cuMemMap" $c:tt $pointer:ident $bytes:ident $offset:ident $handle:ident $flags:ident) => {
        governed::physical::map(($pointer, $bytes), $handle, call!($c))
    };
    ("cuMemUnmap" $c:tt $pointer:ident $bytes:ident) => {
        governed::physical::unmap(($pointer, $bytes), call!($c))
    };
}

macro_rules! query {
    ("cuMemGetInfo" $c:tt $free:ident $total:ident) => {
        unsafe { governed::query::memory_info(($free, $total), call!($c)) }
    };
    ("cuDeviceTotalMem" $c:tt $bytes:ident $device:ident) => {
        unsafe { governed::query::device_total($bytes, $device, call!($c)) }
    };
}
