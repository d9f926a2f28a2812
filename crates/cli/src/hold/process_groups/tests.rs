use super::*;
use std::cell::Cell;

/// A process that has ended or not, and that the driver may refuse to release.
struct FakeProcess<'a> {
    pid: i32,
    has_ended: bool,
    is_refused: bool,
    released: &'a Cell<u32>,
}

impl Releasable for FakeProcess<'_> {
    fn pid(&self) -> i32 {
        self.pid
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn release(&self) -> Result<(), String> {
        self.released.set(self.released.get() + 1);
        if self.is_refused || self.has_ended { Err("refused".to_owned()) } else { Ok(()) }
    }
}

#[test]
fn process_that_is_not_released_is_named_and_the_others_are_released() {
    let released = Cell::new(0);
    let process =
        |pid, has_ended, is_refused| FakeProcess { pid, has_ended, is_refused, released: &released };
    let error =
        ReleaseGuard(vec![process(1, false, true), process(2, true, false), process(3, false, false)])
            .release()
            .unwrap_err()
            .to_string();
    assert_eq!(error, "process 1 could not be released: refused");
    assert_eq!(released.get(), 3);
    ReleaseGuard(vec![process(2, true, false), process(3, false, false)]).release().unwrap();
    assert_eq!(released.get(), 5, "each process is released once");
}
