//! The partition mediator: a process that grants clients parts of a served disk.
