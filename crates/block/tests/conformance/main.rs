//! What every engine of a file disk does, tested the same way on each.

mod data;
mod errors;
mod model;
mod order;
mod rig;
#[path = "../rig/mod.rs"]
mod shared;
mod zeros;

/// Makes a test for each engine of functions that take an engine.
macro_rules! on_every_engine {
    ($($name:ident),* $(,)?) => {
        mod uring {
            $(
                #[test]
                fn $name() {
                    if crate::rig::has_io_uring() {
                        super::$name(blockyard_block::Engine::Uring);
                    }
                }
            )*
        }
        mod threads { $( #[test] fn $name() { super::$name(blockyard_block::Engine::Threads); } )* }
        mod sync { $( #[test] fn $name() { super::$name(blockyard_block::Engine::Sync); } )* }
    };
}
pub(crate) use on_every_engine;
