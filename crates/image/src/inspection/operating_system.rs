//! What the files of an image say of its operating system. An image may say anything: what does not look like a name or
//! a version is left out, and text is cut and made harmless.
//!
//! Names of distributions, package managers and of the whole (`osinfo`) are those of virt-inspector(1).

use blockyard_block::printable;
use serde::Serialize;
use std::collections::BTreeMap;

/// Longest text that is told.
const TEXT_LETTERS_MAX: usize = 200;

/// What is known of an operating system; for machines, null where it is not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OperatingSystem {
    /// As virt-inspector calls the distribution: debian, fedora, ….
    pub distro: Option<String>,
    /// What it calls itself.
    pub product_name: Option<String>,
    /// Server, Workstation, ….
    pub product_variant: Option<String>,
    /// Of its version.
    pub major_version: Option<u32>,
    /// Of its version.
    pub minor_version: Option<u32>,
    /// x86_64, aarch64, ….
    pub arch: Option<String>,
    /// Its name in a network.
    pub hostname: Option<String>,
    /// deb, rpm, ….
    pub package_format: Option<String>,
    /// apt, dnf, ….
    pub package_management: Option<String>,
    /// The short name in the libosinfo database, debian12.
    pub osinfo: Option<String>,
}

/// The first bytes of files, by their paths from the root, without the first slash.
pub type Files = BTreeMap<String, Vec<u8>>;

impl OperatingSystem {
    /// What `files` say.
    pub fn of(files: &Files) -> Self {
        let mut system = from_os_release(files).or_else(|| from_release_files(files)).unwrap_or_default();
        if system.distro.as_deref() == Some("debian") {
            // What os-release leaves out.
            let minor =
                first_line(files, "etc/debian_version").and_then(|line| version(&line)).and_then(|(_, minor)| minor);
            system.minor_version = minor.or(system.minor_version);
        }
        system.arch = PROGRAMS.iter().find_map(|path| architecture(files.get(*path)?)).map(str::to_owned);
        system.hostname = hostname(files);
        let packages = packages(files, &system);
        system.package_format = packages.map(|(format, _)| format.to_owned());
        system.package_management = packages.map(|(_, management)| management.to_owned());
        system.osinfo = osinfo(&system);
        system
    }
}

/// Programs of the image.
const PROGRAMS: [&str; 5] = ["bin/sh", "bin/bash", "bin/ls", "usr/bin/sh", "sbin/init"];

/// Text of the image as it is told: nothing where it is empty.
fn told(text: &str) -> Option<String> {
    let text: String = text.trim().chars().take(TEXT_LETTERS_MAX).collect();
    (!text.is_empty()).then(|| printable(&text))
}

