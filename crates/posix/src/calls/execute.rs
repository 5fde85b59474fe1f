//! Calls that execute a file, of which a disk is none, and which is told of the disks.

use crate::calls::names::{disk_at, disk_named};
use crate::environment::{self, Strings};
use crate::errno::{Errno, answer_int};
use crate::guarded::get;
use crate::next::{Next, calls, own};
use crate::table;
use libc::{c_char, c_int, c_void, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};
use std::arch::naked_asm;

calls! {
    fn [execve](path: *const c_char, arguments: Strings, environment: Strings) -> c_int |_own| {
        let execute = |environment| own_execve(path, arguments, environment);
        disk_named(path).map_or_else(|| environment::with(environment, execute), |_| refused())
    }
    fn [execv](path: *const c_char, arguments: Strings) -> c_int |_own| {
        let execute = |environment| own_execve(path, arguments, environment);
        disk_named(path).map_or_else(|| environment::with_own(execute), |_| refused())
    }
    fn [execvp](file: *const c_char, arguments: Strings) -> c_int |_own| {
        let execute = |environment| own_execvpe(file, arguments, environment);
        disk_found(file).map_or_else(|| environment::with_own(execute), |_| refused())
    }
    fn [execvpe](file: *const c_char, arguments: Strings, environment: Strings) -> c_int |_own| {
        let execute = |environment| own_execvpe(file, arguments, environment);
        disk_found(file).map_or_else(|| environment::with(environment, execute), |_| refused())
    }
    fn [fexecve](descriptor: c_int, arguments: Strings, environment: Strings) -> c_int |_own| {
        if table::has(descriptor) {
            return refused();
        }
        environment::with(environment, |environment| {
            own!(fexecve(descriptor: c_int, arguments: Strings, environment: Strings) -> c_int)
        })
    }
    fn [execveat](
        directory: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int
    ) -> c_int |_own| {
        if disk_at(directory, path, flags).is_some() {
            return refused();
        }
        environment::with(environment, |environment| {
            own!(execveat(
                directory: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int
            ) -> c_int)
        })
    }
    fn [posix_spawn](
        process: *mut pid_t,
        path: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        arguments: Strings,
        environment: Strings,
    ) -> c_int |_own| {
        if disk_named(path).is_some() {
            return libc::EACCES;
        }
        environment::with(environment, |environment| {
            own!(posix_spawn(
                process: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t,
                attributes: *const posix_spawnattr_t, arguments: Strings, environment: Strings
            ) -> c_int)
        })
    }
    fn [posix_spawnp](
        process: *mut pid_t,
        file: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        arguments: Strings,
        environment: Strings,
    ) -> c_int |_own| {
        if disk_found(file).is_some() {
            return libc::EACCES;
        }
        environment::with(environment, |environment| {
            own!(posix_spawnp(
                process: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t,
                attributes: *const posix_spawnattr_t, arguments: Strings, environment: Strings
            ) -> c_int)
        })
    }
}

fn own_execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    own!(execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int)
}

fn own_execvpe(file: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    own!(execvpe(file: *const c_char, arguments: Strings, environment: Strings) -> c_int)
}

/// As execve(2) says of a device, and of a file that nobody may execute.
extern "C" fn refused() -> c_int {
    answer_int::<c_int>(Err(Errno(libc::EACCES)))
}

/// The disk that a file is which is looked for in PATH, if there is no slash in its name.
fn disk_found(file: *const c_char) -> Option<usize> {
    let bytes = (0..libc::PATH_MAX as usize).map_while(|at| get(file.cast::<u8>().wrapping_add(at)).ok());
    let has_slash = bytes.take_while(|&byte| byte != 0).any(|byte| byte == b'/');
    disk_named(file).filter(|_| has_slash)
}

/// Functions whose arguments are a file and any number of others: libc's is jumped to, with all of them.
macro_rules! lists {
    ($($name:ident, $goes_to:ident, $disk:ident;)*) => {$(
        extern "C" fn $goes_to(file: *const c_char) -> *const c_void {
            static NEXT: Next = Next::named(concat!(stringify!($name), "\0"));
            if $disk(file).is_some() {
                return refused as *const c_void;
            }
            // What one of them is given besides, it is given among its arguments.
            environment::complete_own();
            NEXT.address()
        }

        /// # Safety
        /// As libc's.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push rax",
                "call {goes_to}",
                "mov r11, rax",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp r11",
                goes_to = sym $goes_to,
            )
        }
    )*};
}

lists! {
    execl, execl_goes_to, disk_named;
    execle, execle_goes_to, disk_named;
    execlp, execlp_goes_to, disk_found;
}
