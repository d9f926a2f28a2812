//! gRPC messages, clients and servers, generated from the definitions beside this crate.
#![forbid(unsafe_code)]
#![allow(missing_docs, unreachable_pub, reason = "generated code, documented in the .proto files")]
#![allow(clippy::all, clippy::pedantic, clippy::restriction, reason = "generated code")]

/// Kubelet's device plugin API.
pub mod deviceplugin {
    tonic::include_proto!("v1beta1");
}

/// Kubelet's pod resources API.
pub mod podresources {
    tonic::include_proto!("v1");
}

/// The node agent's control of a pod-manager.
pub mod control {
    tonic::include_proto!("sluice.control.v1");
}
