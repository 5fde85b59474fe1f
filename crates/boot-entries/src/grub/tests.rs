//! Scripts in the style of distributions, and what they boot.

use crate::tree::Trees;
use crate::{Entry, Loader, Problem, Volume, find};

fn volume(name: &str, partition: u32, uuid: &str, directory: Option<&str>) -> Volume {
    Volume {
        name: name.into(),
        kind: "ext4".into(),
        uuid: uuid.into(),
        disk: Some(0),
        partition: Some(partition),
        is_gpt: true,
        directory: directory.map(Into::into),
        ..Volume::default()
    }
}

/// What grub-mkconfig writes on Debian, as far as it decides anything.
const DEBIAN: &str = r#"
if [ -s $prefix/grubenv ]; then
  set have_grubenv=true
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="DEFAULT"
fi
if [ x"${feature_menuentry_id}" = xy ]; then
  menuentry_id_option="--id"
else
  menuentry_id_option=""
fi
export menuentry_id_option
function load_video {
  if [ x$feature_all_video_module = xy ]; then
    insmod all_video
  else
    insmod efi_gop
  fi
}
if loadfont unicode ; then
  set gfxmode=auto
fi
function gfxmode {
        set gfxpayload="${1}"
}
set linux_gfx_mode=
menuentry 'Debian GNU/Linux' --class debian --class gnu-linux $menuentry_id_option 'gnulinux-simple-aaaa' {
        load_video
        insmod gzio
        if [ x$grub_platform = xxen ]; then insmod xzio; insmod lzopio; fi
        set root='hd0,gpt2'
        if [ x$feature_platform_search_hint = xy ]; then
          search --no-floppy --fs-uuid --set=root --hint-bios=hd0,gpt2 --hint-efi=hd0,gpt2  AAAA
        else
          search --no-floppy --fs-uuid --set=root AAAA
        fi
        echo    'Loading Linux 6.1.0-18-amd64 ...'
        linux   /boot/vmlinuz-6.1.0-18-amd64 root=UUID=aaaa ro  quiet "dyndbg=file x +p"
        echo    'Loading initial ramdisk ...'
        initrd  /boot/initrd.img-6.1.0-18-amd64
}
submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-aaaa' {
        menuentry 'Debian GNU/Linux, with Linux 6.1.0-18-amd64' --class debian $menuentry_id_option 'gnulinux-6.1.0-18-amd64-advanced-aaaa' {
                search --no-floppy --fs-uuid --set=root AAAA
                linux   /boot/vmlinuz-6.1.0-18-amd64 root=UUID=aaaa ro  quiet
                initrd  /boot/initrd.img-6.1.0-18-amd64
        }
        menuentry 'Debian GNU/Linux, with Linux 6.1.0-9-amd64' --class debian $menuentry_id_option 'gnulinux-6.1.0-9-amd64-advanced-aaaa' {
                search --no-floppy --fs-uuid --set=root AAAA
                linux   /boot/vmlinuz-6.1.0-9-amd64 root=/dev/sda2 ro single
                initrd  /boot/ucode.img /boot/initrd.img-6.1.0-9-amd64
        }
}
"#;

fn debian(default: &str, environment: &str) -> Result<Entry, Problem> {
    let block = format!("# GRUB Environment Block\n{environment}{}", "#".repeat(100));
    let files = Trees::new(volume("vda2", 2, "aaaa", None)).files(
        0,
        &[
            ("/boot/grub/grub.cfg", &DEBIAN.replace("DEFAULT", default)),
            ("/boot/grub/grubenv", &block),
            ("/boot/vmlinuz-6.1.0-18-amd64", "new kernel"),
            ("/boot/vmlinuz-6.1.0-9-amd64", "old kernel"),
            ("/boot/initrd.img-6.1.0-18-amd64", "new"),
            ("/boot/initrd.img-6.1.0-9-amd64", "old"),
            ("/boot/ucode.img", "ucode"),
        ],
    );
    find(&files)
}

