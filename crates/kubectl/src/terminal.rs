//! The live view of `top`: one loop that handles keys and new pages in the order in which they arrive.

mod screen;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::source::Source;
use crate::top::Top;
use screen::Screen;

/// What the loop waits for.
enum Message {
    /// A key, or another size of the terminal.
    Input(Event),
    /// The terminal cannot be read any more.
    NoInput(std::io::Error),
    /// A new page, or the reason why there is none.
    Page(anyhow::Result<Top>),
    /// SIGTERM: the terminal has to be restored first.
    Terminate,
}

/// Shows the pages of a source until the user ends it. The terminal is restored at the end, also after a panic.
pub(crate) fn run(runtime: &Runtime, source: Source, interval: Duration) -> anyhow::Result<()> {
    let (sender, messages) = channel();
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    start_senders(runtime, &sender, source, interval);
    let outcome = show(&mut terminal, &messages);
    ratatui::try_restore().context("cannot restore the terminal")?;
    outcome
}

fn start_senders(runtime: &Runtime, sender: &Sender<Message>, source: Source, interval: Duration) {
    let pages = sender.clone();
    runtime.spawn(async move {
        loop {
            let start = Instant::now();
            let page = source.top().await;
            let pause = pause(interval, start.elapsed());
            if pages.send(Message::Page(page)).is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    });
    let terminations = sender.clone();
    runtime.spawn(async move {
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            terminate.recv().await;
            let _ = terminations.send(Message::Terminate);
        }
    });
    // A read of the terminal cannot be interrupted; the thread ends with the process.
    let inputs = sender.clone();
    thread::spawn(move || {
        loop {
            let (message, is_last) = match event::read() {
                Ok(event) => (Message::Input(event), false),
                Err(error) => (Message::NoInput(error), true),
            };
            if inputs.send(message).is_err() || is_last {
                return;
            }
        }
    });
}

/// Time between two readings, of which the latest took `reading`. In a large cluster a reading loads the API server; at most a
/// tenth of the time is spent on it.
fn pause(interval: Duration, reading: Duration) -> Duration {
    interval.max(reading.saturating_mul(10))
}

fn show(terminal: &mut DefaultTerminal, messages: &Receiver<Message>) -> anyhow::Result<()> {
    let mut screen = Screen::default();
    loop {
        terminal.draw(|frame| screen.draw(frame)).context("cannot draw")?;
        match messages.recv() {
            Ok(Message::Input(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('c') if is_control => return Ok(()),
                    code => screen.scroll(code),
                }
            }
            // The next drawing has the new size.
            Ok(Message::Input(_)) => {}
            Ok(Message::NoInput(error)) => return Err(error).context("cannot read the terminal"),
            Ok(Message::Page(page)) => screen.set_page(page),
            Ok(Message::Terminate) | Err(_) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
