//! What is typed, on its way to a guest that reads it when it likes.

use crate::console::InputQueue;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::thread;

/// What is given to the guest at once: a line of its console has room for more.
const PIECE_BYTES: usize = 256;

/// Starts the thread that writes what is typed to `keyboard`, until another guest has the queue or this one is gone.
pub(super) fn start(queue: &Arc<InputQueue>, mut keyboard: UnixStream) -> io::Result<()> {
    // One word that waits says as much as many.
    let (sender, news) = mpsc::sync_channel(1);
    let typed = Arc::clone(queue);
    let write = move || {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        while news.recv().is_ok() {
            loop {
                piece.clear();
                typed.take(&mut piece, PIECE_BYTES);
                if piece.is_empty() {
                    break;
                }
                if keyboard.write_all(&piece).is_err() {
                    return;
                }
            }
        }
    };
    thread::Builder::new().name("typing".to_owned()).spawn(write)?;
    queue.listen(move || _ = sender.try_send(()));
    Ok(())
}