fn text(files: &Files, path: &str) -> Option<String> {
    files.get(path).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

fn first_line(files: &Files, path: &str) -> Option<String> {
    text(files, path)?.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

/// os-release(5).
fn from_os_release(files: &Files) -> Option<OperatingSystem> {
    let text = text(files, "etc/os-release").or_else(|| text(files, "usr/lib/os-release"))?;
    let variables = assignments(&text);
    let id = variables.get("ID").filter(|id| is_name(id))?;
    let version = variables.get("VERSION_ID").and_then(|text| version(text));
    let name = ["PRETTY_NAME", "NAME"].iter().find_map(|key| told(variables.get(*key)?));
    Some(OperatingSystem {
        distro: Some(distribution(id).to_owned()),
        product_name: name,
        product_variant: variables.get("VARIANT").and_then(|text| told(text)),
        major_version: version.map(|(major, _)| major),
        minor_version: version.map(|(_, minor)| minor.unwrap_or(0)),
        ..OperatingSystem::default()
    })
}

/// From before there was os-release.
fn from_release_files(files: &Files) -> Option<OperatingSystem> {
    const RELEASES: [(&str, &str); 7] = [
        ("etc/centos-release", "centos"),
        ("etc/redhat-release", "redhat-based"),
        ("etc/alpine-release", "alpinelinux"),
        ("etc/SuSE-release", "suse-based"),
        ("etc/gentoo-release", "gentoo"),
        ("etc/arch-release", "archlinux"),
        ("etc/slackware-version", "slackware"),
    ];
    from_lsb_release(files)
        .or_else(|| {
            let (line, distro) = RELEASES.iter().find_map(|(path, distro)| {
                files.contains_key(*path).then(|| (first_line(files, path).unwrap_or_default(), *distro))
            })?;
            let begins = |name: &str| line.starts_with(name);
            let distro = match distro {
                "redhat-based" if begins("Fedora") => "fedora",
                "redhat-based" if begins("Red Hat") => "rhel",
                "redhat-based" | "centos" if begins("CentOS") => "centos",
                "redhat-based" if begins("Scientific") => "scientificlinux",
                "suse-based" if begins("openSUSE") => "opensuse",
                "suse-based" if begins("SUSE Linux Enterprise Server") => "sles",
                other => other,
            };
            Some(release(distro, &line))
        })
        .or_else(|| {
            first_line(files, "etc/debian_version").map(|line| release("debian", &format!("Debian GNU/Linux {line}")))
        })
}

fn from_lsb_release(files: &Files) -> Option<OperatingSystem> {
    let text = text(files, "etc/lsb-release")?;
    let variables = assignments(&text);
    let distro = distribution(variables.get("DISTRIB_ID")?);
    let version = variables.get("DISTRIB_RELEASE").and_then(|text| version(text));
    Some(OperatingSystem {
        distro: is_name(distro).then(|| distro.to_owned()),
        product_name: variables.get("DISTRIB_DESCRIPTION").and_then(|text| told(text)),
        major_version: version.map(|(major, _)| major),
        minor_version: version.map(|(_, minor)| minor.unwrap_or(0)),
        ..OperatingSystem::default()
    })
}

fn release(distro: &str, line: &str) -> OperatingSystem {
    let number = line.find(|letter: char| letter.is_ascii_digit()).and_then(|at| version(&line[at..]));
    OperatingSystem {
        distro: Some(distro.to_owned()),
        product_name: told(line),
        major_version: number.map(|(major, _)| major),
        minor_version: number.map(|(_, minor)| minor.unwrap_or(0)),
        ..OperatingSystem::default()
    }
}

/// Lines NAME=VALUE, as a shell has them. The last of a name counts.
fn assignments(text: &str) -> BTreeMap<&str, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once('=')).map(|(name, value)| (name.trim(), unquoted(value))).collect()
}

fn unquoted(value: &str) -> String {
    let mut plain = String::new();
    let mut quote = None;
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), close) if open == close => quote = None,
            (None | Some('"'), '\\') => plain.extend(letters.next()),
            (None, ' ' | '\t' | ';' | '#') => break,
            _ => plain.push(letter),
        }
    }
    plain
}

/// What os-release calls by another name than virt-inspector.
fn distribution(id: &str) -> &str {
    match id {
        "alpine" => "alpinelinux",
        "arch" | "Arch" => "archlinux",
        "kali" => "kalilinux",
        "ol" => "oraclelinux",
        "void" => "voidlinux",
        "Ubuntu" => "ubuntu",
        "Debian" => "debian",
        "Gentoo" => "gentoo",
        id if id == "opensuse" || id.starts_with("opensuse-") => "opensuse",
        id if id.starts_with("sles") => "sles",
        id => id,
    }
}

fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    (1..=40).contains(&text.len()) && text.bytes().all(plain)
}

/// The two numbers that a version begins with; of one like 12, the first.
fn version(text: &str) -> Option<(u32, Option<u32>)> {
    let mut numbers = text.trim().split(|letter: char| !letter.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    let rest = text.trim().trim_start_matches(|letter: char| letter.is_ascii_digit());
    let minor = if rest.starts_with('.') { numbers.next().and_then(|digits| digits.parse().ok()) } else { None };
    Some((major, minor))
}

fn hostname(files: &Files) -> Option<String> {
    let line = |path: &str| first_line(files, path).filter(|line| !line.starts_with('#'));
    let variable = |path: &str, name: &str| {
        let text = text(files, path)?;
        assignments(&text).remove(name)
    };
    let found = line("etc/hostname")
        .or_else(|| line("etc/HOSTNAME"))
        .or_else(|| variable("etc/sysconfig/network", "HOSTNAME"))
        .or_else(|| variable("etc/conf.d/hostname", "hostname"))?;
    told(&found)
}

/// The machine of an ELF program, as virt-inspector has it (elf(5), e_machine).
fn architecture(head: &[u8]) -> Option<&'static str> {
    let (class, order) = (*head.get(4)?, *head.get(5)?);
    let machine: [u8; 2] = head.get(18..20)?.try_into().ok()?;
    let machine = if order == 2 { u16::from_be_bytes(machine) } else { u16::from_le_bytes(machine) };
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    Some(match (machine, class, order) {
        (62, ..) => "x86_64",
        (3, ..) => "i386",
        (183, ..) => "aarch64",
        (40, ..) => "arm",
        (21, _, 1) => "ppc64le",
        (21, ..) => "ppc64",
        (20, ..) => "ppc",
        (22, 2, _) => "s390x",
        (22, ..) => "s390",
        (243, 2, _) => "riscv64",
        (243, ..) => "riscv32",
        (43, ..) => "sparc64",
        (50, ..) => "ia64",
        (258, ..) => "loongarch64",
        (8, ..) => "mips",
        _ => return None,
    })
}

