//! What an operator may say on the agent's command line about how pod-managers hold pods to their shares.

use std::ffi::OsString;

use clap::ValueEnum;

/// Flags that every pod-manager gets; part of the agent's.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
#[group(id = "manager_flags")]
pub struct Flags {
    /// Whether pod-managers stop, start and slice the channel groups of pods' programs, so that the GPU itself keeps turns
    /// and latency-critical pods take it from others
    #[arg(long, value_enum, default_value_t)]
    controls: Controls,
    /// Whether programs of pods that run without the pod's library (linked statically, started with another environment) are found by
    /// their cgroups, and their channel groups steered all the same: off if not said
    #[arg(long, value_enum)]
    adopt: Option<Adopt>,
    /// How long a turn lasts where the GPU's controls keep it, in milliseconds, 30 to 100: 50 if not said
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(30..=100))]
    turn_ms: Option<u64>,
    /// Whose work is held back at gates of the pod's own library while somebody latency-critical is busy: off if not said
    #[arg(long, value_enum)]
    gates: Option<Gates>,
    /// Whether what the GPU's controls do is tried before a GPU's first pod-manager starts: needs the GPU for a moment,
    /// and does without where somebody uses it
    #[arg(long, value_enum, default_value_t)]
    self_test: SelfTest,
}

/// When a GPU's controls are tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum SelfTest {
    /// Once per GPU, driver and boot
    #[default]
    Once,
    /// Never: the driver's version decides
    Off,
}

/// Whose channel groups are controlled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Controls {
    /// Those behind descriptors of the NVIDIA control device, if the driver's layouts are known
    #[default]
    Auto,
    /// The same with any driver
    AnyDriver,
    /// Those of a simulator too: for tests. A program could make one of its own, and be controlled in name only
    #[value(hide = true)]
    Simulated,
    /// Nobody's: everybody takes turns by token
    Off,
}

/// Whether programs without the pod's library are steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Adopt {
    /// Where channel groups are controlled. Needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; what cannot be done is counted by why
    Auto,
    /// Nobody is looked for
    Off,
}

impl Adopt {
    /// In the words of agent and manager.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
        }
    }
}

/// Whose gates are closed for latency-critical pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Gates {
    /// Those of programs whose channel groups are not controlled
    Auto,
    /// The others' too
    Always,
    /// Nobody's
    Off,
}

impl Gates {
    /// In the words of agent and manager.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Off => "off",
        }
    }
}

impl Controls {
    /// In the words of agent and manager.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::AnyDriver => "any-driver",
            Self::Simulated => "simulated",
            Self::Off => "off",
        }
    }
}

impl Flags {
    /// Whether a simulator is taken for a driver.
    pub(crate) fn simulated(&self) -> bool {
        self.controls == Controls::Simulated
    }

    /// Whether GPUs are to be tried, which is of use only to who controls them.
    pub(crate) fn tests(&self) -> bool {
        self.self_test == SelfTest::Once && self.controls != Controls::Off
    }

    /// As a pod-manager is told; what is not said is its own default.
    #[must_use]
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments = vec![format!("--controls={}", self.controls.word())];
        arguments.extend(self.adopt.map(|adopt| format!("--adopt={}", adopt.word())));
        arguments.extend(self.turn_ms.map(|ms| format!("--turn-ms={ms}")));
        arguments.extend(self.gates.map(|gates| format!("--gates={}", gates.word())));
        arguments.into_iter().map(OsString::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        managers: Flags,
    }

    fn parse(flags: &[&str]) -> Result<Flags, clap::Error> {
        Program::try_parse_from([&["agent"], flags].concat()).map(|program| program.managers)
    }

    #[test]
    fn without_flags_the_gpus_controls_are_used_where_the_driver_is_known() {
        let flags = parse(&[]).unwrap();
        assert_eq!(flags, Flags::default());
        assert_eq!(flags.arguments(), ["--controls=auto"]);
    }

    #[test]
    fn every_flag_reaches_the_managers_in_the_word_that_it_was_given_in() {
        for controls in ["--controls=auto", "--controls=any-driver", "--controls=simulated", "--controls=off"]
        {
            assert_eq!(parse(&[controls, "--turn-ms=100"]).unwrap().arguments(), [controls, "--turn-ms=100"]);
        }
        for adopt in ["--adopt=auto", "--adopt=off"] {
            assert_eq!(parse(&[adopt]).unwrap().arguments(), ["--controls=auto", adopt]);
        }
        for gates in ["--gates=auto", "--gates=always", "--gates=off"] {
            assert_eq!(parse(&[gates]).unwrap().arguments(), ["--controls=auto", gates]);
        }
    }

    #[test]
    fn gpus_are_tried_unless_nobody_would_use_what_is_found() {
        let tests = |flags: &[&str]| parse(flags).unwrap().tests();
        assert!(tests(&[]) && tests(&["--controls=any-driver"]));
        assert!(!tests(&["--self-test=off"]) && !tests(&["--controls=off"]));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for wrong in [
            "--controls=maybe",
            "--adopt=all",
            "--gates=ajar",
            "--turn-ms=29",
            "--turn-ms=101",
            "--turn-ms=long",
        ] {
            let said = parse(&[wrong]).unwrap_err().to_string();
            assert!(said.contains(wrong.split('=').next().unwrap()), "{said}");
        }
    }
}
