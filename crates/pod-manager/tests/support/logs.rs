//! What the manager logs.
