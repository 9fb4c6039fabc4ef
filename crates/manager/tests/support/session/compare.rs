//! Where two runs of one script differ. Not compared: process numbers and cancel keys, the OIDs of what a script makes (only
//! whether they are the same one again), the order of parameter changes in front of one ReadyForQuery, and the manager's names
//! of prepared statements in texts.

use super::play::Run;
use super::script::Script;
use super::side::Event;
use std::collections::HashMap;
use std::fmt::Write as _;

/// OIDs below are of the system's own objects.
const FIRST_OID: u32 = 16384;
/// Lines in front of and behind the first difference.
const AROUND: usize = 12;
const WIDTH: usize = 84;

#[derive(Debug, Clone)]
struct Line {
    tag: u8,
    content: Vec<u8>,
    step: usize,
}

/// A text for people if the runs differ.
pub fn difference(script: &Script, direct: &Run, managed: &Run, with_status: bool) -> Option<String> {
    let stuck = managed.stuck.map_or(String::new(), |step| {
        format!("the replies to step {step} did not come: {}\n", script.steps[step].line)
    });
    let empty = Vec::new();
    // With a step that was not answered, what the others did not get is no difference of its own.
    let behind = managed.stuck.and_then(|step| script.steps[step].action.client());
    let mut clients: Vec<char> = direct.events.keys().copied().collect();
    clients.sort_by_key(|client| (Some(*client) != behind, *client));
    for client in clients {
        let left = lines(&direct.events[&client], with_status);
        let right = lines(managed.events.get(&client).unwrap_or(&empty), with_status);
        let short = managed.stuck.is_some() && Some(client) != behind;
        let at = left.iter().zip(&right).position(|(a, b)| !same(a, b));
        let at = at
            .or((left.len() != right.len() && !(short && right.len() < left.len()))
                .then(|| left.len().min(right.len())));
        if let Some(at) = at {
            let shown = show(script, &left, &right, at);
            return Some(format!("{stuck}client {client} differs at reply {at}\n{shown}"));
        }
    }
    (!stuck.is_empty()).then_some(stuck)
}

/// A run for people.
pub fn transcript(script: &Script, run: &Run) -> String {
    let mut out = format!("==== {}\n", script.name);
    for (client, events) in &run.events {
        let _ = writeln!(out, "client {client}");
        let mut step = usize::MAX;
        for line in lines(events, true) {
            if line.step != step {
                step = line.step;
                let _ = writeln!(out, "  -- {}", script.steps[step].line.replace('\n', " "));
            }
            let _ = writeln!(out, "    {}", cut(&readable(&line)));
        }
    }
    out
}

/// In the order in which they are compared.
fn lines(events: &[Event], with_status: bool) -> Vec<Line> {
    let mut out: Vec<Line> = Vec::new();
    let mut changes: Vec<Line> = Vec::new();
    let mut oids = Oids::default();
    let mut step = 0;
    for event in events {
        match event {
            Event::Step(number) => step = *number,
            Event::Closed => {
                changes.sort_by(|a, b| a.content.cmp(&b.content));
                out.append(&mut changes);
                out.push(Line { tag: 0, content: Vec::new(), step });
            }
            Event::Message { tag: b'S', body } if !with_status || body.starts_with(b"pgusher") => {}
            Event::Message { tag, body } => {
                let line = Line { tag: *tag, content: oids.masked(*tag, body), step };
                match tag {
                    b'S' => changes.push(line),
                    b'Z' => {
                        changes.sort_by(|a, b| a.content.cmp(&b.content));
                        out.append(&mut changes);
                        out.push(line);
                    }
                    _ => out.push(line),
                }
            }
        }
    }
    out.append(&mut changes);
    out
}

/// Objects by the order in which they appear.
#[derive(Default)]
struct Oids(HashMap<u32, u32>);

impl Oids {
    fn masked(&mut self, tag: u8, body: &[u8]) -> Vec<u8> {
        let mut out = body.to_vec();
        match tag {
            b'K' => out.clear(),
            b'A' => out[..4].fill(0),
            b't' => (2..out.len().saturating_sub(3)).step_by(4).for_each(|at| self.mask(&mut out, at)),
            b'T' => {
                let mut at = 2;
                while let Some(end) = out[at..].iter().position(|b| *b == 0) {
                    self.mask(&mut out, at + end + 1);
                    self.mask(&mut out, at + end + 7);
                    at += end + 19;
                }
            }
            _ => {}
        }
        out
    }

    fn mask(&mut self, body: &mut [u8], at: usize) {
        let Some(bytes) = body.get_mut(at..at + 4) else { return };
        let oid = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if oid >= FIRST_OID {
            let next = FIRST_OID + self.0.len() as u32;
            bytes.copy_from_slice(&self.0.entry(oid).or_insert(next).to_be_bytes());
        }
    }
}

fn same(direct: &Line, managed: &Line) -> bool {
    direct.tag == managed.tag
        && (direct.content == managed.content || same_but_names(&direct.content, &managed.content))
}

