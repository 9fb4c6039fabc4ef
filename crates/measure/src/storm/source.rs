//! Local addresses to connect from. One address has some 28,000 ports towards one server; on loopback there are more
//! addresses, and each has its own ports.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use pgusher_client::Destination;
use socket2::Socket;

/// From how many clients on one address they are spread in advance: the search for a free port becomes slow when more
/// than half of them are taken.
const PER_ADDRESS: u32 = 8_000;
/// The last source address, 127.0.0.250.
const MOST: u32 = 250;

/// Where connections of a round come from.
#[derive(Debug)]
pub(super) struct Sources {
    /// The server is an IPv4 address on loopback, the only place where other addresses are ours without asking.
    loopback: bool,
    /// How many addresses were found to be out of ports, or spread over in advance.
    in_use: AtomicU32,
}

impl Sources {
    /// For so many clients.
    pub(super) fn new(destination: &Destination, clients: u32) -> Self {
        let loopback = matches!(destination.ip().map(|a| a.ip()), Some(IpAddr::V4(ip)) if ip.is_loopback());
        let in_use = if loopback { clients.div_ceil(PER_ADDRESS).clamp(1, MOST) } else { 1 };
        Self { loopback, in_use: AtomicU32::new(in_use) }
    }

    /// Gives the socket of the connection at this place its source address. The first address is left to the system.
    pub(super) fn bind(&self, socket: &Socket, place: u32) -> io::Result<()> {
        let number = place % self.in_use.load(Ordering::Relaxed);
        if !self.loopback || number == 0 {
            return Ok(());
        }
        let last = u8::try_from(number + 1).unwrap_or(1);
        socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0)).into())
    }

    /// The system says that there is no port left. Whether another address was taken into use.
    pub(super) fn out_of_ports(&self) -> bool {
        self.loopback && {
            let more = |n: u32| (n < MOST).then_some(n + 1);
            self.in_use.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
        }
    }

    /// How many addresses connections came from.
    pub(super) fn count(&self) -> u32 {
        self.in_use.load(Ordering::Relaxed)
    }
}
