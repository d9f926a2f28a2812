//! A program in a pseudo-terminal, and what the terminal shows.

use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};

/// Longest time for something that has to appear.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A program and the terminal that it runs in. The program is killed when it is dropped.
pub(crate) struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    keyboard: Box<dyn Write + Send>,
    /// What the program writes; ends with the program.
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
}

impl Terminal {
    pub(crate) fn start(program: &str, arguments: &[&str], rows: u16, cols: u16) -> Self {
        let pty = native_pty_system().openpty(size(rows, cols)).unwrap();
        let mut command = CommandBuilder::new(program);
        command.args(arguments);
        command.env("TERM", "xterm-256color");
        let child = pty.slave.spawn_command(command).unwrap();
        // Only the program keeps the other end, so that the output ends with it.
        drop(pty.slave);
        let mut reader = pty.master.try_clone_reader().unwrap();
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let keyboard = pty.master.take_writer().unwrap();
        Self {
            child,
            master: pty.master,
            keyboard,
            output,
            screen: vt100::Parser::new(whole(rows), whole(cols), 0),
        }
    }

    /// Waits until the screen's lines meet the condition, and returns them.
    pub(crate) fn until(&mut self, what: &str, is_met: impl Fn(&[String]) -> bool) -> Vec<String> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let lines = self.lines();
            if is_met(&lines) {
                return lines;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(RecvTimeoutError::Timeout) => panic!("{what}: not within {TIMEOUT:?}: {lines:#?}"),
                Err(RecvTimeoutError::Disconnected) => panic!("{what}: the program has ended: {lines:#?}"),
            }
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    pub(crate) fn resize(&mut self, rows: u16, cols: u16) {
        self.screen.screen_mut().set_size(whole(rows), whole(cols));
        self.master.resize(size(rows, cols)).unwrap();
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.process_id().unwrap()).unwrap()
    }

    /// Waits until the program has ended, and returns its status.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().unwrap(),
                Err(RecvTimeoutError::Timeout) => panic!("does not end: {:#?}", self.lines()),
            }
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let screen = self.screen.screen();
        let (_, cols) = screen.size();
        screen.rows(0, cols.get()).map(|line| line.trim_end().to_owned()).collect()
    }

    /// Whether the terminal is as a shell expects it: its normal screen, a visible cursor, echo and whole lines.
    pub(crate) fn is_restored(&self) -> bool {
        let screen = self.screen.screen();
        let cooked = nix::libc::ECHO | nix::libc::ICANON;
        let settings = self.master.get_termios();
        let is_cooked = settings.is_some_and(|settings| settings.local_flags.bits() & cooked == cooked);
        !screen.alternate_screen() && !screen.hide_cursor() && is_cooked
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A size of the terminal, of which none is 0.
fn whole(size: u16) -> NonZero<u16> {
    NonZero::new(size).unwrap()
}

fn size(rows: u16, cols: u16) -> PtySize {
    PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }
}
