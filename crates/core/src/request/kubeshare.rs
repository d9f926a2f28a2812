//! KubeShare.
