//! How the driver numbers its clients.
//!
//! One after the other from a base, whoever makes them; after a million it begins again and leaves out those that are still there
//! (`rs_server.c`, `_serverCreateEntryAndLockForNewClient`). A number that is taken is stepped over by 1,024 at a time, so a client
//! may get one somewhat above the next.

/// First handle of the clients.
pub const CLIENTS: u32 = 0xc1d0_0000;
/// How many numbers there are.
pub const NUMBERS: u64 = 1 << 20;
/// Clients that are looked for first where it is not known how far the numbering has got.
const FEW: u64 = 512;
/// A reading so little behind the last one is no new round: the last one had stepped over numbers that were taken.
const STEPPED: u64 = 1 << 16;

/// A place in the row of numbers, which has no end: a number that comes round again is another place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(pub(super) u64);

impl Place {
    /// The handle of a client that was numbered there.
    pub(super) fn handle(self) -> u32 {
        let number = self.0 % NUMBERS;
        CLIENTS | u32::try_from(number).unwrap_or_default()
    }
}

/// Where the numbering has got to, from handles of clients that were made just then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbering(Place);

impl Default for Numbering {
    /// Nothing is known yet: a few clients were made.
    fn default() -> Self {
        Self(Place(NUMBERS + FEW))
    }
}

impl Numbering {
    /// With a client that was made just now, if one could be.
    #[must_use]
    pub fn at(newest: Option<u32>) -> Self {
        let number = newest.and_then(number);
        number.map_or_else(Self::default, |number| Self(Place(NUMBERS + number)))
    }

    /// A client was made just now.
    pub fn made(&mut self, client: u32) {
        let Some(number) = number(client) else { return };
        if *self == Self::default() {
            *self = Self::at(Some(client));
            return;
        }
        let ahead = (NUMBERS + number - self.0.0 % NUMBERS) % NUMBERS;
        if ahead < NUMBERS - STEPPED {
            self.0.0 += ahead;
        }
    }

    /// The place of the newest client that is known of.
    #[must_use]
    pub fn newest(&self) -> Place {
        self.0
    }
}

fn number(client: u32) -> Option<u64> {
    client.checked_sub(CLIENTS).map(u64::from).filter(|number| *number < NUMBERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbering_goes_on_when_the_numbers_begin_again() {
        let mut numbering = Numbering::default();
        let mut places = Vec::new();
        for made in [0xf_fff0, 0xf_fffe, 0x10, 0x8_0000, 0x10] {
            numbering.made(CLIENTS + made);
            places.push(numbering.newest());
        }
        let steps: Vec<u64> = places.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert_eq!(steps, [0xe, 0x12, 0x7_fff0, 0x8_0010]);
        let handles: Vec<u32> = places.iter().map(|place| place.handle() - CLIENTS).collect();
        assert_eq!(handles, [0xf_fff0, 0xf_fffe, 0x10, 0x8_0000, 0x10]);
    }

    #[test]
    fn a_number_that_was_stepped_over_does_not_make_a_round() {
        let mut numbering = Numbering::at(Some(CLIENTS + 0x1000 + 0x400));
        let before = numbering.newest();
        numbering.made(CLIENTS + 0x1001);
        assert_eq!(numbering.newest(), before);
        numbering.made(CLIENTS + 0x1500);
        assert_eq!(numbering.newest().0, before.0 + 0x100);
    }

    #[test]
    fn what_is_no_client_of_a_programs_tells_nothing() {
        let mut numbering = Numbering::at(Some(CLIENTS + 7));
        numbering.made(0xc1e0_0001);
        numbering.made(3);
        assert_eq!(numbering, Numbering::at(Some(CLIENTS + 7)));
        assert_eq!(Numbering::at(Some(0)), Numbering::default());
    }
}
