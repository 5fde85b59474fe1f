# dd: blocks of 4K to 8M past the guest's cache, a file copied to another on ext2, and the disk read (MB/s)
#
# The first disk is overwritten. Of it, MIB are copied and read: it needs more than twice as much.
MIB=${MIB:-128}
: "${DISK:?takes a disk: --disk DISK}"

# The bytes that dd says it has done, by the seconds that it says it took.
rate() { figure MB/s "$(awk '/copied/ { bytes = $1; sub(/.*copied, /, ""); printf "%.1f", bytes / $1 / 1e6 }' dd.txt)"; }

copied() {
	mke2fs -b 4096 "$DISK" >/dev/null
	mkdir /tmp/disk
	mount -t ext2 "$DISK" /tmp/disk
	dd if=/dev/urandom of=/tmp/disk/src.img bs=1M count="$MIB" conv=fsync 2>/dev/null
	prepared
	dd if=/tmp/disk/src.img of=/tmp/disk/dst.img bs="$1" iflag=direct oflag=direct conv=fsync 2>dd.txt
	rate
}

disk_read() {
	dd if="$DISK" of=/dev/null bs="$1" count=$((MIB * 1048576 / $1)) iflag=direct 2>dd.txt
	rate
}

step_copy_4k() { copied 4096; }
step_copy_8k() { copied 8192; }
step_copy_32k() { copied 32768; }
step_copy_128k() { copied 131072; }
step_copy_512k() { copied 524288; }
step_copy_2m() { copied 2097152; }
step_copy_8m() { copied 8388608; }
step_read_4k() { disk_read 4096; }
step_read_8k() { disk_read 8192; }
step_read_32k() { disk_read 32768; }
step_read_128k() { disk_read 131072; }
step_read_512k() { disk_read 524288; }
step_read_2m() { disk_read 2097152; }
step_read_8m() { disk_read 8388608; }
