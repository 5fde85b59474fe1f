//! GRUB 2: its grub.cfg is a program in a shell's language, which is run here as far as it decides what is booted
//! (GNU GRUB Manual 2.12, "Writing full configuration files directly" and "GRUB environment variables").
//!
//! [`script`] reads the language, [`machine`] runs it, [`commands`] are the commands that count, [`menu`] chooses the
//! entry. Commands that show something, or load a module, do nothing and succeed.

mod commands;
mod condition;
mod environment_block;
mod machine;
mod menu;
mod script;

use crate::files::{Image, Place};
use crate::{Entry, Problem};
use machine::Machine;

/// Where grub.cfg is below the root of a file system.
const FILES: [&str; 4] = ["/grub/grub.cfg", "/grub2/grub.cfg", "/boot/grub/grub.cfg", "/boot/grub2/grub.cfg"];
/// Where distributions have theirs on an EFI system partition.
const EFI: &str = "/EFI";

pub(crate) fn find(image: &Image<'_>) -> Result<Option<Entry>, Problem> {
    for (place, text) in configurations(image) {
        let mut machine = Machine::new(image, &place);
        machine.run_configuration(&place, &text)?;
        if let Some(entry) = machine.boot_default()? {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// The configurations, those first that GRUB would most likely find.
fn configurations(image: &Image<'_>) -> Vec<(Place, String)> {
    let order = image.boot_order();
    let usual = order.iter().flat_map(|&volume| FILES.map(|path| Place::new(volume, path)));
    let on_efi = order.iter().flat_map(|&volume| {
        let directory = Place::new(volume, EFI);
        let names = image.names(&directory).into_iter();
        names.map(move |name| directory.join(&name).join("grub.cfg")).collect::<Vec<_>>()
    });
    usual
        .chain(on_efi)
        .filter_map(|place| Some((image.text(&place)?, place)))
        .map(|(text, place)| (place, text))
        .collect()
}

#[cfg(test)]
mod tests;
