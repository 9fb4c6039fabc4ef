//! Ctrl-C as a flag that experiments look at. The second one ends the program at once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::exit::Exit;

/// A flag that SIGINT or SIGTERM sets.
pub(crate) fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag unset here and is only noted by the second handler.
        let code = i32::from(Exit::Interrupted.code());
        signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .context("cannot handle signals")?;
    }
    Ok(flag)
}
