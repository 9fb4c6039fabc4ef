//! What an idle client costs: opens many clients that log in and then say nothing, and looks at the manager's memory and CPU
//! time before and after.
//!
//! The clients live in a process of their own (this program once more), since each of the two ends needs as many open files as
//! there are clients.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pgusher_embedded::{Process, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cell::Login;
use crate::cpu;
use crate::target::{Kind, Manager};

/// What was measured for one manager.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Idle {
    pub(crate) clients: u32,
    /// Bytes of the manager's memory per client (growth of PSS).
    pub(crate) bytes_each: f64,
    /// CPU microseconds of the manager per login.
    pub(crate) login_us: f64,
    /// Seconds until all were logged in, one after the other.
    pub(crate) seconds: f64,
}

/// Files that a manager needs besides its clients.
const SPARE_FILES: u64 = 200;

/// Raises this process's limit of open files, which its children inherit, as far as it may.
/// Returns how many clients a process can hold.
pub(crate) fn raise_file_limit() -> u32 {
    let limit = getrlimit(Resource::Nofile);
    // A refusal leaves the old limit, and that is what is read below.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    u32::try_from(files.saturating_sub(SPARE_FILES)).unwrap_or(u32::MAX)
}

/// Measures a manager that has served nobody yet.
///
/// # Errors
/// When the manager or the clients cannot be started, or a client is refused.
pub(crate) fn measure(kind: Kind, server: &Server, clients: u32) -> Result<Idle> {
    let manager = Manager::start(kind, server, Login::Trust, clients + 1000)?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["hold-clients", "--port", &manager.port().to_string()])
        .args(["--count", &clients.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let memory_before = settled_pss(manager.pid())?;
    let cpu_before = cpu::process(manager.pid()).context("the manager has ended")?;
    let start = Instant::now();
    let mut holder = Process::spawn(command)?;
    let mut line = String::new();
    if let Some(out) = holder.child().stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    if line.trim() != "ready" {
        bail!("not all of {clients} clients could log in: {}", line.trim());
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu_after = cpu::process(manager.pid()).context("the manager has ended")?;
    let memory_after = settled_pss(manager.pid())?;
    let count = f64::from(clients);
    Ok(Idle {
        clients,
        bytes_each: (memory_after as f64 - memory_before as f64) / count,
        login_us: cpu_after.saturating_sub(cpu_before) as f64 / 1000.0 / count,
        seconds,
    })
}

/// The proportional set size in bytes, when it has not changed for half a second (at most 10 s).
fn settled_pss(pid: u32) -> Result<u64> {
    let mut last = pss(pid)?;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(500));
        let now = pss(pid)?;
        if now == last {
            break;
        }
        last = now;
    }
    Ok(last)
}

fn pss(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).with_context(|| format!("{path} has no Pss line"))
}

/// The other process: logs the clients in, says `ready`, and holds them until its input is closed.
///
/// # Errors
/// When a client is refused; standard output says so as well.
pub(crate) fn hold(port: u16, count: u32) -> Result<()> {
    raise_file_limit();
    let mut clients = Vec::new();
    for number in 1..=count {
        match login(port) {
            Ok(stream) => clients.push(stream),
            Err(error) => {
                println!("client {number}: {error:#}");
                return Err(error);
            }
        }
    }
    println!("ready");
    std::io::stdout().flush()?;
    // Ends with the pipe, that is with the process that measures.
    let _ = std::io::stdin().read(&mut [0])?;
    Ok(())
}

/// Logs one client in with trust and reads until it may send a query.
fn login(port: u16) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(&startup_message(Login::Trust.role(), "postgres"))?;
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        let [kind, a, b, c, d] = head;
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d]))?;
        if !(4..=65_536).contains(&length) {
            bail!("a message of {length} bytes");
        }
        let mut body = vec![0; length - 4];
        stream.read_exact(&mut body)?;
        match kind {
            b'Z' => return Ok(stream),
            b'E' => bail!("refused: {}", String::from_utf8_lossy(&body).replace('\0', " ")),
            _ => {}
        }
    }
}

/// StartupMessage of protocol 3.0: length, version, name and value pairs, a final zero ("Message Formats").
fn startup_message(user: &str, database: &str) -> Vec<u8> {
    let mut body = 196_608_u32.to_be_bytes().to_vec();
    for text in ["user", user, "database", database] {
        body.extend_from_slice(text.as_bytes());
        body.push(0);
    }
    body.push(0);
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    let mut message = length.to_be_bytes().to_vec();
    message.append(&mut body);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_startup_message_has_its_own_length() {
        let message = startup_message("ann", "db");
        assert_eq!(message.get(..4), Some(&(message.len() as u32).to_be_bytes()[..]));
        assert!(message.ends_with(b"user\0ann\0database\0db\0\0"));
    }

    #[test]
    fn own_memory_can_be_read() {
        assert!(pss(std::process::id()).unwrap() > 100_000);
    }
}
