//! The screen of `unisonic top`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Gauge, Paragraph, Row, Sparkline, Table};

use super::Server;
use super::state::{State, short};

/// Speeds that are remembered, one a column.
const SPEEDS_MAX: usize = 512;
/// The fastest that is drawn, in tokens per second: a server may say anything.
const MOST_SPEED: f64 = 1e9;

/// What is drawn.
#[derive(Default)]
struct View {
    state: State,
    /// Generated tokens per second, the newest first.
    speeds: VecDeque<u64>,
    /// Why the last reading failed.
    problem: Option<String>,
}

/// Shows the server until it is enough.
pub fn run(server: &mut Server, interval: Duration) -> anyhow::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, server, interval);
    ratatui::try_restore()?;
    shown
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    server: &mut Server,
    interval: Duration,
) -> anyhow::Result<()> {
    let mut view = View::default();
    loop {
        view.read(server);
        let next = Instant::now() + interval;
        loop {
            terminal.draw(|frame| view.draw(frame))?;
            // Keys are answered and a new size is drawn at once.
            if !event::poll(next.saturating_duration_since(Instant::now()))? {
                break;
            }
            if is_end(&event::read()?) {
                return Ok(());
            }
        }
    }
}

fn is_end(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

impl View {
    fn read(&mut self, server: &mut Server) {
        match server.state() {
            Ok(state) => {
                let speed = state.generated_tokens_per_second.unwrap_or_default();
                self.speeds.push_front(speed.min(MOST_SPEED) as u64);
                self.speeds.truncate(SPEEDS_MAX);
                (self.state, self.problem) = (state, None);
            }
            // The server may come back.
            Err(error) => self.problem = Some(format!("{error:#}")),
        }
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let figures = self.state.figures();
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(figures.len() as u16),
            Constraint::Length(1),
            Constraint::Length(6),
            Constraint::Min(3),
            Constraint::Length(1),
        ]);
        let [head, numbers, kv, speed, slots, foot] = areas.areas(frame.area());
        frame.render_widget(Line::from(self.state.head()).bold(), head);
        let line = |[(a, a_value), (b, b_value)]: [(&str, String); 2]| {
            Line::from(format!("{a:<20} {a_value:>12}   {b:<26} {b_value:>12}"))
        };
        frame.render_widget(Paragraph::new(figures.into_iter().map(line).collect::<Vec<_>>()), numbers);
        self.draw_kv(frame, kv);
        self.draw_speed(frame, speed);
        self.draw_slots(frame, slots);
        let said = match &self.problem {
            Some(problem) => Line::from(problem.as_str()).red(),
            None => Line::from("q ends").dim(),
        };
        frame.render_widget(said, foot);
    }

    fn draw_kv(&self, frame: &mut Frame<'_>, area: Rect) {
        let State { kv_pages_held: held, kv_pages_cached: cached, kv_pages_free: free, .. } = self.state;
        let pages = self.state.kv_pages();
        let ratio = if pages == 0 { 0.0 } else { held as f64 / pages as f64 };
        let label = format!("KV {held} held, {cached} kept, {free} free");
        frame.render_widget(Gauge::default().ratio(ratio).label(label).use_unicode(true), area);
    }

    fn draw_speed(&self, frame: &mut Frame<'_>, area: Rect) {
        let now = short(self.state.generated_tokens_per_second);
        let block = Block::bordered().title(format!(" generated tokens/s: {now} "));
        // The newest is on the right.
        let width = area.width.saturating_sub(2) as usize;
        let shown: Vec<u64> = self.speeds.iter().take(width).rev().copied().collect();
        frame.render_widget(Sparkline::default().data(shown).block(block), area);
    }

    fn draw_slots(&self, frame: &mut Frame<'_>, area: Rect) {
        let mut rows = self.state.rows().into_iter();
        let head = Row::new(rows.next().unwrap_or_default()).style(Style::new().bold());
        let widths = [5, 9, 8, 8, 10, 10, 14].map(Constraint::Length);
        let title = format!(" {} running, {} waiting ", self.state.running, self.state.waiting);
        let table = Table::new(rows.map(Row::new), widths).header(head).block(Block::bordered().title(title));
        frame.render_widget(table, area);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::state::SlotState;
    use super::*;

    fn drawn(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn all_that_runs_is_on_the_screen() {
        let slot = SlotState {
            slot: 3,
            seconds: 2.0,
            prompt_tokens: 17,
            generated_tokens: 42,
            ..SlotState::default()
        };
        let state = State {
            model: Some("tiny".into()),
            device: Some("cpu".into()),
            generated_tokens_per_second: Some(123.4),
            kv_pages_held: 5,
            kv_pages_free: 15,
            running: 1,
            slots: vec![slot],
            ..State::default()
        };
        let view = View { state, speeds: [3, 2, 1].into(), problem: None };
        let text = drawn(&view, 90, 30);
        for part in ["tiny on cpu", "123.4", "KV 5 held, 0 kept, 15 free", "1 running", "21.0", "q ends"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let view = View { problem: Some("it is gone".into()), ..view };
        assert!(drawn(&view, 90, 30).contains("it is gone"));
        // Too small is no error.
        drawn(&view, 10, 3);
    }
}
