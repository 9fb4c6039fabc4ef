//! The words that a connection string may hold: all of libpq 18, with their environment variables.

macro_rules! keywords {
    ($($variant:ident $name:literal $env:expr, $doc:literal;)*) => {
        /// A connection keyword of libpq 18.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Keyword {
            $(#[doc = $doc] $variant,)*
        }

        impl Keyword {
            /// Every keyword.
            pub const ALL: &'static [Keyword] = &[$(Keyword::$variant,)*];

            /// As it is written in a connection string.
            pub fn name(self) -> &'static str {
                match self { $(Keyword::$variant => $name,)* }
            }

            /// The environment variable that supplies a default.
            pub fn environment_variable(self) -> Option<&'static str> {
                match self { $(Keyword::$variant => $env,)* }
            }
        }
    };
}

keywords! {
    Service "service" Some("PGSERVICE"), "Section of the service file.";
    User "user" Some("PGUSER"), "Role to log in as.";
    Password "password" Some("PGPASSWORD"), "Password.";
    Passfile "passfile" Some("PGPASSFILE"), "File with passwords, `~/.pgpass` by default.";
    ChannelBinding "channel_binding" Some("PGCHANNELBINDING"), "disable, prefer or require.";
    ConnectTimeout "connect_timeout" Some("PGCONNECT_TIMEOUT"), "Seconds for each address.";
    Dbname "dbname" Some("PGDATABASE"), "Database.";
    Host "host" Some("PGHOST"), "Host names, addresses or socket folders, comma separated.";
    Hostaddr "hostaddr" Some("PGHOSTADDR"), "Numeric addresses, comma separated.";
    Port "port" Some("PGPORT"), "Ports, one or one per host.";
    ClientEncoding "client_encoding" Some("PGCLIENTENCODING"), "Encoding that the client speaks.";
    Options "options" Some("PGOPTIONS"), "Command line options for the backend.";
    ApplicationName "application_name" Some("PGAPPNAME"), "Shown in pg_stat_activity.";
    FallbackApplicationName "fallback_application_name" None, "The same, if application_name is not set.";
    Keepalives "keepalives" None, "0 turns TCP keepalives off.";
    KeepalivesIdle "keepalives_idle" None, "Seconds.";
    KeepalivesInterval "keepalives_interval" None, "Seconds.";
    KeepalivesCount "keepalives_count" None, "Number of probes.";
    TcpUserTimeout "tcp_user_timeout" None, "Milliseconds.";
    Sslmode "sslmode" Some("PGSSLMODE"), "disable, allow, prefer, require, verify-ca or verify-full.";
    Sslnegotiation "sslnegotiation" Some("PGSSLNEGOTIATION"), "postgres or direct.";
    Sslcompression "sslcompression" Some("PGSSLCOMPRESSION"), "Without effect.";
    Sslcert "sslcert" Some("PGSSLCERT"), "Client certificate.";
    Sslkey "sslkey" Some("PGSSLKEY"), "Client key.";
    Sslcertmode "sslcertmode" Some("PGSSLCERTMODE"), "disable, allow or require.";
    Sslpassword "sslpassword" None, "Password of the client key.";
    Sslrootcert "sslrootcert" Some("PGSSLROOTCERT"), "Certificate authorities, or `system`.";
    Sslcrl "sslcrl" Some("PGSSLCRL"), "Revocation list.";
    Sslcrldir "sslcrldir" Some("PGSSLCRLDIR"), "Folder of revocation lists.";
    Sslsni "sslsni" Some("PGSSLSNI"), "0 keeps the host name out of the TLS greeting.";
    Requirepeer "requirepeer" Some("PGREQUIREPEER"), "User that must own the server's end of a Unix socket.";
    RequireAuth "require_auth" Some("PGREQUIREAUTH"), "Acceptable authentication methods.";
    MinProtocolVersion "min_protocol_version" Some("PGMINPROTOCOLVERSION"), "3.0, 3.2 or latest.";
    MaxProtocolVersion "max_protocol_version" Some("PGMAXPROTOCOLVERSION"), "3.0, 3.2 or latest.";
    SslMinProtocolVersion "ssl_min_protocol_version" Some("PGSSLMINPROTOCOLVERSION"), "TLSv1 to TLSv1.3.";
    SslMaxProtocolVersion "ssl_max_protocol_version" Some("PGSSLMAXPROTOCOLVERSION"), "TLSv1 to TLSv1.3.";
    Gssencmode "gssencmode" Some("PGGSSENCMODE"), "disable, prefer or require.";
    Krbsrvname "krbsrvname" Some("PGKRBSRVNAME"), "Kerberos service name.";
    Gsslib "gsslib" Some("PGGSSLIB"), "GSS library.";
    Gssdelegation "gssdelegation" Some("PGGSSDELEGATION"), "Forward GSS credentials.";
    Replication "replication" None, "true or database opens a replication connection.";
    TargetSessionAttrs "target_session_attrs" Some("PGTARGETSESSIONATTRS"), "What kind of server is acceptable.";
    LoadBalanceHosts "load_balance_hosts" Some("PGLOADBALANCEHOSTS"), "disable or random.";
    ScramClientKey "scram_client_key" None, "SCRAM client key, base64, in place of a password.";
    ScramServerKey "scram_server_key" None, "SCRAM server key, base64.";
    OauthIssuer "oauth_issuer" None, "OAuth issuer.";
    OauthClientId "oauth_client_id" None, "OAuth client id.";
    OauthClientSecret "oauth_client_secret" None, "OAuth client secret.";
    OauthScope "oauth_scope" None, "OAuth scope.";
    Sslkeylogfile "sslkeylogfile" None, "File that TLS secrets are written to, for debugging.";
}

