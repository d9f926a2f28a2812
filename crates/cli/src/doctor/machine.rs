//! Checks that need no GPU context: the machine, its driver, and settings that containers often lack.

use std::fs;
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit};
use sluice_nvrm::DriverVersion;

use super::child::Reported;
use super::finding::CheckStatus::{Broken, Degraded, Inconclusive};
use super::finding::Finding;
use super::next_steps;

/// Device files that every CUDA program opens, besides that of its GPU.
const NODES: [&str; 2] = ["/dev/nvidiactl", "/dev/nvidia-uvm"];
/// Open files that the hook needs in a process.
const FILES: u64 = 256;

/// Device files, or the simulator's socket.
pub(super) fn nodes(simulator: Option<&Path>) -> Finding {
    if let Some(socket) = simulator {
        return match std::os::unix::net::UnixStream::connect(socket) {
            Ok(_) => Finding::ok("device_nodes", format!("a simulator answers at {}", socket.display())),
            Err(why) => Finding::of(
                "device_nodes",
                Broken,
                format!("no simulator answers at {}: {why}", socket.display()),
                "start `sluice sim --socket PATH` and set SLUICE_SIM_SOCKET to the same path",
            ),
        };
    }
    let cannot_open = |node: &str| {
        fs::File::options().read(true).write(true).open(node).err().map(|why| format!("{node}: {why}"))
    };
    // The GPU of this machine, or of this container, need not be the first.
    let gpus = gpu_nodes();
    let wanted = NODES.into_iter().chain(gpus.iter().map(String::as_str));
    let missing: Vec<String> = wanted.filter_map(cannot_open).collect();
    let found = match (gpus.is_empty(), missing.is_empty()) {
        (true, _) => "no /dev/nvidia0 or other GPU".to_owned(),
        (false, false) => missing.join("; "),
        (false, true) => {
            let found = format!("{} and {} GPU(s)", NODES.join(", "), gpus.len());
            return Finding::ok("device_nodes", found);
        }
    };
    Finding::of("device_nodes", Broken, found, next_steps::NODES)
}

/// /dev/nvidiaN for every N.
fn gpu_nodes() -> Vec<String> {
    let names = fs::read_dir("/dev").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let gpus = names.filter(|name| name.strip_prefix("nvidia").is_some_and(is_number));
    gpus.map(|name| format!("/dev/{name}")).collect()
}

/// The driver library and its version.
pub(super) fn library(reported: &Reported) -> Finding {
    match &reported.driver {
        Ok(facts) if facts.devices > 0 => Finding::ok(
            "driver_library",
            format!("CUDA {}.{}, {} ({})", facts.cuda / 1000, facts.cuda % 1000 / 10, facts.name, facts.uuid),
        ),
        Ok(_) => Finding::of("driver_library", Broken, "the driver finds no GPU", next_steps::SEES_A_GPU),
        Err(why) => Finding::of("driver_library", Broken, why, next_steps::SEES_A_GPU),
    }
}

pub(super) fn branch(driver: &DriverVersion) -> Finding {
    match driver {
        DriverVersion::Compared(version) => {
            Finding::ok("driver_version", format!("{version}, its layouts were compared"))
        }
        DriverVersion::Unknown(version) => Finding::of(
            "driver_version",
            Degraded,
            format!("{version}: the layouts of this driver branch were never compared"),
            next_steps::SELF_TEST,
        ),
        DriverVersion::NotVisible => Finding::of(
            "driver_version",
            Inconclusive,
            "neither NVML nor the kernel reports which driver is loaded",
            next_steps::UTILITY,
        ),
    }
}

pub(super) fn compute_mode(reported: &Reported) -> Finding {
    let Ok(facts) = &reported.driver else { return Finding::skipped("compute_mode", "no driver") };
    let found = match facts.compute_mode {
        0 => return Finding::ok("compute_mode", "default: several processes at once"),
        2 => "prohibited: no process may use the GPU",
        3 => "exclusive: one process at a time",
        _ => "unknown compute mode",
    };
    Finding::of("compute_mode", Broken, found, "nvidia-smi -c DEFAULT")
}

pub(super) fn mig_mode(reported: &Reported) -> Finding {
    match reported.nvml.as_ref().map(|nvml| nvml.mig) {
        Ok(Some(true)) => Finding::of(
            "mig_mode",
            Broken,
            "MIG is on",
            "Sluice shares whole GPUs: nvidia-smi -i GPU -mig 0, or keep this one out of Sluice",
        ),
        Ok(Some(false)) => Finding::ok("mig_mode", "off"),
        Ok(None) => Finding::ok("mig_mode", "this GPU has none"),
        Err(why) => Finding::of("mig_mode", Inconclusive, format!("NVML: {why}"), next_steps::UTILITY),
    }
}

pub(super) fn shared_memory() -> Finding {
    match tempfile::tempfile_in("/dev/shm") {
        Ok(_) => Finding::ok("dev_shm", "writable"),
        Err(why) => Finding::of("dev_shm", Degraded, format!("/dev/shm: {why}"), next_steps::SHM),
    }
}

pub(super) fn open_files() -> Finding {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, _)) if soft >= FILES => Finding::ok("open_files", format!("limit {soft}")),
        Ok((soft, _)) => Finding::of(
            "open_files",
            Degraded,
            format!("limit {soft}, {FILES} are needed"),
            format!("ulimit -n {FILES} or more"),
        ),
        Err(why) => Finding::of("open_files", Inconclusive, why.to_string(), "ulimit -n"),
    }
}

/// The libraries that the loader puts into every program of this container or machine.
pub(super) fn preloaded() -> Finding {
    let text = fs::read_to_string("/etc/ld.so.preload").unwrap_or_default();
    match named(&text) {
        Some(path) if Path::new(path).is_file() => Finding::ok("ld_so_preload", format!("loads {path}")),
        Some(path) => Finding::of(
            "ld_so_preload",
            Broken,
            format!(
                "/etc/ld.so.preload names {path}, which does not exist: every program here starts with an error and without the hook"
            ),
            "mount the library's directory, or remove the line",
        ),
        None => Finding::skipped(
            "ld_so_preload",
            "no line for libsluice.so: right on a node, wrong in a tenant's container",
        ),
    }
}

/// The hook among the libraries that a file of this form names.
fn named(preload: &str) -> Option<&str> {
    let loaded = preload.lines().filter_map(|line| line.split('#').next());
    loaded.flat_map(|line| line.split([' ', ':', '\t'])).find(|word| word.ends_with("libsluice.so"))
}

#[cfg(test)]
mod tests;
