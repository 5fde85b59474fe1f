//! An example for each command's help, which is also tried by a test: each is a command line that is understood.

use clap::Command;

/// Commands by their names, each with what somebody may want of it.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "attach",
        &[
            "blockyard attach vm.qcow2,partition=2 /dev/blockyard0 -- mkfs.ext4 /dev/blockyard0",
            "blockyard attach session:vm.sock /disk -- dd if=/disk of=out.img bs=1M",
        ],
    ),
    ("copy", &["blockyard copy disk.img copy.img", "blockyard copy vm.qcow2,ro /dev/vdb,partition=2"]),
    ("bench copy", &["blockyard bench copy --bytes 1G --runs 9"]),
    ("bench disk", &["blockyard bench disk disk.img --random --size 4K --batch 64 --runtime 5"]),
    ("bench layers", &["blockyard bench layers --sizes 4K,1M --target file,session"]),
    ("bench upload", &["blockyard bench upload --no-guestfish"]),
    ("bench startup", &["blockyard bench startup --runs 9"]),
    ("bench api", &["blockyard bench api --no-guestfish"]),
    (
        "bench posix",
        &["blockyard bench posix", "blockyard bench posix --over direct,mediated --only randread --rounds 9"],
    ),
    (
        "bench kbuild",
        &[
            "blockyard bench kbuild --rounds 3",
            "blockyard bench kbuild --tree /usr/src/linux-source-6.1.tar.xz --target lib/string.o,lib/sort.o --memory 3G",
        ],
    ),
    ("doctor", &["blockyard doctor"]),
    ("partitions", &["blockyard partitions disk.img"]),
    (
        "run",
        &[
            "blockyard run debian.qcow2 --snapshot --memory 2G",
            "blockyard run debian.qcow2 --backend kvm --cpus 2",
            "blockyard run --backend kvm --kernel vmlinuz --initrd initrd.img --append root=/dev/vda1 --disk disk.img",
        ],
    ),
    (
        "serve",
        &["blockyard serve disk.qcow2 --socket vm.sock", "blockyard serve disk.img --partition 2=two.sock,rw --stats"],
    ),
    ("testvm build", &["blockyard testvm build -o test.cpio"]),
    (
        "testvm run",
        &[
            "blockyard testvm run steps.sh",
            "blockyard testvm run dd --backend kvm --bus ahci,virtio --engine sync,uring --step copy_4k,copy_8m",
            "blockyard testvm run steps.sh --backend kvm --disk disk.img --bus ahci --engine sync --output results",
        ],
    ),
    (
        "image create",
        &[
            "blockyard image create vm.qcow2 20G --table gpt --part 512M,type=esp,fs=vfat --part rest,fs=ext4,label=root",
            "blockyard image create -b base.qcow2 -F qcow2 overlay.qcow2",
        ],
    ),
    ("image info", &["blockyard image info --backing-chain vm.qcow2"]),
    ("image check", &["blockyard image check vm.qcow2"]),
    (
        "image convert",
        &["blockyard image convert -p -c -O qcow2 disk.img vm.qcow2", "blockyard image convert disk.raw.xz vm.qcow2"],
    ),
    ("image commit", &["blockyard image commit --allow-dir . overlay.qcow2"]),
    ("image rebase", &["blockyard image rebase --allow-dir . -b base.qcow2 -F qcow2 overlay.qcow2"]),
    ("image amend", &["blockyard image amend -o compat=1.1,lazy_refcounts=on vm.qcow2"]),
    (
        "image snapshot",
        &["blockyard image snapshot -c before-upgrade vm.qcow2", "blockyard image snapshot -a before-upgrade vm.qcow2"],
    ),
    (
        "image bitmap",
        &[
            "blockyard image bitmap --add vm.qcow2 since-monday",
            "blockyard image bitmap --add --merge since-monday --merge since-tuesday vm.qcow2 week",
        ],
    ),
    ("image resize", &["blockyard image resize vm.qcow2 +10G"]),
    ("image map", &["blockyard image map --json vm.qcow2"]),
    ("image measure", &["blockyard image measure -O qcow2 disk.img"]),
    ("image compare", &["blockyard image compare disk.img vm.qcow2"]),
    ("image ls", &["blockyard image ls -lh vm.qcow2 /etc"]),
    ("image cat", &["blockyard image cat vm.qcow2 /etc/fstab"]),
    ("image stat", &["blockyard image stat vm.qcow2 /etc/shadow"]),
    ("image df", &["blockyard image df -h vm.qcow2"]),
    ("image find", &["blockyard image find vm.qcow2 /var -name '*.log' -size +10M"]),
    ("image inspect", &["blockyard image inspect vm.qcow2"]),
    ("image boot-files", &["blockyard image boot-files vm.qcow2", "blockyard image boot-files vm.qcow2 -o boot"]),
    ("image du", &["blockyard image du -sh vm.qcow2 /var /home"]),
    ("image rm", &["blockyard image rm -r vm.qcow2 '/var/cache/apt/*'"]),
    ("image mkdir", &["blockyard image mkdir -p vm.qcow2 /srv/data/in"]),
    ("image mv", &["blockyard image mv vm.qcow2 /etc/old.conf /etc/new.conf"]),
    ("image ln", &["blockyard image ln -s vm.qcow2 /usr/bin/vim /usr/bin/editor"]),
    ("image chmod", &["blockyard image chmod vm.qcow2 u+x,go= /root/setup.sh"]),
    ("image chown", &["blockyard image chown -R vm.qcow2 www-data:www-data /srv"]),
    ("image put", &["blockyard image put vm.qcow2 hosts resolv.conf /etc"]),
    ("image get", &["blockyard image get vm.qcow2 /var/log logs"]),
    ("image tar-in", &["blockyard image tar-in vm.qcow2 root.tar.gz /"]),
    ("image tar-out", &["blockyard image tar-out --compress=gzip vm.qcow2 /home home.tar.gz"]),
    ("image cp", &["blockyard image cp -a vm.qcow2 /etc /etc.orig"]),
    ("image touch", &["blockyard image touch vm.qcow2 /.autorelabel"]),
    ("image fill", &["blockyard image fill vm.qcow2 0 1M /zeros"]),
    ("image edit", &["blockyard image edit vm.qcow2 /etc/fstab"]),
    (
        "image dd",
        &[
            "blockyard image dd vm.qcow2 if=/dev/sda of=first.bin bs=1M count=1",
            "blockyard image dd if=vm.qcow2 of=first.img bs=1M count=100",
        ],
    ),
    ("image dd-disk", &["blockyard image dd -O qcow2 if=disk.img of=part.qcow2 bs=1M skip=1 count=100"]),
    ("image bench", &["blockyard image bench -c 100000 -d 32 vm.qcow2"]),
    ("image run", &["blockyard image run vm.qcow2 /usr/bin/passwd -d root"]),
    ("image mkfs", &["blockyard image mkfs vm.qcow2 sda1 ext4 -L data"]),
    ("image fsck", &["blockyard image fsck -y vm.qcow2"]),
    ("image label", &["blockyard image label vm.qcow2 sda1 root"]),
    ("image fstrim", &["blockyard image fstrim vm.qcow2"]),
    ("image zero-free", &["blockyard image zero-free vm.qcow2"]),
    ("image filesystems", &["blockyard image filesystems vm.qcow2"]),
    ("image shell", &["blockyard image shell vm.qcow2"]),
    ("image script", &["blockyard image script setup.txt vm.qcow2 --atomic"]),
];

