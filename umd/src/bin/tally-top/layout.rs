// SPDX-License-Identifier: MIT OR Apache-2.0
//! A report as lines of a screen. Queues have short names, `Q1` and so on, so that a wait fits into a line or
//! two of 80 columns.

use std::collections::HashMap;
use std::time::Duration;

use ze_tally::hang::report::{Queue, Report, State};

/// A line and its style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

/// The meaning of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Heading,
    Running,
    Waiting,
    Stopped,
}

/// Names that a queue keeps from one report to the next, and its activity between the two.
#[derive(Default)]
pub(crate) struct Memory {
    labels: HashMap<String, usize>,
    busy_ns: HashMap<String, u64>,
}

impl Memory {
    /// The lines of a report, `elapsed` after the previous one. No line is longer than `width` columns, which are
    /// at least 40.
    pub(crate) fn lines(
        &mut self,
        report: &Report,
        elapsed: Option<Duration>,
        width: usize,
        only_active: bool,
    ) -> Vec<Line> {
        let width = width.max(40);
        for queue in &report.queues {
            let next = self.labels.len() + 1;
            self.labels.entry(queue.name.clone()).or_insert(next);
        }
        let mut lines: Vec<Line> =
            wrap(&summary(report), width).iter().map(|text| line(Tone::Plain, text)).collect();
        let shown = report.queues.iter().filter(|it| !only_active || it.state != State::Idle);
        lines.push(heading(width));
        lines.extend(shown.map(|it| self.row(it, elapsed, width)));
        self.busy_ns = report.queues.iter().map(|it| (it.name.clone(), it.busy_ns)).collect();
        lines.push(line(Tone::Plain, ""));
        // Longer names first, so that no name is replaced inside a longer one.
        let mut names: Vec<(&String, &usize)> = self.labels.iter().collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        for text in report.wait_lines() {
            let tone = if text.starts_with(' ') { Tone::Plain } else { Tone::Waiting };
            let text = names.iter().fold(text, |text, (name, label)| {
                text.replace(name.as_str(), &format!("Q{label}"))
            });
            lines.extend(wrap(&text, width).into_iter().map(|text| line(tone, &text)));
        }
        lines
    }

    fn row(&self, queue: &Queue, elapsed: Option<Duration>, width: usize) -> Line {
        let before = self.busy_ns.get(&queue.name);
        let busy = elapsed.zip(before).filter(|(elapsed, _)| !elapsed.is_zero());
        let busy = busy.map(|(elapsed, &before)| {
            let part = queue.busy_ns.saturating_sub(before) as f64 / elapsed.as_nanos() as f64;
            format!("{:.0} %", 100.0 * part)
        });
        let busy = busy.unwrap_or_default();
        let label = format!("Q{}", self.labels.get(&queue.name).copied().unwrap_or_default());
        let counter = format!("{} of {}", queue.counter, queue.reserved);
        let packets = queue.packets.to_string();
        let state: &str = queue.state.into();
        let cells = [&label, &queue.name, state, &counter, &packets, &busy];
        let tone = match queue.state {
            State::Idle => Tone::Plain,
            State::Running => Tone::Running,
            State::Parked => Tone::Waiting,
            State::Stopped => Tone::Stopped,
        };
        line(tone, &columns(cells, width))
    }
}

fn summary(report: &Report) -> String {
    let of = |state| report.queues.iter().filter(|it| it.state == state).count();
    let [running, parked, stopped] = [State::Running, State::Parked, State::Stopped].map(of);
    let (queues, threads) = (report.queues.len(), report.host_waits.len());
    let mut text = format!("queues: {queues}, {running} running, {parked} parked");
    if stopped != 0 {
        text += &format!(", {stopped} stopped");
    }
    text += &format!("; waiting threads: {threads}");
    if !report.cycle.is_empty() {
        text += "; the waits form a cycle";
    }
    text
}

fn heading(width: usize) -> Line {
    line(
        Tone::Heading,
        &columns(["", "queue, engine/group", "state", "counter", "packets", "busy"], width),
    )
}

/// A row of the table. The name gets the remaining columns, and loses its middle if they are too few.
fn columns([label, name, state, counter, packets, busy]: [&str; 6], width: usize) -> String {
    let right = format!("{state:>8} {counter:>15} {packets:>8} {busy:>6}");
    let room = width.saturating_sub(right.chars().count() + 6);
    let name = shorten(name, room);
    let row = format!("{label:<4} {name:<room$} {right}");
    row.chars().take(width).collect()
}

