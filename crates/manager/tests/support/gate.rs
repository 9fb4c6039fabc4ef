//! A TCP port in front of a real server that treats each connection as a test wants: passes it on, holds it, or closes it.
//! Not a model of a network: bytes that pass are passed at once and whole.

use pgusher_embedded::Server;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// The second number of a CancelRequest.
const CANCEL: u32 = 80_877_102;

/// A connection, as far as its first eight bytes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visit {
    /// A login; counted from 0.
    Login(usize),
    /// A cancel request; counted from 0.
    Cancel(usize),
}

/// What happens to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// It reaches the server.
    Pass,
    /// Nothing happens to it until the gate is opened; then it reaches the server.
    Hold,
    /// It is closed.
    Close,
}

#[derive(Default)]
struct State {
    open: Mutex<bool>,
    opened: Condvar,
    ended: AtomicBool,
    logins: AtomicUsize,
    cancels: AtomicUsize,
    held: AtomicUsize,
}

/// The port. Dropping it lets nobody in any more.
pub struct Gate {
    port: u16,
    state: Arc<State>,
}

impl Gate {
    /// A gate in front of `server`'s TCP port; `treat` is asked about each connection.
    pub fn new(server: &Server, treat: impl Fn(Visit) -> Treatment + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let behind = server.port();
        let treat = Arc::new(treat);
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (state, treat) = (shared.clone(), treat.clone());
                std::thread::spawn(move || state.visit(stream, behind, &*treat));
            }
        });
        Self { port, state }
    }

    pub fn conninfo(&self) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres sslmode=disable", self.port)
    }

    /// Lets those pass that are held, and will be.
    pub fn open(&self) {
        *self.state.open.lock().unwrap() = true;
        self.state.opened.notify_all();
    }

    /// Logins that came.
    pub fn logins(&self) -> usize {
        self.state.logins.load(Ordering::Relaxed)
    }

    /// Cancel requests that came.
    pub fn cancels(&self) -> usize {
        self.state.cancels.load(Ordering::Relaxed)
    }

    /// Connections that are held now.
    pub fn held(&self) -> usize {
        self.state.held.load(Ordering::Relaxed)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Relaxed);
        self.open();
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl State {
    fn visit(&self, mut client: TcpStream, behind: u16, treat: &(impl Fn(Visit) -> Treatment + ?Sized)) {
        let mut head = [0; 8];
        if client.read_exact(&mut head).is_err() {
            return;
        }
        let visit = if head[4..] == CANCEL.to_be_bytes() {
            Visit::Cancel(self.cancels.fetch_add(1, Ordering::Relaxed))
        } else {
            Visit::Login(self.logins.fetch_add(1, Ordering::Relaxed))
        };
        match treat(visit) {
            Treatment::Close => return,
            Treatment::Hold => {
                self.held.fetch_add(1, Ordering::Relaxed);
                let open = self.open.lock().unwrap();
                drop(self.opened.wait_timeout_while(open, Duration::from_secs(60), |open| !*open).unwrap());
                self.held.fetch_sub(1, Ordering::Relaxed);
            }
            Treatment::Pass => {}
        }
        if self.ended.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", behind)) else { return };
        if server.write_all(&head).is_err() {
            return;
        }
        let (Ok(from), Ok(to)) = (server.try_clone(), client.try_clone()) else { return };
        let back = std::thread::spawn(move || pass(from, to));
        pass(client, server);
        let _ = back.join();
    }
}

/// Copies until one side ends; then the other one ends, too.
fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = to.set_nodelay(true);
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
