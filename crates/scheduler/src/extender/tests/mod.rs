//! The extender as a kube-scheduler and an API server meet it.
