//! The whole agent beside a driver, an API server and managers that behave as the tests say.

mod amounts;
mod api;
mod claims;
mod injection;
mod instances;
mod limits;
mod loader;
mod lost_gpus;
mod manager;
mod memory;
mod node;
mod overcommitment;
mod pages;
mod restarts;
mod several_containers;
mod several_gpus;
mod slots;
