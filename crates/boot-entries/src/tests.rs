//! What is booted of images in the style of distributions.

use crate::tree::Trees;
use crate::{Entry, Loader, Place, Volume, find};

fn root() -> Volume {
    Volume {
        name: "vda2".into(),
        kind: "ext4".into(),
        uuid: "aaaa".into(),
        partition_uuid: "pppp".into(),
        disk: Some(0),
        partition: Some(2),
        is_gpt: true,
        ..Volume::default()
    }
}

fn esp(directory: Option<&str>) -> Volume {
    Volume {
        name: "vda1".into(),
        kind: "vfat".into(),
        directory: directory.map(Into::into),
        partition: Some(1),
        ..root()
    }
}

fn names(entry: &Entry) -> Vec<&str> {
    [&entry.kernel].into_iter().chain(&entry.initrds).map(|piece| piece.name.as_str()).collect()
}

/// Arch: systemd-boot on an EFI system partition that is /boot.
fn arch(loader: &str) -> Trees {
    let linux = "# Created by hand\ntitle   Arch Linux\nlinux   /vmlinuz-linux\ninitrd  /intel-ucode.img\n\
                 initrd  /initramfs-linux.img\noptions root=UUID=aaaa rw\noptions quiet\n";
    let lts = "title Arch Linux (LTS)\nlinux /vmlinuz-linux-lts\ninitrd /initramfs-linux-lts.img\noptions root=/dev/nvme0n1p2\n";
    Trees::new(root()).volume(esp(Some("/boot"))).files(
        1,
        &[
            ("/loader/loader.conf", loader),
            ("/loader/entries/arch.conf", linux),
            ("/loader/entries/arch-lts.conf", lts),
            ("/loader/entries/0-shell.conf", "title Shell\nefi /shellx64.efi\n"),
            ("/loader/entries/other.conf", "title ARM\narchitecture aa64\nlinux /gone\n"),
            ("/vmlinuz-linux", "k"),
            ("/vmlinuz-linux-lts", "k"),
            ("/intel-ucode.img", "u"),
            ("/initramfs-linux.img", "i"),
            ("/initramfs-linux-lts.img", "i"),
        ],
    )
}

#[test]
fn systemd_boot_takes_its_default_or_the_first_of_its_menu() {
    let entry = find(&arch("timeout 3\ndefault arch.conf\n")).unwrap();
    assert_eq!((entry.loader, entry.title.as_str()), (Loader::SystemdBoot, "Arch Linux"));
    assert_eq!(entry.file, "/boot/loader/entries/arch.conf");
    assert_eq!(names(&entry), ["/boot/vmlinuz-linux", "/boot/intel-ucode.img", "/boot/initramfs-linux.img"]);
    assert_eq!((entry.command_line.as_str(), &entry.notes[..]), ("root=UUID=aaaa rw quiet", &[][..]));
    let entry = find(&arch("default *-lts*\n")).unwrap();
    assert_eq!(entry.title, "Arch Linux (LTS)");
    assert!(entry.notes[0].contains("root=/dev/nvme0n1p2, which no machine has"), "{entry:?}");
    let entry = find(&arch("#default arch.conf\ndefault @saved\n")).unwrap();
    // The menu has later versions first, and what goes on with a dash is before a release.
    assert_eq!(entry.title, "Arch Linux");
    assert!(entry.notes[0].starts_with("/boot/loader/loader.conf, line 2: the default is what was chosen last"));
    let problem = find(&arch("default 0-shell.conf\n")).unwrap_err();
    assert_eq!(problem.to_string(), "/boot/loader/entries/0-shell.conf, line 2: the entry starts no Linux kernel");
    let broken = arch("default arch\n").files(1, &[("/loader/entries/arch.conf", "title a\n\nlinux /../gone\n")]);
    let problem = find(&broken).unwrap_err();
    assert_eq!(problem.to_string(), "/boot/loader/entries/arch.conf, line 3: the image has no file /../gone");
}

