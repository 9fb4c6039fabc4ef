//! `pgusher serve`: the connection manager.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use pgusher_manager::tls::{ClientTlsMode, ClientTlsOptions};
use pgusher_manager::{AuthMethod, Config, Listen, Manager, Multiplex, Overrides, PoolMode};

use crate::exit::Exit;

/// Serve many clients on few warm physical connections.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The PostgreSQL server, as a connection string (postgres://host/db, or "host=... port=..."), or a TOML file.
    #[arg(value_name = "SERVER or FILE.toml")]
    target: String,
    /// Listen here: ADDRESS:PORT, or the absolute path of a folder for a Unix socket. May be repeated [default:
    /// 127.0.0.1:6432].
    #[arg(long, value_name = "ADDR:PORT|/DIR")]
    listen: Vec<Listen>,
    /// Worker threads [default: half of the processors].
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Physical connections of each pool, at most [default: 20].
    #[arg(long, value_name = "N")]
    pool_size: Option<usize>,
    /// Physical connections that each pool keeps open, whether or not they are used [default: 1 for the user and database of
    /// SERVER, 0 for others].
    #[arg(long, value_name = "N")]
    min_pool_size: Option<usize>,
    /// Clients at most [default: 20000].
    #[arg(long, value_name = "N")]
    max_clients: Option<usize>,
    /// When a client gives its physical connection back [default: transaction].
    #[arg(long, value_enum)]
    pool_mode: Option<Mode>,
    /// Whether statements of several clients may be under way on one physical connection [default: off].
    #[arg(long, value_enum)]
    multiplex: Option<Multiplexing>,
    /// How clients prove who they are [default: server, that is, as the server would ask them to].
    #[arg(long, value_enum)]
    auth: Option<Auth>,
    /// Our certificate for clients, PEM, with those between it and its authority. Clients may use TLS then.
    #[arg(long, value_name = "FILE")]
    client_tls_cert: Option<PathBuf>,
    /// The key of that certificate, PEM.
    #[arg(long, value_name = "FILE")]
    client_tls_key: Option<PathBuf>,
    /// Whether clients may, or must, use TLS [default: allow with a certificate, disable without]. How the server is spoken to
    /// says sslmode in SERVER.
    #[arg(long, value_enum, value_name = "MODE")]
    client_tls_sslmode: Option<ClientTls>,
    /// Read the configuration, say whether it is right, and end.
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Mode {
    /// At the end of each transaction.
    Transaction,
    /// When it disconnects.
    Session,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Multiplexing {
    /// Never.
    Off,
    /// Queries that only read and take little time, when no physical connection is free.
    Reads,
}

impl From<Multiplexing> for Multiplex {
    fn from(value: Multiplexing) -> Self {
        match value {
            Multiplexing::Off => Self::Off,
            Multiplexing::Reads => Self::Reads,
        }
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ClientTls {
    /// They cannot.
    Disable,
    /// They may.
    Allow,
    /// They must, over TCP.
    Require,
    /// They must, and must show a certificate; needs ca_file in a configuration file.
    VerifyCa,
}

impl From<ClientTls> for ClientTlsMode {
    fn from(mode: ClientTls) -> Self {
        match mode {
            ClientTls::Disable => Self::Disable,
            ClientTls::Allow => Self::Allow,
            ClientTls::Require => Self::Require,
            ClientTls::VerifyCa => Self::VerifyCa,
        }
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Auth {
    /// As the server would ask them to.
    Server,
    /// Not at all.
    Trust,
    /// By SCRAM-SHA-256, against the users of the configuration file.
    ScramSha256,
    /// By an md5 hash.
    Md5,
    /// By a password in clear text.
    Plain,
}

impl From<Auth> for AuthMethod {
    fn from(auth: Auth) -> Self {
        match auth {
            Auth::Server => Self::Server,
            Auth::Trust => Self::Trust,
            Auth::ScramSha256 => Self::ScramSha256,
            Auth::Md5 => Self::Md5,
            Auth::Plain => Self::Plain,
        }
    }
}

impl From<Mode> for PoolMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Transaction => Self::Transaction,
            Mode::Session => Self::Session,
        }
    }
}

/// Runs until SIGTERM or SIGINT has been followed by the end of the last transaction, or by a second signal.
pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("PGUSHER_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info")),
        )
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let overrides = Overrides {
        listen: args.listen,
        workers: args.workers,
        pool_size: args.pool_size,
        min_pool_size: args.min_pool_size,
        max_clients: args.max_clients,
        pool_mode: args.pool_mode.map(Into::into),
        multiplex: args.multiplex.map(Into::into),
        auth: args.auth.map(Into::into),
        client_tls: ClientTlsOptions {
            sslmode: args.client_tls_sslmode.map(Into::into),
            cert_file: args.client_tls_cert,
            key_file: args.client_tls_key,
            ..ClientTlsOptions::default()
        },
    };
    let path = PathBuf::from(&args.target);
    let is_file = path.extension().is_some_and(|e| e == "toml") || path.is_file();
    let config = if is_file {
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Config::from_toml(&text, &overrides).with_context(|| path.display().to_string())?
    } else {
        Config::from_conninfo(&args.target, &overrides)?
    };
    if args.check {
        println!("the configuration is right");
        return Ok(Exit::Ok);
    }
    let received = Arc::new(AtomicUsize::new(0));
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT])
        .context("cannot handle signals")?;
    let (server, workers, mode) = (config.server.to_string(), config.workers, config.pool_mode);
    let manager = Manager::start(config)?;
    for address in manager.addresses() {
        println!("listening on {address}");
    }
    tracing::info!(%server, workers, pool_mode = ?mode, "ready");

    let count = received.clone();
    std::thread::spawn(move || {
        for _ in signals.forever() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    while received.load(Ordering::SeqCst) == 0 {
        if manager.is_finished() {
            anyhow::bail!("every worker has ended");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    tracing::info!("shutting down: waiting for transactions to end; a second signal stops at once");
    let clean = manager.shut_down(|| received.load(Ordering::SeqCst) > 1);
    if !clean {
        tracing::warn!("stopped before every transaction had ended");
    }
    Ok(if clean { Exit::Ok } else { Exit::SomeFailed })
}
