//! Kubelet's device plugin.
