// SPDX-License-Identifier: MIT OR Apache-2.0
//! The screen: it refreshes in place, scrolls, and restores the terminal at the end.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Color, Print, SetAttribute, SetForegroundColor};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute, queue};
use ze_tally::hang::report::Report;

use crate::Result;
use crate::ask::{ask, command};
use crate::layout::{Line, Memory, Tone};

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(60);
const KEYS: &str = "q end  space hold  w active only  +/- pause  arrows scroll";

/// Shows the process until the user quits, `count` reports were shown, or it has ended.
pub(crate) fn show(pid: u32, delay: Duration, count: Option<u64>) -> Result<()> {
    // A process that does not answer is reported without a screen.
    let mut view = View { pid, command: command(pid), delay, ..View::of(ask(pid)?) };
    let mut shown = 1;
    let terminal = Terminal::enter()?;
    let ended = loop {
        view.draw(&mut io::stdout())?;
        if count.is_some_and(|count| shown >= count) {
            break None;
        }
        match view.wait()? {
            Next::End => break None,
            Next::Draw => {}
            Next::Ask => match ask(pid) {
                Ok(report) => {
                    view.take(report);
                    shown += 1;
                }
                Err(error) => break Some(error),
            },
        }
    };
    drop(terminal);
    match ended {
        Some(_) if command(pid).is_empty() => {
            println!("process {pid} {} has ended", view.command);
            Ok(())
        }
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// The next step after a key press or the pause.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    End,
    Draw,
    Ask,
}

#[derive(Default)]
struct View {
    pid: u32,
    command: String,
    delay: Duration,
    report: Report,
    /// The time of the last report, and the time between it and the previous one.
    last: Option<Instant>,
    elapsed: Option<Duration>,
    memory: Memory,
    /// The lines of the last report for the width that the terminal had.
    lines: Vec<Line>,
    is_current: bool,
    first: usize,
    is_held: bool,
    only_active: bool,
}

impl View {
    fn of(report: Report) -> Self {
        Self { report, last: Some(Instant::now()), ..Self::default() }
    }

    fn take(&mut self, report: Report) {
        self.elapsed = self.last.map(|it| it.elapsed());
        self.last = Some(Instant::now());
        self.report = report;
        self.is_current = false;
    }

    /// Waits until a key is pressed, the terminal changes its size, or the pause is over.
    fn wait(&mut self) -> Result<Next> {
        let passed = self.last.map_or(Duration::ZERO, |it| it.elapsed());
        let pause = if self.is_held { LONGEST } else { self.delay.saturating_sub(passed) };
        if !event::poll(pause)? {
            return Ok(if self.is_held { Next::Draw } else { Next::Ask });
        }
        Ok(match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
                self.key(key.code, is_control)
            }
            Event::Resize(..) => {
                self.is_current = false;
                Next::Draw
            }
            _ => Next::Draw,
        })
    }

    fn key(&mut self, key: KeyCode, is_control: bool) -> Next {
        let page = terminal::size().map_or(20, |(_, height)| usize::from(height).max(5) - 4);
        match key {
            KeyCode::Char('c') if is_control => return Next::End,
            KeyCode::Char('q') | KeyCode::Esc => return Next::End,
            KeyCode::Char(' ') => self.is_held = !self.is_held,
            KeyCode::Char('w') => {
                self.only_active = !self.only_active;
                self.is_current = false;
            }
            KeyCode::Char('+') => self.delay = (self.delay / 2).max(SHORTEST),
            KeyCode::Char('-') => self.delay = (self.delay * 2).min(LONGEST),
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::Down => self.first += 1,
            KeyCode::PageUp => self.first = self.first.saturating_sub(page),
            KeyCode::PageDown => self.first += page,
            KeyCode::Home => self.first = 0,
            KeyCode::End => self.first = usize::MAX,
            _ => {}
        }
        Next::Draw
    }

    fn draw(&mut self, out: &mut impl Write) -> Result<()> {
        let (width, height) = terminal::size()?;
        let (width, height) = (usize::from(width), usize::from(height));
        if !self.is_current {
            let Self { report, elapsed, only_active, .. } = self;
            self.lines = self.memory.lines(report, *elapsed, width, *only_active);
            self.is_current = true;
        }
        // The title is above, the keys are below.
        let room = height.saturating_sub(2);
        self.first = self.first.min(self.lines.len().saturating_sub(room));
        let held = if self.is_held { ", held" } else { "" };
        let title = format!(
            "tally-top  process {} {}, every {:.1} s{held}",
            self.pid,
            self.command,
            self.delay.as_secs_f32()
        );
        queue!(out, terminal::BeginSynchronizedUpdate, cursor::MoveTo(0, 0))?;
        print_line(out, &Line { text: title, tone: Tone::Heading }, width)?;
        for line in self.lines.iter().skip(self.first).take(room) {
            queue!(out, Print("\r\n"))?;
            print_line(out, line, width)?;
        }
        queue!(out, Clear(ClearType::FromCursorDown))?;
        let more = self.lines.len().saturating_sub(self.first + room);
        let keys = if more == 0 { KEYS.into() } else { format!("{KEYS}  ({more} more lines)") };
        queue!(out, cursor::MoveTo(0, height.saturating_sub(1) as u16))?;
        print_line(out, &Line { text: keys, tone: Tone::Plain }, width)?;
        queue!(out, terminal::EndSynchronizedUpdate)?;
        Ok(out.flush()?)
    }
}

/// Prints a line and clears the rest of a longer one.
fn print_line(out: &mut impl Write, line: &Line, width: usize) -> io::Result<()> {
    let text: String = line.text.chars().take(width).collect();
    let is_full = text.chars().count() == width;
    // The variable's convention: any value but an empty one.
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
    match line.tone {
        Tone::Plain => {}
        Tone::Heading => queue!(out, SetAttribute(Attribute::Bold))?,
        _ if is_plain => {}
        Tone::Running => queue!(out, SetForegroundColor(Color::Green))?,
        Tone::Waiting => queue!(out, SetForegroundColor(Color::Yellow))?,
        Tone::Stopped => queue!(out, SetForegroundColor(Color::Red))?,
    }
    queue!(out, Print(text), SetAttribute(Attribute::Reset))?;
    // After the last column the cursor stays on it, and clearing would remove the character.
    if is_full { Ok(()) } else { queue!(out, Clear(ClearType::UntilNewLine)) }
}

/// The terminal in the state that the screen needs, restored on drop.
struct Terminal;

impl Terminal {
    fn enter() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        // From here on the drop restores it.
        let terminal = Self;
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(terminal)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone cannot be restored.
        let _ = execute!(io::stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_what_the_help_says() {
        let mut view = View { delay: Duration::from_secs(1), ..View::default() };
        assert_eq!(view.key(KeyCode::Char('q'), false), Next::End);
        assert_eq!(view.key(KeyCode::Esc, false), Next::End);
        assert_eq!(view.key(KeyCode::Char('c'), true), Next::End);
        assert_eq!(view.key(KeyCode::Char('c'), false), Next::Draw);
        view.key(KeyCode::Char(' '), false);
        assert!(view.is_held);
        view.key(KeyCode::Char('+'), false);
        assert_eq!(view.delay, Duration::from_millis(500));
        view.key(KeyCode::Down, false);
        view.key(KeyCode::Down, false);
        view.key(KeyCode::Up, false);
        assert_eq!(view.first, 1);
        view.key(KeyCode::Char('w'), false);
        assert!(view.only_active && !view.is_current);
    }
}
