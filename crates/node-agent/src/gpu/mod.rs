//! GPUs of the node and their health.
