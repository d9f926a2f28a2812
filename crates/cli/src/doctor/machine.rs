//! Checks of the machine that need no GPU context.

use std::fs;
use std::path::Path;

use sluice_nvrm::DriverVersion;

use super::child::Reported;
use super::finding::{CheckStatus, Finding};
use super::next_steps;

/// Device files that every CUDA program opens.
const NODES: [&str; 3] = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"];

/// Device files, or the simulator's socket.
pub(super) fn nodes(simulator: Option<&Path>) -> Finding {
    if let Some(socket) = simulator {
        return match std::os::unix::net::UnixStream::connect(socket) {
            Ok(_) => Finding::ok("device_nodes", format!("a simulator answers at {}", socket.display())),
            Err(why) => Finding::of(
                "device_nodes",
                CheckStatus::Broken,
                format!("no simulator answers at {}: {why}", socket.display()),
                "start `sluice sim --socket PATH` and set SLUICE_SIM_SOCKET to the same path",
            ),
        };
    }
    let open = |node: &&str| {
        fs::File::options().read(true).write(true).open(node).err().map(|why| format!("{node}: {why}"))
    };
    // The GPU of this machine, or of this container, need not be the first.
    let gpus = numbered("/dev").unwrap_or_default();
    let wanted = NODES.iter().copied().take(2).chain(gpus.iter().map(String::as_str));
    let missing: Vec<String> = wanted.filter_map(|node| open(&node)).collect();
    if gpus.is_empty() || !missing.is_empty() {
        let found =
            if gpus.is_empty() { "no /dev/nvidia0 or other GPU".to_owned() } else { missing.join("; ") };
        return Finding::of("device_nodes", CheckStatus::Broken, found, next_steps::NODES);
    }
    Finding::ok("device_nodes", format!("{} and {} GPU(s)", NODES[..2].join(", "), gpus.len()))
}

/// /dev/nvidiaN for every N.
fn numbered(dev: &str) -> Option<Vec<String>> {
    let names = fs::read_dir(dev).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let gpus = names.filter(|name| {
        name.strip_prefix("nvidia")
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    });
    Some(gpus.map(|name| format!("{dev}/{name}")).collect())
}

/// The driver library and its version.
pub(super) fn library(reported: &Reported) -> Finding {
    match &reported.driver {
        Ok(facts) if facts.devices > 0 => Finding::ok(
            "driver_library",
            format!("CUDA {}.{}, {} ({})", facts.cuda / 1000, facts.cuda % 1000 / 10, facts.name, facts.uuid),
        ),
        Ok(_) => Finding::of(
            "driver_library",
            CheckStatus::Broken,
            "the driver finds no GPU",
            next_steps::SEES_A_GPU,
        ),
        Err(why) => Finding::of("driver_library", CheckStatus::Broken, why, next_steps::SEES_A_GPU),
    }
}

pub(super) fn branch(driver: &DriverVersion) -> Finding {
    match driver {
        DriverVersion::Compared(version) => {
            Finding::ok("driver_version", format!("{version}, its layouts were compared"))
        }
        DriverVersion::Unknown(version) => Finding::of(
            "driver_version",
            CheckStatus::Degraded,
            format!("{version}: the layouts of this driver branch were never compared"),
            next_steps::SELF_TEST,
        ),
        DriverVersion::NotVisible => Finding::of(
            "driver_version",
            CheckStatus::Inconclusive,
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
    Finding::of("compute_mode", CheckStatus::Broken, found, "nvidia-smi -c DEFAULT")
}

pub(super) fn mig_mode(reported: &Reported) -> Finding {
    match reported.nvml.as_ref().map(|nvml| nvml.mig) {
        Ok(Some(true)) => Finding::of(
            "mig_mode",
            CheckStatus::Broken,
            "MIG is on",
            "Sluice shares whole GPUs: nvidia-smi -i GPU -mig 0, or keep this one out of Sluice",
        ),
        Ok(Some(false)) => Finding::ok("mig_mode", "off"),
        Ok(None) => Finding::ok("mig_mode", "this GPU has none"),
        Err(why) => {
            Finding::of("mig_mode", CheckStatus::Inconclusive, format!("NVML: {why}"), next_steps::UTILITY)
        }
    }
}

#[cfg(test)]
mod tests;
