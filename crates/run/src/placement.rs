//! Which CPUs a machine's threads run on.

use crate::configuration::Configuration;
use blockyard_vmm::placement::{BadCpuList, CpuList, Placement};
use std::fmt;
use std::io;
use std::str::FromStr;

/// Where the vCPUs run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Each on a CPU of its own, but the first together with the machine's I/O threads.
    Shared,
    /// Each on a CPU of its own, and the I/O threads on others, as far as there are enough.
    Disjoint,
    /// vCPU n on the nth of these.
    On(CpuList),
}

/// The text says no place.
#[derive(Debug, PartialEq, Eq)]
pub struct BadPlace(BadCpuList);

impl fmt::Display for BadPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "neither shared nor disjoint, and {}", self.0)
    }
}

impl std::error::Error for BadPlace {}

impl FromStr for Place {
    type Err = BadPlace;

    fn from_str(text: &str) -> Result<Self, BadPlace> {
        match text {
            "shared" => Ok(Self::Shared),
            "disjoint" => Ok(Self::Disjoint),
            list => list.parse().map(Self::On).map_err(BadPlace),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared => formatter.write_str("shared"),
            Self::Disjoint => formatter.write_str("disjoint"),
            Self::On(list) => list.fmt(formatter),
        }
    }
}

/// Where the threads of such a machine run, on a host where this process may use `here`.
fn place(configuration: &Configuration, here: &CpuList) -> Placement {
    let cpus = here.cpus();
    let vcpus = configuration.cpus as usize;
    let (vcpus, io) = match &configuration.place {
        None => (None, None),
        Some(Place::On(list)) => (Some(list.clone()), None),
        Some(Place::Shared) => (Some(here.first(vcpus)), Some(here.nth(0))),
        Some(Place::Disjoint) => {
            // The last one is for I/O, if there is more than one.
            let of_vcpus = vcpus.min(cpus.len() - 1).max(1);
            (Some(here.first(of_vcpus)), Some(here.without_first(of_vcpus)))
        }
    };
    Placement { vcpus, io: configuration.io_cpus.clone().or(io) }
}

/// Where the machine's threads run here.
///
/// # Errors
/// When the kernel does not say which CPUs there are.
pub(crate) fn placement(configuration: &Configuration) -> io::Result<Placement> {
    Ok(place(configuration, &CpuList::usable()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vcpus_are_placed_as_far_as_there_are_cpus() {
        let placed = |cpus: u32, place: &str, here: &str| {
            let configuration = Configuration { cpus, place: Some(place.parse().unwrap()), ..Configuration::default() };
            let Placement { vcpus, io } = super::place(&configuration, &here.parse().unwrap());
            [vcpus, io].map(|list| list.map_or(String::new(), |list| list.to_string()))
        };
        assert_eq!(placed(1, "shared", "0-3"), ["0", "0"]);
        assert_eq!(placed(3, "shared", "0-3"), ["0,1,2", "0"]);
        assert_eq!(placed(9, "shared", "0-3"), ["0,1,2,3", "0"]);
        assert_eq!(placed(1, "disjoint", "4,6,8"), ["4", "6,8"]);
        assert_eq!(placed(9, "disjoint", "4,6,8"), ["4,6", "8"]);
        assert_eq!(placed(2, "disjoint", "5"), ["5", "5"]);
        assert_eq!(placed(2, "1,0", "0-3"), ["0,1", ""]);
        assert!("moon".parse::<Place>().unwrap_err().to_string().contains("shared"));
    }
}
