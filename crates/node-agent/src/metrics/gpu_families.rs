//! The series of one GPU, of its pod-manager and of the channel-group scheduling.

use sluice_placement::inventory::Gpu;
use sluice_proto::control::Steering;

use super::Facts;
use super::families::{Families, Labels, ratio};
use super::latency_families::histogram;
use crate::managers::ManagerState;

pub(super) fn add(families: &mut Families, gpu: &Gpu, facts: &Facts) -> prometheus::Result<()> {
    let own = [("gpu", gpu.uuid.as_str()), ("node", facts.node.as_str())];
    let (index, numa) = (gpu.index.to_string(), gpu.numa.map(|numa| numa.to_string()).unwrap_or_default());
    let more = [("model", gpu.model.as_str()), ("index", &index), ("pci", &gpu.pci), ("numa", &numa)];
    let help = "Always 1; the labels describe a GPU of this node";
    families.set_gauges(&[own.as_slice(), &more].concat(), &[("sluice_gpu_info", help, 1.0)])?;
    let clients = facts.assignments.sets.get(&gpu.uuid).map(Vec::as_slice).unwrap_or_default();
    let manager = facts.managers.get(&gpu.uuid);
    let snapshot = facts.snapshots.get(&gpu.uuid).and_then(|snapshot| snapshot.as_ref().ok());
    let serves = manager.is_some_and(|manager| manager.state == ManagerState::Serving);
    families.set_gauges(
        &own,
        &[
            ("sluice_gpu_healthy", "1 if the GPU takes new pods, else 0", f64::from(gpu.healthy)),
            ("sluice_gpu_memory_bytes", "Memory of the GPU, bytes", gpu.memory_total() as f64),
            (
                "sluice_gpu_memory_usable_bytes",
                "Memory of the GPU that pods may request, bytes",
                gpu.memory_bytes as f64,
            ),
            (
                "sluice_gpu_host_memory_bytes",
                "Memory of the host for what leaves the GPU, bytes",
                gpu.host_memory_bytes as f64,
            ),
            (
                "sluice_gpu_quota_assigned_ratio",
                "Share of the GPU's time that is guaranteed to pods",
                ratio(clients.iter().map(|client| client.quota_ppm).sum()),
            ),
            (
                "sluice_gpu_memory_assigned_bytes",
                "Memory of the GPU that is promised to pods, bytes",
                clients.iter().map(|client| client.memory_bytes).sum::<u64>() as f64,
            ),
            ("sluice_gpu_clients", "Clients of the GPU", clients.len() as f64),
            (
                "sluice_manager_up",
                "1 if the GPU's pod-manager answers and has its current clients, else 0",
                f64::from(snapshot.is_some() && serves),
            ),
        ],
    )?;
    let restarts = manager.map_or(0, |manager| manager.restarts) as f64;
    families
        .add_counters(&own, &[("sluice_manager_restarts_total", "Restarts of the pod-manager", restarts)])?;
    if let Some(manager) = manager {
        let help = "Outcome of the self-test of the GPU's driver controls: 1 for one of the outcomes";
        let labels = [own.as_slice(), &[("outcome", manager.self_test.name())]].concat();
        families.set_gauges(&labels, &[("sluice_gpu_self_test", help, 1.0)])?;
    }
    let Some(snapshot) = snapshot else { return Ok(()) };
    for (reason, count) in &snapshot.refused {
        let name = "sluice_manager_refused_connections_total";
        let labels = [own.as_slice(), &[("reason", reason.as_str())]].concat();
        let help = "Connections that the pod-manager refused";
        families.counter(name, help, &labels)?.inc_by(*count as f64);
    }
    for (outcome, count) in &snapshot.memory_readings {
        let name = "sluice_manager_memory_readings_total";
        let labels = [own.as_slice(), &[("outcome", outcome.as_str())]].concat();
        let help = "Readings of the memory of processes that the driver reports, by outcome";
        families.counter(name, help, &labels)?.inc_by(*count as f64);
    }
    for (outcome, count) in &snapshot.policy_reloads {
        let name = "sluice_manager_policy_reloads_total";
        let labels = [own.as_slice(), &[("outcome", outcome.as_str())]].concat();
        let help = "New texts of the pod-manager's policy file, by outcome: applied, or refused because of a mistake";
        families.counter(name, help, &labels)?.inc_by(*count as f64);
    }
    snapshot.steering.as_ref().map_or(Ok(()), |reported| add_scheduling(families, &own, reported))
}

fn add_scheduling(families: &mut Families, own: &Labels<'_>, reported: &Steering) -> prometheus::Result<()> {
    families.add_counters(
        own,
        &[
            (
                "sluice_turns_total",
                "Quanta enforced by enabling and disabling channel groups",
                reported.turns as f64,
            ),
            (
                "sluice_hand_overs_forced_total",
                "Times that the hand-off window opened only because the longest wait had passed",
                reported.hand_overs_forced as f64,
            ),
            (
                "sluice_steering_given_up_total",
                "Times that a process became token-scheduled for a while because a control of it failed",
                reported.given_up as f64,
            ),
            (
                "sluice_control_descriptors_refused_total",
                "Descriptors announced by pods' processes that are no control descriptors",
                reported.descriptors_refused as f64,
            ),
            (
                "sluice_announcements_refused_total",
                "Announcements of contexts that were ignored because their pod made too many",
                reported.announcements_refused as f64,
            ),
        ],
    )?;
    for one in &reported.controls {
        let help = "Driver controls of channel groups, by kind and outcome";
        let labels = [own, &[("control", one.control.as_str()), ("outcome", &one.outcome)]].concat();
        families.counter("sluice_controls_total", help, &labels)?.inc_by(one.count as f64);
    }
    for one in &reported.preemptions {
        let help = "Pre-emptions of a process, by level and outcome";
        let labels = [own, &[("level", one.level.as_str()), ("outcome", &one.outcome)]].concat();
        families.counter("sluice_preemptions_total", help, &labels)?.inc_by(one.count as f64);
    }
    let times = [
        (
            "sluice_preemption_seconds",
            "Time until a preempted process had left the GPU, seconds",
            &reported.preemption_times,
        ),
        (
            "sluice_hand_off_seconds",
            "Time from the first step of a hand-off until the next process had the GPU, seconds",
            &reported.hand_off_times,
        ),
    ];
    for (name, help, by_level) in times {
        for (level, times) in by_level {
            let labels = [own, &[("level", level.as_str())]].concat();
            families.add_histogram(name, help, &labels, histogram(times));
        }
    }
    for (level, processes) in &reported.levels {
        let help = "Attached processes, by the mechanism that makes them yield the GPU";
        let labels = [own, &[("level", level.as_str())]].concat();
        families.gauge("sluice_level", help, &labels)?.set(f64::from(*processes));
    }
    Ok(())
}