#[test]
fn the_default_is_a_number_a_title_an_id_or_what_was_saved() {
    let entry = debian("0", "").unwrap();
    assert_eq!((entry.loader, entry.title.as_str()), (Loader::Grub, "Debian GNU/Linux"));
    assert_eq!((entry.file.as_str(), entry.line), ("/boot/grub/grub.cfg", 34));
    assert_eq!(entry.kernel.name, "/boot/vmlinuz-6.1.0-18-amd64");
    assert_eq!(entry.initrds[0].name, "/boot/initrd.img-6.1.0-18-amd64");
    let told = "BOOT_IMAGE=/boot/vmlinuz-6.1.0-18-amd64 root=UUID=aaaa ro quiet \"dyndbg=file x +p\"";
    assert_eq!((entry.command_line.as_str(), &entry.notes[..]), (told, &[][..]));
    let old = "Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux 6.1.0-9-amd64";
    let by_id = "gnulinux-advanced-aaaa>gnulinux-6.1.0-9-amd64-advanced-aaaa";
    for (default, environment) in [
        ("1>1", String::new()),
        (old, String::new()),
        (by_id, String::new()),
        ("${saved_entry}", format!("saved_entry={by_id}\n")),
        ("0", format!("next_entry={by_id}\n")),
    ] {
        let entry = debian(default, &environment).unwrap();
        assert_eq!(entry.title, old, "{default} {environment}");
        let names: Vec<_> = entry.initrds.iter().map(|piece| piece.name.as_str()).collect();
        assert_eq!(names, ["/boot/ucode.img", "/boot/initrd.img-6.1.0-9-amd64"]);
        assert!(entry.notes[0].contains("root=/dev/sda2") && entry.notes[0].contains("root=UUID=aaaa"), "{entry:?}");
    }
    // A menu's first entry, where the default is the menu or nothing that is there.
    assert!(debian("1", "").unwrap().title.ends_with("6.1.0-18-amd64"));
    assert_eq!(debian("gone", "").unwrap().title, "Debian GNU/Linux");
}