/// The command with an example in the help of each one below it.
pub fn add(command: Command) -> Command {
    below(command, "")
}

fn below(command: Command, path: &str) -> Command {
    let named = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path} {name}") };
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    names.iter().fold(command, |command, name| {
        let path = named(name);
        let with_examples = |command: Command| match EXAMPLES.iter().find(|(of, _)| *of == path) {
            Some((_, lines)) => {
                let heading = if lines.len() == 1 { "Example:" } else { "Examples:" };
                command.after_help(format!("{heading}\n  {}", lines.join("\n  ")))
            }
            None => below(command, &path),
        };
        command.mut_subcommand(name, with_examples)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::{Cli, every_command};
    use crate::image::own_dd_words;
    use clap::Parser;

    #[test]
    fn every_command_has_an_example_that_is_understood() {
        for (path, lines) in EXAMPLES {
            for line in *lines {
                let words = line.split(' ').map(|word| word.trim_matches('\'').into()).collect();
                let read = Cli::try_parse_from(own_dd_words(words));
                assert!(read.is_ok(), "{line}: {}", read.err().map_or_else(String::new, |error| error.to_string()));
                // qemu-img's dd has the name of the other one, and a page of its own.
                let said = path.strip_suffix("-disk").unwrap_or(path);
                assert!(line.starts_with(&format!("blockyard {said}")), "{line} is an example of {path}");
            }
        }
        fn missing(command: &Command, path: &str) -> Vec<String> {
            let visible =
                command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
            let mut all =
                visible.flat_map(|command| missing(command, &format!("{path} {}", command.get_name()))).peekable();
            let is_group = command.has_subcommands();
            let has = EXAMPLES.iter().any(|(of, _)| *of == path.trim());
            if is_group || has { all.by_ref().collect() } else { vec![path.trim().to_owned()] }
        }
        assert_eq!(missing(&every_command(), ""), [""; 0], "commands without an example");
    }
}
