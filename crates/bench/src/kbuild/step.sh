# What a run does in the guest, after the usual file systems. The root directory with the compiler is the share `root`,
# the tree is the share `tree`, and what the build says goes to the share `logs`. The console has one line each when the
# build begins and ends, with the guest's clock.
say() { echo "BLOCKYARD-KBUILD $*"; }
fail() { say "failed: $*"; sync; poweroff -f; }

mkdir -p /root /tree /logs /new
mount -t virtiofs -o ro root /root && mount -t virtiofs -o ro tree /tree && mount -t virtiofs logs /logs ||
	fail 'the shares cannot be mounted: has the kernel virtiofs, built in or among the modules?'
mount -t tmpfs -o size=95% memory /new || fail 'there is no memory for the tree'
# Of the root directory what programs are made of; where they write is memory.
for entry in /root/bin /root/sbin /root/lib* /root/usr /root/etc /root/opt; do
	name=/new/${entry##*/}
	if [ -h $entry ]; then cp -P $entry $name
	elif [ -d $entry ]; then mkdir $name && mount -o bind $entry $name
	fi
done
mkdir -p /new/proc /new/dev /new/source /new/tmp/tree
mount -t proc proc /new/proc && mount -o bind /dev /new/dev && mount -o bind /tree /new/source ||
	fail 'the root directory for the build cannot be put together'
[ -e /config ] && cp /config /new/tmp/config
cp /build /new/tmp/build
chroot /new /bin/sh /tmp/build </dev/null >/new/tmp/build.log 2>&1
code=$?
cp /new/tmp/build.log /logs/build.log || say 'the log of the build cannot be kept'
[ $code = 0 ] || { tail -n 12 /new/tmp/build.log; fail "the build (exit status $code)"; }
umount /logs
