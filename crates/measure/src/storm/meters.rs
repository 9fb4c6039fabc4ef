//! What a round costs, read before and after its load: the server's processes, the manager's, our own, and the listen queues.

use std::time::Duration;

use super::host;
use super::model::{Round, ServerCost};
use super::server::{Before, Control};
use crate::proc;

/// The readings before a round.
pub(super) struct Meters {
    server: Option<Before>,
    manager: Option<(u32, u64)>,
    queues: Option<(u64, u64)>,
    own_ns: u64,
}

/// What the load has cost, when its last client is ready.
pub(super) struct Readings {
    before: Option<Before>,
    server: Option<ServerCost>,
    manager_ns: Option<u64>,
    queues: Option<(u64, u64)>,
    own_ns: u64,
}

impl Meters {
    /// Reads all that can be read. `local`: the other end is on this machine.
    pub(super) fn start(local: bool, control: Option<&mut Control>, manager_pid: Option<u32>) -> Self {
        Self {
            server: control.and_then(Control::before),
            manager: manager_pid.and_then(|pid| Some((pid, proc::threads_cpu_ns(pid)?))),
            queues: local.then(host::listen_queues).flatten(),
            own_ns: host::own_cpu_ns(),
        }
    }

    /// Reads them again.
    pub(super) fn read(mut self) -> Readings {
        let own_ns = host::own_cpu_ns().saturating_sub(self.own_ns);
        let manager_ns = self.manager.and_then(|(pid, then)| Some(proc::threads_cpu_ns(pid)?.saturating_sub(then)));
        let queues = self.queues.zip(host::listen_queues()).map(|((full, dropped), (full_now, dropped_now))| {
            (full_now.saturating_sub(full), dropped_now.saturating_sub(dropped))
        });
        let server = self.server.as_mut().and_then(Before::cost);
        Readings { before: self.server, server, manager_ns, queues, own_ns }
    }
}

impl Readings {
    /// Waits until the round's backends have ended and adds what that cost them.
    pub(super) fn wait_for_backends(&mut self, patience: Duration) {
        if let (Some(server), Some(before)) = (&mut self.server, &self.before) {
            if before.wait_until_gone(patience) {
                server.backend_life_cpu_us = before.life_cpu_us(server.backends);
            }
        }
    }

    /// Puts the readings into the round.
    pub(super) fn write(self, round: &mut Round, clients: u32) {
        let per_client = |ns: u64| ns as f64 / 1e3 / f64::from(clients);
        round.server = self.server;
        round.manager_cpu_us = self.manager_ns.map(per_client);
        round.generator_cpu_us = per_client(self.own_ns);
        round.listen_overflows = self.queues.map(|(full, _)| full);
        round.listen_drops = self.queues.map(|(_, dropped)| dropped);
    }
}
