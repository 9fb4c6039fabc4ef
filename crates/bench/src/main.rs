//! `make bench`: pgusher side by side with PgBouncer on a private PostgreSQL, in alternating rounds.
//!
//! It is not a test: it fails only when nothing could be measured. A manager that cannot be started leaves its column empty and
//! its reason at the end of the report.

mod cell;
mod cpu;
mod idle;
mod load;
mod machine;
mod report;
mod rounds;
mod table;
mod target;
mod trace;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Parser, Subcommand};
use pgusher_embedded::Server;

use crate::cell::{Cell, Login};
use crate::load::Length;
use crate::report::Findings;
use crate::rounds::{Sample, Series};
use crate::target::{Kind, Manager};

/// Compares pgusher with PgBouncer on a private PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = "pgusher-bench", version)]
struct Options {
    /// Rounds of each workload.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each run.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Only the workloads whose names match (`*` and `?` as in a shell), for example "simple-*"; `idle` and `calls` are names
    /// too. The file is not written then, unless --output names one.
    #[arg(long, value_name = "GLOB")]
    only: Vec<String>,
    /// One round of two seconds, 1,000 idle clients; writes no file, unless --output names one.
    #[arg(long)]
    quick: bool,
    /// Without the column of pgusher with two workers.
    #[arg(long)]
    one_worker: bool,
    /// Idle clients to open for the measurement of memory.
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    idle_clients: u32,
    /// Scale factor of pgbench's tables.
    #[arg(long, default_value_t = 10)]
    scale: u32,
    /// The file whose generated part is written; docs/benchmarks.md for a full run.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(subcommand)]
    part: Option<Part>,
}

/// Parts that run in processes of their own.
#[derive(Debug, Subcommand)]
enum Part {
    /// Opens idle clients, for the measurement itself.
    #[command(hide = true)]
    HoldClients {
        #[arg(long)]
        port: u16,
        #[arg(long)]
        count: u32,
    },
}

fn main() -> Result<()> {
    let options = Options::parse();
    match options.part {
        Some(Part::HoldClients { port, count }) => idle::hold(port, count),
        None => Bench::new(options)?.run(),
    }
}

struct Bench {
    options: Options,
    server: Server,
    targets: Vec<Kind>,
    /// Running managers, or why they do not run.
    managers: BTreeMap<(Kind, &'static str), Result<Manager, String>>,
}

impl Bench {
    fn new(mut options: Options) -> Result<Bench> {
        if options.quick {
            options.rounds = 1;
            options.seconds = 2;
            options.idle_clients = options.idle_clients.min(1000);
        }
        let room = idle::raise_file_limit();
        if options.idle_clients > room {
            eprintln!("the limit of open files allows only {room} idle clients");
            options.idle_clients = room;
        }
        let role = Login::Scram.role();
        let server = Server::builder()
            .hba(format!("local all {role} scram-sha-256"))
            .hba(format!("host all {role} 127.0.0.1/32 scram-sha-256"))
            .start()?;
        eprintln!("PostgreSQL {}; filling tables of scale {}", server.version(), options.scale);
        server.psql(
            "postgres",
            &format!(
                "create role {} login; create role {role} login password '{}'",
                Login::Trust.role(),
                load::PASSWORD
            ),
        )?;
        let filled = server
            .client("pgbench")
            .args(["-i", "-q", "-s", &options.scale.to_string(), "postgres"])
            .output()
            .context("pgbench cannot be started")?;
        if !filled.status.success() {
            bail!("pgbench -i failed: {}", String::from_utf8_lossy(&filled.stderr).trim());
        }
        server.psql("postgres", "grant select on all tables in schema public to public")?;
        let mut targets = vec![Kind::Direct, Kind::PgBouncer, Kind::Pgusher];
        if !options.one_worker {
            targets.push(Kind::PgusherTwo);
        }
        targets.push(Kind::PgusherShared);
        Ok(Bench { options, server, targets, managers: BTreeMap::new() })
    }

    fn run(mut self) -> Result<()> {
        let full = self.options.only.is_empty() && !self.options.quick;
        let output = match self.options.output.take() {
            Some(path) => Some(path),
            None if full => Some(PathBuf::from("docs/benchmarks.md")),
            None => None,
        };
        if let Some(path) = &output {
            report::check(path)?;
        }
        let prepared = match target::pgbouncer_version() {
            Ok(version) => version >= (1, 21),
            Err(error) => {
                eprintln!("{error}");
                false
            }
        };
        let mut findings = Findings {
            machine: machine::describe(&self.server),
            method: self.method(),
            targets: self.targets.clone(),
            ..Findings::default()
        };
        let ticks = cpu::machine_ticks();
        for cell in cell::all(prepared) {
            if self.wanted(&cell.name()) {
                let series = self.measure(cell);
                findings.cells.push((cell, series));
            }
        }
        if self.wanted("calls") {
            findings.calls = self.calls();
        }
        // Managers of their own below, and nobody else may use the machine's memory and time.
        self.managers.clear();
        if self.wanted("idle") {
            for kind in [Kind::PgBouncer, Kind::Pgusher] {
                eprintln!("{} idle clients on {}", self.options.idle_clients, kind.name());
                let idle = idle::measure(kind, &self.server, self.options.idle_clients);
                findings.idle.push((kind, idle.map_err(|e| format!("{e:#}"))));
            }
        }
        if findings.cells.is_empty() && findings.idle.is_empty() && findings.calls.is_empty() {
            bail!("no workload has a name that matches");
        }
        findings.machine.push((
            "processor time that the hypervisor gave to others meanwhile",
            format!("{:.1} %", cpu::stolen(ticks) * 100.0),
        ));
        let text = findings.markdown();
        println!("{text}");
        if let Some(path) = output {
            report::write(&path, &text)?;
            eprintln!("wrote {}", path.display());
        }
        Ok(())
    }

