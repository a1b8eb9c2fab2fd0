//! The terminal output: a line per utterance and, on a terminal, a status line below with the
//! microphone's level and the current words.

use super::line::FromAgent;
use std::io::{self, Write};

/// Columns of the status line: it must not wrap, and narrower terminals are rare.
const WIDTH: usize = 78;

/// Columns of the level meter.
const METER: usize = 10;

/// The lower end of the level meter, dBFS; the upper end is 0.
const QUIETEST: f32 = -60.0;

/// Writes to the user.
#[derive(Debug)]
pub struct Screen<W> {
    out: W,
    /// Whether the output is a terminal, where a line can be overwritten.
    terminal: bool,
    level: f32,
    listening: bool,
    /// The current speaker and the words so far.
    going_on: String,
}

impl<W: Write> Screen<W> {
    /// A screen on `out`. Only a `terminal` gets a status line.
    pub fn new(out: W, terminal: bool) -> Self {
        Self {
            out,
            terminal,
            level: QUIETEST,
            listening: false,
            going_on: String::new(),
        }
    }

    /// Shows a whole line.
    ///
    /// # Errors
    /// If `out` cannot be written to, including a closed pipe.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        if self.terminal {
            write!(self.out, "\r\x1b[K")?;
        }
        writeln!(self.out, "{}", printable(text))?;
        self.status()
    }

    /// Shows the microphone's level, dBFS, and whether it is unmuted.
    ///
    /// # Errors
    /// As [`Screen::line`].
    pub fn level(&mut self, level: f32, listening: bool) -> io::Result<()> {
        self.level = level;
        self.listening = listening;
        self.status()
    }

    /// Shows a message from the agent, if it has text.
    ///
    /// # Errors
    /// As [`Screen::line`].
    pub fn show(&mut self, message: &FromAgent) -> io::Result<()> {
        match message {
            FromAgent::User { text, last } => self.said("you:   ", text, *last),
            FromAgent::Agent { text, last } => self.said("agent: ", text, *last),
            FromAgent::Trouble(message) => self.line(&format!("error: {message}")),
            FromAgent::Audio(_)
            | FromAgent::Clear
            | FromAgent::TimerRings
            | FromAgent::Tool { .. }
            | FromAgent::Over(_) => Ok(()),
        }
    }

    fn said(&mut self, who: &str, text: &str, last: bool) -> io::Result<()> {
        if last {
            self.going_on.clear();
            return self.line(&format!("{who}{text}"));
        }
        self.going_on = printable(&format!("{}…  {text}", who.trim_end()));
        self.status()
    }

    /// Clears the status line.
    ///
    /// # Errors
    /// As [`Screen::line`].
    pub fn finish(&mut self) -> io::Result<()> {
        if self.terminal {
            write!(self.out, "\r\x1b[K")?;
        }
        self.out.flush()
    }

    fn status(&mut self) -> io::Result<()> {
        if self.terminal {
            let status = status(self.level, self.listening, &self.going_on);
            write!(self.out, "\r\x1b[K{status}")?;
        }
        self.out.flush()
    }
}

fn status(level: f32, listening: bool, going_on: &str) -> String {
    let state = if listening { "listening" } else { "muted    " };
    let head = format!("[{}] {state}  ", meter(level));
    let room = WIDTH - head.chars().count();
    let long = going_on.chars().count().saturating_sub(room);
    head.chars().chain(going_on.chars().skip(long)).collect()
}

fn meter(level: f32) -> String {
    let share = (1.0 - level / QUIETEST).clamp(0.0, 1.0);
    let full = (share * METER as f32).round() as usize;
    format!("{}{}", "#".repeat(full), " ".repeat(METER - full))
}

/// Replaces control and bidirectional formatting characters with spaces, since the text is
/// untrusted.
fn printable(text: &str) -> String {
    let steers =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars()
        .map(|c| if steers(c) { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str, last: bool) -> FromAgent {
        let text = text.into();
        FromAgent::User { text, last }
    }

    fn shown(terminal: bool, messages: &[FromAgent]) -> String {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, terminal);
        for message in messages {
            screen.show(message).unwrap();
        }
        screen.level(-30.0, true).unwrap();
        screen.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn without_a_terminal_only_whole_lines_are_written() {
        let messages = [user("what", false), user("What time is it?", true)];
        assert_eq!(shown(false, &messages), "you:   What time is it?\n");
        assert!(shown(true, &messages).contains("you:…  what"));
    }

    #[test]
    fn text_cannot_control_the_terminal() {
        let text = shown(
            true,
            &[user("a\x1b]0;b\x07\nc", true), user("\x1b[2J", false)],
        );
        let ours = text.replace("\r\x1b[K", "");
        assert_eq!(ours.matches('\x1b').count(), 0, "{ours:?}");
        assert!(ours.starts_with("you:   a ]0;b  c\n"), "{ours:?}");
    }

    #[test]
    fn the_status_line_never_wraps() {
        let long = "ä".repeat(500);
        assert_eq!(status(0.0, true, &long).chars().count(), WIDTH);
        assert_eq!(meter(0.0), "##########");
        assert_eq!(meter(-30.0), "#####     ");
        assert_eq!(meter(-120.0), "          ");
    }
}
