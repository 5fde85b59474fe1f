//! What `attach` costs programs where they have nothing to do with its disks.

use super::Bar::AtMost;
use super::Figure;
use super::yard::Yard;
use crate::{output, root, run};
use anyhow::Context;
use std::process::Command;

pub(super) const FIGURES: &[Figure] =
    &[Figure { name: "attach, a name that is no disk's: ns more", bar: AtMost(20.0), measure: untouched }];

fn untouched(yard: &Yard) -> anyhow::Result<f64> {
    let program = yard.path("names");
    if !program.exists() {
        let source = root().join("xtask/src/figures/names.c");
        run(Command::new("gcc").args(["-O2", "-o"]).arg(&program).arg(source))?;
    }
    yard.sparse("disk", 1 << 20)?;
    let ns = |command: &mut Command| -> anyhow::Result<f64> {
        output(command)?.trim().parse().context("the program says no number")
    };
    let alone = ns(&mut yard.program(&program, ""))?;
    Ok(ns(yard.blockyard("attach disk /disk --").arg(&program))? - alone)
}
