//! Reservations of memory that never leaves, which wait until the memory of others has left.

use crate::measured_memory::Reservation;

/// How long a reservation waits at most: less than a hook waits for an answer of a manager that runs. Then the driver decides.
const LONGEST_WAIT_NS: u64 = 4_000_000_000;
/// Reservations that wait at once. More are decided at once.
const MOST_WAITING: usize = 1_024;

/// In the order in which they came.
#[derive(Default)]
pub(super) struct WaitingReservations(Vec<(u64, Reservation)>);

impl WaitingReservations {
    /// Has a reservation wait. Returns it if too many wait.
    pub(super) fn add(&mut self, reservation: Reservation, now: u64) -> Option<Reservation> {
        if self.0.len() >= MOST_WAITING {
            return Some(reservation);
        }
        self.0.push((now, reservation));
        None
    }

    /// Takes out all if there is nothing to wait for, else those that have waited for long.
    pub(super) fn take_due(&mut self, waits: bool, now: u64) -> Vec<Reservation> {
        let is_due =
            |(since, _): &mut (u64, Reservation)| !waits || now.saturating_sub(*since) >= LONGEST_WAIT_NS;
        self.0.extract_if(.., is_due).map(|(_, reservation)| reservation).collect()
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.0.first().map(|(since, _)| since.saturating_add(LONGEST_WAIT_NS))
    }
}
