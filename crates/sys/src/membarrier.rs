//! Memory barriers in all threads of the process (membarrier): one side of a protocol makes a system call, so that the other side, which is
//! frequent, needs no barrier instruction.

/// Enables [`all_threads`] for this process. `false` if the kernel (before 4.14) or a filter of system calls refuses.
pub fn register() -> bool {
    call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0
}

/// Has every running thread of the process pass a full memory barrier between the begin and the end of this call. A thread that does not
/// run passes one when it is scheduled. `false` if the kernel refuses: the process is not registered.
pub fn all_threads() -> bool {
    call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0
}

fn call(command: libc::c_int) -> libc::c_long {
    // SAFETY: this system call takes three integers and touches no memory of the caller.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

#[cfg(test)]
mod tests;
