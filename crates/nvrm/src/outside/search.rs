//! Which clients were made over one open file: by asking for one number after the other, and for none twice.

use super::numbering::{NUMBERS, Place};
use super::walk::Ask;
use crate::{ControlError, NvStatus};
use std::cell::Cell;

/// So many numbers below those that were given last are asked for again each time: one that was taken is stepped over, and those
/// that were left out come later.
const AGAIN: u64 = 2_048;
/// Who is further behind than this is not caught up with by looks alone.
const BEHIND: u64 = 1 << 15;

/// Questions that may still be asked; each takes a real driver a microsecond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Questions(Cell<u32>);

impl Questions {
    /// So many.
    #[must_use]
    pub fn new(questions: u32) -> Self {
        Self(Cell::new(questions))
    }

    /// How many are left.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.0.get()
    }

    /// Counts so many.
    pub(super) fn spend(&self, questions: u32) {
        self.0.set(self.0.get().saturating_sub(questions));
    }

    /// Counts one; false if there was none left.
    pub(super) fn take(&self) -> bool {
        let left = self.0.get().checked_sub(1);
        self.0.set(left.unwrap_or_default());
        left.is_some()
    }
}

/// What is known of the clients of one open file.
///
/// The numbers that were asked for are a stretch of places. Whoever was there before was numbered below it, whoever has come since
/// above it; so it grows in both directions, until it is as long as there are numbers.
#[derive(Debug, Clone)]
pub struct Search {
    /// The lowest place that was asked for, and the first above it that was not.
    low: u64,
    high: u64,
    clients: Vec<u32>,
}

impl Search {
    /// Of nothing yet, by who thinks that this client is the newest.
    #[must_use]
    pub fn from(newest: Place) -> Self {
        Self { low: newest.0 + 1, high: newest.0 + 1, clients: Vec::new() }
    }

    /// The clients that were found and were there when they were asked for last, newest first.
    #[must_use]
    pub fn clients(&self) -> &[u32] {
        &self.clients
    }

    /// Whether the last `circle` numbers were asked for.
    #[must_use]
    pub fn is_complete(&self, circle: u64) -> bool {
        self.high - self.low >= circle.min(NUMBERS)
    }

    /// Whether many clients were made since the last time, whoever's they are.
    #[must_use]
    pub fn is_behind(&self, newest: Place) -> bool {
        newest.0 > self.high + BEHIND
    }

    /// Forgets what was asked for, and keeps the clients.
    pub fn begin_again(&mut self, newest: Place) {
        (self.low, self.high) = (newest.0 + 1, newest.0 + 1);
    }

    /// Whether this is the file that the clients are on, as far as that can be told: one of them answers. Those that do not have been
    /// freed.
    ///
    /// # Errors
    /// What the driver says where it should answer.
    pub fn is_on(&mut self, driver: &impl Ask, questions: &Questions) -> Result<bool, ControlError> {
        let mut still = Vec::new();
        for client in &self.clients {
            if !questions.take() || is_there(driver, *client)? {
                still.push(*client);
            }
        }
        let is_on = !still.is_empty();
        if is_on {
            self.clients = still;
        }
        Ok(is_on)
    }

    /// Asks for the clients that were made since the last time. Without enough questions the rest is asked for the next time.
    ///
    /// # Errors
    /// What the driver says where it should answer.
    pub fn catch_up(
        &mut self,
        driver: &impl Ask,
        newest: Place,
        questions: &Questions,
    ) -> Result<(), ControlError> {
        let oldest = (newest.0 + 1).saturating_sub(NUMBERS);
        if self.high < oldest {
            // Nothing that was asked for is known any more.
            (self.low, self.high) = (oldest, oldest);
        }
        let mut place = self.high.saturating_sub(AGAIN).max(self.low);
        while place <= newest.0 && questions.take() {
            self.ask(driver, Place(place))?;
            place += 1;
            self.high = self.high.max(place);
        }
        Ok(())
    }

    /// Asks for clients that were made before those that were asked for, the newest first, until there are no more numbers or
    /// questions, or `enough` says so of the number of places since the last client that was found.
    ///
    /// # Errors
    /// What the driver says where it should answer.
    pub fn go_back(
        &mut self,
        driver: &impl Ask,
        circle: u64,
        questions: &Questions,
        enough: impl Fn(&[u32], u64) -> bool,
    ) -> Result<(), ControlError> {
        let mut since = 0;
        while !self.is_complete(circle) && !enough(&self.clients, since) && self.low > 0 && questions.take() {
            let found = self.ask(driver, Place(self.low - 1))?;
            self.low -= 1;
            since = if found { 0 } else { since + 1 };
        }
        Ok(())
    }

    fn ask(&mut self, driver: &impl Ask, place: Place) -> Result<bool, ControlError> {
        let client = place.handle();
        if !is_there(driver, client)? {
            return Ok(false);
        }
        if !self.clients.contains(&client) {
            self.clients.push(client);
            self.clients.sort_unstable_by(|one, other| other.cmp(one));
        }
        Ok(true)
    }
}

/// Whether there is such a client on this file.
pub(super) fn is_there(driver: &impl Ask, client: u32) -> Result<bool, ControlError> {
    match driver.class(client, client) {
        Ok(class) => Ok(class.is_some()),
        Err(ControlError::Refused(NvStatus::INVALID_CLIENT)) => Ok(false),
        Err(error) => Err(error),
    }
}
