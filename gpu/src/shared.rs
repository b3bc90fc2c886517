//! A machine that a device and its programs use, one at a time, until it is lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use unisonic_core::plan::{DeviceError, DeviceInfo};

use crate::machine::{Machine, MachineError};

/// A handle to a machine. Once a call has lost it, every later one gives the same error and asks the driver nothing.
pub(crate) struct SharedMachine<M: Machine>(Arc<Mutex<State<M>>>);

struct State<M> {
    machine: M,
    /// As errors name it.
    id: String,
    /// What the machine said when it was lost.
    lost: Option<String>,
}

impl<M: Machine> Clone for SharedMachine<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M: Machine> SharedMachine<M> {
    pub(crate) fn new(machine: M) -> Self {
        let id = machine.info().id;
        Self(Arc::new(Mutex::new(State { machine, id, lost: None })))
    }

    /// What the machine is.
    pub(crate) fn info(&self) -> DeviceInfo {
        self.ask(Machine::info)
    }

    /// Asks the machine something that it knows, lost or not.
    pub(crate) fn ask<T>(&self, question: impl FnOnce(&M) -> T) -> T {
        question(&self.lock().machine)
    }

    /// Asks the machine for something.
    pub(crate) fn call<T>(&self, what: impl FnOnce(&M) -> Result<T, MachineError>) -> Result<T, DeviceError> {
        let mut state = self.lock();
        if let Some(message) = &state.lost {
            return Err(DeviceError::Machine {
                device: state.id.clone(),
                message: message.clone(),
                lost: true,
            });
        }
        what(&state.machine).map_err(|error| {
            let lost = matches!(error, MachineError::Lost { .. });
            if lost {
                tracing::error!(device = state.id, %error, "the device is lost");
                state.lost = Some(error.to_string());
            }
            let device = state.id.clone();
            match error {
                MachineError::OutOfMemory { what, needed_bytes, .. } => {
                    DeviceError::OutOfMemory { device, what, needed_bytes }
                }
                error => DeviceError::Machine { device, message: error.to_string(), lost },
            }
        })
    }

    /// Drops handles of the machine while nobody else uses it.
    pub(crate) fn release<T>(&self, handles: T) {
        let _state = self.lock();
        drop(handles);
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        // A machine that panicked keeps its own state right or says that it is lost.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
