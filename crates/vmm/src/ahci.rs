//! AHCI disks attached to a machine: ports of a PCI function, whose queues are on the I/O threads.

use crate::attached_disk::AttachedDisk;
use crate::io_thread::QueueRouter;
use crate::machine::MachineError;
use blockyard_block::{Disk, MemoryMap, explain};
use blockyard_devices::ahci::{self, AhciController, PORTS_MAX};
use blockyard_devices::{Interrupt, QueueStatistics};
use std::sync::Arc;

/// The disks of a controller that is being put together.
#[derive(Default)]
pub(crate) struct AhciDisks {
    disks: Vec<(Arc<dyn Disk>, Arc<QueueStatistics>)>,
}

impl AhciDisks {
    pub(crate) fn is_empty(&self) -> bool {
        self.disks.is_empty()
    }

    /// Adds a disk, at the next port.
    pub(crate) fn add(&mut self, disk: Arc<dyn Disk>) -> Result<AttachedDisk, MachineError> {
        if self.disks.len() == PORTS_MAX {
            let sentence = format!("the machine has room for {PORTS_MAX} AHCI disks");
            return Err(MachineError::Refused(sentence));
        }
        let statistics = Arc::<QueueStatistics>::default();
        self.disks.push((disk, Arc::clone(&statistics)));
        Ok(AttachedDisk { statistics: vec![statistics] })
    }

    /// A controller with all of them: port n is served by I/O thread n. All ports signal `interrupt`.
    pub(crate) fn controller(
        self,
        memory: &MemoryMap,
        router: &QueueRouter,
        interrupt: &Arc<dyn Interrupt>,
    ) -> Result<AhciController, MachineError> {
        let mut controller = AhciController::new(memory.clone());
        for (index, (disk, statistics)) in self.disks.into_iter().enumerate() {
            let (name, serial) = (format!("ahci{index}"), format!("blockyard-ahci{index}"));
            let disk = ahci::AhciDisk { name, serial, disk, interrupt: Arc::clone(interrupt) };
            let queue = controller.attach(disk, statistics);
            let queue = queue.map_err(|error| MachineError::Refused(explain(&error)))?;
            router.hand_over([queue]);
        }
        Ok(controller)
    }
}
