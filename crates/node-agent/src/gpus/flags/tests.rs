//! Tests of `flags.rs`.

use super::super::xid::Class;
use super::*;
use clap::Parser;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    gpu: Flags,
}

fn parse(flags: &[&str]) -> Result<Flags, clap::Error> {
    Program::try_parse_from([&["agent"], flags].concat()).map(|program| program.gpu)
}

#[test]
fn defaults_are_used_without_gpu_flags() {
    let flags = parse(&[]).unwrap();
    assert_eq!((flags.clone(), flags.paths()), (Flags::default(), DriverPaths::default()));
    assert_eq!(flags.settings(10), Settings::default());
}

#[test]
fn flags_reach_the_watcher_and_the_driver() {
    let flags = [
        "--gpu-look-every-ms=250",
        "--gpu-good-looks=2",
        "--ignore-xids=63,92",
        "--critical-xids=31",
        "--context-reserve=1Gi",
        "--host-memory=64Gi",
    ];
    let flags = parse(&[&flags[..], &["--nvml=/opt/libnvidia-ml.so.1"]].concat()).unwrap();
    let settings = flags.settings(4);
    let numbers = (settings.slots_per_gpu, settings.scan_every.as_millis(), settings.good_scans.get());
    assert_eq!(numbers, (4, 250, 2));
    assert_eq!(settings.context_reserve, ContextReserve::PerSlot(1 << 30));
    assert_eq!(settings.host_memory, HostMemory(64 << 30));
    assert_eq!([63, 31].map(|code| settings.policy.class(code)), [Class::Application, Class::Critical]);
    assert_eq!(flags.paths().library, Some("/opt/libnvidia-ml.so.1".into()));
}

#[test]
fn invalid_values_are_refused_with_the_flag() {
    for wrong in [
        "--gpu-look-every-ms=0",
        "--gpu-good-looks=0",
        "--ignore-xids=13;31",
        "--critical-xids=x",
        "--context-reserve=much",
        "--host-memory=half",
    ] {
        let message = parse(&[wrong]).unwrap_err().to_string();
        let flag = wrong.split('=').next().unwrap();
        assert!(message.contains(flag), "{message}");
    }
}