impl Keyword {
    /// The keyword with this name, written exactly so.
    pub fn from_name(name: &str) -> Option<Keyword> {
        Keyword::ALL.iter().copied().find(|keyword| keyword.name() == name)
    }

    /// Whether its value must never be shown.
    pub fn is_secret(self) -> bool {
        matches!(
            self,
            Keyword::Password
                | Keyword::Sslpassword
                | Keyword::ScramClientKey
                | Keyword::ScramServerKey
                | Keyword::OauthClientSecret
        )
    }

    /// The keyword that a person may have meant with `name`, if one is near enough.
    pub(crate) fn nearest(name: &str) -> Option<Keyword> {
        let wanted = name.to_ascii_lowercase();
        let alias = match wanted.as_str() {
            "database" | "db" => Some(Keyword::Dbname),
            "username" | "role" => Some(Keyword::User),
            "hostname" | "server" => Some(Keyword::Host),
            "ssl" => Some(Keyword::Sslmode),
            _ => None,
        };
        alias.or_else(|| {
            Keyword::ALL
                .iter()
                .copied()
                .map(|keyword| (edit_distance(&wanted, keyword.name()), keyword))
                .filter(|(distance, keyword)| *distance <= 2 && *distance < keyword.name().len())
                .min_by_key(|(distance, _)| *distance)
                .map(|(_, keyword)| keyword)
        })
    }
}

/// Levenshtein distance in bytes. Words are short; no need to be clever.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (j, y) in b.bytes().enumerate() {
            let above = row.get(j + 1).copied().unwrap_or(usize::MAX - 1);
            let cost = diagonal + usize::from(x != y);
            left = cost.min(above + 1).min(left + 1);
            next.push(left);
            diagonal = above;
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found_again() {
        for keyword in Keyword::ALL {
            assert_eq!(Keyword::from_name(keyword.name()), Some(*keyword));
        }
        assert_eq!(Keyword::ALL.len(), 50);
        assert_eq!(Keyword::from_name("USER"), None);
    }

    #[test]
    fn near_words_are_suggested() {
        assert_eq!(Keyword::nearest("uzer"), Some(Keyword::User));
        assert_eq!(Keyword::nearest("database"), Some(Keyword::Dbname));
        assert_eq!(Keyword::nearest("ssl_mode"), Some(Keyword::Sslmode));
        assert_eq!(Keyword::nearest("x"), None);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }
}
