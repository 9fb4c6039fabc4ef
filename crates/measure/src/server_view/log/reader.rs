//! Reads what a server appends to its log during a run, and makes sure first that it is the log of that server.
//!
//! Before the run and after it a line with a word of our own is written through the server (`RAISE LOG` in a DO block,
//! which every role may do). The first one proves that the file is this server's and that its lines can be read; the
//! second one that everything before it has arrived.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::file::FileSource;
use super::format::LogFormat;
use super::prefix::Prefix;
use super::record::{Parsed, Record};
use super::remote::Remote;
use crate::server_view::control::Control;

/// No more of a log is read in one run, bytes: a busy server writes faster than anybody wants to keep.
pub(super) const LARGEST: u64 = 256 << 20;

/// How long a mark may take to its place in the log.
const PATIENCE: Duration = Duration::from_secs(3);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Where the log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file of this host.
    File(PathBuf),
    /// Wherever the server says, read through the server.
    Server,
}

enum Origin {
    File(FileSource),
    Server(Remote),
}

/// A log that is read.
pub struct LogReader {
    origin: Origin,
    format: Option<LogFormat>,
    prefix: Prefix,
    prefix_text: String,
    /// A word that is in no other log.
    token: String,
    bytes: Vec<u8>,
    /// Why the log could not be verified, if it could not.
    unmarked: bool,
}

impl LogReader {
    /// Remembers the end of the log, so that only what follows is read.
    ///
    /// # Errors
    /// Why it cannot be read, in words.
    pub fn open(place: &Place, prefix: &str, token: &str, control: &mut Control) -> Result<Self, String> {
        let (origin, format) = match place {
            Place::File(path) => {
                let source = FileSource::open(path)
                    .map_err(|error| format!("the server's log \"{}\" cannot be read: {error}", path.display()))?;
                let format = LogFormat::of_name(path);
                (Origin::File(source), format)
            }
            Place::Server => {
                let remote = Remote::open(control)?;
                let format = Some(remote.format());
                (Origin::Server(remote), format)
            }
        };
        Ok(LogReader {
            origin,
            format,
            prefix: Prefix::parse(prefix),
            prefix_text: prefix.to_owned(),
            token: token.to_owned(),
            bytes: Vec::new(),
            unmarked: false,
        })
    }

