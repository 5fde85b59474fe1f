//! What cargo builds, as cargo itself reports it.

use crate::{cargo, output, run};
use anyhow::Context;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// What the workspace is compiled for, as `.cargo/config.toml` says.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The host's workspace, from `cargo metadata`.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) target_directory: PathBuf,
    /// Their names and what cargo's messages call them.
    packages: Vec<(String, String)>,
}

/// What building the tests of a package gave.
#[derive(Debug, Default)]
pub(crate) struct Build {
    pub(crate) tests: Vec<TestExecutable>,
    /// Executables of binary targets, which integration tests find by `CARGO_BIN_EXE_…`.
    pub(crate) binaries: Vec<PathBuf>,
}

/// An executable with tests.
#[derive(Clone, Debug)]
pub(crate) struct TestExecutable {
    /// Name of the cargo target: that of the file under tests/, or of the crate.
    pub(crate) name: String,
    pub(crate) executable: PathBuf,
    /// Where cargo would run it.
    pub(crate) package_directory: PathBuf,
}

impl Workspace {
    /// Asks cargo.
    ///
    /// # Errors
    /// When cargo fails.
    pub(crate) fn load() -> anyhow::Result<Self> {
        let metadata = output(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
        let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata is no JSON")?;
        let target_directory = text(&metadata["target_directory"])?.into();
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let packages = packages.map(|package| anyhow::Ok((text(&package["name"])?, text(&package["id"])?)));
        let packages = packages.collect::<Result<_, _>>()?;
        Ok(Self { target_directory, packages })
    }

    /// The `blockyard` that was named, or one that is built now as users have it.
    ///
    /// # Errors
    /// When it cannot be built.
    pub(crate) fn binary_to_measure(&self, named: Option<&Path>) -> anyhow::Result<PathBuf> {
        if let Some(binary) = named {
            return Ok(binary.to_owned());
        }
        run(cargo().args(["build", "--release", "--package", "blockyard"]))?;
        Ok(self.target_directory.join(TARGET).join("release/blockyard"))
    }

    /// Whether there is such a package yet.
    pub(crate) fn has(&self, package: &str) -> bool {
        self.packages.iter().any(|(name, _)| name == package)
    }

    /// The tests of `package`, built with those of the whole workspace, with cargo's messages on stderr: all of it
    /// decides the dependencies' features, so that nothing is built twice.
    ///
    /// # Errors
    /// When they do not build, or there is no such package.
    pub(crate) fn build_tests(&self, package: &str) -> anyhow::Result<Build> {
        let id = self.packages.iter().find(|(name, _)| name == package);
        let (_, id) = id.with_context(|| format!("there is no package {package}"))?;
        let mut command = cargo();
        command.args(["test", "--locked", "--no-run", "--quiet", "--message-format=json-render-diagnostics"]);
        command.arg("--workspace").stderr(Stdio::inherit());
        let mut build = Build::default();
        for line in output(&mut command)?.lines() {
            let message: Value = serde_json::from_str(line).context("cargo's message is no JSON")?;
            let is_its = message["package_id"] == id.as_str() && message["executable"].is_string();
            if is_its && message["reason"] == "compiler-artifact" {
                add_executable(&mut build, &message)?;
            }
        }
        Ok(build)
    }
}

fn add_executable(build: &mut Build, message: &Value) -> anyhow::Result<()> {
    let executable = PathBuf::from(text(&message["executable"])?);
    if message["profile"]["test"] == true {
        let manifest = PathBuf::from(text(&message["manifest_path"])?);
        let package_directory = manifest.parent().context("a manifest without a directory")?.to_owned();
        let name = text(&message["target"]["name"])?;
        build.tests.push(TestExecutable { name, executable, package_directory });
    } else if message["target"]["kind"][0] == "bin" {
        build.binaries.push(executable);
    }
    Ok(())
}

fn text(value: &Value) -> anyhow::Result<String> {
    Ok(value.as_str().context("cargo's JSON lacks a field")?.to_owned())
}
