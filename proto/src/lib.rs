//! gRPC messages, clients and servers, generated from the definitions beside this crate: kubelet's device plugin API
//! ([`deviceplugin`]), its API of DRA drivers ([`dra`]) with their registration ([`pluginregistration`]), the control API between
//! the node agent and a pod-manager ([`control`]), and the messages of containerd's Node Resource Interface ([`nri`], [`ttrpc`]).
//!
//! The comments of the `.proto` files are the documentation of the fields.
#![forbid(unsafe_code)]
#![allow(missing_docs, unreachable_pub, reason = "generated code, documented in the .proto files")]
#![allow(clippy::all, clippy::pedantic, clippy::restriction, reason = "generated code")]

/// Kubelet's device plugin API.
pub mod deviceplugin {
    tonic::include_proto!("v1beta1");
}

/// Kubelet's API of DRA drivers.
pub mod dra {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
}

/// Kubelet's registration of plugins by sockets.
pub mod pluginregistration {
    tonic::include_proto!("pluginregistration");
}

/// Messages of containerd's Node Resource Interface.
pub mod nri {
    tonic::include_proto!("nri.pkg.api.v1alpha1");
}

/// Messages of ttrpc, which carries the Node Resource Interface.
pub mod ttrpc {
    tonic::include_proto!("ttrpc");
}

/// The API by which the node agent controls a pod-manager.
pub mod control {
    tonic::include_proto!("sluice.control.v1");
}
