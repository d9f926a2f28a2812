//! gRPC messages, clients and servers, generated from the definitions beside this crate: kubelet's device plugin API
//! ([`deviceplugin`]) and the control API between the node agent and a pod-manager ([`control`]).
//!
//! The comments of the `.proto` files are the documentation of the fields.
#![forbid(unsafe_code)]
#![allow(missing_docs, unreachable_pub, reason = "generated code, documented in the .proto files")]
#![allow(clippy::all, clippy::pedantic, clippy::restriction, reason = "generated code")]

/// Kubelet's device plugin API.
pub mod deviceplugin {
    tonic::include_proto!("v1beta1");
}

/// The API by which the node agent controls a pod-manager.
pub mod control {
    tonic::include_proto!("sluice.control.v1");
}
