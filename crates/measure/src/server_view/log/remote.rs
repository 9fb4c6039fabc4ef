//! The log of a server through the server itself: pg_current_logfile() and pg_read_binary_file(), which superusers may
//! call and roles that were granted EXECUTE on them.

use super::format::LogFormat;
use super::reader::LARGEST;
use crate::server_view::control::Control;

/// Bytes asked for at a time; as hexadecimal digits they are twice as many.
const CHUNK: u64 = 4 << 20;

/// The file that the server writes now, and how far it was read.
pub(super) struct Remote {
    format: LogFormat,
    file: String,
    position: u64,
    read: u64,
}

impl Remote {
    /// Remembers the end of the file that the server writes now, in the format that is easiest to read.
    ///
    /// # Errors
    /// Why that cannot be had, and what would help.
    pub(super) fn open(control: &mut Control) -> Result<Self, String> {
        let file =
            "coalesce(pg_current_logfile('jsonlog'), pg_current_logfile('csvlog'), pg_current_logfile('stderr'))";
        // Servers before 15 have no jsonlog and refuse the name.
        let older = file.replace("pg_current_logfile('jsonlog'), ", "");
        let found = control.value(&format!("SELECT {file}")).or_else(|error| match error.sqlstate() {
            Some("22023") => control.value(&format!("SELECT {older}")),
            _ => Err(error),
        });
        let file = found.map_err(|error| refused(&error))?.ok_or(
            "the server has no log file of its own (logging_collector is off): name the file that its output goes to \
             with --server-log FILE",
        )?;
        let format = LogFormat::of_name(file.as_ref()).unwrap_or(LogFormat::Stderr);
        let position = size(control, &file)?;
        // Whether it may be read shows only when it is.
        read(control, &file, position, 1)?;
        Ok(Remote { format, file, position, read: 0 })
    }

    /// The format.
    pub(super) fn format(&self) -> LogFormat {
        self.format
    }

    /// As the server names it, relative to its data folder.
    pub(super) fn name(&self) -> String {
        format!("{} (through the server)", self.file)
    }

    /// What was appended since the last call.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn more(&mut self, control: &mut Control) -> Result<Vec<u8>, String> {
        let mut bytes = self.rest(control)?;
        let now = control
            .value(&format!("SELECT pg_current_logfile('{}')", self.format.name()))
            .map_err(|error| refused(&error))?;
        if let Some(now) = now.filter(|now| *now != self.file) {
            self.file = now;
            self.position = 0;
            bytes.extend(self.rest(control)?);
        }
        Ok(bytes)
    }

    /// Whether no more is read.
    pub(super) fn is_full(&self) -> bool {
        self.read >= LARGEST
    }

    fn rest(&mut self, control: &mut Control) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        while !self.is_full() {
            let more = read(control, &self.file, self.position, CHUNK)?;
            self.position += more.len() as u64;
            self.read += more.len() as u64;
            bytes.extend_from_slice(&more);
            if (more.len() as u64) < CHUNK {
                break;
            }
        }
        Ok(bytes)
    }
}

fn size(control: &mut Control, file: &str) -> Result<u64, String> {
    let found = control.value_of("SELECT size FROM pg_stat_file($1)", &[file]).map_err(|error| refused(&error))?;
    found.and_then(|size| size.parse().ok()).ok_or_else(|| format!("the server does not say how large {file} is"))
}

fn read(control: &mut Control, file: &str, from: u64, len: u64) -> Result<Vec<u8>, String> {
    let sql = format!("SELECT encode(pg_read_binary_file($1, {from}, {len}), 'hex')");
    let digits = control.value_of(&sql, &[file]).map_err(|error| refused(&error))?.unwrap_or_default();
    Ok(unhex(&digits))
}

fn unhex(digits: &str) -> Vec<u8> {
    let digit = |b: &u8| char::from(*b).to_digit(16).unwrap_or(0) as u8;
    digits.as_bytes().chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, b| byte << 4 | digit(b))).collect()
}

fn refused(error: &pgusher_client::Error) -> String {
    match error.sqlstate() {
        Some("42501") => {
            "the role may not read the server's log: it needs pg_monitor for pg_current_logfile(), and EXECUTE on \
             pg_stat_file(text) and pg_read_binary_file(text, bigint, bigint); or name a file with --server-log FILE"
                .to_owned()
        }
        _ => format!("the server's log cannot be read through the server: {error}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn hexadecimal_digits_are_bytes() {
        assert_eq!(super::unhex("00ff7a0"), [0, 255, 122]);
    }
}
