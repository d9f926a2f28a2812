//! The connections of the devices in use, by number.

use crate::gpu::MAX_DEVICES;
use crate::leaked::Leaked;
use crate::link::TokenConnection;

static LINKS: [Leaked<TokenConnection>; MAX_DEVICES] = [const { Leaked::none() }; MAX_DEVICES];

/// The device with this number is in use from here on.
pub(crate) fn introduce_link(ordinal: u32, link: &'static TokenConnection) {
    if let Some(place) = place(ordinal) {
        place.share(link);
    }
}

/// The connection of a device; `None` if it is not in use.
pub(super) fn of_device(ordinal: u32) -> Option<&'static TokenConnection> {
    place(ordinal)?.get()
}

fn place(ordinal: u32) -> Option<&'static Leaked<TokenConnection>> {
    LINKS.get(usize::try_from(ordinal).ok()?)
}