/// Fedora: entries as files on a file system of their own, and a first configuration on the EFI system partition.
#[test]
fn entries_as_files_are_a_menu_whose_newest_is_first() {
    let configuration = r#"
set pager=1
if [ -f ${config_directory}/grubenv ]; then
  load_env -f ${config_directory}/grubenv
elif [ -s $prefix/grubenv ]; then
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
else
   set default="${saved_entry}"
fi
insmod part_gpt
if [ x$feature_platform_search_hint = xy ]; then
  search --no-floppy --fs-uuid --set=boot --hint-bios=hd0,gpt2  bbbb
else
  search --no-floppy --fs-uuid --set=boot bbbb
fi
if [ -z "${kernelopts}" ]; then
  set kernelopts="root=UUID=cccc ro rhgb quiet "
fi
insmod blscfg
blscfg
if [ "${boot_success}" = "1" -o "${boot_indeterminate}" = "1" ]; then
  set menu_hide_ok=1
fi
"#;
    let entry = |version: &str| {
        format!(
            "title Fedora Linux ({version}) 39\nversion {version}\nlinux /vmlinuz-{version}\n\
             initrd /initramfs-{version}.img $tuned_initrd\noptions $kernelopts rd.lvm.lv=a/b\ngrub_users $grub_users\n"
        )
    };
    let (older, newer) = ("6.5.6-300.fc39.x86_64", "6.10.3-200.fc39.x86_64");
    let files = |environment: &str| {
        let block = format!("# GRUB Environment Block\n{environment}");
        let names = [older, newer].map(|version| format!("/loader/entries/0123-{version}.conf"));
        Trees::new(volume("fedora/root", 0, "cccc", None))
            .volume(volume("vda2", 2, "bbbb", Some("/boot")))
            .volume(volume("vda1", 1, "DDDD-1111", Some("/boot/efi")))
            .files(1, &[("/grub2/grub.cfg", configuration), ("/grub2/grubenv", &block)])
            .files(1, &[(&names[0], &entry(older)), (&names[1], &entry(newer))])
            .files(1, &[("/vmlinuz-6.5.6-300.fc39.x86_64", "k"), ("/vmlinuz-6.10.3-200.fc39.x86_64", "k")])
            .files(1, &[("/initramfs-6.5.6-300.fc39.x86_64.img", "i"), ("/initramfs-6.10.3-200.fc39.x86_64.img", "i")])
    };
    let found = find(&files("boot_success=1\n")).unwrap();
    assert_eq!((found.title.as_str(), found.line), ("Fedora Linux (6.10.3-200.fc39.x86_64) 39", 0));
    assert_eq!(found.file, "/boot/loader/entries/0123-6.10.3-200.fc39.x86_64.conf");
    assert_eq!(
        found.command_line,
        "BOOT_IMAGE=/vmlinuz-6.10.3-200.fc39.x86_64 root=UUID=cccc ro rhgb quiet rd.lvm.lv=a/b"
    );
    let found = find(&files("saved_entry=0123-6.5.6-300.fc39.x86_64\nkernelopts=root=/dev/mapper/x ro\n")).unwrap();
    assert_eq!(found.kernel.name, "/boot/vmlinuz-6.5.6-300.fc39.x86_64");
    assert!(found.command_line.contains("root=/dev/mapper/x ro rd.lvm"), "{found:?}");

    // The one on the EFI system partition leads to it, wherever that is.
    let first = "search --no-floppy --root-dev-only --fs-uuid --set=dev bbbb\nset prefix=($dev)/elsewhere\n\
                 export $prefix\nconfigfile $prefix/grub.cfg\n";
    let elsewhere = Trees::new(volume("vda3", 3, "cccc", None))
        .volume(volume("vda2", 2, "bbbb", None))
        .volume(volume("vda1", 1, "DDDD-1111", None))
        .files(2, &[("/EFI/fedora/grub.cfg", first)])
        .files(1, &[("/elsewhere/grub.cfg", "menuentry a { linux ($dev)/k x=$prefix\n}"), ("/k", "k")]);
    let found = find(&elsewhere).unwrap();
    assert_eq!((found.file.as_str(), found.kernel.name.as_str()), ("vda2:/elsewhere/grub.cfg", "vda2:/k"));
    assert_eq!(found.command_line, "BOOT_IMAGE=(hd0,gpt2)/k x=(hd0,gpt2)/elsewhere");
}

/// What a script boots whose file system has a kernel at /k and the script at /boot/grub/grub.cfg.
fn boots(script: &str) -> Result<String, String> {
    let root = Volume { subvolume: Some("@".into()), ..volume("vda1", 1, "aaaa", None) };
    let files = Trees::new(root).files(0, &[("/boot/grub/grub.cfg", script), ("/k", "k")]);
    find(&files).map(|entry| entry.command_line).map_err(|problem| problem.to_string())
}