    /// For people.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.origin {
            Origin::File(source) => source.path().display().to_string(),
            Origin::Server(remote) => remote.name(),
        }
    }

    /// The format, once it is known.
    #[must_use]
    pub fn format(&self) -> Option<LogFormat> {
        self.format
    }

    /// Makes sure that this is the log of the server that `control` is connected to, and that its lines can be read.
    /// What was appended until then is forgotten.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn verify(&mut self, control: &mut Control) -> Result<(), String> {
        let Some(mark) = self.mark(control, "begin") else {
            self.unmarked = true;
            return Ok(());
        };
        if !self.wait_for(&mark, control)? {
            let told = control.value("SELECT pg_current_logfile()").ok().flatten();
            let told = told.map_or(String::new(), |file| format!(" (the server says that it writes {file})"));
            return Err(format!(
                "\"{}\" is not read: a line written through the server did not arrive there within {} s; it is the log of \
                 another server, or one that this server has left{told}",
                self.name(),
                PATIENCE.as_secs(),
            ));
        }
        let format = *self.format.get_or_insert_with(|| LogFormat::of_content(&String::from_utf8_lossy(&self.bytes)));
        let parsed = self.parsed();
        let Some(record) = parsed.records.iter().find(|record| record.message.contains(&mark)) else {
            let advice = match format {
                LogFormat::Stderr => format!(
                    ": its lines do not begin as log_line_prefix = '{}' says; tell the one in force with --log-line-prefix",
                    self.prefix_text
                ),
                LogFormat::Csvlog | LogFormat::Jsonlog => format!(": it was taken for a {}", format.name()),
            };
            return Err(format!("the lines of \"{}\" cannot be understood{advice}", self.name()));
        };
        self.check_process(record, control)?;
        // Another session's line may have come in half.
        let whole = memchr::memrchr(b'\n', &self.bytes).map_or(0, |at| at + 1);
        self.bytes.drain(..whole);
        Ok(())
    }

    fn check_process(&self, record: &Record, control: &Control) -> Result<(), String> {
        match record.pid {
            None => Err(format!(
                "the lines of \"{}\" do not say which process wrote them: log_line_prefix = '{}' has neither %p nor %c \
                 (try '%m [%p] %a ')",
                self.name(),
                self.prefix_text
            )),
            Some(pid) if Some(pid) != control.pid() => Err(format!(
                "the log names process {pid} where the client was told {}: there is a proxy in between, so the sessions in \
                 \"{}\" cannot be told apart",
                control.pid().unwrap_or_default(),
                self.name()
            )),
            Some(_) => Ok(()),
        }
    }

    /// Everything that was appended until now, and a note if some of it may be missing.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn finish(&mut self, control: &mut Control) -> Result<(Parsed, Option<String>), String> {
        let arrived = match self.mark(control, "end") {
            Some(mark) => self.wait_for(&mark, control)?,
            None => {
                thread::sleep(PATIENCE / 10);
                self.look(control)?;
                false
            }
        };
        let format = *self.format.get_or_insert_with(|| LogFormat::of_content(&String::from_utf8_lossy(&self.bytes)));
        debug_assert!(self.format == Some(format));
        let note = if self.is_full() {
            Some(format!("only the first {} MiB that the log grew by were read", LARGEST >> 20))
        } else if !arrived {
            Some("the end of the log could not be awaited: its last lines may be missing here".to_owned())
        } else if self.unmarked {
            Some("that the log is this server's could not be verified".to_owned())
        } else {
            None
        };
        Ok((self.parsed(), note))
    }

    fn parsed(&self) -> Parsed {
        self.format.unwrap_or(LogFormat::Stderr).read(&String::from_utf8_lossy(&self.bytes), &self.prefix)
    }

    fn is_full(&self) -> bool {
        match &self.origin {
            Origin::File(source) => source.is_full(),
            Origin::Server(remote) => remote.is_full(),
        }
    }

    /// Writes a line to the server's log. `None` if the server does not let us.
    fn mark(&self, control: &mut Control, place: &str) -> Option<String> {
        let mark = format!("pgusher {place} {}", self.token);
        control.rows(&format!("DO $pgusher$ BEGIN RAISE LOG '{mark}'; END $pgusher$"), &[]).ok()?;
        Some(mark)
    }

    fn wait_for(&mut self, mark: &str, control: &mut Control) -> Result<bool, String> {
        let deadline = Instant::now() + PATIENCE;
        let mut searched = 0;
        loop {
            self.look(control)?;
            // The mark may have come in two pieces.
            let from = searched.min(self.bytes.len());
            if self.bytes.get(from..).is_some_and(|new| holds_line(new, mark.as_bytes())) {
                return Ok(true);
            }
            searched = self.bytes.len().saturating_sub(4096);
            if Instant::now() >= deadline || self.is_full() {
                return Ok(false);
            }
            thread::sleep(BETWEEN_LOOKS);
        }
    }

    fn look(&mut self, control: &mut Control) -> Result<(), String> {
        let more = match &mut self.origin {
            Origin::File(source) => {
                source.more().map_err(|error| format!("the server's log \"{}\": {error}", source.path().display()))?
            }
            Origin::Server(remote) => remote.more(control)?,
        };
        self.bytes.extend_from_slice(&more);
        Ok(())
    }
}

/// Whether `bytes` hold `mark` in a line that has its end.
fn holds_line(bytes: &[u8], mark: &[u8]) -> bool {
    let found = memchr::memmem::find(bytes, mark);
    found.is_some_and(|at| bytes.get(at..).is_some_and(|rest| memchr::memchr(b'\n', rest).is_some()))
}

impl Place {
    /// `auto` is the server's own; anything else a file.
    #[must_use]
    pub fn of(text: &str) -> Self {
        if text == "auto" { Place::Server } else { Place::File(Path::new(text).to_owned()) }
    }
}
