//! What an experiment is pointed at: a server, a manager in front of it, or a private pair of both.

use std::collections::BTreeMap;

use anyhow::Context;
use pgusher_client::{Config, Connection, Connector};
use pgusher_embedded::{Builder, Server};
use pgusher_measure::manager_process::ManagerProcess;
use pgusher_measure::target::{Side, Target};

/// Where to measure. Without any of these an experiment measures a private PostgreSQL and a connection manager of its own.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct TargetArgs {
    /// The server, measured directly: a connection string as libpq takes it.
    #[arg(value_name = "CONNINFO")]
    server: Option<String>,
    /// The same as CONNINFO.
    #[arg(short = 'd', long = "url", value_name = "CONNINFO", conflicts_with = "server")]
    url: Option<String>,
    /// The same database through a connection manager, or any other proxy.
    #[arg(long, value_name = "CONNINFO")]
    through: Option<String>,
}

/// What is measured, and what must live as long as that.
pub(crate) struct Place {
    /// One or both sides.
    pub(crate) targets: Vec<Target>,
    /// What a reader must know of them.
    pub(crate) notes: Vec<String>,
    manager: Option<ManagerProcess>,
    manager_options: Vec<String>,
    server: Option<Server>,
}

impl TargetArgs {
    /// Whether no server was named, so that a private one is measured.
    pub(crate) fn is_private(&self) -> bool {
        self.server.is_none() && self.url.is_none() && self.through.is_none()
    }
}

impl Place {
    /// The targets that were asked for. Where none was, a private server, made with `builder`, and a manager in front of it.
    pub(crate) fn open(args: &TargetArgs, builder: impl FnOnce(Builder) -> Builder) -> anyhow::Result<Self> {
        Self::open_with(args, builder, &[])
    }

    /// The same with more options for the private server's manager.
    pub(crate) fn open_with(
        args: &TargetArgs,
        builder: impl FnOnce(Builder) -> Builder,
        manager_options: &[String],
    ) -> anyhow::Result<Self> {
        let direct = args.server.as_ref().or(args.url.as_ref());
        if args.is_private() {
            return Self::private(builder(Server::builder()), manager_options);
        }
        let mut targets = Vec::new();
        for (side, conninfo) in [(Side::Direct, direct), (Side::Managed, args.through.as_ref())] {
            if let Some(conninfo) = conninfo {
                let connector = connector(conninfo)?;
                connector.warnings().iter().for_each(|warning| eprintln!("pgusher: warning: {warning}"));
                targets.push(Target { side, connector });
            }
        }
        Ok(Self { targets, notes: Vec::new(), manager: None, manager_options: Vec::new(), server: None })
    }

    fn private(builder: Builder, manager_options: &[String]) -> anyhow::Result<Self> {
        let server = builder.start()?;
        let conninfo = format!("{} sslmode=disable", server.conninfo("postgres", "postgres"));
        let mut targets = vec![Target { side: Side::Direct, connector: connector(&conninfo)? }];
        let mut notes = Vec::new();
        let manager = match start_manager(&server, manager_options) {
            Ok((manager, connector)) => {
                targets.push(Target { side: Side::Managed, connector });
                Some(manager)
            }
            Err(error) => {
                notes.push(format!("the managed side was not measured: {error:#}"));
                None
            }
        };
        Ok(Self { targets, notes, manager, manager_options: manager_options.to_vec(), server: Some(server) })
    }

    /// A connection to the first target, to ask and to prepare with.
    pub(crate) fn connect(&self) -> anyhow::Result<Connection> {
        let target = self.targets.first().context("no server to measure")?;
        Ok(target.connector.connect()?.0)
    }

    /// Whether the server is a private one, in which anything may be made.
    pub(crate) fn is_private(&self) -> bool {
        self.server.is_some()
    }

    /// The process of the private server's manager.
    pub(crate) fn manager_pid(&self) -> Option<u32> {
        self.manager.as_ref().map(ManagerProcess::pid)
    }

    /// The private server, to change its settings.
    pub(crate) fn private_server(&mut self) -> Option<&mut Server> {
        self.server.as_mut()
    }

    /// Restarts the private server; the manager in front of it goes on.
    pub(crate) fn restart_server(&mut self) -> anyhow::Result<()> {
        let server = self.server.as_mut().context("only a private server can be restarted by this program")?;
        Ok(server.restart()?)
    }

    /// Whether a manager of this program runs in front of the private server.
    pub(crate) fn has_manager(&self) -> bool {
        self.manager.is_some()
    }

    /// Ends the manager of the private server, if there is one.
    pub(crate) fn stop_manager(&mut self) {
        self.manager = None;
    }

    /// Starts a new manager in front of the private server; the old one must have been stopped. Returns the way to it.
    pub(crate) fn start_manager(&mut self) -> anyhow::Result<Connector> {
        let server = self.server.as_ref().context("only a private server has a manager of this program")?;
        let (manager, connector) = start_manager(server, &self.manager_options)?;
        self.manager = Some(manager);
        Ok(connector)
    }

    /// Where each side is, without secrets.
    pub(crate) fn describe(&self) -> BTreeMap<String, String> {
        self.targets.iter().map(|t| (t.side.to_string(), describe(&t.connector, self.is_private()))).collect()
    }
}

/// Where a connector leads, without secrets.
pub(crate) fn describe(connector: &Connector, private: bool) -> String {
    let config = connector.config();
    let hosts: Vec<String> =
        config.hosts.iter().map(|h| if h.is_tcp() { "TCP" } else { "Unix socket" }.to_owned()).collect();
    let whose = if private { "private server, " } else { "" };
    format!("{whose}{}, sslmode={}", hosts.join(", "), config.tls.mode.name())
}

fn start_manager(server: &Server, options: &[String]) -> anyhow::Result<(ManagerProcess, Connector)> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let upstream = server.socket_conninfo("postgres", "postgres");
    let manager = ManagerProcess::start_with(&program, &upstream, options)?;
    let connector = connector(&manager.conninfo("postgres", "postgres"))?;
    Ok((manager, connector))
}

fn connector(conninfo: &str) -> anyhow::Result<Connector> {
    Ok(Connector::new(&Config::from_conninfo(conninfo)?)?)
}
