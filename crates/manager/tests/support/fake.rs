//! A server of the test's own. It logs everybody in, answers each query with the number of the connection, and sends what a
//! test wants, when the test wants it. It knows BEGIN and COMMIT, and no more SQL than that.

use pgusher_wire::{Frame, TxStatus, backend, frontend};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

#[derive(Default)]
struct State {
    /// Each connection that has logged in; `None` once it has ended.
    lines: Mutex<Vec<Option<TcpStream>>>,
    asleep: Mutex<bool>,
    awake: Condvar,
    ended: Mutex<bool>,
}

/// The server. Dropping it closes its connections.
pub struct Fake {
    port: u16,
    state: Arc<State>,
}

impl Fake {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if *shared.ended.lock().unwrap() {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let state = shared.clone();
                std::thread::spawn(move || state.serve(stream));
            }
        });
        Self { port, state }
    }

    pub fn conninfo(&self) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres sslmode=disable", self.port)
    }

    /// Connections that have logged in so far.
    pub fn logins(&self) -> usize {
        self.state.lines.lock().unwrap().len()
    }

    /// Those of them that are open.
    pub fn open(&self) -> usize {
        self.state.lines.lock().unwrap().iter().flatten().count()
    }

    pub fn is_open(&self, line: usize) -> bool {
        self.state.lines.lock().unwrap()[line].is_some()
    }

    /// Sends bytes on a connection that is open.
    pub fn send(&self, line: usize, bytes: &[u8]) {
        self.state.lines.lock().unwrap()[line].as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// From now on no login is answered.
    pub fn sleep(&self) {
        *self.state.asleep.lock().unwrap() = true;
    }

    /// Answers again, those who wait as well.
    pub fn wake(&self) {
        *self.state.asleep.lock().unwrap() = false;
        self.state.awake.notify_all();
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        *self.state.ended.lock().unwrap() = true;
        self.wake();
        for line in self.state.lines.lock().unwrap().iter().flatten() {
            let _ = line.shutdown(Shutdown::Both);
        }
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl State {
    fn serve(&self, mut stream: TcpStream) {
        let mut length = [0; 4];
        if stream.read_exact(&mut length).is_err() {
            return;
        }
        let mut startup = vec![0; u32::from_be_bytes(length) as usize - 4];
        // A cancel request has no use here.
        if stream.read_exact(&mut startup).is_err() || startup.len() == 12 {
            return;
        }
        let asleep = self.asleep.lock().unwrap();
        drop(self.awake.wait_timeout_while(asleep, Duration::from_secs(60), |asleep| *asleep).unwrap());
        let line = {
            let mut lines = self.lines.lock().unwrap();
            lines.push(Some(stream.try_clone().unwrap()));
            lines.len() - 1
        };
        let mut out = Vec::new();
        backend::write_authentication_ok(&mut out);
        backend::write_parameter_status(&mut out, b"server_version", b"15.0");
        backend::write_backend_key_data(&mut out, line as u32 + 1, &[7; 4]);
        backend::write_ready_for_query(&mut out, TxStatus::Idle);
        let _ = stream.write_all(&out);
        self.session(line, stream);
        self.lines.lock().unwrap()[line] = None;
    }

    fn session(&self, line: usize, mut stream: TcpStream) {
        let mut buffer = Vec::new();
        let mut status = TxStatus::Idle;
        loop {
            while let Ok(Some((frame, used))) = Frame::parse(&buffer) {
                let mut out = Vec::new();
                match frame.tag {
                    frontend::QUERY => {
                        match frame.body {
                            b"begin\0" => status = TxStatus::Transaction,
                            b"commit\0" => status = TxStatus::Idle,
                            // What the definitions do: nothing.
                            body if body.starts_with(b"SET LOCAL") => {
                                columns(&mut out, ["d", "0", "UTF8", "", ""]);
                                columns(&mut out, ["v", "1", "", "", ""]);
                            }
                            // It has no limits.
                            b"SHOW idle_session_timeout\0" => row(&mut out, "0"),
                            _ => row(&mut out, &line.to_string()),
                        }
                        backend::write_command_complete(&mut out, b"SELECT 1");
                        backend::write_ready_for_query(&mut out, status);
                        if frame.body.starts_with(b"SET \"role\" TO 'noisy'") {
                            // It goes on talking.
                            out.extend(message(backend::NOTICE_RESPONSE, b"SNOTICE\0C00000\0Mstill here\0\0"));
                        }
                    }
                    frontend::TERMINATE => return,
                    tag => panic!("the fake server does not know message {tag}"),
                }
                buffer.drain(..used);
                // In the order of what the test itself sends on this connection.
                let lines = self.lines.lock().unwrap();
                if stream.write_all(&out).is_err() {
                    return;
                }
                drop(lines);
            }
            let mut chunk = [0; 4096];
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => return,
                Ok(n) => buffer.extend_from_slice(&chunk[..n]),
            }
        }
    }
}

/// A message of the backend.
pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[tag][..], &length.to_be_bytes(), body].concat()
}

fn columns(out: &mut Vec<u8>, values: [&str; 5]) {
    let mut body = 5u16.to_be_bytes().to_vec();
    for value in values {
        body.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
        body.extend(value.as_bytes());
    }
    out.extend(message(backend::DATA_ROW, &body));
}

fn row(out: &mut Vec<u8>, value: &str) {
    let size = u32::try_from(value.len()).unwrap();
    out.extend(message(backend::DATA_ROW, &[&1u16.to_be_bytes()[..], &size.to_be_bytes(), value.as_bytes()].concat()));
}
