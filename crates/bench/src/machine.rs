//! What the figures were taken on. A figure without its machine and versions says nothing.

use std::fs;
use std::process::Command;

use pgusher_embedded::Server;

use crate::target::{pgbouncer_program, pgusher_program};

/// Name and value of each thing worth saying.
pub(crate) fn describe(server: &Server) -> Vec<(&'static str, String)> {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    vec![
        ("date", say("date", &["-u", "+%Y-%m-%d"])),
        ("processors", format!("{cpus} x {}", processor())),
        ("memory", memory()),
        ("system", format!("{}, Linux {}", system(), say("uname", &["-r"]))),
        ("PostgreSQL", server.version().to_string()),
        ("PgBouncer", say(&pgbouncer_program().to_string_lossy(), &["--version"])),
        (
            "pgusher",
            match pgusher_program() {
                Ok(program) => say(&program.to_string_lossy(), &["--version"]),
                Err(_) => "not built".into(),
            },
        ),
    ]
}

fn say(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let first = text.ok().and_then(|t| t.lines().next().map(str::to_owned));
    first.filter(|line| !line.is_empty()).unwrap_or_else(|| "unknown".into())
}

fn field(path: &str, name: &str, separator: char) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(separator)?.1.trim().trim_matches('"').to_owned())
}

fn processor() -> String {
    field("/proc/cpuinfo", "model name", ':').unwrap_or_else(|| "unknown".into())
}

fn memory() -> String {
    let kib = field("/proc/meminfo", "MemTotal", ':');
    let kib = kib.and_then(|t| t.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or_else(|| "unknown".into(), |kib| format!("{} GiB", (kib + 524_288) / 1_048_576))
}

fn system() -> String {
    field("/etc/os-release", "PRETTY_NAME", '=').unwrap_or_else(|| "unknown".into())
}
