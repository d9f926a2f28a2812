//! CPU time of processes and threads, from the scheduler's own count in nanoseconds.

use std::fs;
use std::path::Path;

use anyhow::Context;

/// CPU time of all threads that a process has at this moment.
pub(super) fn cpu_ns_of_process(pid: i32) -> anyhow::Result<u64> {
    sum(pid, |_| true)
}

/// CPU time of the threads of this process that have a name.
pub(super) fn cpu_ns_of_threads(name: &str) -> anyhow::Result<u64> {
    sum(std::process::id().cast_signed(), |task| {
        fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    })
}

fn sum(pid: i32, which: impl Fn(&Path) -> bool) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/task");
    let mut total = 0;
    for task in fs::read_dir(&path).with_context(|| format!("cannot list {path}"))? {
        let task = task?.path();
        // A thread may end between the two calls.
        if let Ok(text) = fs::read_to_string(task.join("schedstat"))
            && which(&task)
        {
            let ran = text.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok());
            total += ran.with_context(|| format!("{} begins with no number", task.display()))?;
        }
    }
    Ok(total)
}
