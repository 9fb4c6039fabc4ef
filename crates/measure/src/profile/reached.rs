//! How the measured connections reached their server: what the caller asked for, and what the first connection found.

use serde::{Deserialize, Serialize};

use super::ConnectEvent;

/// Part of a profile's surroundings. What is absent is not known, or there was none of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Reached {
    /// sslmode that was asked for.
    pub sslmode: String,
    /// What was done before the first connection and needs no server: certificates, password file.
    pub client_setup_us: f64,
    /// As in `localhost:5432 (127.0.0.1)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// As the server reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_version: Option<String>,
    /// `trust`, `scram-sha-256`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_method: Option<String>,
    /// For example `TLSv1.3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_version: Option<String>,
    /// For example `TLS13_AES_256_GCM_SHA384`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_cipher: Option<String>,
}

impl Reached {
    pub(super) fn new(sslmode: &str, client_setup_us: f64) -> Self {
        Self { sslmode: sslmode.to_owned(), client_setup_us, ..Self::default() }
    }

    /// Takes over what the first connection that succeeded has found.
    pub(super) fn note(&mut self, event: &ConnectEvent) {
        if self.target.is_none() && event.error.is_none() {
            self.target = event.attempts.last().map(|attempt| attempt.target.clone());
            self.server_version.clone_from(&event.server_version);
            self.auth_method = event.auth_method.as_deref().map(str::to_owned);
            self.tls_version.clone_from(&event.tls_version);
            self.tls_cipher.clone_from(&event.tls_cipher);
        }
    }

    /// In words, for a reader of the numbers.
    pub(super) fn words(&self) -> String {
        let mut words = vec![self.target.clone().unwrap_or_else(|| "no connection succeeded".to_owned())];
        words.extend(self.server_version.iter().map(|version| format!("PostgreSQL {version}")));
        words.extend(self.auth_method.iter().map(|method| format!("authentication {method}")));
        words.push(match (&self.tls_version, &self.tls_cipher) {
            (Some(version), Some(cipher)) => format!("{version} with {cipher}"),
            (Some(version), None) => version.clone(),
            (None, _) => "no TLS".to_owned(),
        });
        words.push(format!("sslmode {}", self.sslmode));
        words.join(", ")
    }
}
