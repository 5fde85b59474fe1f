//! A client's memory, as its regions come and go.

use super::client_descriptor::ClientDescriptor;
use super::message::Region;
use blockyard_block::{AdmittedMemory, MemoryMap, MemoryMapError, SharedRegion, size};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Regions a client may have (VHOST_USER_GET_MAX_MEM_SLOTS): as many as KVM offered once, and plenty.
pub(super) const REGIONS_MAX: usize = 32;

/// Memory that one client may have, by what this machine has with its swap space: no virtual machine that is of use has
/// more than some of that, but where more was promised than there is. A file that is longer costs who made it nothing,
/// but us: what we have touched of it takes 1/512 of that in page tables, which stay when the client takes the pages
/// out of its file.
fn client_bytes_max(machine_bytes: u64) -> u64 {
    (2 * machine_bytes).clamp(16 << 30, 16 << 40)
}

/// How many times that all clients of a server may have. Memory that replaces other memory is there twice for a moment.
const FULL_CLIENTS_MAX: u64 = 4;

/// RAM and swap space of this machine; zero if it does not say.
fn machine_bytes() -> u64 {
    let mut info = MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: the kernel writes to where the pointer points; zeros are a value of the structure, too.
    let info = unsafe {
        libc::sysinfo(info.as_mut_ptr());
        info.assume_init()
    };
    info.totalram.saturating_add(info.totalswap).saturating_mul(info.mem_unit.into()).min(1 << 60)
}

/// What a server's clients may map, and what they have mapped.
#[derive(Debug)]
pub(super) struct AddressSpace {
    client_bytes_max: u64,
    taken_bytes: AtomicU64,
    /// A file on overlayfs that may be memory.
    pub(super) admitted: AdmittedMemory,
}

impl AddressSpace {
    pub(super) fn admitting(admitted: AdmittedMemory) -> Self {
        Self { client_bytes_max: client_bytes_max(machine_bytes()), taken_bytes: AtomicU64::new(0), admitted }
    }

    /// Room for one client's memory, all of it.
    fn take(self: &Arc<Self>, bytes: u64) -> Result<Room, MemoryMapError> {
        let refused = |of: &str, most| {
            let (bytes, most) = (size::human(bytes), size::human(most));
            MemoryMapError::Layout(format!(
                "{bytes} are more than the {most} that the memory of {of} may take together"
            ))
        };
        if bytes > self.client_bytes_max {
            return Err(refused("a client", self.client_bytes_max));
        }
        // Before it is known whether there is room, so that two who ask at once do not both get the last of it.
        let room = Room { space: Arc::clone(self), bytes };
        let server_bytes_max = FULL_CLIENTS_MAX * self.client_bytes_max;
        match self.taken_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= server_bytes_max {
            true => Ok(room),
            false => Err(refused("all clients", server_bytes_max)),
        }
    }
}

/// Address space that is taken until this is dropped.
#[derive(Debug)]
struct Room {
    space: Arc<AddressSpace>,
    bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.space.taken_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The regions, and the map made of them.
#[derive(Debug)]
pub(super) struct ClientMemory {
    space: Arc<AddressSpace>,
    regions: Vec<(Region, Arc<ClientDescriptor>)>,
    map: Option<MemoryMap>,
    room: Option<Room>,
}

impl ClientMemory {
    /// No memory yet; what there will be takes its room from `space`.
    pub(super) fn none(space: Arc<AddressSpace>) -> Self {
        Self { space, regions: Vec::new(), map: None, room: None }
    }

    /// All of it; `None` before there is any.
    pub(super) fn map(&self) -> Option<&MemoryMap> {
        self.map.as_ref()
    }

    /// Memory of these regions and no others.
    pub(super) fn of(&self, regions: Vec<(Region, ClientDescriptor)>) -> Result<Self, MemoryMapError> {
        self.mapped(regions.into_iter().map(|(region, file)| (region, Arc::new(file))).collect())
    }

    /// Memory with one region more.
    pub(super) fn with(&self, region: Region, file: ClientDescriptor) -> Result<Self, MemoryMapError> {
        if self.regions.len() == REGIONS_MAX {
            return Err(MemoryMapError::Layout(format!("more than {REGIONS_MAX} regions")));
        }
        let mut regions = self.regions.clone();
        regions.push((region, Arc::new(file)));
        self.mapped(regions)
    }

