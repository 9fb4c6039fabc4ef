//! The names of what is measured, as they stand in summaries, CSV and `--fail-if`.

use super::Protocol;

macro_rules! metrics {
    ($($variant:ident $name:literal $doc:literal;)*) => {
        /// Something that is measured.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Metric { $(#[doc = $doc] $variant,)* }

        impl Metric {
            /// Every one, in the order of a summary.
            pub const ALL: &'static [Metric] = &[$(Metric::$variant,)*];

            /// The name.
            pub fn name(self) -> &'static str {
                match self { $(Metric::$variant => $name,)* }
            }
        }
    };
}

metrics! {
    CreateConnection "create_connection" "A connection, all attempts together.";
    Resolve "resolve" "Name look-up.";
    Connect "connect" "connect().";
    QueueFork "queue_fork" "SSLRequest to its answer.";
    Tls "tls" "TLS handshake.";
    Startup "startup" "StartupMessage to the first authentication request.";
    Authenticate "authenticate" "Authentication rounds before the last.";
    ClientCrypto "client_crypto" "Our own cryptography.";
    Ready "ready" "Last authentication message to ReadyForQuery.";
    SessionCheck "session_check" "Asking for target_session_attrs.";
    Prepare "prepare" "Parse + Describe of a named statement.";
    ParseDescribeSync "parse_describe_sync" "Parse + Describe + Sync.";
    BindExecuteSync "bind_execute_sync" "Bind + Execute + Sync.";
    SimpleQuery "simple_query" "A simple query.";
    Extended "extended" "A run in the extended or prepared protocol.";
    Pipelined "pipelined" "A run in the pipelined protocol.";
    FirstByte "first_byte" "First bytes of the answer.";
    LastRow "last_row" "Last row of the answer.";
    Disconnect "disconnect" "Terminate to the end of the stream.";
}

impl Metric {
    /// The one with this name.
    pub fn from_name(name: &str) -> Option<Metric> {
        Metric::ALL.iter().copied().find(|metric| metric.name() == name)
    }

    /// What a whole run in this protocol is called.
    pub(crate) fn of_run(protocol: Protocol) -> Metric {
        match protocol {
            Protocol::Simple => Metric::SimpleQuery,
            Protocol::Extended | Protocol::Prepared => Metric::Extended,
            Protocol::Pipelined => Metric::Pipelined,
        }
    }

    /// The name of a phase of connecting, as text and plots show it.
    pub(super) fn title(self) -> String {
        match self {
            Metric::QueueFork => "queue+fork".to_owned(),
            metric => metric.name().replace('_', " "),
        }
    }

    /// Whether it is shown only with `--phases`.
    pub(super) fn is_detail(self) -> bool {
        !matches!(
            self,
            Metric::CreateConnection
                | Metric::Prepare
                | Metric::ParseDescribeSync
                | Metric::BindExecuteSync
                | Metric::SimpleQuery
                | Metric::Extended
                | Metric::Pipelined
        )
    }
}
