//! Experiments on PostgreSQL connections, the statistics that they need, and the reports that they leave.
//!
//! The command line is in `pgusher`; speaking the protocol is in `pgusher-client`. Here lives what lies between:
//! what is measured, in which order, and what may be concluded from it.

pub(crate) mod backend;
pub mod cold;
pub mod demo;
pub mod doctor;
pub mod failure;
pub mod floor;
pub mod manager_process;
pub mod own_schema;
pub mod prewarm;
pub(crate) mod proc;
pub mod profile;
pub mod reconnect;
pub mod report;
pub mod script;
pub mod server_view;
pub mod stats;
pub mod storm;
pub mod tables;
pub mod target;
