//! The signals that a process which serves obeys.

use anyhow::{Context, Result};
use blockyard_block::EventFd;
use blockyard_command_line::signals::{EndSignals, heeded, last};
use signal_hook::consts::SIGUSR1;
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::thread;

/// The first signal that asks for the end rings `stop`, the second one, if it is no part of the first, kills: whatever
/// the first waits for may never end. SIGUSR1 asks how long requests took, which `print` answers.
///
/// # Errors
/// When the system refuses.
pub fn obey(stop: Arc<EventFd>, print: impl Fn() + Send + 'static) -> Result<()> {
    EndSignals::catch()?;
    let mut signals = Signals::new(heeded(&EndSignals::ALL).chain([SIGUSR1])).context("catching signals")?;
    // One that came before there was anybody to hear of it.
    if last().is_some() {
        stop.ring();
    }
    let obey = move || {
        for signal in &mut signals {
            match signal {
                SIGUSR1 => print(),
                _ => stop.ring(),
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(obey).map(drop).context("starting a thread for signals")
}