    fn wanted(&self, name: &str) -> bool {
        let only = &self.options.only;
        only.is_empty() || only.iter().any(|pattern| cell::matches(pattern, name))
    }

    fn method(&self) -> String {
        format!(
            "`pgbench -S`, scale {}, {} round(s) of {} s after a warm-up, the order of the targets turned by one from round to \
             round. Transaction pooling with 20 server connections, 2 \
             under `multiplex = \"reads\"`; clients over TCP loopback, servers over a Unix socket, no TLS, \
             no log lines for connections; all on one machine, pgbench with 1 thread for 1 client and 2 threads for more. \
             `reconnect` is pgbench's `-C`: one connection for each transaction. With SCRAM the client's own password derivation \
             dominates the throughput; there the manager's CPU time is the figure to compare.",
            self.options.scale, self.options.rounds, self.options.seconds
        )
    }

    fn measure(&mut self, cell: Cell) -> Series {
        let mut series = Series::default();
        let warm_up = Duration::from_secs(if self.options.quick { 1 } else { 2 });
        for kind in self.targets.clone() {
            // What goes wrong here goes wrong in the first round as well, and is kept there.
            let _ = self.once(kind, cell, warm_up);
        }
        for round in 0..self.options.rounds {
            let mut order = self.targets.clone();
            let turn = usize::try_from(round).unwrap_or(0) % order.len();
            order.rotate_left(turn);
            for kind in order {
                let start = Instant::now();
                let result = self.once(kind, cell, Duration::from_secs(self.options.seconds));
                match &result {
                    Ok(sample) => eprintln!(
                        "{:<20} round {} {:<18} {:>9.0} tps {:>8} us {:>8} us  ({:.0} s)",
                        cell.name(),
                        round + 1,
                        kind.name(),
                        sample.tps,
                        sample.manager_us.map_or("-".into(), |us| format!("{us:.1}")),
                        sample.backend_us.map_or("-".into(), |us| format!("{us:.1}")),
                        start.elapsed().as_secs_f64(),
                    ),
                    Err(error) => eprintln!("{:<20} round {} {:<18} {error:#}", cell.name(), round + 1, kind.name()),
                }
                series.add(kind, result);
            }
        }
        series
    }

    /// One run of one target, with the CPU time of the manager and of the server around it.
    fn once(&mut self, kind: Kind, cell: Cell, time: Duration) -> Result<Sample> {
        let manager = match kind {
            Kind::Direct => None,
            _ => {
                let manager = self.manager(kind, cell.login)?;
                Some((manager.pid(), manager.port()))
            }
        };
        let postmaster = self.server.postmaster_pid().context("the server has ended")?;
        let look = || {
            let manager = manager.map(|(pid, _)| cpu::process(pid).context("the manager has ended"));
            (manager.transpose(), cpu::server(postmaster))
        };
        let before = look();
        let port = manager.map_or(self.server.port(), |(_, port)| port);
        let outcome = load::run(&self.server, cell, port, Length::Time(time))?;
        let after = look();
        let each = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1000.0 / outcome.transactions as f64;
        let manager_us = before.0?.zip(after.0?).map(|(from, to)| each(from, to));
        let backend_us = before.1.zip(after.1).map(|(from, to)| each(from, to));
        Ok(Sample { tps: outcome.tps, manager_us, backend_us })
    }

    /// The running manager for this login; started at its first use and after its end. One that could not be started is not
    /// tried again.
    fn manager(&mut self, kind: Kind, login: Login) -> Result<&Manager> {
        let key = (kind, login.role());
        if let Some(Ok(manager)) = self.managers.get_mut(&key) {
            if !manager.runs() {
                eprintln!("{} has ended; starting it again", kind.name());
                self.managers.remove(&key);
            }
        }
        let server = &self.server;
        self.managers
            .entry(key)
            .or_insert_with(|| Manager::start(kind, server, login, 1000).map_err(|e| format!("{e:#}")))
            .as_ref()
            .map_err(|e| anyhow!("{e}"))
    }

    fn calls(&mut self) -> Vec<(Kind, Result<trace::Calls, String>)> {
        if !trace::available() {
            eprintln!("strace is not installed: system calls are not counted");
            return Vec::new();
        }
        let Some(cell) = cell::all(false).into_iter().find(|cell| cell.name() == "simple-1") else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for kind in [Kind::PgBouncer, Kind::Pgusher] {
            eprintln!("system calls of {}", kind.name());
            if let Err(error) = self.manager(kind, cell.login) {
                all.push((kind, Err(format!("{error:#}"))));
                continue;
            }
            if let Some(Ok(manager)) = self.managers.get(&(kind, cell.login.role())) {
                let calls = trace::measure(manager, &self.server, cell);
                all.push((kind, calls.map_err(|e| format!("{e:#}"))));
            }
        }
        all
    }
}
