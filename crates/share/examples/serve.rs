//! Temporary.
fn main() {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if let Err(error) = blockyard_share::serve(&arguments, |_| ()) {
        eprintln!("{error:?}");
    }
}
