//! Processes whose channel groups the manager controls.

use super::driver::{Descriptor, context};
use super::hook::Hook;
use super::{World, until};
use std::os::fd::AsFd;

/// A process with these channel groups, all on one descriptor.
pub fn process_with_groups(world: &World, client: &str, groups: &[u32]) -> (Hook, Descriptor) {
    let descriptor = Descriptor::new();
    let contexts: Vec<_> = groups.iter().map(|group| context(*group)).collect();
    let hook = Hook::attach_with(
        &world.socket(),
        &world.peers.process(),
        client,
        0,
        (&contexts, &[descriptor.sent.as_fd()]),
    );
    (hook.unwrap(), descriptor)
}

/// Returns once the driver has nothing to do.
pub fn quiet(world: &World) {
    let is_quiet = || {
        world.settle();
        world.handle().gauge("sluice_controls_in_flight") == Some(0.0)
    };
    // The second control of a hand-off may begin a round of the event loop after the first one has ended.
    until("no control is in flight", || is_quiet() && is_quiet());
}

/// It has work from now on.
pub fn works(world: &World, hook: &Hook) {
    hook.becomes(true, world.clock.now());
    quiet(world);
}

/// It has had work. A latency-critical process is one that works for 10 s from then on.
pub fn worked(world: &World, hook: &Hook) {
    works(world, hook);
    hook.becomes(false, world.clock.now());
    quiet(world);
}

/// Two best-effort clients with work; the first holds the GPU.
pub fn two(world: &World) -> ((Hook, Descriptor), (Hook, Descriptor)) {
    let (a, b) = (process_with_groups(world, "be-a", &[1]), process_with_groups(world, "be-b", &[2]));
    works(world, &a.0);
    works(world, &b.0);
    (a, b)
}