#[test]
fn entries_are_sorted_as_the_menu_is_and_attempts_count() {
    let entry = |text: &str| format!("{text}\nlinux /k\n");
    let trees = |files: &[(&str, &str)]| {
        let trees =
            Trees::new(root()).volume(esp(None)).file(1, "/k", vec![1]).files(1, &[("/loader/loader.conf", "")]);
        let files: Vec<_> = files.iter().map(|(name, text)| (format!("/loader/entries/{name}"), entry(text))).collect();
        files.iter().fold(trees, |trees, (name, text)| trees.files(1, &[(name, text)]))
    };
    let first = |files: &[(&str, &str)]| find(&trees(files)).unwrap().title;
    assert_eq!(first(&[("a-1.9.conf", "title 9"), ("a-1.10.conf", "title 10")]), "10");
    assert_eq!(first(&[("a.conf", "title a"), ("b.conf", "title b\nsort-key z")]), "b");
    assert_eq!(
        first(&[("a.conf", "title a\nsort-key k\nversion 2~rc"), ("b.conf", "title b\nsort-key k\nversion 2")]),
        "b"
    );
    assert_eq!(first(&[("b+0-3.conf", "title bad"), ("a+1.conf", "title good")]), "good");
    assert_eq!(find(&trees(&[("a+1.conf", "title a")])).unwrap().file, "vda1:/loader/entries/a+1.conf");
}

/// A program for UEFI with these sections.
fn unified(sections: &[(&str, &[u8])]) -> Vec<u8> {
    let mut header = b"MZ".to_vec();
    header.resize(60, 0);
    header.extend_from_slice(&64u32.to_le_bytes());
    header.extend_from_slice(b"PE\0\0\x64\x86");
    header.extend_from_slice(&(sections.len() as u16).to_le_bytes());
    header.extend_from_slice(&[0; 12]);
    header.extend_from_slice(&[16, 0, 0, 0]);
    header.extend_from_slice(&[0; 16]);
    let mut data = Vec::new();
    let start = header.len() + 40 * sections.len();
    for (name, content) in sections {
        let mut section = name.as_bytes().to_vec();
        section.resize(8, 0);
        let length = content.len() as u32;
        // In the file, sections have whole blocks.
        for field in [length, 0, length.next_multiple_of(512), (start + data.len()) as u32] {
            section.extend_from_slice(&field.to_le_bytes());
        }
        section.resize(40, 0);
        header.extend_from_slice(&section);
        data.extend_from_slice(content);
        data.resize(data.len().next_multiple_of(512), 0);
    }
    header.extend_from_slice(&data);
    header
}

#[test]
fn a_unified_kernel_image_has_all_in_it() {
    let release = b"ID=arch\nPRETTY_NAME=\"Arch Linux\"\nVERSION_ID=2\n";
    let sections: [(&str, &[u8]); 5] = [
        (".osrel", release),
        (".cmdline", b"root=UUID=aaaa rw\n\0"),
        (".ucode", b"microcode"),
        (".initrd", b"the initrd"),
        (".linux", b"the kernel"),
    ];
    let image = unified(&sections);
    let trees = |image: Vec<u8>| {
        let esp = esp(Some("/efi"));
        Trees::new(root()).volume(esp).file(1, "/EFI/Linux/arch-linux.efi", image).file(
            1,
            "/EFI/systemd/b.efi",
            vec![1],
        )
    };
    let entry = find(&trees(image.clone())).unwrap();
    assert_eq!((entry.loader, entry.title.as_str()), (Loader::SystemdBoot, "Arch Linux"));
    assert_eq!(entry.command_line, "root=UUID=aaaa rw");
    let content = |piece: &crate::Piece| &image[piece.offset as usize..(piece.offset + piece.length) as usize];
    assert_eq!(content(&entry.kernel), b"the kernel");
    assert_eq!(entry.initrds.iter().map(content).collect::<Vec<_>>(), [&b"microcode"[..], b"the initrd"]);
    assert_eq!(entry.kernel.name, "/efi/EFI/Linux/arch-linux.efi (.linux)");
    let problem = find(&trees(unified(&sections[..4]))).unwrap_err();
    assert!(problem.to_string().contains("arch-linux.efi: it is no unified kernel image"), "{problem}");
    let cut = image[..image.len() - 512].to_vec();
    assert!(find(&trees(cut)).unwrap_err().to_string().contains("cut off"));
}

