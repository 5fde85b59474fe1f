//! Whether the two sides of a session must share a CPU.

/// Whether they must: then looking keeps the other side from working. The CPUs that this process may use do not say
/// that: it may be pinned to one so that the other side has the others.
pub(crate) fn machine_has_one_cpu() -> bool {
    // A list such as `0-3,8` (Linux, Documentation/admin-guide/cputopology.rst).
    std::fs::read_to_string("/sys/devices/system/cpu/online").is_ok_and(|cpus| !cpus.contains(['-', ',']))
}
