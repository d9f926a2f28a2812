//! The webhook's certificate: created, shared between replicas and renewed by the webhook itself ([`renewer`]), or
//! read from files that cert-manager writes ([`files`]).

pub(super) mod files;
pub(super) mod kubernetes;
pub(super) mod renewer;
pub(super) mod rotation;
pub(super) mod tls;

#[cfg(test)]
pub(super) mod tests;