#[test]
fn extlinux_takes_its_default_label() {
    let configuration = |default: &str| {
        format!(
            "TIMEOUT 30\n{default}\nMENU TITLE Boot\nINCLUDE more.conf\nLABEL lts\n  MENU LABEL Linux ^lts\n  LINUX vmlinuz-lts\n  \
             INITRD initramfs-lts\n  APPEND root=UUID=aaaa modules=ext4\nlabel virt\n  kernel /vmlinuz-virt\n  \
             append initrd=/ucode.img,/initramfs-virt root=/dev/vda2\n"
        )
    };
    let trees = |default: &str| {
        Trees::new(root()).volume(esp(Some("/boot"))).files(
            1,
            &[
                ("/extlinux.conf", &configuration(default)),
                ("/more.conf", "include more.conf\nlabel gone\nlinux gone\n"),
                ("/vmlinuz-lts", "k"),
                ("/initramfs-lts", "i"),
                ("/vmlinuz-virt", "k"),
                ("/ucode.img", "u"),
                ("/initramfs-virt", "i"),
            ],
        )
    };
    let entry = find(&trees("DEFAULT lts")).unwrap();
    assert_eq!((entry.loader, entry.title.as_str(), entry.line), (Loader::Extlinux, "Linux lts", 5));
    assert_eq!(names(&entry), ["/boot/vmlinuz-lts", "/boot/initramfs-lts"]);
    assert_eq!(entry.command_line, "root=UUID=aaaa modules=ext4");
    let entry = find(&trees("default virt")).unwrap();
    assert_eq!(names(&entry), ["/boot/vmlinuz-virt", "/boot/ucode.img", "/boot/initramfs-virt"]);
    assert_eq!(entry.command_line, "root=/dev/vda2");
    let problem = find(&trees("default gone")).unwrap_err();
    assert_eq!(problem.to_string(), "/boot/more.conf, line 3: the image has no file gone");
}

#[test]
fn without_a_loader_the_newest_kernel_is_taken_with_its_initrd() {
    let with = |volume: Volume, names: &[&str]| {
        let files: Vec<_> = names.iter().map(|name| (*name, "x")).collect();
        find(&Trees::new(volume).files(0, &files))
    };
    let debian = ["/boot/vmlinuz-6.1.0-9-amd64", "/boot/vmlinuz-6.1.0-18-amd64", "/boot/initrd.img-6.1.0-18-amd64"];
    let entry = with(root(), &debian).unwrap();
    assert_eq!((entry.loader, names(&entry)), (Loader::NewestKernel, debian[1..].to_vec()));
    assert_eq!(entry.command_line, "root=UUID=aaaa ro");
    let fedora =
        ["/boot/vmlinuz-0-rescue-99", "/boot/vmlinuz-6.5.6", "/boot/vmlinuz-6.5.6.hmac", "/boot/initramfs-6.5.6.img"];
    let logical = Volume { name: "my-vg/root".into(), ..root() };
    let entry = with(logical, &fedora).unwrap();
    assert_eq!(names(&entry), ["/boot/vmlinuz-6.5.6", "/boot/initramfs-6.5.6.img"]);
    assert_eq!(entry.command_line, "root=/dev/mapper/my--vg-root ro");
    let entry = with(Volume { subvolume: Some("@".into()), ..root() }, &["/boot/vmlinuz-linux"]).unwrap();
    assert_eq!(
        (names(&entry), entry.command_line.as_str()),
        (vec!["/boot/vmlinuz-linux"], "root=PARTUUID=pppp ro rootflags=subvol=@")
    );
    let entry = with(root(), &["/usr/lib/modules/6.2/vmlinuz", "/usr/lib/modules/6.10/vmlinuz"]).unwrap();
    assert_eq!(entry.kernel.name, "/usr/lib/modules/6.10/vmlinuz");
    let said = with(root(), &["/etc/fstab"]).unwrap_err().to_string();
    assert!(said.starts_with("no kernel was found in the image"), "{said}");
}

#[test]
fn fuzz_any_files_are_an_entry_within_the_image_or_a_sentence() {
    blockyard_fuzz::check!(3_000).with_type::<(u8, Vec<u8>, Vec<u8>)>().for_each(|(which, one, two)| {
        let paths = ["/loader/entries/a.conf", "/EFI/Linux/a.efi", "/extlinux.conf", "/grub/grub.cfg"];
        let path = paths[usize::from(*which) % paths.len()];
        let mut spoiled = unified(&[(".linux", b"k"), (".initrd", b"i"), (".cmdline", two)]);
        for pair in one.chunks_exact(2) {
            let at = usize::from(pair[0]) % spoiled.len();
            spoiled[at] = pair[1];
        }
        let text = if path.ends_with(".efi") { spoiled } else { [one.as_slice(), b"\nlinux /k\n", two].concat() };
        let trees = Trees::new(root()).volume(esp(Some("/boot"))).file(1, path, text).file(1, "/k", vec![1]);
        let trees = trees.file(1, "/loader/loader.conf", two.clone());
        if let Ok(entry) = find(&trees) {
            let is_within = |piece: &crate::Piece| {
                let size = crate::FileSystems::size(&trees, &Place::clone(&piece.place)).unwrap();
                piece.offset + piece.length <= size
            };
            assert!([&entry.kernel].into_iter().chain(&entry.initrds).all(is_within), "{entry:?}");
            assert!(!entry.command_line.contains(char::is_control));
        }
    });
}