    /// Memory without a region.
    pub(super) fn without(&self, region: &Region) -> Result<Self, MemoryMapError> {
        let same = |(other, _): &(Region, _)| {
            let of = |region: &Region| (region.guest_address, region.length_bytes, region.user_address);
            of(other) == of(region)
        };
        let mut regions = self.regions.clone();
        let index = regions.iter().position(same);
        let missing = || MemoryMapError::Layout(format!("no region at {:#x} to be removed", region.guest_address));
        regions.remove(index.ok_or_else(missing)?);
        self.mapped(regions)
    }

    fn mapped(&self, regions: Vec<(Region, Arc<ClientDescriptor>)>) -> Result<Self, MemoryMapError> {
        let mut memory = Self { regions, ..Self::none(Arc::clone(&self.space)) };
        if memory.regions.is_empty() {
            return Ok(memory);
        }
        let mut files = memory.regions.clone();
        if let [(region, _)] = &mut files[..] {
            *region = with_its_program(*region);
        }
        let bytes = files.iter().fold(0, |sum: u64, (region, _)| sum.saturating_add(region.length_bytes));
        memory.room = Some(self.space.take(bytes)?);
        let shared = files.into_iter().map(|(region, file)| SharedRegion {
            address: region.guest_address,
            length_bytes: region.length_bytes,
            file,
            file_offset_bytes: region.file_offset_bytes,
        });
        memory.map = Some(MemoryMap::from_admitted_files(shared.collect(), &self.space.admitted)?);
        Ok(memory)
    }

    /// The guest-physical address of what the client itself has at `user_address`.
    pub(super) fn guest_address(&self, user_address: u64) -> Option<u64> {
        self.regions.iter().find_map(|(region, _)| {
            let offset = user_address.checked_sub(region.user_address)?;
            // The map was made, so this is within it and does not wrap around.
            (offset < region.length_bytes).then(|| region.guest_address + offset)
        })
    }
}

/// The memory of User-Mode Linux, which is one file with each address at that offset, begins with its kernel's program,
/// and that it does not tell us about: the file has a hole there. Newer kernels (Linux 7) have their page of zeros in
/// the program and have it written to disks, as a RAID does that is zeroed (`blkdev_issue_zeroout`). So we take the
/// file from its start, where all that we find is zeros. Any other client with such a region gives its guest's requests
/// what its file begins with, which is said in SECURITY.md.
fn with_its_program(region: Region) -> Region {
    let start = region.guest_address;
    if [region.user_address, region.file_offset_bytes] != [start; 2] {
        return region;
    }
    Region {
        guest_address: 0,
        user_address: 0,
        file_offset_bytes: 0,
        length_bytes: region.length_bytes.saturating_add(start),
    }
}

#[cfg(test)]
mod tests {
    use super::super::client_descriptor::Closers;
    use super::super::session::Shared;
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    const START: u64 = 0x80_0000;

    fn map_of(region: Region) -> MemoryMap {
        let file = File::from(memfd_create("memory", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&file, START + 4096).unwrap();
        file.write_all_at(b"memory", START).unwrap();
        let session = Arc::new(Shared::new("disk".into(), 1).unwrap());
        let file = Closers::new(1024).start(0, &session).unwrap().keep(file);
        ClientMemory::none(Arc::new(AddressSpace::admitting(AdmittedMemory::default())))
            .of(vec![(region, file)])
            .unwrap()
            .map
            .unwrap()
    }

    #[test]
    fn a_client_may_have_what_a_virtual_machine_can() {
        assert_eq!([0, 1 << 30, 512 << 30, 1 << 60].map(client_bytes_max), [16 << 30, 16 << 30, 1 << 40, 16 << 40]);
        assert!(machine_bytes() > 1 << 27);
    }

    #[test]
    fn the_page_of_zeros_in_the_program_of_user_mode_linux_can_be_written_to_a_disk() {
        let region = Region { guest_address: START, length_bytes: 4096, user_address: START, file_offset_bytes: START };
        let bytes = |map: &MemoryMap, address| map.read::<6>(address);
        let map = map_of(region);
        assert_eq!(bytes(&map, START), Some(*b"memory"));
        assert_eq!(bytes(&map, 0x7e_f000), Some([0; 6]));
        assert_eq!(bytes(&map, START + 4096), None);
        // Anybody else has told us about all of it.
        let map = map_of(Region { user_address: 0x7f00_0000_0000, ..region });
        assert_eq!(bytes(&map, START), Some(*b"memory"));
        assert_eq!(bytes(&map, 0x7e_f000), None);
    }
}
