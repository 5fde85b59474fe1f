//! The commands on the files of an image: their arguments, and what they say.

pub mod changes;
pub mod copying;
pub mod dd;
pub mod df;
pub mod du;
pub mod edit;
pub mod file_json;
mod file_mode;
pub mod find;
mod find_arguments;
pub mod ls;
pub mod making;
pub mod read_in;
pub mod run;
pub mod stat;
pub mod tar;
