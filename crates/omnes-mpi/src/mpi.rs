//! The supported MPIs.

use std::fmt;
use std::str::FromStr;

/// A supported MPI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mpi {
    /// Open MPI.
    OpenMpi,
    /// MPICH, with its launcher Hydra.
    Mpich,
}

impl Mpi {
    /// All supported MPIs.
    pub const ALL: [Self; 2] = [Self::OpenMpi, Self::Mpich];

    /// Oldest supported version.
    pub fn oldest(self) -> Version {
        match self {
            Self::OpenMpi => Version { major: 4, minor: 1, patch: 0 },
            Self::Mpich => Version { major: 4, minor: 0, patch: 0 },
        }
    }

    /// File name of its preload library.
    pub fn library_name(self) -> &'static str {
        match self {
            Self::OpenMpi => "libomnes-mpi-openmpi.so",
            Self::Mpich => "libomnes-mpi-mpich.so",
        }
    }
}

impl fmt::Display for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        })
    }
}

/// The version of an MPI.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version {
    /// Major version: the 4 of 4.1.2.
    pub major: u32,
    /// Minor version: the 1 of 4.1.2.
    pub minor: u32,
    /// Patch level: the 2 of 4.1.2; 0 if it is missing.
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for Version {
    type Err = ();

    /// Parses `4.1.2`, `4.1`, `5.0.0rc12`, `4.2a1`: characters after the leading digits of a part
    /// are ignored.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('.').map(leading_number);
        let mut next = || parts.next().flatten();
        let (major, minor) = (next().ok_or(())?, next().ok_or(())?);
        Ok(Self { major, minor, patch: next().unwrap_or(0) })
    }
}

fn leading_number(part: &str) -> Option<u32> {
    let end = part.find(|mark: char| !mark.is_ascii_digit()).unwrap_or(part.len());
    part[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn versions_are_parsed_and_compared_numerically() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        assert_eq!(version("4.1.4").to_string(), "4.1.4");
        assert_eq!(version("4.1"), Mpi::OpenMpi.oldest());
        assert_eq!(version("5.0.0rc12").to_string(), "5.0.0");
        assert_eq!(version("4.2a1").to_string(), "4.2.0");
        assert!(version("4.10.0") > version("4.9.9"));
        assert!(version("3.4.3") < Mpi::Mpich.oldest());
    }

    #[test]
    fn invalid_versions_are_rejected() {
        for text in ["", "4", "four.one", ".1", "4."] {
            assert_eq!(text.parse::<Version>(), Err(()), "{text:?}");
        }
    }
}