#[test]
fn the_language_is_run_as_far_as_it_decides() {
    for (script, wanted) in [
        ("linux /k a b", "/k a b"),
        ("x='a b'\nlinux /k $x \"$x\" c\\ d ${x}e", "/k a b \"a b\" \"c d\" a be"),
        ("function f { set y=$1-$#-$@\n}\nf 'p q' r; linux /k $y", "/k p"),
        ("for i in a b c; do if [ $i = b ]; then continue; fi; y=\"$y$i\"; done\nlinux /k $y", "/k ac"),
        ("while [ \"$n\" != xxx ]; do n=x$n; done; linux /k $n", "/k xxx"),
        ("until [ \"$n\" = xx ]; do n=x$n; done; linux /k $n", "/k xx"),
        ("if ! true; then a=1; elif false; then a=2; else a=3; fi # comment\nlinux /k $a", "/k 3"),
        ("set a=1; unset a; linux /k x$a?", "/k x?"),
        ("if search --label none; then linux /gone; fi; linux /k", "/k"),
        ("search.fs_uuid AAAA dev hd0; linux ($dev)/k", "(hd0,gpt1)/k"),
        ("search --file --set here /k; linux ($here)/k", "(hd0,gpt1)/k"),
        ("function f { return 1; }\nif f; then linux /k y; else linux /k n; fi", "/k n"),
        ("menuentry a --class x --id i { linux /k $chosen; }\nset default=i", "/k a"),
        ("menuentry $'a' { true; }\nmenuentry b --hotkey=b { linux /k $1; }\ndefault=b", "/k b"),
        ("linux /@/k subvolume", "/@/k subvolume"),
    ] {
        assert_eq!(boots(script), Ok(format!("BOOT_IMAGE={wanted}")), "{script}");
    }
}

#[test]
fn what_is_wrong_is_named_with_file_and_line() {
    const FILE: &str = "/boot/grub/grub.cfg";
    for (script, line, sentence) in [
        ("menuentry a {\n linux /k\n", 2, "} is missing for what begins in line 1"),
        ("menuentry a {\n linux /gone\n}", 2, "the image has no file /gone"),
        ("\nmenuentry a {\n linux /k\n initrd /k /gone\n}", 4, "the image has no file /gone"),
        ("menuentry a {\n linux (hd7,gpt1)/k\n}", 2, "/k is on hd7,gpt1, which the image does not have"),
        (
            "\nmenuentry Windows {\n chainloader +1\n}",
            2,
            "the entry starts no Linux kernel, but something by chainloader",
        ),
        ("menuentry a {\n true\n}", 1, "the entry loads no Linux kernel"),
        ("while true; do true; done", 1, "the script runs more than 20000 commands"),
        ("function f {\n f\n}\nf", 2, "functions call each other too deep"),
        ("x=aaaaaaaa\nwhile true; do x=$x$x; done", 2, "the script makes more than 16 MiB of text"),
        ("menuentry a {\n linux\n}", 2, "the kernel's name is missing"),
        ("menuentry a {\n linux /k\n initrd newc:a:/k\n}", 3, "newc:a:/k: files that GRUB makes an initrd of are not"),
    ] {
        let said = boots(script).unwrap_err();
        assert!(said.starts_with(&format!("{FILE}, line {line}: {sentence}")), "{said}");
    }
    assert!(boots("menuentry a { configfile /boot/grub/grub.cfg; }").unwrap_err().contains("lead to each other"));
}

#[test]
fn fuzz_any_script_boots_something_or_says_why_not() {
    const LINES: [&str; 24] = [
        "set default=1",
        "set default='1>0'",
        "menuentry a {",
        "submenu b --id c {",
        "}",
        "linux /k $x",
        "initrd /k /k",
        "x=$x$x-$default",
        "if [ $x = a ]; then",
        "else",
        "fi",
        "while [ -f /k ]; do",
        "done",
        "for i in a $x c; do",
        "function f {",
        "f $1 $@",
        "search --set=root --label x",
        "load_env",
        "configfile /boot/grub/grub.cfg",
        "source $prefix/grub.cfg",
        "blscfg",
        "linux ($root)/$i",
        "return",
        "break",
    ];
    blockyard_fuzz::check!(2_000).for_each(|bytes: &[u8]| {
        let script: Vec<_> = bytes.iter().map(|&byte| LINES[usize::from(byte) % LINES.len()]).collect();
        let script = script.join("\n");
        if let Err(said) = boots(&script) {
            assert!(said.contains(", line ") || said.starts_with("no kernel was found"), "{said} of {script}");
        }
        let _ = boots(&String::from_utf8_lossy(bytes));
    });
}