/// A name of the manager's stands for any name.
fn same_but_names(direct: &[u8], managed: &[u8]) -> bool {
    let (direct, managed) = (String::from_utf8_lossy(direct), String::from_utf8_lossy(managed));
    let mut rest: &str = &direct;
    let mut parts = managed.split("pgusher_");
    let Some(behind) = parts.next().and_then(|first| rest.strip_prefix(first)) else { return false };
    rest = behind;
    let mut named = false;
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        let (name, after) = part.split_at(digits);
        if name.len() != 32 {
            return false;
        }
        named = true;
        let skipped = if after.is_empty() { Some(rest.len()) } else { rest.find(after) };
        let Some(at) = skipped else { return false };
        rest = &rest[at + after.len()..];
    }
    named && rest.is_empty()
}

fn show(script: &Script, left: &[Line], right: &[Line], at: usize) -> String {
    let from = at.saturating_sub(AROUND);
    let mut out = format!("    {:WIDTH$} | through the manager\n", "direct");
    let mut step = usize::MAX;
    for row in from..(at + AROUND).min(left.len().max(right.len())) {
        if let Some(number) = left.get(row).or(right.get(row)).map(|l| l.step).filter(|s| *s != step) {
            step = number;
            let line = script.steps.get(step).map_or("", |s| &s.line);
            let _ = writeln!(out, "  -- {}", line.replace('\n', " "));
        }
        let text = |lines: &[Line]| lines.get(row).map_or("(nothing)".into(), |l| cut(&readable(l)));
        let differ = match (left.get(row), right.get(row)) {
            (Some(a), Some(b)) => !same(a, b),
            _ => true,
        };
        let _ = writeln!(out, "  {} {:WIDTH$} | {}", if differ { '>' } else { ' ' }, text(left), text(right));
    }
    let full = |lines: &[Line]| lines.get(at).map_or("(nothing)".into(), readable);
    let _ = write!(out, "  direct:  {}\n  manager: {}\n", full(left), full(right));
    out
}

fn cut(text: &str) -> String {
    text.chars().take(WIDTH).collect()
}

fn readable(line: &Line) -> String {
    let body = &line.content;
    let plain = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace('\0', " ").escape_debug().to_string();
    let (name, text) = match line.tag {
        0 => ("(closed)", String::new()),
        b'R' => ("Authentication", plain(body)),
        b'K' => ("BackendKeyData", String::new()),
        b'S' => ("ParameterStatus", plain(body)),
        b'Z' => ("ReadyForQuery", plain(body)),
        b'C' => ("CommandComplete", plain(body)),
        b'E' => ("Error", fields(body)),
        b'N' => ("Notice", fields(body)),
        b'T' => ("RowDescription", columns(body)),
        b'D' => ("DataRow", row(body)),
        b'1' => ("ParseComplete", String::new()),
        b'2' => ("BindComplete", String::new()),
        b'3' => ("CloseComplete", String::new()),
        b'n' => ("NoData", String::new()),
        b's' => ("PortalSuspended", String::new()),
        b'I' => ("EmptyQueryResponse", String::new()),
        b't' => ("ParameterDescription", format!("{body:?}")),
        b'A' => ("Notification", plain(body.get(4..).unwrap_or_default())),
        b'G' => ("CopyInResponse", format!("{body:?}")),
        b'H' => ("CopyOutResponse", format!("{body:?}")),
        b'd' => ("CopyData", plain(body)),
        b'c' => ("CopyDone", String::new()),
        b'V' => ("FunctionCallResponse", format!("{body:?}")),
        _ => ("?", format!("{} {body:?}", char::from(line.tag))),
    };
    format!("{name} {text}")
}

fn fields(body: &[u8]) -> String {
    let parts = body.split(|b| *b == 0).filter(|f| !f.is_empty());
    let wanted = parts.filter(|f| !matches!(f[0], b'V' | b'F' | b'L'));
    let texts: Vec<String> =
        wanted.map(|f| format!("{}:{}", char::from(f[0]), String::from_utf8_lossy(&f[1..]).escape_debug())).collect();
    texts.join(" ")
}

fn columns(body: &[u8]) -> String {
    let mut out = Vec::new();
    let mut rest = body.get(2..).unwrap_or_default();
    while let Some(end) = rest.iter().position(|b| *b == 0) {
        let number =
            |at: usize| rest.get(end + at..end + at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
        out.push(format!("{}:{} of {}", String::from_utf8_lossy(&rest[..end]), number(7), number(1)));
        rest = rest.get(end + 19..).unwrap_or_default();
    }
    out.join(", ")
}

fn row(body: &[u8]) -> String {
    let mut out = Vec::new();
    let mut rest = body.get(2..).unwrap_or_default();
    while let Some((size, behind)) = rest.split_at_checked(4) {
        let size = i32::from_be_bytes([size[0], size[1], size[2], size[3]]);
        let length = usize::try_from(size).unwrap_or(0).min(behind.len());
        let value = String::from_utf8_lossy(&behind[..length]).escape_debug().to_string();
        out.push(if size < 0 { "NULL".to_owned() } else { format!("'{value}'") });
        rest = &behind[length..];
    }
    out.join(", ")
}
