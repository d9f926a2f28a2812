//! The series of a pod-manager's own process. The managers have no HTTP pages, so Prometheus reads them here.

use prometheus::proto::{Bucket, Histogram};
use sluice_daemon::ProcessFigures;
use sluice_proto::control::EventLoop;

use super::Facts;
use super::families::{Families, Labels};

pub(super) fn add(
    families: &mut Families,
    gpu: &str,
    figures: &ProcessFigures,
    facts: &Facts,
) -> prometheus::Result<()> {
    let own = [("gpu", gpu), ("node", facts.node.as_str())];
    add_process(families, &own, figures)?;
    let Some(Ok(snapshot)) = facts.snapshots.get(gpu) else { return Ok(()) };
    let help = "Energy that the GPU drew, or would have drawn, without work, joules";
    let idle = snapshot.idle_energy_joules;
    families.add_counters(&own, &[("sluice_gpu_idle_energy_joules_total", help, idle)])?;
    let help = "Log lines of the pod-manager dropped because standard error was not read";
    let dropped = snapshot.log_lines_dropped as f64;
    families.add_counters(&own, &[("sluice_manager_log_lines_dropped_total", help, dropped)])?;
    if let Some(rounds) = &snapshot.event_loop {
        let help = "Time of one round of the pod-manager's event loop, seconds";
        families.add_histogram("sluice_manager_event_loop_seconds", help, &own, histogram(rounds));
    }
    Ok(())
}

fn add_process(
    families: &mut Families,
    own: &Labels<'_>,
    figures: &ProcessFigures,
) -> prometheus::Result<()> {
    let gauges = [
        (
            "sluice_manager_resident_memory_bytes",
            "Resident memory of the pod-manager, bytes",
            figures.resident_bytes,
        ),
        ("sluice_manager_open_fds", "Open file descriptors of the pod-manager", figures.open_descriptors),
        (
            "sluice_manager_max_fds",
            "Limit of open file descriptors of the pod-manager",
            figures.most_descriptors,
        ),
        ("sluice_manager_threads", "Threads of the pod-manager", figures.threads),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            families.set_gauges(own, &[(name, help, value as f64)])?;
        }
    }
    let help = "CPU time of the pod-manager, seconds";
    figures.cpu_seconds.map_or(Ok(()), |seconds| {
        families.add_counters(own, &[("sluice_manager_cpu_seconds_total", help, seconds)])
    })
}

fn histogram(rounds: &EventLoop) -> Histogram {
    let bucket = |counted: &sluice_proto::control::EventLoopBucket| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(counted.seconds);
        bucket.set_cumulative_count(counted.rounds);
        bucket
    };
    let mut histogram = Histogram::default();
    histogram.set_bucket(rounds.buckets.iter().map(bucket).collect());
    histogram.set_sample_count(rounds.rounds);
    histogram.set_sample_sum(rounds.seconds);
    histogram
}