/// A name of no more than `room` columns: first without the words about its engine, then without its middle.
fn shorten(name: &str, room: usize) -> String {
    if name.chars().count() <= room {
        return name.to_owned();
    }
    let short = name.replace(" (engine ", " ").replace(" of group ", "/").replace(')', "");
    let short: Vec<char> = short.chars().collect();
    if short.len() <= room {
        return short.into_iter().collect();
    }
    let (start, end) = (room.saturating_sub(1) / 2, room.saturating_sub(1).div_ceil(2));
    let start = short[..start].iter();
    start.chain(['…'].iter().take(room.min(1))).chain(&short[short.len() - end..]).collect()
}

/// The text in lines of no more than `width` columns, cut at spaces; further lines are indented.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let indent = text.len() - text.trim_start().len();
    let mut lines = Vec::new();
    let mut current = " ".repeat(indent);
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && current.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut current, " ".repeat(indent + 4)));
            is_empty = true;
        }
        if !is_empty {
            current.push(' ');
        }
        current.extend(word.chars().take(width - indent - 4));
        is_empty = false;
    }
    lines.push(current);
    lines
}

fn line(tone: Tone, text: &str) -> Line {
    Line { text: text.to_owned(), tone }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 2] = [
        "command queue 0x55d0c0de1050 (engine 0 of group 0)",
        "immediate list 0x7f4210003ac0 (engine 3 of group 1)",
    ];

    fn report(busy_ns: u64) -> Report {
        let queue = |name: &str, state| Queue {
            name: name.into(),
            state,
            counter: 41,
            reserved: 42,
            packets: 1,
            busy_ns,
        };
        let [first, second] = NAMES;
        let json = format!(
            r#"{{"queues":[],"host_waits":[{{"thread":21200,"call":"zeEventHostSynchronize","waited_ns":1260000000,
            "awaited":{{"cell":{{"address":"0x200000000000","kind":"counter","owner":"regular list 0x60","present":1}},"value":2}},"signal":null}}],
            "parked":[{{"queue":"{second}","awaited":{{"cell":{{"address":"0x200000021000","kind":"event","index":3,"pool":"0x70","present":0}},"value":1}},
            "appended_by":{{"call":{{"function":"zeCommandListAppendBarrier","command":1,"list":"{second}"}},"executed_by":null,"after_execution_of":null}},
            "signal":{{"by":[{{"queue":"{first}","state":"waits"}}]}}}}],"cycle":["{first}","{second}"]}}"#
        );
        let mut report = Report::from_json(&json).expect("its own words");
        report.queues = vec![queue(first, State::Idle), queue(second, State::Parked)];
        report
    }

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn a_report_fits_80_columns() {
        let mut memory = Memory::default();
        memory.lines(&report(0), None, 80, false);
        let lines = memory.lines(&report(250_000_000), Some(Duration::from_secs(1)), 80, false);
        let expected = "\
queues: 2, 0 running, 1 parked; waiting threads: 1; the waits form a cycle
     queue, engine/group                   state         counter  packets   busy
Q1   command queue 0x55d0c0de1050 0/0       idle        41 of 42        1   25 %
Q2   immediate list 0x7f4210003ac0 3/1    parked        41 of 42        1   25 %

thread 21200: zeEventHostSynchronize has waited for 1.3 s for the counter at
    0x200000000000 of regular list 0x60 to be at least 2; it is 1
Q2 waits for event 3 of event pool 0x70, at 0x200000021000, to be signalled
  appended by zeCommandListAppendBarrier, command 1 of Q2
  to be signalled by Q1, which waits itself
the waits form a cycle: Q1 waits for Q2 waits for Q1";
        assert_eq!(texts(&lines).join("\n"), expected, "\n{}", texts(&lines).join("\n"));
    }

    #[test]
    fn no_line_is_longer_than_the_screen_is_wide() {
        for width in [0, 40, 60, 80, 100, 200] {
            let lines = Memory::default().lines(&report(0), None, width, false);
            let longest = lines.iter().map(|it| it.text.chars().count()).max();
            assert!(longest <= Some(width.max(40)), "{width}: {lines:#?}");
        }
    }

    #[test]
    fn a_wide_screen_shows_whole_names_and_idle_queues_can_be_left_out() {
        let all = Memory::default().lines(&report(0), None, 110, false);
        assert!(all[2].text.contains(NAMES[0]) && all[3].text.contains(NAMES[1]));
        let active = Memory::default().lines(&report(0), None, 110, true);
        assert!(active[2].text.contains(NAMES[1]) && active[2].tone == Tone::Waiting);
    }

    #[test]
    fn queues_keep_their_short_names() {
        let mut memory = Memory::default();
        memory.lines(&report(0), None, 80, false);
        let mut later = report(0);
        later.queues.remove(0);
        let lines = memory.lines(&later, None, 80, false);
        assert!(lines[2].text.starts_with("Q2"), "{lines:#?}");
    }
}
