# fio: four jobs of 4K blocks, 64 in flight by libaio, on the disk past the guest's cache (MB/s)
#
# The first disk is overwritten. Each job runs for RUNTIME seconds.
: "${DISK:?takes a disk: --disk DISK}"

job() {
	fio --name="$1" --rw="$1" --filename="$DISK" --bs=4k --ioengine=libaio --iodepth=64 --direct=1 \
		--runtime="${RUNTIME:-20}" --time_based --minimal >fio.txt
	# KiB/s that were read, and written: the 7th and the 48th field of version 3 of what --minimal writes.
	figure MB/s "$(awk -F ';' '$1 == 3 { printf "%.1f", ($7 + $48) * 1.024 / 1e3 }' fio.txt)"
}

step_randread() { job randread; }
step_randwrite() { job randwrite; }
step_read() { job read; }
step_write() { job write; }
