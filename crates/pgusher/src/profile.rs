//! `pgusher profile`: where the time of one connection and of one statement goes.

use crate::exit::Exit;

/// Time each phase of connections and statements.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Connection string (key/value or URI), as libpq takes it.
    #[arg(short = 'u', long = "url", value_name = "CONNINFO")]
    url: Option<String>,
}

/// Runs `pgusher profile`.
pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    let _ = args.url;
    anyhow::bail!("profile is not built yet")
}
