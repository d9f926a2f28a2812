//! What the live view shows: a title, the headings, as many lines as fit, and the keys or the latest error.

use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line as StyledLine;
use ratatui::widgets::Paragraph;

use crate::text::{Line, count, layout, printable};
use crate::top::{self, Top};

const KEYS: &str = "q: quit   arrows, page keys, home, end: scroll";

/// The state of the view.
#[derive(Debug, Default)]
pub(super) struct Screen {
    /// The latest page that was read; it stays if a later reading fails.
    page: Option<Top>,
    /// Why the latest reading failed.
    error: Option<String>,
    /// Lines above the first one that is shown.
    above: usize,
    /// Lines that the terminal had room for at the latest drawing.
    height: usize,
}

impl Screen {
    pub(super) fn set_page(&mut self, page: anyhow::Result<Top>) {
        match page {
            Ok(page) => (self.page, self.error) = (Some(page), None),
            Err(error) => self.error = Some(printable(&format!("{error:#}"))),
        }
    }

    /// Scrolls by a key; other keys do nothing. The next drawing limits the position to the lines that there are.
    pub(super) fn scroll(&mut self, key: KeyCode) {
        let screenful = self.height.max(1);
        self.above = match key {
            KeyCode::Down => self.above.saturating_add(1),
            KeyCode::Up => self.above.saturating_sub(1),
            KeyCode::PageDown => self.above.saturating_add(screenful),
            KeyCode::PageUp => self.above.saturating_sub(screenful),
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => self.above,
        };
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let rows = [Constraint::Length(1), Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)];
        let [title, headings, body, footer] = Layout::vertical(rows).areas(frame.area());
        let lines = self.page.as_ref().map(top::lines).unwrap_or_default();
        let texts = layout(&lines);
        let styled = lines.iter().zip(texts).map(|(line, text)| StyledLine::styled(text, style(line)));
        let (heading, styled): (Vec<_>, Vec<_>) =
            lines.iter().zip(styled).partition(|(line, _)| matches!(line, Line::Heading(_)));
        self.height = usize::from(body.height);
        self.above = self.above.min(styled.len().saturating_sub(self.height));
        let shown = styled.into_iter().map(|(_, text)| text).skip(self.above).take(self.height);

        let reversed = Style::new().add_modifier(Modifier::REVERSED);
        frame.render_widget(Paragraph::new(self.title()).style(reversed), title);
        frame.render_widget(
            Paragraph::new(heading.into_iter().map(|(_, text)| text).collect::<Vec<_>>()),
            headings,
        );
        frame.render_widget(Paragraph::new(shown.collect::<Vec<_>>()), body);
        let footer_text = match &self.error {
            Some(error) => Paragraph::new(error.as_str()).style(Style::new().fg(Color::Red)),
            None => Paragraph::new(KEYS),
        };
        frame.render_widget(footer_text, footer);
    }

    fn title(&self) -> String {
        let Some(page) = &self.page else { return "sluice top   reading".to_owned() };
        // A pod with several GPUs is a client of each.
        let mut clients: Vec<_> =
            page.gpus.iter().flat_map(|gpu| &gpu.clients).map(top::ClientRow::title).collect();
        clients.sort();
        clients.dedup();
        format!(
            "sluice top   {}, {}, {} waiting",
            count(page.gpus.len(), "GPU"),
            count(clients.len(), "client"),
            page.waiting.len()
        )
    }
}

fn style(line: &Line) -> Style {
    match line {
        Line::Heading(_) => Style::new().add_modifier(Modifier::UNDERLINED),
        Line::Section(_) => Style::new().add_modifier(Modifier::BOLD),
        Line::Note(_) => Style::new().fg(Color::Yellow),
        Line::Cells(_) => Style::new(),
    }
}

#[cfg(test)]
mod tests;
