#!/bin/busybox sh
# PID 1 of the test VM. `blockyard testvm run` appends /testvm/step to the initial file system, which says which step it
# is and how results go back; without it, somebody has booted the machine by hand and gets a shell.
/bin/busybox --install -s /bin
export PATH=/tools/bin:/bin LD_LIBRARY_PATH=/tools/lib HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
say() { echo "BLOCKYARD-TESTVM $INIT $*"; }
fail() { say "failed: $*"; poweroff -f; }

for module in /testvm/modules/*.ko; do
	[ ! -e "$module" ] || insmod "$module" || echo "cannot load ${module##*/}"
done
if [ ! -e /testvm/step ]; then
	echo 'This is a shell of the test VM; programs besides busybox are in /tools/bin.'
	exec setsid cttyhack sh
fi
# STEP, RESULTS (share or console), SHARES (ro:TAG or rw:TAG) and DISKS; INIT and PREPARED, the words by which the host
# knows this script and `prepared` from what the step prints: of the former, the step is not told.
. /testvm/step
rm /testvm/step
say "kernel $(uname -r)"

if [ "$RESULTS" = share ]; then
	mkdir -p /import && mount -t virtiofs -o ro testvm /import && mount -t virtiofs results /results ||
		fail 'the shares cannot be mounted: the kernel has no virtiofs, built in or among its modules (--results console goes without)'
	script=/import/script
else
	script=/testvm/script
fi
for share in $SHARES; do
	tag=${share#*:}
	mkdir -p "/mnt/$tag" && mount -t virtiofs -o "${share%%:*}" "$tag" "/mnt/$tag" ||
		fail "the share $tag cannot be mounted"
done

# Disks of an AHCI controller come when its driver has looked at them.
tries=0
for disk in $DISKS; do
	until [ -b "$disk" ]; do
		tries=$((tries + 1))
		[ "$tries" -lt 200 ] || fail "there is no $disk: the kernel has no driver for that disk, built in or among its modules"
		sleep 0.05
	done
done

# A step ends at the first command that fails. The shell would take its own dd. What is measured begins anew at
# `prepared`.
cat >/tmp/run <<END
figure() { echo "\$1=\$2" >>/results/figures; }
prepared() { echo 'BLOCKYARD-TESTVM $PREPARED begin' >/dev/console; }
[ ! -x /tools/bin/dd ] || dd() { /tools/bin/dd "\$@"; }
. /testvm/variables
. $script
step_$STEP
END
cd /results
say begin
if [ "$RESULTS" = share ]; then
	sh -e /tmp/run </dev/null >output 2>&1
	code=$?
else
	sh -e /tmp/run </dev/null 2>&1
	code=$?
fi
# What still runs would print into the files.
kill -9 -1
say "end $code"
if [ "$RESULTS" = console ]; then
	for file in *; do
		[ ! -f "$file" ] || { say "file $file"; xxd -p "$file"; }
	done
	say done
fi
cd /
sync
umount /results 2>/dev/null
poweroff -f