/// Format and manager of packages: by the database that is there, and by who uses it.
fn packages(files: &Files, system: &OperatingSystem) -> Option<(&'static str, &'static str)> {
    let has = |path: &str| files.contains_key(path);
    let distro = system.distro.as_deref().unwrap_or_default();
    let major = system.major_version.unwrap_or(0);
    if has("var/lib/dpkg/status") {
        return Some(("deb", "apt"));
    }
    if ["var/lib/rpm", "usr/lib/sysimage/rpm", "usr/share/rpm"].into_iter().any(has) {
        let old = match distro {
            "fedora" => major < 22,
            "rhel" | "centos" | "rocky" | "almalinux" | "oraclelinux" | "scientificlinux" => major < 8,
            _ => false,
        };
        return Some(match distro {
            "opensuse" | "sles" | "suse-based" => ("rpm", "zypper"),
            "mageia" => ("rpm", "urpmi"),
            _ if old => ("rpm", "yum"),
            _ => ("rpm", "dnf"),
        });
    }
    let others = [
        ("lib/apk/db/installed", ("apk", "apk")),
        ("var/lib/pacman/local", ("pacman", "pacman")),
        ("var/db/xbps", ("xbps", "xbps")),
        ("var/db/pkg", ("ebuild", "portage")),
    ];
    others.into_iter().find_map(|(path, packages)| has(path).then_some(packages))
}

