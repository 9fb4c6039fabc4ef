//! The `pgusher` command line: one file per subcommand, each with its options (`Args`) and a `run`. What a
//! subcommand does lives in the crates; here are only options, messages and exit codes.

mod bench_reconnect;
mod bench_storm;
mod demo;
mod doctor;
mod exit;
mod files;
mod interrupt;
mod output;
mod place;
mod profile;
mod progress;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::Exit;

/// Measures, explains and cures slow PostgreSQL connections.
#[derive(Debug, Parser)]
#[command(name = "pgusher", version, about, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 done; 1 wrong options or configuration, or no connection at all; \
    2 ran, but something failed; 3 a threshold was violated (--fail-if, doctor's --fail-on); 130 interrupted.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The subcommands. Each has its own module with `Args` and `run(Args) -> anyhow::Result<Exit>`.
#[derive(Debug, Subcommand)]
enum Command {
    Profile(profile::Args),
    Doctor(doctor::Args),
    Serve(serve::Args),
    /// Measure how connections behave under load.
    #[command(subcommand)]
    Bench(Bench),
    Demo(demo::Args),
}

/// The experiments of `bench`.
#[derive(Debug, Subcommand)]
enum Bench {
    Reconnect(bench_reconnect::Args),
    Storm(bench_storm::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // clap would exit with 2 for a wrong option; 2 means something else here.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
            // Nothing sensible is left to do when even this cannot be written.
            let _ = error.print();
            return exit.into();
        }
    };
    let result = match cli.command {
        Command::Profile(args) => profile::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Bench(Bench::Reconnect(args)) => bench_reconnect::run(args),
        Command::Bench(Bench::Storm(args)) => bench_storm::run(args),
        Command::Demo(args) => demo::run(args),
    };
    let exit = result.unwrap_or_else(|error| {
        eprintln!("pgusher: error: {error:#}");
        Exit::Usage
    });
    // A private server's guard would do it after the end of the program; what this program has started is gone before.
    match pgusher_embedded::clear_away() {
        Ok(()) => exit,
        Err(error) => {
            eprintln!("pgusher: error: something is left of the private server: {error}");
            if matches!(exit, Exit::Ok) { Exit::SomeFailed } else { exit }
        }
    }
    .into()
}
