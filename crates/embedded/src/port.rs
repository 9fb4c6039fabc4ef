//! Free TCP ports. They are taken from below the range that systems use for outgoing connections, so that a server that
//! restarts does not find its port used by somebody's connection.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Linux hands 32768 to 60999 to outgoing connections (`net.ipv4.ip_local_port_range`), macOS and FreeBSD 49152 and above.
const FIRST: u32 = 15_000;
const COUNT: u32 = 17_000;

/// A TCP port of 127.0.0.1 that nobody listens on. The same program never gets the same port twice within 17,000 calls;
/// another program could take it before it is used.
///
/// # Errors
/// When no port can be bound at all.
pub fn free_port() -> io::Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(u32::MAX);
    // A start of its own for each process, so that test programs that run side by side rarely meet.
    let seed = (RandomState::new().build_hasher().finish() % u64::from(COUNT)) as u32;
    let _ = NEXT.compare_exchange(u32::MAX, seed, Ordering::Relaxed, Ordering::Relaxed);
    let mut last = None;
    for _ in 0..COUNT {
        let port = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let Ok(port) = u16::try_from(port) else {
            continue;
        };
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => return Ok(port),
            Err(e) => last = Some(e),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::from(io::ErrorKind::AddrInUse)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ports_differ_and_can_be_bound() {
        let ports: HashSet<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 50);
        for port in ports {
            assert!((15_000..32_000).contains(&port));
        }
    }
}