/// libosinfo's name, as virt-inspector forms it (libguestfs, lib/inspect-osinfo.c).
fn osinfo(system: &OperatingSystem) -> Option<String> {
    let distro = system.distro.as_deref()?;
    let Some(major) = system.major_version else {
        return matches!(distro, "archlinux" | "gentoo" | "voidlinux").then(|| distro.to_owned());
    };
    let minor = system.minor_version.unwrap_or(0);
    Some(match distro {
        "debian" | "fedora" | "mageia" => format!("{distro}{major}"),
        "centos" | "rocky" if major >= 8 => format!("{distro}{major}"),
        "centos" if major == 7 => "centos7.0".to_owned(),
        "sles" if minor == 0 => format!("sles{major}"),
        "sles" => format!("sles{major}sp{minor}"),
        "ubuntu" => format!("ubuntu{major}.{minor:02}"),
        "archlinux" | "gentoo" | "voidlinux" => distro.to_owned(),
        _ => format!("{distro}{major}.{minor}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Files {
        list.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect()
    }

    fn short(list: &[(&str, &str)]) -> (String, Option<(u32, u32)>, String, String) {
        let system = OperatingSystem::of(&files(list));
        let or = |text: Option<String>| text.unwrap_or_default();
        let version = system.major_version.zip(system.minor_version);
        (or(system.distro), version, or(system.package_management), or(system.osinfo))
    }

    fn expected(
        distro: &str,
        version: Option<(u32, u32)>,
        manager: &str,
        osinfo: &str,
    ) -> (String, Option<(u32, u32)>, String, String) {
        (distro.to_owned(), version, manager.to_owned(), osinfo.to_owned())
    }

    #[test]
    fn distributions_say_what_they_are() {
        let dpkg = ("var/lib/dpkg/status", "");
        let rpm = ("var/lib/rpm", "");
        let debian = [
            ("etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\nVERSION_ID=\"12\"\n"),
            ("etc/debian_version", "12.5\n"),
            dpkg,
        ];
        assert_eq!(short(&debian), expected("debian", Some((12, 5)), "apt", "debian12"));
        let ubuntu = [("usr/lib/os-release", "ID=ubuntu\nVERSION_ID='22.04'\n"), dpkg];
        assert_eq!(short(&ubuntu), expected("ubuntu", Some((22, 4)), "apt", "ubuntu22.04"));
        let alpine = [("etc/os-release", "ID=alpine\nVERSION_ID=3.18.4\n"), ("lib/apk/db/installed", "")];
        assert_eq!(short(&alpine), expected("alpinelinux", Some((3, 18)), "apk", "alpinelinux3.18"));
        let arch = [("etc/os-release", "ID=arch\nBUILD_ID=rolling\n"), ("var/lib/pacman/local", "")];
        assert_eq!(short(&arch), expected("archlinux", None, "pacman", "archlinux"));
        let old_centos = [("etc/redhat-release", "CentOS release 6.10 (Final)\n"), rpm];
        assert_eq!(short(&old_centos), expected("centos", Some((6, 10)), "yum", "centos6.10"));
        let suse = [("etc/os-release", "ID=\"opensuse-leap\"\nVERSION_ID=\"15.5\"\n"), rpm];
        assert_eq!(short(&suse), expected("opensuse", Some((15, 5)), "zypper", "opensuse15.5"));
        let old_debian = [("etc/debian_version", "6.0.10\n"), dpkg];
        assert_eq!(short(&old_debian), expected("debian", Some((6, 0)), "apt", "debian6"));
        let old_ubuntu = [("etc/lsb-release", "DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE=10.04\n"), dpkg];
        assert_eq!(short(&old_ubuntu), expected("ubuntu", Some((10, 4)), "apt", "ubuntu10.04"));
    }

    #[test]
    fn host_names_and_machines_are_found() {
        let mut files = files(&[("etc/hostname", "\n box \n")]);
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(18, 0);
        elf.extend_from_slice(&183u16.to_le_bytes());
        files.insert("bin/sh".to_owned(), b"#!/bin/true".to_vec());
        files.insert("usr/bin/sh".to_owned(), elf);
        let system = OperatingSystem::of(&files);
        assert_eq!((system.hostname.as_deref(), system.arch.as_deref()), (Some("box"), Some("aarch64")));
        let red_hat =
            super::Files::from([("etc/sysconfig/network".to_owned(), b"NETWORKING=yes\nHOSTNAME=\"old\"\n".to_vec())]);
        assert_eq!(hostname(&red_hat).as_deref(), Some("old"));
    }

    #[test]
    fn odd_files_say_nothing_and_command_no_terminal() {
        for text in ["", "=", "ID=", "ID=../../x", "ID=\"", "VERSION_ID=99999999999", "\u{0}\n\\", "ID=a\u{1b}[2J"] {
            let system = OperatingSystem::of(&files(&[("etc/os-release", text)]));
            assert_eq!((system.distro, system.major_version), (None, None), "{text:?}");
        }
        let long = "x".repeat(10_000);
        let system = OperatingSystem::of(&files(&[("etc/hostname", &format!("\u{1b}]0;{long}"))]));
        let hostname = system.hostname.unwrap();
        assert!(hostname.chars().count() <= TEXT_LETTERS_MAX && !hostname.contains('\u{1b}'), "{hostname}");
    }

    #[test]
    fn values_are_quoted_as_a_shell_does() {
        let text = "# NAME=no\nA=plain # more\nB=\"two words\"\nC='it''s'\nD=\"a \\\"b\\\"\"\nE=\n";
        let variables = assignments(text);
        let of = |name: &str| variables[name].as_str();
        assert_eq!([of("A"), of("B"), of("C"), of("D"), of("E")], ["plain", "two words", "its", "a \"b\"", ""]);
    }

    #[test]
    fn fuzz_whatever_files_say_is_told_in_harmless_text() {
        const PATHS: [&str; 6] = [
            "etc/lsb-release",
            "etc/redhat-release",
            "etc/hostname",
            "etc/debian_version",
            "bin/sh",
            "etc/sysconfig/network",
        ];
        blockyard_fuzz::check!(10_000).with_type::<(u8, Vec<u8>, Vec<u8>)>().for_each(|(which, release, other)| {
            let path = PATHS[usize::from(*which) % PATHS.len()];
            let files = Files::from([
                ("etc/os-release".to_owned(), [b"ID=debian\n".as_slice(), release].concat()),
                (path.to_owned(), other.clone()),
            ]);
            let OperatingSystem { distro, product_name, product_variant, hostname, osinfo, .. } =
                OperatingSystem::of(&files);
            for text in [distro, product_name, product_variant, hostname, osinfo].into_iter().flatten() {
                assert!(text.chars().count() <= TEXT_LETTERS_MAX && !text.contains(char::is_control), "{text:?}");
            }
        });
    }
}
