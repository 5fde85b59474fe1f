//! Numbers for Prometheus, over HTTP on a loopback address.

use crate::view::{ClientView, Look, ServerView};
use anyhow::{Context, Result};
use blockyard_block::layers::OperationKind;
use blockyard_session::server::SessionStatistics;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Longest request that is read; ours have some 200 bytes.
const REQUEST_BYTES_MAX: usize = 4096;
/// How long a client has from its connection to the end of the answer, however it spends it.
const REQUEST_TIME: Duration = Duration::from_secs(2);
/// Clients that are answered at once. When one more comes, the one that has had most time is left.
const CLIENTS_MAX: usize = 32;

/// Listens on `address`, before the process is confined.
///
/// # Errors
/// When the address is taken.
pub(crate) fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).with_context(|| format!("cannot serve metrics on {address}"))
}

/// Answers requests, each on a thread of its own, for as long as the process runs.
///
/// # Errors
/// When there is no thread to be had.
pub(crate) fn serve(listener: TcpListener, view: Look) -> Result<()> {
    let answer = move || {
        let mut clients = VecDeque::new();
        for stream in listener.incoming() {
            match stream.and_then(|stream| answer(stream, Arc::clone(&view))) {
                Ok(client) => clients.push_back(client),
                // Without a descriptor or a thread for them, clients wait, and so does this.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
            // Who was answered is gone.
            clients.retain(|client| client.strong_count() > 0);
            if clients.len() > CLIENTS_MAX
                && let Some(oldest) = clients.pop_front().and_then(|client: Weak<TcpStream>| client.upgrade())
            {
                let _ = oldest.shutdown(Shutdown::Both);
            }
        }
    };
    thread::Builder::new().name("metrics".into()).spawn(answer).context("starting a thread for metrics")?;
    Ok(())
}

/// Answers one client, which is there for as long as its thread is.
fn answer(stream: TcpStream, view: Look) -> io::Result<Weak<TcpStream>> {
    let stream = Arc::new(stream);
    let client = Arc::downgrade(&stream);
    // A client that went away has nothing to be told.
    let respond = move || drop(respond(&Client { stream: &stream, deadline: Instant::now() + REQUEST_TIME }, &*view));
    thread::Builder::new().name("metrics client".into()).spawn(respond)?;
    Ok(client)
}

/// A connection with one deadline for all that is read and written.
struct Client<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl Client<'_> {
    /// What is left, and an error when nothing is.
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }

    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        (&*self.stream).read(into)
    }

    fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(self.left()?)?;
            bytes = &bytes[(&*self.stream).write(bytes)?..];
        }
        Ok(())
    }
}

fn respond(client: &Client<'_>, view: &dyn Fn() -> ServerView) -> io::Result<()> {
    let request = read_head(client)?;
    let (status, body) = match request.split_whitespace().take(2).collect::<Vec<_>>()[..] {
        ["GET", "/metrics"] => ("200 OK", text(&view())),
        ["GET", _] => ("404 Not Found", "see /metrics\n".to_owned()),
        _ => ("400 Bad Request", "only GET /metrics is answered\n".to_owned()),
    };
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    client.write_all(answer.as_bytes())
}

/// What was sent up to the empty line, or up to the longest that is read.
fn read_head(client: &Client<'_>) -> io::Result<String> {
    let (mut head, mut piece) = (Vec::new(), [0; 512]);
    while !head.windows(4).any(|window| window == b"\r\n\r\n") && head.len() < REQUEST_BYTES_MAX {
        match client.read(&mut piece)? {
            0 => break,
            count => head.extend_from_slice(&piece[..count]),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// The numbers in Prometheus's text format, version 0.0.4.
pub(crate) fn text(view: &ServerView) -> String {
    let (mut text, clients) = (String::new(), view.totals());
    let name = "blockyard_bytes_total";
    heading(&mut text, name, "counter", "Bytes of the disk that requests touched which did not fail.");
    for_each_operation(&clients, |labels, client, kind| {
        let _ = writeln!(text, "{name}{{{labels}}} {}", client.bytes(kind));
    });
    let name = "blockyard_latency_seconds";
    heading(&mut text, name, "summary", "How long requests took, since the server started.");
    for_each_operation(&clients, |labels, client, kind| {
        let latency = client.latency(kind);
        for quantile in [0.5, 0.99, 0.999] {
            let seconds = latency.quantile(quantile).unwrap_or_default().as_secs_f64();
            let _ = writeln!(text, "{name}{{{labels},quantile=\"{quantile}\"}} {seconds}");
        }
        let _ = writeln!(text, "{name}_sum{{{labels}}} {}", latency.sum().as_secs_f64());
        let _ = writeln!(text, "{name}_count{{{labels}}} {}", latency.count());
    });
    for (name, kind, help, value) in CLIENT_NUMBERS {
        heading(&mut text, name, kind, help);
        for client in &clients {
            let _ = writeln!(text, "{name}{{{}}} {}", label(&client.name), value(&client.statistics));
        }
    }
    text
}

type OfClient = fn(&SessionStatistics) -> u64;

const CLIENT_NUMBERS: [(&str, &str, &str, OfClient); 5] = [
    ("blockyard_in_flight", "gauge", "Requests that the disk has.", |client| client.in_flight),
    ("blockyard_errors_total", "counter", "Requests that failed.", |client| client.counts.errors),
    ("blockyard_doorbells_total", "counter", "Times the client rang.", |client| client.counts.doorbells),
    ("blockyard_polls_total", "counter", "Times requests were found unrung.", |client| client.counts.polls),
    ("blockyard_notifications_total", "counter", "Times the client was notified.", |client| client.counts.interrupts),
];

fn heading(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn for_each_operation(clients: &[ClientView], mut each: impl FnMut(&str, &ClientView, OperationKind)) {
    for client in clients {
        for kind in OperationKind::ALL {
            each(&format!("{},operation=\"{}\"", label(&client.name), kind.name()), client, kind);
        }
    }
}

/// `client="name"`, escaped.
fn label(name: &str) -> String {
    let escaped = name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("client=\"{escaped}\"")
}
