use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::top::Origin;

fn page(clients: usize) -> Top {
    let mut top = Top::default();
    let samples = (0..clients).map(|at| format!("sluice_share{{client=\"c{at:02}\"}} 0.5\n"));
    top.add_page(Origin::Address("127.0.0.1:9400"), &samples.collect::<String>()).unwrap();
    top.finish();
    top
}

/// What a terminal of this size shows, line by line.
fn drawn(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |row: u16| (0..width).map(|column| buffer[(column, row)].symbol()).collect::<String>();
    (0..height).map(|row| line(row).trim_end().to_owned()).collect()
}

#[test]
fn first_drawing_says_that_it_reads_and_a_page_replaces_it() {
    let mut screen = Screen::default();
    assert_eq!(drawn(&mut screen, 60, 5)[0], "sluice top   reading");
    screen.set_page(Ok(page(2)));
    let lines = drawn(&mut screen, 80, 6);
    assert_eq!(lines[0], "sluice top   1 GPU, 2 clients, 0 waiting");
    assert!(lines[1].starts_with("POD") && lines[2] == "127.0.0.1:9400", "{lines:?}");
    assert!(lines[3].starts_with("  c00") && lines[5].starts_with("q: quit"), "{lines:?}");
}

#[test]
fn scrolling_ends_at_the_last_line_and_keeps_the_headings() {
    let mut screen = Screen::default();
    screen.set_page(Ok(page(20)));
    drawn(&mut screen, 60, 8);
    screen.scroll(KeyCode::End);
    let lines = drawn(&mut screen, 60, 8);
    assert!(lines[1].starts_with("POD") && lines[6].starts_with("  c19"), "{lines:?}");
    screen.scroll(KeyCode::Down);
    assert_eq!(drawn(&mut screen, 60, 8), lines);
    screen.scroll(KeyCode::PageUp);
    assert!(drawn(&mut screen, 60, 8)[6].starts_with("  c14"));
    screen.scroll(KeyCode::Home);
    assert_eq!(drawn(&mut screen, 60, 8)[2], "127.0.0.1:9400");
}

#[test]
fn error_is_shown_beside_the_latest_page_until_a_reading_succeeds() {
    let mut screen = Screen::default();
    screen.set_page(Ok(page(1)));
    screen.set_page(Err(anyhow::anyhow!("connection refused")));
    let lines = drawn(&mut screen, 60, 6);
    assert!(lines[3].starts_with("  c00"), "{lines:?}");
    assert_eq!(lines[5], "connection refused");
    screen.set_page(Ok(page(1)));
    assert!(drawn(&mut screen, 60, 6)[5].starts_with("q: quit"));
}

#[test]
fn every_size_of_the_terminal_is_drawn_without_a_panic() {
    let mut screen = Screen::default();
    screen.set_page(Ok(page(30)));
    for width in [1, 2, 20, 200] {
        for height in 1..9 {
            screen.scroll(KeyCode::End);
            drawn(&mut screen, width, height);
        }
    }
}
