#![no_std]
pub mod layout;
