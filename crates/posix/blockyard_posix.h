/* Disks of Blockyard's as files of this program's.
 *
 * A program that is linked to this library (pkg-config blockyard-posix), or started with it (LD_PRELOAD), opens a disk
 * by a name, and open(2), read(2), pwrite(2), fsync(2), lseek(2), aio_read(3) and the others do on it what they do on a
 * block device. */
#ifndef BLOCKYARD_POSIX_H
#define BLOCKYARD_POSIX_H

#ifdef __cplusplus
extern "C" {
#endif

/* From now on, what this process opens by `name`, byte by byte, is `disk`, as the command line of blockyard says it:
 * "vm.qcow2,partition=2", "session:vm.sock". Nothing is opened yet. The programs that it executes do not have it.
 *
 * Returns 0, or -1 with errno: EINVAL, if that is no disk or the name is empty; EEXIST, if another is called so; ENOSPC,
 * if there are 64; EFAULT. */
int blockyard_attach(const char *disk, const char *name);

#ifdef __cplusplus
}
#endif

#endif
