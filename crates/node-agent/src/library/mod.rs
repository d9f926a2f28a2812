//! The library folder that pods get mounted.
