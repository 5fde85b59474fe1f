//! Serves a raw file to one client after another, as a vhost-user-blk device: `serve FILE SOCKET`.

use blockyard_block::{FileDisk, FileOptions, explain, wait_readable};
use blockyard_session::server::{Doorkeeper, Export, Listener, Server, ServerOptions};
use std::convert::Infallible;
use std::error::Error;
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

pub(crate) fn main() -> ExitCode {
    match serve() {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("{}", explain(&*error));
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<Infallible, Box<dyn Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [file, socket] = &arguments[..] else { return Err("serve FILE SOCKET".into()) };
    // A process of its own: it is split off before there are threads.
    let doorkeeper = Some(Doorkeeper::start()?);
    let disk = Arc::new(FileDisk::open(file, &FileOptions::default())?);
    let server = Server::start(&ServerOptions { doorkeeper, ..ServerOptions::default() })?;
    // This user's clients: nobody else is let in.
    let listener = Listener::bind(socket, &[])?;
    println!("listening at {}", socket.display());
    loop {
        wait_readable(Some(listener.as_fd()), &[], None)?;
        let Some(client) = listener.accept()? else { continue };
        let export = Export {
            name: file.to_string_lossy().into(),
            disk: Arc::clone(&disk) as _,
            queues: 1,
            weight: NonZeroU32::MIN,
            is_alone: false,
        };
        let session = server.attach(client, export)?;
        eprintln!("{:?}", session.wait());
    }
}
