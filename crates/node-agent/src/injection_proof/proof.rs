//! The outcomes.

use std::fmt;

use crate::nri::{InForce, Injection};

/// The path by which the agent's own container got the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnPath {
    /// NRI and CDI: the container `own-driver` of the agent's pod named the devices.
    Nri,
    /// NVIDIA's container runtime.
    Runtime,
    /// None of them: the agent runs outside of a container, or sees the driver of the node.
    Other,
}

/// Set by the plugin `own-driver` in the agent's container. NVIDIA_VISIBLE_DEVICES alone does not tell the paths apart: NVIDIA's runtime
/// in its CDI mode sets it to `void`, too.
pub(crate) const OWN_DRIVER: &str = "SLUICE_OWN_DRIVER";

impl OwnPath {
    /// The path, by the operator's choice and the environment of the agent's container.
    #[must_use]
    pub(crate) fn of(injection: Injection, asked: bool, from_own_driver: bool) -> Self {
        match injection {
            Injection::Nri => Self::Nri,
            Injection::Auto if from_own_driver => Self::Nri,
            Injection::Auto | Injection::Runtime if asked => Self::Runtime,
            Injection::Auto | Injection::Runtime => Self::Other,
        }
    }

    /// Whether it is the path in force.
    pub(super) fn is(self, in_force: &InForce) -> bool {
        matches!((self, in_force), (Self::Nri, InForce::Nri(..)) | (Self::Runtime, InForce::Runtime(_)))
    }
}

/// What is known of the path in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Proof {
    /// No container has shown yet whether the path works.
    #[default]
    Open,
    /// This container got the driver by it.
    Proven(String),
    /// This container of a pod was to get a GPU and did not.
    NotInPod(String),
    /// The agent's own container has no driver. The driver's error.
    NotInAgent(String),
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => write!(f, "no container has shown yet whether containers get their GPUs"),
            Self::Proven(container) => write!(f, "containers get their GPUs: {container} has the driver"),
            Self::NotInPod(container) => write!(f, "{container} was to get a GPU and has no driver"),
            Self::NotInAgent(why) => write!(f, "the node agent's container has no driver: {why}"),
        }
    }
}

impl Proof {
    /// Value of the metric's label.
    #[must_use]
    pub fn label(&self) -> &'static str {
        self.into()
    }
}
