//! The agent's command-line flags about GPUs.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use super::nvml::DriverPaths;
use super::watcher::Settings;
use super::xid::{self, Policy};

/// Flags about GPUs; part of the agent's flags.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct Flags {
    /// Interval between two scans of every GPU, in milliseconds
    #[arg(long, value_name = "MILLISECONDS", default_value_t = Self::default().gpu_look_every_ms,
        value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    gpu_look_every_ms: u64,
    /// Consecutive good scans after which an unhealthy GPU is healthy again
    #[arg(long, value_name = "LOOKS", default_value_t = Self::default().gpu_good_looks)]
    gpu_good_looks: NonZeroU32,
    /// Further Xids that leave a GPU healthy, such as 63,92; Xids of applications always do
    #[arg(long, value_name = "XIDS", value_parser = XidList::parse, default_value = "")]
    ignore_xids: XidList,
    /// Xids that make a GPU unhealthy even if they count as faults of applications, such as 31
    #[arg(long, value_name = "XIDS", value_parser = XidList::parse, default_value = "")]
    critical_xids: XidList,
    /// NVML's library; by default libnvidia-ml.so.1 as the loader finds it
    #[arg(long, value_name = "FILE")]
    nvml: Option<PathBuf>,
}

/// A list of Xids as the value of a flag.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct XidList(Vec<u64>);

impl XidList {
    fn parse(text: &str) -> Result<Self, String> {
        xid::parse_list(text).map(Self)
    }
}

impl Default for Flags {
    fn default() -> Self {
        let Settings { scan_every, good_scans, .. } = Settings::default();
        Self {
            gpu_look_every_ms: u64::try_from(scan_every.as_millis()).unwrap_or(u64::MAX),
            gpu_good_looks: good_scans,
            ignore_xids: XidList::default(),
            critical_xids: XidList::default(),
            nvml: None,
        }
    }
}

impl Flags {
    /// How GPUs are watched, with this many device slots each.
    #[must_use]
    pub fn settings(&self, seats_per_gpu: u32) -> Settings {
        Settings {
            seats_per_gpu,
            scan_every: Duration::from_millis(self.gpu_look_every_ms),
            good_scans: self.gpu_good_looks,
            policy: Policy::new(self.ignore_xids.0.clone(), self.critical_xids.0.clone()),
            ..Settings::default()
        }
    }

    /// Where the driver's library is searched.
    #[must_use]
    pub fn paths(&self) -> DriverPaths {
        DriverPaths { library: self.nvml.clone(), ..DriverPaths::default() }
    }
}

#[cfg(test)]
mod tests {
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
    fn without_flags_it_is_as_the_defaults_say() {
        let flags = parse(&[]).unwrap();
        assert_eq!((flags.clone(), flags.paths()), (Flags::default(), DriverPaths::default()));
        assert_eq!(flags.settings(10), Settings::default());
    }

    #[test]
    fn flags_reach_the_watcher_and_the_driver() {
        let flags =
            ["--gpu-look-every-ms=250", "--gpu-good-looks=2", "--ignore-xids=63,92", "--critical-xids=31"];
        let flags = parse(&[&flags[..], &["--nvml=/opt/libnvidia-ml.so.1"]].concat()).unwrap();
        let settings = flags.settings(4);
        let numbers = (settings.seats_per_gpu, settings.scan_every.as_millis(), settings.good_scans.get());
        assert_eq!(numbers, (4, 250, 2));
        assert_eq!([63, 31].map(|code| settings.policy.class(code)), [Class::Application, Class::Critical]);
        assert_eq!(flags.paths().library, Some("/opt/libnvidia-ml.so.1".into()));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for wrong in
            ["--gpu-look-every-ms=0", "--gpu-good-looks=0", "--ignore-xids=13;31", "--critical-xids=x"]
        {
            let said = parse(&[wrong]).unwrap_err().to_string();
            let flag = wrong.split('=').next().unwrap();
            assert!(said.contains(flag), "{said}");
        }
    }
}
