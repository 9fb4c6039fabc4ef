//! Cancelling a statement: a second connection that says which backend to interrupt and why it may.

use std::time::{Duration, Instant};

use pgusher_wire::startup;
use zeroize::Zeroizing;

use crate::channel::Channel;
use crate::config::TcpOptions;
use crate::error::Result;
use crate::socket::Address;

/// The right to cancel what one backend does. Can be given to another thread.
#[derive(Clone)]
pub struct CancelToken {
    address: Address,
    request: Zeroizing<Vec<u8>>,
}

impl CancelToken {
    pub(crate) fn new(address: Address, pid: u32, key: &[u8]) -> Self {
        let mut request = Zeroizing::new(Vec::new());
        startup::write_cancel(&mut request, pid, key);
        CancelToken { address, request }
    }

    /// Sends the request and waits until the server has closed the connection, that is, has acted on it. Success does
    /// not mean that there was anything to cancel. Not encrypted, as with every libpq before 17.
    pub fn cancel(&self, timeout: Duration) -> Result<()> {
        let deadline = Some(Instant::now() + timeout);
        let tcp = TcpOptions { keepalives: true, idle: None, interval: None, count: None, user_timeout: None };
        let (socket, _) = self.address.connect_with(&tcp, deadline)?;
        let mut channel = Channel::new(socket, deadline);
        channel.send(&self.request)?;
        channel.wait_end()
    }
}

impl std::fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CancelToken").field("address", &self.address).finish_non_exhaustive()
    }
}
