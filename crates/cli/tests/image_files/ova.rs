//! OVAs, made by tar and qemu-img.

use super::*;
use std::process::Command;

const URI: &str = "http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized";

fn program(yard: &Yard, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).current_dir(yard.path("")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A machine with two disks and an empty one, whose files lie in an archive with a manifest.
fn archive(yard: &Yard) {
    mixed(yard, "raw.img");
    fs::write(yard.path("other.img"), b"another disk's. ".repeat(1 << 16)).unwrap();
    let convert = "convert -f raw -O vmdk -o subformat=streamOptimized";
    qemu_img(yard, &format!("{convert} raw.img vm-disk1.vmdk"));
    qemu_img(yard, &format!("{convert} other.img vm-disk2.vmdk"));
    let disk = |number: u32| {
        format!(
            "<Disk ovf:diskId=\"vmdisk{number}\" ovf:fileRef=\"file{number}\" ovf:capacity=\"{number}\" ovf:format=\"{URI}\"/>"
        )
    };
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Envelope xmlns:ovf=\"http://schemas.dmtf.org/ovf/envelope/1\">\n\
         <References><File ovf:id=\"file1\" ovf:href=\"vm-disk1.vmdk\"/><File ovf:id=\"file2\" ovf:href=\"vm-disk2.vmdk\"/>\
         </References>\n<DiskSection>{}{}<Disk ovf:diskId=\"new\" ovf:capacity=\"1\" \
         ovf:capacityAllocationUnits=\"byte * 2^30\"/></DiskSection>\n</Envelope>\n",
        disk(1),
        disk(2)
    );
    fs::write(yard.path("vm.ovf"), text).unwrap();
    let digest = |tool: &str, word: &str, name: &str| {
        let digest = program(yard, tool, &[name]);
        format!("{word}({name})= {}\n", digest.split(' ').next().unwrap())
    };
    let manifest = [
        digest("sha1sum", "SHA1", "vm.ovf"),
        digest("sha256sum", "SHA256", "vm-disk1.vmdk"),
        digest("sha512sum", "SHA512", "vm-disk2.vmdk"),
    ];
    fs::write(yard.path("vm.mf"), manifest.concat()).unwrap();
    program(yard, "tar", &["--format=ustar", "-cf", "vm.ova", "vm.ovf", "vm-disk1.vmdk", "vm.mf", "vm-disk2.vmdk"]);
}

#[test]
fn disks_of_an_ova_are_read_where_they_lie() {
    let yard = Yard::new();
    archive(&yard);
    for name in ["vm-disk1.vmdk", "vm-disk2.vmdk", "vm.ovf", "vm.mf"] {
        fs::remove_file(yard.path(name)).unwrap();
    }
    let info = image(&yard, ["info", "--json", "vm.ova"]).succeeded().json();
    assert_eq!((&info["format"], info["disks"].as_array().unwrap().len()), (&"ova".into(), 3));
    assert_eq!((&info["disks"][1]["member"], &info["disks"][1]["number"]), (&"vm-disk2.vmdk".into(), &2.into()));
    assert_eq!(
        (&info["disks"][2]["member"], &info["disks"][2]["virtual-size"]),
        (&serde_json::Value::Null, &(1_u64 << 30).into())
    );
    let text = image(&yard, ["info", "vm.ova"]).succeeded().stdout;
    assert!(text.contains("disk 1: vm-disk1.vmdk") && text.contains("add ,disk=1 to ,disk=3"), "{text}");
    let info = image(&yard, ["info", "--json", "vm.ova,disk=2"]).succeeded().json();
    assert_eq!(info["virtual-size"], 1 << 20);
    for (number, raw) in [(1, "raw.img"), (2, "other.img")] {
        let disk = format!("vm.ova,disk={number}");
        image(&yard, ["compare", raw, &disk]).succeeded();
        image(&yard, ["convert", &disk, "out.qcow2"]).succeeded();
        qemu_img(&yard, &format!("compare -f raw -F qcow2 {raw} out.qcow2"));
        run(&mut support::copy_command([yard.path(&disk), yard.path("copy.img")])).succeeded();
        qemu_img(&yard, &format!("compare -f raw -F raw {raw} copy.img"));
        let map = image(&yard, ["map", "--json", &disk]).succeeded().json();
        assert_eq!(map[0]["compressed"], true, "{map}");
        image(&yard, ["measure", "-O", "raw", &disk]).succeeded();
    }
    image(&yard, ["convert", "vm.ova", "out.img"]).failed(1, &["vm.ova has 3 disks"]);
    image(&yard, ["convert", "vm.ova,disk=3", "out.img"]).failed(1, &["new, empty one"]);
    image(&yard, ["convert", "vm.ova,disk=4", "out.img"]).failed(1, &["no disk 4"]);
    image(&yard, ["convert", "raw.img,disk=1", "out.img"]).failed(1, &["disks with numbers are in OVAs"]);
    image(&yard, ["convert", "vm.ova,disk=0", "out.img"]).failed(2, &["from 1"]);
    image(&yard, ["convert", "-n", "raw.img", "vm.ova,disk=1"]).failed(1, &["only read"]);
    image(&yard, ["create", "new.ova", "1M"]).failed(2, &["can be read, not made"]);
    image(&yard, ["resize", "vm.ova", "2M"]).failed(1, &["vm.ova has 3 disks"]);
    // Another name says nothing of it.
    fs::copy(yard.path("vm.ova"), yard.path("vm.tar")).unwrap();
    image(&yard, ["convert", "vm.tar", "out.img"]).failed(1, &["begins like tar", "unpack it first"]);
    image(&yard, ["compare", "raw.img", "vm.tar,format=ova,disk=1"]).succeeded();
}

#[test]
fn digests_of_its_manifest_are_compared_when_it_is_checked() {
    let yard = Yard::new();
    archive(&yard);
    image(&yard, ["check", "vm.ova"]).succeeded();
    let good = fs::read(yard.path("vm.ova")).unwrap();
    let grain = good.windows(3).position(|bytes| bytes == [b'K', b'D', b'M']).unwrap() + (70 << 10);
    let mut bad = good.clone();
    bad[grain] ^= 1;
    fs::write(yard.path("vm.ova"), bad).unwrap();
    let said = image(&yard, ["check", "vm.ova"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("\"vm-disk1.vmdk\" is not what the manifest has the digest of"), "{}", said.stderr);
    // A manifest that says nothing of a disk, and one that is not there.
    fs::write(yard.path("vm.mf"), program(&yard, "head", &["-n2", "vm.mf"])).unwrap();
    program(&yard, "tar", &["-cf", "vm.ova", "vm.ovf", "vm-disk1.vmdk", "vm.mf", "vm-disk2.vmdk"]);
    let said = image(&yard, ["check", "vm.ova"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("\"vm-disk2.vmdk\" has no digest"), "{}", said.stderr);
    program(&yard, "tar", &["--format=pax", "-cf", "vm.ova", "vm-disk1.vmdk", "vm.ovf", "vm-disk2.vmdk"]);
    let said = image(&yard, ["check", "vm.ova"]).succeeded();
    assert!(said.stderr.contains("no manifest"), "{}", said.stderr);
}
